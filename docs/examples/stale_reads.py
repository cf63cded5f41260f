"""A policy of one's own: a file that was read again, or written since, need not stand there as it was before."""

from __future__ import annotations

from ctxvc.core.plan import Action, Plan, View
from ctxvc.core.policy import Policy


class StaleReads(Policy, frozen=True, kw_only=True):
    """Archives the results of calls that name a file which a later call names too.

    - `tools`: the tools that read a file.
    - `least`: tokens that there must be to gain; a few are not worth a broken cache.
    """

    name = "stale_reads"
    source = "our own"

    tools: tuple[str, ...] = ("Read", "read_file", "view")
    least: int = 1_000

    def propose(self, view: View) -> Plan:
        named: dict[str, str] = {}  # what a call names → the newest call that names it
        reads = []
        for row in view.ledger.rows():
            if row.kind == "tool_use":
                named[row.label.partition(": ")[2]] = row.call
            elif row.kind == "tool_result" and row.state == "visible" and row.tool in self.tools:
                reads.append(row)
        calls = {row.call: row.label.partition(": ")[2] for row in view.ledger.rows() if row.kind == "tool_use"}
        stale = [row for row in reads if calls.get(row.call) and named[calls[row.call]] != row.call]
        gain = sum(view.price.body(row) for row in stale)
        if gain < self.least:
            return Plan(actions=(), actor=self.actor, reason=f"stale reads are {gain:,} tokens, under {self.least:,}")
        actions = tuple(Action(verb="archive", targets=(row.id,), index="read again since") for row in stale)
        return Plan(actions=actions, actor=self.actor, reason=f"{len(stale)} reads are stale, {gain:,} tokens")
