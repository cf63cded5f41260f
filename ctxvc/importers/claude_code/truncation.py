"""Results that the model saw cut, with the whole beside them: what the host cut, and what our hook did.

The body stays what the model saw. The whole is a file beside it, and a note in `extra` names that file.
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

#: What a hook has kept of a cut; None where nothing of that name and checksum is there.
StoredOutput = Callable[[Truncation], bytes | None]

#: How a result begins that the host cut, how it names the file that has all, and how far in it does so.
_CUT = b"<persisted-output>"
_SAVED = re.compile(rb"saved to: ([^\r\n]+?)\s*$", re.MULTILINE)
_HEAD = 4096
#: What is noted as the whole: there is mostly no other.
_FIRST = truncation.suffix(1)


def with_whole(events: Iterable[Event], transcript: Path, stored_output: StoredOutput) -> Iterator[Event]:
    """The events; each result that was cut has the whole beside it, where the host or a hook keeps it still."""
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
    """Whether a part is a result that says of itself that it was cut, truly or not."""
    return part.kind == "tool_result" and (part.body.startswith(_CUT) or truncation.MARK in part.body)


def _with_files(part: Part, transcript: Path, stored_output: StoredOutput) -> Part:
    by_host = _of_host(part.body, transcript) if part.body.startswith(_CUT) else None
    # The host may cut what a hook has cut already: then its file has our words in it.
    files = _of_hook(part.body if by_host is None else by_host, part.call, stored_output)
    if by_host is not None and not files:
        files = {_FIRST: by_host}
    if not files:
        return part
    noted = {**wire.own_metadata(part.extra), "cut": True, **({"whole": _FIRST} if _FIRST in files else {})}
    return msgspec.structs.replace(part, files=(*part.files, *files.items()), extra={**part.extra, "ctxvc": noted})


def _of_hook(body: bytes, call: str, stored_output: StoredOutput) -> Mapping[str, bytes]:
    """The texts of a call's output that a hook cut, by the names that they have as files."""
    outputs = ((truncation.suffix(one.number), stored_output(one)) for one in truncation.truncations(body, call))
    return {name: data for name, data in outputs if data is not None}


def _of_host(body: bytes, transcript: Path) -> bytes | None:
    """What is in the file that a result of the host's names; None where it is gone, or not the host's own."""
    match = _SAVED.search(body[:_HEAD])
    if match is None:
        return None
    file = Path(os.fsdecode(match[1]))
    project = transcript.parents[2] if transcript.parent.name == "subagents" else transcript.parent
    try:
        # The words are a tool's, perhaps: no file is read but those that the host keeps for its own outputs.
        inside = file.parent.name == "tool-results" and file.resolve(strict=True).is_relative_to(project.resolve())
        return file.read_bytes() if inside and file.stat().st_size <= LONGEST else None
    except (OSError, ValueError):
        return None  # the host has removed it: what it showed is what there is
