"""A small honest agent: ask, act, record, and again. Everything that was acknowledged is on the disk before it goes on.

A reply is recorded when it is complete, each result as it comes. So a run that was killed goes on where it was, and no
call that has a result is run again; one that was begun and has none is reported as interrupted, never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

import msgspec

from ctxvc import models
from ctxvc.agent.adapter import Adapter
from ctxvc.agent.calls import result
from ctxvc.agent.model import Model, TooLong
from ctxvc.agent.workspace import Outcome
from ctxvc.core.text import decode, encode
from ctxvc.errors import CtxvcError, OverBudget

#: Why a run ended. `said`: the model has had its say; `steps`, `cost`: a limit was reached; `refused`: the provider
#: would not go on; `stopped`: the person stopped it.
Why = Literal["said", "steps", "cost", "refused", "stopped"]

#: Times in a row that the model may be asked again after its reply was cut by a limit.
_CUT_SHORT = 3
#: Sub-agents that work at the same time at most.
_TOGETHER = 4

INTERRUPTED = (
    "[interrupted: the run ended before this call's result was recorded. It may have run, in part or whole: look "
    "before you do it again]"
)

#: The tool that hands a task to a sub-agent in a scope of its own.
DELEGATE: dict[str, Any] = {
    "name": "delegate",
    "description": (
        "Give a task to a helper that works in a scope of its own, with the same tools and none of this conversation. "
        "Only its report comes back. Several in one reply work at the same time."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "name of the scope, as in read-the-docs"},
            "task": {"type": "string", "description": "all that the helper needs to know, and what to report"},
        },
        "required": ["name", "task"],
        "additionalProperties": False,
    },
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends by itself: after so many replies, or so many dollars (0: no such limit)."""

    steps: int = 100
    dollars: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: why, after how many replies, what they used and cost (None: no price known), the last words."""

    why: Why
    steps: int = 0
    usage: models.Usage = models.Usage()
    dollars: float | None = 0.0
    text: str = ""


class Hands(Protocol):
    """What runs the agent's own tools."""

    @property
    def names(self) -> frozenset[str]: ...

    def run(self, name: str, given: Mapping[str, Any]) -> Outcome: ...


class Watcher(Protocol):
    """Who looks on: told what happens, and asked whether to stop."""

    def said(self, words: str) -> None:
        """A piece of the model's words."""

    def called(self, name: str, given: Mapping[str, Any]) -> None:
        """A call that is about to be run."""

    def answered(self, name: str, outcome: Outcome) -> None:
        """What the call gave."""

    def stepped(self, adapter: Adapter) -> None:
        """A step is complete."""

    def stops(self) -> bool:
        """Whether the person wants it to end at the next step's end."""


#: Runs a task in a scope of its own: name, task → its report.
Delegate = Callable[[str, str], str]


def run(
    adapter: Adapter,
    model: Model,
    hands: Hands,
    watcher: Watcher,
    *,
    limits: Limits = Limits(),  # noqa: B008 - a value
    delegate: Delegate | None = None,
    options: Mapping[str, Any] = {},
) -> Ended:
    """Goes on until the model has had its say, or a limit is reached. `options` go to every call.

    Raises: ModelFailed, OverBudget, CtxvcError; what came before is recorded, and `run` goes on from there.
    """
    steps, usage, dollars, short = 0, models.Usage(), 0.0, 0
    priced = True
    interrupted(adapter)
    while True:
        if watcher.stops():
            return _ended("stopped", steps, usage, dollars if priced else None)
        if steps >= limits.steps:
            return _ended("steps", steps, usage, dollars if priced else None)
        if limits.dollars and dollars >= limits.dollars:
            return _ended("cost", steps, usage, dollars if priced else None)
        message = _asked(adapter, model, watcher, options)
        steps += 1
        used = models.usage_of({k: v for k, v in (message.get("usage") or {}).items() if isinstance(v, int)})
        cost = models.dollars(str(message.get("model") or adapter.session.ledger().meta.model), used)
        usage, dollars, priced = usage + used, dollars + (cost or 0.0), priced and cost is not None
        reply = adapter.record(message)
        if reply.stop == "window":
            adapter.relieve()
        _act(adapter, reply.calls, hands, watcher, delegate)
        watcher.stepped(adapter)
        short = short + 1 if reply.stop in ("length", "window") else 0
        if reply.stop == "refused":
            return _ended("refused", steps, usage, dollars if priced else None, reply.text)
        if reply.goes_on:
            continue
        if short and short <= _CUT_SHORT:
            adapter.append({"role": "user", "content": "[your reply was cut short; go on]"}, origin="client")
            continue
        return _ended("said", steps, usage, dollars if priced else None, reply.text)


def interrupted(adapter: Adapter) -> list[str]:
    """Answers the calls that a run before this one left without a result; gives their ids."""
    left = list(adapter.session.writer.open_calls)
    adapter.results([result({"id": call}, INTERRUPTED, error=True) for call in left])
    return left


def _asked(adapter: Adapter, model: Model, watcher: Watcher, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's reply; where the provider finds the prompt too long, the guard acts and it is asked once more."""
    call = adapter.request(**options)
    try:
        return model.reply(call, watcher.said)
    except TooLong as error:
        if not adapter.relieve():
            raise OverBudget(f"the provider finds it too long: {error}", hint="give a smaller --budget") from error
        return model.reply(adapter.request(**options), watcher.said)


def _act(
    adapter: Adapter,
    calls: Sequence[Mapping[str, Any]],
    hands: Hands,
    watcher: Watcher,
    delegate: Delegate | None,
) -> None:
    """Runs the calls of a reply in order, delegated ones at the same time; each result is recorded as it comes."""
    helpers = [call for call in calls if call.get("name") == DELEGATE["name"] and delegate]
    with ThreadPoolExecutor(_TOGETHER) as pool:
        working = {str(call["id"]): pool.submit(_delegated, delegate, call) for call in helpers if delegate}
        for call in calls:
            name, given = str(call.get("name")), call.get("input")
            given = given if isinstance(given, dict) else {}
            answer = adapter.handle(call)
            if answer is None:
                watcher.called(name, given)
                future = working.get(str(call["id"]))
                outcome = future.result() if future else hands.run(name, given)
                watcher.answered(name, outcome)
                answer = result(call, decode(outcome.output), error=outcome.error)
                adapter.results([answer], shown={str(call["id"]): outcome.shown} if outcome.shown else {})
            else:
                adapter.results([answer])


def _delegated(delegate: Delegate, call: Mapping[str, Any]) -> Outcome:
    given = call.get("input")
    name, task = (given.get("name"), given.get("task")) if isinstance(given, dict) else (None, None)
    if not (isinstance(name, str) and isinstance(task, str) and task.strip()):
        return Outcome(b"delegate needs a name and a task", error=True)
    try:
        return Outcome(encode(delegate(name, task)))
    except CtxvcError as error:
        return Outcome(f"the helper could not go on: {error}".encode("utf-8", "replace"), error=True)


def _ended(why: Why, steps: int, usage: models.Usage, dollars: float | None, text: str = "") -> Ended:
    return Ended(why=why, steps=steps, usage=usage, dollars=dollars, text=text)
