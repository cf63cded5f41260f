"""A flush: what is acknowledged becomes commits, branches move, HEAD last, and the journal lets go of it.

A crash between any two of these leaves a store that is right (docs/architecture.md, what a crash leaves).
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxvc.store.format import ref_of
from ctxvc.store.git.fast_import import Commit, epoch, storable_date
from ctxvc.store.log.commits import Planned, plan_all
from ctxvc.store.log.state import Known


def flush(known: Known, lock: int) -> None:
    """Everything but open steps, and the verbs made meanwhile, is committed. `known` is up to date before and after.

    `lock` is the file descriptor of the session's lock, which the caller holds.
    Raises: CtxvcError; then what is not committed is in the journal.
    """
    assert known.head is not None
    scopes = {
        name: (held.committed if held.start is None else held.start, held.pending)
        for name, held in known.scopes.items()
        if held.pending
    }
    planned, rest = plan_all(scopes, known.head.journal, known.committed)
    ids = known.store.write(_commits(known, planned), lock) if planned else {}
    for item in planned:  # of each scope, the last one stays
        held = known.scopes[item.scope]
        held.move(ids[ref_of(known.name, item.scope)], item.after, item.seq, rest[item.scope])
    moved, known.moved_to = known.moved_to, ""
    if moved:
        known.store.set_current_scope(known.name, moved)
    left = {item.seq for held in known.scopes.values() for item in held.pending}
    frames = [found for found in known.frames if not left.isdisjoint(range(found[0], found[1] + 1))]
    if moved or len(frames) < len(known.frames):
        known.frames = frames
        known.rewrite()


def _commits(known: Known, planned: Sequence[Planned]) -> list[Commit]:
    commits = []
    for item in planned:
        now = storable_date(item.written) or known.store.now()
        commits.append(
            Commit(
                ref=ref_of(known.name, item.scope),
                before=item.before,
                after=item.after,
                bodies=item.bodies,
                message=item.message,
                actor=item.actor,
                time=epoch(item.time, now),
                now=now,
                parent=item.origin or known.scopes[item.scope].tip,
                merge=item.merge,
            )
        )
    return commits
