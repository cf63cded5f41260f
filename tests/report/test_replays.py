"""The page of a replay's results has what `replay` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from tests.report.conftest import RECORDINGS


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A results file, and the answer of the replay that wrote it."""
    folder = tmp_path_factory.mktemp("replayed")
    out = folder / "results.jsonl"
    arguments = ["replay", str(RECORDINGS["claude"]), str(RECORDINGS["codex"]), "--policy", "window,clear", "--budget"]
    result = CliRunner().invoke(cli, [*arguments, "4k,16k", "--no-store", "--jobs", "1", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def reported(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


def test_the_points_are_the_rows_of_the_replay(replayed: tuple[Path, Any]) -> None:
    out, answer = replayed
    page = json.loads(reported(out, "--json").stdout)["page"]
    points = {(point["policy"], point["budget"]): point for point in page["points"] if not point["oracle"]}
    assert points.keys() == {(item["policy"], item["budget"]) for item in answer["items"]}
    for item in answer["items"]:
        point = points[item["policy"], item["budget"]]
        uses = item["all"]
        assert point["retention"][0] == pytest.approx(uses["visible"] / uses["uses"] if uses["uses"] else 1.0)
        assert point["cost"][0] == pytest.approx(item["cost_with_recoveries"], abs=1e-4)
        assert sum(point["cost_parts"].values()) == pytest.approx(point["cost"][0], abs=1e-4)
        low, high = point["retention"][1:]
        assert low - 1e-9 <= point["retention"][0] <= high + 1e-9
    oracle = {point["budget"]: point["retention"][0] for point in page["points"] if point["oracle"]}
    assert all(oracle[budget] >= point["retention"][0] for (_, budget), point in points.items())


def test_differences_have_examples_where_the_recordings_are_at_hand(replayed: tuple[Path, Any]) -> None:
    out, _ = replayed
    without = json.loads(reported(out, "--json").stdout)["page"]["differences"]
    assert all(difference["step"] == -1 for difference in without)
    data = RECORDINGS["claude"].parents[1]
    differences = json.loads(reported(out, "--json", "--recordings", data).stdout)["page"]["differences"]
    assert differences and any(difference["example"] for difference in differences)


def test_a_page_is_written_and_what_is_no_results_file_is_refused(replayed: tuple[Path, Any], tmp_path: Path) -> None:
    out, _ = replayed
    assert reported(out, "-o", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("other.jsonl", "empty.jsonl"):
        refused = reported(tmp_path / name, "-o", tmp_path / "no.html")
        assert refused.exit_code == 1 and "replay --out" in refused.stderr
    assert not (tmp_path / "no.html").exists()
    assert reported("-o", tmp_path / "no.html", "--recordings", tmp_path).exit_code == 2
