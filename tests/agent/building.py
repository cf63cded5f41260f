"""What the tests of the adapter share: a session with tools, loops on the real client, and what must hold after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anthropic

from ctxvc.agent import Adapter, AsyncAdapter, Reply, definitions
from ctxvc.core.policy import Policy
from ctxvc.session.session import Session
from tests.making.provider import MODEL, SYSTEM, WORDS, only_the_newest_is_dropped, plain
from tests.messages_api import MessagesApi
from tests.messages_api.wire import Block

SH: Block = {
    "name": "sh",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"cmd": {"type": "string"}}},
}
#: What runs a tool: the result block of a call.
Run = Callable[[Block], Block]


def opened(
    path: Path, name: str = "demo", *, budget: int = 32_000, own: Sequence[Block] = (SH,), **more: Any
) -> Session:
    """A session with the agent's own tools and all context tools, or those of its policy.

    A new one counts its tokens as they are.
    """
    new = not path.exists()
    policy = more.get("policy")
    terms = policy.terms() if isinstance(policy, Policy) else None
    session = Session.open(
        path, name, model=MODEL, budget=budget, system=SYSTEM, tools=definitions(terms, own=own), **more
    )
    return plain(session) if new else session


def output(call: Block, lines: int = 60) -> str:
    """What a command says: about 18 tokens a line, no two the same."""
    return "".join(f"{call['id']} {line} {WORDS}" for line in range(lines))


def ran(call: Block) -> Block:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": output(call)}


# --- loops


def sync_client(api: MessagesApi) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0)


def async_client(api: MessagesApi) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="test", base_url=api.url, max_retries=0)


def whole(client: anthropic.Anthropic, asked: dict[str, Any]) -> object:
    return client.messages.create(**asked)


def streamed(client: anthropic.Anthropic, asked: dict[str, Any]) -> object:
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def loop(
    adapter: Adapter, client: anthropic.Anthropic, ask: Callable[[anthropic.Anthropic, dict[str, Any]], object] = whole,
    run: Run = ran, **more: Any,
) -> Reply:  # fmt: skip
    """The loop of the how-to, until the model has had its say."""
    while (reply := adapter.record(ask(client, adapter.request(**more)))).goes_on:
        adapter.results([adapter.handle(call) or run(call) for call in reply.calls])
    return reply


async def whole_async(client: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> object:
    return await client.messages.create(**asked)


async def streamed_async(client: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> object:
    async with client.messages.stream(**asked) as stream:
        return await stream.get_final_message()


async def loop_async(
    adapter: AsyncAdapter, client: anthropic.AsyncAnthropic, ask: Callable[..., Any] = whole_async, run: Run = ran,
) -> Reply:  # fmt: skip
    while (reply := await adapter.record(await ask(client, await adapter.request()))).goes_on:
        await adapter.results([await adapter.handle(call) or run(call) for call in reply.calls])
    return reply


# --- what must hold


def results_of(session: Session, tool: str, scope: str = "") -> Iterator[tuple[str, bool]]:
    """What the calls of a tool were answered, oldest first, and whether as an error."""
    for row in session.ledger(scope).rows():
        if row.kind == "tool_result" and row.tool == tool:
            yield session.stored.body(row, scope).decode("utf-8", "replace"), row.error


def nothing_rejected(api: MessagesApi) -> None:
    assert {call.status for call in api.calls} == {200}


def only_the_newest_thinking_was_dropped(api: MessagesApi) -> None:
    dropped: set[str] = set()
    for call in api.calls:
        only_the_newest_is_dropped(call.body, call.answer, dropped)
