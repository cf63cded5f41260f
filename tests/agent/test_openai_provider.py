"""`ctxvc run` and the adapter with the `openai` client, against a server of both APIs that judges what it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.agent.model import ModelFailed, TooLong
from ctxvc.agent.refusal import Fault
from ctxvc.cli.main import cli
from ctxvc.session.session import Session
from tests.messages_api.script import Refusal, Reply, call, endless, script, text, thought
from tests.openai_api import OpenAIApi, serve

pytest.importorskip("openai", reason="the extra `openai` is not installed")

from ctxvc.agent.provider import ChatCompletions, Responses

TOOL = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
CALL = {"model": "local-model", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
BOTH = pytest.mark.parametrize("kind", [ChatCompletions, Responses])
Kind = type[ChatCompletions] | type[Responses]


def made(kind: Kind, api: OpenAIApi) -> ChatCompletions | Responses:
    return kind(base_url=api.url, api_key="test", max_retries=0, sleep=lambda _: None)


def replied(kind: Kind, *scripted: Any, said: list[str] | None = None, **options: Any) -> Mapping[str, Any]:
    with serve(script(*scripted), **options) as api:
        server = made(kind, api)
        try:
            return server.reply(CALL, (said if said is not None else []).append)
        finally:
            server.close()


# --- a reply


@BOTH
@pytest.mark.parametrize("whole", [False, True])
def test_a_reply_is_a_message_whether_it_is_streamed_or_not(kind: Kind, whole: bool) -> None:
    texts: list[str] = []
    scripted = [thought("let me see"), text("reading both"), call("read", path="a"), call("read", path="b")]

    message = replied(kind, scripted, said=texts, whole=whole)

    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in message["content"][2:]] == [{"path": "a"}, {"path": "b"}]
    assert "".join(texts) == "reading both"
    assert message["stop_reason"] == "tool_use" and message["usage"]["input_tokens"] > 0


@BOTH
def test_arguments_that_are_no_json_stay_the_models_text(kind: Kind) -> None:
    message = replied(kind, [{"type": "tool_use", "name": "read", "input": '{"path": "a'}])

    assert message["content"][0]["input"] == '{"path": "a'


@BOTH
def test_a_reply_that_broke_off_is_asked_for_again(kind: Kind) -> None:
    message = replied(kind, Reply("never seen whole", cut_after=2), "all of it")

    assert message["content"] == [{"type": "text", "text": "all of it"}]


@pytest.mark.parametrize(("kind", "reason"), [(ChatCompletions, "length"), (Responses, "max_output_tokens")])
def test_a_reply_at_its_limit_says_so(kind: Kind, reason: str) -> None:
    assert replied(kind, Reply("half of", stop_reason=reason))["stop_reason"] == "max_tokens"


@BOTH
def test_a_prompt_that_is_too_long_is_told_with_the_window(kind: Kind) -> None:
    with pytest.raises(TooLong) as caught:
        replied(kind, window=20)

    assert caught.value.window == 0 and caught.value.tokens > 20  # no model takes fewer than 1,000


@BOTH
@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (Refusal(401, "invalid_request_error", "Incorrect API key provided"), "set OPENAI_API_KEY"),
        (Refusal(404, "invalid_request_error", "The model `x` does not exist"), ""),
        (Refusal(500, "server_error", "it is down"), ""),
    ],
)
def test_a_refusal_is_one_plain_line(kind: Kind, refusal: Refusal, hint: str) -> None:
    with pytest.raises(ModelFailed) as caught:
        replied(kind, refusal)

    assert refusal.message in str(caught.value) and "{" not in str(caught.value)
    assert hint in str(caught.value.advice)


@BOTH
def test_what_a_server_does_not_take_is_left_out_from_then_on(kind: Kind) -> None:
    option = "stream_options" if kind is ChatCompletions else "include"
    with serve(script("first", "second"), unknown=(option,)) as api:
        server = made(kind, api)
        server.reply(CALL, lambda _: None)
        server.reply(CALL, lambda _: None)
        server.close()

    assert len(api.bodies) == 2 and all(option not in body for body in api.bodies)


def test_the_limit_of_a_reply_has_the_name_that_the_server_takes() -> None:
    with serve(script("ok"), unknown=("max_tokens",)) as api:
        server = made(ChatCompletions, api)
        server.reply(CALL, lambda _: None)
        server.close()

    assert api.bodies[0]["max_completion_tokens"] == 100


@BOTH
def test_a_page_at_the_address_is_told_as_one(kind: Kind) -> None:
    answer = _of_body(kind, b"<html><title>Welcome</title></html>")

    assert isinstance(answer, Fault) and "Welcome" in answer.text and "this API" in str(answer.hint)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b'"x"', b"{}", b"\xff\xfe", b"data: {\n\n", b"data: 5\n\ndata: [DONE]\n\n"),
        *(
            b'{"choices": 5}',
            b'{"choices": [5]}',
            b'{"output": [5], "status": 5}',
            b'{"error": {"message": "it is down"}}',
        ),
        b'data: {"choices": [{"delta": {"content": "a", "tool_calls": [{"index": 0}]}, "finish_reason": "stop"}]}\n\n',
        b'data: {"choices": [{"delta": {"content": 5}, "finish_reason": 5}]}\n\n',
        *(b"event: error\ndata: {}\n\n", b"event: error\ndata: it is down\n\n"),
        b'event: error\ndata: {"message": "it is down"}\n\n',
        b'data: {"type": "response.failed", "response": {"error": {"message": "it is down"}}}\n\n',
        b'data: {"type": "response.completed", "response": {"output": 5}}\n\n',
        b'data: {"type": "message_start", "message": {}}\n\n',
    ],
)
@BOTH
def test_whatever_answers_is_a_fault_in_one_line(kind: Kind, body: bytes) -> None:
    answer = _of_body(kind, body)

    assert isinstance(answer, Fault) and answer.text and "\n" not in answer.text and "{" not in answer.text
    assert ("it is down" in answer.text) == (b"it is down" in body)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'data: {"type": "message_start", "message": {}}\n\n', "the Messages API"),
        (b'data: {"choices": []}\n\n', "Chat Completions"),
        (b'data: {"type": "response.created", "response": {}}\n\n', "the Responses API"),
    ],
)
@BOTH
def test_a_stream_of_another_api_is_told_as_one(kind: Kind, body: bytes, name: str) -> None:
    answer = _of_body(kind, body)

    assert isinstance(answer, Fault)
    assert (answer.text == f"the server's answer is no message: a stream of {name}") == (name != kind.api.name)


def _of_body(kind: Kind, body: bytes) -> object:
    import httpx2
    import openai

    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
    client = openai.OpenAI(api_key="test", max_retries=0, http_client=httpx2.Client(transport=transport))
    server = kind(client)
    try:
        return server.attempt(CALL, lambda _: None)
    finally:
        server.close()


def test_calls_that_all_have_one_number_are_told_apart_by_their_ids() -> None:
    def chunk(**delta: object) -> bytes:
        return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"

    calls = [{"index": 0, "id": f"c{at}", "function": {"name": "read", "arguments": {"n": at}}} for at in range(3)]
    body = b"".join(chunk(tool_calls=[piece]) for piece in calls) + b"data: [DONE]\n\n"

    answer = _of_body(ChatCompletions, body)

    assert isinstance(answer, dict)
    assert [(block["id"], block["input"]["n"]) for block in answer["content"]] == [("c0", 0), ("c1", 1), ("c2", 2)]


# --- a session


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "project").mkdir()
    yield tmp_path / "project"


@pytest.fixture
def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Runs `ctxvc` there, with the server's address and no key but the one that is given."""

    def run(*arguments: str, url: str = "", **env: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        address = {"OPENAI_BASE_URL": url} if url else {}
        unset = dict.fromkeys(("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "CTXVC_PROVIDER"))
        environment = {**unset, "HOME": str(folder), "OPENAI_API_KEY": "test", **address, **env}
        result = CliRunner().invoke(cli, arguments, env=environment)
        return result.exit_code, result.stdout, result.stderr

    return run


LINES = "".join(f"line {number} of a file that is read again and again\n" for number in range(120))


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
def test_a_run_in_a_small_window_sends_nothing_that_is_refused(
    folder: Path, ran: Callable[..., tuple[int, str, str]], provider: str
) -> None:
    (folder / "a.txt").write_text(LINES)
    steps = [[thought("hm"), call("read_file", path="a.txt"), call("bash", command=f"echo {at}")] for at in range(8)]
    with serve(script(*steps, "done"), window=12_000) as api:
        code, out, err = ran("run", "read it often", "--provider", provider, "--yes", url=api.url)

    assert code == 0, err
    assert "done" in out and not api.problems
    assert len(api.bodies) == len(steps) + 1 and max(api.sizes) <= 12_000
    assert api.bodies[0]["model"] == "local-model"
    with Session.open(folder / ".ctxvc", "run-1") as session:
        assert session.ledger().meta.calibration is not None
        bodies = [session.body(row.id) for row in session.ledger().rows() if row.tool == "read_file"]
    assert sum(b"line 119 of a file" in body for body in bodies) == len(steps)


def test_reasoning_goes_back_to_the_server_until_the_turn_ends(ran: Callable[..., tuple[int, str, str]]) -> None:
    steps = [[thought("I should look"), call("bash", command="true")], "done"]
    with serve(script(*steps)) as chat:
        ran("run", "look", "--provider", "openai-chat", "--yes", url=chat.url)
    with serve(script(*steps)) as responses:
        ran("run", "look", "--provider", "openai-responses", "--yes", url=responses.url)

    [message] = [message for message in chat.bodies[1]["messages"] if message["role"] == "assistant"]
    assert message["reasoning_content"] == "I should look"
    [item] = [item for item in responses.bodies[1]["input"] if item["type"] == "reasoning"]
    assert item["summary"][0]["text"] == "I should look" and item["encrypted_content"]


def test_a_run_goes_on_over_another_api_without_the_reasoning_that_it_cannot_take(
    folder: Path, ran: Callable[..., tuple[int, str, str]]
) -> None:
    from tests.messages_api import serve as serve_messages

    steps = [[thought("let me see"), call("bash", command="true")]]
    with serve(script(*steps)) as api:
        assert ran("run", "look", "--provider", "openai", "--yes", "--max-steps", "1", url=api.url)[0] == 1
    with serve_messages(script("done")) as messages:
        key = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": messages.url}
        more = ("--provider", "anthropic", "--model", "claude-sonnet-5-5", "--yes")
        code, out, err = ran("run", "--resume", "run-1", *more, **key)

    assert code == 0 and "done" in out, err
    assert "openai" not in json.dumps(messages.bodies)


def test_a_prompt_over_the_window_that_the_server_names_is_made_smaller(
    folder: Path, ran: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "a.txt").write_text(LINES)
    steps = [[call("read_file", path="a.txt")] for _ in range(9)]
    with serve(script(*steps, "done"), window=12_000, models=("a", "b")) as api:
        code, out, err = ran(
            "run", "read", "--model", "c", "--provider", "openai", "--yes", "--window", "60k", url=api.url
        )

    assert code == 0 and "done" in out, err
    assert max(api.sizes) <= 12_000


@pytest.mark.parametrize(
    ("arguments", "env", "path"),
    [
        ((), {}, "chat"),
        ((), {"OPENAI_API_KEY": ""}, "chat"),
        (("--provider", "openai-responses"), {}, "responses"),
        ((), {"CTXVC_PROVIDER": "openai-responses"}, "responses"),
        (("--model", "gpt-5"), {"ANTHROPIC_API_KEY": "test"}, "chat"),
    ],
)
def test_the_api_is_the_one_that_is_named_or_set_or_has_a_key(
    ran: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], env: dict[str, str], path: str
) -> None:
    with serve(script("done")) as api:
        code, _, err = ran("run", "hi", *arguments, url=api.url, **env)

    assert code == 0, err
    assert ("messages" in api.bodies[0]) == (path == "chat")


def test_a_server_with_several_models_wants_one_named(ran: Callable[..., tuple[int, str, str]]) -> None:
    with serve(script(), models=("small", "large")) as api:
        code, _, err = ran("run", "hi", url=api.url)

    assert code == 1 and "--model, such as small, large" in err


def test_a_provider_that_does_not_exist_is_refused(ran: Callable[..., tuple[int, str, str]]) -> None:
    assert ran("run", "hi", "--provider", "gemini")[0] == 2
    assert "is not one of" in ran("run", "hi", CTXVC_PROVIDER="gemini")[2]


BLOCK = re.compile(r"<!-- (\w+) -->\n```python\n(.*?)```", re.DOTALL)
PAGE = dict(BLOCK.findall((Path(__file__).parents[2] / "docs" / "how-to" / "use-openai-apis.md").read_text()))


def test_the_loop_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    malformed = {"type": "tool_use", "name": "read", "input": '{"path'}

    def run(call: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call["id"], "content": "text of it"}

    with serve(script([call("read", path="a"), malformed], "done")) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        names: dict[str, Any] = {"model": "local-model", "tools": [TOOL], "run": run}
        exec(PAGE["loop"], names)
        names["client"].close()

    assert names["reply"].text == "done" and not api.problems
    results = [message["content"] for message in api.bodies[1]["messages"] if message["role"] == "tool"]
    assert "text of it" in str(results[0]) and "not a JSON object" in str(results[1])


def test_the_conversion_of_the_page_says_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    exec(PAGE["convert"], {"request": {"messages": [{"role": "user", "content": "hi", "name": "Ada"}], "seed": 5}})

    assert capsys.readouterr().out == "messages[0].name is lost\nseed is lost\n"


def test_a_policy_asks_its_model_over_the_same_api(ran: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    (folder / "a.txt").write_text(LINES)

    def assistant(body: Mapping[str, Any]) -> Any:
        is_question = body.get("tool_choice") == "none"
        return "nothing is to leave" if is_question else next(replies)

    replies = iter([*([call("read_file", path="a.txt")] for _ in range(14)), "done"])
    with serve(assistant) as api:
        code, out, err = ran("run", "read", "--policy", "planned", "--budget", "12k", "--yes", url=api.url)

    assert code == 0 and "done" in out, err
    assert any(body.get("tool_choice") == "none" for body in api.bodies) and not api.problems


def test_ask_and_endless_replies_end_at_the_limit(ran: Callable[..., tuple[int, str, str]]) -> None:
    with serve(endless([[call("bash", command="true")]])) as api:
        code, _, err = ran("run", "hi", "--yes", "--max-steps", "3", url=api.url)

    assert code == 1 and "step limit" in err and len(api.bodies) == 3
