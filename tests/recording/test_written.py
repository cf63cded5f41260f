"""Sessions written for another agent: what it does with them comes back as a scope of the session they are from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ctxvc.exporters.native import AGENTS, native_format
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import Setting
from ctxvc.recording.files import remember_written
from ctxvc.store.store import Store
from tests.exporters.trips import conversation, imported

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "claude-code.jsonl"
TIME = datetime(2026, 11, 28, 4, 5, 6, tzinfo=timezone.utc)


def handed_over(store: Store, session: str, folder: Path, copy: int = 0, agent: str = "codex") -> Path:
    """The recording in which an agent goes on with a session."""
    native, recorded = native_format(agent), conversation(store, session, f"{session}/main")
    written_now = native.write(recorded, Setting(folder=Path("/work/p"), time=TIME, copy=copy))
    remember_written(store, recorded.snapshot, native.format, written_now.id, written_now.files)
    assert installed(written_now, folder)
    return folder / next(iter(written_now.files))


def go_on(path: Path, *texts: str) -> None:
    """Codex is told something, answers, is told the next."""
    with path.open("a") as file:
        file.writelines(map(line, texts, ("user", "assistant") * len(texts)))


def line(text: str, role: str) -> str:
    content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
    payload = {"type": "message", "role": role, "content": content}
    return json.dumps({"timestamp": "2026-11-28T05:00:00.000Z", "type": "response_item", "payload": payload}) + "\n"


def forgotten(store: Store, _: Path) -> None:
    shutil.rmtree(store.cache_path)


def rewritten(_: Store, path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], line("a summary of all before", "user"), *lines[-2:]]))


def nothing(_: Store, __: Path) -> None:
    pass


@pytest.fixture
def session(store: Store) -> str:
    return imported(store, RECORDED).snapshot.session


def tips(store: Store, session: str) -> dict[str, tuple[str, int]]:
    return {scope: (tip, len(store.reader.ledger(tip))) for scope, tip in store.tips(session).items()}


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if native_format(agent).format])
def test_nothing_is_new_in_a_session_as_it_was_written(agent: str, store: Store, session: str, tmp_path: Path) -> None:
    """Whatever an import calls it, which is not what every agent does."""
    before = tips(store, session)
    imported(store, handed_over(store, session, tmp_path, agent=agent), native_format(agent).format)
    assert (list(store.sessions()), tips(store, session)) == ([session], before)


@pytest.mark.parametrize("event", [nothing, forgotten])
def test_what_comes_after_is_a_scope_that_grows(
    store: Store, session: str, tmp_path: Path, event: Callable[[Store, Path], None]
) -> None:
    """Also where the cache is gone, or the store is a clone: the scope's own commits say where it began."""
    main, blocks = tips(store, session)["main"]
    path = handed_over(store, session, tmp_path)
    go_on(path, "go on", "it is done")
    imported(store, path)
    event(store, path)
    go_on(path, "and the tests", "they pass")
    imported(store, path)

    now = tips(store, session)
    (scope,) = now.keys() - {"main"}
    assert list(store.sessions()) == [session]
    assert (now["main"], now[scope][1]) == ((main, blocks), blocks + 4)
    assert scope.startswith("codex-")
    assert main in store.first_parents(now[scope][0])


def test_a_beginning_that_was_rewritten_touches_no_other_scope(store: Store, session: str, tmp_path: Path) -> None:
    path = handed_over(store, session, tmp_path)
    go_on(path, "go on", "it is done")
    imported(store, path)
    before = tips(store, session)
    rewritten(store, path)
    imported(store, path)
    assert (list(store.sessions()), tips(store, session)) == ([session], before)


@pytest.mark.parametrize("event", [forgotten, rewritten])
def test_without_its_beginning_it_is_a_session_of_its_own(
    store: Store, session: str, tmp_path: Path, event: Callable[[Store, Path], None]
) -> None:
    before = tips(store, session)
    path = handed_over(store, session, tmp_path)
    go_on(path, "go on", "it is done")
    event(store, path)
    other = imported(store, path).snapshot.session
    assert (set(store.sessions()), tips(store, session)) == ({session, other}, before)


def test_two_that_go_on_from_one_moment_are_two_scopes(store: Store, session: str, tmp_path: Path) -> None:
    main = tips(store, session)["main"]
    for copy in range(2):
        path = handed_over(store, session, tmp_path, copy)
        go_on(path, f"go on {copy}", "it is done")
        imported(store, path)
    now = tips(store, session)
    assert (len(now), now["main"], list(store.sessions())) == (3, main, [session])


def test_the_original_goes_on_too(store: Store, tmp_path: Path) -> None:
    original = tmp_path / RECORDED.name
    lines = RECORDED.read_bytes().splitlines(keepends=True)
    original.write_bytes(b"".join(lines[: len(lines) // 2]))
    session = imported(store, original).snapshot.session
    earlier = tips(store, session)["main"]
    path = handed_over(store, session, tmp_path)
    original.write_bytes(b"".join(lines))
    imported(store, original)
    go_on(path, "go on", "it is done")
    imported(store, path)
    now = tips(store, session)
    (scope,) = now.keys() - {"main"}
    assert now["main"][1] > earlier[1]
    assert now[scope][1] == earlier[1] + 2
    assert earlier[0] in store.first_parents(now[scope][0])
    assert earlier[0] in store.first_parents(now["main"][0])
