"""The provider's own client as a model of the loop: the only place that sends a request of the Messages API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ctxvc.agent import stream
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.refusal import Fault, Overflow, plain, refusal, unreachable
from ctxvc.agent.server import WAITS, Server, behind
from ctxvc.forms.fields import without_foreign

if TYPE_CHECKING:
    import anthropic

__all__ = ["WAITS", "Anthropic", "behind"]


class Anthropic(Server):
    """A model behind the Messages API, by the provider's own client, which retries by itself what it may."""

    def __init__(
        self,
        client: anthropic.Anthropic | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        **options: Any,
    ) -> None:
        """`options` are those of the client. Raises: ModelFailed if it cannot be made, as without a key."""
        import anthropic

        super().__init__(sleep)
        try:
            self._client = client or anthropic.Anthropic(**options)
        except anthropic.AnthropicError as error:
            raise _failed(error) from error

    def attempt(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        """As `Server.attempt`. The client sends and retries; what comes is read here (`stream`), since the
        client's own reader takes a server at its word."""
        import anthropic
        import httpx2

        try:
            own = {**call, "messages": without_foreign(call["messages"]), "stream": True}
            with self._client.messages.with_streaming_response.create(**own) as response:
                return stream.message_of(response.iter_bytes(), say)
        except httpx2.RequestError as error:
            return Fault("cut", plain(str(error)) or type(error).__name__, again=True, hint="check the network")
        except (anthropic.AnthropicError, TypeError) as error:  # TypeError: no credentials at all
            return _refused(error)

    def fetch(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        """As `Server.fetch`."""
        import anthropic

        client = self._client.with_options(timeout=timeout, max_retries=0)
        try:
            if body is None:
                return client.get(path, cast_to=object)
            return client.post(path, body=dict(body), cast_to=object)
        except anthropic.APITimeoutError:
            return None
        except (anthropic.AuthenticationError, anthropic.APIConnectionError, TypeError) as error:
            raise _failed(error) from error
        except (anthropic.AnthropicError, ValueError):
            return None  # not every server has every path, and some answer with a page

    @property
    def address(self) -> str:
        return str(self._client.base_url)

    def close(self) -> None:
        self._client.close()


def _refused(error: Exception) -> Overflow | Fault:
    """An error of the provider's client as a value."""
    import anthropic

    match error:
        case TypeError():  # the client's, before anything is sent
            return Fault(
                "key",
                "no key is set for the provider",
                hint="set ANTHROPIC_API_KEY; or OPENAI_API_KEY or OPENAI_BASE_URL for another server",
            )
        case anthropic.APIConnectionError():
            return unreachable(error, error.request.url)
        case anthropic.APIStatusError():
            return refusal(error.status_code, error.body if error.body is not None else error.message)
    return Fault("failed", f"the provider failed: {plain(str(error))}")


def _failed(error: Exception) -> ModelFailed:
    refused = _refused(error)
    return ModelFailed(refused.text, hint=refused.hint if isinstance(refused, Fault) else "")
