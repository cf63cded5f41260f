"""The files of a folder that no `.gitignore` names, as git lists them, wherever the folder comes from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ctxvc.store.git import program
from ctxvc.store.project.locate import FOLDER


def below(start: Path, root: Path) -> set[str]:
    """The files below a folder, by their paths from there.

    Where no repository is around it, `root` counts as one, and hidden files are left out. What lies in a repository
    further inside is listed as that one sees it. Raises: Refused without git.
    """
    listed = _listed(start, exclude=FOLDER)
    if listed is None:
        with tempfile.TemporaryDirectory() as bare:
            for name in ("objects", "refs"):
                (Path(bare) / name).mkdir()
            (Path(bare) / "HEAD").write_text("ref: refs/heads/main\n")
            at = (f"--git-dir={bare}", f"--work-tree={root}")
            listed = _listed(start, exclude=".*", at=at) or []
    files = {name for name in listed if not name.endswith("/")}
    inner = {*listed} - files - ({"./"} if start == root else set())
    return files.union(*({name + path for path in below(start / name, start / name)} for name in inner))


def top(folder: Path) -> Path | None:
    """The top of the work tree that a folder is in; None if it is in none that the person trusts."""
    answer = program.of_project(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(answer.removesuffix(b"\n"))) if answer else None


def down_to(folder: Path) -> list[Path]:
    """The folders from the top of the work tree down to this one; this one alone if it is in none."""
    above, places = top(folder), [folder, *folder.parents]
    return places[: places.index(above) + 1][::-1] if above in places else [folder]


def _listed(start: Path, *, exclude: str, at: Sequence[str] = ()) -> list[str] | None:
    """Git's listing: files, and repositories with a trailing slash. None for a folder outside any repository."""
    options = ("-z", "-co", "--exclude-standard", f"--exclude={exclude}")
    answer = program.of_project(start, "ls-files", *options, at=at, personal=False)
    return None if answer is None else [os.fsdecode(name) for name in answer.split(b"\0") if name]
