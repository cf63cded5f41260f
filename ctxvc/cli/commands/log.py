"""`log`: the commits of a scope."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers.commits import LogItem, log_item, log_item_of
from ctxvc.cli.answers.shared import (
    SHORT,
    Answer,
    CommitId,
    Item,
    ScopeName,
    SessionName,
    TimeText,
    described,
    short,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import UNKNOWN, Cell, Column, Output, Timestamp, Tokens, counted, encode, iso, safe
from ctxvc.cli.terminal import story
from ctxvc.cli.terminal.table import cut
from ctxvc.core import patterns
from ctxvc.errors import BadInput
from ctxvc.inspection.story import Moment, Turn, moments, turns
from ctxvc.inspection.work import CallCost, call_cost, total_cost
from ctxvc.store.format import HEADS
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision as revisions
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import models, prompt_size


@command("log", "ctxvc log -n 20")
@revision_argument(metavar="[REV | A..B]")
@click.option(
    "-n", "number", metavar="N", type=click.IntRange(0, sys.maxsize), help="At most N commits, or N calls with --usage."
)
@click.option("--oneline", is_flag=True, help="One line per commit.")
@click.option("--steps", is_flag=True, help="Show all steps of long turns, and the bookkeeping between them.")
@click.option("--reverse", is_flag=True, help="Oldest first.")
@time_option("--since", "Only commits since then, as in 2026-02-10, 3d, '2 hours ago'.")
@time_option("--until", "Only commits until then.")
@click.option(
    "--actor", metavar="NAME", help="Only commits by this actor: agent, user, host, policy, policy:default, …"
)
@click.option("--tool", metavar="NAME", help="Only steps that call this tool.")
@click.option("--path", metavar="PATH", help="Only steps whose calls name this file, or a file in this folder.")
@click.option("--grep", "source", metavar="PATTERN", help="Only commits whose text or message matches, ignoring case.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help=f"One line per commit, as in '{{short}} {{step}} {{text}}'. Fields: {', '.join(story.FIELDS)}.",
)
@click.option("--graph", is_flag=True, help="Draw all scopes of the session, or the history of REV.")
@click.option("--usage", is_flag=True, help="Tokens and cost of each call, in all scopes or in REV.")
@click.option(
    "--jsonl",
    is_flag=True,
    help="The trace: one JSON object per commit, oldest first, of all scopes or the history of REV.",
)
@json_option
@click.pass_obj
def log(
    app: App, revision: str, number: int | None, oneline: bool, steps: bool, reverse: bool, since: str,
    until: str, actor: str | None, tool: str | None, path: str | None, source: str | None,
    template: str | None, graph: bool, usage: bool, jsonl: bool,
) -> None:  # fmt: skip
    """On a terminal: each turn with the human's words, its time, tokens and cost, followed by its steps.
    Compactions, plans, notes and switches of scope are marked. In a pipe, one tab-separated line per commit.

    A step is one reply of the model, with the input before it and the results of its calls. REV is a scope, a commit,
    `step:12`, or SESSION/SCOPE; a `~3` at the end goes three commits back. `A..B` is everything in B but not in A.

    --jsonl is oldest first, so output can be followed; -n gives the last N.
    """
    filters = list(_filters(since, until, actor, tool, path, source))
    if (graph or usage or jsonl) and (filters or oneline or template is not None or ".." in revision):
        raise BadInput("--graph, --usage and --jsonl take no range, filter or format", hint="leave out one of them")
    with app.reading() as stored:
        before, _, base = revision.rpartition("..") if ".." in revision else ("", "", revision)
        snapshot = app.revision(stored, base or "HEAD")
        if graph:
            drawn = _graph(stored, "" if revision == "HEAD" else snapshot.commit, number)
            app.output.lines(cut(row, app.output.width) if app.output.terminal else row for row in drawn)
            return
        every = revision == "HEAD"
        tips = map(stored.tip, stored.scopes()) if every else [snapshot.commit]
        if usage:
            newest = reversed([*revisions.trace(stored.store, tips)])
            calls = islice(filter(None, (call_cost(stored.store, entry) for entry in newest)), number)
            answer = _used(stored.store, snapshot, "" if every else snapshot.scope, calls)
            app.output.value(answer) if app.output.json else app.output.prose(_usage_lines(app.output, answer))
            return
        if jsonl:
            trace = deque(revisions.trace(stored.store, tips), maxlen=number)
            app.output.lines(encode(log_item(stored.store, entry)) for entry in trace)
            return
        entries = revisions.history(stored.store, snapshot.commit)
        if ".." in revision:
            without = app.revision(stored, before or "HEAD").commit
            older = set(stored.store.first_parents(without))
            entries = (entry for entry in entries if entry.commit not in older)
        history = moments(stored.store, entries)

        def is_wanted(moment: Moment) -> bool:
            return all(match(moment) for match in filters)

        is_story = app.output.terminal and not (app.output.json or oneline or template is not None)
        if is_story:
            latest = next(history, None)
            story_turns = turns(chain([latest] if latest else [], history), is_wanted, number)
            if reverse:
                story_turns = (
                    msgspec.structs.replace(turn, moments=turn.moments[::-1]) for turn in reversed([*story_turns])
                )
            sizes = prompt_size.counted_sizes(stored.store, snapshot.commit)
            header = story.header(app.output, snapshot, latest, sizes)
            app.output.lines(_story_lines(app.output, snapshot, header, story_turns, every=steps or bool(filters)))
            _note_waiting(app.output, snapshot)
            return
        history = islice(filter(is_wanted, history), number)
        _print(app.output, snapshot, reversed([*history]) if reverse else history, template=template, oneline=oneline)


def _print(
    output: Output, snapshot: Snapshot, history: Iterator[Moment], *, template: str | None, oneline: bool
) -> None:
    if output.json:
        items = [log_item_of(moment.entry, moment.meta) for moment in history]
        output.value(struct_of(Log, snapshot, items=items))
        return
    if template is not None:
        output.lines(story.formatted(template, moment) for moment in history)
    elif oneline:
        output.lines(story.line(output, moment) for moment in history)
    else:
        output.lines(_rows(output, history))
    _note_waiting(output, snapshot)


def _filters(
    since: str, until: str, actor: str | None, tool: str | None, path: str | None, source: str | None
) -> Iterator[Callable[[Moment], bool]]:
    """The conditions that a commit must meet."""
    if since:
        yield lambda moment: iso(moment.entry.time) >= since
    if until:
        yield lambda moment: iso(moment.entry.time) <= until
    if actor is not None:
        yield lambda moment: moment.actor == actor or moment.actor.partition(":")[0] == actor
    if tool is not None:
        yield lambda moment: any(call.tool.lower() == tool.lower() for call in moment.calls)
    if path is not None:
        yield lambda moment: moment.touches(path)
    if source is not None:
        pattern = patterns.compiled(source, ignore_case=True).until(patterns.COMMAND_SECONDS, time.monotonic)
        yield lambda moment: any(next(pattern.lines(text), None) for text in moment.texts())


def _story_lines(
    output: Output, snapshot: Snapshot, header: Iterator[str], story_turns: Iterable[Turn], *, every: bool
) -> Iterator[str]:
    yield from header
    for turn in story_turns:
        yield ""
        yield from story.turn_lines(output, turn, snapshot.scope, every=every)


def _used(store: Store, snapshot: Snapshot, scope: str, calls: Iterable[CallCost]) -> Usage:
    """The usage of the calls, with its sums."""
    costs = list(calls)
    total = total_cost(costs)
    items = [
        struct_of(
            UsageItem,
            call,
            call.usage,
            call.entry,
            time=iso(call.entry.time),
            scope=store.reader.meta(call.entry.commit).scope,
            by="planner" if call.by_planner else "agent",
        )
        for call in costs
    ]
    return struct_of(
        Usage,
        total,
        total.usage,
        snapshot,
        scope=scope,
        prices=models.MODELS_DATE,
        dollars=total.dollars or 0.0,
        planner_dollars=total_cost(call for call in costs if call.by_planner).dollars or 0.0,
        items=items,
    )


def _usage_lines(output: Output, answer: Usage) -> Iterator[str]:
    yield from output.table_lines(table_of(UsageItem, answer.items))
    share = f", {answer.read / answer.prompt:.0%} of them from the cache" if answer.prompt else ""
    sent, replied = output.tokens(answer.prompt), output.tokens(answer.reply)
    yield f"{counted(answer.calls, 'call')}: {sent} tokens of prompts{share}; {replied} of replies"
    if questions := [item for item in answer.items if item.by == "planner"]:
        question_tokens = output.tokens(sum(item.prompt for item in questions))
        yield (
            f"{counted(len(questions), 'call')} of them for plans and summaries: {question_tokens} tokens of prompts, "
            f"{output.tokens(sum(item.reply for item in questions))} of replies, {_money(answer.planner_dollars)}"
        )
    left_out = f"; {counted(answer.unpriced, 'call')} to models without a price" if answer.unpriced else ""
    priced = answer.calls > answer.unpriced
    yield f"{_money(answer.dollars if priced else None)} by the prices of {answer.prices}{left_out}"


def _money(dollars: float | None) -> str:
    return UNKNOWN if dollars is None else f"${dollars:,.4f}"


def _rows(output: Output, history: Iterable[Moment]) -> Iterator[str]:
    yield "commit\tstep\ttime\tactor\tsubject"
    for moment in history:
        cells: list[Cell] = [
            moment.entry.commit[:SHORT], moment.step, Timestamp(iso(moment.entry.time)), moment.actor,
            moment.text(heading=False),
        ]  # fmt: skip
        yield "\t".join(map(output.cell, cells))


def _graph(stored: StoredSession, commit: str, number: int | None) -> Iterator[str]:
    """git's own drawing, made safe to print."""
    refs = [commit] if commit else [f"{HEADS}{stored.name}/{scope}" for scope in stored.scopes()]
    limit = [] if number is None else [f"--max-count={number}"]
    drawn = program.run(
        stored.store.path, "log", "--graph", "--format=%h  %an: %s", f"--abbrev={SHORT}", *limit, *refs, "--"
    )
    return (safe(line) for line in drawn.decode("utf-8", "replace").splitlines())


def _note_waiting(output: Output, snapshot: Snapshot) -> None:
    if snapshot.waiting:
        output.note(f"{counted(snapshot.waiting, 'record')} of an open step not committed yet")


class Log(Answer, frozen=True, kw_only=True, tag="ctxvc.log/1"):
    """`log`"""

    session: SessionName
    scope: ScopeName
    waiting: Annotated[int, described("records that are acknowledged but not committed yet")]
    items: list[LogItem]


class UsageItem(Item, frozen=True, kw_only=True):
    """A call to a model, identified by the commit of its reply or of the policy that made it."""

    TABLE = "commit scope by model prompt fresh written read reply dollars"

    commit: Annotated[CommitId, Column("commit", cell=short)]
    time: TimeText
    scope: Annotated[ScopeName, Column("scope", least=8, rank=2)]
    subject: str
    by: Annotated[
        str, described("`agent`, or `planner` if a policy asked for a plan or a summary"), Column("for", rank=2)
    ]
    model: Annotated[str, Column("model", least=12, rank=1)]
    prompt: Annotated[
        int, described("tokens of the prompt: fresh, written and read"), Column("prompt", right=True, cell=Tokens)
    ]
    fresh: Annotated[
        int,
        described("prompt tokens that were neither read from nor written to the cache"),
        Column("fresh", right=True, cell=Tokens),
    ]
    written: Annotated[
        int,
        described("prompt tokens written to the provider's cache"),
        Column("cache written", right=True, cell=Tokens),
    ]
    read: Annotated[int, described("prompt tokens read from the cache"), Column("cache read", right=True, cell=Tokens)]
    reply: Annotated[int, described("tokens of the reply"), Column("reply", right=True, cell=Tokens)]
    hour: Annotated[int, described("those of the tokens written that stay in the cache for an hour, at a higher price")]
    dollars: Annotated[
        float | None,
        described("by the dated price table; null for a model that it lacks"),
        Column("cost", right=True, cell=_money),
    ]


class Usage(Answer, frozen=True, kw_only=True, tag="ctxvc.usage/1"):
    """`log --usage`. The sums of its items."""

    session: SessionName
    scope: Annotated[str, described("the scope of REV; empty for the whole session")]
    prices: Annotated[str, described("date of the price table")]
    calls: int
    prompt: int
    fresh: int
    written: int
    read: int
    reply: int
    hour: int
    dollars: float
    planner_dollars: Annotated[float, described("the part of `dollars` spent on policies' questions")]
    unpriced: Annotated[int, described("calls not included in `dollars`")]
    items: list[UsageItem]
