"""Whether all of a prompt is in a request: every block, in order, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece, plain_text
from ctxvc.forms import form

#: What clients say for a result without a text.
NOTHING = frozenset({"", "(no tool output)"})


@dataclass(frozen=True)
class Unit:
    """A text, a call, a result, or a picture: `name` is a call's tool, `text` what it says."""

    kind: str
    text: str
    name: str = ""
    call: str = field(default="", compare=False)
    role: str = field(default="", compare=False)
    #: The texts of a result that has several, together as some readers put them.
    joined: str = field(default="", compare=False)
    #: The block in whose place it stands.
    block: str = field(default="", compare=False)


@dataclass
class Arrival:
    """What of a prompt is in a request."""

    arrived: int = 0
    missing: list[Unit] = field(default_factory=list)
    #: What the client has put in besides.
    added: list[Unit] = field(default_factory=list)
    #: What the request has more often than the prompt.
    twice: list[Unit] = field(default_factory=list)
    #: Calls without one result behind them, and results without a call.
    unpaired: list[str] = field(default_factory=list)


def of_pieces(pieces: Iterable[Piece]) -> Iterator[Unit]:
    """What must arrive."""
    for piece in pieces:
        units = _units(piece.kind, piece.body, piece.extra, piece.tool, piece.call, block_of(piece))
        yield from (replace(unit, block=piece.block, role=piece.role) for unit in units)


def of_request(path: str, body: bytes) -> list[Unit]:
    """What a request says that was sent to a path."""
    own = form.of(path)
    assert own, path
    prompt = own.prompt(body)
    parts = [part for message in own.reader().messages(prompt.messages) for part in message.parts]
    return [replace(unit, role=part.role) for part in parts for unit in _of_part(part)]


def _of_part(part: Part) -> Iterator[Unit]:
    files = dict(part.files)
    block = wire.block(
        kind=part.kind, body=part.body, ext=part.ext, call=part.call, tool=part.tool, error=part.error,
        extra=part.extra, files=files,
    )  # fmt: skip
    yield from _units(part.kind, part.body, part.extra, part.tool, part.call, block)


def _units(kind: str, body: bytes, extra: Any, tool: str, call: str, block: Any) -> Iterator[Unit]:
    match kind:
        case "thinking":
            return
        case "tool_use":
            arguments = wire.parsed(body, dict)
            yield Unit("call", repr(display.decode(body) if arguments is None else _sorted(arguments)), tool, call)
        case "tool_result":
            texts = [text for text in plain_text(body, extra).split("\n") if text not in ("[image]", "[document]")]
            yield Unit("result", "\n".join(texts), call=call, joined="".join(_texts(block)))
            yield from _pictures(block.get("content") or ())
        case "image" | "document":
            yield from _pictures([block])
        case "other":
            yield Unit("other", display.decode(body))
        case _:
            yield Unit("text", display.decode(body))


def _texts(block: Any) -> Iterator[str]:
    content = block.get("content") or ()
    return (item["text"] for item in content if isinstance(item, dict) and isinstance(item.get("text"), str))


def _pictures(blocks: Sequence[Any]) -> Iterator[Unit]:
    for block in blocks:
        if isinstance(block, dict) and block.get("type") in ("image", "document"):
            source = block.get("source") or {}
            yield Unit("picture", str(source.get("data") or source.get("url")))


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return sorted((key, _sorted(item)) for key, item in value.items())
        case list():
            return [_sorted(item) for item in value]
    return value


def compared(expected: Sequence[Unit], received: Sequence[Unit]) -> Arrival:
    """How `expected` stands in `received`, where texts may have been put together and pictures behind others."""
    arrival = Arrival()
    expected, received = _texts_first(expected), _texts_first(received)
    pictures = [unit for unit in received if unit.kind == "picture"]
    line = [unit for unit in received if unit.kind != "picture"]
    at, offset = 0, 0
    taken: set[int] = set()
    calls = {unit.call for unit in line}
    for unit in expected:
        if unit.kind == "picture":
            (arrival.missing.append(unit) if unit not in pictures else pictures.remove(unit))
            arrival.arrived += unit not in arrival.missing
            continue
        place = next(_places(unit, line, at, offset, calls), None)
        if place is None:
            arrival.missing.append(unit)
            continue
        at, offset = place
        taken.add(at)
        at, offset = (at + 1, 0) if unit.kind != "text" else (at, offset)
        arrival.arrived += 1
    arrival.added = [unit for number, unit in enumerate(line) if number not in taken] + pictures
    wanted = Counter(unit for unit in expected if unit.text.strip())
    arrival.twice = [unit for unit, count in Counter(line).items() if unit in wanted and count > wanted[unit]]
    made = [unit.call for unit in received if unit.kind == "call"]
    results = [unit.call for unit in received if unit.kind == "result"]
    arrival.unpaired = [call for call, count in (Counter(made) - Counter(results)).items() for _ in range(count)]
    arrival.unpaired += list((Counter(results) - Counter(made)).elements())
    return arrival


def _texts_first(units: Sequence[Unit]) -> list[Unit]:
    """The units with the texts of each reply before its calls: some providers' forms know no other order."""
    ordered: list[Unit] = []
    for role, run in groupby(units, attrgetter("role")):
        together = list(run)
        ordered += sorted(together, key=lambda unit: unit.kind == "call") if role == "assistant" else together
    return ordered


def _places(
    unit: Unit, line: Sequence[Unit], at: int, offset: int, calls: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Where a unit stands from a place on: the number, and the character at which it ends in a text.

    `calls` are the ids of all calls: a client may make new ones.
    """
    for number in range(at, len(line)):
        other = line[number]
        if unit.kind == "text" and other.kind == "text":
            found = other.text.find(unit.text.strip(), offset if number == at else 0)
            if found >= 0:
                yield number, found + len(unit.text.strip())
        elif _same(unit, other) and (unit.call == other.call or unit.call not in calls):
            yield number, 0


def _same(unit: Unit, other: Unit) -> bool:
    if (unit.kind, unit.name) != (other.kind, other.name):
        return False
    return other.text in (unit.text, unit.joined or unit.text) or (
        unit.kind == "result" and not unit.text.strip() and other.text in NOTHING
    )
