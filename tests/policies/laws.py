"""What holds for every policy, whatever it is given: docs/laws.md, as one check and one drive through a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Action, Plan, Rehearsal, View
from ctxvc.core.plan.guard import guard
from ctxvc.core.plan.protected import protected
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.undo import inverse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt import cut, recover
from ctxvc.core.prompt.outline import outline
from ctxvc.core.prompt.recover import Recovered
from ctxvc.core.prompt.request import request
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import cost_of, measure
from ctxvc.policies.composed import after
from tests.making.generated import conversations, plans
from tests.messages_api.rules import canonical_problems
from tests.policies.recorded import Run, moved, running

#: What a row says of its block that no verb may change.
_FIXED = ("id", "kind", "role", "origin", "msg", "step", "turn", "call", "tool", "bytes", "sha256", "ext", "files")

BUDGETS = (12_000, 32_000, 80_000, 128_000)
#: A budget that everything fits in.
ROOMY = Budget(window=10**9)
#: Of the blocks that left, so many are read out part by part, and tokens of a part.
_READ, _PART = 6, 2_000

#: How a reason tells by how much the budget is passed, and what is left that may not leave.
_OVER = re.compile(r"([0-9,]+) (?:too many|(?:are )?over the budget)")
_NOTHING = re.compile(r"([0-9,]+) of ([0-9,]+) tokens: nothing more can leave below")
_STAYS = re.compile(r"remaining: ([^;]*)")
_AMOUNT = re.compile(r"(?<![\w-])[0-9][0-9,]*(?= )")
#: Where the address of a block or a group stands in a text of ours.
_ADDRESS = re.compile(r"\b([BG][0-9]+)@")


#: Tokens, about those of a stub: where a budget cannot be met, so few are no reason to break the cached prefix again.
TRIFLE = 32
#: Tokens of the smallest budget: a few stubs fit.
_LEAST = 100
#: Every request asks the guard: beside what left before one, a block may save what it did not.
_REQUESTS = 4


def check(policy: Policy, view: View, run: Run, *, for_budget: bool = True) -> Rehearsal:
    """Proposes and rehearses, and asserts the laws; gives the rehearsal.

    A policy that is not there `for_budget` need not tell by how much it is passed: the guard, behind it, does.
    """
    bodies = dict(run.bodies)
    plan = policy.propose(view)
    assert policy.propose(view) == plan, "the same view, the same plan"
    rehearsal = rehearse(view, plan)
    assert rehearse(view, plan) == rehearsal, "the same plan, the same rehearsal"
    before, now = view.ledger, rehearsal.after
    settled = after(view, now)
    # Bodies never change: every block is there, is what it was, and its bytes are those of its checksum.
    assert [row.id for row in before.rows()] == [row.id for row in now.rows()]
    for old, new in zip(before.rows(), now.rows(), strict=True):
        assert all(getattr(old, name) == getattr(new, name) for name in _FIXED), new.id
        if old.present and not new.present:
            assert hashlib.sha256(bodies[new.id]).hexdigest() == new.sha256
            assert not is_human(new.role, new.origin), f"what a human wrote: {new.id} is a human's"
            assert old.state != "pinned", new.id
            assert new.state in ("archived", "pruned"), new.id  # what a policy takes can be restored by anyone
    for group in now.groups.values():
        assert all(now.get(block) is not None for block in blocks_of(now.groups, group.id)), "lost"
    if rehearsal:
        _can_be_had_again(view, rehearsal, run, bodies)
    # A stub saves: it saves, or it changes nothing; and it is done when it is done.
    assert (
        rehearsal.tokens_after < rehearsal.tokens_before
        if rehearsal
        else rehearsal.tokens_after == rehearsal.tokens_before
    )
    again = policy.propose(settled)
    repeated = rehearse(settled, again)
    # Where a budget of a few tokens cannot be met, what left may let a block of a token or two save what it did not.
    trifle = settled.used > settled.budget.effective and repeated.freed < TRIFLE
    assert not repeated or trifle, f"not idempotent: {again.actions[:3]} {again.reason}"
    assert not rehearse(settled, plan), "what is done can be done again"
    # Below the budget, or the reason says by how much not; the guard behind it brings it there, if that can be.
    if view.calibrated(rehearsal.tokens_after) > view.budget.effective:
        if for_budget:
            _over_is_told(plan, settled)
        _guard_does_what_can_be_done(settled, run)
    assert not problems(settled, run), "invalid"
    return rehearsal


def settled(policy: Policy, run: Run, budget: int) -> Rehearsal:
    """Proposes, rehearses, checks the laws and commits."""
    tried = check(policy, run.view(budget), run)
    moved(run, tried)
    return tried


def check_generated(policy: Policy, data: st.DataObject) -> Rehearsal:
    """The laws on a generated conversation, of which something may have left already.

    The budget is a fixed one, that the conversation is often too large for, or one of the four in the proportion that
    it has to a conversation of 128,000 tokens.
    """
    run = running(*data.draw(conversations(odd=False, unique_calls=True)))
    for _ in range(data.draw(st.integers(0, 2))):
        if run.ledger.rows():
            plan = data.draw(plans(run.ledger, actors=["agent", "guard"]))
            moved(run, rehearse(run.view(10**6), plan, roll_up=data.draw(st.booleans())))
    cost = measure(run.ledger, run.view().price)
    shares = [max(_LEAST, cost * budget // BUDGETS[-1]) for budget in BUDGETS]
    return check(policy, run.view(data.draw(st.sampled_from([_LEAST, 400, 2_000, 10**6, *shares]))), run)


# --- what left can be had again


def _can_be_had_again(view: View, rehearsal: Rehearsal, run: Run, bodies: Mapping[str, bytes]) -> None:
    """What left is found by what stands in the prompt, reads out as it was, and comes back as it was."""
    before, now = view.ledger, rehearsal.after
    pairs = [(old, new) for old, new in zip(before.rows(), now.rows(), strict=True) if old != new]
    gone = [new for old, new in pairs if old.present and not new.present]
    if view.handles:
        _is_found(gone, now, set(_ADDRESS.findall("".join(slot.text for slot in outline(now)))))
    for row in gone[:: max(1, len(gone) // _READ)]:
        if row.kind not in ("image", "document") or row.ext == "json":  # others are no text
            whole = recover.readable(row, bodies[row.id])
            assert read_out(row, run.held().body(row)) == whole, f"{row.id} reads out otherwise"
    # An undo sets back all of it, and a person's restore what left by it, each block whole and in its place.
    rows, groups, stale = inverse(before, now, now)
    undone = now.with_rows(rows).with_groups(groups)
    assert not stale
    assert list(undone.rows()) == list(before.rows())
    assert undone.groups == before.groups
    assert outline(undone) == outline(before)
    taken = tuple(new.id for old, new in pairs if old.present and new.state != old.state)
    restore = Plan(actions=(Action(verb="restore", targets=taken),), actor="user")
    back = rehearse(replace(after(view, now), budget=ROOMY), restore)
    assert not back.problems, back.problems[:3]
    stands = {slot.row.id: slot for slot in outline(back.after)}
    for block in taken:
        assert back.after[block].state == "visible"
        if block in stands:  # but for what a cut took since, or what nobody can be sent
            assert stands[block].show == "body"
            assert run.held().body(stands[block].row) == bodies[block]
    if all(row.state in ("visible", "pinned") for row in before.rows()):
        assert outline(back.after) == outline(before), "restored, the prompt is another"


def _is_found(gone: Iterable[Row], ledger: Ledger, printed: set[str]) -> None:
    """Each block that was archived has its own address in the prompt, or that of a group which lists it.

    What was pruned leaves no stub: it is found by its number, which the log and the status name.
    """
    inside = {block for name in printed if name in ledger.groups for block in blocks_of(ledger.groups, name)}
    lost = [row.id for row in gone if row.state == "archived" and row.id not in printed | inside]
    assert not lost, f"nothing in the prompt leads to {lost[:5]}"


def read_out(row: Row, body: bytes) -> str:
    """All of a block's text as a model reads it: part after part, each by the call that the one before it names."""
    read, asked = "", dict[str, recover.Range]()
    while True:
        part = recover.recovered(row, body, most=_PART, count=lambda words: len(words) // 4 + 1, **asked)
        assert part.tokens <= _PART
        read += part.content
        if part.complete:
            return read
        asked = _next(part)


def _next(part: Recovered) -> dict[str, recover.Range]:
    """What the call for the next part asks for."""
    unit, _, words = part.next.rpartition(" --")[2].partition(" ")
    return {unit: recover.span(words)}


# --- the budget


def _over_is_told(plan: Plan, settled: View) -> None:
    """The reason has the amount by which the budget is passed, or the amounts of which what is left is made."""
    left = settled.used
    over = left - settled.budget.effective
    told = [_number(amount) for amount in _OVER.findall(plan.reason)]
    told += [_number(used) - _number(budget) for used, budget in _NOTHING.findall(plan.reason)]
    if any(abs(amount - over) <= TRIFLE + over // 50 for amount in told):
        return
    stays = _STAYS.findall(plan.reason)
    assert stays, f"{over:,} over the budget without a word of it: {plan.reason}"
    made_of = settled.calibrated(sum(_number(amount) for amount in _AMOUNT.findall(stays[-1])))
    texts = sum(cost_of(slot, settled.price) for slot in outline(settled.ledger) if slot.show == "text")
    assert abs(left - made_of) <= settled.calibrated(texts) + TRIFLE, (
        f"{left:,} are left, not {made_of:,}: {plan.reason}"
    )


def _guard_does_what_can_be_done(settled: View, run: Run) -> None:
    """It comes below the budget; or nothing is left that may leave, and for each block there is a reason why not."""
    view = settled
    for _ in range(_REQUESTS):
        guarded = guard(view)
        if not guarded:
            break
        view = after(view, _with_cut(guarded.after, cut.before_reply(guarded.after)))
        assert not problems(view, run), "invalid behind the guard"
    assert all(
        row.present for row in view.ledger.rows() if is_human(row.role, row.origin) and settled.ledger[row.id].present
    )
    if view.used <= view.budget.effective:
        return
    rows = [row for row in view.ledger.rows() if row.state in ("visible", "masked") and row.kind != "dashboard"]
    # The newest step is that of the scope, as the guard has it: its replies may have left. Before it, what an
    # instruction file said stays.
    latest = max((row.step for row in view.ledger.rows() if row.role == "assistant"), default=0)
    kept = protected(view.ledger) - {row.id for row in rows if row.kind == "tool_result" and row.step == latest}
    each = tuple(Action(verb="archive", targets=(row.id,)) for row in rows if row.kind != "thinking")
    more = rehearse(view, Plan(actions=each, actor="guard", pressure=True), protect=kept)
    assert not more or more.freed < TRIFLE, (
        f"{[(row.id, row.kind, view.price.body(row)) for row in more.rows[:5]]} could leave too"
    )
    if not more:
        assert {problem.target for problem in more.problems} == {block for action in each for block in action.targets}


def _number(words: str) -> int:
    return int(words.replace(",", ""))


# --- the prompt


def _sent(ledger: Ledger, run: Run) -> Sequence[object]:
    """The messages of the prompt of a ledger."""
    return request(ledger, run.held(), None, None).messages


def problems(view: View, run: Run) -> Sequence[str]:
    """What the provider would refuse in the prompt of a view, with a human's word behind it."""
    messages = _sent(view.ledger, run)
    if not messages:
        return ()
    if messages[-1]["role"] == "assistant":
        messages = [*messages, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
    return canonical_problems(messages)


def drive(
    policy: Policy, messages: Sequence[Message], budget: int | Budget, *, every: int = 8, for_budget: bool = True
) -> Run:
    """Plays a recorded run under the policy, which is asked after each step, and checked after every so many.

    A turn begins with a cut here, a committed plan comes with one, and the guard acts last.
    """
    run = Run()
    for number, message in enumerate(messages):
        human = message.role == "user" and any(is_human(part.role, part.origin) for part in message.parts)
        if human:
            _cut(run, cut.at_turn(run.ledger))
        run.append(message)
        if message.role == "assistant":
            continue  # its calls are open
        view = run.view(budget)
        tried = (
            check(policy, view, run, for_budget=for_budget)
            if number % every == 0
            else rehearse(view, policy.propose(view))
        )
        keep(run, tried)
        guarded = guard(run.view(budget))
        if guarded:
            keep(run, guarded)
    return run


def keep(run: Run, rehearsal: Rehearsal) -> None:
    """The run goes on with what was rehearsed, and with the cut that comes with a committed plan."""
    if not rehearsal:
        return
    run.ledger = rehearsal.after
    run.next_group = max([run.next_group, *(int(name[1:]) + 1 for name in rehearsal.after.groups)])
    _cut(run, cut.before_reply(run.ledger))


def _cut(run: Run, made: tuple[int, ...]) -> None:
    run.ledger = _with_cut(run.ledger, made)


def _with_cut(ledger: Ledger, made: tuple[int, ...]) -> Ledger:
    return ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=made))
