"""How long a recorder waits for the next event, and when it does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ctxvc.claude_code import recorder, requests
from ctxvc.claude_code.requests import Request
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.recording.test_files import CONVERSATION, write


@dataclass
class Clock:
    """A clock that goes on while somebody sleeps, and what happens meanwhile."""

    now: float = 0
    meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.5)
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(recorder, "clock", made)
    return made


@pytest.mark.parametrize(("event", "seconds"), [("Stop", 300), ("SessionEnd", 20)])
def test_it_waits_long_while_a_conversation_goes_on(
    place: Path, tmp_path: Path, clock: Clock, event: str, seconds: int
) -> None:
    path = write(tmp_path / "a.jsonl", *CONVERSATION)
    requests.post(place / FOLDER, Request(event, str(path)))
    recorder.work(place / FOLDER)
    assert seconds <= clock.now < seconds + 2


def test_it_ends_when_another_store_is_in_its_stores_place(place: Path, tmp_path: Path, clock: Clock) -> None:
    store = place / FOLDER

    def replaced() -> None:
        shutil.rmtree(store)
        create(store).close()
        clock.meanwhile = lambda: None

    path = write(tmp_path / "a.jsonl", *CONVERSATION)
    requests.post(store, Request("Stop", str(path)))
    clock.meanwhile = replaced
    recorder.work(store)
    assert clock.now < 2
