"""Clients at long work: files that fill a budget several times, a needle in the first of them, and faults of the model.

The model calls tools of ours where it has them. Where it has not, it says the same without: so the work of a client
that is managed can be compared with that of one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts.wire.agents import CLIENTS, Client, Place
from tests.hosts.wire.model import call, custom, is_aside, say, text, users
from tests.hosts.wire.upstream import Blocks, Body, Failing

STEPS = 20
NEEDLE = "the harbour's password is kingfisher-77"
#: What our own tools are asked for: it stands nowhere else.
PATTERN = "k.ngfisher-[0-9]+"
ASKED, BYE = "Read all the parts, and find the password of the harbour.", "Say goodbye."
FOUND = "The password is kingfisher-77."


def lay(place: Place) -> None:
    """The files that are read: about 2,000 tokens each."""
    for number in range(1, STEPS + 1):
        lines = [f"part {number}, line {line}: nothing of interest was in the harbour" for line in range(110)]
        if number == 1:
            lines[55] = NEEDLE
        (place.project / part(number)).write_text("\n".join(lines) + "\n")


def part(number: int) -> str:
    """The name of a file."""
    return f"part_{number:02}.txt"


@dataclass(frozen=True)
class Turn:
    """An answer of the model: what it says, and before it, where it has our tools, what it asks of them.

    `asides` come first, each in an answer of its own. `beside` stands in the last answer, beside the client's calls.
    """

    blocks: Blocks
    asides: Sequence[Blocks | Callable[[Body], Blocks]] = ()
    beside: Blocks = field(default_factory=list)
    failing: int = 0


def ours(name: str, /, **given: object) -> dict[str, Any]:
    """A call of a tool of ours."""
    return {**call(name, **given), "ours": True}


@dataclass
class Model:
    """Says one turn after the other.

    `bodies` are those of all calls of the conversation, `continued` those that came after a call of ours alone, and
    `beyond` has the last words of those too many.
    """

    turns: list[Turn]
    bodies: list[Body] = field(default_factory=list)
    continued: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    failed: bool = False
    aside: int = 0

    def __call__(self, body: Body) -> Blocks | Failing:
        said = list(users(body))
        if is_aside(body, said):
            return say("A title")
        if not self.turns:
            self.beyond.append(said[-1][-300:] if said else "")
            return say("Nothing more.")
        self.bodies.append(body)
        turn = self.turns[0]
        if turn.failing and not self.failed:
            self.failed = True
            return Failing(turn.blocks, turn.failing)
        names = tool_names(body)
        if self.aside:
            self.continued.append(json.dumps(body))
        if self.aside < len(turn.asides) and OURS & names:
            self.aside += 1
            return _plain(_said(turn.asides[self.aside - 1], body))
        self.turns.pop(0)
        aside, self.aside, self.failed = self.aside, 0, False
        if OURS & names:
            return _plain([*turn.blocks, *turn.beside])
        assert not aside
        said = [_said(blocks, body) for blocks in turn.asides]
        return [*(block for blocks in said for block in blocks if "ours" not in block), *turn.blocks]


#: Tools of ours: no client has one of that name.
OURS = {"recover", "archive", "scope", "restore"}


def tool_names(body: Body) -> set[str]:
    """The names of all tools of a request."""
    tools = body.get("tools") or []
    declared = [inner for tool in tools for inner in (tool, tool.get("function") or {})]
    declared += [function for tool in tools for function in tool.get("functionDeclarations", ())]
    return {str(tool.get("name", "")) for tool in declared}


def _said(aside: Blocks | Callable[[Body], Blocks], body: Body) -> Blocks:
    return aside(body) if callable(aside) else aside


def _plain(blocks: Blocks) -> Blocks:
    return [{name: value for name, value in block.items() if name != "ours"} for block in blocks]


@dataclass(frozen=True)
class Worker:
    """A client, and how it reads a file. `resume` has its arguments for a run that goes on, None where none can."""

    client: Client
    arguments: Callable[[Place], Sequence[str]]
    read: Callable[[Place, int], Blocks]
    end: Blocks
    resume: Callable[[Place], Sequence[str]] | None
    #: The least that its own system prompt and tools leave room under.
    budget: int = 12_000
    #: What refuses a request that it sends again.
    busy: int = 503
    #: Whether it goes on after a stream that broke off.
    goes_on: bool = True

    def turns(self, place: Place) -> list[Turn]:
        """The work: reads, a needle that left, calls of both kinds, a refusal, and a stream that breaks."""
        turns = [Turn([text(f"Part {number} is next."), *self.read(place, number)]) for number in range(1, STEPS + 1)]
        search = [text("Where was that?"), ours("search", pattern=PATTERN)]
        turns[7] = Turn(turns[7].blocks, failing=self.busy)
        turns[12] = Turn([text(FOUND), *turns[12].blocks], asides=[search])
        turns[14] = Turn(turns[14].blocks, beside=[ours("search", pattern=PATTERN)])
        if self.goes_on:
            turns[16] = Turn(turns[16].blocks, failing=200)
        return [*turns, Turn(self.end, asides=[[text("Once more."), ours("recover", block="B3")]])]


_ALL = {client.name: client for client in CLIENTS}
_CLAUDE = ("--dangerously-skip-permissions", "--tools", "Read,Bash", "-p")
_CODEX = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
_OTHER = (*_CODEX, "-m", "gpt-other")


_Read = Callable[[Place, int], Blocks]


def _shell(name: str, field: str = "command", **more: Any) -> _Read:
    return lambda _, number: [call(name, **{field: f"cat {part(number)}"}, **more)]


def _file(name: str, field: str) -> _Read:
    return lambda place, number: [call(name, **{field: place.file(part(number))})]


def _code(_: Place, number: int) -> Blocks:
    return [custom("exec", f'text((await tools.exec_command({{cmd: "cat {part(number)}"}})).output);')]


def _mini(name: str, model: str) -> Worker:
    ends = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done"
    return Worker(
        _ALL[name],
        lambda place: ("-m", model, "-y", "--exit-immediately", "-o", str(place.folder / "t.json"), "-t", ASKED),
        _shell("bash"),
        [text("That is all."), call("bash", command=ends)],
        None,
    )


def _opencode(name: str, model: str) -> Worker:
    flags = ("run", "-m", model)
    return Worker(
        _ALL[name],
        lambda _: (*flags, ASKED),
        _file("read", "filePath"),
        say("All done."),
        lambda _: (*flags, "--continue", BYE),
        budget=20_000,
    )


def _pi(name: str, model: str) -> Worker:
    flags = ("--model", model, "-p")
    return Worker(
        _ALL[name],
        lambda _: (*flags, ASKED),
        _file("read", "path"),
        say("All done."),
        lambda _: ("--continue", *flags, BYE),
    )


def _copilot(name: str) -> Worker:
    flags = ("--allow-all-tools", "--allow-all-paths")
    return Worker(
        _ALL[name],
        lambda place: (*flags, "--session-id", place.session, "-p", ASKED),
        _file("view", "path"),
        say("All done."),
        lambda place: (*flags, "--session-id", place.session, "-p", BYE),
        budget=24_000,
    )


def _openhands(name: str) -> Worker:
    flags = ("--headless", "--json", "--override-with-envs")
    return Worker(
        _ALL[name],
        lambda _: (*flags, "-t", ASKED),
        _shell("terminal", summary="reads", security_risk="LOW"),
        [call("finish", message="All done.", summary="ends")],
        lambda _: (*flags, "--resume", "--last", "-t", BYE),
        budget=20_000,
    )


_GEMINI = ("--yolo", "--skip-trust", "-m", "gemini-2.5-pro")
_QWEN = ("--yolo", "--auth-type", "openai")

WORKERS = (
    Worker(
        _ALL["claude"],
        lambda place: (*_CLAUDE, "--session-id", place.session, ASKED),
        _file("Read", "file_path"),
        say("All done."),
        lambda place: (*_CLAUDE, "--resume", place.session, BYE),
        busy=529,
    ),
    Worker(
        _ALL["codex"],
        lambda _: ("exec", *_CODEX, ASKED),
        _code,
        say("All done."),
        lambda _: ("exec", *_CODEX, "resume", "--last", BYE),
        budget=32_000,
    ),
    Worker(
        _ALL["codex-functions"],
        lambda _: ("exec", *_OTHER, ASKED),
        _shell("exec_command", "cmd"),
        say("All done."),
        lambda _: ("exec", *_OTHER, "resume", "--last", BYE),
        budget=24_000,
    ),
    _mini("mini-openai", "openai/gpt-4.1"),
    _mini("mini-anthropic", "anthropic/claude-sonnet-4-5"),
    _opencode("opencode-anthropic", "anthropic/claude-sonnet-4-5"),
    _opencode("opencode-openai", "openai/gpt-5.1"),
    _pi("pi-anthropic", "anthropic/claude-sonnet-4-5"),
    _pi("pi-openai", "openai/gpt-5.1"),
    Worker(
        _ALL["gemini"],
        lambda _: (*_GEMINI, "-p", ASKED),
        _file("read_file", "file_path"),
        say("All done."),
        lambda _: (*_GEMINI, "--resume", "latest", "-p", BYE),
        budget=20_000,
        goes_on=False,
    ),
    Worker(
        _ALL["qwen"],
        lambda place: (*_QWEN, "--session-id", place.session, "-p", ASKED),
        _file("read_file", "file_path"),
        say("All done."),
        lambda place: (*_QWEN, "--resume", place.session, "-p", BYE),
        budget=32_000,
    ),
    *map(_copilot, ("copilot-chat", "copilot-responses", "copilot-messages")),
    *map(_openhands, ("openhands-openai", "openhands-anthropic")),
)


def kept(place: Place) -> Iterator[Path]:
    """All files that a client has left."""
    store = place.project / ".ctxvc"
    return (path for path in place.folder.rglob("*") if path.is_file() and store not in path.parents)
