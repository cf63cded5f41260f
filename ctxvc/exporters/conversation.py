"""A session for exporters: the prompt at a revision, and everything recorded up to there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece, outline, pieces
from ctxvc.forms.losses import Loss
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Reply, Snapshot
from ctxvc.store.store import Store

#: The most characters of a title made of a message.
_TITLE = 120


class Recorded(NamedTuple):
    """A recorded message: its blocks with their rows."""

    number: int
    step: int
    role: str
    pieces: tuple[tuple[Row, Piece], ...]


class Conversation:
    """A scope at a revision. `replies` has the facts about the reply of each step."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.store = store
        self.snapshot = snapshot
        self.ledger = snapshot.ledger

    @cached_property
    def system(self) -> Any:
        """The system prompt: a text, a list of blocks with a text, or None."""
        system = self.snapshot.system
        if isinstance(system, list):
            return [block for block in system if isinstance(block, dict) and isinstance(block.get("text"), str)] or None
        return system if isinstance(system, str) else None

    @property
    def system_texts(self) -> list[str]:
        """The texts of the system prompt that are not empty."""
        texts = [self.system] if isinstance(self.system, str) else [block["text"] for block in self.system or ()]
        return list(filter(None, texts))

    @cached_property
    def tools(self) -> list[dict[str, Any]]:
        """The tool definitions; functions are Messages API values."""
        tools = self.snapshot.tools
        return list(filter(_is_tool, tools)) if isinstance(tools, list) else []

    @cached_property
    def entries(self) -> list[revision.Entry]:
        """The commits up to the revision, newest first."""
        return list(revision.history(self.store, self.snapshot.commit))

    @cached_property
    def replies(self) -> Mapping[int, Reply]:
        return revision.replies(self.store, self.entries)

    @property
    def title(self) -> str:
        """The host's title, else the beginning of the first human message, else the session's name."""
        source = self.ledger.meta.source
        if source and source.title:
            return source.title
        first = next(
            (row for row in self.ledger.rows() if row.origin == "human" and row.kind == "user" and is_shared(row)), None
        )
        text = display.decode(self.snapshot.bodies.body(first)) if first else ""
        return display.one_line(text, _TITLE) or self.snapshot.session

    @property
    def agent(self) -> str:
        """The program that ran the agent; empty if unknown."""
        source = self.ledger.meta.source
        return (source.agent or source.format) if source else ""

    @property
    def name(self) -> str:
        """The session and scope, as in `fix-login/main`."""
        return f"{self.snapshot.session}/{self.snapshot.scope}"

    def prompt(self, render: int = 1) -> list[Piece]:
        """The pieces of the prompt; by default without tags, which only our own tools understand."""
        content = pieces(outline(self.ledger), self.snapshot.bodies, render)
        return [msgspec.structs.replace(piece, extra=sound_notes(piece.extra, piece.body)) for piece in content]

    def request(self, content: Sequence[Piece]) -> formats.Prompt:
        """The request with `content` as its messages."""
        return formats.Prompt(pieces=content, system=self.system, tools=self.tools, model=self.ledger.meta.model)

    def messages(self) -> Iterator[Recorded]:
        """All recorded messages in order, whether or not in the prompt, without deleted blocks and our dashboards."""
        rows = (row for row in self.ledger.rows() if is_shared(row))
        for (number, role), group in groupby(rows, attrgetter("msg", "role")):
            content = tuple((row, self.piece(row)) for row in group)
            yield Recorded(number, content[0][0].step, role, content)

    def unshared(self) -> Iterator[Loss]:
        """The blocks that are not in `messages`, and the sub-agents' scopes."""
        yield from (Loss(row.id) for row in self.ledger.rows() if not is_shared(row))
        yield from (Loss(f"scopes.{scope}") for scope in self.subagents)

    @cached_property
    def subagents(self) -> Mapping[str, Subagent]:
        """The scopes of sub-agents that were started up to the revision, by name."""
        own = {entry.commit for entry in self.entries}
        calls = {row.call for row in self.ledger.rows() if row.kind == "tool_use"}
        begun = {}
        for scope, tip in self.store.tips(self.snapshot.session).items():
            if self.store.reader.meta(tip).parent != self.snapshot.scope or scope == self.snapshot.scope:
                continue
            opened = _opened(self.store, tip, scope)
            if opened is None or "Ctxvc-Task" not in opened.trailers:
                continue
            # Its first commit directly precedes that of the step which started it.
            task = opened.trailers["Ctxvc-Task"]
            if task in calls if task else own.intersection(opened.parents):
                begun[scope] = Subagent(tip, task)
        return begun

    def subagent(self, scope: str) -> Conversation:
        """A sub-agent's scope at its tip."""
        return Conversation(self.store, revision.at(self.store, self.subagents[scope].tip))

    def piece(self, row: Row) -> Piece:
        """A row's block as it was recorded."""
        bodies = self.snapshot.bodies
        body = bodies.body(row)
        return Piece(
            message=row.msg,
            role=row.role,
            kind=row.kind,
            body=body,
            ext=row.ext,
            call=row.call,
            tool=row.tool,
            error=row.error,
            extra=sound_notes(row.extra, body),
            files={suffix: bodies.file(row, suffix) for suffix in row.files},
            block=row.id,
        )


def _is_tool(tool: Any) -> bool:
    """Whether a value is a tool definition of a readable form."""
    return isinstance(tool, dict) and all(isinstance(tool.get(name, {}), dict) for name in ("function", "custom"))


class Subagent(NamedTuple):
    """A sub-agent's scope: its newest commit, and the id of the call that started it, empty if unknown."""

    tip: str
    task: str


def is_shared(row: Row) -> bool:
    """Whether exports have this block, as all have except deleted ones and dashboards."""
    return row.state != "deleted" and row.kind != "dashboard"


def _opened(store: Store, tip: str, scope: str) -> revision.Entry | None:
    """The first commit of a scope."""
    for entry in revision.history(store, tip):
        if entry.op == "scope" and store.reader.meta(entry.commit).scope == scope:
            return entry
    return None


#: Beginnings of model names → the provider, as models.dev names it.
_PROVIDERS = {
    "claude": "anthropic",
    "codex": "openai",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
    "grok": "xai",
    "deepseek": "deepseek",
    "mistral": "mistral",
}


def provider_of(model: str) -> str:
    """The provider of a model, which may be named `provider/model`; empty if unknown."""
    name = model.rpartition("/")[2].lower()
    return next((provider for start, provider in _PROVIDERS.items() if name.startswith(start)), "")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _is_picture(value: Any) -> bool:
    return _is_object(value) and _is_object(value.get("image_url", {}))


def _is_call(value: Any) -> bool:
    return _is_object(value) and (_is_object(value.get("function")) or _is_object(value.get("custom")))


#: Note → the check of its value. Other notes are fields of an item, with any value.
_NOTES: Mapping[str, Callable[[Any], bool]] = {
    "role": _is_text,
    "field": _is_text,
    "item": _is_text,
    "id": lambda value: value is None or _is_text(value),
    "content": _is_object,
    "message": _is_object,
    "part": _is_picture,
    "call": _is_call,
    "parts": lambda value: isinstance(value, bool) or _is_objects(value),
    "items": lambda value: _is_object(value) and all(map(_is_picture, value.values())),
    "output": lambda value: _is_object(value) or _is_objects(value),
    "parsed": lambda value: isinstance(value, bool),
}


def _is_json(body: bytes) -> bool:
    try:
        wire.parse(body)
    except ValueError:
        return False
    return True


def sound_notes(extra: Mapping[str, Any], body: bytes) -> Mapping[str, Any]:
    """`extra` without notes that importers would not write, or that do not fit the body."""
    if "openai" not in extra:
        return extra
    notes = extra["openai"] if isinstance(extra["openai"], dict) else {}
    valid = {name: value for name, value in notes.items() if name not in _NOTES or _NOTES[name](value)}
    if valid.get("parsed") and not _is_json(body):
        del valid["parsed"]
    if valid.get("field") == "message" and wire.parsed(body, dict) is None:
        del valid["field"]
    if valid.get("field") in ("content", "tool_calls") and not _is_json(body):
        del valid["field"]
    return extra if valid == extra["openai"] else {**extra, "openai": valid}
