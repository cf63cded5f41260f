"""The tools of coding agents, and which of them are equal: the same act, with arguments of the same meaning.

A call becomes another agent's only if nothing is lost: if an argument has no equal there, the call stays unchanged.
Arguments that only explain a call or limit its time do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import storable
from ctxvc.core.prompt import equal_call
from ctxvc.core.prompt.outline import Piece

Act = Literal["run", "read", "write", "edit", "search", "find", "list", "plan", "fetch"]

#: What must be known of a call for each act.
_NEEDED: Mapping[Act, tuple[str, ...]] = {
    "run": ("command",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("path", "old", "new"),
    "search": ("pattern",),
    "find": ("pattern",),
    "list": ("path",),
    "plan": ("items",),
    "fetch": ("url",),
}
#: Arguments of any tool that say nothing about what is done.
_INCIDENTAL = frozenset(
    {"description", "timeout", "justification", "instruction", "summary", "security_risk", "yield_time_ms"}
    | {"max_output_tokens", "initial_wait", "delay_ms", "explanation"}
)
#: Statuses of a plan's items: most agents' name → OpenHands' name.
_STATUS = {"pending": "todo", "in_progress": "in_progress", "completed": "done"}


class Call(NamedTuple):
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]


class _Tool(NamedTuple):
    """A tool: its arguments by meaning, and its constant ones.

    `lines` is a range as a list, `last` the number of its last line, `seconds` a time limit, `plan.KEY` a list of items
    with the text under this key, and `edits.OLD.NEW` a list of replacements.
    """

    act: Act
    name: str
    arguments: Mapping[str, str]
    fixed: Mapping[str, Any] = {}


_RISK = {"security_risk": "LOW"}
_LINES = {"first": "offset", "count": "limit"}

#: Agent → its tools. The first of several with one act is the one written.
_TOOLS: Mapping[str, tuple[_Tool, ...]] = {
    "claude-code": (
        _Tool("run", "Bash", {"command": "command", "milliseconds": "timeout", "why": "description"}),
        _Tool("read", "Read", {"path": "file_path", **_LINES}),
        _Tool("write", "Write", {"path": "file_path", "content": "content"}),
        _Tool("edit", "Edit", {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"}),
        _Tool("search", "Grep", {"pattern": "pattern", "path": "path", "glob": "glob"}),
        _Tool("find", "Glob", {"pattern": "pattern", "path": "path"}),
        _Tool("list", "LS", {"path": "path"}),
        _Tool("plan", "TodoWrite", {"plan.content": "todos"}),
        _Tool("fetch", "WebFetch", {"url": "url", "why": "prompt"}),
    ),
    "codex": (
        _Tool("run", "exec_command", {"command": "cmd", "folder": "workdir"}),
        _Tool("run", "shell_command", {"command": "command", "folder": "workdir", "milliseconds": "timeout_ms"}),
        _Tool("plan", "update_plan", {"plan.step": "plan"}),
    ),
    "opencode": (
        _Tool("run", "bash", {"command": "command", "milliseconds": "timeout", "folder": "workdir"}),
        _Tool("run", "bash", {"command": "command", "why": "description"}),
        _Tool("read", "read", {"path": "filePath", **_LINES}),
        _Tool("write", "write", {"path": "filePath", "content": "content"}),
        _Tool("edit", "edit", {"path": "filePath", "old": "oldString", "new": "newString", "all": "replaceAll"}),
        _Tool("search", "grep", {"pattern": "pattern", "path": "path", "glob": "include"}),
        _Tool("find", "glob", {"pattern": "pattern", "path": "path"}),
        _Tool("list", "list", {"path": "path"}),
        _Tool("plan", "todowrite", {"plan.content": "todos"}),
        _Tool("fetch", "webfetch", {"url": "url"}, {"format": "markdown"}),
    ),
    "pi": (
        _Tool("run", "bash", {"command": "command", "seconds": "timeout"}),
        _Tool("read", "read", {"path": "path", **_LINES}),
        _Tool("write", "write", {"path": "path", "content": "content"}),
        _Tool("edit", "edit", {"path": "path", "edits.oldText.newText": "edits"}),
        _Tool("edit", "edit", {"path": "path", "old": "oldText", "new": "newText"}),
        _Tool("search", "grep", {"pattern": "pattern", "path": "path", "glob": "glob"}),
        _Tool("find", "find", {"pattern": "pattern", "path": "path"}),
        _Tool("list", "ls", {"path": "path"}),
    ),
    "gemini": (
        _Tool("run", "run_shell_command", {"command": "command", "why": "description", "folder": "dir_path"}),
        _Tool("read", "read_file", {"path": "file_path", "first": "start_line", "last": "end_line"}),
        _Tool("read", "read_file", {"path": "absolute_path", **_LINES}),
        _Tool("write", "write_file", {"path": "file_path", "content": "content"}),
        _Tool(
            "edit",
            "replace",
            {"path": "file_path", "old": "old_string", "new": "new_string", "all": "allow_multiple"},
            {"instruction": ""},
        ),
        _Tool("search", "grep_search", {"pattern": "pattern", "path": "dir_path", "glob": "include_pattern"}),
        _Tool("find", "glob", {"pattern": "pattern", "path": "dir_path"}),
        _Tool("list", "list_directory", {"path": "dir_path"}),
        _Tool("plan", "write_todos", {"plan.description": "todos"}),
    ),
    "qwen": (
        _Tool(
            "run",
            "run_shell_command",
            {"command": "command", "milliseconds": "timeout", "why": "description", "folder": "directory"},
            {"is_background": False},
        ),
        _Tool("read", "read_file", {"path": "file_path", **_LINES}),
        _Tool("write", "write_file", {"path": "file_path", "content": "content"}),
        _Tool("edit", "edit", {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"}),
        _Tool("search", "grep_search", {"pattern": "pattern", "path": "path", "glob": "glob"}),
        _Tool("find", "glob", {"pattern": "pattern", "path": "path"}),
        _Tool("list", "list_directory", {"path": "path"}),
        _Tool("plan", "todo_write", {"plan.content": "todos"}),
        _Tool("fetch", "web_fetch", {"url": "url", "why": "prompt"}),
    ),
    "copilot": (
        _Tool("run", "bash", {"command": "command", "why": "description"}),
        _Tool("read", "view", {"path": "path", "lines": "view_range"}),
        _Tool("write", "create", {"path": "path", "content": "file_text"}),
        _Tool("edit", "edit", {"path": "path", "old": "old_str", "new": "new_str"}),
        _Tool("search", "grep", {"pattern": "pattern", "path": "paths", "glob": "glob"}),
        _Tool("search", "grep", {"pattern": "pattern", "path": "path", "glob": "glob"}),
        _Tool("find", "glob", {"pattern": "pattern", "path": "paths"}),
        _Tool("fetch", "web_fetch", {"url": "url"}),
    ),
    "openhands": (
        _Tool("run", "terminal", {"command": "command", "seconds": "timeout", "why": "summary"}, _RISK),
        _Tool("run", "execute_bash", {"command": "command", "seconds": "timeout", "why": "summary"}, _RISK),
        _Tool("read", "file_editor", {"path": "path", "lines": "view_range"}, {"command": "view", **_RISK}),
        _Tool("write", "file_editor", {"path": "path", "content": "file_text"}, {"command": "create", **_RISK}),
        _Tool(
            "edit",
            "file_editor",
            {"path": "path", "old": "old_str", "new": "new_str"},
            {"command": "str_replace", **_RISK},
        ),
        _Tool("plan", "task_tracker", {"plan.title": "task_list"}, {"command": "plan", **_RISK}),
    ),
    "mini-swe-agent": (_Tool("run", "bash", {"command": "command"}),),
    "run": (
        _Tool("run", "bash", {"command": "command", "seconds": "timeout"}),
        _Tool("read", "read_file", {"path": "path", "first": "first", "count": "lines"}),
        _Tool("write", "write_file", {"path": "path", "content": "content"}),
        _Tool("edit", "edit_file", {"path": "path", "old": "old", "new": "new", "all": "all"}),
        _Tool("search", "search_files", {"pattern": "pattern", "path": "path", "glob": "glob"}),
        _Tool("find", "list_files", {"pattern": "pattern", "path": "path"}),
        _Tool("list", "list_files", {"path": "path"}),
    ),
}


def of_agent(piece: Piece, agent: str) -> Piece:
    """The piece with the equal call of an agent's own tool; unchanged if it is no call or there is no equal tool.

    A call that was changed before, according to our metadata, is changed from its original.
    """
    call = call_of(piece)
    if call is None:
        return piece
    own = equal(call, agent) or call
    if own == (piece.tool, wire.parsed(piece.body, dict)):
        return piece
    return msgspec.structs.replace(piece, tool=own.tool, body=wire.compact(own.arguments), extra={})


def shown_as_of_agent(row: Row, body: bytes, agent: str) -> Row:
    """The row with a note of the equal call of an agent's own tool, which prompts then show.

    Unchanged if it is no call or there is no equal tool.
    """
    arguments = wire.parsed(body, dict) if row.kind == "tool_use" and row.ext == "json" else None
    if arguments is None:
        return row
    metadata = wire.own_metadata(row.extra)
    own = equal(original(metadata) or Call(row.tool, arguments), agent)
    noted = equal_call.note(arguments, *own) if own else None
    if noted is None or storable(noted) != noted:
        return row
    return msgspec.structs.replace(row, extra={**row.extra, "ctxvc": {**metadata, "as": noted}})


def call_of(piece: Piece) -> Call | None:
    """The call of a piece as its first agent made it; None unless its arguments are an object."""
    arguments = wire.parsed(piece.body, dict) if piece.kind == "tool_use" and piece.ext == "json" else None
    if arguments is None:
        return None
    return original(wire.own_metadata(piece.extra)) or Call(piece.tool, arguments)


def original(metadata: Mapping[str, Any]) -> Call | None:
    """What a call was before it became another agent's, from our metadata; None if that has no record of it."""
    match metadata.get("original"):
        case {"tool": str(tool), "arguments": dict(arguments)}:
            return Call(tool, arguments)
    return None


def equal(call: Call, agent: str) -> Call | None:
    """The equal call of an agent's own tool; None if there is none, or if the call is already the agent's."""
    own = _TOOLS.get(agent, ())
    if any(_meaning(tool, call) is not None for tool in own):
        return None
    for tools in _TOOLS.values():
        for tool in tools:
            if (meaning := _meaning(tool, call)) is None:
                continue
            for candidate in own:
                if candidate.act == tool.act and (arguments := _arguments(candidate, meaning)) is not None:
                    return Call(candidate.name, arguments)
    return None


def _meaning(tool: _Tool, call: Call) -> dict[str, Any] | None:
    """A call's meaning if it is one of this tool, else None."""
    if call.tool != tool.name or any(call.arguments.get(name, value) != value for name, value in _telling(tool)):
        return None
    names = {argument: field for field, argument in tool.arguments.items()}
    meaning: dict[str, Any] = {}
    for name, value in call.arguments.items():
        field = names.get(name)
        if field is None:
            if not (name in tool.fixed or name in _INCIDENTAL or value in (None, False, "", [], {})):
                return None
        elif value is not None:
            if (fields := _fields(field, value)) is None:
                return None
            meaning.update(fields)
    if "last" in meaning:
        meaning["count"] = meaning.pop("last") - meaning.setdefault("first", 1) + 1
    return meaning if all(isinstance(meaning.get(name), str | list) for name in _NEEDED[tool.act]) else None


def _telling(tool: _Tool) -> Iterator[tuple[str, Any]]:
    """The fixed arguments that distinguish the acts of one tool."""
    return ((name, value) for name, value in tool.fixed.items() if name == "command")


def _fields(field: str, value: Any) -> dict[str, Any] | None:
    """An argument's meaning; None if it has another form."""
    kind, *keys = field.split(".")
    match kind, value:
        case "lines", [int(first), int(last)] if last > 0:
            return {"first": first, "last": last}
        case "lines", [int(first), _]:
            return {"first": first}
        case "seconds", int() | float():
            return {"milliseconds": value * 1000}
        case "plan", list():
            return None if (items := [_item(item, keys[0]) for item in value]) and None in items else {"items": items}
        case "edits", [{**edit}] if set(edit) == set(keys):
            return {"old": edit[keys[0]], "new": edit[keys[1]]}
        case (("first" | "count" | "last" | "milliseconds"), int()):
            return {field: value}
        case "all", bool():
            return {"all": True} if value else {}
        case (("command" | "path" | "content" | "old" | "new" | "pattern" | "glob" | "folder" | "url" | "why"), str()):
            return {field: value}
    return None


def _item(item: Any, key: str) -> tuple[str, str] | None:
    """Text and status of a plan's item."""
    match item:
        case {"status": str(status)} if isinstance(item.get(key), str):
            return item[key], {theirs: ours for ours, theirs in _STATUS.items()}.get(status, status)
    return None


def _arguments(tool: _Tool, meaning: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments that express this meaning with a tool; None if it cannot express all of it."""
    unsaid = {name: value for name, value in meaning.items() if name not in ("milliseconds", "why")}
    arguments: dict[str, Any] = {}
    for field, name in tool.arguments.items():
        kind, *keys = field.split(".")
        first, count = meaning.get("first", 1), meaning.get("count")
        match kind:
            case "seconds" if "milliseconds" in meaning:
                seconds = meaning["milliseconds"] / 1000
                arguments[name] = int(seconds) if seconds == int(seconds) else seconds
            case "lines" if "first" in unsaid or "count" in unsaid:
                arguments[name] = [first, first + count - 1 if count else -1]
                unsaid = wire.without(unsaid, "first", "count")
            case "last" if count:
                arguments[name] = first + count - 1
                unsaid = wire.without(unsaid, "count")
            case "plan" if "items" in unsaid:
                arguments[name] = [_written(keys[0], *item) for item in unsaid.pop("items")]
            case "edits" if {"old", "new"} <= unsaid.keys():
                arguments[name] = [dict(zip(keys, (unsaid.pop("old"), unsaid.pop("new")), strict=True))]
            case _ if field in meaning:
                arguments[name] = meaning[field]
                unsaid.pop(field, None)
    return None if unsaid else {**tool.fixed, **arguments}


def _written(key: str, text: str, status: str) -> dict[str, Any]:
    """An item of a plan with its text under `key`, and the other fields that an agent requires."""
    match key:
        case "title":
            return {"title": text, "notes": "", "status": _STATUS.get(status, "todo")}
        case "content":
            return {"content": text, "status": status, "activeForm": text, "priority": "medium"}
    return {key: text, "status": status}
