"""`purge`: erases content from the whole store."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, Item, ScopeName, SessionName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import or_text
from ctxvc.cli.output import Column, Output, Styled, counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.secrets.encodings import SHORTEST
from ctxvc.errors import CtxvcError
from ctxvc.recording.files import files_of_sessions
from ctxvc.sharing import remotes
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge.purge import PurgeRequest, survey
from ctxvc.store.purge.purge import purge as erase
from ctxvc.store.purge.scrub import KIND
from ctxvc.store.purge.search import Report
from ctxvc.store.store import Store

_FORMS = "JSON escapes, URL encoding, hexadecimal and Base64"

#: The most blocks of a scope that are named.
_MOST = 12


@command("purge", "ctxvc purge B17 --yes")
@click.argument("blocks", metavar="[BLOCKS]...", nargs=-1)
@click.option("--text", "texts", metavar="TEXT", multiple=True, callback=or_text,
              help="This text, wherever it occurs; - reads stdin.")  # fmt: skip
@click.option("--secrets", is_flag=True, help="Everything that looks like a secret (ctxvc help secrets).")
@click.option("--finish", is_flag=True, help="Finish an interrupted purge, even one decided on another machine.")
@click.option("--discard", is_flag=True, help="Drop such a purge: nothing more is erased.")
@click.option("--yes", is_flag=True, help="Erase. Without it, show what would be erased.")
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
    Every commit that contains any of it is rewritten with a mark in its place; no copy is kept. At the end all objects
    and files are searched for it. This cannot be undone. Without --yes nothing is done, and the exit code is 1.

    If it is killed, the next command on this machine finishes it. A store from elsewhere with an unfinished purge is
    refused until you decide with --finish or --discard.
    """
    app = ctx.ensure_object(App)
    if finish or discard:
        if blocks or texts or secrets or (finish and discard):
            raise click.UsageError("--finish and --discard can be combined only with --yes", ctx)
        _settle(ctx, app, discard=discard, yes=yes)
        return
    if not (blocks or texts or secrets):
        raise click.UsageError("give what to erase: blocks, --text or --secrets", ctx)
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
        shared = _shared(store)
    answer = _answer(report)
    app.output.answer(answer, _lines(app.output, answer, shared))
    if not answer.done:
        app.output.note("nothing was done; add --yes to do it")
        ctx.exit(1)


def _settle(ctx: click.Context, app: App, *, discard: bool, yes: bool) -> None:
    """Finishes or discards a pending purge with `yes`, and prints it."""
    path = app.store_path()
    waiting = purge_apply.look(path)
    if discard and yes:
        purge_apply.discard(path)
    elif yes:
        waiting = purge_apply.finish(path)
    answer = struct_of(PendingPurge, waiting, done="" if not yes else "discarded" if discard else "finished")
    app.output.answer(answer, _pending_lines(app.output, answer))
    if not yes:
        app.output.note("nothing was done; add --yes to do it")
        ctx.exit(1)


def _pending_lines(output: Output, answer: PendingPurge) -> Iterator[str]:
    ours = "this machine" if answer.sealed else "unknown to this machine"
    stay = "" if answer.sealed else " (not deleted: delete it yourself)"
    yield from output.facts(
        [
            ("purge", answer.done or ("started" if answer.begun else "pending")),
            ("decided by", Styled(ours, "green" if answer.sealed else "yellow")),
            *([("problem", answer.problem)] if answer.problem else []),
            *([("moves", _listed(answer.refs))] if answer.refs else []),
            *([("removes", _listed(answer.gone + answer.files))] if answer.gone + answer.files else []),
            *([("journals", _listed(answer.journals))] if answer.journals else []),
            *[("checkout", f"{folder}{stay}") for folder in answer.checkouts],
        ]
    )
    yield from _remaining(answer.remaining)


def _shared(store: Store) -> frozenset[str]:
    """The remotes that `ctxvc push` is for; none if their file cannot be read."""
    try:
        return frozenset(remote.name for remote in remotes.every(store))
    except CtxvcError:
        return frozenset()


def _answer(report: Report) -> Purged:
    return struct_of(
        Purged,
        report,
        items=[struct_of(PurgedScope, seen) for seen in report.seen],
        remotes=[
            PurgedRemote(name=name, address=address, known=is_known) for name, address, is_known in report.remotes
        ],
        copies=[struct_of(PurgedCopy, copy) for copy in report.copies],
    )


def _lines(output: Output, answer: Purged, shared: Collection[str]) -> Iterator[str]:
    kinds = ", ".join(
        counted(count, "text") if kind == KIND else f"{count} {kind}" for kind, count in sorted(answer.kinds.items())
    )
    verb = "erased" if answer.done else "would erase"
    forms = f"the exact text, and in {_FORMS}"
    if answer.short:
        short = counted(answer.short, "text")
        forms += f"; {short} of fewer than {SHORTEST} bytes only exactly and JSON-escaped"
    everything = f"every object and file{' of the store' if answer.remaining else ''}: none of it is left"
    yield from output.facts(
        [
            (verb, Styled(kinds, "green" if answer.done else "yellow")),
            ("changed" if answer.done else "would change", f"{counted(answer.bodies, 'blob')}, "
             f"{counted(answer.commits, 'commit')}"),
            *([("searched", everything)] if answer.done else []),
            ("searched for", forms),
            *[("checkout", folder) for folder in answer.checkouts],
        ]
    )  # fmt: skip
    if answer.items:
        yield ""
        yield from output.table_lines(table_of(PurgedScope, answer.items))
    yield ""
    if not answer.items:
        yield "No prompt contained it."
    for remote in answer.remotes:
        had = "had some of it" if remote.known else "may have had it"
        if remote.name in shared:
            push = "ctxvc push --after-purge" + (f" {remote.name}" if len(shared) > 1 else "")
            yield safe(f"{remote.name} {remote.address} {had}: `{push}` replaces it, and tells the other clones")
            continue
        push = f"git --git-dir=.ctxvc push --force {shlex.quote(remote.name)} SESSION/SCOPE"
        yield safe(f"{remote.name} {remote.address} {had}: `{push}` replaces each scope there")
    yield from _remaining(answer.remaining)
    yield from _copies(answer.copies)
    yield (
        "Anyone who saw one of these prompts has seen it, and other clones still have it: if it is a key, replace it."
    )


def _remaining(folders: list[str]) -> Iterator[str]:
    for folder in folders[:_MOST]:
        yield safe(f"{folder} may still have it, a checkout or a table of this store: delete it there")
    if len(folders) > _MOST:
        yield f"and {len(folders) - _MOST} more"


def _copies(copies: list[PurgedCopy]) -> Iterator[str]:
    """The lines on copies outside the store. Files without any of it are only counted."""
    files = [copy for copy in copies if copy.place]
    for copy in files:
        if copy.state == "has":
            yield safe(f"{copy.place} still has it: ctxvc does not change transcripts")
        elif copy.state == "unknown":
            yield safe(f"{copy.place} may have it: {copy.why}")
    clean = sum(copy.state == "clean" for copy in files)
    if clean:
        yield f"{counted(clean, 'transcript')} of this project: none of it."
    yield "Exports are not tracked: check wherever you wrote them."


def _listed(blocks: list[str]) -> str:
    more = f" and {len(blocks) - _MOST} more" if len(blocks) > _MOST else ""
    return ", ".join(blocks[:_MOST]) + more


def _ranges(numbers: list[int]) -> str:
    """`3-7, 9`; a dash for none."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, span)) for span in ranges) or "-"


class PurgedScope(Item, frozen=True, kw_only=True):
    """A scope that had some of it."""

    TABLE = "session scope steps blocks"

    session: Annotated[SessionName, Column("session", least=12)]
    scope: Annotated[ScopeName, Column("scope", least=12)]
    blocks: Annotated[
        list[str], described("blocks that change, such as `B17`"), Column("blocks", least=12, cell=_listed)
    ]
    steps: Annotated[
        list[int],
        described("steps whose prompts contained one of them"),
        Column("in the prompts of steps", least=16, cell=_ranges),
    ]


class PurgedRemote(Item, frozen=True, kw_only=True):
    """A remote of the store."""

    name: str
    address: Annotated[str, described("its address, without a password")]
    known: Annotated[bool, described("whether it is known to have had some of it; if false, it may have had it")]


class PurgedCopy(Item, frozen=True, kw_only=True):
    """A place outside the store; it is read, never changed."""

    kind: Annotated[str, described("`transcript`, or `exports`, whose places are not recorded")]
    place: Annotated[str, described("the file")] = ""
    state: Annotated[str, described("`has` some of it, `clean`, or `unknown`")]
    why: Annotated[str, described("why it is unknown")] = ""


class PendingPurge(Answer, frozen=True, kw_only=True, tag="ctxvc.purge_pending/1"):
    """`purge --finish`, `purge --discard`: a purge that is decided but unfinished"""

    done: Annotated[str, described("`finished` or `discarded`; empty if nothing was done")]
    sealed: Annotated[bool, described("whether this machine decided it; if so, it is finished automatically")]
    begun: Annotated[bool, described("whether some of it has been done")]
    pack: Annotated[str, described("the pack with all remaining objects")]
    refs: Annotated[list[str], described("refs that are moved")]
    gone: Annotated[list[str], described("refs that are deleted")]
    journals: Annotated[list[str], described("sessions whose journals are replaced")]
    files: Annotated[list[str], described("files that are deleted, as paths in the store")]
    checkouts: Annotated[list[str], described("folders that it names; deleted only if it is sealed")]
    remaining: Annotated[list[str], described("folders that may still have it after it is finished")]
    problem: Annotated[str, described("why it can only be discarded; empty if it can be finished")]


class Purged(Answer, frozen=True, kw_only=True, tag="ctxvc.purge/1"):
    """`purge`: what is erased, or would be with `--yes`"""

    done: Annotated[bool, described("whether it was done and verified by a search")]
    kinds: Annotated[dict[str, int], described("kind → number of distinct ones")]
    bodies: Annotated[int, described("bodies that change")]
    commits: Annotated[int, described("commits that are rewritten")]
    items: list[PurgedScope]
    remotes: list[PurgedRemote]
    checkouts: Annotated[list[str], described("checkout folders that are deleted; `checkout` creates them again")]
    remaining: Annotated[
        list[str], described("folders that may still have it: checkouts that were moved or are not empty")
    ]
    forms: Annotated[list[str], described("encodings searched for in addition to the exact text")]
    short: Annotated[int, described("number of texts too short to search for in other encodings")]
    copies: list[PurgedCopy]
