"""HTTP clients for SDKs that record every request and answer, without a server or another process."""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2

from ctxvc.errors import NotFound, reason_of
from ctxvc.forms import form
from ctxvc.wire import forward, trouble
from ctxvc.wire.exchange import LARGEST, POLICY, Copy, Managed, NoRecorder, Recorder, Requested, decoded, managing
from ctxvc.wire.managed_answer import BROKEN, ManagedAnswer, come, is_asked, passing, requested

#: The options that both SDKs set for their own client. They pass a time-out with each request.
_DEFAULTS: dict[str, Any] = {
    "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    "follow_redirects": True,
}
#: What a request keeps for its answer: its copy; the question to the recorder; the client's answer, if made from the
#: model's; the mark of a continuation, whose response has its stream under that name.
_COPY, _QUESTION, _ANSWER, _PART = "ctxvc.copy", "ctxvc.question", "ctxvc.answer", "ctxvc.part"
#: The client's own request, if another went out.
_OWN = "ctxvc.own"
_log = logging.getLogger("ctxvc")

_T = TypeVar("_T")
_Report = Callable[[Exception], None]


def http_client(
    *,
    store: str | Path | None = None,
    session: str = "",
    budget: int = 0,
    policy: str = POLICY,
    **options: Any,
) -> httpx2.Client:
    """An HTTP client for `anthropic.Anthropic(http_client=…)`, `openai.OpenAI(http_client=…)` and the like.

    It records requests to a model with their answers, in the store at the path `store`, or in the project's: the
    nearest one from the working folder upwards, created if there is none. `session` names the session to record in.
    With a `budget` in tokens, the `policy` keeps prompts below it. `options` are those of `httpx2.Client`, and nothing
    else changes. `close`, and the end of the program, record what is still in the queue.

    Raises: BadInput for an unknown policy.
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
    """Logs the first reason why something is not recorded, and keeps it for later questions."""

    def __init__(self, store: Path) -> None:
        self._store, self._done = store, False

    def __call__(self, reason: str) -> None:
        if not self._done:
            self._done = True
            trouble.report(self._store, reason)
            _log.warning("not recorded, but sent: %s", reason)


class _Recording:
    """The hooks of a client, which give a recorder its requests and answers."""

    def __init__(self, recorder: Recorder, report: Callable[[str], None]) -> None:
        self._recorder, self._report = recorder, report
        self.close = recorder.close

    def request(self, request: httpx2.Request) -> Future[Managed] | None:
        """Copies a request; what goes out instead, None if the recorder is not asked."""
        call = form.call(request.url.path) if request.method == "POST" else None
        if call is None or _PART in request.extensions:
            return None
        try:
            body = request.content
        except httpx2.RequestNotRead:
            return None  # an upload
        headers = _pairs(request.headers)
        copy = Copy(call.provider, call.path, headers, record=self._recorder.record, report=self.failed)
        copy.sent(body)
        request.extensions[_COPY] = copy
        if not self._recorder.manages or not is_asked(call.path) or len(body) > LARGEST:
            return None
        try:
            body = decoded(body, request.headers.get("content-encoding", ""))
            question = requested(copy, call.provider, call.path, dict(request.headers), body)
            request.extensions[_QUESTION] = question
            return self._recorder.ask(question)
        except ValueError:
            return None  # the copy reports it
        except Exception as error:
            self.failed(error)
            return None

    def manage(self, request: httpx2.Request, managed: Managed) -> None:
        """Replaces the request's body by the managed one, if there is one."""
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
        """What takes the answer's body; None for an answer that is not recorded."""
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

    async def sent(self, way: _Way, request: httpx2.Request) -> None:
        """The client's hook for a request before it goes out."""
        if future := self.request(request):
            try:
                self.manage(request, await way.result(future))
            except Exception as error:
                self.failed(error)

    async def answered(self, way: _Way, response: httpx2.Response) -> None:
        """The client's hook for an answer before it is read."""
        if _PART in response.request.extensions:
            response.extensions[_PART], response.stream = response.stream, httpx2.ByteStream(b"")
            return
        match self.response(response):
            case Copy() as copy:
                response.stream = _Copied(way, response.stream, copy)
            case ManagedAnswer() as answer:
                merging = _Merging(way, response.request, response.stream, answer, self.failed)
                if answer.stream:
                    response.stream = merging
                    return
                data = b"".join([chunk async for chunk in merging])
                if not merging.failed:
                    _finished(response, answer, data)
                    return
                own = await way.send(response.request.extensions[_OWN])
                _replaced(response, own, answer.copy)
                response.stream = _Copied(way, own.extensions[_PART], answer.copy)

    def failed(self, error: Exception) -> None:
        self._report(reason_of(error))


def _pairs(headers: httpx2.Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]


def _again(request: httpx2.Request, headers: Any, stream: Any) -> httpx2.Request:
    """Another request within an exchange that has begun."""
    extensions = {**request.extensions, _PART: True}
    return httpx2.Request(request.method, request.url, headers=headers, stream=stream, extensions=extensions)


def _continuation(request: httpx2.Request, body: bytes) -> httpx2.Request:
    headers = forward.with_body(request.headers.raw, len(body), plain=True)
    return _again(request, headers, httpx2.ByteStream(body))


def _replaced(response: httpx2.Response, own: httpx2.Response, copy: Copy) -> None:
    """Gives the response the head of the answer to the client's own request."""
    response.status_code, response.headers = own.status_code, own.headers
    copy.answered(own.status_code, _pairs(own.headers))


def _finished(response: httpx2.Response, answer: ManagedAnswer, data: bytes) -> None:
    """Gives the response a complete body."""
    if answer.status == BROKEN:
        response.status_code = BROKEN
        response.headers = httpx2.Headers({"content-type": "application/json"})
    response.headers["content-length"] = str(len(data))
    response.stream = httpx2.ByteStream(data)


class _Client(httpx2.Client):
    def __init__(self, recording: _Recording, options: dict[str, Any]) -> None:
        async def result(future: Future[Managed]) -> Managed:
            return future.result()

        async def send(request: httpx2.Request) -> httpx2.Response:
            return self.send(request, stream=True, auth=None)

        way = _Way(result, send, _AtOnce)
        hooks = (
            lambda request: _now(recording.sent(way, request)),
            lambda answer: _now(recording.answered(way, answer)),
        )
        super().__init__(**_with_hooks(options, *hooks))
        self._end = weakref.finalize(self, recording.close)

    def close(self) -> None:
        super().close()
        self._end()

    def __exit__(self, *failure: Any) -> None:  # which closes without `close`
        super().__exit__(*failure)
        self._end()


class _AsyncClient(httpx2.AsyncClient):
    def __init__(self, recording: _Recording, options: dict[str, Any]) -> None:
        way = _Way(come, partial(self.send, stream=True, auth=None), lambda stream: stream)
        hooks = partial(recording.sent, way), partial(recording.answered, way)
        super().__init__(**_with_hooks(options, *hooks))
        self._end = weakref.finalize(self, recording.close)

    async def aclose(self) -> None:
        await super().aclose()
        self._end()

    async def __aexit__(self, *failure: Any) -> None:
        await super().__aexit__(*failure)
        self._end()


def _with_hooks(options: dict[str, Any], sent: Callable[..., Any], answered: Callable[..., Any]) -> dict[str, Any]:
    """The options with our hooks: for requests after the person's own, which may change them, for answers before."""
    own = options.get("event_hooks") or {}
    hooks = {"request": [*own.get("request", []), sent], "response": [answered, *own.get("response", [])]}
    return {**_DEFAULTS, **options, "event_hooks": hooks}


def _now(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits, as with a synchronous client's `_Way`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("it waits")


class _Way(NamedTuple):
    """How a client does what takes time: ask the recorder, send another request, read a body."""

    result: Callable[[Future[Managed]], Awaitable[Managed]]
    send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]
    body: Callable[[Any], httpx2.AsyncByteStream]


class _AtOnce(httpx2.AsyncByteStream):
    """A synchronous body behind the interface of an asynchronous one."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        self._stream.close()


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body for synchronous and asynchronous clients."""

    @abstractmethod
    async def _next(self) -> bytes | None:
        """The next chunk; None at the end."""

    @abstractmethod
    async def _close(self) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := _now(self._next())) is not None:
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._next()) is not None:
            yield chunk

    def close(self) -> None:
        _now(self._close())

    async def aclose(self) -> None:
        await self._close()


class _Copied(_Body):
    """An answer's body, copied as it comes."""

    def __init__(self, way: _Way, stream: Any, copy: Copy) -> None:
        self._stream, self._copy = way.body(stream), copy
        self._chunks = aiter(self._stream)

    async def _next(self) -> bytes | None:
        chunk = await anext(self._chunks, None)
        if chunk is None:
            self._copy.end()
        else:
            self._copy.received(chunk)
        return chunk

    async def _close(self) -> None:
        await self._stream.aclose()
        self._copy.leave()


class _Merging(_Body):
    """The model's answers as one body: each continuation is requested when the answer before it has ended."""

    def __init__(self, way: _Way, request: httpx2.Request, stream: Any, answer: ManagedAnswer, report: _Report) -> None:
        self._way, self._request, self._answer, self._report = way, request, answer, report
        self._open(stream)
        self._is_over = False
        #: Whether something of ours failed before the client got anything.
        self.failed = False

    def _open(self, stream: Any) -> None:
        self._stream = self._way.body(stream)
        self._chunks = aiter(self._stream)

    async def _next(self) -> bytes | None:
        while not self._is_over:
            chunk, complete = None, True
            try:
                chunk = await anext(self._chunks, None)
            except httpx2.TransportError:
                complete = False
            if chunk is not None:
                return self._answer.received(chunk)
            await self._stream.aclose()
            self._is_over = not await self._goes_on(complete=complete) or not await self._begins()
            if self._is_over and not self.failed:
                return self._answer.last()
        if not self.failed:
            self._answer.leave()
        return None

    async def _goes_on(self, *, complete: bool) -> bool:
        try:
            future = self._answer.ended(complete=complete)
            return future is not None and self._answer.goes_on(await self._way.result(future))
        except Exception as error:
            self._report(error)
            self.failed = not self._answer.stream
            self._answer.broke()
            return False

    async def _begins(self) -> bool:
        """Sends the continuation; returns whether it is answered."""
        try:
            response = await self._way.send(_continuation(self._request, self._answer.body))
        except httpx2.TransportError:
            self._answer.broke()
            return False
        self._open(response.extensions[_PART])
        if self._answer.begin(response.status_code, _pairs(response.headers)):
            return True
        self._answer.broke()
        return False

    async def _close(self) -> None:
        await self._stream.aclose()
        self._answer.leave()
