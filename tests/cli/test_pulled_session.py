"""A session that came from another machine: asked, explained, signed; and the page on sharing, played."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.cli.test_sharing import ran, shared
from tests.cli.test_why import link, why
from tests.docs.console import matches, steps
from tests.making.code import LOGIN, commit
from tests.making.project import time
from tests.sharing.clones import everything, signing_key

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "share-sessions.md"
ADDRESS = "git@host:team/sessions.git"


def test_why_knows_on_another_machine_who_wrote_a_line_and_who_ran_the_commit(
    run: Run, app: Path, server: Path, tmp_path: Path
) -> None:
    name = commit(app, {"src/login.py": LOGIN}, at=time(6))
    link(app, name, time(6), host="claude-code", recording="recording-1")
    here = why(run, app, "src/login.py:1")
    ran(run, "remote", "add", server, "--yes", "--i-know", folder=app)
    ran(run, "push", folder=app)
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "-q", str(app), str(elsewhere)], check=True)

    ran(run, "clone", server, folder=elsewhere)

    assert why(run, elsewhere, "src/login.py:1") == here and here["session"] == "work"
    assert why(run, elsewhere, "HEAD")["committed"]["host"] == "claude-code"


def test_a_question_about_a_pulled_session_is_answered_with_valid_citations(
    run: Run, project: Path, server: Path, other: Path, tmp_path: Path
) -> None:
    shared(run, project, server)
    ran(run, "clone", server, folder=other)
    with Store(other / ".ctxvc") as store:
        handle = StoredSession.open(store, "demo").ledger()["B3"].handle
    script = tmp_path / "script.json"
    reads = {"type": "tool_use", "name": "read_block", "input": {"block": "B3"}}
    script.write_text(json.dumps([{"content": [reads]}, {"content": f"It was asked for [{handle}]."}]))
    answered = json.loads(ran(run, "ask", "demo", "why?", "--script", script, "--json", folder=other).stdout)
    assert [(item["exists"], item["was_read"]) for item in answered["items"]] == [(True, True)]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen makes the key")
def test_verify_signs_and_then_checks_only_what_came_after(run: Run, project: Path, tmp_path: Path) -> None:
    signing_key(tmp_path)
    signed = ran(run, "verify", "--sign", "friday", "--session", "demo", folder=project)
    ran(run, "note", "-m", "after friday", "--session", "demo", folder=project)

    since = ran(run, "verify", "--since", "friday", "--json", folder=project)
    whole = ran(run, "verify", "--json", folder=project)

    assert "signed 1 session as friday" in signed.stderr and "anna@example.org" in since.stderr
    assert 0 < json.loads(since.stdout)["commits"] < json.loads(whole.stdout)["commits"]
    for words, code in ((["--sign", "friday"], 1), (["--since", "monday"], 1), (["--sign", "x", "--quick"], 2)):
        refused = run("verify", *words, folder=project)
        assert refused.exit_code == code and refused.stderr
    (tmp_path / "signers").write_text("")
    assert run("verify", "--since", "friday", folder=project).exit_code == 1


def test_the_page_on_sharing_does_what_it_says(
    run: Run, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"content": "Done."}]))
    scripted = ["--yes", "--script", str(script)]
    laptop, desktop = tmp_path / "laptop", tmp_path / "desktop"
    for folder in (laptop, desktop):
        folder.mkdir()
    for name in ("fix-login", "second", "third"):
        ran(run, "run", "mend the login", "--name", name, *scripted, folder=laptop)

    def grow_apart() -> None:
        ran(run, "remote", "add", server, "--yes", folder=desktop)
        ran(run, "push", folder=desktop)
        ran(run, "note", "-m", "the cache was the cause", "--session", "fix-login", folder=laptop)

    def purge() -> None:
        ran(run, "purge", "--text", "mend the login", "--yes", folder=laptop)
        ran(run, "push", "--after-purge", folder=laptop)

    # Where a command of the page is run, and what happens before it by the page's words.
    story = [
        ("remote", laptop, None), ("push", laptop, None), ("clone", desktop, None), ("run", desktop, None),
        ("pull", laptop, grow_apart), ("goto", laptop, None), ("push", laptop, None),
        ("pull", desktop, purge), ("pull", desktop, None), ("push", desktop, None),
    ]  # fmt: skip
    page = [(command, output) for command, output in steps(PAGE) if command.startswith("ctxvc ")]
    for (command, output), (verb, folder, before) in zip(page, story, strict=True):
        if before:
            before()
        words = shlex.split(command.replace(ADDRESS, str(server)))[1:]
        assert words[0] == verb
        words += {"remote": ["--yes"], "run": scripted}.get(verb, [])
        result = run(*words, folder=folder)
        assert result.exit_code == (1 if before is purge else 0), (command, result.stderr)
        text = result.stdout if verb == "run" else result.stderr + result.stdout
        assert matches(output.replace(ADDRESS, str(server)), text), f"$ {command}\n{text}\n--- the page says:\n{output}"
    for path in (laptop, desktop):
        assert b"mend the login" not in everything(path / ".ctxvc")


def test_a_search_says_which_sessions_it_did_not_have_also_offline(
    run: Run, project: Path, app: Path, server: Path
) -> None:
    shared(run, project, server)
    refused = run("grep", "--remote", "assert", folder=app)
    assert refused.exit_code == 1 and "remote add" in refused.stderr
    ran(run, "remote", "add", server, "--yes", "--i-know", "--as", "app", folder=app)
    assert "not searched" not in ran(run, "grep", "--all", "check_password", folder=app).stderr, "nothing is known yet"

    fresh = ran(run, "grep", "--remote", "check_password", folder=app)
    assert "of origin" in fresh.stderr and "demo" in fresh.stderr and "ctxvc pull --only" in fresh.stderr
    server.rename(server.with_name("away"))
    assert "not searched" in ran(run, "grep", "--all", "check_password", folder=app).stderr
    assert "not searched" not in ran(run, "grep", "check_password", folder=app).stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(app / "nowhere"))
        assert "not searched" not in ran(run, "grep", "--all", "check_password", folder=app).stderr
        assert run("grep", "--remote", "check_password", folder=app).exit_code == 1, "neither a network nor a cache"
    nobody = commit(app, {"new.py": "x = 1\n"}, at=time(40))
    unknown = run("why", nobody, folder=app)
    assert unknown.exit_code == 1 and "ctxvc pull --only" in unknown.stderr
    server.with_name("away").rename(server)
    ran(run, "pull", folder=app)
    assert "not searched" not in ran(run, "grep", "--remote", "check_password", folder=app).stderr
