"""A real llama-server with a tiny model, and LiteLLM in front of it: runs in a small window, killed and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from tests.hosts.servers import installed
from tests.making.provider import damages

WINDOW, STEPS = 8_192, 30
STARTING = 120.0
KEY = "sk-test"
ROOT = Path(__file__).parents[3]
#: What the model runs in each step: 40 lines, no two the same, and a count of how often it was run.
STEP = """#!/bin/sh
n=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $n > count
i=0; while [ $i -lt 40 ]; do echo "step $n line $i: value $((n * 7919 + i * 104729)) of the table"; i=$((i + 1)); done
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], url: str, log: IO[bytes], **env: str) -> Iterator[None]:
    """A server, from when it answers at `url` on."""
    process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env}, start_new_session=True)
    try:
        end = time.monotonic() + STARTING
        while not _answers(url):
            assert process.poll() is None, "it ended"
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a llama-server with a window of `WINDOW`, and its log."""
    try:
        binary, model = installed.llama_server() / "llama-server", installed.model()
    except installed.Missing as error:
        pytest.skip(f"llama-server cannot be built: {error}")
    log = tmp_path_factory.mktemp("llama") / "log"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ["-c", str(WINDOW), "-np", "1", "--jinja", "--no-warmup", "-fit", "off"]
    command = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), *options]
    with log.open("wb") as file, running(command, f"{url}/health", file):
        yield url, log


@pytest.fixture(scope="module")
def litellm(llama: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a LiteLLM in front of it, which knows nothing of the model's window."""
    folder = tmp_path_factory.mktemp("litellm")
    parameters = {"model": "openai/tiny", "api_base": f"{llama[0]}/v1", "api_key": "x"}
    config = {
        "model_list": [{"model_name": "tiny", "litellm_params": parameters}],
        "general_settings": {"master_key": KEY},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    port = free_port()
    program = installed.python().with_name("litellm")
    command = [str(program), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    quiet = {
        "DO_NOT_TRACK": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "HOME": str(folder),
    }
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as file, running(command, f"{url}/health/liveliness", file, **quiet):
        yield url


def ctxvc(folder: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "ctxvc", *arguments],
        cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def killed_and_resumed(folder: Path, url: str) -> str:
    """A run of `STEPS` steps in all, killed once in its first half; gives what it printed."""
    folder.mkdir()
    (folder / "step").write_text(STEP)
    (folder / "step").chmod(0o755)
    options = ["--yes", "--max-steps", str(STEPS)]
    printed = []
    with ctxvc(folder, url, "run", "Run the steps.", "--model", "tiny", *options) as first:
        assert first.stdout
        for line in first.stdout:
            printed.append(line)
            if "step 12:" in line:
                first.kill()
    assert first.returncode == -signal.SIGKILL, "".join(printed)
    with Session.open(folder / ".ctxvc", "run-1") as session:
        made = len({row.msg for row in session.ledger().rows() if row.role == "assistant"})
    assert made >= 12
    rest = ["--yes", "--max-steps", str(STEPS - made)]
    second = ctxvc(folder, url, "run", "--resume", "run-1", *rest)
    printed.append(second.communicate(timeout=600)[0])
    assert second.returncode == 1, printed
    assert "the step limit is reached" in printed[-1]
    return "".join(printed)


def refusals(log: Path) -> int:
    return log.read_text(errors="replace").count("exceeds the available context size")


def figures(sizes: Sequence[int], refused: int) -> str:
    """A row of the page's table; shown by `-rP`."""
    return f"largest prompt {max(sizes):,}, mean {sum(sizes) // len(sizes):,}, refused {refused}"


def prompts(folder: Path) -> list[int]:
    """The tokens of each prompt that was answered, as the server counted, oldest first."""
    counted = []
    with Store(folder / ".ctxvc") as store, Session.open(folder / ".ctxvc", "run-1") as session:
        session.stored.flush()
        for entry in revision.history(store, session.stored.tip()):
            usage = dict(re.findall(r"(\w+)=(\d+)", entry.trailers.get("Ctxvc-Usage", "")))
            if usage:
                counted.append(int(usage["input_tokens"]) + int(usage.get("cache_read_input_tokens", 0)))
    return counted[::-1]


def is_sound(folder: Path) -> None:
    """Each command was run once, whatever was killed; nothing is damaged; every prompt renders again."""
    with Session.open(folder / ".ctxvc", "run-1") as session:
        rows = list(session.ledger().rows())
        results = [row for row in rows if row.kind == "tool_result"]
        calls = [row.call for row in rows if row.kind == "tool_use"]
        assert len(calls) == len(set(calls)) == STEPS
        assert [row.call for row in results] == calls
        assert STEPS - 1 <= int((folder / "count").read_text()) <= STEPS, "a killed one may not have begun"
        for number, row in enumerate((row for row in results if row.origin == "tool"), 1):
            body = session.body(row.id).decode()
            assert body.count("\n") == 40
            assert f"step {number} line 39" in body or number > 12
    with Store(folder / ".ctxvc") as store:
        assert not damages(store)
        assert check_prompts(store)[1] == []


@pytest.mark.timeout(3_000)
def test_thirty_steps_in_the_window_that_llama_server_tells_killed_and_resumed_never_over_it(
    llama: tuple[str, Path], tmp_path: Path
) -> None:
    url, log = llama
    before = refusals(log)
    printed = killed_and_resumed(tmp_path / "project", url)
    assert "tiny takes 8,192 tokens, as /props says" in printed
    is_sound(tmp_path / "project")
    sizes = prompts(tmp_path / "project")
    print(figures(sizes, refusals(log) - before))
    assert len(sizes) == STEPS
    assert max(sizes) <= WINDOW - WINDOW // 4, "what is kept for the reply stays free"
    assert refusals(log) == before, "it never refused one"


@pytest.mark.timeout(3_000)
def test_thirty_steps_behind_litellm_which_knows_no_window_and_is_never_sent_one_that_is_too_long(
    llama: tuple[str, Path], litellm: str, tmp_path: Path
) -> None:
    before = refusals(llama[1])
    printed = killed_and_resumed(tmp_path / "project", litellm)
    assert f"tiny takes 8,192 tokens, as /props of {llama[0].removeprefix('http://')} says" in printed
    is_sound(tmp_path / "project")
    sizes = prompts(tmp_path / "project")
    print(figures(sizes, refusals(llama[1]) - before))
    assert len(sizes) == STEPS
    assert max(sizes) <= WINDOW - WINDOW // 4, "what is kept for the reply stays free"
    assert refusals(llama[1]) == before, "it never refused one"
    with Session.open(tmp_path / "project" / ".ctxvc", "run-1") as session:
        assert session.budget.window == WINDOW
