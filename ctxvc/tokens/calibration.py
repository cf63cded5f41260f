"""Learning how the provider counts: each call tells how many tokens its prompt had, and we know how many we counted."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.tokens import models
from ctxvc.tokens.models import Calibration

#: Calls between two looks at the samples, and how many of the newest are looked at.
EVERY = 10
MOST = 200
#: Thousandths by which a new slope must differ to be taken: each change is a commit.
LEAST = 10


class Calibrating:
    """The samples of one session in this process: our count of a prompt, and the provider's."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}  # scope → our count of the prompt that waits for its reply
        self._samples: list[tuple[int, int]] = []
        self._model = ""

    def sent(self, scope: str, tokens: int) -> None:
        """A prompt of so many tokens, as we count, goes out."""
        self._sent[scope] = tokens

    def replied(self, scope: str, usage: Mapping[str, int], known: tuple[int, int], model: str) -> Calibration | None:
        """The reply to it tells what the provider counted. Gives a better calibration than `known`, if there is one."""
        ours, theirs = self._sent.pop(scope, 0), models.usage_of(usage).prompt
        if model != self._model:
            self._model, self._samples = model, []  # another model counts in its own way
        if not ours or not theirs:
            return None
        self._samples = [*self._samples[1 - MOST :], (ours, theirs)]
        if len(self._samples) < models.MIN_SAMPLES or len(self._samples) % EVERY:
            return None
        found = models.fit(self._samples, Calibration(*known))
        return found if abs(found.a_milli - known[0]) >= LEAST or abs(found.b - known[1]) >= ours // 100 else None
