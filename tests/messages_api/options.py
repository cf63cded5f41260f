"""What the API refuses in the fields of a request besides its messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.messages_api.content import ID, is_content, marker_problems, text_problems
from tests.messages_api.models import Model
from tests.messages_api.wire import BINDING_BETA, THINKING, Request, blocks

MOST_MARKS = 4
SAMPLING = ("temperature", "top_p", "top_k")
FIELDS = frozenset(
    {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
    | {"stop_sequences", "stream", "metadata", "service_tier", "speed", "container", "diagnostics", "inference_geo"}
    | {"user_profile_id", "workspace_id"}
)
#: A field → the betas of which one must be named for it; empty where it is not known which.
BETA_FIELDS: Mapping[str, tuple[str, ...]] = {
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "compaction": ("compact-2026-09-04",),
    "thread": ("message-threads-2026-08-12",),
    "mcp_servers": (),
    "fallbacks": (),
    "fallback_credit_token": (),
    "billing_policy": (),
}
THINKING_FIELDS = {
    "adaptive": frozenset({"type", "display", "block_binding"}),
    "enabled": frozenset({"type", "display", "budget_tokens", "block_binding"}),
    "disabled": frozenset({"type"}),
    "between_tools": frozenset({"type"}),
}
EFFORTS = ("low", "medium", "high", "xhigh", "max")


def problems(request: Request, model: Model, *, betas: Collection[str], strict: bool, counting: bool) -> Iterator[str]:
    """What is wrong with the request's fields, its messages aside."""
    yield from _fields(request, betas, strict=strict)
    if not counting:
        yield from _max_tokens(request, model)
    yield from _thinking(request, model, betas)
    yield from _effort(request, model)
    yield from _system(request.get("system"))
    yield from _tools(request.get("tools"))
    yield from _choice(request, model)
    yield from _marks(request)


def _fields(request: Request, betas: Collection[str], *, strict: bool) -> Iterator[str]:
    for name in request.keys() - FIELDS:
        if name in SAMPLING:
            if strict:
                yield f"{name}: sampling parameters are not taken"
        elif name not in BETA_FIELDS or (BETA_FIELDS[name] and not set(BETA_FIELDS[name]) & set(betas)):
            yield f"{name}: Extra inputs are not permitted"


def _max_tokens(request: Request, model: Model) -> Iterator[str]:
    most = request.get("max_tokens")
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        yield "max_tokens: Field required, a number from 0"
    elif most > model.max_output:
        yield (
            f"max_tokens: {most} > {model.max_output}, which is the maximum allowed number of output tokens for "
            f"{model.id}"
        )
    elif most == 0 and request.get("stream"):
        yield "max_tokens: 0 only fills the cache; there is nothing to stream"


def _thinking(request: Request, model: Model, betas: Collection[str]) -> Iterator[str]:
    thinking = request.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not isinstance(thinking, dict) or not isinstance(kind, str) or kind not in THINKING_FIELDS:
        yield "thinking.type: not a kind of thinking"
        return
    if kind not in model.thinking:
        yield f"thinking.type: '{kind}' is not supported on {model.id}"
    for name in thinking.keys() - THINKING_FIELDS[kind]:
        yield f"thinking.{kind}.{name}: Extra inputs are not permitted"
    if thinking.get("block_binding") is not None and "block_binding" in THINKING_FIELDS[kind]:
        yield from _binding(thinking["block_binding"], betas)
    if thinking.get("display") not in (None, "summarized", "omitted"):
        yield "thinking.display: Input should be 'summarized' or 'omitted'"
    if kind == "enabled":
        budget, most = thinking.get("budget_tokens"), request.get("max_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif isinstance(most, int) and budget >= most:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"


def _binding(binding: object, betas: Collection[str]) -> Iterator[str]:
    if BINDING_BETA not in betas:
        yield "block_binding: Extra inputs are not permitted"
    elif not isinstance(binding, dict) or binding.keys() - {"prefix_mismatch_behavior"}:
        yield "thinking.block_binding: Extra inputs are not permitted"
    elif binding.get("prefix_mismatch_behavior") not in (None, "error", "drop_block"):
        yield "thinking.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'"


def _effort(request: Request, model: Model) -> Iterator[str]:
    config = request.get("output_config")
    if config is None:
        return
    if not isinstance(config, dict):
        yield "output_config: is no object"
    elif config.get("effort") is not None:
        if config["effort"] not in EFFORTS:
            yield f"output_config.effort: not one of {', '.join(EFFORTS)}"
        if model.id == "claude-haiku-4-5":
            yield "output_config.effort: not supported on this model"


def _system(system: object) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not is_content(system):
        yield "system: neither a string nor a list of blocks"
        return
    for number, block in enumerate(blocks(system)):
        if block["type"] != "text":
            yield f"system.{number}: {block['type']!r}, and only text is taken"
            continue
        if extra := block.keys() - {"type", "text", "citations", "cache_control"}:
            yield f"system.{number}.{min(extra)}: Extra inputs are not permitted"
        for reason in text_problems(block, cited=True):
            yield f"system.{number}: {reason}"


def _tools(tools: object) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        yield "tools: no list of tools"
        return
    names: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.get("type") == "mcp_toolset":
            continue
        name = tool.get("name")
        if not (isinstance(name, str) and ID.fullmatch(name) and len(name) <= 128):
            yield f"tools.{number}.name: {name!r} does not match '^{ID.pattern}$', or is too long"
        elif name in names:
            yield "tools: Tool names must be unique."
        names.add(str(name))
        if tool.get("type", "custom") in ("custom", None) and not (
            isinstance(tool.get("input_schema"), dict) and tool["input_schema"].get("type") == "object"
        ):
            yield f"tools.{number}.input_schema: is no schema of an object"
    if tools and all(tool.get("defer_loading") for tool in tools):
        yield "tools: at least one tool must not be deferred"


def _choice(request: Request, model: Model) -> Iterator[str]:
    choice = request.get("tool_choice")
    if choice is None:
        return
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        yield "tool_choice.type: not one of auto, any, tool, none"
        return
    tools = request.get("tools")
    if not tools:
        yield "tool_choice: may only be given together with tools"
    if choice["type"] in ("any", "tool") and not model.forced_choice:
        yield f"tool_choice.type: '{choice['type']}' is not supported on {model.id}"
    if choice["type"] == "tool" and isinstance(tools, list):
        names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
        if choice.get("name") not in names:
            yield f"tool_choice.name: no tool is called {choice.get('name')!r}"


def _marks(request: Request) -> Iterator[str]:
    """At most four marks for the cache, none on thinking, those that live longer before the others."""
    marks: list[object] = []
    for path, block in _marked(request):
        if block.get("type") in THINKING:
            yield f"{path}.cache_control: Extra inputs are not permitted on {block['type']}"
        marks.append(block["cache_control"])
        if not path.startswith("messages"):
            for reason in marker_problems(block["cache_control"]):
                yield f"{path}.{reason}"
    if len(marks) > MOST_MARKS:
        yield f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
    lives = [mark.get("ttl", "5m") if isinstance(mark, dict) else "5m" for mark in marks]
    if any(later == "1h" and earlier == "5m" for earlier, later in pairwise(lives)):
        yield "cache_control.ttl: a ttl='1h' block must not come after a ttl='5m' block"


def _marked(request: Request) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each block with a mark, in the order of the prompt, with the path to it."""
    for name in ("tools", "system"):
        value = request.get(name)
        for number, block in enumerate(value if isinstance(value, list) else ()):
            if isinstance(block, dict) and block.get("cache_control") is not None:
                yield f"{name}.{number}", block
    messages = request.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for number, block in enumerate(content if isinstance(content, list) else ()):
            yield from _marks_in(f"messages.{at}.content.{number}", block)
    if request.get("cache_control") is not None:
        yield "request", request


def _marks_in(path: str, block: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(block, dict):
        return
    inner = block.get("content") if block.get("type") == "tool_result" else None
    for number, one in enumerate(inner if isinstance(inner, list) else ()):
        if isinstance(one, dict) and one.get("cache_control") is not None:
            yield f"{path}.content.{number}", one
    if block.get("cache_control") is not None:
        yield path, block
