"""A hook's input from the host, and its answer. All input is untrusted and may have any form."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.claude_code.requests import Request
from ctxvc.core.display import one_line
from ctxvc.errors import Refused
from ctxvc.recording import places

#: Events after which a transcript has new lines → the field with the reason.
RECORDED = {
    "SessionStart": "source",
    "UserPromptSubmit": "",
    "PreToolUse": "tool_use_id",
    "PostToolUse": "",
    "PostToolUseFailure": "",
    "Stop": "",
    "StopFailure": "error",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "SessionEnd": "reason",
}
#: Events for which the host shows a message to the person.
SHOWN = frozenset(RECORDED) - {"PreCompact", "PostCompact", "SessionEnd"}
#: Our tools, whose calls a hook announces, so that the server knows the conversation that they come from.
OURS = "mcp__(plugin_ctxvc_store|ctxvc)__.*"
#: Characters of a hook's text that the host adds to the context; the model sees only the beginning of longer texts.
MOST = 10_000
#: The end of the text on the recording so far, if the recorder has not reached the transcript's end yet.
UNFINISHED = (
    "\nThe last messages were still being recorded when this was written: `ctxvc log` shows what is there by now."
)
#: The end of that text if the rest cannot be recorded: why.
MISSING = "\nWhat came after that is not recorded and cannot be recovered: "
#: Characters of the text for the summariser of the conversation.
NAMED = 3_000
#: Characters of the text for a new session on the one before.
OFFERED = 2_000


#: Characters of a sub-agent's id.
_LONGEST_ID = 200
#: Seconds after which a host has installed our prompt, or never will.
_FRESH = 60.0


class HookEvent(NamedTuple):
    """An event of the host: its name, the transcript's path, the session's folder, and all fields unchanged."""

    event: str
    transcript: str
    folder: str
    fields: dict[str, Any]


def parsed(data: bytes, event: str) -> HookEvent | None:
    """The event on a hook's stdin; None if there is none. `event` is its name if the host gives none."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    values = (fields.get(name) for name in ("hook_event_name", "transcript_path", "cwd"))
    name, transcript, folder = (value if isinstance(value, str) and "\0" not in value else "" for value in values)
    return HookEvent(name or event, transcript, folder, fields)


def request(event: HookEvent) -> Request | None:
    """The request to the recorder; None if there is nothing to record.

    A SubagentStop without an agent type is ignored: it is one of the host's own attempts at a summary.
    """
    if event.event not in RECORDED or not event.transcript:
        return None
    detail = event.fields.get(RECORDED[event.event])
    detail = detail if isinstance(detail, str) else ""
    if event.event == "SubagentStop" and not detail:
        return None
    return Request(event.event, main_file(event.transcript), detail[:100])


def main_file(transcript: str) -> str:
    """The session's own transcript, also for a sub-agent's."""
    path = Path(transcript)
    return f"{path.parent.parent}.jsonl" if path.parent.name == "subagents" else transcript


def caller(event: HookEvent) -> bytes:
    """The caller of the call that an event announces: the session's transcript, and the sub-agent's id or nothing."""
    agent = event.fields.get("agent_id")
    agent = agent[:_LONGEST_ID] if isinstance(agent, str) else ""
    main = main_file(event.transcript)
    if not agent and main != event.transcript:
        agent = Path(event.transcript).stem.removeprefix("agent-")
    return f"{main}\0{agent}".encode()


def handed_back(store: Path, transcript: str, seconds: float) -> str:
    """The recorder's text for the model after a compaction; empty if it does not come within `seconds`.

    Removes the file: the text is returned once.
    """
    path = places.handoff(store, transcript)
    until = time.monotonic() + seconds
    while True:
        try:
            text = places.sealed(store, path).decode("utf-8", "replace")
        except FileNotFoundError:
            if time.monotonic() >= until:
                return ""
            time.sleep(0.01)
        else:
            places.remove(store, path)
            return text


def is_installing(store: Path, transcript: str) -> bool:
    """Whether the host was just sent a prompt of ours to install."""
    try:
        moment = float(places.sealed(store, places.compacted(store, transcript)))
    except (FileNotFoundError, ValueError):
        return False
    return 0 <= time.time() - moment < _FRESH


def so_far(store: Path, transcript: str, reason: str = "") -> str:
    """The text for the model after a compaction while the recorder is still at work; empty if nothing is recorded yet.

    `reason` says why the rest cannot be recorded; empty if it can.
    """
    text = _text(store, places.so_far(store, transcript))
    return "" if text is None else text + (f"{MISSING}{one_line(reason, 300)}" if reason else UNFINISHED)


def summariser(store: Path, transcript: str) -> str:
    """The text for the summariser of the conversation; empty if nothing is recorded yet."""
    return _text(store, places.summariser(store, transcript)) or ""


def _text(store: Path, path: Path) -> str | None:
    try:
        return places.sealed(store, path).decode("utf-8", "replace")
    except (OSError, Refused):
        return None


def trouble(reason: str) -> str:
    """The message to the person that the conversation is not recorded."""
    return (
        f"ctxvc does not record this session at the moment: {one_line(reason, 300)}. What is missing is recorded as "
        "soon as that is mended; `ctxvc doctor` says more"
    )


def context(event: str, text: str, person: str = "") -> bytes:
    """The hook's answer with `text` for the model and `person` for the person; empty if both are."""
    answer: dict[str, object] = {"systemMessage": person} if person else {}
    if text:
        answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": text[:MOST]}
    return json.dumps(answer).encode() if answer else b""
