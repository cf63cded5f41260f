"""From a ledger to the content of a prompt. Rows alone decide it; bodies are read only for what the prompt contains.

Whatever left, in whatever order, the outline is valid for the Messages API: each call is answered exactly once, in the
next message, results come first in it, and no result appears without its call (reference: the Messages API's rules on
tool use).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, pairwise, takewhile
from operator import attrgetter, is_not
from typing import Any, Literal, NamedTuple

import msgspec

from ctxvc.core import display as text
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import PRESENT
from ctxvc.core.ledger.ledger import Group, Ledger, Row, outermost, segment_of
from ctxvc.core.ledger.pairs import PAIRED, calls_and_results, results_of
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.prompt import equal_call, stub, tag
from ctxvc.core.prompt.cut import CUT, is_cut
from ctxvc.core.prompt.sanitise import OwnText, Piece, sendable

__all__ = [
    "MASK_SHOWN",
    "Bodies",
    "Piece",
    "Show",
    "Slot",
    "has_moved",
    "in_prompt_order",
    "outline",
    "pieces",
    "plain_text",
    "sendable",
    "tag_of",
]

#: Characters that a masked body still shows at its head, and at its tail.
MASK_SHOWN = 400

Show = Literal["body", "mask", "text"]
#: Kinds that are in the prompt whole or not at all, because a part of one would be invalid or mean something else.
_WHOLE = frozenset({"thinking", "image", "document", "other"})


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One content block of the prompt: a row's body, its masked body, or a text of ours in its place.

    `role` and `kind` apply to the prompt: a result without its call becomes user text. `row` is the block that the slot
    comes from, `group` the group whose stub it is.
    """

    row: Row
    show: Show
    role: str
    kind: str
    text: str = ""
    call: str = ""
    group: str = ""


class Bodies(msgspec.Struct, frozen=True):
    """Readers of bodies: `body(row)` and, for siblings, `file(row, suffix)`.

    `cache` keeps the parts of the newest prompt, most of which the next prompt repeats (`request`).
    """

    body: Callable[[Row], bytes]
    file: Callable[[Row, str], bytes]
    cache: dict[str, Any] = msgspec.field(default_factory=dict)


def outline(ledger: Ledger) -> tuple[Slot, ...]:
    """The slots of the prompt, in order."""
    return ledger.derived(_outline)


#: How many outlines' beginnings are kept: those of the prompt, and of plans and cuts under consideration.
_KEPT = 6


class _Settled(msgspec.Struct, frozen=True):
    """The part of an outline that appending to its ledger does not change: the slots of all blocks before block `end`.

    `renamed` are the ids given to calls in this part whose own ids were taken.
    """

    ledger: Ledger
    end: int = 0
    slots: tuple[Slot, ...] = ()
    renamed: frozenset[str] = frozenset()


def _outline(ledger: Ledger) -> tuple[Slot, ...]:
    """The outline; reuses the settled part of an earlier ledger's outline if it is valid here too."""
    beginnings: list[_Settled] = ledger.cache_of(_outline).setdefault("newest first", [])
    for place, settled in enumerate(beginnings):
        rest = _behind(settled, ledger)
        if rest is not None:
            head = beginnings.pop(place)
            break
    else:
        head, rest = _Settled(ledger), ledger
    slots = _whole(rest, ledger.cache_of(_whole).setdefault("slots", _SlotCache()))
    head_here = _settled(head, ledger, rest, slots)
    if head_here.end:
        beginnings.insert(0, head_here)
        del beginnings[_KEPT:]
    return (*head.slots, *slots)


def _behind(head: _Settled, ledger: Ledger) -> Ledger | None:
    """The unsettled rest; None if `head` is not part of the ledger, or something after it changes it."""
    was, segment = head.ledger, segment_of(head.end)
    if ledger.meta.cuts != was.meta.cuts or ledger.meta.render != was.meta.render or ledger.groups != was.groups:
        return None
    now, then = ledger.segments, was.segments
    if any(key < segment for key in (*now.changed_since(then), *then.changed_since(now))) or _moves(ledger):
        return None
    here, there = (
        rows[: bisect_left(rows, head.end, key=attrgetter("number"))] for rows in (now.get(segment), then.get(segment))
    )
    if len(here) != len(there) or any(map(is_not, here, there)):
        return None
    segments = {key: now[key] for key in takewhile(lambda key: key > segment, reversed(now))}
    segments[segment] = now.get(segment)[len(here) :]
    rest = Ledger(meta=ledger.meta, segments=Segments(segments), groups=ledger.groups)
    if any(row.group for row in rest.rows()):
        return None
    calls = {row.call for row in rest.rows() if row.kind in PAIRED}
    if not calls.isdisjoint(head.renamed) or any(row.number < head.end for row in calls_and_results(was, calls)):
        return None
    return rest


def _settled(head: _Settled, ledger: Ledger, rest: Ledger, slots: tuple[Slot, ...]) -> _Settled:
    """The settled part of an outline: all slots before its newest reply, if that follows another role's message.

    By then, calls before it have their answers, or get them by an id that is known.
    """
    neighbours = pairwise(rest.backwards())
    begins = (row for row, before in neighbours if row.role == "assistant" and before.role != "assistant")
    end = next((row.number for row in begins), None)
    if end is None:
        return head
    split = next((place for place, slot in enumerate(slots) if slot.row.number >= end), len(slots))
    if any(slot.row.number < end for slot in slots[split:]):
        return head  # a stub of a later block comes before part of the rest
    renamed = {slot.call for slot in slots[:split] if slot.kind in PAIRED and slot.call != slot.row.call}
    return _Settled(ledger, end, (*head.slots, *slots[:split]), head.renamed | renamed)


class _SlotCache:
    """Slots derived from others: equal parts give the same object, so that what is computed from it can be reused."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, str], tuple[tuple[object, ...], Slot]] = {}

    def slot(self, form: str, block: str, parts: tuple[object, ...], make: Callable[[], Slot]) -> Slot:
        """The block's slot in this form; made anew unless `parts` are the same objects as last time."""
        entry = self._slots.get((form, block))
        if entry is None or any(map(is_not, entry[0], parts)):
            entry = self._slots[form, block] = parts, make()
        return entry[1]


def _whole(ledger: Ledger, cache: _SlotCache) -> tuple[Slot, ...]:
    places = _places(ledger, cache)
    visible: dict[str, Slot] = {}  # what a row shows if calls and results did not depend on each other
    stubs: set[str] = set()  # groups whose stub has been placed
    for place in places:
        if place.slot is not None and place.group not in stubs:
            visible[place.row.id] = place.slot
            if place.group:
                stubs.add(place.group)
    # Nearly all of a long ledger is absent: only rows that share a call with a visible one are examined again.
    asked_for = {slot.call for slot in visible.values() if slot.kind == "tool_use"}
    paired = calls_and_results(ledger, asked_for)
    results = results_of(paired)
    renamed = _renamed(paired)
    answers = {result.id for call, result in results.items() if _stands(call, visible)}
    slots: list[Slot] = []
    open_calls: list[Slot] = []  # calls of the current assistant message
    for place in places:
        row = place.row
        if open_calls and row.role != "assistant":
            slots += _answers(open_calls, results, visible, cache)
            open_calls = []
        slot = visible.get(row.id)
        if slot is None or row.id in answers:
            continue  # an answer comes directly after its call
        if slot.show != "text" and row.kind == "tool_use":
            if row.id in renamed:
                slot = msgspec.structs.replace(slot, call=renamed[row.id])
            open_calls.append(slot)
        elif slot.show != "text" and row.kind == "tool_result":
            slot = cache.slot("without its call", row.id, (slot,), partial(_without_call, slot))
        slots.append(slot)
    slots += _answers(open_calls, results, visible, cache)
    return tuple(_in_users_voice(slots, cache) if ledger.meta.render >= 2 else slots)


def _in_users_voice(slots: list[Slot], cache: _SlotCache) -> list[Slot]:
    """The slots with each stub in another role moved to the end of the preceding user text, or to the very front.

    A model imitates what it reads in its own voice. The position of stubs is a rule of rendering 2 (docs/format.md).
    """
    if all(slot.show != "text" or slot.role == "user" for slot in slots):
        return slots
    ordered: list[Slot] = []
    end = 0  # the position after the newest user text
    for slot in slots:
        if slot.show == "text" and slot.role != "user":
            ordered.insert(end, cache.slot("the user's", slot.row.id, (slot,), partial(_without_call, slot)))
            end += 1
        else:
            ordered.append(slot)
            end = len(ordered) if slot.role == "user" else end
    return ordered


def pieces(slots: Iterable[Slot], bodies: Bodies, render: int = 1) -> list[Piece]:
    """The slots with their bytes, as this version of rendering sends them; version 1 has no tags."""
    return [_piece(slot, bodies, render) for slot in slots]


def tag_of(slot: Slot) -> str:
    """The tag that follows a slot in our prompts; empty for none."""
    return slot.row.tag if slot.show == "body" else ""


def in_prompt_order(ledger: Ledger, rows: list[Row]) -> list[Row]:
    """The rows in the ledger's order, except for summaries that a host put before a kept tail."""
    moves = _moves(ledger)
    if not moves:
        return rows
    by_id = {row.id: row for row in rows}
    ahead: dict[str, list[str]] = {}  # block → the blocks of summaries that come before it
    moved: dict[str, str] = {}  # block of a summary → the block that it comes before
    for summary, before in moves:
        if before in by_id:
            place = moved.get(before, before)
            line = ahead.setdefault(place, [])
            at = line.index(before) if before in moved else len(line)
            placed = moved.keys() | ahead.keys()
            new = [block for block in dict.fromkeys(summary) if block in by_id and block not in placed]
            line[at:at] = new
            moved.update(dict.fromkeys(new, place))
    return [by_id[block] for row in rows if row.id not in moved for block in (*ahead.get(row.id, ()), row.id)]


def has_moved(ledger: Ledger) -> bool:
    """Whether the order of the prompt differs from the ledger's."""
    return bool(_moves(ledger))


def _moves(ledger: Ledger) -> list[tuple[tuple[str, ...], str]]:
    """The summaries that are not where they were recorded: their blocks, and the block that follows."""
    return [(group.summary, group.before) for group in ledger.groups.values() if group.before]


class _Place(NamedTuple):
    """A row that shows something, or one without a slot that ends a reply with calls.

    `group` is the group whose stub it shows, if no earlier row does.
    """

    row: Row
    slot: Slot | None
    group: str


def _places(ledger: Ledger, cache: _SlotCache) -> list[_Place]:
    """The rows that may show something, in prompt order; for unchanged segments mostly the same objects as before."""
    names_of_groups = frozenset[str]().union(*ledger.by_segment(_groups_in))
    outer = {name: ledger.groups.get(outermost(ledger.groups, name)) for name in names_of_groups}
    around = [tuple(map(outer.get, names)) for names in ledger.by_segment(_groups_in)]
    if None in chain.from_iterable(around) or has_moved(ledger):
        alone = {slot.row.id: slot for slot in _each_alone(ledger.rows())}
        slots = [alone[row.id] for row in in_prompt_order(ledger, list(ledger.rows()))]
        return _places_of(ledger, slots, outer, cache)
    cache_of_segments: dict[int, _SegmentPlaces] = ledger.cache_of(_places)
    places: list[_Place] = []
    for segment, slots, groups in zip(ledger.segments, ledger.by_segment(_alone), around, strict=True):
        entry = cache_of_segments.get(segment)
        if (
            entry is None
            or entry.slots is not slots
            or (entry.cuts is not None and entry.cuts != ledger.meta.cuts)
            or any(map(is_not, entry.groups, groups))
        ):
            cuts = ledger.meta.cuts if any(slot.row.kind in CUT for slot in slots) else None
            entry = _SegmentPlaces(slots, groups, cuts, _places_of(ledger, slots, outer, cache))
            cache_of_segments[segment] = entry
        places += entry.places
    return places


class _SegmentPlaces(NamedTuple):
    """A segment's places and what decides them: its rows' own slots, the groups around them, any cuts that matter."""

    slots: list[Slot]
    groups: tuple[Group | None, ...]
    cuts: tuple[int, ...] | None
    places: list[_Place]


def _places_of(
    ledger: Ledger, slots: Iterable[Slot], outer: Mapping[str, Group | None], cache: _SlotCache
) -> list[_Place]:
    """The places of rows; `slots` are what each would show on its own."""
    places: list[_Place] = []
    silent: set[str] = set()  # groups without a stub, or whose stub has been placed
    calls = True  # whether calls of a reply may precede this row
    for slot in slots:
        row, group = slot.row, None
        stands: Slot | None = slot
        if row.kind in CUT and is_cut(row, ledger.meta):
            stands = None
        elif slot.show == "text" and row.state != "pruned" and row.group and (group := outer.get(row.group)):
            shows = group.stub and group.id not in silent
            silent.add(group.id)
            stub_of = partial(msgspec.structs.replace, slot, text=group.stub, group=group.id)
            stands = cache.slot("group", row.id, (slot, group), stub_of) if shows else None
        elif slot.show == "text" and not slot.text:
            stands = None
        if stands or (calls and row.role != "assistant"):
            places.append(_Place(row, stands, group.id if group and stands else ""))
            calls = row.role == "assistant" and (calls or (slot.show != "text" and row.kind == "tool_use"))
    return places


def _groups_in(rows: tuple[Row, ...]) -> set[str]:
    return {row.group for row in rows if row.group}


def _alone(rows: tuple[Row, ...]) -> list[Slot]:
    """The rows of one segment that may show something, provided that all their groups exist (`_each_alone`).

    The first row of a group that no cut removes represents the whole group. Of the other silent rows, those are kept
    that end a reply with calls, in this segment or possibly in the one before.
    """
    places: list[Slot] = []
    placed_groups: set[str] = set()
    calls = True  # whether calls of a reply may precede this row
    for slot in _each_alone(rows):
        row = slot.row
        silent = slot.show == "text" and (
            row.state == "pruned" or (row.group in placed_groups if row.group else not slot.text)
        )
        if not silent or (calls and row.role != "assistant"):
            places.append(slot)
            calls = row.role == "assistant" and (calls or (slot.show != "text" and row.kind == "tool_use"))
        if slot.show == "text" and row.state != "pruned" and row.kind not in CUT:
            placed_groups.add(row.group)
    return places


def _each_alone(rows: Iterable[Row]) -> list[Slot]:
    """Each row's slot regardless of other rows, groups and cuts; for an absent row its stub, or empty text."""
    return [
        Slot(row, "mask" if row.state == "masked" else "body", row.role, row.kind, call=row.call)
        if row.state in PRESENT
        else Slot(row, "text", row.role, row.role, "" if row.state == "pruned" else row.stub)
        for row in rows
    ]


def _renamed(rows: Iterable[Row]) -> dict[str, str]:
    """A call's block → the id it gets because an earlier call has its own."""
    taken: set[str] = set()
    renamed: dict[str, str] = {}
    for row in rows:
        if row.kind == "tool_use":
            name = row.call
            while name in taken:
                name = renamed[row.id] = f"{name}-{row.id}"
            taken.add(name)
    return renamed


def _stands(call: str, visible: Mapping[str, Slot]) -> bool:
    return call in visible and visible[call].show != "text"


def _answers(
    calls: Iterable[Slot], results: Mapping[str, Row], visible: Mapping[str, Slot], cache: _SlotCache
) -> list[Slot]:
    """The slots that answer a reply's calls, in the calls' order, or in the host's order if it sent all of them."""
    answers = [_answer(call, results.get(call.row.id), visible, cache) for call in calls]
    if all(wire.own_metadata(answer.row.extra).get("sent") is True for answer in answers):
        answers.sort(key=lambda answer: answer.row.number)
    return answers


def _answer(call: Slot, result: Row | None, visible: Mapping[str, Slot], cache: _SlotCache) -> Slot:
    """The slot that answers a call: its result, or a text in its place."""
    if result is None:
        return Slot(call.row, "text", "user", "tool_result", "", call.call)
    slot = visible.get(result.id)
    if slot is None:
        return cache.slot("answer", result.id, (result, call.call), partial(_short_answer, result, call.call))
    if (slot.role, slot.kind, slot.call) == ("user", "tool_result", call.call):
        return slot
    answer = partial(msgspec.structs.replace, slot, role="user", kind="tool_result", call=call.call)
    return cache.slot("answer", result.id, (slot, call.call), answer)


def _short_answer(result: Row, call: str) -> Slot:
    return Slot(result, "text", "user", "tool_result", stub.absent(result), call)


def _without_call(slot: Slot) -> Slot:
    """A result whose call is not in the prompt, as user text: the API would reject it as a result."""
    return msgspec.structs.replace(slot, kind="user", role="user", call="")


def _piece(slot: Slot, bodies: Bodies, render: int) -> Piece:
    row = slot.row
    if slot.show == "text":
        unknown = slot.kind == "tool_result" and not slot.text
        extra = {"ctxvc": {"interrupted": True}} if unknown else {}
        failed = unknown or (slot.kind == "tool_result" and row.error)
        return _own_text(slot, slot.text, error=failed, extra=extra)
    body = bodies.body(row)
    if slot.show == "mask" and (masked := _masked(body, row, render)):
        kind = slot.role if slot.kind in _WHOLE else slot.kind
        return _own_text(msgspec.structs.replace(slot, kind=kind), masked, error=row.error)
    whole = Piece(
        message=row.msg,
        role=slot.role,
        kind=slot.kind,
        body=body,
        ext=row.ext,
        call=slot.call,
        tool=row.tool,
        error=row.error,
        extra=row.extra,
        block=row.id,
        tag=tag_of(slot) if render >= tag.SINCE else "",
    )
    if slot.kind == "tool_use" and (call := equal_call.equal_call(row, body)):
        original = wire.own_metadata(row.extra).get("original") or {"tool": row.tool, "arguments": call.original}
        metadata: dict[str, Any] = {"ctxvc": {"original": original}}
        return msgspec.structs.replace(whole, tool=call.tool, body=wire.compact(call.arguments), extra=metadata)
    if row.kind == "tool_result" and slot.kind != "tool_result":
        return msgspec.structs.replace(whole, body=text.encode(plain_text(body, row.extra)), ext="txt", extra={})
    return msgspec.structs.replace(whole, files={suffix: bodies.file(row, suffix) for suffix in row.files})


def _own_text(slot: Slot, value: str, *, error: bool, extra: Mapping[str, Any] = {}) -> OwnText:
    return OwnText(
        message=slot.row.msg,
        role=slot.role,
        kind=slot.kind,
        body=text.encode(value),
        call=slot.call,
        tool=equal_call.tool_of(slot.row),
        error=error,
        extra=extra,
        block=slot.group or slot.row.id,
    )


def _masked(body: bytes, row: Row, render: int) -> str:
    """The masked form of a body; empty if a mask would keep all of it."""
    if row.kind in ("image", "document") and row.ext != "json":
        return f"[masked {row.handle}: {row.kind}, {text.human_bytes(row.bytes)} left out]"
    value = plain_text(body, row.extra) if row.kind == "tool_result" else text.decode(body)
    left_out = len(value) - 2 * MASK_SHOWN
    if left_out <= 0:
        return stub.guarded(value, render) if row.files else ""
    if row.kind in _WHOLE:
        return f"[masked {row.handle}: {row.kind}, {text.human_bytes(row.bytes)} left out]"
    head, tail = stub.guarded(value[:MASK_SHOWN], render), stub.guarded(value[-MASK_SHOWN:], render)
    return f"{head}\n[masked {row.handle}: {left_out:,} characters left out]\n{tail}"


def plain_text(body: bytes, extra: Mapping[str, Any]) -> str:
    """The text of a result; images and documents appear by kind only."""
    items = wire.items(body, extra)
    return text.decode(body) if items is None else "\n".join(map(_item_text, items))


def _item_text(item: Any) -> str:
    match item:
        case str():
            return item
        case {"text": str(value)}:
            return value
        case {"type": "image" | "document" as kind}:
            return f"[{kind}]"
    return text.decode(wire.compact(item))
