"""`python -m tests.benchmarks.rivals`: other programs that keep an agent's messages, beside ours, in one run.

Extra `bench` installs them. Each gets messages of 2 kB one at a time, as a conversation comes in, and each is asked
what a person would ask. A program that is not installed is left out, and that is said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from tests.benchmarks.measuring import machine, seconds

MESSAGES, BYTES = 1_000, 2_000
WRITERS, EACH = 4, 100
KILLS = 20
#: A word of one message alone.
NEEDLE = "needle-417"


def text(number: int) -> str:
    """A message of 2 kB, as text is: it has words, and no two are the same."""
    words = random.Random(number)
    body = " ".join(f"{words.choice(WORDS)}{words.randrange(100)}" for _ in range(BYTES // 8))
    return f"message {number} {NEEDLE if number == MESSAGES // 2 else ''} {body}"[:BYTES]


WORDS = ("the", "error", "in", "store", "file", "was", "read", "again", "by", "test", "line", "value")


class Rival(ABC):
    """A way to keep a conversation in a folder. Opened anew by each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def append(self, number: int, content: str) -> None:
        """Keeps one message; returns once it is kept as well as the program keeps it."""

    @abstractmethod
    def messages(self) -> list[str]:
        """All messages."""

    def earlier(self, count: int) -> list[str]:
        """The messages of an earlier moment, when there were `count`."""
        return self.messages()[:count]

    def search(self, word: str) -> int:
        """How many messages have the word."""
        return sum(word in message for message in self.messages())

    def close(self) -> None:  # noqa: B027 - most have nothing under way
        """Ends what is under way."""


class JsonLines(Rival):
    """A line a message, on the disk when it is kept."""

    durable = True

    def append(self, number: int, content: str) -> None:
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps({"role": role(number), "content": content}) + "\n")
            file.flush()
            if self.durable:
                os.fdatasync(file.fileno())

    def messages(self) -> list[str]:
        return [json.loads(line)["content"] for line in (self.folder / "log.jsonl").read_text().splitlines()]


class JsonLinesUnsynced(JsonLines):
    """The same, without waiting for the disk."""

    durable = False


class SqliteSession(Rival):
    """The OpenAI Agents SDK's SQLiteSession."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from agents import SQLiteSession

        self._session = SQLiteSession("bench", folder / "session.db")
        self._loop = asyncio.new_event_loop()

    def append(self, number: int, content: str) -> None:
        self._loop.run_until_complete(self._session.add_items([{"role": role(number), "content": content}]))  # type: ignore[list-item,misc]

    def messages(self) -> list[str]:
        items: Any = self._loop.run_until_complete(self._session.get_items())
        return [item["content"] for item in items]

    def close(self) -> None:
        self._session.close()
        self._loop.close()


class LangGraph(Rival):
    """LangGraph with its SQLite checkpointer: a state of messages, updated at each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import START, MessagesState, StateGraph

        self._connection = sqlite3.connect(folder / "graph.db", check_same_thread=False, timeout=60)
        graph: Any = StateGraph(MessagesState)
        graph.add_node("agent", lambda _: {})
        graph.add_edge(START, "agent")
        self._graph = graph.compile(checkpointer=SqliteSaver(self._connection))
        self._config: Any = {"configurable": {"thread_id": "bench"}}

    def append(self, number: int, content: str) -> None:
        self._graph.update_state(self._config, {"messages": [(role(number), content)]})

    def messages(self) -> list[str]:
        return [message.content for message in self._graph.get_state(self._config).values.get("messages", [])]

    def earlier(self, count: int) -> list[str]:
        for state in self._graph.get_state_history(self._config):
            kept = state.values.get("messages", [])
            if len(kept) == count:
                return [message.content for message in kept]
        return []

    def close(self) -> None:
        self._connection.close()


class Memgit(Rival):
    """memgit: a memory a message, and a checkpoint for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from memgit.repo import Repository

        self._repository = Repository.find(folder) or Repository.init(folder)

    def append(self, number: int, content: str) -> None:
        from memgit.models import Mnemonic

        now = datetime.now(timezone.utc)
        slug = f"m{number:07}"
        self._repository.add(Mnemonic(type_code="cn", slug=slug, timestamp=now, rule=slug, body=content))
        self._repository.commit(f"message {number}")

    def messages(self) -> list[str]:
        return [memory.body or "" for memory in sorted(self._repository.list(), key=lambda memory: memory.slug)]

    def earlier(self, count: int) -> list[str]:
        checkpoint = self._repository.log(limit=1, skip=max(len(self._repository.list()) - count, 0))[0]
        states = self._repository.diff_full(checkpoint.sha, None)
        return [then.body or "" for _, _, then, _ in states if then is not None]


class Ctxvc(Rival):
    """ctxvc, as its own loop uses it: a managed session, each message admitted under a budget.

    Texts are counted where something depends on it, such as a request: see `CtxvcCounted`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from ctxvc.session.session import Session

        self._session = Session.open(folder / ".ctxvc", "bench", budget=2_000_000)
        self._store = self._session.store

    def append(self, number: int, content: str) -> None:
        self._session.append(message(number, content))

    def messages(self) -> list[str]:
        stored = self._session.stored
        return [stored.body(row).decode() for row in stored.ledger().rows()]

    def earlier(self, count: int) -> list[str]:
        """As the commit of that moment has it, whatever left the prompt since."""
        from ctxvc.store.read import revision

        then = revision.resolve(self._store, self._session.stored, f"step:{count // 2}")
        return [then.bodies.body(row).decode() for row in then.ledger.rows()]

    def search(self, word: str) -> int:
        from ctxvc.core import patterns
        from ctxvc.inspection import grep
        from ctxvc.inspection.bodies import bodies, read

        stored = self._session.stored
        chosen = bodies([(stored, ["main"])], lambda _: True)
        pattern = patterns.compiled(word, fixed=True).until(60, time.monotonic)
        return sum(1 for _ in grep.Search(read(self._store, chosen), pattern))

    def close(self) -> None:
        self._session.close()


class CtxvcCounted(Ctxvc):
    """The same, where each reply is asked for: all tokens of the prompt are counted before it."""

    def append(self, number: int, content: str) -> None:
        super().append(number, content)
        if number % 2 == 0:
            _ = self._session.view().used


class CtxvcRecorded(Ctxvc):
    """ctxvc, as recorders use it: no budget, nothing counted."""

    def append(self, number: int, content: str) -> None:
        self._session.stored.append(message(number, content))

    def close(self) -> None:
        self._session.stored.close()


RIVALS: dict[str, type[Rival]] = {
    "JSON Lines, not synced": JsonLinesUnsynced,
    "JSON Lines + fdatasync": JsonLines,
    "OpenAI Agents SQLiteSession": SqliteSession,
    "ctxvc, recorded": CtxvcRecorded,
    "ctxvc, managed": Ctxvc,
    "ctxvc, managed and counted": CtxvcCounted,
    "LangGraph, SQLite": LangGraph,
    "memgit": Memgit,
}


def role(number: int) -> str:
    return "assistant" if number % 2 else "user"


def message(number: int, content: str) -> Message:
    """One message as ctxvc has it."""
    part = text_part(content, "assistant", "model") if number % 2 else text_part(content, "user", "human")
    return Message(role="assistant" if number % 2 else "user", parts=(part,))


# --- measures


def append_times(names: list[str], folder: Path) -> dict[str, list[float]]:
    """name → seconds of each append, the last of them with the close; the rivals take turns."""
    rivals = {name: RIVALS[name](_made(folder / name)) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(MESSAGES):
        content = text(number)
        for name, rival in rivals.items():
            start = time.perf_counter()
            rival.append(number, content)
            times[name].append(time.perf_counter() - start)
    for name, rival in rivals.items():
        times[name][-1] += seconds(rival.close)
    return times


def disk(folder: Path) -> int:
    """Bytes that files below a folder take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def kept_of_writers(name: str, folder: Path) -> int:
    """How many messages of four processes that write at once are there afterwards."""
    RIVALS[name](_made(folder)).close()
    command = [sys.executable, "-m", "tests.benchmarks.rivals", "--write", name, "--into", str(folder)]
    running = [
        subprocess.Popen(
            [*command, "--first", str(writer * 1_000)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        for writer in range(WRITERS)
    ]
    for process in running:
        process.wait()
    return len(_distinct(RIVALS[name](folder).messages()))


def kept_after_kills(name: str, folder: Path) -> tuple[int, int]:
    """How many acknowledged messages are there after a process was killed again and again, and how many there were."""
    acknowledged: set[int] = set()
    RIVALS[name](_made(folder)).close()
    for kill in range(KILLS):
        command = [sys.executable, "-m", "tests.benchmarks.rivals", "--write", name, "--into", str(folder)]
        process = subprocess.Popen([*command, "--first", str(kill * 1_000), "--slow"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        assert process.stdout is not None
        wanted = random.Random(kill).randrange(2, 30)
        for line in process.stdout:
            acknowledged.add(int(line))
            wanted -= 1
            if wanted == 0:
                process.send_signal(signal.SIGKILL)
        process.wait()
    return len(acknowledged & _distinct(RIVALS[name](folder).messages())), len(acknowledged)


def _distinct(messages: list[str]) -> set[int]:
    return {int(message.split()[1]) for message in messages}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(name: str, folder: Path, first: int, *, slow: bool) -> None:
    rival = RIVALS[name](folder)
    for number in range(first, first + EACH):
        rival.append(number, text(number))
        print(number, flush=True)
        if slow:
            time.sleep(0.002)
    rival.close()


def installed() -> Iterator[str]:
    """The rivals that can be run here."""
    for name, rival in RIVALS.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                rival(Path(folder)).close()
            except ImportError as error:
                print(f"left out: {name}: {error}; `pip install 'ctxvc[bench]'`", file=sys.stderr)
                continue
        yield name


def table(names: list[str], folder: Path) -> Iterator[str]:
    """The rows of the table in docs/comparison.md, with all columns."""
    times = append_times(names, folder / "appends")
    base = statistics.mean(times["OpenAI Agents SQLiteSession"]) if "OpenAI Agents SQLiteSession" in times else 0.0
    raw = sum(len(text(number).encode()) for number in range(MESSAGES))
    columns = ("append, mean ms", "median", "to SQLiteSession", "disk / text", "kept of 400", "kept after kills",
               "earlier, ms", "search, ms")  # fmt: skip
    yield f"| | {' | '.join(columns)} |"
    yield f"|---{'|---' * len(columns)}|"
    for name in names:
        kept, acknowledged = kept_after_kills(name, folder / "kills" / name)
        rival = RIVALS[name](folder / "appends" / name)
        earlier = _answered(partial(rival.earlier, MESSAGES // 2), lambda messages: len(messages) == MESSAGES // 2)
        search = _answered(partial(rival.search, NEEDLE), lambda count: count == 1)
        rival.close()
        mean, median = statistics.mean(times[name]) * 1e3, statistics.median(times[name]) * 1e3
        ratio = f"{mean / 1e3 / base:.2f}" if base else ""
        size = disk(folder / "appends" / name) / raw
        writers = kept_of_writers(name, folder / "writers" / name)
        cells = (
            f"{mean:.2f}",
            f"{median:.2f}",
            ratio,
            f"{size:.1f}",
            str(writers),
            f"{kept} of {acknowledged}",
            earlier,
            search,
        )
        yield f"| {name} | {' | '.join(cells)} |"


def _answered(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> str:
    """The time of a right answer in ms; `wrong` for another."""
    answers: list[Any] = []
    took = seconds(lambda: answers.append(ask()))
    return f"{took * 1e3:.1f}" if is_right(answers[0]) else "wrong"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        _write(asked.write, asked.into, asked.first, slow=asked.slow)
        return
    print(machine(), "\n")
    with tempfile.TemporaryDirectory(prefix="ctxvc-rivals-") as folder:
        for line in table(list(installed()), Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
