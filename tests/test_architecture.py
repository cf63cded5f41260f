"""Who may import whom, and who may touch the world: docs/architecture.md as a test."""

from __future__ import annotations

import ast
import importlib
import keyword
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import ctxvc
from ctxvc.cli.command_list import COMMANDS, MODULES
from ctxvc.cli.main import cli

PACKAGE = Path(ctxvc.__file__).parent

#: A part of the package → the parts that it may import, besides itself. `ctxvc` is the package's own `__init__`.
LAYERS: dict[str, frozenset[str]] = {
    "phrases": frozenset(),
    "errors": frozenset({"phrases"}),
    "processes": frozenset(),
    "loopback": frozenset({"errors"}),
    "core": frozenset({"errors", "phrases"}),
    "policies": frozenset({"core", "errors"}),
    "forms": frozenset({"core", "errors"}),
    "importers": frozenset({"forms", "core", "errors"}),
    "store": frozenset({"core", "errors"}),
    "tokens": frozenset({"store", "core", "errors"}),
    "inspection": frozenset({"tokens", "store", "core", "errors"}),
    "session": frozenset({"policies", "tokens", "store", "core", "errors"}),
    "recording": frozenset({"importers", "store", "core", "errors", "phrases"}),
    "wire": frozenset({"loopback", "forms", "agent", "policies", "session", "tokens", "store", "core", "errors"}),
    "exporters": frozenset({"importers", "forms", "session", "inspection", "store", "core", "errors"}),
    "claude_code": frozenset(
        {"session", "policies", "tokens", "recording", "importers", "store", "core", "errors", "phrases"}
    ),
    "agent": frozenset({"forms", "session", "policies", "inspection", "tokens", "store", "core", "errors", "phrases"}),
    "replay": frozenset(
        {"processes", "agent", "session", "policies", "importers", "tokens", "store", "core", "errors"}
    ),
    "report": frozenset({"replay", "inspection", "tokens", "store", "core", "errors"}),
    "tables": frozenset({"processes", "report", "inspection", "tokens", "store", "core", "errors"}),
    "integrations": frozenset({"importers", "store", "core", "errors"}),
    "sharing": frozenset({"store", "core", "errors"}),
    "mcp": frozenset({"loopback", "agent", "session", "inspection", "tokens", "store", "core", "errors", "phrases"}),
    "cli": frozenset(
        {"wire", "mcp", "replay", "report", "tables", "integrations", "sharing"}
        | {"agent", "claude_code", "recording", "policies", "session", "inspection"}
        | {"importers", "exporters", "forms", "tokens", "store", "core", "errors", "phrases", "loopback", "ctxvc"}
    ),
    "__main__": frozenset({"cli"}),
    "ctxvc": frozenset(
        {
            "wire",
            "agent",
            "policies",
            "session",
            "inspection",
            "importers",
            "forms",
            "tokens",
            "store",
            "core",
            "errors",
        }
    ),
}

#: The core's rooms and its single modules: each imports only those before it.
CORE = (
    *(
        "display",
        "patterns",
        "variables",
        "suggestion",
        "relevance",
        "ledger",
        "prompt",
        "project_notes",
        "hosts",
        "recording",
        "view",
        "secrets",
        "plan",
    ),
    *("scope", "policy"),
)

#: The store's rooms and files: each imports only those before it. A file named on its own is not of its room here.
STORE = (
    *("timestamp", "files", "objects", "format", "trust.contained", "trust.identity"),
    *("git.config_parser", "git.allowlist", "trust.known_stores", "trust.trust", "trust.project_trust"),
    "git",  # the program starts git with what a person trusts
    *("secrets.secret_scanner", "secrets.redaction", "hook_outputs", "upkeep.leftovers", "trust.seals", "worktrees"),
    *("project.locate", "project.links_inbox", "upkeep.packed_refs", "push_attempt"),
    *("cache.database", "cache.recovered_files", "project.code_history"),
    *("read.commit_reader", "log.journal"),
    *("purge.scrub", "purge.rewrite", "purge.apply"),  # to open a store finishes a purge
    *("store", "read.session_name", "cache.local_cache", "exports", "pending_plans", "log"),
    *("read.revision", "read", "cache.cached_repository", "project.links"),
    *("secrets.push_check", "verify", "upkeep.carriers", "trust.quarantine", "import_scopes", "unit_commits", "ingest"),
    *("checkout", "upkeep.gc", "upkeep.retention", "upkeep.bundle", "purge"),
)

#: What the core may use: values and algorithms. Nothing with effects, no clock, no chance.
CORE_MAY_IMPORT = frozenset(
    {
        "__future__",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "dataclasses",
        "difflib",
        "enum",
        "fnmatch",
        "functools",
        "hashlib",
    }
    | {"heapq", "itertools", "json", "math", "msgspec", "operator", "re", "regex", "string", "textwrap", "types"}
    | {"typing", "unicodedata"}
)

#: A library → the only parts of the package that may import it.
ONLY_IN: dict[str, frozenset[str]] = {
    "pygit2": frozenset({"store"}),
    "subprocess": frozenset({"store", "recording", "agent", "wire", "cli"}),
    "fcntl": frozenset({"store"}),
    "regex": frozenset({"core", "tokens"}),
    "tiktoken": frozenset({"tokens"}),
    "toktok": frozenset({"tokens"}),
    "sqlite3": frozenset({"store", "inspection", "tokens", "importers", "replay"}),  # a cache, a host's sessions, BM25
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "wcwidth": frozenset({"cli"}),
    "anthropic": frozenset({"agent"}),
    "openai": frozenset({"agent"}),
    "agents": frozenset({"integrations"}),
    "mcp": frozenset(),  # its own client judges ours in the tests
    "kingfisher_sdk": frozenset({"store"}),
    "pyarrow": frozenset({"replay"}),
    "duckdb": frozenset({"tables"}),
    "distributed": frozenset({"replay"}),
    "langgraph": frozenset({"integrations"}),
    "claude_agent_sdk": frozenset({"integrations"}),
    "h11": frozenset({"wire"}),
    "httpx2": frozenset({"agent", "wire"}),
    "httpcore2": frozenset({"wire"}),
    "brotli": frozenset({"wire"}),
    "backports": frozenset({"wire"}),
    "asyncio": frozenset({"wire", "cli", "integrations", "agent", "mcp"}),
    "socket": frozenset({"agent", "loopback", "wire", "cli"}),  # to hand descriptors on; servers
    "urllib": frozenset(),
    "http": frozenset({"loopback"}),
}

#: Where a module may name Claude Code without being of it, and why. Names of models and `CLAUDE.md` count nowhere.
CLAUDE_CODE = {
    "importers": "the list of formats",
    "importers.ctxvc_trajectory": "the format's own header names the program that recorded",
    "core.variables": "a variable with a key in it",
    "agent.footholds": "a folder whose settings run programs",
    "agent.skills": "a folder that projects have their skills in",
    "wire.senders": "the headers by which its requests say whose they are",
    "core.hosts.tools": "the table of agents' tools",
    "exporters.conversation": "reads the provider out of names of models",
    "tokens.models": "reads versions out of names of models",
    "tokens.calibration": "asks which family a model is of",
    "tokens.media": "asks which family a model is of",
    "cli.app": "asks which conversation an agent's shell is in",
    "cli.hook_entry": "hands an event to the host's own room",
    "cli.hosts": "says when a prompt of its is ours, and reads what a person has set for it",
    "cli.settings": "the name of its table",
    "cli.command_list": "the summary of `hook`",
    "cli.commands.ask": "an example with a session's name",
    "cli.commands.demo": "shows a session of its",
    "cli.commands.doctor": "looks at what is installed",
    "cli.commands.mcp": "an example that sets it up there",
    "cli.commands.wrap": "an example with its name",
    "wire.agents": "its row in the table of agents",
    "wire.exchange": "headers by which it says who it is",
    "cli.commands.watch": "does what its hooks asked for and nobody did",
}
CLAUDE_CODE_ROOMS = (
    "claude_code",
    "integrations.claude_agent_sdk",
    "importers.claude_code",
    "cli.agents_session",
    *(f"cli.commands.{name}" for name in ("install", "export", "hook")),
)
_NO_HOST = re.compile(r"claude-(?:fable|mythos|opus|sonnet|haiku)-[0-9-]+|CLAUDE\.md")

#: What speaks with the person or the shell: only the command line does.
WORLD = frozenset({"os.environ", "os.getenv", "sys.exit", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr"})
SPEAKING = frozenset({"print", "input", "exit", "quit", "breakpoint"})

#: A child of ours gets this environment, less what could send git elsewhere.
MAY_READ_THE_ENVIRONMENT = frozenset(
    {"ctxvc.store.git.program", "ctxvc.store.git.transport", "ctxvc.store.trust.identity"}
)

HEAVY = frozenset(
    {"anthropic", "tiktoken", "toktok", "rich", "mcp", "pygit2", "sqlite3", "kingfisher_sdk", "wcwidth"}
    | {"pyarrow", "duckdb", "distributed", "openai", "agents"}
)

#: Modules whose texts are for one reader: the table of phrases, what Claude Code is told and has a shell for, and the
#: line that stands in a prompt where an output was truncated.
HAS_ONE_READER = frozenset(
    {
        "ctxvc.phrases",
        "ctxvc.claude_code.event",
        "ctxvc.claude_code.handoff",
        "ctxvc.core.prompt.truncation",
    }
)

#: A command of another program, as a text quotes it, ends with it or is it; and a line of a shell's script.
OF_ANOTHER_PROGRAM = re.compile(r"`(?!ctxvc)[^`]*`|(^|: )(git|rm) .*|.* \|\| .*|^(?!ctxvc)\w+ .*\{(id|file)\}$")


#: Modules and rooms of one folder.
MOST_ENTRIES = 30


# --- the rules, each from a module's name and source to what is wrong with it


def imported(tree: ast.AST, module: str, *, package: bool = False) -> Iterator[str]:
    """The full names that a module imports, anywhere in it, by statement or by `import_module`."""
    for node in every_node(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                parts = module.split(".")
                home = parts[: len(parts) - level + package] if level else []
                base = ".".join([*home, *([source] if source else [])])
                yield from (f"{base}.{name.name}" for name in names)
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[first, *_]):
                match first:
                    case ast.Constant(value=str(name)):
                        yield name
                    case ast.JoinedStr(values=[ast.Constant(value=str(name)), *_]):
                        yield name + "*"


@cache
def parsed(source: str) -> ast.Module:
    """The syntax tree of a source, to be looked at by many."""
    return ast.parse(source)


@cache
def every_node(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All of a tree, to be walked by many."""
    return tuple(ast.walk(tree))


def entries(folder: Path) -> list[Path]:
    """The modules and the rooms of a folder."""
    return [
        path
        for path in folder.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
    ]


def part_of(name: str) -> str:
    """The part of the package that a full name lies in; empty for a name from elsewhere."""
    arguments = name.split(".")
    if arguments[0] != "ctxvc":
        return ""
    return arguments[1] if len(arguments) > 1 and arguments[1] in LAYERS else "ctxvc"


def wrong_imports(module: str, source: str, *, package: bool = False) -> Iterator[str]:
    part = part_of(module)
    for name in imported(parsed(source), module, package=package):
        if target := part_of(name):
            if target not in (part, *LAYERS[part]):
                yield f"{module} imports {name}: {part} may import {', '.join(sorted(LAYERS[part])) or 'nothing'}"
            continue
        library = name.split(".")[0]
        if part not in ONLY_IN.get(library, {part}):
            yield f"{module} imports {library}, which only {', '.join(sorted(ONLY_IN[library])) or 'nobody'} may"
        if part in ("core", "policies") and library not in CORE_MAY_IMPORT:
            yield f"{module} imports {library}: {part} has no effects"
        if part == "errors" and library != "__future__":
            yield f"{module} imports {library}: errors stand alone"


def speaking(module: str, source: str) -> Iterator[str]:
    """Where a module reads the environment, prints or exits, if it is not of the command line."""
    if part_of(module) == "cli":
        return
    for node in every_node(parsed(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if f"{owner}.{name}" in WORLD:
                if not (name == "environ" and module in MAY_READ_THE_ENVIRONMENT):
                    yield f"{module}:{node.lineno} uses {owner}.{name}"
            case ast.ImportFrom(module="os" | "sys" as owner, names=names):
                yield from (
                    f"{module}:{node.lineno} imports {name.name} from {owner}"
                    for name in names
                    if f"{owner}.{name.name}" in WORLD
                )
            case ast.Call(func=ast.Name(id=name)) if name in SPEAKING:
                yield f"{module}:{node.lineno} calls {name}()"
            case ast.Name(id="SystemExit"):
                yield f"{module}:{node.lineno} raises SystemExit"


@cache
def of_command_line() -> re.Pattern[str]:
    """What names a command or an option of ours in a sentence."""
    with click.Context(cli) as ctx:
        commands = [cli, *(cli.get_command(ctx, name) for name in COMMANDS)]
    options = {option for command in commands if command for param in command.params for option in param.opts}
    flags = "|".join(re.escape(option) for option in sorted(options) if option.startswith("-"))
    return re.compile(rf"\bctxvc ({'|'.join(map(re.escape, COMMANDS))})\b|(?<![\w-])({flags})(?![\w=-])")


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of several words in a source, with their lines, and a `…` for what is put in; no docstrings."""
    inner = {part for node in every_node(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docstrings = {node.value for node in every_node(tree) if isinstance(node, ast.Expr)}
    for node in every_node(tree):
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in values)
            case ast.Constant(value=str(text)) if node not in inner | docstrings:
                pass
            case _:
                continue
        if " " in text:
            yield node.lineno, text


def speaking_as_command_line(module: str, source: str) -> Iterator[str]:
    """Texts outside of the command line, such as hints and messages of errors, that only fit there."""
    if part_of(module) == "cli" or module in HAS_ONE_READER:
        return
    for line, text in sentences(parsed(source)):
        if named := of_command_line().search(OF_ANOTHER_PROGRAM.sub("", text)):
            yield f"{module}:{line} names {named[0]}, which a phrase is for"


def undocumented(module: str, source: str) -> Iterator[str]:
    if source.strip() and not ast.get_docstring(parsed(source)):
        yield f"{module} has no docstring"


# --- the package


@cache
def modules() -> dict[str, Path]:
    """Full name → file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        arguments = [*path.relative_to(PACKAGE.parent).with_suffix("").parts]
        found[".".join(arguments[:-1] if arguments[-1] == "__init__" else arguments)] = path
    return found


def everywhere(rule: Callable[[str, str], Iterable[str]]) -> list[str]:
    return [words for name, path in modules().items() for words in rule(name, path.read_text())]


def test_imports_go_one_way() -> None:
    wrong = [
        text
        for name, path in modules().items()
        for text in wrong_imports(name, path.read_text(), package=path.name == "__init__.py")
    ]

    assert not wrong, "\n".join(wrong)


#: Names of the standard library that Python 3.10 lacks, which is the oldest that we support.
NEWER = {
    "typing": {"LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack", "assert_never",
               "assert_type", "override", "reveal_type"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "member", "nonmember", "verify"},
    "asyncio": {"Runner", "TaskGroup", "timeout"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
}  # fmt: skip


def newer_imports(module: str, source: str) -> Iterator[str]:
    """What a module imports by a name that the oldest supported Python lacks."""
    for node in every_node(at_run_time(source)):
        if isinstance(node, ast.ImportFrom) and node.module in NEWER:
            for alias in node.names:
                if alias.name in NEWER[node.module]:
                    yield f"{module} imports {alias.name} from {node.module}, which Python 3.10 lacks"


def wrong_core_imports(module: str, source: str) -> Iterator[str]:
    """What a module of the core imports from a room that comes after its own."""
    names = module.split(".")
    if names[:2] != ["ctxvc", "core"] or len(names) < 3:
        return
    for name in imported(parsed(source), module):
        parts = name.split(".")
        if parts[:2] == ["ctxvc", "core"] and CORE.index(parts[2]) > CORE.index(names[2]):
            yield f"{module} imports {name}"


def test_the_rooms_of_the_core_go_one_way() -> None:
    assert {name.split(".")[2] for name in modules() if name.startswith("ctxvc.core.")} == set(CORE)
    assert not everywhere(wrong_core_imports)


def place_in_the_store(name: str) -> int | None:
    """The index in `STORE` of a module of the store, or of a name in one; None for any other and the package itself."""
    parts = name.split(".")[2:] if name.startswith("ctxvc.store.") else []
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((STORE.index(name) for name in names if name in STORE), None)


def wrong_store_imports(module: str, source: str) -> Iterator[str]:
    """What a module of the store imports from a room or file that comes after its own."""
    own = place_in_the_store(module)
    for name in imported(at_run_time(source), module):
        place = place_in_the_store(name)
        if own is not None and place is not None and place > own:
            yield f"{module} imports {name}"


def test_the_rooms_of_the_store_go_one_way() -> None:
    places = {name: place_in_the_store(name) for name in modules() if name.startswith("ctxvc.store.")}
    rooms = {name.rpartition(".")[0] for name in places}

    assert set(places.values()) - {None} == set(range(len(STORE)))
    assert not [name for name, place in places.items() if place is None and name not in rooms]
    assert not everywhere(wrong_store_imports)


def test_each_command_has_a_file_of_its_name_or_the_one_it_shares() -> None:
    files = {path.stem for path in (PACKAGE / "cli" / "commands").glob("*.py")} - {"__init__"}

    assert files == {f"{name}_" if keyword.iskeyword(name) else MODULES.get(name, name) for name in COMMANDS}


def command_imports(module: str, source: str) -> Iterator[str]:
    """Imports of a command by another: what two of them need is a module of `cli`."""
    if module.startswith("ctxvc.cli.commands."):
        for name in imported(parsed(source), module):
            if name.startswith("ctxvc.cli.commands"):
                yield f"{module} imports {name}"


def names_of_claude(module: str, source: str) -> Iterator[str]:
    """Names and strings, but for docstrings, with `claude` in them outside the rooms of that host."""
    local = module.removeprefix("ctxvc.")
    if any(local == room or local.startswith(room + ".") for room in CLAUDE_CODE_ROOMS):
        return
    for node in every_node(tree := parsed(source)):
        match node:
            case ast.Constant(value=str(text)) if text not in _docstrings(tree):
                words = [text]
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                words = [name]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                words = [name]
            case ast.ImportFrom(module=str(home), names=names):
                words = [home, *(name.name for name in names)]
            case ast.Import(names=names):
                words = [name.name for name in names]
            case _:
                continue
        yield from (f"{module}: {word[:60]!r}" for word in words if "claude" in _NO_HOST.sub("", word).lower())


@cache
def _docstrings(tree: ast.Module) -> frozenset[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in every_node(tree) if isinstance(node, documented)]
    return frozenset(text for node in nodes if (text := ast.get_docstring(node, clean=False)))


def test_claude_code_is_named_only_in_its_rooms() -> None:
    texts = everywhere(names_of_claude)
    exceptions = {f"ctxvc.{name}" for name in CLAUDE_CODE}

    assert not [text for text in texts if text.partition(":")[0] not in exceptions]
    assert {text.partition(":")[0] for text in texts} == exceptions, "an exception that is none any more"


def test_every_part_of_the_package_has_its_place() -> None:
    tops = {name.split(".")[1] for name in modules() if "." in name}

    assert tops <= LAYERS.keys()


@pytest.mark.parametrize(
    "violations",
    [
        pytest.param(newer_imports, id="nothing is imported that the oldest Python lacks"),
        pytest.param(command_imports, id="no command imports another"),
        pytest.param(speaking, id="only the command line speaks with the person"),
        pytest.param(speaking_as_command_line, id="only the command line names its commands and options"),
        pytest.param(undocumented, id="every module says what it is for"),
    ],
)
def test_no_module_is_against_the_rules(violations: Callable[[str, str], Iterable[str]]) -> None:
    assert not everywhere(violations)


def test_no_folder_is_a_hall() -> None:
    """What a reader meets at once can be taken in; a file for each command is a list that nobody reads through."""
    folders = [path for path in PACKAGE.rglob("*") if (path / "__init__.py").exists() and path.name != "commands"]

    assert not [path for path in [PACKAGE, *folders] if len(entries(path)) > MOST_ENTRIES]


def test_no_two_modules_import_each_other() -> None:
    """Also not by way of others, and not by an import inside a function; imports for type checkers do not count."""
    assert not (circle := circle_of(imports())), f"a circle among {', '.join(sorted(circle))}"


def test_a_circle_is_seen_also_through_a_third_module() -> None:
    assert circle_of({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"a", "b", "c", "d"}
    assert not circle_of({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def circle_of(graph: dict[str, set[str]]) -> set[str]:
    """The modules in a circle of imports, and those that import one of them."""
    while leaves := {name for name, targets in graph.items() if not targets}:
        graph = {name: targets - leaves for name, targets in graph.items() if name not in leaves}
    return set(graph)


def imports() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports, anywhere in it, but for type checkers."""
    known = modules()
    return {
        name: {
            next(part for part in (target, target.rpartition(".")[0]) if part in known)
            for target in imported(at_run_time(path.read_text()), name, package=path.name == "__init__.py")
            if target in known or target.rpartition(".")[0] in known
        }
        - {name}
        for name, path in known.items()
    }


@cache
def at_run_time(source: str) -> ast.Module:
    """The syntax tree of a source without what is for type checkers."""
    if "TYPE_CHECKING" not in source:
        return parsed(source)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


def test_what_is_heavy_is_loaded_only_when_it_is_used() -> None:
    code = "import sys, ctxvc, ctxvc.cli.main; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not HEAVY.intersection(loaded)


# --- the rules themselves: each sees the violation that it is for


IN_THE_WORLD = (
    *("import os\nos.environ['HOME']", "from os import environ", "print(1)", "import sys\nsys.exit(1)"),
    "raise SystemExit",
)
OF_THE_COMMAND_LINE = (
    'raise Damaged("x", hint="run `ctxvc verify`")',
    'raise NotFound("x", hint=f"`ctxvc goto {name}` switches to it")',
    'raise BadInput("a note needs text", hint="pass it with -m")',
    'raise Refused(f"--bind {path} would expose the whole home folder")',
    'WORDS = "leave it out, or give --as-new"',
)
OF_NO_COMMAND_LINE = (
    '"""Run `ctxvc verify`."""',
    'hint = "this ctxvc reads formats up to 1"',
    'hint = "`git repack -a -d` there, then delete that file"',
    'run("repack", "-a", "--all", "--format=%(refname) %(objectname)")',
)
OF_CLAUDE_CODE = (
    'x = "claude-code"',
    "from ctxvc.claude_code import hook",
    "def from_claude_code(): ...",
    "x = 'Claude Code'",
)


@pytest.mark.parametrize(
    ("rule", "module", "source", "is_wrong"),
    [
        (wrong_imports, "core.x", "import os", True),
        (wrong_imports, "core.x", "from pathlib import Path", True),
        (wrong_imports, "core.x", "def f():\n    from datetime import datetime", True),
        (wrong_imports, "core.x", "import random", True),
        (wrong_imports, "core.x", "from ctxvc.store.git import program as git", True),
        (wrong_imports, "core.x", "from ..store import git", True),
        (wrong_imports, "core.x", "import ctxvc", True),
        (wrong_imports, "importers.x", "from ctxvc.tokens import count as tokens", True),
        (wrong_imports, "importers.x", "from ctxvc.store.store import Store", True),
        (wrong_imports, "store.x", "from ctxvc.importers.file import Recording", True),
        (wrong_imports, "store.x", "import tiktoken", True),
        (wrong_imports, "recording.files", "import pygit2", True),
        (wrong_imports, "recording.files", "from ctxvc.cli.main import run", True),
        (wrong_imports, "tokens.count", "from importlib import import_module\nimport_module('anthropic')", True),
        (wrong_imports, "core.x", "from importlib import import_module\nimport_module(f'ctxvc.store.{x}')", True),
        (wrong_imports, "cli.x", "import anthropic", True),
        (wrong_imports, "cli.x", "import pygit2", True),
        (wrong_imports, "errors", "import re", True),
        (newer_imports, "x", "from typing import Any, Self\n", True),
        (newer_imports, "x", "from typing import Any\nfrom datetime import timezone\n", False),
        (wrong_core_imports, "core.ledger.x", "from ctxvc.core.plan import guard", True),
        (wrong_core_imports, "core.plan.x", "from ctxvc.core.ledger import name_rules", False),
        (wrong_store_imports, "store.store", "from ctxvc.store.log.stored_session import StoredSession", True),
        (wrong_store_imports, "store.log.state", "def f():\n    from ctxvc.store.read import revision", True),
        (wrong_store_imports, "store.trust.trust", "from ctxvc.store.git import program", True),
        (wrong_store_imports, "store.trust.trust", "from ctxvc.store.git import allowlist", False),
        (wrong_store_imports, "store.log.state", "from ctxvc.store.store import Store", False),
        (command_imports, "cli.commands.ask", "from ctxvc.cli.commands.run import Screen", True),
        (command_imports, "cli.commands.ask", "from ctxvc.cli.commands import run", True),
        (command_imports, "cli.commands.ask", "from ctxvc.cli.terminal.run_screen import Screen", False),
        (undocumented, "core.x", "x = 1", True),
        *((speaking, "store.x", source, True) for source in IN_THE_WORLD),
        *((speaking, "cli.x", source, False) for source in IN_THE_WORLD),
        *((speaking_as_command_line, "store.x", source, True) for source in OF_THE_COMMAND_LINE),
        *((speaking_as_command_line, "cli.x", source, False) for source in OF_THE_COMMAND_LINE),
        *((speaking_as_command_line, "store.x", source, False) for source in OF_NO_COMMAND_LINE),
        *((names_of_claude, "recording.x", source, True) for source in OF_CLAUDE_CODE),
        *((names_of_claude, "claude_code.x", source, False) for source in OF_CLAUDE_CODE),
        (names_of_claude, "cli.x", '"""As Claude Code does."""\nMODEL = "claude-opus-5-5"', False),
    ],
)
def test_what_is_against_a_rule_is_seen(
    rule: Callable[[str, str], Iterable[str]], module: str, source: str, is_wrong: bool
) -> None:
    assert bool(list(rule(f"ctxvc.{module}", source))) == is_wrong


def test_a_part_is_in_the_picture_below_all_that_it_imports() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    order = re.findall(r"^  (\w+)", page.partition("```\nctxvc/\n")[2].partition("```")[0], re.MULTILINE)
    parts = LAYERS.keys() - {"__main__", "ctxvc"}  # these two have a sentence below the picture

    assert parts <= set(order)
    for part in parts:
        assert not [name for name in LAYERS[part] - {"ctxvc"} if order.index(name) > order.index(part)], part


def test_the_map_leads_to_files_that_are_there() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## Where things live")[2].partition("\n## ")[0]
    paths = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", table)

    assert paths and not [path for path in paths if not (PACKAGE / path).is_file()]


def test_every_name_that_a_module_offers_is_there() -> None:
    offering = [name for name, path in modules().items() if "__all__" in path.read_text()]

    missing = [
        f"{name}.{offered}"
        for name in offering
        for offered in importlib.import_module(name).__all__
        if not hasattr(importlib.import_module(name), offered)
    ]
    assert offering and not missing
