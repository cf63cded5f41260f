"""The page of a session: its whole history, as `report.data.Session`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import caption, wire
from ctxvc.inspection import usage
from ctxvc.inspection.window_percent import UNRECORDED, scaled
from ctxvc.inspection.work import CallCost, TotalCost, call_costs, total_cost
from ctxvc.report import data
from ctxvc.report.expense import Expense, Sized, Sizing, expenses, sizings
from ctxvc.report.history import Clean, History, ScopeHistory, SentCall
from ctxvc.report.lanes import Lane
from ctxvc.report.lines import Change
from ctxvc.report.turns import Story, place_at
from ctxvc.report.verdict import Figures, verdict
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.meter import Meter, budget_of, window_of

#: The most columns of a label and a reason, and characters of a note.
_LABEL, _REASON, _NOTE = 120, 400, 2_000
#: The digits of a block's checksum on the page.
_SHA = 12


class Commands(NamedTuple):
    """The commands that make the page, that undo a verb on a block (empty for none), and that show a block."""

    page: str
    undo: Callable[[str, str], str]
    show: Callable[[str], str]


def session(
    store: Store,
    name: str,
    tips: Sequence[str],
    meter: Meter,
    *,
    created: str,
    version: str,
    commands: Commands,
    clean: Clean,
    live: StoredSession | None = None,
) -> data.Session:
    """The page of the scopes of a session that `tips` reach; the first tip is the current scope's. Raises: Damaged.

    `created` is the time, `version` that of ctxvc; `clean` removes the secrets from a text. With `live`, uncommitted
    changes are on the page too.
    """
    page = History(store, tips, meter, clean, live)
    front = next(scope for scope in page.scopes if scope.line.tip == tips[0])
    ledger = front.snapshot.ledger
    sized = sizings(page.scopes)
    costs = _expenses(page, sized)
    budget, (window, origin) = budget_of(ledger), window_of(ledger)
    lanes = [lane for scope in page.scopes for lane in scope.lanes.lanes.values()]
    bodies = [scope.texts[row.id] for scope in page.scopes for row in scope.rows]
    frames = [_frame(page, scope) for scope in page.scopes]
    story = Story(page)
    places, chunks = page.pool.packed()
    calls_made = _calls(page, sized, costs)
    entries = (entry for scope in page.scopes for entry in scope.line.all_entries)
    call_costs_made = call_costs(store, entries)
    figures = _figures(page, lanes, calls_made, window, total_cost(call_costs_made), assumed=origin == "assumed")
    title = clean(_title(front))
    causes: dict[data.Cause, int] = {}
    lives = list(_lives(page, front, commands, causes))
    return data.Session(
        title=title,
        session=name,
        model=ledger.meta.model,
        budget=budget.effective,
        window=window,
        created=created,
        version=version,
        command=commands.page,
        verdict=verdict(figures, _notes(page, costs, call_costs_made)),
        states=list(data.STATES),
        calls=calls_made,
        marks=sorted(page.marks, key=lambda mark: mark.call),
        blocks=_blocks(page, [place_at(places, number) for number in bodies]),
        causes=list(causes),
        lives=lives,
        prompts=data.Prompts(pieces=page.pieces.finished(places), deltas=page.deltas),
        scopes=[
            _scope_data(page, scope, sized, *(place_at(places, number) for number in frame))
            for scope, frame in zip(page.scopes, frames, strict=True)
        ],
        turns=story.turns,
        files=story.changed_files(places),
        tool_calls=list(story.tool_calls(places)),
        pictures=story.pictures(places),
        bodies=data.Texts(chunks=chunks, cut=list(_cut(page, front, commands, bodies, places))),
        cost_reason=_cost_reason(page, costs),
    )


def calls_of(store: Store, commit: str, meter: Meter) -> tuple[data.Calls, list[data.Mark]]:
    """The calls up to a commit, and the marks between them. Raises: Damaged."""
    page = History(store, [commit], meter, lambda text: text)
    sized = sizings(page.scopes)
    return _calls(page, sized, _expenses(page, sized)), page.marks


# --- a scope


def _frame(page: History, scope: ScopeHistory) -> tuple[int, int]:
    """The numbers of system prompt and tools in the pool; -1 if not recorded."""
    values = scope.snapshot.system, scope.snapshot.tools
    system, tools = (
        "" if not value else value if isinstance(value, str) else display.decode(wire.compact(value))
        for value in values
    )
    return page.add(system) if system else -1, page.add(tools) if tools else -1


def _title(scope: ScopeHistory) -> str:
    source = scope.snapshot.ledger.meta.source
    title = caption.plain(source.title) if source else ""
    return title or caption.human_words(scope.rows, _LABEL) or scope.snapshot.session


def _scope_data(
    page: History, scope: ScopeHistory, sized: Mapping[int, Sizing], system: data.Place, tools: data.Place
) -> data.Scope:
    line = scope.line
    return data.Scope(
        name=line.name,
        parent=line.parent.number if line.parent else -1,
        from_call=line.start,
        calls=scope.numbers,
        spark=[sized[number].size.tokens for number in scope.numbers],
        notes=list(_scope_notes(page, scope)),
        agent=line.name.startswith("agent-"),
        system=system,
        tools=tools,
    )


def _scope_notes(page: History, scope: ScopeHistory) -> Iterator[data.ScopeNote]:
    by_name = {scope_named.line.name: scope_named.line.number for scope_named in page.scopes}
    for lane in scope.lanes.lanes.values():
        row = lane.row
        if row.kind == "note":
            about = wire.own_metadata(row.extra)
            to = next((by_name[name] for key in ("to", "left") if (name := about.get(key)) in by_name), -1)
            text = display.decode(scope.snapshot.bodies.body(row))[:_NOTE]
            yield data.ScopeNote(call=lane.spans[0][0], text=page.clean(text), to=to)


# --- blocks


def _blocks(page: History, bodies: list[data.Place]) -> data.Blocks:
    rows = [(scope, row, scope.lanes.lanes[row.id]) for scope in page.scopes for row in scope.rows]
    labels: list[str] = []
    files: list[str] = []
    for scope in page.scopes:
        by_call = usage.files_of(scope.snapshot.ledger, scope.snapshot.bodies.body)
        labels += (scope.labels[row.id] for row in scope.rows)
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


def _lives(
    page: History, front: ScopeHistory, commands: Commands, causes: dict[data.Cause, int]
) -> Iterator[data.Life]:
    """The changes of blocks. Equal causes have one place in `causes`, which is filled. Only the newest changes in the
    current scope `front` have an undo command.
    """
    for scope in page.scopes:
        newest = {turned.lane.row.id: turned for turned in scope.lanes.turned if turned.verb != "recover"}
        for change, of_change in groupby(scope.lanes.turned, lambda turned: turned.change):
            cause = causes.setdefault(_cause(page, change), len(causes))
            reasons = change.reasons()
            for turned in of_change:
                name = turned.lane.row.id
                stands = newest.get(name) is turned and scope is front
                yield data.Life(
                    block=scope.place[name],
                    call=turned.call,
                    verb=turned.verb,
                    cause=cause,
                    reason=page.clean(display.one_line(reasons.get(name, ""), _REASON)),
                    undo=commands.undo(turned.verb, name) if stands else "",
                )


def _cause(page: History, change: Change) -> data.Cause:
    actor, _, policy = change.actor.partition(":")
    reason = page.clean(display.one_line(change.reason, _REASON))
    return data.Cause(actor=actor, policy=policy, reason=reason, commit=change.entry.commit)


def _cut(
    page: History,
    front: ScopeHistory,
    commands: Commands,
    bodies: Sequence[int],
    places: Sequence[tuple[int, int] | None],
) -> Iterator[data.CutBody]:
    blocks = ((scope, row) for scope in page.scopes for row in scope.rows)
    for block, ((scope, row), number) in enumerate(zip(blocks, bodies, strict=True)):
        if places[number] is None:
            name = row.id if scope is front else f"{scope.line.name}:{row.id}"
            yield data.CutBody(block=block, bytes=row.bytes, command=commands.show(name))


# --- calls and money


def _expenses(page: History, sized: Mapping[int, Sizing]) -> list[Expense]:
    """The expense of each call, by number."""
    costs: dict[int, Expense] = {}
    for scope in page.scopes:
        calls = zip(scope.numbers, scope.sent, strict=True)
        priced = expenses(_sized(sent, sized[number]) for number, sent in calls)
        costs.update(zip(scope.numbers, priced, strict=True))
    return [costs[number] for number in range(len(page.order))]


def _sized(sent: SentCall, sizing: Sizing) -> Sized:
    tokens = sizing.size.tokens
    return Sized(
        model=sent.entry.trailers.get("Ctxvc-Model", "") or sent.meta.model,
        time=sent.entry.time or None,
        total=tokens,
        shared=tokens * sent.shared // sent.total if sent.total else 0,
        unmanaged=tokens + sizing.scaled(sent.unmanaged - sent.total),
        reply=sizing.scaled(sent.reply),
        broke=sent.broke,
        reduced=sent.reduced,
        usage=sizing.usage,
    )


def _calls(page: History, sized: Mapping[int, Sizing], costs: Sequence[Expense]) -> data.Calls:
    sent_calls = [sent for _, sent in page.order]
    sizings_made = [sized[number] for number in range(len(sent_calls))]
    sizes = [sizing.size for sizing in sizings_made]
    tokens_of = [
        {**scaled(sent.tokens, size.recorded), UNRECORDED: size.unrecorded}
        for sent, size in zip(sent_calls, sizes, strict=True)
    ]
    parts = sorted({part for tokens in tokens_of for part, count in tokens.items() if count})
    return data.Calls(
        n=len(sent_calls),
        step=[sent.step for sent in sent_calls],
        turn=[sent.turn for sent in sent_calls],
        scope=[scope.line.number for scope, _ in page.order],
        commit=[sent.entry.commit for sent in sent_calls],
        time=[sent.entry.time or None for sent in sent_calls],
        exact=[sent.exact for sent in sent_calls],
        tokens={part: [tokens.get(part, 0) for tokens in tokens_of] for part in parts},
        total=[size.tokens for size in sizes],
        unmanaged=[
            sizing.size.tokens + sizing.scaled(sent.unmanaged - sent.total)
            for sent, sizing in zip(sent_calls, sizings_made, strict=True)
        ],
        reported=[size.tokens if size.by_provider else None for size in sizes],
        cache=data.Cache(
            hits=[one.read for one, *_ in costs],
            write=[one.written for one, *_ in costs],
            fresh=[one.fresh for one, *_ in costs],
            output=[one.reply for one, *_ in costs],
        ),
        cost=[_rounded(cost) for _, _, cost, _ in costs],
        cost_without=[_rounded(without) for _, _, _, without in costs],
    )


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 6)


def _cost_reason(page: History, costs: Sequence[Expense]) -> str:
    """The reason why there is no cost; empty if there is one."""
    if any(cost is not None for _, _, cost, _ in costs) or not costs:
        return ""
    if not any(reported for _, reported, _, _ in costs):
        return "the provider's usage is not recorded"
    model = page.order[-1][0].model
    return f"the table of {models.MODELS_DATE} has no price for {model}" if model else "the model is not recorded"


def _notes(page: History, costs: Sequence[Expense], each_call: Sequence[CallCost]) -> list[str]:
    """Notes on how to read the figures."""
    notes = []
    reported = sum(reported for _, reported, _, _ in costs)
    if any(cost is not None for _, _, cost, _ in costs):
        notes.append(f"Prices are those of {models.MODELS_DATE}, for the usage that the provider reported.")
    if planner := total_cost(call for call in each_call if call.by_planner).dollars:
        notes.append(f"${planner:,.2f} of the cost is for what policies asked: plans and summaries.")
    if reported < len(costs):
        part = f" for {len(costs) - reported:,} of {len(costs):,} calls" if reported else ""
        notes.append(
            f"The provider's usage is not recorded{part}: the size of the prompt is our estimate, what the cache did "
            "is reckoned with one of five minutes, and there is no cost."
        )
    source = next((scope.snapshot.ledger.meta.source for scope in page.scopes), None)
    if source and source.missing:
        notes.append(f"The recording lacks: {', '.join(source.missing)}.")
    return notes


def _figures(
    page: History, lanes: Sequence[Lane], calls_made: data.Calls, window: int, total: TotalCost, *, assumed: bool
) -> Figures:
    departed = [(scope, lane) for scope in page.scopes for lane in scope.lanes.lanes.values() if lane.departed]
    costs = [cost for cost in calls_made.cost if cost is not None]
    without = [cost for cost in calls_made.cost_without if cost is not None]
    largest = max(range(calls_made.n), key=lambda call: calls_made.total[call], default=-1)
    return Figures(
        calls=calls_made.n,
        peak=max(calls_made.total, default=0),
        by_provider=largest >= 0 and calls_made.reported[largest] is not None,
        unrecorded=calls_made.tokens[UNRECORDED][largest] if UNRECORDED in calls_made.tokens else 0,
        window=window,
        assumed=assumed,
        departed=len(departed),
        withheld=sum(lane.withheld for _, lane in departed),
        tokens_left=sum(scope.prices.body(lane.row) for scope, lane in departed),
        recovered=sum(bool(lane.reads) or lane.returned for lane in lanes),
        compactions=sum(mark.kind == "compaction" for mark in page.marks),
        cost=total.dollars,
        times=sum(without) / sum(costs) if sum(costs) else 1.0,
        recorded=page.scopes[0].snapshot.ledger.meta.source is not None,
    )
