"""`verify` and `gc`: the store as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, Styled, Table, counted
from ctxvc.cli.progress import Progress
from ctxvc.core.display import human_bytes
from ctxvc.session import proof
from ctxvc.store import gc as upkeep
from ctxvc.store.verify import verify as check

DAMAGED = 3
_COLORS = {"damage": "red", "warning": "yellow"}


@command("verify", "ctxvc verify")
@click.option("--quick", is_flag=True, help="Only what stands now, not all of history.")
@click.option("--prompts", is_flag=True, help="Also render every prompt that was sent, and compare it with its hash.")
@json_option
@click.pass_context
def verify(ctx: click.Context, quick: bool, prompts: bool) -> None:
    """Check that every block is what was recorded.

    Compares every checksum, reads every ledger and journal, and asks git to check its side. Changes nothing. Exits
    with 3 where something is damaged.
    """
    app = ctx.ensure_object(App)
    rendered = None
    with app.store() as store, Progress("checking", words=lambda commits: f"{commits:,} commits") as progress:
        report = check.verify(store, progress.reach, deep=not quick)
        if prompts:
            rendered, findings = proof.check_prompts(store)
            report = msgspec.structs.replace(report, findings=(*report.findings, *findings))
    answer = _verified(report, rendered)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_verified_lines(app.output, answer))
    if report.damaged:
        ctx.exit(DAMAGED)


def _verified(report: check.Report, prompts: int | None) -> schemas.Verified:
    return schemas.Verified(
        prompts=prompts,
        intact=not report.damaged,
        sessions=report.sessions,
        scopes=report.scopes,
        commits=report.commits,
        blocks=report.blocks,
        bytes=report.bytes,
        seconds=round(report.seconds, 3),
        items=[
            schemas.Finding(
                level=finding.level,
                what=finding.what,
                hint=finding.hint,
                session=finding.where.session,
                scope=finding.where.scope,
                commit=finding.where.commit,
                block=finding.where.block,
                path=finding.where.path,
            )
            for finding in report.findings
        ],
    )


def _verified_lines(output: Output, answer: schemas.Verified) -> Iterator[str]:
    damage = sum(item.level == "damage" for item in answer.items)
    found = Styled(f"{damage} damaged", "red") if damage else Styled("intact", "green")
    looked = f"{counted(answer.blocks, 'block')} in {counted(answer.commits, 'commit')} of " + counted(
        answer.sessions, "session"
    )
    yield from output.facts(
        [
            ("store", found),
            ("checked", looked),
            ("compared", f"{human_bytes(answer.bytes)} in {answer.seconds:.1f} s"),
            *([("rendered", counted(answer.prompts, "prompt"))] if answer.prompts is not None else []),
        ]
    )
    if answer.items:
        yield ""
        yield from output.table_lines(_findings(answer))


def _findings(answer: schemas.Verified) -> Table:
    return Table(
        columns=[
            Column("level"),
            Column("where", least=12),
            Column("found", least=12),
            Column("hint", least=12),
        ],
        rows=[
            [
                Styled(item.level, _COLORS[item.level]),
                " ".join(
                    filter(None, [f"{item.session}/{item.scope}".strip("/"), item.commit[:12], item.block, item.path])
                ),
                item.what,
                item.hint,
            ]
            for item in answer.items
        ],
    )


@command("gc", "ctxvc gc")
@json_option
@click.pass_obj
def gc(app: App) -> None:
    """Pack the store tightly.

    All that a scope reaches becomes one well-packed file, complete steps become commits, and what killed writers left
    is removed. No block is lost by it. Others may go on writing meanwhile.
    """
    with app.store() as store:
        report = upkeep.gc(store)
    answer = schemas.Packed(
        bytes_before=report.before_bytes,
        bytes_after=report.after_bytes,
        packs_before=report.packs_before,
        packs_after=report.packs_after,
        removed=list(report.removed),
        seconds=round(report.seconds, 3),
    )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_packed_lines(app.output, answer))


def _packed_lines(output: Output, answer: schemas.Packed) -> Iterator[str]:
    yield from output.facts(
        [
            ("before", f"{human_bytes(answer.bytes_before)} in {counted(answer.packs_before, 'pack')}"),
            ("after", f"{human_bytes(answer.bytes_after)} in {counted(answer.packs_after, 'pack')}"),
            ("took", f"{answer.seconds:.1f} s"),
            *([("removed", ", ".join(answer.removed))] if answer.removed else []),
        ]
    )
