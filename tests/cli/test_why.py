"""`why`: from a code commit, or a line of code, to the conversation that it came from."""

from __future__ import annotations

import json
import os
import subprocess
import time as clock
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.cli.commands import why as schemas
from ctxvc.core.ledger.wire import result_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.inspection.edits import Write, needle, same_file, writes
from ctxvc.store import links_inbox
from ctxvc.store.ingest import ingest
from ctxvc.store.links_inbox import CodeCommit
from ctxvc.store.locate import FOLDER
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run
from tests.making.project import HOSTILE, call, human, reply, results, time

LOGIN = 'def login(user):\n    return check_password(user, "ü")\n'
KEYS = "def with_key(key):\n    return known_keys.get(key)\n"


def in_git(folder: Path, *words: str, at: str = time(30)) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    env = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, "PATH": os.environ["PATH"]}
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True, env=env)
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str], *, at: str = time(30), subject: str = "a change") -> str:
    for name, words in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(words)
    in_git(folder, "add", *files)
    in_git(folder, "commit", "-q", "-m", subject, at=at)
    return in_git(folder, "rev-parse", "HEAD")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A project with a recorded session: a login is written in turn 1, keys in turn 2, and both tested in between."""
    folder = tmp_path / "app"
    folder.mkdir()
    in_git(folder, "init", "-q", ".")
    with create(folder / FOLDER) as store:
        store.now = lambda: 1772370000
        opened = Opened(format="claude-code", source="recording-1", time=time(1))
        messages = [
            human("Add a login", 1),
            reply(
                2,
                {"type": "text", "text": "I write it."},
                call("Write", "c1", file_path=f"{folder}/src/login.py", content=LOGIN),
            ),
            results(3, result_part("ok", "c1")),
            reply(4, {"type": "text", "text": "Now a test."}, call("Bash", "c2", command="pytest")),
            results(5, result_part("1 passed", "c2")),
            reply(6, call("Bash", "c3", command="git commit -am 'add a login'")),
            results(7, result_part("[main 1234567] add a login", "c3")),
            reply(8, {"type": "text", "text": "The login is there."}),
            human("And with a key", 10),
            reply(11, call("Edit", "c4", file_path="src/login.py", old_string="\n", new_string=KEYS)),
            results(12, result_part("ok", "c4")),
            reply(13, {"type": "text", "text": "Keys work, too."}),
        ]
        ingest(
            store,
            [opened, *(Said(message=each, end=end) for end, each in enumerate(messages, 1))],
            name="work",
            final=True,
        )
    return folder


def link(folder: Path, commit: str, at: str, **more: str) -> None:
    with Store(folder / FOLDER) as store:
        links_inbox.post(store.path, CodeCommit(commit, str(folder), at, head=links_inbox.head(store.path), **more))


def why(run: Run, folder: Path, what: str) -> Any:
    done = run("why", what, "--json", folder=folder)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    told = json.loads(done.stdout)
    assert list(told) == ["schema", *schemas.Why.__struct_fields__]
    msgspec.json.decode(done.stdout, type=schemas.Why)
    return told


def test_a_commit_that_a_host_made_is_of_the_step_that_made_it(run: Run, app: Path) -> None:
    name = commit(app, {"src/login.py": LOGIN}, at=time(6))
    link(app, name, time(6), host="claude-code", recording="recording-1")

    told = why(run, app, "HEAD")

    assert (told["commit"], told["subject"], told["found"]) == (name, "a change", "link")
    assert (told["session"], told["scope"], told["step"], told["turn"]) == ("work", "main", 3, 1)
    assert [block["text"] for block in told["asked"]] == ["Add a login"]
    assert [block["text"] for block in told["replied"]] == ["Now a test."]
    assert [(each["address"], each["step"], each["tool"], each["lines"]) for each in told["calls"]] == [
        ("work/main:B3", 1, "Write", 2)
    ]
    assert run("show", told["revision"], folder=app).exit_code == 0
    assert run("show", told["calls"][0]["address"], folder=app).exit_code == 0


def test_calls_before_an_earlier_commit_of_the_file_are_that_ones(run: Run, app: Path) -> None:
    first = commit(app, {"src/login.py": LOGIN}, at=time(6))
    link(app, first, time(6), host="claude-code", recording="recording-1")
    second = commit(app, {"src/login.py": LOGIN + KEYS}, at=time(12))
    link(app, second, time(12), host="claude-code", recording="recording-1")

    told = why(run, app, second[:8])

    assert (told["step"], told["turn"]) == (5, 2)
    assert [block["text"] for block in told["asked"]] == ["And with a key"]
    assert [(each["step"], each["lines"]) for each in told["calls"]] == [(5, 2)]
    assert [each["step"] for each in why(run, app, first)["calls"]] == [1]


def test_a_line_is_of_the_commit_that_brought_it(run: Run, app: Path) -> None:
    first = commit(app, {"src/login.py": LOGIN}, at=time(6))
    link(app, first, time(6), host="claude-code", recording="recording-1")
    commit(app, {"src/login.py": "# by hand\n" + LOGIN}, at=time(40))

    told = why(run, app, "src/login.py:3")

    assert (told["commit"], told["file"], told["found"], told["step"]) == (first, "src/login.py", "link", 3)
    assert told["line"] == '    return check_password(user, "ü")'
    assert [(each["path"], each["lines"]) for each in told["calls"]] == [(f"{app}/src/login.py", 1)]


def test_what_a_person_commits_is_of_the_newest_step_of_then(run: Run, app: Path) -> None:
    name = commit(app, {"src/login.py": LOGIN + KEYS}, at=time(59))
    link(app, name, time(59))

    told = why(run, app, name)

    assert (told["found"], told["step"]) == ("link", 6)
    assert "current session" in told["basis"]
    assert [each["step"] for each in told["calls"]] == [1, 5]


def test_without_a_link_a_commit_is_found_by_its_text_and_the_answer_says_so(run: Run, app: Path) -> None:
    name = commit(app, {"src/login.py": LOGIN + KEYS + "by = 'hand'\n"}, at=time(59))

    told = why(run, app, name)

    assert (told["commit"], told["found"], told["session"], told["step"]) == (name, "text", "work", 5)
    assert told["basis"].startswith("4 of 5 added lines")
    assert [(each["step"], each["lines"]) for each in told["calls"]] == [(1, 2), (5, 2)]


def test_a_line_that_is_not_committed_is_found_by_its_text(run: Run, app: Path) -> None:
    commit(app, {"src/login.py": "# nothing\n"})
    (app / "src" / "login.py").write_text("# nothing\n" + KEYS)

    told = why(run, app, "src/login.py:3")

    assert (told["commit"], told["found"], told["step"]) == ("", "text", 5)
    assert [each["address"] for each in told["calls"]] == [f"work/main:{told['calls'][0]['address'].split(':')[1]}"]


def test_text_written_after_the_commit_is_not_where_it_came_from(run: Run, app: Path) -> None:
    with Store(app / FOLDER) as store, StoredSession.open(store, "work") as session:
        again = call("Write", "c9", file_path="src/login.py", content=LOGIN)
        session.append(human("Write it anew", 50), reply(51, again), results(52, result_part("ok", "c9")))
        session.finish()
    name = commit(app, {"src/login.py": LOGIN}, at="2026-03-01T11:59:05Z")  # its clock is a minute behind

    assert why(run, app, name)["step"] == 1
    later = commit(app, {"src/login.py": ""}, at="2026-03-01T13:00:00Z")
    commit(app, {"src/login.py": LOGIN}, at="2026-03-01T13:10:00Z")
    assert why(run, app, "HEAD")["step"] == 7
    assert later


def test_code_that_nobody_recorded_has_no_answer(run: Run, app: Path) -> None:
    name = commit(app, {"other.py": "nobody = 'recorded this'\n"})

    done = run("why", name, folder=app)

    assert done.exit_code == 1 and "install post-commit" in done.stderr
    assert run("why", "other.py:1", folder=app).exit_code == 1
    assert run("why", "other.py:9", folder=app).stderr.startswith("ctxvc: ")
    for odd in ("--", "no-such-branch", "nothing.py:3", "0" * 40, "deadbeef"):
        assert run("why", "--", odd, folder=app).exit_code == 1


def test_a_session_that_the_store_does_not_have_is_named(run: Run, app: Path) -> None:
    name = commit(app, {"other.py": "nobody = 'recorded this'\n"})
    link(app, name, time(59), host="claude-code", recording="recording-9")

    done = run("why", name, folder=app)

    assert done.exit_code == 1
    assert "recording-9" in done.stderr and "ctxvc import" in done.stderr


def test_a_link_outlives_the_commit_and_the_repository(run: Run, app: Path) -> None:
    name = "ab" * 20
    link(app, name, time(59))

    assert why(run, app, "abababab")["commit"] == name
    assert why(run, app, name)["step"] == 6


def test_what_was_recorded_cannot_move_the_cursor(run: Run, app: Path) -> None:
    with Store(app / FOLDER) as store, StoredSession.open(store, "work") as session:
        hostile = call(f"Write{HOSTILE}", "c9", file_path=f"src/{HOSTILE}/evil.py", content="evil = 'evil'\n")
        session.append(human(f"Write {HOSTILE}", 50), reply(51, {"type": "text", "text": f"so {HOSTILE}"}, hostile))
        session.append(results(52, result_part("ok", "c9")))
        session.finish()
    commit(app, {"evil.py": "evil = 'evil'\n"}, at="2026-03-01T13:00:00Z", subject="a \x1b[31mred subject")

    done = run("why", "HEAD", folder=app)

    assert done.exit_code == 0 and "Write" in done.stdout
    assert not any(letter in done.stdout for letter in "\x1b\x07\x9b\u202e\x08\r")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"file_path": "a.py", "content": "x"}, [("a.py", "x")]),
        ({"file_path": "a.py", "old_string": "x", "new_string": "y"}, [("a.py", "y")]),
        ({"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}, {"newText": 3}, 7]}, [("a.py", "y")]),
        ({"command": "str_replace", "path": "/w/a.py", "old_str": "x", "new_str": "y"}, [("/w/a.py", "y")]),
        ({"notebook_path": "a.ipynb", "new_source": "y"}, [("a.ipynb", "y")]),
        ({"command": "cat > a.py <<'EOF'\nx = 1\ny = 2\nEOF\nls"}, [("a.py", "x = 1\ny = 2\n")]),
        ({"command": "cat <<EOF >> b/a.py\nx\nEOF"}, [("b/a.py", "x\n")]),
        ({"cmd": ["bash", "-lc", "tee a.py <<-END\n\tx\n\tEND\n"]}, [("a.py", "\tx\n")]),
        (
            {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n+w\n*** End Patch"},
            [("a.py", "y"), ("b.py", "z\nw")],
        ),
        ({"patch": "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"}, [("a.py", "y")]),
        ({"file_path": "a.py"}, []),
        ({"command": "ls", "path": 3}, []),
        ({"file_path": ["a.py"], "content": "x"}, []),
        ({"pattern": "x", "path": "src"}, []),
    ],
)
def test_what_a_call_writes_is_told_by_its_arguments(arguments: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert writes(json.dumps(arguments).encode(), "json") == [Write(*each) for each in found]


def test_a_call_whose_arguments_are_no_json_can_be_a_patch() -> None:
    assert writes(b"*** Begin Patch\n*** Add File: b.py\n+z\n", "txt") == [Write("b.py", "z")]
    assert writes(b"[1,", "json") == writes(b"", "txt") == writes(b"[]", "json") == []


def test_a_path_of_another_machine_can_be_the_same_file() -> None:
    assert same_file("/home/x/app/src/a.py", "src/a.py") and same_file("./src/a.py", "src/a.py")
    assert same_file("a.py", "src/a.py") and same_file("C:\\app\\src\\a.py", "src/a.py")
    assert not same_file("/x/other.py", "src/a.py") and not same_file("", "a.py") and not same_file("aa.py", "a.py")


@pytest.mark.parametrize("line", ['return "ü" < 3 and x.y(1)', "\tif a\\b: pass", "</script>"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_bytes_that_are_looked_for_stand_in_every_json_of_the_line(line: str, ascii_only: bool) -> None:
    assert needle(line) in json.dumps(line, ensure_ascii=ascii_only).encode()


@pytest.mark.parametrize(
    "hostile", ["<< > " * 200_000, "cat <<E > a\n" * 50_000, "x << " + " " * 900_000, "+++ a\n" * 90_000]
)
def test_a_hostile_command_takes_no_longer_than_its_length(hostile: str) -> None:
    began = clock.process_time()
    writes(json.dumps({"command": hostile}).encode(), "json")

    assert clock.process_time() - began < 2
