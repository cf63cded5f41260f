"""The interface of a provider's form of requests and replies, and which form a request has."""

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
    """A request's body, read.

    `system` and `tools` are Messages API values. `messages` are the conversation's JSON values as they came, in order
    and without instructions that became `system`; `prints` has a fingerprint of each, equal for two spellings of one
    message, as of a reply and its repetition in a later request. `continues` names the server's own record of the
    conversation that the messages go on from; empty where they are all of it.
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

    `messages` are JSON values as a later request repeats them, with their `prints`. `usage` counts as the Messages API
    does: `input_tokens` are those that no cache had. `stop` is that API's word for why it ended. One that is not
    `complete` broke off; `error` is what the provider reported instead of going on.
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
    """What is known of the reply that a message belongs to; nothing of any other message."""

    reply: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    time: str = ""

    def message(self, role: Role, parts: Iterable[Part], key: str = "") -> Message:
        """The message with these parts, of the reply if there is one."""
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
    """What changes in a message: items that left, items that show another text, and texts behind it all.

    Calls and thinking leave or stay as they are: no text stands in their place.
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
        """The messages for JSON values of a prompt, or of a `reply`. Values that are not messages are left out."""
        ...


class Form(Protocol):
    """A module of this package. `NAME` is the format of recordings that have this form."""

    NAME: str

    def prompt(self, body: bytes) -> Prompt:
        """The prompt in the body of a request. Raises: BadInput."""
        ...

    def reply(self, answer: bytes, *, stream: bool) -> Reply:
        """The reply in an answer, which is a JSON value or a stream of events and may be incomplete.

        Raises: BadInput if it has no reply.
        """
        ...

    def reader(self) -> Reader: ...

    # A message is one of `Prompt.messages`; what it consists of are items, whose numbers depend on it alone.

    def layout(self, message: Any) -> list[int]:
        """The item that each part of the message comes from, in the order in which the reader gives the parts."""
        ...

    def role(self, message: Any) -> Literal["user", "assistant", "result", "system"]:
        """Who a message is from; `result` in forms that have each result as a message."""
        ...

    def edited(self, message: Any, edit: Edit) -> Any | None:
        """The message with the edit applied, or None if nothing but thinking is left of it.

        A message without items is returned unchanged. The result shares with `message` what did not change.
        """
        ...

    def own(self, texts: Sequence[str]) -> Any:
        """A user message with these texts."""
        ...

    def results(self, message: Any | None, answers: Sequence[Answer]) -> list[Any]:
        """The messages to send after a reply some of whose calls we answered: our results, before the client's own
        `message`."""
        ...

    def tool(self, definition: dict[str, Any]) -> Any:
        """The definition in this form of a tool of the Messages API with a name, a description and a schema."""
        ...

    def spliced(
        self, body: bytes, messages: Sequence[int | Any], tools: Sequence[dict[str, Any]], *, lasting: int = 0
    ) -> bytes:
        """The request's body with other messages, and with more tools (Messages API) after its own.

        A message is the number of one of the body's `Prompt.messages`, whose bytes are kept, or a new value. All other
        bytes of the body stay. The first `lasting` messages are unlikely to change with the next edit: a mark for the
        provider's cache may go there. Takes time linear in the body's length.

        Raises: BadInput if the messages cannot be located, as in a body with a repeated name.
        """
        ...


class Call(NamedTuple):
    """A request to a model's API, by its path: `path` is as the API has it, as in `/v1/responses`.

    `form` is the module of its form; empty where no reply comes, as for a count. `model` is empty where the path does
    not have it.
    """

    provider: str
    path: str
    form: str
    model: str


#: A row a form: its module, whose API has it, and the end of the paths of calls; `other` marks those without a reply.
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
    """The call of a model that a request to this path, without a query, is; None for any other request."""
    for module, provider, end in _FORMS:
        if match := re.search(end, path):
            groups = match.groupdict()
            full = match[0] if match[0].startswith("/v1") else f"/v1{match[0]}"
            return Call(provider, full, "" if groups.get("other") else module, groups.get("model") or "")
    return None


def of(path: str) -> Form | None:
    """The form of requests to a path, without a query; None for one that is no call of a model."""
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
    """The converted messages, without the texts that say why there is none."""
    return [message for message in converted if isinstance(message, Message)]


def facts(reply: Reply | None) -> Facts:
    return Facts(reply=reply.id, model=reply.model, usage=reply.usage) if reply else Facts()
