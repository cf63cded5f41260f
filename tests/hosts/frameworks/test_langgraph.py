"""The checkpointer against LangGraph itself: its conformance suite, and what we promise beyond it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="LangGraph is not installed")

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from ctxvc.integrations.langgraph import CtxvcSaver

ROOT = Path(__file__).parents[3]
SECRET = "AKIA" + "Q3EGYWR5ZTBXN7LM"


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[CtxvcSaver]:
    with CtxvcSaver(tmp_path / ".ctxvc") as made:
        yield made


def put(saver: BaseCheckpointSaver[str], config: Any, messages: list[BaseMessage], **metadata: Any) -> Any:
    """A checkpoint with these messages behind the one that `config` names; gives its config."""
    version = saver.get_next_version(None if "checkpoint_id" not in config["configurable"] else "1", None)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"messages": messages}, {"messages": version}
    config = {"configurable": {"checkpoint_ns": "", **config["configurable"]}}
    return saver.put(config, checkpoint, {"source": "loop", "step": 0, **metadata}, {"messages": version})


def thread(name: str = "t") -> Any:
    return {"configurable": {"thread_id": name}}


def messages_of(saver: BaseCheckpointSaver[str], config: Any) -> list[BaseMessage]:
    saved = saver.get_tuple(config)
    assert saved is not None
    messages: list[BaseMessage] = saved.checkpoint["channel_values"]["messages"]
    return messages


def test_its_own_conformance_suite_passes_base_and_extended(tmp_path: Path) -> None:
    suite = pytest.importorskip("langgraph.checkpoint.conformance")
    numbers = iter(range(1000))

    @suite.checkpointer_test(name="ctxvc")
    async def savers() -> AsyncIterator[CtxvcSaver]:
        with CtxvcSaver(tmp_path / str(next(numbers)) / ".ctxvc") as made:
            yield made

    report = asyncio.run(suite.validate(savers))

    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert len(report.results) == 8 and sum(result.tests_passed for result in report.results.values()) >= 80


def test_a_list_that_grows_costs_what_is_new_in_it(saver: CtxvcSaver) -> None:
    config, messages = thread(), [HumanMessage(f"message {number} " * 40, id=str(number)) for number in range(100)]
    for length in range(1, 101):
        config = put(saver, config, messages[:length])

    (session,) = saver._threads.values()
    recorded = sum(len(str(value)) for value in session.records.newest_first())
    once = sum(len(message.text) for message in messages)
    assert messages_of(saver, thread()) == messages
    assert recorded < 4 * once, "the whole list each time would be 50 times as much"


def test_every_earlier_state_comes_back_also_of_branches(tmp_path: Path) -> None:
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        first = put(saver, thread(), [HumanMessage("a", id="1")])
        left = put(saver, first, [HumanMessage("a", id="1"), AIMessage("left", id="2")])
        right = put(saver, first, [HumanMessage("a", id="1"), AIMessage("right", id="3")])
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        assert [message.text for message in messages_of(saver, left)] == ["a", "left"]
        assert [message.text for message in messages_of(saver, right)] == ["a", "right"]
        assert [message.text for message in messages_of(saver, first)] == ["a"]


def test_another_process_sees_what_was_put_at_once(tmp_path: Path, saver: CtxvcSaver) -> None:
    with CtxvcSaver(tmp_path / ".ctxvc") as other:
        config = put(saver, thread(), [HumanMessage("one", id="1")])
        assert [message.text for message in messages_of(other, thread())] == ["one"]
        put(other, config, [HumanMessage("one", id="1"), AIMessage("two", id="2")])
        assert [message.text for message in messages_of(saver, thread())] == ["one", "two"]


def test_a_secret_in_a_message_is_a_mark_before_it_is_written(tmp_path: Path) -> None:
    nested = AIMessage("", id="1", tool_calls=[{"name": "sh", "id": "c", "args": {"env": {"key": SECRET}}}])
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        config = put(saver, thread(), [HumanMessage(f"my key is {SECRET}.", id="0"), nested])
        saver.put_writes(config, [("messages", HumanMessage(f"again {SECRET}"))], "task")
        (session,) = saver._threads.values()
        stored = json.dumps(list(session.records.newest_first()))
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        human, reply = messages_of(saver, thread())

    assert "my key is" in stored and SECRET not in stored, "texts stand there as they are, so that they can be searched"
    assert human.text.startswith("my key is [REDACTED:aws-access-key:") and isinstance(human, HumanMessage)
    assert isinstance(reply, AIMessage) and reply.tool_calls[0]["args"]["env"]["key"].startswith("[REDACTED:")


def test_a_text_that_was_purged_is_gone_and_the_rest_of_its_message_is_there(tmp_path: Path) -> None:
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        put(saver, thread(), [HumanMessage("meet at the old mill at noon", id="1"), AIMessage("Yes.", id="2")])
    purge = [sys.executable, "-m", "ctxvc", "purge", "--text", "the old mill", "--yes"]
    subprocess.run(purge, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)

    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        human, reply = messages_of(saver, thread())
    assert human.text.startswith("meet at [") and human.text.endswith(" at noon") and reply.text == "Yes."


def test_every_value_that_langgraph_serialises_comes_back_as_it_was(tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(150):
        deep = [deep]
    values = {
        "numbers": [0, -(2**63), 2**64 - 1, 1.5, 1e300, float("inf")],
        "texts": ["", "é\u2028\x00", "line\r\n"],
        "bytes": b"\x00\xff",
        "keys": {1: "a", "b": {None: True}},
        "sets": [{1, 2}, frozenset({3})],
        "times": [datetime(2026, 11, 1, tzinfo=timezone.utc), timedelta(1), UUID(int=7)],
        "objects": [Path("a/b"), re.compile("x"), Decimal("1.10"), (1, (2,))],
        "deep": deep,
        "message": AIMessage("x", id="1", tool_calls=[{"name": "sh", "id": "c", "args": {"n": [1.0]}}]),
        "looks like ours": [{"map": []}, {"bytes": "AA=="}, {"extension": 3, "value": 1}, ["msgpack", {}]],
    }
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = values, dict.fromkeys(values, "1")
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(config, checkpoint, {"source": "input"}, dict.fromkeys(values, "1"))
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        saved = saver.get_tuple(thread())

    expected = {name: saver.serde.loads_typed(saver.serde.dumps_typed(value)) for name, value in values.items()}
    assert saved is not None and saved.checkpoint["channel_values"] == expected


def test_pruning_keeps_what_a_channel_of_changes_is_rebuilt_from(saver: CtxvcSaver) -> None:
    counters = {"counters_since_delta_snapshot": {"messages": [1, 1]}}
    old = put(saver, thread(), [HumanMessage("older", id="1")])
    seed = put(saver, old, [HumanMessage("seed", id="1")])
    saver.put_writes(seed, [("messages", AIMessage("change", id="2"))], "task")
    checkpoint = empty_checkpoint()
    newest = saver.put({"configurable": {"checkpoint_ns": "", **seed["configurable"]}}, checkpoint, counters, {})

    saver.prune(["t"])

    assert saver.get_tuple(old) is None
    history = saver.get_delta_channel_history(config=newest, channels=["messages"])["messages"]
    assert [message.text for message in history["seed"]] == ["seed"]
    assert [write[2].text for write in history["writes"]] == ["change"]


def test_what_is_deleted_is_gone_for_langgraph_and_comes_back_for_nobody(tmp_path: Path) -> None:
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        put(saver, thread("a/b: ü"), [HumanMessage("one", id="1")])
        saver.delete_thread("a/b: ü")
        saver.delete_thread("never there")
    with CtxvcSaver(tmp_path / ".ctxvc") as saver:
        assert saver.get_tuple(thread("a/b: ü")) is None and not list(saver.list(None))


_PUTTING = """
import sys
from tests.hosts.frameworks.test_langgraph import CtxvcSaver, HumanMessage, put, thread
saver, config, messages = CtxvcSaver(sys.argv[1]), thread(), []
for number in range(10_000):
    messages.append(HumanMessage(f"message {number}", id=str(number)))
    config = put(saver, config, messages)
    print(config["configurable"]["checkpoint_id"], flush=True)
"""


def test_a_killed_process_loses_no_checkpoint_that_was_put(tmp_path: Path) -> None:
    place = tmp_path / ".ctxvc"
    with subprocess.Popen([sys.executable, "-c", _PUTTING, place], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        acknowledged = [child.stdout.readline().strip() for _ in range(60)]
        child.send_signal(signal.SIGKILL)
        acknowledged += child.stdout.read().split()

    with CtxvcSaver(place) as saver:
        for number, name in enumerate(acknowledged):
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": name}}
            assert [message.id for message in messages_of(saver, config)] == [str(at) for at in range(number + 1)]
