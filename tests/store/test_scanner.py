"""A scanner beside our rules: it is asked wherever something is stored or sent, and nothing passes without it."""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part
from ctxvc.core.plan import Action, Plan
from ctxvc.core.secrets.redact import find
from ctxvc.errors import CtxvcError, NotFound, Refused
from ctxvc.recording import log
from ctxvc.recording.files import import_paths
from ctxvc.store import pending_plans
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.purge import purge
from ctxvc.store.secrets import push_check, secret_scanner
from ctxvc.store.secrets.secret_scanner import KINGFISHER, SETTING, Scanner
from ctxvc.store.store import Store, create
from tests.core.secrets.test_secrets import cores
from tests.making import secrets as planting
from tests.making.conversation import human, raw, reply, result, results
from tests.making.host import end_recorder, hook, project
from tests.making.store import afresh, contents
from tests.store.test_redaction import everything, recording

needs_it = pytest.mark.skipif(not secret_scanner.installed(), reason="kingfisher-secret-scanner is not installed")

#: Of a form that our rules do not know.
TOKEN = "EZAK" + "".join(random.Random(7).choices(string.ascii_lowercase + string.digits, k=54))
KIND = "easypost-api-token"


@pytest.fixture(autouse=True, scope="module")
def _rules_compiled_once(pytestconfig: pytest.Config) -> Iterator[None]:
    """It compiles its rules for seconds: what it keeps of that is kept from one run of the tests to the next."""
    with pytest.MonkeyPatch.context() as patch:
        if cache := getattr(pytestconfig, "cache", None):  # `-p no:cacheprovider`
            patch.setenv("KF_RULE_CACHE_DIR", str(cache.mkdir("kingfisher")))
        yield


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Opens a store that asks for the scanner of that name, with a session `demo`."""
    path = tmp_path / "asking" / ".ctxvc"
    with create(path) as session:
        session.create_session("demo")
    opened: list[Store] = []

    def open_it(name: str) -> Store:
        program.run(path, "config", SETTING, name)
        opened.append(Store(path))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def asked(asking: Callable[[str], Store]) -> Store:
    return asking(KINGFISHER)


def with_package(monkeypatch: pytest.MonkeyPatch, package: object) -> None:
    """`package` is what is imported; None for one that is not installed."""
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", package)
    monkeypatch.setattr(secret_scanner, "_loaded", [])


def with_scan(monkeypatch: pytest.MonkeyPatch, scan: Callable[[bytes], list[object]]) -> None:
    """The package looks like this."""
    with_package(monkeypatch, SimpleNamespace(Rules=lambda **_: None, Scanner=lambda _: SimpleNamespace(scan=scan)))


def with_findings(monkeypatch: pytest.MonkeyPatch, *found: object) -> None:
    """The package finds exactly this, in whatever text."""
    with_scan(monkeypatch, lambda _: list(found))


def finding(start: int, end: int, secret: str, *, rule: str = "some.rule", visible: bool = True) -> object:
    where = {"start_offset": start, "end_offset": end}
    return SimpleNamespace(rule_id=rule, secret=secret, visible=visible, is_base64_encoded=False, location=where)


@needs_it
@pytest.mark.slow
def test_its_rules_are_kept_outside_the_store_and_many_threads_load_them_once(
    asked: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret_scanner._loaded.clear()
    monkeypatch.delenv("KF_RULE_CACHE_DIR", raising=False)
    look = Scanner(KINGFISHER, asked.path)
    with ThreadPoolExecutor(4) as pool:
        findings = list(pool.map(look, [f"{number} {TOKEN}".encode() for number in range(40)]))

    assert [found[0].kind for found in findings] == [KIND] * 40
    assert len(secret_scanner._loaded) == 1
    assert not (asked.cache_path / "kingfisher").exists()  # a store from elsewhere could bring compiled rules
    assert {path.name for path in Path.home().iterdir()} <= {".cache", ".local"}


@needs_it
def test_what_only_the_scanner_knows_is_nowhere_on_the_disk(asked: Store) -> None:
    assert find(TOKEN.encode()) == []
    with StoredSession.open(asked, "demo") as session:
        call = call_part("sh", "c1", json.dumps({"cmd": f'echo "{TOKEN}"'}).encode())
        session.append(human(f"use {TOKEN}"), Message(role="assistant", parts=(call,)))
        session.append(results(result("c1", f"{TOKEN}\n")))
        session.note(f"the token is {TOKEN}")
        session.change(subject=f"x {TOKEN}", op="archive", actor="user", trailers={"Ctxvc-Reason": f"has {TOKEN}"})
        session.flush()
        assert contents(session)["B1"].startswith(f"use [REDACTED:{KIND}:".encode())
        assert json.loads(contents(session)["B2"])["cmd"].startswith(f'echo "[REDACTED:{KIND}:')
    plan = Plan(actions=(Action(verb="archive", targets=("B1",)),), reason=f"it has {TOKEN}", actor="user")
    pending_plans.put(asked, "demo", "main", plan, base_commit=asked.tips("demo")["main"], time="2026-03-01T12:00:00Z")

    assert TOKEN.encode() not in everything(asked.path)


@needs_it
def test_an_import_asks_it_too(asked: Store, tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", 28, each=7)
    path.write_text(path.read_text().replace("please", f"and {TOKEN} please"))

    (done,) = import_paths(asked, [path], final=True)

    assert done.error is None
    held = everything(asked.path)
    assert TOKEN.encode() not in held and f"[REDACTED:{KIND}:".encode() in held
    unnamed = [each for each in planting.make(11, 28) if each.kind not in planting.NAMED]
    assert not [each.kind for each in unnamed if any(core in held for core in cores(each))]


@needs_it
def test_a_push_and_a_purge_ask_it_too(tmp_path: Path) -> None:
    path = tmp_path / ".ctxvc"
    with create(path) as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            blocks = json.dumps([{"type": "text", "text": TOKEN}]).encode()
            session.append(human(f"use {TOKEN}"), reply("so", "c1"), results(result("c1", blocks)), reply("done"))
            session.flush()
        assert TOKEN.encode() in everything(path), "nobody asked for a scanner"
        push_check.refuse(store, ["refs/heads/demo/main"])
        with pytest.raises(NotFound):
            purge.purge(store, purge.PurgeRequest(secrets=True))
    program.run(path, "config", SETTING, KINGFISHER)
    with Store(path) as store:
        with pytest.raises(Refused, match=f"{KIND} in demo/main:B1"):
            push_check.refuse(store, ["refs/heads/demo/main"])
        assert purge.purge(store, purge.PurgeRequest(secrets=True)).kinds == {KIND: 1}
    with Store(path) as store:
        push_check.refuse(store, ["refs/heads/demo/main"])
    assert TOKEN.encode() not in everything(path)


@needs_it
@pytest.mark.parametrize(
    "data",
    [
        f"é {TOKEN} é".encode(),
        b"\xef\xbb\xbf" + TOKEN.encode(),
        b"\xff\xfe" + f"{TOKEN} {TOKEN}".encode(),
        b"\xfe\xff" + TOKEN.encode(),
        b"\xff\xfe\0\0" + TOKEN.encode(),
        b"\0" + TOKEN.encode() + b"\0",
        b"\xed\xa0\x80 \xff\xc3 " + TOKEN.encode(),
    ],
)
def test_bytes_of_any_kind_are_cut_where_the_secret_stands(asked: Store, data: bytes) -> None:
    look = Scanner(KINGFISHER, asked.path)

    assert {data[start:end] for start, end, _ in look(data)} == {TOKEN.encode()}
    with StoredSession.open(asked, "demo") as session:
        session.append(raw(data))
        assert TOKEN.encode() not in contents(session)["B1"]


@needs_it
def test_what_is_packed_as_base64_is_found_as_a_whole_and_other_widths_of_characters_stay(asked: Store) -> None:
    wide = f"key = {TOKEN}\n".encode("utf-16")
    with StoredSession.open(asked, "demo") as session:
        session.append(raw(wide))
        assert contents(session)["B1"] == wide
    packed = base64.b64encode(f"export KEY={TOKEN} # and more".encode())

    (found,) = Scanner(KINGFISHER, asked.path)(b"data: %s end" % packed)

    assert (found.start, found.end) == (6, 6 + len(packed))


@needs_it
def test_of_planted_secrets_none_is_missed_that_the_rules_find_and_twice_is_once(asked: Store) -> None:
    redactor = asked.redaction.of("demo")
    assert redactor
    for planted in planting.make(2, 280):
        once = redactor.data(planted.text.encode())

        assert not any(core in once for core in cores(planted)), planted
        assert redactor.data(once) is once


# --- where it is not there


def test_without_the_package_nothing_is_stored_and_the_error_says_what_to_install(
    asked: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_package(monkeypatch, None)
    with StoredSession.open(asked, "demo") as session:
        with pytest.raises(Refused, match="not installed") as refused:
            session.append(human("anything"))

    assert "pip install 'ctxvc[secrets]'" in refused.value.hint
    assert f"git --git-dir={asked.path} config --unset ctxvc.scanner" in refused.value.hint
    assert afresh(asked.path) == {}
    (done,) = import_paths(asked, [recording(tmp_path / "a.jsonl", 4)])
    assert isinstance(done.error, Refused) and "pip install" in done.error.hint
    assert asked.sessions() == ["demo"]


def test_a_store_can_be_read_and_an_exact_session_written_without_the_package(
    asking: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoredSession.open(asking(""), "demo") as session:
        session.append(human("hi"))
    with_package(monkeypatch, None)
    store = asking(KINGFISHER)
    assert afresh(store.path) == {"B1": b"hi"}

    store.redaction.keep_exact("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(human(TOKEN))
        assert contents(session)["B2"] == TOKEN.encode()


def test_a_scanner_that_is_not_known_is_refused(asking: Callable[[str], Store]) -> None:
    with StoredSession.open(asking("osprey"), "demo") as session, pytest.raises(Refused, match="'osprey'") as refused:
        session.append(human("anything"))

    assert "config ctxvc.scanner kingfisher" in refused.value.hint


def test_hooks_go_on_and_their_log_says_why_nothing_is_recorded(tmp_path: Path) -> None:
    store = project(tmp_path) / FOLDER
    program.run(store, "config", SETTING, "osprey")
    try:
        assert hook(store.parent, recording(tmp_path / "s.jsonl", 4), "SessionEnd") == ""
        until = time.monotonic() + 30
        while not log.entries(store) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        end_recorder(store)

    assert "'osprey', an unknown scanner" in log.entries(store)[0]
    with Store(store) as opened:
        assert opened.sessions() == []


def fails(_: bytes) -> list[object]:
    raise TimeoutError("out of breath")


@pytest.mark.parametrize(
    "scan",
    [
        fails,
        *(
            lambda _, where=where, secret=secret: [finding(*where, secret)]
            for where, secret in (
                ((4, 9), "other"), ((4, 4), ""), ((-5, -1), "thin"), ((4, 90), "thing to store"), ((9, 4), "")
            )
        ),
    ],
)  # fmt: skip
def test_a_scanner_that_fails_or_finds_what_does_not_stand_there_stops_the_write(
    asked: Store, monkeypatch: pytest.MonkeyPatch, scan: Callable[[bytes], list[object]]
) -> None:
    with_scan(monkeypatch, scan)
    words = "out of breath; nothing was stored" if scan is fails else "not at the positions it reports"
    with StoredSession.open(asked, "demo") as session, pytest.raises(CtxvcError, match=words):
        session.append(human("any thing to store"))

    assert afresh(asked.path) == {}


@pytest.mark.parametrize(
    ("text", "start", "end", "cut"), [("aéb", 1, 2, "é"), ("aéb", 2, 4, "éb"), ("☃", 1, 2, "☃"), ("x😀", 3, 4, "😀")]
)
def test_a_finding_that_ends_within_a_character_takes_all_of_it(
    asked: Store, monkeypatch: pytest.MonkeyPatch, text: str, start: int, end: int, cut: str
) -> None:
    data = text.encode()
    with_findings(monkeypatch, finding(start, end, data[start:end].decode("utf-8", "replace")))

    assert [data[start:end].decode() for start, end, _ in Scanner(KINGFISHER, asked.path)(data)] == [cut]


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("betterleaks.github-app-token", "github-app-token"),
        ("veles.secrets/npmjsaccesstoken", "npmjsaccesstoken"),
        ("kingfisher.aws.2", "aws-2"),
        ("other.É" + "x" * 60, "x" * 39),
        ("plain", "plain"),
        ("other.", KINGFISHER),
    ],
)
def test_a_rule_gives_a_kind_that_a_mark_can_have(
    asked: Store, monkeypatch: pytest.MonkeyPatch, rule: str, kind: str
) -> None:
    with_findings(monkeypatch, finding(0, 3, "abc", rule=rule), finding(4, 5, "d", visible=False))

    assert Scanner(KINGFISHER, asked.path)(b"abc d") == [(0, 3, kind)]
