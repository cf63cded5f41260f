"""Trajectories of mini-swe-agent (`*.traj.json`) → events.

Since 1.0 a file is an object with `info` and `messages`; before, it was the list of messages alone. A message is what
the model's API has, in either of OpenAI's forms, with the program's own facts under `extra`. Source: `DefaultAgent` and
the `format_observation_messages` of mini-swe-agent 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.recording.events import Closed, Event, Opened, Said, Warned
from ctxvc.forms import elements
from ctxvc.forms.chat import Reader, instructions
from ctxvc.forms.values import objects, taken_over, text_of, time_of
from ctxvc.importers import documents
from ctxvc.importers.documents import text_at
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import single
from ctxvc.importers.request_log import Turn, opening

FORMAT = "mini-swe-agent"

#: The commands by which the model ends a run; the output is the last message.
_SUBMIT = (
    "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    "MINI_SWE_AGENT_FINAL_OUTPUT",
    "MICRO_SWE_AGENT_FINAL_OUTPUT",
)
#: The beginnings of messages that the program made, for versions that do not say so under `extra`.
_OBSERVATIONS = ("<returncode>", "Observation:", "The last command timed out", "The last command <command>")
_COMPLAINTS = ("Please always provide EXACTLY ONE action",)
#: The beginning of the values of `interrupt_type` for messages of a person.
_BY_A_PERSON = "User"


def sniff(head: bytes) -> bool:
    """Whether a document that begins with `head` names the program, or has its instructions."""
    if b"mini" not in head and b"_FINAL_OUTPUT" not in head:
        return False
    for value in opening(head)[:1]:
        if isinstance(value, dict):
            info = documents.mapping(value, "info")
            return (
                text_of(value.get("trajectory_format")).startswith(FORMAT)
                or text_of(info.get("mini_version")) != ""
                or text_at(info, "config", "agent_type").startswith("minisweagent.")
            )
        return any(map(_instructs, objects(value)[:2]))
    return False


def _instructs(message: dict[str, Any]) -> bool:
    text = text_of(message.get("content"))
    return message.get("role") in ("system", "user") and "```" in text and any(mark in text for mark in _SUBMIT)


def events(recording: Recording) -> Iterator[Event]:
    """The events of the run. Raises: BadInput if the file has none."""
    document = documents.document(recording)
    info = documents.mapping(document.value, "info")
    values = document.value.get("messages") if isinstance(document.value, dict) else document.value
    messages = document.sound(values if isinstance(values, list) else [])
    chats = [_chat(value) for value in messages]
    reply = next((number for number, item in enumerate(chats) if text_at(item, "role") == "assistant"), -1)
    system, conversation = instructions(chats)
    is_over = bool(messages) and text_at(messages[-1], "role") == "exit"
    yield _opened(recording.stem, info, system, messages[: reply + 1], grows=not is_over)
    yield from document.warnings()
    if reply < 0:
        yield Warned(text="the run has no reply yet")
        return
    run = _Run()
    for number, value, end in documents.entries(messages):
        if number <= len(messages) - len(conversation):
            continue
        if text_at(value, "role") == "exit":
            continue  # the end of the run, which is not sent
        converted = run.message(value, chats[number - 1], f"message:{number}")
        if isinstance(converted, str):
            yield Warned(text=f"message {number} was skipped: {converted}")
            continue
        yield Said(message=converted, end=end)
        yield Closed(end=end)


IMPORTER = documents.importer(FORMAT, sniff, single(events))


def _opened(stem: str, info: dict[str, Any], system: Any, beginning: Sequence[Any], *, grows: bool) -> Opened:
    config = documents.mapping(info, "config")
    by_calls = any(
        isinstance(message, dict) and (message.get("tool_calls") or "output" in message) for message in beginning
    )
    return Opened(
        format=FORMAT,
        source=documents.identity(stem, *beginning),  # the first reply has its time in newer versions
        name=name_rules.slug(stem),
        model=text_at(config, "model", "model_name"),
        cwd=text_at(config, "environment", "cwd"),
        agent=" ".join(filter(None, ("mini-swe-agent", text_of(info.get("mini_version"))))),
        system=system,
        missing=("the tool definition",) if by_calls else (),
        grows=grows,
    )


def _chat(value: Any) -> Any:
    """A message in the form of chat completions, without the program's own notes."""
    match value:
        case {"object": "response", "output": list(output)}:
            return _reply(output)
        case {"type": "function_call_output", "call_id": str(call)}:
            return {"role": "tool", "tool_call_id": call, "content": value.get("output")}
        case {"role": _}:
            message = {name: item for name, item in value.items() if name != "extra" and item is not None}
            if message.pop("type", None) == "message" and isinstance(message.get("content"), list):
                message["content"] = [_item(item) for item in message["content"]]
            return message
    return value


def _reply(output: list[Any]) -> dict[str, Any]:
    """The reply in an output of OpenAI's Responses; `reasoning` has its other items."""
    message: dict[str, Any] = {"role": "assistant", "content": [], "tool_calls": []}
    reasoning = []
    for item in objects(output):
        match item:
            case {"type": "message", "content": list(content)}:
                message["content"] += [_item(part) for part in content]
            case {"type": "function_call", "call_id": str(call), "name": str(name)}:
                function = {"name": name, "arguments": item.get("arguments", "")}
                message["tool_calls"].append({"id": call, "type": "function", "function": function})
            case _:
                reasoning.append(item)
    return {name: value for name, value in {**message, "reasoning": reasoning}.items() if value}


def _item(item: Any) -> Any:
    """An item of a message's content in the form of chat completions."""
    match item:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return {"type": "text", "text": text}
    return item


class _Run:
    """Reads the messages of one run, in order."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._task_seen = False
        self._submits = False  # whether the newest reply ends the run

    def message(self, value: Any, chat_message: Any, key: str) -> Message | str:
        """The `Message` for a value, or the reason there is none."""
        if not isinstance(value, dict) or not isinstance(chat_message, dict):
            return "it is not an object"
        items = chat_message.pop("reasoning", []) if value.get("object") == "response" else []
        blocks = objects(chat_message.pop("thinking_blocks", None))
        message = self._reader.message(chat_message, key, _turn(value).facts)
        if isinstance(message, str):
            return message
        reasoning = [
            *(wire.part(block, "assistant", "model") for block in blocks),
            *(Part(kind="thinking", role="assistant", origin="model", body=wire.compact(i), ext="json") for i in items),
        ]
        extra = documents.mapping(value, "extra")
        parts = (*reasoning, *taken_over(message.parts, extra.get("ctxvc")))
        if message.role == "assistant":
            self._submits = any(mark.encode() in part.body for part in parts for mark in _SUBMIT)
        elif chat_message.get("role") == "user":
            origin = self._origin(value, text_of(chat_message.get("content")))
            parts = tuple(msgspec.structs.replace(part, origin=origin) for part in parts)
        return msgspec.structs.replace(message, parts=parts, time=message.time or time_of(extra.get("timestamp")))

    def _origin(self, value: dict[str, Any], text: str) -> Origin:
        """Who made a message of role `user`: a person, a command, or the program."""
        if not self._task_seen:
            self._task_seen = True
            return "human"
        extra = documents.mapping(value, "extra")
        if interrupt := text_of(extra.get("interrupt_type")):
            return "human" if interrupt.startswith(_BY_A_PERSON) else "client"
        if not extra.keys().isdisjoint(("returncode", "raw_output", "exit_status")):
            return "tool"
        if "actions" in extra:
            return "human"  # a command that a person typed
        if text.startswith(_COMPLAINTS):
            return "client"
        return "tool" if text.startswith(_OBSERVATIONS) or self._submits else "human"


def _turn(value: dict[str, Any]) -> Turn:
    """The model and usage of the call that a message is the reply of."""
    if value.get("object") == "response":
        return Turn(messages=[], model=text_of(value.get("model")), usage=elements.responses_usage(value.get("usage")))
    response = documents.mapping(value, "extra", "response")
    return Turn(messages=[], model=text_of(response.get("model")), usage=elements.chat_usage(response.get("usage")))
