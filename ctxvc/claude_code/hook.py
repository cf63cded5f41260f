"""A hook's work: the host's event becomes a request to the recorder, and the host gets its answer.

Hooks run in every step of a session, so this loads next to nothing and leaves all slow work to the recorder's process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxvc.claude_code import event as hooks
from ctxvc.claude_code import requests, settings, spool
from ctxvc.claude_code.event import HookEvent
from ctxvc.core import variables
from ctxvc.core.display import one_line
from ctxvc.errors import Conflict
from ctxvc.recording import log, places
from ctxvc.store.files import locked
from ctxvc.store.trust import contained

#: The host's name, and the variable in which it names its session to the programs that it runs.
SESSIONS = {"claude-code": "CLAUDE_CODE_SESSION_ID"}
#: The variable that gives new sessions a text on the one before, if set to anything.
OFFER = "CTXVC_OFFER"
#: Characters of a tool's output above which the model is shown its beginning and end only.
LONGEST = "CTXVC_LONGEST_OUTPUT"
#: Started with this event, the program is the recorder.
RECORD = "record"
#: Seconds that the end of a compaction waits for the recorder, which is usually done long before.
PATIENCE = 0.08


def answer(event: str, data: bytes, env: Mapping[str, str]) -> bytes:
    """The answer that the host reads on stdout, usually empty.

    Never fails: errors go to the log, and to the person once a conversation.
    """
    store: Path | None = None
    hook_event: HookEvent | None = None
    try:
        hook_event = hooks.parsed(data, event)
        if hook_event is None or variables.is_recording_off(env):
            return b""
        folder = Path(env.get("CLAUDE_PROJECT_DIR") or hook_event.folder or ".").absolute()
        store = places.store(folder, env)
        if event == "statusline":
            return status_line(hook_event.fields, store, color="NO_COLOR" not in env).encode()
        return _answer(hook_event, store, folder, env)
    # The boundary: the host continues after any error.
    except Exception as error:
        if not (store and hook_event):
            return b""
        log.note(store, event, f"{type(error).__name__}: {error}")
        reason = log.describe(error)
        spool.report(hook_event.transcript, store, reason)
        return hooks.context(hook_event.event, "", _trouble(hook_event, reason))


def _answer(hook_event: HookEvent, store: Path | None, folder: Path, env: Mapping[str, str]) -> bytes:
    request = hooks.request(hook_event)
    if request is None:
        return b""
    starts = request.event == "SessionStart" and request.detail == "startup"
    if request.event == "SessionStart" and not request.resumes:
        spool.begin(request.transcript)
    if store is None:
        if not (env.get("CTXVC_STORE") or settings.recorded_here(folder)):
            return b""
        _start([str(folder), requests.encoded(request).decode()])
        return b""
    text = ""
    if request.event == "PreCompact":
        places.remove(store, places.handoff(store, request.transcript))  # of a compaction that never came
    elif request.event == "PreToolUse" and request.detail:
        places.write_sealed(store, places.call(store, request.detail), hooks.caller(hook_event))
    if request.resumes and (text := hooks.handed_back(store, request.transcript, 0)):
        request = request._replace(detail="compacted")  # the text is already there
    requests.post(store, request)
    if not runs(store):
        _start([str(store)])
    trouble = spool.trouble(request.transcript)
    message = _trouble(hook_event, trouble.reason) if trouble else ""
    if request.resumes:
        text = _after_compaction(store, request.transcript, trouble.reason if trouble else "")
    elif starts and env.get(OFFER):
        text = _offer(store)
    elif request.event == "PreCompact":  # what it prints is for the summariser
        return hooks.summariser(store, request.transcript).encode()
    elif request.event == "PostToolUse" and (longest := env.get(LONGEST, "")).isdigit():
        from ctxvc.claude_code import truncate

        return truncate.swapped(hook_event.fields, int(longest), store)
    return hooks.context(hook_event.event, text, message)


def _after_compaction(store: Path, transcript: str, trouble: str) -> str:
    """The text for the model after a compaction; empty if the host installs a prompt of ours, which has it all."""
    if hooks.is_installing(store, transcript):
        return ""
    return hooks.handed_back(store, transcript, PATIENCE) or hooks.so_far(store, transcript, trouble)


def _trouble(hook_event: HookEvent, reason: str) -> str:
    """The message to the person that the conversation is not recorded: once, at an event at which the host shows it."""
    begins = hook_event.event == "SessionStart" and hook_event.fields.get("source") != "compact"
    if hook_event.event not in hooks.SHOWN or not (spool.tell(hook_event.transcript) or begins):
        return ""
    return hooks.trouble(reason)


def _offer(store: Path) -> str:
    try:
        return places.sealed(store, places.offer(store)).decode("utf-8", "replace")[: hooks.OFFERED]
    except FileNotFoundError:
        return ""


def runs(store: Path) -> bool:
    """Whether a recorder runs for the store."""
    contained.make_folder(store, "ctxvc/hooks")  # through no link
    try:
        with locked(places.lock(store), timeout=0):
            return False
    except Conflict:
        return True


def _start(arguments: Sequence[str]) -> None:
    """Starts a recorder that outlives this process, its host and their terminal."""
    if os.fork():
        return
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # the host waits until its pipes are closed everywhere
            os.dup2(nothing, stream)
        os.execv(sys.executable, [sys.executable, "-m", "ctxvc", "hook", RECORD, *arguments])  # noqa: S606 - it is us
    finally:
        os._exit(1)


#: Percent of the window → the colour from there on.
_COLORS = ((90, "\x1b[31m"), (70, "\x1b[33m"))
_PLAIN = "\x1b[0m"


def status_line(fields: Mapping[str, Any], store: Path | None, *, color: bool) -> str:
    """The line for the host's input on stdin, without unknown parts."""
    used = _used(fields.get("context_window"))
    parts = [_colored(used, color=color)] if used else []
    transcript = fields.get("transcript_path")
    if store is None or not isinstance(transcript, str):
        return " · ".join([*parts, "not recorded"])
    if (trouble := spool.trouble(transcript)) and Path(trouble.store) == store:
        return " · ".join([*parts, f"NOT RECORDED: {one_line(trouble.reason, 80)}"])
    return " · ".join([*parts, *_recorded(store, transcript)])


def _used(window: object) -> tuple[int, str] | None:
    """The used percentage of the window, rounded down, and its size as text; None if unknown."""
    if not isinstance(window, dict):
        return None
    size = _number(window.get("context_window_size"))
    percent = _number(window.get("used_percentage"))
    usage = window.get("current_usage")
    if percent is None and size and isinstance(usage, dict):
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        percent = 100 * sum(_number(usage.get(name)) or 0 for name in names) / size
    if percent is None:
        return None
    if not size:
        return int(percent), ""
    return int(percent), f" of {size / 1e6:g}M" if size >= 1e6 else f" of {size / 1e3:.0f}k"


def _number(value: object) -> float | None:
    """A number that can be shown; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12:
        return value
    return None


def _colored(used: tuple[int, str], *, color: bool) -> str:
    percent, size = used
    start = next((code for threshold, code in _COLORS if percent >= threshold), "") if color else ""
    return f"{start}context {percent}%{size}{_PLAIN if start else ''}"


def _recorded(store: Path, transcript: str) -> list[str]:
    try:
        status = json.loads(places.sealed(store, places.status(store, transcript)))
    except (OSError, ValueError, RecursionError):
        return ["recording"]
    if not isinstance(status, dict):
        return ["recording"]
    parts = [one_line(str(status.get("session", "")), 40)]
    parts += [f"{status[name]} {name}" for name in ("steps", "blocks", "notes") if type(status.get(name)) is int]
    if type(status.get("left")) is int and status["left"]:
        parts.append(f"{status['left']} out of the prompt, kept")
    return parts
