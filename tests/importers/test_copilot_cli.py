"""Sessions of Copilot CLI, as their events tell them."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Closed, Compacted, Event, Opened, Said, Warned
from ctxvc.importers import copilot_cli
from ctxvc.importers.file import Recording
from ctxvc.recording.files import Follower, import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.making.events import messages, only
from tests.making.store import trees

DATA = Path(__file__).parents[1] / "data" / "copilot-cli"
MADE = DATA / "made.jsonl"
REAL = DATA / "26-9e1b9e5502-0.jsonl"
SHARED = os.environ.get("CTXVC_TEST_DATA", "")

START = {"sessionId": "5f0c1d2e-0000-4000-8000-00000000aa01", "context": {"cwd": "/srv/wren"}}


def line(kind: str, data: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "timestamp": "2026-07-01T08:00:00.000Z", "parentId": None, **more}


def replied(content: str, *calls: str, **more: Any) -> dict[str, Any]:
    requests = [{"toolCallId": call, "name": "bash", "arguments": {}} for call in calls]
    return line("assistant.message", {"content": content, "toolRequests": requests, **more})


def completed(call: str, content: str = "x") -> dict[str, Any]:
    return line("tool.execution_complete", {"toolCallId": call, "success": True, "result": {"content": content}})


def asked(content: str, sent: str = "", **more: Any) -> dict[str, Any]:
    return line("user.message", {"content": content, "transformedContent": sent or content, **more})


def compaction(summary: str = "s", **more: Any) -> dict[str, Any]:
    return line("session.compaction_complete", {"success": True, "summaryContent": summary, **more})


@pytest.fixture
def tell(tmp_path: Path):
    """The events of a session with these lines after its first one."""

    def events(*lines: dict[str, Any]) -> list[Event]:
        path = tmp_path / "session.jsonl"
        path.write_text("".join(f"{json.dumps(value)}\n" for value in (line("session.start", START), *lines)))
        return list(copilot_cli.events(Recording(path)))

    return events


def shown(message: Message) -> list[tuple[str, str, str]]:
    return [(part.kind, part.origin, part.body.decode()) for part in message.parts]


# --- what the file is


def test_the_first_lines_describe_the_session() -> None:
    first, second, *_ = (event for event in copilot_cli.events(Recording(MADE)) if isinstance(event, Opened))
    assert first == Opened(
        format="copilot-cli",
        source="5f0c1d2e-0000-4000-8000-00000000aa01",
        name="copilot-5f0c1d2e",
        model="gpt-5.4",
        cwd="/srv/wren",
        branch="nest",
        time="2026-07-01T08:00:00.000Z",
        agent="Copilot CLI 1.0.88",
        missing=("the system prompt", "the tool definitions", "Copilot's own words around summaries"),
        grows=True,
    )
    assert second.system == "Help with the code in this folder."
    assert "the system prompt" not in second.missing


def test_the_window_and_the_model_are_told_as_they_change() -> None:
    opened = [event for event in copilot_cli.events(Recording(MADE)) if isinstance(event, Opened)]
    assert [event.window for event in opened if event.window] == [Window(tokens=128_000, by="host")]
    assert [event.model for event in opened if event.model] == ["gpt-5.4", "claude-sonnet-4.6"]


@pytest.mark.parametrize(
    ("workspace", "title"),
    [
        ("id: x\nname: The nest\n", "The nest"),
        ('summary: "A \\u00e9 nest"\n', "A é nest"),
        ("summary: |-\n  two\n  lines\n", ""),
        ('summary: "open\n', ""),
        ("summary_count: 2\n", ""),
    ],
)
def test_the_title_is_the_one_that_copilot_keeps_beside_the_events(workspace: str, title: str, tmp_path: Path) -> None:
    path = tmp_path / "s" / "events.jsonl"
    path.parent.mkdir()
    path.write_bytes(MADE.read_bytes())
    path.with_name("workspace.yaml").write_text(workspace)
    assert next(iter(copilot_cli.events(Recording(path)))).title == title


# --- messages


def test_a_persons_words_stand_by_themselves_between_those_of_copilot() -> None:
    prompt = messages(copilot_cli.events(Recording(MADE)))[1]
    assert [(part.kind, part.origin, part.body.decode()) for part in prompt.parts[:3]] == [
        ("user", "client", "<current_datetime>2026-07-01T10:00:04+02:00</current_datetime>\n\n"),
        ("user", "human", "Why does the build fail?"),
        ("user", "client", "\n\n<system_reminder>\nNo todos.\n</system_reminder>"),
    ]
    assert [(part.kind, part.origin, part.ext) for part in prompt.parts[3:]] == [("image", "human", "png")]


@pytest.mark.parametrize(
    ("content", "sent", "human"),
    [
        ("hi", "hi", ["hi"]),
        ("hi", "", ["hi"]),
        ("a", "<d>a</d>\n\na", ["a"]),
        ("a>\n\na", "<d>1</d>\n\na>\n\na\n\n<r>a</r>", ["a>\n\na"]),
        ("hi", "hi and more", ["hi and more"]),
        ("hi", "please: hi", ["please: hi"]),
        ("x", "no tag>\n\nx", ["no tag>\n\nx"]),
        ("hi", "something else", ["something else"]),
        ("hi", "<xno", ["<xno"]),
        ("", "<d>1</d>", ["<d>1</d>"]),
    ],
)
def test_no_word_is_lost_and_only_sections_count_as_copilots(tell, content: str, sent: str, human: list[str]) -> None:
    message = only(Said, tell(asked(content, sent))).message
    assert "".join(body for _, _, body in shown(message)) == (sent or content)
    assert [body for _, origin, body in shown(message) if origin == "human"] == human


@pytest.mark.parametrize("more", [{"source": "skill-pdf"}, {"isAutopilotContinuation": True}])
def test_a_message_that_copilot_put_in_is_its_own(tell, more: dict[str, Any]) -> None:
    message = only(Said, tell(asked("Go on.", **more))).message
    assert shown(message) == [("user", "client", "Go on.")]


def test_a_reply_in_chunks_is_one_and_its_results_name_their_tools() -> None:
    reasoning, text, *results = messages(copilot_cli.events(Recording(MADE)))[2:6]
    assert reasoning.reply == text.reply != ""
    assert reasoning.parts[0].kind == "thinking"
    assert reasoning.parts[0].extra == {"ctxvc": {"copilot": {"reasoningOpaque": "b3BhcXVl"}}}
    assert [(part.kind, part.tool, part.body) for part in text.parts] == [
        ("assistant", "", b"I'll look."),
        ("tool_use", "bash", b'{"command":"make"}'),
        ("tool_use", "apply_patch", b"*** Begin Patch\n*** End Patch"),
    ]
    assert text.usage == {"output_tokens": 40}
    assert [(part.call, part.tool, part.error, part.body) for message in results for part in message.parts] == [
        ("c2", "apply_patch", True, b"nothing to patch"),
        ("c1", "bash", False, b"make: *** No rule to make target 'nest'."),
    ]


def test_replies_of_a_server_that_gives_all_one_id_are_told_apart(tell) -> None:
    events = tell(replied("a", "c1", apiCallId="x"), completed("c1"), replied("b", apiCallId="x"))
    first, _, second = messages(events)
    assert first.reply != second.reply


def test_reasoning_that_cannot_be_read_is_kept_whole(tell) -> None:
    message = only(Said, tell(replied("", reasoningOpaque="b3Bh"))).message
    assert [(part.kind, part.ext, part.body) for part in message.parts] == [
        ("thinking", "json", b'{"type":"reasoning","reasoningOpaque":"b3Bh"}')
    ]


def test_a_sub_agent_has_a_scope_of_its_own_that_names_the_call() -> None:
    said = [event for event in copilot_cli.events(Recording(MADE)) if isinstance(event, Said) and event.scope]
    assert {(event.scope, event.task) for event in said} == {("agent-explore-c3", "c3")}
    assert [event.message.role for event in said] == ["user", "assistant", "user", "assistant"]
    assert shown(said[0].message) == [("user", "client", "Where is nest?")]
    assert [name for name, _ in said[2].message.parts[0].files] == ["1.png"]


def test_two_sub_agents_never_share_a_scope(tell) -> None:
    events = tell(*(asked("look", parentToolCallId=f"{agent}-000000000000") for agent in "ab"))
    assert len({event.scope for event in events if isinstance(event, Said)}) == 2


# --- what changes the prompt


def test_a_compaction_keeps_what_came_while_it_was_written() -> None:
    events = list(copilot_cli.events(Recording(MADE)))
    at = next(index for index, event in enumerate(events) if isinstance(event, Compacted))
    compacted, before = events[at], events[at - 1]
    assert isinstance(compacted, Compacted)
    assert shown(compacted.summary[0]) == [("user", "client", "The build fails: nest is a picture.")]
    # The call's result comes after the line of the compaction, which waits for it.
    assert isinstance(before, Said)
    assert before.message.parts[0].call == "c5"
    assert compacted.kept == {"e28", "e30"}
    assert compacted.before == "e28"
    assert compacted.end == before.end


def test_a_result_whose_call_was_summarised_is_not_kept(tell) -> None:
    start = line("session.compaction_start", {})
    events = tell(asked("a"), replied("b", "c1"), start, completed("c1"), {**asked("c"), "id": "k"}, compaction())
    assert only(Compacted, events).kept == {"k"}


def test_a_compaction_does_not_part_a_call_from_its_result_for_words_between_them(tell) -> None:
    notice = line("system.notification", {"content": "a shell is done"})
    for word in (notice, asked("wait")):
        events = tell(asked("a"), replied("b", "c1"), word, compaction(), word, completed("c1"), replied("d"))
        kinds = [type(event) for event in events if not isinstance(event, Opened)]
        assert kinds == [Said, Said, Said, Said, Said, Compacted, Said]


def test_a_compaction_does_not_part_the_chunks_of_a_reply(tell) -> None:
    chunks = [replied("b", f"c{at}", apiCallId="x", chunkIndex=at) for at in range(2)]
    results = [completed("c0"), completed("c1")]
    events = tell(asked("a"), chunks[0], compaction(), chunks[1], *results, replied("d"))
    kinds = [type(event) for event in events if not isinstance(event, Opened)]
    assert kinds == [Said, Said, Said, Said, Said, Compacted, Said]


def test_a_compaction_that_waits_in_vain_is_told_before_the_next_step(tell) -> None:
    events = tell(asked("a"), replied("b", "c1"), compaction(), line("abort", {}), asked("c"))
    kinds = [type(event) for event in events if not isinstance(event, Opened)]
    assert kinds == [Said, Said, Closed, Compacted, Said]


@pytest.mark.parametrize(
    "data",
    [{"success": False, "error": "x", "summaryContent": "s"}, {"success": True}, {"summaryContent": "s"}],
)
def test_a_compaction_that_failed_or_has_no_summary_changes_nothing(tell, data: dict[str, Any]) -> None:
    events = tell(asked("a"), line("session.compaction_complete", {**data, "tokenLimit": 9_000}))
    assert not [event for event in events if isinstance(event, Compacted)]
    assert bool([event for event in events if isinstance(event, Warned)]) == (data.get("success") is True)
    assert only(Opened, events[1:]).window == Window(tokens=9_000, by="host")


@pytest.mark.parametrize("first", ["", "Anew."])
def test_a_cleared_context_is_empty_but_for_what_it_begins_with(tell, first: str) -> None:
    cleared = line("session.context_cleared", {"messagesCleared": 1, "initialMessage": first})
    event = only(Compacted, tell(asked("a"), cleared))
    assert event.kept == frozenset()
    assert [shown(message) for message in event.summary] == ([[("user", "client", first)]] if first else [])


def test_what_left_the_prompt_unnamed_and_what_is_unknown_is_warned_of(tell) -> None:
    events = tell(line("session.truncation", {"tokenLimit": 9_000}), line("dream.begun", {}), line("dream.begun", {}))
    assert [event.text for event in events if isinstance(event, Warned)] == [
        "Copilot left out its oldest messages here; they are imported as if they had stayed",
        "events of an unknown type are skipped: 'dream.begun'",
    ]


# --- where sessions are


def test_sessions_are_looked_for_where_copilot_keeps_them(tmp_path: Path) -> None:
    assert copilot_cli.folders(tmp_path, tmp_path, {}) == [tmp_path / ".copilot" / "session-state"]
    assert copilot_cli.folders(tmp_path, tmp_path, {"COPILOT_HOME": "/c"}) == [Path("/c/session-state")]


def test_the_sessions_of_a_project_are_told_from_others(tmp_path: Path) -> None:
    state = tmp_path / ".copilot" / "session-state"
    for name, cwd in {"a/events.jsonl": "/srv/wren", "b/events.jsonl": "/srv/wrens", "c.jsonl": "/srv/wren/x"}.items():
        path = state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MADE.read_bytes().replace(b'"cwd":"/srv/wren"', f'"cwd":"{cwd}"'.encode()))
    (state / "a" / "checkpoints").mkdir()
    (state / "a" / "checkpoints" / "001.md").write_text("x")

    sessions, _ = importers.find(Path("/srv/wren"), tmp_path, {})

    assert sorted((form, path.relative_to(state).as_posix()) for form, path in sessions) == [
        ("copilot-cli", "a/events.jsonl"),
        ("copilot-cli", "c.jsonl"),
    ]
    assert [path.name for path in copilot_cli.IMPORTER.files(state / "a" / "events.jsonl")] == [
        "events.jsonl",
        "001.md",
    ]


def test_how_much_of_a_session_a_store_has_is_told_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "5f0c" / "events.jsonl"
    path.parent.mkdir()
    path.write_bytes(MADE.read_bytes())
    size = path.stat().st_size
    assert copilot_cli.state(path, {}) == "missing"
    assert copilot_cli.state(path, {"5f0c": 0}) == "grown"
    assert copilot_cli.state(path, {"5f0c": size}) == "whole"


# --- in a store


def every_cut_gives_the_whole(source: Path, tmp_path: Path, cuts: int, seed: int) -> None:
    """A session that is followed as it grows, cut anywhere, within lines too, is what one import makes of it."""
    data = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    chance, histories = random.Random(seed), []
    for ends in (sorted(chance.sample(range(1, len(data)), cuts)), []):
        path = tmp_path / f"{seed}-{len(ends)}" / "s" / "events.jsonl"
        path.parent.mkdir(parents=True)
        with create(path.parents[1] / ".ctxvc") as store:
            follower = Follower(store, path, "copilot-cli")
            for end in [*ends, len(data)]:
                path.write_bytes(data[:end])
                outcomes = follower.take(final=end == len(data))
                assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
            histories.append(trees(store))
    assert histories[0] == histories[1]
    assert histories[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("source", [MADE, REAL], ids=["made", "real"])
def test_a_session_followed_from_any_cut_is_the_whole(source: Path, seed: int, tmp_path: Path) -> None:
    every_cut_gives_the_whole(source, tmp_path, 4, seed)


def test_after_a_compaction_the_prompt_is_the_summary_and_what_is_newer(store: Store) -> None:
    (outcome,) = import_paths(store, [MADE], final=True)
    assert outcome.error is None
    with StoredSession.open(store, outcome.session) as session:
        visible = [row for row in session.ledger().rows() if row.state == "visible"]
    assert [(row.kind, row.call or row.origin) for row in visible] == [
        ("tool_use", "c5"),
        ("tool_result", "c5"),
        ("user", "client"),
        ("assistant", "model"),
    ]


# --- whole real sessions


def independently(data: bytes) -> list[tuple[str, Any]]:
    """What a person reads in such a file, by a reading of its own: (role, content) of each message."""
    told: list[tuple[str, Any]] = []
    for raw in data.decode().splitlines():
        event = json.loads(raw)
        kind, body = event["type"], event["data"]
        if kind == "user.message":
            told.append(("user", body["transformedContent"]))
        elif kind == "system.notification":
            told.append(("user", body["content"]))
        elif kind == "assistant.message":
            calls = [(call["toolCallId"], call["name"], call["arguments"]) for call in body["toolRequests"]]
            told.append(("assistant", (body.get("reasoningText", ""), body["content"], calls)))
        elif kind == "tool.execution_complete":
            text = body["result"]["content"] if body["success"] else body["error"]["message"]
            told.append(("tool", (body["toolCallId"], not body["success"], text)))
    return told


def as_read(message: Message) -> tuple[str, Any]:
    if message.role == "assistant":
        text = {part.kind: part.body.decode() for part in message.parts if part.kind != "tool_use"}
        calls = [(part.call, part.tool, json.loads(part.body)) for part in message.parts if part.kind == "tool_use"]
        return "assistant", (text.get("thinking", ""), text.get("assistant", ""), calls)
    if message.parts[0].kind == "tool_result":
        (part,) = message.parts
        return "tool", (part.call, part.error, part.body.decode())
    return "user", "".join(part.body.decode() for part in message.parts)


REALS = [REAL]
if SHARED:
    REALS += sorted((Path(SHARED) / "transcripts" / "other" / "copilot-cli").iterdir())


@pytest.mark.parametrize("path", REALS, ids=lambda path: path.name)
def test_every_message_of_a_real_session_is_as_a_second_reader_has_it(path: Path) -> None:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = list(copilot_cli.events(Recording(path)))
    assert [as_read(message) for message in messages(events)] == independently(data)
    assert not [event for event in events if isinstance(event, Warned)]


@pytest.mark.skipif(not SHARED, reason="CTXVC_TEST_DATA names no folder with transcripts/ and trajectories/")
@pytest.mark.parametrize("path", REALS[1:], ids=lambda path: path.name)
def test_a_whole_real_session_followed_from_any_cut_is_the_whole(path: Path, tmp_path: Path) -> None:
    every_cut_gives_the_whole(path, tmp_path, 6, 7)
