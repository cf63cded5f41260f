"""The protocol by itself: whatever a client sends, it gets an answer of the right form, or none where none is due."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.mcp import offer
from ctxvc.mcp.contract import Content, Page, Wrong
from ctxvc.mcp.protocol import HANDSHAKES, MODERN, Connection, Exchange
from ctxvc.mcp.recordings import Recordings
from ctxvc.mcp.stdio import serve

#: What the definitions of all tools may cost the model that is shown them, in characters.
MOST = 7_000


class Offer:
    """One tool that does what it is told."""

    instructions, version = "Use it.", "1"
    templates, prompts = offer.TEMPLATES, offer.PROMPTS
    tools = tuple(tool for tool in offer.TOOLS if tool.name == "search")

    def __init__(self) -> None:
        self.metas: list[Mapping[str, Any]] = []
        self.started, self.go = threading.Event(), threading.Event()

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct:
        assert name == "search"
        assert isinstance(arguments, offer.SearchArguments)
        self.metas.append(meta)
        match arguments.pattern:
            case "bug":
                raise ZeroDivisionError("secret")
            case "wrong":
                raise Wrong("no such thing")
            case "slow":
                self.started.set()
                assert self.go.wait(20)
            case "half":
                return offer.Searched(session="\ud800", found=[], further_blocks=0, unfinished="")
        return offer.Searched(session="s", found=[], further_blocks=0, unfinished="")

    def resources(self, cursor: str, meta: Mapping[str, Any]) -> Page:
        self.metas.append(meta)
        if cursor not in ("", "more"):
            raise Wrong("this cursor was never given")
        return Page([offer.BOARD], "" if cursor else "more")

    def contents(self, uri: str, meta: Mapping[str, Any]) -> list[Content]:
        self.metas.append(meta)
        raise Wrong(f"there is no resource {uri}")

    def prompt(self, name: str, arguments: Mapping[str, str], meta: Mapping[str, Any]) -> str:
        self.metas.append(meta)
        if "session" in arguments:
            raise Wrong("no such session")
        return f"{name} {dict(arguments)}"

    def completions(self, argument: str, beginning: str) -> list[str]:
        return [f"{beginning}{number}" for number in range(150)] if argument == "session" else []


def answer(line: bytes | dict[str, Any], given: Offer | None = None) -> Any:
    faults: list[Exception] = []
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    reply = Connection(given or Offer(), faults.append).answer(data)
    return None if reply is None else json.loads(reply)


def asked(method: str, given: Offer | None = None, /, **params: Any) -> Any:
    return answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, given)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", -32700), (b"nonsense", -32700), (b"[" * 100_000, -32700), (b"\xff\xfe", -32700), (b"[]", -32600),
        (b"7", -32600), (b"{}", -32600), (b'{"id": 1, "method": 7}', -32600), (b'{"id": [], "method": "ping"}', -32600),
        (b'{"id": null, "method": "ping"}', -32600), (b'{"id": 1, "method": "nonsense/list"}', -32601),
        (b'{"id": 1, "method": "tools/call", "params": 7}', -32602),
        (b'{"id": 1, "method": "tools/call", "params": {"name": ["x"]}}', -32602),
        (b'{"id": 1, "method": "resources/read", "params": {"uri": 7}}', -32602),
        (b'{"id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}', -32002),
    ],
)  # fmt: skip
def test_what_is_no_request_gets_an_error(line: bytes, code: int) -> None:
    assert answer(line)["error"]["code"] == code


@pytest.mark.parametrize(
    "line", [b'{"method": "notifications/initialized"}', b'{"method": "notifications/cancelled", "params": {}}',
             b'{"id": 1, "result": {}}', b'{"id": 1, "error": {}}']
)  # fmt: skip
def test_where_no_answer_is_due_there_is_none(line: bytes) -> None:
    assert answer(line) is None


@pytest.mark.parametrize("version", [*HANDSHAKES, "1999-01-01", 7, None])
def test_the_version_is_the_clients_or_our_newest(version: object) -> None:
    result = asked("initialize", protocolVersion=version)["result"]
    assert result["protocolVersion"] == (version if version in HANDSHAKES else HANDSHAKES[0])
    assert result["serverInfo"]["name"] == "ctxvc" and result["instructions"] == "Use it."


def test_without_a_handshake_each_request_says_its_version() -> None:
    modern = {"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN[0]}}
    assert asked("server/discover", **modern)["result"]["supportedVersions"] == list(MODERN)
    assert asked("tools/list", **modern)["result"]["resultType"] == "complete"
    unknown = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    error = asked("tools/list", **unknown)["error"]
    assert error["code"] == -32022 and MODERN[0] in error["data"]["supported"]


def test_each_form_of_the_protocol_has_its_own_methods() -> None:
    modern = {"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN[0]}}
    for method in ("initialize", "ping"):
        assert asked(method, **modern)["error"]["code"] == -32601
        assert "result" in asked(method)
    assert asked("server/discover")["error"]["code"] == -32601
    listed = asked("tools/list", **modern)["result"]
    assert listed["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "ctxvc", "title": "ctxvc", "version": "1"}
    # What is not there has a code of its own in one form only.
    assert asked("resources/read", uri="ctxvc://x")["error"]["code"] == -32002
    assert asked("resources/read", uri="ctxvc://x", **modern)["error"]["code"] == -32602


@pytest.mark.parametrize("cursor", ["", "x", 7, ["more"], "9" * 1000])
def test_a_cursor_that_was_never_given_is_refused(cursor: object) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        assert asked(method, cursor=cursor)["error"]["code"] == -32602, method


def test_a_list_of_resources_says_where_it_goes_on() -> None:
    first = asked("resources/list")["result"]
    assert first["nextCursor"] == "more"
    assert "nextCursor" not in asked("resources/list", cursor="more")["result"]


def test_a_prompt_takes_its_own_arguments_only() -> None:
    got = asked("prompts/get", name="recover-evidence", arguments={"claim": "it was green"})["result"]
    assert got["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "recover-evidence {'claim': 'it was green'}"}}
    ]
    for arguments, why in [
        ({}, "needs claim"), ({"claim": " "}, "needs claim"), ({"claim": 7}, "an object of texts"), (7, "an object of"),
        ({"claim": "x", "sesion": "y"}, "unknown argument sesion; did you mean session?; recover-evidence takes claim"),
        ({"claim": "x" * 5000}, "claim has more than 4,000 characters"), ({"claim": "x", "session": ""}, "no such"),
    ]:  # fmt: skip
        error = asked("prompts/get", name="recover-evidence", arguments=arguments)["error"]
        assert error["code"] == -32602 and why in error["message"]
    for name in ("nonsense", 7, None):
        assert asked("prompts/get", name=name)["error"]["code"] == -32602


def test_arguments_are_completed() -> None:
    completion = asked("completion/complete", argument={"name": "session", "value": "fix"})["result"]["completion"]
    assert (completion["values"][:2], len(completion["values"])) == (["fix0", "fix1"], 100)
    assert (completion["total"], completion["hasMore"]) == (150, True)
    for argument in (None, {}, {"name": 7, "value": "x"}):
        assert asked("completion/complete", argument=argument)["error"]["code"] == -32602


def test_what_is_unknown_is_named_with_what_was_meant() -> None:
    result = asked("tools/call", name="search", arguments={"patern": "x", "\x1b[2J": 1, "z": 2})["result"]
    text = result["content"][0]["text"]
    assert text.startswith("unknown argument patern; did you mean pattern?; unknown argument ")
    assert "\x1b" not in text and "it takes pattern, " in text


def test_a_cancelled_request_is_not_begun_and_not_answered() -> None:
    served, faults = Offer(), list[Exception]()
    connection = Connection(served, faults.append)

    def call(number: int, pattern: str) -> Exchange:
        arguments = {"pattern": pattern}
        message = {"id": number, "method": "tools/call", "params": {"name": "search", "arguments": arguments}}
        return connection.received(message)

    def cancel(number: object) -> None:
        assert (
            connection.received({"method": "notifications/cancelled", "params": {"requestId": number}}).answer() is None
        )

    waiting = call(1, "x")
    cancel(1)
    assert waiting.answer() is None and not served.metas, "it was begun all the same"

    answers: list[bytes | None] = []
    slow = threading.Thread(target=lambda: answers.append(call(2, "slow").answer()))
    slow.start()
    assert served.started.wait(20)
    cancel(2)
    served.go.set()
    slow.join()
    assert answers == [None]

    for number in (2, 3, [], None):  # what is answered already, or was never asked
        cancel(number)
    assert call(2, "x").answer() and call(3, "x").answer(), "an old number may be used again"
    assert not faults
    assert not vars(connection)["_open"], "what was answered is remembered for ever"


def test_a_bug_in_a_tool_is_reported_and_not_told() -> None:
    faults: list[Exception] = []
    line = b'{"id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"pattern": "bug"}}}'
    reply = Connection(Offer(), faults.append).answer(line)
    assert reply and b"secret" not in reply and json.loads(reply)["error"]["code"] == -32603
    assert [type(fault) for fault in faults] == [ZeroDivisionError]


def test_what_a_tool_refuses_is_for_the_model() -> None:
    result = asked("tools/call", name="search", arguments={"pattern": "wrong"})["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "no such thing")


@pytest.mark.parametrize("arguments", [[], "x", {"pattern": None}, {"pattern": 7}, {"pattern": "x", "more": 1}, None])
def test_arguments_that_make_no_sense_are_for_the_model_too(arguments: object) -> None:
    result = asked("tools/call", name="search", arguments=arguments)["result"]
    assert result["isError"] and "it takes pattern, " in result["content"][0]["text"]


def test_half_a_character_is_carried() -> None:
    result = asked("tools/call", name="search", arguments={"pattern": "half"})["result"]
    assert result["structuredContent"]["session"] == "\ud800"


def test_what_the_client_says_of_a_call_reaches_it() -> None:
    given = Offer()
    asked("tools/call", given, name="search", arguments={"pattern": "x"}, _meta={"claudecode/toolUseId": "toolu_1"})
    asked("tools/call", given, name="search", arguments={"pattern": "x"}, _meta=7)
    assert given.metas == [{"claudecode/toolUseId": "toolu_1"}, {}]


def test_a_slow_call_holds_up_no_other_request() -> None:
    given, lines = Offer(), []

    class Incoming(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(-1 if size is None else size)
            if b"ping" in line:
                assert given.started.wait(20)
            if not line:
                until = time.monotonic() + 20
                while not outgoing.getvalue() and time.monotonic() < until:
                    time.sleep(0.01)
                lines.append(outgoing.getvalue())
                given.go.set()
            return line

    call = {"id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"pattern": "slow"}}}
    outgoing = io.BytesIO()
    incoming = Incoming(json.dumps(call).encode() + b'\n\n{"id": 2, "method": "ping"}\n')
    serve(Connection(given, lambda _: None), incoming, outgoing)
    assert [json.loads(line)["id"] for line in lines[0].splitlines()] == [2]
    assert [json.loads(line)["id"] for line in outgoing.getvalue().splitlines()] == [2, 1]


def test_a_line_without_end_is_not_taken_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxvc.mcp.stdio.LONGEST", 100)
    outgoing = io.BytesIO()
    incoming = io.BytesIO(b'{"id": 1, "method": "' + b"x" * 1000 + b'"}\n{"id": 2, "method": "ping"}\n')
    serve(Connection(Offer(), lambda _: None), incoming, outgoing)
    first, second = map(json.loads, outgoing.getvalue().splitlines())
    assert first["error"]["code"] == -32700 and second["id"] == 2


def test_the_tools_are_told_in_few_words() -> None:
    listed = asked("tools/list", Recordings(Path))["result"]["tools"]  # type: ignore[arg-type]
    shown = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in listed]
    assert len(json.dumps(shown)) < MOST
    assert [tool["name"] for tool in listed if tool.get("_meta", {}).get("anthropic/alwaysLoad")] == [
        "note", "recover", "search",
    ]  # fmt: skip
