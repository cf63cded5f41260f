"""Cache marks of the Messages API (`cache_control`) in messages of which some change or leave.

The mark of a block that leaves moves to the nearest earlier block that may have one and has none. A request with fewer
marks than the provider takes gets one more, at the end of what is likely to stay: when much leaves, the provider looks
the rest up only near a mark. Since later marks follow, this one costs no additional cache write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms import splice
from ctxvc.forms.splice import Span, items
from ctxvc.forms.values import objects, text_of

MARK = "cache_control"
_NAME = b'"cache_control"'
#: The most marks of a request, its tools' and its system prompt's included.
_MOST = 4


def blocks(message: Any) -> list[Any]:
    """The content blocks of a message; a string counts as one text block."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []


def marks(block: Any) -> list[Any]:
    """The marks of a block and of the blocks within it, in order."""
    if not isinstance(block, dict):
        return []
    inner = [item[MARK] for item in objects(block.get("content")) if item.get(MARK)]
    return [*inner, block[MARK]] if block.get(MARK) else inner


def moved(content: list[Any], end: int, mark: Any) -> Any:
    """Sets a mark on the last of the first `end` blocks that may have one and has none.

    Returns the mark to set in an earlier message if there is no such block, else None. On passing a marked block it
    takes that mark's value: a longer-lived mark may not follow a shorter-lived one.
    """
    for place in reversed(range(end)):
        own = marks(content[place])
        if not own and _may_have_one(content[place]):
            content[place] = {**content[place], MARK: mark}
            return None
        mark = own[0] if own else mark
    return mark


def _may_have_one(block: Any) -> bool:
    match block:
        case {"type": "text"}:
            return bool(text_of(block.get("text")).strip())
        case {"type": str(kind)}:
            return not kind.endswith("thinking")
    return False


def elements(body: bytes, own: Sequence[Span], messages: Sequence[int | Any], lasting: int = 0) -> list[splice.Element]:
    """The elements of a request's message list for `messages`; a number names one of the body's, at its place in `own`.

    Marks of messages that left move to earlier ones. New messages bring no more marks than the body had. After the
    first `lasting` messages one more is set, if the provider takes it and a mark follows.
    """
    texts = [body[slice(*span)] for span in own]
    marked = {
        number: own_marks
        for number, text in enumerate(texts)
        if _NAME in text and (own_marks := _message_marks(wire.parsed(text, dict)))
    }
    there = [len(marked.get(entry, ()) if type(entry) is int else _message_marks(entry)) for entry in messages]
    entries = list(messages)
    spare = _limit(entries, there, sum(map(len, marked.values())))
    for end, mark in list(_homeless(messages, len(own), marked, there))[:spare]:
        _settle(entries, texts, end, mark)
    if lasting and body.count(_NAME) < _MOST:
        _mark_lasting(entries, texts, lasting)
    return [entry if isinstance(entry, bytes) else splice.element(entry) for entry in entries]


def _mark_lasting(entries: list[Any], texts: Sequence[bytes], lasting: int) -> None:
    """Marks the last of the first `lasting` messages like the next later mark, unless it has one or none follows."""
    later = (mark for entry in entries[lasting:] for mark in _marks_of(entry, texts))
    if not _marks_of(entries[lasting - 1], texts) and (mark := next(later, None)):
        _settle(entries, texts, lasting, mark)


def _marks_of(entry: Any, texts: Sequence[bytes]) -> list[Any]:
    text = texts[entry] if type(entry) is int else entry
    if not isinstance(text, bytes):
        return _message_marks(text)
    return _message_marks(wire.parsed(text, dict)) if _NAME in text else []


def _message_marks(message: Any) -> list[Any]:
    return [mark for block in blocks(message) for mark in marks(block)]


def _limit(entries: list[Any], there: Sequence[int], most: int) -> int:
    """Removes the marks of new messages beyond `most`, the earliest first; returns how many may still be set.

    `there` has the number of marks of each message.
    """
    spare = most - sum(count for entry, count in zip(entries, there, strict=True) if type(entry) is int)
    for place in reversed(range(len(entries))):
        if type(entries[place]) is int:
            continue
        if there[place] <= spare:
            spare -= there[place]
        elif there[place]:
            entries[place] = {**entries[place], "content": list(map(_unmarked, blocks(entries[place])))}
    return max(0, spare)


def _unmarked(block: Any) -> Any:
    if not marks(block):
        return block
    bare = {name: value for name, value in block.items() if name != MARK}
    return {**bare, "content": list(map(_unmarked, bare["content"]))} if isinstance(bare.get("content"), list) else bare


def _homeless(
    messages: Sequence[int | Any], count: int, marked: Mapping[int, list[Any]], there: Sequence[int]
) -> Iterator[tuple[int, Any]]:
    """The marks of messages that left, each with the number of messages before its place; `there` has the number of
    marks of each message.

    New messages between two of the body's own replace those that were between them: the first replaces the first, and
    where there are fewer, the last replaces the last.
    """
    previous, start = -1, 0
    ends = [(place, message) for place, message in enumerate(messages) if type(message) is int]
    for place, number in [*ends, (len(messages), count)]:
        absent = number - previous - 1
        lost = [(at, mark) for at in range(absent) for mark in marked.get(previous + 1 + at, ())]
        for at, mark in lost[: max(0, len(lost) - sum(there[start:place]))]:
            yield start + max(0, min(at, place - start - absent + at + 1)), mark
        previous, start = number, place + 1


def _settle(entries: list[Any], texts: Sequence[bytes], end: int, mark: Any) -> None:
    """Sets a mark in the last of the first `end` messages that has room for it."""
    for place in reversed(range(max(0, end))):
        entry = texts[entries[place]] if type(entries[place]) is int else entries[place]
        message = wire.parsed(entry, dict) if isinstance(entry, bytes) else entry
        before, content = blocks(message), blocks(message)
        mark = moved(content, len(content), mark)
        if mark is None:
            at = next(at for at, block in enumerate(content) if block != before[at])
            is_own = isinstance(entry, bytes)
            entries[place] = _with_mark(entry, at, content[at][MARK]) if is_own else {**entry, "content": content}
            return


def _with_mark(text: bytes, at: int, mark: Any) -> bytes:
    """A message's JSON with a mark on block `at`; all other bytes stay."""
    message = splice.opened(text)
    content = message.members["content"]
    member = b',"cache_control":' + wire.compact(mark)
    if message.begins("content", '"'):
        block = b'[{"type":"text","text":' + text[slice(*content)] + member + b"}]"
        return splice.changed(text, [splice.Change(content, block)])
    span = items(text, content)[at]
    empty = splice.opened(text[slice(*span)]).members.get(MARK)
    if empty:
        place = Span(span.start + empty.start, span.start + empty.end)
        return splice.changed(text, [splice.Change(place, wire.compact(mark))])
    return splice.changed(text, [splice.Change(Span(span.end - 1, span.end - 1), member)])
