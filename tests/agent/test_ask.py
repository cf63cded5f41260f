"""`ctxvc ask`: what an answer cites must exist and have been read, and the recording is left as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import pytest

from ctxvc.agent import ask
from ctxvc.agent.limits import Limits
from ctxvc.agent.provider import Anthropic
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.agent.test_run import Eyes
from tests.conftest import Copied
from tests.making.provider import MODEL, damages
from tests.messages_api import call, script, serve

SESSION = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"


@pytest.fixture
def recorded(tmp_path: Path, copied: Copied) -> Iterator[Session]:
    with Store(copied(_recorded, tmp_path / ".ctxvc")) as store:
        yield Session(StoredSession.open(store, "rec"))


def _recorded(path: Path) -> None:
    with create(path) as store:
        (done,) = import_paths(store, [SESSION], name="rec", final=True)
        assert not done.error


def asked(
    recorded: Session, *said: Any, budget: int = 60_000, steps: int = 9
) -> tuple[ask.AskResult, list[Mapping[str, Any]]]:
    with serve(script(*said)) as api:
        with (
            anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0) as client,
            ask.open_session(recorded.store.path, "ask-1", model=MODEL, window=budget) as session,
        ):
            answer = ask.ask(
                session, ask.Recording(session, recorded), "Why?", Anthropic(client), Eyes(), Limits(steps=steps)
            )
    return answer, api.bodies


def handle(recorded: Session, block: str) -> str:
    return recorded.ledger()[block].handle


def test_a_citation_holds_that_exists_and_was_read(recorded: Session) -> None:
    tip = recorded.stored.tip()
    answer, bodies = asked(
        recorded,
        [call("search_session", pattern="errors"), call("read_block", block="B7", lines="1:2")],
        f"Because of the merge [{handle(recorded, 'B7')}].",
    )

    (cited,) = answer.citations
    assert (cited.block, cited.holds, cited.scope, cited.step) == ("B7", True, "main", 1)
    assert answer.ended.steps == 2
    content = json.dumps(bodies[1]["messages"])
    assert "can you fix the local branch" in content  # the map has what humans said
    assert cited.label == "Bash git log --oneline -10"
    assert re.search(r"B7 \d+ 12r tool_result 0 B\d+ visible 0 Bash git log", content)  # and its results by their calls
    assert handle(recorded, "B15") in content  # and the search gives handles
    assert recorded.stored.tip() == tip
    assert not damages(recorded.store)


def test_what_does_not_hold_is_told_once_and_can_be_mended(recorded: Session) -> None:
    wrong = f"It was [B9999@aaaaaa], [B7@000000] and [{handle(recorded, 'B8')}]."
    answer, bodies = asked(recorded, wrong, [call("read_block", block="B8")], f"It was [{handle(recorded, 'B8')}].")

    told = bodies[1]["messages"][-1]["content"][-1]["text"]
    assert "B9999@aaaaaa is not a block" in told
    assert "B7@000000 is not a block" in told
    assert f"{handle(recorded, 'B8')} was not read" in told
    assert [citation.holds for citation in answer.citations] == [True]


def test_what_does_not_hold_in_the_end_is_said(recorded: Session) -> None:
    answer, _ = asked(recorded, "I just know.", f"Well: [{handle(recorded, 'B7')}].")

    assert [(citation.exists, citation.was_read) for citation in answer.citations] == [(True, False)]


def test_a_long_recording_fits_into_a_small_budget(recorded: Session) -> None:
    answer, bodies = asked(recorded, [call("read_block", block="B19")], "x", "x", budget=8_000)

    assert answer.ended.why == "said"
    assert len(json.dumps(bodies[0]["messages"])) < 14_000


def reading(recorded: Session, tmp_path: Path, *given: dict[str, Any]) -> tuple[list[str], set[tuple[str, str]]]:
    """What `read_block` answers to these calls, and what has been read then."""
    with ask.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        recording = ask.Recording(session, recorded)
        return [recording.run("read_block", each).output.decode() for each in given], recording.was_read


def test_a_search_in_a_block_that_finds_nothing_has_not_read_it(recorded: Session, tmp_path: Path) -> None:
    (said,), was_read = reading(recorded, tmp_path, {"block": "B7", "grep": "zzzz"})
    assert "0 of 0 lines" in said
    assert not was_read
    _, was_read = reading(recorded, tmp_path, {"block": "B7"})
    assert was_read == {("B7", recorded.ledger()["B7"].sha256)}


def test_a_block_of_another_session_is_not_taken_for_ones_own(recorded: Session, tmp_path: Path) -> None:
    recorded.store.create_session("other")
    with Session(StoredSession.open(recorded.store, "other")) as other:
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
    with ask.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        recording = ask.Recording(session, recorded)
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
    with ask.open_session(tmp_path / ".ctxvc", "ask-1", model=MODEL) as session:
        result = ask.Recording(session, recorded).run(tool, given)
    assert result.error
    assert len(result.output) < 500
    assert b"argument" not in result.output


def judged(recorded: Session, answer: str, *blocks: str) -> dict[str, str]:
    """What an answer cites, and why it does not hold, where these blocks were read."""
    was_read = {(block, recorded.ledger()[block].sha256) for block in blocks}
    recording = ask.Recording(recorded, recorded)
    recording.was_read = was_read
    return {citation.handle: citation.why for citation in recording.cited(answer)}


def test_whatever_looks_like_an_address_is_checked(recorded: Session) -> None:
    read = handle(recorded, "B7")
    answer = (
        f"By [B7] and B9, [{read}], main:{read}, nope:{read}, other/main:{read}, {read.upper()}, B7@zzzz, B7@, "
        f"[B9999], B5-B7, {read}-{read}, [b8], b8@aaaa, main:B6, rec/main:{read} and "
        f"G1@abcd12; see {handle(recorded, 'B8')}."
    )
    assert judged(recorded, answer, "B7") == {
        "B7": "has no checksum",
        "B9": "has no checksum",
        read: "",
        f"main:{read}": "",
        f"nope:{read}": "is not a block of the recording",
        f"other/main:{read}": "is in another session",
        read.upper(): "is not a handle as read_block gives it",
        "B7@zzzz": "is not a handle as read_block gives it",
        "B7@": "is not a handle as read_block gives it",
        "B9999": "has no checksum",
        "B5-B7": "is not a handle as read_block gives it",
        f"{read}-{read}": "is not a handle as read_block gives it",
        "b8": "is not a handle as read_block gives it",
        "b8@aaaa": "is not a handle as read_block gives it",
        "main:B6": "has no checksum",
        f"rec/main:{read}": "",
        "G1@abcd12": "is a group: cite the blocks in it",
        handle(recorded, "B8"): "was not read",
    }


@pytest.mark.parametrize(
    "answer",
    [
        "B2B, 5B9, vitamin-B12, B9.5, B9.txt, a_B9, xB9 and b9",
        "the cell `B9`, ``a ` B9`` and `[B9]`",
        "```sh\necho B9 [B8] `B7`\n```\n",
    ],
)
def test_no_part_of_a_word_and_nothing_quoted_is_a_citation(recorded: Session, answer: str) -> None:
    assert judged(recorded, answer) == {}


def test_a_whole_handle_is_a_citation_in_code_too(recorded: Session) -> None:
    assert judged(recorded, f"`{handle(recorded, 'B7')}`") == {handle(recorded, "B7"): "was not read"}


@pytest.mark.timeout(60)
def test_a_hostile_answer_cites_nothing(recorded: Session) -> None:
    """In the square of its length, it would take minutes."""
    for answer in (
        "B-" * 50_000,
        "a:" * 50_000,
        "".join("`" * length + " " for length in range(400)),
        "` `` " * 20_000,
    ):
        assert judged(recorded, answer) == {}


def test_an_output_that_the_model_saw_cut_is_cited_as_it_was_read(recorded: Session, tmp_path: Path) -> None:
    notes = {"cut": True, "whole": "1.txt"}
    part = wire.result_part("the fir", "toolu_cut", ctxvc=notes)
    part = msgspec.structs.replace(part, files=(("1.txt", b"the first and the last"),))
    use = {"type": "tool_use", "id": "toolu_cut", "name": "bash", "input": {}}
    recorded.append({"role": "assistant", "content": [use]})
    (block,) = recorded.append(Message(role="user", parts=(part,)))

    with ask.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        recording = ask.Recording(session, recorded)
        said = recording.run("read_block", {"block": block}).output.decode()
        told = re.search(f"recovered ({block}-1.txt@[0-9a-f]+):", said)
        assert told
        citations = recording.cited(f"[{told[1]}] and [{block}-1.txt@000000]")
    assert [citation.why for citation in citations] == ["", "is not a block of the recording"]


def test_the_limits_hold_for_the_answer_and_its_mending_together(recorded: Session) -> None:
    reads = [call("read_block", block="B7")]
    answer, bodies = asked(recorded, reads, "I just know.", reads, reads, steps=3)

    assert (len(bodies), answer.ended.steps, answer.ended.why) == (3, 3, "steps")
    assert answer.answer == "I just know."


def test_what_was_deleted_is_neither_found_nor_shown(recorded: Session, tmp_path: Path) -> None:
    text = f"{'of the rest ' * 20} sekrit"  # a label has less
    made = recorded.append({"role": "user", "content": text}, {"role": "assistant", "content": text})
    recorded.append({"role": "user", "content": "go on"}, {"role": "assistant", "content": "yes"})
    recorded.append({"role": "user", "content": "and?"})
    person = Session(recorded.stored, actor="user")
    assert not person.verb("delete", made, "private", allow_user=True).problems

    with ask.open_session(recorded.store.path, "ask-1", model=MODEL, window=20_000) as session:
        found = ask.Recording(session, recorded).run("search_session", {"pattern": "sekrit"})
    assert found.output == b"[no hits]"
    _, bodies = asked(recorded, "I do not know.", "Really.")
    assert "sekrit" not in json.dumps(bodies[0]["messages"])
