"""What the model says to Claude Code: replies by session and by sub-agent, and defaults for requests on the side."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.messages_api.script import Reply, Said, ScriptEnded
from tests.messages_api.wire import Block

SUMMARY = "<analysis>Short.</analysis>\n<summary>\nTHE-SUMMARY of what was done so far.\n</summary>"
#: What a request for a summary says near its end.
_COMPACTS = re.compile(r"Do NOT call any tools.*<summary>", re.DOTALL)
_TAIL = 12_000


@dataclass
class Script:
    """Replies that are yet to come: of a session's main line, and of its sub-agents by a text in their first message.

    `summary` answers the host's own compaction.
    """

    main: list[Said] = field(default_factory=list)
    agents: dict[str, list[Said]] = field(default_factory=dict)
    summary: Said = SUMMARY

    @property
    def left(self) -> int:
        return len(self.main) + sum(map(len, self.agents.values()))


@dataclass
class Scripts:
    """The assistant of all sessions, each with its script."""

    sessions: dict[str, Script] = field(default_factory=dict)

    def of(self, session: str) -> Script:
        return self.sessions.setdefault(session, Script())

    def __call__(self, body: Mapping[str, Any]) -> Said:
        script = self.of(session(body))
        if compacts(body):
            return script.summary
        if not body.get("tools"):
            return Reply("ok")
        first = message_text(next(one for one in body["messages"] if one["role"] == "user"))
        replies = next((replies for text, replies in script.agents.items() if text in first), script.main)
        if not replies:
            raise ScriptEnded(f"nothing more is scripted for {session(body)}; it was asked: {last_text(body)[-300:]}")
        return replies.pop(0)


def session(body: Mapping[str, Any]) -> str:
    """The session of a request, as the client names it."""
    try:
        named = json.loads(body["metadata"]["user_id"])["session_id"]
    except (KeyError, TypeError, ValueError):
        return ""
    return named if isinstance(named, str) else ""


def compacts(body: Mapping[str, Any]) -> bool:
    """Whether the host asks for a summary."""
    return bool(_COMPACTS.search(last_text(body)[-_TAIL:]))


def last_text(body: Mapping[str, Any]) -> str:
    """The text of the last user message."""
    return next((message_text(one) for one in reversed(body["messages"]) if one["role"] == "user"), "")


def message_text(message: Mapping[str, Any]) -> str:
    """All that a message says, results of tools and arguments of calls included."""
    return _text(message["content"])


def text(body: Mapping[str, Any]) -> str:
    """All that the messages of a request say."""
    return "\n".join(map(message_text, body["messages"]))


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(map(_block_text, content))


def _block_text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "thinking":
            return str(block["thinking"])
        case "tool_result":
            return _text(block.get("content", ""))
    return json.dumps(block, ensure_ascii=False)


def reading(body: Block) -> Block:
    """A request without what the client sends under betas that the rules of the API do not know.

    Its billing line names the client's build. An empty system message sets only the effort of a turn.
    """
    read = dict(body)
    if read.get("context_management") == {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}:
        del read["context_management"]
    if isinstance(read.get("thinking"), dict) and read["thinking"].get("display") == "updates":
        read["thinking"] = {**read["thinking"], "display": "summarized"}
    system = read.get("system")
    if isinstance(system, list):
        read["system"] = [one for one in system if not one["text"].startswith("x-anthropic-billing-header")]
    messages = [
        {name: value for name, value in one.items() if name != "output_config"}
        for one in body.get("messages", [])
        if one["content"] or one["role"] != "system" or "output_config" not in one
    ]
    return {**read, "messages": messages}
