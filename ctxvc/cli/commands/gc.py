"""`gc`: the store, packed tightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers import Answer, described
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.output import Output, counted
from ctxvc.cli.progress import Progress
from ctxvc.core.display import human_bytes
from ctxvc.store import gc as upkeep


@command("gc", "ctxvc gc")
@json_option
@click.pass_obj
def gc(app: App) -> None:
    """
    Everything that a scope reaches becomes one well-packed file, complete steps become commits, and files left by
    killed writers are removed. No block is lost. Others may keep writing meanwhile.
    """
    with app.store() as store, Progress("packing") as progress:
        report = upkeep.gc(store, report=progress.task)
    answer = Packed(
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
        app.output.prose(_packed_lines(app.output, answer))
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
