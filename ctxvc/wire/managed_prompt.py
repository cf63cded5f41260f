"""The messages of a managed prompt: a client's own, as the ledger has their blocks, and texts of ours among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ctxvc.core.prompt import stub
from ctxvc.core.prompt.outline import Slot
from ctxvc.forms.form import Edit, Form

#: Kinds that are sent whole or not at all.
_NEVER_IN_PART = frozenset({"tool_use", "thinking"})
_BEFORE_ALL = -1


class Item(NamedTuple):
    """A message of the history: `source` is its number in the client's body, -1 for one of the model's or ours.

    `blocks` has the block of each part, empty for one that is not recorded, and `layout` its place in the message.
    """

    value: Any
    source: int
    blocks: Sequence[str] = ()
    layout: Sequence[int] = ()


class Texts(NamedTuple):
    """What is sent for a slot instead of its body: its own text, or the guarded text of a body that reads as one of
    ours, empty for none; and whether a row is ours, so that no client sends it."""

    text: Callable[[Slot], str]
    guarded: Callable[[Slot], str]
    is_ours: Callable[[Slot], bool]


def messages(form: Form, items: Sequence[Item], slots: Iterable[Slot], texts: Texts) -> tuple[list[Any], int]:
    """The messages of the prompt whose slots these are: numbers of the client's, or values in their place.

    And how many of them there are up to the newest stub of a group, or of a block where there are no groups: what
    leaves next mostly stands behind it.
    """
    edits, loose, newest_stub = _edits(form, items, slots, texts)
    out: list[Any] = [form.own(loose[_BEFORE_ALL])] if _BEFORE_ALL in loose else []
    lasting = len(out)
    begins = bool(out)
    for number, item in enumerate(items):
        edit = edits.get(number, Edit())
        value = form.edited(item.value, edit) if any(edit) else item.value
        if value is not None:
            role = form.role(value)
            if not begins and role == "assistant":
                out.append(form.own([stub.BEGINNING]))
            begins = begins or role != "system"
            out.append(item.source if value is item.value and item.source >= 0 else value)
        if number in loose:
            out.append(form.own(loose[number]))
        if number <= newest_stub:
            lasting = len(out)
    return out, lasting


def _edits(
    form: Form, items: Sequence[Item], slots: Iterable[Slot], texts: Texts
) -> tuple[dict[int, Edit], dict[int, list[str]], int]:
    """Number of an item → its edit; and → the texts of ours that stand alone behind it; and the item up to
    which prompts are likely to stay."""
    places = {
        block: (number, place)
        for number, item in enumerate(items)
        for block, place in zip(item.blocks, item.layout, strict=True)
        if block
    }
    shown: set[tuple[int, int]] = set()
    replaced: dict[int, dict[int, str]] = defaultdict(dict)
    appended: dict[int, list[str]] = defaultdict(list)
    newest = newest_stub = in_place = _BEFORE_ALL
    for slot in slots:
        at = places.get(slot.row.id)
        if at:
            newest = max(newest, at[0])
            if slot.kind == slot.row.kind and (slot.show == "body" or slot.kind in _NEVER_IN_PART):
                shown.add(at)
                if guarded := texts.guarded(slot):
                    replaced[at[0]][at[1]] = guarded
                continue
            if _stands_in_place(slot):
                replaced[at[0]][at[1]] = texts.text(slot)
                in_place = in_place if slot.row.present else at[0]
                continue
        elif slot.kind == "tool_result" or (slot.show == "body" and not texts.is_ours(slot)):
            continue  # no client sends it; for a call without a result it has a text of its own
        if text := texts.text(slot):
            appended[newest].append(text)
            newest_stub = newest if slot.group else newest_stub
    dropped: dict[int, set[int]] = defaultdict(set)
    for number, place in places.values():
        if (number, place) not in shown and place not in replaced.get(number, ()):
            dropped[number].add(place)
    edits = {
        number: Edit(dropped.get(number, ()), replaced.get(number, {}))
        for number in {*dropped, *replaced}
    }  # fmt: skip
    edits, loose, stands_in = _with_texts(form, items, edits, appended, newest_stub)
    return edits, loose, in_place if newest_stub == _BEFORE_ALL else stands_in


def _with_texts(
    form: Form, items: Sequence[Item], edits: dict[int, Edit], appended: Mapping[int, Sequence[str]], newest_stub: int
) -> tuple[dict[int, Edit], dict[int, list[str]], int]:
    """The edits, with the texts that came after an item at the end of the newest message that is not the model's.

    `newest_stub` is the item that the newest stub came after; the one that it stands in is given.
    """
    loose: dict[int, list[str]] = {}
    stands_in = _BEFORE_ALL
    for anchor, own_texts in sorted(appended.items()):
        end = _end_of_results(form, items, anchor)
        target = _target(form, items, edits, end)
        if target is None:
            loose.setdefault(_BEFORE_ALL, []).extend(own_texts)
        else:
            edit = edits.get(target, Edit())
            edits[target] = edit._replace(appended=(*edit.appended, *own_texts))
            stands_in = target if anchor <= newest_stub else stands_in
    return edits, loose, stands_in


def _end_of_results(form: Form, items: Sequence[Item], number: int) -> int:
    """The number of the last result that follows an item; its own where none does."""
    while 0 <= number < len(items) - 1 and form.role(items[number + 1].value) == "result":
        number += 1
    return number


def _target(form: Form, items: Sequence[Item], edits: Mapping[int, Edit], end: int) -> int | None:
    """The newest item up to `end` at whose end a text of ours may stand; None if there is none."""
    for number in range(end, -1, -1):
        value = items[number].value
        if form.role(value) in ("user", "result"):
            edit = edits.get(number)
            if edit is None or not edit.dropped or form.edited(value, edit) is not None:
                return number
    return None


def _stands_in_place(slot: Slot) -> bool:
    """Whether the slot stands where its block did: a result's stub behind its call, or a text's in its message."""
    if slot.group or slot.role != slot.row.role:
        return False
    return slot.kind == slot.row.kind or (slot.kind == "user" and slot.row.kind in ("user", "image", "document"))
