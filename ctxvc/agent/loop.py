"""The agent's loop: ask the model, run its calls, record each result, and ask again.

A reply is recorded when it is complete, and each result as it arrives. So a killed run resumes where it stopped: a call
with a result is never run again, and one without is reported as interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Protocol

import msgspec

from ctxvc.agent.adapter import Adapter
from ctxvc.agent.call import CUT_SHORT, ending, result
from ctxvc.agent.limits import Spending
from ctxvc.agent.model import Model, TooLong
from ctxvc.agent.server import Server
from ctxvc.agent.tools.definitions import Arguments, definition, describe
from ctxvc.agent.tools.tools import NOTE
from ctxvc.agent.workspace import Outcome
from ctxvc.core.display import decode, encode
from ctxvc.errors import CtxvcError, OverBudget, Phrase
from ctxvc.session.session import Session
from ctxvc.tokens import models

#: Why a run ended. `said`: the model has finished; `full`: it had to, since the context was too full for too long;
#: `cut`: its replies were cut short too often; `steps`, `tokens`, `cost`: a limit was reached; `refused`: the provider
#: would not go on; `stopped`: the person stopped it.
StopReason = Literal["said", "full", "cut", "steps", "tokens", "cost", "refused", "stopped"]

#: Times that a prompt is made smaller which the provider finds too long.
_SHRINKS = 3

#: Sub-agents that work at the same time at most, and the seconds that they have to leave when a person stops the run.
_TOGETHER = 4
_LEAVING = 1.0

INTERRUPTED = (
    "[interrupted: the run ended before this call's result was recorded. It may have run, in part or in full, and what "
    "it started may still be running: check before you repeat it]"
)

_GO_ON = {"role": "user", "content": "[your reply was truncated; continue]"}


class Delegate(Arguments, frozen=True, kw_only=True):
    """Give a task to a helper that works in its own scope, with the same tools and none of this conversation. Only its
    report comes back, as a note. Several in one reply work in parallel. An earlier one continues where it stopped."""

    name: Annotated[str, describe("name of its scope, as in read-the-docs")]
    task: Annotated[str, describe("everything the helper needs to know, and what to report")]


#: The tool that hands a task to a sub-agent in a scope of its own.
DELEGATE = definition("delegate", Delegate)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: why, after how many replies, what they used and cost (None: no price known), the last words.

    Helpers' replies are counted in, and what the policy's model used: `planner_usage` and `planner_dollars`.
    """

    why: StopReason
    steps: int = 0
    usage: models.Usage = models.Usage()
    dollars: float | None = 0.0
    planner_usage: models.Usage = models.Usage()
    planner_dollars: float | None = 0.0
    text: str = ""


class Hands(Protocol):
    """Runs the agent's own tools."""

    @property
    def names(self) -> frozenset[str]: ...

    def run(self, name: str, arguments: Mapping[str, Any], call: str = "") -> Outcome:
        """The outcome of a tool for these arguments. `call` is the id of the call."""

    def stop(self) -> None:
        """Ends at once what runs in any thread: `run` raises KeyboardInterrupt there, and from now on."""


class Watcher(Protocol):
    """Follows a run, and may stop it."""

    def said(self, text: str) -> None:
        """Receives a piece of the model's text."""

    def called(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Receives a call that is about to run."""

    def answered(self, name: str, outcome: Outcome) -> None:
        """Receives the outcome of the call."""

    def stepped(self, adapter: Adapter) -> None:
        """Called when a step is complete."""

    def stops(self) -> bool:
        """Whether to stop after this step."""


class Report(msgspec.Struct, frozen=True):
    """A helper's report: its text, and its scope with the last block of that text there."""

    text: str
    scope: str
    block: str


class Helpers(Protocol):
    """Runs tasks in scopes of their own."""

    def work(self, name: str, task: str) -> Report:
        """The report of a helper. Raises: CtxvcError."""

    def arrive(self) -> None:
        """Writes the arrival note of each report that a result tells of and that has none yet."""


def run(
    adapter: Adapter,
    model: Model,
    hands: Hands,
    watcher: Watcher,
    *,
    spending: Spending,
    helpers: Helpers | None = None,
    options: Mapping[str, Any] = {},
) -> Ended:
    """Runs until the model has finished, the provider refuses, or a limit is reached; says why it ended.

    A session that had already finished is not asked again; a reply that was cut short or paused is continued.
    `options` go to every call. `spending` has the limits; other runs may share it.
    Raises: ModelFailed, OverBudget, CtxvcError. What happened before is recorded, and another `run` resumes from it.
    """
    short = 0

    def ended(why: StopReason, text: str = "") -> Ended:
        return Ended(
            why=why,
            steps=spending.replies,
            usage=spending.usage,
            dollars=spending.dollars,
            planner_usage=spending.planner_usage,
            planner_dollars=spending.planner_dollars,
            text=text,
        )

    interrupted(adapter)
    if helpers:
        helpers.arrive()  # of a run before this one, which was killed first
    last_reply = last_words(adapter.session)
    if last_reply is not None:
        stop = ending(adapter.session.stopped)
        if stop in ("done", "refused"):
            watcher.said(last_reply)
            return ended("refused" if stop == "refused" else "said", last_reply)
        if stop != "paused":
            adapter.append(_GO_ON, origin="client")
    while True:
        if watcher.stops():
            return ended("stopped")
        if reached := spending.begin():
            return ended(reached)
        message = _reply(adapter, model, watcher, options)
        last = adapter.final
        spending.add(message, adapter.session.ledger().meta.model, prompt=adapter.session.used())
        reply = adapter.record(message)
        if reply.stop == "window":
            adapter.relieve()
        _act(adapter, reply.calls, hands, watcher, helpers)
        watcher.stepped(adapter)
        short = short + 1 if reply.stop in ("cut", "length", "window") else 0
        if reply.stop == "refused":
            return ended("refused", reply.text)
        if short > CUT_SHORT:
            return ended("cut", reply.text)
        if reply.goes_on:
            continue
        if not short:
            return ended("full" if last else "said", reply.text)
        adapter.append(_GO_ON, origin="client")


def last_words(session: Session) -> str | None:
    """The model's last reply, if nothing has come since and it waits for no tool; else None."""
    rows = [row for row in session.ledger().rows() if row.kind != "dashboard"]
    # A reply that ends in a call of the provider's own tool goes on by being sent back.
    if not rows or rows[-1].role != "assistant" or rows[-1].kind == "other":
        return None
    reply_rows = (row for row in rows if row.msg == rows[-1].msg and row.kind == "assistant")
    return "".join(decode(session.body(row.id)) for row in reply_rows)


def interrupted(adapter: Adapter) -> list[str]:
    """Answers the calls that a run before this one left without a result; returns their ids."""
    open_calls = list(adapter.session.stored.open_calls)
    adapter.results([result({"id": call}, INTERRUPTED, error=True) for call in open_calls])
    return open_calls


def _reply(adapter: Adapter, model: Model, watcher: Watcher, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's reply; where the provider finds the prompt too long, it is made smaller, and asked again."""
    for attempt in range(_SHRINKS + 1):
        try:
            call = adapter.request(**_bounded(options, adapter))
            if fallback := _fallback(adapter):
                watcher.said(f"\n[fixed rules replaced the planner: {fallback}]\n")
            if isinstance(model, Server):
                return model.reply(call, watcher.said, lambda fault: adapter.session.faulted(fault.kind, fault.text))
            return model.reply(call, watcher.said)
        except TooLong as error:
            adapter.session.faulted("overflow", str(error))
            if attempt == _SHRINKS or not adapter.too_long(error.tokens, error.window):
                raise _too_long(error) from error
            takes = f", which takes {error.window:,} tokens" if error.window else ""
            watcher.said(f"\n[the prompt is too long for the model{takes}: made room, asking again]\n")
    raise AssertionError("unreachable")


def _fallback(adapter: Adapter) -> str:
    """Why rules made the plan of this request, where a model was meant to; empty for a plan that waited before."""
    rehearsal = adapter.session.rehearsal
    waited = rehearsal is not None and "; waits: " in rehearsal.plan.reason
    return rehearsal.plan.fallback if rehearsal and not waited else ""


def _bounded(options: Mapping[str, Any], adapter: Adapter) -> Mapping[str, Any]:
    """The options, where the reply may have no more tokens than the session keeps free for it.

    A smaller window, of which the provider told on the way, has a smaller reserve.
    """
    reply, reserve = options.get("max_tokens"), adapter.session.budget.reserve
    return {**options, "max_tokens": min(reply, reserve)} if isinstance(reply, int) and reserve else options


def _too_long(error: TooLong) -> OverBudget:
    return OverBudget(
        f"the provider finds the prompt too long: {error}",
        hint=Phrase("prompt-too-long"),
    )


def _act(
    adapter: Adapter,
    calls: Sequence[Mapping[str, Any]],
    hands: Hands,
    watcher: Watcher,
    helpers: Helpers | None,
) -> None:
    """Runs the calls of a reply in order; each result is recorded as it comes.

    A helper works beside the calls that stand behind its own, and beside other helpers; reports come last, as notes
    when the step is complete.
    """
    working: list[tuple[Mapping[str, Any], Future[tuple[Outcome, Report | None]]]] = []
    with _beside(hands, working) as pool:
        for call in calls:
            answer = adapter.handle(call)
            if answer is not None:
                adapter.results([answer])
                continue
            name, arguments = str(call.get("name")), call.get("input")
            arguments = arguments if isinstance(arguments, dict) else {}
            watcher.called(name, arguments)
            if helpers and name == DELEGATE["name"]:
                working.append((call, pool.submit(_delegated, helpers, call)))
            else:
                _take_in(adapter, watcher, call, hands.run(name, arguments, str(call.get("id"))))
        for call, future in working:
            _take_in(adapter, watcher, call, *future.result())
    if helpers and working:
        helpers.arrive()


@contextmanager
def _beside(
    hands: Hands, working: Sequence[tuple[object, Future[tuple[Outcome, Report | None]]]]
) -> Iterator[ThreadPoolExecutor]:
    """Threads for helpers, who are waited for. A person who stops the run at once waits for nobody.

    Then what runs is killed, and its calls have no result. Who waits for a provider cannot be stopped: whatever it
    records later is as good as before.
    """
    pool = ThreadPoolExecutor(_TOGETHER)
    try:
        try:
            yield pool
        except Exception:
            pool.shutdown()
            raise
        pool.shutdown()
    except KeyboardInterrupt:
        hands.stop()
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for _, future in working], _LEAVING)
        raise


def _take_in(
    adapter: Adapter, watcher: Watcher, call: Mapping[str, Any], outcome: Outcome, report: Report | None = None
) -> None:
    """Records what a call gave: bytes, text or not."""
    watcher.answered(str(call.get("name")), outcome)
    answer = {**result(call, "", error=outcome.error), "content": outcome.output}
    key = str(call["id"])
    adapter.results(
        [answer],
        shown={key: outcome.shown} if outcome.shown else {},
        noted={key: {"report": [report.scope, report.block]}} if report else {},
    )


def _delegated(helpers: Helpers, call: Mapping[str, Any]) -> tuple[Outcome, Report | None]:
    arguments = call.get("input")
    name, task = (arguments.get("name"), arguments.get("task")) if isinstance(arguments, dict) else (None, None)
    if not (isinstance(name, str) and isinstance(task, str) and task.strip()):
        return Outcome(b"delegate needs a name and a task", error=True), None
    try:
        report = helpers.work(name, task)
    except CtxvcError as error:
        return Outcome(f"the helper could not continue: {error}".encode("utf-8", "replace"), error=True), None
    # What is too long for a note stays a result, which may leave the prompt.
    follows = len(report.text) <= NOTE
    receipt = f"{name} has reported; its report follows as a note." if follows else f"{name} reports:\n{report.text}"
    return Outcome(encode(receipt)), report
