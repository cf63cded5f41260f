"""`python -m tests.benchmarks.wire_managed RESULTS RECORDING…`: managed prompts on the wire, beside `ctxvc replay`.

Each recording is sent as a client sends it, the whole history each time, in each form and at each budget, and RESULTS
gets a line of JSON for each of these runs (one that is there is not done again). `--table` prints the sums of a file.

A run is done twice. *Counted alike*: the model's provider reports nothing and the session counts as a replay does, with
the recorded times; so what leaves when can be compared with a replay. *As a provider counts*: its usage is that of
`tests.messages_api`, or that of all strings in a body, and the session learns from it.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from ctxvc import policies
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE
from ctxvc.core.view.dashboard import is_protocol
from ctxvc.forms.form import of
from ctxvc.replay.conversation import Call, Conversation, conversations, timestamp
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.measures.cost import CacheSimulation
from ctxvc.session.session import Session
from ctxvc.store.store import Store, create
from ctxvc.tokens import calibration
from ctxvc.tokens.meter import Meter
from ctxvc.wire import managed
from ctxvc.wire.exchange import POLICY, Managed, Management, Requested
from ctxvc.wire.managed import ManagedConversation
from ctxvc.wire.sessions import Sessions
from tests.messages_api.cache import Cache
from tests.messages_api.models import MODELS
from tests.wire.clients import FORMS, MODEL, Anthropic, Blocks, Client, Wire, tokens_of, turns

BUDGETS = (32_000, 80_000)
#: The name of the session, here and in a replay: dashboards show it.
NAME = "session"
#: Prompts of a client by size: so many tokens at most.
SIZES = (50_000, 100_000, 200_000, 1 << 40)
_ADDRESS = re.compile(r"\b[BG][0-9]+\b")


class Turn(NamedTuple):
    """What a client sends before a call, and the reply; with the recorded times of both."""

    incoming: Sequence[Blocks]
    reply: Blocks
    at: float
    replied: float


class Recorded(NamedTuple):
    """A recording as a client of a form has it: its frame, its turns, and the conversation that a replay runs."""

    tools: Sequence[Mapping[str, Any]]
    system: str
    turns: Sequence[Turn]
    conversation: Conversation


def client_of(form: str, recorded: Recorded) -> Client:
    return FORMS[form](recorded.tools, recorded.system)


# --- a recording as a client has it


def recorded_as(conversation: Conversation, form: str) -> Recorded:
    """The recording in this form. The conversation has what its reader makes of the client's messages."""
    own = list(_timed(conversation))
    system = (
        conversation.system if isinstance(conversation.system, str) and conversation.system else "You are an agent."
    )
    frame = Recorded(list(_tools(conversation, own)), system, own, conversation)
    client = client_of(form, frame)
    module = of(client.path)
    assert module is not None
    reader = module.reader()
    calls = []
    for turn in own:
        seen = len(client.messages)
        for content in turn.incoming:
            client.incoming(content)
        before = [msgspec.structs.replace(one, time=_iso(turn.at)) for one in reader.messages(client.messages[seen:])]
        body, seen = client.body(), len(client.messages)
        client.took(client.answer(body, turn.reply))
        replies = reader.messages(client.messages[seen:])
        parts = tuple(part for message in replies for part in message.parts)
        reply = Message(role="assistant", parts=parts, time=_iso(turn.replied))
        calls.append(Call(tuple(_at_once(before)), reply))
    prompt = module.prompt(client.body())
    replayed = msgspec.structs.replace(
        conversation, calls=tuple(calls), system=prompt.system, tools=list(prompt.tools), compactions=(), reported=()
    )
    return frame._replace(conversation=replayed)


def _at_once(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, with results that follow each other in one: a session makes room for what is new at once."""
    for are_results, group in groupby(messages, lambda one: all(part.kind == "tool_result" for part in one.parts)):
        own = list(group)
        if are_results:
            own = [msgspec.structs.replace(own[0], parts=tuple(part for one in own for part in one.parts))]
        yield from own


def _timed(conversation: Conversation) -> Iterator[Turn]:
    """The turns, with times that never go back; a message without one has that of the message before."""
    times = []
    now = 0.0
    for call in conversation.calls:
        before = [timestamp(message.time) for message in call.before]
        at = max([now, *(one for one in before if one is not None)])
        now = max(at, timestamp(call.reply.time) or at)
        times.append((at, now))
    for incoming, reply, number in turns(conversation):
        yield Turn(incoming, reply, *times[number])


def _tools(conversation: Conversation, own: Sequence[Turn]) -> Iterator[Mapping[str, Any]]:
    """The recorded tools, and one without a schema for each that is called and was not recorded."""
    names = set()
    for tool in conversation.tools if isinstance(conversation.tools, list) else ():
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        schema = inner.get("input_schema") or inner.get("parameters")
        if isinstance(inner.get("name"), str) and isinstance(schema, Mapping) and inner["name"] not in names:
            names.add(inner["name"])
            yield {"name": inner["name"], "description": str(inner.get("description", "")), "input_schema": schema}
    for turn in own:
        for block in turn.reply:
            if block["type"] == "tool_use" and block["name"] not in names:
                names.add(block["name"])
                yield {"name": block["name"], "input_schema": {"type": "object"}}
    if not names:
        yield {"name": "shell", "input_schema": {"type": "object"}}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


# --- what left, and when


def is_ours(row: Row) -> bool:
    return row.kind in ASIDE or is_protocol(row)


def left(ledger: Ledger) -> dict[int, tuple[str, str]]:
    """What stands otherwise than it came: the number of a block of the client's → its state and its group."""
    own = (row for row in ledger.rows() if not is_ours(row))
    return {number: (row.state, row.group) for number, row in enumerate(own) if not row.present or row.state != "in"}


class Replayed(NamedTuple):
    """A replay: what had left at each call, the tokens of each prompt, and the shares of tokens read from a cache."""

    left: list[dict[int, tuple[str, str]]]
    used: list[int]
    cached: float


def replayed(conversation: Conversation, budget: int, *, model: str = "", tags: bool = True) -> Replayed:
    """The replay of a conversation; without `tags`, as the wire has none."""
    with patch.object(Session, "begin"):  # what it says depends on the tags
        session = new_session(conversation, policies.parse(POLICY), budget, meter=Meter(None))
    session.shows_tags = tags
    session.begin()
    if model:
        session.set(model=model, calibration=(1000, 0))
    prompts, cache = Prompts(session), CacheSimulation()
    gone, used, cached = [], [], 0
    for driven, call in zip(drive(conversation, session, prompts), conversation.calls, strict=True):
        gone.append(left(session.ledger()))
        used.append(driven.prompt.tokens if driven.prompt else 0)
        if driven.prompt:
            cached += cache.send(prompts.keys, prompts.sizes, timestamp(call.reply.time))
    return Replayed(gone, used, cached / max(1, sum(used)))


# --- the wire


class Clock:
    """The recorded time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(Sessions):
    """Sessions that note how long each request took, in seconds of wall clock and of the thread."""

    def request(self, requested: Requested) -> Managed:
        wall, thread = time.perf_counter(), time.thread_time()
        try:
            return super().request(requested)
        finally:
            self.took = time.perf_counter() - wall, time.thread_time() - thread

    @property
    def conversation(self) -> ManagedConversation:
        (session,) = self._open.values()
        assert isinstance(session.front, ManagedConversation)
        return session.front


class Upstream(Wire):
    """The model's side: what it was sent, counted and checked; `usage` says whether its answers report tokens."""

    def __init__(self, client: Client, sessions: Timed, clock: Clock, *, usage: bool) -> None:
        super().__init__(client, sessions)
        self.timed, self.clock, self.usage = sessions, clock, usage
        self.replied = 0.0
        self.sizes: list[int] = []  # tokens of each prompt, as the provider counts
        self.invalid: list[str] = []
        self.cached = 0
        self.named: set[str] = set()  # blocks that left, and whose stub has stood in a prompt
        self.client_problems: list[str] = []
        self.times: list[tuple[int, float, float]] = []  # tokens of the client's, wall, thread
        self.left: list[dict[int, tuple[str, str]]] = []
        self.used: list[int] = []
        self._simulation, self._cache = CacheSimulation(), Cache()
        self._pieces: dict[str, int] = {}

    def _answered(self, body: bytes, sent: bytes, content: Blocks) -> bytes:
        own = self.timed.conversation
        self.left.append(left(own.session.ledger()))
        self.used.append(own.session.view().counted)
        self.times.append((self._common(body)[1], *self.timed.took))
        self.clock.now = self.replied
        addresses = set(_ADDRESS.findall(sent.decode("utf-8", "surrogatepass")))
        ledger = own.session.ledger()
        gone = (row for row in ledger.rows() if not row.present and row.id not in self.named)
        self.named.update(row.id for row in gone if addresses & {row.id, *_groups(ledger, row)})
        if isinstance(self.client, Anthropic):
            return self._by_the_judge(body, sent, content)
        keys, tokens = self._common(sent)
        self._note(self.client.problems(sent), body)
        self.sizes.append(tokens)
        sizes = [self._pieces[key] for key in keys]
        self.cached += self._simulation.send(keys, sizes, self.clock.now)
        answer = self.client.answer(sent, content)
        return answer if self.usage else _without_usage(answer)

    def _note(self, problems: Sequence[str], body: bytes) -> None:
        """Takes in what is wrong with a body that was sent, unless the client's own is as wrong: the recording is."""
        if problems:
            own = self.client.problems(body)
            (self.client_problems if own else self.invalid).extend(problems)

    def _by_the_judge(self, body: bytes, sent: bytes, content: Blocks) -> bytes:
        assert isinstance(self.client, Anthropic)
        request = json.loads(sent)
        ruling = self.client.judge.rule(request)
        self._note(ruling.problems, body)
        self.sizes.append(ruling.tokens)
        if ruling.positions:
            self.cached += self._cache.charge(ruling.positions, MODELS[MODEL], self.clock.now).read
        answer = self.client.judge.answer(request, ruling, content)
        return json.dumps(answer if self.usage else {**answer, "usage": {}}).encode()

    def _common(self, body: bytes) -> tuple[list[str], int]:
        """The pieces of a body, cut at its messages, and their tokens."""
        request = json.loads(body)
        name = next(name for name in ("messages", "input", "contents") if name in request)
        frame = {key: value for key, value in request.items() if key != name}
        keys = []
        for value in (frame, *request[name]):
            key = json.dumps(value)
            keys.append(key)
            if key not in self._pieces:
                self._pieces[key] = tokens_of(value)
        return keys, sum(self._pieces[key] for key in keys)


def _without_usage(answer: bytes) -> bytes:
    value = json.loads(answer)
    return json.dumps({name: item for name, item in value.items() if not name.startswith("usage")}).encode()


@contextmanager
def _alike(clock: Clock, *, counted: bool) -> Iterator[None]:
    """Sessions of the wire go by the recorded time, and count as a replay does if they are `counted` alike."""
    with patch.object(managed, "Session", partial(Session, now=clock)):
        if not counted:
            yield
            return
        with patch.object(calibration, "initial", lambda *_: calibration.Calibration()):
            yield


def sent(recorded: Recorded, form: str, budget: int, folder: Path, *, counted: bool) -> tuple[Upstream, dict[str, Any]]:
    """A recording, sent; with what was lost of it, by address."""
    clock = Clock()

    def store() -> Store:
        opened = Store(path) if (path := folder / ".ctxvc").exists() else create(path)
        if counted:
            opened.redaction.keep_exact(NAME)  # as in a replay
        return opened

    sessions = Timed(
        store, agent="agent", session=NAME, folder="/", management=Management(budget=budget, policy=POLICY)
    )
    wire = Upstream(client_of(form, recorded), sessions, clock, usage=not counted)
    with _alike(clock, counted=counted):
        for turn in recorded.turns:
            for content in turn.incoming:
                wire.client.incoming(content)
            clock.now, wire.replied = turn.at, turn.replied
            wire.client.took(wire.ask(turn.reply))
            wire.calls.clear()
        lost = _lost(wire, recorded.conversation)
        sessions.close()
    return wire, lost


def _lost(wire: Upstream, conversation: Conversation) -> dict[str, Any]:
    """Blocks that left: how many, how many without a stub now, which had an address in no prompt, and which are read
    with other bytes than the client's. Texts that follow one another in a reply of Gemini's are one block.
    """
    own = wire.timed.conversation
    session, ledger = own.session, own.session.ledger()
    messages = [message for call in conversation.calls for message in (*call.before, call.reply)]
    bodies = [part.body for message in own.stored.redacted_messages(messages) for part in message.parts]
    count, pruned, unnamed, differing = 0, 0, [], []
    rows = [row for row in ledger.rows() if not is_ours(row)]
    coming = iter(bodies)
    for row in rows:
        read = {one.id: data for one, data in session.recover_bytes(row.id)}.get(row.id, b"")
        body = next(coming, b"")
        while row.kind == "assistant" and len(body) < len(read) and read.startswith(body):
            body += next(coming, b"\0")
        if row.present:
            continue
        count += 1
        pruned += row.state == "pruned"
        if row.id not in wire.named:
            unnamed.append(f"{row.id} {row.kind} {row.state}")
        if read != body:
            differing.append(f"{row.id} {row.kind}")
    return {
        "left": count,
        "pruned": pruned,
        "unnamed": unnamed,
        "differing": differing,
        "blocks": [len(rows), len(bodies)],
    }


def _groups(ledger: Ledger, row: Row) -> Iterator[str]:
    """The groups that a block left with."""
    name = row.group
    while name and name in ledger.groups:
        yield name
        name = ledger.groups[name].group


# --- a run


def run(
    conversation: Conversation, recorded: Recorded, raw: Replayed, form: str, budget: int
) -> Iterator[dict[str, Any]]:
    """Both runs of a recording in a form at a budget."""
    module = of(client_of(form, recorded).path)
    assert module is not None
    model = {"anthropic": MODEL, "chat": "gpt-6", "responses": "gpt-6", "gemini": "gemini-4"}[form]
    alike = replayed(recorded.conversation, budget, model=model, tags=False)
    for counted in (True, False):
        with tempfile.TemporaryDirectory(prefix="ctxvc-wire-") as folder:
            began = time.perf_counter()
            wire, lost = sent(recorded, form, budget, Path(folder), counted=counted)
        yield {
            "file": conversation.file,
            "conversation": conversation.id,
            "form": form,
            "budget": budget,
            "counted": counted,
            "calls": len(wire.sizes),
            "failures": [f"{type(error).__name__}: {error}"[:300] for error in wire.failures],
            "invalid": [problem[:200] for problem in wire.invalid],
            "recorded_invalid": [problem[:200] for problem in wire.client_problems],
            "over": sum(size > budget for size in wire.sizes),
            "largest": max(wire.sizes, default=0),
            "client": max((size for size, _, _ in wire.times), default=0),
            "sent": sum(wire.sizes),
            **lost,
            "cached": wire.cached / max(1, sum(wire.sizes)),
            "replay": raw.cached,
            "alike": alike.cached,
            "first_difference": _difference(alike, wire) if counted else None,
            "times": [[size, round(wall * 1000, 2), round(thread * 1000, 2)] for size, wall, thread in wire.times],
            "seconds": round(time.perf_counter() - began, 1),
        }


def _difference(alike: Replayed, wire: Upstream) -> dict[str, Any] | None:
    """The first call at which not the same blocks had left as in the replay, and how many calls are like that."""
    pairs = list(zip(alike.left, wire.left, strict=False))
    numbers = [number for number, (before, now) in enumerate(pairs) if before != now]
    sizes = [n for n, (a, b) in enumerate(zip(alike.used, wire.used, strict=False)) if a != b]
    if not numbers and not sizes and len(alike.left) == len(wire.left):
        return None
    first = numbers[0] if numbers else -1
    before, now = pairs[first]
    return {
        "call": first,
        "calls": len(numbers),
        "lengths": [len(alike.left), len(wire.left)],
        "first_size": sizes[0] if sizes else -1,
        "sizes": [alike.used[sizes[0]], wire.used[sizes[0]]] if sizes else [],
        "replay": sorted(set(before.items()) - set(now.items()))[:3] if numbers else [],
        "wire": sorted(set(now.items()) - set(before.items()))[:3] if numbers else [],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("recordings", type=Path, nargs="*")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table(list(_results(asked.results)))))
        return
    done = Counter((own["conversation"], own["form"], own["budget"]) for own in _results(asked.results))
    for path in asked.recordings:
        for conversation in conversations(path):
            for budget in map(int, asked.budgets.split(",")):
                to_do = [form for form in asked.forms.split(",") if done[conversation.id, form, budget] < 2]
                raw = replayed(conversation, budget) if to_do else None
                for form in to_do:
                    assert raw
                    own = list(run(conversation, recorded_as(conversation, form), raw, form, budget))
                    with asked.results.open("a") as results:
                        results.writelines(json.dumps(one) + "\n" for one in own)
                    print(*map(_line, own), sep="\n", flush=True)


def _line(own: Mapping[str, Any]) -> str:
    counts = {name: len(own[name]) for name in ("failures", "invalid", "unnamed", "differing")}
    shares = [round(100 * own[name], 1) for name in ("cached", "replay", "alike")]
    names = ("file", "form", "budget", "counted", "calls", "over", "left", "seconds", "first_difference")
    return " ".join(f"{name} {own[name]}" for name in names) + f" {counts} {shares}"


def _results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- the table

COLUMNS = (
    "budget | form | recordings | calls | invalid | above the budget | failed | blocks that left | their stub, too "
    "| never an address | other bytes | cached, % | replay's, % | within a point | decided as replay"
)


def table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The figures of docs/benchmarks/wire.md, as tables."""
    for counted, title in ((True, "Counted alike"), (False, "As a provider counts")):
        yield f"\n{title}\n\n| {COLUMNS} |\n|{'---|' * (COLUMNS.count('|') + 1)}"
        for budget in sorted({own["budget"] for own in results}):
            for form in FORMS:
                rows = [
                    own for own in results if (own["counted"], own["budget"], own["form"]) == (counted, budget, form)
                ]
                if rows:
                    yield f"| {' | '.join(map(str, _cells(rows, budget, form, counted=counted)))} |"
    yield "\n| client's prompt, tokens | requests | p50, ms | p90 | max | processor, p50 | p90 |"
    yield f"|{'---|' * 7}"
    times = [one for own in results for one in own["times"]]
    for low, high in zip((0, *SIZES), SIZES, strict=False):
        if own := [one for one in times if low < one[0] <= high]:
            wall, thread = sorted(one[1] for one in own), sorted(one[2] for one in own)
            figures = (_at(wall, 50), _at(wall, 90), wall[-1], _at(thread, 50), _at(thread, 90))
            most = min(high, max(one[0] for one in own))
            yield f"| {low:,} to {most:,} | {len(own):,} | {' | '.join(f'{one:.0f}' for one in figures)} |"


def _cells(rows: Sequence[Mapping[str, Any]], budget: int, form: str, *, counted: bool) -> Iterable[object]:
    def total(name: str) -> int:
        return sum(own[name] if isinstance(own[name], int) else len(own[name]) for own in rows)

    def share(name: str) -> float:
        return 100 * sum(own[name] * own["sent"] for own in rows) / sum(own["sent"] for own in rows)

    near = sum(abs(own["cached"] - own["replay"]) <= 0.01 for own in rows)
    alike = sum(own["first_difference"] is None for own in rows)
    yield from (
        f"{budget // 1000}k",
        form,
        len(rows),
        f"{total('calls'):,}",
        total("invalid"),
        "" if counted else total("over"),
    )
    yield from (total("failures"), f"{total('left'):,}", f"{total('pruned'):,}", total("unnamed"), total("differing"))
    yield from (f"{share('cached'):.1f}", f"{share('replay'):.1f}", f"{near} of {len(rows)}")
    yield f"{alike} of {len(rows)}" if counted else ""


def _at(values: Sequence[float], percent: int) -> float:
    return values[min(len(values) - 1, len(values) * percent // 100)]


if __name__ == "__main__":
    main()
