"""A planner's words are read strictly: what is not in the schema is named, counted, and never guessed at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.policies.planned.plan_text import LONGEST, NAMED, Entry, parse, write

KNOWN = frozenset({"conversation:user:5", "function:read:12", "function:exec:9", "function:a.b-c_d:7"})

#: Self-GC, Listing 2, as it is printed.
LISTING_2 = """\
<above_conversation_summary>
One short sentence describing the
session type, likely future
dependencies,
and a light compression bias.
</above_conversation_summary>
<gc_plan>
  <fold kind="conversation"
  reason="resolved_turn">
    user:5
  </fold>
  <fold kind="function"
  reason="stable_artifact">
    read:12
  </fold>
  <prune kind="function"
  reason="obsolete_trace">
    exec:9
  </prune>
</gc_plan>
"""


def plan(inside: str) -> str:
    return f"<above_conversation_summary>s</above_conversation_summary><gc_plan>{inside}</gc_plan>"


def test_listing_2() -> None:
    read = parse(LISTING_2, KNOWN)
    assert read.summary.startswith("One short sentence describing the session type")
    assert read.entries == (
        Entry("fold", "conversation:user:5", "resolved_turn"),
        Entry("fold", "function:read:12", "stable_artifact"),
        Entry("prune", "function:exec:9", "obsolete_trace"),
    )
    assert (read.dropped, read.faults) == ((), {})


@pytest.mark.parametrize(
    ("said", "why", "named"),
    [
        (plan('<fold kind="function">read:13</fold>'), "id", "function:read:13"),
        (plan('<fold kind="function">user:5</fold>'), "id", "function:user:5"),
        (plan('<fold kind="function">Read:12</fold>'), "id", "function:Read:12"),
        (plan('<fold kind="function">function:read:12</fold>'), "text", "function:read:12"),
        (plan('<fold kind="function">the_newest</fold>'), "text", "the_newest"),
        (plan('<fold kind="memory">read:12</fold>'), "kind", '<fold kind="memory">'),
        (plan("<fold>read:12</fold>"), "kind", "<fold>"),
        (plan('<Fold kind="function">read:12</Fold>'), "element", "<Fold>"),
        (plan('<delete kind="function">read:12</delete>'), "element", "<delete>"),
        (plan('<fold kind="function" keep="head">read:12</fold>'), "attribute", '<fold kind="function" keep="head">'),
        (plan('<fold kind="function" kind="function">read:12</fold>'), "attribute", ""),
        (plan("<fold kind=function>read:12</fold>"), "attribute", "<fold kind=function>"),
        (plan("read:12"), "text", "read:12"),
        (plan('<fold kind="function">read&#58;12</fold>'), "entity", "read&#58;12"),
        (plan('<fold kind="function">&target;</fold>'), "entity", "&target;"),
        (plan("<!-- fold read:12 -->"), "declaration", "<!-- fold read:12 -->"),
        (plan("<![CDATA[read:12]]>"), "declaration", "<![CDATA[read:12]]>"),
        (plan("</fold>"), "element", "</fold>"),
        (plan("") + plan('<fold kind="function">read:12</fold>'), "duplicate", "<above_conversation_summary>"),
        ("<gc_plan></gc_plan>", "missing", "<above_conversation_summary>"),
        ("I would rather not.", "missing", "<above_conversation_summary>"),
        ("Here it is: " + plan(""), "text", "Here it is:"),
        (plan("").replace("gc_plan", "plan"), "element", "<plan>"),
        (plan("")[:-10] + '<fold kind="function">read:12</fold>', "unclosed", "<gc_plan>"),
        (plan('<fold kind="function">read:12'), "unclosed", "<fold>"),
        ("<gc_plan></gc_plan><above_conversation_summary>s</above_conversation_summary>", "order", ""),
        (b"\xff" + plan('<fold kind="function">read:12</fold>').encode(), "encoding", "byte 0 is not UTF-8"),
        (plan('<fold kind="function">read:12</fold>') + " " * LONGEST, "length", ""),
        ("<a>" * 99 + plan('<fold kind="function">read:12</fold>'), "element", "<a>"),
    ],
)
def test_what_is_not_in_the_schema_is_named_and_dropped(said: str | bytes, why: str, named: str) -> None:
    read = parse(said, KNOWN)
    assert read.entries == ()
    assert read.faults[why] >= 1  # type: ignore[index]
    assert any(one.fault == why and named in one.excerpt for one in read.dropped)


def test_what_is_wrong_or_comes_again_is_dropped_alone_and_the_rest_stands() -> None:
    read = parse(
        "```xml\n"
        + plan(
            '<fold kind="function">read:12, read:99 exec:9</fold><mask kind="function">exec:9<b>a.b-c_d:7</b></mask>'
        )
        + "\n```",
        KNOWN,
    )

    assert [entry.target for entry in read.entries] == ["function:read:12", "function:exec:9"]
    assert read.faults == {"text": 2, "id": 1, "element": 1, "duplicate": 1}

    read = parse(plan('<prune kind="function">exec:9</prune><fold kind="function">exec:9</fold>'), KNOWN)

    assert [(entry.verb, entry.target) for entry in read.entries] == [("prune", "function:exec:9")]
    assert read.faults == {"duplicate": 1}


def test_a_billion_laughs_are_not_expanded() -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 40))
    fold = '<fold kind="function" reason="&l39;">read:12 &l39;</fold>'
    text = f'<!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]>{plan(fold)}'
    read = parse(text.replace(">s<", ">&l39;<"), KNOWN)
    assert read.summary == "&l39;"
    assert read.entries == (Entry("fold", "function:read:12", "&l39;"),)
    assert read.faults == {"text": 2, "declaration": 40, "entity": 3}
    assert len(read.dropped) == NAMED


@pytest.mark.parametrize(
    "said",
    [
        "<" * LONGEST,
        "<a" * (LONGEST // 2),
        "<a>" * (LONGEST // 3),
        "</a>" * (LONGEST // 4),
        "<a>" * (LONGEST // 8) + "</b>" * (LONGEST // 8),
        "<gc_plan>" + "<fold " * (LONGEST // 7),
        '<a "' * (LONGEST // 4),
        "<a" + '"' * (LONGEST - 3),
        "<a " + "b='" * (LONGEST // 4),
        "&a;" * (LONGEST // 3),
        plan("<fold kind='function' " + "reason='a' " * (LONGEST // 12) + ">"),
        plan("<fold kind='function'>" + "read:12 " * (LONGEST // 9) + "</fold>"),
        plan("<fold kind='function'>x</fold>" * (LONGEST // 32)),
        "<gc_plan" + " " * (LONGEST - 20) + "=>",
        "<gc_plan" + "\n" * (LONGEST - 20) + ">",
    ],
)
@pytest.mark.timeout(60)
def test_hostile_text_is_read_to_its_end_and_little_is_said_of_it(said: str) -> None:
    """In the square of its length, it would take minutes."""
    read = parse(said, KNOWN)
    assert len(read.dropped) <= NAMED and all(len(one.excerpt) <= 60 for one in read.dropped)
    assert len(read.entries) <= 1 and len(read.summary) <= 400


@given(st.text() | st.text(alphabet='<>/"=&; abfold:12kind!?\n\ud800') | st.binary())
def test_any_text_is_read(said: str | bytes) -> None:
    read = parse(said, KNOWN)
    assert read.faults and not read.entries


entries = st.builds(
    Entry,
    st.sampled_from(["fold", "mask", "prune"]),
    st.sampled_from(sorted(KNOWN)),
    st.text(max_size=30).map(lambda words: " ".join(words.split())),
)


@given(st.lists(entries, max_size=4, unique_by=lambda entry: entry.target), st.text(max_size=60))
def test_what_is_written_is_read_back(wanted: list[Entry], summary: str) -> None:
    written = write(summary, wanted)
    read = parse(written, KNOWN)
    assert [(entry.verb, entry.target) for entry in read.entries] == [(one.verb, one.target) for one in wanted]
    assert write(read.summary, read.entries) == written
    assert read.faults == {}
