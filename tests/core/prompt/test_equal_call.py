"""A call that the prompt shows as one of an equal tool: its row says which, its body stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.hosts import tools
from ctxvc.core.hosts.tools import shown_as_of_agent
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.equal_call import equal_call, note, tool_of
from ctxvc.core.prompt.outline import outline, pieces
from tests.making.generated import bodies_of, json_objects, numbered

BASH = {"command": "ls", "timeout": 60_000, "description": "look"}


def call_row(arguments: Any, tool: str = "Bash", **metadata: Any) -> tuple[Row, bytes]:
    part = wire.call_part(tool, "c", wire.compact(arguments))
    ledger, bodies = numbered([Message(role="assistant", parts=(part,))])
    row = next(row for row in ledger.rows() if row.kind == "tool_use")
    extra = {"ctxvc": metadata} if metadata else {}
    return msgspec.structs.replace(row, extra=extra), bodies_of(bodies).body(row)


@given(
    original=json_objects, renamed=st.dictionaries(st.text(max_size=5), json_objects | st.integers() | st.booleans())
)
def test_what_a_row_notes_gives_the_arguments_again(original: dict[str, Any], renamed: dict[str, Any]) -> None:
    arguments = {**renamed, **{f"new {name}": value for name, value in original.items()}}
    row, body = call_row(original, **{"as": note(original, "other", arguments)})

    again = equal_call(row, body)

    assert again and (again.tool, again.original) == ("other", original)
    assert wire.compact(dict(sorted(again.arguments.items()))) == wire.compact(dict(sorted(arguments.items())))


def test_a_value_that_the_body_has_is_not_repeated() -> None:
    long = "x" * 10_000
    noted = note({"file_path": "a", "content": long}, "write_file", {"path": "a", "content": long, "all": True})

    assert noted == {
        "tool": "write_file",
        "of": {"path": "file_path", "content": "content"},
        "arguments": {"all": True},
    }
    assert note({"count": 1}, "x", {"all": True})["of"] == {}, "1 is not true"


@pytest.mark.parametrize(
    "odd",
    [
        7,
        {"tool": 7, "of": {}, "arguments": {}},
        {"tool": "bash", "of": {"command": "gone"}, "arguments": {}},
        {"tool": "bash", "of": {"command": 1}, "arguments": {}},
        {"tool": "bash", "of": {}},
    ],
)
def test_a_note_that_does_not_fit_leaves_the_call_as_it_was(odd: Any) -> None:
    row, body = call_row(BASH, **{"as": odd})

    assert equal_call(row, body) is None


def test_the_prompt_shows_the_equal_call_and_what_it_was() -> None:
    ledger, bodies = numbered([Message(role="assistant", parts=(wire.call_part("Bash", "c", wire.compact(BASH)),))])
    row, body = next(ledger.rows()), wire.compact(BASH)
    shown = ledger.with_rows([shown_as_of_agent(row, body, "run")])
    (piece, *_) = pieces(outline(shown), bodies_of(bodies))

    assert (piece.tool, wire.parsed(piece.body, dict)) == ("bash", {"command": "ls", "timeout": 60})
    assert tools.call_of(piece) == ("Bash", BASH)
    assert tool_of(shown[row.id]) == "bash" and shown[row.id].sha256 == row.sha256


@pytest.mark.parametrize(
    ("tool", "arguments"), [("Nobody", BASH), ("Bash", {**BASH, "run_in_background": True}), ("Bash", "no object")]
)
def test_a_call_without_an_equal_stays_as_it_is(tool: str, arguments: Any) -> None:
    row, body = call_row(arguments, tool)

    assert shown_as_of_agent(row, body, "run") is row


def test_a_lone_surrogate_that_a_row_cannot_hold_leaves_the_call_as_it_was() -> None:
    row, body = call_row({"path": "a", "edits": [{"oldText": "\ud800", "newText": "b"}]}, "edit")

    assert shown_as_of_agent(row, body, "run") is row
