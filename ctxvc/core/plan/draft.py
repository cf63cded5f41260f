"""The ledger under rehearsal: the blocks and groups after the plan so far, and what each costs in the prompt.

Costs are those of `prompt.outline`, taken a block at a time, so that one change can be judged without a full render.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ctxvc.core.display import fitted, one_line
from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.facts import Fact, facts
from ctxvc.core.ledger.ledger import Group, Ledger, Row, blocks_of, digest, outermost
from ctxvc.core.ledger.pairs import pairs
from ctxvc.core.ledger.skills import Skill, path_in, skills
from ctxvc.core.prompt import digest as digests
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.digest import Digest, Exchange, TextOf
from ctxvc.core.prompt.outline import has_moved, in_prompt_order
from ctxvc.core.view.view import Price, View

#: Characters of a group's label when nobody supplied one.
_LABEL = 180
#: Who supplies index texts, and how many characters of them an enclosing group keeps at least.
_GIVERS = frozenset({"agent", "planner", "user"})
_INDEX_TEXTS = 600
#: Below this many tokens, over all groups, names are not worth a stub's longer line.
_FEWEST_NAMED = 20


def header(
    group: Group,
    rows: Iterable[Row],
    tokens: int | None,
    *,
    way_back: bool = True,
    content: str = "",
    mentions: Sequence[str] = (),
) -> str:
    """The stub of a group of these blocks, which have `tokens` tokens (None: not counted; the stub states bytes).

    It states `content`, or else the group's label, followed by `mentions`, such as the skills in it. A summary that the
    group already has is kept.
    """
    rows = list(rows)
    _, summarised, summary = group.stub.partition("\n")
    titled = msgspec.structs.replace(group, label="") if summarised else group
    steps = [row.step for row in rows]
    content = "" if summarised else content
    if mentions:
        content = "; ".join(filter(None, (content or titled.label, *mentions)))
    stub = stubs.group_stub(
        titled,
        steps=(min(steps, default=0), max(steps, default=0)),
        blocks=len(rows),
        tokens=tokens,
        size=sum(row.bytes for row in rows),
        digest=digest(rows),
        way_back=way_back,
        content=content,
    )
    return f"{stub}\n{summary}" if summarised else stub


def contents(rows: list[Row]) -> str:
    """What a group's stub says of blocks that cannot be read: the first and last label, and the count of each kind."""
    labels = list(dict.fromkeys(label for row in (rows[0], rows[-1]) if (label := fitted(row.label, 60))))
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    return "; ".join([*([" / ".join(labels)] if labels else []), ", ".join(f"{n} {kind}" for kind, n in kinds.items())])


class Reach(NamedTuple):
    """The blocks and outermost groups whose cost is compared before and after a change."""

    blocks: list[str]
    groups: list[str]


def _skills(ledger: Ledger) -> dict[str, Skill]:
    return {skill.row.id: skill for skill in skills(ledger)}


def _host_summaries(ledger: Ledger) -> frozenset[str]:
    """The summaries that a host put in place of what it removed."""
    return frozenset(block for group in ledger.groups.values() if group.removed_by == "host" for block in group.summary)


def _places(ledger: Ledger) -> dict[str, int]:
    """A block → its position in the prompt; empty where the prompt is in order of block numbers."""
    if not has_moved(ledger):
        return {}
    return {row.id: place for place, row in enumerate(in_prompt_order(ledger, list(ledger.rows())))}


def _answers(ledger: Ledger) -> frozenset[str]:
    """The texts that conclude a request: the last text of each step that made no call."""
    newest: dict[int, str] = {}
    calling: set[int] = set()
    for texts, calls in ledger.by_segment(_texts_and_calls):
        newest |= texts
        calling |= calls
    return frozenset(newest[step] for step in newest.keys() - calling)


def _texts_and_calls(rows: tuple[Row, ...]) -> tuple[dict[int, str], frozenset[int]]:
    """A step → its last text; and the steps that made a call."""
    calling = frozenset(row.step for row in rows if row.kind == "tool_use")
    return {row.step: row.id for row in rows if row.kind == "assistant"}, calling


def _room(size: int, before: int, budget: int) -> int:
    """Characters for a group's content, names aside: its blocks have `size` tokens and cost `before` in the prompt."""
    tokens = min(30 + size // 60, 200)
    if before:
        tokens = min(tokens, max(10, before // 6))
    if budget:
        tokens = min(tokens, max(16, budget // 100))
    return tokens * 7 // 2


@dataclass(slots=True)
class LedgerDraft:
    """The working copy: `rows` and `groups` as changed so far by `put` and `put_group`.

    `results` maps a call's block to its result, `calls` is the reverse; neither depends on states. `groups` has no
    entry for a removed group. Without `handles`, stubs do not name the way back.
    """

    ledger: Ledger
    price: Price
    next_group: int
    handles: bool = True
    rows: dict[str, Row] = field(init=False)
    groups: dict[str, Group] = field(init=False)
    #: Reads a block's text for the content of groups; None if blocks cannot be read.
    text_of: TextOf | None = None
    #: Tokens of the budget; 0 if a stub's cost is unbounded.
    budget: int = 0
    results: Mapping[str, str] = field(init=False)
    calls: Mapping[str, str] = field(init=False)
    _undo: list[tuple[str, Row | Group | None]] = field(default_factory=list)
    _rooms: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View) -> LedgerDraft:
        """The draft of a view's ledger with the view's prices; it reads blocks if the view can."""
        text_of = view.words if view.readable else None
        return cls(view.ledger, view.price, view.next_group, view.handles, text_of, view.budget.soft_limit)

    def __post_init__(self) -> None:
        self.rows = dict(self.ledger.by_id())
        self.groups = dict(self.ledger.groups)
        self.results, self.calls = pairs(self.ledger)

    # --- changes

    def put(self, row: Row) -> None:
        self._undo.append((row.id, self.rows[row.id]))
        self.rows[row.id] = row

    def put_group(self, group: Group) -> None:
        """Adds or replaces the group; one without members is removed."""
        self._undo.append((group.id, self.groups.get(group.id)))
        if group.members:
            self.groups[group.id] = group
        else:
            self.groups.pop(group.id, None)

    def mark(self) -> int:
        """A point to which `back` returns."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        while len(self._undo) > mark:
            name, was = self._undo.pop()
            if isinstance(was, Row):
                self.rows[name] = was
            elif was is not None:
                self.groups[name] = was
            else:
                del self.groups[name]

    def changed(self) -> tuple[tuple[Row, ...], tuple[Group, ...]]:
        """The rows and groups that differ from the ledger, ordered by number; a removed group has no members."""
        first: dict[str, Row | Group | None] = {}
        for name, was in self._undo:
            first.setdefault(name, was)
        rows: list[Row] = []
        groups: list[Group] = []
        for name, was in first.items():
            now = self.rows.get(name) or self.groups.get(name)
            if isinstance(was, Group) and now is None:
                groups.append(msgspec.structs.replace(was, members=()))
            elif isinstance(now, Row) and now != was:
                rows.append(now)
            elif isinstance(now, Group) and now != was:
                groups.append(now)
        rows.sort(key=lambda row: row.number)
        groups.sort(key=lambda group: group_number(group.id))
        return tuple(rows), tuple(groups)

    def after(self) -> Ledger:
        """The ledger with the changes applied."""
        rows, groups = self.changed()
        return self.ledger.with_rows(rows).with_groups(groups)

    # --- stubs and groups

    def stub(self, row: Row, index: str = "") -> str:
        """The stub of a block that leaves on its own."""
        call = self.rows.get(self.calls.get(row.id, ""))
        return stubs.stub(
            row,
            tokens=self.price.body(row),
            index=index or self.mention(row),
            called=call is not None and call.present,
            call=stubs.arguments(call),
            truncated=stubs.is_truncated(row),
            way_back=self.handles,
        )

    def around(self, row: Row) -> str:
        """The outermost group around an absent block; empty if there is none."""
        return "" if row.present or not row.group else outermost(self.groups, row.group)

    def inside(self, name: str) -> list[Row]:
        """The blocks of a group."""
        return [self.rows[block] for block in blocks_of(self.groups, name) if block in self.rows]

    def header(self, group: Group, rows: Iterable[Row], content: str = "") -> str:
        """The stub of a group of these blocks; it states `content`, or else the group's label."""
        rows = list(rows)
        mentions = list(dict.fromkeys(filter(None, map(self.mention, rows))))
        return header(group, rows, self.tokens(rows), way_back=self.handles, content=content, mentions=mentions)

    def mention(self, row: Row) -> str:
        """What a stub says of a skill or a host's summary; empty for any other block.

        `skill pdf, skills/pdf/SKILL.md`, or the beginning of the summary that a host put in place of what it removed.
        """
        if row.id in self.ledger.derived(_host_summaries) and self.text_of:
            return f"the host's summary: “{digests.first_statement(self.text_of(row))}”"
        skill = self.ledger.derived(_skills).get(row.id)
        if skill is None:
            return ""
        call = self.rows.get(self.calls.get(row.id, ""))
        path = path_in(self.text_of(call)) if call and self.text_of else ""
        return (msgspec.structs.replace(skill, path=path) if path else skill).label

    def gather(self, units: Iterable[str], *, label: str, actor: str, summary: str = "") -> Group:
        """A new group of these blocks and groups; blocks that are in the prompt leave it.

        Without a label or summary, its stub says what was done in them (`core.prompt.digest`).
        """
        units = list(units)
        before = self.cost(self.reach(row.id for unit in units for row in self.blocks(unit)))
        mixed = [(self.inside(unit)[0] if unit[0] == "G" else self.rows[unit], unit) for unit in units]
        members = [unit for _, unit in sorted(mixed, key=lambda pair: pair[0].number)]
        level = 0
        name = f"G{self.next_group}"
        self.next_group += 1
        for member in members:
            if member[0] == "G":
                level = max(level, self.groups[member].level)
                self.put_group(msgspec.structs.replace(self.groups[member], group=name))
                continue
            row = self.rows[member]
            level = max(level, self.level(row))
            by = row.removed_by if row.state == "archived" else actor
            self.put(msgspec.structs.replace(row, state="archived", level=1, group=name, removed_by=by))
        group = Group(id=name, members=tuple(members), level=level + 1, removed_by=actor)
        self.put_group(group)
        inside = self.inside(name)
        group = msgspec.structs.replace(group, label=one_line(label or summary, stubs.INDEX) or self.label(inside))
        if summary:
            group = msgspec.structs.replace(group, stub=stubs.summary(summary))
        content = ""
        if not (label or summary):
            self._rooms[name] = _room(self.tokens(inside), before, self.budget)
            content = "; ".join([self._content(inside, self._rooms[name]), *self._index_texts(members)])
        group = msgspec.structs.replace(group, stub=self.header(group, inside, content))
        self.put_group(group)
        return group

    def _index_texts(self, members: Iterable[str]) -> list[str]:
        """The index texts that an agent, a planner or a person supplied, verbatim; the newest if there are too many."""
        texts: list[str] = []
        pending = list(members)
        while pending and sum(map(len, texts)) <= _INDEX_TEXTS:
            name = pending.pop()
            pending += self.groups[name].members if name in self.groups else ()
            if text := self._index_text(name):
                texts.append(f"“{text}”")
        return texts[::-1]

    def _index_text(self, unit: str) -> str:
        """The index text that somebody supplied for a block or group; empty if nobody did."""
        stubbed: Row | Group = self.groups.get(unit) or self.rows[unit]
        if stubbed.removed_by not in _GIVERS or stubs.is_summary(stubbed.stub):
            return ""
        if isinstance(stubbed, Group):
            return "" if stubbed.label == self.label(self.inside(unit)) else stubbed.label
        index = stubs.index(stubbed)
        return "" if index == stubs.index(msgspec.structs.replace(stubbed, stub=self.stub(stubbed))) else index

    def label(self, rows: Sequence[Row]) -> str:
        """The label of a group of these blocks when nobody supplied an index text: what was done in them."""
        return one_line(self._content(rows, _LABEL), stubs.INDEX)

    def _content(self, rows: Sequence[Row], room: int) -> str:
        return digests.text(self._digest(rows, self.text_of), room) if self.text_of else contents(list(rows))

    def _digest(self, rows: Sequence[Row], text_of: TextOf) -> Digest:
        """What was done in these blocks; computed once per ledger, as it does not depend on their states."""
        rows = sorted(rows, key=lambda row: row.number)
        cache = self.ledger.cache_of(digests.digest)
        if cache.get("ledger") is not self.ledger:
            cache.clear()
            cache["ledger"] = self.ledger
        blocks = tuple(row.id for row in rows)
        if blocks not in cache:
            cache[blocks] = self._new_digest(rows, text_of)
        digest_of_blocks: Digest = cache[blocks]
        return digest_of_blocks

    def _new_digest(self, rows: Sequence[Row], text_of: TextOf) -> Digest:
        inside = {row.id for row in rows}
        exchanges = [
            Exchange(self.rows[call], self.rows.get(self.results.get(call, "")))
            for row in rows
            if (call := row.id if row.kind == "tool_use" else self.calls.get(row.id, ""))
            and (row.kind == "tool_use" or call not in inside)
        ]
        cache = self.ledger.cache_of(facts)

        def facts_of(call: Row) -> tuple[Fact, ...]:
            key = call.sha256, call.tool, call.ext
            if key not in cache:
                cache[key] = facts(call.tool, text_of(call), call.ext)
            result: tuple[Fact, ...] = cache[key]
            return result

        return digests.digest(rows, exchanges, self.ledger.derived(_answers), text_of, facts_of)

    def add_names(self, earlier: LedgerDraft, limit: int, visible: Callable[[], Collection[str]]) -> bool:
        """Adds the names of what is inside to the stubs of the draft's new groups; returns whether any was added.

        The additions cost at most `limit` tokens in total. The names are those of `digest.with_names`; a group that
        would save too little of what its blocks cost in `earlier` gets none. `visible` returns the names that are in
        the prompt.
        """
        new = {name: self.inside(name) for name in self._rooms if name in self.groups and not self.groups[name].group}
        sizes = {name: self.tokens(rows) for name, rows in new.items()}
        if self.text_of is None or limit < _FEWEST_NAMED or not new:
            return False
        seen, before, cache = set(visible()), limit, self.ledger.cache_of(digests.with_names)
        for name, rows in sorted(new.items(), key=lambda item: sizes[item[0]]):
            group, share = self.groups[name], limit * sizes[name] // max(1, sum(sizes.values()))
            reach = self.reach(row.id for row in rows)
            saved = earlier.cost(earlier.reach(row.id for row in rows)) - self.cost(reach)
            del sizes[name]
            own, room = self._digest(rows, self.text_of), min(share, saved // 4)
            digest = digests.with_names(own, self.text_of, seen, self.price.body, room, cache)
            content = "; ".join([digests.text(digest, self._rooms[name]), *self._index_texts(group.members)])
            stub = self.header(group, rows, content)
            costs = self.price.text(stub) - self.price.text(group.stub)
            if 0 < costs <= min(limit, saved // 2):
                self.put_group(msgspec.structs.replace(group, stub=stub))
                seen.update(digests.names_in(stub))
                limit -= costs
        return limit < before

    def blocks(self, unit: str) -> list[Row]:
        """The blocks of a unit: of a group, or the block itself."""
        return self.inside(unit) if unit in self.groups else [self.rows[unit]]

    def take_out(self, blocks: Iterable[str]) -> None:
        """Removes the blocks from their groups; deletes emptied groups and rewrites the stubs of the others."""
        leaving: dict[str, set[str]] = {}
        blocks = list(blocks)
        around = {name for block in blocks for name in self.enclosing(self.rows[block].group)}
        labels = {name: self.label(self.inside(name)) for name in around}
        for block in blocks:
            row = self.rows[block]
            if row.group in self.groups:
                leaving.setdefault(row.group, set()).add(block)
            self.put(msgspec.structs.replace(row, group=""))
        emptied: set[str] = set()
        while leaving:
            name = min(leaving, key=lambda group_id: (self.groups[group_id].level, group_number(group_id)))
            leavers, group = leaving.pop(name), self.groups[name]
            emptied.add(name)
            members = tuple(member for member in group.members if member not in leavers)
            is_described = bool(members and group.stub) and group.label == labels.get(name)
            group = msgspec.structs.replace(group, members=members)
            self.put_group(group)
            if members and group.stub:
                inside = self.inside(name)
                content = ""
                if is_described:
                    group = msgspec.structs.replace(group, label=self.label(inside))
                    content = self._content(inside, _room(self.tokens(inside), 0, self.budget))
                self.put_group(msgspec.structs.replace(group, stub=self.header(group, inside, content)))
            if group.group in self.groups and group.group not in emptied:
                leaving.setdefault(group.group, set()).update(() if members else (name,))

    def enclosing(self, name: str) -> Iterator[str]:
        """The group and all groups around it, innermost first."""
        seen: set[str] = set()
        while name in self.groups and name not in seen:
            seen.add(name)
            yield name
            name = self.groups[name].group

    @staticmethod
    def level(row: Row) -> int:
        """1 for a block archived on its own, else 0."""
        return 1 if row.state == "archived" else 0

    def tokens(self, rows: Iterable[Row]) -> int:
        """The total tokens of the blocks' bodies."""
        return sum(self.price.body(row) for row in rows)

    # --- costs

    def reach(self, blocks: Iterable[str]) -> Reach:
        """All whose cost a change of these blocks may affect: they, their pairs' other halves, and their groups."""
        halves = list(dict.fromkeys(half for block in blocks for half in self.pair(block)))
        groups = {name for half in halves if (name := self.around(self.rows[half]))}
        return Reach(halves, sorted(groups))

    def cost(self, reach: Reach) -> int:
        """The tokens that now stand for these blocks and groups, and for the groups that the blocks have joined."""
        groups = {name for group in reach.groups if (name := outermost(self.groups, group))}
        total = 0
        for block in reach.blocks:
            row = self.rows[block]
            if name := self.around(row):
                groups.add(name)
            else:
                total += self._alone(row)
        return total + sum(map(self._together, groups))

    def cost_in_place(self, unit: str) -> int:
        """The tokens that a block or group itself has in the prompt; 0 if it is inside a group."""
        if unit in self.groups:
            return self._together(unit) if outermost(self.groups, unit) == unit else 0
        return 0 if self.around(self.rows[unit]) else self._alone(self.rows[unit])

    def pair(self, block: str) -> list[str]:
        """The block, followed by its result or its call if it has one."""
        other = self.results.get(block) or self.calls.get(block)
        return [block, other] if other else [block]

    def _alone(self, row: Row) -> int:
        """The cost of a block outside any group."""
        if is_cut(row, self.ledger.meta):
            return 0
        if row.present:
            return self.price.mask(row) if row.state == "masked" else self.price.body(row)
        if row.stub and row.state != "pruned":
            return self.price.text(row.stub)
        return self._answer(row)

    def _together(self, name: str) -> int:
        """The cost of an outermost group: its stub, and a short answer for each result that a call waits for."""
        group = self.groups[name]
        absent = [row for row in self.inside(name) if not row.present and not is_cut(row, self.ledger.meta)]
        heads = [row for row in absent if row.state != "pruned"] if group.stub else []
        places = self.ledger.derived(_places) if len(heads) > 1 else {}
        head = min(heads, key=lambda row: places.get(row.id, row.number), default=None)
        others = sum(self._answer(row) for row in absent if row is not head)
        return others + (self.price.text(group.stub) if head else 0)

    def _answer(self, row: Row) -> int:
        """The cost of an absent block without a stub: 0 unless a call in the prompt waits for it."""
        call = self.calls.get(row.id)
        return self.price.text(stubs.absent(row)) if call and self.rows[call].present else 0
