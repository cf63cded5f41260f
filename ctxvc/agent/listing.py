"""The files of a folder that no `.gitignore` names, as git lists them, wherever the folder comes from."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from ctxvc.store import git
from ctxvc.store.store import FOLDER

#: A folder may be anybody's: whatever its settings say, nothing is run for a list of files, and nothing is fetched.
_CONFIG = ("core.fsmonitor=false",)
_ENV = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}


def below(start: Path, root: Path) -> set[str]:
    """The files below a folder, by their paths from there.

    Where no repository is around it, `root` counts as one, and hidden files are left out. What lies in a repository
    further inside is listed as that one sees it. Raises: Refused without git.
    """
    listed = _listed(None, start, exclude=FOLDER)
    if listed is None:
        with tempfile.TemporaryDirectory() as made:
            for name in ("objects", "refs"):
                (Path(made) / name).mkdir()
            (Path(made) / "HEAD").write_text("ref: refs/heads/main\n")
            listed = _listed(Path(made), start, f"--work-tree={root}", exclude=".*") or []
    files = {name for name in listed if not name.endswith("/")}
    inner = {*listed} - files - ({"./"} if start == root else set())
    return files.union(*({name + each for each in below(start / name, start / name)} for name in inner))


def top(folder: Path) -> Path | None:
    """The top of the work tree that a folder is in; None where it is in none of this user's."""
    asked = git.command(None, "rev-parse", "--show-toplevel", config=(*_CONFIG, "safe.directory="))
    done = subprocess.run(asked, cwd=folder, capture_output=True, check=False, env={**git.environment(), **_ENV})
    return None if done.returncode else Path(os.fsdecode(done.stdout.removesuffix(b"\n")))


def _listed(git_dir: Path | None, start: Path, *where: str, exclude: str) -> list[str] | None:
    """What git lists: files, and with a slash behind them repositories. None for a folder that is in none."""
    asked = ("ls-files", "-z", "-co", "--exclude-standard", f"--exclude={exclude}")
    done = subprocess.run(
        git.command(git_dir, *where, *asked, config=_CONFIG),
        cwd=start,
        capture_output=True,
        check=False,
        env={**git.environment(), **_ENV},
    )
    return None if done.returncode else [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
