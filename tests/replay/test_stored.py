"""The sessions of a store as conversations: what was said, and nothing of what a policy made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part
from ctxvc.recording.files import import_paths
from ctxvc.replay.conversation import Conversation, conversations
from ctxvc.replay.stored import stored_checksum, stored_conversations
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.conversation import exchange, human, reply, result, results
from tests.making.store import archive
from tests.replay.recordings import recording

DATA = Path(__file__).parents[1] / "data"


def texts(conversation: Conversation) -> list[tuple[str, str, int]]:
    return [(block.kind, block.text, block.seen) for block in conversation.blocks]


def test_an_imported_session_is_the_conversation_of_its_file(store: Store, tmp_path: Path) -> None:
    path = recording(tmp_path / "talk.jsonl", steps=3)
    list(import_paths(store, [path], redact=False, final=True))

    (of_session,) = stored_conversations(store, store.current_session())
    (of_file,) = conversations(path)

    assert of_session.blocks == of_file.blocks
    assert [len(call.before) for call in of_session.calls] == [len(call.before) for call in of_file.calls]


def test_what_a_policy_or_the_agent_did_to_the_context_is_not_in_it(store: Store) -> None:
    store.create_session("demo")
    with Session.open(store.path, "demo") as session:
        for message in [*exchange(1), *exchange(2)]:
            session.append(message)
    before = texts(next(stored_conversations(store, "demo")))
    checksum = stored_checksum(store, "demo")
    with Session.open(store.path, "demo", actor="user") as session:
        session.note("what was learned")
        archive(session.stored, "B4")
    with Session.open(store.path, "demo") as session:
        call = call_part("archive", "a1", b'{"blocks":"B8"}')
        session.append(reply("Making room."))
        session.append(human("go on"))
        session.append(Message(role="assistant", parts=(call,)))
        session.append(results(result("a1", "archived B8")))
        session.append(reply("Done."))

    (after,) = stored_conversations(store, "demo")

    assert texts(after)[: len(before)] == before
    assert [text for _, text, _ in texts(after)[len(before) :]] == ["out 2", "Making room.", "go on", "Done."]
    assert stored_checksum(store, "demo") != checksum
    assert stored_checksum(store, "demo")[0] == after.sha256


def test_after_a_rewind_the_longer_line_stands_for_both(store: Store) -> None:
    store.create_session("demo")
    with Session.open(store.path, "demo", actor="user") as session:
        for message in [*exchange(1), *exchange(2)]:
            session.append(message)
        session.append(reply("The end of the first way."))
        session.open_scope("retry", "another way", revision="step:1")
        for message in exchange(3):
            session.append(message)
        session.append(reply("The end of the second way."))

    (only,) = stored_conversations(store, "demo")

    said = [text for kind, text, _ in texts(only) if kind == "assistant"]
    assert said[-1] == "The end of the second way."
    assert "The end of the first way." not in said


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi"])
def test_recordings_of_hosts_are_the_same_by_way_of_the_store(store: Store, name: str) -> None:
    paths = [path for path in sorted((DATA / name).rglob("*.jsonl*")) if "subagents" not in path.parts]
    compared = 0
    for path in paths[:6]:
        (outcome, *more) = import_paths(store, [path], redact=False, final=True)
        if outcome.error or more:
            continue
        of_file = {tuple(texts(own)) for own in conversations(path)}
        of_session = {tuple(texts(own)) for own in stored_conversations(store, outcome.session)}
        assert of_session == of_file, path
        compared += 1
    assert compared
