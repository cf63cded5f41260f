"""Keeps a conversation's prompts inside a budget: edits a client's request before it goes to the model.

A client sends its whole history each time. The ledger's edits are applied to the client's own messages, so that what
stays keeps its bytes and the next prompt begins like this one.

The model may call tools that the client does not have. Such a call and its result pass *aside*: they are in the prompt
after the message that they followed, and in nothing that the client gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from operator import is_not
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.agent.adapter import Adapter
from ctxvc.agent.tools.definitions import definitions, ours
from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row, outermost
from ctxvc.core.ledger.numbering import ASIDE
from ctxvc.core.ledger.pairs import calls_and_results
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.prompt import formats, stub
from ctxvc.core.prompt.outline import Slot, outline, pieces
from ctxvc.core.prompt.request import parameters
from ctxvc.core.prompt.sanitise import alone
from ctxvc.core.recording.recast import Recast, recast
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import is_protocol
from ctxvc.errors import CtxvcError
from ctxvc.forms.form import Answer, Form, Prompt, Reply
from ctxvc.session.context import budget_fields
from ctxvc.session.session import Session
from ctxvc.store import format as fmt
from ctxvc.store.log.stored_session import RedactedMessages, StoredSession
from ctxvc.store.log.transaction import Attachment
from ctxvc.store.read.revision import CLIENT_TOKENS, joined_body
from ctxvc.tokens import calibration, models
from ctxvc.wire.conversation import (
    AGENT,
    SIDE,
    Call,
    Conversation,
    blob_id,
    dated,
    gist,
    gist_of,
    is_reply,
    left_behind,
)
from ctxvc.wire.exchange import Answered, Managed, Management, Requested
from ctxvc.wire.managed_prompt import Item, Places, Texts, key, messages

#: The most continuations of one reply: a model that only recovers blocks would never answer.
_MOST_CONTINUATIONS = 50
_FOLDERS = (fmt.BODY, fmt.CLIENT, fmt.ASIDES)


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """Replies with calls of our tools, in the client's form; the client gets a part of them, or nothing.

    They follow the request whose messages have the digest `after`. Our results are in the ledger.
    """

    after: str
    replies: tuple[tuple[Any, ...], ...] = ()


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A pending request: its prompt as it came and without secrets, and the body that went to the model."""

    requested: Requested
    own: Prompt  # as it came
    prompt: Prompt
    body: bytes
    continuations: int = 0
    answered: bool = False  # whether the model's last reply to it is recorded


class ManagedConversation(Conversation):
    """A scope of a session whose prompts are kept inside a budget. `session` acts on the same stored session."""

    def __init__(self, stored: StoredSession, form: Form, management: Management) -> None:
        self.management = management
        self._policy = policies.parse(management.policy)
        self._sent: dict[int, _Sent] = {}
        self._broken: _Sent | None = None  # the newest request whose answer broke off
        super().__init__(stored, form)

    def _load(self) -> None:
        self.session = self._opened()
        self._tools: list[dict[str, Any]] | None = None
        self._forget_places()
        self._loaded = self.stored.scope
        self._prepared: Ledger | None = None  # the ledger of the newest prompt
        stored_asides = self._folder(fmt.ASIDES)
        decoded = [
            msgspec.json.decode(joined_body(self.stored.store, {path: item}), type=Aside)
            for path, item in stored_asides.items()
        ]
        self._asides = {aside.after: aside for aside in decoded}
        super()._load()

    def _forget_places(self) -> None:
        self._places = Places(self.form, self.stored.redacted_messages, self._body)
        self._known: tuple[list[Ledger], list[Row]] = [], []  # the ledgers of the scopes that count, and their rows

    def _edit(self, prompt: Prompt) -> RedactedMessages:
        try:
            return super()._edit(prompt)
        finally:
            self._forget_places()  # a message may belong to another block now

    def _opened(self) -> Session:
        """The session, under the policy and the budget. Raises: CtxvcError."""
        session = Session(self.stored, policy=self._policy)
        session.shows_tags = False
        budget, meta = self.management.budget, session.ledger().meta
        guess: dict[str, Any] = {}
        if len(session.ledger()):
            session.resume()
        else:
            guess = {"calibration": tuple(calibration.initial(meta.model, budget))}
        session.set(**guess, **budget_fields(Budget(budget)), policy=policies.spec(self._policy))
        session.begin()
        return session

    def _folder(self, folder: str) -> dict[str, str | bytes]:
        """The contents of the folder as of the newest reply."""
        return self.stored.pieces(self._newest_scope(), folder)

    def _newest_scope(self) -> str:
        """The scope of the newest reply, which is not the session's if the session has switched since."""
        scope, scopes = self.stored.scope, self.stored.scopes()
        for _ in scopes:
            ledger = self.stored.ledger(scope)
            since = takewhile(lambda row: row.role != "assistant", ledger.backwards())
            notes = (wire.own_metadata(row.extra).get("left") for row in since if row.kind == "note")
            origin = next(filter(None, notes), "")
            if origin not in scopes and not any(row.role == "assistant" for row in ledger.rows()):
                origin = ledger.meta.parent
            if origin not in scopes:
                break
            scope = origin
        return scope

    def _all_pieces(self) -> dict[str, str | bytes]:
        if self._newest_scope() != self.stored.scope:
            return {}  # everything is written anew
        return {path: item for folder in _FOLDERS for path, item in self.stored.pieces(folder=folder).items()}

    def _client_pieces(self) -> dict[str, str | bytes]:
        return self._folder(fmt.CLIENT) or self._folder(fmt.BODY)

    def close(self) -> None:
        self.session.save_counts()
        super().close()

    @property
    def is_empty(self) -> bool:
        return all(map(_is_ours, self.stored.ledger().rows()))

    # --- a request

    def request(self, requested: Requested, prompt: Prompt) -> Managed:
        """The request that goes to the model. Raises: CtxvcError if the client's own must go instead."""
        self._refresh()
        _, clean = self.cleaned(requested.body)
        redacted = prompt if clean == requested.body else self.form.prompt(clean)
        tools = self.tools(prompt)
        self.session.framed(prompt.system, [*prompt.tools, *tools])
        is_new = self._take_in(redacted, requested.began)
        if prompt.model:
            self.session.set(model=prompt.model)
        if is_new or not self._is_prepared():
            self._prepare()
        body = self._outgoing(requested.body, prompt, redacted)
        sent = _Sent(requested=requested, own=prompt, prompt=redacted, body=body)
        self._sent[requested.number] = sent
        self._newest = self.stored.next_block
        return Managed(body=sent.body, tools=tuple(str(tool["name"]) for tool in tools))

    def continued(self, body: bytes, prompt: Prompt) -> bytes:
        """The body of a request whose history is at the provider, up to the reply that the client names, with what
        passed aside since. Raises: CtxvcError if nothing did, so that the request goes out unchanged.
        """
        unseen: list[Any] = []
        if aside := self._asides.get(_digest(self.prints)):
            items, answers = self._aside_items(aside, prompt)
            unseen = [item.value for item in items[len(aside.replies[0]) :]] + self.form.results(None, answers)
        if not unseen:
            raise CtxvcError("the provider keeps its history")
        return self.form.spliced(body, [*unseen, *range(len(prompt.messages))], ())

    def count_body(self, requested: Requested, prompt: Prompt) -> Managed:
        """The prompt as it would be sent now, to be counted; records nothing. Raises: CtxvcError."""
        _, clean = self.cleaned(requested.body)
        redacted = prompt if clean == requested.body else self.form.prompt(clean)
        self._locate(redacted)
        return Managed(body=self._outgoing(requested.body, prompt, redacted))

    def tools(self, prompt: Prompt) -> list[dict[str, Any]]:
        """Our tools that the model gets, fixed by the first request."""
        if self._tools is None:
            recorded = self.stored.system_and_tools()[1]
            offered = self._policy.terms_in(self.session.budget.window).tools
            if recorded:
                names = ours(recorded, offered)
                self._tools = [tool for tool in recorded if tool.get("name") in names]
            else:
                self._tools = tools_of(self.management, prompt) if self.is_empty else []
        return self._tools

    def prompt_of(self, number: int) -> Prompt | None:
        """The prompt of a pending request as the client sent it; None if the request is not managed."""
        sent = self._sent.get(number)
        return sent.own if sent else None

    def _refresh(self) -> None:
        self.stored.refresh()
        if self._newest != self.stored.next_block or self._loaded != self.stored.scope:
            self._reload()  # another writer was here

    def _reload(self) -> None:
        prints, reply_prints = self.prints, self._reply_prints
        self._load()
        if self.prints == prints:
            self._reply_prints = reply_prints

    def _prepare(self) -> None:
        """Brings the prompt into a state that may go out. Raises: CtxvcError."""
        self.session.prepare()
        self._prepared = self.session.ledger()

    def _is_prepared(self) -> bool:
        """Whether the prompt has already been prepared, for a request that was not answered."""
        ledger = self.session.ledger()
        newest = next(ledger.backwards(), None)
        return self._prepared is ledger or (newest is not None and newest.kind == "dashboard")

    def _take_in(self, prompt: Prompt, moment: float) -> bool:
        """Records what is new in a request and what left the client's history; returns whether anything changed."""
        unfinished, self.unfinished = self.unfinished, None
        if unfinished and unfinished.prompt.prints != prompt.prints:
            self._record(unfinished)
        self._answer_open_calls()
        incoming = self._incoming(prompt)
        self._locate(prompt)
        newest = next((row.number for row in self.session.ledger().backwards() if row.role == "assistant"), 0)
        there = self._places.recorded_since(newest)
        if new := [message for message in incoming if not all(key(part) in there for part in message.parts)]:
            self.session.append(*(dated(message, moment) for message in new))
            self._locate(prompt)
            if not newest:
                self._keep_frame()
        if self.stored.open_calls:
            self.stored.finish()  # the client has dropped their results
        return bool(new) | self._withdraw(newest)

    def _keep_frame(self) -> None:
        """Pins the client's own text at the beginning: its instructions, and tools that are among them."""
        rows = self.session.ledger().rows()
        frame = [row.id for row in rows if row.origin == "client" and row.state == "visible"]
        if frame:
            actions = (Action(verb="pin", targets=tuple(frame)),)
            self.session.commit(Plan(actions=actions, actor="host", reason="the client's own instructions"))

    def _incoming(self, prompt: Prompt) -> RedactedMessages:
        if prompt.prints == self.prints and self._asides.get(_digest(prompt.prints)):
            return RedactedMessages(())  # a repeat of the request whose reply was for us alone
        return super()._incoming(prompt)

    def _read_on(self, prompt: Prompt, start: int) -> list[Message]:
        if not self._has_read and start:
            self._reader.messages([item.value for item in self._items(prompt, prompt, start)])
            self._has_read = True
        return super()._read_on(prompt, start)

    def _repeated(self, prompt: Prompt, start: int) -> int:
        aside = self._asides.get(_digest(prompt.prints[:start]))
        if aside is None:
            return super()._repeated(prompt, start)
        run = list(takewhile(is_reply, self._one_by_one(prompt, start)))
        names, reader = self._names(prompt), self.form.reader()
        replied = chain.from_iterable(reader.messages(values) for values in aside.replies)
        parts = [part for message in replied for part in message.parts if part.tool not in names]
        expected = gist((part.kind, part.tool, part.body) for part in parts)
        return len(run) if run and gist_of(chain(*run)) == expected else 0

    def _history(self, prompt: Prompt) -> Sequence[Any]:
        return [item.value for item in self._items(prompt, prompt)]

    def _recast(self, ledger: Ledger, messages: Sequence[Message]) -> Recast:
        """The changes that the client's history makes to the blocks; what a verb removed from the prompt stays out."""
        body = self.stored.body
        changes = recast(ledger, messages, lambda row: body(row, ledger.meta.scope), as_recorded=False, moves=True)
        for row in ledger.rows():
            if _is_ours(row) and row.present:
                changes.keys.setdefault(row.id, "")
            elif not row.present and row.id in changes.keys and row.removed_by != "host":
                del changes.keys[row.id]
                if row.group:
                    changes.groups.add(outermost(ledger.groups, row.group))
                else:
                    changes.stubs[row.id] = row.stub
        return changes

    def _withdraw(self, newest: int) -> bool:
        """Archives blocks that came with a request which was never answered, and that the client no longer sends.

        Returns whether there were any."""
        here = {block for blocks in self._places.blocks for block in blocks}
        absent = [
            row.id
            for row in takewhile(lambda row: row.number > newest, self.session.ledger().backwards())
            if row.present and row.id not in here and row.kind != "tool_result" and not _is_ours(row)
        ]
        if absent:
            action = Action(verb="archive", targets=tuple(absent), index="the client left it out")
            self.session.commit(Plan(actions=(action,), actor="host", allow_user=True, reason="left out by the client"))
        return bool(absent)

    # --- the history as the model saw it

    def _items(self, prompt: Prompt, redacted: Prompt, count: int | None = None) -> list[Item]:
        """The history for the model: the first `count` of the client's messages, by default all, and what passed aside.

        The prints are those of `redacted`.
        """
        if not self._asides:
            return [Item(message, number) for number, message in enumerate(prompt.messages[:count])]
        items: list[Item] = []
        answers: list[Answer] = []
        running, covered = hashlib.sha256(), False
        for number, message in enumerate(prompt.messages[:count]):
            running.update(redacted.prints[number])
            if covered and is_reply(self.form.reader().messages([message])):
                continue  # the client's copy of what passed aside
            covered = False
            values = self.form.results(message, answers) if answers else [message]
            answers = []
            items += [Item(value, number if value is message else -1) for value in values]
            if aside := self._asides.get(running.hexdigest()):
                own, answers = self._aside_items(aside, prompt)
                items += own
                covered = True
        return items

    def _aside_items(self, aside: Aside, prompt: Prompt) -> tuple[list[Item], list[Answer]]:
        """What passed aside; and our answers that go before the client's, if the reply called tools of both."""
        names, answers = self._names(prompt), list[Answer]()
        items: list[Item] = []
        reader = self.form.reader()
        for values in aside.replies:
            items += [Item(value, -1) for value in values]
            parts = [part for message in reader.messages(values) for part in message.parts if part.kind == "tool_use"]
            answers = self._answers([part.call for part in parts if part.tool in names])
            if answers and all(part.tool in names for part in parts):
                items += [Item(value, -1) for value in self.form.results(None, answers)]
                answers = []
        return items, answers

    def _answers(self, calls: Sequence[str]) -> list[Answer]:
        """Our results of these calls, as recorded."""
        ledgers = map(self.stored.ledger, self.stored.scopes())
        rows = chain.from_iterable(calls_and_results(ledger, set(calls)) for ledger in ledgers) if calls else ()
        results = {row.call: row for row in rows if row.kind == "tool_result"}
        return [
            Answer(call, row.tool, display.decode(self._body(row)), row.error)
            for call in calls
            if (row := results.get(call))
        ]

    def _body(self, row: Row) -> bytes:
        """The bytes of a block in any scope."""
        scopes = (self.stored.scope, *self.stored.scopes())
        scope = next(
            scope for scope in scopes if (own := self.stored.ledger(scope).get(row.id)) and own.sha256 == row.sha256
        )
        return self.stored.body(row, scope)

    def _names(self, prompt: Prompt) -> set[str]:
        return {str(tool["name"]) for tool in self.tools(prompt)}

    def _locate(self, prompt: Prompt) -> None:
        """Finds the blocks of the client's messages and of what passed aside."""
        items = self._items(prompt, prompt)
        prints = [
            prompt.prints[item.source] if item.source >= 0 else hashlib.sha256(repr(item.value).encode()).digest()
            for item in items
        ]
        self._places.locate([item.value for item in items], prints, self._rows())

    def _is_near(self, scope: str) -> bool:
        """Whether the client's messages may be in that scope, which is not a sub-agent's nor the side scope."""
        return scope == self.stored.scope or not (scope == SIDE or scope.startswith(AGENT))

    def _rows(self) -> Sequence[Row]:
        """The rows of all scopes that a message may be matched to, in order."""
        ledgers = [self.stored.ledger(scope) for scope in self.stored.scopes() if self._is_near(scope)]
        if len(ledgers) != len(self._known[0]) or any(map(is_not, ledgers, self._known[0])):
            abandoned = left_behind(self.stored)
            rows = {
                row.number: row
                for ledger in ledgers
                for row in ledger.rows()
                if not (_is_ours(row) or _has_left(row) or any(row.number in numbers for numbers in abandoned))
            }
            self._known = ledgers, [rows[number] for number in sorted(rows)]
        return self._known[1]

    # --- what goes out

    def _outgoing(self, body: bytes, prompt: Prompt, redacted: Prompt) -> bytes:
        """The body that goes to the model."""
        items = self._items(prompt, redacted)
        rows_of_items = zip(items, self._places.blocks, self._places.layouts, strict=True)
        located = [Item(item.value, item.source, blocks, layout) for item, blocks, layout in rows_of_items]
        texts = Texts(self._text, self._guarded, lambda slot: _is_ours(slot.row))
        spliced, lasting = messages(self.form, located, outline(self.session.ledger()), texts)
        return self.form.spliced(body, spliced, self.tools(prompt), lasting=lasting)

    def _text(self, slot: Slot) -> str:
        """The text of a slot as it is sent; empty if nothing is."""
        render = self.session.ledger().meta.render
        (piece,) = pieces([slot], self.session.bodies(), render)
        fit = alone(piece, render)
        return "\n".join(filter(None, map(_plain, formats.content(fit)))) if fit else ""

    def _guarded(self, slot: Slot) -> str:
        """The text of a result that looks like one of our texts, marked as not ours; empty for any other."""
        if slot.row.kind != "tool_result":
            return ""
        body = display.decode(self.session.bodies().body(slot.row))
        guarded = stub.guarded(body)
        return guarded if guarded != body else ""

    # --- what comes back

    def answer(self, answered: Answered) -> Managed:
        """Records an answer of the model; returns a continuation if it only calls our tools. Raises: CtxvcError."""
        sent = self._sent[answered.number]
        reply = self.form.reply(answered.answer, stream=answered.stream)
        if not (answered.whole and reply.complete):
            return Managed()
        names = self._names(sent.own)
        reader_parts = [part for message in self.form.reader().messages(reply.messages) for part in message.parts]
        calls = [part for part in reader_parts if part.kind == "tool_use"]
        has_ours = any(part.tool in names for part in calls)
        self._reply(sent, reply, answered.ended, aside=has_ours or sent.continuations > 0)
        goes_on = has_ours and all(part.tool in names for part in calls)
        sent = msgspec.structs.replace(sent, continuations=sent.continuations + 1, answered=not goes_on)
        self._sent[answered.number] = sent
        self._answer_open_calls()
        self._newest = self.stored.next_block
        if not goes_on or sent.continuations > _MOST_CONTINUATIONS:
            return Managed()
        self._locate(sent.prompt)
        self._prepare()
        body = self._outgoing(sent.requested.body, sent.own, sent.prompt)
        self._sent[answered.number] = msgspec.structs.replace(sent, body=body)
        self._newest = self.stored.next_block
        return Managed(body=body)

    def finish(self, call: Call) -> None:
        """Records what the client received in the end. Raises: CtxvcError; nothing is recorded then."""
        sent = self._sent.pop(call.exchange.number)
        if call.reply is None or not call.reply.complete:
            self.unfinished = call if call.reply and call.reply.messages and not sent.answered else None
            self._broken = sent
        elif not sent.answered and self.prints != sent.prompt.prints:
            self._reply(sent, call.reply, call.exchange.ended)
        if call.reply and self.prints == sent.prompt.prints:
            self._reply_prints = tuple(call.reply.prints)
        self._newest = self.stored.next_block

    def _record(self, call: Call) -> None:
        """Records an exchange that was not managed, or whose answer broke off."""
        assert call.reply is not None
        _, clean = self.cleaned(call.exchange.body)
        redacted = self.form.prompt(clean)
        if redacted.prints == self.prints:
            return  # its reply is recorded already
        self._take_in(redacted, call.exchange.began)
        exchange, sent = call.exchange, self._broken
        if sent is None or sent.requested.number != exchange.number:
            fields = {name: getattr(exchange, name) for name in Requested.__struct_fields__}
            sent = _Sent(requested=Requested(**fields), own=call.prompt, prompt=redacted, body=exchange.body)
        self._reply(sent, call.reply, exchange.ended)
        self._newest = self.stored.next_block

    def _reply(self, sent: _Sent, reply: Reply, ended: float, *, aside: bool = False) -> None:
        """Records a reply, with the request bodies that it answers."""
        if self._loaded != self.stored.scope:
            self._pieces, self._loaded = {}, self.stored.scope
        is_first = not self._pieces
        if aside:
            after = _digest(sent.prompt.prints)
            earlier = self._asides.get(after, Aside(after=after))
            self._asides[after] = Aside(after=after, replies=(*earlier.replies, reply.messages))
        pieces_now, _ = self.cleaned(sent.body)
        fields = parameters(b"".join(pieces_now.values()))
        if sent.body != sent.requested.body:
            client, _ = self.cleaned(sent.requested.body)
            pieces_now |= {f"{fmt.CLIENT}{path.removeprefix(fmt.BODY)}": piece for path, piece in client.items()}
        for number, item in enumerate(self._asides.values()):
            pieces_now[f"{fmt.ASIDES}/{number:04x}.json"] = msgspec.json.encode(item)
        framed = msgspec.structs.replace(sent.prompt, tools=(*sent.prompt.tools, *self.tools(sent.prompt)))
        files, without, frame = self._files(framed, pieces_now)
        without = (*without, *_FOLDERS) if is_first else without
        trailers = self._trailers(reply, frame, fields)
        if sent.body != sent.requested.body:
            trailers[CLIENT_TOKENS] = str(self._tokens_of_client(reply))
        attached = Attachment(trailers, files, without)
        replied = self._reader.messages(reply.messages, reply)
        for number, message in enumerate(replied):
            self.session.append(dated(message, ended), attached=attached if number == 0 else None)
        self.prints, self._reply_prints = sent.prompt.prints, tuple(reply.prints)
        self._reply_id = self._reply_id if sent.continuations else reply.id  # the client sees the id of the first
        self._is_in_part = not reply.complete
        self._pieces = {path: blob_id(piece) for path, piece in pieces_now.items()}
        self._frame, self._parameters = frame, fields

    def _tokens_of_client(self, reply: Reply) -> int:
        """The size of the client's own prompt as the provider would count it, by its count of the managed one."""
        view = self.session.view()
        tokens = view.overhead + sum(map(view.price.body, self._rows()))
        prompt = models.usage_of(reply.usage).prompt
        return tokens * prompt // view.counted if prompt and view.counted else view.calibrated(tokens)

    def _answer_open_calls(self) -> None:
        """Answers the calls of our tools that have no result yet."""
        open_calls = self.stored.open_calls
        if not open_calls or not self._tools:
            return
        adapter = Adapter(self.session)  # a new one for each reply: some servers count ids of calls anew
        open_rows = {row.call: row for row in calls_and_results(self.session.ledger(), set(open_calls))}
        ours_waiting = [row for row in open_rows.values() if row.tool in adapter.context_tools]
        answers = [adapter.handle(self._call(row)) for row in ours_waiting]
        adapter.results([answer for answer in answers if answer])

    def _call(self, row: Row) -> dict[str, Any]:
        value = msgspec.json.decode(self.stored.body(row) or b"{}")
        return {"type": "tool_use", "id": row.call, "name": row.tool, "input": value}


def tools_of(management: Management, prompt: Prompt) -> list[dict[str, Any]]:
    """Our tools for a conversation that begins with this prompt."""
    if not management.tools:
        return []
    window = models.window_under(Budget(management.budget), prompt.model)
    terms = msgspec.structs.replace(policies.parse(management.policy).terms_in(window), brief=True)
    return definitions(terms, own=prompt.tools)[len(prompt.tools) :]


def _digest(prints: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(prints)).hexdigest()


def _is_ours(row: Row) -> bool:
    """Whether the block is ours and no client sends it: a note, a dashboard, the text on the tools."""
    return row.kind in ASIDE or is_protocol(row)


def _has_left(row: Row) -> bool:
    """Whether the client has dropped the block: an equal message later is another block."""
    return not row.present and row.removed_by == "host"


def _plain(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "tool_result", "content": str(text)}:
            return text
        case {"type": "tool_result", "content": list(items)}:
            return "\n".join(item["text"] for item in items if isinstance(item, dict) and item.get("type") == "text")
    return ""
