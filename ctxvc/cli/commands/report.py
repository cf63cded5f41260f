"""`report`: a session's history, or a replay's results, as one page."""

from __future__ import annotations

import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from ctxvc.cli.answers.shared import Answer, Item, described, struct_of
from ctxvc.cli.app import (
    App,
    all_projects_option,
    command,
    complete_revisions,
    json_option,
    not_empty,
    raise_unreadable,
    write,
)
from ctxvc.cli.options.values import time_option
from ctxvc.errors import BadInput, CtxvcError, NotFound, Refused

if TYPE_CHECKING:
    from ctxvc.core.secrets.redact import Criteria
    from ctxvc.report import data
    from ctxvc.store.log.stored_session import StoredSession

#: Secrets that an error names.
_NAMED = 5


@command("report", "ctxvc report -o page.html --open")
@click.argument(
    "subject", metavar="[SESSION|REV|RESULTS]", default="", shell_complete=complete_revisions, callback=not_empty
)
@click.option("-o", "--output", "target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to FILE.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option("--share", is_flag=True, help="Refuse if anything on the page looks like a secret.")
@click.option("--recordings", metavar="DIR", type=click.Path(exists=True, path_type=Path),
              help="RESULTS: the replayed recordings, to show examples.")  # fmt: skip
@click.option("--stats", "statistics", is_flag=True, help="What all sessions spent, as `ctxvc stats` has it.")
@time_option("--since", "--stats: only calls from that day on.")
@all_projects_option
@json_option
@click.pass_obj
def report(
    app: App, subject: str, target: Path | None, opens: bool, share: bool, recordings: Path | None,
    statistics: bool, since: str, all_projects: bool,
) -> None:  # fmt: skip
    """One HTML file that works offline. Without an argument: the current session, with all of its scopes. REV ends the
    page at a moment of one scope. RESULTS, a file of `ctxvc replay --out`, makes a page that compares its policies.
    --stats makes a page about what all sessions spent.

    --json without -o prints the data of the page.
    """
    results = app.path(Path(subject)) if subject else None
    is_file = results is not None and results.is_file()
    if recordings and not is_file:
        raise click.UsageError("--recordings is for a file of results")
    if (since or all_projects) and not statistics:
        raise click.UsageError("--since and --all-projects are for --stats")
    if statistics and subject:
        raise click.UsageError("--stats takes no argument")
    if not (target or opens or app.json) and app.output.terminal:
        raise click.UsageError("name a file with -o FILE, or use --open")
    unreadable: list[CtxvcError] = []
    if statistics or is_file:
        from ctxvc.core.secrets.redact import RULES

        page: data.Page = (
            _results_page(results, recordings)
            if results is not None and is_file
            else _stats_page(app, since, unreadable, all_projects=all_projects)
        )
        if share:
            _check_shared(page, RULES)
    else:
        page = _session_page(app, subject, share=share)
    _deliver(app, page, target, opens=opens)
    raise_unreadable(unreadable)


def _stats_page(app: App, since: str, unreadable: list[CtxvcError], *, all_projects: bool) -> data.Stats:
    from ctxvc.cli.page.pages import whole_page

    command = f"ctxvc report --stats{' --all-projects' * all_projects}"
    command += f" --since {shlex.quote(since)}" if since else ""
    return whole_page(app, since, unreadable, all_projects=all_projects, command=command)


def _deliver(app: App, page: data.Page, target: Path | None, *, opens: bool) -> None:
    encoded = msgspec.json.encode(page)
    size = 0
    if target or opens or not app.json:
        from ctxvc.report.document import document

        content = document(encoded, title=page.title)
        size = len(content)
        if opens and target is None:
            import tempfile

            target = Path(tempfile.mkdtemp(prefix="ctxvc-report-")) / "report.html"
        write(app, target, content)
        if opens and target:
            import webbrowser

            webbrowser.open(app.path(target).absolute().as_uri())
    if app.json:
        app.output.value(_answer(page, app.path(target) if target else None, size, encoded))


def _session_page(app: App, subject: str, *, share: bool) -> data.Session:
    from ctxvc.cli.page.pages import session_page
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.store.read import session_name

    with app.reading() as stored:
        store, tips, of = stored.store, [], stored
        if subject and (name := session_name.match(store, subject)):
            of = StoredSession.open(store, name)
            of.leave()  # a reader writes nothing
            app.report_damage(of)
        elif subject:
            tips = [_revision(app, stored, subject)]
        command = f"ctxvc report {shlex.quote(subject)}" if subject else "ctxvc report"
        page = session_page(of, app.meter(store, of.ledger()), tips=tips, command=command)
        if share:
            _check_shared(page, store.redaction.criteria)
        return page


def _revision(app: App, stored: StoredSession, subject: str) -> str:
    """The commit of a revision. Raises: NotFound."""
    try:
        return app.revision(stored, subject).commit
    except NotFound as error:
        if subject.isidentifier():
            raise NotFound(
                f"no session, revision or file of results {subject!r}",
                hint="`ctxvc sessions` lists sessions, `ctxvc log` the commits of this one",
            ) from error
        raise


def _results_page(results: Path, recordings: Path | None) -> data.Replay:
    from ctxvc.replay import work
    from ctxvc.replay.results.result import decode
    from ctxvc.report.replays import replay
    from ctxvc.store import timestamp

    lines = results.read_bytes().splitlines()
    try:
        own = [decode(line) for line in lines]
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{results} is not a file of replay results: {error}", hint="`ctxvc replay --out FILE` writes one"
        ) from error
    if not own:
        raise BadInput(f"{results} has no results", hint="`ctxvc replay --out FILE` writes them")
    names = {result.file for result in own}
    paths = sorted(path for path in recordings.rglob("*") if path.name in names) if recordings else []
    return replay(
        own,
        [work.of_file(path) for path in paths],
        title=results.name,
        created=timestamp.now("seconds"),
        version=own[0].version,
    )


def _check_shared(page: data.Page, criteria: Criteria) -> None:
    """Raises: Refused if something in the page looks like a secret."""
    from ctxvc.report.share import leaks

    suspects = [str(leak) for leak in islice(leaks(page, criteria), _NAMED + 1)]
    if suspects:
        more = "; and more" if len(suspects) > _NAMED else ""
        raise Refused(
            f"the page has what looks like secrets: {'; '.join(suspects[:_NAMED])}{more}",
            hint="`ctxvc purge --secrets` erases them; to allow what is not one, see `ctxvc help secrets`",
        )


def _answer(page: data.Page, path: Path | None, size: int, encoded: bytes) -> Report:
    cut = len(page.bodies.cut) if page.kind == "session" else 0
    return struct_of(
        Report,
        page,
        page.verdict,
        file=str(path) if path else "",
        bytes=size,
        numbers=[struct_of(ReportNumber, one) for one in page.verdict.numbers],
        cut=cut,
        page=None if path else msgspec.json.decode(encoded),
    )


class ReportNumber(Item, frozen=True, kw_only=True):
    """One of the numbers at the top of the page."""

    name: str
    value: Annotated[float | None, described("null if unknown")]
    text: Annotated[str, described("the value for people")]


class Report(Answer, frozen=True, kw_only=True, tag="ctxvc.report/1"):
    """`report`"""

    kind: Annotated[str, described("`session`, `stats` or `replay`")]
    title: str
    file: Annotated[str, described("the file that was written; empty if none was")]
    bytes: Annotated[int, described("its size; 0 if none was written")]
    sentence: Annotated[str, described("what happened, in words")]
    numbers: list[ReportNumber]
    notes: Annotated[list[str], described("what the numbers do not say")]
    cut: Annotated[int, described("blocks whose text the page has no room for")]
    page: Annotated[Any, described("all that the page is drawn from; null if a file was written")]
