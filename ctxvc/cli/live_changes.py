"""Changes from the live page: what one would do is shown first, and made when it is asked for again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

import msgspec

from ctxvc.cli import answers
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
from ctxvc.store import local_cache, operations, revision
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: Plans that are kept, blocks that one may have, characters of a name, lines of a plan that are shown.
_PLANS, _BLOCKS, _NAME, _LINES = 50, 1_000, 300, 40
_VERBS = ("archive", "restore", "pin", "unpin")
_UNDO = "undo"
_Name = Annotated[str, msgspec.Meta(max_length=_NAME)]


class Wanted(msgspec.Struct, frozen=True):
    """A change that a person wants: a verb on blocks of a session, or `undo`, which takes none."""

    session: _Name
    verb: _Name
    blocks: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=_BLOCKS)] = ()


class Apply(msgspec.Struct, frozen=True):
    """A plan that was shown, and is to be made true."""

    session: _Name
    plan: _Name


class Changes:
    """The plans that were shown and not applied yet."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[Wanted, str]] = {}
        self._lock = threading.Lock()

    def plan(self, stored: StoredSession, wanted: Wanted) -> Any:
        """What a change would do, and the token by which it is applied; a problem where it would do nothing.

        Raises: BadInput.
        """
        state = state_of(stored.store, stored.name)
        if wanted.verb == _UNDO:
            lines, saves, problem = _undoing(stored)
        else:
            lines, saves, problem = _acting(Session(stored, actor="user"), wanted)  # not closed: that would flush
        token = "" if problem else self._kept(wanted, state)
        return {"plan": lines, "saves": saves, "token": token, "problem": problem or None}

    def apply(self, stored: StoredSession, asked: Apply) -> Any:
        """Makes a plan true that was shown. Raises: BadInput, Conflict if the session has changed since, CtxvcError."""
        with self._lock:
            wanted, state = self._plans.pop(asked.plan, (None, ""))
        if wanted is None or wanted.session != asked.session:
            raise BadInput("there is no such plan, or it was applied already", hint="plan it again")
        if state_of(stored.store, stored.name) != state:
            raise Conflict("the session has changed since the plan was shown", hint="plan it again")
        with Session(stored, actor="user") as session:
            if wanted.verb == _UNDO:
                rehearsal, _ = session.undo()
            else:
                rehearsal = session.verb(_verb(wanted.verb), wanted.blocks)
            tokens, word = abs(rehearsal.freed), "freed" if rehearsal.freed >= 0 else "added"
            stored.flush()
            return {"done": bool(rehearsal), "commit": stored.tip(), "message": f"{tokens:,} tokens {word}"}

    def _kept(self, wanted: Wanted, state: str) -> str:
        token = new_token()
        with self._lock:
            self._plans[token] = wanted, state
            while len(self._plans) > _PLANS:
                del self._plans[next(iter(self._plans))]
        return token


def _acting(session: Session, wanted: Wanted) -> tuple[list[str], int, str]:
    """What a verb on blocks would do: in lines, in tokens that it frees, and why not."""
    targets, problems = selection.expand(list(wanted.blocks), session.ledger())
    verb = _verb(wanted.verb)
    actions = (Action(verb=verb, targets=targets),) if targets else ()
    view = session.view()
    tried = rehearse(view, Plan(actions=actions, actor="user"), roll_up=True)
    skipped = [answers.LeftOut(target=one.target, why=one.why, text=one.text) for one in (*problems, *tried.problems)]
    reasons = list(left_out(verb, skipped))
    if not tried:
        return [], 0, "; ".join(reasons) or "nothing would change"
    return [*_lines(session, tried), *reasons], tried.freed, ""


def _lines(session: Session, tried: Rehearsal) -> Iterator[str]:
    labels = labels_of(revision.now(session.stored), [row.id for row in tried.rows[:_LINES]])
    for row in tried.rows[:_LINES]:
        yield f"{row.id} becomes {row.state}{f' in {row.group}' if row.group else ''}: {labels.get(row.id, row.label)}"
    if len(tried.rows) > _LINES:
        yield f"and {len(tried.rows) - _LINES:,} more blocks"
    yield (f"the prompt has {human_tokens(tried.tokens_after)} tokens then, {human_tokens(tried.tokens_before)} now")


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
