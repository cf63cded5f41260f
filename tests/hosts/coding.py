"""A scripted model that reads many files, and what its requests must show whichever agent sends them."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ctxvc import __version__
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.messages_api import call, text
from tests.messages_api.wire import Block, Request

ROOT = Path(__file__).parents[2]
MODEL = "claude-sonnet-4-5"
WINDOW, RESERVE = 24_000, 4_000
STEPS = 100
TASK = "Read every file, one after the other; never touch config.ini, and keep the word Ørsted."
AGAIN = "Now read one more, and remember: tabs, not spaces."
_STUB = re.compile(r"\[archived ([BG][0-9]+@[0-9a-f]{6})")


@dataclass
class Reader:
    """Reads a file a step, by one call of the agent's own tool, and says that it is done after so many of a turn."""

    read: Callable[[Path], Block]
    project: Path
    steps: int
    asked: int = 0
    #: What to call instead of the next read.
    instead: list[Block] = field(default_factory=list)

    def __call__(self, request: Request) -> Sequence[Block]:
        if not request.get("tools"):
            return [text("A title")]
        if self.instead:
            return [text("A look back."), self.instead.pop(0)]
        if self.asked == self.steps:
            return [text("All done.")]
        self.asked += 1
        return [text(f"Step {self.asked}."), self.read(self.project / name(self.asked - 1))]


def name(number: int) -> str:
    return f"module_{number:03}.py"


def make_project(folder: Path, files: int = STEPS + 20) -> Path:
    """A project with a store and files of about 650 tokens each."""
    folder.mkdir(parents=True)
    chance = random.Random(7)
    for number in range(files):
        lines = [f"def f{chance.randrange(10**6)}(x): return x * {chance.randrange(1000)}" for _ in range(60)]
        (folder / name(number)).write_text("\n".join(lines))
    subprocess.run(["git", "init", "-q", folder], check=True)
    run_ctxvc(folder, "init")
    return folder


def run_ctxvc(folder: Path, *arguments: str, env: Mapping[str, str] = {}) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "ctxvc", "-C", folder, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def program(folder: Path) -> Path:
    """A program `ctxvc` that runs this very source."""
    path = folder / "bin" / "ctxvc"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m ctxvc "$@"\n')
    path.chmod(0o755)
    return path


def install(agent: str, folder: Path, env: Mapping[str, str]) -> None:
    """The agent's extension, put in place by `ctxvc install`, starting the source that is tested."""
    listed = json.loads(run_ctxvc(folder, "install", agent, "--json", env=env))["items"]
    started = next(Path(item["path"]) for item in listed if item["path"].endswith("program.js"))
    lines = started.read_text().splitlines()
    lines = [f"export const PROGRAM = {json.dumps([str(program(started.parent))])}" if "PROGRAM" in line else line
             for line in lines]  # fmt: skip
    started.write_text("\n".join(lines) + "\n")
    assert __version__ in started.read_text()


# --- what requests must show


def conversation_of(bodies: Sequence[Block]) -> list[Block]:
    """The requests that have tools: those of the conversation, without titles."""
    return [body for body in bodies if body.get("tools")]


def bare(body: Block) -> list[Any]:
    """The messages of a request without breakpoints."""
    return json.loads(re.sub(r',?\s*"cache_control": \{[^}]*\}', "", json.dumps(body["messages"])))


def plans(bodies: Sequence[Block]) -> int:
    """How often a request did not begin with the one before it."""
    breaks = 0
    for before, after in pairwise(map(bare, bodies)):
        breaks += after[: len(before)] != before
    return breaks


def human_texts(body: Block) -> str:
    return json.dumps([message for message in body["messages"] if message["role"] == "user"], ensure_ascii=False)


def stubs(body: Block) -> set[str]:
    """The handles that a request shows in place of what left."""
    return stubs_in(json.dumps(body["messages"]))


def stubs_in(text: str) -> set[str]:
    return set(_STUB.findall(text))


def recorded(project: Path) -> Iterator[tuple[str, str, StoredSession]]:
    """The scopes of the project's store, each with its session."""
    with Store(project / ".ctxvc") as store:
        for session in store.sessions():
            with StoredSession.open(store, session) as stored:
                scopes = stored.scopes()
            for scope in scopes:
                stored = StoredSession.open(store, session, scope)
                stored.leave()
                yield session, scope, stored


def check_all_still_named(project: Path, before: Block, after: Block) -> None:
    """What a request names is named by the later one: by itself, or by a group that it went into at a plan."""
    shown = {handle.split("@")[0] for handle in stubs(after)}
    named = set(shown)
    for _, _, stored in recorded(project):
        groups = stored.ledger().groups
        inside = [name for name in shown if name in groups]
        while inside:
            members = groups[inside.pop()].members
            named.update(members)
            inside += [name for name in members if name in groups]
    assert {handle.split("@")[0] for handle in stubs(before)} <= named


def check_everything_recoverable(project: Path, body: Block) -> None:
    """Each handle of a request names a block of the store, and every file that was read is there byte for byte."""
    handles: set[str] = set()
    bodies: list[bytes] = []
    for _, _, stored in recorded(project):
        rows = list(stored.ledger().rows())
        handles |= {row.handle for row in rows}
        handles |= set().union(*(stubs_in(group.stub) for group in stored.ledger().groups.values()))
        bodies += [stored.body(row) for row in rows if row.kind == "tool_result"]
    assert stubs(body) <= handles
    whole = b"\n".join(bodies).decode()
    numbered = re.compile(r"^\s*[0-9]+[:|→]\s?", re.MULTILINE)
    seen = set(chain(whole.splitlines(), numbered.sub("", whole).splitlines()))
    read = [block["input"] for message in body["messages"] for block in calls(message)]
    for arguments in read:
        path = arguments.get("path") or arguments.get("filePath")
        if path:
            assert set((project / path).read_text().splitlines()) <= seen


def calls(message: Block) -> list[Block]:
    return [block for block in message["content"] if isinstance(block, dict) and block.get("type") == "tool_use"]


def block_of(body: Block) -> str:
    """The handle of a block that left alone."""
    return next(handle for handle in sorted(stubs(body)) if handle.startswith("B"))


def recover(handle: str) -> Block:
    """A call of our tool for what a stub names."""
    return call("context_recover", block=handle)
