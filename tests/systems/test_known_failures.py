"""What fails in the systems that ctxvc unites, each as a test that passes here; docstrings say where it was seen."""

from __future__ import annotations

import re
from pathlib import Path

from ctxvc import Session
from tests.making.blocks import call, result

from .building import blocks, bodies, expanded, lines, opened, reply, results, rows, say, sent, step, words

#: An address, where a stub or a tag has one.
ADDRESS = re.compile(r"\[(?:archived )?([BG]\d+(?:@[0-9a-f]{6})?)(?=, | · | in )|(?<= in )(G\d+)(?=\])")


def addresses(prompt: str) -> list[str]:
    """The addresses that the texts of ours in a prompt name."""
    return [block or group for block, group in ADDRESS.findall(prompt)]


# --- addressable blocks (VISTA, 1.4)


def test_an_archived_call_keeps_all_of_its_arguments_and_a_call_without_any_is_one_too(session: Session) -> None:
    """VISTA 2: of a call only the text was stored, and 500 characters of its arguments in the placeholder; a call with
    empty content got no payload, and recover said that there was none."""
    say(session, "go")
    asked, answer = step(session, "c1", "written", tool="write", path="a.py", text="x = 1\r\n" * 2000)
    empty, output = step(session, "c2", lines(50), tool="ctx")
    step(session, "c3", "later")
    session.archive([asked, answer], "a.py was written")
    assert session.archive([empty, output]).done
    assert blocks(session, "tool_use")[0]["id"] == "c3"
    assert session.recover(empty).content == "{}"
    session.restore([asked, empty])
    first, second, _ = blocks(session, "tool_use")
    assert first == call("c1", "write", path="a.py", text="x = 1\r\n" * 2000)
    assert second == call("c2", "ctx")


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


# --- layers of clearing and summarising (3.6)


def test_what_the_user_said_is_still_there_word_for_word_when_everything_else_has_left(path: Path) -> None:
    """Layers 9: after a compaction the user's words, corrections and rules were gone, or not the same."""
    with opened(path, budget=4_000) as session:
        say(session, "Use tabs, never spaces. It matters.")
        for at in range(12):
            step(session, f"c{at}", lines(120, f"run {at}"))
        say(session, "And do not touch vendor/.")
        session.request()
        assert "Use tabs, never spaces. It matters." in words(session)
        assert "And do not touch vendor/." in words(session)


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
