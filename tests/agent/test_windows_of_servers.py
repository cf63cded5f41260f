"""The window is asked from the server, each kind in its own place, for five seconds in all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest

from ctxvc.agent.model import ModelFailed
from ctxvc.agent.provider import Anthropic
from ctxvc.agent.windows import Window, discovered, upstreams

from .servers import Answer, Loopback, rows, serving

MODEL = "local-coder"
#: Servers, what they have at each of their places, and the window of the model.
PLACES = rows("windows.jsonl")
#: LiteLLM in front of other servers of this machine: what it says, what they say, and the tokens of the window.
BEHIND = rows("windows_behind.jsonl")


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


def json_answer(value: object) -> Answer:
    return Answer(200, "application/json", json.dumps(value).encode())


@pytest.mark.parametrize("row", PLACES, ids=[row["server"] for row in PLACES])
def test_each_kind_of_server_is_asked_in_its_own_place(server: Loopback, row: Mapping[str, Any]) -> None:
    window = Window(**row["window"]) if row["window"] else None
    server.places.clear()
    server.asked.clear()
    for path, answer in row["places"].items():
        server.places[path] = json_answer(answer)
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=2) as client:
        assert Anthropic(client).window(MODEL) == window
    paths = [path for path, _ in server.asked]
    assert len(paths) == len(set(paths)), "each place once"
    assert ("/api/show", {"model": MODEL}) in server.asked or window


@pytest.mark.parametrize("row", BEHIND, ids=[row["server"] for row in BEHIND])
def test_servers_behind_a_gateway_of_this_machine_are_asked(server: Loopback, row: Mapping[str, Any]) -> None:
    info, behind, tokens = row["info"], row["behind"], row["tokens"]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving()) for _ in behind]
        for loopback, places in zip(servers, behind, strict=True):
            loopback.places |= {path: json_answer(answer) for path, answer in places.items()}
        deployments = [
            {
                "model_name": MODEL,
                "litellm_params": {"api_base": f"{loopback.url}/v1", "model": "openai/own-name"},
                "model_info": info,
            }
            for loopback in servers
        ]
        server.places.clear()
        server.places["/model/info"] = json_answer({"data": [{"model_name": "other"}, *deployments]})
        with anthropic.Anthropic(api_key="secret", base_url=server.url, max_retries=0) as client:
            window = Anthropic(client).window(MODEL)
        assert (window.tokens if window else 0) == tokens
        assert not window or (" of 127.0.0.1:" in window.place) == (tokens != info.get("max_input_tokens"))
        for loopback in servers:
            assert loopback.asked[0] == ("/v1/models/own-name", None)
            assert not loopback.keys, "the gateway's key stays with the gateway"


def test_no_gateway_can_send_us_elsewhere() -> None:
    def servers(gateway: str, base: object) -> list[str]:
        deployment = {"model_name": MODEL, "litellm_params": {"api_base": base, "model": "openai/m"}}
        return [one.url for one in upstreams({"data": [deployment]}, MODEL, gateway)]

    here = "http://127.0.0.1:4000"
    assert servers(here, "http://localhost:8080/v1") == ["http://localhost:8080"]
    assert servers("http://[::1]:4000/", "HTTP://[::1]:8080") == ["http://[::1]:8080"]
    assert servers("https://models.example", "http://127.0.0.1:8080") == [], "its loopback is not ours"
    assert servers(here, f"{here}/v1") == [], "itself"
    elsewhere = (
        "169.254.169.254",
        "localhost@evil.example",
        "localhost.evil.example",
        "[::1%x]",
        "0.0.0.0",
        "127.1",
        "::1",
    )
    for host in elsewhere:
        assert servers(here, f"http://{host}/latest") == [], host
    for base in (
        None,
        7,
        ["http://127.0.0.1:1"],
        "file:///etc/passwd",
        "http://127.0.0.1:999999",
        "http://127.0.0.1:1\n",
    ):
        assert servers(here, base) == [], base
    many = [
        {"model_name": MODEL, "litellm_params": {"api_base": f"http://127.0.0.1:{port}", "model": "m"}}
        for port in range(1, 1_000)
    ]
    assert len(upstreams({"data": many}, MODEL, here)) < 10
    for answer in (None, [], {"data": 3}, {"data": [None, {"model_name": MODEL, "litellm_params": 1}]}):
        assert upstreams(answer, MODEL, here) == []


def test_a_page_at_a_place_says_nothing(server: Loopback) -> None:
    server.places.clear()
    server.places["/props"] = Answer(200, "text/html", b"<html>hello</html>")
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=0) as client:
        assert Anthropic(client).window(MODEL) is None


def test_a_key_that_is_refused_ends_it_and_one_that_a_place_refuses_does_not(server: Loopback) -> None:
    refused = Answer(401, "application/json", b'{"error": {"message": "no such key"}}')
    server.places.clear()
    server.places["/props"] = refused
    server.places["/v1/models"] = Answer(200, "application/json", b'{"data": [{"id": "x", "max_model_len": 9000}]}')
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=0) as client:
        assert Anthropic(client).window(MODEL) == Window(9_000, "/v1/models")
        server.places[f"/v1/models/{MODEL}"] = refused
        with pytest.raises(ModelFailed, match="rejected the key: no such key"):
            Anthropic(client).window(MODEL)


def test_servers_that_take_their_time_get_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [100.0], list[float]()
    monkeypatch.setattr("ctxvc.agent.windows.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        asked.append(timeout)
        now[0] += 0.75
        return None

    assert discovered(slow, "m", seconds=2) is None
    assert asked == [2, 1.25, 0.5]


def test_a_server_that_never_ends_its_answer_is_not_waited_for() -> None:
    left = threading.Event()

    def endless(path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        left.wait(120)
        return None

    assert discovered(endless, "m", seconds=0.05) is None
    left.set()


def test_a_models_name_cannot_lead_elsewhere() -> None:
    paths: list[str] = []

    def fetch(path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        paths.append(path)
        return None

    discovered(fetch, "a b?c#d/ü:8b")
    assert paths[0] == "/v1/models/a%20b%3Fc%23d/%C3%BC:8b"
