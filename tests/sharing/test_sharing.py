"""Two clones and a remote: what one pushes the other gets, and nothing of anybody is lost on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import name_rules
from ctxvc.errors import BadInput, Refused
from ctxvc.sharing import audience, indexes, inventory, push, remotes
from ctxvc.sharing import index as indices
from ctxvc.sharing.pull import line_moves
from ctxvc.store.git import transport
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links
from ctxvc.store.secrets import push_check
from ctxvc.store.store import Store
from ctxvc.store.trust import quarantine
from ctxvc.store.verify.verify import verify
from tests.making.conversation import human, reply
from tests.making.store import complaints
from tests.sharing.clones import Clone, bare, refs


def same(*clones: Clone) -> bool:
    """Whether all have the same commits at the end of their scopes."""
    return len({frozenset(clone.all_tips()) for clone in clones}) == 1


def sound(clone: Clone) -> bool:
    with Store(clone.path) as store:
        return not verify(store).damaged and not (store.sessions() and complaints(clone.path))


def test_what_one_clone_pushes_the_other_pulls_once(anna: Clone, bob: Clone, server: Path) -> None:
    assert not bob.pull().arrivals, "an empty remote has nothing"
    anna.say("hello")
    anna.branch("fix", "look into it")

    pushed = anna.push()
    pulled = bob.pull()

    assert pushed.changed == ("demo",) and list(refs(server)) == ["refs/ctxvc/w/anna"]
    assert [(arrival.session, arrival.is_new) for arrival in pulled.arrivals] == [("demo", True)]
    assert same(anna, bob) and sound(bob)
    with Store(bob.path) as store:
        assert store.current_scope("demo") == "fix", "it goes on where the other was"
    before = refs(server)
    assert not anna.push().is_new and refs(server) == before and not bob.pull().arrivals


@pytest.fixture
def both(anna: Clone, bob: Clone) -> None:
    """Both have the same step."""
    anna.say("one")
    anna.push()
    bob.pull()


def test_a_scope_that_one_clone_continued_goes_on_in_the_other(anna: Clone, bob: Clone, both: None) -> None:
    bob.say("two")
    bob.push()

    (arrival,) = anna.pull().arrivals

    assert arrival.scopes == ("main",) and not arrival.apart
    assert same(anna, bob) and {"one", "two"} <= anna.texts()


def test_a_scope_that_both_continued_is_kept_twice_and_a_goto_joins_them(anna: Clone, bob: Clone, both: None) -> None:
    anna.say("of anna")
    bob.say("of bob")
    for clone in (anna, bob, anna, bob):
        clone.pull()
        clone.push()

    assert anna.tips().keys() == {"main", "main@bob"} and bob.tips().keys() == {"main", "main@anna"}
    assert same(anna, bob) and sound(anna) and sound(bob)
    assert anna.tips()["main"] == bob.tips()["main@anna"]

    anna.goto("main@bob", "we both looked")
    anna.push()
    bob.pull()

    assert bob.tips()["main"] == anna.tips()["main@bob"], "the line that bob calls main has gone on"
    assert same(anna, bob) and sound(bob)


def test_a_line_that_a_goto_has_joined_is_not_told_to_have_grown_apart(anna: Clone, bob: Clone, both: None) -> None:
    anna.say("of anna")
    bob.say("of bob")
    bob.push()
    assert [arrival.apart for arrival in anna.pull().arrivals] == [("main@bob",)]

    anna.goto("main@bob", "we both looked")
    anna.push()
    arrivals = bob.pull().arrivals

    assert [(set(arrival.scopes), arrival.apart) for arrival in arrivals] == [({"main", "main@anna"}, ())]


@pytest.mark.slow
def test_an_open_step_stays_where_it_is(anna: Clone, bob: Clone, both: None) -> None:
    anna.say("two")
    anna.push()
    with Store(bob.path) as store, StoredSession.open(store, "demo") as stored:
        stored.append(human("in the middle"), reply("", "call"))
        tip = store.tips("demo")["main"]
        bob.pull()

        assert store.tips("demo")["main"] == tip and "main@anna" in store.tips("demo")
        stored.refresh()
        stored.finish()
    assert sound(bob) and "in the middle" in bob.texts()


def test_only_the_named_session_is_taken_whole_and_one_taken_back_is_not_in_the_next_index(
    anna: Clone, bob: Clone
) -> None:
    anna.say("one")
    anna.say("private", session="other")
    anna.push()
    bob.pull("demo")
    assert {session for session, _ in bob.all_tips()} == {"demo"} and sound(bob)

    with Store(anna.path) as store:
        remotes.update(store, msgspec.structs.replace(remotes.find(store), withheld=("other",)))
    assert anna.push().withdrawn == ("other",)
    bob.pull()
    assert {session for session, _ in bob.all_tips()} == {"demo"}


def test_a_push_with_a_secret_in_it_or_that_cannot_be_searched_sends_nothing(
    anna: Clone, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(anna.path, redact=False) as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as stored:
            stored.append(human("the key is AKIAIOSFODNN7EXAMPLQ, keep it"), reply("yes"))
    with pytest.raises(Refused, match="secrets"):
        anna.push()

    def broken(*_: object) -> None:
        raise RuntimeError("the search broke")

    monkeypatch.setattr(push_check, "refuse", broken)
    with pytest.raises(RuntimeError):
        anna.push()
    assert not refs(server)


def test_two_stores_cannot_have_one_name(anna: Clone, tmp_path: Path, server: Path) -> None:
    anna.say("one")
    anna.push()
    twin = Clone(tmp_path / "twin" / ".ctxvc", "anna", str(server))
    twin.say("other")
    before = refs(server)

    for operation in (twin.push, twin.pull):
        with pytest.raises(Refused, match="another store pushes"):
            operation()

    assert refs(server) == before


def test_a_push_killed_before_it_was_noted_is_repeated(
    anna: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna.say("one")

    send = transport.push

    def killed(*arguments: Any, **options: Any) -> None:
        send(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transport, "push", killed)
        with pytest.raises(KeyboardInterrupt):
            anna.push()
    anna.say("two")
    anna.push()
    bob.pull()

    assert same(anna, bob)


@pytest.mark.parametrize("place", ["accept", "check"])
def test_a_pull_killed_anywhere_is_repeated(
    anna: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    anna.say("one")
    anna.push()
    original = getattr(quarantine.Quarantine, place)

    def killed(self: quarantine.Quarantine, *arguments: str) -> None:
        original(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(quarantine.Quarantine, place, killed)
        with pytest.raises(KeyboardInterrupt):
            bob.pull()
    assert not bob.all_tips() and sound(bob)

    bob.pull()
    assert same(anna, bob) and sound(bob) and not (bob.path / quarantine.FOLDER).exists()


def test_a_remote_that_came_with_a_store_is_not_used(
    anna: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is there, but this person never agreed to it."""
    anna.say("one")
    elsewhere = tmp_path / "elsewhere" / ".ctxvc"
    shutil.copytree(anna.path, elsewhere)
    home = tmp_path / "another-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))

    with Store(elsewhere) as store, pytest.raises(Refused, match="has not been accepted"):
        push.push(store)


@pytest.mark.parametrize(
    "address", ["ext::sh -c true", "-x", "http://example.org/x.git", "https://me:secret@example.org/x.git", "", "a\nb"]
)
def test_an_address_that_could_do_harm_is_refused(address: str) -> None:
    with pytest.raises(BadInput):
        remotes.check("origin", address, "")


def test_a_large_index_is_in_parts_and_a_push_sends_those_that_changed(
    anna: Clone, bob: Clone, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indices, "MOST_UNSHARDED", 3)
    for number in range(6):
        anna.say("hello", session=f"s{number}")
    anna.push()
    first = _parents(server)
    anna.say("more", session="s3")
    anna.push()

    assert len(first) > 3 and len(first - _parents(server)) == 1
    bob.pull()
    assert same(anna, bob)


def _parents(server: Path) -> set[str]:
    command = ["git", f"--git-dir={server}", "rev-list", "--parents", "-1", "refs/ctxvc/w/anna"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1:])


@pytest.mark.slow
def test_links_of_code_commits_come_along(anna: Clone, bob: Clone) -> None:
    anna.say("one")
    with Store(anna.path) as store:
        link = links.Link(commit="1" * 40, time="2026-01-01T00:00:00Z", session="demo", scope="main", step=1)
        with open(store.path / "ctxvc" / "lock" / "_links", "w") as lock:
            links._write(store, lock.fileno(), [link])
    anna.push()
    bob.pull()
    bob.push()
    anna.pull()

    with Store(bob.path) as store:
        assert links.find(store, "1" * 40) == [link]
    with Store(anna.path) as store:
        tip = links.tip(store)
    anna.pull()
    with Store(anna.path) as store:
        assert links.tip(store) == tip, "nothing new makes no commit"


# --- what comes from there may be anybody's


def listed(anna: Clone, change: dict[str, object]) -> None:
    """An index of anna's on the remote with other fields in its session's line."""
    with Store(anna.path) as store:
        remote = remotes.find(store)
        index = inventory.index(store, remote, "anna", "")
        session = msgspec.structs.replace(index.sessions["demo"], **change)
        commit = inventory.commit(store, msgspec.structs.replace(index, sessions={"demo": session}))
        before = refs(Path(remote.address)).get("refs/ctxvc/w/anna", "")
        transport.push(store.path, remote.address, {"refs/ctxvc/w/anna": (before, commit)})


@pytest.mark.parametrize(
    "change",
    [{"name": "../../etc"}, {"name": "purged"}, {"scopes": {"main": "x" * 40}}, {"scopes": {"main/../x": "1" * 40}},
     {"scopes": {}}, {"pieces": "nothing"}],
)  # fmt: skip
def test_a_line_of_an_index_that_is_not_right_is_left_out(
    anna: Clone, bob: Clone, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    anna.say("one")
    monkeypatch.setattr(indices, "parents", lambda _: [])
    listed(anna, change)

    pulled = bob.pull()

    assert pulled.ignored and not bob.all_tips()


def test_an_index_that_is_none_and_a_commit_of_another_session_are_not_taken(
    anna: Clone, bob: Clone, server: Path
) -> None:
    anna.say("one")
    listed(anna, {"name": "stolen"})
    push_it = ["push", "-q", str(server), "demo/main:refs/ctxvc/w/mallory"]
    subprocess.run(["git", f"--git-dir={anna.path}", *push_it], check=True)

    pulled = bob.pull()

    assert pulled.damaged and not bob.all_tips()
    assert any("mallory" in reason for reason in pulled.ignored)


def test_a_scope_with_a_body_that_is_not_the_recorded_one_is_not_taken(anna: Clone, bob: Clone, server: Path) -> None:
    anna.say("one")
    anna.push()
    tip = anna.tips()["main"]
    who = {"GIT_COMMITTER_NAME": "ctxvc", "GIT_COMMITTER_EMAIL": "ctxvc@ctxvc", "GIT_AUTHOR_NAME": "user",
           "GIT_AUTHOR_EMAIL": "user@ctxvc", "GIT_INDEX_FILE": str(server / "forged")}  # fmt: skip

    def git(*arguments: str, data: str = "") -> str:
        command, env = ["git", f"--git-dir={server}", *arguments], {**os.environ, **who}
        answer = subprocess.run(command, input=data, text=True, capture_output=True, check=True, env=env)
        return answer.stdout.strip()

    git("read-tree", tip)
    blob = git("hash-object", "-w", "--stdin", data="something else")
    git("update-index", "--cacheinfo", f"100644,{blob},blocks/00/00/B1.txt")
    tree = git("write-tree")
    forged = git("commit-tree", tree, "-p", tip, data="B1\n\nCtxvc-Op: step\nCtxvc-Actor: user\n")
    git("update-ref", "refs/heads/keep", forged)
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    subprocess.run(["git", f"--git-dir={anna.path}", "fetch", "-q", str(server), "refs/heads/keep"], check=True)
    listed(anna, {"scopes": {"main": forged}, "tip": forged})

    pulled = bob.pull()

    assert pulled.damaged and not bob.all_tips()
    with Store(bob.path) as store:
        assert forged not in store.repository, "nothing of it is in our packs"


def test_offline_the_last_indexes_are_there(anna: Clone, server: Path) -> None:
    anna.say("one")
    anna.push()
    indexes.fetch(str(server))
    server.rename(server.with_name("away"))

    assert list(indexes.cached(str(server)).clones["anna"].sessions) == ["demo"]


def test_an_own_code_repository_is_told(tmp_path: Path) -> None:
    project, fork = tmp_path / "project", bare(tmp_path / "fork.git")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(project)]
    project.mkdir()
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"],
                  ["push", "-q", str(fork), "HEAD:refs/heads/master"],
                  ["remote", "add", "origin", "git@example.org:me/code.git"],
                  ["commit", "-q", "--amend", "--allow-empty", "-m", "again"]):  # fmt: skip
        subprocess.run([*git, *arguments], check=True)

    assert audience.place("ssh://git@example.org/me/code") == audience.place("git@example.org:me/code.git")
    assert list(audience.concerns(str(project), project))
    assert list(audience.concerns(str(fork), project)), "its commit is still among the project's objects"
    assert not list(audience.concerns(str(bare(tmp_path / "sessions.git")), project))


# --- what becomes of another clone's scopes, whatever both did, in whatever order


def follows(tip: str, older: str) -> bool:
    """Tips are written as what was done: `abc` follows `ab`."""
    return tip.startswith(older)


def pulled(ours: dict[str, str], theirs: dict[str, str], clone: str, own: str) -> dict[str, str]:
    moves = line_moves(ours, theirs, clone=clone, own=own, follows=follows)
    return ours | {move.scope: move.after for move in moves}


def maximal(tips: dict[str, str]) -> set[tuple[str, str]]:
    """The lines of each scope that no other goes on from."""
    lines = {(name.partition("@")[0], tip) for name, tip in tips.items()}
    return {(base, tip) for base, tip in lines if not any(b == base and t != tip and follows(t, tip) for b, t in lines)}


actions = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["main", "fix", "pull"]), st.sampled_from("abc")))


@given(actions)
def test_in_any_order_no_line_is_lost_and_all_clones_agree_in_the_end(steps: list[tuple[str, str, str]]) -> None:
    clones = {name: {"main": "0", "fix": "1"} for name in "abc"}
    made = {("main", "0"), ("fix", "1")}
    for number, (own, action, other) in enumerate(steps):
        if action == "pull":
            clones[own] = pulled(clones[own], clones[other], other, own)
            continue
        candidates = sorted(name for name in clones[own] if name.partition("@")[0] == action)
        name = candidates[number % len(candidates)]
        clones[own][name] += f".{own}{number}"
        made.add((action, clones[own][name]))
    for _ in range(3):
        for own in "abc":
            for other in "abc":
                clones[own] = pulled(clones[own], clones[other], other, own)

    assert maximal(clones["a"]) == maximal(clones["b"]) == maximal(clones["c"])
    for tips in clones.values():
        assert all(any(b == base and follows(tip, t) for b, tip in maximal(tips)) for base, t in made)
        assert not any(name_rules.scope_problem(name) for name in tips)


def test_a_second_time_nothing_moves() -> None:
    ours, theirs = {"main": "0a"}, {"main": "0b", "plan/login": "2"}
    after = pulled(ours, theirs, "bob", "anna")

    assert after == {"main": "0a", "main@bob": "0b", "plan/login": "2"}
    assert not line_moves(after, theirs, clone="bob", own="anna", follows=follows)


def test_a_name_that_git_cannot_have_beside_ours_gets_another() -> None:
    after = pulled({"main": "0", "plan": "1"}, {"main": "0", "plan/login": "2"}, "bob", "anna")

    assert set(after.values()) == {"0", "1", "2"} and "plan/login" not in after


def test_a_scope_in_the_middle_of_a_step_does_not_move() -> None:
    moves = line_moves({"main": "0"}, {"main": "0b"}, clone="bob", own="anna", follows=follows, is_free=lambda _: False)

    assert [(move.scope, move.after) for move in moves] == [("main@bob", "0b")]
