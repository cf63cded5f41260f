"""Bytes in a recording that are no UTF-8 cost themselves, and not the line or the file that they stand in."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from ctxvc.core.recording.events import Warned
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.making.events import messages, parts, read

DATA = Path(__file__).parents[1] / "data"
#: Recordings of a file each: not the database's prompts, the pieces of a folder, or what a sub-agent is called.
FILES = sorted(
    path
    for path in DATA.rglob("*.json*")
    if path.parent != DATA and not {"openhands", "opencode"} & {*path.parts} and not path.name.endswith(".meta.json")
)
#: The first letter of what somebody said.
_WORDS = re.compile(rb'"(?:text|content|thinking|output|message)\\?": ?\\?"[A-Za-z ]{1,3}(?=[A-Za-z])')


def bodies(path: Path) -> list[tuple[str, str, bytes]]:
    return [(part.kind, part.call, part.body) for part in parts(read(path))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_one_byte_that_is_no_utf_8_costs_one_character(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    whole = bodies(path)
    places = [found.end() for found in _WORDS.finditer(data)]
    assert places
    changed = 0
    for at in places[:: max(1, len(places) // 6)]:
        spoilt = tmp_path / path.name
        spoilt.write_bytes(data[:at] + b"\xe9" + data[at + 1 :])

        now = bodies(spoilt)

        if path.name == "log.jsonl" or path.parent.name in ("otel-genai", "langsmith", "langfuse"):
            # Each request repeats what was said before it: one copy of a message differs now, and so is another.
            assert {kind for kind, _, _ in now} == {kind for kind, _, _ in whole} and len(now) >= len(whole)
            changed += any(b"\xed\xb3\xa9" in body or b"\\udce9" in body for _, _, body in now)
            continue
        if path.parent.name == "copilot-cli" and len(now) != len(whole):
            # A person's words are told from the host's where both texts have them: now they are one part.
            before, after = (b"".join(body for kind, _, body in parts if kind == "user") for parts in (whole, now))
            assert after.replace("\udce9".encode("utf-8", "surrogatepass"), data[at : at + 1], 1) == before
            continue
        assert [(kind, call) for kind, call, _ in now] == [(kind, call) for kind, call, _ in whole]
        differing = [(old[2], new[2]) for old, new in zip(whole, now, strict=True) if old != new]
        letter = data[at : at + 1]
        for old, new in differing:
            escaped = b"\\udce9" if b"\\udce9" in new else "\udce9".encode("utf-8", "surrogatepass")
            assert new.replace(escaped, letter, 1) == old
        changed += len(differing)
    assert changed, "the bytes were none of what is recorded"


@pytest.mark.parametrize("packed", [False, True])
def test_such_bytes_are_told_with_their_lines(tmp_path: Path, packed: bool) -> None:
    data = (DATA / "pi" / "v3.jsonl").read_bytes().replace(b"Name the bird", b"N\xc3me th\xff bird")
    path = tmp_path / ("v3.jsonl.gz" if packed else "v3.jsonl")
    path.write_bytes(gzip.compress(data) if packed else data)

    with create(tmp_path / ".ctxvc") as store:
        (outcome,) = import_paths(store, [path], final=True)
        assert outcome.error is None
        assert [(warned.line, warned.text[:26]) for warned in outcome.warnings] == [(3, "2 bytes are not UTF-8 and ")]
        assert _first(store, outcome.session) == "N\udcc3me th\udcff bird.".encode("utf-8", "surrogatepass")


def test_a_sound_recording_is_read_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"a": "caf\xe9 \\udce9 😀"}\n'.encode())
    recording = Recording(path)

    assert [line.data for line in recording.lines()] == [path.read_bytes().strip()]
    assert recording.misread == {}


def _first(store: Store, session: str) -> bytes:
    with StoredSession.open(store, session) as opened:
        return opened.body(next(opened.ledger().rows()))


# --- two messages under one id


def test_two_messages_of_claude_code_with_one_uuid_are_two(tmp_path: Path) -> None:
    def line(text: str, type: str, parent: str | None) -> str:
        content = text if type == "user" else [{"type": "text", "text": text}]
        message = {"role": type, "content": content, **({"id": text} if type == "assistant" else {})}
        known = {"parentUuid": parent, "isSidechain": False, "sessionId": "s", "type": type, "uuid": "u1"}
        return json.dumps({**known, "message": message})

    path = tmp_path / "s.jsonl"
    lines = [
        line("one", "user", None),
        line("two", "assistant", "u1"),
        line("one", "user", None),
        line("3", "user", "u1"),
    ]
    path.write_text("\n".join(lines) + "\n")

    said = messages(read(path))

    assert [message.parts[0].body for message in said] == [b"one", b"two", b"3"], "the same line twice is one"
    assert len({message.key for message in said}) == 3


@pytest.mark.parametrize("form", ["anthropic-messages", "openai-chat"])
def test_two_responses_with_one_id_are_two(tmp_path: Path, form: str) -> None:
    """Some servers give every response the same."""

    def response(words: str) -> dict[str, object]:
        if form == "openai-chat":
            return {"id": "x", "choices": [{"message": {"role": "assistant", "content": words}}]}
        return {"id": "x", "type": "message", "role": "assistant", "content": [{"type": "text", "text": words}]}

    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(response(text)) + "\n" for text in ("one", "two", "two")))

    with create(tmp_path / ".ctxvc") as store:
        (outcome,) = import_paths(store, [path], format=form, final=True)
        assert outcome.error is None, outcome.error
        with StoredSession.open(store, outcome.session) as session:
            rows = list(session.ledger().rows())
            assert [session.body(row) for row in rows] == [b"one", b"two", b"two"]
            assert len({row.msg for row in rows}) == 3
    assert not [event for event in read(path) if isinstance(event, Warned)]
