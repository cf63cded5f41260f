"""What is recorded is pushed without being asked, if the person wants so: once a minute, and what comes last, too."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.cli.remotes import auto_push as command
from ctxvc.cli.remotes.auto_push import AutoPush
from ctxvc.recording import log
from ctxvc.sharing import push, remotes
from ctxvc.sharing.remotes import Remote
from ctxvc.store import push_attempt
from ctxvc.store.files import locked
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from tests.making.host import end_recorder, hook, project, settle
from tests.recording.test_files import CONVERSATION, write
from tests.sharing.clones import Clone, refs

REF = "refs/ctxvc/w/anna"


def test_the_second_push_waits_for_its_minute_and_has_all_that_came_meanwhile(
    anna: Clone, bob: Clone, server: Path
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        anna.say(f"while it waited {len(waits)}")

    anna.say("first")
    push.push_news(anna.path, sleep)
    first = refs(server)[REF]
    assert not waits
    push.push_news(anna.path, sleep)
    assert not waits and refs(server)[REF] == first, "nothing was new"

    anna.say("second")
    push.push_news(anna.path, sleep)

    assert len(waits) == 1 and 50 < waits[0] <= 60
    bob.pull()
    assert {"first", "second", "while it waited 1"} <= bob.texts()


def test_what_came_during_a_push_is_pushed_a_minute_later(
    anna: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, waits = push.push, list[float]()

    def slow(store: Store, name: str = "") -> push.Pushed:
        report = real(store, name)
        if not waits:
            anna.say("during the push")
        return report

    monkeypatch.setattr(push, "push", slow)
    anna.say("first")
    push.push_news(anna.path, waits.append)

    bob.pull()
    assert len(waits) == 1 and "during the push" in bob.texts()


def test_a_failure_is_kept_until_a_push_succeeds_and_not_repeated_without_news(anna: Clone, server: Path) -> None:
    away = server.with_name("away")
    server.rename(away)
    anna.say("first")
    push.push_news(anna.path)
    failed = push_attempt.last(anna.path)
    assert "origin: there is no git repository" in failed.problem
    push.push_news(anna.path, lambda _: pytest.fail("it tried again"))
    assert push_attempt.last(anna.path) == failed

    away.rename(server)
    anna.push()
    assert not push_attempt.last(anna.path).problem and REF in refs(server)


def test_one_process_pushes_at_a_time_and_only_what_a_person_agreed_to(anna: Clone, server: Path) -> None:
    anna.say("first")
    contained.make_folder(anna.path, "ctxvc/lock")
    with locked(anna.path / "ctxvc/lock/_auto-push"):
        push.push_news(anna.path)
    with Store(anna.path) as store:
        remotes.add(store, Remote(name="origin", address=str(server)))
    push.push_news(anna.path)
    assert not refs(server) and push_attempt.last(anna.path).at == 0


# --- as a person sets it


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's file of settings."""
    path = tmp_path / "config.toml"
    path.write_text('[share]\npush = "auto"\n')
    monkeypatch.setenv("CTXVC_CONFIG", str(path))
    return path


def test_nothing_is_started_unless_it_is_set_and_a_wrong_file_stops_nothing(
    anna: Clone, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    for text in ("", '[share]\npush = "manual"\n'):
        config.write_text(text)
        AutoPush(os.environ)(anna.path)
    assert not log.entries(anna.path)
    config.write_text('[share]\npush = "always"\n')
    AutoPush(os.environ)(anna.path)
    assert "push" in log.entries(anna.path)[0]


@pytest.mark.usefixtures("config")
def test_what_a_hook_reports_is_recorded_and_pushed(tmp_path: Path, server: Path) -> None:
    folder, transcript = _shared(tmp_path, server)

    hook(folder, transcript, "Stop")
    settle(folder / FOLDER)

    assert _pushed(server)
    end_recorder(folder / FOLDER)


@pytest.mark.usefixtures("config")
def test_watch_pushes_and_doctor_and_status_say_what_was_not(tmp_path: Path, server: Path) -> None:
    folder, transcript = _shared(tmp_path, server)
    pushed = list[Path]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoPush, "__call__", lambda _, store: pushed.append(store))
        for _ in range(2):
            assert CliRunner().invoke(cli, ["-C", str(folder), "watch", "--once", str(transcript)]).exit_code == 0
    assert pushed == [folder / FOLDER], "the second time there was nothing new"

    server.rename(server.with_name("away"))
    command.push(folder / FOLDER)
    command.push(tmp_path / "none")  # no store is no error of the process

    status = CliRunner().invoke(cli, ["-C", str(folder), "status"])
    assert "not pushed to origin: there is no git repository" in status.stderr and "`ctxvc push`" in status.stderr
    doctor = CliRunner().invoke(cli, ["-C", str(folder), "doctor"]).stdout
    assert "not pushed to origin" in doctor and "push auto, from" in doctor


class _NoProxy:
    """A proxy of an agent that asks for nothing."""

    def __init__(self, sockets: list[tuple[socket.socket, str]], _: object) -> None:
        self._sockets = sockets

    def wait(self) -> None: ...

    def close(self) -> None:
        for item, _ in self._sockets:
            item.close()

    def errors(self) -> str:
        return ""


@pytest.mark.usefixtures("config")
def test_a_run_and_a_wrapped_agent_are_pushed_at_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `wrap` changes it, and that of a test is put back
    folder = project(tmp_path)
    pushed = list[list[str]]()

    def note(_: AutoPush, store: Path) -> None:
        with Store(store) as opened:
            pushed.append(sorted(opened.sessions()))

    monkeypatch.setattr(AutoPush, "__call__", note)
    arguments = ["-C", str(folder), "run", "say hello", "--script", "-", "--yes"]
    assert CliRunner().invoke(cli, arguments, input='[{"content": "Hello."}]').exit_code == 0
    monkeypatch.setattr("ctxvc.cli.commands.wrap.OwnProxy", _NoProxy)
    monkeypatch.setattr("ctxvc.cli.commands.wrap.run_agent", lambda *_: 0)
    for recording, more in (("off", []), ("on", [["run-1"]])):
        monkeypatch.setenv("CTXVC_RECORDING", recording)
        assert CliRunner().invoke(cli, ["-C", str(folder), "wrap", "--", "true"]).exit_code == 0
        assert pushed == [["run-1"], *more]


def _shared(place: Path, server: Path) -> tuple[Path, Path]:
    """A project whose store has a remote, and a transcript beside it."""
    folder = project(place)
    with Store(folder / FOLDER) as store:
        remotes.add(store, Remote(name="origin", address=str(server), sends=True), "anna")
    return folder, write(place / "11111111-aaaa.jsonl", *CONVERSATION)


def _pushed(server: Path) -> bool:
    """Whether a push comes within half a minute."""
    deadline = time.monotonic() + 30
    while REF not in refs(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    return REF in refs(server)
