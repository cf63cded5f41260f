"""A compaction that a host is given is true here once the host has installed it, whenever anything is killed."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxvc.claude_code import compaction
from ctxvc.claude_code.compaction import Choice
from ctxvc.importers.claude_code import FORMAT
from ctxvc.policies.default import Default
from ctxvc.recording import log
from ctxvc.recording.files import Follower
from ctxvc.store.locate import FOLDER
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create

SESSION = "0b9c3c1e-6a52-4f5e-9a57-0d1f4b1b8f10"
LONG = "".join(f"line {number}\n" for number in range(4000))


class Host:
    """A Claude Code that is played: it writes its transcript, asks for compactions, and installs them or not."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.config = folder / "config"
        self.transcript = self.config / "projects" / "-project" / f"{SESSION}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.project.mkdir()
        create(self.project / FOLDER).close()
        self.messages: list[dict[str, Any]] = []
        self.parent: str | None = None

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "CLAUDE_CONFIG_DIR": str(self.config)}

    @property
    def store(self) -> Path:
        return self.project / FOLDER

    def line(self, **fields: Any) -> str:
        name = str(uuid.uuid4())
        common = {"parentUuid": self.parent, "uuid": name, "sessionId": SESSION, "cwd": str(self.project)}
        with self.transcript.open("a") as file:
            file.write(
                json.dumps({**common, "version": "2.1.330", "timestamp": "2026-11-23T08:00:00Z", **fields}) + "\n"
            )
        self.parent = name
        return name

    def says(self, text: str) -> None:
        name = self.line(type="user", promptId="p", promptSource="sdk", message={"role": "user", "content": text})
        self.messages.append({"role": "user", "text": text, "toolUses": [], "handle": name})

    def replies(self, text: str) -> None:
        name = self._reply({"type": "text", "text": text})
        self.messages.append({"role": "assistant", "text": text, "toolUses": [], "handle": name})

    def calls(self, call: str, output: str) -> None:
        use = {"tool_use_id": call, "tool": "Bash", "input": {"command": f"cat {call}"}}
        name = self._reply({"type": "tool_use", "id": call, "name": "Bash", "input": use["input"]})
        self.messages.append({"role": "assistant", "text": "", "toolUses": [use], "handle": name})
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        name = self.line(type="user", message={"role": "user", "content": [result]})
        given = {"tool_use_id": call, "text": output, "isError": False}
        self.messages.append({"role": "user", "text": "", "toolUses": [], "toolResults": [given], "handle": name})

    def _reply(self, block: Mapping[str, Any]) -> str:
        message = {"id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "model": "claude-opus-5-5", "content": [block]}
        return self.line(type="assistant", message={**message, "usage": {"input_tokens": 10, "output_tokens": 5}})

    def asks(self, **fields: Any) -> dict[str, Any]:
        """The answer to a compaction."""
        event = {"session": SESSION, "folder": str(self.project), "trigger": "manual", "messages": self.messages}
        choice = Choice(policy=Default(), target=fields.pop("target", 3_000))
        answer = compaction.answer(json.dumps({**event, **fields}).encode(), self.env, lambda _: choice)
        answered: dict[str, Any] = json.loads(answer)
        return answered

    def installs(self, messages: list[dict[str, Any]]) -> None:
        """Writes a boundary and the messages that it was given, as the real client does."""
        self.parent = None
        self.line(type="system", subtype="compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 9})
        self.messages = []
        for message in messages:
            content: list[dict[str, Any]] = [{"type": "text", "text": message["text"]}] if message["text"] else []
            content += [
                {"type": "tool_use", "id": use["tool_use_id"], "name": use["tool"], "input": use["input"]}
                for use in message["toolUses"]
            ]
            content += [
                {"type": "tool_result", "tool_use_id": result["tool_use_id"], "content": result["text"]}
                for result in message.get("toolResults", [])
            ]
            extra = {"id": str(uuid.uuid4()), "model": "<synthetic>"} if message["role"] == "assistant" else {}
            written = {"role": message["role"], "content": content, **extra}
            name = self.line(type=message["role"], message=written)
            self.messages.append({**message, "handle": name})

    def summarises(self) -> None:
        """Compacts by itself."""
        self.parent = None
        self.line(type="system", subtype="compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 9})
        self.line(type="user", isCompactSummary=True, message={"role": "user", "content": "A summary."})

    @contextmanager
    def stored(self) -> Iterator[StoredSession]:
        with Store(self.store) as store:
            stored = StoredSession.open(store, store.session_of(FORMAT, SESSION))
            yield stored
            stored.leave()

    def records(self) -> None:
        """What the recorder does with each event."""
        with Store(self.store) as store:
            compaction.settle(store, str(self.transcript))
            errors = [outcome.error for outcome in Follower(store, self.transcript, FORMAT).take(closes=True)]
            assert errors == [None] * len(errors)

    def states(self) -> dict[str, str]:
        with self.stored() as stored:
            return {row.id: row.state for row in stored.ledger().rows() if row.kind in ("tool_result", "user")}

    def plans(self) -> int:
        with self.stored() as stored:
            return len(stored.pending_plans())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.says("Read both.")
    made.calls("t1", LONG)
    made.calls("t2", LONG.replace("line", "row"))
    made.replies("I did.")
    made.says("And now?")
    made.replies("Nothing.")
    return made


def test_a_plan_is_pending_until_the_host_has_installed_it(host: Host) -> None:
    answered = host.asks()
    assert "2 blocks archived" in answered["line"]
    assert host.plans() == 1
    assert set(host.states().values()) == {"visible"}, "nothing is changed by an answer"
    host.records()
    assert host.plans() == 1, "the transcript does not tell yet"
    host.installs(answered["messages"])
    host.records()
    assert host.plans() == 0
    assert sorted(host.states().values()) == ["archived", "archived", "visible", "visible"]
    with host.stored() as stored:
        rows = [row for row in stored.ledger().rows() if row.kind == "tool_result"]
        assert {row.removed_by for row in rows} == {"policy:default"}
        assert stored.body(rows[0]).decode() == LONG


def test_what_is_given_has_every_word_and_a_stub_for_what_left(host: Host) -> None:
    messages = host.asks()["messages"]
    assert [message["text"] for message in messages if message["text"]] == [
        "Read both.",
        "I did.",
        "And now?",
        "Nothing.",
    ]
    results = [result for message in messages for result in message.get("toolResults", [])]
    assert [result["tool_use_id"] for result in results] == ["t1", "t2"]
    assert all(result["text"].startswith("[archived B") for result in results)
    assert not any("handle" in message for message in messages)


def test_an_answer_that_was_never_taken_is_dropped_with_its_reason(host: Host) -> None:
    host.asks()
    host.summarises()
    host.records()
    assert host.plans() == 0
    assert "the host went on without it" in "\n".join(log.entries(host.store))
    with host.stored() as stored:
        assert not any(row.removed_by.startswith("policy:") for row in stored.ledger().rows())


def test_an_answer_is_dropped_where_the_host_goes_on_without_a_boundary(host: Host) -> None:
    host.asks()
    host.replies("I went on.")
    host.records()
    assert host.plans() == 0
    assert set(host.states().values()) == {"visible"}


def test_an_answer_is_dropped_when_the_host_asks_again(host: Host) -> None:
    host.asks()
    answered = host.asks()
    assert host.plans() == 1
    host.installs(answered["messages"])
    host.records()
    assert host.plans() == 0
    assert sorted(host.states().values()) == ["archived", "archived", "visible", "visible"]


def test_a_hook_that_was_lost_is_made_good_by_the_next(host: Host) -> None:
    host.installs(host.asks()["messages"])
    host.says("Go on.")
    host.replies("I do.")
    host.records()
    assert host.plans() == 0
    with host.stored() as stored:
        rows = list(stored.ledger().rows())
        assert [stored.body(row) for row in rows if row.kind == "user"] == [b"Read both.", b"And now?", b"Go on."]
        assert [row.state for row in rows if row.kind == "tool_result"] == ["archived", "archived"]


@pytest.mark.parametrize("place", ["install", "drop_plans", "_write_installed"])
def test_killed_while_it_commits_it_is_committed_once(host: Host, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    host.installs(host.asks()["messages"])
    from ctxvc.session.session import Session

    owner = {"install": Session, "drop_plans": StoredSession, "_write_installed": compaction}[place]
    with monkeypatch.context() as patched:
        patched.setattr(owner, place, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            host.records()
    host.records()
    assert host.plans() == 0
    assert sorted(host.states().values()) == ["archived", "archived", "visible", "visible"]
    with Store(host.store) as store:
        subjects = [
            store.commit(commit).message for commit in store.first_parents(store.tips(store.sessions()[0])["main"])
        ]
    assert sum("by default" in subject.splitlines()[0] for subject in subjects) == 1


def test_a_second_compaction_knows_what_the_first_left(host: Host) -> None:
    host.installs(host.asks()["messages"])
    host.says("One more.")
    host.calls("t3", LONG.replace("line", "word"))
    host.replies("Read.")
    host.says("Enough.")
    host.replies("Fine.")
    messages = host.asks()["messages"]
    texts = [message["text"] for message in messages if message["text"]]
    assert texts == ["Read both.", "I did.", "And now?", "Nothing.", "One more.", "Read.", "Enough.", "Fine."]
    host.installs(messages)
    host.records()
    with host.stored() as stored:
        rows = [row for row in stored.ledger().rows() if row.kind == "tool_result"]
        assert [row.state for row in rows] == ["archived"] * 3


def test_what_was_undone_comes_back_with_the_next_compaction(host: Host) -> None:
    from ctxvc.session.session import Session

    host.installs(host.asks()["messages"])
    host.records()
    with host.stored() as stored:
        Session(stored, actor="user").undo()
    messages = host.asks(target=100_000)["messages"]
    results = [result["text"] for message in messages for result in message.get("toolResults", [])]
    assert results == [LONG, LONG.replace("line", "row")]


def test_what_a_person_archived_meanwhile_leaves_the_hosts_prompt(host: Host) -> None:
    from ctxvc.session.session import Session

    host.records()
    with host.stored() as stored:
        Session(stored, actor="user").archive("B3")
    messages = host.asks(target=100_000)["messages"]
    results = [result["text"] for message in messages for result in message.get("toolResults", [])]
    assert results[0].startswith("[archived B3@") and results[1] == LONG.replace("line", "row")


def test_what_the_host_has_though_it_was_said_to_have_dropped_it_stays(host: Host) -> None:
    before = list(host.messages)
    host.summarises()
    host.says("Go on.")
    host.replies("Yes.")
    host.records()
    assert list(host.states().values()).count("archived") == 4
    host.messages = [*before, *host.messages[len(before) :]]
    messages = host.asks(target=100_000)["messages"]
    assert [message["text"] for message in messages if message["text"]][:2] == ["Read both.", "I did."]
    host.installs(messages)
    host.records()
    assert host.states()["B1"] == "visible"


def test_words_that_the_store_does_not_have_yet_stay(host: Host) -> None:
    host.messages.append({"role": "user", "text": "Unwritten.", "toolUses": []})
    assert host.asks()["messages"][-1]["text"] == "Unwritten."


def test_the_hosts_own_lines_are_dropped(host: Host) -> None:
    host.messages += [
        {
            "role": "user",
            "text": "<command-name>/compact</command-name>\n<command-args></command-args>",
            "toolUses": [],
        },
        {"role": "user", "text": "<local-command-stdout>Compacted </local-command-stdout>", "toolUses": []},
    ]
    assert "compact" not in json.dumps(host.asks()["messages"])


def test_a_small_prompt_is_left_to_the_host(host: Host) -> None:
    assert "own summary is cheaper" in host.asks(target=0)["decline"]


@pytest.mark.parametrize(
    "event",
    [b"", b"[]", b'{"messages": 3}', b'{"session": "../../etc", "messages": []}', b'{"session": "x", "messages": [1]}'],
)
def test_an_event_in_another_form_is_declined(host: Host, event: bytes) -> None:
    answered = json.loads(compaction.answer(event, host.env, lambda _: Choice(policy=Default())))
    assert list(answered) == ["decline"]


def test_an_error_is_logged_and_declined(host: Host) -> None:
    def fails(_: Mapping[str, str]) -> Choice:
        raise RuntimeError("no such thing")

    event = {"session": SESSION, "folder": str(host.project), "trigger": "auto", "messages": host.messages}
    answered = json.loads(compaction.answer(json.dumps(event).encode(), host.env, fails))
    assert "no such thing" in answered["decline"]
