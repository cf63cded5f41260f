"""What only a framework can read: in order, durable, in no prompt, and known to verify and purge like all else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.errors import Damaged
from ctxvc.integrations.records import Records, session_name
from ctxvc.session.session import Session
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify

SECRET = "AKIA" + "Q3EGYWR5ZTBXN7LM"


@pytest.fixture
def records(store: Store) -> Iterator[Records]:
    made = Records(store, "framework")
    yield made
    made.close()


def values(*items: Any) -> Callable[[], list[Any]]:
    return lambda: list(items)


def test_values_come_back_in_their_order_each_once(records: Records) -> None:
    odd = {"text": "line\u2028\r\n\x00", "number": 1.5e300, "deep": [[{"none": None}]], "type": "tool_result"}
    records.append(values({"n": 1}, odd))
    records.append(values())
    records.append(values({"n": 2}))

    assert records.new() == [{"n": 1}, odd, {"n": 2}]
    assert records.new() == []
    assert list(records.newest_first()) == [{"n": 2}, odd, {"n": 1}]


def test_another_process_sees_them_at_once_and_after_the_end(store: Store, records: Records) -> None:
    records.append(values({"n": 1}))
    with Store(store.path) as opened:
        other = Records(opened, "framework")
        assert other.new() == [{"n": 1}]
        records.append(values({"n": 2}))
        assert other.new() == [{"n": 2}]
        other.close()


def test_what_is_decided_inside_an_append_is_decided_once(store: Store) -> None:
    """Each of many writers adds its number unless it is there: none is twice."""

    def write() -> None:
        with Store(store.path) as opened:
            mine = Records(opened, "framework")
            seen: list[Any] = []
            for number in range(20):
                mine.append(lambda number=number: (seen.extend(mine.new()), [number][: number not in seen])[1])
            mine.close()

    writers = [threading.Thread(target=write) for _ in range(3)]
    [writer.start() for writer in writers]
    [writer.join() for writer in writers]

    assert sorted(Records(store, "framework").new()) == list(range(20))


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    create(tmp_path / ".ctxvc").close()
    child = os.fork()
    if not child:
        doomed = Records(Store(tmp_path / ".ctxvc"), "framework")
        doomed.append(values({"n": 1}))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    with Store(tmp_path / ".ctxvc") as store:
        assert Records(store, "framework").new() == [{"n": 1}]


def test_they_are_in_no_prompt_and_the_store_is_intact(store: Store) -> None:
    records = Records(store, "framework")
    for number in range(40):
        records.append(values({"text": f"value {number} " * 50}))
    records.close()

    assert not verify(store).damaged
    with Session.open(store.path, "framework") as session:
        assert session.used() < 100


def test_git_tells_what_a_commit_holds(store: Store, records: Records) -> None:
    records.append(values({"n": 1}, {"n": 2}))
    records.commit()

    tip = store.tips("framework")["main"]
    assert store.commit(tip).message.startswith("2 records of a framework\n")


def test_secrets_become_marks(store: Store, records: Records) -> None:
    records.append(values({"text": f"the key is {SECRET}"}))

    (value,) = records.new()
    assert value["text"].startswith("the key is [REDACTED:")


def test_a_conversation_stays_what_people_look_at(store: Store) -> None:
    records = Records(store, "framework")
    store.create_session("talk")
    records.append(values({"n": 1}))
    records.close()

    assert store.current_session() == "talk"


def test_a_store_with_records_alone_has_a_current_session(store: Store) -> None:
    records = Records(store, "framework")
    records.append(values({"n": 1}))
    records.close()

    assert (store.path / "HEAD").read_text() == "ref: refs/heads/framework/main\n"


def test_a_session_that_holds_something_else_is_refused(store: Store) -> None:
    with Session.open(store.path, "talk") as session:
        session.append({"role": "user", "content": "Hello."})

    with pytest.raises(Damaged, match="not one of them"):
        Records(store, "talk").new()


# --- names


@pytest.mark.parametrize("text", ["", "a/b", "../..", "HEAD", "é" * 200, "x" * 101, "\ud800"])
def test_any_name_of_a_conversation_names_a_session(store: Store, text: str) -> None:
    Records(store, session_name(text)).close()

    assert session_name(text) in store.sessions()


def test_two_names_of_conversations_never_name_one_session() -> None:
    names = ["a/b", "a-b", "a:b", "A-b", session_name("a/b"), session_name(session_name("a/b"))]

    assert len({session_name(name).lower() for name in names}) == len(names)


def test_a_uuid_names_a_session_as_it_is() -> None:
    assert session_name("6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a") == "6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a"
