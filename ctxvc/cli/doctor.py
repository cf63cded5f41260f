"""`doctor`: looks at everything that ctxvc stands on. What it cannot look at is a finding, too."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from ctxvc import importers, tokens
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.importing import project_root
from ctxvc.cli.output import Cell, Column, Output, Styled, Table, counted
from ctxvc.cli.schemas import Doctor, DoctorItem
from ctxvc.core.text import human_bytes
from ctxvc.errors import CtxvcError
from ctxvc.importers.reading import Recording
from ctxvc.recording import log, places, requests
from ctxvc.store import check, git, upkeep
from ctxvc.store import format as fmt
from ctxvc.store.store import MOST_PACKS, Store

_DAY = 86_400
#: Days after which Claude Code deletes a transcript that nobody wrote to, where its settings say nothing.
_KEPT_DAYS = 30
_SOON_DAYS = 7
_MOST = 20  # findings of the store that are listed
_COLORS = {"ok": "green", "note": "yellow", "problem": "red"}


@command("doctor", "ctxvc doctor")
@json_option
@click.pass_obj
def doctor(app: App) -> None:
    """Look for what is wrong, and say what mends it.

    Looks at Python, git, the tokenizer, the store and its permissions, at what is not committed yet, and at recorded
    sessions that are not in the store and will be deleted by the program that recorded them.
    """
    items = [*_surroundings(), *_about_store(app), *_tried("transcripts", "", lambda: _transcripts(app))]
    if app.output.json:
        app.output.value(Doctor(items=items))
    else:
        _tell(app.output, items)


def _tell(output: Output, items: list[DoctorItem]) -> None:
    columns = [Column("level"), Column("check"), Column("found", least=12), Column("mend")]
    rows: list[list[Cell]] = [
        [Styled(item.level, _COLORS[item.level]), item.check, item.found, item.mend] for item in items
    ]
    output.table(Table(columns, rows))


def _tried(check: str, mend: str, look: Callable[[], Iterator[DoctorItem]]) -> Iterator[DoctorItem]:
    """What `look` finds; if it cannot look, that is what it finds."""
    try:
        yield from look()
    except CtxvcError as error:
        yield _problem(check, str(error), error.hint or mend)
    except OSError as error:
        yield _problem(check, f"{error.filename}: {error.strerror}", mend)


def _ok(check: str, found: str) -> DoctorItem:
    return DoctorItem(check=check, level="ok", found=found, mend="")


def _note(check: str, found: str, mend: str = "") -> DoctorItem:
    return DoctorItem(check=check, level="note", found=found, mend=mend)


def _problem(check: str, found: str, mend: str) -> DoctorItem:
    return DoctorItem(check=check, level="problem", found=found, mend=mend)


# --- what ctxvc stands on


def _surroundings() -> Iterator[DoctorItem]:
    yield _ok("python", sys.version.split()[0])
    yield from _tried("git", "install git", _git)
    yield from _tried("tokenizer", "install ctxvc anew", _tokenizer)


def _git() -> Iterator[DoctorItem]:
    version = git.version()
    oldest = ".".join(map(str, git.OLDEST))
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])
    if numbers < git.OLDEST:
        yield _problem("git", f"{version or 'no version'}: {oldest} is the oldest that works", f"install git {oldest}")
    else:
        yield _ok("git", version)


def _tokenizer() -> Iterator[DoctorItem]:
    chosen = tokens.tokenizer()
    if chosen.estimated:
        yield _note("tokenizer", "tiktoken is not installed: tokens are a guess", "install ctxvc anew")
    else:
        began = time.monotonic()
        chosen.count("works offline")
        yield _ok("tokenizer", f"{chosen.name}, loaded offline in {time.monotonic() - began:.1f} s")


# --- the store


def _about_store(app: App) -> Iterator[DoctorItem]:
    try:
        path = app.store_path()
    except CtxvcError as error:
        yield _note("store", str(error), "ctxvc init")
        return
    yield from _tried("store", "ctxvc verify", lambda: _store(path))


def _store(path: Path) -> Iterator[DoctorItem]:
    with Store(path) as store:
        yield _ok("store", f"{path}, format {git.config(store.repository).get('ctxvc.format', fmt.FORMAT)}")
        yield from _size(store)
        yield from _checked(store)
        yield from _hooks(store)
        for name in store.sessions():
            yield from _tried(f"session {name}", "ctxvc verify", lambda name=name: _session(store, name))  # type: ignore[misc]


def _size(store: Store) -> Iterator[DoctorItem]:
    sizes = upkeep.sizes(store)
    found = f"{human_bytes(sizes.total)}, {human_bytes(sizes.packed)} of it in {counted(sizes.packs, 'pack')}"
    yield _note("size", found, "ctxvc gc") if sizes.packs > MOST_PACKS else _ok("size", found)


def _checked(store: Store) -> Iterator[DoctorItem]:
    """What a quick check finds: permissions, leftovers, journals, refs, and what stands now."""
    report = check.verify(store, deep=False)
    for finding in report.findings[:_MOST]:
        tell = _problem if finding.level == "damage" else _note
        yield tell("contents", f"{finding.where}: {finding.what}", finding.hint)
    if len(report.findings) > _MOST:
        yield _problem("contents", f"{len(report.findings) - _MOST} findings more", "ctxvc verify")
    if not report.findings:
        yield _ok("contents", f"{counted(report.blocks, 'block')} that stand now are what was recorded; private to you")


def _hooks(store: Store) -> Iterator[DoctorItem]:
    """What hooks asked and is not done, and what went wrong in them, where nobody could be told."""
    if waiting := requests.pending(store.path):
        yield _note("hooks", f"{counted(len(waiting), 'request')} not done yet", "ctxvc watch --once")
    for entry in log.entries(store.path):
        yield _note("hooks", entry, f"rm {log.file(store.path)}, once it is mended")
    if places.home(store.path).is_dir() and not (waiting or log.entries(store.path)):
        yield _ok("hooks", "sessions are recorded by hooks; nothing went wrong")


def _session(store: Store, name: str) -> Iterator[DoctorItem]:
    session = store.writer(name)
    if waiting := session.waiting():
        mend = "ctxvc import --final" if session.ledger().meta.source else ""
        found = f"{counted(waiting, 'record')} of an open step not committed yet; safe in the journal"
        yield _note(f"session {name}", found, mend)


# --- transcripts


def _transcripts(app: App) -> Iterator[DoctorItem]:
    """Whether the project has recorded sessions that are not in the store, and until when they exist."""
    found = {
        path: form
        for project in (project_root(app.folder), app.folder.resolve())
        for form, path in importers.find(project, Path.home(), app.env)[0]
    }
    known = _known(app)
    # Codex and pi write a time before the id that the recording has.
    missing = [path for path in found if not Recording(path).stem.endswith(known)]
    if not missing:
        yield _ok("transcripts", f"{len(found)} recorded sessions of this project, all in the store")
        return
    told = f"{len(missing)} of {len(found)} recorded sessions of this project are not in the store"
    doomed = [path.stat().st_mtime for path in missing if found[path] == "claude-code"]
    days = (min(doomed) - time.time()) / _DAY + _kept_days(app) if doomed else _KEPT_DAYS
    if days < _SOON_DAYS:
        yield _problem(
            "transcripts", f"{told}; Claude Code deletes the oldest in {max(0, int(days))} days", "ctxvc import"
        )
    else:
        yield _note("transcripts", told, "ctxvc import")


def _known(app: App) -> tuple[str, ...]:
    """The ids of the recordings that are in the store."""
    try:
        with app.store() as store:
            metas = [store.reader.meta(tip) for scopes in store.all_tips().values() for tip in scopes.values()]
    except CtxvcError:
        return ()  # told elsewhere
    return tuple({meta.source.id for meta in metas if meta.source})


class _Settings(msgspec.Struct, rename="camel"):
    cleanup_period_days: int = _KEPT_DAYS


def _kept_days(app: App) -> int:
    """How long Claude Code keeps a transcript."""
    folder = app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"
    try:
        return msgspec.json.decode(Path(folder, "settings.json").read_bytes(), type=_Settings).cleanup_period_days
    except (OSError, msgspec.MsgspecError):
        return _KEPT_DAYS
