"""What fails in the systems that ctxvc unites, each as a test that passes here; docstrings say where it was seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctxvc import Session, Store
from ctxvc.errors import BadInput
from tests.making.blocks import call, result
from tests.making.processes import KILLED, dies_once_acknowledged, ended

from .building import (
    blocks,
    bodies,
    expanded,
    lines,
    opened,
    reply,
    results,
    rows,
    say,
    sent,
    step,
    words,
)

#: An address, where a stub or a tag has one.
ADDRESS = re.compile(r"\[(?:archived )?([BG]\d+(?:@[0-9a-f]{6})?)(?=, | · | in )|(?<= in )(G\d+)(?=\])")


def addresses(prompt: str) -> list[str]:
    """The addresses that the texts of ours in a prompt name."""
    return [block or group for block, group in ADDRESS.findall(prompt)]


# --- addressable blocks (VISTA, 1.4)


def test_a_call_without_any_text_or_argument_can_be_archived_and_recovered(session: Session) -> None:
    """VISTA 2: a call with empty content got no payload, and recover said that there was none."""
    say(session, "go")
    asked, answer = step(session, "c1", lines(50), tool="ctx")
    step(session, "c2", "later")

    assert session.archive([asked, answer]).done

    assert session.recover(asked).content == "{}"
    session.restore(asked)
    assert blocks(session, "tool_use")[0] == call("c1", "ctx")


def test_a_picture_comes_back_as_the_picture_it_was(session: Session) -> None:
    """VISTA 3: images were stored as the text of a Python dictionary."""
    data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    say(session, "go")
    _, answer = step(session, "c1", [{"type": "text", "text": lines(80)}, image])
    step(session, "c2", "later")

    session.archive(answer)
    session.restore(answer)

    *content, tag = blocks(session, "tool_result")[0]["content"]
    assert content == [{"type": "text", "text": lines(80)}, image]
    assert tag == {"type": "text", "text": session.ledger()[answer].tag}


def test_every_stub_and_recovery_names_a_checksum_and_how_to_get_it_back(session: Session) -> None:
    """VISTA 4 and 6: no checksum anywhere, no path in the placeholder, so that the way back was lost."""
    say(session, "go")
    _, answer = step(session, "c1", lines(60))
    step(session, "c2", "later")

    session.archive(answer, "sixty lines")

    row = session.ledger()[answer]
    assert f"[archived {row.handle}, 480 tokens; sixty lines]" in words(session)
    recovered = session.recover(row.handle)
    assert (recovered.content, row.handle in recovered.header) == (lines(60), True)


def test_what_the_user_corrected_cannot_be_taken_away_by_the_agent(session: Session) -> None:
    """VISTA 8: only the first message was protected; every later word of the user could be archived and deleted."""
    say(session, "Write the report.")
    reply(session, "Done.")
    correction = say(session, "No: in French, and without the table. " * 20)
    reply(session, "Voilà.")
    say(session, "Thanks.")
    reply(session, "You are welcome.")

    for verb in ("archive", "prune", "delete", "mask"):
        done = session.verb(verb, correction, "to save space")  # type: ignore[arg-type]

        assert not done
        assert [problem.why for problem in done.problems] == ["human"]
        assert "in French" in words(session)


def test_archiving_again_keeps_the_older_index_text(session: Session) -> None:
    """VISTA 10: archiving again replaced the index text, and the older one was lost."""
    say(session, "go")
    _, first = step(session, "c1", lines(60))
    _, second = step(session, "c2", lines(70))
    step(session, "c3", "later")
    older = "the failing tests of the login, with the trace of each, before anything was mended"
    session.archive(first, older)
    session.archive(second, "the fixed tests")

    assert session.archive([first], "round one").done
    assert session.archive([first, second], "both").problems

    assert "round one" in words(session)
    (group,) = session.ledger().groups
    assert session.ledger().groups[group].level == 2
    assert older in session.recover(group).content
    assert "the fixed tests" in words(session)


def test_a_stub_never_costs_more_than_what_it_stands_for(session: Session) -> None:
    """VISTA 11: a placeholder of 20 to 40 tokens stood for blocks of a few tokens. LangChain 3: `[cleared]` grew two
    characters."""
    say(session, "go")
    _, answer = step(session, "c1", "ok")
    step(session, "c2", "later")
    before = session.used()

    done = session.archive(answer, "it went well")

    assert [problem.why for problem in done.problems] == ["no saving"]
    assert not done
    assert session.used() == before


# --- layers of clearing and summarising (3.6)


# --- explicit scopes (4.4)


def test_the_users_task_is_in_the_prompt_after_going_back_to_main(session: Session) -> None:
    """Scopes 1: in a real loop `goto main` left only an orphan result: task and call were gone."""
    say(session, "Mend the login.")
    reply(session, call("c1", "ctx", command="scope step-1"))
    session.open_scope("step-1", "looking")
    results(session, result("c1", "you are in step-1 now"))
    assert "Mend the login." in words(session)

    reply(session, call("c2", "ctx", command="goto main"))
    session.goto("main", "it was the clock")
    results(session, result("c2", "you are in main now"))

    shown = words(session)
    assert "Mend the login." in shown
    assert "[→ step-1] looking" in shown
    assert "[← step-1] it was the clock" in shown
    assert [block["id"] for block in blocks(session, "tool_use")] == ["c1"]


def test_a_note_and_a_scope_in_one_reply_are_both_made(session: Session) -> None:
    """Scopes 2: a parallel note and scope gave a scope that held only an orphan result."""
    say(session, "go")
    reply(session, call("c1", "ctx", command="note"), call("c2", "ctx", command="scope other"))
    session.note("the cache key lacks the tenant")
    session.open_scope("other", "a look")
    results(session, result("c1", "noted"), result("c2", "you are in other now"))

    assert session.scope == "other"
    assert [note.text for note in session.notes("main")] == ["the cache key lacks the tenant", "[→ other] a look"]
    assert [note.text for note in session.notes()] == ["the cache key lacks the tenant", "[→ other] a look"]
    assert "the cache key lacks the tenant" in words(session)
    assert blocks(session, "tool_result") == []
    assert [row.call for row in rows(session, "tool_result", "main")] == ["c1", "c2"]


@pytest.mark.parametrize("empty", ["", " \n "])
def test_a_note_or_a_switch_without_a_word_is_refused_by_a_sentence(session: Session, empty: str) -> None:
    """Scopes 5: `note -m` raised an IndexError, and empty notes were stored."""
    say(session, "go")
    for act in (lambda: session.note(empty), lambda: session.open_scope("a", empty)):
        with pytest.raises(BadInput):
            act()
    assert session.notes() == []
    assert session.scopes() == ["main"]


def test_a_note_may_say_anything(session: Session) -> None:
    """Scopes 6: an apostrophe in a note was an unbalanced quote, and an error."""
    texts = ["it's the user's", 'she said "no', "`rm -rf`; $(x) \\", "a\nb\tc", "[← main] hm"]
    say(session, "go")
    reply(session, "yes")
    for text in texts:
        session.note(text)

        assert text.splitlines()[0].lstrip("[") in words(session)
    assert [note.text for note in session.notes()] == texts


def test_everything_is_there_after_a_restart(path: Path) -> None:
    """Scopes 7: snapshots, events and plans were not loaded again, so that nothing could be reconstructed."""
    with opened(path) as session:
        say(session, "go")
        _, answer = step(session, "c1", lines(60))
        step(session, "c2", "later")
        session.archive(answer, "sixty lines")
        session.note("learned")
        session.open_scope("other", "a look")
        reply(session, "here")
        reply(session, call("open"))
        before = (sent(session), bodies(session), session.notes(), session.ledger().groups, session.scope)
        waiting = session.stored.open_calls

    with opened(path) as session:
        assert (sent(session), bodies(session), session.notes(), session.ledger().groups, session.scope) == before
        assert session.stored.open_calls == waiting == ("open",)
        assert "sixty lines" in session.ledger("main")[answer].stub


# --- episodes (5.4) and everything else of this kind


def test_content_that_nobody_annotated_can_leave(session: Session) -> None:
    """CWL 5.2: outside its chunks nothing was ever evicted: 40,000 characters stayed at a budget of 100 tokens."""
    say(session, "go")
    _, answer = step(session, "c1", "x" * 40_000)
    step(session, "c2", "later")

    assert session.archive(answer).freed > 1_000


def test_an_acknowledged_step_is_there_after_a_kill(path: Path) -> None:
    """Scopes 7 and VISTA 9: what was in memory, or half written, was gone with the process."""
    assert ended(dies_once_acknowledged, str(path)) == KILLED

    with opened(path) as session:
        assert [body.decode() for body in bodies(session).values()] == ["go", "said", "learned"]
    with Store(path) as store:
        assert store.sessions() == ["demo"]


def test_every_address_in_the_prompt_can_be_read(session: Session) -> None:
    """VISTA 6, CWL 5.4: what was evicted had no address, or one that the prompt did not show."""
    say(session, "go")
    pairs = [step(session, f"c{at}", lines(30 + at)) for at in range(6)]
    step(session, "c9", "later")
    session.archive(pairs[0][1], "one")
    session.archive([*pairs[1], *pairs[2]], "two")
    session.archive(pairs[3][1])
    (group,) = session.ledger().groups
    session.archive([group, pairs[3][1]], "three")
    session.archive([pairs[4][1]])

    named = addresses(words(session))
    (outer,) = (name for name, made in session.ledger().groups.items() if not made.group)
    shown = {pairs[0][1], outer, pairs[3][1], pairs[4][1], pairs[5][1]}
    assert {address.partition("@")[0] for address in named} == shown
    for address in named:
        assert session.recover(address).content
        assert expanded(session, address)
