"""A call of the provider's client: what it is given besides the prompt, and how a reply ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, count
from typing import Any, Literal

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.request import Request
from ctxvc.core.view.budget import Budget
from ctxvc.errors import BadInput
from ctxvc.tokens import models

#: Why a reply ended. `done`: the model has finished; `tools`: it waits for the results of its calls; `paused`: the
#: provider stopped on the way, ask again; `length`: `max_tokens` were not enough; `window`: the context window was
#: full; `refused`: the provider would not go on; `cut`: the stream broke off, nothing was recorded.
Stop = Literal["done", "tools", "paused", "length", "window", "refused", "cut"]

_STOPS: Mapping[object, Stop] = {
    None: "cut",
    "pause_turn": "paused",
    "max_tokens": "length",
    "model_context_window_exceeded": "window",
    "refusal": "refused",
}
#: After these the last call of a reply may be half a call: none of them is run.
BROKEN: frozenset[Stop] = frozenset({"length", "window", "refused"})

#: Times in a row that the model is asked again after a reply that ended before its time.
CUT_SHORT = 3

#: The default limit of a reply in tokens, and the most for which the client takes a call that does not stream.
MAX_TOKENS = 8_192
MOST_WHOLE = 21_333

#: Characters of a call's id at most; those of providers have some 30.
LONGEST_ID = 256

#: With it, thinking that an edit took out of its place is dropped by the provider instead of refused.
BINDING = "thinking-binding-controls-2026-08-01"
_DROP = {"prefix_mismatch_behavior": "drop_block"}
#: What a request is made of: it stands in the session.
_PROMPT = ("messages", "system", "tools")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was recorded: why it ended, the calls that are to be run, and what it says.

    `goes_on` says that the model is to be asked again, once the results of `calls` are in.
    """

    stop: Stop
    calls: tuple[dict[str, Any], ...] = ()
    text: str = ""
    goes_on: bool = False


#: What is read here of what a request is given besides the prompt.
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "model": (str, "a name"),
    "thinking": (Mapping, "an object"),
    "extra_headers": (Mapping, "an object"),
    "betas": ((list, tuple), "a list"),
}


def arguments(
    request: Request, more: Mapping[str, Any], *, reserve: int, final: bool, unbound: bool = True
) -> dict[str, Any]:
    """Arguments of `client.messages.create` and `.stream`: the prompt with its breakpoints, and the caller's `more`.

    Unless `more` says otherwise, the reply may have `reserve` tokens.
    Where the model binds thinking to what stands before it, the provider is told to drop what an edit unbound. Thinking
    `between_tools` takes no such word: where some is `unbound`, the model thinks as it likes in this call. With `final`
    it may call nothing. Raises: BadInput if `more` has what the session has.
    """
    if reserved := [name for name in _PROMPT if name in more]:
        raise BadInput(
            f"{', '.join(reserved)}: the session already has it", hint="pass system and tools to Session.open, once"
        )
    call_arguments: dict[str, Any] = {
        "model": request.model,
        "max_tokens": min(reserve, MOST_WHOLE),
        **request.body(marked="cache_control" not in more),
        **more,
    }
    if not call_arguments["model"]:
        raise BadInput("no model given", hint="pass one to Session.open or to request")
    if models.binds_thinking(call_arguments["model"]):
        _bind(call_arguments, unbound)
    if final and request.tools:
        call_arguments["tool_choice"] = {"type": "none"}
    return call_arguments


def room(budget: Budget) -> int:
    """The default limit of a reply in tokens: the reserve, or at most half the window if there is none."""
    return budget.reserve or min(MAX_TOKENS, budget.window // 2)


def check(more: Mapping[str, Any]) -> None:
    """Raises: BadInput if what a request is given besides the prompt cannot be read."""
    for name, (kind, expected) in _KINDS.items():
        if more.get(name) and not isinstance(more[name], kind):  # the client's NOT_GIVEN is false
            raise BadInput(f"{name} is {str(more[name])[:40]!r}", hint=f"pass {expected}, as in the Messages API")


def plain(value: object) -> Mapping[str, Any]:
    """A message or block of the client as the dictionary that came over the wire; a dictionary as it is.

    Raises: BadInput for anything else.
    """
    if isinstance(value, Mapping):
        return value
    to_dict = getattr(value, "to_dict", None)
    if to_dict is None:
        raise BadInput(f"neither a message nor a block: {str(value)[:80]}", hint="pass the client's object")
    message = to_dict(warnings=False)  # it warns of kinds of blocks that it does not know, and keeps them
    assert isinstance(message, dict)
    return message


def reply(message: Mapping[str, Any]) -> Reply:
    """A provider's message read: how it ended, its calls and its text.

    Raises: BadInput for a message of somebody else.
    """
    if (role := message.get("role", "assistant")) != "assistant":
        raise BadInput(f"not a reply: its role is {str(role)[:40]!r}", hint="pass the client's object")
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = tuple(block for block in blocks if block.get("type") == "tool_use")
    reason = message.get("stop_reason")
    stop = ending(reason if isinstance(reason, str | None) else "", bool(calls))
    return Reply(
        stop=stop,
        calls=calls,
        text="".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text"),
        goes_on=stop in ("tools", "paused", "cut") or (bool(calls) and stop in ("length", "window")),
    )


def ending(stop_reason: object, calls: bool = False) -> Stop:
    """Why a reply ended, from its `stop_reason` and whether it has `calls`."""
    return _STOPS.get(stop_reason, "tools" if calls else "done")


def with_ids(message: Mapping[str, Any], ids: Collection[str]) -> dict[str, Any]:
    """The message with a unique id for each call: missing ones are made up, and those among `ids` get a number.

    Some servers restart their numbering with each reply, and some use one id for every call.
    """
    used = set(ids)
    blocks: list[Any] = []
    for block in message.get("content") or ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            received = block.get("id")
            stem = received if isinstance(received, str) and 0 < len(received) <= LONGEST_ID else "call"
            numbered = (f"{stem}_{number}" for number in count(2))
            identifier = next(name for name in chain((stem,), numbered) if name not in used)
            used.add(identifier)
            blocks.append(block if received == identifier else {**block, "id": identifier})
        else:
            blocks.append(block)
    return {**message, "content": blocks}


def malformed(call: Mapping[str, Any]) -> str:
    """The fault of a call's arguments, for the model; empty if they are an object."""
    text = call.get("input")
    if isinstance(text, dict):
        return ""
    try:
        wire.parse(str(text))
    except ValueError as error:
        reason = str(error)
    else:
        reason = "they are no object"
    return f"[not run: its arguments are not a JSON object: {one_line(reason, 120)}. Repeat the call with valid JSON]"


def result(call: Mapping[str, Any], text: str, *, error: bool = False) -> dict[str, Any]:
    """The block that answers a call."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.get("id"), "content": text}
    return {**block, "is_error": True} if error else block


def _bind(call_arguments: dict[str, Any], unbound: bool) -> None:
    thinking = call_arguments.get("thinking") or {"type": "adaptive"}
    if thinking.get("type") == "between_tools" and unbound:
        thinking = {"type": "adaptive"}
    if thinking.get("type") not in ("adaptive", "enabled"):
        return
    call_arguments["thinking"] = {"block_binding": _DROP, **thinking}
    if "betas" in call_arguments:  # the beta client has an argument for them
        call_arguments["betas"] = list(dict.fromkeys([*call_arguments["betas"], BINDING]))
        return
    headers = {name.lower(): value for name, value in (call_arguments.get("extra_headers") or {}).items()}
    betas = [*filter(None, map(str.strip, headers.get("anthropic-beta", "").split(",")))]
    headers["anthropic-beta"] = ",".join(dict.fromkeys([*betas, BINDING]))
    call_arguments["extra_headers"] = headers
