"""Forwarding: what `ctxvc proxy` adds to a request, beside a direct connection and beside other proxies, in one run.

CTXVC_RIVALS names folders, as PATH does, in which `mitmdump` and `headroom` are looked for; without them they are left
out. Everything stays on this machine: the upstream is a process that reads a request and sends events.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import gc
from ctxvc.wire.recorder import Recorder
from tests.benchmarks.measuring import Figure
from tests.wire.sending import of_trajectory

#: Bytes of a prompt of 200k tokens, and of one of a million.
PROMPT, LARGE_PROMPT = 800_000, 4_000_000
ROUNDS = 300
#: Seconds between two calls, which is less than an agent's tools take.
BETWEEN = 0.05
#: Bytes of a stream whose speed is measured, which is a very long answer; and how often.
STREAM, TIMES = 1_000_000, 15
#: Events of a stream that comes as fast as a fast model's, and seconds between two.
PACED, PAUSE = 250, 0.002
#: Conversations at once, calls in each, and bytes of events that answer one.
CONVERSATIONS, CALLS, ANSWER = 20, 10, 200_000
STARTS, RUNS = 5, 8
#: The header by which the upstream is told how many bytes of events to send; below 0, how many events with pauses.
EVENTS = "x-bytes"
TEXT = "some twenty tokens of text, as a model sends them, one after the other"
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
USAGE = {"input_tokens": 200_000, "output_tokens": 1}
REPLY = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}
MESSAGE = json.dumps({**REPLY, "model": "claude-opus-5-5", "stop_reason": "end_turn", "usage": USAGE}).encode()


def _event(event: dict[str, Any]) -> bytes:
    """A chunk with an event in it."""
    data = b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps(event).encode())
    return b"%x\r\n%s\r\n" % (len(data), data)


#: What a stream begins and ends with, and what is between: as much as goes into a block at once.
BEGIN = _event(
    {"type": "message_start", "message": {**REPLY, "model": "claude-opus-5-5", "content": [], "usage": USAGE}}
)
BEGIN += _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
CHUNK = _event(DELTA)
BLOCK = 65536 // len(CHUNK)
END = _event({"type": "content_block_stop", "index": 0})
END += _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}})
END += _event({"type": "message_stop"}) + b"0\r\n\r\n"


class Server(NamedTuple):
    """Where a client sends its requests, and the process that is measured."""

    port: int
    path: str
    pid: int


class Rival(NamedTuple):
    """How a proxy is started in front of a port: its command, and variables."""

    name: str
    command: Callable[[int, int], list[str]]  # of its own port and the upstream's
    env: Callable[[int], dict[str, str]] = lambda _upstream: {}


def _mitmdump(*options: str) -> Callable[[int, int], list[str]]:
    return lambda port, upstream: [
        *("mitmdump", "-q", "--mode", f"reverse:http://127.0.0.1:{upstream}"),
        *("--listen-host", "127.0.0.1", "-p", str(port), *options),
    ]


RIVALS = (
    Rival(
        "ctxvc",
        lambda port, upstream: [
            *(sys.executable, "-m", "ctxvc", "proxy", "--port", str(port)),
            *("--upstream", f"anthropic=http://127.0.0.1:{upstream}"),
        ],
    ),
    Rival("mitmdump", _mitmdump("-w", "flows")),
    Rival("mitmdump, streaming", _mitmdump("--set", "stream_large_bodies=1")),
    Rival(
        "headroom",
        lambda port, _upstream: ["headroom", "proxy", "--port", str(port), "--no-rate-limit"],
        lambda upstream: {"ANTHROPIC_TARGET_API_URL": f"http://127.0.0.1:{upstream}", "HEADROOM_TELEMETRY": "off"},
    ),
)


def figures(folder: Path) -> Iterator[Figure]:
    with ExitStack() as stack:
        upstream = stack.enter_context(_upstream())
        servers = {"direct": upstream}
        for rival in RIVALS:
            if rival.name == "ctxvc" or shutil.which(rival.command(0, 0)[0], path=os.environ.get("CTXVC_RIVALS", "")):
                servers[rival.name] = stack.enter_context(started(rival, upstream.port, folder))
        yield from _first_bytes(servers)
        yield from _streams(servers)
        yield from _at_once(servers)
    for rival in RIVALS:
        if rival.name in servers:
            yield from _memory(rival, folder)
            yield from _starts(rival, folder)
    yield from _disk(folder)


def _first_bytes(servers: dict[str, Server]) -> Iterator[Figure]:
    """Milliseconds from the first byte of a request to the first byte of its answer."""
    clients = {name: _Client(server) for name, server in servers.items()}
    times: dict[str, list[float]] = {name: [] for name in servers}
    spent = {name: _processor(server.pid) for name, server in servers.items()}
    for number in range(ROUNDS):
        for name, client in clients.items():
            times[name].append(client.call(_body(PROMPT, number))[0])
            time.sleep(BETWEEN)
    spent = {name: _processor(server.pid) - spent[name] for name, server in servers.items()}
    for name, values in times.items():
        if name == "direct":
            yield Figure("wire: first byte, 800 kB, direct, p50", _quantile(values, 50), "ms")
            yield Figure("wire: first byte, 800 kB, direct, p99", _quantile(values, 99), "ms")
            continue
        for percent, target in ((50, "3 ms"), (99, "20 ms")):
            added = _quantile(values, percent) - _quantile(times["direct"], percent)
            what = f"wire: first byte, 800 kB, {name} adds, p{percent}"
            yield Figure(what, added, "ms", None, target if name == "ctxvc" else "")
        yield Figure(f"wire: a call of 800 kB, {name}, processor", 1000 * spent[name] / ROUNDS, "ms")


def _quantile(seconds: list[float], percent: int) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[len(seconds) * percent // 100]


def _streams(servers: dict[str, Server]) -> Iterator[Figure]:
    """A stream as fast as the upstream can send it, and one as fast as a model sends it."""
    clients = {name: _Client(server) for name, server in servers.items()}
    for what, unit, events in (("1 MB at once", STREAM / 1e6, STREAM), ("500 events a second", PACED, -PACED)):
        times: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(TIMES):
            for name, client in clients.items():
                times[name].append(client.call(_body(1000, 0, conversation=number, events=events), events=events)[1])
        base = statistics.median(times["direct"])
        for name, values in times.items():
            median = statistics.median(values)
            target = "0.90 x" if name == "ctxvc" else ""
            yield Figure(f"wire: a stream, {what}, {name}", unit / median, "/s", base / median, target, "direct")


def _at_once(servers: dict[str, Server]) -> Iterator[Figure]:
    """20 conversations at once, each with ten calls of 800 kB that are answered by 200 kB of events."""
    base = 0.0
    for name, server in servers.items():
        began = time.perf_counter()
        firsts = sorted(asyncio.run(_conversations(server, CONVERSATIONS, CALLS, PROMPT)))
        total = time.perf_counter() - began
        base = base or total
        what = f"wire: 20 conversations at once, {name}"
        yield Figure(f"{what}, calls a second", CONVERSATIONS * CALLS / total, "/s", base / total, "", "direct")
        yield Figure(f"{what}, first byte, p50", 1000 * firsts[len(firsts) // 2], "ms")


def _memory(rival: Rival, folder: Path) -> Iterator[Figure]:
    """Of all its processes, the most that each has had."""
    target = "150 MB" if rival.name == "ctxvc" else ""
    with _upstream() as upstream, started(rival, upstream.port, folder) as server:
        for what, count, calls in (("a conversation of", 1, CALLS), ("20 at once of", CONVERSATIONS, 2)):
            with suppress(ConnectionError):  # headroom ends some of these
                asyncio.run(_conversations(server, count, calls, LARGE_PROMPT))
            yield Figure(f"wire: memory, {what} 4 MB, {rival.name}", _peak(server.pid), "MB", None, target)


def _disk(folder: Path) -> Iterator[Figure]:
    """A store of recorded runs, each call with its whole history, beside the text that is in them once."""
    runs = sorted(Path(os.environ.get("CTXVC_TEST_DATA", ""), "trajectories").glob("*.jsonl.gz"))[:RUNS]
    if not runs:
        return
    sent, bodies, texts = 0, 0, 0
    with create(folder / "disk" / ".ctxvc") as store:
        for run in runs:
            recorder = Recorder(lambda: Store(store.path), session=run.name.partition(".")[0])
            last = None
            for last in of_trajectory(run):
                recorder.record(last)
                sent, bodies = sent + 1, bodies + len(last.body)
            recorder.close()
            texts += last.size if last else 0
        gc.gc(store)
        size = gc.sizes(store).packed
    what = f"wire: disk after gc, {sent} calls with {bodies / 1e6:.0f} MB of bodies"
    yield Figure(what, size / 1e6, "MB", size / texts, "<= 1.2 x", "distinct text")


def _starts(rival: Rival, folder: Path) -> Iterator[Figure]:
    times = []
    with _upstream() as upstream:
        for _ in range(STARTS):
            began = time.perf_counter()
            with started(rival, upstream.port, folder):
                times.append(time.perf_counter() - began)
    target = "500 ms" if rival.name == "ctxvc" else ""
    yield Figure(f"wire: start, {rival.name}", 1000 * statistics.median(times), "ms", None, target)


# --- the parts


def _text(events: int) -> str:
    """What a model says in a stream of so many bytes of events."""
    return TEXT * BLOCK * -(-events // (BLOCK * len(CHUNK))) if events else "a"


def _body(size: int, number: int, *, conversation: int = 0, events: int = 0) -> bytes:
    """The request with that number in a conversation, which begins with about `size` bytes: it goes on from the one
    before, whose answer was a stream of so many bytes of events, or no stream.
    """
    first = {"role": "user", "content": f"conversation {conversation}"}
    turns = [{"role": "assistant", "content": "said " * 400}, {"role": "user", "content": "word " * 400}]
    messages = [first, *turns * max(size // 4200, 1)]
    for before in range(number):
        said = {"role": "assistant", "content": _text(max(events, 0))}
        messages += [said, {"role": "user", "content": f"number {before}"}]
    prompt = {"model": "claude-opus-5-5", "max_tokens": 100, "stream": events != 0, "messages": messages}
    return json.dumps(prompt).encode()


def _head(server: Server, body: bytes, events: int) -> bytes:
    lines = [
        f"POST {server.path}/v1/messages HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "content-type: application/json",
        "x-api-key: sk-test",
        "anthropic-version: 2023-06-01",
        f"{EVENTS}: {events}",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class _Client:
    """A connection that stays open."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connect()

    def _connect(self) -> None:
        self._connection = socket.create_connection(("127.0.0.1", self._server.port), timeout=120)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, body: bytes, events: int = 0) -> tuple[float, float]:
        """Seconds to the first byte of the answer, and to its last."""
        began = time.perf_counter()
        self._connection.sendall(_head(self._server, body, events) + body)
        data = self._connection.recv(1 << 20)
        if not data:  # some proxies end a connection after an answer
            self._connect()
            return self.call(body, events)
        first = time.perf_counter() - began
        while not _ended(data):
            piece = self._connection.recv(1 << 20)
            if not piece:
                raise ConnectionError(data[-200:])
            data = (data + piece) if len(data) < 4096 else data[:2048] + piece[-2048:]
        return first, time.perf_counter() - began


def _ended(data: bytes) -> bool:
    """Whether an answer is over, of which the beginning and the end are there."""
    if b"\r\n\r\n" not in data:
        return False
    if length := re.search(rb"(?i)content-length: ([0-9]+)", data[:2048]):
        return len(data.partition(b"\r\n\r\n")[2]) >= int(length[1])
    return data.endswith(b"0\r\n\r\n")


async def _conversations(server: Server, count: int, calls: int, size: int) -> list[float]:
    """Seconds to the first byte, of each call."""

    async def conversation(number: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
        firsts = []
        for call in range(calls):
            body = _body(size, call, conversation=number, events=ANSWER)
            began = time.perf_counter()
            writer.write(_head(server, body, ANSWER) + body)
            data = await reader.read(1 << 16)
            firsts.append(time.perf_counter() - began)
            while not _ended(data):
                piece = await reader.read(1 << 20)
                if not piece:
                    raise ConnectionError(data[-200:])
                data = (data + piece) if len(data) < 4096 else data[:2048] + piece[-2048:]
        writer.close()
        return firsts

    return [*chain.from_iterable(await asyncio.gather(*map(conversation, range(count))))]


def _processor(pid: int) -> float:
    """Seconds of processor time that a process and its children have had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(_processor, _children(pid)))


def _peak(pid: int) -> float:
    """The most memory that a process and its children have had, in MB."""
    match = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1000 + sum(map(_peak, _children(pid))) if match else 0.0


def _children(pid: int) -> list[int]:
    """The processes that a process, in any of its threads, has started."""
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for text in texts for child in text.split()]


@contextmanager
def _upstream() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.wire"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield Server(int(process.stdout.readline()), "", process.pid)
        finally:
            process.terminate()


@contextmanager
def started(rival: Rival, upstream: int, folder: Path) -> Iterator[Server]:
    """A proxy that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = rival.command(port, upstream)
    places = os.pathsep.join([os.environ.get("CTXVC_RIVALS", ""), os.environ["PATH"]])
    program = shutil.which(command[0], path=places) or command[0]
    own = {"PYTHONPATH": str(Path.cwd()), "CTXVC_STORE": str(folder / "store"), "HOME": str(folder)}
    env = {**os.environ, **rival.env(upstream), **own}
    with (folder / "output").open("wb") as errors, subprocess.Popen(
        [program, *command[1:]], cwd=folder, env=env, stdout=subprocess.PIPE if rival.name == "ctxvc" else errors,
        stderr=errors, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            path = ""
            if process.stdout:
                path = "/" + process.stdout.readline().decode().strip().rpartition("/")[2]
            else:
                _wait(port, process, folder)
            yield Server(port, path, process.pid)
        finally:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(10)
            except ProcessLookupError:
                pass  # it ended by itself, which `_wait` reports
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError((folder / "output").read_text()[-2000:])


# --- the upstream


async def _serve() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: ([0-9]+)", head)
                await reader.readexactly(int(size[1]) if size else 0)
                events = re.search(rb"(?i)x-bytes: (-?[0-9]+)", head)
                left = int(events[1]) if events else 0
                if not left:
                    headers = b"Content-Type: application/json\r\nContent-Length: %d" % len(MESSAGE)
                    writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (headers, MESSAGE))
                    continue
                headers = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
                writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (headers, BEGIN))
                for _ in range(-left):
                    writer.write(CHUNK)
                    await asyncio.sleep(PAUSE)
                while left > 0:
                    writer.write(CHUNK * BLOCK)
                    left -= BLOCK * len(CHUNK)
                    await writer.drain()
                writer.write(END)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
