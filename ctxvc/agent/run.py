"""A run of the agent: how its session begins, what the model is told, helpers in scopes of their own, and replays."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.agent import loop
from ctxvc.agent.adapter import Adapter
from ctxvc.agent.call import MAX_TOKENS, arguments, room
from ctxvc.agent.limits import Spending
from ctxvc.agent.loop import Ended, Hands, Limits, Report, Watcher
from ctxvc.agent.model import Model, ModelFailed
from ctxvc.agent.refusal import Fault
from ctxvc.agent.server import Server
from ctxvc.agent.start import has_task, is_begun, report
from ctxvc.agent.tools.tools import NOTE, SHOWN
from ctxvc.core import display
from ctxvc.core import scope as scoping
from ctxvc.core.policy import Answer, Ask, Policy
from ctxvc.core.view.view import View
from ctxvc.errors import Refused
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
    """Ends the steps that helpers of a run before this one left open: nobody is going to.

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
