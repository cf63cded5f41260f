"""`gc`: the store, packed tightly, and without the sessions that a person does not keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click

from ctxvc.cli.answers.shared import Answer, Item, SessionName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.output import Column, Output, counted, iso, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.display import human_bytes
from ctxvc.store.upkeep import bundle as bundles
from ctxvc.store.upkeep import gc as upkeep
from ctxvc.store.upkeep import retention


class _Size(click.ParamType):  # type: ignore[type-arg] # generic for type checkers alone
    """A number of bytes, as in `500MB` or `2GB`."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        written = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)B?", str(value).strip().upper())
        if written is None:
            self.fail(f"{value!r} is not a size such as 500MB or 2GB", param, ctx)
        return int(float(written[1]) * float(f"1e{3 * ' KMGT'.index(written[2] or ' ')}"))


@command("gc", "ctxvc gc")
@click.option("--keep-days", "days", metavar="N", type=click.IntRange(min=1),
              help="Remove sessions that did not change in the last N days.")  # fmt: skip
@click.option("--max-size", "size", metavar="SIZE", type=_Size(),
              help="Remove the oldest sessions until the store fits into SIZE, as in 2GB.")  # fmt: skip
@click.option("--keep-pinned", "pinned", is_flag=True, help="Keep sessions in which a block is pinned.")
@click.option("--bundle", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write what is removed into FILE first; `ctxvc import FILE` brings it back.")  # fmt: skip
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Remove sessions without being asked.")
@json_option
@click.pass_context
def gc(
    ctx: click.Context, days: int | None, size: int | None, pinned: bool, bundle: Path | None, dry_run: bool, yes: bool
) -> None:
    """No block is lost, and others may keep writing meanwhile.

    Only --keep-days and --max-size remove anything: whole sessions, oldest first, once you confirm. Sessions that
    changed within a day, are checked out, or were chosen with `ctxvc use` stay. A removed session is not imported again
    by itself unless its recording changed since; `ctxvc import FILE` imports it anyway.
    """
    app = ctx.ensure_object(App)
    limits = retention.Limits(days=days, size=size, pinned=pinned)
    if days is None and size is None:
        if pinned or bundle or dry_run or yes:
            raise click.UsageError(
                "--keep-pinned, --bundle, --dry-run and --yes require --keep-days or --max-size", ctx
            )
        _pack(app)
        return
    with app.store() as store, Progress("working") as progress:
        survey = retention.survey(store, limits)
        is_wanted = bool(survey.leaving) and not dry_run and (yes or _is_confirmed(app, survey, limits))
        written = 0
        if is_wanted:
            leaving = retention.closed(store, survey.leaving)
            if bundle:
                progress.task("writing the bundle", 0, 0)
                written = bundles.write(store, app.path(bundle), {one.session: one.tips for one in leaving})
            retention.remove(store, leaving, progress.task)
        size_now = upkeep.sizes(store).total
    answer = _answer(survey, size_now, str(app.path(bundle)) if bundle and written else "", removed=is_wanted)
    if app.output.json:
        app.output.value(answer)
    else:
        _show(app.output, answer, limits)
    if written:
        app.output.note(f"wrote {human_bytes(written)} to {safe(answer.bundle)}")
    if answer.items and not is_wanted and not dry_run:
        app.output.note("nothing was removed; add --yes to do it")
        ctx.exit(1)


def _is_confirmed(app: App, survey: retention.Survey, limits: retention.Limits) -> bool:
    """Whether a person says yes to what is shown; nobody can be asked without a terminal."""
    if not app.may_ask:
        return False
    _show(app.output, _answer(survey, survey.size, "", removed=False), limits)
    return app.agrees("remove them?")


def _answer(survey: retention.Survey, size: int, bundle: str, *, removed: bool) -> Retention:
    return Retention(
        removed=removed,
        bytes=size if removed else survey.size,
        bytes_freed=survey.freed,
        items=[struct_of(LeavingSession, one, updated=iso(one.updated)) for one in survey.leaving],
        staying=[struct_of(StayingSession, one) for one in survey.staying],
        bundle=bundle,
    )


def _show(output: Output, answer: Retention, limits: retention.Limits) -> None:
    """What leaves, what stays although it is beyond the limits, and the sizes."""
    if answer.items:
        output.table(table_of(LeavingSession, answer.items))
    for staying in answer.staying:
        output.note(f"{safe(staying.session)} stays: {safe(staying.why)}")
    remaining = answer.bytes if answer.removed else answer.bytes - answer.bytes_freed
    if not answer.items:
        output.note("there is no session to remove")
    else:
        verb = "removed" if answer.removed else "would remove"
        sessions = counted(len(answer.items), "session")
        output.note(f"{verb} {sessions}: {human_bytes(answer.bytes_freed)}, with {human_bytes(remaining)} left")
    if limits.size is not None and remaining > limits.size:
        output.note(f"the sessions that stay take more than {human_bytes(limits.size)}")


def _pack(app: App) -> None:
    with app.store() as store, Progress("packing") as progress:
        report = upkeep.gc(store, report=progress.task)
    answer = struct_of(
        Packed,
        report,
        bytes_before=report.before_bytes,
        bytes_after=report.after_bytes,
        seconds=round(report.seconds, 3),
    )
    app.output.answer(answer, _packed_lines(app.output, answer))
    raise_unreadable(report.unreadable)


def _packed_lines(output: Output, answer: Packed) -> Iterator[str]:
    yield from output.facts(
        [
            ("before", f"{human_bytes(answer.bytes_before)} in {counted(answer.packs_before, 'pack')}"),
            ("after", f"{human_bytes(answer.bytes_after)} in {counted(answer.packs_after, 'pack')}"),
            ("took", f"{answer.seconds:.1f} s"),
            *([("removed", ", ".join(answer.removed))] if answer.removed else []),
        ]
    )


class Packed(Answer, frozen=True, kw_only=True, tag="ctxvc.gc/1"):
    """`gc`"""

    bytes_before: int
    bytes_after: int
    packs_before: int
    packs_after: int
    removed: Annotated[list[str], described("files left by killed writers, as paths in the store")]
    seconds: float


def _date(time: str) -> str:
    return time[:10]


class LeavingSession(Item, frozen=True, kw_only=True):
    """A session that the limits do not keep."""

    TABLE = "session updated blocks bytes"

    session: Annotated[SessionName, Column("session")]
    updated: Annotated[str, described("time of the newest commit"), Column("updated", cell=_date)]
    blocks: Annotated[int, Column("blocks", right=True)]
    bytes: Annotated[int, described("bytes of all bodies"), Column("size", right=True, cell=human_bytes)]


class StayingSession(Item, frozen=True, kw_only=True):
    """A session that stays although the limits do not keep it."""

    session: SessionName
    why: str


class Retention(Answer, frozen=True, kw_only=True, tag="ctxvc.retention/1"):
    """`gc --keep-days` and `gc --max-size`"""

    removed: Annotated[bool, described("whether the sessions are removed, or only would be")]
    bytes: Annotated[int, described("size of the store on the disk; if nothing is removed, its size once packed")]
    bytes_freed: Annotated[int, described("how much of it goes with the sessions, once packed")]
    items: list[LeavingSession]
    staying: list[StayingSession]
    bundle: Annotated[str, described("the file that they were written to; empty for none")]
