"""Recorded runs of real agents through a session: all of it archived, all of it recovered, each prompt valid."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from ctxvc.session.session import Session
from tests.messages_api.rules import canonical_problems

#: Every so many messages the prompt is judged.
EVERY = 12
#: Bytes of a packed recording at most, and how many recordings are played.
LARGEST = 60_000
COUNT = 5


def played(folder: Path) -> list[Path]:
    files = sorted((folder / "trajectories").glob("*.jsonl.gz"))
    small = [file for file in files if file.stat().st_size <= LARGEST]
    return small[:: max(1, len(small) // COUNT)][:COUNT]


def messages(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        _, *rest = (json.loads(line) for line in lines)
    return [{"role": message["role"], "content": message["content"]} for message in rest]


def judged(session: Session) -> None:
    found = session.prompt().messages
    if found and found[-1]["role"] == "assistant":
        found = [*found, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
    assert not canonical_problems(found) or not found


def test_recorded_runs_are_archived_and_recovered_byte_for_byte(recordings: Path, tmp_path: Path) -> None:
    files = played(recordings)
    assert len(files) == COUNT
    archived = 0
    for number, file in enumerate(files):
        with Session.open(tmp_path / ".ctxvc", f"run-{number}", budget=2_000_000) as session:
            told = messages(file)
            bodies: dict[str, bytes] = {}
            for first in range(0, len(told), EVERY):
                for block in session.append(*told[first : first + EVERY]):
                    bodies[block] = session.body(block)
                judged(session)
            session.append({"role": "user", "content": "So?"})
            session.add("Nobody works any more.")
            session.append({"role": "assistant", "content": "Done."})
            price = session.view().price
            large = [row for row in session.ledger().rows() if row.kind == "tool_result" and price.body(row) > 500]
            for row in large:
                done = session.archive(row.id)
                assert done or row.state == "archived" or done.problems[0].why == "protected"
            judged(session)
            for row in large:
                ((found, body),) = session.recover_bytes(row.id)
                assert (found.id, body) == (row.id, bodies[row.id])
                archived += session.ledger()[row.id].state == "archived"
            gone = [row.id for row in large if not session.ledger()[row.id].present]
            restored = session.restore(gone) if gone else None
            assert restored is None or not restored.problems
            assert all(session.ledger()[block].present for block in gone)
            judged(session)
            assert {block: session.body(block) for block in bodies} == bodies
    assert archived > COUNT
