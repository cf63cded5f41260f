"""The SDKs themselves, with a client of ours: they see what they see without it, and what passes is recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import ctxvc
from ctxvc.wire import recorder
from tests import messages_api, openai_api
from tests.wire.raw import OPEN, Recording, Upstream
from tests.wire.sending import reply

PROMPT: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hi"}],
}
CHAT: dict[str, Any] = {"model": "local-model", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    kept = Recording()
    monkeypatch.setattr(recorder, "open_recorder", lambda *_, **__: kept)
    return kept


def whole(client: anthropic.Anthropic) -> object:
    return client.messages.create(**PROMPT).to_dict()


def streamed(client: anthropic.Anthropic) -> object:
    with client.messages.stream(**PROMPT) as stream:
        return [event.to_dict() for event in stream]


def raw(client: anthropic.Anthropic) -> object:
    response = client.messages.with_raw_response.create(**PROMPT)
    return response.status_code, response.headers["content-type"], response.parse().to_dict()


def raw_stream(client: anthropic.Anthropic) -> object:
    with client.messages.with_streaming_response.create(**PROMPT, stream=True) as response:
        return b"".join(response.iter_bytes())


@pytest.mark.parametrize("use", [whole, streamed, raw, raw_stream])
def test_anthropic_sees_what_it_sees_without(use: Callable[[Any], object], recording: Recording) -> None:
    seen = []
    for options in ({}, {"http_client": ctxvc.http_client()}):
        with messages_api.serve(messages_api.script("Hello")) as api:
            with anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0, **options) as client:
                seen.append(use(client))
            calls = api.calls

    assert seen[0] == seen[1]
    (exchange,) = recording.exchanges
    assert (exchange.upstream, exchange.path, exchange.status) == ("anthropic", "/v1/messages", 200)
    assert json.loads(exchange.body) == calls[0].body
    assert exchange.whole and b"Hello" in exchange.answer
    assert exchange.stream == (use in (streamed, raw_stream))
    assert "x-api-key" not in exchange.headers and exchange.headers["anthropic-version"]


def test_its_asynchronous_client_does_too(recording: Recording) -> None:
    async def ask(url: str) -> list[object]:
        async with anthropic.AsyncAnthropic(
            api_key="test", base_url=url, max_retries=0, http_client=ctxvc.async_http_client()
        ) as client:
            first = (await client.messages.create(**PROMPT)).to_dict()
            async with client.messages.stream(**PROMPT) as stream:
                return [first, (await stream.get_final_message()).to_dict()]

    with messages_api.serve(messages_api.script("Hello", "again")) as api:
        messages = asyncio.run(ask(api.url))

    assert [message["content"][0]["text"] for message in messages] == ["Hello", "again"]  # type: ignore[index]
    assert [(one.stream, one.whole) for one in recording.exchanges] == [(False, True), (True, True)]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_openais_does_too(path: str, recording: Recording) -> None:
    with openai_api.serve(messages_api.script("Hello", "again")) as api:
        with openai.OpenAI(api_key="test", base_url=api.url, max_retries=0, http_client=ctxvc.http_client()) as client:
            if path.endswith("responses"):
                client.responses.create(model="local-model", input="Hi")
                events = list(client.responses.create(model="local-model", input="Hi", stream=True))
            else:
                client.chat.completions.create(**CHAT)
                events = list(client.chat.completions.create(**CHAT, stream=True))

    assert events
    assert [json.loads(one.body) for one in recording.exchanges] == api.bodies
    assert [(one.upstream, one.path, one.stream, one.whole) for one in recording.exchanges] == [
        ("openai", path, False, True),
        ("openai", path, True, True),
    ]
    assert "authorization" not in recording.exchanges[0].headers


def test_chunks_come_as_they_come_and_stay_compressed(upstream: Upstream, recording: Recording) -> None:
    """And an answer that is left before its end is recorded as broken off."""
    upstream.steps = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", OPEN]
    client = ctxvc.http_client(timeout=20)
    with client.stream("POST", f"http://127.0.0.1:{upstream.port}/v1/messages", json={}) as response:
        assert next(response.iter_raw()) == b"ab"
    client.close()

    assert [(one.answer, one.whole) for one in recording.exchanges] == [(b"ab", False)]


def test_a_persons_own_hooks_and_options_stay(upstream: Upstream, recording: Recording) -> None:
    upstream.steps = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", OPEN]
    seen: list[object] = []
    hooks = {"request": [lambda request: request.headers.update({"X-Own": "1"})], "response": [seen.append]}
    with ctxvc.http_client(event_hooks=hooks, headers={"X-More": "2"}, base_url="http://127.0.0.1") as client:
        client.post(f"http://127.0.0.1:{upstream.port}/v1/messages", json={})
        client.post(f"http://127.0.0.1:{upstream.port}/v1/files", content=iter([b"abc"]))
        client.get(f"http://127.0.0.1:{upstream.port}/v1/messages")

    assert b"X-Own: 1" in upstream.requests[0] and b"X-More: 2" in upstream.requests[0]
    assert len(seen) == 3 and len(recording.exchanges) == 1
    assert isinstance(client, httpx2.Client) and client.follow_redirects


@pytest.mark.parametrize("recording", ["off", "on"])
def test_recording_that_is_off_is_off_and_said(
    recording: str,
    upstream: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CTXVC_RECORDING", recording)
    answer = reply("Hello")
    upstream.steps = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer), OPEN]
    with ctxvc.http_client(store=tmp_path / "store") as client:
        assert client.post(f"http://127.0.0.1:{upstream.port}/v1/messages", json=PROMPT).content == answer

    lines = [record.getMessage() for record in caplog.records if record.name == "ctxvc"]
    assert lines == (["CTXVC_RECORDING is off: nothing is recorded"] if recording == "off" else [])
    assert (tmp_path / "store").exists() == (recording == "on")


def test_what_cannot_be_recorded_is_sent_and_told_once(
    upstream: Upstream, recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.steps = [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Encoding: novel\r\n\r\na", OPEN]
    with ctxvc.http_client() as client:
        for _ in range(2):
            with client.stream("POST", f"http://127.0.0.1:{upstream.port}/v1/messages", json={}) as response:
                assert b"".join(response.iter_raw()) == b"a"

    assert [record.getMessage() for record in caplog.records if record.name == "ctxvc"] == [
        "not recorded, but sent: the body has an encoding that cannot be read"
    ]
