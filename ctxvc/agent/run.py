"""A run of the agent, with helpers in scopes of their own; and a recorded run played again, without a model."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.agent import loop
from ctxvc.agent.adapter import Adapter
from ctxvc.agent.call import MAX_TOKENS, arguments, room
from ctxvc.agent.limits import Limits, Spending
from ctxvc.agent.loop import Ended, Hands, Report, Watcher
from ctxvc.agent.model import Model, ModelFailed, Scripted
from ctxvc.agent.refusal import Fault
from ctxvc.agent.server import Server
from ctxvc.agent.start import has_task, is_begun, report
from ctxvc.agent.tools.tools import NOTE, SHOWN
from ctxvc.agent.workspace import Outcome
from ctxvc.core import display
from ctxvc.core import scope as scoping
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.core.policy import Answer, Ask, Policy
from ctxvc.core.view.view import View
from ctxvc.errors import NotFound, Phrase, Refused
from ctxvc.policies import run as run_module
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a run besides the session. `options` go to every call of the model.

    `planner` is the model that the policy asks for plans and summaries, empty for the session's own. Without `helpers`,
    who delegates gets what the hands give. `writes_project_notes` lets the model write notes of the project.
    """

    model: Model
    hands: Hands
    watcher: Watcher
    limits: Limits = Limits()
    options: Mapping[str, Any] = {}
    planner: str = ""
    helpers: bool = True
    writes_project_notes: bool = False


def go(session: Session, setup: Setup) -> Ended:
    """Runs the agent in the session's scope until it ends. Raises as `loop.run` does, and BadInput as `Limits.check`.

    A policy that can use a model gets this one, beside the conversation. The limits hold for all together: the agent,
    its helpers, and what the policy asks. Nobody else may run the session meanwhile (`alone`).
    """
    if not setup.model.scripted:
        for model in filter(None, (session.ledger().meta.model, setup.planner)):
            setup.limits.check(model)
    _tidy(session)
    spending = Spending(setup.limits)
    helpers = _Helpers(session, setup, spending)
    with _planning(session, session.policy, setup, spending):
        return loop.run(
            Adapter(session, writes_project_notes=setup.writes_project_notes),
            setup.model,
            setup.hands,
            setup.watcher,
            spending=spending,
            helpers=helpers if setup.helpers else None,
            options=setup.options,
        )


def _tidy(session: Session) -> None:
    """Ends the steps that helpers of an earlier run left open: nothing else would.

    In other scopes another agent may be at work.
    """
    stored = session.stored
    stored.refresh()
    for scope in session.scopes():
        if scope != session.scope and stored.waiting_changes(scope) and is_begun(stored, scope):
            stored.finish(scope)


@contextmanager
def _planning(session: Session, policy: Policy | None, setup: Setup, spending: Spending) -> Iterator[None]:
    """Inside, the session's policy asks the planner, else the run's model: it sees the prompt, and a block more."""
    before, model = session.policy, setup.model
    if policy and isinstance(model, Server):
        ask = _beside(session, model, run_module.actor_name(policy), setup, spending)
        session.policy = policies.asking(policy, ask)
    try:
        yield
    finally:
        session.policy = before


def _beside(session: Session, model: Server, actor: str, setup: Setup, spending: Spending) -> Ask:
    """The model for the session's policy; where it fails, or there is no room for the question, it says nothing.

    Then the policy has no plan, and the guard keeps the prompt below the budget.
    """

    def ask(_: View, question: str) -> Answer:
        if not session.view().has_room(question):
            return Answer("", put=False)
        name, reserve = setup.planner or session.ledger().meta.model, room(session.budget)

        def heard(message: Mapping[str, Any]) -> None:
            spending.add(message, name, aside=True)
            session.asked(message, model=name, actor=actor)

        def faulted(fault: Fault) -> None:
            session.faulted(fault.kind, fault.text)

        more = {"model": name, "max_tokens": min(MAX_TOKENS, reserve)}
        try:
            call = arguments(session.prompt(), more, reserve=reserve, final=True)
            return model.ask(call, question, heard, faulted)
        except ModelFailed as error:
            setup.watcher.said(f"\n[the policy's model did not answer: {error}]\n")
            return Answer("")

    return ask


class _Aside:
    """Shows a helper's actions, not its words: the words that people see are the agent's."""

    def __init__(self, watcher: Watcher) -> None:
        self.called = watcher.called
        self.answered = watcher.answered
        self.stepped = watcher.stepped
        self.stops = watcher.stops

    def said(self, text: str) -> None: ...


class _Helpers:
    """Runs tasks in scopes of their own. Each has its own store and session: they work at the same time."""

    def __init__(self, session: Session, setup: Setup, spending: Spending) -> None:
        self._session = session
        self._policy = session.policy
        self._setup = msgspec.structs.replace(setup, watcher=_Aside(setup.watcher))
        self._spending = spending
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    def work(self, name: str, task: str) -> Report:
        """The report of the helper in the scope `name`, a new one or that of a helper before. Raises: CtxvcError."""
        with self._alone(name), self._opened(name, task) as helper:
            helper.pin(helper.append({"role": "user", "content": task}, origin="client"))
            ended = loop.run(
                Adapter(helper, writes_project_notes=self._setup.writes_project_notes),
                self._setup.model,
                self._setup.hands,
                self._setup.watcher,
                spending=self._spending,
                options=self._setup.options,
            )
            last = next((row.id for row in helper.ledger().backwards() if row.role == "assistant"), "")
        if ended.why == "said" and ended.text.strip():
            return Report(ended.text, name, last)
        raise Refused(f"it ended without a report ({ended.why}); delegate to {name} again to continue it")

    def arrive(self) -> None:
        """The notes of what helpers reported, in the scopes that asked, in the order of the results.

        What there is to write is read from the ledgers: a run that was killed before it did is made up for.
        """
        self._session.stored.refresh()
        for scope in self._session.scopes():
            for result, helper, last in scoping.unarrived(self._session.ledger(scope)):
                if not (text := report(self._session, helper, last)):
                    continue  # its scope is not here any more
                if len(text) > NOTE:
                    text = f"{display.one_line(text, SHOWN)} (all of it is {result.handle})"
                self._session.stored.arrive(helper, text, of=result.id, scope=scope)

    @contextmanager
    def _alone(self, scope: str) -> Iterator[None]:
        with self._lock:
            if scope in self._busy:
                raise Refused(f"a helper is already working in {scope}", hint="choose another name")
            self._busy.add(scope)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(scope)

    @contextmanager
    def _opened(self, scope: str, task: str) -> Iterator[Session]:
        is_open = scope in self._session.scopes() and scope != self._session.scope
        if not is_open or has_task(self._session, scope):  # a human has spoken there: it is no helper's
            self._session.stored.branch(scope, task)
        with Store(self._session.store.path) as store:
            session = Session(StoredSession.open(store, self._session.name, scope), policy=self._policy)
            with session, _planning(session, self._policy, self._setup, self._spending):
                session.begin()
                yield session


#: The most replies of a turn that is played back.
_PLAYED = Limits(steps=100_000)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded turn: the messages to the model, its replies, and the outcomes of its calls by id."""

    messages: tuple[dict[str, Any], ...]
    replies: tuple[dict[str, Any], ...]
    results: tuple[tuple[str, Outcome], ...]


class Replayed:
    """Hands that run nothing: a call gets the result that it has in the recording.

    Results may have come in another order than their calls, and some are of calls that others answer now. Where a
    recording has an id twice, the first call gets the first result.
    """

    def __init__(self, results: Iterable[tuple[str, Outcome]], names: frozenset[str] = frozenset()) -> None:
        self.names = names
        self._results: dict[str, list[Outcome]] = {}
        for call, outcome in results:
            self._results.setdefault(call, []).append(outcome)

    def run(self, name: str, arguments: Mapping[str, Any], call: str = "") -> Outcome:  # noqa: ARG002 - as `Hands` has it
        if not (recorded_results := self._results.get(call)):
            return Outcome(f"no result of {name} was recorded".encode(), error=True)
        return recorded_results.pop(0)

    def stop(self) -> None: ...


def recorded(session: Session) -> list[Turn]:
    """The turns of a session, to be played back. Raises: NotFound if no model has replied in it."""
    turns: list[Turn] = []
    messages: list[dict[str, Any]] = []
    replies: dict[int, list[dict[str, Any]]] = {}
    results: list[tuple[str, Outcome]] = []

    def close() -> None:
        if replies:
            turn_replies = tuple({"content": replies[msg]} for msg in sorted(replies))
            turns.append(Turn(messages=tuple(messages), replies=turn_replies, results=tuple(results)))
            messages.clear()
            replies.clear()
            results.clear()

    for row in session.ledger().rows():
        if row.role == "assistant" and row.kind in ("assistant", "tool_use"):
            replies.setdefault(row.msg, []).append(_block(row, session.body(row.id)))
        elif row.kind == "tool_result":
            results.append((row.call, Outcome(_result_bytes(session, row), error=row.error)))
        elif row.kind == "user" and row.role == "user":
            if speaks(row.kind, row.role, row.origin):
                close()
            text = session.body(row.id).decode("utf-8", "replace")
            if text.strip():
                messages.append({"origin": row.origin, "message": {"role": "user", "content": text}})
    close()
    if not turns:
        raise NotFound(f"session {session.name} has no reply to replay", hint=Phrase("other-sessions"))
    return turns


def _result_bytes(session: Session, result: Row) -> bytes:
    """The recorded result of a call; of one that started a helper its report, since no note follows on replay."""
    match wire.own_metadata(result.extra).get("report"):
        case [str(scope), str(last)] if text := report(session, scope, last):
            return display.encode(f"{scope} reports:\n{text}")
    return session.body(result.id)


def play(session: Session, turns: Iterable[Turn], watcher: Watcher) -> Ended:
    """Plays recorded turns through the loop of `go`, in a session that has its own budget and policy."""
    ended = Ended(why="said")
    for turn in turns:
        for item in turn.messages:
            session.append(item["message"], origin=item["origin"])
        model, hands = Scripted(turn.replies), Replayed(turn.results)
        setup = Setup(model=model, hands=hands, watcher=watcher, limits=_PLAYED, helpers=False)
        try:
            last = go(session, setup)
        except ModelFailed:
            last = Ended(why="said", steps=len(turn.replies))  # the recording ends in the middle of a turn
        ended = msgspec.structs.replace(last, steps=ended.steps + last.steps)
    return ended


def _block(row: Row, body: bytes) -> dict[str, Any]:
    if row.kind == "tool_use":
        return {"type": "tool_use", "id": row.call, "name": row.tool, "input": wire.arguments(body, row.ext)}
    return {"type": "text", "text": body.decode("utf-8", "replace")}
