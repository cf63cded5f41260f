"""`sessions`: the sessions of the store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import click
import msgspec

from ctxvc.cli.answers.shared import Answer, Item, ScopeName, SessionName, TimeText, described
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable
from ctxvc.cli.output import UNKNOWN, Cell, Column, Styled, Table, Timestamp, Tokens, iso
from ctxvc.core.ledger import caption, name_rules
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import CtxvcError, Damaged, NotFound
from ctxvc.inspection.window_percent import occupancy, percent_of
from ctxvc.inspection.work import Work, work
from ctxvc.store.cache import local_cache
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.trust import known_stores
from ctxvc.tokens import models, prompt_size
from ctxvc.tokens.meter import CACHE as COUNTS
from ctxvc.tokens.meter import Meter, window_of

#: The file of the cache that has the items, and what they depend on besides their session.
_CACHE, _FORM = "sessions.json", f"sessions 4, prices of {models.MODELS_DATE}"
#: The title of a session with a project's notes.
_NOTES = "notes of the project"
#: How importers name the scopes of sub-agents.
AGENT = "agent-"


@command("sessions", "ctxvc sessions")
@all_projects_option
@click.option("--remote", "remote", metavar="NAME", is_flag=False, flag_value="", default=None,
              help="List everybody's sessions on a remote, without fetching them.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also list the sessions that only hold the project's notes.")
@json_option
@click.pass_obj
def sessions(app: App, all_projects: bool, remote: str | None, everything: bool) -> None:
    """Turns are those of the current scope; `full` is the share of the window that its last prompt took (after a `~`,
    not the provider's count). `spent` and the cost cover the calls of all scopes whose usage is recorded, at list
    prices: all tokens of prompts, cached or not, and replies; `–` is unknown. Files are those that calls edited, wrote
    or deleted, except in the system's temporary folder. Sub-agents are below their session.
    """
    if remote is not None:
        if all_projects:
            raise click.UsageError("--remote and --all-projects cannot be combined")
        from ctxvc.cli.remotes import remote_sessions

        remote_sessions.show(app, remote, notes=everything)
        return
    unreadable: list[CtxvcError] = []
    if all_projects:
        items, current = _of_all_projects(app, unreadable, notes=everything), ""
    else:
        with app.store() as store:
            known_stores.remember_used(store.path)
            items, _ = session_items(store, unreadable, notes=everything)
            current = _current(store, [item.name for item in items])
    none = "" if items or unreadable else "no sessions yet: `ctxvc import` imports recorded ones"
    app.output.answer(Sessions(current=current, items=items), _table(items, current, projects=all_projects), none)
    raise_unreadable(unreadable)


def _of_all_projects(app: App, unreadable: list[CtxvcError], *, notes: bool) -> list[SessionItem]:
    """The sessions of all projects that can be read, newest first."""
    items = [
        msgspec.structs.replace(item, project=str(store.path.parent))
        for store in app.all_stores(unreadable)
        for item in session_items(store, unreadable, notes=notes)[0]
    ]
    return sorted(items, key=lambda item: item.updated, reverse=True)


def session_items(
    store: Store, unreadable: list[CtxvcError], *, seconds: float | None = None, notes: bool = False
) -> tuple[list[SessionItem], int]:
    """The sessions that can be read, newest first, and how many are not listed yet. The errors of the others go into
    `unreadable`. Those with a project's notes are among them only with `notes`.

    What was worked out for a session is kept. After so many `seconds` of that no further one is worked out: one that
    changed is given as it was, and one that is new is left for the next time.
    """
    cached = local_cache.load(store, _CACHE, dict[str, _Cached]) or {}
    counts = local_cache.file_stamp(store, COUNTS)
    entries: dict[str, _Cached] = {}
    stale: list[tuple[str, dict[str, str], str]] = []
    all_tips = store.all_tips()
    for name, tips in all_tips.items():
        key = local_cache.session_key(store, name, tips, _FORM)
        entry = cached.get(name)
        if entry is None or entry.key != key or entry.counts not in ("", counts):
            stale.append((name, tips, key))
        else:
            entries[name] = entry
    if seconds is not None:
        stale.sort(key=lambda one: _newest(store, one[1].values()), reverse=True)
    unlisted, start, reader = 0, time.monotonic(), _Reader(store)
    for number, (name, tips, key) in enumerate(stale):
        if number and seconds is not None and time.monotonic() - start >= seconds:
            if name in cached:
                entries[name] = cached[name]
            else:
                unlisted += 1
            continue
        try:
            item = reader.item(name, tips)
        except Damaged as error:
            unreadable.append(error)
            continue
        guessed = item.estimated or any(agent.estimated for agent in item.agents)
        entries[name] = _Cached(key, counts if guessed else "", item)
    if entries != cached:
        local_cache.save(store, _CACHE, entries)
    items = [entries[name].item for name in all_tips if name in entries]
    items = [item for item in items if notes or not name_rules.has_project_notes(item.name)]
    return sorted(items, key=lambda item: item.updated, reverse=True), unlisted


def _newest(store: Store, tips: Iterable[str]) -> int:
    """The time of the newest of these commits that can be read; 0 for none."""
    newest = 0
    for tip in tips:
        with suppress(Damaged):
            newest = max(newest, store.commit(tip).commit_time)
    return newest


def _table(items: list[SessionItem], current: str, *, projects: bool) -> Table:
    rows: list[list[Cell]] = []
    for item in items:
        project: Sequence[Cell] = [item.project] if projects else []
        rows.append([*project, *_name(item, current), *_figures(item.title or item.prompt, item)])
        indent = [""] * len(project)
        rows += [[*indent, "", f"└ {agent.name}", *_figures(agent.prompt, agent)] for agent in item.agents]
    return Table(
        columns=[
            *([Column("project", least=16)] if projects else []),
            Column("*"),
            Column("session", least=12),
            Column("title", least=24),
            Column("updated"),
            Column("turns", right=True, rank=1),
            Column("full", right=True, rank=2),
            Column("spent", right=True, rank=3),
            Column("cost", right=True),
            Column("files", right=True, rank=4),
        ],
        rows=rows,
    )


def _name(item: SessionItem, current: str) -> list[Cell]:
    """The star and the name; both are green for the session that commands take."""
    return [Styled("*", "green"), Styled(item.name, "green")] if item.name == current else ["", item.name]


def _figures(title: str, item: SessionItem | AgentItem) -> list[Cell]:
    full = f"{'' if item.by_provider else '~'}{item.percent} %"
    tokens = UNKNOWN if item.spent_tokens is None else Tokens(item.spent_tokens)
    cost = UNKNOWN if item.cost is None else f"${item.cost:,.2f}"
    return [title, Timestamp(item.updated), item.turns, full, tokens, cost, item.files]


class _Reader:
    """Reads sessions one after another; what they share is loaded once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._meters: dict[str, Meter] = {}

    def item(self, name: str, tips: Mapping[str, str]) -> SessionItem:
        """A session with these tips, with what is acknowledged and not committed yet. Raises: Damaged."""
        current, scopes = _scopes(self.store, name, tips)
        ledger = scopes[current].ledger
        source = ledger.meta.source
        agents = {scope: at for scope, at in scopes.items() if scope.startswith(AGENT) and at.ledger.meta.parent}
        bodies = _blocks(scopes.values())
        totals = work(self.store, tips.values(), bodies, caption.folder_of(ledger))
        return SessionItem(
            name=name,
            prompt=_first_prompt(ledger),
            title=caption.plain(source.title) if source else _NOTES if name_rules.has_project_notes(name) else "",
            started=source.started if source else "",
            updated=iso(revision.entry(self.store, scopes[current].commit).time),
            branch=source.branch if source else "",
            model=ledger.meta.model,
            scope=current,
            scopes=len(scopes),
            turns=ledger.meta.counters.turn,
            steps=ledger.meta.counters.step,
            blocks=len(bodies),
            **self._figures(scopes[current], totals),
            bytes=sum(row.bytes for row, _ in bodies),
            format=source.format if source else "",
            agents=[self._agent(scope, at) for scope, at in agents.items()],
        )

    def _agent(self, scope: str, at: revision.Moment) -> AgentItem:
        """A sub-agent. Its cost covers the commits made in its scope, not inherited ones."""
        ledger, bodies = at.ledger, _blocks([at])
        totals = work(self.store, [at.commit], bodies, caption.folder_of(ledger), own=True)
        return AgentItem(
            name=scope,
            prompt=next((row.label for row in ledger.rows() if row.role == "user"), ""),
            updated=iso(revision.entry(self.store, at.commit).time),
            turns=ledger.meta.counters.turn,
            steps=ledger.meta.counters.step,
            **self._figures(at, totals),
        )

    def _figures(self, at: revision.Moment, totals: Work) -> dict[str, Any]:
        """How full the window of a scope is, what was spent, and how many files were changed."""
        window, _ = window_of(at.ledger)
        used, by_provider, estimated = self._used(at)
        cost = totals.cost
        return {
            "used": used,
            "window": window,
            "percent": percent_of(used, window),
            "by_provider": by_provider,
            "estimated": estimated,
            "spent_tokens": cost.usage.prompt + cost.usage.reply if cost.calls else None,
            "cost": cost.dollars,
            "files": len(totals.files),
        }

    def _used(self, at: revision.Moment) -> tuple[int, bool, bool]:
        """The tokens in the window as `status` has them, whether the provider counted them, and whether they are a
        guess by bytes: not to be counted now are blocks that nobody counted yet."""
        system, tools = self.store.reader.system_and_tools(at.commit)
        meta = at.ledger.meta
        snapshot = revision.Snapshot(
            ledger=at.ledger, bodies=at.bodies, commit=at.commit, session=meta.session, scope=meta.scope,
            system=system, tools=tools, waiting=int(_is_waiting(self.store, meta.session)),
        )  # fmt: skip
        call, _ = prompt_size.newest(self.store, snapshot)
        if call is not None and not prompt_size.still_holds(call, at.ledger):
            call = None
        if call is not None and call.usage.prompt:
            return call.usage.prompt, True, False
        meter = self._meter(meta.tokenizer)
        _, guessed = meter.total(_blocks([at]), meta.model)
        if guessed:
            rows = (row for row in at.ledger.rows() if row.present and (call is None or row.number <= call.last))
            return sum(row.bytes for row in rows) // 4, False, True
        window = occupancy(self.store, snapshot, meter, meter.costs(snapshot))
        return window.tokens, window.by_provider, False

    def _meter(self, tokenizer: str) -> Meter:
        if tokenizer not in self._meters:
            self._meters[tokenizer] = Meter(self.store, tokenizer)
        return self._meters[tokenizer]


def _scopes(store: Store, name: str, tips: Mapping[str, str]) -> tuple[str, dict[str, revision.Moment]]:
    """The session's current scope, and all its scopes, `main` first. Raises: Damaged."""
    if not _is_waiting(store, name):  # all of it is at the tips
        current = store.current_scope(name, tips) if len(tips) > 1 else next(iter(tips))
        in_order = sorted(tips, key=lambda scope: (scope != "main", scope))
        return current, {scope: revision.moment(store, tips[scope]) for scope in in_order}
    stored = StoredSession.for_reading(store, name)
    return stored.scope, {scope: revision.moment_now(stored, scope) for scope in stored.scopes()}


def _is_waiting(store: Store, name: str) -> bool:
    """Whether something of a session may be in no commit yet."""
    return os.path.lexists(f"{store.path}/ctxvc/journal/{name}")


def _blocks(scopes: Iterable[revision.Moment]) -> list[tuple[Row, Bodies]]:
    """Every block of these scopes once, with its reader."""
    blocks: dict[tuple[str, str], tuple[Row, Bodies]] = {}
    for at in scopes:
        for row in at.ledger.rows():
            blocks.setdefault((row.id, row.sha256), (row, at.bodies))
    return list(blocks.values())


def _first_prompt(ledger: Ledger) -> str:
    return next((caption.plain(row.label) for row in ledger.rows() if speaks(row.kind, row.role, row.origin)), "")


def _current(store: Store, names: Sequence[str]) -> str:
    try:
        return store.current_session(names) if names else ""
    except NotFound:
        return ""


class Figures(Item, frozen=True, kw_only=True):
    """What a session or a sub-agent took and did."""

    used: Annotated[int, described("tokens in the window of the current scope, as in `status`")]
    window: Annotated[int, described("tokens of that window")]
    percent: Annotated[int, described("of the window, rounded down")]
    by_provider: Annotated[bool, described("whether `used` is the provider's count")]
    estimated: Annotated[
        bool, described("whether `used` is guessed as bytes / 4, since not all blocks are counted yet")
    ]
    spent_tokens: Annotated[
        int | None,
        described("tokens of all prompts, cached or not, and replies; null if no call's usage is recorded"),
    ]
    cost: Annotated[
        float | None,
        described("in dollars, for the calls with recorded usage and a known price; null if there are none"),
    ]
    files: Annotated[int, described("number of files that its calls edited, wrote or deleted")]


class SessionItem(Figures, frozen=True, kw_only=True):
    """A session. Turns and steps are those of its current scope; everything else covers all its scopes."""

    name: SessionName
    prompt: Annotated[str, described("the beginning of the first human message")]
    title: Annotated[str, described("title in the recording; often empty")]
    started: TimeText
    updated: Annotated[str, described("time of the newest commit")]
    branch: Annotated[str, described("the project's git branch when it was recorded")]
    model: str
    scope: Annotated[str, described("current scope")]
    scopes: Annotated[int, described("number of scopes")]
    turns: int
    steps: int
    blocks: int
    bytes: Annotated[int, described("bytes of all bodies")]
    format: Annotated[str, described("format of the recording; empty if ctxvc recorded it itself")]
    agents: Annotated[list[AgentItem], described("its sub-agents, included in its figures")]
    project: Annotated[str, described("with --all-projects, the project's folder")] = ""


class AgentItem(Figures, frozen=True, kw_only=True):
    """A sub-agent: a scope of its session."""

    name: ScopeName
    prompt: Annotated[str, described("the beginning of its task")]
    updated: Annotated[str, described("time of its newest commit")]
    turns: int
    steps: int


class _Cached(msgspec.Struct, frozen=True):
    """A session as it was listed: `key` tells of when, `counts` at which counts its tokens were a guess."""

    key: str
    counts: str
    item: SessionItem


class Sessions(Answer, frozen=True, kw_only=True, tag="ctxvc.sessions/2"):
    """`sessions`"""

    current: Annotated[str, described("the session used by default; empty if there is none")]
    items: list[SessionItem]
