"""Changes from the live page: each is shown as a plan first, and made once it is confirmed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

import msgspec

from ctxvc.cli.answers.shared import LeftOut, struct_of
from ctxvc.cli.verb import left_out
from ctxvc.core.display import human_tokens, one_line
from ctxvc.core.ledger.block import Verb
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.errors import BadInput, Conflict
from ctxvc.inspection.captions import labels_of
from ctxvc.loopback import new_token
from ctxvc.session.session import Session
from ctxvc.store.cache import local_cache
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import operations, revision
from ctxvc.store.store import Store

#: Plans that are kept, blocks that one may have, characters of a name, lines of a plan that are shown.
_PLANS, _BLOCKS, _NAME, _LINES = 50, 1_000, 300, 40
_VERBS = ("archive", "restore", "pin", "unpin")
_UNDO = "undo"
_Name = Annotated[str, msgspec.Meta(max_length=_NAME)]


class ChangeRequest(msgspec.Struct, frozen=True):
    """A change that a person wants: a verb on blocks of a session, or `undo`, which takes none."""

    session: _Name
    verb: _Name
    blocks: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=_BLOCKS)] = ()


class Apply(msgspec.Struct, frozen=True):
    """A request to apply a plan that was shown."""

    session: _Name
    plan: _Name


class Changes:
    """The plans that were shown and are not applied yet."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[ChangeRequest, str]] = {}
        self._lock = threading.Lock()

    def plan(self, stored: StoredSession, change: ChangeRequest) -> Any:
        """What a change would do, and the token by which it is applied; a problem where it would do nothing.

        Raises: BadInput.
        """
        state = state_of(stored.store, stored.name)
        if change.verb == _UNDO:
            lines, saves, problem = _undoing(stored)
        else:
            lines, saves, problem = _acting(Session(stored, actor="user"), change)  # not closed: that would flush
        token = "" if problem else self._remember(change, state)
        return {"plan": lines, "saves": saves, "token": token, "problem": problem or None}

    def apply(self, stored: StoredSession, approval: Apply) -> Any:
        """Applies a plan that was shown. Raises: BadInput, Conflict if the session has changed since, CtxvcError."""
        with self._lock:
            change, state = self._plans.pop(approval.plan, (None, ""))
        if change is None or change.session != approval.session:
            raise BadInput("there is no such plan, or it was applied already", hint="plan it again")
        if state_of(stored.store, stored.name) != state:
            raise Conflict("the session has changed since the plan was shown", hint="plan it again")
        with Session(stored, actor="user") as session:
            if change.verb == _UNDO:
                rehearsal, _ = session.undo()
            else:
                rehearsal = session.verb(_verb(change.verb), change.blocks)
            tokens, word = abs(rehearsal.freed), "freed" if rehearsal.freed >= 0 else "added"
            stored.flush()
            return {"done": bool(rehearsal), "commit": stored.tip(), "message": f"{tokens:,} tokens {word}"}

    def _remember(self, change: ChangeRequest, state: str) -> str:
        token = new_token()
        with self._lock:
            self._plans[token] = change, state
            while len(self._plans) > _PLANS:
                del self._plans[next(iter(self._plans))]
        return token


def _acting(session: Session, change: ChangeRequest) -> tuple[list[str], int, str]:
    """What a verb on blocks would do: in lines, in tokens that it frees, and why not."""
    targets, problems = selection.expand(list(change.blocks), session.ledger())
    verb = _verb(change.verb)
    actions = (Action(verb=verb, targets=targets),) if targets else ()
    view = session.view()
    rehearsal = rehearse(view, Plan(actions=actions, actor="user"), roll_up=True)
    skipped = [struct_of(LeftOut, one) for one in (*problems, *rehearsal.problems)]
    reasons = list(left_out(verb, skipped))
    if not rehearsal:
        return [], 0, "; ".join(reasons) or "nothing would change"
    return [*_lines(session, rehearsal), *reasons], rehearsal.freed, ""


def _lines(session: Session, rehearsal: Rehearsal) -> Iterator[str]:
    labels = labels_of(revision.now(session.stored), [row.id for row in rehearsal.rows[:_LINES]])
    for row in rehearsal.rows[:_LINES]:
        yield f"{row.id} becomes {row.state}{f' in {row.group}' if row.group else ''}: {labels.get(row.id, row.label)}"
    if len(rehearsal.rows) > _LINES:
        yield f"and {len(rehearsal.rows) - _LINES:,} more blocks"
    before, after = map(human_tokens, (rehearsal.tokens_before, rehearsal.tokens_after))
    yield f"the prompt has {after} tokens then, {before} now"


def _undoing(stored: StoredSession) -> tuple[list[str], int, str]:
    """What an undo would take back."""
    newest = next(iter(operations.undoable(operations.changes(stored))), None)
    if newest is None:
        return [], 0, "nothing in this scope can be undone"
    return [f"takes back, as a new commit: {one_line(newest.subject, 200)} (by {newest.actor})"], 0, ""


def _verb(name: str) -> Verb:
    """Raises: BadInput."""
    verbs: Sequence[Verb] = get_args(Verb)
    for verb in verbs:
        if verb == name and name in _VERBS:
            return verb
    raise BadInput(f"{name!r} cannot be done on this page", hint=f"one of {', '.join((*_VERBS, _UNDO))}")


def state_of(store: Store, session: str) -> str:
    """A text that changes whenever anything of a session does."""
    return local_cache.session_key(store, session, store.tips(session), "live")
