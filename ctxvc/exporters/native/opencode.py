"""A session of opencode: the document that its own `opencode import` takes into its database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from ctxvc.core import display
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Media, Turn, arguments, arriving, moved, texts_and_media, turns
from ctxvc.exporters.native.session import (
    NativeFormat,
    NativeSession,
    Setting,
    milliseconds,
    model,
    session_id,
    title,
)  # fmt: skip
from ctxvc.forms.losses import Loss
from ctxvc.importers.opencode import FORMAT

_AGENT = "opencode"
#: The release whose form is written.
_VERSION = "1.18.34"
_TAKES = ("image/", "application/pdf")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The document. Texts that no person wrote are marked as synthetic, like opencode's own additions."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    losses = list(content.losses)
    ids = _Ids(str(session_id(conversation, setting, _AGENT)), milliseconds(setting))
    messages = list(_Messages(content, conversation, setting, ids, losses).all())
    info = {
        "id": ids.session,
        "slug": f"ctxvc-{ids.seed[:8]}",
        "projectID": "global",
        "directory": str(setting.folder),
        "title": title(conversation),
        "version": _VERSION,
        "time": {"created": ids.time, "updated": ids.time},
    }
    document = formats.dumps({"info": info, "messages": messages})
    return NativeSession(id=ids.session, files={PurePosixPath(f"{ids.session}.json"): document}, losses=tuple(losses))


class _Ids:
    """Ids by which opencode orders: a time and a number, then characters that differ between sessions.

    All have one time, so that later messages come after them.
    """

    def __init__(self, seed: str, time: int) -> None:
        self.seed = seed
        self.time = time
        self._count = 0
        self.session = self._id("ses", ~(time * 0x1000 + 1))

    def next(self, prefix: str) -> str:
        """The next id; each is greater than the one before."""
        self._count += 1
        # A millisecond has room for 4,096 ids: those of a long session begin earlier.
        return self._id(prefix, self.time * 0x1000 - (1 << 24) + self._count)

    def _id(self, prefix: str, moment: int) -> str:
        digest = hashlib.sha256(f"{self.seed}/{prefix}/{moment}".encode()).digest()
        letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:14])
        return f"{prefix}_{moment & (1 << 48) - 1:012x}{letters}"


class _Messages:
    """Writes the messages of a session: a reply has the results of its calls."""

    def __init__(
        self, content: Content, conversation: Conversation, setting: Setting, ids: _Ids, losses: list[Loss]
    ) -> None:
        self._content = content
        self._folder = str(setting.folder)
        self._provider, self._model = model(conversation, setting)
        self._ids = ids
        self._losses = losses
        self._results = content.results
        self._asked = ""  # the newest message of the user

    def all(self) -> Iterator[dict[str, Any]]:
        for turn in turns(self._content):
            if turn.role == "assistant":
                yield self._reply(turn)
            elif not turn.results:
                yield self._question(turn)

    def _message(self, parts: Sequence[dict[str, Any]], identifier: str, **info: Any) -> dict[str, Any]:
        place = {"sessionID": self._ids.session, "messageID": identifier}
        return {
            "info": {"id": identifier, "sessionID": self._ids.session, "agent": "build", **info},
            "parts": [{"id": self._ids.next("prt"), **place, **part} for part in parts],
        }

    def _question(self, turn: Turn) -> dict[str, Any]:
        self._asked = self._ids.next("msg")
        parts = [part for piece in turn.pieces for part in self._parts(piece)]
        if not turn.human:
            parts = [{**part, "synthetic": True} for part in parts]
        model_ref = {"providerID": self._provider, "modelID": self._model}
        return self._message(parts, self._asked, role="user", time={"created": self._ids.time}, model=model_ref)

    def _parts(self, piece: Piece) -> Iterator[dict[str, Any]]:
        for one in texts_and_media(piece, self._losses, _TAKES):
            yield _file(one) if isinstance(one, Media) else {"type": "text", "text": one}

    def _reply(self, turn: Turn) -> dict[str, Any]:
        identifier = self._ids.next("msg")
        self._losses += moved(turn) if self._provider == "anthropic" else []
        reason = "tool-calls" if turn.calls else "stop"
        parts = [
            {"type": "step-start"},
            *(part for piece in turn.pieces for part in self._spoken(piece, identifier)),
            {"type": "step-finish", "reason": reason, "cost": 0, "tokens": _NO_TOKENS},
        ]
        return self._message(
            parts,
            identifier,
            role="assistant",
            parentID=self._asked,
            mode="build",
            path={"cwd": self._folder, "root": self._folder},
            cost=0,
            tokens=_NO_TOKENS,
            modelID=self._model,
            providerID=self._provider,
            time={"created": self._ids.time, "completed": self._ids.time},
            finish=reason,
        )

    def _spoken(self, piece: Piece, message: str) -> Iterator[dict[str, Any]]:
        if piece.kind == "tool_use":
            part = {"type": "tool", "tool": piece.tool, "callID": piece.call, "state": self._state(piece, message)}
            note = self._content.note([piece])
            yield {**part, "metadata": note} if note else part
        elif piece.kind == "assistant":
            yield {"type": "text", "text": display.decode(piece.body)}
        else:
            self._losses.append(Loss(piece.block))

    def _state(self, call: Piece, message: str) -> dict[str, Any]:
        time = {"start": self._ids.time, "end": self._ids.time}
        result = self._results[call.call]
        content = texts_and_media(result, self._losses, _TAKES)
        text = "\n".join(one for one in content if isinstance(one, str))
        files = [_file(one) for one in content if isinstance(one, Media)]
        state = {"input": arguments(call), "time": time}
        if result.error:
            self._losses += [Loss(f"{result.block}.content")] * bool(files)
            return {"status": "error", "error": text, **state}
        place = {"sessionID": self._ids.session, "messageID": message}
        attachments = [{"id": self._ids.next("prt"), **place, **file} for file in files]
        more = {"attachments": attachments} if attachments else {}
        return {"status": "completed", "output": text, "title": "", "metadata": {}, **state, **more}


def _file(media: Media) -> dict[str, Any]:
    return {"type": "file", "mime": media.type, "url": media.url, **({"filename": media.name} if media.name else {})}


NATIVE = NativeFormat(
    agent=_AGENT,
    format=FORMAT,
    write=write,
    folder=None,
    resume="opencode --session {id}",
    install="opencode import {file}",
)
