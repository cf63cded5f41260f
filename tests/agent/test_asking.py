"""`ctxvc ask`: what an answer cites must exist and have been read, and the recording is left as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anthropic
import pytest

from ctxvc.agent import asking
from ctxvc.agent.loop import Limits
from ctxvc.agent.model import Anthropic
from ctxvc.importing import import_paths
from ctxvc.session import Session
from ctxvc.store.store import create
from tests.agent.test_run import Eyes
from tests.messages_api import call, script, serve
from tests.session.building import MODEL, damages

SESSION = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Session]:
    with create(tmp_path / ".ctxvc") as store:
        (done,) = import_paths(store, [SESSION], name="rec", final=True)
        assert not done.error
        yield Session(store.writer("rec"))


def asked(recorded: Session, *said: Any, budget: int = 60_000) -> tuple[asking.Asked, list[Mapping[str, Any]]]:
    with serve(script(*said)) as api:
        with (
            anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0) as client,
            asking.open_session(recorded.store.path, "ask-1", model=MODEL, window=budget) as session,
        ):
            answer = asking.ask(session, recorded, "Why?", Anthropic(client), Eyes(), Limits(steps=9))
    return answer, api.bodies


def handle(recorded: Session, block: str) -> str:
    return recorded.ledger()[block].handle


def test_a_citation_holds_that_exists_and_was_read(recorded: Session) -> None:
    tip = recorded.writer.tip()
    answer, bodies = asked(
        recorded,
        [call("search_session", pattern="errors"), call("read_block", block="B7", lines="1:2")],
        f"Because of the merge [{handle(recorded, 'B7')}].",
    )

    (cited,) = answer.citations
    assert (cited.block, cited.holds, cited.scope, cited.step) == ("B7", True, "main", 1)
    assert answer.ended.steps == 2
    told = json.dumps(bodies[1]["messages"])
    assert "can you fix the local branch" in told  # the map has what humans said
    assert handle(recorded, "B15") in told  # and the search gives handles
    assert recorded.writer.tip() == tip
    assert not damages(recorded.store)


def test_what_does_not_hold_is_told_once_and_can_be_mended(recorded: Session) -> None:
    wrong = f"It was [B9999@aaaaaa], [B7@000000] and [{handle(recorded, 'B8')}]."
    answer, bodies = asked(recorded, wrong, [call("read_block", block="B8")], f"It was [{handle(recorded, 'B8')}].")

    told = bodies[1]["messages"][-1]["content"][-1]["text"]
    assert "B9999@aaaaaa is no block" in told
    assert "B7@000000 is no block" in told
    assert f"{handle(recorded, 'B8')} was not read" in told
    assert [each.holds for each in answer.citations] == [True]


def test_what_does_not_hold_in_the_end_is_said(recorded: Session) -> None:
    answer, _ = asked(recorded, "I just know.", f"Well: [{handle(recorded, 'B7')}].")

    assert [(each.exists, each.was_read) for each in answer.citations] == [(True, False)]


def test_a_long_recording_fits_into_a_small_budget(recorded: Session) -> None:
    answer, bodies = asked(recorded, [call("read_block", block="B19")], "x", "x", budget=8_000)

    assert answer.ended.why == "said"
    assert len(json.dumps(bodies[0]["messages"])) < 14_000


def reading(recorded: Session, tmp_path: Path, *given: dict[str, Any]) -> tuple[list[str], set[tuple[str, str]]]:
    """What `read_block` answers to these calls, and what has been read then."""
    with asking.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        recording = asking.Recording(session, recorded)
        return [recording.run("read_block", each).output.decode() for each in given], recording.was_read


def test_a_search_in_a_block_that_finds_nothing_has_not_read_it(recorded: Session, tmp_path: Path) -> None:
    (said,), was_read = reading(recorded, tmp_path, {"block": "B7", "grep": "zzzz"})
    assert "0 of 0 lines" in said
    assert not was_read
    _, was_read = reading(recorded, tmp_path, {"block": "B7"})
    assert was_read == {("B7", recorded.ledger()["B7"].sha256)}


def test_a_block_of_another_session_is_not_taken_for_ones_own(recorded: Session, tmp_path: Path) -> None:
    recorded.store.create_session("other")
    with Session(recorded.store.writer("other")) as other:
        made = other.append(*({"role": "user", "content": f"other {number}"} for number in range(9)))
        assert "B7" in made
    (theirs, none, mine), was_read = reading(
        recorded, tmp_path, {"block": "other/main:B7"}, {"block": "nobody/main:B7"}, {"block": "rec/main:B7"}
    )
    assert "is in another session" in theirs
    assert "nobody" in none
    assert recorded.ledger()["B7"].handle in mine
    assert {block for block, _ in was_read} == {"B7"}


def test_a_block_of_one_long_line_is_read_to_its_end(recorded: Session, tmp_path: Path) -> None:
    line = "".join(f"{number}," for number in range(40_000))
    (long,) = recorded.append({"role": "user", "content": line})
    with asking.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        recording = asking.Recording(session, recorded)
        held, asks = "", {"block": long}
        while True:
            header, _, part = recording.run("read_block", asks).output.decode().partition("\n")
            held += part
            if not (following := re.search("next: read_block ([^ ]+) chars ([0-9:]+)]", header)):
                break
            asks = {"block": following[1], "chars": following[2]}
    assert held == line


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("read_block", {}),
        ("read_block", {"block": 7}),
        ("read_block", {"block": "B99999"}),
        ("read_block", {"block": "../x:B1"}),
        ("read_block", {"block": "B7", "more": 1}),
        ("search_session", {"pattern": "("}),
        ("search_session", {}),
        ("bash", {"command": "ls"}),
    ],
)
def test_whatever_a_model_asks_is_answered(recorded: Session, tmp_path: Path, tool: str, given: dict[str, Any]) -> None:
    with asking.open_session(tmp_path / ".ctxvc", "ask-1", model=MODEL) as session:
        done = asking.Recording(session, recorded).run(tool, given)
    assert done.error
    assert len(done.output) < 500
    assert b"argument" not in done.output
