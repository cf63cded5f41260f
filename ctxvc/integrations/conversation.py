"""A framework's conversation as a session: its messages are recorded once, and the prompt goes back in its form."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby, takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ctxvc.agent import managed
from ctxvc.agent.adapter import Adapter, annotated
from ctxvc.agent.call import with_ids
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.policy import Policy
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.prompt.request import canonical
from ctxvc.core.prompt.sanitise import Piece, valid
from ctxvc.core.view.budget import Budget
from ctxvc.integrations.closeable import Closeable
from ctxvc.session import append as incoming
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision

T = TypeVar("T")

#: The model's name in a session whose framework does not tell it.
UNKNOWN = "unknown"
_LONGEST_ID = 200
_MADE = re.compile("-[0-9a-f]{14}$")
#: A request with it gets no breakpoints: frameworks set their own.
_UNMARKED = {"type": "ephemeral"}
_BACK = "what ran this conversation went back to here; what came after is in {scope}"


class FrameworkMessage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A message of a framework. `id` is its name there, under which it is recorded once.

    `message` is it in the Messages API's form, the result of a call as a message of its own, and `source` the
    framework's own object. `origins` has that of each block, where they are not all `origin`. `record` is what that
    form has no place for: JSON that is kept with the message, for `Conversation.records`.
    """

    id: str
    message: Mapping[str, Any]
    source: T
    origin: Origin = "human"
    origins: Sequence[Origin] = ()
    record: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """The id, or what stands for one that is too long to be kept with each message."""
        if len(self.id) <= _LONGEST_ID:
            return self.id
        return hashlib.sha256(self.id.encode("utf-8", "surrogatepass")).hexdigest()


class Sent(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A message of the prompt in the Messages API's form, the result of a call as a message of its own.

    `source` is the framework's object that says exactly this, if there is one; else `basis` is the one with the same
    call or calls, if there is one.
    """

    message: dict[str, Any]
    source: T | None = None
    basis: T | None = None


class Conversation(Closeable):
    """A session behind a framework that keeps its own list of messages. Safe to call from several threads.

    For each call of the model: `take` that list, send `prompt`, and give `reply` what came back. `handle` answers calls
    of the context tools. Each raises CtxvcError where the session cannot go on.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.adapter = Adapter(session)
        self._lock = threading.RLock()
        self._blocks: dict[str, int] = {}  # id of a message → the number of its newest block, in any scope
        self._call_ids: dict[str, str] = {}  # a framework's id of a call → ours, for the newest call under that id
        self._by_scope: dict[str, set[str]] = {}  # scope → the ids of the messages there
        self._scanned: dict[str, int] = {}  # scope → the newest block number that `_blocks` knows of

    @staticmethod
    def open(
        path: str | Path,
        name: str,
        *,
        model: str = "",
        budget: int | Budget = 0,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] = (),
        policy: str | Policy = "",
    ) -> Conversation:
        """The conversation `name` of the store at `path`, new or as it was left, also by a process that was killed.

        `tools` are the agent's own, in the Messages API's form; a new session adds those of its policy, `default`
        unless another is named. The rest is as for `Session.open`. Raises: CtxvcError.
        """
        session = managed.open_session(path, name, model=model, budget=budget, system=system, own=tools, policy=policy)
        return Conversation(session)

    def close(self) -> None:
        """Commits what is complete, and closes the files."""
        self.session.close()

    # --- what comes in

    def take(self, messages: Sequence[FrameworkMessage[Any]]) -> None:
        """Records those of the framework's messages that are new, in their order.

        Where the newest recorded ones are missing among `messages`, the framework went back, as after a crash or to try
        something else: the session goes on in a new scope from there. Messages that are missing before that stay: what
        leaves the prompt is the policy's to say. So does the whole conversation where `messages` begin a new list.
        """
        with self._lock:
            self.session.stored.refresh()
            blocks = self.blocks()
            here = self._by_scope[self.session.scope]
            last = max((at for at, message in enumerate(messages) if message.name in here), default=-1)
            new = [
                message
                for at, message in enumerate(messages)
                if message.name not in blocks or (at > last >= 0 and message.name not in here)
            ]
            common = max((blocks[message.name] for message in messages if message.name in blocks), default=0)
            if common and self._is_ahead(common, {message.name for message in messages}):
                self._rewind(common)
                self.blocks()
                here = self._by_scope[self.session.scope]
                last = max((at for at, message in enumerate(messages) if message.name in here), default=-1)
                new = list(messages[last + 1 :])
            self._add(new)

    def _add(self, new: Sequence[FrameworkMessage[Any]]) -> None:
        """Records messages that are not in the scope."""
        for are_results, run in groupby(new, lambda message: bool(result_of(message))):
            if are_results:
                self._take_results(list(run))
                continue
            for message in run:
                self.adapter.append(as_recorded(self._with_ids(message)))

    def reply(self, message: FrameworkMessage[Any]) -> None:
        """Records the model's newest reply, before its calls are run. One that is empty is not recorded."""
        stop = "tool_use" if _calls(message.message) else "end_turn"
        with self._lock:
            if message.message.get("content") and message.name not in self.blocks():
                reply = self._with_ids(message).message
                self.adapter.record({**reply, "stop_reason": stop}, noted=_note(message))

    def end_interrupted(self, message_of: Callable[[str, str], FrameworkMessage[Any]]) -> None:
        """Answers the calls that a process before this one left open, by what `message_of` makes of id and tool."""
        with self._lock:
            open_calls = list(self.session.stored.open_calls)
            tools = {row.call: row.tool for row in self.session.ledger().rows() if row.call in open_calls and row.tool}
            if open_calls:
                self._take_results([message_of(call, tools.get(call, "")) for call in open_calls])

    def records(self) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        """The framework's messages in this scope, oldest first and whole: the Messages API's form, and the `record`.

        The record has the message's `id`, too.
        """
        bodies = revision.now(self.session.stored).bodies
        for _, run in groupby(self.session.ledger().rows(), lambda row: row.msg):
            rows = list(run)
            starts = [at for at, row in enumerate(rows) if record_of(row) is not None]  # results come several in one
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=False):
                content = [_block(row, bodies) for row in rows[start:end]]
                yield {"role": rows[start].role, "content": content}, record_of(rows[start]) or {}

    def has(self, name: str) -> bool:
        """Whether a message of that id is recorded."""
        with self._lock:
            return name in self.blocks()

    # --- what goes out

    def prompt(self, messages: Sequence[FrameworkMessage[T]], *, model: str = "") -> list[Sent[T]]:
        """The next prompt, within the budget, in the framework's own objects as far as these say the same.

        `model` is the session's from now on. Raises: OverBudget; BadInput while a call waits for its result.
        """
        with self._lock:
            name = model or self.session.ledger().meta.model or UNKNOWN
            call = self.adapter.request(model=name, cache_control=_UNMARKED)
        return list(_sent(call["messages"], messages))

    @property
    def final(self) -> bool:
        """Whether the reply to this prompt may call nothing: the context was too full for too long."""
        return self.adapter.final

    # --- tools

    def tools(self) -> list[dict[str, Any]]:
        """The definitions of the context tools that this session's model has."""
        definitions = revision.now(self.session.stored).tools
        tools = definitions if isinstance(definitions, list) else []
        return [tool for tool in tools if tool.get("name") in self.adapter.context_tools]

    def handle(self, call: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool] | None:
        """What the call with this id is answered, and whether that is an error; None for a tool of the agent's own.

        While the context is full and nothing may leave, calls of the agent's own tools are answered as well: they are
        not to be run. Raises: BadInput for a call of a context tool whose reply is not recorded.
        """
        own_id = self._call_ids.get(call, call)
        answer = self.adapter.handle({"type": "tool_use", "id": own_id, "name": name, "input": dict(arguments)})
        return None if answer is None else (str(answer["content"]), bool(answer.get("is_error")))

    # --- inside

    def _take_results(self, messages: Sequence[FrameworkMessage[Any]]) -> None:
        """Takes in results, those of open calls all together; any other is recorded, and is text in a prompt."""
        open_calls = set(self.session.stored.open_calls)
        answers: dict[str, FrameworkMessage[Any]] = {}
        late: list[FrameworkMessage[Any]] = []
        for message in messages:
            name = str(result_of(message).get("tool_use_id"))
            call = self._call_ids.get(name, name)
            if call in open_calls and call not in answers:
                answers[call] = _answering(call, message)
            else:
                late.append(message)
        noted = {call: _note(message) for call, message in answers.items()}
        self.adapter.results([result_of(message) for message in answers.values()], noted=noted)
        for message in late:
            self.adapter.append(as_recorded(message))

    def _with_ids(self, message: FrameworkMessage[T]) -> FrameworkMessage[T]:
        """A message whose calls have ids of their own in this scope: some servers count anew with each reply."""
        ids = [str(call["id"]) for call in _calls(message.message)]
        if not ids:
            return message
        used = {row.call for row in self.session.ledger().rows() if row.kind == "tool_use"}
        own = with_ids(message.message, used)
        self._call_ids.update(zip(ids, (str(call["id"]) for call in _calls(own)), strict=True))
        return msgspec.structs.replace(message, message=own)

    def blocks(self) -> Mapping[str, int]:
        """Id of each message that was recorded → the number of its newest block, in any scope."""
        for scope in self.session.scopes():
            scanned, ids = self._scanned.get(scope, 0), self._by_scope.setdefault(scope, set())
            for row in takewhile(lambda row: row.number > scanned, self.session.ledger(scope).backwards()):  # noqa: B023
                self._scanned[scope] = max(row.number, self._scanned.get(scope, 0))
                if (record := record_of(row)) is not None:
                    name = str(record.get("id"))
                    ids.add(name)
                    self._blocks[name] = max(row.number, self._blocks.get(name, 0))
        return self._blocks

    def _is_ahead(self, common: int, ids: set[str]) -> bool:
        """Whether this scope has a message behind the block `common` that is not among `ids`."""
        later = takewhile(lambda row: row.number > common, self.session.ledger().backwards())
        return any(name not in ids for name in _ids(later))

    def _rewind(self, common: int) -> None:
        """Goes on in a new scope from the end of the last step that has no message behind the block `common`."""
        session = self.session
        if session.stored.open_calls:
            session.stored.finish()
        commit = self.commit_before(common)
        scope_names = session.scopes()
        name = next(name for number in count(1) if (name := f"rewind-{number}") not in scope_names)
        session.open_scope(name, _BACK.format(scope=session.scope), revision=commit)
        self._begin()

    def _begin(self) -> None:
        """Gives a scope what a conversation begins with: a step before the first has no text of the policy yet."""
        self.session.begin()

    def commit_before(self, common: int) -> str:
        """The commit of the last step that has no message behind the block `common`."""
        session = self.session
        session.stored.flush()
        block = f"B{common}"
        scopes = (session.scope, *session.scopes())
        scope = next(scope for scope in scopes if session.ledger(scope).get(block))
        step = session.ledger(scope)[block].step
        later = takewhile(lambda row: row.number > common, session.ledger(scope).backwards())
        if any(row.step == step and record_of(row) is not None for row in later):
            step -= 1
        reader = StoredSession.open(session.store, session.name, scope)
        reader.leave()
        return revision.resolve(session.store, reader, f"step:{step}").commit


def session_name(text: str) -> str:
    """The name of a session for a framework's name of a conversation: the same each time, and of no other.

    What differs by case alone, or ends like a name that was made here, is another name, too.
    """
    if text == text.lower() and not name_rules.problem(text) and not _MADE.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:14]
    return f"{name_rules.slug(text).lower()[:80].rstrip('-._')}-{digest}"


def _block(row: Row, bodies: Bodies) -> dict[str, Any]:
    return wire.block(
        kind=row.kind,
        body=bodies.body(row),
        ext=row.ext,
        call=row.call,
        tool=row.tool,
        error=row.error,
        extra=row.extra,
        files={suffix: bodies.file(row, suffix) for suffix in row.files},
    )


def _note(message: FrameworkMessage[Any]) -> dict[str, Any]:
    return {"record": {**message.record, "id": message.name}}


def as_recorded(message: FrameworkMessage[Any]) -> Message:
    recorded = incoming.message(message.message, message.origin)
    if message.origins:
        pairs = zip(recorded.parts, message.origins, strict=True)
        parts = tuple(msgspec.structs.replace(part, origin=origin) for part, origin in pairs)
        recorded = msgspec.structs.replace(recorded, parts=parts)
    return annotated(recorded, _note(message))


def record_of(row: Row) -> Mapping[str, Any] | None:
    """What is recorded of the framework's message that begins with this row, its `id` too; None for any other row."""
    record = wire.own_metadata(row.extra).get("record")
    return record if isinstance(record, dict) else None


def _ids(rows: Iterable[Row]) -> Iterator[str]:
    """The ids of the messages that begin with these rows."""
    return (str(record.get("id")) for record in map(record_of, rows) if record is not None)


def result_of(message: FrameworkMessage[Any]) -> Mapping[str, Any]:
    """The result that a message is; empty for any other message."""
    match message.message.get("content"):
        case [{"type": "tool_result"} as result]:
            return dict(result)
    return {}


def _answering(call: str, message: FrameworkMessage[T]) -> FrameworkMessage[T]:
    """The message of a result, as that of the call with this id."""
    block = {**result_of(message), "tool_use_id": call}
    return msgspec.structs.replace(message, message={"role": "user", "content": [block]})


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if block.get("type") == "tool_use"]


def _sent(prompt: Sequence[Mapping[str, Any]], messages: Sequence[FrameworkMessage[T]]) -> Iterator[Sent[T]]:
    """The messages of a prompt, parted as a framework's are, each with the object that it is or comes from."""
    exact: dict[bytes, T] = {}
    bases: dict[tuple[str, str], T] = {}
    lengths: set[int] = set()
    for item in messages:
        role, content = item.message["role"], _as_sent(item.message)
        exact[_key(role, content)] = item.source
        bases.update(((role, name), item.source) for name in _call_ids(content))
        lengths.add(len(content))
    for message in prompt:
        role = message["role"]
        for content in _parted(role, message["content"], exact, sorted(lengths, reverse=True)):
            basis = next((bases[role, name] for name in _call_ids(content) if (role, name) in bases), None)
            yield Sent(message={"role": role, "content": content}, source=exact.get(_key(role, content)), basis=basis)


def _parted(
    role: str, content: list[dict[str, Any]], exact: Mapping[bytes, object], lengths: Sequence[int]
) -> Iterator[list[dict[str, Any]]]:
    """The content of a message as a framework has it: a result alone, what is in `exact` and the rest together."""
    if role == "assistant":
        yield content
        return
    loose: list[dict[str, Any]] = []
    at = 0
    while at < len(content):
        is_result = content[at].get("type") == "tool_result"
        length = 1 if is_result else next((n for n in lengths if _key(role, content[at : at + n]) in exact), 0)
        if length and loose:
            yield loose
            loose = []
        if length:
            yield content[at : at + length]
        else:
            loose.append(content[at])
        at += length or 1
    if loose:
        yield loose


def _key(role: str, content: Sequence[Mapping[str, Any]]) -> bytes:
    return canonical([role, *content])


def _call_ids(content: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of the calls that are made or answered here."""
    names = {"tool_use": "id", "tool_result": "tool_use_id"}
    return [str(block.get(names[block["type"]])) for block in content if block.get("type") in names]


def _as_sent(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The content of a message as a prompt has it that nothing took out of it.

    Text that reads as one of ours is guarded in a prompt, so it is never equal to this: what the model gets is guarded.
    """
    recorded = incoming.message(message, "client")
    content = [
        Piece(
            message=0,
            role=part.role,
            kind=part.kind,
            body=part.body,
            ext=part.ext,
            call=part.call,
            tool=part.tool,
            error=part.error,
            extra=part.extra,
            files=dict(part.files),
        )
        for part in recorded.parts
    ]
    return [block for piece in valid(content) if piece.role == recorded.role for block in formats.content(piece)]
