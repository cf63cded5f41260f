"""Changing the scope: what `scope` and `goto` do to the two scopes that they touch, as one record."""

from __future__ import annotations

import msgspec

from ctxvc.core import scope as scoping
from ctxvc.core.ledger import names
from ctxvc.core.ledger.block import Message, Part, block_number
from ctxvc.core.ledger.ledger import Meta
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.errors import BadInput, NotFound, Phrase, Refused
from ctxvc.store.log.state import Known
from ctxvc.store.log.transaction import Draft


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A change of scope that somebody wants. A `new` one is opened: `origin` and `with_messages` are about that."""

    name: str
    text: str
    actor: str
    new: bool = False
    origin: str = ""
    with_messages: bool = False


def check(known: Known, scope: str, wanted: Switch) -> None:
    """Whether the switch can be made from `scope`. Raises: BadInput, BadName, NotFound, Refused."""
    if not wanted.text.strip():
        raise BadInput("a change of scope needs a word on what it is for", hint=Phrase("give-text"))
    if not wanted.new:
        known.scope(wanted.name)
        if wanted.name == scope:
            raise Refused(f"this is scope {scope!r} already", hint=Phrase("other-scopes"))
        return
    names.check(wanted.name, "scope", set(known.scopes))
    if wanted.name in known.scopes:
        raise Refused(f"a scope {wanted.name!r} exists already", hint=Phrase("goto-scope", scope=wanted.name))
    if wanted.origin and known.store.reader.meta(wanted.origin).session != known.name:
        raise NotFound(f"commit {wanted.origin[:12]} is not of session {known.name!r}", hint=Phrase("own-commits"))


def switch(draft: Draft, scope: str, wanted: Switch) -> None:
    """Adds to `draft` what takes a writer from `scope` to the scope that it wants. No call of `scope` is open."""
    draft.finish(scope)
    if wanted.new:
        _open(draft, scope, wanted)
    else:
        _go(draft, scope, wanted)


def arrive(draft: Draft, scope: str, left: str, text: str, *, actor: str, of: str) -> None:
    """One commit in `scope`, on top of it and of the scope `left`: what somebody brings along who worked there."""
    draft.finish(left)
    words = scoping.arrival(left, text)
    part = scoping.note(words, actor, left=left, of=of)
    first, whole = scoping.subject_and_text(words)
    draft.verb(
        scope, op="note", actor=actor, subject=f"note: {first}", text=whole, parts=[part], merge=draft.place(left)
    )


def branch(draft: Draft, scope: str, wanted: Switch, commit: str) -> None:
    """Adds a scope on top of a commit of `scope`, which itself stays as it is: nobody goes there yet."""
    ledger = draft.known.store.reader.ledger(commit)
    draft.begin(
        wanted.name,
        commit,
        ledger,
        actor=wanted.actor,
        counters=scoping.first_counters(ledger),
        inherit=scoping.instructions(ledger),
        meta=_meta(ledger.meta, wanted.name, scope),
        text=wanted.text,
    )


def _open(draft: Draft, scope: str, wanted: Switch) -> None:
    """The note on why is the last thing in the scope that is left; the new one begins on top of it, or of `origin`."""
    words = scoping.departure(wanted.name, wanted.text)
    part = scoping.note(words, wanted.actor, to=wanted.name)
    first, text = scoping.subject_and_text(words)
    (block,) = draft.verb(scope, op="note", actor=wanted.actor, subject=f"note: {first}", text=text, parts=[part])
    if wanted.origin:
        _rewind(draft, wanted, part, block_number(block))
        return
    ledger = draft.ledger(scope)
    draft.begin(
        wanted.name,
        draft.place(scope),
        ledger,
        actor=wanted.actor,
        counters=ledger.meta.counters if wanted.with_messages else scoping.first_counters(ledger),
        inherit=None if wanted.with_messages else scoping.inherited(ledger),
        meta=_meta(ledger.meta, wanted.name, scope),
        text=wanted.text,
    )


def _rewind(draft: Draft, wanted: Switch, part: Part, number: int) -> None:
    """The new scope goes on from an earlier commit, with the note as the same block, so that the model knows why."""
    ledger = draft.known.store.reader.ledger(wanted.origin)
    numbering = Numbering.of(ledger, number - 1)
    rows, bodies = numbering.aside(Message(role="user", parts=(part,)))
    draft.begin(
        wanted.name,
        wanted.origin,
        ledger,
        actor=wanted.actor,
        counters=numbering.counters(ledger.meta.counters.group),
        inherit=None,
        meta=_meta(ledger.meta, wanted.name, ledger.meta.scope),
        rows=tuple(rows),
        bodies=tuple(bodies),
        text=wanted.text,
    )


def _meta(origin: Meta, name: str, parent: str) -> dict[str, object]:
    """The fields of `ctxvc.json` in which a new scope differs. No unit of a recording was imported into it."""
    fields: dict[str, object] = {"scope": name, "parent": parent}
    if origin.refused:
        fields["refused"] = 0
    if origin.source:
        fields["source"] = msgspec.structs.replace(origin.source, offset=0, units=0, finals=())
    return fields


def _go(draft: Draft, scope: str, wanted: Switch) -> None:
    """One commit in the scope that one comes to, on top of both; what was left open there is finished first."""
    draft.finish(wanted.name)
    part = scoping.note(scoping.arrival(scope, wanted.text), wanted.actor, left=scope)
    draft.verb(
        wanted.name,
        op="goto",
        actor=wanted.actor,
        subject=f"goto {wanted.name}",
        text=wanted.text,
        parts=[part],
        merge=draft.place(scope),
    )
