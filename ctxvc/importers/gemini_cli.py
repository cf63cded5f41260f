"""Sessions of Gemini CLI (`~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl`) → events.

A line is the session's header, a message, or a change: `$set` replaces fields of the session, `$rewindTo` removes a
message and all that follow. A message is written again when its tools are done, with its calls and their results. After
a resume or a compaction, `$set` lists all messages again, some under other ids; only the next message shows which of
these lists was sent. Source: `ChatRecordingService` of @google/gemini-cli 0.61.0.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.recording.events import Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.forms import gemini
from ctxvc.forms.values import text_in
from ctxvc.importers import gemini_parts
from ctxvc.importers.file import Line, Recording, json_lines
from ctxvc.importers.protocol import LINES, Importer, State, WarnedOnce, file_state, of_project, single

FORMAT = "gemini-cli"

_MISSING = ("the system prompt", "the tool definitions")
#: A reply's token counts, in the order of `gemini.usage`.
_COUNTS = ("input", "cached", "output", "thoughts")
#: Messages that only the person sees; `info` is sent if it has a picture.
_SHOWN_ONLY = frozenset({"info", "error", "warning"})
#: A line with a message of its own: results are also in the line of their call.
_MESSAGE = re.compile(
    rb'(?m)^\{"id":"[^"]*","timestamp":"[^"]*","type":"(?:gemini"|user","content":(?!\[\{"functionR))'
)
#: A message: a session that was only started or resumed has just lists and fields.
_ANY_MESSAGE = re.compile(rb'(?m)^\{"id":"')
#: The time of the last write, which half of all lines have.
_CLOCK = re.compile(rb'\{"\$set":\{"lastUpdated":"[^"\\]*"\}\}')
_HEADER = re.compile(rb'\{"sessionId":"[^"]*","projectHash":"[0-9a-f]{64}"')
_PROJECT_HASH = re.compile(rb'"projectHash":"([0-9a-f]{64})"')
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_HEAD = 65_536
_LONGEST_PATH = 4096


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a session's, by its header."""
    return bool(_HEADER.match(head.lstrip()))


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - as every importer has it
    """The folder with a folder for each project."""
    return [Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"]


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The sessions of `project` that have a message; those of sub-agents are in folders below."""
    for path in of_project(sorted(folder.glob("*/chats/session-*.jsonl")), project, _is_conversation):
        root = project_root(path.parent.parent)
        digest = _PROJECT_HASH.search(Recording(path).head())
        if (root and Path(root).is_relative_to(project)) or (digest and digest[1] == project_hash(project).encode()):
            yield path


def _is_conversation(head: bytes, _: str) -> bool:
    return sniff(head) and (len(head) >= _HEAD or bool(_ANY_MESSAGE.search(head)))


def project_hash(project: Path) -> str:
    """Gemini CLI's checksum of a project's path."""
    return hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()


def project_root(folder: Path) -> str:
    """The path of the project that a folder of Gemini CLI is for; empty if the folder does not name it."""
    try:
        with (folder / ".project_root").open("rb") as file:
            return file.read(_LONGEST_PATH).decode("utf-8", "surrogateescape").strip()
    except OSError:
        return ""


def beside(path: Path) -> list[Path]:
    """The sub-agents of the session at `path`, in the folder named after its id beside it."""
    if not path.name.startswith("session-"):
        return []
    header = wire.parsed(Recording(path).first_line(), dict) or {}
    session = text_in(header, "sessionId")
    return sorted((path.parent / session).glob("*.jsonl")) if _SESSION_ID.fullmatch(session) else []


def state(path: Path, positions: Mapping[str, int]) -> State:
    """`Importer.state` of the session at `path`."""
    recording = Recording(path)
    header = wire.parsed(recording.first_line(), dict) or {}
    return file_state(path, positions, _source(recording.stem, text_in(header, "sessionId")), _MESSAGE)


def events(recording: Recording) -> Iterator[Event]:
    """The session's events, in file order. Raises: BadInput if the file cannot be read."""
    root = os.fsencode(project_root(recording.path.parent.parent)).decode("utf-8", "replace")
    session = _Session(recording.stem, root)
    for line, record in json_lines(line for line in recording.lines() if not _CLOCK.fullmatch(line.data)):
        yield from session.events(record if isinstance(record, dict) else {}, line)


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=LINES,
    grows=True,
    folders=folders,
    recordings=recordings,
    beside=beside,
    state=state,
)


class _Session:
    """The state after the lines so far. A record is a message of the file, named by its first id."""

    def __init__(self, stem: str, root: str) -> None:
        self._stem = stem
        self._root = root
        self._scope = ""  # a sub-agent's own
        self._opened = False
        self._described = False
        self._model = ""
        self._prompt: list[str] = []  # the records in the prompt, in order
        self._keys: dict[str, list[str]] = {}  # record → the keys of the messages that were made of it
        self._texts: dict[str, str] = {}  # record → its role and text
        self._alias: dict[str, str] = {}  # another id of a record → the record
        self._calls: dict[str, str] = {}  # call → the record that made it
        self._tools: dict[str, str] = {}  # call → tool
        self._taken: set[str] = set()  # every key so far
        self._results: dict[str, bytes] = {}  # call → the digest of its newest result
        self._list: list[dict[str, Any]] | None = None  # the messages that `$set` had, until one follows
        self._rewound = False  # whether messages left by `$rewindTo` and nothing followed yet
        self._warning = WarnedOnce()

    def events(self, record: dict[str, Any], line: Line) -> Iterator[Event]:
        is_header = isinstance(record.get("sessionId"), str)
        if not self._opened or (is_header and not self._described):
            yield self._open(record if is_header else {})
        if is_header:
            return
        match record:
            case {"$set": dict(fields)}:
                if (title := text_in(fields, "summary")) and not self._scope:
                    yield Opened(format=FORMAT, title=title, grows=True)
                if isinstance(messages := fields.get("messages"), list):
                    self._list = [message for message in messages if _is_message(message)]
            case {"$rewindTo": str(first)}:
                yield from self._settle(line)
                self._rewind(self._alias.get(first, first))
            case {"id": str()} if _is_message(record):
                yield from self._settle(line)
                yield from self._spoken(record, line)
            case _:
                yield Warned(text="the line is not a record of Gemini CLI", line=line.number)

    def _open(self, header: dict[str, Any]) -> Opened:
        self._opened, self._described = True, bool(header)
        session = text_in(header, "sessionId")
        if text_in(header, "kind") == "subagent":
            self._scope = name_rules.agent_scope(session[:8])
        return Opened(
            format=FORMAT,
            source=_source(self._stem, session) if header else "",
            name="gemini-" + name_rules.slug((session or self._stem)[:8]),
            cwd=self._root,
            time=text_in(header, "startTime"),
            agent="Gemini CLI",
            missing=_MISSING,
            grows=True,
        )

    # -- messages ------------------------------------------------------------------------------------------------------

    def _spoken(self, record: dict[str, Any], line: Line) -> Iterator[Event]:
        """The events of a line with a message, which may repeat one, with its calls now."""
        kind, name = record["type"], self._alias.get(record["id"], record["id"])
        if kind in _SHOWN_ONLY and not gemini_parts.has_media(record.get("content")):
            return
        if kind not in ("user", "gemini", *_SHOWN_ONLY):
            label = display.one_line(kind, 40)
            yield from self._warning(f"messages of an unknown type are skipped: {label!r}", line)
            return
        if (model := text_in(record, "model")) and kind == "gemini" and model != self._model:
            self._model = model
            yield Opened(format=FORMAT, model=model, grows=True)
        results = gemini.result_parts(record.get("content"))
        if not self._scope:
            yield from self._changed_results(results, line.end, text_in(record, "timestamp"))
        for message in self._messages(record, name, results):
            yield Said(message=message, end=line.end, scope=self._scope)

    def _messages(self, record: dict[str, Any], name: str, results: Sequence[Part]) -> list[Message]:
        """The messages that a record adds: for a reply its texts, its calls and their results.

        `results` are those in its content.
        """
        is_new, time = name not in self._keys, text_in(record, "timestamp")
        if record["type"] == "gemini":
            calls = tuple(part for part in gemini_parts.calls(record) if part.call not in self._calls)
            for part in calls:
                self._calls[part.call], self._tools[part.call] = name, part.tool
            model, used = text_in(record, "model"), gemini.usage(record.get("tokens"), _COUNTS)
            messages = [
                Message(role="assistant", parts=parts, reply=name, time=time, model=model, usage=used)
                for parts in (gemini_parts.reply(record) if is_new else (), calls)
                if parts
            ]
            if answers := self._new_results(gemini.result_parts(gemini_parts.recorded_results(record))):
                messages.append(Message(role="user", parts=answers, time=time))
        else:
            parts = gemini_parts.prompt(record, by_host=bool(self._scope)) if is_new else ()
            both = (self._new_results(results), parts)
            messages = [Message(role="user", parts=parts, time=time) for parts in both if parts]
        if messages and is_new:
            self._keys[name], self._texts[name] = [], _likeness(record) or record["type"]
            self._prompt.append(name)
        return [self._keyed(name, message) for message in messages]

    def _keyed(self, name: str, message: Message) -> Message:
        """`message` with a unique key: the record's id, numbered from the second on."""
        key, number = name, 1
        while key in self._taken:
            number += 1
            key = f"{name}#{number}"
        self._taken.add(key)
        self._keys[name].append(key)
        return msgspec.structs.replace(message, key=key)

    def _new_results(self, results: Sequence[Part]) -> tuple[Part, ...]:
        """The results of calls that had none so far; after a resume the file repeats each."""
        parts: dict[str, Part] = {}
        for part in results:
            if part.call not in self._results:
                parts[part.call] = msgspec.structs.replace(part, tool=self._tools.get(part.call, part.tool))
                self._results[part.call] = hashlib.sha256(part.body).digest()
        return tuple(parts.values())

    def _changed_results(self, results: Sequence[Part], end: int, time: str) -> Iterator[Event]:
        """The edits of results that changed: Gemini CLI shortens old ones."""
        for part in results:
            digest = hashlib.sha256(part.body).digest()
            if self._results.get(part.call, digest) != digest:
                self._results[part.call] = digest
                yield Edited(end=end, call=part.call, parts=(part,), time=time)

    # -- what changes the prompt ---------------------------------------------------------------------------------------

    def _rewind(self, first: str) -> None:
        """Removes a message and all after it from the prompt; the whole prompt if there is no such message."""
        count = self._prompt.index(first) if first in self._prompt else 0
        self._rewound = self._rewound or count < len(self._prompt)
        self._prompt = self._prompt[:count]

    def _settle(self, line: Line) -> Iterator[Event]:
        """The events that bring the prompt in line with the newest list, now that the message in `line` follows it."""
        records, self._list = self._list, None
        if records is None:
            yield from self._forked(line)
            return
        here = self._compared(records)
        if not here.new and here.current == self._prompt[: len(here.current)]:
            # A request that failed or was stopped by the person takes its message with it.
            self._rewound = self._rewound or here.current != self._prompt
            self._prompt = here.current
            yield from self._forked(line)
        else:
            yield from self._forked(line)
            yield from self._rearranged(here, line)
        for record in records:
            yield from self._changed(record, line.start)

    def _compared(self, records: Sequence[dict[str, Any]]) -> _Compared:
        current: dict[str, None] = {}
        prompt = set(self._prompt)
        alike: dict[str, list[str]] = {}
        for name in reversed(self._prompt):
            alike.setdefault(self._texts[name], []).append(name)
        new: list[dict[str, Any]] = []
        order: list[str] = []
        before = ""
        for record in records:
            name = self._identity(record, current, alike)
            if name in prompt:
                current[name] = None
                if new and not before:
                    before = self._keys[name][0]
            elif not name and self._adds(record):
                new.append(record)
            order.append(name or record["id"])
        return _Compared([*current], new, order, before)

    def _identity(self, record: dict[str, Any], matched: Mapping[str, None], alike: Mapping[str, list[str]]) -> str:
        """The record that this one repeats, by its id, a call, or its role and text; empty for none.

        `alike` has the prompt's records by role and text, the last first; those that were compared are removed.
        """
        name = self._alias.get(record["id"], record["id"])
        if name in self._keys:
            return "" if name in matched else name
        names = [self._calls[part.call] for part in gemini_parts.calls(record) if part.call in self._calls]
        candidates = alike.get(_likeness(record), []) if not names else []
        while candidates and not names:
            names = [other for other in (candidates.pop(),) if other not in matched]
        if names:
            self._alias[record["id"]] = names[0]
        return names[0] if names else ""

    def _adds(self, record: dict[str, Any]) -> bool:
        """Whether a new record of a list adds to the prompt; results belong to their call."""
        if record["id"] in self._keys or record["type"] not in ("user", "gemini"):
            return False
        return bool(gemini_parts.prompt(record) if record["type"] == "user" else gemini_parts.reply(record))

    def _added(self, record: dict[str, Any]) -> list[Message]:
        """The messages that a new record of a list adds."""
        return self._messages(record, record["id"], gemini.result_parts(record.get("content")))

    def _rearranged(self, here: _Compared, line: Line) -> Iterator[Event]:
        """The events of a prompt in which messages were replaced or left out."""
        current = frozenset(here.current)
        dropped = [name for name in self._prompt if name not in current]
        time = text_in(here.new[0], "timestamp") if here.new else ""
        if not dropped and not here.before:
            for record in here.new:
                for message in self._added(record):
                    yield Said(message=message, end=line.end, scope=self._scope)
        elif here.new or self._scope or any(self._texts[name].startswith("gemini") for name in dropped):
            stays = frozenset(key for name in here.current for key in self._keys[name])
            summary = tuple(message for record in here.new for message in self._added(record))
            yield Compacted(
                summary=summary, end=line.start, kept=stays, before=here.before, time=time, scope=self._scope
            )
        else:
            # After a resume the commands that were sent as messages, such as "/compress", are left out.
            for name in dropped:
                yield Edited(end=line.start, key=self._keys[name][0], time=time)
        self._prompt = [name for name in dict.fromkeys(here.order) if name in self._keys]

    def _changed(self, record: dict[str, Any], end: int) -> Iterator[Event]:
        """The edits of a message's text and results that changed."""
        time, likeness = text_in(record, "timestamp"), _likeness(record)
        name = self._alias.get(record["id"], record["id"])
        if self._scope:
            return
        if name in self._prompt and record["type"] == "user" and likeness and self._texts[name] != likeness:
            self._texts[name] = likeness
            yield Edited(end=end, key=self._keys[name][0], parts=gemini_parts.prompt(record), time=time)
        yield from self._changed_results(gemini.result_parts(record.get("content")), end, time)

    def _forked(self, line: Line) -> Iterator[Event]:
        if not self._rewound:
            return
        self._rewound = False
        if self._scope:
            yield from self._warning("a sub-agent's rewind is not followed: its messages stay", line)
        else:
            after = self._keys[self._prompt[-1]][-1] if self._prompt else ""
            yield Forked(after=after, end=line.start)


class _Compared(NamedTuple):
    """A list of messages compared with the prompt so far."""

    current: list[str]  # its records that are in the prompt
    new: list[dict[str, Any]]
    order: list[str]  # all of its records
    before: str  # the key of the first known message after a new one


def _source(stem: str, session: str) -> str:
    """The id of a recording: its file's name, since another file that `--resume` leaves has the same session id."""
    return stem if not session or session[:8] in stem else f"{stem}-{session[:8]}"


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str) and isinstance(value.get("type"), str)


def _likeness(record: Mapping[str, Any]) -> str:
    """What identifies a message under another id: its type and text; empty without a text."""
    value = gemini_parts.text(record.get("content"))
    return f"{record['type']}\n{value}" if value else ""
