"""The two cases that Self-GC reports of sessions that went wrong (section "Failure Categories and Case Studies").

Both hold for every policy here, at every budget: what a human said stays, and what a contract file said stays. They are
looked at by all and changed by none.
"""

from __future__ import annotations

from functools import cache

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.plan import Rehearsal
from ctxvc.core.plan.guard import guard
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.request import request
from ctxvc.policies.composed import after
from tests.policies.laws import BUDGETS
from tests.policies.recorded import Run

CORRECTION = "Do not replace the table header; edit single cells only."
CONTRACT = "Every record has an id of eight digits. Dates are written 2026-01-31. Ask before a record is merged."


@cache
def repair_loop() -> Run:
    """A document is repaired; attempts that break the table's header are corrected by its owner, early on."""
    talk = Talk()
    talk.says("Fix the report spreadsheet. Keep its formulas.")
    talk.does("Read", "/work/report.xml", rows(300))
    talk.answers("I replaced the header to make it wider.")
    talk.says(CORRECTION)
    for attempt in range(4):
        talk.does("Edit", f"/work/report.xml, attempt {attempt}", rows(120), error=True)
    talk.answers("The header is back.")
    talk.works(turns=12)
    return talk.run


@cache
def data_entry() -> Run:
    """Many records are entered by a contract that was written down and read in the first turn."""
    talk = Talk()
    talk.says("Set up the data entry.")
    talk.does("Read", "/work/AGENTS.md", CONTRACT)
    talk.does("Write", "/work/reference.csv", rows(500))
    talk.answers("The contract and the reference are in place.")
    talk.works(turns=14)
    return talk.run


def survives(policy: Policy) -> list[Rehearsal]:
    """Asserts that both cases hold under the policy, alone and with the guard behind it; what it did in each."""
    rehearsals: list[Rehearsal] = []
    for run, words in ((repair_loop(), CORRECTION), (data_entry(), CONTRACT)):
        for budget in BUDGETS[:2]:  # either conversation fits into the others
            view = run.view(budget)
            rehearsal = rehearse(view, policy.propose(view))
            settled = after(view, rehearsal.after)
            guarded = guard(settled)
            for ledger in (rehearsal.after, guarded.after if guarded else rehearsal.after):
                sent = str(request(ledger, run.held(), None, None).messages)
                assert words in sent, f"{policy.name} at {budget:,}: {words!r} is gone"
            rehearsals.append(rehearsal)
    return rehearsals


class Talk:
    """A conversation in the making: who says what, and what tools answer."""

    def __init__(self) -> None:
        self.run = Run()
        self._calls = 0

    def says(self, words: str) -> None:
        self.run.append(Message(role="user", parts=(wire.text_part(words, "user", "human"),)))

    def answers(self, words: str) -> None:
        self.run.append(Message(role="assistant", parts=(wire.text_part(words, "assistant", "model"),)))

    def does(self, tool: str, argument: str, output: str, *, error: bool = False) -> str:
        """A step: one call and its result; the result's block."""
        self._calls += 1
        call = f"c{self._calls}"
        arguments = wire.compact({"path": argument})
        self.run.append(Message(role="assistant", parts=(wire.call_part(tool, call, arguments),)))
        self.run.append(Message(role="user", parts=(wire.result_part(output, call, error=error),)))
        return f"B{self.run.ledger.meta.counters.block}"

    def works(self, turns: int) -> None:
        """Turns of ordinary, bulky work."""
        for turn in range(turns):
            self.says(f"Now record {turn}.")
            for step in range(4):
                self.does("Bash", f"enter --record {turn} --page {step}", rows(200, turn))
            self.answers(f"Record {turn} is entered.")


def growing() -> Run:
    """Two turns with results of growing size, B3, B5, B7 and B10, B12; and a third that is only talk."""
    talk = Talk()
    for sizes in ((50, 100, 300), (200, 150)):
        talk.says("Go on")
        for size in sizes:
            talk.does("Bash", f"look {size}", rows(size))
    talk.says("And?")
    talk.answers("That is all.")
    return talk.run


def working(turns: int = 4) -> Run:
    """Turns of four calls with 900 tokens each: turn 1 has B1 asked, B2 to B9 done, B10 answered; and so on."""
    talk = Talk()
    talk.works(turns)
    return talk.run


def rows(count: int, salt: int = 0) -> str:
    """A table that no two lines of which are alike."""
    trees = ("oak", "elm", "ash", "fir", "yew", "box", "bay", "fig")
    return "\n".join(
        f"{number:04} {trees[(number + salt) % 8]} {trees[number // 8 % 8]} {trees[number // 64 % 8]}"
        for number in range(count)
    )
