"""Whole runs of an agent on the real client: forty steps, thinking bound to its prefix, every context tool in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.agent import Adapter, AsyncAdapter
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import damages, groups_fit, humans_gone
from tests.messages_api import MessagesApi, call, serve, text, thought
from tests.messages_api.wire import Block

from .building import (
    async_client,
    loop,
    loop_async,
    nothing_rejected,
    only_the_newest_thinking_was_dropped,
    opened,
    results_of,
    streamed,
    streamed_async,
    sync_client,
    whole,
    whole_async,
)

STEPS = 40


def life(session: Session) -> Iterator[list[Block]]:
    """What the model says in its life: a shell in each step, and beside it what the step is for."""

    def rows(present: bool) -> list[str]:
        return [row.id for row in session.ledger().rows() if row.kind == "tool_result" and row.present is present]

    beside: dict[int, Callable[[], list[Block]]] = {
        3: lambda: [call("delimiter", action="start", type="expl", name="look")],
        5: lambda: [call("archive", blocks=",".join(rows(True)[:3]), index="the first runs")],
        7: lambda: [call("recover", block=next(iter(session.ledger().groups))), call("recover", block=rows(False)[0])],
        8: lambda: [call("recover", block=rows(False)[0], lines="2:4"), call("search", pattern="quick brown")],
        10: lambda: [call("restore", blocks=rows(False)[0]), call("scopes"), call("notes")],
        12: lambda: [call("delimiter", action="end", description="the parser is wrong in line 40")],
        14: lambda: [call("note", text="The parser is wrong in line 40.")],
        18: lambda: [call("scope", name="parser", note="Mend the parser.")],
        22: lambda: [call("note", text="Steps so far led nowhere.", fold=True)],
        25: lambda: [call("goto", name="main", note="The parser is mended.")],
        28: lambda: [call("archive", blocks=rows(True)[-6:-3]), call("archive", blocks="B1")],
        31: lambda: [call("delete", blocks=rows(False)[0], reason="nobody needs it")],
        34: lambda: [call("goto", name="parser", note="again"), call("goto", name="main", note="twice in one step")],
        36: lambda: [call("goto", name="main", note="done")],
    }  # fmt: skip
    for number in range(1, STEPS):
        said = [thought(f"Step {number}."), text(f"I do step {number}."), call("sh", cmd=f"make {number}")]
        yield [*said, *beside.get(number, list)()]
    yield [thought("That was all."), text("The tests pass.")]


def alive(session: Session) -> Callable[[Any], list[Block]]:
    blockses = life(session)
    return lambda _: next(blockses)


def lived(session: Session, api: MessagesApi, place: Path) -> None:
    """What must hold after that life, however it was told."""
    assert len(api.calls) == STEPS
    nothing_rejected(api)
    only_the_newest_thinking_was_dropped(api)
    assert session.scope == "main"
    assert [note.text for note in session.notes()] == [
        "The parser is wrong in line 40.",
        "[→ parser] Mend the parser.",
        "[← parser] The parser is mended.",
        "[← parser] done",
    ]
    refused = [words for words, error in results_of(session, "goto", "main") if error]
    assert len(refused) == 1
    assert "already pending" in refused[0]
    assert all("recovered" in words for words, _ in results_of(session, "recover", "main"))
    assert any("quick brown" in words for words, _ in results_of(session, "search", "main"))
    assert not humans_gone(session.ledger())
    groups_fit(session.ledger())
    session.close()
    with Store(place) as store:
        assert not damages(store)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_life_of_forty_steps_is_never_rejected(place: Path, ask: Callable[..., object]) -> None:
    session = opened(place)
    adapter = Adapter(session)
    adapter.append({"role": "user", "content": "Make the tests pass."})
    with serve(alive(session)) as api, sync_client(api) as client:
        reply = loop(adapter, client, ask)
        assert (reply.stop, reply.text, reply.goes_on) == ("done", "The tests pass.", False)
        lived(session, api, place)


@pytest.mark.parametrize("ask", [pytest.param(whole_async, marks=pytest.mark.slow), streamed_async])
def test_the_same_life_on_the_async_client(place: Path, ask: Callable[..., object]) -> None:
    session = opened(place)

    async def main(api: MessagesApi) -> None:
        adapter = AsyncAdapter(session)
        await adapter.append({"role": "user", "content": "Make the tests pass."})
        async with async_client(api) as client:
            reply = await loop_async(adapter, client, ask)
        assert reply.stop == "done"

    with serve(alive(session)) as api:
        asyncio.run(main(api))
        lived(session, api, place)
