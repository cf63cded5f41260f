"""A store: one bare git repository that holds many sessions."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time as clock
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pygit2

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.ledger import RENDER, Ledger, Meta, Source
from ctxvc.errors import Conflict, CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.store import format as fmt
from ctxvc.store import timestamp
from ctxvc.store.files import locked, unwritable
from ctxvc.store.format import HEADS, head_ref, message, ref_of, scope_of
from ctxvc.store.git import program
from ctxvc.store.git.fast_import import Commit, PackWriter, epoch, storable_date
from ctxvc.store.git.objects import damage
from ctxvc.store.project import locate
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.read.commit_reader import Reader
from ctxvc.store.secrets import secret_scanner
from ctxvc.store.secrets.redaction import Redaction
from ctxvc.store.trust import contained, known_stores, trust
from ctxvc.store.upkeep import leftovers, packed_refs

#: Above this many packs, a flush merges them: every lookup goes through all packs.
MOST_PACKS = 32

#: The file with the name of the session that a person chose to use.
_USED = "ctxvc/use"

#: After a failed merge, a process waits this many seconds before it tries again.
MERGE_AGAIN = 60.0
_SETTINGS = {
    "ctxvc.format": str(fmt.FORMAT),
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.autocrlf": "false",
    "core.fsync": "all",
    "core.sharedRepository": "0600",
    # Only a purge rewrites commits, and it would have to clear reflogs: there are none.
    "core.logAllRefUpdates": "false",
    "receive.denyNonFastForwards": "true",
    "transfer.fsckObjects": "true",
}
#: The setting that makes a repository a store, and the error text if it is missing.
_FORMAT = "ctxvc.format"
_NO_STORE = "is a git repository but not a ctxvc store"


class Store:
    """An open store. Opening is cheap: nothing is read until it is needed."""

    def __init__(self, path: Path, *, redact: bool = True) -> None:
        """Without `redact`, recorded bytes are kept exactly, secrets included.

        Raises: NotFound; Refused (a newer format, another user's store, an unknown extension); Damaged.
        """
        self.path = path = path.absolute()
        _check_is_store(path)
        contained.examine(path)
        trust.check(path)
        #: Folders that may still have content that was to be erased, if opening this store finished a killed purge.
        self.remaining: tuple[str, ...] = ()
        if purge_apply.pending(path):
            self.remaining = purge_apply.complete(path)  # the content to be erased must no longer be readable
        self.repository = program.open_repository(path)
        settings = program.config(self.repository)
        _check_settings(path, settings)
        self.redaction = Redaction(path, on=redact, scanner=settings.get(secret_scanner.SETTING, ""))
        self.reader = Reader(self.repository)
        self._sources: dict[str, Source | None] = {}
        #: The error of the last merge of packs, if it failed. It does not affect recording.
        self.merge_failure: CtxvcError | None = None
        self._merge_again = 0.0

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.repository.free()

    # --- names and places

    def journal_path(self, session: str) -> Path:
        return self.path / "ctxvc" / "journal" / session

    def lock_path(self, session: str) -> Path:
        return self.path / "ctxvc" / "lock" / session

    @property
    def cache_path(self) -> Path:
        """The folder for data that can be computed again."""
        return self.path / "ctxvc" / "cache"

    def sessions(self) -> list[str]:
        """The names of all sessions."""
        return sorted(self.all_tips())

    def tips(self, session: str) -> dict[str, str]:
        """scope → full id of its newest commit. Reads only the session's refs. Raises: Damaged."""
        if name_rules.problem(session):
            return {}
        tips: dict[str, str] = {}
        try:
            for name in self._ref_names(session):
                place, reference = scope_of(name), self._reference(name)
                if place and place[0] == session and reference and isinstance(reference.target, pygit2.Oid):
                    tips[place[1]] = str(reference.target)
        except pygit2.GitError as error:
            raise self._unreadable_refs(error) from error
        return tips

    def _unreadable_refs(self, error: pygit2.GitError) -> Damaged:
        return Damaged(f"cannot read the refs of {self.path}: {error}", hint=Phrase("verify-refs"))

    def _reference(self, name: str) -> pygit2.Reference | None:
        try:
            return self.repository.references.get(name)
        except ValueError:
            return None  # a file whose name is not a valid ref name

    def _ref_names(self, session: str) -> list[str]:
        """Names of the session's refs, possibly with some that are not refs.

        The folder is listed before packed-refs is read: git packs a ref before it removes the ref's file.
        """
        prefix = f"{HEADS}{session}/"
        ref_names = [
            Path(folder, name).relative_to(self.path).as_posix()  # a scope's name may have slashes
            for folder, _, files in os.walk(self.path / prefix, onerror=_unless_missing)
            for name in files
            if not name.endswith(".lock")
        ]
        try:
            packed = (self.path / "packed-refs").read_bytes()
        except FileNotFoundError:
            packed = b""
        # Searched, not split: a store may have 10,000 sessions, and this is called for each.
        start = b" " + prefix.encode()
        at = packed.find(start)
        while at >= 0:
            end = packed.find(b"\n", at)
            ref_names.append(packed[at + 1 : end if end >= 0 else len(packed)].decode("ascii", "replace"))
            at = packed.find(start, at + 1)
        return sorted({name for name in ref_names if name.isascii()})

    def all_tips(self) -> dict[str, dict[str, str]]:
        """session → scope → full id of its newest commit. Raises: Damaged."""
        tips: dict[str, dict[str, str]] = {}
        try:
            # Stale locks and other files below refs/ are not refs; libgit2 skips them.
            for reference in self.repository.references.iterator(pygit2.enums.ReferenceFilter.BRANCHES):
                if not reference.name.isascii():
                    continue  # not a branch of ours
                if (place := scope_of(reference.name)) and isinstance(reference.target, pygit2.Oid):
                    tips.setdefault(place[0], {})[place[1]] = str(reference.target)
        except pygit2.GitError as error:
            raise self._unreadable_refs(error) from error
        return tips

    def has(self, session: str) -> bool:
        """Whether the store has a session of that name. Raises: Damaged."""
        if name_rules.problem(session):
            return False  # for an impossible ref name some versions of libgit2 raise, others cut it at a NUL
        try:
            return ref_of(session, "main") in self.repository.references
        except pygit2.GitError as error:
            raise self._unreadable_refs(error) from error

    def current_session(self, sessions: Collection[str] = ()) -> str:
        """The session that HEAD names. `sessions` are all names, if already read. Raises: NotFound if there is none."""
        target = self._symbolic("HEAD")
        place = scope_of(target) if target else None
        if place and self.tips(place[0]):
            return place[0]
        if not (sessions := sessions or self.sessions()):
            raise NotFound(f"no sessions in {self.path} yet", hint=Phrase("import-sessions"))
        return max(sessions, key=lambda name: (not name_rules.has_project_notes(name), name))

    def current_scope(self, session: str, tips: Mapping[str, str] | None = None) -> str:
        """The scope in which a new writer of the session starts. `tips` are the session's, if already read."""
        tips = self.tips(session) if tips is None else tips
        if not tips:
            return "main"
        target = self._symbolic(head_ref(session))
        place = scope_of(target) if target else None
        if place and place[0] == session and place[1] in tips:
            return place[1]
        return "main" if "main" in tips else sorted(tips)[0]

    def set_current_scope(self, session: str, scope: str) -> None:
        """Points HEAD and the session's own HEAD to the scope; HEAD stays if a person chose to use another session."""
        target = ref_of(session, scope)
        if self._symbolic(head_ref(session)) != target and scope != self.current_scope(session):
            self._set_symbolic(head_ref(session), target)
        if self.used_session() in ("", session) and self._symbolic("HEAD") != target:
            self._set_symbolic("HEAD", target)

    def begin_in(self, session: str, scope: str) -> None:
        """Makes the scope the current one of a session that was received; the store's own current session stays."""
        self._set_symbolic(head_ref(session), ref_of(session, scope))

    def used_session(self) -> str:
        """The session that a person chose as the current one until further notice; empty if none."""
        try:
            name = contained.read(self.path, _USED, 300).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""
        return name if not name_rules.problem(name) and self.has(name) else ""

    def use(self, session: str) -> None:
        """Makes the session the current one until further notice; empty ends that. Raises: CtxvcError."""
        try:
            if session:
                contained.replace(self.path, _USED, f"{session}\n".encode())
            else:
                contained.remove(self.path, _USED)
        except OSError as error:
            raise unwritable(self.path / _USED, error) from error
        if session:
            self.set_current_scope(session, self.current_scope(session))

    def _symbolic(self, name: str) -> str:
        try:
            target = self.repository.references[name].raw_target
        except KeyError:
            return ""
        except pygit2.GitError as error:
            if (packed := self.path / "packed-refs").exists() and "packed" in str(error):
                raise Damaged(f"{packed} is damaged", hint=Phrase("verify-refs")) from error
            raise self._unreadable_ref(name, "it is not a ref") from error
        if name == "HEAD" and isinstance(target, bytes) and not target.startswith(b"refs/"):
            raise self._unreadable_ref(name, "it does not name a ref")
        # none of our names has other characters: such a target counts as missing
        return target.decode("ascii", "replace") if isinstance(target, bytes) else ""

    def _unreadable_ref(self, name: str, why: str) -> Damaged:
        path = self.path / name
        other = "without it git does not recognise the repository" if name == "HEAD" else "or remove it"
        hint = f"write `ref: refs/heads/SESSION/SCOPE` into {path}; {other}"
        return Damaged(f"{path} cannot be read: {why}", hint=hint)

    def _set_symbolic(self, name: str, target: str) -> None:
        # By rename, as git does it: a reader sees the old or the new file, and no lock is left behind.
        try:
            if "/" in name:
                contained.make_folder(self.path, name.rpartition("/")[0])
            contained.replace(self.path, name, f"ref: {target}\n".encode())
        except OSError as error:
            raise CtxvcError(
                f"cannot make {target} the current scope: {error.strerror}", hint="check the disk and permissions"
            ) from error

    # --- time and chance

    def now(self) -> int:
        """Seconds since 1970; if the clock is wrong, the nearest time that git can store."""
        return max(1, storable_date(int(clock.time())))  # 0 in a journal means unknown

    def now_iso(self) -> str:
        return timestamp.now()

    def new_id(self) -> str:
        """A new unique name for a journal."""
        return secrets.token_hex(8)

    # --- recordings

    def source_of(self, session: str, source: str) -> Source | None:
        """The import state in the session of the recording with that id; None if it was not imported."""
        return self._newest(self.tips(session), source)

    def session_of(self, format: str, source: str, tips: Mapping[str, Mapping[str, str]] | None = None) -> str:
        """The session that the recording was imported into; empty if none. `tips` are `all_tips`, if already read."""
        for session, scopes in sorted((self.all_tips() if tips is None else tips).items()):
            newest = self._newest(scopes, source)
            if newest and newest.format == format:
                return session
        return ""

    def _newest(self, tips: Mapping[str, str], source: str) -> Source | None:
        sources = [imported for tip in tips.values() if (imported := self._source_at(tip))]
        return max(
            (imported for imported in sources if imported.id == source),
            key=lambda imported: imported.units,
            default=None,
        )

    def _source_at(self, commit: str) -> Source | None:
        if commit not in self._sources:
            self._sources[commit] = self.reader.meta(commit).source
        return self._sources[commit]

    # --- writing

    def create_session(
        self,
        name: str,
        *,
        model: str = "",
        source: Source | None = None,
        system: Any = None,
        tools: Any = None,
        time: str = "",
        make_current: bool = True,
    ) -> str:
        """Creates a session with an empty scope `main`; returns its name.

        `system` and `tools` are the parts of the provider's request besides the messages.
        Raises: BadName; Refused if the session exists.
        """
        name_rules.check(name, "session", set(self.sessions()))
        with locked(self.lock_path(name)) as handle:
            if self.tips(name):
                raise Refused(f"session {name!r} already exists", hint=Phrase("session-taken"))
            first = self.first_commit(name, model=model, source=source, system=system, tools=tools, time=time)
            self.write([first], handle)
            if make_current:
                self.set_current_scope(name, "main")
        return name

    def first_commit(
        self, name: str, *, model: str = "", source: Source | None = None, system: Any, tools: Any, time: str = ""
    ) -> Commit:
        """The first commit of a session: an empty scope `main`."""
        if redactor := self.redaction.of(name):
            system, tools = redactor.value(system), redactor.value(tools)
        what = f" from {source.format} {display.one_line(source.id, 100)}" if source else ""
        now = self.now()
        return Commit(
            ref=ref_of(name, "main"),
            before=None,
            after=Ledger(
                meta=Meta(format=fmt.FORMAT, render=RENDER, session=name, scope="main", model=model, source=source)
            ),
            message=message(f"session {name}{what}", {"Ctxvc-Op": "session", "Ctxvc-Actor": "user"}),
            actor="user",
            time=epoch(time, now),
            now=now,
            files=((fmt.ATTRIBUTES, fmt.ATTRIBUTES_TEXT), *request_files(system, tools)),
        )

    def write(self, commits: Sequence[Commit], lock: int) -> dict[str, str]:
        """Writes the commits as one pack and moves their refs; returns ref → new tip.

        `lock` is the file descriptor of the session's lock, which the caller holds. If leftovers of a killed writer are
        in the way, they are removed and the write is retried once. Raises: Conflict, CtxvcError; then no ref has moved.
        """
        try:
            ids = self._write(commits, lock)
        except CtxvcError:
            if not self.clean_up():
                raise
            ids = self._write(commits, lock)
        self.merge_packs()
        return ids

    def _write(self, commits: Sequence[Commit], lock: int) -> dict[str, str]:
        with self.pack_writer(lock) as writer:
            for commit in commits:
                writer.commit(commit)
        return writer.ids

    @contextmanager
    def pack_writer(self, lock: int, config: Sequence[str] = ()) -> Iterator[PackWriter]:
        """A running pack writer, under the store's shared lock. `lock` is the session's, as for `write`."""
        with self.shared() as shared, PackWriter(self.path, inherit=(lock, shared), config=config) as writer:
            yield writer

    def move_refs(self, moves: Mapping[str, tuple[str, str]], lock: int) -> None:
        """Moves refs to existing commits, all or none: ref → (its commit now, empty for none; the new commit).

        `lock` is the lock of the session that has these refs. Raises: Conflict if one of them has moved meanwhile.
        """
        orders = [f"update {ref} {after} {before or '0' * 40}" for ref, (before, after) in moves.items()]
        data = "\n".join(["start", *orders, "commit", ""]).encode()
        with self.shared() as shared:
            try:
                program.run(self.path, "update-ref", "--stdin", data=data, inherit=(lock, shared))
            except CtxvcError as error:
                raise Conflict(
                    f"another process moved a scope meanwhile: {error}", hint=Phrase("share-again")
                ) from error

    def add_refs(self, refs: Mapping[str, str]) -> None:
        """Adds refs to existing commits, all or none, with one write to the disk: ref → commit.

        The caller holds the locks of their sessions. Raises: as `packed_refs.add`.
        """
        with self.exclusive():
            try:
                packed_refs.add(self.path, refs)
            except Conflict:
                if not leftovers.remove(self.path):
                    raise
                packed_refs.add(self.path, refs)

    def clean_up(self) -> list[str]:
        """Removes leftovers of killed writers; returns their paths. Waits for living writers."""
        if not leftovers.leftovers(self.path):
            return []
        with self.exclusive():
            return leftovers.remove(self.path)

    @contextmanager
    def exclusive(self, timeout: float = 60.0) -> Iterator[int]:
        """Keeps other ctxvc processes from writing packs or refs. Yields the lock, for children that must hold it.

        Raises: as `locked`.
        """
        with locked(self.path / "ctxvc" / "store.lock", timeout=timeout) as lock:
            yield lock

    @contextmanager
    def shared(self) -> Iterator[int]:
        """Keeps purges and merges of packs from running. Yields the lock, as `exclusive`."""
        with locked(self.path / "ctxvc" / "store.lock", shared=True) as lock:
            yield lock

    def merge_packs(self, most: int = MOST_PACKS) -> None:
        """Merges the small packs into one if there are more than `most`, so that lookups stay fast.

        A failure affects nothing else: it is stored in `merge_failure`, and the merge is tried again later.
        """
        try:
            if sum(name.endswith(".pack") for name in os.listdir(self.path / "objects" / "pack")) <= most:
                self.merge_failure = None
                return
            if self.merge_failure is not None and clock.monotonic() < self._merge_again:
                return
            with self.exclusive() as lock:
                self._merge(lock)
        except (CtxvcError, OSError) as error:
            why = error.strerror or error if isinstance(error, OSError) else error
            self.merge_failure = CtxvcError(f"the packs could not be merged: {why}", hint=Phrase("gc-merges"))
            self._merge_again = clock.monotonic() + MERGE_AGAIN
        else:
            self.merge_failure = None

    def _merge(self, lock: int) -> None:
        # Keeps existing deltas; gc looks for better ones.
        arguments = ("repack", "--geometric=2", "-d", "--quiet", "--no-write-bitmap-index")
        try:
            program.run(self.path, *arguments, config=("pack.window=0",), inherit=(lock,))
        except CtxvcError:
            leftovers.remove(self.path)  # half a pack would take the space that the next try needs
            raise

    def first_parents(self, commit: str) -> Iterator[str]:
        """The commit's own id and those of its first parents, newest first."""
        yield commit
        for commit_object in self.ancestors(commit):
            if commit_object.parent_ids:
                yield str(commit_object.parent_ids[0])

    def ancestors(self, commit: str) -> Iterator[pygit2.Commit]:
        """The commit and its first parents, newest first. Raises: Damaged."""
        at: str | None = commit
        while at is not None:
            commit_object = self.commit(at)
            yield commit_object
            parents = commit_object.parent_ids
            at = str(parents[0]) if parents else None

    def message(self, commit: str) -> str:
        """The message of a commit."""
        return self.commit(commit).message

    def commit(self, id: str) -> pygit2.Commit:
        """The commit with that full id. Raises: Damaged if it is missing or unreadable."""
        try:
            git_object = self.repository[id]
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise Damaged(f"commit {id[:12]} is {damage(error)}", hint=Phrase("verify")) from error
        if not isinstance(git_object, pygit2.Commit):
            raise Damaged(f"{id[:12]} is not a commit", hint=Phrase("verify"))
        return git_object


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def create(path: Path) -> Store:
    """Creates a store at `path` (by convention `.ctxvc` in a project's root), private to this user.

    If the folder does not exist yet, other processes see the whole store or nothing, even if they create it at the same
    time. Raises: Refused if anything else is there, CtxvcError if it cannot be written.
    """
    contained.refuse_link(path)
    if path.exists() and any(path.iterdir()):
        raise Refused(f"{path} exists and is not empty", hint=Phrase("place-taken"))
    path = path.absolute()
    new = path if path.exists() else path.with_name(f"{path.name}-{secrets.token_hex(4)}.new")
    try:
        new.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.chmod(0o700)
    except OSError as error:
        raise CtxvcError(f"cannot create {path}: {error.strerror}", hint="check the folder's permissions") from error
    try:
        program.run(
            None, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=main", str(new)
        )
        _furnish(new)
        if new != path:
            _put_in_place(new, path)
    except (OSError, CtxvcError):
        shutil.rmtree(new, ignore_errors=True)
        raise
    known_stores.remember_made(path)
    _exclude(path)
    return Store(path)


def _put_in_place(new: Path, path: Path) -> None:
    """Renames `new` to `path`. Raises: Refused if another process was faster; OSError."""
    try:
        new.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise Refused(f"{path} exists and is not empty", hint=Phrase("place-taken")) from error
        raise


def adopt(path: Path) -> Store:
    """Turns git's bare clone of a store, which has the sessions but no settings and folders, into a store.

    A complete store is only opened. Raises: Refused if `path` is neither.
    """
    contained.examine(path)
    trust.check(path)
    repository = program.open_repository(path)
    try:
        if _FORMAT not in program.config(repository):
            if not _has_session(repository):
                raise Refused(f"{path} {_NO_STORE}", hint=Phrase("init-elsewhere"))
            try:
                path.chmod(0o700)
                _furnish(path)
                _exclude(path)
                known_stores.remember_made(path)
            except OSError as error:
                message = f"cannot complete the clone {path}: {error.strerror}"
                raise CtxvcError(message, hint="check the folder's permissions") from error
    finally:
        repository.free()
    return Store(path)


def _has_session(repository: pygit2.Repository) -> bool:
    """Whether a branch has the tree of a scope."""
    try:
        return any(
            scope_of(name) and fmt.META in repository.references[name].peel(pygit2.Tree)
            for name in repository.references
        )
    except (pygit2.GitError, KeyError, ValueError):
        return False


def _furnish(path: Path) -> None:
    """Gives a bare repository the settings, files and folders of a store."""
    for folder in ("ctxvc/journal", "ctxvc/lock", "ctxvc/cache", "info"):
        (path / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    (path / ".gitignore").write_text("*\n")
    (path / "info" / "attributes").write_bytes(fmt.ATTRIBUTES_TEXT)
    with open(path / "config", "a") as config:  # last: with the format set, the store counts as complete
        for name, value in _SETTINGS.items():  # one git process for each would take longer than all the rest
            section, _, key = name.partition(".")
            config.write(f"[{section}]\n\t{key} = {value}\n")
    for name in ("config", ".gitignore", "info/attributes"):
        (path / name).chmod(0o600)


def _exclude(path: Path) -> None:
    """Hides the store from the project's `git status` without touching a tracked file."""
    try:
        common, line = program.own_repository(path.parent), f"{path.name}/"
        if common is None:
            return  # no project repository around it, or another project's
        contained.make_folder(common, "info")
        # A foreign project may have a link there, or a file with a second hard link.
        handle = contained.opened(common, "info/exclude", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "r+b") as exclude:
            content = exclude.read(contained.LARGEST)
            if line.encode() not in content.splitlines():
                exclude.write((b"" if not content or content.endswith(b"\n") else b"\n") + line.encode() + b"\n")
    except (OSError, Refused):
        return  # the store's own .gitignore has the same effect


def _check_is_store(path: Path) -> None:
    """Raises: NotFound if nothing at `path` looks like a store, before other checks give misleading advice."""
    try:
        names = os.listdir(path)
    except NotADirectoryError:
        names = []
    except OSError:
        return  # the reason is given by whatever needs the files
    if "HEAD" in names or "ctxvc" in names:
        return
    inside = locate.is_store(path / locate.FOLDER)
    raise NotFound(
        f"{path} is not a ctxvc store", hint=f"its store is {path / locate.FOLDER}" if inside else "check the path"
    )


def _check_settings(path: Path, settings: Mapping[str, str]) -> None:
    number = settings.get(_FORMAT)
    if number is None:
        raise Refused(f"{path} {_NO_STORE}", hint=Phrase("init-clone"))
    if not re.fullmatch("[0-9]{1,9}", number) or int(number) > fmt.FORMAT:
        raise Refused(
            f"the store {path} has format {display.one_line(number, 40)}; this ctxvc reads up to {fmt.FORMAT}",
            hint="update ctxvc",
        )
    for name in settings:
        if name.startswith("extensions.") and name != "extensions.worktreeconfig":
            raise Refused(
                f"the store {path} uses {name}, which is not supported", hint="clone it with default git settings"
            )


def request_files(system: Any, tools: Any) -> tuple[tuple[str, bytes], ...]:
    """The request's system prompt and tools as files: (path, bytes)."""
    files = []
    if isinstance(system, str):
        files.append(("request/system.txt", system.encode("utf-8", "surrogatepass")))
    elif system:
        files.append(("request/system.json", wire.compact(system)))
    if tools:
        files.append(("request/tools.json", wire.compact(tools)))
    return tuple(files)
