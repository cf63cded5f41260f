"""Results as a Parquet table: what is in it, and the word where pyarrow is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ctxvc.errors import CtxvcError, Refused
from ctxvc.replay.measures.retention import Counts, Split
from ctxvc.replay.results.file import check_parquet, write_parquet
from ctxvc.replay.results.result import Tokens
from tests.cli.conftest import Run, run
from tests.replay.recordings import recording
from tests.replay.test_results_file import result

__all__ = ["run"]  # a fixture


def test_each_result_is_a_row_and_each_group_of_fields_has_its_columns(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    made = [
        result("keep", tokens=Tokens(peak=7), events={"archive": {"agent": 2}}),
        result("mask", retention=Split(nt=Counts(visible=3)), kinds={"path": Split()}),
    ]

    write_parquet(made, tmp_path / "results.parquet")

    rows = arrow.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["policy"] for row in rows] == ["keep", "mask"]
    assert [row["tokens.peak"] for row in rows] == [7, 0]
    assert [row["retention.nt.visible"] for row in rows] == [0, 3]
    assert json.loads(rows[0]["events"]) == {"archive": {"agent": 2}}
    assert json.loads(rows[1]["kinds"]).keys() == {"path"}
    with pytest.raises(CtxvcError, match="cannot write"):
        write_parquet(made, tmp_path / "nowhere" / "results.parquet")


def test_without_pyarrow_it_is_said_before_anything_is_replayed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    talk = recording(tmp_path / "talk.jsonl")

    with pytest.raises(Refused, match="extra `parquet`"):
        check_parquet()
    done = run("replay", talk, "--parquet", tmp_path / "out.parquet", "--out", tmp_path / "out.jsonl")

    assert done.exit_code == 1
    assert "ctxvc[parquet]" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
