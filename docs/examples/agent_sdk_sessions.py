"""Sessions of the Claude Agent SDK in a store, without the SDK's client and so without a key.

`python agent_sdk_sessions.py STORE` adds a turn to a transcript, as the SDK does while an agent works, and lists what
is there. `ctxvc log` in the same folder shows the conversation.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ctxvc.integrations.claude_agent_sdk import CtxvcSessionStore

KEY: Any = {"project_key": "-src-app", "session_id": "6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a"}


def line(number: int, role: str, text: str) -> dict[str, Any]:
    """A line of a transcript, as the client writes them."""
    return {
        "type": role,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "sessionId": KEY["session_id"],
        "cwd": "/src/app",
        "version": "2.1.300",
        "timestamp": f"2026-11-01T10:{number // 60:02}:{number % 60:02}.000Z",
        "message": {"role": role, "content": [{"type": "text", "text": text}]},
    }


async def main(store: str) -> None:
    with CtxvcSessionStore(store) as sessions:
        number = len(await sessions.load(KEY) or ())
        entries = [line(number, "user", f"Question {number}?"), line(number + 1, "assistant", f"Answer {number}.")]
        await sessions.append(KEY, entries)
        await sessions.append(KEY, entries)  # as after a time-out: nothing is there twice
        print(f"{len(await sessions.load(KEY) or ())} entries")
        for session in await sessions.list_sessions(KEY["project_key"]):
            print(session["session_id"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
