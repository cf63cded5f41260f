"""Recordings in the neutral format of trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Compacted, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import ctxvc_trajectory as trajectory
from ctxvc.importers.file import Recording

DATA = Path(__file__).parents[1] / "data" / "trajectory"
SMALL = DATA / "small.jsonl"


def told(path: Path) -> list[Event]:
    return list(trajectory.events(Recording(path)))


def messages() -> dict[str, Any]:
    """The messages of the small file by key, summaries too."""
    found = {}
    for event in told(SMALL):
        if isinstance(event, Said):
            found[event.message.key] = event.message
        if isinstance(event, Compacted):
            found.update({message.key: message for message in event.summary})
    return found


def test_the_header_and_the_system_message_behind_it_open_the_session():
    first, second = told(SMALL)[:2]

    assert first == Opened(
        format="ctxvc-trajectory",
        source="demo/one two",
        name="demo-one-two",
        model="claude-sonnet-4-5",
        agent="Claude Code 2",
        title="Fix the door",
        missing=("system prompt", "tool definitions", "reminders and attachments that the client showed the model"),
    )
    assert second == Opened(format="ctxvc-trajectory", system=[{"type": "text", "text": "Be careful."}])


def test_a_message_has_its_line_time_model_and_plain_token_counts():
    said = messages()

    assert said["line:3"].time == "2026-01-02T03:04:05.678Z"
    assert (said["line:6"].model, said["line:6"].usage) == (
        "claude-sonnet-4-5",
        {"input_tokens": 9, "output_tokens": 4},
    )


def test_what_no_person_typed_is_the_clients():
    origins = {key: [part.origin for part in message.parts] for key, message in messages().items()}

    assert origins == {
        "line:3": ["human"],
        "line:4": ["client"],
        "line:5": ["client"],
        "line:6": ["model", "model", "model"],
        "line:7": ["tool", "client"],
        "line:8": ["client"],
        "line:9": ["model"],
        "line:10": ["client"],
        "line:11": ["model"],
        "line:12": ["human", "human"],
        "line:13": ["model"],
    }


def test_a_result_that_the_converter_made_up_is_marked_as_interrupted():
    result = messages()["line:7"].parts[1]

    assert (result.kind, result.call, result.error) == ("tool_result", "c2", True)
    assert result.extra == {"ctxvc": {"interrupted": True}}


def test_native_role_and_speaker_are_noted():
    said = messages()

    assert said["line:5"].parts[0].extra == {"ctxvc": {"native_role": "developer"}}
    assert said["line:9"].parts[0].extra == {"ctxvc": {"speaker": "Orchestrator"}}


def test_a_later_system_message_stays_in_its_place():
    message = messages()["line:8"]

    assert (message.role, message.parts[0].kind) == ("system", "system")


def test_a_boundary_drops_all_before_it_and_a_summary_stands_in_its_place():
    compacted = [event for event in told(SMALL) if isinstance(event, Compacted)]

    assert [[message.key for message in event.summary] for event in compacted] == [["line:10"], []]
    assert [event.kept for event in compacted] == [frozenset(), frozenset()]
    assert compacted[0].time == "2026-01-02T04:00:00Z"


def test_the_message_on_a_bare_boundary_is_said_after_it():
    events = told(SMALL)
    place = [isinstance(event, Compacted) and not event.summary for event in events].index(True)

    after = events[place + 1]
    assert isinstance(after, Said)
    assert after.message.key == "line:12"


def test_lines_that_are_no_message_are_skipped_with_a_warning(tmp_path: Path):
    header, *rest = SMALL.read_text().splitlines()
    path = tmp_path / "t.jsonl"
    bad = ["{", "7", '{"role": "tool", "content": []}', '{"role": "user", "content": "text"}', '{"role": "user"}']
    path.write_text("\n".join([header, *bad, *rest]))

    warned = [event.line for event in told(path) if isinstance(event, Warned)]

    assert warned == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("first", ["", "{", "[]", '{"format": "ctxvc-trajectory/2"}', '{"role": "user"}'])
def test_a_file_without_our_header_is_refused(tmp_path: Path, first: str):
    path = tmp_path / "t.jsonl"
    path.write_text(first + "\n")

    assert not trajectory.sniff(path.read_bytes())
    with pytest.raises(BadInput, match="not a header"):
        told(path)
