"""A long life of an agent, the same under every policy: what its model says, what its tools give, what it was billed.

The model is scripted. It does with the context tools that it is given what an agent would: marks, notes, scopes, room
made in time, a look back now and then. Which blocks there are it knows from the ledger, as a model does from a
dashboard. The server counts, and refuses what does not fit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anthropic

from ctxvc import policies
from ctxvc.agent import run as run_module
from ctxvc.agent import start
from ctxvc.agent.limits import Limits
from ctxvc.agent.provider import Anthropic
from ctxvc.agent.workspace import DEFINITIONS, Outcome
from ctxvc.core.ledger.ledger import Row
from ctxvc.session.session import Session
from tests.making.provider import MODEL
from tests.making.watcher import Silent
from tests.messages_api import MODELS, Judge, MessagesApi, call, catalogue, serve, text, thought
from tests.messages_api.server import Call
from tests.messages_api.wire import Block, Request, signature

#: Steps of a turn: then the model says what it found, and a human what comes next.
TURN = 50
#: Lines of the outputs, in turns; a line is about 24 tokens as we count.
_LINES = (30, 70, 40, 150, 20, 60, 110, 35, 50, 90)
#: Every so many steps an output that is offloaded when it comes.
_HUGE, _HUGE_LINES = 25, 500
_WORDS = ("parser", "token", "scope", "ledger", "commit", "branch", "index", "writer", "reader", "cache", "prompt")


def calls_in(steps: int) -> int:
    """The commands that the model asks for in its first steps."""
    return sum(_together(number) for number in range(1, steps + 1) if number % TURN)


def _together(number: int) -> int:
    """The commands of a step: one, and two in every third."""
    return 2 if number % 3 == 2 else 1


def output(key: str, lines: int) -> str:
    """What a command gives: no two lines are the same, and the first has a fact that stands nowhere else."""
    chance = random.Random(key)
    said = [f"fact of {key}: {chance.getrandbits(48):012x}"]
    for line in range(lines):
        words = " ".join(chance.choices(_WORDS, k=6))
        said.append(f"src/{chance.choice(_WORDS)}.py:{line + 1}: {words} = {chance.getrandbits(24):06x}")
    return "\n".join(said) + "\n"


@dataclass
class Bench:
    """Hands whose commands are the id of a call and the lines that it gives; all that they gave is kept, by call."""

    given: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool["name"] for tool in DEFINITIONS)

    def run(self, name: str, given: Mapping[str, Any], call: str = "") -> Outcome:  # noqa: ARG002 - as `Hands` has it
        key, lines = str(given["command"]).split()
        assert key not in self.given, "a command was run twice"
        self.given[key] = output(key, int(lines))
        return Outcome(self.given[key].encode())

    def stop(self) -> None: ...


def aside(request: Request) -> Block | None:
    """What a policy asks beside the conversation: the block behind the prompt; None for a step of the conversation."""
    content = request["messages"][-1]["content"]
    last = content[-1] if isinstance(content, list) else {}
    begins = ("[context planner]", "The conversation above is getting too long")
    return last if str(last.get("text", "")).startswith(begins) else None


def answer_aside(block: Block) -> list[Block]:
    """A plan that folds the oldest tools, or a summary for each part."""
    tools = re.findall(r"^function (\S+)", block["text"], re.MULTILINE)[:6]
    parts = dict.fromkeys(re.findall(r"^- (\S+): \d+ blocks", block["text"], re.MULTILINE))
    sections = "Intent: find what is wrong\nDecisions: none\nArtifacts: the facts\nNext steps: go on"
    if not parts:
        fold = f'<fold kind="function" reason="read">{" ".join(tools)}</fold>' if tools else ""
        return [text(f"<above_conversation_summary>\nSteps.\n</above_conversation_summary>\n<gc_plan>{fold}</gc_plan>")]
    return [text("\n".join(f'<summary of="{part}">\n{sections}\n</summary>' for part in parts))]


@dataclass
class Bill:
    """What the server counted: requests it took and refused, and the tokens of their prompts.

    `asides` are what policies asked; they are no steps of the conversation.
    """

    requests: int = 0
    asides: int = 0
    refused: list[str] = field(default_factory=list)
    peak: int = 0
    total: int = 0
    read: int = 0
    _dropped: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """Tokens of all prompts that were read from the cache."""
        return self.read / self.total if self.total else 0.0

    def add(self, taken: Call) -> None:
        """One more request. Thinking that an edit unbound must have been the newest when it was first left out."""
        if taken.status != 200:
            self.refused.append(str(taken.answer))
            return
        usage = taken.answer["usage"]
        read = usage["cache_read_input_tokens"]
        tokens = usage["input_tokens"] + usage["cache_creation_input_tokens"] + read
        self.asides += aside(taken.body) is not None
        self.requests += aside(taken.body) is None
        self.peak, self.total, self.read = max(self.peak, tokens), self.total + tokens, self.read + read
        messages = taken.body["messages"]
        newest = max((at for at, each in enumerate(messages) if each["role"] == "assistant"), default=-1)
        for change in taken.answer.get("input_transformations", ()):
            at, number = map(int, re.findall("[0-9]+", change["path"]))
            name = signature(messages[at]["content"][number])
            assert at == newest or name in self._dropped, (change, newest)
            self._dropped.add(name)


class Worker:
    """The scripted model. Its steps are counted by its replies, so a request that was refused is none."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.replies = 0
        self.called: set[str] = set()
        self.bill = Bill()
        self.api: MessagesApi | None = None

    def __call__(self, request: Request) -> list[Block]:
        self.account()
        if asked := aside(request):
            return answer_aside(asked)
        self.replies += 1
        number = self.replies
        if number % TURN == 0 or (request.get("tool_choice") or {}).get("type") == "none":
            return [thought("Enough for now."), text(f"That is what {number} steps have shown.")]
        tools = {tool["name"] for tool in request["tools"]}
        wanted = [block for block in self._beside(number) if block["name"] in tools]
        self.called.update(block["name"] for block in wanted)
        return [thought(f"Step {number}: what next?"), text(f"I do step {number}."), *wanted, *self._runs(number)]

    def account(self) -> None:
        """Takes what the server has kept into the bill; bodies of hundreds of requests are not held."""
        assert self.api is not None
        while self.api.calls:
            self.bill.add(self.api.calls.pop(0))

    def _runs(self, number: int) -> Iterator[Block]:
        for part in range(_together(number)):
            key = f"toolu_{number:04}_{part}"
            lines = _HUGE_LINES if number % _HUGE == 0 else _LINES[(number + part) % len(_LINES)]
            yield {**call("bash", command=f"{key} {lines}"), "id": key}

    def _beside(self, number: int) -> Iterator[Block]:
        """What is done about the context in this step; calls of tools that there are not are left out."""
        here, gone = self._results()
        full = self.session.overflow
        if (full or self.session.used() > 0.7 * self.session.budget.effective) and (old := here[:-4] or here):
            names = ",".join(row.id for row in old)
            yield call("archive", blocks=names, index=f"results of steps up to {number}, each begins with its fact")
        if full:
            yield call("note", text=f"All results up to step {number} are read.", fold=True)
        match number % 20:
            case 1:
                yield call("delimiter", action="start", type="expl", name=f"look-{number}")
            case 9:
                yield call("delimiter", action="end", description=f"the facts up to step {number} are noted")
                after = {"type": "act", "name": f"mend-{number}", "dependencies": [f"look-{number - 8}"]}
                yield call("delimiter", action="start", **after)
            case 12:
                yield call("note", text=f"By step {number} the parser is read; its facts stand in the results.")
            case 14 if gone:
                yield call("recover", block=gone[-1].id, lines="1:3")
                yield call("search", pattern=f"fact of toolu_{number - 10:04}_")
            case 16 if gone:
                yield call("restore", blocks=gone[len(gone) // 2].id)
            case 17 if gone:
                yield call("delete", blocks=gone[0].id, reason="its fact is noted")
            case 18:
                yield call("delimiter", action="end")
        match number % 60:
            case 22:
                yield call("scope", name=f"task-{number}", note="Read the writer on its own.")
            case 33:
                yield call("note", text="The writer is read.", fold=True)
            case 42:
                yield call("goto", name="main", note=f"The writer is done by step {number}.")

    def _results(self) -> tuple[list[Row], list[Row]]:
        """Results of commands in the scope: those in the prompt, and those that left it."""
        rows = [row for row in self.session.ledger().rows() if row.kind == "tool_result" and row.tool == "bash"]
        return [row for row in rows if row.present], [row for row in rows if row.state == "archived"]


@dataclass(frozen=True)
class Life:
    """A long run that is over: its session, open still, what its commands gave, and the bill."""

    session: Session
    given: Mapping[str, str]
    bill: Bill
    called: frozenset[str]


def live(place: Path, policy: str, *, steps: int, window: int) -> Life:
    """So many replies under a policy, in a window that the server enforces. Close the session when done with it."""
    models = catalogue([replace(MODELS[MODEL], window=window)])
    session = start.begin(place, "long", model=MODEL, policy=policies.parse(policy), window=window)
    worker, hands = Worker(session), Bench()
    with (
        serve(worker, judge=Judge(models=models)) as api,
        anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0) as client,
    ):
        worker.api = api
        while (left := steps - worker.replies) > 0:
            session.append({"role": "user", "content": f"Go on from step {worker.replies}: find what is wrong."})
            limits = Limits(steps=left)
            setup = run_module.Setup(model=Anthropic(client), hands=hands, watcher=Silent(), limits=limits)
            run_module.go(session, setup)
        worker.account()
    return Life(session, hands.given, worker.bill, frozenset(worker.called))
