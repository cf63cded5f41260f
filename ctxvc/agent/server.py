"""A model behind a server, asked through its provider's own client: what all providers share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ctxvc.agent import windows
from ctxvc.agent.message import Api, message_of
from ctxvc.agent.model import ModelFailed, TooLong
from ctxvc.agent.refusal import Fault, Overflow, plain, refusal, unreachable
from ctxvc.agent.windows import Window
from ctxvc.core.policy import Answer

#: Seconds to wait before a reply that broke off is asked for again, one after the other; then one gives up.
WAITS = (1.0, 2.0, 4.0, 8.0)

#: The counts of a call's usage that make up what it cost: what was read from the cache costs next to nothing.
_SPENT = ("input_tokens", "cache_creation_input_tokens", "output_tokens")


class Server(ABC):
    """A provider's model. A subclass makes the client, and the arguments of a call.

    Calls and replies are those of the Messages API, whatever the server speaks.
    """

    scripted = False
    #: How the server answers.
    api: Api

    def __init__(
        self,
        client: Any,
        package: Any,
        errors: tuple[type[Exception], ...],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`package` is the client's, with the names of its errors; `errors` are all that it raises."""
        self._client = client
        self._package = package
        self._errors = errors
        self._sleep = sleep

    @abstractmethod
    def _request(self, call: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """The answer to a call, unread."""

    def attempt(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any] | Overflow | Fault:
        """The reply to one request as a message (`message.sound`), or the fault that came instead.

        The client sends the request, and retries it until an answer begins (429, 5xx, no connection). The answer is
        read here, because the client's own reader trusts the server. The reply's text goes to `say` as it streams.
        """
        import httpx2

        try:
            with self._request(call) as response:
                return message_of(response.iter_bytes(), say, self.api)
        except httpx2.RequestError as error:
            return Fault("cut", plain(str(error)) or type(error).__name__, again=True, hint="check the network")
        except self._errors as error:
            return self._fault(error)

    def fetch(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> object:
        """The JSON at a path of the server (`/props`), by POST where there is a body; None where it has none there.

        Raises: ModelFailed if it cannot be asked anything: without a key, or a network.
        """
        client, package = self._client.with_options(timeout=timeout, max_retries=0), self._package
        try:
            if body is None:
                return client.get(self._url(path), cast_to=object)
            return client.post(self._url(path), body=dict(body), cast_to=object)
        except package.APITimeoutError:
            return None
        except (package.AuthenticationError, package.APIConnectionError, TypeError) as error:
            fault = self._fault(error)
            raise ModelFailed(fault.text, hint=fault.hint if isinstance(fault, Fault) else "") from error
        except self._errors:
            return None  # not every server has every path
        except ValueError:
            return None  # some answer with a page

    @property
    def address(self) -> str:
        """The server's address, as the client has it."""
        return str(self._client.base_url)

    def close(self) -> None:
        """Closes the connections to the server."""
        self._client.close()

    def _url(self, path: str) -> str:
        """A path of the server as the client takes it."""
        return path

    def _fault(self, error: Exception) -> Overflow | Fault:
        """An error of the client as a value."""
        match error:
            case self._package.APIConnectionError():
                return unreachable(error, error.request.url)
            case self._package.APIStatusError():
                return refusal(error.status_code, error.body if error.body is not None else error.message)
        return Fault("failed", f"the provider failed: {plain(str(error))}")

    def reply(
        self,
        call: Mapping[str, Any],
        say: Callable[[str], None],
        faulted: Callable[[Fault], object] = lambda _: None,
    ) -> Mapping[str, Any]:
        """The message that answers a call. Passing faults are retried after `WAITS`, and each goes to `faulted`.

        Raises: TooLong, ModelFailed.
        """
        pieces: list[str] = []

        def heard(text: str) -> None:
            pieces.append(text)
            say(text)

        for wait in (*WAITS, 0.0):
            pieces.clear()
            answer = self.attempt(call, heard)
            if isinstance(answer, Overflow):
                raise TooLong(answer.text, tokens=answer.tokens, window=answer.window)
            if not isinstance(answer, Fault):
                return answer
            faulted(answer)
            if not answer.again:
                raise ModelFailed(answer.text, hint=answer.hint)
            fault = answer
            if wait:
                if text := "".join(pieces):
                    say(("" if text.endswith("\n") else "\n") + f"[{_RETRY.get(fault.kind, fault.text)}, retrying]\n")
                self._sleep(wait)
        times = f"{len(WAITS) + 1} times"
        raise ModelFailed(
            f"the reply was interrupted {times}: {fault.text}" if fault.kind == "cut" else f"{fault.text}, {times}",
            hint=fault.hint,
        )

    def window(self, model: str) -> Window | None:
        """The model's window as the server reports it within `windows.SECONDS`; None if it does not.

        Raises: ModelFailed if the server cannot be reached, or refuses the key.
        """
        return windows.discovered(self.fetch, model, address=self.address)

    def ask(
        self,
        call: Mapping[str, Any],
        question: str,
        heard: Callable[[Mapping[str, Any]], None] = lambda _: None,
        faulted: Callable[[Fault], object] = lambda _: None,
    ) -> Answer:
        """The model's answer to a question beside the conversation, whose prompt the call has.

        The question stands in one more block behind it, so that what the provider has cached is read and not written.
        The message goes to `heard`, each fault to `faulted`. Raises: TooLong, ModelFailed.
        """
        message = self.reply(behind(call, question), lambda _: None, faulted)
        heard(message)
        usage = message.get("usage") or {}
        tokens = sum(count for name, count in usage.items() if isinstance(count, int) and name in _SPENT)
        texts = (block.get("text", "") for block in message.get("content", ()) if block.get("type") == "text")
        return Answer("".join(texts), tokens)


#: The note to a person who saw the text of a reply that has to be requested again.
_RETRY = {"cut": "connection lost"}


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
