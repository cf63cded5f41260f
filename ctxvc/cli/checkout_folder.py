"""The folder of a checkout, with the dashboard as a page beside the blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ctxvc.cli.output import plain
from ctxvc.cli.terminal.dashboard import Page, page_of, table_of_lines, vocabulary_remark
from ctxvc.core.display import one_line
from ctxvc.core.view.dashboard import Line, folded
from ctxvc.inspection.captions import captioned
from ctxvc.store import checkout as checkouts
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.tokens.meter import Meter

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")

#: Characters of a note on the page.
_NOTE = 200


def check_out(store: Store, session: str, scope: str, folder: Path) -> checkouts.CheckedOut:
    """Checks out the scope's newest commit into `folder`, with its dashboard."""
    commit = revision.now(StoredSession.open(store, session, scope)).commit
    return checkouts.checkout(store, session, scope, folder, dashboard=_dashboard(store, commit))


def redraw_dashboard(store: Store, folder: Path) -> checkouts.CheckedOut:
    """Writes the dashboard of our newest commit under the folder's HEAD into the folder. Raises: NotFound."""
    commit = checkouts.person_changes(store, folder).base
    contained.replace(folder, checkouts.DASHBOARD, _dashboard(store, commit).encode("utf-8", "replace"))
    meta = store.reader.meta(commit)
    listed = program.in_checkout(folder, "ls-files", "-t", "-z").split(b"\0")
    return checkouts.CheckedOut(
        path=str(folder),
        session=meta.session,
        scope=meta.scope,
        commit=commit,
        files=sum(line.startswith(b"H ") for line in listed),
    )


def _dashboard(store: Store, commit: str) -> str:
    snapshot = revision.at(store, commit)
    meter = Meter(store, snapshot.ledger.meta.tokenizer)
    page = page_of(snapshot, meter, meter.costs(snapshot))
    remark = vocabulary_remark(snapshot.ledger.meta)
    return _markdown(page, captioned(folded(page.dashboard.lines), snapshot, store), remark)


def _markdown(page: Page, rows: Iterable[Line], remark: str) -> str:
    """The dashboard as a page. Recorded text is escaped, so it adds no markup and no link."""
    dashboard, table = page.dashboard, table_of_lines(rows)
    sent = f", {dashboard.dashboards:,} dashboard" if dashboard.dashboards else ""
    older = [f"- {page.older:,} older"] if page.older else []
    notes = [*older, *(f"- {_escaped(one_line(note, _NOTE))}" for note in page.notes)]
    lines = [
        f"# {dashboard.session}/{dashboard.scope}",
        "",
        f"[{dashboard.bar}] {dashboard.percent} %, {dashboard.used:,} of {dashboard.limit:,} tokens: "
        f"{dashboard.overhead:,} system prompt and tools, {dashboard.conversation:,} conversation{sent}",
        "",
        *([f"The model's vocabulary is {remark}.", ""] if remark else []),
        *(["Notes:", "", *notes, ""] if notes else []),
        "".join(f"| {column.name} " for column in table.columns) + "|",
        "".join("| ---: " if column.right else "| --- " for column in table.columns) + "|",
        *("".join(f"| {_escaped(plain(cell))} " for cell in row) + "|" for row in table.rows),
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
