"""The SDK's own client on our server, in memory: it judges each answer by the protocol's types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from ctxvc.mcp.contract import Offer
from ctxvc.mcp.protocol import Connection


def client(offer: Offer, mode: Any = "auto") -> Client:
    """A client of `offer`; what fails in it is raised."""
    return Client(_wire(Connection(offer, _raised)), mode=mode)


def _raised(error: Exception) -> None:
    raise error


@asynccontextmanager
async def _wire(connection: Connection) -> AsyncIterator[Any]:
    answers, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, asked = anyio.create_memory_object_stream[SessionMessage](0)

    async def serve() -> None:
        async with asked, answers:
            async for one in asked:
                line = one.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                if reply := await anyio.to_thread.run_sync(connection.answer, line):
                    await answers.send(SessionMessage(jsonrpc_message_adapter.validate_json(reply, by_name=False)))

    async with anyio.create_task_group() as group, read, write:
        group.start_soon(serve)
        yield read, write
        group.cancel_scope.cancel()
