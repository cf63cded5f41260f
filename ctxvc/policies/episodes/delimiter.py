"""The `delimiter` tool, with which a model marks where an episode of its work begins and ends (CWL, section 4.2).

A call is judged by the episodes that the calls before it made, and by nothing else: a call that was accepted is an
episode's beginning or end, and `graph.declared` finds the same episodes again in the rows of a scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ctxvc.core import display as text
from ctxvc.core.prompt import stub

TOOL = "delimiter"

#: What an episode is for: to find something out, or to change something.
Type = Literal["expl", "act"]

#: The definition of the tool, in the form of the Messages API.
DEFINITION: Mapping[str, Any] = {
    "name": TOOL,
    "description": (
        "Marks where an episode of your work begins and ends, so that old work can leave the context in good "
        "order. Has no other effect. One episode is active at a time; one reply may contain an end and the next "
        "start."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["start", "end"]},
            "name": {"type": "string", "description": "start: a name that no episode had before"},
            "type": {
                "type": "string",
                "enum": ["expl", "act"],
                "description": "start: expl to read and search, act to write and run",
            },
            "dependencies": {
                "type": "array",
                "items": {"type": "string"},
                "description": "start of an act: the names of the ended expl episodes that it builds on",
            },
            "description": {
                "type": "string",
                "description": (
                    f"end of an expl: what was learned; its first {stub.INDEX} characters stay visible when the "
                    "episode leaves"
                ),
            },
        },
        "required": ["action"],
    },
}

_TYPES: Mapping[str, Type] = {"expl": "expl", "act": "act"}

#: Characters of a name, and names of a list, that an answer shows at most.
_NAME = 40
_LISTED = 4


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """An episode as the calls so far declare it."""

    name: str
    type: Type
    dependencies: tuple[str, ...] = ()
    description: str = ""
    closed: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call: a receipt of one line with the episode as it is then, or what is wrong and how to mend it,
    and no episode."""

    text: str
    episode: Declared | None = None

    @property
    def error(self) -> bool:
        return self.episode is None


def judge(arguments: Mapping[str, object], episodes: dict[str, Declared]) -> Verdict:
    """The verdict on one call."""
    newest = next(reversed(episodes.values()), None)
    active = newest if newest and not newest.closed else None
    match arguments.get("action"):
        case "start":
            return _start(arguments, active, episodes)
        case "end":
            return _end(arguments, active)
    return Verdict(text='action must be "start" or "end"')


def _start(arguments: Mapping[str, object], active: Declared | None, episodes: dict[str, Declared]) -> Verdict:
    name = _stripped(arguments.get("name"))
    kind: Type | None = _TYPES.get(_stripped(arguments.get("type")))
    if active:
        return Verdict(text=f"{_shown_name(active.name)} is still active; end it first: {_ending(active)}")
    if not name:
        return Verdict(text='a start needs a name, as in {"action": "start", "name": "find-parser", "type": "expl"}')
    if kind is None:
        return Verdict(text='a start needs a type: "expl" to read and search, "act" to write and run')
    if name in episodes:
        return Verdict(text=f"the name {_shown_name(name)} was used before in this scope; choose another")
    if kind == "expl":
        ignored = "; an expl has no dependencies: the given ones are ignored" if arguments.get("dependencies") else ""
        return Verdict(text=f"started expl {_shown_name(name)}{ignored}", episode=Declared(name=name, type="expl"))
    dependencies = _names(arguments.get("dependencies"))
    refusal = _refusal(name, dependencies, episodes)
    if refusal or dependencies is None:
        return Verdict(text=refusal)
    return Verdict(
        text=f"started act {_shown_name(name)}, which depends on {_listed(dependencies)}",
        episode=Declared(name=name, type="act", dependencies=dependencies),
    )


def _refusal(name: str, dependencies: tuple[str, ...] | None, episodes: Mapping[str, Declared]) -> str:
    """The fault in the dependencies of an act; empty if there is none.

    None of those that are known is active any more: while one is, nothing can start.
    """
    if dependencies is None:
        return 'dependencies must be a list of names, as in ["find-parser"]'
    if not dependencies:
        return f"an act needs dependencies: the names of the ended expl episodes that it builds on; {_choice(episodes)}"
    for dependency in dependencies:
        if dependency == name:
            return f"{_shown_name(name)} cannot depend on itself; {_choice(episodes)}"
        if dependency not in episodes:
            return f"there is no episode {_shown_name(dependency)} in this scope; {_choice(episodes)}"
        if episodes[dependency].type != "expl":
            return f"{_shown_name(dependency)} is an act, and an act depends on expl episodes only; {_choice(episodes)}"
    return ""


def _end(arguments: Mapping[str, object], active: Declared | None) -> Verdict:
    if active is None:
        return Verdict(text='no episode is active; start one with {"action": "start", "name": ..., "type": ...}')
    value = arguments.get("description")
    description = _stripped(value)
    if active.type == "act" and (description or not (value is None or isinstance(value, str))):
        return Verdict(
            text=f'the end of an act takes no description; end {_shown_name(active.name)} with {{"action": "end"}}'
        )
    if active.type == "expl" and not description:
        return Verdict(
            text=f"the end of {_shown_name(active.name)} needs a description of what was learned: {_ending(active)}"
        )
    ended = msgspec.structs.replace(active, description=description, closed=True)
    return Verdict(text=f"ended {active.type} {_shown_name(active.name)}", episode=ended)


def _ending(episode: Declared) -> str:
    """The call that ends an episode."""
    if episode.type == "act":
        return '{"action": "end"}'
    return '{"action": "end", "description": "what was learned"}'


def _choice(episodes: Mapping[str, Declared]) -> str:
    """The episodes that an act can depend on, in words."""
    closed = [episode.name for episode in episodes.values() if episode.type == "expl"]
    if not closed:
        return "there is none yet: start and end an expl first"
    return f"there {'is' if len(closed) == 1 else 'are'} {_listed(closed[::-1])}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(_shown_name, names[:_LISTED])) + more


def _shown_name(name: str) -> str:
    """A name as an answer shows it: what a model wrote cannot break the line."""
    return text.one_line(name, _NAME) or repr(name)


def _stripped(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _names(value: object) -> tuple[str, ...] | None:
    """The names of a list, each once, without blank ones; None if it is no list of names."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(dict.fromkeys(name for item in value if (name := _stripped(item))))
