"""`ctxvc run` as a shell runs it: going on, one run at a time, limits, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc import policies
from ctxvc.agent import start
from ctxvc.agent.loop import INTERRUPTED
from ctxvc.cli.commands.run import _Ask
from ctxvc.cli.main import cli
from ctxvc.session.session import Session
from tests.making.provider import damages
from tests.making.waiting import until_there
from tests.messages_api import Reply, call, serve, text
from tests.messages_api.script import Assistant, endless
from tests.messages_api.script import script as said

#: A command that goes on until somebody puts a file there, and not for ever: what a killed run leaves behind ends too.
WAITS = "touch begun; for _ in $(seq 1500); do [ -e go ] && break; sleep 0.02; done; echo did it"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def started(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    """A run as a process of its own: to be killed or stopped, or to run beside another."""
    words, env = _asked(folder, *words, **more)
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "ctxvc", "run", *words],
        cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _asked(
    folder: Path, *arguments: str, url: str = "", script: object = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What follows `ctxvc run`, and the environment that it wants."""
    if script is not None:
        (folder / "script.json").write_text(json.dumps(script))
        arguments = (*arguments, "--script", "script.json")
    provider = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": url} if url else {}
    return arguments, {"HOME": str(folder), **provider}


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def ran(folder: Path, *words: str, **more: Any) -> tuple[int, str, str]:
    """The same of a run in this process."""
    words, env = _asked(folder, *words, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(cli, ["run", *words], env=env)
    return result.exit_code, result.stdout, result.stderr


def told(folder: Path, name: str = "run-1") -> list[tuple[str, str]]:
    """Kind and words of what stands in a session."""
    with Session.open(folder / ".ctxvc", name) as session:
        rows = [row for row in session.ledger().rows() if row.kind != "dashboard"]
        return [(row.kind, session.body(row.id).decode()) for row in rows]


@pytest.fixture
def at_work(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is in the middle of a command."""
    script = [{"content": [call("bash", command=WAITS)]}, {"content": "Finished."}]
    process = started(folder, "wait", "--yes", script=script)
    until_there(folder / "begun")
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


# --- one at a time


def test_a_run_that_is_at_work_is_not_gone_on_with_by_another(folder: Path, at_work: subprocess.Popen[str]) -> None:
    for arguments in (("--resume", "run-1"), ("--resume", "run-1", "and this", "--model", "other")):
        code, out, err = ran(folder, *arguments, script=[])
        assert (code, out) == (4, "")
        assert "a run is already working on session run-1" in err
    (folder / "go").touch()
    assert ended(at_work)[:2] == (0, "Finished.\n")
    assert [words for kind, words in told(folder) if kind == "tool_result"] == ["did it\n"]
    assert "and this" not in dict(told(folder)).values()


def test_a_run_that_was_killed_is_gone_on_with_at_once(folder: Path, at_work: subprocess.Popen[str]) -> None:
    at_work.send_signal(signal.SIGKILL)
    at_work.communicate()
    code, out, err = ran(folder, "--resume", "run-1", script=[{"content": "I looked."}])
    assert (code, out) == (0, "I looked.\n")
    assert "killed with 1 call under way; what was started may still be running" in err
    assert [words for kind, words in told(folder) if kind == "tool_result"] == [INTERRUPTED]


# --- going on


def test_a_run_that_is_done_says_so_again_and_takes_another_task(folder: Path) -> None:
    assert ran(folder, "hello", script=[{"content": [text("All "), text("done.")]}])[0] == 0
    before = told(folder)
    code, out, err = ran(folder, "--resume", "run-1", script=[])
    assert (code, out) == (0, "All done.\n")
    assert 'already done: session run-1; `ctxvc run --resume run-1 "TASK"`' in err
    assert told(folder) == before
    assert ran(folder, "--resume", "run-1", "more", script=[{"content": "More."}])[:2] == (0, "More.\n")


@pytest.mark.parametrize(
    ("stop", "told_again"), [("max_tokens", False), ("model_context_window_exceeded", False), ("refusal", True)]
)
def test_a_reply_that_ended_before_its_time_is_not_taken_for_the_answer(
    folder: Path, stop: str, told_again: bool
) -> None:  # fmt: skip
    """As after a kill behind the reply, or a run that ended with it."""
    with start.begin(folder / ".ctxvc", "run-1", model="", policy=policies.parse("default")) as session:
        session.append({"role": "user", "content": "do it"})
        session.append({"role": "assistant", "content": [text("It begins")], "stop_reason": stop})
    code, out, err = ran(folder, "--resume", "run-1", script=[{"content": "It ends."}])
    if told_again:
        assert (code, out) == (1, "It begins\n")
        assert (
            'the provider refused to continue after 0 replies: session run-1; `ctxvc run --resume run-1 "TASK"`' in err
        )
    else:
        assert (code, out) == (0, "It ends.\n"), err
        assert [words for _, words in told(folder)][-3:] == [
            "It begins",
            "[your reply was truncated; continue]",
            "It ends.",
        ]


def test_a_session_in_which_nobody_gave_a_task_asks_for_one(folder: Path) -> None:
    start.begin(folder / ".ctxvc", "run-1", model="", policy=policies.parse("default")).close()
    code, out, err = ran(folder, "--resume", "run-1", script=[{"content": "What?"}])
    assert (code, out) == (1, "")
    assert '`ctxvc run --resume run-1 "TASK"`' in err
    assert ran(folder, "--resume", "run-1", "this", script=[{"content": "Done."}])[:2] == (0, "Done.\n")


def test_a_session_that_no_run_began_is_not_gone_on_with(folder: Path) -> None:
    with Session.open(folder / ".ctxvc", "mine", model="m", tools=[{"name": "bash", "input_schema": {}}]) as session:
        session.append({"role": "user", "content": "hello"})
    before = told(folder, "mine")
    code, out, err = ran(folder, "--resume", "mine", "more", "--model", "other", script=[{"content": "Hm."}])
    assert (code, out) == (1, "")
    assert "`ctxvc run` did not start session mine" in err
    assert "`ctxvc ask mine QUESTION`" in err
    assert told(folder, "mine") == before


def test_in_a_part_of_a_repository_the_store_is_the_repositorys(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "part").mkdir()
    asks = [{"content": [call("write_file", path="../x", content="x"), call("write_file", path="y", content="y")]}]
    code, _, err = ran(folder / "part", "do it", script=[*asks, {"content": "Done."}])
    assert code == 0
    assert f"created a store at {folder.resolve() / '.ctxvc'}" in err
    assert sorted(each.name for each in (folder / "part").iterdir()) == [
        ".local",
        "script.json",
        "y",
    ]  # HOME is here: what this machine remembers
    assert not (folder / "x").exists()
    assert ran(folder / "part", "--resume", "run-1", script=[])[:2] == (0, "Done.\n")


def test_runs_without_a_name_that_begin_together_have_two(folder: Path) -> None:
    start.begin(folder / ".ctxvc", "run-2", model="", policy=policies.parse("default")).close()
    with start.unnamed(folder / ".ctxvc") as one, start.unnamed(folder / ".ctxvc") as other:
        assert (one, other) == ("run-1", "run-3")


@pytest.mark.slow
def test_runs_that_begin_together_in_a_new_project_share_its_store(folder: Path) -> None:
    (folder / "script.json").write_text('[{"content": "Done."}]')
    runs = [started(folder, "do it", "--script", "script.json") for _ in range(2)]
    assert [ended(run)[:2] for run in runs] == [(0, "Done.\n")] * 2
    assert [told(folder, f"run-{number}")[0] for number in (1, 2)]


# --- what is asked


class Terminal(io.StringIO):
    """One on which somebody pressed ^D, or ^C twice."""

    def __init__(self, pressed: type[BaseException] | None = None) -> None:
        super().__init__()
        self._pressed = pressed

    def isatty(self) -> bool:
        return True

    def readline(self, *_: object) -> str:
        if self._pressed:
            raise self._pressed
        return ""


def test_who_gives_no_answer_has_said_no(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    assert _Ask()("rm -r .") is False
    assert "no answer: not run" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        _Ask()("rm -r .")


# --- how it ends


def test_protected_files_are_part_of_the_policy_that_the_session_keeps(folder: Path) -> None:
    task = ("do it", "--protect", "docs/*.md", "--protect", "SPEC.txt")
    code, _, err = ran(folder, *task, script=[{"content": "Done."}])
    assert code == 0, err
    with Session.open(folder / ".ctxvc", "run-1") as session:
        assert session.ledger().meta.policy == "default:protect=docs/*.md|SPEC.txt"
    code, _, err = ran(folder, *task, "--policy", "window", script=[{"content": "Done."}])
    assert code == 1 and "window protects no files" in err and "default does" in err
    code, _, err = ran(folder, "--resume", "run-1", "--protect", "*.md", script=[{"content": "Done."}])
    assert code == 2 and "requires --policy" in err


def test_a_budget_that_is_too_small_is_told_with_the_way_on(folder: Path) -> None:
    code, _, err = ran(folder, "do it", "--budget", "1000", script=[{"content": "Done."}])
    assert code == 1
    sizes = dict(re.findall(r"(the system prompt|the tools) ([\d,]+)", err))
    assert all(int(size.replace(",", "")) > 300 for size in sizes.values()), err
    assert len(sizes) == 2
    (enough,) = re.findall(r"set --budget (\d+) or more", err)
    assert "`ctxvc run --resume run-1` continues from there" in err
    code, _, err = ran(folder, "do it", "--budget", enough, script=[{"content": "Done."}])
    assert code == 0, err


@pytest.mark.parametrize(
    ("assistant", "words", "why", "code"),
    [
        (said("Done."), (), "said", 0),
        (said(Reply([text("No.")], stop_reason="refusal")), (), "refused", 1),
        (endless([[call("list_files")]]), ("--max-cost", "0.000001"), "cost", 1),
        (endless([[call("list_files")]]), ("--max-tokens-total", "4000"), "tokens", 1),
        pytest.param(endless([[call("list_files")]]), ("--max-steps", "2"), "steps", 1, marks=pytest.mark.slow),
        pytest.param(
            endless([Reply([call("bash", command="touch half")], stop_reason="max_tokens")]),
            (),
            "cut",
            1,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["said", "refused", "cost", "tokens", "steps", "cut"],
)
def test_the_exit_code_says_whether_it_is_done(
    folder: Path, assistant: Assistant, words: tuple[str, ...], why: str, code: int
) -> None:  # fmt: skip
    with serve(assistant) as api:
        done = ran(folder, "do it", "--yes", "--json", *words, url=api.url)
        assert len([call for call in api.calls if call.path == "/v1/messages"]) <= 4
    assert (done[0], json.loads(done[1])["why"]) == (code, why), done
    assert not (folder / "half").exists()


def test_who_stops_it_gets_130_and_it_goes_on(folder: Path, at_work: subprocess.Popen[str]) -> None:
    at_work.send_signal(signal.SIGINT)
    time.sleep(0.2)
    (folder / "go").touch()
    code, _, err = ended(at_work)
    assert code == 130
    assert "`ctxvc run --resume run-1` continues it" in err
    assert ran(folder, "--resume", "run-1", script=[{"content": "On."}])[:2] == (0, "On.\n")


@pytest.mark.slow
def test_who_stops_it_twice_waits_for_nobody_and_leaves_nothing_behind(folder: Path) -> None:
    """Neither for helpers' commands, which are killed, nor for one that waits for the provider."""

    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "delegate" in content:
            return "I looked."
        if "you wait" in content:
            (folder / "waits").touch()
            return Reply([text("slowly")], pause=30.0)
        if "you run" in content:
            return [call("bash", command="echo $$ > begun; sleep 50; touch late")]
        return [call("delegate", name="one", task="you run"), call("delegate", name="two", task="you wait")]

    with serve(assistant) as api:
        process = started(folder, "do it", "--yes", url=api.url)
        until_there(folder / "begun")
        until_there(folder / "waits")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)  # within a minute
        assert code == 130, err
        assert "`ctxvc run --resume run-1` continues it" in err
        with pytest.raises(ProcessLookupError):
            os.killpg(int((folder / "begun").read_text()), 0)
        assert ran(folder, "--resume", "run-1", url=api.url)[:2] == (0, "I looked.\n")
        assert {call.status for call in api.calls} <= {200}
    assert [words for kind, words in told(folder) if kind == "tool_result"] == [INTERRUPTED] * 2
    with Session.open(folder / ".ctxvc", "run-1", scope="one") as session:
        assert [row.extra for row in session.ledger().rows() if row.kind == "tool_result"] == [
            {"ctxvc": {"interrupted": True}}
        ]
        assert not damages(session.store)


@pytest.mark.parametrize("dollars", ["nan", "inf", "-1"])
def test_a_limit_of_cost_is_an_amount(folder: Path, dollars: str) -> None:
    assert ran(folder, "do it", "--max-cost", dollars, script=[])[0] == 2
    assert not (folder / ".ctxvc").exists()


def test_a_limit_of_cost_is_refused_where_the_price_is_not_known(folder: Path) -> None:
    with serve(said("Done.")) as api:
        code, _, err = ran(folder, "do it", "--model", "claude-nobody-9", "--max-cost", "1", url=api.url)
    assert code == 1
    assert "no price is known" in err
    assert not (folder / ".ctxvc").exists()


# --- helpers


@pytest.mark.slow
def test_a_run_killed_with_a_helper_at_work_goes_on_and_so_does_the_helper(folder: Path) -> None:
    """In the killed step stand a tool of the context, a helper in the middle of a command, and a command beside it."""

    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "you are a helper" in content and "delegate" not in content:
            if "interrupted" not in content:
                return [call("bash", command=f"echo helper >> log; {WAITS}", timeout=60)]
            return "I looked: it had run."
        if "it had run" in content:
            return "Done."
        aside = call("delegate", name="aside", task="you are a helper")
        if "interrupted" in content:
            return [aside]
        return [call("note", text="Begun."), aside, call("bash", command="echo main >> log; touch beside")]

    with serve(assistant) as api:
        process = started(folder, "do it", "--yes", url=api.url)
        until_there(folder / "begun")
        until_there(folder / "beside")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (folder / "go").touch()  # the command that it left behind ends
        assert ran(folder, "--resume", "run-1", "--yes", url=api.url)[:2] == (0, "Done.\n")
        assert {call.status for call in api.calls} == {200}
    assert sorted((folder / "log").read_text().split()) == ["helper", "main"]
    with Session.open(folder / ".ctxvc", "run-1") as session:
        assert [note.text for note in session.notes()] == ["Begun.", "[← aside] I looked: it had run."]
        assert not damages(session.store)
    with Session.open(folder / ".ctxvc", "run-1", scope="aside") as helper:
        assert not helper.stored.in_step
