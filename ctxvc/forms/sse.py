"""Server-sent events: bytes in, events out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import wire


def events(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the JSON object of each event in a stream, as far as it came; the name may be empty.

    An event that the end cuts off, or whose data is no JSON object, is left out.
    """
    name, lines = "", list[str]()
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        if not line:
            value = wire.parsed("\n".join(lines).encode("utf-8", "replace"), dict) if lines else None
            if value is not None:
                yield name, value
            name, lines = "", []
            continue
        field, _, value_text = line.partition(":")
        value_text = value_text.removeprefix(" ")
        if field == "event":
            name = value_text
        elif field == "data":
            lines.append(value_text)
