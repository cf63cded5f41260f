"""The history of a session, put together once: what was sent with each call, and what became of each block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.report import data
from ctxvc.report.lanes import PRESENT, Lanes
from ctxvc.report.lines import Call, Change, Line, add_waiting, calls, lines
from ctxvc.report.marks import marks, prefix_break
from ctxvc.report.prompts import Pieces, Place, Prompt, splices
from ctxvc.report.texts import TextPool
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices

#: Takes the secrets out of a text.
Clean = Callable[[str], str]


@dataclass(slots=True)
class SentCall:
    """What was sent with a call: tokens as we count, of which `shared` begin the prompt before too."""

    change: Change
    tokens: dict[str, int]
    total: int
    unmanaged: int
    shared: int
    broke: bool
    reduced: bool


@dataclass(slots=True)
class ScopeHistory:
    """A scope as it stands at its newest commit, and its calls so far: their numbers, and what was sent."""

    line: Line
    snapshot: Snapshot
    prices: Prices
    rows: Sequence[Row]
    place: Mapping[str, int]
    overhead: int
    summaries: frozenset[str]
    lanes: Lanes
    numbers: list[int] = field(default_factory=list)
    sent: list[SentCall] = field(default_factory=list)
    newest: Prompt | None = None

    @property
    def model(self) -> str:
        return self.snapshot.ledger.meta.model


class History:
    """The history of what some commits reach; of a `live` session also what is in no commit yet. Raises: Damaged."""

    def __init__(
        self, store: Store, tips: Iterable[str], meter: Meter, clean: Clean, live: StoredSession | None = None
    ) -> None:
        own, order = lines(store, tips)
        if live:
            order += (line for line in own if line.tip == live.tip(line.name) and add_waiting(line, live))
        self.clean = _sound(clean)
        self.pool = TextPool()
        self.order: list[tuple[ScopeHistory, SentCall]] = []
        self.deltas: list[list[tuple[int, int, list[int]]]] = []
        self.marks: list[data.Mark] = []
        self.scopes: list[ScopeHistory] = []
        blocks = 0
        for line in own:
            self.scopes.append(_scope_history(store, line, meter, blocks))
            blocks += len(self.scopes[-1].rows)
        self.pieces = Pieces(self.pool, self.clean)
        news = [calls(line) for line in own]
        before: list[int] = []
        for line in order:
            before = self._add(self.scopes[line.number], next(news[line.number]), before)
        for scope, calls_left in zip(self.scopes, news, strict=True):
            call = next(calls_left)
            self._news(scope, call, len(self.order))

    def add(self, text: str, body: bytes = b"") -> int:
        """The number of a text in the pool, without its secrets; `body` itself is kept where that is the same."""
        data = display.encode(self.clean(text))
        return self.pool.add(body if data == body else data)

    def _news(self, scope: ScopeHistory, call: Call, number: int) -> None:
        scope.lanes.take(number, call.fresh, call.groups, call.ledger)
        self.marks += marks(call.changes, number, self.clean)

    def _add(self, scope: ScopeHistory, call: Call, before: Sequence[int]) -> list[int]:
        """Adds a call; gives its prompt, for the next."""
        number = len(self.order)
        self._news(scope, call, number)
        earlier = scope.newest
        assert call.change is not None
        place = Place(scope.line.number, scope.snapshot.bodies, scope.prices, scope.place)
        prompt = self.pieces.prompt(call.ledger, place, earlier)
        total = scope.overhead + sum(prompt.tokens.values())
        aside = sum(prompt.tokens.get(part, 0) for part in ("stubs", "dashboards"))
        aside += sum(
            scope.prices.body(lane.row)
            for name in scope.summaries
            if (lane := scope.lanes.lanes.get(name)) and lane.state in PRESENT
        )
        reduced = scope.lanes.missing > 0
        sent = SentCall(
            change=call.change,
            tokens=prompt.tokens,
            total=total,
            unmanaged=total - aside + scope.lanes.missing if reduced else total,
            shared=total - sum(self.pieces.tokens[piece] for piece in prompt.pieces[prompt.shared :]),
            broke=earlier is not None and prompt.shared < prompt.before,
            reduced=reduced,
        )
        if sent.broke:
            self.marks.append(prefix_break(call.changes, number, total - sent.shared, self.clean))
        follows = earlier is not None and before is earlier.pieces
        self.deltas.append(splices(before, prompt.pieces, prompt.shared if follows else 0))
        scope.numbers.append(number)
        scope.sent.append(sent)
        scope.newest = prompt  # the ones before it are not kept: they would take the most memory
        self.order.append((scope, sent))
        return prompt.pieces


def _sound(clean: Clean) -> Clean:
    """What cleans a text, and makes it one that JSON can hold: a lone surrogate it cannot."""

    def sound(text: str) -> str:
        text = clean(text)
        return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    return sound


def _scope_history(store: Store, line: Line, meter: Meter, blocks: int) -> ScopeHistory:
    snapshot = line.now or revision.at(store, line.tip)
    snapshot = msgspec.structs.replace(snapshot, bodies=_current(snapshot))
    prices = Prices(meter, snapshot.bodies, snapshot.ledger.meta.model)
    rows = tuple(snapshot.ledger.rows())
    prices.load(rows)
    return ScopeHistory(
        line=line,
        snapshot=snapshot,
        prices=prices,
        rows=rows,
        place={row.id: blocks + place for place, row in enumerate(rows)},
        overhead=meter.overhead(snapshot),
        summaries=frozenset(chain.from_iterable(group.summary for group in snapshot.ledger.groups.values())),
        lanes=Lanes(prices),
    )


def _current(snapshot: Snapshot) -> Bodies:
    """The bodies of the rows of any time: where one lies is known of its row as it is now. Each is read once."""
    rows, bodies, known_bodies = snapshot.ledger.by_id(), snapshot.bodies, dict[str, bytes]()

    def body(row: Row) -> bytes:
        if row.id not in known_bodies:
            known_bodies[row.id] = bodies.body(rows[row.id])
        return known_bodies[row.id]

    return Bodies(body, lambda row, suffix: bodies.file(rows[row.id], suffix))
