"""Small recordings that are written by hand, and a replay that counts and decides nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ctxvc.replay.conversation import Conversation
from ctxvc.replay.measures.retention import Counts, Split
from ctxvc.replay.results.result import Result, Timing, Tokens
from ctxvc.replay.work import Setup


def recording(path: Path, *, steps: int = 2, lines: int = 40, task: str = "Find the port.") -> Path:
    """A recording of one conversation: a task, then calls that read files, then an answer."""
    messages: list[object] = [{"format": "ctxvc-trajectory/1", "id": path.stem, "task": task}]
    messages.append({"role": "user", "content": [{"type": "text", "text": task}]})
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "Read", "input": {"file": f"src/part{step}.py"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"Look {step}."}, call]})
        text = {"type": "text", "text": f"PORT_{step} = {8000 + step}\n" * lines}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": [text]}
        messages.append({"role": "user", "content": [result]})
    messages.append(
        {"role": "assistant", "content": [{"type": "text", "text": "It is PORT_0 = 8000, see src/part0.py."}]}
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in messages))
    return path


def count_only(conversation: Conversation, setups: Sequence[Setup]) -> Iterable[Result]:
    """A result for each setup that tells which conversation it is of, and a timing that is never the same."""
    for setup in setups:
        total = len(conversation.blocks) * setup.budget
        yield Result(
            version="",
            anchors="1",
            conversation=conversation.id,
            file=conversation.file,
            sha256=conversation.sha256,
            aside=conversation.aside,
            policy=setup.policy,
            budget=setup.budget,
            options=setup.options,
            calls=len(conversation.calls),
            tokens=Tokens(peak=total, total=total, keep=total),
            retention=Split(all=Counts(visible=len(conversation.blocks))),
            timing=Timing(mean=time.perf_counter()),
        )


def slow(conversation: Conversation, setups: Sequence[Setup]) -> Iterable[Result]:
    """As `count_only`, a tenth of a second a setup, with the process as a file beside the recording."""
    Path(os.environ["REPLAY_PROCESSES"], str(os.getpid())).touch()
    for setup in setups:
        time.sleep(0.1)
        yield from count_only(conversation, [setup])
