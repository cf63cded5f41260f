"""Sessions as the page reads them, made up in any size: the shape of `ctxvc report --json` without a store behind it."""

from __future__ import annotations

import base64
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

_STATES = ["visible", "pinned", "masked", "stub", "gone", "deleted"]
_KINDS = ["user", "assistant", "thinking", "tool_use", "tool_result", "note", "stub"]
_CHUNK = 65536


def session(
    *, calls: int = 60, budget: int = 30_000, seed: int = 7, texts: Sequence[str] = (), label: str = "go test ./…"
) -> Mapping[str, Any]:
    """A session of `calls` model calls that is cut back to its budget by turns; `texts` are the first bodies."""
    rng = random.Random(seed)  # noqa: S311
    made = _Blocks(texts, label, rng)
    deltas: list[list[Any]] = []
    totals: list[int] = []
    unmanaged: list[int] = []
    by_kind: dict[str, list[int]] = {kind: [] for kind in _KINDS}
    marks: list[Mapping[str, Any]] = []
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
                    splices.append([at, 1, [_stub(made, block)]])
                    lives.append(_life(block, made.ids[block], call, "archive"))
                if sum(made.size(b) for b in prompt) < budget // 2:
                    break
            marks.append(_mark(call, "compaction", f"archive oldest results of {call} calls"))
        elif call % 17 == 16:
            away = [at for at, b in enumerate(prompt) if made.state[b] == 3]
            if away:
                block = prompt[away[0]]
                made.change(block, call, 0)
                made.reads[block].append(call)
                splices.append([away[0], 1, [{"block": block, "form": "whole", "role": "user"}]])
                lives.append(_life(block, made.ids[block], call, "restore"))
                marks.append(_mark(call, "recover", f"recover {made.ids[block]}"))
        splices.append([len(prompt), 0, [{"block": b, "form": "whole", "role": made.role(b)} for b in new]])
        prompt += new
        deltas.append(splices)
        for kind in _KINDS:
            by_kind[kind].append(sum(made.size(b) for b in prompt if made.shown(b) == kind))
        totals.append(sum(made.size(b) for b in prompt))
        unmanaged.append(everything)
    made.end(calls)
    return {
        "schema": "ctxvc.report-1",
        "kind": "session",
        "title": "Fix the failing tests",
        "session": "made-up/main",
        "model": "claude-opus-4-5",
        "budget": budget,
        "window": 200_000,
        "made": "2026-11-23T10:00:00Z",
        "version": "0.1.0",
        "verdict": _verdict(calls, totals, lives, marks),
        "states": _STATES,
        "calls": _calls(calls, totals, unmanaged, by_kind),
        "marks": marks,
        "blocks": made.columns(),
        "lives": lives,
        "prompts": {"pieces": [], "deltas": deltas},
        "scopes": [
            {"name": "main", "parent": -1, "from_call": 0, "calls": list(range(calls)), "spark": totals, "notes": []},
            {
                "name": "fix-auth",
                "parent": 0,
                "from_call": calls // 3,
                "calls": list(range(calls // 3, calls // 2)),
                "spark": totals[calls // 3 : calls // 2],
                "notes": [{"call": calls // 2, "text": "the token was read from the wrong header", "to": 0}],
            },
        ],
        "bodies": made.bodies(),
    }


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

    def role(self, block: int) -> str:
        return "user" if self.kinds[block] in ("user", "tool_result") else "assistant"

    def shown(self, block: int) -> str:
        return "stub" if self.state[block] == 3 else self.kinds[block]

    def size(self, block: int) -> int:
        return 30 if self.state[block] == 3 else self.tokens[block]

    def change(self, block: int, call: int, state: int) -> None:
        self._intervals[block] += [self._since[block], call, self.state[block]]
        self.state[block], self._since[block] = state, call

    def end(self, calls: int) -> None:
        for block in range(len(self.ids)):
            self.change(block, calls, self.state[block])

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

    def bodies(self) -> Mapping[str, Any]:
        parts = [bytes(self._bytes[i : i + _CHUNK]) for i in range(0, len(self._bytes), _CHUNK)]
        return {"chunks": [base64.b64encode(zlib.compress(part)).decode() for part in parts], "cut": []}


def _stub(made: _Blocks, block: int) -> Mapping[str, Any]:
    return {"block": block, "form": "stub", "role": "user", "text": f"[{made.ids[block]}@3fa9c1 archived: 1.9k tokens]"}


def _life(block: int, id: str, call: int, verb: str) -> Mapping[str, Any]:
    return {
        "block": block,
        "call": call,
        "verb": verb,
        "actor": "policy:default" if verb == "archive" else "agent",
        "policy": "default",
        "reason": "oldest results past 60 % of the budget" if verb == "archive" else "the agent asked for it",
        "commit": f"{call:040x}",
        "undo": f"ctxvc restore {id}" if verb == "archive" else f"ctxvc archive {id}",
    }


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


def _calls(n: int, totals: list[int], unmanaged: list[int], by_kind: Mapping[str, list[int]]) -> Mapping[str, Any]:
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
        "tokens": dict(by_kind),
        "total": totals,
        "unmanaged": unmanaged,
        "cache": {"read": read, "write": write, "fresh": [120] * n, "output": [300] * n},
        "cost": [round(t * 1e-6 + 0.01, 6) for t in totals],
        "cost_without": [round(t * 1e-6 + 0.01, 6) for t in unmanaged],
    }
