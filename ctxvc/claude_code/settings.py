"""Claude Code's settings with and without our hooks, as values and as the text of a file; everything else stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.claude_code.event import OURS, RECORDED
from ctxvc.errors import BadInput

Settings = dict[str, Any]

#: The unshared settings of a project, which `install claude-code --project` changes.
LOCAL = Path(".claude", "settings.local.json")

#: Seconds after which the host stops waiting. SessionEnd has 1.5 in all by default.
_TIMEOUT = 10
#: Events that take a matcher → the matcher.
_MATCHED = {
    "PreToolUse": OURS,
    **dict.fromkeys(("SessionStart", "PostToolUse", "PostToolUseFailure", "StopFailure", "SessionEnd"), "*"),
    **dict.fromkeys(("SubagentStart", "SubagentStop", "PreCompact", "PostCompact"), "*"),
}
#: A command of ours, wherever the program is.
_OURS = re.compile(r"""(?:^|[/\s'"])ctxvc['"]?\s+hook\s+\w+\s*$""")


def recorded_here(folder: Path) -> bool:
    """Whether hooks may make a store for `folder`: it is in a git project, or our hooks were installed just for it."""
    if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return True
    try:
        values = json.loads((folder / LOCAL).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and bool(commands(values))


def installed(settings: Settings, program: str) -> Settings:
    """`settings` in which each recorded event runs `program` (quoted for a shell), instead of our earlier hooks.

    A status line is added if there is none. Raises: BadInput if the hooks do not have the host's form.
    """
    clean = removed(settings)
    hooks = {event: list(groups) for event, groups in clean.get("hooks", {}).items()}
    for event in RECORDED:
        # If the program is gone, the host must not fail; `doctor` reports it.
        guarded = f"command -v {program} >/dev/null || exit 0; {program} hook {event}"
        command = {"type": "command", "command": guarded, "timeout": _TIMEOUT}
        group = {"matcher": _MATCHED[event], "hooks": [command]} if event in _MATCHED else {"hooks": [command]}
        hooks[event] = [*hooks.get(event, []), group]
    result = {**clean, "hooks": hooks}
    result.setdefault("statusLine", {"type": "command", "command": f"{program} hook statusline"})
    return result


def removed(settings: Settings) -> Settings:
    """`settings` without our hooks and our status line. Raises: BadInput as `installed`."""
    clean = dict(settings)
    if "hooks" in settings:
        events = _checked(settings["hooks"], dict, "hooks")
        remaining = {event: _without(groups, event) for event, groups in events.items()}
        # Lists that were empty before are not ours to remove.
        clean["hooks"] = {event: groups for event, groups in remaining.items() if groups or not events[event]}
        if not clean["hooks"] and events:
            del clean["hooks"]
    match settings.get("statusLine"):
        case {"command": str(command)} if _OURS.search(command):
            del clean["statusLine"]
    return clean


def commands(settings: Settings) -> list[str]:
    """Our hooks' commands in `settings`, which may have any form."""
    match settings.get("hooks"):
        case {**events}:
            groups = chain.from_iterable(groups for groups in events.values() if isinstance(groups, list))
        case _:
            return []
    handlers = (group.get("hooks") for group in groups if isinstance(group, dict))
    return [
        handler["command"]
        for handler in chain.from_iterable(value for value in handlers if isinstance(value, list))
        if _ours(handler)
    ]


def _without(groups: Any, event: str) -> list[Any]:
    result = []
    for group in _checked(groups, list, f"hooks.{event}"):
        handlers = group.get("hooks") if isinstance(group, Mapping) else None
        if not isinstance(handlers, list) or not any(map(_ours, handlers)):
            result.append(group)
        elif foreign := [handler for handler in handlers if not _ours(handler)]:
            result.append({**group, "hooks": foreign})
    return result


def _ours(handler: Any) -> bool:
    match handler:
        case {"command": str(command)}:
            return _OURS.search(command) is not None
    return False


def _checked(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise BadInput(
            f"{where} is not {'an object' if kind is dict else 'a list'}",
            hint="fix the settings by hand; nothing was changed",
        )
    return value


_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DECODER = json.JSONDecoder()

#: A member's name, or the place of an item.
_Key = str | int


class _Part(NamedTuple):
    """The position of an object's member, from its name on, or of a list's item."""

    key: _Key
    start: int
    value: int
    end: int


class _Change(NamedTuple):
    """The change of an object or list: new values of the retained parts, and (name, value) of the appended ones."""

    retained: dict[_Key, Any]
    added: list[tuple[str | None, Any]]  # no name in a list


def edited(text: str, target: Mapping[str, Any]) -> str:
    """The object in `text` with exactly the members of `target`. Equal values keep their text, at any depth.

    New members come last. Raises: ValueError if `text` is not an object, or a changed object has a name twice.
    """
    current = json.loads(text.removeprefix("\ufeff"))
    start = _skip(text, 0)
    _, end = _DECODER.raw_decode(text, start)
    return text[:start] + _Edit(text).value(start, current, target, "\n") + text[end:]


class _Edit:
    """One edit of `text`; new values are written in its style."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._step = _indent(text)

    def value(self, at: int, current: Any, target: Any, lead: str) -> str:
        """The text of `target`, which replaces `current` at `at`, as the value of a part after `lead`.

        Raises: ValueError.
        """
        _, end = _DECODER.raw_decode(self._text, at)
        if target == current:
            return self._text[at:end]
        change = _change(current, target)
        if not change.retained:
            return self._printed(target, lead)
        parts = list(_parts(self._text, at))
        inner = self._lead(parts[0].start)
        pieces: list[str] = []
        before = at
        for part in parts:
            if part.key in change.retained:
                # The first retained part keeps the text before the first part of all; the others the text before them.
                pieces.append(self._text[before : part.start] if pieces else self._text[at : parts[0].start])
                pieces.append(self._text[part.start : part.value])
                pieces.append(self.value(part.value, current[part.key], change.retained[part.key], inner))
            before = part.end
        for name, value in change.added:
            label = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
            pieces.append(f",{inner}{label}{self._printed(value, inner)}")
        return "".join([*pieces, self._text[parts[-1].end : end]])

    def _printed(self, value: Any, lead: str) -> str:
        """`value` as JSON in a part after `lead`."""
        step = self._step if "\n" in lead else None
        margin = lead.rpartition("\n")[2]
        text = json.dumps(value, indent=step, ensure_ascii=False)
        text = text.replace("\n", f"\n{margin}") if step else text
        return text.replace("\n", "\r\n") if "\r\n" in self._text else text

    def _lead(self, start: int) -> str:
        """The text before a part: a line's end and its indentation, or a space."""
        before, newline, margin = self._text[:start].rpartition("\n")
        if not newline or margin.strip():
            return " "
        return f"\r\n{margin}" if before.endswith("\r") else f"\n{margin}"


def _change(current: Any, target: Any) -> _Change:
    """The change from `current` to `target`; nothing is retained if they are of different kinds."""
    if isinstance(current, dict) and isinstance(target, Mapping):
        retained: dict[_Key, Any] = {name: target[name] for name in current if name in target}
        return _Change(retained, [(name, value) for name, value in target.items() if name not in current])
    if isinstance(current, list) and isinstance(target, list):
        if len(current) == len(target):
            return _Change(dict(enumerate(target)), [])
        stay: dict[_Key, Any] = {}
        for place, item in enumerate(current):
            if len(stay) < len(target) and item == target[len(stay)]:
                stay[place] = item
        return _Change(stay, [(None, item) for item in target[len(stay) :]])
    return _Change({}, [])


def _parts(text: str, at: int) -> Iterator[_Part]:
    """The members of the object, or the items of the list, that begins at `at`. Raises: ValueError."""
    is_object = text[at] == "{"
    names: set[str] = set()
    place = 0
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        start = at
        key: _Key = place
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            if key in names:
                raise ValueError(f"{key!r} occurs in it twice")
            names.add(str(key))
            at = _skip(text, _skip(text, at) + 1)  # after the colon
        _, end = _DECODER.raw_decode(text, at)
        yield _Part(key, start, at, end)
        place += 1
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _indent(text: str) -> str | None:
    """The indentation of the first member; None if everything is on one line."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else ("  " if text.strip("\ufeff \t\r\n") == "{}" else None)
