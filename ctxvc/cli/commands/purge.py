"""`purge`: erases content from the whole store."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli import answers
from ctxvc.cli.answers import Answer, Item, PurgedCopy, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, Styled, Table, counted, safe
from ctxvc.cli.progress import Progress
from ctxvc.cli.standard_input import or_text
from ctxvc.core.secrets.encodings import SHORTEST
from ctxvc.recording.files import files_of_sessions
from ctxvc.store import purge_apply
from ctxvc.store.purge.exposure import Report
from ctxvc.store.purge.purge import PurgeRequest, survey
from ctxvc.store.purge.purge import purge as erase

_FORMS = "JSON escapes, URL encoding, hexadecimal and Base64"

#: The most blocks of a scope that are named.
_MOST = 12


@command("purge", "ctxvc purge B17 --yes")
@click.argument("blocks", metavar="[BLOCKS]...", nargs=-1)
@click.option("--text", "texts", metavar="TEXT", multiple=True, callback=or_text,
              help="This text, wherever it stands; - reads stdin.")  # fmt: skip
@click.option("--secrets", is_flag=True, help="Everything that looks like a secret (ctxvc help secrets).")
@click.option("--finish", is_flag=True, help="Finish a purge that was decided and killed, whoever decided it.")
@click.option("--discard", is_flag=True, help="Drop such a purge: what it was to erase stays.")
@click.option("--yes", is_flag=True, help="Do it. Without it, only what would be done is told.")
@json_option
@click.pass_context
def purge(
    ctx: click.Context,
    blocks: tuple[str, ...],
    texts: tuple[str, ...],
    secrets: bool,
    finish: bool,
    discard: bool,
    yes: bool,
) -> None:
    """
    Every commit that has something of it is written anew, with a mark in its place; nothing of it is kept. All objects
    and files are searched for it at the end. It cannot be undone. Without --yes nothing is done, and it exits with 1.

    Killed, it is finished by whatever command comes next on this machine. A store from elsewhere with a purge that
    waits is refused, until --finish or --discard says what is to become of that.
    """
    app = ctx.ensure_object(App)
    if finish or discard:
        if blocks or texts or secrets or (finish and discard):
            raise click.UsageError("--finish and --discard go with nothing but --yes", ctx)
        _settle(ctx, app, discard=discard, yes=yes)
        return
    if not (blocks or texts or secrets):
        raise click.UsageError("say what to erase: blocks, --text or --secrets", ctx)
    with app.store() as store:
        request = PurgeRequest(
            session=app.session_name(store) or (store.current_session() if blocks else ""),
            blocks=blocks,
            texts=texts,
            secrets=secrets,
        )
        files = files_of_sessions(app.projects(), Path.home(), app.env)
        with Progress("searching", format=lambda number: f"{number:,}") as progress:
            report = (erase if yes else survey)(store, request, files, progress.task)
    answer = _answer(report)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.prose(_lines(app.output, answer))
    if not answer.done:
        app.output.note("nothing was done: --yes does it")
        ctx.exit(1)


def _settle(ctx: click.Context, app: App, *, discard: bool, yes: bool) -> None:
    """Finishes or discards a pending purge with `yes`, and prints it."""
    path = app.store_path()
    waiting = purge_apply.look(path)
    if discard and yes:
        purge_apply.discard(path)
    elif yes:
        waiting = purge_apply.finish(path)
    answer = answers.PendingPurge(
        done="" if not yes else "discarded" if discard else "finished",
        sealed=waiting.sealed,
        begun=waiting.begun,
        pack=waiting.pack,
        refs=list(waiting.refs),
        gone=list(waiting.gone),
        journals=list(waiting.journals),
        files=list(waiting.files),
        checkouts=list(waiting.checkouts),
        remaining=list(waiting.remaining),
        problem=waiting.problem,
    )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.prose(_pending_lines(app.output, answer))
    if not yes:
        app.output.note("nothing was done: --yes does it")
        ctx.exit(1)


def _pending_lines(output: Output, answer: answers.PendingPurge) -> Iterator[str]:
    ours = "this machine" if answer.sealed else "nobody that this machine knows"
    stay = "" if answer.sealed else " (stays: delete it yourself)"
    yield from output.facts(
        [
            ("purge", answer.done or ("begun" if answer.begun else "waits")),
            ("decided by", Styled(ours, "green" if answer.sealed else "yellow")),
            *([("problem", answer.problem)] if answer.problem else []),
            *([("moves", _listed(answer.refs))] if answer.refs else []),
            *([("removes", _listed(answer.gone + answer.files))] if answer.gone + answer.files else []),
            *([("journals", _listed(answer.journals))] if answer.journals else []),
            *[("checkout", f"{folder}{stay}") for folder in answer.checkouts],
        ]
    )
    yield from _remaining(answer.remaining)


def _answer(report: Report) -> Purged:
    return Purged(
        done=report.done,
        kinds=report.kinds,
        bodies=report.bodies,
        commits=report.commits,
        items=[
            PurgedScope(session=seen.session, scope=seen.scope, blocks=list(seen.blocks), steps=list(seen.steps))
            for seen in report.seen
        ],
        remotes=[
            PurgedRemote(name=name, address=address, known=is_known) for name, address, is_known in report.remotes
        ],
        checkouts=list(report.checkouts),
        remaining=list(report.remaining),
        forms=list(report.forms),
        short=report.short,
        copies=[
            answers.PurgedCopy(kind=copy.kind, place=copy.place, state=copy.state, why=copy.why)
            for copy in report.copies
        ],
    )


def _lines(output: Output, answer: Purged) -> Iterator[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(answer.kinds.items()))
    verb = "erased" if answer.done else "would erase"
    everything = f"every object and file{' of the store' if answer.remaining else ''}: nothing of it is left"
    yield from output.facts(
        [
            (verb, Styled(kinds, "green" if answer.done else "yellow")),
            ("changed" if answer.done else "would change", f"{counted(answer.bodies, 'blob')}, "
             f"{counted(answer.commits, 'commit')}"),
            *([("searched", everything)] if answer.done else []),
            ("looked for", _forms(answer)),
            *[("checkout", folder) for folder in answer.checkouts],
        ]
    )  # fmt: skip
    if answer.items:
        yield ""
        yield from output.table_lines(_table(answer))
    yield ""
    if not answer.items:
        yield "No prompt had it."
    for remote in answer.remotes:
        had = "had some of it" if remote.known else "may have had it"
        push = f"git --git-dir=.ctxvc push --force {shlex.quote(remote.name)} SESSION/SCOPE"
        yield safe(f"{remote.name} {remote.address} {had}: `{push}` replaces each scope that is there")
    yield from _remaining(answer.remaining)
    yield from _copies(answer.copies)
    yield "Whoever saw one of these prompts had it, and so have other clones: if it is a key, replace it."


def _forms(answer: Purged) -> str:
    if answer.short:
        short = counted(answer.short, "text")
        return f"the text as it is, also in {_FORMS}; {short} of fewer than {SHORTEST} bytes only as JSON quotes it"
    return f"the text as it is, and in {_FORMS}"


def _remaining(folders: list[str]) -> Iterator[str]:
    for folder in folders[:_MOST]:
        yield safe(
            f"{folder} may still have it: it was a checkout of this store; if it is there, or was moved, delete it"
        )
    if len(folders) > _MOST:
        yield f"and {len(folders) - _MOST} more"


def _copies(copies: list[answers.PurgedCopy]) -> Iterator[str]:
    """The lines on copies outside the store. Files without any of it are only counted."""
    files = [copy for copy in copies if copy.place]
    for copy in files:
        if copy.state == "has":
            yield safe(f"{copy.place} still has it: ctxvc does not change transcripts")
        elif copy.state == "unknown":
            yield safe(f"{copy.place} may have it: {copy.why}")
    clean = sum(copy.state == "clean" for copy in files)
    if clean:
        yield f"{counted(clean, 'transcript')} of this project: nothing of it."
    yield "Exports are not tracked: look where you had them written."


def _table(answer: Purged) -> Table:
    return Table(
        columns=[
            Column("session", least=12),
            Column("scope", least=12),
            Column("in the prompts of steps", least=16),
            Column("blocks", least=12),
        ],
        rows=[[item.session, item.scope, _ranges(item.steps) or "-", _listed(item.blocks)] for item in answer.items],
    )


def _listed(blocks: list[str]) -> str:
    more = f" and {len(blocks) - _MOST} more" if len(blocks) > _MOST else ""
    return ", ".join(blocks[:_MOST]) + more


def _ranges(numbers: list[int]) -> str:
    """`3-7, 9`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, span)) for span in ranges)


class PurgedScope(Item, frozen=True, kw_only=True):
    """A scope that had something of it."""

    session: SessionName
    scope: ScopeName
    blocks: Annotated[list[str], described("blocks that change, as `B17`")]
    steps: Annotated[list[int], described("steps whose replies saw one of them in their prompt")]


class PurgedRemote(Item, frozen=True, kw_only=True):
    """A remote of the store."""

    name: str
    address: Annotated[str, described("its address, without a password")]
    known: Annotated[bool, described("whether it is known to have had some of it; it may have had it if not")]


class Purged(Answer, frozen=True, kw_only=True, tag="ctxvc.purge/1"):
    """`purge`: what is erased, or would be with `--yes`"""

    done: Annotated[bool, described("whether it was done, and searched for afterwards")]
    kinds: Annotated[dict[str, int], described("kind → how many different ones")]
    bodies: Annotated[int, described("bodies that change")]
    commits: Annotated[int, described("commits that are written anew")]
    items: list[PurgedScope]
    remotes: list[PurgedRemote]
    checkouts: Annotated[list[str], described("folders of checkouts that go; `checkout` makes them again")]
    remaining: Annotated[
        list[str], described("folders that may still have it: checkouts that were moved, or that are not empty")
    ]
    forms: Annotated[list[str], described("encodings that were looked for besides the text as it is")]
    short: Annotated[int, described("texts that are too short to look for in other encodings")]
    copies: list[PurgedCopy]
