"""A small store that holds one of everything, and is the same to the last commit id wherever it is built."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Role
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.making.blocks import call, result

NOW = 1_795_200_000
JOURNAL = "5f0c6a41d2b98e37"
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PICTURE).decode()},
}
TRACE = "FAILED test_login.py::test_again\n" + "  conftest.py:12: the session is None\n" * 40


def message(role: Role, origin: Origin, *blocks: dict[str, Any] | str, **fields: Any) -> Message:
    return Message(role=role, parts=tuple(wire.part(block, role, origin) for block in blocks), **fields)


def small_store(path: Path) -> Store:
    """A session `demo` that was recorded live, its last step open, and a session `fix-login` that was imported."""
    store = create(path)
    store.now = lambda: NOW  # type: ignore[method-assign]
    store.now_iso = lambda: "2026-11-20T18:40:00.000Z"  # type: ignore[method-assign]
    store.new_id = lambda: JOURNAL  # type: ignore[method-assign]
    _imported(store)
    _live(store)
    return store


def _live(store: Store) -> None:
    system, tools = "You mend programs.", [{"name": "Bash", "input_schema": {"type": "object"}}]
    name = store.create_session("demo", model="claude-opus-5", system=system, tools=tools, time=_at(0))
    with StoredSession.open(store, name) as session:
        session.append(
            message("user", "human", "The login test fails, see the picture.", IMAGE, time=_at(1), key="u1"),
        )
        session.append(
            message(
                "assistant",
                "model",
                {"type": "thinking", "thinking": "Run it, then look at the page.", "signature": "c2lnbmVk"},
                {"type": "text", "text": "I run it."},
                call("toolu_1", "Bash", command="pytest -q test_login.py"),
                call("toolu_2", "Screenshot"),
                time=_at(5),
                key="a1",
                model="claude-opus-5",
                usage={"input_tokens": 912, "output_tokens": 85},
            ),
        )
        session.append(
            message(
                "user",
                "tool",
                result("toolu_1", TRACE, is_error=True),
                result("toolu_2", [{"type": "text", "text": "the page"}, IMAGE]),
                time=_at(9),
                key="r1",
            ),
        )
        session.append(message("assistant", "model", "The fixture is too old.", time=_at(12), key="a2"))
        row = session.ledger()["B7"]
        stub = stubs.stub(row, tokens=400)
        gone = msgspec.structs.replace(row, state="archived", level=1, stub=stub, removed_by="policy:oldest")
        session.change(subject="archive B7", op="archive", actor="policy:oldest", rows=[gone])
        session.append(message("user", "human", "Mend it.", time=_at(60), key="u2"))
        session.append(
            message("assistant", "model", call("toolu_3", "Edit", file_path="conftest.py"), time=_at(63), key="a3")
        )


def _imported(store: Store) -> None:
    ingest(store, recording(), final=True)


def recording() -> list[Event]:
    """A recording with a sub-agent, a compaction that keeps the last message, and a rewind."""
    events: list[Event] = [
        Opened(
            format="claude-code",
            source="0b1c2d3e",
            name="fix-login",
            model="claude-opus-5",
            cwd="/src/shop",
            time=_at(0),
            missing=("system prompt", "tool definitions"),
            grows=True,
        )
    ]
    end = 0

    def said(role: Role, origin: Origin, *blocks: dict[str, Any] | str, scope: str = "", **fields: Any) -> None:
        nonlocal end
        end += 500
        events.append(
            Said(message=message(role, origin, *blocks, time=_at(end // 500), **fields), end=end, scope=scope)
        )

    said("user", "human", "Why does the login test fail?", key="u1")
    said("assistant", "model", call("toolu_1", "Task", prompt="find the fixture"), key="a1", reply="msg_1")
    said("user", "human", "find the fixture", key="s1", scope="agent-7")
    said("assistant", "model", "conftest.py, line 12", key="s2", reply="msg_s", scope="agent-7")
    events.append(Closed(end=end, scope="agent-7"))
    said("user", "tool", result("toolu_1", "conftest.py, line 12"), key="r1")
    said("assistant", "model", "It is too old.", key="a2", reply="msg_2")
    said("user", "human", "And why is it too old?", key="u2")
    said("assistant", "model", "Nobody cleared it.", key="a3", reply="msg_3")
    end += 500
    events.append(
        Compacted(
            summary=(message("user", "client", "The fixture in conftest.py is too old.", key="c1", time=_at(9)),),
            kept=frozenset({"u2", "a3"}),
            before="u2",
            end=end,
            time=_at(9),
            detail={"trigger": "auto", "tokens": 155000},
        )
    )
    said("user", "human", "Clear it.", key="u3")
    said("assistant", "model", call("toolu_2", "Bash", command="rm -r cache"), key="a4", reply="msg_4")
    events.append(Forked(after="a3", end=end, time=_at(13)))
    said("user", "human", "No, make it new.", key="u4")
    said("assistant", "model", "Done.", key="a5", reply="msg_5")
    return events


def _at(seconds: int) -> str:
    return f"2026-11-20T18:{seconds // 60:02}:{seconds % 60:02}Z"
