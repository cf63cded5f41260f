"""What bounds the time of hostile or giant input: the search for secrets, thousands of scopes, a slow pattern."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ctxvc.cli.commands import demo
from ctxvc.core import scope as scoping
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import Body, Numbering
from ctxvc.core.secrets.redact import find
from ctxvc.store.format import ref_of
from ctxvc.store.git.fast_import import Commit, PackWriter
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.benchmarks.measuring import Figure
from tests.benchmarks.recorded import _bytes
from tests.core import adversarial

SESSION = "many"
#: 2026-01-01: a store that is made twice has the same commits.
_MOMENT = 1_767_225_600


SCOPES = (1_000, 10_000)
BLOCKS = 50_000
_CTXVC = (sys.executable, "-m", "ctxvc")
#: Commands that show one scope, or go to one: what else there is costs them little.
_OF_ONE_SCOPE = (("status",), ("notes",), ("log",), ("goto", "s7", "-m", "x"), ("note", "-m", "x"))


def figures(folder: Path) -> Iterator[Figure]:
    yield from scanner_figures()
    yield from pattern_figures(folder / "pattern")
    yield from scope_figures(folder / "scopes")
    yield from giant_figures(folder / "giant")


def scanner_figures() -> Iterator[Figure]:
    """How fast texts are searched for secrets that are made to take long, beside recordings: the best of three each.

    It is processor time, for nothing is waited for, and other work on the machine would decide about the ratios.
    """
    data = Path(os.environ.get("CTXVC_TEST_DATA", ""))
    files = sorted((data / "transcripts").glob("*/*.json*")) if data.name else [demo.SESSION]
    ordinary = b"".join(map(_bytes, files))[:4_000_000]
    texts = {name: made(len(ordinary) // 4) for name, made in {**adversarial.TEXTS, **adversarial.DENSE}.items()}
    took = {"": min(_processor(ordinary) for _ in range(3))}
    for name, text in texts.items():
        took[""] = min(took[""], _processor(ordinary))
        took[name] = min(_processor(text) for _ in range(1 if name in adversarial.DENSE else 3))
    base = len(ordinary) / took[""]
    yield Figure(f"look for secrets in recordings, {len(ordinary) / 1e6:.1f} MB", base / 1e6, "MB/s")
    for name, text in texts.items():
        speed = len(text) / took[name]
        target = "" if name in adversarial.DENSE else ">= 0.5 x"
        yield Figure(f"look for secrets: {name}", speed / 1e6, "MB/s", speed / base, target, "recordings")
    line = adversarial.TEXTS["one line of base64"](64_000_000)
    yield Figure("look for secrets in one line of 64 MB", 64 / _processor(line), "MB/s")


def _processor(text: bytes) -> float:
    """The seconds of processor time that a search for secrets takes."""
    began = time.process_time()
    find(text)
    return time.process_time() - began


def pattern_figures(folder: Path) -> Iterator[Figure]:
    """A pattern that takes nearly as long in each of 50,000 blocks as one look may take."""
    with create(folder / ".ctxvc") as store:
        store.create_session(SESSION)
        with StoredSession.open(store, SESSION) as writer, writer.bulk() as (packs, _):
            ledger, tip = writer.ledger("main"), writer.tip("main")
            numbering = Numbering.of(ledger, 0)
            for number in range(BLOCKS // 500):
                texts = [f"{500 * number + each} " + "a" * 17 for each in range(500)]
                message = Message(role="user", parts=tuple(wire.text_part(text, "user", "human") for text in texts))
                after, bodies = _added(ledger, numbering, message, aside=False)
                tip = packs.commit(_commit("main", "step", ledger, after, bodies, tip))
                ledger = after
    for seconds_given in ("10", "2"):
        arguments = (*_CTXVC, "-C", str(folder), "grep", "(?:a|a)+b(?=x)", "--timeout", seconds_given)
        began = time.perf_counter()
        result = subprocess.run(arguments, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        assert result.returncode == 1 and "bodies were searched" in result.stderr, result.stderr
        yield Figure(f"grep, {BLOCKS:,} blocks, a slow pattern, {seconds_given} s given", took, "s")


def scope_figures(folder: Path) -> Iterator[Figure]:
    for count in SCOPES:
        project = folder / str(count)
        store_of_scopes(project, count).close()
        target = {1_000: "<= 2", 10_000: "<= 20"}[count]
        yield _process(f"scopes, {count:,} of them", "scopes", folder=project, target=target)
        for words in _OF_ONE_SCOPE:
            yield _process(f"{words[0]}, in a session of {count:,} scopes", *words, folder=project)


def giant_figures(folder: Path) -> Iterator[Figure]:
    """A million blocks of a byte, in whole processes with the most memory that they have; and a line of 64 MB."""
    header = '{"format":"ctxvc-trajectory/1","id":"giant"}\n'
    turn = "".join(f'{{"role":"{role}","content":[{{"type":"text","text":"a"}}]}}\n' for role in ("user", "assistant"))
    texts = {
        "1,000,000 blocks of a byte": header + turn * 500_000,
        "a line of 64 MB": header + turn.replace('"a"', f'"{"x " * (32 << 20)}"', 1),
    }
    for name, text in texts.items():
        project = folder / name.split()[1]
        project.mkdir(parents=True)
        (project / "it.jsonl").write_text(text)
        with create(project / ".ctxvc"):
            pass
        for arguments in (("import", "it.jsonl"), ("status",), ("log",), ("prompt",), ("verify",)):
            yield _process(f"{arguments[0]}, {name}", *arguments, folder=project)


def _process(what: str, *arguments: str, folder: Path, target: str = "") -> Figure:
    """The processor time of a whole process, its wall time, and the most memory that it had.

    Raises: AssertionError where it fails.
    """
    began = time.perf_counter()
    child = subprocess.Popen([*_CTXVC, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, arguments
    wall, most = time.perf_counter() - began, _maximum(usage) / 1e6
    text = f"{wall:.1f} s by the clock, {most:,.0f} MB at most"
    return Figure(what, usage.ru_utime + usage.ru_stime, "s", None, target, text)


def _maximum(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- a store of many scopes


def store_of_scopes(folder: Path, count: int) -> Store:
    """A store with a session in which somebody left `main` for so many scopes, and came back from each.

    Each inherits the notes of all before it. The commits go straight to git, as those of an import do.
    """
    store = create(folder / ".ctxvc")
    store.create_session(SESSION)
    with StoredSession.open(store, SESSION) as writer, writer.bulk() as (packs, _):
        _write_scopes(packs, writer.ledger("main"), writer.tip("main"), count)
    return store


def _write_scopes(packs: PackWriter, main: Ledger, tip: str, count: int) -> None:
    numbering = Numbering.of(main, 0)
    for message in (
        Message(role="user", parts=(wire.text_part("go", "user", "human"),)),
        Message(role="assistant", reply="m", parts=(wire.text_part("ok", "assistant", "model"),)),
    ):
        after, bodies = _added(main, numbering, message, aside=False)
        tip = packs.commit(_commit("main", "step", main, after, bodies, tip))
        main = after
    for number in range(count):
        scope = f"s{number}"
        for words, switch in (
            (scoping.departure(scope, "why"), {"to": scope}),
            (scoping.arrival(scope, "done"), {"left": scope}),
        ):
            message = Message(role="user", parts=(scoping.note(words, "agent", **switch),))
            after, bodies = _added(main, numbering, message, aside=True)
            tip = packs.commit(_commit("main", "note", main, after, bodies, tip))
            main = after
            if "to" in switch:
                notes = tuple(row for row in main.segments[0] if row.kind == "note")
                segments = main.segments.updated({0: notes})
                counters = scoping.first_counters(main)
                meta = msgspec.structs.replace(main.meta, scope=scope, parent="main", counters=counters)
                packs.commit(_commit(scope, "scope", main, Ledger(meta=meta, segments=segments), (), tip))


def _added(ledger: Ledger, numbering: Numbering, message: Message, *, aside: bool) -> tuple[Ledger, tuple[Body, ...]]:
    """The ledger with a message, and the bodies that are new."""
    rows: list[Row]
    bodies: list[Body]
    if aside:
        rows, bodies = numbering.aside(message)
    else:
        entries = numbering.add(message)
        rows = [row for entry in entries for row in entry.rows]
        bodies = [body for entry in entries for body in entry.bodies]
    meta = msgspec.structs.replace(ledger.meta, counters=numbering.counters(0))
    return ledger.with_rows(rows).with_meta(meta), tuple(bodies)


def _commit(scope: str, op: str, before: Ledger, after: Ledger, bodies: tuple[Body, ...], parent: str) -> Commit:
    return Commit(
        ref=ref_of(SESSION, scope),
        before=before,
        after=after,
        message=f"{op} {scope}\n\nCtxvc-Op: {op}\nCtxvc-Actor: agent\n",
        actor="agent",
        time=_MOMENT,
        now=_MOMENT,
        bodies=bodies,
        parent=parent,
    )
