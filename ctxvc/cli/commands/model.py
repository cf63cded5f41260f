"""`model`: the session's model and its thresholds, or another model from the next call on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import click

from ctxvc.cli.answers.shared import Answer, LeftOut, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import Output, safe
from ctxvc.errors import Refused

if TYPE_CHECKING:
    from ctxvc.core.plan.plan import Rehearsal
    from ctxvc.core.view.view import View
    from ctxvc.session.session import Session


@command("model", "ctxvc model claude-haiku-4-5 --dry-run")
@click.argument("name", metavar="[MODEL]", default="")
@click.option("--window", metavar="TOKENS", type=TokenAmount(1_000),
              help="Context window in tokens, for a model that is not in our table.")  # fmt: skip
@click.option(
    "--tokens-per-count",
    "tokens_per_count",
    metavar="N",
    type=float,
    help="The model's tokens per token of our count, if its vocabulary is unknown and no usage is reported.",
)
@click.option("--dry-run", is_flag=True, help="Show what would leave, without changing anything.")
@json_option
@click.pass_obj
def model(app: App, name: str, window: int | None, tokens_per_count: float | None, dry_run: bool) -> None:
    """
    With MODEL, the thresholds follow its window, tokens are counted with its calibration, and the former model's
    thinking leaves the prompt. The next call is rehearsed first: if the prompt cannot fit, nothing changes.
    """
    from ctxvc.session.session import Session
    from ctxvc.tokens import calibration

    fields: dict[str, object] = {
        **({"model": name} if name else {}),
        **({"window": window} if window else {}),
        **({"calibration": tuple(calibration.of_factor(tokens_per_count))} if tokens_per_count is not None else {}),
    }
    if not fields or dry_run:
        with app.reading() as stored:
            answer = _answer(Session(stored, actor="user"), fields, changed=False)
    else:
        with app.acting() as session:
            answer = _answer(session, fields, changed=True)
            session.set(**fields)
    app.output.answer(answer, _lines(app.output, answer, changed=bool(fields) and not dry_run))


def _answer(session: Session, fields: dict[str, object], *, changed: bool) -> ModelAnswer:
    """The session under these settings. Raises: Refused if the prompt cannot fit."""
    from ctxvc.core.plan.guard import guard
    from ctxvc.core.plan.rehearse import rehearse
    from ctxvc.core.view.budget import check
    from ctxvc.policies import parse
    from ctxvc.policies.run import ask_plan
    from ctxvc.tokens import models

    former = session.ledger().meta.model
    view = session.under(**fields)
    check(view.budget)
    policy = parse(view.ledger.meta.policy or "default")
    rehearsal = rehearse(view, ask_plan(policy, view))
    after = _tokens_after(view, rehearsal)
    if after > view.budget.guard and (guarded := guard(view)):
        rehearsal, after = guarded, _tokens_after(view, guarded)
    if changed and after > view.budget.effective:
        raise Refused(
            f"{view.ledger.meta.model} takes {view.budget.effective:,} tokens, but {after:,} may not leave the prompt",
            hint="choose a model with a larger window, unpin something, or archive more yourself",
        )
    return struct_of(
        ModelAnswer,
        view.budget,
        session=session.name,
        scope=session.scope,
        model=view.ledger.meta.model,
        former=former,
        changed=changed,
        budget=view.budget.effective,
        window_recorded=bool(view.ledger.meta.window or models.window(view.ledger.meta.model)),
        tokens=view.used,
        unrecorded=_unrecorded(session),
        tokens_after=after,
        leaving=sum(len(action.targets) for action in rehearsal.done),
        reason=rehearsal.plan.reason,
        tokens_per_count=view.calibration[0] / 1000,
        problems=[struct_of(LeftOut, problem) for problem in rehearsal.problems],
    )


def _unrecorded(session: Session) -> int:
    """The tokens of the newest call's prompt that are not in the store, and so in none of the figures."""
    from ctxvc.inspection.window_percent import occupancy
    from ctxvc.store.read import revision
    from ctxvc.tokens.meter import Meter

    snapshot = revision.now(session.stored)
    meter = Meter(session.store, snapshot.ledger.meta.tokenizer)
    return occupancy(session.store, snapshot, meter, meter.costs(snapshot)).unrecorded


def _tokens_after(view: View, rehearsal: Rehearsal) -> int:
    """The tokens of the prompt after a rehearsal, as the provider would count them."""
    return view.calibrated(rehearsal.tokens_after) if rehearsal else view.used


def _lines(output: Output, answer: ModelAnswer, *, changed: bool) -> Iterator[str]:
    if answer.former and answer.former != answer.model:
        yield output.style(safe(f"{answer.former} → {answer.model}"), bold=True)
    else:
        yield output.style(safe(answer.model or "no model is recorded"), bold=True)
    guess = "" if answer.window_recorded else ", a guess: set --window"
    share = 100 * answer.tokens // max(1, answer.budget)
    tokens = output.tokens
    size = f"~{tokens(answer.tokens)} of {tokens(answer.budget)} tokens ({share} %)"
    size += f" and ~{tokens(answer.unrecorded)} that are not recorded" if answer.unrecorded else ""
    yield f"prompt    {size}, window {tokens(answer.window)}{guess}"
    yield f"offload   a result above {tokens(answer.offload)} tokens is stored and shown as a preview"
    yield f"clear     old results leave from {tokens(answer.clear)}, summaries from {tokens(answer.summarise)}"
    yield f"guard     nothing above {tokens(answer.guard)} is sent"
    if answer.leaving:
        amounts = f"~{tokens(answer.tokens)} → ~{tokens(answer.tokens_after)} tokens"
        yield f"At the next call {answer.leaving} blocks or groups leave: {amounts}"
        yield safe(answer.reason)
    elif answer.former != answer.model or changed:
        yield "Nothing has to leave at the next call."
    if answer.former != answer.model and not changed:
        yield "Nothing was changed."


class ModelAnswer(Answer, frozen=True, kw_only=True, tag="ctxvc.model/1"):
    """`model`. Tokens are as the provider of that model would count them."""

    session: SessionName
    scope: ScopeName
    model: str
    former: Annotated[str, described("the session's model before; the same if none was given")]
    changed: Annotated[bool, described("false with --dry-run, and without a model")]
    window: Annotated[int, described("the model's context window")]
    budget: Annotated[int, described("tokens allowed for a prompt: the window without the reply's reserve")]
    offload: Annotated[int, described("results with more tokens are stored and shown as a preview")]
    clear: int
    summarise: int
    guard: int
    window_recorded: Annotated[
        bool, described("false if neither the session nor the table of models has the window, which is then a guess")
    ]
    tokens: Annotated[int, described("of the prompt now, as recorded")]
    unrecorded: Annotated[int, described("of the newest call's prompt, in no other figure: they are not recorded")]
    tokens_after: Annotated[int, described("of the prompt once the policy and the guard have acted")]
    leaving: Annotated[int, described("blocks and groups that leave at the next call")]
    reason: str
    tokens_per_count: Annotated[float, described("tokens of the model that one of our count is taken for")]
    problems: list[LeftOut]
