"""The interface of a provider's form of requests and replies, and the form of a request by its path."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part, Role
from ctxvc.errors import BadInput


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a request sends to the model.

    `system` and `tools` are Messages API values. `messages` are the conversation's JSON values, unchanged and in order,
    without instructions that became `system`. `prints` has a fingerprint of each, equal for two spellings of one
    message, such as a reply and its repetition in a later request. `continues` is the id of the server's own record of
    the earlier conversation; empty if the messages are all of it.
    """

    model: str
    system: Any
    tools: tuple[dict[str, Any], ...]
    messages: tuple[Any, ...]
    prints: tuple[bytes, ...]
    stream: bool = False
    continues: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer to a request.

    `messages` are JSON values as a later request repeats them, with their `prints`. `usage` and `stop` are the Messages
    API's: `input_tokens` exclude cached input. A reply that is not `complete` broke off; `error` is what the provider
    reported.
    """

    messages: tuple[Any, ...]
    prints: tuple[bytes, ...]
    id: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    stop: str = ""
    complete: bool = True
    error: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the reply that a message belongs to; all empty for any other message."""

    reply: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    time: str = ""

    def message(self, role: Role, parts: Iterable[Part], key: str = "") -> Message:
        """The message with these parts and facts."""
        return Message(
            role=role,
            parts=tuple(parts),
            key=key,
            reply=self.reply,
            model=self.model,
            usage=self.usage,
            time=self.time,
        )


class Edit(NamedTuple):
    """The changes of a message: items to drop, items to replace by a text, and texts to append.

    Calls and thinking are only ever dropped, never replaced.
    """

    dropped: Collection[int] = ()
    replaced: Mapping[int, str] = {}
    appended: Sequence[str] = ()


class Answer(NamedTuple):
    """The result of a call of the newest reply, by the call's id and its tool; `error` where it failed."""

    call: str
    tool: str
    text: str
    error: bool = False


class Reader(Protocol):
    """Reads the messages of one conversation, in order."""

    def messages(self, values: Sequence[Any], reply: Reply | None = None) -> list[Message]:
        """The messages for JSON values of a prompt or a `reply`, without values that are no messages."""
        ...


class Form(Protocol):
    """A module of this package. `NAME` is the format of recordings that have this form."""

    NAME: str

    def prompt(self, body: bytes) -> Prompt:
        """The prompt in a request's body. Raises: BadInput."""
        ...

    def reply(self, answer: bytes, *, stream: bool) -> Reply:
        """The reply in an answer: a JSON value, or a stream of events, which may be incomplete.

        Raises: BadInput if it has no reply.
        """
        ...

    def reader(self) -> Reader: ...

    # A message is one of `Prompt.messages`. It consists of items, whose numbers depend on this message alone.

    def layout(self, message: Any) -> list[int]:
        """The number of the item that each part of the message comes from, in the order of the reader's parts."""
        ...

    def role(self, message: Any) -> Literal["user", "assistant", "result", "system"]:
        """The author of a message; `result` only in forms in which each result is a message."""
        ...

    def edited(self, message: Any, edit: Edit) -> Any | None:
        """The message with the edit applied, or None if only thinking is left.

        A message without items is returned unchanged. Unchanged values are shared with `message`.
        """
        ...

    def own(self, texts: Sequence[str]) -> Any:
        """A user message with these texts."""
        ...

    def results(self, message: Any | None, answers: Sequence[Answer]) -> list[Any]:
        """The messages that follow a reply with calls that we answered: our results, then the client's `message`."""
        ...

    def tool(self, definition: dict[str, Any]) -> Any:
        """This form's definition of a Messages API tool that has a name, a description and a schema."""
        ...

    def spliced(
        self, body: bytes, messages: Sequence[int | Any], tools: Sequence[dict[str, Any]], *, lasting: int = 0
    ) -> bytes:
        """The request's body with other messages, and with more tools (Messages API) after its own; all other bytes
        stay.

        A message is a new value, or the number of one of the body's `Prompt.messages`, whose bytes are kept. The first
        `lasting` messages are unlikely to change with the next edit: a mark for the provider's cache may go after them.
        Takes time linear in the body's length.

        Raises: BadInput if the messages cannot be located, as in a body with a repeated name.
        """
        ...


class Call(NamedTuple):
    """A request to a model's API: `path` is the API's own, such as `/v1/responses`.

    `form` is the module of its form; empty if the answer is no reply, as for a count. `model` is empty if the path does
    not name it.
    """

    provider: str
    path: str
    form: str
    model: str


#: A row a form: its module, its provider, and the end of the paths of its calls; `other` marks calls without a reply.
_FORMS = (
    ("anthropic", "anthropic", r"/v1/messages(?P<other>/count_tokens)?$"),
    ("chat", "openai", r"/chat/completions$"),
    ("responses", "openai", r"/responses(?P<other>/compact)?$"),
    (
        *("gemini", "gemini"),
        r"/v1[a-z0-9]*/(?:models|tunedModels)/(?P<model>[^/]+):(?:(?:g|streamG)enerateContent|(?P<other>countTokens))$",
    ),
)


def call(path: str) -> Call | None:
    """The model call that a request to this path (without query) makes; None for any other request."""
    for module, provider, end in _FORMS:
        if match := re.search(end, path):
            groups = match.groupdict()
            full = match[0] if match[0].startswith("/v1") else f"/v1{match[0]}"
            return Call(provider, full, "" if groups.get("other") else module, groups.get("model") or "")
    return None


def of(path: str) -> Form | None:
    """The form of requests to a path (without query); None if they are no model calls."""
    own = call(path)
    return cast(Form, import_module(f"ctxvc.forms.{own.form}")) if own and own.form else None


def json_object(data: bytes, subject: str) -> dict[str, Any]:
    """The JSON object in a body. Raises: BadInput."""
    try:
        value = wire.parse(data)
    except ValueError as error:
        raise BadInput(f"{subject} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{subject} is no JSON object")
    return value


def messages_of(converted: Iterable[Message | str]) -> list[Message]:
    """The converted messages, without the reasons given for values that are none."""
    return [message for message in converted if isinstance(message, Message)]


def facts(reply: Reply | None) -> Facts:
    return Facts(reply=reply.id, model=reply.model, usage=reply.usage) if reply else Facts()
