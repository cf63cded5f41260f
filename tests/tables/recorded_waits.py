"""The seconds that recordings of Claude Code and pi waited for the model and for tools, worked out without our code."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path


def waits(file: Path) -> tuple[int, int]:
    """The sums over a file. A reply is all lines of its id, and answers to what came last before the first of them."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    replies: dict[str, list[int]] = {}  # when it was asked for, whole, and had its results
    calls: dict[str, list[int]] = {}
    newest: dict[bool, int] = {}
    for number, line in enumerate(map(json.loads, text.decode().splitlines())):
        message = line.get("message") or {}
        if line["type"] not in ("user", "assistant", "message") or not message.get("content"):
            continue
        time = int(datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00")).timestamp())
        parts = [part for part in message["content"] if isinstance(part, dict)]
        beside = line.get("isSidechain", False)
        if message["role"] == "assistant":
            begun = [newest.get(beside, time), time, 0]
            reply = replies.setdefault(message["id"] if "id" in message else str(number), begun)
            reply[1] = max(reply[1], time)
            calls |= {part["id"]: reply for part in parts if part["type"] in ("tool_use", "toolCall")}
        for answered in (message.get("toolCallId"), *(part.get("tool_use_id") for part in parts)):
            if answered in calls:
                calls[answered][2] = max(calls[answered][2], time)
        newest[beside] = max(time, newest.get(beside, 0))
    model = sum(replied - asked for asked, replied, _ in replies.values())
    return model, sum(max(0, answered - replied) for _, replied, answered in replies.values() if answered)
