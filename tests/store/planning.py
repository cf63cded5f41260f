"""A process that puts plans and drops every second: `planning.py STORE NAME COUNT`; it prints what was acknowledged.

It says `ready` and waits for a line. A COUNT of 0 goes on until it is killed.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from ctxvc.core.plan import Action, Plan
from ctxvc.store import pending_plans
from ctxvc.store.store import Store


def main(path: str, name: str, count: int) -> None:
    with Store(Path(path)) as store:
        os.write(1, b"ready\n")
        sys.stdin.readline()
        for number in itertools.count(1) if count == 0 else range(1, count + 1):
            plan = Plan(actions=(Action(verb="mask", targets=(f"B{number}",)),), actor=f"policy:{name}")
            put = pending_plans.put(store, "demo", "main", plan, base_commit="", time="")
            os.write(1, f"put {put.id} {name} {number}\n".encode())
            if number % 2 == 0:
                os.write(1, f"drop {put.id}\n".encode())  # before: killed in between, it may be gone or not
                pending_plans.drop(store, "demo", [put.id], "stale")
                os.write(1, f"dropped {put.id}\n".encode())


if __name__ == "__main__":
    _, path, name, count = sys.argv
    main(path, name, int(count))
