"""Finds a store and the project around it, without importing the code that reads stores."""

from __future__ import annotations

from pathlib import Path

from ctxvc.errors import Damaged, NotFound, Phrase
from ctxvc.store.trust import contained

FOLDER = ".ctxvc"


def find(start: Path) -> Path:
    """The store of the project that `start` is in: the nearest `.ctxvc` upwards, else the main worktree's.

    Raises: NotFound, also for an incomplete bare clone; Damaged without HEAD; Refused if the store is a link.
    """
    for folder in (start, *start.parents):
        if is_store(folder / FOLDER):
            contained.refuse_link(folder / FOLDER)
            return folder / FOLDER
        if folder.name == FOLDER and is_store(folder):
            return folder
        if (folder / FOLDER / "HEAD").is_file():
            raise NotFound(f"{folder / FOLDER} is a git repository but not a ctxvc store", hint=Phrase("init-clone"))
        if (folder / FOLDER / "ctxvc").is_dir():
            raise Damaged(f"{folder / FOLDER} has no file HEAD, which git needs", hint="restore it from a copy")
    main = contained.main_worktree(start)
    if main and is_store(main / FOLDER):
        contained.refuse_link(main / FOLDER)
        return main / FOLDER
    raise NotFound(f"no ctxvc store in {start} or above", hint=Phrase("init-root"))


def is_store(path: Path) -> bool:
    """Whether there is a store at `path`."""
    return (path / "HEAD").is_file() and (path / "ctxvc").is_dir()


def project_root(folder: Path) -> Path:
    """The root of the project that `folder` is in; for a linked worktree, that of the main one.

    `folder` itself if it is in no git repository. A submodule is a project of its own.
    """
    from ctxvc.store.git import program  # imports pygit2, which hooks that look for a store should not

    answer = (
        program.of_project(folder, "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel") or b""
    )
    common, _, top = answer.decode("utf-8", "surrogateescape").strip().partition("\n")
    if not top or not folder.resolve().is_relative_to(Path(top).resolve()):
        return folder  # the settings name a work tree elsewhere, where the project is not
    main = Path(common).parent
    if Path(common).name != ".git":
        return Path(top)
    linked = not folder.resolve().is_relative_to(main.resolve())
    return main if not linked or contained.main_worktree(folder.resolve()) == main.resolve() else Path(top)
