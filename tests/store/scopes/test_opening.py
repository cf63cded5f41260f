"""Who gets what when a scope is opened or returned to, in which commit, and where HEAD and other writers are then."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Group
from ctxvc.core.prompt.outline import outline
from ctxvc.errors import BadInput, BadName, CtxvcError, NotFound, Refused
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.revision import entry
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange, human, reply, result, results
from tests.making.store import add_scope, afresh, archive, commits, contents, git, opened, unflushed
from tests.store.scopes.looking import journey, notes, parents, texts

pytestmark = pytest.mark.usefixtures("_in_order")


def test_the_walk_from_main_to_a_step_and_back(session: StoredSession, path: Path) -> None:
    session.open_scope("step-1", "A")
    assert session.scope == "step-1"
    session.note("B")
    session.goto("main", "C")

    assert session.scope == "main"
    assert notes(session, "main") == ["[→ step-1] A", "[← step-1] C"]
    assert notes(session, "step-1") == ["[→ step-1] A", "B"]
    assert commits(path) == ["note: [→ step-1] A", "goto main"]
    assert commits(path, scope="step-1")[-3:] == ["note: [→ step-1] A", "scope step-1", "note: B"]
    assert parents(path, "main")[-1] == ["note: [→ step-1] A", "note: B"]
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/main"


def test_git_draws_the_journey(session: StoredSession, path: Path) -> None:
    session.append(human("fix it"), reply("looking"))
    session.open_scope("look", "into the tokens")
    session.append(human("well?"), reply("found"))
    session.goto("main", "it was the clock")

    drawn = git(path, "log", "--graph", "--all", "--format=%s").splitlines()
    assert [line.rstrip() for line in drawn] == [
        "*   goto main",
        "|\\",
        "| * “well?” · found",
        "| * scope look",
        "|/",
        "* note: [→ look] into the tokens",
        "* “fix it” · looking",
        "* session demo",
    ]
    said = entry(session.store, session.tip())
    assert (said.body, said.trailers["Ctxvc-Op"]) == ("it was the clock", "goto")


def test_a_new_scope_inherits_what_is_pinned_with_its_pair_the_notes_and_the_question(session: StoredSession) -> None:
    session.append(*exchange(1), reply("done"))
    session.note("learned before")
    pinned = msgspec.structs.replace(session.ledger()["B4"], state="pinned")
    session.change(subject="pin B4", op="pin", actor="agent", rows=[pinned])
    session.append(human("and now this"), reply("I open a scope", "s"))
    session.append(results(result("s", "done")))
    session.open_scope("fix", "why")

    rows = list(session.ledger().rows())
    assert [(row.id, row.kind, row.state) for row in rows] == [
        ("B3", "tool_use", "visible"),
        ("B4", "tool_result", "pinned"),
        ("B6", "note", "visible"),
        ("B7", "user", "visible"),
        ("B11", "note", "visible"),
    ]
    assert texts(session) == ['{"cmd":"c1"}', "out 1", "learned before", "and now this", "[→ fix] why"]
    meta = session.ledger().meta
    assert (meta.scope, meta.parent, meta.counters.step, meta.counters.turn) == ("fix", "main", 4, 2)
    session.append(reply("in the scope"))
    assert (session.ledger()["B12"].step, session.ledger()["B12"].turn) == (4, 2)
    assert session.ledger()["B12"].parent == "B7"


def test_between_two_turns_no_question_is_inherited_and_a_turn_of_its_own_begins(session: StoredSession) -> None:
    session.append(human("one"), reply("answered"))
    session.open_scope("next", "something else", actor="user")

    assert notes(session) == texts(session) == ["[→ next] something else"]
    session.append(human("two"))
    assert (session.ledger()["B4"].step, session.ledger()["B4"].turn) == (2, 2)
    session.store.create_session("other")
    with pytest.raises(NotFound, match="not in session"):
        session.open_scope("again", "why", from_commit=session.store.tips("other")["main"])
    assert session.scopes() == ["main", "next"]


def test_a_scope_with_messages_has_all_of_them(session: StoredSession) -> None:
    session.append(*exchange(1), reply("done"))
    archive(session, "B4")
    session.open_scope("copy", "to try something", with_messages=True)

    main, copy = session.ledger("main"), session.ledger("copy")
    assert list(main.rows()) == list(copy.rows())
    assert main.meta.counters == copy.meta.counters
    session.append(human("and on"), reply("yes"))
    assert (session.ledger()["B7"].step, session.ledger()["B7"].turn) == (3, 2)


def test_a_scope_from_an_earlier_commit_has_what_stood_there_and_says_why(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1), reply("first way"))
    earlier = session.tip()
    session.append(human("no"), reply("second way"))
    session.open_scope("again", "the second way fails", from_commit=earlier)

    assert texts(session)[:5] == ["question 1", "thinking about 1", '{"cmd":"c1"}', "out 1", "first way"]
    assert texts(session)[5:] == ["[→ again] the second way fails"] == notes(session, "main")
    assert parents(path, "again")[-1] == ["first way"]
    rows = {scope: session.ledger(scope)["B8"] for scope in ("main", "again")}
    assert [(row.msg, row.step, row.turn) for row in rows.values()] == [(7, 3, 2), (5, 2, 1)]
    assert rows["main"].sha256 == rows["again"].sha256
    assert session.append(human("third"), reply("way")) == ["B9", "B10"]


def test_groups_are_inherited_whole_or_their_blocks_alone(session: StoredSession) -> None:
    first, second = session.note("one"), session.note("two")
    session.append(human("q"), reply("a"))
    rows = [
        msgspec.structs.replace(session.ledger()[name], state="archived", level=level, group=group, stub=f"[{name}]")
        for name, level, group in ((first, 1, "G1"), (second, 2, "G2"), ("B3", 2, "G2"))
    ]
    inner = Group(id="G1", members=(first,), level=1, group="G2", stub="[G1]")
    outer = Group(id="G2", members=("G1", second, "B3"), level=2, stub="[G2]")
    session.change(subject="group", op="archive", actor="user", rows=rows, groups=[inner, outer])
    session.open_scope("x", "why")

    ledger = session.ledger()
    assert list(ledger.groups) == ["G1"] and ledger.groups["G1"].group == ""
    assert [(row.id, row.group, row.level) for row in ledger.rows()] == [
        (first, "G1", 1), (second, "", 1), ("B5", "", 0),
    ]  # fmt: skip


def test_verify_finds_nothing_wrong_with_a_scope_that_waits_in_the_journal(
    session: StoredSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("go"))
    (block,) = session.append(reply("so"))

    def full(*_: object) -> dict[str, str]:
        raise CtxvcError("no room")

    with monkeypatch.context() as failing:
        failing.setattr(Store, "write", full)
        session.open_scope("fix", "why", with_messages=True)
        row = session.ledger()[block]
        session.change(subject="pin", op="pin", actor="user", rows=[msgspec.structs.replace(row, state="pinned")])
        assert session.waiting()
        assert [finding for finding in verify(store).findings if finding.level == "damage"] == []
    session.flush()
    assert session.ledger("fix")[block].state == "pinned"


def test_going_back_shows_everything_as_it_was(session: StoredSession) -> None:
    session.append(human("the task"), reply("I look", "a"), results(result("a", "found")))
    session.open_scope("look", "deeper")
    session.append(human("inside"), reply("yes"))
    before = outline(session.ledger("main"))
    session.goto("main", "nothing there")

    assert outline(session.ledger())[: len(before)] == before
    assert [slot.row.kind for slot in outline(session.ledger())][len(before) :] == ["note", "user"]
    assert texts(session)[-2:] == ["[← look] nothing there", "inside"]
    session.goto("look", "once more")
    assert texts(session)[-3:] == ["inside", "yes", "[← main] once more"]


#: Name and note of a scope, the error, and what it says.
IMPOSSIBLE: list[tuple[str, str, type[CtxvcError], str]] = [
    ("fix", "", BadInput, "needs a note"), ("fix", " \n", BadInput, "needs a note"),
    ("main", "why", Refused, "already exists"), ("Side", "why", BadName, "differ only in case"),
    ("../x", "why", BadName, "bad scope name"), ("a b", "why", BadName, "bad scope name"),
    ("-m", "why", BadName, "bad scope name"), ("fix.lock", "why", BadName, "bad scope name"),
    ("HEAD", "why", BadName, "HEAD"), ("", "why", BadName, "empty"),
]  # fmt: skip


def test_a_scope_that_cannot_be_opened_leaves_every_byte_as_it_was(path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        add_scope(session, "side")
        session.append(human("half"))
    before = {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}
    for name, text, error, words in IMPOSSIBLE:
        with Store(path) as store, StoredSession.open(store, "demo") as session:
            with pytest.raises(error, match=words) as failure:
                session.open_scope(name, text)
            assert failure.value.hint
            if words == "already exists":
                assert "goto" in failure.value.hint
            assert (session.scope, session.switching) == ("main", "")
            session.leave()
            assert before == {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}, name


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("main", "why", Refused, "already"),
        ("nowhere", "why", NotFound, "no scope"),
        ("x" * 100_000, "why", NotFound, "no scope"),
        ("side", "", BadInput, "needs a note"),
    ],
)
def test_a_goto_that_cannot_be_done_writes_nothing(
    session: StoredSession, name: str, text: str, error: type[CtxvcError], words: str
) -> None:
    add_scope(session, "side")
    with pytest.raises(error, match=words) as failure:
        session.goto(name, text)
    assert len(str(failure.value)) + len(failure.value.hint) < 400
    assert session.waiting() == 0 and len(session.ledger()) == len(session.ledger("side")) == 0


def test_a_scope_of_an_imported_session_does_not_pass_for_a_part_of_the_recording(session: StoredSession) -> None:
    source = {"format": "claude-code", "id": "x", "units": 7, "offset": 99, "finals": [3], "title": "t"}
    session.change(subject="s", op="settings", actor="host", meta={"source": source, "refused": 3, "cuts": (1, 2)})
    session.open_scope("rewind-1", "why")

    meta = session.ledger().meta
    assert meta.source is not None and (meta.source.units, meta.source.offset, meta.source.finals) == (0, 0, ())
    assert (meta.source.title, meta.refused, meta.cuts) == ("t", 0, (1, 2))
    assert session.store.source_of("demo", "x").units == 7  # type: ignore[union-attr]


# --- HEAD, several writers, one flush or many


def test_a_writer_moves_head_unless_it_was_opened_on_a_scope(store: Store) -> None:
    with StoredSession.open(store, "demo") as session:
        session.open_scope("a", "why")
        assert store.current_scope("demo") == "a"
        with StoredSession.open(store, "demo", "main") as agent:
            agent.open_scope("b", "a sub-agent's")
            assert (agent.scope, session.scope) == ("b", "a")
            agent.goto("main", "done")
        assert store.current_scope("demo") == "a"
        with StoredSession.open(store, "demo") as later:
            assert later.scope == "a"
            later.goto("main", "a person's")
        assert store.current_scope("demo") == "main"
        assert session.scope == "a", "a writer keeps its own scope"


def test_a_writer_that_comes_before_the_flush_starts_where_the_journal_says(session: StoredSession, path: Path) -> None:
    with unflushed():
        session.append(human("go"), reply("yes"))
        session.open_scope("fix", "why")
        session.note("learned")
        with opened(path) as later:
            assert later.scope == "fix"
            assert texts(later) == ["[→ fix] why", "learned"]
            assert later.tip() == later.store.tips("demo")["main"]
            later.leave()


def test_a_whole_journey_can_wait_for_one_flush(session: StoredSession, path: Path) -> None:
    """Scopes that begin on scopes that have no commit yet, and merges of what is written in the same stream."""
    with unflushed():
        journey(session)
        held = {scope: contents(session, scope) for scope in session.scopes()}
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert {scope: contents(later, scope) for scope in later.scopes()} == held
        later.flush()
        assert store.current_scope("demo") == "main"
    assert {scope: afresh(path, scope=scope) for scope in held} == held


def test_one_flush_or_many_make_the_same_commits(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at another time: what is recorded says when, and a commit that is made again is the same one."""
    graphs = []
    moments = iter(range(1_800_000_000, 1_800_100_000))
    monkeypatch.setattr(Store, "new_id", lambda _: "0123456789abcdef")
    monkeypatch.setattr(Store, "now_iso", lambda _: "2027-01-15T08:00:00.000Z")
    for name in ("often", "once"):
        place = tmp_path / name
        shutil.copytree(pristine, place)
        with Store(place) as store, StoredSession.open(store, "demo") as session, monkeypatch.context() as patched:
            patched.setattr(Store, "now", lambda _: 1_800_000_000)
            if name == "once":
                patched.setattr(StoredSession, "_flush", lambda _: None)
            journey(session)
        with Store(place) as store, StoredSession.open(store, "demo") as session, monkeypatch.context() as patched:
            patched.setattr(Store, "now", lambda _: next(moments))
            session.flush()
        graphs.append(git(place, "for-each-ref", "refs/heads"))
    assert graphs[0] == graphs[1]
