"""`stats`: the providers' own sums, whatever they are by, and only what is new is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest

from ctxvc import processes
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from ctxvc.tables import stats as statistics
from ctxvc.tables.stats import By
from tests.cli.conftest import STEERING, Run, answer
from tests.tables.recorded_usage import summed
from tests.tables.recorded_waits import waits

#: Those that divide a call: what is no call's own is in none of their lines.
DIVIDING = ("tool", "file")
#: Tools of Claude Code's that read or change the file that they name.
FILES = ("Read", "Edit", "Write")


def tokens(item: dict[str, Any]) -> tuple[int, ...]:
    """In the order of the script's."""
    return item["fresh"], item["cache_written"], item["cache_read"], item["output"]


@pytest.mark.parametrize(
    "place",
    [
        *("transcripts/claude-code", "transcripts/codex"),
        *(pytest.param(place, marks=pytest.mark.slow) for place in ("transcripts/pi", "trajectories")),
    ],
)
def test_the_sums_are_those_of_a_script_that_reads_the_recordings(
    place: str, run: Run, tmp_path: Path, recordings: Path
) -> None:
    files = sorted((recordings / place).glob("*.jsonl*"))
    assert files
    run("init", folder=tmp_path)
    assert run("import", "--final", *files, folder=tmp_path).exit_code == 0

    told = answer(run, tmp_path, "stats")

    every, dollars = summed(files)
    assert tokens(told["total"]) == every
    assert told["total"]["cost"] == pytest.approx(dollars, abs=0.0001)
    assert told["total"]["sessions"] == len(files)
    if place.endswith(("claude-code", "pi")):
        model, tools = map(sum, zip(*map(waits, files), strict=True))
        assert (told["total"]["waited_model"], told["total"]["waited_tools"]) == (model, tools)


def test_what_has_no_times_waited_for_an_unknown_time(run: Run, tmp_path: Path) -> None:
    lines = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}] * 2
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"model": "gpt-5", "messages": lines}))
    run("init", folder=tmp_path)
    assert run("import", "--final", file, folder=tmp_path).exit_code == 0

    total = answer(run, tmp_path, "stats")["total"]
    assert (total["calls"], total["waited_model"], total["waited_tools"]) == (2, None, None)


@pytest.mark.parametrize("by", [by for by in get_args(By) if by])
def test_the_lines_add_up_to_the_total(by: str, run: Run, project: Path) -> None:
    told = answer(run, project, "stats", "--by", by)

    total = told["total"]
    columns = [tokens(item) for item in told["items"]]
    assert tuple(map(sum, zip(*columns, strict=True))) == tokens(total) and total["calls"] > 4
    for name in ("cost", "waited_model", "waited_tools", "tool_calls", "failed"):
        if not (by == "file" and name in ("tool_calls", "failed")):
            assert sum(item[name] or 0 for item in told["items"]) == pytest.approx(total[name]), name
    if by not in DIVIDING:
        assert sum(item["blocks_left"] for item in told["items"]) == total["blocks_left"] == 3


def test_what_a_tool_and_a_file_took_is_told_by_name(run: Run, project: Path) -> None:
    tools = {item["name"]: item for item in answer(run, project, "stats", "--by", "tool")["items"]}
    files = {item["name"]: item for item in answer(run, project, "stats", "--by", "file")["items"]}

    assert (tools["Bash"]["failed"], tools["Read"]["failed"]) == (1, 0)
    assert tools["Read"]["fresh"] == tools["Bash"]["fresh"] == 5  # half of the call that called both
    assert files["app.py"]["calls"] == files["tests/test_app.py"]["calls"] == 1


def test_only_sessions_with_a_new_tip_are_read(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    rows_of = statistics.rows_of

    def reading(store: Store, tips: Any, place: Any, **options: Any) -> Any:
        reads.append(place.session)
        return rows_of(store, tips, place, **options)

    monkeypatch.setattr(statistics, "rows_of", reading)
    before = answer(run, project, "stats")
    assert sorted(reads) == ["branched", "demo", "hostile"]
    run("note", "-m", "one more", "--session", "branched", folder=project)
    reads.clear()

    assert answer(run, project, "stats", "--by", "tool")["total"] == before["total"]
    assert reads == ["branched"]
    cache = next((project / FOLDER / "ctxvc" / "cache").glob("stats-tool-*.json"))
    cache.write_bytes(cache.read_bytes()[:-9])
    assert answer(run, project, "stats")["total"] == before["total"]


def test_nothing_of_another_project_is_in_it_unless_all_are_asked_for(
    run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "two").mkdir()
    run("init", folder=tmp_path / "two")
    run("sessions", folder=project)

    assert answer(run, tmp_path / "two", "stats", "--by", "project")["items"] == []
    assert answer(run, tmp_path / "two", "sql", "FROM sessions")["rows"] == []
    told = answer(run, tmp_path / "two", "stats", "--by", "project", "--all-projects")
    assert [item["name"] for item in told["items"]] == [str(project)]
    asked = answer(run, tmp_path / "two", "sql", "SELECT DISTINCT project FROM calls", "--all-projects")
    assert asked["rows"] == [[str(project)]]


def test_since_takes_whole_days_and_says_where_there_is_nothing(run: Run, project: Path) -> None:
    whole = answer(run, project, "stats")
    assert answer(run, project, "stats", "--since", "2026-03-01")["total"] == whole["total"]
    late = run("stats", "--since", "2026-03-02", folder=project)
    assert late.stdout.count("\n") == 1 and "no calls since 2026-03-02" in late.stderr


def test_a_terminal_gets_a_chart_and_a_pipe_every_column(run: Run, on_screen: Run, project: Path) -> None:
    screen = on_screen("stats", "--by", "model", folder=project).stdout
    assert "█" in screen
    lines = run("stats", "--by", "model", folder=project).stdout.splitlines()
    assert lines[0].split("\t")[:4] == ["model", "sessions", "turns", "calls"] and "█" not in "".join(lines)
    for by in get_args(By)[1:]:
        assert not STEERING.search(run("stats", "--by", by, folder=project).stdout)


def test_a_session_that_came_in_is_its_clones(run: Run, project: Path, server: Path, other: Path) -> None:
    run("remote", "add", server, "--as", "laptop", "--yes", folder=project)
    run("push", folder=project)
    run("init", folder=other)
    run("remote", "add", server, "--as", "desktop", "--yes", folder=other)
    run("pull", folder=other)

    assert {item["name"] for item in answer(run, other, "stats", "--by", "person")["items"]} == {"laptop"}
    told = answer(run, project, "stats", "--by", "person", "--remote", "origin")
    assert [item["name"] for item in told["items"]] == ["laptop"]


def test_notes_of_a_project_are_no_session(run: Run, project: Path) -> None:
    before = answer(run, project, "stats")
    assert run("note", "--project", "-m", "Tests run in a container.", folder=project).exit_code == 0
    assert answer(run, project, "stats") == before


def replies(file: Path) -> Iterator[tuple[str, str, str, int, list[str], list[str]]]:
    """The replies in a file of Claude Code's: day, model, branch, tokens, tools that were called, files of theirs."""
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if line["type"] in ("assistant", "user")]
    results = {
        part.get("tool_use_id"): line["timestamp"]
        for line in lines
        for part in line["message"]["content"]
        if isinstance(part, dict)
    }
    of_reply: dict[str, list[Any]] = {}
    for line in lines:
        if line["type"] == "assistant":
            of_reply.setdefault(line["message"]["id"], []).append(line)
    for own in of_reply.values():
        last, parts = own[-1], [part for line in own for part in line["message"]["content"]]
        calls = [part for part in parts if part["type"] == "tool_use"]
        time = max([last["timestamp"], *(results[call["id"]] for call in calls)])
        paths = [call["input"]["file_path"].removeprefix(f"{last['cwd']}/") for call in calls if call["name"] in FILES]
        output = max(line["message"]["usage"]["output_tokens"] for line in own)
        yield time[:10], last["message"]["model"], last["gitBranch"], output, [call["name"] for call in calls], paths


def test_every_kind_is_what_a_few_lines_over_the_recordings_give(run: Run, tmp_path: Path, recordings: Path) -> None:
    """Each of the nine kinds, beside sums over the lines of Claude Code's files, for two projects of one person.

    Files that commands name count too, but not here: no call has a command.
    """
    files = []
    for file in sorted((recordings / "transcripts" / "claude-code").glob("*.jsonl")):
        files.append(tmp_path / file.name)
        files[-1].write_text(file.read_text().replace('"command":', '"unknown":'))
    folders = [tmp_path / "one", tmp_path / "two"]
    expected: dict[str, Counter[str]] = {by: Counter() for by in get_args(By) if by}
    for folder, own in zip(folders, (files[:2], files[2:]), strict=True):
        folder.mkdir()
        run("init", folder=folder)
        for file in own:
            assert run("import", "--final", file, folder=folder).exit_code == 0
            for day, model, branch, output, tools, paths in replies(file):
                names = {"day": day, "week": f"{date.fromisoformat(day):%G-W%V}", "project": str(folder)}
                names |= {"model": model, "agent": "Claude Code", "branch": branch, "person": "(this store)"}
                for by, name in names.items():
                    expected[by][name] += output
                for by, divided in (("tool", tools), ("file", sorted({*paths}))):
                    share, more = divmod(output, len(divided) or 1)
                    for number, name in enumerate(divided or ["(none)"]):
                        expected[by][name] += share + (number < more)
    for by, sums in expected.items():
        items = answer(run, folders[0], "stats", "--all-projects", "--by", by)["items"]
        assert +Counter({item["name"]: item["output"] for item in items}) == +sums, by


@pytest.mark.parametrize("fails", [None, OSError, BrokenProcessPool])
def test_many_sessions_are_added_up_by_processes_and_where_there_are_none_here(
    fails: type[Exception] | None, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = processes.outcomes
    before = answer(run, project, "stats", "--by", "tool")
    for cache in (project / FOLDER / "ctxvc" / "cache").glob("stats-*"):
        cache.unlink()
    given: list[int] = []

    def some(work: Any, units: Any, cores: int) -> Iterator[Any]:
        if fails is OSError:  # no process can be started
            raise fails
        for outcome in outcomes(work, units, cores):
            given.append(len(outcome))
            yield outcome
            if fails:
                raise fails

    monkeypatch.setattr(processes, "outcomes", some)
    monkeypatch.setattr(statistics, "_MANY", 2)
    monkeypatch.setattr(statistics, "_PART", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert answer(run, project, "stats", "--by", "tool") == before
    assert len(given) == {None: 2, OSError: 0, BrokenProcessPool: 1}[fails]
