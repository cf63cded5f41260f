"""What the API refuses between blocks: calls and their results, the client's and the provider's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.messages_api.wire import SERVER_CALLS, Message, blocks, is_server_result


def call_problems(messages: Sequence[Message]) -> Iterator[str]:
    """Each call is answered once, in the very next message, before anything else there; no id is used twice."""
    seen: set[str] = set()
    asked: list[str] = []
    for at, message in enumerate(messages):
        content = blocks(message["content"])
        answers = [str(block.get("tool_use_id")) for block in content if block["type"] == "tool_result"]
        if missing := [call for call in asked if call not in answers]:
            yield _unanswered(at - 1, missing)
        for number, block in enumerate(content):
            if block["type"] == "tool_result" and str(block.get("tool_use_id")) not in asked:
                yield (
                    f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` block "
                    "in the previous message."
                )
        for call, times in Counter(answers).items():
            if times > 1:
                yield f"messages.{at}: each tool_use must have a single result. Found {times} for {call}"
        if any(block["type"] != "tool_result" for block in content[: len(answers)]):
            yield f"messages.{at}: `tool_result` blocks do not lead the message"
        asked = [str(block.get("id")) for block in content if block["type"] == "tool_use"]
        for call in asked:
            if call in seen:
                yield f"messages.{at}: `tool_use` ids must be unique: {call}"
            seen.add(call)
    if asked:
        yield _unanswered(len(messages) - 1, asked) + " The request ends here: calls without results at the end."


def _unanswered(at: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def server_call_problems(messages: Sequence[Message]) -> Iterator[str]:
    """The provider's own calls and results: each pair in one message, the call first.

    Only the last message may hold a call without its result: a turn that was paused.
    """
    seen: set[str] = set()
    for at, message in enumerate(messages):
        waiting: set[str] = set()
        for number, block in enumerate(blocks(message["content"])):
            kind, path = block["type"], f"messages.{at}.content.{number}"
            if kind in SERVER_CALLS:
                call = block.get("id")
                if not isinstance(call, str) or call in seen:
                    yield f"{path}: {kind} without an id of its own: {call!r}"
                    continue
                seen.add(call)
                waiting.add(call)
            elif is_server_result(block):
                call = block.get("tool_use_id")
                if not isinstance(call, str) or call not in waiting:
                    yield (
                        f"{path}: unexpected `tool_use_id` found in `{kind}` blocks: {call}. Each `{kind}` block must "
                        "have a corresponding `server_tool_use` block before it."
                    )
                    continue
                waiting.discard(call)
        if waiting and at < len(messages) - 1:
            yield f"messages.{at}: the provider's calls without a result: {', '.join(sorted(waiting))}"
