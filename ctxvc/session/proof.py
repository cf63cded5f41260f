"""Proof of sent prompts: a step's commit has the hash of the prompt that its reply saw, and its tree renders it."""

from __future__ import annotations

import re

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt.request import request, up_to
from ctxvc.errors import CtxvcError
from ctxvc.store import revision
from ctxvc.store.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.store.verify.finding import Finding, Where, damage

TRAILER = "Ctxvc-Prompt"
_SENT = re.compile(r"([0-9a-f]{64}) (B[1-9][0-9]*|-)(?: \+([1-9][0-9]*))?")


class Sent(msgspec.Struct, frozen=True):
    """A commit's record of the prompt that its reply saw.

    `digest` is its hash, `last` its newest block. `later` counts the verbs in the open step before the call: their
    commits come right after the step's, and the sent prompt has their effect.
    """

    digest: str
    last: str
    later: int = 0

    def __str__(self) -> str:
        return f"{self.digest} {self.last or '-'}" + (f" +{self.later}" if self.later else "")


def parse(trailer: str) -> Sent | None:
    """The record in a trailer; None if it is not one."""
    match = _SENT.fullmatch(trailer)
    return Sent(match[1], "" if match[2] == "-" else match[2], int(match[3] or 0)) if match else None


def check_prompts(store: Store) -> tuple[int, list[Finding]]:
    """Renders every prompt whose hash is recorded; gives their number, and a finding for each that differs."""
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
                if TRAILER in entry.trailers:
                    count += 1
                    if fault := _fault(store, entry, newer):
                        findings.append(damage(fault, Where(session=session, scope=scope, commit=entry.commit)))
                newer.append(entry.commit)
    return count, findings


def as_sent(store: Store, snapshot: Snapshot) -> Snapshot:
    """The prompt that a snapshot's newest reply saw: by its commit's trailer, else everything before the reply."""
    newer: list[str] = []
    for entry in revision.history(store, snapshot.commit):
        sent = parse(entry.trailers.get(TRAILER, ""))
        if sent and sent.later <= len(newer):
            later = revision.at(store, newer[-sent.later] if sent.later else entry.commit)
            return msgspec.structs.replace(later, ledger=up_to(later.ledger, sent.last))
        if entry.trailers.get("Ctxvc-Op") == "step":
            break
        newer.append(entry.commit)
    return msgspec.structs.replace(snapshot, ledger=up_to(snapshot.ledger, _before_reply(snapshot.ledger)))


def _fault(store: Store, entry: Entry, newer: list[str]) -> str:
    """The fault in the prompt that a commit records; empty if it renders the sent prompt byte for byte."""
    sent = parse(entry.trailers[TRAILER])
    if sent is None:
        return "the hash of its prompt cannot be read"
    if sent.later > len(newer):
        return f"its prompt needs the {sent.later} commits behind it, and there are {len(newer)}"
    try:
        snapshot = revision.at(store, newer[-sent.later] if sent.later else entry.commit)
        rendered = request(up_to(snapshot.ledger, sent.last), snapshot.bodies, snapshot.system, snapshot.tools)
    except CtxvcError as error:
        return f"its prompt cannot be rendered: {error}"
    return "" if rendered.digest == sent.digest else "its prompt is not what was sent"


def _before_reply(ledger: Ledger) -> str:
    """The newest block before the reply of the newest step that has one."""
    newest = max((row.step for row in ledger.rows() if row.role == "assistant"), default=0)
    first = next((row.number for row in ledger.rows() if row.step == newest and row.role == "assistant"), 1)
    earlier = [row.id for row in ledger.rows() if row.number < first]
    return earlier[-1] if earlier else ""
