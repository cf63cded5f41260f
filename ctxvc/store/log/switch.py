"""Changing the scope: the changes that `scope` and `goto` make to both scopes, as one record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from ctxvc.core import scope as scoping
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Part, block_number
from ctxvc.core.ledger.ledger import Counters, Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Body, Numbering
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import BadInput, NotFound, Phrase, Refused
from ctxvc.store.log.journal import SWITCH, Change
from ctxvc.store.log.state import SessionState
from ctxvc.store.log.transaction import Transaction


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A requested change of scope. With `new`, a scope is created; `origin` and `with_messages` are for that case."""

    name: str
    text: str
    actor: str
    new: bool = False
    origin: str = ""
    with_messages: bool = False


#: In the trailer of a request: what a new scope takes along.
_ALL = "with-messages"
_FROM = "from="


def trailer(switch: Switch) -> str:
    """The value of the trailer that requests a switch."""
    how = [_ALL] if switch.with_messages else [f"{_FROM}{switch.origin}"] if switch.origin else []
    return " ".join(["scope" if switch.new else "goto", switch.name, *how])


def switch_asked(change: Change) -> Switch | None:
    """The switch that a change of an open step requests; None if it takes the request back or is invalid."""
    match change.trailers.get(SWITCH, "").split():
        case ["goto", name]:
            return Switch(name=name, text=change.text, actor=change.actor)
        case ["scope", name, *how]:
            origin = next((word.removeprefix(_FROM) for word in how if word.startswith(_FROM)), "")
            return Switch(
                name=name, text=change.text, actor=change.actor, new=True, origin=origin, with_messages=_ALL in how
            )
    return None


def check(state: SessionState, scope: str, switch: Switch) -> None:
    """Checks that the switch can be made from `scope`. Raises: BadInput, BadName, NotFound, Refused."""
    if not switch.text.strip():
        raise BadInput("a change of scope needs a note on its purpose", hint=Phrase("give-text"))
    if not switch.new:
        state.scope(switch.name)
        if switch.name == scope:
            raise Refused(f"already in scope {scope!r}", hint=Phrase("other-scopes"))
        return
    name_rules.check(switch.name, "scope", set(state.scopes))
    if switch.name in state.scopes:
        raise Refused(f"scope {switch.name!r} already exists", hint=Phrase("goto-scope", scope=switch.name))
    if switch.origin and state.store.reader.meta(switch.origin).session != state.name:
        raise NotFound(f"commit {switch.origin[:12]} is not in session {state.name!r}", hint=Phrase("own-commits"))


def make_switch(transaction: Transaction, scope: str, switch: Switch) -> None:
    """Adds to `transaction` the changes that move a writer from `scope`, without open calls, to the requested one."""
    transaction.finish(scope)
    if switch.new:
        _open(transaction, scope, switch)
    else:
        _go(transaction, scope, switch)


def arrive(transaction: Transaction, scope: str, from_scope: str, text: str, *, of: str) -> None:
    """Adds a commit in `scope`, on top of both: the note of what a helper brings back from `from_scope`."""
    transaction.finish(from_scope)
    note = scoping.arrival(from_scope, text)
    part = scoping.note(note, "agent", left=from_scope, of=of)
    first, whole = scoping.subject_and_text(note)
    transaction.verb(
        scope,
        op="note",
        actor="agent",
        subject=f"note: {first}",
        text=whole,
        parts=[part],
        merge=transaction.place(from_scope),
    )


def branch(transaction: Transaction, scope: str, switch: Switch, commit: str) -> None:
    """Adds a scope on top of a commit of `scope`, which itself stays unchanged. No session switches to it."""
    ledger = transaction.state.store.reader.ledger(commit)
    counters, inherit = scoping.first_counters(ledger), scoping.instructions(ledger)
    _begin(transaction, switch, commit, ledger, scope, counters=counters, inherit=inherit)


def begin_empty(transaction: Transaction, scope: str, name: str, commit: str) -> None:
    """Adds a scope on top of a commit of `scope` without its contents: no rows, and no `request/`."""
    ledger = transaction.state.store.reader.ledger(commit)
    transaction.begin(
        name,
        commit,
        ledger,
        actor="host",
        counters=scoping.first_counters(ledger),
        inherit=(),
        meta=_meta(ledger.meta, name, scope),
        without=("request",),
    )


def fork(transaction: Transaction, switch: Switch, source: str) -> None:
    """Adds a scope that continues from the commit `switch.origin` unchanged, for a host's session `source`."""
    ledger = transaction.state.store.reader.ledger(switch.origin)
    meta: dict[str, object] = {}
    if ledger.meta.source:
        meta["source"] = msgspec.structs.replace(ledger.meta.source, id=source, offset=0, units=0, finals=())
    _begin(transaction, switch, switch.origin, ledger, ledger.meta.scope, counters=ledger.meta.counters, meta=meta)


def take_over(
    transaction: Transaction, switch: Switch, ledger: Ledger, bodies: Bodies, files: tuple[tuple[str, bytes], ...]
) -> None:
    """Adds a scope on top of the commit `switch.origin` with this ledger and other files in `request/`.

    Rows of the ledger that are not in that commit may be pending in its scope's journal, which stays unchanged.
    """
    before = transaction.state.store.reader.ledger(switch.origin)
    rows = [row for row in ledger.rows() if row != before.get(row.id)]
    removed = [msgspec.structs.replace(group, members=()) for group in before.groups.values()]
    fields = {name: getattr(ledger.meta, name) for name in Meta.__struct_fields__ if name != "counters"}
    _begin(
        transaction,
        switch,
        switch.origin,
        before,
        before.meta.scope,
        counters=ledger.meta.counters,
        meta={name: value for name, value in fields.items() if value != getattr(before.meta, name)},
        rows=tuple(rows),
        bodies=tuple(chain.from_iterable(_bodies(row, bodies) for row in rows if before.get(row.id) is None)),
        groups=tuple(
            group
            for group in {**{group.id: group for group in removed}, **ledger.groups}.values()
            if group != before.groups.get(group.id)
        ),
        without=("request",),
        files=files,
    )


def _bodies(row: Row, bodies: Bodies) -> Iterator[Body]:
    yield row.id, "", bodies.body(row)
    yield from ((row.id, suffix, bodies.file(row, suffix)) for suffix in row.files)


def _open(transaction: Transaction, scope: str, switch: Switch) -> None:
    """Ends the scope that is left with a note on why; the new scope begins on top of it, or of `origin`."""
    note = scoping.departure(switch.name, switch.text)
    part = scoping.note(note, switch.actor, to=switch.name)
    first, text = scoping.subject_and_text(note)
    (block,) = transaction.verb(scope, op="note", actor=switch.actor, subject=f"note: {first}", text=text, parts=[part])
    if switch.origin:
        _rewind(transaction, switch, part, block_number(block))
        return
    ledger = transaction.ledger(scope)
    counters = ledger.meta.counters if switch.with_messages else scoping.first_counters(ledger)
    inherit = None if switch.with_messages else scoping.inherited(ledger)
    _begin(transaction, switch, transaction.place(scope), ledger, scope, counters=counters, inherit=inherit)


def _rewind(transaction: Transaction, switch: Switch, part: Part, number: int) -> None:
    """Adds a scope that continues from an earlier commit, with the note as the same block: the model sees why."""
    ledger = transaction.state.store.reader.ledger(switch.origin)
    numbering = Numbering.of(ledger, number - 1)
    rows, bodies = numbering.aside(Message(role="user", parts=(part,)))
    counters = numbering.counters(ledger.meta.counters.group)
    _begin(
        transaction,
        switch,
        switch.origin,
        ledger,
        ledger.meta.scope,
        counters=counters,
        rows=tuple(rows),
        bodies=tuple(bodies),
    )


def _begin(
    transaction: Transaction,
    switch: Switch,
    origin: str,
    ledger: Ledger,
    parent: str,
    *,
    counters: Counters,
    inherit: tuple[str, ...] | None = None,
    meta: Mapping[str, object] = {},
    **more: Any,
) -> None:
    """Adds a switch's scope on top of what `origin` refers to, where the ledger is `ledger`; its parent is `parent`.

    `more` are further arguments of `Transaction.begin`.
    """
    fields = {**_meta(ledger.meta, switch.name, parent), **meta}
    transaction.begin(
        switch.name,
        origin,
        ledger,
        actor=switch.actor,
        counters=counters,
        inherit=inherit,
        meta=fields,
        text=switch.text,
        **more,
    )


def _meta(origin: Meta, name: str, parent: str) -> dict[str, object]:
    """The fields of `ctxvc.json` in which a new scope differs. It has no imported units of a recording."""
    fields: dict[str, object] = {"scope": name, "parent": parent}
    if origin.refused:
        fields["refused"] = 0
    if origin.source:
        fields["source"] = msgspec.structs.replace(origin.source, offset=0, units=0, finals=())
    return fields


def _go(transaction: Transaction, scope: str, switch: Switch) -> None:
    """Adds a commit in the destination, on top of both scopes, after finishing what was left open there.

    What humans said in the scope that is left arrives with the note, unless the destination began in that scope: then
    it has its task.
    """
    transaction.finish(switch.name)
    part = scoping.note(scoping.arrival(scope, switch.text), switch.actor, left=scope)
    human = [] if _began_in(transaction, switch.name, scope) else list(_spoken(transaction, scope, switch.name))
    transaction.verb(
        switch.name,
        op="goto",
        actor=switch.actor,
        subject=f"goto {switch.name}",
        text=switch.text,
        parts=[part, *human],
        merge=transaction.place(scope),
    )


def _began_in(transaction: Transaction, scope: str, ancestor: str) -> bool:
    """Whether a scope descends from `ancestor` by its parents."""
    scopes = transaction.state.scopes
    seen = {scope}
    while (scope := transaction.ledger(scope).meta.parent) in scopes and scope not in seen:
        if scope == ancestor:
            return True
        seen.add(scope)
    return False


def _spoken(transaction: Transaction, scope: str, destination: str) -> Iterator[Part]:
    """Copies of what humans said in `scope` and the destination does not have, each with its place."""
    ledger = transaction.ledger(scope)
    parent = ledger.meta.parent
    origin = transaction.ledger(parent) if parent in transaction.state.scopes else None
    for row, place in scoping.spoken(ledger, origin, transaction.ledger(destination)):
        yield Part(
            kind=row.kind,
            role=row.role,
            origin=row.origin,
            body=transaction.body(scope, row),
            ext=row.ext,
            files=tuple((suffix, transaction.body(scope, row, suffix)) for suffix in row.files),
            extra={**row.extra, "ctxvc": {**wire.own_metadata(row.extra), scoping.SAID: place}},
        )
