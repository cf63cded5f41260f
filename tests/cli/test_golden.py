"""What every command prints in a pipe, to the byte, but for ids. `--update-golden` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

GOLDEN = Path(__file__).parent / "golden"

CASES: dict[str, list[list[str]]] = {
    "sessions": [["sessions"], ["sessions", "--json"]],
    "status": [
        ["status"],
        ["status", "step:1"],
        ["--session", "branched", "status", "--all"],
        ["status", "--session", "branched", "--json"],
    ],
    "context": [
        ["context"],
        ["context", "--by", "tool"],
        ["context", "--by", "turn"],
        ["context", "--by", "file"],
        ["context", "step:1"],
        ["context", "--json"],
    ],
    "log": [
        ["log"],
        ["log", "-n", "2", "step:3"],
        ["log", "-n", "0"],
        ["log", "branched/main"],
        ["log", "-n", "1", "--json"],
        ["log", "-n", "2", "--jsonl"],
        ["--session", "branched", "log", "--graph"],
        ["--session", "branched", "log", "--graph", "main", "-n", "1"],
    ],
    "show-block": [["show", "B2"], ["show", "B4"], ["show", "B6"], ["show", "B9"], ["show", "B9-1.png"]],
    "show-group": [["show", "G1"], ["show", "G1@a1b2c3", "--json"]],
    "show-commit": [["show"], ["show", "step:1"], ["show", "HEAD~1", "--json"]],
    "show-elsewhere": [
        ["--session", "branched", "show", "agent-1:B5"],
        ["show", "branched/main:B3", "--json"],
        ["--session", "branched", "show", "B5"],
    ],
    "show-raw": [["show", "--raw", "B5"], ["show", "--raw", "B2"]],
    "diff": [["diff", "step:1"], ["diff", "HEAD~2", "HEAD~1"], ["diff", "step:2", "step:1", "--json"]],
    "prompt": [["prompt"], ["prompt", "step:1"], ["prompt", "step:1", "--json"], ["prompt", "branched/rewind-1"]],
    "export": [["export", "step:1"], ["export", "--format", "openai", "step:1"]],
    "verify": [["verify"]],
    "refused": [
        ["show", "B99"],
        ["show", "G9"],
        ["show", "B6@000000"],
        ["show", "nowhere:B1"],
        ["show", "zzz"],
        ["show", "zzz", "--json"],
        ["show", "--raw", "HEAD"],
        ["show", "--raw", "G1"],
        ["show", "B9-7.png"],
        ["log", "HEAD~99"],
        ["log", "HEAD^2"],
        ["log", "step:99"],
        ["log", "deadbeef"],
        ["prompt", "demo/nowhere"],
        ["diff", "HEAD", "branched/main"],
        ["--session", "nobody", "status"],
        ["--session", "a/b", "status"],
        ["--session", "..", "status", "--json"],
    ],
    "usage": [
        ["statsu"],
        ["nonsense"],
        ["import", "--name", "a/b", "x.jsonl"],
        ["import", "--name", "..", "x.jsonl"],
        ["import", "--name=-x", "x.jsonl"],
        ["import", "--name", "HEAD", "x.jsonl"],
        ["import", "--name", "DEMO", "x.jsonl"],
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed(name: str, run: Run, project: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    told = "".join(_told(run, words, project) for words in CASES[name]).replace(str(tmp_path), "TMP")
    told = _without_ids(told)
    golden = GOLDEN / f"{name}.txt"
    if pytestconfig.getoption("--update-golden", default=False):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(told)

    assert "this is a bug" not in told
    assert told == golden.read_text()


def _told(run: Run, words: list[str], project: Path) -> str:
    done = run(*words, folder=None if "-C" in words else project)
    parts = [f"$ ctxvc {' '.join(words)}\n", done.stdout]
    if done.stderr:
        parts.append(f"--- stderr\n{done.stderr}")
    return "".join([*parts, f"--- exit {done.exit_code}\n\n"])


def _without_ids(told: str) -> str:
    """Each id by the order in which it comes: they hold what is different every time, such as a journal's name."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        whole = match.group()
        return names.setdefault(whole[:12], f"<{len(names) + 1}>")

    told = re.sub(r"\b(?:[0-9a-f]{40}|[0-9a-f]{16}(?=/)|[0-9a-f]{12})\b", name, told)
    return re.sub(r"in [0-9.]+ s\b", "in <time>", told)
