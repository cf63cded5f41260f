"""A deterministic stand-in for an agent that manages its own context: recorded agents never called these tools.

It reads only what a model would read, the rendered prompt. It is not a model: it shows what the tools and the
dashboard allow, not what a good agent would do with them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

#: The stand-ins' names, for the results that they took part in.
MANAGER = "manager/2"
FOLDER = "folder/1"
#: The names of the fixed rules that a policy follows when it could ask a model but has none.
PLANNER = "planner's rules/1"
SUMMARISER = "extract/1"

#: Percent of the budget at which the stand-in makes room, and down to which.
HIGH, LOW = 85, 60
#: Blocks younger than this many steps stay.
YOUNG = 4
#: Characters of the shortest name that counts as asking for a stub.
SHORTEST = 8

_BOARD = re.compile(r"\[dashboard [^\n]*? (\d+) %, [\d,]+ / ([\d,]+) tokens")
_ROW = re.compile(r"^((?:B|G)\d+(?:[–-]B\d+)?) ([\d→]+) (\d+)r (\S+) \S+ \S+ (\S+) \d+ ?(.*)$", re.MULTILINE)
_STUB = re.compile(r"^\[archived (B\d+)@[0-9a-f]+, [^\n]*", re.MULTILINE)
_TAG = re.compile(r"^\[(B\d+) · ([\d.]+)([kM]?)\]$", re.MULTILINE)
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_WORD = re.compile(r"[\w./-]+")
_PARTS = re.compile(r"\w[./_]\w")
#: The most characters that a note has of names, and of the model's newest text.
KNOWN, SAID = 240, 160
#: The fewest messages between two notes.
APART = 16


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of the stand-in. For a `note`, `index` is its text; the blocks that it covers are folded."""

    tool: Literal["archive", "recover", "note"]
    blocks: str
    index: str = ""


#: A stand-in: a prompt's messages, and the blocks that its earlier calls named → the calls that it makes now.
Agent = Callable[[Sequence[Mapping[str, Any]], frozenset[str]], tuple[ToolCall, ...]]


def manage(messages: Sequence[Mapping[str, Any]], earlier: frozenset[str]) -> tuple[ToolCall, ...]:
    """The calls that the stand-in makes before it goes on with its work; usually none.

    From `HIGH` percent up it archives the oldest rows of the newest dashboard, down to `LOW`; if no row is old enough,
    the oldest results by their tags. Otherwise it recovers a stub if the newest message contains a name from the stub
    or from the call above it. Blocks that its `earlier` calls named are not named again.
    """
    texts = [text for message in messages for text in texts_of(message)]
    board = next((text for text in reversed(texts) if _BOARD.match(text) and "\nID " in text), "")
    room = _room(board, messages[: -2 * YOUNG], earlier)
    if room and room.blocks not in earlier:
        return (room,)
    newest = set(_names("\n".join(texts_of(messages[-1])))) if messages else set()
    for block, about in reversed(list(_stubs(messages))):
        if block not in earlier and not newest.isdisjoint(_names(about)):
            return (ToolCall("recover", block),)
    return ()


def _stubs(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields the archived blocks whose stubs are in the prompt, with the text of the stub and its call."""
    calls: dict[str, str] = {}
    for message in messages:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block.get("type") == "tool_use":
                calls[block["id"]] = json.dumps(block["input"], ensure_ascii=False)
            called = calls.get(block.get("tool_use_id", ""), "")
            for text in texts_of({"content": [block]}):
                yield from ((match[1], f"{match[0].partition('; ')[2]} {called}") for match in _STUB.finditer(text))


def fold(messages: Sequence[Mapping[str, Any]], _earlier: frozenset[str]) -> tuple[ToolCall, ...]:
    """Active compression: from `HIGH` percent up, a note of what is known, which folds the blocks that led to it.

    The note has the names that the prompt repeats most and the model's newest text. There is at most one in `APART`
    messages, since a note folds only what came after the previous one, and itself stays.
    """
    texts = [text for message in messages for text in texts_of(message)]
    header = next((match for text in reversed(texts) if (match := _BOARD.match(text))), None)
    if header is None or int(header[1]) < HIGH:
        return ()
    if any(text.startswith(NOTED) for message in messages[-APART:] for text in texts_of(message)):
        return ()
    counts = Counter(name.rstrip(".-/") for text in texts if not text.startswith("[") for name in _names(text))
    names = ", ".join(name for name, _ in counts.most_common(40))[:KNOWN]
    replies = (text for message in reversed(messages) if message["role"] == "assistant" for text in texts_of(message))
    return (ToolCall("note", "", f"known so far: {names}; newest: {next(replies, '')[:SAID]}"),)


#: How the result of a stand-in's note begins.
NOTED = "noted, "


def _room(board: str, old: Sequence[Mapping[str, Any]], earlier: frozenset[str]) -> ToolCall | None:
    header = _BOARD.match(board)
    if header is None or int(header[1]) < HIGH:
        return None
    budget = int(header[2].replace(",", ""))
    excess = budget * (int(header[1]) - LOW) // 100
    names: list[str] = []
    labels: list[str] = []
    for name, tokens, age, _kind, status, label in _ROW.findall(board):
        if excess <= 0:
            break
        if int(age) < YOUNG or not re.search(r"visible|masked", status):
            continue
        names.append(name.replace("–", "-"))
        labels.append(label.strip())
        excess -= int(tokens.rpartition("→")[2])
    if names:
        return ToolCall("archive", ",".join(names), "; ".join(labels)[:160])
    before = {block for blocks in earlier for block in blocks.split(",")}
    tags = (match for message in old for text in texts_of(message) for match in _TAG.finditer(text))
    for block, amount, unit in (match.groups() for match in tags):
        if excess <= 0:
            break
        if block not in before:
            names.append(block)
            excess -= int(float(amount) * _UNITS[unit])
    return ToolCall("archive", ",".join(names)) if names else None


def texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    content = message["content"]
    if isinstance(content, str):
        yield content
        return
    for block in content:
        match block:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "tool_result", "content": str(text)}:
                yield text
            case {"type": "tool_result", "content": list(items)}:
                yield from (item["text"] for item in items if item.get("type") == "text")


def _names(text: str) -> Iterator[str]:
    """The words of a text that name something: paths, file names, identifiers of several parts."""
    return (name for name in _WORD.findall(text) if len(name) >= SHORTEST and _PARTS.search(name))
