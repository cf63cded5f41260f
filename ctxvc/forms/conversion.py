"""Requests and replies of the Messages API, of Chat Completions and of the Responses API, in each other's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ctxvc.errors import BadInput
from ctxvc.forms.chat_request import chat_reply, from_chat, to_chat
from ctxvc.forms.losses import Converted, Loss
from ctxvc.forms.responses_request import from_responses, responses_reply, to_responses

__all__ = [
    "Converted",
    "Form",
    "Loss",
    "chat_reply",
    "convert",
    "from_chat",
    "from_responses",
    "responses_reply",
    "to_chat",
    "to_responses",
]

#: The arguments of `client.messages.create`, `client.chat.completions.create`, or `client.responses.create`.
Form = Literal["messages", "chat", "responses"]


def convert(request: Mapping[str, Any], source: Form, target: Form) -> Converted:
    """A request in another form, with its losses.

    Between OpenAI's two forms it goes by way of the Messages API: losses on the second half have a path in that form,
    after `messages API: `.

    Raises: BadInput if it is not a request, or there is no such form.
    """
    readers = {"messages": lambda value: Converted(dict(value)), "chat": from_chat, "responses": from_responses}
    writers = {"messages": lambda value: Converted(dict(value)), "chat": to_chat, "responses": to_responses}
    for form in (source, target):
        if form not in readers:
            raise BadInput(f"there is no form {form!r}", hint=f"available: {', '.join(readers)}")
    common = readers[source](request)
    converted = writers[target](common.value)
    if source == "messages":
        return converted
    return Converted(
        converted.value,
        (*common.losses, *(Loss(f"messages API: {loss.path}", loss.change) for loss in converted.losses)),
    )
