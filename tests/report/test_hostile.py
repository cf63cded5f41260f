"""What was recorded is data on the page, whatever is in it; and secrets stay where they are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.report.texts import TextPool, unpacked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from tests.making.project import HOSTILE
from tests.report.conftest import paged
from tests.report.test_document import Elements

SCRIPT = "</script><script>alert(1)</script><!--<script>&lt;img src=x onerror=alert(1)>\u2028\u202e\ud800"
SECRET = "ghp_" + "x7Kq2mZp9Lw4Rt8Vb3Nc6Yd1Sf5Gh0Jk2AbE"


def _project(folder: Path, *, secret: str = "", exact: bool = False, text: str = "fine") -> Path:
    with create(folder / FOLDER) as store:
        store.create_session("hostile", model=SCRIPT[:20])
        if exact:
            store.redaction.keep_exact("hostile")
        with StoredSession.open(store, "hostile") as stored:
            stored.append(Message(role="user", parts=(text_part(f"{SCRIPT} {HOSTILE} {secret}", "user", "human"),)))
            call = call_part(f"Bash{SCRIPT}", "c1", json.dumps({"command": SCRIPT, "path": SCRIPT}).encode())
            stored.append(Message(role="assistant", parts=(text_part(SCRIPT, "assistant", "model"), call)))
            stored.append(Message(role="user", parts=(result_part(text, "c1"),)))
            stored.append(Message(role="assistant", parts=(text_part("done", "assistant", "model"),)))
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a session of hostile texts, and a line of 5 MB."""
    return _project(tmp_path_factory.mktemp("hostile"), text="word " * 1_000_000)


def _page(project: Path, *arguments: str) -> str:
    target = project / "page.html"
    result = CliRunner().invoke(cli, ["-C", str(project), "report", "-o", str(target), *arguments])
    assert result.exit_code == 0, result.output
    return target.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [(), ("--stats",)])
def test_no_recorded_text_becomes_an_element_or_ends_one(
    arguments: tuple[str, ...], hostile: Path, tmp_path: Path
) -> None:
    page = _page(hostile, *arguments)
    plain = tmp_path / "plain"
    with create(plain / FOLDER) as store:
        store.create_session("plain")
    assert Elements(page).names == Elements(_page(plain, *arguments)).names
    assert "<script>alert(1)" not in page


def test_what_is_on_the_page_is_what_was_recorded(hostile: Path) -> None:
    page = paged(hostile, "hostile")
    texts = unpacked(page.bodies.chunks)
    bodies = [texts[place[0] : place[0] + place[1]] for place in page.blocks.body if isinstance(place, tuple)]
    assert bodies[1] == SCRIPT.replace("\ud800", "\ufffd\ufffd\ufffd").encode()
    assert b"word " * 1_000_000 in bodies, "a long line that compresses well is on the page"
    assert not any("\n" in label or "\x1b" in label for label in page.blocks.label)


def test_the_largest_texts_are_left_out_with_the_command_that_shows_them() -> None:
    pool = TextPool()
    texts = [random.Random(size).randbytes(size) for size in (100, 40_000, 900, 30_000)]
    numbers = [pool.add(text) for text in texts]
    assert pool.add(texts[0]) == numbers[0]
    assert None not in pool.packed(limit=80_000)[0]
    places, chunks = pool.packed(limit=3_000)
    assert places[numbers[1]] is None and places[numbers[3]] is None
    for number, size in ((0, 100), (2, 900)):
        place = places[numbers[number]]
        assert place is not None
        assert len(unpacked(chunks)[place[0] : place[0] + place[1]]) == size


def test_a_body_without_room_has_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextPool.packed, "__defaults__", (2_000,))
    page = paged(_project(tmp_path, text=random.Random(1).randbytes(4_000).hex()), "hostile")
    (cut,) = page.bodies.cut
    assert (page.blocks.id[cut.block], cut.bytes) == ("B4", 8_000)
    assert cut.command == "ctxvc --session hostile show B4"
    assert page.blocks.body[cut.block] == -1


def test_secrets_are_marks_even_where_a_session_is_kept_exact(tmp_path: Path) -> None:
    page = _page(_project(tmp_path, secret=SECRET, exact=True), "--json")
    with Store(tmp_path / FOLDER) as store:
        assert SECRET.encode() in StoredSession.open(store, "hostile").body(
            StoredSession.open(store, "hostile").ledger()["B1"]
        )
    on_page = paged(tmp_path, "hostile")
    everything = unpacked(on_page.bodies.chunks) + page.encode()
    assert SECRET.encode() not in everything
    assert b"[REDACTED:" in everything


def test_a_page_with_what_looks_like_a_secret_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = _project(tmp_path)
    shared = ["-C", str(project), "report", "--share", "-o", str(project / "page.html")]
    assert CliRunner().invoke(cli, shared).exit_code == 0
    (project / "page.html").unlink()
    with Store(project / FOLDER) as store:
        store.redaction.keep_exact("hostile")
        with StoredSession.open(store, "hostile") as stored:
            stored.append(Message(role="user", parts=(text_part(f"the key {SECRET}", "user", "human"),)))
    monkeypatch.setattr("ctxvc.report.share.clean_of", lambda *_: lambda text: text)
    refused = CliRunner().invoke(cli, shared)
    assert refused.exit_code == 1
    assert "B6" in refused.stderr and SECRET not in refused.stderr
    assert not (project / "page.html").exists()
