"""Prompts that the real client recorded as sent are exact in the store, live and across the ends of its processes."""

from __future__ import annotations

import pytest

from tests.hosts.claude_code.machine import Machine
from tests.hosts.claude_code.test_compaction import exact_prompts, human_texts, prepared, prints, stored, worked
from tests.messages_api import text, thought


@pytest.mark.parametrize("ours", [True, False])
def test_each_prompt_behind_a_manual_compaction_is_exact(here: Machine, ours: bool) -> None:
    prepared(here)
    if not ours:
        (here.home / ".config" / "ctxvc" / "config.toml").write_text("[claude-code]\noff = true\n")
    worked(here)
    here.run("/compact")
    here.settle()  # its end is recorded before the next process writes
    here.run("More.", [thought("On."), prints("needle-6", 20)], [text("Done again.")])
    here.run("/compact")
    here.settle()
    here.run("And more.", [text("Done at last.")])

    assert exact_prompts(here) == (len(here.requests()), [])
    with stored(here) as session:
        texts = human_texts(session)
        assert len(texts) == len(set(texts))
