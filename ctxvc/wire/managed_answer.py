"""Turns the model's answers to a managed request with our tools into one answer for the client. Without I/O."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from ctxvc.forms import form
from ctxvc.forms.merged import Calls, MergedAnswer, merged
from ctxvc.wire.exchange import (
    Answered,
    Bounded,
    Copy,
    Managed,
    Recorder,
    Requested,
    decoded,
    identifying,
    is_stream,
    is_whole,
)

#: Headers that are true of the model's answer but not of the client's.
_FRAMING = frozenset({"content-length", "transfer-encoding", "content-encoding", "trailer"})
#: Successes without a body.
_BARE = (204, 205)
#: The status for a body that says that the answer broke off.
BROKEN = 502
_numbers = itertools.count(1)


def is_asked(path: str) -> bool:
    """Whether requests to a path carry a prompt to manage: calls of a model, and counts of its tokens."""
    return form.of(path) is not None or path.endswith(("/count_tokens", ":countTokens"))


def requested(copy: Copy, upstream: str, path: str, headers: Mapping[str, str], body: bytes) -> Requested:
    """The question to a recorder about a request with this decoded body; sets the number of `copy`."""
    copy.number = next(_numbers)
    return Requested(
        number=copy.number,
        upstream=upstream,
        path=path,
        headers=identifying(headers.items()),
        body=body,
        began=copy.began,
    )


class ManagedAnswer:
    """The bodies sent to the model, one after another, and the one answer that the client gets.

    `begin`, `received` and `ended` are called for each answer of the model, `last` when none follows. What the client
    gets also goes into `copy`.
    """

    def __init__(
        self,
        requested: Requested,
        managed: Managed,
        *,
        recorder: Recorder,
        copy: Copy,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._requested, self._managed, self._recorder, self.copy, self._now = requested, managed, recorder, copy, now
        #: The next body for the model.
        self.body = managed.body
        #: The client's status; and whether it gets a stream, which begins at once, or a body, which comes at the end.
        self.status = 0
        self.stream = False
        #: Whether the client got the whole answer; set at its end.
        self.whole = False
        self._is_broken = False
        #: Whether the model's first answer is a stream that broke off: the client's then breaks off, as without us.
        self.is_cut = False
        self._is_first = False
        self._is_coming = False  # an answer has begun and not ended
        self._merged: MergedAnswer | None = None
        self._encoding = ""
        self._content = Bounded()
        self._calls = Calls()
        self._first = 0.0
        self._late = b""

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> bool:
        """Begins an answer of the model. Returns False if it cannot be used: a first answer then passes unchanged, a
        continuation's counts as broken off.
        """
        fields = {name.lower(): value for name, value in headers}
        stream = is_stream(fields)
        is_usable = 200 <= status < 300 and status not in _BARE
        if self._merged is None:
            own_form = form.of(self._requested.path)
            if not is_usable or own_form is None:
                return False
            self._merged = merged(own_form.NAME, stream=stream, ours=self._managed.tools)
            self.status, self.stream, self._is_first = status, stream, True
            self.copy.answered(status, {name: fields[name] for name in fields if name not in _FRAMING}.items())
        elif not is_usable or stream != self.stream:
            return False
        else:
            self._is_first = False
        self._encoding = fields.get("content-encoding", "")
        self._content, self._first, self._is_coming = Bounded(), self._now(), True
        self._late = self._merged.feed(b"")
        return True

    def received(self, data: bytes) -> bytes:
        """The bytes for the client now, given the next bytes of the model's answer."""
        assert self._merged is not None
        self._content.add(data)
        # We asked for an answer without an encoding. One that has one all the same is read at its end.
        return b"" if self._encoding or not data else self._passing(self._merged.feed(data))

    def ended(self, *, complete: bool) -> Future[Managed] | None:
        """Ends an answer of the model; returns what the recorder decides, None if the answer broke off."""
        assert self._merged is not None
        self._is_coming = False
        answer = decoded(self._content.bytes(), self._encoding)
        if self._encoding:
            self._late += self._merged.feed(answer)
        if not is_whole(answer, stream=self.stream, complete=complete):
            self.is_cut = self.stream and self._is_first
            self.broke()
            return None
        self._calls = self._merged.end()
        return self._recorder.ask(
            Answered(
                number=self._requested.number,
                status=self.status,
                answer=answer,
                stream=self.stream,
                whole=not self._content.cut,
                first=self._first,
                ended=self._now(),
            )
        )

    def goes_on(self, managed: Managed) -> bool:
        """Whether the model gets a continuation, `body`; not if the client has calls to answer."""
        waits = self._calls.ours > 0 and not self._calls.others
        self.body = managed.body if waits else b""
        if waits and not self.body:  # the recorder has died: the client will ask again
            self.broke()
        return bool(self.body)

    def broke(self) -> None:
        """Takes note that a continuation is not possible, or something of ours failed."""
        self._is_broken = True

    def last(self) -> bytes:
        """The last bytes for the client. If a body has to say that the answer broke off, `status` changes with it."""
        assert self._merged is not None
        self.whole = not self._is_broken
        if self.whole:
            return self._passing(self._merged.close())
        if not self.stream:
            self.status = BROKEN
            self.copy.answered(BROKEN, [("content-type", "application/json")])
        return self._passing(self._merged.broke())

    def settle(self) -> None:
        """Ends an answer without an end: a client that has left may still have got all of it."""
        if self._is_coming:
            self.ended(complete=False)

    def leave(self) -> None:
        """Ends everything, and hands on the copy."""
        self.settle()
        if self.whole:
            self.copy.end()
        else:
            self.copy.leave()

    def _passing(self, data: bytes) -> bytes:
        late, self._late = self._late, b""
        self.copy.received(late + data)
        return late + data


def passing(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Those headers of the first answer that the client gets."""
    return [(name, value) for name, value in headers if name.decode("latin-1").lower() not in _FRAMING]


async def come(future: Future[Managed]) -> Managed:
    """The recorder's decision. It is not cancelled when the client goes: it may come after that."""
    return await asyncio.shield(asyncio.wrap_future(future))
