"""A prompt → a request of OpenAI's Responses API."""

from __future__ import annotations

from ctxvc.core.prompt import formats
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.forms.responses_writer import written


def export(conversation: Conversation) -> Exported:
    """The request. Reasoning of other providers has no place here."""
    request = written(conversation.request(conversation.prompt()))
    system = conversation.system
    texts = [block["text"] for block in system if block["text"]] if isinstance(system, list) else []
    moved = (Loss(f"system[{number}]", "a message of the developer") for number in range(1, len(texts)))
    return Exported(formats.dumps(request.value), (*moved, *request.losses))
