"""What these tests share: a session, driven through its public methods, and what the model would be sent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxvc import Session
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan import selection
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.blocks import call, result
from tests.messages_api import problems

MODEL = "claude-opus-4-5"
TOOLS = [
    {"name": name, "description": f"runs {name}", "input_schema": {"type": "object"}} for name in ("sh", "write", "ctx")
]


def opened(path: Path, name: str = "demo", *, budget: int = 100_000, **more: Any) -> Session:
    """The session, made where it is not there, without dashboards; its tokens are counted as they are."""
    session = Session.open(path, name, model=MODEL, budget=budget, system="Work.", tools=TOOLS, **more)
    session.set(calibration=(1000, 0))
    session.shows_dashboard = False
    return session


def say(session: Session, words: str) -> list[str]:
    return session.append({"role": "user", "content": words})


def reply(session: Session, *content: Mapping[str, Any] | str) -> list[str]:
    """A reply of the model; words in it are text."""
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else dict(each) for each in content]
    return session.append({"role": "assistant", "content": blocks})


def results(session: Session, *content: Mapping[str, Any]) -> list[str]:
    return session.append({"role": "user", "content": [dict(each) for each in content]})


def step(session: Session, id: str, output: Any, tool: str = "sh", **arguments: Any) -> tuple[str, str]:
    """A whole step: a call and its result; their blocks."""
    (asked,) = reply(session, call(id, tool, **arguments))
    (answer,) = results(session, result(id, output))
    return asked, answer


def lines(number: int, words: str = "line") -> str:
    """A text of so many different lines."""
    return "".join(f"{words} {at}: value {at * 7919 % 1000}\n" for at in range(1, number + 1))


def sent(session: Session) -> list[dict[str, Any]]:
    """The messages of the prompt as it stands; the provider would take them."""
    prompt = session.prompt()
    body = {"model": MODEL, "max_tokens": 1024, **prompt.body()}
    if body["messages"]:
        assert problems(_asked(body)) == []
    return prompt.messages


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    """The request with a human's word behind it, where an assistant's message is its last."""
    if body["messages"][-1]["role"] == "assistant":
        body["messages"] = [*body["messages"], {"role": "user", "content": [{"type": "text", "text": "and now?"}]}]
    return body


def blocks(session: Session, kind: str = "") -> list[dict[str, Any]]:
    """The content blocks that would be sent, in order; of one type where that is given."""
    held = [block for message in sent(session) for block in message["content"]]
    return [block for block in held if not kind or block["type"] == kind]


def words(session: Session) -> str:
    """All text that a model would read, one piece a line."""
    return "\n".join(_texts(blocks(session)))


def _texts(content: Any) -> Iterator[str]:
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            yield block
        elif block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool_result":
            yield from _texts(block.get("content", ""))
        elif block["type"] == "tool_use":
            yield str(block["input"])


def rows(session: Session, kind: str = "", scope: str = "") -> list[Row]:
    return [row for row in session.ledger(scope).rows() if not kind or row.kind == kind]


def bodies(session: Session) -> dict[str, bytes]:
    """block → its exact bytes, of the whole scope."""
    return {row.id: session.body(row.id) for row in rows(session)}


def expanded(session: Session, words: str) -> tuple[str, ...]:
    return selection.expand(words, session.ledger())[0]


def git(path: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "--git-dir", str(path), *arguments], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def everything(path: Path) -> dict[str, bytes]:
    """Each file of the store that says something, as it lies on the disk: all but caches and locks."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not {"cache", "lock"} & set(file.relative_to(path).parts)
    }


def in_order(path: Path) -> None:
    """We find no fault in the store, and `git fsck`, which is a part of that, none either."""
    with Store(path) as store:
        assert [str(finding) for finding in verify(store).findings] == []
