"""`grep`: all blocks, searched."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Annotated, get_args

import click

from ctxvc.cli.answers.hits import Hit, RankedHit, Standing, context_lines, screen_lines
from ctxvc.cli.answers.shared import Answer, described, struct_of, table_of
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable, timeout_option
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import counted, iso, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core import display, patterns, relevance
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.inspection import filters as filtering
from ctxvc.inspection import grep as searching
from ctxvc.inspection import search
from ctxvc.inspection.bodies import StoredBody, bodies, read
from ctxvc.inspection.filters import Filters, SessionFacts, within
from ctxvc.inspection.search import Fitting, Searched
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: The most lines that `grep` lists by default, and the most blocks with `--rank`.
LISTED, RANKED = 1000, 20


@command("grep", "ctxvc grep -i timeout")
@click.argument("source", metavar="PATTERN")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, type=click.Choice(get_args(Kind)),
              help="Only blocks of this kind; repeatable.")  # fmt: skip
@click.option("--scope", "scope", metavar="NAME", help="Only this scope.")
@click.option("--all", "--all-sessions", "everywhere", is_flag=True, help="Search all sessions.")
@click.option("--remote", is_flag=True, help="Search all sessions, and name those on remotes that are not here.")
@all_projects_option
@click.option("--archived", "archived", is_flag=True, help="Only blocks that are not in the prompt.")
@click.option("--live", is_flag=True, help="Only blocks in the prompt.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="Treat PATTERN as a fixed string.")
@click.option("-n", "--limit", metavar="N", type=click.IntRange(0, sys.maxsize), default=None,
              help=f"List at most N lines ({LISTED:,}, with --rank {RANKED}); 0 for all.")  # fmt: skip
@click.option("-C", "--context", "context", metavar="N", type=click.IntRange(0, 1000), default=0,
              help="Show N lines before and after each; -C DIR goes before `grep`.")  # fmt: skip
@timeout_option
@click.option("--rank", is_flag=True, help="PATTERN is words: the blocks that fit best, from an index.")
@click.option("--agent", "agents", metavar="NAME", multiple=True,
              help="Only sessions of this agent, as in codex; repeatable.")  # fmt: skip
@click.option("--file", "files", metavar="PATH", multiple=True,
              help="Only calls that name this file, and their results; repeatable.")  # fmt: skip
@click.option("--project", "projects", metavar="NAME", multiple=True,
              help="With --all-projects: only projects in a folder of this name; repeatable.")  # fmt: skip
@time_option("--since", "Only since then, as in 2026-02-10, 3d, '2 hours ago'.")
@time_option("--until", "Only until then.")
@json_option
@click.pass_context
def grep(
    ctx: click.Context, source: str, kinds: Sequence[Kind], scope: str | None, everywhere: bool, remote: bool,
    all_projects: bool, archived: bool, live: bool, ignore_case: bool, fixed: bool, limit: int | None, context: int,
    timeout: float, rank: bool, agents: Sequence[str], files: Sequence[str], projects: Sequence[str],
    since: str, until: str,
) -> None:  # fmt: skip
    """
    Every body is searched once, whether in the prompt or not, in all scopes of the session; an output that the model
    saw truncated is searched in full. PATTERN is a Python regular expression, matched line by line. Exits with 1 if
    nothing matches, if the pattern takes too long on a body, or if the time runs out; matches found by then are listed.

    With --rank, PATTERN is words and "phrases", and what fits best comes first: rare words weigh most, and age counts.
    The index of words is in the store, and brought up to date first.
    """
    app = ctx.ensure_object(App)
    everywhere = everywhere or remote
    if (everywhere or all_projects) and scope:
        option = "--remote" if remote else "--all" if everywhere else "--all-projects"
        raise click.UsageError(f"--scope names a scope of one session: leave out {option}")
    if archived and live:
        raise click.UsageError("--archived and --live leave nothing to search")
    if projects and not all_projects:
        raise click.UsageError("--project requires --all-projects")
    states = {True: live, False: archived}

    def matches(row: Row) -> bool:
        return states[row.present] or not (archived or live)

    filters = filtering.parsed(time.time(), kinds=kinds, agents=agents, files=files, since=since, until=until)
    if rank:
        if scope or ignore_case or fixed or context:
            raise click.UsageError("--rank takes words: leave out --scope, -i, -F and -C")
        ranked_limit = RANKED if limit is None else limit
        any_fits = _rank(app, source, filters, matches, ranked_limit, everywhere=everywhere,
                               projects=projects if all_projects else None)  # fmt: skip
    else:
        pattern = patterns.compiled(source, fixed=fixed, ignore_case=ignore_case).until(timeout, time.monotonic)
        unreadable: list[CtxvcError] = []
        if all_projects:
            chosen = _all_projects(app, matches, filters, unreadable, projects)
        else:
            chosen = _project(app, matches, filters, scope, unreadable, everywhere=everywhere)
        any_fits = _show(app, pattern, chosen, unreadable, LISTED if limit is None else limit, context)
    if everywhere:
        from ctxvc.cli.remotes.remote_sessions import note_missing

        with app.store() as store:
            note_missing(app, store, fresh=remote)
    if not any_fits:
        if not all_projects:
            _note_others(app, agents, one_session=not (everywhere or scope))
        ctx.exit(1)


def _note_others(app: App, agents: Sequence[str], *, one_session: bool) -> None:
    """After a search without a hit: what else the store has."""
    with app.store() as store:
        names = store.sessions()
        if one_session and len(names) > 1:
            app.output.note("only the current session was searched: --all searches all")
        if agents:
            recorded = {SessionFacts(stored).agent for stored, _ in _all_sessions(store, "", [])}
            if recorded.isdisjoint(agents):
                app.output.note(f"the store's sessions are of these agents: {safe(', '.join(sorted(recorded)))}")


def _show(
    app: App,
    pattern: patterns.Pattern,
    chosen: Generator[tuple[Store, list[StoredBody]]],
    unreadable: list[CtxvcError],
    limit: int,
    context: int,
) -> bool:
    """Prints the lines that match; returns whether any does. Raises: CtxvcError for what could not be searched."""
    count = 0

    def texts() -> Iterator[tuple[StoredBody, bytes]]:
        nonlocal count
        for store, stored_bodies in chosen:
            count += len(stored_bodies)
            with Progress("searching", sum(body.places[0].row.bytes for body in stored_bodies)) as progress:
                for stored_body, body in read(store, stored_bodies, unreadable):
                    yield stored_body, body
                    progress.add(len(body))

    search = searching.Search(texts(), pattern, context)
    matching = iter(search)
    hits_listed = [_hit(hit) for hit in islice(matching, limit or None)]
    more = sum(1 for _ in matching) if limit else 0
    chosen.close()
    answer = struct_of(Grepped, search, pattern=pattern.source, bodies=count, more=more, items=hits_listed)
    if app.output.json:
        app.output.value(answer)
    elif hits_listed and app.output.terminal:
        app.output.lines(screen_lines(app.output, answer.items))
    elif hits_listed and context:
        app.output.lines(context_lines(answer.items))
    elif hits_listed:
        app.output.table(table_of(Hit, answer.items))
    if more:
        app.output.note(f"and {counted(more, 'more line')}: -n 0 lists all")
    raise_unreadable(unreadable)
    if search.slow:
        raise _unfinished(search, search.slow, count)
    if not hits_listed:
        app.output.note(f"nothing matches '{display.one_line(pattern.source, 60)}' in {_bodies_words(count)}")
    return bool(hits_listed)


def _unfinished(search: searching.Search, slow: patterns.Slow, count: int) -> patterns.Slow:
    """The error of an incomplete search: how far it came, and a hint. More time helps only if that ran out."""
    skipped = f"{_bodies_words(search.skipped)} abandoned because of one line each" if search.skipped else ""
    if not search.over:
        hint = "use a simpler pattern without nested repeats, or -F for a fixed string"
        return patterns.Slow(f"{slow}: {skipped}; all others of {count:,} were searched", hint=hint)
    hint = "use a simpler pattern, -F for a fixed string, --scope or --kind to search less, or a longer --timeout"
    reached = f"{search.searched:,} of {_bodies_words(count)} were searched"
    return patterns.Slow(f"{slow}: {reached}{skipped and f', {skipped}'}", hint=hint)


def _project(
    app: App, matches: Callable[[Row], bool], filters: Filters, scope: str | None, unreadable: list[CtxvcError],
    *, everywhere: bool,
) -> Generator[tuple[Store, list[StoredBody]]]:  # fmt: skip
    """The project's store, with the bodies to search."""
    if everywhere:
        with app.reading_store() as store:
            current = app.current_session(store)
            sessions = _all_sessions(store, current, unreadable)
            yield store, bodies(sessions, matches, filters=filters, whole=True, unreadable=unreadable)
        return
    with app.reading() as stored:
        if scope is not None:
            stored.ledger(scope)  # raises if there is none
        scopes = [scope] if scope is not None else _scopes(stored)
        chosen = [(stored, scopes)]
        yield stored.store, bodies(chosen, matches, filters=filters, whole=True, unreadable=unreadable)


def _all_projects(
    app: App, matches: Callable[[Row], bool], filters: Filters, unreadable: list[CtxvcError], projects: Sequence[str]
) -> Generator[tuple[Store, list[StoredBody]]]:
    """The stores of all projects, or of those in folders of these names, each with the bodies to search."""
    for store in app.all_stores(unreadable, projects):
        sessions = _all_sessions(store, "", unreadable)
        project = str(store.path.parent)
        yield store, bodies(sessions, matches, filters=filters, whole=True, project=project, unreadable=unreadable)


def _all_sessions(
    store: Store, current: str, unreadable: list[CtxvcError]
) -> Iterator[tuple[StoredSession, Sequence[str]]]:
    """The store's sessions with their scopes, the current one first."""
    for name in sorted(store.sessions(), key=lambda name: name != current):
        try:
            stored = StoredSession.for_reading(store, name)
        except Damaged as error:
            unreadable.append(error)
            continue
        yield stored, _scopes(stored) if name == current else stored.scopes()


def _scopes(stored: StoredSession) -> Sequence[str]:
    """The session's scopes, the current one first."""
    return sorted(stored.scopes(), key=lambda name: name != stored.scope)


def _hit(hit: searching.Hit) -> Hit:
    first, *others = hit.places
    also = [struct_of(Standing, place, place.row) for place in others]
    return struct_of(Hit, hit, first, first.row, block=first.row.id, type=first.row.kind, also=also)


def _bodies_words(number: int) -> str:
    return "1 body" if number == 1 else f"{number:,} bodies"


# --- by rank

#: With `-n 0`, as many as are looked at in a store.
_ALL = search.LOOKED_AT


def _rank(
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
    answer = Ranked(query=query, bodies=sum(one.bodies for one in results), items=list(map(_ranked_hit, best)))
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


def _ranked_hit(fitting: Fitting) -> RankedHit:
    row = fitting.place.row
    return struct_of(
        RankedHit,
        fitting,
        fitting.place,
        row,
        block=row.id,
        type=row.kind,
        time=iso(fitting.time),
        before=[],
        after=[],
        also=[],
    )


class Grepped(Answer, frozen=True, kw_only=True, tag="ctxvc.grep/1"):
    """`grep`"""

    pattern: str
    bodies: Annotated[int, described("how many there are to search; identical ones count once")]
    searched: Annotated[int, described("how many were searched; fewer if the pattern took too long")]
    skipped: Annotated[int, described("how many were abandoned because the pattern took too long on one line")]
    more: Annotated[int, described("matching lines that are not listed")]
    items: list[Hit]


class Ranked(Answer, frozen=True, kw_only=True, tag="ctxvc.ranked/1"):
    """`grep --rank`"""

    query: str
    bodies: Annotated[int, described("how many are in the indexes; identical ones count once a session")]
    items: Annotated[list[RankedHit], described("the best first")]
