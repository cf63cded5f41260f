"""A campaign in a process of its own: `campaign.py kills|disks FOLDER SEED CASES`; prints its counts as JSON.

One process forks each worker, so that a case costs no start of Python. A store serves so many cases in a row, so that
what one left is what the next one finds.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from ctxvc.store.store import create
from tests.faults import tracer
from tests.faults.tracer import Tree, Watch
from tests.faults.workload import SESSION, Ledger, missing, uninvited, unsound, work

#: Cases on one store, and how often it is looked at with git's own eyes.
_CASES_A_STORE = 20
_LOOKED_AT = 10


def run(path: Path, seed: int, name: str, watch: Watch, ledger: Ledger) -> Tree:
    """A worker with something that goes wrong in it; what it acknowledged is in the ledger afterwards."""
    read, write = os.pipe()
    tree = tracer.trace(lambda: work(path, write, seed, name), watch)
    os.close(write)
    with open(read, "rb") as lines:
        ledger.read(lines.read().decode().splitlines(keepends=True))
    return tree


def killing(chance: random.Random, calls: int) -> Watch:
    """Kills at one system call of all: the worker, whoever makes the call, or all of them at once."""
    at, whom = chance.randrange(1, calls + 1), chance.choice(["worker", "caller", "all"])

    def watch(tree: Tree, pid: int) -> int:
        if tree.calls == at:
            tree.kill({"worker": {tree.root}, "caller": {pid}}.get(whom, set(tree.alive)))
        return 0

    return watch


def failing(chance: random.Random, calls: int, folder: str, counts: Counter[str]) -> Watch:
    """From one call on the disk is full; or one call fails."""
    at, full = chance.randrange(1, calls + 1), chance.random() < 0.5
    error = errno.ENOSPC if full else chance.choice([errno.EIO, errno.ENOSPC])
    number = 0

    def watch(tree: Tree, pid: int) -> int:
        nonlocal number
        name = tracer.changing_call(pid, folder)
        if not name:
            return 0
        number += 1
        if number == at or (full and number > at and name in tracer.NEEDS_SPACE):
            counts["failed calls"] += 1
            return error
        return 0

    return watch


def counting(folder: str) -> tuple[Watch, Counter[str]]:
    counts: Counter[str] = Counter()

    def watch(tree: Tree, pid: int) -> int:
        counts["changing"] += bool(folder) and bool(tracer.changing_call(pid, folder))
        return 0

    return watch, counts


def main(kind: str, folder: Path, seed: int, cases: int) -> None:
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    case = 0
    path, ledger, calls = folder, Ledger(), 0
    while counts["cases"] < cases:
        if case % _CASES_A_STORE == 0:
            shutil.rmtree(path, ignore_errors=True)
            path, ledger = folder / f"store-{case}", Ledger()
            with create(path) as store:
                store.create_session(SESSION)
            watch, noted = counting(tracer.is_in(path) if kind == "disks" else "")
            tree = run(path, seed, f"first-{case}", watch, ledger)
            calls = noted["changing"] if kind == "disks" else tree.calls
        case += 1
        before, fails = len(ledger.blocks), counts["failed calls"]
        watch = killing(chance, calls) if kind == "kills" else failing(chance, calls, tracer.is_in(path), counts)
        tree = run(path, seed + case, f"w{case}", watch, ledger)
        if not (tree.dead or counts["failed calls"] > fails):
            continue  # it was over before
        counts["cases"] += 1
        counts["acknowledged"] += len(ledger.blocks) - before
        absent = missing(path, ledger)
        counts["missing"] += len(absent)
        absent += uninvited(path, ledger) if ledger.refused else []
        counts["refused"] += len(ledger.refused)
        ledger.refused.clear()
        wrong += [f"case {case}: {problem}" for problem in (*absent, *ledger.failures)]
        ledger.failures.clear()
        if counts["cases"] % _LOOKED_AT == 0:
            counts["looked at"] += 1
            wrong += [f"case {case}: {problem}" for problem in unsound(path)]
        if len(wrong) > 20:
            break
    print(json.dumps({**counts, "missing": counts["missing"], "refused": counts["refused"], "wrong": wrong[:20]}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
