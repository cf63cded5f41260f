"""The adapter between a session and the client of the Messages API: what goes out, what comes in, who answers calls.

It needs nothing of the client but the shape of its messages, so the Anthropic package is not even imported here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from ctxvc.agent import call as calls
from ctxvc.agent import message as messages
from ctxvc.agent.call import BROKEN, CUT_SHORT, Reply, Stop, result
from ctxvc.agent.refusal import Fault
from ctxvc.agent.tools.tools import FREEING, Tools, failed
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import BadInput, Conflict
from ctxvc.session import append as incoming
from ctxvc.session.session import Session

__all__ = ["Adapter", "Reply", "Stop", "annotated"]

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
        self._refusal = ""  # what a call was told that overflow mode refused in this step
        self._defied = False  # whether this step was one too many
        self._final = False  # the next reply is the last of its turn, without tools
        self._newest: tuple[Mapping[str, Any], Reply] | None = None  # a message, and what it was taken for
        self._sent: Sequence[bytes] = ()  # the messages of the newest request, as canonical JSON
        self._unbound = session.ledger().meta.counters.block  # thinking up to this block may be bound to something else
        self._short = 0  # replies in a row that ended before their time
        self._switch: object = None  # the id of the call that asked for a change of scope
        self._answered: dict[object, dict[str, Any]] = {}  # what calls of this step were answered, by id

    def append(self, *messages: Mapping[str, Any] | Message, origin: Origin = "human") -> list[str]:
        """What somebody says, as `Session.append` takes it."""
        with self._lock:
            return self.session.append(*messages, origin=origin)

    def request(self, **more: Any) -> dict[str, Any]:
        """The arguments of the next `client.messages.create` or `client.messages.stream`.

        `more` is what they take besides the prompt, as in `max_tokens` and `thinking`; another `model` is the
        session's from now on. Raises: OverBudget, BadInput while a call waits for its result.
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
        """The names under which the model has the context tools."""
        return self._tools.names.keys()

    def record(self, response: object, *, noted: Mapping[str, Any] = {}) -> Reply:
        """Takes in a reply of the client, a whole message or a dictionary. On the disk when this returns.

        A stream's reply is what it made in the end; one that broke off before is not recorded (`stop` is `cut`): ask
        again; an empty one neither. Calls of a reply that ended before its time are not to be run, nor those whose
        arguments are no JSON object: they are answered here. A call without an id of its own gets one: answer the calls
        of the `Reply`. The same message once more, before the next request, adds nothing.
        `noted` is what we note of it ourselves, which nobody is sent.
        Raises: BadInput for what is no reply.
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
        """The result of a call of a context tool; None for a tool of the agent's own, which is to be run.

        While the context is full and nothing may leave, calls of other tools are answered as well: they are not to be
        run.
        The same call once more, before its result is taken in, acts no second time: it gets the same answer.
        Raises: BadInput for a call of a context tool that no reply made, or that has its result already.
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
        """Appends results of the newest reply's calls, in one message or as they come; returns the new blocks' ids.

        A change of scope that a call asked for is made with the last of them. Where it cannot be made any more, the
        result of that call says so. `shown` is what the model sees of a result, by call (`Session.append`); `noted` is
        what we note of one ourselves, which nobody is sent.
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
        """Whether the next reply has to be the last of its turn: the context was too full for too long."""
        return self._final

    def relieve(self) -> int:
        """The guard takes out a quarter of the budget or of what is used; returns what it freed."""
        with self._lock:
            return self.session.relieve(RELIEVED)

    def too_long(self, tokens: int = 0, window: int = 0) -> bool:
        """Takes in that the provider found the newest request too long; returns whether the next one is smaller.

        `tokens` is the size of its prompt and `window` what the model takes, where the provider says so: a session
        learns from both how this model counts.
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
    """The message with what we note of it ourselves, at its first part; nobody is sent that."""
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
    """An `Adapter` whose methods are awaited: for loops on `AsyncAnthropic`.

    Most of its work takes milliseconds, but a record waits for the disk, a flush for git, and a search reads all there
    is: so it runs in a thread, one call at a time. What a cancelled task had begun is finished all the same.
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
