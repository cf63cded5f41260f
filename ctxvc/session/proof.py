"""Proof of sent prompts: a step's commit has the hash of the prompt that its reply saw, and a tree that renders it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt.request import request, up_to
from ctxvc.errors import CtxvcError
from ctxvc.store.read import revision
from ctxvc.store.read.revision import PROMPT, Entry, Sent, Snapshot, sent_prompt
from ctxvc.store.store import Store
from ctxvc.store.verify.finding import Finding, Where, damage


def check_prompts(store: Store, progress: Callable[[int], None] = lambda _: None) -> tuple[int, list[Finding]]:
    """Renders every prompt whose hash is recorded; returns their number, and a finding for each that differs.

    Calls `progress` with the number of prompts so far.
    """
    count = 0
    findings: list[Finding] = []
    seen: set[str] = set()
    for session, tips in sorted(store.all_tips().items()):
        for scope, tip in sorted(tips.items()):
            newer: list[str] = []
            for entry in revision.history(store, tip):
                if entry.commit in seen:
                    break
                seen.add(entry.commit)
                if PROMPT in entry.trailers:
                    count += 1
                    progress(count)
                    if fault := _fault(store, entry, newer):
                        findings.append(damage(fault, Where(session=session, scope=scope, commit=entry.commit)))
                newer.append(entry.commit)
    return count, findings


def as_sent(store: Store, snapshot: Snapshot) -> Snapshot:
    """The prompt that a snapshot's newest reply saw: from its commit's trailer, else everything before the reply."""
    newer: list[str] = []
    for entry in revision.history(store, snapshot.commit):
        sent = sent_prompt(entry.trailers.get(PROMPT, ""))
        if sent and (commit := _rendering(store, entry.commit, sent.later, newer)):
            there = revision.at(store, commit)
            return msgspec.structs.replace(there, ledger=up_to(there.ledger, sent.last))
        if entry.op == "step":
            break
        newer.append(entry.commit)
    return msgspec.structs.replace(snapshot, ledger=up_to(snapshot.ledger, _before_reply(snapshot.ledger)))


def _fault(store: Store, entry: Entry, newer: list[str]) -> str:
    """The fault of the prompt that a commit records; empty if it renders byte for byte as sent."""
    sent = sent_prompt(entry.trailers[PROMPT])
    if sent is None:
        return "the hash of its prompt is unreadable"
    try:
        commit = _rendering(store, entry.commit, sent.later, newer)
        if not commit:
            return (
                f"its prompt needs {abs(sent.later)} commits {'after' if sent.later > 0 else 'before'} it, which "
                "are missing"
            )
        snapshot = revision.at(store, commit)
        rendered = request(up_to(snapshot.ledger, sent.last), snapshot.bodies, snapshot.system, snapshot.tools)
    except CtxvcError as error:
        return f"its prompt cannot be rendered: {error}"
    return "" if rendered.digest == sent.digest else "its prompt differs from the one sent"


def _rendering(store: Store, commit: str, later: int, newer: Sequence[str]) -> str:
    """The commit whose tree renders the prompt that the step at `commit` saw; empty if there is none.

    `newer` are the commits after it, newest first. Raises: Damaged.
    """
    if later > 0:
        return newer[-later] if later <= len(newer) else ""
    # The verbs between the call and its reply are the step's newest ancestors: the commit before them was sent.
    return next(islice(store.first_parents(commit), 1 - later if later else 0, None), "")


def recorded(
    sent: Sent, step: Ledger, requested: Ledger, *, between: int, render: Callable[[Ledger], str]
) -> Sent | None:
    """The record of a sent prompt against which its reply's commit can be checked; None if no commit renders it.

    `step` is the ledger that `sent` leads to unchanged, `requested` the one that was sent, `between` the number of
    verbs committed after the call and right before the step. `render` returns the digest of a ledger's prompt.
    """
    if render(up_to(step, sent.last)) == sent.digest:
        return sent
    earlier = msgspec.structs.replace(sent, later=-between)
    return earlier if between and render(up_to(requested, sent.last)) == sent.digest else None


def _before_reply(ledger: Ledger) -> str:
    """The newest block before the reply of the newest step that has one."""
    newest = max((row.step for row in ledger.rows() if row.role == "assistant"), default=0)
    first = next((row.number for row in ledger.rows() if row.step == newest and row.role == "assistant"), 1)
    earlier = [row.id for row in ledger.rows() if row.number < first]
    return earlier[-1] if earlier else ""
