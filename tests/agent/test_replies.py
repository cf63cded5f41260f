"""A reply that somebody else's client received from a server that writes in its own way, taken in by the adapter."""

from __future__ import annotations

import pytest

from ctxvc.agent import Adapter
from ctxvc.agent.message import sound
from ctxvc.errors import BadInput
from ctxvc.session.session import Session
from tests.messages_api import text
from tests.messages_api.wire import Block

from .building import SH


def call(identifier: object, cmd: object = "ls") -> Block:
    return {"type": "tool_use", "id": identifier, "name": SH["name"], "input": {"cmd": cmd} if cmd == "ls" else cmd}


def reply(*content: object, **fields: object) -> Block:
    return {"id": "msg_1", "role": "assistant", "content": list(content), "stop_reason": "tool_use", **fields}


def begun(session: Session) -> Adapter:
    session.append({"role": "user", "content": "Look."})
    adapter = Adapter(session)
    adapter.request()
    return adapter


def answer(call: Block) -> Block:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": f"of {call['id']}"}


def test_calls_with_one_id_have_each_their_own_and_one_result(session: Session) -> None:
    adapter = begun(session)
    taken = adapter.record(reply(call("call_0"), call("call_0"), call(""), call(None), call(7)))
    assert [one["id"] for one in taken.calls] == ["call_0", "call_0_2", "call", "call_2", "call_3"]
    adapter.results([answer(one) for one in taken.calls])
    adapter.request()
    again = adapter.record(reply(call("call_0")))
    assert [one["id"] for one in again.calls] == ["call_0_3"]
    adapter.results([answer(again.calls[0])])
    sent = [block for message in adapter.request()["messages"] for block in message["content"]]
    calls = [block["id"] for block in sent if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in sent if block["type"] == "tool_result"]
    assert calls == results == ["call_0", "call_0_2", "call", "call_2", "call_3", "call_0_3"]


def test_the_same_reply_after_another_request_is_another_one(session: Session) -> None:
    adapter = begun(session)
    message = reply(call("call_0"))
    first = adapter.record(message)
    assert adapter.record(message) is first, "taken in twice by mistake"
    adapter.results([answer(first.calls[0])])
    adapter.request()
    second = adapter.record(message)
    assert second.calls[0]["id"] != first.calls[0]["id"]
    assert len([row for row in session.ledger().rows() if row.kind == "tool_use"]) == 2


@pytest.mark.parametrize("arguments", ['{"cmd": "ls', "[1]", "null", "", 7, ["ls"]])
def test_arguments_that_are_no_object_are_kept_and_answered_with_what_is_wrong(
    session: Session, arguments: object
) -> None:
    adapter = begun(session)
    taken = adapter.record(reply(call("a", arguments), call("b")))
    if arguments == "":
        assert [one["id"] for one in taken.calls] == ["a", "b"], "a call without arguments"
        return
    assert [one["id"] for one in taken.calls] == ["b"]
    assert taken.goes_on
    adapter.results([answer(taken.calls[0])])
    *_, asked, results = adapter.request()["messages"]
    assert asked["content"][0]["input"] == {
        "arguments": arguments if isinstance(arguments, str) else str(arguments).replace("'", '"')
    }
    assert [block["tool_use_id"] for block in results["content"][:2]] == ["a", "b"]
    assert results["content"][0]["is_error"]
    assert "JSON object" in str(results["content"][0]["content"])


def test_a_call_of_a_context_tool_whose_arguments_are_no_json_changes_nothing(session: Session) -> None:
    adapter = begun(session)
    note = {"type": "tool_use", "id": "n", "name": "note", "input": '{"text": "x'}
    assert adapter.record(reply(note)).calls == ()
    assert session.notes() == []
    assert session.stored.open_calls == ()  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("content", ["", [], [text("")], None])
def test_an_empty_reply_is_none_and_is_asked_for_again(session: Session, content: object) -> None:
    adapter = begun(session)
    taken = adapter.record({**reply(), "content": content, "stop_reason": "end_turn"})
    assert (taken.stop, taken.goes_on) == ("cut", True)
    assert not [row for row in session.ledger().rows() if row.role == "assistant"]


@pytest.mark.parametrize(
    "content", [7, [7], [{"type": "text", "text": 7}], [{"type": 1}], [{}], [call("a") | {"name": 3}], {"a": 1}]
)
def test_what_is_no_reply_is_refused_and_nothing_is_recorded(session: Session, content: object) -> None:
    adapter = begun(session)
    rows = len(list(session.ledger().rows()))
    with pytest.raises(BadInput, match="no message"):
        adapter.record({**reply(), "content": content})
    assert len(list(session.ledger().rows())) == rows


def test_usage_that_is_no_numbers_teaches_nothing(session: Session) -> None:
    adapter = begun(session)
    before = session.ledger().meta.calibration
    adapter.record(reply(text("So."), stop_reason="end_turn", usage={"input_tokens": True, "output_tokens": -1}))
    assert session.ledger().meta.calibration == before
    counts = {"a": True, "b": -1, "c": 2**70, "d": "12", "e": None, "f": 1.5, "g": 7, "h": {"x": 1}}
    message = sound(reply(text("So."), usage=counts))
    assert isinstance(message, dict)
    assert message["usage"] == {"g": 7, "h": {"x": 1}}
