"""VISTA's ablations and its transition table: what each part of self-management keeps within reach, use by use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ctxvc.replay import standin
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.experiments.measure import (
    Table,
    Totals,
    Variant,
    counts_at,
    evenly,
    in_date_order,
    measured,
    percent,
)
from ctxvc.replay.measures.retention import Counts, Lookup, Sums
from ctxvc.replay.measures.transitions import Transitions, transitions
from ctxvc.replay.measures.uses import uses
from ctxvc.tokens.meter import Meter

NAME = "ablations"
SOURCE = "VISTA (arXiv 2606.30005), Table 1, Figure 5, Table 6"
APART = (
    "The paper counts tasks solved by a model; here recorded conversations are replayed with a fixed stand-in "
    f"({standin.MANAGER}, and {standin.FOLDER} for active compression). The figures count non-trivial uses: exact "
    "strings in a reply that only older blocks contain. A recorded reply does not depend on what the prompt lacks."
)

FULL = "VISTA (full)"
#: The paper's variants and baselines, with their accuracy on LOCA-bench in per cent where it has one.
VARIANTS: tuple[tuple[Variant, str], ...] = (
    (Variant(FULL, "self_managed:nudges=off"), "50.7"),
    (Variant("without dashboard", "self_managed:dashboard=off,nudges=off"), "37.3"),
    (Variant("without recovery", "self_managed:recover=off,nudges=off"), "45.3"),
    (Variant("without archive", "self_managed:archive=off,nudges=off"), "lower (figure only)"),
    (Variant("fixed rule (auto-archive)", "self_managed:agent=off,nudges=off"), "44.0"),
    (Variant("status board", "self_managed:board=status,nudges=off"), "close to full (figure only)"),
    (Variant("other wording", "self_managed:wording=alt,nudges=off"), "close to full (figure only)"),
    (Variant("ReAct", "window", bare=True), "22.7"),
    (Variant("tool-result clearing", "clear:pairs=on", bare=True), "26.7"),
    (Variant("fixed stale masking", "mask", bare=True), "28.0"),
    (Variant("skeleton compression", "skeleton", bare=True), "33.3"),
    (Variant("SLIM (summary)", "summary", bare=True), "29.3"),
    (Variant("active compression", "keep", agent=standin.fold, lossy=True), "36.0"),
)
#: Table 6: both solve, the baseline only, VISTA only, neither; of 75 tasks.
PAPER: Mapping[str, tuple[int, int, int, int]] = {
    "fixed stale masking": (18, 3, 20, 34),
    "SLIM (summary)": (17, 5, 21, 32),
    "active compression": (20, 7, 18, 30),
}


class VariantFigures(Sums, frozen=True):
    """A variant over all conversations: its totals, and its non-trivial uses by outcome.

    `transitions` are from it (a) to the full method (b).
    """

    variant: Variant
    paper: str
    totals: Totals = Totals()
    nt: Counts = Counts()
    transitions: Transitions = Transitions()


class Ablations(msgspec.Struct, frozen=True):
    """The figures of each variant, the full method's first."""

    budget: int
    conversations: int
    variants: tuple[VariantFigures, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The variants, one row each, and the transitions from the others to the full method."""
        columns = (
            *("variant", "policy", "visible", "or routed", "or searchable", "all prompts", "cost to full"),
            *("archives / reads", "over, failed", "paper: solved"),
        )
        full = self.variants[0]
        rows = tuple(
            (
                *(one.variant.name, f"{one.variant.policy}{', bare' if one.variant.bare else ''}"),
                *(percent(one.nt.share(outcome)) for outcome in ("visible", "routed", "searchable")),
                *(f"{totals.total:,}", f"{totals.cost / full.totals.cost:.2f}"),
                *(f"{totals.archives} / {totals.reads}", f"{totals.over}, {totals.failed}", one.paper),
            )
            for one in self.variants
            for totals in (one.totals,)
        )
        title = f"VISTA's ablations at {self.budget:,} tokens, {self.conversations} conversations, NT uses"
        heads = ("baseline", "both", "baseline only", "VISTA only", "neither", "", "paper: both", "baseline only")
        moves = []
        for one in self.variants[1:]:
            counts = (one.transitions.both, one.transitions.only_a, one.transitions.only_b, one.transitions.neither)
            paper = tuple(map(str, PAPER.get(one.variant.name, ()))) or ("",) * 4
            moves.append((one.variant.name, *(f"{count:,}" for count in counts), "", *paper))
        table6 = Table(
            "VISTA's transitions (Table 6): uses visible or routed",
            (*heads, "VISTA only", "neither"),
            tuple(moves),
            APART,
        )
        return (Table(title, columns, rows, APART), table6)


def run(
    conversations: Iterable[Conversation],
    *,
    variants: Sequence[tuple[Variant, str]] = VARIANTS,
    budget: int = 32_000,
    limit: int = 36,
) -> Ablations:
    """The figures of each variant, the first of them the full method, on the same uses.

    `limit` conversations are taken, evenly over their dates; 0 for all.
    """
    ordered = evenly(in_date_order(conversations), limit)
    figures = [VariantFigures(variant, paper) for variant, paper in variants]
    for conversation in ordered:
        lookup, meter = Lookup(conversation, uses(conversation)), Meter(None)
        nt = [place for place, use in enumerate(lookup.uses) if use.nt]
        full = b""
        for at, (variant, paper) in enumerate(variants):
            outcomes, totals = measured(conversation, lookup, variant, budget, meter)
            full = full or outcomes
            moves = transitions(outcomes, full, nt, "routed")
            figures[at] += VariantFigures(variant, paper, totals, counts_at(outcomes, nt), moves)
    return Ablations(budget, len(ordered), tuple(figures))
