"""A process that works in scopes of its own: `switching.py STORE NAME COUNT`.

It says `ready`, waits for a line, and COUNT times leaves main for a new scope, works there and comes back. It prints
`ID BODY` for every block whose append has returned.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def say(session: StoredSession, *messages: Message) -> None:
    ids = session.append(*messages)
    parts = [part for message in messages for part in message.parts]
    for block, part in zip(ids[-len(parts) :], parts, strict=True):
        os.write(1, f"{block} {part.body.decode()}\n".encode())


def main(path: str, name: str, count: int) -> None:
    with Store(Path(path)) as store, StoredSession.open(store, "demo", "main") as session:
        os.write(1, b"ready\n")
        sys.stdin.readline()
        for number in range(count):
            here = f"{name}-{number}"
            session.open_scope(here, "to work")
            say(session, Message(role="user", parts=(text_part(f"{here} asks", "user", "human"),)))
            call = call_part("goto", here, b'{"name":"main"}')
            say(session, Message(role="assistant", parts=(call,)))
            os.write(1, f"{session.note(f'{here} learned')} {here} learned\n".encode())
            session.goto("main", "worked")
            say(session, Message(role="user", parts=(result_part(f"{here} done", here),)))
            assert session.scope == "main"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
