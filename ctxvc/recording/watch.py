"""Recording without hooks: polls transcripts and records their new messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ctxvc import importers
from ctxvc.errors import CtxvcError
from ctxvc.importers.protocol import Stamp
from ctxvc.recording import log
from ctxvc.recording.files import SETTLED, Follower, Outcome
from ctxvc.store.store import Store

#: (format, file) of transcripts that may grow.
Found = tuple[str, Path]


@dataclass(slots=True)
class Watch:
    """The watched transcripts. `find` lists them anew each time, since new sessions begin."""

    store: Store
    find: Callable[[], Iterable[Found]]
    projects: Sequence[Path] = ()  # whose conversations are recorded, from recordings of many projects; empty for all
    # Recordings whose sessions a person removed → the time of that.
    removed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _followed: dict[Path, Follower] = field(default_factory=dict)
    _ended: dict[Path, Stamp] = field(default_factory=dict)  # file → its stamp when it was recorded to its end

    def look(self, ends: Mapping[Path, int] = MappingProxyType({})) -> list[Outcome]:
        """Records the new messages; returns the outcomes. A transcript unchanged for an hour is recorded to its end.

        `ends` limits the bytes read of a file.
        """
        outcomes = []
        for form, path in self.find():
            try:
                stamp = importers.importer(form).stamp(path)
            except FileNotFoundError:
                continue  # the host has deleted it since
            follower = self._followed.setdefault(path, Follower(self.store, path, form, self.projects, self.removed))
            ended = stamp.age > SETTLED
            if ended and self._ended.get(path) == stamp:
                continue
            outcomes += _outcomes(follower, form, ends, final=ended)
            if ended:
                self._ended[path] = stamp
        return [outcome for outcome in outcomes if outcome.units or outcome.created or outcome.error]


def _outcomes(follower: Follower, form: str, ends: Mapping[Path, int], *, final: bool) -> list[Outcome]:
    try:
        return follower.take(final=final, ends=ends)
    # The boundary: an error in one transcript does not stop the others.
    except Exception as error:
        return [Outcome(path=follower.path, format=form, error=CtxvcError(log.describe(error)))]
