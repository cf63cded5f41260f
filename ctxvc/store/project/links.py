"""Links from code commits to the sessions and steps that they came from.

They are on a branch of their own, `refs/heads/_links`, one small file per code commit: a clone of the store has them,
no session can have that name, and the project's history stays untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pygit2

from ctxvc.core import display
from ctxvc.errors import Conflict
from ctxvc.store.files import locked
from ctxvc.store.format import HEADS, message, scope_of
from ctxvc.store.git.fast_import import Commit, epoch
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import code_history, links_inbox
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.trust import contained

FORMAT = 1
REF = f"{HEADS}_links"
FOLDER = "links"

#: For this many seconds after its newest step, the current session counts as the origin of a person's commit.
FRESH = 86_400
#: If a link is made within this many seconds of the code commit, as usual, the newest step is still the same.
_SOON = 30
#: The most commits that a link lists as replaced by an amend or a rebase.
_MOST_REPLACED = 100
#: The most files that a link lists; the rest are only counted.
MOST_FILES = 500
_TRIES = 3
_HEX = re.compile(r"[0-9a-f]{4,64}")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a code commit.

    `time` is the commit's time, `files` its changed files, `more` the number of those not listed. `host` and
    `recording` identify the program's session that made the commit; if they are empty, it is unknown, and the link only
    says which session of the store was current. `session` is empty if the store had nothing of that recording at the
    time. `step` is the store's newest step at the time: a recording can be some steps behind. `patch` is git's id of
    the change itself, empty if it has none; `replaces` are the commits that an amend or a rebase turned into this one.
    """

    format: int = FORMAT
    commit: str
    time: str
    host: str = ""
    recording: str = ""
    session: str = ""
    scope: str = ""
    step: int = 0
    files: tuple[str, ...] = ()
    more: int = 0
    patch: str = ""
    replaces: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Link)


def take(store: Store) -> int:
    """Makes links of all posted code commits; returns the number made. Concurrent calls make each link once.

    Posts that this machine did not leave stay where they are.
    Raises: Conflict, CtxvcError, OSError; then all posts are still there.
    """
    with locked(store.path / "ctxvc" / "lock" / "_links") as lock:
        waiting = links_inbox.pending(store.path)
        links: list[Link] = []
        for _, posted in waiting:
            if posted and (link := _rewritten(store, posted, links) if posted.replaces else _link(store, posted)):
                links.append(link)
        count = _write(store, lock, links)
        for path, posted in waiting:
            if posted:
                contained.remove(store.path, f"{links_inbox.FOLDER}/{path.name}")
    return count


def find(store: Store, commit: str) -> list[Link]:
    """The links of code commits whose ids begin with `commit`; at most one for a full id."""
    commit = commit.lower()
    if not _HEX.fullmatch(commit):
        return []
    if links_inbox.COMMIT.fullmatch(commit):
        link = _read(store, commit)
        return [link] if link else []
    return [link for link in every(store) if link.commit.startswith(commit)]


def every(store: Store) -> list[Link]:
    """All links, oldest first. Invalid files are skipped: the branch can come from anywhere."""
    newest = tip(store)
    return at(store, newest) if newest else []


def at(store: Store, commit: str) -> list[Link]:
    """The links at a commit of such a branch, oldest first; invalid files are skipped."""
    root, links = store.reader.tree(commit), []
    top = root[FOLDER] if FOLDER in root else None  # noqa: SIM401 - a tree has no `get`
    for folder in top if isinstance(top, pygit2.Tree) else ():
        links += [link for entry in folder if (link := _decoded(entry))] if isinstance(folder, pygit2.Tree) else []
    return sorted(links, key=lambda link: (link.time, link.commit))


def merge(store: Store, commit: str) -> int:
    """Adds the links at a commit of another clone's branch; returns the number added. Raises: Conflict, CtxvcError."""
    with locked(store.path / "ctxvc" / "lock" / "_links") as lock:
        return _write(store, lock, at(store, commit))


def tip(store: Store) -> str:
    """The branch's newest commit; empty if there is none."""
    try:
        return str(store.repository.references[REF].target)
    except KeyError:
        return ""


def of_patch(store: Store, patch: str) -> Link | None:
    """The newest link of a commit with this patch id: a rebased or cherry-picked commit has another commit id."""
    return next((link for link in reversed(every(store)) if patch and link.patch == patch), None)


def origin(store: Store, link: Link) -> tuple[str, str, int]:
    """Session, scope and step of a link as they are now; the session is empty if the store does not have it.

    A recording may have been imported after its code commit.
    """
    session = link.session if store.tips(link.session) else ""
    if link.recording:
        session = store.session_of(link.host, link.recording) or session
    if not session:
        return "", "", 0
    scope = link.scope if link.scope in store.tips(session) else store.current_scope(session)
    stored = StoredSession.for_reading(store, session, scope)
    since = takewhile(lambda step: step.ended >= epoch(link.time, 0), steps(store, stored.tip(scope)))
    return session, scope, step_of(link, since, stored.ledger(scope).meta.counters.step)


class Step(NamedTuple):
    """A committed step; `ended` is in seconds since 1970."""

    number: int
    ended: int
    commit: str


def steps(store: Store, tip: str) -> Iterator[Step]:
    """The steps in a commit's history, newest first."""
    for entry in revision.history(store, tip):
        if entry.op == "step":
            yield Step(store.reader.meta(entry.commit).counters.step, entry.time, entry.commit)


def step_of(link: Link, steps: Iterable[Step], newest: int) -> int:
    """The step in which a code commit was made. `steps` are the scope's, at least those that ended after it.

    A host's recording arrives late: the step is the first that ended after the commit or, if none has, the open one,
    `newest`. For a person's commit, or one of a model that we run, the link itself has the step.
    """
    if not link.recording:
        return link.step
    committed = epoch(link.time, 0)
    return min((step.number for step in steps if step.ended >= committed), default=newest)


# --- making


def _link(store: Store, posted: CodeCommit) -> Link | None:
    """The link of a posted commit; None if nothing shows which session made it."""
    session, scope = "", ""
    if posted.recording:
        session = store.session_of(posted.host, posted.recording)
    elif place := scope_of(posted.head):
        session, scope = place
    tips = store.tips(session) if session else {}
    if tips and scope not in tips:
        scope = store.current_scope(session)
    if not posted.recording and not (tips and epoch(posted.time, 0) - revision.entry(store, tips[scope]).time < FRESH):
        return None
    return Link(
        **_changes(posted),
        time=posted.time,
        host=posted.host,
        recording=display.one_line(posted.recording, 200),
        session=session if tips else "",
        scope=scope if tips else "",
        step=_newest_step(store, session, scope, epoch(posted.time, 0)) if tips else 0,
    )


def _changes(posted: CodeCommit) -> dict[str, Any]:
    """The fields of a link that describe the commit and its changes."""
    folder = Path(posted.folder)
    files = code_history.changed(folder, posted.commit)
    return {
        "commit": posted.commit,
        "files": tuple(files[:MOST_FILES]),
        "more": max(0, len(files) - MOST_FILES),
        "patch": code_history.patch_id(folder, posted.commit),
    }


def _rewritten(store: Store, posted: CodeCommit, new: Sequence[Link]) -> Link | None:
    """The link of a commit that replaces others; None if none of them has a link.

    The newest made by a host counts, else the commit's own, else the newest of the replaced ones. A rebase runs
    `post-commit` too, so its own link may name the session that rebased.
    """
    replaced = tuple(filter(links_inbox.COMMIT.fullmatch, posted.replaces.split()[:_MOST_REPLACED]))
    by_id = {link.commit: link for link in new}
    candidates = [
        link for name in (posted.commit, *reversed(replaced)) if (link := by_id.get(name) or _read(store, name))
    ]
    if not candidates:
        return None
    base = next((link for link in candidates if link.recording), candidates[0])
    return msgspec.structs.replace(base, **_changes(posted), replaces=replaced)


def _newest_step(store: Store, session: str, scope: str, committed: int) -> int:
    """The newest step of a scope at `committed`, usually a moment ago."""
    stored = StoredSession.for_reading(store, session, scope)
    if store.now() - committed <= _SOON:
        return stored.ledger().meta.counters.step
    return next((step.number for step in steps(store, stored.tip()) if step.ended <= committed), 0)


def _write(store: Store, lock: int, links: Sequence[Link]) -> int:
    """Adds the links to the branch in one commit; returns the number added.

    Existing links stay unchanged, except that the commits they replace are added.
    """
    for attempt in range(_TRIES):
        new = {
            link.commit: link
            for link in links
            if (former := _read(store, link.commit)) is None or (link.replaces and former.replaces != link.replaces)
        }
        if not new:
            return 0
        try:
            store.write([_commit(store, list(new.values()))], lock)
            return len(new)
        except Conflict:  # a purge has rewritten the branch
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _commit(store: Store, new: Sequence[Link]) -> Commit:
    first, now = new[0], store.now()
    where = f"{first.session}/{first.scope} step {first.step}" if first.session else f"{first.host} {first.recording}"
    subject = f"link {first.commit[:12]}: {where}" if len(new) == 1 else f"link {len(new)} code commits"
    return Commit(
        ref=REF,
        message=message(subject, {"Ctxvc-Op": "link", "Ctxvc-Actor": "user"}),
        actor="user",
        time=epoch(first.time, now),
        now=now,
        files=tuple(
            (_path(link.commit), msgspec.json.format(msgspec.json.encode(link), indent=1) + b"\n") for link in new
        ),
        parent=tip(store),
    )


# --- reading


def _path(commit: str) -> str:
    return f"{FOLDER}/{commit[:2]}/{commit[2:]}.json"


def _read(store: Store, commit: str) -> Link | None:
    newest = tip(store)
    try:
        return _decoded(store.reader.tree(newest)[_path(commit)]) if newest else None
    except KeyError:
        return None


def _decoded(entry: pygit2.Object) -> Link | None:
    """The link in a file; None if the file is not a link, has a newer format or is of another commit."""
    if not isinstance(entry, pygit2.Blob):
        return None
    try:
        link = _decoder.decode(entry.data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    is_in_place = links_inbox.COMMIT.fullmatch(link.commit) and _path(link.commit).endswith(f"/{entry.name}")
    return link if is_in_place and link.format <= FORMAT else None
