"""The token counts of a call, as its provider reported them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The counts that a prompt and its reply consist of, by their names in both APIs.
_COUNTS = frozenset(
    {
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
    }
)


#: The tokens written into the cache for an hour, which are part of another count.
HOUR = "ephemeral_1h_input_tokens"


def counts(reported: Any) -> dict[str, int]:
    """The plain token counts of a usage object; none if one that a prompt consists of is not a number.

    Otherwise the others would not add up to the prompt's size.
    """
    if not isinstance(reported, Mapping):
        return {}
    if any(type(reported.get(name, 0)) not in (int, type(None)) for name in _COUNTS):
        return {}
    result = {name: count for name, count in reported.items() if type(count) is int}
    match reported.get("cache_creation"):
        case {"ephemeral_1h_input_tokens": int(count)} if count > 0:
            result.setdefault(HOUR, count)  # they cost more than those cached for five minutes
    return result


def total(counts: Mapping[str, int]) -> int:
    """The tokens of a prompt and its reply, from a call's counts under their Messages API names."""
    return sum(count for name, count in counts.items() if name != HOUR)


def sound(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a call; none if one is negative, because the others are then unreliable."""
    return dict(counts) if all(count >= 0 for count in counts.values()) else {}
