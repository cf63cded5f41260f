"""The session store against the Claude Agent SDK itself: its contracts, and its own client with a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed")

import claude_agent_sdk as sdk
from claude_agent_sdk.testing import run_session_store_conformance

from ctxvc.integrations.claude_agent_sdk import CtxvcSessionStore
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.messages_api import MessagesApi, call, serve

pytestmark = pytest.mark.timeout(900)  # its client takes its time

KEY: Any = {"project_key": "-work", "session_id": "0a1b2c3d-0000-4000-8000-000000000001"}
SECRET = "AKIA" + "Q3EGYWR5ZTBXN7LM"


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[CtxvcSessionStore]:
    with CtxvcSessionStore(tmp_path / ".ctxvc") as made:
        yield made


def entry(number: int, role: str, text: str) -> Any:
    """A line of a transcript, as the client writes it."""
    content: Any = text if role == "user" else [{"type": "text", "text": text}]
    return {
        "type": role,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "sessionId": KEY["session_id"],
        "cwd": "/work",
        "version": "2.1.300",
        "timestamp": f"2026-11-01T00:{number // 60:02}:{number % 60:02}.000Z",
        "message": {"role": role, "content": content, **({"id": f"m{number}"} if role == "assistant" else {})},
    }


def talk(turns: int) -> list[Any]:
    return [
        entry(2 * turn + at, role, f"{role} {turn}")
        for turn in range(turns)
        for at, role in enumerate(("user", "assistant"))
    ]


def test_all_contracts_of_the_sdk_hold(tmp_path: Path) -> None:
    numbers = iter(range(1000))
    ctxvc_session_stores: list[CtxvcSessionStore] = []

    def fresh() -> CtxvcSessionStore:
        ctxvc_session_stores.append(CtxvcSessionStore(tmp_path / str(next(numbers)) / ".ctxvc"))
        return ctxvc_session_stores[-1]

    asyncio.run(run_session_store_conformance(fresh))
    for sessions in ctxvc_session_stores:
        sessions.close()

    optional = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")
    assert len(ctxvc_session_stores) == 15 and all(hasattr(CtxvcSessionStore, name) for name in optional), (
        "none of the 14 is skipped"
    )


def test_an_entry_with_an_id_is_there_once_whoever_adds_it_again(tmp_path: Path) -> None:
    async def add(sessions: CtxvcSessionStore) -> Any:
        await sessions.append(KEY, [*talk(3), talk(1)[0], {"type": "title", "text": "untold"}])
        await sessions.append(KEY, talk(3))
        return await sessions.load(KEY)

    for _ in range(2):
        with CtxvcSessionStore(tmp_path / ".ctxvc") as sessions:
            loaded = asyncio.run(add(sessions))

    title = {"type": "title", "text": "untold"}
    assert loaded == [*talk(3), title, title], "without an id each is a new one"


def test_a_transcript_is_a_session_and_its_sub_agents_are_scopes(tmp_path: Path) -> None:
    with CtxvcSessionStore(tmp_path / ".ctxvc") as sessions:
        asyncio.run(sessions.append(KEY, talk(4)))
        asyncio.run(sessions.append({**KEY, "subpath": "subagents/agent-a1"}, talk(1)))
        asyncio.run(sessions.append({**KEY, "subpath": "../../outside"}, talk(1)))
    assert sessions.failure is None
    with Store(tmp_path / ".ctxvc") as store:
        name = store.current_session()
    with Session.open(tmp_path / ".ctxvc", name) as session:
        texts = [session.body(row.id).decode() for row in session.ledger().rows()]
        assert texts == [f"{role} {turn}" for turn in range(4) for role in ("user", "assistant")]
        assert len(session.scopes()) == 2 and session.ledger().meta.source.id == KEY["session_id"]  # type: ignore[union-attr]


def test_a_secret_comes_back_as_a_mark(sessions: CtxvcSessionStore) -> None:
    asyncio.run(sessions.append(KEY, [entry(0, "user", f"use {SECRET}")]))

    (loaded,) = asyncio.run(sessions.load(KEY)) or ()
    assert loaded["message"]["content"].startswith("use [REDACTED:")


def test_what_is_no_transcript_is_stored_all_the_same(sessions: CtxvcSessionStore) -> None:
    odd = [{"type": "x", "message": 7, "uuid": ["no"]}, {"type": "user", "message": {"role": "user", "content": None}}]
    asyncio.run(sessions.append({"project_key": "/../\x00", "session_id": "../../etc"}, odd))

    assert asyncio.run(sessions.load({"project_key": "/../\x00", "session_id": "../../etc"})) == odd


# --- with the SDK's own client


def working(steps: int, task: str = "echo step") -> Callable[[Any], Any]:
    """A model that runs so many commands, then is done."""

    def assistant(body: Any) -> Any:
        number = sum(message["role"] == "assistant" for message in body["messages"])
        if not body.get("tools"):
            return "A title"
        return [call("Bash", command=f"{task} {number}", description="a step")] if number < steps else "All done."

    return assistant


def options(folder: Path, api: MessagesApi, sessions: CtxvcSessionStore, **more: Any) -> Any:
    env = {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "sk-test",
        "HOME": str(folder / "home"),
        "CLAUDE_CONFIG_DIR": str(folder / "home" / ".claude"),
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",  # the server does not play them
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    (folder / "work").mkdir(exist_ok=True)
    return sdk.ClaudeAgentOptions(
        cwd=str(folder / "work"),
        env=env,
        session_store=sessions,
        allowed_tools=["Bash"],
        model="claude-sonnet-4-5",
        **more,
    )


async def asked(prompt: str, made: Any) -> str:
    """The id of the session in which the client answered."""
    session = ""
    async for message in sdk.query(prompt=prompt, options=made):
        session = getattr(message, "session_id", session)
    return session


def recorded(place: Path) -> str:
    """All that the store's current session has, as text."""
    with Store(place) as store:
        name = store.current_session()
    with Session.open(place, name) as session:
        return "\n".join(session.body(row.id).decode() for row in session.ledger().rows())


def test_a_hundred_steps_of_the_client_are_recorded_whole(tmp_path: Path) -> None:
    with serve(working(100)) as api, CtxvcSessionStore(tmp_path / ".ctxvc") as sessions:
        name = asyncio.run(asked("Do it.", options(tmp_path, api, sessions)))
        (written,) = (tmp_path / "home" / ".claude" / "projects").rglob(f"{name}.jsonl")
        key: Any = {"project_key": written.parent.name, "session_id": name}
        loaded = asyncio.run(sessions.load(key))
        listed = asyncio.run(sessions.list_sessions(written.parent.name))

    on_disk = [json.loads(line) for line in written.read_text().splitlines()]
    assert loaded is not None and [one["uuid"] for one in loaded if "uuid" in one] == [
        one["uuid"] for one in on_disk if "uuid" in one
    ]
    assert [one["session_id"] for one in listed] == [name]
    text = recorded(tmp_path / ".ctxvc")
    assert sessions.failure is None and all(f"step {number}" in text for number in range(100)) and "All done." in text


_WORKING = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.hosts.frameworks.test_claude_agent_sdk import *
folder = Path(sys.argv[1])

async def go():
    with serve(working(1000)) as api:
        sessions = CtxvcSessionStore(folder / ".ctxvc")
        steps = 0
        eager = options(folder, api, sessions, session_store_flush="eager")
        async for message in sdk.query(prompt="Do it.", options=eager):
            steps += type(message).__name__ == "UserMessage"
            if steps == 12:
                await asyncio.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(go())
"""


def test_a_killed_agent_goes_on_from_the_store_on_a_machine_that_has_nothing_else(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-c", _WORKING, tmp_path]
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        child.wait(300)
    os.killpg(child.pid, signal.SIGKILL)  # the client, which outlives it
    assert child.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-2000:]
    shutil.rmtree(tmp_path / "home")

    with serve(working(0)) as api, CtxvcSessionStore(tmp_path / ".ctxvc") as sessions:
        project = str((tmp_path / "work").resolve()).replace("/", "-").replace("_", "-").replace(".", "-")
        (one,) = asyncio.run(sessions.list_sessions(project))
        asyncio.run(asked("Go on.", options(tmp_path, api, sessions, resume=one["session_id"])))
        sent = json.dumps(api.bodies[-1]["messages"])

    assert all(text in sent for text in ("Do it.", "step 5", "Go on."))
    assert "Go on." in recorded(tmp_path / ".ctxvc")


def test_a_session_made_smaller_by_a_policy_is_resumed_from_the_store(tmp_path: Path) -> None:
    place = tmp_path / ".ctxvc"

    def ctxvc(*arguments: str) -> str:
        env = {**os.environ, "CTXVC_STORE": str(place)}
        return subprocess.run(
            [sys.executable, "-m", "ctxvc", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=env,
            cwd=tmp_path,
        ).stdout

    with serve(working(12, "seq 1 1500; echo")) as api:
        with CtxvcSessionStore(place) as sessions:
            asyncio.run(asked("Do it.", options(tmp_path, api, sessions)))
        before = len(json.dumps(api.bodies[-1]["messages"]))
        ctxvc("compact", "--policy", "default", "--budget", "20k")
        lines = ctxvc("export", "--format", "claude-code").splitlines()
        with CtxvcSessionStore(place) as sessions:
            entries = [json.loads(line) for line in lines]
            name = next(one["sessionId"] for one in entries if "sessionId" in one)
            project = str((tmp_path / "work").resolve()).replace("/", "-").replace("_", "-").replace(".", "-")
            asyncio.run(sessions.append({"project_key": project, "session_id": name}, entries))
            asyncio.run(asked("Go on.", options(tmp_path, api, sessions, resume=name)))
        after = json.dumps(api.bodies[-1]["messages"])

    assert "Do it." in after and "Go on." in after and len(after) < before / 2


_WRAPPED = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from tests.hosts.frameworks.test_claude_agent_sdk import *
folder = Path(sys.argv[1])
with CtxvcSessionStore(folder / ".ctxvc") as sessions:
    given = options(folder, SimpleNamespace(url=""), sessions)
    del given.env["ANTHROPIC_BASE_URL"]
    asyncio.run(asked("Do it.", given))
"""
_SENT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def test_a_wrapped_agent_stays_in_its_budget(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with serve(working(20, "seq 1 1500; echo")) as api:
        wrap = [sys.executable, "-m", "ctxvc", "-C", tmp_path, "wrap", "--budget", "40k"]
        agent = ["--upstream", f"anthropic={api.url}", "--", sys.executable, "-c", _WRAPPED, tmp_path]
        done = subprocess.run([*wrap, *agent], capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr
        answers = [one.answer for one in api.calls if one.method == "POST"]
        sent = [sum(answer["usage"][name] for name in _SENT) for answer in answers]
        bodies = [body for body in api.bodies if body.get("tools")]

    assert len(bodies) == 21 and max(sent) <= 40_000
    assert "[archived" in json.dumps(bodies[-1]) and all("Do it." in json.dumps(body) for body in bodies)
    with Store(tmp_path / ".ctxvc") as store:
        assert len([name for name in store.sessions() if not name.startswith("sdk-")]) == 1
