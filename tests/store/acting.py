"""A process that acts on a store: `acting.py STORE WHAT NAME COUNT`; it says `ready`, and waits for a line.

`session` makes a session of that name and says how it went. `plans` puts COUNT plans (0: until it is killed) and drops
every second. `scopes` COUNT times leaves main for a new scope, works there and comes back, and prints `ID BODY` for
each block whose append has returned.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.plan import Action, Plan
from ctxvc.errors import CtxvcError
from ctxvc.store import pending_plans
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def make_session(store: Store, name: str, _: int) -> None:
    try:
        store.create_session(name)
    except CtxvcError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say("made")


def put_plans(store: Store, name: str, count: int) -> None:
    for number in itertools.count(1) if count == 0 else range(1, count + 1):
        plan = Plan(actions=(Action(verb="mask", targets=(f"B{number}",)),), actor=f"policy:{name}")
        put = pending_plans.put(store, "demo", "main", plan, base_commit="", time="")
        say(f"put {put.id} {name} {number}")
        if number % 2 == 0:
            say(f"drop {put.id}")  # before: killed in between, it may be gone or not
            pending_plans.drop(store, "demo", [put.id], "stale")
            say(f"dropped {put.id}")


def work_in_scopes(store: Store, name: str, count: int) -> None:
    def append(message: Message) -> None:
        (block,) = session.append(message)[-1:]
        say(f"{block} {message.parts[0].body.decode()}")

    with StoredSession.open(store, "demo", "main") as session:
        for number in range(count):
            here = f"{name}-{number}"
            session.open_scope(here, "to work")
            append(Message(role="user", parts=(text_part(f"{here} asks", "user", "human"),)))
            append(Message(role="assistant", parts=(call_part("goto", here, b'{"name":"main"}'),)))
            say(f"{session.note(f'{here} learned')} {here} learned")
            session.goto("main", "worked")
            append(Message(role="user", parts=(result_part(f"{here} done", here),)))
            assert session.scope == "main"


if __name__ == "__main__":
    _, path, what, name, count = sys.argv
    with Store(Path(path)) as store:
        say("ready")
        sys.stdin.readline()
        {"session": make_session, "plans": put_plans, "scopes": work_in_scopes}[what](store, name, int(count))
