"""Token counts of a call under the names of the Messages API, whose `input_tokens` exclude cached input."""

from __future__ import annotations

from typing import Any


def of_chat(reported: Any) -> dict[str, int]:
    """Those of a chat completion; empty if it has none."""
    if not isinstance(reported, dict):
        return {}
    cached, written = _cached(reported.get("prompt_tokens_details"))
    written = reported.get("cache_creation_input_tokens", written)
    return token_counts(reported.get("prompt_tokens"), cached, written, reported.get("completion_tokens"))


def of_responses(reported: Any) -> dict[str, int]:
    """Those of a response; empty if it has none."""
    if not isinstance(reported, dict):
        return {}
    cached, written = _cached(reported.get("input_tokens_details"))
    return token_counts(reported.get("input_tokens"), cached, written, reported.get("output_tokens"))


def token_counts(prompt: Any, cached: Any, written: Any, output: Any) -> dict[str, int]:
    """Those of a call by the tokens of its prompt, the ones read from the cache and written into it, and its output.

    Empty if the prompt or the output was not counted.
    """
    counts = [count if isinstance(count, int) and count >= 0 else None for count in (prompt, cached, written, output)]
    if counts[0] is None or counts[3] is None:
        return {}
    cached_count, written_count = counts[1] or 0, counts[2] or 0
    return {
        "input_tokens": max(0, counts[0] - cached_count - written_count),
        "cache_creation_input_tokens": written_count,
        "cache_read_input_tokens": cached_count,
        "output_tokens": counts[3],
    }


def _cached(details: Any) -> tuple[Any, Any]:
    """What of a prompt came from the cache and what was written into it, by OpenAI's details of the prompt's tokens."""
    return (details.get("cached_tokens"), details.get("cache_write_tokens")) if isinstance(details, dict) else (0, 0)
