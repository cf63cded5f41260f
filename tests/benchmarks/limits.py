"""What bounds the time of hostile or giant input: the search for secrets, thousands of scopes, a slow pattern."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ctxvc.core import scoping, wire
from ctxvc.core.blocks import Message
from ctxvc.core.ledger import Ledger, Row
from ctxvc.core.numbering import Body, Numbering
from ctxvc.store.packs import Commit, PackWriter
from ctxvc.store.refs import ref_of
from ctxvc.store.store import Store, create

SESSION = "many"
#: 2026-01-01: a store that is made twice has the same commits.
_MOMENT = 1_767_225_600


def store_of_scopes(folder: Path, count: int) -> Store:
    """A store with a session in which somebody left `main` for so many scopes, and came back from each.

    Each inherits the notes of all before it. The commits go straight to git, as those of an import do.
    """
    store = create(folder / ".ctxvc")
    store.create_session(SESSION)
    with store.writer(SESSION) as writer, writer.bulk() as (packs, _):
        _write_scopes(packs, writer.ledger("main"), writer.tip("main"), count)
    return store


def _write_scopes(packs: PackWriter, main: Ledger, tip: str, count: int) -> None:
    block = 0

    def add(ledger: Ledger, message: Message, *, aside: bool) -> tuple[Ledger, tuple[Body, ...]]:
        nonlocal block
        numbering = Numbering.of(ledger, block)
        rows: list[Row]
        bodies: list[Body]
        if aside:
            rows, bodies = numbering.aside(message)
        else:
            entries = numbering.add(message)
            rows = [row for entry in entries for row in entry.rows]
            bodies = [body for entry in entries for body in entry.bodies]
        block = numbering.block
        counters = numbering.counters(0)
        return ledger.with_rows(rows).with_meta(msgspec.structs.replace(ledger.meta, counters=counters)), tuple(bodies)

    def commit(scope: str, op: str, before: Ledger, after: Ledger, bodies: tuple[Body, ...] = (), of: str = "") -> str:
        return packs.commit(
            Commit(
                ref=ref_of(SESSION, scope),
                before=before,
                after=after,
                message=f"{op} {scope}\n\nCtxvc-Op: {op}\nCtxvc-Actor: agent\n",
                actor="agent",
                time=_MOMENT,
                now=_MOMENT,
                bodies=bodies,
                parent=of,
            )
        )

    for message in (
        Message(role="user", parts=(wire.text_part("go", "user", "human"),)),
        Message(role="assistant", reply="m", parts=(wire.text_part("ok", "assistant", "model"),)),
    ):
        after, bodies = add(main, message, aside=False)
        tip = commit("main", "step", main, after, bodies, tip)
        main = after
    for number in range(count):
        scope = f"s{number}"
        for words, switch in (
            (scoping.departure(scope, "why"), {"to": scope}),
            (scoping.arrival(scope, "done"), {"left": scope}),
        ):
            message = Message(role="user", parts=(scoping.note(words, "agent", **switch),))
            after, bodies = add(main, message, aside=True)
            tip = commit("main", "note", main, after, bodies, tip)
            main = after
            if "to" in switch:
                segments = dict(main.segments)
                segments[0] = tuple(row for row in segments[0] if row.kind == "note")
                meta = msgspec.structs.replace(
                    main.meta, scope=scope, parent="main", counters=scoping.first_counters(main)
                )
                commit(scope, "scope", main, Ledger(meta=meta, segments=segments), of=tip)


def first_lines(figures: Iterator[str], count: int) -> list[str]:
    return list(islice(figures, count))
