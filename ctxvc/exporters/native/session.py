"""The interface of an agent's module: a `NativeFormat`, which writes a session in that agent's own form."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import msgspec

from ctxvc.core import display
from ctxvc.exporters.conversation import Conversation, provider_of
from ctxvc.forms.losses import Loss

_NAMESPACE = uuid.UUID("2b1c5a51-8a4b-5a55-9b5c-3d6f5b7a0c43")
_LONGEST_TITLE = 120


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The place and time at which a session is to be continued."""

    folder: Path
    """The working folder, absolute."""
    time: datetime
    """The session's time, with a zone: agents list their newest first, and some remove old ones."""
    copy: int = 0
    """Distinguishes several sessions of one revision."""
    recovery: str = ""
    """How the agent recovers blocks behind stubs: the first text of the session, if it has stubs."""
    model: str = ""
    """The model to continue with; empty for the agent's setting."""


class NativeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in an agent's own files. A loss is named as in `exported.Exported`."""

    id: str
    """The agent's id of it, which `resume` takes."""
    files: Mapping[PurePosixPath, bytes]
    """The files by their path in the agent's folder: one, or those of one folder there. The first is the recording that
    our importer reads."""
    losses: tuple[Loss, ...] = ()


class NativeFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The `NATIVE` of a module of `ctxvc.exporters.native`, which has the agent's name."""

    agent: str
    format: str
    """The format of `ctxvc.importers` that reads its files."""
    write: Callable[[Conversation, Setting], NativeSession]
    """Writes the prompt of a conversation as a session. Equal arguments give equal bytes.

    Raises: Refused if there is no message to continue.
    """
    folder: Callable[[Path, Path, Mapping[str, str]], Path] | None
    """The folder for `NativeSession.files`, by the working folder, the person's home and the environment; None if they
    may be anywhere."""
    resume: str
    """The command that continues a session, with `{id}` for its id, run in the working folder; empty for none."""
    install: str = ""
    """The agent's command that imports the first file, with `{file}` for its path; empty if none is needed."""

    def commands(self, file: Path, session: str) -> list[list[str]]:
        """The agent's commands, each as arguments, that continue the session with this id and first file."""
        commands = (command.split() for command in (self.install, self.resume) if command)
        return [[word.format(file=file, id=session) for word in command] for command in commands]


def session_id(conversation: Conversation, setting: Setting, agent: str) -> uuid.UUID:
    """The id of a session, which differs for every revision, agent, folder and copy."""
    snapshot = conversation.snapshot
    last = snapshot.ledger.last()
    newest = f"{last.id}@{last.sha256}" if last else ""
    place = (agent, snapshot.session, snapshot.scope, snapshot.commit, newest, str(snapshot.waiting))
    return uuid.uuid5(_NAMESPACE, "\0".join((*place, str(setting.folder), str(setting.copy))))


def model(conversation: Conversation, setting: Setting) -> tuple[str, str]:
    """The provider and name of the model to continue with; `unknown` if unknown."""
    name = setting.model or conversation.ledger.meta.model
    provider = name.partition("/")[0] if "/" in name else provider_of(name)
    return provider or "unknown", name.rpartition("/")[2] or "unknown"


def milliseconds(setting: Setting) -> int:
    """The session's time in milliseconds since 1970."""
    return int(setting.time.timestamp() * 1000)


def stamp(setting: Setting) -> str:
    """The session's time in UTC as ISO 8601, with milliseconds."""
    return setting.time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def title(conversation: Conversation) -> str:
    """The title for the agent's list of sessions."""
    source = conversation.ledger.meta.source
    origin = f" (from {source.format})" if source and source.format else ""
    return display.one_line(conversation.title, _LONGEST_TITLE - len(origin)) + origin
