"""Processes that switch beside each other."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.store import contents, start
from tests.store.scopes.looking import in_order, notes
from tests.store.test_crash import settle


@pytest.mark.slow
def test_four_processes_that_switch_lose_nothing_of_each_other(path: Path) -> None:
    running = [start("switching.py", path, f"w{number}", 6) for number in range(4)]
    for process in running:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said: dict[str, str] = {}
    for process in running:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        heard(said, out)
    assert_held(path, said)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        assert session.waiting() == 0
        assert len(session.scopes()) == 1 + 4 * 6
        assert len([text for text in notes(session, "main") if text.startswith("[→ ")]) == 4 * 6
        assert len([text for text in notes(session, "main") if text.startswith("[← ")]) == 4 * 6
    in_order(path)


@pytest.mark.slow
def test_processes_killed_while_they_switch_lose_nothing_acknowledged(path: Path) -> None:
    chance = random.Random(3)
    said: dict[str, str] = {}
    for number in range(6):
        with start("switching.py", path, f"w{number}", 1 << 20) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.stdin.write(b"go\n")
            process.stdin.flush()
            first = process.stdout.readline() if number % 2 else b""  # on a slow machine it may come late
            killer = threading.Timer(chance.uniform(0.02, 0.2), process.kill)
            killer.start()
            out = first + process.stdout.read()
            killer.join()
        heard(said, out[: out.rfind(b"\n") + 1])
        assert_held(path, said)
    assert said
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        for scope in session.scopes():
            session.finish(scope)
        assert session.waiting() == 0
    settle(path)
    with Store(path) as store:
        store.clean_up()
    in_order(path)


def heard(said: dict[str, str], out: bytes) -> None:
    for line in out.decode().splitlines():
        block, text = line.split(" ", 1)
        assert block not in said, "a number was given twice"
        said[block] = text


def assert_held(path: Path, said: dict[str, str]) -> None:
    """All that was acknowledged is in some scope, and one number is one body in all of them."""
    held: dict[str, str] = {}
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        for scope in session.scopes():
            for block, body in contents(session, scope).items():
                assert held.setdefault(block, body.decode()) == body.decode()
    assert {block: held.get(block, "(lost)") for block in said} == said
