"""Contexts to measure: steps of three blocks of 2 kB, as many as wanted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Event, Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.store import Store, create

WORDS = [f"{random.Random(seed).getrandbits(40):x}" for seed in range(512)]


def text(seed: int, size: int = 2000) -> str:
    """About `size` characters that compress like source code rather than like one repeated letter."""
    chance = random.Random(seed)
    return " ".join(chance.choices(WORDS, k=size // 10))[:size]


def step(number: int) -> tuple[Message, Message]:
    """A reply with a call, and its result: three blocks."""
    call = f"toolu_{number}"
    return (
        Message(
            role="assistant",
            reply=f"m{number}",
            parts=(
                wire.text_part(text(3 * number), "assistant", "model"),
                wire.call_part("Bash", call, wire.compact({"command": text(3 * number + 1, 1980)})),
            ),
        ),
        Message(role="user", parts=(wire.result_part(text(3 * number + 2), call),)),
    )


def events(blocks: int) -> Iterator[Event]:
    """A recording of so many blocks."""
    yield Opened(format="made", source=f"made-{blocks}", name=f"made-{blocks}")
    yield Said(message=Message(role="user", parts=(wire.text_part("go", "user", "human"),)), end=1)
    for number in range(blocks // 3):
        for message in step(number):
            yield Said(message=message, end=number + 2)


def store_of(folder: Path, blocks: int) -> Store:
    """A store with one session of so many blocks."""
    store = create(folder / f"{blocks}" / ".ctxvc")
    ingest(store, events(blocks), final=True)
    return store
