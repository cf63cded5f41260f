"""Items of the OpenAI Agents SDK in the Messages API's form, and back."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ctxvc.agent.loop import INTERRUPTED
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.request import canonical
from ctxvc.forms.conversion import from_responses, to_responses
from ctxvc.forms.usage import of_responses
from ctxvc.integrations.conversation import Conversation, FrameworkMessage

Item = dict[str, Any]

#: Fields of an item that the SDK adds or leaves out as it likes: they tell no two items apart.
_UNSTABLE = frozenset({"id", "status", "type"})


def plain(item: Any) -> Item:
    """An item as a dictionary."""
    return dict(item) if isinstance(item, Mapping) else item.model_dump(mode="json", exclude_unset=True)


def key_of(item: Item) -> str:
    """The name of an item, which it has in every list that it stands in; a repeated message has it, too."""
    if call := item.get("call_id"):
        return _digest([item.get("type"), call])
    if isinstance(content := item.get("content"), str):
        item = {**item, "content": [{"text": content}]}
    return _digest(_stable(item))


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()[:24]


def _stable(value: Any) -> Any:
    """A value without what the SDK adds or leaves out as it likes."""
    if isinstance(value, dict):
        return {
            name: stable
            for name, field in value.items()
            if name not in _UNSTABLE and (stable := _stable(field)) not in (None, [])
        }
    return list(map(_stable, value)) if isinstance(value, list) else value


class Reader:
    """Reads lists of items, each mostly the one before and a few more: what was read once is not converted again."""

    def __init__(self) -> None:
        self._messages: dict[str, FrameworkMessage[list[Item]]] = {}
        self._counts: Counter[str] = Counter()  # how often each item stands in the list

    def all_messages(self, conversation: Conversation, items: Iterable[Item]) -> list[FrameworkMessage[list[Item]]]:
        """The messages of the whole conversation so far: what the model said in one reply is one."""
        self._counts.clear()
        messages = self.more(conversation, items)
        self._messages = {message.id: message for message in messages}
        return messages

    def more(self, conversation: Conversation, items: Iterable[Item]) -> list[FrameworkMessage[list[Item]]]:
        """The messages of what follows on that."""
        messages = []
        reply: list[Item] = []
        reply_id = ""
        for item in items:
            key = key_of(item)
            self._counts[key] += 1
            name = key if self._counts[key] == 1 else f"{key}~{self._counts[key]}"
            is_models = _role(item) == "assistant"
            if reply and (not is_models or conversation.has(name)):
                messages.append(self._message(reply_id, reply))
                reply = []
            if is_models:
                reply_id = reply_id if reply else name
                reply.append(item)
            else:
                messages.append(self._message(name, [item]))
        return [*messages, self._message(reply_id, reply)] if reply else messages

    def _message(self, name: str, items: list[Item]) -> FrameworkMessage[list[Item]]:
        earlier = self._messages.get(name)
        if earlier and earlier.source == items:
            return msgspec.structs.replace(earlier, source=items)
        return _message(name, items)


def interrupted(call: str, _tool: str) -> FrameworkMessage[list[Item]]:
    """The output of a call that was not run to its end."""
    item = {"type": "function_call_output", "call_id": call, "output": INTERRUPTED}
    return _message(key_of(item), [item])


def _role(item: Item) -> str:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return "assistant" if item.get("role") == "assistant" else "user"
    return "user" if kind.endswith("_output") else "assistant"


def _message(name: str, items: list[Item]) -> FrameworkMessage[list[Item]]:
    converted = from_responses({"input": list(map(_carried, items))}).value["messages"]
    message = converted[0] if converted else {"role": _role(items[0]), "content": [{"type": "text", "text": "[empty]"}]}
    is_human = items[0].get("role") == "user"
    return FrameworkMessage(
        id=name, message=message, source=items, origin="human" if is_human else "client", record=_record(items, message)
    )


def _carried(item: Item) -> Item:
    """The item as the Messages API can have it; what it has no place for is its JSON, for the model to read."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind in _CARRIED or (kind == "message" and role in ("user", "assistant")):
        return item
    if kind == "message":
        return {**item, "role": "user"}
    part = {"type": "input_text", "text": wire.compact(item).decode()}
    return {"type": "message", "role": _role(item), "content": [part]}


_CARRIED = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"}
)


def rebuilt_items(message: Mapping[str, Any]) -> list[Item]:
    """The items of a message. Not every server takes a list of texts as an output: they are one text."""
    items: list[Item] = to_responses({"messages": [message]}).value["input"]
    for item in items:
        output = item.get("output")
        if isinstance(output, list) and all(part["type"] == "input_text" for part in output):
            item["output"] = "\n\n".join(part["text"] for part in output)
    return items


def _record(items: Sequence[Item], message: Mapping[str, Any]) -> dict[str, Any]:
    """What the items have that the message does not tell."""
    rebuilt = rebuilt_items(message)
    if len(rebuilt) != len(items):
        return {"items": list(items)}
    return {"fields": [_different(item, again) for item, again in zip(items, rebuilt, strict=True)]}


def _different(item: Item, rebuilt: Item) -> Item:
    """The fields of an item that are not the rebuilt one's: None where it has none, and "" for content that is a string
    with the text of the one part."""
    absent = dict.fromkeys(rebuilt.keys() - item.keys())
    fields = {name: value for name, value in item.items() if not _says_the_same(value, rebuilt.get(name))}
    if "content" in fields and fields["content"] == _only_text(rebuilt):
        fields["content"] = ""
    return absent | fields


def _says_the_same(value: Any, rebuilt: Any) -> bool:
    if isinstance(value, str) and isinstance(rebuilt, str) and rebuilt.startswith("{"):  # the arguments of a call
        return bool(wire.parsed(value.encode("utf-8", "surrogatepass"), dict) == wire.parse(rebuilt))
    return bool(_stable(value) == _stable(rebuilt))


def _only_text(item: Item) -> str | None:
    match item.get("content"):
        case [{"text": str(text)}]:
            return text
    return None


def recorded_items(conversation: Conversation) -> Iterator[Item]:
    """The items that are recorded in the conversation, oldest first."""
    for message, record in conversation.records():
        if isinstance(items := record.get("items"), list):
            yield from items
            continue
        rebuilt, fields = rebuilt_items(message), record.get("fields")
        if not isinstance(fields, list) or len(fields) != len(rebuilt):
            yield from rebuilt
            continue
        for item, own in zip(rebuilt, fields, strict=True):
            text = {"content": _only_text(item)} if own.get("content") == "" else {}
            yield {name: value for name, value in {**item, **own, **text}.items() if value is not None}


def usage(usage: Any) -> dict[str, int]:
    details = getattr(usage, "input_tokens_details", None)
    return of_responses(
        {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_tokens_details": {"cached_tokens": getattr(details, "cached_tokens", 0)},
        }
    )
