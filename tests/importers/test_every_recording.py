"""Every recording of `CTXVC_TEST_DATA`: imported as it grows, with bad lines in it, and beside a reading of its own.

What each format's own tests do with small files is done here with all real ones; the large ones are slow.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Compacted, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from tests.importers.growing import assert_grows_into_the_whole, random_ends
from tests.making.conversation import block_of
from tests.making.events import read

SHARED = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere"))
TRANSCRIPTS = SHARED / "transcripts"
#: Packed files of more bytes than this take seconds.
LARGE = 40_000


def of_size(path: Path, name: str) -> Any:
    packed = path.stat().st_size * (1 if path.suffix == ".gz" else 0.2)
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if packed > LARGE else [])


def lines_and_documents(*, lines: bool) -> list[Any]:
    """The files with a value a line, or those that are one document, with the names of their folders."""
    paths = sorted(path for path in TRANSCRIPTS.glob("*/*") if path.suffix in (".jsonl", ".gz", ".json", ".traj"))
    paths += sorted(TRANSCRIPTS.glob("other/copilot-cli/*"))
    return [
        of_size(path, f"{path.parent.name}-{path.name}")
        for path in paths
        if path.name != "README.md" and lines == (".jsonl" in path.name)
    ]


def trajectories() -> list[Any]:
    return [
        pytest.param(path, id=path.name.removesuffix(".jsonl.gz"), marks=[pytest.mark.slow])
        for path in sorted((SHARED / "trajectories").glob("*.jsonl.gz"))
    ]


pytestmark = pytest.mark.skipif(not TRANSCRIPTS.is_dir(), reason="CTXVC_TEST_DATA names no folder with transcripts/")
of_every_file_of_lines = pytest.mark.parametrize("path", lines_and_documents(lines=True))
of_every_document = pytest.mark.parametrize("path", lines_and_documents(lines=False))
of_every_trajectory = pytest.mark.parametrize("path", trajectories())


def data_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def stem(path: Path) -> str:
    return path.name.removesuffix(".gz")


@of_every_file_of_lines
def test_a_file_imported_at_random_cuts_gives_the_history_of_one_import(path: Path, tmp_path: Path) -> None:
    data, name = data_of(path), f"s{Path(stem(path)).suffix}"

    assert_grows_into_the_whole(tmp_path, name, data, random_ends(data, 5, path.name), redact=False)


def told(events: Iterable[Event]) -> Iterator[tuple[str, str, str, Any]]:
    """Role, kind, call and content of each part, with those of summaries."""
    for event in events:
        messages = [event.message] if isinstance(event, Said) else event.summary if isinstance(event, Compacted) else ()
        for message in messages:
            yield from ((part.role, part.kind, part.call, part.body) for part in message.parts)


@pytest.mark.parametrize("path", [*lines_and_documents(lines=True), *trajectories()])
def test_bad_lines_cost_themselves(path: Path, tmp_path: Path) -> None:
    lines = data_of(path).splitlines(keepends=True)
    chance = random.Random(path.name)
    whole, damaged = tmp_path / "whole" / "s.jsonl", tmp_path / "damaged" / "s.jsonl"
    for one in (whole, damaged):
        one.parent.mkdir()
    whole.write_bytes(b"".join(lines))
    bad = [
        b'{"type": "user", "mess\n',
        b"\xff\xfe\x00\n",
        b"[1, 2\n",
        lines[len(lines) // 2][:40].rstrip(b"\n") + b"\n",
    ]
    for line in bad:
        lines.insert(chance.randrange(1, len(lines)), line)
    damaged.write_bytes(b"".join(lines))

    before, after = read(whole), read(damaged)

    assert list(told(after)) == list(told(before)) != []
    warned = [sum(isinstance(event, Warned) for event in events) for events in (before, after)]
    assert warned[1] == warned[0] + len(bad)


@of_every_document
def test_of_a_document_that_is_cut_the_beginning_is_told_or_it_is_refused(path: Path, tmp_path: Path) -> None:
    data, chance = data_of(path), random.Random(path.name)
    text = importers.detect(Recording(path))
    whole = list(told(read(path, text)))
    for number in range(5):
        cut = tmp_path / f"{number}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(data[: chance.randrange(1, len(data))])
        try:
            events = read(cut, text)
        except BadInput as error:
            assert str(error)
            continue
        begun = list(told(events))
        assert begun == whole[: len(begun)]
        assert any(isinstance(event, Warned) for event in events)


def as_written(path: Path) -> Iterator[tuple[str, Any]]:
    """Role and block of each message in a trajectory, by a reading that knows nothing of ours."""
    messages = [json.loads(line) for line in data_of(path).splitlines()][1:]
    while messages and messages[0]["role"] == "system":
        messages.pop(0)
    for message in messages:
        for block in message["content"]:
            block.pop("synthetic", None)
            yield message["role"], block


@of_every_trajectory
def test_every_message_of_a_trajectory_is_as_its_line_has_it(path: Path) -> None:
    events = read(path)
    spoken = [
        (part.role, block_of(part))
        for event in events
        for message in (
            [event.message] if isinstance(event, Said) else event.summary if isinstance(event, Compacted) else ()
        )
        for part in message.parts
    ]
    system = [event.system for event in events if isinstance(event, Opened) and event.system]
    first = [json.loads(line) for line in data_of(path).splitlines()][1]

    assert [(role, normal(block)) for role, block in spoken] == [
        (role, normal(block)) for role, block in as_written(path)
    ]
    assert bool(system) == (first["role"] == "system")


def normal(block: Any) -> Any:
    """A block with what two forms of it may say differently in one form: a result's text, and that it is no error."""
    if block.get("type") != "tool_result":
        return block
    content = block.get("content", [])
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {
        **block,
        "content": [item for item in content if item != {"type": "text", "text": ""}],
        "is_error": bool(block.get("is_error")),
    }
