"""A session on a remote is looked at without a pull: its ledger, and of its bodies those that are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctxvc.errors import Damaged, NotFound, Refused, Unreachable
from ctxvc.sharing import browse, indexes, remotes
from ctxvc.store.cache import cached_scope
from ctxvc.store.cache.cached_repository import CachedRepository
from ctxvc.store.purge import carried
from ctxvc.store.purge.carried import PurgeRecord
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from tests.making.store import git
from tests.sharing.clones import Clone, everything
from tests.sharing.web import remember_password, served


@pytest.fixture
def sparing(server: Path) -> Path:
    """The server, which can leave files out of a fetch, as git hosts do."""
    git(server, "config", "uploadpack.allowFilter", "true")
    return server


def looked_at(clone: Clone, session: str = "demo", scope: str = "") -> Snapshot:
    with Store(clone.path) as store:
        remote = remotes.find(store)
        return browse.snapshot(store, remote, indexes.cached(remote.address), session, scope)


def fetched(clone: Clone) -> Clone:
    with Store(clone.path) as store:
        indexes.fetch(remotes.find(store).address)
    return clone


def cached_bytes(address: str) -> bytes:
    return everything(CachedRepository(address, cached_scope.KIND).path)


def test_only_the_bodies_that_are_read_come_and_the_store_stays_whole(anna: Clone, bob: Clone, sparing: Path) -> None:
    anna.say("of the first step")
    anna.say("of the second step")
    anna.push()

    address = f"file://{sparing}"
    with Store(bob.path) as store:
        remotes.add(store, remotes.Remote(name="origin", address=address))
    snapshot = looked_at(fetched(bob))
    rows = list(snapshot.ledger.rows())
    assert b"of the second step" not in cached_bytes(address).replace(rows[2].label.encode(), b"")

    assert snapshot.bodies.body(rows[2]) == b"of the second step"
    assert len(rows) == 4 and cached_bytes(address).count(b"blob 18\n") == 1, "one body came, of two of that length"
    assert not bob.all_tips() and b"second step" not in bob.objects()


def test_what_was_read_is_read_again_offline_and_all_else_says_why_not(
    anna: Clone, tmp_path: Path, sparing: Path
) -> None:
    anna.say("of the first step")
    anna.push()
    with served(sparing.parent) as web:
        remember_password(Path(os.environ["HOME"]), web)
        carol = fetched(Clone(tmp_path / "carol" / ".ctxvc", "carol", f"{web.address}/sessions.git"))
        first, second = looked_at(carol).ledger.rows()
        looked_at(carol).bodies.body(first)

    offline = looked_at(carol)
    assert offline.bodies.body(first) == b"of the first step"
    with pytest.raises(Unreachable, match=r"B2 was not read here before, and the connection to .* broke"):
        offline.bodies.body(second)


def test_a_killed_fetch_leaves_nothing_in_the_way(anna: Clone, bob: Clone, server: Path) -> None:
    anna.say("one")
    anna.push()
    path = CachedRepository(str(server), cached_scope.KIND).path
    looked_at(fetched(bob))
    with (path / "config").open("a") as file:
        file.write(f'[remote "{server}"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n')
    snapshot = looked_at(bob)
    assert snapshot.bodies.body(next(iter(snapshot.ledger.rows()))) == b"one"


def test_what_a_purge_erased_here_is_not_shown_and_not_kept(
    anna: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch, server: Path
) -> None:
    anna.say("one")
    anna.push()
    snapshot = looked_at(fetched(bob))
    monkeypatch.setattr(carried, "own", lambda _: PurgeRecord(commits={snapshot.commit: "0" * 40}))
    with pytest.raises(Refused, match="a purge erased this here"):
        looked_at(bob)
    indexes.forget(str(server))
    assert not CachedRepository(str(server), cached_scope.KIND).exists


def test_names_that_are_not_there_and_a_tip_of_another_scope(anna: Clone, bob: Clone) -> None:
    anna.say("one")
    anna.branch("fix", "look")
    anna.push()
    fetched(bob)
    with pytest.raises(NotFound, match=r"no session 'dem' on origin.*demo"):
        looked_at(bob, "dem")
    with pytest.raises(NotFound, match="has no scope 'fax'"):
        looked_at(bob, scope="fax")
    tips = anna.tips()
    with Store(bob.path) as store, pytest.raises(Damaged, match="of another scope than demo/fix"):
        cached_scope.CachedScope(remotes.find(store).address, "demo", "fix", tips["main"]).snapshot()
