"""The scripts in `hooks/`, run by the programs that they are for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ctxvc.core.blocks import Message
from ctxvc.core.wire import call_part, text_part
from ctxvc.store import git
from ctxvc.store.checkout import checkout
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


def test_a_plain_checkout_of_another_commit_redraws_the_dashboard(store: Store, tmp_path: Path) -> None:
    store.create_session("demo")
    with store.writer("demo") as session:
        for number in (1, 2):
            session.append(
                Message(role="user", parts=(text_part(f"question {number}", "user", "human"),), key=f"h{number}"),
                Message(role="assistant", parts=(text_part("answer", "assistant", "model"),), key=f"a{number}"),
            )
        session.finish()
    folder = Path(checkout(store, folder=tmp_path / "out", dashboard="# now\n").path)
    (store.path / "hooks").mkdir(exist_ok=True)
    (store.path / "hooks" / "post-checkout").symlink_to(HOOKS / "git" / "post-checkout")
    (tmp_path / "bin").mkdir()
    ctxvc = tmp_path / "bin" / "ctxvc"
    ctxvc.write_text(f'#!/bin/sh\nexec {sys.executable} -m ctxvc "$@"\n')
    ctxvc.chmod(0o755)
    path = {"PATH": f"{ctxvc.parent}:{os.environ['PATH']}", "PYTHONPATH": str(HOOKS.parent)}

    done = subprocess.run(
        ["git", "checkout", "-q", "HEAD~1"], cwd=folder, env={**os.environ, **path}, capture_output=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    page = (folder / "DASHBOARD.md").read_text()
    assert "question 1" in page and "question 2" not in page
