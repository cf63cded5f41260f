"""A client of the HTTP library that the SDKs use, which records what passes: no server, no other process."""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2

from ctxvc.errors import NotFound
from ctxvc.forms import form
from ctxvc.wire import forward, trouble
from ctxvc.wire.exchange import LARGEST, POLICY, Copy, Managed, NoRecorder, Recorder, Requested, decoded, managing
from ctxvc.wire.managed_answer import BROKEN, ManagedAnswer, come, is_asked, passing, requested

#: As both SDKs set them for a client of their own. Their time-out they give with each request.
_DEFAULTS: dict[str, Any] = {
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}
#: What waits in a request for its answer: its copy; what the recorder was asked; the client's answer, where it is made
#: of the model's; the mark of a continuation, which has its stream under that name in its response.
_COPY, _QUESTION, _ANSWER, _PART = "ctxvc.copy", "ctxvc.question", "ctxvc.answer", "ctxvc.part"
#: The client's own request, where another went out.
_OWN = "ctxvc.own"
_log = logging.getLogger("ctxvc")


def http_client(
    *,
    store: str | Path | None = None,
    session: str = "",
    budget: int = 0,
    policy: str = POLICY,
    **options: Any,
) -> httpx2.Client:
    """A client for `anthropic.Anthropic(http_client=…)`, `openai.OpenAI(http_client=…)` and whatever else takes one.

    Requests to a model are recorded with their answers, in the store at the path `store`, else in the project's, which
    is the nearest from the working folder upwards and is made if there is none; in the session of that name, if one is
    given. With a `budget`, in tokens, prompts are kept below it by the `policy`. All else is as without: `options` are
    those of `httpx2.Client`. What is still in the queue is recorded by `close`, and when the program ends.

    Raises: BadInput for a policy that is none.
    """
    return _Client(_opened(store, session, budget, policy), options)


def async_http_client(
    *,
    store: str | Path | None = None,
    session: str = "",
    budget: int = 0,
    policy: str = POLICY,
    **options: Any,
) -> httpx2.AsyncClient:
    """As `http_client`, for `anthropic.AsyncAnthropic` and `openai.AsyncOpenAI`."""
    return _AsyncClient(_opened(store, session, budget, policy), options)


def _opened(store: str | Path | None, session: str, budget: int, policy: str) -> _Recording:
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
    management = managing(budget, policy)
    recorder = open_recorder(path, session=session, cwd=folder, management=management, on_trouble=report)
    return _Recording(recorder, report)


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

    def request(self, request: httpx2.Request) -> Future[Managed] | None:
        """What goes out instead, if the recorder is asked."""
        call = forward.call(request.url.path) if request.method == "POST" else None
        if call is None or _PART in request.extensions:
            return None
        try:
            body = request.content
        except httpx2.RequestNotRead:
            return None  # an upload
        headers = _pairs(request.headers)
        copy = Copy(*call, headers, record=self._recorder.record, report=self.failed)
        copy.sent(body)
        request.extensions[_COPY] = copy
        if not self._recorder.manages or not is_asked(call[1]) or len(body) > LARGEST:
            return None
        try:
            body = decoded(body, request.headers.get("content-encoding", ""))
            question = requested(copy, *call, dict(request.headers), body)
            request.extensions[_QUESTION] = question
            return self._recorder.request(question)
        except ValueError:
            return None  # the copy tells
        except Exception as error:
            self.failed(error)
            return None

    def manage(self, request: httpx2.Request, managed: Managed) -> None:
        """Lets another body go out."""
        question: Requested = request.extensions.pop(_QUESTION)
        if not managed.body:
            return
        has_tools = bool(managed.tools) and form.of(question.path) is not None
        if has_tools:
            copy = request.extensions.pop(_COPY)
            request.extensions[_OWN] = _again(request, request.headers.raw, request.stream)
            request.extensions[_ANSWER] = ManagedAnswer(question, managed, recorder=self._recorder, copy=copy)
        request.headers = httpx2.Headers(forward.with_body(request.headers.raw, len(managed.body), plain=has_tools))
        request.stream = httpx2.ByteStream(managed.body)

    def response(self, response: httpx2.Response) -> Copy | ManagedAnswer | None:
        """What the answer's body goes to; None for an answer that is not recorded."""
        answer: ManagedAnswer | None = response.request.extensions.pop(_ANSWER, None)
        if answer is not None:
            if answer.begin(response.status_code, _pairs(response.headers)):
                response.headers = httpx2.Headers(passing(response.headers.raw))
                return answer
            response.request.extensions[_COPY] = answer.copy
        copy: Copy | None = response.request.extensions.pop(_COPY, None)
        if copy is not None:
            copy.answered(response.status_code, _pairs(response.headers))
        return copy

    def failed(self, error: Exception) -> None:
        self._report(f"{type(error).__name__}: {error}")


def _pairs(headers: httpx2.Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]


def _again(request: httpx2.Request, headers: Any, stream: Any) -> httpx2.Request:
    """Another request of an exchange that has begun."""
    extensions = {**request.extensions, _PART: True}
    return httpx2.Request(request.method, request.url, headers=headers, stream=stream, extensions=extensions)


def _continuation(request: httpx2.Request, body: bytes) -> httpx2.Request:
    headers = forward.with_body(request.headers.raw, len(body), plain=True)
    return _again(request, headers, httpx2.ByteStream(body))


def _replaced(response: httpx2.Response, own: httpx2.Response, copy: Copy) -> None:
    """Gives the response the head of that to the client's own request."""
    response.status_code, response.headers = own.status_code, own.headers
    copy.answered(own.status_code, _pairs(own.headers))


def _finished(response: httpx2.Response, answer: ManagedAnswer, data: bytes) -> None:
    """Gives the response a body that is all there."""
    if answer.status == BROKEN:
        response.status_code = BROKEN
        response.headers = httpx2.Headers({"content-type": "application/json"})
    response.headers["content-length"] = str(len(data))
    response.stream = httpx2.ByteStream(data)


class _Client(httpx2.Client):
    def __init__(self, recording: _Recording, options: dict[str, Any]) -> None:
        def sent(request: httpx2.Request) -> None:
            if future := recording.request(request):
                try:
                    recording.manage(request, future.result())
                except Exception as error:
                    recording.failed(error)

        def answered(response: httpx2.Response) -> None:
            assert isinstance(response.stream, httpx2.SyncByteStream)
            if _PART in response.request.extensions:
                response.extensions[_PART], response.stream = response.stream, httpx2.ByteStream(b"")
                return
            match recording.response(response):
                case Copy() as copy:
                    response.stream = _Stream(response.stream, copy)
                case ManagedAnswer() as answer:
                    merging = _Merging(self, response.request, response.stream, answer, recording.failed)
                    if answer.stream:
                        response.stream = merging
                        return
                    data = b"".join(merging)
                    if not merging.failed:
                        _finished(response, answer, data)
                        return
                    own = self.send(response.request.extensions[_OWN], stream=True, auth=None)
                    _replaced(response, own, answer.copy)
                    response.stream = _Stream(own.extensions[_PART], answer.copy)

        super().__init__(**_with_hooks(options, sent, answered))
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
            if future := recording.request(request):
                try:
                    recording.manage(request, await come(future))
                except Exception as error:
                    recording.failed(error)

        async def answered(response: httpx2.Response) -> None:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            if _PART in response.request.extensions:
                response.extensions[_PART], response.stream = response.stream, httpx2.ByteStream(b"")
                return
            match recording.response(response):
                case Copy() as copy:
                    response.stream = _AsyncStream(response.stream, copy)
                case ManagedAnswer() as answer:
                    merging = _AsyncMerging(self, response.request, response.stream, answer, recording.failed)
                    if answer.stream:
                        response.stream = merging
                        return
                    data = b"".join([chunk async for chunk in merging])
                    if not merging.failed:
                        _finished(response, answer, data)
                        return
                    own = await self.send(response.request.extensions[_OWN], stream=True, auth=None)
                    _replaced(response, own, answer.copy)
                    response.stream = _AsyncStream(own.extensions[_PART], answer.copy)

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


class _Merging(httpx2.SyncByteStream):
    """The model's answers as one: what follows the first is asked for when it has ended."""

    def __init__(
        self,
        client: httpx2.Client,
        request: httpx2.Request,
        stream: httpx2.SyncByteStream,
        answer: ManagedAnswer,
        report: Callable[[Exception], None],
    ) -> None:
        self._client, self._request, self._stream, self._answer = client, request, stream, answer
        self._report = report
        #: Whether something of ours failed before the client has got anything.
        self.failed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            complete = True
            try:
                for chunk in self._stream:
                    yield self._answer.received(chunk)
            except httpx2.TransportError:
                complete = False
            self._stream.close()
            if not self._goes_on(complete=complete) or not self._begins():
                break
        if not self.failed:
            yield self._answer.last()
            self._answer.leave()

    def _goes_on(self, *, complete: bool) -> bool:
        try:
            future = self._answer.ended(complete=complete)
            return future is not None and self._answer.goes_on(future.result())
        except Exception as error:
            self._report(error)
            self.failed = not self._answer.stream
            self._answer.broke()
            return False

    def _begins(self) -> bool:
        """Whether the continuation is answered."""
        try:
            sent = _continuation(self._request, self._answer.body)
            response = self._client.send(sent, stream=True, auth=None)
        except httpx2.TransportError:
            self._answer.broke()
            return False
        self._stream = response.extensions[_PART]
        if self._answer.begin(response.status_code, _pairs(response.headers)):
            return True
        self._answer.broke()
        return False

    def close(self) -> None:
        self._stream.close()
        self._answer.leave()


class _AsyncMerging(httpx2.AsyncByteStream):
    """As `_Merging`."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        request: httpx2.Request,
        stream: httpx2.AsyncByteStream,
        answer: ManagedAnswer,
        report: Callable[[Exception], None],
    ) -> None:
        self._client, self._request, self._stream, self._answer = client, request, stream, answer
        self._report = report
        #: Whether something of ours failed before the client has got anything.
        self.failed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            complete = True
            try:
                async for chunk in self._stream:
                    yield self._answer.received(chunk)
            except httpx2.TransportError:
                complete = False
            await self._stream.aclose()
            if not await self._goes_on(complete=complete) or not await self._begins():
                break
        if not self.failed:
            yield self._answer.last()
            self._answer.leave()

    async def _goes_on(self, *, complete: bool) -> bool:
        try:
            future = self._answer.ended(complete=complete)
            return future is not None and self._answer.goes_on(await come(future))
        except Exception as error:
            self._report(error)
            self.failed = not self._answer.stream
            self._answer.broke()
            return False

    async def _begins(self) -> bool:
        """Whether the continuation is answered."""
        try:
            sent = _continuation(self._request, self._answer.body)
            response = await self._client.send(sent, stream=True, auth=None)
        except httpx2.TransportError:
            self._answer.broke()
            return False
        self._stream = response.extensions[_PART]
        if self._answer.begin(response.status_code, _pairs(response.headers)):
            return True
        self._answer.broke()
        return False

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._answer.leave()
