"""The prompts of all calls: their distinct pieces, and the difference of each prompt from the one before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of
from ctxvc.core.prompt.outline import Bodies, Slot, outline, pieces, plain_text
from ctxvc.core.prompt.sanitise import Piece as Sent
from ctxvc.core.prompt.sanitise import alone, together
from ctxvc.core.view.view import Price, cost_of
from ctxvc.inspection.window_percent import part_of
from ctxvc.replay.measures.cost import shared_prefix
from ctxvc.report.data import Form, Piece
from ctxvc.report.texts import TextPool

#: The characters from which a text of ours goes into the pool.
_LONG = 300
#: The slots whose pieces are cached: a multiple of those of the newest prompt, and a minimum.
_KEPT, _KEPT_AT_LEAST = 4, 1_000
#: The text in place of a long one that the page has no room for.
LEFT_OUT = "[left out: the page has no room for it]"
Splice = tuple[int, int, list[int]]


@dataclass(slots=True)
class Prompt:
    """The prompt of a call, by the numbers of its pieces, and its tokens by kind.

    It shares its first `shared` pieces with the scope's prompt before, which had `before` pieces.
    """

    pieces: list[int]
    tokens: dict[str, int]
    shared: int
    before: int
    slots: tuple[Slot, ...]
    dropped: list[int]  # indices of slots that show nothing
    alone: list[int]  # the pieces of the others, each as if it had no neighbours


class Place(NamedTuple):
    """The source of a scope's pieces: its number, bodies, prices, and the places of its blocks."""

    scope: int
    bodies: Bodies
    price: Price
    blocks: Mapping[str, int]


class Pieces:
    """The pieces of all prompts of a page, by number. `clean` removes the secrets from a text."""

    def __init__(self, pool: TextPool, clean: Callable[[str], str]) -> None:
        self.all: list[Piece] = []
        self.tokens: list[int] = []
        self.parts: list[str] = []
        self.texts: dict[int, int] = {}  # a piece → its text's number in the pool
        self._clean = clean
        self._pool = pool
        self._sent: dict[int, Sent] = {}  # a piece whose neighbours may matter → the piece without them
        self._rare: set[int] = set()  # scopes with pieces whose neighbours may matter
        self._places: dict[tuple[object, ...], int] = {}
        self._by_slot: dict[tuple[int, int], tuple[Slot, int]] = {}

    def prompt(self, ledger: Ledger, place: Place, before: Prompt | None) -> Prompt:
        """The prompt of a ledger; `before` is the scope's prompt before it."""
        slots = outline(ledger)
        old = before.slots if before else ()
        common = _shared(old, slots)
        dropped = before.dropped[: bisect_left(before.dropped, common)] if before else []
        count = common - len(dropped)
        own = before.alone[:count] if before else []
        for at in range(common, len(slots)):
            piece = self._piece(slots[at], ledger, place)
            if piece < 0:
                dropped.append(at)
            else:
                own.append(piece)
        unchanged = _shared(before.alone, own, count) if before else 0
        tokens = dict(before.tokens) if before else {}
        for sign, changed in ((-1, before.alone[unchanged:] if before else ()), (1, own[unchanged:])):
            for piece in changed:
                part = self.parts[piece]
                tokens[part] = tokens.get(part, 0) + sign * self.tokens[piece]
        if len(self._by_slot) > _KEPT * len(slots) + _KEPT_AT_LEAST:
            self._by_slot.clear()  # else slots of all prompts would stay in memory
        adjusted = self._together(own, slots, dropped, ledger.meta.render, place)
        is_plain = before is not None and before.pieces is before.alone and adjusted is own
        shared = unchanged if is_plain else _shared(before.pieces, adjusted) if before else 0
        return Prompt(adjusted, tokens, shared, len(before.pieces) if before else 0, slots, dropped, own)

    def _together(
        self, own: list[int], slots: Sequence[Slot], dropped: Sequence[int], render: int, place: Place
    ) -> list[int]:
        """The pieces of the prompt, of which some change, or are added, because of their neighbours."""
        is_rare = place.scope in self._rare or (own and self.all[own[0]].role != "user")
        if not is_rare:
            return own
        silent = frozenset(dropped)
        speaking = (slot for at, slot in enumerate(slots) if at not in silent)
        apart = [self._apart(piece, slot, place.bodies, render) for piece, slot in zip(own, speaking, strict=True)]
        numbers = {id(sent): piece for sent, piece in zip(apart, own, strict=True)}
        return [numbers[id(sent)] if id(sent) in numbers else self._adjusted(sent, place) for sent in together(apart)]

    def _apart(self, piece: int, slot: Slot, bodies: Bodies, render: int) -> Sent:
        if piece not in self._sent:
            (rendered,) = pieces([slot], bodies, render)
            fit = alone(rendered, render)
            assert fit is not None, "a slot that says nothing has no piece"
            self._sent[piece] = fit
        return self._sent[piece]

    def _adjusted(self, sent: Sent, place: Place) -> int:
        key = (place.scope, sent.block, sent.role, sent.kind, sent.body)
        if key not in self._places:
            text = self._clean(text_of(sent.body, sent.ext, sent.extra))
            piece = Piece(
                form="whole",
                role=sent.role,
                kind=sent.kind,
                tokens=0,
                block=place.blocks.get(sent.block, -1),
                text=text,
            )
            self._places[key] = self._add(piece, "")
        return self._places[key]

    def _add(self, piece: Piece, part: str) -> int:
        self.all.append(piece)
        self.tokens.append(piece.tokens)
        self.parts.append(part)
        return len(self.all) - 1

    def _piece(self, slot: Slot, ledger: Ledger, place: Place) -> int:
        """The number of a slot's piece; -1 if nothing of it is sent."""
        cached = self._by_slot.get((place.scope, id(slot)))
        if cached is not None and cached[0] is slot:
            return cached[1]
        row = slot.row
        key = (place.scope, row.id, row.sha256, slot.show, slot.role, slot.kind, slot.text, slot.group, row.tag)
        if key not in self._places:
            self._places[key] = self._new_piece(slot, ledger, place)
        self._by_slot[place.scope, id(slot)] = slot, self._places[key]
        return self._places[key]

    def _new_piece(self, slot: Slot, ledger: Ledger, place: Place) -> int:
        render = ledger.meta.render
        (rendered,) = pieces([slot], place.bodies, render)
        fit = alone(rendered, render)
        if fit is None:
            return -1
        row, group = slot.row, ledger.groups.get(slot.group)
        members = blocks_of(ledger.groups, group.id) if group else ()
        text, number = self._text(fit, row, place.bodies)
        piece = Piece(
            form=_form(slot),
            role=fit.role,
            kind=fit.kind,
            tokens=cost_of(slot, place.price),
            block=-1 if group else place.blocks.get(row.id, -1),
            text=text,
            after=f"\n{fit.tag}" if fit.tag else "",
            group=slot.group,
            blocks=[place.blocks[name] for name in members if name in place.blocks],
        )
        at = self._add(piece, _part(slot))
        if number >= 0:
            self.texts[at] = number
        if fit.kind == "other" or fit.role == "system":
            self._rare.add(place.scope)
        return at

    def _text(self, sent: Sent, row: Row, bodies: Bodies) -> tuple[str | None, int]:
        """The sent text unless it is the body; of a long one the number in the pool instead, else -1."""
        text = text_of(sent.body, sent.ext, sent.extra)
        if row.present and text == text_of(bodies.body(row), row.ext, row.extra):
            return None, -1
        text = self._clean(text)
        return (text, -1) if len(text) < _LONG else (None, self._pool.add(display.encode(text)))

    def finished(self, places: Sequence[tuple[int, int] | None]) -> list[Piece]:
        """The pieces, in which long texts are their `places` in the pool."""
        return [
            msgspec.structs.replace(piece, text=places[self.texts[at]] or LEFT_OUT) if at in self.texts else piece
            for at, piece in enumerate(self.all)
        ]


def text_of(body: bytes, ext: str, extra: Mapping[str, Any]) -> str:
    """A body as text for people, or a description of it."""
    if ext not in ("txt", "json", "bin"):
        return f"[{ext}, {display.human_bytes(len(body))}]"
    return plain_text(body, extra) if ext == "json" else display.decode(body)


def splices(old: Sequence[int], new: Sequence[int], common: int = 0) -> list[Splice]:
    """The splices that make one list of pieces of another, in order; each has the coordinates after those before it.

    At least the first `common` pieces are equal.
    """
    start = _shared(old, new, common)
    end = _shared_end(old, new, start)
    return _between(old[start : len(old) - end], new[start : len(new) - end], start)


def _between(old: Sequence[int], new: Sequence[int], start: int) -> list[Splice]:
    if not (old and new):
        return [(start, len(old), list(new))] if old or new else []
    places = {piece: place for place, piece in enumerate(old)}
    common = _rising([(places[piece], place) for place, piece in enumerate(new) if piece in places])
    result: list[Splice] = []
    was = now = 0
    for old_at, new_at in [*common, (len(old), len(new))]:
        if old_at > was or new_at > now:
            result.append((start + now, old_at - was, list(new[now:new_at])))
        was, now = old_at + 1, new_at + 1
    return result


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of these pairs with rising first values."""
    ends: list[int] = []  # the smallest end of a run of each length
    at: list[int] = []
    before: list[int] = []
    for place, (value, _) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(value)
            at.append(place)
        else:
            ends[length], at[length] = value, place
    run: list[tuple[int, int]] = []
    place = at[-1] if at else -1
    while place >= 0:
        run.append(pairs[place])
        place = before[place]
    return run[::-1]


def _shared(before: Sequence[Hashable], after: Sequence[Hashable], common: int = 0) -> int:
    """The number of equal items at the beginning of two lists, at least `common`."""
    if common == len(before) or before is after:
        return len(before)
    return common + shared_prefix(before[common:], after[common:])


def _shared_end(old: Sequence[int], new: Sequence[int], start: int) -> int:
    """The number of equal items at the end of two lists, without the first `start`."""
    limit, count = min(len(old), len(new)) - start, 0
    while count < limit and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def tokens_of(prompt: Prompt, price: Price) -> dict[str, int]:
    """The tokens of a prompt by kind, as `status` counts them, with those of slots that show nothing."""
    tokens = dict(prompt.tokens)
    for slot in (prompt.slots[at] for at in prompt.dropped):
        tokens[_part(slot)] = tokens.get(_part(slot), 0) + cost_of(slot, price)
    return tokens


def _part(slot: Slot) -> str:
    return "stubs" if slot.show == "text" else part_of(slot.row)


def _form(slot: Slot) -> Form:
    if slot.show == "text":
        return "group" if slot.group else "stub"
    if slot.show == "mask":
        return "cut"
    return slot.row.kind if slot.row.kind in ("note", "dashboard") else "whole"
