"""What this store shares: the index of its sessions, and the commit that carries it with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ctxvc.core.ledger import caption, name_rules
from ctxvc.core.ledger.numbering import speaks
from ctxvc.errors import BadName, CtxvcError, Damaged, NotFound, Phrase
from ctxvc.sharing import index as indices
from ctxvc.sharing.index import Head, Index, SessionEntry
from ctxvc.sharing.remotes import Remote
from ctxvc.store import timestamp
from ctxvc.store.cache import local_cache
from ctxvc.store.format import message
from ctxvc.store.git import program, signature
from ctxvc.store.project import links
from ctxvc.store.purge.rewrite import Raw
from ctxvc.store.purge.rewrite import links as links_of
from ctxvc.store.store import Store
from ctxvc.store.upkeep import gc

_CACHE, _FORM = "shared.json", "shared 1"
#: The name of the clone in the index of a signed tag.
_TAG = "tag"


class _Cached(msgspec.Struct, frozen=True):
    key: str
    session: SessionEntry


def index(store: Store, remote: Remote, clone: str, purged: str) -> Index:
    """The index of the sessions that this remote is to have."""
    cached = local_cache.load(store, _CACHE, dict[str, _Cached]) or {}
    entries: dict[str, _Cached] = {}
    sessions: dict[str, SessionEntry] = {}
    for name, tips in sorted(store.all_tips().items()):
        key = local_cache.session_key(store, name, tips, _FORM)
        entry = cached.get(name)
        if entry is None or entry.key != key:
            if not (session := _entry(store, name, tips)):
                continue
            entry = _Cached(key, session)
        entries[name] = entry
        if _is_offered(entry.session, remote):
            sessions[name] = entry.session
    if entries != cached:
        local_cache.save(store, _CACHE, entries)
    return Index(head=Head(clone=clone, purged=purged, links=links.tip(store)), sessions=sessions)


def commit(store: Store, index: Index, former: str = "") -> str:
    """The commit of an index; `former` if that is equal. Its objects are written, but no ref leads to it."""
    raw = Raw(store.repository)
    content = indices.files(index)
    parts = indices.parts(index)
    if len(parts) == 1 and indices.LIST_FILE in parts:
        parents = indices.parents(index.sessions.values())
    else:  # one commit per shard: a push sends those that changed
        parents = [_part(raw, path, content[path], part) for path, part in parts.items()]
    parents += [index.head.links] if index.head.links else []
    tree = _tree(raw, content)
    parents = list(dict.fromkeys(parents))
    if former and former in store.repository and links_of(raw.read(bytes.fromhex(former))) == (
        tree, [bytes.fromhex(parent) for parent in parents]
    ):  # fmt: skip
        return former
    count = len(index.sessions)
    subject = f"{index.head.clone}: {count} session{'' if count == 1 else 's'}"
    return _commit(raw, tree, parents, subject, store.now())


def keep(store: Store, ref: str, commit: str) -> None:
    """Keeps the commit of an index, and all that is reachable from it, by a ref of ours."""
    program.run(store.path, "update-ref", ref, commit)


def carrier(store: Store, content: Mapping[str, bytes], former: str) -> str:
    """A commit of files that carries a session in pieces, on top of the session's `former` one."""
    raw = Raw(store.repository)
    return _commit(raw, _tree(raw, content), [former] if former else [], "pieces", 1)


def _part(raw: Raw, path: str, data: bytes, sessions: Iterable[SessionEntry]) -> str:
    # The date is constant, so that an unchanged part stays the same commit.
    return _commit(raw, _tree(raw, {path: data}), indices.parents(sessions), path, 1)


def _commit(raw: Raw, tree: bytes, parents: Iterable[str], subject: str, time: int) -> str:
    return raw.own_commit(tree, parents, time, message(subject, {"Ctxvc-Op": "index", "Ctxvc-Actor": "user"}))


def _tree(raw: Raw, content: Mapping[str, bytes]) -> bytes:
    """The tree of these files, at most one folder deep."""
    entries: dict[bytes, tuple[bytes, bytes]] = {}
    folders: dict[str, dict[str, bytes]] = {}
    for path, data in content.items():
        top, slash, name = path.partition("/")
        if slash:
            folders.setdefault(top, {})[name] = data
        else:
            entries[top.encode()] = b"100644", raw.write("blob", data)
    for name, below in folders.items():
        entries[name.encode()] = b"40000", _tree(raw, below)
    # git orders a folder as if its name ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + (b"/" if item[1][0] == b"40000" else b""))
    return raw.write("tree", b"".join(b"%s %s\0%s" % (mode, name, child) for name, (mode, child) in ordered))


def _is_offered(session: SessionEntry, remote: Remote) -> bool:
    if session.name in remote.withheld or (remote.sessions and session.name not in remote.sessions):
        return False
    return not remote.since or session.updated >= remote.since


def _entry(store: Store, name: str, tips: Mapping[str, str]) -> SessionEntry | None:
    """The entry of a session as committed; None if it cannot be read or has no `main` yet."""
    if "main" not in tips:
        return None
    scope = store.current_scope(name, tips)
    blocks: dict[tuple[str, str], int] = {}
    title = started = ""
    updated = 0
    try:
        for scope_name, tip in tips.items():
            ledger = store.reader.ledger(tip)
            rows = list(ledger.rows())
            blocks.update({(row.id, row.sha256): row.bytes for row in rows})
            updated = max(updated, store.commit(tip).author.time)
            if scope_name == "main":
                source = ledger.meta.source
                first = next((row.label for row in rows if speaks(row.kind, row.role, row.origin)), "")
                title = caption.plain(source.title if source and source.title else first)
                started = source.started if source else ""
    except CtxvcError:
        return None
    return SessionEntry(
        name=name,
        scope=scope,
        tip=tips[scope],
        scopes=dict(sorted(tips.items())),
        tokens=sum(blocks.values()) // 4,
        started=started,
        updated=timestamp.iso(updated),
        title=title[:120],
    )


def sign(store: Store, name: str, session: str = "") -> int:
    """Signs the committed history of a session, by default of all; returns the number of sessions.

    Raises: BadName; Refused if the tag exists or signing is not possible; NotFound if there is nothing to sign.
    """
    if reason := name_rules.problem(name):
        raise BadName(f"bad tag name {name[:100]!r}: {reason}", hint=f"try {name_rules.slug(name, 'tag')!r}")
    gc.flush(store)
    remote = Remote(name=_TAG, address="", sessions=(session,) if session else ())
    shared = index(store, remote, _TAG, "")
    if not shared.sessions:
        raise NotFound("there is no session to sign", hint=Phrase("import-sessions"))
    lines = [f"{entry.name} {scope} {tip}" for entry in shared.sessions.values() for scope, tip in entry.scopes.items()]
    text = "\n".join([f"{name}: {len(shared.sessions)} sessions, verified", "", *lines, ""])
    signature.sign(store.path, name, commit(store, shared), text)
    return len(shared.sessions)


def signed(store: Store, name: str) -> tuple[str, str]:
    """The commit under a tag, and its signer.

    Raises: NotFound; Refused if the signature is not good; Damaged if a scope's history no longer continues from it.
    """
    signed_commit, who = signature.signer(store.path, name)
    for session, scopes in _signed_tips(store, signed_commit).items():
        now = store.tips(session)
        for scope, tip in scopes.items():
            if scope not in now or tip not in store.first_parents(now[scope]):
                fault = f"{session}/{scope} does not go on from what {name} signed: it was replaced, or is gone"
                raise Damaged(fault, hint=Phrase("sign-replaced"))
    return signed_commit, who


def _signed_tips(store: Store, commit: str) -> dict[str, dict[str, str]]:
    """The sessions in one of our indexes: name → scope → tip. Raises: Damaged."""
    shards = (f"{indices.SHARDS}/{number:02x}.jsonl" for number in range(256))
    files = {path: store.reader.optional(commit, path) for path in (indices.HEAD_FILE, indices.LIST_FILE, *shards)}
    shared = indices.parse(_TAG, {path: data for path, data in files.items() if data is not None})
    return {name: entry.scopes for name, entry in shared.sessions.items()}
