"""A scope of a session, built from a client's requests: each request and its reply become the next step.

A client sends its whole history each time. What a request has in common with the one before is already recorded; its
new messages and the reply are appended, with the request's body in pieces, of which only changed ones are written. If
the history is a different one, because the client compacted it, edited it or went back, that is recorded as the host's
edit or as a new scope. Comparisons use what is recorded: bodies without their secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timezone
from itertools import chain, count, groupby, islice, takewhile
from operator import eq
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.prompt.request import parameters
from ctxvc.core.recording.recast import Recast, applied, recast
from ctxvc.errors import BadInput
from ctxvc.forms import splice
from ctxvc.forms.form import Form, Prompt, Reply
from ctxvc.store import format as fmt
from ctxvc.store import timestamp
from ctxvc.store.git import objects
from ctxvc.store.log.stored_session import RedactedMessages, StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Snapshot, joined_body
from ctxvc.store.store import Store, request_files
from ctxvc.wire.exchange import Exchange

#: The scope of the calls that a client makes beside its conversation.
SIDE = "side"
#: The prefix of the names of sub-agents' scopes.
AGENT = "agent-"
#: The most commits before the newest in which to look for a history that a client went back to.
_BACK = 400
#: The most commits before the newest that may be of an exchange whose recording was never acknowledged.
_RESENT = 50
#: A block of Claude Code's system prompt that differs in each request.
_VOLATILE = re.compile(rb'\{"type":"text","text":"x-anthropic-billing-header:[^"]*"\},?')
_WENT_BACK = "the client went back to this point"
#: The end of the names of scopes in which a client that went back continues.
_REWIND = re.compile(r"(?:^|-)rewind-\d+$")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed exchange: the prompt of its request, and the reply, None if there is none."""

    exchange: Exchange
    prompt: Prompt
    reply: Reply | None = None


class Likeness(NamedTuple):
    """What a prompt shares with a conversation: whether it goes on from the newest reply, and the number of messages in
    common with the newest request."""

    goes_on: bool
    messages: int


class Conversation:
    """A scope of a session, and the contents of its newest request. It owns `stored`.

    Without `goes_back`, it stays in its scope, whatever the requests have in common.
    """

    def __init__(self, stored: StoredSession, form: Form, *, goes_back: bool = True) -> None:
        self.stored = stored
        #: The scope of the client's history. A policy may have moved the session to another one.
        self.line = stored.scope
        self.form = form
        self._goes_back = goes_back
        self._redactor = stored.store.redaction.of(stored.name)
        self._clean: dict[bytes, bytes] = {}  # a piece's checksum → the piece without secrets, empty if it has none
        self.unfinished: Call | None = None  #: the newest call, if its reply broke off: not on disk yet
        self._is_in_part = False  # whether the newest reply broke off: a client may keep a part of it
        self._load()

    def _load(self) -> None:
        """Loads the newest request from the store."""
        body = joined_body(self.stored.store, self._client_pieces())
        self._pieces = {
            path: blob_id(piece) if isinstance(piece, bytes) else piece for path, piece in self._all_pieces().items()
        }
        self.prints: tuple[bytes, ...] = self._prompt_of(body).prints if body else ()
        self._reply_prints: tuple[bytes, ...] = ()
        self._reply_id = ""
        self._is_continued = False  # whether `prints` are of another agent's session, which this one continues
        self._frame = dict(request_files(*self.stored.system_and_tools()))
        self._parameters = parameters(body)
        self._reader = self.form.reader()
        self._has_read = False  # whether the reader has seen what is recorded
        self._newest = self.stored.next_block

    def _prompt_of(self, body: bytes) -> Prompt:
        """The prompt of a recorded body; an empty one for a body in another form, from before a change of provider."""
        try:
            return self.form.prompt(body)
        except BadInput:
            return _NOTHING

    def goes_on_after(self, prompt: Prompt, count: int) -> None:
        """Takes the first `count` messages of the prompt for what is recorded, however the client writes them."""
        self.prints, self._is_continued = prompt.prints[:count], True

    def _all_pieces(self) -> dict[str, str | bytes]:
        """What is recorded with the newest reply: path → its bytes, or the id of its blob."""
        return self.stored.pieces()

    def _client_pieces(self) -> dict[str, str | bytes]:
        """The pieces of the newest request's body as the client sent it."""
        return self.stored.pieces()

    @property
    def is_waiting(self) -> bool:
        """Whether calls of the newest reply have no results yet."""
        return bool(self.stored.open_calls)

    def shared(self, prompt: Prompt) -> int:
        """The number of messages that the prompt has in common with the newest one here, from the first on."""
        return sum(1 for _ in takewhile(bool, map(eq, self.prints, prompt.prints)))

    def likeness(self, prompt: Prompt) -> Likeness:
        """What the prompt shares with the conversation."""
        shared = self.shared(prompt)
        return Likeness(0 < shared == len(self.prints) and self._has_reply(prompt, shared), shared)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded yet."""
        return not len(self.stored.ledger())

    @property
    def has_tools(self) -> bool:
        return bool(self.stored.system_and_tools()[1])

    def has_system(self, prompt: Prompt) -> bool:
        """Whether the newest request had the prompt's system prompt."""
        files = dict(request_files(prompt.system, None))
        own = {path for path in self._frame if path.startswith("request/system")}
        return own == files.keys() and all(_lasting(files, path) == _lasting(self._frame, path) for path in own)

    def is_framed_as(self, prompt: Prompt) -> bool:
        """Whether the newest request had the prompt's system prompt, or tools of the same names."""
        if not self._frame:
            return True  # it was not recorded
        ours = self._names(prompt)
        recorded = (tool.get("name") for tool in self.stored.system_and_tools()[1] or ())
        names = [name for name in recorded if name not in ours]
        return names == [tool.get("name") for tool in prompt.tools] or self.has_system(prompt)

    def is_continued_by(self, prompt: Prompt) -> bool:
        """Whether a prompt without its history continues the newest reply: by its id, or with results of its calls."""
        calls = self.stored.open_calls
        parts = [part for message in self.form.reader().messages(prompt.messages) for part in message.parts]
        has_results = any(part.kind == "tool_result" and part.call in calls for part in parts)
        return has_results or prompt.continues == self._reply_id

    def _names(self, _prompt: Prompt) -> Set[str]:
        """The names of tools that the model gets in addition to the client's."""
        return frozenset()

    def has_calls_of(self, prompt: Prompt) -> bool:
        """Whether a call in the prompt is recorded here."""
        calls = {row.call for row in self.stored.ledger().rows() if row.kind == "tool_use"}
        messages = self.form.reader().messages(prompt.messages) if calls else []
        return any(part.kind == "tool_use" and part.call in calls for message in messages for part in message.parts)

    def cleaned(self, body: bytes) -> tuple[dict[str, bytes], bytes]:
        """A body's pieces without secrets, by their paths in the store, and the body that they form."""
        clean = {f"{fmt.BODY}/{name}": self._without_secrets(piece) for name, piece in splice.in_pieces(body)}
        return clean, b"".join(clean.values())

    def take(self, call: Call) -> None:
        """Records a call as the next step. A reply that broke off waits to see what the client does with it.

        Raises: CtxvcError; the call is not recorded then.
        """
        self.stored.refresh()
        if self._newest != self.stored.next_block:
            self._load()  # another writer was here
        unfinished, self.unfinished = self.unfinished, None
        if unfinished and unfinished.prompt.prints != call.prompt.prints:
            self._record(unfinished)
        if call.reply is None or not call.reply.complete:
            self.unfinished = call if call.reply and call.reply.messages else None
        else:
            self._record(call)

    def close(self) -> None:
        """Records a reply that broke off, if any, and closes the files. Raises: CtxvcError."""
        try:
            if self.unfinished:
                self._record(self.unfinished)
        finally:
            self.unfinished = None
            self.stored.close()

    # --- what a request adds

    def _record(self, call: Call) -> None:
        files, body = self.cleaned(call.exchange.body)
        if body != call.exchange.body:
            call = msgspec.structs.replace(call, prompt=self.form.prompt(body))
        try:
            self._append(call, self._incoming(call.prompt), files)
        except BaseException:
            self._load()
            raise

    def _incoming(self, prompt: Prompt) -> RedactedMessages:
        """The messages that the prompt adds to the recorded ones, after the scope has been given its history."""
        common = self.shared(prompt)
        is_whole = common == len(self.prints)
        repeated = self._repeated(prompt, common) if is_whole and self.prints else 0
        if prompt.continues or (is_whole and (repeated or self.is_empty or self._is_continued)):
            return self.stored.redacted_messages(self._read_on(prompt, common + repeated))
        is_ahead = is_whole and (self._is_in_part or self._has_reply(prompt, common))
        if not is_ahead and (commit := self._step_before(prompt, common)):
            self._go_back(commit)
            return self._incoming(prompt)
        return self._edit(prompt)

    def _read_on(self, prompt: Prompt, start: int) -> list[Message]:
        """The prompt's messages from number `start` on, after the reader has seen those before."""
        if not self._has_read and start:
            self._reader.messages(prompt.messages[:start])
        self._has_read = True
        return self._reader.messages(prompt.messages[start:])

    def _repeated(self, prompt: Prompt, start: int) -> int:
        """The number of messages from `start` on that repeat the newest reply; 0 if it is not there unchanged."""
        prints = self._reply_prints
        if prints and prompt.prints[start : start + len(prints)] == prints:
            return len(prints)
        run = list(takewhile(is_reply, self._one_by_one(prompt, start)))
        return len(run) if run and gist_of(chain(*run)) == _newest_gist(revision.now(self.stored)) else 0

    def _has_reply(self, prompt: Prompt, start: int) -> bool:
        """Whether the newest reply is among the messages from number `start` on.

        It need not be the first: a request may bring replies that were not recorded, and not be answered itself.
        """
        if self._repeated(prompt, start):
            return True
        newest = _newest_gist(revision.now(self.stored))
        runs = groupby(self._one_by_one(prompt, start), is_reply)
        return any(replied and gist_of(chain(*run)) == newest for replied, run in runs)

    def _one_by_one(self, prompt: Prompt, start: int) -> Iterable[list[Message]]:
        """The messages from number `start` on, read one by one."""
        for message in prompt.messages[start:]:
            yield self.form.reader().messages([message])

    # --- a history that has changed

    def _step_before(self, prompt: Prompt, common: int) -> str:
        """The newest commit whose history the prompt continues, if it has nothing recorded later.

        Empty if there is none, or if the prompt also has something recorded later: then it was edited.
        """
        later = {*self.prints[common:], *self._reply_prints}
        if not (self._goes_back and common) or not later.isdisjoint(prompt.prints[common:]):
            return ""
        store, first = self.stored.store, ""
        for entry in islice(revision.history(store, self.stored.tip()), _BACK):
            if entry.op != "step":
                is_beginning = entry.op in ("session", "scope")
                first = entry.commit if is_beginning and not len(store.reader.ledger(entry.commit)) else first
                continue
            earlier = self._prompt_at(entry.commit)
            start = len(earlier.prints)
            if start > common or earlier.prints != prompt.prints[:start]:
                continue
            run = list(takewhile(is_reply, self._one_by_one(prompt, start)))
            if run and gist_of(chain(*run)) == _newest_gist(revision.at(store, entry.commit)):
                return entry.commit
        return first

    def _prompt_at(self, commit: str) -> Prompt:
        store = self.stored.store
        stored_pieces: dict[str, str | bytes] = dict(
            store.reader.pieces(commit, fmt.CLIENT) or store.reader.pieces(commit)
        )
        return self._prompt_of(joined_body(store, stored_pieces)) if stored_pieces else _NOTHING

    def _go_back(self, commit: str) -> None:
        """Continues in a new scope from `commit`; what came after that stays in the old scope."""
        stored = self.stored
        if stored.in_step:
            stored.finish()
        source = stored.ledger().meta.source
        scopes, stem = stored.scopes(), f"{stored.scope}-" if stored.scope.startswith(AGENT) else ""
        name = next(name for number in count(1) if (name := f"{stem}rewind-{number}") not in scopes)
        stored.fork(name, _WENT_BACK, commit=commit, source=source.id if source else "")
        is_current = stored.store.current_scope(stored.name) == stored.scope
        stored.close()
        self.stored = StoredSession.open(stored.store, stored.name, name)
        self.line = name
        if is_current:
            self.stored.store.set_current_scope(stored.name, name)
        self._load()

    def _edit(self, prompt: Prompt) -> RedactedMessages:
        """Gives the scope the client's current history; returns the messages that come after everything recorded."""
        self._reader, self._has_read = self.form.reader(), True
        messages = self.stored.redacted_messages(self._reader.messages(self._history(prompt)))
        with self.stored.writing() as transaction:
            scope = self.stored.scope
            ledger = transaction.ledger(scope)
            changes = self._recast(ledger, messages)
            inside = [(message, before) for message, before in changes.additions if before]
            rows, groups = _changed(ledger, changes, inside, transaction.block, self.stored.next_group)
            if rows or groups:
                transaction.verb(
                    scope,
                    op="compact",
                    actor="host",
                    subject=f"edit by the client: {sum(not row.present for row in rows)} blocks left",
                    parts=[part for message, _ in inside for part in message.parts],
                    rows=rows,
                    groups=groups,
                )
                self.stored.acknowledge(transaction)
        return RedactedMessages(tuple(message for message, before in changes.additions if not before))

    def _history(self, prompt: Prompt) -> Sequence[Any]:
        """The messages of the conversation as the model saw them."""
        return prompt.messages

    def _recast(self, ledger: Ledger, messages: Sequence[Message]) -> Recast:
        """The changes that these messages make to the blocks of the ledger."""
        return recast(ledger, messages, lambda row: self.stored.body(row, ledger.meta.scope), moves=True)

    # --- writing

    def _append(self, call: Call, incoming: RedactedMessages, pieces_now: dict[str, bytes]) -> None:
        exchange, prompt, reply = call.exchange, call.prompt, call.reply
        assert reply is not None
        answer = self.stored.redacted_messages(
            dated(message, exchange.ended) for message in self._reader.messages(reply.messages, reply)
        )
        came = RedactedMessages(tuple(dated(message, exchange.began) for message in incoming))
        if any(message.role == "assistant" for message in came):
            self._pieces = {}  # steps of replies without a request here have no body
        files, without, frame = self._files(prompt, pieces_now)
        fields = parameters(b"".join(pieces_now.values()))
        trailers = self._trailers(reply, frame, fields)
        renamed = prompt.model and prompt.model != self.stored.ledger().meta.model
        scope = self.stored.scope
        with self.stored.writing() as transaction:
            for at, entry in self.stored.number(transaction, came, scope):
                is_reply = any(row.role == "assistant" for row in entry.rows)
                transaction.append(at, AdmittedEntry(entry, without=(fmt.BODY,) if is_reply else ()))
            for at, entry in self.stored.number(transaction, answer, scope):
                admitted = AdmittedEntry(entry)
                if any(row.role == "assistant" for row in entry.rows):
                    admitted = AdmittedEntry(
                        entry,
                        {"model": prompt.model} if renamed else {},
                        trailers,
                        files,
                        without,
                    )
                    files, without = (), ()
                transaction.append(at, admitted)
            self.stored.acknowledge(transaction)
        self.prints, self._reply_prints, self._reply_id = prompt.prints, tuple(reply.prints), reply.id
        self._is_in_part, self._is_continued = not reply.complete, False
        self._pieces = {path: blob_id(piece) for path, piece in pieces_now.items()}
        self._frame, self._parameters, self._newest = frame, fields, self.stored.next_block

    def _trailers(self, reply: Reply, frame: Mapping[str, bytes], fields: Mapping[str, bytes]) -> dict[str, str]:
        return {
            "Ctxvc-Stop": "" if reply.complete else "interrupted",
            "Ctxvc-Changed": self._changed(frame, fields),
        }

    def _files(
        self, prompt: Prompt, pieces_now: dict[str, bytes]
    ) -> tuple[tuple[tuple[str, bytes], ...], tuple[str, ...], dict[str, bytes]]:
        """The files of the request that are new in the scope, the paths that it drops, and all files of the frame."""
        frame = dict(request_files(prompt.system, list(prompt.tools)))
        files = {path: piece for path, piece in pieces_now.items() if self._pieces.get(path) != blob_id(piece)}
        files |= {path: data for path, data in frame.items() if self._frame.get(path) != data}
        without = (*(self._pieces.keys() - pieces_now.keys()), *(self._frame.keys() - frame.keys()))
        return tuple(files.items()), tuple(sorted(without)), frame

    def _changed(self, frame: Mapping[str, bytes], fields: Mapping[str, bytes]) -> str:
        """What differs from the previous request besides messages: `system`, `tools`, names of parameters."""
        if not self._pieces:
            return ""
        paths = [
            path for path in frame.keys() | self._frame.keys() if _lasting(frame, path) != _lasting(self._frame, path)
        ]
        names = {path.partition("/")[2].partition(".")[0] for path in paths}
        names |= {
            name for name in fields.keys() | self._parameters.keys() if fields.get(name) != self._parameters.get(name)
        }
        return ", ".join(sorted(names))

    def _without_secrets(self, piece: bytes) -> bytes:
        if self._redactor is None:
            return piece
        checksum = hashlib.sha1(piece, usedforsecurity=False).digest()
        if checksum not in self._clean:
            clean = self._redactor.body(piece, "json")
            self._clean[checksum] = b"" if clean == piece else clean
        return self._clean[checksum] or piece


def left_behind(stored: StoredSession) -> list[range]:
    """The numbers of the blocks that a client left behind by going back, on the way to the session's scope."""
    scope, ranges, scopes = stored.scope, [], stored.scopes()
    while (parent := stored.ledger(scope).meta.parent) in scopes:
        if _REWIND.search(scope):
            earlier, now = stored.ledger(parent), stored.ledger(scope)
            shared = [row.number for row in now.rows() if earlier.get(row.id) is not None]
            own = [row.number for row in now.rows() if earlier.get(row.id) is None]
            ranges.append(range(max(shared, default=0) + 1, min(own, default=stored.next_block)))
        scope = parent
    return ranges


def is_recorded(store: Store, session: str, scope: str, call: Call, form: Form) -> bool:
    """Whether one of the newest steps of a scope has the call's request body and its reply. Raises: CtxvcError."""
    if call.reply is None:
        return False
    stored = StoredSession.for_reading(store, session, scope)
    redactor = store.redaction.of(session)
    own = {}
    for name, piece in splice.in_pieces(call.exchange.body):
        own[f"{fmt.BODY}/{name}"] = blob_id(redactor.body(piece, "json") if redactor else piece)
    now = {path: blob_id(piece) if isinstance(piece, bytes) else piece for path, piece in stored.pieces().items()}
    steps = [revision.now(stored)] if now == own else []
    for entry in islice(revision.history(store, stored.tip()), _RESENT):
        if store.reader.pieces(entry.commit) == own:
            steps.append(revision.at(store, entry.commit))
    gist = gist_of(stored.redacted_messages(form.reader().messages(call.reply.messages, call.reply)))
    return any(_newest_gist(step) == gist for step in steps)


def _lasting(frame: Mapping[str, bytes], path: str) -> bytes:
    """A file of the frame without the block that differs in each request."""
    return _VOLATILE.sub(b"", frame.get(path, b""))


_NOTHING = Prompt(model="", system=None, tools=(), messages=(), prints=(b"",), stream=False)


def _changed(
    ledger: Ledger, changes: Recast, inside: Sequence[tuple[Message, str]], block: int, group: int
) -> tuple[list[Row], list[Group]]:
    """The rows and groups of `ledger` that the changes alter; `inside` are new messages with the block before which
    they belong."""
    numbering = Numbering.of(ledger, block)
    added = [(before, numbering.aside(message)[0]) for message, before in inside]
    after = applied(ledger.with_rows(row for _, rows in added for row in rows), changes, added, "host", group)
    rows = [row for row in after.rows() if (old := ledger.get(row.id)) is not None and old != row]
    empty = [Group(id=name, members=()) for name in ledger.groups.keys() - after.groups.keys()]
    return rows, [*empty, *(item for name, item in after.groups.items() if ledger.groups.get(name) != item)]


def is_reply(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" for message in messages)


def gist(parts: Iterable[tuple[str, str, bytes]]) -> tuple[list[bytes], bytes]:
    """The calls and the text of a reply, by which it is recognised however a client writes it.

    A part is given as kind, tool and body.
    """
    reply = list(parts)
    calls = sorted(tool.encode() + b"".join(body.split()) for kind, tool, body in reply if kind == "tool_use")
    return calls, b"".join(b"".join(body.split()) for kind, _, body in reply if kind == "assistant")


def gist_of(messages: Iterable[Message]) -> tuple[list[bytes], bytes]:
    return gist((part.kind, part.tool, part.body) for message in messages for part in message.parts)


def _newest_gist(snapshot: Snapshot) -> tuple[list[bytes], bytes]:
    """The gist of the newest reply in a snapshot."""
    ledger = snapshot.ledger
    newest = next((row.msg for row in ledger.backwards() if row.role == "assistant"), 0)
    rows = [row for row in ledger.rows() if row.msg == newest and row.role == "assistant"]
    return gist((row.kind, row.tool, snapshot.bodies.body(row)) for row in rows)


def blob_id(data: bytes) -> str:
    """The git id of a blob with these bytes, in hexadecimal."""
    return objects.blob_id(data).hex()


def dated(message: Message, seconds: float) -> Message:
    """The message with this time, in seconds since 1970."""
    time = timestamp.text(datetime.fromtimestamp(seconds, timezone.utc), "milliseconds")
    return msgspec.structs.replace(message, time=time)
