"""How much each layer removes under `layered`, as shares of all that leaves, and what it leaves for the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from ctxvc import policies
from ctxvc.core.ledger.ledger import Ledger, Row, outermost
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.experiments.measure import Table, percent
from ctxvc.tokens.meter import Meter

NAME = "layers"
SOURCE = 'jutul-agent documentation, "Context handling", "Growth and its limits" (deepagents, langchain)'
APART = (
    "The documentation gives thresholds but no measurements, so this checks its order, cheapest first. In the "
    "programs it names, a summary fires at the same step whether or not results were cleared before (observed in "
    "deepagents 0.7.32); here each layer measures what the one before it left."
)

#: What removed a block: an offload for its size, the clearing of old results, a summary, or the session's own guard.
Layer = Literal["offload", "clear", "summarise", "guard"]
LAYERS: tuple[Layer, ...] = get_args(Layer)


class Layers(msgspec.Struct, frozen=True):
    """At one budget, the tokens that each layer removed from the prompt, and its batches: the calls at which it did.

    `reached` counts the conversations by the last layer that any of their calls needed; "" for none.
    """

    budget: int
    conversations: int
    tokens: Mapping[str, int]
    batches: Mapping[str, int]
    reached: Mapping[str, int]


class LayerShares(msgspec.Struct, frozen=True):
    budgets: tuple[Layers, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a budget and layer."""
        columns = ("budget", "layer", "tokens that left", "share", "batches", "conversations that go so far", "there")
        there = {
            "offload": "a result over 20k tokens",
            "clear": "past 60 %, the last 6 (3) stay",
            "summarise": "past 85 %",
            "guard": "provider's refusal",
        }
        rows = []
        for one in self.budgets:
            total = sum(one.tokens.values())
            for layer in LAYERS:
                tokens = one.tokens.get(layer, 0)
                reached = f"{one.reached.get(layer, 0)} of {one.conversations}"
                share = percent(tokens / total if total else None)
                batches = str(one.batches.get(layer, 0))
                rows.append((f"{one.budget:,}", layer, f"{tokens:,}", share, batches, reached, there[layer]))
        return (Table("Layered: what each layer takes", columns, tuple(rows), APART),)


def run(
    conversations: Iterable[Conversation],
    *,
    budgets: Sequence[int] = (32_000, 80_000),
    policy: str = "layered",
) -> LayerShares:
    """The tokens that left under `policy` by layer, at each of the budgets."""
    tokens: dict[int, Counter[str]] = {budget: Counter() for budget in budgets}
    batches: dict[int, Counter[str]] = {budget: Counter() for budget in budgets}
    reached: dict[int, Counter[str]] = {budget: Counter() for budget in budgets}
    count = 0
    for conversation in conversations:
        count += 1
        meter = Meter(None)
        for budget in budgets:
            active: set[Layer] = set()
            for batch in removals(conversation, policy, budget, meter):
                tokens[budget].update(batch)
                batches[budget].update(batch.keys())
                active |= batch.keys()
            last = next((layer for layer in ("guard", "summarise", "clear", "offload") if layer in active), "")
            reached[budget][last] += 1
    return LayerShares(
        tuple(
            Layers(budget, count, dict(tokens[budget]), dict(batches[budget]), dict(reached[budget]))
            for budget in budgets
        )
    )


def removals(conversation: Conversation, policy: str, budget: int, meter: Meter) -> Iterator[Mapping[Layer, int]]:
    """Yields for each call the tokens of the blocks that left the prompt, by the layer that removed them.

    A block that is removed again, such as an offloaded result that a summary covers later, counts where it first left.
    """
    replayed = new_session(conversation, policies.parse(policy), budget, meter=meter)
    removed: set[str] = set()
    for _ in drive(conversation, replayed, Prompts(replayed)):
        view = replayed.view()
        new = [row for row in view.ledger.rows() if _is_removed(row) and row.id not in removed]
        removed.update(row.id for row in new)
        batch: Counter[Layer] = Counter()
        for row in new:
            batch[_layer(view.ledger, row)] += _tokens(view, row)
        yield batch


def _is_removed(row: Row) -> bool:
    return not row.present and row.state != "deleted" and row.kind not in ("dashboard", "thinking")


def _layer(ledger: Ledger, row: Row) -> Layer:
    group = outermost(ledger.groups, row.group) if row.group else ""
    if group and is_summary(ledger.groups[group].stub):
        return "summarise"
    if row.state == "blocked" or "\n" in row.stub:
        return "offload"  # the stub is followed by the body's beginning and end
    return "guard" if row.removed_by in ("guard", "") else "clear"


def _tokens(view: View, row: Row) -> int:
    """A block's tokens in the prompt, less those of what replaces it."""
    return view.price.body(row) - (view.price.text(row.stub) if row.stub and not row.group else 0)
