"""A note's labels, which searches can filter by, and the blocks and groups that it supersedes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.errors import BadInput

#: Fields in a note's `extra.ctxvc`: its labels, and the blocks and groups that it supersedes.
LABELS = "labels"
SUPERSEDES = "supersedes"
_LABEL = re.compile(r"\w[\w./-]{0,39}")
_MOST_LABELS = 8


def checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels without repeats. Raises: BadInput if one is invalid, or there are too many."""
    wrong = next((label for label in labels if not _LABEL.fullmatch(label)), None)
    if wrong is not None:
        raise BadInput(
            f"{display.one_line(wrong, 60)!r} cannot be a label",
            hint="use letters, digits, '.', '_', '-' and '/', a letter or digit first, 40 at most",
        )
    names = tuple(dict.fromkeys(labels))
    if len(names) > _MOST_LABELS:
        raise BadInput(f"{len(names)} labels are too many", hint=f"give {_MOST_LABELS} at most")
    return names


def labels_of(note: Row) -> tuple[str, ...]:
    """The labels of a note."""
    return _texts(note, LABELS)


def superseded(ledger: Ledger) -> dict[str, str]:
    """Block or group → the newest note that supersedes it; withdrawn notes do not count."""
    notes = (row for row in ledger.rows() if row.kind == "note" and row.state not in ("pruned", "deleted"))
    return {name: note.id for note in notes for name in _texts(note, SUPERSEDES)}


def _texts(row: Row, name: str) -> tuple[str, ...]:
    texts = wire.own_metadata(row.extra).get(name)
    return tuple(text for text in texts if isinstance(text, str)) if isinstance(texts, list | tuple) else ()
