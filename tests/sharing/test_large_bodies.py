"""A body that hosts do not take travels in pieces, and is on the other side what it was, under the same ids."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ctxvc.errors import CtxvcError, Refused
from ctxvc.sharing import indexes, purges, push, remotes
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge.purge import PurgeRequest, purge
from ctxvc.store.secrets import push_check
from ctxvc.store.store import Store
from tests.making.conversation import human, reply
from tests.sharing.clones import Clone, everything, refs
from tests.sharing.test_sharing import same, sound

#: Refuses a push with a file of 8,000 bytes or more, as a host does with one of 100 MiB.
_HOOK = """#!/bin/sh
while read before after ref; do
  git rev-list --objects $after --not --all | cut -d' ' -f1 | git cat-file --batch-check='%(objecttype) %(objectsize)' |
    awk '$1 == "blob" && $2 >= 8000 {print "too large: " $2 > "/dev/stderr"; bad = 1} END {exit bad}' || exit 1
done
"""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach: 4 kB is large, a piece has 3 kB."""
    monkeypatch.setattr(push_check, "LARGE", 4_000)
    monkeypatch.setattr(push, "SIZE", 3_000)


@pytest.fixture(autouse=True)
def host(server: Path) -> Path:
    hook = server / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK)
    hook.chmod(0o755)
    return server


def noise(seed: int, length: int = 20_000) -> str:
    """A text that does not become small when it is packed."""
    return random.Random(seed).randbytes(length // 2).hex()


def carriers(clone: Clone) -> dict[str, str]:
    """Session → carrier, as the clone's index on the remote has them."""
    with Store(clone.path) as store:
        index = indexes.fetch(remotes.find(store).address).clones[clone.name]
    return {name: entry.pieces for name, entry in index.sessions.items()}


def test_it_arrives_whole_and_goes_on_in_both_directions(anna: Clone, bob: Clone, host: Path) -> None:
    anna.say("small", session="other")
    anna.say(noise(1))
    pushed = anna.push()
    bob.pull()

    assert [(body.session, body.bytes) for body in pushed.large] == [("demo", 20_007), ("demo", 20_000)]
    assert noise(1) in bob.texts() and same(anna, bob) and sound(bob) and sound(anna)
    assert noise(1).encode() not in everything(host), "the host has pieces, and no such file"
    assert not carriers(anna)["other"], "a session that can be pushed as it is, is"

    bob.say("of bob")
    bob.push()
    anna.pull()
    anna.say(noise(2))
    anna.say("of anna", session="other")
    anna.push()
    bob.pull()
    assert {noise(2), "of bob", "of anna"} <= bob.texts() and same(anna, bob) and sound(bob)


def test_a_session_that_grows_sends_what_is_new_and_a_newcomer_gets_all(
    anna: Clone, bob: Clone, tmp_path: Path, server: Path
) -> None:
    anna.say(noise(1))
    anna.push()
    bob.pull()
    before = carriers(anna)["demo"]
    size = len(everything(server))

    anna.say("more")
    anna.push()
    assert not anna.push().is_new, "a second time there is nothing to do"

    assert carriers(anna)["demo"] != before and len(everything(server)) - size < 10_000
    assert bob.pull().arrivals and same(anna, bob)
    carol = Clone(tmp_path / "carol" / ".ctxvc", "carol", str(server))
    carol.pull()
    assert same(anna, carol) and sound(carol)


def test_a_session_goes_in_pieces_once_it_must_and_so_does_another_with_the_same_body(anna: Clone, bob: Clone) -> None:
    anna.say("small")
    anna.push()
    bob.pull()
    anna.say(noise(1))
    anna.push()
    anna.say(noise(1), session="twin")
    anna.push()

    assert all(carriers(anna).values())
    assert bob.pull().arrivals and same(anna, bob) and sound(bob)


def test_a_secret_in_it_and_a_host_that_refuses_for_another_reason_are_told(
    anna: Clone, server: Path, host: Path
) -> None:
    anna.say("small")
    with Store(anna.path, redact=False) as store, StoredSession.open(store, "demo") as stored:
        stored.append(human(noise(1) + "\nghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"), reply("noted"))
    with pytest.raises(Refused, match="this would send secrets"):
        anna.push()
    assert not refs(server)

    with Store(anna.path) as store:
        purge(store, PurgeRequest(secrets=True))
    (host / "hooks" / "pre-receive").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CtxvcError, match="refused it"):
        anna.push(after_purge=True)


def test_a_purge_reaches_the_pieces(anna: Clone, bob: Clone, server: Path) -> None:
    anna.say(noise(1) + " the hidden word")
    anna.push()
    bob.pull()
    with Store(anna.path) as store:
        purge(store, PurgeRequest(texts=("the hidden word",)))
    anna.push(after_purge=True)
    subprocess.run(["git", f"--git-dir={server}", "gc", "--quiet", "--prune=now"], check=True)

    assert all(carriers(anna).values())
    with pytest.raises(Refused, match="purged content"):
        bob.pull()
    with Store(bob.path) as store:
        purges.accept(store)
    assert b"the hidden word" not in bob.objects() and b"the hidden word" not in anna.objects()
    bob.push(after_purge=True)
    bob.pull()
    assert same(anna, bob) and sound(bob)


def test_pieces_that_make_no_pack_leave_the_session_out_and_nothing_stays(
    anna: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = push.carriers.files
    monkeypatch.setattr(push.carriers, "files", lambda tips, base, parts: real(tips, base, [*parts][1:]))
    anna.say(noise(1))
    anna.say("small", session="other")
    anna.push()

    damaged = [str(error) for error in bob.pull().damaged]

    assert "make no pack" in damaged[0] and "demo/main was not pulled" in damaged[1]
    assert {session for session, _ in bob.all_tips()} == {"other"}, "the other session came"
    assert not (bob.path / "ctxvc" / "incoming").exists()
