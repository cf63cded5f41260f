"""Whole processes, from their start to their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ctxvc.claude_code import spool
from ctxvc.core.ledger import wire
from tests.benchmarks.making import store_of, text
from tests.benchmarks.measuring import Figure, interleaved, median_ms, process_seconds
from tests.making.host import ROOT, end_recorder, hook

ROUNDS = 15
#: Lines of the transcript that a hook is told of: about 20 MB.
LINES = 10_000


#: What a client has of the server of the tools, and how many calls of one it has made by then.
SERVER = {"ctxvc mcp, until its tools are listed": 0, "ctxvc mcp, until a first call is answered": 1}


def figures(folder: Path) -> Iterator[Figure]:
    ctxvc = (sys.executable, "-m", "ctxvc")
    with store_of(folder, 1_000) as store:
        project = store.path.parent
    process_seconds(*ctxvc, "-C", str(project), "status")  # counts every block once; from here on they are cached
    works = {
        "python -c pass": lambda _: process_seconds(sys.executable, "-c", "pass"),
        "ctxvc --help": lambda _: process_seconds(*ctxvc, "--help"),
        "ctxvc status, 1,000 blocks, counts cached": lambda _: process_seconds(*ctxvc, "-C", str(project), "status"),
        "ctxvc log -n 20": lambda _: process_seconds(*ctxvc, "-C", str(project), "log", "-n", "20"),
    }
    targets = {
        "a hook, first lines of a transcript": "<= 150",
        "a hook, at the end of 20 MB": "<= 150",
        "a hook that leaves a mark": "<= 15",
        "ctxvc --help": "<= 150",
        "ctxvc status, 1,000 blocks, counts cached": "<= 350",
    }
    works |= {name: _server(project, calls) for name, calls in SERVER.items()}
    times = interleaved({**works, **_hooks(folder), "a hook that leaves a mark": _mark(folder)}, ROUNDS)
    for store_path in folder.glob("hooked-*/*/.ctxvc"):
        end_recorder(store_path)
    base = median_ms(times["python -c pass"])
    for name, took in times.items():
        yield Figure(name, median_ms(took), "ms", median_ms(took) / base, targets.get(name, ""), "an empty Python")


def _hooks(folder: Path) -> dict[str, Callable[[int], object]]:
    """The host's wait for a hook, as the session begins and late in it, its recorder at work."""
    works: dict[str, Callable[[int], object]] = {}
    for name, lines in (("first lines of a transcript", 3), ("at the end of 20 MB", LINES)):
        with store_of(folder / f"hooked-{lines}", 3) as store:
            project = store.path.parent
        transcript = project / "11111111-1111-4111-8111-111111111111.jsonl"
        transcript.write_text("".join(_line(number) for number in range(lines)))

        def told(number: int, project: Path = project, transcript: Path = transcript, lines: int = lines) -> None:
            with transcript.open("a") as file:
                file.write(_line(lines + number))
            hook(project, transcript, "PostToolUse", tool_use_id=f"toolu_{number}")

        works[f"a hook, {name}"] = told
    return works


def _mark(folder: Path) -> Callable[[int], object]:
    """The plugin's command for an event that needs no answer, while a recorder attends to the conversation."""
    transcript = str(folder / "22222222-1111-4111-8111-111111111111.jsonl")
    plugin = ROOT / "hooks" / "claude-code"
    groups = json.loads((plugin / "hooks" / "hooks.json").read_text())["hooks"]["PostToolUse"]
    command = groups[0]["hooks"][0]["command"].replace("${CLAUDE_PLUGIN_ROOT}", str(plugin))
    env = {**os.environ, "CLAUDE_CODE_SESSION_ID": Path(transcript).stem}

    def leaves(_: int) -> None:
        spool.attend(transcript)  # this process, which is alive
        begun = len(spool.notices(transcript))
        subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, env=env, check=True)
        assert len(spool.notices(transcript)) == begun + 1

    return leaves


def _server(project: Path, calls: int) -> Callable[[int], object]:
    """The server of the tools, as a client starts it; it ends when its stdin does."""
    requests: list[dict[str, object]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}},
        {"id": 1, "method": "tools/list"},
        *({"id": 2, "method": "tools/call", "params": {"name": "status", "arguments": {}}} for _ in range(calls)),
    ]

    def serves(_: int) -> None:
        command = [sys.executable, "-m", "ctxvc", "mcp"]
        with subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin and server.stdout
            for request in requests:
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
                server.stdin.flush()
                assert b'"result"' in server.stdout.readline()
            server.kill()

    return serves


def _line(number: int) -> str:
    """A human's line and a reply's by turns, as Claude Code writes them."""
    role = "assistant" if number % 2 else "user"
    content: object = [{"type": "text", "text": text(number)}] if number % 2 else text(number)
    return (
        wire.compact(
            {
                "type": role,
                "uuid": f"u{number}",
                "parentUuid": f"u{number - 1}" if number else None,
                "sessionId": "11111111-1111-4111-8111-111111111111",
                "timestamp": "2026-11-01T10:00:00.000Z",
                "cwd": "/work",
                "version": "2.1.0",
                "message": {"role": role, "id": f"m{number}", "content": content},
            }
        ).decode()
        + "\n"
    )
