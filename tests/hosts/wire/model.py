"""The scripted model of all clients: it says what comes next, and something fitting to what is asked on the side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.hosts.wire.upstream import Blocks, Body
from tests.messages_api import call, text

__all__ = ["TASK", "Script", "call", "custom", "in_namespace", "say", "text"]

#: Stands in what a sub-agent is asked to do, and nowhere else.
TASK = "SUBTASK"
SUMMARY = (
    "<state_snapshot>THE-SUMMARY: a file was read.</state_snapshot><summary>THE-SUMMARY: a file was read.</summary>"
)
#: What requests for a summary say at their end.
_SUMMARIZES = re.compile(
    r"<summary>|state_snapshot|CONTEXT CHECKPOINT COMPACTION|summar(y|ize) (of )?(our|the|this|your)? ?conversation"
    r"|Create a (detailed|new anchored) summary|anchored summary|context-aware state summary"
    r"|structured context checkpoint summary|This is the PREFIX of a turn",
    re.IGNORECASE,
)


def say(said: str) -> Blocks:
    """A reply that is only text."""
    return [text(said)]


def custom(name: str, source: str) -> dict[str, Any]:
    """A call of a tool that takes text as it is; only the Responses API has those."""
    return {"type": "custom_tool_use", "name": name, "input": source}


def in_namespace(namespace: str, name: str, /, **given: object) -> dict[str, Any]:
    """A call of a tool in a namespace; only the Responses API has those."""
    return {**call(name, **given), "namespace": namespace}


def _asks_for_summary(text: str) -> bool:
    """An earlier summary may be in it: in Anthropic's form texts in a row are one message."""
    return bool(_SUMMARIZES.search(text.replace(SUMMARY, "")[-20_000:]))


@dataclass
class Script:
    """Replies that are to come: in the conversation, and in its sub-agent."""

    main: list[Blocks] = field(default_factory=list)
    sub: list[Blocks] = field(default_factory=list)
    #: What was asked beyond the script, by its last words.
    beyond: list[str] = field(default_factory=list)
    #: It is time for a summary, and how many there were.
    compacts: bool = False
    summaries: int = 0

    def begin(self, main: list[Blocks], sub: list[Blocks], *, compacts: bool) -> None:
        """Begins what is said in one run of a client."""
        self.main, self.sub, self.beyond, self.compacts, self.summaries = list(main), list(sub), [], compacts, 0

    def __call__(self, body: Body) -> Blocks:
        said = list(users(body))
        if (body.get("input") or [""])[-1] == {"type": "compaction_trigger"}:
            self.summaries += 1
            return [{"type": "compaction", "encrypted_content": "THE-SUMMARY"}]
        # Before a sub-agent's task, which a history that is to be summarized has in it.
        if self.compacts and (not self.main or (said and _asks_for_summary(said[-1]))):
            self.summaries += 1
            return say(SUMMARY)
        if any(TASK in one for one in said):
            return self._next(self.sub, said)
        if is_aside(body, said):
            return say("A title")
        return self._next(self.main, said)

    def _next(self, replies: list[Blocks], said: list[str]) -> Blocks:
        if replies:
            return replies.pop(0)
        self.beyond.append(said[-1][-300:] if said else "")
        return say("Nothing more.")


def users(body: Body) -> Iterator[str]:
    """What a request says in the user's name: the text of each message."""
    messages = body.get("messages") or body.get("contents") or body.get("input") or []
    if isinstance(messages, str):
        yield messages
        return
    for message in messages:
        if message.get("role") == "user" or message.get("type") == "agent_message":
            content = message.get("content", message.get("parts"))
            yield (
                content
                if isinstance(content, str)
                else "\n".join(part.get("text") or part.get("encrypted_content") or "" for part in content)
            )


def is_aside(body: Body, said: list[str]) -> bool:
    """Whether a request is beside the conversation: a title, a commit's message, a choice of model."""
    if body.get("tools") or "additional_tools" in json.dumps(body.get("input", ""))[:200_000]:
        return False
    return not any("SEARCH/REPLACE" in one for one in said) and "SEARCH/REPLACE" not in json.dumps(body)
