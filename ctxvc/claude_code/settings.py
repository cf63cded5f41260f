"""Claude Code's settings with our hooks and without them: values in, values out; everything else stays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ctxvc.claude_code.event import OURS, RECORDED
from ctxvc.errors import BadInput

Settings = dict[str, Any]

#: The settings of one project that are not shared, which `install claude-code --project` changes.
LOCAL = Path(".claude", "settings.local.json")

#: Seconds after which the host stops waiting. SessionEnd has 1.5 in all by default.
_TIMEOUT = 10
#: Events that take a matcher, each with what it is to match.
_MATCHED = {
    "PreToolUse": OURS,
    **dict.fromkeys(("SessionStart", "PostToolUse", "PostToolUseFailure", "StopFailure", "SessionEnd"), "*"),
    **dict.fromkeys(("SubagentStart", "SubagentStop", "PreCompact", "PostCompact"), "*"),
}
#: A command of ours, wherever the program lies.
_OURS = re.compile(r"""(?:^|[/\s'"])ctxvc['"]?\s+hook\s+\w+\s*$""")


def recorded_here(folder: Path) -> bool:
    """Whether hooks may make a store for `folder`: it is in a project of git, or our hooks were put in for it alone."""
    if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return True
    try:
        values = json.loads((folder / LOCAL).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and bool(commands(values))


def installed(settings: Settings, program: str) -> Settings:
    """`settings` in which each recorded event runs `program` (as a shell takes it), in place of our earlier hooks.

    A status line is added if there is none. Raises: BadInput if the hooks do not have the host's form.
    """
    clean = removed(settings)
    hooks = {event: list(groups) for event, groups in clean.get("hooks", {}).items()}
    for event in RECORDED:
        command = {"type": "command", "command": f"{program} hook {event}", "timeout": _TIMEOUT}
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
    """Our hooks' commands in `settings`, whatever else is in them."""
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
