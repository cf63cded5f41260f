"""How `ctxvc run` gets its environment: what is open, what is behind it, and that nothing is handed on by chance."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ctxvc.agent import sandbox
from ctxvc.cli import handover
from ctxvc.cli.handover import Environment
from ctxvc.core import variables
from ctxvc.errors import BadInput, Refused


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ("run task", True),
        ("-C dir --session run run task", True),
        ("--no-pager --color never run --resume x", True),
        ("-Cdir --session=x run", True),
        ("log", False),
        ("--session run log", False),
        ("ask run why", False),
        ("run --help", False),
        ("", False),
        ("-C", False),
    ],
)
def test_a_run_is_known_before_its_words_are_parsed(arguments: str, runs: bool) -> None:
    assert handover.runs_an_agent(arguments.split()) is runs


def test_what_is_behind_is_seen_by_name_and_in_no_copy() -> None:
    env = Environment({"HOME": "/h"}, {"KEY": "secret"})
    assert (env["KEY"], env.get("KEY"), "KEY" in env, env.get("NO")) == ("secret", "secret", True, None)
    for copy in (dict(env), {**env}, env.copy(), dict(env.items())):
        assert copy == {"HOME": "/h"}
    assert (len(env), list(env), "secret" in repr(env)) == (1, ["HOME"], False)
    assert env.hidden() == {"KEY": "secret"}
    env["NEW"] = "x"
    del env["KEY"], env["NEW"]
    assert (dict(env), env.hidden()) == ({"HOME": "/h"}, {})
    with pytest.raises(KeyError):
        del env["KEY"]


@pytest.mark.parametrize("unnamed", [True, False], ids=["file", "pipe"])
def test_what_is_handed_over_is_read_once_and_whole(monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("unnamed files in memory are Linux")
    sent = {"KEY": "a=b\nc", "BYTES": os.fsdecode(b"\xff\x00x"[:1]), "LONG": "x" * 300_000, "EMPTY": ""}
    handle = handover._channel(b"\0".join(os.fsencode(f"{name}={value}") for name, value in sent.items()))
    monkeypatch.setenv(handover.CHANNEL, str(handle))
    assert handover._received() == sent
    assert handover.CHANNEL not in os.environ
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)
    if not unnamed:
        os.wait()
    for nothing in ("", "x", "-1", "9999", "9" * 40):
        monkeypatch.setenv(handover.CHANNEL, nothing)
        assert handover._received() == {}


@pytest.mark.parametrize("streams", ["2>&-", "<&-", "<&- 2>&-", "0<&- 1>&- 2>&-"])
def test_what_is_handed_over_takes_the_place_of_no_closed_stream(tmp_path: Path, streams: str) -> None:
    script = (
        "import os, sys; from ctxvc.cli import handover; handle = handover._channel(b'KEY=x');"
        "open(sys.argv[1], 'w').write(f'{handle} {os.read(handle, 9)}')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "answer")]
    subprocess.run(["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *command], check=True, cwd=handover.PACKAGE.parent)
    number, _, data = (tmp_path / "answer").read_text().partition(" ")
    assert int(number) > 2 and data == "b'KEY=x'"


def test_modules_are_not_looked_for_where_the_agent_writes(tmp_path: Path) -> None:
    inside = ["", ".", str(tmp_path), str(tmp_path / "src"), "lib"]
    ours = [str(handover.PACKAGE.parent), f"{sys.prefix}/lib/python3/site-packages", "/usr/lib/python3"]
    assert handover._elsewhere([*inside, *ours], tmp_path) == ours
    assert handover._elsewhere(ours, handover.PACKAGE.parent) == ours


SECRETS = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"]


@pytest.mark.parametrize("name", [*SECRETS, "GITHUB_TOKEN", "MY_PASSWORD", "SSH_AUTH_SOCK", "BASH_ENV", "LD_PRELOAD"])
def test_nothing_is_open_that_is_not_on_the_list(name: str) -> None:
    assert not variables.is_open(name)
    assert not variables.for_command(name)


def source(**more: str) -> Mapping[str, str]:
    return {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TMPDIR": "/t", "XDG_DATA_HOME": "/x", **more}


def test_a_command_gets_the_short_list_and_what_is_named() -> None:
    env = source(TOOL="x", ANTHROPIC_API_KEY="sk-0123456789")
    short = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TMPDIR": "/t"}
    assert sandbox.environment(env, (), env) == short
    assert sandbox.environment(env, ("TOOL",), env) == {**short, "TOOL": "x"}
    assert "TMPDIR" not in sandbox.environment(env, (), env, sandboxed=True)


@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_ROLE_SESSION_NAME", "CLOUDSDK_CORE_PROJECT", "AZURE_USERNAME"])
def test_a_name_that_stands_in_a_path_by_chance_takes_nothing_from_commands(name: str) -> None:
    env = source(HOME="/home/jonathan", PATH="/home/jonathan/bin:/bin", USER="jonathan")
    more = {**env, name: "jonathan"}
    short = sandbox.environment(env, (), env)
    assert sandbox.environment(more, (), more) == short
    assert sandbox.left_out(more, short) == []


def test_what_commands_do_not_get_is_listed() -> None:
    env = source(USER="sk-0123456789", ANTHROPIC_API_KEY="sk-0123456789", http_proxy="http://sk-0123456789@p")
    assert sandbox.left_out(env, sandbox.environment(env, (), env)) == ["USER", "http_proxy"]


def test_no_key_is_handed_on_under_any_name() -> None:
    env = source(COPY="Bearer sk-0123456789", ANTHROPIC_API_KEY="sk-0123456789", http_proxy="http://sk-0123456789@p")
    assert "http_proxy" not in sandbox.environment(env, (), env)
    for name in ("COPY", "ANTHROPIC_API_KEY"):
        with pytest.raises(Refused, match=name):
            sandbox.environment(env, (name,), env)
    with pytest.raises(BadInput, match="is not set"):
        sandbox.environment(env, ("NOT_SET",), env)


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
@pytest.mark.parametrize("home", ["/", "", ".", "home/me"])
def test_a_home_that_is_no_folder_to_hide_is_said(tmp_path: Path, home: str) -> None:
    with pytest.raises(Refused, match="not a folder it can hide"):
        sandbox.sandbox(tmp_path, Path(home), which=lambda _: "/bin/true")
