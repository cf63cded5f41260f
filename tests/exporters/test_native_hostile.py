"""Sessions of a store from elsewhere, with anything in a block, beside it, or gone: refused, or written whole."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc import importers
from ctxvc.core.hosts.tools import shown_as_of_agent
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt.request import request
from ctxvc.core.recording.events import Event, Said, Sent
from ctxvc.errors import Refused
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import AGENTS, native_format
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import NativeSession, Setting
from ctxvc.importers.file import Recording
from tests.exporters.test_hostile import _parts as hostile_parts
from tests.making import generated
from tests.making.generated import arranged, bodies_of, json_objects, json_values, numbered
from tests.messages_api.rules import canonical_problems

SETTING = Setting(folder=Path("/work/p"), time=datetime(2026, 11, 28, tzinfo=timezone.utc), recovery="(B17)")
_hostile_messages = st.lists(hostile_parts, max_size=6).map(
    lambda parts: [Message(role=part.role, parts=(part,)) for part in parts]
)


#: A ledger, and its bodies by block and suffix.
Odd = tuple[Ledger, dict[tuple[str, str], bytes]]


@st.composite
def odd_sessions(draw: st.DrawFn) -> Odd:
    """Messages in any order, of any content, some of which left the prompt."""
    messages = draw(generated.conversations() | generated.wild_messages() | _hostile_messages)
    ledger, bodies = numbered(messages)
    return draw(arranged(ledger.with_meta(msgspec.structs.replace(ledger.meta, format=2, render=2)))), bodies


@given(odd=odd_sessions(), system=json_values, tools=json_values | st.lists(json_objects))
def test_an_odd_session_is_refused_or_written_whole(empty: Conversation, odd: Odd, system: Any, tools: Any) -> None:
    for agent in AGENTS:
        try:
            session = native_format(agent).write(session_of(empty, odd, system, tools), SETTING)
        except Refused as error:
            assert error.hint, agent
            continue
        check(agent, session)


def session_of(empty: Conversation, odd: Odd, system: Any = None, tools: Any = None) -> Conversation:
    ledger, bodies = odd
    snapshot = msgspec.structs.replace(
        empty.snapshot, ledger=ledger, bodies=bodies_of(bodies), system=system, tools=tools
    )
    return Conversation(empty.store, snapshot)


@given(odd=odd_sessions())
def test_an_odd_session_goes_on_in_a_run_with_the_same_calls_and_results(
    odd: Odd,
) -> None:
    ledger, by_block = odd
    bodies = bodies_of(by_block)
    shown = ledger.with_rows(shown_as_of_agent(row, bodies.body(row), "run") for row in ledger.rows())
    before, after = (request(one, bodies, None, None).messages for one in (ledger, shown))

    assert pairs(after) == pairs(before)
    assert canonical_problems(after) == canonical_problems(before)


def pairs(messages: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Role, type and call of each block."""
    return [
        (message["role"], block["type"], str(block.get("id", block.get("tool_use_id"))))
        for message in messages
        for block in message["content"]
    ]


def check(agent: str, session: NativeSession) -> None:
    """The files are JSON, and the agent's own reader, as our importer is one, takes them: no result without its call,
    and none twice.
    """
    for path, data in session.files.items():
        lines = data.splitlines() if path.suffix == ".jsonl" else [data] if path.suffix == ".json" else []
        assert all(isinstance(json.loads(line), (dict, list)) for line in lines), agent
    calls, results = map(Counter, calls_and_results(agent, session))
    assert results <= calls, agent
    assert max(calls.values(), default=1) == 1, agent


def calls_and_results(agent: str, session: NativeSession) -> tuple[list[str], list[str]]:
    """The ids of a session's calls, and of its results, as our importer reads them."""
    with tempfile.TemporaryDirectory() as name:
        assert installed(session, Path(name))
        recording = Recording(Path(name) / next(iter(session.files)))
        read = importers.conversations(recording, native_format(agent).format)
        events = [event for _, conversation in read for event in conversation]
    parts = [part for event in events for message in said(event) for part in message.parts]
    return [part.call for part in parts if part.kind == "tool_use"], [
        part.call for part in parts if part.kind == "tool_result"
    ]


def said(event: Event) -> tuple[Message, ...]:
    return (event.message,) if isinstance(event, Said) else event.messages if isinstance(event, Sent) else ()
