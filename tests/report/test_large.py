"""A session of 100,000 blocks, as a page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ctxvc.report.texts import MOST
from ctxvc.store.ingest import ingest
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.benchmarks.report import compacted
from tests.report.conftest import paged

BLOCKS = 100_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_session_of_100000_blocks_has_a_page_with_all_of_them(tmp_path: Path) -> None:
    with create(tmp_path / FOLDER) as store:
        name = ingest(store, compacted(BLOCKS), final=True).session
    page = paged(tmp_path, name)

    assert page.blocks.n >= BLOCKS and len(set(page.blocks.id)) == page.blocks.n
    assert all(intervals and intervals[-2] == page.calls.n + 1 for intervals in page.blocks.intervals)
    prompt: list[int] = []
    for call, splices in enumerate(page.prompts.deltas):
        for at, count, added in splices:
            prompt[at : at + count] = added
        if call % 1_000 == 0 or call == page.calls.n - 1:
            tokens = sum(page.prompts.pieces[piece].tokens for piece in prompt)
            overhead = page.calls.tokens.get("system prompt and tools", [0] * page.calls.n)[call]
            assert tokens + overhead == page.calls.total[call], call
    assert 0 < sum(map(len, page.bodies.chunks)) * 3 // 4 <= MOST + 1_000
    assert page.bodies.cut[0].command.startswith(f"ctxvc --session {name} show B")
    assert msgspec.json.decode(msgspec.json.encode(page), type=type(page)) == page
