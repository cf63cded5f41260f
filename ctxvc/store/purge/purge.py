"""Erases content from a whole store: from every commit, pack, journal and cache.

First the content is located and reported (`survey`), and nothing changes. Then all replacements are written beside the
present files, each new object is searched, and the purge is recorded as decided (`ctxvc/purge/state.json`). From then
on, opening the store completes it. If the process is killed before that, the store is the old one; after it, the new
one. At the end every other object and every file is searched.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pygit2

from ctxvc.core import display, scope
from ctxvc.core.ledger.label import WIDTH
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.secrets import encodings
from ctxvc.core.secrets import redact as secrets
from ctxvc.errors import BadInput, Conflict, CtxvcError, NotFound, Phrase, Refused
from ctxvc.store import files as durable
from ctxvc.store import format as fmt
from ctxvc.store import worktrees
from ctxvc.store.files import locked
from ctxvc.store.format import HEADS
from ctxvc.store.git import program
from ctxvc.store.git.objects import Objects, find
from ctxvc.store.log import aside
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import search
from ctxvc.store.purge.apply import REF, Decided
from ctxvc.store.purge.carried import PurgeRecord, erased_beside_bodies, erased_texts, includes, own, write
from ctxvc.store.purge.rewrite import Raw, Rewriter, commits_of, files, journal_of, journal_rewritten, links
from ctxvc.store.purge.scrub import KIND, Scrub, emptied
from ctxvc.store.purge.search import Report
from ctxvc.store.read import address as addresses
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep import gc, leftovers

#: Texts with fewer bytes are not searched for: they would match everywhere.
SHORTEST = 4
#: The start of texts that hooks give a model, and that a host then records as its own.
_HANDED = b"[ctxvc] "

#: The text of a purged block is searched for elsewhere too if it has at least this many bytes.
TELLING = 16


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content to erase: blocks by their addresses in a session, texts, and secrets as the rules detect them.

    Or what another clone has erased: `carried` is its record, whose history is already among our objects.
    """

    session: str = ""
    blocks: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    secrets: bool = False
    carried: PurgeRecord = PurgeRecord()


#: Called with the current activity, the amount done, and the total (0: unknown).
Progress = Callable[[str, int, int], None]


class _Prepared(msgspec.Struct):
    """A scrub and its sources. `rows` are the rows with some of the content, as (id, checksum)."""

    scrub: Scrub
    rows: frozenset[tuple[str, str]]
    kinds: dict[str, int]
    tips: dict[str, str]
    carried: PurgeRecord


def survey(
    store: Store, request: PurgeRequest, transcripts: Sequence[Path] = (), progress: Progress = lambda *_: None
) -> Report:
    """Reports what a purge would do. Changes nothing, except that complete steps are flushed.

    `transcripts` are files outside the store that may have the content too; reading them takes at most
    `search.SECONDS`. Raises: NotFound if there is nothing to erase, or no such block; BadInput; Refused if a checkout
    was changed; Damaged.
    """
    gc.flush(store)
    with _alone(store):
        prepared = _prepare(store, request, progress)
        report = _report(store, prepared, _rewriter(store, prepared, progress, dry=True), done=False)
    return _with_copies(report, prepared, transcripts)


def purge(
    store: Store, request: PurgeRequest, transcripts: Sequence[Path] = (), progress: Progress = lambda *_: None
) -> Report:
    """Erases the content and verifies that by searching every object and file. Open the store again afterwards.

    Raises: as `survey`; Refused, before any change, if some of the content could not be removed; CtxvcError if some of
    it is still found.
    """
    gc.flush(store)
    with _alone(store) as lock:
        prepared = _prepare(store, request, progress)
        _clear_the_way(store.path / "objects")
        rewriter = _rewriter(store, prepared, progress)
        report = _report(store, prepared, rewriter, done=True)
        progress("packing", 0, 0)
        searched = _stage(store, prepared, rewriter, report, lock)
        report = msgspec.structs.replace(report, remaining=purge_apply.apply(store.path, lock))
        progress("searching all again", 0, 0)
        remaining = list(search.remaining(store.path, prepared.scrub, searched))
    if remaining:
        raise CtxvcError(f"some of it is still there: {', '.join(remaining[:8])}", hint="run the purge again")
    return _with_copies(report, prepared, transcripts)


# --- finding


@contextmanager
def _alone(store: Store) -> Iterator[int]:
    """Keeps every ctxvc process from writing: holds all sessions' locks, then the store's. Yields the store's lock."""
    with ExitStack() as locks:
        names = store.sessions()
        for name in names:
            locks.enter_context(locked(store.lock_path(name)))
        lock = locks.enter_context(store.exclusive())
        if (store.path / "objects" / "info" / "alternates").exists():
            raise Refused(
                "this store borrows objects from another repository: its content cannot be erased from here",
                hint="`git repack -a -d` and remove objects/info/alternates, then purge both",
            )
        if store.sessions() != names:
            raise Conflict("a session was created meanwhile", hint="run it again")
        leftovers.remove(store.path)
        yield lock


def _prepare(store: Store, request: PurgeRequest, progress: Progress) -> _Prepared:
    raw = Raw(store.repository)
    tips = _tips(store)
    commits = commits_of(store.path, tips.values())
    mac = store.redaction.mac
    emptied: dict[bytes, bytes] = {}
    kinds: dict[str, int] = {}
    whole: dict[str, bytes] = {}

    def add(kind: str, secret: bytes) -> None:
        if secret not in emptied:
            emptied[secret] = secrets.mark(kind, secret, mac)
            kinds[kind] = kinds.get(kind, 0) + 1

    for value in request.texts:
        if len(display.encode(value)) < SHORTEST:
            raise BadInput(
                f"{value!r} is too short: it would match everything", hint=f"give at least {SHORTEST} characters"
            )
        add(KIND, display.encode(value))
    for row, data in _blocks(store, request):
        whole[row.sha256] = secrets.mark(KIND, data, mac)
        kinds["block"] = kinds.get("block", 0) + 1
        if len(data) >= TELLING and row.ext in secrets.TEXTS:
            emptied[data] = whole[row.sha256]
            if row.kind == "note":
                first, _ = scope.subject_and_text(display.decode(data))
                if len(display.encode(first)) >= TELLING:
                    emptied[display.encode(first)] = whole[row.sha256]
    roots = [links(raw.read(commit))[0] for commit in reversed(commits)]
    bodies = [*files(raw, roots), *_waiting(store)]
    if request.carried.commit:
        kinds["body"] = _carried(store, request.carried, bodies, emptied, whole)
    if request.secrets:
        for kind, secret in _all_secrets(store, raw, bodies, commits, progress):
            add(kind, secret)
    if not emptied and not whole and not request.carried.commit:
        raise NotFound("nothing in the store looks like a secret", hint=Phrase("purge-looked-for"))
    search.check_files(store.path, emptied)
    redactor = secrets.Redactor(mac, store.redaction.criteria) if request.secrets else None
    scrub = Scrub(marks=emptied, redactor=redactor, whole=frozenset(whole))
    rows = _rows(raw, bodies)
    scrub = _with_labels(_with_bodies(raw, bodies, rows, scrub, whole, progress), rows)
    hit = (row for row in rows if row.sha256 in scrub.sums or scrub.renames(row))
    return _Prepared(scrub, frozenset((row.id, row.sha256) for row in hit), kinds, tips, request.carried)


def _all_secrets(
    store: Store,
    raw: Raw,
    bodies: Sequence[tuple[str, bytes | _Data]],
    commits: Iterable[bytes],
    progress: Progress,
) -> Iterator[tuple[str, bytes]]:
    """The secrets in all bodies and messages, each with its kind."""
    for number, (path, blob) in enumerate(bodies):
        progress("searching", number, len(bodies))
        ext = path.rpartition(".")[2]
        kind = "json" if ext == "jsonl" or path == "ledger/journal" else ext
        yield from secrets.secrets(_bytes(raw, blob), kind if kind in secrets.TEXTS else "", store.redaction.criteria)
    for commit in commits:
        yield from secrets.secrets(raw.read(commit).partition(b"\n\n")[2], "txt", store.redaction.criteria)


def _carried(
    store: Store,
    record: PurgeRecord,
    bodies: Iterable[tuple[str, bytes | _Data]],
    marks: dict[bytes, bytes],
    bodies_erased: dict[str, bytes],
) -> int:
    """Counts the bodies of this store that another clone's record erases.

    Adds the texts erased there to `marks`, and the sums of whole bodies to `bodies_erased`. If a replacement changes a
    body by more than marks, the whole body is erased, under a mark that stands for no text.
    """
    raw, count = Raw(store.repository), 0
    elsewhere = erased_beside_bodies(store, record)
    marks.update((text, sign) for text, sign in elsewhere.items() if len(text) >= SHORTEST)
    for path, blob in bodies:
        if isinstance(blob, _Data) or blob.hex() not in record.blobs:
            continue
        count += 1
        old, ext, name = raw.read(blob), path.rpartition(".")[2], record.blobs[blob.hex()]
        digest = hashlib.sha256(old).hexdigest()
        new = raw.read(bytes.fromhex(name)) if name in store.repository else b""
        mark = secrets.MARK.search(new)
        if mark and new == emptied(old, ext, mark[0]):
            bodies_erased[digest] = mark[0]
            if len(old) >= TELLING and ext in secrets.TEXTS:
                marks[old] = mark[0]
        elif texts := erased_texts(old, new):
            marks.update((text, sign) for text, sign in texts if len(text) >= SHORTEST)
        elif b'"file":' not in old and new != emptied(old, ext, b"[purged]"):  # these follow from other bodies
            bodies_erased[digest] = b"[REDACTED:%s:00000000]" % KIND.encode()
    return count


def _blocks(store: Store, request: PurgeRequest) -> Iterator[tuple[Row, bytes]]:
    for text in request.blocks:
        address = addresses.parse(text)
        if address is None or address.id.startswith("G"):
            raise BadInput(f"{text!r} is not a block", hint=Phrase("purge-block"))
        resolved = addresses.find(StoredSession.for_reading(store, request.session), address)
        row, bodies = resolved.row, resolved.snapshot.bodies
        assert row is not None
        yield row, bodies.body(row)
        for suffix in row.files:
            data = bodies.file(row, suffix)
            digest = hashlib.sha256(data).hexdigest()
            yield msgspec.structs.replace(row, sha256=digest, ext=suffix.rpartition(".")[2]), data


def _rows(raw: Raw, bodies: Sequence[tuple[str, bytes | _Data]]) -> list[Row]:
    """All rows in history, each version once."""
    lines: dict[bytes, str] = {}
    for path, blob in bodies:
        if path.startswith("ledger/") and path != fmt.GROUPS:
            lines.update(dict.fromkeys(_bytes(raw, blob).split(b"\n"), path))
    return [row for line, path in lines.items() if line for row in fmt.decode_rows(line, path)]


def _with_bodies(
    raw: Raw,
    files: Sequence[tuple[str, bytes | _Data]],
    rows: Sequence[Row],
    scrub: Scrub,
    whole: Mapping[str, bytes],
    progress: Progress,
) -> Scrub:
    """The scrub with all bodies that change and their replacements."""
    dashboards = {row.sha256 for row in rows if row.kind == "dashboard"}
    clients = {row.sha256 for row in rows if row.origin == "client"}
    bodies: dict[bytes, bytes] = {}
    sums: dict[str, bytes] = {}
    listing: list[tuple[bytes, bytes]] = []
    for number, (path, blob) in enumerate(files):
        progress("comparing", number, len(files))
        if not path.startswith(("blocks/", "archive/")):
            continue
        data, ext = _bytes(raw, blob), path.rpartition(".")[2]
        digest = hashlib.sha256(data).hexdigest()
        ours = digest in dashboards or (digest in clients and _HANDED in data)
        new = emptied(data, ext, whole[digest]) if digest in whole else scrub.body(data, ext, ours=ours)
        if new != data:
            sums[digest] = new
            bodies[_id(blob)] = new
        if ext == "json" and b'"file":' in data:
            listing.append((_id(blob), data))
    for name, data in listing:  # bodies that name sibling files by their checksums
        new = secrets.renamed(bodies.get(name, data), sums)
        if new != data:
            bodies[name] = sums[hashlib.sha256(data).hexdigest()] = new
    return replace(scrub, bodies=bodies, sums=sums)


def _with_labels(scrub: Scrub, rows: Sequence[Row]) -> Scrub:
    """The scrub with the new labels of rows whose bodies change."""
    labels: dict[bytes, bytes] = {}
    for row in rows:
        if row.sha256 in scrub.sums:
            labels.update(_labels(row, scrub.row(row)))
    return replace(scrub, labels=labels)


def _labels(old: Row, new: Row) -> Iterator[tuple[bytes, bytes]]:
    """Old → new forms of a row's label, including those in stubs."""
    if old.label == new.label:
        return
    for prefix in ("", display.one_line(f"{old.tool}:", 60)):
        was, now = old.label.removeprefix(prefix).strip(), new.label.removeprefix(prefix).strip()
        if len(was) >= 6 or len(was) >= WIDTH - 1:
            for form in (was, was.replace("[", "(").replace("]", ")")):
                yield display.encode(form), display.encode(now.replace("[", "(").replace("]", ")"))


class _Data(bytes):
    """A body in a journal, not yet an object."""


def _bytes(raw: Raw, blob: bytes | _Data) -> bytes:
    return bytes(blob) if isinstance(blob, _Data) else raw.read(blob)


def _id(blob: bytes | _Data) -> bytes:
    return pygit2.hash(bytes(blob)).raw if isinstance(blob, _Data) else blob


def _waiting(store: Store) -> Iterator[tuple[str, bytes]]:
    """The bodies in the journals, with their future paths."""
    for name in store.sessions():
        for _, record in journal_of(store.journal_path(name))[1]:
            for change in record.changes:
                exts = {row.id: row.ext for row in change.rows}
                for block, suffix, data in change.bodies:
                    yield f"blocks/{block}.{suffix.rpartition('.')[2] or exts.get(block, 'txt')}", _Data(data)
                yield "ledger/journal", _Data(fmt.encode_rows(sorted(change.rows, key=lambda row: row.number)))


def _tips(store: Store) -> dict[str, str]:
    """ref → commit, without remote refs, symbolic refs, and the list of purges itself."""
    tips = {}
    for reference in store.repository.references.iterator():
        name = reference.name
        if name.startswith(search.REMOTES) or name == REF or isinstance(reference.target, str):
            continue
        tips[name] = str(reference.peel(pygit2.Commit).id)
    return tips


# --- rewriting


def _clear_the_way(objects: Path) -> None:
    """Deletes files in the places where git creates folders for new objects. git keeps no objects in such files."""
    for file in objects.glob("[0-9a-f][0-9a-f]"):
        if not file.is_dir():
            file.unlink()


def _rewriter(store: Store, prepared: _Prepared, progress: Progress, *, dry: bool = False) -> Rewriter:
    """Rewrites all of history: the new objects lie beside the old ones, and no ref points to them yet."""
    # Not synced one by one: the pack made from these objects will be.
    pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, False)
    try:
        rewriter = Rewriter(Raw(program._open(store.path, trusted=True), dry=dry), prepared.scrub)
        # Last, since plans name commits of scopes, whose replacements must be known.
        plans = {ref: tip for ref, tip in prepared.tips.items() if not ref.startswith(HEADS)}
        scopes = [tip for ref, tip in prepared.tips.items() if ref.startswith(HEADS)]
        first = commits_of(store.path, scopes)
        own = set(first)
        rewriter.all(first, lambda count: progress("rewriting commits", count, len(first)))
        rewriter.all([commit for commit in commits_of(store.path, plans.values()) if commit not in own])
        return rewriter
    finally:
        pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, True)


def _stage(store: Store, prepared: _Prepared, rewriter: Rewriter, report: Report, lock: int) -> frozenset[str]:
    """Writes everything new to the disk; the store stays the old one until the very last line.

    Returns the ids of all objects that will remain; they have been searched. Raises: Refused.
    """
    folder = store.path / purge_apply.FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "journal").mkdir(mode=0o700, parents=True)
    commits = {old.hex(): new.hex() for old, new in rewriter.commits.items()}
    refs = {ref: commits.get(tip, tip) for ref, tip in prepared.tips.items()}
    refs[REF] = _noted(store, prepared.scrub, commits, prepared.carried)
    journals = []
    for name in store.sessions():
        path = store.journal_path(name)
        if path.exists():
            durable.replace(folder / "journal" / name, journal_rewritten(path, prepared.scrub, commits))
            journals.append(name)
    tracking = [ref.name for ref in store.repository.references.iterator() if ref.name.startswith(search.REMOTES)]
    arguments = (
        "pack-objects",
        "--quiet",
        "--revs",
        "--delta-base-offset",
        str(store.path / "objects" / "pack" / "pack"),
    )
    before = {file.name for file in (store.path / "objects" / "pack").iterdir()}
    output = program.run(store.path, *arguments, data="\n".join(refs.values()).encode() + b"\n", inherit=(lock,))
    pack = f"pack-{output.decode().strip()}"
    names = program.packed(store.path / "objects" / "pack" / f"{pack}.idx")
    remaining = [name for name, _ in search.in_objects(store.path, prepared.scrub, names)]
    staged = [name for name in journals if prepared.scrub.has((folder / "journal" / name).read_bytes())]
    if remaining or staged:
        for file in (store.path / "objects" / "pack").glob(f"{pack}.*"):
            if file.name not in before:
                file.unlink()
        shutil.rmtree(folder)
        raise _refusal([*_places(store, refs.values(), remaining), *(f"the journal of {name}" for name in staged)])
    wanted_names = frozenset(names)
    state = Decided(
        format=1,
        pack=pack,
        refs={ref: tip for ref, tip in refs.items() if tip != _target(store, ref)},
        gone=tuple(tracking),
        journals=tuple(journals),
        checkouts=report.checkouts,
        files=tuple(_aside(store, prepared.scrub)),
        remotes={
            name: sorted(
                {commits[tip] for tip in tips if tip in commits} | {tip for tip in tips if tip in wanted_names}
            )
            for name, tips in search.tracked(store).items()
        },
    )
    purge_apply.write(store.path, state)
    return wanted_names


def _refusal(places: Sequence[str]) -> Refused:
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    return Refused(
        f"some of it cannot be removed: {', '.join(places[:4])}{more}. A purge changes recorded text only, not "
        "checksums, our own numbers, field names or text that spans several JSON strings",
        hint="nothing was changed: give more of the text, or a part of it within one string, or the block",
    )


def _places(store: Store, tips: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """For a person: the path and commit of each of these objects, as reached from `tips`."""
    objects = Objects(store.repository)
    ids = frozenset(map(bytes.fromhex, names))
    commits = commits_of(store.path, tips) if names else []
    places = find(objects, ((commit, objects.commit(commit)) for commit in commits), ids)
    for name in ids:
        commit, path = places.get(name, (name, ""))
        yield f"{path or 'the message'} (commit {commit.hex()[:12]})"


def _target(store: Store, ref: str) -> str:
    """A ref's target; for an annotated tag, the tag itself."""
    return str(store.repository.references[ref].target) if ref in store.repository.references else ""


def _aside(store: Store, scrub: Scrub) -> Iterator[str]:
    """Files to delete because they have some of the content: unreadable records, requests and outputs left by hooks."""
    sessions = store.sessions()
    for pattern in ("journal/*", *(f"hooks/{name}/*" for name in purge_apply.WAITING)):
        for entry in (store.path / "ctxvc").glob(pattern):
            journal = pattern == "journal/*" and not (aside.MARK in entry.name or aside.piece(entry.name, sessions))
            if not journal and any(scrub.touches(file.read_bytes()) for file in contained.files(entry)):
                yield str(entry.relative_to(store.path))


def _noted(store: Store, scrub: Scrub, commits: Mapping[str, str], carried: PurgeRecord) -> str:
    """Writes the commit that records the replacements of blobs and commits; returns its id.

    Its parents are the earlier records. If the other clone's record already has everything, returns that commit.
    """
    blobs = {old.hex(): str(pygit2.hash(new)) for old, new in scrub.bodies.items()}
    before = own(store)
    if not before.commit and blobs.items() <= carried.blobs.items() and commits.items() <= carried.commits.items():
        return carried.commit
    record = PurgeRecord(
        blobs={**carried.blobs, **_then(before.blobs, blobs)},
        commits={**carried.commits, **_then(before.commits, commits)},
    )
    subject = f"purge: {len(blobs)} bodies, {len(commits)} commits"
    return write(store, record, [before.commit, carried.commit], subject)


def adopt(store: Store, carried: PurgeRecord) -> None:
    """Takes over another clone's record of erased content that this store has none of. Raises: Conflict, CtxvcError."""
    with _alone(store) as lock:
        before = own(store)
        after = carried.commit
        if not includes(store, carried.commit, before.commit):
            blobs, commits = {**carried.blobs, **before.blobs}, {**carried.commits, **before.commits}
            record = PurgeRecord(blobs=blobs, commits=commits)
            after = write(store, record, [before.commit, carried.commit], "purges of two clones")
        data = f"update {REF} {after} {before.commit or '0' * 40}\n".encode()
        program.run(store.path, "update-ref", "--stdin", data=data, inherit=(lock,))


def _then(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """The replacements of two successive purges as one mapping."""
    return {**{old: second.get(new, new) for old, new in first.items()}, **second}


# --- telling


def _report(store: Store, prepared: _Prepared, rewriter: Rewriter, *, done: bool) -> Report:
    scrub = prepared.scrub
    if not rewriter.commits and not scrub.bodies and not any(search.remaining(store.path, scrub)):
        raise NotFound("none of it is in the store", hint=Phrase("purge-search"))
    return Report(
        kinds=prepared.kinds,
        seen=tuple(search.seen(store, prepared.tips, prepared.rows, rewriter)),
        bodies=len(scrub.bodies),
        commits=len(rewriter.commits),
        remotes=tuple(search.remotes(store, rewriter)),
        checkouts=tuple(search.checkouts(store)),
        remaining=tuple(worktrees.lost(store.path)),
        forms=encodings.FORMS,
        short=sum(len(word) < encodings.SHORTEST for word in scrub.marks),
        done=done,
    )


def _with_copies(report: Report, prepared: _Prepared, transcripts: Sequence[Path]) -> Report:
    """The report with the copies outside the store; they are searched after the store's locks are released."""
    return msgspec.structs.replace(report, copies=tuple(search.copies(prepared.scrub, transcripts)))
