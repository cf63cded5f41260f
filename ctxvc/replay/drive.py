"""A recorded conversation driven through a session: recorded messages go in, and the prompt of each call comes out."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import is_not
from typing import Any, ClassVar, NamedTuple

import msgspec

from ctxvc.agent.tools.definitions import definitions
from ctxvc.core import display
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, blocks_of
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import Policy, Terms
from ctxvc.core.prompt.outline import Bodies, Slot, outline, pieces, tag_of
from ctxvc.core.prompt.request import Request
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View, cost_of
from ctxvc.errors import BadInput, BadPolicy, CtxvcError, OverBudget
from ctxvc.replay import standin
from ctxvc.replay.conversation import Conversation, Prompt, timestamp
from ctxvc.replay.standin import ToolCall
from ctxvc.session.session import Session
from ctxvc.store.log.memory import MemorySession
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter


class Bare(Policy, frozen=True, kw_only=True):
    """Plans as `inner` does, but the model has no dashboard or context tools: what left is out of its reach."""

    name: ClassVar[str] = "bare"

    inner: Policy

    def propose(self, view: View) -> Plan:
        return self.inner.propose(view)

    def terms(self) -> Terms:
        return _bare(self.inner.terms())

    def terms_in(self, window: int) -> Terms:
        return _bare(self.inner.terms_in(window))

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        return self.inner.moment(view, rehearsal)

    def relief(self, view: View, target: int) -> Sequence[Action]:
        return self.inner.relief(view, target)

    def high(self, budget: Budget) -> int:
        return self.inner.high(budget)

    @property
    def actor(self) -> str:
        return self.inner.actor


def _bare(terms: Terms) -> Terms:
    return msgspec.structs.replace(terms, tools=(), protocol="", board="off", handles=False, folds=False)


#: Assumes that a provider counts tokens as we do.
_UNCALIBRATED = (1000, 0)
#: The name of every replayed session; dashboards show it.
_NAME = "session"


class Driven(NamedTuple):
    """One call of a replay.

    `prompt` is None if it could not be made; `failure` says why. `faults` lists what a provider would refuse, `seconds`
    is the engine's time since the previous call, `over` is true if the prompt exceeds the budget, `dropped` has the
    reasons for plan actions that were left out, and `extra` counts the prompt tokens of a stand-in's own calls.
    """

    prompt: Prompt | None
    failure: str = ""
    faults: tuple[str, ...] = ()
    seconds: float = 0.0
    over: bool = False
    dropped: tuple[str, ...] = ()
    extra: int = 0


class Prompts:
    """A session's prompts, in terms of the conversation's blocks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.numbers: dict[str, int] = {}  # block of the session → its number in the conversation
        #: The pieces of the newest prompt, system and tools first. Equal keys mean equal bytes; `sizes` are in tokens.
        self.keys: list[Hashable] = [""]
        self.sizes: list[int] = [0]
        self._slots: Sequence[Slot] = ()
        self._groups: dict[str, tuple[object, list[int]]] = {}  # a group → its members' numbers
        self._texts: dict[str, str] = {}
        self._recovered: dict[str, int] = {}  # block of a recovery's result → number of the block it read

    def append(self, message: Message) -> None:
        """Adds a message of the conversation to the session."""
        blocks = self._session.append(message)
        # Blocks for results that never came precede the message's own.
        for block in blocks[len(blocks) - len(message.parts) :]:
            self.numbers[block] = len(self.numbers)

    def act(self, calls: Sequence[ToolCall], name: str) -> None:
        """Carries out a stand-in's calls, and adds them and their results to the session."""
        blocks: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        recovered: list[str] = []
        for at, call in enumerate(calls):
            use = f"stand-in-{name}-{at}"
            arguments = {name: text for name, text in (("blocks", call.blocks), ("index", call.index)) if text}
            blocks.append({"type": "tool_use", "id": use, "name": call.tool, "input": arguments})
            text = self._carried_out(call)
            results.append({"type": "tool_result", "tool_use_id": use, "content": text})
            recovered.append(call.blocks if call.tool == "recover" else "")
        self._session.append({"role": "assistant", "content": blocks})
        added = self._session.append({"role": "user", "content": results}, origin="client")
        for block, source in zip(added[-len(results) :], recovered, strict=True):
            if (number := self.numbers.get(source)) is not None:
                self._recovered[block] = number

    def _carried_out(self, call: ToolCall) -> str:
        try:
            if call.tool == "recover":
                return self._session.recover(call.blocks).text
            if call.tool == "note":
                noted = self._session.note(call.index, fold=True)
                return f"{standin.NOTED}{len(noted.archived)} blocks folded, {noted.freed:,} tokens freed"
            rehearsal = self._session.archive(call.blocks, call.index)
        except CtxvcError as error:
            return str(error)
        return f"archived {len(rehearsal.rows)} blocks, {rehearsal.freed:,} tokens freed"

    def measured(self, view: View) -> tuple[list[Hashable], list[int]]:
        """The `keys` and `sizes` of a view's prompt, which becomes the newest."""
        self._take_pieces(view)
        return self.keys, self.sizes

    def _take_pieces(self, view: View) -> Sequence[Slot]:
        slots = outline(view.ledger)
        common = next((at for at, differs in enumerate(map(is_not, slots, self._slots)) if differs), len(self._slots))
        common = min(len(slots), common)
        keys = [(slot.row.id, slot.show, slot.text or tag_of(slot)) for slot in slots[common:]]
        sizes = [cost_of(slot, view.price) for slot in slots[common:]]
        self._slots = slots
        self.keys = [*self.keys[: common + 1], *keys]
        self.sizes = [view.overhead, *self.sizes[1 : common + 1], *sizes]
        return slots

    def prompt(self, call: int, view: View) -> Prompt:
        """The prompt of a view."""
        slots, ledger = self._take_pieces(view), view.ledger
        complete: set[int] = set()
        parts: dict[int, str] = {}
        texts: list[str] = []
        routes: dict[int, int] = {}
        for slot in slots:
            number = self.numbers.get(slot.row.id)
            if slot.show == "text":
                self._take_text(ledger, slot, number, texts, parts, routes)
            elif slot.row.id in self._recovered:
                source = self._recovered[slot.row.id]
                parts[source] = f"{parts.get(source, '')}\n{self.text(slot)}"
            elif number is None:
                texts.append(self.text(slot))
            elif slot.show == "mask":
                parts[number] = self.text(slot)
            else:
                complete.add(number)
        return Prompt(call, frozenset(complete), parts, tuple(texts), routes, sum(self.sizes))

    def _take_text(
        self,
        ledger: Ledger,
        slot: Slot,
        number: int | None,
        texts: list[str],
        parts: dict[int, str],
        routes: dict[int, int],
    ) -> None:
        if not slot.text:
            return
        if slot.group:
            routes.update(dict.fromkeys(self._members(ledger, slot.group), len(texts)))
        elif number is not None:
            routes[number] = len(texts)
            first, _, preview = slot.text.partition("\n")
            if preview:  # a stub is one line; what follows is the beginning and the end of the body
                parts[number] = preview
                texts.append(first)
                return
        texts.append(slot.text)

    def _members(self, ledger: Ledger, name: str) -> list[int]:
        group = ledger.groups.get(name)
        if name not in self._groups or self._groups[name][0] is not group:
            members = [
                number for block in blocks_of(ledger.groups, name) if (number := self.numbers.get(block)) is not None
            ]
            self._groups[name] = group, members
        return self._groups[name][1]

    def text(self, slot: Slot) -> str:
        """The text of a piece of the prompt, as the prompt shows it."""
        key = f"{slot.row.id} {slot.show}"
        if key not in self._texts:
            bodies = Bodies(self._session.stored.body, self._session.stored.file)
            self._texts[key] = "\n".join(display.decode(piece.body) for piece in pieces([slot], bodies))
        return self._texts[key]


class _Replayed(Session):
    """A session whose clock shows the recorded time of its newest message, so that it notices pauses.

    The clock is in seconds since the first recorded time. A message without a time does not move it.
    """

    def __init__(self, stored: StoredSession, *, policy: Policy, meter: Meter | None) -> None:
        self._seconds = 0.0
        self._start: float | None = None
        super().__init__(stored, policy=policy, now=lambda: self._seconds, meter=meter)

    def append(self, *messages: Mapping[str, Any] | Message, **options: Any) -> list[str]:
        for message in messages:
            if isinstance(message, Message) and (time := timestamp(message.time)) is not None:
                self._start = time if self._start is None else self._start
                self._seconds = max(self._seconds, time - self._start)
        return super().append(*messages, **options)


def new_session(
    conversation: Conversation, policy: Policy, budget: int, *, store: Store | None = None, meter: Meter | None = None
) -> Session:
    """An empty session for a replay, in `store`, or in memory without one. Sessions can share a `meter`.

    The model gets the recorded tools, as far as they are known, and the context tools that the policy's terms name.
    """
    stored: StoredSession
    tools = _tools(conversation, policy, budget)
    if store is None:
        meter = meter or Meter(None)
        stored = MemorySession(_NAME, system=conversation.system, tools=tools)
    else:
        store.redaction.keep_exact(_NAME)  # a replay in memory has no marks for secrets either
        store.create_session(_NAME, system=conversation.system, tools=tools)
        stored = StoredSession.open(store, _NAME)
    replayed = _Replayed(stored, policy=policy, meter=meter)
    replayed.set(budget=budget, calibration=_UNCALIBRATED)
    replayed.begin()
    return replayed


def _tools(conversation: Conversation, policy: Policy, budget: int) -> object:
    recorded = conversation.tools or []
    if not (isinstance(recorded, list) and all(isinstance(tool, Mapping) for tool in recorded)):
        return conversation.tools  # in an unknown form
    return definitions(policy.terms_in(budget), own=recorded) or None


def drive(
    conversation: Conversation,
    replayed: Session,
    prompts: Prompts,
    *,
    managed: bool = False,
    agent: standin.Agent = standin.manage,
) -> Iterator[Driven]:
    """Yields each call of the conversation, as the session sends it, in order.

    `prompts` belongs to the same session; both are new. With `managed`, `agent` stands in for the recorded agent: it
    may call tools of its own before a recorded reply, each time at the price of one more call.
    Raises: BadPolicy.
    """
    addresses: set[str] = set()
    for number, call in enumerate(conversation.calls):
        start = time.perf_counter()
        for message in call.before:
            prompts.append(message)
        request, failure = _request(replayed)
        extra = 0
        while managed and request and (calls := agent(request.messages, frozenset(addresses))):
            addresses.update(own.blocks for own in calls)
            extra += replayed.used()
            prompts.act(calls, f"{number}-{extra}")
            request, failure = _request(replayed)
        seconds = time.perf_counter() - start
        rehearsal = replayed.rehearsal
        dropped = tuple(problem.why for problem in rehearsal.problems) if rehearsal else ()
        if request is None:
            yield Driven(None, failure, seconds=seconds, dropped=dropped, extra=extra)
        else:
            view = replayed.view()
            over = view.used > view.budget.effective
            prompt = prompts.prompt(number, view)
            yield Driven(prompt, "", tuple(faults(request.messages)), seconds, over, dropped, extra)
        prompts.append(call.reply)


def _request(replayed: Session) -> tuple[Request | None, str]:
    """The next request, or None and the reason. Raises: BadPolicy."""
    try:
        return replayed.request(), ""
    except BadPolicy:
        raise
    except (OverBudget, BadInput) as error:
        return None, str(error)


def faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the reasons why the Messages API would refuse the messages; none if they are valid."""
    if not messages:
        yield "there are no messages"
        return
    if messages[0]["role"] != "user":
        yield "the first message is not the user's"
    unanswered: list[str] = []  # the calls of the message before
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            yield f"message {at} is empty"
        answered = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if role == "user" and sorted(answered) != sorted(unanswered):
            yield f"message {at} answers calls that are not in the message before it"
        if answered and [block.get("type") for block in blocks[: len(answered)]] != ["tool_result"] * len(answered):
            yield f"message {at} has something before its results"
        if role == "assistant" and (answered or unanswered):
            yield f"message {at} comes before the results of the calls before it"
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if len({*calls} - seen) != len(calls):
            yield f"message {at} repeats the id of a call"
        seen.update(calls)
        unanswered = calls if role == "assistant" else [] if role == "user" else unanswered
        for block in blocks:
            if block.get("type") == "text" and not block["text"].strip():
                yield f"message {at} has an empty text"
    if unanswered:
        yield "the last calls have no results"
    if messages[-1]["role"] == "assistant":
        yield "the last message is the model's"
