"""What is loaded when, and what a shell completes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.claude_code import compaction
from ctxvc.cli import main
from ctxvc.cli.command_list import COMMANDS
from tests.cli.conftest import ROOT, Run, printed
from tests.making.played_host import SESSION, PlayedHost

HEAVY = {"anthropic", "tiktoken", "toktok", "rich", "mcp", "pygit2", "sqlite3", "kingfisher_sdk", "wcwidth"}


def loaded(code: str, folder: Path = ROOT) -> set[str]:
    """The modules that are loaded after `code`."""
    ended, out, _ = printed("-c", f"import sys\n{code}\nprint('modules', *sys.modules)", folder=folder)
    assert ended == 0
    return set(out.splitlines()[-1].split())


def _run(*lines: Sequence[str]) -> str:
    program = "from ctxvc.cli.main import cli\n"
    return program + "".join(f"try: cli.main({[*line]!r})\nexcept SystemExit: pass\n" for line in lines)


def test_help_loads_no_command_and_no_store() -> None:
    found = loaded(_run(["--help"], ["--version"], [], ["nonsense"]))
    assert not HEAVY & found
    assert "msgspec" not in found
    assert not [name for name in found if name.startswith("ctxvc.store")]


@pytest.mark.parametrize("command", ["log", "status"])
def test_a_command_loads_only_what_it_needs(built: Path, run: Run, command: str) -> None:
    assert run(command, folder=built).exit_code == 0  # counts tokens, once
    found = loaded(_run([command]), built)
    assert "ctxvc.store.secrets.redaction" in found
    assert not (HEAVY - {"pygit2", "sqlite3"}) & found
    # What looks for secrets has many patterns, and these two show what is redacted already.
    assert (
        not {"ctxvc.importers.file", "ctxvc.core.prompt.formats", "ctxvc.core.secrets.rules", "ctxvc.core.secrets.find"}
        & found
    )


def test_a_compaction_in_a_host_loads_no_tokenizer_for_its_stubs(tmp_path: Path) -> None:
    host = PlayedHost(tmp_path)
    host.says("Look around.")
    for number in range(40):
        host.calls(f"call-{number}", f"line {number} of what it shows\n" * 120)
    host.records()
    with host.stored() as stored:
        compaction.warm(stored)
    host.says("And what did you see?")  # what the recorder has not counted
    settings = tmp_path / "config.toml"
    settings.write_text("[claude-code]\nalways = true\n")
    event = {"session": SESSION, "folder": str(host.project), "trigger": "auto", "messages": host.messages}

    env = {**host.env, "CTXVC_CONFIG": str(settings)}
    _, out, err = printed("-c", HOOK, folder=tmp_path, env=env, stdin=json.dumps(event))
    assert " archived, 0 lost" in json.loads(out)["line"]
    used = set(err.split())
    assert "lzma" in used  # the vocabulary, without tiktoken
    extra = {"tiktoken", "click", "rich", "wcwidth", "concurrent.futures"} & used
    assert not extra


#: Prints what is loaded once a host's event is answered.
HOOK = """
import sys
from ctxvc.cli.hook_entry import hook
hook(["SessionCompact"])
print(*sys.modules, file=sys.stderr)
"""


# --- completion


def completed(folder: Path, *arguments: str) -> list[str]:
    """What bash is offered for the last word."""
    asked = {
        "_CTXVC_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["ctxvc", *arguments]),
        "COMP_CWORD": str(len(arguments)),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main.cli, env=asked)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_commands_and_options_are_completed(built: Path) -> None:
    assert completed(built, "st") == ["status", "stats"]
    assert completed(built, "") == list(COMMANDS)
    assert "--graph" in completed(built, "log", "--g")


def test_sessions_and_scopes_are_completed(built: Path) -> None:
    assert completed(built, "--session", "b") == ["branched"]
    assert completed(built, "log", "--session", "h") == ["hostile"]
    assert completed(built, "log", "branched/a") == ["branched/agent-1"]
    assert set(completed(built, "--session", "branched", "log", "r")) == {"rewind-1"}


def test_where_there_is_no_store_nothing_is_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "--session", "b") == []
    assert completed(tmp_path, "log", "b") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_takes(shell: str, run: Run, tmp_path: Path) -> None:
    script = run("completion", shell).stdout
    assert "_CTXVC_COMPLETE" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
