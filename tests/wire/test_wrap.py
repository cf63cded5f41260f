"""`ctxvc wrap` and `ctxvc proxy` as processes: the terminal is the agent's, and a proxy that dies comes back."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from ctxvc.cli.commands.wrap import end_as
from ctxvc.cli.main import cli
from ctxvc.wire import trouble
from tests.making.processes import ended
from tests.wire.raw import OPEN, PATIENCE, Upstream, ask, post
from tests.wire.sending import reply

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CTXVC = (sys.executable, "-m", "ctxvc")
#: A client in a shell: asks what ANTHROPIC_BASE_URL says, again where nobody answers, and writes the status.
ASK = f"""
{sys.executable} - <<'END'
import http.client, os, time
address = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://")
authority, _, path = address.partition("/")
for _ in range(50):
    try:
        connection = http.client.HTTPConnection(authority, timeout=10)
        connection.request("POST", "/" + path + "/v1/messages", body=b'{{"messages": []}}')
        print("status", connection.getresponse().status, flush=True)
        break
    except OSError:
        time.sleep(0.05)
END
"""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream(OK, OPEN)
    yield server
    server.close()


@pytest.fixture
def env(tmp_path: Path, upstream: Upstream) -> dict[str, str]:
    return {**os.environ, "HOME": str(tmp_path), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{upstream.port}"}


def wrap(folder: Path, env: dict[str, str], *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*CTXVC, "-C", str(folder), "wrap", *arguments],
        env=env, capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip


def asked(folder: Path, env: dict[str, str], *arguments: str) -> Result:
    """What a command comes to that starts nothing, in this process."""
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments], env=env)


def test_an_agent_is_run_with_its_arguments_its_input_and_its_exit_code(
    tmp_path: Path, env: dict[str, str], upstream: Upstream
) -> None:
    script = f'cat; echo "$0 $1"; echo out >&2; {ASK} pwd; exit 7'

    ran = wrap(tmp_path, env, "--", "sh", "-c", script, "--json", "--print", input="in\n")

    assert ran.returncode == 7
    assert ran.stderr == "out\nctxvc: no model call was recorded\n"
    assert ran.stdout == f"in\n--json --print\nstatus 200\n{tmp_path}\n"
    assert upstream.requests[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_agent_that_a_signal_ends_ends_us_by_the_same(number: int) -> None:
    assert ended(end_as, number) == -number  # a status of the system's is the signal's number


def test_a_signal_is_passed_on(tmp_path: Path, env: dict[str, str]) -> None:
    script = "trap 'echo term; exit 3' TERM; trap 'echo int' INT; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*CTXVC, "wrap", "--", "sh", "-c", script], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "int\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "term\n"

    assert process.returncode == 3


#: The signal comes when the agent runs already, and who started it does not know yet.
AT_ONCE = """
import os, signal
from ctxvc.cli.commands.wrap import run_agent
spawn = os.posix_spawnp
def spawning(*arguments, **options):
    pid = spawn(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.posix_spawnp = spawning
print(run_agent(["sleep", "60"], dict(os.environ), None))
"""


def test_a_signal_that_comes_at_once_is_passed_on(env: dict[str, str]) -> None:
    ran = subprocess.run([sys.executable, "-c", AT_ONCE], env=env, capture_output=True, timeout=30, check=True)

    assert ran.stdout == b"%d\n" % signal.SIGTERM


def proxies(pid: int) -> list[int]:
    """The processes that a `wrap` has started for its proxy."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "--wrapped" in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_proxy_that_is_killed_is_back_at_the_same_address_and_ends_with_its_agent(
    tmp_path: Path, env: dict[str, str], upstream: Upstream
) -> None:
    script = f"echo $ANTHROPIC_BASE_URL; while read line; do {ASK} done; echo $ANTHROPIC_BASE_URL"
    with subprocess.Popen(
        [*CTXVC, "wrap", "--", "sh", "-c", script],
        env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        address = process.stdout.readline()
        seen = set()
        for _ in range(2):
            (proxy,) = proxies(process.pid)
            seen.add(proxy)
            os.kill(proxy, signal.SIGKILL)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "status 200\n"
        (proxy,) = proxies(process.pid)
        process.stdin.close()
        assert process.stdout.readline() == address

    assert process.returncode == 0 and len(seen) == 2
    assert not Path(f"/proc/{proxy}").exists()
    assert len(upstream.requests) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_proxy_ends_with_a_wrap_that_is_killed(tmp_path: Path, env: dict[str, str]) -> None:
    with subprocess.Popen(
        [*CTXVC, "wrap", "--", "sh", "-c", "echo $$; exec sleep 30"],
        env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout
        agent = int(process.stdout.readline())
        (proxy,) = proxies(process.pid)
        process.kill()
        process.wait()
        until = time.monotonic() + PATIENCE
        while Path(f"/proc/{proxy}").exists() and "Z" not in Path(f"/proc/{proxy}/stat").read_text().split()[2]:
            assert time.monotonic() < until
        os.kill(agent, signal.SIGKILL)


class Terminal:
    """A command under a shell with job control, on a terminal of its own."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.pid, self._master = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**env, "PS1": "$ "})
        self._seen = ""
        self._ready = select.poll()  # a process of the suite may have more files open than `select` takes
        self._ready.register(self._master, select.POLLIN)

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str, again: str = "") -> re.Match[str]:
        """What has been shown since the last call, up to a match. `again` is typed until then: a shell loses what is
        typed while it changes the terminal's mode, and handles no signal that comes just before it waits for a line.
        """
        end = time.monotonic() + 2 * PATIENCE
        while not (match := re.search(pattern, self._seen)):
            assert time.monotonic() < end, self._seen
            if self._ready.poll(500):
                self._seen += os.read(self._master, 65536).decode()
            elif again:
                self.send(again)
        self._seen = self._seen[match.end() :]
        return match

    def close(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGHUP)
        os.close(self._master)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path, env: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, env)
    yield terminal
    terminal.close()


def test_the_terminal_is_the_agents(terminal: Terminal) -> None:
    """Its size, ^C, ^Z and going on, in a shell with job control."""
    script = (
        "trap 'echo got-int' INT; trap 'stty size' WINCH; test -t 0 && stty size; echo rea''dy; "
        'while read line; do echo "line-$line"; test "$line" = end && exit 5; done; echo more; sleep 60'
    )
    terminal.send("stty rows 33 cols 77\r")
    terminal.send(f"{' '.join(CTXVC)} wrap -- bash -c {json.dumps(script).replace('$', chr(92) + '$')}\r")
    terminal.until(r"33 77\r\n")
    terminal.until("ready")
    terminal.send("one\r")
    terminal.until("line-one")
    terminal.send("\x1a")
    terminal.until(r"Stopped")
    terminal.send("echo shell-$((40 + 2))\r")
    terminal.until("shell-42")
    terminal.send("fg\r")
    terminal.until("line-two", again="two\r")
    terminal.until("got-int", again="\x03")
    terminal.send("end\r")
    terminal.until("line-end")
    terminal.send("echo code-$?\r")
    terminal.until("code-5")


def test_what_would_be_set_is_shown_and_nothing_runs(tmp_path: Path, env: dict[str, str]) -> None:
    shown = asked(tmp_path, env, "wrap", "--print", "claude", "-p", "do it")
    codex = asked(tmp_path, env, "wrap", "--print", "codex", "exec", "--json")
    pi = asked(tmp_path, env, "wrap", "--print", "pi")

    assert shown.stdout == "ANTHROPIC_BASE_URL=http://127.0.0.1:PORT/KEY/anthropic\nclaude -p 'do it'\n"
    assert codex.stdout == "codex -c 'openai_base_url=\"http://127.0.0.1:PORT/KEY/codex/v1\"' exec --json\n"
    urls, command = pi.stdout.splitlines()
    assert json.loads(shlex.split(urls.partition("=")[2])[0])["openai"] == "http://127.0.0.1:PORT/KEY/openai/v1"
    assert [Path(word).is_file() for word in shlex.split(command)] == [False, False, True]
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_run_is_told(tmp_path: Path, env: dict[str, str]) -> None:
    unknown = asked(tmp_path, env, "wrap", "cursor", "x")
    missing = wrap(tmp_path, {**env, "PATH": "/nowhere"}, "claude")
    nothing = asked(tmp_path, env, "wrap")
    empty = asked(tmp_path, env, "wrap", "--", "")

    assert unknown.exit_code == 1 and "`ctxvc wrap -- cursor …`" in unknown.stderr
    assert missing.returncode == 1 and "claude is not installed, or not in PATH" in missing.stderr
    for unnamed in (nothing, empty):
        assert unnamed.exit_code == 2 and "name an agent: claude, codex, " in unnamed.stderr


@pytest.mark.parametrize(
    "arguments, as_json",
    [
        (["wrap", "nowhere", "--json"], False),
        (["wrap", "--upstream", "x", "claude", "-p", "--json"], False),
        (["wrap", "--upstream", "anthropic=http://127.0.0.1:1", "nowhere", "--json"], False),
        (["--session", "x", "wrap", "--session", "y", "nowhere", "--jsonl"], False),
        (["wrap", "--upstream", "x", "--", "nowhere", "--json"], False),
        (["wrap", "--json", "nowhere"], True),
        (["grep", "wrap", "nowhere", "--json"], True),
        (["--session", "wrap", "status", "--json"], True),
        (["status", "--json", "--", "nowhere"], True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_of_the_agents_does_not_turn_our_errors_into_json(
    arguments: list[str], as_json: bool, tmp_path: Path, env: dict[str, str]
) -> None:
    failed = asked(tmp_path, {**env, "PATH": "/nowhere"}, *arguments)

    assert failed.exit_code in (1, 2) and failed.stdout == ""
    assert failed.stderr.startswith('{"error":' if as_json else "ctxvc: ")


def test_help_for_the_agent_is_recorded_where_the_persons_settings_say(tmp_path: Path, env: dict[str, str]) -> None:
    settings = tmp_path / "ctxvc"
    settings.mkdir()
    (settings / "config.toml").write_text("nonsense = 1\n")

    helped = asked(tmp_path, {**env, "XDG_CONFIG_HOME": str(tmp_path)}, "wrap", "claude", "--help")

    assert helped.exit_code == 2 and "nonsense" in helped.stderr


def test_what_was_not_recorded_is_told_when_the_agent_has_ended(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ASK.replace("messages\": []}'", "messages\": []}', headers={'Content-Encoding': 'novel'}") * 2
    env = {**env, "XDG_DATA_HOME": str(tmp_path / "data"), "CTXVC_STORE": str(tmp_path / "store")}
    reason = "the body has an encoding that cannot be read"

    ran = subprocess.run(
        [*CTXVC, "wrap", "--", "sh", "-c", f"{script} exec echo end"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ran.stdout == "status 200\nstatus 200\nend\n" and ran.returncode == 0
    assert ran.stderr == f"ctxvc: forwarded but not recorded: {reason}\n"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert trouble.reported(tmp_path / "store") == reason


def test_recording_that_is_off_is_off_and_said(tmp_path: Path, env: dict[str, str], upstream: Upstream) -> None:
    answer = reply("Hello")
    upstream.steps = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer), OPEN]
    script = ASK.replace('"messages": []', '"model": "m", "messages": [{"role": "user", "content": "Hi"}]')

    ran = wrap(tmp_path, {**env, "CTXVC_RECORDING": "off"}, "--", "sh", "-c", script)

    assert ran.stdout == "status 200\n"
    assert ran.stderr == "ctxvc: CTXVC_RECORDING is off: nothing is recorded\n"
    assert not (tmp_path / ".ctxvc").exists()


def test_a_proxy_prints_its_address_when_it_answers(tmp_path: Path, env: dict[str, str], upstream: Upstream) -> None:
    with subprocess.Popen(
        [*CTXVC, "proxy", "--json", "--port", "openai=0", "--upstream", f"openai=http://127.0.0.1:{upstream.port}/v1"],
        env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout
        answer = json.loads(process.stdout.readline())
        port, key = re.fullmatch(r"http://127\.0\.0\.1:([0-9]+)/([\w-]{43})", answer["address"]).groups()  # type: ignore[union-attr]
        own = int(answer["ports"]["openai"].rpartition(":")[2])
        seen = [
            ask(int(port), post(int(port), f"/{key}/v1/messages", b"[]"), until=lambda data: data == OK),
            ask(own, post(own, "/v1/responses", b"[]"), until=lambda data: data == OK),
        ]
        process.send_signal(signal.SIGINT)

    schema = Path(__file__).parents[2] / "docs" / "schema" / "ctxvc.proxy-1.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(answer)
    assert process.returncode == 130
    assert [one.data for one in seen] == [OK, OK]
    assert answer["upstreams"]["gemini"] == "https://generativelanguage.googleapis.com"
