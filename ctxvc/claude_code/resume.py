"""A revision as a session file that Claude Code continues with `--resume`.

As far as the revision has the same prompt as the transcript that it was recorded from, that transcript's own lines are
used, with the host's attachments. So the provider still accepts the thinking in them, even if a cut removed it: the
exact text before it, to which it is bound, is there. Later lines are rewritten as the model would see them, without
thinking.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.claude_code import transcript
from ctxvc.core import display
from ctxvc.core.hosts import tools
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import Piece, outline, pieces, sendable
from ctxvc.core.prompt.sanitise import OwnText, valid
from ctxvc.core.secrets.redact import Redactor
from ctxvc.errors import BadInput, Phrase, Refused
from ctxvc.importers.claude_code import marked
from ctxvc.store import timestamp
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Reply, Snapshot
from ctxvc.store.store import Store

#: The release whose form is written unless the revision is from another one.
_VERSION = "2.1.329"
_NAMESPACE = uuid.UUID("6f0f2b52-6a0c-5d0c-9f0e-6c1d0a3c8f11")
#: Types of lines about the recorded file itself: titles, the newest prompt and leaf, saved states of edited files, and
#: costs.
_LEFT_OUT = frozenset({"ai-title", "cost-state", "custom-title", "file-history-snapshot", "last-prompt", "summary"})
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\S*")
_LONGEST_TITLE = 120
#: The latest time that is written, in seconds, since a recording may claim any.
_LATEST = 250_000_000_000

_Fields = dict[str, Any]
_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Resumable(msgspec.Struct, frozen=True, kw_only=True):
    """A session file. `session` is its id, which must also be its name.

    `kept` is the number of the recorded transcript's lines in it, `written` of new ones. `left_out` names the blocks of
    thinking that the file lacks, `taken_over` the calls of other agents' tools that became calls of the host's.
    """

    session: str
    data: bytes
    kept: int
    written: int
    left_out: tuple[str, ...]
    taken_over: tuple[str, ...] = ()

    @property
    def thinking(self) -> int:
        """The number of blocks of thinking that were left out."""
        return len(self.left_out)


def resumable(
    store: Store, snapshot: Snapshot, folder: Path, *, recorded: Path | None = None, copy: int = 0
) -> Resumable:
    """The session file of a revision, for `claude --resume` in `folder`; the same revision gives the same bytes.

    `recorded` is the transcript that it was imported from, if that still exists: its lines are kept as far as the
    prompt is the same, with marks for secrets; none after a purge, since they may have the purged text. `copy`
    distinguishes several files of one revision. Raises: BadInput if `recorded` cannot be read, Refused if there is no
    message yet, or if importing the file would not give the same messages.
    """
    ledger = snapshot.ledger
    prompt_pieces = pieces(outline(_uncut(ledger)), snapshot.bodies)
    expected, safe = valid(prompt_pieces), sendable(prompt_pieces, ledger.meta.render)
    thinking = {slot.row.id for slot in outline(ledger) if slot.kind == "thinking"}
    if not expected:
        raise Refused("there are no messages yet at this revision", hint=Phrase("other-revisions"))
    history = list(revision.history(store, snapshot.commit))
    rewritten = set(purge_apply.commits(store).values())
    if any(entry.commit in rewritten for entry in history):
        recorded = None
    redactor = store.redaction.of(snapshot.session)
    calls, start = revision.replies(store, history), _at(history[-1].time)
    reason = ""
    for count, end in dict.fromkeys((_common_start(ledger, recorded, expected), (0, 0))):
        session = str(uuid.uuid5(_NAMESPACE, _name(snapshot, end, copy)))
        envelope = _envelope(snapshot, session, folder)
        lines = list(_recorded_lines(recorded, end, session, folder, redactor)) if recorded and end else []
        later = [piece for piece in safe[count:] if piece.kind != "thinking"]
        appended = _by_call([_as_line(piece) for piece in later])
        new_lines = [*_Writer(envelope, ledger, calls, start, lines).lines(appended), _title(snapshot, session)]
        exported = Resumable(
            session=session,
            data=marked(
                [wire.compact(line) + b"\n" for line in (*lines, *new_lines)],
                revision.settled(store, snapshot),
            ),
            kept=len(lines),
            written=len(new_lines),
            left_out=tuple(piece.block for piece in safe[count:] if piece.block in thinking),
            taken_over=tuple(piece.block for piece in later if _as_line(piece).body != piece.body),
        )
        reason = _difference(exported, [*expected[:count], *appended])
        if not reason:
            return exported
    raise Refused(f"this revision cannot be written for Claude Code: {reason}", hint=Phrase("export-anthropic"))


def _uncut(ledger: Ledger) -> Ledger:
    """The ledger with the thinking that cuts removed from the prompt, but without the dashboards that they removed."""
    dashboards = [row for row in ledger.rows() if row.kind == "dashboard" and is_cut(row, ledger.meta)]
    pruned = (msgspec.structs.replace(row, state="pruned") for row in dashboards)
    return ledger.with_rows(pruned).with_meta(msgspec.structs.replace(ledger.meta, cuts=()))


def _as_line(piece: Piece) -> Piece:
    """The piece to write: a system message becomes the user's, since only the host can write one; a call of another
    agent's tool becomes a call of the host's equal one, if there is one."""
    if piece.role == "system":
        return msgspec.structs.replace(piece, role="user", kind="user")
    return tools.of_agent(piece, "claude-code")


def _by_call(content: list[Piece]) -> list[Piece]:
    """`content` with the results of parallel calls in the order of the calls, which is that of written lines."""
    order = {piece.call: at for at, piece in enumerate(content) if piece.kind == "tool_use"}
    ordered: list[Piece] = []
    for is_result, run in groupby(content, _is_result):
        together = list(run)
        ordered += sorted(together, key=lambda piece: order.get(piece.call, -1)) if is_result else together
    return ordered


def _name(snapshot: Snapshot, end: int, copy: int) -> str:
    last = snapshot.ledger.last()
    newest = f"{last.id}@{last.sha256}" if last else ""
    return "\0".join(
        (snapshot.session, snapshot.scope, snapshot.commit, newest, str(snapshot.waiting), str(end), str(copy))
    )


def _common_start(ledger: Ledger, recorded: Path | None, expected: list[Piece]) -> tuple[int, int]:
    """The number of leading pieces that the recorded transcript has too, and the byte at which they end in it."""
    source = ledger.meta.source
    if recorded is None or source is None:
        return 0, 0
    return transcript.common(transcript.prompt(transcript.Part(recorded, source.offset)), expected)


def _difference(exported: Resumable, expected: list[Piece]) -> str:
    """A description of the first message that importing the file would change; empty if there is none."""
    reread = transcript.InMemory(Path(f"{exported.session}.jsonl"), exported.data)
    try:
        actual = [placed.piece for placed in transcript.prompt(reread)]
    except BadInput as error:
        return str(error)
    ours, theirs = _messages(expected), _messages(actual)
    if ours == theirs:
        return ""
    pairs = zip(ours, theirs, strict=False)
    at = next((at for at, (first, second) in enumerate(pairs) if first != second), min(len(ours), len(theirs)))
    return f"message {at + 1} of {len(ours)} would come back changed"


def _messages(content: list[Piece]) -> list[tuple[str, list[dict[str, Any]]]]:
    sent = formats.anthropic(formats.Prompt(pieces=content))["messages"]
    return [(message["role"], transcript.trimmed(message["content"])) for message in sent]


# --- the host's own lines


def _recorded_lines(
    recorded: Path, end: int, session: str, folder: Path, redactor: Redactor | None
) -> Iterator[dict[str, msgspec.Raw]]:
    """The transcript's lines up to the byte `end`, as lines of another session, without sub-agents' turns."""
    for line in transcript.Part(recorded, end).lines():
        fields = _fields(redactor.body(line.data, "json") if redactor else line.data)
        if fields is None or str(_value(fields, "type")) in _LEFT_OUT or _value(fields, "isSidechain") is True:
            continue
        cwd = _value(fields, "cwd")
        if isinstance(cwd, str) and not Path(cwd).is_relative_to(folder):
            fields["cwd"] = _raw(str(folder))
        yield {**fields, "sessionId": _raw(session)}


def _fields(line: bytes) -> dict[str, msgspec.Raw] | None:
    """The fields of a line, each in its original bytes; None if it is not a JSON object."""
    try:
        return _FIELDS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = wire.parsed(line, dict)
        return None if value is None else {name: _raw(field) for name, field in value.items()}


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    """A field's value, None if it is missing."""
    return wire.parse(bytes(fields[name])) if name in fields else None


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(wire.compact(value))


# --- lines of ours


def _envelope(snapshot: Snapshot, session: str, folder: Path) -> _Fields:
    """The fields of the session that every line has."""
    source = snapshot.ledger.meta.source
    release = _RELEASE.search(source.agent) if source and source.format == "claude-code" else None
    return {
        "isSidechain": False,
        "userType": "external",
        "cwd": str(folder),
        "sessionId": session,
        "version": release[0] if release else _VERSION,
        "gitBranch": source.branch if source else "",
    }


def _title(snapshot: Snapshot, session: str) -> _Fields:
    """The line with the title by which a person finds the session in the host's list."""
    meta = snapshot.ledger.meta
    title = (meta.source.title if meta.source else "") or snapshot.session
    text = display.one_line(f"{title} ({snapshot.scope}, step {meta.counters.step})", _LONGEST_TITLE)
    return {"type": "custom-title", "customTitle": text, "sessionId": session}


class _Writer:
    """Writes pieces of a prompt as lines after existing ones, each a child of the one before."""

    def __init__(
        self,
        envelope: _Fields,
        ledger: Ledger,
        calls: Mapping[int, Reply],
        start: datetime,
        before: Iterable[Mapping[str, msgspec.Raw]],
    ) -> None:
        self._envelope = envelope
        self._ledger = ledger
        self._calls = calls
        # The host trusts the provider's counts, so they are written only if nothing that was counted has left. Blocks
        # after the newest reply, such as an undone note, were not counted.
        newest = next((row.number for row in ledger.backwards() if row.role == "assistant"), 0)
        self._counted = all(
            row.state in ("visible", "pinned") or row.removed_by == "host" or row.number > newest
            for row in ledger.rows()
        )
        self._parent: str | None = None
        self._time = start
        self._call_lines: dict[str, str] = {}  # call → the line that makes it
        for fields in before:
            if isinstance(line := _value(fields, "uuid"), str):
                self._parent = line
            self._time = max(self._time, _parsed_time(_value(fields, "timestamp")))

    def lines(self, content: Iterable[Piece]) -> Iterator[_Fields]:
        """A line for each content block of the model, each result, and each other message."""
        sent = ((piece.role, piece) for piece in content if formats.content(piece))
        for role, group in formats.by_message(sent, lambda piece: not _is_result(piece)):
            if role == "assistant":
                yield from self._reply(group)
                continue
            for (_, human, result), members in groupby(group, self._kind):
                together = list(members)
                if result:
                    yield from map(self._result, together)
                else:
                    yield self._user_message(together, human=human)

    def _kind(self, piece: Piece) -> tuple[int, bool, bool]:
        row = None if isinstance(piece, OwnText) or piece.block.startswith("G") else self._ledger.get(piece.block)
        return piece.message, row is not None and row.origin == "human", _is_result(piece)

    def _reply(self, group: list[Piece]) -> Iterator[_Fields]:
        blocks = [(piece, block) for piece in group for block in formats.content(piece)]
        call = self._call(group[-1])
        reply = {
            "id": f"msg_{_digest(self._envelope['sessionId'], self._parent, group[0].block)[:24]}",
            "type": "message",
            "role": "assistant",
            "model": (call and call.model) or self._ledger.meta.model or "unknown",
        }
        asks = any(block.get("type") == "tool_use" for _, block in blocks)
        usage = call.usage if call and self._counted else {}
        ending = {
            "stop_reason": "tool_use" if asks else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, **usage},
        }
        for piece, block in blocks:
            message = {**reply, "content": [block], **ending}
            line = self._line(piece, "assistant", message, requestId=f"req_{reply['id'][4:]}")
            if block.get("type") == "tool_use":
                self._call_lines[block["id"]] = line["uuid"]
            yield line

    def _result(self, piece: Piece) -> _Fields:
        (block,) = formats.content(piece)
        # The host has a tool's raw output beside the text for the model. Only the latter is recorded.
        failed = {"toolUseResult": f"Error: {display.decode(piece.body)}"} if piece.error else {}
        call_line = self._call_lines.get(piece.call)
        source = {"sourceToolAssistantUUID": call_line} if call_line else {}
        return self._line(piece, "user", {"role": "user", "content": [block]}, **failed, **source)

    def _user_message(self, together: list[Piece], *, human: bool) -> _Fields:
        blocks = [block for piece in together for block in formats.content(piece)]
        marks: _Fields = {"origin": {"kind": "human"}} if human else {"isMeta": True}
        return self._line(together[0], "user", {"role": "user", "content": blocks}, **marks)

    def _line(self, piece: Piece, kind: str, message: _Fields, **more: Any) -> _Fields:
        call = self._call(piece)
        recorded = _at(call.time) if call else self._time
        # The host continues from the newest line, so no two may have the same time.
        self._time = max(self._time + timedelta(milliseconds=1), recorded)
        line = str(uuid.uuid5(uuid.UUID(self._envelope["sessionId"]), f"{self._parent}/{piece.block}"))
        fields = {
            "parentUuid": self._parent,
            **self._envelope,
            "type": kind,
            "message": message,
            **more,
            "uuid": line,
            "timestamp": timestamp.text(self._time, "milliseconds"),
        }
        self._parent = line
        return fields

    def _call(self, piece: Piece) -> Reply | None:
        row = self._ledger.get(piece.block) if piece.block.startswith("B") else None
        return self._calls.get(row.step) if row else None


def _is_result(piece: Piece) -> bool:
    return piece.kind == "tool_result"


def _parsed_time(timestamp: object) -> datetime:
    """The time of a line's timestamp; 1970 if it is not one."""
    try:
        time = datetime.fromisoformat(str(timestamp).replace("Z", "+00:00"))
    except ValueError:
        return _at(0)
    return _at((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0), _LATEST), timezone.utc)


def _digest(*values: object) -> str:
    return hashlib.sha256("\0".join(map(str, values)).encode()).hexdigest()
