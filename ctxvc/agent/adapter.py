"""Connects a session to a client of the Messages API: builds requests, records replies and answers the context tools.

It relies on the shape of messages alone, so the Anthropic package is never imported here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from ctxvc.agent import call as calls
from ctxvc.agent import message as messages
from ctxvc.agent.call import BROKEN, CUT_SHORT, Reply, result
from ctxvc.agent.refusal import Fault
from ctxvc.agent.tools.tools import FREEING, Tools, failed
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import BadInput, Conflict
from ctxvc.session import append as incoming
from ctxvc.session.session import Session

#: Steps whose calls overflow mode refuses before one that is the last straw.
DEFIANCE = 2

#: The share of the budget that the guard leaves in use where it makes room.
RELIEVED = 0.75
_BROKEN = "[not run: your reply was cut off before it was complete; repeat it in smaller parts]"
_FINAL = (
    "[not run: the context was too full for too long. Unless you made room in this reply, no more tools are run. "
    "Answer now, with what you know]"
)


class Adapter:
    """A session as an agent's loop sees it: request, record, handle, results, and again.

    Safe to call from several threads; `AsyncAdapter` is the same for `asyncio`. Each of its methods
    raises CtxvcError where the session cannot go on.
    """

    def __init__(self, session: Session, *, writes_project_notes: bool = False) -> None:
        """With `writes_project_notes`, the model may keep notes for all later sessions of the project."""
        self.session = session
        self._lock = threading.RLock()
        self._tools = Tools(session, writes_project_notes=writes_project_notes)
        self._refused = session.ledger().meta.refused  # as it was when the step began
        self._refusal = ""  # the answer to a call that overflow mode refused in this step
        self._defied = False  # whether this step was one too many
        self._final = False  # the next reply is the last of its turn, without tools
        self._newest: tuple[Mapping[str, Any], Reply] | None = None  # a message, and what it was taken for
        self._sent: Sequence[bytes] = ()  # the messages of the newest request, as canonical JSON
        self._unbound = session.ledger().meta.counters.block  # thinking up to this block may be bound to something else
        self._short = 0  # consecutive replies that were cut short
        self._switch: object = None  # the id of the call that asked for a change of scope
        self._answered: dict[object, dict[str, Any]] = {}  # what calls of this step were answered, by id

    def append(self, *messages: Mapping[str, Any] | Message, origin: Origin = "human") -> list[str]:
        """Appends messages, as `Session.append` does; returns the ids of the new blocks."""
        with self._lock:
            return self.session.append(*messages, origin=origin)

    def request(self, **more: Any) -> dict[str, Any]:
        """The arguments for the next `client.messages.create` or `client.messages.stream`.

        `more` are arguments besides the prompt, such as `max_tokens` and `thinking`. A `model` becomes the session's
        model. Raises: OverBudget; BadInput while a call waits for its result.
        """
        with self._lock:
            calls.check(more)
            if model := more.get("model"):
                self.session.set(model=model)
            if self._defied:
                self._defied, self._final = False, self.session.overflow and not self._relieved()
            request = self.session.request()
            self._newest = None  # what comes now is another reply, also under the same id
            if request.written[: len(self._sent)] != self._sent:
                self._unbound = self.session.ledger().meta.counters.block
            self._sent = request.written
            return calls.arguments(
                request, more, reserve=calls.room(self.session.budget), final=self._final, unbound=self._has_unbound()
            )

    @property
    def context_tools(self) -> Collection[str]:
        """The names by which the model calls the context tools."""
        return self._tools.names.keys()

    def record(self, response: object, *, noted: Mapping[str, Any] = {}) -> Reply:
        """Records a reply, and returns its text and the calls to run. It is on disk when this returns.

        `response` is the client's message or the same as a dictionary; for a stream, its final message. A reply that
        was cut off or is empty is not recorded (`stop` is `cut`): ask again. Calls that must not be run, because the
        reply ended early or their arguments are not a JSON object, are answered here. Calls without a unique id get
        one, so answer the calls of the returned `Reply`. Recording the same message twice before the next request
        changes nothing. `noted` is our own metadata, which is never sent.
        Raises: BadInput if `response` is not a reply.
        """
        received = calls.plain(response)
        with self._lock:
            if self._newest and received.get("id") and received == self._newest[0]:
                return self._newest[1]  # it is in already
            message = self._sound(received)
            reply = calls.reply(message)
            broken = [
                result(call, why, error=True)
                for call in reply.calls
                if (why := _BROKEN if reply.stop in BROKEN else calls.malformed(call))
            ]
            answered = {answer["tool_use_id"] for answer in broken}
            short = self._short + 1 if reply.stop in ("cut", "length", "window") else 0
            taken = Reply(
                stop=reply.stop,
                calls=() if reply.stop == "cut" else tuple(c for c in reply.calls if c["id"] not in answered),
                text="" if reply.stop == "cut" else reply.text,
                goes_on=reply.goes_on and short <= CUT_SHORT,
            )
            if reply.stop != "cut":
                recorded = annotated(incoming.message(message, "human"), noted) if noted else message
                self.session.append(recorded, *([{"role": "user", "content": broken}] if broken else []))
                self._tools.begin()
                self._refused, self._refusal = self.session.ledger().meta.refused, ""
                self._defied, self._final, self._switch = False, False, None
                self._answered.clear()
                self._newest = received, taken
            self._short = short
        return taken

    def _sound(self, received: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message as it can be recorded; an empty one, and one that broke off, as a reply that is `cut`."""
        if received.get("stop_reason", "") is None:
            return received
        calls.reply(received)  # raises for a message of somebody else
        message = messages.sound({"stop_reason": None, **received})
        if isinstance(message, Fault) and message.kind == "empty":
            return {**received, "content": [], "stop_reason": None}
        if not isinstance(message, dict):
            raise BadInput(message.text, hint="ask again, or another server")
        return calls.with_ids(message, set(chain.from_iterable(self.session.ledger().by_segment(_call_ids))))

    def handle(self, call: object) -> dict[str, Any] | None:
        """The result of a call to a context tool; None for one of the agent's own tools, which you run.

        While the context is full and nothing may leave, other calls are answered here too: do not run them. Handling
        a call twice before its result is recorded acts once and returns the same answer.
        Raises: BadInput for a call to a context tool that no reply made, or that already has a result.
        """
        plain_call = calls.plain(call)
        with self._lock:
            if plain_call.get("type") != "tool_use":
                return None
            name = self._tools.names.get(str(plain_call.get("name")), "")
            if self._defied and name not in FREEING:
                return result(plain_call, _FINAL, error=True)
            if self.session.overflow and name not in FREEING and not self._relieved():
                return self._refuse(plain_call)
            if not name:
                return None
            if plain_call.get("id") not in self.session.stored.open_calls:
                raise BadInput(
                    "no call with that id is waiting for a result", hint="record the reply before handling its calls"
                )
            if answer_sent := self._answered.get(plain_call.get("id")):
                return dict(answer_sent)
            before = self.session.stored.switching
            answer = self._tools.answer(name, plain_call.get("input"), str(plain_call.get("id")))
            if self.session.stored.switching != before:
                self._switch = plain_call.get("id")
            self._answered[plain_call.get("id")] = answer_sent = result(plain_call, answer.text, error=answer.error)
            return dict(answer_sent)

    def results(
        self,
        results: Sequence[Mapping[str, Any]],
        *,
        shown: Mapping[str, str] = {},
        noted: Mapping[str, Mapping[str, Any]] = {},
    ) -> list[str]:
        """Records results of the newest reply's calls, all at once or as they come; returns the ids of the new blocks.

        The last of them completes a change of scope that a call asked for; if that is no longer possible, the call's
        result says so. `shown` maps a call's id to the part of its result that the model sees (`Session.append`), and
        `noted` to our own metadata, which is never sent.
        """
        results = [calls.plain(plain_result) for plain_result in results]
        if not results:
            return []
        with self._lock:
            switching = self.session.stored.switching
            try:
                blocks = self._take_in(results, shown, noted)
            except Conflict as error:
                if not switching or self.session.stored.switching:
                    raise
                blocks = self._take_in(self._stayed(results, failed(error).text), shown, noted)
            self._tools.taken_in(str(plain_result.get("tool_use_id")) for plain_result in results)
            return blocks

    @property
    def final(self) -> bool:
        """Whether the next reply must be the last of its turn, because the context was too full for too long."""
        return self._final

    def relieve(self) -> int:
        """Frees a quarter of the budget, or of what is in use; returns the number of tokens freed."""
        with self._lock:
            return self.session.relieve(RELIEVED)

    def too_long(self, tokens: int = 0, window: int = 0) -> bool:
        """Makes room after the provider rejected the newest request as too long; whether the next one is smaller.

        `tokens` is the size of the prompt and `window` the model's limit, if the provider says so. Both calibrate how
        the session counts for this model.
        """
        with self._lock:
            reserve = self.session.budget.reserve
            self.session.too_long(tokens, window)
            return self.relieve() > 0 or self.session.budget.reserve < reserve

    def _has_unbound(self) -> bool:
        """Whether thinking is sent that may stand behind something else than when it was made."""
        ledger = self.session.ledger()
        first = ledger.meta.cuts[-1] if ledger.meta.cuts else 0
        thinking = chain.from_iterable(ledger.by_segment(_thinking))
        return any(first < row.number <= self._unbound for row in thinking)

    def _relieved(self) -> bool:
        """Whether there is room after the guard acted; then nothing is refused any more."""
        self.relieve()
        return not self.session.overflow

    def _refuse(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Overflow mode's answer, where the guard has nothing left to take. Who goes on all the same has one more turn,
        without tools."""
        if self._refused > DEFIANCE:
            self._defied = True
            return result(call, _FINAL, error=True)
        self._refusal = self._refusal or self.session.refuse(self._tools.terms)  # counts steps, not calls
        return result(call, self._refusal, error=True)

    def _take_in(
        self, content: Sequence[Mapping[str, Any]], shown: Mapping[str, str], noted: Mapping[str, Mapping[str, Any]]
    ) -> list[str]:
        message = incoming.message({"role": "user", "content": list(content)}, "client")
        parts = tuple(_noted(part, noted[part.call]) if part.call in noted else part for part in message.parts)
        return self.session.append(msgspec.structs.replace(message, parts=parts), shown=shown)

    def _stayed(self, results: Sequence[Mapping[str, Any]], why: str) -> list[Mapping[str, Any]]:
        """The results, with one that says that there was no change of scope; if that one is in already, a text does."""
        with_reason = [
            result({"id": self._switch}, why, error=True) if item.get("tool_use_id") == self._switch else item
            for item in results
        ]
        return with_reason if with_reason != list(results) else [*with_reason, {"type": "text", "text": why}]


def annotated(message: Message, fields: Mapping[str, Any]) -> Message:
    """The message with our own metadata on its first part, which is never sent."""
    parts = (*(_noted(part, fields) for part in message.parts[:1]), *message.parts[1:])
    return msgspec.structs.replace(message, parts=parts)


def _noted(part: Part, fields: Mapping[str, Any]) -> Part:
    return msgspec.structs.replace(part, extra={**part.extra, "ctxvc": {**wire.own_metadata(part.extra), **fields}})


def _call_ids(rows: tuple[Row, ...]) -> list[str]:
    return [row.call for row in rows if row.kind == "tool_use"]


def _thinking(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind == "thinking" and row.present]


_T = TypeVar("_T")


class AsyncAdapter:
    """An `Adapter` with awaitable methods, for loops on `AsyncAnthropic`.

    Recording waits for the disk and for git, and a search reads the whole store, so each call runs in a thread, one at
    a time. A call whose task is cancelled still runs to its end.
    """

    def __init__(self, session: Session) -> None:
        import asyncio  # a command line's run needs none

        self.session = session
        self._adapter = Adapter(session)
        self._turn = asyncio.Lock()  # those who wait for their turn take no thread

    async def append(self, *messages: Mapping[str, Any] | Message, origin: Origin = "human") -> list[str]:
        """As `Adapter.append`."""
        return await self._run(lambda: self._adapter.append(*messages, origin=origin))

    async def request(self, **more: Any) -> dict[str, Any]:
        """As `Adapter.request`, for `AsyncAnthropic`."""
        return await self._run(lambda: self._adapter.request(**more))

    async def record(self, response: object) -> Reply:
        """As `Adapter.record`."""
        return await self._run(lambda: self._adapter.record(response))

    async def handle(self, call: object) -> dict[str, Any] | None:
        """As `Adapter.handle`."""
        return await self._run(lambda: self._adapter.handle(call))

    async def results(self, results: Sequence[Mapping[str, Any]], *, shown: Mapping[str, str] = {}) -> list[str]:
        """As `Adapter.results`."""
        return await self._run(lambda: self._adapter.results(results, shown=shown))

    async def relieve(self) -> int:
        """As `Adapter.relieve`."""
        return await self._run(self._adapter.relieve)

    async def too_long(self, tokens: int = 0, window: int = 0) -> bool:
        """As `Adapter.too_long`."""
        return await self._run(lambda: self._adapter.too_long(tokens, window))

    async def _run(self, work: Callable[[], _T]) -> _T:
        import asyncio

        async with self._turn:
            return await asyncio.to_thread(work)
