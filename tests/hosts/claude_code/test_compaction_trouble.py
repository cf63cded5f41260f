"""Where the store cannot take a plan, the client compacts by itself, and what was said is recorded later."""

from __future__ import annotations

import shutil

import pytest

from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import Machine
from tests.hosts.claude_code.test_compaction import WORDS, human_texts, prepared, stored, worked
from tests.hosts.claude_code.test_trouble import damage
from tests.messages_api import text


@pytest.mark.parametrize("trouble", ["full", "damaged"])
def test_a_store_that_takes_nothing_leaves_the_compaction_to_the_client(every: Machine, trouble: str) -> None:
    prepared(every)
    every.store.mkdir()
    if trouble == "full":
        every.shell("mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(every.store))
    every.shell("ctxvc", "init")
    worked(every)
    every.settle()
    every.end_recorder()
    copy = every.project.parent / "copy"
    if trouble == "full":
        every.shell("sh", "-c", "cat /dev/zero > .ctxvc/filler 2>/dev/null || true")
    else:
        shutil.copytree(every.store, copy)
        damage(every.store)

    every.run("/compact")
    assert [body for body in every.requests(side=True) if scripted.compacts(body)], "its own summary was asked for"

    if trouble == "full":
        every.shell("rm", ".ctxvc/filler")
    else:
        every.end_recorder()
        shutil.rmtree(every.store / "objects")
        shutil.copytree(copy / "objects", every.store / "objects")
    every.run(WORDS[2], [text("Now this.")])
    if trouble == "full":
        every.settle(well=False)
        every.shell("ctxvc", "import")
        for words in WORDS:
            assert words in every.shell("ctxvc", "grep", "-F", words)
        every.shell("ctxvc", "verify")
        return
    with stored(every) as session:
        assert set(WORDS) <= set(human_texts(session))
        assert not session.pending_plans()
