"""Episodes: what the model marked as done leaves first, in the order that its own marks allow, without any model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import ClassVar, Literal, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import Group, Row, blocks_of, outermost
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import timing
from ctxvc.core.plan.draft import header
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import CeilingShare, Names, Policy, Steps, Terms, Tokens
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.cut import is_cut, latest_step
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import cost_in_prompt, old_stubs, removable, short_label
from ctxvc.policies.episodes import derive as annotating
from ctxvc.policies.episodes import graph as episodes
from ctxvc.policies.episodes.graph import BULK, INTERMEDIATE, LEVELS, REASONING, Episode, Graph, Tools, is_mark

#: Which of the episodes that may leave goes first: the oldest act while there is one, or the oldest of any type.
Order = Literal["act_first", "oldest"]

#: Of the ceiling, in hundredths: above what share the oldest stubs leave without a trace, and down to which. Roll-up
#: begins at half of that: what is left then is what it cannot join.
_MOST_STUBS, _LEAST_STUBS = 10, 6

PROTOCOL = (
    "Mark your work with the delimiter tool. Before you read and search, start an episode of type expl; end it with a "
    "description of what you learned. Before you write or run something, start an act that names the expl episodes it "
    "builds on, and end it when the work is done. When room is needed, ended acts leave first, then ended expl "
    "episodes that no act in the prompt builds on, of which the description stays."
)

#: The most things of a list that are named, and the characters of a call's label in a stub.
_TOLD = 4
_LABEL = 48


class Episodes(Policy, frozen=True, kw_only=True):
    """Above a ceiling, ended episodes leave, in an order based on the model's marks, down to a low-water mark.

    The next to leave is the oldest closed act; if there is none, the oldest closed expl none of whose acts remain. The
    last one leaves only as far as needed: an expl's reasoning, then the results of lists and searches, then other calls
    that only read, then everything except human text. Its stub is the model's own description or, for an act, what was
    done. The prologue and active episodes stay; work outside all episodes counts as expl and leaves last.

    Knobs: `ceiling` in tokens (0: the ladder's, 80,000 or the budget), never above the guard. `low_water` is a share of
    the ceiling. `order` is `act_first` or `oldest`. `bulk` and `intermediate` are tool names (`tool:word`: only calls
    that start with the word), `implicit` is in steps. With `derive`, and always in an imported recording, episodes are
    derived from the calls if the model marked none.

    Source: "Beyond Compaction: Structured Context Eviction for Long-Horizon Agents", sections 4.2 to 4.4 and Algorithm
    1, which `low_water=1.0` follows step for step. Differences:
    - Nothing is lost: what leaves is archived as a group with an address (reasoning that leaves alone is pruned).
    - It goes down to a low-water mark, so that the cached prefix breaks once in many calls, not with each; episodes
      that leave whole skip the intermediate levels. If the mark is out of reach, it waits for a batch that is worth it.
    - Of derived episodes, an expl whose files were all read again later leaves as acts do, and stubs are gathered with
      each batch: above a tenth of the ceiling the oldest leave. Descriptions by the model stay.
    - The ceiling holds at every call: if what may not leave by this rule exceeds it (an active episode, the prologue, a
      result that just came), the session's guard acts there, oldest steps first. Only human text, pins and instruction
      files can exceed it.
    - The newest step stays, and an expl that ended in it waits: the act that needs it is still to come.
    - Unmarked work leaves too, as implicit expl episodes of at most `implicit` steps. The published program keeps it
      forever, and its order is `oldest`.
    - Human text, pins, notes and instruction files always stay. What is smaller than its stub would be leaves with the
      next episode, and does not hold up anything that depends on it.
    """

    name: ClassVar[str] = "episodes"
    source: ClassVar[str] = 'CWL, "Beyond Compaction: Structured Context Eviction", sections 4.2-4.4, Algorithm 1'
    recovers: ClassVar[str] = "yes (there: no)"
    decides: ClassVar[str] = "rule, by the model's marks"

    ceiling: Tokens = 0
    low_water: CeilingShare = 0.8
    order: Order = "act_first"
    bulk: Names = episodes.BULK_TOOLS
    intermediate: Names = episodes.INTERMEDIATE_TOOLS
    implicit: Steps = episodes.IMPLICIT
    derive: bool = False

    def terms(self) -> Terms:
        ladder = {"guard_at_ceiling": True, **({"episodes_most": self.ceiling} if self.ceiling else {})}
        if self.derive:
            return Terms(ladder=ladder)
        return Terms(tools=("delimiter",), protocol=PROTOCOL, ladder=ladder)

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        """At once: the ceiling is what the system promises, and the low-water mark is what spares the cache."""
        return timing.reckon(view, rehearsal, self.timing).moment("the ceiling was exceeded", now=bool(rehearsal))

    def graph(self, view: View, since: int = 0) -> Graph:
        """The episodes of the view's scope: those that the model marked, or where it marked none derived ones.

        Of derived ones only those that are not over before the step `since`, as far as they can be told.
        """
        tools = Tools(bulk=self.bulk, intermediate=self.intermediate)
        if (self.derive or view.ledger.meta.source) and not episodes.declared_episodes(view.ledger, view.words):
            return annotating.derived(view.ledger, view.words, most=self.implicit, tools=tools, since=since)
        return episodes.declared(view.ledger, view.words, implicit=self.implicit, tools=tools)

    def high(self, budget: Budget) -> int:
        return min(self.ceiling or budget.ceiling, budget.guard)

    def propose(self, view: View) -> Plan:
        ceiling = self.high(view.budget)
        counted = view.counted
        before = view.calibrated(counted)
        if before <= ceiling:
            return self._plan(f"{before:,} of {ceiling:,} tokens: not above the ceiling")
        target = int(ceiling * self.low_water)
        # What stays may have grown above the ceiling: then no graph of all blocks is made for nothing at each call.
        marked = not self.derive or any(view.ledger.by_segment(_marked))
        forgotten, spared = ((), 0) if marked else old_stubs(view, _MOST_STUBS, _LEAST_STUBS)
        bound = before if marked else view.part(spared + _most_saved(view, self.implicit))
        if before <= view.budget.hard_guard and before - bound > ceiling and bound < ceiling - target:
            human = sum(view.price.body(row) for row in chain.from_iterable(view.ledger.by_segment(_of_humans)))
            return self._plan(
                f"{before:,} of {ceiling:,} tokens: at most {bound:,} tokens could leave, which is not enough; "
                f"remaining: {view.overhead:,} in instructions and tools, {human:,} in human text"
            )
        first = next(iter(removable(view, alone=True)), None)
        graph = self.graph(view, since=first.step if first else 0)
        bench = _Bench.of(view, Tools(bulk=self.bulk, intermediate=self.intermediate), graph)
        removals = _removals(bench, in_order(graph, self.order, bench.latest))
        moves = tuple(_chosen(bench, removals, counted - spared, target))
        if not moves:  # else stubs of this batch would leave with the next call
            forgotten, spared = (), 0
        actions = (*(move.action for move in moves), *forgotten)
        after = view.calibrated(counted - spared - sum(move.saves for move in moves))
        used = f"{before:,} of {ceiling:,} tokens"
        if after > ceiling and before - after < ceiling - target and before <= view.budget.hard_guard:
            could = f"{before - after:,} tokens could leave" if actions else "nothing more can leave"
            return self._plan(f"{used}: {could}, which is not enough; {_staying(bench, ())}")
        reason = f"{used}: {_leaving(bench, actions)}, which leaves about {after:,}"
        if after > ceiling:
            reason += f", above the ceiling; {_staying(bench, actions)}"
        plan = self._plan(reason, actions)
        return msgspec.structs.replace(plan, pressure=before > view.budget.hard_guard, rolls_up=not marked)

    def _plan(self, reason: str, actions: tuple[Action, ...] = ()) -> Plan:
        return Plan(actions=actions, actor=self.actor, reason=reason)


def _most_saved(view: View, reach: int) -> int:
    """The tokens that no plan can save more than, where an episode has at most `reach` steps.

    Of blocks that may leave, and of stubs that could become one with them: those of the same episode.
    """
    rows, ledger = removable(view, alone=True), view.ledger
    steps = sorted({row.step for row in rows if row.present})

    def near(block: str) -> bool:
        step = ledger[block].step
        at = bisect_left(steps, step - reach)
        return at < len(steps) and steps[at] <= step + reach

    groups = (group for group in ledger.groups.values() if group.level == 1 and not group.group)
    stubs_of_groups = sum(view.price.text(group.stub) for group in groups if near(group.members[0]))
    return stubs_of_groups + sum(cost_in_prompt(view, row) for row in rows) if steps else 0


def _marked(rows: tuple[Row, ...]) -> bool:
    return any(map(is_mark, rows))


def _present(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.present]


def _of_humans(rows: tuple[Row, ...]) -> list[Row]:
    """The human messages in the prompt."""
    return [row for row in rows if row.present and is_human(row.role, row.origin)]


def in_order(graph: Graph, order: Order, latest: int) -> Iterator[Episode]:
    """The episodes that may leave, in the order in which they would: closed, and without an act in the prompt that
    depends on them. `latest` is the newest step, of which no block leaves: an expl that ended in it waits, and an act
    with blocks in it is not gone yet.

    An episode without a block that may leave counts as gone, and is not given. A superseded expl leaves as an act does,
    and waits for none: what it read was read again.
    """
    held_up: dict[str, int] = {}  # name → the acts in the prompt that depend on it
    for episode in graph.episodes:
        for name in episode.dependencies if episode.left else ():
            held_up[name] = held_up.get(name, 0) + 1
    places = {episode.name: place for place, episode in enumerate(graph.episodes) if episode.made != "implicit"}

    def rank(place: int) -> tuple[int, int]:
        episode = graph.episodes[place]
        later = order == "act_first" and episode.type == "expl" and not episode.superseded
        return (2 if episode.made == "implicit" else int(later), place)

    def eligible(place: int) -> bool:
        episode = graph.episodes[place]
        if not episode.left or episode.state == "active":
            return False
        if episode.made == "implicit" or episode.type == "act":
            return True
        return episode.ended != latest and (episode.superseded or not held_up.get(episode.name))

    ready = [rank(place) for place in range(len(graph.episodes)) if eligible(place)]
    heapify(ready)
    while ready:
        episode = graph.episodes[heappop(ready)[1]]
        yield episode
        if episode.ended == latest:
            continue
        for name in episode.dependencies:
            held_up[name] -= 1
            if name in places and not graph.episodes[places[name]].superseded and eligible(places[name]):
                heappush(ready, rank(places[name]))


class _Bench(NamedTuple):
    """The data that removals are judged by."""

    view: View
    graph: Graph
    rows: Mapping[str, Row]
    level: episodes.Leaving
    latest: int

    @staticmethod
    def of(view: View, tools: Tools, graph: Graph) -> _Bench:
        level = episodes.leaving(view.ledger, tools)
        return _Bench(view, graph, view.ledger.by_id(), level, latest_step(view.ledger))

    def leaving(self, episode: Episode) -> list[Row]:
        """The blocks of an episode that may leave now."""
        return [row for block in episode.left if (row := self.rows[block]).step < self.latest]

    def cost(self, row: Row) -> int:
        """The tokens in the place of a block that is in the prompt, or blocked from it."""
        return cost_in_prompt(self.view, row)

    @property
    def _number(self) -> int:
        """The largest that a group of the plan may have."""
        return self.view.next_group + 3 * len(self.graph.episodes)

    def answer(self, result: Row) -> int:
        """The tokens in the place of an absent result that has no stub of its own: none without its call."""
        call = self.rows.get(result.parent)
        gathered = msgspec.structs.replace(result, group=f"G{self._number}")
        return self.view.price.text(stubs.absent(gathered)) if call and call.present else 0

    def stub(self, rows: list[Row], index: str, *, level: int) -> int:
        """The tokens of the stub of a group of these blocks, whichever number it gets in this plan."""
        group = Group(id=f"G{self._number}", members=(), level=level, label=display.one_line(index, stubs.INDEX))
        tokens = sum(map(self.view.price.body, rows))
        return self.view.price.text(header(group, rows, tokens, way_back=self.view.handles))


class _Move(NamedTuple):
    """An action, and the tokens that it saves."""

    action: Action
    saves: int


class _Removal(NamedTuple):
    """All of an episode leaves. `alone` unless with it leaves what was too small before: then it goes by no levels."""

    episode: Episode
    moves: tuple[_Move, ...]
    alone: bool


def _removals(bench: _Bench, queue: Iterable[Episode]) -> Iterator[_Removal]:
    """The removals of the episodes, in order. What would save nothing waits for the next that does."""
    small: list[Row] = []
    titles: list[str] = []
    for episode in queue:
        leaving = bench.leaving(episode)
        blocked = [row for block in episode.blocks if (row := bench.rows[block]).state == "blocked" and not row.group]
        rows = [*small, *leaving, *(row for row in blocked if row.step < bench.latest)]
        move = _archive(bench, rows, "; with ".join([f"{episode.title}: {_deeds(bench, episode)}", *titles]))
        if leaving and move.saves > 0:
            yield _Removal(episode, (*_together(bench, episode), move), alone=not small)
            small, titles = [], []
        elif leaving:
            small += leaving
            titles.append(episode.title)


def _chosen(bench: _Bench, removals: Iterable[_Removal], counted: int, target: int) -> Iterator[_Move]:
    """The moves that bring the prompt from what it costs now, as `counted`, to the target, or as near as can be.

    All of one episode after the other; of the one with which the target is reached, as many levels as are needed.
    """

    def enough(moves: Iterable[_Move]) -> bool:
        return bench.view.calibrated(counted - sum(move.saves for move in moves)) <= target

    for removal in removals:
        last = enough(removal.moves)
        levels = list(_levels(bench, removal.episode)) if last and removal.alone else []
        finer = next((levels[:count] for count in range(1, len(levels) + 1) if enough(levels[:count])), None)
        yield from finer or removal.moves
        if last:
            return
        counted -= sum(move.saves for move in removal.moves)


def _deeds(bench: _Bench, episode: Episode) -> str:
    """The index text of an evicted episode: what the model learned in it, or what was done in it."""
    if episode.description:
        return episode.description
    calls = [row for block in episode.blocks if (row := bench.rows[block]).kind == "tool_use" and not is_mark(row)]
    calls.sort(key=lambda row: -bench.level(row, episode.type))  # what changed something first
    labels = list(dict.fromkeys(display.one_line(short_label(row.label, _LABEL), _LABEL) for row in calls))
    more = f" and {len(labels) - _TOLD} more" if len(labels) > _TOLD else ""
    return "; ".join(labels[:_TOLD]) + more if labels else "no calls"


def _archive(bench: _Bench, rows: list[Row], index: str) -> _Move:
    """The rows as one group with that index text."""
    action = Action(verb="archive", targets=tuple(row.id for row in rows), index=index)
    return _Move(action, sum(map(bench.cost, rows)) - bench.stub(rows, index, level=1))


def _together(bench: _Bench, episode: Episode) -> Iterator[_Move]:
    """Archives, as one group, the blocks that left the episode earlier by themselves; previews go."""
    units = _left_by_themselves(bench, episode)
    absent = {unit: bench.view.ledger.groups.get(unit) or bench.rows[unit] for unit in units}
    if len(units) > 1 or any("\n" in one.stub for one in absent.values()):
        index = f"outputs of {episode.title}"
        cost = sum(bench.view.price.text(one.stub) for one in absent.values())
        # Behind the one stub, a call that stays still waits for an answer in the place of each other stub.
        cost -= sum(bench.answer(unit_rows[0]) for unit_rows in list(units.values())[1:])
        saves = cost - bench.stub([row for unit_rows in units.values() for row in unit_rows], index, level=2)
        if saves > 0:
            yield _Move(Action(verb="archive", targets=tuple(units), index=index), saves)


def _levels(bench: _Bench, episode: Episode) -> Iterator[_Move]:
    """The levels of the paper before the last, as far as there is something at each that saves."""
    rows = bench.leaving(episode)
    for level in (REASONING, BULK, INTERMEDIATE):
        of_level = [row for row in rows if bench.level(row, episode.type) == level]
        if level == REASONING and of_level:
            prune = Action(verb="prune", targets=tuple(row.id for row in of_level))
            yield _Move(prune, sum(map(bench.cost, of_level)))
        elif of_level and (move := _archive(bench, of_level, f"{LEVELS[level]} outputs of {episode.title}")).saves > 0:
            yield move


def _left_by_themselves(bench: _Bench, episode: Episode) -> dict[str, list[Row]]:
    """The blocks of an episode that are archived by themselves, and the groups of its blocks alone, as far as they are
    of level 1, each with its blocks."""
    groups = bench.view.ledger.groups
    units: dict[str, list[Row]] = {}
    for block in episode.blocks:
        row = bench.rows[block]
        name = outermost(groups, row.group) if row.group and not row.present else ""
        if not name and row.state == "archived" and row.stub:
            units[block] = [row]
        elif name and groups[name].level == 1 and groups[name].stub and not stubs.is_summary(groups[name].stub):
            units.setdefault(name, []).append(row)
    inside = set(episode.blocks)
    return {
        name: unit_rows
        for name, unit_rows in units.items()
        if name not in groups or inside.issuperset(blocks_of(groups, name))
    }


def _leaving(bench: _Bench, actions: tuple[Action, ...]) -> str:
    """Which episodes the actions take away, in words."""
    leaving = {target for action in actions for target in action.targets}
    titles = [
        episode.title + (" in part" if any(row.id not in leaving for row in bench.leaving(episode)) else "")
        for episode in bench.graph.episodes
        if not leaving.isdisjoint(episode.left)
    ]
    if not titles:
        return "nothing more can leave"
    more = f" and {len(titles) - _TOLD} more" if len(titles) > _TOLD else ""
    return f"{', '.join(titles[:_TOLD])}{more} {'leaves' if len(titles) == 1 else 'leave'}"


def _staying(bench: _Bench, actions: tuple[Action, ...]) -> str:
    """The tokens that stay in the prompt, by the reason why they stay."""
    leaving = {target for action in actions for target in action.targets}
    episodes_of, places = bench.graph.episodes, bench.graph.places
    leavable = {block for episode in bench.graph.episodes for block in episode.left}
    tokens = {"in instructions and tools": bench.view.overhead}
    for row in chain.from_iterable(bench.view.ledger.by_segment(_present)):
        if row.id in leaving or is_cut(row, bench.view.ledger.meta):
            continue
        home = episodes_of[places[row.id]] if row.id in places else None
        why = _why(row, home, row.step >= bench.latest, row.id in leavable)
        tokens[why] = tokens.get(why, 0) + bench.cost(row)
    amounts = [f"{amount:,} {why}" for why, amount in tokens.items() if amount]
    return f"remaining: {', '.join(amounts)}" if amounts else "remaining: stubs only"


def _why(row: Row, episode: Episode | None, latest: bool, may_leave: bool) -> str:
    if is_human(row.role, row.origin):
        return "in human text"
    if episode is None:
        return "in the prologue"
    if episode.state == "active":
        return "in active episodes"
    if latest:
        return "in the latest step"
    return "in episodes that acts depend on or that save nothing" if may_leave else "pinned or protected"
