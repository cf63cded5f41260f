"""A compaction in Claude Code: its wall time at large sizes, what it leaves, and what the next calls cost.

    CTXVC_TEST_DATA=... python -m tests.benchmarks.compaction

Sessions of one project, joined in the order of their dates, until they have as many tokens.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctxvc.claude_code import compaction, requests
from ctxvc.claude_code.requests import Request
from ctxvc.core.plan import payoff
from ctxvc.core.plan.timing import USUAL
from ctxvc.importers.claude_code import FORMAT
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.played_host import SESSION, PlayedHost

SIZES = (80_000, 200_000, 500_000, 900_000)
PROJECT = "entire-cli"
_TIMES = 3
#: Characters of a token in these recordings, about.
_CHARACTERS = 3.6


def recordings() -> Iterator[dict[str, Any]]:
    """The messages of the project's sessions, oldest session first."""
    files = (Path(os.environ["CTXVC_TEST_DATA"]) / "trajectories").glob(f"{PROJECT}-*.jsonl.gz")
    sessions = []
    for file in files:
        with gzip.open(file, "rt") as stream:
            messages = [json.loads(text) for text in stream][1:]
        times = [message["meta"]["ts"] for message in messages if message.get("meta", {}).get("ts")]
        sessions.append((min(times, default=""), file.name, messages))
    for _, _, messages in sorted(sessions):
        yield from messages


def played(folder: Path, tokens: int) -> PlayedHost:
    """A host with a session of about so many tokens."""
    host, room, calls = PlayedHost(folder), tokens * _CHARACTERS, {}
    for number, message in enumerate(recordings()):
        for block in message["content"]:
            match block:
                case {"type": "text", "text": str(text)} if text.strip() and message["role"] == "user":
                    host.says(text)
                    room -= len(text)
                case {"type": "text", "text": str(text)} if text.strip() and message["role"] == "assistant":
                    host.replies(text)
                    room -= len(text)
                case {"type": "tool_use"}:
                    calls[block["id"]] = block
                case {"type": "tool_result", "tool_use_id": name} if name in calls:
                    text = "\n".join(part.get("text", "") for part in block["content"])
                    call = calls.pop(name)
                    host.calls(f"{name}-{number}", text, call["name"], call["input"])
                    room -= len(text) + len(json.dumps(call["input"]))
        if room < 0:
            break
    host.replies("That is as far as I am.")
    return host


def warmed(host: PlayedHost) -> None:
    """What the recorder has done by the end of a turn."""
    host.records()
    with Store(host.store) as store:
        stored = StoredSession.open(store, store.session_of(FORMAT, SESSION))
        compaction.warm(stored)
        stored.leave()


@contextmanager
def recorder(host: PlayedHost) -> Iterator[None]:
    """A recorder that is at work, as it is after a turn."""
    requests.post(host.store, Request("Stop", str(host.transcript)))
    command = [sys.executable, "-m", "ctxvc", "hook", "record", str(host.store)]
    process = subprocess.Popen(command, env=host.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while requests.pending(host.store):
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def asked(host: PlayedHost) -> tuple[float, float, dict[str, Any]]:
    """The processor time of the whole process, the wall time for which the host waits, and the answer."""
    event = {"session": SESSION, "folder": str(host.project), "trigger": "auto", "messages": host.messages}
    used, started = _processor(), time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "ctxvc", "hook", "SessionCompact"],
        input=json.dumps(event).encode(),
        capture_output=True,
        env=host.env,
        check=True,
    )
    return _processor() - used, time.monotonic() - started, json.loads(process.stdout)


def _processor() -> float:
    """Seconds of processor time that ended processes of this one took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def interpreter() -> float:
    used = _processor()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return _processor() - used


def main() -> None:
    bare = min(interpreter() for _ in range(9))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; a bare interpreter takes {bare * 1000:.0f} ms")
    print(
        "| tokens before | after | archived | messages | processor, s | wall, s | × interpreter | beside recorder, s |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    sizes: list[tuple[int, int]] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="ctxvc-compaction-") as folder:
            host = played(Path(folder), size)
            warmed(host)
            host.says("And now go on with what is left.")
            runs = [asked(host) for _ in range(_TIMES)]
            processor, _, answer = min(runs, key=lambda run: run[0])
            wall = min(run[1] for run in runs)
            with recorder(host):
                beside = min(asked(host)[1] for _ in range(_TIMES))
            assert "messages" in answer, answer
            before, after = answer["tokensBefore"], answer["tokensAfter"]
            sizes.append((before, after))
            blocks = answer["line"].split("; ")[1].split()[0]
            numbers = f"{before:,} | {after:,} | {blocks} | {len(host.messages):,}"
            numbers += f" | {processor:.2f} | {wall:.2f} | {processor / bare:.0f} | {beside:.2f}"
            print(f"| {numbers} |", flush=True)
    print("\n| tokens before | cache | verbatim | summary | left alone |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for before, after in sizes:
        for cold in (False, True):
            writing = before * (USUAL.write_price - USUAL.read_price) if cold else 0.0
            alone = before * USUAL.read_price * payoff.CALLS
            costs = (payoff.lossless(after), payoff.summarised(before) + writing, alone + writing)
            print(
                f"| {before:,} | {'cold' if cold else 'warm'} | " + " | ".join(f"{cost:,.0f}" for cost in costs) + " |"
            )


if __name__ == "__main__":
    main()
