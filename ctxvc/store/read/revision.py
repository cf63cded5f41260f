"""Revisions, which name moments of a scope, and snapshots of them; prompts and replies as commits record them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import msgspec
import pygit2

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.suggestion import meant
from ctxvc.core.view.dashboard import is_protocol
from ctxvc.errors import BadInput, NotFound, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.format import trailers_of
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.log.journal import Change
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import session_name
from ctxvc.store.store import Store

#: The trailer of a step's commit with the hash of the prompt that its reply saw, and the last block of that prompt.
PROMPT = "Ctxvc-Prompt"
#: For a step on the wire: the tokens of the client's own prompt, as the provider counts, if another one was sent.
CLIENT_TOKENS = "Ctxvc-Client-Tokens"
_BACK = re.compile(r"(.*?)((?:[~^][0-9]*)*)")
_COUNT = re.compile(r"-?[0-9]{1,18}")
_STEP = re.compile(r"step[: ]?([0-9]+)")


class Snapshot(msgspec.Struct, frozen=True):
    """A scope at one moment: its ledger and the reader of its bodies. `commit` is its newest commit.

    `waiting` counts acknowledged records that are not committed; the ledger includes them.
    """

    ledger: Ledger
    bodies: Bodies
    commit: str
    session: str
    scope: str
    system: Any = None
    tools: Any = None
    waiting: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A commit as shown by `log`. `time` is the recorded time, in seconds since 1970; ids are full."""

    commit: str
    parents: tuple[str, ...]
    subject: str
    body: str
    trailers: dict[str, str]
    actor: str
    time: int

    @property
    def op(self) -> str:
        """The operation of the commit, such as `step`; empty if it names none."""
        return self.trailers.get("Ctxvc-Op", "")

    @property
    def usage(self) -> dict[str, int]:
        """The provider's usage for the call, under the provider's names; empty if the commit is not of a call.

        A recorded value that is not a number is -1.
        """
        pairs = (word.partition("=") for word in self.trailers.get("Ctxvc-Usage", "").split())
        return {name: int(count) if _COUNT.fullmatch(count) else -1 for name, _, count in pairs}

    @property
    def times(self) -> dict[str, int]:
        """The times of a step, in seconds since 1970; those that were not recorded are missing.

        The reply was requested (`asked`) and complete (`replied`), and had its results (`answered`).
        """
        pairs = (word.partition("=") for word in self.trailers.get("Ctxvc-Times", "").split())
        return {name: seconds for name, _, time in pairs if (seconds := epoch(time, -1)) >= 0}


class Moment(NamedTuple):
    """A scope's ledger at a commit, or with the pending changes on top of it, and the readers of its bodies."""

    commit: str
    ledger: Ledger
    bodies: Bodies


def moment(store: Store, commit: str) -> Moment:
    """The scope at a commit (a full id). Raises: NotFound if no session has the commit, Damaged."""

    def file(row: Row, suffix: str) -> bytes:
        return store.reader.path(commit, fmt.file_path(row, suffix), f"{row.id}-{suffix}")

    return Moment(commit, store.reader.ledger(commit), Bodies(lambda row: store.reader.body(commit, row), file))


def moment_now(stored: StoredSession, scope: str) -> Moment:
    """The scope now, including uncommitted changes."""
    bodies = Bodies(lambda row: stored.body(row, scope), lambda row, suffix: stored.file(row, suffix, scope))
    return Moment(stored.tip(scope), stored.ledger(scope), bodies)


def now(stored: StoredSession, scope: str = "") -> Snapshot:
    """The scope now, including uncommitted changes."""
    scope = scope or stored.scope
    system, tools = stored.system_and_tools(scope)
    commit, ledger, bodies = moment_now(stored, scope)
    return Snapshot(
        ledger=ledger,
        bodies=bodies,
        commit=commit,
        session=stored.name,
        scope=scope,
        system=system,
        tools=tools,
        waiting=stored.waiting(),
    )


def at(store: Store, commit: str) -> Snapshot:
    """The scope at a commit (a full id). Raises: NotFound if no session has the commit, Damaged."""
    _, ledger, bodies = moment(store, commit)
    system, tools = store.reader.system_and_tools(commit)
    return Snapshot(
        ledger=ledger,
        bodies=bodies,
        commit=commit,
        session=ledger.meta.session,
        scope=ledger.meta.scope,
        system=system,
        tools=tools,
    )


def settled(store: Store, snapshot: Snapshot) -> str:
    """The snapshot's commit, if only ctxvc's own text is uncommitted; empty if part of the conversation is."""
    before = store.reader.ledger(snapshot.commit) if snapshot.waiting else snapshot.ledger
    new = (row for row in snapshot.ledger.rows() if before.get(row.id) is None)
    return snapshot.commit if all(row.kind in ASIDE or is_protocol(row) for row in new) else ""


def resolve(store: Store, stored: StoredSession, revision: str) -> Snapshot:
    """The snapshot at `revision`.

    `HEAD`, `@` or empty: now. `main`, `SESSION/SCOPE`: that scope now, with SESSION as in `session_name.resolve`. The
    whole name of a session: its current scope now. `step:12`: the end of that step in the current scope. Four or more
    digits of a commit id: that commit. A suffix `~3` goes three commits back.
    Raises: NotFound, BadInput; Ambiguous if several sessions begin with SESSION.
    """
    match = _BACK.fullmatch(revision)
    base, back = match.groups() if match else (revision, "")
    steps_back = sum(_generations(word) for word in re.findall(r"[~^][0-9]*", back))
    snapshot = _base(store, stored, base)
    if not steps_back:
        return snapshot
    for distance, commit in enumerate(store.first_parents(snapshot.commit)):
        if distance == steps_back:
            return at(store, commit)
    raise NotFound(f"{revision}: there are not that many commits before {base or 'HEAD'}", hint=Phrase("count-commits"))


def history(store: Store, commit: str) -> Iterator[Entry]:
    """The commit and its first parents, newest first."""
    for ancestor in store.first_parents(commit):
        yield entry(store, ancestor)


def waiting_entry(change: Change) -> Entry:
    """An uncommitted change as the entry of its future commit; the id is empty."""
    return Entry(
        commit="",
        parents=(),
        subject=change.subject,
        body="",
        trailers={**change.trailers, "Ctxvc-Op": change.op, "Ctxvc-Actor": change.actor},
        actor=change.actor,
        time=change.written,
    )


def trace(store: Store, tips: Iterable[str]) -> Iterator[Entry]:
    """All commits that the tips reach, in the order in which they were made.

    That is the journal's order; no commit precedes its parents. Imports have no journal: their recorded times count.
    """
    places: dict[str, tuple[int, int, int]] = {}
    entries: dict[str, Entry] = {}
    for tip in tips:
        chain = list(takewhile(lambda commit: str(commit.id) not in places, store.ancestors(tip)))
        for commit_object in reversed(chain):
            traced = _entry(commit_object)
            commit = traced.commit
            entries[commit] = traced
            number = traced.trailers.get("Ctxvc-Seq", "").rpartition("/")[2]
            own = int(number) if number.isdecimal() else 0
            seq, time, depth = places.get(traced.parents[0], (0, 0, 0)) if traced.parents else (0, 0, 0)
            places[commit] = max(own, seq), max(traced.time, time), depth + 1
    return (entries[commit] for commit in sorted(places, key=lambda commit: (places[commit], commit)))


def entry(store: Store, commit: str) -> Entry:
    """A commit as shown by `log`."""
    return _entry(store.commit(commit))


def _entry(commit_object: pygit2.Commit) -> Entry:
    message, author = commit_object.message, commit_object.author
    subject, _, rest = message.partition("\n")
    trailers = trailers_of(message)
    body = rest.strip()
    if trailers and body:
        body = body.rpartition("\n\n")[0]
    return Entry(
        commit=str(commit_object.id),
        parents=tuple(str(parent) for parent in commit_object.parent_ids),
        subject=subject,
        body=body,
        trailers=trailers,
        actor=author.name,
        time=author.time,
    )


def exactness(store: Store, snapshot: Snapshot, *, sent: bool = False) -> Literal["exact", "reconstructed"]:
    """Whether a snapshot's prompt is the one that was sent; with `sent`, the prompt that its newest reply saw.

    For a recording it is exact if the newest step's prompt was compared with the host's record, or its request is
    recorded byte for byte, and only the host has changed the scope since.
    """
    if snapshot.ledger.meta.source is None:
        return "exact"
    stored = StoredSession.for_reading(store, snapshot.session, snapshot.scope) if snapshot.waiting else None
    for waiting in reversed(stored.waiting_changes(snapshot.scope) if stored else ()):
        if not waiting.step and not sent:
            return "reconstructed"
        if waiting.step and any(path.startswith(f"{fmt.BODY}/") for path, _ in waiting.files):
            return "exact"
    for change in history(store, snapshot.commit):
        if change.trailers.get("Ctxvc-Op") == "step":
            is_exact = PROMPT in change.trailers or store.reader.pieces(change.commit)
            return "exact" if is_exact else "reconstructed"
        if not sent:
            break
    return "reconstructed"


def _generations(word: str) -> int:
    if word[0] == "^":
        if word not in ("^", "^1"):
            raise BadInput(f"{word!r}: only first parents can be named", hint="use ~N")
        return 1
    return int(word[1:] or 1)


def _base(store: Store, stored: StoredSession, base: str) -> Snapshot:
    if base in ("", "@", "HEAD"):
        return now(stored)
    if base in stored.scopes():
        return now(stored, base)
    if step := _STEP.fullmatch(base):
        return _at_step(store, stored, int(step.group(1)))
    name, slash, scope = base.partition("/")
    if slash and (session := session_name.match(store, name)):
        other = StoredSession.for_reading(store, session, scope)
        return now(other, scope)
    if store.has(base):
        return now(StoredSession.for_reading(store, base))
    return at(store, _commit(store, stored, base))


def _at_step(store: Store, stored: StoredSession, step: int) -> Snapshot:
    current = stored.ledger().meta.counters.step
    if not 0 <= step <= current:
        raise NotFound(f"no step {step} in {stored.name}/{stored.scope}", hint=f"its newest step is {current}")
    if step == current:  # the newest step may not be committed yet
        return now(stored)
    for commit in store.first_parents(stored.tip()):
        if store.reader.meta(commit).counters.step <= step:
            return at(store, commit)
    raise NotFound(f"no step {step} in {stored.name}/{stored.scope}")


def _names(store: Store, stored: StoredSession) -> Iterator[str]:
    """Everything that can name a revision, except commit ids."""
    yield from ("HEAD", *stored.scopes())
    yield from (f"{name}/{scope}" for name, scopes in store.all_tips().items() for scope in scopes)


def _commit(store: Store, stored: StoredSession, prefix: str) -> str:
    hint = Phrase("commits-and-scopes", session=stored.name, scopes=", ".join(stored.scopes()[:8]))
    if not re.fullmatch(r"[0-9a-fA-F]{4,40}", prefix):
        raise NotFound(f"no revision {prefix[:80]!r}{meant(prefix, _names(store, stored))}", hint=hint)
    try:
        commit = store.repository.get(prefix.lower()) if len(prefix) == 40 else store.repository[prefix.lower()]
    except KeyError:
        commit = None
    except ValueError as error:
        raise NotFound(f"{prefix} matches several ids", hint="give more digits") from error
    if not isinstance(commit, pygit2.Commit):
        raise NotFound(f"no commit {prefix}", hint=hint)
    return str(commit.id)


_SENT = re.compile(r"([0-9a-f]{64}) (B[1-9][0-9]{0,11}|-)(?: ([+-][1-9][0-9]{0,8}))?")


class Sent(msgspec.Struct, frozen=True):
    """A commit's record of the prompt that its reply saw.

    `digest` is the prompt's hash, `last` its newest block. A positive `later` counts the verbs in the open step before
    the call: their commits come right after the step's, and the prompt that was sent has their effect. A negative one
    counts the verbs between the call and its reply: their commits come right before the step's, and the prompt that was
    sent does not have their effect.
    """

    digest: str
    last: str
    later: int = 0

    def __str__(self) -> str:
        return f"{self.digest} {self.last or '-'}" + (f" {self.later:+}" if self.later else "")


def sent_prompt(trailer: str) -> Sent | None:
    """The parsed trailer; None if it is not a valid record."""
    match = _SENT.fullmatch(trailer)
    return Sent(match[1], "" if match[2] == "-" else match[2], int(match[3] or 0)) if match else None


class Reply(msgspec.Struct, frozen=True):
    """A step's reply: its time in seconds since 1970, its model and the provider's counts."""

    time: int
    model: str
    usage: Mapping[str, int]


def replies(store: Store, entries: Iterable[Entry]) -> dict[int, Reply]:
    """step → its reply; if a step has several entries, that of the first. `entries` are newest first."""
    by_step: dict[int, Reply] = {}
    for entry in entries:
        if entry.op == "step":
            step = store.reader.meta(entry.commit).counters.step
            by_step.setdefault(step, Reply(entry.time, entry.trailers.get("Ctxvc-Model", ""), entry.usage))
    return by_step


def sent_body(stored: StoredSession, snapshot: Snapshot) -> bytes:
    """The request body that the newest reply in a snapshot of `stored` answers; marks stand for secrets.

    Raises: NotFound if it is not recorded, Damaged.
    """
    store = stored.store
    is_now = snapshot.session == stored.name and snapshot.commit == stored.tip(snapshot.scope)
    if is_now and snapshot.waiting:
        pieces: Mapping[str, str | bytes] = stored.pieces(snapshot.scope)
    else:
        step = next(
            (entry for entry in history(store, snapshot.commit) if entry.op == "step"),
            None,
        )
        pieces = store.reader.pieces(step.commit) if step else {}
    if not pieces:
        raise NotFound(
            f"no request is recorded byte for byte at {snapshot.commit[:12]}",
            hint=Phrase("record-exactly"),
        )
    return joined_body(store, pieces)


def joined_body(store: Store, pieces: Mapping[str, str | bytes]) -> bytes:
    """The request body made of these pieces, in their order. Raises: Damaged."""
    return b"".join(
        piece if isinstance(piece, bytes) else store.reader.blob(piece, path) for path, piece in pieces.items()
    )
