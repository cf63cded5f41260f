"""The pages of a session and of what sessions spent, as `report` writes them and `ui` serves them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

import ctxvc
from ctxvc.cli.app import App
from ctxvc.cli.commands.stats import NAMES, Statistics, StatsItem, answers, time_text
from ctxvc.cli.output import counted
from ctxvc.core.display import human_tokens
from ctxvc.errors import CtxvcError
from ctxvc.report import data, share
from ctxvc.report.session import Commands, session
from ctxvc.store import timestamp
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.tokens.meter import Meter

#: A verb → the one that takes it back.
_INVERSE = {
    **dict.fromkeys(("archive", "mask", "prune", "delete", "offload"), "restore"),
    "restore": "archive",
    "pin": "unpin",
    "unpin": "pin",
}


def session_page(
    stored: StoredSession, meter: Meter, *, tips: Sequence[str] = (), command: str = "ctxvc report"
) -> data.Session:
    """The page of the history behind `tips`; without any, of the whole session, uncommitted records included.

    Raises: Damaged.
    """
    name = shlex.quote(stored.name)

    def undo(verb: str, block: str) -> str:
        return f"ctxvc --session {name} {_INVERSE[verb]} {block}" if verb in _INVERSE else ""

    def show(block: str) -> str:
        return f"ctxvc --session {name} show {block}"

    return session(
        stored.store,
        stored.name,
        tips or tips_of(stored),
        meter,
        created=timestamp.now("seconds"),
        version=ctxvc.__version__,
        commands=Commands(command, undo, show),
        clean=share.clean_of(stored.store, stored.name),
        live=None if tips else stored,
    )


def tips_of(stored: StoredSession) -> list[str]:
    """The newest commits of all scopes, the current one's first."""
    return [stored.tip(scope) for scope in dict.fromkeys((stored.scope, *stored.scopes()))]


# --- of what sessions spent

#: Lines of an answer that a page has; a repository can have very many files.
_MOST = 1_000


def stats_page(groups: Sequence[Statistics], *, title: str, command: str) -> data.Stats:
    """The page of these answers of `stats`, of which all have the same total."""
    total = groups[0].total
    return data.Stats(
        title=title,
        created=timestamp.now("seconds"),
        version=ctxvc.__version__,
        command=command,
        since=groups[0].since,
        verdict=data.Verdict(sentence=_sentence(total), numbers=_numbers(total), notes=list(_notes(total))),
        groups={answer.by: _shortened(answer) for answer in groups},
        cut={answer.by: len(answer.items) - _MOST for answer in groups if _is_long(answer)},
    )


def whole_page(app: App, since: str, unreadable: list[CtxvcError], *, all_projects: bool, command: str) -> data.Stats:
    """The page with an answer by each kind; of a single project, not by project. Errors go into `unreadable`."""
    kinds = [by for by in NAMES if by != "project" or all_projects]
    groups = answers(app, kinds, since, unreadable, all_projects=all_projects)
    return stats_page(groups, title="all projects" if all_projects else app.folder.name, command=command)


def _is_long(answer: Statistics) -> bool:
    return len(answer.items) > _MOST and answer.by not in ("day", "week")


def _shortened(answer: Statistics) -> Statistics:
    return msgspec.structs.replace(answer, items=answer.items[:_MOST]) if _is_long(answer) else answer


def _sentence(total: StatsItem) -> str:
    if not total.calls:
        return "No calls of a model."
    return (
        f"{counted(total.sessions, 'session')} made {counted(total.calls, 'call')} in {counted(total.turns, 'turn')}, "
        f"with {counted(total.tool_calls, 'tool call')}, of which {total.failed:,} failed."
    )


def _numbers(total: StatsItem) -> list[data.Number]:
    """The six at the top; none without calls."""
    if not total.calls:
        return []
    prompts = total.fresh + total.cache_read + total.cache_written
    cost = "–" if total.cost is None else f"${total.cost:,.2f}"
    return [
        data.Number(name="cost", value=total.cost, text=cost),
        data.Number(name="prompts", value=prompts, text=human_tokens(prompts)),
        data.Number(name="cached", value=total.cached, text=f"{100 * total.cached:.1f} %" if prompts else "–"),
        data.Number(name="output", value=total.output, text=human_tokens(total.output)),
        data.Number(name="model time", value=total.waited_model, text=time_text(total.waited_model)),
        data.Number(name="tool time", value=total.waited_tools, text=time_text(total.waited_tools)),
    ]


def _notes(total: StatsItem) -> list[str]:
    notes = []
    if total.uncounted:
        notes.append(f"{counted(total.uncounted, 'call')} without the provider’s count: their tokens are not in it.")
    if total.unpriced:
        notes.append(f"{counted(total.unpriced, 'call')} of a model without a known price.")
    return notes
