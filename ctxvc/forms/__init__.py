"""Providers' forms of requests and replies: one reader a form, for recordings and for what passes on the wire. Pure.

A module of a form offers what `form.Form` lists; the others are what they share.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxvc.forms.form import Form

_CONVERSATION = re.compile(
    r"(?:/v1/(?P<anthropic>messages)|/chat/(?P<chat>completions)|/(?P<responses>responses)(?:/compact)?"
    r"|:(?P<gemini>g|streamG)enerateContent)/?\Z"
)


def of(path: str) -> Form | None:
    """The form of what is sent to a URL's path, and of the answer; None where it is no part of a conversation.

    What comes before the API's own path does not matter, so that it may be a gateway's.
    """
    from ctxvc.forms import anthropic, chat, gemini, responses

    match = _CONVERSATION.search(path)
    forms: dict[str | None, Form] = {"anthropic": anthropic, "chat": chat, "responses": responses, "gemini": gemini}
    return forms.get(match.lastgroup) if match else None
