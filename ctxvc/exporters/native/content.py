"""Prepares a prompt for another agent: calls become calls of that agent's own tools if there are equal ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.hosts import tools
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.wire import without
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.core.prompt.sanitise import OwnText, sendable
from ctxvc.errors import Phrase, Refused
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.session import Setting
from ctxvc.forms.losses import Loss

#: The beginnings of stubs, and of the texts of masked blocks.
_STUBS = ("[archived ", "[masked ")


class Content(NamedTuple):
    """The pieces in order, and their losses.

    `human` are the blocks that a person wrote; `original` maps the ids of calls that became another tool's to the
    original calls.
    """

    pieces: list[Piece]
    losses: list[Loss]
    human: frozenset[str]
    original: Mapping[str, tools.Call]

    @property
    def results(self) -> dict[str, Piece]:
        """The results by their calls' ids."""
        return {piece.call: piece for piece in self.pieces if piece.kind == "tool_result"}

    @property
    def tools(self) -> dict[str, str]:
        """The tools of the calls, by their ids."""
        return {piece.call: piece.tool for piece in self.pieces if piece.kind == "tool_use"}

    def note(self, calls: Iterable[Piece]) -> dict[str, Any]:
        """A note on the original of each call that became another tool's, which `forms.values.taken_over` reads."""
        originals = {one.call: self.original[one.call]._asdict() for one in calls if one.call in self.original}
        return {"ctxvc": originals} if originals else {}

    def unattributed(self) -> list[Loss]:
        """The losses of an agent that takes all texts of the user for a person's."""
        texts = (one for one in self.pieces if one.role == "user" and one.kind != "tool_result" and one.block)
        return [Loss(f"{one.block}.origin", "a person's") for one in texts if one.block not in self.human]


class Turn(NamedTuple):
    """Consecutive pieces of one role; the user's are of one message. `human`: a person wrote them."""

    role: str
    pieces: Sequence[Piece]
    human: bool

    @property
    def calls(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == "tool_use"]

    @property
    def results(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == "tool_result"]


class Media(NamedTuple):
    """A picture or document, in base64."""

    type: str
    data: str
    name: str = ""

    @property
    def url(self) -> str:
        return f"data:{self.type};base64,{self.data}"


def arriving(
    conversation: Conversation,
    setting: Setting,
    agent: str,
    format: str,
    *,
    items: bool = False,
    own_context: Callable[[str], bool] = lambda _: False,
) -> Content:
    """The prompt for a session of `agent`, whose own recordings have this format.

    `items`: its messages are items of the Responses API. Thinking is bound to everything before it: it is kept only in
    items, and only if the session is from the same agent and nothing left the prompt. `own_context` recognises texts
    that the agent adds by itself, again when it continues. Raises: Refused if there is no message yet.
    """
    by_people = frozenset(row.id for row in conversation.ledger.rows() if row.origin == "human")
    prompt = conversation.prompt()
    sent = sendable(prompt, conversation.ledger.meta.render)
    if not sent:
        raise Refused("there are no messages yet at this revision", hint=Phrase("other-revisions"))
    is_agents = _is_from(conversation, format)
    keeps_thinking = items and is_agents and _is_unbroken(conversation)
    losses = [*_losses(conversation), *_guarded(prompt, sent)]
    original: dict[str, tools.Call] = {}
    content = list(_beginning(sent, setting))
    for piece in sent:
        is_text = piece.kind in ("user", "system") and piece.block not in by_people
        if piece.kind == "thinking" and not keeps_thinking:
            losses.append(Loss(piece.block))
        elif (is_agents and piece.role == "system") or (is_text and own_context(display.decode(piece.body))):
            losses.append(Loss(piece.block, "the agent's own"))
        else:
            arrived = tools.of_agent(_said_by_user(piece), agent)
            call = tools.call_of(piece)
            if call and call != (arrived.tool, wire.parsed(arrived.body, dict)):
                original[piece.call] = call
                losses += [Loss(f"{piece.block}.name", arrived.tool)] * (arrived.tool != piece.tool)
            content.append(arrived if items else _plain(arrived, losses))
    own = {piece.block for piece in content if isinstance(piece, OwnText)}
    return Content(content, losses, by_people - own, original)


def _beginning(sent: Sequence[Piece], setting: Setting) -> Iterator[Piece]:
    """The text on how to recover blocks, if the prompt has stubs."""
    has_stubs = any(isinstance(piece, OwnText) and display.decode(piece.body).startswith(_STUBS) for piece in sent)
    if has_stubs and setting.recovery:
        yield OwnText(message=0, role="user", kind="user", body=display.encode(setting.recovery))


def _losses(conversation: Conversation) -> Iterator[Loss]:
    """The system prompt and the tools, of which every agent has its own."""
    if conversation.system:
        yield Loss("system", "the agent's own")
    if conversation.tools:
        yield Loss("tools", "the agent's own")


def _guarded(prompt: Iterable[Piece], sent: Iterable[Piece]) -> Iterator[Loss]:
    """The texts in which a backslash was put before what looks like a text of ours."""
    recorded = {piece.block: piece.body for piece in prompt}
    for piece in sent:
        if piece.kind == piece.role and b"\\[" in piece.body and piece.body != recorded.get(piece.block, piece.body):
            yield Loss(piece.block, "with a backslash before what looks like a stub")


def _is_from(conversation: Conversation, format: str) -> bool:
    source = conversation.ledger.meta.source
    return source is not None and source.format == format


def _is_unbroken(conversation: Conversation) -> bool:
    """Whether the prompt has everything that it had when its thinking was signed."""
    ledger = conversation.ledger
    return not ledger.groups and all(row.state in ("visible", "pinned") for row in ledger.rows())


def _said_by_user(piece: Piece) -> Piece:
    """A system message within the conversation as the user's, which every agent has."""
    if piece.role != "system":
        return piece
    return msgspec.structs.replace(piece, role="user", kind="user" if piece.kind == "system" else piece.kind)


def _plain(piece: Piece, losses: list[Loss]) -> Piece:
    """The piece without anything that only one provider's form has."""
    if "openai" in piece.extra and piece.kind != "other":
        piece = msgspec.structs.replace(piece, extra=without(piece.extra, "openai"))
    if piece.kind == "other":
        losses.append(Loss(piece.block, "text"))
        return msgspec.structs.replace(piece, kind=piece.role, ext="txt", extra={}, files={})
    if piece.kind == "tool_use" and wire.parsed(piece.body, dict) is None:
        losses.append(Loss(f"{piece.block}.input", "an object with the text under `arguments`"))
        return msgspec.structs.replace(piece, body=wire.compact(wire.arguments(piece.body, piece.ext)), ext="json")
    return piece


def turns(content: Content) -> Iterator[Turn]:
    """The pieces by turns. Of the user's pieces, results are a turn of their own, before the others."""
    sent = ((piece.role, piece) for piece in content.pieces)
    for role, group in formats.by_message(sent, lambda piece: piece.kind != "tool_result"):
        if role == "assistant":
            yield Turn(role, group, human=False)
            continue

        def place(piece: Piece) -> tuple[bool, int, bool]:
            is_result = piece.kind == "tool_result"
            return is_result, 0 if is_result else piece.message, piece.block in content.human

        for (_, _, human), together in groupby(group, place):
            yield Turn(role, list(together), human=human)


def moved(turn: Turn) -> list[Loss]:
    """The texts of a reply after its calls, for an agent that puts texts first."""
    kinds = [piece.kind for piece in turn.pieces]
    first = kinds.index("tool_use") if "tool_use" in kinds else len(kinds)
    return [Loss(one.block, "in front of the calls") for one in turn.pieces[first:] if one.kind == "assistant"]


def texts_and_media(piece: Piece, losses: list[Loss], takes: Collection[str] = ("image/",)) -> list[str | Media]:
    """The texts and media of a piece; `takes` are the beginnings of the media types that the agent takes."""
    if piece.kind == "tool_result":
        blocks = [(f"{piece.block}.content[{at}]", item) for at, item in enumerate(block_of(piece).get("content", []))]
    elif piece.kind in ("image", "document"):
        blocks = [(piece.block, block_of(piece))]
    else:
        return [display.decode(piece.body)]
    content: list[str | Media] = []
    for path, block in blocks:
        match block:
            case str(text) | {"type": "text", "text": str(text)}:
                content.append(text)
            case {"source": {"type": "text", "data": str(text)}}:
                losses.append(Loss(path, "text"))
                content.append(text)
            case {"source": {"type": "base64", "media_type": str(media), "data": str(data)}} if media.startswith(
                tuple(takes)
            ):
                content.append(Media(media, data, str(block.get("title") or "")))
            case {"type": "image" | "document"}:
                losses.append(Loss(path))
            case _:
                losses.append(Loss(path, "text"))
                content.append(display.decode(wire.compact(block)))
    return content


def arguments(piece: Piece) -> dict[str, Any]:
    """The arguments of a call."""
    return wire.parsed(piece.body, dict) or {}
