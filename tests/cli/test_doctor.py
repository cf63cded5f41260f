"""`doctor`: each finding with the command that mends it, and none that is not true."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time as clock
from pathlib import Path

import pytest

from ctxvc.claude_code import requests
from ctxvc.core.ledger.ledger import Source
from ctxvc.core.plan import Action, Plan
from ctxvc.recording import git_hooks, log, places
from ctxvc.store import pending_plans
from ctxvc.store.checkout import checkout
from ctxvc.store.git import program as git
from ctxvc.store.log.journal import parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links_inbox as committed
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.purge import purge
from ctxvc.store.secrets import secret_scanner
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.making.conversation import human, reply

Item = dict[str, str]

DAY = 86_400


def items(run: Run, folder: Path, check: str = "", code: int = 0) -> list[Item]:
    result = run("doctor", "--json", folder=folder)
    assert result.exit_code == code, result.stderr
    found: list[Item] = json.loads(result.stdout)["items"]
    assert all(item["mend"] for item in found if item["level"] == "problem")
    return [item for item in found if item["check"].startswith(check)]


def opened(project: Path) -> Store:
    return Store(project / FOLDER)


def line(role: str, text: str, uuid: str, project: Path) -> str:
    before = {"u1": None, "a1": "u1", "u2": "a1", "a2": "u2"}
    content = text if role == "user" else [{"type": "text", "text": text}]
    fields = {
        "parentUuid": before[uuid],
        "isSidechain": False,
        "userType": "external",
        "version": "2.1.0",
        "type": role,
    }
    fields |= {"uuid": uuid, "sessionId": "11111111-aaaa", "timestamp": "2026-03-01T12:00:00Z", "cwd": str(project)}
    message = {"id": f"msg-{uuid}", "role": role, "content": content}
    return json.dumps({**fields, "message": message}, separators=(",", ":"))


@pytest.fixture
def transcript(project: Path) -> Path:
    """What Claude Code has of a session of this project, a day old."""
    folder = Path.home() / ".claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(project.resolve()))
    folder.mkdir(parents=True)
    path = folder / "11111111-aaaa.jsonl"
    path.write_text(line("user", "hi", "u1", project) + "\n" + line("assistant", "yes", "a1", project) + "\n")
    age(path, 1)
    return path


def age(path: Path, days: float) -> None:
    os.utime(path, (clock.time() - days * DAY,) * 2)


def test_a_transcript_that_went_on_after_it_was_taken_is_told_of(run: Run, project: Path, transcript: Path) -> None:
    assert (done := run("import", folder=project)).exit_code == 0, done.output
    assert items(run, project, "transcripts")[0]["level"] == "ok"
    with transcript.open("a") as file:
        file.write('{"type":"last-prompt","lastPrompt":"hi"}\n')
    age(transcript, 1)
    assert items(run, project, "transcripts")[0]["level"] == "ok"  # nothing was said

    with transcript.open("a") as file:
        file.write(line("user", "go on", "u2", project) + "\n" + line("assistant", "done", "a2", project) + "\n")
    age(transcript, 1)

    (told,) = items(run, project, "transcripts")
    assert (told["level"], told["mend"]) == ("note", "ctxvc import")
    assert "continued after the last import" in told["found"] and "in 28 days" in told["found"]
    assert (done := run("import", folder=project)).exit_code == 0, done.output
    assert items(run, project, "transcripts")[0]["level"] == "ok"


@pytest.mark.parametrize(
    ("place", "settings", "days", "level"),
    [
        ("user", '{"cleanupPeriodDays": 5}', "in 3 days", "problem"),
        ("project", '{"cleanupPeriodDays": 99999}', "in 99997 days", "note"),
        ("user", '{"cleanupPeriodDays": "many"}', "in 28 days", "note"),
        ("user", "[]", "in 28 days", "note"),
        ("user", "nonsense", "in 28 days", "note"),
    ],
)
def test_how_long_it_is_there_is_what_the_hosts_settings_say(
    run: Run, project: Path, transcript: Path, place: str, settings: str, days: str, level: str
) -> None:
    folder = (Path.home() if place == "user" else project) / ".claude"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(settings)
    (told,) = items(run, project, "transcripts")
    assert (told["level"], told["mend"]) == (level, "ctxvc import")
    assert days in told["found"]


def test_a_host_that_could_record_by_itself_is_told_of_until_it_does(run: Run, project: Path, transcript: Path) -> None:
    (told,) = items(run, project, "recording")
    assert told["mend"] == "ctxvc install claude-code"

    assert run("install", "claude-code", folder=project).exit_code == 0
    assert items(run, project, "recording") == []
    assert run("install", "claude-code", "--uninstall", folder=project).exit_code == 0
    places.home(project / FOLDER).mkdir()  # hooks ran once, perhaps long ago
    assert len(items(run, project, "recording")) == 1
    places.write(places.status(project / FOLDER, str(transcript)), b"{}")  # a plugin's hooks recorded the newest
    assert items(run, project, "recording") == []
    (Path.home() / ".claude" / "settings.json").write_text('{"enabledPlugins": {"ctxvc@somewhere": true}}')
    places.status(project / FOLDER, str(transcript)).unlink()
    assert items(run, project, "recording") == []


@pytest.mark.parametrize("where", ["--user", "--project"])
@pytest.mark.parametrize("program", ["/gone/bin/ctxvc", "'/gone away/ctxvc'", "~/gone/ctxvc"])
def test_settings_that_call_a_program_that_is_gone_are_a_problem(
    run: Run, project: Path, where: str, program: str
) -> None:
    path = Path(json.loads(run("install", "claude-code", where, "--json", folder=project).stdout)["path"])
    held = json.loads(path.read_text())
    now = held["hooks"]["Stop"][0]["hooks"][0]["command"].removesuffix(" hook Stop")
    path.write_text(path.read_text().replace(now, program))
    (told,) = items(run, project, "recording")
    assert told["level"] == "problem" and str(path) in told["found"] and "gone" in told["found"]
    assert run(*told["mend"].split()[1:], folder=project).exit_code == 0
    assert json.loads(path.read_text()) == held
    assert items(run, project, "recording") == []


def test_a_program_that_only_the_host_knows_is_not_called_gone(run: Run, project: Path) -> None:
    path = project / ".claude" / "settings.json"
    path.parent.mkdir()
    odd = ["$NOWHERE_SET/ctxvc hook Stop", "'ctxvc' hook Stop\0", 7]
    path.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"command": each} for each in odd]}, 7], "X": 7}}))
    assert items(run, project, "recording") == []


def test_hooks_that_are_turned_off_are_a_problem(run: Run, project: Path, transcript: Path) -> None:
    assert run("install", "claude-code", "--user", folder=project).exit_code == 0
    local = project / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text('{"disableAllHooks": true}')
    (told,) = items(run, project, "recording")
    assert told["level"] == "problem" and str(local) in told["found"]
    local.write_text('{"disableAllHooks": false}')
    assert items(run, project, "recording") == []


def test_a_session_that_was_exported_is_not_missing_until_somebody_goes_on_with_it(
    run: Run, project: Path, transcript: Path
) -> None:
    assert run("import", folder=project).exit_code == 0
    result = run("export", "--format", "claude-code", "--install", "--session", "claude-11111111", folder=project)
    assert result.exit_code == 0, result.output
    assert items(run, project, "transcripts")[0]["found"].startswith("2 recorded sessions")
    assert items(run, project, "transcripts")[0]["level"] == "ok"
    (exported,) = [path for path in transcript.parent.iterdir() if path != transcript]
    with exported.open("a") as file:
        file.write(line("user", "go on", "u2", project).replace("11111111-aaaa", exported.stem) + "\n")
    assert "1 of 2 recorded sessions" in items(run, project, "transcripts")[0]["found"]


# --- the store


@pytest.mark.parametrize("at", [6, -20])
def test_a_damaged_record_is_told_once_and_fails_verify_until_it_is_taken_as_lost(
    run: Run, project: Path, at: int
) -> None:
    journal = project / FOLDER / "ctxvc" / "journal" / "demo"
    frames, _ = parse(journal.read_bytes())
    data = bytearray(journal.read_bytes())
    data[(frames[-1].start if at > 0 else frames[-1].end) + at] ^= 4
    journal.write_bytes(data)

    first, second = (run("status", "--session", "demo", folder=project) for _ in range(2))
    assert first.exit_code == second.exit_code == 0
    assert "bytes of the journal of session demo" in first.stderr and "doctor --repair" in first.stderr
    assert "are kept aside" not in first.stderr, "who only looks keeps nothing"
    assert second.stderr == ""
    assert run("note", "-m", "it goes on", "--session", "demo", folder=project).exit_code == 0
    assert run("status", "--session", "demo", folder=project).stderr == ""
    for command in ("verify", "doctor"):
        assert run(command, folder=project).exit_code == 3

    repaired = run("doctor", "--repair", "--json", folder=project)

    assert repaired.exit_code == 0, repaired.output
    (item,) = [item for item in json.loads(repaired.stdout)["items"] if item["check"] == "repair"]
    assert (item["level"], "treated as lost" in item["found"]) == ("note", True)
    assert run("verify", folder=project).exit_code == 0
    assert len(list(journal.parent.glob("demo~unreadable-*.accepted"))) == 1
    assert "no losses: every journal can be read" in run("doctor", "--repair", folder=project).stdout


def test_a_journal_without_a_head_costs_one_session_until_it_is_repaired(run: Run, project: Path) -> None:
    """Others are listed and searched and the store is packed; each such command names it and ends with 3."""
    with opened(project) as store:
        store.create_session("other")
        with StoredSession.open(store, "other") as session:
            session.append(human("zebra crossing"))
            session.append(reply("all of it"))
        with StoredSession.open(store, "demo") as session:
            session.note("zebra crossing, too")
            session.leave()
    journal = project / FOLDER / "ctxvc" / "journal" / "demo"
    assert len(parse(journal.read_bytes())[0]) > 1
    journal.write_bytes(b"\xff" * 20 + journal.read_bytes()[20:])

    listed = run("sessions", "--json", folder=project)
    searched = run("grep", "zebra", "--all", "--session", "other", "--json", folder=project)
    packed = run("gc", "--json", folder=project)

    for answer in (listed, searched, packed):
        assert answer.exit_code == 3
        assert "journal demo: the header is unreadable" in answer.stderr and "doctor --repair" in answer.stderr
    assert "other" in [item["name"] for item in json.loads(listed.stdout)["items"]]
    assert [item["session"] for item in json.loads(searched.stdout)["items"]] == ["other"]
    assert json.loads(packed.stdout)["packs_after"] == 1
    assert run("doctor", "--repair", folder=project).exit_code == 0
    for arguments in (("sessions",), ("gc",), ("verify",)):
        assert run(*arguments, folder=project).exit_code == 0
    again = json.loads(run("grep", "zebra", "--all", "--json", folder=project).stdout)["items"]
    assert {item["session"] for item in again} == {"demo", "other"}


def test_what_others_may_read_or_change_is_told(run: Run, project: Path) -> None:
    store = project / FOLDER
    assert items(run, project, "permissions") == []
    key = store / "ctxvc" / "secrets" / "key"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_bytes(b"k" * 32)
    key.chmod(0o644)
    (store / "ctxvc").chmod(0o777)

    (told,) = items(run, project, "permissions")
    assert (told["level"], "ctxvc (0777), ctxvc/secrets/key (0644)" in told["found"]) == ("note", True)
    store.chmod(0o755)
    (told,) = items(run, project, "permissions")
    assert told["level"] == "problem"

    subprocess.run(told["mend"], shell=True, check=True)
    assert items(run, project, "permissions") == []


def test_a_setting_that_nobody_reads_is_told(run: Run, project: Path) -> None:
    git.run(project / FOLDER, "config", "ctxvc.redcat", "false")
    (told,) = items(run, project, "settings")
    assert "did you mean ctxvc.redact?" in told["found"]
    subprocess.run(told["mend"], shell=True, check=True)
    assert items(run, project, "settings") == []


def test_plans_that_wait_are_told_of(run: Run, project: Path) -> None:
    with opened(project) as store:
        plan = Plan(actions=(Action(verb="archive", targets=("B4",)),), reason="a look", actor="user")
        pending_plans.put(
            store, "demo", "main", plan, base_commit=store.tips("demo")["main"], time="2026-03-01T12:00:00Z"
        )
    (told,) = [item for item in items(run, project, "session demo") if "plan" in item["found"]]
    assert "P1" in told["found"]
    assert run(*told["mend"].split()[1:], folder=project).exit_code == 0


def test_checkouts_are_looked_at(run: Run, project: Path, tmp_path: Path) -> None:
    with opened(project) as store:
        folder = Path(checkout(store, "demo", "main", tmp_path / "out").path)
        gone = Path(checkout(store, "branched", "main", tmp_path / "gone").path)
    assert [item["level"] for item in items(run, project, "checkouts")] == ["ok"]

    subprocess.run(["rm", "-r", str(gone)], check=True)
    (folder / "mine.txt").write_text("a person's")

    mends = {item["found"]: item["mend"] for item in items(run, project, "checkouts")}
    assert len(mends) == 2
    for mend in mends.values():
        subprocess.run(mend, shell=True, check=True, capture_output=True)
    assert [item["level"] for item in items(run, project, "checkouts")] == ["ok"]


def test_what_another_machine_left_for_itself_is_told_of_and_goes_by_the_command_alone(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = project / FOLDER
    requests.post(store, requests.Request("Stop", "/t/a.jsonl"))
    requests.set_aside(store, requests.Request("Stop", "/t/b.jsonl"))
    committed.post(store, CodeCommit("a" * 40, "/t", "2026-03-01T12:00:00Z"))
    monkeypatch.setenv("HOME", str(tmp_path))

    told = items(run, project, "hooks")
    assert [item["found"].partition(" made")[0].partition(" noted")[0] for item in told] == [
        "2 requests",
        "1 code commit",
    ]
    assert items(run, project, "hooks") == told
    assert run("why", "HEAD", folder=project).exit_code in (0, 1) and items(run, project, "hooks") == told
    for item in told:
        subprocess.run(item["mend"].removeprefix("ctxvc import; "), shell=True, check=True)
    assert [item["level"] for item in items(run, project, "hooks")] == ["ok"]


def test_a_hook_that_the_store_brought_is_told_of_and_not_run_by_what_is_advised(
    run: Run, project: Path, tmp_path: Path
) -> None:
    assert run("checkout", "demo/main", tmp_path / "out", folder=project).exit_code == 0
    assert run("install", "git-hooks", folder=project).exit_code == 0
    assert items(run, project, "git hooks") == []
    for name in ("post-checkout", "reference-transaction", "unused.sample"):
        hook = project / FOLDER / "hooks" / name
        hook.unlink(missing_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(tmp_path / 'ran'))}\n")
        hook.chmod(0o755)
    (tmp_path / "out" / "mine.txt").write_text("a person's")

    (told,) = items(run, project, "git hooks")
    assert told["found"].endswith("not ctxvc's: post-checkout, reference-transaction")
    (changed,) = [item for item in items(run, project, "checkouts") if item["level"] == "note"]
    subprocess.run(changed["mend"], shell=True, check=True, capture_output=True)
    assert not (tmp_path / "out" / "mine.txt").exists() and not (tmp_path / "ran").exists()
    subprocess.run(changed["mend"].replace("-c core.hooksPath=/dev/null", ""), shell=True, check=True)
    assert (tmp_path / "ran").exists()


def test_a_purge_is_not_forgotten(run: Run, project: Path) -> None:
    assert items(run, project, "purged") == []
    with opened(project) as store:
        purge.purge(store, purge.PurgeRequest(texts=("careful engineer",)))
    (told,) = items(run, project, "purged")
    assert told["level"] == "note" and "1 purge" in told["found"]


def test_hooks_that_are_missing_are_told_of_and_those_that_call_a_program_that_is_gone_are_a_problem(
    run: Run, project: Path
) -> None:
    git.run(project / FOLDER, "remote", "add", "origin", "/somewhere")
    assert [(item["level"], item["mend"]) for item in items(run, project, "git hooks")] == [
        ("note", "ctxvc install git-hooks")
    ]
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    for what in (git_hooks.PROJECT, git_hooks.STORE):
        assert run("install", what, folder=project).exit_code == 0
    for path in (project / ".git" / "hooks" / "post-commit", project / FOLDER / "hooks" / "pre-push"):
        path.write_text(path.read_text().replace("program=", "program=/gone/"))

    told = items(run, project, "git hooks")

    assert [(item["level"], item["mend"]) for item in told] == [
        ("problem", "ctxvc install git-hooks"),
        ("problem", "ctxvc install post-commit"),
    ]
    for item in told:
        assert run(*item["mend"].split()[1:], folder=project).exit_code == 0
    assert [item["level"] for item in items(run, project, "git hooks")] == ["ok"]


def test_what_hooks_could_tell_nobody_is_told_here(run: Run, project: Path) -> None:
    store = project / FOLDER
    committed.post(store, CodeCommit("ab" * 20, str(project), "2026-03-01T12:00:30Z", head="refs/heads/demo/main"))
    log.note(store, "post-commit", "the disk is \x1b[2J full")
    entry, waiting = items(run, project, "hooks")
    assert "1 code commit not linked" in waiting["found"] and waiting["mend"].startswith("ctxvc why")
    assert "\x1b" not in run("doctor", folder=project).stdout and "the disk is" in entry["found"]


def test_who_looks_for_secrets_is_told(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_it(name: str, value: str) -> Item:
        git.run(project / FOLDER, "config", name, value)
        (told,) = items(run, project, "secrets")
        return told

    assert [item["level"] for item in items(run, project, "secrets")] == ["ok"]
    monkeypatch.setattr(secret_scanner, "installed", lambda: "1.5.0")
    assert "kingfisher 1.5.0" in set_it(secret_scanner.SETTING, secret_scanner.KINGFISHER)["found"]
    monkeypatch.setattr(secret_scanner, "installed", lambda: "")
    missing = set_it(secret_scanner.SETTING, secret_scanner.KINGFISHER)
    assert (missing["level"], missing["mend"]) == ("problem", "pip install 'ctxvc[secrets]'")

    for told in (set_it(secret_scanner.SETTING, "osprey"), set_it("ctxvc.redact", "false")):
        assert told["level"] != "ok"
        subprocess.run(told["mend"], shell=True, check=True)
        git.run(project / FOLDER, "config", "--unset", secret_scanner.SETTING, check=False)

    assert [item["level"] for item in items(run, project, "secrets")] == ["ok"]


def test_a_damaged_vocabulary_is_a_problem(
    run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.xz").write_bytes(b"no words")
    monkeypatch.setattr("ctxvc.tokens.count.VOCABULARY", tmp_path / "words.xz")
    (told,) = items(run, project, "tokenizer")
    assert told["level"] == "problem"


@pytest.mark.parametrize(
    ("form", "mend", "adds"),
    [("claude-code", "ctxvc import --final", False), ("claude-code-live", "", True), ("", "", False)],
)
def test_an_open_step_has_the_advice_of_how_it_was_recorded(
    run: Run, project: Path, form: str, mend: str, adds: bool
) -> None:
    with opened(project) as store:
        source = Source(format=form, id="11111111-aaaa") if form else None
        store.create_session("open", source=source)
        with StoredSession.open(store, "open") as stored:
            stored.append(human("Go."))
            stored.append(reply("", "t1"))

    (told,) = items(run, project, "session open")

    assert told["mend"] == mend
    assert ("the agent's next request completes it" in told["found"]) == adds
