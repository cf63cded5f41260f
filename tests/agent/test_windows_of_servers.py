"""The window is asked from the server, each kind in its own place, for five seconds in all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import pytest

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


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


@pytest.mark.parametrize(("name", "places", "window"), PLACES, ids=[name for name, _, _ in PLACES])
def test_each_kind_of_server_is_asked_in_its_own_place(
    server: Loopback, name: str, places: Mapping[str, object], window: Window | None
) -> None:
    server.places.clear()
    server.asked.clear()
    for path, answer in places.items():
        server.places[path] = Answer(200, "application/json", json.dumps(answer).encode())
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=2) as client:
        assert Anthropic(client).window(MODEL) == window, name
    paths = [path for path, _ in server.asked]
    assert len(paths) == len(set(paths)), "each place once"
    assert ("/api/show", {"model": MODEL}) in server.asked or window


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
