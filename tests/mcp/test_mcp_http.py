"""The MCP server over HTTP: asked by the SDK's own client, by raw requests that are wrong, and as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ctxvc.cli.main import cli
from ctxvc.loopback import Server
from ctxvc.mcp import streamable
from ctxvc.mcp.protocol import HANDSHAKES, MODERN
from ctxvc.mcp.recordings import Recordings
from ctxvc.mcp.streamable import Endpoint
from ctxvc.session.session import Session
from tests.making.loopback import TOKEN, serving
from tests.making.provider import damages

_T = TypeVar("_T")
META = {"io.modelcontextprotocol/protocolVersion": MODERN[0]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one session of which something left the prompt."""
    path = tmp_path_factory.mktemp("http") / ".ctxvc"
    with Session.open(path, "demo", model="claude-opus-4-5") as session:
        session.append({"role": "user", "content": "Why does it fail?"})
        session.append({"role": "assistant", "content": "The fixture. " * 200})
        session.append({"role": "user", "content": "And now?"})
        session.append({"role": "assistant", "content": "It works."})
        session.archive("B2", "the first answer")
    return path


@contextmanager
def endpoint(store: Path) -> Iterator[Server]:
    """A server of the store."""
    faults: list[Exception] = []
    with serving(answer=Endpoint(Recordings(lambda: store, version="1"), faults.append).answer) as server:
        yield server
    assert not faults


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Server]:
    with endpoint(store) as running:
        yield running


# --- the SDK's client


async def with_client(url: str, token: str, mode: Any, ask: Callable[[Client], Awaitable[_T]]) -> _T:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(streamable_http_client(f"{url}{streamable.PATH}", http_client=http), mode=mode) as client,
    ):
        return await ask(client)


@pytest.mark.parametrize(("mode", "version"), [("auto", MODERN[0]), ("legacy", HANDSHAKES[0])])
def test_a_client_has_all_that_there_is_in_both_forms(server: Server, mode: str, version: str) -> None:
    async def ask(client: Client) -> None:
        assert client.protocol_version == version
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"note", "recover", "why"}
        part = await client.call_tool("recover", {"address": "B2", "chars": "1:12"})
        assert part.structured_content and part.structured_content["content"] == "The fixture."
        assert (await client.call_tool("recover", {"address": "B99"})).is_error
        assert [str(one.uri) for one in (await client.list_resources()).resources][1:] == ["ctxvc://block/demo/main/B2"]
        assert (await client.read_resource("ctxvc://block/demo/main/B2")).contents
        assert "B2 " in str((await client.get_prompt("what-left")).messages)
        # A name that no header can carry as it is.
        assert (await client.call_tool("search", {"pattern": "fïxture ✓"})).structured_content
        with pytest.raises(Exception, match="is not an address"):
            await client.read_resource("ctxvc://block/fïxture ✓")

    anyio.run(with_client, server.url, TOKEN, mode, ask)


def test_without_the_token_a_client_gets_nothing(server: Server) -> None:
    async def ask(_client: Client) -> None:
        raise AssertionError("it was let in")

    with pytest.raises(BaseException) as refused:
        anyio.run(with_client, server.url, "wrong", "legacy", ask)
    assert not isinstance(refused.value, AssertionError)


def test_clients_at_once_lose_no_note(tmp_path: Path) -> None:
    store = tmp_path / ".ctxvc"
    Session.open(store, "demo").close()
    clients, each = 4, 5

    async def write(url: str, number: int) -> None:
        async def notes(client: Client) -> None:
            for at in range(each):
                answer = await client.call_tool("note", {"text": f"Note {number}.{at}"})
                assert not answer.is_error, answer

        await with_client(url, TOKEN, "legacy" if number % 2 else "auto", notes)

    async def main(url: str) -> None:
        async with anyio.create_task_group() as group:
            for number in range(clients):
                group.start_soon(write, url, number)

    with endpoint(store) as server:
        anyio.run(main, server.url)
    with Session.open(store, "demo") as session:
        assert {note.text for note in session.notes()} == {
            f"Note {number}.{at}" for number in range(clients) for at in range(each)
        }
        assert not damages(session.store)


# --- raw requests


def asked(
    server: Server, message: Any = None, method: str = "POST", path: str = streamable.PATH, **headers: str
) -> tuple[HTTPResponse, Any]:
    """The response to a message as a good client sends it, but for the headers; `_` stands for `-` in their names."""
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    own = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json",
           "Accept": "application/json, text/event-stream"}  # fmt: skip
    own.update({name.replace("_", "-"): value for name, value in headers.items()})
    client = HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        client.request(method, path, data, {name: value for name, value in own.items() if value})
        response = client.getresponse()
        body = response.read()
    finally:
        client.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response, json.loads(body) if is_json and body else body


def begun(server: Server, version: str = HANDSHAKES[0]) -> str:
    """The name of a session that was begun with the handshake."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    response, body = asked(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert (response.status, body["result"]["protocolVersion"]) == (200, version)
    return response.headers["Mcp-Session-Id"]


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


@pytest.mark.parametrize("version", HANDSHAKES)
def test_a_session_is_begun_used_and_ended(server: Server, version: str) -> None:
    session = begun(server, version)
    assert session != begun(server, version) and len(session) > 20
    used = {"Mcp_Session_Id": session, "MCP_Protocol_Version": version}
    response, body = asked(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **used)
    assert (response.status, body) == (202, b"")
    assert asked(server, PING, **used)[1] == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert asked(server, method="DELETE", **used)[0].status == 204
    for status, method in ((404, "DELETE"), (404, "POST")):
        assert asked(server, PING, method, **used)[0].status == status


def test_only_so_many_sessions_are_remembered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable, "SESSIONS", 2)
    first, second = begun(server), begun(server)
    assert asked(server, PING, Mcp_Session_Id=first)[0].status == 200
    third = begun(server)
    statuses = [asked(server, PING, Mcp_Session_Id=name)[0].status for name in (first, second, third)]
    assert statuses == [200, 404, 200]


@pytest.mark.parametrize(
    ("method", "path", "message", "headers", "status"),
    [
        ("GET", "/mcp", None, {"Accept": "text/event-stream"}, 405), ("PUT", "/mcp", PING, {}, 405),
        ("OPTIONS", "/mcp", None, {}, 405), ("POST", "/", PING, {}, 404), ("POST", "/mcp/../mcp", PING, {}, 404),
        ("POST", "/.well-known/oauth-protected-resource", None, {}, 404),
        ("POST", "/mcp", PING, {"Content_Type": "text/plain"}, 415), ("POST", "/mcp", PING, {"Content_Type": ""}, 415),
        ("POST", "/mcp", PING, {"Accept": "text/event-stream"}, 406),
        ("POST", "/mcp", PING, {"MCP_Protocol_Version": "1999-01-01"}, 400),
        ("POST", "/mcp", PING, {}, 400), ("POST", "/mcp", PING, {"Mcp_Session_Id": "nonsense"}, 404),
        ("DELETE", "/mcp", None, {}, 404), ("POST", "/mcp", b"nonsense", {}, 400), ("POST", "/mcp", b"", {}, 400),
        ("POST", "/mcp", b"[" * 100_000, {}, 400), ("POST", "/mcp", [PING], {}, 400), ("POST", "/mcp", 7, {}, 400),
        ("POST", "/mcp", {"method": []}, {}, 400), ("POST", "/mcp", {"id": 1, "result": {}}, {}, 400),
        ("POST", "/mcp", {**PING, "params": {"_meta": 7}}, {}, 400),
        ("POST", "/mcp", PING, {"Authorization": "Basic eDp5"}, 401),
        ("POST", "/mcp", PING, {"Origin": "http://evil.example"}, 403),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(
    server: Server, method: str, path: str, message: Any, headers: dict[str, str], status: int
) -> None:
    response, body = asked(server, message, method, path, **headers)
    assert response.status == status
    assert body, "nothing says why"


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        ({"method": "tools/list"}, {}, 200, 0),
        ({"method": "tools/list"}, {"Mcp_Method": "tools/call"}, 400, -32020),
        ({"method": "tools/list"}, {"Mcp_Method": ""}, 400, -32020),
        ({"method": "tools/list"}, {"MCP_Protocol_Version": ""}, 400, -32020),
        ({"method": "tools/list"}, {"MCP_Protocol_Version": HANDSHAKES[0]}, 400, -32020),
        ({"method": "tools/list", "params": {}}, {}, 400, -32020),
        ({"method": "tools/call", "params": {"name": "status"}}, {"Mcp_Name": "note"}, 400, -32020),
        ({"method": "tools/call", "params": {"name": "status"}}, {"Mcp_Name": "=?base64?c3RhdHVz?="}, 200, 0),
        ({"method": "tools/call", "params": {"name": "status"}}, {"Mcp_Name": "=?base64?%?="}, 400, -32020),
        ({"method": "tools/call", "params": {"name": "nonsense"}}, {"Mcp_Name": "nonsense"}, 400, -32602),
        ({"method": ["tools/list"]}, {"Mcp_Method": "tools/list"}, 400, -32020),
        ({"method": "nonsense"}, {}, 404, -32601), ({"method": "ping"}, {}, 404, -32601),
    ],
)  # fmt: skip
def test_without_a_handshake_headers_repeat_the_body(
    server: Server, message: dict[str, Any], headers: dict[str, str], status: int, code: int
) -> None:
    message = {"jsonrpc": "2.0", "id": "a", **message}
    if message.get("params") != {}:
        message["params"] = {**message.get("params", {}), "_meta": META}
    own = {"MCP_Protocol_Version": MODERN[0], "Mcp_Method": str(message["method"])}
    response, body = asked(server, message, **{**own, **headers})
    assert (response.status, body["id"], body.get("error", {}).get("code", 0)) == (status, "a", code)
    assert "Mcp-Session-Id" not in response.headers


# --- the command


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[str, str]]:
    """Address and token of a server that runs as a process of its own."""
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}
    env["CLAUDE_CODE_SESSION_ID"] = "33333333-0"  # started in an agent's shell, it is not for that agent alone
    with subprocess.Popen(
        [sys.executable, "-m", "ctxvc", "mcp", "--http", *arguments], cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout and process.stderr
        lines = [process.stdout.readline() for _ in range(4)]
        url, token = (re.search(form, "".join(lines)) for form in (r"serving (\S+)/mcp\n", r"token: (\S+)\n"))
        assert url and token, (lines, process.stderr.read())
        try:
            yield url[1], token[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 130
            assert process.stderr.read() == ""


def test_the_command_serves_until_it_is_ended_and_keeps_its_token(store: Path, tmp_path: Path) -> None:
    async def ask(client: Client) -> Any:
        return (await client.call_tool("status", {})).structured_content

    file = tmp_path / "token"
    with running(store.parent, "0", "--token-file", str(file)) as (url, token):
        assert url.startswith("http://127.0.0.1:")
        assert anyio.run(with_client, url, token, "auto", ask)["session"] == "demo"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{token}\n", 0o600)


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        (["--http", "0.0.0.0:0"], "0.0.0.0 can be reached from other machines", 2),
        (["--http", "x"], "not an address", 2),
        (["--http", "example.org:80"], "can be reached from other machines", 2),
        (["--token-file", "x"], "require --http", 2), (["--beyond-this-machine"], "require --http", 2),
        (["--http", "0", "--token-file", "."], "not a plain file", 1),
    ],
)  # fmt: skip
def test_what_would_not_be_safe_is_refused(store: Path, words: list[str], why: str, code: int) -> None:
    result = CliRunner().invoke(cli, ["-C", str(store.parent), "mcp", *words])
    assert result.exit_code == code
    assert why in result.stderr
