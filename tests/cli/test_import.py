"""`init`, `import`, `sessions`: from nothing to sessions in a store."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from ctxvc.cli.commands import demo
from ctxvc.importers import FORMATS
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import known_stores
from tests.cli.conftest import Run
from tests.making.conversation import injected, reply

MESSAGES = [{"role": "user", "content": "Add a login"}, {"role": "assistant", "content": "Done."}]


def transcript(folder: Path, name: str, lines: int = 2, cwd: str = "/src") -> Path:
    """A Claude Code transcript of a question and an answer, cut after so many lines."""
    common = {"isSidechain": False, "sessionId": name, "cwd": cwd, "version": "2.1.0", "gitBranch": "main"}
    asked = {"type": "user", "uuid": f"{name}-1", "parentUuid": None, "timestamp": "2026-03-01T12:00:00Z"}
    replied = {"type": "assistant", "uuid": f"{name}-2", "parentUuid": f"{name}-1", "timestamp": "2026-03-01T12:00:05Z"}
    answer = {
        "id": "m1",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": [{"type": "text", "text": "Done."}],
    }
    told = [{**common, **asked, "message": MESSAGES[0]}, {**common, **replied, "message": answer}]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in told[:lines]))
    return path


def test_init_makes_a_private_store_that_the_project_does_not_see(run: Run, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    result = run("init", folder=tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"created a store at {tmp_path}/.ctxvc\n")
    assert (tmp_path / ".ctxvc").stat().st_mode & 0o777 == 0o700
    status = subprocess.run(["git", "-C", str(tmp_path), "status", "--porcelain"], capture_output=True, check=True)
    assert status.stdout == b""


def test_init_again_changes_nothing_and_says_so(run: Run, project: Path) -> None:
    before = sorted((path, path.stat().st_mtime) for path in (project / ".ctxvc").rglob("*") if path.is_file())
    result = run("init", folder=project)
    assert (result.exit_code, result.stdout) == (0, f"a store already exists at {project}/.ctxvc\n")
    assert before == sorted((path, path.stat().st_mtime) for path in (project / ".ctxvc").rglob("*") if path.is_file())


def test_init_completes_a_bare_clone_of_a_store_and_reading_says_that_it_must(
    run: Run, project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    path = folder / ".ctxvc"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(project / ".ctxvc"), str(path)], check=True)

    refused = run("log", folder=folder)
    assert refused.exit_code == 1
    assert refused.stderr.splitlines() == [
        f"ctxvc: {path} is a git repository but not a ctxvc store",
        "hint: if it is a clone of a store, `ctxvc init` completes it",
    ]
    result = run("init", folder=folder)
    assert (result.exit_code, result.stdout) == (0, f"completed the clone of a store at {path}\n")
    assert path.stat().st_mode & 0o777 == 0o700
    commits, there = (json.loads(run("log", "--json", folder=place).stdout)["items"] for place in (folder, project))
    assert commits == there
    assert run("verify", folder=folder).exit_code == 0
    assert run("note", "-m", "here, too", folder=folder).exit_code == 0


def test_init_makes_no_store_of_what_something_else_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / ".ctxvc"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    result = run("init", folder=tmp_path)
    assert (result.exit_code, "is not empty" in result.stderr) == (1, True)
    assert (path / "notes.txt").read_text() == "mine"

    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    before = (path / "config").read_bytes()
    result = run("init", folder=tmp_path)
    assert (result.exit_code, "not a ctxvc store" in result.stderr) == (1, True)
    assert (path / "config").read_bytes() == before


def test_init_takes_a_folder_or_ctxvc_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("init", "deep/er", folder=tmp_path).exit_code == 0
    assert (tmp_path / "deep" / "er" / ".ctxvc" / "HEAD").exists()
    monkeypatch.setenv("CTXVC_STORE", str(tmp_path / "elsewhere"))
    assert run("init", folder=tmp_path).exit_code == 0
    assert (tmp_path / "elsewhere" / "HEAD").exists()


def test_import_makes_a_store_at_the_projects_root_and_says_so(run: Run, tmp_path: Path, recording: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    below = tmp_path / "src" / "app"
    below.mkdir(parents=True)
    result = run("import", recording, folder=below)
    assert result.exit_code == 0
    assert f"created a store at {tmp_path}/.ctxvc" in result.stderr
    assert run("sessions", folder=below).stdout.count("\n") == 2


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A linked worktree of the project `main` beside it."""

    def git(*arguments: str) -> None:
        settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, "-C", str(tmp_path / "main"), *arguments], check=True, capture_output=True)

    (tmp_path / "main").mkdir()
    git("init", "--quiet")
    git("commit", "--allow-empty", "--quiet", "-m", "first")
    git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    return tmp_path / "linked"


def test_import_in_the_main_worktree_takes_what_was_recorded_in_linked_ones(
    run: Run, tmp_path: Path, linked: Path
) -> None:
    folder = Path.home() / ".claude" / "projects" / re.sub("[^A-Za-z0-9]", "-", str(linked.resolve()))
    transcript(folder, "33333333-cccc", cwd=str(linked))
    answer = json.loads(run("import", "--final", "--json", folder=tmp_path / "main").stdout)
    assert [item["format"] for item in answer["items"]] == ["claude-code"]
    (linked / ".git").write_text(f"gitdir: {tmp_path}/another/.git/worktrees/linked\n")
    result = run("import", "--final", "--json", folder=tmp_path / "main")
    assert result.exit_code == 1, "it names another project, so it is no worktree of this one"


def test_import_without_paths_takes_this_projects_sessions(run: Run, tmp_path: Path) -> None:
    project = tmp_path / "my-project"
    project.mkdir()
    folder = Path.home() / ".claude" / "projects" / str(project.resolve()).replace("/", "-").replace("_", "-")
    transcript(folder, "11111111-aaaa", cwd=str(project))
    transcript(folder, "22222222-bbbb", cwd=str(project))

    result = run("import", "--final", "--json", folder=project)

    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert str(folder) in answer["looked"]
    assert [item["format"] for item in answer["items"]] == ["claude-code"] * 2
    assert {item["path"] for item in answer["items"]} == {str(path) for path in folder.iterdir()}


def test_import_without_paths_and_without_recordings_says_where_it_looked(run: Run, tmp_path: Path) -> None:
    result = run("import", folder=tmp_path)
    assert result.exit_code == 1
    assert "no recorded session" in result.stderr
    assert f"/.claude/projects/{str(tmp_path).replace('/', '-').replace('_', '-')}," in "".join(result.stderr.split())
    assert "ctxvc import FILE" in result.stderr
    assert not (tmp_path / ".ctxvc").exists()


def test_a_second_import_takes_only_what_is_new_and_what_waits_in_an_open_step_is_told(
    run: Run, tmp_path: Path
) -> None:
    path = transcript(tmp_path / "in", "s1", lines=1)
    run("init", folder=tmp_path)
    assert "new\t" in run("import", path, folder=tmp_path).stdout

    transcript(tmp_path / "in", "s1", lines=2)
    assert "updated\t1\t" in run("import", "--final", path, folder=tmp_path).stdout
    assert "nothing new\t0\t" in run("import", path, folder=tmp_path).stdout
    assert json.loads(run("sessions", "--json", folder=tmp_path).stdout)["items"][0]["blocks"] == 2

    path = transcript(tmp_path / "in", "s2", lines=2)
    told = run("import", path, folder=tmp_path).stderr
    assert told.startswith("2 messages of a last step not imported yet, since a file may still grow: ")
    assert "--final takes it now" in told
    assert json.loads(run("import", path, "--json", folder=tmp_path).stdout)["items"][0]["waiting"] == 2
    assert json.loads(run("import", path, "--final", "--json", folder=tmp_path).stdout)["items"][0]["waiting"] == 0


def test_a_bad_file_does_not_stop_the_others_and_ends_with_1(run: Run, tmp_path: Path, recording: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"\xff\xfe\x00 no transcript")
    result = run("import", bad, recording, tmp_path / "missing.jsonl", folder=tmp_path)
    assert result.exit_code == 1
    assert result.stdout.count("failed\t") == 2
    assert result.stdout.count("new\t") == 1
    assert f"failed: {bad}: " in result.stderr
    assert "missing.jsonl" in result.stderr


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        ({"history": [{"role": "human", "content": "x"}, {"role": "Orchestrator (thought)", "content": "y"}]}, FORMATS),
        ({"0": {"environment": "e", "query": "x", "turn_history": {"actions": [], "observations": []}}}, FORMATS),
        (
            {
                "version": 2,
                "status": "success",
                "eval": {},
                "samples": [{"messages": [{"role": "user", "content": "x"}]}],
            },
            FORMATS,
        ),
        ("", ["it.json: the file is empty (hint: its program has written nothing to it yet)"]),
        (None, ["no such file"]),
        ((), ["no transcript"]),
        (os.mkfifo, ["it.json is not a file"]),
    ],
    ids=["who-when", "intercode", "inspect-ai", "empty", "nothing", "folder", "pipe"],
)
def test_what_is_no_recording_is_refused_with_what_would_be_one(
    run: Run, tmp_path: Path, content: object, reasons: Iterable[str]
) -> None:
    path = tmp_path / "it.json"
    if content == ():
        path.mkdir()
    elif content is os.mkfifo:
        os.mkfifo(path)
    elif content is not None:
        path.write_text(json.dumps(content, indent=4) if content else "")
    result = run("import", path, folder=tmp_path)
    assert result.exit_code == 1
    assert ("not a transcript in a known format" in result.stderr) == (reasons is FORMATS)
    assert all(reason in result.stderr for reason in reasons)
    assert content is not None or not list(tmp_path.iterdir()), "a store was made"


def test_of_a_folder_the_known_files_are_taken(run: Run, tmp_path: Path) -> None:
    transcript(tmp_path / "in", "s1")
    transcript(tmp_path / "in" / "deeper", "s2")
    (tmp_path / "in" / "package.json").write_text('{"name":"x"}')
    (tmp_path / "in" / "notes.txt").write_text("mine")
    os.mkfifo(tmp_path / "in" / "pipe.jsonl")
    (tmp_path / "in" / ".settings.json").write_text("{}")
    (tmp_path / "in" / "tsconfig.json").write_text("{}")
    (tmp_path / "in" / "vectors.json").write_text("{}")
    result = run("import", "--final", "--json", tmp_path / "in", folder=tmp_path)
    assert result.exit_code == 0
    skipped = ", ".join(str(tmp_path / "in" / name) for name in ("package.json", "tsconfig.json"))
    assert f"skipped 3 files in no known format: {skipped} and 1 more\n" in result.stderr
    assert len(json.loads(result.stdout)["items"]) == 2


def test_a_name_and_a_format_can_be_given(run: Run, tmp_path: Path, recording: Path) -> None:
    result = run("import", "--name", "login", "--format", "openai-chat", recording, folder=tmp_path)
    assert result.stdout.splitlines()[1].split("\t")[0] == "login"
    assert run("--session", "login", "show", "--raw", "B2", folder=tmp_path).stdout == "yes"


def test_paths_are_meant_from_the_folder_of_c(run: Run, tmp_path: Path, recording: Path) -> None:
    assert run("import", recording.name, folder=tmp_path).exit_code == 0
    assert run("export", "-o", "out.json", folder=tmp_path).exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())["messages"]


def test_c_comes_before_ctxvc_store_and_that_before_the_working_folder(
    run: Run, tmp_path: Path, recording: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("import", "--name", "here", recording, folder=tmp_path)
    monkeypatch.setenv("CTXVC_STORE", str(tmp_path / ".ctxvc"))
    monkeypatch.chdir(project)
    assert "here" in run("sessions").stdout
    assert "demo" in run("sessions", folder=project).stdout
    assert "demo" in run("sessions", "-C", str(project)).stdout
    monkeypatch.delenv("CTXVC_STORE")
    assert "demo" in run("sessions").stdout


def test_export_leaves_a_file_whole_or_as_it_was(run: Run, project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")

    assert run("export", "step:99", "-o", out, folder=project).exit_code == 1
    assert out.read_text() == "old"
    assert run("export", "-o", out, folder=project).exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert json.loads(out.read_text())["system"] == "You are a careful engineer."
    result = run("export", "-o", tmp_path / "no" / "where.json", folder=project)
    assert (result.exit_code, "there is no such folder" in result.stderr) == (1, True)
    assert "hint: make the folder first" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".out")) == []


def test_the_demos_run_through_and_the_agents_stays_in_its_budget(run: Run, tmp_path: Path) -> None:
    result = run("demo", tmp_path / "demo")

    assert result.exit_code == 0, result.stderr
    assert demo.SESSION.exists()
    assert (tmp_path / "demo" / ".ctxvc" / "HEAD").exists()
    assert run("verify", folder=tmp_path / "demo").exit_code == 0
    assert tmp_path / "demo" / ".ctxvc" not in known_stores.paths(), "it is no project's"

    told = run("demo", "--agent", tmp_path / "agent")

    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("scripted: ")
    linear, managed = (int(words.replace(",", "")) for words in re.findall(r"largest prompt ([0-9,]+)", told.stdout))
    assert managed < 16_000 < linear
    assert "git fsck --full --strict: clean" in told.stdout


# --- checkout


def test_a_checkout_has_what_is_in_the_prompt_and_the_dashboard(run: Run, project: Path, tmp_path: Path) -> None:
    result = run("checkout", "demo/main", tmp_path / "out", folder=project)
    assert result.exit_code == 0
    bodies = [path.name for path in (tmp_path / "out" / "blocks").rglob("*.txt")]
    assert "B10.txt" in bodies
    assert "B6.txt" not in bodies
    page = (tmp_path / "out" / "DASHBOARD.md").read_text()
    assert page.startswith("# demo/main\n")
    assert "| B6 | 559 |" in page
    assert "| G1 | 86 | 3r | group | 1 | B1 | archived by agent | 0 | the screenshot |" in page


def test_a_checkout_is_of_the_session_and_scope_that_are_named(run: Run, project: Path) -> None:
    def folder(*arguments: str) -> str:
        result = run("checkout", *arguments, "--json", folder=project)
        assert result.exit_code == 0, result.stderr
        return str(json.loads(result.stdout)["folder"])

    inside = project / ".ctxvc" / "checkout"
    assert folder() == str(inside / "demo" / "main")
    assert folder("branched") == str(inside / "branched" / "rewind-1")
    assert folder("branched/agent-1") == str(inside / "branched" / "agent-1")
    assert folder("--session", "hostile") == str(inside / "hostile" / "main")


def test_a_checkout_from_before_there_were_seals_is_taken_on_by_whoever_names_it(
    run: Run, project: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run("checkout", "demo/main", out, folder=project)
    (project / ".ctxvc" / "worktrees" / "out" / "ctxvc-seal").unlink()
    refused = run("purge", "B1", "--yes", folder=project)
    assert refused.exit_code == 1 and f"`ctxvc checkout SESSION/SCOPE {out}`" in refused.stderr
    for words in (("checkout", "--redraw", out), ("purge", "B1", "--yes")):
        assert (result := run(*words, folder=project)).exit_code == 0, result.stderr
    assert not out.exists()


def test_moves_in_a_checkout_are_taken_when_asked(run: Run, project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("checkout", "branched/main", out, folder=project)
    (source,) = out.glob("blocks/*/*/B2.txt")
    target = out / "archive" / source.relative_to(out / "blocks")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)

    assert run("checkout", "branched/main", out, folder=project).exit_code == 1
    result = run("checkout", "--take", "branched/main", out, folder=project)

    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "taken: archive B2")
    assert "archived by user" in run("show", "branched/main:B2", folder=project).stdout


def test_the_dashboard_of_a_checkout_is_drawn_anew(run: Run, project: Path, tmp_path: Path) -> None:
    run("checkout", "demo/main", tmp_path / "out", folder=project)
    drawn = tmp_path / "out" / "DASHBOARD.md"
    page = drawn.read_text()
    drawn.write_text("old")

    result = run("checkout", "--redraw", tmp_path / "out", "--json", folder=project)

    assert result.exit_code == 0, result.stderr
    assert drawn.read_text() == page
    answer = json.loads(result.stdout)
    assert answer == json.loads(run("checkout", "demo/main", tmp_path / "out", "--json", folder=project).stdout)
    assert run("checkout", "--redraw", tmp_path, folder=project).exit_code == 1
    assert run("checkout", "--redraw", tmp_path / "out", "demo", folder=project).exit_code == 2


def test_notes_stand_beside_the_dashboard_and_a_label_is_no_markup_in_it(
    run: Run, project: Path, tmp_path: Path
) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as session:
        for number in range(7):
            session.note(f"note {number}: [x]\nand more")
        session.append(reply("ok"))

    run("checkout", "demo/main", tmp_path / "out", folder=project)
    page = (tmp_path / "out" / "DASHBOARD.md").read_text()
    table, text = (run("status", *arguments, folder=project).stdout for arguments in ([], ["--text"]))
    answer = json.loads(run("status", "--json", folder=project).stdout)

    assert "Notes:\n\n- 2 older\n- note 2: \\[x\\] and more\n- note 3" in page
    assert "older notes\t2\nnote\tnote 2: [x] and more\nnote\tnote 3" in table
    assert "notes (+2 older):\n- note 2: (x) and more\n- note 3" in text
    assert (answer["older_notes"], answer["notes"][0], len(answer["notes"])) == (2, "note 2: [x]\nand more", 5)

    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as session:
        session.append(injected("<script>x</script> [a](http://b) | c `d`"), reply("ok"))

    run("checkout", "demo/main", tmp_path / "out", folder=project)

    page = (tmp_path / "out" / "DASHBOARD.md").read_text()
    assert r"\<script\>x\</script\> \[a\](http://b) \| c \`d\`" in page


def test_a_checkout_that_cannot_be_is_refused(run: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert run("checkout", "demo/main", tmp_path / "mine", folder=project).exit_code == 1
    for name in ("nobody", "demo/nowhere", "a/b/c", "../x"):
        result = run("checkout", name, tmp_path / "out", folder=project)
        assert (result.exit_code, result.stderr.startswith("ctxvc: no ")) == (1, True), name


@pytest.mark.parametrize("form", ["anthropic", "openai"])
def test_an_exported_request_that_is_imported_again_adds_nothing(project: Path, run: Run, form: str) -> None:
    """It became a twin of its session, and the session that commands take."""
    run("export", "--format", form, "-o", "request.json", folder=project)
    refs = ["git", "--git-dir", str(project / ".ctxvc"), "for-each-ref"]
    before = subprocess.run(refs, capture_output=True, check=True).stdout

    result = run("import", "--json", "request.json", folder=project)

    (item,) = json.loads(result.stdout)["items"]
    assert (item["session"], item["created"], item["units"]) == ("demo", False, 0)
    assert subprocess.run(refs, capture_output=True, check=True).stdout == before

    exported = json.loads((project / "request.json").read_bytes())
    exported["messages"].append({"role": "user", "content": "And now something else."})
    (project / "request.json").write_text(json.dumps(exported))
    (item,) = json.loads(run("import", "--json", "request.json", folder=project).stdout)["items"]
    assert item["created"], "another conversation"
