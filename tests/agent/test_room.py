"""An agent in a small window: what it reads out comes in and stays, and a long run of small steps does not end."""

from __future__ import annotations

import pytest

from ctxvc.agent import Adapter
from ctxvc.agent.tools.definitions import definitions
from ctxvc.policies import POLICIES, parse
from ctxvc.session.session import Session
from ctxvc.store.log.memory import MemorySession
from ctxvc.tokens.meter import Meter

WORDS = "the quick brown fox jumps over the lazy dog and finds another line of output here\n"
SH = [
    {"name": name, "description": f"{name} a file.", "input_schema": {"type": "object"}} for name in ("write", "read")
]


def in_memory(policy: str, budget: int, meter: Meter) -> Adapter:
    chosen = parse(policy)
    stored = MemorySession("session", system="You write files.", tools=definitions(chosen.terms(), own=SH))
    session = Session(stored, policy=chosen, meter=meter)
    session.set(model="claude-opus-5-5", budget=budget)
    session.set(calibration=(1000, 0))
    session.begin()
    adapter = Adapter(session)
    adapter.append({"role": "user", "content": "Write what is missing, and read it again."})
    return adapter


class Steps:
    """Replies of an agent, each with one call, whose result is in before the next."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.session = adapter.session
        self.count = 0

    def step(self, name: str, output: str, **arguments: str) -> dict[str, object]:
        """The result of a call as it was taken in: the tool's own answer, else `output`."""
        request = self.adapter.request(max_tokens=4_000)
        assert request.get("tool_choice", {}).get("type") != "none", "its tools were taken away"
        self.count += 1
        call = {"type": "tool_use", "id": f"c{self.count}", "name": name, "input": arguments}
        self.adapter.record({"role": "assistant", "content": [call], "stop_reason": "tool_use"})
        answer = self.adapter.handle(call)
        answer = answer or {"type": "tool_result", "tool_use_id": f"c{self.count}", "content": output}
        self.adapter.results([answer])
        return answer


def written_and_read(policy: str, budget: int, replies: int, meter: Meter) -> None:
    steps = Steps(in_memory(policy, budget, meter))
    for number in range(replies // 2):
        text = "".join(f"{number}.{line} {WORDS}" for line in range(33))
        written = steps.step("write", f"wrote {number}", path=f"f{number}", text=text)
        read = steps.step("read", f"{number}: " + WORDS * 3, path=f"f{number - 1}")
        for answer in (written, read):
            assert "is_error" not in answer, answer
        newest = list(steps.session.ledger().rows())[-1]
        assert (newest.kind, newest.state) == ("tool_result", "visible")
        assert steps.session.used() <= steps.session.budget.effective
        assert not steps.session.overflow
    steps.adapter.request(max_tokens=4_000)


@pytest.fixture(scope="module")
def meter() -> Meter:
    return Meter(None)


@pytest.mark.parametrize(("policy", "budget"), [("default", 24_000), ("self_managed", 12_000), ("keep", 12_000)])
def test_an_agent_that_writes_and_reads_by_turns_is_not_too_full_to_go_on(
    policy: str, budget: int, meter: Meter
) -> None:
    written_and_read(policy, budget, 5 * budget // 1_000, meter)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [12_000, 24_000, 48_000])
@pytest.mark.parametrize("policy", [kind.name for kind in POLICIES])
def test_it_goes_on_for_five_hundred_replies_under_every_policy(policy: str, budget: int, meter: Meter) -> None:
    written_and_read(policy, budget, 500, meter)


# --- reading out


def _lines(number: int, tokens: int) -> str:
    return "".join(f"{number}.{line} {WORDS}" for line in range(tokens // 20))


def _archived(steps: Steps) -> list[str]:
    rows = steps.session.ledger().rows()
    return [row.id for row in rows if row.kind == "tool_result" and row.tool == "read" and not row.present]


@pytest.fixture
def filled() -> Steps:
    steps = Steps(in_memory("default", 12_000, Meter(None)))
    for number in range(14):
        steps.step("read", _lines(number, 2_200), path=f"f{number}")
    return steps


def test_at_twelve_thousand_tokens_recover_answers_ten_of_ten_times(filled: Steps) -> None:
    blocks = _archived(filled)
    assert len(blocks) >= 10
    for block in blocks[:10]:
        answer = filled.step("recover", "", block=block)
        assert "is_error" not in answer, answer
        assert str(answer["content"]).startswith(f"[recovered {block}@")
        newest = list(filled.session.ledger().rows())[-1]
        filled.adapter.request(max_tokens=4_000)
        assert filled.session.ledger()[newest.id].state == "visible", "it left before anybody saw it"


def test_a_result_is_read_out_in_parts_that_fit_and_are_the_whole_together(filled: Steps) -> None:
    block = _archived(filled)[0]
    whole = filled.session.body(block).decode()
    parts, lines = [], ""
    for _ in range(8):
        answer = filled.step("recover", "", block=block, **({"lines": lines} if lines else {}))
        heading, _, content = str(answer["content"]).partition("\n")
        parts.append(content)
        if "next: " not in heading:
            break
        lines = heading.rpartition("lines")[2].strip(" =:\"'])}") or lines
    assert "".join(parts) == whole


def test_the_listing_of_a_group_is_the_same_from_page_to_page(filled: Steps) -> None:
    session = filled.session
    rows = [row for row in session.ledger().rows() if row.step < 12 and row.kind in ("tool_use", "tool_result")]
    session.archive([row.id for row in rows if row.kind == "tool_use"], "calls")
    name = max(session.ledger().groups)
    listing = session.recover(name, bounded=False).content
    pages, first = [], 1
    while True:
        part = session.recover(name, lines=f"{first}:", most=150, reserved=0)
        pages.append(part.content)
        filled.step("read", _lines(50 + first, 900), path="more")
        if part.complete:
            break
        first = part.last + 1
    assert len(pages) > 1
    assert "".join(pages) == listing


def test_several_reads_of_one_step_share_the_room(filled: Steps) -> None:
    adapter, session = filled.adapter, filled.session
    blocks = _archived(filled)[:4]
    adapter.request(max_tokens=4_000)
    calls = [
        {"type": "tool_use", "id": f"r{at}", "name": "recover", "input": {"block": block}}
        for at, block in enumerate(blocks)
    ]
    adapter.record({"role": "assistant", "content": calls, "stop_reason": "tool_use"})
    answers = [adapter.handle(call) for call in calls]
    adapter.results([answer for answer in answers if answer])
    newest = [row for row in session.ledger().rows() if row.tool == "recover"]
    adapter.request(max_tokens=4_000)
    states = [session.ledger()[row.id].state for row in newest if row.kind == "tool_result"]
    assert states == ["visible"] * 4
    assert session.used() <= session.budget.effective
