"""A prompt that is managed goes out instead of the client's, and the client gets one answer of however many."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat

import pytest

from ctxvc.wire import proxy as product
from ctxvc.wire.exchange import Answered, Managed, Requested
from ctxvc.wire.managed_answer import ManagedAnswer
from tests.forms.answers import FORMS, MORE, OURS, TEXT, Answer, call, form_of
from tests.forms.dialects import DIALECTS
from tests.forms.test_merged import parts
from tests.wire.raw import KEY, OPEN, PATIENCE, PAUSE, RESET, Recording, Running, Step, Upstream, ask, post, running
from tests.wire.test_chunks import by_h11

PATH = "/v1/messages"
BODY = b'{"model": "m", "messages": [1]}'
MANAGED = b'{"model":"m","messages":[2]}'
AGAIN = b'{"model":"m","messages":[2,3]}'
FIRST, SECOND = Answer([TEXT, call("search")]), Answer([MORE, call("read")], 2)
UPSTREAMS = {"anthropic-messages": "anthropic", "gemini": "gemini"}

each_form = pytest.mark.parametrize("form", FORMS)
each_kind = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def response(data: bytes, *lines: str, stream: bool = False, status: str = "200 OK") -> bytes:
    """A whole answer on a connection that stays open: with a length, or of a stream in two chunks."""
    kind = "text/event-stream" if stream else "application/json"
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "X-Id: 7", *lines]
    if not stream:
        return "\r\n".join([*head, f"Content-Length: {len(data)}", "", ""]).encode() + data
    half = len(data) // 2
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (data[:half], data[half:]) if piece)
    return "\r\n".join([*head, "Transfer-Encoding: chunked", "", ""]).encode() + framed + b"0\r\n\r\n"


def body_of(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[2]


def content(data: bytes) -> bytes:
    """What is in an answer that a client got."""
    head, _, body = data.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    read, whole = by_h11(body)
    assert whole
    return read


def complete(data: bytes) -> bool:
    """Whether an answer is all there."""
    head, found, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: ([0-9]+)", head)
    return bool(found) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))


def tools(_requested: Requested) -> Managed:
    return Managed(body=MANAGED, tools=OURS)


def once(_answered: Answered) -> Managed:
    """A continuation after the first answer."""
    return Managed(body=AGAIN) if b"call_search" in _answered.answer or b'"search"' in _answered.answer else Managed()


@contextmanager
def managing(
    upstream: Upstream,
    requests: Callable[[Requested], Managed],
    answers: Callable[[Answered], Managed] = lambda _: Managed(),
    name: str = "anthropic",
) -> Iterator[Running]:
    base = f"http://127.0.0.1:{upstream.port}" + ("/v1" if name == "openai" else "")
    with running({name: base}, recording=Recording(requests, answers)) as proxy:
        yield proxy


def answers_in_turn(*answers: list[Step]) -> Callable[[bytes], list[Step]]:
    """Each answer in its turn, the last one again and again."""
    rest = chain(answers, repeat(answers[-1]))
    return lambda _request: next(rest)


# --- what goes out


def test_a_managed_body_goes_out_with_the_clients_headers(upstream: Upstream) -> None:
    upstream.steps = [response(b'{"id": 1}'), OPEN]
    with managing(upstream, lambda _: Managed(body=MANAGED)) as proxy:
        headers = ["x-A: 1", "Content-Encoding: gzip", "Accept-Encoding: gzip, br", "Authorization: Bearer k"]
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}?beta=1", gzip.compress(BODY), *headers), until=complete)

    assert upstream.requests == [
        f"POST {PATH}?beta=1 HTTP/1.1\r\nHost: 127.0.0.1:{upstream.port}\r\nx-A: 1\r\nAccept-Encoding: gzip, br\r\n"
        f"Authorization: Bearer k\r\nContent-Length: {len(MANAGED)}\r\n\r\n".encode()
        + MANAGED
    ]
    assert seen.data == response(b'{"id": 1}')
    (requested,), (exchange,) = proxy.recording.requested, proxy.recording.exchanges
    assert (requested.path, requested.upstream, requested.body) == (PATH, "anthropic", BODY)
    assert "authorization" not in requested.headers
    assert (exchange.number, exchange.body, exchange.answer) == (requested.number, BODY, b'{"id": 1}')
    assert exchange.began == requested.began and not proxy.recording.answered


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "says", [Managed(), Managed(tools=OURS), OSError("no store")], ids=["nothing", "tools", "fails"]
)
def test_the_clients_own_request_goes_out_where_nothing_is_said(
    chunked: bool, says: Managed | Exception, upstream: Upstream
) -> None:
    def requests(_requested: Requested) -> Managed:
        if isinstance(says, Exception):
            raise says
        return says

    upstream.steps = [response(FIRST.stream("anthropic-messages"), stream=True), OPEN]
    with managing(upstream, requests) as proxy:
        request = post(proxy.port, f"/{KEY}{PATH}", BODY, "Accept-Encoding: gzip")
        if chunked:
            head = request.partition(b"Content-Length")[0]
            request = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
        seen = ask(proxy.port, request, until=complete)

    (sent,) = upstream.requests
    assert sent.partition(b"\r\n\r\n")[2] == request.partition(b"\r\n\r\n")[2]
    assert b"Accept-Encoding: gzip\r\n" in sent
    assert seen.data == response(FIRST.stream("anthropic-messages"), stream=True)
    assert [str(trouble) for trouble in proxy.troubles] == (["no store"] if isinstance(says, Exception) else [])
    assert [exchange.body for exchange in proxy.recording.exchanges] == [BODY]


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/v1beta/models/m:countTokens", "/v1/responses/compact", "/v1/files"]
)
def test_counts_are_managed_too_and_nothing_else_is(path: str, upstream: Upstream) -> None:
    upstream.steps = [response(b'{"input_tokens": 5}'), OPEN]
    base = f"http://127.0.0.1:{upstream.port}"
    recording = Recording(tools)
    with running({"anthropic": base, "gemini": base, "openai": base}, recording=recording) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{path}", BODY), until=complete)

    is_count = path.lower().replace("_", "").endswith("counttokens")
    assert body_of(upstream.requests[0]) == (MANAGED if is_count else BODY)
    assert [requested.path for requested in recording.requested] == ([path] if is_count else [])
    assert content(seen.data) == b'{"input_tokens": 5}'


def test_a_body_that_is_too_large_passes_as_it_is(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxvc.wire import managed_proxy

    monkeypatch.setattr(managed_proxy, "LARGEST", 1000)
    upstream.steps = [response(b"{}"), OPEN]
    body = bytes(1100)
    with managing(upstream, tools) as proxy:
        ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", body), until=complete)
        head = f"POST /{KEY}{PATH} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = [b"%x\r\n%s\r\n" % (550, body[:550])] * 2
        ask(proxy.port, head.encode(), *chunks, b"0\r\n\r\n", until=complete)

    assert body_of(upstream.requests[0]) == body
    assert by_h11(body_of(upstream.requests[1])) == (body, True)
    assert not proxy.recording.requested
    assert [exchange.body for exchange in proxy.recording.exchanges] == [body, body]


def test_a_client_that_waits_for_100_gets_one_from_us(upstream: Upstream) -> None:
    upstream.steps = [response(b"{}"), OPEN]
    with managing(upstream, lambda _: Managed(body=MANAGED)) as proxy:
        request = post(proxy.port, f"/{KEY}{PATH}", BODY, "Expect: 100-continue")
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
            client.sendall(request.removesuffix(BODY))
            assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(BODY)
            assert client.recv(1000) == response(b"{}")

    assert b"Expect" not in upstream.requests[0]


# --- what comes back


@each_form
@each_kind
def test_answers_with_calls_of_ours_are_one_for_the_client(form: str, stream: bool, upstream: Upstream) -> None:
    sent = [FIRST.stream(form), SECOND.stream(form)] if stream else [FIRST.body(form), SECOND.body(form)]
    upstream.answers = answers_in_turn(*([response(data, stream=stream), OPEN] for data in sent))
    name = UPSTREAMS.get(form, "openai")
    with managing(upstream, tools, once, name) as proxy:
        path = DIALECTS[form].path
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{path}", BODY, "Accept-Encoding: br"), until=complete)
    reply = form_of(form).reply(content(seen.data), stream=stream)
    as_one = form_of(form).reply(Answer([TEXT, MORE, call("read")], 2, 40, "answer-1").body(form), stream=False)

    assert [body_of(request) for request in upstream.requests] == [MANAGED, AGAIN]
    assert all(b"Accept-Encoding: identity\r\n" in request for request in upstream.requests)
    assert upstream.connections == 1
    assert reply.usage == as_one.usage and reply.id == as_one.id
    if form != "openai-responses":
        assert parts(form, reply) == parts(form, as_one)
    head = seen.data.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"X-Id: 7" in head
    assert [(one.answer, one.whole, one.status) for one in proxy.recording.answered] == [
        (data, True, 200) for data in sent
    ]
    (exchange,) = proxy.recording.exchanges
    assert (exchange.body, exchange.answer, exchange.whole) == (BODY, content(seen.data), True)
    assert {exchange.number} == {one.number for one in proxy.recording.answered}
    assert not proxy.troubles


def test_an_answer_without_a_call_of_ours_has_the_models_bytes(upstream: Upstream) -> None:
    for stream in (True, False):
        data = SECOND.stream("anthropic-messages") if stream else SECOND.body("anthropic-messages")
        upstream.steps = [response(data, stream=stream), OPEN]
        with managing(upstream, tools) as proxy:
            seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)
        assert content(seen.data) == data


def test_no_continuation_while_the_client_has_a_call_to_answer(upstream: Upstream) -> None:
    data = Answer([call("search"), call("read")]).stream("anthropic-messages")
    upstream.steps = [response(data, stream=True), OPEN]
    with managing(upstream, tools, lambda _: Managed(body=AGAIN)) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    assert len(upstream.requests) == 1 and len(proxy.recording.answered) == 1
    assert form_of("anthropic-messages").reply(content(seen.data), stream=True).stop == "tool_use"


def test_a_stream_passes_while_it_comes(upstream: Upstream) -> None:
    """Also before a call of ours, and in the continuation."""
    events = [FIRST.events("anthropic-messages"), SECOND.events("anthropic-messages")]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    released = [threading.Event(), threading.Event()]
    count = iter(range(2))

    def answers(_request: bytes) -> Iterator[Step]:  # a generator: each step is taken when the one before was sent
        number = next(count)
        chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events[number]]
        yield head + b"".join(chunks[:4])
        assert released[number].wait(PATIENCE)
        yield b"".join(chunks[4:]) + b"0\r\n\r\n"
        yield OPEN

    upstream.answers = answers  # type: ignore[assignment]
    with managing(upstream, tools, once) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
            client.sendall(post(proxy.port, f"/{KEY}{PATH}", BODY))
            data = b""
            for number, mark in enumerate((b"Reading", b"It says")):
                while mark not in data:
                    data += client.recv(65536)
                released[number].set()
            while not complete(data):
                data += client.recv(65536)

    assert b"call_read" in data


def test_an_answer_whose_client_leaves_at_its_last_event_is_recorded(upstream: Upstream) -> None:
    data = SECOND.stream("anthropic-messages")
    upstream.steps = [response(data, stream=True).removesuffix(b"0\r\n\r\n"), OPEN]  # its end is on its way
    with managing(upstream, tools) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=lambda data: b"message_stop" in data)

    assert b"message_stop" in seen.data
    assert [answered.answer for answered in proxy.recording.answered] == [data]
    assert [(exchange.whole, exchange.answer) for exchange in proxy.recording.exchanges] == [(True, data)]


def test_an_old_client_gets_an_end_instead_of_chunks(upstream: Upstream) -> None:
    upstream.answers = answers_in_turn(
        *([response(answer.stream("anthropic-messages"), stream=True), OPEN] for answer in (FIRST, SECOND))
    )
    with managing(upstream, tools, once) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY).replace(b"HTTP/1.1", b"HTTP/1.0"))

    head, _, body = seen.data.partition(b"\r\n\r\n")
    assert seen.end == "closed" and b"chunked" not in head
    assert form_of("anthropic-messages").reply(body, stream=True).complete


def test_an_answer_that_is_compressed_all_the_same_is_read(upstream: Upstream) -> None:
    packed = [gzip.compress(answer.stream("anthropic-messages")) for answer in (FIRST, SECOND)]
    upstream.answers = answers_in_turn(
        *([response(data, "Content-Encoding: gzip", stream=True), OPEN] for data in packed)
    )
    with managing(upstream, tools, once) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    assert form_of("anthropic-messages").reply(content(seen.data), stream=True).complete
    assert b"content-encoding" not in seen.data.lower()
    assert [one.whole for one in proxy.recording.exchanges] == [True]


#: What a server does instead of an answer → the statuses that are recorded.
REFUSALS: dict[str, tuple[list[Step], list[int]]] = {
    "too many requests": (
        [b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}", OPEN], [429]),
    "overloaded": ([b"HTTP/1.1 529 \r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"], [529]),
    "an error in chunks": ([response(b"{}", stream=True, status="500 Internal Server Error"), OPEN], [500]),
    "no content": ([b"HTTP/1.1 204 No Content\r\n\r\n", OPEN], [204]),
    "garbage": ([b"\x00\xff garbage\r\nmore\r\n"], []),
    "nothing": ([], []),
    "a reset": ([RESET], []),
    "a reset in the head": ([b"HTTP/1.1 200 OK\r\nX", RESET], []),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_answer_to_merge_passes_as_it_is(name: str, upstream: Upstream) -> None:
    upstream.steps, statuses = REFUSALS[name]
    size = sum(len(step) for step in upstream.steps if isinstance(step, bytes))
    seen = []
    with managing(upstream, tools, once) as proxy:
        for port, path in ((upstream.port, PATH), (proxy.port, f"/{KEY}{PATH}")):
            enough = size if OPEN in upstream.steps else size + 1
            seen.append(ask(port, post(port, path, BODY), until=lambda data, enough=enough: len(data) >= enough))

    assert seen[0] == seen[1]
    assert not proxy.troubles and not proxy.recording.answered
    assert [exchange.status for exchange in proxy.recording.exchanges] == statuses


def cut(data: bytes) -> bytes:
    """A response without its last half."""
    return data[: len(data) // 2]


#: What is wrong with a continuation.
BREAKS: dict[str, Callable[[bytes], list[Step]]] = {
    "too many requests": lambda _: [response(b"{}", status="429 Too Many Requests"), OPEN],
    "closed in the middle": lambda data: [cut(data)],
    "reset in the middle": lambda data: [cut(data), RESET],
    "nothing": lambda _: [],
    "a reset": lambda _: [RESET],
    "another kind of answer": lambda data: [response(b"{}", stream=b"event-stream" not in data), OPEN],
}


@each_kind
@pytest.mark.parametrize("name", BREAKS)
def test_a_continuation_that_breaks_tells_the_client_to_ask_again(name: str, stream: bool, upstream: Upstream) -> None:
    form = "anthropic-messages"
    first, second = ((one.stream(form) if stream else one.body(form)) for one in (FIRST, SECOND))
    upstream.answers = answers_in_turn(
        [response(first, stream=stream), OPEN], BREAKS[name](response(second, stream=stream))
    )
    with managing(upstream, tools, once) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    body = content(seen.data)
    assert b"overloaded_error" in body
    assert seen.data.startswith(b"HTTP/1.1 200 OK" if stream else b"HTTP/1.1 502 Bad Gateway")
    assert [(exchange.answer, exchange.whole) for exchange in proxy.recording.exchanges] == [(body, False)]
    # Where nothing came on a connection that was kept open, the request went out once more, on another.
    assert len(upstream.requests) == (3 if name in ("nothing", "a reset") else 2) and not proxy.troubles


@each_kind
def test_a_first_answer_that_breaks_does_too_and_a_stream_breaks_for_the_client(
    stream: bool, upstream: Upstream
) -> None:
    form = "anthropic-messages"
    upstream.steps = [cut(response(FIRST.stream(form) if stream else FIRST.body(form), stream=stream)), RESET]
    with managing(upstream, tools, once) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    if stream:
        assert seen.end == "closed" and not complete(seen.data) and b"error" not in seen.data
    else:
        assert b"overloaded_error" in content(seen.data)
    assert [exchange.whole for exchange in proxy.recording.exchanges] == [False]
    assert not proxy.recording.answered


@each_kind
def test_a_recorder_that_fails_behind_an_answer_is_reported_once(stream: bool, upstream: Upstream) -> None:
    """A client that has got nothing gets what its own request is answered, every other an error."""

    def fails(_answered: Answered) -> Managed:
        raise OSError("no store")

    form = "anthropic-messages"
    first, second = ((one.stream(form) if stream else one.body(form)) for one in (FIRST, SECOND))
    upstream.answers = answers_in_turn(*([response(data, stream=stream), OPEN] for data in (first, second)))
    with managing(upstream, tools, fails) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    assert [str(trouble) for trouble in proxy.troubles] == ["no store"]
    assert [body_of(request) for request in upstream.requests] == ([MANAGED] if stream else [MANAGED, BODY])
    assert b"overloaded_error" in content(seen.data) if stream else content(seen.data) == second


def test_a_connection_goes_on_behind_a_managed_exchange(upstream: Upstream) -> None:
    form = "anthropic-messages"
    turns = [FIRST, SECOND] * 2
    upstream.answers = answers_in_turn(*([response(one.stream(form), stream=True), OPEN] for one in turns))
    with managing(upstream, tools, once) as proxy:
        request = post(proxy.port, f"/{KEY}{PATH}", BODY)
        seen = ask(proxy.port, request, request, until=lambda data: data.count(b"\r\n0\r\n\r\n") == 2)

    assert seen.end == "open" and seen.data.count(b"HTTP/1.1 200 OK") == 2
    assert [body_of(sent) for sent in upstream.requests] == [MANAGED, AGAIN] * 2
    assert upstream.connections == 1
    assert len({one.number for one in proxy.recording.requested}) == 2


FIRST_WHOLE = response(FIRST.body("anthropic-messages"))
#: How a connection ends behind the first answer: with which steps there and at the next request, and whether the
#: client's connection ends with it.
ENDS: dict[str, tuple[list[list[Step]], bool]] = {
    "with a header": ([[response(FIRST.body("anthropic-messages"), "Connection: close")]], True),
    "by its version": ([[FIRST_WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"), OPEN]], True),
    "at the next request": ([[FIRST_WHOLE, OPEN], []], False),
    "with a reset at the next request": ([[FIRST_WHOLE, OPEN], [RESET]], False),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_upstream_that_ends_its_connection_is_connected_again(how: str, upstream: Upstream) -> None:
    steps, ends = ENDS[how]
    second = SECOND.body("anthropic-messages")
    upstream.answers = answers_in_turn(*steps, [response(second), OPEN])
    with managing(upstream, tools, once) as proxy:
        request = post(proxy.port, f"/{KEY}{PATH}", BODY)
        seen = ask(proxy.port, request) if ends else ask(proxy.port, request, until=complete)

    assert upstream.connections == 2 and seen.end == ("closed" if ends else "open")
    assert form_of("anthropic-messages").reply(content(seen.data), stream=False).complete


def test_two_at_once_do_not_mix(upstream: Upstream) -> None:
    form = "anthropic-messages"

    def answers(request: bytes) -> list[Step]:
        name = re.search(rb'"(one|two)"', request)
        assert name
        blocks = [MORE] if AGAIN[:-1] in request else [call("search")]
        data = response(Answer(blocks, id=name[1].decode()).stream(form), stream=True)
        return [data[:300], PAUSE, data[300:], OPEN]

    def named(body: bytes, data: bytes) -> bytes:
        return body[:-1] + (b',"one"}' if b"one" in data else b',"two"}')

    numbers: dict[int, bytes] = {}

    def requests(requested: Requested) -> Managed:
        numbers[requested.number] = requested.body
        return Managed(body=named(MANAGED, requested.body), tools=OURS)

    def again(answered: Answered) -> Managed:
        return Managed(body=named(AGAIN, numbers[answered.number])) if b"search" in answered.answer else Managed()

    upstream.answers = answers
    seen: dict[str, bytes] = {}
    with managing(upstream, requests, again) as proxy:

        def client(name: str) -> None:
            body = json.dumps([name]).encode()
            seen[name] = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", body), until=complete).data

        clients = [threading.Thread(target=client, args=(name,)) for name in ("one", "two")]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(PATIENCE)

    for name, data in seen.items():
        assert form_of(form).reply(content(data), stream=True).id == name
    assert len(seen) == 2


@pytest.mark.parametrize("place", ["before the model answers", "while it answers", "before the recorder does"])
def test_a_client_that_goes_away_ends_the_upstreams_request(place: str, upstream: Upstream) -> None:
    """And what it got of an answer is recorded as broken off."""
    waiting = threading.Event()

    def slow(requested: Requested) -> Managed:
        if place == "before the recorder does":
            waiting.wait(PATIENCE)
        return tools(requested)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        recording = Recording(slow)
        with running({"anthropic": f"http://127.0.0.1:{listening.getsockname()[1]}"}, recording=recording) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
                client.sendall(post(proxy.port, f"/{KEY}{PATH}", BODY))
                connection, _ = listening.accept()
                connection.settimeout(PATIENCE)
                if place != "before the recorder does":
                    while not connection.recv(65536).endswith(MANAGED):
                        pass
                if place == "while it answers":
                    answer = response(SECOND.stream("anthropic-messages"), stream=True)
                    connection.sendall(answer[: answer.index(b"It says") + 200])
                    while b"It says" not in client.recv(65536):
                        pass
            with connection, suppress(ConnectionResetError):
                assert connection.recv(65536) == b""
            waiting.set()
            assert [future.result(PATIENCE).body for future in recording.futures] == [MANAGED] * len(recording.futures)

    assert [exchange.whole for exchange in recording.exchanges] == ([False] if place == "while it answers" else [])
    assert not proxy.troubles


def test_an_upstream_that_is_not_there_is_said() -> None:
    with product.bound() as nobody:
        port = nobody.getsockname()[1]
    with running({"anthropic": f"http://127.0.0.1:{port}"}, recording=Recording(tools)) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY))

    assert seen.data.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")


def test_an_upstream_that_is_gone_once_the_recorder_has_answered_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def gone(_requested: Requested) -> Managed:
            connection, _ = listening.accept()
            listening.close()
            connection.close()
            return tools(_requested)

        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with running({"anthropic": base}, recording=Recording(gone)) as proxy:
            seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY))

    assert seen.data.startswith(b"HTTP/1.1 502 Bad Gateway\r\n") and not proxy.troubles


def test_a_fault_of_ours_in_an_answer_lets_the_clients_own_request_go_out(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a connection of its own: of the other, nobody knows where it is."""

    def fails(_self: ManagedAnswer, _data: bytes) -> bytes:
        raise RuntimeError("a fault")

    monkeypatch.setattr(ManagedAnswer, "received", fails)
    form = "anthropic-messages"
    upstream.answers = answers_in_turn(*([response(one.body(form)), OPEN] for one in (FIRST, SECOND)))
    with managing(upstream, tools, once) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY), until=complete)

    assert seen.data == response(SECOND.body(form))
    assert [body_of(request) for request in upstream.requests] == [MANAGED, BODY] and upstream.connections == 2
    assert [str(trouble) for trouble in proxy.troubles] == ["a fault"]
    assert [(exchange.status, exchange.answer) for exchange in proxy.recording.exchanges] == [(200, SECOND.body(form))]
