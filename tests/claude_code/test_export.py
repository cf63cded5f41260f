"""Any revision → a session file that Claude Code goes on from, with its own lines as far as nothing was edited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.claude_code.resume import Resumable, resumable
from ctxvc.claude_code.transcript import InMemory
from ctxvc.cli.main import cli
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece, outline, pieces, sendable
from ctxvc.core.prompt.sanitise import valid
from ctxvc.core.recording.events import Exported
from ctxvc.errors import CtxvcError, Refused
from ctxvc.importers.claude_code import exported, marked
from ctxvc.recording.files import Follower
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge.purge import PurgeRequest, purge
from ctxvc.store.read import revision as revisions
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store, create
from tests.importers.test_claude_code_requests import parallel
from tests.making.conversation import exchange, human
from tests.making.project import build
from tests.making.store import archive, complaints
from tests.messages_api import Judge, problems, script, serve, thought
from tests.messages_api import call as asked
from tests.messages_api import text as said
from tests.recording.test_files import CONVERSATION, call, line, result, settled, take, text, write

FOLDER = Path("/work")
COMPACTED = "transcripts/claude-code/86-9d11344fce-1.compacted.jsonl.gz"
ORIGINALS = (
    "20-02395c1048-0.jsonl",
    "7e-c034df6095-2.jsonl",
    pytest.param("48-b4b05476e5-0.jsonl", marks=pytest.mark.slow),
)
SESSION = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"


def thinking(words: str) -> list[dict[str, Any]]:
    return [{"type": "thinking", "thinking": words, "signature": "c2ln"}]


def attached(uuid: str, parent: str, words: str) -> dict[str, Any]:
    envelope = {name: value for name, value in line("attachment", uuid, parent, "").items() if name != "message"}
    return {**envelope, "attachment": {"type": "date"}, "rendered": [{"content": words}], "renderedRole": "user"}


THOUGHTFUL = (
    {"type": "permission-mode", "permissionMode": "default", "sessionId": SESSION},
    line("user", "u1", None, "find the bug"),
    attached("x1", "u1", "<system-reminder>It is Monday.</system-reminder>"),
    line("assistant", "a0", "x1", thinking("where?"), reply="m1"),
    line("assistant", "a1", "a0", call("ls"), reply="m1"),
    line("user", "r1", "a1", result("ls", "one\ntwo\n" * 60), toolUseResult={"stdout": "one\ntwo", "stderr": ""}),
    line("assistant", "a2", "r1", thinking("there"), reply="m2"),
    line("assistant", "a3", "a2", call("cat"), reply="m2"),
    line("user", "r2", "a3", result("cat", "three")),
    line("assistant", "a4", "r2", thinking("found"), reply="m3"),
    line("assistant", "a5", "a4", text("Found."), reply="m3"),
    {"type": "last-prompt", "lastPrompt": "find the bug", "leafUuid": "a5", "sessionId": SESSION},
)


def moment(store: Store, session: str, revision: str = "HEAD", scope: str = "") -> Snapshot:
    with StoredSession.open(store, session, scope) as opened:
        return revisions.resolve(store, opened, revision)


def moments(store: Store, session: str) -> Iterator[Snapshot]:
    """The session at each commit of each scope, but for those before anything was said."""
    for tip in store.tips(session).values():
        for entry in revisions.history(store, tip):
            if len((then := revisions.at(store, entry.commit)).ledger):
                yield then


def messages(then: Snapshot, form: Callable[[list[Piece]], list[Piece]] = sendable) -> list[dict[str, Any]]:
    content = form(pieces(outline(then.ledger), then.bodies))
    given: list[dict[str, Any]] = formats.anthropic(formats.Prompt(pieces=content))["messages"]
    return given


def without_thinking(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = [{**each, "content": [b for b in each["content"] if b["type"] != "thinking"]} for each in given]
    return formats.normalise_anthropic(each for each in left if each["content"])


def lines(made: Resumable) -> list[dict[str, Any]]:
    """The lines, the first one without the mark that says what the file was exported from."""
    first, *others = (json.loads(line) for line in made.data.splitlines())
    return [{name: value for name, value in first.items() if name != "ctxvc"}, *others]


def imported_again(tmp_path: Path, made: Resumable) -> list[dict[str, Any]]:
    path = settled_file(tmp_path / "again" / f"{made.session}.jsonl", made.data)
    with create(tmp_path / f"store-{made.session}") as other:
        return messages(moment(other, take(other, path, redact=False).session), valid)


def settled_file(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return settled(path)


# --- what comes back


def test_exported_from_before_a_compaction_and_imported_again(store: Store, recordings: Path, tmp_path: Path) -> None:
    session = take(store, recordings / COMPACTED, redact=False).session
    entries = list(revisions.history(store, store.tips(session)["main"]))
    at = next(at for at, entry in enumerate(entries) if entry.subject.startswith("compaction by the host"))
    for entry in (entries[at + 1], entries[at], entries[0]):
        then = revisions.at(store, entry.commit)
        kept = resumable(store, then, FOLDER, recorded=recordings / COMPACTED)
        anew = resumable(store, then, FOLDER)

        assert imported_again(tmp_path, kept) == messages(then)
        assert imported_again(tmp_path, anew) == without_thinking(messages(then))
        assert (kept.thinking, kept.written) == (0, 1)  # the title


@pytest.mark.parametrize("name", ORIGINALS)
def test_of_a_recorded_session_every_step_comes_back(store: Store, recordings: Path, name: str) -> None:
    path = recordings / "transcripts" / "claude-code" / name
    for then in moments(store, take(store, path, redact=False).session):
        kept, anew = resumable(store, then, FOLDER, recorded=path), resumable(store, then, FOLDER)

        assert kept.kept > 0
        assert anew.kept == 0
        assert kept.thinking <= anew.thinking


def test_what_any_session_was_given_comes_back(tmp_path: Path) -> None:
    """Also stubs, groups, images, notes, rewinds, sub-agents, and what was recorded to do harm."""
    build(tmp_path / "project")
    with Store(tmp_path / "project" / ".ctxvc") as store:
        for session in store.sessions():
            for then in moments(store, session):
                made = resumable(store, then, FOLDER)

                assert imported_again(tmp_path, made) == without_thinking(messages(then))
                shutil.rmtree(tmp_path / f"store-{made.session}")


def test_whose_words_a_text_is_comes_back(store: Store, tmp_path: Path) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(human("<system-reminder>typed by a person</system-reminder>"), *exchange(1))
    with Session(StoredSession.open(store, "demo")) as session:
        session.note("learned")
    made = resumable(store, moment(store, "demo"), FOLDER)
    path = settled_file(tmp_path / "again" / f"{made.session}.jsonl", made.data)

    with create(tmp_path / "other") as other:
        rows = [*moment(other, take(other, path, final=True).session).ledger.rows()]
    assert [row.origin for row in rows] == ["human", "human", "model", "model", "tool", "client"]


# --- the host's own lines


def test_an_unedited_part_has_the_hosts_own_lines(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    session = take(store, path, final=True).session

    made = resumable(store, moment(store, session, "step:2"), FOLDER, recorded=path)

    assert lines(made)[:-1] == [{**each, "sessionId": made.session} for each in THOUGHTFUL[:9]]
    assert lines(made)[-1]["type"] == "custom-title"
    assert (made.kept, made.thinking) == (9, 0)


def test_behind_an_edit_it_is_written_anew_and_without_thinking(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    session = take(store, path, final=True).session
    with StoredSession.open(store, session) as opened:
        archive(opened, "B8")  # the result of the second step

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert (made.kept, made.thinking) == (6, 2)
    assert lines(made)[:6] == [{**each, "sessionId": made.session} for each in THOUGHTFUL[:6]]
    written = [line["message"]["content"][0] for line in lines(made)[6:-1]]
    assert [block["type"] for block in written] == ["tool_use", "tool_result", "text"]
    assert written[1]["content"] == text(f"[{moment(store, session).ledger['B8'].handle}]")
    assert lines(made)[6]["parentUuid"] == "r1"


def test_results_that_came_in_another_order_than_their_calls_can_be_written_anew(store: Store, tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in parallel()))
    then = moment(store, take(store, path, redact=False, final=True).session)
    assert [block["tool_use_id"] for block in messages(then)[2]["content"]] == ["t2", "t1"]

    again = imported_again(tmp_path, resumable(store, then, FOLDER))
    assert [block["tool_use_id"] for block in again[2]["content"]] == ["t1", "t2"]


@pytest.mark.parametrize("taken_back", [Session.undo, lambda opened: opened.restore("B5")])
def test_thinking_stays_valid_where_nothing_changed_net(
    store: Store, tmp_path: Path, taken_back: Callable[[Session], object]
) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL, line("user", "u2", "a5", "and now?"))
    session = take(store, path, final=True).session
    with Session(StoredSession.open(store, session)) as opened:
        opened.archive("B5", "the listing")
        taken_back(opened)

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert (made.kept, made.written, made.thinking) == (12, 1, 0)
    assert made.data.count(b'"type": "thinking"') == 3


def test_before_an_edit_thinking_stays_that_its_cut_took(store: Store, tmp_path: Path) -> None:
    long = line("user", "r2", "a3", result("cat", "three\n" * 90))
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL[:8], long, *THOUGHTFUL[9:], line("user", "u2", "a5", "and now?"))
    session = take(store, path, final=True).session
    with Session(StoredSession.open(store, session)) as opened:
        opened.archive("B8", "the second result")
    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert made.kept == 6
    assert made.data.count(b'"type": "thinking"') == 1


def test_what_came_behind_the_recording_hangs_from_its_last_line(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    session = take(store, path, final=True).session
    with Session(StoredSession.open(store, session)) as opened:
        opened.note("the bug is in two")

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    *_, note, _ = lines(made)
    assert (made.kept, made.thinking, note["parentUuid"], note["isMeta"]) == (11, 0, "a5", True)
    assert note["message"]["content"] == text("the bug is in two")
    assert note["timestamp"] > THOUGHTFUL[-2]["timestamp"]


def test_a_secret_that_became_a_mark_stays_one(store: Store, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL, line("user", "u2", "a5", f"use {token}"))
    session = take(store, path, final=True).session

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert token.encode() not in made.data
    assert b"[REDACTED:" in made.data
    assert made.kept == 11


def test_a_secret_beside_what_the_model_was_given_becomes_a_mark_too(store: Store, tmp_path: Path) -> None:
    """The host keeps more of a result than it sends, and all that stood before a compaction."""
    token = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    lines = [{**each, "toolUseResult": {"stdout": token}} if "toolUseResult" in each else each for each in THOUGHTFUL]
    path = write(tmp_path / "s.jsonl", line("user", "u0", None, f"use {token}"), *compacted("u0"), *lines[2:])
    session = take(store, path, final=True).session

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert token.encode() not in made.data
    assert made.data.count(b"[REDACTED:github-token:") == 2
    assert made.thinking == 0


def test_of_a_session_that_a_purge_rewrote_no_line_of_the_host_is_used(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", line("user", "u0", None, "the swordfish"), *compacted("u0"), *THOUGHTFUL[2:])
    other = write(tmp_path / "t.jsonl", *({**each, "sessionId": OTHER} for each in CONVERSATION))
    session, spared = take(store, path, final=True).session, take(store, other, final=True).session
    assert b"swordfish" in resumable(store, moment(store, session), FOLDER, recorded=path).data
    purge(store, PurgeRequest(texts=("swordfish",)))

    with Store(store.path) as after:
        made = resumable(after, moment(after, session), FOLDER, recorded=path)
        kept = resumable(after, moment(after, spared), FOLDER, recorded=other)

    assert (made.kept, b"swordfish" in made.data) == (0, False)
    assert kept.kept > 0


def compacted(last: str) -> tuple[dict[str, Any], ...]:
    """What the host writes where it compacts, and the first message behind it."""
    boundary = {name: value for name, value in line("system", "c1", None, "").items() if name != "message"}
    return (
        {
            **boundary,
            "subtype": "compact_boundary",
            "logicalParentUuid": last,
            "compactMetadata": {"trigger": "manual"},
        },
        line("user", "u1", "c1", "Summary: find the bug", isCompactSummary=True),
    )


def test_another_file_of_that_name_is_not_used(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    then = moment(store, take(store, path, final=True).session)
    write(path, *CONVERSATION)

    assert resumable(store, then, FOLDER, recorded=path).kept == 0


def test_turns_of_sub_agents_and_broken_lines_are_left_out(store: Store, tmp_path: Path) -> None:
    aside = line("user", "s1", None, "look", isSidechain=True, agentId="7")
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL[:3], aside, *THOUGHTFUL[3:])
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b"\n".join([first, b'{"broken', b"[1]", rest]))
    then = moment(store, take(store, path, final=True).session, scope="main")

    made = resumable(store, then, FOLDER, recorded=path)

    assert lines(made)[:-1] == [{**each, "sessionId": made.session} for each in THOUGHTFUL[:-1]]


def test_lines_of_which_nothing_is_as_it_should_be_do_no_harm(store: Store, tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"type": ["user"], "uuid": {}, "timestamp": 3, "cwd": 7, "isSidechain": "yes", "sessionId": None},
        {"type": None, "uuid": "o1", "timestamp": "9999-12-31T23:59:59.999Z", "cwd": "\0"},
        {"type": "system", "uuid": "\ud800", "timestamp": "0001-01-01T00:00:00+23:59", "cwd": "/elsewhere"},
    ]
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL[:4], *odd, *THOUGHTFUL[4:])
    session = take(store, path, final=True).session
    with Session(StoredSession.open(store, session)) as opened:
        opened.note("learned")

    made = resumable(store, moment(store, session), FOLDER, recorded=path)

    assert made.kept == 14
    assert [line["cwd"] for line in lines(made)[4:7]] == [7, "/work", "/work"]
    assert lines(made)[-2]["timestamp"] > "2026"


# --- imported again, as it is or gone on with


def grown(path: Path, *turns: tuple[str, str], key: str = "n") -> Path:
    """The file with further turns behind it, as the host writes them."""
    last = next(each for each in map(json.loads, reversed(path.read_bytes().splitlines())) if "uuid" in each)
    parent, added = last["uuid"], []
    for number, (request, answer) in enumerate(turns):
        for kind, content in (("user", request), ("assistant", text(answer))):
            uuid = f"{key}{number}-{kind}"
            stamp = f"2026-08-01T10:{number:02}:{len(added) % 60:02}.000Z"
            added.append({**line(kind, uuid, parent, content), "sessionId": path.stem, "timestamp": stamp})
            parent = uuid
    with path.open("a") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in added)
    return settled(path)


def put(tmp_path: Path, made: Resumable) -> Path:
    return settled_file(tmp_path / "host" / f"{made.session}.jsonl", made.data)


def words(then: Snapshot) -> list[str]:
    """The texts of a prompt, thinking left out."""
    blocks = [block for message in messages(then, valid) for block in message["content"]]
    return [block.get("text") or json.dumps(block) for block in blocks if block["type"] != "thinking"]


@pytest.mark.parametrize(("name", "is_known"), [(ORIGINALS[0], True), ("86-9d11344fce-1.compacted.jsonl.gz", False)])
def test_an_export_gone_on_with_continues_its_session(
    store: Store, recordings: Path, tmp_path: Path, name: str, is_known: bool
) -> None:
    path = recordings / "transcripts" / "claude-code" / name
    session = take(store, path, redact=False, final=True).session
    entries = [*revisions.history(store, store.tips(session)["main"])]
    for number, entry in enumerate((entries[0], entries[len(entries) // 2])):
        then, tips = revisions.at(store, entry.commit), store.all_tips()
        host = put(tmp_path, resumable(store, then, FOLDER, recorded=path if is_known else None))

        outcome = take(store, host, redact=False)
        assert (outcome.session, outcome.created, outcome.units, outcome.waiting) == (session, False, 0, 0)
        assert store.all_tips() == tips

        outcome = take(store, grown(host, ("and then?", "Nothing."), ("sure?", "Yes.")), redact=False, final=True)
        assert (outcome.session, outcome.created, outcome.units, outcome.blocks) == (session, False, 2, 4)
        assert store.sessions() == [session]
        (scope,) = {*store.tips(session)} - {*tips[session]}
        assert store.tips(session).items() > tips[session].items()
        now = moment(store, session, scope=scope)
        assert words(now) == [*words(then), "and then?", "Nothing.", "sure?", "Yes."]
        assert now.ledger.meta.source and now.ledger.meta.source.title == ""

        grown(host, ("once more", "As you like."), key="m")
        assert take(store, host, redact=False, final=True).units == 1
        assert take(store, host, redact=False, final=True).units == 0
        assert words(moment(store, session, scope=scope))[-2:] == ["once more", "As you like."]
        assert len(store.tips(session)) == 2 + number
    assert not complaints(store.path)
    assert check_prompts(store)[1] == []


def test_an_export_moves_nobodys_current_session_until_it_is_gone_on_with(store: Store, tmp_path: Path) -> None:
    session = take(store, write(tmp_path / "s.jsonl", *THOUGHTFUL), final=True).session
    other = write(tmp_path / "t.jsonl", *({**each, "sessionId": OTHER} for each in CONVERSATION))
    current = take(store, other, final=True).session
    host = put(tmp_path, resumable(store, moment(store, session), FOLDER))

    take(store, host)
    assert (store.current_session(), store.current_scope(session)) == (current, "main")
    store.use(current)
    take(store, grown(host, ("more", "Here.")), final=True)
    assert store.current_session() == current
    assert store.current_scope(session).startswith("resumed-")


@pytest.mark.parametrize("change", ["in it", "cut", "as new", "another store"])
def test_what_is_not_our_export_as_it_was_is_a_session_of_its_own(store: Store, tmp_path: Path, change: str) -> None:
    session = take(store, write(tmp_path / "s.jsonl", *THOUGHTFUL), final=True).session
    host = put(tmp_path, resumable(store, moment(store, session), FOLDER))
    if change == "in it":
        host.write_bytes(host.read_bytes().replace(b"Found.", b"Bound."))
    elif change == "cut":
        host.write_bytes(b"".join(host.read_bytes().splitlines(keepends=True)[:-2]))
    elif change == "another store":
        store = create(tmp_path / "other")
    outcome = take(store, settled(host), as_new=change == "as new")

    assert outcome.created
    assert outcome.units > 0


def test_a_rewind_behind_an_export_does_not_meet_that_of_the_recording(store: Store, tmp_path: Path) -> None:
    rewound = (*THOUGHTFUL[:-1], line("user", "u2", "a1", "no, stop"), line("assistant", "a9", "u2", text("Stopped.")))
    session = take(store, write(tmp_path / "s.jsonl", *rewound), final=True).session
    assert "rewind-1" in store.tips(session)
    host = put(tmp_path, resumable(store, moment(store, session, "main"), FOLDER))
    grown(host, ("one", "First."), ("two", "Second."))
    with host.open("a") as file:
        for each in (line("user", "w1", "n0-assistant", "other"), line("assistant", "w2", "w1", text("Third."))):
            file.write(json.dumps({**each, "sessionId": host.stem}) + "\n")
    take(store, settled(host), final=True)

    (scope,) = (name for name in store.tips(session) if name.endswith("-rewind-1"))
    assert words(moment(store, session, scope=scope))[-4:] == ["one", "First.", "other", "Third."]


def test_a_live_session_that_goes_on_from_an_export_is_followed_into_its_session(store: Store, tmp_path: Path) -> None:
    with Session.open(store.path, "run-1", model="claude-opus-5-5") as live:
        live.append({"role": "user", "content": "make it"}, {"role": "assistant", "content": "Made."})
    host = put(tmp_path, resumable(store, moment(store, "run-1"), FOLDER))
    follower = Follower(store, host, "claude-code")
    for number in range(3):
        assert not [outcome.error for outcome in follower.take(final=True) if outcome.error]
        grown(host, (f"more {number}", f"Done {number}."), key=f"k{number}")
    follower.take(final=True)

    assert follower.session == "run-1"
    (scope,) = {*store.tips("run-1")} - {"main"}
    assert words(moment(store, "run-1", scope=scope))[-2:] == ["more 2", "Done 2."]
    with Session.open(store.path, "run-1") as live:  # and goes on in ctxvc
        live.append({"role": "user", "content": "thanks"})
    assert not complaints(store.path)


@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda data: b"\n" not in data), min_size=1, max_size=5))
def test_a_mark_says_how_far_an_export_goes(texts: list[bytes]) -> None:
    data = [json.dumps({"text": text.decode("latin-1")}).encode() + b"\n" for text in texts]
    whole = marked(data, "ab" * 20)

    assert [json.loads(line) for line in whole.splitlines()][1:] == [json.loads(each) for each in data[1:]]
    assert exported(InMemory(Path("x.jsonl"), whole)) == Exported(commit="ab" * 20, end=len(whole))
    assert exported(InMemory(Path("x.jsonl"), whole + b"more")) == Exported(commit="ab" * 20, end=len(whole))
    assert exported(InMemory(Path("x.jsonl"), whole[:-1])) is None
    for at in range(0, len(whole), 7):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert exported(InMemory(Path("x.jsonl"), changed)) is None
    assert marked(data, "") == b"".join(data)


# --- what the host needs


def test_each_line_hangs_from_the_one_before_it_and_none_is_of_the_same_time(tmp_path: Path) -> None:
    build(tmp_path / "project")
    with Store(tmp_path / "project" / ".ctxvc") as store:
        made = resumable(store, moment(store, "demo"), FOLDER)

    *said_lines, title = lines(made)
    assert [line["parentUuid"] for line in said_lines] == [None, *(line["uuid"] for line in said_lines[:-1])]
    times = [line["timestamp"] for line in said_lines]
    assert times == sorted(set(times))
    assert times[0].startswith("2026-03-01T12:00:")
    assert {each["sessionId"] for each in (*said_lines, title)} == {made.session}
    replies = [line["message"] for line in said_lines if line["type"] == "assistant"]
    assert all(len(reply["content"]) == 1 and reply["id"].startswith("msg_") for reply in replies)
    calls = {line["message"]["content"][0].get("id"): line["uuid"] for line in said_lines}
    results = [line for line in said_lines if line["message"]["content"][0]["type"] == "tool_result"]
    assert results
    for each in results:
        assert each["sourceToolAssistantUUID"] == calls[each["message"]["content"][0]["tool_use_id"]]
    request = {"model": "claude-opus-5-5", "max_tokens": 1, "messages": [
        *formats.normalise_anthropic(line["message"] for line in said_lines)
    ]}  # fmt: skip
    assert not problems(request)


def test_what_was_counted_is_told_until_something_left(store: Store, tmp_path: Path) -> None:
    counted = {"input_tokens": 3, "cache_read_input_tokens": 4000, "output_tokens": 5}
    conversation = [json.loads(json.dumps(each)) for each in THOUGHTFUL]
    for each in conversation:
        if each["type"] == "assistant":
            each["message"]["usage"] = counted
    session = take(store, write(tmp_path / "s.jsonl", *conversation), final=True).session

    def usage() -> list[int]:
        made = resumable(store, moment(store, session), FOLDER)
        told = [line["message"]["usage"] for line in lines(made) if line["type"] == "assistant"]
        return [each.get("cache_read_input_tokens", 0) for each in told]

    assert usage() == [4000, 4000, 4000]
    with Session(StoredSession.open(store, session)) as opened:
        opened.archive("B5", "the listing")
    assert usage() == [0, 0, 0]


def test_the_same_revision_gives_the_same_file_and_another_gives_another(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    session = take(store, path, final=True).session
    then, before = moment(store, session), moment(store, session, "step:2")

    made = resumable(store, then, FOLDER)

    assert made == resumable(store, then, FOLDER)
    others = [resumable(store, then, FOLDER, copy=1), resumable(store, then, FOLDER, recorded=path)]
    others.append(resumable(store, before, FOLDER))
    assert len({made.session, *(other.session for other in others)}) == 4


def test_before_anything_was_said_there_is_nothing_to_go_on_from(store: Store) -> None:
    store.create_session("demo")

    with pytest.raises(Refused, match="no messages yet"):
        resumable(store, moment(store, "demo"), FOLDER)


# --- the command


def run(project: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["-C", str(project), *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A project with a recorded session, and the folder in which Claude Code keeps its sessions."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    project = (tmp_path / "proj_1").resolve()
    folder = tmp_path / "claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(project))
    folder.mkdir(parents=True)
    project.mkdir()
    here = [{**each, "cwd": str(project)} for each in THOUGHTFUL]
    settled(write(folder / f"{SESSION}.jsonl", *here))
    assert run(project, "import")[0] == 0
    return project, folder


def test_installed_where_the_host_finds_it_and_never_over_another(held: tuple[Path, Path]) -> None:
    project, folder = held
    export = ("export", "--format", "claude-code", "step:2", "--install")
    code, told, notes = run(project, *export)
    session = told.split()[-1]
    path = folder / f"{session}.jsonl"

    assert (code, told) == (0, f"cd {project} && claude --resume {session}\n")
    assert "9 lines copied unchanged" in notes
    assert path.stat().st_mode & 0o777 == 0o600
    assert run(project, *export)[1] == told  # it stands there as it is
    with path.open("a") as file:
        file.write("gone on with\n")
    code, other, _ = run(project, *export)
    assert code == 0
    assert other != told
    assert path.read_text().endswith("gone on with\n")
    assert len(list(folder.iterdir())) == 3


def test_into_a_file_or_a_pipe(held: tuple[Path, Path], tmp_path: Path) -> None:
    project, folder = held
    code, told, _ = run(project, "export", "--format", "claude-code")
    assert code == 0
    assert run(project, "export", "--format", "claude-code", "-o", str(tmp_path / "x.jsonl"))[0] == 0

    assert (tmp_path / "x.jsonl").read_text() == told
    assert [path.stem for path in folder.iterdir()] == [SESSION]


def test_without_its_transcript_it_is_written_anew(held: tuple[Path, Path], tmp_path: Path) -> None:
    project, folder = held
    away = shutil.move(folder / f"{SESSION}.jsonl", tmp_path / "away.jsonl")

    _, _, notes = run(project, "export", "--format", "claude-code", "-o", "x.jsonl")
    assert "written from scratch" in notes and "--install --recorded FILE`" in notes
    assert "3 thinking blocks" in notes
    _, _, notes = run(project, "export", "--format", "claude-code", "-o", "x.jsonl", "--recorded", str(away))
    assert "11 lines copied unchanged" in notes
    code, _, notes = run(project, "export", "--format", "claude-code", "--recorded", "nowhere.jsonl")
    assert (code, "cannot read" in notes) == (1, True)


@pytest.mark.parametrize(
    "words",
    [("--install",), ("--recorded", "x"), ("--format", "claude-code", "--install", "-o", "x")],
)
def test_options_that_do_not_go_together(held: tuple[Path, Path], words: tuple[str, ...]) -> None:
    assert run(held[0], "export", *words)[0] == 2


def test_a_folder_that_is_not_there_yet_is_made(held: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, _ = held
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project / "other"))

    code, _, _ = run(project, "export", "--format", "claude-code", "--install")

    (path,) = (project / "other").rglob("*.jsonl")
    assert code == 0
    assert path.parent.name == "".join(c if c.isalnum() else "-" for c in str(project))


# --- the host itself


@pytest.mark.slow
def test_the_host_sends_what_it_sent_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is named by CTXVC_TEST_CLAUDE, or stands on the PATH; it speaks with this machine only."""
    program = os.environ.get("CTXVC_TEST_CLAUDE") or shutil.which("claude")
    if not program:
        pytest.skip("Claude Code is not installed (CTXVC_TEST_CLAUDE names its program)")
    server = import_module("tests.messages_api.server")
    # The host asks for its thinking to be kept, which is what this server does anyway.
    monkeypatch.setattr(server, "UNPLAYED", tuple(set(server.UNPLAYED) - {"context_management"}))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    judge = Judge()

    def host(words: str, *replies: Any, resume: str = "") -> tuple[str, list[Any]]:
        with serve(script(*replies), judge=judge) as api:
            known = {
                "PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
                "ANTHROPIC_API_KEY": "fake", "ANTHROPIC_BASE_URL": api.url,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            }  # fmt: skip
            going_on = ["--resume", resume] if resume else []
            asking = [program, "-p", words, *going_on, "--output-format", "json", "--allowedTools", "Bash"]
            done = subprocess.run(
                asking, cwd=project, env=known, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120
            )
            assert [one.status for one in api.calls if one.method == "POST"] == [200] * len(replies)
            return json.loads(done.stdout)["session_id"], api.bodies

    looking = [thought("I look"), said("Looking."), asked("Bash", command="seq 3", description="count")]
    session, _ = host("one, please", looking, [thought("I saw"), said("Done.")])
    _, (then, *_) = host("two, please", [thought("again"), said("Done again.")], resume=session)
    assert run(project, "import", "--final")[0] == 0
    code, told, _ = run(project, "export", "--format", "claude-code", "step:2", "--install")
    assert code == 0

    _, (now,) = host("two, please", [thought("other"), said("Otherwise.")], resume=told.split()[-1])

    unmarked = [formats.normalise_anthropic(body["messages"]) for body in (then, now)]
    assert unmarked[0] == unmarked[1]
    assert any(block["type"] == "thinking" for each in unmarked[1] for block in each["content"])
    assert run(project, "import", "--final")[0] == 0
    with Store(project / ".ctxvc") as store:
        (name,) = store.sessions()
        scope = store.current_scope(name)
        assert scope.startswith("resumed-")
        assert words(moment(store, name, scope=scope))[-2:] == ["two, please", "Otherwise."]


def test_every_failure_is_one_that_a_person_can_act_on(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *THOUGHTFUL)
    then = moment(store, take(store, path, final=True).session)
    path.write_bytes(b"\x1f\x8b broken")

    with pytest.raises(CtxvcError, match="gzip"):
        resumable(store, then, FOLDER, recorded=path)
