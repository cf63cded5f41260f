"""What is secret never reaches the disk: not the journal, not a pack, not a row, a subject or a stub."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part
from ctxvc.errors import Refused
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import purge, search
from ctxvc.store.store import Store, create
from ctxvc.store.verify import verify
from tests.core.secrets.test_secrets import cores
from tests.making import secrets as planting
from tests.making.conversation import exchange, human, reply, result, results
from tests.making.store import afresh, complaints, contents, git
from tests.recording.test_files import CONVERSATION, line, settled, text, write

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def everything(path: Path) -> bytes:
    """Every object of a store, unpacked, and every file beside the packs."""
    objects = [data for _, data in search.objects(path)]
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


def test_what_is_allowed_is_kept(session, store: Store) -> None:
    store.redaction.allow(TOKEN)
    with StoredSession.open(store, "demo") as writer:
        writer.append(human(TOKEN))

        assert contents(writer)["B1"] == TOKEN.encode()
    assert TOKEN.encode() not in (store.path / "ctxvc" / "secrets" / "allowed").read_bytes()


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
    planted = list(planting.make(11, 300))
    path = tmp_path / ".ctxvc"
    with create(path) as store:
        (done,) = import_paths(store, [recording(tmp_path / "a.jsonl", 300, each=5)])
        assert done.error is None and done.blocks == 121

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
