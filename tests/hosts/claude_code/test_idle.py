"""A session that is left alone is compacted before the provider's cache expires: by our plan, like any other."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import Machine
from tests.hosts.claude_code.test_compaction import WORDS, human_texts, prepared, sent, stored, worked
from tests.hosts.claude_code.test_pane import terminal
from tests.messages_api import text
from tests.messages_api.script import Reply

#: The client compacts when nine tenths of the cache's hour are over, unless it comes more than a minute late.
_ALMOST = 3600 * 9 // 10 - 2


class Clock:
    """The clock of the client, which can be put ahead."""

    def __init__(self, here: Machine) -> None:
        compiler = shutil.which("cc")
        if not compiler or not shutil.which("tmux"):
            pytest.skip("a C compiler or tmux is not there")
        library, self._ahead = here.outputs / "clock.so", here.outputs / "ahead"
        source = str(scripted.__file__).replace("scripted.py", "clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), source], check=True)
        self._ahead.write_bytes(bytes(8))
        here.env |= {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._ahead), "CLOCK_OF": here.client.name}

    def put_ahead(self, seconds: int) -> None:
        with self._ahead.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little"))


def test_an_idle_session_is_compacted_without_loss(here: Machine) -> None:
    prepared(here)
    worked(here)
    here.settle()
    clock = Clock(here)
    here.env |= {"ENABLE_PROMPT_CACHING_1H": "1"}
    usage = {"input_tokens": 150, "cache_creation_input_tokens": 250_000}
    here.scripts.of(here.session).main += [Reply([text("It is large now.")], usage=usage), [text("Here again.")]]
    with terminal(here, 150) as screen:
        screen.keys(WORDS[2])
        time.sleep(1)
        screen.keys("Enter")
        screen.awaits("It is large now.")
        time.sleep(3)  # its turn ends, and its timer is set
        clock.put_ahead(_ALMOST)
        screen.awaits("archived, 0 lost")
        screen.keys("I am back.")
        time.sleep(1)
        screen.keys("Enter")
        screen.awaits("Here again.")
        time.sleep(1)

    assert not [body for body in here.requests(side=True) if scripted.compacts(body)], "no summary was asked for"
    assert not here.refused()
    assert all(words in sent(here) for words in (*WORDS, "I am back.")) and "[archived B" in sent(here)
    with stored(here) as session:
        assert human_texts(session) == [*WORDS, "I am back."]
        assert not session.pending_plans()
        results = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert [row.removed_by for row in results].count("policy:default") >= 2 and len(results) == 3
