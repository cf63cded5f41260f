"""`python -m tests.tables.recorded_usage FOLDER`: the usage in its recordings, without our code but the prices."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxvc.tokens.models import MODELS, Rates, _plain_name

#: The model, and the tokens of a call: fresh, written into the cache, read from it, of the reply; written for an hour.
Call = tuple[str, tuple[int, ...]]
NAMES = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def calls(file: Path) -> Iterator[Call]:
    """The calls in a file: a line of usage is a reply; in Claude Code's files the last of a message's."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    lines = [json.loads(line) for line in text.decode().splitlines()]
    replies: dict[Any, Call] = {}
    model = str(lines[0].get("model", ""))
    for number, line in enumerate(lines):
        match line:
            case {"role": "assistant", "meta": {"usage": usage, **meta}}:  # ctxvc-trajectory
                model = meta.get("model") or model
                replies[number] = model, tuple(usage.get(name) or 0 for name in NAMES)
            case {"type": "assistant", "message": {"id": name, "usage": usage, **message}}:  # Claude Code
                hour = usage.get("cache_creation", {}).get("ephemeral_1h_input_tokens", 0)
                replies[name] = message["model"], (*(usage.get(name) or 0 for name in NAMES), hour)
            case {"type": "turn_context", "payload": {"model": str(model)}}:  # Codex
                pass
            case {"payload": {"type": "token_count", "info": {"last_token_usage": usage, "total_token_usage": total}}}:
                read = usage["cached_input_tokens"]
                tokens = usage["input_tokens"] - read, 0, read, usage["output_tokens"]
                replies.setdefault(json.dumps(total), (model, tokens))  # the same total is the same call again
            case {"type": "message", "message": {"role": "assistant", "usage": usage, **message}}:  # pi
                names = ("input", "cacheWrite", "cacheRead", "output")
                replies[number] = message["model"], tuple(usage[name] for name in names)
    yield from replies.values()


def price(model: str, tokens: tuple[int, ...]) -> float:
    entry, (fresh, written, read, reply, *hour) = MODELS.get(_plain_name(model)), tokens
    rates = entry.rates if entry else Rates(0, 0)
    long = rates.long if rates.long and fresh + written + read > rates.long.tokens else None
    cached = rates.write * written + rates.read * read + (2 - rates.write) * sum(hour)
    prompt = rates.prompt * (fresh + cached) * (long.prompt if long else 1)
    return (prompt + rates.reply * reply * (long.reply if long else 1)) / 1e6


def summed(files: list[Path]) -> tuple[tuple[int, ...], float]:
    """The tokens of all calls, in the order of `Call`, and their price in dollars."""
    every = [call for file in files for call in calls(file) if sum(call[1][:3])]
    return tuple(sum(call[1][at] for call in every) for at in range(4)), sum(price(*call) for call in every)


if __name__ == "__main__":
    print(*summed(sorted(Path(sys.argv[1]).rglob("*.jsonl*"))))
