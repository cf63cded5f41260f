"""A flush: acknowledged records become commits, branches move, HEAD last, and the journal drops the records.

A crash between any two of these steps leaves a valid store (docs/architecture.md, what a crash leaves).
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxvc.store.format import ref_of
from ctxvc.store.git.fast_import import Commit, epoch, storable_date
from ctxvc.store.log.commits import PlannedCommit, plan_commits
from ctxvc.store.log.state import SessionState


def flush(state: SessionState, lock: int) -> None:
    """Commits everything except open steps and the verbs made during them. `state` is up to date before and after.

    `lock` is the file descriptor of the session's lock, which the caller holds.
    Raises: CtxvcError; then the journal has everything that is not committed.
    """
    assert state.head is not None
    scopes = {
        name: (scope_state.committed if scope_state.start is None else scope_state.start, scope_state.pending)
        for name, scope_state in state.scopes.items()
        if scope_state.pending
    }
    planned, rest = plan_commits(scopes, state.head.journal, state.committed)
    ids = state.store.write(_commits(state, planned), lock) if planned else {}
    for item in planned:  # the last commit of each scope wins
        scope_state = state.scopes[item.scope]
        scope_state.move(ids[ref_of(state.name, item.scope)], item.after, item.seq, rest[item.scope])
    moved, state.moved_to = state.moved_to, ""
    if moved:
        state.store.set_current_scope(state.name, moved)
    pending = {item.seq for scope_state in state.scopes.values() for item in scope_state.pending}
    frames = [frame for frame in state.frames if not pending.isdisjoint(range(frame[0], frame[1] + 1))]
    if moved or len(frames) < len(state.frames):
        state.frames = frames
        state.rewrite()


def _commits(state: SessionState, planned: Sequence[PlannedCommit]) -> list[Commit]:
    commits = []
    for item in planned:
        now = storable_date(item.written) or state.store.now()
        commits.append(
            Commit(
                ref=ref_of(state.name, item.scope),
                before=item.before,
                after=item.after,
                bodies=item.bodies,
                message=item.message,
                actor=item.actor,
                time=epoch(item.time, now),
                now=now,
                parent=item.origin or state.scopes[item.scope].tip,
                merge=item.merge,
                files=item.files,
                without=item.without,
            )
        )
    return commits
