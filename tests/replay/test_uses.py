"""Uses: what a later reply names that an earlier block has."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.replay.measures.anchors import NONE, CommonAnchors, reply_anchors, stands_in
from ctxvc.replay.measures.uses import Use, uses
from tests.making.conversation import human
from tests.replay.login import LINE, PATH, SOURCE, conversation, login, reply, result


def test_the_uses_of_a_conversation_are_those_worked_out_on_paper() -> None:
    assert uses(login(), NONE) == (
        Use(0, PATH, "path", (0,), nt=False, ar=False, category="contract"),
        Use(6, "48213", "number", (3,), nt=True, ar=True, category="evidence"),
        Use(6, PATH, "path", (0, 2), nt=True, ar=False, category="contract"),
        Use(6, "compare_digest", "identifier", (3,), nt=True, ar=True, category="evidence"),
        Use(6, "user.token", "identifier", (3,), nt=True, ar=True, category="evidence"),
        Use(6, LINE, "line", (3,), nt=True, ar=True, category="verbatim"),
    )


@pytest.mark.parametrize(("idle", "nt"), [(4, False), (5, True)])
def test_a_use_is_trivial_within_five_steps(idle: int, nt: bool) -> None:
    """The result is of call 0; with four idle calls the use is of call 5, and its last five steps are calls 0 to 4."""
    steps = [([result(f"c{n}", "12345" if n == 0 else "ok")], reply(**{f"c{n + 1}": ("sh", {})})) for n in range(idle)]
    last = ([result(f"c{idle}", "ok")], reply("It was 12345."))

    own = uses(conversation(([human("go")], reply(c0=("sh", {}))), *steps, last), NONE)

    assert [(use.call, use.anchor, use.blocks, use.nt, use.ar) for use in own] == [(idle + 1, "12345", (2,), nt, nt)]


def test_common_anchors_and_those_of_the_system_prompt_do_not_count() -> None:
    common = CommonAnchors("test", frozenset({"48213"}))
    system = [{"type": "text", "text": "Never rename compare_digest."}]
    made = login()

    own = uses(conversation(*((list(call.before), call.reply) for call in made.calls), system=system), common)

    assert [use.anchor for use in own if use.call == 6] == [PATH, "user.token", LINE]


def test_thinking_is_no_reason_for_a_use_but_makes_it_trivial() -> None:
    only_thought = conversation(
        ([human("go")], reply("ok", thinking="saveAll")), ([human("on")], reply("call saveAll"))
    )
    assert not uses(only_thought, NONE)

    # The result, B2, has it in call 0; thinking, B13, in call 6, the step before the use.
    thought_again = conversation(
        ([human("go")], reply(c0=("sh", {}))),
        ([result("c0", "saveAll")], reply("ok")),
        *[([human("on")], reply("ok")) for _ in range(4)],
        ([human("on")], reply("ok", thinking="saveAll")),
        ([human("on")], reply("call saveAll")),
    )
    (use,) = uses(thought_again, NONE)
    assert (use.blocks, use.nt, use.ar) == ((2, 13), False, False)


def test_a_use_of_what_only_results_and_thinking_have_is_at_risk() -> None:
    messages = conversation(
        ([human("go")], reply(c0=("sh", {}))),
        ([result("c0", "saveAll")], reply("ok", thinking="saveAll")),
        *[([human("on")], reply("ok")) for _ in range(5)],
        ([human("on")], reply("call saveAll")),
    )

    (use,) = uses(messages, NONE)
    assert (use.blocks, use.nt, use.ar) == ((2, 3), True, True)


def _one_call(tool: str, argument: dict[str, str], *, error: bool = False) -> Conversation:
    """A call whose result has `saveAll`, and a use of that."""
    made = reply(c0=(tool, argument))
    return conversation(([human("go")], made), ([result("c0", "saveAll", error=error)], reply("call saveAll")))


@pytest.mark.parametrize(
    ("made", "category"),
    [
        (_one_call("Read", {"file_path": "/srv/CLAUDE.md"}), "contract"),
        (_one_call("Read", {"file_path": "/srv/a.py"}), "evidence"),
        (_one_call("sh", {"command": "make"}, error=True), "state"),
        (_one_call("TodoWrite", {"todos": "-"}), "state"),
        (conversation(([human("call saveAll")], reply("I call saveAll"))), "contract"),
        (conversation(([human("go")], reply("saveAll is next")), ([human("on")], reply("call saveAll"))), "evidence"),
    ],
)
def test_the_category_is_by_the_oldest_and_the_newest_block(made: Conversation, category: str) -> None:
    assert [use.category for use in uses(made, NONE)] == [category]


def test_a_call_that_had_failed_tells_of_a_state_when_it_succeeds() -> None:
    messages = conversation(
        ([human("go")], reply(c0=("sh", {"command": "make"}))),
        ([result("c0", "no", error=True)], reply(c1=("sh", {"command": "make"}))),
        ([result("c1", "made release 20261122")], reply("It is 20261122.")),
    )

    assert [use.category for use in uses(messages, NONE)] == ["state"]


def test_an_anchor_that_stands_inside_a_word_is_not_held() -> None:
    messages = conversation(([human(SOURCE)], reply("a")), ([human("on")], reply("see compare_digests and 482130")))

    assert not uses(messages, NONE)


def test_text_that_is_no_json_or_no_text_is_no_obstacle() -> None:
    odd = Message(role="assistant", parts=(wire.call_part("apply_patch", "c0", f"@@ no JSON\n-{LINE}".encode()),))
    image = Message(role="user", parts=(wire.part({"type": "image", "source": {}}, "user", "human"),))

    messages = conversation(([human(SOURCE), image], odd), ([result("c0", "\ud800")], reply("\ud800 48213")))

    assert [use.anchor for use in uses(messages, NONE)] == ["compare_digest", "user.token", "48213"]


WORDS = st.lists(
    st.sampled_from(["saveAll", "saveAlls", "loadAll", "a/b/c.go", "/a/b/c.go", "12345", "(", ".", " "]), max_size=5
)
STEPS = st.lists(st.tuples(*[WORDS.map(" ".join)] * 3), min_size=1, max_size=9)


@given(STEPS)
def test_uses_are_those_that_a_plain_search_finds(steps: list[tuple[str, str, str]]) -> None:
    messages = conversation(
        *(
            (
                [result(f"c{n - 1}", told) if n else human(told)],
                reply(text or "-", f"{thought}.", **{f"c{n}": ("sh", {})}),
            )
            for n, (told, text, thought) in enumerate(steps)
        )
    )

    expected = set()
    for number, call in enumerate(messages.calls):
        for anchor in reply_anchors(call.reply):
            blocks = [block for block in messages.blocks if block.seen <= number and stands_in(anchor, block.text)]
            said = [block for block in blocks if block.kind != "thinking"]
            if said:
                nt = all(block.call < number - 5 for block in blocks)
                at_risk = nt and {block.kind for block in said} == {"tool_result"}
                expected.add((number, anchor, tuple(block.number for block in blocks), nt, at_risk))

    assert {(use.call, use.anchor, use.blocks, use.nt, use.ar) for use in uses(messages, NONE)} == expected


def test_recorded_conversations_have_uses_of_every_kind(recordings: Path) -> None:
    files = sorted((recordings / "trajectories").glob("entire-cli-1*.jsonl.gz"))

    own = [use for conversation in conversations_in(files) for use in uses(conversation)]

    assert {use.kind for use in own} >= {"path", "identifier", "quoted", "line", "number"}
    assert {use.kind for use in own if use.ar} >= {"path", "identifier", "quoted", "line"}
    assert all(use.blocks for use in own)
    assert not [use for use in own if use.ar and not use.nt]
