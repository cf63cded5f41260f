"""A block of thinking comes back behind what it was made after, or not at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.messages_api import Judge, Refused, call, text, thought
from tests.messages_api.samples import TOOL, png, request, result, system, user, words
from tests.messages_api.wire import BINDING_BETA, Block

DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
OTHER: Block = {"name": "ls", "input_schema": {"type": "object"}}


def steps(judge: Judge, count: int, **fields: Any) -> Block:
    """A request after so many calls, each with its thinking, of which the last is answered too."""
    body = request(user(words("Go on.")), system="You are at work.", tools=[TOOL, OTHER], **fields)
    for step in range(count):
        step_on(judge, body, str(step))
    return body


def step_on(judge: Judge, body: Block, mark: str) -> None:
    reply = judge.reply(body, [thought(f"hm {mark}"), text(f"Now {mark}."), call("sh", number=1)])
    body["messages"].append({"role": "assistant", "content": reply["content"]})
    body["messages"].append(user(result(reply["content"][-1]["id"], content=f"done {mark}")))


def without(body: Block, *places: int) -> Block:
    """The request without the thinking in these messages."""
    body = copy.deepcopy(body)
    for at in places:
        content = body["messages"][at]["content"]
        content[:] = [block for block in content if block["type"] != "thinking"]
    return body


def accused(judge: Judge, body: Block) -> list[str]:
    """The paths to the blocks that the judge names."""
    return [problem.split(":")[0] for problem in judge.check(body)]


def changed(body: Block, path: str, value: object) -> Block:
    body = copy.deepcopy(body)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    holder: Any = body
    for part in way:
        holder = holder[part]
    holder[last] = value
    return body


def test_a_conversation_that_only_grows_is_taken_over_fifty_steps() -> None:
    judge = Judge(thinking=True)
    body = steps(judge, 50)

    assert judge.check(body) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("system", "You are at play."),
        ("tools.0.description", "Runs commands."),
        ("tools", [TOOL]),
        ("messages.0.content.0.text", "Go  on."),
        ("messages.1.content.1.text", "Now 1."),
        ("messages.1.content.2.input", {"number": 2}),
        ("messages.2.content.0.content", "done 0 "),
        ("messages.2.content.0.is_error", True),
    ],
)
def test_a_change_before_a_block_refuses_the_request_and_is_named(path: str, value: object) -> None:
    judge = Judge()
    body = changed(steps(judge, 2), path, value)

    problem = judge.check(body)[-1]

    assert problem.startswith("messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a")
    assert ".".join(path.split(".")[:4]).removesuffix(".0.description") in problem


def _sorted(body: Block) -> Block:
    return dict(json.loads(json.dumps(body, sort_keys=True)))


@pytest.mark.parametrize(
    "harmless",
    [
        lambda body: changed(body, "max_tokens", 2000),
        lambda body: changed(body, "tools", [OTHER, TOOL]),
        lambda body: changed(body, "tools.0.cache_control", {"type": "ephemeral"}),
        lambda body: changed(body, "system", [words(" You are at work.\n", cache_control={"type": "ephemeral"})]),
        lambda body: changed(body, "messages.0.content", "Go on.\n"),
        lambda body: changed(body, "messages.1.content.2.input", {"number": 1.0}),
        lambda body: changed(body, "messages.2.content.0.content", [words("done 0")]),
        lambda body: changed(body, "messages.1.content.1.citations", None),
        lambda body: changed(body, "output_config", {"effort": "low"}),
        lambda body: changed(body, "thinking", {"type": "adaptive", "display": "summarized"}),
        _sorted,
    ],
)
def test_what_is_not_compared_may_change(harmless: Callable[[Block], Block]) -> None:
    judge = Judge()

    assert judge.check(harmless(steps(judge, 2))) == []


def test_one_turn_may_come_in_two_messages() -> None:
    judge = Judge()
    body = request(user(words("a")), user(words("b")))
    reply = judge.reply(body, [thought("hm"), text("Yes.")])
    merged = request(user(words("a"), words("b")), {"role": "assistant", "content": reply["content"]}, user())

    assert judge.check(merged) == []


def test_the_bytes_of_a_picture_count() -> None:
    judge = Judge()
    body = request(user(png(1, 1)))
    reply = judge.reply(body, [thought("hm"), text("A dot.")])
    body["messages"] += [{"role": "assistant", "content": reply["content"]}, user()]

    assert judge.check(body) == []
    assert judge.check(changed(body, "messages.0.content.0", png(1, 2)))


@pytest.mark.parametrize("field", ["thinking", "signature"])
def test_a_block_that_was_touched_is_refused_also_where_nothing_is_bound(field: str) -> None:
    judge = Judge(thinking=False)
    body = changed(steps(judge, 1), f"messages.1.content.0.{field}", "mine")

    assert "messages.1.content.0: Invalid `signature` in `thinking` block." in judge.check(body)


def test_thinking_may_leave_from_the_front_or_wholly_but_not_from_the_middle() -> None:
    judge = Judge()
    body = steps(judge, 4)

    assert judge.check(without(body, 1)) == []
    assert judge.check(without(body, 1, 3, 5)) == []
    assert accused(judge, without(body, 3)) == ["messages.5.content.0", "messages.7.content.0"]


def test_thinking_that_left_from_the_back_is_behind_what_comes_after() -> None:
    judge = Judge()
    body = steps(judge, 3)
    body["messages"].append({"role": "assistant", "content": [words("Done.")]})
    body["messages"].append(user(words("And now?")))
    cut = without(body, 3, 5)
    step_on(judge, cut, "later")

    assert judge.check(cut) == []


def test_thinking_that_left_may_not_come_back() -> None:
    judge = Judge()
    body = steps(judge, 2)
    cut = without(body, 1)
    step_on(judge, cut, "later")

    assert judge.check(cut) == []
    back = changed(cut, "messages.1", body["messages"][1])
    assert accused(judge, back) == ["messages.5.content.0"]


def test_two_blocks_may_not_change_places() -> None:
    judge = Judge()
    body = request(user())
    reply = judge.reply(body, [thought("a"), thought("b"), text("c")])
    first, second, said = reply["content"]

    assert judge.check(request(user(), {"role": "assistant", "content": [first, second, said]}, user())) == []
    assert judge.check(request(user(), {"role": "assistant", "content": [second, first, said]}, user()))


def test_the_thinking_of_an_open_round_must_stay() -> None:
    judge = Judge()
    body = steps(judge, 2)

    assert "in the latest assistant message cannot be modified" in judge.check(without(body, 1, 3))[0]
    body["messages"] += [{"role": "assistant", "content": [words("Done.")]}, user()]
    assert judge.check(without(body, 1, 3)) == []


def test_a_mismatched_block_is_dropped_on_request_and_told() -> None:
    judge = Judge()
    body = changed(steps(judge, 2, thinking=DROP, betas=[BINDING_BETA]), "messages.0.content.0.text", "Stop.")

    reply = judge.reply(body, "Well.")

    assert reply["input_transformations"] == [
        {"type": "thinking_dropped", "path": f"messages.{at}.content.0", "reason": "prefix_binding_mismatch"}
        for at in (1, 3)
    ]


def test_dropping_is_for_this_request_and_must_be_asked_for_again() -> None:
    judge = Judge()
    body = changed(steps(judge, 1), "messages.0.content.0.text", "Stop.")
    dropping = {**body, "thinking": DROP, "betas": [BINDING_BETA]}
    step_on(judge, dropping, "later")

    assert judge.check(dropping) == []
    assert accused(judge, body) == ["messages.1.content.0"]
    assert judge.check(without({**body, "messages": dropping["messages"]}, 1)) == []


def test_dropped_blocks_cost_nothing() -> None:
    judge = Judge()
    body = steps(judge, 1, thinking=DROP, betas=[BINDING_BETA])

    whole = judge.reply(body, "Well.")["usage"]["input_tokens"]
    less = judge.reply(changed(body, "messages.0.content.0.text", "Oh no."), "Well.")["usage"]["input_tokens"]

    assert less < whole


def test_without_its_header_nothing_is_told_and_the_field_is_refused() -> None:
    judge = Judge()

    assert "input_transformations" not in judge.reply(request(), "Well.")
    assert judge.reply(request(betas=[BINDING_BETA]), "Well.")["input_transformations"] == []
    assert judge.check(request(thinking=DROP)) == ["block_binding: Extra inputs are not permitted"]


def test_an_older_account_is_only_told_unless_it_asks_or_the_model_is_strict() -> None:
    judge = Judge(thinking=False)
    body = changed(steps(judge, 1), "messages.0.content.0.text", "Stop.")

    told = judge.reply({**body, "betas": [BINDING_BETA]}, "Well.")["input_transformations"]
    asks = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}

    assert [entry["type"] for entry in told] == ["thinking_mismatch_allowed"]
    assert "bound" in judge.check({**body, "thinking": asks, "betas": [BINDING_BETA]})[0]
    strict = changed(steps(judge, 1, model="claude-fable-5-2"), "messages.0.content.0.text", "Stop.")
    assert "bound" in judge.check(strict)[0]


def test_a_model_without_the_check_takes_an_edited_history() -> None:
    judge = Judge()

    assert judge.check(changed(steps(judge, 2, model="claude-opus-5"), "messages.0.content.0.text", "Stop.")) == []


def test_thinking_of_a_model_that_may_not_be_read_is_left_out_without_a_word() -> None:
    judge = Judge()
    body = steps(judge, 1, model="claude-fable-5-2", betas=[BINDING_BETA])

    told = judge.reply({**body, "model": "claude-opus-5-5"}, "Well.")["input_transformations"]

    assert [entry["reason"] for entry in told] == ["model_binding_mismatch"]


def test_a_tool_that_was_found_later_counts_from_there_on() -> None:
    judge = Judge()
    late = {**OTHER, "name": "late", "defer_loading": True}
    body = request(user(), tools=[TOOL, late])
    step_on(judge, body, "before")
    reply = judge.reply(body, [call("sh")])
    found = result(reply["content"][0]["id"], content=[{"type": "tool_reference", "tool_name": "late"}])
    body["messages"] += [{"role": "assistant", "content": reply["content"]}, user(found)]
    step_on(judge, body, "after")

    assert accused(judge, {**body, "tools": [TOOL]}) == ["messages.5.content.0"]


def test_a_system_message_that_is_not_shown_any_more_must_stay() -> None:
    judge = Judge()
    betas = ["mid-conversation-system-clear-at-2026-08-21"]
    body = request(user(), system(words("Mind the budget."), clear_at="next_user_message"), betas=betas)
    step_on(judge, body, "one")

    assert judge.check(body) == []
    assert judge.check(changed(body, "messages.1.clear_at", "never"))
    assert judge.check({**body, "messages": [body["messages"][0], *body["messages"][2:]]})


def test_the_words_of_the_thinking_come_only_when_asked_for_and_cost_the_same() -> None:
    judge = Judge()
    silent = judge.reply(request(), [thought("long " * 50), text("x")])
    loud = judge.reply(
        request(thinking={"type": "adaptive", "display": "summarized"}), [thought("long " * 50), text("x")]
    )

    assert (silent["content"][0]["thinking"], loud["content"][0]["thinking"]) == ("", "long " * 50)
    assert silent["usage"]["output_tokens_details"] == loud["usage"]["output_tokens_details"] != {"thinking_tokens": 0}


def test_redacted_thinking_is_signed_and_bound_too() -> None:
    judge = Judge()
    body = request(user(words("a")))
    reply = judge.reply(body, [{"type": "redacted_thinking"}, text("x")])
    body["messages"] += [{"role": "assistant", "content": reply["content"]}, user()]

    assert judge.check(body) == []
    assert "`redacted_thinking`" in judge.check(changed(body, "messages.0.content.0.text", "b"))[0]


def test_a_refused_request_gets_no_reply() -> None:
    with pytest.raises(Refused, match="prefill"):
        Judge().reply(request(user(), {"role": "assistant", "content": "So"}), "Well.")


def test_what_is_said_to_the_client_is_judged_as_it_would_be_sent() -> None:
    judge = Judge()
    extra = {"extra_headers": {"anthropic-beta": f"other, {BINDING_BETA}"}, "extra_body": {"thinking": DROP}}

    assert judge.check(request(timeout=5, **extra)) == []
