"""A prompt → a request of OpenAI's Chat Completions."""

from __future__ import annotations

import msgspec

from ctxvc.core.ledger.wire import without
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported, leading
from ctxvc.forms.chat_writer import written

FORMAT = "openai-chat"


def export(conversation: Conversation) -> Exported:
    """The request. What was read in this form is written unchanged; reasoning of other providers is lost."""
    source = conversation.ledger.meta.source
    recorded = conversation.prompt()
    if source is None or source.format != FORMAT:
        recorded = list(map(_without_item_id, recorded))
    request = written(conversation.request(recorded))
    return Exported(formats.dumps(request.value), (*leading(recorded), *request.losses))


def _without_item_id(piece: Piece) -> Piece:
    """A call or result without the id of its item in the Responses API, since the call's own id is used."""
    notes = piece.extra.get("openai")
    if not isinstance(notes, dict) or "id" not in notes:
        return piece
    return msgspec.structs.replace(piece, extra={**piece.extra, "openai": without(notes, "id")})
