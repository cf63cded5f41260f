"""`grep`: all blocks, searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Annotated, NamedTuple, get_args

import click

from ctxvc.cli.answers.shared import Answer, BlockId, Item, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable, timeout_option
from ctxvc.cli.output import Column, Output, Table, counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.cli.terminal.table import breadth, cut, first_columns
from ctxvc.core import display, patterns
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import CtxvcError, Damaged
from ctxvc.inspection import grep as searching
from ctxvc.inspection.bodies import StoredBody, bodies, read
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: The most lines that `grep` lists by default.
LISTED = 1000


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
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=0), default=LISTED,
              help=f"List at most N lines ({LISTED:,}); 0 for all.")  # fmt: skip
@click.option("-C", "--context", "context", metavar="N", type=click.IntRange(0, 1000), default=0,
              help="Show N lines before and after each; -C DIR goes before `grep`.")  # fmt: skip
@timeout_option
@json_option
@click.pass_context
def grep(
    ctx: click.Context, source: str, kinds: Sequence[str], scope: str | None, everywhere: bool, remote: bool,
    all_projects: bool, archived: bool, live: bool, ignore_case: bool, fixed: bool, limit: int, context: int,
    timeout: float,
) -> None:  # fmt: skip
    """
    Every body is searched once, whether in the prompt or not, in all scopes of the session; an output that the model
    saw truncated is searched in full. PATTERN is a Python regular expression, matched line by line. Exits with 1 if
    nothing matches, if the pattern takes too long on a body, or if the time runs out; matches found by then are listed.
    """
    app = ctx.ensure_object(App)
    everywhere = everywhere or remote
    if (everywhere or all_projects) and scope:
        option = "--remote" if remote else "--all" if everywhere else "--all-projects"
        raise click.UsageError(f"--scope names a scope of one session: leave out {option}")
    if archived and live:
        raise click.UsageError("--archived and --live leave nothing to search")
    pattern = patterns.compiled(source, fixed=fixed, ignore_case=ignore_case).until(timeout, time.monotonic)
    states = {True: live, False: archived}

    def matches(row: Row) -> bool:
        return (not kinds or row.kind in kinds) and (states[row.present] or not (archived or live))

    unreadable: list[CtxvcError] = []
    if all_projects:
        chosen = _all_projects(app, matches, unreadable)
    else:
        chosen = _project(app, matches, scope, unreadable, everywhere=everywhere)
    count = 0

    def texts() -> Iterator[tuple[StoredBody, bytes]]:
        nonlocal count
        for store, stored_bodies in chosen:
            count += len(stored_bodies)
            with Progress("searching", sum(body.places[0].row.bytes for body in stored_bodies)) as progress:
                yield from _with_progress(read(store, stored_bodies), progress)

    search = searching.Search(texts(), pattern, context)
    hits = iter(search)
    hits_listed = [_hit(hit) for hit in islice(hits, limit or None)]
    more = sum(1 for _ in hits) if limit else 0
    chosen.close()
    if everywhere:
        from ctxvc.cli.remotes.remote_sessions import note_missing

        with app.store() as store:
            note_missing(app, store, fresh=remote)
    answer = Grepped(
        pattern=source,
        bodies=count,
        searched=search.searched,
        skipped=search.skipped,
        more=more,
        items=hits_listed,
    )
    if app.output.json:
        app.output.value(answer)
    elif hits_listed and app.output.terminal:
        app.output.lines(_screen_lines(app.output, answer.items))
    elif hits_listed and context:
        app.output.lines(_context_lines(answer.items))
    elif hits_listed:
        app.output.table(_hits_table(answer.items))
    if more:
        app.output.note(f"and {counted(more, 'more line')}: -n 0 lists all")
    raise_unreadable(unreadable)
    if search.slow:
        raise _unfinished(search, search.slow, count)
    if not hits_listed:
        app.output.note(f"nothing matches '{display.one_line(source, 60)}' in {_bodies_words(count)}")
        ctx.exit(1)


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
    app: App, matches: Callable[[Row], bool], scope: str | None, unreadable: list[CtxvcError], *, everywhere: bool
) -> Generator[tuple[Store, list[StoredBody]]]:
    """The project's store, with the bodies to search."""
    with app.reading() as stored:
        sessions = _sessions(stored, scope, unreadable, everywhere=everywhere)
        yield stored.store, bodies(sessions, matches, whole=True)


def _all_projects(
    app: App, matches: Callable[[Row], bool], unreadable: list[CtxvcError]
) -> Generator[tuple[Store, list[StoredBody]]]:
    """The stores of all projects, each with the bodies to search."""
    for store in app.all_stores(unreadable):
        sessions = _sessions_besides(store, "", unreadable)
        yield store, bodies(sessions, matches, whole=True, project=str(store.path.parent))


def _sessions(
    stored: StoredSession, scope: str | None, unreadable: list[CtxvcError], *, everywhere: bool
) -> Iterator[tuple[StoredSession, Sequence[str]]]:
    """The sessions to search with their scopes, the current one first. The others' errors go into `unreadable`."""
    if scope is not None:
        stored.ledger(scope)  # raises if there is none
        yield stored, [scope]
        return
    yield stored, sorted(stored.scopes(), key=lambda name: name != stored.scope)
    if everywhere:
        yield from _sessions_besides(stored.store, stored.name, unreadable)


def _sessions_besides(
    store: Store, besides: str, unreadable: list[CtxvcError]
) -> Iterator[tuple[StoredSession, Sequence[str]]]:
    """The store's sessions without one, with their scopes."""
    for name in store.sessions():
        if name == besides:
            continue
        try:
            other = StoredSession.for_reading(store, name)
        except Damaged as error:
            unreadable.append(error)
            continue
        yield other, other.scopes()


def _with_progress(
    stream: Iterator[tuple[StoredBody, bytes]], progress: Progress
) -> Iterator[tuple[StoredBody, bytes]]:
    for stored_body, body in stream:
        yield stored_body, body
        progress.add(len(body))


def _hit(hit: searching.Hit) -> Hit:
    first, *others = hit.places
    return struct_of(
        Hit,
        hit,
        address=first.address,
        session=first.session,
        scope=first.scope,
        block=first.row.id,
        type=first.row.kind,
        state=first.row.state,
        step=first.row.step,
        also=[Standing(address=place.address, state=place.row.state) for place in others],
        project=first.project,
    )


def _hits_table(items: Sequence[Hit]) -> Table:
    projects = any(item.project for item in items)
    return Table(
        columns=[
            *([Column("project", least=16)] if projects else []),
            Column("block"),
            Column("state"),
            Column("step", right=True),
            Column("line", right=True, rank=1),
            Column("text", least=32),
            Column("also in", least=8, rank=2),
        ],
        rows=[
            [
                *([item.project] if projects else []),
                item.address,
                item.state,
                item.step,
                item.line,
                item.text,
                ", ".join(f"{place.address} {place.state}" for place in item.also),
            ]
            for item in items
        ],
    )


class _Line(NamedTuple):
    """A line that is shown; with a match, what of it matches."""

    number: int
    text: str
    start: int = 0
    stop: int = 0

    @property
    def matches(self) -> bool:
        return self.stop > 0


class _Passage(NamedTuple):
    """Lines of a block that follow each other, with the first hit in them."""

    hit: Hit
    lines: list[_Line]


def _passages(items: Sequence[Hit]) -> Iterator[_Passage]:
    """The hits with the lines around them; where these meet, they are one passage."""
    passage: _Passage | None = None
    for item in items:
        first = item.line - len(item.before)
        lines = [_Line(first + at, text) for at, text in enumerate(item.before)]
        lines.append(_Line(item.line, item.text, item.start, max(item.stop, 1)))
        lines += [_Line(item.line + at, text) for at, text in enumerate(item.after, 1)]
        if passage is not None and _meet(passage, item, first):
            by_number = {line.number: line for line in passage.lines}
            by_number.update((line.number, line) for line in lines if line.matches or line.number not in by_number)
            passage.lines[:] = [by_number[number] for number in sorted(by_number)]
            continue
        if passage is not None:
            yield passage
        passage = _Passage(item, lines)
    if passage is not None:
        yield passage


def _meet(passage: _Passage, item: Hit, first: int) -> bool:
    """Whether the lines around a hit go on where the passage ends, in the same text of the same block."""
    newest = max(line.number for line in passage.lines if line.matches)
    is_same_block = (item.project, item.address) == (passage.hit.project, passage.hit.address)
    return is_same_block and newest < item.line and first <= passage.lines[-1].number + 1


def _context_lines(items: Sequence[Hit]) -> Iterator[str]:
    """As `grep` writes them: `B17:3:` before a line that matches, `B17-2-` before another, `--` between passages."""
    for number, passage in enumerate(_passages(items)):
        if number:
            yield "--"
        for line in passage.lines:
            sign = ":" if line.matches else "-"
            yield f"{_place(passage.hit)}{sign}{line.number}{sign}{_clean(line.text)}"


def _place(hit: Hit) -> str:
    """The address, after the folder of its project where several are searched."""
    return f"{safe(hit.project)}: {hit.address}" if hit.project else hit.address


def _screen_lines(output: Output, items: Sequence[Hit]) -> Iterator[str]:
    """Each block with its lines below it, what matches marked, and as much of a long line as there is room for."""
    digits = max(len(str(item.line + len(item.after))) for item in items)
    address = ""
    for passage in _passages(items):
        hit = passage.hit
        if _place(hit) != address:
            if address:
                yield ""
            address = _place(hit)
            also = ", ".join(f"{place.address} {place.state}" for place in hit.also)
            facts = f"  {hit.type}, {hit.state}, step {hit.step}" + (f"; also in {also}" if also else "")
            facts = cut(facts, max(output.width - breadth(address), 10))
            yield output.style(safe(address), bold=True) + output.style(facts, dim=True)
        elif hit.before or hit.after:
            yield output.style(f"{'⋮':>{digits + 2}}", dim=True)
        for line in passage.lines:
            number = f"  {line.number:>{digits}}"
            number = output.style(number, fg="green") if line.matches else output.style(number, dim=True)
            yield f"{number}  {_marked(output, line, output.width - digits - 4)}".rstrip()


def _marked(output: Output, line: _Line, room: int) -> str:
    """The part of a line around its match that has room, the match in colour."""
    before, match, after = (
        _clean(part) for part in (line.text[: line.start], line.text[line.start : line.stop], line.text[line.stop :])
    )
    if breadth(before + match + after) > room:
        lead = min(breadth(before), max(room // 4, room - breadth(match + after)))
        if lead < breadth(before):
            before = "…" + _last_columns(before, lead - 1)
        match = first_columns(match, room - breadth(before))
        after = first_columns(after, room - breadth(before + match))
    return before + (output.style(match, fg="red", bold=True) if match and line.matches else match) + after


def _last_columns(text: str, width: int) -> str:
    while text and breadth(text) > width:
        text = text[max(1, (breadth(text) - width) // 2) :]
    return text


def _clean(text: str) -> str:
    """A line, safe to print and without tabs, which have no width of their own."""
    return safe(text.rstrip("\r").replace("\t", "    "))


def _bodies_words(number: int) -> str:
    return "1 body" if number == 1 else f"{number:,} bodies"


class Standing(Item, frozen=True, kw_only=True):
    """Another place with the same bytes."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    state: str


class Hit(Item, frozen=True, kw_only=True):
    """A matching line, and where its block is now."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    session: SessionName
    scope: ScopeName
    block: BlockId
    type: Annotated[str, described("the block's kind")]
    state: str
    step: Annotated[int, described("in which it came in")]
    line: Annotated[int, described("in the block's text, from 1; in a JSON block, in the string that matches")]
    text: Annotated[str, described("the line, or the part of a long line around the match")]
    start: Annotated[int, described("position in `text` at which the match begins, in characters")]
    stop: Annotated[int, described("position at which it ends")]
    before: Annotated[list[str], described("with -C, the lines before it")]
    after: Annotated[list[str], described("with -C, the lines after it")]
    also: list[Standing]
    project: Annotated[str, described("with --all-projects, the project's folder")] = ""


class Grepped(Answer, frozen=True, kw_only=True, tag="ctxvc.grep/1"):
    """`grep`"""

    pattern: str
    bodies: Annotated[int, described("how many there are to search; identical ones count once")]
    searched: Annotated[int, described("how many were searched; fewer if the pattern took too long")]
    skipped: Annotated[int, described("how many were abandoned because the pattern took too long on one line")]
    more: Annotated[int, described("matching lines that are not listed")]
    items: list[Hit]
