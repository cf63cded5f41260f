"""`ctxvc replay experiment`: a paper's experiment on recordings, with the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ctxvc.cli.app import App
from ctxvc.cli.output import safe
from ctxvc.errors import BadInput, NotFound

EXPERIMENT = "experiment"


def experiment(app: App, arguments: Sequence[str], form: str) -> None:
    """Runs the experiment that the first argument names on the files and folders that follow, and prints its tables.

    Without arguments it lists what there is. Raises: BadInput, NotFound.
    """
    from ctxvc.replay.conversation import conversations_in
    from ctxvc.replay.experiments import EXPERIMENTS

    if app.output.json:
        raise BadInput(
            "experiments print tables, and no JSON",
            hint="in Python, `ctxvc.replay.experiments.EXPERIMENTS[NAME].run` gives every count behind them",
        )
    if not arguments:
        app.output.lines(f"{name}\t{own.source}" for name, own in EXPERIMENTS.items())
        return
    name, *files = arguments
    if name not in EXPERIMENTS:
        raise BadInput(f"no experiment {name[:40]!r}", hint=f"there are: {', '.join(EXPERIMENTS)}")
    paths = [app.path(Path(file)) for file in files]
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no file or folder {path}", hint="name recordings, or folders of them")
    if not paths and name != "proposition":
        raise BadInput(f"{name} needs recordings", hint=f"as in `ctxvc replay experiment {name} FOLDER`")
    result = EXPERIMENTS[name].run(conversations_in(paths, form))
    app.output.lines(_lines(table.markdown for table in result.tables))


def _lines(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from map(safe, text.splitlines())
        yield ""
