"""Runs a policy: records its plan under its name and reports its errors as its own.

A policy may come from a person's own file, so it may fail or try something that policies must not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import View
from ctxvc.errors import BadPolicy, CtxvcError

_T = TypeVar("_T")


def ask_plan(policy: Policy, view: View) -> Plan:
    """The policy's plan for `view`, with the policy as its actor, whatever actor the plan names.

    The plan cannot touch human text, and the agent can recover everything it removes.
    Raises: BadPolicy if the result is not a plan, if it deletes, or if a person's own policy fails.
    """
    plan = guard_errors(type(policy), lambda: _plan(policy.propose(view)))
    if deleted := [target for action in plan.actions if action.verb == "delete" for target in action.targets]:
        raise BadPolicy(
            f"policy {policy.name} would delete {', '.join(deleted)[:80]}, which only the agent and people may do",
            hint="archive or prune it: content that a policy removes must be recoverable",
        )
    return msgspec.structs.replace(plan, actor=actor_name(policy), allow_user=False)


def ask_timing(policy: Policy, view: View, rehearsal: Rehearsal) -> CommitDecision:
    """Whether the policy would commit now. Raises: BadPolicy if a person's own policy fails."""
    return guard_errors(type(policy), lambda: _moment(policy.moment(view, rehearsal)))


def ask_relief(policy: Policy, view: View, target: int) -> Sequence[Action]:
    """The actions that the guard tries first under this policy. Raises: BadPolicy if a person's own policy fails."""
    return guard_errors(type(policy), lambda: msgspec.convert(tuple(policy.relief(view, target)), tuple[Action, ...]))


def has_model(policy: Policy) -> bool:
    """Whether the policy, or a policy inside it, asks a model for its plans."""
    parts = getattr(policy, "parts", None) or [getattr(policy, "inner", None)]
    return getattr(policy, "ask", None) is not None or any(part and has_model(part) for part in parts)


def actor_name(policy: Policy) -> str:
    """The actor under which a policy's plans are recorded; never a person or the agent."""
    actor = policy.actor
    return actor if actor == "planner" or actor.startswith("policy:") else f"policy:{policy.name}"


def guard_errors(kind: type[Policy], call: Callable[[], _T]) -> _T:
    """The result of `call`.

    Raises: BadPolicy, with file and line, if a person's own policy fails.
    """
    try:
        return call()
    except CtxvcError:
        raise
    except Exception as error:  # whatever a person's own code may raise
        if kind.__module__.startswith("ctxvc."):
            raise
        failed = f"policy {kind.name or kind.__name__} fails: {type(error).__name__}: {error}"
        raise BadPolicy(failed, hint=f"the error is in {_place(kind, error)}") from error


def _plan(proposal: object) -> Plan:
    """The proposal, validated. Raises: TypeError if it is not a plan, msgspec.ValidationError if a field is wrong."""
    if not isinstance(proposal, Plan):
        raise TypeError(f"propose returned {type(proposal).__name__}, not a Plan")
    return msgspec.convert(msgspec.to_builtins(proposal), Plan)


def _moment(decision: object) -> CommitDecision:
    """The decision, checked. Raises: TypeError if it is not a CommitDecision."""
    if not isinstance(decision, CommitDecision):
        raise TypeError(f"moment returned {type(decision).__name__}, not a CommitDecision")
    return decision


def _place(kind: type[Policy], error: Exception) -> str:
    """The innermost file and line of the error in the policy's module; its file or module if no line is known."""
    place, trace = next(_files(kind), kind.__module__), error.__traceback__
    while trace:
        if trace.tb_frame.f_globals.get("__name__") == kind.__module__:
            place = f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def own_name(kind: type[Policy]) -> str:
    """The name of a person's own policy: `stale_reads.py:StaleReads`."""
    file = next(_files(kind), kind.__module__).replace("\\", "/").rpartition("/")[2]
    return f"{file}:{kind.__name__}"


def _files(kind: type[Policy]) -> Iterator[str]:
    """The file of the class, once for each of its methods."""
    for value in vars(kind).values():
        if code := getattr(value, "__code__", None):
            yield code.co_filename
