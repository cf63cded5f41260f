"""`grep --rank`: the blocks that fit some words best."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from ctxvc.cli.answers.hits import RankedHit
from ctxvc.cli.answers.shared import Answer, described, struct_of, table_of
from ctxvc.cli.app import App, raise_unreadable
from ctxvc.cli.output import iso
from ctxvc.cli.terminal.hits import screen_lines
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core import display, relevance
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import CtxvcError, Refused
from ctxvc.inspection import search
from ctxvc.inspection.filters import Filters, within
from ctxvc.inspection.search import Fitting, Searched
from ctxvc.store.store import Store

#: With `-n 0`, as many as are looked at in a store.
_ALL = search.LOOKED_AT


def show(
    app: App,
    query: str,
    filters: Filters,
    accepts: Callable[[Row], bool],
    limit: int,
    *,
    everywhere: bool,
    projects: Sequence[str] | None = None,
) -> bool:
    """Prints the answer; returns whether anything fits.

    With `projects`, all of them are searched, or those in folders of these names. Raises: BadInput, CtxvcError.
    """
    unreadable: list[CtxvcError] = []
    question = _Question(app, relevance.terms(query), filters, accepts, limit or _ALL, unreadable)
    results = list(
        question.of_project(everywhere=everywhere) if projects is None else question.of_all_projects(projects)
    )
    best = search.best(results, question.now, question.limit)
    answer = Ranked(query=query, bodies=sum(one.bodies for one in results), items=list(map(_item, best)))
    if app.output.json:
        app.output.value(answer)
    elif answer.items and app.output.terminal:
        app.output.lines(screen_lines(app.output, answer.items))
    elif answer.items:
        app.output.table(table_of(RankedHit, answer.items))
    raise_unreadable(unreadable)
    if not answer.items:
        app.output.note(f"no block fits '{display.one_line(query, 60)}'")
    return bool(answer.items)


class _Question:
    """A question to one store or several."""

    def __init__(
        self,
        app: App,
        query: Sequence[relevance.Term],
        filters: Filters,
        accepts: Callable[[Row], bool],
        limit: int,
        unreadable: list[CtxvcError],
    ) -> None:
        self.now = time.time()
        self.limit = limit
        self._app = app
        self._query = query
        self._filters = filters
        self._accepts = accepts
        self._unreadable = unreadable

    def of_project(self, *, everywhere: bool) -> Iterator[Searched]:
        if everywhere:
            with self._app.reading_store() as store:
                yield self._searched(store, (), "")
        else:
            with self._app.reading() as stored:
                yield self._searched(stored.store, (stored.name,), "")

    def of_all_projects(self, names: Sequence[str]) -> Iterator[Searched]:
        for store in self._app.all_stores(self._unreadable, names):
            try:
                yield self._searched(store, (), str(store.path.parent))
            except CtxvcError as error:
                self._unreadable.append(error)

    def _searched(self, store: Store, sessions: Sequence[str], project: str) -> Searched:
        if not os.access(store.cache_path, os.W_OK):
            raise Refused(f"{store.path} is read-only, and --rank keeps its index there", hint="search without --rank")
        with Progress("indexing", format=lambda number: f"{number:,} sessions") as progress:
            return search.searched(
                store,
                self._query,
                within(self._filters, sessions),
                self.now,
                self.limit,
                accepts=lambda place: self._accepts(place.row),
                project=project,
                unreadable=self._unreadable,
                progress=progress.reach,
            )


def _item(fitting: Fitting) -> RankedHit:
    place = fitting.place
    return struct_of(
        RankedHit,
        fitting,
        address=place.address,
        session=place.session,
        scope=place.scope,
        block=place.row.id,
        type=place.row.kind,
        state=place.row.state,
        step=place.row.step,
        before=[],
        after=[],
        also=[],
        project=place.project,
        time=iso(fitting.time),
    )


class Ranked(Answer, frozen=True, kw_only=True, tag="ctxvc.ranked/1"):
    """`grep --rank`"""

    query: str
    bodies: Annotated[int, described("how many are in the indexes; identical ones count once a session")]
    items: Annotated[list[RankedHit], described("the best first")]
