"""Pending plans, visible to every process and to stock git.

Each session has a separate history for them, `refs/ctxvc/<session>/plans`: one commit for each plan added or removed,
whose tree has the pending plans as JSON. It contains no blocks, and is neither pushed nor cloned.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import pygit2

from ctxvc.core.plan.plan import Plan
from ctxvc.errors import BadInput, Damaged, NotFound, Refused
from ctxvc.store.files import locked
from ctxvc.store.format import message
from ctxvc.store.git import program
from ctxvc.store.git.fast_import import Commit, epoch
from ctxvc.store.store import Store

FORMAT = 1
COUNTER = "plans.json"
FOLDER = "plans"

#: The most pending plans in a session, and the most bytes of one as JSON: every view reads them all.
MOST = 64
LARGEST = 1 << 20

_ID = re.compile(r"P[1-9][0-9]{0,11}")


class PendingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A pending plan. `base_commit` is the commit of the scope that it is based on, `time` its creation in ISO 8601.

    `id` is `P1`, `P2`, …, never reused in the session. Its actions' checksums show whether a block is still the one
    meant.
    """

    id: str
    scope: str
    time: str
    base_commit: str
    plan: Plan

    @property
    def number(self) -> int:
        return int(self.id[1:])


class _Counter(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the newest number used."""

    format: int = FORMAT
    last: int = 0


@dataclass(frozen=True, slots=True)
class _State:
    tip: str = ""
    last: int = 0
    plans: tuple[PendingPlan, ...] = ()


_counter_decoder = msgspec.json.Decoder(_Counter)
_plan_decoder = msgspec.json.Decoder(PendingPlan)


def plans_ref(session: str) -> str:
    return f"refs/ctxvc/{session}/plans"


def pending(store: Store, session: str) -> tuple[PendingPlan, ...]:
    """The pending plans of all scopes, oldest first. Raises: Damaged."""
    return _state(store, session).plans


def put(store: Store, session: str, scope: str, plan: Plan, *, base_commit: str, time: str) -> PendingPlan:
    """Adds a pending plan, which is on the disk on return. If an identical plan is pending, returns that one.

    Raises: NotFound (no such scope), Refused (too many are pending, or it is too big), BadInput, Conflict, Damaged,
    CtxvcError; in all cases nothing has changed.
    """
    if scope not in store.tips(session):
        raise NotFound(f"no scope {session}/{scope}", hint=f"its scopes: {', '.join(sorted(store.tips(session)))}")
    if redactor := store.redaction.of(session):
        plan = msgspec.convert(redactor.value(msgspec.to_builtins(plan)), Plan)
    with locked(store.lock_path(session)) as lock:
        state = _state(store, session)
        for other in state.plans:
            if (other.scope, other.plan) == (scope, plan):
                return other
        if len(state.plans) >= MOST:
            raise Refused(
                f"{len(state.plans)} plans of session {session} are already pending", hint="apply or drop some"
            )
        number = state.last + 1
        new = PendingPlan(id=f"P{number}", scope=scope, time=time, base_commit=base_commit, plan=plan)
        try:
            data = _json(new)
        except UnicodeEncodeError as error:
            raise BadInput(
                "the plan has text that is not valid Unicode", hint="remove the unpaired surrogate"
            ) from error
        if len(data) > LARGEST:
            raise Refused(
                f"the plan has {len(data):,} bytes; at most {LARGEST:,} are allowed",
                hint="split it into several, or name groups",
            )
        count = len(plan.actions)
        subject = f"plan {new.id} by {plan.actor}: {count} action{'' if count == 1 else 's'}"
        files = ((COUNTER, _json(_Counter(last=number))), (_path(new.id), data))
        text = message(subject, {"Ctxvc-Op": "plan", "Ctxvc-Actor": plan.actor})
        _write(store, lock, session, state.tip, text, plan.actor, time, files=files)
        return new


def drop(store: Store, session: str, ids: Collection[str], why: str, *, actor: str = "") -> tuple[str, ...]:
    """Removes pending plans, on the disk on return; returns the ids of those that were pending.

    `why` is for the history: `stale`, `committed`, … `actor` removes them, by default the first plan's actor.
    Raises: Conflict, Damaged, CtxvcError; then nothing has changed.
    """
    if not pending(store, session):
        return ()
    with locked(store.lock_path(session)) as lock:
        state = _state(store, session)
        dropped = [plan for plan in state.plans if plan.id in ids]
        if dropped:
            names = tuple(plan.id for plan in dropped)
            actor = actor or dropped[0].plan.actor
            subject = f"plan{'' if len(dropped) == 1 else 's'} {', '.join(names)} dropped: {why}"
            text = message(subject, {"Ctxvc-Op": "plan", "Ctxvc-Actor": actor})
            without = tuple(map(_path, names))
            _write(store, lock, session, state.tip, text, actor, store.now_iso(), without=without)
        return tuple(plan.id for plan in dropped)


def _path(plan_id: str) -> str:
    return f"{FOLDER}/{plan_id}.json"


def _json(value: PendingPlan | _Counter) -> bytes:
    """Indented for people and `git diff`: one key per line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _state(store: Store, session: str) -> _State:
    """The pending plans at the newest commit. Raises: Damaged, Refused for a newer format."""
    ref = plans_ref(session)
    remove = program.advice(f"--git-dir={store.path}", "update-ref", "-d", ref)
    hint = f"`{remove}` removes the remaining plans; they contain no blocks"
    try:
        if ref not in store.repository.references:
            return _State()
        tip = str(store.repository.references[ref].target)
        root = store.repository[tip].peel(pygit2.Tree)
        counter = _counter_decoder.decode(_blob(root[COUNTER]))
        if counter.format > FORMAT:
            raise Refused(
                f"the plans of {session} have format {counter.format}; this ctxvc reads {FORMAT}", hint="update ctxvc"
            )
        plans = [_read(entry) for entry in (root[FOLDER].peel(pygit2.Tree) if FOLDER in root else ())]
        if any(plan.number > counter.last for plan in plans):
            raise ValueError("a plan's number exceeds the counter")
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError, pygit2.GitError) as error:
        raise Damaged(f"{ref}: the pending plans cannot be read: {error}", hint=hint) from error
    return _State(tip, counter.last, tuple(sorted(plans, key=lambda plan: plan.number)))


def _read(entry: pygit2.Object) -> PendingPlan:
    """The plan in a file. Raises: ValueError, RecursionError, msgspec.MsgspecError."""
    plan = _plan_decoder.decode(_blob(entry))
    if not _ID.fullmatch(plan.id) or entry.name != f"{plan.id}.json":
        raise ValueError(f"{entry.name} is another plan's name")
    return plan


def _blob(entry: pygit2.Object) -> bytes:
    """The bytes of a file in a plans tree. Raises: ValueError if it is not a file, or is too big."""
    if not isinstance(entry, pygit2.Blob) or entry.size > LARGEST:
        raise ValueError(f"{entry.name} is not a plan")
    return entry.data


def _write(
    store: Store,
    lock: int,
    session: str,
    tip: str,
    text: str,
    actor: str,
    time: str,
    *,
    files: tuple[tuple[str, bytes], ...] = (),
    without: tuple[str, ...] = (),
) -> None:
    """Adds one commit on top of `tip`, only if that is still the newest. Raises: Conflict, CtxvcError."""
    now = store.now()
    commit = Commit(
        ref=plans_ref(session),
        message=text,
        actor=actor,
        time=epoch(time, now),
        now=now,
        files=files,
        without=without,
        parent=tip,
    )
    store.write([commit], lock)
