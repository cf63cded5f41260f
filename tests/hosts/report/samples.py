"""Sessions as the page reads them, made up in any size, without a store behind them."""

from __future__ import annotations

import base64
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ctxvc.report import data
from ctxvc.report.document import document

_STATES = ["visible", "pinned", "masked", "stub", "gone", "deleted"]
_PARTS = {
    "user": "you",
    "assistant": "answers",
    "thinking": "thinking",
    "tool_use": "calls",
    "tool_result": "results",
    "stub": "stubs",
}
_CHUNK = 65536
#: A PNG of one pixel.
_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_NO_STORY: Mapping[str, Any] = {"turns": [], "files": [], "tool_calls": [], "pictures": []}
_OF: Mapping[str, type] = {"session": data.Session, "replay": data.Replay, "stats": data.Stats}


def session(
    *, calls: int = 60, budget: int = 30_000, seed: int = 7, texts: Sequence[str] = (), label: str = "go test ./…"
) -> Mapping[str, Any]:
    """A session of `calls` model calls that is cut back to its budget by turns; `texts` are the first bodies."""
    rng = random.Random(seed)
    made = _Blocks(texts, label, rng)
    deltas: list[list[Any]] = []
    totals: list[int] = []
    unmanaged: list[int] = []
    pieces: list[Mapping[str, Any]] = []

    def piece(**fields: Any) -> int:
        pieces.append(fields)
        return len(pieces) - 1

    by_part: dict[str, list[int]] = {part: [] for part in _PARTS.values()}
    marks: list[Mapping[str, Any]] = []
    causes: list[Mapping[str, Any]] = []
    lives: list[Mapping[str, Any]] = []
    prompt: list[int] = []
    everything = 0
    for call in range(calls):
        splices: list[Any] = []
        new = made.step(call)
        everything += sum(made.tokens[b] for b in new)
        if sum(made.size(b) for b in prompt) + sum(made.tokens[b] for b in new) > budget:
            for at, block in enumerate(prompt):
                if made.kinds[block] == "tool_result" and made.state[block] == 0:
                    made.change(block, call, 3)
                    splices.append((at, 1, [piece(**_stub(made, block))]))
                    lives.append(_life(causes, block, made.ids[block], call, "archive"))
                if sum(made.size(b) for b in prompt) < budget // 2:
                    break
            marks.append(_mark(call, "compaction", f"archive oldest results of {call} calls"))
        elif call % 17 == 16:
            away = [at for at, b in enumerate(prompt) if made.state[b] == 3]
            if away:
                block = prompt[away[0]]
                made.change(block, call, 0)
                made.reads[block].append(call)
                splices.append((away[0], 1, [piece(**made.piece(block))]))
                lives.append(_life(causes, block, made.ids[block], call, "restore"))
                marks.append(_mark(call, "recover", f"recover {made.ids[block]}"))
        splices.append((len(prompt), 0, [piece(**made.piece(b)) for b in new]))
        prompt += new
        deltas.append(splices)
        sizes = dict.fromkeys(_PARTS.values(), 0)
        for block in prompt:
            sizes[_PARTS[made.shown(block)]] += made.size(block)
        for part, size in sizes.items():
            by_part[part].append(size)
        totals.append(sum(made.size(b) for b in prompt))
        unmanaged.append(everything)
    made.end(calls)
    return {
        "schema": "ctxvc.page/2",
        "kind": "session",
        "title": "Fix the failing tests",
        "session": "made-up/main",
        "model": "claude-opus-4-5",
        "budget": budget,
        "window": budget,
        "command": "ctxvc report",
        "cost_reason": "",
        "made": "2026-11-23T10:00:00Z",
        "version": "0.1.0",
        "verdict": _verdict(calls, totals, lives, marks),
        "states": _STATES,
        "calls": _calls(calls, totals, unmanaged, by_part),
        "marks": marks,
        "blocks": made.columns(),
        "causes": causes,
        "lives": lives,
        "prompts": {"pieces": pieces, "deltas": deltas},
        "scopes": [
            _scope("main", -1, range(calls), totals, []),
            _scope("fix-auth", 0, range(calls // 3, calls // 2), totals, [_note(calls // 2)]),
        ],
        **made.story(calls),
        "bodies": made.bodies(),
    }


def many_runs(*, rows: int = 500, calls: int = 20_000) -> Mapping[str, Any]:
    """A session of few blocks that come and go all the time: the most that the lanes can have to draw."""
    rng = random.Random(3)
    small = session(calls=2)
    columns = {name: [values[0]] * rows for name, values in small["blocks"].items() if isinstance(values, list)}
    intervals = []
    for _ in range(rows):
        runs: list[int] = []
        while (at := runs[-2] if runs else 0) < calls:
            runs += [at, min(at + rng.randint(3, 40), calls), rng.choice([0, 1, 3, 4])]
        intervals.append(runs)
    reads = [sorted(rng.sample(range(calls), 40)) for _ in range(rows)]
    columns |= {"id": [f"B{row + 1}" for row in range(rows)], "intervals": intervals, "reads": reads}
    totals = [rng.randint(1000, 30_000) for _ in range(calls)]
    return {
        **small,
        "marks": [],
        "causes": [],
        "lives": [],
        **_NO_STORY,
        "calls": _calls(calls, totals, totals, {"results": totals}),
        "blocks": {"n": rows, **columns},
        "prompts": {"pieces": [], "deltas": [[]] * calls},
        "scopes": [_scope("main", -1, range(calls), totals, [])],
    }


def many_blocks(*, blocks: int = 100_000, a_call: int = 10, stay: int = 50) -> Mapping[str, Any]:
    """A session of so many blocks, of which each call brings some; they leave after they were in `stay` prompts."""
    small = session(calls=2)
    calls = blocks // a_call
    columns = {name: [values[0]] * blocks for name, values in small["blocks"].items() if isinstance(values, list)}
    came = [block // a_call for block in range(blocks)]
    columns |= {
        "id": [f"B{block + 1}" for block in range(blocks)],
        "label": [f"block {block + 1} of many" for block in range(blocks)],
        "intervals": [
            [at, at + stay, 0, at + stay, calls + 1, 4] if at + stay <= calls else [at, calls + 1, 0] for at in came
        ],
        "reads": [[] for _ in range(blocks)],
        "step": came,
        "turn": [at // 100 for at in came],
    }
    piece = {name: value for name, value in small["prompts"]["pieces"][0].items() if name != "block"}
    deltas = [
        [
            *([[0, a_call, []]] if call >= stay else []),
            [a_call * min(call, stay - 1), 0, list(range(call * a_call, (call + 1) * a_call))],
        ]
        for call in range(calls)
    ]
    totals = [a_call * min(call + 1, stay) * columns["tokens"][0] for call in range(calls)]
    return {
        **small,
        "marks": [],
        "causes": [],
        "lives": [],
        **_NO_STORY,
        "calls": _calls(calls, totals, totals, {"results": totals}),
        "blocks": {"n": blocks, **columns},
        "prompts": {"pieces": [{**piece, "block": block} for block in range(blocks)], "deltas": deltas},
        "scopes": [_scope("main", -1, range(calls), totals, [])],
    }


def stats() -> Mapping[str, Any]:
    """What sessions spent, by day, by model (under hostile names) and by file, of which not all are there."""
    counts = dict.fromkeys(("sessions", "turns", "calls", "fresh", "cache_read", "cache_written", "output"), 1200)
    rest = dict.fromkeys(("uncounted", "unpriced", "tool_calls", "failed", "compactions", "blocks_left", "reads"), 3)

    def item(name: str, cost: float | None) -> Mapping[str, Any]:
        return {**counts, **rest, "name": name, "cached": 0.3, "cost": cost, "waited_model": 3723, "waited_tools": None}

    names = {
        "day": [f"2026-03-{day:02}" for day in range(1, 31)],
        "model": ["<b>bold</b><script>alert(1)</script>", "a\u202eb", "x" * 200],
        "file": [f"src/a/very/long/path/of/a/file/number-{number}.py" for number in range(80)],
    }
    numbers = [{"name": name, "value": 1, "text": "1"} for name in ("cost", "prompts", "cached", "output")]
    return {
        "schema": "ctxvc.page/1",
        "kind": "stats",
        "title": "project",
        "made": "2026-03-01T12:00:00Z",
        "version": "1.0",
        "command": "ctxvc report --stats",
        "since": "",
        "verdict": {"sentence": "Much was done.", "numbers": numbers, "notes": ["a note"]},
        "cut": {"file": 17},
        "groups": {
            by: {"by": by, "items": [item(name, float(at)) for at, name in enumerate(own)], "total": item("", 9.5)}
            for by, own in names.items()
        },
    }


def replay() -> Mapping[str, Any]:
    """Results of three policies at three budgets, and an oracle."""
    points = [
        {
            "policy": policy,
            "budget": budget,
            "retention": [kept, kept - 0.02, min(kept + 0.02, 1)],
            "cost": None if policy == "oracle" else [cost, cost * 0.8, cost * 1.2],
            "cost_parts": {} if policy == "oracle" else {"prompts": cost * 0.9, "recovery": cost * 0.1},
            "valid": policy != "window",
            "runs": 3,
            "oracle": policy == "oracle",
        }
        for at, policy in enumerate(["clear", "default", "window", "oracle"])
        for budget, share in ((16_000, 0.2), (32_000, 0.4), (80_000, 0.7))
        for kept, cost in [(0.85 + 0.03 * at + share / 20, share * (1 + at / 5))]
    ]
    row = {"a": "default", "b": "clear", "budget": 16_000, "recording": "one", "step": 84, "text": "Edit hooks.go"}
    return {
        "schema": "ctxvc.page/1",
        "kind": "replay",
        "title": "results.jsonl",
        "made": "2026-11-23T10:00:00Z",
        "version": "0.1.0",
        "recordings": 3,
        "verdict": {**session(calls=2)["verdict"], "sentence": "default at 32k keeps most for least."},
        "points": points,
        "baseline": "keep",
        "differences": [
            {**row, "what_a": "none", "what_b": "72 used again", "example": "hasEntireHooks, testing.T"},
            {**row, "budget": 32_000, "what_a": "one used again", "what_b": "none", "example": "<b>bold</b>"},
        ],
    }


def page(made: Mapping[str, Any]) -> bytes:
    """The page of a session that was made up; what is not of the page's own types is refused."""
    return document(msgspec.json.encode(msgspec.convert(made, _OF[made["kind"]])), title="A session")


class _Blocks:
    def __init__(self, texts: Sequence[str], label: str, rng: random.Random) -> None:
        self._texts, self._label, self._rng = list(texts), label, rng
        self.ids: list[str] = []
        self.kinds: list[str] = []
        self.tokens: list[int] = []
        self.state: list[int] = []
        self.reads: list[list[int]] = []
        self._steps: list[int] = []
        self._since: list[int] = []
        self._intervals: list[list[int]] = []
        self._places: list[Any] = []
        self._bytes = bytearray()

    def step(self, call: int) -> list[int]:
        kinds = ["thinking", "tool_use", "tool_result"] if call else ["user"]
        if call and call % 12 == 0:
            kinds = ["assistant", "user"]
        return [self._add(kind, call) for kind in kinds]

    def _add(self, kind: str, call: int) -> int:
        block = len(self.ids)
        lines = [f"line {i} of {kind} {block}" for i in range(self._rng.randint(2, 60))]
        text = self._texts.pop(0) if self._texts else "\n".join(lines)
        data = text.encode()
        self._places.append([len(self._bytes), len(data)])
        self._bytes += data
        self.ids.append(f"B{block + 1}")
        self.kinds.append(kind)
        self.tokens.append(self._rng.randint(800, 3000) if kind == "tool_result" else self._rng.randint(20, 400))
        self.state.append(0)
        self.reads.append([])
        self._steps.append(call)
        self._since.append(call)
        self._intervals.append([])
        return block

    def piece(self, block: int) -> Mapping[str, Any]:
        kind = self.kinds[block]
        role = "user" if kind in ("user", "tool_result") else "assistant"
        return {"form": "whole", "role": role, "kind": kind, "tokens": self.tokens[block], "block": block}

    def shown(self, block: int) -> str:
        return "stub" if self.state[block] == 3 else self.kinds[block]

    def size(self, block: int) -> int:
        return 30 if self.state[block] == 3 else self.tokens[block]

    def change(self, block: int, call: int, state: int) -> None:
        self._intervals[block] += [self._since[block], call, self.state[block]]
        self.state[block], self._since[block] = state, call

    def end(self, calls: int) -> None:
        for block in range(len(self.ids)):
            self.change(block, calls + 1, self.state[block])

    def columns(self) -> Mapping[str, Any]:
        n = len(self.ids)
        return {
            "n": n,
            "id": self.ids,
            "kind": self.kinds,
            "origin": ["human" if k == "user" else "tool" if k == "tool_result" else "model" for k in self.kinds],
            "label": [f"{self._label} ({i})" for i in range(n)],
            "tool": ["Bash" if k.startswith("tool") else "" for k in self.kinds],
            "file": [f"src/part{i % 7}.py" if k == "tool_result" else "" for i, k in enumerate(self.kinds)],
            "turn": [s // 12 + 1 for s in self._steps],
            "step": self._steps,
            "tokens": self.tokens,
            "scope": [0] * n,
            "sha": [f"{i:012x}" for i in range(n)],
            "intervals": self._intervals,
            "reads": self.reads,
            "body": self._places,
        }

    def story(self, calls: int) -> Mapping[str, Any]:
        """The turns, a dozen calls each; every one edits a file and runs a command that fails now and then."""
        steps = self._steps
        turns = [
            {
                "number": turn + 1,
                "scope": 0,
                "blocks": [steps.index(first), next((b for b, s in enumerate(steps) if s >= first + 12), len(steps))],
                "calls": list(range(first, min(first + 12, calls))),
                "request": f"request {turn + 1}",
                "files": [[0, 3, 1]],
                "commands": [["make check", 2, 1, "exit 2"], ["make", 1, 0, ""]],
                "commits": ["fix it"],
                "reads": 2,
                "searches": 1,
                "others": [["browse", 2]],
                "failures": 1,
                "tasks": "1/2 look",
                "answer": -1,
                "closing": f"answer {turn + 1}",
                "answered": turn % 2 == 0,
            }
            for turn, first in enumerate(range(0, calls, 12))
        ]
        diff = self._text(" package main\n-func old()\n+func new() // <b>\n@\n same")
        command = self._text("cd /work\nmake check")
        tasks = self._text("x look\n> mend\n- tell")
        kinds = [["diff", "internal/strategy/bootstrap.go", diff], ["command", "", command], ["tasks", "", tasks]]
        made = [block for block, kind in enumerate(self.kinds) if kind == "tool_use"]
        parts = [[kinds[at % 4]] if at % 4 < 3 else [] for at in range(len(made))]
        return {
            "turns": turns,
            "files": [
                {
                    "path": "internal/strategy/bootstrap.go",
                    "plus": 1,
                    "minus": 1,
                    "diff": diff,
                    "turns": list(range(len(turns))),
                }
            ],
            "tool_calls": [
                [block, block + 1, "exit 2" if at % 5 == 1 else "", parts[at]] for at, block in enumerate(made)
            ],
            "pictures": [[0, "image/png", self._bytes_of(_PIXEL)]] if calls == 7 else [],
        }

    def _text(self, text: str) -> Any:
        return self._bytes_of(text.encode())

    def _bytes_of(self, data: bytes) -> Any:
        self._bytes += data
        return [len(self._bytes) - len(data), len(data)]

    def bodies(self) -> Mapping[str, Any]:
        parts = [bytes(self._bytes[i : i + _CHUNK]) for i in range(0, len(self._bytes), _CHUNK)]
        return {"chunks": [base64.b64encode(zlib.compress(part)).decode() for part in parts], "cut": []}


def _stub(made: _Blocks, block: int) -> Mapping[str, Any]:
    text = f"[{made.ids[block]}@3fa9c1 archived: 1.9k tokens]"
    return {"form": "stub", "role": "user", "kind": "tool_result", "tokens": 30, "block": block, "text": text}


def _scope(name: str, parent: int, calls: Sequence[int], totals: Sequence[int], notes: list[Any]) -> Mapping[str, Any]:
    return {
        "name": name,
        "parent": parent,
        "from_call": calls[0],
        "calls": list(calls),
        "spark": [totals[call] for call in calls],
        "notes": notes,
        "agent": False,
        "system": -1,
        "tools": -1,
    }


def _note(call: int) -> Mapping[str, Any]:
    return {"call": call, "text": "the token was read from the wrong header", "to": 0}


def _life(causes: list[Mapping[str, Any]], block: int, id: str, call: int, verb: str) -> Mapping[str, Any]:
    cause = {
        "actor": "policy" if verb == "archive" else "agent",
        "policy": "default" if verb == "archive" else "",
        "reason": "oldest results past 60 % of the budget" if verb == "archive" else "the agent asked for it",
        "commit": f"{call:040x}",
    }
    if not causes or causes[-1] != cause:
        causes.append(cause)
    undo = f"ctxvc restore {id}" if verb == "archive" else f"ctxvc archive {id}"
    return {"block": block, "call": call, "verb": verb, "cause": len(causes) - 1, "undo": undo}


def _mark(call: int, kind: str, label: str) -> Mapping[str, Any]:
    return {"call": call, "kind": kind, "label": label, "commit": f"{call:040x}", "actor": "policy:default"}


def _verdict(calls: int, totals: Sequence[int], lives: Sequence[Any], marks: Sequence[Any]) -> Mapping[str, Any]:
    left = sum(1 for life in lives if life["verb"] == "archive")
    back = len(lives) - left
    cut = sum(1 for mark in marks if mark["kind"] == "compaction")
    rows = [
        ("calls", calls, str(calls)),
        ("peak", max(totals), f"{max(totals) / 1000:.0f}k"),
        ("left", left, str(left)),
        ("recovered", back, str(back)),
        ("compactions", cut, str(cut)),
        ("cost", 1.27, "$1.27"),
    ]
    return {
        "sentence": f"{left} blocks left the prompt over {calls} calls and {back} were read back; nothing is lost.",
        "numbers": [{"name": name, "value": value, "text": text} for name, value, text in rows],
        "notes": ["Costs are estimates at list prices."],
    }


def _calls(n: int, totals: list[int], unmanaged: list[int], by_part: Mapping[str, list[int]]) -> Mapping[str, Any]:
    read = [0, *totals[:-1]]
    write = [max(0, a - b) for a, b in zip(totals, read, strict=True)]
    return {
        "n": n,
        "step": list(range(n)),
        "turn": [i // 12 + 1 for i in range(n)],
        "scope": [1 if n // 3 <= i < n // 2 else 0 for i in range(n)],
        "commit": [f"{i:040x}" for i in range(n)],
        "time": [1_760_000_000 + 30 * i for i in range(n)],
        "exact": [True] * n,
        "tokens": {part: sizes for part, sizes in by_part.items() if any(sizes)},
        "total": totals,
        "unmanaged": unmanaged,
        "reported": [None] * n,
        "cache": {"read": read, "write": write, "fresh": [120] * n, "output": [300] * n},
        "cost": [round(t * 1e-6 + 0.01, 6) for t in totals],
        "cost_without": [round(t * 1e-6 + 0.01, 6) for t in unmanaged],
    }
