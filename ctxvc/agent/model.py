"""The source of replies: a provider's model (`provider.py`), or a script that plays one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from ctxvc.agent import refusal
from ctxvc.errors import BadInput, CtxvcError, Phrase


class ModelFailed(CtxvcError):
    """The provider did not reply."""

    code = "model_failed"


class TooLong(ModelFailed):
    """The provider refused the prompt as longer than the model's window.

    `tokens` is its size and `window` what the model takes, as the provider counts: by default as far as the message
    says so, else 0.
    """

    def __init__(self, message: str | Phrase, *, hint: str | Phrase = "", tokens: int = 0, window: int = 0) -> None:
        super().__init__(message, hint=hint)
        sizes = refusal.sizes(str(message))
        self.tokens = tokens or sizes[0]
        self.window = window or sizes[1]


class Model(Protocol):
    """A source of replies: a provider's model or a script."""

    @property
    def scripted(self) -> bool:
        """Whether the replies come from a script; people are told so."""

    def reply(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        """The complete reply to a call (`Adapter.request`); its text goes to `say` as it streams.

        A reply that breaks off is asked for again. Raises: TooLong, ModelFailed.
        """


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """A reply of a script that somebody wrote. What else a message has is not played."""

    role: str = "assistant"
    content: str | list[dict[str, Any]] = ""
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


class Scripted:
    """Plays replies that were recorded or written, one after the other. It is no model, and its users are told so."""

    scripted = True

    def __init__(self, replies: Iterable[Mapping[str, Any]]) -> None:
        self._replies: Iterator[Mapping[str, Any]] = iter(replies)
        self._made = 0

    def reply(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        scripted = next(self._replies, None)
        if scripted is None:
            raise ModelFailed("the script has no more replies", hint="it was written for fewer steps")
        self._made += 1
        content = scripted.get("content", "")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(item) for item in content]
        for number, block in enumerate(blocks):
            if block.get("type") == "tool_use":
                block.setdefault("id", f"toolu_scripted_{self._made}_{number}")
            elif block.get("type") == "text":
                say(str(block.get("text", "")))
        calls = any(block.get("type") == "tool_use" for block in blocks)
        return {
            "id": f"msg_scripted_{self._made}",
            "type": "message",
            "role": "assistant",
            "model": call.get("model", ""),
            "content": blocks,
            "stop_reason": scripted.get("stop_reason") or ("tool_use" if calls else "end_turn"),
            "usage": scripted.get("usage") or {},
        }

    @staticmethod
    def read(data: bytes) -> Scripted:
        """The script in a JSON file: a list of replies with `content` as in the Messages API. Raises: BadInput."""
        try:
            replies = msgspec.json.decode(data, type=list[_Written])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadInput(f"not a script: {error}", hint='a JSON list of {"content": …}') from error
        return Scripted(msgspec.structs.asdict(reply) for reply in replies if reply.role == "assistant")
