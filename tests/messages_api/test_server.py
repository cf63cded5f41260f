"""The server answers the provider's own client as the API would, in one piece and in a stream, well and badly."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection
from inspect import signature
from typing import Any

import anthropic
import pytest
from anthropic import beta_tool

from tests.messages_api import MODELS, Judge, MessagesApi, call, catalogue, script, serve, text, thought
from tests.messages_api.samples import MODEL, TOOL, request, result, user, words
from tests.messages_api.script import Refusal, ScriptEnded, endless, overloaded, rate_limited, too_long
from tests.messages_api.wire import BINDING_BETA, Block

HELLO: Block = {"model": MODEL, "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}
SHOWN: Block = {"type": "adaptive", "display": "summarized"}


def connected(api: MessagesApi, max_retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=max_retries)


def tiny(window: int) -> Judge:
    """An account with a model of so small a window."""
    return Judge(models=catalogue([replace(MODELS[MODEL], window=window)]))


def test_the_client_gets_what_the_script_says() -> None:
    with serve(script("Hi.")) as api, connected(api) as client:
        message = client.messages.create(**HELLO)

    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hi."}]
    assert (message.stop_reason, message.model, message.role) == ("end_turn", MODEL, "assistant")
    assert message.usage.input_tokens > 0 < message.usage.output_tokens
    assert api.bodies == [HELLO]
    assert api.calls[0].headers["authorization"] == "Bearer test"
    assert api.calls[0].answer["id"] == message.id


def test_a_stream_makes_the_same_message_as_one_piece() -> None:
    said = [
        thought("First a look."),
        text("One moment. " * 9),
        call("sh", command="ls -l", deep={"a": [1.5, None]}),
        call("sh"),
    ]

    def answered(client: anthropic.Anthropic, *, as_stream: bool) -> Block:
        body = HELLO | {"tools": [TOOL], "thinking": SHOWN}
        if not as_stream:
            return client.messages.create(**body).to_dict()
        with client.messages.stream(**body) as stream:
            assert "".join(stream.text_stream) == "One moment. " * 9
            return stream.get_final_message().to_dict()

    messages = []
    for as_stream in (False, True):
        with serve(script(said)) as api, connected(api) as client:
            messages.append(answered(client, as_stream=as_stream))
    whole, streamed = messages

    assert whole["stop_reason"] == streamed["stop_reason"] == "tool_use"
    assert whole["content"] == streamed["content"]
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole["usage"] == streamed["usage"]


def test_the_events_of_a_stream_come_in_the_order_of_the_api() -> None:
    with serve(script([thought("hm"), text("Hi.")])) as api, connected(api) as client:
        events: list[Block] = [event.to_dict() for event in client.messages.create(**HELLO, stream=True)]

    assert [event["type"] for event in events if event["type"] != "ping"] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    assert events[-2]["usage"]["output_tokens"] > events[0]["message"]["usage"]["output_tokens"]


def loop(client: anthropic.Anthropic, steps: int) -> tuple[list[Any], list[anthropic.types.Message]]:
    """The messages and replies of so many calls of a tool."""
    messages: list[Any] = [user(words("Go on."))]
    body: Any = {"model": MODEL, "max_tokens": 500, "tools": [TOOL], "cache_control": {"type": "ephemeral"}}
    replies = []
    for _ in range(steps):
        reply: anthropic.types.Message = client.messages.create(messages=messages, **body)
        calls = [block.id for block in reply.content if block.type == "tool_use"]
        messages += [reply.to_param(), user(*[result(name, content="out " * 200) for name in calls])]
        replies.append(reply)
    return messages, replies


def test_an_edited_history_is_refused_also_by_counting_and_taken_with_drop_block() -> None:
    with serve(endless([[thought("hm"), call("sh")]])) as api, connected(api) as client:
        messages, _ = loop(client, 3)
        messages[2] = user(result(messages[2]["content"][0]["tool_use_id"], content="[archived]"))
        body: Any = {"model": MODEL, "messages": messages, "tools": [TOOL]}

        for ask in (client.messages.count_tokens, lambda **body: client.messages.create(max_tokens=5, **body)):
            with pytest.raises(anthropic.BadRequestError, match=r"messages\.3\.content\.0: Invalid `signature`"):
                ask(**body)
        reply = client.beta.messages.create(
            max_tokens=500,
            thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
            betas=[BINDING_BETA],
            **body,
        )

    assert reply.input_transformations is not None
    assert [entry.path for entry in reply.input_transformations] == ["messages.3.content.0", "messages.5.content.0"]


@pytest.mark.skipif(
    "thread" not in signature(anthropic.Anthropic(api_key="test").beta.messages.tool_runner).parameters,
    reason="this client's tool runner knows no threads",
)
def test_the_tool_runner_goes_its_own_way_only_without_a_thread() -> None:
    @beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    fields: Any = HELLO | {"tools": [add]}
    with serve(script([thought("hm"), call("add", a=1, b=2)], "3")) as api, connected(api) as client:
        with pytest.raises(anthropic.BadRequestError, match="thread: not played by this server"):
            client.beta.messages.tool_runner(**fields).until_done()
        last = client.beta.messages.tool_runner(**fields, thread=False).until_done()

    assert last.content[0].to_dict()["text"] == "3"


def test_counting_tells_what_the_prompt_then_costs_and_takes_nothing_from_the_script() -> None:
    with serve(script("Hi.")) as api, connected(api) as client:
        counted = client.messages.count_tokens(model=MODEL, messages=HELLO["messages"])
        message = client.messages.create(**HELLO)

    assert counted.input_tokens == message.usage.input_tokens
    assert [one.path for one in api.calls] == ["/v1/messages/count_tokens", "/v1/messages"]


def test_an_invalid_request_is_refused_in_the_form_of_the_api() -> None:
    with serve(script()) as api, connected(api) as client, pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**HELLO | {"messages": request(user(result()))["messages"]})

    assert refused.value.type == "invalid_request_error"
    assert "unexpected `tool_use_id` found in `tool_result` blocks" in str(refused.value)
    assert refused.value.request_id == api.calls[0].answer["request_id"]
    assert api.bodies == []


def test_a_prompt_that_does_not_fit_the_window_is_too_long() -> None:
    with serve(script(), judge=tiny(1000)) as api, connected(api) as client, pytest.raises(
        anthropic.BadRequestError, match=r"prompt is too long: \d{4} tokens > 1000 maximum"
    ):  # fmt: skip
        client.messages.create(**HELLO | {"system": "word " * 1000})


@pytest.mark.parametrize(("max_tokens", "reason"), [(50, "max_tokens"), (500, "model_context_window_exceeded")])
def test_a_reply_ends_where_max_tokens_or_the_window_does(max_tokens: int, reason: str) -> None:
    said = [text("word " * 1000), call("sh")]
    with serve(script(said), judge=tiny(300)) as api, connected(api) as client:
        message = client.messages.create(**HELLO | {"max_tokens": max_tokens})

    assert message.stop_reason == reason
    assert message.usage.output_tokens <= max_tokens
    assert [block.type for block in message.content] == ["text"]


def test_a_call_that_is_cut_comes_without_its_input() -> None:
    with serve(script([text("Now."), call("sh", command="x" * 900)])) as api, connected(api) as client:
        message = client.messages.create(**HELLO | {"max_tokens": 50})

    assert message.stop_reason == "max_tokens"
    assert message.content[1].to_dict()["input"] == {}


@pytest.mark.parametrize(
    ("refusal", "error", "kind"),
    [
        (rate_limited(7), anthropic.RateLimitError, "rate_limit_error"),
        (overloaded(), anthropic.OverloadedError, "overloaded_error"),
        (too_long(), anthropic.BadRequestError, "invalid_request_error"),
        (Refusal(500, "api_error", "Internal server error"), anthropic.InternalServerError, "api_error"),
    ],
)
def test_what_goes_wrong_on_purpose_reaches_the_client(
    refusal: Refusal, error: type[anthropic.APIStatusError], kind: str
) -> None:
    with serve(script(refusal)) as api, connected(api) as client, pytest.raises(error) as raised:
        client.messages.create(**HELLO)

    assert (raised.value.type, raised.value.status_code) == (kind, refusal.status)
    assert refusal.headers.items() <= dict(raised.value.response.headers).items()


def test_the_models_are_listed_with_their_windows() -> None:
    with serve(script()) as api, connected(api) as client:
        listed = {model.id: model for model in client.models.list()}
        one = client.models.retrieve("claude-haiku-4-5-20251001")
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("gpt")
        with pytest.raises(anthropic.NotFoundError, match="model: gpt"):
            client.messages.create(**HELLO | {"model": "gpt"})

    assert listed.keys() == MODELS.keys()
    assert (one.max_input_tokens, one.max_tokens, one.line) == (200_000, 64_000, "haiku")
    assert one.capabilities is not None
    assert one.capabilities.thinking.types.adaptive.supported is False


def test_a_script_that_is_at_its_end_is_told_to_the_client_and_to_the_test() -> None:
    with pytest.raises(ScriptEnded), serve(script()) as api, connected(api, max_retries=2) as client:
        with pytest.raises(anthropic.InternalServerError):
            client.messages.create(**HELLO)

    assert len(api.calls) == 1, "there is no use in coming back"


def test_a_fault_in_the_script_is_raised_where_the_server_is_left() -> None:
    def assistant(_: object) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), serve(assistant) as api, connected(api) as client:
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.create(**HELLO)


def raw(api: MessagesApi, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Block]:
    """The answer to a request that the client would not send."""
    connection = HTTPConnection(api.url.removeprefix("http://"))
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else {}
    finally:
        connection.close()


def test_the_older_version_with_its_own_key_header_is_served() -> None:
    body = json.dumps(HELLO | {"temperature": 1}).encode()
    with serve(script("Hi.")) as api:
        status, answer = raw(api, "POST", "/v1/messages?beta=true", body, x_api_key="k", anthropic_version="2023-06-01")

    assert (status, answer["type"]) == (200, "message")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "kind"),
    [
        ("GET", "/v1/nothing", b"", {"x_api_key": "k"}, 404, "not_found_error"),
        ("POST", "/v1/complete", b"{}", {"x_api_key": "k"}, 404, "not_found_error"),
        ("POST", "/v1/messages", b"{}", {}, 401, "authentication_error"),
        ("POST", "/v1/messages", b"{}", {"x_api_key": "k"}, 400, "invalid_request_error"),
        ("POST", "/v1/messages", b"{", {"x_api_key": "k"}, 400, "invalid_request_error"),
        ("POST", "/v1/messages", b"[]", {"x_api_key": "k"}, 400, "invalid_request_error"),
        ("POST", "/v1/messages", b'\xff{"', {"x_api_key": "k"}, 400, "invalid_request_error"),
        ("POST", "/v1/messages", b"", {"content_length": str(33 << 20)}, 413, "request_too_large"),
    ],
)
def test_what_is_no_request_is_refused(
    method: str, path: str, body: bytes, headers: dict[str, str], status: int, kind: str
) -> None:
    with serve(script()) as api:
        answered, answer = raw(api, method, path, body, **headers)

    assert (answered, answer["error"]["type"]) == (status, kind)


def test_a_connection_serves_again_unless_a_body_was_left_unread() -> None:
    with serve(script()) as api:
        connection = HTTPConnection(api.url.removeprefix("http://"))
        for length, status, closes in (("2", 401, False), (str(33 << 20), 413, True)):
            connection.request("POST", "/v1/messages", b"{}", {"content-length": length})
            response = connection.getresponse()
            response.read()

            assert (response.status, response.will_close) == (status, closes)
        connection.close()


def test_a_question_for_the_head_alone_gets_no_body() -> None:
    with serve(script()) as api:
        assert raw(api, "HEAD", "/") == (404, {})
