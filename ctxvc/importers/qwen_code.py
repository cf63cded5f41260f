"""Sessions of Qwen Code (`~/.qwen/projects/<folder>/chats/<id>.jsonl`) → events.

Each record names its parent: a rewind continues from an earlier one. Messages have Gemini's parts. A compaction is a
record with the whole history that is sent from then on. Sub-agents have files of their own. Source:
`ChatRecordingService` and the session reader of @qwen-code/qwen-code 0.24.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.forms import gemini
from ctxvc.forms.gemini_edit import items
from ctxvc.forms.values import text_in, text_of
from ctxvc.importers import gemini_parts
from ctxvc.importers.file import Line, Recording, json_lines
from ctxvc.importers.protocol import (
    LINES,
    Importer,
    WarnedOnce,
    file_state,
    names_project,
    of_project,
    single,
    starting_call,
)

FORMAT = "qwen-code"

_MISSING = ("the system prompt", "the tool definitions", "the reminder that Qwen Code puts before all")
_MESSAGE = re.compile(rb'"message":\{"role":"(?:user|model)","parts":\[')
_RECORD = re.compile(rb'\{"uuid":"[^"]*","parentUuid":(?:null|"[^"]*"),"sessionId":"')
#: The beginning of a text that the host adds to a person's message, and the text after which all are the host's.
_REMINDER, _FILES = "<system-reminder>", "\n--- Content from referenced files ---"


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a session's, or a sub-agent's."""
    return bool(_RECORD.match(head.lstrip()))


def home_folder(home: Path, env: Mapping[str, str]) -> Path:
    """The folder with a folder for each project."""
    return Path(env.get("QWEN_RUNTIME_DIR") or env.get("QWEN_HOME") or home / ".qwen") / "projects"


def folder_name(project: Path) -> str:
    """The name of a project's folder in `home_folder`."""
    return re.sub(r"[^a-zA-Z0-9]", "-", str(project))


def _folders(_: Path, home: Path, env: Mapping[str, str]) -> list[Path]:
    return [home_folder(home, env)]


def _recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The sessions of `project` that have a message."""
    return of_project(sorted(folder.glob(f"{folder_name(project)}*/chats/*.jsonl")), project, _is_of_project)


def _is_of_project(head: bytes, project: str) -> bool:
    return sniff(head) and bool(_MESSAGE.search(head)) and names_project(head, project)


def beside(path: Path) -> list[Path]:
    """The sub-agents of the session at `path`."""
    return sorted((path.parent.parent / "subagents" / path.stem).glob("*.jsonl")) if path.parent.name == "chats" else []


def events(recording: Recording) -> Iterator[Event]:
    """The session's events, in file order. Raises: BadInput if the file cannot be read."""
    session = _Session(recording)
    for line, record in json_lines(recording.lines()):
        yield from session.events(record if isinstance(record, dict) else {}, line)


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=LINES,
    grows=True,
    folders=_folders,
    recordings=_recordings,
    beside=beside,
    state=partial(file_state, message=_MESSAGE),
)


class _Session:
    """The tree so far. A position in it is the key of the newest message on the way there, empty if there is none."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._opened = False
        self._described = False  # whether a record described the session
        self._scope = ""  # a sub-agent's own
        self._task = ""  # the call that started it
        self._model = ""
        self._window = 0
        self._here = ""  # the position after the events so far
        self._position = {"": ""}  # of every record
        self._newest = ""  # the last record
        self._above: dict[str, str] = {}  # the position before a message, by its key
        self._records: dict[str, dict[str, Any]] = {}  # the `message` of each, by its key
        self._replies: dict[str, str] = {}  # key of a reply → that of its first part
        self._tools: dict[str, str] = {}  # call → tool
        self._warning = WarnedOnce()

    def events(self, record: dict[str, Any], line: Line) -> Iterator[Event]:
        identity, kind = text_in(record, "uuid"), text_in(record, "type")
        is_record = bool(identity and kind)
        if not self._opened or (is_record and not self._described):
            self._opened, self._described = True, is_record
            yield self._open(record)
        if not is_record:
            yield Warned(text="the line is not a record of Qwen Code", line=line.number)
            return
        position = self._parent(record)
        if position is None:
            yield from self._warning("a record's parent is not in the file: it is placed behind the line before", line)
            position = self._position[self._newest]
        self._position[identity], self._newest = position, identity
        match kind, record.get("message"):
            case "system", _:
                yield from self._noted(record, position, line)
            case (("user" | "assistant" | "tool_result"), {"parts": _}) if record.get("subtype") != "realtime_message":
                yield from self._spoken(record, position, line)
            case (("user" | "assistant" | "tool_result"), _):
                pass
            case _:
                reason = f"records of an unknown type are skipped: {display.one_line(kind, 40)!r}"
                yield from self._warning(reason, line)

    def _open(self, record: dict[str, Any]) -> Opened:
        session = text_in(record, "sessionId")
        if record.get("isSidechain") is True:
            # Lower case, so that no two scopes differ by case only.
            self._scope = name_rules.slug(self._recording.stem.lower(), "agent")
            self._task = starting_call(self._recording.path)
        return Opened(
            format=FORMAT,
            source=session,
            name="qwen-" + name_rules.slug((session or self._recording.stem)[:8]),
            cwd=text_in(record, "cwd"),
            branch=text_in(record, "gitBranch"),
            time=text_in(record, "timestamp"),
            agent="Qwen Code",
            missing=_MISSING,
            grows=True,
        )

    def _parent(self, record: dict[str, Any]) -> str | None:
        """The position before a record; None if its parent is not in the file."""
        parent = record.get("parentUuid")
        return self._position.get(parent if isinstance(parent, str) else "")

    # --- messages

    def _spoken(self, record: dict[str, Any], position: str, line: Line) -> Iterator[Event]:
        yield from self._told_later(record)
        message = self._message(record, record["message"], self._key(record["uuid"]))
        if message is None:
            return
        if position != self._here:
            if self._scope:
                yield from self._warning("a sub-agent's rewind is not followed: its messages stay", line)
            else:
                yield Forked(after=position, end=line.start, time=message.time)
        self._place(message, record["message"], position)
        self._position[record["uuid"]] = message.key
        yield Said(message=message, end=line.end, scope=self._scope, task=self._task)

    def _place(self, message: Message, content: dict[str, Any], position: str) -> None:
        self._above[message.key], self._records[message.key] = position, content
        self._here = message.key

    def _key(self, identity: str) -> str:
        """A unique key for a record's message: the record's id, numbered from the second on."""
        key, number = identity, 1
        while key in self._above:
            number += 1
            key = f"{identity}#{number}"
        return key

    def _told_later(self, record: dict[str, Any]) -> Iterator[Event]:
        """`Opened` with the model and window of a reply, if they are new."""
        model, tokens = text_in(record, "model"), record.get("contextWindowSize")
        if model and model != self._model:
            self._model = model
            yield Opened(format=FORMAT, model=model, grows=True)
        if type(tokens) is int and tokens > 0 and tokens != self._window:
            self._window = tokens
            yield Opened(format=FORMAT, window=Window(tokens=tokens, by="host"), grows=True)

    def _message(self, record: Mapping[str, Any], content: Mapping[str, Any], key: str) -> Message | None:
        """The message for a content of a record; None if it is empty."""
        time = text_in(record, "timestamp")
        if content.get("role") != "model":
            parts = self._incoming(record, content)
            return Message(role="user", parts=parts, key=key, time=time) if parts else None
        content_of_reply = {"content": content.get("parts"), "ctxvc": record.get("ctxvc")}
        calls = gemini_parts.calls(content_of_reply)
        self._tools |= {part.call: part.tool for part in calls}
        parts = (*gemini_parts.reply(content_of_reply), *calls)
        # A sub-agent's texts and calls are records of their own.
        self._replies[key] = reply = self._replies.get(self._here, key) if self._scope else key
        used = gemini.usage(record.get("usageMetadata"))
        model = text_in(record, "model")
        if not parts:
            return None
        return Message(role="assistant", parts=parts, reply=reply, key=key, time=time, model=model, usage=used)

    def _incoming(self, record: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[Part, ...]:
        """Results, then the texts and media of the person or the host."""
        here = items(content.get("parts"))
        results = gemini.result_parts([self._with_tool(item) for item in here])
        by_host = bool(self._scope) or text_in(record, "type") != "user" or text_in(record, "provenance") == "system"
        texts: list[Part] = []
        is_result = False
        for item in here:
            value = text_of(item.get("text"))
            by_host = by_host or value == _FILES
            if "functionResponse" in item:
                is_result = True
            elif not (is_result and "inlineData" in item):
                texts += gemini_parts.prompt_part(item, "client" if by_host or value.startswith(_REMINDER) else "human")
        return (*results, *texts)

    def _with_tool(self, item: dict[str, Any]) -> dict[str, Any]:
        match item:
            case {"functionResponse": {"id": str(call)} as response} if call in self._tools:
                return {"functionResponse": {**response, "name": self._tools[call]}}
        return item

    # --- what else is noted

    def _noted(self, record: dict[str, Any], position: str, line: Line) -> Iterator[Event]:
        payload = record.get("systemPayload")
        match text_in(record, "subtype"), payload:
            case "custom_title", {"customTitle": str(title)} if title and not self._scope:
                yield Opened(format=FORMAT, title=title, grows=True)
            case "chat_compression", {"compressedHistory": list(history)}:
                yield self._compacted(record, items(history), position, line)
            case "slash_command", {"phase": "result", "rawCommand": str(command), "outputHistoryItems": list(outputs)}:
                message = items(self._records.get(position, {}).get("parts"))
                is_local = payload.get("sentToModel") is not True and bool(outputs) and message == [{"text": command}]  # type: ignore[union-attr]
                if (
                    is_local
                    and all(item.get("type") == "assistant" for item in items(outputs))
                    and position == self._here
                ):
                    yield Edited(end=line.end, key=position, time=text_in(record, "timestamp"))

    def _compacted(
        self, record: dict[str, Any], history: Sequence[dict[str, Any]], position: str, line: Line
    ) -> Compacted:
        """The compaction to the history that is sent from here on; its end may be messages that stay."""
        retained, rest = self._retained(history, position)
        own: dict[str, Any] = {name: record[name] for name in ("timestamp", "provenance") if name in record}
        summary = []
        for content in rest:
            message = self._message({"type": "system", **own}, content, self._key(record["uuid"]))
            if message:
                summary.append(message)
                self._place(message, content, self._here)
        keys = [*(message.key for message in summary), *retained]
        self._above |= {after: before for before, after in pairwise(["", *keys])}
        self._here = self._position[record["uuid"]] = keys[-1] if keys else ""
        payload = record["systemPayload"].get("info")
        info = payload if isinstance(payload, dict) else {}
        detail = {
            ours: info[theirs]
            for theirs, ours in (("triggerReason", "trigger"), ("originalTokenCount", "tokens"))
            if isinstance(info.get(theirs), str | int)
        }
        return Compacted(
            summary=tuple(summary),
            end=line.end,
            kept=frozenset(retained),
            before=retained[0] if retained else "",
            time=text_in(record, "timestamp"),
            scope=self._scope,
            detail=detail,
        )

    def _retained(self, history: Sequence[dict[str, Any]], position: str) -> tuple[list[str], Sequence[dict[str, Any]]]:
        """The messages of the prompt with which a history ends, and the history before these.

        A content may have the parts of several messages, such as the results of one reply.
        """
        retained: list[str] = []
        end = len(history)
        while end:
            remaining, keys = items(history[end - 1].get("parts")), list[str]()
            while remaining and position:
                own = items(self._records[position].get("parts"))
                if remaining[-len(own) :] != own:
                    break
                remaining = remaining[: -len(own)]
                keys.append(position)
                position = self._above[position]
            if remaining or not keys:
                break
            retained += keys
            end -= 1
        return retained[::-1], history[:end]
