"""A process that writes to a store and says what was acknowledged: `writer.py STORE SESSION SCOPE NAME COUNT [STEPS]`.

It says `ready`, waits for a line, appends COUNT steps of four blocks, and prints `ID BODY` for every block once its
append has returned. STEPS is how many steps make a flush. A COUNT of 0 goes on until it is killed.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def messages(name: str, number: int) -> list[Message]:
    call = f"{name}-{number}"
    return [
        Message(role="user", parts=(text_part(f"{call} question", "user", "human"),)),
        Message(
            role="assistant",
            parts=(
                text_part(f"{call} answer", "assistant", "model"),
                call_part("sh", call, f"{call} arguments".encode()),
            ),
        ),
        Message(role="user", parts=(result_part(f"{call} output\n" * 40, call),)),
    ]


def beginning(body: bytes) -> str:
    """What tells one body from all others."""
    return body[:40].split(b"output")[0].decode()


def main(path: str, session: str, scope: str, name: str, count: int, steps: int = 32) -> None:
    writers.FLUSH_STEPS = steps
    with Store(Path(path)) as store, StoredSession.open(store, session, scope) as opened:
        os.write(1, b"ready\n")
        sys.stdin.readline()
        for number in itertools.count(1) if count == 0 else range(1, count + 1):
            for message in messages(name, number):
                # Where another writer's calls were open, their interrupted results come first.
                ids = opened.append(message)[-len(message.parts) :]
                for block, part in zip(ids, message.parts, strict=True):
                    os.write(1, f"{block} {beginning(part.body)}\n".encode())


if __name__ == "__main__":
    _, path, session, scope, name, count, *steps = sys.argv
    main(path, session, scope, name, int(count), *map(int, steps))
