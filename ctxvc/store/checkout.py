"""A scope as files in a folder: a detached, sparse linked worktree of the store.

Detached, because a worktree with a scope's branch checked out would show, and commit, every new block as deleted.
Sparse, because of 50,000 blocks only a few hundred are in the prompt. Changes in a checkout move no scope.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pygit2

from ctxvc.core.ledger import block as actions
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.suggestion import meant
from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.store import format as fmt
from ctxvc.store import worktrees
from ctxvc.store.format import trailers_of
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.verify.history import COMMITTER

DASHBOARD = worktrees.DASHBOARD
#: The most bytes of a body that is compared.
_LARGEST = 1 << 30
FOLDER = "checkout"

_ALWAYS = (
    "/ctxvc.json",
    "/.gitattributes",
    "/ledger/",
    "/request/",
    *(f"!/{folder}/" for folder in (fmt.BODY, fmt.CLIENT, fmt.ASIDES)),
    "/blocks/",
)
#: Nested repositories are ignored: they could have settings of their own.
_CHANGED = ("diff", "--raw", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "--abbrev=40")
#: Characters without a special meaning in a sparse pattern.
_PLAIN = re.compile(r"[A-Za-z0-9/.-]+")
_SWAPPED = {"blocks": "archive", "archive": "blocks"}


class CheckedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a checkout; `files` does not count the dashboard."""

    path: str
    session: str
    scope: str
    commit: str
    files: int


class Move(msgspec.Struct, frozen=True):
    """A block whose files were all moved to the other side, unchanged."""

    block: str
    verb: Literal["archive", "restore"]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """A person's changes in a checkout since `base`, the newest of our commits below it.

    `commits` are the person's own, newest first; `others` describes the change of each path that is not part of a move.
    `back` is the command that undoes all changes.
    """

    session: str
    scope: str
    base: str
    commits: tuple[str, ...]
    moves: tuple[Move, ...]
    others: tuple[str, ...]
    back: str

    def __bool__(self) -> bool:
        return bool(self.commits or self.moves or self.others)


def place(store: Store, session: str, scope: str) -> Path:
    """The default folder of a checkout: inside the store, which is private and hidden from the project's git.

    Raises: Refused if the names, which may come from a foreign store, would lead out of it.
    """
    if not all(map(contained.plain, (session, *scope.split("/")))):
        raise Refused(
            f"{f'{session}/{scope}'[:100]!r} cannot be used as a folder name", hint="name one: checkout … DIR"
        )
    return store.path / FOLDER / session / scope.replace("/", "%2F")  # flat: no part of it can be a link


def checkout(
    store: Store, session: str = "", scope: str = "", folder: Path | None = None, *, dashboard: str = ""
) -> CheckedOut:
    """Writes the scope's newest commit into the folder, which is created, or updated if it is already a checkout.

    The files are the bodies in the prompt, recovered bodies, the ledger, the request and, if given, the dashboard,
    which git ignores. Bytes are exact, whatever the user's git settings.
    Raises: NotFound; Refused if the folder has anything else in it or a person changed something.
    """
    session = session or store.current_session()
    scope = scope or store.current_scope(session)
    tip = store.tips(session).get(scope)
    if tip is None:
        scopes = sorted(store.tips(session))
        raise NotFound(f"no scope {session}/{scope}{meant(scope, scopes)}", hint=f"its scopes: {', '.join(scopes)}")
    folder = (folder or place(store, session, scope)).absolute()
    if _is_checkout(store, folder):
        if changes := person_changes(store, folder):
            raise Refused(f"{folder} was changed: {_brief(changes)}", hint=_advice(changes))
    else:
        _add(store, folder, tip)
    return _show(store, folder, session, scope, tip, dashboard)


def person_changes(store: Store, folder: Path) -> Changes:
    """A person's changes in a checkout, committed or not.

    Raises: NotFound if the folder is not a checkout of this store.
    """
    folder = folder.absolute()
    if not _is_checkout(store, folder):
        raise NotFound(f"{folder} is not a checkout of {store.path}", hint=Phrase("make-checkout"))
    base, commits = _base(store, folder)
    meta = store.reader.meta(base)
    ledger = store.reader.ledger(base)
    removed, added, others = _differences(folder, base)
    moves = list(_moves(ledger, removed, added))
    for path in sorted(removed.keys() | added.keys()):
        others.append(f"{path}: {'removed' if path in removed else 'added'}")
    back = program.advice("-C", folder, "checkout", "--detach", "--force", base[:12])
    return Changes(
        session=meta.session,
        scope=meta.scope,
        base=base,
        commits=tuple(commits),
        moves=tuple(moves),
        others=tuple(others),
        back=f"{back} && {program.advice('-C', folder, 'clean', '-fdq')}" if _untracked(folder) else back,
    )


def take(store: Store, folder: Path) -> Changes:
    """Archives and restores in the scope, as actor `user`, the blocks moved between `blocks/` and `archive/`.

    Afterwards the folder is at the scope's newest commit. If a step is open, that commit does not have the moves yet:
    they are acknowledged, and the next checkout after the step shows them.
    Raises: Refused, before any change, if anything else was changed or the scope or a block's state forbids a move.
    """
    changes = person_changes(store, folder)
    if changes.others or (changes.commits and not changes.moves):
        raise Refused(
            f"only moves between blocks/ and archive/ can be applied: {_brief(changes)}", hint=_advice(changes)
        )
    if changes.moves:
        before = store.reader.ledger(changes.base)
        with StoredSession.open(store, changes.session, changes.scope) as stored:
            ledger = stored.ledger()
            rows = {
                verb: [_moved(before, ledger, move, changes.back) for move in changes.moves if move.verb == verb]
                for verb in ("archive", "restore")
            }
            for verb, changed in rows.items():
                _change(stored, verb, changed)
            stored.flush()
            tip = stored.tip()
        for row in (*rows["archive"], *rows["restore"]):
            _drop(store, folder, changes.base, row)
        _show(store, folder.absolute(), changes.session, changes.scope, tip, "")
    return changes


def _change(stored: StoredSession, verb: str, rows: list[Row]) -> None:
    if rows:
        names = ", ".join(row.id for row in rows[:8]) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
        stored.change(subject=f"{verb} {names}", op=verb, actor="user", rows=rows)


def _moved(before: Ledger, now: Ledger, move: Move, back: str) -> Row:
    """The row after the move. Raises: Refused if its state forbids the move or has changed since the checkout."""
    old, row = before[move.block], now.get(move.block)
    if row is None or (old.state, old.group) != (row.state, row.group):
        now_is = row.state if row else "not here"
        raise Refused(
            f"{move.block} has changed since this checkout was made: it is now {now_is}", hint=f"undo: {back}"
        )
    state = actions.after(row.state, move.verb)
    if state is None:
        raise Refused(f"cannot {move.verb} {row.id}: it is {row.state}", hint=f"undo: {back}")
    if row.group:
        raise Refused(
            f"cannot move {row.id} alone: it left as part of {row.group}", hint=Phrase("restore-group", block=row.id)
        )
    if move.verb == "restore":
        return msgspec.structs.replace(row, state=state, stub="", level=0, removed_by="")
    stub = stubs.stub(row)
    # A stub longer than its block would cost more than it saves.
    preview = stub if len(stub) < row.bytes else ""
    return msgspec.structs.replace(row, state=state, level=1, stub=preview, removed_by="user")


def _drop(store: Store, folder: Path, base: str, row: Row) -> None:
    """Deletes the moved files from the folder: git does not track them and would leave them there.

    Those that the newest commit has in that place are written again by the checkout.
    """
    tree = store.reader.tree(base)
    for path in fmt.paths(row):
        if _blob(folder, path) == str(tree[_swapped(path)].id):
            contained.remove(folder, path)


# --- making and moving


def _add(store: Store, folder: Path, commit: str) -> None:
    """Adds a worktree, still empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(
            f"{folder} is not empty and not a checkout of this store", hint="name another folder, or delete this one"
        )
    try:
        if folder.is_relative_to(store.path / FOLDER):
            # `contained.examine` skips the insides of checkouts: a link in them may lead out of the store.
            contained.make_folder(store.path, folder.relative_to(store.path).as_posix(), private=True)
        else:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
    except OSError as error:
        raise CtxvcError(f"cannot create {folder}: {error.strerror}", hint="check the folder's permissions") from error
    worktrees.add(store.path, folder, commit, _ALWAYS)


def _show(store: Store, folder: Path, session: str, scope: str, commit: str, dashboard: str) -> CheckedOut:
    """Updates the folder to the commit. The caller has checked that no change of a person is lost."""
    program.in_checkout(folder, "checkout", "--quiet", "--force", "--detach", commit)
    patterns = "\n".join((*_ALWAYS, *_recovered(store.reader.ledger(commit)))) + "\n"
    program.in_checkout(folder, "sparse-checkout", "set", "--no-cone", "--stdin", data=patterns.encode())
    if dashboard:
        _ignore_dashboard(store)
        contained.replace(folder, DASHBOARD, dashboard.encode("utf-8", "replace"))
    listed = program.in_checkout(folder, "ls-files", "-t", "-z").split(b"\0")
    return CheckedOut(
        path=str(folder),
        session=session,
        scope=scope,
        commit=commit,
        files=sum(line.startswith(b"H ") for line in listed),
    )


def _recovered(ledger: Ledger) -> Iterator[str]:
    """Patterns for recovered bodies that are not in the prompt."""
    for row in ledger.rows():
        if row.reads and not row.present:
            yield from (f"/{path}" for path in fmt.paths(row) if _PLAIN.fullmatch(path))


def _ignore_dashboard(store: Store) -> None:
    try:
        lines = contained.read(store.path, "info/exclude").decode("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        lines = []
    if f"/{DASHBOARD}" not in lines:
        contained.make_folder(store.path, "info")
        content = "\n".join([*lines, f"/{DASHBOARD}", ""])
        contained.replace(store.path, "info/exclude", content.encode("utf-8", "surrogateescape"))


def _is_checkout(store: Store, folder: Path) -> bool:
    """Whether the folder is a linked worktree of this store made here by ctxvc. Only such folders are changed."""
    worktree = worktrees.at(store.path, folder)
    return worktree is not None and worktrees.is_made_here(store.path, worktree)


# --- changes of a person


def _base(store: Store, folder: Path) -> tuple[str, list[str]]:
    """The newest of our commits below the folder's HEAD, and the commits on top of it."""
    head = program.in_checkout(folder, "rev-parse", "HEAD").decode().strip()
    foreign: list[str] = []
    for commit in store.first_parents(head):
        base_commit = store.repository[commit]
        assert isinstance(base_commit, pygit2.Commit)
        by = f"{base_commit.committer.name} <{base_commit.committer.email}>"
        if by == COMMITTER and "Ctxvc-Op" in trailers_of(base_commit.message):
            return commit, foreign
        foreign.append(commit)
    raise Damaged(f"nothing in {folder} was made by ctxvc", hint="delete the folder and make a new checkout")


def _differences(folder: Path, base: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The removed and added files since `base`, as path → blob; and a description of each edited file."""
    output = program.in_checkout(folder, *_CHANGED, base)
    fields = [os.fsdecode(field) for field in output.split(b"\0")]
    removed: dict[str, str] = {}
    added: dict[str, str] = {}
    others: list[str] = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, kind = about.removeprefix(":").split(" ")
        blob = new if new.strip("0") else _blob(folder, path)  # zeros: differs from the index
        if kind == "D":
            removed[path] = old
        elif kind == "A":
            added[path] = blob
        elif old_mode != new_mode or blob != old:
            others.append(f"{path}: edited")
    added.update({path: _blob(folder, path) for path in _untracked(folder)})
    return removed, added, others


def _untracked(folder: Path) -> list[str]:
    listed = program.in_checkout(folder, "ls-files", "--others", "--exclude-standard", "-z")
    return [os.fsdecode(path) for path in listed.split(b"\0") if path]


def _blob(folder: Path, path: str) -> str:
    """The id that git would give the file; empty if it is not a plain file or is reached through a link."""
    try:
        return str(pygit2.hash(contained.read(folder, path, _LARGEST)))
    except (OSError, Refused):
        return ""


def _moves(ledger: Ledger, removed: dict[str, str], added: dict[str, str]) -> Iterator[Move]:
    """The blocks that were moved as a whole; removes their files from `removed` and `added`."""
    for block in dict.fromkeys(filter(None, map(fmt.block_of_path, sorted(removed)))):
        row = ledger.get(block)
        files = {path: _swapped(path) for path in fmt.paths(row)} if row else {}
        if files and all(path in removed and added.get(other) == removed[path] for path, other in files.items()):
            for path, other in files.items():
                del removed[path], added[other]
            yield Move(block, "archive" if row and row.present else "restore")


def _swapped(path: str) -> str:
    top, _, rest = path.partition("/")
    return f"{_SWAPPED[top]}/{rest}"


def _brief(changes: Changes) -> str:
    """A short description of the changes."""
    phrases = [
        *changes.others,
        *(f"{move.block}: moved" for move in changes.moves),
        *(f"a separate commit, {commit[:12]}" for commit in changes.commits),
    ]
    return "; ".join(phrases[:5]) + (f"; and {len(phrases) - 5} more" if len(phrases) > 5 else "")


def _advice(changes: Changes) -> str | Phrase:
    if changes.moves and not changes.others:
        return Phrase("take-moves", undo=changes.back)
    return f"to undo it: {changes.back}"
