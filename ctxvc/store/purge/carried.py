"""A purge made by another clone, known by its record: old → new ids, never the erased content.

This store has the old bodies, and gets the new ones with the other clone's history: the difference is what was erased.
The same texts are then erased here, also from content that only this store has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pygit2

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.secrets import redact
from ctxvc.errors import Damaged, Phrase
from ctxvc.store.format import message
from ctxvc.store.git.objects import Objects, Unbrowsed, Unreadable
from ctxvc.store.purge.apply import MAP, REF
from ctxvc.store.purge.rewrite import Raw
from ctxvc.store.store import Store

_ID = re.compile(r"[0-9a-f]{40}")
#: The most bytes of a record.
_LARGEST = 256 << 20


class PurgeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Old → new ids of blobs and commits, over all purges up to `commit`; all empty without a purge."""

    commit: str = ""
    blobs: dict[str, str] = {}
    commits: dict[str, str] = {}

    @property
    def erased(self) -> frozenset[str]:
        """The ids that no store should have any more."""
        return frozenset((*self.blobs, *self.commits))


class _Map(msgspec.Struct):
    format: int
    blobs: dict[str, str]
    commits: dict[str, str]


def own(store: Store) -> PurgeRecord:
    """The record of this store; an empty one without a purge. Raises: Damaged."""
    if REF not in store.repository.references:
        return PurgeRecord()
    return record_at(store, str(store.repository.references[REF].target))


def record_at(store: Store, commit: str) -> PurgeRecord:
    """The record at a commit, which may come from anyone. Raises: Damaged if it is not a valid record."""
    try:
        tree = store.reader.tree(commit)
        file = tree[MAP]
        if not isinstance(file, pygit2.Blob) or file.size > _LARGEST or len(tree) != 1:
            raise ValueError
        record = msgspec.json.decode(store.reader.path(commit, MAP, MAP), type=_Map)
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError, pygit2.GitError) as error:
        raise Damaged(f"{commit[:12]} is not a record of a purge", hint=Phrase("share-theirs")) from error
    ids = (*record.blobs.items(), *record.commits.items())
    if record.format != 1 or not all(_ID.fullmatch(name) for pair in ids for name in pair):
        raise Damaged(f"{commit[:12]} is not a record of a purge", hint=Phrase("share-theirs"))
    return PurgeRecord(commit=commit, blobs=record.blobs, commits=record.commits)


def present(store: Store, record: PurgeRecord) -> list[str]:
    """The ids of the objects that the record erases and this store still has."""
    return [name for name in record.erased if name in store.repository]


def includes(store: Store, newer: str, older: str) -> bool:
    """Whether the record at commit `newer` includes the one at `older`."""
    if not older or newer == older:
        return True
    if not newer or newer not in store.repository or older not in store.repository:
        return False
    return bool(store.repository.descendant_of(newer, older))


def write(store: Store, record: PurgeRecord, parents: Iterable[str], subject: str) -> str:
    """Writes a record as a commit on top of others; returns its id. No ref points to it yet."""
    raw = Raw(store.repository)
    content = {"format": 1, "blobs": record.blobs, "commits": record.commits}
    blob = raw.write("blob", msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    tree = raw.write("tree", b"100644 %s\0%s" % (MAP.encode(), blob))
    text = message(subject, {"Ctxvc-Op": "purge", "Ctxvc-Actor": "user"})
    return raw.own_commit(tree, filter(None, parents), store.now(), text)


def erased_texts(old: bytes, new: bytes) -> list[tuple[bytes, bytes]]:
    """The texts that were replaced in a body, each with its mark; empty if the difference does not show them."""
    pairs: dict[bytes, bytes] = {}
    place = at = 0
    for match in redact.MARK.finditer(new):
        literal = new[at : match.start()]
        if not old.startswith(literal, place):
            return []
        place, at = place + len(literal), match.end()
        following = redact.MARK.search(new, at)
        literal = new[at : following.start() if following else len(new)]
        end = old.find(literal, place) if literal else len(old)
        if not following:
            end = len(old) - len(literal)
        if end < place or (not literal and following):
            return []
        text = old[place:end]
        if text != match[0]:
            pairs[text] = match[0]
        place = end
    if old[place:] != new[at:]:
        return []
    return [(_decoded(text), mark) for text, mark in pairs.items() if text]


def erased_beside_bodies(store: Store, record: PurgeRecord) -> dict[bytes, bytes]:
    """text → mark, of what was replaced outside of bodies: in messages, system prompts, tools and rows.

    Derived from the commits of which this store has both the old and the new one.
    """
    objects = Objects(store.repository)
    texts: dict[bytes, bytes] = {}
    seen: set[tuple[bytes, bytes]] = set()
    for old, new in record.commits.items():
        if old not in store.repository or new not in store.repository:
            continue
        try:
            before, after = objects.commit(bytes.fromhex(old)), objects.commit(bytes.fromhex(new))
            texts.update(_erased_in_lines(before.message.encode(), after.message.encode()))
            for change in objects.diff(before.tree, after.tree, "", 3):
                if isinstance(change, Unbrowsed) or change.old is None or change.new is None:
                    continue
                pair = change.old.id, change.new.id
                if pair not in seen and not change.path.startswith(("/blocks/", "/archive/")):
                    seen.add(pair)
                    texts.update(_erased_in_lines(*map(objects.blob, pair)))
        except Unreadable:  # not one of our histories: it shows nothing
            continue
    return texts


def _erased_in_lines(old: bytes, new: bytes) -> Iterator[tuple[bytes, bytes]]:
    for before, after in zip(old.split(b"\n"), new.split(b"\n"), strict=False):
        if before == after or not redact.MARK.search(after):
            continue
        if texts := erased_texts(before, after):
            yield from texts
        else:  # a row: its checksums differ too
            yield from _erased_in_value(wire.parsed(before, dict), wire.parsed(after, dict))


def _erased_in_value(old: Any, new: Any) -> Iterator[tuple[bytes, bytes]]:
    """The texts replaced in the strings of a JSON value, each with its mark."""
    match old, new:
        case str(), str():
            yield from erased_texts(display.encode(old), display.encode(new))
        case dict(), dict():
            for name in old.keys() & new.keys():
                yield from _erased_in_value(old[name], new[name])
        case list(), list():
            for one, two in zip(old, new, strict=False):
                yield from _erased_in_value(one, two)


def _decoded(text: bytes) -> bytes:
    """A part of a JSON string, unescaped; any other text unchanged."""
    if b"\\" not in text:
        return text
    try:
        value = json.loads(b'"' + text + b'"')
    except ValueError:
        return text
    return str(value).encode("utf-8", "surrogatepass")
