"""Whatever is wrong: one clear message, a hint, the right exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctxvc.cli import command_list, main
from ctxvc.errors import Conflict
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import INTERRUPTIBLE, ROOT, Run, printed, python
from tests.making.conversation import human, reply

READERS = [
    ["sessions"],
    ["status"],
    ["context"],
    ["log"],
    ["show"],
    ["diff", "HEAD"],
    ["prompt"],
    ["export"],
    ["verify"],
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_where_there_is_no_store_the_way_to_one_is_named(words: list[str], run: Run, tmp_path: Path) -> None:
    result = run(*words, folder=tmp_path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"no ctxvc store in {tmp_path}" in result.stderr
    assert "ctxvc init" in result.stderr


@pytest.mark.parametrize("words", READERS[1:-1], ids=" ".join)
def test_a_store_without_a_session_says_how_to_get_one(words: list[str], run: Run, tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    result = run(*words, folder=tmp_path)
    assert result.exit_code == 1
    assert "no session" in result.stderr
    assert "ctxvc import" in result.stderr


def _not_git(path: Path) -> None:
    (path / "ctxvc").mkdir(parents=True)
    (path / "HEAD").write_text("nonsense")


def _other_git(path: Path) -> None:
    program.run(None, "init", "--quiet", "--bare", str(path))
    (path / "ctxvc").mkdir()


def _newer(path: Path) -> None:
    program.run(path, "config", "ctxvc.format", "3")


def _extension(path: Path) -> None:
    program.run(path, "config", "core.repositoryformatversion", "1")
    program.run(path, "config", "extensions.ctxvcFuture", "true")


@pytest.mark.parametrize(
    ("spoil", "message", "code"),
    [
        (_not_git, "is not a git repository", 3),
        (_other_git, "not a ctxvc store", 1),
        (_newer, "has format 3; this ctxvc reads up to 2", 1),
        (_extension, "ctxvcfuture", 1),
    ],
)
@pytest.mark.parametrize("words", [["status"], ["sessions", "--json"], ["verify"], ["import", "x.jsonl"]], ids=" ".join)
def test_what_is_no_store_of_ours_is_left_alone(
    words: list[str], spoil: Callable[[Path], None], message: str, code: int, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / ".ctxvc"
    if spoil in (_newer, _extension):
        run("init", folder=tmp_path)
    spoil(path)
    result = run(*words, folder=tmp_path)
    assert result.exit_code == code
    assert message in result.stderr.lower() if message.islower() else message in result.stderr
    assert "bug" not in result.stderr


@pytest.mark.parametrize(
    ("named", "advice"),
    [("project", "its store is {}/.ctxvc"), ("other", "check the path"), ("file", "check the path")],
)
def test_a_store_named_by_mistake_is_said_to_be_none_and_not_mended(
    named: str, advice: str, run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "release").symlink_to("elsewhere")
    (tmp_path / "file").touch()
    path = project if named == "project" else tmp_path / named
    monkeypatch.setenv("CTXVC_STORE", str(path))
    for words in ("status", "verify"):
        result = run(words)
        assert result.exit_code == 1
        assert result.stderr == f"ctxvc: {path} is not a ctxvc store\nhint: {advice.format(path)}\n"


def test_damage_ends_with_3_and_names_the_block(run: Run, project: Path) -> None:
    for pack in (project / ".ctxvc" / "objects" / "pack").glob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[20 : len(data) - 20 : 40] = bytes(len(data[20 : len(data) - 20 : 40]))
        pack.chmod(0o600)
        pack.write_bytes(data)

    result = run("status", folder=project)

    assert result.exit_code == 3
    assert re.fullmatch(r"ctxvc: commit [0-9a-f]{12} is damaged\nhint: run `ctxvc verify`\n", result.stderr), (
        "in words, and without what a library says"
    )
    assert run("verify", folder=project).exit_code == 3


@pytest.mark.parametrize(
    ("lost", "search", "current"),
    [
        ("body", ["login"], "whole"),
        ("ledger", ["login"], "damaged"),
        ("body", ["login", "--rank"], "damaged"),
        ("ledger", ["login", "--rank"], "whole"),
    ],
)
def test_a_search_lists_what_is_whole_beside_what_is_damaged(
    lost: str, search: list[str], current: str, run: Run, project: Path
) -> None:
    store = project / ".ctxvc"
    with Store(store) as opened:
        for name in ("whole", "damaged"):
            with StoredSession.open(opened, opened.create_session(name)) as stored:
                stored.append(human("the login fails"), reply(f"the login of {name}"))
        path = "blocks/00/00/B2.txt" if lost == "body" else "ledger/00/00.jsonl"
        lost_id = str(opened.reader.tree(opened.tips("damaged")["main"])[path].id)
    for pack in [*(store / "objects" / "pack").glob("*.pack")]:
        moved = pack.rename(project / pack.name)
        program.run(store, "unpack-objects", "-q", data=moved.read_bytes())
    (store / "objects" / lost_id[:2] / lost_id[2:]).unlink()
    run("use", current, folder=project)

    result = run("grep", *search, "--all", folder=project)

    assert result.exit_code == 3
    assert "whole/main:B1" in result.stdout and "whole/main:B2" in result.stdout
    assert ("damaged/main:B2" if lost == "body" else "ledger/00/00.jsonl") in result.stderr


@pytest.mark.parametrize(
    ("words", "way_out"),
    [(["grep", "--rank", "login"], "without --rank"), (["sql", "SELECT 1"], "ctxvc sql --from DIR")],
)
def test_what_is_kept_in_a_store_that_is_read_only_has_another_way(
    words: list[str], way_out: str, run: Run, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    result = run(*words, folder=built)
    assert result.exit_code == 1
    assert "is read-only" in result.stderr and way_out in result.stderr


def test_an_error_for_a_program_is_json_and_stdout_stays_empty(run: Run, tmp_path: Path) -> None:
    result = run("status", "--json", folder=tmp_path)
    assert result.stdout == ""
    assert json.loads(result.stderr)["error"].keys() == {"code", "message", "hint"}
    assert json.loads(result.stderr)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--nonsense"],
        ["log", "-n", "-1"],
        ["log", "-n", "x"],
        ["diff"],
        ["diff", "", "HEAD"],
        ["show", ""],
        ["status", ""],
        ["use", ""],
        ["checkout", ""],
        ["checkout", "demo", ""],
        ["report", ""],
        ["notes", ""],
        ["ops", ""],
        ["import", ""],
        ["watch", "--once", ""],
        ["init", ""],
        ["--session", "", "archive", "B1"],
        ["archive", "B1", "--session", ""],
        ["scope", "s", "-m", "x", "--from", ""],
        ["undo", "--to", ""],
        ["log", "--since", "soon"],
        ["log", "--until", "soon"],
        ["grep", "--since", "soon", "x"],
        ["stats", "--since", "soon"],
        ["report", "--stats", "--since", "soon"],
        ["export", "--format", "parquet", "-o", "table", "--since", "soon"],
        ["pull", "--since", "soon"],
        ["clone", "nowhere", "--since", "soon"],
        ["remote", "add", "nowhere", "--since", "soon"],
        ["sessions", "B1"],
        ["context", "--by", "mood"],
        ["export", "--format", "yaml"],
        ["completion", "tcsh"],
        ["import", "--format", "word", "x.jsonl"],
        ["--color", "sometimes", "log"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_points_to_help(words: list[str], run: Run, built: Path) -> None:
    result = run(*words, folder=built)
    answer = json.loads(run(*words, "--json", folder=built).stderr)
    assert result.exit_code == 2
    assert "--help`" in result.stderr
    assert answer["error"]["code"] == "usage"


@pytest.mark.parametrize("words", [["ask", "demo", "why?"], ["run", "mend it"]], ids=" ".join)
@pytest.mark.parametrize("script", ["none.json", "folder"])
def test_a_script_that_cannot_be_read_is_an_error_with_a_hint(
    words: list[str], script: str, run: Run, project: Path
) -> None:
    (project / "folder").mkdir()
    before = run("sessions", "--json", folder=project).stdout
    result = run(*words, "--script", script, "--json", folder=project)
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert error["message"].startswith(f"cannot read {script}: ")
    assert "a JSON list" in error["hint"]
    assert run("sessions", "--json", folder=project).stdout == before


def test_a_conflict_ends_with_4(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(*_: object) -> None:
        raise Conflict("another process holds demo", hint="wait for it")

    monkeypatch.setattr("ctxvc.store.store.Store.all_tips", conflict)

    result = run("sessions", folder=project)

    assert (result.exit_code, result.stderr) == (4, "ctxvc: another process holds demo\nhint: wait for it\n")


def test_a_bug_is_a_short_report_without_a_traceback(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("B12 \x1b[2J" + "x" * 5000)

    monkeypatch.setattr("ctxvc.store.store.Store.all_tips", fail)

    result = run("sessions", folder=project)

    assert result.exit_code == 1
    assert "this is a bug in ctxvc" in result.stderr
    assert "KeyError: 'B12" in result.stderr
    assert "ctxvc/cli/commands/sessions.py:" in result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 1500
    assert json.loads(run("sessions", "--json", folder=project).stderr)["error"]["code"] == "bug"


@contextmanager
def nobody() -> Iterator[None]:
    """Whoever runs the tests has no rights of root here."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("words", [["status"], ["sessions"], ["log", "--json"]], ids=" ".join)
def test_a_store_that_may_not_be_read_is_said_to_be_so(words: list[str], run: Run, built: Path, visible: Path) -> None:
    assert run(*words, folder=built).exit_code == 0  # and what it needs of Python is loaded
    subprocess.run(["cp", "-r", str(built / ".ctxvc"), str(visible / ".ctxvc")], check=True)
    (visible / ".ctxvc").chmod(0o700 if os.geteuid() == 0 else 0)
    with nobody():
        done = run(*words, folder=visible)
    (visible / ".ctxvc").chmod(0o700)
    assert done.exit_code == 1
    assert "ermission denied" in done.stderr + done.stdout
    assert "bug" not in done.stderr


@pytest.mark.parametrize("words", [["init"], ["import", "x.jsonl"]], ids=" ".join)
def test_where_nothing_may_be_written_a_new_store_is_refused(
    words: list[str], run: Run, visible: Path, tmp_path: Path
) -> None:
    for folder in (visible, tmp_path):
        (folder / "x.jsonl").write_text("{}\n")
    run(*words, folder=tmp_path)  # what it needs of Python is loaded
    visible.chmod(0o755 if os.geteuid() == 0 else 0o555)

    with nobody():
        done = run(*words, folder=visible)
    visible.chmod(0o755)

    assert done.exit_code == 1
    assert "cannot create" in done.stderr
    assert "ermission" in done.stderr


@pytest.mark.parametrize("words", [["log"], ["show", "B1", "--raw"]], ids=" ".join)
def test_a_reader_that_is_gone_ends_every_command_with_141(words: list[str], built: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    code, _, err = printed("-m", "ctxvc", *words, folder=built, stdout=write)
    os.close(write)
    assert (code, err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_once(built: Path) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = printed("-m", "ctxvc", "log", folder=built, stdout=full)
    assert (code, err.count("No space left on device")) == (1, 1)
    assert "Exception ignored" not in err


def test_without_a_stdout_there_is_nothing_to_do(built: Path) -> None:
    command = f"{sys.executable} -m ctxvc log"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(["sh", "-c", f"{command} >&-"], cwd=built, env=env, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr[:24]) == (1, b"ctxvc: stdout is closed:")
    result = subprocess.run(["sh", "-c", f"{command} 2>&-"], cwd=built, env=env, stdout=subprocess.PIPE, check=False)
    assert (result.returncode, result.stdout[:7]) == (0, b"commit\t")


def test_an_interrupt_ends_with_130(tmp_path: Path) -> None:
    running = python(*INTERRUPTIBLE, "import", "-", folder=tmp_path, stdin=subprocess.PIPE)
    assert running.stdin
    running.stdin.write("x" * (1 << 20))  # more than a pipe takes: returns once the importer is reading
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, "Traceback" in err) == (130, False)


def test_windows_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="WSL"):
        main.run()


def test_a_terminal_that_cannot_write_our_characters_is_no_reason_to_fail(built: Path) -> None:
    code, out, _ = printed("-m", "ctxvc", "status", folder=built, env={"PYTHONIOENCODING": "ascii"})
    assert (code, "[\\u2591" in out) == (0, True)


@pytest.mark.parametrize(("typed", "meant"), [("search", "grep"), ("ls", "sessions"), ("sesions", "sessions")])
def test_a_command_of_another_name_is_answered_with_ours(run: Run, typed: str, meant: str) -> None:
    """`search` was answered with `archive`, which is spelled more like it."""
    assert f"there is no command '{typed}'; did you mean {meant}?" in run(typed).stderr


def test_what_other_programs_call_a_command_is_none_of_ours() -> None:
    assert command_list.ELSEWHERE.keys().isdisjoint(command_list.COMMANDS)
    assert set(command_list.ELSEWHERE.values()) <= set(command_list.COMMANDS)
