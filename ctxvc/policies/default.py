"""The default policy: rules that need no model, and the agent's own tools beside them."""

from __future__ import annotations

from typing import ClassVar

from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.policy import Names, Policy, Results, Share, Terms
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies import protocol, scoped, self_managed
from ctxvc.policies.candidates import cost_in_prompt, leaving, old_results, standing
from ctxvc.policies.knobs import numbers, shares


class Default(Policy, frozen=True, kw_only=True):
    """Admission and guard, batch clearing, the agent's own tools, and scopes; no planner.

    Source: a composition of VISTA (tools, dashboard, admission, guard), explicit scopes, and the clearing of the
    layered system ("Growth and its limits", layer 2). Admission and the guard are the session's, whatever the policy;
    `propose` is the clearing: above the budget's `clear`, old tool results are archived, oldest first. Knobs:

    - `keep`: newest results that stay; 0 is 6, and 3 in a window under 100,000 tokens.
    - `low_water`: share of the budget that a batch goes down to.
    - `least`: share of the budget that a batch has to free where it does not come down to that, so that it is not one
      result a call.
    - `exclude`: tools whose results stay. Results of calls that failed always stay.

    Differs from the layered system: each result leaves a stub with its address, and it stops at the low-water mark.
    """

    name: ClassVar[str] = "default"
    source: ClassVar[str] = "VISTA, explicit scopes, and the layered system's clearing"
    decides: ClassVar[str] = "agent, then rule"
    sees: ClassVar[str] = "dashboard and stubs"

    keep: Results = 0
    low_water: Share = 0.4
    least: Share = 0.05
    exclude: Names = ()

    def __post_init__(self) -> None:
        shares(self, "low_water", "least")
        numbers(self, 0, "keep")

    def propose(self, view: View) -> Plan:
        before, budget = view.used, view.budget
        if before <= budget.clear:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, budget.clear, "clear"))
        old = old_results(view, self.keep or budget.kept_results, tools=self.exclude)
        archives = tuple(Action(verb="archive", targets=(row.id,)) for row in old)
        plan = Plan(actions=archives, actor=self.actor)
        mark = min(int(budget.effective * self.low_water), budget.clear)
        least = int(budget.effective * self.least)
        all_gone = view.calibrated(view.counted - sum(cost_in_prompt(view, row) for row in old))
        actions, after = fewest_actions(view, plan, mark) if all_gone <= max(mark, before - least) else ((), all_gone)
        if after > mark and before - after < least:
            reason = leaving(view, before, before, f"clearing would free at most {before - after:,}, too little")
            return Plan(actions=(), actor=self.actor, reason=reason)
        reason = leaving(view, before, after, f"oldest results cleared: {len(actions)}")
        return Plan(actions=actions, actor=self.actor, reason=reason)

    def high(self, budget: Budget) -> int:
        return budget.clear

    def terms(self) -> Terms:
        tools = tuple(dict.fromkeys((*self_managed.TOOLS, *scoped.TOOLS)))
        return Terms(tools=tools, protocol=protocol.text(tools))
