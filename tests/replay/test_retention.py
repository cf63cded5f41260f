"""Retention, on paper: what each prompt at call 6 of the conversation in `login` leaves of its five uses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.replay.conversation import Prompt
from ctxvc.replay.measures.anchors import NONE, stands_in
from ctxvc.replay.measures.retention import (
    LOST,
    OUTCOMES,
    RECOVERABLE,
    ROUTED,
    SEARCHABLE,
    UNMEASURED,
    VISIBLE,
    Counts,
    Gauge,
    Lookup,
    retention,
    wilson,
)
from ctxvc.replay.measures.uses import uses
from tests.making.conversation import human
from tests.replay.login import LINE, PATH, SOURCE, STUB, conversation, everything, login, nothing, reply, result

LOGIN = login()
USES = uses(LOGIN, NONE)
LOOKUP = Lookup(LOGIN, USES)
ALL = len(USES)

#: Of the uses of call 6, in order: 48213, the path, compare_digest, user.token, the line.
V, R, S, F, L = VISIBLE, ROUTED, SEARCHABLE, RECOVERABLE, LOST


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (everything(LOGIN, 6), (V, V, V, V, V)),
        (nothing(6), (F, F, F, F, F)),
        # Another block than the source has the path; nothing leads to the source.
        (nothing(6, complete=[2]), (F, V, F, F, F)),
        # A part of the source, such as a mask.
        (nothing(6, parts={3: "… = 48213"}), (V, F, F, F, F)),
        # A note that has one of the anchors, and another inside a longer word. A search for the one, which the reply
        # has, shows the line with the two others.
        (nothing(6, "Use compare_digest, not compare_digests or 482130."), (F, F, R, S, S)),
        # A stub with the address of B3 that names its file: it leads there, and it has the path itself.
        (nothing(6, STUB, routes={3: 0}), (R, R, R, R, R)),
        # The same text without an address that leads there.
        (nothing(6, STUB), (F, R, F, F, F)),
        # An address that says nothing of what is there; the same, and the call stands above it.
        (nothing(6, "[archived G1: 9 blocks; recover G1]", routes={3: 0}), (F, F, F, F, F)),
        (nothing(6, "[archived B4; recover B4]", routes={3: 0}, complete=[2]), (R, V, R, R, R)),
        (nothing(6, "[archived B4; recover B4]", routes={3: 0}, parts={2: PATH}), (R, V, R, R, R)),
        # A group that names the file by the end of its path.
        (nothing(6, "[archived G1: Read auth.py; recover G1]", routes={2: 0, 3: 0}), (R, R, R, R, R)),
        # `limit` is a word of the reply that only B3 has, on the lines of 48213 and of the edited line. A search for it
        # shows those lines: all that B3 is needed for. The path is on none.
        (nothing(6, "Mind the limit!"), (S, F, S, S, S)),
        (nothing(6, "Mind the limits!"), (F, F, F, F, F)),
    ],
)
def test_each_use_has_its_outcome(prompt: Prompt, expected: tuple[int, ...]) -> None:
    assert tuple(Gauge(LOOKUP).add(prompt)) == expected


def test_without_an_archive_what_is_not_in_sight_is_lost() -> None:
    prompt = nothing(6, "[archived B4 limit]", "saw compare_digest", routes={3: 0}, complete=[2])

    assert tuple(Gauge(LOOKUP, archive=False).add(prompt)) == (L, V, R, L, L)


def test_without_search_nothing_is_searchable() -> None:
    assert tuple(Gauge(LOOKUP, search=False).add(nothing(6, "Mind the limit!"))) == (F, F, F, F, F)


def test_what_no_address_leads_to_is_lost() -> None:
    """B3 is out of reach: what only it has is lost, though a stub and a search would have led there. The path is not,
    as a search for `auth` shows it in other blocks.
    """
    prompt = nothing(6, "[archived B4: auth.py; limit; recover B4]", routes={3: 0})

    assert tuple(Gauge(LOOKUP).add(prompt)) == (R, S, R, R, R)
    assert tuple(Gauge(LOOKUP).add(prompt, unreachable={3})) == (L, S, L, L, L)


def test_a_search_shows_no_word_that_many_blocks_have() -> None:
    def made(others: int) -> tuple[int, ...]:
        notes = [human(f"a limit of {n}") for n in range(others)]
        own = conversation(
            ([human("go"), *notes], reply(c0=("sh", {"command": "true"}))),
            ([result("c0", "limit = saveAll")], reply("the limit is saveAll")),
        )
        return tuple(Gauge(Lookup(own, uses(own, NONE))).add(nothing(1, "limit")))

    assert made(4) == (SEARCHABLE,)  # with the result 5 blocks, of 4 lines each: the 20 that a search shows
    assert made(5) == (RECOVERABLE,)


@pytest.mark.parametrize(("before", "outcome"), [(3, SEARCHABLE), (4, RECOVERABLE)])
def test_a_search_shows_four_lines_of_a_block(before: int, outcome: int) -> None:
    own = conversation(
        ([human("go")], reply(c0=("sh", {"command": "true"}))),
        ([result("c0", "limit\n" * before + "limit = saveAll")], reply("the limit is saveAll")),
    )

    assert tuple(Gauge(Lookup(own, uses(own, NONE))).add(nothing(1, "limit"))) == (outcome,)


def test_a_search_shows_the_beginning_of_a_line() -> None:
    own = conversation(
        ([human("go")], reply(c0=("sh", {"command": "true"}))),
        ([result("c0", "limit " + "x " * 100 + "saveAll")], reply("the limit is saveAll")),
    )

    assert tuple(Gauge(Lookup(own, uses(own, NONE))).add(nothing(1, "limit"))) == (RECOVERABLE,)


@pytest.mark.parametrize("padding", [0, 2_000])
def test_texts_that_leave_the_prompt_count_no_more(padding: int) -> None:
    """One gauge sees the prompts of a run in order: it keeps what did not change, and forgets what left. Long texts are
    looked into when they are asked for, and as a whole from the second prompt on.
    """
    own = conversation(*[([human("saveAll" if n == 0 else "on")], reply("call saveAll")) for n in range(6)])
    gauge = Gauge(Lookup(own, uses(own, NONE)))
    has, new, none = (text + " " * padding for text in ("saveAll", "saveAll again", "saveAlls"))
    prompts = [[has], [has, none], [has], [new], [none], []]

    outcomes = [gauge.add(nothing(n, *texts)) for n, texts in enumerate(prompts)]

    assert b"".join(outcomes) == bytes([ROUTED] * 4 + [RECOVERABLE] * 2)


def test_a_run_that_shows_everything_and_one_that_shows_nothing() -> None:
    shown, hidden, none = Gauge(LOOKUP), Gauge(LOOKUP, archive=False), Gauge(LOOKUP)
    for call in range(len(LOGIN.calls)):
        shown.add(everything(LOGIN, call))
        hidden.add(nothing(call))

    assert retention(USES, shown.outcomes).uses.all == Counts(visible=ALL)
    assert retention(USES, shown.outcomes).uses.ar == Counts(visible=4)
    assert retention(USES, hidden.outcomes).uses.all == Counts(lost=ALL)
    assert none.outcomes == bytes([UNMEASURED]) * ALL
    assert retention(USES, none.outcomes).uses.all == Counts()


def test_uses_are_counted_by_kind_and_category() -> None:
    gauge = Gauge(LOOKUP)
    gauge.add(nothing(0))  # the path, trivial: recoverable
    gauge.add(nothing(6, "Use compare_digest.", complete=[2]))

    kept = retention(USES, gauge.outcomes)

    assert kept.uses.all == Counts(visible=1, routed=1, searchable=2, recoverable=2)
    assert kept.uses.nt == Counts(visible=1, routed=1, searchable=2, recoverable=1)
    assert kept.uses.ar == Counts(routed=1, searchable=2, recoverable=1)
    assert kept.kinds["path"].all == Counts(visible=1, recoverable=1)
    assert kept.kinds["identifier"].nt == Counts(routed=1, searchable=1)
    assert kept.kinds["url"].all == Counts()
    assert kept.categories["evidence"].all == Counts(routed=1, searchable=1, recoverable=1)
    assert kept.categories["contract"].all == Counts(visible=1, recoverable=1)
    assert kept.categories["verbatim"].ar == Counts(searchable=1)
    assert (kept.kinds["path"] + kept.kinds["path"]).all == Counts(visible=2, recoverable=2)


#: Prompts of the conversation's calls: which blocks stand whole, the text of one in part, and texts of ours.
PROMPTS = st.lists(
    st.tuples(
        st.frozensets(st.integers(0, 13)),
        st.dictionaries(st.just(3), st.sampled_from([SOURCE, LINE, "48213"])),
        st.lists(st.sampled_from(["48213", LINE, PATH, "x" * 2_000 + f" {PATH}", "y" * 2_000]), max_size=3),
    ),
    min_size=7,
    max_size=7,
)


@given(PROMPTS)
def test_outcomes_are_those_that_a_plain_search_finds(
    prompts: list[tuple[frozenset[int], dict[int, str], list[str]]],
) -> None:
    """Whatever the prompts before were: a gauge carries over only what is still there."""
    gauge = Gauge(LOOKUP, archive=False)
    for whole, parts, texts in prompts:
        prompt = nothing(6, *texts, complete=whole, parts=parts)
        for use, outcome in zip(USES[1:], gauge.add(prompt), strict=True):
            if whole & set(use.blocks) or any(stands_in(use.anchor, text) for text in parts.values()):
                assert outcome == VISIBLE
            else:
                assert outcome == (ROUTED if any(stands_in(use.anchor, text) for text in texts) else LOST)


@pytest.mark.parametrize(
    ("kept", "total", "low", "high"),
    [
        (28, 33, 69.08, 93.35),
        (22, 33, 49.61, 80.25),
        (23, 33, 52.66, 82.62),
        (18, 33, 37.99, 70.16),
        (19, 33, 40.81, 72.76),
        (258, 332, 72.93, 81.86),
        (308, 332, 89.47, 95.09),
        (0, 10, 0.0, 27.75),
        (10, 10, 72.25, 100.0),
    ],
)
def test_the_interval_is_wilsons(kept: int, total: int, low: float, high: float) -> None:
    """The first seven are Self-GC's, Tables 3 and 4."""
    own = wilson(kept, total)

    assert (round(own[0] * 100, 2), round(own[1] * 100, 2)) == (low, high)
    assert wilson(0, 0) == (0.0, 1.0)


def test_outcomes_are_from_best_to_worst() -> None:
    counts = Counts(1, 2, 3, 4, 5)

    assert [counts.up_to(outcome) for outcome in OUTCOMES] == [1, 3, 6, 10, 15]
    assert (counts.share(), counts.share("routed"), Counts().share()) == (1 / 15, 3 / 15, None)
    assert LINE in {use.anchor for use in USES}
