"""The faults reported by `git fsck`, as values."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec

from ctxvc.store.git import program

_ID = re.compile(r"\b[0-9a-f]{40}\b")
_REF = re.compile(r"\b(?:refs/[^\s:]+|HEAD)")
_LOOSE = re.compile(r"\bobjects/([0-9a-f]{2})/([0-9a-f]{38})\b")
_PACK = re.compile(r"\bobjects/pack/(pack-[0-9a-f]+\.\w+)")
#: Lines that repeat another line or report no fault.
_NOISE = (
    "broken link from",
    "to ",
    "dangling ",
    "unreachable ",
    "notice: ",
    "Checking ",
    "warning: ignoring broken ref",
)


class Complaint(msgspec.Struct, frozen=True):
    """One fault that git reports. `object` is a hexadecimal id; all fields except `text` may be empty."""

    text: str
    object: str = ""
    ref: str = ""
    pack: str = ""
    mild: bool = False


def complaints(path: Path) -> list[Complaint]:
    """The faults that git finds in the whole store: connectivity, every object's bytes and form, packs, refs."""
    answer = subprocess.run(
        program.command(path, "fsck", "--full", "--strict", "--no-dangling", "--no-progress"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=program.environment(),
        check=False,
    )
    listed = parse(answer.stdout.decode("utf-8", "replace"))
    if answer.returncode and not listed:
        listed.append(Complaint(f"git fsck exited with {answer.returncode} and gave no reason"))
    return listed


def parse(output: str) -> list[Complaint]:
    """The faults in the output of `git fsck`, one per object, ref or pack."""
    listed: dict[str, Complaint] = {}
    for raw in output.splitlines():
        line = raw.strip()
        if line and not line.startswith(_NOISE):
            complaint = _complaint(line)
            listed.setdefault(complaint.object or complaint.ref or complaint.pack, complaint)
    if len(listed) > 1:
        listed.pop("", None)  # such as "inflate: data stream error": another line names the object
    return list(listed.values())


def _complaint(line: str) -> Complaint:
    mild = line.startswith("warning")
    if ref := _REF.search(line):
        # A broken ref may contain anything, not only an id.
        return Complaint(line, ref=ref.group(), mild=mild)
    if loose := _LOOSE.search(line):
        return Complaint(line, object="".join(loose.groups()), mild=mild)
    pack = _PACK.search(line)
    match = _ID.search(_PACK.sub("", line))
    return Complaint(line, object=match.group() if match else "", pack=pack.group(1) if pack else "", mild=mild)
