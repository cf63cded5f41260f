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
from ctxvc.cli.request import request_of
from ctxvc.core.plan import Rehearsal
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import outline, pieces
from ctxvc.core.prompt.request import canonical
from ctxvc.errors import NotFound, Refused
from ctxvc.policies.default import Default
from ctxvc.policies.layered import Layered
from ctxvc.policies.run import ask_plan
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store import revision
from tests.making.provider import WORDS, Agent, calls_of, create, damages, groups_fit, plain, result
from tests.making.store import complaints
from tests.messages_api import call, text, thought

_IDS = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|(msg|req)_[0-9a-f]{24}")
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
    """The prompt as it would be sent, and every export; ids of Claude Code's lines, which name the commit, left out."""
    snapshot = revision.now(session.stored)
    made = {"prompt": canonical(session.prompt().body())}
    for name, form, render in (
        ("anthropic", formats.anthropic, snapshot.ledger.meta.render),
        ("openai", formats.openai_chat, 1),
    ):
        content = pieces(outline(snapshot.ledger), snapshot.bodies, render)
        made[name] = formats.dumps(form(request_of(snapshot, content)))
    try:
        made["claude-code"] = _IDS.sub(b"", resumable(session.store, snapshot, Path("/project")).data)
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


@settings(max_examples=10, deadline=None, suppress_health_check=_QUIET)
@given(deeds, st.booleans(), st.booleans())
def test_all_that_is_done_is_undone_and_redone_byte_for_byte(
    done: list[tuple[str, int]], in_step: bool, another: bool
) -> None:
    with copied(in_step=in_step) as session:
        there_and_back(session, done, another=another)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=_QUIET)
@given(st.lists(st.tuples(st.sampled_from([*VERBS, *OTHERS]), st.integers(0, 600)), max_size=16), st.booleans(),
       st.booleans())  # fmt: skip
def test_long_sequences_are_undone_and_redone_byte_for_byte(
    done: list[tuple[str, int]], in_step: bool, another: bool
) -> None:
    with copied(in_step=in_step) as session:
        there_and_back(session, done, another=another)
