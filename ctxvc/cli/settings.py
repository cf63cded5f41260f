"""What a person has set: the file in their configuration folder, and a project's own `ctxvc.toml` once it is trusted.

A value comes from the first of: an option, the environment, the person's table of the project, the project's file, the
person's defaults. `ctxvc/help/config.md` says what there is.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.core.suggestion import meant
from ctxvc.errors import BadSettings, CtxvcError

#: The variable that names another file; empty for none.
VARIABLE = "CTXVC_CONFIG"
FILE = "config.toml"
#: The project's own, in its root.
PROJECT_FILE = "ctxvc.toml"
#: The most bytes of a file of settings.
LARGEST = 256 * 1024

#: Commands that no alias stands for: they begin before any file is read.
_UNALIASED = frozenset({"run", "hook"})
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,30}")
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")

#: The settings that a project's file may have: nothing that runs a program, nothing that hides one.
OF_PROJECTS = ("policy", "budget", "protect")
NAMES = (*OF_PROJECTS, "provider", "color", "pager")
#: The APIs that a model may be behind.
PROVIDERS = ("anthropic", "openai", "openai-chat", "openai-responses")
#: The hosts whose compactions a person may set something for, in a table of that name.
HOSTS = ("claude-code",)
#: The variables that set one; colours and the pager have those that all programs know.
VARIABLES = {"policy": "CTXVC_POLICY", "budget": "CTXVC_BUDGET", "provider": "CTXVC_PROVIDER"}


class Setting(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    origin: str


class Person(NamedTuple):
    """A person's file: where it is, its defaults, the tables of projects by their folders, the aliases, what is set
    for hosts by their names, and for sharing."""

    path: Path | None = None
    defaults: Mapping[str, Any] = {}
    projects: Mapping[Path, Mapping[str, Any]] = {}
    aliases: Mapping[str, list[str]] = {}
    hosts: Mapping[str, Mapping[str, Any]] = {}
    share: Mapping[str, Any] = {}

    def project(self, folder: Path) -> Mapping[str, Any]:
        """The table of the innermost project around the folder; empty if there is none."""
        around = [place for place in self.projects if folder.is_relative_to(place)]
        return self.projects[max(around, key=lambda place: len(place.parts))] if around else {}


def person_path(env: Mapping[str, str]) -> Path | None:
    """The path of the person's file, which need not exist; None if there is no place for one."""
    if VARIABLE in env:
        return Path(env[VARIABLE]).absolute() if env[VARIABLE] else None
    if not any(env.get(name, "").startswith("/") for name in ("HOME", "XDG_CONFIG_HOME")):
        return None
    from platformdirs import user_config_path

    return user_config_path("ctxvc", appauthor=False) / FILE


def person(env: Mapping[str, str], commands: Mapping[str, object]) -> Person:
    """The settings of a person's file; none if there is no file. Raises: BadSettings, CtxvcError."""
    path = person_path(env)
    if path is None:
        return Person()
    data = _content(path)
    if data is None:
        if env.get(VARIABLE):
            raise BadSettings(f"{path}: there is no such file", hint=f"{VARIABLE} names it; empty means none")
        return Person()
    table = _Table(path, data)
    kinds = {
        "defaults": _is_table,
        "project": _is_table,
        "alias": _is_table,
        "share": _is_table,
        **dict.fromkeys(HOSTS, _is_table),
    }
    top = table.values(table.tree, kinds)
    projects = {
        Path(name).expanduser().resolve(): table.values(values, _PERSONS, "project", name)
        for name, values in table.tables(top.get("project", {}), "project")
    }
    return Person(
        path=path,
        defaults=table.values(top.get("defaults", {}), _PERSONS, "defaults"),
        projects=projects,
        aliases=table.aliases(top.get("alias", {}), commands),
        share=table.values(top.get("share", {}), _SHARE, "share"),
        hosts={name: table.values(top[name], _HOSTS, name) for name in HOSTS if name in top},
    )


def project(path: Path, data: bytes) -> Mapping[str, Any]:
    """The settings of a project's file. Raises: BadSettings."""
    table = _Table(path, data)
    return table.values(table.tree, _PROJECTS)


def written(value: Any) -> str:
    """A value as a person would write it."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,} tokens" if isinstance(value, int) else str(value) or "none"


def from_variable(name: str, variable: str, text: str) -> Any:
    """The value of a setting that a variable has. Raises: BadSettings."""
    try:
        return {"budget": _budget, "provider": _one_of(*PROVIDERS)}.get(name, _text)(text)
    except ValueError as error:
        raise BadSettings(f"{variable}: {error}", hint="`ctxvc help config`") from error


def project_content(root: Path) -> bytes | None:
    """The bytes of the project's file; None if it has none. Raises: CtxvcError if it is a link, or cannot be read."""
    from ctxvc.store.trust.identity import read_plain

    return read_plain(root / PROJECT_FILE, LARGEST)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_mode & 0o002 or about.st_uid not in (os.geteuid(), 0):
                raise BadSettings(
                    f"{path}: others can change it; it can name programs", hint=f"`chmod o-w {path}`, and own it"
                )
            return file.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            return None  # a home of somebody else
        raise BadSettings(f"{path}: {error.strerror}", hint="check its permissions, or move it away") from error


class _Table:
    """A file of settings as it was parsed; its errors name file and line."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        if len(data) > LARGEST:
            raise BadSettings(f"{path} has more than {LARGEST:,} bytes", hint="check what is in it")
        try:
            self.text = data.decode()
            self.tree = _parsed(self.text)
        except ValueError as error:  # also what is no UTF-8
            raise BadSettings(f"{path}: it is not TOML: {error}", hint="`ctxvc help config` has an example") from error

    def values(self, tree: Mapping[str, Any], kinds: Mapping[str, Callable[[Any], Any]], *table: str) -> dict[str, Any]:
        """The settings of a table, each checked and converted by its kind. Raises: BadSettings."""
        result = {}
        for key, value in tree.items():
            if key not in kinds:
                problem = f"there is no setting {key[:40]!r}{meant(key, kinds)}"
                raise self._error(problem, *table, key, hint=f"available: {', '.join(kinds)}")
            try:
                result[key] = kinds[key](value)
            except ValueError as error:
                raise self._error(f"{key}: {error}", *table, key, hint="`ctxvc help config`") from error
        return result

    def tables(self, tree: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The tables in a table, by their names. Raises: BadSettings for a value that is no table."""
        for key, value in tree.items():
            if not isinstance(value, dict):
                raise self._error(f"{key[:60]!r} is not a table", name, key, hint=f'as in [{name}."~/work/shop"]')
            yield key, value

    def aliases(self, tree: Mapping[str, Any], commands: Mapping[str, object]) -> dict[str, list[str]]:
        """Each alias → the words that it stands for. Raises: BadSettings."""
        result = {}
        for name, text in tree.items():
            problem, command = "", []
            if name in commands:
                problem = f"{name} is a command; an alias cannot hide it"
            elif not _ALIAS.fullmatch(name):
                problem = f"{name[:40]!r} is not a valid name: use lower-case letters, digits and -"
            elif not isinstance(text, str):
                problem = f"{name} is not a string"
            else:
                try:
                    command = shlex.split(text)
                except ValueError as error:
                    problem = f"{name}: {str(error).lower()}"
            if command and command[0] not in commands:
                problem = f"{name}: there is no command {command[0][:40]!r}{meant(command[0], commands)}"
            elif command and command[0] in _UNALIASED:
                problem = f"{name}: an alias cannot start {command[0]}, which begins before this file is read"
            elif not command and not problem:
                problem = f"{name} is empty"
            if problem:
                raise self._error(problem, "alias", name, hint='as in l = "log --oneline"')
            result[name] = command
        return result

    def _error(self, problem: str, *place: str, hint: str) -> BadSettings:
        line = self._line(place)
        return BadSettings(f"{self.path}{f', line {line}' if line else ''}: {problem}", hint=hint)

    def _line(self, place: tuple[str, ...]) -> int:
        """The line of a key, from 1; 0 where it is written in another way than as a line of its own."""
        *table, key = place
        current: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                current = _keys(header[1])
                if current == list(place):
                    return number
            elif current == table and _keys(line.partition("=")[0]) == [key]:
                return number
        return 0


def _keys(text: str) -> list[str]:
    """The parts of a dotted key."""
    parts = re.findall(r'"([^"]*)"|\'([^\']*)\'|([^\s."\']+)', text)
    return ["".join(part) for part in parts]


def _parsed(text: str) -> dict[str, Any]:
    """Raises: ValueError, with line and column."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


# --- kinds of values


def _is_table(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("it is not a table")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(char) < 32 for char in value):
        raise ValueError(f"{str(value)[:40]!r} is not one line of text")
    return value


def _policy(value: Any) -> str:
    """A policy that ships."""
    from ctxvc.policies import parse

    try:
        parse(_text(value))
    except CtxvcError as error:
        raise ValueError(str(error)) from error
    return str(value)


def _own_policy(value: Any) -> str:
    """A policy that ships, or one of the person's own by a full path: no folder that one works in chooses the code."""
    spec = _text(value)
    for part in spec.split("+"):
        path, dot, _ = part.partition(".py:")
        if dot and not Path(path).expanduser().is_absolute():
            raise ValueError(f"{part[:60]!r} needs a full path, as in ~/policies/mine.py:Mine")
    return "+".join(str(Path(part).expanduser()) if ".py:" in part else part for part in spec.split("+"))


def _budget(value: Any) -> int:
    import click

    from ctxvc.cli.options.values import TokenAmount

    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f'{str(value)[:20]!r} is not a number of tokens: write it as 32000 or "32k"')
        return TokenAmount(1_000).convert(str(value), None, None)
    except click.BadParameter as error:
        raise ValueError(error.message) from error


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError('it is not a list, as in ["docs/*.md"]')
    return tuple(map(_text, value))


def _one_of(*values: str) -> Callable[[Any], str]:
    def kind(value: Any) -> str:
        if value not in values:
            raise ValueError(f"{str(value)[:20]!r} is not one of {', '.join(values)}")
        return str(value)

    return kind


def _pager(value: Any) -> str:
    """The pager's command; empty for none."""
    if value is False:
        return ""
    return _text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:20]!r} is neither true nor false")
    return value


_PROJECTS: Mapping[str, Callable[[Any], Any]] = dict(zip(OF_PROJECTS, (_policy, _budget, _patterns), strict=True))
_PERSONS: Mapping[str, Callable[[Any], Any]] = {
    **_PROJECTS,
    "policy": _own_policy,
    "provider": _one_of(*PROVIDERS),
    "color": _one_of("auto", "always", "never"),
    "pager": _pager,
}
_HOSTS: Mapping[str, Callable[[Any], Any]] = {
    "policy": _own_policy,
    "target": _budget,
    "protect": _patterns,
    "always": _flag,
    "off": _flag,
}
#: When sessions are pushed: whenever something was recorded, or when a person does.
_SHARE: Mapping[str, Callable[[Any], Any]] = {"push": _one_of("auto", "manual")}
