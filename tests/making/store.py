"""What the tests of the store share: messages to append, and what stock git and a fresh reader say of a store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

import ctxvc
from ctxvc.core.ledger.ledger import Counters, Ledger, Row
from ctxvc.store.format import message, ref_of
from ctxvc.store.git.fast_import import Commit
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.journal import Journal, Record, encode_record
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import purge
from ctxvc.store.store import Store, create
from tests.making.conversation import exchange, raw, reply

if TYPE_CHECKING:
    import pytest  # at run time it is a fifth of a second, and processes of their own import this module

#: The folder of the scripts that tests of the store run as processes of their own.
HERE = Path(__file__).parents[1] / "store"
ROOT = Path(ctxvc.__file__).parent.parent

#: A body whose bytes git changes where its settings tell it to.
CRLF = b"one\r\ntwo\r\n$Id$\r\n"

#: Session and scope → the tree of its tip: all that a store has of it.
Trees: TypeAlias = dict[tuple[str, str], object]


@contextmanager
def opened(path: Path, scope: str = "", session: str = "demo") -> Iterator[StoredSession]:
    """The session, as a process of its own opens store and session."""
    with Store(path) as store, StoredSession.open(store, session, scope) as made:
        yield made


def contents(session: StoredSession, scope: str = "") -> dict[str, bytes]:
    """Block id → body, as this session reads them; every checksum compared."""
    return {row.id: session.body(row, scope) for row in session.ledger(scope).rows()}


def afresh(path: Path, session: str = "demo", scope: str = "main") -> dict[str, bytes]:
    """Block id → body, as a process reads them that opens the store now."""
    with opened(path, scope, session) as reader:
        return contents(reader, scope)


def archived(row: Row, **fields: object) -> Row:
    """`row` as a verb leaves it."""
    return msgspec.structs.replace(
        row, **{"state": "archived", "stub": f"[{row.handle}]", "removed_by": "user", **fields}
    )


def archive(session: StoredSession, *ids: str, scope: str = "") -> None:
    rows = [archived(session.ledger(scope)[block]) for block in ids]
    session.change(subject=f"archive {' '.join(ids)}", op="archive", actor="user", rows=rows, scope=scope)


def trees(store: Store) -> Trees:
    tips = store.all_tips().items()
    return {(session, scope): store.repository[tip].tree_id for session, of in tips for scope, tip in of.items()}


def git(path: Path, *arguments: str) -> str:
    """What stock git prints of a store."""
    answer = subprocess.run(["git", f"--git-dir={path}", *arguments], capture_output=True, check=True)
    return answer.stdout.decode("utf-8", "surrogateescape")


def git_bytes(path: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={path}", *arguments], capture_output=True, check=True).stdout


def complaints(path: Path) -> str:
    """What `git fsck --full --strict` has to say; empty for a store in order."""
    answer = subprocess.run(
        ["git", f"--git-dir={path}", "fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout + answer.stderr + (f"exit {answer.returncode}" if answer.returncode else "")


def commits(path: Path, session: str = "demo", scope: str = "main") -> list[str]:
    """What a scope's commits are, oldest first, without the one that it began with.

    Of a step its numbers, as in `step 1: 6 blocks, 2.0 kB`, of anything else its subject.
    """
    log = git(path, "log", "--first-parent", "--reverse", "--format=%B%x00", f"refs/heads/{session}/{scope}")
    return [summary(message.strip("\n")) for message in log.split("\0")[1:-1]]


def summary(message: str) -> str:
    """The numbers of a step's commit, or the subject of any other."""
    numbers = re.search(r"^Step ([0-9]+) of turn [0-9]+: ([^\n]*)\.$", message, re.MULTILINE)
    return f"step {numbers[1]}: {numbers[2]}" if numbers else message.partition("\n")[0]


def littered(path: Path) -> list[str]:
    """Files that no store at rest has: locks of git, temporary files, crash reports."""
    return sorted(
        str(found.relative_to(path))
        for found in path.rglob("*")
        if found.name != "store.lock"
        and (
            found.name.endswith((".lock", ".keep", ".new"))
            or found.name.startswith(("tmp_", ".tmp", "fast_import_crash"))
        )
    )


def never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush by time or number of steps: only a turn's end, a verb, `flush` and `close` make one."""
    monkeypatch.setattr(writers, "FLUSH_SECONDS", 1e9)
    monkeypatch.setattr(writers, "FLUSH_STEPS", 1 << 30)


@contextmanager
def unflushed() -> Iterator[None]:
    """All stays in the journal, as long as this lasts."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredSession, "_flush", lambda _: None)
        yield


def start(
    script: str, *arguments: object, env: dict[str, str] | None = None, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A process of its own that runs a script of this folder, in an environment that finds the package."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(HERE / script), *map(str, arguments)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        pass_fds=tuple(keep),
    )  # fmt: skip


def go(*processes: subprocess.Popen[bytes]) -> None:
    """All of them are told to go, once all are ready."""
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()


def together(*processes: subprocess.Popen[bytes]) -> list[list[str]]:
    """What the processes print once all of them are ready and may go; none may fail."""
    with ExitStack() as running:
        for process in processes:
            running.enter_context(process)
            running.callback(process.kill)
        go(*processes)
        answers = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err.decode()
            answers.append(out.decode().splitlines())
    return answers


def killed(process: subprocess.Popen[bytes], seconds: float, *, late: bool = True) -> list[str]:
    """The whole lines that the process prints until it is killed; `late`, so many seconds after its first line."""
    with process:
        go(process)
        assert process.stdout is not None
        first = process.stdout.readline() if late else b""  # on a slow machine it may come late
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        out = first + process.stdout.read()
        killer.join()
    return out[: out.rfind(b"\n") + 1].decode().splitlines()


def add_scope(session: StoredSession, name: str) -> None:
    """A scope that begins empty on top of main's tip, as an import makes one for a sub-agent."""
    origin = session.ledger("main")
    meta = msgspec.structs.replace(origin.meta, scope=name, parent="main", counters=Counters())
    commit = Commit(
        ref=ref_of(session.name, name), before=origin, after=Ledger(meta=meta),
        message=message(f"scope {name}", {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host"}), actor="host", time=0,
        now=session.store.now(), parent=session.tip("main"),
    )  # fmt: skip
    with session.bulk() as (writer, _):
        writer.commit(commit)


def write_everything(project: Path) -> Path:
    """A store in `project`, through all that writes one."""
    with create(project / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store) as session:
            session.append(raw(CRLF, ext="txt"), reply("ok"))
            session.append(*exchange(1))
            session.flush()
            archive(session, "B3")
            add_scope(session, "side")
        return store.path


def acknowledge(store: Store, record: Record, session: str = "demo") -> None:
    """One more record in the journal, as a process leaves it that died before the flush."""
    journal = Journal(store.journal_path(session))
    head, records, _, _ = journal.read()
    assert head is not None
    newest = max([head.base, *(seq for seq, _ in records)])
    journal.append([encode_record(newest + len(record.changes), record)])
    journal.close()


def decide(path: Path, text: str) -> None:
    """A purge of the text is decided, and was killed before anything of it was done."""
    import pytest

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with Store(path) as store, pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(purge_apply, "apply", killed)
        purge.purge(store, purge.PurgeRequest(texts=(text,)))
