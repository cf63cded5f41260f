"""Undo and redo: the prompt before a change is the prompt after its undo, byte for byte, in every form."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc.claude_code.resume import resumable
from ctxvc.cli.commands.prompt import request_of
from ctxvc.core.plan import Rehearsal
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import outline, pieces
from ctxvc.core.prompt.request import canonical
from ctxvc.errors import CtxvcError, NotFound, Refused
from ctxvc.forms import chat_writer
from ctxvc.inspection import history
from ctxvc.policies.default import Default
from ctxvc.policies.layered import Layered
from ctxvc.policies.run import ask_plan
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.log.journal import Journal
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import operations, revision
from tests.making.provider import WORDS, Agent, calls_of, create, damages, groups_fit, plain, result
from tests.making.store import complaints
from tests.messages_api import call, text, thought

#: What depends on the commit that is exported: ids of lines and messages, and the mark of the export.
_COMMIT = re.compile(
    rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|(msg|req)_[0-9a-f]{24}"
    rb'|(?<="ctxvc":\{"commit":")[0-9a-f]{40}'
)
#: What a person, an agent or a policy does; the number picks the blocks.
VERBS = ("archive", "mask", "prune", "restore", "pin", "unpin", "delete")
OTHERS = ("note", "fold", "summarise", "compact", "plan", "recover --add")
_templates: dict[bool, Path] = {}


def output(number: int) -> str:
    return "".join(f"{number}.{line} {WORDS}" for line in range(60))


def worked(path: Path, *, in_step: bool) -> None:
    """A session with thinking, results and sent dashboards; `in_step`, the newest reply has one of two results."""
    with create(path, budget=24_000) as session:
        agent = Agent(session)
        agent.say("Make the tests pass.")
        for number in range(5):
            agent.step(output(number), words=f"Step {number}.")
        agent.ask(text("The first half is done."))
        agent.say("And the second half?")
        agent.step(output(6), output(7))
        agent.step(output(8))
        if in_step:
            reply = agent.ask(thought("Two at once."), call("sh", cmd="a"), call("sh", cmd="b"))
            session.append({"role": "user", "content": [result(calls_of(reply)[0], output(9))]})


@contextmanager
def copied(*, in_step: bool = False) -> Iterator[Session]:
    """A copy of `worked`, as a person opens it."""
    if in_step not in _templates:
        folder = Path(tempfile.mkdtemp(prefix="ctxvc-worked-"))
        atexit.register(shutil.rmtree, folder, True)
        worked(folder / ".ctxvc", in_step=in_step)
        _templates[in_step] = folder
    with tempfile.TemporaryDirectory(prefix="ctxvc-undo-") as place:
        shutil.copytree(_templates[in_step], place, dirs_exist_ok=True)
        with opened(Path(place) / ".ctxvc") as session:
            yield session
        assert not complaints(Path(place) / ".ctxvc")


def opened(path: Path) -> Session:
    return plain(Session.open(path, "demo", actor="user"))


def forms(session: Session) -> dict[str, bytes]:
    """The prompt as it would be sent, and every export. Of Claude Code's, what names the commit is left out: the ids of
    lines, and the mark by which an export is known again."""
    session.stored.flush()  # what Claude Code gets of a step's call is known from its commit
    snapshot = revision.now(session.stored)
    made = {"prompt": canonical(session.prompt().body())}
    for name, form, render in (
        ("anthropic", formats.anthropic, snapshot.ledger.meta.render),
        ("openai", lambda prompt: chat_writer.written(prompt).value, 1),
    ):
        content = pieces(outline(snapshot.ledger), snapshot.bodies, render)
        made[name] = formats.dumps(form(request_of(snapshot, content)))
    try:
        made["claude-code"] = _COMMIT.sub(b"", resumable(session.store, snapshot, Path("/project")).data)
    except Refused as error:  # as in an open step
        made["claude-code"] = str(error).encode()
    return made


def act(session: Session, what: str, pick: int) -> bool:
    """Does it, to blocks that `pick` chooses; whether it changed anything that `undo` can take back."""
    ledger = session.ledger()
    names = [row.id for row in ledger.rows() if row.kind in ("tool_result", "assistant", "tool_use")] + [*ledger.groups]
    chosen = [names[(pick * 7 + step * 3) % len(names)] for step in range(pick % 3 + 1)]
    done: Rehearsal
    match what:
        case "note":
            session.note(f"Learned {pick}.")
            return True
        case "fold":
            session.note(f"Learned and folded {pick}.", fold=True)
            return True
        case "recover --add":
            try:
                session.recover(chosen[0], most=200, added=lambda read: read.text)
            except (Refused, NotFound):
                return False
            return True
        case "compact":
            done = session.commit(ask_plan(Layered(clear=0.3, summarise=0.4), session.view()), roll_up=True)
        case "plan":
            done = session.commit(ask_plan(Default(trigger=0.3, low_water=0.2), session.view()), roll_up=True)
        case "summarise":
            done = session.summarise(chosen, f"what was seen, {pick}")
        case _:
            done = session.verb(what, chosen, "no need" if what in ("delete", "archive") else "")  # type: ignore[arg-type]
    return bool(done)


def there_and_back(session: Session, deeds: list[tuple[str, int]], *, another: bool) -> None:
    before = [forms(session)]
    for what, pick in deeds:
        if act(session, what, pick):
            before.append(forms(session))
        else:
            assert forms(session) == before[-1], what
    with opened(session.store.path) if another else nullcontext(session) as session:
        back_and_forth(session, before)


def back_and_forth(session: Session, before: list[dict[str, bytes]]) -> None:
    for moment in before[-2::-1]:
        session.undo()
        assert forms(session) == moment
        groups_fit(session.ledger())
    with pytest.raises(Refused, match="nothing to undo"):
        session.undo()
    for moment in before[1:]:
        session.redo()
        assert forms(session) == moment
        groups_fit(session.ledger())
    with pytest.raises(Refused, match="nothing to redo"):
        session.redo()
    if len(before) > 2:
        session.undo(len(before) - 1)
        assert forms(session) == before[0]
        session.redo(len(before) - 1)
        assert forms(session) == before[-1]
    session.stored.flush()
    assert not damages(session.store)
    assert check_prompts(session.store)[1] == []


deeds = st.lists(st.tuples(st.sampled_from([*VERBS, *OTHERS]), st.integers(0, 60)), min_size=1, max_size=6)
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=5, deadline=None, suppress_health_check=_QUIET)
@given(deeds, st.booleans(), st.booleans())
def test_all_that_is_done_is_undone_and_redone_byte_for_byte(
    done: list[tuple[str, int]], in_step: bool, another: bool
) -> None:
    with copied(in_step=in_step) as session:
        there_and_back(session, done, another=another)


# --- what was sent since


def thinking(session: Session) -> list[str]:
    """What is in the prompt of thinking and sent boards."""
    slots = outline(session.ledger())
    return [slot.row.id for slot in slots if slot.kind in ("thinking", "dashboard")]


def at_work(session: Session, steps: int = 0) -> Agent:
    agent = Agent(session)
    agent.say("Go on.")
    for number in range(steps):
        agent.step(output(number))
    return agent


def first_result(session: Session) -> str:
    return next(row.id for row in session.ledger().rows() if row.kind == "tool_result" and row.present)


def test_an_undo_after_a_request_says_what_does_not_come_back(session: Session) -> None:
    agent = at_work(session, 4)
    before, block = thinking(session), first_result(session)
    session.archive(block)
    left = [name for name in before if name not in thinking(session)]
    agent.step(output(9))
    rehearsal, (subject,) = session.undo()

    assert left
    assert {problem.target for problem in rehearsal.problems} == set(left)
    assert all("does not come back" in problem.text for problem in rehearsal.problems)
    assert (subject, session.ledger()[block].state) == (f"archive {block} (−1.2k) by agent", "visible")
    assert not {*thinking(session)} & {*left}
    agent.step("ok")  # what is sent next is valid, and no thinking is bound to what it no longer stands behind
    assert check_prompts(session.store)[1] == []


@pytest.mark.parametrize("requested", ["before", "after"])
def test_only_a_request_behind_the_change_makes_its_undo_careful(session: Session, requested: str) -> None:
    """Though nobody has replied."""
    at_work(session, 3)
    if requested == "before":
        session.request()
    before, block = thinking(session), first_result(session)
    moment = forms(session)
    session.archive(block)
    if requested == "after":
        session.request()

    problems = session.undo()[0].problems

    assert bool(problems) == (thinking(session) != before) == (requested == "after")
    assert requested == "after" or forms(session) == moment


# --- one operation at a time, by whomever


def test_undo_to_an_operation_brings_back_what_was_undone_since(session: Session) -> None:
    at_work(session, 3)
    moments, places = [forms(session)], [session.stored.tip()]
    for words in ("one", "two", "three"):
        session.note(words)
        moments.append(forms(session))
        places.append(session.stored.tip())
    session.undo(2)
    session.note("four")
    for place, moment in zip(places, moments, strict=True):
        session.undo(to=place[:12])
        assert forms(session) == moment
    with pytest.raises(Refused, match="nothing in this scope has changed since"):
        session.undo(to="HEAD")
    with pytest.raises(NotFound):
        session.undo(to="+1")


def test_an_operation_in_an_open_step_is_named_by_its_place() -> None:
    with copied(in_step=True) as session:
        before = [forms(session)]
        for words in ("one", "two", "three"):
            session.note(words)
            before.append(forms(session))
        assert [item.subject for item in operations.changes(session.stored)][:3] == [
            "note: three", "note: two", "note: one"
        ]  # fmt: skip
        session.undo(to="+1")
        assert forms(session) == before[1]
        assert session.undo()[1] == ("note: one",)
        session.redo(3)
        assert forms(session) == before[3]
        session.stored.finish()
        assert session.undo()[1] == ("note: three",)  # once they have commits, it is the same one


def test_what_an_agent_may_not_take_back(session: Session) -> None:
    at_work(session)
    with opened(session.store.path) as person:
        person.note("Mind the gap.")
    with pytest.raises(Refused, match="only a person can undo it"):
        session.undo()
    with opened(session.store.path) as person:
        person.undo()
    with pytest.raises(Refused, match="only a person can undo it"):
        session.redo()


def test_a_switch_is_not_undone_and_it_says_so_and_a_new_verb_clears_redo(session: Session) -> None:
    at_work(session)
    session.note("Before.")
    session.open_scope("aside", "look aside")
    session.goto("main", "back")
    rehearsal, subjects = session.undo()

    assert subjects == ("note: Before.",)
    assert {"goto", "note"} == {problem.target for problem in rehearsal.problems}
    with pytest.raises(Refused, match="nothing to undo") as error:
        session.undo()
    assert "goto main" in error.value.hint
    session.append({"role": "user", "content": "said since"}, origin="client")
    session.note("Two.")
    with pytest.raises(Refused, match="nothing to redo"):
        session.redo()


# --- a crash, and a second writer


def test_several_undos_are_one_record(session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A crash leaves all of them or none."""
    at_work(session, 1)
    before = forms(session)
    for words in ("one", "two"):
        session.note(words)
    session.archive(first_result(session))
    done = forms(session)
    place = session.store.path
    journal = place / "ctxvc" / "journal" / "demo"
    whole = journal.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(StoredSession, "_flush_if_possible", lambda _: None)
        session.undo(3)
    assert whole < journal.stat().st_size
    for cut, moment in ((0, before), (1, done), (journal.stat().st_size - whole - 1, done)):
        copy = shutil.copytree(place, tmp_path / f"killed-{cut}")
        data = (copy / "ctxvc" / "journal" / "demo").read_bytes()
        (copy / "ctxvc" / "journal" / "demo").write_bytes(data[: len(data) - cut])
        with opened(copy) as after:
            assert forms(after) == moment
            after.stored.flush()
            assert forms(after) == moment
            assert not damages(after.store)


def test_an_undo_that_is_not_written_changes_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work(session)
    session.note("One.")
    before = forms(session)

    def full(_: object, __: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        with pytest.raises(CtxvcError, match="nothing was added"):
            session.undo()
    session.stored.refresh()
    assert forms(session) == before
    session.undo()
    assert forms(session) != before


def test_undo_takes_back_what_another_writer_did_last(session: Session) -> None:
    """What is undone is chosen under the lock: a change that this writer has not seen is the newest none the less."""
    at_work(session)
    session.note("One.")
    before = forms(session)
    with Session.open(session.store.path, "demo") as other:
        other.note("Two.")
        assert session.undo()[1] == ("note: Two.",)
        assert forms(session) == before
        assert other.undo()[1] == ("note: One.",)
        assert session.redo(2)[1] == ("note: One.", "note: Two.")


def test_a_cut_that_was_taken_back_and_made_again_is_blamed_on_the_last(session: Session) -> None:
    at_work(session, 3)
    gone = thinking(session)[0]
    session.archive(first_result(session))
    session.undo()
    session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][1])
    session.stored.flush()
    cuts = [touch for touch in history.touches(session.stored, "main", [gone]) if touch.cut_after]

    assert gone not in thinking(session)
    assert cuts[0].commit == session.stored.tip()
