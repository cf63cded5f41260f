"""docs/format.md: a reader that was written from it sees what ctxvc sees, and its tables and examples are true."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxvc
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Meta, Row, Source
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.prompt.request import canonical as our_canonical
from ctxvc.errors import CtxvcError
from ctxvc.recording.files import import_paths
from ctxvc.store import format as fmt
from ctxvc.store.git import program
from ctxvc.store.log.journal import Change, Head, Record
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import _SETTINGS, Store
from tests.making.blocks import call, result

from . import examples
from .building import PICTURE, TRACE, message, small_store

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "format.md").read_text()
DATA = Path(__file__).parents[1] / "data"


def example(name: str) -> ModuleType:
    """A program of docs/examples, which is no part of any package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reader = example("read_store")
canonical_json = example("canonical_json")


@pytest.fixture(autouse=True, scope="module")
def _objects_read_once() -> Iterator[None]:
    """What the reader asks git of a commit has one answer in all copies of the small store, so it asks once."""
    ask, answers = reader.git, dict[tuple[str, ...], bytes]()

    def git(store: Path, *arguments: str) -> bytes:
        if not any(re.match("[0-9a-f]{40}", word) for word in arguments):
            return ask(store, *arguments)
        if arguments not in answers:
            answers[arguments] = ask(store, *arguments)
        return answers[arguments]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "git", git)
        yield


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small store, to be copied and never written to."""
    path = tmp_path_factory.mktemp("small") / ".ctxvc"
    small_store(path).close()
    return path


@pytest.fixture
def small(pristine: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(pristine, tmp_path / ".ctxvc")
    with Store(tmp_path / ".ctxvc") as store:
        yield store


def plain(value: Any) -> Any:
    """Rows and groups as a reader has them: without what is at its default."""
    return json.loads(msgspec.json.encode(value))


def commits(store: Store) -> list[str]:
    return program.run(store.path, "rev-list", "--branches").decode().split()


def assert_seen_alike(store: Store) -> None:
    """Ledger, groups and every body of every commit, and what waits in each journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "git", cache(reader.git))  # nothing is written meanwhile
        _assert_seen_alike(store)


def _assert_seen_alike(store: Store) -> None:
    for commit in commits(store):
        ledger = store.reader.ledger(commit)
        assert list(reader.ledger(store.path, commit).values()) == plain(list(ledger.rows()))
        assert reader.groups(store.path, commit) == plain(ledger.groups)
    for name in store.sessions():
        with StoredSession.open(store, name) as session:
            for scope in session.scopes():
                rows, groups = reader.current(store.path, name, scope)
                assert list(rows.values()) == plain(list(session.ledger(scope).rows()))
                assert groups == plain(session.ledger(scope).groups)
            assert len(reader.waiting(store.path, name)) == session.waiting()


# --- the independent reader


def test_the_reader_sees_every_commit_and_what_waits(small: Store) -> None:
    assert_seen_alike(small)
    with StoredSession.open(small, "demo") as session:
        assert session.waiting() == 2, "the example has no open step any more"


def test_the_reader_sees_every_body_of_every_commit(small: Store) -> None:
    for commit in commits(small):
        for row in small.reader.ledger(commit).rows():
            assert reader.body(small.path, commit, row.id) == small.reader.body(commit, row)
            for suffix in row.files:
                data = small.reader.path(commit, fmt.file_path(row, suffix), row.id)
                assert reader.body(small.path, commit, f"{row.id}-{suffix}") == data


def test_the_reader_sees_exact_bytes(small: Store) -> None:
    assert reader.body(small.path, "demo/main", "B2") == PICTURE
    assert reader.body(small.path, "demo/main", "B8-1.png") == PICTURE
    assert reader.body(small.path, "demo/main", "B7") == TRACE.encode()
    assert reader.body(small.path, "demo/main~1", "B7") == TRACE.encode()


def test_the_reader_sees_bodies_that_wait(small: Store) -> None:
    bodies = {block: data for change in reader.waiting(small.path, "demo") for block, _, data in change["bodies"]}

    assert bodies == {"B10": b"Mend it.", "B11": b'{"file_path":"conftest.py"}'}


def test_the_reader_knows_what_a_commit_covers(small: Store) -> None:
    """A journal that still holds what was committed, as after a crash before it is rewritten."""
    journal = small.journal_path("demo")
    before = journal.read_bytes()
    with StoredSession.open(small, "demo") as session:
        session.append(message("user", "tool", result("toolu_3", "done")))
        session.flush()
        rows = list(session.ledger().rows())
    journal.write_bytes(before)

    assert reader.waiting(small.path, "demo") == []
    assert list(reader.current(small.path, "demo", "main")[0].values()) == plain(rows)


def test_a_commit_covers_nothing_of_another_journal(small: Store) -> None:
    small.journal_path("demo").unlink()
    small.new_id = lambda: "another"  # type: ignore[method-assign]
    with StoredSession.open(small, "demo") as session:
        session.append(message("user", "human", "Are you there?"))

    assert len(reader.waiting(small.path, "demo")) == 1
    assert_seen_alike(small)


def test_the_reader_knows_that_a_verb_follows_the_step_that_was_open(small: Store) -> None:
    """A verb's number is smaller than that of the step's end, and its commit comes later: it covers both."""
    journal = small.journal_path("demo")
    with StoredSession.open(small, "demo") as session:
        row = msgspec.structs.replace(session.ledger()["B9"], state="pinned")
        with session.writing():  # as `change` does, without its flush
            counters = session.ledger().meta.counters
            session._write(Record(changes=(Change("main", "pin", "user", counters, rows=(row,), subject="pin B9"),)))
        session.append(message("user", "tool", result("toolu_3", "done")))
        before = journal.read_bytes()
        assert len(reader.waiting(small.path, "demo")) == 4
        assert_seen_alike(small)
    assert reader.waiting(small.path, "demo") == []

    journal.write_bytes(before)

    assert reader.waiting(small.path, "demo") == []
    assert_seen_alike(small)


def test_of_one_record_some_changes_can_wait_and_others_not(small: Store) -> None:
    with StoredSession.open(small, "demo") as session:
        session.append(
            message("user", "tool", result("toolu_3", "done")),
            message("assistant", "model", "It is mended."),
            message("user", "human", "Thank you."),
        )
        session.flush()

    assert [change["rows"][0]["label"] for change in reader.waiting(small.path, "demo")] == ["Thank you."]
    assert_seen_alike(small)


def test_the_reader_sees_a_scope_that_waits_and_what_it_inherits(small: Store) -> None:
    with StoredSession.open(small, "fix-login") as session, session.writing():
        main = session.ledger("main")
        new = Change(
            scope="fix-auth",
            op="scope",
            actor="agent",
            counters=main.meta.counters,
            meta={"scope": "fix-auth", "parent": "main"},
            subject="scope fix-auth",
            origin=session.tip("main"),
            inherit=("B7", "B9"),
        )
        session._write(Record(changes=(new,), head="fix-auth"))

        assert list(reader.current(small.path, "fix-login", "fix-auth")[0]) == ["B7", "B9"]

    with StoredSession.open(small, "fix-login") as session:
        session.flush()
    assert list(reader.ledger(small.path, "fix-login/fix-auth")) == ["B7", "B9"]
    assert (small.path / "HEAD").read_text() == "ref: refs/heads/fix-login/fix-auth\n"
    assert_seen_alike(small)


@pytest.mark.parametrize("moved", [(), ("demo/main",), ("demo/look",)], ids=["no ref", "main", "look"])
def test_the_reader_sees_a_switch_that_waits_or_was_flushed_in_part(
    small: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: tuple[str, ...]
) -> None:
    """Scopes that begin on changes of the journal, some of which a branch has already."""
    with StoredSession.open(small, "demo") as session, monkeypatch.context() as waiting:
        waiting.setattr(session, "_flush", lambda: None)
        session.append(message("user", "tool", result("toolu_3", "done")))
        row = session.ledger()["B7"]
        group = Group(id="G1", members=("B7",), stub="[gone]")
        session.change(
            subject="group", op="archive", actor="user", rows=[msgspec.structs.replace(row, group="G1")], groups=[group]
        )
        session.open_scope("look", "deeper")
        session.append(message("assistant", "model", "found"))
        session.open_scope("copy", "to try", with_messages=True)
        session.goto("main", "back")
        assert reader.waiting(small.path, "demo")
        assert_waiting_alike(small, session)
        shutil.copytree(small.path, tmp_path / "after")
        with Store(tmp_path / "after") as after, StoredSession.open(after, "demo") as other:
            other.flush()
        shutil.copytree(tmp_path / "after" / "objects", small.path / "objects", dirs_exist_ok=True)
        for name in moved:
            tip = program.run(tmp_path / "after", "rev-parse", f"refs/heads/{name}").decode().strip()
            program.run(small.path, "update-ref", f"refs/heads/{name}", tip)
    with StoredSession.open(small, "demo") as session:
        assert_waiting_alike(small, session)
        session.flush()
    assert_seen_alike(small)


def assert_waiting_alike(store: Store, session: StoredSession) -> None:
    for scope in session.scopes():
        rows, groups = reader.current(store.path, "demo", scope)
        assert list(rows.values()) == plain(list(session.ledger(scope).rows()))
        assert groups == plain(session.ledger(scope).groups)


def test_the_reader_sees_recordings_of_other_programs(store: Store) -> None:
    recorded = [
        DATA / "claude-code" / "20-02395c1048-0.jsonl",
        DATA / "trajectory" / "small.jsonl",
        DATA / "pi" / "v3.jsonl",
    ]
    assert not [outcome.error for outcome in import_paths(store, recorded, final=True) if outcome.error]

    assert_seen_alike(store)


def test_the_reader_finds_blocks_of_all_segments(store: Store) -> None:
    name = store.create_session("long")
    with StoredSession.open(store, name) as session:
        said = [message("assistant", "model", *(f"{at}" for at in range(50))) for _ in range(4)]
        session.append(*said)
        session.flush()

    assert len(reader.ledger(store.path, "long/main")) == 200
    assert reader.body(store.path, "long/main", "B64") == b"13"
    assert_seen_alike(store)


def test_the_reader_is_a_program(small: Store) -> None:
    arguments = [sys.executable, DOCS / "examples" / "read_store.py", small.path]
    shown = subprocess.run([*arguments, "body", "demo/main", "B9"], capture_output=True, check=True).stdout
    failed = subprocess.run([*arguments, "body", "nothing/here", "B9"], capture_output=True, check=False)

    assert shown == b"The fixture is too old."
    assert failed.returncode == 1 and b"Traceback" not in failed.stderr


def test_the_reader_uses_nothing_of_ours() -> None:
    for name in ("read_store.py", "canonical_json.py"):
        path = DOCS / "examples" / name
        assert "import ctxvc" not in path.read_text() and "from ctxvc" not in path.read_text()


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.binary(max_size=300)
        | st.text(max_size=300),
        lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
        max_leaves=30,
    )
)
def test_the_reader_unpacks_every_value(value: object) -> None:
    assert reader.unpack(msgspec.msgpack.encode(value)) == value


# --- what a reader must refuse


def refused(store: Path, what: str) -> None:
    """Both readers refuse it."""
    with pytest.raises(reader.Unreadable):
        reader.check(store)
        reader.current(store, "demo", "main")
    with pytest.raises(CtxvcError, match=what), Store(store) as opened, StoredSession.open(opened, "demo"):
        pass


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["ctxvc.format", "3"], "format 3"),
        (["extensions.partialclone", "origin"], "extension|not supported"),
        (["--unset", "ctxvc.format"], "not a ctxvc store"),
    ],
)
def test_a_store_of_another_kind_is_refused(small: Store, words: list[str], what: str) -> None:
    program.run(small.path, "config", *words)

    refused(small.path, what)


@pytest.mark.parametrize(
    ("path", "change", "what"),
    [
        ("ctxvc.json", lambda data: data.replace(b'"format": 2', b'"format": 3'), "format 3"),
        ("ctxvc.json", lambda _: None, "not part of a session"),
        ("ledger/00/00.jsonl", lambda data: b"".join(reversed(data.splitlines(keepends=True))), "out of order"),
        ("ledger/00/00.jsonl", lambda data: data + data.splitlines(keepends=True)[-1], "out of order"),
        ("ledger/00/00.jsonl", lambda data: b"{" + data, "not a ledger"),
    ],
)
def test_a_tree_of_another_kind_is_refused(small: Store, path: str, change: Any, what: str) -> None:
    held = change(program.run(small.path, "cat-file", "blob", f"demo/main:{path}"))
    edit = (
        f"D {path}\n".encode()
        if held is None
        else b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(held), held)
    )
    head = "commit refs/heads/demo/main\ncommitter other <other> 1 +0000\ndata 5\nother\nfrom refs/heads/demo/main^0\n"
    program.run(small.path, "fast-import", "--quiet", data=head.encode() + edit)

    with pytest.raises((reader.Unreadable, json.JSONDecodeError)):
        reader.ledger(small.path, "demo/main")
    with pytest.raises(CtxvcError, match=what):
        StoredSession.open(Store(small.path), "demo").ledger()


def frames(journal: Path) -> list[bytes]:
    """The journal cut into frames, by the page's table alone."""
    data, found = journal.read_bytes(), []
    while data:
        length = 24 + struct.unpack_from("<I", data, 4)[0]
        found.append(data[:length])
        data = data[length:]
    return found


def test_a_newer_journal_is_refused(small: Store) -> None:
    journal = small.journal_path("demo")
    head, *records = frames(journal)
    payload = head[24:].replace(b"\x96\x02", b"\x96\x04", 1)
    fields = struct.pack("<4sIQI", b"CXJ1", len(payload), 0, zlib.crc32(payload))
    journal.write_bytes(b"".join([fields, struct.pack("<I", zlib.crc32(fields)), payload, *records]))

    refused(small.path, "format 4")


@pytest.mark.parametrize("at", [0, 5, 10, 17, 21, 24, 30, -1])
@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_record_is_passed_over_and_what_follows_is_read(small: Store, at: int, last: bool) -> None:
    journal = small.journal_path("demo")
    records = frames(journal)
    hit = records[2 if last else 1]
    place = len(hit) + at if at < 0 else at
    records[2 if last else 1] = hit[:place] + bytes([hit[place] ^ 1]) + hit[place + 1 :]
    journal.write_bytes(b"".join(records))

    assert [change["rows"][0]["id"] for change in reader.waiting(small.path, "demo")] == ["B10" if last else "B11"]
    assert_seen_alike(small)


def test_what_needs_a_lost_record_is_read_without_it(small: Store) -> None:
    """Rows and groups of blocks that are gone, and a scope of which the beginning is."""
    journal = small.journal_path("demo")
    with StoredSession.open(small, "demo") as session, pytest.MonkeyPatch.context() as waiting:
        waiting.setattr(session, "_flush", lambda: None)
        session.append(message("user", "tool", result("toolu_3", "done")))
        session.append(message("assistant", "model", "said"), message("user", "human", "and now?"))
        ledger = session.ledger()
        rows = [msgspec.structs.replace(ledger[block], state="archived", group="G1") for block in ("B7", "B13")]
        groups = [Group(id="G1", members=("B7", "B13"), stub="[gone]", summary=("B14",), before="B14")]
        session.change(subject="group", op="archive", actor="user", rows=rows, groups=groups)
        session.open_scope("look", "deeper")
        session.append(message("assistant", "model", "found"))
        session.goto("main", "back")
    records = frames(journal)
    for lost in range(1, len(records)):
        spoilt = [record[:-9] + bytes([record[-9] ^ 4]) + record[-8:] if at == lost else record
                  for at, record in enumerate(records)]  # fmt: skip
        journal.write_bytes(b"".join(spoilt))
        with StoredSession.open(small, "demo") as session:
            assert_waiting_alike(small, session)
            session._journal.close()
            session._state.scopes.clear()


@pytest.mark.parametrize("kept", [0, 1, 23, 24, 100, -1])
def test_a_torn_tail_is_passed_over(small: Store, kept: int) -> None:
    journal = small.journal_path("demo")
    head, first, second = frames(journal)
    journal.write_bytes(head + first + second[: kept if kept >= 0 else len(second) - 1])

    assert [change["rows"][0]["id"] for change in reader.waiting(small.path, "demo")] == ["B10"]
    assert_seen_alike(small)


def test_a_tail_that_quotes_a_journal_is_still_a_tail(small: Store) -> None:
    journal = small.journal_path("demo")
    quoted = b"".join(frames(journal))
    with StoredSession.open(small, "demo") as session:
        session.append(Message(role="user", parts=(Part(kind="user", role="user", origin="client", body=quoted),)))
    *held, last = frames(journal)
    journal.write_bytes(b"".join(held) + last[:30] + bytes([last[30] ^ 1]) + last[31:])

    assert len(reader.waiting(small.path, "demo")) == 2
    assert_seen_alike(small)


def test_a_tail_of_unwritten_zeros_is_passed_over(small: Store) -> None:
    journal = small.journal_path("demo")
    journal.write_bytes(journal.read_bytes() + bytes(4096))

    assert len(reader.waiting(small.path, "demo")) == 2
    assert_seen_alike(small)


@pytest.mark.parametrize("at", [0, 5, 10, 17, 21, 30])
def test_a_tail_of_zeros_hides_no_record_behind_a_damaged_one(small: Store, at: int) -> None:
    journal = small.journal_path("demo")
    head, hit, last = frames(journal)
    journal.write_bytes(b"".join((head, hit[:at], bytes([hit[at] ^ 1]), hit[at + 1 :], last, bytes(4096))))

    assert [change["rows"][0]["id"] for change in reader.waiting(small.path, "demo")] == ["B11"]
    assert_seen_alike(small)


# --- tables and examples


def tables() -> Iterator[tuple[list[str], list[list[str]]]]:
    """Each table of the page: its titles and its rows."""
    for found in re.finditer(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        titles, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in found[0].splitlines())
        yield titles, rows


def names(rows: list[list[str]]) -> list[str]:
    """The first name in each row."""
    return [next((cell.strip("`") for cell in row if cell.startswith("`")), "") for row in rows]


def table_of(fields: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table that lists these fields, in whatever order."""
    (found,) = [rows for _, rows in tables() if sorted(names(rows)) == sorted(fields)]
    return found


@pytest.mark.parametrize("struct_type", [Meta, Counters, Source, Row, Group, Head, Record, Change])
def test_a_table_has_the_fields_in_the_order_in_which_they_are_written(struct_type: type[msgspec.Struct]) -> None:
    fields = struct_type.__struct_fields__

    assert names(table_of(fields)) == list(fields)


@pytest.mark.parametrize("struct_type", [Row, Group, Change])
def test_a_table_has_the_defaults(struct_type: type[msgspec.Struct]) -> None:
    table = table_of(struct_type.__struct_fields__)
    told = {name: row[-1].strip("`") for name, row in zip(names(table), table, strict=True) if len(row) == 3}
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(struct_type) if not field.required}

    assert told == {name: "nil" if value is None else json.dumps(value) for name, value in defaults.items()}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def test_the_settings_are_those_of_a_new_store() -> None:
    for name, value in _SETTINGS.items():
        if name not in ("gc.auto", "maintenance.auto"):
            assert f"`{name}`" in PAGE and f"`{value}`" in PAGE


#: What a store has once it is needed.
SOMETIMES = frozenset(
    {
        "refs/heads/_links",
        "refs/ctxvc/purged",
        "ctxvc/purge/",
        "ctxvc/recovered/",
        "ctxvc/secrets/",
        "ctxvc/hooks/",
        "ctxvc/committed/",
        "ctxvc/removed.jsonl",
        "ctxvc/use",
        "ctxvc/sharing.json",
        "ctxvc/auto-push.json",
        "refs/tags/<name>",
        "ctxvc/incoming/",
        "refs/remotes/<remote>/<clone>",
    }
)


def test_files_have_the_modes_of_the_table(small: Store) -> None:
    told = {
        path: int(row[2], 8)
        for titles, rows in tables()
        if titles[:3] == ["path", "what", "mode"]
        for row in rows
        if row[2].isdigit()
        for path in re.findall(r"`([^`]+)`", row[0])
    }
    for pattern, mode in told.items():
        found = list(small.path.glob(re.sub("<[a-z]+>", "*", pattern.rstrip("/")))) if pattern != "." else [small.path]
        if pattern == "objects/pack/":
            found = list(small.path.glob("objects/pack/*"))
        assert found or pattern in SOMETIMES, pattern
        if not found:
            continue
        assert {oct(path.stat().st_mode & 0o777) for path in found} == {oct(mode)}, pattern


def test_every_trailer_that_is_written_is_told() -> None:
    source = "".join(path.read_text() for path in Path(ctxvc.__file__).parent.rglob("*.py"))
    written = set(re.findall(r'"(Ctxvc-[A-Za-z]+)"', source))
    told = set(re.findall(r"^\| `(Ctxvc-[A-Za-z]+)` \|", PAGE, re.MULTILINE))

    assert written | {"Ctxvc-Prompt"} == told


@cache
def real_examples() -> dict[str, str]:
    return examples.real()


@pytest.mark.parametrize("name", sorted(examples.written()))
def test_an_example_is_what_a_store_holds(name: str) -> None:
    """Where this fails because the program changed: `python -m tests.docs.examples` writes them anew."""
    assert examples.written()[name] == real_examples()[name]


def test_every_example_is_in_the_page() -> None:
    assert examples.written().keys() == real_examples().keys()


LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")


def headings(page: Path) -> set[str]:
    """Of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")], ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, heading in LINK.findall(page.read_text()):
        if target.startswith("http"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not heading or heading in headings(path), f"{target}#{heading}"


def test_every_page_is_linked_from_another() -> None:
    pages = {*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")}
    linked = {
        (page.parent / target).resolve()
        for page in pages
        for target, _ in LINK.findall(page.read_text())
        if target and not target.startswith("http")
    }
    assert {page.name for page in pages if page.resolve() not in linked} <= {"README.md", "CHANGELOG.md", "SECURITY.md"}


# --- numbers


def renumbered(rows: list[Row]) -> list[tuple[int, int, str]]:
    """(step, turn, parent) of each row, by the rules of the page from roles, origins, calls and messages alone."""
    step = turn = 0
    replied, turn_replied, opener = True, False, ""
    calls: dict[str, str] = {}
    told: list[tuple[int, int, str]] = []
    for group in _messages(rows):
        if group[0].role == "assistant":
            step += replied
            replied = turn_replied = True
            turn = turn or 1
            told += [(step, turn, opener)] * len(group)
            calls = {row.call: row.id for row in group if row.kind == "tool_use"}
            continue
        others = []
        for row in group:
            if row.kind == "tool_result" and row.call in calls:
                told.append((step, turn, calls.pop(row.call)))
            else:
                others.append(row)
        humans = [row.id for row in others if is_human(row.role, row.origin)]
        if not others:
            continue
        if replied and not calls:
            step, replied = step + 1, False
        if turn == 0 or (humans and turn_replied):
            turn, turn_replied, opener = turn + 1, False, ""
        if humans and not opener:
            opener = humans[0]
        told += [(step, turn, opener if opener and row.number > int(opener[1:]) else "") for row in others]
    return told


def _messages(rows: list[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in rows:
        if group and row.msg != group[0].msg:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def assert_numbered_by_the_rules(ledger: Ledger) -> None:
    aside = {block for group in ledger.groups.values() for block in group.summary}
    rows = [row for row in ledger.rows() if row.id not in aside]

    assert [(row.step, row.turn, row.parent) for row in rows] == renumbered(rows)
    assert [row.msg for row in rows] == sorted(row.msg for row in rows)


def test_the_rules_give_the_numbers_of_a_conversation(store: Store) -> None:
    """Reminders before and after a human's words, several in a row, answers out of order, a call that stays open."""
    said = [
        message("user", "client", "the date"),
        message("user", "client", "a reminder"),
        message("assistant", "model", "hello"),
        message("user", "human", "first"),
        message("user", "human", "second"),
        message("assistant", "model", "I look", call("c1", "Read"), call("c2", "Read")),
        message("user", "tool", result("c2", "two")),
        message("user", "client", "still waiting"),
        message("user", "tool", result("c1", "one"), result("c1", "one again")),
        message("user", "client", "a reminder"),
        message("assistant", "model", call("c3", "Read")),
        message("user", "human", "stop"),
        message("assistant", "model", "stopped", call("c4", "Read")),
        message("assistant", "model", "and gone on"),
    ]
    store.create_session("rules")
    with StoredSession.open(store, "rules") as session:
        for each in said:
            session.append(each)
        ledger = session.ledger()

    assert_numbered_by_the_rules(ledger)
    assert ledger.meta.counters == Counters(block=20, group=0, msg=16, step=5, turn=3)


@pytest.mark.parametrize("path", [DATA / "claude-code" / "20-02395c1048-0.jsonl", DATA / "pi" / "v3.jsonl"])
def test_the_rules_give_the_numbers_of_a_recording(store: Store, path: Path) -> None:
    (outcome, *_) = import_paths(store, [path], final=True)
    with StoredSession.open(store, outcome.session) as session:
        assert_numbered_by_the_rules(session.ledger("main"))


# --- canonical JSON


def vectors() -> list[tuple[str, str]]:
    (found,) = [rows for titles, rows in tables() if titles == ["value", "canonical"]]
    return [(value.strip("`"), canonical.strip("`")) for value, canonical in found]


@pytest.mark.parametrize(("value", "canonical"), vectors())
def test_the_canonical_form_is_the_one_in_the_page(value: str, canonical: str) -> None:
    assert canonical_json.canonical(value) == canonical.encode()


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(), max_size=20),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
        max_leaves=20,
    )
)
def test_the_canonical_form_is_one_form(value: object) -> None:
    """However it was spelt; it is the same value still, and what ctxvc hashes."""
    spelt = [json.dumps(value), json.dumps(value, indent=3, ensure_ascii=False, sort_keys=True)]
    (canonical,) = {canonical_json.canonical(text) for text in spelt}

    assert json.loads(canonical) == value
    assert canonical_json.canonical(canonical) == canonical
    assert our_canonical(value) == canonical


def request(**mark: Any) -> str:
    """A request, with `mark` at every place where the Messages API takes one."""
    answer = result("c1", [{"type": "text", "text": "r", **mark}], **mark)
    value = {
        "model": "claude-opus-5",
        "system": [{"type": "text", "text": "s", **mark}],
        "tools": [{"name": "t", "input_schema": {"properties": {"cache_control": {}}}, **mark}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [call("c1", "t", cache_control="an argument")]},
            {"role": "user", "content": [answer, {"type": "tool_result", "tool_use_id": "c2", **mark}]},
        ],
    }
    return json.dumps(value)


def test_a_prompt_has_one_hash_with_and_without_marks() -> None:
    assert canonical_json.prompt_hash(request(cache_control={"type": "ephemeral"})) == canonical_json.prompt_hash(
        request()
    )


def test_a_mark_elsewhere_is_part_of_the_prompt() -> None:
    other = request().replace("an argument", "another argument")

    assert canonical_json.prompt_hash(other) != canonical_json.prompt_hash(request())
