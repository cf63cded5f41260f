"""The clients that take up sessions of ours: how each goes on with one, without a terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import native_format
from ctxvc.exporters.native.content import arriving
from ctxvc.exporters.native.session import NativeSession, Setting
from ctxvc.store.store import create
from tests.exporters.trips import imported
from tests.hosts.native.arrival import Arrival, compared, of_pieces, of_request
from tests.hosts.wire import play
from tests.hosts.wire.agents import CLIENTS, Client, Place
from tests.hosts.wire.model import Script, say
from tests.hosts.wire.tap import Passed, tapped
from tests.hosts.wire.upstream import serve

ASKED = "Now say goodbye, please."
_PATIENCE = 400


@dataclass(frozen=True)
class Resuming:
    """A client of `CLIENTS`, and the arguments with which it goes on with a session in its first run."""

    agent: str
    client: str
    arguments: Callable[[str], Sequence[str]]


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


def _openhands(session: str) -> Sequence[str]:
    return ("--headless", "--json", "--override-with-envs", "--resume", session, "-t", ASKED)


def _copilot(session: str) -> Sequence[str]:
    return ("--allow-all-tools", "--allow-all-paths", f"--resume={session}", "-p", ASKED)


RESUMING: Sequence[Resuming] = (
    *(Resuming("copilot", f"copilot-{form}", _copilot) for form in ("chat", "responses", "messages")),
    Resuming("openhands", "openhands-openai", _openhands),
    Resuming("openhands", "openhands-anthropic", _openhands),
    Resuming("gemini", "gemini", _gemini),
    Resuming("qwen", "qwen", _qwen),
    Resuming("opencode", "opencode-anthropic", _opencode("anthropic/claude-sonnet-4-5")),
    Resuming("opencode", "opencode-openai", _opencode("openai/gpt-5.1")),
    Resuming("codex", "codex-functions", _codex),
    Resuming("pi", "pi-anthropic", _pi("anthropic/claude-sonnet-4-5")),
    Resuming("pi", "pi-openai", _pi("openai/gpt-5.1")),
)


def client_of(resuming: Resuming) -> Client:
    return next(client for client in CLIENTS if client.name == resuming.client)


def arrival(resuming: Resuming, recording: Path) -> Arrival:
    """What of a recording's prompt the upstream gets when the client goes on with the session that we write of it."""
    client = client_of(resuming)
    with (
        play.laid(client) as (place, env),
        TemporaryDirectory() as folder,
        create(Path(folder) / "store") as store,
        serve(script := Script()) as upstream,
        tapped(upstream.url) as tap,
    ):
        conversation = imported(store, recording)
        own = {**env, **play.filled(client, tap.url)}
        session = written(resuming.agent, conversation, place, own)
        script.begin([say("Goodbye.")], [], compacts=False)
        command = [*play.pointed(client, tap.url), *resuming.arguments(session.id)]
        result = subprocess.run(
            command,
            cwd=place.project,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        shown = (result.returncode, result.stdout[-2000:], result.stderr[-2000:])
        assert result.returncode == 0, shown
        requests = [one for one in tap.passed() if one.method == "POST" and _is_main(one)]
        assert requests, shown
        content = arriving(
            conversation, resuming.agent, native_format(resuming.agent).format, items=resuming.agent == "codex"
        )
        return compared(list(of_pieces(content.pieces)), of_request(requests[0]))


def _is_main(passed: Passed) -> bool:
    return ASKED.encode() in passed.body and len(passed.body) > 5_000


def written(agent: str, conversation: Conversation, place: Place, env: dict[str, str]) -> NativeSession:
    """The session of a conversation, where the client looks for it."""
    native = native_format(agent)
    setting = Setting(folder=place.project, time=datetime.now(timezone.utc))
    session = native.write(conversation, setting)
    folder = native.folder(place.project, place.home, env) if native.folder else place.folder / "written"
    for name, data in session.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if native.install:
        command = native.install(folder / next(iter(session.files)))
        result = subprocess.run(
            command, cwd=place.project, env=env, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
        assert result.returncode == 0, (result.stdout[-2000:], result.stderr[-2000:])
    return session
