"""Sessions of Gemini CLI: what its own recordings say, and what its lists of messages mean."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.importers import gemini_cli
from ctxvc.importers.file import Recording
from ctxvc.recording.files import files_below, import_paths
from ctxvc.store.store import Store
from tests.making.events import messages

DATA = Path(__file__).parents[1] / "data" / "gemini-cli"
RESUMED = DATA / "session-2026-11-23T18-56-191dd23b.jsonl"
MIXED = DATA / "session-2026-11-23T19-02-05c20da2.jsonl"
PARENT = DATA / "session-2026-11-23T19-05-9a2f0ed9.jsonl"
(AGENT,) = DATA.glob("*/*.jsonl")

HEADER = {"sessionId": "5e55104a-0000", "projectHash": "0" * 64, "startTime": "2026-01-01T00:00:00Z", "kind": "main"}


def events(path: Path) -> list[Event]:
    return list(gemini_cli.events(Recording(path)))


def message(kind: str, name: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": "2026-01-01T00:00:00Z", "type": kind, "content": content, **more}


def listed(*records: dict[str, Any]) -> dict[str, Any]:
    return {"$set": {"messages": [*records]}}


def of_lines(folder: Path, *lines: Any) -> list[Event]:
    path = folder / "session-2026-01-01T00-00-5e55104a.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (HEADER, *lines)))
    return events(path)


ASKED = [message("user", "u1", [{"text": "one"}]), message("gemini", "g1", "two"), message("user", "u2", "three")]
CALL = {"id": "c", "name": "read_file", "args": {"file_path": "a"}}
ANSWER = {"functionResponse": {"id": "c", "name": "read_file", "response": {"output": "long"}}}


def shape(found: list[Event]) -> list[tuple[str, ...]]:
    return [
        (m.role, *(f"{part.kind}:{part.origin}{':error' * part.error}" for part in m.parts)) for m in messages(found)
    ]


def test_a_reply_its_calls_and_their_results_are_told_once_although_written_again_and_again() -> None:
    found = events(RESUMED)

    assert [event for event in found if isinstance(event, Warned)] == []
    assert shape(found)[:9] == [
        ("user", "user:client"),
        ("user", "user:human"),
        ("assistant", "thinking:model", "assistant:model"),
        ("assistant", "tool_use:model", "tool_use:model"),
        ("user", "tool_result:tool", "tool_result:tool"),
        ("assistant", "tool_use:model"),
        ("user", "tool_result:tool"),
        ("assistant", "tool_use:model", "tool_use:model"),
        ("user", "tool_result:tool:error", "tool_result:tool:error"),
    ]
    calls = [part.call for m in messages(found) for part in m.parts if part.kind == "tool_result"]
    assert len(calls) == len(set(calls)) == 8
    thought, call = messages(found)[2:4]
    assert thought.reply == call.reply
    assert thought.usage == {"input_tokens": 991, "cache_read_input_tokens": 10, "output_tokens": 25}


def test_a_compaction_keeps_the_messages_that_it_gave_new_ids() -> None:
    (compacted,) = (event for event in events(RESUMED) if isinstance(event, Compacted))

    assert [m.role for m in compacted.summary] == ["user", "assistant"]
    assert compacted.summary[0].parts[0].body.startswith(b"<state_snapshot>")
    kept = [m.parts[0].body[:20] for m in messages(events(RESUMED)) if m.key in compacted.kept]
    assert kept[:3] == [b"<session_context>\nTh", b"How many lines has i", b"I look again."]
    assert compacted.before == next(m.key for m in messages(events(RESUMED)) if m.parts[0].body.startswith(b"How many"))


def test_a_command_that_was_sent_as_a_message_leaves_the_prompt_with_the_next_resume() -> None:
    found = events(RESUMED)
    (edited,) = (event for event in found if isinstance(event, Edited))

    assert edited.parts == ()
    assert [m.parts[0].body for m in messages(found) if m.key == edited.key] == [b"/compress"]


def test_a_file_named_by_a_person_is_the_hosts_text_and_a_picture_is_in_its_result() -> None:
    found = events(MIXED)

    assert shape(found)[1] == ("user", "user:human", *["user:client"] * 4)
    picture = messages(found)[3].parts[0]
    assert (picture.kind, [name for name, _ in picture.files]) == ("tool_result", ["1.png"])


def test_a_sub_agent_has_a_scope_of_the_session(store: Store) -> None:
    outcomes = list(import_paths(store, files_below(DATA), final=True))

    assert gemini_cli.beside(PARENT) == [AGENT]
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert sorted(store.all_tips()["gemini-9a2f0ed9"]) == ["agent-15e3fb7e", "main"]
    assert sorted(store.all_tips()) == ["gemini-05c20da2", "gemini-191dd23b", "gemini-9a2f0ed9"]
    assert shape(events(AGENT))[0] == ("user", "user:client")


def test_a_list_counts_only_when_a_message_follows_it(tmp_path: Path) -> None:
    cut = of_lines(tmp_path, *ASKED, listed(ASKED[0]))
    again = of_lines(tmp_path, *ASKED, listed(ASKED[0]), listed(*ASKED), message("gemini", "g2", "four"))

    assert [type(event) for event in cut] == [Opened, Said, Said, Said]
    assert [type(event) for event in again] == [Opened, Said, Said, Said, Said]


@pytest.mark.parametrize("change", [listed(*ASKED[:2]), {"$rewindTo": "u2"}], ids=["a failed request", "a rewind"])
def test_what_the_list_lacks_at_its_end_was_taken_back(change: dict[str, Any], tmp_path: Path) -> None:
    found = of_lines(tmp_path, *ASKED, change, message("user", "u3", "other"))

    (forked,) = (event for event in found if isinstance(event, Forked))
    assert forked.after == "g1"
    assert [m.parts[0].body for m in messages(found)][-1] == b"other"


def test_a_message_is_also_known_by_the_id_that_a_later_list_gave_it(tmp_path: Path) -> None:
    again = [{**record, "id": f"{record['id']}-again"} for record in ASKED]
    back = {"$rewindTo": "u2-again"}

    found = of_lines(tmp_path, *ASKED, listed(*again), message("gemini", "g2", "x"), back, message("user", "u3", "y"))

    assert [event.after for event in found if isinstance(event, Forked)] == ["g1"]
    assert [m.parts[0].body for m in messages(found)] == [b"one", b"two", b"three", b"x", b"y"]


def test_a_result_that_the_host_shortened_is_an_edit_of_it(tmp_path: Path) -> None:
    reply = message("gemini", "g1", "", toolCalls=[{**CALL, "result": [ANSWER]}])
    short = {"functionResponse": {"id": "c", "name": "read_file", "response": {"output": "short"}}}
    sent, masked = message("user", "r1", [ANSWER]), message("user", "r1", [short])

    found = of_lines(tmp_path, ASKED[0], reply, sent, listed(ASKED[0], reply, masked), message("gemini", "g2", "x"))

    (edited,) = (event for event in found if isinstance(event, Edited))
    assert (edited.call, [part.body for part in edited.parts]) == ("c", [b"short"])


def test_what_is_only_shown_is_not_in_the_prompt_and_an_unknown_kind_is_warned_of_once(tmp_path: Path) -> None:
    shown = [message(kind, kind, "x") for kind in ("info", "warning", "error")]
    odd = [message("odd", name, "x") for name in "ab"]

    found = of_lines(tmp_path, ASKED[0], *shown, *odd, {"no": "record"})

    assert len(messages(found)) == 1
    assert [(event.line, event.text.split(":")[0]) for event in found if isinstance(event, Warned)] == [
        (6, "messages of an unknown type are skipped"),
        (8, "the line is not a record of Gemini CLI"),
    ]


def test_sessions_are_those_of_the_project_in_which_something_was_said(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    tmp = home / ".gemini" / "tmp"
    for name, root in (("project", project), ("inner", project / "inner"), ("other", tmp_path / "other")):
        shutil.copytree(DATA, tmp / name / "chats")
        (tmp / name / ".project_root").write_text(str(root))
    started = RESUMED.read_text().splitlines(keepends=True)[:2]
    (tmp / "project" / "chats" / "session-2026-11-23T18-59-191dd23b.jsonl").write_text("".join(started))
    older = tmp / "unnamed" / "chats" / "session-2026-01-01T00-00-5e55104a.jsonl"
    older.parent.mkdir(parents=True)
    digest = hashlib.sha256(str(project).encode()).hexdigest()
    lines = [{**HEADER, "projectHash": digest}, ASKED[0]]
    older.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))

    recordings, folders = importers.find(project, home, {})

    assert tmp in folders
    assert sorted(str(path.relative_to(tmp)) for _, path in recordings) == sorted(
        [f"{name}/chats/{path.name}" for name in ("project", "inner") for path in (RESUMED, MIXED, PARENT)]
        + [str(older.relative_to(tmp))]
    )
    assert gemini_cli.folders(project, home, {"GEMINI_CLI_HOME": "/g"}) == [Path("/g/.gemini/tmp")]


def test_a_store_that_has_all_messages_has_the_whole_session() -> None:
    source = RESUMED.stem
    last = [event.end for event in events(RESUMED) if isinstance(event, Said)][-1]

    assert gemini_cli.state(RESUMED, {}) == "missing"
    assert gemini_cli.state(RESUMED, {source: 0}) == "grown"
    assert gemini_cli.state(RESUMED, {source: last}) == "whole"
