"""Undo: the newest change of a scope's prompt, taken back by a new commit."""

from __future__ import annotations

from ctxvc.core.plan import undo as undoing
from ctxvc.core.plan.plan import Plan, Rehearsal
from ctxvc.core.view.view import measure
from ctxvc.errors import Phrase, Refused
from ctxvc.session.context import Context
from ctxvc.store import revision

#: Operations that can be taken back, besides a note that folded something.
UNDOABLE = frozenset({"archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise", "plan"})


def undo(context: Context) -> tuple[Rehearsal, str]:
    """Takes back the newest change; gives the rehearsal, and the subject of the change; see `Session.undo`."""
    context.stored.flush()
    if context.stored.meanwhile:
        raise Refused("a step is open: what was changed in it is not committed yet", hint="undo after the step")
    entry = _last_verb(context)
    if entry.trailers.get("Ctxvc-Actor") == "user" and context.actor != "user":
        raise Refused(f"a person did {entry.subject!r}: only a person takes it back", hint="ask, or go on without it")
    view = context.view()
    ledger = context.store.reader.ledger
    rows, groups, problems = undoing.inverse(ledger(entry.parents[0]), ledger(entry.commit), view.ledger)
    if not rows and not groups:
        why = problems[0].text if problems else "it changed nothing that still stands"
        raise Refused(f"nothing is left to undo of {entry.subject!r}", hint=why)
    after = view.ledger.with_rows(rows).with_groups(groups)
    rehearsal = Rehearsal(
        plan=Plan(actions=(), actor=context.actor, reason=f"undo of {entry.commit[:12]}"),
        after=after,
        rows=rows,
        groups=groups,
        done=(),
        problems=problems,
        tokens_before=view.counted,
        tokens_after=view.overhead + measure(after, view.price),
    )
    needed = view.calibrated(rehearsal.tokens_after)
    if needed > view.budget.effective and rehearsal.freed < 0:
        raise Refused(
            f"there is no room: the prompt would be {needed:,} tokens of {view.budget.effective:,}",
            hint="archive something else first",
        )
    context.record(rehearsal, f"undo: {entry.subject}", "undo", {"Ctxvc-Undoes": entry.commit})
    return rehearsal, entry.subject


def _last_verb(context: Context) -> revision.Entry:
    undone: set[str] = set()
    for entry in revision.history(context.store, context.stored.tip()):
        op = entry.trailers.get("Ctxvc-Op", "")
        if op == "undo":
            undone.add(entry.trailers.get("Ctxvc-Undoes", ""))
        elif op in ("scope", "session"):
            break  # changes in the scope from which this one was opened are not undone here
        elif entry.commit not in undone and (op in UNDOABLE or (op == "note" and "Ctxvc-Blocks" in entry.trailers)):
            return entry
    raise Refused("nothing to undo in this scope", hint=Phrase("list-changes"))
