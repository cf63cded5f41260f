"""The table of all sessions: what is exported, what stays, what is asked, and what a purge leaves of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from click.testing import CliRunner

from ctxvc.cli.commands import pull as pull_command
from ctxvc.cli.main import cli
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.trust import identity
from ctxvc.store.trust.known_stores import TABLE
from ctxvc.tables.rows import PARTS
from tests.benchmarks.tables import questions
from tests.cli.conftest import STEERING, Run, answer
from tests.making.object_store import Bucket, bucket

pytest.importorskip("duckdb", reason="the extra `sql` is not installed")

ADDRESS = "s3://team/table"
QUESTION = "Why does tests/test_app.py fail?"
COUNTS = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM calls), (SELECT count(*) FROM blocks)"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who knows of no other stores and folders."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def export(run: Run, project: Path, *options: str | Path) -> Any:
    return answer(run, project, "export", "--format", "parquet", "-o", project / "table", *options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def sql(run: Run, project: Path, statement: str, *options: str | Path) -> list[list[Any]]:
    rows: list[list[Any]] = answer(run, project, "sql", statement, *options)["rows"]
    return rows


def test_each_question_of_the_how_to_has_an_answer(run: Run, project: Path) -> None:
    for question, statement in questions():
        result = run("sql", statement, folder=project)
        assert (result.exit_code, result.stderr) == (0, ""), question
        assert result.stdout.strip(), question


def test_the_answers_are_the_stores(run: Run, project: Path) -> None:
    rows = sql(run, project, "SELECT tool, len(failed) FROM calls, unnest(tools) AS t(tool) WHERE session = 'demo'")
    assert sorted(map(tuple, rows)) == [("Bash", 1), ("Edit", 0), ("Read", 1), ("Screenshot", 0)]
    assert run("delete", "B1", "--allow-user", "-m", "no", "--session", "hostile", folder=project).exit_code == 0
    left = sql(run, project, "SELECT session, block, removed_by, left_step FROM blocks WHERE state = 'deleted'")
    assert left == [["hostile", "B1", "user", 2]]
    events = sql(run, project, "SELECT op, actor, blocks, step FROM events WHERE session = 'hostile' ORDER BY ALL")
    assert events == [["delete", "user", 1, 2]]
    files = {item["name"]: item["cost"] for item in answer(run, project, "stats", "--by", "file")["items"]}
    costs = dict(sql(run, project, "SELECT path, sum(cost) FROM files GROUP BY path"))  # type: ignore[arg-type]
    assert costs == {name: pytest.approx(cost) for name, cost in files.items() if name != "(none)"}
    total = answer(run, project, "stats")["total"]
    ((cost, read),) = sql(run, project, "SELECT sum(cost), sum(cache_read) FROM calls")
    assert (cost, read) == (pytest.approx(total["cost"]), total["cache_read"])


def test_only_what_is_new_is_written_again(run: Run, project: Path) -> None:
    assert export(run, project)["updated"] == 3
    before = files(project / "table")
    assert export(run, project) | {"folder": ""} == {
        "schema": "ctxvc.export_table/1", "folder": "", "sessions": 3, "updated": 0, "files": 0,
    }  # fmt: skip
    run("note", "-m", "one more", "--session", "branched", folder=project)

    assert export(run, project)["updated"] == 1
    assert files(project / "table").keys() == before.keys()
    asked = sql(run, project, COUNTS, "--from", project / "table")
    assert asked == sql(run, project, COUNTS)
    assert sql(run, project, "SELECT count(*) FROM events WHERE op = 'note'", "--from", project / "table") != [[0]]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def swapped(path: Path) -> None:
    """Another file that is good Parquet."""
    path.write_bytes(next(other for other in path.parents[3].rglob("*.parquet") if other != path).read_bytes())


@pytest.mark.parametrize(
    ("damage", "part"),
    [(cut, min(PARTS)), (cut, max(PARTS)), (swapped, "calls"), (Path.unlink, "calls")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_damaged_file_is_written_anew_and_never_believed(damage: Any, part: str, run: Run, project: Path) -> None:
    whole = sql(run, project, COUNTS)
    table = project / FOLDER / TABLE
    before = files(table)
    damage(next((table / part).rglob("*.parquet")))

    assert sql(run, project, COUNTS) == whole
    assert files(table).keys() == before.keys()
    assert all(len(data) == len(before[name]) for name, data in files(table).items())


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{}",
        json.dumps({"form": "1", "sessions": {"demo": {"key": "", "partition": "../../../out"}}}).encode(),
    ],
)
def test_what_is_said_of_the_files_is_not_believed_either(manifest: bytes, run: Run, project: Path) -> None:
    whole = sql(run, project, COUNTS)
    table, name = project / FOLDER / TABLE, identity.store_id(project / FOLDER)
    planted = table / "calls" / "month=2020-01" / "writer=x" / f"{name}.parquet"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(next((table / "calls").rglob("*.parquet")).read_bytes())
    (planted.parent / "another.parquet").write_bytes(planted.read_bytes())
    (table / f"{name}.json").write_bytes(manifest)

    assert sql(run, project, COUNTS) == whole
    assert not planted.exists() and not list(project.glob("**/out*"))


def test_text_comes_only_when_it_is_asked_for(run: Run, project: Path) -> None:
    export(run, project)
    texts = "SELECT count(text), count(*) FROM blocks WHERE kind = 'user'"
    assert sql(run, project, texts, "--from", project / "table")[0][0] == 0
    export(run, project, "--text")
    ((given, blocks),) = sql(run, project, texts, "--from", project / "table")
    assert given == blocks > 0
    found = "SELECT text FROM blocks WHERE text LIKE '%test_app.py fail%'"
    assert sql(run, project, found, "--from", project / "table") == [["Why does tests/test_app.py fail?"]]


def test_a_purge_is_gone_from_every_folder_when_it_returns(run: Run, project: Path) -> None:
    export(run, project, "--text")
    sql(run, project, COUNTS)
    foreign = project / "table" / "calls" / "month=2026-03" / "writer=w" / "another-store.parquet"
    foreign.parent.mkdir()
    foreign.write_bytes(b"theirs")

    assert run("purge", "--text", QUESTION, "--yes", folder=project).exit_code == 0

    assert list(files(project / "table").values()) == [b"theirs"]
    assert not (project / FOLDER / TABLE).exists()
    foreign.unlink()
    export(run, project, "--text")
    asked = f"SELECT count(*), count(*) FILTER (contains(text, '{QUESTION}')) FROM blocks"
    ((blocks, bad),) = sql(run, project, asked, "--from", project / "table")
    assert blocks > 0 and bad == 0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An object store, by the environment of its clients."""
    pytest.importorskip("obstore", reason="the extra `sql` is not installed")
    with bucket() as server:
        values = {"ENDPOINT_URL": server.address, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        for name, value in {**values, "REGION": "eu-west-1", "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("SSL_CERT_FILE", certifi.where())  # a client needs some, though it speaks plain HTTP here
        yield server


def in_bucket(server: Bucket) -> dict[str, bytes]:
    return {key.removeprefix("table/"): data for key, data in server.objects.items() if key.startswith("table/")}


def test_an_object_store_has_what_a_folder_has(run: Run, project: Path, store: Bucket) -> None:
    others = {"table/calls/month=2026-01/writer=amy/other.parquet": b"amy's", "elsewhere/x.parquet": b"not ours"}
    store.objects.update(others)
    export(run, project)
    sent = answer(run, project, "export", "--format", "parquet", "-o", ADDRESS)
    there = {key: data for key, data in in_bucket(store).items() if f"table/{key}" not in others}
    assert there.keys() == files(project / "table").keys()
    assert (sent["folder"], sent["files"]) == (ADDRESS, len(there))
    for key in others:
        del store.objects[key]
    assert sql(run, project, COUNTS, "--from", ADDRESS) == sql(run, project, COUNTS, "--from", project / "table")
    store.objects.update(others)

    store.changes.clear()
    assert answer(run, project, "export", "--format", "parquet", "-o", f"{ADDRESS}/")["files"] == 0
    assert store.changes == []
    lost, changed = sorted(key for key in store.objects if key not in others)[:2]
    del store.objects[lost]
    store.objects[changed] = b"somebody else's"
    needless = f"table/calls/month=2020-01/writer=local/{changed.rpartition('/')[2]}"  # as of a session that is gone
    store.objects[needless] = b"rows"
    assert answer(run, project, "export", "--format", "parquet", "-o", ADDRESS)["files"] == 2
    assert [change for change, _ in store.changes] == ["PUT", "PUT", "DELETE"]
    assert needless not in store.objects
    assert {lost: store.objects[lost], changed: store.objects[changed]}.items() <= {
        f"table/{key}": data for key, data in there.items()
    }.items()

    purged = run("purge", "--text", QUESTION, "--yes", folder=project)
    assert (purged.exit_code, ADDRESS in purged.stdout + purged.stderr) == (0, False)
    assert store.objects == others  # as from a folder: the next export writes what is left


def test_an_object_store_that_refuses_is_named(run: Run, project: Path, store: Bucket) -> None:
    assert answer(run, project, "export", "--format", "parquet", "-o", ADDRESS)["files"] > 0
    store.refusing = True
    result = run("export", "--format", "parquet", "-o", ADDRESS, folder=project)
    assert (result.exit_code, ADDRESS in result.stderr, "credentials" in result.stderr) == (1, True, True)
    before = in_bucket(store)
    result = run("purge", "--text", QUESTION, "--yes", folder=project)
    assert ADDRESS in result.stdout + result.stderr  # a place that may still have it
    assert in_bucket(store) == before
    assert "credentials" in run("sql", "FROM calls", "--from", ADDRESS, folder=project).stderr
    store.refusing = False
    store.objects.clear()
    assert "no table in" in run("sql", "FROM calls", "--from", ADDRESS, folder=project).stderr
    assert answer(run, project, "export", "--format", "parquet", "-o", ADDRESS)["files"] > 0


def test_no_recorded_text_steers_a_terminal_or_breaks_a_row(run: Run, project: Path) -> None:
    for part in PARTS:
        result = run("sql", f"FROM {part}", folder=project)
        assert not STEERING.search(result.stdout)
        assert len({line.count("\t") for line in result.stdout.splitlines()}) == 1
    assert not STEERING.search(run("sql", "SELECT 1 AS \"\x1b[2J\", E'\\x1b[31m'", folder=project).stdout)


def test_what_is_wrong_is_said_in_a_line(run: Run, project: Path, tmp_path: Path) -> None:
    for arguments, code, text in (
        (["SELECT nothing FROM calls"], 1, "nothing"),
        ([], 2, "--shell"),
        (["FROM calls", "--from", str(tmp_path / "none")], 1, "no table in"),
    ):
        result = run("sql", *arguments, folder=project)
        assert result.exit_code == code and text in result.stderr and "Traceback" not in result.stderr


def test_numbers_stand_at_the_right_on_a_terminal(on_screen: Run, project: Path) -> None:
    for values, cells in (
        ("(1), (20), (NULL)", ["  1", " 20", ""]),
        ("(1.5), (20)", [" 1.5", "20.0"]),
        ("('1'), ('20')", ["1", "20"]),
    ):
        statement = f"SELECT * FROM (VALUES {values}) AS t(sum)"
        shown = on_screen("--color", "never", "sql", statement, folder=project).stdout
        assert shown.splitlines()[1:] == cells


def test_without_duckdb_it_says_what_to_install(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for arguments in (["sql", "FROM calls"], ["export", "--format", "parquet", "-o", "table"]):
        result = run(*arguments, folder=project)
        assert result.exit_code == 1 and "ctxvc[sql]" in result.stderr
    assert run("stats", folder=project).exit_code == 0


def test_a_shell_answers_each_statement_and_goes_on_after_a_mistake(project: Path) -> None:
    statements = "SELECT count(*) AS sessions\nFROM sessions;\nnonsense;\nSELECT 7 AS seven"
    result = CliRunner().invoke(cli, ["-C", str(project), "sql", "--shell"], input=statements)
    assert (result.exit_code, result.stdout) == (0, "sessions\n3\nseven\n7\n")
    assert "nonsense" in result.stderr


def test_pull_watch_takes_in_what_comes_and_keeps_the_table_fresh(
    run: Run, project: Path, server: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", server, "--as", "laptop", "--yes", folder=project)
    run("init", folder=other)
    run("remote", "add", server, "--as", "desktop", "--yes", folder=other)
    pushes: Iterator[Any] = iter([lambda: run("push", folder=project), lambda: None])

    def sleep(seconds: float) -> None:
        assert seconds == 60
        try:
            next(pushes)()
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(pull_command.time, "sleep", sleep)
    result = run("pull", "--watch", "60", folder=other)
    assert result.exit_code == 130 and "demo: main of laptop" in result.stdout
    assert len(list((other / FOLDER / TABLE / "calls").rglob("writer=laptop/*.parquet"))) == 1


@pytest.mark.parametrize("address", ["s3://", "https://host/table"])
def test_an_address_of_no_object_store_is_refused(address: str, run: Run, project: Path) -> None:
    result = run("export", "--format", "parquet", "-o", address, folder=project)
    assert (result.exit_code, "object store" in result.stderr) == (1, True), result.stderr
    assert not list(project.glob("*:*"))
