"""Cuts of a conversation: where blocks have to leave under a budget, and what each policy's plan would remove there.

Source: Self-GC, arXiv:2607.00692: all methods plan at the same cuts, on the linear prompt. In a question to a model,
recorded content is one JSON object a line, which can neither break its line nor pass for one of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import committed
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.outline import Slot, outline
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies.baselines import Keep
from ctxvc.replay.conversation import Conversation, Prompt
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.measures.cut_points import SAVING, cut_point
from ctxvc.replay.measures.retention import Lookup
from ctxvc.replay.measures.uses import uses
from ctxvc.tokens.meter import Meter

#: A text of more characters than this is shown without its middle.
LONGEST = 16_000

# Characters that JSON does not escape and a reader does not see: controls, marks of direction, tags, lone surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)


def line(**fields: object) -> str:
    """As `whole_line`, but a long `text` loses its middle; `omitted` counts its characters."""
    present = dict(fields)
    text = present.get("text")
    if isinstance(text, str) and len(text) > LONGEST:
        half = LONGEST // 2
        present |= {"text": text[:half], "omitted": len(text) - 2 * half, "end": text[-half:]}
    return whole_line(**present)


def whole_line(**fields: object) -> str:
    """One line of JSON data; empty fields are left out."""
    present = {name: value for name, value in fields.items() if value not in ("", None)}
    written = json.dumps(present, ensure_ascii=False, separators=(",", ":"))
    return _UNSEEN.sub(lambda match: json.dumps(match.group())[1:-1], written)


def section(title: str, lines: Iterable[str]) -> str:
    """A heading with its lines; `none` stands for no lines."""
    return "\n".join([f"## {title}", *(list(lines) or ["none"])])


#: The number of calls that are a cut's future: the fewest, and the most that are shown.
LEAST_FUTURE, FUTURE = 5, 10
#: A cut whose prompt exceeds the budget by more than this factor is left out: a single message took it there.
_FAR_OVER = 1.25
_UNBOUNDED = 1 << 40


class Threshold(NamedTuple):
    """The tokens of a linear prompt beyond which blocks have to leave under a budget.

    A prompt of more than `limit` tokens is left out: a single message took it there.
    """

    tokens: float
    budget: int
    limit: float


@dataclass(frozen=True)
class Cut:
    """A call whose linear prompt has passed a threshold. Only valid until the next cut is taken from the iterator."""

    conversation: Conversation
    threshold: Threshold
    call: int
    view: View
    prompts: Prompts
    before: Prompt
    lookup: Lookup

    @property
    def budget(self) -> int:
        return self.threshold.budget

    def planned(self, policy: Policy) -> Rehearsal | None:
        """The policy's plan here under the budget; None if it would do nothing."""
        view = replace(self.view, budget=Budget(window=self.budget), handles=True)
        return rehearse(view, policy.propose(view)) or None

    def after(self, rehearsal: Rehearsal) -> Prompt:
        """The prompt of this call once the plan is carried out."""
        view = replace(self.view, budget=Budget(window=self.budget), handles=True, ledger=committed(rehearsal))
        return self.prompts.prompt(self.call, view)

    def text(self, slot: Slot) -> str:
        """The text of a piece of the prompt; empty for images."""
        number = self.prompts.numbers.get(slot.row.id)
        if slot.show == "text":
            return slot.text
        if slot.show == "body" and number is not None:
            return self.conversation.blocks[number].text
        return self.prompts.text(slot)


class Sample(msgspec.Struct, frozen=True):
    """A policy's plan at a cut, as lines of data.

    `retained` is the prompt after the plan, `removed` the blocks that are gone from it or shown differently, `future`
    the recorded calls from there on. `blocks` are the ids in `removed`. `prune` is the share of the tokens that the
    plan frees; `dependencies` counts the exact strings that the future uses, `misses` those of them that are out of
    sight.
    """

    conversation: str
    file: str
    sha256: str
    policy: str
    budget: int
    call: int
    prune: float
    dependencies: int
    misses: int
    retained: tuple[str, ...]
    plan: tuple[str, ...]
    removed: tuple[str, ...]
    future: tuple[str, ...]
    blocks: frozenset[str]


def cuts(conversation: Conversation, budgets: Iterable[int]) -> Iterator[Cut]:
    """The cuts at the budgets' guards, as `cuts_at`."""
    guards = (Threshold(Budget(window=budget).guard, budget, budget * _FAR_OVER) for budget in set(budgets))
    return cuts_at(conversation, guards)


def cuts_at(conversation: Conversation, thresholds: Iterable[Threshold], meter: Meter | None = None) -> Iterator[Cut]:
    """The first call beyond each threshold, lowest first; none if the prompt stays below it or little comes after."""
    ahead = sorted(thresholds)
    lookup: Lookup | None = None
    replayed = new_session(conversation, Bare(inner=Keep()), _UNBOUNDED, meter=meter)
    prompts = Prompts(replayed)
    for number, driven in enumerate(drive(conversation, replayed, prompts)):
        if not ahead or number + LEAST_FUTURE > len(conversation.calls):
            break
        while ahead and driven.prompt and driven.prompt.tokens > ahead[0].tokens:
            threshold = ahead.pop(0)
            if driven.prompt.tokens <= threshold.limit:
                lookup = lookup or Lookup(conversation, uses(conversation))
                yield Cut(conversation, threshold, number, replayed.view(), prompts, driven.prompt, lookup)
    replayed.close()


def sample(cut: Cut, name: str, policy: Policy, saving: float = SAVING) -> Sample | None:
    """The sample of a policy; None if its plan frees less than the share `saving` of the prompt."""
    rehearsal = cut.planned(policy)
    if not rehearsal:
        return None
    prompt = cut.after(rehearsal)
    point = cut_point(cut.lookup, cut.before, prompt, horizon=FUTURE, search=False)
    if point.prune < saving:
        return None
    slots = [slot for slot in outline(committed(rehearsal)) if slot.kind != "thinking"]
    removed = _removed(cut, slots)
    plan = [line(reason=rehearsal.plan.reason)]
    plan += [line(verb=action.verb, blocks=list(action.targets), index=action.index) for action in rehearsal.done]
    return Sample(
        conversation=cut.conversation.id,
        file=cut.conversation.file,
        sha256=cut.conversation.sha256,
        policy=name,
        budget=cut.budget,
        call=cut.call,
        prune=round(point.prune, 6),
        dependencies=point.dependencies.total,
        misses=len(point.misses),
        retained=tuple(_line(cut, slot) for slot in slots),
        plan=tuple(plan),
        removed=tuple(removed.values()),
        future=tuple(future(cut)),
        blocks=frozenset(removed),
    )


def future(cut: Cut) -> Iterator[str]:
    """The recorded calls from the cut on: replies and the messages between them, without thinking."""
    blocks = cut.conversation.blocks
    for block in blocks[cut.lookup.seen_by(cut.call) : cut.lookup.seen_by(cut.call + FUTURE)]:
        if block.kind != "thinking":
            yield line(call=block.call, kind=block.kind, tool=block.tool, text=block.text)


def _line(cut: Cut, slot: Slot) -> str:
    name = slot.group or slot.row.id
    partial = {"body": "", "mask": "masked", "text": "stub"}[slot.show]
    return line(block=name, kind=slot.kind, tool=slot.row.tool, shown=partial, text=cut.text(slot))


def _removed(cut: Cut, after: Sequence[Slot]) -> dict[str, str]:
    """A line for each block that is now gone or shown differently, by its id, in the order of the prompt."""
    after_by_id: Mapping[str, Slot] = {slot.row.id: slot for slot in after if not slot.group}
    lines: dict[str, str] = {}
    for slot in outline(cut.view.ledger):
        if slot.kind == "thinking":
            continue
        now, was = after_by_id.get(slot.row.id), cut.text(slot)
        if now is None or cut.text(now) != was:
            state = "gone" if now is None else {"body": "changed", "mask": "masked", "text": "stub"}[now.show]
            lines[slot.row.id] = line(block=slot.row.id, kind=slot.kind, tool=slot.row.tool, now=state, text=was)
    return lines
