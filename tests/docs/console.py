"""The console blocks of a page, and whether its commands do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of every console block, in order."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def matches(pattern: str, text: str) -> bool:
    """Whether `text` is `pattern`: a line `...` is any number of lines, `...` in a line any characters."""
    parts = []
    for line in pattern.splitlines():
        escaped = re.escape(line).replace(r"\.\.\.", r"[^\n]*")
        parts.append(r"(?:[^\n]*\n)*?" if line == "..." else escaped + r"\n")
    return re.fullmatch("".join(parts), text and text.removesuffix("\n") + "\n") is not None


def play(page: Path, folder: Path, *, may_fail: str = "") -> int:
    """Runs the commands of a page in `folder`, each of which must print what the page says; how many there are."""
    commands = list(steps(page))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(os, "cpu_count", lambda: 1)  # all in this process
        for command, output in commands:
            program, *words = shlex.split(command)
            if program == "cd":
                patch.chdir(words[0])
                continue
            code, text, errors = _ran(program, words)
            assert code == 0 or command == may_fail, (command, errors)
            assert matches(output, text), f"$ {command}\n{text}\n--- the page says:\n{output}"
    return len(commands)


def _ran(program: str, words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; of `ctxvc` in this process."""
    if program == "ctxvc" and words[0] == "wrap":  # which takes signals and children for its own
        program, words = sys.executable, ["-m", "ctxvc", *words]
    if program == "ctxvc":
        result = CliRunner().invoke(cli, words)
        return result.exit_code, result.stdout, result.stderr
    other = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    return other.returncode, other.stdout, other.stderr
