"""The same over servers: git's own behind a web server with a password, whose connections break; `git daemon`."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.errors import Conflict, CtxvcError, Damaged, NotFound, Refused, Unreachable
from ctxvc.sharing import audience, indexes, remotes
from ctxvc.store.cache import cached_repository
from ctxvc.store.cache.cached_repository import CachedRepository
from ctxvc.store.git import transport
from ctxvc.store.purge import carried
from ctxvc.store.purge.carried import PurgeRecord
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.store import git
from tests.sharing.clones import Clone, everything
from tests.sharing.web import Web, remember_password, served


@pytest.fixture
def web(server: Path) -> Iterator[Web]:
    with served(server.parent) as web:
        remember_password(Path(os.environ["HOME"]), web)
        yield web


def clone(place: Path, address: str, name: str = "anna") -> Clone:
    return Clone(place / name / ".ctxvc", name, address)


def pair(place: Path, address: str) -> tuple[Clone, Clone]:
    return clone(place, address), clone(place, address, "bob")


def rounds(clones: tuple[Clone, Clone], web: Web, count: int, seed: int) -> set[str]:
    """Writing, pushing and pulling in random order, every other connection cut; what was said."""
    chance = random.Random(seed)
    spoken: set[str] = set()
    for number in range(count):
        clone = chance.choice(clones)
        match chance.choice(("say", "branch", "push", "pull", "push", "pull")):
            case "say":
                text = f"{clone.name} {number}"
                tips = clone.tips()
                clone.say(text, scope=chance.choice(sorted(tips)) if tips else "main")
                spoken.add(text)
            case "branch" if clone.tips():
                clone.branch(f"{clone.name}-{number}", f"branch {number}")
            case "push" | "pull" as verb:
                web.cut_after = chance.choice((None, chance.randrange(4_000), chance.randrange(40_000)))
                try:
                    getattr(clone, verb)()
                except (Unreachable, Conflict):
                    pass
                finally:
                    web.cut_after = None
    return spoken


def settled(clones: tuple[Clone, Clone]) -> bool:
    """Whether both have the same tips after each has pushed and pulled; all of it sound."""
    for _ in range(2):
        for clone in clones:
            clone.pull()
            clone.push()
    for clone in clones:
        clone.pull()
        with Store(clone.path) as store:
            assert not verify(store).damaged
    return clones[0].all_tips() == clones[1].all_tips()


@pytest.mark.parametrize(
    ("count", "seed"),
    [(3, 7), pytest.param(100, 1, marks=pytest.mark.slow), pytest.param(100, 2, marks=pytest.mark.slow)],
)
def test_connections_that_break_lose_nothing(tmp_path: Path, web: Web, count: int, seed: int) -> None:
    clones = pair(tmp_path, f"{web.address}/sessions.git")
    clones[0].say("first")
    clones[0].push()
    clones[1].pull()

    spoken = rounds(clones, web, count, seed)

    assert settled(clones) and (count < 100 or len(spoken) > 10)
    assert all(spoken <= clone.texts() for clone in clones)


def test_a_password_a_server_or_a_repository_that_is_not_there_is_named(tmp_path: Path, server: Path) -> None:
    with served(server.parent) as web:
        anna = clone(tmp_path, f"{web.address}/sessions.git")
        anna.say("one")
        with pytest.raises(Refused, match="credentials"):
            anna.push()
        assert not audience.is_public(f"{web.address}/sessions.git")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/x.git"
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            clone(tmp_path, address, "bob").pull()
    with pytest.raises(NotFound, match=r"nowhere\.git"):
        clone(tmp_path, str(tmp_path / "nowhere.git"), "carol").pull()


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("fatal: Authentication failed for 'https://x/'", Refused),
        ("ssh: Could not resolve hostname x: Name or service not known", Unreachable),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", Unreachable),
        ("kex_exchange_identification: Connection closed by remote host", Unreachable),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", Refused),
        ("git@x: Permission denied (publickey).", Refused),
        ("remote: Repository not found.\nfatal: repository 'https://x/' not found", NotFound),
        ("error: RPC failed; curl 18 transfer closed with outstanding read data remaining", Unreachable),
        ("!\trefs/x\t[remote rejected] (pre-receive hook declined)", Refused),
        ("!\trefs/x:refs/x\t[rejected] (stale info)", Conflict),
        ("fatal: write error: No space left on device", CtxvcError),
        ("\x1b[31mfatal: something \x07 new", CtxvcError),
    ],
)
def test_an_error_of_the_transport_is_said_in_words(output: str, kind: type[CtxvcError]) -> None:
    error = transport._error("https://me:secret@x/y.git", output)

    assert type(error) is kind and error.hint
    assert "secret" not in str(error) and "\x1b" not in str(error) and "\x07" not in str(error)


@pytest.mark.slow
def test_over_the_protocol_of_git_itself(tmp_path: Path, server: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--export-all", "--enable=receive-pack", f"--base-path={server.parent}", "--reuseaddr",
         "--listen=127.0.0.1", f"--port={port}", str(server.parent)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if not trial.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.02)
        address = f"git://127.0.0.1:{port}/sessions.git"
        clones = pair(tmp_path, address)
        for clone in clones:
            clone.say(f"of {clone.name}", session=clone.name)

        assert settled(clones)
        assert audience.is_public(address), "whoever reaches it can read it"
    finally:
        os.killpg(daemon.pid, 15)
        daemon.wait()


# --- a session on a remote is looked at without a pull: its ledger, and of its bodies those that are read


@pytest.fixture
def sparing(server: Path) -> Path:
    """The server, which can leave files out of a fetch, as git hosts do."""
    git(server, "config", "uploadpack.allowFilter", "true")
    return server


def looked_at(clone: Clone, session: str = "demo", scope: str = "") -> Snapshot:
    with Store(clone.path) as store:
        remote = remotes.find(store)
        return indexes.snapshot(store, remote, indexes.cached(remote.address), session, scope)


def fetched(clone: Clone) -> Clone:
    with Store(clone.path) as store:
        indexes.fetch(remotes.find(store).address)
    return clone


def cached_bytes(address: str) -> bytes:
    return everything(CachedRepository(address, cached_repository.KIND).path)


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
    path = CachedRepository(str(server), cached_repository.KIND).path
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
    assert not CachedRepository(str(server), cached_repository.KIND).exists


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
        cached_repository.CachedScope(remotes.find(store).address, "demo", "fix", tips["main"]).snapshot()
