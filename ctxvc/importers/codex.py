"""Codex rollouts (`rollout-<time>-<uuid>.jsonl`) → events.

A rollout has the Responses items that Codex keeps for the next request, among lines for its user interface. The items
are the conversation; of the other lines only those matter that change the prompt (compaction, rollback) or end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.forms import items
from ctxvc.forms.values import objects, taken_over, text_in
from ctxvc.importers.file import Line, Recording, json_lines, object_in
from ctxvc.importers.protocol import LINES, Importer, WarnedOnce, folder_of, is_within, of_project, single

FORMAT = "codex"

_MISSING = ("the tool definitions", "what the provider's own tools returned (web search)")

_NEVER_SENT = frozenset({"ghost_snapshot", "compaction_trigger"})
_NO_CONVERSATION = frozenset(
    {
        "world_state",
        "inter_agent_communication_metadata",
        "security_risk_score",
        "token_usage_record",
        "realtime_item",
        "state",
    }
)
_TURN_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted"})

#: The bytes of user messages, newest first, that survive a compaction without a recorded result: 20,000 tokens of 4
#: bytes, as Codex counts them.
_KEPT_BYTES = 80_000


class _PromptMessage(msgspec.Struct, frozen=True):
    """A message in the prompt. `identity` is that of its item, `size` is in bytes.

    A `human` one starts a turn; a `context` one is all the client's.
    """

    key: str
    identity: Hashable
    human: bool
    context: bool
    size: int


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a rollout; the first line may be cut off."""
    first = head.lstrip().split(b"\n", 1)[0]
    record = wire.parsed(first, dict)
    if record is None:
        return bool(re.match(rb'\{"timestamp":"[^"]*",("ordinal":\d+,)?"type":"session_meta","payload":\{', first))
    if "payload" in record:
        types = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
        return record.get("type") in types and isinstance(record["payload"], dict)
    return "type" not in record and {"id", "timestamp", "instructions"} <= record.keys()


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - as every importer has it
    """The folders with the rollouts of all projects, at any depth."""
    base = Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"
    return [base / "sessions", base / "archived_sessions"]


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The rollouts of `project` at any depth below one of the `folders`."""
    return of_project(sorted(folder.rglob("*.jsonl")), project, is_of_project)


def is_of_project(head: bytes, project: str) -> bool:
    """Whether the rollout that begins with `head` was made in the folder `project` or below it."""
    match = re.search(rb"<cwd>([^<]*)</cwd>", head)
    cwd = folder_of(head) or (match[1].decode("utf-8", "replace") if match else "")
    return is_within(cwd, project)


def events(recording: Recording) -> Iterator[Event]:
    """The rollout's events, in file order. Raises: BadInput if the file cannot be read."""
    rollout = _Rollout(recording.stem, _known_windows(recording.path))
    for line, record in json_lines(recording.lines()):
        if isinstance(record, dict):
            yield from rollout.read(record, line)
        else:
            yield from rollout.skip(f"the line is not {'JSON' if record is None else 'a JSON object'}", line)


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=LINES,
    grows=True,
    folders=folders,
    recordings=recordings,
)


class _Rollout:
    """The state after the lines so far: the prompt, and the reply that is not complete yet."""

    def __init__(self, stem: str, windows: Mapping[str, int] = {}) -> None:
        """`windows` has the host's own windows by model, for rollouts without one."""
        self._stem = stem
        self._windows = windows
        self._window = Window()
        self._opened = False
        self._described = False
        self._model = ""
        self._reply = ""
        self._uncounted: Message | None = None  # of the newest reply, while its usage is not known
        self._total: object = None  # tokens of the session so far
        self._prompt: list[_PromptMessage] = []
        self._compacted_to = 0  # how many messages the last compaction left
        self._warning = WarnedOnce()

    def skip(self, reason: str, line: Line) -> Iterator[Event]:
        yield from self._open()
        yield Warned(text=reason, line=line.number)

    def read(self, record: dict[str, Any], line: Line) -> Iterator[Event]:
        kind, payload = _envelope(record)
        time = text_in(record, "timestamp")
        if kind == "session_meta":
            # A forked rollout repeats the description of the one that it continues.
            if not self._described:
                yield self._description(payload, time)
            return
        yield from self._open()
        match kind:
            case "response_item" | "inter_agent_communication":
                item = payload if kind == "response_item" else {**payload, "type": kind}
                if event := self._item(item, line, time, record.get("ctxvc")):
                    yield event
            case "event_msg":
                yield from self._event(payload, line, time)
            case "compacted":
                yield self._compacted(payload, line, time)
            case "turn_context":
                if (model := text_in(payload, "model")) not in ("", self._model):
                    self._model = model
                    window = (
                        self._new_window(self._windows.get(model, 0), "models") if self._window.by != "host" else None
                    )
                    yield Opened(format=FORMAT, model=model, grows=True, window=window)
            case "":
                yield Warned(text="the line has an unknown form", line=line.number)
            case _ if kind not in _NO_CONVERSATION:
                label = display.one_line(kind, 40)
                yield from self._warning(f"lines of an unknown type are skipped: {label!r}", line)

    def _new_window(self, tokens: int, by: Literal["host", "models"]) -> Window | None:
        """The window, unless it is invalid or already known."""
        window = Window(tokens=tokens, by=by)
        if tokens <= 0 or window == self._window:
            return None
        self._window = window
        return window

    def _open(self) -> Iterator[Event]:
        if not self._opened:
            self._opened = True
            yield Opened(format=FORMAT, name=_name(self._stem), missing=("the system prompt", *_MISSING), grows=True)

    def _description(self, meta: dict[str, Any], time: str) -> Opened:
        self._opened = self._described = True
        source = text_in(meta, "id")
        system = meta.get("base_instructions")
        if isinstance(system, dict):
            system = system.get("text")
        missing = _MISSING if isinstance(system, str) else ("the system prompt", *_MISSING)
        if meta.get("history_base") is not None:
            missing = ("the history before the fork, which is in another rollout", *missing)
        git = meta.get("git")
        return Opened(
            format=FORMAT,
            source=source,
            name=_name(source or self._stem),
            cwd=text_in(meta, "cwd"),
            branch=text_in(git, "branch") if isinstance(git, dict) else "",
            time=text_in(meta, "timestamp") or time,
            agent=" ".join(filter(None, ("Codex", text_in(meta, "originator"), text_in(meta, "cli_version")))),
            system=system if isinstance(system, str) else None,
            missing=missing,
            grows=True,
        )

    def _item(self, item: dict[str, Any], line: Line, time: str, note: Any) -> Said | None:
        if text_in(item, "type") in _NEVER_SENT:
            return None
        role, parts = items.converted(item)
        parts = taken_over(parts, note)
        by_model = role == "assistant"
        if by_model:
            self._reply = self._reply or f"reply:{line.number}"
        elif all(part.kind == "tool_result" for part in parts):
            self._reply = ""
        else:
            self._end_reply()
        if not parts:
            return None
        message = Message(
            role=role,
            parts=parts,
            reply=self._reply,
            key=f"line:{line.number}",
            time=time,
            model=self._model if by_model else "",
        )
        self._prompt.append(_prompt_message(message, item))
        self._uncounted = message if by_model else self._uncounted
        return Said(message=message, end=line.end)

    def _end_reply(self) -> None:
        self._reply, self._uncounted = "", None

    def _usage_event(self, info: object, line: Line) -> Said | None:
        """The usage of the newest reply, as a further message of it without parts, since it comes after the results.

        Unchanged counts are repeated when only rate limits change; a change means that a reply is complete.
        """
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(info, dict) or total is None or total == self._total:
            return None
        reply, usage = self._uncounted, _usage(info.get("last_token_usage"))
        self._total = total
        self._end_reply()
        if not reply or not usage:
            return None
        message = msgspec.structs.replace(reply, parts=(), key=f"line:{line.number}", usage=usage)
        return Said(message=message, end=line.end)

    def _event(self, event: dict[str, Any], line: Line, time: str) -> Iterator[Event]:
        kind = text_in(event, "type")
        if kind in _TURN_ENDS:
            self._end_reply()
            yield Closed(end=line.end)
        elif kind in ("token_count", "task_started", "turn_started"):
            info = event.get("info") if kind == "token_count" else event
            # The part of the model's window that Codex lets a prompt fill.
            tokens = info.get("model_context_window") if isinstance(info, dict) else None
            if isinstance(tokens, int) and (window := self._new_window(tokens, "host")):
                yield Opened(format=FORMAT, grows=True, window=window)
            if kind == "token_count" and (usage_event := self._usage_event(info, line)):
                yield usage_event
        elif kind == "thread_name_updated":
            if title := text_in(event, "thread_name"):
                yield Opened(format=FORMAT, title=title, grows=True)
        elif kind == "thread_rolled_back":
            turns = event.get("num_turns")
            if isinstance(turns, int):
                yield from self._rolled_back(turns, line, time)
            else:
                yield Warned(text="a rollback of an unknown number of turns", line=line.number)

    def _rolled_back(self, turns: int, line: Line, time: str) -> Iterator[Event]:
        """Drops the last `turns` turns from the prompt, and the client's messages just before them.

        Messages before the first turn stay. There is no state to return to from within a compacted prompt: a rollback
        that reaches into it becomes a compaction that keeps the other messages.
        """
        starts = [at for at, seen in enumerate(self._prompt) if seen.human]
        if turns <= 0 or not starts:
            return
        cut = starts[-turns] if turns < len(starts) else starts[0]
        while cut > starts[0] and self._prompt[cut - 1].context:
            cut -= 1
        del self._prompt[cut:]
        self._end_reply()
        if cut <= self._compacted_to > 0:
            self._compacted_to = cut
            yield Compacted(summary=(), end=line.end, kept=frozenset(seen.key for seen in self._prompt), time=time)
        else:
            yield Forked(after=self._prompt[-1].key if self._prompt else "", end=line.end, time=time)

    def _compacted(self, payload: dict[str, Any], line: Line, time: str) -> Compacted:
        self._end_reply()
        history = payload.get("replacement_history")
        summary = text_in(payload, "message")
        if isinstance(history, list):
            retained, new, before = self._replaced(history, summary, line, time)
        else:
            retained, new, before = self._kept_by_rule(), _summary(summary, f"line:{line.number}.1", time), ""
            self._prompt = [*retained, *(_prompt_message(message, {}) for message in new)]
        self._compacted_to = len(self._prompt)
        return Compacted(
            summary=tuple(new), end=line.end, kept=frozenset(seen.key for seen in retained), before=before, time=time
        )

    def _replaced(
        self, history: list[Any], summary: str, line: Line, time: str
    ) -> tuple[list[_PromptMessage], list[Message], str]:
        """The messages of the prompt that `history` keeps, its new ones, and the key of the kept one after these."""
        candidates: dict[Hashable, list[_PromptMessage]] = {}
        for seen in reversed(self._prompt):
            candidates.setdefault(seen.identity, []).append(seen)
        prompt: list[_PromptMessage] = []
        retained: list[_PromptMessage] = []
        new: list[Message] = []
        before = ""
        for item in history:
            if not isinstance(item, dict) or text_in(item, "type") in _NEVER_SENT:
                continue
            key = f"line:{line.number}.{len(new) + 1}"
            if matches := candidates.get(items.identity(item)):
                retained.append(matches.pop())
                prompt.append(retained[-1])
                before = before or (retained[-1].key if new else "")
            elif message := _restated(item, summary, key, time):
                before = ""
                new.append(message)
                prompt.append(_prompt_message(message, item))
        self._prompt = prompt
        return retained, new, before

    def _kept_by_rule(self) -> list[_PromptMessage]:
        """The messages that a compaction without a recorded result keeps: opening context, and newest user messages."""
        first = next((at for at, seen in enumerate(self._prompt) if seen.human), len(self._prompt))
        room = _KEPT_BYTES
        recent: list[_PromptMessage] = []
        for seen in reversed([seen for seen in self._prompt if seen.human]):
            room -= seen.size
            if room < 0:
                break
            recent.append(seen)
        return [*(seen for seen in self._prompt[:first] if seen.context), *reversed(recent)]


def _envelope(record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The type and payload of a line. In the oldest rollouts, a line is itself the description or an item."""
    kind, payload = text_in(record, "type"), record.get("payload")
    if isinstance(payload, dict):
        return kind, payload
    if "payload" in record:
        return "", {}
    if kind:
        return "response_item", record
    if "id" in record and "timestamp" in record:
        return "session_meta", record
    return text_in(record, "record_type"), record


def _known_windows(path: Path) -> dict[str, int]:
    """model → its window in Codex, by the table of models beside the folder of rollouts."""
    home = next((folder.parent for folder in path.parents if folder.name in ("sessions", "archived_sessions")), None)
    windows: dict[str, int] = {}
    for model in objects(object_in(home / "models_cache.json").get("models")) if home else ():
        match model:
            case {"slug": str(slug), "context_window": int(tokens)}:
                share = model.get("effective_context_window_percent")
                windows[slug] = tokens * share // 100 if isinstance(share, int) and 0 < share <= 100 else tokens
    return windows


def _usage(usage: object) -> dict[str, int]:
    """Token counts under the names of the Messages API, which counts cached input by itself."""
    if not isinstance(usage, dict):
        return {}
    total_input, cached, output = (usage.get(f"{kind}_tokens") for kind in ("input", "cached_input", "output"))
    if not isinstance(total_input, int) or not isinstance(output, int):
        return {}
    cache_read = cached if isinstance(cached, int) else 0
    return {
        "input_tokens": max(0, total_input - cache_read),
        "cache_read_input_tokens": cache_read,
        "output_tokens": output,
    }


def _name(source: str) -> str:
    """A session name from the end of an id, since the beginning of a UUIDv7 is the same for a whole minute."""
    return "codex-" + name_rules.slug(source[-8:])


def _summary(summary: str, key: str, time: str) -> list[Message]:
    if not summary:
        return []
    return [Message(role="user", parts=(wire.text_part(summary, "user", "client"),), key=key, time=time)]


def _restated(item: dict[str, Any], summary: str, key: str, time: str) -> Message | None:
    """The message of an item that a compaction added; the text `summary` is the client's in any case."""
    role, parts = items.converted(item)
    body = display.encode(summary)
    if summary and role == "user":
        parts = tuple(msgspec.structs.replace(part, origin="client") if part.body == body else part for part in parts)
    return Message(role=role, parts=parts, key=key, time=time) if parts else None


def _prompt_message(message: Message, item: Mapping[str, Any]) -> _PromptMessage:
    origins = {part.origin for part in message.parts}
    return _PromptMessage(
        key=message.key,
        identity=items.identity(item),
        human="human" in origins,
        context=origins == {"client"},
        size=sum([len(part.body) for part in message.parts]),
    )
