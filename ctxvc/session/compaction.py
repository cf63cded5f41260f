"""A compaction that a host asks for: its messages in, the messages of a smaller prompt out, and the plan between them.

Nothing is changed here: the plan is committed once the host has installed what it was given.
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

#: The words of a focus: with a fewest number of letters, and none that stands everywhere.
_WORD = re.compile(r"[\w./-]+")
_SHORTEST = 3
_COMMON = frozenset({
    "the", "and", "for", "with", "from", "that", "this", "what", "about", "keep", "all", "are", "was", "has", "have",
    "not", "but", "how", "why", "when", "which", "who", "its", "our", "you", "your", "into", "everything", "anything",
    "please", "focus", "remember", "important",
})  # fmt: skip
#: The share of the target that blocks in the focus may keep.
_FOCUS = 0.5
#: A compaction that leaves more than this share of the prompt would be asked for again at once.
_MOST = 0.9
#: Attempts at a target, each with what the one before left too much, and how near is near enough.
_ATTEMPTS = 3
_NEAR = 1.02


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction as it would be: the messages for the host, and the rehearsal whose commit makes it true here.

    `before`, `after` and `target` are tokens of the whole prompt as the provider counts them; `changes` is whether the
    messages are others than the host's.
    """

    messages: Sequence[HostMessage]
    rehearsal: Rehearsal
    before: int
    after: int
    target: int
    changes: bool

    @property
    def archived(self) -> int:
        """The number of blocks that leave."""
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
    """The compaction of a host's messages to `target` tokens; by default to as many as cost no more than its summary.

    Blocks with a word of `focus` stay as far as half the target goes, files that `protect` names always. `former` are
    stubs that the host was given before and `absent` the blocks that had left then: what is in the prompt again since
    comes back. A `manual` one is made for however little.
    Raises: Refused if there is too little to gain; BadPolicy.
    """
    redactor = session.store.redaction.of(session.name)
    stored = functools.cache(redactor.text) if redactor else str  # asked twice of each text
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
    """The view with what the store lacks, as if it were recorded already: the newest step is often not in the host's
    transcript yet. With the readers of all bodies, and the blocks that are not there."""
    rows, own = ahead(session.ledger(), messages, shows) if shows.unknown else ((), {})
    usual = session.bodies()
    if not rows:
        return session.view(), usual, frozenset()

    def body(row: Row) -> bytes:
        return own[row.id, ""] if (row.id, "") in own else usual.body(row)

    view = replace(session.view_with(rows, own), words=lambda row: display.decode(body(row)))
    return view, Bodies(body, usual.file), frozenset(row.id for row in rows)


def _there_after_all(ledger: Ledger, shows: Match) -> tuple[Action, ...]:
    """The actions that put back blocks of the host's prompt that were recorded as dropped.

    What a person, an agent or a policy took out since is to leave the host's prompt now.
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
    """The plan of a policy for that target behind its `first` actions, tried, where `full` is the ledger behind those.
    What stays is not offered to it."""
    offered = replace(view, ledger=_pinned(full, staying))
    makes_room = type(policy).relief is not Policy.relief
    # A policy that says what leaves first is asked for as much as is needed; another for its plan, and then for more.
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
    """The ledger in which these blocks are pinned, as far as they are visible."""
    rows = [row for block in blocks if (row := ledger.get(block)) and row.state == "visible"]
    return ledger.with_rows([msgspec.structs.replace(row, state="pinned") for row in rows])


def focus_words(text: str) -> tuple[str, ...]:
    """The words of a text that tell what it is about, short and common ones left out."""
    candidates = (word.strip("./-") for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in candidates if len(word) >= _SHORTEST and word.lower() not in _COMMON))


def _focused(view: View, text: str, target: int) -> frozenset[str]:
    """The newest blocks in which a word of the text stands, with the other halves of their pairs."""
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
    """The calls on files that one of the patterns names, with their results."""
    if not globs:
        return frozenset()
    rows = [row for row in view.ledger.rows() if row.state == "visible" and row.call]
    calls = {row.call for row in rows if row.kind == "tool_use" and _names_one(row, globs)}
    return frozenset(row.id for row in rows if row.call in calls)


def _names_one(call: Row, globs: Sequence[str]) -> bool:
    paths = re.findall(r"[^\s\"'`,;:()\[\]{}<>|=]+", call.label)
    return any(fnmatch(path, glob) or fnmatch(path.rpartition("/")[2], glob) for path in paths for glob in globs)


def _masked_media(before: Ledger, after: Ledger) -> list[Row]:
    """The images and documents that the host could not take back, as they are now."""
    masked = (row for row in after.rows() if row.state == "masked" and row.removed_by == "host")
    return [row for row in masked if before[row.id].state != "masked"]
