"""Answers that were merged, read by the SDKs themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from ctxvc.forms.merged import merged
from tests.forms.answers import OURS, TEXT, Answer
from tests.forms.test_merged import ANSWERS, client_has, encoded, expected

URL = "http://127.0.0.1"
PROMPT: Any = {"model": "a-model", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
CHAT: Any = {"model": "a-model", "messages": [{"role": "user", "content": "Hi"}]}
INPUT: Any = {"model": "a-model", "input": "Hi"}


def messages(http: httpx2.Client, *, stream: bool) -> Any:
    client = anthropic.Anthropic(api_key="test", base_url=URL, max_retries=0, http_client=http)
    if not stream:
        return client.messages.create(**PROMPT)
    with client.messages.stream(**PROMPT) as events:
        return events.get_final_message()


def chat(http: httpx2.Client, *, stream: bool) -> Any:
    client = openai.OpenAI(api_key="test", base_url=URL, max_retries=0, http_client=http)
    if not stream:
        return client.chat.completions.create(**CHAT)
    with client.chat.completions.stream(**CHAT) as events:
        return events.get_final_completion()


def responses(http: httpx2.Client, *, stream: bool) -> Any:
    client = openai.OpenAI(api_key="test", base_url=URL, max_retries=0, http_client=http)
    if not stream:
        return client.responses.create(**INPUT)
    with client.responses.stream(**INPUT) as events:
        return events.get_final_response()


SDKS: dict[str, Callable[..., Any]] = {
    "anthropic-messages": messages,
    "openai-chat": chat,
    "openai-responses": responses,
}
each_sdk = pytest.mark.parametrize("form", SDKS)


def read(form: str, data: bytes, *, stream: bool) -> Any:
    """What the form's SDK makes of an answer."""
    headers = {"content-type": "text/event-stream" if stream else "application/json"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=data))
    with httpx2.Client(transport=transport) as http:
        return SDKS[form](http, stream=stream)


def plain(value: Any) -> Any:
    """Without ids of the Responses API's items, which have each answer's number in them; no content is an empty one."""
    return re.sub(r"\b(rs|msg|fc|gA)_?[0-9]+_[0-9]+", r"\1", value.to_json()).replace(
        '"content": null', '"content": ""'
    )


@each_sdk
@pytest.mark.parametrize(
    ("name", "stream"), [*((name, True) for name in ANSWERS), *((name, False) for name in list(ANSWERS)[::3])]
)
def test_sdks_read_it_as_one_answer(name: str, form: str, stream: bool) -> None:
    as_one = read(form, client_has(name, form, stream=stream)[0], stream=stream)

    assert plain(as_one) == plain(read(form, encoded(expected(name), form, stream=stream), stream=stream))
    assert not any(tool in as_one.to_json() for tool in OURS)


@each_sdk
def test_sdks_raise_where_an_answer_broke_off(form: str) -> None:
    merging = merged(form, stream=True, ours=OURS)
    events = Answer([TEXT]).events(form)
    data = b"".join(map(merging.feed, events[:3])) + merging.broke()

    with pytest.raises((anthropic.APIStatusError, openai.APIError, RuntimeError)) as raised:
        read(form, data, stream=True)
    assert "broke off" in str(raised.value) or form == "openai-responses"
