"""Explicit scopes as a policy: a recorded session as if each of its tasks had been done in a scope of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import ClassVar

from ctxvc.core.display import one_line
from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of
from ctxvc.core.ledger.numbering import speaks
from ctxvc.core.plan import timing
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import REACH, Characters, Policy, Terms
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.scope import arrival, departure
from ctxvc.core.view.view import View
from ctxvc.policies import protocol
from ctxvc.policies.candidates import leaving, removable
from ctxvc.policies.knobs import numbers

#: The context tools of a session with scopes, besides those that every session has.
TOOLS = ("scope", "goto", "note", "scopes", "notes")
#: Characters of what was asked that a departure note repeats.
_ASKED = 80


class Scoped(Policy, frozen=True, kw_only=True):
    """Each finished task is replaced by a departure note and an arrival note, as if done in its own scope.

    Source: "explicit context management", sections 1.4 and 1.5 (scope isolation, asymmetric notes). A live agent opens
    scopes itself, with the tools of `terms`. In a recording, a task is a turn: from one human message to the next. It
    leaves once the next one is under way, as one group whose stub is both notes: why it was started, and its last words
    as the result. Knob: `note`, the most characters of these last words.

    An agent that has noted nothing for some steps in a scope is reminded of it on its board before it leaves: the
    result of `goto` stays in the former scope. The paper has no such rule; ctx-cli, its code, can remind after 5
    messages.

    Differs: the blocks that the notes replace are a group that can be recovered; in the paper a scope's messages are
    kept in memory, and no command reads them. Both notes are in one place, since a recording has only one line of
    reasoning. Going to a scope shows it as it was left, as in the paper, where visibility is a filter; ctx-cli's `goto`
    (its branch `main`) clears the messages of the destination, human text included, and its later branch puts no notes
    into the prompt. Here notes are in the prompt, and human text stays.
    """

    name: ClassVar[str] = "scoped"
    source: ClassVar[str] = "explicit context management, sections 1.4 and 1.5; its code, ctx-cli"
    decides: ClassVar[str] = "agent"
    sees: ClassVar[str] = "notes"
    recovers: ClassVar[str] = "yes (there: in memory)"

    note: Characters = 600

    def __post_init__(self) -> None:
        numbers(self, 1, "note")

    def propose(self, view: View) -> Plan:
        before = view.used
        requests = _requests(view.ledger)
        tasks = tuple(self._departure(view, requests.get(turn, ""), turn, rows) for turn, rows in _finished(view))
        if not tasks:
            return Plan(
                actions=(), actor=self.actor, reason=leaving(view, before, before, "no task has finished since")
            )
        actions, after = fewest_actions(view, Plan(actions=tasks, actor=self.actor), 0)
        what = f"finished tasks reduced to notes: {len(actions)}" if actions else "the notes would cost more"
        return Plan(actions=actions, actor=self.actor, reason=leaving(view, before, after, what))

    def terms(self) -> Terms:
        tools = (*TOOLS, *REACH)
        return Terms(tools=tools, protocol=protocol.text(tools))

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        """A scope was left: what was said in it is gone from the next call on."""
        return timing.reckon(view, rehearsal, self.timing).moment("a task's scope was left", now=bool(rehearsal))

    def _departure(self, view: View, request: str, turn: int, rows: list[Row]) -> Action:
        replies = [row for row in rows if row.kind == "assistant" and row.present]
        last_words = view.words(replies[-1]).strip() if replies else ""
        learned = last_words if len(last_words) <= self.note else one_line(last_words, self.note)
        name = f"task-{turn}"
        notes = (
            departure(name, request or "what comes next"),
            arrival(name, learned or f"{len(rows)} blocks, without a last word"),
        )
        return Action(verb="summarise", targets=tuple(row.id for row in rows), index="\n".join(notes))


def _finished(view: View) -> Iterator[tuple[int, list[Row]]]:
    """The turns before the current one that have not left yet, with what may leave of them.

    A turn whose last step is still the latest waits for the next reply, so that it leaves whole.
    """
    current = next((row.turn for row in view.ledger.backwards() if row.role == "assistant"), 0)
    departed_turns = _left_before(view.ledger)
    for turn, rows in groupby(removable(view, alone=True), key=attrgetter("turn")):
        if turn < current and turn not in departed_turns:
            yield turn, list(rows)


def _left_before(ledger: Ledger) -> frozenset[int]:
    """The turns of which something stands behind a summary: what came back of them since came back for a reason."""
    groups = ledger.groups
    behind = (block for name, group in groups.items() if is_summary(group.stub) for block in blocks_of(groups, name))
    return frozenset(row.turn for block in behind if (row := ledger.get(block)))


def _requests(ledger: Ledger) -> dict[int, str]:
    """turn → how the human began it, in a line."""
    requests: dict[int, str] = {}
    for row in ledger.rows():
        if speaks(row.kind, row.role, row.origin):
            requests.setdefault(row.turn, one_line(row.label, _ASKED))
    return requests
