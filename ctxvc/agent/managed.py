"""The tools of an agent that somebody else runs: its own, and those that its policy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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
    brief: bool = False,
) -> list[dict[str, Any]]:
    """The definitions for a session under a policy and a budget: the agent's own, then the context tools.

    With `brief`, these have as few words as in a narrow window.

    Raises: BadInput for a policy that is none.
    """
    chosen = policy if isinstance(policy, Policy) else policies.parse(policy)
    terms = chosen.terms_in(models.window_under(budget, model))
    return definitions(msgspec.structs.replace(terms, brief=brief or terms.brief), own=own)
