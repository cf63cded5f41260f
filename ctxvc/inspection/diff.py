"""The changes in the prompt between two moments of a session: what entered, left, or is shown differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import Slot, outline, tag_of

Move = Literal["entered", "left", "changed"]
#: How a block or group appears in the prompt: its slots as rendered, without the bodies.
_Form = tuple[tuple[str, str, str, str, str], ...]
#: The state of what a cut removed from the prompt.
CUT = "cut"


class BlockChange(msgspec.Struct, frozen=True, kw_only=True):
    """A block that is shown differently. `row` is the newer one; `was` and `now` are its states: empty if it did not
    exist, `cut` for thinking or a dashboard that a cut removed.
    """

    move: Move
    row: Row
    was: str = ""
    now: str = ""

    @property
    def id(self) -> str:
        return self.row.id


class StubChange(msgspec.Struct, frozen=True, kw_only=True):
    """A group's stub that entered, left or changed; `text` is the newer one."""

    move: Move
    group: Group
    text: str
    was: str = ""
    now: str = ""

    @property
    def id(self) -> str:
        return self.group.id


def difference(before: Ledger, after: Ledger) -> list[BlockChange | StubChange]:
    """The changes from `before` to `after`: blocks by number, then stubs of groups."""
    changes = sorted(_changes(before, after), key=lambda change: change.row.number)
    return [*changes, *sorted(_stubs(before, after), key=lambda change: group_number(change.group.id))]


def _changes(before: Ledger, after: Ledger) -> Iterator[BlockChange]:
    forms = _forms(before), _forms(after)
    for segment in {*before.segments, *after.segments}:
        old_rows, new_rows = before.segments.get(segment), after.segments.get(segment)
        # Also by checksum: where clones grew apart, one number can mean two blocks.
        old = {(row.id, row.sha256): row for row in old_rows}
        new = {(row.id, row.sha256): row for row in new_rows}
        for key in old.keys() | new.keys():
            was, now = old.get(key), new.get(key)
            unmoved = was is not None and now is not None and was.state == now.state and was.group == now.group
            sides = forms[0].get(key[0], ()) if was else (), forms[1].get(key[0], ()) if now else ()
            if unmoved and sides[0] == sides[1]:
                continue
            row = now or was
            assert row is not None
            yield BlockChange(
                move=_move(*map(_is_whole, sides)),
                row=row,
                was=_state(was, before),
                now=_state(now, after),
            )


def _stubs(before: Ledger, after: Ledger) -> Iterator[StubChange]:
    old, new = _group_stubs(before), _group_stubs(after)
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            group = (after if name in new else before).groups[name]
            states = "stub" if name in old else "", "stub" if name in new else ""
            yield StubChange(
                move=_move(name in old, name in new), group=group, text=new.get(name) or old.get(name) or "",
                was=states[0], now=states[1],
            )  # fmt: skip


def _move(before: bool, after: bool) -> Move:
    if before == after:
        return "changed"
    return "entered" if after else "left"


def _state(row: Row | None, ledger: Ledger) -> str:
    if row is None:
        return ""
    return CUT if row.present and is_cut(row, ledger.meta) else row.state


def _forms(ledger: Ledger) -> dict[str, _Form]:
    forms: dict[str, _Form] = {}
    for slot in outline(ledger):
        if not slot.group:
            forms[slot.row.id] = (*forms.get(slot.row.id, ()), _form(slot))
    return forms


def _form(slot: Slot) -> tuple[str, str, str, str, str]:
    return slot.show, slot.role, slot.kind, slot.text, tag_of(slot)


def _is_whole(form: _Form) -> bool:
    """Whether a body is in the prompt, at least in part."""
    return any(show != "text" for show, *_ in form)


def _group_stubs(ledger: Ledger) -> dict[str, str]:
    return {slot.group: slot.text for slot in outline(ledger) if slot.group}
