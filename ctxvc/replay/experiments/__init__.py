"""The papers' experiments, on recorded or random conversations: our figures beside theirs.

Each module has a `NAME`, a `SOURCE` (paper, section or table), and `run`, which takes conversations and returns a
result with its `tables`. Some have `OPTIONS`: with `model`, `run` takes a function `ask`; with `out`, the path of a
file for finished parts. `EXPERIMENTS` has all of them, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ctxvc.replay.conversation import Conversation
from ctxvc.replay.experiments import (
    ablations,
    compaction,
    layers,
    long_run,
    memory,
    no_impact,
    pressure,
    proposition,
    scopes,
    split,
)
from ctxvc.replay.experiments.measure import Result, Table

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Table"]


class _Run(Protocol):
    def __call__(self, conversations: Iterable[Conversation], /, **options: Any) -> Result: ...


class Experiment(NamedTuple):
    """An experiment of a paper. `source` is the paper, and its section or table."""

    name: str
    source: str
    run: _Run
    options: tuple[str, ...] = ()


EXPERIMENTS: Mapping[str, Experiment] = {
    module.NAME: Experiment(module.NAME, module.SOURCE, module.run, getattr(module, "OPTIONS", ()))
    for module in (proposition, no_impact, split, long_run, layers, scopes, ablations, pressure, memory, compaction)
}
