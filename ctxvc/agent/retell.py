"""A recorded run, told again to an agent: the same replies and results, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ctxvc.agent.loop import Ended, Limits, Watcher
from ctxvc.agent.model import ModelFailed, Scripted
from ctxvc.agent.run import Setup, go
from ctxvc.agent.start import report
from ctxvc.agent.workspace import Outcome
from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.errors import NotFound, Phrase
from ctxvc.session.session import Session

#: Replies of a turn that is played back, at most.
PLAYED = Limits(steps=100_000)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded turn: the messages to the model, its replies, and the outcomes of its calls by id."""

    messages: tuple[dict[str, Any], ...]
    replies: tuple[dict[str, Any], ...]
    results: tuple[tuple[str, Outcome], ...]


class Replayed:
    """Hands that run nothing: they give what the call gave when the session was recorded.

    Results may have come in another order than their calls, and some are of calls that others answer now. Where a
    recording has an id twice, the first call gets the first result.
    """

    def __init__(self, results: Iterable[tuple[str, Outcome]], names: frozenset[str] = frozenset()) -> None:
        self.names = names
        self._results: dict[str, list[Outcome]] = {}
        for call, outcome in results:
            self._results.setdefault(call, []).append(outcome)

    def run(self, name: str, arguments: Mapping[str, Any], call: str = "") -> Outcome:  # noqa: ARG002 - as `Hands` has it
        if not (recorded_results := self._results.get(call)):
            return Outcome(f"no result of {name} was recorded".encode(), error=True)
        return recorded_results.pop(0)

    def stop(self) -> None: ...


def recorded(session: Session) -> list[Turn]:
    """The turns that a session holds, to be played back. Raises: NotFound if no model has replied in it."""
    turns: list[Turn] = []
    messages: list[dict[str, Any]] = []
    replies: dict[int, list[dict[str, Any]]] = {}
    results: list[tuple[str, Outcome]] = []

    def close() -> None:
        if replies:
            turn_replies = tuple({"content": replies[msg]} for msg in sorted(replies))
            turns.append(Turn(messages=tuple(messages), replies=turn_replies, results=tuple(results)))
            messages.clear()
            replies.clear()
            results.clear()

    for row in session.ledger().rows():
        if row.role == "assistant" and row.kind in ("assistant", "tool_use"):
            replies.setdefault(row.msg, []).append(_block(row, session.body(row.id)))
        elif row.kind == "tool_result":
            results.append((row.call, Outcome(_result_bytes(session, row), error=row.error)))
        elif row.kind == "user" and row.role == "user":
            if speaks(row.kind, row.role, row.origin):
                close()
            text = session.body(row.id).decode("utf-8", "replace")
            if text.strip():
                messages.append({"origin": row.origin, "message": {"role": "user", "content": text}})
    close()
    if not turns:
        raise NotFound(f"session {session.name} has no reply to replay", hint=Phrase("other-sessions"))
    return turns


def _result_bytes(session: Session, result: Row) -> bytes:
    """The recorded result of a call; of one that started a helper its report, since no note follows on replay."""
    match wire.own_metadata(result.extra).get("report"):
        case [str(scope), str(last)] if text := report(session, scope, last):
            return display.encode(f"{scope} reports:\n{text}")
    return session.body(result.id)


def play(session: Session, turns: Iterable[Turn], watcher: Watcher, limits: Limits = PLAYED) -> Ended:
    """Plays recorded turns through the very same loop, in a session that has its own budget and policy."""
    ended = Ended(why="said")
    for turn in turns:
        for item in turn.messages:
            session.append(item["message"], origin=item["origin"])
        model, hands = Scripted(turn.replies), Replayed(turn.results)
        setup = Setup(model=model, hands=hands, watcher=watcher, limits=limits, helpers=False)
        try:
            last = go(session, setup)
        except ModelFailed:
            last = Ended(why="said", steps=len(turn.replies))  # the recording ends in the middle of a turn
        ended = msgspec.structs.replace(last, steps=ended.steps + last.steps)
    return ended


def _block(row: Row, body: bytes) -> dict[str, Any]:
    if row.kind == "tool_use":
        return {"type": "tool_use", "id": row.call, "name": row.tool, "input": wire.arguments(body, row.ext)}
    return {"type": "text", "text": body.decode("utf-8", "replace")}
