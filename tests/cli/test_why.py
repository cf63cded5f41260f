"""`why`: from a code commit, or a line of code, to the conversation that it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.cli.commands import why as schemas
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import result_part
from ctxvc.inspection.edits import Change, changes, may_change, needle, same_file, script, unread
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links_inbox
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.making.code import KEYS, LOGIN, commit, in_git
from tests.making.project import HOSTILE, call, human, reply, results, time

#: A program that replaces texts in a file.
PROGRAM = "python3 - <<'PY'\np = 'src/a.py'  # it's this\ns = open(p).read()\n{}\nopen(p, 'w').write(s)\nPY"


def link(folder: Path, commit: str, at: str, **more: str) -> None:
    with Store(folder / FOLDER) as store:
        links_inbox.post(store.path, CodeCommit(commit, str(folder), at, head=links_inbox.head(store.path), **more))


def played(folder: Path, *messages: Message) -> None:
    """The session of the project goes on with these."""
    with Store(folder / FOLDER) as store, StoredSession.open(store, "work") as session:
        session.append(*messages)
        session.finish()


def why(run: Run, folder: Path, what: str) -> Any:
    result = run("why", what, "--json", folder=folder)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    answer = json.loads(result.stdout)
    assert list(answer) == ["schema", *schemas.Why.__struct_fields__]
    msgspec.json.decode(result.stdout, type=schemas.Why)
    return answer


def test_a_commit_is_of_the_edits_that_wrote_it_and_says_who_committed_it(run: Run, app: Path) -> None:
    name = commit(app, {"src/login.py": LOGIN}, at=time(6))
    link(app, name, time(6), host="claude-code", recording="recording-1")

    told = why(run, app, "HEAD")

    assert (told["commit"], told["subject"], told["origin"], told["evidence"]) == (name, "a change", "agent", "replay")
    assert (told["session"], told["scope"], told["step"], told["turn"]) == ("work", "main", 1, 1)
    assert [block["text"] for block in told["asked"]] == ["Add a login"]
    assert [block["text"] for block in told["replied"]] == ["I write it."]
    assert [(call["address"], call["step"], call["tool"], call["lines"]) for call in told["calls"]] == [
        ("work/main:B3", 1, "Write", 2)
    ]
    assert (told["committed"]["host"], told["committed"]["session"], told["committed"]["step"]) == (
        ("claude-code", "work", 3)
    )
    assert run("show", told["revision"], folder=app).exit_code == 0
    assert run("show", told["calls"][0]["address"], folder=app).exit_code == 0


def test_a_commit_is_of_the_lines_that_it_brought(run: Run, app: Path) -> None:
    first = commit(app, {"src/login.py": LOGIN}, at=time(6))
    second = commit(app, {"src/login.py": LOGIN + KEYS}, at=time(12))
    assert [call["step"] for call in why(run, app, first)["calls"]] == [1]
    told = why(run, app, second[:8])
    assert [(call["step"], call["lines"]) for call in told["calls"]] == [(5, 2)]
    assert (told["step"], told["turn"]) == (5, 2)
    assert [block["text"] for block in told["asked"]] == ["And with a key"]


def test_what_a_person_wrote_is_not_of_the_session_that_was_current(run: Run, app: Path) -> None:
    first = commit(app, {"src/login.py": LOGIN}, at=time(6))
    second = commit(app, {"src/login.py": "# by hand, and by nobody else\n" + LOGIN}, at=time(20))
    link(app, second, time(20))

    line, whole = why(run, app, "src/login.py:1"), why(run, app, second)

    for told in (line, whole):
        assert (told["origin"], told["session"], told["calls"], told["asked"]) == ("human", "", [], [])
        assert (told["commit"], told["evidence"], told["total"]) == (second, "none", 1)
        assert (told["committed"]["session"], told["committed"]["host"]) == ("work", "")
    assert "no recorded call" in line["basis"]
    told = why(run, app, "src/login.py:3")
    assert (told["commit"], told["origin"], told["step"], told["file"]) == (first, "agent", 1, "src/login.py")
    assert told["line"] == '    return check_password(user, "ü")'
    assert [(call["path"], call["lines"]) for call in told["calls"]] == [(f"{app}/src/login.py", 1)]
    shown = run("why", "src/login.py:1", folder=app).stdout
    assert "written by" in shown and "a person" in shown and "work/main, step 6: this was the current session" in shown


def test_the_other_origins_of_a_commit_are_listed_with_their_lines(run: Run, app: Path) -> None:
    name = commit(app, {"src/login.py": LOGIN + "by = 'hand, alone'\n"}, at=time(8))
    told = why(run, app, name)
    assert (told["origin"], told["count"], told["total"]) == ("agent", 2, 3)
    assert told["alternatives"] == [{"origin": "human", "session": "", "scope": "", "step": 0, "lines": 1}]
    assert "66 %" in run("why", name, folder=app).stdout


def test_a_whole_file_is_told_by_conversation(run: Run, app: Path) -> None:
    commit(app, {"src/login.py": LOGIN}, at=time(6))
    commit(app, {"src/login.py": "# by hand, alone\n\n" + LOGIN}, at=time(20))

    result = run("why", "src/login.py", "--json", folder=app)
    answer = json.loads(result.stdout)

    assert result.exit_code == 0 and answer["schema"] == "ctxvc.why_file/1"
    msgspec.json.decode(result.stdout, type=schemas.WhyFile)
    assert [
        (conversation["origin"], conversation["session"], conversation["count"], conversation["ranges"])
        for conversation in answer["conversations"]
    ] == [("agent", "work", 2, [[3, 4]]), ("human", "", 1, [[1, 1]])]
    assert answer["conversations"][0]["request"] == "Add a login"
    assert [(line["line"], line["origin"]) for line in answer["lines"]] == [(1, "human"), (3, "agent"), (4, "agent")]
    shown = run("why", "src/login.py", folder=app).stdout
    assert "3–4" in shown and "work/main" in shown and "a person" in shown
    assert shown.startswith("src/login.py, 3 non-blank lines\n")
    assert run("why", "src", folder=app).exit_code == 1


def test_a_file_that_was_renamed_is_still_of_its_edits(run: Run, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxvc.inspection.why.SLACK", 0)  # all of it is within a minute
    commit(app, {"src/login.py": LOGIN}, at=time(4))
    in_git(app, "mv", "src/login.py", "src/größe.py")
    in_git(app, "commit", "-q", "-m", "a name", at=time(5))
    in_git(app, "mv", "src/größe.py", "src/neu.py")
    in_git(app, "commit", "-q", "-m", "another name", at=time(6))

    assert [(call["step"], call["path"]) for call in why(run, app, "src/neu.py:2")["calls"]] == [
        (1, f"{app}/src/login.py")
    ]
    assert "work/main" in run("why", "src/neu.py", folder=app).stdout

    # A person adds to it what a call wrote later into the former path: that was another file.
    commit(app, {"src/neu.py": LOGIN + KEYS}, at=time(12))
    told = json.loads(run("why", "src/neu.py", "--json", folder=app).stdout)
    assert [(item["origin"], item["step"], item["count"]) for item in told["conversations"]] == [
        ("agent", 1, 2), ("human", 0, 2)
    ]  # fmt: skip


def test_a_line_that_is_not_committed_is_of_its_edit_too(run: Run, app: Path) -> None:
    commit(app, {"src/login.py": "# nothing\n"})
    (app / "src" / "login.py").write_text("# nothing\n" + LOGIN)
    told = why(run, app, "src/login.py:3")
    assert (told["commit"], told["origin"], told["step"]) == ("", "agent", 1)
    assert [call["address"] for call in told["calls"]] == ["work/main:B3"]


def test_an_edit_that_failed_made_nothing(run: Run, app: Path) -> None:
    failed = call("Write", "c9", file_path="src/other.py", content="other = 'refused'\n")
    played(app, human("Write", 50), reply(51, failed), results(52, result_part("no", "c9", error=True)))
    commit(app, {"src/other.py": "other = 'refused'\n"}, at="2026-03-01T13:00:00Z")
    assert run("why", "src/other.py:1", folder=app).exit_code == 1


def test_an_edit_that_failed_and_was_made_again_in_the_same_words_made_its_lines(run: Run, app: Path) -> None:
    again = [call("Write", name, file_path="src/other.py", content="other = 'at last'\n") for name in ("c8", "c9")]
    played(
        app,
        human("Write", 50),
        reply(51, again[0]),
        results(52, result_part("no", "c8", error=True)),
        reply(53, again[1]),
        results(54, result_part("ok", "c9")),
    )
    commit(app, {"src/other.py": "other = 'at last'\n"}, at="2026-03-01T13:00:00Z")

    told = why(run, app, "src/other.py:1")
    assert (told["origin"], told["step"]) == ("agent", 8)


def test_a_script_that_replaces_a_text_made_what_is_new_in_it_and_not_what_was_there(run: Run, app: Path) -> None:
    program = PROGRAM.replace("a.py", "login.py").format(
        "s = s.replace('# typed by hand, alone\\nlogins = []', '# typed by hand, alone\\nlogins = read_all()')"
    )
    ran = call("Bash", "c9", command=program)
    played(app, human("By script", 20), reply(21, ran), results(22, result_part("", "c9")))
    commit(app, {"src/login.py": LOGIN}, at=time(15))
    by_hand = "# typed by hand, alone\nlogins = []\nby = 'whom?'\n"
    commit(app, {"src/login.py": LOGIN + by_hand}, at=time(18))
    commit(app, {"src/login.py": LOGIN + by_hand.replace("[]", "read_all()")}, at=time(30))

    answer = json.loads(run("why", "src/login.py", "--json", folder=app).stdout)
    assert [(line["line"], line["origin"], line["evidence"]) for line in answer["lines"]][2:] == [
        (3, "human", "none"),
        (4, "agent", "script"),
        (5, "human", "none"),
    ]


def test_text_written_after_the_commit_is_not_where_it_came_from(run: Run, app: Path) -> None:
    again = call("Write", "c9", file_path="src/login.py", content=LOGIN)
    played(app, human("Write it anew", 50), reply(51, again), results(52, result_part("ok", "c9")))
    name = commit(app, {"src/login.py": LOGIN}, at="2026-03-01T11:59:05Z")  # its clock is a minute behind
    assert why(run, app, name)["step"] == 1


def test_after_amend_rebase_and_squash_lines_are_still_of_their_edits(run: Run, app: Path) -> None:
    base = commit(app, {"README.md": "an app\n"}, at=time(0))
    more = call("Edit", "c9", file_path="src/login.py", old_string="user, ", new_string="user, known, ")
    played(app, human("Known ones", 20), reply(21, more), results(22, result_part("ok", "c9")))
    commit(app, {"src/login.py": LOGIN}, at=time(6))
    (app / "src" / "login.py").write_text("import keys_by_hand\n" + LOGIN)
    in_git(app, "commit", "-q", "--amend", "-am", "amended", at=time(25))
    commit(app, {"src/login.py": "import keys_by_hand\n" + LOGIN.replace("user, ", "user, known, ")}, at=time(26))
    in_git(app, "checkout", "-q", "-b", "onto", base)
    commit(app, {"src/other.py": "an = 'other'\n"}, at=time(27))
    in_git(app, "checkout", "-q", "-")
    in_git(app, "rebase", "-q", "onto", at=time(40))

    def origins_of_lines() -> list[tuple[str, int]]:
        told = [why(run, app, f"src/login.py:{number}") for number in (1, 2, 3)]
        return [(each["origin"], each["step"]) for each in told]

    assert origins_of_lines() == [("human", 0), ("agent", 1), ("agent", 7)]
    in_git(app, "reset", "-q", "--soft", "onto")
    in_git(app, "commit", "-q", "-m", "squashed", at=time(50))
    assert origins_of_lines() == [("human", 0), ("agent", 1), ("agent", 7)]


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("sed -i 's/check_password/check_key/' src/login.py", LOGIN, LOGIN.replace("password", "key")),
        ("cat > src/login.py <<'EOF'\nlogins = read_all()\nEOF", LOGIN, "logins = read_all()\n"),
        ("cat >> src/login.py <<'EOF'\nlogins = read_all()\nEOF", LOGIN, LOGIN + "logins = read_all()\n"),
    ],
)
def test_what_a_script_wrote_is_read_from_its_text_and_the_difference(
    run: Run, app: Path, command: str, before: str, after: str
) -> None:
    ran = call("Bash", "c9", command=command)
    played(app, human("By script", 20), reply(21, ran), results(22, result_part("", "c9")))
    commit(app, {"src/login.py": before}, at=time(15))
    commit(app, {"src/login.py": after}, at=time(30))
    told = why(run, app, "HEAD")
    assert (told["origin"], told["evidence"], told["step"], told["calls"][0]["tool"]) == ("agent", "script", 7, "Bash")


def test_lines_that_only_a_script_can_have_made_are_unknown(run: Run, app: Path) -> None:
    ran = call("Bash", "c9", command="python3 make.py > src/login.py")
    played(app, human("By script", 20), reply(21, ran), results(22, result_part("", "c9")))
    commit(app, {"src/login.py": LOGIN}, at=time(15))
    commit(app, {"src/login.py": LOGIN + "made = 'by whom?'\n"}, at=time(30))
    told = why(run, app, "HEAD")
    assert (told["origin"], told["session"]) == ("unknown", "")
    assert "a script that ran then may have: work/main:B" in told["basis"]


def test_code_that_nobody_recorded_has_no_answer(run: Run, app: Path) -> None:
    name = commit(app, {"other.py": "nobody = 'recorded this'\n"})
    result = run("why", name, folder=app)
    assert result.exit_code == 1 and "install post-commit" in result.stderr
    assert run("why", "other.py:1", folder=app).exit_code == 1
    for number in (0, 9):
        result = run("why", f"other.py:{number}", folder=app)
        assert f"other.py has no line {number}\nhint: its lines are 1 to 1\n" in result.stderr
    assert "no commit deadbeef" in run("why", "deadbeef", folder=app).stderr
    for odd in ("--", "no-such-branch", "nothing.py:3", "0" * 40, "deadbeef"):
        assert run("why", "--", odd, folder=app).exit_code == 1
    for lines in ("other.py:1-2", "other.py:1,9", "other.py:1-"):
        assert "give one line, as in other.py:1, or the whole file" in run("why", lines, folder=app).stderr
    (app / ".git").rename(app / "moved")
    assert "in no git repository; give a file in it" in run("why", "HEAD", folder=app).stderr
    (app / "moved").rename(app / ".git")
    assert "`ctxvc blame B17@3fa9c1`" in run("why", "B17@3fa9c1", folder=app).stderr


def test_a_session_that_the_store_does_not_have_is_named(run: Run, app: Path) -> None:
    name = commit(app, {"other.py": "nobody = 'recorded this'\n"})
    link(app, name, time(59), host="claude-code", recording="recording-9")
    result = run("why", name, folder=app)
    assert result.exit_code == 1
    assert "recording-9" in result.stderr and "ctxvc import" in result.stderr


def test_a_link_outlives_the_commit_and_the_repository(run: Run, app: Path) -> None:
    name = "ab" * 20
    link(app, name, time(59))
    told = why(run, app, "abababab")
    assert (told["commit"], told["origin"], told["committed"]["step"]) == (name, "unknown", 6)


def test_what_was_recorded_cannot_move_the_cursor(run: Run, app: Path) -> None:
    hostile = call(f"Write{HOSTILE}", "c9", file_path=f"src/{HOSTILE}/evil.py", content="evil = 'evil'\n")
    text = {"type": "text", "text": f"so {HOSTILE}"}
    played(app, human(f"Write {HOSTILE}", 50), reply(51, text, hostile), results(52, result_part("ok", "c9")))
    commit(app, {"evil.py": "evil = 'evil'\n"}, at="2026-03-01T13:00:00Z", subject="a \x1b[31mred subject")
    result = run("why", "HEAD", folder=app)
    assert result.exit_code == 0 and "Write" in result.stdout
    assert not any(letter in result.stdout for letter in "\x1b\x07\x9b\u202e\x08\r")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"file_path": "a.py", "content": "x"}, [Change("a.py", "x")]),
        ({"file_path": "a.py", "old_string": "x", "new_string": "y"}, [Change("a.py", "y", "replace", "x")]),
        (
            {"file_path": "a.py", "old_string": "x", "new_string": "", "replace_all": True},
            [Change("a.py", "", "replace", "x", every=True)],
        ),
        ({"file_path": "a.py", "old_string": "", "new_string": "y"}, [Change("a.py", "y")]),
        (
            {"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}, {"newText": 3}, 7]},
            [Change("a.py", "y", "replace", "x")],
        ),
        (
            {"command": "str_replace", "path": "/w/a.py", "old_str": "x", "new_str": "y"},
            [Change("/w/a.py", "y", "replace", "x")],
        ),
        ({"patch": "looks like one\n+++ \n"}, []),
        ({"notebook_path": "a.ipynb", "new_source": "y"}, [Change("a.ipynb", "y", "insert")]),
        ({"command": "cat > a.py <<'EOF'\nx = 1\ny = 2\nEOF\nls"}, [Change("a.py", "x = 1\ny = 2\n", scripted=True)]),
        ({"command": "cat <<EOF >> b/a.py\nx\nEOF"}, [Change("b/a.py", "x\n", "insert", scripted=True)]),
        ({"cmd": ["bash", "-lc", "tee a.py <<-END\n\tx\n\tEND\n"]}, [Change("a.py", "\tx\n", scripted=True)]),
        (
            {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n+w\n*** End Patch"},
            [Change("a.py", "y", "replace", "x", whole_lines=True), Change("b.py", "z\nw\n")],
        ),
        (
            {"patch": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n c\n-x\n+y\n"},
            [Change("a.py", "c\ny", "replace", "c\nx", whole_lines=True)],
        ),
        ({"command": "python3 - <<EOF > b.txt\nprint(1)\nEOF"}, []),
        (
            {"command": PROGRAM.format("s = s.replace('check_password', \"check\\n\" + '_key', 1)")},
            [Change("src/a.py", "check\n_key", "replace", "check_password", scripted=True)],
        ),
        (
            {"command": PROGRAM.format('old = """it\'s old\ntext"""\nnew = r\'\\w new\'\ns = s.replace(old, new)')},
            [Change("src/a.py", "\\w new", "replace", "it's old\ntext", every=True, scripted=True)],
        ),
        ({"command": PROGRAM.format("s = s.replace('a', 'b').replace(found, 'something')")}, []),
        ({"file_path": "a.py"}, []),
        ({"command": "ls", "path": 3}, []),
        ({"file_path": ["a.py"], "content": "x"}, []),
        ({"pattern": "x", "path": "src"}, []),
    ],
)
def test_what_a_call_changes_is_told_by_its_arguments(arguments: dict[str, Any], expected: list[Change]) -> None:
    assert changes(json.dumps(arguments).encode(), "json") == expected


@pytest.mark.parametrize(
    ("command", "may"),
    [
        ("sed -i 's/a/b/' src/a.py", True),
        ("make > src/a.py", True),
        ('make > "$file"; cat src/a.py', True),
        ("./format.sh < src/a.py > `mktemp`", True),
        ("python3 make.py src/a.py", True),
        ("python3 - <<EOF\nopen('src/a.py', 'w').write(text())\nEOF", True),
        (PROGRAM.format("s = s.replace(f'{old} is left', 'something new')"), True),
        (PROGRAM.format("s = s.replace('something old', 'something new')"), False),
        ("cat > src/a.py <<'EOF'\nx = 1 > 0\nEOF", False),
        ("go test ./src/a.py 2>&1 | tail > /tmp/out; wc -l src/a.py 2> /dev/null", False),
        ("grep -n '<<<<<< a > b' src/a.py", False),
        ("git add -p src/a.py <<EOF\ny\nn\nEOF", False),
        ("git add src/a.py && git commit -m \"$(cat <<'EOF'\nan ed patch -> cp\nEOF\n)\"", False),
        ("python -m pytest src/a.py && awk '{print $1}' src/a.py && ruff check src/a.py", False),
        ("ruff check --fix src/a.py", True),
    ],
)
def test_a_script_that_only_reads_a_file_or_says_what_it_writes_leaves_no_doubt(command: str, may: bool) -> None:
    assert may_change(command, "src/a.py") == may


def test_what_a_program_puts_back_is_not_what_it_wrote() -> None:
    rest = unread(PROGRAM.format("s = s.replace('''kept line\nold line''', '''new line\nkept line''')"))
    assert "new line" in rest
    assert "old line" not in rest and "kept line" not in rest


def test_a_call_whose_arguments_are_no_json_can_be_a_patch() -> None:
    assert changes(b"*** Begin Patch\n*** Add File: b.py\n+z\n", "txt") == [Change("b.py", "z\n")]
    assert changes(b"[1,", "json") == changes(b"", "txt") == changes(b"[]", "json") == []


def test_a_path_of_another_machine_can_be_the_same_file() -> None:
    assert same_file("/home/x/app/src/a.py", "src/a.py") and same_file("./src/a.py", "src/a.py")
    assert same_file("a.py", "src/a.py") and same_file("C:\\app\\src\\a.py", "src/a.py")
    assert not same_file("/x/other.py", "src/a.py") and not same_file("", "a.py") and not same_file("aa.py", "a.py")


@pytest.mark.parametrize("line", ['return "ü" < 3 and x.y(1)', "\tif a\\b: pass", "</script>"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_bytes_that_are_looked_for_stand_in_every_json_of_the_line(line: str, ascii_only: bool) -> None:
    assert needle(line) in json.dumps(line, ensure_ascii=ascii_only).encode()


@pytest.mark.parametrize(
    "hostile",
    [
        *("python3 <<E\n" + code * 90_000 + "\nE\n" for code in ("'", '"""\'', "a='b'\n", "\\'", "'a' ")),
        "python3 <<E\n" + ("'aaaaaaaaaa'.replace('bbbbbbbbb', '" + "c" * 200 + "')\n") * 20_000 + "\nE\n",
        "python3 <<E\nx = '" + "c\\n" * 20_000 + "'\n" + "x.replace(x, x)\n" * 9_000 + "\nE\n",
        "python3 <<E\n" + "'a.py' .replace(" * 90_000 + "\nE\n",
        *("x > " * 200_000, "'" * 900_001, '"\\' * 300_000, "sed " * 200_000, "awk " * 200_000),
        "<< > " * 200_000,
        "cat <<E > a\n" * 50_000,
        "x << " + " " * 900_000,
        "+++ a\n" * 90_000,
    ],
)
@pytest.mark.timeout(60)
def test_a_hostile_command_is_read_to_its_end_and_no_more_is_made_of_it(hostile: str) -> None:
    """In the square of its length, it would take minutes."""
    body = json.dumps({"command": hostile}).encode()
    text = script(body, "json")
    assert len(unread(text)) <= len(text) + 2 * text.count("\n")
    assert sum(len(change.new) + len(change.old) for change in changes(body, "json")) <= len(body)
    assert may_change(text, "a.py") in (True, False)
