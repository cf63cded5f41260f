"""A store with everything in it, built by code with fixed times; and how the command line is run on it."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli import main
from ctxvc.cli.main import cli
from tests.making.code import written_by_a_session
from tests.making.project import build
from tests.messages_api import MODELS, Judge, MessagesApi, catalogue, serve

Run = Callable[..., Result]
Serving = Callable[..., Any]
ROOT = Path(main.__file__).parents[2]
#: Shells start what runs in the background with interrupts ignored, which is inherited.
_INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
INTERRUPTIBLE = ["-c", f"{_INTERRUPTIBLE}from ctxvc.cli.main import run; run()"]


def answer(run: Run, folder: Path, *arguments: str | Path, code: int = 0) -> Any:
    """The JSON that a command answers."""
    result = run(*arguments, "--json", folder=folder)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def python(*arguments: str, folder: Path, env: Mapping[str, str] = {}, **options: Any) -> subprocess.Popen[str]:
    """A Python of its own that finds the package; `-m ctxvc` is the program as a shell runs it. What it prints is
    buffered, and reaches a pipe late."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **env}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, env=env, **streams)


def printed(*arguments: str, folder: Path, stdin: Any = None, **options: Any) -> tuple[int, Any, Any]:
    """What such a Python ended with, and printed on both streams."""
    with python(*arguments, folder=folder, stdin=subprocess.PIPE, **options) as process:
        out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


#: How a terminal is told a colour, and whatever else may steer it.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066]")


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of which nobody wants anything."""
    for name in ("CLICOLOR_FORCE", "CTXVC_PAGER", "PAGER", "LESS", "COLUMNS", "_CTXVC_COMPLETE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="session")
def _vocabulary_unpacked_once() -> Iterator[None]:
    """`doctor` unpacks it each time, to see whether it is whole: the same bytes need that only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lzma, "decompress", cache(lzma.decompress))
        yield


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the store as it was built: no command has been run on it."""
    project = tmp_path_factory.mktemp("pristine") / "project"
    build(project)
    return project


@pytest.fixture(scope="session")
def built(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for commands that only read."""
    return Path(shutil.copytree(pristine, tmp_path_factory.mktemp("built") / "project", symlinks=True))


@pytest.fixture
def project(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(pristine, tmp_path / "project", symlinks=True))


@pytest.fixture
def run() -> Run:
    """Runs `ctxvc` with these words in this process; in a pipe, as far as it knows."""

    def run(*arguments: str | Path, folder: Path | None = None) -> Result:
        where = ["-C", str(folder)] if folder else []
        return CliRunner().invoke(cli, [*where, *map(str, arguments)])

    return run


@pytest.fixture
def on_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ctxvc` in this process; on a terminal of 120 columns, or `width`, as far as it knows. No pager.

    Nothing takes so long that a bar is drawn, whatever else the machine does.
    """
    monkeypatch.setattr("ctxvc.cli.terminal.progress._AFTER", 600.0)

    def on_screen(*arguments: str | Path, folder: Path | None = None, width: int = 120) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", str(width))
            patch.setenv("CTXVC_PAGER", "cat")
            return run(*arguments, folder=folder)

    return on_screen


@pytest.fixture
def ask(run: Run, built: Path) -> Callable[..., Any]:
    """The JSON that a command answers on the built store; it must succeed."""

    def ask(*arguments: str) -> Any:
        result = run(*arguments, "--json", folder=built)
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    return ask


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A small chat in OpenAI's form."""
    path = tmp_path / "chat.json"
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]})
    )
    return path


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A project whose code the recorded session `work` wrote."""
    written_by_a_session(tmp_path / "app")
    return tmp_path / "app"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """An empty repository to push to."""
    path = tmp_path / "sessions.git"
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of another clone, empty."""
    folder = tmp_path / "other"
    folder.mkdir()
    return folder


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Serving:
    """Serves replies to the commands that are run inside; `windows` are those of the provider's models, by name."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")

    @contextmanager
    def serving(replies: Any, **windows: int) -> Iterator[MessagesApi]:
        listed = [replace(MODELS[name], window=tokens) for name, tokens in windows.items()]
        with serve(replies, judge=Judge(models={**MODELS, **catalogue(listed)})) as api:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
            yield api

    return serving
