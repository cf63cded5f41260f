"""The report's page in a browser: `report/`, in an environment that can drive one."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.hosts import environments, npm


@pytest.mark.timeout(1800)
def test_the_page_works_in_a_browser() -> None:
    env = {**os.environ, "PYTHONPATH": str(environments.ROOT), npm.CACHE: str(environments.cache())}
    tests = environments.ROOT / "tests" / "hosts" / "report"
    options = ["-m", "hosts", "-n", "0", "-p", "no:cacheprovider", "-rs", "-W", "default"]
    result = subprocess.run(
        [environments.python(environments.BROWSER), "-m", "pytest", *options, tests],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=environments.ROOT,
    )

    assert result.returncode == 0, result.stdout[-6000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed and int(passed[1]) >= 20, result.stdout[-2000:]
