"""The checker of the wire form sees each kind of problem, and nothing where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.checker import problems


def text(words: str = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def call(name: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "sh", "input": {}, **fields}


def result(name: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, **fields}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def model(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "u"}}


@pytest.mark.parametrize(
    "messages",
    [
        [user(text())],
        [user(text()), model(THOUGHT, call(), call("c2")), user(result("c2"), result(content=[text(), IMAGE]), text())],
        [user(text()), model(SEARCH, FOUND, text()), user(text())],
        [user(text()), {"role": "system", "content": [text()]}, model(text()), user(IMAGE)],
    ],
)
def test_what_the_api_takes_has_no_problem(messages: Any) -> None:
    assert problems(messages) == []


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ([{"role": "user", "content": "x"}], "not a message"),
        ([user({"type": 5})], "not a message"),
        ([{"role": "tool", "content": []}], "not a message"),
        ([model(text()), user(text())], "first message must be the user's"),
        ([user(text()), model(text())], "prefill"),
        ([user(text()), user(text())], "alternate"),
        ([user()], "content is empty"),
        ([user(text(" \n"))], "non-empty"),
        ([user(text(citations=[{}]))], "citations"),
        ([user(text()), model(call()), user(text())], "without tool_result"),
        ([user(text()), model(call()), user(text()), model(text()), user(result())], "without tool_result"),
        ([user(text()), model(call())], "at the end"),
        ([user(result())], "unexpected tool_use_id"),
        ([user(text()), model(call()), user(result(), result())], "single result"),
        ([user(text()), model(call()), user(text(), result())], "do not lead"),
        ([user(text()), model(call(), call()), user(result())], "unique"),
        ([user(text()), model(call("c~1")), user(result("c~1"))], "does not match"),
        ([user(text()), model(call("")), user(result(""))], "does not match"),
        ([user(text()), model(call(input=[])), user(result())], "no object"),
        ([user(call())], "only for the assistant"),
        ([user(THOUGHT)], "only for the assistant"),
        ([user(text()), model(result()), user(text())], "only for the user"),
        ([user(text()), model({"type": "document", "source": {}}), user(text())], "no document"),
        ([user(text()), model(call()), user(result(is_error=True))], "cannot be empty if is_error"),
        ([user(text()), model(call()), user(result(content="x"))], "no list"),
        ([user(text()), model(call()), user(result(content=[text("")]))], "non-empty"),
        ([user(text()), model(call()), user(result(content=[call()]))], "in a result"),
        ([user(text()), model(SEARCH), user(text())], "without a result"),
        ([user(text()), model(FOUND, SEARCH), user(text())], "unexpected tool_use_id"),
        ([user(text()), model(SEARCH), user(text()), model(FOUND), user(text())], "unexpected tool_use_id"),
        ([user(text()), model(SEARCH, FOUND, SEARCH, FOUND), user(text())], "id of its own"),
        ([user({"type": "image"})], "without a source"),
    ],
)
def test_what_the_api_refuses_is_seen(messages: Any, reason: str) -> None:
    assert any(reason in problem for problem in problems(messages))
