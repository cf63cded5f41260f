"""A prompt → a request of OpenAI's Responses API."""

from __future__ import annotations

from ctxvc.core.prompt import formats
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.forms.responses_writer import written


def export(conversation: Conversation) -> Exported:
    """The request. Reasoning of other providers is lost."""
    request = written(conversation.request(conversation.prompt()))
    further = range(1, len(conversation.system_texts))
    moved = (Loss(f"system[{number}]", "a message of the developer") for number in further)
    return Exported(formats.dumps(request.value), (*moved, *request.losses))
