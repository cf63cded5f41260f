"""What is done to a store while things go wrong, what of it was acknowledged, and whether it is there."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify import verify
from tests.making.conversation import human, reply, result, results
from tests.making.store import archive, complaints, contents

SESSION = "demo"


@dataclass
class Ledger:
    """What was acknowledged: scope and block → body; blocks that were archived. `refused` are bodies that were not."""

    blocks: dict[tuple[str, str], str] = field(default_factory=dict)
    archived: set[tuple[str, str]] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def read(self, lines: list[str]) -> None:
        """Takes in what a worker printed; the last line may be torn."""
        for line in lines:
            if not line.endswith("\n"):
                continue
            verb, scope, text = line.rstrip("\n").split(" ", 2)
            if verb == "block":
                block, body = text.split(" ", 1)
                assert (scope, block) not in self.blocks, f"{scope}:{block} was given twice"
                self.blocks[scope, block] = body
            elif verb == "archived":
                self.archived.add((scope, text))
            elif verb == "refused":
                self.refused.add(text)
            else:
                self.failures.append(text)


def work(path: Path, out: int, seed: int, name: str) -> None:
    """A handful of random operations; each line that is printed was acknowledged before. Errors of ours are printed."""
    chance = random.Random(seed)
    writers.FLUSH_STEPS = chance.choice([1, 1, 2, 8, 32])
    writers.TURN_SECONDS = chance.choice([0.0, 0.05, 1.0])

    def say(text: str) -> None:
        os.write(out, f"{text}\n".encode())

    def append(session: StoredSession, *messages: object) -> None:
        for message in messages:
            bodies = [part.body.decode() for part in message.parts]  # type: ignore[attr-defined]
            try:
                # Where another writer's calls were open, their interrupted results come first.
                ids = session.append(message)[-len(bodies) :]  # type: ignore[arg-type]
            except CtxvcError:
                for body in bodies:
                    say(f"refused - {body}")
                raise
            for block, body in zip(ids, bodies, strict=True):
                say(f"block {session.scope} {block} {body}")

    def step(session: StoredSession, number: int) -> None:
        call = f"{name}-{number}"
        append(session, human(f"{call} question"), reply(f"{call} answer", call), results(result(call, f"{call} out")))

    def switch(session: StoredSession, number: int) -> None:
        session.open_scope(f"{name}-{number}", "to look")
        append(session, human(f"{name}-{number} there"), reply(f"{name}-{number} seen"))
        session.goto("main", "looked")

    def leave(session: StoredSession, number: int) -> None:
        rows = [row for row in session.ledger("main").rows() if row.state == "visible" and row.kind == "tool_result"]
        if rows:
            row = chance.choice(rows)
            archive(session, row.id, scope="main")
            say(f"archived main {row.id}")

    try:
        with Store(path) as store, StoredSession.open(store, SESSION, "main") as session:
            for number in range(chance.randrange(3, 7)):
                operation = chance.choice([step, step, step, leave, switch])
                try:
                    operation(session, number)
                except CtxvcError:
                    if session.scope != "main":
                        break
    except CtxvcError:
        pass
    except BaseException as error:
        say(f"failure - {error!r}")
        raise


def missing(path: Path, ledger: Ledger) -> list[str]:
    """What was acknowledged and is not there, or stands otherwise. Flushes, and so shows that the store works."""
    absent = []
    with Store(path) as store, StoredSession.open(store, SESSION, "main") as session:
        scopes = {scope for scope, _ in ledger.blocks}
        bodies = {scope: contents(session, scope) for scope in scopes & set(session.scopes())}
        for (scope, block), body in ledger.blocks.items():
            if bodies.get(scope, {}).get(block) != body.encode():
                absent.append(f"{scope}:{block} {body}")
        rows = {row.id: row.state for row in session.ledger("main").rows()}
        absent += [f"{block} is {rows.get(block)}" for _, block in ledger.archived if rows.get(block) != "archived"]
        session.finish()
        if session.flush_failure is not None:
            absent.append(f"no flush: {session.flush_failure}")
    return absent


def uninvited(path: Path, ledger: Ledger) -> list[str]:
    """What was refused and is there nevertheless."""
    with Store(path) as store, StoredSession.open(store, SESSION, "main") as session:
        bodies = {body.decode() for scope in session.scopes() for body in contents(session, scope).values()}
    return sorted(f"{body} was refused, and is there" for body in ledger.refused & bodies)


def unsound(path: Path) -> list[str]:
    """What git and ctxvc find wrong."""
    with Store(path) as store:
        damages = [str(finding) for finding in verify.verify(store).findings if finding.level == "damage"]
    return [*damages, *filter(None, [complaints(path)])]
