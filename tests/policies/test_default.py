"""The default policy: what stands nowhere else and was used last stays; the agent's own tools, scopes, no planner."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from ctxvc.agent.tools.definitions import definitions, ours
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group
from ctxvc.core.plan import timing
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view.budget import NARROW, Budget
from ctxvc.policies import context_text, scoped, self_managed
from ctxvc.policies.default import Default
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.tokens.meter import Meter
from tests.making.conversation import LONG, human, injected, reply, steps
from tests.policies.laws import settled
from tests.policies.recorded import Run, running

POLICY = Default()
#: As hosts begin their summaries: of itself, a heading, an introduction, and then what it has to say.
_SUMMARY = """This session is being continued from a previous conversation. The summary below covers its beginning.

Analysis:
Let me go through the conversation chronologically.
1. **Request**: make every path in config.toml relative
"""


def call(
    number: int, tool: str, arguments: dict[str, object], output: str = LONG, error: bool = False
) -> list[Message]:
    name = f"call-{number}"
    part = wire.call_part(tool, name, json.dumps(arguments).encode())
    answer = wire.result_part(output, name, error=error)
    return [Message(role="assistant", parts=(part,)), Message(role="user", parts=(answer,))]


def state(run: Run, tool: str) -> list[str]:
    return [row.state for row in run.ledger.rows() if row.kind == "tool_use" and row.tool == tool]


def test_below_the_trigger_nothing_leaves_and_above_it_a_batch_goes_down_to_the_low_mark() -> None:
    made = running(human("Do it"), *steps(20))
    used = made.view(100_000).used
    assert not POLICY.propose(made.view(int(used / 0.94))).actions
    budget = int(used / 0.99)
    rehearsal = settled(POLICY, made, budget)
    assert 0.5 * budget < rehearsal.tokens_after <= 0.61 * budget


def test_a_batch_begins_earlier_and_goes_further_where_the_cache_has_expired() -> None:
    made = running(human("Do it"), *steps(20))
    view = made.view(int(made.view(100_000).used / 0.85))
    assert not POLICY.propose(view).actions
    cold = replace(view, idle=timing.USUAL.lifetime + 1)
    plan = POLICY.propose(cold)
    rehearsal = rehearse(cold, plan)
    assert rehearsal.tokens_after <= 0.56 * view.budget.effective
    decision = timing.moment(cold, rehearsal)
    assert decision.now and decision.why.startswith("the last call was 301 s ago, so the cache (300 s) has expired")
    assert not Default(cold_low_water=0.9).propose(cold).actions
    assert not POLICY.propose(replace(cold, idle=timing.USUAL.lifetime)).actions
    assert POLICY.propose(replace(view, budget=Budget(int(view.used / 0.99)))).pressure  # as without a pause


def test_a_batch_goes_down_to_the_low_mark_also_where_the_provider_counts_much_that_is_not_ours() -> None:
    made = running(human("Do it"), *steps(20))
    plain = made.view(100_000)
    constant = plain.used // 4  # a system prompt and tools that nobody showed us
    view = replace(plain, calibration=(1000, constant), budget=Budget(int((plain.used + constant) / 0.99)))
    freed = rehearse(view, POLICY.propose(view)).freed
    assert view.used - freed <= 0.61 * view.budget.effective


def test_where_a_result_leaves_a_short_stub_stands_below_its_call() -> None:
    made = running(human("Do it"), *steps(20))
    settled(POLICY, made, int(made.view(100_000).used / 0.99))
    stubs = {row.stub for row in made.ledger.rows() if row.kind == "tool_result" and row.stub and not row.group}
    assert stubs
    assert all(stub.count(";") == 0 and stub.endswith(" tokens]") for stub in stubs)


def test_the_newest_task_list_and_the_agreed_plan_stay_and_older_lists_leave() -> None:
    lists = [message for at in range(3) for message in call(at, "TodoWrite", {"todos": f"list {at} " * 40}, "ok")]
    plans = [*call(7, "ExitPlanMode", {"plan": "first " * 40}, "no", error=True)]
    agreed = [*call(8, "ExitPlanMode", {"plan": "do this and that " * 10}, "User has approved your plan")]
    made = running(human("Do it"), *plans, *agreed, *lists, *steps(12))
    settled(Default(low_water=0.0, trigger=0.0), made, 20_000)
    assert state(made, "TodoWrite") == ["archived", "archived", "visible"]
    assert state(made, "ExitPlanMode") == ["archived", "visible"]


def test_the_newest_summary_of_a_host_stays_and_older_ones_leave() -> None:
    made = running(human("Do it"), *steps(4), injected(LONG), *steps(4, first=5), injected(LONG), *steps(20, first=9))
    older, newer = (row for row in made.ledger.rows() if row.kind == "user" and row.origin == "client")
    left = [row for row in made.ledger.rows() if row.kind == "tool_result" and row.number < newer.number]
    first, second = (
        [row for row in left if row.number < older.number],
        [row for row in left if row.number > older.number],
    )
    groups = [
        Group(id=f"G{number}", members=tuple(row.id for row in rows), summary=(summary.id,), removed_by="host")
        for number, rows, summary in ((1, first, older), (2, second, newer))
    ]
    archived = [
        msgspec.structs.replace(row, state="archived", level=1, group=group.id, removed_by="host")
        for group, rows in zip(groups, (first, second), strict=True)
        for row in rows
    ]
    made.ledger = made.ledger.with_rows(archived).with_groups(groups)
    made.next_group = 3
    settled(Default(low_water=0.0, trigger=0.0), made, 20_000)
    assert [made.ledger[row.id].state for row in (older, newer)] == ["archived", "visible"]


def test_a_hosts_summary_of_a_quarter_of_a_small_window_stays_and_the_stub_of_a_larger_one_says_what_it_is() -> None:
    made = _summarised(LONG * 3)
    settled(Default(low_water=0.0, trigger=0.0), made, 10_300)
    assert [row.state for row in made.ledger.rows() if row.kind == "user" and row.origin == "client"] == ["visible"]
    made = _summarised(_SUMMARY + LONG * 3)
    settled(Default(low_water=0.0, trigger=0.0), made, 5_000)
    (stub,) = [slot.text for slot in outline(made.ledger) if slot.show == "text" and "summary" in slot.text]
    assert "the host's summary: “**Request**: make every path in config.toml relative”" in stub


def _summarised(text: str) -> Run:
    """A run that its host has compacted: a summary of this text stands in the place of the first steps."""
    made = running(human("Do it"), *steps(4), injected(text), *steps(8, first=5))
    rows = [row for row in made.ledger.rows() if row.step <= 4 and row.kind != "user"]
    summary = next(row for row in made.ledger.rows() if row.kind == "user" and row.origin == "client")
    group = Group(id="G1", members=tuple(row.id for row in rows), summary=(summary.id,), removed_by="host")
    archived = [msgspec.structs.replace(row, state="archived", level=1, group="G1", removed_by="host") for row in rows]
    made.ledger = made.ledger.with_rows(archived).with_groups([group])
    made.next_group = 2
    return made


def test_what_a_client_put_in_since_the_latest_reply_leaves_only_if_it_is_oversized() -> None:
    for length, state_after in ((10, "visible"), (40, "archived")):
        made = running(human("Do it"), *steps(10), injected(LONG * length))
        *_, newest = made.ledger.rows()
        settled(Default(low_water=0.1, trigger=0.1), made, 60_000)
        assert made.ledger[newest.id].state == state_after


def test_a_plan_that_takes_too_much_of_the_budget_leaves_like_others() -> None:
    made = running(human("Do it"), *call(8, "ExitPlanMode", {"plan": "do this " * 2_000}, "yes"), *steps(12))
    settled(Default(low_water=0.0, trigger=0.0), made, 15_000)
    assert state(made, "ExitPlanMode") == ["archived"]


def test_files_that_the_user_named_stay_whatever_the_length_of_their_path() -> None:
    """A call's label has 80 characters: of a longer path the file's name was not seen."""
    why = "because of this " * 20
    reads = [
        *call(1, "Read", {"file_path": "/work/docs/spec.md", "why": why}),
        *call(2, "Read", {"file_path": "/work/src/a.py", "why": why}),
    ]
    for protect, expected in ((("*.md",), "visible"), (("/work/docs/*",), "visible"), ((), "archived")):
        made = running(human("Do it"), *reads, *steps(12))
        settled(Default(low_water=0.0, trigger=0.0, protect=protect), made, 20_000)
        assert (state(made, "Read")[0], state(made, "Read")[1]) == (expected, "archived")

    path = f"/work/{'a-folder-with-a-long-name/' * 4}spec.md"
    read = call(1, "Read", {"file_path": path, "why": "because of this " * 20})
    made = running(human("Do it"), *read, *steps(12))
    settled(Default(low_water=0.0, trigger=0.0, protect=("spec.md",)), made, 20_000)
    assert state(made, "Read") == ["visible"]


def test_in_a_narrow_window_a_batch_goes_down_to_a_higher_mark() -> None:
    """In 12,000 tokens most of what leaves at 60 % is asked for again: a higher mark keeps a tenth more of it."""
    used = running(human("Do it"), *steps(10)).view(100_000).used
    budget = int(used / 0.99)
    assert budget < NARROW
    reached = {}
    for policy in (Default(), Default(narrow_low_water=0.5), Default(low_water=0.8), Default(trigger=0.65)):
        made = running(human("Do it"), *steps(10))
        reached[policy] = settled(policy, made, budget).tokens_after / budget
        assert reached[policy] <= policy.low(budget) + 0.01
    assert [policy.low(budget) for policy in reached] == [0.73, 0.6, 0.8, 0.65]
    assert reached[Default()] > 0.6 > reached[Default(narrow_low_water=0.5)]
    assert Default().low(NARROW) == Default().low(0) == 0.6


def test_in_a_narrow_window_no_more_leaves_after_a_pause_than_otherwise() -> None:
    made = running(human("Do it"), *steps(10))
    view = replace(made.view(int(made.view(100_000).used / 0.9)), idle=timing.USUAL.lifetime + 1)
    assert view.budget.window < NARROW
    after = [rehearse(view, policy.propose(view)).tokens_after for policy in (POLICY, Default(narrow_low_water=0.5))]
    assert 0.74 * view.budget.effective >= after[0] > after[1]
    assert [Default(narrow_low_water=share).cold_low(NARROW - 1) for share in (0.5, 0.7)] == [0.6, 0.7]
    assert Default().cold_low(NARROW) == 0.55


def test_in_a_narrow_window_the_model_has_three_tools_and_a_short_text() -> None:
    """Definitions, protocol and boards took an eighth of a window of 12,000 tokens."""
    terms, wide, count = POLICY.terms_in(12_000), POLICY.terms_in(NARROW), Meter(None).count
    assert wide == POLICY.terms()
    assert terms.tools == ("archive", "recover", "search")
    assert terms.visible_board == "status" and not terms.nudges
    assert count(json.dumps(definitions(terms))) + count(terms.protocol) < 500
    lines = terms.protocol.split("\n\n")
    assert context_text.paragraph("data", "brief") in lines and context_text.paragraph("blocked", "brief") in lines
    schemas = {tool["name"]: tool["input_schema"] for tool in definitions(wide)}
    for tool in definitions(
        terms
    ):  # what a narrow window has is a part of what a wide one has, and known there as ours
        properties = tool["input_schema"]["properties"]
        assert properties.items() <= schemas[tool["name"]]["properties"].items()
        assert tool["input_schema"]["required"] == schemas[tool["name"]]["required"]
    assert set(ours(definitions(terms), wide.tools)) == set(terms.tools)


def test_a_ceiling_counts_in_a_window_that_is_larger() -> None:
    made = running(human("Do it"), *steps(20))
    used = made.view(10**6).used
    assert not POLICY.propose(made.view(10**6)).actions
    rehearsal = settled(Default(ceiling=used), made, 10**6)
    assert rehearsal.tokens_after <= 0.61 * used
    assert Default(ceiling=used).high(Budget(10**6)) == int(used * 0.98)


def test_the_plan_says_of_each_block_why_it_leaves() -> None:
    made = running(human("Do it"), *steps(20))
    plan = POLICY.propose(made.view(int(made.view(100_000).used / 0.99)))
    for action in plan.actions:
        assert set(action.why) == set(action.targets)
        assert all(why.startswith("value ") and "words nowhere else" in why for why in action.why.values())


def test_a_batch_is_not_one_result_a_call() -> None:
    made = running(human("Do it"), *steps(18))
    batches = 0
    for number in range(20, 60):
        batches += bool(settled(POLICY, made, 16_000))
        made.append(*steps(1, first=number))
    assert batches < 10


def test_it_asks_for_the_tools_of_both_with_one_text_that_repeats_nothing() -> None:
    terms = POLICY.terms()
    assert set(terms.tools) == {*self_managed.TOOLS, *scoped.TOOLS, "dashboard"}
    assert len(terms.tools) == len(set(terms.tools))
    lines = terms.protocol.split("\n\n")
    assert len(lines) == len(set(lines))
    usual = SelfManaged(board="changes").terms().protocol.split("\n\n")
    assert {*usual, context_text.paragraph("leaving")} <= set(lines)
    assert (terms.board, terms.handles, terms.ladder, terms.batch) == ("changes", True, {"soft_limit": 200_000}, 0)


def test_a_weight_changes_what_leaves() -> None:
    names = " ".join(f"name_{number:04}" for number in range(200))
    texts = [human("Do it"), reply(names), *call(1, "sh", {"command": "make"}, names.replace("name", "other"))]

    def first(*weights: str) -> str:
        made = running(*texts, *steps(2, "newest words", first=2))
        used = made.view(10**6).used
        plan = Default(trigger=0.9, low_water=0.8, weights=weights).propose(made.view(used))
        return plan.actions[0].targets[0]

    assert (first("text=100"), first("run=100")) == ("B4", "B2")


def test_the_oldest_stubs_leave_where_words_of_a_human_keep_them_from_being_one_group() -> None:
    def turn(number: int) -> list[Message]:
        return [human(f"{number}?"), reply(" ".join(f"answer_{number}_{at}" for at in range(40)))]

    made = running(*[message for at in range(200) for message in turn(at)], *steps(1))
    budget = made.view(10**6).used // 3
    for number in range(200, 230):
        settled(POLICY, made, budget)
        made.append(*turn(number), *steps(1, "short", first=number))
    stubs = [slot for slot in outline(made.ledger) if slot.show == "text" and slot.kind != "tool_result"]
    assert "pruned" in [row.state for row in made.ledger.rows()]
    assert sum(made.view().price.text(slot.text) for slot in stubs) <= 0.13 * budget
