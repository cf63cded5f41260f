"""An export is a session of the real client: it goes on there, thinking stays valid, and all of it is one session."""

from __future__ import annotations

import re

import pytest

from ctxvc.core.prompt.formats import normalise_anthropic
from ctxvc.session import proof
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import VERSIONS, Machine, machine
from tests.hosts.claude_code.test_compaction import WORDS, compacted, prepared, prints, sent
from tests.messages_api import Judge, text, thought

THINKING = "Let me see."
#: What is done in the store before the export → whether thinking is as the model saw it.
EDITS = {"nothing": True, "taken back": True, "archived": False}


def exported(here: Machine, *arguments: str) -> str:
    """Exports the session's newest state into the client's folder; gives the name of the new session."""
    printed = here.shell("ctxvc", "export", "--format", "claude-code", "--install", *arguments)
    (name,) = re.findall(r"claude --resume ([0-9a-f-]+)", printed)
    here._started.add(name)
    return name


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_export_goes_on_in_the_client_and_comes_back_into_its_session(version: str, edit: str) -> None:
    """This provider refuses thinking that stands behind anything else than it did."""
    with machine(version, judge=Judge()) as here:
        here.run(WORDS[0], [thought(f"{THINKING} I print."), prints("needle-1")], [text("One.")])
        here.run(WORDS[1], [thought(f"{THINKING} Again."), prints("needle-2")], [text("Two.")])
        here.settle()
        before = here.requests()[-1]
        if edit != "nothing":
            with Store(here.store) as store:
                stored = StoredSession.open(store)
                result = [row.id for row in stored.ledger().rows() if row.kind == "tool_result"][-1]
                stored.leave()
            here.shell("ctxvc", "archive", result)
        if edit == "taken back":
            here.shell("ctxvc", "undo")
        name = exported(here)
        here.run(WORDS[2], [thought(f"{THINKING} On."), prints("needle-3", 9)], [text("Three.")], session=name)
        here.settle()

        now = here.requests(name)[-1]
        assert all(words in str(now["messages"]) for words in WORDS)
        assert scripted.text(now).count(THINKING) == (3 if EDITS[edit] else 2), "none behind an edit, else all"
        if EDITS[edit]:
            same = [normalise_anthropic(body["messages"]) for body in (now, before)]
            assert same[0][: len(same[1])] == same[1]
        here.shell("ctxvc", "import")
        with Store(here.store) as store:
            (session,) = store.sessions()
            assert len(store.tips(session)) == 2, "the export goes on in a scope of its own"
            (scope,) = [one for one in store.tips(session) if one != "main"]
            stored = StoredSession.open(store, session, scope)
            human = [stored.body(row).decode() for row in stored.ledger().rows() if row.origin == "human"]
            stored.leave()
            assert human == list(WORDS)
            assert not proof.check_prompts(store)[1]


def test_what_an_undo_brings_back_is_in_the_prompt_at_once_by_an_export(here: Machine) -> None:
    prepared(here)
    here.run(WORDS[0], [prints("needle-1"), prints("needle-2")], [text("One.")])
    here.run(WORDS[1], [prints("needle-3")], [text("Two.")])
    compacted(here, here.run("/compact"))
    here.settle()
    here.shell("ctxvc", "undo")
    here.run(WORDS[2], [text("Three.")], session=exported(here))
    assert sent(here).count("\n2999") == 3 and "[archived B" not in sent(here)
    assert all(sent(here).count(words) == 1 for words in WORDS)
