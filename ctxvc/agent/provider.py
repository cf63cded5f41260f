"""The provider as a model of the loop: the only place that sends a request to a server, and reads what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ctxvc.agent.model import ModelFailed, TooLong
from ctxvc.core.policy import Answer, Ask
from ctxvc.core.view.view import View
from ctxvc.errors import Phrase

if TYPE_CHECKING:
    import anthropic


#: How a provider, or the server of a local model, says that the prompt is too long, in small letters.
_TOO_LONG = (
    "prompt is too long", "input is too long", "context limit", "context window", "context length", "context_length",
    "context size", "exceed the configured limit",
)  # fmt: skip

#: Seconds to wait before a reply that broke off is asked for again, one after the other; then one gives up.
WAITS = (1.0, 2.0, 4.0, 8.0)

#: The status of a reply that has begun.
_BEGUN = 200

#: What the provider calls it where an account has spent all that it may.
_SPENT_ALL = "enforced_spend_limit_reached"


class _BrokeOff(ModelFailed):
    """The reply ended in its middle."""


class Anthropic:
    """A model behind the Messages API, by the provider's own client, which retries by itself what it may."""

    scripted = False

    def __init__(
        self,
        client: anthropic.Anthropic | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        **options: Any,
    ) -> None:
        """`options` are those of the client. Raises: ModelFailed if it cannot be made, as without a key."""
        import anthropic

        self._sleep = sleep
        try:
            self._client = client or anthropic.Anthropic(**options)
        except anthropic.AnthropicError as error:
            raise _failed(error) from error

    def reply(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        pieces: list[str] = []

        def heard(text: str) -> None:
            pieces.append(text)
            say(text)

        for seconds in WAITS:
            try:
                return self._streamed(call, heard)
            except _BrokeOff:
                if text := "".join(pieces):
                    say(("" if text.endswith("\n") else "\n") + "[connection lost, retrying]\n")
                pieces.clear()
                self._sleep(seconds)
        try:
            return self._streamed(call, heard)
        except _BrokeOff as error:
            raise ModelFailed(
                f"the reply was interrupted {len(WAITS) + 1} times: {error}", hint=error.advice
            ) from error

    def _streamed(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        """A whole reply. Raises: TooLong, ModelFailed, and _BrokeOff, after which the client does not try again."""
        import anthropic
        import httpx2

        try:
            with self._client.messages.stream(**call) as stream:
                for event in stream:
                    if event.type == "text":
                        say(event.text)
                message = stream.get_final_message()
        except httpx2.TransportError as error:
            raise _BrokeOff(str(error) or type(error).__name__, hint="check the network") from error
        except (anthropic.AnthropicError, TypeError) as error:  # TypeError: no credentials at all
            if isinstance(error, anthropic.APIStatusError) and error.status_code == _BEGUN:
                raise _BrokeOff(error.api_message or str(error), hint="wait a little") from error
            raise _failed(error) from error
        if message.stop_reason is None:
            raise _BrokeOff("it ended before it was complete", hint="check the network")
        return message.to_dict(warnings=False)

    def close(self) -> None:
        """Lets go of the connections to the provider."""
        self._client.close()

    def window(self, model: str) -> int | None:
        """The window of a model in tokens, as the provider tells; None if it does not.

        Raises: ModelFailed if it cannot be asked anything: without a key, or a network.
        """
        import anthropic

        try:
            limit = getattr(self._client.models.retrieve(model), "max_input_tokens", None)
        except (anthropic.AuthenticationError, anthropic.APIConnectionError, TypeError) as error:
            raise _failed(error) from error
        except anthropic.AnthropicError:
            return None  # not every endpoint lists models
        return limit if isinstance(limit, int) and limit > 0 else None

    def ask(
        self,
        model: str,
        prompt: Callable[[View], Mapping[str, Any]],
        most: int = 8_192,
        *,
        heard: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> Ask:
        """A model beside the conversation, as a policy takes it (`core.policy.Ask`).

        `prompt` gives the live prompt of a view as the arguments of a call; what is asked stands in one more block
        behind it, so that what the provider has cached is read and not written. Each message goes to `heard`, too.
        """

        def ask_beside(view: View, question: str) -> Answer:
            call = behind({**prompt(view), "model": model, "max_tokens": most}, question)
            message = self.reply(call, lambda _: None)
            heard(message)
            usage = message.get("usage") or {}
            spent = sum(count for name, count in usage.items() if isinstance(count, int) and name in _SPENT)
            texts = (block.get("text", "") for block in message.get("content", ()) if block.get("type") == "text")
            return Answer("".join(texts), spent)

        return ask_beside


#: What of a call's usage its planning cost: what was read from the cache costs next to nothing.
_SPENT = ("input_tokens", "cache_creation_input_tokens", "output_tokens")


def behind(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The call with one more block of text at the end of its prompt, which stays what it is, byte for byte.

    The tools stay too, and none may be called.
    """
    block = {"type": "text", "text": text}
    messages = list(call["messages"])
    if messages and messages[-1]["role"] == "user":
        content = messages[-1]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        messages[-1] = {**messages[-1], "content": [*blocks, block]}
    else:
        messages.append({"role": "user", "content": [block]})
    choice = {"tool_choice": {"type": "none"}} if call.get("tools") else {}
    return {**call, **choice, "messages": messages}


def _failed(error: Exception) -> ModelFailed:
    """An error of the provider's client as one of ours."""
    import anthropic

    message = getattr(error, "api_message", None) or str(error)
    match error:
        case anthropic.AuthenticationError() | anthropic.PermissionDeniedError() | TypeError():
            return ModelFailed(f"the provider rejected the key: {message}", hint="set ANTHROPIC_API_KEY")
        case anthropic.APIConnectionError():
            return ModelFailed(f"the provider cannot be reached: {message}", hint="check the network")
        case anthropic.NotFoundError():
            return ModelFailed(f"the provider has no such model: {message}", hint=Phrase("other-model"))
        case anthropic.APIStatusError(status_code=400 | 422) if any(phrase in message.lower() for phrase in _TOO_LONG):
            return TooLong(message)
        case anthropic.APIStatusError(status_code=413):
            return TooLong(message)
        case anthropic.APIStatusError(body={"error": {"details": {"error_code": code}}}) if code == _SPENT_ALL:
            return ModelFailed(f"the provider refuses more requests: {message}", hint="raise its spend limit")
        case anthropic.APIStatusError(status_code=429 | 529 | 503):
            return ModelFailed(f"the provider is busy: {message}", hint="wait a little")
    return ModelFailed(f"the provider failed: {message}")
