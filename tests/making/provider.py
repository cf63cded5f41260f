"""What the tests of sessions share: an agent whose provider is the judge, and what must hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.prompt.request import Request, canonical, request
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.verify import verify
from ctxvc.tokens.calibration import Calibrating
from tests.messages_api import Judge, call, text, thought
from tests.messages_api.wire import BINDING_BETA, Block, blocks, signature

MODEL = "claude-opus-5-5"
WORDS = "the quick brown fox jumps over the lazy dog and finds another line of output here\n"
SYSTEM = "You mend programs. Say little."
TOOLS = [
    {"name": name, "description": f"{name} something", "input_schema": {"type": "object"}}
    for name in ("sh", "read", "scope")
]


def create(path: Path, *, budget: int = 32_000, name: str = "demo", model: str = MODEL, **fields: Any) -> Session:
    """A new session of a store at `path`, with a system prompt and tools; its tokens are counted as they are."""
    return plain(Session.open(path, name, model=model, budget=budget, system=SYSTEM, tools=TOOLS, **fields))


def plain(session: Session, calibration: tuple[int, int] = (1000, 0)) -> Session:
    """The session, whose tokens are counted as they are whatever the judge reports, which counts in its own way."""
    session.set(calibration=calibration)
    session._calibrating = _Deaf()
    return session


class _Deaf(Calibrating):
    """Learns nothing."""

    def replied(self, *_: object) -> None: ...


def sent(request: Request) -> dict[str, Any]:
    """The request as the provider gets it: marked, its thinking checked, what is bound to something else dropped."""
    return {
        "model": request.model or MODEL,
        "max_tokens": 8_000,
        "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
        "betas": [BINDING_BETA],
        **request.body(marked=True),
    }


def result(block: Block, content: Any, **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": block["id"], "content": content, **more}


def calls_of(reply: Mapping[str, Any]) -> list[Block]:
    return [block for block in blocks(reply["content"]) if block["type"] == "tool_use"]


class Agent:
    """An agent on a session: each of its calls is judged, and measured against the budget."""

    def __init__(self, session: Session, judge: Judge | None = None) -> None:
        self.session = session
        self.judge = judge or Judge()
        self.requests = 0
        self.dropped: set[str] = set()

    def ask(self, *content: Block | str) -> dict[str, Any]:
        """One call, answered with this content; the reply is in the session then."""
        request = self.session.request()
        self.requests += 1
        body = sent(request)
        reply = self.judge.reply(body, [text(each) if isinstance(each, str) else each for each in content])
        only_the_newest_is_dropped(body, reply, self.dropped)
        inside_budget(self.session, request)
        boards_are_bounded(self.session, request)
        self.session.append(reply)
        return reply

    def step(self, *results: Any, think: str = "What next?", words: str = "") -> dict[str, Any]:
        """A reply that thinks and calls a tool for each of `results`, which then come in as one message."""
        said = [thought(think), *([text(words)] if words else [])]
        reply = self.ask(*said, *(call("sh", cmd=f"make {self.requests}.{at}") for at in range(len(results))))
        answers = [result(asked, given) for asked, given in zip(calls_of(reply), results, strict=True)]
        if answers:
            self.session.append({"role": "user", "content": answers})
        return reply

    def say(self, words: Any, **origin: Any) -> list[str]:
        return self.session.append({"role": "user", "content": words}, **origin)


def only_the_newest_is_dropped(body: Mapping[str, Any], reply: Mapping[str, Any], dropped: set[str]) -> None:
    """Thinking that an edit unbound was the newest when it was made, whose round was open; a cut takes it later.

    `dropped` has what earlier replies told of, and gets what this one tells.
    """
    newest = max((at for at, each in enumerate(body["messages"]) if each["role"] == "assistant"), default=-1)
    for change in reply.get("input_transformations", ()):
        at, number = map(int, re.findall("[0-9]+", change["path"]))
        name = signature(body["messages"][at]["content"][number])
        assert at == newest or name in dropped, (change, newest)
        dropped.add(name)


# --- what is counted without the engine


def tokens_of(session: Session, request: Request) -> int:
    """The tokens of everything a model reads in a request, by the session's own tokenizer and nothing else of it."""
    count = session._context.meter.count
    body = request.body()
    arguments = [json.dumps(body.get("tools", ""), separators=(",", ":")), str(body.get("system", ""))]
    arguments += [text for message in body["messages"] for block in message["content"] for text in texts(block)]
    return sum(count(argument) for argument in arguments if argument)


def texts(block: Block) -> Iterator[str]:
    match block["type"]:
        case "text":
            yield block["text"]
        case "thinking":
            yield block["thinking"]
        case "tool_use":
            yield block["name"]
            yield json.dumps(block["input"], separators=(",", ":"), ensure_ascii=False)
        case "tool_result":
            for inner in blocks(block.get("content")):
                yield from texts(inner)


def inside_budget(session: Session, request: Request) -> None:
    """*The budget is never exceeded*, by the session's own word and by a count of what is really sent."""
    budget = session.budget
    assert session.used() <= budget.effective
    a, b = session.ledger().meta.calibration
    assert tokens_of(session, request) * a // 1000 + b <= budget.effective


def boards_are_bounded(session: Session, request: Request) -> None:
    """All dashboards in a prompt together cost at most their cap, as the provider counts."""
    count = session._context.meter.count
    boards = [
        block["text"]
        for message in request.messages
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "text" and block["text"].startswith("[dashboard")
    ]
    a, _ = session.ledger().meta.calibration
    assert sum(map(count, boards)) * a <= session.budget.dashboard_cap * 1000


# --- what must hold at any time


def addresses(request: Request, *, boards: bool = True) -> set[str]:
    """Each address that a text of ours in the prompt names: in stubs, masks, and dashboards (`boards`)."""
    names: set[str] = set()
    for message in request.messages:
        if message["role"] == "assistant":
            continue
        for block in message["content"]:
            for words in texts(block):
                names.update(re.findall(r"(?m)^\[(?:archived|masked|blocked) ([BG][0-9]+(?:@[0-9a-f]+)?)", words))
                if boards and words.startswith("[dashboard"):
                    names.update(re.findall(r"(?m)^([BG][0-9]+) [0-9]", words))
                    names.update(each for pair in re.findall(r"(?m)^(B[0-9]+)–(B[0-9]+) ", words) for each in pair)
    return names


def humans_gone(ledger: Ledger) -> list[Row]:
    """Rows of human text that left the prompt."""
    return [row for row in ledger.rows() if is_human(row.role, row.origin) and not row.present]


def groups_fit(ledger: Ledger) -> None:
    """Groups and rows tell the same story: members know their group, no group holds what is in the prompt."""
    for group in ledger.groups.values():
        assert group.members, group.id
        for member in group.members:
            if member.startswith("G"):
                inner = ledger.groups[member]
                assert inner.group == group.id, (member, group.id)
                assert inner.level < group.level
            else:
                row = ledger[member]
                assert row.group == group.id, (member, row.group, group.id)
                assert not row.present
    for row in ledger.rows():
        if row.group:
            assert row.id in ledger.groups[row.group].members, (row.id, row.group)


def rendered(store: Store, commit: str) -> bytes:
    """The prompt of a commit as bytes."""
    moment = revision.at(store, commit)
    return canonical(request(moment.ledger, moment.bodies, moment.system, moment.tools).body())


def damages(store: Store) -> list[str]:
    """What our own check of a store finds."""
    return [str(finding) for finding in verify.verify(store).findings]


def called(session: Session, number: int, content: str = WORDS * 20, **reply: Any) -> None:
    """A reply with a call, and its result, of a model that nobody asked."""
    block = {"type": "tool_use", "id": f"t{number}", "name": "sh", "input": {"cmd": str(number)}}
    session.append({"role": "assistant", "content": [block], **reply})
    session.append({"role": "user", "content": [result(block, content)]})
