"""The providers' own Python clients through the proxy: in all the ways in which they can be asked."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import ctxvc
from tests.hosts.wire import play
from tests.hosts.wire.agents import PNG, Place
from tests.hosts.wire.model import Script, call, say, text
from tests.hosts.wire.tap import Passed, tapped
from tests.hosts.wire.upstream import serve

_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_TWO = [text("Two at once."), call("read", path="a.py"), call("read", path="b.py")]


class Anthropic:
    """A conversation by the Messages API."""

    tools = ({"name": "read", "description": "Reads a file.", "input_schema": _SCHEMA},)

    def __init__(self, url: str, http_client: Any, *, is_async: bool) -> None:
        made: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        client = made(api_key="not-a-key", base_url=url, max_retries=0, http_client=http_client)
        self.client, self.resource = client, client.messages

    @property
    def first(self) -> list[dict[str, Any]]:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        return [{"role": "user", "content": [{"type": "image", "source": source}, text("What is this?")]}]

    def given(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "claude-opus-5", "max_tokens": 1000, "tools": self.tools, "messages": messages}

    def after(self, messages: list[dict[str, Any]], reply: dict[str, Any]) -> list[dict[str, Any]]:
        used = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": name, "content": "print(1)"} for name in used]
        content = [
            {key: block[key] for key in ("type", "text", "id", "name", "input") if key in block}
            for block in reply["content"]
        ]
        return [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": results}]


class Chat:
    """A conversation by Chat Completions."""

    tools = ({"type": "function", "function": {"name": "read", "parameters": _SCHEMA}},)

    def __init__(self, url: str, http_client: Any, *, is_async: bool) -> None:
        made: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
        client = made(api_key="not-a-key", base_url=f"{url}/v1", max_retries=0, http_client=http_client)
        self.client, self.resource = client, client.chat.completions

    @property
    def first(self) -> list[dict[str, Any]]:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        return [{"role": "user", "content": [image, text("What is this?")]}]

    def given(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "gpt-4.1", "tools": self.tools, "messages": messages}

    def after(self, messages: list[dict[str, Any]], reply: dict[str, Any]) -> list[dict[str, Any]]:
        message = reply["choices"][0]["message"]
        calls = message["tool_calls"]
        results = [{"role": "tool", "tool_call_id": one["id"], "content": "print(1)"} for one in calls]
        return [*messages, {"role": "assistant", "content": message["content"], "tool_calls": calls}, *results]


class Responses(Chat):
    """A conversation by the Responses API, whole each time."""

    tools = ({"type": "function", "name": "read", "parameters": _SCHEMA, "strict": False},)

    def __init__(self, url: str, http_client: Any, *, is_async: bool) -> None:
        super().__init__(url, http_client, is_async=is_async)
        self.resource = self.client.responses

    @property
    def first(self) -> list[dict[str, Any]]:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
        return [{"role": "user", "content": [image, {"type": "input_text", "text": "What is this?"}]}]

    def given(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "gpt-5.1", "store": False, "tools": self.tools, "input": messages}

    def after(self, messages: list[dict[str, Any]], reply: dict[str, Any]) -> list[dict[str, Any]]:
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": one["call_id"], "output": "print(1)"} for one in calls]
        return [*messages, *reply["output"], *results]


async def _now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _ask(sdk: Any, given: dict[str, Any], way: str) -> dict[str, Any]:
    """The reply as the client has it: from a whole answer, a raw one, or a stream's events."""
    if way == "raw":
        raw = await _now(sdk.resource.with_raw_response.create(**given))
        assert raw.http_response.content
        return _plain(await _now(raw.parse()))
    if way == "whole":
        return _plain(await _now(sdk.resource.create(**given)))
    if isinstance(sdk, Chat) and type(sdk) is Chat:
        given = {**given, "stream_options": {"include_usage": True}}
    named = sdk.resource.stream(**given)
    if hasattr(named, "__aenter__"):
        async with named as stream:
            async for _ in stream:
                pass
            return _plain(await _final(stream))
    with named as stream:
        for _ in stream:
            pass
        return _plain(await _final(stream))


async def _final(stream: Any) -> Any:
    name = next(
        one for one in ("get_final_message", "get_final_completion", "get_final_response") if hasattr(stream, one)
    )
    return await _now(getattr(stream, name)())


def _plain(reply: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(reply.model_dump_json(exclude_none=True, warnings=False))
    return plain


async def _talk(sdk: Any, way: str) -> list[dict[str, Any]]:
    """Two turns of a conversation; its replies."""
    first = await _ask(sdk, sdk.given(sdk.first), way)
    second = await _ask(sdk, sdk.given(sdk.after(sdk.first, first)), way)
    await _now(sdk.client.close())
    return [first, second]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.make()
    yield made


@pytest.mark.parametrize("way", ["whole", "raw", "stream"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("sdk", [Anthropic, Chat, Responses])
def test_a_client_gets_the_same_replies_through_the_proxy(sdk: Any, is_async: bool, way: str, place: Place) -> None:
    with _upstream() as url, tapped(url) as tap:
        straight = asyncio.run(_talk(sdk(tap.url, None, is_async=is_async), way))
    with _upstream() as url, play.between_taps(place, url) as (address, near, far):
        assert asyncio.run(_talk(sdk(address, None, is_async=is_async), way)) == straight
    play.check_unchanged(near, far)
    assert [one.body for one in far.passed()] == [one.body for one in tap.passed()]


@pytest.mark.parametrize("way", ["whole", "raw", "stream"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("sdk", [Anthropic, Chat, Responses])
def test_a_client_that_records_in_its_process_sends_and_gets_the_same(
    sdk: Any, is_async: bool, way: str, place: Place
) -> None:
    with _upstream() as url, tapped(url) as straight:
        replies = asyncio.run(_talk(sdk(straight.url, None, is_async=is_async), way))
    made = ctxvc.async_http_client if is_async else ctxvc.http_client
    with _upstream() as url, tapped(url) as tap:
        recording = made(store=place.project / ".ctxvc")
        assert asyncio.run(_talk(sdk(tap.url, recording, is_async=is_async), way)) == replies
    assert list(map(_but_its_host, tap.passed())) == list(map(_but_its_host, straight.passed()))


@contextmanager
def _upstream() -> Iterator[str]:
    """The address of an upstream that says two things, both of which were asked for in the end."""
    script = Script([_TWO, say("It prints.")])
    with serve(script, compressed=True) as upstream:
        yield upstream.url
    assert not script.main
    assert not script.beyond


def _but_its_host(passed: Passed) -> tuple[object, ...]:
    headers = [item for item in passed.headers if item[0] != "host"]
    return passed.method, passed.target, headers, passed.body, passed.answer
