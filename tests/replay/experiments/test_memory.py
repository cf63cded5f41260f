"""Trajectory memory: questions made of a recorded reply, what is found for them, and what that is worth."""

from __future__ import annotations

import msgspec
import pytest

from ctxvc.replay.conversation import Call, Conversation
from ctxvc.replay.experiments import memory
from ctxvc.replay.experiments.memory import Question, Score, f1, question, score
from ctxvc.replay.measures.anchors import AnchorKind
from ctxvc.replay.measures.uses import Use, uses
from ctxvc.tokens.meter import Meter
from tests.making.conversation import human, reply, result, results

#: The reply that needs what the first result had, eight steps later.
NEED = "the billing_gateway listens on PORT_0 = 48217, as src/billing/part_0.py says"


def talk(steps: int = 9) -> Conversation:
    """Results of 40 lines each, of which the first tells a port of the gateway; the last reply names it."""
    calls = [Call((human("Find the port."),), reply("look", "c0"))]
    for number in range(1, steps):
        first = "gateway listens on 48217\n" if number == 1 else ""
        filler = "".join(f"{number}.{line} some other line of output\n" for line in range(40))
        said = f"the gateway listens on 48217, see part {number}" if number == steps - 1 else f"part {number}"
        calls.append(Call((results(result(f"c{number - 1}", f"{filler}{first}{filler}")),), reply(said, f"c{number}")))
    return Conversation(id="talk", file="talk.jsonl", sha256="", calls=tuple(calls))


def test_a_question_is_the_reply_with_its_strings_blanked_and_asks_for_no_word_of_them() -> None:
    wanted = [_use("48217", "number"), _use("src/billing/part_0.py", "path")]
    asked = question(reply(NEED), wanted)
    assert asked.text == "the billing_gateway listens on PORT_0 = ____, as ____ says"
    assert asked.terms == ("billing_gateway", "PORT_0", "listens", "says")  # names of parts and digits first, then long
    assert question(reply("part_0.py is no src/billing/part_0.pyc"), wanted).text == (
        "part_0.py is no src/billing/part_0.pyc"
    )


def test_each_method_finds_what_it_can_within_its_allowance() -> None:
    """The number is asked for, which only the first result has, in the middle; the reply's other words stand beside it.

    300 tokens of that whole block end before the line; a passage around it, and a search, come in whole.
    """
    conversation = talk()
    assert [use.anchor for use in uses(conversation) if use.nt] == ["48217"]
    measured = memory.run([conversation], allowances=(300,))

    assert {one.questions for one in measured.scores} == {one.blanked for one in measured.scores} == {1}
    assert all(0 < one.tokens <= 300 for one in measured.scores)
    assert {one.method: one.exact for one in measured.scores} == {
        "ask": 1, "BM25, blocks": 0, "BM25, passages": 1, "newest": 0,
    }  # fmt: skip
    assert not any(one.answered for one in measured.scores)


def test_a_question_is_of_what_came_before_it_alone() -> None:
    """The reply itself, and what follows it, is not there to be found."""
    conversation = talk()
    (use,) = (use for use in uses(conversation) if use.nt)
    other = msgspec.structs.replace(use, anchor="see part 8", kind="quoted")
    assert memory.question(conversation.calls[use.call].reply, [use]).text.endswith("listens on ____, see part 8\nc8")
    for _, archive in memory.asked_of(conversation, [other], 1, Meter(None)):
        for method in memory.METHODS:
            text = archive.evidence(method, Question("", ("part", "see"), (other,)), 8_000)
            assert text and "see part 8" not in text


def test_a_score_counts_what_stands_in_the_evidence_and_the_words_of_an_answer() -> None:
    asked = Question("", (), (_use("48217", "number", ar=True), _use("src/a.py", "path")))
    scored = score(asked, "port 48217 of x48217", "ask", 100, meter=Meter(None), answer="48217\nsrc/b.py")
    assert (scored.blanked, scored.exact, scored.at_risk, scored.exact_at_risk) == (2, 1, 1, 1)
    assert scored.f1 == 0.5 and scored.answered == 1  # one word of two is right, and one of two is given
    assert (scored + Score("ask", 100, questions=3, f1=1.0)).f1 == 1.5


def test_f1_is_of_words_each_as_often_as_it_stands() -> None:
    assert f1("a b", ["a b"]) == 1
    assert f1("a a c", ["a b"]) == pytest.approx(2 / 5)
    assert f1("", ["a"]) == f1("b", ["a"]) == 0


def test_a_model_is_asked_so_many_times_and_shown_data_as_json() -> None:
    heard: list[str] = []

    def model(text: str) -> str:
        heard.append(text)
        return "48217"

    measured = memory.run([talk()], allowances=(300,), ask=model, answers=2)
    assert len(heard) == 2 == sum(one.answered for one in measured.scores)
    assert all('{"record":' in text and memory.BLANK in text for text in heard)
    assert [round(one.f1, 2) for one in measured.scores[:2]] == [1.0, 1.0]
    assert measured.tables[0].rows[0][8] == "1.000"


def _use(anchor: str, kind: AnchorKind, *, ar: bool = False) -> Use:
    return Use(9, anchor, kind, (2,), nt=True, ar=ar, category="evidence")
