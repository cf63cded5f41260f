"""Searches a push for secrets, and for bodies that a host may refuse: the last check before content leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pygit2

from ctxvc.core.secrets import redact
from ctxvc.errors import Phrase, Refused
from ctxvc.store import format as fmt
from ctxvc.store.git import program
from ctxvc.store.git.objects import Objects, find
from ctxvc.store.store import Store

_MOST = 8
#: Hosts warn about files of this many bytes, and refuse twice that (GitHub; GitLab and Bitbucket if set so).
LARGE = 50 << 20


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that a push would send. `block` is empty if no body has it; `path` is also empty if a message has it.

    If a branch's name contains it, `path` is that name.
    """

    kind: str
    commit: str
    session: str = ""
    scope: str = ""
    block: str = ""
    path: str = ""

    def __str__(self) -> str:
        where = f"{self.session}/{self.scope}:" if self.session else ""
        what = self.block or self.path or "the message"
        return f"{self.kind} in {where}{what} (commit {self.commit[:12]})"


class LargeBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body, or another file of a commit, that a host may refuse for its size. `id` is its blob id."""

    id: str
    session: str
    scope: str
    block: str
    path: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.session}/{self.scope}:{self.block or self.path} ({self.bytes / 1e6:,.0f} MB)"


def leaks(store: Store, tips: Iterable[str], had: Iterable[str] = ()) -> list[Leak]:
    """The secrets reachable from `tips` but not from `had`, the other side's commits. Both may be commits or refs.

    A secret in several places is listed once, with a body if one has it.
    """
    tips = frozenset(tips)
    revisions = "\n".join([*sorted(tips), *(f"^{commit}" for commit in had)])
    listed = program.run(
        store.path, "rev-list", "--objects", "--topo-order", "--reverse", "--stdin", data=revisions.encode()
    )
    secrets: dict[bytes, tuple[str, str, bytes]] = {}  # secret → kind, path, blob
    reported: dict[bytes, Leak] = {}
    commits: list[bytes] = []
    for line in listed.decode("utf-8", "surrogateescape").splitlines():
        name, _, path = line.partition(" ")
        kind, data = store.repository.odb.read(name)
        if kind == pygit2.enums.ObjectType.COMMIT:
            commits.append(bytes.fromhex(name))
            for of, secret in redact.secrets(data.partition(b"\n\n")[2], "txt", store.redaction.criteria):
                reported.setdefault(secret, Leak(kind=of, commit=name))
        elif kind == pygit2.enums.ObjectType.BLOB:
            ext = path.rpartition(".")[2]
            for of, secret in redact.secrets(data, "json" if ext == "jsonl" else ext, store.redaction.criteria):
                if secret not in secrets or (fmt.block_of_path(path) and not fmt.block_of_path(secrets[secret][1])):
                    secrets[secret] = of, path, bytes.fromhex(name)
    placed = _placed(store, commits, [(of, blob) for of, _, blob in secrets.values()])
    return [*placed, *(leak for secret, leak in reported.items() if secret not in secrets), *_names(store, tips)]


def large(store: Store, tips: Iterable[str], had: Iterable[str] = ()) -> list[LargeBody]:
    """The bodies of at least `LARGE` bytes reachable from `tips` but not from `had`, the largest first."""
    revisions = "\n".join([*tips, *(f"^{commit}" for commit in had)]).encode()
    options = (f"--filter=blob:limit={LARGE}", "--filter-print-omitted", "--objects", "--stdin")
    omitted = program.run(store.path, "rev-list", *options, data=revisions)
    blobs = frozenset(bytes.fromhex(line[1:41].decode()) for line in omitted.splitlines() if line.startswith(b"~"))
    if not blobs:
        return []
    names = program.run(store.path, "rev-list", "--topo-order", "--reverse", "--stdin", data=revisions)
    objects = Objects(store.repository)
    commits = ((name, objects.commit(name)) for name in map(bytes.fromhex, names.decode().split()))
    bodies = []
    for blob, (commit, path) in find(objects, commits, blobs).items():
        session, scope = _scope(store, commit)
        size = len(store.repository.odb.read(blob.hex())[1])
        block = fmt.block_of_path(path)
        bodies.append(LargeBody(id=blob.hex(), session=session, scope=scope, block=block, path=path, bytes=size))
    return sorted(bodies, key=lambda body: -body.bytes)


def _names(store: Store, tips: frozenset[str]) -> Iterator[Leak]:
    """The refs of these tips whose names contain a secret."""
    for reference in store.repository.references.iterator():
        if not tips.isdisjoint((reference.name, str(reference.target))):
            for kind, _ in redact.secrets(reference.name.encode(), "txt", store.redaction.criteria):
                yield Leak(kind=kind, commit=str(reference.peel(pygit2.Commit).id), path=reference.name)


def refuse(store: Store, tips: Iterable[str], had: Iterable[str] = ()) -> None:
    """Raises: Refused, with the places, if secrets would be sent."""
    leaking = leaks(store, tips, had)
    if leaking:
        more = f"; and {len(leaking) - _MOST} more" if len(leaking) > _MOST else ""
        raise Refused(
            f"this would send secrets: {'; '.join(map(str, leaking[:_MOST]))}{more}",
            hint=Phrase("purge-secrets"),
        )


def _placed(store: Store, commits: list[bytes], secrets: list[tuple[str, bytes]]) -> Iterator[Leak]:
    """Each secret with the oldest commit that has it, and its place there."""
    if not secrets:
        return
    objects = Objects(store.repository)
    places = find(objects, ((name, objects.commit(name)) for name in commits), frozenset(blob for _, blob in secrets))
    for kind, blob in secrets:
        commit, path = places[blob]
        session, scope = _scope(store, commit)
        yield Leak(
            kind=kind,
            commit=commit.hex(),
            session=session,
            scope=scope,
            block=fmt.block_of_path(path),
            path=path,
        )


def _scope(store: Store, commit: bytes) -> tuple[str, str]:
    """The session and scope of a commit; empty if it has none, as in an index."""
    meta = store.reader.meta(commit.hex()) if store.reader.optional(commit.hex(), fmt.META) else None
    return (meta.session, meta.scope) if meta else ("", "")
