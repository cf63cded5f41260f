"""The clients that go on with sessions of ours: how each does it, without a terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import native_format
from ctxvc.exporters.native.content import arriving
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import NativeSession, Setting
from ctxvc.forms import form
from ctxvc.store.store import Store, create
from tests.exporters.arrival import Arrival, compared, of_pieces, of_request
from tests.exporters.trips import imported
from tests.hosts.coding import ROOT, run_ctxvc
from tests.hosts.wire import play
from tests.hosts.wire.agents import CLIENTS, Client, Place
from tests.hosts.wire.model import Script, call, say, text
from tests.hosts.wire.tap import Passed, tapped
from tests.hosts.wire.upstream import serve
from tests.wire import test_recorder

ASKED = "Now say goodbye, please."
_PATIENCE = 600


@dataclass(frozen=True)
class Resuming:
    """A client of `CLIENTS`, and the arguments with which it goes on with a session.

    `unlimited` makes it send all that it has, `env` too, whatever it would shorten by itself.
    """

    agent: str
    client: str
    arguments: Callable[[str], Sequence[str]]
    unlimited: Callable[[Place], None] = lambda _: None
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> Client:
        return next(client for client in CLIENTS if client.name == self.client)


def _codex(session: str) -> Sequence[str]:
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "-m", "gpt-other")
    return ("exec", *flags, "resume", session, ASKED)


def _pi(model: str) -> Callable[[str], Sequence[str]]:
    return lambda session: ("--session", session, "--model", model, "-p", ASKED)


def _opencode(model: str) -> Callable[[str], Sequence[str]]:
    return lambda session: ("run", "-m", model, "--session", session, ASKED)


def _gemini(session: str) -> Sequence[str]:
    return ("--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "--resume", session, "-p", ASKED)


def _qwen(session: str) -> Sequence[str]:
    return ("--yolo", "--auth-type", "openai", "--resume", session, "-p", ASKED)


def _copilot(session: str) -> Sequence[str]:
    return ("--allow-all-tools", "--allow-all-paths", f"--resume={session}", "-p", ASKED)


def _openhands(session: str) -> Sequence[str]:
    return ("--headless", "--json", "--override-with-envs", "--resume", session, "-t", ASKED)


def _openhands_unlimited(place: Place) -> None:
    """Has OpenHands summarize nothing; its variables still name model, key and address."""
    folder = place.home / ".openhands"
    folder.mkdir(exist_ok=True)
    llm = {"model": "openai/gpt-4.1", "api_key": "not-a-key"}
    condenser = {"kind": "LLMSummarizingCondenser", "llm": {**llm, "usage_id": "condenser"}, "max_size": 1_000_000}
    agent = {"kind": "Agent", "llm": {**llm, "usage_id": "agent"}, "condenser": condenser}
    (folder / "agent_settings.json").write_text(json.dumps(agent))


_WIDE = {"COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "10000000"}
RESUMING: Sequence[Resuming] = (
    Resuming("codex", "codex-functions", _codex),
    Resuming("opencode", "opencode-openai", _opencode("openai/gpt-5.1")),
    Resuming("opencode", "opencode-anthropic", _opencode("anthropic/claude-sonnet-4-5")),
    Resuming("pi", "pi-openai", _pi("openai/gpt-5.1")),
    Resuming("pi", "pi-anthropic", _pi("anthropic/claude-sonnet-4-5")),
    Resuming("gemini", "gemini", _gemini),
    Resuming("copilot", "copilot-chat", _copilot, env=_WIDE),
    Resuming("copilot", "copilot-responses", _copilot, env=_WIDE),
    Resuming("copilot", "copilot-messages", _copilot, env=_WIDE),
    Resuming("qwen", "qwen", _qwen, env={"OPENAI_MODEL": "qwen3-vl-plus"}),
    Resuming("openhands", "openhands-openai", _openhands, _openhands_unlimited),
    Resuming("openhands", "openhands-anthropic", _openhands, _openhands_unlimited),
)


def arrival(resuming: Resuming, recording: Path, *, unlimited: bool = True) -> tuple[Arrival, NativeSession]:
    """What of a recording's prompt the upstream gets when the client goes on with the session that we write of it."""
    client = resuming.program
    with (
        play.laid(client) as (place, env),
        _imported(recording) as conversation,
        serve(script := Script()) as upstream,
        tapped(upstream.url) as tap,
    ):
        if unlimited:
            resuming.unlimited(place)
        own = {**env, **play.filled(client, tap.url), **resuming.env}
        session = put(resuming.agent, conversation, place, own)
        script.begin([say("Goodbye.")], [], compacts=False)
        output = _run([*play.pointed(client, tap.url), *resuming.arguments(session.id)], place, own)
        requests = [one for one in tap.passed() if _goes_on(one)]
        assert requests, output
        lost = {loss.path for loss in session.losses if loss.change == "the agent's own"}
        setting = Setting(folder=place.project, time=datetime.now(timezone.utc))
        content = arriving(
            conversation, setting, resuming.agent, native_format(resuming.agent).format, items=is_codex(resuming)
        )
        pieces = [piece for piece in content.pieces if piece.block not in lost]
        return compared(list(of_pieces(pieces)), of_request(requests[0].path, requests[0].body)), session


def lineage(resuming: Resuming, recording: Path, *, wrapped: bool) -> tuple[list[str], list[str], str]:
    """What a client does that goes on with a session, on the wire or imported later: the store's sessions, the new
    scopes of the first, and the last text in there. A sub-agent's do not count: Qwen Code's memory has one.
    """
    client = resuming.program
    with play.laid(client) as (place, env), serve(script := Script()) as upstream:
        resuming.unlimited(place)
        own = {**env, **play.filled(client, upstream.url), **resuming.env, "PYTHONPATH": str(ROOT)}
        run_ctxvc(place.project, "import", str(recording), env=own)
        command = run_ctxvc(place.project, "continue", "--in", resuming.agent, env=own).splitlines()[-1]
        session = command.split()[-1].removeprefix("--resume=")
        script.begin([say("Goodbye.")], [], compacts=False)
        front = play.wrapping(client, upstream.url) if wrapped else play.pointed(client, upstream.url)
        _run([*front, *resuming.arguments(session)], place, own)
        if not wrapped:
            run_ctxvc(place.project, "import", "--final", env=own)
        path = place.project / ".ctxvc"
        with Store(path) as store:
            sessions = store.sessions()
            tips = store.tips(next(name for name in sessions if name.startswith("claude-")))
        scopes = [scope for scope in tips if scope not in ("main", "side") and not scope.startswith("agent-")]
        return sessions, scopes, test_recorder.texts(path, scopes[-1])[-1][1] if len(sessions) == 1 and scopes else ""


def of_mini(recording: Path, go_on: str) -> Arrival:
    """What of a recording's prompt the upstream gets from mini-swe-agent with a class `go_on.GoOn`."""
    client = next(client for client in CLIENTS if client.name == "mini-openai")
    with (
        play.laid(client) as (place, env),
        _imported(recording) as conversation,
        serve(script := Script()) as upstream,
        tapped(upstream.url) as tap,
    ):
        session = put("mini-swe-agent", conversation, place, env)
        native = native_format("mini-swe-agent")
        assert native.folder
        file = native.folder(place.project, place.home, env) / next(iter(session.files))
        (place.project / "go_on.py").write_text(go_on)
        own = {**env, **play.filled(client, tap.url), "PYTHONPATH": str(place.project), "GO_ON": str(file)}
        done = [text("That is all."), call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
        script.begin([done], [], compacts=False)
        flags = ("--agent-class", "go_on.GoOn", "-m", "openai/gpt-4.1", "-y", "--exit-immediately", "-t", ASKED)
        _run([*play.pointed(client, tap.url), *flags], place, own)
        request = next(one for one in tap.passed() if _goes_on(one))
        setting = Setting(folder=place.project, time=datetime.now(timezone.utc))
        content = arriving(conversation, setting, "mini-swe-agent", native.format)
        return compared(list(of_pieces(content.pieces)), of_request(request.path, request.body))


@contextmanager
def _imported(recording: Path) -> Iterator[Conversation]:
    with TemporaryDirectory() as folder, create(Path(folder) / "store") as store:
        yield imported(store, recording)


def put(agent: str, conversation: Conversation, place: Place, env: Mapping[str, str]) -> NativeSession:
    """The session of a conversation, where the client looks for it, or taken in by it."""
    native = native_format(agent)
    session = native.write(conversation, Setting(folder=place.project, time=datetime.now(timezone.utc)))
    folder = native.folder(place.project, place.home, env) if native.folder else place.folder / "written"
    assert installed(session, folder)
    if native.install:
        _run(native.commands(folder / next(iter(session.files)), session.id)[0], place, env)
    return session


def _run(command: Sequence[str], place: Place, env: Mapping[str, str]) -> tuple[str, str]:
    """Runs a client's command to its end; what it printed."""
    result = subprocess.run(
        command, cwd=place.project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_PATIENCE, check=False,
    )  # fmt: skip
    printed = result.stdout[-2000:], result.stderr[-2000:]
    assert result.returncode == 0, (result.returncode, *printed)
    return printed


def _goes_on(passed: Passed) -> bool:
    """Whether a request is the conversation's, and none beside it, as for a title: it has tools."""
    is_call = passed.method == "POST" and form.of(passed.path) is not None and ASKED.encode() in passed.body
    return is_call and (b'"tools"' in passed.body or b"additional_tools" in passed.body)


def is_codex(resuming: Resuming) -> bool:
    return resuming.agent == "codex"
