"""Hostile stores from a seed, and every command and hook on each: what leaves the store, runs, hangs or breaks.

Run as a program it works through a range of cases in an interpreter of its own, whose audit hook cannot be removed:

    python -m tests.store.hostile WORLD --first 0 --last 560

It prints a line of JSON for each thing that is wrong, and at the end what it did. The world is a home folder, a project
with the store, and files outside that nothing may create, change, remove or open.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 15
COUNT = 560
#: Seconds that a command may take.
SLOWEST = 10
PLANTED = "PLANTED-WORDS"
TRANSCRIPT = "5f0c2d8e-0000-4000-8000-000000000001.jsonl"

#: Every file that a store may hold besides objects.
FILES = (
    "HEAD", "config", "config.worktree", "description", "packed-refs", "packed-refs.lock", "shallow", "FETCH_HEAD",
    "ORIG_HEAD", "MERGE_HEAD", "commondir", "gitdir", "index", "gc.pid", "HEAD.lock", ".gitignore", "DASHBOARD.md",
    "fast_import_crash_1", "logs/HEAD", "logs/refs/heads/demo/main", "info/attributes", "info/exclude", "info/grafts",
    "info/sparse-checkout", "objects/info/packs", "objects/info/commit-graph",
    "objects/pack/pack-1.keep", "objects/pack/tmp_pack_1", "objects/pack/multi-pack-index", "refs/heads/demo/main",
    "refs/heads/demo/main.lock", "refs/heads/evil/main", "refs/heads/_links", "refs/ctxvc/demo/HEAD",
    "refs/ctxvc/demo/plans", "refs/ctxvc/purged", "refs/remotes/origin/demo/main", "refs/replace/x", "hooks/pre-push",
    "hooks/post-checkout", "worktrees/w/gitdir", "worktrees/w/commondir", "worktrees/w/HEAD", "worktrees/w/index",
    "worktrees/w/config.worktree", "worktrees/w/ctxvc-seal", "worktrees/w/info/sparse-checkout", "ctxvc/id",
    "ctxvc/journal/demo", "ctxvc/journal/evil", "ctxvc/journal/demo~unreadable-7", "ctxvc/lock/demo",
    "ctxvc/lock/_links", "ctxvc/store.lock", "ctxvc/cache/tokens.sqlite", "ctxvc/cache/tokens.sqlite-wal",
    "ctxvc/cache/tokens.sqlite-shm", "ctxvc/cache/tokens.sqlite-journal", "ctxvc/cache/compact", "ctxvc/secrets/key",
    "ctxvc/secrets/allowed", "ctxvc/secrets/exact", "ctxvc/secrets/remotes.json",
    "ctxvc/committed/00000000000000000001",
    "ctxvc/hooks/log", "ctxvc/hooks/log.1", "ctxvc/hooks/recorder.lock", "ctxvc/hooks/offer",
    "ctxvc/hooks/requests/00000000000000000001-1-a", "ctxvc/hooks/requests/aside-KEY", "ctxvc/hooks/handoff/KEY",
    "ctxvc/hooks/so-far/KEY", "ctxvc/hooks/standing/KEY", "ctxvc/hooks/outputs/toolu_1-1.txt",
    "ctxvc/hooks/summariser/KEY", "ctxvc/hooks/calls/KEY",
    "ctxvc/purge/state.json", "ctxvc/purge/journal/demo", "checkout/demo/main/DASHBOARD.md", "checkout/demo/main/.git",
)  # fmt: skip
#: Every folder that a store may have; a link may stand in its place.
FOLDERS = (
    "refs", "refs/heads", "refs/heads/demo", "refs/heads/evil", "refs/ctxvc", "refs/ctxvc/demo", "objects",
    "objects/pack", "objects/info", "objects/00", "info", "logs", "worktrees", "worktrees/w", "ctxvc", "ctxvc/journal",
    "ctxvc/lock", "ctxvc/cache", "ctxvc/secrets", "ctxvc/committed", "ctxvc/hooks", "ctxvc/hooks/requests",
    "ctxvc/hooks/handoff", "ctxvc/hooks/so-far", "ctxvc/hooks/standing", "ctxvc/hooks/outputs", "ctxvc/purge",
    "ctxvc/hooks/summariser", "ctxvc/hooks/calls",
    "ctxvc/purge/journal", "checkout", "checkout/demo", "checkout/demo/main",
)  # fmt: skip

#: A setting that names a program or another place, one of each family. MARK is a command that leaves a trace.
DANGEROUS = [
    ("core.fsmonitor", "MARK"), ("core.fsmonitor", "true"), ("core.hooksPath", "FOLDER"), ("core.sshCommand", "MARK"),
    ("core.gitProxy", "MARK"), ("core.pager", "MARK"), ("core.editor", "MARK"), ("core.askPass", "MARK"),
    ("core.alternateRefsCommand", "MARK"), ("core.attributesFile", "/elsewhere"), ("core.excludesFile", "/elsewhere"),
    ("core.worktree", "/elsewhere"), ("alias.status", "!MARK"), ("filter.x.clean", "MARK"), ("filter.x.smudge", "MARK"),
    ("filter.x.process", "MARK"), ("diff.external", "MARK"), ("diff.x.command", "MARK"), ("diff.x.textconv", "MARK"),
    ("diff.ctxvc.textconv", "MARK"), ("merge.x.driver", "MARK"), ("gpg.program", "MARK"), ("gpg.ssh.program", "MARK"),
    ("log.showSignature", "true"), ("commit.gpgSign", "true"), ("credential.helper", "!MARK"), ("pager.log", "MARK"),
    ("sequence.editor", "MARK"), ("difftool.x.cmd", "MARK"), ("gc.recentObjectsHook", "MARK"),
    ("uploadpack.packObjectsHook", "MARK"), ("receive.procReceiveRefs", "refs/heads"), ("include.path", "/elsewhere"),
    ("includeIf.gitdir:/.path", "/elsewhere"), ("url.ext::sh -c x.insteadOf", "https://"),
    ("http.proxy", "http://elsewhere"), ("protocol.ext.allow", "always"), ("remote.origin.url", "ext::MARK"),
    ("remote.origin.url", "-uMARK"), ("remote.origin.url", "ssh://-oProxyCommand=MARK/x"),
    ("remote.origin.url", "-oProxyCommand=MARK:x"), ("remote.origin.url", "http+unix://x"),
    ("remote.origin.vcs", "ext"), ("remote.origin.uploadpack", "MARK"), ("remote.origin.receivepack", "MARK"),
    ("remote.origin.promisor", "true"), ("remote.origin.partialCloneFilter", "blob:none"),
    ("remote.origin.fetch", "--upload-pack=MARK"), ("remote.-x.url", "https://example.org"),
    ("branch.main.remote", "ext::MARK"), ("extensions.partialClone", "origin"), ("extensions.refStorage", "files"),
    ("safe.directory", "*"), ("trace2.eventTarget", "/elsewhere"), ("fsck.skipList", "/elsewhere"),
    ("sendemail.smtpserver", "MARK"), ("submodule.x.update", "!MARK"), ("something.new", "MARK"),
]  # fmt: skip

READING: tuple[tuple[str, ...], ...] = (
    ("sessions",), ("status",), ("status", "--all", "--json"), ("context",), ("policies",), ("log",),
    ("log", "--graph"), ("show", "B2"), ("show", "G1"), ("diff", "HEAD~1"), ("prompt",), ("prompt", "--sent", "step:1"),
    ("grep", "assert"), ("bisect", "assert"), ("blame", "B6"), ("why", "HEAD"), ("notes",), ("scopes",), ("export",),
    ("plan",), ("plan", "--pending"), ("verify", "--quick"), ("verify", "--prompts"), ("doctor",),
    ("completion", "zsh"), ("mcp",), ("install", "claude-code", "--project", "--dry-run"),
    ("install", "git-store", "--dry-run"), ("compact", "--dry-run"),
)  # fmt: skip
WRITING: tuple[tuple[str, ...], ...] = (
    ("init",), ("note", "-m", "learned"), ("pin", "B3"), ("unpin", "B3"), ("archive", "B4,B5", "-m", "calls"),
    ("recover", "B6"), ("recover", "B6", "--file"), ("recover", "B6", "--add"), ("restore", "B6"),
    ("delete", "B9", "-m", "old"), ("undo",), ("scope", "aside", "-m", "why"), ("goto", "main", "-m", "back"),
    ("compact",), ("import", "SCRATCH/chat.json"), ("watch", "--once", "SCRATCH/chat.json"), ("checkout",),
    ("checkout", "demo/main", "SCRATCH/out"), ("checkout", "demo/main", "SCRATCH/out", "--take"),
    ("checkout", "--redraw", "SCRATCH/out"), ("run", "say hello", "--yes", "--script", "SCRATCH/script.json"),
    ("ask", "demo", "why?", "--script", "SCRATCH/script.json"), ("demo", "SCRATCH/demo"), ("gc",), ("status",),
    ("purge", "--text", "assert add"), ("purge", "--text", "assert add", "--yes"), ("status",),
    ("purge", "--finish", "--yes"), ("purge", "--discard", "--yes"),
)  # fmt: skip
QUICK: tuple[tuple[str, ...], ...] = (("status",), ("verify", "--quick"), ("doctor",))
QUICK_WRITING: tuple[tuple[str, ...], ...] = (
    ("note", "-m", "learned"), ("checkout",), ("gc",), ("purge", "--finish", "--yes"), ("purge", "--discard", "--yes"),
)  # fmt: skip
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SessionStart", {"source": "startup"}), ("UserPromptSubmit", {}),
    ("PostToolUse", {"tool_use_id": "toolu_1", "tool_response": "x" * 5000}), ("PostToolUseFailure", {}),
    ("Stop", {}), ("SubagentStop", {"agent_type": "helper"}), ("PreCompact", {"trigger": "manual"}),
    ("SessionStart", {"source": "compact"}), ("PostCompact", {"trigger": "manual"}),
    ("PreToolUse", {"tool_use_id": "toolu_1"}), ("StopFailure", {"error": "server_error"}),
    ("SubagentStart", {"agent_type": "helper"}), ("SessionEnd", {"reason": "exit"}), ("statusline", {}),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A store with one thing in it that is not of ctxvc."""

    number: int
    name: str
    make: Callable[[World], None]


class World:
    """A home, a project with a store, and what must stay as it is. `fresh` puts the store back as it was."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.home, self.project, self.outside = top / "home", top / "project", top / "outside"
        self.scratch, self.temporary = top / "scratch", top / "tmp"
        self.store, self.pristine = self.project / ".ctxvc", top / "pristine"

    @property
    def transcript(self) -> Path:
        return self.outside / TRANSCRIPT

    def build(self) -> None:
        from tests.making.project import build

        build(self.project)
        for folder in (self.home / ".ssh", self.outside / "folder" / "b", self.outside / "empty", self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        (self.home / ".bashrc").write_text("alias ll='ls -l'\n")
        (self.home / ".ssh" / "id").write_text(f"{PLANTED} a private key\n")
        (self.home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@b\n")
        (self.outside / "victim").write_text(f"{PLANTED} one\n")
        (self.outside / "folder" / "a").write_text(f"{PLANTED} two\n")
        (self.outside / "folder" / "b" / "c").write_text(f"{PLANTED} three\n")
        self.transcript.write_text(_transcript())
        pwn = self.outside / "pwn"
        pwn.write_text(f"#!/bin/sh\ntouch {self.outside}/PWNED\ncat\n")
        pwn.chmod(0o755)
        os.mkfifo(self.outside / "fifo")
        (self.outside / "forged").mkdir()
        (self.outside / "forged" / ".git").write_text(f"gitdir: {self.store}/worktrees/w\n")
        (self.outside / "forged" / "thesis.txt").write_text("years of work\n")
        for folder in (self.outside / "repo", self.project):
            _git(folder.parent, "init", "-q", str(folder))
        (self.outside / "repo" / "file").write_text("x\n")
        _git(self.outside / "repo", "config", "core.fsmonitor", str(pwn))
        (self.project / "app.py").write_text("x = 1\n")
        for folder in (self.outside / "repo", self.project):
            _git(folder, "-c", "core.fsmonitor=false", "add", "--all", ":!.ctxvc")
            _git(folder, "-c", "core.fsmonitor=false", "commit", "-q", "-m", "first")
        self.pristine.parent.mkdir(exist_ok=True)
        shutil.copytree(self.store, self.pristine, symlinks=True)

    def fresh(self) -> None:
        _clear(self.store)
        shutil.copytree(self.pristine, self.store, symlinks=True)
        _clear(self.scratch)
        self.scratch.mkdir()
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
        (self.scratch / "chat.json").write_text(json.dumps({"messages": said}))
        (self.scratch / "script.json").write_text(json.dumps([{"role": "assistant", "content": "hello"}] * 4))

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        """Everything that must stay: path → kind, mode, size, time and checksum."""
        seen: dict[str, tuple[object, ...]] = {}
        allowed = (self.home / ".local" / "share" / "ctxvc", self.home / ".cache", self.store)
        for top in (self.home, self.project, self.outside):
            for folder, folders, names in os.walk(top):
                folders[:] = [name for name in folders if Path(folder, name) not in allowed]
                for name in (*folders, *names):
                    path = Path(folder, name)
                    if path == self.store or path in (self.home / ".local", self.home / ".local" / "share"):
                        continue
                    about = path.lstat()
                    plain = stat.S_ISREG(about.st_mode)
                    digest = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
                    content = (about.st_size, about.st_mtime_ns, digest) if plain else ()
                    seen[str(path)] = (about.st_mode, about.st_nlink > 0, *content)
        return seen


def _clear(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    elif path.exists():
        subprocess.run(["rm", "-rf", str(path)], check=True)  # folders may be deeper than Python's stack


def _git(folder: Path, *arguments: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **who}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=env)


def _transcript() -> str:
    rows: list[dict[str, Any]] = [
        {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": f"{PLANTED} secret"}},
        {
            "type": "assistant", "uuid": "a1", "parentUuid": "u1",
            "message": {"id": "m1", "role": "assistant", "model": "m", "content": [{"type": "text", "text": PLANTED}]},
        },
    ]  # fmt: skip
    common = {"sessionId": TRANSCRIPT.removesuffix(".jsonl"), "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/x"}
    return "".join(json.dumps({**common, **row}) + "\n" for row in rows)


# --- what is put into a store


def _placed(world: World, name: str) -> Path:
    """The place of a file in the store, empty, with folders above it."""
    key = hashlib.sha256(str(world.transcript).encode()).hexdigest()[:32]
    path = world.store / name.replace("KEY", key)
    for parent in reversed(path.relative_to(world.store).parents[:-1]):
        place = world.store / parent
        if place.exists() and not place.is_dir():
            place.unlink()
        place.mkdir(exist_ok=True)
    _clear(path)
    return path


def _links(world: World) -> dict[str, str]:
    return {
        "a link to a file outside": str(world.outside / "victim"),
        "a link to a folder outside": str(world.outside / "folder"),
        "a link to what is not there": str(world.outside / "new"),
        "a link to a pipe": str(world.outside / "fifo"),
        "a link to endless zeros": "/dev/zero",
        "a link to itself": "itself",
        "a relative link": "../../../../../../../../../../../../" + str(world.home / ".bashrc").lstrip("/"),
        "a link upwards": "..",
    }


LINKS = tuple(_links(World(Path("/"))))


def _link(name: str, kind: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        path = _placed(world, name)
        path.symlink_to(path.name if kind == "a link to itself" else _links(world)[kind])

    return make


def _content(name: str, data: Callable[[World], bytes]) -> Callable[[World], None]:
    def make(world: World) -> None:
        _placed(world, name).write_bytes(data(world))

    return make


def _special(name: str, kind: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        path = _placed(world, name)
        match kind:
            case "a pipe":
                os.mkfifo(path)
            case "a folder":
                path.mkdir()
            case "a socket":
                here = Path.cwd()
                os.chdir(path.parent)  # a socket's path may have some hundred characters
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(path.name)
                os.chdir(here)
            case "a second name of a file outside":
                os.link(world.outside / "victim", path)
            case "a huge file with nothing in it":
                path.write_bytes(b"")
                os.truncate(path, 1 << 40)

    return make


SPECIALS = ("a pipe", "a folder", "a socket", "a second name of a file outside", "a huge file with nothing in it")
CONTENTS: dict[str, Callable[[World], bytes]] = {
    "nothing": lambda _: b"",
    "rubbish": lambda _: bytes(random.Random(1).randbytes(700)),
    "an absolute path": lambda world: f"{world.outside}/victim\n".encode(),
    "a way out": lambda _: b"../../../outside/victim\n",
    "a ref that leads out": lambda _: b"ref: refs/heads/../../../../outside/victim\n",
    "terminal commands": lambda _: b"\x1b[2J\x1b]0;owned\x07\x00\r\n..\n",
    "deep JSON": lambda _: b"[" * 100_000,
    "deep MessagePack": lambda _: b"\x91" * 100_000,
    "a huge number": lambda _: b'{"format":' + b"9" * 5000 + b',"pack":1}',
    "wrong types": lambda _: (
        b'{"format":"1","pack":[],"refs":3,"gone":{},"journals":null,"checkouts":{"a":1},"files":0}'
    ),
    "a list of wrong types": lambda _: b'[1, null, {"a": []}, "\\u0000", 1e999]',
    "many lines": lambda _: b"../../outside/victim\n" * 20_000,
}


def _request(world: World) -> bytes:
    return json.dumps(["Stop", str(world.transcript), ""]).encode()


def _sealed(data: bytes) -> bytes:
    return b"0" * 64 + b"\n" + data


def _forged_worktree(folder: str, *, both: bool = True, settings: str = "") -> Callable[[World], None]:
    def make(world: World) -> None:
        linked = _placed(world, "worktrees/w")
        linked.mkdir()
        (linked / "gitdir").write_text(f"{world.top / folder}/.git\n")
        (linked / "commondir").write_text("../..\n" if both else f"{world.outside}/repo/.git\n")
        head = (world.store / "refs/heads/demo/main").read_text()
        (linked / "HEAD").write_text(head)
        (linked / "ctxvc-seal").write_text("0" * 64)
        if settings:
            (linked / "config.worktree").write_text(settings.format(outside=world.outside, home=world.home))

    return make


def _scope_below(world: World, target: Path) -> None:
    """HEAD is a scope `a/b/c`, and in the place of its checkout `a/b` is a link."""
    tip = (world.store / "refs/heads/demo/main").read_bytes()
    _placed(world, "refs/heads/demo/a/b/c").write_bytes(tip)
    _placed(world, "checkout/demo/a/b").symlink_to(target)
    for name in ("HEAD", "refs/ctxvc/demo/HEAD"):
        _placed(world, name).write_text("ref: refs/heads/demo/a/b/c\n")


def _state(**fields: Any) -> Callable[[World], None]:
    """A purge that somebody else decided."""

    def make(world: World) -> None:
        pack = next((path.stem for path in (world.store / "objects" / "pack").glob("*.pack")), "pack-0")
        state: dict[str, Any] = {
            "format": 1, "pack": pack, "refs": {}, "gone": [], "journals": [], "checkouts": [], "files": [],
        }  # fmt: skip
        words = json.dumps({**state, **fields})
        for name in ("outside", "home", "project"):
            words = words.replace(f"<{name}>", str(world.top / name))
        _placed(world, "ctxvc/purge/state.json").write_text(words)

    return make


def _checkout_led_astray(world: World) -> None:
    """`commondir` leads to the store, but to git, which takes the space for a part of the path, to other settings."""
    linked = _placed(world, "worktrees/main/ ../x").parent.parent
    (linked / "gitdir").write_text(f"{world.store}/checkout/demo/main/.git\n")
    (linked / "commondir").write_text(" ../..\n")
    (linked / "HEAD").write_text((world.store / "refs/heads/demo/main").read_text())
    (linked / "config").write_text(f"[include]\n\tpath = {world.outside}/fifo\n")
    for name in ("objects", "refs"):
        shutil.copytree(world.store / name, linked / name)
    _placed(world, "checkout/demo/main/.git").write_text(f"gitdir: {linked}\n")


def _waits_with_link(world: World, name: str) -> None:
    """A purge that keeps all that there is, so that it can be finished; and a link in the place of `name`."""
    _git(world.store.parent, f"--git-dir={world.store}", "repack", "-q", "-a", "-d")
    if name == "packed-refs":
        _git(world.store.parent, f"--git-dir={world.store}", "pack-refs", "--all")
    _state()(world)
    # What it leads to is put there anew each time, and must then stay.
    target = world.outside / "led-to"
    _clear(target)
    (world.store / name).rename(target)
    (world.store / name).symlink_to(target)


def _config(words: str, file: str = "config") -> Callable[[World], None]:
    def make(world: World) -> None:
        path = world.store / file
        held = path.read_text() if path.exists() else ""
        path.write_text(held + words.format(pwn=world.outside / "pwn", outside=world.outside, home=world.home))

    return make


def _setting(key: str, value: str) -> Callable[[World], None]:
    """One of `DANGEROUS`."""
    section, _, rest = key.partition(".")
    part, _, name = rest.rpartition(".")
    words = value.replace("MARK", "{pwn}").replace("FOLDER", "{outside}")
    return _config(f'[{section} "{part}"]\n\t{name} = {words}\n' if part else f"[{section}]\n\t{name} = {words}\n")


def _cache(*statements: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        path = _placed(world, "ctxvc/cache/tokens.sqlite")
        with sqlite3.connect(path) as db:
            for statement in statements:
                db.execute(statement)
        db.close()

    return make


def _hot_journal(world: World) -> None:
    """A rollback journal whose end names another file: SQLite removes that, once it has rolled back."""
    path = _placed(world, "ctxvc/cache/tokens.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE counts (digest BLOB, tokenizer TEXT, tokens INTEGER)")
    db.close()
    named = str(world.outside / "victim").encode()
    magic = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    head = (magic + (0).to_bytes(4, "big") + bytes(8) + (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")).ljust(512)
    total = sum(named) & 0xFFFFFFFF
    tail = (1024 * 1024).to_bytes(4, "big") + named + len(named).to_bytes(4, "big") + total.to_bytes(4, "big") + magic
    Path(f"{path}-journal").write_bytes(head + tail)


_ENDLESS = "CREATE VIEW counts AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
SELECT x'00' AS digest, 'o200k_base' AS tokenizer, sum(x) AS tokens FROM n"
_TRUST = {
    **{f"configuration: {key} = {value}": _setting(key, value) for key, value in DANGEROUS},
    "configuration: a pipe of what git ignores": _config("[core]\n\texcludesFile = {outside}/fifo\n"),
    "configuration: a pipe that is included": _config("[include]\n\tpath = {outside}/fifo\n"),
    "configuration: a pipe that is included here": _config('[includeIf "gitdir:/"]\n\tpath = {outside}/fifo\n'),
    "configuration: another work tree": _config("[core]\n\tworktree = {home}\n"),
    "configuration: a scanner": _config("[ctxvc]\n\tscanner = {pwn}\n"),
    "configuration: a huge number": _config("[ctxvc]\n\tformat = " + "9" * 5000 + "\n"),
    "settings of the worktree: another work tree": _config("[core]\n\tworktree = {home}\n", "config.worktree"),
    "borrowed objects": _content(
        "objects/info/alternates", lambda world: f"{world.outside}/repo/.git/objects\n".encode()
    ),
    "borrowed objects from a pipe": _content(
        "objects/info/alternates", lambda world: f"{world.outside}/fifo\n".encode()
    ),
    "a purge: checkouts elsewhere": _state(checkouts=["<outside>/folder", "<home>", "/", ".."]),
    "a purge: a project as a checkout": _state(checkouts=["<project>"]),
    "a purge: files elsewhere": _state(files=["<outside>/victim", "../../outside/victim", "../app.py", ""]),
    "a purge: journals elsewhere": _state(journals=["../../../outside/victim", "<outside>/victim"]),
    "a purge: refs with orders in them": _state(refs={"refs/heads/x\ndelete refs/heads/demo/main": "0" * 40}),
    "a purge: a pack elsewhere": _state(pack="../../../../outside/victim"),
    "a purge: remotes as they like": _state(remotes={"../x": ["\u001b[2J"]}),
    "a purge: refs that go": _state(gone=["refs/heads/demo/main", "HEAD", "../x"]),
    "a purge: nothing but itself": _state(),
}
_FORGED: dict[str, Callable[[World], None]] = {
    "a purge that waits: refs that lead out": lambda world: _waits_with_link(world, "refs/heads/demo"),
    "a purge that waits: packed refs that lead out": lambda world: _waits_with_link(world, "packed-refs"),
    "a checkout whose repository git reads as another": _checkout_led_astray,
    "a scope below a link in a checkout": lambda world: _scope_below(world, world.outside / "empty"),
    "a request for a private file": _content(
        "ctxvc/hooks/requests/00000000000000000001-1-a", lambda world: _sealed(_request(world))
    ),
    "a request of the old form": _content("ctxvc/hooks/requests/00000000000000000001-1-a", _request),
    "a request set aside": _content("ctxvc/hooks/requests/aside-KEY", lambda world: _sealed(_request(world))),
    "a request for a pipe": _content(
        "ctxvc/hooks/requests/00000000000000000001-1-a",
        lambda world: _sealed(json.dumps(["Stop", str(world.outside / "fifo"), ""]).encode()),
    ),
    "words for the model at the start": _content("ctxvc/hooks/offer", lambda _: _sealed(PLANTED.encode())),
    "words for the model after a compaction": _content("ctxvc/hooks/handoff/KEY", lambda _: _sealed(PLANTED.encode())),
    "words for the model so far": _content("ctxvc/hooks/so-far/KEY", lambda _: PLANTED.encode()),
    "words for who summarises": _content("ctxvc/hooks/summariser/KEY", lambda _: PLANTED.encode()),
    "a code commit in a folder elsewhere": _content(
        "ctxvc/committed/00000000000000000001",
        lambda world: json.dumps(["a" * 40, str(world.outside / "repo"), "2026", "", "", "", "0" * 64]).encode(),
    ),
    "a code commit of the old form": _content(
        "ctxvc/committed/00000000000000000001",
        lambda world: json.dumps(["a" * 40, str(world.outside / "repo"), "2026", "", "", ""]).encode(),
    ),
    "a worktree that is the home folder": _forged_worktree("home"),
    "a worktree that is the project": _forged_worktree("project"),
    "a worktree that both sides claim": _forged_worktree("outside/forged"),
    "a worktree of another repository": _forged_worktree("outside/forged", both=False),
    "a worktree with files elsewhere": _forged_worktree("outside/forged", settings="[core]\n\tworktree = {home}\n"),
    "a worktree with a program": _forged_worktree("outside/forged", settings="[core]\n\tfsmonitor = {outside}/pwn\n"),
    "a cache that never ends": _cache(_ENDLESS),
    "a cache with a trigger": _cache(
        "CREATE TABLE counts (digest BLOB, tokenizer TEXT, tokens INTEGER NOT NULL, PRIMARY KEY (digest, tokenizer))",
        "CREATE TRIGGER t AFTER INSERT ON counts BEGIN SELECT load_extension('/x'); END",
    ),
    "a cache with texts for numbers": _cache(
        "CREATE TABLE counts (digest, tokenizer, tokens)", "INSERT INTO counts VALUES (x'00', 'o200k_base', 'many')"
    ),
    "a cache whose journal names a file elsewhere": _hot_journal,
    "folders without end": lambda world: _deep(world.store / "refs" / "heads"),
    "names with commands for a terminal": _content("ctxvc/journal/\x1b[2J\x1b]0;owned\x07", lambda _: b"x"),
    "a lock with a line break": _content("ctxvc/lock/a\nb", lambda _: b""),
    "packed refs that lead out": _content(
        "packed-refs",
        lambda _: b"# pack-refs with: peeled fully-peeled sorted \n" + b"1" * 40 + b" refs/heads/../../x\n",
    ),
    "remotes as they like": _content(
        "ctxvc/secrets/remotes.json", lambda _: b'{"../x":["\\u001b[2J",1,null],"o":"x","p":{}}'
    ),
}


def _deep(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path)
    for _ in range(3000):
        os.mkdir("d")  # noqa: PTH102 - the whole path is longer than the system takes
        os.chdir("d")
    os.chdir(here)


def cases(count: int = COUNT, seed: int = SEED) -> list[Case]:
    """That many cases: all that were thought up one by one, and of the others a choice that the seed makes."""
    made: list[tuple[str, Callable[[World], None]]] = [*_FORGED.items(), *_TRUST.items()]
    drawn = [(f"{name}: {kind}", _link(name, kind)) for name in (*FILES, *FOLDERS) for kind in LINKS]
    drawn += [(f"{name}: {kind}", _special(name, kind)) for name in FILES for kind in SPECIALS]
    drawn += [(f"{name}: {kind}", _content(name, data)) for name in FILES for kind, data in CONTENTS.items()]
    random.Random(seed).shuffle(drawn)
    return [Case(number, *each) for number, each in enumerate([*made, *drawn][:count])]


# --- what is watched


class TooSlowError(BaseException):
    """Past every `except Exception`."""


class Watch:
    """What this interpreter opens and starts, while `on`: an audit hook, which nothing can take away."""

    def __init__(self, world: World) -> None:
        self.world, self.on, self.seen = world, False, list[str]()
        self._private = (f"{world.outside}/", f"{world.home}/.ssh", f"{world.home}/.bashrc")
        self._claims = f"{world.outside}/forged"
        sys.addaudithook(self._heard)

    def _heard(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(words[0], (str, bytes)):
            self.on = False
            named = Path(os.fsdecode(words[0]))
            followed = not words[2] & os.O_NOFOLLOW
            path = os.path.realpath(named) if followed else f"{os.path.realpath(named.parent)}/{named.name}"
            self.on = True
            claims = path == self._claims or path.startswith(f"{self._claims}/")  # to be a checkout of the store
            if path.startswith(self._private) and not claims and not path.endswith("/.git"):
                self.seen.append(f"opened {path}")
        elif event == "sqlite3.connect" and str(words[0]).startswith(self._private):
            self.seen.append(f"opened {words[0]}")
        elif event in ("subprocess.Popen", "os.posix_spawn"):  # 3.13 starts the programs of `subprocess` by the latter
            if Path(os.fsdecode(words[0] or words[1][0])).name != "git":
                self.seen.append(f"started {words[1]}")
        elif event in ("os.exec", "os.system", "os.fork", "os.forkpty", "os.spawn"):
            self.seen.append(f"{event} {words[:2]}")


def _quiet() -> None:
    """Hooks do at once, in this process, what they leave to processes of their own."""
    from ctxvc.claude_code import hook, recorder
    from ctxvc.claude_code import recorder as recorders
    from ctxvc.recording import git_hooks

    assert recorder.work.__kwdefaults__
    recorder.work.__kwdefaults__["linger"] = 0
    recorder._PAUSE = 0.001
    hook._start = lambda words: recorders.record(words, os.environ)
    git_hooks._start = lambda store: git_hooks.link([str(store)])


def commands(world: World, chosen: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each command's words, and what runs it and gives what is wrong with how it ended."""
    from click.testing import CliRunner

    from ctxvc.cli.main import cli

    def run(words: tuple[str, ...]) -> str:
        result = CliRunner().invoke(cli, ["-C", str(world.project), *words])
        told = result.output + (result.stderr or "")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return f"raised {result.exception!r}"
        if result.exit_code not in (0, 1, 2, 3, 4) or "Traceback" in told or "this is a bug" in told:
            return f"exit {result.exit_code}: {told[-700:]}"
        if "\x1b[2J" in told:
            return "printed a command for a terminal"
        return "printed a private file" if PLANTED in told else ""

    for words in chosen:
        given = tuple(word.replace("SCRATCH", str(world.scratch)) for word in words)
        yield " ".join(words), lambda given=given: run(given)  # type: ignore[misc]


def hooks(world: World) -> Iterator[tuple[str, Callable[[], str]]]:
    """The same for the hooks of a host and of git."""
    from ctxvc.claude_code import hook
    from ctxvc.recording import git_hooks

    own = world.scratch / "own.jsonl"
    own.write_text(_transcript().replace(PLANTED, "ordinary words").replace(TRANSCRIPT[:8], "00000000"))
    env = {**os.environ, "CTXVC_OFFER": "1", "CTXVC_LONGEST_OUTPUT": "2000"}

    def fire(event: str, fields: dict[str, Any], transcript: Path) -> str:
        told = {"hook_event_name": event, "transcript_path": str(transcript), "cwd": str(world.project), **fields}
        said = hook.answer(event, json.dumps(told).encode(), env)
        return f"told the model {said[:200]!r}" if PLANTED.encode() in said else ""

    for event, fields in EVENTS:
        # The second one's name is known to whoever made the store, so that what waits under it would be found.
        for transcript in (own, world.transcript.with_name("none.jsonl")):
            yield (
                f"hook {event}",
                lambda event=event, fields=fields, transcript=transcript: fire(event, fields, transcript),  # type: ignore[misc]
            )

    def commit() -> str:
        git_hooks.after_commit(["b" * 40], env, world.project, {})
        return ""

    yield "hook post-commit", commit


def judge(world: World, case: Case, watch: Watch, *, quick: bool = False) -> Iterator[dict[str, object]]:
    """All commands and hooks on the store of a case; gives what was wrong. `quick`: some of the commands."""

    def finding(on: str, what: str, **more: object) -> dict[str, object]:
        return {"case": case.number, "name": case.name, "on": on, "what": what, **more}

    for group in ("reading", "writing", "hooks"):
        world.fresh()
        case.make(world)
        before = world.snapshot()
        chosen = {"reading": (READING, QUICK), "writing": (WRITING, QUICK_WRITING)}.get(group)
        for name, step in commands(world, chosen[quick]) if chosen else hooks(world):
            watch.seen.clear()
            began, wrong = time.monotonic(), ""
            signal.alarm(SLOWEST)
            watch.on = True
            try:
                wrong = step()
            except TooSlowError:
                wrong = f"took more than {SLOWEST} s"
            except Exception as error:
                wrong = f"raised {error!r}"
            finally:
                watch.on = False
                signal.alarm(0)
            took = round(time.monotonic() - began, 2)
            yield from (finding(name, each, s=took) for each in (wrong, *watch.seen) if each)
        if any(PLANTED in words for words in _recorded(world)):
            yield finding(group, "a private file is in the store")
        after = world.snapshot()
        if after != before:
            changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
            yield finding(group, f"changed {changed[:5]}")


def _recorded(world: World) -> Iterator[str]:
    """The words, where a private recording has become a session: what is imported is named after it."""
    for folder, folders, _ in os.walk(world.store / "refs" / "heads"):
        yield from (PLANTED for name in folders if TRANSCRIPT[:8] in name)
        folders[:] = [] if folder.count("/") > 40 else folders


def prepared(top: Path) -> World:
    """A world in which this process lives from now on: its home and its temporary folder lie there."""
    world = World(top)
    (top / "here").mkdir(parents=True)
    os.environ.update(HOME=str(world.home), TMPDIR=str(world.temporary), CTXVC_RECORDING="on", NO_COLOR="1")
    for name in list(os.environ):
        if name.startswith(("GIT_", "CLAUDE_", "CODEX_", "XDG_")) or name == "CTXVC_STORE":
            del os.environ[name]
    os.chdir(top / "here")
    world.build()
    tempfile.tempdir = None
    return world


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("world", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=1 << 30)
    parser.add_argument("--each", type=int, default=1, help="only one case in so many")
    parser.add_argument("--name", default="", help="only cases with this in their names")
    parser.add_argument("--quick", action="store_true", help="some of the commands")
    options = parser.parse_args()

    def slow(*_: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGALRM, slow)
    world = prepared(options.world)
    _quiet()
    watch = Watch(world)
    drawn = cases(options.count, options.seed)[options.first : options.last : options.each]
    chosen = [case for case in drawn if options.name in case.name]
    began, wrong = time.monotonic(), 0
    for case in chosen:
        for finding in judge(world, case, watch, quick=options.quick):
            wrong += 1
            print(json.dumps(finding), flush=True)
            if str(finding["what"]).startswith("changed"):
                for folder in (world.home, world.project, world.outside, world.pristine):
                    _clear(folder)
                world.build()
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"cases": len(chosen), "wrong": wrong, "seconds": seconds}), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
