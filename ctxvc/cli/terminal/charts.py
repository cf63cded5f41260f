"""Charts in a line of text, readable without colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ctxvc.core.display import human_tokens
from ctxvc.inspection.window_percent import OVERHEAD, UNRECORDED, Occupancy

#: Cells of a picture.
WIDTH = 40
_HEIGHTS = "▁▂▃▄▅▆▇█"
#: A part of a prompt → its letter in a bar.
_LETTERS: Mapping[str, str] = {
    OVERHEAD: "P", "you": "Y", "client": "I", "answers": "A", "thinking": "T", "calls": "C", "results": "R",
    "notes": "N", "dashboards": "B", "images": "M", "documents": "D", "stubs": "S", "other": "O", UNRECORDED: "·",
}  # fmt: skip
_UNKNOWN = "?"


def sparkline(values: Sequence[int], width: int = WIDTH) -> str:
    """`▁▂▄▆█▃`: the values in at most `width` cells, each as high as the largest value that it stands for."""
    cells = min(width, len(values))
    bounds = [place * len(values) // cells for place in range(cells + 1)] if cells else [0]
    peaks = [max(values[start:end]) for start, end in pairwise(bounds)]
    maximum = max(peaks, default=0)
    return "".join(
        _HEIGHTS[min(len(_HEIGHTS) - 1, peak * len(_HEIGHTS) // maximum)] if maximum else " " for peak in peaks
    )


def bar(value: float, maximum: float, width: int = WIDTH) -> str:
    """`██████▌`: a bar of `width` cells for `maximum`; a value above 0 has half a cell at least."""
    halves = max(1, round(value * width * 2 / maximum)) if value > 0 and maximum > 0 else 0
    return "█" * (halves // 2) + "▌" * (halves % 2)


def growth(values: Sequence[int]) -> str:
    """A sparkline of the calls' sizes, and what they were; empty for less than two."""
    if len(values) < 2:
        return ""
    return f"{sparkline(values)}  {len(values):,} calls, {human_tokens(values[0])} to {human_tokens(values[-1])}, " + (
        f"{human_tokens(max(values))} at most"
    )


def kinds(window: Occupancy) -> str:
    """`[PPRRRRCCA···]` and what the letters are: the parts of what is in the window; empty if nothing is."""
    parts = {**window.recorded, **({UNRECORDED: window.unrecorded} if window.unrecorded > 0 else {})}
    total = sum(parts.values())
    if total <= 0:
        return ""
    letters = {name: _LETTERS.get(name, _UNKNOWN) for name in parts}
    bar, legend, so_far = "", [], 0
    for name, tokens in parts.items():
        so_far += tokens
        cells = so_far * WIDTH // total - len(bar)
        bar += letters[name] * cells
        if cells:
            legend.append(f"{letters[name]} {name}")
    return f"[{bar}] {', '.join(legend)}"
