"""A host's conversation as a session: what is new is recorded, and the host gets its own messages back, within budget.

The host's objects stay as they are but for what the ledger says of their blocks, so that whatever else a host keeps in
them survives. What we cannot read is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from ctxvc.agent.tools import why
from ctxvc.agent.tools.tools import Answer, Tools
from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import ASIDE
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.prompt import formats, stub
from ctxvc.core.prompt.outline import Bodies, Slot, outline, pieces
from ctxvc.core.prompt.sanitise import alone
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import cost_of
from ctxvc.errors import BadInput
from ctxvc.integrations.conversation import Conversation, FrameworkMessage, as_recorded, record_of, result_of
from ctxvc.integrations.hosts.message import Edit, Host, Piece, key_of, name_of
from ctxvc.session.context import budget_fields
from ctxvc.session.session import Session
from ctxvc.store.read import revision

#: The tools that a host's model is offered.
TOOLS = ("note", "recover", "search")
#: The share of the budget that is in use after a person asked for room.
COMPACTED = 0.4
#: The most tokens that are kept free for a reply, whatever the host says, and the part of the window they may be.
_RESERVE, _RESERVED_PART = 32_000, 4
#: What a host keeps free besides, and the part of the window that this may be: pi shortens replies by a margin of its
#: own, opencode counts the newest reply as a part of the prompt.
_MARGIN, _MARGIN_PART = 4_096, 10
#: The part of the budget that human words may have which the host itself dropped in a compaction.
_RETAINED = 0.25
_UNRECORDED = "\0"
#: Kinds that are sent whole or not at all.
_NEVER_IN_PART = frozenset({"tool_use", "thinking"})


class Prompt(NamedTuple):
    """A host's next prompt. An item is the number of a message as the host has it, or a message in its place.

    `edited` says whether anything is other than the last time.
    """

    messages: list[Any]
    used: int
    budget: int
    edited: bool


class _Place(NamedTuple):
    """An item of a host's message."""

    key: str
    item: int


class _Recorded(Conversation):
    """A conversation that takes in a step at once: one record, and one wait for the disk."""

    def _add(self, new: Sequence[FrameworkMessage[Any]]) -> None:
        step: list[FrameworkMessage[Any]] = []
        open_calls = set(self.session.stored.open_calls)
        for message in new:
            result = result_of(message)
            if message.message["role"] == "assistant" or (result and result["tool_use_id"] not in open_calls):
                self._append(step)
                step, open_calls = [], set(self.session.stored.open_calls)
            if result and result["tool_use_id"] not in open_calls:
                super()._add([message])
                continue
            step.append(message)
            open_calls.discard(result.get("tool_use_id", ""))
            open_calls |= {block["id"] for block in message.message["content"] if block["type"] == "tool_use"}
        self._append(step)

    def _begin(self) -> None:
        """A host's model has not the tools that a policy's text is about."""

    def _append(self, step: Sequence[FrameworkMessage[Any]]) -> None:
        if step:
            self.session.append(*map(as_recorded, step))


class HostConversation:
    """A conversation of a host. Each method raises CtxvcError where the session cannot go on."""

    def __init__(self, host: Host, session: Session) -> None:
        session.shows_dashboard = session.shows_tags = False
        self.session = session
        self._host = host
        self._conversation = _Recorded(session)
        self._tools = Tools(session)
        self._pieces: dict[str, list[Piece]] = {}  # key of a message → its pieces
        self._keys_of: dict[str, str] = {}  # block → the key of the host's message that it came in
        self._places: dict[str, _Place] = {}  # block → where it is in the host's messages
        self._guarded: dict[str, str] = {}  # result that reads as a text of ours → what the model is sent for it
        self._scanned: tuple[str, int] = ("", 0)  # a scope, and the newest block there that `_places` knows of
        self._edits: dict[str, Edit] = {}  # key → what changed in that message in the newest prompt
        self._retained: frozenset[str] = frozenset()  # blocks that stay though the host has not their messages

    def close(self) -> None:
        self.session.close()

    def resize(self, model: str, window: int, reserve: int) -> None:
        """Takes in the model, the window and the tokens for a reply that the host has now; 0 where it does not say."""
        meta = self.session.ledger().meta
        reserve = min(reserve or _RESERVE, _RESERVE, window // _RESERVED_PART) + min(_MARGIN, window // _MARGIN_PART)
        fields = budget_fields(Budget(window, reserve)) if window else {}
        self.session.set(**fields, **({"model": model} if model and model != meta.model else {}))

    def prompt(self, raw: Sequence[Mapping[str, Any]]) -> Prompt:
        """Takes in what is new among the host's messages, and gives the next prompt.

        Raises: OverBudget if what may not leave is too large; BadInput if no model could answer to it.
        """
        keys = self._take(raw)
        self.session.prepare()
        before = self._edits
        messages = self._messages(raw, keys)
        view = self.session.view()
        return Prompt(messages, view.used, view.budget.effective, self._edits != before)

    def sent(self, raw: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Some of the conversation's messages as prompts have them, for the host to summarise; nothing is recorded."""
        edits = self._edits
        keys = self._keys(raw)
        self._locate()
        messages = self._messages(raw, keys)
        self._edits = edits
        return messages

    def edits(self, raw: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Each of the messages as the newest prompt has it; None for one that is not in it, 0 for one as it is."""
        return [
            self._host.edited(message, edit) if (edit := self._edits.get(name_of(self._host, message))) else 0
            for message in raw
        ]

    def compact(self, raw: Sequence[Mapping[str, Any]]) -> int:
        """Makes room because a person, or the host, wants it; gives the tokens that it freed."""
        self._take(raw)
        return self.session.relieve(COMPACTED)

    def answer(self, tool: str, arguments: Mapping[str, Any], call: str, explain: why.Explain) -> Answer:
        """The answer of one of `TOOLS`, or of `why`. Raises: BadInput for another."""
        if tool == why.NAME:
            return why.answer(self.session.stored, arguments, explain)
        names = {name: own for own, name in self._tools.names.items()}
        if tool not in names:
            raise BadInput(f"there is no tool {tool[:40]!r}", hint=f"there are {', '.join((*TOOLS, why.NAME))}")
        return self._tools.answer(tool, dict(arguments), call)

    # --- what comes in

    def _take(self, raw: Sequence[Mapping[str, Any]]) -> list[str]:
        """Takes in what is new; gives the messages' keys."""
        keys = self._keys(raw)
        self._tools.begin()
        self._conversation.take([piece.message for key in keys if key for piece in self._pieces[key]])
        self._locate()
        self._withdraw(raw, keys)
        return keys

    def _keys(self, raw: Sequence[Mapping[str, Any]]) -> list[str]:
        """The keys of the messages, each another one; empty for those that are not recorded."""
        keys: dict[str, None] = {}
        for number, message in enumerate(raw):
            key = name_of(self._host, message)
            if key and key not in self._pieces:
                self._pieces[key] = self._host.pieces(message, key)
            keys[key if key and key not in keys and self._pieces[key] else f"{_UNRECORDED}{number}"] = None
        return ["" if key.startswith(_UNRECORDED) else key for key in keys]

    def _locate(self) -> None:
        """Learns where the blocks that came in since the last time are in the host's messages."""
        scope, scanned = self._scanned
        ledger = self.session.ledger()
        if scope != self.session.scope:
            self._keys_of, self._places, scanned = {}, {}, 0
        new = list(takewhile(lambda row: row.number > scanned, ledger.backwards()))[::-1]
        for record, rows in by_record(new):
            key, name = key_of(record), str(record.get("id"))
            self._keys_of |= {row.id: key for row in rows}
            piece = next((piece for piece in self._pieces.get(key, ()) if piece.message.name == name), None)
            if piece and len(piece.places) == len(rows):
                self._places |= {row.id: _Place(key, item) for row, item in zip(rows, piece.places, strict=True)}
                text = "\n".join(map(_plain, piece.message.message["content"]))
                if result_of(piece.message) and (safe := stub.guarded(text)) != text:
                    self._guarded[rows[0].id] = safe
        self._scanned = self.session.scope, ledger.meta.counters.block

    def _withdraw(self, raw: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
        """Takes out of the prompt what the host itself dropped, as by a compaction of its own.

        What a human said before a compaction stays (`_RETAINED`): only the host's list is without it.
        """
        here = set(keys)
        absent = [
            slot
            for slot in outline(self.session.ledger())
            if slot.show != "text" and (key := self._keys_of.get(slot.row.id)) and key not in here
        ]
        self._retained = self._human(absent, self._summarised(raw, keys)) if absent else frozenset()
        dropped = tuple(slot.row.id for slot in absent if slot.row.id not in self._retained)
        if dropped:
            action = Action(verb="archive", targets=dropped, index="the host left it out")
            self.session.commit(Plan(actions=(action,), actor="host", allow_user=True, reason="left out by the host"))

    def _summarised(self, raw: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
        """The number of the newest block of a summary that the host has; 0 if it has none."""
        summaries = {key for message, key in zip(raw, keys, strict=True) if key and self._host.is_summary(message)}
        return max((block_number(block) for block, key in self._keys_of.items() if key in summaries), default=0)

    def _human(self, slots: Sequence[Slot], before: int) -> frozenset[str]:
        """Those blocks before one of this number that a human said, the newest that `_RETAINED` has room for."""
        view = self.session.view()
        room = int(view.budget.effective * _RETAINED)
        retained: set[str] = set()
        for slot in reversed(slots):
            if slot.row.number < before and slot.row.origin == "human" and slot.kind == "user":
                room -= view.part(cost_of(slot, view.price))
                if room < 0:
                    break
                retained.add(slot.row.id)
        return frozenset(retained)

    # --- what goes out

    def _messages(self, raw: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[Any]:
        at = {key: number for number, key in enumerate(keys) if key}
        visible: set[str] = set()
        replaced: dict[str, dict[int, str]] = defaultdict(dict)
        appended: dict[int, list[str]] = defaultdict(list)
        newest = -1
        bodies = revision.now(self.session.stored).bodies
        for slot in outline(self.session.ledger()):
            place = self._places.get(slot.row.id)
            if slot.kind == "tool_result" and place is None:
                continue  # a call without a result: the host has its own words for that
            if place and place.key in at:
                newest = max(newest, at[place.key])
                if slot.kind == slot.row.kind and (slot.show == "body" or slot.kind in _NEVER_IN_PART):
                    visible.add(slot.row.id)
                    if slot.row.id in self._guarded:
                        replaced[place.key][place.item] = self._guarded[slot.row.id]
                    continue
                if _stands_in_place(slot):
                    replaced[place.key][place.item] = self._text(slot, bodies)
                    continue
            elif slot.row.id in self._keys_of and slot.row.id not in self._retained:
                continue  # the host does not have it any more
            if text := self._text(slot, bodies):
                appended[newest].append(text)
        dropped: dict[str, set[int]] = defaultdict(set)
        for block, place in self._places.items():
            if place.key in at and block not in visible and place.item not in replaced.get(place.key, ()):
                dropped[place.key].add(place.item)
        return self._assembled(raw, keys, dropped, replaced, appended)

    def _assembled(
        self,
        raw: Sequence[Mapping[str, Any]],
        keys: Sequence[str],
        dropped: Mapping[str, set[int]],
        replaced: Mapping[str, Mapping[int, str]],
        appended: Mapping[int, list[str]],
    ) -> list[Any]:
        """The prompt in the host's order."""
        edits = {key: Edit(dropped.get(key, ()), replaced.get(key, {})) for key in keys if key}
        loose: dict[int, list[str]] = defaultdict(list)  # number of a message → texts that stand alone behind it
        for anchor, texts in sorted(appended.items()):
            end = self._end_of_results(raw, anchor)
            target = self._target(raw, keys, edits, end)
            if target is None:
                loose[end] += texts
            else:
                edit = edits[keys[target]]
                edits[keys[target]] = edit._replace(appended=(*edit.appended, *texts))
        messages: list[Any] = [self._host.own(loose[-1], raw[0] if raw else None)] if -1 in loose else []
        for number, message in enumerate(raw):
            edit = edits.get(keys[number], Edit())
            after = self._host.edited(message, edit) if any(edit) else message
            if after is not None:
                messages.append(number if after == message else after)
            if number in loose:
                messages.append(self._host.own(loose[number], message))
        if messages and self._role(messages[0], raw) == "assistant":
            messages.insert(0, self._host.own([stub.BEGINNING], raw[0]))
        self._edits = {key: edit for key, edit in edits.items() if any(edit)}
        return messages

    def _end_of_results(self, raw: Sequence[Mapping[str, Any]], number: int) -> int:
        """The number of the last result that follows a message; its own where none does."""
        while number + 1 < len(raw) and self._host.role(raw[number + 1]) == "result":
            number += 1
        return number

    def _target(
        self, raw: Sequence[Mapping[str, Any]], keys: Sequence[str], edits: Mapping[str, Edit], end: int
    ) -> int | None:
        """The message at whose end a text of ours stands: the newest up to `end` that is a user's or a tool's.

        None where it stands alone: before all others, or behind a reply with the results in it.
        """
        for number in range(end, -1, -1):
            role = self._host.role(raw[number])
            if role == "assistant":
                if self._host.RESULTS_INSIDE:
                    return None
            elif keys[number] and self._host.edited(raw[number], edits[keys[number]]) is not None:
                return number
        return None

    def _role(self, message: Any, raw: Sequence[Mapping[str, Any]]) -> str:
        return self._host.role(raw[message] if isinstance(message, int) else message)

    def _text(self, slot: Slot, bodies: Bodies) -> str:
        """The text of a slot as it is sent; empty for none."""
        render = self.session.ledger().meta.render
        (piece,) = pieces([slot], bodies, render)
        fit = alone(piece, render)
        return "\n".join(filter(None, map(_plain, formats.content(fit)))) if fit else ""


def _stands_in_place(slot: Slot) -> bool:
    """Whether the slot stands where its block did: a result's stub behind its call, or a text's in its message."""
    if slot.group or slot.role != slot.row.role:
        return False
    return slot.kind == slot.row.kind or (slot.kind == "user" and slot.row.kind in ("user", "image", "document"))


def _plain(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_result", "content": str(text)}:
            return text
        case {"type": "tool_result", "content": list(items)}:
            return "\n".join(item["text"] for item in items if isinstance(item, dict) and item.get("type") == "text")
    return ""


def by_record(rows: Iterable[Row]) -> list[tuple[Mapping[str, Any], list[Row]]]:
    """Rows that came in under the same id, with what is recorded of it, in their order."""
    runs: list[tuple[Mapping[str, Any], list[Row]]] = []
    for row in rows:
        record = record_of(row)
        if record is not None:
            runs.append((record, [row]))
        elif runs and runs[-1][1][-1].msg == row.msg and row.kind not in ASIDE:
            runs[-1][1].append(row)
    return runs
