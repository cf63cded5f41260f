"""A session in a sentence and six numbers. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ctxvc.core import display
from ctxvc.inspection.window_percent import percent_of
from ctxvc.report.data import Number, Verdict


class Figures(NamedTuple):
    """The figures of a session.

    `peak` is the size of the largest prompt, counted `by_provider` or estimated; `unrecorded` tokens of it are not in
    the store. `departed` and `recovered` are blocks, `tokens_left` the tokens of departed ones, `withheld` those too
    large to be shown at all. `cost` is in dollars, None without a price, and would be `times` as much had nothing left.
    `assumed`: the window is unknown, and that of most models. `recorded`: the session was imported.
    """

    calls: int
    peak: int
    by_provider: bool
    unrecorded: int
    window: int
    assumed: bool
    departed: int
    withheld: int
    tokens_left: int
    recovered: int
    compactions: int
    cost: float | None
    times: float
    recorded: bool


def verdict(figures: Figures, notes: list[str]) -> Verdict:
    """The verdict on these figures."""
    return Verdict(sentence=_sentence(figures), numbers=_numbers(figures), notes=notes)


def _numbers(figures: Figures) -> list[Number]:
    money = "–" if figures.cost is None else f"${figures.cost:,.2f}"
    return [
        Number(name="calls", value=figures.calls, text=f"{figures.calls:,}"),
        Number(name="peak", value=figures.peak, text=display.human_tokens(figures.peak)),
        Number(name="left", value=figures.departed, text=f"{figures.departed:,}"),
        Number(name="recovered", value=figures.recovered, text=f"{figures.recovered:,}"),
        Number(name="compactions", value=figures.compactions, text=f"{figures.compactions:,}"),
        Number(name="cost", value=figures.cost, text=money),
    ]


def _sentence(figures: Figures) -> str:
    if not figures.calls:
        return "The model has not been called yet."
    window = display.human_tokens(figures.window)
    share = percent_of(figures.peak, figures.window)
    about = "" if figures.by_provider else "about "
    assumed = "an assumed " if figures.assumed else "its "
    size = f"{about}{display.human_tokens(figures.peak)} tokens"
    sentences = [f"The largest of {_plural(figures.calls, 'prompt')} had {size}"]
    sentences[0] += f", {share} % of {assumed}window of {window}"
    if figures.unrecorded:
        sentences[0] += f"; {display.human_tokens(figures.unrecorded)} of them are not recorded"
    sentences[0] += "."
    if not figures.departed:
        return f"{sentences[0]} Nothing left it."
    departure = f"{_plural(figures.departed, 'block')} ({display.human_tokens(figures.tokens_left)} tokens) left it"
    if figures.withheld:
        were = "was" if figures.withheld == 1 else "were"
        departure += f", of which {figures.withheld:,} {were} too large to be shown at all"
    if figures.compactions:
        departure += f", in {_plural(figures.compactions, 'compaction')}" if figures.recorded else ""
    sentences.append(f"{departure}; {figures.recovered or 'none'} came back.")
    if figures.cost is not None and figures.times >= 1.05:
        sentences.append(f"Without that, it would have cost {figures.times:.1f} times as much.")
    return " ".join(sentences)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
