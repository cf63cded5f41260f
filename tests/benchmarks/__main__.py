"""`python -m tests.benchmarks`: what the store costs, as a table. Compare ratios of one run; single times are noisy.

With CTXVC_TEST_DATA set to a folder with `transcripts/` and `trajectories/`, the figures on disk and import are of
those recordings; else of the demo's session.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import (
    agent,
    appends,
    commands,
    engine,
    formats,
    growth,
    inspection,
    limits,
    policies,
    purges,
    recorded,
    redaction,
    report,
    searches,
    sharing,
    steps,
    tables,
    targets,
    wire,
)
from tests.benchmarks.measuring import Figure, machine

PARTS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "agent": agent.figures,
    "append": appends.figures,
    "engine": engine.figures,
    "formats": formats.figures,
    "growth": growth.figures,
    "inspection": inspection.figures,
    "limits": limits.figures,
    "policies": policies.figures,
    "purges": purges.figures,
    "recorded": recorded.figures,
    "redaction": redaction.figures,
    "report": report.figures,
    "searches": searches.figures,
    "sharing": sharing.figures,
    "start": commands.figures,
    "steps": steps.figures,
    "tables": tables.figures,
    "targets": targets.figures,
    "wire": wire.figures,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help=f"which parts; all by default: {', '.join(PARTS)}"
    )
    chosen = parser.parse_args().parts or list(PARTS)
    print(machine())
    print(f"\n{'what':<58} {'measured':>12} {'ratio':>8}  {'target':<22} of what")
    with tempfile.TemporaryDirectory(prefix="ctxvc-benchmarks-") as folder:
        for name in chosen:
            print(f"-- {name}")
            place = Path(folder, name)
            place.mkdir()
            for figure in PARTS[name](place):
                print(figure.line())
                sys.stdout.flush()


if __name__ == "__main__":
    main()
