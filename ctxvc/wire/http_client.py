"""A client of the HTTP library that the SDKs use, which records what passes: no server, no other process."""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from ctxvc.errors import NotFound
from ctxvc.wire import forward, trouble
from ctxvc.wire.exchange import Copy, NoRecorder, Recorder

#: As both SDKs set them for a client of their own. Their time-out they give with each request.
_DEFAULTS: dict[str, Any] = {
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}
#: Where a copy waits for its answer, in a request.
_COPY = "ctxvc.copy"
_log = logging.getLogger("ctxvc")


def http_client(*, store: str | Path | None = None, session: str = "", **options: Any) -> httpx2.Client:
    """A client for `anthropic.Anthropic(http_client=…)`, `openai.OpenAI(http_client=…)` and whatever else takes one.

    Requests to a model are recorded with their answers, in the store at the path `store`, else in the project's, which
    is the nearest from the working folder upwards and is made if there is none; in the session of that name, if one is
    given. All else is as without: `options` are those of `httpx2.Client`. What is still in the queue is recorded by
    `close`, and when the program ends.
    """
    return _Client(_opened(store, session), options)


def async_http_client(*, store: str | Path | None = None, session: str = "", **options: Any) -> httpx2.AsyncClient:
    """As `http_client`, for `anthropic.AsyncAnthropic` and `openai.AsyncOpenAI`."""
    return _AsyncClient(_opened(store, session), options)


def _opened(store: str | Path | None, session: str) -> _Recording:
    from ctxvc.core import variables
    from ctxvc.store.git import program
    from ctxvc.store.project import locate
    from ctxvc.wire.recorder import open_recorder

    folder = Path.cwd()
    if store is None:
        try:
            store = locate.find(folder)
        except NotFound:
            store = locate.project_root(folder) / locate.FOLDER
    path = Path(store).absolute()
    report = _LoggedOnce(path)
    if variables.is_recording_off(program.environment()):
        _log.warning("%s is off: nothing is recorded", variables.RECORDING)
        return _Recording(NoRecorder(), report)
    return _Recording(open_recorder(path, session=session, cwd=folder, on_trouble=report), report)


class _LoggedOnce:
    """Logs the first reason why something is not recorded, and keeps it for who asks later."""

    def __init__(self, store: Path) -> None:
        self._store, self._done = store, False

    def __call__(self, reason: str) -> None:
        if not self._done:
            self._done = True
            trouble.report(self._store, reason)
            _log.warning("not recorded, but sent: %s", reason)


class _Recording:
    """The hooks of a client: what is sent and what is answered, for a recorder."""

    def __init__(self, recorder: Recorder, report: Callable[[str], None]) -> None:
        self._recorder, self._report = recorder, report
        self.close = recorder.close

    def request(self, request: httpx2.Request) -> None:
        call = forward.call(request.url.path) if request.method == "POST" else None
        if call is None:
            return
        try:
            body = request.content
        except httpx2.RequestNotRead:
            return  # an upload
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        copy = Copy(*call, headers, record=self._recorder.record, report=self._failed)
        copy.sent(body)
        request.extensions[_COPY] = copy

    def response(self, response: httpx2.Response) -> Copy | None:
        """The copy that the answer's body goes to; None for an answer that is not recorded."""
        copy: Copy | None = response.request.extensions.pop(_COPY, None)
        if copy is not None:
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
            copy.answered(response.status_code, headers)
        return copy

    def _failed(self, error: Exception) -> None:
        self._report(f"{type(error).__name__}: {error}")


class _Client(httpx2.Client):
    def __init__(self, recording: _Recording, options: dict[str, Any]) -> None:
        def answered(response: httpx2.Response) -> None:
            if copy := recording.response(response):
                assert isinstance(response.stream, httpx2.SyncByteStream)
                response.stream = _Stream(response.stream, copy)

        super().__init__(**_with_hooks(options, recording.request, answered))
        self._end = weakref.finalize(self, recording.close)

    def close(self) -> None:
        super().close()
        self._end()

    def __exit__(self, *failure: Any) -> None:  # which closes without `close`
        super().__exit__(*failure)
        self._end()


class _AsyncClient(httpx2.AsyncClient):
    def __init__(self, recording: _Recording, options: dict[str, Any]) -> None:
        async def sent(request: httpx2.Request) -> None:
            recording.request(request)

        async def answered(response: httpx2.Response) -> None:
            if copy := recording.response(response):
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = _AsyncStream(response.stream, copy)

        super().__init__(**_with_hooks(options, sent, answered))
        self._end = weakref.finalize(self, recording.close)

    async def aclose(self) -> None:
        await super().aclose()
        self._end()

    async def __aexit__(self, *failure: Any) -> None:
        await super().__aexit__(*failure)
        self._end()


def _with_hooks(options: dict[str, Any], sent: Callable[..., Any], answered: Callable[..., Any]) -> dict[str, Any]:
    """The options with ours behind the person's own hooks, which may change a request."""
    own = options.get("event_hooks") or {}
    hooks = {"request": [*own.get("request", []), sent], "response": [answered, *own.get("response", [])]}
    return {**_DEFAULTS, **options, "event_hooks": hooks}


class _Stream(httpx2.SyncByteStream):
    """An answer's body as it comes, a copy of which is kept."""

    def __init__(self, stream: httpx2.SyncByteStream, copy: Copy) -> None:
        self._stream, self._copy = stream, copy

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._copy.received(chunk)
            yield chunk
        self._copy.end()

    def close(self) -> None:
        self._stream.close()
        self._copy.leave()


class _AsyncStream(httpx2.AsyncByteStream):
    """As `_Stream`."""

    def __init__(self, stream: httpx2.AsyncByteStream, copy: Copy) -> None:
        self._stream, self._copy = stream, copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._copy.received(chunk)
            yield chunk
        self._copy.end()

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._copy.leave()
