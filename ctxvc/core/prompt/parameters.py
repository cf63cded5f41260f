"""The parameters of a recorded request: what its body says besides the conversation."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

#: Fields of all providers' requests that have a place of their own, or are other ones in each request.
_NONE = frozenset(
    {"messages", "input", "contents", "system", "instructions", "systemInstruction", "system_instruction", "tools"}
    | {"metadata", "stream", "previous_response_id", "conversation", "client_metadata"}
)
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parameters(body: bytes) -> Mapping[str, bytes]:
    """The top-level fields of a body that are parameters: name → JSON. None for a body that is no JSON object."""
    try:
        fields = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return {name: bytes(value) for name, value in fields.items() if name not in _NONE}
