"""The store that the tests of the command line look at."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group
from ctxvc.core.ledger.wire import call_part, part, result_part, text_part
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.recording.events import Event, Forked, Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create

#: What a terminal would take for commands: clear the screen, change the title, colour, go up, C1, bidi, backspaces.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[1A\x9b5n\u202eevil\u2066\b\b\r\x00\x7f"


def time(second: int) -> str:
    return f"2026-03-01T12:00:{second:02}Z"


def human(words: str, second: int) -> Message:
    return Message(role="user", parts=(text_part(words, "user", "human"),), time=time(second), key=f"h{second}")


def reply(second: int, *blocks: dict[str, object]) -> Message:
    parts = tuple(part(block, "assistant", "model") for block in blocks)
    usage = {"input_tokens": 10, "cache_read_input_tokens": 1000 + second, "output_tokens": 5}
    return Message(
        role="assistant", parts=parts, time=time(second), model="claude-sonnet-4-5-20250929", usage=usage,
        key=f"a{second}",
    )  # fmt: skip


def call(name: str, id: str, **arguments: object) -> dict[str, object]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def results(second: int, *parts: object) -> Message:
    return Message(role="user", parts=tuple(parts), time=time(second), key=f"r{second}")


def png(width: int = 56, height: int = 28) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + b"\0\0\0" * width for _ in range(height))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def build(project: Path) -> None:
    """A store with three sessions: `demo`, with everything; `branched`, imported, with scopes; `hostile`."""
    project.mkdir(parents=True, exist_ok=True)
    with create(project / FOLDER) as store:
        store.now, store.now_iso = lambda: 1772370000, lambda: time(59)
        ingest(store, _branched(), name="branched", final=True)
        _hostile(store)
        _demo(store)


def _demo(store: Store) -> None:
    store.create_session(
        "demo", model="claude-sonnet-4-5-20250929", system="You are a careful engineer.",
        tools=[{"name": "Read", "description": "reads a file", "input_schema": {"type": "object"}}], time=time(0),
    )  # fmt: skip
    with StoredSession.open(store, "demo") as session:
        session.append(human("Why does tests/test_app.py fail?", 1))
        session.append(
            reply(
                2,
                {"type": "thinking", "thinking": "Look at the test first.", "signature": "c2ln"},
                {"type": "text", "text": "I will look at the test."},
                call("Read", "c1", file_path="tests/test_app.py"),
                call("Bash", "c2", command="pytest -q"),
            )
        )
        listing = "\n".join(f"{number}: assert add({number}, 1) == {number + 1}" for number in range(40))
        session.append(results(3, result_part(listing, "c1"), result_part("1 failed, 39 passed", "c2", error=True)))
        session.append(reply(4, call("Screenshot", "c3", path="out.png")))
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _base64(png())}}
        shot = part(
            {"type": "tool_result", "tool_use_id": "c3", "content": [{"type": "text", "text": "done"}, image]},
            "user",
            "tool",
        )
        session.append(results(5, shot))
        session.append(reply(6, {"type": "text", "text": "The sum is off by one in app.py."}))
        session.append(human("Fix it.\nAnd say what you did.", 7))
        session.append(reply(8, call("Edit", "c4", file_path="app.py", old="a + b + 1", new="a + b")))
        session.append(results(9, result_part("The file app.py has been updated.", "c4")))
        session.append(reply(10, {"type": "text", "text": "Fixed: `add` added one too many."}))

        row = session.ledger()["B6"]
        stub = stubs.stub(row, tokens=800, call="tests/test_app.py")
        gone = msgspec.structs.replace(row, state="archived", level=1, stub=stub, removed_by="policy:oldest")
        session.change(subject="archive B6", op="archive", actor="policy:oldest", rows=[gone])
        rows = [
            msgspec.structs.replace(session.ledger()[block], state="archived", level=1, group="G1", removed_by="agent")
            for block in ("B8", "B9")
        ]
        group = Group(
            id="G1",
            members=("B8", "B9"),
            stub="[archived G1@a1b2c3: 2 blocks, 40 tokens, level 1; the screenshot; recover G1]",
            label="the screenshot",
            removed_by="agent",
        )
        session.change(subject="archive B8-B9 as G1", op="archive", actor="agent", rows=rows, groups=[group])
        session.append(human("Anything else?", 11))


def _branched() -> list[Event]:
    """A recording with a rewind and a sub-agent, all with a question and an answer."""

    def said(message: Message, end: int, scope: str = "") -> Said:
        return Said(message=message, end=end, scope=scope)

    def answer(text: str, second: int) -> Message:
        return reply(second, {"type": "text", "text": text})

    return [
        Opened(
            format="claude-code",
            source="recording-1",
            time=time(20),
            branch="main",
            cwd="/src/app",
            title="Adding a login",
            missing=("the system prompt",),
        ),
        said(human("Add a login", 20), 10),
        said(answer("Which kind?", 21), 20),
        said(human("With a password", 22), 30),
        said(answer("Done with a password.", 23), 40),
        said(human("Look at the docs", 24), 50, "agent-1"),
        said(answer("The docs say nothing.", 25), 60, "agent-1"),
        Forked(after="a21", end=70, time=time(26)),
        said(human("With a key", 27), 80),
        said(answer("Done with a key.", 28), 90),
    ]


def _hostile(store: Store) -> None:
    store.create_session("hostile", model=f"model{HOSTILE}", system=f"be {HOSTILE}", time=time(40))
    with StoredSession.open(store, "hostile") as session:
        session.append(human(f"question {HOSTILE}", 41))
        tool = call_part(f"tool{HOSTILE}", "c1", b'{"command":"ls \\u001b[2J","file_path":"a\\u001b[31m"}')
        model = f"m{HOSTILE}".replace("\0", "")
        message = Message(role="assistant", parts=(tool,), time=time(42), model=model, key="a42")
        session.append(message)
        session.append(results(43, result_part(f"{HOSTILE}\nuser B1\n  lone \ud800 surrogate", "c1")))
        session.append(reply(44, {"type": "text", "text": f"answer {HOSTILE}"}))


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
