"""Sessions of opencode, as the events and the store tell them that are made of its database."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc import importers
from ctxvc.core.recording.events import Closed, Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import opencode
from ctxvc.importers.file import Recording
from ctxvc.recording.files import Follower, import_paths
from ctxvc.store.store import Store
from tests.importers.growing import imported_at
from tests.importers.test_compliance import JSON, places
from tests.making.conversation import block_of
from tests.making.events import messages, only, parts
from tests.making.prompts import as_sent, bare

DATA = Path(__file__).parents[1] / "data" / "opencode"
DATABASE = DATA / "opencode.db"
PROMPTS = json.loads((DATA / "sent" / "prompts.json").read_text())
#: The sessions of the sample by what they show.
AGENT, FORK, REVERTED, ELSEWHERE = PROMPTS


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATABASE, tmp_path))


def told(path: Path, session: str, **options: Any) -> list[Event]:
    """The events of one conversation of a database."""
    for suffix, events in importers.conversations(Recording(path, **options), "opencode"):
        if session.endswith(suffix):
            return list(events)
    raise AssertionError(f"no session {session}")


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def row(path: Path, statement: str, *values: object) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement, values).fetchone()


def name_of(session: str) -> str:
    return f"opencode-{session[-8:]}"


# --- what was sent


@pytest.mark.parametrize("session", PROMPTS)
def test_a_prompt_is_the_request_that_opencode_sent(session: str, store: Store) -> None:
    list(import_paths(store, [DATABASE], final=True))

    scope = "rewind-1" if session == REVERTED else "main"
    assert as_sent(store, name_of(session), scope) == bare(PROMPTS[session])


def test_a_sub_agent_is_a_scope_with_the_call_that_began_it() -> None:
    events = told(DATABASE, AGENT)
    agents = [event for event in events if isinstance(event, Said) and event.scope]
    (scope,) = {event.scope for event in agents}
    (begun,) = {event.task for event in agents}

    assert scope.startswith("agent-")
    assert [part.tool for part in parts(events) if part.call == begun] == ["task", "task"]
    assert [part.origin for event in agents for part in event.message.parts][:1] == ["client"]


def test_a_reply_counts_what_its_call_cost() -> None:
    first = next(message for message in messages(told(DATABASE, AGENT)) if message.role == "assistant")

    assert first.usage["cache_creation_input_tokens"] > 5_000
    assert first.usage["output_tokens"] > 10
    assert first.model == "claude-sonnet-4-5"


def test_a_fork_costs_only_what_is_new_in_it() -> None:
    replies = [message for message in messages(told(DATABASE, FORK)) if message.role == "assistant"]

    assert len(replies) > 3
    assert [bool(reply.usage) for reply in replies] == [False] * (len(replies) - 1) + [True]


def test_what_a_person_ran_is_their_command_and_the_tools_output() -> None:
    call = next(part for part in parts(told(DATABASE, REVERTED)) if part.body == b'{"command":"ls"}')
    result = next(part for part in parts(told(DATABASE, REVERTED)) if part.call == call.call and part != call)

    assert (call.kind, call.origin, call.body) == ("tool_use", "human", b'{"command":"ls"}')
    assert (result.kind, result.origin) == ("tool_result", "tool")


def test_texts_that_opencode_puts_in_are_the_clients() -> None:
    asked = next(message for message in messages(told(DATABASE, REVERTED)) if len(message.parts) > 3)

    assert [(part.kind, part.origin) for part in asked.parts] == [
        ("user", "human"),
        ("user", "client"),
        ("user", "client"),
        ("image", "human"),
    ]


def test_a_revert_is_a_fork_and_what_it_took_away_stays() -> None:
    events = told(DATABASE, REVERTED)
    fork = only(Forked, events)
    before = [event.message for event in events[: events.index(fork)] if isinstance(event, Said)]

    assert b"It was wrong." in [part.body for message in before for part in message.parts]
    assert before[-5].key == fork.after
    assert [part.body for part in messages(events[events.index(fork) :])[0].parts] == [b"Go the right way."]


def test_a_compaction_keeps_what_opencode_kept() -> None:
    by_hand, by_itself = (event for event in told(DATABASE, REVERTED) if isinstance(event, Compacted))

    assert [message.role for message in by_hand.summary] == ["user", "assistant"]
    assert not by_hand.kept
    assert by_itself.before in by_itself.kept


def test_a_result_that_was_cleared_later_stands_as_the_model_sees_it(database: Path) -> None:
    key, data = row(database, "SELECT id, data FROM part WHERE data LIKE '%hello%' AND data LIKE '%completed%'")
    part = json.loads(data)
    part["state"]["time"]["compacted"] = part["state"]["time"]["end"] + 60_000
    change(database, "UPDATE part SET data = ? WHERE id = ?", json.dumps(part), key)

    events = told(database, AGENT)
    edit = only(Edited, events)

    assert (edit.call, edit.parts[0].body) == (part["callID"], b"[Old tool result content cleared]")
    assert any(b"hello" in one.body for one in parts(events[: events.index(edit)]))


def test_one_message_of_an_older_version_has_several_replies(database: Path) -> None:
    replies_of = "SELECT id FROM message WHERE session_id = ? AND data LIKE '%assistant%' ORDER BY id"
    with closing(sqlite3.connect(database)) as connection:
        ids = [key for (key,) in connection.execute(replies_of, (AGENT,))]
    for later in ids[1:]:
        change(database, "UPDATE part SET message_id = ? WHERE message_id = ?", ids[0], later)
        change(database, "DELETE FROM message WHERE id = ?", later)

    replies = [one for one in told(database, AGENT) if isinstance(one, Said) and not one.scope]

    assert len({one.message.key for one in replies if one.message.role == "assistant"}) == len(ids)


def test_signatures_of_thinking_are_kept(database: Path) -> None:
    thought = {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": "abc"}}}
    change(database, "UPDATE part SET data = ? WHERE data LIKE '%I read both.%'", json.dumps(thought))

    (part,) = (part for part in parts(told(database, AGENT)) if part.kind == "thinking")

    assert (part.body, part.extra) == (b"Hm.", {"signature": "abc"})


@pytest.mark.parametrize(("error", "stays"), [("MessageAbortedError", True), ("APIError", False)])
def test_a_reply_that_failed_is_in_the_prompt_if_a_person_stopped_it(database: Path, error: str, stays: bool) -> None:
    key, message = row(
        database, "SELECT p.message_id, m.data FROM part p JOIN message m ON m.id = p.message_id"
        " WHERE p.data LIKE '%Forked.%'")  # fmt: skip
    failed = json.dumps({**json.loads(message), "error": {"name": error}})
    change(database, "UPDATE message SET data = ? WHERE id = ?", failed, key)

    assert (b"Forked." in [part.body for part in parts(told(database, FORK))]) is stays


# --- which sessions


def test_only_sessions_of_the_project_are_read() -> None:
    project = Path(row(DATABASE, "SELECT directory FROM session WHERE id = ?", AGENT)[0])
    suffixes = [suffix for suffix, _ in importers.conversations(Recording(DATABASE, projects=[project]), "opencode")]

    assert suffixes == [AGENT[-8:], FORK[-8:], REVERTED[-8:]]


def test_the_projects_database_is_found_where_opencode_keeps_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = home / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    shutil.copy(DATABASE, folder)
    (folder / "opencode-other.db").write_bytes(b"SQLite format 3\0 and no more")
    project = Path(row(DATABASE, "SELECT directory FROM session WHERE id = ?", AGENT)[0])

    assert importers.find(project, home, {})[0] == [("opencode", folder / "opencode.db")]
    assert importers.find(tmp_path, home, {})[0] == []
    assert importers.find(project, tmp_path, {"XDG_DATA_HOME": str(folder.parent)})[0] != []


def test_the_state_tells_what_a_store_has(database: Path, store: Store) -> None:
    assert opencode.state(database, {}) == "missing"
    list(import_paths(store, [database], final=True))
    positions = {AGENT: max(one.end for one in told(database, AGENT) if not isinstance(one, Opened | Warned))}

    assert opencode.state(database, positions) == "whole"
    assert opencode.state(database, {AGENT: 1}) == "grown"


# --- growth


EVENTS = "SELECT data FROM event WHERE type LIKE ? AND instr(data, ?) ORDER BY seq"


def at(path: Path, moment: int) -> None:
    """Makes the database what it was at a moment."""
    with closing(sqlite3.connect(path)) as connection, connection:
        removals = [
            (key, json.loads(data)["messageID"], int(key[4:16], 16) >> 12)
            for key, data in connection.execute("SELECT id, data FROM event WHERE type LIKE 'message.removed.%'")
        ]
        for event, message, when in removals:
            if when <= moment & (1 << 36) - 1:
                continue
            connection.execute("DELETE FROM event WHERE id = ?", (event,))
            for (data,) in connection.execute(EVENTS, ("message.updated.%", f'"id":"{message}"')).fetchall():
                info = json.loads(data)["info"]
                values = (message, info.pop("sessionID"), info["time"]["created"], 0, json.dumps(info))
                connection.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", values)
            for (data,) in connection.execute(EVENTS, ("message.part.%", f'"messageID":"{message}"')).fetchall():
                part = json.loads(data)["part"]
                values = (part["id"], message, part["sessionID"], 0, 0, json.dumps(part))
                connection.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)", values)
        connection.execute("DELETE FROM session WHERE time_created > ?", (moment,))
        connection.execute(
            "DELETE FROM message WHERE time_created > ? OR session_id NOT IN (SELECT id FROM session)", (moment,)
        )
        connection.execute("DELETE FROM part WHERE message_id NOT IN (SELECT id FROM message)")
        for key, data in connection.execute("SELECT id, data FROM message WHERE data LIKE '%completed%'").fetchall():
            info = json.loads(data)
            if info["time"]["completed"] <= moment:
                continue
            del info["time"]["completed"], info["finish"]
            connection.execute("UPDATE message SET data = ? WHERE id = ?", (json.dumps(info), key))
            for part_id, part_data in connection.execute(
                "SELECT id, data FROM part WHERE message_id = ?", (key,)
            ).fetchall():
                part = json.loads(part_data)
                if part["type"] == "tool":
                    part["state"] = {"status": "running", "input": part["state"]["input"]}
                    connection.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(part), part_id))
                elif part["type"] == "step-finish":
                    connection.execute("DELETE FROM part WHERE id = ?", (part_id,))


def moments() -> list[int]:
    with closing(sqlite3.connect(DATABASE)) as connection:
        (first, last) = connection.execute("SELECT min(time_created), max(time_updated) FROM message").fetchone()
    return sorted(random.Random(5).sample(range(first, last), 8))


def test_a_database_imported_at_random_moments_gives_the_history_of_one_import(tmp_path: Path) -> None:
    def growing() -> Iterator[Path]:
        for moment in moments():
            at(Path(shutil.copy(DATABASE, tmp_path)), moment)
            yield tmp_path / DATABASE.name
        yield Path(shutil.copy(DATABASE, tmp_path))

    assert imported_at(tmp_path / "grown", growing()) == imported_at(tmp_path / "whole", [DATABASE]) != {}


def test_a_cut_database_tells_the_beginning_of_the_whole(database: Path) -> None:
    def steps(events: Iterable[Event]) -> list[Event]:
        return [event for event in events if isinstance(event, (Said, Compacted, Forked, Closed))]

    for moment in moments():
        shutil.copy(DATABASE, database)
        at(database, moment)
        for session in PROMPTS:
            if row(database, "SELECT 1 FROM message WHERE session_id = ?", session):
                whole = steps(told(DATABASE, session))
                begun = [event for event in steps(told(database, session)) if event.end <= moment]
                complete = [event for event in begun if event in whole]
                assert complete == whole[: len(complete)]
                assert len(complete) >= len([event for event in whole if event.end <= moment])


def test_a_running_opencode_is_followed_and_can_write_meanwhile(database: Path, store: Store) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE session SET title = 'not yet'")
        follower = Follower(store, database, "opencode")
        first = follower.take()
        writer.execute("COMMIT")
        writer.execute("UPDATE session SET title = 'Another'")
        (size, _, _) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

        assert len(first) == len(PROMPTS)
        assert not any(outcome.error for outcome in first)
        assert size == 0, "a reader stood in the way"
        assert [outcome.units for outcome in follower.take()] == [0] * len(PROMPTS)


def test_nothing_is_written_beside_a_database(database: Path, store: Store) -> None:
    before = database.read_bytes()
    list(import_paths(store, [database]))

    assert [path.name for path in database.parent.iterdir() if path.name.startswith("opencode")] == ["opencode.db"]
    assert database.read_bytes() == before


# --- damage


@pytest.mark.parametrize("data", [b"{", b"7", b"\xff\xfe", "[" * 100_000, None, 5])
def test_a_bad_row_costs_that_row(database: Path, data: object) -> None:
    whole = told(DATABASE, AGENT)
    key, _ = row(database, "SELECT id, data FROM part WHERE data LIKE '%I read both.%'")
    change(database, "UPDATE part SET data = ? WHERE id = ?", data if data is not None else b"", key)

    events = told(database, AGENT)

    assert [event.text for event in events if isinstance(event, Warned)] == [
        f"part {key!r} is not legible and was skipped"
    ]
    assert [part.body for part in parts(events)] == [part.body for part in parts(whole) if part.body != b"I read both."]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda path: change(path, "ALTER TABLE part RENAME TO parts"), "it has no table 'part'"),
        (lambda path: path.write_bytes(DATABASE.read_bytes()[:4000]), "as opencode's database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"x" * 5000), "as opencode's database"),
    ],
)  # fmt: skip
def test_what_is_not_its_database_is_refused(database: Path, spoil: Callable[[Path], object], word: str) -> None:
    spoil(database)

    with pytest.raises(BadInput, match=word):
        told(database, AGENT)


def test_a_view_in_the_place_of_a_table_is_not_asked(database: Path) -> None:
    change(database, "ALTER TABLE session RENAME TO own")
    change(
        database,
        "CREATE VIEW session AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT own.* FROM own, n",
    )

    with pytest.raises(BadInput, match="no table 'session'"):
        told(database, AGENT)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_wrong_type_anywhere_breaks_the_reading(tmp_path: Path, data: st.DataObject) -> None:
    path = Path(shutil.copy(DATABASE, tmp_path))
    table = data.draw(st.sampled_from(["message", "part", "event"]))
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute(f"SELECT id, data FROM {table}").fetchall()
        for _ in range(data.draw(st.integers(1, 4))):
            key, text = data.draw(st.sampled_from(rows))
            value = json.loads(text)
            container, place = data.draw(st.sampled_from(list(places(value))))
            container[place] = data.draw(JSON)
            connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (json.dumps(value), key))
        column = data.draw(st.sampled_from(["title", "directory", "version", "time_created", "parent_id"]))
        wrong = data.draw(st.sampled_from(["", "x", AGENT, b"\xff", 7, -1.5]))
        connection.execute(
            f"UPDATE session SET {column} = ? WHERE id = ?", (wrong, data.draw(st.sampled_from(list(PROMPTS))))
        )

    for _, events in importers.conversations(Recording(path), "opencode"):
        told_events = list(events)
        assert isinstance(told_events[0], Opened)
        ends = [event.end for event in told_events if not isinstance(event, Opened | Warned)]
        assert ends == sorted(ends)
        for part in parts(told_events):
            block_of(part)
