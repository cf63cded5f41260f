"""A call's facts are read off the shape of its arguments, whatever its tool is called and whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.facts import Fact, argument_text, facts
from tests.making.generated import json_objects

PATCH = """*** Begin Patch
*** Update File: src/a.ts
@@
 same
-old
+new
+newer
*** Add File: b.md
+text
*** Delete File: c.md
*** End Patch
"""


def told(arguments: Any, tool: str = "t") -> list[tuple[str, str, str]]:
    return [(fact.act, fact.object, fact.detail) for fact in facts(tool, wire.compact(arguments))]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # Claude Code, Copilot, deer-flow: a file
        ({"file_path": "/w/a.go"}, ("read", "/w/a.go", "")),
        ({"file_path": "/w/a.go", "offset": 10, "limit": 5}, ("read", "/w/a.go", "10–14")),
        ({"file_path": "/w/a.go", "limit": 5}, ("read", "/w/a.go", "1–5")),
        ({"path": "a.py", "start_line": 3, "end_line": 9}, ("read", "a.py", "3–9")),
        ({"file_path": "a", "old_string": "x\ny\nz", "new_string": "x\n1\n2\nz"}, ("edited", "a", "+2 −1")),
        ({"file_path": "a", "old_string": "x", "new_string": "x\ny\nz"}, ("edited", "a", "+2 −0")),
        ({"path": "a", "edits": [{"oldText": "x", "newText": ""}, {"oldText": "", "newText": "y"}]},
         ("edited", "a", "+1 −1")),
        ({"file_path": "n.md", "content": "one\ntwo\n"}, ("wrote", "n.md", "+2 −0")),
        ({"pattern": "func Load", "path": "/w/strategy"}, ("searched", "func Load", "strategy")),
        ({"query": "what is it"}, ("searched", "what is it", "")),
        ({"url": "https://a.b/c", "prompt": "read it"}, ("fetched", "https://a.b/c", "")),
        ({"description": "Look around", "prompt": "Long.", "subagent_type": "Explore"},
         ("delegated", "Look around", "")),
        ({"plan": "# Plan: logging\n\nFirst"}, ("planned", "Plan: logging", "")),
        ({"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]},
         ("todo", "b", "1/2")),
        ({"plan": [{"step": "a", "status": "completed"}, {"step": "b", "status": "pending"}]}, ("todo", "", "1/2")),
        # SWE-agent's editor
        ({"command": "view", "path": "/r/f.py", "view_range": [1, 40]}, ("read", "/r/f.py", "1–40")),
        ({"command": "create", "path": "/r/f.py", "file_text": "x"}, ("wrote", "/r/f.py", "+1 −0")),
        ({"command": "str_replace", "path": "/r/f.py", "old_str": "a", "new_str": "b"}, ("edited", "/r/f.py", "+1 −1")),
        # our own agent's
        ({"path": "a.py", "old": "x", "new": "x\ny"}, ("edited", "a.py", "+1 −0")),
        # what is none of these
        ({"reservation_id": "JG7FMM", "cabin": "economy"}, ("called", "JG7FMM economy", "")),
        ({"filepaths": ["/m/a.md", "/m/b.md"]}, ("called", "/m/a.md /m/b.md", "")),
        ({"session_id": 32087, "chars": "", "yield_time_ms": 30000}, ("called", "32087", "")),
        ({"path_count": 3, "query_id": "q1"}, ("called", "q1", "")),
        ({}, ("called", "", "")),
    ],
)  # fmt: skip
def test_a_call_is_known_by_the_shape_of_its_arguments(arguments: Any, expected: tuple[str, str, str]) -> None:
    assert told(arguments) == [expected]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd /w && go test ./... 2>&1 | tail -5", [("ran", "go test ./...", "")]),
        ("FOO=1 timeout 60 pytest -q", [("ran", "pytest -q", "")]),
        ("sed -n '10,60p' src/a.ts", [("read", "src/a.ts", "10–60")]),
        ("cat a.md; cat b.md", [("read", "a.md", ""), ("read", "b.md", "")]),
        ("rg -n \"a|b\" packages/core | head", [("searched", "a|b", "core")]),
        ("find . -name '*.go'", [("listed", ".", "")]),
        ("git add -A && git commit -m \"Mend it\n\nWhy.\"", [("committed", "Mend it", ""), ("ran", "git add -A", "")]),
        ("git commit -m \"$(cat <<'EOF'\nMend it\n\nWhy.\nEOF\n)\"", [("committed", "Mend it", "")]),
        ("cat > notes.md <<'EOF'\nx\nEOF", [("wrote", "notes.md", "")]),
        ("sed -i s/a/b/ f.py", [("edited", "f.py", "")]),
        ('for f in *.go; do\n  bad=$(grep -n x "$f" | while read ln; do\n    grep -q y || "$rest"; true)\ndone',
         [("ran", "for f in *.go; do", "")]),
        ("tmp=$(mktemp).md\ncat > \"$tmp\" <<'EOF'\nCreate it; then ls\nEOF\nworkmux send layout --file x",
         [("ran", "workmux send layout --file x", "")]),
        ("python3 - <<'EOF'\nimport os\nEOF", [("ran", "python3 -", "")]),
        ('"$BIN" -v && make', [("ran", "make", "")]),
        ("apply_patch <<'EOF'\n" + PATCH + "EOF", [("edited", "src/a.ts", "+2 −1"), ("wrote", "b.md", "+1 −0"),
                                                   ("deleted", "c.md", "")]),
    ],
)  # fmt: skip
def test_a_command_is_known_by_what_it_did(command: str, expected: list[Any]) -> None:
    assert told({"command": command}) == expected
    assert told({"command": ["bash", "-lc", command]}) == expected
    assert told({"cmd": command}) == expected


def test_a_patch_of_no_file_tells_nothing() -> None:
    assert [fact.act for fact in facts("apply_patch", "*** Begin Patch\n*** End Patch", "txt")] == ["called"]


def test_a_patch_tells_of_each_of_its_files() -> None:
    expected = [("edited", "src/a.ts", "+2 −1"), ("wrote", "b.md", "+1 −0"), ("deleted", "c.md", "")]
    assert told({"input": PATCH}) == expected
    assert [(fact.act, fact.object, fact.detail) for fact in facts("apply_patch", PATCH, "txt")] == expected


def test_arguments_that_are_no_json_are_told_as_they_are() -> None:
    assert facts("sh", b"ls -l", "txt") == (Fact("called", "ls -l", tool="sh"),)


@given(json_objects, st.text(max_size=20))
def test_every_call_has_a_fact_whatever_its_arguments(arguments: dict[str, Any], tool: str) -> None:
    body = wire.compact(arguments)
    assert facts(tool, body)
    argument_text(body.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    "unit", ["'", '"', '"\\"', "cat ", "git commit -", "a='", "$(cat <<", "'\"", "| ", "sed ", "x", 'commit -m "', "\n"]
)
@pytest.mark.timeout(60)
def test_a_hostile_command_has_facts_too(unit: str) -> None:
    """In the square of its length, it would take minutes."""
    assert facts("Bash", wire.compact({"command": unit * (200_000 // len(unit))}))


def test_the_text_of_arguments_has_no_escapes() -> None:
    assert argument_text('{"a":"x\\n\\ty","b":[{"c":"z"}],"d":5}') == "x\n\ty\nz"
    assert argument_text("plain", "txt") == "plain"
