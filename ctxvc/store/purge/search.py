"""Searches a whole store: unpacks every object, reachable or not, and reads every other file."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ctxvc.errors import Damaged, Phrase, Refused
from ctxvc.store.git import program
from ctxvc.store.purge.rewrite import names as names_in
from ctxvc.store.purge.scrub import Scrub
from ctxvc.store.trust import contained

#: Files that are deleted or replaced as a whole.
_CLEARED = frozenset({"worktrees", "logs", "checkout", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"})
_REPLACED = frozenset(
    {("ctxvc", "journal"), ("ctxvc", "cache"), ("ctxvc", "purge"), ("ctxvc", "hooks"), ("ctxvc", "recovered")}
)


def remaining(path: Path, scrub: Scrub, searched: Collection[str] = ()) -> Iterator[str]:
    """The places that still have some of the content, in all files and in all objects but those already `searched`."""
    there = program.run(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered")
    for name, kind in in_objects(path, scrub, [name for name in there.decode().split() if name not in searched]):
        yield f"{kind} {name[:12]}"
    for file in files(path):
        if scrub.has(file.read_bytes()):
            yield str(file.relative_to(path))


def in_objects(path: Path, scrub: Scrub, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Id and type of the objects that have some of the content."""
    old = {blob.hex() for blob in scrub.bodies}
    for name, kind, data in _read(path, names):
        if name in old or scrub.has(b"\n".join(names_in(data)) if kind == "tree" else data):
            yield name, kind


def _read(path: Path, names: Sequence[str]) -> Iterator[tuple[str, str, bytes]]:
    """Id, type and bytes of objects. Raises: Damaged at the first that cannot be read: it may have what is searched."""
    with tempfile.TemporaryFile() as requests:
        requests.write("".join(f"{name}\n" for name in names).encode())
        requests.seek(0)
        command = program.command(path, "cat-file", "--batch", "--buffer")
        with subprocess.Popen(
            command, stdin=requests, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=program.environment()
        ) as process:
            assert process.stdout is not None
            answers = program.objects(process.stdout)
            for name in names:
                kind, data = next(answers, ("", b""))
                if not kind:
                    raise Damaged(f"object {name[:12]} cannot be read", hint=Phrase("verify"))
                yield name, kind, data


def check_files(path: Path, marks: Mapping[bytes, bytes]) -> None:
    """Raises: Refused if something that is not ours to change has some of the content: a name, the configuration, …"""
    scrub = Scrub(marks=marks)
    for file in files(path):
        where = file.relative_to(path)
        ours = where.parts[0] in _CLEARED or where.parts[:2] in _REPLACED or where.name in _CLEARED
        if not ours and scrub.has(os.fsencode(where) + b"\n" + file.read_bytes()):
            raise Refused(f"{file} has some of it, and a purge does not change that file", hint=_hint(path, where))


def _hint(path: Path, where: Path) -> str | Phrase:
    """How to remove content from a file that is not ours to change."""
    if where.parts[0] in ("refs", "packed-refs", "HEAD") or where.parts[:2] == ("ctxvc", "lock"):
        remove = program.advice(f"--git-dir={path}", "branch", "-D", "SESSION/SCOPE")
        return Phrase("purge-name", remove=remove)
    return "remove it there first"


def files(path: Path) -> Iterator[Path]:
    """The files of a store except its objects, with those in folders among the packs, which git ignores."""
    for name in sorted(os.listdir(path)):
        if name != "objects":
            yield from contained.files(path / name)
    with os.scandir(path / "objects" / "pack") as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for folder in sorted(folders):
        yield from contained.files(folder)
