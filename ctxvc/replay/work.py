"""Replays in parallel, in processes or on a Dask cluster. A unit is a recording with the setups to replay it under.

On a cluster, a unit carries its recording's bytes, so that workers need none of our files.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from ctxvc import importers, processes
from ctxvc.errors import CtxvcError, Refused
from ctxvc.importers.file import Recording
from ctxvc.replay.conversation import Conversation, conversations
from ctxvc.replay.results.file import Key, ResultFile, code_version, key
from ctxvc.replay.results.result import Options, Result
from ctxvc.replay.stored import stored_checksum, stored_conversations
from ctxvc.store.store import Store


class Setup(msgspec.Struct, frozen=True):
    """What a conversation is replayed under: a policy as `--policy` names it, a budget in tokens, and options."""

    policy: str
    budget: int
    options: Options = Options()


class Source(msgspec.Struct, frozen=True):
    """A recording's file, or a session of the store at `path`; `size` is in bytes, to weigh the work."""

    path: Path
    name: str
    sha256: str
    size: int
    format: str = ""

    def conversations(self) -> Iterator[Conversation]:
        """Raises: CtxvcError."""
        if self.format:
            yield from conversations(self.path, self.format)
            return
        with Store(self.path) as store:
            yield from stored_conversations(store, self.name)


class Unit(msgspec.Struct, frozen=True):
    source: Source
    setups: tuple[Setup, ...]

    @property
    def size(self) -> int:
        """A measure of the work."""
        return self.source.size * len(self.setups)


class Outcome(msgspec.Struct, frozen=True):
    """The results of a unit, or the error that ended it."""

    unit: Unit
    results: tuple[Result, ...] = ()
    error: CtxvcError | None = None


#: How many times larger a gzipped recording is when unpacked; a guess.
_PACKED = 6
#: The fewest units per process, as far as there are setups.
_PARTS = 3

#: Replays a conversation under each setup; a module-level function, so that another process can call it.
Replay = Callable[[Conversation, Sequence[Setup]], Iterable[Result]]


def of_file(path: Path, format: str = "auto") -> Source:
    """The source for a file. Raises: BadInput if it is not a recording, CtxvcError if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CtxvcError(f"cannot read {path}: {error.strerror or error}") from error
    form = importers.detect(Recording(path)) if format == "auto" else format
    size = len(data) * (_PACKED if path.suffix == ".gz" else 1)
    return Source(path, path.name, hashlib.sha256(data).hexdigest(), size, form)


def of_session(store: Store, session: str) -> Source:
    """The source for a session. Raises: NotFound, Damaged."""
    sha256, size = stored_checksum(store, session)
    return Source(store.path, session, sha256, size)


def remaining(
    sources: Iterable[Source], setups: Sequence[Setup], file: ResultFile | None
) -> list[tuple[Source, tuple[Setup, ...]]]:
    """The sources that lack results in `file`, each with the setups that it lacks; without a file, all."""
    work = []
    for source in sources:
        own = (setup for setup in setups if file is None or not file.has(_key(source, setup)))
        if to_do := tuple(own):
            work.append((source, to_do))
    return work


def units(work: Sequence[tuple[Source, tuple[Setup, ...]]], jobs: int) -> list[Unit]:
    """Splits the work into units; if there are few sources, their setups are spread over the processes."""
    parts = -(-_PARTS * jobs // max(1, len(work)))
    chunked = []
    for source, setups in work:
        # A setup with a paid model is a unit of its own, so that another's failure does not lose its results.
        paid = tuple(setup for setup in setups if setup.options.model)
        free = tuple(setup for setup in setups if not setup.options.model)
        chunks = (*((setup,) for setup in paid), *(free[at::parts] for at in range(parts)))
        chunked += [Unit(source, chunk) for chunk in chunks if chunk]
    return chunked


def in_order(results: Iterable[Result], sources: Sequence[Source], setups: Sequence[Setup]) -> list[Result]:
    """The results of these sources and setups, ordered by source, conversation, then setup."""
    places = {
        _key(source, setup): (number, at) for number, source in enumerate(sources) for at, setup in enumerate(setups)
    }
    own = [result for result in results if key(result) in places]
    return sorted(own, key=lambda result: (places[key(result)][0], result.conversation, places[key(result)][1]))


def _key(source: Source, setup: Setup) -> Key:
    return (source.name, source.sha256, setup.policy, setup.budget, setup.options)


def outcomes(
    units: Iterable[Unit], replay: Replay, version: str, jobs: int, wait: Callable[[], None] = lambda: None
) -> Iterator[Outcome]:
    """Yields the outcome of each unit as it finishes, in any order; results do not depend on `jobs`.

    `wait` is called every second meanwhile. The processes end with this generator.
    """
    largest_first = sorted(units, key=lambda unit: -unit.size)
    work = partial(outcome, replay=replay, version=version)
    if jobs == 1 or len(largest_first) < 2:
        yield from map(work, largest_first)
        return
    yield from processes.outcomes(work, largest_first, jobs, wait)


def outcome(unit: Unit, replay: Replay, version: str) -> Outcome:
    """Replays a unit; the outcome has the error if one ends it."""
    try:
        recorded = _conversations(unit.source)
        results = tuple(
            msgspec.structs.replace(result, version=version, conversations=len(recorded))
            for conversation in recorded
            for result in replay(conversation, unit.setups)
        )
    except CtxvcError as error:
        return Outcome(unit, error=error)
    except OSError as error:
        return Outcome(unit, error=CtxvcError(f"cannot read {unit.source.path}: {error.strerror or error}"))
    return Outcome(unit, results)


@lru_cache(maxsize=1)
def _conversations(source: Source) -> tuple[Conversation, ...]:
    """The source's conversations; the next unit of a process is often of the same source."""
    return tuple(source.conversations())


def cluster_outcomes(
    address: str, units: Iterable[Unit], replay: Replay, version: str, wait: Callable[[], None] = lambda: None
) -> Iterator[Outcome]:
    """Yields each unit's outcome once, as it finishes, like `outcomes`; a worker that dies loses none.

    Raises: Refused without Dask, or if a unit is a session; CtxvcError if there is no cluster at the address.
    """
    units = list(units)
    if sessions := [unit.source.name for unit in units if not unit.source.format]:
        raise Refused(f"session {sessions[0]} is in a store: a cluster needs files", hint="name the recording's file")
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise Refused("a cluster needs the extra `cluster`", hint="pip install 'ctxvc[cluster]'") from error
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise CtxvcError(f"no cluster at {address[:80]}: {error}", hint="as in tcp://HOST:8786") from error
    with client:
        running = {
            client.submit(outcome_of, unit, unit.source.path.read_bytes(), replay, version, pure=False, retries=3): unit
            for unit in sorted(units, key=lambda unit: -unit.size)
        }
        for future in distributed.as_completed(running):
            try:
                yield future.result()
            except distributed.KilledWorker:
                died = CtxvcError("each worker that took it died", hint="give the workers more memory")
                yield Outcome(running[future], error=died)
            future.release()
            wait()


def outcome_of(unit: Unit, content: bytes, replay: Replay, version: str) -> Outcome:
    """Replays a unit from its file's content, on any machine; an error if the code there is not of `version`."""
    if code_version() != version:
        wrong = f"a worker has ctxvc {code_version()}, and this is {version}"
        return Outcome(unit, error=Refused(wrong, hint="install the same ctxvc on all machines"))
    with tempfile.TemporaryDirectory(prefix="ctxvc-replay-") as folder:
        path = Path(folder, unit.source.name)
        path.write_bytes(content)
        there = msgspec.structs.replace(unit, source=msgspec.structs.replace(unit.source, path=path))
        return msgspec.structs.replace(outcome(there, replay, version), unit=unit)
