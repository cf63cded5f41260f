"""What the requests of a coding agent must show, whichever it is, and what the store of its project has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.messages_api.wire import Block

ROOT = Path(__file__).parents[2]
MODEL = "claude-sonnet-4-5"
_STUB = re.compile(r"\[archived ([BG][0-9]+@[0-9a-f]{6})")


def run_ctxvc(folder: Path, *arguments: str, env: Mapping[str, str] = {}) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "ctxvc", "-C", folder, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


# --- what requests must show


def conversation_of(bodies: Sequence[Block]) -> list[Block]:
    """The requests that have tools: those of the conversation, without titles."""
    return [body for body in bodies if body.get("tools")]


def bare(body: Block) -> list[Any]:
    """The messages of a request without breakpoints and boards.

    A batch right before a turn's end takes boards with it once a person speaks: until then thinking is bound to them.
    """
    messages: list[Any] = json.loads(re.sub(r',?\s*"cache_control": \{[^}]*\}', "", json.dumps(body["messages"])))
    for message in messages:
        if isinstance(message["content"], list):
            message["content"] = [
                part for part in message["content"] if not part.get("text", "").startswith("[dashboard ")
            ]
    return messages


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
