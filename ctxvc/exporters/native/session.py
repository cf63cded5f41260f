"""What the module of every agent offers: a `NativeFormat`, which writes a session as that agent keeps its own."""

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
    """Where and when a session is to be continued."""

    folder: Path
    """The working folder, absolute."""
    time: datetime
    """The session's time, with a zone: agents list their newest first, and some remove old ones."""
    copy: int = 0
    """Distinguishes several sessions of one revision."""
    recovery: str = ""
    """How the agent gets back what a stub stands for: said once, in front of all, where there is a stub."""
    model: str = ""
    """The model to continue with; empty for the one that the agent is set to."""


class NativeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in an agent's own files. A loss is named as in `exported.Exported`."""

    id: str
    """The agent's own name for it, which `resume` takes."""
    files: Mapping[PurePosixPath, bytes]
    """The files by their place in the agent's folder: one, or those of one folder there. The first is the recording
    that our importer takes."""
    losses: tuple[Loss, ...] = ()


class NativeFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The `NATIVE` of a module of `ctxvc.exporters.native`, which is named after its agent."""

    agent: str
    format: str
    """The format of `ctxvc.importers` that reads its files."""
    write: Callable[[Conversation, Setting], NativeSession]
    """The prompt of a conversation as a session. The same conversation in the same setting gives the same bytes.

    Raises: Refused if there is no message to continue.
    """
    folder: Callable[[Path, Path, Mapping[str, str]], Path] | None
    """The folder that `NativeSession.files` are in, by the working folder, the person's home and environment; None for
    an agent that takes them from anywhere."""
    resume: str
    """The command that continues a session, with `{id}` for its id, run in the working folder; empty for none."""
    install: str = ""
    """The agent's own command that takes the first file in, with `{file}` for its path; empty where the agent finds its
    files by itself."""

    def commands(self, file: Path, session: str) -> list[list[str]]:
        """The agent's own commands after which it works on the session of that id, whose first file this is."""
        commands = (command.split() for command in (self.install, self.resume) if command)
        return [[word.format(file=file, id=session) for word in command] for command in commands]


def session_id(conversation: Conversation, setting: Setting, agent: str) -> uuid.UUID:
    """The id of a revision's session: of another revision, agent or copy it is another."""
    snapshot = conversation.snapshot
    last = snapshot.ledger.last()
    newest = f"{last.id}@{last.sha256}" if last else ""
    place = (agent, snapshot.session, snapshot.scope, snapshot.commit, newest, str(snapshot.waiting))
    return uuid.uuid5(_NAMESPACE, "\0".join((*place, str(setting.folder), str(setting.copy))))


def model(conversation: Conversation, setting: Setting) -> tuple[str, str]:
    """Provider and name of the model that replied, as far as they are known."""
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
    """The title by which a person finds the session in the agent's list."""
    source = conversation.ledger.meta.source
    origin = f" (from {source.format})" if source and source.format else ""
    return display.one_line(conversation.title, _LONGEST_TITLE - len(origin)) + origin
