"""A compaction that a host is given is true here once the host has installed it, whenever anything is killed."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ctxvc.claude_code import compaction, compaction_desk
from ctxvc.claude_code.compaction import Choice
from ctxvc.cli.hosts import line
from ctxvc.policies.default import Default
from ctxvc.recording import log, places
from ctxvc.session.session import Session
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from tests.making.played_host import LONG, SESSION, PlayedHost


@pytest.fixture
def host(tmp_path: Path) -> PlayedHost:
    played_host = PlayedHost(tmp_path)
    played_host.reads_two_files()
    return played_host


def test_a_plan_is_pending_until_the_host_has_installed_it(host: PlayedHost) -> None:
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


def test_what_is_given_has_every_word_and_a_stub_for_what_left(host: PlayedHost) -> None:
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


def test_an_answer_that_was_never_taken_is_dropped_with_its_reason(host: PlayedHost) -> None:
    host.asks()
    host.summarises()
    host.records()
    assert host.plans() == 0
    assert "the host went on without it" in "\n".join(log.entries(host.store))
    with host.stored() as stored:
        assert not any(row.removed_by.startswith("policy:") for row in stored.ledger().rows())


def test_an_answer_is_dropped_where_the_host_goes_on_without_a_boundary(host: PlayedHost) -> None:
    host.asks()
    host.replies("I went on.")
    host.records()
    assert host.plans() == 0
    assert set(host.states().values()) == {"visible"}


def test_a_compaction_made_ahead_of_time_may_be_taken_much_later(host: PlayedHost) -> None:
    answered = host.asks(trigger="precompute")
    host.says("Meanwhile.")
    host.replies("Yes.")
    host.records()
    assert host.plans() == 1
    later = [
        {"role": "user", "text": "Meanwhile.", "toolUses": []},
        {"role": "assistant", "text": "Yes.", "toolUses": []},
    ]
    host.installs([*answered["messages"], *later])
    host.records()
    assert host.plans() == 0
    assert list(host.states().values()).count("archived") == 2


def test_an_answer_is_dropped_when_the_host_asks_again(host: PlayedHost) -> None:
    host.asks()
    answered = host.asks()
    assert host.plans() == 1
    host.installs(answered["messages"])
    host.records()
    assert host.plans() == 0
    assert sorted(host.states().values()) == ["archived", "archived", "visible", "visible"]


def test_a_boundary_that_comes_between_two_looks_finds_its_plan_committed(host: PlayedHost) -> None:
    """Else the import of the boundary would have taken the blocks out, and nothing could take that back."""
    answered = host.asks()

    def goes_on() -> None:
        host.installs(answered["messages"])
        host.says("Go on.")

    host.records(meanwhile=goes_on)
    assert host.plans() == 1 and set(host.states().values()) == {"visible"}
    host.records()
    assert host.plans() == 0
    with host.stored() as stored:
        rows = [row for row in stored.ledger().rows() if row.kind == "tool_result"]
        assert {row.removed_by for row in rows} == {"policy:default"}
        assert Session(stored).undo()


def test_a_hook_that_was_lost_is_made_good_by_the_next(host: PlayedHost) -> None:
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
def test_killed_while_it_commits_it_is_committed_once(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    host.installs(host.asks()["messages"])
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


def test_a_second_compaction_knows_what_the_first_left(host: PlayedHost) -> None:
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


def test_what_was_undone_comes_back_with_the_next_compaction(host: PlayedHost) -> None:
    host.installs(host.asks()["messages"])
    host.records()
    with host.stored() as stored:
        Session(stored, actor="user").undo()
    messages = host.asks(target=100_000)["messages"]
    results = [result["text"] for message in messages for result in message.get("toolResults", [])]
    assert results == [LONG, LONG.replace("line", "row")]


def test_what_a_person_archived_meanwhile_leaves_the_hosts_prompt(host: PlayedHost) -> None:
    host.records()
    with host.stored() as stored:
        Session(stored, actor="user").archive("B3")
    messages = host.asks(target=100_000)["messages"]
    results = [result["text"] for message in messages for result in message.get("toolResults", [])]
    assert results[0].startswith("[archived B3@") and results[1] == LONG.replace("line", "row")


def test_what_the_host_has_though_it_was_said_to_have_dropped_it_stays(host: PlayedHost) -> None:
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


def test_words_that_the_store_does_not_have_yet_stay(host: PlayedHost) -> None:
    host.messages.append({"role": "user", "text": "Unwritten.", "toolUses": []})
    assert host.asks()["messages"][-1]["text"] == "Unwritten."


def test_the_hosts_own_lines_are_dropped(host: PlayedHost) -> None:
    host.messages += [
        {
            "role": "user",
            "text": "<command-name>/compact</command-name>\n<command-args></command-args>",
            "toolUses": [],
        },
        {"role": "user", "text": "<local-command-stdout>Compacted </local-command-stdout>", "toolUses": []},
    ]
    assert "compact" not in json.dumps(host.asks()["messages"])


def test_a_small_prompt_is_left_to_the_host_unless_a_person_asks(host: PlayedHost) -> None:
    assert "own summary is cheaper" in host.asks(target=0, trigger="auto")["decline"]
    assert host.plans() == 0

    assert "summary" not in host.asks(target=0)["line"], "the host does not tell what is not recorded"
    line = host.asks(target=0, tokens=50_000)["line"]
    assert re.fullmatch(r".*; [12] blocks? archived, 0 lost; 50 calls from here cost [0-9.]+ × those after .*", line)
    assert host.plans() == 1


def test_an_automatic_compaction_is_not_compared_with_a_summary(host: PlayedHost) -> None:
    assert "summary" not in host.asks(trigger="auto")["line"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "all of its 5 recorded tokens are a person's words, the latest step, what is pinned"),
        ({"target": 0}, "all of its 5 recorded tokens are a person's words"),
        ({"target": 90_000}, "its 5 recorded tokens are within the target of 90,000"),
        ({"tokens": 984_000}, "; 983,995 of 984,000 tokens are not recorded: system prompt, tools, hidden"),
    ],
)
def test_a_compaction_that_removes_nothing_says_why(tmp_path: Path, fields: dict[str, int], reason: str) -> None:
    host = PlayedHost(tmp_path)
    host.says("Only this.")
    host.replies("Nothing.")
    answered = host.asks(**{"target": 1, **fields})

    assert list(answered) == ["skip"] and answered["skip"].startswith("nothing can leave the prompt: ")
    assert re.search(reason, answered["skip"])
    assert host.plans() == 0


def test_where_nothing_can_leave_a_host_that_needs_room_compacts_by_itself(tmp_path: Path) -> None:
    host = PlayedHost(tmp_path)
    host.says("Only this.")
    host.replies("Nothing.")
    assert host.asks(trigger="auto", target=90_000)["decline"].startswith("nothing can leave the prompt: ")
    assert host.plans() == 0


def test_what_waited_is_dropped_where_nothing_can_leave_any_more(host: PlayedHost) -> None:
    host.asks()
    host.messages = host.messages[-2:]
    assert "skip" in host.asks(target=90_000)
    assert host.plans() == 0


@pytest.mark.parametrize(
    "event",
    [b"", b"[]", b'{"messages": 3}', b'{"session": "../../etc", "messages": []}', b'{"session": "x", "messages": [1]}'],
)
def test_an_event_in_another_form_is_declined(host: PlayedHost, event: bytes) -> None:
    answered = json.loads(compaction.answer(event, host.env, lambda _: Choice(policy=Default(), line=line)))
    assert list(answered) == ["decline"]


def test_an_error_is_logged_and_declined(host: PlayedHost) -> None:
    def fails(_: Mapping[str, str]) -> Choice:
        raise RuntimeError("no such thing")

    event = {"session": SESSION, "folder": str(host.project), "trigger": "auto", "messages": host.messages}
    answered = json.loads(compaction.answer(json.dumps(event).encode(), host.env, fails))
    assert "no such thing" in answered["decline"]


def event_of(host: PlayedHost) -> bytes:
    event = {"session": SESSION, "folder": str(host.project), "trigger": "manual", "messages": host.messages}
    return json.dumps(event).encode()


def usual(_: Mapping[str, str]) -> Choice:
    return Choice(policy=Default(), line=line, target=3_000)


def at_work(host: PlayedHost) -> AbstractContextManager[int]:
    """The lock that a recorder has while it runs."""
    places.home(host.store).mkdir(mode=0o700, exist_ok=True)
    return locked(places.lock(host.store), timeout=0)


def test_a_recorder_at_work_answers_and_nothing_is_left_behind(host: PlayedHost) -> None:
    served: list[bool] = []

    def recorder() -> None:
        with Store(host.store) as store:
            until = time.monotonic() + 20
            while not served and time.monotonic() < until:
                served.extend([True] if compaction_desk.serve(store, host.env, usual) else [])

    with at_work(host):
        thread = threading.Thread(target=recorder)
        thread.start()
        answered = json.loads(compaction_desk.answer(event_of(host), host.env, usual))
        thread.join()
    assert "2 blocks archived" in answered["line"]
    assert host.plans() == 1
    assert not [name for name in contained.names(host.store, compaction_desk.FOLDER) if not name.startswith(".")]


def test_a_recorder_that_is_busy_leaves_the_answer_to_the_hook(host: PlayedHost) -> None:
    with at_work(host):
        answered = json.loads(compaction_desk.answer(event_of(host), host.env, usual))
    assert "2 blocks archived" in answered["line"]
    assert not contained.names(host.store, compaction_desk.FOLDER)


def test_an_event_of_a_host_that_has_gone_on_is_not_answered(host: PlayedHost) -> None:
    host.records()
    path = host.store / compaction_desk.FOLDER / "1-1"
    places.write_sealed(host.store, path, b'{"time": 3.0}\n' + event_of(host))
    with Store(host.store) as store:
        assert not compaction_desk.serve(store, host.env, usual)
    assert not contained.names(host.store, compaction_desk.FOLDER)
    assert host.plans() == 0
