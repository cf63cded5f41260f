"""Appending to a session: Messages API messages are numbered, admitted and appended."""

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

#: Stop reasons of a complete reply. Any other is recorded on its last block, since a continuation needs it.
_COMPLETE = frozenset({"end_turn", "stop_sequence", "tool_use"})


def message(raw: Mapping[str, Any], origin: Origin) -> Message:
    """A message of the Messages API, from a request or a reply; a result's content may also be a tool's bytes.

    Raises: BadInput if `raw` is not one.
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
    """The last part of a reply, with the stop reason if the reply is incomplete."""
    if not isinstance(stop, str) or stop in _COMPLETE:
        return part
    return msgspec.structs.replace(part, extra={**part.extra, "ctxvc": {**wire.own_metadata(part.extra), "stop": stop}})


def stopped(ledger: Ledger) -> str:
    """The provider's stop reason for the newest reply if that reply is incomplete, else empty.

    Also empty if a message other than a dashboard has come since.
    """
    newest = next((row for row in ledger.backwards() if row.kind != "dashboard"), None)
    stop = wire.own_metadata(newest.extra).get("stop") if newest and newest.role == "assistant" else None
    return stop if isinstance(stop, str) else ""


def usage(reply: Mapping[str, Any]) -> dict[str, int]:
    """The token counts that the provider reports with a reply, as a dictionary or as a client library's object."""
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
        case {"type": "tool_use", "input": str(text)}:  # the model wrote no valid object: kept as written
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
    """Numbers, admits and appends the messages as one record; returns the new blocks' ids.

    `previews` maps a call to the text that the model sees of its result; `spare` tokens stay free beside the results.
    All of it happens under the session's lock, so that an entry is weighed against the ledger it joins. If results
    would be withheld for lack of room, `make_room` is first called with the counted tokens that come in; then they are
    admitted into whatever room there is. `attached` is recorded with the reply, or with the first message if there is
    no reply. Raises: CtxvcError; nothing is added then.
    """
    stored = context.stored
    messages, previews = stored.redacted_messages(messages), stored.redacted(previews)
    if make_room:
        # A removal is a separate record: another writer may get in before it, and a crash may leave it alone. Either
        # way the session is valid, and a result that did not fit comes back by itself.
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
    """Returns the new blocks' ids, and 0.

    With `all_or_none`, nothing is added if a result would be withheld for lack of room: then returns no ids, and the
    counted tokens of the messages.
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
    """An entry to record, with the token counts of `admission.Admitted`."""

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
    """The entry to record on top of `ledger`. Pure; changes states of rows, never a body.

    A human's first message is pinned, a turn begins with a cut where one pays, and `texts` are admitted or blocked by
    their cost in `view` (None if no cost matters), keeping `spare` tokens free. `previews` maps a call to its result's
    preview; if the results together cost more than `batch` tokens, the largest are previewed.
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
            first = imported and not tag.any_tag(ledger)  # the first turn that we manage
            due = bool(newest) or first
            cuts = timing.cuts_at_turn(view) if view and not due else cut.at_turn(ledger, due=due)
            meta |= {"cuts": cuts, **newest}
    if view is not None:
        weighed = any(row.kind == "tool_result" for row in rows)  # anything else is admitted, whatever room there is
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
    """The entry with tags on its results, which the next request sends for the first time."""
    entry = admitted.entry
    results = [row for row in entry.rows if row.kind == "tool_result"]
    if not results:
        return admitted
    view = view or context.view(ledger, entry.rows, bodies)
    tagged = {row.id: row for row in context.tagged(results, view, lambda row: bodies[row.id, ""])}
    rows = tuple(tagged.get(row.id, row) for row in entry.rows)
    return admitted._replace(entry=msgspec.structs.replace(entry, rows=rows))


def _decides(ledger: Ledger, entry: Entry) -> bool:
    """Whether cost decides how the entry is recorded, so that its texts and the prompt must be counted now.

    Any other text is counted by the request that needs its count.
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
    """The entry; a reply's with a trailer for the prompt that it saw, which is removed from `requests`.

    If the scope changed between the call and the reply, the trailer names the commit that renders the sent prompt;
    if no commit does, there is no trailer.
    """
    is_reply = any(row.role == "assistant" for row in admitted.entry.rows)
    sent = requests.pop(scope, None) if is_reply else None
    requested = context.requested.get(scope)
    if sent and requested is not None and requested is not transaction.ledger(scope):
        sent = _checked(context, transaction, admitted.entry.step, sent, requested)
    return admitted._replace(trailers={revision.PROMPT: str(sent)}) if sent else admitted


def _checked(context: Context, transaction: Transaction, step: int, sent: Sent, requested: Ledger) -> Sent | None:
    """The record of the prompt that the reply of `step` saw, naming the commit that renders it; None if none does."""
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
