"""The extensions that coding agents load: their files, at the places where each agent looks for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ctxvc import __version__
from ctxvc.errors import Refused
from ctxvc.recording import places

#: Agents with an extension of ours.
AGENTS = ("pi", "opencode")
#: Agents that let nothing change their prompt → what is true of each, and what ctxvc can do all the same.
RECORDED = {
    "codex": ("Codex lets no extension change its prompt", "`ctxvc watch` records its sessions as they grow"),
    "gemini": (
        "Gemini CLI lets no extension change its prompt, and its hooks drop what is not text",
        "`ctxvc watch` records its sessions as they grow, and `ctxvc mcp` gives it notes and search in this store",
    ),
    "copilot": (
        "Copilot CLI lets no extension change its prompt",
        "`ctxvc watch` records its sessions as they grow, and `ctxvc mcp` gives it notes and search in this store",
    ),
}

_CLIENT = "client.js"
_PROGRAM = "program.js"
#: How each of our files begins: what is another's stays.
_OURS = b"// "
_MARK = b"ctxvc"


def install(
    agent: str, env: Mapping[str, str], program: Sequence[str], *, uninstall: bool = False, dry_run: bool = False
) -> list[tuple[Path, bool]]:
    """Puts the files of an agent's extension in place, or takes them away; gives each, and whether that was a change.

    Raises: Refused if a file of somebody else's is there, OSError.
    """
    files = _files(agent, env, program)
    for path in files:
        if path.exists() and not _is_ours(path):
            raise Refused(f"{path} is not ours", hint="move it away; nothing was changed")
    changes: list[tuple[Path, bool]] = []
    for path, data in files.items():
        changed = path.exists() if uninstall else not path.exists() or path.read_bytes() != data
        if changed and not dry_run:
            _remove(path) if uninstall else _write(path, data)
        changes.append((path, changed))
    return changes


class Installed(NamedTuple):
    """What there is of an extension of ours. `program` is what it starts, and `version` the one that it is of; both are
    empty where its files do not say. `altered` are files that are not those of this version."""

    entry: Path
    absent: Sequence[Path]
    altered: Sequence[Path]
    program: str
    version: str


def installed(agent: str, env: Mapping[str, str]) -> Installed | None:
    """The extension of an agent; None if none of our files is there. Raises: OSError."""
    files = _files(agent, env, ())
    present = [path for path in files if path.is_file() and _is_ours(path)]
    if not present:
        return None
    started = next(path for path in files if path.name == _PROGRAM)
    text = started.read_text("utf-8", "replace") if started in present else ""
    command = _constant(text, "PROGRAM")
    program = command[0] if isinstance(command, list) and command and isinstance(command[0], str) else ""
    version = _constant(text, "VERSION")
    return Installed(
        entry=list(files)[-1],
        absent=[path for path in files if path not in present],
        altered=[path for path in present if path != started and path.read_bytes() != files[path]],
        program=program,
        version=version if isinstance(version, str) else "",
    )


def _constant(text: str, name: str) -> object:
    """The value of a constant in a file as `install` writes it; None if it is not there."""
    match = re.search(rf"^export const {name} = (.{{1,4096}})$", text, re.MULTILINE)
    try:
        return json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return None


def refuse(agent: str) -> None:
    """Raises: Refused, with what can be done for an agent that has no extension of ours."""
    wrong, way = RECORDED[agent]
    raise Refused(f"{wrong}: there is nothing to install", hint=way)


def _files(agent: str, env: Mapping[str, str], program: Sequence[str]) -> dict[Path, bytes]:
    source = hooks()
    started = (
        "// How ctxvc is started, and its version: written by `ctxvc install`.\n"
        f"export const PROGRAM = {json.dumps(list(program))}\n"
        f"export const VERSION = {json.dumps(__version__)}\n"
    )
    home = Path(env.get("HOME") or Path.home())
    if agent == "pi":
        base = Path(env.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
        folder = base / "extensions" / "ctxvc"
        entry = folder / "index.js", source / "pi" / "index.js"
    else:
        base = Path(env.get("OPENCODE_CONFIG_DIR") or _config(env, home) / "opencode")
        folder = base / "ctxvc"
        entry = base / "plugins" / "ctxvc.js", source / "opencode" / "ctxvc.js"
    # The entry comes last: an agent that starts meanwhile finds all that it imports.
    return {
        folder / _PROGRAM: started.encode(),
        folder / _CLIENT: (source / _CLIENT).read_bytes(),
        entry[0]: entry[1].read_bytes(),
    }


def hooks() -> Path:
    """The folder with the files for other programs: in the installed package, or in the source."""
    package = Path(__file__).parents[2]
    inside = package / "hooks"
    return inside if inside.is_dir() else package.parent / "hooks"


def _config(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config")


def _is_ours(path: Path) -> bool:
    first, _, _ = path.read_bytes().partition(b"\n")
    return first.startswith(_OURS) and _MARK in first


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    places.write(path, data, 0o644)


def _remove(path: Path) -> None:
    path.unlink()
    if path.parent.name == _MARK.decode() and not any(path.parent.iterdir()):
        path.parent.rmdir()
