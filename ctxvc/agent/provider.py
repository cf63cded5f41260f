"""Models behind the Messages API and OpenAI's two APIs, by the providers' own clients."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from ctxvc.agent import message as messages
from ctxvc.agent.message import CUT, Api, unreadable
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.refusal import Fault, Overflow, plain, refusal
from ctxvc.agent.server import Server
from ctxvc.forms import anthropic as messages_api
from ctxvc.forms import chat, conversion, responses
from ctxvc.forms.fields import without_foreign
from ctxvc.forms.values import objects

if TYPE_CHECKING:
    import anthropic
    import openai

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

    api = Api("the Messages API", messages_api.assembled, _text, messages.sound)

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


_HINTS = {"key": "set OPENAI_API_KEY", "unreadable": "check the address: it should be that of a server with this API"}


class _OpenAI(Server):
    """The base of both APIs: the client, its errors, and options that some servers do not take."""

    #: An option → what it is called where a server refuses it under that name; empty where it is left out.
    options: Mapping[str, str] = {}

    def __init__(
        self,
        client: openai.OpenAI | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        **options: Any,
    ) -> None:
        """`options` are those of the client. Raises: ModelFailed if it cannot be made, as without a key or the package
        `openai`."""
        try:
            import openai
        except ImportError as error:
            raise ModelFailed("the package openai is not installed", hint="pip install openai") from error
        try:
            client = client or openai.OpenAI(**options)
        except openai.OpenAIError as error:
            raise ModelFailed("no key is set for the provider", hint=_HINTS["key"]) from error
        super().__init__(client, openai, (openai.OpenAIError,), sleep)
        self._refused: set[str] = set()  # options that this server does not take

    def attempt(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        """As `Server.attempt`. Where the server does not take an option, it is asked again without."""
        answer = super().attempt(call, say)
        while isinstance(answer, Fault) and (option := self._not_accepted(answer.text)):
            self._refused.add(option)
            answer = super().attempt(call, say)
        return _hinted(answer) if isinstance(answer, Fault) else answer

    def _url(self, path: str) -> str:
        """A path of the server, below the client's base URL, which ends with `/v1` or stands for it."""
        base = self.address.rstrip("/")
        return base + path.removeprefix("/v1") if path.startswith("/v1/") else base.removesuffix("/v1") + path

    def _fault(self, error: Exception) -> Overflow | Fault:
        answer = super()._fault(error)
        return _hinted(answer) if isinstance(answer, Fault) else answer

    def _request(self, call: Mapping[str, Any]) -> AbstractContextManager[Any]:
        return self._stream(self._accepted(self._arguments(call)))

    @abstractmethod
    def _arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of this API's call for one of the Messages API."""

    @abstractmethod
    def _stream(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """The answer to a request, unread."""

    def _not_accepted(self, text: str) -> str:
        """The option that a server's words refuse, if it was sent: the first that they name."""
        places = {
            option: match.start()
            for option in self.options.keys() - self._refused
            if (match := re.search(rf"\b{option}\b", text)) and _REFUSES.search(text)
        }
        return min(places, key=lambda option: places[option], default="")

    def _accepted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments without the options that this server does not take."""
        for option in self._refused & arguments.keys():
            value = arguments.pop(option)
            if name := self.options[option]:
                arguments[name] = value
        return arguments


#: How servers say that they do not take an option: OpenAI's "Unsupported parameter", pydantic's "Extra inputs are not
#: permitted", Groq's "property … is unsupported".
_REFUSES = re.compile(r"unsupported|not supported|unrecognized|unknown|not permitted|unexpected|not allowed", re.I)


def _chat_text(_kind: str, chunk: dict[str, Any]) -> object:
    match chunk:
        case {"choices": [{"delta": {"content": text}}, *_]}:
            return text
    return None


def _chat_message(completion: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole chat completion, or what came instead."""
    if not isinstance(completion, dict):
        return unreadable("not an object")
    if completion.get("error"):
        return refusal(200, completion)
    match completion.get("choices"):
        case [{"message": {"tool_calls": list(calls)}}, *_] if not all(map(_has_name, objects(calls))):
            return unreadable("a call without a name", again=True)
        case list():
            return messages.sound(conversion.chat_reply(completion, messages.arguments).value)
    return unreadable("a message of the Messages API" if "content" in completion else "no choices")


def _has_name(call: dict[str, Any]) -> bool:
    function = call.get("function") or call.get("custom")
    return isinstance(function, dict) and isinstance(function.get("name"), str)


class ChatCompletions(_OpenAI):
    """A model behind Chat Completions: what nearly every server of local models speaks, and most gateways."""

    api = Api("Chat Completions", chat.assembled, _chat_text, _chat_message, ends_with_done=True)
    options = {
        "max_tokens": "max_completion_tokens",
        "stream_options": "",
        "parallel_tool_calls": "",
        "reasoning_effort": "",
        "reasoning_content": "",
        "reasoning": "",
    }

    def _arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        value = conversion.to_chat(call).value
        if "max_completion_tokens" in value:
            value["max_tokens"] = value.pop("max_completion_tokens")  # the name that servers of local models know
        value["messages"] = [self._message(message) for message in value["messages"]]
        return {**value, "stream": True, "stream_options": {"include_usage": True}}

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message as every server takes it: texts alone are one text."""
        message = {name: value for name, value in message.items() if name not in self._refused}
        content = message.get("content")
        if isinstance(content, list) and all(part["type"] == "text" for part in content):
            message["content"] = "\n".join(part["text"] for part in content)
        return message

    def _stream(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        unread: AbstractContextManager[Any] = self._client.chat.completions.with_streaming_response.create(**arguments)
        return unread


def _responses_text(kind: str, event: dict[str, Any]) -> object:
    return event.get("delta") if kind in ("response.output_text.delta", "response.refusal.delta") else None


def _responses_message(response: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole response, or what came instead."""
    if not isinstance(response, dict):
        return unreadable("not an object")
    if response.get("error"):
        return refusal(200, response)
    if not isinstance(response.get("output"), list):
        return unreadable("a chat completion" if "choices" in response else "no output")
    message = conversion.responses_reply(response, messages.arguments).value
    return messages.sound(message) if message["stop_reason"] else CUT


class Responses(_OpenAI):
    """A model behind the Responses API. The server keeps nothing: its reasoning comes encrypted and goes back so."""

    api = Api("the Responses API", responses.assembled, _responses_text, _responses_message)
    options = {"include": "", "parallel_tool_calls": "", "store": ""}

    def _arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        value = conversion.to_responses(call).value
        return {**value, "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}

    def _stream(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        unread: AbstractContextManager[Any] = self._client.responses.with_streaming_response.create(**arguments)
        return unread


def _hinted(fault: Fault) -> Fault:
    """The fault with a hint for this client: the other API's names its own key and address."""
    hint = _HINTS.get(fault.kind, "")
    is_others = fault.kind == "key" or fault.hint == messages.ADDRESS
    return msgspec.structs.replace(fault, hint=hint) if hint and is_others else fault
