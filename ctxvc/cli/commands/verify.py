"""`verify`: compares every block with its recorded checksum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers.shared import (
    Answer,
    CommitId,
    Item,
    ScopeName,
    SessionName,
    described,
    short,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Column, Output, Styled, counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.display import human_bytes
from ctxvc.errors import Damaged, render
from ctxvc.phrases import COMMAND_LINE
from ctxvc.session import proof
from ctxvc.store.verify import verify as check

_COLORS = {"damage": "red", "warning": "yellow"}


@command("verify", "ctxvc verify")
@click.option("--quick", is_flag=True, help="Check only the current commits, not the whole history.")
@click.option("--prompts", is_flag=True, help="Also render every prompt that was sent and compare its hash.")
@click.option("--sign", metavar="TAG", default="", help="If intact, sign it: all sessions, or that of --session.")
@click.option("--since", metavar="TAG", default="", help="Check the tag's signature, and only what came after it.")
@json_option
@click.pass_context
def verify(ctx: click.Context, quick: bool, prompts: bool, sign: str, since: str) -> None:
    """Compares every checksum, reads every ledger and journal, and runs git's own check. Changes nothing. Exits with 3
    if anything is damaged.

    --sign puts a signed tag on the history, with the key that your git signs with. --since trusts what such a tag
    covers, if every scope in it still goes on from there.
    """
    app = ctx.ensure_object(App)
    if sign and (quick or since):
        raise click.UsageError("--sign needs a check of the whole history", ctx)
    rendered = None
    with app.store() as store, Progress("checking", format=lambda count: f"{count:,}") as progress:
        from ctxvc.sharing import inventory

        commit, signer = inventory.signed(store, since) if since else ("", "")
        if signer:
            app.output.note(f"{safe(since)}: {safe(signer)}")
        report = check.verify(store, progress.reach, deep=not quick, since=commit)
        if prompts:
            rendered, findings = proof.check_prompts(store, lambda count: progress.task("rendering", count))
            report = msgspec.structs.replace(report, findings=(*report.findings, *findings))
        if sign and not report.damaged:
            count = inventory.sign(store, sign, app.session_name(store))
            app.output.note(f"signed {counted(count, 'session')} as {safe(sign)}")
    answer = _verified(report, rendered)
    app.output.answer(answer, _verified_lines(app.output, answer))
    if report.damaged:
        ctx.exit(Damaged.exit_code)


def _verified(report: check.Report, prompts: int | None) -> Verified:
    return struct_of(
        Verified,
        report,
        prompts=prompts,
        intact=not report.damaged,
        seconds=round(report.seconds, 3),
        items=[
            struct_of(
                Finding, finding.where, level=finding.level, what=finding.what, hint=render(finding.hint, COMMAND_LINE)
            )
            for finding in report.findings
        ],
    )


def _verified_lines(output: Output, answer: Verified) -> Iterator[str]:
    damage = sum(item.level == "damage" for item in answer.items)
    verdict = Styled(f"{damage} damaged", "red") if damage else Styled("intact", "green")
    checked = f"{counted(answer.blocks, 'block')} in {counted(answer.commits, 'commit')} of " + counted(
        answer.sessions, "session"
    )
    yield from output.facts(
        [
            ("store", verdict),
            ("checked", checked),
            ("compared", f"{human_bytes(answer.bytes)} in {answer.seconds:.1f} s"),
            *([("rendered", counted(answer.prompts, "prompt"))] if answer.prompts is not None else []),
        ]
    )
    if answer.items:
        yield ""
        yield from output.table_lines(table_of(Finding, answer.items))


def _level(level: str) -> Cell:
    return Styled(level, _COLORS[level])


class Finding(Item, frozen=True, kw_only=True):
    """A finding of `verify`. Fields of its location that do not apply are empty."""

    TABLE = "level where what hint"

    level: Annotated[str, described("`damage`, or `warning` if it does no harm yet"), Column("level", cell=_level)]
    what: Annotated[str, Column("finding", least=12)]
    hint: Annotated[str, Column("hint", least=12)]
    session: SessionName
    scope: ScopeName
    commit: CommitId
    block: Annotated[str, described("`B17`, or `B64-B127` for a file or tree with several")]
    path: Annotated[str, described("path in the tree of the commit, or in the store")]

    @property
    def where(self) -> Annotated[str, Column("where", least=12)]:
        place = f"{self.session}/{self.scope}".strip("/")
        return " ".join(filter(None, [place, short(self.commit), self.block, self.path]))


class Verified(Answer, frozen=True, kw_only=True, tag="ctxvc.verify/1"):
    """`verify`"""

    intact: Annotated[bool, described("whether nothing is damaged")]
    sessions: int
    scopes: int
    commits: int
    blocks: int
    bytes: Annotated[int, described("bytes whose checksums were compared")]
    prompts: Annotated[int | None, described("with --prompts, the number rendered again; otherwise null")] = None
    seconds: float
    items: list[Finding]
