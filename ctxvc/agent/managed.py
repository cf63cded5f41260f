"""A session for an agent that somebody else runs: with that agent's tools and those that its policy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ctxvc import policies
from ctxvc.agent.tools.definitions import definitions
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from ctxvc.tokens import models

#: The policy of an agent whose developer names none.
POLICY = "default"


def tools(
    policy: str | Policy = POLICY,
    *,
    model: str = "",
    budget: int | Budget = 0,
    own: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The definitions for a session under a policy and a budget: the agent's own, then the context tools.

    Raises: BadInput for a policy that is none.
    """
    chosen = policy if isinstance(policy, Policy) else policies.parse(policy)
    return definitions(chosen.terms_in(models.window_under(budget, model)), own=own)


def open_session(
    path: str | Path,
    name: str,
    *,
    model: str = "",
    budget: int | Budget = 0,
    system: Any = None,
    own: Sequence[Mapping[str, Any]] = (),
    policy: str | Policy = "",
) -> Session:
    """The session `name` of the store at `path`, as it was left, or new with its system prompt, tools and policy.

    One that is there keeps its policy unless another is named. Raises: CtxvcError.
    """
    with Store(Path(path)) if (Path(path) / "HEAD").exists() else nullcontext() as store:
        is_new = store is None or name not in store.sessions()
    policy = policy or (POLICY if is_new else "")
    definitions_of_new = tools(policy, model=model, budget=budget, own=own) if is_new else None
    return Session.open(path, name, model=model, budget=budget, system=system, tools=definitions_of_new, policy=policy)
