"""The answers of `--json`, one type each. docs/json.md is made of them, and tests hold every answer against them.

A schema's number changes when a field goes or means something else; a new field is no new number.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ctxvc.core.ledger import Row


def _field(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


Commit = Annotated[str, _field("full id of a commit")]
Time = Annotated[str, _field("ISO 8601, UTC; empty where unknown")]
Tokens = Annotated[int, _field("tokens, as our tokenizer counts")]
Scope = Annotated[str, _field("name of a scope")]
Session = Annotated[str, _field("name of a session")]
Block = Annotated[str, _field("`B17`")]


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema"):
    """What `--json` prints."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer."""


class Made(Answer, frozen=True, kw_only=True, tag="ctxvc.init/1"):
    """`init`"""

    store: Annotated[str, _field("path of the store")]
    created: Annotated[bool, _field("whether it is new")]


class FileWarning(Item, frozen=True, kw_only=True):
    """Something in a file that was not taken as it stands."""

    line: Annotated[int, _field("line of the file, from 1; 0 where none can be named")]
    text: str


class ImportedFile(Item, frozen=True, kw_only=True):
    """What became of a file."""

    path: str
    format: Annotated[str, _field("format it was read as; empty where it is unknown")]
    session: Session
    created: Annotated[bool, _field("whether the session is new")]
    units: Annotated[int, _field("new commits")]
    blocks: Annotated[int, _field("new blocks")]
    waiting: Annotated[int, _field("messages of a step that may still grow: taken by a later import, or with --final")]
    warnings: list[FileWarning]
    error: Annotated[str, _field("why it was not taken; empty where it was")]
    hint: str


class Imported(Answer, frozen=True, kw_only=True, tag="ctxvc.import/1"):
    """`import`"""

    store: str
    created: Annotated[bool, _field("whether the store is new")]
    looked: Annotated[list[str], _field("folders that were looked into, where no path was given")]
    items: list[ImportedFile]


class SessionItem(Item, frozen=True, kw_only=True):
    """A session. Steps are those of its current scope; blocks, tokens and bytes are of all its scopes together."""

    name: Session
    prompt: Annotated[str, _field("the beginning of the first human message")]
    title: Annotated[str, _field("title that the recording has; often empty")]
    started: Time
    updated: Annotated[str, _field("time of the newest commit")]
    branch: Annotated[str, _field("git branch of the project when it was recorded")]
    model: str
    scope: Annotated[str, _field("current scope")]
    scopes: Annotated[int, _field("number of scopes")]
    steps: int
    blocks: int
    tokens: Tokens
    estimated: Annotated[bool, _field("whether `tokens` is bytes / 4, since not all blocks were counted yet")]
    bytes: Annotated[int, _field("bytes of all bodies")]
    format: Annotated[str, _field("format of the recording; empty where we recorded it ourselves")]


class Sessions(Answer, frozen=True, kw_only=True, tag="ctxvc.sessions/1"):
    """`sessions`"""

    current: Annotated[str, _field("the session that is used where none is named; empty where there is none")]
    items: list[SessionItem]


class StatusLine(Item, frozen=True, kw_only=True):
    """A block of the ledger, as the dashboard shows it."""

    id: Block
    type: Annotated[str, _field("the block's kind")]
    tokens: Annotated[int, _field("of the body")]
    shown: Annotated[int, _field("tokens of what stands for it in the prompt: body, masked body, stub, or nothing")]
    age: Annotated[int, _field("in steps; 0 is the newest")]
    status: Annotated[str, _field("state, and the group it is in")]
    label: str
    level: int
    parent: Annotated[str, _field("the call of a result; of anything else, what opened its turn")]
    reads: Annotated[int, _field("times it was recovered")]
    removed_by: Annotated[str, _field("who removed it from the prompt")]


class Status(Answer, frozen=True, kw_only=True, tag="ctxvc.status/1"):
    """`status`. Every block is in it, as with `--all`."""

    session: Session
    scope: Scope
    commit: Commit
    model: str
    window: Annotated[int, _field("tokens that the prompt may have")]
    used: Annotated[int, _field("overhead and conversation")]
    overhead: Annotated[int, _field("tokens of system prompt and tools")]
    conversation: Annotated[int, _field("tokens of the messages")]
    percent: Annotated[int, _field("of the window, floored, at most 100")]
    estimated: Annotated[bool, _field("whether tokens are a guess")]
    prompt: Annotated[str, _field("`exact`, or `reconstructed` from a recording")]
    missing: Annotated[list[str], _field("what the model saw and the recording lacks")]
    reported: Annotated[int | None, _field("tokens that the provider counted in the newest call that it told of")]
    waiting: Annotated[int, _field("records that are acknowledged and in no commit yet")]
    items: list[StatusLine]


class Category(Item, frozen=True, kw_only=True):
    """A part of the context."""

    name: str
    blocks: int
    tokens: Annotated[int, _field("in the prompt now")]
    share: Annotated[float, _field("of all that is in the prompt, 0 to 1")]


class Threshold(Item, frozen=True, kw_only=True):
    """A point on the way to the window's end at which a policy acts."""

    name: str
    percent: Annotated[int, _field("of the window")]
    tokens: Tokens
    ahead: Annotated[int, _field("tokens until there; negative where it is passed")]


class Context(Answer, frozen=True, kw_only=True, tag="ctxvc.context/1"):
    """`context`"""

    session: Session
    scope: Scope
    by: Annotated[str, _field("`kind`, `tool`, `turn` or `file`")]
    window: int
    used: int
    percent: int
    thresholds: list[Threshold]
    items: list[Category]


class LogItem(Item, frozen=True, kw_only=True):
    """A commit. `log --jsonl` prints one of these a line."""

    commit: Commit
    parents: list[str]
    step: Annotated[int, _field("the scope's newest step in it")]
    time: Time
    actor: Annotated[str, _field("who did it: agent, planner, policy:NAME, guard, user, host")]
    subject: str
    body: Annotated[str, _field("the rest of the message, without trailers")]
    trailers: dict[str, str]


class Log(Answer, frozen=True, kw_only=True, tag="ctxvc.log/1"):
    """`log`"""

    session: Session
    scope: Scope
    waiting: Annotated[int, _field("records that are acknowledged and in no commit yet")]
    items: list[LogItem]


class ShownBlock(Answer, frozen=True, kw_only=True, tag="ctxvc.block/1"):
    """`show` of a block"""

    session: Session
    scope: Scope
    handle: Annotated[str, _field("address with the checksum's first digits, `B17@3fa9c1`")]
    row: Annotated[Row, _field("the block's row of the ledger, as docs/format.md has it; defaults are left out")]
    tokens: Annotated[int, _field("of the body")]
    shown: Annotated[int, _field("tokens of what stands for it in the prompt")]
    text: Annotated[str | None, _field("the body, where it is text")]
    base64: Annotated[str | None, _field("the body, where it is not")]


class ShownGroup(Answer, frozen=True, kw_only=True, tag="ctxvc.group/1"):
    """`show` of a group"""

    session: Session
    scope: Scope
    id: str
    level: int
    members: list[str]
    inside: Annotated[str, _field("the group that it is in")]
    summary: Annotated[list[str], _field("the blocks that stand in its place")]
    stub: str
    label: str
    removed_by: str
    blocks: Annotated[int, _field("in it, at any depth")]
    bytes: int


class Change(Item, frozen=True, kw_only=True):
    """A block that stands otherwise."""

    move: Annotated[str, _field("`entered` or `left` the prompt, or `changed` without that")]
    id: Block
    type: str
    tokens: Annotated[int, _field("of the body")]
    was: Annotated[str, _field("state before; empty where it was not there")]
    now: Annotated[str, _field("state after; empty where it is not there")]
    group: str
    removed_by: str
    label: str


class ShownCommit(Answer, frozen=True, kw_only=True, tag="ctxvc.commit/1"):
    """`show` of a commit. `items` is what it changed."""

    session: Session
    scope: Scope
    commit: LogItem
    items: list[Change]


class Side(Item, frozen=True, kw_only=True):
    """One side of a comparison."""

    commit: Commit
    session: Session
    scope: Scope
    step: int
    tokens: Annotated[int, _field("of the prompt")]


class Diff(Answer, frozen=True, kw_only=True, tag="ctxvc.diff/1"):
    """`diff`"""

    before: Side
    after: Side
    request: Annotated[list[str], _field("which of `system` and `tools` differ")]
    items: list[Change]


class Prompt(Answer, frozen=True, kw_only=True, tag="ctxvc.prompt/1"):
    """`prompt`. What a request of the Messages API would hold."""

    session: Session
    scope: Scope
    commit: Commit
    label: Annotated[str, _field("`exact`, or `reconstructed` from a recording")]
    missing: Annotated[list[str], _field("what the model saw and the recording lacks")]
    model: str
    system: Any
    tools: Any
    messages: list[Any]


class Finding(Item, frozen=True, kw_only=True):
    """Something that `verify` found. Where it is: fields that say nothing are empty."""

    level: Annotated[str, _field("`damage`, or `warning` for what harms nothing yet")]
    what: str
    hint: str
    session: Session
    scope: Scope
    commit: Commit
    block: Annotated[str, _field("`B17`, or `B64-B127` for what holds so many")]
    path: Annotated[str, _field("in the tree of the commit, or in the store")]


class Verified(Answer, frozen=True, kw_only=True, tag="ctxvc.verify/1"):
    """`verify`"""

    intact: Annotated[bool, _field("whether nothing is damaged")]
    sessions: int
    scopes: int
    commits: int
    blocks: int
    bytes: Annotated[int, _field("whose checksums were compared")]
    seconds: float
    items: list[Finding]


class Packed(Answer, frozen=True, kw_only=True, tag="ctxvc.gc/1"):
    """`gc`"""

    bytes_before: int
    bytes_after: int
    packs_before: int
    packs_after: int
    removed: Annotated[list[str], _field("what killed writers had left, as paths in the store")]
    seconds: float


class CheckedOut(Answer, frozen=True, kw_only=True, tag="ctxvc.checkout/1"):
    """`checkout`"""

    folder: str
    session: Session
    scope: Scope
    commit: Commit
    files: Annotated[int, _field("in the folder, the dashboard not counted")]
    taken: Annotated[list[str], _field("with --take, what was made true, as in `archive B6`")]


class DoctorItem(Item, frozen=True, kw_only=True):
    """One thing that `doctor` looked at."""

    check: str
    level: Annotated[str, _field("`ok`, `note`, or `problem`")]
    found: str
    mend: Annotated[str, _field("the command that mends it; empty where nothing needs to be done")]


class Doctor(Answer, frozen=True, kw_only=True, tag="ctxvc.doctor/1"):
    """`doctor`"""

    items: list[DoctorItem]
