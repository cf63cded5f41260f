"""Models behind OpenAI's two APIs, by the `openai` client: OpenAI's own, and the many servers that speak as it does."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from ctxvc.agent import message as messages
from ctxvc.agent import stream
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.openai_stream import ChatAssembly, ResponsesAssembly, chat_message, responses_message
from ctxvc.agent.refusal import Fault, Overflow, plain, refusal, unreachable
from ctxvc.agent.server import Server
from ctxvc.forms import conversion

if TYPE_CHECKING:
    import openai

_HINTS = {"key": "set OPENAI_API_KEY", "unreadable": "check the address: it should be that of a server with this API"}


class _OpenAI(Server):
    """What both APIs share: the client, its errors, and options that some servers do not take."""

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
        super().__init__(sleep)
        try:
            import openai
        except ImportError as error:
            raise ModelFailed("the package openai is not installed", hint="pip install openai") from error
        try:
            self._client = client or openai.OpenAI(**options)
        except openai.OpenAIError as error:
            raise ModelFailed("no key is set for the provider", hint=_HINTS["key"]) from error
        self._refused: set[str] = set()  # options that this server does not take

    def attempt(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        """As `Server.attempt`. Where the server does not take an option, it is asked again without."""
        answer = self._attempt(call, say)
        while isinstance(answer, Fault) and (option := self._not_accepted(answer.text)):
            self._refused.add(option)
            answer = self._attempt(call, say)
        return answer

    def fetch(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        """As `Server.fetch`; the client's address ends with `/v1`, or stands for it."""
        import openai

        client = self._client.with_options(timeout=timeout, max_retries=0)
        base = str(client.base_url).rstrip("/")
        url = base + path.removeprefix("/v1") if path.startswith("/v1/") else base.removesuffix("/v1") + path
        try:
            if body is None:
                return client.get(url, cast_to=object)
            return client.post(url, body=dict(body), cast_to=object)
        except openai.APITimeoutError:
            return None
        except (openai.AuthenticationError, openai.APIConnectionError) as error:
            fault = _fault(error)
            raise ModelFailed(fault.text, hint=fault.hint if isinstance(fault, Fault) else "") from error
        except (openai.OpenAIError, ValueError):
            return None  # not every server has every path, and some answer with a page

    @property
    def address(self) -> str:
        return str(self._client.base_url)

    def close(self) -> None:
        self._client.close()

    @abstractmethod
    def _arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of this API's call for one of the Messages API."""

    @abstractmethod
    def _stream(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """The answer to a request, unread."""

    @abstractmethod
    def _message_of(self, response: Any, say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        """The message in an answer."""

    def _attempt(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        import httpx2
        import openai

        try:
            with self._stream(self._accepted(self._arguments(call))) as response:
                answer = self._message_of(response, say)
        except httpx2.RequestError as error:
            return Fault("cut", plain(str(error)) or type(error).__name__, again=True, hint="check the network")
        except openai.OpenAIError as error:
            return _fault(error)
        return _hinted(answer) if isinstance(answer, Fault) else answer

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


class ChatCompletions(_OpenAI):
    """A model behind Chat Completions: what nearly every server of local models speaks, and most gateways."""

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

    def _message_of(self, response: Any, say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        return stream.message_of(response.iter_bytes(), say, assembly=ChatAssembly(say), from_json=chat_message)


class Responses(_OpenAI):
    """A model behind the Responses API. The server keeps nothing: its reasoning comes encrypted and goes back so."""

    options = {"include": "", "parallel_tool_calls": "", "store": ""}

    def _arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        value = conversion.to_responses(call).value
        return {**value, "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}

    def _stream(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        unread: AbstractContextManager[Any] = self._client.responses.with_streaming_response.create(**arguments)
        return unread

    def _message_of(self, response: Any, say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        return stream.message_of(
            response.iter_bytes(), say, assembly=ResponsesAssembly(say), from_json=responses_message
        )


def _fault(error: Exception) -> Overflow | Fault:
    """An error of the client as a value."""
    import openai

    match error:
        case openai.APIConnectionError():
            return unreachable(error, error.request.url)
        case openai.APIStatusError():
            answer = refusal(error.status_code, error.body if error.body is not None else error.message)
            return _hinted(answer) if isinstance(answer, Fault) else answer
    return Fault("failed", f"the provider failed: {plain(str(error))}")


def _hinted(fault: Fault) -> Fault:
    """The fault with a hint for this client: the other API's names its own key and address."""
    hint = _HINTS.get(fault.kind, "")
    is_others = fault.kind == "key" or fault.hint == messages.ADDRESS
    return msgspec.structs.replace(fault, hint=hint) if hint and is_others else fault
