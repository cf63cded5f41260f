"""The answers of `--json`, one type each. docs/json.md is made of them, and tests hold every answer against them.

A schema's number changes when a field goes or means something else; a new field is no new number.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ctxvc.core.ledger.ledger import Row


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
    """A block of the ledger, or an archived group of them, as the dashboard shows it."""

    id: Annotated[str, _field("`B17`; of a group `G3`")]
    type: Annotated[str, _field("the block's kind, or `group`")]
    tokens: Annotated[int, _field("of the body; of a group, of all its bodies")]
    shown: Annotated[int, _field("tokens of what stands for it in the prompt: body, masked body, stub, or nothing")]
    age: Annotated[int, _field("in steps; 0 is the newest")]
    status: Annotated[
        str, _field("state, and the group it is in; `cut` for thinking that a cut took out of the prompt")
    ]
    label: str
    level: int
    parent: Annotated[
        str,
        _field("a result's call, anything else's turn opener; where that is not in the prompt, the nearest above it"),
    ]
    reads: Annotated[int, _field("times it was recovered")]
    removed_by: Annotated[str, _field("who removed it from the prompt")]
    blocks: Annotated[int, _field("how many blocks it stands for")]


class Status(Answer, frozen=True, kw_only=True, tag="ctxvc.status/1"):
    """`status`. Every block but sent dashboards is in it, as with `--all`."""

    session: Session
    scope: Scope
    commit: Commit
    model: str
    window: Annotated[int, _field("tokens that the prompt may have")]
    used: Annotated[int, _field("overhead, conversation and dashboard, as the provider would count them")]
    overhead: Annotated[int, _field("tokens of system prompt and tools")]
    conversation: Annotated[int, _field("tokens of the messages")]
    dashboard: Annotated[int, _field("tokens of the dashboards that were sent and are still in the prompt")]
    percent: Annotated[int, _field("of the window, floored, at most 100")]
    estimated: Annotated[bool, _field("whether tokens are a guess")]
    prompt: Annotated[str, _field("`exact`, or `reconstructed` from a recording")]
    missing: Annotated[list[str], _field("what the model saw and the recording lacks")]
    reported: Annotated[int | None, _field("tokens that the provider counted in the newest call that it told of")]
    waiting: Annotated[int, _field("records that are acknowledged and in no commit yet")]
    notes: Annotated[list[str], _field("the newest notes of the scope, at most five, the newest last")]
    older_notes: Annotated[int, _field("how many notes there are before them")]
    groups: Annotated[list[StatusLine], _field("archived groups that are in no other")]
    items: list[StatusLine]


class LeftOut(Item, frozen=True, kw_only=True):
    """What was asked for and not done."""

    target: str
    why: Annotated[str, _field("a word: `unknown`, `open`, `pinned`, `human`, `gone`, `no saving`, …")]
    text: str


class PlannedAction(Item, frozen=True, kw_only=True):
    """A verb on blocks and groups."""

    verb: str
    targets: list[Block]
    index: Annotated[str, _field("index text of an archive, or the summary; of a mask or prune, why")]
    freed: Annotated[int, _field("tokens; 0 for a plan that waits")]
    cache: Annotated[int, _field("to write anew what stands behind it, in fresh input tokens; 0 for a plan that waits")]


class Planned(Answer, frozen=True, kw_only=True, tag="ctxvc.plan/1"):
    """`plan`. Tokens are as the provider would count them."""

    session: Session
    scope: Scope
    policy: Annotated[str, _field("the policy with its knobs, as `--policy` takes it")]
    actor: Annotated[str, _field("who it would be recorded as")]
    reason: Annotated[str, _field("why, or why nothing is to be done")]
    window: Annotated[int, _field("tokens that the prompt may have")]
    tokens_before: int
    tokens_after: Annotated[int, _field("those that are left once it is committed")]
    tokens_cut: Annotated[int, _field("what the cut that comes with it frees: earlier thinking and dashboards")]
    now: Annotated[bool, _field("whether the broken cache is worth it now")]
    moment: Annotated[str, _field("why now, or why not yet, with the reckoning")]
    benefit: Annotated[int, _field("what is saved by committing now less what that costs, in fresh input tokens")]
    cost: Annotated[int, _field("what the broken cache and the planning cost, in fresh input tokens")]
    committed: bool = False
    waits: Annotated[str, _field("id of the plan, where it was left to wait")] = ""
    items: list[PlannedAction]
    problems: list[LeftOut]


class PendingPlan(Item, frozen=True, kw_only=True):
    """A plan that waits."""

    id: Annotated[str, _field("`P3`")]
    time: Time
    base_commit: Commit
    actor: str
    reason: str
    actions: list[PlannedAction]


class PendingPlans(Answer, frozen=True, kw_only=True, tag="ctxvc.plans/1"):
    """`plan --pending`, `plan --drop`"""

    session: Session
    scope: Scope
    dropped: list[str]
    items: list[PendingPlan]


class PolicyItem(Item, frozen=True, kw_only=True):
    """A policy."""

    name: str
    about: str
    source: Annotated[str, _field("where it was published; empty for ours")]
    decides: Annotated[str, _field("who decides what leaves")]
    sees: Annotated[str, _field("what the model sees of its context")]
    recovers: Annotated[str, _field("whether what left can be got back")]
    tools: Annotated[list[str], _field("context tools that it gives the model")]
    knobs: Annotated[dict[str, str], _field("name → usual value")]
    units: Annotated[dict[str, str], _field("name → what it counts, or the values that it takes; may be empty")]


class Policies(Answer, frozen=True, kw_only=True, tag="ctxvc.policies/1"):
    """`policies`"""

    items: list[PolicyItem]


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
    estimated: Annotated[bool, _field("whether tokens are a guess")]
    reported: Annotated[int | None, _field("tokens that the provider counted in the newest call that it told of")]
    thresholds: list[Threshold]
    items: list[Category]


class EpisodeItem(Item, frozen=True, kw_only=True):
    """An episode."""

    type: Annotated[str, _field("`expl` or `act`")]
    name: str
    state: Annotated[str, _field("whether it is open, closed, or evicted in part or whole")]
    level: Annotated[str, _field("how far it is evicted")]
    tokens: Annotated[int, _field("of its bodies")]
    shown: Annotated[int, _field("in the prompt now")]
    blocks: int
    dependencies: list[str]
    made: Annotated[str, _field("who made it: the model's marks, or derived from its calls")]


class Episodes(Answer, frozen=True, kw_only=True, tag="ctxvc.episodes/1"):
    """`context --episodes`"""

    session: Session
    scope: Scope
    items: list[EpisodeItem]


class LogItem(Item, frozen=True, kw_only=True):
    """A commit. `log --jsonl` prints one of these a line, oldest first."""

    commit: Commit
    scope: Annotated[str, _field("scope that it was made in")]
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


class UsageItem(Item, frozen=True, kw_only=True):
    """A call of a model, by the commit of its reply, or of what a policy asked."""

    commit: Commit
    time: Time
    scope: Scope
    subject: str
    model: str
    fresh: Annotated[int, _field("tokens of the prompt that came from no cache")]
    written: Annotated[int, _field("tokens of the prompt that went into the provider's cache")]
    read: Annotated[int, _field("tokens of the prompt that came from it")]
    reply: Annotated[int, _field("tokens of the reply")]
    dollars: Annotated[float | None, _field("by the dated price table; null for a model that it does not have")]


class Usage(Answer, frozen=True, kw_only=True, tag="ctxvc.usage/1"):
    """`log --usage`. The sums of its items."""

    session: Session
    scope: Annotated[str, _field("the scope of REV; empty for all of the session")]
    prices: Annotated[str, _field("date of the price table")]
    calls: int
    fresh: int
    written: int
    read: int
    reply: int
    dollars: float
    unpriced: Annotated[int, _field("calls that are not in `dollars`")]
    items: list[UsageItem]


class Ran(Answer, frozen=True, kw_only=True, tag="ctxvc.run/1"):
    """`run`. Tokens are what the provider counted."""

    session: Session
    scope: Scope
    why: Annotated[str, _field("`said`, `steps`, `cost`, `refused`, `full`, `cut` or `stopped`")]
    scripted: Annotated[bool, _field("whether a script replied and no model")]
    steps: Annotated[int, _field("replies")]
    fresh: int
    written: int
    read: int
    reply: int
    dollars: Annotated[float | None, _field("by the dated price table; null where a model is not in it")]
    text: Annotated[str, _field("the last words of the model")]


class CitationItem(Item, frozen=True, kw_only=True):
    """What an answer cites. It holds if the block exists and was read."""

    handle: Annotated[str, _field("as the answer writes it")]
    block: Block
    scope: Scope
    step: int
    label: str
    exists: Annotated[bool, _field("whether the recording has a block of that number and checksum")]
    was_read: Annotated[bool, _field("whether it was read for this answer")]
    why: Annotated[str, _field("why it does not hold; empty where it does")]


class Asked(Answer, frozen=True, kw_only=True, tag="ctxvc.ask/1"):
    """`ask`"""

    session: Annotated[str, _field("session that holds question, reading and answer")]
    recording: Annotated[str, _field("session that was asked")]
    answer: str
    scripted: Annotated[bool, _field("whether a script replied and no model")]
    why: Annotated[str, _field("why it ended, as in `run`")]
    steps: int
    dollars: float | None
    items: Annotated[list[CitationItem], _field("what the answer cites")]


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


class Standing(Item, frozen=True, kw_only=True):
    """Another place where the same bytes stand."""

    address: Annotated[str, _field("`SESSION/SCOPE:B17`")]
    state: str


class Hit(Item, frozen=True, kw_only=True):
    """A line that matches, and where its block is now."""

    address: Annotated[str, _field("`SESSION/SCOPE:B17`")]
    session: Session
    scope: Scope
    block: Block
    type: Annotated[str, _field("the block's kind")]
    state: str
    step: Annotated[int, _field("that it came in with")]
    line: Annotated[int, _field("of the block's text, from 1; of a block that is JSON, of the string that matches")]
    text: Annotated[str, _field("the line; of a long one, what stands around the match")]
    also: list[Standing]


class Grepped(Answer, frozen=True, kw_only=True, tag="ctxvc.grep/1"):
    """`grep`"""

    pattern: str
    bodies: Annotated[int, _field("how many there are to search; equal ones count once")]
    searched: Annotated[int, _field("how many were searched; fewer where the pattern took too long")]
    skipped: Annotated[int, _field("how many were given up on, since one line of each took the pattern too long")]
    more: Annotated[int, _field("lines that match and are not listed")]
    items: list[Hit]


class Turned(Item, frozen=True, kw_only=True):
    """A commit at which something changed."""

    move: Annotated[str, _field("`entered` or `left` the prompt; `passed` a number of tokens; `bad` or `good`")]
    block: Annotated[str, _field("`B17`, `G3`; `request` is system prompt and tools; empty for the whole prompt")]
    type: Annotated[str, _field("the block's kind, `group` or `system`; empty for the whole prompt")]
    tokens: Annotated[int | None, _field("of the prompt, where they were asked for")]
    commit: Annotated[LogItem | None, _field("null for what is not committed yet")]


class Bisected(Answer, frozen=True, kw_only=True, tag="ctxvc.bisect/1"):
    """`bisect`"""

    session: Session
    scope: Scope
    what: Annotated[str, _field("`text`, `block`, `tokens`, `command`, or `command, every prompt`")]
    asked: Annotated[str, _field("what was looked for")]
    stands: Annotated[bool, _field("whether it is in the prompt now; whether the newest prompt is too large, or bad")]
    judged: Annotated[int, _field("prompts that were measured or judged")]
    items: Annotated[list[Turned], _field("in the order in which it happened")]


class BlameEvent(Item, frozen=True, kw_only=True):
    """Something that was done to a block or group."""

    what: Annotated[str, _field("`brought in`, `made`, `read`, `restored`, `cut`, …, or the state that it has since")]
    reason: Annotated[str, _field("that was given; often empty")]
    commit: Annotated[LogItem | None, _field("null for what is not committed yet")]


class BlameStay(Item, frozen=True, kw_only=True):
    """Calls of the model that were sent the same of it."""

    state: Annotated[str, _field("its state then; `cut` where a cut had taken it out")]
    first: Annotated[int, _field("step of the first call")]
    last: Annotated[int, _field("step of the last call")]
    calls: int
    tokens: Annotated[int, _field("with each call; 0 where nothing stood there, or the stub of a group")]
    sent: Annotated[int, _field("tokens with all of them")]


class Blamed(Answer, frozen=True, kw_only=True, tag="ctxvc.blame/1"):
    """`blame`"""

    session: Session
    scope: Scope
    id: Annotated[str, _field("`B17` or `G3`")]
    handle: str
    type: Annotated[str, _field("the block's kind, or `group`")]
    origin: Annotated[str, _field("`human`, `client`, `model` or `tool`; empty for a group")]
    model: Annotated[str, _field("of the step that it came in with; empty where unknown")]
    tokens: Annotated[int, _field("of the body; of a group, of its stub")]
    reads: Annotated[int, _field("times it was recovered")]
    label: str
    sent: Annotated[int, _field("tokens that were sent for it, with all calls")]
    events: list[BlameEvent]
    stays: list[BlameStay]


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
    prompts: Annotated[int | None, _field("with --prompts, those that were rendered again; else null")] = None
    seconds: float
    items: list[Finding]


class PurgedScope(Item, frozen=True, kw_only=True):
    """A scope that had something of it."""

    session: Session
    scope: Scope
    blocks: Annotated[list[str], _field("blocks that change, as `B17`")]
    steps: Annotated[list[int], _field("steps whose replies saw one of them in their prompt")]


class PurgedRemote(Item, frozen=True, kw_only=True):
    """A remote of the store."""

    name: str
    address: Annotated[str, _field("its address, without a password")]
    known: Annotated[bool, _field("whether it is known to have had some of it; it may have had it if not")]


class PurgedCopy(Item, frozen=True, kw_only=True):
    """A place outside the store, which is read and never changed."""

    kind: Annotated[str, _field("`transcript`, or `exports`, of which no place is recorded")]
    place: Annotated[str, _field("the file")] = ""
    state: Annotated[str, _field("`has` something of it, `clean`, or `unknown`")]
    why: Annotated[str, _field("why it is unknown")] = ""


class Purged(Answer, frozen=True, kw_only=True, tag="ctxvc.purge/1"):
    """`purge`: what is erased, or would be with `--yes`"""

    done: Annotated[bool, _field("whether it was done, and searched for afterwards")]
    kinds: Annotated[dict[str, int], _field("kind → how many different ones")]
    bodies: Annotated[int, _field("bodies that change")]
    commits: Annotated[int, _field("commits that are written anew")]
    items: list[PurgedScope]
    remotes: list[PurgedRemote]
    checkouts: Annotated[list[str], _field("folders of checkouts that go; `checkout` makes them again")]
    remaining: Annotated[
        list[str], _field("folders that may still have it: checkouts that were moved, or that are not empty")
    ]
    forms: Annotated[list[str], _field("encodings that were looked for besides the text as it is")]
    short: Annotated[int, _field("texts that are too short to look for in other encodings")]
    copies: list[PurgedCopy]


class PendingPurge(Answer, frozen=True, kw_only=True, tag="ctxvc.purge_pending/1"):
    """`purge --finish`, `purge --discard`: a purge that was decided and waits"""

    done: Annotated[str, _field("`finished` or `discarded`; empty where nothing was done")]
    sealed: Annotated[bool, _field("whether this machine decided it: then it is finished by itself")]
    begun: Annotated[bool, _field("whether some of it had been done")]
    pack: Annotated[str, _field("the pack that stays of all objects")]
    refs: Annotated[list[str], _field("refs that move")]
    gone: Annotated[list[str], _field("refs that go")]
    journals: Annotated[list[str], _field("sessions whose journal is replaced")]
    files: Annotated[list[str], _field("files that go, as paths in the store")]
    checkouts: Annotated[list[str], _field("folders that it names; only where it is sealed they go")]
    remaining: Annotated[list[str], _field("folders that may still have it, once it is finished")]
    problem: Annotated[str, _field("why it can only be discarded; empty where it can be finished")]


class Packed(Answer, frozen=True, kw_only=True, tag="ctxvc.gc/1"):
    """`gc`"""

    bytes_before: int
    bytes_after: int
    packs_before: int
    packs_after: int
    removed: Annotated[list[str], _field("what killed writers had left, as paths in the store")]
    seconds: float


class ActedBlock(Item, frozen=True, kw_only=True):
    """A block that stands otherwise now."""

    id: Block
    handle: Annotated[str, _field("`B17@3fa9c1`")]
    state: str
    level: int
    group: Annotated[str, _field("the group that it is in; empty for none")]
    path: Annotated[str, _field("of its body in the scope's tree")]
    bytes: int
    tokens: Tokens
    sha256: str
    stub: Annotated[str, _field("what stands in its place; empty where a group's stub does, or nothing")]


class ActedGroup(Item, frozen=True, kw_only=True):
    """A group that stands otherwise now."""

    id: Annotated[str, _field("`G3`")]
    level: int
    members: Annotated[list[str], _field("blocks and groups; none where the group is gone")]
    stub: str


class Acted(Answer, frozen=True, kw_only=True, tag="ctxvc.acted/1"):
    """`archive`, `restore`, `delete`, `pin`, `unpin`, `undo`"""

    session: Session
    scope: Scope
    verb: str
    undone: Annotated[str, _field("of `undo`: the subject of the commit that was taken back")]
    tokens_before: Tokens
    tokens_after: Tokens
    items: list[ActedBlock]
    groups: list[ActedGroup]
    problems: list[LeftOut]


class CompactedPart(Item, frozen=True, kw_only=True):
    """What left in the same way."""

    what: Annotated[str, _field("`offloaded` (its two ends are still shown), `cleared`, `summarised`, …")]
    blocks: Annotated[list[str], _field("blocks, and groups that were there before")]


class Compacted(Answer, frozen=True, kw_only=True, tag="ctxvc.compact/1"):
    """`compact`. Tokens are as the provider would count them."""

    session: Session
    scope: Scope
    policy: Annotated[str, _field("the policy with its knobs, as `--policy` takes it")]
    reason: Annotated[str, _field("why, or why nothing leaves")]
    committed: Annotated[bool, _field("false with --dry-run, and where nothing leaves")]
    tokens_before: int
    tokens_after: Annotated[int, _field("with --dry-run, those that would be left")]
    items: list[CompactedPart]
    groups: Annotated[list[ActedGroup], _field("those whose stubs stand in the place of what left")]
    problems: list[LeftOut]


class Moved(Answer, frozen=True, kw_only=True, tag="ctxvc.moved/1"):
    """`scope`, `goto`"""

    session: Session
    scope: Annotated[str, _field("the scope that one is in now")]
    origin: Annotated[str, _field("the scope that was left")]


class Noted(Answer, frozen=True, kw_only=True, tag="ctxvc.note/1"):
    """`note`"""

    session: Session
    scope: Scope
    block: Block
    archived: Annotated[list[str], _field("with --fold, the blocks that left")]
    freed: Tokens


class ScopeItem(Item, frozen=True, kw_only=True):
    """A scope of the session."""

    name: Scope
    current: bool
    parent: Annotated[str, _field("the scope that it was made from; empty for none")]
    blocks: int
    steps: int
    notes: int
    commit: Commit


class Scopes(Answer, frozen=True, kw_only=True, tag="ctxvc.scopes/1"):
    """`scopes`"""

    session: Session
    items: list[ScopeItem]


class NoteItem(Item, frozen=True, kw_only=True):
    """A note."""

    block: Block
    step: int
    text: str


class Notes(Answer, frozen=True, kw_only=True, tag="ctxvc.notes/1"):
    """`notes`"""

    session: Session
    scope: Scope
    items: list[NoteItem]


class RecoveredPart(Answer, frozen=True, kw_only=True, tag="ctxvc.recover/1"):
    """`recover` of a part, or of a group's list"""

    session: Session
    scope: Scope
    address: str
    header: Annotated[str, _field("what the content is, and the call for what comes next")]
    content: str
    unit: Annotated[str, _field("`lines`, `characters` or `matches`: what is counted")]
    first: int
    last: int
    total: int
    tokens: Tokens
    complete: Annotated[bool, _field("whether all that was asked for is in it")]
    next: Annotated[str, _field("the call for the next part; empty where there is none")]


class RecoveredBody(Item, frozen=True, kw_only=True):
    """A block's exact bytes."""

    id: Block
    handle: str
    bytes: int
    sha256: str
    base64: Annotated[str, _field("the bytes; empty where they are in a file")]
    file: Annotated[str, _field("with --file, where they are; else empty")]


class RecoveredBytes(Answer, frozen=True, kw_only=True, tag="ctxvc.recover_bytes/1"):
    """`recover`, `recover --all`, `recover --file`"""

    session: Session
    scope: Scope
    address: str
    items: list[RecoveredBody]


class WhyBlock(Item, frozen=True, kw_only=True):
    """A block of the conversation that code came from."""

    address: Annotated[str, _field("as `show` takes it")]
    step: int
    text: Annotated[str, _field("whole")]


class WhyCall(Item, frozen=True, kw_only=True):
    """A call that wrote a file."""

    address: Annotated[str, _field("as `show` takes it")]
    step: int
    tool: str
    path: Annotated[str, _field("as the call names it; empty where it does not")]
    lines: Annotated[int, _field("how many of the commit's added lines it wrote, or 1 if it wrote the line")]


class Why(Answer, frozen=True, kw_only=True, tag="ctxvc.why/1"):
    """`why`"""

    commit: Annotated[str, _field("full id of the project's commit; empty where the line is not committed")]
    subject: Annotated[str, _field("of that commit; empty where the project has it no more")]
    file: Annotated[str, _field("of FILE:LINE, the file as the commit names it; else empty")]
    line: Annotated[str, _field("of FILE:LINE, the line's text")]
    found: Annotated[str, _field("`link` or `text`: how the step was found")]
    basis: Annotated[str, _field("in words, what that rests on")]
    session: Session
    scope: Scope
    step: int
    turn: int
    revision: Annotated[Commit, _field("the step's commit in the store; empty where it has none yet")]
    asked: Annotated[list[WhyBlock], _field("what a person said in the turn, up to the step")]
    replied: Annotated[list[WhyBlock], _field("what the model said in the step, or last before it")]
    notes: Annotated[list[WhyBlock], _field("notes of the turn")]
    calls: Annotated[list[WhyCall], _field("calls that wrote the commit's files, oldest first")]


class CheckedOut(Answer, frozen=True, kw_only=True, tag="ctxvc.checkout/1"):
    """`checkout`"""

    folder: str
    session: Session
    scope: Scope
    commit: Commit
    files: Annotated[int, _field("in the folder, the dashboard not counted")]
    taken: Annotated[list[str], _field("with --take, what was made true, as in `archive B6`")]


class WatchedFile(Item, frozen=True, kw_only=True):
    """What was new in a transcript."""

    path: str
    format: str
    session: Session
    created: Annotated[bool, _field("whether the session is new")]
    units: Annotated[int, _field("new commits")]
    blocks: Annotated[int, _field("new blocks")]
    waiting: Annotated[int, _field("messages of a step that may still grow")]
    error: Annotated[str, _field("why it was not taken; empty where it was")]
    hint: str


class Watched(Answer, frozen=True, kw_only=True, tag="ctxvc.watch/1"):
    """`watch`: one look; nothing is answered where nothing is new, but with --once"""

    items: list[WatchedFile]


class Installed(Answer, frozen=True, kw_only=True, tag="ctxvc.install/1"):
    """`install`"""

    path: Annotated[str, _field("the settings that are changed")]
    changed: Annotated[bool, _field("whether there is, or with --dry-run would be, a difference")]
    backup: Annotated[str, _field("where the settings as they were are kept; empty where none were written")]
    plugin: Annotated[str, _field("folder of the plugin, which Claude Code can load instead")]
    diff: Annotated[list[str], _field("lines of the difference")]


class InstalledHook(Item, frozen=True, kw_only=True):
    """A file that has a hook of ours, or a setting."""

    path: str
    changed: Annotated[bool, _field("whether there is, or with --dry-run would be, a difference")]


class InstalledHooks(Answer, frozen=True, kw_only=True, tag="ctxvc.install_hooks/1"):
    """`install post-commit`, `install git-hooks`"""

    items: list[InstalledHook]


class TrustSetting(Item, frozen=True, kw_only=True):
    """A setting of a store that not every store may have."""

    file: Annotated[str, _field("the file that has it, as a path in the store")]
    key: str
    value: str
    acceptable: Annotated[bool, _field("whether a person may accept it")]


class Trust(Answer, frozen=True, kw_only=True, tag="ctxvc.trust/1"):
    """`trust`, `trust --revoke`"""

    store: Annotated[str, _field("path of the store")]
    accepted: Annotated[bool, _field("whether all that it sets counts now")]
    changed: Annotated[bool, _field("whether that is so, or not so any more, by this command")]
    items: list[TrustSetting]


class TrustedStore(Item, frozen=True, kw_only=True):
    """A store of which something is accepted."""

    store: Annotated[str, _field("where it was last")]
    time: Annotated[str, _field("when it was accepted")]
    made: Annotated[bool, _field("whether this machine made the store")]
    items: list[TrustSetting]


class Trusted(Answer, frozen=True, kw_only=True, tag="ctxvc.trusted/1"):
    """`trust --list`"""

    items: list[TrustedStore]


class DoctorItem(Item, frozen=True, kw_only=True):
    """One thing that `doctor` looked at."""

    check: str
    level: Annotated[str, _field("`ok`, `note`, or `problem`")]
    found: str
    mend: Annotated[str, _field("the command that mends it; empty where nothing needs to be done")]


class Doctor(Answer, frozen=True, kw_only=True, tag="ctxvc.doctor/1"):
    """`doctor`"""

    items: list[DoctorItem]
