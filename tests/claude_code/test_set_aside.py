"""What goes wrong with one transcript: it is told and set aside, the others are recorded, and it can be tried again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxvc.claude_code import handoff, recorder, requests
from ctxvc.claude_code.requests import Request
from ctxvc.cli.main import cli
from ctxvc.importers.file import Recording
from ctxvc.recording import files, log
from ctxvc.recording.watch import Watch
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from tests.making.host import hook, settle
from tests.recording.test_files import CONVERSATION, write

OTHER = [{**each, "sessionId": "22222222-2222-3333-4444-555555555555"} for each in CONVERSATION]

#: Lets whatever comes of a transcript of that name go wrong; undone with what it gives.
Break = Callable[[Exception], Callable[[], None]]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Break:
    def broken(error: Exception) -> Callable[[], None]:
        whole = files.importers.conversations

        def conversations(recording: Recording, format: str) -> Iterator[Any]:
            if recording.path.name.startswith("odd"):
                raise error
            return whole(recording, format)

        monkeypatch.setattr(files.importers, "conversations", conversations)
        return lambda: monkeypatch.setattr(files.importers, "conversations", whole)

    return broken


@pytest.fixture
def odd(place: Path, tmp_path: Path) -> Path:
    """A transcript, and a request for it before one for another."""
    path = write(tmp_path / "odd.jsonl", *CONVERSATION)
    good = write(tmp_path / "good.jsonl", *OTHER)
    for each in (path, good):
        requests.post(place / FOLDER, Request("SessionEnd", str(each), "other"))
    return path


def sessions(place: Path) -> list[str]:
    with Store(place / FOLDER) as store:
        return store.sessions()


def run(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(place), *arguments])


def told(place: Path) -> list[tuple[str, str]]:
    """What `doctor` finds about hooks: mends, and what is found."""
    items = json.loads(run(place, "doctor", "--json").stdout)["items"]
    return [(item["mend"], item["found"]) for item in items if item["check"] == "hooks"]


@pytest.mark.parametrize("error", [KeyError("rewind-1"), RecursionError("deep"), MemoryError(), OSError(5, "bad disk")])
def test_one_transcript_that_fails_does_not_stop_the_others(
    place: Path, odd: Path, broken: Break, error: Exception
) -> None:
    store = place / FOLDER
    mended = broken(error)
    recorder.work(store, linger=0)

    assert requests.pending(store) == []
    assert sessions(place) == ["claude-22222222"]
    assert [request for _, request in requests.aside(store)] == [Request("SessionEnd", str(odd), "other")]
    (entry,) = log.entries(store)
    assert str(odd) in entry and ("bad disk" in entry or f"{type(error).__name__}: " in entry)
    assert ("ctxvc watch --once", True) in [(mend, str(odd) in found) for mend, found in told(place)]

    again = run(place, "watch", "--once")
    assert again.exit_code == 1 and f"failed: {odd}" in again.stderr and "ctxvc doctor" in again.stderr
    assert len(requests.aside(store)) == 1  # it is not lost

    mended()
    assert run(place, "watch", "--once").exit_code == 0
    assert sessions(place) == ["claude-11111111", "claude-22222222"]
    assert requests.aside(store) == []
    assert [mend for mend, _ in told(place) if "watch" in mend] == []


def test_the_next_request_for_it_tries_it_too(place: Path, odd: Path, broken: Break) -> None:
    store = place / FOLDER
    mended = broken(ValueError("odd"))
    for event in ("Stop", "UserPromptSubmit"):
        requests.post(store, Request(event, str(odd)))
        recorder.work(store, linger=0)
    assert [request.event for _, request in requests.aside(store)] == ["UserPromptSubmit"]

    mended()
    log.file(store).unlink()
    hook(place, odd, "Stop")
    settle(store)
    assert requests.aside(store) == []
    assert "claude-11111111" in sessions(place)


@pytest.mark.parametrize(("error", "opened"), [(KeyError("rewind-1"), 2), (OSError(5, "bad disk"), 1)])
def test_after_what_nobody_foresaw_the_store_is_opened_anew(
    place: Path, odd: Path, broken: Break, monkeypatch: pytest.MonkeyPatch, error: Exception, opened: int
) -> None:
    broken(error)
    stores = []

    def noted(path: Path) -> Store:
        stores.append(Store(path))
        return stores[-1]

    monkeypatch.setattr(recorder, "Store", noted)
    recorder.work(place / FOLDER, linger=0)

    assert len(stores) == opened


def test_what_cannot_be_told_does_not_stop_the_others(place: Path, odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = handoff.at_startup

    def at_startup(ledger: Any, body: Any) -> str:
        if "1111" in ledger.meta.session:
            raise ZeroDivisionError
        return whole(ledger, body)

    monkeypatch.setattr(handoff, "at_startup", at_startup)
    recorder.work(place / FOLDER, linger=0)

    assert sessions(place) == ["claude-11111111", "claude-22222222"]
    assert [Path(request.transcript) for _, request in requests.aside(place / FOLDER)] == [odd]


def test_what_waits_without_a_recorder_is_done_by_the_command_that_doctor_names(place: Path, odd: Path) -> None:
    ((mend, found),) = told(place)
    assert "2 requests" in found

    assert run(place, *mend.split()[1:]).exit_code == 0
    assert requests.pending(place / FOLDER) == []
    assert sessions(place) == ["claude-11111111", "claude-22222222"]


def test_a_transcript_that_is_gone_is_given_up(place: Path, odd: Path, broken: Break) -> None:
    broken(ValueError("odd"))
    recorder.work(place / FOLDER, linger=0)
    odd.unlink()

    assert recorder.again(place / FOLDER) == []


def test_a_watch_goes_on_too(place: Path, odd: Path, broken: Break) -> None:
    broken(KeyError("rewind-1"))
    with Store(place / FOLDER) as store:
        found = [("claude-code", odd), ("claude-code", odd.with_name("good.jsonl"))]
        outcomes = Watch(store, lambda: found).look()

    assert [outcome.path for outcome in outcomes if outcome.error] == [odd]
    assert "KeyError: 'rewind-1'" in str(outcomes[0].error)
    assert [outcome.session for outcome in outcomes if not outcome.error] == ["claude-22222222"]
