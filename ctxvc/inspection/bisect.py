"""bisect: the commits at which something entered the prompt or left it, or at which a prompt became bad."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.prompt.outline import Bodies, Slot, pieces
from ctxvc.inspection.bodies import StoredBody, bodies, read, searchable
from ctxvc.inspection.history import rev_list, touches
from ctxvc.store.format import trailers_of
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store

#: Whether a state of a block or group shows what is looked for.
Shows = Callable[[Row | Group], bool]
#: The id of a move of the system prompt or the tools, in place of a block's.
REQUEST = "request"
_STRIDE = 64


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A commit at which a block or group began or ceased to show something; `commit` is empty if not committed yet."""

    commit: str
    id: str
    move: Literal["entered", "left"]
    kind: str


def of_address(stored: StoredSession, scope: str, name: str) -> list[Move]:
    """When the block entered and left the prompt, or the group was made and dissolved, oldest first."""
    return _moves(stored, scope, {name: _present})


def of_text(stored: StoredSession, scope: str, sought: str) -> list[Move]:
    """When blocks or stubs that contain the text entered and left the prompt, oldest first. Raises: Damaged.

    Searches the scope's current state: bodies never go, but only the current stubs and masks are seen.
    """
    return [*_in_request(stored, scope, sought), *_moves(stored, scope, _holders(stored, scope, sought))]


def first_over(store: Store, commits: Sequence[str], cost: Callable[[str], int], limit: int) -> int | None:
    """The place in `commits`, oldest first, of the first prompt that costs more than `limit`; None if none does.

    Steps only add to a prompt, so costs only rise up to the next commit of another kind. As few prompts as possible are
    measured.
    """
    begin = 0
    for end in _ends(store, commits):
        stride = _STRIDE
        while begin <= end:
            place = min(begin + stride, end)  # not the end at once: what is far behind may never have been counted
            if cost(commits[place]) > limit:
                return first_bad(range(begin, place + 1), lambda at: cost(commits[at]) <= limit)
            begin, stride = place + 1, 2 * stride
    return None


def still_over(store: Store, commits: Sequence[str], cost: Callable[[str], int], limit: int, place: int) -> bool:
    """Whether the newest prompt still costs more than `limit`, like the one at `place`."""
    grown = next(end for end in _ends(store, commits) if end >= place)
    return grown == len(commits) - 1 or cost(commits[-1]) > limit


def first_bad(places: Sequence[int], good: Callable[[int], bool]) -> int:
    """The first bad place, by bisection: the last must be bad, and no good one may follow a bad one."""
    low, high = 0, len(places) - 1
    while low < high:
        middle = (low + high) // 2
        if good(places[middle]):
            low = middle + 1
        else:
            high = middle
    return places[low]


def changes(places: Iterable[int], good: Callable[[int], bool]) -> Iterator[tuple[int, bool]]:
    """Each place whose answer differs from that of the place before, with its answer; before the first, all is good."""
    was = True
    for place in places:
        if (now := good(place)) != was:
            yield place, now
        was = now


# --- texts and blocks


def _moves(stored: StoredSession, scope: str, shows: Mapping[str, Shows]) -> list[Move]:
    moves: list[Move] = []
    for touch in touches(stored, scope, shows.keys()):
        was = touch.before is not None and not touch.cut_before and shows[touch.id](touch.before)
        now = touch.after is not None and not touch.cut_after and shows[touch.id](touch.after)
        if was != now:
            item = touch.after or touch.before
            kind = item.kind if isinstance(item, Row) else "group"
            moves.append(Move(commit=touch.commit, id=touch.id, move="entered" if now else "left", kind=kind))
    return moves[::-1]


def _present(item: Row | Group) -> bool:
    return isinstance(item, Group) or item.present


def _holders(stored: StoredSession, scope: str, sought: str) -> dict[str, Shows]:
    """Block or group → whether a state of it shows the text, for those that show it in some state."""
    ledger, snapshot = stored.ledger(scope), revision.now(stored, scope)
    stored_bodies = bodies([(stored, [scope])], lambda _row: True)
    within = {place.row.id for body in _containing(stored.store, stored_bodies, sought) for place in body.places}
    predicates: dict[str, Shows] = {}
    for name in _with_stub(ledger, sought) | within:
        if name.startswith("G"):
            predicates[name] = lambda group: not group.group and sought in group.stub
        else:
            predicates[name] = _shows(sought, snapshot.bodies, whole=name in within)
    return predicates


def _containing(store: Store, stored: Sequence[StoredBody], sought: str) -> Iterator[StoredBody]:
    needle = display.encode(sought)
    for stored_body, body in read(store, stored):
        if needle in body or (
            b"\\" in body and any(map(sought.__contains__, searchable(stored_body.places[0].row, body)))
        ):
            yield stored_body


def _with_stub(ledger: Ledger, sought: str) -> set[str]:
    rows = {row.id for row in ledger.rows() if sought in row.stub}
    return rows | {group.id for group in ledger.groups.values() if sought in group.stub}


def _shows(sought: str, read_bodies: Bodies, *, whole: bool) -> Shows:
    """A predicate for rows that show the text; `whole` says whether their body contains it."""

    def shows(item: Row | Group) -> bool:
        assert isinstance(item, Row)
        if not item.present:
            return not item.group and sought in item.stub
        if whole and item.state == "masked":
            slot = Slot(item, "mask", item.role, item.kind, call=item.call)
            return sought in display.decode(pieces([slot], read_bodies)[0].body)
        return whole

    return shows


# --- the system prompt and the tools


def _in_request(stored: StoredSession, scope: str, sought: str) -> list[Move]:
    """When the system prompt or tools began and ceased to contain the text; empty if they do not contain it now."""
    if not _requested(revision.now(stored, scope), sought):
        return []
    moves: list[Move] = []
    was = False
    for commit in rev_list(stored.store, stored.tip(scope), "--", "request")[::-1]:
        now = _requested(revision.at(stored.store, commit), sought)
        if now != was:
            moves.append(Move(commit=commit, id=REQUEST, move="entered" if now else "left", kind="system"))
        was = now
    return moves


def _requested(snapshot: Snapshot, sought: str) -> bool:
    parts = (snapshot.system, snapshot.tools)
    return any(
        sought in (part if isinstance(part, str) else display.decode(wire.compact(part))) for part in parts if part
    )


# --- costs


def _ends(store: Store, commits: Sequence[str]) -> list[int]:
    """The places right before commits that are not steps, and the last place: up to each, prompts only grow."""
    operations = (trailers_of(store.message(commit)).get("Ctxvc-Op") for commit in commits)
    ends = {place - 1 for place, operation in enumerate(operations) if operation != "step" and place}
    ends.update(_before_cuts(store, commits, 0, len(commits) - 1))
    return sorted({*ends, len(commits) - 1} if commits else ())


def _before_cuts(store: Store, commits: Sequence[str], low: int, high: int) -> Iterator[int]:
    """The places right before a cut. Cuts are only ever added: if both ends have the same, so has all in between."""
    if low < high and store.reader.meta(commits[low]).cuts != store.reader.meta(commits[high]).cuts:
        if high - low == 1:
            yield low
            return
        middle = (low + high) // 2
        yield from _before_cuts(store, commits, low, middle)
        yield from _before_cuts(store, commits, middle, high)
