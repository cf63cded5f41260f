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
    """One of the figures at the top: of a session `calls`, `peak`, `left`, `recovered`, `compactions`, `cost`.

    `value` is None where nothing is known; `text` is `value` for people.
    """

    name: str
    value: float | None
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, in a sentence and six numbers; `notes` say what the numbers do not."""

    sentence: str
    numbers: list[Number]
    notes: list[str]


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of each call by what the provider's cache did with them; estimated where the provider did not say."""

    hits: list[int] = msgspec.field(name="read")
    write: list[int]
    fresh: list[int]
    output: list[int]


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of the model. Arrays have an item a call, but for `n`.

    `total` is the size of the prompt (`tokens.prompt_size`), and `tokens` the same by kind, with what is not recorded
    as a kind of its own; `unmanaged` is the size that it would have, had nothing left. `reported` is the size where the
    provider counted it, None where it is our estimate. `exact` says whether the prompt is known to be the one that was
    sent. `cost` and `cost_without` are dollars, None where the usage is not recorded or no price is known: what it
    cost, and what it would have, had nothing left.
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
    """The blocks, a scope's after another's: a block that a scope inherited is there once for each.

    `intervals` are flat: from, to, state (a place in `states`), again from, …; `to` is exclusive. `reads` are the calls
    that follow a reading. `body` is a place in the texts.
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
    """A change of blocks: who made it, under which policy, why (for all of them), and its commit."""

    actor: str
    policy: str
    reason: str
    commit: str


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a change (a place in `causes`) did to a block, the reason given for this block alone, and the command that
    takes it back; both are often empty.
    """

    block: int
    call: int
    verb: str
    cause: int
    reason: str = ""
    undo: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a prompt: `before`, then `text` or else the body of `block`, then `after`.

    `text` is a place in the texts where it is long. `blocks` are those that the stub of a group stands for.
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

    `deltas` has the splices for each call against the call before: at, how many go, the pieces that come, one after the
    other, each in the coordinates that the ones before it leave.
    """

    pieces: list[Piece]
    deltas: list[list[tuple[int, int, list[int]]]]


class ScopeNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note of a scope; `to` is the scope that it was written about on the way there, else -1."""

    call: int
    text: str
    to: int


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope. `calls` are its own, `spark` the tokens of their prompts. `system` and `tools` are places in the texts,
    -1 where they are not recorded.
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
    """A part of a call as a person reads it, `text` a place in the texts.

    `diff`: lines with a sign each; `file`: the new text of a file; `command`; `tasks`: a line each, with `x`, `>` or
    `-` for done, doing and open; `deleted`: nothing more than its title. The title is a file, or empty.
    """

    kind: PartKind
    title: str
    text: Place


class ToolCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of a tool: its block, that of its result or -1, how it ended (empty if well), and its parts; one without
    any is shown by its arguments.
    """

    block: int
    result: int
    ending: str
    parts: list[CallPart]


class Picture(msgspec.Struct, frozen=True, array_like=True):
    """An image of a block: its media type, and where its bytes are among the texts."""

    block: int
    media: str
    place: Place


class Command(msgspec.Struct, frozen=True, array_like=True):
    """A command of a turn: how often it ran, how often that failed, and how the last run ended (empty if well)."""

    text: str
    runs: int
    failures: int
    ending: str


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn of a scope: what was asked, what was done, and how it ended.

    `blocks` are its first block and the one after its last, `calls` those of the model. `files` are (a place in
    `files`, lines added, lines removed) by its edits; `reads` and `searches` are numbers of calls, `others` those of
    other tools; `tasks` is how far a list of tasks is. `answer` is the block of the model's last words, -1 if there
    are none, and `closing` how they begin; `answered` is whether nothing was called after them, `interrupted` whether a
    person stopped it.
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
    """A file that the session's edits changed, by those that are recorded: lines added and removed, the diff of all of
    them together (a place in the texts), and the turns (places in `turns`) that did it.
    """

    path: str
    plus: int
    minus: int
    diff: Place
    turns: list[int]
    deleted: bool = False


class CutBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that the page has no room for, and the command that shows it."""

    block: int
    bytes: int
    command: str


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """All texts in a row, as UTF-8, in pieces of 65,536 bytes, each compressed by zlib, in Base64."""

    chunks: list[str]
    cut: list[CutBody]


class Session(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc.page/2"):
    """The page of a session. `budget` is what a prompt may have of the `window`: all but the reply's reserve."""

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
    """A policy at a budget over all recordings. Retention is the share of uses that are visible; with its 95 %
    interval. Cost is a multiple of that of keeping everything, recoveries included, with its interval over recordings;
    None for the oracle, which has none.
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
    """A block, or a recording, that two policies treat otherwise at a budget.

    `text` says what it is; `step` is the call that used it first, -1 for a recording; `example` has strings of it that
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
    """The page of what sessions spent. `groups` are the answers of `ctxvc stats`, by what they are by; of those with
    very many lines, so many as `cut` says are left out, the cheapest."""

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
    """The page of a replay's results. `baseline` is the policy that cost is relative to."""

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
