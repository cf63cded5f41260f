"""`plan`, `policies`: what a policy would take out of the prompt, and which policies there are."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ctxvc.cli import schemas
from ctxvc.cli.acting import left_out
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Column, Output, Table, safe
from ctxvc.errors import BadInput

if TYPE_CHECKING:
    from ctxvc.core.plan import Rehearsal, View
    from ctxvc.core.policy import Policy
    from ctxvc.session import Session
    from ctxvc.store.plans import Pending

#: Actions that are listed, and blocks or ranges that each names, at most; `--json` has all.
_MOST_ACTIONS = 60
_MOST_NAMED = 8


@command("plan", "ctxvc plan --policy layered --budget 32000")
@click.option("--policy", "spec", metavar="POLICY", default="",
              help="NAME:knob=value,…; several joined by + (the session's own, else default).")  # fmt: skip
@click.option("--budget", metavar="TOKENS", type=click.IntRange(min=1), help="Window to plan for (the session's own).")
@click.option("--commit", "doing", flag_value="commit", help="Make the plan true.")
@click.option("--wait", "doing", flag_value="wait", help="Let it wait for a moment when it breaks no cache.")
@click.option("--pending", "doing", flag_value="pending", help="List the plans that wait.")
@click.option("--drop", metavar="PLAN", multiple=True, help="Drop a plan that waits, as in P3.")
@json_option
@click.pass_context
def plan(ctx: click.Context, spec: str, budget: int | None, doing: str | None, drop: tuple[str, ...]) -> None:
    """Show what a policy would take out of the prompt, and why.

    Nothing is changed without --commit or --wait. `ctxvc policies` lists the policies and their knobs; a policy of
    one's own is `path.py:Class:knob=value`.
    """
    app = ctx.ensure_object(App)
    from ctxvc.core.budget import Budget, check
    from ctxvc.core.engine import rehearse
    from ctxvc.session import Session

    with app.store() as store, store.writer(app.session) as writer:
        if drop or doing == "pending":
            _waiting(app, Session(writer, actor="user"), drop)
            return
        policy = parsed(spec or writer.ledger().meta.policy or "default", app.folder)
        session = Session(writer, actor="user", policy=policy)
        view = session.view()
        if budget:
            view = replace(view, budget=check(Budget(budget, view.budget.reserve, view.budget.ladder)))
        made = policy.propose(view)
        tried = rehearse(view, made)
        answer = _planned(session, policy, view, tried)
        if doing == "commit" and tried:
            answer = msgspec.structs.replace(answer, committed=bool(session.commit(made)))
        elif doing == "wait" and tried:
            answer = msgspec.structs.replace(answer, waits=session.propose(made).id)
    if app.output.json:
        app.output.value(answer)
        return
    app.output.lines(_lines(app.output, answer))
    for line in left_out("remove", answer.problems):
        app.output.note(safe(line))


@command("policies", "ctxvc policies layered")
@click.argument("name", metavar="[NAME]", default="")
@json_option
@click.pass_obj
def policies(app: App, name: str) -> None:
    """List the policies: who decides, and what the model sees."""
    from ctxvc.policies import POLICIES

    answer = schemas.Policies(items=[_listed(kind) for kind in POLICIES if name in ("", kind.name)])
    if name and not answer.items:
        known = ", ".join(kind.name for kind in POLICIES)
        raise BadInput(f"there is no policy {name[:40]!r}", hint=f"there are: {known}")
    if app.output.json:
        app.output.value(answer)
    elif name:
        app.output.lines(_told(app.output, answer.items[0]))
    else:
        app.output.table(
            Table(
                (
                    Column("policy"),
                    Column("decides"),
                    Column("the model sees", least=14),
                    Column("recoverable", least=11),
                    Column("from", least=16),
                ),
                [[item.name, item.decides, item.sees, item.recovers, item.source] for item in answer.items],
            )
        )


def parsed(spec: str, folder: Path) -> Policy:
    """The policy that the words name; one of a person's own is loaded from a file, meant from `folder`."""
    from ctxvc.policies import parse

    return parse(spec, load=lambda path, name: _loaded(folder / path, name))


def _loaded(path: Path, name: str) -> type[Policy]:
    """The class `name` of a Python file. It runs: a policy of one's own is one's own code. Raises: BadInput."""
    from ctxvc.core.policy import Policy

    module_name = f"ctxvc_policy_{path.stem}"
    found = importlib.util.spec_from_file_location(module_name, path)
    if found is None or found.loader is None or not path.is_file():
        raise BadInput(f"{path}: there is no such Python file", hint="as in path/to/file.py:Class")
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module  # a class is looked up there, by msgspec too
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise BadInput(
            f"{path}: it cannot be loaded: {type(error).__name__}: {error}", hint="run it with Python by itself first"
        ) from error
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        has = [each for each, value in vars(module).items() if _is_own(value, module_name, Policy)]
        raise BadInput(f"{path} has no policy {name!r}", hint=f"it has: {', '.join(has) or 'none'}")
    return kind


def _is_own(value: object, module: str, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base) and value.__module__ == module


# --- what a policy would do


def _planned(session: Session, policy: Policy, view: View, tried: Rehearsal) -> schemas.Planned:
    from ctxvc.core.draft import blocks_of
    from ctxvc.core.engine import costs
    from ctxvc.policies import spec

    before, after = costs(view.ledger, view.price), costs(tried.after, view.price)

    def freed(targets: tuple[str, ...]) -> int:
        groups = tried.after.groups
        blocks = [block for target in targets for block in (blocks_of(groups, target) or [target])]
        return sum(before[block].shown - after[block].shown for block in blocks if block in before)

    moment = policy.moment(view, tried) if tried else None
    return schemas.Planned(
        session=session.name,
        scope=session.scope,
        policy=spec(policy),
        actor=tried.plan.actor,
        reason=tried.plan.reason,
        window=view.budget.effective,
        tokens_before=view.calibrated(tried.tokens_before),
        tokens_after=view.calibrated(tried.tokens_after),
        now=moment.now if moment else False,
        moment=moment.why if moment else "",
        items=[
            schemas.PlannedAction(
                verb=action.verb, targets=list(action.targets), index=action.index, freed=freed(action.targets)
            )
            for action in tried.done
        ],
        problems=[schemas.LeftOut(target=each.target, why=each.why, text=each.text) for each in tried.problems],
    )


def _lines(output: Output, answer: schemas.Planned) -> Iterator[str]:
    from ctxvc.core import ids

    share = f"{answer.tokens_before:,} tokens of {answer.window:,}"
    yield output.style(f"{safe(answer.policy)}: {share}", bold=True)
    if answer.reason:
        yield safe(answer.reason)
    if not answer.items:
        yield "nothing to do"
        return
    rows: list[list[Cell]] = []
    for action in answer.items[:_MOST_ACTIONS]:
        named = ids.ranges(action.targets)
        more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
        rows.append([action.verb, ", ".join(named[:_MOST_NAMED]) + more, action.freed, action.index])
    yield from output.table_lines(
        Table((Column("what"), Column("blocks"), Column("~tokens freed", right=True), Column("index", least=12)), rows)
    )
    if len(answer.items) > _MOST_ACTIONS:
        yield f"{len(answer.items) - _MOST_ACTIONS:,} more actions; --json lists them"
    yield f"{answer.tokens_before - answer.tokens_after:,} tokens freed; {answer.tokens_after:,} would be left"
    if answer.moment:
        yield safe(f"the cache: {answer.moment}; {'commit now' if answer.now else 'better wait'}")
    if answer.committed:
        yield "committed"
    elif answer.waits:
        yield f"it waits as {answer.waits}: `ctxvc plan --pending` lists it"
    else:
        yield "nothing was changed: --commit makes it true"


# --- plans that wait


def _waiting(app: App, session: Session, drop: tuple[str, ...]) -> None:
    dropped = session.drop(*drop) if drop else ()
    missing = [name for name in drop if name not in dropped]
    answer = schemas.PendingPlans(
        session=session.name,
        scope=session.scope,
        dropped=list(dropped),
        items=[_pending(each) for each in session.pending()],
    )
    if app.output.json:
        app.output.value(answer)
    else:
        if dropped:
            app.output.note(f"dropped {', '.join(dropped)}")
        rows: list[list[Cell]] = [
            [item.id, item.actor, len(item.actions), item.time, item.reason] for item in answer.items
        ]
        columns = (Column("plan"), Column("by"), Column("actions", right=True), Column("made"), Column("why", least=16))
        app.output.table(Table(columns, rows))
    if missing:
        raise BadInput(
            f"no plan {', '.join(missing)[:80]} waits here", hint="`ctxvc plan --pending` lists those that do"
        )


def _pending(held: Pending) -> schemas.PendingPlan:
    return schemas.PendingPlan(
        id=held.id,
        time=held.time,
        base_commit=held.base_commit,
        actor=held.plan.actor,
        reason=held.plan.reason,
        actions=[
            schemas.PlannedAction(verb=action.verb, targets=list(action.targets), index=action.index, freed=0)
            for action in held.plan.actions
        ],
    )


# --- the policies


def _listed(kind: type[Policy]) -> schemas.PolicyItem:
    from ctxvc.policies import knobs

    terms = kind().terms()
    return schemas.PolicyItem(
        name=kind.name,
        about=inspect.cleandoc(kind.__doc__ or ""),
        source=kind.source,
        decides=kind.decides,
        sees=kind.sees,
        recovers=kind.recovers,
        tools=list(terms.tools),
        knobs={name: _word(value) for name, value in knobs(kind).items()},
    )


def _word(value: object) -> str:
    from ctxvc.policies import word

    return word(value)


def _told(output: Output, item: schemas.PolicyItem) -> Iterator[str]:
    yield output.style(f"{item.name}  ({item.source})" if item.source else item.name, bold=True)
    yield from safe(item.about).splitlines()
    yield ""
    yield f"decides: {item.decides}; the model sees: {item.sees}; recoverable: {item.recovers}"
    if item.tools:
        yield f"tools: {', '.join(item.tools)}"
    if item.knobs:
        yield "knobs:"
        yield from (f"  {name}={value}" for name, value in item.knobs.items())
