"""Compactions for a host: its messages in, the messages of a smaller prompt out, and the plan between them.

Nothing changes here: the plan is committed once the host has installed the new messages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch

import msgspec

from ctxvc.core import display
from ctxvc.core.hosts.match import Match, ahead, match
from ctxvc.core.hosts.message import HostMessage
from ctxvc.core.hosts.render import hosted, render
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.plan import payoff
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.view.view import View
from ctxvc.errors import Refused
from ctxvc.policies.run import actor_name, ask_plan, ask_relief
from ctxvc.session.session import Session

#: Words of a focus: of at least `_SHORTEST` characters, and not common ones.
_WORD = re.compile(r"[\w./-]+")
_SHORTEST = 3
_COMMON = frozenset({
    "the", "and", "for", "with", "from", "that", "this", "what", "about", "keep", "all", "are", "was", "has", "have",
    "not", "but", "how", "why", "when", "which", "who", "its", "our", "you", "your", "into", "everything", "anything",
    "please", "focus", "remember", "important",
})  # fmt: skip
#: The share of the target that blocks in the focus may take up.
_FOCUS = 0.5
#: After a compaction that keeps more than this share of the prompt, the host would ask for the next at once.
_MOST = 0.9
#: Attempts to reach a target, each lowering the aim by the last one's excess, and the factor that is near enough.
_ATTEMPTS = 3
_NEAR = 1.02


@dataclass(frozen=True, slots=True)
class Compaction:
    """A proposed compaction: the messages for the host, and the rehearsal to commit here.

    `before`, `after` and `target` are tokens of the whole prompt as the provider counts them; `changes` says whether
    the messages differ from the host's.
    """

    messages: Sequence[HostMessage]
    rehearsal: Rehearsal
    before: int
    after: int
    target: int
    changes: bool

    @property
    def archived(self) -> int:
        """The number of blocks that leave the prompt."""
        return sum(not row.present for row in self.rehearsal.rows)


def compaction(
    session: Session,
    messages: Sequence[HostMessage],
    policy: Policy,
    *,
    target: int = 0,
    focus: str = "",
    protect: Sequence[str] = (),
    former: Mapping[str, str] = {},
    absent: Collection[str] = (),
    manual: bool = False,
) -> Compaction:
    """The compaction of a host's messages to `target` tokens; by default to a size that costs no more than its summary.

    Blocks that contain a word of `focus` stay, up to half the target; files matching `protect` always stay. `former`
    are stubs that the host was given before, and `absent` the blocks that had left then: those that are in the prompt
    again come back. A `manual` compaction is made however little it frees.
    Raises: Refused if there is too little to gain; BadPolicy.
    """
    redactor = session.store.redaction.of(session.name)
    stored = functools.cache(redactor.text) if redactor else str  # called twice with each text
    shows = match(messages, session.ledger(), session.stored.body, stored, former)
    view, bodies, new = _with_unknown(session, messages, shows)
    ledger = view.ledger
    if new:
        shows = match(messages, ledger, bodies.body, stored, former)
    restored = [block for block in absent if (row := ledger.get(block)) and row.present]
    first = _there_after_all(ledger, shows)
    view = replace(view, ledger=hosted(ledger, shows, restored))
    full = replace(view, ledger=rehearse(view, Plan(actions=first, actor="host")).after) if first else view
    before = full.used
    target = target or payoff.target(before)
    staying = new | _focused(full, focus, target) | _protected(full, protect)
    rehearsal = planned(view, full.ledger, policy, target, staying, first)
    after = replace(view, ledger=rehearsal.after).used
    if after > max(target, before * _MOST) and not manual:
        raise Refused(f"only {before - after:,} of {before:,} tokens can leave")
    given_back = render(rehearsal.after, bodies, messages, shows)
    media = _masked_media(ledger, rehearsal.after)
    rows = {row.id: row for row in (*media, *rehearsal.rows) if row.id not in new}
    rehearsal = msgspec.structs.replace(rehearsal, rows=tuple(rows.values()))
    changes = [*map(_content, given_back)] != [*map(_content, messages)]
    return Compaction(given_back, rehearsal, before, after, target, changes)


def _content(message: HostMessage) -> tuple[object, ...]:
    """A message as a model sees it."""
    results = [(result.id, result.text) for result in message.tool_results]
    return message.role, message.text.strip(), [use.id for use in message.tool_uses], results


def _with_unknown(
    session: Session, messages: Sequence[HostMessage], shows: Match
) -> tuple[View, Bodies, frozenset[str]]:
    """The view, the readers of all bodies, and the blocks that the store lacks.

    The view has those blocks as if they were recorded: the newest step is often not in the host's transcript yet."""
    rows, own = ahead(session.ledger(), messages, shows) if shows.unknown else ((), {})
    usual = session.bodies()
    if not rows:
        return session.view(), usual, frozenset()

    def body(row: Row) -> bytes:
        return own[row.id, ""] if (row.id, "") in own else usual.body(row)

    view = replace(session.view_with(rows, own), words=lambda row: display.decode(body(row)))
    return view, Bodies(body, usual.file), frozenset(row.id for row in rows)


def _there_after_all(ledger: Ledger, shows: Match) -> tuple[Action, ...]:
    """The action that restores blocks which are recorded as dropped by the host but are in its prompt.

    Blocks that a person, an agent or a policy removed are to leave the host's prompt now.
    """
    rows = (ledger[block] for place in shows.places if place.shows == "whole" for block in place.blocks)
    absent = tuple(row.id for row in rows if not row.present and row.removed_by.startswith(("host", "plugin:")))
    return (Action(verb="restore", targets=absent),) if absent else ()


def planned(
    view: View,
    full: Ledger,
    policy: Policy,
    target: int,
    staying: frozenset[str] = frozenset(),
    first: tuple[Action, ...] = (),
) -> Rehearsal:
    """The rehearsal of `first` and then a policy's plan for `target`; `full` is the ledger after `first`.

    The blocks in `staying` are not offered to the policy."""
    offered = replace(view, ledger=_pinned(full, staying))
    makes_room = type(policy).relief is not Policy.relief
    # A policy with its own relief is asked for as much as is needed; any other for its plan, and then for more.
    plan = Plan(actions=(), actor=actor_name(policy)) if makes_room else ask_plan(policy, offered)
    plan = msgspec.structs.replace(plan, actions=(*first, *plan.actions), later=())
    rehearsal = rehearse(view, plan, roll_up=True) if plan.actions else None
    aim = target
    for _ in range(_ATTEMPTS):
        now = rehearsal.after if rehearsal else full
        used = replace(view, ledger=now).used
        if used <= target * _NEAR:
            break
        aim -= max(0, used - target) if aim < used and rehearsal else 0
        more = tuple(ask_relief(policy, replace(view, ledger=_pinned(now, staying)), max(0, aim)))
        plan = msgspec.structs.replace(plan, actions=(*plan.actions, *more))
        fuller = rehearse(view, plan, roll_up=True)
        if rehearsal and fuller.tokens_after >= rehearsal.tokens_after:
            break
        rehearsal = fuller
    return rehearsal or rehearse(view, plan)


def _pinned(ledger: Ledger, blocks: Collection[str]) -> Ledger:
    """The ledger with those of the blocks that are visible pinned."""
    rows = [row for block in blocks if (row := ledger.get(block)) and row.state == "visible"]
    return ledger.with_rows([msgspec.structs.replace(row, state="pinned") for row in rows])


def focus_words(text: str) -> tuple[str, ...]:
    """The distinct words of a text, without short and common ones."""
    candidates = (word.strip("./-") for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in candidates if len(word) >= _SHORTEST and word.lower() not in _COMMON))


def _focused(view: View, text: str, target: int) -> frozenset[str]:
    """The newest blocks that contain a word of the text, each call with its result."""
    subjects = focus_words(text)
    if not subjects:
        return frozenset()
    pattern = re.compile("|".join(map(re.escape, subjects)), re.IGNORECASE)
    rows = [row for row in view.ledger.rows() if row.state == "visible" and row.kind not in ("thinking", "dashboard")]
    calls = {row.call for row in rows if row.call and pattern.search(view.words(row))}
    room = int(target * _FOCUS)
    staying: set[str] = set()
    for row in reversed(rows):
        if row.call in calls if row.call else pattern.search(view.words(row)):
            room -= view.part(view.price.body(row))
            if room < 0:
                break
            staying.add(row.id)
    return frozenset(staying)


def _protected(view: View, globs: Sequence[str]) -> frozenset[str]:
    """The calls on files that match one of the patterns, with their results."""
    if not globs:
        return frozenset()
    rows = [row for row in view.ledger.rows() if row.state == "visible" and row.call]
    calls = {row.call for row in rows if row.kind == "tool_use" and _names_one(row, globs)}
    return frozenset(row.id for row in rows if row.call in calls)


def _names_one(call: Row, globs: Sequence[str]) -> bool:
    paths = re.findall(r"[^\s\"'`,;:()\[\]{}<>|=]+", call.label)
    return any(fnmatch(path, glob) or fnmatch(path.rpartition("/")[2], glob) for path in paths for glob in globs)


def _masked_media(before: Ledger, after: Ledger) -> list[Row]:
    """The current rows of images and documents that the host could not take back."""
    masked = (row for row in after.rows() if row.state == "masked" and row.removed_by == "host")
    return [row for row in masked if before[row.id].state != "masked"]
