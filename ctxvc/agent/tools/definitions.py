"""The context tools as a model sees them: names, descriptions and parameters.

A tool is one type: its docstring is the description, its fields are the schema, and calls are parsed by it. A sentence
about another tool appears only where that tool is offered too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ctxvc.core.policy import Terms
from ctxvc.errors import BadInput
from ctxvc.policies.episodes import delimiter

#: What stands before the name of a context tool where the agent has a tool of that name itself.
PREFIX = "context_"

_IDS = "as in B3, B5-B9, G2: results end with theirs"
_LABELS = "to find it by, such as decision"


def describe(description: str) -> msgspec.Meta:
    """The description of a field for a model."""
    return msgspec.Meta(description=description)


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a call of a context tool."""


class Scope(Arguments, frozen=True, kw_only=True):
    """Open a scope, a branch of this conversation, for a subtask, and move there when this step ends. It has pinned
    blocks, the notes and the user's current message, not the other messages. Come back with goto."""

    name: Annotated[str, describe("letters, digits, '.', '_', '-'; as in plan/login")]
    note: Annotated[str, describe("why you leave: the task there")]
    revision: Annotated[str, describe("start from there, as in step:12")] = ""
    with_messages: Annotated[bool, describe("inherit all messages")] = False


class Goto(Arguments, frozen=True, kw_only=True):
    """Move to another scope, as you left it, when this step ends, with your note."""

    name: Annotated[str, describe("scope to go to, as in main")]
    note: Annotated[str, describe("what you bring back: results, findings")]


class PlainNote(Arguments, frozen=True, kw_only=True):
    """Note what must outlast its blocks: findings, decisions, exact names and numbers. Notes stay in the context when
    other blocks leave it."""

    text: str
    labels: Annotated[list[str], describe(_LABELS)] = []


class WriteNote(Arguments, frozen=True, kw_only=True):
    """Note what must outlast its blocks: findings, decisions, exact names and numbers. Notes stay in the context when
    other blocks leave it."""

    text: str
    fold: Annotated[bool, describe("also remove what led to it: all since the last note or user message")] = False
    labels: Annotated[list[str], describe(_LABELS)] = []
    supersedes: Annotated[str | list[str], describe("blocks it replaces; they leave")] = ""


#: What a note takes besides, where a person lets the model write the project's.
_Project = Annotated[bool, describe("keep it for all later sessions of this project instead, not in the context")]
_Name = Annotated[str, describe("with project: it replaces the project's note of this name")]


class PlainNoteOrProject(PlainNote, frozen=True, kw_only=True):
    """Note what must outlast its blocks: findings, decisions, exact names and numbers. Notes stay in the context when
    other blocks leave it."""

    project: _Project = False
    name: _Name = ""


class WriteNoteOrProject(WriteNote, frozen=True, kw_only=True):
    """Note what must outlast its blocks: findings, decisions, exact names and numbers. Notes stay in the context when
    other blocks leave it."""

    project: _Project = False
    name: _Name = ""


class _PlainNoteOf1(Arguments, frozen=True, kw_only=True):
    """The tool of sessions begun before notes had labels."""

    text: str


class _WriteNoteOf1(Arguments, frozen=True, kw_only=True):
    """The tool of sessions begun before notes had labels."""

    text: str
    fold: bool = False


class _NotesOf1(Arguments, frozen=True, kw_only=True):
    """The tool of sessions begun before notes had labels."""

    scope: str = ""


class Scopes(Arguments, frozen=True, kw_only=True):
    """List the scopes of this conversation."""


class Notes(Arguments, frozen=True, kw_only=True):
    """List the notes of a scope, newest last."""

    scope: Annotated[str, describe("default: the current one")] = ""
    label: Annotated[str, describe("only those with this label")] = ""


class Archive(Arguments, frozen=True, kw_only=True):
    """Take blocks out of the context to free tokens. A one-line stub stays in their place; several become one group."""

    blocks: Annotated[str | list[str], describe(_IDS)]
    index: Annotated[str, describe("their content, in words to find them by")] = ""


class RecoverPart(Arguments, frozen=True, kw_only=True):
    """Read a block, or part of it, that is not in the context; for a group, list its blocks. A large block comes in
    parts: the first line says how to get the next one."""

    block: Annotated[str, describe("its address, as in B17, G3 or main:B17")]
    lines: Annotated[str, describe("only these lines, as in 41:80")] = ""
    chars: Annotated[str, describe("only these characters, as in 1:4000")] = ""
    grep: Annotated[str, describe("only the lines that match this regular expression")] = ""


class Recover(RecoverPart, frozen=True, kw_only=True):
    """Read a block, or part of it, that is not in the context; for a group, list its blocks. A large block comes in
    parts: the first line says how to get the next one."""

    path: Annotated[str, describe("in JSON, only this value, as in items[0].name")] = ""
    file: Annotated[bool, describe("into a read-only file instead, for a shell")] = False


class Restore(Arguments, frozen=True, kw_only=True):
    """Put archived blocks back into the context, each in its place, if there is room."""

    blocks: Annotated[str | list[str], describe(_IDS)]


class Delete(Arguments, frozen=True, kw_only=True):
    """Take blocks out of the context for good: you cannot get them back."""

    blocks: Annotated[str | list[str], describe(_IDS)]
    reason: Annotated[str, describe("why they are no longer needed")]


class Delimiter(Arguments, frozen=True, kw_only=True):
    """As `delimiter.DEFINITION` describes it."""

    action: str
    name: str = ""
    type: str = ""
    dependencies: list[str] = []
    description: str = ""


class Search(Arguments, frozen=True, kw_only=True):
    """Search this whole conversation, every scope, in the context or not. Returns lines with their block's address, for
    recover."""

    pattern: Annotated[str, describe("regular expression, matched line by line")]
    ignore_case: bool = False


class Board(Arguments, frozen=True, kw_only=True):
    """Show how full the context is, your notes, and which results could best leave."""


#: Name → what a call gives. The order is that of the definitions.
TOOLS: Mapping[str, type[Arguments]] = {
    "scope": Scope,
    "goto": Goto,
    "note": WriteNote,
    "scopes": Scopes,
    "notes": Notes,
    "archive": Archive,
    "recover": Recover,
    "restore": Restore,
    "delete": Delete,
    "delimiter": Delimiter,
    "search": Search,
    "dashboard": Board,
}
#: The tools that take less where a note archives nothing.
_PLAIN: Mapping[str, type[Arguments]] = {"note": PlainNote}
#: Those that take less where the window is narrow; and, in the same form, in sessions that older versions began.
_NARROW: Mapping[str, type[Arguments]] = {"recover": RecoverPart}
#: The same note with what it takes besides.
_OR_PROJECT: Mapping[type[Arguments], type[Arguments]] = {WriteNote: WriteNoteOrProject, PlainNote: PlainNoteOrProject}
#: The tools of sessions begun by earlier versions.
_FORMER: Sequence[Mapping[str, type[Arguments]]] = (
    {"note": _WriteNoteOf1, "notes": _NotesOf1},
    {"note": _PlainNoteOf1},
)
#: What is said of a tool where another one is there: tool → that one → the sentence.
_BESIDE: Mapping[str, Mapping[str, str]] = {
    "archive": {"recover": "Nothing is lost: recover reads them.", "restore": "Restore puts them back."},
    "delete": {"archive": "Prefer archive."},
}

_Given = TypeVar("_Given", bound=Arguments)


def definitions(
    terms: Terms | None = None, *, own: Sequence[Mapping[str, Any]] = (), project_notes: bool = False
) -> list[dict[str, Any]]:
    """The tools of a session as the Messages API takes them: the agent's `own`, then the context tools.

    Those that `terms` name, all of them without terms; always in the same order. One whose name is taken by the agent
    is called `context_NAME`. With `project_notes`, `note` can keep a note for the project.
    Give the list to `Session.open`: it stays the same for the whole session.
    """
    taken = {str(tool.get("name", "")) for tool in own}
    context_kinds = kinds(terms, project_notes=project_notes)
    context_tools = [
        definition(_free(name, taken), kind, _beside(name, context_kinds), brief=terms is not None and terms.brief)
        for name, kind in context_kinds.items()
    ]
    return [*map(dict, own), *context_tools]


def kinds(terms: Terms | None = None, *, project_notes: bool = False) -> dict[str, type[Arguments]]:
    """The context tools that `terms` name, all of them without terms: name → what a call gives."""
    by_name = {name: kind for name, kind in TOOLS.items() if terms is None or name in terms.tools}
    if terms is not None:
        fewer = {**({} if terms.folds else _PLAIN), **(_NARROW if terms.brief else {})}
        by_name = {name: fewer.get(name, kind) for name, kind in by_name.items()}
    return {name: _OR_PROJECT.get(kind, kind) for name, kind in by_name.items()} if project_notes else by_name


def has_project_notes(tools: object) -> bool:
    """Whether the definitions of a session have a `note` that can keep a note for the project."""
    declared = tools if isinstance(tools, list | tuple) else ()
    forms = [_taken(definition("note", kind)) for kind in _OR_PROJECT.values()]
    return any(isinstance(tool, Mapping) and _taken(tool) in forms for tool in declared)


def ours(tools: object, names: Collection[str]) -> dict[str, str]:
    """Name in the definitions of a session → context tool, of those that are `names`.

    A tool of the agent's own may have the name of one of these: what it takes tells them apart.
    """
    declared = [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list | tuple) else []
    by_tool: dict[str, str] = {}  # the other way round: the agent's own come first, and the last one counts
    for tool in declared:
        own_name = str(tool.get("name", ""))
        name = own_name
        while name.startswith(PREFIX):
            name = name[len(PREFIX) :]
        forms = [form[name] for form in (TOOLS, _PLAIN, _NARROW, *_FORMER) if name in form and name in names]
        forms += [_OR_PROJECT[kind] for kind in forms if kind in _OR_PROJECT]
        if any(_taken(tool) == _taken(definition(name, kind)) for kind in forms):
            by_tool[name] = own_name
    return {own_name: name for name, own_name in by_tool.items()}


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = PREFIX + name
    return name


def _taken(tool: Mapping[str, Any]) -> object:
    """A tool's schema without its descriptions, which change from version to version."""
    return _bare(tool.get("input_schema"))


def _bare(schema: object) -> object:
    if isinstance(schema, dict):
        undescribed = {
            word: value for word, value in schema.items() if word != "description" or not isinstance(value, str)
        }
        return {word: _bare(value) for word, value in undescribed.items()}
    return [_bare(value) for value in schema] if isinstance(schema, list | tuple) else schema


def parsed(arguments: object, kind: type[_Given]) -> _Given:
    """The arguments of a call; null counts as absent. Raises: BadInput, with the arguments that the tool takes."""
    if isinstance(arguments, Mapping):
        arguments = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(arguments, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        wrong = "an argument is not text" if isinstance(error, UnicodeEncodeError) else str(error)
        raise BadInput(wrong, hint=f"it takes {_takes(kind)}") from error


def _takes(kind: type[Arguments]) -> str:
    fields = msgspec.structs.fields(kind)
    listed = [field.name if field.required else f"{field.name} (optional)" for field in fields]
    return ", ".join(listed) or "no arguments"


def _beside(name: str, tools: Collection[str]) -> str:
    return "".join(f" {hint}" for other, hint in _BESIDE.get(name, {}).items() if other in tools)


@cache
def _schema(kind: type[Arguments]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = components[kind.__name__]
    return schema


def definition(name: str, kind: type[Arguments], more: str = "", *, brief: bool = False) -> dict[str, Any]:
    """A tool as a model sees it: its docstring, with `more` behind it or in brief, and its schema."""
    if kind is Delimiter:
        schema = {**delimiter.DEFINITION["input_schema"], "additionalProperties": False}
        return {**delimiter.DEFINITION, "name": name, "input_schema": schema}
    schema = _schema(kind)
    properties = {
        field: {word: value for word, value in field_schema.items() if word != "default"}
        for field, field_schema in schema["properties"].items()
    }
    description = " ".join(schema["description"].split())
    return {
        "name": name,
        "description": f"{description.partition('. ')[0].rstrip('.')}." if brief else description + more,
        "input_schema": {
            "type": "object",
            "properties": properties,
            "required": schema["required"],
            "additionalProperties": False,
        },
    }
