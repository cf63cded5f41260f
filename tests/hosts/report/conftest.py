"""A browser, and pages to look at; a page that complains or asks for anything fails its test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import npm
from tests.hosts.environments import ROOT
from tests.hosts.report import samples

DEMO = ROOT / "ctxvc" / "data" / "demo" / "claude-code-session.jsonl.gz"
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

Visit = Callable[..., Any]


@contextmanager
def started(program: str | None) -> Iterator[Any]:
    """A browser that has nobody's settings."""
    from playwright import sync_api

    with sync_api.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="runs in its own environment: test_report.py")
    program = shutil.which("chromium")
    if not program:
        pytest.skip("needs Debian's chromium")
    with started(program) as running:
        yield running


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """Opens a page: `visit(path, "#/prompt/3", theme="dark")`; afterwards it must have said and asked nothing."""
    heard: list[str] = []
    contexts: list[Any] = []

    def opened(address: Path | str, link: str = "", *, width: int = 1280, theme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        own = f"file://{address}" if isinstance(address, Path) else address
        origin = own if isinstance(address, Path) else "/".join(own.split("/")[:3])
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith((origin, "data:", "blob:")) or heard.append(f"request: {request.url}")
            ),
        )
        page.goto(own + link)
        page.wait_for_selector(".frame")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert heard == []


def environment(folder: Path) -> Mapping[str, str]:
    """The environment of a command for a project whose person has no configuration."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CTXVC_")}
    return {**own, "PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""}


def ctxvc(folder: Path, *arguments: str) -> str:
    """What a command prints, which must succeed."""
    command = [sys.executable, "-m", "ctxvc", *arguments]
    result = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def made_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Mapping[str, Any]], Path]:
    """A file with the page of a session that was made up."""
    folder = tmp_path_factory.mktemp("made")

    def write(name: str, made: Mapping[str, Any]) -> Path:
        path = folder / f"{name}.html"
        path.write_bytes(samples.page(made))
        return path

    return write


@pytest.fixture(scope="session")
def session_page(made_page: Callable[..., Path]) -> Path:
    return made_page("session", samples.session())


@pytest.fixture(scope="session")
def axe() -> str:
    return (npm.installed("axe") / "axe-core" / "axe.min.js").read_text()
