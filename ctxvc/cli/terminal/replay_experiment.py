"""`ctxvc replay experiment`: a paper's experiment on recordings, with the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxvc.cli.app import App
from ctxvc.cli.options.judge_model import asker
from ctxvc.cli.output import counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ctxvc.replay.conversation import Conversation

EXPERIMENT = "experiment"


def experiment(app: App, arguments: Sequence[str], form: str, model: str, out: Path | None) -> None:
    """Runs the experiment that the first argument names on the files and folders that follow, and prints its tables.

    Without arguments it lists what there is. `model` answers questions, and `out` keeps what is done, for the
    experiments that take one. Raises: BadInput, NotFound, Conflict, ModelFailed.
    """
    from ctxvc.replay.conversation import conversations_in
    from ctxvc.replay.experiments import EXPERIMENTS
    from ctxvc.replay.results.file import alone

    if app.output.json:
        raise BadInput(
            "experiments print tables, not JSON",
            hint="in Python, `ctxvc.replay.experiments.EXPERIMENTS[NAME].run` gives every underlying count",
        )
    if not arguments:
        app.output.lines(f"{name}\t{own.source}" for name, own in EXPERIMENTS.items())
        return
    name, *files = arguments
    if name not in EXPERIMENTS:
        raise BadInput(
            f"no experiment {name[:40]!r}{meant(name, EXPERIMENTS)}", hint=f"there are: {', '.join(EXPERIMENTS)}"
        )
    own = EXPERIMENTS[name]
    options: dict[str, Any] = {"model": model, "out": out}
    if wrong := [f"--{option}" for option, value in options.items() if value and option not in own.options]:
        takers = [row.name for row in EXPERIMENTS.values() if wrong[0][2:] in row.options]
        raise BadInput(f"{name} does not take {wrong[0]}", hint=f"{', '.join(takers)} does")
    paths = [app.path(Path(file)) for file in files]
    for path in paths:
        if not path.exists():
            raise NotFound(f"no such file or folder: {path}", hint="name recordings or folders of them")
    if not paths and name != "proposition":
        raise BadInput(f"{name} needs recordings", hint=f"as in `ctxvc replay experiment {name} FOLDER`")
    arguments_taken: dict[str, Any] = {}
    if model:
        arguments_taken["ask"] = asker(app, model)
    if out:
        click.get_current_context().with_resource(alone(app.path(out)))
        arguments_taken["out"] = app.path(out)
    with Progress(name, format=lambda amount: counted(amount, "conversation")) as progress:
        progress.task(name)
        result = own.run(_with_progress(conversations_in(paths, form), paths, progress), **arguments_taken)
    app.output.lines(_lines(table.markdown for table in result.tables))


def _with_progress(
    conversations: Iterator[Conversation], paths: Sequence[Path], progress: Progress
) -> Iterator[Conversation]:
    """The conversations, as they are taken. Raises: NotFound if there is none in the paths."""
    number = 0
    for number, conversation in enumerate(conversations, 1):  # noqa: B007 - how many there were
        progress.add(1)
        yield conversation
    if paths and not number:
        raise NotFound(f"no conversation in {paths[0]}", hint="name recordings or folders of them")


def _lines(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from map(safe, text.splitlines())
        yield ""
