"""`serve`: lines in, lines out, an end with its input or with the program that started it, and settings that count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ctxvc import __version__
from ctxvc.store.store import create
from tests.cli.conftest import Run
from tests.integrations.hosts.scripted import HOSTS, TASK

HELLO = {"id": 1, "verb": "hello", "host": "pi", "version": __version__, "protocol": 1}
SERVE = [sys.executable, "-m", "ctxvc", "serve", "--stdio"]


def served(folder: Path, *requests: object, **env: str) -> tuple[list[dict[str, object]], int]:
    """The answers of a process in a folder to these lines, and its exit code."""
    lines = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in requests)
    result = subprocess.run(
        SERVE, cwd=folder, env={**os.environ, **env}, input=lines, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    return [json.loads(line) for line in result.stdout.splitlines()], result.returncode


def test_each_line_is_answered_and_the_end_of_the_input_is_the_end(tmp_path: Path) -> None:
    create(tmp_path / ".ctxvc").close()
    messages = HOSTS["pi"].human(f"{TASK}\u2028", 1)
    asked = {"id": "x", "verb": "messages", "session": "s-12345678", "messages": messages, "window": 24_000}
    answers, code = served(tmp_path, HELLO, "", "no JSON", asked)
    assert code == 0
    hello, wrong, prompt = answers
    tools = [tool["name"] for tool in hello["tools"]]  # type: ignore[attr-defined]
    assert tools == ["context_note", "context_recover", "context_search", "context_why"]
    assert wrong["error"]
    assert (prompt["id"], prompt["messages"]) == ("x", [0])


def test_without_a_store_it_says_so_and_needs_no_more(tmp_path: Path) -> None:
    ((hello,), code) = served(tmp_path, HELLO)
    assert (hello["store"], hello["tools"], code) == ("", [], 0)


def test_nothing_is_recorded_where_a_person_has_turned_that_off(tmp_path: Path) -> None:
    create(tmp_path / ".ctxvc").close()
    ((hello,), _) = served(tmp_path, HELLO, CTXVC_RECORDING="off")
    assert (hello["store"], hello["tools"]) == ("", [])


def test_it_ends_with_the_program_that_started_it_though_its_input_stays_open(tmp_path: Path) -> None:
    create(tmp_path / ".ctxvc").close()
    script = "import subprocess,sys; p=subprocess.Popen(sys.argv[1:], stdin=0); print(p.pid, flush=True); p.wait()"
    reading, writing = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *SERVE], cwd=tmp_path, stdin=reading, stdout=subprocess.PIPE, text=True
    )
    try:
        os.close(reading)
        assert parent.stdout
        child = int(parent.stdout.readline())
        os.write(writing, json.dumps(HELLO).encode() + b"\n")
        assert json.loads(parent.stdout.readline())["store"]
        parent.kill()
        parent.wait()
        end = time.monotonic() + 20
        while is_alive(child):
            assert time.monotonic() < end, "it outlived the program that started it"
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close() if parent.stdout else None
        os.close(writing)


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asked after does not."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_it_holds_no_lock_between_requests_and_what_was_answered_stays_when_it_is_killed(
    tmp_path: Path, run: Run
) -> None:
    create(tmp_path / ".ctxvc").close()
    asked = {"id": 2, "verb": "messages", "session": "s-12345678", "messages": HOSTS["pi"].human(TASK, 1)}
    with subprocess.Popen(SERVE, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        for request in (HELLO, asked):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            assert "error" not in json.loads(process.stdout.readline())
        noted = run("note", "-m", "beside it", folder=tmp_path)
        assert noted.exit_code == 0, noted.stderr
        process.send_signal(signal.SIGKILL)
    assert "Ørsted" in run("grep", "Ørsted", folder=tmp_path).stdout
