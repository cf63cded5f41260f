"""A Claude Code that is played: its transcript, its messages, and the compactions that it asks for and installs."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctxvc.claude_code import compaction
from ctxvc.claude_code.compaction import Choice
from ctxvc.cli.hosts import line
from ctxvc.importers.claude_code import FORMAT
from ctxvc.policies.default import Default
from ctxvc.recording.files import Follower
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create

SESSION = "0b9c3c1e-6a52-4f5e-9a57-0d1f4b1b8f10"


#: A tool's output that is too long to keep.
LONG = "".join(f"line {number}\n" for number in range(4000))


class PlayedHost:
    """A Claude Code that is played: it writes its transcript, asks for compactions, and installs them or not."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.config = folder / "config"
        self.transcript = self.config / "projects" / "-project" / f"{SESSION}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.project.mkdir()
        create(self.project / FOLDER).close()
        self.messages: list[dict[str, Any]] = []
        self.parent: str | None = None
        self.characters = 0

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "CLAUDE_CONFIG_DIR": str(self.config)}

    @property
    def store(self) -> Path:
        return self.project / FOLDER

    def line(self, **fields: Any) -> str:
        name = str(uuid.uuid4())
        self.characters += len(str(fields.get("message", {}).get("content", "")))
        common = {
            "parentUuid": self.parent, "isSidechain": False, "uuid": name, "sessionId": SESSION,
            "cwd": str(self.project),
        }  # fmt: skip
        with self.transcript.open("a") as file:
            file.write(
                json.dumps({**common, "version": "2.1.330", "timestamp": "2026-11-23T08:00:00Z", **fields}) + "\n"
            )
        self.parent = name
        return name

    def says(self, text: str) -> None:
        """A person's prompt."""
        name = self.line(type="user", promptId="p", promptSource="sdk", message={"role": "user", "content": text})
        self.messages.append({"role": "user", "text": text, "toolUses": [], "handle": name})

    def reads_two_files(self) -> None:
        """A turn that reads two long files, and a short turn behind it."""
        self.says("Read both.")
        self.calls("t1", LONG)
        self.calls("t2", LONG.replace("line", "row"))
        self.replies("I did.")
        self.says("And now?")
        self.replies("Nothing.")

    def replies(self, text: str) -> None:
        name = self._reply({"type": "text", "text": text})
        self.messages.append({"role": "assistant", "text": text, "toolUses": [], "handle": name})

    def calls(self, call: str, output: str, tool: str = "Bash", arguments: Mapping[str, Any] | None = None) -> None:
        """A call and its result."""
        use = {"tool_use_id": call, "tool": tool, "input": arguments or {"command": f"cat {call}"}}
        name = self._reply({"type": "tool_use", "id": call, "name": tool, "input": use["input"]})
        self.messages.append({"role": "assistant", "text": "", "toolUses": [use], "handle": name})
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        name = self.line(type="user", message={"role": "user", "content": [result]})
        given = {"tool_use_id": call, "text": output, "isError": False}
        self.messages.append({"role": "user", "text": "", "toolUses": [], "toolResults": [given], "handle": name})

    def _reply(self, block: Mapping[str, Any]) -> str:
        message = {"id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "model": "claude-opus-5-5", "content": [block]}
        return self.line(
            type="assistant",
            message={**message, "usage": {"input_tokens": self.characters // 4 + 1, "output_tokens": 5}},
        )

    def asks(self, **fields: Any) -> dict[str, Any]:
        """The answer to a compaction."""
        event = {"session": SESSION, "folder": str(self.project), "trigger": "manual", "messages": self.messages}
        choice = Choice(policy=Default(), line=line, target=fields.pop("target", 3_000))
        answer = compaction.answer(json.dumps({**event, **fields}).encode(), self.env, lambda _: choice)
        answered: dict[str, Any] = json.loads(answer)
        return answered

    def installs(self, messages: list[dict[str, Any]]) -> None:
        """Writes a boundary and the messages that it was given, as the real client does."""
        self.parent = None
        self.line(type="system", subtype="compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 9})
        self.messages = []
        for message in messages:
            content: list[dict[str, Any]] = [{"type": "text", "text": message["text"]}] if message["text"] else []
            content += [
                {"type": "tool_use", "id": use["tool_use_id"], "name": use["tool"], "input": use["input"]}
                for use in message["toolUses"]
            ]
            content += [
                {"type": "tool_result", "tool_use_id": result["tool_use_id"], "content": result["text"]}
                for result in message.get("toolResults", [])
            ]
            extra = {"id": str(uuid.uuid4()), "model": "<synthetic>"} if message["role"] == "assistant" else {}
            written = {"role": message["role"], "content": content, **extra}
            name = self.line(type=message["role"], message=written)
            self.messages.append({**message, "handle": name})

    def summarises(self) -> None:
        """Compacts by itself."""
        self.parent = None
        self.line(type="system", subtype="compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 9})
        self.line(type="user", isCompactSummary=True, message={"role": "user", "content": "A summary."})

    @contextmanager
    def stored(self) -> Iterator[StoredSession]:
        with Store(self.store) as store:
            stored = StoredSession.open(store, store.session_of(FORMAT, SESSION))
            yield stored
            stored.leave()

    def records(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """What the recorder does with each event; `meanwhile` happens once it has looked what became of an answer."""
        with Store(self.store) as store:
            ends = compaction.settle(store, str(self.transcript))
            meanwhile()
            taken = Follower(store, self.transcript, FORMAT).take(closes=True, ends=ends)
            errors = [outcome.error for outcome in taken]
            assert errors == [None] * len(errors)

    def states(self) -> dict[str, str]:
        with self.stored() as stored:
            return {row.id: row.state for row in stored.ledger().rows() if row.kind in ("tool_result", "user")}

    def plans(self) -> int:
        with self.stored() as stored:
            return len(stored.pending_plans())
