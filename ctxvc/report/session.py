"""The page of a session: its whole history, as `report.data` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import caption, wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.inspection import usage
from ctxvc.inspection.captions import labels_of
from ctxvc.inspection.occupancy import OVERHEAD
from ctxvc.report import data
from ctxvc.report.expense import Sized, Spent, expenses
from ctxvc.report.lanes import PRESENT, Lane, Lanes
from ctxvc.report.lines import Call, Line, add_waiting, calls, lines
from ctxvc.report.marks import marks, prefix_break
from ctxvc.report.prompts import Pieces, Place, Prompt, shown, splices
from ctxvc.report.texts import TextPool
from ctxvc.report.verdict import Figures, verdict
from ctxvc.store import revision
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.revision import PROMPT, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.meter import Meter, Prices, budget_of, window_of

#: Columns of a label, of a reason, of a note.
_LABEL, _REASON, _NOTE = 120, 400, 2_000
#: A page has so many figures of a block's checksum.
_SHA = 12

#: Takes the secrets out of a text.
Clean = Callable[[str], str]


@dataclass(slots=True)
class _Sent:
    """What was sent with a call: tokens as we count, of which `shared` begin the prompt before too."""

    call: Call
    prompt: Prompt
    total: int
    unmanaged: int
    shared: int
    left: bool


@dataclass(slots=True)
class _Scope:
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
    sent: list[_Sent] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.snapshot.ledger.meta.model


class _Page:
    """A page in the making."""

    def __init__(
        self, store: Store, tips: Iterable[str], meter: Meter, clean: Clean, live: StoredSession | None = None
    ) -> None:
        own, order = lines(store, tips)
        if live:
            order += (line for line in own if line.tip == live.tip(line.name) and add_waiting(line, live))
        self.clean = clean
        self.pool = TextPool()
        self.order: list[tuple[_Scope, _Sent]] = []
        self.deltas: list[list[tuple[int, int, list[int]]]] = []
        self.marks: list[data.Mark] = []
        self.scopes: list[_Scope] = []
        blocks = 0
        for line in own:
            self.scopes.append(_scope(store, line, meter, blocks))
            blocks += len(self.scopes[-1].rows)
        self.pieces = Pieces(self.pool, clean)
        news = [calls(line) for line in own]
        before: list[int] = []
        for line in order:
            before = self._add(self.scopes[line.number], next(news[line.number]), before)
        for scope, rest in zip(self.scopes, news, strict=True):
            call = next(rest)
            self._news(scope, call, len(self.order))

    def add(self, text: str) -> int:
        """The number of a text in the pool, without its secrets."""
        return self.pool.add(display.encode(self.clean(text)))

    def _news(self, scope: _Scope, call: Call, number: int) -> None:
        scope.lanes.take(number, call.fresh, call.groups, call.ledger)
        self.marks += marks(call.changes, number, self.clean)

    def _add(self, scope: _Scope, call: Call, before: Sequence[int]) -> list[int]:
        """Adds a call; gives its prompt, for the next."""
        number = len(self.order)
        self._news(scope, call, number)
        earlier = scope.sent[-1].prompt if scope.sent else None
        place = Place(scope.line.number, scope.snapshot.bodies, scope.prices, scope.place)
        prompt = self.pieces.prompt(call.ledger, place, earlier)
        total = scope.overhead + sum(prompt.tokens.values())
        aside = sum(prompt.tokens.get(part, 0) for part in ("stubs", "dashboards"))
        aside += sum(
            scope.prices.body(lane.row)
            for name in scope.summaries
            if (lane := scope.lanes.lanes.get(name)) and lane.state in PRESENT
        )
        left = scope.lanes.missing > 0
        sent = _Sent(
            call=call,
            prompt=prompt,
            total=total,
            unmanaged=total - aside + scope.lanes.missing if left else total,
            shared=total - sum(self.pieces.tokens[piece] for piece in prompt.pieces[prompt.shared :]),
            left=left,
        )
        if earlier and prompt.shared < prompt.before:
            self.marks.append(prefix_break(call.changes, number, total - sent.shared, self.clean))
        self.deltas.append(splices(before, prompt.pieces))
        scope.numbers.append(number)
        scope.sent.append(sent)
        self.order.append((scope, sent))
        return prompt.pieces


class Commands(NamedTuple):
    """What a person types: what made the page, what takes back a verb on a block (empty for none), what shows one."""

    made: str
    undo: Callable[[str, str], str]
    show: Callable[[str], str]


def session(
    store: Store,
    name: str,
    tips: Sequence[str],
    meter: Meter,
    *,
    made: str,
    version: str,
    commands: Commands,
    clean: Clean,
    live: StoredSession | None = None,
) -> data.Session:
    """The page of the scopes of a session that `tips` reach, the first of which is the one in front. Raises: Damaged.

    `made` is the time, `version` that of ctxvc; `clean` takes the secrets out of a text. With `live`, what is in no
    commit yet is on the page too.
    """
    page = _Page(store, tips, meter, clean, live)
    front = next(scope for scope in page.scopes if scope.line.tip == tips[0])
    ledger = front.snapshot.ledger
    spent = _spent(page)
    budget, (window, _) = budget_of(ledger), window_of(ledger)
    lanes = [lane for scope in page.scopes for lane in scope.lanes.lanes.values()]
    bodies = [_body(page, scope, row) for scope in page.scopes for row in scope.rows]
    frames = [_frame(page, scope) for scope in page.scopes]
    places, chunks = page.pool.packed()
    calls_made = _calls(page, spent)
    title = clean(_title(front))
    return data.Session(
        title=title,
        session=name,
        model=ledger.meta.model,
        budget=budget.effective,
        window=window,
        made=made,
        version=version,
        command=commands.made,
        verdict=verdict(_figures(page, lanes, calls_made, budget.effective), _notes(page, spent)),
        states=list(data.STATES),
        calls=calls_made,
        marks=sorted(page.marks, key=lambda mark: mark.call),
        blocks=_blocks(page, [_place(places[number]) for number in bodies]),
        lives=list(_lives(page, commands)),
        prompts=data.Prompts(pieces=page.pieces.finished(places), deltas=page.deltas),
        scopes=[
            _scope_data(page, scope, *(-1 if number < 0 else _place(places[number]) for number in frame))
            for scope, frame in zip(page.scopes, frames, strict=True)
        ],
        bodies=data.Texts(chunks=chunks, cut=list(_cut(page, commands, bodies, places))),
        cost_reason=_cost_reason(page, spent),
    )


def calls_of(store: Store, commit: str, meter: Meter) -> tuple[data.Calls, list[data.Mark]]:
    """The calls up to a commit, and what happened between them. Raises: Damaged."""
    page = _Page(store, [commit], meter, lambda text: text)
    return _calls(page, _spent(page)), page.marks


# --- a scope


def _scope(store: Store, line: Line, meter: Meter, blocks: int) -> _Scope:
    snapshot = line.now or revision.at(store, line.tip)
    snapshot = msgspec.structs.replace(snapshot, bodies=_current(snapshot))
    prices = Prices(meter, snapshot.bodies, snapshot.ledger.meta.model)
    rows = tuple(snapshot.ledger.rows())
    prices.load(rows)
    return _Scope(
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
    rows, bodies, read = snapshot.ledger.by_id(), snapshot.bodies, dict[str, bytes]()

    def body(row: Row) -> bytes:
        if row.id not in read:
            read[row.id] = bodies.body(rows[row.id])
        return read[row.id]

    return Bodies(body, lambda row, suffix: bodies.file(rows[row.id], suffix))


def _frame(page: _Page, scope: _Scope) -> tuple[int, int]:
    """The texts of system prompt and tools, by their numbers in the pool; -1 where they are not recorded."""
    values = scope.snapshot.system, scope.snapshot.tools
    system, tools = (
        "" if not value else value if isinstance(value, str) else display.decode(wire.compact(value))
        for value in values
    )
    return page.add(system) if system else -1, page.add(tools) if tools else -1


def _title(scope: _Scope) -> str:
    source = scope.snapshot.ledger.meta.source
    title = caption.plain(source.title) if source else ""
    return title or caption.human_words(scope.rows, _LABEL) or scope.snapshot.session


def _scope_data(page: _Page, scope: _Scope, system: data.Place, tools: data.Place) -> data.Scope:
    line = scope.line
    return data.Scope(
        name=line.name,
        parent=line.parent.number if line.parent else -1,
        from_call=line.began,
        calls=scope.numbers,
        spark=[sent.total for sent in scope.sent],
        notes=list(_scope_notes(page, scope)),
        agent=line.name.startswith("agent-"),
        system=system,
        tools=tools,
    )


def _scope_notes(page: _Page, scope: _Scope) -> Iterator[data.ScopeNote]:
    by_name = {other.line.name: other.line.number for other in page.scopes}
    for lane in scope.lanes.lanes.values():
        row = lane.row
        if row.kind == "note":
            about = wire.own_metadata(row.extra)
            to = next((by_name[name] for key in ("to", "left") if (name := about.get(key)) in by_name), -1)
            text = display.decode(scope.snapshot.bodies.body(row))[:_NOTE]
            yield data.ScopeNote(call=lane.spans[0][0], text=page.clean(text), to=to)


# --- blocks


def _body(page: _Page, scope: _Scope, row: Row) -> int:
    return page.add(shown(scope.snapshot.bodies.body(row), row.ext, row.extra))


def _blocks(page: _Page, bodies: list[data.Place]) -> data.Blocks:
    rows = [(scope, row, scope.lanes.lanes[row.id]) for scope in page.scopes for row in scope.rows]
    labels: list[str] = []
    files: list[str] = []
    for scope in page.scopes:
        captions = labels_of(scope.snapshot, [row.id for row in scope.rows])
        by_call = usage.files_of(scope.snapshot.ledger, scope.snapshot.bodies.body)
        labels += (page.clean(display.one_line(captions.get(row.id, row.label), _LABEL)) for row in scope.rows)
        files += (page.clean(by_call.get(row.id) or by_call.get(row.parent, "")) for row in scope.rows)
    end = len(page.order) + 1
    return data.Blocks(
        n=len(rows),
        id=[row.id for _, row, _ in rows],
        kind=[row.kind for _, row, _ in rows],
        origin=[row.origin for _, row, _ in rows],
        label=labels,
        tool=[page.clean(display.one_line(row.tool, _LABEL)) for _, row, _ in rows],
        file=files,
        turn=[row.turn for _, row, _ in rows],
        step=[row.step for _, row, _ in rows],
        tokens=[scope.prices.body(row) for scope, row, _ in rows],
        scope=[scope.line.number for scope, _, _ in rows],
        sha=[row.sha256[:_SHA] for _, row, _ in rows],
        intervals=[lane.intervals(end) for _, _, lane in rows],
        reads=[lane.reads for _, _, lane in rows],
        body=bodies,
    )


def _lives(page: _Page, commands: Commands) -> Iterator[data.Life]:
    for scope in page.scopes:
        newest = {turned.lane.row.id: turned for turned in scope.lanes.turned if turned.verb != "recover"}
        for turned in scope.lanes.turned:
            row, change = turned.lane.row, turned.change
            actor = change.actor
            stands = newest.get(row.id) is turned and scope is page.scopes[0]
            yield data.Life(
                block=scope.place[row.id],
                call=turned.call,
                verb=turned.verb,
                actor=actor.partition(":")[0],
                policy=actor.partition(":")[2],
                reason=page.clean(display.one_line(change.reason(row.id), _REASON)),
                commit=change.entry.commit,
                undo=commands.undo(turned.verb, row.id) if stands else "",
            )


def _cut(
    page: _Page, commands: Commands, bodies: Sequence[int], places: Sequence[tuple[int, int] | None]
) -> Iterator[data.CutBody]:
    blocks = ((scope, row) for scope in page.scopes for row in scope.rows)
    for block, ((scope, row), number) in enumerate(zip(blocks, bodies, strict=True)):
        if places[number] is None:
            name = row.id if scope is page.scopes[0] else f"{scope.line.name}:{row.id}"
            yield data.CutBody(block=block, bytes=row.bytes, command=commands.show(name))


def _place(place: tuple[int, int] | None) -> data.Place:
    return -1 if place is None else place


# --- calls and money


def _spent(page: _Page) -> list[Spent]:
    """Of each call: its usage, whether the provider gave it, dollars, and dollars had nothing left."""
    spent: dict[int, Spent] = {}
    for scope in page.scopes:
        priced = expenses(_sized(scope, sent) for sent in scope.sent)
        spent.update(zip(scope.numbers, priced, strict=True))
    return [spent[number] for number in range(len(page.order))]


def _sized(scope: _Scope, sent: _Sent) -> Sized:
    change = sent.call.change
    assert change is not None
    reported = models.usage_of(change.entry.usage)
    step = change.meta.counters.step
    return Sized(
        model=change.entry.trailers.get("Ctxvc-Model", "") or scope.model,
        time=change.entry.time or None,
        total=sent.total,
        shared=sent.shared,
        unmanaged=sent.unmanaged,
        reply=sum(scope.prices.body(row) for row in change.rows if row.role == "assistant" and row.step == step),
        broke=sent.prompt.shared < sent.prompt.before,
        left=sent.left,
        usage=reported if reported.prompt else None,
    )


def _calls(page: _Page, spent: Sequence[Spent]) -> data.Calls:
    made = [(scope, sent, sent.call.change) for scope, sent in page.order]
    parts = sorted({part for _, sent, _ in made for part, tokens in sent.prompt.tokens.items() if tokens})
    tokens = {part: [sent.prompt.tokens.get(part, 0) for _, sent, _ in made] for part in parts}
    overhead = [scope.overhead for scope, _, _ in made]
    if any(overhead):
        own = tokens.get(OVERHEAD, [0] * len(made))
        tokens = {OVERHEAD: [sum(both) for both in zip(own, overhead, strict=True)], **tokens}
        tokens[OVERHEAD] = [sum(both) for both in zip(own, overhead, strict=True)]
    return data.Calls(
        n=len(made),
        step=[change.meta.counters.step for _, _, change in made if change],
        turn=[change.meta.counters.turn for _, _, change in made if change],
        scope=[scope.line.number for scope, _, _ in made],
        commit=[change.entry.commit for _, _, change in made if change],
        time=[change.entry.time or None for _, _, change in made if change],
        exact=[change.meta.source is None or PROMPT in change.entry.trailers for _, _, change in made if change],
        tokens=tokens,
        total=[sent.total for _, sent, _ in made],
        unmanaged=[sent.unmanaged for _, sent, _ in made],
        reported=[one.prompt if reported else None for one, reported, _, _ in spent],
        cache=data.Cache(
            read=[one.read for one, *_ in spent],
            write=[one.written for one, *_ in spent],
            fresh=[one.fresh for one, *_ in spent],
            output=[one.reply for one, *_ in spent],
        ),
        cost=[_rounded(cost) for _, _, cost, _ in spent],
        cost_without=[_rounded(without) for _, _, _, without in spent],
    )


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 6)


def _cost_reason(page: _Page, spent: Sequence[Spent]) -> str:
    """Why there is no cost; empty where there is one."""
    if any(cost is not None for _, _, cost, _ in spent) or not spent:
        return ""
    model = page.order[-1][0].model
    return f"the table of {models.MODELS_DATE} has no price for {model}" if model else "the model is not recorded"


def _notes(page: _Page, spent: Sequence[Spent]) -> list[str]:
    """What the figures do not say of themselves."""
    notes = []
    reported = sum(reported for _, reported, _, _ in spent)
    if any(cost is not None for _, _, cost, _ in spent):
        priced = f"Prices are those of {models.MODELS_DATE}"
        notes.append(f"{priced}, for the usage that the provider reported." if reported else f"{priced}.")
    if reported < len(spent):
        notes.append(
            f"The provider's usage is not recorded for {len(spent) - reported:,} of {len(spent):,} calls: there it is "
            "reckoned from our counts, with a prefix cache of five minutes."
        )
    missing = next((scope.snapshot.ledger.meta.source for scope in page.scopes), None)
    if missing and missing.missing:
        notes.append(f"The recording lacks: {', '.join(missing.missing)}.")
    return notes


def _figures(page: _Page, lanes: Sequence[Lane], made: data.Calls, budget: int) -> Figures:
    gone = [(scope, lane) for scope in page.scopes for lane in scope.lanes.lanes.values() if lane.left]
    costs = [cost for cost in made.cost if cost is not None]
    without = [cost for cost in made.cost_without if cost is not None]
    return Figures(
        calls=made.n,
        peak=max(made.total, default=0),
        budget=budget,
        left=len(gone),
        tokens_left=sum(scope.prices.body(lane.row) for scope, lane in gone),
        recovered=sum(bool(lane.reads) or lane.returned for lane in lanes),
        compactions=sum(mark.kind == "compaction" for mark in page.marks),
        cost=sum(costs) if costs else None,
        without=sum(without) if without else None,
        reported=0,
        recorded=page.scopes[0].snapshot.ledger.meta.source is not None,
    )
