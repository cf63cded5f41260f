"""Damaged files: one file of a store is spoiled, and everything that reads says what is right, or that it is not."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from ctxvc.errors import CtxvcError
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from tests.faults.summary import Tell, Times, line
from tests.making.conversation import human, reply
from tests.making.project import build

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7_200)]

READING = (
    ("status",), ("context",), ("sessions",), ("scopes",), ("notes",), ("log",), ("show",), ("show", "B1"), ("prompt",),
    ("diff", "main~3", "main"), ("grep", "-F", "test"), ("blame", "B1"), ("plan",), ("policies",), ("verify",),
    ("doctor",),
)  # fmt: skip

Bodies = dict[tuple[str, str, str], bytes]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a store in which something waits in a journal too."""
    project = tmp_path_factory.mktemp("damage") / "project"
    build(project)
    ids = (f"{number:016x}" for number in count())
    with ExitStack() as fixed:  # so that one seed damages the same bytes each time
        fixed.enter_context(patch.object(Store, "now", lambda _: 1_700_000_000))
        fixed.enter_context(patch.object(Store, "now_iso", lambda _: "2023-11-14T22:13:20Z"))
        fixed.enter_context(patch.object(Store, "new_id", lambda _: next(ids)))
        fill(project)
    return project


def fill(project: Path) -> None:
    """A second session, with a message that waits for its answer."""
    with Store(project / FOLDER) as store:
        store.create_session("second")
        with StoredSession.open(store, "second") as session:
            for number in range(40):
                session.append(human(f"question {number} " + "x" * number * 50), reply(f"answer {number}"))
            session.append(human("waits for its answer"))


def bodies(path: Path) -> tuple[Bodies, int]:
    """What can be read, each body by itself; and how many errors there were instead."""
    there: Bodies = {}
    errors = 0
    with Store(path) as store:
        for name, scopes in store.all_tips().items():
            for scope in scopes:
                try:
                    with StoredSession.open(store, name, scope) as session:
                        rows = list(session.ledger(scope).rows())
                        for row in rows:
                            try:
                                there[name, scope, row.id] = session.body(row, scope)
                            except CtxvcError:
                                errors += 1
                except CtxvcError:
                    errors += 1
    return there, errors


def spoil(file: Path, chance: random.Random) -> str:
    """Damages a file; says how."""
    data = bytearray(file.read_bytes())
    file.chmod(0o600)
    how = chance.choice(["flip", "flip", "flip", "truncate", "zero", "remove", "garbage"]) if data else "garbage"
    match how:
        case "flip":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "truncate":
            del data[chance.randrange(len(data)) :]
        case "zero":
            start = chance.randrange(len(data))
            data[start : start + 512] = bytes(len(data[start : start + 512]))
        case "garbage":
            data += chance.randbytes(64)
    if how == "remove":
        file.unlink()
    else:
        file.write_bytes(data)
    return how


def problem(result: Result) -> str:
    """What is wrong with how a command ended; empty if nothing is."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"traceback: {result.exception!r}"
    if result.exit_code not in (0, 1, 2, 3, 4):
        return f"exit code {result.exit_code}"
    if result.exit_code in (2, 3, 4) and not result.stderr.strip() and not result.stdout.strip():
        return f"exit code {result.exit_code} without a word"
    return ""


def ran(project: Path) -> dict[tuple[str, ...], Result]:
    return {command: CliRunner().invoke(cli, ["-C", str(project), *command]) for command in READING}


def test_one_damaged_file_never_gives_a_wrong_body(
    pristine: Path, tmp_path: Path, seed: int, times: Times, tell: Tell
) -> None:
    """What looks as a crash or a person would leave it is counted apart: a journal's end cut off, a branch deleted."""
    right, none = bodies(pristine / FOLDER)
    assert right and none == 0
    before = ran(pristine)
    files = sorted(
        str(file.relative_to(pristine))
        for file in (pristine / FOLDER).rglob("*")
        if file.is_file() and "lock" not in file.parts
    )
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in range(times(240)):
        project = Path(shutil.copytree(pristine, tmp_path / "project", symlinks=True))
        name = files[case % len(files)]
        how = spoil(project / name, chance)
        where = f"case {case}, {how} {name}"
        try:
            there, errors = bodies(project / FOLDER)
        except CtxvcError:
            there, errors = {}, 1
        except Exception as error:
            there, errors = {}, 1
            wrong.append(f"{where}: {error!r}")
        counts["wrong bodies"] += sum(right.get(key) != body for key, body in there.items())
        wrong += [f"{where}: a wrong body of {key}" for key, body in there.items() if right.get(key) != body]
        runs = ran(project)
        counts["commands"] += len(runs)
        wrong += [
            f"{where}: {' '.join(command)}: {trouble}"
            for command, result in runs.items()
            if (trouble := problem(result))
        ]
        torn = "/ctxvc/journal/" in name and how in ("truncate", "zero", "remove")
        deleted = "/refs/heads/" in name and how == "remove"
        complained = errors or any(result.exit_code != before[command].exit_code for command, result in runs.items())
        counts["told"] += bool(complained)
        lost = len(right) - len(there)
        counts["torn"] += torn
        counts["deleted"] += deleted
        if lost and not (complained or torn or deleted):
            counts["bodies missing without a word"] += lost
            wrong.append(f"{where}: {lost} bodies are missing, and nobody says so")
        shutil.rmtree(project)
    tell(line("damaged files", cases=times(240), seed=seed, commands=counts["commands"], told=counts["told"],
              wrong_bodies=counts["wrong bodies"], missing_without_a_word=counts["bodies missing without a word"],
              torn_journals=counts["torn"], deleted_branches=counts["deleted"],
              wrong=len(wrong)))  # fmt: skip
    assert not wrong, "\n".join(wrong)
