"""Appending to a session: messages as the Messages API has them are numbered, admitted, and appended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import Entry, is_human, speaks
from ctxvc.core.plan import admission, timing
from ctxvc.core.prompt import cut, tag
from ctxvc.core.prompt.request import request
from ctxvc.core.recording.usage import counts
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput
from ctxvc.session.context import Context, newest_rendering
from ctxvc.session.proof import recorded
from ctxvc.store.log.stored_session import RedactedMessages
from ctxvc.store.log.transaction import AdmittedEntry, Attachment, Transaction
from ctxvc.store.read import operations, revision
from ctxvc.store.read.revision import Sent

#: Reasons for the end of a complete reply. Any other is noted at its last block, since a later continuation needs it.
_COMPLETE = frozenset({"end_turn", "stop_sequence", "tool_use"})


def message(raw: Mapping[str, Any], origin: Origin) -> Message:
    """A message of the Messages API, a request's or a reply's; the content of a result may also be a tool's bytes.

    Raises: BadInput.
    """
    role, content = (raw.get("role"), raw.get("content")) if isinstance(raw, Mapping) else (None, None)
    if role not in ("user", "assistant", "system") or not isinstance(content, str | list):
        raise BadInput(
            f"not a message of the Messages API: {str(raw)[:80]}",
            hint='pass {"role": "user", "content": …}, or a reply as received',
        )
    maker: Origin = "model" if role == "assistant" else origin
    blocks = [content] if isinstance(content, str) else content
    parts = tuple(_part(block, role, maker) for block in blocks)
    if role == "assistant" and parts:
        parts = (*parts[:-1], _ended(parts[-1], raw.get("stop_reason")))
    return Message(
        role=role,
        parts=parts,
        reply=str(raw.get("id") or ""),
        model=str(raw.get("model") or ""),
        usage=usage(raw),
    )


def _ended(part: Part, stop: object) -> Part:
    """The last part of a reply, with the reason for the reply's end if it is incomplete."""
    if not isinstance(stop, str) or stop in _COMPLETE:
        return part
    return msgspec.structs.replace(part, extra={**part.extra, "ctxvc": {**wire.own_metadata(part.extra), "stop": stop}})


def stopped(ledger: Ledger) -> str:
    """The provider's reason for the end of the newest reply if that is incomplete.

    Empty for any other, and if a message has come since, dashboards aside.
    """
    newest = next((row for row in ledger.backwards() if row.kind != "dashboard"), None)
    stop = wire.own_metadata(newest.extra).get("stop") if newest and newest.role == "assistant" else None
    return stop if isinstance(stop, str) else ""


def usage(reply: Mapping[str, Any]) -> dict[str, int]:
    """The provider's token counts for the call of a reply, given as a dictionary or as a client's object."""
    reported = reply.get("usage")
    to_dict = getattr(reported, "model_dump", None)
    return counts(to_dict() if to_dict else reported)


def _part(block: Any, role: Role, maker: Origin) -> Part:
    match block:
        case {"type": "tool_result", "content": bytes(output)}:
            empty = wire.part({**block, "content": ""}, role, "tool")
            return msgspec.structs.replace(empty, body=output, ext=wire.text_ext(output))
        case {"type": "tool_result"}:
            return wire.part(block, role, "tool")
        case {"type": "tool_use", "input": str(text)}:  # what the model wrote is no object; it stays as it was written
            return wire.part(block, role, maker, input_bytes=display.encode(text))
        case _:
            return wire.part(block, role, maker)


def append(
    context: Context,
    messages: Sequence[Message],
    previews: Mapping[str, str],
    *,
    spare: int = 0,
    make_room: Callable[[int], object] | None = None,
    attached: Attachment | None = None,
) -> list[str]:
    """Numbers the messages, admits their entries, and appends these, as one record; returns the new blocks' ids.

    `previews` gives, by call, the text that the model sees of a result; `spare` tokens stay free beside the results.
    All is done under the session's lock, so that an entry is weighed against the very ledger that it joins. Where
    results would be withheld for lack of room, nothing is added at first: `make_room` gets the counted tokens that come
    in, and then they are admitted as the prompt is. `attached` goes with the reply among the messages, else with the
    first of them. Raises: CtxvcError; then nothing was added.
    """
    stored = context.stored
    messages, previews = stored.redacted_messages(messages), stored.redacted(previews)
    if make_room:
        # A removal is a record of its own, which another writer may precede and a crash may leave behind alone. Either
        # way the session is valid, and what did not fit comes back by itself.
        ids, incoming = _appended(context, messages, previews, spare, attached, all_or_none=True)
        if not incoming:
            return ids
        make_room(incoming)
    ids, _ = _appended(context, messages, previews, spare, attached)
    return ids


def _appended(
    context: Context,
    messages: RedactedMessages,
    previews: Mapping[str, str],
    spare: int,
    attached: Attachment | None,
    *,
    all_or_none: bool = False,
) -> tuple[list[str], int]:
    """The new blocks' ids, and 0.

    With `all_or_none`, nothing is added where something would be withheld for lack of room: then no ids, and the
    counted tokens of what comes in.
    """
    stored, sent = context.stored, dict(context.sent)
    ids: list[str] = []
    total = lacking = 0
    has_reply = any(message.role == "assistant" for message in messages)
    with stored.writing() as transaction:
        for scope, entry in stored.number(transaction, messages):
            ledger = transaction.ledger(scope)
            texts = _texts(entry)
            view = context.view(ledger, entry.rows, transaction.bodies) if _decides(ledger, entry) else None
            admitted = admit(ledger, entry, texts, view, previews, context.terms.batch, spare)
            if scope == context.scope and admitted.total:
                total, lacking = admitted.total, lacking + admitted.lacking
            tagged = _with_tags(context, admitted.entry, ledger, view, transaction.bodies)
            complete = _with_proof(context, transaction, sent, scope, tagged)
            if attached and (not has_reply or any(row.role == "assistant" for row in entry.rows)):
                trailers = {**complete.trailers, **attached.trailers}
                complete = complete._replace(trailers=trailers, files=attached.files, without=attached.without)
                attached = None
            transaction.append(scope, complete)
            ids += [row.id for row in entry.rows]
        if not (all_or_none and lacking):
            stored.acknowledge(transaction)
            context.sent = sent
            return ids, 0
    return [], total + lacking - context.view().counted


class _Admitted(NamedTuple):
    """An entry as it is recorded, and what `admission.Admitted` says of its tokens."""

    entry: AdmittedEntry
    total: int = 0
    lacking: int = 0


def admit(
    ledger: Ledger,
    entry: Entry,
    texts: Mapping[str, str],
    view: View | None,
    previews: Mapping[str, str],
    batch: int,
    spare: int = 0,
) -> _Admitted:
    """The entry as it is recorded on top of `ledger`. Pure: it changes states of rows, and no body.

    The first message of a human is pinned, a turn begins with a cut where one pays, and `texts` are admitted or blocked
    by their cost in `view` (None if no cost decides anything), with `spare` tokens beside them. `previews` replaces a
    result's preview, by its call; if all results together cost more than `batch` tokens, the largest are previewed.
    """
    meta: dict[str, Any] = {}
    rows = entry.rows
    total = lacking = 0
    if any(speaks(row.kind, row.role, row.origin) for row in rows):
        if not any(speaks(row.kind, row.role, row.origin) for row in ledger.rows()):
            rows = tuple(_pinned(row) for row in rows)
        if rows[0].turn > ledger.meta.counters.turn:
            newest = newest_rendering(ledger.meta)
            imported = ledger.meta.source is not None and ledger.meta.source.units > 0
            first = imported and not tag.any_tag(ledger)  # the first turn under our hand
            due = bool(newest) or first
            cuts = timing.cuts_at_turn(view) if view and not due else cut.at_turn(ledger, due=due)
            meta |= {"cuts": cuts, **newest}
    if view is not None:
        weighed = any(row.kind == "tool_result" for row in rows)  # all else comes in, whatever room there is
        admitted = admission.admit(
            view,
            rows,
            texts,
            view.counted if weighed else 0,
            replacements={
                row.id: previews[row.call] for row in rows if row.kind == "tool_result" and row.call in previews
            },
            batch=batch,
            spare=spare,
        )
        rows, total, lacking = admitted.rows, admitted.total, admitted.lacking
        if admitted.overflow:
            meta["refused"] = max(1, ledger.meta.refused)
    meta = {name: value for name, value in meta.items() if value != getattr(ledger.meta, name)}
    return _Admitted(AdmittedEntry(msgspec.structs.replace(entry, rows=rows), meta), total, lacking)


def _with_tags(
    context: Context,
    admitted: AdmittedEntry,
    ledger: Ledger,
    view: View | None,
    bodies: Mapping[tuple[str, str], bytes],
) -> AdmittedEntry:
    """The entry with the tags of its results, which are sent for the first time with the next request."""
    entry = admitted.entry
    results = [row for row in entry.rows if row.kind == "tool_result"]
    if not results:
        return admitted
    view = view or context.view(ledger, entry.rows, bodies)
    tagged = {row.id: row for row in context.tagged(results, view, lambda row: bodies[row.id, ""])}
    rows = tuple(tagged.get(row.id, row) for row in entry.rows)
    return admitted._replace(entry=msgspec.structs.replace(entry, rows=rows))


def _decides(ledger: Ledger, entry: Entry) -> bool:
    """Whether a cost decides how the entry is recorded: then its texts and the prompt are counted.

    Any other text waits for the request that needs its count.
    """
    if any(row.kind == "tool_result" or admission.may_be_huge(row) for row in entry.rows):
        return True
    begins = bool(entry.rows) and entry.rows[0].turn > ledger.meta.counters.turn
    return begins and cut.at_turn(ledger) != ledger.meta.cuts


def _texts(entry: Entry) -> dict[str, str]:
    """The texts of the entry that admission weighs, by block."""
    return admission.texts(entry.rows, {block: body for block, suffix, body in entry.bodies if not suffix})


def _with_proof(
    context: Context, transaction: Transaction, requests: dict[str, Sent], scope: str, admitted: AdmittedEntry
) -> AdmittedEntry:
    """The entry; a reply's with a trailer on the prompt that it saw, which is taken from `requests`.

    Where the scope changed between the call and the reply, the trailer names the commit that renders what was sent; it
    is left out where none does.
    """
    is_reply = any(row.role == "assistant" for row in admitted.entry.rows)
    sent = requests.pop(scope, None) if is_reply else None
    requested = context.requested.get(scope)
    if sent and requested is not None and requested is not transaction.ledger(scope):
        sent = _checked(context, transaction, admitted.entry.step, sent, requested)
    return admitted._replace(trailers={revision.PROMPT: str(sent)}) if sent else admitted


def _checked(context: Context, transaction: Transaction, step: int, sent: Sent, requested: Ledger) -> Sent | None:
    """The record of the prompt that the reply of `step` saw, with the commit that renders it; None if none does."""
    scope, between = requested.meta.scope, 0
    snapshot = revision.now(context.stored, scope)

    def render(ledger: Ledger) -> str:
        return request(ledger, snapshot.bodies, snapshot.system, snapshot.tools).digest

    place = context.requested_at[scope]
    if not place.in_step and step == requested.meta.counters.step + 1:
        since = operations.count_since(operations.changes(context.stored, scope), place)
        between = since - transaction.verbs_in_step(scope)
    return recorded(sent, transaction.step_ledger(scope, sent.later), requested, between=between, render=render)


def _pinned(row: Row) -> Row:
    return msgspec.structs.replace(row, state="pinned") if is_human(row.role, row.origin) else row
