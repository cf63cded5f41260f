"""Canonical JSON as docs/format.md defines it, and the hash of a prompt.

canonical_json.py < request.json     the SHA-256 of the request's system, tools and messages
"""

from __future__ import annotations

import hashlib
import json
import re
import sys

SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')


def canonical(text: str | bytes) -> bytes:
    """The canonical form of a JSON text. Raises: ValueError where it is none."""
    return written(read(text)).encode()


def prompt_hash(text: str | bytes) -> str:
    """The SHA-256 of the prompt in a request of the Messages API."""
    request = read(text)
    prompt = {key: unmarked(request[key]) for key in ("messages", "system", "tools") if key in request}
    for message in prompt["messages"]:
        message["content"] = unmarked(message["content"])
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_result" and "content" in block:
                block["content"] = unmarked(block["content"])
    return hashlib.sha256(written(prompt).encode()).hexdigest()


def read(text: str | bytes) -> object:
    return json.loads(text, parse_constant=refuse)


def refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def unmarked(value: object) -> object:
    """A list of blocks or tools without their `cache_control`; anything else as it is."""
    if not isinstance(value, list):
        return value
    return [{key: held for key, held in item.items() if key != "cache_control"} for item in value]


def written(value: object) -> str:
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case int() | float():
            return repr(value)
        case str():
            return '"' + ESCAPED.sub(escape, value) + '"'
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case dict():
            return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in sorted(value)) + "}"
    raise TypeError(type(value))


def escape(match: re.Match[str]) -> str:
    return SHORT.get(match[0]) or f"\\u{ord(match[0]):04x}"


if __name__ == "__main__":
    sys.stdout.write(prompt_hash(sys.stdin.buffer.read()) + "\n")
