"""Recorded content inside a question: one JSON object a line, which can neither end its line nor look like ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

#: A text of more characters than this is shown without its middle.
LONGEST = 16_000

# What JSON does not escape and a reader does not see: controls, marks of direction, tags, lone surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)


def line(**fields: object) -> str:
    """A line of data as `whole_line`, but a long `text` loses its middle, which `omitted` counts."""
    present = dict(fields)
    text = present.get("text")
    if isinstance(text, str) and len(text) > LONGEST:
        half = LONGEST // 2
        present |= {"text": text[:half], "omitted": len(text) - 2 * half, "end": text[-half:]}
    return whole_line(**present)


def whole_line(**fields: object) -> str:
    """A line of data; fields that are empty are left out."""
    present = {name: value for name, value in fields.items() if value not in ("", None)}
    written = json.dumps(present, ensure_ascii=False, separators=(",", ":"))
    return _UNSEEN.sub(lambda match: json.dumps(match.group())[1:-1], written)


def section(title: str, lines: Iterable[str]) -> str:
    """A heading with its lines; `none` stands for no lines."""
    return "\n".join([f"## {title}", *(list(lines) or ["none"])])
