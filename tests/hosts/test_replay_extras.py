"""Replay's extras, which the suite has not: a Dask cluster on loopback, and Parquet tables."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.hosts import environments


@pytest.mark.timeout(1800)
def test_a_cluster_and_a_table_have_the_same_results() -> None:
    tests = [environments.ROOT / "tests" / "replay" / name for name in ("test_cluster.py", "test_parquet.py")]
    options = ["-n", "0", "-p", "no:cacheprovider", "-rs", "-W", "default"]
    result = subprocess.run(
        [environments.python(environments.REPLAY), "-m", "pytest", *options, *tests],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(environments.ROOT)},
        cwd=environments.ROOT,
    )

    assert result.returncode == 0, result.stdout[-4000:]
    assert " skipped" not in result.stdout.splitlines()[-1], result.stdout[-2000:]
