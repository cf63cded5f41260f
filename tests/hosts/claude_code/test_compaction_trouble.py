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
def test_a_store_that_takes_nothing_leaves_the_compaction_to_the_client(here: Machine, trouble: str) -> None:
    prepared(here)
    here.store.mkdir()
    if trouble == "full":
        here.shell("mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(here.store))
    here.shell("ctxvc", "init")
    worked(here)
    here.settle()
    here.end_recorder()
    copy = here.project.parent / "copy"
    if trouble == "full":
        here.shell("sh", "-c", "cat /dev/zero > .ctxvc/filler 2>/dev/null || true")
    else:
        shutil.copytree(here.store, copy)
        damage(here.store)

    here.run("/compact")
    assert [body for body in here.requests(side=True) if scripted.compacts(body)], "its own summary was asked for"

    if trouble == "full":
        here.shell("rm", ".ctxvc/filler")
    else:
        here.end_recorder()
        shutil.rmtree(here.store / "objects")
        shutil.copytree(copy / "objects", here.store / "objects")
    here.run(WORDS[2], [text("Now this.")])
    if trouble == "full":
        here.settle(well=False)
        here.shell("ctxvc", "import")
        for words in WORDS:
            assert words in here.shell("ctxvc", "grep", "-F", words)
        here.shell("ctxvc", "verify")
        return
    with stored(here) as session:
        assert set(WORDS) <= set(human_texts(session))
        assert not session.pending_plans()
