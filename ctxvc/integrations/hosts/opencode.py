"""Messages of opencode (`{info, parts}`), in the Messages API's form and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core.ledger.block import Origin
from ctxvc.integrations.conversation import FrameworkMessage
from ctxvc.integrations.hosts.message import OF, Edit, Piece

NAME = "opencode"
MISSING = ("the system prompt", "the tool definitions", "opencode's own words around files and summaries")
RESULTS_INSIDE = True

_DATA_URL = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,(.*)", re.DOTALL)
_ENDED = frozenset({"completed", "error"})


def key(raw: Mapping[str, Any]) -> str:
    """Role and moment: a fork has new ids, and the old moments."""
    match raw.get("info"):
        case {"role": "user" | "assistant" as role, "time": {"created": int(moment)}}:
            return f"{role}:{moment}"
    return ""


def role(raw: Mapping[str, Any]) -> str:
    return "assistant" if _info(raw).get("role") == "assistant" else "user"


def pieces(raw: Mapping[str, Any], key: str) -> list[Piece]:
    """A message, and of a reply each of its results."""
    if role(raw) == "user":
        return _piece(key, "user", list(_incoming(raw)), {}, [_origin(part) for part in _parts(raw)])
    tokens = _info(raw).get("tokens")
    model = _info(raw).get("modelID")
    about = {"model": model if isinstance(model, str) else "", "usage": _usage(tokens)}
    reply = _piece(key, "assistant", list(_reply(raw)), about)
    result: dict[str, Any]
    for place, part in enumerate(_parts(raw)):
        match part:
            case {"type": "tool", "callID": str(call), "state": {"status": "completed", "output": str(output)}} if call:
                result = {"type": "tool_result", "tool_use_id": call, "content": output}
            case {"type": "tool", "callID": str(call), "state": {"status": "error", "error": str(error)}} if call:
                result = {"type": "tool_result", "tool_use_id": call, "content": error, "is_error": True}
            case _:
                continue
        message = {"role": "user", "content": [result]}
        answer = FrameworkMessage(id=f"{key}/{call}", message=message, source=None, origin="client", record={OF: key})
        reply.append(Piece(answer, (place,)))
    return reply


def edited(raw: Mapping[str, Any], edit: Edit) -> dict[str, Any] | None:
    parts: list[Any] = []
    for place, part in enumerate(_parts(raw)):
        if place in edit.dropped:
            continue
        parts.append(_showing(part, edit.replaced[place]) if place in edit.replaced else part)
    parts += _own_parts(edit.appended, raw)
    if not any(_speaks(part) for part in parts):
        return None
    return {**raw, "parts": parts}


def is_summary(raw: Mapping[str, Any]) -> bool:
    return _info(raw).get("summary") is True and role(raw) == "assistant"


def own(texts: Sequence[str], near: Mapping[str, Any] | None) -> dict[str, Any]:
    info = _info(near) if near else {}
    fields = {name: info[name] for name in ("sessionID", "agent", "model", "time") if name in info}
    model = {"providerID": info.get("providerID", ""), "modelID": info.get("modelID", "")}
    ours = {"id": f"{info.get('id', 'msg')}-ctxvc", "role": "user", "agent": info.get("mode", ""), "model": model}
    message = {"info": {**ours, **fields}, "parts": []}
    return {**message, "parts": _own_parts(texts, message)}


def _piece(
    key: str,
    role: str,
    blocks: Sequence[tuple[int, dict[str, Any]]],
    about: Mapping[str, Any],
    origins: Sequence[Origin] = (),
) -> list[Piece]:
    """`origins` has one for each part of the host's message; none for a reply."""
    if not blocks:
        return []
    message = {"role": role, "content": [block for _, block in blocks], **about}
    own = [origins[place] for place, _ in blocks] if origins else ()
    recorded = FrameworkMessage(id=key, message=message, source=None, origins=own)
    return [Piece(recorded, tuple(place for place, _ in blocks))]


def _info(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    info = raw.get("info")
    return info if isinstance(info, Mapping) else {}


def _parts(raw: Mapping[str, Any]) -> list[Any]:
    parts = raw.get("parts")
    return parts if isinstance(parts, list) else []


def _incoming(raw: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, part in enumerate(_parts(raw)):
        match part:
            case {"type": "text", "ignored": True}:
                continue
            case {"type": "text", "text": str(text)} if text:
                yield place, {"type": "text", "text": text}
            case {"type": "file", "url": str(url)} if image := _image(url):
                yield place, image


def _reply(raw: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, part in enumerate(_parts(raw)):
        match part:
            case {"type": "text", "text": str(text)} if text:
                yield place, {"type": "text", "text": text}
            case {"type": "reasoning", "text": str(text)} if text:
                yield place, {"type": "thinking", "thinking": text}
            case {"type": "tool", "callID": str(call), "tool": str(name), "state": {"status": str()} as state} if call:
                arguments = state.get("input")
                fit = arguments if isinstance(arguments, dict) else {}
                yield place, {"type": "tool_use", "id": call, "name": name, "input": fit}


def _image(url: str) -> dict[str, Any] | None:
    match = _DATA_URL.fullmatch(url)
    if not match:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": match[1], "data": match[2]}}


def _origin(part: Any) -> Origin:
    """`client` for what opencode put in, as the content of a file that a person named."""
    return "client" if isinstance(part, Mapping) and part.get("synthetic") is True else "human"


def _usage(tokens: Any) -> dict[str, int]:
    match tokens:
        case {"input": int(fresh), "output": int(output), "cache": {"read": int(read), "write": int(write)}}:
            counts = {
                "input_tokens": fresh,
                "output_tokens": output,
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": write,
            }
            return counts if any(counts.values()) else {}
    return {}


def _showing(part: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The part with another text, or another result."""
    state = part.get("state")
    if part.get("type") != "tool" or not isinstance(state, Mapping):
        return {**part, "type": "text", "text": text}
    field = "error" if state.get("status") == "error" else "output"
    return {**part, "state": {**state, field: text}}


def _own_parts(texts: Sequence[str], message: Mapping[str, Any]) -> list[dict[str, Any]]:
    info = _info(message)
    return [
        {
            "id": f"prt_ctxvc_{number}",
            "sessionID": info.get("sessionID", ""),
            "messageID": info.get("id", ""),
            "type": "text",
            "text": text,
            "synthetic": True,
        }
        for number, text in enumerate(texts)
    ]


def _speaks(part: Any) -> bool:
    """Whether the model is sent something for the part besides thinking, or cannot tell."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind not in ("reasoning", "step-start", "step-finish", "snapshot", "patch")
