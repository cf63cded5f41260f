"""`-` as an argument: stdin, in place of a text or a file."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from ctxvc.errors import BadInput

DASH = Path("-")
#: A recording on stdin is known again by so many of its first bytes.
_FIRST = 1_000
_Value = TypeVar("_Value", str, tuple[str, ...])


def data() -> bytes:
    """The bytes on stdin. Raises: BadInput if it was read already."""
    context = click.get_current_context()
    if context.meta.setdefault("ctxvc.stdin", False):
        raise BadInput(
            "two arguments are -: stdin can be read only once", hint="give one of the two as a text, or as a file"
        )
    context.meta["ctxvc.stdin"] = True
    return sys.stdin.buffer.read() if sys.stdin else b""


def text() -> str:
    """The text on stdin, without the end of its last line. Raises: BadInput."""
    try:
        return data().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"stdin is not UTF-8: {error.reason} at byte {error.start}", hint="convert it first") from error


def or_text(_ctx: click.Context, _param: click.Parameter, value: _Value) -> _Value:
    """The text of an option or argument; for `-`, the text on stdin."""
    if isinstance(value, tuple):
        return tuple(text() if part == "-" else part for part in value)
    return text() if value == "-" else value


def content_of(path: Path, place: Callable[[Path], Path]) -> bytes:
    """The bytes of a file, found by `place`; of `-`, those on stdin. Raises: OSError, BadInput."""
    return data() if path == DASH else place(path).read_bytes()


@contextmanager
def as_file() -> Iterator[Path]:
    """A file with stdin's content, within the block. The same beginning gives the same name."""
    content = data()
    with tempfile.TemporaryDirectory(prefix="ctxvc-stdin-") as folder:
        path = Path(folder, f"stdin-{hashlib.sha256(content[:_FIRST]).hexdigest()[:8]}.jsonl")
        path.write_bytes(content)
        yield path
