"""What a person sees of the demo's session on a terminal of 80 columns, as the README shows it.

`python -m tests.docs.screens` writes the README's screens anew.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from click.testing import CliRunner

from ctxvc.cli.main import cli
from tests.cli.test_terminal import on_terminal

README = Path(__file__).parents[2] / "README.md"
#: A block of the page that shows a command's output; `ctxvc status | head -12` shows its first lines.
SCREEN = re.compile(r"(<!-- screen: ([^>]+) -->\n```\n)(.*?)(```)", re.DOTALL)
COMMIT = re.compile(r"\b[0-9a-f]{7}\b")


def shown() -> dict[str, str]:
    """Command → what the README shows of it."""
    return {command: text for _, command, text, _ in SCREEN.findall(README.read_text())}


def drawn(command: str, project: Path) -> str:
    """What the command prints in a project that `ctxvc demo` made."""
    line, _, first = command.partition(" | head -")
    program, *words = shlex.split(line)
    if program == "ctxvc":
        text, code = on_terminal("--color", "never", *words, folder=project, width=80, COLUMNS="80")
    else:
        result = subprocess.run([program, *words], cwd=project, capture_output=True, text=True, check=False)
        text, code = result.stdout, result.returncode
    assert code == 0, (command, text)
    lines = [line.rstrip() for line in text.splitlines()]
    if first and len(lines) > int(first):
        lines = [*lines[: int(first)], "…"]
    return "".join(f"{line}\n" for line in lines)


def make_demo(folder: Path) -> Path:
    """The project that `ctxvc demo` makes."""
    project = folder / "playground"
    result = CliRunner().invoke(cli, ["demo", str(project)])
    assert result.exit_code == 0, result.stderr
    return project


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = make_demo(Path(folder))
        page = SCREEN.sub(lambda found: f"{found[1]}{drawn(found[2], project)}{found[4]}", README.read_text())
    README.write_text(page)


if __name__ == "__main__":
    main()
