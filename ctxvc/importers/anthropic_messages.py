"""Recordings of the Messages API: a list of messages, a request, a response, or a log with one of these a line.

Every request repeats its conversation from the start. So the messages are kept as a tree: what a request shares with
it is not told again, what it adds is told once, and a request that leaves the line told last is told as a fork. The
parts of this that do not depend on the form of a message (`opening`, `records`, `Turn`, `Log`) serve every log of
requests; the OpenAI importer uses them too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from ctxvc.core import names, wire
from ctxvc.core.blocks import Message, Origin, Part, Role
from ctxvc.core.events import Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers.origins import from_claude_code
from ctxvc.importers.reading import Recording

FORMAT = "anthropic-messages"

_BLOCK_TYPE = re.compile(
    "text|image|document|tool_use|thinking|redacted_thinking|server_tool_use|search_result|container_upload|compaction"
    "|mcp_tool_use|([a-z_]+_)?tool_result"
)


#: Keys of a message or response that have their own place in a `Message`, or tell nothing of what the model saw.
_TAKEN = frozenset(
    {"role", "content", "id", "type", "model", "usage", "stop_reason", "stop_sequence", "stop_details", "container"}
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one value of a log says: a request (`whole`: its messages are all there are so far), or what comes next.

    `reply`, `usage` and `time` belong to a model's reply, which is then the only message. `left_out` says in words what
    the value has besides.
    """

    messages: list[Any]
    whole: bool = False
    model: str = ""
    system: Any = None
    tools: Any = None
    missing: tuple[str, ...] = ()
    reply: str = ""
    usage: dict[str, int] = {}
    time: str = ""
    left_out: str = ""


class Record(msgspec.Struct, frozen=True):
    """A JSON value of a file. `line` is 0 where the value spans several lines; `end` as in events."""

    value: Any
    line: int
    end: int


def sniff(head: bytes) -> bool:
    """Whether all that `head` tells is messages, every part of them as in the Messages API."""
    turns = [turn for value in opening(head) for turn in _turns(value)]
    messages = whole_messages(turns)
    if not messages or not all(map(_is_ours, messages)) or messages[0]["role"] == "system":
        return False
    return not any(isinstance(tool, dict) and "function" in tool for turn in turns for tool in turn.tools or [])


def _is_ours(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        return False
    if not _is_response(message) and message.keys() - {"role", "content"}:
        return False
    content = message.get("content", "")
    return isinstance(content, str) or (isinstance(content, list) and all(map(_is_block, content)))


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and _BLOCK_TYPE.fullmatch(text_of(block.get("type", "text"))) is not None


def events(recording: Recording) -> Iterator[Event]:
    """Raises: BadInput where the file holds no message."""
    log = Log(FORMAT, recording.stem, _fingerprint, _message)
    return log.tell(records(recording), _turns)


def _turns(value: Any) -> Iterator[Turn]:
    if isinstance(value, list) and any(has_role(item) and not _is_response(item) for item in value):
        yield Turn(messages=value, whole=True, missing=("system prompt", "tool definitions"))
    else:
        for item in value if isinstance(value, list) else [value]:
            yield from _exchange(item) if isinstance(item, dict) else [Turn(messages=[item])]


def _exchange(value: dict[str, Any]) -> Iterator[Turn]:
    """The request and the response in one object of a log; an object that is neither counts as a message."""
    request, response = value.get("request", value), value.get("response", value)
    found = False
    match request:
        case {"messages": list(messages)}:
            found = True
            system, tools = request.get("system"), request.get("tools")
            yield Turn(
                messages=messages,
                whole=True,
                model=text_of(request.get("model")),
                system=system if isinstance(system, str) else objects(system),
                tools=objects(tools),
            )
    if _is_response(response):
        yield Turn(
            messages=[response],
            model=text_of(response.get("model")),
            reply=text_of(response.get("id")),
            usage=counts(response.get("usage")),
            missing=("what was sent",),
        )
    elif not found:
        yield Turn(messages=[value], missing=("system prompt", "tool definitions"))


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "message" and value.get("role") == "assistant"


def _message(value: Any, key: str, turn: Turn) -> Message | str:
    """The message in our terms, or why there is none."""
    match value:
        case {"role": "user" | "assistant" | "system" as role, "content": str() | list() as content}:
            blocks = [content] if isinstance(content, str) and content else list(content)
        case _:
            return "it has no known role, or no content"
    if not blocks:
        return "it is empty"
    parts = [wire.part(block, role, origin(block, role)) for block in blocks]
    if rest := {name: item for name, item in value.items() if name not in _TAKEN}:
        parts[0] = noted(parts[0], "ctxvc", {"message": rest})
    return Message(
        role=role,
        parts=tuple(parts),
        key=key,
        reply=turn.reply,
        model="" if turn.whole else turn.model,
        usage=turn.usage,
    )


def origin(block: Any, role: Role) -> Origin:
    """Who made a content block, as far as the Messages API and the text's own marks tell."""
    value = block.get("text") if isinstance(block, dict) else block
    if isinstance(block, dict) and text_of(block.get("type")).endswith("tool_result"):
        return "tool"
    if role == "assistant":
        return "model"
    return "client" if role == "system" or from_claude_code(text_of(value)) else "human"


def _fingerprint(message: Any) -> bytes:
    """Equal for two spellings of one message: a client may leave out nulls and set cache marks anew each time."""
    if not isinstance(message, dict):
        return digest(message)
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if isinstance(blocks, list):
        blocks = [_told(block) if isinstance(block, dict) else block for block in blocks]
    return digest([message.get("role"), blocks])


def _told(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if value is not None and key != "cache_control"}


# What every log of requests needs, whatever the form of its messages.


class _Node:
    """A message in the tree of what is known. `key` is that of the last message told on the way to it."""

    def __init__(self, key: str, depth: int) -> None:
        self.key = key
        self.depth = depth
        self.next: dict[bytes, _Node] = {}


class Log:
    """Tells the messages of a log once each, in the order in which they turn up.

    `fingerprint` is equal for messages that are the same; `message` makes one of ours out of it, or says why not.
    """

    def __init__(
        self,
        format: str,
        source: str,
        fingerprint: Callable[[Any], bytes],
        message: Callable[[Any, str, Turn], Message | str],
    ) -> None:
        self._format = format
        self._source = source
        self._fingerprint = fingerprint
        self._message = message
        self._known: dict[str, Any] = {}
        self._opened = self._changed = self._said = False
        self._root = self._told = self._at = _Node("", 0)
        self._count_at: dict[int, int] = {}

    def tell(self, records: Iterable[Record | Warned], turns: Callable[[Any], Iterator[Turn]]) -> Iterator[Event]:
        """The events of all records. Raises: BadInput where none holds a message."""
        for record in records:
            if isinstance(record, Warned):
                yield from self._opening(Turn(messages=[]), 0)
                yield record
                continue
            for turn in turns(record.value):
                yield from self._opening(turn, record.line)
                yield from self._turn(turn, record)
                if turn.left_out:
                    yield Warned(text=f"left out: {turn.left_out}", line=record.line)
        if not self._said:
            raise BadInput(f"{self._source}: no message of the format {self._format} in it")

    def _opening(self, turn: Turn, line: int) -> Iterator[Event]:
        facts = {"model": turn.model, "system": turn.system, "tools": turn.tools}
        news = {name: value for name, value in facts.items() if value and name not in self._known}
        if not self._opened:
            self._opened = True
            name = names.slug(self._source)
            yield Opened(format=self._format, source=self._source, name=name, missing=turn.missing, **news)
        elif news:
            yield Opened(format=self._format, **news)
        self._known.update(news)
        if not self._changed and any(facts[name] and facts[name] != self._known[name] for name in ("system", "tools")):
            self._changed = True
            yield Warned(text="system prompt or tools change in mid-file; the first are kept", line=line)

    def _turn(self, turn: Turn, record: Record) -> Iterator[Event]:
        at, skip = self._at, 0
        prints = [self._fingerprint(message) for message in turn.messages]
        if turn.whole:
            at = self._root
            while skip < len(prints) and prints[skip] in at.next:
                at, skip = at.next[prints[skip]], skip + 1
        for message, fingerprint in zip(turn.messages[skip:], prints[skip:], strict=True):
            key = self._key(at.depth + 1)
            told = self._message(message, key, turn)
            node = at.next[fingerprint] = _Node(at.key if isinstance(told, str) else key, at.depth + 1)
            if isinstance(told, str):
                yield Warned(text=f"message {node.depth} was left out: {told}", line=record.line)
            else:
                # Only now, so that going back and on along a known line is no fork.
                if at.key != self._told.key:
                    yield Forked(after=at.key, end=record.end)
                self._said, self._told = True, node
                yield Said(message=told, end=record.end)
            at = node
        self._at = at

    def _key(self, depth: int) -> str:
        count = self._count_at[depth] = self._count_at.get(depth, 0) + 1
        return f"message:{depth}" if count == 1 else f"message:{depth}~{count}"


def records(recording: Recording) -> Iterator[Record | Warned]:
    """Every JSON value of a file: one a line, or the whole where its first line alone is none. Raises: BadInput."""
    lines = recording.lines()
    first = next(lines, None)
    if first is None:
        raise BadInput(f"{recording.path}: the file is empty")
    try:
        value = wire.parse(first.data)
    except ValueError:
        data = recording.whole()
        try:
            value = wire.parse(data)
        except ValueError as error:
            raise BadInput(f"{recording.path}: neither a JSON document nor JSON lines: {error}") from error
        yield Record(value, 0, len(data))
        return
    yield Record(value, first.number, first.end)
    for line in lines:
        try:
            yield Record(wire.parse(line.data), line.number, line.end)
        except ValueError as error:
            yield Warned(text=f"not JSON: {error}", line=line.number)


# A string, whole or cut, or a mark of structure.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],]', re.DOTALL)


def opening(head: bytes) -> list[Any]:
    """The values of the whole lines in a file's head, or, of a document, as much as is whole; empty if not JSON."""
    lines = head.split(b"\n")
    values = []
    try:
        for line in lines[:-1] or lines:
            if line.strip():
                values.append(wire.parse(line))
        return values
    except ValueError:
        pass
    cut, closing = 0, b""
    stack: list[bytes] = []
    for token in _TOKEN.finditer(head):
        mark = token[0]
        if mark in (b"{", b"["):
            stack.append(b"}" if mark == b"{" else b"]")
        elif mark == b",":
            cut, closing = token.start(), b"".join(reversed(stack))
        elif mark in (b"}", b"]"):
            if not stack:
                return []
            stack.pop()
            cut, closing = token.end(), b"".join(reversed(stack))
    try:
        return [wire.parse(head[:cut] + closing)]
    except ValueError:
        return []


def whole_messages(turns: list[Turn]) -> list[Any]:
    """All messages of a file's head, but for a last one that is cut before its role."""
    messages = [message for turn in turns for message in turn.messages]
    return messages if not messages or has_role(messages[-1]) else messages[:-1]


def has_role(value: Any) -> bool:
    """Whether `value` may be a message, as both APIs have them."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def noted(part: Part, name: Literal["openai", "ctxvc"], notes: dict[str, Any]) -> Part:
    """`part` with more in its `extra` under `name`."""
    return msgspec.structs.replace(part, extra={**part.extra, name: {**part.extra.get(name, {}), **notes}})


def objects(values: Any) -> list[dict[str, Any]]:
    """The JSON objects in a list; none where it is no list."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def counts(usage: Any) -> dict[str, int]:
    """The plain token counts of a usage object."""
    if not isinstance(usage, Mapping):
        return {}
    return {name: count for name, count in usage.items() if type(count) is int}


def digest(value: Any) -> bytes:
    """A checksum of a JSON value that does not depend on the order of keys."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except (UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        data = json.dumps(value, sort_keys=True).encode("ascii")
    return hashlib.sha256(data).digest()
