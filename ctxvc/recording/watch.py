"""Recording without hooks: transcripts are looked at again and again, and what is new in them is taken."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.recording import log
from ctxvc.recording.files import SETTLED, Follower, Outcome
from ctxvc.store.store import Store

#: (format, file) of transcripts that may grow.
Found = tuple[str, Path]
#: What hosts write line by line; a document of another format has no end that can be waited for.
GROWING = frozenset({"claude-code", "codex", "pi"})


@dataclass(slots=True)
class Watch:
    """Transcripts that are looked for with `find` each time, since new sessions begin."""

    store: Store
    find: Callable[[], Iterable[Found]]
    _followed: dict[Path, Follower] = field(default_factory=dict)
    _ended: dict[Path, float] = field(default_factory=dict)  # file → when it was last written to

    def look(self) -> list[Outcome]:
        """What was new. A transcript that nobody has written to for an hour is taken to its end."""
        outcomes = []
        for form, path in self.find():
            try:
                written = path.stat().st_mtime
            except FileNotFoundError:
                continue  # the host has deleted it since
            follower = self._followed.setdefault(path, Follower(self.store, path, form))
            ended = clock.time() - written > SETTLED
            if ended and self._ended.get(path) == written:
                continue
            outcomes += _taken(follower, form, final=ended)
            if ended:
                self._ended[path] = written
        return [outcome for outcome in outcomes if outcome.units or outcome.created or outcome.error]


def _taken(follower: Follower, form: str, *, final: bool) -> list[Outcome]:
    try:
        return follower.take(final=final)
    # The boundary: whatever is wrong with one transcript, the others are recorded.
    except Exception as error:
        return [Outcome(path=follower.path, format=form, error=CtxvcError(log.words(error)))]
