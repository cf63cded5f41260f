"""What campaigns share: where chance begins, how large they are, and a line for each at the end of a run of pytest."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

CAMPAIGN = "campaign"
#: What a campaign calls with its line, and for how many cases it has.
Tell = Callable[[str], None]
Times = Callable[[int], int]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in report.user_properties
        if name == CAMPAIGN
    ]
    if lines:
        terminalreporter.section("campaigns")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)


def line(name: str, **counts: int | str) -> str:
    """`kills: 1,000, seed 15, acknowledged 12,345`"""
    first, *rest = (f"{value:,}" if isinstance(value, int) else value for value in counts.values())
    labels = [name.replace("_", " ") for name in counts][1:]
    return ", ".join([f"{name}: {first}", *(f"{label} {value}" for label, value in zip(labels, rest, strict=True))])


@pytest.fixture(scope="session")
def seed() -> int:
    """What chance begins with: `CTXVC_FAULTS_SEED`."""
    return int(os.environ.get("CTXVC_FAULTS_SEED", "15"))


@pytest.fixture(scope="session")
def times() -> Times:
    """So many cases as usual, times `CTXVC_FAULTS_TIMES`; at least one."""
    factor = float(os.environ.get("CTXVC_FAULTS_TIMES", "1"))
    return lambda usual: max(1, round(usual * factor))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Its line stands at the end of the run, and before that in what a failing test printed."""

    def write(line: str) -> None:
        print(line)
        record_property(CAMPAIGN, line)

    return write
