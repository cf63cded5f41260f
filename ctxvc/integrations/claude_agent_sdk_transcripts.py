"""Transcripts of the Claude Agent SDK as their records say, and as files that the host could have written."""

from __future__ import annotations

import hashlib
import re
import time as clock
from pathlib import Path
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.integrations.records import Records

_FILE = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)
_SUBAGENT = re.compile(r"subagents/(?:(?!\.)[\w.-]{1,200}/){0,8}agent-[\w.-]{1,200}", re.ASCII)


class Transcript:
    """One session of the SDK: its own entries and those of its sub-agents, by subpath, as far as they were read."""

    def __init__(self, records: Records, project: str, session: str) -> None:
        self.records = records
        self.unread = False  # whether there are entries that no import has read
        self.import_due = 0.0
        self._project, self._session = project, session
        self._entries: dict[str, list[Any]] = {}
        self._uuids: dict[str, set[str]] = {}
        self._summary: Any = None
        self._mtime = 0

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
        """The transcript as files as the host keeps them, its own first, then those of sub-agents."""
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
