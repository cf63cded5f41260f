"""On a terminal: aligned, coloured where wanted, paged, with ages; and nothing recorded reaches it raw."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctxvc.cli import main
from ctxvc.cli.output import Output, ago
from ctxvc.cli.terminal.table import breadth
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.store import create
from tests.cli.conftest import COLOUR, STEERING, Run
from tests.making.project import HOSTILE

ROOT = Path(main.__file__).parents[2]


def on_terminal(*arguments: str, folder: Path, width: int = 120, typed: str = "", **env: str) -> tuple[str, int]:
    """What `ctxvc` writes to a terminal (stdout and stderr together) where a person types that; and its exit code."""
    settings = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "CTXVC_PAGER": "cat", **env}
    child, terminal = pty.fork()
    if child == 0:  # this process, with all that it has loaded
        with _on_standard_streams():
            os.chdir(folder)
            os.environ.update(settings)
            sys.argv = ["ctxvc", *arguments]
            main.run()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    os.write(terminal, typed.encode())
    told = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        told += piece
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return told.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(status)


@contextmanager
def _on_standard_streams() -> Iterator[None]:
    """For a fork: the streams are those of the process, and it ends here as a program does."""
    code: object = 1
    try:
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - as long as it lives
        yield
    except SystemExit as done:
        code = done.code or 0
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_a_table_is_aligned_and_fits_the_terminal(built: Path) -> None:
    text, code = on_terminal("--color", "never", "status", folder=built, COLUMNS="80")
    header, *rows, remark = text[text.index("ID ") :].splitlines()
    assert code == 0
    assert len(rows) == 14
    assert max(map(len, rows)) <= 80
    assert {row.find("r ", 6) for row in rows} == {header.index("age") + 2}
    assert rows[5].endswith("Read tests/test_app.py"), "the end of a path is never cut"
    assert "reads" not in header  # nothing was read: the column makes room
    assert remark == "(no room for: level, parent)"


def test_numbers_are_short_and_a_turn_has_its_time(built: Path) -> None:
    text, _ = on_terminal("--color", "never", "status", folder=built)
    assert "~189 of 200k tokens" in text
    text, _ = on_terminal("--color", "never", "log", folder=built)
    assert "turn 2  2026-03-01 12:00  1.0k" in text


@pytest.mark.parametrize(
    "part", [["-n", "1"], ["-n", "1", "--reverse"], ["--reverse"], ["--tool", "Bash"]], ids=" ".join
)
def test_the_figures_of_a_turn_are_the_whole_turns(part: list[str], built: Path, on_screen: Run) -> None:
    def headings(*options: str) -> set[str]:
        return {line for line in on_screen("log", *options, folder=built).stdout.splitlines() if "turn " in line}

    assert headings(*part) and headings(*part) <= headings()


def test_ages_are_in_the_unit_that_fits() -> None:
    now = 1_772_366_400  # 2026-03-01T12:00:00Z
    assert ago("2026-03-01T11:59:50Z", now) == "10 s ago"
    assert ago("2026-03-01T11:57:00Z", now) == "3 min ago"
    assert ago("2026-03-01T09:00:00.500Z", now) == "2 h ago"
    assert ago("2026-02-24T12:00:00+00:00", now) == "5 d ago"
    assert re.fullmatch(r"2025-12-\d\d", ago("2025-12-24T12:00:00Z", now))
    assert re.fullmatch(r"2026-03-0\d", ago("2026-03-02T12:00:00Z", now))


@pytest.mark.parametrize(
    ("options", "env", "terminal", "coloured"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"NO_COLOR": ""}, True, True),
        ([], {"TERM": "dumb"}, True, False),
        ([], {"FORCE_COLOR": "1"}, False, True),
        ([], {"FORCE_COLOR": "0"}, False, False),
        ([], {"CLICOLOR_FORCE": "1"}, False, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        (["--color", "always"], {"NO_COLOR": "1"}, False, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_about_colours(
    options: list[str], env: dict[str, str], terminal: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    output = Output(json=False, color=(options or ["", "auto"])[1], pager=False, env={"TERM": "xterm", **env})
    assert output.colors is coloured


def test_colours_reach_a_terminal_and_a_pipe_only_when_asked(built: Path, run: Run) -> None:
    assert COLOUR.search(on_terminal("log", folder=built)[0])
    assert not COLOUR.search(on_terminal("log", folder=built, NO_COLOR="1")[0])
    assert "\x1b" not in run("log", folder=built).stdout
    assert "\x1b[32m" in run("status", "--color", "always", folder=built).stdout


def test_the_layout_is_the_same_with_and_without_colours(built: Path, on_screen: Run) -> None:
    for arguments in (["status"], ["log"], ["diff", "step:1"], ["prompt"], ["doctor"]):
        coloured = on_screen("--color", "always", *arguments, folder=built).output
        plain = on_screen("--color", "never", *arguments, folder=built).output
        assert COLOUR.search(coloured) and not COLOUR.search(plain)
        assert _bare(coloured) == _bare(plain)


def _bare(told: str) -> list[str]:
    return [re.sub(r"in [0-9.]+ s", "", line).rstrip() for line in COLOUR.sub("", told).splitlines()]


#: Every command that shows what was recorded, in each of its forms.
SHOWING = (
    *("sessions", "sessions --json", "status --all", "status --json", "context --by tool", "context --by file"),
    *("context --by turn", "log", "log --graph", "log --jsonl", "show B1", "show B2", "show B3", "show step:1"),
    *("show B2 --json", "diff HEAD~1", "prompt", "prompt --json", "grep owned", "grep owned --json", "bisect owned"),
    *("blame B2", "blame B2 --json", "scopes", "notes", "plan", "doctor", "verify", "export"),
)


def test_nothing_recorded_can_steer_a_terminal(built: Path, run: Run, on_screen: Run) -> None:
    for words in SHOWING:
        hostile = ["--session", "hostile", *words.split()]
        for runs in (run, on_screen):
            done = runs(*hostile, folder=built)
            assert done.exception is None or isinstance(done.exception, SystemExit), words
            assert done.output or words == "notes", words
            assert not STEERING.search(COLOUR.sub("", done.output)), words


@pytest.mark.parametrize("words", [["status", "--all"], ["show", "B2"]], ids=" ".join)
def test_nothing_recorded_can_steer_a_real_terminal(words: list[str], built: Path, on_screen: Run) -> None:
    text, code = on_terminal("--session", "hostile", *words, folder=built)
    assert code == 0
    assert not STEERING.search(COLOUR.sub("", text))
    assert text == on_screen("--session", "hostile", *words, folder=built).output


def test_a_name_in_the_arguments_cannot_steer_a_terminal(run: Run, built: Path) -> None:
    for arguments in (
        ["show", HOSTILE],
        ["--session", HOSTILE, "log"],
        [HOSTILE],
        ["-C", HOSTILE, "log"],
        ["log", f"-{HOSTILE}"],
    ):
        told = run(*arguments, folder=None if "-C" in arguments else built).stderr

        assert "\x1b" not in told
        assert "\x9b" not in told


def test_a_path_in_a_message_cannot_steer_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[2Jfolder\x9b"
    folder.mkdir()
    text, code = on_terminal("status", folder=folder)
    assert code == 1
    assert "\\x1b[2Jfolder\\x9b" in text
    assert not COLOUR.search(text)


# --- the pager


def test_a_long_answer_goes_through_the_pager_that_is_set_and_less_is_told_to_leave_at_once_where_all_fits(
    built: Path,
) -> None:
    text, code = on_terminal("log", folder=built, CTXVC_PAGER="sed s/^/paged:/", GIT_PAGER="false", PAGER="false")
    assert code == 0
    assert text.count("paged:") >= len(text.splitlines()) - 1 > 8  # the notice on the waiting record is no part of it
    text, _ = on_terminal("log", folder=built, CTXVC_PAGER="sh -c 'cat >/dev/null; echo LESS=$LESS'")
    assert "LESS=FRX" in text
    text, _ = on_terminal("log", folder=built, CTXVC_PAGER="sh -c 'cat >/dev/null; echo LESS=$LESS'", LESS="S")
    assert "LESS=S" in text


@pytest.mark.parametrize("setting", [{"CTXVC_PAGER": "cat"}, {"CTXVC_PAGER": ""}], ids=["cat", "empty"])
def test_no_pager_is_run_where_none_is_wanted(built: Path, setting: dict[str, str]) -> None:
    text, _ = on_terminal("log", folder=built, **setting, PAGER="sed s/^/paged:/")
    assert "turn 2" in text and "paged:" not in text


def test_no_pager_is_run_for_json_or_when_told_not_to(built: Path) -> None:
    for arguments in (["log", "--json"], ["--no-pager", "log"], ["log", "--no-pager"]):
        assert "paged:" not in on_terminal(*arguments, folder=built, CTXVC_PAGER="sed s/^/paged:/")[0]


def test_a_pager_that_is_left_early_is_no_failure(built: Path) -> None:
    text, code = on_terminal("prompt", folder=built, CTXVC_PAGER="head -1")
    assert code == 0
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1


# --- progress


def test_a_bar_is_drawn_only_for_work_that_takes_a_second(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxvc.cli.terminal.progress import Progress

    drawn: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.write", drawn.append, raising=False)
    clock = iter([0.0, 0.5, 1.5, 1.55, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))

    with Progress("importing", 1000) as progress:
        progress.add(100)
        assert drawn == []
        progress.add(400)
        progress.add(1)
        progress.add(99)

    assert [text.split("]")[0] for text in drawn[:-1]] == [
        "\rimporting [██████████░░░░░░░░░░",
        "\rimporting [████████████░░░░░░░░",
    ]
    assert drawn[-1] == "\r\x1b[K"


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is drawn on a terminal of 80 columns, of work that is shown at once."""
    drawn: list[str] = []
    monkeypatch.setattr("ctxvc.cli.terminal.progress._AFTER", -1.0)
    monkeypatch.setattr("ctxvc.cli.terminal.progress._EVERY", -1.0)
    monkeypatch.setattr("ctxvc.cli.terminal.progress.Progress._tick", lambda _: None)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    monkeypatch.setattr("ctxvc.cli.terminal.progress.Progress._draw", lambda bar, now: drawn.append(bar._line(now)))
    return drawn


def test_a_bar_says_how_fast_it_goes_and_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxvc.cli.terminal.progress import Progress

    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    bar = Progress("importing", 1_000_000)
    bar._done = 200_000
    assert bar._line(104.0) == "importing [████░░░░░░░░░░░░░░░░] 200.0 kB, 50.0 kB/s, 16 s left"
    assert bar._line(101.0) == "importing [████░░░░░░░░░░░░░░░░] 200.0 kB, 200.0 kB/s", "too early to say"
    bar._done = 1_000
    assert bar._line(104.0).endswith("1 h 6 min left")
    assert Progress("packing")._line(107.0) == "packing 7 s", "where nobody knows the total"


def test_what_may_take_a_while_shows_how_far_it_is(bars: list[str], run: Run, project: Path) -> None:
    run("import", "--final", str(ROOT / "tests" / "data" / "codex" / "current.jsonl"), folder=project)
    titles: dict[str, str] = {}
    for arguments in (["status"], ["gc"], ["purge", "--secrets"], ["grep", "the"]):
        bars.clear()
        run(*arguments, folder=project)
        titles[" ".join(arguments)] = " ".join(bars)

    assert "counting tokens [" in titles["status"]
    assert "exchanging packs" in titles["gc"] and "committing complete steps" in titles["gc"]
    assert "searching [" in titles["purge --secrets"] and "blocks" not in titles["purge --secrets"]
    assert "searching [" in titles["grep the"]
    bars.clear()
    assert run("status", folder=project).exit_code == 0
    assert not bars, "what is counted is not counted again"


def test_json_on_a_terminal_says_the_same_as_in_a_pipe(built: Path, run: Run) -> None:
    text, _ = on_terminal("--session", "hostile", "prompt", "--json", folder=built)
    assert json.loads(text) == json.loads(run("--session", "hostile", "prompt", "--json", folder=built).stdout)


# --- grep


def test_what_matches_is_marked_and_stands_below_its_block(built: Path, on_screen: Run) -> None:
    told = on_screen("grep", "add.3[12], 1.*=", folder=built, width=80).stdout
    assert "\x1b[31m\x1b[1madd(31, 1) ==\x1b[0m 32" in told
    assert COLOUR.sub("", told).splitlines() == [
        "demo/main:B6  tool_result, archived, step 1",
        "  32  31: assert add(31, 1) == 32",
        "  33  32: assert add(32, 1) == 33",
    ]


def test_lines_around_a_match_are_shown_once_and_a_gap_is_marked(built: Path, on_screen: Run, run: Run) -> None:
    arguments = ["grep", "-C", "1", "-F", "-n", "0", "add(3"]
    told = COLOUR.sub("", on_screen("grep", "-C", "1", "add.(12|13|31),", folder=built, width=80).stdout)
    numbers = [line.split()[0] for line in told.splitlines()[1:]]
    assert numbers == ["12", "13", "14", "15", "⋮", "31", "32", "33"]

    piped = run("grep", "-C", "1", "add.(12|31),", folder=built).stdout.splitlines()
    assert piped == [
        "demo/main:B6-12-11: assert add(11, 1) == 12",
        "demo/main:B6:13:12: assert add(12, 1) == 13",
        "demo/main:B6-14-13: assert add(13, 1) == 14",
        "--",
        "demo/main:B6-31-30: assert add(30, 1) == 31",
        "demo/main:B6:32:31: assert add(31, 1) == 32",
        "demo/main:B6-33-32: assert add(32, 1) == 33",
    ]
    assert run(*arguments, folder=built).exit_code == 0


def test_of_a_long_line_the_match_is_what_is_shown(on_screen: Run, run: Run, tmp_path: Path) -> None:
    line = "x" * 3000 + " the needle " + "日本" * 1500
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [{"role": "user", "content": line}]}))
    run("import", "--final", str(tmp_path / "chat.json"), folder=tmp_path)
    told = on_screen("grep", "needle", folder=tmp_path, width=80).stdout
    assert "\x1b[31m\x1b[1mneedle\x1b[0m" in told
    assert max(map(breadth, COLOUR.sub("", told).splitlines())) <= 80


def test_a_folder_is_named_before_grep_and_context_after_it(run: Run, built: Path) -> None:
    result = run("grep", "-C", str(built), "assert", folder=built)
    assert result.exit_code == 2
    assert "not a valid integer" in result.stderr


# --- colours by what is meant


def test_states_changes_and_the_current_session_have_colours_of_their_own(
    project: Path, run: Run, on_screen: Run
) -> None:
    run("pin", "B11", folder=project)
    run("delete", "B12", "-m", "no need", folder=project)
    status, ops, sessions = (on_screen(word, folder=project).stdout for word in ("status", "ops", "sessions"))
    assert re.search(r"\x1b\[36mpinned +\x1b\[0m", status)
    assert re.search(r"\x1b\[31mdeleted by user +\x1b\[0m", status)
    assert re.search(r"\x1b\[32m *−[0-9.k]+\x1b\[0m", ops), "what made room is green"
    assert re.search(r"\x1b\[32m\*\x1b\[0m +\x1b\[32mdemo +\x1b\[0m", sessions), "the session that commands take"


@pytest.mark.parametrize(
    "words", [("use", "cl"), ("--session", "cl", "log"), ("show", "cl/main~1"), ("status", "cl/main")]
)
def test_a_person_picks_one_of_several_sessions(words: tuple[str, ...], tmp_path: Path) -> None:
    with create(tmp_path / ".ctxvc") as store:
        for name, word, day in (("claude-1", "new", 2), ("claude-2", "old", 1)):
            parts = (text_part(f"the {word} one", "user", "human"),)
            message = Message(role="user", parts=parts, key="1", time=f"2026-03-0{day}T12:00:00Z")
            ingest(store, [Opened(format="pi", source=name, name=name), Said(message=message, end=1)], final=True)

    for number, name in enumerate(("claude-1", "claude-2"), 1):
        text, code = on_terminal("--color", "never", *words, folder=tmp_path, typed=f"9\n{number}\n")
        assert code == 0, text
        before, _, after = text.rpartition("which session: ")
        assert "  1  claude-1\n  2  claude-2\n" in before
        assert "is not in the range 1<=x<=2" in before
        assert name in after
