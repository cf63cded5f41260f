"""Runs of LangSmith and observations of Langfuse as conversations: those that SDKs sent, and some made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from tests.making.events import messages, read, written

DATA = Path(__file__).parents[1] / "data"
BATCHES = DATA / "langsmith" / "batches.jsonl"
LANGCHAIN = DATA / "langsmith" / "langchain.jsonl"
SPANS = DATA / "langfuse" / "spans.jsonl"
INGESTION = DATA / "langfuse" / "ingestion.jsonl"
OTEL = DATA / "otel-genai" / "spans.jsonl"

Line = tuple[str, str]


def main(events: list[Event]) -> list[Line]:
    """Role and text, or name of the tool, of what was told in the conversation's own scope."""
    return [
        (message.role, part.tool if part.kind == "tool_use" else part.body.decode())
        for message in (event.message for event in events if isinstance(event, Said) and not event.scope)
        for part in message.parts
    ]


def agents(events: list[Event]) -> list[list[Line]]:
    """The same of each sub-agent."""
    scopes = dict.fromkeys(event.scope for event in events if isinstance(event, Said) and event.scope)
    told_in = {scope: [e for e in events if isinstance(e, Said) and e.scope == scope] for scope in scopes}
    return [
        [(said.message.role, part.body.decode()) for said in told_in[scope] for part in said.message.parts]
        for scope in scopes
    ]


def run(identifier: str, question: Any = "", reply: str = "", **more: Any) -> dict[str, Any]:
    """A run of a model that began at the moment with its id."""
    asked = [{"role": "user", "content": question}] if isinstance(question, str) else question
    return {
        "id": identifier,
        "trace_id": "t",
        "parent_run_id": "root",
        "run_type": "llm",
        "dotted_order": f"root.{identifier}",
        "inputs": {"messages": asked},
        "outputs": {"choices": [{"message": {"role": "assistant", "content": reply}}]} if reply else None,
        **more,
    }


def observation(identifier: str, question: Any, reply: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "traceId": "t",
        "type": "GENERATION",
        "startTime": f"2026-11-23T12:00:0{identifier}Z",
        "parentObservationId": None,
        "input": question,
        "output": reply,
        **more,
    }


# --- against readings of the files that know nothing of ours


def by_openai(sent: list[dict[str, Any]]) -> list[Line]:
    lines = []
    for message in sent:
        role = "user" if message["role"] == "tool" else message["role"]
        lines += [(role, message["content"])] if message.get("content") else []
        lines += [(role, call["function"]["name"]) for call in message.get("tool_calls") or []]
    return lines[1:]  # the system prompt


def last_of_langsmith() -> tuple[list[Line], list[Line]]:
    models = [
        run for line in BATCHES.read_text().splitlines() for run in json.loads(line)["post"] if run["run_type"] == "llm"
    ]
    (other,) = [one for one in models if "tools" not in one["inputs"]]
    both = [
        [*one["inputs"]["messages"], one["outputs"]["choices"][0]["message"]]
        for one in (max(models, key=lambda one: one["start_time"]), other)
    ]
    return by_openai(both[0]), by_openai(both[1])


def last_of_langchain() -> tuple[list[Line], list[Line]]:
    models = [
        run
        for line in LANGCHAIN.read_text().splitlines()
        for run in json.loads(line)["post"]
        if run["run_type"] == "llm"
    ]
    newest = max(models, key=lambda one: one["start_time"])
    sent = [*newest["inputs"]["messages"][0], newest["outputs"]["generations"][0][0]["message"]]
    lines = []
    for fields in (one["kwargs"] for one in sent[1:]):
        role = "assistant" if fields["type"] == "ai" else "user"
        lines += [(role, fields["content"])] if fields["content"] else []
        lines += [(role, call["name"]) for call in fields.get("tool_calls", ())]
    return lines, []


def last_of_spans() -> tuple[list[Line], list[Line]]:
    exchanges = []
    for line in SPANS.read_text().splitlines():
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            values = {one["key"].rpartition(".")[2]: one["value"].get("stringValue") for one in span["attributes"]}
            if values["type"] == "generation":
                exchanges.append((json.loads(values["input"]), json.loads(values["output"])))
    return in_exchanges(exchanges)


def last_of_ingestion() -> tuple[list[Line], list[Line]]:
    bodies: dict[str, dict[str, Any]] = {}
    for line in INGESTION.read_text().splitlines():
        for event in json.loads(line)["batch"]:
            if event["type"].startswith("generation"):
                bodies.setdefault(event["body"]["id"], {}).update(event["body"])
    return in_exchanges([(body["input"], body["output"]) for body in bodies.values()])


def in_exchanges(exchanges: list[tuple[Any, Any]]) -> tuple[list[Line], list[Line]]:
    (other,) = [by_openai([*sent, reply]) for sent, reply in exchanges if isinstance(sent, list)]
    whole = [[*sent["messages"], reply] for sent, reply in exchanges if isinstance(sent, dict)]
    return by_openai(max(whole, key=len)), other


@pytest.mark.parametrize(
    ("path", "reading"),
    [
        (BATCHES, last_of_langsmith),
        (LANGCHAIN, last_of_langchain),
        (SPANS, last_of_spans),
        (INGESTION, last_of_ingestion),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_last_request_and_its_reply_are_what_was_told_and_sub_agents_beside_them(path: Path, reading: Any) -> None:
    own, other = reading()
    events = read(path)

    assert main(events) == own
    assert agents(events) == ([other] if other else [])
    assert not [event for event in events if isinstance(event, Forked | Warned)]


@pytest.mark.parametrize("path", [BATCHES, LANGCHAIN, SPANS, INGESTION], ids=lambda path: path.name)
def test_tokens_are_counted_once_and_the_frame_is_told(path: Path) -> None:
    events = read(path)
    own = [event.message for event in events if isinstance(event, Said) and not event.scope]
    counted = [message.usage for message in own if message.usage]
    opened = next(event for event in events if isinstance(event, Opened))

    assert [usage["input_tokens"] + usage["cache_read_input_tokens"] for usage in counted] == [101, 102, 103, 104]
    assert {usage["cache_read_input_tokens"] for usage in counted} == {5}
    assert {message.model for message in own if message.role == "assistant"} == {"scripted-1"}
    assert [tool["name"] for tool in opened.tools] == ["read", "ask"]
    assert opened.missing == ()
    assert len({part.call for message in own for part in message.parts if part.kind == "tool_result"}) == 3


def test_what_asked_a_sub_agent_is_no_person() -> None:
    for path in (BATCHES, SPANS, INGESTION):
        first = next(event for event in read(path) if isinstance(event, Said) and event.scope)
        assert [part.origin for part in first.message.parts] == ["client"]


# --- what the APIs and the exports give


def test_runs_of_an_export_are_told_in_their_order_though_the_newest_is_first(tmp_path: Path) -> None:
    runs = [one for line in BATCHES.read_text().splitlines() for one in json.loads(line)["post"]]
    newest_first = sorted(runs, key=lambda one: str(one["dotted_order"]), reverse=True)
    lines = read(written(tmp_path / "lines.jsonl", *newest_first))
    whole = read(written(tmp_path / "list.json", {"runs": newest_first}))

    assert main(lines) == main(whole) == main(read(BATCHES))
    assert agents(lines) == agents(whole) == agents(read(BATCHES))


def test_a_trace_of_langfuse_with_its_observations_is_a_conversation(tmp_path: Path) -> None:
    question = {"role": "user", "content": "one"}
    answer = {"role": "assistant", "content": "two"}
    usage = {"input": 7, "output": 3, "input_cached_tokens": 5, "total": 15}
    observations = [
        observation("2", [question, answer, {"role": "user", "content": "three"}], "four"),
        observation("1", [question], answer, usageDetails=usage, model="m"),
    ]
    trace = {"id": "t", "sessionId": "s", "observations": observations}
    alone = [{**one, "sessionId": "s"} for one in observations]

    for path in (
        written(tmp_path / "trace.json", trace),
        written(tmp_path / "page.json", {"data": alone}),
        written(tmp_path / "lines.jsonl", *alone),
    ):
        events = read(path)
        assert [text for _, text in main(events)] == ["one", "two", "three", "four"]
        assert messages(events)[1].usage == {
            "input_tokens": 7,
            "output_tokens": 3,
            "cache_read_input_tokens": 5,
        }


def test_traces_of_two_threads_are_two_conversations(tmp_path: Path) -> None:
    def of(thread: str, trace: str) -> dict[str, Any]:
        return {"trace_id": trace, "extra": {"metadata": {"thread_id": thread}}}

    path = written(
        tmp_path / "x.json",
        [run("1", "a", "b", **of("x", "t1")), run("2", "c", "d", **of("y", "t2")), run("3", "e", "f", **of("x", "t3"))],
    )
    streams = [(suffix, list(events)) for suffix, events in importers.conversations(Recording(path), "langsmith")]

    assert [(suffix, len(messages(events))) for suffix, events in streams] == [("-x", 4), ("-y", 2)]


# --- who asked


def test_steps_of_one_agent_are_one_scope_by_what_their_prompts_begin_with(tmp_path: Path) -> None:
    """A framework may put each step of an agent into a run of its own."""
    sent = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    path = written(
        tmp_path / "x.json",
        [
            run("1", "a", "b", parent_run_id="step-1"),
            run("2", "other", "x", parent_run_id="step-2"),
            run("3", sent, "d", parent_run_id="step-3"),
        ],
    )
    events = read(path)

    assert [text for _, text in main(events)] == ["a", "b", "c", "d"]
    assert agents(events) == [[("user", "other"), ("assistant", "x")]]


def test_a_tool_that_asks_with_the_same_words_is_another_agent_all_the_same(tmp_path: Path) -> None:
    tool = {"id": "tool", "trace_id": "t", "run_type": "tool", "dotted_order": "root.11", "parent_run_id": "root"}
    path = written(tmp_path / "x.json", [run("10", "a", "b"), tool, run("12", "a", "z", parent_run_id="tool")])

    assert agents(read(path)) == [[("user", "a"), ("assistant", "z")]]


def test_a_call_that_two_tracers_recorded_is_told_once(tmp_path: Path) -> None:
    inner = run("2", "a", "b", parent_run_id="1")
    usage = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    inner["outputs"]["usage_metadata"] = usage
    outer = run("1", "a", "b")
    outer["outputs"]["usage_metadata"] = usage

    events = read(written(tmp_path / "x.json", [outer, inner]))

    assert [text for _, text in main(events)] == ["a", "b"]
    assert agents(events) == []


# --- batches


def test_a_run_that_begins_in_one_batch_and_ends_in_a_later_one_is_whole(tmp_path: Path) -> None:
    whole = [run("1", "a", "b"), run("2", "c", "d", parent_run_id="")]
    begun = [{**one, "outputs": None} for one in whole]
    ended = [{name: one[name] for name in ("id", "trace_id", "dotted_order", "outputs")} for one in whole]
    path = written(
        tmp_path / "x.jsonl", {"post": begun[:1]}, {"post": begun[1:], "patch": ended[:1]}, {"patch": ended[1:]}
    )

    assert [text for _, text in main(read(path))] == ["a", "b"]
    assert agents(read(path)) == [[("user", "c"), ("assistant", "d")]]


def test_what_was_sent_last_is_told_without_a_reply(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", {"post": [run("1", "a")], "patch": [{"id": "1", "error": "cut off"}]})

    assert main(read(path)) == [("user", "a")]


# --- forms of messages


def test_blocks_of_the_messages_api_are_read_as_such(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a"}}
    reply = {"role": "assistant", "type": "message", "content": [{"type": "thinking", "thinking": "hm"}, call]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
    first = run("1", "a")
    first["inputs"]["system"] = "be kind"
    first["outputs"] = {**reply, "model": "claude", "usage": {"input_tokens": 3, "output_tokens": 2}}
    second = run("2", [*first["inputs"]["messages"], {"role": "assistant", "content": reply["content"]}, result], "ok")
    second["inputs"]["system"] = "be kind"

    events = read(written(tmp_path / "x.json", [first, second]))

    kinds = [[part.kind for part in message.parts] for message in messages(events)]
    assert kinds == [["user"], ["thinking", "tool_use"], ["tool_result"], ["assistant"]]
    assert messages(events)[1].usage == {"input_tokens": 3, "output_tokens": 2}
    assert next(event.system for event in events if isinstance(event, Opened)) == "be kind"


def test_a_call_in_langchains_form_in_a_message_with_a_role_is_a_call(tmp_path: Path) -> None:
    call = {"name": "read", "args": {"path": "a"}, "id": "c", "type": "tool_call"}
    reply = {"role": "assistant", "content": "", "tool_calls": [call]}
    path = written(tmp_path / "x.json", [observation("1", [{"role": "user", "content": "a"}], reply)])

    part = messages(read(path))[1].parts[0]

    assert (part.kind, part.tool, part.call, part.body) == ("tool_use", "read", "c", b'{"path":"a"}')


def test_what_is_in_no_form_that_is_read_costs_itself(tmp_path: Path) -> None:
    odd = run("1", "x", "y")
    odd["inputs"] = {"input": [{"what": 1}]}
    odd["outputs"] = {"value": 7}
    path = written(tmp_path / "x.jsonl", odd, run("2", "a", "b"), {"run_type": "llm"}, 7)
    events = read(path)

    assert main(events) == [("user", "a"), ("assistant", "b")]
    assert sorted(event.line for event in events if isinstance(event, Warned)) == [1, 3, 4]


def test_without_inputs_the_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no inference with its messages") as caught:
        read(written(tmp_path / "x.json", [run("1", "", "") | {"inputs": {}}]))

    assert "may be hidden" in str(caught.value.hint)
