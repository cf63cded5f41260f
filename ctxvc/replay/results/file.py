"""A results file: one result a line, in any order while a run goes on, sorted once it is through.

What stands in it is not done again, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

import ctxvc.replay
from ctxvc.errors import Conflict, Refused
from ctxvc.replay.results.lines import ELSEWHERE, LineFile, line_of
from ctxvc.replay.results.result import SCHEMA, Options, Result, decode
from ctxvc.store import files

#: The parts of the package on which results depend.
_CODE = ("agent", "core", "data", "importers", "policies", "replay", "session", "store", "tokens")

#: How a line begins.
_BEGINNING = b'{"schema":"' + SCHEMA.encode()

#: What a result is of: file, checksum, policy, budget and options; a file may have several conversations.
Key = tuple[str, str, str, int, Options]


def key(result: Result) -> Key:
    return (result.file, result.sha256, result.policy, result.budget, result.options)


def code_version(own: Iterable[Path] = ()) -> str:
    """`0.1.0+3fa9c1d2e4b5`: the package's version, and a checksum of the code that decides on results.

    `own` are files with policies of a person's own.
    """
    package = Path(ctxvc.replay.__file__).parents[1]
    paths = [path for part in _CODE for path in sorted((package / part).rglob("*")) if _is_source(path)]
    digest = hashlib.sha256()
    for path in [*paths, *own]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{ctxvc.__version__}+{digest.hexdigest()[:12]}"


def _is_source(path: Path) -> bool:
    return path.suffix == ".py" or "anchors" in path.name


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Inside, nobody else who comes through here writes to the file at `path`, which is made if it is new.

    Raises: Conflict, at once, while another process is inside.
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
    """The results file at `path`, which may be new; `version` is that of the code that would add to it.

    Enter `alone` before: of two that write to one file, each would take the other's newest line for the rest of a kill.
    Raises: BadInput if the file is none of results; Refused if another version made them.
    """

    def __init__(self, path: Path, version: str) -> None:
        super().__init__(path, partial(_result, path, version), "a replay result", _BEGINNING)
        self._counts = Counter(map(key, self.records))
        self._expected = {key(result): result.conversations for result in self.records}

    def has(self, identity: Key) -> bool:
        """Whether all conversations of the file have a result of this key."""
        return identity in self._counts and self._counts[identity] >= self._expected[identity]

    def add(self, records: Iterable[Result]) -> None:
        """As `LineFile.add`."""
        super().add(added := list(records))
        self._counts.update(map(key, added))
        self._expected.update((key(result), result.conversations) for result in added)

    def sort(self) -> None:
        """Writes the file anew, sorted, each result once."""
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
