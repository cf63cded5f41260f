"""Makes the golden stores of the current format, n: `python -m tests.stores.make_golden`.

It writes four files beside itself: `format-<n>.bundle` (the branches), `format-<n>.journal` (acknowledged and not
committed), `format-<n>.json` (what both hold; the test knows how format 1 differs), and `sent-<n>.bundle`: a session
under a budget whose commits have the hashes of the prompts that it sent, with cuts, boards, thinking, groups, a mask,
words that look like ours, and a scope. They are made once. Every later version must read them, and render those prompts
byte for byte; run this again only while the format is in no release.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Ledger, Row, Source
from ctxvc.core.ledger.wire import call_part, part, result_part, text_part
from ctxvc.session.session import Session
from ctxvc.store import store as stores
from ctxvc.store.format import FORMAT, message, ref_of
from ctxvc.store.git.fast_import import Commit
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

HERE = Path(__file__).parent
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj <<>> endobj\n%%EOF\n"


def image(data: bytes, media: str = "image/png", kind: str = "image") -> dict[str, Any]:
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": media, "data": base64.b64encode(data).decode("ascii")},
    }


def user(*parts: Part, key: str = "") -> Message:
    return Message(role="user", parts=parts, key=key, time="2026-01-02T03:04:05Z")


def model(*blocks: dict[str, Any]) -> Message:
    return Message(
        role="assistant", parts=tuple(part(block, "assistant", "model") for block in blocks), reply="msg_1",
        time="2026-01-02T03:04:06.789+01:00", model="model-1", usage={"input_tokens": 1200, "output_tokens": 34},
    )  # fmt: skip


def conversation() -> list[Message]:
    """Every kind of block, and every ending that a body can have."""
    odd = bytes(range(256))
    both = [{"type": "text", "text": "two"}, image(PNG), image(PDF, "application/pdf", "document")]
    return [
        Message(role="system", parts=(text_part("Mind the gap.", "system", "client"),)),
        user(
            text_part("What is in the picture?\r\n", "user", "human"), part(image(PNG), "user", "human"), key="line:2"
        ),
        user(part(image(PDF, "application/pdf", "document"), "user", "human")),
        user(part({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}, "user", "human")),
        model(
            {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "text", "text": "I look. ☃ 𝄞", "citations": [{"type": "char_location", "cited_text": "gap"}]},
            {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"path": "a.txt", "z": 1, "a": [None, 0.5]}},
            {"type": "tool_use", "id": "call_2", "name": "Bash", "input": {}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "call_3", "name": "Bash", "input": {"command": "true"}},
            {"type": "tool_use", "id": "call_4", "name": "Shot", "input": {}},
        ),
        user(result_part("line one\nline two\n", "call_1"), result_part(odd, "call_2", error=True)),
        user(text_part("<system-reminder>be brief</system-reminder>", "user", "client")),
        user(part({"type": "tool_result", "tool_use_id": "call_4", "content": both}, "user", "tool")),
        user(text_part("Never mind the third. \ud83d alone", "user", "human")),  # interrupts call_3
        model(
            {"type": "text", "text": ""}, {"type": "server_tool_use", "id": "s1", "name": "web", "input": {"q": "x"}}
        ),
        user(
            Part(kind="note", role="user", origin="model", body=b"[-> fix] the gap is real"),
            Part(kind="dashboard", role="user", origin="client", body=b"| ID | tokens |\n| B1 | 4 |\n"),
            text_part("And again, with words for arguments.", "user", "human"),
        ),
        model({"type": "text", "text": "Once more."}),
        Message(role="assistant", parts=(call_part("Edit", "call_5", b"not json", caller="x"),), time="nonsense"),
        user(result_part("", "call_5")),
    ]


def long_tail() -> list[Message]:
    """Enough for a second segment of the ledger."""
    return [
        said
        for at in range(20)
        for said in (
            user(text_part(f"question {at}", "user", "human")),
            model({"type": "text", "text": f"answer {at}"}),
        )
    ]


def change(session: StoredSession, subject: str, op: str, *blocks: str, actor: str = "user", **fields: Any) -> None:
    rows = [msgspec.structs.replace(session.ledger()[block], **fields) for block in blocks]
    session.change(subject=subject, op=op, actor=actor, rows=rows, trailers={"Ctxvc-Reason": "golden"})


def every_state(session: StoredSession) -> None:
    """Each state that a row can have, and a group inside a group."""
    change(session, "pin B2", "pin", "B2", state="pinned")
    change(session, "mask B13", "mask", "B13", state="masked", stub="line one [...] (B13)")
    change(session, "prune B6", "prune", "B6", state="pruned", removed_by="policy:tool-prune")
    change(session, "delete B4", "delete", "B4", state="deleted", stub="[deleted: wrong file]", removed_by="user")
    change(session, "block B14", "block", "B14", state="blocked", stub="[B14@40aff2 blocked]", removed_by="guard")
    change(session, "recover B14", "recover", "B14", actor="agent", reads=2)
    inner = Group(
        id="G1", members=("B15", "B16"), stub="[G1: reminder and pictures]", label="pictures", removed_by="user"
    )
    left = {"state": "archived", "level": 1, "group": "G1", "removed_by": "user"}
    rows = [msgspec.structs.replace(session.ledger()[block], **left) for block in inner.members]
    session.change(subject="archive B15-B16 as G1", op="archive", actor="planner", rows=rows, groups=[inner])
    outer = Group(
        id="G2", members=("G1", "B17"), level=2, stub="[G2]", summary=("B19",), before="B20", removed_by="host"
    )
    rows = [msgspec.structs.replace(session.ledger()["B17"], state="archived", level=1, group="G2", removed_by="host")]
    nested = msgspec.structs.replace(inner, group="G2")
    session.change(subject="compaction: G2", op="compact", actor="host", rows=rows, groups=[nested, outer])
    session.change(
        subject="budget 32000",
        op="budget",
        actor="user",
        meta={"budget": 32000, "cuts": (1, 3), "calibration": (1200, 15), "tokenizer": "o200k_base"},
    )


def side_scope(session: StoredSession) -> None:
    """A scope that began from main, imported from a recording, with one block of its own."""
    with session.bulk() as (writer, counters):
        before = session.ledger()
        row = Row(
            id=f"B{counters.block + 1}", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=9,
            sha256=hashlib.sha256(b"from afar").hexdigest(), label="from afar",
        )  # fmt: skip
        source = Source(format="claude-code", id="a-b-c", offset=4711, units=3, finals=(99,), title="t", missing=("x",))
        meta = msgspec.structs.replace(
            before.meta, scope="side", parent="main", source=source,
            counters=msgspec.structs.replace(before.meta.counters, block=row.number, msg=1, step=1, turn=1),
        )  # fmt: skip
        writer.commit(
            Commit(
                ref=ref_of("golden", "side"),
                before=before,
                after=Ledger(meta=meta).with_rows([row]),
                bodies=((row.id, "", b"from afar"),),
                message=message("scope side", {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host"}),
                actor="host",
                time=1_767_323_045,
                now=session.store.now(),
                parent=session.tip(),
            )
        )


def build(path: Path) -> Store:
    """The golden store, made by today's code at a fixed time."""
    store = stores.create(path)
    store.now = lambda: 1_767_323_000  # type: ignore[method-assign]
    store.now_iso = lambda: "2026-01-02T03:03:20.000Z"  # type: ignore[method-assign]
    store.new_id = lambda: "0123456789abcdef"  # type: ignore[method-assign]
    store.create_session("golden", model="model-1", system="You are golden.", tools=[{"name": "Read"}])
    with StoredSession.open(store, "golden") as session:
        for said in conversation():
            session.append(said)
        session.append(*long_tail())
        session.flush()
        every_state(session)
        side_scope(session)
        session.append(user(text_part("the last question", "user", "human")))
        session.append(model({"type": "tool_use", "id": "open", "name": "Bash", "input": {"command": "sleep 9"}}))
        change(session, "pin B20", "pin", "B20", state="pinned")
    return store


def described(store: Store) -> dict[str, Any]:
    """All that the golden store holds, as plain JSON."""
    scopes = {}
    for name in ("main", "side"):
        with StoredSession.open(store, "golden", name) as session:
            ledger = session.ledger()
            scopes[name] = {
                "meta": msgspec.to_builtins(ledger.meta),
                "rows": [msgspec.to_builtins(row) for row in ledger.rows()],
                "groups": [msgspec.to_builtins(group) for group in ledger.groups.values()],
                "bodies": {row.id: _text(session.body(row)) for row in ledger.rows()},
                "files": {
                    f"{row.id}-{name}": _text(session.file(row, name)) for row in ledger.rows() for name in row.files
                },
                "waiting": session.waiting(),
            }
    return scopes


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def step(session: Session, number: int, text: str) -> None:
    """A call, its result, and the prompt behind it."""
    session.request()
    thinking = {"type": "thinking", "thinking": f"look at {number}", "signature": "c2ln"}
    call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"path": f"src/{number}.py"}}
    session.append({"role": "assistant", "content": [thinking, call], "stop_reason": "tool_use"})
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
    session.append({"role": "user", "content": [result]})


def end(session: Session, text: str) -> None:
    session.request()
    session.append({"role": "assistant", "content": text, "stop_reason": "end_turn"})


def send(path: Path) -> None:
    """The golden store of sent prompts, made by today's code."""
    terms: dict[str, Any] = {"model": "claude-opus-4-5", "budget": 16_000, "system": "You are golden.", "tools": []}
    with Session.open(path, "sent", policy="default", **terms) as session:
        words = "Mend the paths. [archived B2@123456] and [B2 · 2.3k] are no words of ours."
        session.append({"role": "user", "content": words})
        for number in range(1, 13):
            line = f"def path_{number}():\n    return [B{number} · 9.9k]\n"
            step(session, number, line + f"line {number} of it\n" * 90)
            if number == 5:
                session.archive("B3-B6", "the first two paths")
            if number == 7:
                session.mask("B12")
            if number == 9:
                session.restore("B6")
        end(session, "Twelve are mended.")
        session.note("paths 1 to 12 are mended")
        session.append({"role": "user", "content": "Now the tests."})
        for number in range(20, 24):
            step(session, number, f"assert path_{number}\n" * 400)
        end(session, "They pass.")
        session.open_scope("fix", "one is left")
        session.append({"role": "user", "content": "Go on."})
        step(session, 30, "[dashboard of nobody]\n" * 60)
        end(session, "Done.")


def bundled(path: Path, name: str) -> None:
    command = ["git", f"--git-dir={path}", "bundle", "create", "--quiet", str(HERE / f"{name}-{FORMAT}.bundle")]
    subprocess.run([*command, "--branches", "HEAD"], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with build(Path(folder) / ".ctxvc") as store:
            bundled(store.path, "format")
            (HERE / f"format-{FORMAT}.journal").write_bytes(store.journal_path("golden").read_bytes())
            text = json.dumps(described(store), indent=1, ensure_ascii=True)
            (HERE / f"format-{FORMAT}.json").write_text(text + "\n")
        send(Path(folder) / "sent")
        bundled(Path(folder) / "sent", "sent")


if __name__ == "__main__":
    main()
