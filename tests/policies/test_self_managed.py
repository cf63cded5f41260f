"""VISTA: the agent's own calls act, and the harness gives it what the paper owes it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Counters, Ledger, Meta, Row
from ctxvc.core.plan import Action, Plan, admission
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Terms
from ctxvc.core.view import dashboard as view
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.view import costs, measure
from ctxvc.policies import context_text, parse
from ctxvc.policies.baselines import Window
from ctxvc.policies.context_text import Wording
from ctxvc.policies.self_managed import TOOLS, SelfManaged
from tests.making.conversation import LONG, human, reply, step, steps
from tests.policies.laws import problems, read_out, settled
from tests.policies.recorded import Run, moved, running, states

# --- the preflight guard and the fixed rule


def test_the_largest_raw_results_leave_first_and_only_near_the_limit() -> None:
    made = running(
        human("Do it"), *steps(6), *step(10, LONG * 4), *steps(3, first=20), *step(30, LONG * 2), *steps(1, first=40)
    )
    assert not SelfManaged().propose(made.view(14_500)).actions
    plan = SelfManaged().propose(made.view(13_900))
    assert [action.targets for action in plan.actions] == [("B15",)]
    assert plan.pressure and plan.reason.startswith("13,698 of 13,900 tokens: over the guard")
    assert [action.targets for action in SelfManaged().propose(made.view(10_000)).actions][:2] == [("B15",), ("B23",)]


def test_the_guard_goes_on_to_a_low_water_mark() -> None:
    made = running(human("Do it"), *steps(15))
    rehearsal = settled(SelfManaged(), made, 12_900)
    assert rehearsal.tokens_after <= 0.9 * 12_900
    made.append(*step(50, LONG))
    assert not settled(SelfManaged(), made, 12_900)


def test_without_the_agent_the_oldest_steps_leave_down_to_the_share() -> None:
    """The ablation "auto-archive": the store stays, the choice is a fixed rule's."""
    made = running(human("Do it"), *steps(15))
    rehearsal = settled(SelfManaged(agent=False, share=0.5), made, 12_000)
    assert [action.targets for action in rehearsal.plan.actions][:2] == [("B2", "B3"), ("B4", "B5")]
    assert rehearsal.tokens_after <= 6_000 < rehearsal.tokens_after + 1_000


def test_without_archiving_nothing_is_externalised_by_rule() -> None:
    """Algorithm 1, line 12: the preflight offload needs the archive."""
    made = running(human("Do it"), *steps(20))
    plan = SelfManaged(archive=False).propose(made.view(12_000))
    assert not plan.actions and "nothing may be archived" in plan.reason and "too many" in plan.reason


# --- Algorithm 1 (appendix B)

Say = tuple[str, str]  # a context tool or `sh`, and its argument
Decide = Callable[[str, tuple[str, ...]], Say]
ENVIRONMENT = ("sh",)


@dataclass
class Loop:
    """The self-managed loop in memory, line by line: W = (visible, archived, blocked), a budget B, and an agent."""

    policy: SelfManaged
    budget: int
    run: Run = field(default_factory=Run)
    log: list[str] = field(default_factory=list)
    peak: int = 0

    def register(self, message: Message) -> None:
        """Lines 3 to 9: each new message becomes blocks; a result that is too large is blocked, with a notification."""
        before, last = self.tokens(), self.run.ledger.meta.counters.block
        self.run.append(message)
        rows = [row for row in self.run.ledger.rows() if row.number > last]
        words = admission.texts(rows, self.run.bodies)
        admitted = admission.admit(self.run.view(self.budget), rows, words, before)
        self.run.ledger = self.run.ledger.with_rows(admitted.rows)
        self.log.append("blocked" if admitted.overflow else "register")

    def tokens(self) -> int:
        return self.run.view(self.budget).used

    def dashboard(self) -> str:
        """Line 10."""
        seen = self.run.view(self.budget)
        board = view.dashboard(seen.ledger, costs(seen.ledger, seen.price), seen.budget.effective)
        self.log.append("dashboard")
        return model_dashboard.full_text(board, [], 0, cap=1_000, count=seen.price.text)

    def commit(self, plan: Plan) -> bool:
        rehearsal = rehearse(self.run.view(self.budget), plan)
        moved(self.run, rehearsal)
        return bool(rehearsal)

    def step(self, number: int, decide: Decide, output: Callable[[int], str], words: str) -> None:
        """Lines 10 to 25, with the registration of what the action gave."""
        board = self.dashboard()
        plan = self.policy.propose(self.run.view(self.budget))
        if plan.actions:  # lines 12 to 14
            assert self.tokens() > 0.98 * self.budget
            assert self.commit(plan)
            assert self.tokens() <= 0.98 * self.budget
            self.log.append("preflight")
            board = self.dashboard()
        self.peak = max(self.peak, self.tokens())
        tools = self.policy.tools + (() if self.tokens() > self.budget else ENVIRONMENT)  # lines 15 to 19
        tool, argument = decide(board, tools)
        assert tool in tools
        assert not problems(self.run.view(self.budget), self.run)
        if tool in ("archive", "delete"):  # lines 20 and 21
            action = Action(verb=tool, targets=(argument,), index="not needed now")  # type: ignore[arg-type]
            assert self.commit(Plan(actions=(action,), actor="agent"))
            self.log.append(tool)
        else:  # lines 22 to 24
            asked, given = step(number, output(number), words=words)
            self.register(asked)
            self.register(given)


def numbered(number: int) -> str:
    return f"row {number}: {'x' * 60}\n" * 40  # 730 tokens


def largest_visible(board: str) -> str:
    """The largest result that the dashboard shows as visible, but for the newest step's; empty where there is none."""
    rows = re.findall(r"^(B\d+) (\d+) (\d+)r tool_result \d+ \S+ visible ", board, re.MULTILINE)
    return max(((int(tokens), block) for block, tokens, age in rows if int(age) > 0), default=(0, ""))[1]


def percent(board: str) -> int:
    found = re.search(r"(\d+) %", board)
    assert found
    return int(found[1])


def managing(board: str, tools: tuple[str, ...]) -> Say:
    """An agent that reads its dashboard: above 60 % it archives the largest result that it sees."""
    if percent(board) > 60 and (block := largest_visible(board)):
        return "archive", block
    return "sh", ""


def lazy(board: str, tools: tuple[str, ...]) -> Say:
    """An agent that never looks at its dashboard before it must."""
    return ("sh", "") if "sh" in tools else ("delete", largest_visible(board))


def test_algorithm_1_with_an_agent_that_manages_itself() -> None:
    """Appendix B: register, dashboard, no preflight, the agent archives, and every payload is what it was."""
    loop = Loop(SelfManaged(), 12_000)
    loop.register(human("Find the row"))
    for number in range(1, 60):
        loop.step(number, managing, numbered, "I go on.")
    assert loop.log[:4] == ["register", "dashboard", "register", "register"]
    assert "archive" in loop.log and "preflight" not in loop.log and "blocked" not in loop.log
    assert loop.peak <= 0.8 * loop.budget
    assert states(loop.run.ledger).count("archived") == loop.log.count("archive") > 10
    assert recoverable(loop.run)


def test_algorithm_1_with_an_agent_that_never_archives() -> None:
    """Lines 12 to 14: before the prompt would pass the limit, the largest blocks are externalised; nothing is lost."""
    loop = Loop(SelfManaged(), 12_000)
    loop.register(human("Find the row"))
    for number in range(1, 60):
        loop.step(number, lazy, numbered, "I go on and on. " * 20)
    assert 0 < loop.log.count("preflight") < 20
    assert loop.peak <= 0.98 * loop.budget
    assert recoverable(loop.run)


def test_algorithm_1_blocks_what_is_too_large_when_it_comes() -> None:
    """Lines 4 and 5: it is registered as blocked, a notification is seen, and the call need not run again."""
    loop = Loop(SelfManaged(), 2_000)
    loop.register(human("Find the row"))
    loop.step(1, lazy, lambda _: "ok", "a " * 3_400)
    loop.step(2, lazy, lambda _: "one giant line " * 20_000, "b")
    assert loop.log[-1] == "blocked"
    (blocked,) = (row for row in loop.run.ledger.rows() if row.state == "blocked")
    assert "it ran; too large to show whole" in blocked.stub
    assert recoverable(loop.run)


def test_algorithm_1_gives_only_context_tools_when_the_prompt_is_over_the_budget() -> None:
    """Lines 15 and 16, in the ablation without the archive: the agent must delete before it may go on."""
    loop = Loop(SelfManaged(archive=False), 6_000)
    loop.register(human("Find the row"))
    textses: list[tuple[str, ...]] = []

    def watching(board: str, tools: tuple[str, ...]) -> Say:
        textses.append(tools)
        return lazy(board, tools)

    for number in range(1, 16):
        loop.step(number, watching, numbered, "I go on and on. " * 20)
    assert "delete" in loop.log and "archive" not in loop.log
    limited = [tools for tools in textses if "sh" not in tools]
    assert limited and set(limited) == {("recover", "restore", "delete", "note", "search")}
    assert loop.log.count("delete") == len(limited)


def recoverable(run: Run) -> bool:
    """Whether each block that left can be read part by part, which together are its text."""
    return all(read_out(row, run.bodies[row.id]) == run.words(row) for row in run.ledger.rows() if not row.present)


# --- the dashboard instance (appendix D)


def instance() -> tuple[Ledger, dict[str, view.Cost]]:
    """The blocks of the paper's instance; those that it leaves out are B4, which stands for all of them."""
    shown = {
        "B1": ("user", 120, 8, "pinned"), "B2": ("tool_use", 18_400, 7, "archived"),
        "B3": ("assistant", 2_150, 6, "visible"), "B4": ("tool_result", 44_400, 5, "visible"),
        "B5": ("tool_use", 14_800, 3, "visible"), "B6": ("tool_use", 9_300, 2, "visible"),
        "B8": ("dashboard", 1_300, 1, "visible"), "B9": ("assistant", 1_070, 0, "visible"),
    }  # fmt: skip
    rows = [
        Row(
            id=name, kind=kind, role="assistant" if kind in ("assistant", "tool_use") else "user",  # type: ignore[arg-type]
            origin="client", msg=8 - age, step=8 - age, turn=1, bytes=1, sha256="0" * 64, state=state,  # type: ignore[arg-type]
        )
        for name, (kind, _, age, state) in shown.items()
    ]  # fmt: skip
    paid = {name: view.Cost(tokens, 60 if name == "B2" else tokens) for name, (_, tokens, _, _) in shown.items()}
    return Ledger(Meta(format=1, session="s", scope="main", counters=Counters(step=8))).with_rows(rows), paid


def test_the_dashboard_instance_of_the_paper() -> None:
    """Appendix D, "Dashboard format": 62 % of 128,000, 20 cells, the three sums, and a row for each block."""
    ledger, paid = instance()
    board = view.dashboard(ledger, paid, 128_000, 6_200)
    assert (board.used, board.overhead, board.conversation, board.dashboards) == (79_400, 6_200, 71_900, 1_300)
    assert (board.percent, board.cells, len(board.bar)) == (62, 12, 20)
    assert model_dashboard.line_text(board) == "[dashboard ############........ 62 %, 79,400 / 128,000 tokens]"
    text = model_dashboard.full_text(board, [], 0, cap=4_000, count=len)
    rows = [line.split()[:6] for line in text.partition(model_dashboard.COLUMNS + "\n")[2].splitlines()]
    assert [(name, tokens, age, kind) for name, tokens, age, kind, *_ in rows if name != "B4"] == [
        ("B1", "120", "8r", "user"),
        ("B2", "18400→60", "7r", "tool_use"),
        ("B3", "2150", "6r", "assistant"),
        ("B5", "14800", "3r", "tool_use"),
        ("B6", "9300", "2r", "tool_use"),
        ("B9", "1070", "0r", "assistant"),
    ]


# --- Proposition 1


def test_proposition_1_what_cannot_be_recovered_is_lost_and_what_can_be_is_exact() -> None:
    """N independent blocks of k random bits, a prompt of at most B bits, one of them asked for afterwards."""
    chance, blocks, hexes = random.Random(1), 100, 1_000
    evidence = [f"{chance.getrandbits(4 * hexes):0{hexes}x}" for _ in range(blocks)]
    told = [message for number, value in enumerate(evidence) for message in step(number, value)]
    budget = 6_000  # tokens, of four characters of four bits
    bound = budget * 4 * 4 / (blocks * 4 * hexes) + 1 / (4 * hexes)

    lossy, lossless = (running(human("Keep all"), *told, reply("Ready.")) for _ in range(2))
    settled(Window(), lossy, budget)
    settled(SelfManaged(agent=False), lossless, budget)
    for made in (lossy, lossless):
        assert measure(made.ledger, made.view(budget).price) <= budget

    def seen(run: Run) -> Iterator[str]:
        return (run.words(row) for row in run.ledger.rows() if row.kind == "tool_result" and row.present)

    assert 0 < len(set(seen(lossy)) & set(evidence)) / blocks <= bound < 0.5
    kept = [row for row in lossless.ledger.rows() if row.kind == "tool_result"]
    assert [read_out(row, lossless.bodies[row.id]) for row in kept] == evidence


# --- what the harness is asked for, and the ablations


def paragraphs(terms: Terms) -> list[str]:
    return terms.protocol.split("\n\n")


USUAL = SelfManaged().terms()


@pytest.mark.parametrize(
    ("variant", "fields", "tools", "told"),
    [
        (SelfManaged(dashboard=False), {"board"}, (), {"full"}),
        (SelfManaged(archive=False), {"folds"}, ("archive",), {"want"}),
        (SelfManaged(recover=False), {"handles"}, ("recover", "restore", "search"), {"stubs", "recover"}),
        (SelfManaged(agent=False), {"folds"}, ("archive", "delete"), {"when", "overflow", "want"}),
        (SelfManaged(theta=12_000), {"ladder"}, (), set()),
        (SelfManaged(batch=50_000), {"batch"}, (), set()),
    ],
    ids=["dashboard=off", "archive=off", "recover=off", "agent=off", "theta", "batch"],
)
def test_a_variant_differs_in_its_own_part_only(
    variant: SelfManaged, fields: set[str], tools: tuple[str, ...], told: set[str]
) -> None:
    terms = variant.terms()
    board = ["dashboard"] if terms.freeing and terms.board != "off" else []
    assert [name for name in TOOLS if name not in tools] + board == list(terms.tools)
    assert {paragraph for paragraph in paragraphs(USUAL) if paragraph not in paragraphs(terms)} == {
        context_text.paragraph(name) for name in told
    }
    more = {context_text.paragraph("traces")} if not terms.handles else set()
    assert set(paragraphs(terms)) - set(paragraphs(USUAL)) == more
    assert differing(terms) - {"tools", "protocol"} == fields


def test_the_status_board_differs_in_the_board_and_the_words_on_it() -> None:
    terms = SelfManaged(board="status").terms()
    assert differing(terms) == {"board", "protocol", "tools"} and terms.board == "status"
    (old,), (new,) = set(paragraphs(USUAL)) - set(paragraphs(terms)), set(paragraphs(terms)) - set(paragraphs(USUAL))
    assert (old, new) == (context_text.paragraph("full"), context_text.paragraph("status"))


@pytest.mark.parametrize("wording", ["alt", "brief"])
def test_another_wording_says_the_same_in_as_many_paragraphs(wording: Wording) -> None:
    terms = SelfManaged(wording=wording).terms()
    assert differing(terms) == {"protocol"}
    assert len(paragraphs(terms)) == len(paragraphs(USUAL))
    assert not set(paragraphs(terms)) & set(paragraphs(USUAL))


def differing(terms: Terms) -> set[str]:
    return {name for name in Terms.__struct_fields__ if getattr(terms, name) != getattr(USUAL, name)}


def test_the_papers_admission_is_two_knobs() -> None:
    terms = SelfManaged(theta=12_000, batch=50_000).terms()
    assert (terms.ladder, terms.batch) == ({"offload_most": 12_000}, 50_000)
    assert (USUAL.ladder, USUAL.batch) == ({}, 0)
    assert SelfManaged(beta=0.9).terms().ladder == {"guard": 0.9}
    assert parse("self_managed:single=700") == SelfManaged(theta=700), "a stored session may have its former name"


def test_without_recovery_no_stub_tells_the_way_back() -> None:
    made = running(human("Do it"), *steps(20))
    hidden = SelfManaged(recover=False)
    rehearsal = rehearse(made.view(12_000, handles=hidden.terms().handles), hidden.propose(made.view(12_000)))
    assert rehearsal and all("recover" not in row.stub and "@" not in row.stub for row in rehearsal.rows)


@pytest.mark.parametrize("wording", ["usual", "alt"])
def test_the_protocol_is_short_and_has_no_paragraph_for_a_tool_that_is_not_there(wording: Any) -> None:
    words = context_text.text([*TOOLS, "scope", "goto", "scopes", "notes"], wording=wording)
    assert len(words.split()) < 260
    for tool in ("archive", "recover", "search", "delete", "note", "scope"):
        rest = context_text.text([name for name in TOOLS if name != tool], wording=wording)
        assert tool not in rest.replace("scopes", "") or tool in ("note", "archive", "delete")
    for phrase in ("Age", "size", "budget") if wording == "usual" else ("age", "size", "limit"):
        assert phrase in words
    assert all(line.strip() == line and line for line in words.split("\n\n"))
