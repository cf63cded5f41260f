"""What the store has of a client's session: every request, byte for byte, in one session that is sound."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import sent_body
from ctxvc.store.store import Store
from tests.hosts.coding import run_ctxvc
from tests.hosts.wire.tap import Passed


def check(store: Path, calls: Sequence[Passed], sessions: int, broken: Sequence[Passed] = ()) -> None:
    """Each call's body is that of a step, as `prompt --sent REV --exact` writes it, and no other is there.

    `sessions`: how many these are. `broken` may be steps, too: their answers broke off, and a client may keep a part.
    """
    steps = dict(_steps(store))
    exact, sent = Counter(steps.values()), Counter(call.body for call in calls)
    missing = [body[-300:] for body in sent - exact]
    assert not missing, f"{len(missing)} of {len(calls)} bodies are not in the store: {missing[:3]}"
    more = exact - sent - Counter(call.body for call in broken)
    assert not more, f"steps of requests that nobody sent: {[step for step, body in steps.items() if body in more]}"
    assert len({session for session, _ in steps}) == sessions, list(steps)
    for (session, rev), body in list(steps.items())[:2]:
        assert run_ctxvc(store.parent, "--session", session, "prompt", "--sent", rev, "--exact").encode() == body
    subprocess.run(["git", "-C", store, "fsck", "--full", "--strict"], check=True, capture_output=True)
    run_ctxvc(store.parent, "verify")


def _steps(store: Path) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Session and revision of every step, that which has not ended yet included, with the body of its request."""
    with Store(store) as opened:
        for session in opened.sessions():
            for scope in opened.tips(session):
                stored = StoredSession.for_reading(opened, session, scope)
                for entry in revision.history(opened, stored.tip()):
                    if entry.trailers.get("Ctxvc-Op") == "step" and opened.reader.pieces(entry.commit):
                        yield (session, entry.commit), sent_body(stored, revision.at(opened, entry.commit))
                if stored.in_step:
                    yield (session, scope), sent_body(stored, revision.now(stored))
