"""`remote`, `push`, `pull`, `clone`, `unshare` and `sessions --remote`, as people use them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import Result

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.sharing.clones import everything, refs


def ran(run: Run, *arguments: str | Path, folder: Path) -> Result:
    result = run(*arguments, folder=folder)
    assert result.exit_code == 0, result.stderr
    return result


def shared(run: Run, project: Path, server: Path) -> None:
    ran(run, "remote", "add", server, "--as", "laptop", "--yes", folder=project)
    ran(run, "push", folder=project)


def test_sessions_go_to_another_machine_and_a_run_goes_on_there(
    run: Run, project: Path, server: Path, other: Path, tmp_path: Path
) -> None:
    spoken = tmp_path / "spoken.json"
    spoken.write_text(json.dumps([{"content": "Done."}]))
    ran(run, "run", "first", "--name", "task", "--yes", "--script", spoken, folder=project)
    shared(run, project, server)

    cloned = ran(run, "clone", server, "--as", "desktop", "--since", "2 hours ago", folder=other)
    resumed = ran(run, "run", "and on", "--resume", "task", "--yes", "--script", spoken, folder=other)

    assert "of laptop" in cloned.stdout and "Done." in resumed.stdout
    assert "demo" not in cloned.stdout, "its newest commit is months old"
    refused = run("push", folder=other)
    assert refused.exit_code == 1 and "remote add" in refused.stderr
    ran(run, "remote", "add", server, "--yes", folder=other)
    ran(run, "push", folder=other)
    assert set(refs(server)) == {"refs/ctxvc/w/laptop", "refs/ctxvc/w/desktop"}
    assert "task: main of desktop" in ran(run, "pull", folder=project).stdout
    assert "and on" in ran(run, "log", "--session", "task", folder=project).stdout


def test_a_name_that_another_store_has_on_a_remote_is_refused(
    run: Run, project: Path, server: Path, other: Path
) -> None:
    shared(run, project, server)
    ran(run, "init", folder=other)

    refused = run("remote", "add", server, "--as", "laptop", "--yes", folder=other)
    assert refused.exit_code == 1 and "another store pushes to origin as laptop" in refused.stderr
    assert "no remotes" in ran(run, "remote", folder=other).stdout
    ran(run, "remote", "add", server, "--as", "desktop", "--yes", folder=other)

    # A store knows what it pushed itself, also where it has forgotten the remote.
    for forgets in (False, True):
        if forgets:
            ran(run, "remote", "remove", "origin", folder=project)
        ran(run, "remote", "add", server, "--yes", folder=project)
        ran(run, "pull", folder=project)
        ran(run, "push", folder=project)


@pytest.mark.slow
def test_everybodys_sessions_are_listed_without_fetching_them(
    run: Run, project: Path, server: Path, other: Path
) -> None:
    shared(run, project, server)
    ran(run, "init", folder=other)
    ran(run, "remote", "add", server, "--yes", folder=other)

    items = json.loads(ran(run, "sessions", "--remote", "--json", folder=other).stdout)["items"]

    assert {item["state"] for item in items} == {"not here"} and items[0]["clones"] == ["laptop"]
    assert not json.loads(ran(run, "sessions", "--json", folder=other).stdout)["items"]
    ran(run, "pull", "--only", items[0]["name"], folder=other)
    again = json.loads(ran(run, "sessions", "--remote", "--json", folder=other).stdout)["items"]
    assert [item["state"] for item in again if item["name"] == items[0]["name"]] == ["here"]
    server.rename(server.with_name("away"))
    assert run("sessions", "--remote", folder=other).exit_code == 1


def test_nobody_is_advised_to_pull_what_was_purged_here(run: Run, project: Path, server: Path) -> None:
    shared(run, project, server)
    ran(run, "sessions", "--remote", folder=project)
    ran(run, "purge", "--text", "careful engineer", "--yes", folder=project)

    result = run("grep", "--all", "careful engineer", folder=project)
    assert "not searched" not in result.stderr and "ctxvc pull" not in result.stderr
    listed = ran(run, "sessions", "--remote", folder=project)
    assert "purged here" in listed.stdout and "ctxvc pull" not in listed.stderr


def test_a_path_is_the_same_remote_from_every_folder(run: Run, project: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "near.git")], check=True)
    (project / "src").mkdir()
    ran(run, "remote", "add", "origin", "../near.git", "--yes", folder=project)  # as git has it
    ran(run, "push", folder=project / "src")
    assert json.loads(ran(run, "remote", "--json", folder=project).stdout)["items"][0]["address"] == str(
        tmp_path / "near.git"
    )


def test_a_bundle_fills_a_new_store(run: Run, project: Path, other: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "x.bundle"
    subprocess.run(
        ["git", f"--git-dir={project / '.ctxvc'}", "bundle", "create", "-q", str(bundle), "--all"], check=True
    )
    cloned = ran(run, "clone", bundle, folder=other)
    assert "demo" in cloned.stdout and ran(run, "verify", folder=other).exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["remote", "add"], 2),
        (["remote", "add", "a", "/nowhere/x.git", "--name", "b", "--yes"], 2),
        (["remote", "remove", "a", "b"], 2),
        (["remote", "frobnicate"], 2),
        (["remote", "remove", "nobody"], 1),
        (["remote", "add", "ext::sh -c true", "--yes"], 1),
        (["remote", "add", "/nowhere/x.git", "--yes"], 1),
        (["push"], 1),
        (["pull", "nobody"], 1),
        (["unshare", "nobody"], 1),
        (["sessions", "--remote"], 1),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(run: Run, project: Path, words: list[str], code: int) -> None:
    result = run(*words, folder=project)
    assert result.exit_code == code and result.stderr and "Traceback" not in result.stderr


def test_nothing_is_added_without_consent(run: Run, project: Path, server: Path) -> None:
    result = run("remote", "add", server, folder=project)
    assert result.exit_code == 1 and "--yes" in result.stderr
    assert "no remotes" in ran(run, "remote", folder=project).stdout


def test_the_projects_own_code_repository_is_refused(run: Run, project: Path, server: Path) -> None:
    for arguments in (["init", "-q"], ["remote", "add", "origin", str(server)]):
        subprocess.run(["git", "-C", str(project), *arguments], check=True)
    refused = run("remote", "add", server, "--yes", folder=project)
    assert refused.exit_code == 1 and "own code" in refused.stderr and "--i-know" in refused.stderr
    ran(run, "remote", "add", server, "--yes", "--i-know", folder=project)


def test_a_failed_clone_leaves_no_store(run: Run, other: Path) -> None:
    assert run("clone", "/nowhere/x.git", folder=other).exit_code == 1
    assert not (other / ".ctxvc").exists()


def test_what_a_bundle_has_comes_back_into_its_store(run: Run, project: Path, other: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "demo.bundle"
    ran(run, "export", "--format", "bundle", "-o", bundle, folder=project)
    assert json.loads(ran(run, "import", bundle, "--json", folder=project).stdout)["items"][0]["created"] is False

    before = ran(run, "prompt", folder=project).stdout
    removed = tmp_path / "removed.bundle"
    ran(run, "gc", "--max-size", "1", "--yes", "--bundle", removed, folder=project)
    assert Store(project / ".ctxvc").sessions() == []
    items = json.loads(ran(run, "import", removed, "--json", folder=project).stdout)["items"]
    assert {(item["created"], item["format"]) for item in items} == {(True, "bundle")}
    assert "demo" in {item["session"] for item in items}
    assert ran(run, "prompt", "demo/main", folder=project).stdout == before
    assert ran(run, "verify", folder=project).exit_code == 0

    ran(run, "--session", "demo", "note", "-m", "it went on", folder=project)
    refused = run("import", bundle, folder=project)
    assert refused.exit_code == 1 and "not as it is there" in refused.stderr


def test_a_bundle_brings_back_nothing_that_was_purged_and_nothing_damaged(
    run: Run, project: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "demo.bundle"
    ran(run, "export", "--format", "bundle", "-o", bundle, folder=project)
    ran(run, "purge", "--text", "careful engineer", "--yes", folder=project)
    ran(run, "gc", "--max-size", "1", "--yes", folder=project)
    refused = run("import", bundle, folder=project)
    assert refused.exit_code == 1 and "purge erased" in refused.stderr
    assert b"careful engineer" not in everything(project / ".ctxvc")

    damaged = tmp_path / "damaged.bundle"
    damaged.write_bytes(bundle.read_bytes()[:-400])
    assert run("import", damaged, folder=project).exit_code == 1
    assert run("export", "--format", "bundle", folder=project).exit_code == 2


def test_a_session_of_a_remote_is_shown_without_being_pulled(
    run: Run, project: Path, server: Path, other: Path
) -> None:
    shared(run, project, server)
    here = ran(run, "show", "B2", "--raw", folder=project).stdout
    ran(run, "init", folder=other)
    ran(run, "remote", "add", server, "--as", "desktop", "--yes", folder=other)

    assert "B2\t" in ran(run, "show", "demo", "--remote", folder=other).stdout
    shown = ran(run, "show", "demo/main:B2", "--remote", folder=other).stdout
    assert "in\tdemo/main, step" in shown and here in shown
    assert ran(run, "show", "demo:B2", "--raw", "--remote", "origin", folder=other).stdout == here
    assert ran(run, "show", "B2", "--raw", "--session", "demo", "--remote", folder=other).stdout == here
    with Store(other / ".ctxvc") as store:
        assert not store.sessions()

    for words, code, expected in (
        (["demo:B99999"], 1, "no block"), (["B2"], 1, "names no session"), (["dem"], 1, "did you mean"),
        (["demo", "--raw"], 1, "is not a block"), ([], 2, "name a session"),
    ):  # fmt: skip
        result = run("show", *words, "--remote", folder=other)
        assert result.exit_code == code and expected in result.stderr, result.stderr


def test_a_question_about_a_remote_is_about_its_sessions_alone(
    run: Run, project: Path, server: Path, tmp_path: Path
) -> None:
    for name in ("task", "later"):
        spoken = tmp_path / "spoken.json"
        spoken.write_text(json.dumps([{"content": f"A mongoose, {name}."}]))
        ran(run, "run", "what is it?", "--name", name, "--yes", "--script", spoken, folder=project)
        if name == "task":
            shared(run, project, server)
    search = {"type": "tool_use", "name": "search_sessions", "input": {"query": "mongoose"}}
    spoken.write_text(json.dumps([{"content": [search]}, {"content": "No."}, {"content": "No."}]))

    for options, sessions in ((("--remote", "origin"), {"task"}), (("--all",), {"task", "later"})):
        asked = run("ask", "a mongoose?", *options, "--script", spoken, "--json", folder=project)
        assert asked.exit_code == 1, "it cites nothing"
        with Store(project / ".ctxvc") as store:
            stored = StoredSession.for_reading(store, json.loads(asked.stdout)["session"])
            read = b"\n".join(stored.body(row, "main") for row in stored.ledger("main").rows()).decode()
        assert set(re.findall(r"^\[(\w+)/main:B", read, re.MULTILINE)) & {"task", "later"} == sessions
    assert run("ask", "a mongoose?", "--remote", "nowhere", "--script", spoken, folder=project).exit_code == 1
