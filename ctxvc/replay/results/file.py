"""A results file: one result a line, in any order during a run, sorted at its end.

Results in the file are not computed again, so a killed run continues where it stopped. The Parquet table has one row a
result, and a column for each nested field, such as `tokens.peak`.
"""

from __future__ import annotations

import hashlib
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

import ctxvc.replay
from ctxvc.errors import BadInput, Conflict, CtxvcError, Refused
from ctxvc.replay.results.result import SCHEMA, Options, Result, decode
from ctxvc.store import files

#: The hint for a file of another kind.
ELSEWHERE = "write to another file, or remove this one"

_R = TypeVar("_R")


class LineFile(Generic[_R]):
    """The file at `path`, which may be new; `records` are its records, one a line.

    `decode` reads a line; `kind` names a record in errors, with its article. An incomplete last line, left by a killed
    run, is cut off if it starts with `beginning`. Raises: BadInput for a file of another kind, which stays unchanged.
    """

    def __init__(self, path: Path, decode: Callable[[bytes], _R], kind: str, beginning: bytes) -> None:
        self.path = path
        data = path.read_bytes() if path.exists() else b""
        end = data.rfind(b"\n") + 1
        self.records: list[_R] = []
        for number, line in enumerate(data[:end].splitlines(), 1):
            try:
                self.records.append(decode(line))
            except msgspec.MsgspecError as error:
                raise BadInput(f"{path}, line {number}: not {kind}: {error}", hint=ELSEWHERE) from error
        if not (data[end:].startswith(beginning) or beginning.startswith(data[end:])):
            raise BadInput(f"{path}: its last line is not {kind}", hint=ELSEWHERE)
        if data[end:]:
            with path.open("ab") as file:
                file.truncate(end)

    def add(self, records: Iterable[_R]) -> None:
        """Adds records, which are on disk when this returns."""
        self.records += (added := list(records))
        with self.path.open("ab") as file:
            file.write(b"".join(map(line_of, added)))
            file.flush()
            files.sync(file.fileno())


def line_of(record: object) -> bytes:
    """The record as a line with its line feed: fields in the order of declaration, keys of mappings sorted."""
    return msgspec.json.encode(record, order="deterministic") + b"\n"


#: The parts of the package on which results depend.
_CODE = ("agent", "core", "data", "importers", "policies", "replay", "session", "store", "tokens")

#: How a line begins.
_BEGINNING = b'{"schema":"' + SCHEMA.encode()

#: What identifies a file's results: file, checksum, policy, budget and options; one for each of its conversations.
Key = tuple[str, str, str, int, Options]


def key(result: Result) -> Key:
    return (result.file, result.sha256, result.policy, result.budget, result.options)


def code_version(own: Iterable[Path] = ()) -> str:
    """`0.1.0+3fa9c1d2e4b5`: the package's version, and a checksum of the code that results depend on.

    `own` are files with the user's own policies.
    """
    package = Path(ctxvc.replay.__file__).parents[1]
    paths = (path for part in _CODE for path in sorted((package / part).rglob("*")))
    sources = [path for path in paths if path.suffix == ".py" or "anchors" in path.name]
    digest = hashlib.sha256()
    for path in [*sources, *own]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{ctxvc.__version__}+{digest.hexdigest()[:12]}"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Locks the file at `path` against other replays, and creates it if it is new.

    Raises: Conflict, at once, if another process has the lock.
    """
    path.touch()
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(path.resolve(), timeout=0))
        except Conflict as error:
            wrong = f"another replay is writing to {path}"
            raise Conflict(wrong, hint="wait until it ends, or write to another file") from error
        yield


class ResultFile(LineFile[Result]):
    """The results file at `path`, which may be new; `version` is that of the code that adds to it.

    Enter `alone` first: without it, two writers would take each other's newest line for the remains of a killed run.
    Raises: BadInput if the file has no results; Refused if another version made them.
    """

    def __init__(self, path: Path, version: str) -> None:
        super().__init__(path, partial(_result, path, version), "a replay result", _BEGINNING)
        self._counts = Counter(map(key, self.records))
        self._expected = {key(result): result.conversations for result in self.records}

    def has(self, identity: Key) -> bool:
        """Whether all conversations of the recording have a result with this key."""
        return identity in self._counts and self._counts[identity] >= self._expected[identity]

    def add(self, records: Iterable[Result]) -> None:
        """As `LineFile.add`."""
        super().add(added := list(records))
        self._counts.update(map(key, added))
        self._expected.update((key(result), result.conversations) for result in added)

    def sort(self) -> None:
        """Rewrites the file, sorted and without duplicates."""
        unique = {(*key(result), result.conversation): result for result in self.records}
        self.records = [unique[at] for at in sorted(unique, key=_order)]
        files.replace(self.path, b"".join(map(line_of, self.records)))


def _order(at: tuple[str, str, str, int, Options, str]) -> tuple[str, str, str, str, int, bytes]:
    file, sha256, policy, budget, options, conversation = at
    return file, sha256, conversation, policy, budget, msgspec.json.encode(options)


def _result(path: Path, version: str, line: bytes) -> Result:
    """The result in a line. Raises: msgspec.DecodeError, Refused."""
    try:
        result = decode(line)
    except msgspec.DecodeError as error:
        schema = _schema(line)
        if schema.partition("/")[0] == SCHEMA.partition("/")[0] and schema != SCHEMA:
            raise Refused(
                f"{path} has results in the form {schema}, but this version writes {SCHEMA}", hint=ELSEWHERE
            ) from error
        raise
    if result.version != version:
        raise Refused(f"{path} has results of version {result.version}, but this is {version}", hint=ELSEWHERE)
    return result


def _schema(line: bytes) -> str:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return str(value.get("schema", "")) if isinstance(value, dict) else ""


#: Fields with arbitrary keys, which become columns of JSON text.
_MAPPINGS = frozenset({"events", "dropped", "kinds", "failures"})


def check_parquet() -> None:
    """Raises: Refused if pyarrow is not installed."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise Refused("a Parquet table needs the extra `parquet`", hint="pip install 'ctxvc[parquet]'") from error


def write_parquet(results: Iterable[Result], path: Path) -> None:
    """Writes the table in one step. Raises: Refused without pyarrow, CtxvcError if the file cannot be written."""
    check_parquet()
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    table = arrow.Table.from_pylist([dict(_columns(msgspec.to_builtins(result))) for result in results])
    try:
        parquet.write_table(table, str(path))
    except OSError as error:
        raise CtxvcError(
            f"cannot write {path}: {error.strerror or error}", hint="check the folder's permissions"
        ) from error


def _columns(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _MAPPINGS:
            yield name, msgspec.json.encode(value, order="sorted").decode()
        elif isinstance(value, dict):
            yield from _columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
