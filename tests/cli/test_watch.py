"""`watch`: sessions of hosts without hooks, as they are written."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from pathlib import Path

import pytest

from ctxvc.store.project.locate import FOLDER, project_root
from ctxvc.store.store import create
from tests.cli.conftest import INTERRUPTIBLE, Run, python
from tests.making.host import history, single_import
from tests.recording.test_files import CONVERSATION, write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    create(project / FOLDER).close()
    return project


def once(run: Run, place: Path, *arguments: str | Path) -> list[dict[str, object]]:
    result = run("watch", "--once", "--json", *arguments, folder=place)
    assert result.exit_code == 0, result.stderr
    items: list[dict[str, object]] = json.loads(result.stdout)["items"]
    return items


def test_a_look_takes_what_is_new(run: Run, place: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:6])
    assert [item["units"] for item in once(run, place, path)] == [2]
    assert once(run, place, path) == []
    write(path, *CONVERSATION)
    assert [(item["units"], item["waiting"]) for item in once(run, place, path)] == [(1, 1)]
    os.utime(path, (1, 1))  # nobody has written to it for long
    assert [(item["units"], item["waiting"]) for item in once(run, place, path)] == [(1, 0)]
    assert history(place / FOLDER) == single_import(tmp_path, path)


def test_without_a_path_it_looks_where_hosts_write(run: Run, place: Path) -> None:
    folder = Path.home() / ".codex" / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    meta = {"id": "11111111-2222-3333-4444-555555555555", "timestamp": "2026-01-01T00:00:00Z", "cwd": str(place)}
    said = [
        {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}
        for role, kind, words in (
            ("user", "input_text", "find the bug"),
            ("assistant", "output_text", "Found."),
            ("user", "input_text", "mend it"),
        )
    ]
    lines = [("session_meta", meta), *(("response_item", each) for each in said)]
    text = [json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": held}) for kind, held in lines]
    (folder / "rollout-1.jsonl").write_text("\n".join(text) + "\n")

    (item,) = once(run, place)
    assert (item["format"], item["units"], item["waiting"]) == ("codex", 1, 1)
    assert project_root(place) == place


def test_a_file_that_is_none_or_unreadable_does_not_stop_the_others(run: Run, place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "transcripts"
    folder.mkdir()
    (folder / "odd.jsonl").write_text("nonsense\n")
    (folder / "empty.jsonl").write_text("")
    os.mkfifo(folder / "pipe.jsonl")
    write(folder / "edited.jsonl", *CONVERSATION)
    assert len(once(run, place, folder)) == 1
    other = [{**each, "sessionId": "22222222-2222-3333-4444-555555555555"} for each in CONVERSATION]
    write(folder / "edited.jsonl", *CONVERSATION[2:])
    write(folder / "good.jsonl", *other)

    result = run("watch", "--once", folder, folder=place)

    assert result.exit_code == 1
    assert "edited.jsonl" in result.stderr and "--as-new" in result.stderr
    assert result.stdout == "claude-22222222: 3 commits, 10 blocks\n"


@pytest.mark.parametrize("words", [("--once",), ()])
def test_a_path_that_is_not_there_is_told_at_once(
    run: Run, place: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    good = write(tmp_path / "s.jsonl", *CONVERSATION)
    result = run("watch", *words, good, tmp_path / "typo", folder=place)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"no such file or folder: {tmp_path / 'typo'}" in result.stderr and "hint:" in result.stderr


def test_a_growing_file_is_followed_until_it_is_interrupted(place: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:1])
    arguments = [*INTERRUPTIBLE, "watch", "--interval", "0.05", str(path)]
    process = python(*arguments, folder=place, env={"PYTHONUNBUFFERED": "1"})
    assert process.stdout
    for number in (6, 11):
        write(path, *CONVERSATION[:number])
        assert process.stdout.readline().startswith("claude-11111111: ")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.slow
def test_every_growing_format_can_be_watched(run: Run, place: Path, recordings: Path, tmp_path: Path) -> None:
    for number, host in enumerate(("claude-code", "codex", "pi")):
        source = min((recordings / "transcripts" / host).glob("*.jsonl*"), key=lambda path: path.stat().st_size)
        data = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
        path = tmp_path / f"{number}" / source.name.removesuffix(".gz")
        path.parent.mkdir()
        for size in (len(data) // 3, len(data) // 2, len(data)):
            path.write_bytes(data[:size])
            once(run, place, path)
        os.utime(path, (1, 1))
        once(run, place, path)
        recorded = history(place / FOLDER)
        single = single_import(path.parent, path)
        assert {scope: recorded.get(scope) for scope in single} == single, source
