"""A search of sessions for a model: few lines of each block that matches, with the address to read on at."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, islice

import msgspec

from ctxvc.agent.tools import phrases
from ctxvc.core import display, patterns
from ctxvc.core.ledger.block import Kind, State
from ctxvc.core.ledger.ledger import Row
from ctxvc.inspection.bodies import Place, bodies, read
from ctxvc.inspection.filters import Filters
from ctxvc.inspection.grep import Hit, Search
from ctxvc.store.log.stored_session import StoredSession

#: Lines that are shown, in all and of one block, the characters of each, and how many more blocks are counted.
SHOWN = 20
SHOWN_OF_BLOCK = 4
WIDTH = 180
COUNTED = 1_000


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A block that matches: its address as seen from the current scope, and lines of it with their numbers.

    `more` counts further lines of it.
    """

    address: str
    kind: Kind
    state: State
    step: int
    lines: tuple[tuple[int, str], ...]
    more: int = 0


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The matches among `blocks` blocks; `more` counts further blocks that match, up to 1,000.

    `unfinished` says how far the search came where the pattern took too long; empty if it came to the end.
    """

    matches: tuple[Match, ...]
    blocks: int
    more: int = 0
    unfinished: str = ""

    @property
    def text(self) -> str:
        """The matches as a model is shown them; empty if there are none."""
        lines: list[str] = []
        for match in self.matches:
            lines += [f"{match.address} {match.kind}, {match.state}, line {line}: {text}" for line, text in match.lines]
            if match.more:
                lines.append(f"  (and {match.more:,} more lines in it)")
        if self.more:
            many = f"{self.more:,}" + (" or more" if self.more == COUNTED else "")
            lines.append(f"({many} more blocks match: narrow the search)")
        if self.unfinished:
            lines.append(f"({self.unfinished})")
        return "\n".join(lines)


def search(
    stored: StoredSession,
    pattern: str,
    *,
    ignore_case: bool = False,
    without: Collection[str] = (),
    others: Iterable[StoredSession] = (),
    filters: Filters | None = None,
    limit: int = SHOWN,
) -> Searched:
    """The blocks of all scopes of the session in which the pattern is found, then those of the `others`.

    Dashboards, what was deleted, and calls of the tools `without` with their results are left out. `limit` is how many
    lines are enough.
    It takes 2 seconds at most, and what was found until then counts. Raises: BadInput for an invalid pattern.
    """
    compiled = patterns.compiled(pattern, ignore_case=ignore_case)

    def accepts(row: Row) -> bool:
        return row.kind != "dashboard" and row.state != "deleted" and row.tool not in without

    stored_bodies = bodies([_scopes(one) for one in (stored, *others)], accepts, filters=filters, whole=True)
    looking = Search(read(stored.store, stored_bodies), compiled.until(patterns.TOOL_SECONDS, time.monotonic))
    matching = groupby(looking, key=lambda hit: hit.places[0].address)
    matches: list[Match] = []
    lines_listed = 0
    for _, inside in matching:
        matches.append(_match(list(islice(inside, SHOWN_OF_BLOCK)), sum(1 for _ in inside), stored))
        lines_listed += len(matches[-1].lines)
        if lines_listed >= limit:
            break
    more = sum(1 for _ in islice(matching, COUNTED))
    return Searched(
        matches=tuple(matches), blocks=len(stored_bodies), more=more, unfinished=unfinished(looking, len(stored_bodies))
    )


def unfinished(search: Search, blocks: int) -> str:
    """The progress of a search that did not finish, and what to do; empty if it did."""
    if search.slow is None:
        return ""
    skipped = f", {search.skipped:,} of them only up to a slow line" if search.skipped else ""
    reached = f"{search.searched + search.skipped:,} of {blocks:,} blocks were searched{skipped}"
    return f"{search.slow}: {reached}; {phrases.hint(search.slow)}"


def _scopes(stored: StoredSession) -> tuple[StoredSession, Sequence[str]]:
    return stored, sorted(stored.scopes(), key=lambda name: name != stored.scope)


def _match(lines: Sequence[Hit], more: int, stored: StoredSession) -> Match:
    """The nearest of a body's places, preferring those where it is in the prompt."""

    def distance(place: Place) -> tuple[bool, bool, bool]:
        return place.session != stored.name, place.scope != stored.scope, not place.row.present

    place = min(lines[0].places, key=distance)
    return Match(
        address=address_from(stored, place),
        kind=place.row.kind,
        state=place.row.state,
        step=place.row.step,
        lines=tuple((hit.line, display.one_line(hit.text, WIDTH)) for hit in lines),
        more=more,
    )


def address_from(stored: StoredSession, place: Place) -> str:
    """The handle of a block, with the path to it from the current scope."""
    if place.project or place.session != stored.name:
        return f"{place.session}/{place.scope}:{place.row.handle}"
    return place.row.handle if place.scope == stored.scope else f"{place.scope}:{place.row.handle}"
