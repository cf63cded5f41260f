"""The token counts of a call, as its provider reported them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The counts that a prompt and its reply are made of, in the words of both APIs.
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


#: Those of the tokens written into the cache that stay for an hour: a part of another count.
HOUR = "ephemeral_1h_input_tokens"


def counts(reported: Any) -> dict[str, int]:
    """The plain token counts of a usage object. None where one that a prompt is made of is no number: then the others
    do not add up to its size."""
    if not isinstance(reported, Mapping):
        return {}
    if any(type(reported.get(name, 0)) not in (int, type(None)) for name in _COUNTS):
        return {}
    result = {name: count for name, count in reported.items() if type(count) is int}
    match reported.get("cache_creation"):
        case {"ephemeral_1h_input_tokens": int(count)} if count > 0:
            result.setdefault(HOUR, count)  # they cost more than those for five minutes
    return result


def total(counts: Mapping[str, int]) -> int:
    """The tokens of a prompt and its reply, by the counts of a call in the words of the Messages API."""
    return sum(count for name, count in counts.items() if name != HOUR)


def sound(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a call; none of them if one is negative, as then it is not known what the others are."""
    return dict(counts) if all(count >= 0 for count in counts.values()) else {}
