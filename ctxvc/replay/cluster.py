"""Units of work on a Dask cluster: each with its recording's bytes, so that workers need no file of ours."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError, Refused
from ctxvc.replay.results.file import code_version
from ctxvc.replay.work import Outcome, Replay, Unit, outcome


def outcomes(
    address: str, units: Iterable[Unit], replay: Replay, version: str, wait: Callable[[], None] = lambda: None
) -> Iterator[Outcome]:
    """The outcome of each unit as it is done, once each, as `work.outcomes`; a worker that dies loses none.

    Raises: Refused without Dask, or if a unit is no file; CtxvcError if no cluster at the address.
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
    """Does a unit whose file has this content, wherever it is; an error where the code is not that of `version`."""
    if code_version() != version:
        wrong = f"a worker has ctxvc {code_version()}, and this is {version}"
        return Outcome(unit, error=Refused(wrong, hint="install the same ctxvc on all machines"))
    with tempfile.TemporaryDirectory(prefix="ctxvc-replay-") as folder:
        path = Path(folder, unit.source.name)
        path.write_bytes(content)
        there = msgspec.structs.replace(unit, source=msgspec.structs.replace(unit.source, path=path))
        return msgspec.structs.replace(outcome(there, replay, version), unit=unit)
