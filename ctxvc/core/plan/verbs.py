"""One plan, tried on a draft: which of its targets each verb may change, and how it changes them.

`core.ledger.block` and `Rehearser._refusal` decide who may do what in which state (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ctxvc.core.ledger import block as actions
from ctxvc.core.ledger.block import Verb, group_number
from ctxvc.core.ledger.ledger import Group, Ledger, Row, digest
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.admission import previewed
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.plan.neighbours import halves, joined
from ctxvc.core.plan.plan import Action, Plan, Problem, RefusalReason
from ctxvc.core.prompt import cut
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.view.view import View


@dataclass(slots=True)
class Rehearser:
    """Tries the actions of a plan in order. `total` is the cost of the messages so far, in tokens."""

    view: View
    plan: Plan
    draft: LedgerDraft
    protect: frozenset[str]
    total: int
    problems: list[Problem] = field(default_factory=list)
    _open: frozenset[str] = field(init=False)
    _bound: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._open = _open(self.draft)
        self._bound = _bound(self.view.ledger)

    def act(self, action: Action) -> Action:
        """Applies the action where it is allowed; returns it with only the targets that changed."""
        targets = list(self._resolved(action))
        match action.verb:
            case "archive":
                applied = self._gather(action, self._lowest(action, self._leavable(action, targets)))
            case "summarise" if not action.index.strip():
                applied = self._none(action, targets, "a summary is needed")
            case "summarise":
                applied = self._gather(action, [unit for unit, _ in self._leavable(action, targets)])
            case "mask":
                applied = [target for target in targets if self._mask(action, target)]
            case "prune":
                applied = self._prune(action, targets)
            case "delete" if not action.index.strip():
                applied = self._none(action, targets, "a reason is needed")
            case "delete":
                applied = [target for target in targets if self._delete(action, target)]
            case "restore":
                applied = self._restore(action, targets)
            case "pin" | "unpin":
                applied = [target for target in targets if self._mark(action, target)]
        return msgspec.structs.replace(action, targets=tuple(applied))

    # --- which targets

    def _resolved(self, action: Action) -> Iterator[str]:
        """The targets that exist and have the checksums that the planner expected, without repeats."""
        for target in dict.fromkeys(action.targets):
            if target in self.draft.rows:
                checksum = self.draft.rows[target].sha256
            elif target in self.draft.groups and (inside := self.draft.inside(target)):
                checksum = digest(inside)
            elif _is_group(target) and group_number(target) < self.view.next_group:
                self._drop(action, target, "gone", "that group no longer exists")
                continue
            else:
                self._drop(action, target, "unknown", "it is not here")
                continue
            if checksum.startswith(action.checksums.get(target, "").lower()):
                yield target
            else:
                self._drop(action, target, "stale", f"its checksum is {checksum[:6]}")

    def _leavable(self, action: Action, targets: list[str]) -> list[tuple[str, int]]:
        """The targets that may leave, or leave again, with their levels, without those inside other targets."""
        units: list[tuple[str, int]] = []
        for target in targets:
            group = self.draft.groups.get(target)
            row = self.draft.rows.get(target)
            around = group.group if group else row.group if row and not row.present else ""
            if around in self.draft.groups:
                if not set(self.draft.enclosing(around)) & set(targets):
                    self._drop(action, target, "gone", f"it is already in {around}")
            elif group and not any(one.state in ("archived", "blocked") for one in self.draft.inside(target)):
                self._drop(action, target, "stale", "none of its blocks is archived any more")
            elif group:
                units.append((target, group.level))
            elif row and self._allowed(action, row):
                units.append((target, LedgerDraft.level(row)))
        return units

    def _is_news(self, action: Action, unit: str) -> bool:
        """Whether the index text adds anything to the stub."""
        stubbed: Row | Group = self.draft.groups[unit] if unit in self.draft.groups else self.draft.rows[unit]
        index = action.index if action.verb == "summarise" else stubs.escaped(action.index, stubs.INDEX)
        return bool(action.index.strip()) and index not in stubbed.stub

    def _lowest(self, action: Action, units: list[tuple[str, int]]) -> list[str]:
        """The units of the lowest level among them; the others are dropped."""
        lowest = min((level for _, level in units), default=0)
        rows = [self.draft.rows[unit] for unit, level in units if level == lowest and unit in self.draft.rows]
        folded = set(halves(self.draft, rows))
        for unit, level in units:
            if level > lowest and unit not in folded:
                self._drop(
                    action, unit, "level", f"its level is {level}, but others listed with it have level {lowest}"
                )
        return [unit for unit, level in units if level == lowest]

    def _allowed(self, action: Action, row: Row) -> bool:
        refusal = self._refusal(action.verb, row)
        if refusal:
            self._drop(action, row.id, *refusal)
        return not refusal

    def _refusal(self, verb: Verb, row: Row) -> tuple[RefusalReason, str] | None:
        """Why the plan's actor may not remove this block, or part of it, from the prompt; None if it may."""
        person = self.plan.actor == "user"
        if row.id in self._open:
            return "open", "its step is incomplete: a call has no result yet"
        if row.id in self._bound:
            return "open", "the newest calls depend on this thinking; it can leave after the next reply"
        if row.state == "pinned":
            return "pinned", "it is pinned; unpin it first"
        if actions.after(row.state, verb) is None:
            return "gone", f"it is already {row.state}"
        if is_human(row.role, row.origin) and not (person and self.plan.allow_user):
            return "human", "a human wrote it; a person must remove it explicitly"
        if row.id in self.protect and not person:
            return "protected", "the latest step, the request and instruction files must stay"
        return None

    # --- what the verbs do

    def _gather(self, action: Action, units: list[str]) -> list[str]:
        """Puts blocks and groups under one stub: a single block under its own, anything else as a new group."""
        if not units:
            return []
        draft, (only, *others) = self.draft, units
        alone = draft.rows.get(only)
        again = not others and (alone is None or LedgerDraft.level(alone) > 0)
        if again and not self._is_news(action, only):
            self._drop(action, only, "gone", "it is already archived")
            return []
        together = self._together(action, units)
        blocks = [row.id for unit in together for row in self._rows(unit)]

        def leave() -> None:
            if len(together) > 1 or again or alone is None or action.verb == "summarise":
                summary = action.index if action.verb == "summarise" else ""
                draft.gather(together, label="" if summary else action.index, actor=self.plan.actor, summary=summary)
            else:
                stub = draft.stub(alone, action.index)
                if action.preview:
                    stub = previewed(stub, self.view.words(alone), self.view, self.view.price.body(alone))
                draft.put(
                    msgspec.structs.replace(alone, state="archived", level=1, stub=stub, removed_by=self.plan.actor)
                )

        return units if self._saves(action, units, blocks, leave) else []

    def _together(self, action: Action, units: list[str]) -> list[str]:
        """The units, together with absent ones whose stubs would otherwise stand beside them.

        A policy's targets absorb what is near. An agent's or planner's index text describes its targets and nothing
        else.
        """
        alone = self.draft.rows.get(units[0]) if len(units) == 1 else None
        if action.preview or (alone and any(self.draft.rows[half].present for half in self.draft.pair(alone.id)[1:])):
            return units
        near = not action.index.strip() and self.plan.actor.startswith(("policy:", "guard"))
        return joined(self.draft, units, near=near)

    def _mask(self, action: Action, target: str) -> bool:
        row = self._block(action, target)
        if row is None or not self._allowed(action, row):
            return False
        masked = msgspec.structs.replace(row, state="masked", removed_by=self.plan.actor)
        return self._saves(action, [target], [target], lambda: self.draft.put(masked))

    def _prune(self, action: Action, targets: list[str]) -> list[str]:
        """Judges together the targets inside one group, and a call with its result."""
        together: dict[str, list[str]] = {}
        for target in targets:
            first = next(iter(self._rows(target)))
            key = self.draft.around(first) or self.draft.calls.get(first.id, first.id)
            together.setdefault(key, []).append(target)
        pruned: set[str] = set()
        for targets_together in together.values():
            prunable = {
                target: [row for row in self._rows(target) if self._allowed(action, row)] for target in targets_together
            }
            rows = [row for target in targets_together for row in prunable[target]]
            remaining = [target for target in targets_together if prunable[target]]
            if rows and self._saves(action, remaining, [row.id for row in rows], lambda rows=rows: self._remove(rows)):  # type: ignore[misc]
                pruned.update(remaining)
        return [target for target in targets if target in pruned]

    def _remove(self, rows: Iterable[Row]) -> None:
        """Removes the blocks without a stub, and with each call also its result's stub."""
        rows = list(rows)
        leaving = {row.id for row in rows}
        calls = [row for row in rows if row.kind == "tool_use"]
        rows += [self.draft.rows[half] for half in halves(self.draft, calls) if half not in leaving]
        self.draft.take_out(row.id for row in rows)
        for row in rows:
            pruned_row = msgspec.structs.replace(row, state="pruned", group="", level=0, stub="")
            self.draft.put(msgspec.structs.replace(pruned_row, removed_by=self.plan.actor))

    def _delete(self, action: Action, target: str) -> bool:
        """Deletes the target's blocks; a tombstone takes their place if it is cheaper than what it replaces."""
        rows = [row for row in self._rows(target) if self._allowed(action, row)]
        if not rows:
            return False
        blocks = [row.id for row in rows]
        reach = self.draft.reach(blocks)
        before = self.draft.cost(reach)
        cost_before = self.draft.cost_in_place(target)
        tombstone = stubs.tombstone(rows[0], action.index, way_back=self.view.handles)
        self.draft.take_out(blocks)
        for row in rows:
            stub = tombstone if row is rows[0] and self.view.price.text(tombstone) < cost_before else ""
            deleted = msgspec.structs.replace(row, state="deleted", group="", level=0, stub=stub)
            self.draft.put(msgspec.structs.replace(deleted, removed_by=self.plan.actor))
        self.total += self.draft.cost(reach) - before
        return True

    def _restore(self, action: Action, targets: list[str]) -> list[str]:
        """Restores all targets if they fit together, else one after another while there is room."""
        blocks = {target: self._to_restore(action, target) for target in targets}
        restorable = [target for target in targets if blocks[target]]
        if restorable and self._fits([block for target in restorable for block in blocks[target]]) is None:
            return restorable
        restored: list[str] = []
        for target in restorable:
            needed = self._fits([block for block in blocks[target] if self.draft.rows[block].state != "visible"])
            if needed is None:
                restored.append(target)
            else:
                budget = self.view.budget.effective
                self._drop(action, target, "no room", f"the prompt would need {needed:,} of {budget:,} tokens")
        return restored

    def _to_restore(self, action: Action, target: str) -> list[str]:
        """The blocks that come back with a target; for a block, also the other half of its pair.

        The guard restores a target alone: a result that nobody has seen yet, whose call was too large beside it.
        """
        if target in self.draft.groups:
            return [row.id for row in self.draft.inside(target) if self._may_restore(action, row)]
        if not self._may_restore(action, self.draft.rows[target]):
            return []
        pair = self.draft.pair(target) if self.plan.actor != "guard" else []
        halves = [self.draft.rows[block] for block in pair[1:]]
        return [target, *(row.id for row in halves if not row.present and self._restorable(row))]

    def _may_restore(self, action: Action, row: Row) -> bool:
        if not self._restorable(row):
            only = "; only a person can restore it" if row.state in ("pruned", "deleted") else ""
            self._drop(action, row.id, "not allowed", f"it is {row.state}{only}")
            return False
        return True

    def _restorable(self, row: Row) -> bool:
        who = {"deleted": ("user",), "pruned": ("user", "agent")}.get(row.state)
        return actions.after(row.state, "restore") is not None and (who is None or self.plan.actor in who)

    def _fits(self, blocks: list[str]) -> int | None:
        """Restores the blocks and returns None, or, if the budget does not allow it, returns the tokens needed."""
        blocks = list(dict.fromkeys(blocks))
        reach, mark = self.draft.reach(blocks), self.draft.mark()
        before = self.draft.cost(reach)
        self.draft.take_out(blocks)
        for block in blocks:
            row = self.draft.rows[block]
            self.draft.put(msgspec.structs.replace(row, state="visible", level=0, stub="", removed_by=""))
        more = self.draft.cost(reach) - before
        whole = self.view.calibrated(self.view.overhead + self.total + more)
        if more > 0 and whole > self.view.budget.effective:
            self.draft.back(mark)
            return whole
        self.total += more
        return None

    def _mark(self, action: Action, target: str) -> bool:
        row = self._block(action, target)
        state = actions.after(row.state, action.verb) if row else None
        if row is None or state is None:
            if row:
                now = "not pinned" if action.verb == "unpin" else row.state
                self._drop(action, target, "not allowed", f"it is {now}")
            return False
        self.draft.put(msgspec.structs.replace(row, state=state))
        return True

    # --- help

    def _saves(self, action: Action, units: list[str], blocks: list[str], change: Callable[[], None]) -> bool:
        """Keeps the change if it saves tokens; otherwise undoes it and records a problem for each unit."""
        reach, mark, number = self.draft.reach(blocks), self.draft.mark(), self.draft.next_group
        before = self.draft.cost(reach)
        change()
        after = self.draft.cost(reach)
        if after < before:
            self.total += after - before
            return True
        self.draft.back(mark)
        self.draft.next_group = number
        for unit in units:
            self._drop(action, unit, "no saving", f"{after:,} tokens would replace {before:,}")
        return False

    def _rows(self, target: str) -> list[Row]:
        """The blocks of a target."""
        return [self.draft.rows[target]] if target in self.draft.rows else self.draft.inside(target)

    def _block(self, action: Action, target: str) -> Row | None:
        if target in self.draft.groups:
            self._drop(action, target, "not allowed", "it is a group; name its blocks")
        return self.draft.rows.get(target)

    def _none(self, action: Action, targets: list[str], reason: str) -> list[str]:
        for target in targets:
            self._drop(action, target, "not allowed", reason)
        return []

    def _drop(self, action: Action, target: str, why: RefusalReason, reason: str) -> None:
        name = stubs.escaped(target, 40)
        self.problems.append(Problem(target=name, why=why, text=f"cannot {action.verb} {name}: {reason}"))


def _open(draft: LedgerDraft) -> frozenset[str]:
    """The blocks of the newest step if one of its calls has no result yet, else none."""
    newest = max(draft.ledger.by_segment(_newest_step), default=0)
    step = draft.ledger.of_step(newest)
    waiting = any(row.kind == "tool_use" and row.id not in draft.results for row in step)
    return frozenset(row.id for row in step) if waiting else frozenset()


def _newest_step(rows: tuple[Row, ...]) -> int:
    return max((row.step for row in rows), default=0)


def _bound(ledger: Ledger) -> frozenset[str]:
    """The thinking of the newest reply if it made a call: the provider requires it until the next reply.

    A human message in between does not lift this, because the results are sent along with it.
    """
    reply = cut.newest_reply(ledger)
    called = any(row.kind == "tool_use" for row in reply)
    return frozenset(row.id for row in reply if row.kind == "thinking") if called else frozenset()


def _is_group(target: str) -> bool:
    try:
        group_number(target)
    except ValueError:
        return False
    return True
