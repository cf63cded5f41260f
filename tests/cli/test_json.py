"""Every `--json` answer is valid by its schema in docs/schema, and pages and schemas are those of this code."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from jsonschema import Draft202012Validator

from ctxvc.cli.answers import shared as answers
from ctxvc.cli.app import App
from ctxvc.cli.command_list import COMMANDS
from ctxvc.cli.main import cli
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links_inbox
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from docs import reference
from tests.cli.conftest import Run
from tests.making.project import time
from tests.making.store import decide

ROOT = Path(reference.__file__).parents[1]
SCHEMAS = ROOT / "docs" / "schema"
TYPES = {str(answer.__struct_config__.tag): answer for answer in reference.answers()}

#: A code commit, as if it had been made right after the newest step of `demo`.
LINKED = "ab" * 20
#: A command that gives the answer, as words after `ctxvc -C PROJECT`.
ASKED = {
    "ctxvc.init/1": ["init"],
    "ctxvc.import/1": ["import", "RECORDING"],
    "ctxvc.sessions/2": ["sessions"],
    "ctxvc.use/1": ["use"],
    "ctxvc.status/2": ["status"],
    "ctxvc.context/2": ["context"],
    "ctxvc.log/1": ["log"],
    "ctxvc.block/1": ["show", "B9"],
    "ctxvc.group/1": ["show", "G1"],
    "ctxvc.commit/1": ["show", "HEAD~1"],
    "ctxvc.diff/1": ["diff", "step:1"],
    "ctxvc.ops/1": ["ops"],
    "ctxvc.prompt/1": ["prompt"],
    "ctxvc.export/1": ["export", "--format", "openai-chat"],
    "ctxvc.export_table/1": ["export", "--format", "parquet", "-o", "table"],
    "ctxvc.stats/1": ["stats"],
    "ctxvc.sql/1": ["sql", "FROM calls"],
    "ctxvc.grep/1": ["grep", "assert"],
    "ctxvc.ranked/1": ["grep", "--rank", "assert"],
    "ctxvc.project_note/1": ["note", "--project", "-m", "the sum is off"],
    "ctxvc.project_notes/1": ["notes", "--project"],
    "ctxvc.report/1": ["report"],
    "ctxvc.bisect/1": ["bisect", "B6"],
    "ctxvc.blame/1": ["blame", "B6"],
    "ctxvc.acted/1": ["archive", "B2-B10", "-m", "a look"],
    "ctxvc.recover/1": ["recover", "B6", "--lines", "1:2"],
    "ctxvc.recover_bytes/1": ["recover", "B6"],
    "ctxvc.note/1": ["note", "-m", "the sum is off"],
    "ctxvc.notes/1": ["notes"],
    "ctxvc.moved/1": ["scope", "fix-error", "-m", "why?"],
    "ctxvc.scopes/1": ["scopes"],
    "ctxvc.episodes/1": ["context", "--episodes"],
    "ctxvc.growth/2": ["context", "--growth"],
    "ctxvc.usage/1": ["log", "--usage"],
    "ctxvc.policies/1": ["policies"],
    "ctxvc.plan/1": ["plan"],
    "ctxvc.plans/1": ["plan", "--pending"],
    "ctxvc.run/1": ["run", "say hello", "--script", "SCRIPT", "--yes"],
    "ctxvc.ask/1": ["ask", "demo", "why?", "--script", "CITING"],
    "ctxvc.watch/1": ["watch", "--once"],
    "ctxvc.install/1": ["install", "claude-code", "--dry-run"],
    "ctxvc.verify/1": ["verify"],
    "ctxvc.gc/1": ["gc"],
    "ctxvc.retention/1": ["gc", "--keep-days", "3650", "--dry-run"],
    "ctxvc.purge/1": ["purge", "--text", "careful engineer", "--yes"],
    "ctxvc.purge_pending/1": ["purge", "--finish", "--yes"],
    "ctxvc.trust/1": ["trust"],
    "ctxvc.trusted/1": ["trust", "--list"],
    "ctxvc.compact/1": ["compact"],
    "ctxvc.checkout/1": ["checkout", "demo/main", "out"],
    "ctxvc.install_hooks/1": ["install", "git-hooks"],
    "ctxvc.model/1": ["model"],
    "ctxvc.why/2": ["why", LINKED],
    "ctxvc.why_file/1": ["why", "app.py"],
    "ctxvc.doctor/1": ["doctor"],
    "ctxvc.remotes/1": ["remote"],
    "ctxvc.push/1": ["push"],
    "ctxvc.pull/1": ["pull"],
    "ctxvc.clone/1": ["clone", "SERVER", "elsewhere"],
    "ctxvc.unshare/1": ["unshare", "demo"],
    "ctxvc.remote_scope/1": ["show", "demo", "--remote"],
    "ctxvc.remote_sessions/1": ["sessions", "--remote"],
    "ctxvc.replay/1": ["replay", "demo", "--compare", "default,window", "--budget", "8k", "--no-store", "--jobs", "1"],
}


#: Words that stand for a file.
FILES = frozenset({"RECORDING", "SCRIPT", "CITING", "SERVER"})
#: Answers of a store with a remote that has its sessions.
SHARED = frozenset(
    f"ctxvc.{name}/1" for name in ("remotes", "push", "pull", "clone", "unshare", "remote_scope", "remote_sessions")
)


def validator(name: str) -> Draft202012Validator:
    """Of a file in docs/schema."""
    return Draft202012Validator(json.loads((SCHEMAS / name).read_text()))


def test_an_answer_of_every_kind_is_asked_for() -> None:
    assert ASKED.keys() | {"ctxvc.proxy/1"} == TYPES.keys()  # which runs on, and is asked for in tests/wire


@pytest.mark.parametrize("tag", ASKED)
def test_an_answer_has_the_fields_of_its_schema_and_no_others(
    tag: str, run: Run, project: Path, recording: Path
) -> None:
    words = [str(_file(word, recording, project)) if word in FILES else word for word in ASKED[tag]]
    if LINKED in words:
        links_inbox.post(project / FOLDER, CodeCommit(LINKED, "/nowhere", time(59), head="refs/heads/demo/main"))
    if tag == "ctxvc.why_file/1":
        (project / "app.py").write_text("a + b\n")
        subprocess.run(["git", "init", "-q", str(project)], check=True)
    if tag in SHARED:
        server = project / "server.git"
        subprocess.run(["git", "init", "-q", "--bare", str(server)], check=True)
        run("remote", "add", str(server), "--yes", folder=project)
        if tag != "ctxvc.push/1":
            run("push", folder=project)
    if "--finish" in words:
        decide(project / FOLDER, "careful engineer")
    result = run(*words, "--json", folder=project)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1

    told = json.loads(result.stdout)
    validator(reference.schema_file(tag)).validate(told)
    assert told.pop("schema") == tag
    _check(told, TYPES[tag])


def _file(word: str, recording: Path, project: Path) -> Path:
    """The file that a word of a command stands for."""
    if word == "RECORDING":
        return recording
    if word == "SERVER":
        return project / "server.git"
    with Store(project / ".ctxvc") as store:
        handle = StoredSession.open(store, "demo").ledger()["B3"].handle
    reads = {"type": "tool_use", "name": "read_block", "input": {"block": "B3"}}
    replies: list[dict[str, Any]] = [{"content": [reads]}] if word == "CITING" else []
    path = project / "script.json"
    path.write_text(json.dumps([*replies, {"content": f"Hello [{handle}]."}]))
    return path


def _check(value: Any, kind: Any) -> None:
    """`value` has exactly the fields of the struct `kind`, with their types, and so have the items in it."""
    assert list(value) == list(kind.__struct_fields__)
    msgspec.json.decode(msgspec.json.encode({"schema": kind.__struct_config__.tag, **value}), type=kind)
    for name, hint in get_type_hints(kind).items():
        (item,) = get_args(hint) if get_origin(hint) is list else (hint,)
        if isinstance(item, type) and issubclass(item, answers.Item):
            for each in value[name] if get_origin(hint) is list else [value[name]]:
                _check(each, item)


def test_the_trace_has_all_scopes_oldest_first_and_only_grows(run: Run, built: Path, tmp_path: Path) -> None:
    built = Path(shutil.copytree(built, tmp_path / "copy"))

    def traced() -> list[str]:
        return run("log", "--jsonl", folder=built).stdout.splitlines()

    before = traced()
    run("scope", "aside", "-m", "look", folder=built)
    run("note", "-m", "seen", folder=built)
    between = traced()
    run("goto", "main", "-m", "back", folder=built)
    after = traced()
    assert between[: len(before)] == before
    assert after[: len(between)] == between
    items = [json.loads(line) for line in after]
    assert [item["scope"] for item in items[-4:]] == ["main", "aside", "aside", "main"]
    assert len({item["commit"] for item in items}) == len(items)
    places = {each["commit"]: place for place, each in enumerate(items)}
    assert all(places[parent] < places[item["commit"]] for item in items for parent in item["parents"])
    assert run("log", "--jsonl", "-n", "2", folder=built).stdout.splitlines() == after[-2:]


def test_a_line_of_jsonl_is_an_item_of_the_log(run: Run, built: Path) -> None:
    lines = run("log", "--jsonl", folder=built).stdout.splitlines()
    items = json.loads(run("log", "--json", folder=built).stdout)["items"]
    of_main = [item for line in lines if (item := json.loads(line))["scope"] == "main"]
    assert of_main[::-1] == [item for item in items if item["scope"] == "main"]


def test_json_has_the_bytes_that_are_no_text(ask: Callable[..., Any], run: Run, built: Path) -> None:
    import base64

    told = ask("show", "B9-1.png")
    assert told["text"] is None
    assert base64.b64decode(told["base64"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "page"),
    [("cli.md", reference.cli_page), ("json.md", reference.json_page), ("table.md", reference.table_page)],
)
def test_the_reference_is_made_of_this_code(name: str, page: Callable[[], str]) -> None:
    assert (ROOT / "docs" / name).read_text() == page(), "run: python docs/reference.py"


def test_the_schemas_are_made_of_this_code() -> None:
    assert {path.name: path.read_text() for path in SCHEMAS.iterdir()} == reference.schemas(), (
        "run: python docs/reference.py"
    )


@pytest.mark.parametrize("name", sorted(reference.schemas()))
def test_a_schema_is_one_of_the_draft_that_it_names(name: str) -> None:
    schema = json.loads((SCHEMAS / name).read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


def test_a_schema_refuses_what_is_no_such_answer_and_takes_fields_to_come(run: Run, built: Path) -> None:
    sessions = json.loads(run("sessions", "--json", folder=built).stdout)
    of_sessions = validator("ctxvc.sessions-2.json")
    assert of_sessions.is_valid({**sessions, "to_come": 1})
    for wrong in (
        {**sessions, "schema": "ctxvc.sessions/3"},
        {**sessions, "items": "none"},
        {**sessions, "items": [{}]},
        {key: value for key, value in sessions.items() if key != "current"},
    ):
        assert not of_sessions.is_valid(wrong)


def test_the_lines_of_jsonl_and_errors_have_schemas_too(run: Run, built: Path) -> None:
    for line in run("log", "--jsonl", folder=built).stdout.splitlines():
        validator("log-item.json").validate(json.loads(line))
    for arguments in (["show", "B999"], ["no-such-command"], ["show", "B1", "--no-such-option"]):
        result = run(*arguments, "--json", folder=built)
        assert result.exit_code != 0
        validator("error.json").validate(json.loads(result.stderr))


def test_the_reference_names_every_command_and_every_answer() -> None:
    commands, answers = reference.cli_page(), reference.json_page()
    assert not [name for name in COMMANDS if f"### ctxvc {name}\n" not in commands]
    assert not [tag for tag in TYPES if f"`{tag}`" not in answers]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_an_example_and_says_what_the_list_of_commands_says(name: str, run: Run) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    example, _, rest = result.stdout.partition("\n\n")
    assert example.startswith("Example: ")
    assert name in example
    command = cli.get_command(None, name)
    assert command.help.partition("\n")[0] == COMMANDS[name]
    assert rest.startswith("Usage: ctxvc ")


def test_help_lists_every_command_with_what_it_does(run: Run) -> None:
    for arguments in (["--help"], ["-h"], []):
        told = run(*arguments).stdout
        assert told.startswith("Example: ")
        for name, summary in COMMANDS.items():
            assert f"  {name} " in told
            assert summary in told


def test_the_example_of_every_command_is_one() -> None:
    """An example names options and arguments that exist: none is refused as wrong usage. Nothing is run."""
    for name in COMMANDS:
        command = cli.get_command(None, name)
        arguments = shlex.split(command.example.removeprefix("ctxvc ").partition(" < ")[0])
        if arguments[0] == name and name not in ("import", "demo", "checkout", "export"):
            assert command.make_context(name, arguments[1:], obj=App()).params is not None, command.example
