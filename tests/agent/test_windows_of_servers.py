"""The window is asked from the server, each kind in its own place, for five seconds in all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import anthropic
import pytest

from ctxvc.agent.gateway import upstreams
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.provider import Anthropic
from ctxvc.agent.windows import Window, discovered

from .servers import Answer, Loopback, serving

MODEL = "local-coder"
PLACES: list[tuple[str, dict[str, object], Window | None]] = [
    (
        "Messages API",
        {f"/v1/models/{MODEL}": {"id": MODEL, "max_input_tokens": 200_000}},
        Window(200_000, f"/v1/models/{MODEL}"),
    ),
    (
        "llama.cpp",
        {
            "/props": {"default_generation_settings": {"n_ctx": 8_192}, "total_slots": 1},
            "/v1/models": {"data": [{"id": "m.gguf", "meta": {"n_ctx_train": 131_072}}]},
        },
        Window(8_192, "/props"),
    ),
    (
        "llama.cpp behind a proxy",
        {"/v1/models": {"data": [{"id": "m.gguf", "meta": {"n_ctx": 8_192, "n_ctx_train": 131_072}}]}},
        Window(8_192, "/v1/models"),
    ),
    (
        "vLLM",
        {"/v1/models": {"data": [{"id": "other", "max_model_len": 4_096}, {"id": MODEL, "max_model_len": 32_768}]}},
        Window(32_768, "/v1/models"),
    ),
    (
        "Ollama, loaded",
        {
            "/api/ps": {"models": [{"name": f"{MODEL}:latest", "context_length": 16_384}]},
            "/api/show": {"model_info": {"llama.context_length": 131_072}},
        },
        Window(16_384, "/api/ps"),
    ),
    (
        "Ollama, set",
        {
            "/api/ps": {"models": []},
            "/api/show": {"parameters": "temperature 0.7\nnum_ctx   24576\n", "model_info": {}},
        },
        Window(24_576, "/api/show"),
    ),
    (
        "Ollama, not set",
        {"/api/ps": {"models": []}, "/api/show": {"model_info": {"llama.context_length": 131_072}}},
        Window(4_096, "/api/show", certain=False),
    ),
    (
        "LM Studio",
        {
            "/api/v0/models": {"data": [{"id": MODEL, "max_context_length": 131_072, "loaded_context_length": 4_096}]},
            "/v1/models": {"data": [{"id": MODEL}]},
        },
        Window(4_096, "/api/v0/models"),
    ),
    (
        "LiteLLM",
        {"/model/info": {"data": [{"model_name": MODEL, "model_info": {"max_input_tokens": 8_192}}]}},
        Window(8_192, "/model/info"),
    ),
    (
        "OpenRouter",
        {"/v1/models": {"data": [{"id": "x"}, {"id": MODEL, "context_length": 65_536}]}},
        Window(65_536, "/v1/models"),
    ),
    ("one that does not say", {"/v1/models": {"data": [{"id": MODEL, "object": "model"}]}}, None),
    (
        "one with wrong types",
        {
            f"/v1/models/{MODEL}": [1],
            "/props": {"default_generation_settings": 7},
            "/api/ps": {"models": {"a": 1}},
            "/api/show": "x",
            "/v1/models": {"data": [{"id": MODEL, "max_model_len": "8192", "context_length": True, "n_ctx": 7}]},
        },
        None,
    ),
]


#: LiteLLM in front of other servers of this machine: what it says, what they say, and which window that is.
Places = dict[str, object]
BEHIND: list[tuple[str, Places, list[Places], int]] = [
    ("one that LiteLLM knows nothing of", {}, [{"/props": {"default_generation_settings": {"n_ctx": 8_192}}}], 8_192),
    (
        "one of which LiteLLM says too much",
        {"max_input_tokens": 131_072},
        [{"/v1/models": {"data": [{"id": "own-name", "max_model_len": 16_384}]}}],
        16_384,
    ),
    (
        "one that may have more than a person allows it in LiteLLM",
        {"max_input_tokens": 8_192},
        [{"/v1/models": {"data": [{"id": "own-name", "max_model_len": 16_384}]}}],
        8_192,
    ),
    (
        "two, of which the smaller may be the one that gets the call",
        {},
        [
            {"/v1/models": {"data": [{"id": "x"}, {"id": "own-name", "max_model_len": 32_768}]}},
            {"/v1/models": {"data": [{"id": "x"}, {"id": "own-name", "max_model_len": 12_288}]}},
        ],
        12_288,
    ),
    ("one that does not say either", {}, [{}], 0),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


def json_answer(value: object) -> Answer:
    return Answer(200, "application/json", json.dumps(value).encode())


@pytest.mark.parametrize(("name", "places", "window"), PLACES, ids=[name for name, _, _ in PLACES])
def test_each_kind_of_server_is_asked_in_its_own_place(
    server: Loopback, name: str, places: Mapping[str, object], window: Window | None
) -> None:
    server.places.clear()
    server.asked.clear()
    for path, answer in places.items():
        server.places[path] = json_answer(answer)
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=2) as client:
        assert Anthropic(client).window(MODEL) == window, name
    paths = [path for path, _ in server.asked]
    assert len(paths) == len(set(paths)), "each place once"
    assert ("/api/show", {"model": MODEL}) in server.asked or window


@pytest.mark.parametrize(("name", "info", "behind", "tokens"), BEHIND, ids=[name for name, *_ in BEHIND])
def test_servers_behind_a_gateway_of_this_machine_are_asked(
    server: Loopback, name: str, info: Mapping[str, object], behind: Sequence[Places], tokens: int
) -> None:
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
        assert (window.tokens if window else 0) == tokens, name
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


def test_a_server_that_takes_its_time_is_not_waited_for() -> None:
    asked: list[tuple[str, float]] = []

    def slow(path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        asked.append((path, timeout))
        time.sleep(0.15)
        return None

    start = time.monotonic()
    assert discovered(slow, "m", seconds=0.2) is None
    assert time.monotonic() - start < 0.3
    assert [timeout for _, timeout in asked] == sorted((timeout for _, timeout in asked), reverse=True)
    assert max(timeout for _, timeout in asked) <= 0.2
    assert len(asked) < 4


def test_a_models_name_cannot_lead_elsewhere() -> None:
    paths: list[str] = []

    def fetch(path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        paths.append(path)
        return None

    discovered(fetch, "a b?c#d/ü:8b")
    assert paths[0] == "/v1/models/a%20b%3Fc%23d/%C3%BC:8b"
