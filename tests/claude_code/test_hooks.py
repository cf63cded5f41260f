"""What hooks do beside recording: what they answer, what they never do, and what they leave."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.claude_code import event, requests, settings, truncate
from ctxvc.claude_code import hook as answering
from ctxvc.claude_code.recorder import record
from ctxvc.claude_code.requests import Request
from ctxvc.cli import hook_entry
from ctxvc.cli.main import cli
from ctxvc.core import variables
from ctxvc.errors import CtxvcError
from ctxvc.recording import log, places
from ctxvc.store import store as store_module
from ctxvc.store.project import locate
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.making.host import START, end_recorder, environment, hook, settle, without_recorder
from tests.making.waiting import until_there
from tests.recording.test_files import CONVERSATION, write


def run(folder: Path, words: list[str], data: bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*START, *words], input=data, capture_output=True, env=environment(folder, **env), cwd=folder, check=False
    )


WORDS = (["Stop"], ["statusline"], [], ["--nonsense", "-x"], ["record"], ["record", "/none"])


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense", b"[]", b'{"transcript_path": 7}', b"[" * 100_000, b'{"transcript_path":"\\u0000"}', b"\xff"],
)
@pytest.mark.parametrize("words", WORDS)
def test_whatever_comes_in_a_hook_ends_well(
    tmp_path: Path, words: list[str], data: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert hook_entry.hook(words, environment(tmp_path)) == 0

    out, err = capfd.readouterr()
    assert err == ""
    assert out == "" or words == ["statusline"]


@pytest.mark.parametrize("words", WORDS[:3])
def test_a_hook_s_process_says_nothing_of_nonsense(tmp_path: Path, words: list[str]) -> None:
    result = run(tmp_path, words, b"nonsense")

    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == b"" or words == ["statusline"]


def test_by_way_of_the_command_line_too(place: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "ctxvc", "hook", "--unknown"],
        input=b"{}",
        capture_output=True,
        env=environment(place),
        cwd=place,
        check=False,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_an_error_of_ours_is_logged_and_not_told(place: Path, tmp_path: Path) -> None:
    store = place / FOLDER
    (places.home(store)).mkdir()
    (places.home(store) / "requests").write_text("a file where a folder should be")

    assert hook(place, tmp_path / "s.jsonl", "Stop") == ""
    (entry,) = log.entries(store)
    assert "Stop: Refused" in entry and "requests is a file, which does not belong in a store" in entry


def test_a_transcript_that_was_edited_is_told_in_the_log(place: Path, tmp_path: Path) -> None:
    store = place / FOLDER
    transcript = write(tmp_path / "s.jsonl", *CONVERSATION)
    hook(place, transcript, "SessionEnd")
    settle(store)
    write(transcript, *CONVERSATION[2:])
    hook(place, transcript, "SessionEnd")
    until = time.monotonic() + 20
    while requests.pending(store) and time.monotonic() < until:
        time.sleep(0.05)

    (entry,) = log.entries(store)
    assert "not the one that was imported" in entry and "--as-new" in entry


def test_the_log_is_bounded(tmp_path: Path) -> None:
    store = tmp_path / "s"
    (store / "ctxvc").mkdir(parents=True)
    for number in range(2000):
        log.note(store, "Stop", f"{number} " + "long\n\x1b[2J " * 100)

    assert sum(path.stat().st_size for path in places.home(store).glob("log*")) < 2 * log.LONGEST + 2000
    assert log.entries(store, 1)[0].split(": ")[1].startswith("1999")
    assert "\x1b" not in log.file(store).read_text()


def test_where_a_project_has_no_store_one_is_made(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "deep").mkdir()
    transcript = tmp_path / "s.jsonl"
    assert run(project / "deep", ["SessionStart"], told(project / "deep", transcript)).returncode == 0
    without_recorder(project)
    assert not (project / FOLDER).exists()  # nothing was said yet
    write(transcript, *CONVERSATION)
    run(project / "deep", ["Stop"], told(project / "deep", transcript), CLAUDE_PROJECT_DIR=str(project / "deep"))
    until_there(project / FOLDER / "HEAD")
    settle(project / FOLDER)
    until_there(places.status(project / FOLDER, str(transcript)))
    end_recorder(project / FOLDER)

    with store_module.Store(project / FOLDER) as store:
        assert store.sessions() == ["claude-11111111"]


def test_where_no_project_is_nothing_is_recorded_until_the_person_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    transcript = write(tmp_path / "s.jsonl", *CONVERSATION)
    result = run(folder, ["Stop"], told(folder, transcript))
    assert (result.returncode, result.stdout) == (0, b"")
    record([str(folder), requests.encoded(Request("Stop", str(transcript))).decode()], {})
    assert list(folder.iterdir()) == []

    assert CliRunner().invoke(cli, ["-C", str(folder), "install", "claude-code", "--project"]).exit_code == 0
    run(folder, ["Stop"], told(folder, transcript))
    until_there(places.status(folder / FOLDER, str(transcript)))
    settle(folder / FOLDER)
    end_recorder(folder / FOLDER)


@pytest.mark.parametrize(
    "held", ["", "[]", '{"hooks": {"Stop": 7}}', '{"hooks": {"Stop": [{"hooks": [{"command": 1}]}]}}']
)
def test_settings_without_our_hooks_make_no_project(tmp_path: Path, held: str) -> None:
    (tmp_path / settings.LOCAL).parent.mkdir()
    (tmp_path / settings.LOCAL).write_text(held)

    assert not settings.recorded_here(tmp_path)


def test_the_home_folder_is_no_project(tmp_path: Path) -> None:
    home = Path.home()
    transcript = write(tmp_path / "s.jsonl", *CONVERSATION)
    run(home, ["Stop"], told(home, transcript))
    without_recorder(home)

    assert not (home / FOLDER).exists()


def test_recording_can_be_turned_off(place: Path, tmp_path: Path) -> None:
    run(place, ["Stop"], told(place, tmp_path / "s.jsonl"), CTXVC_RECORDING="off")

    assert not places.home(place / FOLDER).exists()


@pytest.mark.parametrize("named", [True, False])
def test_the_project_is_the_one_that_the_host_names_else_that_of_the_events_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr(answering, "_start", lambda _: None)
    env = {"CLAUDE_PROJECT_DIR": str(place)} if named else {}

    answering.answer("Stop", told(tmp_path if named else place, tmp_path / "s.jsonl"), env)

    assert [request.event for _, request in requests.pending(place / FOLDER)] == ["Stop"]


def told(folder: Path, transcript: Path, **fields: Any) -> bytes:
    return json.dumps({"transcript_path": str(transcript), "cwd": str(folder), **fields}).encode()


def test_a_new_session_is_told_of_the_last_one_only_if_asked(place: Path, tmp_path: Path) -> None:
    transcript = write(tmp_path / "s.jsonl", *CONVERSATION)
    hook(place, transcript, "SessionEnd", reason="other")
    settle(place / FOLDER)
    start = told(place, tmp_path / "new.jsonl", source="startup")

    assert run(place, ["SessionStart"], start).stdout == b""
    answer = json.loads(run(place, ["SessionStart"], start, CTXVC_OFFER="1").stdout)
    words = answer["hookSpecificOutput"]["additionalContext"]
    assert "claude-11111111/main" in words and "mend it" in words and len(words) <= event.OFFERED


# --- requests


def test_a_summarising_agent_is_no_agent() -> None:
    def asked(**fields: str) -> Request | None:
        said = event.parsed(told(Path("/p"), Path("/t/s.jsonl"), **fields), "SubagentStop")
        return event.request(said) if said else None

    assert asked(agent_type="") is None
    assert asked(agent_type="Explore") == Request("SubagentStop", "/t/s.jsonl", "Explore")


def test_a_hook_in_a_sub_agent_asks_for_the_session() -> None:
    said = event.parsed(told(Path("/p"), Path("/t/abc/subagents/agent-1.jsonl")), "PostToolUse")

    assert said and event.request(said) == Request("PostToolUse", "/t/abc.jsonl", "")


def test_requests_come_in_order_and_nonsense_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "ctxvc").mkdir()
    asked = [Request("Stop", f"/t/{number}.jsonl", "ü") for number in range(20)]
    for request in asked:
        requests.post(tmp_path, request)
    odd = places.home(tmp_path) / "requests" / "00-odd"
    odd.write_text("{")

    assert [request for _, request in requests.pending(tmp_path)] == asked
    assert requests.foreign(tmp_path) == [odd]


def test_the_store_is_found_where_commands_find_it(tmp_path: Path) -> None:
    main = tmp_path / "main"
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    git = ["git", "-C", str(main), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "linked")], check=True)
    create(main / FOLDER).close()
    (main / "deep" / "deeper").mkdir(parents=True)

    for folder in (main, main / "deep" / "deeper", main / FOLDER, tmp_path / "linked"):
        assert places.store(folder, {}) == locate.find(folder) == main / FOLDER
    assert places.store(tmp_path, {}) is None
    with pytest.raises(CtxvcError):
        locate.find(tmp_path)


# --- an output that is too long


def swapped(store: Path, response: Any, longest: int = 2000) -> Any:
    given = {"tool_use_id": "toolu_1", "tool_name": "Bash", "tool_response": response}
    answer = truncate.swapped(given, longest, store)
    return json.loads(answer)["hookSpecificOutput"]["updatedToolOutput"] if answer else None


@pytest.mark.parametrize(
    "shape",
    [
        lambda words: words,
        lambda words: {"stdout": words, "stderr": "", "interrupted": False},
        lambda words: [{"type": "text", "text": words}, {"type": "image"}],
        lambda words: {"content": [{"type": "text", "text": words}]},
    ],
)
def test_a_long_output_keeps_its_shape_and_is_kept_whole(place: Path, shape: Any) -> None:
    store = place / FOLDER
    places.home(store).mkdir()
    words = "".join(f"line {number} ü\n" for number in range(1000))

    shown = swapped(store, shape(words))

    (path,) = (places.home(store) / "outputs").iterdir()
    assert path.read_bytes() == words.encode()
    assert path.stat().st_mode & 0o777 == 0o600
    cut = json.dumps(shown, ensure_ascii=False)
    assert str(path) in cut and len(cut) < 2600
    text = cut.replace("\\n", "\n")
    assert "line 0 ü" in text and "line 999 ü" in text
    assert swapped(store, shape("short")) is None


def test_what_the_host_cut_itself_and_unknown_shapes_stay(place: Path) -> None:
    store = place / FOLDER
    for response in ({"stdout": "x" * 9000, "persistedOutputPath": "/x"}, {"file": "x" * 9000}, None, 7):
        assert swapped(store, response) is None


# --- the status line


def test_the_status_line(place: Path) -> None:
    store = place / FOLDER

    def shown(percent: float | None, color: bool = True, **window: Any) -> str:
        told = {"context_window": {"used_percentage": percent, "context_window_size": 200_000, **window}}
        return answering.status_line({**told, "transcript_path": "/t/s.jsonl"}, store, color=color)

    assert shown(69.9) == "context 69% of 200k · recording"
    assert shown(70) == "\x1b[33mcontext 70% of 200k\x1b[0m · recording"
    assert shown(90) == "\x1b[31mcontext 90% of 200k\x1b[0m · recording"
    assert shown(95, color=False) == "context 95% of 200k · recording"
    assert shown(None, current_usage={"input_tokens": 50_000, "cache_read_input_tokens": 50_000}).startswith(
        "context 50%"
    )
    assert shown(None) == "recording"
    told = {"session": "demo\x1b[2J", "steps": 4, "blocks": 12, "notes": 1, "left": 3, "waiting": 0}
    places.home(store).mkdir()
    places.write(places.status(store, "/t/s.jsonl"), json.dumps(told).encode())
    assert shown(1, color=False) == "context 1% of 200k · recording"  # this machine did not write it
    places.write_sealed(store, places.status(store, "/t/s.jsonl"), json.dumps(told).encode())
    assert shown(1, color=False).endswith("demo [2J · 4 steps · 12 blocks · 1 notes · 3 out of the prompt, kept")
    assert answering.status_line({}, None, color=True) == "not recorded"


# --- speed


def test_a_hook_loads_nothing_heavy(place: Path, tmp_path: Path) -> None:
    code = "import sys, ctxvc.claude_code.hook, ctxvc.cli.start; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(place), check=True
    )

    loaded = set(result.stdout.split())
    assert not loaded & {
        "click",
        "msgspec",
        "pygit2",
        "tiktoken",
        "subprocess",
        "ctxvc.recording.files",
        "ctxvc.store.store",
    }


@pytest.mark.slow
def test_a_hook_takes_no_longer_beside_a_large_transcript(place: Path, tmp_path: Path) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    write(small, *CONVERSATION)
    write(large, *CONVERSATION)
    filler = {**CONVERSATION[0], "isMeta": True, "message": {"role": "user", "content": "x" * 100_000}}
    with large.open("ab") as file:
        file.writelines(json.dumps({**filler, "uuid": f"x{number}"}).encode() + b"\n" for number in range(600))

    def median(transcript: Path) -> float:
        times = []
        for _ in range(7):
            began = time.perf_counter()
            hook(place, transcript, "PostToolUse")
            times.append(time.perf_counter() - began)
        return sorted(times)[3]

    assert median(large) < 2.5 * median(small)
    settle(place / FOLDER)


def test_the_environment_is_what_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "hooks" / "claude-code" / "README.md").read_text()

    for name in (variables.RECORDING, answering.OFFER, answering.LONGEST):
        assert f"`{name}=" in page
    assert os.access(Path(__file__).parents[2] / "hooks" / "claude-code" / "scripts" / "hook.sh", os.X_OK)


def test_doctor_shows_what_went_wrong(place: Path) -> None:
    store = place / FOLDER

    def shown() -> list[str]:
        result = CliRunner().invoke(cli, ["-C", str(place), "doctor", "--json"])
        return [item["found"] for item in json.loads(result.stdout)["items"] if item["check"] == "hooks"]

    assert shown() == []
    places.home(store).mkdir()
    assert shown() == ["no errors"]
    log.note(store, "Stop", "the disk is full")
    requests.post(store, Request("Stop", "/t/s.jsonl"))
    waiting, entry = shown()
    assert waiting.startswith("1 request") and entry.endswith("Stop: the disk is full")
