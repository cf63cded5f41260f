"""The host's compaction, replaced by a policy's plan.

Before it compacts, the host sends its messages; the answer is the messages of a smaller prompt. The plan stays pending
until the host's transcript shows that the answer was installed, and only then is committed; otherwise it is dropped,
with the reason (docs/decisions/0044-compaction-in-a-host.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ctxvc.claude_code.event import main_file
from ctxvc.claude_code.installed import transcript_of
from ctxvc.core import variables
from ctxvc.core.hosts.message import HostMessage, ToolResult, ToolUse
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.plan import payoff, selection
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.policy import Policy
from ctxvc.errors import Conflict, NotFound, Refused
from ctxvc.importers.claude_code import FORMAT
from ctxvc.recording import log, places
from ctxvc.recording.files import Follower
from ctxvc.session.compaction import Compaction, compaction
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import contained

#: The event with which the host's extension asks for an answer.
EVENT = "SessionCompact"
#: The triggers of a compaction that a person typed, and of one made ahead of time, which the host may install much
#: later or never.
_MANUAL = "manual"
_AHEAD = "precompute"
#: The size above which a plan that waits for the host is due: never by itself.
_NEVER = 1 << 40
#: The most messages (the host's own bound), and the most characters of a text, that are read.
_MOST = 4_096
_LONGEST = 16 << 20
#: Seconds to wait for a transcript behind the host's messages, and between two looks at it.
_LAG = 0.4
_PAUSE = 0.02
#: The host's lines that a person's command leaves among the messages.
_COMMANDS = re.compile(
    r"\s*(?:<command-name>/compact\b|<local-command-stdout>\s*Compacted|<local-command-caveat>|<local-command-stdout>\s*</)"
)
#: The host's text in a message that had only thinking.
_NOTHING = "(no content)"
_S = TypeVar("_S", bound=msgspec.Struct)
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class Outcome(NamedTuple):
    """A compaction for the person: tokens before and after, the number of blocks that left, the seconds it took.

    `beside_summary` is its cost as a multiple of that of the host's own summary; 0 if no person chose between the two,
    or the size of a small prompt is unknown.
    """

    before: int
    after: int
    archived: int
    seconds: float
    beside_summary: float = 0.0


class Choice(NamedTuple):
    """The person's settings for this host: the policy, the target in tokens (0: as pays), patterns of files that stay.

    `always` compacts even if the host's own summary is cheaper, `off` never compacts. `line` words an outcome for the
    person.
    """

    policy: Policy
    line: Callable[[Outcome], str]
    target: int = 0
    protect: Sequence[str] = ()
    always: bool = False
    off: bool = False


class CompactionEvent(NamedTuple):
    """The host's request for a compaction. `agent` is the sub-agent whose conversation it is; empty for the main one.

    `tokens` is the provider's count of the newest prompt; 0 if unknown.
    """

    session: str
    folder: str
    trigger: str
    agent: str
    instructions: str
    messages: tuple[HostMessage, ...]
    tokens: int = 0

    @property
    def is_manual(self) -> bool:
        """Whether a person typed it."""
        return self.trigger == _MANUAL


class _Changes(msgspec.Struct, frozen=True, kw_only=True):
    """A rehearsal without its ledger. `stood` has the earlier `_position` of its blocks, `next_group` is a number."""

    plan: Plan
    stood: Mapping[str, str]
    next_group: int
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    actions: tuple[Action, ...]
    rolled: tuple[str, ...]
    tokens_before: int
    tokens_after: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that waits for the host: the plan, and all that its commit needs.

    `digests` are those of the answered messages, in order; `offset` is the transcript's size at the time. `stubs` maps
    our texts in the answer to their groups. `transcript` is the file's path, empty in older answers.
    """

    plan: str
    session: str
    scope: str
    trigger: str
    before: int
    after: int
    offset: int
    digests: tuple[str, ...]
    changes: _Changes
    stubs: Mapping[str, str]
    transcript: str = ""


class _Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges of blocks that a host's prompt lacks since its newest compaction, and the stubs in it."""

    absent: tuple[str, ...] = ()
    stubs: Mapping[str, str] = {}


def answer(
    data: bytes,
    env: Mapping[str, str],
    chosen: Callable[[Mapping[str, str]], Choice],
    opened: Store | None = None,
) -> bytes:
    """The answer for the host's extension, as JSON: `messages` to install and a `line` for the person; or a reason to
    `skip` the compaction; or a reason to `decline`, after which the host compacts by itself. Never fails: errors are
    logged, and decline.

    `chosen` returns the person's settings; `opened` is the store if it is already open.
    """
    store: Path | None = None
    try:
        event = parsed(data)
        if event is None:
            return _declined("the event cannot be read")
        choice = chosen(env)
        if choice.off or variables.is_recording_off(env):
            return _declined("")
        store = places.store(Path(event.folder or "."), env)
        transcript = _transcript(env, event)
        if store is None or transcript is None:
            return _declined("this session is not recorded")
        started = time.monotonic()
        if opened is not None:
            return _answer(opened, event, transcript, choice, started)
        with Store(store) as own:
            return _answer(own, event, transcript, choice, started)
    except Refused as error:
        return _declined(str(error))
    # The boundary: after any error the host compacts by itself.
    except Exception as error:
        if store:
            log.note(store, EVENT, log.describe(error))
        return _declined(f"{type(error).__name__}: {error}"[:200])


def _declined(reason: str) -> bytes:
    return json.dumps({"decline": reason}).encode()


def _answer(store: Store, event: CompactionEvent, transcript: Path, choice: Choice, started: float) -> bytes:
    """Raises: CtxvcError, OSError."""
    _await(transcript, event.messages)
    main = Path(main_file(str(transcript)))
    ends = settle(store, str(main))
    follower = Follower(store, main, FORMAT)
    for outcome in follower.take(closes=True, subagent=transcript.stem if event.agent else "", ends=ends):
        if outcome.error:
            raise outcome.error
    name = follower.session or _session_of(store, event.session)
    scope = name_rules.agent_scope(event.agent) if event.agent else ""
    if scope and scope not in store.tips(name):
        raise NotFound(f"no scope {name}/{scope} is recorded", hint="it is once the sub-agent's transcript is there")
    stored = StoredSession.open(store, name, scope)
    try:
        session = Session(stored, actor=choice.policy.actor, policy=choice.policy)
        recorded = _compaction(session, event, transcript, choice)
        session.save_counts()
        if not (recorded.rehearsal.rows or recorded.changes):
            return _unchanged(session, event, transcript, recorded)
        compacted = _in_hosts_tokens(recorded, event.tokens)
        _put(session, event, transcript, compacted)
        compares = event.is_manual and (event.tokens or compacted.before >= payoff.LEAST)
        ratio = payoff.beside_summary(compacted.before, compacted.after, recorded.before) if compares else 0.0
        seconds = time.monotonic() - started
        result = Outcome(compacted.before, compacted.after, compacted.archived, seconds, ratio)
        return _encoded(compacted, choice.line(result))
    finally:
        stored.leave()


def _compaction(session: Session, event: CompactionEvent, transcript: Path, choice: Choice) -> Compaction:
    """Raises: Refused, BadPolicy."""
    before = _read_installed(session.store.path, str(transcript))
    absent, _ = selection.expand(",".join(before.absent), session.ledger()) if before.absent else ((), ())
    messages = [message for message in event.messages if not is_own(message)]
    compacted = compaction(
        session,
        messages,
        choice.policy,
        target=choice.target,
        focus=event.instructions,
        protect=choice.protect,
        former=before.stubs,
        absent=absent,
        manual=event.is_manual,
    )
    size = max(compacted.before, event.tokens)
    if size < payoff.LEAST and not (event.is_manual or choice.always or choice.target):
        raise Refused(f"below {payoff.LEAST:,} tokens the host's own summary is cheaper (the prompt has {size:,})")
    return compacted


def _unchanged(session: Session, event: CompactionEvent, transcript: Path, compacted: Compaction) -> bytes:
    """The answer if nothing can leave the prompt: the reason, for a person.

    Raises: Refused if the host needs the room, so that it compacts by itself.
    """
    if compacted.target >= compacted.before:
        reason = f"its {compacted.before:,} recorded tokens are within the target of {compacted.target:,}"
    else:
        reason = (
            f"all of its {compacted.before:,} recorded tokens are a person's words, the latest step, "
            "what is pinned or protected, or too short for a stub to save anything"
        )
    if event.tokens > compacted.before:
        unrecorded = f"{event.tokens - compacted.before:,} of {event.tokens:,} tokens"
        reason += f"; {unrecorded} are not recorded: system prompt, tools, hidden thinking"
    reason = f"nothing can leave the prompt: {reason}"
    if not event.is_manual:
        raise Refused(reason)
    drop(session.stored, str(transcript), "the host asked again, and nothing can leave")
    return json.dumps({"skip": reason}).encode()


def _in_hosts_tokens(compacted: Compaction, tokens: int) -> Compaction:
    """The compaction with the provider's count of the prompt before it, and the same less what leaves."""
    if not tokens:
        return compacted
    return replace(compacted, before=tokens, after=max(compacted.after, tokens - compacted.before + compacted.after))


def is_own(message: HostMessage) -> bool:
    """Whether the host wrote the message for itself: a person's command, its output, or an empty message."""
    return message.empty or (
        not (message.tool_uses or message.tool_results)
        and (message.text.strip() == _NOTHING or (message.role == "user" and bool(_COMMANDS.match(message.text))))
    )


def _put(session: Session, event: CompactionEvent, transcript: Path, compacted: Compaction) -> None:
    """Writes the plan as pending, with what its commit needs, and drops the one before, which was not installed."""
    store, rehearsal = session.store.path, compacted.rehearsal
    drop(session.stored, str(transcript), "the host compacted again without it")
    reason = f"{event.trigger} compaction in {FORMAT}, once it is installed there"
    reason = "; ".join(filter(None, (rehearsal.plan.reason, reason)))
    plan = msgspec.structs.replace(rehearsal.plan, actions=rehearsal.done, reason=reason, above=_NEVER, later=())
    proposed = session.propose(plan)
    changes = _Changes(
        plan=msgspec.structs.replace(plan, above=0),
        stood={row.id: _position(session.ledger()[row.id]) for row in rehearsal.rows},
        next_group=session.stored.next_group,
        rows=rehearsal.rows,
        groups=rehearsal.groups,
        actions=rehearsal.done,
        rolled=rehearsal.rolled,
        tokens_before=rehearsal.tokens_before,
        tokens_after=rehearsal.tokens_after,
    )
    pending = Pending(
        plan=proposed.id,
        session=session.name,
        scope=session.scope,
        trigger=event.trigger,
        before=compacted.before,
        after=compacted.after,
        offset=transcript.stat().st_size,
        digests=tuple(map(digest, compacted.messages)),
        changes=changes,
        stubs=_stubs(compacted),
        transcript=str(transcript),
    )
    places.write_sealed(store, places.answer(store, str(transcript)), _packed(pending))
    places.write_sealed(store, places.compacted(store, str(transcript)), str(time.time()).encode())


def _stubs(compacted: Compaction) -> dict[str, str]:
    """The stubs among the messages: text → group."""
    texts = {message.text for message in compacted.messages if message.role == "user"}
    groups = compacted.rehearsal.after.groups.values()
    return {group.stub: group.id for group in groups if group.stub in texts}


def _encoded(compacted: Compaction, line: str) -> bytes:
    fields = {
        "messages": [encoded_message(message) for message in compacted.messages],
        "line": line,
        "tokensBefore": compacted.before,
        "tokensAfter": compacted.after,
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


# --- the host's messages


def parsed(data: bytes) -> CompactionEvent | None:
    """The event; None for any other value. Fields of an unexpected form are left out."""
    value = wire.parsed(data, dict)
    if value is None or not isinstance(value.get("messages"), list):
        return None
    fields = {name: text if isinstance(text := value.get(name), str) else "" for name in _FIELDS}
    if not _ID.fullmatch(fields["session"]) or (fields["agent"] and not _ID.fullmatch(fields["agent"])):
        return None
    messages = tuple(message for one in value["messages"][-_MOST:] if (message := host_message(one)))
    tokens = value.get("tokens")
    return CompactionEvent(messages=messages, tokens=tokens if isinstance(tokens, int) and tokens > 0 else 0, **fields)


_FIELDS = ("session", "folder", "trigger", "agent", "instructions")


def host_message(value: Any) -> HostMessage | None:
    """A message of the host's extension interface; None for anything else."""
    match value:
        case {"role": "user" | "assistant" as role}:
            text = value.get("text")
            key = value.get("handle")
            return HostMessage(
                role=role,
                text=text[:_LONGEST] if isinstance(text, str) else "",
                tool_uses=tuple(_uses(value.get("toolUses"))),
                tool_results=tuple(_results(value.get("toolResults"))),
                key=key if isinstance(key, str) else "",
            )
    return None


def _uses(values: Any) -> Iterator[ToolUse]:
    for value in values if isinstance(values, list) else ():
        match value:
            case {"tool_use_id": str(call), "tool": str(tool)}:
                yield ToolUse(id=call, tool=tool, input=value.get("input"))


def _results(values: Any) -> Iterator[ToolResult]:
    for value in values if isinstance(values, list) else ():
        match value:
            case {"tool_use_id": str(call), "text": str(text)}:
                yield ToolResult(id=call, text=text[:_LONGEST], error=value.get("isError") is True)


def encoded_message(message: HostMessage) -> dict[str, Any]:
    """A message for the host's extension interface, without a handle, since the host writes all messages anew."""
    value: dict[str, Any] = {
        "role": message.role,
        "text": message.text,
        "toolUses": [{"tool_use_id": use.id, "tool": use.tool, "input": use.input or {}} for use in message.tool_uses],
    }
    if message.tool_results:
        value["toolResults"] = [
            {"tool_use_id": result.id, "text": result.text, "isError": result.error} for result in message.tool_results
        ]
    return value


def digest(message: HostMessage) -> str:
    """A checksum by which a message is recognised in the transcript: of its text, calls and results."""
    calls = [use.id for use in message.tool_uses]
    results = [(result.id, result.text) for result in message.tool_results]
    value = json.dumps([message.role, message.text.strip(), calls, results])
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- the transcript


def _transcript(env: Mapping[str, str], event: CompactionEvent) -> Path | None:
    """The transcript of the conversation; None if there is none."""
    main = transcript_of(env, event.session)
    if main is None or not event.agent:
        return main
    own = main.with_suffix("") / "subagents" / f"agent-{event.agent}.jsonl"
    return own if own.exists() else None


def _await(transcript: Path, messages: Sequence[HostMessage]) -> None:
    """Waits shortly for the newest message to be in the transcript, which the host may write late."""
    key = next((message.key for message in reversed(messages) if message.key), "")
    until = time.monotonic() + _LAG
    while key and not _has(transcript, key) and time.monotonic() < until:
        time.sleep(_PAUSE)


def _has(transcript: Path, key: str) -> bool:
    with transcript.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
        return key.encode() in file.read()


def _session_of(store: Store, source: str) -> str:
    name = store.session_of(FORMAT, source)
    if not name:
        raise NotFound("this session is not recorded", hint="it is with its first message")
    return name


# --- once the host has taken it, or not


def settle(store: Store, transcript: str) -> dict[Path, int]:
    """Commits the pending compactions that the host installed in a session and its sub-agents, and drops the others.

    Returns the transcripts that do not decide it yet, with the size to which each was read. Whoever records them now
    must read no further: a boundary after that must find the plan committed. Raises: CtxvcError, OSError.
    """
    main = Path(transcript)
    files = [main, *sorted((main.with_suffix("") / "subagents").glob("agent-*.jsonl"))]
    undecided: dict[Path, int] = {}
    for file in files:
        if (pending := read_pending(store.path, str(file))) is not None:
            size = file.stat().st_size if file.exists() else 0
            if not _settle(store, file, pending):
                undecided[file] = size
    return undecided


def settle_all(store: Store) -> dict[Path, int]:
    """Settles all pending compactions of the store, before transcripts are read or blocks are changed.

    A plan must be committed before the host's boundary, and before anything that takes it back. Sessions of another
    writer are left out. Returns what `settle` does. Raises: CtxvcError, OSError.
    """
    undecided: dict[Path, int] = {}
    for name in contained.names(store.path, places.ANSWERS):
        pending = _unpacked(store.path, store.path / places.ANSWERS / name, Pending)
        if pending and pending.transcript:
            with suppress(Conflict):
                undecided |= settle(store, main_file(pending.transcript))
    return undecided


def read_pending(store: Path, transcript: str) -> Pending | None:
    """The answer that waits for the host; None if there is none."""
    return _unpacked(store, places.answer(store, transcript), Pending)


def _settle(store: Store, transcript: Path, pending: Pending) -> bool:
    """Commits or drops a pending compaction; returns False if the transcript does not decide it yet."""
    installed = _was_taken(transcript, pending)
    if installed is None:
        return False
    if pending.session not in store.sessions() or pending.scope not in store.tips(pending.session):
        places.remove(store.path, places.answer(store.path, str(transcript)))
        return True
    stored = StoredSession.open(store, pending.session, pending.scope)
    try:
        if installed:
            _commit(stored, transcript, pending)
        else:
            drop(stored, str(transcript), "the host went on without it")
    finally:
        stored.leave()
    return True


def _was_taken(transcript: Path, pending: Pending) -> bool | None:
    """Whether the host installed the answer, by its transcript; None if that does not decide it yet.

    It did if a boundary is followed by our messages; it did not if other messages follow, or if a reply comes without
    a boundary, unless the compaction was made ahead of time.
    """
    expected = iter(pending.digests)
    upcoming = next(expected, "")
    bounded = False
    for entry in _entries(transcript, pending.offset):
        if entry.get("subtype") == "compact_boundary":
            bounded = True
        elif entry.get("isCompactSummary"):
            return False
        elif (message := _written(entry)) is not None:
            if not bounded:
                if entry["type"] == "assistant" and pending.trigger != _AHEAD:
                    return False
                continue
            if digest(message) == upcoming:
                upcoming = next(expected, "")
            elif not is_own(message):
                return False
        if bounded and not upcoming:
            return True
    return None


def _entries(transcript: Path, offset: int) -> Iterator[dict[str, Any]]:
    try:
        with transcript.open("rb") as file:
            file.seek(offset)
            for data in file:
                if data.endswith(b"\n") and (entry := wire.parsed(data, dict)):
                    yield entry
    except FileNotFoundError:
        return


def _written(entry: Mapping[str, Any]) -> HostMessage | None:
    """The host message in a line of the transcript; None if there is none."""
    match entry:
        case {"type": "user" | "assistant" as role, "message": {"content": content}}:
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            return _of_blocks(role, blocks if isinstance(blocks, list) else [])
    return None


def _of_blocks(role: Any, blocks: Iterable[Any]) -> HostMessage:
    texts, uses, results = [], [], []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "tool_use", "id": str(call), "name": str(tool)}:
                uses.append(ToolUse(id=call, tool=tool, input=block.get("input")))
            case {"type": "tool_result", "tool_use_id": str(call)}:
                content = block.get("content")
                parts = content if isinstance(content, list) else [{"text": content}]
                text = "\n".join(
                    part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
                )
                results.append(ToolResult(id=call, text=text))
    return HostMessage(role=role, text="\n".join(texts), tool_uses=tuple(uses), tool_results=tuple(results))


def _commit(stored: StoredSession, transcript: Path, pending: Pending) -> None:
    """Commits the plan as the host installed it, or as much of it as is still possible."""
    store = stored.store.path
    changes = pending.changes
    session = Session(stored, actor=changes.plan.actor)
    ledger = session.ledger()
    rehearsal = Rehearsal(
        plan=changes.plan,
        after=ledger.with_rows(changes.rows).with_groups(changes.groups),
        rows=changes.rows,
        groups=changes.groups,
        done=changes.actions,
        problems=(),
        tokens_before=changes.tokens_before,
        tokens_after=changes.tokens_after,
        rolled=changes.rolled,
    )
    trailers = {"Ctxvc-Host": f"{FORMAT} trigger={pending.trigger} tokens={pending.before}→{pending.after}"}
    if any(plan.id == pending.plan for plan in session.pending()):
        if changes.next_group == stored.next_group and all(
            (row := ledger.get(block)) and _position(row) == stood for block, stood in changes.stood.items()
        ):
            session.install(rehearsal, trailers)
        else:
            log.note(store, EVENT, f"blocks of {pending.plan} changed since; it is tried on what is there now")
            session.commit(changes.plan, roll_up=True)
        stored.drop_plans([pending.plan], "committed")
    _write_installed(session, transcript, pending)
    places.remove(store, places.answer(store, str(transcript)))


def _position(row: Row) -> str:
    """A block's content, state and group, to see whether they changed."""
    return f"{row.sha256[:12]} {row.state} {row.group}"


def drop(stored: StoredSession, transcript: str, why: str) -> None:
    """Drops the answer that waits for the host, if there is one, and logs the reason."""
    store = stored.store.path
    pending = read_pending(store, transcript)
    if pending is None:
        return
    stored.drop_plans([pending.plan], why)
    places.remove(store, places.answer(store, transcript))
    log.note(store, EVENT, f"{pending.plan} was dropped: {why}")


def _write_installed(session: Session, transcript: Path, pending: Pending) -> None:
    absent = [row.id for row in session.ledger().rows() if not row.present]
    before = _read_installed(session.store.path, str(transcript))
    installed = _Installed(absent=tuple(selection.ranges(absent)), stubs={**before.stubs, **pending.stubs})
    path = places.installed(session.store.path, str(transcript))
    places.write_sealed(session.store.path, path, _packed(installed))


def _read_installed(store: Path, transcript: str) -> _Installed:
    return _unpacked(store, places.installed(store, transcript), _Installed) or _Installed()


def _packed(value: msgspec.Struct) -> bytes:
    return zlib.compress(msgspec.json.encode(value), 1)  # a host waits for it


def _unpacked(store: Path, path: Path, kind: type[_S]) -> _S | None:
    """The value in a file that this machine sealed; None if there is none."""
    try:
        return msgspec.json.decode(zlib.decompress(places.sealed(store, path)), type=kind)
    except (FileNotFoundError, zlib.error, msgspec.DecodeError):
        return None


def warm(stored: StoredSession) -> None:
    """Counts what is new in the current scope and loads the counter, to make the next compaction of this process fast.

    Raises: CtxvcError.
    """
    session = Session(stored)
    session.view()
    session.store.redaction.of(session.name)
    session.count(f"a text that was never counted: {time.time_ns()}")
    session.save_counts()
