"""Truncated results, with the whole output beside them, whether the host truncated them or our hook.

The body stays the text that the model saw. The whole output is a file beside it, named in `extra`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.truncation import Truncation
from ctxvc.core.recording.events import Event, Said
from ctxvc.importers.file import LONGEST

#: The whole output that a hook stored for a truncation; None if there is none of that name and checksum.
StoredOutput = Callable[[Truncation], bytes | None]

#: The beginning of a result that the host truncated, the line that names the file with all of it, and the bytes
#: within which that line comes.
_CUT = b"<persisted-output>"
_SAVED = re.compile(rb"saved to: ([^\r\n]+?)\s*$", re.MULTILINE)
_HEAD = 4096
#: The file that is noted as the whole output: nearly always the only one.
_FIRST = truncation.suffix(1)


def with_whole(events: Iterable[Event], transcript: Path, stored_output: StoredOutput) -> Iterator[Event]:
    """The events; each truncated result has its whole output beside it, if the host or a hook still has that."""
    for event in events:
        if isinstance(event, Said) and any(map(_is_truncated, event.message.parts)):
            parts = tuple(
                _with_files(part, transcript, stored_output) if _is_truncated(part) else part
                for part in event.message.parts
            )
            yield msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, parts=parts))
        else:
            yield event


def _is_truncated(part: Part) -> bool:
    """Whether a part is a result with the mark of a truncation, true or forged."""
    return part.kind == "tool_result" and (part.body.startswith(_CUT) or truncation.MARK in part.body)


def _with_files(part: Part, transcript: Path, stored_output: StoredOutput) -> Part:
    by_host = _of_host(part.body, transcript) if part.body.startswith(_CUT) else None
    # The host may truncate a result that a hook truncated before: then its file has our mark.
    files = _of_hook(part.body if by_host is None else by_host, part.call, stored_output)
    if by_host is not None and not files:
        files = {_FIRST: by_host}
    if not files:
        return part
    noted = {**wire.own_metadata(part.extra), "cut": True, **({"whole": _FIRST} if _FIRST in files else {})}
    return msgspec.structs.replace(part, files=(*part.files, *files.items()), extra={**part.extra, "ctxvc": noted})


def _of_hook(body: bytes, call: str, stored_output: StoredOutput) -> Mapping[str, bytes]:
    """The outputs of a call that a hook truncated, by file name."""
    outputs = ((truncation.suffix(one.number), stored_output(one)) for one in truncation.truncations(body, call))
    return {name: data for name, data in outputs if data is not None}


def _of_host(body: bytes, transcript: Path) -> bytes | None:
    """The content of the file that a result names; None if it is gone or not one of the host's own."""
    match = _SAVED.search(body[:_HEAD])
    if match is None:
        return None
    file = Path(os.fsdecode(match[1]))
    project = transcript.parents[2] if transcript.parent.name == "subagents" else transcript.parent
    try:
        # A tool may have forged the path: only files that the host keeps for its outputs are read.
        inside = file.parent.name == "tool-results" and file.resolve(strict=True).is_relative_to(project.resolve())
        return file.read_bytes() if inside and file.stat().st_size <= LONGEST else None
    except (OSError, ValueError):
        return None  # the host has removed it: the truncated text is all there is
