"""How full the window is, as `status` and `context` answer with `--json`."""

from __future__ import annotations

from typing import Annotated, Any

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.output import iso
from ctxvc.inspection.window_percent import Occupancy


class WindowAnswer(Answer, frozen=True, kw_only=True):
    """How full the window is. `recorded` and `unrecorded` are together `used`."""

    window: Annotated[int, described("tokens of the window")]
    window_by: Annotated[
        str,
        described(
            "source of the window: `host` (the recording itself), `name` (the model's), `command` (`/model`), "
            "`count`, `compaction`, `settings`, `models` (the host's table), `budget`, `set`, `table` (ours), "
            "`assumed`"
        ),
    ]
    compacts: Annotated[int, described("tokens at which the recorded host compacts automatically; 0 if unknown")]
    used: Annotated[
        int,
        described(
            "tokens of the newest call's prompt; of the prompt as it stands now if something of that left or came back"
        ),
    ]
    percent: Annotated[int, described("of the window, rounded down; above 100 if more was counted than it should hold")]
    by_provider: Annotated[
        bool,
        described(
            "whether `used` is the provider's count; false if it is our estimate, since the prompt has changed or "
            "that call's count is not recorded"
        ),
    ]
    reported: Annotated[int | None, described("the provider's newest count: the prompt of that call")]
    reported_step: Annotated[int | None, described("the step of that call")]
    reported_at: Annotated[str, described("the time of that call, ISO 8601; empty if there is none")]
    recorded: Annotated[dict[str, int], described("recorded part of `used`, by kind")]
    unrecorded: Annotated[int, described("unrecorded part of `used`: system prompt, tools and thinking")]
    since: Annotated[
        dict[str, int], described("what came after that prompt, its reply included, by our count; not in `used`")
    ]


def window_answer(window: Occupancy) -> dict[str, Any]:
    """The fields of `WindowAnswer`."""
    count = window.counted_call
    return {
        "window": window.window,
        "window_by": window.window_by,
        "compacts": window.compacts,
        "used": window.tokens,
        "percent": window.percent,
        "by_provider": window.by_provider,
        "reported": count.usage.prompt if count else None,
        "reported_step": count.step if count else None,
        "reported_at": iso(count.entry.time) if count else "",
        "recorded": window.recorded,
        "unrecorded": window.unrecorded,
        "since": window.since,
    }
