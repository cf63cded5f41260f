"""What holds for every policy, whatever it is given: DESIGN's laws, as one check and one drive through a run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from ctxvc.core import cuts
from ctxvc.core.blocks import Message
from ctxvc.core.budget import Budget
from ctxvc.core.draft import blocks_of
from ctxvc.core.engine import rehearse
from ctxvc.core.guard import guard
from ctxvc.core.numbering import is_human
from ctxvc.core.plan import Rehearsal, View
from ctxvc.core.policy import Policy
from ctxvc.policies import after
from ctxvc.request import request
from tests.messages_api.rules import canonical_problems
from tests.policies.recorded import Run

#: What a row says of its block that no verb may change.
_FIXED = ("id", "kind", "role", "origin", "msg", "step", "turn", "call", "tool", "bytes", "sha256", "ext", "files")

BUDGETS = (12_000, 32_000, 80_000, 128_000)


def check(policy: Policy, view: View, run: Run) -> Rehearsal:
    """Proposes and rehearses, and asserts the laws; gives the rehearsal."""
    plan = policy.propose(view)
    assert policy.propose(view) == plan, "the same view, the same plan"
    tried = rehearse(view, plan)
    before, now = view.ledger, tried.after
    # Law 1, and nothing is lost: every block is there, is what it was, and its bytes are those of its checksum.
    assert [row.id for row in before.rows()] == [row.id for row in now.rows()]
    for old, new in zip(before.rows(), now.rows(), strict=True):
        assert all(getattr(old, name) == getattr(new, name) for name in _FIXED), new.id
        if old.present and not new.present:
            assert hashlib.sha256(run.bodies[new.id]).hexdigest() == new.sha256
            assert not is_human(new.role, new.origin), f"law 6: {new.id} is a human's"
            assert old.state != "pinned", new.id
            assert new.state in ("archived", "pruned"), new.id  # what a policy takes can be restored by anyone
    for group in now.groups.values():
        assert all(now.get(block) is not None for block in blocks_of(now.groups, group.id)), "law 10"
    # Law 7: it saves, or it changes nothing; and it is done when it is done.
    assert tried.tokens_after < tried.tokens_before if tried else tried.tokens_after == tried.tokens_before
    settled = after(view, now)
    again = rehearse(settled, policy.propose(settled))
    assert not again.rows and not again.groups, f"not idempotent: {again.plan.actions[:3]} {again.plan.reason}"
    # Law 5: below the budget, or the reason is told; the guard behind it brings it there, if that can be.
    if view.calibrated(tried.tokens_after) > view.budget.effective:
        assert plan.reason, "over the budget without a word"
        guard(settled)
    assert not problems(settled, run), "law 4"
    return tried


def problems(view: View, run: Run) -> Sequence[str]:
    """What the provider would refuse in the prompt of a view, with a human's word behind it."""
    messages = request(view.ledger, run.held(), None, None).messages
    if not messages:
        return ()
    if messages[-1]["role"] == "assistant":
        messages = [*messages, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
    return canonical_problems(messages)


def drive(policy: Policy, messages: Sequence[Message], budget: int | Budget, *, every: int = 8) -> Run:
    """Plays a recorded run under the policy, which is asked after each step, and checked after every so many.

    As in a session, a turn begins with a cut, a committed plan comes with one, and the guard acts last.
    """
    run = Run()
    for number, message in enumerate(messages):
        human = message.role == "user" and any(is_human(part.role, part.origin) for part in message.parts)
        if human:
            _cut(run, cuts.at_turn(run.ledger))
        run.append(message)
        if message.role == "assistant":
            continue  # its calls are open
        view = run.view(budget)
        tried = check(policy, view, run) if number % every == 0 else rehearse(view, policy.propose(view))
        keep(run, tried)
        guarded = guard(run.view(budget))
        if guarded:
            keep(run, guarded)
    return run


def keep(run: Run, tried: Rehearsal) -> None:
    """The run goes on with what was rehearsed, and with the cut that comes with a committed plan."""
    if not tried:
        return
    run.ledger = tried.after
    run.next_group = max([run.next_group, *(int(name[1:]) + 1 for name in tried.after.groups)])
    _cut(run, cuts.before_reply(run.ledger))


def _cut(run: Run, made: tuple[int, ...]) -> None:
    run.ledger = run.ledger.with_meta(msgspec.structs.replace(run.ledger.meta, cuts=made))
