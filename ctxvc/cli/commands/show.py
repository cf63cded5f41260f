"""`show`: one block, group or commit, whole."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import click
from click.core import ParameterSource

from ctxvc.cli.answers.commits import Change, LogItem, changes, log_item
from ctxvc.cli.answers.shared import Answer, ScopeName, SessionName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.output import (
    STATE_COLORS,
    Cell,
    Column,
    Guess,
    Output,
    Size,
    Styled,
    Table,
    Timestamp,
    counted,
    safe,
    words_of,
)
from ctxvc.cli.terminal.table import cut
from ctxvc.core import display
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.errors import BadInput, NotFound, Refused
from ctxvc.inspection.captions import label_of
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.read import revision
from ctxvc.store.read.address import Address, Resolved
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

if TYPE_CHECKING:
    from ctxvc.sharing.indexes import Newest


@command("show", "ctxvc show B17")
@revision_argument("address", "[REV|ID]")
@click.option("--raw", is_flag=True, help="Write a block's exact bytes, and nothing else.")
@click.option("--remote", "remote", metavar="NAME", is_flag=False, flag_value="", default=None,
              help="Show SESSION, SESSION/SCOPE or SESSION/SCOPE:B17 of a remote, without pulling it.")  # fmt: skip
@json_option
@click.pass_context
def show(ctx: click.Context, address: str, raw: bool, remote: str | None) -> None:
    """ID is `B17`, `G3`, or a handle such as `B17@3fa9c1`; a block elsewhere is `SCOPE:B17` or `SESSION/SCOPE:B17`, and
    `B18-1.png` is an image in a result. The id of a call shows its result, unless it is also a revision.

    With --remote, last on the line, only what is shown is fetched.
    """
    app = ctx.ensure_object(App)
    if remote is not None:
        if ctx.get_parameter_source("address") is ParameterSource.DEFAULT:
            raise click.UsageError("name a session: `ctxvc show SESSION --remote`", ctx)
        _show_remote(app, remote, address, raw=raw)
        return
    with app.reading() as stored:
        target = _target(app, stored, address)
        if isinstance(target, Snapshot):
            if raw:
                raise Refused(
                    f"{address} is not a block: only blocks have bytes", hint="`ctxvc prompt REV` shows a prompt"
                )
            _show_commit(app.output, stored.store, target)
        elif raw:
            app.output.raw(_bytes(target))
        elif target.group:
            _show_group(app.output, target, target.group)
        else:
            _show_block(app.output, Meter(stored.store, target.snapshot.ledger.meta.tokenizer), target)


def _target(app: App, stored: StoredSession, name: str) -> Resolved | Snapshot:
    """The target of an address, a revision or a call's id; a call with a revision's name cannot hide the revision.

    Raises: NotFound, BadInput.
    """
    if address := addresses.parse(name):
        return addresses.find(stored, address)
    try:
        return app.revision(stored, name)
    except (NotFound, BadInput) as error:
        if resolved := addresses.of_object(stored, name) or addresses.of_call(stored, name):
            return resolved
        if guess := addresses.guess(stored, name):
            error.advice = f"did you mean {guess}?"
        raise


def _bytes(resolved: Resolved) -> bytes:
    """The exact bytes of a block, or of the file beside it. Raises: Refused for a group; Damaged."""
    if resolved.row is None:
        raise Refused("a group has no bytes of its own; its members do", hint="leave out --raw to list them")
    bodies = resolved.snapshot.bodies
    return bodies.file(resolved.row, resolved.file) if resolved.file else bodies.body(resolved.row)


def _show_block(output: Output, meter: Meter, resolved: Resolved) -> None:
    """Prints a block with what the ledger knows of it."""
    assert resolved.row is not None
    cost = meter.costs(resolved.snapshot, [resolved.row])[resolved.row.id]
    body = _bytes(resolved)
    text = words_of(body, resolved.file.rpartition(".")[2] or resolved.row.ext)
    if output.json:
        output.value(
            struct_of(
                ShownBlock,
                resolved.snapshot,
                handle=resolved.row.handle,
                row=resolved.row,
                tokens=cost.body,
                shown=cost.shown,
                text=None if text is None else display.decode(body),
                base64=base64.b64encode(body).decode() if text is None else None,
            )
        )
        return
    if text is None:
        text = f"({display.human_bytes(len(body))} that are not text; --raw writes them)"
    output.lines([*output.facts(_block_facts(resolved, cost.body, cost.shown)), "", *safe(text).split("\n")])


def _block_facts(resolved: Resolved, tokens: int, in_prompt: int) -> list[tuple[str, Cell]]:
    row = resolved.row
    assert row is not None
    return [
        ("block", row.handle),
        ("in", f"{resolved.snapshot.session}/{resolved.snapshot.scope}, step {row.step}, turn {row.turn}"),
        ("type", f"{row.kind}, role {row.role}, origin {row.origin}"),
        ("tool", f"{row.tool}  {row.call}" if row.tool or row.call else ""),
        ("state", row.state + f" in {row.group}" * bool(row.group) + f" by {row.removed_by}" * bool(row.removed_by)),
        ("parent", row.parent),
        ("tokens", Guess(tokens)),
        ("in the prompt", None if in_prompt == tokens else Guess(in_prompt)),
        ("bytes", row.bytes),
        ("shown", f"{row.id}-{resolved.file}" if resolved.file else ""),
        ("files", ", ".join(f"{row.id}-{suffix}" for suffix in row.files)),
        ("error", "yes" if row.error else ""),
        ("stub", row.stub),
    ]


def _show_group(output: Output, resolved: Resolved, group: Group) -> None:
    ledger = resolved.snapshot.ledger
    rows = [row for block in _blocks(ledger, group) if (row := ledger.get(block))]
    size = sum(row.bytes for row in rows)
    if output.json:
        output.value(
            struct_of(
                ShownGroup,
                group,
                resolved.snapshot,
                inside=group.group,
                blocks=len(rows),
                bytes=size,
            )
        )
        return
    facts: list[tuple[str, Cell]] = [
        ("group", group.id),
        ("in", f"{resolved.snapshot.session}/{resolved.snapshot.scope}"),
        ("level", group.level),
        ("inside", group.group),
        ("blocks", len(rows)),
        ("size", Size(size)),
        ("removed by", group.removed_by),
        ("summary", ", ".join(group.summary)),
        ("label", group.label),
        ("stub", group.stub),
    ]
    lines = [*output.facts(facts), ""]
    members = (f"{member}  {_label(resolved.snapshot, member)}" for member in group.members)
    output.lines([*lines, *(cut(member, output.width) if output.terminal else member for member in members)])


def _blocks(ledger: Ledger, group: Group) -> Iterator[str]:
    """The blocks in a group and in the groups in it."""
    for member in group.members:
        inner = ledger.groups.get(member)
        if inner:
            yield from _blocks(ledger, inner)
        else:
            yield member


def _label(snapshot: Snapshot, member: str) -> str:
    inner = snapshot.ledger.groups.get(member)
    row = None if inner else snapshot.ledger.get(member)
    return safe(inner.label if inner else label_of(row, snapshot) if row else "")


def _show_commit(output: Output, store: Store, snapshot: Snapshot) -> None:
    item = log_item(store, revision.entry(store, snapshot.commit))
    after = revision.at(store, snapshot.commit)
    before = revision.at(store, item.parents[0]) if item.parents else None
    changed = changes(store, before, after) if before else []
    if output.json:
        output.value(struct_of(ShownCommit, snapshot, commit=item, items=changed))
        return
    facts: list[tuple[str, Cell]] = [
        ("commit", item.commit),
        ("in", f"{snapshot.session}/{snapshot.scope}, step {item.step}"),
        ("time", Timestamp(item.time)),
        ("actor", item.actor),
        *(("parent", parent) for parent in item.parents),
        ("subject", item.subject),
    ]
    body = ["", *safe(item.body).split("\n")] if item.body else []
    trailers = list(output.facts(list(item.trailers.items())))
    output.lines([*output.facts(facts), *body, "", *trailers, "", *output.table_lines(table_of(Change, changed))])
    if snapshot.waiting:
        output.note(f"{counted(snapshot.waiting, 'record')} of an open step not committed yet")


def _show_remote(app: App, name: str, text: str, *, raw: bool) -> None:
    """Prints what `text` names on a remote: a block, or the blocks of a group, a scope or a session.

    Raises: NotFound, BadInput; as `browse.snapshot`.
    """
    from ctxvc.cli.remotes import remote_sessions
    from ctxvc.sharing import indexes, remotes

    address = addresses.parse(text)
    with app.store() as store:
        remote = remotes.find(store, name)
        theirs = remote_sessions.fetched(app, remote)
        session, scope = _place(app, text, address, indexes.newest(theirs))
        snapshot = indexes.snapshot(store, remote, theirs, session, scope, ask=app.may_ask)
    resolved = addresses.in_snapshot(snapshot, address) if address else None
    if resolved and resolved.row:
        if raw:
            app.output.raw(_bytes(resolved))
        else:
            _show_block(app.output, Meter(None, snapshot.ledger.meta.tokenizer), resolved)
    elif raw:
        raise Refused(f"{text} is not a block: only blocks have bytes", hint="leave out --raw to list its blocks")
    else:
        members = frozenset(_blocks(snapshot.ledger, resolved.group)) if resolved and resolved.group else None
        _list_blocks(
            app, remote.name, snapshot, [row for row in snapshot.ledger.rows() if not members or row.id in members]
        )


def _place(app: App, text: str, address: Address | None, sessions: Mapping[str, Newest]) -> tuple[str, str]:
    """The session and scope that are meant; the scope is empty for the session's current one. Raises: BadInput."""
    if address is None:
        session, _, scope = text.partition("/")
        return session, scope
    if address.session:
        return address.session, address.scope
    if address.scope in sessions:
        return address.scope, ""
    if not app.session:
        raise BadInput(
            f"{text} names no session",
            hint=f"`ctxvc show SESSION:{address.id} --remote`; `ctxvc sessions --remote` lists the sessions",
        )
    return app.session, address.scope


def _list_blocks(app: App, remote: str, snapshot: Snapshot, rows: list[Row]) -> None:
    if app.output.json:
        app.output.value(struct_of(RemoteScope, snapshot, remote=remote, items=rows))
        return
    cells: list[list[Cell]] = [
        [row.id, row.kind, Size(row.bytes), Styled(row.state, STATE_COLORS.get(row.state, "")), row.step, row.label]
        for row in rows
    ]
    columns = [
        Column("ID"), Column("type"), Column("size", right=True), Column("status", rank=1),
        Column("step", right=True, rank=2), Column("label", least=24),
    ]  # fmt: skip
    app.output.table(Table(columns=columns, rows=cells))
    where = f"{snapshot.session}/{snapshot.scope}"
    app.output.note(f"`ctxvc show {where}:B1 --remote` shows one; `ctxvc pull --only {snapshot.session}` takes all in")


class ShownBlock(Answer, frozen=True, kw_only=True, tag="ctxvc.block/1"):
    """`show` of a block"""

    session: SessionName
    scope: ScopeName
    handle: Annotated[str, described("address with the checksum's first digits, `B17@3fa9c1`")]
    row: Annotated[Row, described("the block's ledger row, as in docs/format.md, without defaults")]
    tokens: Annotated[int, described("of the body")]
    shown: Annotated[int, described("tokens of its representation in the prompt")]
    text: Annotated[str | None, described("the body, if it is text")]
    base64: Annotated[str | None, described("the body, if it is not text")]


class ShownGroup(Answer, frozen=True, kw_only=True, tag="ctxvc.group/1"):
    """`show` of a group"""

    session: SessionName
    scope: ScopeName
    id: str
    level: int
    members: list[str]
    inside: Annotated[str, described("its group")]
    summary: Annotated[list[str], described("the blocks that replace it")]
    stub: str
    label: str
    removed_by: str
    blocks: Annotated[int, described("number of blocks in it, at any depth")]
    bytes: int


class ShownCommit(Answer, frozen=True, kw_only=True, tag="ctxvc.commit/1"):
    """`show` of a commit. `items` is what it changed."""

    session: SessionName
    scope: ScopeName
    commit: LogItem
    items: list[Change]


class RemoteScope(Answer, frozen=True, kw_only=True, tag="ctxvc.remote_scope/1"):
    """`show --remote` of a session, a scope or a group"""

    remote: str
    session: SessionName
    scope: ScopeName
    commit: Annotated[str, described("the scope's tip there")]
    items: Annotated[list[Row], described("its blocks' ledger rows, as in docs/format.md, without defaults")]
