"""A call of the provider's client: its arguments besides the prompt, and how the reply ended."""

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
#: provider interrupted it, ask again; `length`: it reached `max_tokens`; `window`: the context window was full;
#: `refused`: the provider would not go on; `cut`: the stream broke off, nothing was recorded.
Stop = Literal["done", "tools", "paused", "length", "window", "refused", "cut"]

_STOPS: Mapping[object, Stop] = {
    None: "cut",
    "pause_turn": "paused",
    "max_tokens": "length",
    "model_context_window_exceeded": "window",
    "refusal": "refused",
}
#: After these endings the last call may be incomplete, so none of the reply's calls is run.
BROKEN: frozenset[Stop] = frozenset({"length", "window", "refused"})

#: How many times in a row the model is asked again after a reply that ended early.
CUT_SHORT = 3

#: The default limit of a reply in tokens, and the highest limit that the client accepts without streaming.
MAX_TOKENS = 8_192
MOST_WHOLE = 21_333

#: The most characters of a call's id; providers' ids have about 30.
LONGEST_ID = 256

#: The beta header with which the provider drops thinking whose prefix was edited, instead of refusing the request.
BINDING = "thinking-binding-controls-2026-08-01"
_DROP = {"prefix_mismatch_behavior": "drop_block"}
#: The arguments that come from the session.
_PROMPT = ("messages", "system", "tools")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded reply: why it ended, the calls to run, and its text.

    `goes_on`: ask the model again once the results of `calls` are recorded.
    """

    stop: Stop
    calls: tuple[dict[str, Any], ...] = ()
    text: str = ""
    goes_on: bool = False


#: The arguments besides the prompt that are read here, with their types.
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
    If the model binds thinking to its prefix, the provider is asked to drop thinking that an edit unbound.
    `between_tools` has no such option: if some thinking is `unbound`, this call uses adaptive thinking instead. With
    `final` the model may call no tool. Raises: BadInput if `more` has an argument that comes from the session.
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
    """Raises: BadInput if an argument besides the prompt has the wrong type."""
    for name, (kind, expected) in _KINDS.items():
        if more.get(name) and not isinstance(more[name], kind):  # the client's NOT_GIVEN is falsy
            raise BadInput(f"{name} is {str(more[name])[:40]!r}", hint=f"pass {expected}, as in the Messages API")


def plain(value: object) -> Mapping[str, Any]:
    """A message or block of the client as the dictionary that came over the wire; a dictionary is returned unchanged.

    Raises: BadInput for anything else.
    """
    if isinstance(value, Mapping):
        return value
    to_dict = getattr(value, "to_dict", None)
    if to_dict is None:
        raise BadInput(f"neither a message nor a block: {str(value)[:80]}", hint="pass the client's object")
    message = to_dict(warnings=False)  # it would warn about unknown block types, which it keeps
    assert isinstance(message, dict)
    return message


def reply(message: Mapping[str, Any]) -> Reply:
    """How a provider's message ended, its calls and its text.

    Raises: BadInput if it is not an assistant's message.
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
    """The message with a unique id for each call: missing ids are made up, and ids already in `ids` get a number.

    Some servers restart their numbering with each reply, others use one id for every call.
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
    """What is wrong with a call's arguments, for the model; empty if they are an object."""
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
    if "betas" in call_arguments:  # only the beta client has this argument
        call_arguments["betas"] = list(dict.fromkeys([*call_arguments["betas"], BINDING]))
        return
    headers = {name.lower(): value for name, value in (call_arguments.get("extra_headers") or {}).items()}
    betas = [*filter(None, map(str.strip, headers.get("anthropic-beta", "").split(",")))]
    headers["anthropic-beta"] = ",".join(dict.fromkeys([*betas, BINDING]))
    call_arguments["extra_headers"] = headers
