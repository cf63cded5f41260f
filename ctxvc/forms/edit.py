"""What changes in a message on its way to a model, in whatever form it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """What changes in a message: items that left, items that show another text, and texts behind it all.

    Calls and thinking leave or stay as they are: no text stands in their place.
    """

    dropped: Collection[int] = ()
    replaced: Mapping[int, str] = {}
    appended: Sequence[str] = ()


class Answer(NamedTuple):
    """The result of a call of the newest reply, by the call's id and its tool; `error` where it failed."""

    call: str
    tool: str
    text: str
    error: bool = False
