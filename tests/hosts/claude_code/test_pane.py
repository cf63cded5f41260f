"""The pane of the plugin in a real client on a terminal: what it shows, and what its keys do."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hosts.claude_code.machine import MODEL, Machine
from tests.hosts.claude_code.test_compaction import prepared, stored, worked

_SECONDS = 25


class Terminal:
    """A terminal in which the client runs, with what is on it and a person's keys."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        result = subprocess.run(["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, check=False)
        return result.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def awaits(self, text: str) -> str:
        """The screen, once the text is on it."""
        until = time.monotonic() + _SECONDS
        while text not in (screen := self.screen()):
            assert time.monotonic() < until, f"{text!r} never came:\n{screen}"
            time.sleep(0.1)
        return screen


@contextmanager
def terminal(here: Machine, columns: int) -> Iterator[Terminal]:
    """The newest session, resumed in a client on a terminal."""
    known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    asked = {"approved": [here.env["ANTHROPIC_API_KEY"]], "rejected": []}
    state = here.config / ".claude.json"
    values = json.loads(state.read_text()) if state.exists() else {}
    values |= {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": asked}
    state.write_text(json.dumps({**values, "projects": {str(here.project): known}}))
    client = [str(here.client), "--model", MODEL, "--resume", here.session, "--plugin-dir", str(here.plugins[0])]
    variables = [f"{name}={value}" for name, value in {**here.env, "TERM": "xterm-256color"}.items()]
    command = shlex.join(["env", "-i", *variables, *here.space.command(client, here.project)])
    script = here.outputs / "terminal.sh"
    script.write_text(f"exec {command}\n")
    screen = Terminal(str(here.outputs / "tmux"))
    screen.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "50", f"sh {script}")
    try:
        screen.awaits("That too.")
        time.sleep(3)  # it asks about its modes, or nothing
        if "auto mode" in screen.screen():
            screen.keys("Escape")
        screen.awaits("accept edits on")
        yield screen
    finally:
        screen.tmux("kill-server")


@pytest.fixture(autouse=True)
def _tmux() -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not there")


def opened(screen: Terminal) -> str:
    screen.keys("/ctxvc")
    time.sleep(1)
    screen.keys("Enter")
    return screen.awaits("refresh")


def test_the_pane_shows_the_context_and_its_keys_change_it(every: Machine) -> None:
    prepared(every)
    worked(every)
    every.settle()
    with terminal(every, 150) as screen:
        shown = opened(screen)
        assert "biggest in the prompt" in shown and "results " in shown and "nothing has left" in shown
        screen.keys("1")
        screen.awaits("a: archive")
        screen.keys("a")
        assert "by user" in screen.awaits("left the prompt: 1")
        assert "after its next" in screen.awaits("tokens freed")
        screen.keys("u")
        screen.awaits("nothing has left")
    with stored(every) as session:
        assert all(row.present for row in session.ledger().rows() if row.kind == "tool_result")


def test_of_a_session_that_is_not_recorded_it_shows_no_other_on_a_narrow_terminal_too(here: Machine) -> None:
    prepared(here)
    worked(here)
    here.settle()
    here.session = ""
    here.env["CTXVC_RECORDING"] = "off"
    worked(here)
    with terminal(here, 80) as screen:
        shown = opened(screen)
        assert "this session is not recorded here" in shown and "biggest" not in shown
