"""The JSON data of a page, by its fields. Pure.

Everything that grows with a session is a struct of arrays. Calls of the model are numbered from 0 in their order, over
all scopes of the report; `calls.n` is the call that would come next. A place in the history is the first call whose
prompt has the change in it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: What a block is in the prompt of a call: in it (three ways), represented by a stub, or not there.
STATES = ("visible", "pinned", "masked", "stub", "gone", "deleted")

MarkKind = Literal["compaction", "recover", "plan", "break", "scope", "undo", "note"]

#: How a piece of a prompt shows its block.
Form = Literal["whole", "cut", "stub", "group", "dashboard", "note"]

#: The kind of a part of a call, for people.
PartKind = Literal["diff", "file", "command", "tasks", "deleted"]

#: A place in the texts: start and length in bytes; -1 if it was left out.
Place = tuple[int, int] | int


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """A figure at the top: of a session `calls`, `peak`, `left`, `recovered`, `compactions` or `cost`.

    `value` is None if unknown; `text` is `value` for people.
    """

    name: str
    value: float | None
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a sentence and six numbers; `notes` say how to read them."""

    sentence: str
    numbers: list[Number]
    notes: list[str]


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of each call by their part in the provider's cache; estimated if not reported."""

    hits: list[int] = msgspec.field(name="read")
    write: list[int]
    fresh: list[int]
    output: list[int]


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of the model. All but `n` are arrays with an item a call.

    `total` is the size of the prompt (`tokens.prompt_size`), and `tokens` the same by kind, of which unrecorded tokens
    are one; `unmanaged` would be its size had nothing left. `reported` is the provider's count, None if the size is our
    estimate. `exact`: the prompt is certainly the one that was sent. `cost` and `cost_without` are dollars, the latter
    had nothing left; None if the usage or the price is unknown.
    """

    n: int
    step: list[int]
    turn: list[int]
    scope: list[int]
    commit: list[str]
    time: list[int | None]
    exact: list[bool]
    tokens: dict[str, list[int]]
    total: list[int]
    unmanaged: list[int]
    reported: list[int | None]
    cache: Cache
    cost: list[float | None]
    cost_without: list[float | None]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened before a call."""

    call: int
    kind: MarkKind
    label: str
    commit: str
    actor: str


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks, by scope; inherited blocks appear in each scope that has them.

    `intervals` are flat: from, to (exclusive), state (an index in `states`), from, …. `reads` are the calls after a
    reading. `body` is a place in the texts.
    """

    n: int
    id: list[str]
    kind: list[str]
    origin: list[str]
    label: list[str]
    tool: list[str]
    file: list[str]
    turn: list[int]
    step: list[int]
    tokens: list[int]
    scope: list[int]
    sha: list[str]
    intervals: list[list[int]]
    reads: list[list[int]]
    body: list[Place]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A change of blocks: its actor, policy, reason for all of them, and commit."""

    actor: str
    policy: str
    reason: str
    commit: str


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The effect of a change (`cause`, an index in `causes`) on a block.

    The reason for this block alone and the command that undoes the change are often empty.
    """

    block: int
    call: int
    verb: str
    cause: int
    reason: str = ""
    undo: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a prompt: `before`, then `text` or else the body of `block`, then `after`.

    A long `text` is a place in the texts. `blocks` are the members of a group behind its stub.
    """

    form: Form
    role: str
    kind: str
    tokens: int
    block: int = -1
    before: str = ""
    text: str | tuple[int, int] | None = None
    after: str = ""
    group: str = ""
    blocks: list[int] = []


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of every call, without system prompt and tools, which its scope has.

    `deltas` has for each call the splices of the prompt before: index, number of pieces removed, pieces inserted. They
    apply in order, each with the indices after those before it.
    """

    pieces: list[Piece]
    deltas: list[list[tuple[int, int, list[int]]]]


class ScopeNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note of a scope; `to` is the scope that it was written for on a switch, else -1."""

    call: int
    text: str
    to: int


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope. `calls` are its own, `spark` the tokens of their prompts. `system` and `tools` are places in the texts,
    -1 if not recorded.
    """

    name: str
    parent: int
    from_call: int
    calls: list[int]
    spark: list[int]
    notes: list[ScopeNote]
    agent: bool
    system: Place
    tools: Place


class CallPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a call for people; `text` is a place in the texts, the title a file or empty.

    `diff`: lines with a sign each; `file`: the new text of a file; `command`; `tasks`: a line each, with `x`, `>` or
    `-` for done, doing and open; `deleted`: only its title.
    """

    kind: PartKind
    title: str
    text: Place


class ToolCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of a tool: its block, its result's or -1, how it failed (empty if it did not), and its parts; without
    parts its arguments are shown.
    """

    block: int
    result: int
    ending: str
    parts: list[CallPart]


class Picture(msgspec.Struct, frozen=True, array_like=True):
    """An image of a block: its media type, and the place of its bytes in the texts."""

    block: int
    media: str
    place: Place


class Command(msgspec.Struct, frozen=True, array_like=True):
    """A command of a turn: the numbers of runs and of failures, and how the last run failed (empty if it did not)."""

    text: str
    runs: int
    failures: int
    ending: str


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn of a scope: what was asked, what was done, and how it ended.

    `blocks` are its first block and the one after its last, `calls` the model's. `files` are (index in `files`, lines
    added, lines removed) by its edits; `reads` and `searches` are numbers of calls, `others` those of other tools;
    `tasks` is the progress of a list of tasks. `answer` is the block of the model's last text, -1 without one, and
    `closing` its beginning; `answered`: no call follows it. `interrupted`: a person stopped the turn.
    """

    number: int
    scope: int
    blocks: tuple[int, int]
    calls: list[int]
    request: str = ""
    files: list[tuple[int, int, int]] = []
    commands: list[Command] = []
    commits: list[str] = []
    agents: list[str] = []
    reads: int = 0
    searches: int = 0
    others: list[tuple[str, int]] = []
    failures: int = 0
    tasks: str = ""
    answer: int = -1
    closing: str = ""
    answered: bool = False
    interrupted: bool = False


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the session's recorded edits changed: lines added and removed, the diff of all edits (a place in the
    texts), and the indices in `turns` of the turns that did it.
    """

    path: str
    plus: int
    minus: int
    diff: Place
    turns: list[int]
    deleted: bool = False


class CutBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that the page has no room for, and a command that shows it."""

    block: int
    bytes: int
    command: str


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """All texts in a row, as UTF-8, in pieces of 65,536 bytes, each compressed by zlib, in Base64."""

    chunks: list[str]
    cut: list[CutBody]


class Session(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc.page/2"):
    """The page of a session. `budget` is the `window` without the reserve for the reply, in tokens."""

    kind: Literal["session"] = "session"
    title: str
    session: str
    model: str
    budget: int
    window: int
    created: str = msgspec.field(name="made")
    version: str
    command: str
    verdict: Verdict
    states: list[str]
    calls: Calls
    marks: list[Mark]
    blocks: Blocks
    causes: list[Cause]
    lives: list[Life]
    prompts: Prompts
    scopes: list[Scope]
    turns: list[Turn]
    files: list[ChangedFile]
    tool_calls: list[ToolCall]
    pictures: list[Picture]
    bodies: Texts
    cost_reason: str


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A policy at a budget over all recordings.

    `retention` is the share of uses that are visible, with its 95 % interval. `cost` is a multiple of the cost of
    keeping everything, recoveries included, with its interval over recordings; None for the oracle.
    """

    policy: str
    budget: int
    retention: tuple[float, float, float]
    cost: tuple[float, float, float] | None
    cost_parts: dict[str, float]
    valid: bool
    runs: int
    oracle: bool


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A block or recording that two policies treat differently at a budget.

    `text` describes it; `step` is the first call that used it, -1 for a recording; `example` has strings of it that
    were used.
    """

    a: str
    b: str
    budget: int
    recording: str
    step: int
    text: str
    what_a: str
    what_b: str
    example: str


class Stats(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc.page/1"):
    """The page of what sessions spent. `groups` are the answers of `ctxvc stats --by`, by that option; `cut` has the
    numbers of the cheapest lines that were left out of the longest."""

    kind: Literal["stats"] = "stats"
    title: str
    created: str = msgspec.field(name="made")
    version: str
    command: str
    since: str
    verdict: Verdict
    groups: dict[str, Any]
    cut: dict[str, int]


class Replay(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc.page/1"):
    """The page of a replay's results. Costs are relative to the policy `baseline`."""

    kind: Literal["replay"] = "replay"
    title: str
    created: str = msgspec.field(name="made")
    version: str
    recordings: int
    verdict: Verdict
    points: list[Point]
    baseline: str
    differences: list[Difference]


Page = Session | Replay | Stats
