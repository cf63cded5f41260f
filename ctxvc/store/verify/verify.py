"""Checks that a store is intact. All faults become findings; nothing is changed.

git checks its own side (`fsck`) while we check ours: every commit, every journal, refs and files.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import pygit2

from ctxvc.errors import CtxvcError, NotFound, Phrase
from ctxvc.store import pending_plans
from ctxvc.store.files import locked
from ctxvc.store.format import HEADS, head_ref, ref_of, scope_of
from ctxvc.store.git import program
from ctxvc.store.git.objects import Commit, Objects, Unreadable, find, unhashed
from ctxvc.store.log import aside
from ctxvc.store.log.journal import Change
from ctxvc.store.store import Store
from ctxvc.store.upkeep import leftovers
from ctxvc.store.verify import git_fsck
from ctxvc.store.verify import journal as check_journal
from ctxvc.store.verify.finding import EDITED, FROM_A_COPY, Finding, Where, blocks_at, damage, warning
from ctxvc.store.verify.history import History

#: The most findings of one commit: more tell nothing new about a badly broken or hostile one.
_MOST = 100
_PERMISSIONS = "check the store's owner and permissions"

#: Called with the number of commits checked and the number of all commits.
Progress = Callable[[int, int], None]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, damage first and oldest first in each scope, and what was checked. `bytes` are those hashed."""

    findings: tuple[Finding, ...]
    sessions: int
    scopes: int
    commits: int
    blocks: int
    bytes: int
    seconds: float

    @property
    def damaged(self) -> bool:
        return any(finding.level == "damage" for finding in self.findings)


def verify(store: Store, progress: Progress | None = None, *, deep: bool = True, since: str = "") -> Report:
    """Checks the whole store or, without `deep`, only its newest commits and its journals.

    With `since`, a commit, everything that it reaches counts as checked, and git's own check is skipped. Safe while
    others write. Damage is reported, never raised.
    """
    before = _standing(store)
    report = _verify(store, progress, deep=deep, since=since)
    if report.damaged and _standing(store) != before:
        # Refs or packs moved during the check, so an object that seemed to be missing may only have moved.
        report = _verify(store, progress, deep=deep, since=since)
    return report


class _Walk(NamedTuple):
    """The commits from the tips down, each with its distance from the first commit and a scope that contains it."""

    commits: dict[bytes, Commit]
    ages: dict[bytes, int]
    scopes: dict[bytes, tuple[str, str]]


def _verify(store: Store, progress: Progress | None, *, deep: bool, since: str) -> Report:
    start = time.perf_counter()
    objects = Objects(store.repository)
    history = History(objects)
    tips, findings = _tips(store)
    with ThreadPoolExecutor(max_workers=1) as thread, unhashed() if deep else nullcontext():
        git_says = thread.submit(git_fsck.complaints, store.path) if deep and not since else None
        walk = _walk(objects, history, tips, _reached(store, since), deep=deep)
        report = list(_commits(history, walk, progress, deep=deep))
        findings += [*_places(store, tips), *_scopes(history, tips, walk), *_journals(store, history, walk, tips)]
        findings += [*_plans(store, tips), *_privacy(store.path), *_leftovers(store)]
        if git_says is not None:
            findings += _git_side(git_says.result(), objects, history, walk, findings)
    report += history.broken.values()
    report.sort(key=lambda aged: (aged[1].where.session, aged[0]))
    findings = [*(finding for _, finding in report), *findings]
    return Report(
        findings=tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.level)),
        sessions=len(tips),
        scopes=sum(map(len, tips.values())),
        commits=len(walk.commits),
        blocks=len(history.blocks),
        bytes=history.bytes,
        seconds=time.perf_counter() - start,
    )


# --- commits


def _reached(store: Store, since: str) -> frozenset[bytes]:
    """The commits reachable from a commit; none if `since` is empty."""
    names = program.run(store.path, "rev-list", since).split() if since else []
    return frozenset(bytes.fromhex(name.decode()) for name in names)


def _walk(
    objects: Objects,
    history: History,
    tips: Mapping[str, Mapping[str, bytes]],
    checked: frozenset[bytes] = frozenset(),
    *,
    deep: bool,
) -> _Walk:
    """All commits that the tips reach, children before parents, except those in `checked`; if not `deep`, the tips.

    The tips are always included.
    """
    walk = _Walk({}, {}, {})
    waiting = [(tip, (session, scope)) for session, scopes in tips.items() for scope, tip in scopes.items()]
    while waiting:
        at, place = waiting.pop()
        line = []
        while at not in walk.commits:
            try:
                commit = objects.commit(at)
            except Unreadable as error:
                history.note(0, error, Where(session=place[0], scope=place[1], commit=at.hex()))
                break
            walk.commits[at], walk.scopes[at] = commit, place
            line.append(at)
            if not deep or not commit.parents:
                break
            waiting += [(parent, place) for parent in commit.parents[1:] if parent not in checked]
            at = commit.parents[0]
            if at in checked:
                break
        age = walk.ages.get(at, -1)
        for older in reversed(line):
            age += 1
            walk.ages[older] = age
    return walk


def _commits(history: History, walk: _Walk, progress: Progress | None, *, deep: bool) -> Iterator[tuple[int, Finding]]:
    total = len(walk.commits)
    # Parents first: decoded parts of one commit are reused for the next, which differs little.
    for count, name in enumerate(reversed(walk.commits), 1):
        commit = walk.commits[name]
        session, scope = walk.scopes[name]
        where = Where(session=session, scope=scope, commit=name.hex())
        age = walk.ages[name]
        parent = walk.commits.get(commit.parents[0]) if deep and commit.parents else None
        findings = history.findings(commit, parent, age, where)
        for finding in islice(findings, _MOST):
            yield age, finding
        for _ in islice(findings, 1):
            yield age, damage(f"this commit has more than {_MOST} faults", where)
        if progress and (count % 64 == 0 or count == total):
            progress(count, total)


def _scopes(history: History, tips: Mapping[str, Mapping[str, bytes]], walk: _Walk) -> Iterator[Finding]:
    for session, scopes in tips.items():
        if "main" not in scopes:
            yield damage(f"session {session} has no scope main", Where(session=session))
        for scope, tip in scopes.items():
            meta = history.meta(walk.commits[tip]) if tip in walk.commits else None
            # A scope that was continued in two clones is kept as `<scope>@<clone>`.
            if meta is not None and (session, scope.split("@")[0]) != (meta.session, meta.scope):
                what = f"the branch points to a commit of {meta.session}/{meta.scope}"
                where = Where(session=session, scope=scope, commit=tip.hex(), path=ref_of(session, scope))
                yield damage(what, where, EDITED)


def _git_side(
    complaints: Iterable[git_fsck.Complaint],
    objects: Objects,
    history: History,
    walk: _Walk,
    reported: Iterable[Finding],
) -> Iterator[Finding]:
    """Faults that only git found; each object with a commit and a path that need it."""
    complaints = [item for item in complaints if not item.object or bytes.fromhex(item.object) not in history.broken]
    ids = frozenset(bytes.fromhex(item.object) for item in complaints if item.object)
    oldest_first = [(name, walk.commits[name]) for name in reversed(walk.commits)]
    places = find(objects, oldest_first, ids) if ids else {}
    refs = {finding.where.path for finding in reported}
    for item in complaints:
        where = Where(path=item.pack or item.ref)
        if item.object and (place := places.get(bytes.fromhex(item.object))):
            session, scope = walk.scopes[place[0]]
            where = Where(session=session, scope=scope, commit=place[0].hex(), block=blocks_at(place[1]), path=place[1])
        elif item.ref:
            session, scope = scope_of(item.ref) or ("", "")
            where = Where(session=session, scope=scope, path=item.ref)
            if item.ref in refs:
                continue
        finding = warning if item.mild else damage
        what = f"object {item.object[:12]} is missing" if item.text.startswith("missing ") else f"git fsck: {item.text}"
        yield finding(what, where, FROM_A_COPY)


# --- refs


def _tips(store: Store) -> tuple[dict[str, dict[str, bytes]], list[Finding]]:
    """session → scope → tip; and findings for refs that are unreadable or hide others."""
    try:
        # libgit2 reports a broken list of refs once, and treats it as empty from then on.
        with Store(store.path) as afresh:
            tips = {
                session: {scope: bytes.fromhex(tip) for scope, tip in scopes.items()}
                for session, scopes in afresh.all_tips().items()
            }
            listed = [os.fsdecode(ref) for ref in afresh.repository.raw_listall_references()]
    except (pygit2.GitError, CtxvcError) as error:
        return {}, [damage(f"the refs cannot be read: {error}", Where(path="packed-refs"))]
    findings = []
    for ref in listed:
        if ref.startswith("refs/replace/"):
            hint = f"`{program.advice('replace', '-d', _printable(ref.removeprefix('refs/replace/')))}` removes it"
            findings.append(damage("git shows another object in place of this one", Where(path=_printable(ref)), hint))
        elif not ref.isascii():
            hint = "`git for-each-ref` shows it; rename or delete it"
            findings.append(
                warning("its name is not a valid scope name: it is ignored", Where(path=_printable(ref)), hint)
            )
    hint = "write the id of the scope's newest commit into it; a clone has it, or `git fsck --unreachable` shows it"
    closed: list[OSError] = []
    for ref in _unlisted(store.path, set(listed), closed.append):
        try:
            store.repository.references[ref]
        except KeyError:
            continue  # deleted or packed meanwhile
        except (pygit2.GitError, OSError, ValueError):
            session, scope = scope_of(_printable(ref)) or ("", "")
            where = Where(session=session, scope=scope, path=_printable(ref))
            findings.append(damage("the branch is unreadable", where, hint))
    for problem in closed:
        where = Where(path=Path(problem.filename).relative_to(store.path).as_posix())
        findings.append(damage(f"its refs cannot be read: {problem.strerror}", where, _PERMISSIONS))
    return tips, findings


def _printable(ref: str) -> str:
    """A ref's name, safe to print."""
    return os.fsencode(ref).decode("utf-8", "backslashreplace")


def _unlisted(path: Path, listed: set[str], closed: Callable[[OSError], None]) -> Iterator[str]:
    """Files that should be branches but that git skips in its listing; calls `closed` for unreadable folders."""
    for folder, _, files in os.walk(path / HEADS, onerror=closed):
        for name in files:
            ref = Path(folder, name).relative_to(path).as_posix()
            if ref not in listed and not name.startswith(".") and not name.endswith(".lock"):
                yield ref


def _places(store: Store, tips: Mapping[str, Mapping[str, bytes]]) -> Iterator[Finding]:
    """Checks that HEAD and each session's own HEAD name an existing scope, and that no objects come from elsewhere."""
    refs = {ref_of(session, scope) for session, scopes in tips.items() for scope in scopes}
    for name in ("HEAD", *map(head_ref, tips)):
        try:
            target = store.repository.references[name].raw_target
        except KeyError:
            continue  # a session's HEAD is created when it is next needed
        except pygit2.GitError as error:
            yield damage(f"it cannot be read: {error}", Where(path=name), Phrase("goto-rewrites"))
            continue
        target_text = target.decode("utf-8", "replace") if isinstance(target, bytes) else ""
        if not target_text:
            yield warning("it names a commit instead of a scope", Where(path=name), Phrase("goto-rewrites"))
        elif tips and target_text not in refs:
            yield warning(f"{target_text} does not exist", Where(path=name), Phrase("goto-rewrites"))
    for path, what in (("objects/info/alternates", "borrowed from another repository"), ("info/grafts", "replaced")):
        if (store.path / path).exists():
            hint = (
                "`git repack -a` copies the borrowed objects; then remove the file"
                if "objects" in path
                else "remove it"
            )
            yield warning(f"objects are {what}", Where(path=path), hint)


# --- journals


def _journals(
    store: Store, history: History, walk: _Walk, tips: Mapping[str, Mapping[str, bytes]]
) -> Iterator[Finding]:
    folder = store.path / "ctxvc" / "journal"
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        names = []
    except OSError as error:
        names = []
        yield damage(f"the journals cannot be read: {error.strerror}", Where(path="ctxvc/journal"), _PERMISSIONS)
    for name in names:
        where = Where(session=name, path=f"ctxvc/journal/{name}")
        parts = aside.piece(name, tips)
        if parts:
            where = msgspec.structs.replace(where, session=parts["session"])
            if parts["accepted"]:
                hint = f"rm {shlex.quote(str(folder / name))}, once they are no longer needed"
                yield warning("lost bytes of a journal are kept here", where, hint)
            else:
                yield damage("unreadable bytes of a journal were set aside", where, Phrase("repair-aside"))
            continue
        journal_findings, records = _journal(store, history, walk, tips.get(name, {}), where)
        yield from journal_findings
        if records and name not in tips:
            yield damage("it has records, but the session has no scope", where, FROM_A_COPY)


def _journal(
    store: Store, history: History, walk: _Walk, tips: Mapping[str, bytes], where: Where
) -> tuple[list[Finding], bool]:
    """The faults of a journal, and whether it has any records."""

    def committed(change: Change) -> set[str]:
        try:
            commit = walk.commits[tips.get(change.scope) or bytes.fromhex(change.origin)]
        except (KeyError, ValueError):
            raise NotFound(f"no commit {change.origin!r} in scope {change.scope!r}") from None
        return history.block_ids(commit)

    path = store.journal_path(where.session)
    try:
        findings = list(check_journal.findings(path.read_bytes(), where, committed))
        if findings:
            # A writer may have been in the middle of a record: read again, under its lock.
            try:
                with locked(store.lock_path(where.session), timeout=5):
                    findings = list(check_journal.findings(path.read_bytes(), where, committed))
            except CtxvcError:
                pass  # a store on a read-only medium has no writers
        return findings, check_journal.records(path.read_bytes()) > 0
    except OSError as error:
        return [damage(f"it cannot be read: {error.strerror}", where)], False


def _plans(store: Store, sessions: Iterable[str]) -> Iterator[Finding]:
    for session in sessions:
        try:
            pending_plans.pending(store, session)
        except CtxvcError as error:
            yield damage(str(error), Where(session=session, path=pending_plans.plans_ref(session)), error.advice)


# --- files


def _privacy(path: Path) -> Iterator[Finding]:
    if (open_to := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        yield warning(f"others can enter the store (mode {open_to:04o})", Where(path="."), f"chmod 700 {path}")
    folder = path / "ctxvc" / "journal"
    for journal in sorted(folder.glob("[!.]*")) if os.access(folder, os.R_OK | os.X_OK) else ():
        if stat.S_IMODE(journal.stat().st_mode) & 0o077:
            where = Where(path=str(journal.relative_to(path)))
            yield warning("others can read uncommitted records", where, f"chmod 600 {journal}")


def _leftovers(store: Store) -> Iterator[Finding]:
    """Leftovers of killed writers; none while a writer is active, whose files look the same."""
    try:
        with store.exclusive(timeout=0):
            files = leftovers.leftovers(store.path)
    except CtxvcError:
        return
    except OSError as error:
        yield damage(f"the packs cannot be listed: {error.strerror}", Where(path="objects/pack"))
        return
    for file in files:
        where = Where(path=str(file.relative_to(store.path)))
        yield warning("left by a killed writer", where, Phrase("gc-removes"))


def _standing(store: Store) -> tuple[list[str], list[str]]:
    """The packs and the targets of all refs, as far as they are readable."""
    packs = sorted(path.name for path in (store.path / "objects" / "pack").glob("*.pack"))
    try:
        refs = [f"{scope} {tip}" for scopes in store.all_tips().values() for scope, tip in scopes.items()]
    except (pygit2.GitError, CtxvcError):
        refs = []
    return packs, sorted(refs)
