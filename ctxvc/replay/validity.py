"""Whether a provider takes the messages of a prompt: the order and the pairs, judged on what would be sent.

The Messages API's rules on tool use, checked without anything that made the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the Messages API would refuse; nothing if the messages are valid."""
    if not messages:
        yield "there are no messages"
        return
    if messages[0]["role"] != "user":
        yield "the first message is not the user's"
    unanswered: list[str] = []  # the calls of the message before
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            yield f"message {at} is empty"
        answered = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if role == "user" and sorted(answered) != sorted(unanswered):
            yield f"message {at} answers calls that are not in the message before it"
        if answered and [block.get("type") for block in blocks[: len(answered)]] != ["tool_result"] * len(answered):
            yield f"message {at} has something before its results"
        if role == "assistant" and (answered or unanswered):
            yield f"message {at} comes before the results of the calls before it"
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if len({*calls} - seen) != len(calls):
            yield f"message {at} repeats the id of a call"
        seen.update(calls)
        unanswered = calls if role == "assistant" else [] if role == "user" else unanswered
        for block in blocks:
            if block.get("type") == "text" and not block["text"].strip():
                yield f"message {at} has an empty text"
    if unanswered:
        yield "the last calls have no results"
    if messages[-1]["role"] == "assistant":
        yield "the last message is the model's"
