"""The story of a scope: its commits and what each of them did, grouped by turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger import caption, facts
from ctxvc.core.ledger.ledger import Meta, Row
from ctxvc.errors import Damaged
from ctxvc.inspection.work import CallCost, call_cost, total_cost
from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store

#: Operations that keep the prompt in order and are no part of the work.
BOOKKEEPING = frozenset({"tag", "cut", "ask"})
#: The most characters of human text that a turn shows.
_REQUEST = 200


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A commit and what it did. `rows` are those of its step, empty if it is not a step's.

    `tokens` is the size of the prompt that its reply saw, as the provider counted it; None if it did not. `cost` is
    its call's, None if there was no call or its usage is not recorded.
    """

    entry: Entry
    meta: Meta
    rows: Sequence[Row] = ()
    cost: CallCost | None = None
    body_of: caption.BodyOf = lambda _row: b""

    @property
    def op(self) -> str:
        return self.entry.op

    @property
    def actor(self) -> str:
        return self.entry.trailers.get("Ctxvc-Actor", self.entry.actor)

    @property
    def step(self) -> int:
        return self.meta.counters.step

    @property
    def turn(self) -> int:
        return self.meta.counters.turn

    @property
    def folder(self) -> str:
        return self.meta.source.cwd if self.meta.source else ""

    @property
    def calls(self) -> list[Row]:
        return [row for row in self.rows if row.kind == "tool_use"]

    @property
    def tokens(self) -> int | None:
        return self.cost.usage.prompt if self.cost and self.op == "step" else None

    @property
    def dollars(self) -> float | None:
        return self.cost.dollars if self.cost else None

    def text(self, width: int = caption.WIDTH, *, heading: bool = True) -> str:
        """What the commit did, in at most `width` columns; without the human's words if a `heading` has them."""
        if not self.rows:
            return one_line(self.entry.subject, len(self.entry.subject) + 1)
        changed = one_line(self.entry.trailers.get("Ctxvc-Changed", ""), width // 2)
        news = f" · new {changed}" if changed else ""
        caption_of = caption.of_reply if heading else caption.of_step
        return caption_of(self.rows, self.body_of, self.folder, width - len(news)) + news

    def texts(self) -> Iterator[str]:
        """Every text about the commit: what it did, each of its calls, the human's words, its message."""
        entry = self.entry
        yield from (entry.subject, entry.body, *entry.trailers.values(), caption.human_words(self.rows, _REQUEST))
        yield self.text(_REQUEST)
        yield from (caption.of_call(row.tool, self.body_of(row), row.ext, self.folder).fitted() for row in self.calls)

    def touches(self, path: str) -> bool:
        """Whether one of the commit's calls names this file, or something in this folder."""
        path = caption.relative(path.removeprefix("./").rstrip("/"), self.folder)
        return any(_names(call, self.body_of(call), path, self.folder) for call in self.calls)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a scope, with the accepted ones of its moments. `tokens` is the size of its last prompt, `dollars` the
    cost of all its calls, `time` its beginning, in seconds since 1970.

    `request` is the human's text, on one line. `dollars` is None if no call has a price; `planner_dollars` is the part
    of it that policies' questions cost.
    """

    number: int
    scope: str
    request: str
    moments: Sequence[Moment]
    time: int
    tokens: int | None
    dollars: float | None
    planner_dollars: float = 0.0


def moments(store: Store, entries: Iterable[Entry]) -> Iterator[Moment]:
    """The commits of a history, newest first, each with its step."""
    scopes: dict[str, tuple[dict[int, list[Row]], caption.BodyOf]] = {}
    for entry in entries:
        meta = store.reader.meta(entry.commit)
        if meta.scope not in scopes:
            # The newest ledger of a scope has the rows of all its steps.
            steps: dict[int, list[Row]] = {}
            for row in store.reader.ledger(entry.commit).rows():
                steps.setdefault(row.step, []).append(row)
            scopes[meta.scope] = steps, _reader(store, entry.commit)
        steps, body_of = scopes[meta.scope]
        is_step = entry.op == "step"
        rows = steps.get(meta.counters.step, ()) if is_step else ()
        yield Moment(entry=entry, meta=meta, rows=rows, cost=call_cost(store, entry), body_of=body_of)


def turns(
    history: Iterable[Moment], accepts: Callable[[Moment], bool] = lambda _: True, limit: int | None = None
) -> Iterator[Turn]:
    """The turns of a history, newest first, each with its accepted moments, at most `limit` in all; a turn without any
    is left out. A turn's figures are the whole turn's.
    """
    remaining = sys.maxsize if limit is None else limit
    for (scope, number), group in groupby(history, lambda moment: (moment.meta.scope, moment.turn)):
        if not remaining:
            return
        members = list(group)
        chosen = list(islice(filter(accepts, members), remaining))
        remaining -= len(chosen)
        if not chosen:
            continue
        costs = [moment.cost for moment in members if moment.cost is not None]
        request = ""
        for moment in reversed(members):
            request = request or caption.human_words(moment.rows, _REQUEST)
        yield Turn(
            number=number,
            scope=scope,
            request=request,
            moments=chosen,
            time=members[-1].entry.time,
            tokens=next((tokens for moment in members if (tokens := moment.tokens) is not None), None),
            dollars=total_cost(costs).dollars,
            planner_dollars=total_cost(cost for cost in costs if cost.by_planner).dollars or 0.0,
        )


def _reader(store: Store, commit: str) -> caption.BodyOf:
    def body_of(row: Row) -> bytes:
        try:
            return store.reader.body(commit, row)
        except Damaged:
            return b""  # what is damaged is for `verify` to report; the history is still worth reading

    return body_of


def _names(call: Row, body: bytes, path: str, folder: str) -> bool:
    """Whether a call is about `path`, or its script contains the path."""
    did = facts.script_or_facts(call.tool, body, call.ext)
    texts = did.split() if isinstance(did, str) else [fact.object for fact in did]
    for text in texts:
        place = caption.relative(text.strip("'\"`();"), folder).removeprefix("./")
        if place == path or place.startswith(f"{path}/") or place.endswith(f"/{path}"):
            return True
    return False
