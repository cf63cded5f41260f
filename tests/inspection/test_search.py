"""Ranked search: every body is found by its words, nothing that is gone is, and the index is never believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc.core import patterns, relevance
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Source
from ctxvc.errors import BadInput, Conflict, CtxvcError
from ctxvc.inspection import indexed_bodies, text_index
from ctxvc.inspection.bodies import bodies, read
from ctxvc.inspection.filters import EVER, Filters, parsed
from ctxvc.inspection.grep import Search
from ctxvc.inspection.search import Fitting, best, searched
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import purge
from ctxvc.store.purge.purge import PurgeRequest
from ctxvc.store.store import Store, create
from tests.making.conversation import human, reply, result, results
from tests.making.store import unflushed

NOW = 1_800_000_000.0
ANY = Filters()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / ".ctxvc") as made:
        yield made


def record(store: Store, session: str, *messages: Message, agent: str = "pi") -> None:
    """A session of these messages, each with a reply."""
    if not store.has(session):
        store.create_session(session, source=Source(format=agent, id=session))
    with StoredSession.open(store, session) as opened:
        with unflushed():
            for message in messages:
                opened.append(message, reply("so it is"))
        opened.finish()


def fitting(store: Store, query: str, filters: Filters = ANY, *, most: int = 20, now: float = NOW) -> list[Fitting]:
    unreadable: list[CtxvcError] = []
    result = searched(store, relevance.terms(query), filters, now, most, unreadable=unreadable)
    assert not unreadable
    return best([result], now, most)


def addresses(store: Store, query: str, filters: Filters = ANY) -> list[str]:
    return [one.place.address for one in fitting(store, query, filters)]


def exact(store: Store, word: str, filters: Filters) -> set[str]:
    """The blocks that have the word, found without an index."""
    sessions = [StoredSession.for_reading(store, name) for name in store.sessions()]
    stored = bodies([(one, one.scopes()) for one in sessions], lambda _: True, filters=filters, whole=True)
    hits = Search(read(store, stored), patterns.compiled(word))
    return {place.address for hit in hits for place in hit.places}


def index_file(store: Store) -> Path:
    return store.cache_path / text_index.FILE


def test_what_fits_best_comes_first_with_the_line_that_fits(store: Store) -> None:
    record(store, "one", human("the login\nthe login fails with a timeout"), human("the timeout of the login: timeout"))
    record(store, "two", human("a timeout " + "and much else " * 200))
    found = fitting(store, "login timeout")
    assert [(one.place.address, one.line, one.text[one.start : one.stop]) for one in found] == [
        ("one/main:B1", 2, "login"),
        ("one/main:B3", 1, "login"),
        ("two/main:B1", 1, "timeout"),
    ]
    assert addresses(store, '"login fails"') == ["one/main:B1"]
    assert addresses(store, "log") == [], "a part of a word is no word"


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4, unique=True))
def test_every_body_is_found_by_each_of_its_words(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    with create(tmp_path_factory.mktemp("any") / ".ctxvc") as store:
        record(store, "s", *map(human, texts))
        for number, text in enumerate(texts):
            try:
                words = relevance.terms(" ".join(text.split()[:4]))
            except BadInput:
                continue
            for term in words:
                assert f"s/main:B{2 * number + 1}" in addresses(store, f'"{term.text}"')


def test_letters_of_scripts_without_blanks_and_accents_are_found(store: Store) -> None:
    record(store, "s", human("数据库连接失败了"), human("le café est fermé"), human("数失"))
    assert addresses(store, "连接") == ["s/main:B1"]
    assert addresses(store, "cafe") == addresses(store, "café") == ["s/main:B3"]


def test_only_what_is_new_is_read_and_what_is_not_committed_yet_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, "one", human("an old kingfisher"))
    record(store, "two", human("another kingfisher"))
    assert len(addresses(store, "kingfisher")) == 2
    read: list[str] = []
    new = indexed_bodies._new

    def noting(stored: StoredSession, known: set[bytes]) -> Iterator[text_index.NewBody]:
        for body in new(stored, known):
            read.append(body.text)
            yield body

    monkeypatch.setattr(indexed_bodies, "_new", noting)
    with StoredSession.open(store, "two") as opened:
        opened.append(human("a third kingfisher"))  # an open step: in the journal alone
        assert addresses(store, "kingfisher third")[0] == "two/main:B3"
    addresses(store, "kingfisher")
    assert read == ["a third kingfisher"]


def test_filters(store: Store) -> None:
    call = wire.call_part("Read", "c1", json.dumps({"file_path": "/work/src/app.py"}).encode())
    record(store, "one", human("find the otter"), agent="codex")
    with StoredSession.open(store, "one") as opened:
        opened.append(Message(role="assistant", parts=(call,)), results(result("c1", "an otter in a file")))
        opened.finish()
    record(store, "two", human("another otter"), agent="claude-code-live")

    def of(**fields: object) -> set[str]:
        filters = Filters(**fields)  # type: ignore[arg-type]
        ranked = set(addresses(store, "otter", filters))
        assert exact(store, "otter", filters) == ranked, "with an index and without one"
        return ranked

    one, file, two = "one/main:B1", "one/main:B4", "two/main:B1"
    assert of() == {one, file, two}
    assert of(kinds=["user"]) == {one, two}
    assert of(kinds=["user", "tool_result"]) == {one, file, two}
    assert of(agents=["codex"]) == {one, file}
    assert of(agents=["claude-code"]) == {two}
    assert of(sessions=["two"]) == {two}
    assert of(sessions=["two", *(f"gone-{number}" for number in range(20))]) == {two}
    assert of(files=["app.py"]) == of(files=["src/app.py"]) == of(files=["/work/src/app.py"]) == {file}
    assert of(files=["pp.py"]) == set()
    assert of(agents=["codex"], kinds=["user"]) == {one}
    now = store.now()
    assert of(since=now - 3600) == {one, file, two}
    assert of(since=now + 3600) == of(until=now - 3600) == set()
    assert EVER[0] < now < EVER[1]


def test_a_copy_counts_and_a_removed_session_is_not_found(store: Store) -> None:
    record(store, "one", human("the same badger"))
    record(store, "two", human("the same badger"))
    (found,) = fitting(store, "badger")
    assert (found.place.session, found.copies) == ("two", 1)
    record(store, "three", human("nothing"))
    _remove(store, "two")
    (found,) = fitting(store, "badger")
    assert (found.place.session, found.copies) == ("one", 0)


def _remove(store: Store, *sessions: str) -> None:
    for session in sessions:
        for scope in store.tips(session):
            store.repository.references.delete(f"refs/heads/{session}/{scope}")
        store.journal_path(session).unlink(missing_ok=True)


def test_an_index_of_what_is_gone_is_made_anew(store: Store) -> None:
    for number in range(4):
        record(store, f"s{number}", human(f"heron {number}"))
    addresses(store, "heron")
    inode = index_file(store).stat().st_ino
    _remove(store, "s0", "s1", "s2")
    assert addresses(store, "heron") == ["s3/main:B1"]
    assert index_file(store).stat().st_ino != inode
    assert text_index.TextIndex(store).totals()[0] == 2


def test_a_purge_is_gone_from_the_index_before_it_returns(store: Store) -> None:
    record(store, "s", human("the word is xylophone7, say it"))
    assert addresses(store, "xylophone7")
    with Store(store.path) as other:
        purge.purge(other, PurgeRequest(texts=("xylophone7",)))
    assert not index_file(store).exists()
    with Store(store.path) as after:
        assert addresses(after, "xylophone7") == []
        assert addresses(after, "word say") == ["s/main:B1"]
    assert b"xylophone7" not in b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())


def test_what_was_read_before_a_purge_is_not_written_after_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record(store, "s", human("the word is xylophone7, say it"))
    new = indexed_bodies._new

    def purged_meanwhile(stored: StoredSession, known: set[bytes]) -> Iterator[text_index.NewBody]:
        bodies = list(new(stored, known))
        with Store(store.path) as other:
            purge.purge(other, PurgeRequest(texts=("xylophone7",)))
        yield from bodies

    monkeypatch.setattr(indexed_bodies, "_new", purged_meanwhile)
    with pytest.raises(Conflict, match="purged"):
        addresses(store, "xylophone7")
    assert not index_file(store).exists()


@pytest.mark.parametrize("damage", [b"no database at all" * 400, b""])
def test_a_damaged_index_is_made_anew(store: Store, damage: bytes) -> None:
    record(store, "s", human("the curlew"))
    assert addresses(store, "curlew") == ["s/main:B1"]
    file = index_file(store)
    content = file.read_bytes()
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    file.write_bytes(damage or content[: len(content) // 2])
    assert addresses(store, "curlew") == ["s/main:B1"]


def test_an_index_from_elsewhere_is_not_believed(store: Store, tmp_path: Path) -> None:
    record(store, "s", human("the curlew"))
    assert addresses(store, "curlew") == ["s/main:B1"]
    file = index_file(store)
    with text_index.TextIndex(store).writing() as writer:
        writer.remove("s")
        writer.keep("stamp", f"texts 1 {indexed_bodies.local_cache.sessions_stamp(store)}")
    assert addresses(store, "curlew") == [], "our own index is what this machine wrote"
    shutil.copy(file, tmp_path / "copy")
    (tmp_path / "copy").replace(file)
    assert addresses(store, "curlew") == ["s/main:B1"], "a copy is another file"


@pytest.mark.parametrize("journal", [True, False])
def test_a_body_that_an_index_names_wrongly_is_not_shown(store: Store, journal: bool) -> None:
    record(store, "s", human("the curlew"), human("the plover"))
    if not journal:  # as after an import: all of it is in commits
        store.journal_path("s").unlink()
    assert addresses(store, "curlew") == ["s/main:B1"]
    with text_index.TextIndex(store).writing() as writer:
        writer._database.execute("UPDATE bodies SET block = 3 WHERE block = 1")
    assert addresses(store, "curlew") == []


def test_many_copies_and_common_words_are_bounded(store: Store) -> None:
    record(store, "s", *(human(f"the dunlin {number}") for number in range(30)))
    assert len(fitting(store, "dunlin", most=7)) == 7
    newest: Sequence[str] = [one.place.row.id for one in fitting(store, "dunlin", most=40)]
    assert len(newest) == 30


def test_a_phrase_is_found_behind_many_bodies_that_have_only_its_words(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxvc.inspection.search.LOOKED_AT", 3)
    record(store, "s", human("the red knot"), *(human(f"a knot that is red {number}") for number in range(8)))
    assert addresses(store, '"red knot"') == ["s/main:B1"]


def test_what_has_a_word_often_is_found_behind_many_newer_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("LOOKED_AT", 3), ("_READ", 3), ("_ALONE", 3), ("_TOGETHER", 3)):
        monkeypatch.setattr(f"ctxvc.inspection.search.{name}", most)
    record(
        store, "a", human("the dunlin " * 9), human("the dunlin of the moor, the dunlin, the dunlin of the moor " * 2)
    )
    record(store, "b", *(human(f"a dunlin that is {number}") for number in range(12)))
    found = [one.place.address for one in fitting(store, "dunlin", most=3)]
    assert found[0] == "a/main:B1"
    assert addresses(store, "dunlin moor")[0] == "a/main:B3"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kinds": ["user", "\x1b[31m"]}, "is not a kind"),
        ({"since": "yesterday\x1b"}, "is not a time"),
        ({"until": "0001-01-01"}, "is not a time"),
        ({"since": "9" * 40}, "is not a time"),
    ],
)
def test_what_is_no_filter_is_said(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why) as raised:
        parsed(NOW, **given)
    assert "\x1b[31m" not in str(raised.value)


def test_filters_as_they_are_written() -> None:
    made = parsed(NOW, kinds=["user"], agents=["codex"], since="2d", until="2026-02-10")
    assert (made.kinds, made.agents, made.since) == (["user"], ["codex"], NOW - 2 * 86_400)
    assert made.until > parsed(NOW, until="2026-02-10T23:00").until, "a day is whole"
