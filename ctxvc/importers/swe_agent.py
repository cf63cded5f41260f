"""Trajectories of SWE-agent (`INSTANCE.traj`) → events.

`history` is the conversation. `trajectory` has the same steps as its viewer shows them, with the time of each, which
distinguishes runs of an instance. Since 1.0 a step also has the messages that were sent, some of which history
processors may have shortened. A run with several attempts has them under `attempts`, and the chosen one again at the
top. Fields: `HistoryItem` and `get_trajectory_data` of SWE-agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Closed, Edited, Event, Opened, Said, Warned
from ctxvc.forms.chat import Reader, instructions
from ctxvc.forms.form import Facts
from ctxvc.forms.values import objects, text_of
from ctxvc.importers import documents
from ctxvc.importers.documents import Document, text_at
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations
from ctxvc.importers.request_log import opening

FORMAT = "swe-agent"

#: The fields of a message that are sent; all others are SWE-agent's own.
_SENT = ("role", "content", "tool_calls", "thinking_blocks")
#: Fields, of which a file begins with one.
_LISTS = (b'"trajectory"', b'"attempts"', b'"history"')
_STEP = frozenset({"action", "observation", "response"})
_MISSING = "the tool definitions"
_PROCESSED = "what history processors changed in single requests"


def sniff(head: bytes) -> bool:
    """Whether a document that begins with `head` has steps or a history as SWE-agent writes them."""
    if not any(name in head for name in _LISTS):
        return False
    return any(isinstance(value, dict) and any(map(_is_run, _runs(value))) for value in opening(head)[:1])


def _runs(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The attempts of a run; the run itself if it had only one."""
    return objects(value.get("attempts")) or [value]


def _is_run(run: dict[str, Any]) -> bool:
    steps, history = objects(run.get("trajectory")), objects(run.get("history"))
    return bool(steps and steps[0].keys() >= _STEP) or bool(history and {"role", "agent"} <= history[0].keys())


def conversations(recording: Recording) -> Conversations:
    """Each attempt, with an ending for its name if there are several. Raises: BadInput."""
    document = documents.document(recording)
    top = documents.mapping(document.value)
    runs = _runs(top)
    if not isinstance(top.get("attempts"), list):
        yield "", _events(recording.stem, top, runs[0], document)
        return
    for number, run in enumerate(runs, 1):
        is_whole = number < len(runs)
        yield f"-attempt-{number}", _events(recording.stem, top, run, Document(run) if is_whole else document)


IMPORTER = documents.importer(FORMAT, sniff, conversations, (".traj", ".traj.gz"))


def _events(stem: str, top: dict[str, Any], run: dict[str, Any], document: Document) -> Iterator[Event]:
    history = run.get("history")
    messages = document.sound(history if isinstance(history, list) else [])
    reply = next(
        (number for number, item in enumerate(messages) if text_at(item, "role") == "assistant" and not _is_demo(item)),
        -1,
    )
    chats = [_chat(item) for item in messages]
    system, conversation = instructions(chats)
    yield _opened(stem, top, run, system, messages[: reply + 1])
    yield from document.warnings()
    if reply < 0:
        yield Warned(text="the run has no reply yet")
        return
    reader, task_seen, processed = Reader(), False, _Processed(run, messages)
    for number, item, end in documents.entries(messages):
        if number <= len(messages) - len(conversation):
            continue
        converted = _message(reader, item, chats[number - 1], f"message:{number}", task_seen=task_seen)
        if isinstance(converted, str):
            yield Warned(text=f"message {number} was skipped: {converted}")
            continue
        task_seen = task_seen or any(part.origin == "human" for part in converted.parts)
        if converted.role == "assistant":
            yield from processed.before(number, end)
        else:
            processed.sent[number] = converted
        yield Said(message=converted, end=end)
        yield Closed(end=end)


def _opened(stem: str, top: dict[str, Any], run: dict[str, Any], system: Any, beginning: Sequence[Any]) -> Opened:
    config = run.get("replay_config") or top.get("replay_config")
    if isinstance(config, str):
        config = wire.parsed(config.encode("utf-8", "replace"), dict)
    window = documents.mapping(config, "agent", "model").get("max_input_tokens")
    steps = objects(run.get("trajectory"))
    version = text_at(run, "info", "swe_agent_version")
    has_prompts = any(step.get("query") or step.get("messages") for step in steps[:1])
    return Opened(
        format=FORMAT,
        # An instance is run many times, under one name and with one beginning.
        source=documents.identity(stem, *beginning, steps[0].get("execution_time") if steps else None),
        name=name_rules.slug(stem),
        model=text_at(config, "agent", "model", "name"),
        agent=" ".join(filter(None, ("SWE-agent", version))),
        title=stem,
        system=system,
        missing=(_MISSING,) if has_prompts else (_MISSING, _PROCESSED),
        grows=not text_at(run, "info", "exit_status"),
        window=Window(tokens=window, by="host") if type(window) is int and window > 0 else None,
    )


class _Processed:
    """The edits of messages by history processors, which the steps of a run have. `sent` has the messages by number."""

    def __init__(self, run: dict[str, Any], messages: Sequence[Any]) -> None:
        self.sent: dict[int, Message] = {}
        self._messages = messages
        self._texts = [_text(message) for message in messages]
        # Older versions have them under another name.
        prompts = [step.get("query") or step.get("messages") for step in objects(run.get("trajectory"))]
        self._prompts = {len(prompt): prompt for prompt in prompts if isinstance(prompt, list)}

    def before(self, number: int, end: int) -> Iterator[Event]:
        """The edits in the prompt that the reply `number` answered."""
        prompt = self._prompts.get(number - 1, [])
        if not all(map(self._is_same, range(len(prompt)), prompt)):
            return  # a retry after a reply that is not in the history
        for at, item in enumerate(prompt):
            message, text = self.sent.get(at + 1), _text(item)
            if message is None or len(message.parts) != 1 or text == self._texts[at]:
                continue
            self._texts[at] = text
            (part,) = message.parts
            body = display.encode(text)
            edited = msgspec.structs.replace(part, body=body, ext=wire.text_ext(body))
            yield Edited(key="" if part.call else message.key, call=part.call, parts=(edited,), end=end)

    def _is_same(self, at: int, item: Any) -> bool:
        """Whether a sent message is the history's at that index, or an edit of it."""
        role = text_at(item, "role")
        return role == text_at(self._messages[at], "role") and (role != "assistant" or _text(item) == self._texts[at])


def _text(item: Any) -> str:
    """The text of a message, whose content may be a list of parts with cache marks."""
    content = item.get("content") if isinstance(item, dict) else None
    return text_of(content) or "".join(text_of(part.get("text")) for part in objects(content))


def _is_demo(item: dict[str, Any]) -> bool:
    return item.get("is_demo") is True


def _chat(item: Any) -> Any:
    """A message of the history in the form of chat completions, as it was sent."""
    if not isinstance(item, dict):
        return item
    message = {name: item[name] for name in _SENT if item.get(name) is not None}
    match item.get("tool_call_ids"):
        case [str(call), *_] if item.get("role") == "tool":
            message["tool_call_id"] = call
    return message


def _message(reader: Reader, item: Any, chat: Any, key: str, *, task_seen: bool) -> Message | str:
    """The `Message` for a value, or the reason there is none."""
    if not isinstance(chat, dict):
        return "it is not an object"
    blocks = objects(chat.pop("thinking_blocks", None))
    message = reader.message(chat, key, Facts())
    if isinstance(message, str):
        return message
    parts = (*(wire.part(block, "assistant", "model") for block in blocks), *message.parts)
    if origin := _origin(item, task_seen=task_seen):
        parts = tuple(msgspec.structs.replace(part, origin=origin) for part in parts)
    return msgspec.structs.replace(message, parts=parts)


def _origin(item: dict[str, Any], *, task_seen: bool) -> Origin | None:
    """Who made a message; None if its role decides.

    Demonstrations are SWE-agent's. If actions are text instead of calls, their output is a user's message; the only one
    that a person wrote is the first, which has the task.
    """
    if _is_demo(item):
        return "client"
    return "tool" if item.get("role") == "user" and task_seen else None
