"""How often `why` is right: the measure of `tests.benchmarks.attribution`, small, and on recordings."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.benchmarks import attribution
from tests.benchmarks.attribution import SCENARIOS, Score, measure, recordings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of one file that is written and then edited ten times, and one whose lines a person takes."""
    for name, lines in (("one", 12), ("two", 9)):
        calls = [
            ("Write", {"file_path": f"/w/src/{name}.py", "content": f"def {name}():\n    return count_of('{name}')\n"})
        ]
        for number in range(lines):
            old = f"def {name}():\n"
            new = f"{old}    first_{number} = load('{name}', {number})\n    second_{number} = first_{number} + 1\n"
            calls.append(("Edit", {"file_path": f"/w/src/{name}.py", "old_string": old, "new_string": new}))
        messages = [
            {"role": "user", "content": [{"type": "text", "text": "go"}], "meta": {"ts": "2026-01-01T00:00:00Z"}}
        ]
        for number, (tool, arguments) in enumerate(calls):
            stamp = {"ts": f"2026-01-01T00:{number + 1:02}:00Z"}
            use = {"type": "tool_use", "id": f"{name}-{number}", "name": tool, "input": arguments}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "ok"}]}
            messages.append({"role": "assistant", "content": [use], "meta": stamp})
            messages.append({"role": "user", "content": [result], "meta": stamp})
        header = {"format": "ctxvc-trajectory/1", "id": name, "source_repo": "a/b", "native_format": "claude-code"}
        data = "".join(f"{json.dumps(line)}\n" for line in (header, *messages))
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(data.encode()))
    return tmp_path


def test_edits_and_a_persons_lines_are_told_apart_in_a_rewritten_history(folder: Path) -> None:
    one, two = recordings(folder)
    corpus = [new.split("\n") for change in two.changes for _, new, _ in change.parts]
    scores = measure([one], corpus, SCENARIOS["all of it"] - {"shell"}, "1")
    for kind in ("agent", "human"):
        score = scores[kind]
        assert score.truth > 5 and score.said, kind
        assert score.right >= 0.95 * score.said, (kind, score)
    assert scores["agent"].exact >= 0.9 * scores["agent"].truth


@pytest.mark.slow
@pytest.mark.skipif("CTXVC_TEST_DATA" not in os.environ, reason="CTXVC_TEST_DATA names no recordings")
def test_on_recordings_all_kinds_are_right_in_95_of_100() -> None:
    chosen = list(attribution.groups(Path(os.environ["CTXVC_TEST_DATA"], "trajectories")))
    totals = dict.fromkeys(attribution.KINDS, Score())
    for number, (group, corpus) in enumerate(chosen[::2]):
        for kind, score in measure(group, corpus, SCENARIOS["all of it"], f"1/{number}").items():
            totals[kind] += score
    for kind in attribution.KINDS:
        assert totals[kind].right >= 0.95 * totals[kind].said, totals
