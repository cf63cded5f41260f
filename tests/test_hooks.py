"""The scripts in `hooks/`, run by the programs that they are for."""

from __future__ import annotations

from pathlib import Path

from ctxvc.core.blocks import Message
from ctxvc.core.wire import call_part, text_part
from ctxvc.store import git
from ctxvc.store.store import Store

HOOKS = Path(__file__).parents[1] / "hooks"


def test_git_shows_a_call_readably(store: Store) -> None:
    store.create_session("demo")
    with store.writer("demo") as session:
        session.append(
            Message(role="user", parts=(text_part("go", "user", "human"),)),
            Message(role="assistant", parts=(call_part("Bash", "c1", b'{"command":"ls \xc3\xa4","limit":3}'),)),
        )
        session.finish()
    plain = git.run(store.path, "log", "-p", "--format=", "demo/main").decode()
    git.run(store.path, "config", "diff.ctxvc.textconv", str(HOOKS / "git" / "textconv"))
    shown = git.run(store.path, "log", "-p", "--format=", "demo/main").decode()

    assert '+{"command":"ls ä","limit":3}' in plain
    assert '+    "command": "ls ä",\n+    "limit": 3\n' in shown
    assert "+go" in shown
