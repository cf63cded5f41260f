"""Tests against real clients and frameworks: run by hand with `-m hosts`, and by `.ci/run` where CTXVC_CI_HOSTS=1."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
#: A warning of a framework is its own affair; one that names a module of ours is an error, as everywhere.
_WARNINGS = pytest.mark.filterwarnings("default", r"error:::ctxvc(\..*)?$")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.hosts)
            item.add_marker(_WARNINGS)
