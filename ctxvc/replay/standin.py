"""A deterministic stand-in for an agent that manages its own context: recorded agents never called these tools.

It reads what a model would read, the rendered prompt, and nothing else. It is no model: it shows what the tools and the
dashboard allow, not what a good agent would do with them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

#: Named in each result that a stand-in took part in.
MANAGER = "manager/2"
FOLDER = "folder/1"
#: The same of the fixed rules of a policy that could ask a model and has none.
PLANNER = "planner's rules/1"
SUMMARISER = "extract/1"

#: The shares of the budget at which it makes room, and down to which.
HIGH, LOW = 85, 60
#: Blocks that are younger than this many steps stay.
YOUNG = 4
#: The shortest word by which a stub is taken to be asked for.
SHORTEST = 8

_BOARD = re.compile(r"\[dashboard [^\n]*? (\d+) %, [\d,]+ / ([\d,]+) tokens")
_ROW = re.compile(r"^((?:B|G)\d+(?:[–-]B\d+)?) ([\d→]+) (\d+)r (\S+) \S+ \S+ (\S+) \d+ ?(.*)$", re.MULTILINE)
_STUB = re.compile(r"^\[archived (B\d+)@[0-9a-f]+, [^\n]*", re.MULTILINE)
_TAG = re.compile(r"^\[(B\d+) · ([\d.]+)([kM]?)\]$", re.MULTILINE)
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_WORD = re.compile(r"[\w./-]+")
_PARTS = re.compile(r"\w[./_]\w")
#: Characters of a block of knowledge: of the names in it, and of the newest words of the model.
KNOWN, SAID = 240, 160
#: Messages between two notes.
APART = 16


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the stand-in makes. A `note` has its text as `index`, and folds what it covers."""

    tool: Literal["archive", "recover", "note"]
    blocks: str
    index: str = ""


#: A stand-in: the messages of a prompt, and what it named in earlier calls → the calls that it makes now.
Agent = Callable[[Sequence[Mapping[str, Any]], frozenset[str]], tuple[ToolCall, ...]]


def manage(messages: Sequence[Mapping[str, Any]], earlier: frozenset[str]) -> tuple[ToolCall, ...]:
    """The calls that it makes before it goes on with its work; mostly none.

    Above `HIGH` percent it archives the oldest rows of the newest dashboard, down to `LOW`; where that has no row that
    is old enough, the oldest results by their tags. Of the stubs, it recovers one that the newest message names by a
    word of the stub or of the call above it. Blocks that it named in `earlier` calls are not named again.
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
    """The archived blocks whose stubs are in the prompt, each with what stub and call say of it."""
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
    """Active compression: above `HIGH` percent it writes down what it knows, and folds what led to it.

    What it knows are the names that the prompt repeats most, and the model's newest words. It does so once in `APART`
    messages, since a note folds only what came since the last one, and stays itself.
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
