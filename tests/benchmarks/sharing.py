"""A remote with the sessions of many clones: one ref a clone beside a ref a scope, the same sessions, in one run."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ctxvc.core.ledger.ledger import Counters, Ledger
from ctxvc.sharing import inventory, pull, push, remotes
from ctxvc.sharing.index import REFS, Head, Index
from ctxvc.sharing.remotes import Remote
from ctxvc.store.files import locked
from ctxvc.store.format import message, ref_of
from ctxvc.store.git.fast_import import Commit
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.benchmarks.measuring import Figure, interleaved, seconds

#: Clones, sessions of each, scopes of each session. A smaller run: CTXVC_BENCH_CLONES.
CLONES = int(os.environ.get("CTXVC_BENCH_CLONES", "100"))
SESSIONS = 100
SCOPES = ("main", "fix", "look")
_ROUNDS = 3


def figures(folder: Path) -> Iterator[Figure]:
    by_scope, by_clone = _bare(folder / "by-scope.git"), _bare(folder / "by-clone.git")
    with create(folder / "all" / ".ctxvc") as store:
        _fill(store)
        _git(store.path, "pack-refs", "--all")
        _git(store.path, "push", "-q", str(by_scope), "refs/heads/*:refs/heads/*")
        everything = inventory.index(store, Remote(name="origin", address=str(by_clone)), "all", "").sessions
        for number in range(CLONES):
            sessions = {name: everything[name] for name in _names(number)}
            commit = inventory.commit(store, Index(head=Head(clone=f"c{number}"), sessions=sessions))
            _git(store.path, "update-ref", f"refs/remotes/origin/c{number}", commit)
        _git(store.path, "push", "-q", str(by_clone), f"refs/remotes/origin/*:{REFS}*")
    for path in (by_scope, by_clone):
        _git(path, "repack", "-adq")
        _git(path, "pack-refs", "--all")
    yield from _compared("ls-remote", "kB", _listed(by_scope), _listed(by_clone))
    scopes, indexes = "+refs/heads/*:refs/scopes/*", f"+{REFS}*:{REFS}*"
    fetches = {
        "refs": (by_scope, scopes), "indexes": (by_clone, indexes, "--depth=1"), "everything": (by_clone, indexes)
    }  # fmt: skip
    times = interleaved(
        {name: lambda number, fetch=fetch: _first_fetch(folder, number, *fetch) for name, fetch in fetches.items()},
        _ROUNDS,
    )
    first = {name: statistics.median(taken) for name, taken in times.items()}
    yield from _compared("first look: all refs, the indexes", "s", first["refs"], first["indexes"])
    yield from _compared("first fetch of everything", "s", first["refs"], first["everything"])
    sizes = [_packed(folder, *fetches[name]) for name in ("refs", "indexes")]
    yield from _compared("objects of the first look: all refs, the indexes", "kB", *sizes)
    again = [_again(folder, by_scope, scopes), _again(folder, by_clone, indexes)]
    yield from _compared("fetch with nothing new", "s", *again)
    yield from _compared("push of one session", "s", _pushed_scope(folder, by_scope), _pushed_index(folder, by_clone))
    yield from _ours(folder, by_clone)


def _compared(what: str, unit: str, a_ref_a_scope: float, a_ref_a_clone: float) -> Iterator[Figure]:
    yield Figure(f"{what}: a ref a scope", a_ref_a_scope, unit)
    yield Figure(f"{what}: a ref a clone", a_ref_a_clone, unit)
    yield Figure(f"{what}: of it", a_ref_a_clone / a_ref_a_scope, "×")


def _names(clone: int) -> list[str]:
    return [f"c{clone}-s{number}" for number in range(SESSIONS)]


def _fill(store: Store) -> None:
    """All sessions of all clones, in one pack: a first commit, and a scope of its own on top of it for each other."""
    now = store.now()
    with locked(store.lock_path("all")) as lock:
        for kinds in ("main", "others"):
            with store.pack_writer(lock) as writer:
                tips = store.all_tips() if kinds == "others" else {}
                for name in (name for clone in range(CLONES) for name in _names(clone)):
                    first = store.first_commit(name, model="a-model", system=f"You work on {name}.", tools=None)
                    if kinds == "main":
                        writer.commit(first)
                        continue
                    for scope in SCOPES[1:]:
                        meta = msgspec.structs.replace(
                            first.after.meta, scope=scope, parent="main", counters=Counters()
                        )
                        text = message(f"scope {scope}", {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host"})
                        writer.commit(
                            Commit(ref=ref_of(name, scope), before=first.after, after=Ledger(meta=meta), message=text,
                                   actor="host", time=now, now=now, parent=tips[name]["main"])
                        )  # fmt: skip


def _bare(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return path


def _git(path: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={path}", *arguments], check=True, capture_output=True).stdout


def _listed(server: Path) -> float:
    return len(_git(server, "ls-remote", str(server))) / 1e3


def _fetched(folder: Path, number: int, server: Path, *options: str) -> Path:
    return folder / f"fetched-{server.stem}-{len(options)}-{number}.git"


def _first_fetch(folder: Path, number: int, server: Path, refspec: str, *options: str) -> None:
    path = _bare(_fetched(folder, number, server, *options))
    _git(path, "fetch", "-q", *options, f"file://{server}", refspec)


def _packed(folder: Path, server: Path, _refspec: str, *options: str) -> float:
    """Kilobytes of what a first fetch brought."""
    return (
        sum(file.stat().st_size for file in (_fetched(folder, 0, server, *options) / "objects").rglob("*.pack")) / 1e3
    )


def _again(folder: Path, server: Path, refspec: str) -> float:
    path = folder / f"fetched-{server.stem}-0-0.git"
    return statistics.median(seconds(lambda: _git(path, "fetch", "-q", f"file://{server}", refspec)) for _ in range(5))


def _commit_on(path: Path, commit: str, number: int) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    tree = _git(path, "rev-parse", f"{commit}^{{tree}}").decode().strip()
    return _git(path, *who, "commit-tree", tree, "-p", commit, "-m", f"step {number}").decode().strip()


def _pushed_scope(folder: Path, server: Path) -> float:
    path, ref = folder / f"fetched-{server.stem}-0-0.git", "c0-s0/main"
    times = []
    for number in range(_ROUNDS):
        commit = _commit_on(path, f"refs/scopes/{ref}", number)
        _git(path, "update-ref", f"refs/scopes/{ref}", commit)
        times.append(seconds(lambda: _git(path, "push", "-q", f"file://{server}", f"{commit}:refs/heads/{ref}")))  # noqa: B023
    return statistics.median(times)


def _pushed_index(folder: Path, server: Path) -> float:
    """One more commit of a session, and the index with it."""
    path, ref = folder / f"fetched-{server.stem}-0-0.git", f"{REFS}c0"
    times = []
    for number in range(_ROUNDS):
        before = _git(path, "rev-parse", ref).decode().strip()
        tree, *parents = _git(path, "show", "-s", "--format=%T %P", ref).decode().split()
        parents[0] = _commit_on(path, parents[0], number)
        words = [word for parent in parents for word in ("-p", parent)]
        who = ("-c", "user.name=x", "-c", "user.email=x@x")
        after = _git(path, *who, "commit-tree", tree, *words, "-m", "index").decode().strip()
        _git(path, "update-ref", ref, after)
        lease = f"--force-with-lease={ref}:{before}"
        times.append(seconds(lambda: _git(path, "push", "-q", lease, f"file://{server}", f"{after}:{ref}")))  # noqa: B023
    return statistics.median(times)


def _ours(folder: Path, server: Path) -> Iterator[Figure]:
    """What the commands take: everything, with every commit checked; then one more session."""
    with create(folder / "mine" / ".ctxvc") as store:
        remotes.add(store, Remote(name="origin", address=str(server), sends=True, sessions=("mine",)), "mine")
        yield Figure("`pull` of one session, of all that are there", seconds(
            lambda: pull.pull(store, chosen=pull.choice(["c1-s1"]))), "s")  # fmt: skip
        one_clone = pull.choice(_names(1))
        took = seconds(lambda: pull.pull(store, chosen=one_clone))
        yield Figure(f"`pull` of {SESSIONS} sessions, every commit checked", took, "s")
        yield Figure("`pull` of these with nothing new", seconds(lambda: pull.pull(store, chosen=one_clone)), "s")
        many = [name for clone in range(2, min(12, CLONES)) for name in _names(clone)]
        took = seconds(lambda: pull.pull(store, chosen=pull.choice(many)))
        yield Figure(f"`pull` of {len(many):,} new sessions", took, "s")
        yield Figure("`pull` of all that are left", seconds(lambda: pull.pull(store)), "s")
        store.create_session("mine")
        push.push(store)
        with StoredSession.open(store, "mine") as stored:
            stored.note("one more")
        yield Figure("`push` of one session, searched for secrets", seconds(lambda: push.push(store)), "s")
