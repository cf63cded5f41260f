"""What is exported and imported again is what was there, but for what the export listed as lost."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from ctxvc import importers
from ctxvc.exporters.conversation import Conversation, is_shared
from ctxvc.importers.file import Recording
from ctxvc.store.store import Store, create
from tests.conftest import Copied
from tests.exporters.trips import BOTH_WAYS, CLAUDE_CODE, block, conversation, differences, exported, imported
from tests.making.project import build

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(os.environ.get("CTXVC_TEST_DATA", ""), "trajectories")
SMALL = ("recorded/claude-code.jsonl", "recorded/codex.jsonl", "recorded/pi.jsonl")
#: Ten real sessions of all makers, some of them compacted.
REAL = (
    "agentv-7a-d2528cc37f-0",
    "agentv-a3-92ff332928-0",
    "deer-flow-21cfea46",
    "entire-cli-13-340918e71b-0",
    "entire-cli-20-02395c1048-0",
    "entire-cli-48-b4b05476e5-0",
    "entire-cli-ac-3f02a3c337-2",
    "pi-mono-before-compaction",
    "swe-agent-marshmallow-code__marshmallow-1867-function_calling_replace",
    "tau-bench-airline-4-2",
)

of_small_recordings = pytest.mark.parametrize(
    "name", [SMALL[0], *(pytest.param(name, marks=pytest.mark.slow) for name in SMALL[1:])]
)
of_every_format = pytest.mark.parametrize("format", BOTH_WAYS)


@of_every_format
@of_small_recordings
def test_a_recording_comes_back(store: Store, name: str, format: str, tmp_path: Path) -> None:
    assert differences(imported(store, DATA / name), format, tmp_path) == []


@pytest.mark.slow
@pytest.mark.skipif("CTXVC_TEST_DATA" not in os.environ, reason="CTXVC_TEST_DATA names no recordings")
@of_every_format
@pytest.mark.parametrize("name", REAL)
def test_a_real_session_comes_back(store: Store, name: str, format: str, tmp_path: Path) -> None:
    (path,) = SHARED.glob(f"{name}.jsonl.gz")

    assert differences(imported(store, path), format, tmp_path) == []


@pytest.mark.parametrize("room", [64_000_000, 2_000])
def test_a_compaction_inside_a_turn_comes_back_from_spans_as_one(
    store: Store, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where old prompts are left out. Of what the host put in, only the order in the prompt is told."""
    monkeypatch.setattr("ctxvc.exporters.otel_genai._MOST_INPUT", room)
    recorded = imported(store, DATA / "claude-code" / "builtin-compaction-2.1.330.jsonl")
    path = tmp_path / "again.jsonl"
    path.write_bytes(exported(recorded, "otel-genai").data)
    with create(tmp_path / "other") as other:
        again = imported(other, path)
        scopes = list(other.tips(again.snapshot.session))
        prompts = [[block(piece) for piece in one.prompt()] for one in (again, recorded)]
        everything = [
            Counter((piece.kind, piece.body) for message in one.messages() for _, piece in message.pieces)
            for one in (again, recorded)
        ]

        assert scopes == ["main"]
        assert compactions(again) == compactions(recorded) == [6]
    assert prompts[0] == prompts[1]
    assert everything[0] == everything[1]


def compactions(recorded: Conversation) -> list[int]:
    """How many commits came before each compaction."""
    ops = [entry.trailers.get("Ctxvc-Op") for entry in reversed(recorded.entries)]
    return [at for at, op in enumerate(ops) if op == "compact"]


@of_every_format
def test_an_export_is_known_by_its_content(store: Store, format: str, tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_bytes(exported(imported(store, DATA / SMALL[0]), format).data)

    assert importers.detect(Recording(path)) == format


@of_every_format
def test_a_session_with_everything_in_it_comes_back(tmp_path: Path, format: str, copied: Copied) -> None:
    """Also stubs, groups, notes, rewinds, and what was recorded to do harm."""
    with Store(copied(build, tmp_path / "project") / ".ctxvc") as store:
        for session in store.sessions():
            (folder := tmp_path / session).mkdir()
            assert differences(conversation(store, session), format, folder) == []


@pytest.mark.parametrize("format", [name for name in BOTH_WAYS if name != CLAUDE_CODE])
def test_an_early_moment_has_nothing_of_what_came_later(store: Store, format: str) -> None:
    session = imported(store, DATA / SMALL[0]).snapshot.session

    early, late = (exported(conversation(store, session, name), format) for name in ("step:1", "HEAD"))

    assert 0 < len(early.data) < len(late.data)
    assert len(early.losses) <= len(late.losses)


@of_every_format
def test_the_same_moment_gives_the_same_bytes(store: Store, format: str) -> None:
    recorded = imported(store, DATA / SMALL[1])
    with Store(store.path) as again:
        assert exported(conversation(again, recorded.snapshot.session), format) == exported(recorded, format)


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic-messages"])
@pytest.mark.parametrize("name", ["anthropic", "openai-chat", "openai-responses"])
def test_a_call_is_known_by_the_same_id_in_every_form(store: Store, name: str, format: str, tmp_path: Path) -> None:
    recorded = imported(store, DATA / name / "request.json")
    path = tmp_path / "again.json"
    path.write_bytes(exported(recorded, format).data)
    with create(tmp_path / "other") as other:
        again = imported(other, path, format)

        assert pairs(again) == pairs(recorded)


def pairs(recorded: Conversation) -> list[tuple[str, str]]:
    """The id of each call that was answered, and its tool."""
    calls = {piece.call: piece.tool for piece in recorded.prompt() if piece.kind == "tool_use"}
    return [(piece.call, calls[piece.call]) for piece in recorded.prompt() if piece.kind == "tool_result"]


def test_an_item_keeps_its_id(store: Store) -> None:
    source = json.loads((DATA / "openai-responses" / "request.json").read_text())["input"]
    made = json.loads(exported(imported(store, DATA / "openai-responses" / "request.json"), "openai-responses").data)

    kinds = ("reasoning", "message", "web_search_call")
    ids = [[item.get("id") for item in items if item.get("type") in kinds] for items in (source, made["input"])]
    assert [name for name in ids[1] if name] == [name for name in ids[0] if name] != []


@pytest.mark.parametrize("format", ["ctxvc-trajectory", "hf-trace"])
@of_small_recordings
def test_whose_a_block_is_and_its_step_come_back(store: Store, name: str, format: str, tmp_path: Path) -> None:
    recorded = imported(store, DATA / name)
    made = exported(recorded, format)
    path = tmp_path / "again.jsonl"
    path.write_bytes(made.data)
    lost = {loss.path.partition(".")[0] for loss in made.losses if loss.path.endswith(".role") or "." not in loss.path}
    with create(tmp_path / "other") as other:
        again = places(imported(other, path, format), set())

    assert again == places(recorded, lost)


def places(recorded: Conversation, lost: set[str]) -> list[tuple[str, str, int, int]]:
    rows = (row for row in recorded.ledger.rows() if is_shared(row) and row.id not in lost)
    return [(row.kind, row.origin, row.step, row.turn) for row in rows]
