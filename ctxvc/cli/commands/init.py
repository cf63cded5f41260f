"""`init`: a store in a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import GivenPath


@command("init", "ctxvc init ~/src/project")
@click.argument("folder", metavar="[DIR]", required=False, type=GivenPath(file_okay=False, path_type=Path))
@json_option
@click.pass_obj
def init(app: App, folder: Path | None) -> None:
    """The store is the folder `.ctxvc` in DIR, by default the working folder; without DIR, CTXVC_STORE if that is set.
    Only you can read it, and git ignores it. An existing store is not changed; a bare git clone of a store is made into
    one.
    """
    from ctxvc.store.project.locate import FOLDER, is_store
    from ctxvc.store.store import adopt, create

    setting = app.env.get("CTXVC_STORE")
    path = Path(setting).absolute() if setting and not folder else app.path(folder or Path()) / FOLDER
    created = not (path / "HEAD").is_file()
    complete = is_store(path)
    with create(path) if created else adopt(path):
        pass
    event = "created a store" if created else "a store already exists" if complete else "completed the clone of a store"
    app.output.answer(InitializedStore(store=str(path), created=created), f"{event} at {path}")


class InitializedStore(Answer, frozen=True, kw_only=True, tag="ctxvc.init/1"):
    """`init`"""

    store: Annotated[str, described("path of the store")]
    created: Annotated[bool, described("whether it is new")]
