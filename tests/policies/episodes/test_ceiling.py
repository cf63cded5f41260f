"""What may not leave has grown above the ceiling: no graph of the whole conversation is made for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, compact
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import removable
from ctxvc.policies.episodes import policy as module
from ctxvc.policies.episodes.graph import Graph
from ctxvc.policies.episodes.policy import Episodes
from ctxvc.replay.conversation import Call, Conversation, Prompt
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.store.read.operations import changes
from tests.agent.building import opened
from tests.making.conversation import LONG, human, reply, result, results
from tests.making.provider import Agent, tokens_of
from tests.policies.laws import moved, settled
from tests.policies.recorded import Run


def driven(patches: pytest.MonkeyPatch, *, bounded: bool) -> tuple[Sequence[Prompt | None], int]:
    """The prompts of a conversation whose human texts pass a ceiling of 4,000 tokens, and how many graphs were made."""
    calls: list[Call] = []
    for number in range(12):
        before = [results(result(f"c{number - 1}", LONG[: 17 * 60]))] if number else []
        calls.append(Call((*before, human(f"{number} " + "words " * 600)), reply(f"part {number}", f"c{number}")))
    talk = Conversation(id="talk", file="talk", sha256="", calls=tuple(calls))
    graphs: list[Graph] = []
    original = Episodes.graph

    def graph(policy: Episodes, view: View, since: int = 0) -> Graph:
        graphs.append(original(policy, view, since))
        return graphs[-1]

    patches.setattr(Episodes, "graph", graph)
    if not bounded:
        patches.setattr(module, "_most_saved", lambda *_: 1 << 40)
    session = new_session(talk, Episodes(ceiling=4_000, derive=True), 100_000)
    return [one.prompt for one in drive(talk, session, Prompts(session))], len(graphs)


def test_no_graph_is_made_where_too_little_may_leave_and_the_plans_are_the_same() -> None:
    with pytest.MonkeyPatch.context() as patches:
        prompts, graphs = driven(patches, bounded=True)
    with pytest.MonkeyPatch.context() as patches:
        always, every_graph = driven(patches, bounded=False)
    assert prompts == always
    assert graphs < every_graph


@pytest.mark.parametrize(("ceiling", "derive"), [(8_000, True), (16_000, False)], ids=["derived", "unmarked"])
def test_tau_is_held_at_every_call(tmp_path: Path, ceiling: int, derive: bool) -> None:
    """80k means at most 80k: an active episode, a step of large results and the boards used to go beyond it."""
    policy = Episodes(ceiling=ceiling, derive=derive)
    with opened(tmp_path / "s", budget=100_000, policy=policy) as session:
        agent = Agent(session)
        agent.say("Read all of it.")
        used = []
        for number in range(24):
            outputs = [LONG * 4] * 4 if number % 7 == 6 else [LONG[: 17 * 100]]
            agent.step(*outputs, words=f"File {number} next.")
            used.append(tokens_of(session, session.request()))
        assert 0.7 * ceiling < max(used) <= ceiling


def test_what_humans_wrote_may_pass_tau_and_costs_no_cut_at_each_call(tmp_path: Path) -> None:
    with opened(tmp_path / "s", budget=100_000, policy=Episodes(ceiling=4_000, derive=True)) as session:
        agent = Agent(session)
        agent.say("word " * 6_000)
        for _ in range(6):
            agent.step("ok")
        session.stored.flush()
        assert session.view().used > 6_000
        assert [change.op for change in changes(session.stored)].count("cut") <= 1


def test_what_left_long_ago_is_not_looked_at_again_and_the_episodes_are_the_same() -> None:
    """A plan's time grew with the conversation: each made a graph of all its blocks."""
    policy, run, sizes = Episodes(ceiling=6_000, derive=True), Run(), []
    for turn in range(30):
        run.append(human(f"Task {turn}."))
        for number, (tool, name) in enumerate((("Read", "file_path"), ("Grep", "pattern"), ("Edit", "file_path"))):
            call = call_part(tool, f"c{turn}-{number}", compact({name: f"src/{turn}.py"}))
            run.append(Message(role="assistant", parts=(call,)), results(result(call.call, LONG[: 17 * 60])))
        run.append(reply("Done."))
        settled(policy, run, 100_000)
        view = run.view(100_000)
        part, whole = policy.graph(view, removable(view, alone=True)[0].step), policy.graph(view)
        assert [
            (episode.blocks, episode.type, episode.state, episode.level, episode.superseded)
            for episode in part.episodes
            if episode.left
        ] == [
            (episode.blocks, episode.type, episode.state, episode.level, episode.superseded)
            for episode in whole.episodes
            if episode.left
        ]
        sizes.append(sum(len(episode.blocks) for episode in part.episodes))
    assert max(sizes[15:]) <= max(sizes[:15]) < sum(len(episode.blocks) for episode in whole.episodes) / 2


def test_stubs_of_a_long_session_of_many_turns_stay_a_small_part_of_the_prompt() -> None:
    """People's words between them kept all of them apart: after 4,000 calls they were two fifths of the prompt."""
    policy, run, shares = Episodes(ceiling=6_000, derive=True), Run(), []
    budget = Budget(100_000, ladder=Ladder(guard_at_ceiling=True, episodes_most=6_000))
    for turn in range(50):
        run.append(human(f"Task {turn}."))
        for number, tool in enumerate(("Read", "Edit")):
            call = call_part(tool, f"c{turn}-{number}", compact({"file_path": f"src/{turn}.py"}))
            run.append(Message(role="assistant", parts=(call,)), results(result(call.call, LONG[: 17 * 60])))
        run.append(reply("Done."))
        before = run.view(budget)
        moved(run, rehearse(before, policy.propose(before)))
        view = run.view(budget)
        shown = outline(view.ledger)
        shares.append(sum(view.price.text(slot.text) for slot in shown if slot.show == "text") / policy.ceiling)
    assert 0.02 < max(shares) < 0.16
    assert all(row.present for row in view.ledger.rows() if row.origin == "human")
