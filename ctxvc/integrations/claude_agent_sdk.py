"""A `SessionStore` for the Claude Agent SDK: its transcripts in a store, entry by entry, and readable as sessions.

Source: `SessionStore` in `claude_agent_sdk/types.py`, and the contracts in its `testing`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
import threading
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctxvc import importers
from ctxvc.core.ledger import wire
from ctxvc.errors import CtxvcError
from ctxvc.importers.file import Recording
from ctxvc.integrations.records import Closeable, Records, opened, session_name
from ctxvc.store.ingest import ingest

FORMAT = "claude-code"
#: The least time between two imports of a growing transcript, in seconds and as a multiple of the import's duration.
_SECONDS = 2.0
_TIMES = 10
#: Names of sessions and of sub-agents that can name files.
_FILE = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)
_SUBAGENT = re.compile(r"subagents/(?:(?!\.)[\w.-]{1,200}/){0,8}agent-[\w.-]{1,200}", re.ASCII)


class CtxvcSessionStore(Closeable):
    """`ClaudeAgentOptions(session_store=CtxvcSessionStore(".ctxvc"))`. Use it in a `with` block, or `close` it.

    Entries are on disk when `append` returns. They come back unchanged, except that secrets become marks. Transcripts
    are imported as they grow, for `ctxvc log` and everything else that reads sessions; `failure` is the error of the
    newest import, None if it succeeded. `delete` hides a transcript from the SDK; history keeps it until a person
    purges it.
    """

    def __init__(self, path: str | Path = ".ctxvc") -> None:
        self._store = opened(path)
        self._lock = threading.RLock()
        self._transcripts: dict[str, Transcript] = {}
        self.failure: CtxvcError | None = None

    # --- the protocol

    async def append(self, key: Any, entries: Sequence[Any]) -> None:
        """Adds entries to the transcript of `key`, except those whose `uuid` it already has. Raises: CtxvcError."""
        await asyncio.to_thread(self._append, key, list(entries))

    async def load(self, key: Any) -> list[Any] | None:
        """The entries of a transcript; None if it has none. Raises: CtxvcError."""
        return await asyncio.to_thread(self._load, key)

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project, each with the time of its newest entry in milliseconds."""
        return [{"session_id": one["session_id"], "mtime": one["mtime"]} for one in await self._heads(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The SDK's own summaries of the sessions of a project."""
        return await self._heads(project_key)

    async def delete(self, key: Any) -> None:
        """Hides a transcript, and with a session's those of its sub-agents. Nothing is erased: `purge` does that."""
        await asyncio.to_thread(self._delete, key)

    async def list_subkeys(self, key: Any) -> list[str]:
        """The subpaths of a session that have entries."""
        return await asyncio.to_thread(self._subkeys, key)

    # --- a `with` block

    def close(self) -> None:
        """Imports what is new, commits everything, and closes the files."""
        with self._lock:
            for transcript in self._transcripts.values():
                if transcript.unread:
                    self._import(transcript, final=True)
                transcript.records.close()
            self._transcripts.clear()
            self._store.close()

    # --- inside

    def _append(self, key: Any, entries: list[Any]) -> None:
        if not entries:
            return
        with self._lock:
            transcript = self._transcript(key)
            assert transcript is not None
            transcript.append(str(key.get("subpath") or ""), entries)
            if transcript.unread and clock.monotonic() >= transcript.import_due:
                self._import(transcript)

    def _load(self, key: Any) -> list[Any] | None:
        with self._lock:
            transcript = self._transcript(key, make=False)
            return transcript.load(str(key.get("subpath") or "")) if transcript else None

    def _subkeys(self, key: Any) -> list[str]:
        with self._lock:
            transcript = self._transcript(key, make=False)
            return transcript.subpaths() if transcript else []

    def _delete(self, key: Any) -> None:
        with self._lock:
            if transcript := self._transcript(key, make=False):
                transcript.delete(key.get("subpath"))

    async def _heads(self, project_key: str) -> list[Any]:
        return await asyncio.to_thread(self._heads_now, project_key)

    def _heads_now(self, project_key: str) -> list[Any]:
        with self._lock:
            names = (name for name in self._store.sessions() if name.startswith(_prefix(project_key)))
            return [*filter(None, map(self._head, names))]

    def _head(self, name: str) -> dict[str, Any] | None:
        """The id, newest time and summary of a session, from its newest entries alone; None if it was deleted."""
        transcript = self._transcripts.get(name)
        records = transcript.records if transcript else Records(self._store, name)
        try:
            for value in records.newest_first():
                if "deleted" in value and value["deleted"] is None:
                    return None
                if "summary" in value:
                    return {"session_id": value["session"], "mtime": value["time"], "data": value["summary"]}
            return None
        finally:
            if not transcript:
                records.leave()

    def _transcript(self, key: Any, *, make: bool = True) -> Transcript | None:
        """The transcript of a key; without `make`, None if there is none yet."""
        name = session_name(f"{_prefix(key['project_key'])}{key['session_id']}")
        if not (make or name in self._transcripts or self._store.has(name)):
            return None
        if name not in self._transcripts:
            records = Records(self._store, name)
            self._transcripts[name] = Transcript(records, str(key["project_key"]), str(key["session_id"]))
        return self._transcripts[name]

    def _import(self, transcript: Transcript, *, final: bool = False) -> None:
        """Imports the transcript so far as a session. A failure is only noted: the entries are safe."""
        start = clock.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="ctxvc-") as folder:
                main, *subagents = transcript.write(Path(folder))
                session = self._ingest(main, final=final)
                for path in subagents:
                    self._ingest(path, into=session, final=final)
            self.failure = None
        except CtxvcError as error:
            self.failure = error
        transcript.unread = False
        now = clock.monotonic()
        transcript.import_due = now + max(_SECONDS, _TIMES * (now - start))

    def _ingest(self, path: Path, *, into: str = "", final: bool = False) -> str:
        ((_, events),) = importers.conversations(Recording(path), FORMAT)
        return ingest(self._store, events, into=into, source=path.stem if into else "", final=final).session


class Transcript:
    """One session of the SDK: its own entries and those of its sub-agents, by subpath, as far as read."""

    def __init__(self, records: Records, project: str, session: str) -> None:
        self.records = records
        self.unread = False  # whether there are entries that no import has read
        self.import_due = 0.0
        self._project, self._session = project, session
        self._entries: dict[str, list[Any]] = {}
        self._uuids: dict[str, set[str]] = {}
        self._summary: Any = None

    def append(self, subpath: str, entries: list[Any]) -> None:
        from claude_agent_sdk import fold_session_summary

        def make() -> list[dict[str, Any]]:
            self._refresh()
            seen, new = set(self._uuids.get(subpath, ())), []
            for entry in entries:
                uuid = entry.get("uuid")
                if not (isinstance(uuid, str) and uuid in seen):
                    new.append(entry)
                    seen |= {uuid} if isinstance(uuid, str) else set()
            if not new:
                return []
            mtime = int(clock.time() * 1000)
            value = {"project": self._project, "session": self._session, "time": mtime}
            if subpath:
                return [{**value, "subpath": subpath, "entries": new}]
            key = {"project_key": self._project, "session_id": self._session}
            summary = fold_session_summary(self._summary, key, new)
            return [{**value, "entries": new, "summary": summary["data"]}]

        self.records.append(make)
        self._refresh()

    def load(self, subpath: str) -> list[Any] | None:
        self._refresh()
        entries = self._entries.get(subpath)
        return None if entries is None else list(entries)

    def subpaths(self) -> list[str]:
        self._refresh()
        return sorted(subpath for subpath in self._entries if subpath)

    def delete(self, subpath: str | None) -> None:
        self.records.append(lambda: [{"deleted": subpath}])
        self._refresh()

    def write(self, folder: Path) -> list[Path]:
        """Writes the transcript as the host's files; returns their paths, its own first, then those of sub-agents."""
        digest = hashlib.sha256(self._session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        stem = self._session if _FILE.fullmatch(self._session) else digest
        files = [(folder / f"{stem}.jsonl", self._entries.get("", []))]
        for subpath, entries in self._entries.items():
            if _SUBAGENT.fullmatch(subpath):
                files.append((folder / stem / f"{subpath}.jsonl", entries))
        for path, entries in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(wire.compact(entry) + b"\n" for entry in entries))
        return [path for path, _ in files]

    def _refresh(self) -> None:
        for value in self.records.new():
            self._apply(value)

    def _apply(self, value: dict[str, Any]) -> None:
        if "deleted" in value:
            subpath = value["deleted"]
            for name in [*self._entries] if subpath is None else [subpath]:
                self._entries.pop(name, None)
                self._uuids.pop(name, None)
            if subpath is None:
                self._summary = None
            return
        self._project, self._session = value["project"], value["session"]
        subpath = value.get("subpath", "")
        self._entries.setdefault(subpath, []).extend(value["entries"])
        ids = (entry.get("uuid") for entry in value["entries"])
        self._uuids.setdefault(subpath, set()).update(uuid for uuid in ids if isinstance(uuid, str))
        if "summary" in value:
            self._summary = {"session_id": value["session"], "mtime": value["time"], "data": value["summary"]}
        self.unread = True


def _prefix(project_key: str) -> str:
    """The prefix of the names of sessions with a project's transcripts."""
    return f"sdk-{hashlib.sha256(project_key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}-"
