"""Events are the same however their bytes are divided, and whichever way their lines end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.forms.sse import Decoder, Event, events, is_stream

LINES = st.sampled_from(
    ["", "", "data: a", "data:b", "data", "event: x", "event:", ": ping", "id: 1", "data:  é", "junk"]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.lists(st.integers(0, 200), max_size=8))
@example([("data: a", "\r\n"), ("", "\r\n")], [8, 9])
@example([("data: a", "\r"), ("", "\r"), ("data: b", "\n"), ("", "\n")], [8, 9, 10])
def test_events_do_not_depend_on_chunks(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    data = "".join(line + end for line, end in lines).encode()
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    chunks = [data[begin:end] for begin, end in pairwise(places)]

    assert list(events(chunks)) == list(events([data])) == list(events(bytes([byte]) for byte in data))


@given(st.lists(LINES, max_size=12))
def test_events_do_not_depend_on_how_lines_end(lines: list[str]) -> None:
    first, *others = (list(events([(end.join(lines) + end).encode()])) for end in ("\n", "\r\n", "\r"))

    assert others == [first, first]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [Event("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("", "a")]),
        (b"event: x\ndata: a\ndata:b\ndata:  c\ndata\n\n", [Event("x", "a\nb\n c\n")]),
        (b"event: x\n\ndata: a\n\n", [Event("", "a")]),
        (b": ping\n\nid: 1\nretry: 5\ndata: a\r\n\r\n", [Event("", "a")]),
        (b"data: cut", [Event("", "cut")]),
        (b"data: \xff\n\n", [Event("", "\ufffd")]),
        (b"", []),
    ],
)
def test_events_are_read_as_the_specification_says(data: bytes, expected: list[Event]) -> None:
    assert list(events([data])) == expected


def test_an_event_comes_out_with_the_chunk_that_ends_it() -> None:
    decoder = Decoder()

    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\r\ndata: b") == [Event("", "a")]
    assert decoder.end() == [Event("", "b")] and decoder.end() == []


@pytest.mark.parametrize(
    ("answer", "stream", "expected"),
    [
        (b'{"a": 1}', True, False),
        (b" [", True, False),
        (b"", True, True),
        (b"data: 1", False, True),
        (b": ping", False, True),
        (b"", False, False),
        (b"<html>", False, False),
    ],
)
def test_the_bytes_tell_a_stream_from_a_body(answer: bytes, *, stream: bool, expected: bool) -> None:
    assert is_stream(answer, stream=stream) is expected
