"""The episode graph is found in the rows, and its invariants hold whatever stands there (CWL, section 4.3)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.plan import Action, Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.policies.episodes import graph as episodes
from ctxvc.policies.episodes.graph import Episode, Graph, Tools
from tests.making.generated import arranged
from tests.policies.episodes.test_delimiter import answers, calls
from tests.policies.recorded import Run

Call = tuple[str, Mapping[str, object], str]


class Talk:
    """A conversation in the making, whose delimiter calls are answered as a session answers them."""

    def __init__(self) -> None:
        self.run = Run()
        self._numbers = itertools.count(1)

    def says(self, words: str) -> None:
        self.run.append(Message(role="user", parts=(wire.text_part(words, "user", "human"),)))

    def injects(self, words: str) -> None:
        self.run.append(Message(role="user", parts=(wire.text_part(words, "user", "client"),)))

    def replies(self, words: str) -> None:
        self.run.append(Message(role="assistant", parts=(wire.text_part(words, "assistant", "model"),)))

    def calls(self, *made: Call, thinking: str = "", words: str = "", accept: bool = False) -> list[str]:
        """One reply with these calls, and their results; the ids of the calls. With `accept` no call is refused, as
        by a host that judges less."""
        known = episodes.declared_episodes(self.run.ledger, self.run.words)
        ids = [f"call-{next(self._numbers)}" for _ in made]
        parts: list[Part] = []
        if thinking:
            block = {"type": "thinking", "thinking": thinking, "signature": "s"}
            parts.append(wire.part(block, "assistant", "model"))
        if words:
            parts.append(wire.text_part(words, "assistant", "model"))
        parts += [
            wire.call_part(tool, call, json.dumps(arguments).encode())
            for call, (tool, arguments, _) in zip(ids, made, strict=True)
        ]
        verdicts = iter(answers([given for tool, given, _ in made if tool == "delimiter"], known))
        results = []
        for call, (tool, _, output) in zip(ids, made, strict=True):
            verdict = next(verdicts) if tool == "delimiter" else None
            error = bool(verdict and verdict.error and not accept)
            results.append(wire.result_part(verdict.text if verdict else output, call, error=error))
        self.run.append(Message(role="assistant", parts=tuple(parts)), Message(role="user", parts=tuple(results)))
        return ids

    def marks(self, **arguments: object) -> None:
        self.calls(("delimiter", arguments, ""))

    def explores(self, name: str, *made: Call, thinking: str = "") -> None:
        """A whole expl with a step for each call."""
        self.marks(action="start", name=name, type="expl")
        for call in made:
            self.calls(call, thinking=thinking)
        self.marks(action="end", description=f"learned in {name}")

    def acts(self, name: str, *made: Call, on: str) -> None:
        """A whole act with a step for each call."""
        self.marks(action="start", name=name, type="act", dependencies=[on])
        for call in made:
            self.calls(call)
        self.marks(action="end")

    def graph(self, implicit: int = episodes.IMPLICIT, tools: Tools = episodes.TOOLS) -> Graph:
        return episodes.declared(self.run.ledger, self.run.words, implicit=implicit, tools=tools)

    def archives(self, *blocks: str) -> None:
        rehearsal = rehearse(self.run.view(), Plan(actions=(Action(verb="archive", targets=blocks),), actor="agent"))
        self.run.ledger, self.run.next_group = rehearsal.after, self.run.next_group + 1


def grep(size: int = 2_000) -> Call:
    return ("Grep", {"pattern": "x"}, "found\n" * (size // 6))


def read(path: str = "src/a.py", size: int = 2_000) -> Call:
    return ("Read", {"file_path": path}, "line\n" * (size // 5))


def edit(path: str = "src/a.py", size: int = 2_000) -> Call:
    return ("Edit", {"file_path": path, "new_string": "y" * size}, "done")


def by_name(graph: Graph) -> dict[str, Episode]:
    return {episode.name: episode for episode in graph.episodes}


def worked() -> Talk:
    talk = Talk()
    talk.says("Mend the parser")
    talk.replies("I look around.")
    talk.explores("look", grep(), read(), thinking="hm")
    talk.acts("mend", edit(), on="look")
    talk.replies("Done.")
    return talk


def test_the_graph_has_what_the_calls_told_and_before_the_first_start_a_prologue() -> None:
    look, mend, rest = worked().graph().episodes
    assert (look.name, look.type, look.state, look.description) == ("look", "expl", "closed", "learned in look")
    assert (mend.name, mend.type, mend.state, mend.dependencies) == ("mend", "act", "closed", ("look",))
    assert (rest.name, rest.type, rest.made) == ("step 9", "expl", "implicit")
    assert {look.made, mend.made} == {"declared"}
    talk = worked()
    first = next(row for row in talk.run.ledger.rows() if row.tool == "delimiter")
    assert talk.graph().prologue == tuple(row.id for row in talk.run.ledger.rows() if row.number < first.number)


def test_without_any_start_there_is_no_prologue_and_all_is_implicit() -> None:
    talk = Talk()
    talk.says("Look")
    for _ in range(7):
        talk.calls(read())
    graph = talk.graph(implicit=3)

    assert graph.prologue == ()
    assert [(episode.name, episode.made) for episode in graph.episodes] == [
        ("steps 1-3", "implicit"),
        ("steps 4-6", "implicit"),
        ("step 7", "implicit"),
    ]


def test_an_episode_without_its_end_is_active_and_can_be_none_but_the_newest() -> None:
    talk = worked()
    talk.marks(action="start", name="more", type="expl")
    talk.calls(read())
    assert by_name(talk.graph())["more"].state == "active"
    assert by_name(talk.graph())["more"].ended is None
    talk.marks(action="end", description="it was nothing")
    assert by_name(talk.graph())["more"].state == "closed"


def test_end_and_start_in_one_reply_each_keep_their_own_results() -> None:
    talk = Talk()
    talk.says("Go")
    talk.marks(action="start", name="a", type="expl")
    talk.calls(
        read(),
        ("delimiter", {"action": "end", "description": "seen"}, ""),
        ("delimiter", {"action": "start", "name": "b", "type": "act", "dependencies": ["a"]}, ""),
        edit(),
    )
    graph = by_name(talk.graph())
    rows = talk.run.ledger

    assert (graph["a"].state, graph["b"].state) == ("closed", "active")
    tools = [rows[block].tool for block in graph["a"].blocks]
    assert tools == ["delimiter", "delimiter", "Read", "delimiter", "Read", "delimiter"]
    assert [rows[block].tool for block in graph["b"].blocks] == ["delimiter", "Edit", "delimiter", "Edit"]


def test_a_call_that_was_refused_that_failed_or_was_never_answered_does_not_count() -> None:
    talk = worked()
    before = by_name(talk.graph())
    talk.marks(action="start", name="look", type="expl")  # re-used
    talk.marks(action="end", description="unmatched")
    talk.run.append(
        Message(role="assistant", parts=(wire.call_part("delimiter", "z", b'{"action":"start","name":"q"}'),))
    )

    assert {name for name in by_name(talk.graph()) if name in before and name != "step 9"} == {"look", "mend"}
    assert {each.made for name, each in by_name(talk.graph()).items() if name not in before} <= {"implicit"}

    talk = Talk()
    talk.says("Go")
    start = wire.call_part("delimiter", "z", b'{"action":"start","name":"a","type":"expl"}')
    talk.run.append(Message(role="assistant", parts=(start,)))
    assert talk.graph().episodes[0].made == "implicit", "it has no result yet"
    talk.run.append(Message(role="user", parts=(wire.result_part("the tool crashed", "z", error=True),)))

    assert [episode.made for episode in talk.graph().episodes] == ["implicit"]
    assert episodes.declared_episodes(talk.run.ledger, talk.run.words) == {}


def test_unmarked_work_before_and_after_an_episode_is_not_one() -> None:
    talk = worked()
    talk.acts("test", edit(), on="look")
    talk.replies("Done.")
    assert [episode.name for episode in talk.graph().episodes] == ["look", "mend", "step 9", "test", "step 13"]


def test_what_another_host_accepted_wrongly_does_not_count_either() -> None:
    """The published program takes a nested start in a parallel call, and an act whose dependencies are all blank."""
    talk = Talk()
    talk.says("Go")
    start = {"action": "start", "type": "expl"}
    talk.calls(
        ("delimiter", {**start, "name": "a"}, ""), ("delimiter", {**start, "name": "nested"}, ""), read(), accept=True
    )
    talk.calls(("delimiter", {"action": "end", "description": "x"}, ""), accept=True)
    blank = {"action": "start", "name": "b", "type": "act", "dependencies": [" "]}
    talk.calls(("delimiter", blank, ""), edit(), accept=True)

    assert [(episode.name, episode.made) for episode in talk.graph().episodes] == [
        ("a", "declared"),
        ("step 3", "implicit"),
    ]


def test_the_tool_may_go_by_another_name() -> None:
    for tool in ("context_delimiter", "mcp__ctxvc__delimiter"):
        talk = Talk()
        talk.says("Go")
        talk.calls((tool, {"action": "start", "name": "a", "type": "expl"}, "started"))
        assert set(by_name(talk.graph())) == {"a"}


def test_how_far_an_episode_has_left_is_told_by_its_rows() -> None:
    talk = worked()
    rows = {(row.tool, row.kind): row.id for row in talk.run.ledger.rows() if row.tool in ("Grep", "Read")}
    assert by_name(talk.graph())["look"].level == 0
    thinking = [row.id for row in talk.run.ledger.rows() if row.kind == "thinking"]

    def level() -> tuple[str, int]:
        look = by_name(talk.graph())["look"]
        return look.state, look.level

    talk.archives(rows["Grep", "tool_use"], rows["Grep", "tool_result"])
    assert level() == ("evicted in part", 0), "the reasoning is still there"
    pruned = Plan(actions=(Action(verb="prune", targets=tuple(thinking)),), actor="agent")
    talk.run.ledger = rehearse(talk.run.view(), pruned).after
    assert level() == ("evicted in part", episodes.BULK)
    talk.archives(rows["Read", "tool_use"], rows["Read", "tool_result"])
    assert level() == ("evicted in part", episodes.INTERMEDIATE)
    talk.archives(*by_name(talk.graph())["look"].left)
    assert level() == ("evicted", episodes.WHOLE)


def test_what_never_leaves_is_never_left_to_leave() -> None:
    talk = Talk()
    talk.says("Go")
    talk.marks(action="start", name="a", type="expl")
    talk.calls(read("/repo/CLAUDE.md"))
    talk.calls(read("src/pinned.py"))
    talk.says("And mind the tests")
    talk.calls(read())
    talk.marks(action="end", description="seen")
    talk.replies("Well.")
    rows = {(row.label.partition(": ")[2] or row.kind): row for row in talk.run.ledger.rows()}
    pinned = msgspec.structs.replace(rows["src/pinned.py"], state="pinned")
    talk.run.ledger = talk.run.ledger.with_rows([pinned])
    kept = [talk.run.ledger[block] for block in by_name(talk.graph())["a"].blocks]
    left = by_name(talk.graph())["a"].left

    stay = [row.label for row in kept if row.id not in left]
    assert stay[:1] == ["Read: /repo/CLAUDE.md"]
    assert "Read: src/pinned.py" in stay
    assert "And mind the tests" in stay
    assert len(stay) == 5, "each call with its result"


def test_lines_tell_people_what_there_is_and_what_it_costs() -> None:
    talk = worked()
    view = talk.run.view()
    look, mend, _ = episodes.lines(view.ledger, talk.graph(), view.price)

    assert (look.type, look.name, look.state, look.level, look.made) == (
        "expl",
        "look",
        "closed",
        "nothing",
        "declared",
    )
    assert (mend.dependencies, mend.blocks) == (("look",), 6)
    assert (
        look.tokens
        == look.shown
        == sum(view.price.body(talk.run.ledger[block]) for block in talk.graph().episodes[0].blocks)
    )
    talk.archives(*talk.graph().episodes[0].left)
    gone, *_ = episodes.lines(talk.run.ledger, talk.graph(), view.price)
    assert (gone.state, gone.level, gone.tokens) == ("evicted", "whole", look.tokens)
    assert 0 < gone.shown < look.shown


def test_tools_are_told_apart_without_case_server_or_with_a_word() -> None:
    tools = Tools(bulk=("grep", "editor:find"), intermediate=("Read",))
    talk = Talk()
    talk.calls(
        ("Grep", {}, ""), ("mcp__files__read", {}, ""), ("Editor", {"command": "find x"}, ""), ("editor", {}, "")
    )
    level = tools.levels()
    found = [level(row) for row in talk.run.ledger.rows() if row.kind == "tool_use"]
    assert found == [episodes.BULK, episodes.INTERMEDIATE, episodes.BULK, episodes.WHOLE]


@given(st.lists(calls, max_size=6), st.integers(1, 4), st.data())
def test_the_invariants_of_the_graph_hold_whatever_was_called(
    told: list[list[dict[str, object]]], implicit: int, data: st.DataObject
) -> None:
    talk = Talk()
    for reply in told:
        if data.draw(st.booleans()):
            talk.says("go on")
        if reply:
            clean = [json.loads(json.dumps(call).replace("\\ud800", "s")) for call in reply]
            talk.calls(*(("delimiter", call, "") for call in clean), read(), accept=data.draw(st.booleans()))
    talk.run.ledger = data.draw(arranged(talk.run.ledger))
    graph = talk.graph(implicit)
    rows = {row.id: row for row in talk.run.ledger.rows()}

    places = [*graph.prologue, *(block for episode in graph.episodes for block in episode.blocks)]
    assert sorted(places) == sorted(rows), "each block has one place"
    declared = [episode for episode in graph.episodes if episode.made == "declared"]
    assert len({each.name for each in declared}) == len(declared)
    assert [each for each in declared if each.state == "active"] in ([], declared[-1:])
    before: dict[str, Episode] = {}
    for each in declared:  # acyclic, and from expl to act only: every edge leads to an expl that ended before
        assert bool(each.dependencies) == (each.type == "act")
        assert all(before[name].type == "expl" and before[name].ended is not None for name in each.dependencies)
        before[each.name] = each
    for each in graph.episodes:
        assert each.blocks
        assert all(rows[block].present for block in each.left)
        if each.made == "implicit":
            assert rows[each.blocks[-1]].step - rows[each.blocks[0]].step < implicit
    if declared:
        assert all(rows[block].number < rows[declared[0].blocks[0]].number for block in graph.prologue)
    assert talk.graph(implicit) == graph
