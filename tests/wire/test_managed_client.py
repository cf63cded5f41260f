"""The SDKs with a client of ours that manages prompts: they get one answer of however many the model gave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import pytest

import ctxvc
from ctxvc.wire import recorder
from ctxvc.wire.exchange import Answered, Managed, Requested
from tests.forms.answers import MORE, TEXT, Answer, call
from tests.wire.raw import OPEN, Recording, Step, Upstream
from tests.wire.test_managed_proxy import (
    AGAIN,
    BREAKS,
    FIRST,
    MANAGED,
    SECOND,
    answers_in_turn,
    body_of,
    once,
    response,
    tools,
)

FORM = "anthropic-messages"
PROMPT: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
each_kind = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def blocking(url: str, *, stream: bool) -> Any:
    with ctxvc.http_client(verify=False) as http:
        client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, http_client=http)
        if not stream:
            return client.messages.create(**PROMPT)
        with client.messages.stream(**PROMPT) as events:
            return events.get_final_message()


def asynchronous(url: str, *, stream: bool) -> Any:
    async def message() -> Any:
        async with ctxvc.async_http_client(verify=False) as http:
            client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0, http_client=http)
            if not stream:
                return await client.messages.create(**PROMPT)
            async with client.messages.stream(**PROMPT) as events:
                return await events.get_final_message()

    return asyncio.run(message())


each_client = pytest.mark.parametrize("message", [blocking, asynchronous])
Message = Callable[..., Any]


@pytest.fixture
def manage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recording]:
    def recording(
        requests: Callable[[Requested], Managed] = tools, answers: Callable[[Answered], Managed] = once
    ) -> Recording:
        kept = Recording(requests, answers)
        monkeypatch.setattr(recorder, "open_recorder", lambda *_, **__: kept)
        return kept

    return recording


def encoded(answer: Answer, *, stream: bool) -> bytes:
    return response(answer.stream(FORM) if stream else answer.body(FORM), stream=stream)


def address(upstream: Upstream) -> str:
    return f"http://127.0.0.1:{upstream.port}"


@each_client
@each_kind
def test_answers_with_calls_of_ours_are_one(
    message: Message, stream: bool, upstream: Upstream, manage: Callable[..., Recording]
) -> None:
    recording = manage()
    upstream.answers = answers_in_turn(*([encoded(one, stream=stream), OPEN] for one in (FIRST, SECOND)))
    value = message(address(upstream), stream=stream).to_dict()

    assert [block["type"] for block in value["content"]] == ["text", "text", "tool_use"]
    assert (value["id"], value["stop_reason"]) == ("answer-1", "tool_use")
    assert value["usage"]["output_tokens"] == 40
    assert [body_of(request) for request in upstream.requests] == [MANAGED, AGAIN]
    assert all(b": identity" in request and b": Bearer k" in request for request in upstream.requests)
    (exchange,) = recording.exchanges
    assert exchange.whole and b"call_read" in exchange.answer and b"call_search" not in exchange.answer
    assert b'"Hi"' in exchange.body and exchange.number == recording.requested[0].number
    assert [one.number for one in recording.answered] == [exchange.number] * 2


@each_client
@pytest.mark.parametrize("says", [Managed(body=MANAGED), Managed(), OSError("no store")], ids=["body", "", "fails"])
def test_without_tools_an_answer_is_the_models(
    message: Message, says: Managed | Exception, upstream: Upstream, manage: Callable[..., Recording]
) -> None:
    def requests(_requested: Requested) -> Managed:
        if isinstance(says, Exception):
            raise says
        return says

    recording = manage(requests)
    upstream.steps = [encoded(FIRST, stream=True), OPEN]
    value = message(address(upstream), stream=True).to_dict()

    assert [block["type"] for block in value["content"]] == ["text", "tool_use"]
    is_managed = isinstance(says, Managed) and says.body
    assert (body_of(upstream.requests[0]) == MANAGED) == bool(is_managed)
    assert b"identity" not in upstream.requests[0]
    assert [exchange.answer for exchange in recording.exchanges] == [FIRST.stream(FORM)]
    assert not recording.answered


@each_client
@each_kind
@pytest.mark.parametrize("name", BREAKS)
def test_a_continuation_that_breaks_is_an_error(
    name: str, message: Message, stream: bool, upstream: Upstream, manage: Callable[..., Recording]
) -> None:
    recording = manage()
    upstream.answers = answers_in_turn(
        [encoded(FIRST, stream=stream), OPEN], BREAKS[name](encoded(SECOND, stream=stream))
    )
    with pytest.raises(anthropic.APIStatusError, match="broke off") as raised:
        message(address(upstream), stream=stream)

    assert raised.value.status_code == (200 if stream else 502)
    assert [exchange.whole for exchange in recording.exchanges] == [False]


@each_client
@each_kind
def test_a_recorder_that_fails_behind_an_answer_is_no_end(
    message: Message, stream: bool, upstream: Upstream, manage: Callable[..., Recording]
) -> None:
    def fails(_answered: Answered) -> Managed:
        raise OSError("no store")

    recording = manage(tools, fails)
    upstream.answers = answers_in_turn(*([encoded(one, stream=stream), OPEN] for one in (FIRST, SECOND)))
    if stream:
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            message(address(upstream), stream=stream)
    else:
        value = message(address(upstream), stream=stream).to_dict()
        assert value["id"] == "answer-2"
        assert b'"Hi"' in body_of(upstream.requests[1]) and b"identity" not in upstream.requests[1]
    assert [exchange.whole for exchange in recording.exchanges] == [not stream]


@each_client
def test_an_error_of_the_upstream_passes(
    message: Message, upstream: Upstream, manage: Callable[..., Recording]
) -> None:
    recording = manage()
    refusal: list[Step] = [response(b"{}", "Retry-After: 7", status="429 Too Many Requests"), OPEN]
    upstream.steps = refusal
    with pytest.raises(anthropic.RateLimitError) as raised:
        message(address(upstream), stream=False)

    assert raised.value.response.headers["retry-after"] == "7"
    assert [exchange.status for exchange in recording.exchanges] == [429]


def test_a_stream_that_is_left_is_recorded_as_broken_off(upstream: Upstream, manage: Callable[..., Recording]) -> None:
    recording = manage()
    data = encoded(Answer([TEXT, MORE, call("read")]), stream=True)
    upstream.steps = [data[: len(data) // 2], OPEN]
    with ctxvc.http_client(timeout=20) as client:
        with client.stream("POST", f"{address(upstream)}/v1/messages", json={}) as streaming:
            assert b"message_start" in next(streaming.iter_raw())

    assert [exchange.whole for exchange in recording.exchanges] == [False]


def test_a_persons_hooks_see_one_answer(upstream: Upstream, manage: Callable[..., Recording]) -> None:
    """Also those that read it."""
    manage()
    upstream.answers = answers_in_turn(*([encoded(one, stream=True), OPEN] for one in (FIRST, SECOND)))
    bodies: list[bytes] = []

    def seen(answer: httpx2.Response) -> None:
        bodies.append(answer.read())

    with ctxvc.http_client(event_hooks={"response": [seen]}) as client:
        answer = client.post(f"{address(upstream)}/v1/messages", json={})

    assert answer.content in bodies and b"call_read" in answer.content and b"call_search" not in answer.content
