"""The shared part of `archive`, `restore`, `delete`, `pin`, `unpin`, `undo` and `redo`: options, answer and table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

import click
import msgspec

from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import (
    ActedGroup,
    Answer,
    BlockId,
    CutTokens,
    EffectField,
    Item,
    LeftOut,
    PromptTokens,
    ScopeName,
    SessionName,
    TokenCount,
    described,
    short,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, json_option
from ctxvc.cli.output import Column, Output, Size, Tokens, safe
from ctxvc.core.ledger.block import Verb
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.session.session import Session
from ctxvc.store import format as fmt

Actor = Literal["user", "agent"]

#: Limits of the report on blocks that were left out: its reasons, and the blocks or ranges of each.
_MOST_REASONS = 8
_MOST_NAMED = 12
_ID = re.compile(r"[BG][1-9][0-9]*")


def acting_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that every changing verb has."""
    function = click.option(
        "--actor",
        type=click.Choice(["user", "agent"]),
        default="user",
        help="Act as `user` (default) or `agent`, which may do less.",
    )(function)
    return json_option(function)


def blocks_argument(function: Callable[..., None]) -> Callable[..., None]:
    """BLOCKS, at least one."""
    return click.argument("blocks", metavar="BLOCKS...", nargs=-1, required=True)(function)


allow_user = click.option("--allow-user", is_flag=True, help="Include human text; not available to an agent.")


def act(
    ctx: click.Context, verb: Verb, blocks: Sequence[str], index: str, actor: Actor, allow_user: bool = False
) -> None:
    """Applies a verb to blocks and prints what has changed. Exits with 1 if nothing has."""
    app = ctx.ensure_object(App)
    check_allow_user(ctx, actor, allow_user)
    with app.acting(actor) as session:
        rehearsal = session.verb(verb, list(blocks), index, allow_user=allow_user)
        answer_of(ctx, app, session, verb, rehearsal)


def check_allow_user(ctx: click.Context, actor: Actor, allow_user: bool) -> None:
    """Raises: click.UsageError where an agent asks for what only a person may."""
    if allow_user and actor != "user":
        raise click.UsageError("--allow-user is for a person: an agent never removes what a human wrote", ctx)


def answer_of(
    ctx: click.Context, app: App, session: Session, verb: str, rehearsal: Rehearsal, undone: Sequence[str] = ()
) -> None:
    """Prints what a verb has changed. Exits with 1 if nothing has."""
    answer = acted(session, verb, rehearsal, undone)
    if answer.tokens_before != answer.tokens_after:
        answer = msgspec.structs.replace(answer, effect=hosts.effect(app, session))
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(lines_of(app.output, answer))
        print_left_out(app.output, verb, answer.problems, session.actor)
        if advice := hosts.advice(answer.effect):
            app.output.note(advice)
    if not rehearsal and not undone:
        ctx.exit(1)


def print_left_out(output: Output, verb: str, problems: Sequence[LeftOut], actor: str) -> None:
    """Prints which blocks were left out, and why."""
    for line in left_out(verb, problems):
        output.note(safe(line))
    if actor == "user" and any(problem.why == "human" for problem in problems):
        output.note("hint: --allow-user includes what a human wrote")


def left_out(verb: str, problems: Sequence[LeftOut]) -> Iterator[str]:
    """A line for each reason why blocks were left out, with the blocks to which it applies."""
    targets: dict[str, list[str]] = {}
    for problem in problems:
        reason = problem.text.removeprefix(f"cannot {verb} {problem.target}: ")
        targets.setdefault(reason, []).append(problem.target)
    for reason, names in islice(targets.items(), _MOST_REASONS):
        blocks = selection.ranges(names) if all(map(_ID.fullmatch, names)) else names
        more = f" and {len(blocks) - _MOST_NAMED:,} more" if len(blocks) > _MOST_NAMED else ""
        is_named = len(names) == 1 and re.search(rf"(?<!\w){re.escape(names[0])}(?!\w)", reason)
        yield f"skipped: {reason}" if is_named else f"skipped {', '.join(blocks[:_MOST_NAMED])}{more}: {reason}"
    if len(targets) > _MOST_REASONS:
        yield f"skipped others, for {len(targets) - _MOST_REASONS:,} other reasons; --json lists them"


def acted(session: Session, verb: str, rehearsal: Rehearsal, undone: Sequence[str] = ()) -> Acted:
    """The answer of a changing verb. The new prompt is measured: the change may also have cut thinking."""
    view = session.view()
    price = view.price
    tokens = {row.id: price.body(row) for row in rehearsal.rows}
    return Acted(
        session=session.name,
        scope=session.scope,
        verb=verb,
        undone=list(undone),
        tokens_before=view.calibrated(rehearsal.tokens_before),
        tokens_after=view.used,
        tokens_cut=max(0, view.calibrated(rehearsal.tokens_after) - view.used),
        items=[struct_of(ActedBlock, row, path=fmt.body_path(row), tokens=tokens[row.id]) for row in rehearsal.rows],
        groups=[struct_of(ActedGroup, group) for group in rehearsal.groups],
        problems=[struct_of(LeftOut, problem) for problem in rehearsal.problems],
    )


def lines_of(output: Output, answer: Acted) -> Iterator[str]:
    """The lines on what a verb has changed, for people."""
    for subject in answer.undone:
        yield output.style(safe(f"{'redone' if answer.verb == 'redo' else 'undone'}: {subject}"), bold=True)
    for group in answer.groups:
        if group.members and group.stub:
            yield safe(group.stub)
    if answer.items:
        yield from output.table_lines(table_of(ActedBlock, answer.items))
    if answer.items or answer.groups:
        freed = answer.tokens_before - answer.tokens_after
        word, after = "freed" if freed >= 0 else "added", output.estimate(answer.tokens_after)
        cut = cut_part(output, answer.tokens_cut) if freed > 0 else ""
        change = f"{output.estimate(abs(freed))} tokens {word}{cut}; " if freed else ""
        yield from output.wrapped(f"{change}the prompt is {after} tokens now")


def cut_part(output: Output, tokens_cut: int) -> str:
    """The part of a sentence on the freed tokens that were earlier thinking and dashboards; empty if there are none."""
    return f" ({output.estimate(tokens_cut)} of them earlier thinking and dashboards)" if tokens_cut else ""


class ActedBlock(Item, frozen=True, kw_only=True):
    """A block that has changed."""

    TABLE = "id state level tokens bytes sha256 path"

    id: Annotated[BlockId, Column("ID")]
    handle: Annotated[str, described("`B17@3fa9c1`")]
    state: Annotated[str, Column("state")]
    level: Annotated[int, Column("level", right=True, rank=3)]
    group: Annotated[str, described("its group; empty if none")]
    path: Annotated[str, described("path of its body in the scope's tree"), Column("path", least=12)]
    bytes: Annotated[int, Column("bytes", right=True, rank=1, cell=Size)]
    tokens: Annotated[TokenCount, Column("~tokens", right=True, cell=Tokens)]
    sha256: Annotated[str, Column("sha256", rank=2, cell=short)]
    stub: Annotated[str, described("its stub; empty if a group's stub, or nothing, replaces it")]


class Acted(Answer, frozen=True, kw_only=True, tag="ctxvc.acted/1"):
    """`archive`, `restore`, `delete`, `pin`, `unpin`, `undo`, `redo`"""

    session: SessionName
    scope: ScopeName
    verb: str
    undone: Annotated[
        list[str], described("of `undo` and `redo`: the subjects of the changes, in the order taken back")
    ]
    tokens_before: PromptTokens
    tokens_after: PromptTokens
    tokens_cut: CutTokens
    items: list[ActedBlock]
    groups: list[ActedGroup]
    problems: list[LeftOut]
    effect: EffectField = "next-request"
