"""`purge`: what was erased is nowhere, everything else is as it was, and a kill leaves the old store or the new one."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.wire import call_part, part, text_part
from ctxvc.core.plan import Action, Plan
from ctxvc.errors import BadInput, Damaged, NotFound, Refused
from ctxvc.recording.files import import_paths
from ctxvc.store import checkout, pending_plans
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import purge
from ctxvc.store.purge import search as searching
from ctxvc.store.purge.purge import PurgeRequest
from ctxvc.store.purge.scrub import Scrub
from ctxvc.store.purge.search import copies
from ctxvc.store.secrets import push_check
from ctxvc.store.store import Store, create
from ctxvc.store.trust import trust
from ctxvc.store.verify import verify
from tests.conftest import Copied
from tests.core.secrets.test_encodings import FORMS, Form
from tests.faults.summary import Tell, line
from tests.making import secrets as planting
from tests.making.conversation import exchange, human, injected, reply, result, results
from tests.making.processes import KILLED, ended
from tests.making.project import png
from tests.making.store import afresh, archived, contents, git, unflushed
from tests.store.killed import purge_killed
from tests.store.test_redaction import everything

SECRET = "plum-harbour-9431-violet"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def the_result(session: StoredSession) -> Row:
    """The result that has the secret."""
    return next(row for row in session.ledger("main").rows() if row.call == "s1" and row.kind == "tool_result")


def fill(session: StoredSession, steps: int = 3) -> None:
    """Steps, one of which has the secret in its result, and the secret in about everything that can hold it."""
    for number in range(steps):
        session.append(*exchange(number))
    call = call_part("sh", "s1", json.dumps({"cmd": f"echo {SECRET}", "n": [1.50, "é"]}, ensure_ascii=False).encode())
    session.append(human("what is the word?"), Message(role="assistant", parts=(call,)))
    session.append(results(result("s1", f"the word is {SECRET}\nand so on\n")))
    session.append(reply(f"It is {SECRET}."))
    session.note(f"the word is {SECRET}\nmore of it")
    row = the_result(session)
    stub = f"[archived {row.handle}: tool_result of sh; {row.label}; recover {row.id}]"
    gone = archived(row, stub=stub, level=1)
    session.change(subject=f"archive B13 {SECRET}", op="archive", actor="user", rows=[gone])
    session.open_scope("next", f"go on with {SECRET}")
    session.append(*exchange(90), human("open end"))


def erase(path: Path, *texts: str) -> purge.Report:
    with Store(path) as store:
        return purge.purge(store, PurgeRequest(texts=texts))


def sound(path: Path) -> None:
    """git and ctxvc find nothing wrong, here and in a fresh clone."""
    fsck = git(path, "fsck", "--full", "--strict")
    assert fsck.strip() in ("", "notice: HEAD points to an unborn branch (main)")
    with Store(path) as store:
        assert [finding.what for finding in verify.verify(store).findings] == []


@pytest.fixture
def filled(tmp_path: Path, copied: Copied) -> Path:
    return copied(_filled, tmp_path / ".ctxvc")


def _filled(path: Path) -> None:
    with create(path) as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            fill(session)


def test_without_yes_it_is_told_what_would_happen_and_nothing_does(filled: Path) -> None:
    def standing() -> tuple[str, str, bytes]:
        objects = git(filled, "cat-file", "--batch-all-objects", "--batch-check")
        return objects, git(filled, "show-ref"), (filled / "ctxvc" / "journal" / "demo").read_bytes()

    before = standing()
    with Store(filled) as store:
        report = purge.survey(store, PurgeRequest(texts=(SECRET,)))

    assert standing() == before
    assert not report.done and report.kinds == {"purged": 1}
    assert {seen.scope for seen in report.seen} == {"main", "next"}
    assert report.seen[0].blocks[:2] == ("B14", "B15")
    assert report.seen[0].steps[0] == 5, "the step whose reply came after the call that had it"


def test_a_purged_text_is_nowhere_and_the_rest_is_as_it_was(filled: Path, tmp_path: Path) -> None:
    with Store(filled) as store, StoredSession.open(store, "demo", "main") as session:
        before = contents(session)
        purge.purge(store, PurgeRequest(texts=(SECRET,)))

    assert SECRET.encode() not in everything(filled)
    sound(filled)
    with Store(filled) as store, StoredSession.open(store, "demo", "main") as session:
        after = contents(session)
        row = the_result(session)
        mark = after[row.id].decode().split("the word is ")[1].split("\n")[0]
        assert mark.startswith("[REDACTED:purged:")
        assert after == {name: body.replace(SECRET.encode(), mark.encode()) for name, body in before.items()}
        assert row.handle in row.stub and mark.replace("[", "(").replace("]", ")") in row.stub
    subprocess.run(["git", "clone", "--quiet", str(filled), str(tmp_path / "clone")], check=True, capture_output=True)
    assert SECRET.encode() not in everything(tmp_path / "clone" / ".git")


def test_an_object_that_cannot_be_read_is_not_taken_for_one_without_the_text(filled: Path) -> None:
    command = ["git", f"--git-dir={filled}", "hash-object", "-w", "--stdin"]
    lost = subprocess.run(command, input=os.urandom(9_000), capture_output=True, check=True).stdout.decode().strip()
    file = filled / "objects" / lost[:2] / lost[2:]
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:4_000])
    with Store(filled) as store, pytest.raises(Damaged, match=f"object {lost[:12]} cannot be read"):
        purge.survey(store, PurgeRequest(texts=("a text that no commit has",)))

    assert erase(filled, SECRET).done and SECRET.encode() not in everything(filled)
    sound(filled)


def test_what_is_not_touched_keeps_its_ids(path: Path) -> None:
    with Store(path) as store:
        store.create_session("other")
        with StoredSession.open(store, "other") as other:
            other.append(*exchange(1), reply("done"))
        with StoredSession.open(store, "demo") as session:
            session.append(*exchange(1), reply("done"))
            clean = session.tip()
            fill(session)
        tips = store.all_tips()
        purge.purge(store, PurgeRequest(texts=(SECRET,)))
    with Store(path) as store:
        assert store.tips("other") == tips["other"]
        assert clean in list(store.first_parents(store.tips("demo")["main"]))
        assert store.tips("demo")["main"] != tips["demo"]["main"]


def test_the_map_says_what_became_what(filled: Path) -> None:
    def read() -> dict[str, dict[str, str]]:
        answer: dict[str, dict[str, str]] = json.loads(git(filled, "show", f"{purge_apply.REF}:{purge_apply.MAP}"))
        return answer

    with Store(filled) as store:
        old = store.tips("demo")
    erase(filled, SECRET)
    with Store(filled) as store:
        assert {scope: read()["commits"][tip] for scope, tip in old.items()} == store.tips("demo")
    assert len(read()["blobs"]) >= 4
    erase(filled, "open end")
    with Store(filled) as store:
        assert read()["commits"][old["main"]] == store.tips("demo")["main"]


def test_the_rewrite_is_the_same_wherever_it_is_made(filled: Path, tmp_path: Path) -> None:
    with Store(filled) as store:
        store.redaction.mac(b"")  # both have the same key
    tips = []
    for place in (Path(shutil.copytree(filled, tmp_path / "copy", symlinks=True)), filled):
        erase(place, SECRET)
        with Store(place) as store:
            tips.append(store.all_tips())
    assert tips[0] == tips[1]


def test_a_block_is_erased_wherever_its_bytes_are(path: Path) -> None:
    text = "a whole paragraph that somebody wants to be gone for good"
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human(text), reply("so", "c1"), results(result("c1", f"$ cat\n{text}\n")), reply("ok"))
        purge.purge(store, PurgeRequest(session="demo", blocks=("B1",)))
    assert text.encode() not in everything(path)
    sound(path)
    assert afresh(path)["B1"].startswith(b"[REDACTED:purged:")
    assert afresh(path)["B4"].startswith(b"$ cat\n[REDACTED:purged:")


def test_of_an_erased_call_nothing_stays_in_what_its_row_notes(path: Path) -> None:
    noted = {"tool": "edit_file", "of": {}, "arguments": {"old": SECRET}}
    original = {"tool": "Edit", "arguments": {"old_string": SECRET}}
    call = call_part("edit", "e1", json.dumps({"edits": [{"oldText": SECRET}]}).encode())
    call = msgspec.structs.replace(call, extra={"ctxvc": {"as": noted, "original": original, "key": "m1"}})
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human("edit it"), Message(role="assistant", parts=(call,)), results(result("e1", "done")))
        purge.purge(store, PurgeRequest(session="demo", blocks=("B2",)))
    assert SECRET.encode() not in everything(path)
    sound(path)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        assert session.ledger()["B2"].extra == {"ctxvc": {"key": "m1"}}


def test_calls_pictures_and_results_of_several_parts_stay_what_they_are(path: Path) -> None:
    picture = base64.b64encode(png()).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}
    several = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "look"}, image]}
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(Message(role="user", parts=(part(image, "user", "human"),)), reply("", "c1"))
            session.append(Message(role="user", parts=(part(several, "user", "tool"),)), reply("fine"))
            assert session.ledger()["B3"].files == ("1.png",)
        purge.purge(store, PurgeRequest(session="demo", blocks=("B2", "B3")))
    assert png() not in everything(path), "the picture of its own was the same one"
    sound(path)
    bodies = afresh(path)
    assert list(json.loads(bodies["B2"])) == ["purged"]
    assert bodies["B1"].startswith(b"\x89PNG")
    assert [item["type"] for item in json.loads(bodies["B3"])] == ["text", "image"]


def test_all_secrets_go_at_once(path: Path) -> None:
    planted = list(planting.make(3, 30))
    with Store(path, redact=False) as store:
        with StoredSession.open(store, "demo") as session:
            with unflushed():
                for number, each in enumerate(planted):
                    session.append(human(f"q{number}"), reply(each.text))
        assert len(push_check.leaks(store, store.tips("demo").values())) == 30
        with pytest.raises(Refused, match="demo/main:B2 "):
            push_check.refuse(store, store.tips("demo").values())
        report = purge.purge(store, PurgeRequest(secrets=True))
        assert sum(report.kinds.values()) == 30
    with Store(path) as store:
        push_check.refuse(store, store.tips("demo").values())
        with pytest.raises(NotFound, match="nothing in the store looks like a secret"):
            purge.survey(store, PurgeRequest(secrets=True))
    sound(path)


def test_a_push_is_searched_only_for_what_it_sends_and_for_its_names(path: Path) -> None:
    with Store(path, redact=False) as store, StoredSession.open(store, "demo") as session:
        session.append(human(TOKEN), reply("yes"))
        sent = session.tip()
        session.append(human("hello"), reply("yes"))

        (leak,) = push_check.leaks(store, [session.tip()])
        assert (leak.kind, leak.block, leak.scope) == ("github-token", "B1", "main")
        assert push_check.leaks(store, [session.tip()], [session.tip()]) == []
        assert push_check.leaks(store, [sent], [sent]) == []

        git(path, "branch", f"demo/try-{TOKEN}", session.tip())
        (_, named) = push_check.leaks(store, [session.tip()])
        assert (named.kind, named.path) == ("github-token", f"refs/heads/demo/try-{TOKEN}")


def test_an_open_step_is_purged_in_the_journal_and_goes_on(path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(*exchange(1), human(f"say {SECRET}"), reply("so", "c9"))
        purge.purge(store, PurgeRequest(texts=(SECRET,)))
        assert SECRET.encode() not in everything(path)

        session.append(results(result("c9", "fine")), reply("done"))
        session.flush()
        assert contents(session)["B5"].startswith(b"say [REDACTED:purged:")
    sound(path)


def test_a_plan_that_waits_follows(path: Path) -> None:
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(*exchange(1), human("x"), reply(f"it is {SECRET}"), human("y"), reply("z"))
            base, row = session.tip(), session.ledger()["B5"]
        action = Action(verb="archive", targets=("B5",), index=f"about {SECRET}", checksums={"B5": row.sha256[:12]})
        plan = Plan(actions=(action,), actor="user", reason="because")
        pending_plans.put(store, "demo", "main", plan, base_commit=base, time="2026-01-01T00:00:00Z")
        purge.purge(store, PurgeRequest(texts=(SECRET,)))
    assert SECRET.encode() not in everything(path)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        (held,) = pending_plans.pending(store, "demo")
        assert held.base_commit == session.tip()
        assert session.ledger()["B5"].sha256.startswith(held.plan.actions[0].checksums["B5"])
    sound(path)


def test_checkouts_go_and_one_that_was_changed_stops_it(filled: Path, tmp_path: Path) -> None:
    with Store(filled) as store:
        checkout.checkout(store, "demo", "main", tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("a person's")
    with pytest.raises(Refused, match="is a changed checkout"):
        erase(filled, SECRET)
    (tmp_path / "out" / "mine.txt").unlink()
    assert erase(filled, SECRET).checkouts == (str(tmp_path / "out"),)
    assert not (tmp_path / "out").exists()
    with Store(filled) as store:
        checkout.checkout(store, "demo", "main", tmp_path / "out")
    assert SECRET.encode() not in everything(filled)


def test_what_a_remote_had_is_told_and_forgotten(filled: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "remote.git")], check=True)
    git(filled, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(filled, "push", "--quiet", "origin", "refs/heads/demo/main")
    git(filled, "fetch", "--quiet", "origin")
    assert (filled / "FETCH_HEAD").exists()
    assert erase(filled, SECRET).remotes == (("origin", str(tmp_path / "remote.git"), True),)
    assert SECRET.encode() not in everything(filled)
    assert "refs/remotes" not in git(filled, "show-ref")
    # It is known after its branches are forgotten, too; the scope with "open end" was not pushed.
    assert [erase(filled, text).remotes[0][2] for text in ("open end", "question 0")] == [False, True]


def test_a_scope_whose_name_has_it_is_removed_as_the_hint_says(filled: Path) -> None:
    name = f"try-{TOKEN}"
    with Store(filled, redact=False) as store, StoredSession.open(store, "demo") as session:
        session.open_scope(name, "try it")
        session.open_scope("after", f"go on behind {name}")
        session.append(*exchange(91), reply("done"))
        session.goto("main", "back")
    with pytest.raises(Refused, match="has some of it") as refused:
        erase(filled, TOKEN)
    assert "branch -D SESSION/SCOPE" in refused.value.hint
    git(filled, "branch", "-D", f"demo/{name}")
    erase(filled, TOKEN)
    assert TOKEN.encode() not in everything(filled)
    sound(filled)


def test_what_is_not_ours_to_change_or_borrowed_from_elsewhere_stops_it(filled: Path, tmp_path: Path) -> None:
    git(filled, "config", "remote.origin.url", f"https://me:{SECRET}@example.org/x.git")
    with pytest.raises(Refused, match="config has some of it"):
        erase(filled, SECRET)
    (filled / "hooks").mkdir(exist_ok=True)
    (filled / "hooks" / "huge").touch()
    os.truncate(filled / "hooks" / "huge", 1 << 40)
    with pytest.raises(Refused, match="huge has more than"):
        erase(filled, "what nothing has")
    (filled / "hooks" / "huge").unlink()

    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "other.git")], check=True)
    (filled / "objects" / "info").mkdir(exist_ok=True)
    (filled / "objects" / "info" / "alternates").write_text(f"{tmp_path}/other.git/objects\n")
    trust.accept(filled, trust.look(filled))
    with pytest.raises(Refused, match="borrows objects"):
        erase(filled, SECRET)


def test_a_persons_tags_follow(filled: Path) -> None:
    git(filled, "tag", "here", "refs/heads/demo/main")
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    git(filled, *who, "tag", "-a", "-m", "words", "there", "refs/heads/demo/main")
    erase(filled, SECRET)
    sound(filled)
    assert git(filled, "rev-parse", "here", "there").split() == git(filled, "rev-parse", "demo/main").split() * 2


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (PurgeRequest(texts=("not in it at all",)), NotFound),
        (PurgeRequest(texts=("abc",)), BadInput),
        (PurgeRequest(session="demo", blocks=("G1",)), BadInput),
        (PurgeRequest(session="demo", blocks=("B999",)), NotFound),
    ],
)
def test_what_cannot_be_erased_is_refused_and_nothing_happens(
    filled: Path, wanted: PurgeRequest, error: type[Exception]
) -> None:
    before = git(filled, "show-ref")
    with Store(filled) as store, pytest.raises(error):
        purge.purge(store, wanted)
    assert git(filled, "show-ref") == before


@pytest.mark.parametrize(
    "stride",
    [
        53,
        pytest.param(7, marks=pytest.mark.slow),
        pytest.param(1, marks=(pytest.mark.faults, pytest.mark.timeout(3_600))),
    ],
)
def test_killed_at_any_moment_it_leaves_the_old_store_or_the_new_one(tmp_path: Path, stride: int, tell: Tell) -> None:
    with create(tmp_path / "made") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            fill(session, steps=1)
            session.append(human(f"waits with {SECRET}"))
    seen = set()
    for number in range(0, 400, stride):
        path = Path(shutil.copytree(tmp_path / "made", tmp_path / f"killed-{number}", symlinks=True))
        code = ended(purge_killed, str(path), number, SECRET)
        with Store(path) as store:
            held = SECRET.encode() in everything(path)
            seen.add(held)
            with StoredSession.open(store, "demo", "main") as session:
                assert len(contents(session)) >= 8
            if number % 7 == 0 or stride > 1:
                assert [finding.what for finding in verify.verify(store).findings if finding.level == "damage"] == []
            if held and (number % 5 == 0 or stride > 1):
                purge.purge(store, PurgeRequest(texts=(SECRET,)))
                assert SECRET.encode() not in everything(path)
        shutil.rmtree(path)
        if code == 0:
            break
        assert code == KILLED
    else:
        raise AssertionError("it never came to an end")
    assert seen == {True, False} and number > 20
    if stride == 1:
        tell(line("purges killed before each thing that they do", cases=number, stores_between_old_and_new=0))


# --- what only begins alike


def test_another_text_that_begins_alike_is_left_alone(path: Path) -> None:
    others = ("Let me check... the build is green.", "Let me check… the build is green.", "Let me check…")
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human("hello"), reply("Let me check the customer record of Jane Doe."))
            for other in others:
                session.append(human(other), reply(other))
            session.note(f"{others[0]} {others[1]}")
            before, rows = contents(session), {row.id: row for row in session.ledger().rows()}
        purge.purge(store, PurgeRequest(session="demo", blocks=("B2",)))
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        after = contents(session)
        assert after.pop("B2") != before.pop("B2") and after == before
        assert [row.label for row in session.ledger().rows()][2:] == [row.label for row in rows.values()][2:]
    sound(path)


def test_of_what_ctxvc_cut_the_beginning_goes_too(path: Path) -> None:
    text = "the customer is Jane Doe of 12 Elm Street, and she owes us a lot"
    begun = "the customer is Jane Doe"
    left_out = "\n[ctxvc: 1,234 of 5,678 characters left out here; recover c1 for the whole (5,678 bytes)]\nend"
    dashboard = text_part(f"[dashboard]\n| B1 | {begun}… |\n", "user", "client", kind="dashboard")
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human(text), reply("so", "c1"), results(result("c1", f"all: {begun}{left_out}")))
            session.append(reply("fine"), Message(role="user", parts=(dashboard,)))
            session.append(injected(f"[ctxvc] The session before this one:\n- B1: {begun}…\n"), reply("yes"))
            row = session.ledger()["B2"]
            stub = f"[archived {row.handle}: assistant, 2 tokens; why: {begun}…; recover B2]"
            gone = archived(row, stub=stub)
            session.change(subject=f"archive B2: {begun}…", op="archive", actor="user", rows=[gone])
        purge.purge(store, PurgeRequest(session="demo", blocks=("B1",)))
    assert begun.encode() not in everything(path)
    sound(path)


# --- all that the proof looks at


def test_numbers_ids_and_names_go_as_text_does(path: Path) -> None:
    number = "4929123456781234"
    arguments = b'{"card": %s, "n": [1.50]}' % number.encode()
    call = Message(role="assistant", parts=(call_part("pay", f"toolu_{number}", arguments),))
    caller = {
        "type": "tool_use", "id": "c2", "name": f"x{number}", "input": {}, "caller": {"tool_id": f"toolu_{number}"},
    }  # fmt: skip
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human("pay"), call, results(result(f"toolu_{number}", "paid")))
            session.append(Message(role="assistant", parts=(part(caller, "assistant", "model"),)))
            session.append(results(result("c2", "ok")), reply("done"))
        report = purge.purge(store, PurgeRequest(texts=(number,)))
        assert report.seen[0].blocks == ("B2", "B3", "B4", "B5")
    assert number.encode() not in everything(path)
    sound(path)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        rows = session.ledger()
        card = json.loads(contents(session)["B2"])
        assert card["card"].startswith("[REDACTED:purged:") and card["n"] == [1.5]
        assert contents(session)["B2"].endswith(b', "n": [1.50]}')
        name = card["card"].strip("[]").replace(":", "-").lower()
        assert rows["B2"].call == rows["B3"].call == f"toolu_{name}" == rows["B4"].extra["caller"]["tool_id"]
        assert rows["B4"].tool == f"x{name}" and rows["B4"].label.startswith(f"x{name}: ")


def test_a_secret_in_an_id_or_a_name_goes_with_the_others(path: Path) -> None:
    call = Message(role="assistant", parts=(call_part(f"use-{TOKEN}", f"c {TOKEN}", b"{}"),))
    with Store(path, redact=False) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human("go"), call, results(result(f"c {TOKEN}", "ok")), reply("done"))
        purge.purge(store, PurgeRequest(secrets=True))
        with pytest.raises(NotFound):
            purge.survey(store, PurgeRequest(secrets=True))
    assert TOKEN.encode() not in everything(path)
    sound(path)


def test_what_hooks_left_to_be_done_goes_only_where_it_has_it(filled: Path) -> None:
    kept = filled / "ctxvc" / "hooks"
    for name in ("log", "log.1", "handoff/x", "requests/1", "requests/2", "outputs/c1-1.txt", "outputs/c2-1.txt"):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text("fine" if name.endswith(("2", "c2-1.txt")) else SECRET)
    erase(filled, SECRET)
    assert SECRET.encode() not in everything(filled)
    assert sorted(each.name for each in kept.rglob("*") if each.is_file()) == ["2", "c2-1.txt"]


FOREIGN = ["objects/pack/dir", "objects/pack/tmp_dir", "objects/00", "ctxvc/hooks/requests/dir", "FETCH_HEAD"]


@pytest.mark.parametrize("where", FOREIGN)
def test_a_folder_in_the_place_of_a_file_keeps_no_purge_from_its_end(filled: Path, where: str) -> None:
    shutil.rmtree(filled / where, ignore_errors=True)
    (filled / where).mkdir(parents=True)
    (filled / where / "file").write_text("fine")
    erase(filled, SECRET)
    assert not purge_apply.pending(filled)
    assert SECRET.encode() not in everything(filled)
    assert (filled / where).exists() is where.endswith("dir")  # no purge has to do with it
    with Store(filled) as store:
        store.clean_up()


def test_what_stands_in_a_folder_where_files_are_is_searched_too(filled: Path) -> None:
    for where in FOREIGN[:2]:
        (filled / where).mkdir()
        (filled / where / "file").write_text(SECRET)
        with pytest.raises(Refused, match=f"{where}/file has some of it"):
            erase(filled, SECRET)
        shutil.rmtree(filled / where)
    (filled / FOREIGN[3]).mkdir(parents=True)
    (filled / FOREIGN[3] / "file").write_text(SECRET)
    for number in range(256):  # and files where folders are
        place = filled / "objects" / f"{number:02x}"
        if not place.exists():  # a new object may have any id
            place.write_text("fine")
    erase(filled, SECRET)
    assert SECRET.encode() not in everything(filled)


def test_what_is_in_no_commit_goes_too(filled: Path) -> None:
    text = b"a text that nobody recorded"
    (filled / "ctxvc" / "hooks").mkdir()
    (filled / "ctxvc" / "hooks" / "log").write_bytes(text)
    subprocess.run(["git", f"--git-dir={filled}", "hash-object", "-w", "--stdin"], input=text, check=True)
    erase(filled, text.decode())
    assert text not in everything(filled)
    sound(filled)


@pytest.mark.parametrize("text", ['"n": [1.5', "tool_result", "sha256", "ledger"])
def test_what_cannot_be_taken_out_is_refused_before_anything_is_changed(filled: Path, text: str) -> None:
    before = git(filled, "show-ref"), sorted(os.listdir(filled / "objects" / "pack"))
    with pytest.raises(Refused, match="cannot be removed: ") as refused:
        erase(filled, text)
    assert "commit" in str(refused.value) and "nothing was changed" in refused.value.hint
    assert (git(filled, "show-ref"), sorted(os.listdir(filled / "objects" / "pack"))) == before
    erase(filled, SECRET)
    sound(filled)


# --- encoded


def written(form: Form) -> str:
    return form.encode(f"user:{ODD}, and more".encode()).decode()


ODD = "plum harbour/9431+violét"


#: One of each way in which a form is decoded; the others are tested without a store.
STORED = ("base64 for URLs", "base64 in lines of 76", "base64 in a URL", "HEX", "a form", "JSON in JSON")


@pytest.mark.parametrize("name", STORED)
def test_an_encoded_text_is_nowhere_and_what_surrounds_it_still_decodes(path: Path, name: str) -> None:
    """In bodies, arguments, results, notes, messages, plans, labels, stubs, and what waits in a journal."""
    form, text = FORMS[name], written(FORMS[name])
    call = call_part("sh", "c1", json.dumps({"cmd": f"echo {text}", "n": 1}).encode())
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human(text), Message(role="assistant", parts=(call,)), results(result("c1", f"({text})\n")))
            session.append(reply(f"It says {text}."))
            session.note(f"{text}\nis what it says")
            row = session.ledger()["B3"]
            gone = archived(row, stub=f"[archived {row.handle}: {row.label}]", level=1)
            session.change(subject=f"archive B3: {text}", op="archive", actor="user", rows=[gone])
            action = Action(verb="mask", targets=("B1",), index=text)
            plan = Plan(actions=(action,), actor="user", reason=f"because of {text}")
            pending_plans.put(store, "demo", "main", plan, base_commit=session.tip(), time="2026-01-01T00:00:00Z")
            session.append(human(f"{text} waits"), reply("so", "c2"))
            before = contents(session)
        report = purge.purge(store, PurgeRequest(texts=(ODD,)))
        assert report.forms == ("json", "url", "hex", "base64") and report.short == 0
    search = Scrub(marks={ODD.encode(): b"-"})
    assert not search.has(everything(path))
    assert not any(True for _ in searching.remaining(path, search))
    sound(path)
    with Store(path) as store, StoredSession.open(store, "demo", "main") as session:
        after = contents(session)
    assert before.keys() == after.keys()
    assert before["B4"] != after["B4"] and after["B4"][:8] == b"It says " and after["B4"][-1:] == b"."
    clean = form.decode(after["B4"][8:-1])
    assert re.sub(rb"\[REDACTED:purged:[0-9a-f]{8}\]\.{0,2}", b"|", clean) == b"user:|, and more"


def test_an_encoded_text_leaves_the_request_and_what_an_importer_noted(tmp_path: Path) -> None:
    recording = tmp_path / "log.jsonl"
    token = base64.b64encode(f"me:{ODD}".encode()).decode()
    system = [{"type": "text", "text": f"Authorization: Basic {token}"}]
    tools = [{"name": "t", "description": ODD.encode().hex(), "input_schema": {"type": "object"}}]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "model": "claude-x"}
    request = {
        "model": "claude-x",
        "system": system,
        "tools": tools,
        "messages": [{"role": "user", "content": "hello"}],
    }
    recording.write_text(json.dumps({"request": request, "response": answer}) + "\n")
    with create(tmp_path / ".ctxvc") as store:
        list(import_paths(store, [recording], final=True, redact=False))
        assert Scrub(marks={ODD.encode(): b"-"}).has(everything(store.path))
        purge.purge(store, PurgeRequest(texts=(ODD,)))
    assert not any(True for _ in searching.remaining(tmp_path / ".ctxvc", Scrub(marks={ODD.encode(): b"-"})))
    sound(tmp_path / ".ctxvc")


def test_a_text_that_is_too_short_to_be_looked_for_encoded_is_counted(filled: Path) -> None:
    with Store(filled) as store:
        report = purge.survey(store, PurgeRequest(texts=("plum", SECRET)))
    assert report.short == 1


def test_what_ctxvc_cut_goes_too_where_it_is_encoded(path: Path) -> None:
    text = base64.b64encode(b"the customer is Jane Doe of 12 Elm Street, and she owes us a lot").decode()
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(human("x" * 60 + " the customer is Jane Doe of 12 Elm Street"), reply(f"{text} {text}"))
            row = session.ledger()["B2"]
            gone = archived(row, stub=f"[{row.handle}: {text[:40]}…]")
            session.change(subject=f"archive B2: {text[:50]}…", op="archive", actor="user", rows=[gone])
        purge.purge(store, PurgeRequest(texts=("the customer is Jane Doe of 12 Elm Street",)))
    assert text[:16].encode() not in everything(path)
    sound(path)


# --- outside


def test_files_outside_are_read_and_never_changed(filled: Path, tmp_path: Path) -> None:
    texts = {
        "a.jsonl": json.dumps({"text": SECRET}),
        "b.jsonl": base64.b64encode(f"x{SECRET}".encode()).decode(),
        "c.jsonl": "nothing",
    }
    files = [tmp_path / name for name in texts]
    for file in files:
        file.write_text(texts[file.name])
        file.chmod(0o400)
    with gzip.open(tmp_path / "d.jsonl.gz", "wb") as packed:
        packed.write(SECRET.encode())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(files[0])
    files += [tmp_path / "d.jsonl.gz", tmp_path / "gone", tmp_path / "link", pipe]
    with Store(filled) as store:
        dry = purge.survey(store, PurgeRequest(texts=(SECRET,)), files)
        report = purge.purge(store, PurgeRequest(texts=(SECRET,)), files)
    assert dry.copies == report.copies
    states = {Path(copy.place).name: copy.state for copy in report.copies}
    assert states == {
        "a.jsonl": "has", "b.jsonl": "has", "c.jsonl": "clean", "d.jsonl.gz": "has", "gone": "unknown",
        "link": "unknown", "pipe": "unknown", "": "unknown",
    }  # fmt: skip
    assert {file.name: file.read_text() for file in files[:3]} == texts


def test_a_search_outside_ends_in_time_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 9_000_000 + SECRET.encode())
    ticks = iter(range(100))
    scrub = Scrub(marks={SECRET.encode(): b"-"})
    (large, _) = copies(scrub, [tmp_path / "large"], seconds=2, clock=lambda: next(ticks))
    assert (large.state, large.why) == ("unknown", "the search ran out of time")
    (large, _) = copies(scrub, [tmp_path / "large"])
    assert large.state == "has"


def test_a_purge_makes_the_subject_of_a_step_anew(tmp_path: Path) -> None:
    """A subject may have any part of what is erased: the beginning of a sentence, the end of a path."""
    with create(tmp_path / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            session.append(human("the merger with Ozymandias is on Friday, tell nobody before the press does"))
            session.append(reply("I will not."))
            session.append(human("go on"))
            session.append(reply("Going on."))
        assert "“the merger with Ozymandias is…” · I will not." in git(store.path, "log", "--format=%s", "demo/main")

        purge.purge(store, PurgeRequest(session="demo", blocks=("B1",)))

        subjects = git(store.path, "log", "--format=%s", "demo/main").splitlines()
    assert subjects[0] == "“go on” · Going on."
    assert subjects[1].startswith("“[REDACTED:purged") and subjects[1].endswith("” · I will not.")
