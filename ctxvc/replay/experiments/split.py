"""Self-GC's online split: a hash of its name puts each conversation under one of two policies; their mean inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ctxvc import policies
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.experiments.measure import Table, change
from ctxvc.replay.measures.retention import Sums
from ctxvc.tokens.meter import Meter

NAME = "split"
SOURCE = "Self-GC (arXiv 2607.00692), Table 2 and Figure 5"
APART = (
    "The paper splits accounts by the first letter of an address, and its control is the earlier product; here "
    "conversations are split by a hash, and the control keeps everything. Recorded sessions are longer than chats."
)


class Group(Sums, frozen=True):
    """One group's conversations; `tokens` is of all prompts as they ran, `control` of the same under the control."""

    policy: str
    conversations: int = 0
    calls: int = 0
    tokens: int = 0
    control: int = 0

    @property
    def mean(self) -> float:
        """Input tokens a call."""
        return self.tokens / self.calls if self.calls else 0.0

    @property
    def spared(self) -> float:
        """The share of the control's input for the same conversations that the group saved."""
        return 1 - self.tokens / self.control if self.control else 0.0


class OnlineSplit(msgspec.Struct, frozen=True):
    """The two groups. `hours` has the reduction of the mean input by hour of the day, where both have calls."""

    budget: int
    treated: Group
    control: Group
    hours: dict[int, float]

    @property
    def reduction(self) -> float | None:
        """The reduction of the mean input from the control to the treated group, as a share; None if one is empty."""
        return 1 - self.treated.mean / self.control.mean if self.control.mean and self.treated.calls else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a group, and the best hour."""
        columns = (
            "group",
            "policy",
            "conversations",
            "calls",
            "mean input",
            "to the other group",
            "to itself",
            "paper",
        )
        best = max(self.hours.values(), default=None)
        own = self.treated.spared if self.treated.calls else None
        rows = (
            (
                *("Self-GC", self.treated.policy, str(self.treated.conversations), f"{self.treated.calls:,}"),
                *(f"{self.treated.mean:,.0f}", _saved(self.reduction), _saved(own)),
                "-10 to -15 %",
            ),
            (
                *("control", self.control.policy, str(self.control.conversations), f"{self.control.calls:,}"),
                *(f"{self.control.mean:,.0f}", "", "", ""),
            ),
            ("best hour of the day", "", "", "", "", _saved(best), "", "about -20 %"),
        )
        return (Table(f"Self-GC's online split at {self.budget:,} tokens", columns, rows, APART),)


def run(conversations: Iterable[Conversation], *, budget: int = 80_000, policy: str = "planned") -> OnlineSplit:
    """The split between `policy` at this budget and a control that keeps everything."""
    groups = {True: Group(policy), False: Group("keep")}
    hours: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    meter = Meter(None)
    for conversation in conversations:
        untouched = _inputs(conversation, "keep", 1 << 40, meter, bare=True)
        is_treated = in_group(conversation)
        own = _inputs(conversation, policy, budget, meter) if is_treated else untouched
        groups[is_treated] += Group("", 1, len(own), sum(own), sum(untouched))
        for call, tokens in zip(conversation.calls, own, strict=False):
            if (hour := _hour(call.reply.time)) is not None:
                hours[not is_treated].setdefault(hour, []).append(tokens)
    reductions = {
        hour: 1 - (sum(own) / len(own)) / (sum(control_tokens) / len(control_tokens))
        for hour, own in sorted(hours[0].items())
        if (control_tokens := hours[1].get(hour)) and sum(control_tokens)
    }
    return OnlineSplit(budget, groups[True], groups[False], reductions)


def _saved(share: float | None) -> str:
    return change(None if share is None else 0.0 - share)


def in_group(conversation: Conversation) -> bool:
    """Whether a conversation is in the treated half, by the SHA-256 of its id."""
    return hashlib.sha256(conversation.id.encode()).digest()[0] % 2 == 0


def _inputs(conversation: Conversation, spec: str, budget: int, meter: Meter, *, bare: bool = False) -> Sequence[int]:
    """The tokens of each call's prompt."""
    policy = policies.parse(spec)
    replayed = new_session(conversation, Bare(inner=policy) if bare else policy, budget, meter=meter)
    driven = drive(conversation, replayed, Prompts(replayed))
    return [one.prompt.tokens if one.prompt else 0 for one in driven]


def _hour(text: str) -> int | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).hour if text else None
    except ValueError:
        return None
