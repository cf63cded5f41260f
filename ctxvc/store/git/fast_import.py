"""Writes commits in bulk: one pack, written by `git fast-import`.

docs/decisions/0003-fast-import.md explains the choice of program and flags. The stream begins with `feature done`, so
that a truncated one moves no ref. A ref moves only from the tip that we read (`from`); otherwise git refuses.
"""

from __future__ import annotations

import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from operator import is_, is_not
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Body
from ctxvc.core.ledger.segments import NO_SEGMENTS, Segments
from ctxvc.errors import Conflict, CtxvcError
from ctxvc.store import format as fmt
from ctxvc.store.git import program

#: A batch ends at this many commits, or sooner at this many bytes of bodies. The blobs of a batch are sorted together:
#: larger batches give better deltas; smaller ones bound the memory, and let git work in parallel sooner.
BATCH = 64
BATCH_BYTES = 192 * 1024
#: For glibc: fast-import allocates and frees memory for every object, which took more than half of its time.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_TOP_PAD_": "16777216"}
#: The latest date that every part of git can store, in seconds since 1970: a date in 2514.
LATEST = (1 << 34) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIME = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?\s?(?:Z|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)
#: Blob marks are above this, commit marks below, so that a commit's name is known before its blobs are written.
_BLOB_MARKS = 1 << 32


_NO_LEDGER = Ledger(meta=Meta(format=0, session="", scope=""))


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to write. Its files follow from the ledgers before and after it; a commit of no scope has no such files.

    `parent` and `merge` are full commit ids or `:n` for the n-th commit of this writer; an empty `parent` continues
    this writer's last commit to `ref`, or begins a history. `files` are paths besides the ledger's own; `without` are
    files of the parent to drop.
    """

    ref: str
    before: Ledger | None = _NO_LEDGER
    after: Ledger = _NO_LEDGER
    message: str
    actor: str
    time: int
    now: int
    bodies: tuple[Body, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()
    without: tuple[str, ...] = ()
    parent: str = ""
    merge: str = ""


class PackWriter:
    """A running `git fast-import`. A normal exit from the `with` block moves all refs; an error moves none."""

    def __init__(self, git_dir: Path, *, inherit: Sequence[int] = (), config: Sequence[str] = ()) -> None:
        self._git_dir = git_dir
        self._inherit = tuple(inherit)
        self._config = config
        self._batch: list[tuple[int, Commit]] = []
        self._bytes = 0  # of the bodies in the batch
        self._mark = 0
        self._blob = _BLOB_MARKS
        self._tips: dict[str, int] = {}
        self.ids: dict[str, str] = {}

    def __enter__(self) -> PackWriter:
        arguments = ("fast-import", "--quiet", "--depth=50", "--date-format=raw")
        try:
            with ExitStack() as failed:
                self._errors = failed.enter_context(tempfile.TemporaryFile())
                # The child holds the locks too: if this process dies, no other one cleans up while the child writes.
                self._process = subprocess.Popen(
                    program.command(self._git_dir.absolute(), *arguments, config=self._config),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    env={**program.environment(), **_ALLOCATOR},
                    cwd=self._git_dir,  # the current folder may have been deleted
                    pass_fds=self._inherit,
                )
                failed.pop_all()
        except OSError as error:
            raise CtxvcError(
                f"cannot start git: {error.strerror or error}", hint="check git and the space in the temporary folder"
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._feeder = _Feeder(self._in)
        self._in.write(b"feature done\n")  # buffered: a dead child is noticed later
        return self

    def commit(self, commit: Commit) -> str:
        """Accepts a commit; returns the name (`:n`) by which later commits of this writer may refer to it."""
        self._mark += 1
        self._batch.append((self._mark, commit))
        self._bytes += sum(len(data) for _, _, data in commit.bodies)
        if len(self._batch) >= BATCH or self._bytes >= BATCH_BYTES:
            try:
                self._feeder.put(self._encoded_batch())
            except OSError:
                self._fail()
        return f":{self._mark}"

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
            self._release()
            return
        try:
            self._feeder.finish()
            # One large write instead of many: after each, the thread would wait for the interpreter again.
            self._in.write(b"".join(self._encoded_batch()))
            for ref, mark in self._tips.items():
                self._in.write(b"get-mark :%d\n" % mark)
                self._in.flush()
                self.ids[ref] = self._out.readline().decode("ascii").strip()
            self._in.write(b"done\n")
            self._in.close()
        except OSError:
            self._fail()
        if self._process.wait() != 0 or not all(self.ids.values()):
            self._fail()
        self._release()

    def _fail(self) -> None:
        self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode("utf-8", "replace").strip()
        self._release()
        if any(sign in errors for sign in _MOVED):
            raise Conflict(
                f"something else moved a scope: {errors[-500:]}",
                hint="run the command again; `git log` shows what moved it",
            )
        raise CtxvcError(
            f"git fast-import failed: {errors[-1000:] or 'it was killed'}",
            hint="no scope has moved; acknowledged records are in the journal and will be committed by the next flush",
        )

    def _release(self) -> None:
        self._feeder.stop()
        for stream in (self._in, self._out, self._errors):
            try:
                stream.close()
            except OSError:
                pass  # the other end of the pipe is closed
        self._process.wait()

    def _encoded_batch(self) -> list[bytes]:
        """The commits of the batch in fast-import's syntax: first their blobs, then the commits."""
        batch, self._batch, self._bytes = self._batch, [], 0
        blobs = _Blobs(self._blob)
        edits = [list(_edits(commit, blobs)) for _, commit in batch]
        chunks, self._blob = blobs.encoded()
        return chunks + [self._encoded(mark, commit, edit) for (mark, commit), edit in zip(batch, edits, strict=True)]

    def _encoded(self, mark: int, commit: Commit, edits: Iterable[str]) -> bytes:
        message = commit.message.encode("utf-8", "replace")
        who = commit.actor.translate(_NOT_IN_A_NAME)
        out = [
            f"commit {commit.ref}\nmark :{mark}\n",
            f"author {who} <{who.replace(':', '.').replace(' ', '-')}@ctxvc> {commit.time} +0000\n",
            f"committer ctxvc <ctxvc@ctxvc> {commit.now} +0000\n",
            f"data {len(message)}\n",
            message.decode("utf-8"),
            "\n",
        ]
        if commit.parent and commit.ref not in self._tips:
            out.append(f"from {commit.parent}\n")
        if commit.merge:
            out.append(f"merge {commit.merge}\n")
        out += [*edits, "\n"]
        self._tips[commit.ref] = mark
        return "".join(out).encode("utf-8")


#: git's messages for a ref that is not at the commit that we read.
_MOVED = ("Not updating", "does not contain", "reference already exists", "but expected")
_NOT_IN_A_NAME = str.maketrans("<>\n\0", "    ")


class _Feeder:
    """Writes full batches to git in a thread while the next one is prepared, so that both cores work.

    The thread starts with the first batch, so a small flush does not pay for it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._queue: queue.Queue[list[bytes] | None] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def put(self, chunks: list[bytes]) -> None:
        """Queues a batch. Raises: OSError if an earlier one could not be written."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ctxvc-feeder", daemon=True)
            self._thread.start()
        self._queue.put(chunks)
        if self._error:
            raise self._error

    def finish(self) -> None:
        """Waits until all batches are written. Raises: OSError if one could not be written."""
        self.stop()
        if self._error:
            raise self._error

    def stop(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (chunks := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._stream.write(b"".join(chunks))
                    self._stream.flush()
                except OSError as error:
                    self._error = error


class _Blobs:
    """The blobs of a batch, ordered for delta compression: git compares each blob only with the one before it."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._bodies: list[tuple[int, bytes]] = []
        self._versions: dict[str, list[tuple[int, bytes]]] = {}
        self._newest: tuple[Sequence[Row], bytes] = (), b""

    def body(self, data: bytes) -> int:
        self._last += 1
        self._bodies.append((self._last, data))
        return self._last

    def version(self, path: str, data: bytes) -> int:
        """Adds a blob that is one of several versions of the file at `path`; returns its mark."""
        self._last += 1
        self._versions.setdefault(path, []).append((self._last, data))
        return self._last

    def segment(self, path: str, rows: Sequence[Row]) -> int:
        """Adds a segment; returns its mark. If it continues the newest one, only new rows are encoded."""
        earlier, data = self._newest
        goes_on = len(earlier) <= len(rows) and all(map(is_, earlier, rows))
        data = data + fmt.encode_rows(rows[len(earlier) :]) if goes_on else fmt.encode_rows(rows)
        self._newest = rows, data
        return self.version(path, data)

    def encoded(self) -> tuple[list[bytes], int]:
        """The blobs in fast-import's syntax, and the last mark used."""
        chunks: list[bytes] = []
        for blobs in (self._bodies, *self._versions.values()):
            for mark, data in blobs:
                chunks += (b"blob\nmark :%d\ndata %d\n" % (mark, len(data)), data, b"\n")
        return chunks, self._last


def _edits(commit: Commit, blobs: _Blobs) -> Iterable[str]:
    """The commands that turn the tree of `commit.before` into that of `commit.after`."""
    before, after = commit.before, commit.after
    old_segments = before.segments if before else NO_SEGMENTS
    changed = after.segments.changed_since(old_segments)
    removed = after.segments.removed_since(old_segments)
    yield from _body_edits(commit, old_segments, changed, removed, blobs)
    yield from (f"D {path}\n" for path in commit.without)
    for path, data in commit.files:
        yield f"M 100644 :{blobs.body(data)} {path}\n"
    for key in removed:
        yield f"D {fmt.segment_path(key)}\n"
    for key in changed:
        path = fmt.segment_path(key)
        yield f"M 100644 :{blobs.segment(path, after.segments[key])} {path}\n"
    if after.groups != (before.groups if before else {}):
        if after.groups:
            yield f"M 100644 :{blobs.version(fmt.GROUPS, fmt.encode_groups(after.groups.values()))} {fmt.GROUPS}\n"
        else:
            yield f"D {fmt.GROUPS}\n"
    if before is None or after.meta != before.meta:
        yield f"M 100644 :{blobs.version(fmt.META, fmt.encode_meta(after.meta))} {fmt.META}\n"


def _body_edits(
    commit: Commit, old_segments: Segments, changed: Sequence[int], removed: Sequence[int], blobs: _Blobs
) -> Iterable[str]:
    """The commands for bodies that are removed, moved between `blocks/` and `archive/`, or added."""
    old_rows = {row.id: row for key in removed for row in old_segments[key]}
    rows: dict[str, Row] = {}
    for key in changed:
        old, new = old_segments.get(key), commit.after.segments[key]
        same = _common(old, new)
        old_rows.update((row.id, row) for row in old[same:])
        rows.update((row.id, row) for row in new[same:])
    for block_id, previous in old_rows.items():
        row = rows.get(block_id)
        if row is None:
            yield from (f"D {path}\n" for path in fmt.paths(previous))
        elif previous.present != row.present:
            yield from (f"R {path} {to}\n" for path, to in zip(fmt.paths(previous), fmt.paths(row), strict=True))
    for block_id, suffix, data in commit.bodies:
        row = rows[block_id]
        path = fmt.file_path(row, suffix) if suffix else fmt.body_path(row)
        yield f"M 100644 :{blobs.body(data)} {path}\n"


def _common(old: Sequence[Row], new: Sequence[Row]) -> int:
    """The length of the common beginning: usually all of `old`, since rows are appended."""
    return next((at for at, differs in enumerate(map(is_not, old, new)) if differs), min(len(old), len(new)))


def epoch(time: str, default: int) -> int:
    """An ISO 8601 time in seconds since 1970, within git's limits; `default` if the text is not a time."""
    # `fromisoformat` accepts different forms on each version of Python, but a recording must give the same commits.
    match = _TIME.fullmatch(time.strip()[:64])
    if match is None:
        return default
    *parts, sign, hours, minutes = match.groups()
    away = int(hours or 0) * 3600 + int(minutes or 0) * 60
    try:
        since = datetime(*(int(part or 0) for part in parts), tzinfo=timezone.utc) - _EPOCH  # type: ignore[misc,arg-type]
    except ValueError:
        return default
    return storable_date(since.days * 86_400 + since.seconds - (-away if sign == "-" else away))


def storable_date(seconds: int) -> int:
    """The nearest date that git can store: a clock or a recording may be wrong."""
    return min(max(seconds, 0), LATEST)
