"""`ctxvc run` against servers of local models: what a person is told of the window, and of a server that fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.session.session import Session
from tests.agent.servers import DIALECTS, PAGE, Answer, Loopback, Writer, serving

WRITER = Writer(DIALECTS[1])


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


def ran(folder: Path, server: Loopback, *arguments: str) -> tuple[int, str, str]:
    env = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": server.url, "HOME": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        result = CliRunner().invoke(cli, ["run", *arguments], env=env)
    return result.exit_code, result.stdout, result.stderr


def place(server: Loopback, path: str, answer: object) -> None:
    server.places[path] = Answer(200, "application/json", json.dumps(answer).encode())


def says(server: Loopback, *texts: str) -> None:
    server.answers += [WRITER.stream(WRITER.message({"type": "text", "text": text})) for text in texts]


def window(folder: Path) -> int:
    with Session.open(folder / ".ctxvc", "run-1") as session:
        return session.budget.window


def test_a_window_that_the_server_tells_is_said_and_kept(tmp_path: Path, server: Loopback) -> None:
    place(server, "/props", {"default_generation_settings": {"n_ctx": 16_384}})
    says(server, "Done.")
    code, out, err = ran(tmp_path, server, "look", "--model", "tiny")
    assert (code, out) == (0, "Done.\n")
    assert "tiny takes 16,384 tokens, as /props says" in err
    assert window(tmp_path) == 16_384


def test_a_window_that_nobody_tells_is_said_to_be_assumed(tmp_path: Path, server: Loopback) -> None:
    says(server, "Done.", "And again.")
    _, _, err = ran(tmp_path, server, "look", "--model", "tiny")
    assert "assuming that tiny takes 200,000 tokens: its server does not say; --window TOKENS sets it" in err
    assert window(tmp_path) == 200_000
    _, _, err = ran(tmp_path, server, "--resume", "run-1", "go on", "--window", "32k")
    assert "assuming" not in err
    assert window(tmp_path) == 32_000


def test_ollamas_least_window_is_assumed_and_a_person_overrides_it(tmp_path: Path, server: Loopback) -> None:
    place(server, "/api/show", {"model_info": {"llama.context_length": 131_072}})
    says(server, "Done.", "And again.", "And more.")
    _, _, err = ran(tmp_path, server, "look", "--model", "tiny")
    assert "assuming that tiny takes 4,096 tokens, which is what /api/show implies; --window TOKENS sets it" in err
    assert window(tmp_path) == 4_096
    _, _, err = ran(tmp_path, server, "--resume", "run-1", "go on", "--window", "16k")
    assert window(tmp_path) == 16_000
    _, _, err = ran(tmp_path, server, "--resume", "run-1", "go on")
    assert "assuming" not in err, "what was set is remembered"
    assert window(tmp_path) == 16_000


def test_a_page_instead_of_a_reply_is_one_line_and_in_the_log(tmp_path: Path, server: Loopback) -> None:
    server.answers.append(Answer(200, "text/html", PAGE))
    code, _, err = ran(tmp_path, server, "look", "--model", "tiny")
    assert code == 1
    (line,) = re.findall("^error: .*|^.*no message.*", err, re.MULTILINE)
    assert "the server's answer is no message: the web page 'Sign in & go on'" in line
    assert "check the address" in err
    assert "ctxvc run --resume run-1" in err
    assert "Traceback" not in err
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert "fault: the server's answer is no message" in CliRunner().invoke(cli, ["ops"]).output
