"""The tutorial's commands, run as they stand; `...` in what they print stands for anything."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def steps() -> list[tuple[str, str]]:
    """(command, what it prints) of every console block, in order."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", TUTORIAL.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def matches(pattern: str, text: str) -> bool:
    """Whether `text` is `pattern`: a line `...` is any number of lines, `...` in a line any characters."""
    parts = []
    for line in pattern.splitlines():
        escaped = re.escape(line).replace(r"\.\.\.", r"[^\n]*")
        parts.append(r"(?:[^\n]*\n)*?" if line == "..." else escaped + r"\n")
    return re.fullmatch("".join(parts), text) is not None


def test_every_command_does_what_the_tutorial_says(tmp_path: Path) -> None:
    folder = tmp_path
    found = steps()
    assert len(found) > 12
    for command, output in found:
        words = shlex.split(command)
        if words[0] == "cd":
            folder = folder / words[1]
            continue
        if words[0] == "ctxvc":
            words[:1] = [sys.executable, "-m", "ctxvc"]
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False, env={**os.environ})
        text = done.stdout.decode()
        text += "" if text.endswith("\n") or not text else "\n"
        assert done.returncode == 0 or command == "ctxvc import", (command, done.stderr.decode())
        assert matches(output, text), f"$ {command}\n{text}\n--- the tutorial says:\n{output}"


def test_the_comparison_can_fail() -> None:
    assert matches("a\n...\nb...\n", "a\nx\ny\nbeta\n")
    assert not matches("a\n...\nb\n", "a\nx\n")
    assert not matches("a\n", "b\n")
