"""Notes of a scope: listing them, and adding one, together with the blocks that leave the prompt for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ctxvc.core import display
from ctxvc.core import scope as scoping
from ctxvc.core.ledger import notes as noting
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Action, Plan, Problem
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.errors import Phrase, Refused
from ctxvc.session.context import Context, touched
from ctxvc.store.log.stored_session import StoredSession


class Note(msgspec.Struct, frozen=True):
    """A note of a scope: its block, the step it was written in, its text, its labels, the note that supersedes it."""

    block: str
    step: int
    text: str
    labels: tuple[str, ...] = ()
    superseded: str = ""


class Noted(msgspec.Struct, frozen=True):
    """The result of `note`: the note's block, the blocks that left with it, the tokens freed, and refused targets."""

    block: str
    archived: tuple[str, ...] = ()
    freed: int = 0
    problems: tuple[Problem, ...] = ()


def notes(stored: StoredSession, scope: str = "", label: str = "") -> list[Note]:
    """The notes of a scope; see `Session.notes`."""
    ledger = stored.ledger(scope)
    superseded = noting.superseded(ledger)
    rows = [row for row in ledger.rows() if row.kind == "note" and row.state != "deleted"]
    return [
        Note(
            block=row.id,
            step=row.step,
            text=display.decode(stored.body(row, scope)),
            labels=noting.labels_of(row),
            superseded=superseded.get(row.id, ""),
        )
        for row in rows
        if not label or label in noting.labels_of(row)
    ]


def note(
    context: Context,
    text: str,
    labels: Sequence[str],
    supersedes: str | Sequence[str],
    *,
    fold: bool,
    allow_user: bool,
) -> Noted:
    """Adds a note; see `Session.note`."""
    labels = noting.checked_labels(labels)
    if not fold and not supersedes:
        return Noted(context.stored.note(text, actor=context.actor, labels=labels))
    return context.on_newest(lambda: _note(context, text, labels, supersedes, fold=fold, allow_user=allow_user))


def _note(
    context: Context,
    lesson: str,
    labels: Sequence[str],
    supersedes: str | Sequence[str],
    *,
    fold: bool,
    allow_user: bool,
) -> Noted:
    ledger, block = context.ledger(), f"B{context.stored.next_block}"
    targets, problems = selection.expand(supersedes, ledger) if supersedes else ((), ())
    span = tuple(one for one in scoping.span(ledger) if one not in targets) if fold else ()
    actions = [Action(verb="archive", targets=span, index=lesson)] if span else []
    if targets:
        actions.append(Action(verb="archive", targets=targets, index=f"superseded by {block}"))
    plan = Plan(actions=tuple(actions), actor=context.actor, allow_user=allow_user)
    rehearsal = rehearse(context.view(), plan)
    refused = {problem.target for problem in rehearsal.problems if problem.why not in ("no saving", "gone")}
    replaced = [target for target in targets if target not in refused]
    problems = (*problems, *rehearsal.problems)
    if supersedes and not replaced:
        why = problems[0].text if problems else "no block is named"
        raise Refused(f"it supersedes nothing: {why}; nothing was noted", hint=Phrase("list-blocks"))
    written = context.stored.note(
        lesson,
        actor=context.actor,
        labels=labels,
        supersedes=replaced,
        rows=rehearsal.rows,
        groups=rehearsal.groups,
        meta=context.edited(rehearsal) if rehearsal else {},
        trailers={"Ctxvc-Blocks": touched(rehearsal)} if rehearsal else {},
        block=block if targets else "",
    )
    context.changed = True
    return Noted(written, tuple(row.id for row in rehearsal.rows), rehearsal.freed, tuple(problems))
