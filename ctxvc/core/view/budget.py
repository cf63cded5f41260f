"""The budget of a prompt and the ladder of thresholds below it, in tokens."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from ctxvc.errors import BadInput

#: A window of fewer tokens is small.
SMALL = 100_000
#: A window of fewer tokens has no room for all context tools, and little for explaining them.
NARROW = 16_000
#: The window, in tokens, assumed for a model that no table lists.
DEFAULT_WINDOW = 200_000
#: A human message of more tokens is stored whole and shown as a preview.
HUMAN_PASTE = 50_000


def is_narrow(window: int) -> bool:
    """Whether a window of this many tokens is narrow; an unknown one (0) is not."""
    return 0 < window < NARROW


class Ladder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The thresholds, as shares of the effective budget; `offload_most` and `episodes_most` are in tokens.

    A result of more than `offload` (or `offload_most`) is offloaded on arrival; old results are cleared from `clear`
    on, everything is summarised from `summarise` on, and nothing above `guard` is sent. `soft_limit` is the size in
    tokens that a policy should not exceed, though more may be sent (0: the effective budget); stubs get shares of it.
    With `guard_at_ceiling` the guard acts above the ceiling of episodes.
    """

    offload: float = 0.25
    offload_most: int = 20_000
    clear: float = 0.60
    summarise: float = 0.85
    guard: float = 0.98
    episodes_most: int = 80_000
    soft_limit: int = 0
    guard_at_ceiling: bool = False


class Budget(msgspec.Struct, frozen=True):
    """`window` is the most that the model accepts, `reserve` the part kept free for its reply; both in tokens."""

    window: int = DEFAULT_WINDOW
    reserve: int = 0
    ladder: Ladder = Ladder()

    @property
    def effective(self) -> int:
        """The most that a prompt may cost: the hard budget."""
        return self.window - self.reserve

    @property
    def soft_limit(self) -> int:
        """The most that a prompt should cost."""
        limit = min(self.ladder.soft_limit or self.effective, self.effective)
        return min(limit, self.ceiling) if self.ladder.guard_at_ceiling else limit

    @property
    def guarded(self) -> int:
        """The effective budget, or the ceiling if the guard acts there."""
        return self.ceiling if self.ladder.guard_at_ceiling else self.effective

    @property
    def offload(self) -> int:
        """A single result of more tokens than this is offloaded."""
        return min(self.ladder.offload_most, int(self.effective * self.ladder.offload))

    @property
    def clear(self) -> int:
        return int(self.effective * self.ladder.clear)

    @property
    def summarise(self) -> int:
        return int(self.effective * self.ladder.summarise)

    @property
    def guard(self) -> int:
        """The tokens above which the guard acts."""
        return min(self.hard_guard, self.ceiling) if self.ladder.guard_at_ceiling else self.hard_guard

    @property
    def hard_guard(self) -> int:
        """The tokens above which the hard budget is at risk."""
        return int(self.effective * self.ladder.guard)

    @property
    def ceiling(self) -> int:
        """CWL's τ (paper, section 3): episodes are evicted above it."""
        return min(self.ladder.episodes_most, self.effective)

    @property
    def kept_results(self) -> int:
        """The number of newest tool results that clearing keeps by default (layered, layer 2)."""
        return 6 if self.window >= SMALL else 3

    @property
    def dashboard_cap(self) -> int:
        """The most that all dashboards in the prompt may cost together, in the provider's tokens."""
        return max(self.soft_limit // 50, 512)


def check(budget: Budget) -> Budget:
    """The budget itself. Raises: BadInput if its thresholds are out of order."""
    ladder = budget.ladder
    if budget.effective <= 0:
        raise BadInput(
            f"the window of {budget.window:,} tokens leaves no room after a reserve of {budget.reserve:,}",
            hint="give a larger window or a smaller reserve",
        )
    steps = [
        ("offload", min(ladder.offload, ladder.offload_most / budget.effective)),
        ("clear", ladder.clear),
        ("summarise", ladder.summarise),
        ("guard", ladder.guard),
        ("hard", 1.0),
    ]
    for (lower, low), (upper, high) in pairwise(steps):
        if not 0 < low < high and not (upper == "hard" and 0 < low <= high):
            raise BadInput(
                f"the thresholds are out of order: {lower} {low:.0%} is not below {upper} {high:.0%}",
                hint="offload < clear < summarise < guard <= 100 %",
            )
    if ladder.offload_most <= 0 or ladder.episodes_most <= 0:
        raise BadInput("a threshold in tokens must be above 0")
    return budget
