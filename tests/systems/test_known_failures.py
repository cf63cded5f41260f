"""What fails in the systems that ctxvc unites, each as a test that passes here; docstrings say where it was seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ctxvc import Session, Store
from ctxvc.core.prompt.recover import span
from ctxvc.errors import BadInput, BadName, CtxvcError, OverBudget, Refused
from tests.making.blocks import call, result

from .building import (
    blocks,
    bodies,
    everything,
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
from .processes import appends, side_by_side

#: An address, where a stub or a tag has one.
ADDRESS = re.compile(r"\[(?:archived )?([BG]\d+(?:@[0-9a-f]{6})?)(?=, | · | in )|(?<= in )(G\d+)(?=\])")


def addresses(prompt: str) -> list[str]:
    """The addresses that the texts of ours in a prompt name."""
    return [block or group for block, group in ADDRESS.findall(prompt)]


# --- addressable blocks (VISTA, 1.4)


@pytest.mark.parametrize(
    "content",
    ["one\r\ntwo\r\n" * 500, "lone \ud800 surrogate " * 200, "nul \0 and no end of line " * 200],
    ids=["CRLF", "surrogate", "NUL"],
)
def test_a_result_comes_back_byte_for_byte_where_text_mode_changed_it(session: Session, content: str) -> None:
    """VISTA 1: CRLF came back as LF. VISTA 3: a lone surrogate made archive fail."""
    say(session, "go")
    _, answer = step(session, "c1", content)
    step(session, "c2", "later")
    before = session.body(answer)

    session.archive(answer, "a result")

    assert session.body(answer) == before == content.encode("utf-8", "surrogatepass")
    session.restore(answer)
    first, _ = blocks(session, "tool_result")
    text, tag = first["content"]
    assert text == {"type": "text", "text": content.replace("\ud800", "\ufffd")}, "what UTF-8 has"
    assert tag == {"type": "text", "text": session.ledger()[answer].tag}, "and its address, as a part of its own"


def test_an_archived_call_keeps_all_of_its_arguments(session: Session) -> None:
    """VISTA 2: of a call only the text was stored, and 500 characters of its arguments in the placeholder."""
    say(session, "go")
    asked, answer = step(session, "c1", "written", tool="write", path="a.py", text="x = 1\r\n" * 2000)
    step(session, "c2", "later")

    session.archive([asked, answer], "a.py was written")
    assert blocks(session, "tool_use")[0]["id"] == "c2"
    session.restore(asked)

    first = blocks(session, "tool_use")[0]
    assert (first["id"], first["name"], first["input"]) == ("c1", "write", {"path": "a.py", "text": "x = 1\r\n" * 2000})


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


def test_a_result_that_ran_is_stored_whole_however_little_room_there_is_and_never_asked_for_again(
    path: Path,
) -> None:
    """VISTA 5: in strict mode a result that did not fit was thrown away, and the tool had to run again."""
    with opened(path, budget=3_000) as session:
        say(session, "go")
        huge = lines(4_000, "a log of something that was done once")
        step(session, "c1", lines(100))
        _, answer = step(session, "c2", huge)

        assert session.body(answer).decode() == huge
        shown = words(session)
        assert session.ledger()[answer].handle in shown
        part = session.recover(answer, most=300)
        assert huge.startswith(part.content)
        assert part.next


def test_an_error_about_a_hundred_thousand_blocks_is_short(session: Session) -> None:
    """VISTA 7: `B1-B100000` gave an error of 788,945 characters, and one unknown id refused everything."""
    say(session, "go")
    _, answer = step(session, "c1", lines(60))
    step(session, "c2", "later")

    done = session.archive(f"B1-B100000, {', '.join(f'B{n}' for n in range(5_000, 9_000))}", "all")

    assert answer in [row.id for row in done.rows]
    unknown = [problem for problem in done.problems if problem.why == "unknown"]
    assert unknown
    assert sum(len(problem.text) for problem in unknown) < 400


@pytest.mark.parametrize("verb", ["archive", "prune", "delete", "mask"])
def test_what_the_user_corrected_cannot_be_taken_away_by_the_agent(session: Session, verb: str) -> None:
    """VISTA 8: only the first message was protected; every later word of the user could be archived and deleted."""
    say(session, "Write the report.")
    reply(session, "Done.")
    correction = say(session, "No: in French, and without the table. " * 20)
    reply(session, "Voilà.")
    say(session, "Thanks.")
    reply(session, "You are welcome.")

    done = session.verb(verb, correction, "to save space")  # type: ignore[arg-type]

    assert not done
    assert [problem.why for problem in done.problems] == ["human"]
    assert "in French" in words(session)


def test_two_processes_never_lose_each_others_work(path: Path) -> None:
    """VISTA 9: two processes wrote one JSON file, without a lock and without an atomic rename."""
    with opened(path) as session:
        say(session, "go")

    side_by_side(appends, path, [("left", 12), ("right", 12)])

    with opened(path) as session:
        said = [body.decode() for body in bodies(session).values()]
    for name in ("left", "right"):
        assert [each for each in said if each.startswith(name)] == [f"{name} {at}" for at in range(12)]


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


def test_what_was_cleared_has_an_address(session: Session) -> None:
    """Layers 3: `[cleared]` stood where a result had been, and nobody could say which."""
    say(session, "go")
    answers = [step(session, f"c{at}", lines(40 + at))[1] for at in range(3)]
    step(session, "c9", "later")

    session.archive(answers, "three runs")

    (group,) = session.ledger().groups
    handle = next(address for address in addresses(words(session)) if address.startswith(f"{group}@"))
    listed = session.recover(handle).content
    assert all(session.ledger()[answer].handle in listed for answer in answers)


def test_a_result_never_stays_without_its_call(session: Session) -> None:
    """Layers 4: a cutoff that fell into a batch of calls left results whose call was gone, which the API refuses."""
    say(session, "go")
    asked = reply(session, call("c1", n=1), call("c2", n=2), call("c3", n=3))
    answers = results(session, *(result(f"c{at}", lines(40)) for at in (1, 2, 3)))
    step(session, "c9", "later")

    for gone in (asked[0], answers[1], asked[2], answers[2], asked[1], answers[0]):
        session.prune(gone)
        sent(session)  # the provider would take it


@pytest.mark.parametrize("pair", [("a/b.c", "a_b_c"), ("..", "."), ("x" * 600, "x" * 601), ("", "")])
def test_two_results_whose_ids_look_alike_are_two_results(session: Session, pair: tuple[str, str]) -> None:
    """Layers 6: long ids broke file names, and distinct ids such as `a/b.c` and `a_b_c` gave one path."""
    say(session, "go")
    left, right = pair
    asked = reply(session, call(left, n=1), call(right, n=2))
    answers = results(session, result(left, lines(40, "left")), result(right, lines(40, "right")))
    step(session, "later", "later")

    assert len({*asked, *answers}) == 4
    held = [session.body(answer).decode() for answer in answers]
    assert held == [lines(40, "left"), lines(40, "right")]
    session.archive(answers)
    assert [session.body(answer).decode() for answer in answers] == held


def test_reading_a_block_of_few_giant_lines_comes_to_an_end(path: Path) -> None:
    """Layers 7: a result with few very long lines was read, offloaded again, and read again, without end."""
    with opened(path, budget=4_000) as session:
        say(session, "go")
        giant = "".join(f"{at}," for at in range(12_000)) + "\nend\n"
        _, answer = step(session, "c1", giant)

        read, ask, calls = "", session.recover(answer), 0
        while True:
            read, calls = read + ask.content, calls + 1
            assert calls < 100
            if ask.complete:
                break
            option, _, asked = ask.next.partition("--")[2].partition(" ")
            ask = session.recover(answer, **{option: asked})
        assert read == giant


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


def test_neither_scope_keeps_a_call_without_its_result(session: Session) -> None:
    """Scopes 2: `scope` from inside a call left a dangling call in the origin."""
    say(session, "go")
    reply(session, call("c1"), call("c2", "ctx", command="scope other"))
    session.open_scope("other", "a look")
    assert session.scope == "main"
    results(session, result("c1", "ran"))
    assert session.scope == "main", "a call is still open"
    results(session, result("c2", "done"))

    assert session.scope == "other"
    for scope in ("main", "other"):
        calls = [row.call for row in rows(session, "tool_use", scope)]
        answers = [row.call for row in rows(session, "tool_result", scope)]
        assert sorted(calls) == sorted(answers), scope


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


def test_a_scope_may_be_called_fix_error(session: Session) -> None:
    """Scopes 3: failure was seen by the word "error" in the answer, so `fix-error` got no arrival note."""
    say(session, "go")
    session.open_scope("fix-error", "an error: why?")
    assert session.scope == "fix-error"
    session.goto("main", "error found")

    assert "[← fix-error] error found" in [note.text for note in session.notes()]


@pytest.mark.parametrize("name", ["taken", "main", "None", "-m", "a b", "../x", "", "héhé", "x.lock", "HEAD"])
def test_a_scope_that_cannot_be_opened_writes_nothing(session: Session, path: Path, name: str) -> None:
    """Scopes 4: on an existing name the departure note was written before it failed. 5 and 8: names were unchecked."""
    say(session, "go")
    reply(session, "yes")
    session.open_scope("taken", "first")
    session.goto("main", "back")
    session.stored.flush()
    before = everything(path)

    if name == "None":  # a name like any other
        session.open_scope(name, "why not")
        assert session.scope == "None"
        return
    with pytest.raises(CtxvcError) as raised:
        session.open_scope(name, "second")

    assert isinstance(raised.value, Refused if name in ("taken", "main") else BadName)
    assert len(str(raised.value)) < 400
    assert everything(path) == before
    assert session.scope == "main"


@pytest.mark.parametrize("empty", ["", " \n "])
def test_a_note_or_a_switch_without_a_word_is_refused_by_a_sentence(session: Session, empty: str) -> None:
    """Scopes 5: `note -m` raised an IndexError, and empty notes were stored."""
    say(session, "go")
    for act in (lambda: session.note(empty), lambda: session.open_scope("a", empty)):
        with pytest.raises(BadInput):
            act()
    assert session.notes() == []
    assert session.scopes() == ["main"]


@pytest.mark.parametrize("text", ["it's the user's", 'she said "no', "`rm -rf`; $(x) \\", "a\nb\tc", "[← main] hm"])
def test_a_note_may_say_anything(session: Session, text: str) -> None:
    """Scopes 6: an apostrophe in a note was an unbalanced quote, and an error."""
    say(session, "go")
    reply(session, "yes")
    session.note(text)

    assert [note.text for note in session.notes()] == [text]
    assert text.splitlines()[0].lstrip("[") in words(session)


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


def test_too_much_that_may_not_leave_is_said_and_never_passed_over_in_silence(path: Path) -> None:
    """CWL 5.2: a prompt that stayed over its budget was sent, silently."""
    with opened(path, budget=2_000) as session:
        say(session, lines(400, "every line of this is meant"))
        with pytest.raises(OverBudget, match=r"the budget has 2,000: human text 5,200 \(B1\), "):
            session.request()


def test_content_that_nobody_annotated_can_leave(session: Session) -> None:
    """CWL 5.2: outside its chunks nothing was ever evicted: 40,000 characters stayed at a budget of 100 tokens."""
    say(session, "go")
    _, answer = step(session, "c1", "x" * 40_000)
    step(session, "c2", "later")

    assert session.archive(answer).freed > 1_000


def test_what_left_can_be_searched_in_ranges_that_make_no_sense() -> None:
    """No range is a traceback."""
    for wrong in ("", ":", "a:b", "0:5", "9:3", "1:2:3", "9" * 400, "-4:2", "٣:٤"):
        with pytest.raises(BadInput):
            span(wrong)


def test_an_acknowledged_step_is_there_after_a_kill(path: Path) -> None:
    """Scopes 7 and VISTA 9: what was in memory, or half written, was gone with the process."""
    program = (
        "import os, sys; from ctxvc import Session; s = Session.open(sys.argv[1], 'demo');"
        "s.append({'role': 'user', 'content': 'go'}); s.append({'role': 'assistant', 'content': 'said'});"
        "s.note('learned'); os.kill(os.getpid(), 9)"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", program, str(path)], env={"PYTHONPATH": root}, check=False)
    assert done.returncode == -9

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
