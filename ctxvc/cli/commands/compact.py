"""`compact`: old blocks leave the prompt now, replaced by stubs and summaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click
import msgspec

from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import (
    ActedGroup,
    Answer,
    CutTokens,
    EffectField,
    Item,
    LeftOut,
    PromptTokens,
    ScopeName,
    SessionName,
    described,
    first_ranges,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.policy_and_model import model_options, parsed, unasked, with_model
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import Column, Output, safe
from ctxvc.cli.verb import cut_part
from ctxvc.core.plan.plan import Action, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget, check
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput
from ctxvc.policies import spec
from ctxvc.policies.layered import Layered
from ctxvc.policies.run import ask_plan
from ctxvc.session.compaction import focus_words
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession

#: If no policy and no budget are named: old results are cleared until the first share of the prompt is left; if more
#: than the second remains, old steps are summarised.
CLEARED = 0.4
SUMMARISED = 0.5

#: The most ids and ranges that are named; `--json` has all.
_MOST_NAMED = 12
_WORDS = {"summarise": "summarised", "mask": "masked", "prune": "pruned", "delete": "deleted", "restore": "restored"}


@command("compact", "ctxvc compact --dry-run")
@click.option("--policy", "spec", metavar="POLICY", default="", help="Policy to use: NAME:knob=value,… (layered).")
@click.option("--budget", metavar="TOKENS", type=TokenAmount(),
              help="Window to which the policy's thresholds apply (the prompt's present size).")  # fmt: skip
@click.option("--focus", metavar="TEXT", default="", help="What to keep: blocks with one of its words leave last.")
@click.option("--dry-run", is_flag=True, help="Show what would leave, without changing anything.")
@model_options
@json_option
@click.pass_obj
def compact(
    app: App, spec: str, budget: int | None, focus: str, dry_run: bool, model: str, script: Path | None
) -> None:
    """Archives old results down to 40 % of the prompt; summarises older steps if that is not enough. Human messages and
    the newest steps stay. `ctxvc recover` reads what left, `ctxvc undo` takes the whole compaction back. Without
    --planner, a summary is extracted from the text by rule.
    """

    usual = Layered() if budget else Layered(clear=CLEARED, summarise=SUMMARISED)
    policy = _focused(parsed(spec, app.folder) if spec else usual, focus)
    if dry_run:
        with app.reading() as stored:
            session = Session(stored, actor="user", policy=policy, meter=app.meter(stored.store, stored.ledger()))
            policy = with_model(app, session, policy, model, script)
            answer = _compacted(session, policy, budget or 0, dry_run=True)
    else:
        with (
            app.store() as store,
            Session(StoredSession.open(store, app.session_name(store)), actor="user", policy=policy) as session,
        ):
            policy = with_model(app, session, policy, model, script)
            answer = _compacted(session, policy, budget or 0, dry_run=False)
            if answer.committed:
                answer = msgspec.structs.replace(answer, effect=hosts.effect(app, session))
    app.output.answer(answer, _lines(app.output, answer, dry_run=dry_run), hosts.advice(answer.effect))


def _focused(policy: Policy, text: str) -> Policy:
    """The policy with the words of a text in its focus, short and common ones left out. Raises: BadInput."""

    if not text:
        return policy
    focus = focus_words(text)
    if not focus:
        raise BadInput(f"--focus {text[:60]!r} has no word to look for", hint="name files, functions, or a subject")
    if not isinstance(policy, Layered):
        raise BadInput(f"policy {policy.name} does not take --focus", hint="leave out --policy, or use layered")
    return msgspec.structs.replace(policy, focus=focus)


def _compacted(session: Session, policy: Policy, window: int, *, dry_run: bool) -> Compacted:

    view = unasked(session.view())
    before = session.used()
    plan = ask_plan(policy, _under(view, window, before))
    rehearsal = rehearse(view, plan, roll_up=True) if dry_run else session.commit(plan, roll_up=True)
    after = session.left(rehearsal) if dry_run else session.used()
    return Compacted(
        session=session.name,
        scope=session.scope,
        policy=spec(policy),
        reason=plan.reason,
        committed=bool(rehearsal) and not dry_run,
        tokens_before=before,
        tokens_after=after,
        tokens_cut=max(0, view.calibrated(rehearsal.tokens_after) - after),
        items=_items(rehearsal),
        groups=[struct_of(ActedGroup, group) for group in rehearsal.groups if group.members and not group.group],
        problems=[struct_of(LeftOut, problem) for problem in rehearsal.problems],
    )


def _under(view: View, window: int, present: int) -> View:
    """The view with the given window, else with one as small as the present prompt."""

    window_size, reserve, present = window or view.budget.window, view.budget.reserve, max(1, present)
    if not window:
        window_size, reserve = max(window_size, present), max(window_size, present) - present
    return replace(view, budget=check(Budget(window_size, reserve, view.budget.ladder)))


def _items(rehearsal: Rehearsal) -> list[CompactedPart]:
    """The blocks that left, grouped by how they left."""
    blocks: dict[str, list[str]] = {}
    for action in rehearsal.done:
        blocks.setdefault(_way(action), []).extend(action.targets)
    return [CompactedPart(what=way, blocks=ids) for way, ids in blocks.items()]


def _way(action: Action) -> str:
    if action.verb != "archive":
        return _WORDS.get(action.verb, action.verb)
    return "offloaded" if action.preview else "cleared" if len(action.targets) == 1 else "archived"


def _lines(output: Output, answer: Compacted, *, dry_run: bool) -> Iterator[str]:
    yield safe(answer.reason)
    if not answer.items:
        yield "nothing to do"
        return
    yield from output.table_lines(table_of(CompactedPart, answer.items))
    for group in answer.groups:
        yield safe(group.stub.partition("\n")[0])
    freed, after = map(output.estimate, (answer.tokens_before - answer.tokens_after, answer.tokens_after))
    cut = cut_part(output, answer.tokens_cut)
    if dry_run:
        line = f"{freed} tokens would be freed{cut}, leaving a prompt of {after} tokens; nothing was changed"
    else:
        line = f"{freed} tokens freed{cut}; the prompt is {after} tokens now"
    yield from output.wrapped(line)


class CompactedPart(Item, frozen=True, kw_only=True):
    """Blocks and groups that left in the same way."""

    TABLE = "what blocks names"

    what: Annotated[
        str, described("`offloaded` (head and tail still shown), `cleared`, `summarised`, …"), Column("what")
    ]
    blocks: Annotated[
        list[str], described("blocks, and groups that existed before"), Column("blocks", right=True, cell=len)
    ]

    @property
    def names(self) -> Annotated[str, Column("ids", least=12)]:
        return first_ranges(self.blocks, _MOST_NAMED)


class Compacted(Answer, frozen=True, kw_only=True, tag="ctxvc.compact/1"):
    """`compact`. Tokens are as the provider would count them."""

    session: SessionName
    scope: ScopeName
    policy: Annotated[str, described("the policy with its knobs, as `--policy` takes it")]
    reason: Annotated[str, described("the reason, also if nothing leaves")]
    committed: Annotated[bool, described("false with --dry-run, and if nothing leaves")]
    tokens_before: PromptTokens
    tokens_after: Annotated[int, described("with --dry-run, the number that would remain")]
    tokens_cut: CutTokens
    items: list[CompactedPart]
    groups: Annotated[list[ActedGroup], described("the groups whose stubs replace the blocks that left")]
    problems: list[LeftOut]
    effect: EffectField = "next-request"
