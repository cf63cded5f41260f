"""Lines of a project by the conversations that wrote them, as a record of Agent Trace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ctxvc.errors import NotFound
from ctxvc.exporters import agent_trace
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.store.store import Store
from tests.exporters.trips import imported

_SCHEMA = Draft202012Validator(json.loads((Path(__file__).parent / "agent_trace.schema.json").read_text()))
_MODEL = "claude-opus-4-5-20251101"
BEFORE = "def add(a, b):\n    return a - b\n"
AFTER = "def add(a, b):\n    # the sum of both\n    return a + b\n\n\nVERSION_BY_HAND = '1.0'\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a commit before and one after an agent's edit, to which a person added a line."""
    project = tmp_path / "code"
    project.mkdir()
    git(project, "init", "-q")
    commit(project, "2026-01-01T00:00:00Z", BEFORE)
    commit(project, "2026-01-02T11:00:00Z", AFTER)
    return project


def git(project: Path, *arguments: str, at: str = "") -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at} if at else {}
    result = subprocess.run(
        ["git", "-C", project, *identity, *arguments],
        capture_output=True, check=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(project), **dates},
    )  # fmt: skip
    return result.stdout


def commit(project: Path, at: str, text: str) -> None:
    (project / "app.py").write_text(text)
    git(project, "add", "app.py")
    git(project, "commit", "-qm", "a change", at=at)


def recorded(store: Store, project: Path) -> Conversation:
    edit = {"file_path": str(project / "app.py"), "old_string": "    return a - b",
            "new_string": "    # the sum of both\n    return a + b"}  # fmt: skip
    facts = {"ts": "2026-01-02T10:00:00Z", "model": _MODEL}
    lines: list[dict[str, Any]] = [
        {"format": "ctxvc-trajectory/1", "id": "fix-add", "model": _MODEL},
        {"role": "user", "content": [{"type": "text", "text": "fix add"}], "meta": facts},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Edit", "input": edit}],
         "meta": facts},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": []}], "meta": facts},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "meta": facts},
    ]  # fmt: skip
    path = project.parent / "fix-add.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return imported(store, path)


def record(export: Exported) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(export.data)
    _SCHEMA.validate(value)
    return value


def test_each_line_has_its_contributor(store: Store, project: Path) -> None:
    trace = record(agent_trace.export(recorded(store, project), project))

    assert trace["vcs"] == {"type": "git", "revision": git(project, "rev-parse", "HEAD").strip()}
    (file,) = trace["files"]
    assert file["path"] == "app.py"
    by_kind = {conversation["contributor"]["type"]: conversation for conversation in file["conversations"]}
    lines = {kind: [(one["start_line"], one["end_line"]) for one in each["ranges"]] for kind, each in by_kind.items()}
    assert lines == {"unknown": [(1, 1)], "ai": [(2, 3)], "human": [(6, 6)]}
    assert by_kind["ai"]["contributor"]["model_id"] == f"anthropic/{_MODEL}"
    assert by_kind["ai"]["url"] == "ctxvc:fix-add/main"
    assert by_kind["ai"]["related"] == [{"type": "step", "url": "ctxvc:fix-add/main?step=1"}]


def test_the_lines_are_those_of_the_commit_whatever_is_in_the_folder(store: Store, project: Path) -> None:
    talk = recorded(store, project)
    clean = agent_trace.export(talk, project)
    (project / "app.py").write_text("something else\n" + AFTER)
    dirty = agent_trace.export(talk, project)

    assert dirty.data == clean.data
    assert [loss.path for loss in clean.losses] == []
    assert [loss.path for loss in dirty.losses] == ["files.app.py"]


def test_a_file_is_named_from_the_folder_that_one_is_in(store: Store, project: Path) -> None:
    (project / "deep").mkdir()
    talk = recorded(store, project)

    export = agent_trace.export(talk, project / "deep", ("../app.py",))

    assert [file["path"] for file in record(export)["files"]] == ["app.py"]


def test_what_no_commit_has_is_refused(store: Store, project: Path, tmp_path: Path) -> None:
    talk = recorded(store, project)

    with pytest.raises(NotFound, match="not in the newest commit"):
        agent_trace.export(talk, project, ("other.py",))
    with pytest.raises(NotFound, match="not in the newest commit"):
        agent_trace.export(talk, project, ("../../etc/passwd",))
    with pytest.raises(NotFound, match="no git repository"):
        agent_trace.export(talk, tmp_path)
    git(project, "mv", "app.py", "renamed.txt")
    git(project, "commit", "-qm", "renamed", at="2026-01-03T11:00:00Z")
    with pytest.raises(NotFound, match="no recorded session"):
        agent_trace.export(talk, project)
