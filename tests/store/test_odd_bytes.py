"""Bytes that are no text in what git keeps of a store, and wrong clocks: told or put right, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.errors import Damaged, NotFound
from ctxvc.store import store as stores
from ctxvc.store.git import program as programs
from ctxvc.store.git.fast_import import LATEST, epoch
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import session_name
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.conversation import human, reply
from tests.making.store import afresh, complaints, contents, git


def appended(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as stream:
        stream.write(data)


@pytest.mark.parametrize("name", ["HEAD", "refs/ctxvc/demo/HEAD"])
@pytest.mark.parametrize("target", [b"refs/heads/d\xe9mo/main", b"refs/heads/demo/\xff", b"\xc3\xa9"])
def test_a_current_scope_in_other_bytes_counts_as_none(path: Path, name: str, target: bytes) -> None:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(b"ref: %s\n" % target)

    try:
        with Store(path) as store, StoredSession.open(store) as session:
            session.append(human("one"), reply("two"))
            assert (session.name, session.scope) == ("demo", "main")
    except Damaged as error:
        assert target == b"\xc3\xa9" and str(path / name) in str(error) and "ref: refs/heads/" in error.hint


@pytest.mark.parametrize("name", ["../x", "..", "", "/", "demo/", "demo/main\0", "a\0b", "\udc80", "x" * 10_000])
def test_a_name_that_no_session_can_have_is_that_of_none(store: Store, name: str) -> None:
    """Also where git's library raises for it, or reads it only up to a NUL."""
    assert not store.has(name) and store.tips(name) == {} and store.current_scope(name) == "main"
    with pytest.raises(NotFound, match="no session"):
        session_name.resolve(store, name)


def test_a_head_of_garbage_is_damage_that_says_how_to_write_it(path: Path) -> None:
    (path / "HEAD").write_bytes(b"\xff\xfe\n")

    with Store(path) as store:
        with pytest.raises(Damaged, match="HEAD cannot be read") as failure:
            store.current_session()
        assert "ref: refs/heads/SESSION/SCOPE" in failure.value.hint
        assert verify(store).damaged


@pytest.mark.parametrize("text", [b"[user]\n\tname = Ren\xe9\n", b'[remote "x"]\n\turl = /srv/caf\xe9\n'])
def test_a_setting_in_other_bytes_is_read_over(path: Path, text: bytes) -> None:
    appended(path / "config", text)

    with Store(path) as store, StoredSession.open(store) as session:
        session.append(human("one"), reply("two"))
        assert r"\xe9" in "".join(programs.config(store.repository).values())
    assert len(afresh(path)) == 2


@pytest.mark.parametrize("text", [b'[remote "\xe9"]\n\turl = x\n', b"[ctx\xe9]\n\tname = x\n", b"[core\n"])
def test_a_setting_that_cannot_be_read_is_named(path: Path, text: bytes) -> None:
    appended(path / "config", text)

    with pytest.raises(Damaged, match=r"config.*(not text|not a setting)") as failure:
        Store(path)
    assert failure.value.hint


@pytest.mark.parametrize("ref", [b"refs/heads/demo/caf\xe9", b"refs/heads/caf\xe9/main", b"refs/heads/\xc3\xa9/main"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_whose_name_is_in_other_bytes_is_left_alone_and_told(path: Path, ref: bytes, packed: bool) -> None:
    tip = git(path, "rev-parse", "demo/main").strip().encode()
    if packed:
        appended(path / "packed-refs", b"%s %s\n" % (tip, ref))
    else:
        appended(Path(os.fsdecode(os.fsencode(path) + b"/" + ref)), tip + b"\n")

    with Store(path) as store:
        assert (store.sessions(), list(store.tips("demo"))) == (["demo"], ["main"])
        (finding,) = verify(store).findings
        assert finding.level == "warning" and finding.where.path.startswith("refs/heads/")
        with StoredSession.open(store) as session:
            session.append(human("one"), reply("two"))
            assert len(contents(session)) == 2


@pytest.mark.parametrize("now", [-(1 << 40), -5, 0, (1 << 32) + 7, LATEST, LATEST + 1, 1 << 63])
def test_a_clock_that_is_wrong_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    monkeypatch.setattr(stores.clock, "time", lambda: now)
    with stores.create(tmp_path / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            session.append(human("one"), reply("two"))
            assert session.flush_failure is None
        assert verify(store).findings == ()
    assert complaints(store.path) == ""
    assert int(git(store.path, "log", "-1", "--format=%ct", "demo/main")) == min(max(now, 1), LATEST)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00+14:00", 0),
        ("2106-02-07T06:28:17Z", (1 << 32) + 1),
        ("9999-12-31T23:59:59-14:00", LATEST),
        ("nonsense", None),
    ],
)
def test_a_recorded_time_that_git_cannot_hold_becomes_the_nearest(path: Path, time: str, seconds: int | None) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        message = Message(role="user", parts=(text_part("when?", "user", "human"),), time=time)
        session.append(message, Message(role="assistant", parts=(text_part("then", "assistant", "model"),), time=time))
        assert session.flush_failure is None

    made = int(git(path, "log", "-1", "--format=%at", "demo/main"))
    assert made == seconds if seconds is not None else made > 1_700_000_000
    assert complaints(path) == ""


@pytest.mark.parametrize(
    "time",
    ["2026-03-01T12:00:00Z", "2026-03-01 12:00:00", "20260301T120000Z", "2026-03-01T12:00:00.5Z", "2026-03-01T12:00",
     "2026-03-01T13:00:00+01:00", "2026-03-01T13:00:00+0100", "2026-03-01T12:00:00,123456789Z", "2026-03-01t12:00:00z"],
)  # fmt: skip
def test_a_time_is_read_alike_by_every_python(time: str) -> None:
    assert epoch(time, 7) == 1_772_366_400


@pytest.mark.parametrize(
    "time", ["", "2026-W10", "2026-13-01T00:00:00Z", "2026-02-30", "12:00", "2026-03-01T12:00:00 no"]
)
def test_what_is_no_time_takes_the_default(time: str) -> None:
    assert epoch(time, 7) == 7
