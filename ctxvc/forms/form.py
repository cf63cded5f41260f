"""What the modules of this package make of a request and of its answer, whoever the provider is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.forms.values import text_of


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a request's body says.

    `system` is a value of the Messages API (a text, text blocks, None), `tools` are its definitions. `messages` are the
    conversation's own JSON values in order, without instructions that became `system`. `prints` has a fingerprint of
    each: equal for two spellings of one message, such as a reply and what a later request repeats of it. It is empty
    for a value that a client may leave out when it repeats the conversation, such as an item with reasoning.

    `continues` names what the provider has of the conversation already; then the prompt is not all of it.
    """

    model: str
    system: Any
    tools: tuple[dict[str, Any], ...]
    messages: tuple[Any, ...]
    prints: tuple[bytes, ...]
    stream: bool
    continues: str = ""
    max_tokens: int = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer.

    `messages` are JSON values as a later request repeats them: one, or none if nothing came; of the Responses API the
    output's items. `usage` is counted as the Messages API counts: `input_tokens` without what the cache had. `stop` is
    its word for the end (`end_turn`, `tool_use`, `max_tokens`, …), empty if the answer broke off; then it is not
    `whole`. `error` is what the provider reported instead of an answer, or within one.
    """

    messages: tuple[Any, ...]
    prints: tuple[bytes, ...]
    id: str
    model: str
    usage: dict[str, int]
    stop: str
    whole: bool
    error: str = ""


def _alone(values: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    return ((1, value) for value in values)


class Reader:
    """Reads the messages of one conversation in order: what is new of each request, and each reply.

    `message` makes one of ours of a value, or gives the reason why not. `groups` joins the values of one message: of
    each group it gives the size and what `message` takes.
    """

    def __init__(
        self,
        message: Callable[[Any], Message | str],
        groups: Callable[[Sequence[Any]], Iterable[tuple[int, Any]]] = _alone,
    ) -> None:
        self._message = message
        self._groups = groups

    def messages(self, values: Sequence[Any], prints: Sequence[bytes], reply: Reply | None = None) -> list[Message]:
        """The messages that these values are, without empty ones; those of the model belong to `reply`, if it is given.

        The key of each is the fingerprint of its first value in hexadecimal digits, until the caller gives it another.
        """
        messages: list[Message] = []
        at = 0
        for size, value in self._groups(values):
            converted = self._message(value)
            if isinstance(converted, Message):
                messages.append(msgspec.structs.replace(converted, key=prints[at].hex()))
            at += size
        usage = reply.usage if reply else {}
        for number in range(len(messages) - 1, -1, -1):
            if reply and messages[number].role == "assistant":
                messages[number] = msgspec.structs.replace(
                    messages[number], reply=reply.id, model=reply.model, usage=usage
                )
                usage = {}
        return messages


class Form(Protocol):
    """The members of a form's module."""

    NAME: str
    """The importer's name for it."""

    def prompt(self, body: bytes, path: str = "") -> Prompt:
        """What a request says whose body this is; one provider says some of it in the path. Raises: BadInput."""
        ...

    def reply(self, answer: bytes, *, stream: bool) -> Reply:
        """The reply in an answer, which is JSON or a stream of events, perhaps cut anywhere.

        Raises: BadInput if there is neither a reply nor an error in it.
        """
        ...

    def reader(self) -> Reader:
        """A reader of one conversation."""
        ...


def json_object(body: bytes, name: str) -> dict[str, Any]:
    """The JSON object that a body is; `name` says what it should be. Raises: BadInput."""
    try:
        value = wire.parse(body)
    except ValueError as error:
        raise BadInput(f"the {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"the {name} is JSON, but no object")
    return value


def values_at(request: dict[str, Any], name: str) -> list[Any]:
    """The list in that field of a request. Raises: BadInput if there is none."""
    values = request.get(name)
    if not isinstance(values, list):
        raise BadInput(f"the request has no list of {name}")
    return values


def limit(*counts: Any) -> int:
    """The first of these that is a count of tokens; 0 if none is."""
    return next((count for count in counts if type(count) is int and count > 0), 0)


def error_text(value: Any) -> str:
    """What a provider reports as an error in an answer or event; empty for none."""
    match value.get("error") if isinstance(value, dict) else None:
        case {"message": str(message), **fields}:
            kind = next(filter(None, (text_of(fields.get(name)) for name in ("type", "status", "code"))), "")
            return f"{kind}: {message}" if kind else message
        case None | False | "":
            return ""
        case str(message):
            return message
        case error:
            return wire.compact(error).decode("utf-8", "replace")
