"""`status`: the dashboard."""

from __future__ import annotations

from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers.shared import CommitId, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.output import safe
from ctxvc.cli.terminal.dashboard import (
    Page,
    StatusLine,
    WindowAnswer,
    dashboard_lines,
    dashboard_of,
    page_of,
    text_of,
    used_tokens,
)
from ctxvc.core.view.dashboard import Line, folded
from ctxvc.inspection.captions import captioned
from ctxvc.inspection.window_percent import Occupancy, occupancy
from ctxvc.store import push_attempt
from ctxvc.store.read.revision import Snapshot, exactness
from ctxvc.tokens import prompt_size
from ctxvc.tokens.meter import budget_of


@command("status", "ctxvc status")
@revision_argument()
@click.option("--all", "every", is_flag=True, help="List every block on its own line, as --json always does.")
@click.option("--text", "as_text", is_flag=True, help="Print the dashboard exactly as the model gets it.")
@json_option
@click.pass_obj
def status(app: App, revision: str, every: bool, as_text: bool) -> None:
    """One line per block or archived group; in long lists, small old neighbours share one. Blocks that left the prompt
    stay in the list: `ctxvc show ID` reads them. REV is a scope, a step or a commit. `ctxvc help dashboard` explains
    every column.
    """
    if as_text and (every or app.json):
        raise click.UsageError("--text cannot be combined with --all or --json")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        meter = app.meter(stored.store, snapshot.ledger)
        costs = meter.costs(snapshot)
        window = occupancy(stored.store, snapshot, meter, costs)
        page = page_of(snapshot, meter, costs, window.calibration)
        if exactness(stored.store, snapshot) == "exact":
            page = page._replace(dashboard=msgspec.structs.replace(page.dashboard, prompt="exact", missing=()))
        blocks = dashboard_of(snapshot, meter, costs, every=True).lines if every or app.json else ()
        lines = captioned(blocks or folded(page.dashboard.lines), snapshot, stored.store)
        text = text_of(page, budget_of(snapshot.ledger), meter) if as_text else ""
        is_current = (snapshot.session, snapshot.scope) == (stored.name, stored.scope)
        chosen_by = app.chosen_by(stored.store) if is_current else "revision"
        problem = push_attempt.last(stored.store.path).problem
        sizes = () if app.json or as_text else prompt_size.counted_sizes(stored.store, snapshot.commit)
    if app.json:
        app.output.value(_status(snapshot, page, lines if blocks else (), window, chosen_by, estimated=meter.estimated))
    elif as_text:
        app.output.lines(text.splitlines())
    else:
        app.output.lines(dashboard_lines(app.output, snapshot, page, lines, window, chosen_by, sizes))
        if problem:
            app.output.note(f"not pushed to {safe(problem)}: `ctxvc push`")


def _status(
    snapshot: Snapshot, page: Page, blocks: tuple[Line, ...], window: Occupancy, chosen_by: str, *, estimated: bool
) -> Status:
    dashboard = page.dashboard
    return struct_of(
        Status,
        window,
        dashboard,
        snapshot,
        chosen_by=chosen_by,
        model=snapshot.ledger.meta.model,
        **used_tokens(window),
        dashboard=dashboard.dashboards,
        estimated=estimated,
        notes=page.notes,
        older_notes=page.older,
        groups=[struct_of(StatusLine, line) for line in dashboard.lines if line.type == "group"],
        items=[struct_of(StatusLine, line) for line in blocks],
    )


class Status(WindowAnswer, frozen=True, kw_only=True, tag="ctxvc.status/2"):
    """`status`. Every block but sent dashboards is in it, as with `--all`."""

    session: SessionName
    chosen_by: Annotated[
        str,
        described("`option` (--session), `variable` (CTXVC_SESSION), `use`, `last`, or `revision` if REV names it"),
    ]
    scope: ScopeName
    commit: CommitId
    model: str
    limit: Annotated[int, described("tokens allowed for a prompt: the window without the reply's reserve")]
    overhead: Annotated[
        int, described("by our count of the present prompt: system prompt, tools, and unrecorded parts")
    ]
    conversation: Annotated[int, described("by our count of the present prompt: the messages")]
    dashboard: Annotated[int, described("tokens of sent dashboards that are still in the prompt")]
    estimated: Annotated[bool, described("whether tokens are estimates")]
    prompt: Annotated[str, described("`exact` as it was sent, or `reconstructed` from a recording")]
    missing: Annotated[list[str], described("parts the model saw that the recording lacks")]
    waiting: Annotated[int, described("records that are acknowledged but not committed yet")]
    notes: Annotated[list[str], described("the scope's newest notes, at most five, newest last")]
    older_notes: Annotated[int, described("number of earlier notes")]
    groups: Annotated[list[StatusLine], described("archived groups that are not in another group")]
    items: list[StatusLine]
