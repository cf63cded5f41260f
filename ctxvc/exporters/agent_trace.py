"""The lines of a project's files with the conversations that wrote them → a record of Agent Trace 0.1.0.

The specification is https://github.com/cursor/agent-trace. `inspection.why` finds who wrote a line: it replays the
recorded edits between the versions of the file in git.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.core import display
from ctxvc.core.prompt import formats
from ctxvc.errors import NotFound, Phrase
from ctxvc.exporters.conversation import Conversation, provider_of
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.inspection import edits, why
from ctxvc.inspection.why import Line, RecordedEdit
from ctxvc.store.git.program import git_says
from ctxvc.store.project import code_history
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Reply
from ctxvc.store.timestamp import iso

FORMAT = "agent-trace"
_VERSION = "0.1.0"
_NAMESPACE = uuid.UUID("4f9f2c0e-5d0e-5f8f-8d0a-0f0c9a3b7d21")
#: The longest name of a model that the specification allows.
_LONGEST_MODEL = 250


class _Contributor(NamedTuple):
    """The author of a line: the kind, and for an agent its session, scope and model."""

    kind: str
    session: str = ""
    scope: str = ""
    model: str = ""

    @property
    def value(self) -> dict[str, str]:
        return {"type": self.kind, **({"model_id": self.model} if self.model else {})}


def export(conversation: Conversation, folder: Path, files: Sequence[str] = ()) -> Exported:
    """The record for these files in the project's newest commit, by default all that the conversation changed.

    `folder` is in the project. Raises: NotFound if it has no commit, or no call on the files is recorded.
    """
    top = Path(git_says(folder, "rev-parse", "--show-toplevel").rstrip("\n") or folder)
    head = git_says(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
    if not head:
        raise NotFound(
            f"{folder} is in no git repository with a commit",
            hint="a record names its lines by a commit: commit the project's files first",
        )
    tracked = git_says(top, "ls-tree", "-r", "-z", "--name-only", head).split("\0")[:-1]
    names = _checked(top, folder, files, tracked) if files else _changed(conversation, tracked)
    store = conversation.store
    recorded = why.recorded_edits(store, store.sessions(), names)
    models, losses = _Models(conversation), list[Loss]()
    traced = []
    for name in names:
        if lines := _lines(top, name, head, recorded[name]):
            traced.append({"path": name, "conversations": list(_conversations(lines, models, losses, name))})
            if git_says(top, "status", "--porcelain", "--", f":(literal){name}"):
                losses.append(Loss(f"files.{name}", "its committed version"))
    if not traced:
        raise NotFound(
            "no recorded session changed a file as it is in the newest commit", hint=Phrase("import-sessions")
        )
    record = {
        "version": _VERSION,
        "id": str(uuid.uuid5(_NAMESPACE, "\0".join((head, conversation.snapshot.commit, *names)))),
        "timestamp": iso(conversation.entries[0].time if conversation.entries else 0),
        "vcs": {"type": "git", "revision": head},
        "tool": {"name": "ctxvc", "version": version("ctxvc")},
        "files": traced,
    }
    return Exported(formats.dumps(record), tuple(losses))


def _checked(top: Path, folder: Path, files: Sequence[str], tracked: Sequence[str]) -> list[str]:
    """The files' paths in the project. Raises: NotFound if one is not in the commit."""
    names = []
    for file in files:
        try:
            name = (folder / file).resolve().relative_to(top.resolve()).as_posix()
        except ValueError:
            name = ""
        if name not in tracked:
            raise NotFound(f"{file} is not in the newest commit", hint="commit it first, or name another file")
        names.append(name)
    return list(dict.fromkeys(names))


def _changed(conversation: Conversation, tracked: Sequence[str]) -> list[str]:
    """The tracked files that calls of the conversation and of its sub-agents changed."""
    scopes = [conversation, *map(conversation.subagent, conversation.subagents)]
    paths = {
        change.path
        for scope in scopes
        for row in scope.ledger.rows()
        if row.kind == "tool_use"
        for change in edits.changes(scope.snapshot.bodies.body(row), row.ext)
        if change.path
    }
    by_name: dict[str, list[str]] = {}
    for name in tracked:
        by_name.setdefault(name.rpartition("/")[2], []).append(name)
    return sorted(
        {
            name
            for path in paths
            for name in by_name.get(path.replace("\\", "/").rpartition("/")[2], ())
            if edits.same_file(path, name)
        }
    )


def _lines(top: Path, name: str, head: str, recorded: Sequence[RecordedEdit]) -> list[Line]:
    """The lines of a file at a commit; empty if no call on it is recorded, or it has no text."""
    since = why.first_edit(recorded)
    if since is None:
        return []
    history = code_history.versions(top, code_history.history(top, name, head), since)
    return why.lines_of(history, recorded) if history and history[-1].text else []


class _Models:
    """The models of the replies in a store's scopes; each scope is read once."""

    def __init__(self, conversation: Conversation) -> None:
        self._store = conversation.store
        self._replies: dict[tuple[str, str], dict[int, Reply]] = {}

    def of(self, edit: RecordedEdit) -> str:
        """The model of the reply that made a call, as `provider/model`; empty if unknown."""
        place = edit.place
        key = place.session, place.scope
        if key not in self._replies:
            tip = self._store.tips(place.session)[place.scope]
            self._replies[key] = revision.replies(self._store, revision.history(self._store, tip))
        reply = self._replies[key].get(place.row.step)
        model = reply.model if reply else ""
        if not model or "/" in model:
            return model[:_LONGEST_MODEL]
        provider = provider_of(model)
        return f"{provider}/{model}"[:_LONGEST_MODEL] if provider else model[:_LONGEST_MODEL]


def _conversations(lines: Sequence[Line], models: _Models, losses: list[Loss], name: str) -> Iterator[dict[str, Any]]:
    """The conversations of a file with their ranges, in the order of their first lines."""
    by_contributor: dict[_Contributor, list[int]] = {}
    steps: dict[_Contributor, set[int]] = {}
    uncertain = 0
    for number, line in enumerate(lines, 1):
        if line.text.strip():
            contributor = _contributor(line, models)
            by_contributor.setdefault(contributor, []).append(number)
            if line.edit:
                steps.setdefault(contributor, set()).add(line.edit.place.row.step)
                uncertain += line.evidence != "replay"
    if uncertain:
        losses.append(Loss(f"files.{name}.evidence", f"how sure {uncertain} lines are is only in `why`"))
    for contributor, numbers in by_contributor.items():
        ranges = [_range(lines, first, last) for first, last in why.ranges(numbers, lines)]
        conversation: dict[str, Any] = {"contributor": contributor.value, "ranges": ranges}
        if contributor.session:
            url = f"ctxvc:{contributor.session}/{contributor.scope}"
            related = [{"type": "step", "url": f"{url}?step={step}"} for step in sorted(steps[contributor])]
            conversation = {"url": url, **conversation, "related": related}
        yield conversation


def _contributor(line: Line, models: _Models) -> _Contributor:
    if line.edit:
        return _Contributor("ai", line.edit.place.session, line.edit.place.scope, models.of(line.edit))
    return _Contributor("human" if line.by_person else "unknown")


def _range(lines: Sequence[Line], first: int, last: int) -> dict[str, Any]:
    return {
        "start_line": first,
        "end_line": last,
        "content_hash": f"sha256:{_digest(line.text for line in lines[first - 1 : last])}",
    }


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256(display.encode("\n".join(texts))).hexdigest()
