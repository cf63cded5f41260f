"""What the cache reads and writes, and what it costs to change a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.messages_api import Judge, call, thought
from tests.messages_api.samples import TOOL, png, request, result, system, use, user, words
from tests.messages_api.wire import BINDING_BETA, CLEAR_AT_BETA, Block

MARK = {"type": "ephemeral"}
LONG = "word " * 1000


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def judge(clock: Clock) -> Judge:
    return Judge(clock=clock)


def usage(judge: Judge, body: Block) -> tuple[int, int, int]:
    """Tokens read, written, and neither."""
    counted = judge.reply(body, "Well.")["usage"]
    names = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    read, written, fresh = (counted[name] for name in names)
    return read, written, fresh


def test_what_one_request_writes_the_next_one_reads(judge: Judge) -> None:
    body = request(user(words(LONG)), cache_control=MARK)
    read, written, fresh = usage(judge, body)
    longer = request(
        *body["messages"], {"role": "assistant", "content": "Well."}, user(words("more")), cache_control=MARK
    )

    assert (read, fresh) == (0, 0)
    assert usage(judge, longer)[0] == written > 0


def test_nothing_is_cached_without_a_mark_or_below_the_minimum(judge: Judge) -> None:
    for body in (request(user(words(LONG))), request(user(words("short")), cache_control=MARK)):
        first = usage(judge, body)

        assert first[:2] == (0, 0)
        assert usage(judge, body) == first


@pytest.mark.parametrize(("ttl", "lives"), [("5m", 300), ("1h", 3600)])
def test_an_entry_ends_with_its_time_and_a_read_begins_it_anew(
    judge: Judge, clock: Clock, ttl: str, lives: int
) -> None:
    body = request(user(words(LONG, cache_control={**MARK, "ttl": ttl})))
    usage(judge, body)

    for now in (lives - 1, 2 * lives - 2):
        clock.now = now
        assert usage(judge, body)[1] == 0
    clock.now = 3 * lives
    assert usage(judge, body)[0] == 0


def test_writes_are_told_by_their_time(judge: Judge) -> None:
    marked = words(LONG, cache_control={**MARK, "ttl": "1h"})
    counted = judge.reply(request(system=[marked], cache_control=MARK), "Well.")["usage"]["cache_creation"]

    assert counted["ephemeral_1h_input_tokens"] > counted["ephemeral_5m_input_tokens"] > 0


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [{**TOOL, "description": "other"}]},
        {"system": [words("other"), words(LONG, cache_control=MARK)]},
        {"model": "claude-sonnet-5-5"},
    ],
)
def test_a_change_before_the_mark_misses(judge: Judge, change: dict[str, Any]) -> None:
    body = request(system=[words("be"), words(LONG, cache_control=MARK)], tools=[TOOL])
    usage(judge, body)

    assert usage(judge, body | change)[0] == 0


@pytest.mark.parametrize(
    "change",
    [{"output_config": {"effort": "low"}}, {"tool_choice": {"type": "none"}}, {"messages": [user(words("b"))]}],
)
def test_a_change_of_options_or_messages_keeps_what_stands_before_them(judge: Judge, change: dict[str, Any]) -> None:
    body = request(user(words("a")), system=[words(LONG, cache_control=MARK)], tools=[TOOL], cache_control=MARK)
    whole = usage(judge, body)[1]

    assert 0 < usage(judge, body | change)[0] < whole


def test_what_to_do_with_a_block_that_does_not_fit_is_no_part_of_the_prompt(judge: Judge) -> None:
    body = request(user(words(LONG)), cache_control=MARK, thinking={"type": "adaptive"}, betas=[BINDING_BETA])
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    _, written, _ = usage(judge, body)

    assert usage(judge, body | {"thinking": binding}) == (written, 0, 0)


def test_a_mark_looks_back_twenty_positions_and_no_further(judge: Judge) -> None:
    def body(more: int) -> Block:
        return request(user(words(LONG), *[words(f"{number}") for number in range(more)]), cache_control=MARK)

    usage(judge, body(0))
    assert usage(judge, body(19))[0] > 0

    usage(judge, body(0) | {"system": "other"})
    assert usage(judge, body(20) | {"system": "other"})[0] == 0


def test_a_run_of_results_is_one_position(judge: Judge) -> None:
    calls = [f"c{number}" for number in range(30)]
    body = request(user(words(LONG)), cache_control=MARK, tools=[TOOL])
    usage(judge, body)
    answered = [*body["messages"], {"role": "assistant", "content": [use(name) for name in calls]}]
    answered.append(user(*[result(name, content="ok") for name in calls]))

    assert usage(judge, body | {"messages": answered})[0] > 0


def test_the_order_of_the_fields_of_a_block_does_not_count_and_that_of_an_input_does(judge: Judge) -> None:
    def body(block: Block) -> Block:
        message = {"role": "assistant", "content": [block]}
        return request(user(words("a")), message, user(result(content=LONG)), cache_control=MARK)

    usage(judge, body(use(input={"a": 1, "b": 2})))

    assert usage(judge, body(dict(reversed(use(input={"a": 1, "b": 2}).items()))))[0] > 0
    assert usage(judge, body(use(input={"b": 2, "a": 1})))[0] == 0


def test_a_system_message_that_leaves_costs_nothing_and_breaks_what_was_cached_behind_it(judge: Judge) -> None:
    leaving = system(words("Mind the budget. " * 100), clear_at="next_user_message")
    body = request(user(words(LONG)), leaving, cache_control=MARK, betas=[CLEAR_AT_BETA])
    _, written, fresh = usage(judge, body)
    later = [*body["messages"], {"role": "assistant", "content": "Well."}, user(words("more"))]
    total = sum(usage(judge, body | {"messages": later}))

    assert fresh > 0, "no mark stands on it"
    assert written < total < written + fresh


def test_a_long_loop_reads_nearly_all_of_its_prompt_from_the_cache(judge: Judge) -> None:
    body = request(user(words(LONG)), tools=[TOOL], cache_control=MARK)
    for _ in range(10):
        reply = judge.reply(body, [thought("hm " * 40), call("sh")])
        body["messages"].append({"role": "assistant", "content": reply["content"]})
        body["messages"].append(user(result(reply["content"][-1]["id"], content="out " * 40)))
    read, written, fresh = usage(judge, body)

    assert fresh == 0
    assert read > 10 * written


def test_a_picture_counts_by_its_size(judge: Judge) -> None:
    small, large = (sum(usage(judge, request(user(png(*size))))) for size in ((256, 256), (1024, 1024)))

    assert (small, large) == (100 + 4, 1369 + 4)
