"""`plan`: what a policy would take out of the prompt, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers.shared import (
    Answer,
    BlockId,
    CommitId,
    CutTokens,
    Item,
    LeftOut,
    PromptTokens,
    ScopeName,
    SessionName,
    TimeText,
    described,
    first_ranges,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.policy_and_model import model_options, parsed, unasked, usual, with_model
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import Column, Output, Tokens, safe
from ctxvc.cli.verb import cut_part, left_out
from ctxvc.core.ledger.ledger import blocks_of
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import CommitDecision, committed, reckon
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget, check
from ctxvc.core.view.view import View, costs
from ctxvc.errors import BadInput
from ctxvc.policies import spec
from ctxvc.policies.run import ask_plan, ask_timing
from ctxvc.session.session import Session
from ctxvc.store import pending_plans
from ctxvc.store.log.stored_session import StoredSession

#: The most actions that are listed; `--json` has all.
_MOST_ACTIONS = 60


@command("plan", "ctxvc plan --policy layered --budget 32k")
@click.option("--policy", "spec", metavar="POLICY", default="",
              help="NAME:knob=value,…; several joined by + (the session's own, else default).")  # fmt: skip
@click.option("--budget", metavar="TOKENS", type=TokenAmount(), help="Window to plan for (the session's own).")
@click.option("--commit", is_flag=True, help="Apply the plan.")
@click.option("--wait", is_flag=True, help="Queue it until applying it costs no cached prefix.")
@click.option("--pending", is_flag=True, help="List pending plans.")
@click.option("--drop", metavar="PLAN", multiple=True, help="Drop a pending plan, as in P3.")
@model_options
@json_option
@click.pass_context
def plan(
    ctx: click.Context, spec: str, budget: int | None, commit: bool, wait: bool, pending: bool, drop: tuple[str, ...],
    model: str, script: Path | None,
) -> None:  # fmt: skip
    """Nothing changes without --commit or --wait. `ctxvc policies` lists the policies and their knobs; a policy of your
    own is `path.py:Class:knob=value`. A policy that can use a model follows fixed rules here unless --planner names
    one, which is then sent the live prompt.
    """
    app = ctx.ensure_object(App)
    if commit and wait:
        raise click.UsageError("give either --commit or --wait")
    if (pending or drop) and (spec or budget or commit or wait or model or script):
        raise click.UsageError("--pending and --drop are for pending plans and do not make a new one")

    with app.store() as store, StoredSession.open(store, app.session_name(store)) as stored:
        if drop or pending:
            _print_pending(app, Session(stored, actor="user"), drop)
            return
        meta = stored.ledger().meta
        policy = parsed(spec, app.folder) if spec else usual(app, meta.policy)
        if not budget and not meta.budget and (setting := app.setting("budget")):
            budget = setting.value
        session = Session(stored, actor="user", policy=policy, meter=app.meter(store, stored.ledger()))
        policy = with_model(app, session, policy, model, script)
        view = unasked(session.view())
        if budget:
            view = replace(view, budget=check(Budget(budget, view.budget.reserve, view.budget.ladder)))
        proposal = ask_plan(policy, view)
        rehearsal = session.commit(proposal) if commit else rehearse(view, proposal)
        answer = _planned(session, policy, view, rehearsal)
        if commit:
            answer = msgspec.structs.replace(answer, committed=bool(rehearsal))
        elif wait and rehearsal:
            answer = msgspec.structs.replace(answer, waits=session.propose(proposal).id)
    skipped = "\n".join(map(safe, left_out("remove", answer.problems)))
    app.output.answer(answer, _lines(app.output, answer), skipped)


def _planned(session: Session, policy: Policy, view: View, rehearsal: Rehearsal) -> Planned:

    decision = _judged(policy, view, rehearsal) if rehearsal else None
    tokens_left = session.left(rehearsal)
    return struct_of(
        Planned,
        rehearsal.plan,
        session=session.name,
        scope=session.scope,
        policy=spec(policy),
        window=view.budget.effective,
        tokens_before=view.calibrated(rehearsal.tokens_before),
        tokens_after=tokens_left,
        tokens_cut=view.calibrated(rehearsal.tokens_after) - tokens_left,
        now=decision.now if decision else False,
        moment=decision.why if decision else "",
        benefit=round(decision.benefit) if decision else 0,
        cost=round(decision.cost) if decision else 0,
        items=_actions(policy, view, rehearsal),
        problems=[struct_of(LeftOut, problem) for problem in rehearsal.problems],
    )


def _judged(policy: Policy, view: View, rehearsal: Rehearsal) -> CommitDecision:
    """The policy's decision whether to commit now, with benefit and cost, even if the policy leaves those out."""

    decision = ask_timing(policy, view, rehearsal)
    if decision.benefit or decision.cost:
        return decision
    return reckon(view, rehearsal, policy.timing).moment(decision.why or "no reason given", now=decision.now)


def _actions(policy: Policy, view: View, rehearsal: Rehearsal) -> list[PlannedAction]:
    """The actions, each with the tokens it frees and the cost of rewriting the cache from its first block on.

    A block in two actions counts for the last of them, which decides its final state.
    """

    before, after = costs(view.ledger, view.price), costs(rehearsal.after, view.price)
    dearer = (policy.timing.write_price - policy.timing.read_price) * view.calibration[0] / 1000
    rewrite_costs: dict[str, float] = {}  # block → the cost of writing the rest of the new prompt from there on
    rewrite_cost = 0.0
    for block, cost in reversed(list(costs(committed(rehearsal), view.price).items())):
        rewrite_cost += cost.shown * dearer
        rewrite_costs[block] = rewrite_cost
    counted: set[str] = set()
    items: list[PlannedAction] = []
    remaining = rehearsal.tokens_before
    for action in reversed(rehearsal.done):
        members = [
            block for target in action.targets for block in (blocks_of(rehearsal.after.groups, target) or [target])
        ]
        blocks = before.keys() & members
        tokens_after = remaining - sum(before[block].shown - after[block].shown for block in blocks - counted)
        items.append(
            struct_of(
                PlannedAction,
                action,
                freed=view.calibrated(remaining) - view.calibrated(tokens_after),  # rounded so that all of them add up
                cache=round(max((rewrite_costs[block] for block in blocks), default=0)),
            )
        )
        counted |= blocks
        remaining = tokens_after
    return items[::-1]


def _lines(output: Output, answer: Planned) -> Iterator[str]:
    share = f"{output.estimate(answer.tokens_before)} tokens of {output.tokens(answer.window)}"
    yield output.style(f"{safe(answer.policy)}: {share}", bold=True)
    if answer.reason:
        yield safe(f"why: {answer.reason}")
    if not answer.items:
        yield "nothing to do"
        return
    yield from output.table_lines(table_of(PlannedAction, answer.items[:_MOST_ACTIONS]))
    if len(answer.items) > _MOST_ACTIONS:
        yield f"{len(answer.items) - _MOST_ACTIONS:,} more actions; --json lists them"
    remain = "are" if answer.committed else "would be"
    freed, after = map(output.estimate, (answer.tokens_before - answer.tokens_after, answer.tokens_after))
    yield from output.wrapped(f"{freed} tokens freed{cut_part(output, answer.tokens_cut)}; {after} {remain} left")
    if answer.moment:
        yield safe(f"the cache: {answer.moment}; {'commit now' if answer.now else 'better wait'}")
    if answer.committed:
        yield "committed"
    elif answer.waits:
        yield f"pending as {answer.waits}: `ctxvc plan --pending` lists it"
    else:
        yield "nothing was changed: --commit applies the plan"


def _print_pending(app: App, session: Session, drop: tuple[str, ...]) -> None:
    dropped = session.drop(*drop) if drop else ()
    missing = [name for name in drop if name not in dropped]
    answer = PendingPlans(
        session=session.name,
        scope=session.scope,
        dropped=list(dropped),
        items=[_pending(pending) for pending in session.pending()],
    )
    if dropped and not app.output.json:
        app.output.note(f"dropped {', '.join(dropped)}")
    none = "" if answer.items else "no pending plans; `ctxvc plan --wait` queues one"
    app.output.answer(answer, table_of(PendingPlan, answer.items), none)
    if missing:
        raise BadInput(
            f"no pending plan {', '.join(missing)[:80]} here", hint="`ctxvc plan --pending` lists pending plans"
        )


def _pending(pending: pending_plans.PendingPlan) -> PendingPlan:
    actions = [struct_of(PlannedAction, action, freed=0, cache=0) for action in pending.plan.actions]
    return struct_of(PendingPlan, pending, pending.plan, actions=actions)


class PlannedAction(Item, frozen=True, kw_only=True):
    """A verb on blocks and groups."""

    TABLE = "verb targets freed cache index"

    verb: Annotated[str, Column("what")]
    targets: Annotated[list[BlockId], Column("blocks", least=16, cell=first_ranges)]
    index: Annotated[
        str,
        described("index text of an archive, the summary, or the reason for a mask or prune"),
        Column("why", least=16),
    ]
    freed: Annotated[int, described("tokens; 0 for a pending plan"), Column("~tokens freed", right=True, cell=Tokens)]
    cache: Annotated[
        int,
        described("cost of rewriting the cache after it, in fresh input tokens; 0 for a pending plan"),
        Column("~cache cost", right=True, rank=1, cell=Tokens),
    ]


class Planned(Answer, frozen=True, kw_only=True, tag="ctxvc.plan/1"):
    """`plan`. Tokens are as the provider would count them."""

    session: SessionName
    scope: ScopeName
    policy: Annotated[str, described("the policy with its knobs, as `--policy` takes it")]
    actor: Annotated[str, described("the actor it would be recorded as")]
    reason: Annotated[str, described("the reason, also if nothing is to be done")]
    window: Annotated[int, described("tokens allowed for the prompt")]
    tokens_before: PromptTokens
    tokens_after: Annotated[int, described("tokens that remain once it is applied")]
    tokens_cut: CutTokens
    now: Annotated[bool, described("whether applying it now is worth breaking the cache")]
    moment: Annotated[str, described("why now or why later, with the calculation")]
    benefit: Annotated[int, described("savings of applying it now minus their cost, in fresh input tokens")]
    cost: Annotated[int, described("cost of the broken cache and the planning, in fresh input tokens")]
    committed: bool = False
    waits: Annotated[str, described("id of the plan, if it was queued")] = ""
    items: list[PlannedAction]
    problems: list[LeftOut]


class PendingPlan(Item, frozen=True, kw_only=True):
    """A pending plan."""

    TABLE = "id actor actions time reason"

    id: Annotated[str, described("`P3`"), Column("plan")]
    time: Annotated[TimeText, Column("created")]
    base_commit: CommitId
    actor: Annotated[str, Column("by")]
    reason: Annotated[str, Column("why", least=16)]
    actions: Annotated[list[PlannedAction], Column("actions", right=True, cell=len)]


class PendingPlans(Answer, frozen=True, kw_only=True, tag="ctxvc.plans/1"):
    """`plan --pending`, `plan --drop`"""

    session: SessionName
    scope: ScopeName
    dropped: list[str]
    items: list[PendingPlan]
