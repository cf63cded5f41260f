"""`recover`: reads blocks that left the prompt."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from typing import Annotated

import click

from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import (
    Answer,
    BlockId,
    Effect,
    Item,
    ScopeName,
    SessionName,
    TokenCount,
    described,
    struct_of,
)
from ctxvc.cli.app import App, command, timeout_option
from ctxvc.cli.checkout_folder import check_out
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import safe
from ctxvc.cli.verb import Actor, acting_options
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import recover as recovery
from ctxvc.errors import Refused, render
from ctxvc.phrases import COMMAND_LINE
from ctxvc.session.session import Session
from ctxvc.store import checkout as checkouts
from ctxvc.store import format as fmt
from ctxvc.store.read import address as addresses
from ctxvc.store.trust import contained


@command("recover", "ctxvc recover B17 --lines 41:80")
@click.argument("address", metavar="ID")
@click.option("--lines", metavar="A:B", default="", help="Only these lines, counted from 1.")
@click.option("--chars", metavar="A:B", default="", help="Only these characters, counted from 1.")
@click.option("--grep", "pattern", metavar="RE", default=None, help="Only lines that match RE.")
@click.option("-F", "fixed", is_flag=True, help="Treat RE as a fixed string.")
@click.option("--path", metavar="PATH", default="", help="In JSON, only the value at this path, as in items[0].name.")
@timeout_option
@click.option("--max-tokens", "most", metavar="N", type=TokenAmount(), default=None, help="At most N tokens.")
@click.option("--all", "everything", is_flag=True, help="For a group, the bytes of all its blocks.")
@click.option("--file", "as_file", is_flag=True, help="Write the exact file to its path in the checkout.")
@click.option("--add", is_flag=True, help="Also append it to the conversation, as text from a program.")
@acting_options
@click.pass_obj
def recover(
    app: App,
    address: str,
    lines: str,
    chars: str,
    pattern: str | None,
    fixed: bool,
    path: str,
    timeout: float,
    most: int | None,
    everything: bool,
    as_file: bool,
    add: bool,
    actor: Actor,
) -> None:
    """ID is `B17`, a handle, a group, a block elsewhere such as `SESSION/SCOPE:B17`, or the id of a call. Output that
    the model saw truncated is read in full (`show` has what it saw). A group is listed; --all gives all its bytes. Each
    reading is counted in `status`. For an agent, and with --add, the amount is limited to the room in the prompt.
    """
    if pattern is not None and fixed:
        pattern = re.escape(pattern)
    bounded = actor == "agent" or add
    part = bool(lines or chars or pattern is not None or path or most)
    if (as_file or everything) and (part or bounded):
        raise click.UsageError(
            "--file and --all give whole blocks to a person: leave out --add and options that select a part"
        )
    with app.acting(actor) as session:
        if as_file:
            _as_file(app, session, address)
        elif bounded or part or (_is_group(session, address) and not everything):
            recovered = session.recover(
                address,
                lines=lines,
                chars=chars,
                grep=pattern,
                path=path,
                most=most or 0,
                bounded=bounded,
                seconds=timeout,
                added=_appended if add else None,
            )
            _print_part(app, session, address, recovered, hosts.effect_of_addition(app, session) if add else None)
        else:
            _print_bytes(app, session, address, session.recover_bytes(address))


def _appended(recovered: recovery.Recovered) -> str:
    """The text that --add puts into the conversation."""
    return f"{recovered.heading(COMMAND_LINE)}\n{recovered.content}"


def _as_file(app: App, session: Session, address: str) -> None:
    """Writes the exact bytes as files into the checkout of their scope, which is created or moved forward."""
    bodies = session.recover_bytes(address)
    session.stored.flush()
    resolved = addresses.target(session.stored, address)
    if resolved is None:
        raise _uncommitted(address)
    store, snapshot = session.store, resolved.snapshot
    folder = checkouts.place(store, snapshot.session, snapshot.scope)
    checked_out = check_out(store, snapshot.session, snapshot.scope, folder)
    ledger = store.reader.ledger(checked_out.commit)
    paths = []
    for row, body in bodies:
        block, _, suffix = row.id.partition("-")
        committed = ledger.get(block)
        if committed is None:
            raise _uncommitted(block)
        name = fmt.file_path(committed, suffix) if suffix else fmt.body_path(committed)
        try:
            os.close(contained.opened(folder, name, os.O_RDONLY))
        except FileNotFoundError:  # the reading is not committed yet, or not in the block's scope
            contained.make_folder(folder, name.rpartition("/")[0])
            contained.replace(folder, name, body)
        paths.append(str(folder / name))
    _print_bytes(app, session, address, bodies, paths)


def _uncommitted(what: str) -> Refused:
    return Refused(
        f"{what} is not committed yet: its step is still open",
        hint="leave out --file and redirect the output",
    )


def _print_bytes(
    app: App, session: Session, address: str, bodies: Sequence[tuple[Row, bytes]], paths: Sequence[str] = ()
) -> None:
    """Prints the exact bytes, or their paths. Only a terminal gets them as safe text."""
    if app.output.json:
        items = [
            struct_of(
                RecoveredBody,
                row,
                bytes=len(body),
                base64="" if paths else base64.b64encode(body).decode("ascii"),
                file=paths[at] if paths else "",
            )
            for at, (row, body) in enumerate(bodies)
        ]
        app.output.value(RecoveredBytes(session=session.name, scope=session.scope, address=address, items=items))
    elif paths:
        app.output.lines(map(safe, paths))
    elif app.output.terminal:
        app.output.lines(line for row, body in bodies for line in safe(recovery.readable(row, body)).split("\n"))
    else:
        app.output.raw(b"".join(body for _, body in bodies))


def _is_group(session: Session, text: str) -> bool:
    session.stored.refresh()
    resolved = addresses.target(session.stored, text)
    return resolved is not None and resolved.group is not None


def _print_part(app: App, session: Session, address: str, recovered: recovery.Recovered, effect: Effect | None) -> None:
    if app.output.json:
        app.output.value(
            struct_of(
                RecoveredPart,
                recovered,
                session=session.name,
                scope=session.scope,
                address=address,
                header=recovered.heading(COMMAND_LINE),
                next=render(recovered.call or "", COMMAND_LINE),
                effect=effect,
            )
        )
        return
    header = app.output.style(safe(recovered.heading(COMMAND_LINE)), bold=True)
    app.output.lines([header, *safe(recovered.content.removesuffix("\n")).split("\n")])
    if effect and (advice := hosts.advice(effect)):
        app.output.note(advice)


class RecoveredPart(Answer, frozen=True, kw_only=True, tag="ctxvc.recover/1"):
    """`recover` of a part, or of a group's list"""

    session: SessionName
    scope: ScopeName
    address: str
    header: Annotated[str, described("a description of the content, and the call for the next part")]
    content: str
    unit: Annotated[str, described("the unit: `lines`, `characters` or `matches`")]
    first: int
    last: int
    total: int
    tokens: TokenCount
    complete: Annotated[bool, described("whether everything requested is included")]
    next: Annotated[str, described("the call for the next part; empty if there is none")]
    effect: Annotated[
        Effect | None, described("with --add, when the model is sent it, as of `archive`; otherwise null")
    ] = None


class RecoveredBody(Item, frozen=True, kw_only=True):
    """A block's exact bytes."""

    id: BlockId
    handle: str
    bytes: int
    sha256: str
    base64: Annotated[str, described("the bytes; empty if they are in a file")]
    file: Annotated[str, described("with --file, the path; otherwise empty")]


class RecoveredBytes(Answer, frozen=True, kw_only=True, tag="ctxvc.recover_bytes/1"):
    """`recover`, `recover --all`, `recover --file`"""

    session: SessionName
    scope: ScopeName
    address: str
    items: list[RecoveredBody]
