"""What is secret never reaches the disk: not the journal, not a pack, not a row, a subject or a stub."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import stat
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pygit2
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
from ctxvc.store.verify import verify
from tests.core.secrets.test_secrets import cores
from tests.making import secrets as planting
from tests.making.conversation import exchange, human, raw, reply, result, results
from tests.making.host import end_recorder, hook, project
from tests.making.store import afresh, complaints, contents, git
from tests.recording.test_files import CONVERSATION, line, settled, text, write

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def everything(path: Path) -> bytes:
    """Every object of a store, unpacked, and every file beside the packs."""
    repository = pygit2.Repository(path)
    objects = [repository[name].read_raw() for name in repository]
    names = [Path(folder, name) for folder, _, found in os.walk(path) for name in found]
    return b"\0".join([*objects, *(name.read_bytes() for name in names if "pack" not in name.parts)])


def test_an_appended_secret_is_nowhere_on_the_disk_at_any_time(session, store: Store) -> None:
    session.append(human(f"use {TOKEN}"))
    assert TOKEN.encode() not in everything(store.path)  # in the journal

    call = call_part("sh", "c1", json.dumps({"cmd": f"export KEY={TOKEN}"}).encode())
    session.append(Message(role="assistant", parts=(call,)), results(result("c1", f"KEY={TOKEN}\n")))
    session.flush()

    assert TOKEN.encode() not in everything(store.path)  # in commits
    marks = {body.decode().split("REDACTED:")[1][:21] for body in contents(session).values()}
    assert len(marks) == 1, "one secret, one mark"
    assert json.loads(session.body(session.ledger()["B2"]))["cmd"].startswith("export KEY=[REDACTED:github-token:")


def test_what_a_verb_says_and_the_name_of_a_scope_are_redacted_too(session, store: Store) -> None:
    session.append(*exchange(1), reply("done"))
    session.note(f"the token is {TOKEN}\nremember")
    session.open_scope(f"try.{TOKEN}", f"with {TOKEN}")
    session.change(subject=f"x {TOKEN}", op="archive", actor="user", trailers={"Ctxvc-Reason": f"has {TOKEN}"})
    session.append(reply("here"))
    session.flush()

    assert TOKEN.encode() not in everything(store.path)
    assert everything(store.path).count(b"[REDACTED:github-token:") >= 4
    assert session.scope.startswith("try.redacted-github-token-")


def test_an_id_and_a_tool_that_have_one_are_redacted_alike_in_call_and_result(session, store: Store) -> None:
    call = call_part(f"use-it.{TOKEN}", f"call.{TOKEN}", b"{}")
    session.append(human("go"), Message(role="assistant", parts=(call,), model=f"of.{TOKEN}"))
    session.append(results(result(f"call.{TOKEN}", "ok")), reply("done"))
    session.flush()

    assert TOKEN.encode() not in everything(store.path)
    rows = session.ledger()
    assert rows["B2"].call == rows["B3"].call and rows["B3"].parent == "B2"
    assert rows["B2"].tool == rows["B3"].tool and rows["B3"].tool.startswith("use-it.redacted-github-token-")


def test_the_name_of_a_sub_agent_is_redacted(store: Store, tmp_path: Path) -> None:
    path = settled(write(tmp_path / "11111111-2222-3333-4444-555555555555.jsonl", *CONVERSATION))
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    side = {**line("user", "s1", None, "look into it"), "isSidechain": True, "agentId": TOKEN}
    answer = {**line("assistant", "s2", "s1", text("Looked."), reply="ms"), "isSidechain": True, "agentId": TOKEN}
    settled(write(folder / f"agent-{TOKEN}.jsonl", side, answer))

    for units in (1, 0):
        outcomes = list(import_paths(store, [path], final=True))
        assert [outcome.error for outcome in outcomes] == [None, None]
        assert outcomes[1].units == units  # what is taken is found again
        assert TOKEN.encode() not in everything(store.path)


def test_the_key_is_private_stays_the_same_and_is_not_made_for_ordinary_text(session, store: Store) -> None:
    key = store.path / "ctxvc" / "secrets" / "key"
    session.append(*exchange(1))
    assert not key.parent.exists()
    session.append(human(TOKEN))

    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent)] == [0o600, 0o700]
    with Store(store.path) as other:
        assert other.redaction.mac(b"x") == store.redaction.mac(b"x")


@pytest.mark.parametrize("line", [TOKEN, f"sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"])
def test_what_is_allowed_is_kept(session, store: Store, line: str) -> None:
    folder = store.path / "ctxvc" / "secrets"
    folder.mkdir()
    (folder / "allowed").write_text(f"# not a key\n{line}\n")
    with Store(store.path) as anew, StoredSession.open(anew, "demo") as writer:
        writer.append(human(TOKEN))

        assert contents(writer)["B1"] == TOKEN.encode()


@pytest.mark.parametrize("how", ["option", "false", "False", "off", "no", "0", "true", "yes", "1", "flase"])
def test_a_store_can_be_told_to_keep_every_byte_and_no_other_word_does(path: Path, how: str) -> None:
    if how != "option":
        git(path, "config", "ctxvc.redact", how)
    with Store(path, redact=how != "option") as store, StoredSession.open(store, "demo") as session:
        session.append(human(TOKEN))

        assert (contents(session)["B1"] == TOKEN.encode()) is (how not in ("true", "yes", "1", "flase"))


# --- imports


def recording(path: Path, secrets: int, *, each: int = 1) -> Path:
    """A Claude Code transcript with so many secrets in what its tools print, some in each step."""
    planted = list(planting.make(11, secrets))
    lines: list[dict[str, object]] = []
    for number in range(0, secrets, each):
        some = planted[number : number + each]
        at = {"isSidechain": False, "userType": "external", "version": "2.0.0", "sessionId": "s1", "cwd": "/src"}
        at["timestamp"] = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        command = "; ".join(f"echo {one.secret}" for one in some)
        use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
        printed = "\n".join(one.text for one in some)
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": printed}
        if number == 0:
            first = {"role": "user", "content": f"use {TOKEN} please"}
            lines.append({**at, "type": "user", "uuid": "u0", "parentUuid": None, "message": first})
        before = lines[-1]["uuid"]
        said = {"role": "assistant", "id": f"m{number}", "model": "claude", "content": [use]}
        lines.append({**at, "type": "assistant", "uuid": f"a{number}", "parentUuid": before, "message": said})
        told = {"role": "user", "content": [answer]}
        lines.append({**at, "type": "user", "uuid": f"r{number}", "parentUuid": f"a{number}", "message": told})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(path, (time.time() - 86400, time.time() - 86400))
    return path


def test_nothing_of_many_secrets_is_left_of_an_import_nor_in_a_clone(tmp_path: Path) -> None:
    """What redaction does not find is purged; then git, ctxvc and a fresh clone are asked."""
    planted = list(planting.make(11, 100))
    path = tmp_path / ".ctxvc"
    with create(path) as store:
        (done,) = import_paths(store, [recording(tmp_path / "a.jsonl", 100, each=5)])
        assert done.error is None and done.blocks == 41

        held = everything(store.path)
        # A call's `echo SECRET` names no key or password: what only its name gives away is not found there.
        unnamed = [each for each in planted if each.kind not in planting.NAMED]
        left = [each.kind for each in unnamed if any(core in held for core in cores(each))]
        assert len(left) <= 1, left

        purge.purge(
            store, purge.PurgeRequest(texts=tuple(each.secret for each in planted if each.secret.encode() in held))
        )
    assert complaints(path) == ""
    with Store(path) as store:
        assert verify.verify(store).findings == ()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--mirror", str(path), str(clone)], check=True, capture_output=True)
    assert complaints(clone) == ""
    for place in (path, clone):
        held = everything(place)
        assert [each.kind for each in planted if any(core in held for core in cores(each))] == []


def test_a_file_imported_while_it_grows_gives_what_the_finished_one_gives(tmp_path: Path) -> None:
    whole = recording(tmp_path / "a.jsonl", 12).read_text().splitlines(keepends=True)
    with create(tmp_path / "once") as store:
        list(import_paths(store, [tmp_path / "a.jsonl"]))
        key = (tmp_path / "once/ctxvc/secrets/key").read_bytes()
        name = store.current_session()
        with StoredSession.open(store, name) as session:
            expected = contents(session)
    (tmp_path / "b").mkdir()
    with create(tmp_path / "grown") as store:
        (tmp_path / "grown/ctxvc/secrets").mkdir()
        (tmp_path / "grown/ctxvc/secrets/key").write_bytes(key)
        for cut in (5, 6, 13, len(whole)):
            (tmp_path / "b/a.jsonl").write_text("".join(whole[:cut]))
            list(import_paths(store, [tmp_path / "b/a.jsonl"], final=cut == len(whole)))
        with StoredSession.open(store, store.current_session()) as session:
            assert contents(session) == expected


def test_a_session_kept_exact_stays_so_and_one_that_is_not_cannot_become_so(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", 4)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    with create(tmp_path / ".ctxvc") as store:
        list(import_paths(store, [path], redact=False, name="exact"))
        list(import_paths(store, [path], as_new=True, name="clean"))
        path.write_text("".join(lines))
    with Store(tmp_path / ".ctxvc") as store:
        (first,) = import_paths(store, [path])  # goes on with a session of this recording, as it was begun
    assert first.session in ("exact", "clean")
    assert TOKEN.encode() in afresh(tmp_path / ".ctxvc", "exact")["B1"]
    assert TOKEN.encode() not in afresh(tmp_path / ".ctxvc", "clean")["B1"]
    with create(tmp_path / "redacted") as store:
        list(import_paths(store, [path]))
        (again,) = import_paths(store, [path], redact=False)
    assert isinstance(again.error, Refused)


# --- a scanner beside our rules: it is asked wherever something is stored or sent, and nothing passes without it


needs_it = pytest.mark.skipif(not secret_scanner.installed(), reason="kingfisher-secret-scanner is not installed")

#: Of a form that our rules do not know.
EASYPOST = "EZAK" + "".join(random.Random(7).choices(string.ascii_lowercase + string.digits, k=54))
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
        findings = list(pool.map(look, [f"{number} {EASYPOST}".encode() for number in range(40)]))

    assert [found[0].kind for found in findings] == [KIND] * 40
    assert len(secret_scanner._loaded) == 1
    assert not (asked.cache_path / "kingfisher").exists()  # a store from elsewhere could bring compiled rules
    assert {path.name for path in Path.home().iterdir()} <= {".cache", ".local"}


@needs_it
def test_what_only_the_scanner_knows_is_nowhere_on_the_disk(asked: Store) -> None:
    assert find(EASYPOST.encode()) == []
    with StoredSession.open(asked, "demo") as session:
        call = call_part("sh", "c1", json.dumps({"cmd": f'echo "{EASYPOST}"'}).encode())
        session.append(human(f"use {EASYPOST}"), Message(role="assistant", parts=(call,)))
        session.append(results(result("c1", f"{EASYPOST}\n")))
        session.note(f"the token is {EASYPOST}")
        session.change(
            subject=f"x {EASYPOST}", op="archive", actor="user", trailers={"Ctxvc-Reason": f"has {EASYPOST}"}
        )
        session.flush()
        assert contents(session)["B1"].startswith(f"use [REDACTED:{KIND}:".encode())
        assert json.loads(contents(session)["B2"])["cmd"].startswith(f'echo "[REDACTED:{KIND}:')
    plan = Plan(actions=(Action(verb="archive", targets=("B1",)),), reason=f"it has {EASYPOST}", actor="user")
    pending_plans.put(asked, "demo", "main", plan, base_commit=asked.tips("demo")["main"], time="2026-03-01T12:00:00Z")

    assert EASYPOST.encode() not in everything(asked.path)


@needs_it
def test_an_import_asks_it_too(asked: Store, tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", 28, each=7)
    path.write_text(path.read_text().replace("please", f"and {EASYPOST} please"))

    (done,) = import_paths(asked, [path], final=True)

    assert done.error is None
    held = everything(asked.path)
    assert EASYPOST.encode() not in held and f"[REDACTED:{KIND}:".encode() in held
    unnamed = [each for each in planting.make(11, 28) if each.kind not in planting.NAMED]
    assert not [each.kind for each in unnamed if any(core in held for core in cores(each))]


@needs_it
def test_a_push_and_a_purge_ask_it_too(tmp_path: Path) -> None:
    path = tmp_path / ".ctxvc"
    with create(path) as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            blocks = json.dumps([{"type": "text", "text": EASYPOST}]).encode()
            session.append(human(f"use {EASYPOST}"), reply("so", "c1"), results(result("c1", blocks)), reply("done"))
            session.flush()
        assert EASYPOST.encode() in everything(path), "nobody asked for a scanner"
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
    assert EASYPOST.encode() not in everything(path)


@needs_it
@pytest.mark.parametrize(
    "data",
    [f"é {EASYPOST} é".encode(), b"\xef\xbb\xbf" + EASYPOST.encode(), b"\xff\xfe" + f"{EASYPOST} {EASYPOST}".encode(),
     b"\xfe\xff" + EASYPOST.encode(), b"\xff\xfe\0\0" + EASYPOST.encode(), b"\0" + EASYPOST.encode() + b"\0",
     b"\xed\xa0\x80 \xff\xc3 " + EASYPOST.encode()],
)  # fmt: skip
def test_bytes_of_any_kind_are_cut_where_the_secret_stands(asked: Store, data: bytes) -> None:
    look = Scanner(KINGFISHER, asked.path)

    assert {data[start:end] for start, end, _ in look(data)} == {EASYPOST.encode()}
    with StoredSession.open(asked, "demo") as session:
        session.append(raw(data))
        assert EASYPOST.encode() not in contents(session)["B1"]


@needs_it
def test_what_is_packed_as_base64_is_found_as_a_whole_and_other_widths_of_characters_stay(asked: Store) -> None:
    wide = f"key = {EASYPOST}\n".encode("utf-16")
    with StoredSession.open(asked, "demo") as session:
        session.append(raw(wide))
        assert contents(session)["B1"] == wide
    packed = base64.b64encode(f"export KEY={EASYPOST} # and more".encode())

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
        session.append(human(EASYPOST))
        assert contents(session)["B2"] == EASYPOST.encode()


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
    [("betterleaks.github-app-token", "github-app-token"), ("veles.secrets/npmjsaccesstoken", "npmjsaccesstoken"),
     ("kingfisher.aws.2", "aws-2"), ("other.É" + "x" * 60, "x" * 39), ("plain", "plain"), ("other.", KINGFISHER)],
)  # fmt: skip
def test_a_rule_gives_a_kind_that_a_mark_can_have(
    asked: Store, monkeypatch: pytest.MonkeyPatch, rule: str, kind: str
) -> None:
    with_findings(monkeypatch, finding(0, 3, "abc", rule=rule), finding(4, 5, "d", visible=False))

    assert Scanner(KINGFISHER, asked.path)(b"abc d") == [(0, 3, kind)]
