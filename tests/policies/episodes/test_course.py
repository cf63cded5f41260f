"""The graph of a scope that grows is that of the same rows seen for the first time, whatever left and came back."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from ctxvc.core.ledger.ledger import SEGMENT, Ledger
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.pairs import pairs
from ctxvc.core.ledger.skills import skills, unused
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.policies.episodes import derive
from ctxvc.policies.episodes import graph as episodes
from ctxvc.policies.episodes.graph import Graph
from tests.policies.episodes.test_graph import Talk, edit, grep, read
from tests.policies.recorded import moved


def unseen(ledger: Ledger) -> Ledger:
    """The same ledger, of which nothing was worked out yet."""
    return Ledger(meta=ledger.meta).with_rows(ledger.rows()).with_groups(ledger.groups.values())


def goes_on(talk: Talk, chance: random.Random, *, marked: bool) -> None:
    """One more step, of any kind."""
    name = f"e{len(talk.run.ledger)}"
    path = f"/repo/src/f{chance.randrange(6)}.py"
    match chance.randrange(9):
        case 0:
            talk.says(f"And now {name}")
        case 1:
            talk.replies(f"Done with {name}.")
        case 2:
            talk.injects("a notice")
        case 3 if marked:
            talk.marks(action="start", name=name, type="expl")
        case 4 if marked:
            talk.marks(action="end", description=f"learned {name}")
        case 5:
            talk.calls(edit(path, 90), thinking="hm")
        case 6:
            talk.calls(read(f"skills/pdf{chance.randrange(2)}/SKILL.md", 900))
        case _:
            talk.calls(grep(60), read(path, 900), thinking="hm")


def changes(talk: Talk, chance: random.Random) -> None:
    """Something leaves, comes back, is pinned, or is cut."""
    ledger = talk.run.ledger
    rows = [row for row in ledger.rows() if not is_human(row.role, row.origin)]
    some = chance.sample(rows, min(len(rows), 12))
    match chance.randrange(5):
        case 0:
            plan = Plan(actions=(Action(verb="archive", targets=tuple(row.id for row in some)),), actor="agent")
            moved(talk.run, rehearse(talk.run.view(), plan))
        case 1:
            talk.run.ledger = ledger.with_rows(msgspec.structs.replace(row, state="pinned") for row in some[:2])
        case 2:
            gone = [msgspec.structs.replace(row, state="visible", stub="", group="") for row in some if not row.group]
            talk.run.ledger = ledger.with_rows(gone)
        case 3:
            cuts = (chance.randrange(1, len(ledger) + 1),)
            talk.run.ledger = ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=cuts))
        case _:
            old = [row for row in rows if row.step < ledger.meta.counters.step - chance.randrange(1, 30)]
            plan = Plan(actions=(Action(verb="archive", targets=tuple(row.id for row in old)),), actor="agent")
            moved(talk.run, rehearse(talk.run.view(), plan))


def declared(talk: Talk, ledger: Ledger) -> Graph:
    return episodes.declared(ledger, talk.run.words, implicit=5)


def derived(talk: Talk, ledger: Ledger) -> Graph:
    return derive.derived(ledger, talk.run.words, most=4)


def derived_in_part(talk: Talk, ledger: Ledger) -> Graph:
    return derive.derived(ledger, talk.run.words, most=4, since=ledger.meta.counters.step // 20 * 10)


@pytest.mark.parametrize("graph", [declared, derived, derived_in_part])
@pytest.mark.parametrize("seed", [1])
def test_a_graph_that_grew_is_that_of_rows_seen_for_the_first_time(
    graph: Callable[[Talk, Ledger], Graph], seed: int
) -> None:
    chance, talk = random.Random(seed), Talk()
    earlier = talk.run.ledger
    for number in range(90):
        goes_on(talk, chance, marked=graph is declared and number > 20)
        if chance.random() < 0.4:
            changes(talk, chance)
        if chance.random() < 0.1:  # what came last was not acknowledged, and other blocks get its numbers
            bodies = dict(talk.run.bodies)
            goes_on(talk, chance, marked=graph is declared)
            graph(talk, talk.run.ledger)
            talk.run.ledger, talk.run.bodies = earlier, bodies
        earlier = talk.run.ledger
        assert graph(talk, earlier) == graph(talk, unseen(earlier)), number
    assert len(earlier) > 2 * SEGMENT


def test_thinking_that_a_cut_took_is_back_in_its_episode_where_the_cut_is_undone() -> None:
    talk = Talk()
    talk.says("go")
    for _ in range(8):
        talk.calls(read(), thinking="hm")
    ledger = talk.run.ledger
    gone = [row for row in ledger.rows() if row.step < 5 and row.kind in ("tool_use", "tool_result")]
    ledger = ledger.with_rows(msgspec.structs.replace(row, state="archived") for row in gone)
    cut = ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=(gone[-1].number,)))

    graphs = [derive.derived(one, talk.run.words, most=2) for one in (cut, cut, ledger)]

    assert graphs[0] == graphs[1]
    assert graphs[2] == derive.derived(unseen(ledger), talk.run.words, most=2)
    assert (len(graphs[0].episodes[1].left), len(graphs[2].episodes[1].left)) == (0, 2)


def test_what_is_kept_by_segment_is_what_all_rows_say() -> None:
    chance, talk = random.Random(5), Talk()
    for number in range(60):
        goes_on(talk, chance, marked=False)
        changes(talk, chance)
        ledger = talk.run.ledger
        assert (skills(ledger), unused(ledger)) == (skills(unseen(ledger)), unused(unseen(ledger))), number
    assert skills(talk.run.ledger)


def test_a_result_far_behind_its_call_is_its_answer_and_an_interrupted_one_does_not_replace_it() -> None:
    talk = Talk()
    talk.says("go")
    talk.calls(read())
    for _ in range(SEGMENT):
        talk.injects("a notice")
    ledger = talk.run.ledger
    call, result = (next(row for row in ledger.rows() if row.kind == kind) for kind in ("tool_use", "tool_result"))
    newest = list(ledger.rows())[-1]
    for extra, answer in (({"ctxvc": {"interrupted": True}}, result.id), ({}, newest.id)):
        late = msgspec.structs.replace(result, id=newest.id, step=newest.step, extra=extra)
        assert pairs(ledger.with_rows([late])).results == {call.id: answer}
