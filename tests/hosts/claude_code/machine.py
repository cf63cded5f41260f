"""A scratch machine on which the real client runs, for any number of prompts and clients at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ctxvc.claude_code import requests as recorder_requests
from ctxvc.recording import log
from ctxvc.store.project.locate import FOLDER
from tests.hosts import npm
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.space import Space, own_space
from tests.messages_api import Judge, MessagesApi, serve
from tests.messages_api.script import Said
from tests.messages_api.wire import Block

#: The oldest client that lets a plugin replace its compaction, and the newest that was tried.
VERSIONS = ("2.1.287", "2.1.330")
ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "hooks" / "claude-code"
#: Tools that the client may use unasked.
_ALLOWED = ["Bash", "Read", "Write", "Edit", "Agent", "Task", "Glob", "Grep", "ToolSearch", "mcp__plugin_ctxvc_store"]
MODEL = "claude-opus-5-5"


@dataclass(frozen=True)
class Finished:
    """A client that has ended: its exit status, the events it printed, what it said on stderr, and its debug log."""

    session: str
    code: int
    events: Sequence[Mapping[str, Any]]
    stderr: str
    debug: str

    @property
    def hooks(self) -> list[Mapping[str, Any]]:
        """What became of the hooks: `hook_event`, `exit_code`, `stdout`, `stderr`, …"""
        return [event for event in self.events if event.get("subtype") == "hook_response"]

    @property
    def shown(self) -> list[str]:
        """What plugins told the person: each `systemMessage`."""
        answers = (_object(hook.get("stdout", "")) for hook in self.hooks)
        return [answer["systemMessage"] for answer in answers if "systemMessage" in answer]


@dataclass
class Running:
    """A client at work."""

    session: str
    process: subprocess.Popen[bytes]
    _out: Path
    _debug: Path

    def kill(self) -> None:
        """As `kill -9` of the client itself. What it started goes on."""
        enters = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        os.kill(int(Path(enters).read_text().split()[0]), signal.SIGKILL)

    def finish(self, seconds: float = 120) -> Finished:
        """Waits for its end. Raises: TimeoutExpired."""
        code = self.process.wait(seconds)
        lines = self._out.with_suffix(".jsonl").read_text(errors="replace").splitlines()
        events = [event for event in map(_object, lines) if event]
        stderr = self._out.with_suffix(".err").read_text(errors="replace")
        debug = self._debug.read_text(errors="replace") if self._debug.exists() else ""
        return Finished(self.session, code, events, stderr, debug)


@dataclass
class Machine:
    """`project` is a git repository, `home` and `config` are the client's, `api` has every request.

    `plugins` are loaded into each client: by default ours, as a copy in `repository`, since a client may write into the
    folder of a plugin. `env` is what clients, hooks and tools are given.
    """

    project: Path
    home: Path
    config: Path
    outputs: Path
    client: Path
    api: MessagesApi
    scripts: scripted.Scripts
    space: Space
    env: dict[str, str]
    repository: Path
    plugins: list[Path]
    session: str = ""
    _started: set[str] = field(default_factory=set)

    @property
    def store(self) -> Path:
        return self.project / FOLDER

    def start(
        self,
        prompt: str,
        *replies: Said,
        session: str = "",
        agents: Mapping[str, Sequence[Said]] = {},
        summary: Said = scripted.SUMMARY,
        env: Mapping[str, str] = {},
        arguments: Sequence[str] = (),
    ) -> Running:
        """Starts a client on one prompt. `session` is begun, or else resumed; empty means the newest, or a new one."""
        session = session or self.session or str(uuid.uuid4())
        self.session = session
        script = self.scripts.of(session)
        script.main += replies
        script.agents.update({text: list(said) for text, said in agents.items()})
        script.summary = summary
        number = len(list(self.outputs.glob("*.jsonl")))
        out, debug = self.outputs / f"{number}", self.outputs / f"{number}.debug"
        named = ["--resume" if session in self._started else "--session-id", session]
        self._started.add(session)
        loaded = [word for plugin in self.plugins for word in ("--plugin-dir", str(plugin))]
        command = [
            *(str(self.client), "-p", prompt, "--model", MODEL, *named, *loaded, "--debug-file", str(debug)),
            *("--output-format", "stream-json", "--verbose", "--include-hook-events", *arguments),
        ]
        with out.with_suffix(".jsonl").open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            process = subprocess.Popen(
                self.space.command(command, self.project),
                env={**self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        return Running(session, process, out, debug)

    def run(self, prompt: str, *replies: Said, **given: Any) -> Finished:
        """Runs a client on one prompt, as `start`. It must end well, have said all, and every hook must exit with 0."""
        finished = self.start(prompt, *replies, **given).finish()
        self.check(finished)
        return finished

    def check(self, finished: Finished) -> None:
        """Asserts that a client ended well: all replies were used, each request was taken, each hook exited with 0."""
        assert finished.code == 0, (finished.stderr, finished.events[-1:], self.refused())
        assert not self.scripts.of(finished.session).left, "replies are left"
        assert not self.refused()
        failed = [hook for hook in finished.hooks if hook.get("exit_code") != 0]
        assert not failed, failed

    def refused(self) -> list[Block]:
        """The answers to requests for messages that were not taken."""
        return [call.answer for call in self.api.calls if call.path == "/v1/messages" and call.status != 200]

    def requests(self, session: str = "", *, side: bool = False) -> list[Block]:
        """The bodies sent for the newest session, or for `session`; `side`: also those for summaries and titles."""
        session = session or self.session
        bodies = [body for body in self.api.bodies if scripted.session(body) == session]
        return [body for body in bodies if side or (body.get("tools") and not scripted.compacts(body))]

    def shell(self, *arguments: str, env: Mapping[str, str] = {}, code: int = 0) -> str:
        """Runs a command in the project as the person would; gives its output. It must exit with `code`."""
        result = subprocess.run(
            self.space.command(arguments, self.project),
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == code, (arguments, result.returncode, result.stdout[-2000:], result.stderr[-2000:])
        return result.stdout

    def transcript(self, session: str = "") -> Path:
        """Where the client keeps a session, the newest by default; the file may not be there yet."""
        name = re.sub(r"[^A-Za-z0-9]", "-", str(self.project))
        return self.config / "projects" / name / f"{session or self.session}.jsonl"

    def lines(self, session: str = "") -> list[dict[str, Any]]:
        """The whole lines of a transcript."""
        return [one for one in map(_object, self.transcript(session).read_text().splitlines()) if one]

    def settle(self, seconds: float = 30, *, well: bool = True) -> None:
        """Waits until the recorder has served every request; `well`: nothing may have gone wrong."""
        until, quiet = time.monotonic() + seconds, 0
        while quiet < 3:  # a recorder that has just begun may bring its first request along
            assert time.monotonic() < until, f"not served: {self.space.running()}"
            quiet = quiet + 1 if self._is_quiet() else 0
            time.sleep(0.1)
        assert not well or not log.entries(self.store), log.entries(self.store)

    def _is_quiet(self) -> bool:
        hooks = [line for line in self.space.running() if " hook " in line]
        recorders = [line for line in hooks if " hook record " in line]
        # The hook of a client's end may still be at work when the client is gone.
        at_work = len(hooks) > len(recorders) or len(recorders) > 1
        # By their names: they are under the seal of the machine's own home.
        requests = (self.store / recorder_requests.FOLDER).glob("[0-9]*")
        return self.store.exists() and not at_work and not any(requests)

    def end_recorder(self) -> None:
        """Kills the recorder, as a power cut would; what hosts and people run goes on."""
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = process.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"record" in command and str(self.project).encode() in b" ".join(command):
                os.kill(int(process.parent.name), signal.SIGKILL)


@contextmanager
def machine(version: str = VERSIONS[-1], *, judge: Judge | None = None) -> Iterator[Machine]:
    """A machine with that client. Skips the test where the system cannot give it a network of its own."""
    client = npm.installed(f"claude-code-{version}") / ".bin" / "claude"
    with ExitStack() as stack:
        # A short path, since a socket's may have only 107 bytes; not in memory, where a disk is to be filled.
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ctxvc-host-", ignore_cleanup_errors=True))
        )
        try:
            space = stack.enter_context(own_space(folder))
        except OSError as error:
            pytest.skip(str(error))
        scripts = scripted.Scripts()
        # Thinking may move: the host keeps the last message's through its own compaction.
        given = {"judge": judge or Judge(thinking=False), "listener": space.listener}
        api = stack.enter_context(serve(scripts, reading=scripted.reading, **given))
        yield _made(folder, client, api, scripts, space)


def _made(folder: Path, client: Path, api: MessagesApi, scripts: scripted.Scripts, space: Space) -> Machine:
    project, home, outputs, programs = (folder / name for name in ("project", "home", "outputs", "bin"))
    config = home / ".claude"
    for path in (project, config, outputs, programs):
        path.mkdir(parents=True)
    settings = {"permissions": {"allow": _ALLOWED, "defaultMode": "acceptEdits"}}
    (config / "settings.json").write_text(json.dumps(settings))
    (home / ".gitconfig").write_text(
        "[user]\n\tname = A User\n\temail = user@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    command = programs / "ctxvc"
    command.write_text(f"#!{sys.executable}\nfrom ctxvc.cli.start import run\n\nrun()\n")
    command.chmod(0o755)
    env = {
        "PATH": os.pathsep.join([str(programs), _without_ctxvc(os.environ["PATH"])]),
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(config),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "ANTHROPIC_API_KEY": "not-a-key",
        "ANTHROPIC_BASE_URL": api.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    git = shutil.which("git") or "git"
    subprocess.run([git, "init", "-q", str(project)], env=env, check=True)
    repository = folder / "repository"
    shutil.copytree(ROOT / ".claude-plugin", repository / ".claude-plugin")
    plugin = shutil.copytree(PLUGIN, repository / PLUGIN.relative_to(ROOT))
    return Machine(project, home, config, outputs, client, api, scripts, space, env, repository, [plugin])


def _without_ctxvc(path: str) -> str:
    """A search path on which no other ctxvc is found, as that of an environment in which the tests run."""
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if not Path(folder, "ctxvc").exists())


def _object(line: str) -> dict[str, Any]:
    """The JSON object of a line; empty if it is none, as half a line of a killed writer."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
