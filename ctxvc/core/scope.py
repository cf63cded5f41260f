"""Scopes and notes as rules on ledgers: what a new scope inherits, what a note contains, and what it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import notes, wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.ledger.ledger import Counters, Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE, Numbering, is_human, speaks

#: The field in a row's `extra.ctxvc` for the place where a human said it, if not in this scope.
SAID = "said"
#: The most columns of a note's first line in the subject of its commit, after `note: `.
_SUBJECT = 66
_LONGEST = 1000
#: Steps without a note after which one is suggested.
UNNOTED = 3


def departure(scope: str, text: str) -> str:
    """The note in a scope of why the agent left it for `scope`."""
    return f"[→ {scope}] {text}"


def arrival(scope: str, text: str) -> str:
    """The note of what arrives from `scope`."""
    return f"[← {scope}] {text}"


def note(text: str, actor: str, *, labels: Sequence[str] = (), supersedes: Sequence[str] = (), **switch: str) -> Part:
    """A note as a block. `switch` records its change of scope: `to` or `left`, with the other scope's name.

    For a helper's report that arrived without a change of scope, `of` is the block of the result that contains it.
    `supersedes` are the blocks and groups that the note replaces.
    """
    lists = {notes.LABELS: list(labels), notes.SUPERSEDES: list(supersedes)}
    own = {**switch, **{name: names for name, names in lists.items() if names}}
    extra = {"ctxvc": own} if own else {}
    return wire.text_part(text, "user", "human" if actor == "user" else "model", kind="note", **extra)


def spoken(ledger: Ledger, parent: Ledger | None, destination: Ledger) -> list[tuple[Row, str]]:
    """What humans said in a scope and `destination`, another scope's ledger, lacks, with where each was said.

    What the scope inherited from its `parent` counts as said there. The place is `SCOPE:B17`, also for what came from a
    third scope, so that a text arrives once, however often one returns.
    """
    places = {wire.own_metadata(row.extra).get(SAID) for row in destination.rows()} - {None}
    spoken: list[tuple[Row, str]] = []
    for row in ledger.rows():
        if not speaks(row.kind, row.role, row.origin) or row.state == "deleted":
            continue
        if _has(destination, row) or (parent is not None and _has(parent, row)):
            continue
        place = str(wire.own_metadata(row.extra).get(SAID) or f"{ledger.meta.scope}:{row.id}")
        if place not in places and not place.startswith(f"{destination.meta.scope}:"):
            spoken.append((row, place))
    return spoken


def _has(ledger: Ledger, row: Row) -> bool:
    own = ledger.get(row.id)
    return own is not None and own.sha256 == row.sha256


def unarrived(ledger: Ledger) -> list[tuple[Row, str, str]]:
    """The results with a helper's report that no note has yet, in order.

    Each comes with the helper's scope, and the last block of the report there.
    """
    arrived = {wire.own_metadata(row.extra).get("of") for row in ledger.rows() if row.kind == "note"}
    reports: list[tuple[Row, str, str]] = []
    for row in ledger.rows():
        match wire.own_metadata(row.extra).get("report") if row.kind == "tool_result" else None:
            case [str(scope), str(block)] if row.id not in arrived:
                reports.append((row, scope, block))
    return reports


def subject_and_text(text: str) -> tuple[str, str]:
    """A note as a commit's subject and text: its first line, and the whole note if that is longer, else nothing."""
    whole = display.visible_controls(text).strip()
    first = display.fitted(display.one_line(whole.partition("\n")[0], _LONGEST), _SUBJECT)
    return first, "" if first == whole else whole


def inherited(ledger: Ledger) -> tuple[str, ...]:
    """The blocks that a scope opened now inherits.

    They are the pinned blocks with the other half of their pair, the notes, and within a turn the human message that
    opened it.
    """
    pairs = _pairs(ledger)
    taken_along: set[str] = set()
    for row in ledger.rows():
        if row.state == "pinned":
            taken_along |= {row.id, *pairs.get(row.id, ())}
        elif row.kind == "note" and row.state not in ("pruned", "deleted"):
            taken_along.add(row.id)
    if in_turn(ledger):
        taken_along.update(row.id for row in _turn(ledger) if speaks(row.kind, row.role, row.origin))
    return tuple(row.id for row in ledger.rows() if row.id in taken_along)


def instructions(ledger: Ledger) -> tuple[str, ...]:
    """The blocks that a helper's scope inherits: pinned ones not from a human, with the other half of their pair."""
    pairs = _pairs(ledger)
    pinned = [row for row in ledger.rows() if row.state == "pinned" and not is_human(row.role, row.origin)]
    taken_along = {block for row in pinned for block in (row.id, *pairs.get(row.id, ()))}
    return tuple(row.id for row in ledger.rows() if row.id in taken_along)


def in_turn(ledger: Ledger) -> bool:
    """Whether the newest turn continues: its last reply made a call, or there is no reply yet."""
    replies = [row for row in _turn(ledger) if row.role == "assistant"]
    if not replies:
        return ledger.meta.counters.turn > 0
    return any(row.kind == "tool_use" for row in replies if row.msg == replies[0].msg)


def first_counters(ledger: Ledger) -> Counters:
    """The first counters of a scope that inherits from `ledger`: a step of its own, in the current turn.

    Inherited blocks keep their numbers, and so have an age.
    """
    counters = ledger.meta.counters
    return msgspec.structs.replace(counters, step=counters.step + 1, turn=counters.turn + (not in_turn(ledger)))


def span(ledger: Ledger) -> tuple[str, ...]:
    """The blocks that a note written now covers: since the scope's last note of its own, or human message.

    A note about a change of scope covers nothing. Never covered are blocks that are not in the prompt or were written
    by a human, pinned blocks with their pairs, notes, dashboards, and the step that is still open.
    """
    rows = list(ledger.rows())
    first = _first_uncovered(rows)
    numbering = Numbering.of(ledger, 0)
    last = numbering.step if numbering.complete else numbering.step - 1
    pairs = _pairs(ledger)
    pinned = {block for row in rows if row.state == "pinned" for block in (row.id, *pairs.get(row.id, ()))}
    return tuple(
        row.id
        for row in rows
        if first <= row.step <= last
        and row.present
        and row.kind not in ASIDE
        and row.id not in pinned
        and not is_human(row.role, row.origin)
    )


def unnoted(ledger: Ledger) -> int:
    """The steps of a scope that no note of it covers, on returning from it; 0 unless they are many.

    They are counted from the newest human message if there is no note since. A helper's scope has neither; its report
    is returned anyway.
    """
    if not ledger.meta.parent:
        return 0
    replied: set[int] = set()
    for row in ledger.backwards():
        if speaks(row.kind, row.role, row.origin) or _is_own_note(row):
            return len(replied) if len(replied) >= UNNOTED else 0
        if row.role == "assistant":
            replied.add(row.step)
    return 0


def _is_own_note(row: Row) -> bool:
    """Whether a block is a note that does not record a change of scope."""
    return row.kind == "note" and not {"to", "left"} & wire.own_metadata(row.extra).keys()


def _first_uncovered(rows: list[Row]) -> int:
    """The step of the newest human message or own note; the step after it if the note ended its step."""
    later: set[int] = set()  # the steps that continue after the row in question
    for row in reversed(rows):
        if speaks(row.kind, row.role, row.origin):
            return row.step
        if _is_own_note(row):
            return row.step if row.step in later else row.step + 1
        if row.kind not in ASIDE:
            later.add(row.step)
    return 0


def _turn(ledger: Ledger) -> Iterator[Row]:
    """The rows of the newest turn, newest first."""
    for row in ledger.backwards():
        if row.turn < ledger.meta.counters.turn:
            return
        yield row


def _pairs(ledger: Ledger) -> dict[str, list[str]]:
    """A call → its results, and a result → its call. A reused id belongs to the newer call from there on."""
    calls: dict[str, str] = {}
    pairs: dict[str, list[str]] = {}
    for row in ledger.rows():
        if row.kind == "tool_use":
            calls[row.call] = row.id
        elif row.kind == "tool_result" and row.call in calls:
            pairs.setdefault(calls[row.call], []).append(row.id)
            pairs[row.id] = [calls[row.call]]
    return pairs
