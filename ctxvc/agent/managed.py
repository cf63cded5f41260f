"""The tools of an agent that somebody else runs: its own, and those that its policy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctxvc import policies
from ctxvc.agent.tools.definitions import definitions
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
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
