"""The rules see each kind of problem, and nothing where there is none."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages_api import rules
from tests.messages_api.content import FIELDS
from tests.messages_api.rules import problems
from tests.messages_api.samples import TOOL, model, png, request, result, system, use, user, words
from tests.messages_api.wire import BINDING_BETA, CLEAR_AT_BETA

THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
ASKED = {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "s", "input": {}}
TOLD = {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}
PAPER = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
LINK = {"type": "search_result", "source": "u", "title": "t", "content": [words()]}
MARK = {"type": "ephemeral"}
MANUAL = {"type": "enabled", "budget_tokens": 1024}
BINDING = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SONNET_4_6 = {"model": "claude-sonnet-4-6", "max_tokens": 4000}


@pytest.mark.parametrize(
    "body",
    [
        request(),
        request({"role": "user", "content": "x"}),
        request(user(), user(), model(), model(), user()),
        request(user(), model(THOUGHT, use(), use("c2")), user(result("c2", content="y"), result(), words())),
        request(user(), model(use()), user(result(content=[words(), png(), PAPER, LINK], is_error=True))),
        request(user(), model(SEARCH, FOUND, words()), user()),
        request(user(), model(words(), SEARCH)),
        request(user(), model(SEARCH, FOUND), system(), model(), user()),
        request(user(PAPER, png(), LINK), system(), model(words(citations=[{}])), user(), system()),
        request(user(), model(ASKED, TOLD), user()),
        request(user(), model(words("prefilled")), model="claude-haiku-4-5-20251001"),
        request(system=[words(cache_control=MARK)], tools=[{**TOOL, "cache_control": MARK}], cache_control=MARK),
        request(thinking=MANUAL, **SONNET_4_6),
        request(thinking={"type": "adaptive", "display": "summarized"}, output_config={"effort": "xhigh"}),
        request(tools=[TOOL], tool_choice={"type": "tool", "name": "sh"}, **SONNET_4_6),
        request(max_tokens=0),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_api_takes_has_no_problem(body: dict[str, Any]) -> None:
    assert problems(body) == []


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([model(), user()], "messages.0: the first message must be the user's"),
        ([user(), model()], "prefill"),
        ([user(), model(THOUGHT)], "final block"),
        ([user(), {"role": "user", "content": []}], "messages.1: content is empty"),
        ([{**user(), "id": "m"}], "messages.0.id: Extra inputs are not permitted"),
        ([{"role": "tool", "content": "x"}], "not a message"),
        ([{"role": "user", "content": " "}], "non-empty"),
        ([user(words("\t\n"))], "non-empty"),
        ([user({"type": "fancy"})], "Input tag 'fancy'"),
        ([user(words(origin="human"))], "messages.0.content.0: text.origin: Extra inputs"),
        ([user(words(citations=[{}]))], "citations in a user message"),
        ([user({**LINK, "content": [words(citations=[{}])]})], "citations in a user message"),
        ([user({**LINK, "title": None})], "search_result.title"),
        ([user(use())], "only for the assistant"),
        ([user(THOUGHT)], "only for the assistant"),
        ([user(SEARCH, FOUND)], "only for the assistant"),
        ([user(), model(result()), user()], "only for the user"),
        ([user(), model(PAPER), user()], "no document"),
        ([user(), model({**THOUGHT, "cache_control": MARK}), user()], "thinking.cache_control: Extra inputs"),
        ([user(), model({"type": "thinking", "thinking": ""}), user()], "thinking.signature"),
        ([user(), model({"type": "redacted_thinking"}), user()], "redacted_thinking.data"),
        ([user(words(cache_control={"type": "forever"}))], "cache_control.type"),
        ([user(words(cache_control={"type": "ephemeral", "ttl": "2h"}))], "cache_control.ttl"),
        ([user(*[words(cache_control=MARK)] * 5)], "maximum of 4 blocks with cache_control may be provided. Found 5"),
        ([user(words(cache_control=MARK)), user(words(cache_control={**MARK, "ttl": "1h"}))], "must not come after"),
        ([user({"type": "image"})], "image without a source"),
        ([user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp"}})], "media_type"),
        ([user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%"}})], "no base64"),
        ([user({"type": "document", "source": {"type": "url"}})], "document.source.url"),
        ([user(png(8001, 1))], "exceed the maximum of 8000 pixels"),
        ([user(*[png(2001, 1)] * 21)], "exceed the maximum of 2000 pixels"),
        ([user(*[png()] * 601)], "at most 600"),
        # A call is answered once, at once, and first.
        ([user(), model(use()), user()], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ([user(), model(use()), user(), model(), user(result())], "messages.1: `tool_use` ids were found without"),
        ([user(), model(use()), user(), model(), user(result())], "messages.4.content.0: unexpected `tool_use_id`"),
        ([user(), model(use(), use("c2")), user(result()), user(result("c2"))], "without `tool_result` blocks"),
        ([user(), model(use())], "at the end"),
        ([user(result())], "unexpected `tool_use_id` found in `tool_result` blocks: c1"),
        ([user(), model(use()), user(result(), result())], "single result"),
        ([user(), model(use()), user(words(), result())], "do not lead"),
        ([user(), model(use(), use()), user(result())], "must be unique"),
        ([user(), model(use()), user(result()), model(use()), user(result())], "must be unique"),
        ([user(), model(use("c|1")), user(result("c|1"))], "does not match"),
        ([user(), model(use("c1\n")), user(result("c1\n"))], "does not match"),
        ([user(), model(use(name="")), user(result())], "tool_use.name"),
        ([user(), model(use(input=[])), user(result())], "no object"),
        ([user(), model(use(input="{}")), user(result())], "no object"),
        ([user(), model(use()), user(result(is_error=True))], "cannot be empty if `is_error`"),
        ([user(), model(use()), user(result(is_error="no"))], "neither true nor false"),
        ([user(), model(use()), user(result(content=5))], "neither a string nor a list"),
        ([user(), model(use()), user(result(content=[words("")]))], "non-empty"),
        ([user(), model(use()), user(result(content=[use()]))], "'tool_use' in a result"),
        ([user(), model(use()), user(result(content=[words(id=1)]))], "text.id: Extra inputs"),
        ([user(), model(SEARCH), user()], "without a result"),
        ([user(), model(FOUND, SEARCH), user()], "unexpected `tool_use_id` found in `web_search_tool_result` blocks"),
        ([user(), model(SEARCH), user(), model(FOUND), user()], "unexpected `tool_use_id`"),
        ([user(), model(SEARCH, FOUND, SEARCH, FOUND), user()], "id of its own"),
        # A system message is in its place.
        ([system(), user()], "messages.0: role 'system' must follow"),
        ([user(), model(), system(), model(), user()], "messages.2: role 'system' must follow a 'user' message"),
        ([user(), system(), user()], "messages.1: role 'system' must precede an 'assistant' message or end the array"),
        ([user(), system(), system()], "messages.1: role 'system' must precede"),
        ([user(), model(use()), system(), user(result())], "must follow"),
        ([user(), system(png())], "image in a system message"),
        ([user(), system(clear_at="next_user_message")], "messages.1.clear_at: Extra inputs"),
        ([user(), system({"type": "tool_removal"}, words(""))], "non-empty"),
        ([user({"type": "tool_addition"})], "only for a system message"),
    ],
)  # fmt: skip
def test_a_message_that_the_api_refuses_is_seen(messages: Any, reason: str) -> None:
    assert any(reason in problem for problem in problems(request(*messages)))


def test_a_system_message_may_leave_after_its_turn_but_not_with_a_mark() -> None:
    leaving = system(clear_at="next_user_message")
    marked = system(words(cache_control=MARK), clear_at="next_user_message")

    assert problems(request(user(), leaving), betas=[CLEAR_AT_BETA]) == []
    assert "`cache_control`" in problems(request(user(), marked), betas=[CLEAR_AT_BETA])[0]
    assert "clear_at" in problems(request(user(), system(clear_at="soon")), betas=[CLEAR_AT_BETA])[0]


def test_system_messages_are_for_the_newer_models() -> None:
    body = request(user(), system(), model="claude-sonnet-5")

    assert problems(body) == ["messages.1: role 'system' is not supported on this model"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (request(model="gpt"), "model: gpt"),
        (request(model=["claude"]), "model"),
        (request(max_tokens=None), "max_tokens: Field required"),
        (request(max_tokens=True), "max_tokens"),
        (request(max_tokens=128_001), "128001 > 128000, which is the maximum allowed number of output tokens"),
        (request(max_tokens=0, stream=True), "nothing to stream"),
        (request(temperature=1), "temperature"),
        (request(session="s"), "session: Extra inputs are not permitted"),
        (request(context_management={}), "context_management: Extra inputs"),
        (request(messages=[]), "messages: no list"),
        (request(system=[words(" ")]), "system.0: text content blocks must be non-empty"),
        (request(system=[png()]), "system.0: 'image'"),
        (request(system=5), "system: neither"),
        (request(tools=[TOOL, TOOL]), "Tool names must be unique"),
        (request(tools=[{**TOOL, "name": "a b"}]), "tools.0.name"),
        (request(tools=[{"name": "sh"}]), "tools.0.input_schema"),
        (request(tools=[{**TOOL, "defer_loading": True}]), "must not be deferred"),
        (request(tools={}), "tools: no list"),
        (request(tool_choice={"type": "auto"}), "only be given together with tools"),
        (request(tools=[TOOL], tool_choice={"type": "any"}), "tool_choice.type: 'any' is not supported"),
        (request(tools=[TOOL], tool_choice={"type": "tool", "name": "ls"}, **SONNET_4_6), "no tool is called 'ls'"),
        (request(thinking={"type": "deep"}), "thinking.type"),
        (request(thinking=MANUAL), "thinking.type: 'enabled' is not supported"),
        (request(thinking={"type": "disabled"}), "thinking.type: 'disabled' is not supported"),
        (request(thinking={**MANUAL, "budget_tokens": 1000}, **SONNET_4_6), "greater than or equal to 1024"),
        (request(thinking={**MANUAL, "budget_tokens": 4000}, **SONNET_4_6), "`max_tokens` must be greater"),
        (request(thinking=BINDING), "block_binding: Extra inputs are not permitted"),
        (request(output_config={"effort": "huge"}), "output_config.effort"),
        (request(cache_control={"type": "no"}), "cache_control.type"),
        ([], "no object"),
    ],
)
def test_a_field_that_the_api_refuses_is_seen(body: Any, reason: str) -> None:
    assert any(reason in problem for problem in problems(body))


def test_a_beta_opens_its_fields() -> None:
    assert problems(request(thinking=BINDING), betas=[BINDING_BETA]) == []
    assert problems(request(context_management={}), betas=["context-management-2025-06-27"]) == []

    between = {**BINDING, "type": "between_tools"}
    assert "block_binding" in problems(request(thinking=between, model="claude-sonnet-5-5"), betas=[BINDING_BETA])[0]


def test_the_older_version_of_the_api_takes_what_the_new_one_refuses() -> None:
    body = request(user(words(citations=[{}])), model(PAPER), user(), temperature=1)

    assert len(problems(body)) == 3
    assert problems(body, version="2023-06-01") == []


def test_counting_asks_for_no_max_tokens() -> None:
    assert problems(request(max_tokens=None), counting=True) == []


def test_there_are_at_most_100_000_messages() -> None:
    assert problems(request(*[user()] * 100_001)) == ["messages: at most 100000 messages"]


def test_what_the_api_would_mend_is_a_problem_of_its_own() -> None:
    assert rules.problems(request({"role": "user", "content": "x"}, user())) == []

    assert "string" in rules.canonical_problems([{"role": "user", "content": "x"}])[0]
    assert rules.canonical_problems([user(), user()]) == ["messages.1: roles must alternate"]


def test_the_judge_knows_nothing_of_ctxvc() -> None:
    for module in Path(rules.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.split(".")[0] == "ctxvc"], module.name


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from([*FIELDS, "server_tool_use", "web_search_tool_result", "tool_addition", "x"])
names = sorted({name for fields in FIELDS.values() for name in fields} | {"id", "name", "tool_use_id"})
some_block = st.dictionaries(st.sampled_from(names), json_values | st.just("c1"), max_size=4).flatmap(
    lambda fields: kinds.map(lambda kind: {**fields, "type": kind})
)
nested = st.tuples(some_block, st.lists(some_block, max_size=2)).map(lambda both: {**both[0], "content": both[1]})
some_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(some_block | nested, max_size=3)},
    optional={"clear_at": json_values},
)
some_request = st.fixed_dictionaries(
    {"messages": st.lists(some_message | json_values, max_size=4) | json_values},
    optional={
        "tools": st.lists(st.fixed_dictionaries({"name": json_values, "type": json_values}) | json_values, max_size=2),
        **{name: json_values | some_block | st.lists(some_block) for name in ("system", "cache_control", "max_tokens")},
        **{
            name: st.fixed_dictionaries({"type": json_values | st.just("tool")}) for name in ("thinking", "tool_choice")
        },
        "output_config": st.fixed_dictionaries({"effort": json_values}) | json_values,
    },
)


@given(some_request)
def test_whatever_comes_is_judged_and_nothing_raises(body: dict[str, Any]) -> None:
    for version in ("2023-06-01", rules.VERSION):
        for problem in problems({"model": "claude-opus-5-5", **body}, betas=[BINDING_BETA], version=version):
            json.dumps(problem)
