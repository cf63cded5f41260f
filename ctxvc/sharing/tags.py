"""Signed tags: an index of the sessions that a person has verified, under their signature."""

from __future__ import annotations

from ctxvc.core.ledger import name_rules
from ctxvc.errors import BadName, Damaged, NotFound, Phrase
from ctxvc.sharing import index as indices
from ctxvc.sharing import inventory
from ctxvc.sharing.remotes import Remote
from ctxvc.store.git import signature
from ctxvc.store.store import Store
from ctxvc.store.upkeep import gc

_CLONE = "tag"


def sign(store: Store, name: str, session: str = "") -> int:
    """Signs the committed history of a session, by default of all; returns the number of sessions.

    Raises: BadName; Refused if the tag exists or signing is not possible; NotFound if there is nothing to sign.
    """
    if reason := name_rules.problem(name):
        raise BadName(f"bad tag name {name[:100]!r}: {reason}", hint=f"try {name_rules.slug(name, 'tag')!r}")
    gc.flush(store)
    remote = Remote(name=_CLONE, address="", sessions=(session,) if session else ())
    index = inventory.index(store, remote, _CLONE, "")
    if not index.sessions:
        raise NotFound("there is no session to sign", hint=Phrase("import-sessions"))
    lines = [f"{entry.name} {scope} {tip}" for entry in index.sessions.values() for scope, tip in entry.scopes.items()]
    message = "\n".join([f"{name}: {len(index.sessions)} sessions, verified", "", *lines, ""])
    signature.sign(store.path, name, inventory.commit(store, index), message)
    return len(index.sessions)


def signed(store: Store, name: str) -> tuple[str, str]:
    """The commit under a tag, and its signer.

    Raises: NotFound; Refused if the signature is not good; Damaged if a scope's history no longer continues from it.
    """
    commit, who = signature.signer(store.path, name)
    for session, scopes in _index(store, commit).items():
        now = store.tips(session)
        for scope, tip in scopes.items():
            if scope not in now or tip not in store.first_parents(now[scope]):
                message = f"{session}/{scope} does not go on from what {name} signed: it was replaced, or is gone"
                raise Damaged(message, hint=Phrase("sign-replaced"))
    return commit, who


def _index(store: Store, commit: str) -> dict[str, dict[str, str]]:
    """The sessions in the index of a tag: name → scope → tip. Raises: Damaged if the commit has none."""
    shards = (f"{indices.SHARDS}/{number:02x}.jsonl" for number in range(256))
    files = {path: store.reader.optional(commit, path) for path in (indices.HEAD_FILE, indices.LIST_FILE, *shards)}
    index = indices.parse(_CLONE, {path: data for path, data in files.items() if data is not None})
    return {name: entry.scopes for name, entry in index.sessions.items()}
