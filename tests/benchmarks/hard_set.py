"""`python -m tests.benchmarks.hard_set FOLDER…`: the recordings in which the results of tools fill the prompt most."""

from __future__ import annotations

import sys
from pathlib import Path

from ctxvc.replay.conversation import conversations_in
from ctxvc.replay.measures.hard_set import hard_set, tool_pressure
from ctxvc.tokens.count import count


def main() -> None:
    pressures: dict[str, int] = {}
    calls: dict[str, int] = {}
    for conversation in conversations_in(map(Path, sys.argv[1:])):
        name = f"{conversation.file}{' (set aside)' if conversation.aside else ''}"
        pressures[name] = tool_pressure(conversation, [count(block.text) for block in conversation.blocks])
        calls[name] = len(conversation.calls)
    for name in (hardest := hard_set(pressures)):
        print(f"{pressures[name]:9,} tokens in half of {calls[name]:4} prompts  {name}")
    print(f"{len(hardest)} of {len(pressures)} conversations")


if __name__ == "__main__":
    main()
