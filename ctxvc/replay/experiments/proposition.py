"""VISTA's Proposition 1: of random blocks that do not all fit, only what can be recovered is answered exactly.

N blocks of k random bits come in as tool results, under a budget that fits few of them; then one is asked for. A prompt
of B bits without recovery contains the answer in at most B/(Nk) + 1/k of the cases.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.policy import Policy
from ctxvc.errors import CtxvcError, OverBudget, Refused
from ctxvc.policies.episodes.policy import Episodes
from ctxvc.replay import standin
from ctxvc.replay.conversation import Conversation, model_calls
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.experiments.measure import Table, interval, percent
from ctxvc.replay.measures.retention import wilson
from ctxvc.session.append import message
from ctxvc.session.session import Session
from ctxvc.tokens.meter import Meter

NAME = "proposition"
SOURCE = 'VISTA (arXiv 2606.30005), "When Recoverability Is Necessary", Proposition 1'
APART = (
    "The paper proves a bound but measures nothing. B is the budget's tokens times the bits of one of 200,000 "
    "equally likely tokens; random decimal digits have 10 bits per token, so no prompt comes near it. Guesses "
    "count as wrong (the proof allows 1/k for them)."
)

#: The most bits that one token can carry.
TOKEN_BITS = log2(200_000)
#: Every policy that ships; episodes are derived where no model marks them.
NAMES = tuple(f"{kind.name}:derive=on" if kind is Episodes else kind.name for kind in policies.POLICIES)
#: The most model calls that a question may take.
CALLS = 24

_ADDRESS = re.compile(r"\[(?:archived|blocked|masked|pruned) ([BG]\d+)\b")
_LISTED = re.compile(r"(B\d+)@\w+ +tool_result\b")
_GROUP = re.compile(r"; recover (G\d+)\]?$")
_NEXT = re.compile(r"\[recovered G\d+: [^\n]*; next: recover (G\d+) \S+ (\d+:)")
_NAME = re.compile(r"block-(\d{5})")


class Point(msgspec.Struct, frozen=True):
    """One policy at one number of blocks.

    `visible` is the share of all blocks that are whole in the prompt when one is asked for, without recovery; `bound`
    is the proposition's. Of `questions` blocks, `answered` reached a prompt by following addresses, `searched` of them
    with a search of the archive, in `calls` model calls overall.
    """

    policy: str
    blocks: int
    bits: int
    budget: int
    visible: float
    bound: float
    questions: int
    answered: int
    searched: int
    calls: int


class Proposition(msgspec.Struct, frozen=True):
    points: tuple[Point, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a policy and number of blocks."""
        columns = ("policy", "N", "k", "budget", "bare: exact", "bound", "with recovery: exact", "95 %", "calls each")
        rows = tuple(
            (
                point.policy,
                f"{point.blocks:,}",
                f"{point.bits:,}",
                f"{point.budget:,}",
                percent(point.visible),
                percent(point.bound),
                f"{point.answered} of {point.questions}" + (f" ({point.searched} by search)" if point.searched else ""),
                interval(*wilson(point.answered, point.questions)),
                f"{point.calls / point.questions:.1f}" if point.questions else "",
            )
            for point in self.points
        )
        paper = ("paper: any without recovery", "", "", "", "≤ bound", "B/(Nk) + 1/k", "", "", "")
        recovering = ("paper: VISTA", "", "", "", "", "", "100 %", "", "")
        return (Table(f"Proposition 1 ({SOURCE})", columns, (*rows, paper, recovering), APART),)


def run(
    conversations: Iterable[Conversation] = (),  # noqa: ARG001 - random blocks are all that it needs
    *,
    names: Sequence[str] = NAMES,
    sizes: Sequence[int] = (80, 160),
    bits: int = 1024,
    budget: int = 8_000,
    questions: int = 32,
    seed: int = 1,
) -> Proposition:
    """The points of the policies `names` at `sizes` blocks. `questions` of the blocks are asked for in turn."""
    points = []
    for size in sizes:
        blocks = random_blocks(size, bits, seed)
        for name in names:
            policy = policies.parse(name)
            answered, searched, calls, count = _recovering(policy, blocks, budget, questions)
            points.append(
                Point(
                    policy=name,
                    blocks=size,
                    bits=bits,
                    budget=budget,
                    visible=_visible(policy, blocks, budget),
                    bound=bound(budget * TOKEN_BITS, size, bits),
                    questions=count,
                    answered=answered,
                    searched=searched,
                    calls=calls,
                )
            )
    return Proposition(tuple(points))


def bound(prompt_bits: float, blocks: int, bits: int) -> float:
    """The proposition's bound: B/(Nk) + 1/k, at most 1."""
    return min(1.0, prompt_bits / (blocks * bits) + 1 / bits)


def random_blocks(blocks: int, bits: int, seed: int) -> tuple[str, ...]:
    """Strings of random bits, as decimal digits. The same seed gives the same strings."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    digits = len(str((1 << bits) - 1))
    return tuple(f"{chance.getrandbits(bits):0{digits}}" for _ in range(blocks))


def conversation(blocks: Sequence[str]) -> Conversation:
    """A conversation in which a tool reads the blocks one after the other."""
    messages = [message({"role": "user", "content": "Read all blocks; one will be asked for."}, "human")]
    for number, text in enumerate(blocks):
        use = {"type": "tool_use", "id": f"read-{number}", "name": "read", "input": {"name": _name(number)}}
        result = {"type": "tool_result", "tool_use_id": f"read-{number}", "content": f"{_name(number)} {text}"}
        messages.append(message({"role": "assistant", "content": [use]}, "model"))
        messages.append(message({"role": "user", "content": [result]}, "tool"))
    messages.append(message({"role": "assistant", "content": "All blocks are read."}, "model"))
    return Conversation(id=NAME, file="", sha256="", calls=tuple(model_calls(messages)))


def _name(number: int) -> str:
    return f"block-{number:05d}"


def _visible(policy: Policy, blocks: Sequence[str], budget: int) -> float:
    """The share of the blocks that are in the prompt when one is asked for, without recovery."""
    replayed = _filled_session(Bare(inner=policy), blocks, budget)
    replayed.append({"role": "user", "content": "Which block it is comes now."})
    text = "\n".join(_texts(replayed))
    return sum(block in text for block in blocks) / len(blocks)


def _recovering(policy: Policy, blocks: Sequence[str], budget: int, questions: int) -> tuple[int, int, int, int]:
    """The number of right answers, of those with a search, of model calls, and of questions."""
    replayed = _filled_session(policy, blocks, budget)
    numbers = sorted({number * len(blocks) // questions for number in range(questions)})
    right = searched = calls = 0
    for number in numbers:
        replayed.append({"role": "user", "content": f"Give {_name(number)} exactly."})
        agent = _Agent(replayed, number)
        while agent.calls < CALLS:
            texts = list(_texts(replayed))
            agent.calls += 1
            if any(blocks[number] in text for text in texts):
                right += 1
                searched += agent.searched
                break
            agent.step(texts)
        calls += agent.calls
        replayed.append({"role": "assistant", "content": "That was the answer."})
    return right, searched, calls, len(numbers)


def _filled_session(policy: Policy, blocks: Sequence[str], budget: int) -> Session:
    """A session in memory in which all blocks were read."""
    recorded = conversation(blocks)
    replayed = new_session(recorded, policy, budget, meter=Meter(None))
    for _ in drive(recorded, replayed, Prompts(replayed)):
        pass
    return replayed


def _texts(replayed: Session) -> Iterator[str]:
    """The texts of the next prompt; none if it cannot be made."""
    try:
        messages: Sequence[Mapping[str, Any]] = replayed.request().messages
    except OverBudget:
        return
    for one in messages:
        yield from standin.texts_of(one)


class _Agent:
    """A deterministic agent that is asked for a block and follows the addresses of its prompt to it.

    A stub or a listed row that names the block leads there directly; else the agent lists a group whose stub names
    blocks on both sides of it; if the prompt has neither, one search of the archive finds the block's own address.
    """

    def __init__(self, replayed: Session, number: int) -> None:
        self._session = replayed
        self._number = number
        self._listed: set[tuple[str, str]] = set()
        self.calls = 0
        self.searched = False

    def step(self, texts: Sequence[str]) -> None:
        """Makes one call of a context tool, and adds its result."""
        address, lines = next(self._ways(texts))
        use = f"{_name(self._number)}-{self.calls}"
        arguments = {"blocks": address, "lines": lines} if lines else {"blocks": address}
        try:
            result = self._session.recover(address, lines=lines).text
            self._listed.add((address, lines))
        except Refused as error:
            result = str(error)  # what does not fit now may fit once the policy made room
        except CtxvcError as error:
            result = str(error)
            self._listed.add((address, lines))
        call = {"type": "tool_use", "id": use, "name": "recover", "input": arguments}
        self._session.append({"role": "assistant", "content": [call]})
        self._session.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use, "content": result}]},
            origin="client",
        )

    def _ways(self, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields addresses to try, with a list's lines, the best first; at least one."""
        name = _name(self._number)
        groups: list[str] = []
        for line in (line for text in texts for line in text.split("\n")):
            match = _LISTED.match(line) or _ADDRESS.match(line)
            if match and match[1].startswith("B") and name in line:
                yield match[1], ""
            if (group := _GROUP.search(line)) and self._is_between(line):
                groups.append(group[1])
        yield from ((group, "") for group in groups if (group, "") not in self._listed)
        for text in texts:
            if (more := _NEXT.match(text)) and (more[1], more[2]) not in self._listed and more[1] in groups:
                yield more[1], more[2]
        result = next(row for row in self._session.ledger().rows() if self._answers(row))
        call = self._session.ledger().get(result.parent)
        if not (call and call.present) and not self.searched:
            self.searched = True
            self.calls += 1
        yield result.id, ""

    def _answers(self, row: Row) -> bool:
        return row.kind == "tool_result" and row.call == f"read-{self._number}"

    def _is_between(self, line: str) -> bool:
        numbers = [int(number) for number in _NAME.findall(line)]
        return len(numbers) >= 2 and numbers[0] <= self._number <= numbers[-1]
