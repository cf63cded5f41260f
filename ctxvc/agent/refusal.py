"""A server's answer that is not a reply, as a value: a prompt that is too long for it, or a fault, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, Literal

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger import wire
from ctxvc.errors import Phrase

#: What went wrong. `key`: it is missing or not accepted; `network`: no answer came; `model`: there is none of that
#: name; `busy`, `spent`: too many requests now, or for good; `cut`: the reply broke off; `unreadable`: what came is no
#: reply; `empty`: the reply has nothing in it; `failed`: anything else.
FaultKind = Literal["key", "network", "model", "busy", "spent", "cut", "unreadable", "empty", "failed"]

#: Characters that are shown of what a server says.
_SHOWN = 300
#: Characters in which sizes are looked for: a server may send back the whole prompt.
_READ = 20_000
#: No model takes fewer tokens.
LEAST_WINDOW = 1_000


class Fault(msgspec.Struct, frozen=True):
    """A failure of a server in one plain line. `again` says that the same request may well be answered if repeated."""

    kind: FaultKind
    text: str
    again: bool = False
    hint: str | Phrase = ""


class Overflow(msgspec.Struct, frozen=True):
    """A server found the prompt too long: its size and what the model takes, as it counts; 0 where it does not say."""

    text: str
    tokens: int = 0
    window: int = 0


#: How servers say that a prompt is too long, in small letters.
#: - Messages API: "prompt is too long: A tokens > B maximum", "… `max_tokens` exceed context limit: A + R > B"
#: - llama.cpp (tools/server/server-context.cpp): "request (A tokens) exceeds the available context size (B tokens)"
#: - vLLM: "maximum context length is B tokens. However, you requested …" (vllm#20409), "You passed A input tokens … the
#:   model's context length is only B", "The decoder prompt (length A) is longer than the maximum model length of B"
#: - Ollama: "the input length exceeds the context length", else as llama.cpp (ollama#17944)
#: - LM Studio: "Trying to keep the first A tokens when context the overflows. However, the model is loaded with context
#:   length of only B tokens" (lmstudio-bug-tracker#546), "… n_keep (A) >= n_ctx (B)" (opencode#11141)
#: - OpenRouter: "maximum context length is B tokens. However, you requested about …" (OpenHands#9937)
#: - Bedrock: "Input is too long for requested model" (bedrock-chat#95), "exceeds the model limit of B" (crush#946)
#: - LiteLLM: its `ContextWindowExceededError` before the words of the server behind it (brokk-app#540)
#: - Gemini: "The input token count (A) exceeds the maximum number of tokens allowed (B)"
#: - TGI: "`inputs` tokens + `max_new_tokens` must be <= B. Given: A `inputs` tokens …" (chat-ui#1149)
_TOO_LONG = (
    "prompt is too long", "input is too long", "context limit", "context window", "contextwindowexceeded",
    "context length", "context_length", "context size", "exceed_context_size", "maximum model length",
    "exceed the configured limit", "exceeds the configured limit", "exceeds the model limit",
    "when context the overflows", ">= n_ctx", "input token count", "maximum prompt length", "`inputs` tokens",
)  # fmt: skip

_N = r"(\d{1,9})"
#: The size of the prompt, in the same words. Where a request is broken down, the reply's part is not the prompt's.
_SIZE = re.compile(
    rf"{_N} tokens > |{_N} \+ \d{{1,9}} > |{_N} in the messages|{_N} in your prompt|resulted in {_N} tokens"
    rf"|request \({_N} tokens\)|passed {_N} input tokens|request has {_N} input tokens|\(length {_N}\)"
    rf"|keep the first {_N} tokens|n_keep \({_N}\)|{_N} of text input|token count \({_N}\)|contains {_N} tokens"
    rf"|given: {_N} `inputs`",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    rf"> {_N}|context length is (?:only )?{_N}|configured limit of {_N}|context size \({_N} tokens"
    rf"|context length of only {_N}|n_ctx \({_N}\)|maximum model length of {_N}|model limit of {_N}"
    rf"|tokens allowed \({_N}\)|maximum prompt length is {_N}|must be <= {_N}",
    re.IGNORECASE,
)

#: What the provider calls it where an account has spent all that it may.
_SPENT_ALL = "enforced_spend_limit_reached"

#: Types of errors that the same request meets again. Any other in the place of a reply that has begun may pass.
_FINAL = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "billing_error", "not_found_error"}
)

#: Statuses of too much to do, and of a prompt that a server may have found too long: LM Studio answers with 200
#: (lmstudio-bug-tracker#2322), older llama.cpp and Ollama with 500.
_BUSY = frozenset({429, 503, 529})
_OVERFLOWS = frozenset({0, 200, 400, 413, 422, 500})


def refusal(status: int, body: object) -> Overflow | Fault:
    """The refusal in an answer of this status (0 inside a stream) and this body, JSON or text."""
    error = _error(body)
    text, kind = _text(error, status), " ".join(str(error.get(name) or "") for name in ("type", "code"))
    if overflow := _overflow(status, f"{kind} {error.get('message')}", error, text):
        return overflow
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    match status:
        case 0 | 200 if not _FINAL & set(kind.split()):
            return Fault("cut", text, again=True, hint="wait a little")
        case 401 | 403:
            return Fault("key", f"the provider rejected the key: {text}", hint="set ANTHROPIC_API_KEY")
        case 404 if "model" in text.lower():
            return Fault("model", f"the provider has no such model: {text}", hint=Phrase("other-model"))
        case 404:
            return Fault("failed", f"the provider has nothing at this address: {text}", hint="check the address")
        case _ if code == _SPENT_ALL:
            return Fault("spent", f"the provider refuses more requests: {text}", hint="raise its spend limit")
        case _ if status in _BUSY:
            return Fault("busy", f"the provider is busy: {text}", hint="wait a little")
    return Fault("failed", f"the provider failed: {text}")


def unreachable(error: Exception, url: Any) -> Fault:
    """The fault of a request (of `httpx2`) that got no answer, from the client's error."""
    port = f":{url.port}" if url.port else ""
    place = f" at {plain(f'{url.scheme}://{url.host}{port}')}" if url.host else ""
    reason = plain(str(error.__cause__ or error)) or type(error.__cause__).__name__
    return Fault(
        "network", f"the provider cannot be reached{place}: {reason}", hint="check the network, and the address"
    )


def sizes(text: str) -> tuple[int, int]:
    """The size of a prompt and what the model takes, from a server's words; 0 for what they do not say."""
    text = text[:_READ].replace(",", "")
    window = _number(_WINDOW, text)
    return _number(_SIZE, text), window if window >= LEAST_WINDOW else 0


def plain(text: str) -> str:
    """A server's words as one line that can be shown; of a web page its title, or what a browser would show."""
    text = text[:_READ]
    if is_page(text):
        title = re.search(r"<title[^<>]*>([^<]+)<", text, re.IGNORECASE)
        text = unescape(title[1] if title else re.sub(r"<[^<>]*>", " ", text))
    return one_line(text.strip(), _SHOWN)


def is_page(text: str) -> bool:
    """Whether a text is a web page."""
    return text.lstrip()[:15].lower().startswith(("<!doctype", "<html", "<head", "<?xml"))


def _overflow(status: int, message: str, error: Mapping[str, Any], text: str) -> Overflow | None:
    if status not in _OVERFLOWS:
        return None
    lower = message[:_READ].lower()
    if status != 413 and not any(phrase in lower for phrase in _TOO_LONG):  # the body is too large
        return None
    tokens, window = sizes(message)
    own_window = _count(error.get("n_ctx"))
    return Overflow(
        text,
        tokens=_count(error.get("n_prompt_tokens")) or tokens,
        window=own_window if own_window >= LEAST_WINDOW else window,
    )


def _error(body: object) -> dict[str, Any]:
    """The error object in a body: the Messages API's and OpenAI's `error`, vLLM's own fields, FastAPI's `detail`."""
    if isinstance(body, (bytes, str)):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            body = wire.parse(text[: 10 * _READ])
        except ValueError:
            return {"message": plain(text)}
    if not isinstance(body, dict):
        return {"message": _joined(body)}
    inner = body.get("error")
    if isinstance(inner, dict):
        error = dict(inner)
    elif inner:
        error = {"message": _joined(inner)}
    else:
        error = dict(body)
    message = next((error[name] for name in ("message", "detail", "msg", "title") if error.get(name)), "")
    nested = _nested(message) if isinstance(message, str) else {}
    return {**error, "message": _joined(message), **nested}


def _nested(message: str) -> dict[str, Any]:
    """The error of the server behind a gateway that passes it on as JSON in its own message."""
    start = max(0, message.find("{"))
    match wire.parsed(message[start : message.rfind("}") + 1], dict):
        case {"error": {"message": str(text)} as inner}:
            return {**inner, "message": f"{message[:start].strip()} {text}".strip()}
    return {}


def _joined(value: object) -> str:
    """The words in a value of any type, as those of a validation error: a list of objects with a `msg`."""
    match value:
        case str():
            return value
        case {"msg": str(text)} | {"message": str(text)}:
            return text
        case list():
            return "; ".join(filter(None, map(_joined, value[:5])))
        case dict() | None:
            return ""
    return str(value)[:_SHOWN]


def _text(error: Mapping[str, Any], status: int) -> str:
    kind = error.get("type")
    fallback = kind if isinstance(kind, str) else f"status {status}" if status else "no reason given"
    return plain(str(error.get("message") or "")) or plain(fallback)


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(next(filter(None, match.groups()))) if match else 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
