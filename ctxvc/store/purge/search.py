"""Finds the content that a purge erases.

In the store, every object and file is searched. Outside it, prompts, remotes, checkouts and other programs' files are
searched but never changed.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import stat
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec
import pygit2

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import Damaged, Phrase, Refused
from ctxvc.store import checkout, worktrees
from ctxvc.store.format import scope_of, trailers_of
from ctxvc.store.git import program
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge.rewrite import Rewriter, commits_of
from ctxvc.store.purge.rewrite import names as names_in
from ctxvc.store.purge.scrub import Scrub
from ctxvc.store.store import Store
from ctxvc.store.trust import contained

#: Files and folders that a purge deletes or replaces as a whole.
_CLEARED = frozenset({"worktrees", "logs", "checkout", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"})
_REPLACED = frozenset(
    {("ctxvc", "journal"), ("ctxvc", "cache"), ("ctxvc", "purge"), ("ctxvc", "hooks"), ("ctxvc", "recovered")}
)


def remaining(path: Path, scrub: Scrub, searched: Collection[str] = ()) -> Iterator[str]:
    """The files, and the objects not yet `searched`, that still have some of the content."""
    there = program.run(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered")
    for name, kind in in_objects(path, scrub, [name for name in there.decode().split() if name not in searched]):
        yield f"{kind} {name[:12]}"
    for file in files(path):
        if scrub.has(file.read_bytes()):
            yield str(file.relative_to(path))


def in_objects(path: Path, scrub: Scrub, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Id and type of each object that has some of the content."""
    old = {blob.hex() for blob in scrub.bodies}
    for name, kind, data in _read(path, names):
        if name in old or scrub.has(b"\n".join(names_in(data)) if kind == "tree" else data):
            yield name, kind


def _read(path: Path, names: Sequence[str]) -> Iterator[tuple[str, str, bytes]]:
    """Id, type and bytes of objects. Raises: Damaged at the first unreadable one: it may have the content."""
    with tempfile.TemporaryFile() as requests:
        requests.write("".join(f"{name}\n" for name in names).encode())
        requests.seek(0)
        command = program.command(path, "cat-file", "--batch", "--buffer")
        with subprocess.Popen(
            command, stdin=requests, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=program.environment()
        ) as process:
            assert process.stdout is not None
            answers = program.objects(process.stdout)
            for name in names:
                kind, data = next(answers, ("", b""))
                if not kind:
                    raise Damaged(f"object {name[:12]} cannot be read", hint=Phrase("verify"))
                yield name, kind, data


def check_files(path: Path, marks: Mapping[bytes, bytes]) -> None:
    """Raises: Refused if a name or file that a purge does not change, such as `config`, has some of the content, or is
    too large to be searched."""
    scrub = Scrub(marks=marks)
    for file in files(path):
        where = file.relative_to(path)
        ours = where.parts[0] in _CLEARED or where.parts[:2] in _REPLACED or where.name in _CLEARED
        if not ours and scrub.has(os.fsencode(where) + b"\n" + contained.read(path, str(where))):
            raise Refused(f"{file} has some of it, and a purge does not change that file", hint=_hint(path, where))


def _hint(path: Path, where: Path) -> str | Phrase:
    """How a person can remove content from a file that a purge does not change."""
    if where.parts[0] in ("refs", "packed-refs", "HEAD") or where.parts[:2] == ("ctxvc", "lock"):
        remove = program.advice(f"--git-dir={path}", "branch", "-D", "SESSION/SCOPE")
        return Phrase("purge-name", remove=remove)
    return "remove it there first"


def files(path: Path) -> Iterator[Path]:
    """The files of a store except its objects, including files in folders among the packs, which git ignores."""
    for name in sorted(os.listdir(path)):
        if name != "objects":
            yield from contained.files(path / name)
    with os.scandir(path / "objects" / "pack") as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for folder in sorted(folders):
        yield from contained.files(folder)


# --- outside of the store

#: The time limit for all files together, in seconds.
SECONDS = 10.0
_PIECE = 1 << 22
#: Each piece is searched together with the end of the piece before, so that nothing is missed between them.
_OVERLAP = 1 << 16


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A place outside the store and whether it has some of the content; `why` explains an unknown state."""

    kind: Literal["transcript", "exports"]
    place: str = ""
    state: Literal["has", "clean", "unknown"]
    why: str = ""


#: An export is an ordinary file at any place that a person chose.
EXPORTS = Copy(kind="exports", state="unknown", why="the places of exports are not recorded")


def copies(
    scrub: Scrub, transcripts: Iterable[Path], *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> Iterator[Copy]:
    """Yields the state of each file, then the places that cannot be searched."""
    until = clock() + seconds
    for path in transcripts:
        state, why = _state(scrub, path, lambda: clock() > until)
        yield Copy(kind="transcript", place=str(path), state=state, why=why)
    yield EXPORTS


def _state(scrub: Scrub, path: Path, late: Callable[[], bool]) -> tuple[Literal["has", "clean", "unknown"], str]:
    try:
        # A named pipe would block, and a link may lead anywhere.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "unknown", "it is not a regular file"
            if path.suffix != ".gz":
                return _searched(scrub, file, late)
            with gzip.open(file) as unpacked:
                return _searched(scrub, unpacked, late)
    except (OSError, EOFError, zlib.error) as error:
        return "unknown", getattr(error, "strerror", None) or str(error)


def _searched(
    scrub: Scrub, file: IO[bytes] | gzip.GzipFile, late: Callable[[], bool]
) -> tuple[Literal["has", "clean", "unknown"], str]:
    behind = b""
    while not late():
        piece = file.read(_PIECE)
        if not piece:
            return "clean", ""
        if scrub.has(behind + piece):
            return "has", ""
        behind = (behind + piece)[-_OVERLAP:]
    return "unknown", "the search ran out of time"


REMOTES = "refs/remotes/"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of a scope that have some of the content, and the steps whose prompts contained one of them."""

    session: str
    scope: str
    blocks: tuple[str, ...]
    steps: tuple[int, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The content that a purge erases or has erased: the number of different secrets of each kind, and where they were.

    `remotes` are (name, address, whether one of its branches is known to have had it). `checkouts` are folders that are
    removed, `remaining` those that may still have the content afterwards. `commits` counts the rewritten commits.
    `forms` are the encodings searched for besides the plain text; `short` counts the texts too short for that. `copies`
    are places outside the store.
    """

    kinds: dict[str, int]
    seen: tuple[Seen, ...]
    bodies: int
    commits: int
    remotes: tuple[tuple[str, str, bool], ...]
    checkouts: tuple[str, ...]
    remaining: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    short: int = 0
    copies: tuple[Copy, ...] = ()
    done: bool = False


def seen(
    store: Store, tips: Mapping[str, str], rows: Collection[tuple[str, str]], rewriter: Rewriter
) -> Iterator[Seen]:
    """The scopes at these tips that have rows in `rows`, a set of (id, checksum)."""
    for ref, tip in sorted(tips.items()):
        place = scope_of(ref)
        if place is None:
            continue
        blocks: dict[str, None] = {}
        steps: list[int] = []
        before: dict[str, Row] = {}
        for commit in reversed(list(store.first_parents(tip))):
            if bytes.fromhex(commit) not in rewriter.roots:
                before = {}
                continue
            ledger = store.reader.ledger(commit)
            hit = {row.id: row for row in ledger.rows() if (row.id, row.sha256) in rows}
            blocks.update(dict.fromkeys(hit))
            if trailers_of(store.message(commit)).get("Ctxvc-Op") == "step":
                step = ledger.meta.counters.step
                came = [
                    row for row in hit.values() if row.step == step and row.role == "user" and row.kind != "tool_result"
                ]
                if came or any(row.present for row in before.values()):
                    steps.append(step)
            before = hit
        if blocks:
            yield Seen(session=place[0], scope=place[1], blocks=tuple(blocks), steps=tuple(dict.fromkeys(steps)))


def tracked(store: Store) -> dict[str, list[str]]:
    """remote → commits that it is known to have had and that this store still has."""
    try:
        had = wire.parsed(contained.read(store.path, purge_apply.REMOTES.as_posix()), dict)
    except (OSError, Refused):
        had = None
    remembered = {str(name): list(commits) for name, commits in (had or {}).items() if isinstance(commits, list)}
    for reference in store.repository.references.iterator():
        if reference.name.startswith(REMOTES) and isinstance(reference.target, pygit2.Oid):
            remembered.setdefault(reference.name.split("/")[2], []).append(str(reference.target))
    there = {name: [commit for commit in commits if _is_there(store, commit)] for name, commits in remembered.items()}
    return {name: commits for name, commits in there.items() if commits}


def _is_there(store: Store, commit: object) -> bool:
    return isinstance(commit, str) and re.fullmatch("[0-9a-f]{40}", commit) is not None and commit in store.repository


def remotes(store: Store, rewriter: Rewriter) -> Iterator[tuple[str, str, bool]]:
    """Name, address, and whether the remote is known to have a commit that was rewritten."""
    remembered = tracked(store)
    for name, value in sorted(program.config(store.repository).items()):
        match = re.fullmatch(r"remote\.(.+)\.url", name)
        if match:
            tips = remembered.pop(match[1], [])
            had = any(commit in rewriter.commits for commit in commits_of(store.path, tips))
            yield match[1], re.sub(r"//[^/@]*@", "//", value), had
    for name, tips in sorted(remembered.items()):
        yield name, "", any(commit in rewriter.commits for commit in commits_of(store.path, tips))


def checkouts(store: Store) -> Iterator[str]:
    """The folders that are checkouts of the store.

    Raises: Refused if a person changed something in one, or one may not have been made by ctxvc.
    """
    for worktree in worktrees.listed(store.path):
        folder = worktree.folder
        if not worktrees.is_made_here(store.path, worktree):
            away = f"rm -r {shlex.quote(str(store.path / worktrees.FOLDER / worktree.name))}"
            raise Refused(
                f"{folder} is a worktree of this store that ctxvc did not make on this machine",
                hint=Phrase("foreign-worktree", folder=shlex.quote(str(folder)), remove=away),
            )
        if checkout.person_changes(store, folder):
            raise Refused(f"{folder} is a changed checkout of this store", hint=Phrase("changed-checkout"))
        yield str(folder)
