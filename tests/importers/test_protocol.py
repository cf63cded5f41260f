"""The importers' protocol: every format keeps it, and a database fits it without a change to any other package."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc import importers
from ctxvc.cli.main import cli
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Closed, Event, Opened, Said
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer, Stamp, State
from ctxvc.recording.files import Follower, Outcome, import_paths
from ctxvc.store.store import Store, create


@pytest.mark.parametrize("format", importers.FORMATS)
def test_every_format_has_its_importer(format: str) -> None:
    importer = importers.importer(format)

    assert isinstance(importer, Importer)
    assert importer.format == format


def test_every_module_of_a_format_is_registered() -> None:
    folder = Path(importers.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    shared = {"__init__", "documents", "file", "langchain_messages", "protocol", "request_log"}
    shared |= {"gemini_parts", "traced_messages", "traces"}
    assert modules - shared == {name.replace("-", "_") for name in importers.FORMATS}


def test_asking_for_one_format_loads_no_other() -> None:
    code = "import sys; from ctxvc import importers; importers.importer('pi'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "ctxvc.importers.pi" in loaded
    assert not [name for name in loaded if name.startswith(("ctxvc.importers.codex", "ctxvc.importers.claude_code"))]


# --- a host that keeps the conversations of all projects in one SQLite database

FORMAT = "notebook"


def conversations(recording: Recording) -> Conversations:
    sessions = rows(recording.path, "SELECT id, folder FROM notebook ORDER BY id")
    for session, folder in sessions:
        if not recording.projects or Path(folder) in recording.projects:
            yield "", events(recording, session, folder)


def events(recording: Recording, session: str, folder: str) -> Iterator[Event]:
    yield Opened(format=FORMAT, source=session, name=session, cwd=folder, grows=True)
    query = "SELECT number, role, text, ended FROM page WHERE session = ? ORDER BY number"
    for number, role, text, ended in rows(recording.path, query, session):
        if recording.growing and not ended:
            return
        origin = "human" if role == "user" else "model"
        parts = (wire.text_part(text, role, origin),)
        yield Said(message=Message(role=role, parts=parts, key=str(number), reply=str(number)), end=number)
        if role == "assistant":
            yield Closed(end=number)


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    for path in folder.glob("*.db"):
        if rows(path, "SELECT 1 FROM notebook WHERE folder = ?", str(project)):
            yield path


def more_files(path: Path) -> list[Path]:
    return [file for file in (path.with_name(path.name + "-wal"),) if file.exists()]


def stamp(path: Path) -> Stamp:
    status = [file.stat() for file in (path, *more_files(path))]
    return Stamp(sum(file.st_size for file in status), max(file.st_mtime_ns for file in status))


def state(path: Path, positions: Mapping[str, int]) -> State:
    newest = dict(rows(path, "SELECT session, max(number) FROM page GROUP BY session"))
    if not newest.keys() & positions.keys():
        return "missing"
    return "whole" if all(number <= positions.get(name, 0) for name, number in newest.items()) else "grown"


#: An importer of such a database. Positions are the numbers of rows.
NOTEBOOK = Importer(
    format=FORMAT,
    sniff=lambda head: head.startswith(b"SQLite format 3\0") and b"CREATE TABLE page" in head,
    conversations=conversations,
    endings=(".db",),
    grows=True,
    folders=lambda _project, home, _env: [home / ".notebook"],
    recordings=recordings,
    more_files=more_files,
    stamp=stamp,
    state=state,
)


def rows(path: Path, query: str, *values: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        return database.execute(query, values).fetchall()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(f"ctxvc.importers.{FORMAT}")
    monkeypatch.setattr(module, "IMPORTER", NOTEBOOK, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(importers, "FORMATS", (*importers.FORMATS, FORMAT))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def database(project: Path, registered: None) -> Iterator[sqlite3.Connection]:
    """Its program's own connection: a session of the project's and one of another's, all of it in the log beside it."""
    path = Path.home() / ".notebook" / "all.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE page (number INTEGER PRIMARY KEY, session, role, text, ended DEFAULT 1)")
        made.execute("CREATE TABLE notebook (id, folder)")
        made.commit()
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO notebook VALUES (?, ?)", [("ours", str(project)), ("theirs", "/elsewhere")])
        write(database, "ours", "user", "find the bug")
        write(database, "theirs", "user", "bake a cake")
        write(database, "ours", "assistant", "found")
        write(database, "theirs", "assistant", "baked")
        yield database


def write(database: sqlite3.Connection, session: str, role: str, text: str, ended: int = 1) -> None:
    database.execute("INSERT INTO page (session, role, text, ended) VALUES (?, ?, ?, ?)", (session, role, text, ended))
    database.commit()


def path_of(database: sqlite3.Connection) -> Path:
    return Path(database.execute("PRAGMA database_list").fetchone()[2])


def units(outcomes: list[Outcome]) -> dict[str, int]:
    assert not [outcome.error for outcome in outcomes if outcome.error]
    return {outcome.session: outcome.units for outcome in outcomes}


def position(store: Store, session: str) -> int:
    source = store.reader.meta(store.tips(session)["main"]).source
    assert source is not None
    return source.offset


def test_a_database_is_imported_and_taken_further(database: sqlite3.Connection, tmp_path: Path) -> None:
    with create(tmp_path / ".ctxvc") as store:
        path = path_of(database)

        assert units(list(import_paths(store, [path.parent]))) == {"ours": 1, "theirs": 1}
        assert (position(store, "ours"), position(store, "theirs")) == (3, 4)
        assert units(list(import_paths(store, [path]))) == {"ours": 0, "theirs": 0}
        write(database, "ours", "user", "mend it")
        write(database, "ours", "assistant", "mended")
        assert units(list(import_paths(store, [path]))) == {"ours": 1, "theirs": 0}
        assert position(store, "ours") == 6


def test_only_the_conversations_of_a_project_are_found(database: sqlite3.Connection, project: Path) -> None:
    result = CliRunner().invoke(cli, ["-C", str(project), "import"])

    assert result.exit_code == 0, result.output
    with Store(project / ".ctxvc") as store:
        assert store.sessions() == ["ours"]
    result = CliRunner().invoke(cli, ["-C", str(project), "watch", "--once"])
    assert (result.exit_code, result.stdout) == (0, "")
    write(database, "ours", "user", "mend it")
    write(database, "ours", "assistant", "mended")
    result = CliRunner().invoke(cli, ["-C", str(project), "watch", "--once"])
    assert result.stdout == "ours: 1 commit, 2 blocks\n"


def test_a_growing_database_is_followed(database: sqlite3.Connection, project: Path, tmp_path: Path) -> None:
    with create(tmp_path / ".ctxvc") as store:
        follower = Follower(store, path_of(database), FORMAT, [project])

        assert units(follower.take()) == {"ours": 1}
        assert follower.take() == []  # nothing was written since, also not to the log beside the file
        write(database, "ours", "user", "mend it")
        write(database, "ours", "assistant", "men", ended=0)
        assert units(follower.take()) == {"ours": 0}
        database.execute("UPDATE page SET text = 'mended', ended = 1 WHERE NOT ended")
        database.commit()
        assert units(follower.take()) == {"ours": 1}


def test_reading_a_database_leaves_it_as_it_is(database: sqlite3.Connection, tmp_path: Path) -> None:
    path = path_of(database)
    files = {file: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}

    with create(tmp_path / ".ctxvc") as store:
        list(import_paths(store, [path]))

    assert {file: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")} == files


def test_what_a_store_has_of_a_database(database: sqlite3.Connection) -> None:
    importer, path = importers.importer(FORMAT), path_of(database)

    assert importer.state(path, {}) == "missing"
    assert importer.state(path, {"ours": 3, "theirs": 4}) == "whole"
    assert importer.state(path, {"ours": 1, "theirs": 4}) == "grown"
