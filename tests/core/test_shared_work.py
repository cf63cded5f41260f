"""What is worked out once and used again is what would be worked out anew: in a ledger, in those after it, in requests.

Segments are three rows long here, so that short conversations have several.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.ledger import ledger as ledgers
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row, outermost
from ctxvc.core.plan import View
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.plan.protected import protected
from ctxvc.core.prompt import outline as prompt
from ctxvc.core.prompt.outline import outline
from ctxvc.core.prompt.request import canonical, request
from ctxvc.core.view import view
from ctxvc.core.view.dashboard import dashboard, totals
from ctxvc.policies.candidates import removable
from tests.core.ledger.test_ledger import META, row
from tests.making.generated import Sizes, arranged, bodies_of, choices, conversations, numbered, prices

Held = Mapping[tuple[str, str], bytes]


@pytest.fixture(autouse=True, scope="module")
def _short_segments() -> Iterator[None]:
    with mock.patch.object(ledgers, "SEGMENT", 3):
        yield


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Ledger], Held]:
    """Ledgers of one scope, each made from the one before: what is said goes on, states and groups and cuts change."""
    ledger, held = numbered(draw(conversations()))
    choose, made = draw(choices(160)), list[Ledger]()
    for _ in range(choose.number(1, 3)):
        ledger = draw(arranged(ledger)) if choose.coin() else ledger
        cuts = choose.some(range(ledger.meta.counters.block + 1), 0, 1)
        ledger = ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=tuple(cuts)))
        made.append(ledger)
        more, bodies = numbered(draw(conversations()), ledger)
        # Also as it grows, a row at a time, of which some are never looked at.
        for new in list(more.rows())[len(ledger) :]:
            ledger = ledger.with_rows([new])
            if choose.coin():
                made.append(ledger)
        ledger, held = ledger.with_meta(more.meta), {**held, **bodies}
    return made, held


def anew(ledger: Ledger) -> Ledger:
    """The same ledger, of which nothing has been worked out."""
    return Ledger(ledger.meta, ledger.segments, ledger.groups)


@settings(max_examples=settings().max_examples * 2 // 5)
@given(histories(), prices, prices)
def test_a_ledger_made_from_others_gives_what_one_read_anew_gives(
    made: tuple[list[Ledger], Held], price: Sizes, other: Sizes
) -> None:
    for ledger in [*made[0], *made[0]]:  # and the older ones still do when the newer ones are there
        fresh = anew(ledger)
        assert ledger == fresh
        assert list(ledger.rows()) == [each for segment in sorted(fresh.segments) for each in fresh.segments[segment]]
        assert outline(ledger) == outline(fresh)
        assert view.measure(ledger, price) == view.measure(fresh, price)
        assert view.measure(ledger, other) == view.measure(anew(ledger), other)
        assert view.costs(ledger, price) == view.costs(fresh, price)
        assert protected(ledger) == protected(fresh)
        assert LedgerDraft(ledger, price, 9).calls == LedgerDraft(fresh, price, 9).calls
        steps = {row.step for row in fresh.rows()}
        for step in (*steps, -1):
            assert ledger.of_step(step) == [row for row in fresh.rows() if row.step == step]
        for alone in (False, True):
            rows = removable(View(ledger=ledger, price=price), alone=alone)
            assert rows == removable(View(ledger=fresh, price=price), alone=alone)


@given(histories(), st.data())
def test_the_rows_that_are_not_looked_at_would_show_nothing(
    made: tuple[list[Ledger], Held], data: st.DataObject
) -> None:
    def every(ledger: Ledger, cache: prompt._SlotCache) -> list[prompt._Place]:
        rows = prompt.in_prompt_order(ledger, list(ledger.rows()))
        outer = {row.group: ledger.groups.get(outermost(ledger.groups, row.group)) for row in rows if row.group}
        places = {p.row.id: p for p in prompt._places_of(ledger, prompt._each_alone(rows), outer, cache)}
        return [places.get(row.id) or prompt._Place(row, None, "") for row in rows]

    for ledger in made[0]:
        # States that no verb makes, but a damaged store may have.
        odd = [
            msgspec.structs.replace(row, state=data.draw(st.sampled_from(["visible", row.state])))
            for row in ledger.rows()
            if row.group
        ]
        some = ledger.with_rows(odd)
        with mock.patch.object(prompt, "_places", every):
            wanted = outline(anew(some))
        assert outline(some) == wanted


@given(histories(), prices, st.tuples(st.integers(500, 2_000), st.integers(-50, 50)), st.integers(0, 500))
def test_totals_are_those_of_the_dashboard(
    made: tuple[list[Ledger], Held], price: Sizes, calibration: tuple[int, int], overhead: int
) -> None:
    for ledger in made[0]:
        ledger = ledger.with_rows(  # noqa: PLW2901
            msgspec.structs.replace(row, kind="dashboard") for row in ledger.rows() if row.origin == "client"
        )
        sent = view.dashboards(ledger, price)
        conversation = view.measure(ledger, price) - sent
        whole = dashboard(ledger, view.costs(ledger, price), 1_000, overhead, calibration=calibration)
        assert totals(ledger, conversation, sent, 1_000, overhead, calibration=calibration) == msgspec.structs.replace(
            whole, lines=()
        )


@given(histories())
def test_a_request_made_of_what_the_last_one_had_is_the_same_request(made: tuple[list[Ledger], Held]) -> None:
    ledgers_, held = made
    bodies = bodies_of(held)
    for ledger in [*ledgers_, *ledgers_]:
        one, other = (
            request(ledger, bodies, "s", [{"name": "t"}]),
            request(ledger, bodies_of(held), "s", [{"name": "t"}]),
        )
        assert one == other
        assert one.digest == hashlib.sha256(canonical(one.body())).hexdigest()
        assert len(bodies.cache["newest"].rendered_slots) == len(outline(ledger))
        spoil(one.messages)


def spoil(value: Any) -> None:
    """Whoever gets a request may change it."""
    for item in list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()):
        spoil(item)
    if isinstance(value, dict | list):
        value.clear()


def test_a_rule_is_asked_once_for_each_ledger_and_thing_that_it_is_given() -> None:
    asked: list[object] = []

    def rule(ledger: Ledger, what: object) -> int:
        asked.append(what)
        return len(ledger)

    ledger = Ledger(META).with_rows([row(1)])
    same, equal = [1], [1]
    assert [ledger.derived(rule, same), ledger.derived(rule, same), ledger.derived(rule, equal)] == [1, 1, 1]
    assert asked == [same, equal]
    assert ledger.with_rows([row(2)]).derived(rule, same) == 2


def test_a_segment_that_stands_as_it_stood_is_not_looked_at_again() -> None:
    textses: list[list[str]] = []

    def rule(rows: tuple[Row, ...]) -> int:
        textses.append([row.id for row in rows])
        return len(rows)

    before = Ledger(META).with_rows(map(row, range(1, 9)))
    assert list(before.by_segment(rule)) == [2, 3, 3]
    after = before.with_rows([row(4, 1), row(9)]).with_meta(Meta(format=1, session="t", scope="main"))
    textses.clear()
    assert list(after.by_segment(rule)) == [2, 3, 3, 1]
    assert textses == [["B3", "B4", "B5"], ["B9"]]


def test_the_rows_since_an_earlier_ledger_are_those_of_segments_that_changed() -> None:
    before = Ledger(META).with_rows(map(row, range(1, 9)))
    after = before.with_rows([row(4, 1), row(9)])
    assert [each.id for each in after.since(before)] == ["B3", "B4", "B5", "B9"]
    assert list(after.since(after)) == []
    assert list(after.since(None)) == list(after.rows())


def test_a_result_that_shows_nothing_still_ends_the_reply_before_it() -> None:
    call = msgspec.structs.replace(row(1), kind="tool_use", role="assistant", call="c")
    result = msgspec.structs.replace(row(2), kind="tool_result", call="c", state="pruned")
    answer = msgspec.structs.replace(row(3), kind="assistant", role="assistant")
    shown = outline(Ledger(META).with_rows([call, result, answer]))
    assert [(slot.row.id, slot.kind) for slot in shown] == [
        ("B1", "tool_use"),
        ("B2", "tool_result"),
        ("B3", "assistant"),
    ]


def test_a_block_that_a_cut_took_does_not_speak_for_its_group() -> None:
    said = msgspec.structs.replace(row(1), kind="assistant", role="assistant", state="archived", group="G1")
    gone = [msgspec.structs.replace(said, id=f"B{number}") for number in (3, 4, 5)]
    thinking = msgspec.structs.replace(gone[0], kind="thinking")
    meta = msgspec.structs.replace(META, cuts=(3,))
    group = Group(id="G1", members=("B3", "B4", "B5"), stub="[archived G1]")
    shown = outline(Ledger(meta).with_rows([thinking, *gone[1:]]).with_groups([group]))
    assert [(slot.row.id, slot.text) for slot in shown] == [("B4", "[archived G1]")]


def reply(number: int, **fields: Any) -> Row:
    return msgspec.structs.replace(row(number), kind="assistant", role="assistant", **fields)


def called(number: int, call: str) -> Row:
    return msgspec.structs.replace(row(number), kind="tool_use", role="assistant", call=call)


def answered(number: int, call: str) -> Row:
    return msgspec.structs.replace(row(number), kind="tool_result", call=call)


SPREAD = Group(id="G1", members=("B2", "B4"), stub="[archived G1]")
SUMMED = Group(id="G1", members=("B1",), stub="[archived G1]", summary=("B5",), before="B3")
TOLD = [row(1), reply(2), row(3), reply(4)]


@pytest.mark.parametrize(
    ("before", "groups", "after", "groups_after"),
    [
        pytest.param(
            [row(1), reply(2, state="archived", group="G1"), row(3), reply(4, state="archived", group="G1")],
            [SPREAD],
            [row(5)],
            [],
            id="a group is told of once",
        ),
        pytest.param(
            [row(1), reply(2, state="archived", group="G1"), row(3), reply(4)],
            [SPREAD],
            [row(5)],
            [msgspec.structs.replace(SPREAD, stub="[archived G1: more]")],
            id="a stub changes",
        ),
        pytest.param(TOLD, [SUMMED], [row(5), reply(6)], [], id="a summary goes where it belongs"),
        pytest.param(TOLD, [], [reply(2, state="archived", stub="[archived B2]"), row(5)], [], id="a block leaves"),
        pytest.param(
            [called(1, "c"), row(2), reply(3)], [], [answered(4, "c"), reply(5)], [], id="a result comes late"
        ),
        pytest.param(
            [called(1, "c"), answered(2, "c"), called(3, "c"), answered(4, "c"), reply(5)],
            [],
            [called(6, "c-B3"), answered(7, "c-B3")],
            [],
            id="an id is the name of another call",
        ),
    ],
)
def test_what_an_outline_has_before_its_newest_reply_is_looked_at_again_where(
    before: list[Row], groups: list[Group], after: list[Row], groups_after: list[Group]
) -> None:
    ledger = Ledger(META).with_rows(before).with_groups(groups)
    assert outline(ledger) == outline(anew(ledger))
    ledger = ledger.with_rows(after).with_groups(groups_after)
    assert outline(ledger) == outline(anew(ledger))
    ledger = ledger.with_rows([row(8), reply(9), row(10)])
    assert outline(ledger) == outline(anew(ledger))
