"""`doctor`: checks everything that ctxvc depends on. A check that cannot run is a finding, too."""

from __future__ import annotations

import difflib
import lzma
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Annotated

import click

from ctxvc.claude_code import installed, requests, spool
from ctxvc.claude_code.installed import Transcript
from ctxvc.cli import settings
from ctxvc.cli.answers.shared import Answer, Item, described, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, counted, hint_of, message_of, plain
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.display import human_bytes
from ctxvc.errors import CtxvcError, Damaged, render
from ctxvc.importers.claude_code import FORMAT
from ctxvc.phrases import COMMAND_LINE
from ctxvc.recording import git_hooks, log, places
from ctxvc.store import checkout, pending_plans, push_attempt, worktrees
from ctxvc.store import format as fmt
from ctxvc.store.git import allowlist
from ctxvc.store.git import program as git
from ctxvc.store.git.program import git_says
from ctxvc.store.log import repair
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links_inbox
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.secrets import redaction, secret_scanner
from ctxvc.store.store import MOST_PACKS, Store
from ctxvc.store.trust import project_trust, trust
from ctxvc.store.upkeep import gc
from ctxvc.store.verify import verify as check
from ctxvc.tokens import count
from ctxvc.tokens.models import MODELS_DATE

#: Days after which prices have probably changed.
_OLD_DAYS = 183
#: From so few days before Claude Code deletes a transcript, that is a problem rather than a note.
_SOON_DAYS = 7
_MOST = 20  # the most findings of the store that are listed
_MOST_NAMED = 4  # the most files named as open to others
_MOST_CHECKOUTS = 5  # the most checkouts that are inspected

#: With fewer free bytes on the disk than this, a gc may not have enough room.
_LITTLE = 500_000_000

#: The name of the check of the store's contents. A problem in it is damage.
_CONTENTS = "contents"
_PROGRAM = re.compile(r"^program=(.+)$", re.MULTILINE)
_SETTINGS = ("ctxvc.format", redaction.SETTING, secret_scanner.SETTING)
#: The command that puts the hooks into a file of settings, by whose it is.
_INSTALL = {"user": "ctxvc install claude-code --user", "project": "ctxvc install claude-code"}
_COLORS = {"ok": "green", "note": "yellow", "problem": "red"}


@command("doctor", "ctxvc doctor")
@click.option("--repair", is_flag=True, help="Treat unreadable journal records as lost; their bytes are set aside.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, repair: bool) -> None:
    """Checks Python, git, the tokenizer, the age of the price table, the store with its size and permissions, secret
    scanning, uncommitted records, pending plans, checkouts, hooks and their log, and recorded sessions that are missing
    from the store, in part or in full, and that their program will delete. Exits with 3 if the store is damaged.

    A damaged journal record is skipped, and `verify` fails until --repair marks it as lost. A backup of the store may
    still have it.
    """
    app = ctx.ensure_object(App)
    app.surveying = True
    items = [
        _ok("python", sys.version.split()[0]),
        *_guarded("git", "install git", _git),
        *_guarded("tokenizer", "reinstall ctxvc", _tokenizer),
        *_prices(),
        *_guarded("config", "`ctxvc help config`", lambda: _settings(app)),
        *(_guarded("repair", "ctxvc verify", lambda: _repaired(app)) if repair else ()),
        *_about_store(app),
        *_guarded("git hooks", "", lambda: _project_hook(app)),
        *_guarded("wire", "", lambda: _wire(app)),
        *_guarded("transcripts", "", lambda: _transcripts(app)),
    ]
    if app.output.json or not app.output.terminal:
        app.output.answer(Doctor(items=items), table_of(DoctorItem, items))
    else:
        app.output.lines(_screen_lines(app.output, items))
    if any(item.check == _CONTENTS and item.level == "problem" for item in items):
        ctx.exit(Damaged.exit_code)


def _screen_lines(output: Output, items: list[DoctorItem]) -> Iterator[str]:
    """Each finding, whole, with what to do about it on lines of its own."""
    level, check = max(len(item.level) for item in items), max(len(item.check) for item in items)
    margin = level + check + 4
    for item in items:
        head = f"{output.style(item.level.ljust(level), fg=_COLORS[item.level])}  {item.check.ljust(check)}  "
        for text in filter(None, (item.found, item.mend and f"→ {item.mend}")):
            for line in output.value_lines(plain(text), margin):
                yield f"{head}{line}"
                head = " " * margin


def _settings(app: App) -> Iterator[DoctorItem]:
    """The files of settings, and each value with where it comes from."""
    path = settings.person_path(app.env)
    yield _ok("config", str(app.person.path or (f"none: there is no {path}" if path else "none")))
    data = settings.project_content(app.project_file.parent)
    if data is not None and not project_trust.is_accepted(app.project_file, data):
        found = f"{app.project_file} is not in effect"
        yield DoctorItem(check="config", level="note", found=found, mend="`ctxvc trust` shows and accepts it")
    for name in settings.NAMES:
        if setting := app.setting(name):
            yield _ok(name, f"{settings.written(setting.value)}, from {setting.origin}")
    if app.person.share:
        yield _ok("share", f"push {app.person.share['push']}, from {app.person.path}")
    for name, expansion in app.person.aliases.items():
        yield _ok("alias", f"{name} = {shlex.join(expansion)}")


def _guarded(check: str, mend: str, look: Callable[[], Iterator[DoctorItem]]) -> Iterator[DoctorItem]:
    """The findings of `look`; its error is a finding, too."""
    try:
        yield from look()
    except CtxvcError as error:
        check = _CONTENTS if isinstance(error, Damaged) else check
        yield _problem(check, message_of(error), hint_of(error) or mend)
    except OSError as error:
        yield _problem(check, f"{error.filename}: {error.strerror}", mend)


def _ok(check: str, finding: str) -> DoctorItem:
    return DoctorItem(check=check, level="ok", found=finding, mend="")


def _note(check: str, finding: str, mend: str = "") -> DoctorItem:
    return DoctorItem(check=check, level="note", found=finding, mend=mend)


def _problem(check: str, finding: str, mend: str) -> DoctorItem:
    return DoctorItem(check=check, level="problem", found=finding, mend=mend)


def _git() -> Iterator[DoctorItem]:
    version = git.version()
    oldest = ".".join(map(str, git.OLDEST))
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])
    if numbers < git.OLDEST:
        yield _problem("git", f"{version or 'no version'}: {oldest} or newer is required", f"install git {oldest}")
    else:
        yield _ok("git", version)


def _prices() -> Iterator[DoctorItem]:
    """How old the table of models and prices is."""
    days = (datetime.now(timezone.utc).date() - date.fromisoformat(MODELS_DATE)).days
    if days > _OLD_DAYS:
        yield _note("prices", f"models and prices are those of {MODELS_DATE}, {days} days ago", "update ctxvc")
    else:
        yield _ok("prices", f"models and prices of {MODELS_DATE}")


def _tokenizer() -> Iterator[DoctorItem]:
    chosen = count.tokenizer()
    if chosen.estimated:
        yield _note("tokenizer", "tiktoken is not installed: token counts are estimates", "reinstall ctxvc")
        return
    try:
        lzma.decompress(count.VOCABULARY.read_bytes())  # has its own checksum; loading it would take half a second
    except lzma.LZMAError as error:
        yield _problem("tokenizer", f"the vocabulary of {chosen.name} is damaged: {error}", "reinstall ctxvc")
    else:
        yield _ok("tokenizer", f"{chosen.name}, works offline")


def _about_store(app: App) -> Iterator[DoctorItem]:
    try:
        path = app.store_path()
    except CtxvcError as error:
        yield _note("store", message_of(error), "ctxvc init")
        return
    yield from _guarded("store", "ctxvc verify", lambda: _store(path))


def _repaired(app: App) -> Iterator[DoctorItem]:
    with Store(app.store_path()) as store:
        app.report_remaining(store)
        accepted = repair.accept(store)
    for notice in accepted:
        yield _note("repair", f"treated as lost: {notice}", "a backup of the store may have them")
    if not accepted:
        yield _ok("repair", "no losses: every journal can be read")


def _store(path: Path) -> Iterator[DoctorItem]:
    with Store(path) as store:
        for folder in store.remaining:
            yield _note(
                "purged", f"an interrupted purge was finished; {folder} may still have erased content", "delete it"
            )
        yield _ok("store", f"{path}, format {git.config(store.repository).get('ctxvc.format', fmt.FORMAT)}")
        yield from _size(store)
        yield from _checked(store)
        yield from _guarded("permissions", "ctxvc verify", lambda: _open_to_others(store.path))
        yield from _unknown_settings(store)
        yield _secrets(store)
        yield from _hooks(store)
        if problem := push_attempt.last(store.path).problem:
            yield _note("push", f"not pushed to {problem}", "ctxvc push")
        yield from _store_hooks(store)
        yield from _guarded("checkouts", "ctxvc verify", lambda: _checkouts(store))
        yield from _guarded("purged", "ctxvc verify", lambda: _purged(store))
        for name in store.sessions():
            yield from _guarded(f"session {name}", "ctxvc verify", lambda name=name: _session(store, name))  # type: ignore[misc]


def _size(store: Store) -> Iterator[DoctorItem]:
    sizes = gc.sizes(store)
    finding = f"{human_bytes(sizes.total)}, {human_bytes(sizes.packed)} of it in {counted(sizes.packs, 'pack')}"
    yield _note("size", finding, "ctxvc gc") if sizes.packs > MOST_PACKS else _ok("size", finding)
    free = shutil.disk_usage(store.path).free
    if free < max(_LITTLE, 2 * sizes.packed):
        yield _problem("disk", f"{human_bytes(free)} free: too little for a gc or a long session", "free some space")


def _checked(store: Store) -> Iterator[DoctorItem]:
    """The findings of a quick check: permissions, leftovers, journals, refs, and current bodies."""
    with Progress("checking", format=lambda count: f"{count:,}") as progress:
        report = check.verify(store, progress.reach, deep=False)
    for finding in report.findings[:_MOST]:
        item = _problem if finding.level == "damage" else _note
        yield item(_CONTENTS, f"{finding.where}: {finding.what}", render(finding.hint, COMMAND_LINE))
    if len(report.findings) > _MOST:
        item = _problem if report.damaged else _note
        yield item(_CONTENTS, f"{len(report.findings) - _MOST} more findings", "ctxvc verify")
    if not report.findings:
        yield _ok(
            _CONTENTS, (f"{counted(report.blocks, 'block')} in current commits are as recorded; readable only by you")
        )


def _open_to_others(path: Path) -> Iterator[DoctorItem]:
    """The files of ours in the store that others could read or change, if they can enter it."""
    open_paths = []
    for entry in (path / "ctxvc", *sorted(path.glob("ctxvc/**/*"))):
        try:
            mode = entry.lstat().st_mode
        except FileNotFoundError:
            continue  # a request that has been completed meanwhile
        if (stat.S_ISDIR(mode) and mode & 0o022) or (stat.S_ISREG(mode) and mode & 0o077):
            open_paths.append(f"{entry.relative_to(path)} ({stat.S_IMODE(mode):04o})")
    if open_paths:
        item = _problem if stat.S_IMODE(path.stat().st_mode) & 0o077 else _note
        more = f" and {len(open_paths) - _MOST_NAMED} more" if len(open_paths) > _MOST_NAMED else ""
        finding = f"open to others: {', '.join(open_paths[:_MOST_NAMED])}{more}"
        yield item("permissions", finding, f"chmod -R go= {shlex.quote(str(path / 'ctxvc'))}")


def _unknown_settings(store: Store) -> Iterator[DoctorItem]:
    """The unknown settings under our name in the store's config, mostly slips, and those that the person accepted."""
    for name in git.config(store.repository):
        if name.startswith("ctxvc.") and name not in _SETTINGS:
            close = difflib.get_close_matches(name, _SETTINGS, 1)
            finding = f"unknown setting {name}" + (f"; did you mean {close[0]}?" if close else "")
            yield _note("settings", finding, f"git --git-dir={shlex.quote(str(store.path))} config --unset {name}")
    for setting in trust.look(store.path).settings[:_MOST]:
        yield _note("settings", f"you accepted {setting.key} in {setting.file}", "ctxvc trust --revoke")


def _secrets(store: Store) -> DoctorItem:
    """The scanners that search recordings for secrets."""
    settings = git.config(store.repository)
    scanner = settings.get(secret_scanner.SETTING, "")
    setting = f"git --git-dir={shlex.quote(str(store.path))} config"
    if not redaction.is_wanted(store.path):
        return _note("secrets", "not searched for: every byte is kept", f"{setting} --unset {redaction.SETTING}")
    if not scanner:
        return _ok("secrets", "searched for with our rules")
    if scanner != secret_scanner.KINGFISHER:
        return _problem("secrets", f"unknown scanner {scanner}", f"{setting} --unset {secret_scanner.SETTING}")
    version = secret_scanner.installed()
    if not version:
        finding = f"scanner {scanner} is not installed: nothing can be recorded"
        return _problem("secrets", finding, "pip install 'ctxvc[secrets]'")
    return _ok("secrets", f"searched for with our rules and {scanner} {version}")


def _hooks(store: Store) -> Iterator[DoctorItem]:
    """The unfinished requests of hooks, and their errors, which had no one to report to."""
    if waiting := requests.pending(store.path):
        yield _note("hooks", f"{counted(len(waiting), 'request')} not processed yet", "ctxvc watch --once")
    aside = requests.aside(store.path)
    for path, request in aside[:_MOST]:
        finding = f"{request.transcript} could not be recorded in full ({path.relative_to(store.path)})"
        yield _problem("hooks", finding, "ctxvc watch --once")
    for entry in log.entries(store.path):
        yield _note("hooks", entry, f"rm {log.file(store.path)}, once that is fixed")
    commits = links_inbox.pending(store.path)
    if unlinked := sum(commit is not None for _, commit in commits):
        yield _note("hooks", f"{counted(unlinked, 'code commit')} not linked yet", "ctxvc why HEAD")
    # From an older version, another machine, or the store's previous owner: only a person can know.
    foreign = [path for path in requests.foreign(store.path) if os.path.lexists(path)]
    if foreign:
        finding = f"{counted(len(foreign), 'request')} made on another machine, not processed here"
        yield _note("hooks", finding, f"ctxvc import; {_removal(foreign)}")
    unknown = [path for path, commit in commits if commit is None and os.path.lexists(path)]
    if unknown:
        finding = f"{counted(len(unknown), 'code commit')} noted on another machine, not linked here"
        yield _note("hooks", finding, _removal(unknown))
    quiet = not (waiting or aside or commits or foreign or log.entries(store.path))
    if quiet and places.home(store.path).is_dir():
        yield _ok("hooks", "no errors")


def _removal(paths: list[Path]) -> str:
    """The command that removes the paths; of many, the first ones."""
    return f"rm -r {' '.join(shlex.quote(str(path)) for path in paths[:_MOST_NAMED])}"


def _store_hooks(store: Store) -> Iterator[DoctorItem]:
    """Whether the store's git hooks are sound, and a plain `git push` is searched for secrets if there is a remote."""
    for name in git_hooks.HOOKS:
        yield from _stale(store.path / "hooks" / name, f"ctxvc install {git_hooks.STORE}")
    if git.config(store.repository).get(allowlist.TEXTCONV) in allowlist.OLD_TEXTCONVS:
        finding = "`git diff` and `git log -p` in this store would run a `json` module from the current folder"
        yield _problem("git hooks", finding, f"ctxvc install {git_hooks.STORE}")
    if foreign := git_hooks.others(store.path):
        finding = (
            f"git runs hooks of this store that are not ctxvc's: {', '.join(path.name for path in foreign[:_MOST])}"
        )
        yield _note("git hooks", finding, f"rm {shlex.quote(str(foreign[0]))}, unless you put it there")
    remotes = [name for name in git.config(store.repository) if re.fullmatch(r"remote\..+\.url", name)]
    if remotes and not git_hooks.is_ours(store.path / "hooks" / "pre-push"):
        finding = "the store has a remote, but a plain `git push` would not be scanned for secrets"
        yield _note("git hooks", finding, f"ctxvc install {git_hooks.STORE}")


def _project_hook(app: App) -> Iterator[DoctorItem]:
    folder = git_says(app.folder, "rev-parse", "--path-format=absolute", "--git-path", "hooks").rstrip("\n")
    path = Path(folder) / git_hooks.PROJECT
    if folder and git_hooks.is_ours(path):
        yield from _stale(path, f"ctxvc install {git_hooks.PROJECT}") or [
            _ok("git hooks", "commits of this project are linked to their sessions")
        ]


def _stale(path: Path, mend: str) -> list[DoctorItem]:
    """A problem if a hook of ours calls a program that is gone, or cannot be executed."""
    if not git_hooks.is_ours(path):
        return []
    match = _PROGRAM.search(path.read_text("utf-8", "replace"))
    program = "".join(shlex.split(match[1])[:1]) if match else ""
    if program and not shutil.which(program):
        return [_problem("git hooks", f"{path} calls {program}, which does not exist", mend)]
    if not path.stat().st_mode & 0o100:
        return [_problem("git hooks", f"{path} is not executable, so git ignores it", mend)]
    return []


def _checkouts(store: Store) -> Iterator[DoctorItem]:
    """The checkouts whose folders are gone, or in which a person changed something."""
    registered = list(worktrees.listed(store.path))
    own = [worktree.folder for worktree in registered if worktrees.is_made_here(store.path, worktree)]
    if foreign := len(registered) - len(own):  # only a store claims these folders: no command for them
        yield _note("checkouts", f"{counted(foreign, 'worktree')} that ctxvc did not create on this machine")
    if missing := len(worktrees.missing(store.path)):
        mend = git.advice(f"--git-dir={store.path}", "worktree", "prune")
        yield _note(
            "checkouts", f"{counted(missing, 'checkout')} whose folder is gone or belongs to something else", mend
        )
    for folder in own[:_MOST_CHECKOUTS]:
        if changes := checkout.person_changes(store, folder):
            changed = counted(len(changes.moves) + len(changes.others) + len(changes.commits), "change")
            take = f"ctxvc checkout {changes.session}/{changes.scope} {shlex.quote(str(folder))} --take"
            only_moves = changes.moves and not changes.others
            yield _note("checkouts", f"{changed} by a person in {folder}", take if only_moves else changes.back)
    if own and not missing:
        yield _ok("checkouts", ", ".join(map(str, own[:_MOST_CHECKOUTS])))


def _purged(store: Store) -> Iterator[DoctorItem]:
    if purge_apply.REF in store.repository.references:
        times = sum(1 for _ in store.first_parents(str(store.repository.references[purge_apply.REF].target)))
        finding = f"{counted(times, 'purge')} of this store: older clones and remotes still have the erased content"
        yield _note("purged", finding, "delete those clones, and replace any keys they contain")


def _session(store: Store, name: str) -> Iterator[DoctorItem]:
    stored = StoredSession.for_reading(store, name)
    if waiting := stored.waiting():
        source = stored.ledger().meta.source
        mend = "ctxvc import --final" if source and not fmt.is_live(source) else ""
        finding = f"{counted(waiting, 'record')} of an open step not committed yet, safe in the journal"
        finding += "; the agent's next request completes it" if fmt.is_live(source) else ""
        yield _note(f"session {name}", finding, mend)
    if pending := pending_plans.pending(store, name):
        finding = f"{counted(len(pending), 'plan')} pending: {', '.join(plan.id for plan in pending[:8])}"
        yield _note(f"session {name}", finding, f"ctxvc plan --pending --session {name}")


def _transcripts(app: App) -> Iterator[DoctorItem]:
    """The project's recorded sessions that the store lacks, in part or whole, and the days until their deletion."""
    try:
        store = app.store_path()
    except CtxvcError:
        store = None  # `_about_store` has reported it
    transcripts = installed.transcripts(app.env, app.folder, app.projects(), store)
    incomplete = [transcript for transcript in transcripts if transcript.state != "whole"]
    if not incomplete:
        yield _ok("transcripts", f"{len(transcripts)} recorded sessions of this project, all in the store")
    else:
        missing = sum(transcript.state == "missing" for transcript in incomplete)
        findings = (
            [f"{missing} of {len(transcripts)} recorded sessions of this project are not in the store"]
            if missing
            else []
        )
        grown = len(incomplete) - missing
        findings += [f"{counted(grown, 'recorded session')} continued after the last import"] if grown else []
        days = min((transcript.days for transcript in incomplete if transcript.days is not None), default=None)
        if days is not None:
            findings.append(f"Claude Code deletes the oldest in {max(0, int(days))} days")
        item = _problem if days is not None and days < _SOON_DAYS else _note
        yield item("transcripts", "; ".join(findings), "ctxvc import")
    yield from _recording(app, transcripts, store)


def _wire(app: App) -> Iterator[DoctorItem]:
    """Why requests that `wrap` or `proxy` forwarded are not recorded, if some are not."""
    from ctxvc.wire import trouble

    if reason := trouble.reported(app.store_place()):
        finding = f"requests were {trouble.sentence(reason)}"
        yield _problem("wire", finding, "mend that; the agent's next request brings what is missing")


def _recording(app: App, transcripts: list[Transcript], store: Path | None) -> Iterator[DoctorItem]:
    """Whether Claude Code records by itself here, and anything that keeps it from doing so."""
    files = installed.settings_files(app.env, app.folder)
    hooked = installed.has_hooks(files) or installed.recorded_by_hooks(transcripts, store)
    for file, program in installed.missing_programs(files):
        mend = _INSTALL.get(file.owner, f"remove these hooks from {file.path}")
        yield _problem("recording", f"hooks in {file.path} call {program}, which is gone", mend)
    recorded = {transcript.path.stem for transcript in transcripts if transcript.state == "whole"}
    for conversation, trouble in spool.troubles():
        if conversation not in recorded and (store is None or Path(trouble.store) == store):
            finding = f"session {conversation[:8]} of Claude Code is not recorded: {trouble.reason}"
            yield _problem("recording", finding, "ctxvc import, once that is mended")
    for entry in spool.log_entries():
        yield _note("recording", entry, "")
    disabled_by = installed.turned_off(files)
    if disabled_by and hooked:
        finding = f"nothing is recorded automatically: {disabled_by} turns all hooks off"
        yield _problem("recording", finding, f"remove disableAllHooks from {disabled_by}")
    elif any(transcript.format == FORMAT for transcript in transcripts) and not hooked:
        yield _note("recording", "Claude Code does not record automatically here", "ctxvc install claude-code")
    release = installed.newest_release(transcripts) if hooked else ()
    if release and release < installed.COMPACTED_SINCE:
        since, own = (".".join(map(str, version)) for version in (installed.COMPACTED_SINCE, release))
        finding = f"Claude Code {own} compacts by its own summary; ctxvc replaces that from {since} on"
        yield _note("compaction", finding, "claude update")


class DoctorItem(Item, frozen=True, kw_only=True):
    """One check of `doctor`."""

    TABLE = "level check found mend"

    check: Annotated[str, Column("check")]
    level: Annotated[str, described("`ok`, `note`, or `problem`"), Column("level")]
    found: Annotated[str, Column("finding")]
    mend: Annotated[str, described("the command that fixes it; empty if none is needed"), Column("fix")]


class Doctor(Answer, frozen=True, kw_only=True, tag="ctxvc.doctor/1"):
    """`doctor`"""

    items: list[DoctorItem]
