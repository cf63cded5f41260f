"""`continue`: a session goes on in another agent."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ctxvc.exporters.native import AGENTS
from tests.cli.conftest import Run

#: A program that tells how it was called.
ECHO = '#!/bin/sh\necho "$(basename $0) $* in $PWD"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_is_written_where_the_agent_looks_and_each_time_another(
    run: Run, project: Path, agent: str, programs: Path
) -> None:
    first, second = (run("continue", "--in", agent, folder=project) for _ in range(2))

    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert "wrote " in first.stderr
    commands = [done.stdout.splitlines()[-1:] for done in (first, second)]
    assert commands[0] != commands[1] or agent == "mini-swe-agent"
    assert all(line[0].startswith(f"cd {shlex.quote(str(project.resolve()))} && ") for line in commands if line)


def test_a_budget_makes_room_in_a_scope_of_its_own(run: Run, project: Path) -> None:
    before = run("status", "--json", folder=project).stdout
    written = run("continue", "--in", "pi", "--budget", "4k", folder=project)
    again = run("continue", "--in", "pi", "--budget", "4k", "--policy", "window", folder=project)
    scopes = json.loads(run("scopes", "--json", folder=project).stdout)["items"]

    assert (written.exit_code, again.exit_code) == (0, 0), written.stderr
    noted = re.search(r"tokens freed; the prompt is ~?(\S+) tokens now: `ctxvc (status demo/for-pi)`", written.stderr)
    assert noted and noted[1] in run(*noted[2].split(), folder=project).stdout
    assert [scope["name"] for scope in scopes][-2:] == ["for-pi", "for-pi-2"]
    assert run("status", "--json", folder=project).stdout == before


def test_an_agent_takes_a_session_in_itself_if_it_is_installed(run: Run, project: Path, programs: Path) -> None:
    missing = run("continue", "--in", "opencode", folder=project)
    assert " && opencode import " in missing.stdout and " && opencode --session ses_" in missing.stdout

    (programs / "opencode").write_text('#!/bin/sh\ngrep -q ses_ "$2"\n')
    (programs / "opencode").chmod(0o755)
    done = run("continue", "--in", "opencode", folder=project)
    assert done.exit_code == 0 and "import" not in done.stdout and " && opencode --session ses_" in done.stdout

    (programs / "opencode").write_text("#!/bin/sh\necho no room >&2; exit 3\n")
    failed = run("continue", "--in", "opencode", folder=project)
    assert failed.exit_code == 1 and "no room" in failed.stderr


def test_what_cannot_be_is_refused(run: Run, project: Path, programs: Path) -> None:
    for words, code, reason in (
        (("--in", "nobody"), 2, "nobody"),
        ((), 2, "--in"),
        (("--in", "codex", "--policy", "window"), 2, "--policy requires --budget"),
        (("--in", "codex", "--run", "--json"), 2, "--json"),
        (("--in", "codex", "--run"), 1, "codex is not installed"),
        (("nothing", "--in", "codex"), 1, "nothing"),
        (("--in", "codex", "--budget", "20k", "--policy", "nobody"), 1, "no policy"),
    ):
        result = run("continue", *words, folder=project)
        assert (result.exit_code, reason in result.stderr) == (code, True), (words, result.stderr)
    assert len(json.loads(run("scopes", "--json", folder=project).stdout)["items"]) == 1
