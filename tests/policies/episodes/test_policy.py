"""Episodes: CWL's Algorithm 1 step for step, what we do otherwise, and the laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import Row, Source
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.prompt import outline
from ctxvc.core.view import view as view_module
from ctxvc.core.view.budget import Budget
from ctxvc.policies.episodes import delimiter
from ctxvc.policies.episodes import derive as annotating
from ctxvc.policies.episodes import graph as episodes
from ctxvc.policies.episodes.graph import BULK, INTERMEDIATE, REASONING, WHOLE, Graph
from ctxvc.policies.episodes.policy import Episodes, Order, in_order
from tests.policies.episodes.test_graph import Call, Talk, by_name, edit, grep, read, worked
from tests.policies.laws import check
from tests.policies.recorded import Run, moved, transcript

PAPER = Episodes(low_water=1.0, order="act_first")
ROOMY = Budget(window=10**9)


class Bare:
    """A price list as the paper has it: a body costs its bytes, and nothing stands for what has left."""

    def body(self, row: Row) -> int:
        return row.bytes

    def mask(self, row: Row) -> int:
        return row.bytes

    def text(self, words: str) -> int:  # noqa: ARG002
        return 0


def gone(run: Run) -> set[str]:
    return {row.id for row in run.ledger.rows() if not row.present}


def of(graph: Graph, *names: str) -> set[str]:
    return {block for name in names for block in by_name(graph)[name].blocks}


def settle(policy: Episodes, talk: Talk, budget: int | Budget = ROOMY) -> Rehearsal:
    """Proposes, checks the laws, and makes it true."""
    tried = check(policy, talk.run.view(budget), talk.run)
    assert not tried.problems, "nothing is proposed that is refused"
    moved(talk.run, tried)
    return tried


def tokens(talk: Talk) -> int:
    view = talk.run.view()
    return view_module.measure(view.ledger, view.price)


def ceiling(talk: Talk, freed: int, **knobs: object) -> Episodes:
    """A policy that must free so many tokens now."""
    return Episodes(ceiling=tokens(talk) - freed, **{"low_water": 1.0, **knobs})  # type: ignore[arg-type]


# --- section 4.4, Algorithm 1


@dataclasses.dataclass
class Node:
    """An episode of the test's own graph, with the blocks that the paper strips at each level."""

    name: str
    act: bool
    dependencies: tuple[str, ...]
    levels: dict[int, set[str]]
    closed: bool = True


def algorithm_1(nodes: list[Node], cost: Mapping[str, int], total: int, budget: int, out: set[str]) -> set[str]:
    """The blocks that the paper's pass evicts, beside those that are `out` already; line by line."""
    out = set(out)

    def evicted(node: Node) -> bool:
        return all(blocks <= out for blocks in node.levels.values())

    while total > budget:
        candidates = [
            node
            for node in nodes
            if node.closed
            and not evicted(node)
            and all(evicted(other) for other in nodes if node.name in other.dependencies)
        ]
        if not candidates:
            break
        target = next((node for node in candidates if node.act), candidates[0])
        for level in (1, 2, 3, 4):
            total -= sum(cost[block] for block in target.levels.get(level, set()) - out)
            out |= target.levels.get(level, set())
            if total <= budget:
                return out
    return out


KINDS: tuple[Call, ...] = (
    ("Grep", {"pattern": "x"}, "g" * 70),
    ("Glob", {"pattern": "*"}, "h" * 300),
    ("Read", {"file_path": "a"}, "r" * 400),
    ("Bash", {"command": "ls"}, "b" * 90),
    ("Edit", {"file_path": "a"}, "e" * 30),
    ("WebFetch", {"url": "u"}, "w" * 120),
)
AT = {"Grep": 2, "Glob": 2, "Read": 3, "Bash": 3, "WebFetch": 3}


def node_of(talk: Talk, name: str, act: bool, dependencies: tuple[str, ...], since: int, closed: bool) -> Node:
    levels: dict[int, set[str]] = {}
    for row in talk.run.ledger.rows():
        if row.number > since and not is_human(row.role, row.origin):
            level = 1 if row.kind == "thinking" and not act else AT.get(row.tool, 4)
            levels.setdefault(level, set()).add(row.id)
    return Node(name, act, dependencies, levels, closed)


def annotate(data: st.DataObject, talk: Talk, nodes: list[Node]) -> None:
    """One more episode; now and then a human speaks within it."""
    learned = [node.name for node in nodes if not node.act]
    act = bool(learned) and data.draw(st.booleans())
    depends = tuple(data.draw(st.lists(st.sampled_from(learned), min_size=1, unique=True))) if act else ()
    last = talk.run.ledger.last()
    since, name = last.number if last else 0, f"episode-{len(nodes)}"
    start = {"action": "start", "name": name, "type": "act" if act else "expl"}
    talk.marks(**start, **({"dependencies": list(depends)} if act else {}))
    for kind in data.draw(st.lists(st.sampled_from(KINDS), max_size=4)):
        if data.draw(st.integers(0, 5)) == 0:
            talk.says("mind this")
        talk.calls(kind, thinking=data.draw(st.sampled_from(["", "t" * 50])), words="so")
    talk.marks(action="end", **({} if act else {"description": "seen"}))
    nodes.append(node_of(talk, name, act, depends, since, closed=True))


@given(st.data())
def test_algorithm_1_of_section_4_4_step_for_step(data: st.DataObject) -> None:
    talk, nodes, out = Talk(), list[Node](), set[str]()
    talk.says("Begin")
    for _ in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(1, 4))):
            annotate(data, talk, nodes)
        talk.says("Next")
        talk.replies("Yes.")  # so that nothing of an episode is in the latest step
        view = talk.run.view(ROOMY, price=Bare())
        total = view_module.measure(view.ledger, view.price)
        budget = data.draw(st.integers(total // 4, total))
        cost = {row.id: row.bytes for row in view.ledger.rows()}
        out = algorithm_1(nodes, cost, total, budget, out)
        rehearsal = rehearse(view, msgspec.structs.replace(PAPER, ceiling=budget).propose(view))
        moved(talk.run, rehearsal)

        marked = {block for node in nodes for blocks in node.levels.values() for block in blocks}
        assert gone(talk.run) & marked == out
        assert not rehearsal.problems


def graph_of(nodes: Iterable[tuple[str, str, tuple[str, ...]]]) -> Graph:
    made = [
        episodes.Episode(
            name=name, type="act" if kind == "act" else "expl", made="implicit" if kind == "implicit" else "declared",
            state="closed", dependencies=depends, began=at, ended=at, left=("B1",),
        )
        for at, (name, kind, depends) in enumerate(nodes, start=1)
    ]  # fmt: skip
    return Graph(prologue=(), episodes=tuple(made))


@pytest.mark.parametrize(
    ("order", "expected"), [("act_first", ["b", "e", "a", "c", "d", "u"]), ("oldest", ["b", "a", "c", "e", "d", "u"])]
)
def test_acts_go_first_or_the_oldest_of_any_type_but_never_before_what_depends_on_it(
    order: Order, expected: list[str]
) -> None:
    """`oldest` is what the published program does; unmarked work goes last in both (section 5, third paragraph)."""
    none: tuple[str, ...] = ()
    nodes = [
        ("u", "implicit", none), ("a", "expl", none), ("b", "act", ("a",)), ("c", "expl", none),
        ("d", "expl", none), ("e", "act", ("d", "a")),
    ]  # fmt: skip
    if order == "oldest":
        nodes[-1] = ("e", "act", ("d",))
    assert [each.name for each in in_order(graph_of(nodes), order, latest=99)] == expected


# --- what may leave, and what may not


def test_at_the_ceiling_nothing_leaves_and_above_it_something_does() -> None:
    talk = worked()
    at = Episodes(ceiling=tokens(talk))
    assert at.propose(talk.run.view(ROOMY)).actions == ()
    assert "not above the ceiling" in at.propose(talk.run.view(ROOMY)).reason
    assert ceiling(talk, 1).propose(talk.run.view(ROOMY)).actions


def test_an_act_leaves_before_what_it_learned_from_and_its_stub_says_what_it_did() -> None:
    talk = worked()
    graph = talk.graph()
    rehearsal = settle(ceiling(talk, 1), talk)
    assert gone(talk.run) == of(graph, "mend")
    [group] = rehearsal.groups
    assert "act mend: Edit: src/a.py" in group.stub
    assert "act mend leaves" in rehearsal.plan.reason
    assert rehearsal.plan.actor == "policy:episodes"


def test_of_an_expl_as_little_leaves_as_is_enough_level_by_level() -> None:
    seen: list[tuple[str, int]] = []
    for freed in (1, 20, 700, 1_000):
        talk = worked()
        talk.archives(*by_name(talk.graph())["mend"].left)
        settle(ceiling(talk, freed), talk)
        look = by_name(talk.graph())["look"]
        seen.append((look.state, look.level))

    assert seen == [
        ("evicted in part", REASONING),
        ("evicted in part", BULK),
        ("evicted in part", INTERMEDIATE),
        ("evicted", WHOLE),
    ]


def test_the_description_of_an_expl_is_what_stays_of_it() -> None:
    talk = worked()
    settle(Episodes(ceiling=10), talk, 500)
    assert by_name(talk.graph())["look"].state == "evicted"
    text = "\n".join(slot.text for slot in outline.outline(talk.run.ledger) if slot.show == "text")
    assert "expl look: learned in look" in text


def test_the_prologue_and_active_episodes_never_leave_and_the_reason_says_so() -> None:
    talk = Talk()
    talk.says("Go")
    talk.calls(read(size=8_000))
    talk.marks(action="start", name="open", type="expl")
    talk.calls(read(size=4_000))
    talk.replies("Well.")
    plan = Episodes(ceiling=100).propose(talk.run.view(4_000))

    assert plan.actions == ()
    assert "nothing more can leave" in plan.reason
    assert "2,008 in the prologue" in plan.reason
    assert "in active episodes" in plan.reason


def test_text_of_humans_stays_and_a_ceiling_below_it_is_said_to_be_out_of_reach() -> None:
    talk = Talk()
    talk.says("Go")
    talk.marks(action="start", name="look", type="expl")
    talk.says("words " * 1_000)
    talk.calls(read())
    talk.marks(action="end", description="seen")
    talk.replies("Well.")
    rehearsal = settle(Episodes(ceiling=100), talk, 1_500)

    assert by_name(talk.graph())["look"].state == "evicted"
    assert all(row.present for row in talk.run.ledger.rows() if is_human(row.role, row.origin))
    assert "above the ceiling; remaining: 1,502 in human text" in rehearsal.plan.reason
    assert rehearsal.plan.pressure


def test_an_expl_that_ended_in_the_newest_step_waits_for_the_act_that_needs_it() -> None:
    """The published program may take it away just before."""
    talk = Talk()
    talk.says("Go")
    talk.explores("look", read(size=20_000))
    small = Episodes(ceiling=1_000)
    assert small.propose(talk.run.view(2_000)).actions == ()
    talk.replies("On with it.")
    assert small.propose(talk.run.view(2_000)).actions


def test_an_act_with_blocks_in_the_newest_step_is_not_gone_yet() -> None:
    talk = Talk()
    talk.says("Go")
    talk.explores("look", read(size=20_000))
    talk.acts("mend", edit(size=20_000), on="look")
    settle(Episodes(ceiling=1_000), talk, 2_000)
    assert by_name(talk.graph())["mend"].state == "evicted in part"
    assert by_name(talk.graph())["look"].state == "closed"


def test_without_any_mark_old_work_leaves_all_the_same() -> None:
    """The published program keeps a result of 40,000 characters under a budget of 100 tokens."""
    talk = Talk()
    talk.says("Go")
    [call] = talk.calls(read(size=40_000))
    talk.replies("Seen.")
    rehearsal = settle(Episodes(), talk, 100)

    assert next(row for row in talk.run.ledger.rows() if row.kind == "tool_result").state == "archived"
    assert rehearsal.tokens_after < 150
    assert "unmarked" in rehearsal.plan.reason
    assert call


def test_unmarked_work_leaves_last_and_in_parts() -> None:
    talk = Talk()
    talk.says("Go")
    talk.explores("a", read())
    for _ in range(6):
        talk.calls(read(), words="I read on. " * 20)
    talk.explores("b", read())
    talk.replies("Well.")
    policy = Episodes(ceiling=tokens(talk) - 1_600, low_water=1.0, implicit=3)
    settle(policy, talk)

    assert {name: each.state for name, each in by_name(talk.graph(3)).items()} == {
        "a": "evicted",
        "steps 4-6": "evicted in part",
        "steps 7-9": "closed",
        "b": "evicted",
        "step 13": "closed",
    }


def test_what_is_too_small_to_leave_alone_leaves_with_the_next_and_holds_up_nothing() -> None:
    talk = Talk()
    talk.says("Go")
    talk.calls(read("src/a.py", 9_000))
    talk.calls(("Bash", {"command": "rm src/a.py"}, "ok"))
    talk.calls(read("src/b.py"))
    talk.replies("Well.")
    look, remove, _ = derived(talk).episodes
    assert remove.dependencies == (look.name,)
    rehearsal = settle(Episodes(ceiling=800, derive=True), talk)

    assert gone(talk.run) == {*look.blocks, *remove.blocks}
    [group] = rehearsal.groups
    assert "derived expl 1: Read: src/a.py; with derived act 2" in group.stub


def test_what_left_an_episode_by_itself_joins_when_all_of_it_leaves() -> None:
    """A result that was offloaded when it came would leave its preview behind, and each level a stub."""
    talk = Talk()
    talk.says("Go")
    talk.explores("look", *(read(f"src/{at}.py", 9_000) for at in range(6)), grep())
    talk.replies("Well.")
    results = [row.id for row in talk.run.ledger.rows() if row.kind == "tool_result" and row.tool == "Read"]
    for result in results:
        talk.archives(result)
    before = len([slot for slot in outline.outline(talk.run.ledger) if slot.show == "text"])
    settle(Episodes(ceiling=100), talk, 1_000)
    stubs = [slot.text for slot in outline.outline(talk.run.ledger) if slot.show == "text"]

    assert before == 6
    assert len(stubs) == 2
    assert any("6 blocks" in stub and "outputs of expl look" in stub for stub in stubs)


# --- the mark that is gone down to


def test_it_goes_down_to_the_low_water_mark_once_and_then_leaves_the_prefix_alone() -> None:
    talk = Talk()
    talk.says("Go")
    policy, changes, calls = Episodes(ceiling=8_000), 0, 0
    for at in range(30):
        talk.explores(f"look-{at}", grep(1_500), read(size=1_500))
        talk.acts(f"mend-{at}", edit(size=1_500), on=f"look-{at}")
        talk.replies("Next.")
        calls += 9
        rehearsal = rehearse(talk.run.view(ROOMY), policy.propose(talk.run.view(ROOMY)))
        if rehearsal:
            changes += 1
            assert rehearsal.tokens_after <= 0.8 * 8_000 + 1
        moved(talk.run, rehearsal)
        assert tokens(talk) <= 8_000 + 1_500

    assert 5 <= changes <= 20


def test_where_the_mark_is_out_of_reach_it_waits_for_a_batch_that_is_worth_it() -> None:
    talk = Talk()
    talk.says("words " * 2_000)
    talk.explores("look", read(size=1_600))
    talk.replies("Next.")
    policy = Episodes(ceiling=2_500)
    waits = policy.propose(talk.run.view(ROOMY))

    assert waits.actions == ()
    assert "tokens could leave, which is not enough" in waits.reason
    assert policy.propose(talk.run.view(3_200)).actions, "at the guard, whatever helps"
    talk.explores("more", read(size=4_000))
    talk.replies("Next.")
    assert policy.propose(talk.run.view(ROOMY)).actions


def test_the_ceiling_is_the_ladders_and_never_above_the_guard() -> None:
    talk = worked()
    reason = "{:,} of {:,} tokens"
    assert reason.format(tokens(talk), 80_000) in Episodes().propose(talk.run.view(200_000)).reason
    assert reason.format(tokens(talk), 31_360) in Episodes().propose(talk.run.view(32_000)).reason
    assert reason.format(tokens(talk), 31_360) in Episodes(ceiling=90_000).propose(talk.run.view(32_000)).reason


def test_it_is_committed_at_once() -> None:
    talk = worked()
    policy = ceiling(talk, 1)
    view = talk.run.view(ROOMY)
    moment = policy.moment(view, rehearse(view, policy.propose(view)))
    assert moment.now
    assert moment.why.startswith("the ceiling was exceeded; ") and "rewriting" in moment.why
    assert not policy.moment(view, rehearse(view, Plan(actions=(), actor="x"))).now


def test_the_model_gets_the_tool_and_a_word_on_its_use_but_not_for_a_recording() -> None:
    assert Episodes().terms().tools == (delimiter.TOOL, "recover", "search")
    assert "delimiter" in Episodes().terms().protocol
    assert Episodes(derive=True).terms().tools == ("recover", "search")


# --- episodes that are derived


def derived(talk: Talk) -> Graph:
    return annotating.derived(talk.run.ledger, talk.run.words)


def test_reads_and_searches_explore_writes_and_runs_act_and_an_act_depends_on_the_files_it_touches() -> None:
    talk = Talk()
    talk.says("Go")
    talk.replies("Let me see.")
    talk.calls(read("/repo/src/a.py"))
    talk.calls(grep())
    talk.calls(("TodoWrite", {"todos": []}, "ok"))
    talk.calls(edit("src/a.py"))
    talk.calls(("Bash", {"command": "pytest -q src"}, "passed"))
    talk.calls(("Bash", {"command": "cat docs/b.md | head -5"}, "words"))
    talk.calls(("apply_patch", {"input": "*** Begin Patch\n*** Update File: docs/b.md\n@@"}, "done"))
    talk.replies("Done.")
    graph = derived(talk)

    assert [
        (episode.name, episode.began, episode.ended, episode.dependencies, episode.made) for episode in graph.episodes
    ] == [
        ("expl 1", 2, 4, (), "derived"),
        ("act 2", 5, 6, ("expl 1",), "derived"),
        ("expl 3", 7, 7, (), "derived"),
        ("act 4", 8, None, ("expl 3",), "derived"),
    ]
    assert [talk.run.ledger[block].kind for block in graph.prologue] == ["user", "assistant"]


def test_later_reads_of_the_same_file_supersede_earlier_ones() -> None:
    """An expl that an act depended on stayed until the act left, though its files stood in the prompt again."""
    talk = Talk()
    talk.says("Go")
    talk.calls(read("/repo/src/a.py"))
    talk.calls(edit("src/a.py"))
    talk.calls(read("/repo/src/b.py"))
    talk.calls(read("/repo/src/a.py"))
    talk.calls(edit("src/b.py"))
    talk.calls(grep())
    talk.replies("Done.")
    graph = derived(talk)

    assert {episode.name: (episode.dependencies, episode.superseded) for episode in graph.episodes} == {
        "expl 1": ((), True),
        "act 2": (("expl 1",), False),
        "expl 3": ((), False),
        "act 4": (("expl 3",), False),
        "expl 5": ((), False),
    }
    assert [each.name for each in in_order(graph, "act_first", 99)] == ["expl 1", "act 2", "act 4", "expl 3"]
    assert [each.name for each in in_order(graph, "oldest", 99)] == ["expl 1", "act 2", "act 4", "expl 3"]


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("Bash", {"command": "cd src && rg -n foo | head"}, "expl"),
        ("Bash", {"command": "git log --oneline -5"}, "expl"),
        ("Bash", {"command": "git -C /repo status"}, "expl"),
        ("Bash", {"command": "ls 2>/dev/null"}, "expl"),
        ("Bash", {"command": "git commit -m log"}, "act"),
        ("Bash", {"command": "cat a > b"}, "act"),
        ("Bash", {"command": "sed -i s/a/b/ x"}, "act"),
        ("Bash", {"command": "find . -name x -delete"}, "act"),
        ("Bash", {"command": "ls; rm x"}, "act"),
        ("Bash", {"command": 7}, "act"),
        ("shell", {"command": ["bash", "-lc", "sed -n 1,20p a.py"]}, "expl"),
        ("exec_command", {"cmd": "make"}, "act"),
        ("str_replace_editor", {"command": "view", "path": "a"}, "expl"),
        ("str_replace_editor", {"command": "create", "path": "a"}, "act"),
        ("mcp__github__get_issue", {}, "expl"),
        ("write_file", {"path": "a"}, "act"),
    ],
)
def test_what_a_call_is_for(tool: str, arguments: dict[str, object], kind: str) -> None:
    talk = Talk()
    talk.calls((tool, arguments, "x"))
    assert [episode.type for episode in derived(talk).episodes] == [kind]


def test_a_derived_episode_ends_when_a_human_speaks_and_is_never_long() -> None:
    talk = Talk()
    for _ in range(5):
        talk.calls(read())
    talk.says("Now the other")
    talk.calls(read())
    graph = annotating.derived(talk.run.ledger, talk.run.words, most=4)
    assert [(episode.began, episode.ended) for episode in graph.episodes] == [(1, 4), (5, 5), (6, None)]


def test_a_file_of_the_same_name_elsewhere_is_another() -> None:
    talk = Talk()
    talk.calls(read("/repo/src/index.ts"))
    talk.calls(edit("/repo/src/a.py"))
    talk.calls(read("/repo/docs/index.ts"))
    talk.calls(edit("docs/index.ts"))
    assert [episode.dependencies for episode in derived(talk).episodes] == [(), (), (), ("expl 3",)]


def test_episodes_are_derived_where_asked_for_or_recorded_and_only_where_none_is_marked() -> None:
    talk = Talk()
    talk.says("Go")
    talk.calls(read())
    view, other = talk.run.view(), worked().run.view()

    assert {episode.made for episode in Episodes().graph(view).episodes} == {"implicit"}
    assert {episode.made for episode in Episodes(derive=True).graph(view).episodes} == {"derived"}
    for each in (view, other):
        meta = msgspec.structs.replace(each.ledger.meta, source=Source(format="codex", id="r"))
        recorded = dataclasses.replace(each, ledger=each.ledger.with_meta(meta))
        assert Episodes().graph(recorded) == Episodes(derive=True).graph(each)
    assert "derived" not in {episode.made for episode in Episodes(derive=True).graph(other).episodes}


@pytest.mark.parametrize("derive", [False, True])
def test_what_was_derived_of_closed_episodes_stays_as_the_run_goes_on(derive: bool) -> None:
    grown = Run()
    policy, before = Episodes(derive=derive), dict[str, tuple[object, ...]]()
    for message in transcript()[:120]:
        grown.append(message)
        now = policy.graph(grown.view()).episodes
        told = {each.name: (each.type, each.dependencies, each.blocks) for each in now[:-1]}
        assert before.items() <= told.items()
        before = told


@given(st.data())
def test_a_derived_graph_keeps_the_invariants(data: st.DataObject) -> None:
    talk = Talk()
    odd: list[Call] = [("Bash", {"command": ["x", 1]}, ""), ("Read", {"file_path": 3}, ""), ("", {}, "")]
    for call in data.draw(st.lists(st.sampled_from([*KINDS, *odd, None]), max_size=12)):
        if call:
            talk.calls(call)
        else:
            talk.says("go on")
    before: dict[str, str] = {}
    for episode in derived(talk).episodes:
        assert all(before[name] == "expl" for name in episode.dependencies)
        before[episode.name] = episode.type if episode.ended is not None else "open"
    assert list(before.values())[:-1].count("open") == 0


# --- laws


@settings(max_examples=settings().max_examples * 3 // 5, deadline=None)
@given(st.data())
def test_the_laws_hold_on_conversations_with_episodes(data: st.DataObject) -> None:
    talk, nodes = Talk(), list[Node]()
    talk.says("Begin")
    for _ in range(data.draw(st.integers(1, 5))):
        annotate(data, talk, nodes)
        if data.draw(st.booleans()):
            talk.injects("a reminder " * 9)
            talk.replies("Yes.")
        policy = Episodes(order=data.draw(st.sampled_from(["act_first", "oldest"])))
        settle(policy, talk, data.draw(st.sampled_from([200, 600, 2_000])))
