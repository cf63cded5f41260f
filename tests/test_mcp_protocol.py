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
from ctxvc.mcp.protocol import HANDSHAKES, MODERN, Connection, Wrong
from ctxvc.mcp.recordings import Recordings
from ctxvc.mcp.stdio import serve

#: What the definitions of all tools may cost the model that is shown them, in characters.
MOST = 7_000


class Offer:
    """One tool that does what it is told."""

    instructions, version = "Use it.", "1"
    resources = offer.RESOURCES
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

    def text(self, uri: str, meta: Mapping[str, Any]) -> str:
        self.metas.append(meta)
        raise Wrong(f"there is no resource {uri}")


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
