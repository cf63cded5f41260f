"""What a host says to a hook, and what the hook answers. Everything that comes in is untrusted, and may be anything."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.claude_code.requests import Request
from ctxvc.recording import places

#: Events that tell of something new in a transcript, by the field that says why.
RECORDED = {
    "SessionStart": "source",
    "UserPromptSubmit": "",
    "PostToolUse": "",
    "PostToolUseFailure": "",
    "Stop": "",
    "SubagentStop": "agent_type",
    "PreCompact": "trigger",
    "SessionEnd": "reason",
}
#: Characters that the host takes of what a hook adds to the context; of longer text the model sees a beginning only.
MOST = 10_000
#: Said behind what is recorded so far, where the recorder has not come to the end of the transcript yet.
UNFINISHED = "\nWhat was said last is being recorded; `ctxvc log` and `ctxvc grep WORDS` find it in a moment."
#: Characters that a new session is told of the one before it.
OFFERED = 2_000


class HookEvent(NamedTuple):
    """An event of the host: its name, the transcript's path, the session's folder, and all fields as they came."""

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
    """What the recorder is asked to do; None where there is nothing to record.

    A SubagentStop without an agent type is not one: the host tells its own attempts at a summary so.
    """
    if event.event not in RECORDED or not event.transcript:
        return None
    detail = event.fields.get(RECORDED[event.event])
    detail = detail if isinstance(detail, str) else ""
    if event.event == "SubagentStop" and not detail:
        return None
    return Request(event.event, _main_file(event.transcript), detail[:100])


def _main_file(transcript: str) -> str:
    """The session's own transcript, where a hook inside a sub-agent names the sub-agent's."""
    path = Path(transcript)
    return f"{path.parent.parent}.jsonl" if path.parent.name == "subagents" else transcript


def handed_back(store: Path, transcript: str, seconds: float) -> str:
    """What the model is to be told after a compaction, which the recorder has made by now, or makes soon; once.

    Empty where it does not come in so many seconds.
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


def so_far(store: Path, transcript: str) -> str:
    """What the model can be told after a compaction while the recorder is still at work."""
    try:
        text = places.sealed(store, places.so_far(store, transcript)).decode("utf-8", "replace")
    except FileNotFoundError:
        text = ""
    return (text or "[ctxvc] This conversation is recorded.") + UNFINISHED


def context(event: str, text: str, person: str = "") -> bytes:
    """The answer that puts `text` before the model, as they are or not at all, and tells `person` to the person."""
    answer: dict[str, object] = {"systemMessage": person} if person else {}
    if text:
        answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": text[:MOST]}
    return json.dumps(answer).encode() if answer else b""
