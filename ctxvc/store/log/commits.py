"""Journal → commits: which records become which commit, and the commit's message. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import caption
from ctxvc.core.ledger.block import Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Body
from ctxvc.core.ledger.pairs import is_interrupted
from ctxvc.core.ledger.segments import Segments
from ctxvc.errors import Damaged, Phrase
from ctxvc.store import timestamp
from ctxvc.store.format import message, trailers_of
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.log.journal import Change, reference

_SEQ = re.compile(r"(\S+)/(\d+)")
_META = {field.name: field.type for field in msgspec.structs.fields(Meta)}


class PendingChange(msgspec.Struct, frozen=True):
    """A change of one scope that is acknowledged but not committed."""

    seq: int
    change: Change


class PlannedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to be made: the ledgers before and after it, its new bodies, its message.

    `seq` is the newest change that it covers. `origin` (of a scope's first commit) and `merge` are as in `Change`; in
    the result of `plan_commits`, references among the planned commits are `:n`.
    """

    scope: str
    before: Ledger
    after: Ledger
    bodies: tuple[Body, ...]
    message: str
    actor: str
    time: str
    written: int
    seq: int
    origin: str = ""
    merge: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    without: tuple[str, ...] = ()


def apply_change(ledger: Ledger, change: Change) -> Ledger:
    """The ledger after `change`."""
    if change.inherit is not None:
        ledger = _inherited(ledger, frozenset(change.inherit))
    meta = _with_fields(ledger.meta, change.meta) if change.meta else ledger.meta
    meta = msgspec.structs.replace(meta, counters=_newest(meta.counters, change.counters))
    return ledger.with_rows(change.rows).with_groups(change.groups).with_meta(meta)


def plan_commits(
    scopes: Mapping[str, tuple[Ledger, Sequence[PendingChange]]], journal: str, committed: Callable[[str, int], str]
) -> tuple[list[PlannedCommit], dict[str, list[PendingChange]]]:
    """The commits that a session's scopes are due, each after those that it needs, and each scope's remaining changes.

    `scopes` maps each scope to the ledger that its next commit is based on and its pending changes. `committed(scope,
    n)` is the commit by which the scope has change n, empty if none does yet.
    Raises: Damaged if a change needs a commit that does not exist.
    """
    planned: list[PlannedCommit] = []
    rest: dict[str, list[PendingChange]] = {}
    for scope, (ledger, pending) in scopes.items():
        commits, rest[scope] = plan(ledger, pending, journal)
        planned += commits
    planned.sort(key=lambda item: item.seq)  # a needed commit has a smaller number; each scope's own order stays

    def place(origin: str, before: Sequence[PlannedCommit]) -> str:
        scope, seq = reference(origin)
        if not scope:
            return origin
        if commit := committed(scope, seq):
            return commit
        due = [(item.seq, n) for n, item in enumerate(before, 1) if item.scope == scope and item.seq >= seq]
        if not due:
            raise Damaged(f"the journal refers to {origin!r}, which no commit has", hint=Phrase("verify"))
        return f":{max(n for number, n in due if number == due[0][0])}"

    return [
        msgspec.structs.replace(item, origin=place(item.origin, planned[:at]), merge=place(item.merge, planned[:at]))
        if item.origin or item.merge
        else item
        for at, item in enumerate(planned)
    ], rest


def plan(
    committed: Ledger, pending: Sequence[PendingChange], journal: str
) -> tuple[list[PlannedCommit], list[PendingChange]]:
    """The commits that `pending` makes on top of `committed`, and the rest: the open step and verbs made meanwhile.

    A step is one commit, with all its records. A verb is one commit, after the step that was open when it was made.
    """
    planned: list[PlannedCommit] = []
    step: list[PendingChange] = []
    deferred: list[PendingChange] = []
    newest = 0

    def emit(part: Sequence[PendingChange]) -> None:
        nonlocal committed, newest
        before = committed
        for item in part:
            committed = apply_change(committed, item.change)
            newest = max(newest, item.seq)
        planned.append(_planned(part, before, committed, journal, newest))

    for item in pending:
        if item.change.op != "step":
            deferred.append(item)
        else:
            step.append(item)
            if not item.change.done:
                continue
            emit(step)
        if not step or step[-1].change.done:
            for verb in deferred:
                emit([verb])
            step, deferred = [], []
    return planned, sorted([*step, *deferred], key=lambda item: item.seq)


def covered(message: str, journal: str) -> int:
    """The newest record of `journal` that the commit with this message, and those before it, cover; 0 if none."""
    name, newest = sequence(message)
    return newest if name == journal else 0


def sequence(message: str) -> tuple[str, int]:
    """The journal that a commit names, and the newest record of it that the commit covers; ("", 0) if none."""
    match = _SEQ.fullmatch(trailers_of(message).get("Ctxvc-Seq", ""))
    return (match[1], int(match[2])) if match else ("", 0)


class StepMessage(NamedTuple):
    """The parts of a step's commit message: subject, text, and trailers."""

    subject: str
    text: str
    trailers: dict[str, str]


def step_message(rows: Sequence[Row], body_of: caption.BodyOf, folder: str, *, step: int, turn: int) -> StepMessage:
    """The message of a step with these rows, made in `folder`. The numbers are not in its subject."""
    blocks = f"{len(rows)} block{'' if len(rows) == 1 else 's'}"
    size = display.human_bytes(sum(row.bytes for row in rows))
    return StepMessage(
        subject=caption.of_step(rows, body_of, folder),
        text=f"Step {step} of turn {turn}: {blocks}, {size}.",
        trailers={"Ctxvc-Step": str(step), "Ctxvc-Turn": str(turn)},
    )


def usage_trailers(usage: Mapping[str, int]) -> dict[str, str]:
    """The usage that the provider reported for a call, as a trailer; empty if unknown."""
    counts = [f"{name}={count}" for name, count in usage.items()]
    return {"Ctxvc-Usage": " ".join(counts)} if counts else {}


def times_trailer(messages: Iterable[tuple[Sequence[Part | Row], str]]) -> dict[str, str]:
    """A trailer with the times at which a step's reply was requested, complete and had its results; empty if unknown.

    `messages` are the step's, each as its parts and its time. A result made for a missing one has no time.
    """
    times: dict[str, int] = {}
    has_reply = False
    for parts, time in messages:
        is_reply = any(part.role == "assistant" for part in parts)
        has_reply = has_reply or is_reply
        name = "replied" if is_reply else "answered" if has_reply else "asked"
        if not all(map(is_interrupted, parts)) and (seconds := epoch(time, -1)) >= 0:
            times[name] = max(seconds, times.get(name, 0))
    values = " ".join(f"{name}={timestamp.iso(seconds)}" for name, seconds in times.items())
    return {"Ctxvc-Times": values} if values else {}


def _planned(items: Sequence[PendingChange], before: Ledger, after: Ledger, journal: str, seq: int) -> PlannedCommit:
    first, last = items[0].change, items[-1].change
    rows = [row for item in items for row in item.change.rows]
    subject, text = last.subject, last.text
    trailers = {"Ctxvc-Op": last.op, "Ctxvc-Actor": last.actor, "Ctxvc-Seq": f"{journal}/{seq}"}
    if last.op == "step":
        bodies = {block: data for item in items for block, suffix, data in item.change.bodies if not suffix}
        subject, text, numbers = step_message(
            rows, lambda row: bodies.get(row.id, b""), caption.folder_of(after),
            step=last.step, turn=after.meta.counters.turn,
        )  # fmt: skip
        trailers |= numbers | times_trailer((item.change.rows, item.change.time) for item in items)
        models = [item.change.meta["model"] for item in items if "model" in item.change.meta]
        trailers["Ctxvc-Model"] = models[-1] if models else ""
    for item in items:
        trailers.update(item.change.trailers)
    return PlannedCommit(
        scope=first.scope,
        before=before,
        after=after,
        bodies=tuple(body for item in items for body in item.change.bodies),
        message=message(subject, trailers, text),
        actor=last.actor,
        time=last.time,
        written=last.written,
        seq=seq,
        origin=first.origin,
        merge=last.merge,
        **_files(items),
    )


def _files(items: Sequence[PendingChange]) -> dict[str, Any]:
    """The files that the changes of one commit write and drop together, the newest of each path."""
    files: dict[str, bytes] = {}
    without: dict[str, None] = {}
    for item in items:
        for path in item.change.without:
            files.pop(path, None)
            without[path] = None
        files |= item.change.files
    return {"files": tuple(files.items()), "without": tuple(without)}


def _newest(one: Counters, other: Counters) -> Counters:
    return Counters(
        block=max(one.block, other.block),
        group=max(one.group, other.group),
        msg=max(one.msg, other.msg),
        step=max(one.step, other.step),
        turn=max(one.turn, other.turn),
    )


def _with_fields(meta: Meta, fields: Mapping[str, object]) -> Meta:
    """`meta` with these fields set, converted to the types that `Meta` declares."""
    values = {name: msgspec.convert(value, _META[name]) for name, value in fields.items() if name in _META}
    return msgspec.structs.replace(meta, **values)


def _inherited(ledger: Ledger, inherited: frozenset[str]) -> Ledger:
    """The part of `ledger` that a new scope inherits; a group only as a whole, with its summary."""
    whole = {name for name, group in ledger.groups.items() if inherited.issuperset(group.summary)}
    while broken := {
        name for name in whole if not all(m in inherited or m in whole for m in ledger.groups[name].members)
    }:
        whole -= broken
    groups = {
        name: msgspec.structs.replace(
            group,
            group=group.group if group.group in whole else "",
            before=group.before if group.before in inherited else "",
        )
        for name, group in ledger.groups.items()
        if name in whole
    }
    segments = {
        key: rows
        for key, segment in ledger.segments.items()
        if (rows := _same(segment, tuple(_alone(row, groups) for row in segment if row.id in inherited)))
    }
    return Ledger(meta=ledger.meta, segments=Segments(segments), groups=groups)


def _same(segment: tuple[Row, ...], rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """`segment` itself if `rows` equals it: unchanged segments are recognised by identity."""
    return segment if len(segment) == len(rows) and all(map(is_, segment, rows)) else rows


def _alone(row: Row, groups: Mapping[str, Group]) -> Row:
    """`row`, removed from its group if the group was not inherited."""
    if not row.group or row.group in groups:
        return row
    return msgspec.structs.replace(row, group="", level=min(row.level, 1))
