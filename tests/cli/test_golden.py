"""What every command prints in a pipe, to the byte, but for ids. `--update-golden` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

GOLDEN = Path(__file__).parent / "golden"

CASES: dict[str, list[list[str]]] = {
    "sessions": [["sessions"], ["sessions", "--json"]],
    "stats": [["stats"], ["stats", "--by", "tool"], ["stats", "--by", "file"], ["stats", "--json"]],
    "sql": [
        ["sql", "SELECT * EXCLUDE (project, commit) FROM calls ORDER BY session, scope, step"],
        ["sql", "SELECT session, scope, block, path, act, error FROM files ORDER BY ALL"],
        ["sql", "SELECT nothing"],
    ],
    "status": [
        ["status"],
        ["status", "step:1"],
        ["--session", "branched", "status", "--all"],
        ["status", "--session", "branched", "--json"],
        ["status", "--all"],
        ["status", "--text"],
        ["status", "--text", "step:1"],
        ["status", "--text", "--json"],
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
    "diff-prompt": [
        ["diff", "step:2", "HEAD", "--prompt"],
        ["diff", "HEAD", "HEAD", "--prompt"],
        ["diff", "HEAD~1", "--prompt", "--json"],
    ],
    "ops": [["ops"], ["ops", "-n", "2", "--json"], ["--session", "branched", "ops"], ["ops", "nowhere"]],
    "prompt": [["prompt"], ["prompt", "step:1"], ["prompt", "step:1", "--json"], ["prompt", "branched/rewind-1"]],
    "export": [["export", "step:1"], ["export", "--format", "openai", "step:1"]],
    "grep": [
        ["grep", "add.3[12], 1.*="],
        ["grep", "-F", "-n", "2", "assert"],
        ["grep", "-i", "FIX", "--live"],
        ["grep", "app", "--kind", "tool_use", "--json"],
        ["--session", "branched", "grep", "login"],
        ["grep", "--all", "owned"],
        ["grep", "--archived", "off by one"],
        ["grep", "--scope", "nowhere", "x"],
        ["grep", ""],
        ["grep", "--archived", "--live", "x"],
        ["grep", "--all", "--scope", "main", "x"],
        ["grep", "--rank", "off by one", "-n", "3"],
        ["grep", "--rank", "zebra"],
        ["grep", "--rank", "-i", "off"],
        ["grep", "--agent", "pi", "off"],
        ["grep", "--agent", "ctxvc", "--file", "app.py", "--since", "2020-01-01", "app|add"],
        ["grep", "--since", "soon", "off"],
        ["grep", "("],
        ["grep", "(a+)+$", "--scope", "main", "--kind", "user"],
    ],
    "bisect": [
        ["bisect", "assert"],
        ["bisect", "careful engineer"],
        ["bisect", "B6"],
        ["bisect", "G1"],
        ["bisect", "B6", "--json"],
        ["bisect", "--text", "B6"],
        ["--session", "branched", "bisect", "With a key", "--scope", "rewind-1"],
        ["bisect", "--tokens", "300"],
        ["bisect", "--tokens", "300000"],
        ["bisect", "--cmd", "! grep -q 'off by one'"],
        ["bisect", "--cmd", "! grep -q 'off by one' $CTXVC_PROMPT", "--linear", "--json"],
        ["bisect", "--cmd", "true"],
        ["bisect", "--cmd", "exit 127"],
        ["bisect", "B99"],
        ["bisect", ""],
        ["bisect"],
        ["bisect", "x", "--tokens", "3"],
        ["bisect", "x", "--linear"],
    ],
    "blame": [["blame", "B6"], ["blame", "G1"], ["blame", "B8"], ["blame", "B1", "--json"], ["blame", "HEAD"]],
    "act": [
        ["archive", "B4,B5", "-m", "the calls"],
        ["archive", "B2-B10", "-m", "the first look"],
        ["archive", "B2-B10", "-m", "once more"],
        ["archive", "G2", "--json"],
        ["restore", "B7"],
        ["restore", "G2"],
        ["restore", "G2"],
        ["delete", "B12", "-m", ""],
        ["delete", "B12", "-m", "no need", "--actor", "agent"],
        ["delete", "B9", "-m", "it is out of date: [archived B1: x]"],
        ["archive", "B11"],
        ["archive", "B11", "--allow-user"],
        ["archive", "B11", "--allow-user", "--actor", "agent"],
        ["pin", "B3"],
        ["archive", "B3"],
        ["unpin", "B3", "--json"],
        ["unpin", "B3"],
        ["archive", "B99", "nonsense", "B1-B100000", "--actor", "agent"],
        ["archive", "--json", "B99"],
        ["delete", "B7"],
        ["status", "--all"],
    ],
    "compact": [
        ["compact"],
        ["restore", "B6"],
        ["compact", "--budget", "100000"],
        ["compact", "--dry-run"],
        ["compact"],
        ["compact"],
        ["compact", "--policy", "summary"],
        ["show", "G2"],
        ["compact", "--json"],
        ["compact", "--budget", "0"],
    ],
    "undo": [
        ["--session", "branched", "undo"],
        ["--session", "branched", "pin", "B1"],
        ["--session", "branched", "unpin", "B1"],
        ["--session", "branched", "undo"],
        ["--session", "branched", "undo"],
        ["--session", "branched", "undo", "--json"],
        ["--session", "branched", "redo"],
        ["--session", "branched", "redo", "--json"],
        ["--session", "branched", "redo"],
        ["--session", "branched", "note", "-m", "a note"],
        ["--session", "branched", "undo", "2"],
        ["--session", "branched", "undo", "--to", "step:2"],
        ["--session", "branched", "undo", "--to", "nowhere"],
        ["--session", "branched", "undo", "1", "--to", "step:2"],
        ["--session", "branched", "notes"],
        ["--session", "branched", "log", "--graph", "main"],
    ],
    "recover": [
        ["recover", "B10"],
        ["recover", "B6", "--lines", "39:"],
        ["recover", "B6", "--chars", "1:30"],
        ["recover", "B6", "--grep", "assert add.1., "],
        ["recover", "B6", "--actor", "agent", "--max-tokens", "80"],
        ["recover", "B6", "--lines", "3:4", "--json"],
        ["recover", "B10", "--json"],
        ["recover", "G1"],
        ["recover", "branched/agent-1:B5"],
        ["recover", "B6", "--lines", "1:2", "--add"],
        ["recover", "B6", "--lines", "99:"],
        ["recover", "B6", "--lines", "x"],
        ["recover", "B6", "--grep", "("],
        ["recover", "B6", "--grep", "add(39, 1", "-F"],
        ["recover", "B6@000000"],
        ["recover", "B99"],
        ["recover", "HEAD"],
        ["recover", "B6", "--file", "--lines", "1:2"],
        ["recover", "B6", "--file", "--add"],
        ["status", "--all"],
    ],
    "scope": [
        ["scopes"],
        ["scope", "fix-error", "-m", "it's an error: why?"],
        ["note", "-m", 'the sum is "off" by one'],
        ["goto", "main", "-m", "found"],
        ["scope", "fix-error", "-m", "again"],
        ["scope", "a b", "-m", "x"],
        ["scope", "again", "-m", " "],
        ["scope", "again", "-m", "another way", "--from", "step:1"],
        ["scope", "more", "-m", "with all", "--with-messages", "--json"],
        ["goto", "more", "-m", "x"],
        ["goto", "nowhere", "-m", "x"],
        ["goto", "main", "-m", "back", "--json"],
        ["note", "-m", ""],
        ["note", "-m", "what led to it is folded", "--fold", "--json"],
        ["notes"],
        ["notes", "fix-error", "--json"],
        ["notes", "nowhere"],
        ["scopes"],
        ["scopes", "--json"],
        ["log", "--graph", "-n", "6"],
    ],
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


RECORDINGS = {"claude": "claude-code/20-02395c1048-0.jsonl", "codex": "codex/current.jsonl", "pi": "pi/v3.jsonl"}


def test_what_is_printed_of_recordings_of_three_hosts(run: Run, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    data = GOLDEN.parents[1] / "data"
    for name, file in RECORDINGS.items():
        assert run("import", "--final", "--name", name, str(data / file), folder=tmp_path).exit_code == 0
    looks = [["--session", name, command] for name in RECORDINGS for command in ("status", "context")]
    text = _without_ids("".join(_told(run, words, tmp_path) for words in [["sessions"], *looks]))
    golden = GOLDEN / "recorded.txt"
    if pytestconfig.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert text == golden.read_text()


def _told(run: Run, words: list[str], project: Path) -> str:
    result = run(*words, folder=None if "-C" in words else project)
    parts = [f"$ ctxvc {' '.join(words)}\n", result.stdout]
    if result.stderr:
        parts.append(f"--- stderr\n{result.stderr}")
    return "".join([*parts, f"--- exit {result.exit_code}\n\n"])


def _without_ids(told: str) -> str:
    """Each id by the order in which it comes: they hold what is different every time, such as a journal's name."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        whole = match.group()
        return names.setdefault(whole[:12], f"<{len(names) + 1}>")

    told = re.sub(r"\b(?:[0-9a-f]{40}|[0-9a-f]{16}(?=/)|[0-9a-f]{12})\b", name, told)
    return re.sub(r"in [0-9.]+ s\b", "in <time>", told)
