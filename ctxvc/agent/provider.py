"""Models behind the Messages API, by the provider's own client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ctxvc.agent.message import sound
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.refusal import Fault, Overflow, plain
from ctxvc.agent.server import Server
from ctxvc.agent.stream import Api
from ctxvc.forms.anthropic import assembled
from ctxvc.forms.fields import without_foreign

if TYPE_CHECKING:
    import anthropic

_NO_KEY = Fault(
    "key",
    "no key is set for the provider",
    hint="set ANTHROPIC_API_KEY; or OPENAI_API_KEY or OPENAI_BASE_URL for another server",
)


def _text(kind: str, event: dict[str, Any]) -> object:
    match kind, event:
        case "content_block_start", {"content_block": {"type": "text", "text": text}}:
            return text
        case "content_block_delta", {"delta": {"type": "text_delta", "text": text}}:
            return text
    return None


class Anthropic(Server):
    """A model behind the Messages API."""

    api = Api("the Messages API", assembled, _text, sound)

    def __init__(
        self,
        client: anthropic.Anthropic | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        **options: Any,
    ) -> None:
        """`options` are those of the client. Raises: ModelFailed if it cannot be made."""
        import anthropic

        try:
            client = client or anthropic.Anthropic(**options)
        except anthropic.AnthropicError as error:
            raise ModelFailed(f"the provider failed: {plain(str(error))}") from error
        super().__init__(client, anthropic, (anthropic.AnthropicError, TypeError), sleep)

    def _request(self, call: Mapping[str, Any]) -> AbstractContextManager[Any]:
        own = {**call, "messages": without_foreign(call["messages"]), "stream": True}
        unread: AbstractContextManager[Any] = self._client.messages.with_streaming_response.create(**own)
        return unread

    def _fault(self, error: Exception) -> Overflow | Fault:
        """As `Server._fault`; a TypeError is the client's where there are no credentials, before anything is sent."""
        return _NO_KEY if isinstance(error, TypeError) else super()._fault(error)
