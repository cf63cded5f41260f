"""VISTA: the agent manages its own context; the harness shows its state and keeps the prompt sendable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from ctxvc.core.plan.guard import largest_results
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.policy import READING, Blocks, Policy, Share, Terms, Tokens
from ctxvc.core.view.model_dashboard import Board
from ctxvc.core.view.view import View
from ctxvc.policies import context_text
from ctxvc.policies.candidates import leaving, removable, standing, steps
from ctxvc.policies.context_text import Wording

#: The context tools of the full method.
TOOLS = ("archive", "recover", "restore", "delete", "note", "search")


class SelfManaged(Policy, frozen=True, kw_only=True):
    """The agent manages its context with archive, recover, restore and delete; the rules here are a safety net.

    Source: VISTA, section "Budgeted Loop and Variants" and appendices B and D. What the harness provides to the agent
    is in `terms`; `propose` is the preflight guard: above it, the largest raw tool results are archived. Knobs:

    - `theta`: θ, the largest result admitted whole, in tokens; `batch`: the same for all results of a step; 0 uses the
      budget's own ladder, with θ at most a quarter.
    - `beta`: β, the share of the budget above which the preflight guard acts; 0 uses the budget's own, 0.98.
    - `low_water`: share of the budget down to which the guard archives.
    - `share`: share of the budget down to which the fixed rule archives, which replaces the agent with `agent=off`.
    - `dashboard`, `archive`, `recover`, `agent`: off for the paper's ablations. A note folds only if the agent may
      archive. With `archive=off` the agent can only delete, and nothing is archived by rule; large results still come
      in as previews, and the session's guard archives what would exceed the hard budget, as under every policy.
    - `board`: `each` is the paper's, a table of which the prompt keeps only the newest; `full` keeps earlier ones in
      place; `changes` and `thresholds` name at most `candidates` instead of the table; `status` shows totals.
    - `nudges`: whether a board reminds the agent to make room; the paper's boards do not.
    - `wording`: `alt` is the protocol in other words, `brief` in fewer.

    Differs from the paper: a result that does not fit makes room for itself or comes in as a preview; in the paper's
    reported runs, which were strict, all results of a step that exceeds the room are dropped and the agent calls again
    (without that flag its code blocks single results from 12,000 tokens, and a step's from 50,000). Removed blocks are
    read with the tools `recover` and `search`, or as a file (`recover` with `file`), as the paper's receipts name one.
    The board comes at a turn's start, at thresholds, after a switch and on demand, not before each call, unless
    `board=each`. The guard continues to a low-water mark, since each time costs the cached prefix. All human text
    stays; the paper protects only the first message. Checksums, which the paper describes but its code lacks, are
    verified here.
    """

    name: ClassVar[str] = "self_managed"
    source: ClassVar[str] = 'VISTA (arXiv 2606.30005), "Budgeted Loop and Variants", appendices B and D'
    decides: ClassVar[str] = "agent"
    sees: ClassVar[str] = "dashboard and stubs"
    recovers: ClassVar[str] = "yes (there: by reading a file)"
    former: ClassVar[Mapping[str, str]] = {"single": "theta"}

    theta: Tokens = 0
    batch: Tokens = 0
    beta: Share = 0.0
    low_water: Share = 0.9
    share: Share = 0.6
    dashboard: bool = True
    archive: bool = True
    recover: bool = True
    agent: bool = True
    board: Literal["each", "changes", "thresholds", "full", "status"] = "full"
    candidates: Blocks = 6
    nudges: bool = True
    wording: Wording = "usual"

    def propose(self, view: View) -> Plan:
        effective, before = view.budget.effective, view.used
        if before <= view.budget.guard:
            return self._none(standing(view, before, view.budget.guard, "the guard"))
        if not self.archive:
            return self._none(leaving(view, before, before, "over the guard, but nothing may be archived"))
        free = removable(view)
        if self.agent:
            mark = int(effective * self.low_water)
            results = [row for row in free if row.kind == "tool_result"]
            results.sort(key=lambda row: (-view.price.body(row), row.number))
            units = [[row] for row in results]
        else:
            mark = int(effective * self.share)
            units = list(steps(free))
        archives = tuple(Action(verb="archive", targets=tuple(row.id for row in unit)) for unit in units)
        plan = Plan(actions=archives, actor=self.actor, pressure=True)
        actions, after = fewest_actions(view, plan, min(mark, view.budget.guard))
        unit_name = "largest results" if self.agent else "oldest steps"
        reason = leaving(view, before, after, f"over the guard, {unit_name} archived: {len(actions)}")
        return Plan(actions=actions, actor=self.actor, reason=reason, pressure=bool(actions))

    def relief(self, view: View, target: int) -> Sequence[Action]:
        return largest_results(view, target)

    def terms(self) -> Terms:
        board: Board = self.board if self.dashboard else "off"
        tools = self.tools
        return Terms(
            tools=tools,
            protocol=context_text.text(tools, board=board, wording=self.wording, folds=self.folds),
            board=board,
            candidates=self.candidates,
            nudges=self.nudges,
            handles=self.recover,
            ladder={
                **({"offload_most": self.theta} if self.theta else {}),
                **({"guard": self.beta} if self.beta else {}),
            },
            batch=self.batch,
            folds=self.folds,
        )

    @property
    def tools(self) -> tuple[str, ...]:
        """The context tools that this variant leaves the agent."""
        off: set[str] = set()
        if not self.archive:
            off.add("archive")
        if not self.recover:
            off |= READING
        if not self.agent:
            off |= {"archive", "delete"}
        return tuple(tool for tool in TOOLS if tool not in off)

    @property
    def folds(self) -> bool:
        """Whether a note may archive what led to it, which needs an agent that may archive."""
        return self.archive and self.agent

    def _none(self, reason: str) -> Plan:
        return Plan(actions=(), actor=self.actor, reason=reason)
