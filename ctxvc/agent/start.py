"""What the instruction files of a project say to an agent that works in one of its folders."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ctxvc.agent.file_list import top
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message

#: Files whose words the model has to keep to, in this order; they stand pinned at the beginning.
NAMES = ("AGENTS.md", "CLAUDE.md")
#: Bytes of such a file that are taken at most.
LARGEST = 64 << 10


class Told(msgspec.Struct, frozen=True):
    """What a file says, as a message of the client's. `cut` says what is missing of it; empty where it is whole."""

    message: Message
    cut: str = ""


def read(folder: Path) -> list[Told]:
    """What the files say that stand between the top of the folder's repository and the folder itself, each once.

    A link counts as the file that it leads to, if that lies below the folder of the link: what is elsewhere is not for
    a model to read.
    """
    folder = folder.resolve()
    above = top(folder)
    places = [folder, *folder.parents]
    places = places[: places.index(above) + 1] if above in places else [folder]
    told: dict[Path, Told] = {}
    for place in reversed(places):
        for name in NAMES:
            found = Path(os.path.realpath(place / name))  # `resolve` raises for links that go round
            if found in told or place not in found.parents:
                continue
            if said := _said(found, os.path.relpath(place / name, folder)):
                told[found] = said
    return list(told.values())


def _said(path: Path, name: str) -> Told | None:
    """What a file says; None where it is none, or cannot be read."""
    try:
        if not path.is_file():  # to read a pipe may take for ever
            return None
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
            size = file.seek(0, os.SEEK_END)
    except OSError:
        return None
    cut = ""
    if len(data) > LARGEST:
        data = data[: data.rfind(b"\n", 0, LARGEST) + 1 or LARGEST]
        cut = f"of the {size:,} bytes of {name} these are the first {len(data):,}"
    words = f"{name} of this project says:\n\n{data.decode('utf-8', 'replace')}{f'[{cut}]' if cut else ''}"
    part = wire.text_part(words, "user", "client", ctxvc={"file": name})
    return Told(Message(role="user", parts=(part,)), cut)
