"""Explicit scopes as a policy: treats each task of a recorded session as if it had its own scope."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import ClassVar

from ctxvc.core.display import one_line
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of
from ctxvc.core.ledger.numbering import is_human, speaks
from ctxvc.core.ledger.pairs import results_of
from ctxvc.core.plan import timing
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import REACH, Characters, Policy, Terms
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.scope import arrival, departure
from ctxvc.core.view.view import View
from ctxvc.policies import context_text
from ctxvc.policies.candidates import leaving, removable

#: The context tools of a session with scopes, besides those that every session has.
TOOLS = ("scope", "goto", "note", "scopes", "notes")
#: Most characters of the request that a departure note repeats.
_ASKED = 80


class Scoped(Policy, frozen=True, kw_only=True):
    """Each finished task is replaced by a departure note and an arrival note, as if done in its own scope.

    Source: "explicit context management", sections 1.4 and 1.5 (scope isolation, asymmetric notes). A live agent opens
    scopes itself, with the tools of `terms`. In a recording, a task is a turn: from one human message to the next. It
    leaves once the next one is under way, as one group whose stub is both notes: why it was started, and its last words
    as the result. Knob: `note`, the most characters of these last words.

    In an agent's own scopes, what is said twice leaves with the next cut: copies of notes that the scope took along
    (its own stay, the board shows the last five, and `notes` gives the rest), and the call of `scope` whose departure
    note is there.

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

    def propose(self, view: View) -> Plan:
        before = view.used
        requests = _requests(view.ledger)
        tasks = [self._departure(view, requests.get(turn, ""), turn, rows) for turn, rows in _finished(view)]
        twice = [*_copies(view), *_departed(view)]
        if not tasks and not twice:
            return Plan(
                actions=(), actor=self.actor, reason=leaving(view, before, before, "no task has finished since")
            )
        actions, after = fewest_actions(view, Plan(actions=(*twice, *tasks), actor=self.actor), 0)
        count = sum(action.verb == "summarise" for action in actions)
        deeds = [f"finished tasks reduced to notes: {count}"] if count else []
        deeds += ["what is said twice"] if count < len(actions) else []
        reason = leaving(view, before, after, ", ".join(deeds) or "the notes would cost more")
        return Plan(actions=actions, actor=self.actor, reason=reason)

    def terms(self) -> Terms:
        tools = (*TOOLS, *REACH)
        return Terms(tools=tools, protocol=context_text.text(tools))

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        """At once if a task leaves, as a scope does when it is left; duplicates alone wait for a cut."""
        if not any(action.verb == "summarise" for action in rehearsal.done):
            return timing.moment(view, rehearsal, self.timing)
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


def _copies(view: View) -> Iterator[Action]:
    """Archives the notes that the scope took along, except the one on why it was opened."""
    ledger = view.ledger
    notes = [row for row in ledger.rows() if row.kind == "note"]
    opened = next((row.number for row in reversed(notes) if _switch(row, "to") == ledger.meta.scope), 0)
    copies = tuple(
        row.id for row in notes if row.number < opened and row.state == "visible" and not is_human(row.role, row.origin)
    )
    if copies:
        yield Action(verb="archive", targets=copies, index=f"notes of {ledger.meta.parent}, taken along")


def _departed(view: View) -> Iterator[Action]:
    """Prunes the calls that opened scopes, with their results, if their departure notes are in the prompt."""
    departed = {row.step for row in view.ledger.rows() if row.kind == "note" and row.present and _switch(row, "to")}
    leavable = {row.id: row for row in removable(view)}
    results = results_of(view.ledger.rows())
    for row in leavable.values():
        result = results.get(row.id) if _is_opening(row) and row.step in departed else None
        if result and result.id in leavable and not result.error:
            yield Action(verb="prune", targets=(row.id, result.id), index="its departure note says the same")


def _is_opening(row: Row) -> bool:
    return row.kind == "tool_use" and row.tool.rpartition("context_")[2] == "scope"


def _switch(row: Row, way: str) -> str:
    """The scope in a note's metadata under `way`, such as `to`; empty for any other row."""
    return str(wire.own_metadata(row.extra).get(way) or "")


def _finished(view: View) -> Iterator[tuple[int, list[Row]]]:
    """The turns before the current one that have not left yet, each with its removable blocks.

    A turn whose last step is still the latest waits for the next reply, so that it leaves whole.
    """
    current = next((row.turn for row in view.ledger.backwards() if row.role == "assistant"), 0)
    departed_turns = _left_before(view.ledger) | _scoped(view.ledger)
    for turn, rows in groupby(removable(view, alone=True), key=attrgetter("turn")):
        if turn < current and turn not in departed_turns:
            yield turn, list(rows)


def _left_before(ledger: Ledger) -> frozenset[int]:
    """The turns with a block behind a summary. They do not leave again: what was restored was restored for a reason."""
    groups = ledger.groups
    blocks = (block for name, group in groups.items() if is_summary(group.stub) for block in blocks_of(groups, name))
    return frozenset(row.turn for block in blocks if (row := ledger.get(block)))


def _scoped(ledger: Ledger) -> frozenset[int]:
    """The turns in which the agent used scopes itself; they already have notes."""
    return frozenset(row.turn for row in ledger.rows() if row.kind == "note" and _switch(row, "to"))


def _requests(ledger: Ledger) -> dict[int, str]:
    """turn → the human text that began it, in one line."""
    requests: dict[int, str] = {}
    for row in ledger.rows():
        if speaks(row.kind, row.role, row.origin):
            requests.setdefault(row.turn, one_line(row.label, _ASKED))
    return requests
