"""Recorded sessions played again, with hooks that overlap and die: what is recorded is what one import gives."""

from __future__ import annotations

import gzip
import random
import time
from pathlib import Path

import pytest

from ctxvc.store.git import program
from ctxvc.store.project.locate import FOLDER
from tests.making.host import cuts, end_recorder, history, hook, hooked, settle, single_import

DATA = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"
EVENTS = ("UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop")


def replay(place: Path, source: Path, seed: int, *, pieces: int, together: int, deaths: float) -> Path:
    """Plays a recording; `together` hooks run at once, and of them and the recorders a part of `deaths` is killed."""
    store = place / FOLDER
    transcript = place.parent / "projects" / f"{source.name.split('.')[0]}.jsonl"
    transcript.parent.mkdir()
    data = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    chance = random.Random(seed)
    hook(place, transcript, "SessionStart", source="startup")
    running = []
    for piece in cuts(data.splitlines(keepends=True), seed, pieces):
        with transcript.open("ab") as file:
            file.write(piece)
        running.append(hooked(place, transcript, chance.choice(EVENTS)))
        if chance.random() < deaths:
            chance.choice(running).kill()
        if chance.random() < deaths:
            end_recorder(store)
        while len(running) >= together:
            running.pop(0).wait()
        time.sleep(chance.random() * 0.2)
    for process in running:
        process.wait()
    hook(place, transcript, "SessionEnd", reason="other")
    settle(store)
    return transcript


def test_a_growing_transcript_gives_what_one_import_gives(place: Path) -> None:
    transcript = replay(place, DATA, 1, pieces=8, together=1, deaths=0)

    assert history(place / FOLDER) == single_import(place.parent, transcript)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hooks_that_overlap_and_die_lose_nothing_and_take_nothing_twice(
    place: Path, recordings: Path, seed: int
) -> None:
    sources = sorted((recordings / "transcripts" / "claude-code").iterdir())
    transcript = replay(place, sources[seed % len(sources)], seed, pieces=30, together=4, deaths=0.3)

    store = place / FOLDER
    assert history(store) == single_import(place.parent, transcript)
    assert program.run(store, "fsck", "--full", "--strict", "--no-dangling") == b""
