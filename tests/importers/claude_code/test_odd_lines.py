"""Lines that nobody can trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Warned
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import Line, between, of, prompt, reply, text, written
from tests.making.events import messages, parts


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_told(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s.jsonl", prompt("u1", None, "hi"), b"[1, 2", b"[1, 2]", reply("a1", "u1", text("hello"))
    )
    with path.open("ab") as file:
        file.write(json.dumps(prompt("u2", "a1", "more")).encode()[:50])

    events = list(claude_code.events(Recording(path)))

    assert [message.key for message in messages(events)] == ["u1", "a1"]
    assert [warning.line for warning in of(Warned, events)] == [2, 3, 5]
    assert "cut short" in of(Warned, events)[-1].text


def test_a_line_of_the_conversation_without_a_message_is_warned_of(parsed: Any) -> None:
    broken = prompt("u1", None, "hi") | {"message": "hi"}

    assert [warning.line for warning in of(Warned, parsed(broken))] == [1]


def test_fields_of_unexpected_types_do_not_cost_the_message(parsed: Any) -> None:
    odd = prompt("u1", None, "hi", timestamp=12, isMeta="no", cwd=["/"], origin="me", attachment=3)
    odd["message"] |= {"usage": [], "id": 4}

    (message,) = messages(parsed(odd))

    assert (message.key, message.time, message.parts[0].body) == ("u1", "", b"hi")


@pytest.mark.parametrize(
    "broken",
    [
        prompt("u1", None, "cut \ud83d"),
        between("system", "u1", None, subtype="local_command", content="cut \ud83d"),
        between("attachment", "u1", None, attachment={"type": "queued_command", "prompt": "cut \ud83d"}),
        between("attachment", "u1", None, attachment={"type": "x"}, rendered=[{"content": "cut \ud83d"}]),
    ],
)
def test_half_of_a_surrogate_pair_comes_through(parsed: Any, broken: Line) -> None:
    (part,) = parts(parsed(broken))

    assert part.body.decode("utf-8", "surrogatepass") == "cut \ud83d"


def test_lines_second_beyond_reason_are_a_warning(parsed: Any) -> None:
    deep = b'{"type":"user","message":{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"

    assert [warning.line for warning in of(Warned, parsed(deep))] == [1]
