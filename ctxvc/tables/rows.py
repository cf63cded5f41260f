"""The table: its parts, and a struct for a row of each. Pure. `docs/table.md` is made of the descriptions here."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

#: Grows when the meaning of a row changes.
FORMAT = 2


def column(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


Time = Annotated[str, column("ISO 8601, UTC")]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of every row."""

    project: Annotated[str, column("the project's folder")]
    writer: Annotated[str, column("the clone that recorded the session; `local` for a store that was never shared")]
    session: Annotated[str, column("its name in the store")]


class SessionRow(Row, frozen=True, kw_only=True):
    """A session. What it counts covers all its scopes."""

    agent: Annotated[str, column("the program that ran it; the format of the recording where it does not say")]
    model: Annotated[str, column("the model of its current scope")]
    branch: Annotated[str, column("the project's git branch as it was recorded; empty if unknown")]
    started: Time
    updated: Time
    scopes: int
    turns: int
    steps: int
    blocks: int
    bytes: Annotated[int, column("of all bodies")]
    blocks_left: Annotated[int, column("blocks that are out of the prompt")]
    reads: Annotated[int, column("how often blocks that had left were read")]
    compactions: Annotated[int, column("of its host's, and summaries of ours")]
    title: Annotated[str | None, column("the recording's title; null without text")]


class CallRow(Row, frozen=True, kw_only=True):
    """A call of a model: a step's, or a policy's own."""

    scope: str
    commit: Annotated[str, column("full id of the commit that has the reply")]
    time: Annotated[str, column("of the step's last message, ISO 8601, UTC; of its import where nothing tells it")]
    step: int
    turn: int
    agent: str
    model: Annotated[str, column("as the reply names it, else the scope's")]
    branch: str
    planner: Annotated[bool, column("whether a policy asked, rather than the agent")]
    has_usage: Annotated[bool, column("whether the provider's count is recorded; without it, tokens are 0")]
    fresh: Annotated[int, column("tokens of the prompt that were neither read from the cache nor written into it")]
    cache_read: Annotated[int, column("those that were read from it")]
    cache_written: Annotated[int, column("those that were written into it")]
    cache_hour: Annotated[int, column("those of them that stay for an hour, at a higher price")]
    output: int
    cost: Annotated[float | None, column("dollars at list prices; null without a count or a known price")]
    waited_model: Annotated[
        int | None, column("seconds from the last message or result before the reply to its end; null if unknown")
    ]
    waited_tools: Annotated[
        int | None, column("seconds from there to the last result of its tools; null if it called none, or unknown")
    ]
    pause: Annotated[int | None, column("seconds since the call before it in the scope; null for the first")]
    before: Annotated[
        int | None, column("tokens of that call's prompt, which the provider's cache may have; null if not counted")
    ]
    tools: Annotated[list[str], column("the tools that its reply called, one a call")]
    failed: Annotated[list[str], column("those of them whose result is an error")]
    changed: Annotated[str, column("on the wire: what differs from the request before besides the conversation")]


class BlockRow(Row, frozen=True, kw_only=True):
    """A block: its size, its kind and its life."""

    scope: Annotated[str, column("the first scope that has it")]
    block: Annotated[str, column("`B17`")]
    sha256: str
    kind: str
    role: str
    origin: Annotated[str, column("`human`, `client`, `model`, `tool`")]
    tool: str
    error: bool
    step: int
    turn: int
    time: Time
    bytes: int
    state: str
    group: str
    removed_by: str
    reads: int
    left_step: Annotated[
        int | None, column("the scope's step when it left the prompt; null if it is there, or unknown")
    ]
    text: Annotated[str | None, column("what it holds, without secrets; null without text")]


class FileRow(Row, frozen=True, kw_only=True):
    """What a call did to a file."""

    scope: str
    block: Annotated[str, column("the call")]
    commit: Annotated[str, column("of the step, as in `calls`; empty if it is not known")]
    step: int
    turn: int
    time: Time
    tool: str
    act: Annotated[str, column("`read`, `edited`, `wrote`, `deleted`")]
    path: Annotated[str, column("below the session's folder, else as the call names it")]
    error: bool
    bytes: Annotated[int, column("of the call and its result")]
    cost: Annotated[
        float | None,
        column("its part of what the model's call cost, which is divided evenly among the files of a step"),
    ]


class EventRow(Row, frozen=True, kw_only=True):
    """A change of the context that is no step: a compaction, a verb, a switch, a failure of the provider."""

    scope: str
    commit: str
    time: Time
    step: Annotated[int, column("the scope's newest step before it")]
    op: str
    actor: str
    blocks: Annotated[int, column("blocks and groups that it names, 200 at most")]
    freed: Annotated[int, column("tokens that left by it")]
    fault: str
    detail: Annotated[str, column("what a host noted of its compaction")]


class Rows(NamedTuple):
    """The rows of sessions, by the part of the table. Without files and text, no bodies are read for them."""

    sessions: list[SessionRow]
    calls: list[CallRow]
    blocks: list[BlockRow]
    files: list[FileRow]
    events: list[EventRow]


#: The parts of the table, in their order.
PARTS: dict[str, type[Row]] = {
    "sessions": SessionRow,
    "calls": CallRow,
    "blocks": BlockRow,
    "files": FileRow,
    "events": EventRow,
}
