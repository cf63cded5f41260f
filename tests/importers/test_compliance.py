"""The compliance suite of importers: what every format keeps, on its own files, on damaged ones and on growing ones.

A new format is in it by its name in `FORMATS` and its files in `tests/data`; lines that those lack go into `MORE`.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc import importers
from ctxvc.core.ledger import name_rules
from ctxvc.core.recording.events import Compacted, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import FORMATS, claude_code
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.store import Store
from tests.importers.claude_code.lines import WHOLE_LINES
from tests.importers.growing import assert_grows_into_the_whole, random_ends
from tests.importers.test_codex import compacted, event, item, output, user
from tests.importers.test_limits import FORMATS as BUILT
from tests.importers.test_pi import entry
from tests.making.conversation import block_of
from tests.making.events import messages, parts, written

DATA = Path(__file__).parents[1] / "data"
SHARED = os.environ.get("CTXVC_TEST_DATA", "")


def own_files(format: str) -> list[Path]:
    folder = DATA / {"ctxvc-trajectory": "trajectory", "anthropic-messages": "anthropic"}.get(format, format)
    return sorted(
        folder.glob(
            {"openhands": "*/base_state.json", "qwen-code": "chats/*.jsonl", "swe-agent": "*.traj"}.get(
                format, "*.json*"
            )
        )
    )


OWN = [(name, path) for name in FORMATS for path in own_files(name)]
LINES = [(name, path) for name, path in OWN if path.suffix == ".jsonl"]
#: Recordings of real sessions, which lie elsewhere.
REAL = [
    ("claude-code", "20-02395c1048-0.jsonl"),
    pytest.param("claude-code", "48-b4b05476e5-0.jsonl", marks=pytest.mark.slow),
    ("claude-code", "7e-c034df6095-2.jsonl"),
    ("codex", "a3-92ff332928-0.jsonl"),
    pytest.param("codex", "a5-7b22d8d4bd-0.jsonl", marks=pytest.mark.slow),
    pytest.param("claude-code", "86-9d11344fce-1.compacted.jsonl.gz", marks=pytest.mark.slow),
    pytest.param("codex", "00-34f597b72d-1.compacted.jsonl.gz", marks=pytest.mark.slow),
    pytest.param("pi", "before-compaction.jsonl.gz", marks=pytest.mark.slow),
]

#: Formats whose recordings are files of JSON; of the others, their own tests tell what they keep.
OF_JSON = tuple(name for name in FORMATS if name != "opencode")
#: Formats that find the conversation in whatever is there, or refuse the file where there is none.
LOGS = ("anthropic-messages", "openai-chat", "openai-responses")
#: Those logs whose messages have roles and stand in `messages`.
LOGS_OF_MESSAGES = LOGS[:2]
#: Formats whose files have a call of a model a line.
TRACERS = ("langsmith", "langfuse", "otel-genai")
#: Formats whose files are one document.
DOCUMENTS = ("swe-agent", "mini-swe-agent", "langgraph", "langchain")
#: Formats that refuse files without what they begin with.
REFUSING = (*LOGS, *DOCUMENTS, "openhands", "ctxvc-trajectory", "hf-trace", *TRACERS)
#: Files that are of a second format too, which is asked later.
ALSO = {("openai-chat", "github_issue.traj.json")}
#: Fields without which a header is none.
HEADER_KEYS = ("format", "type", "harness", "id")
#: So many bytes of a file suffice to know it, where it takes less or more than the first line.
HEAD = {
    "claude-code": 4_000,
    "ctxvc-trajectory": 100,
    "anthropic-messages": 600,
    "openai-chat": 700,
    "swe-agent": 1_000,
    "mini-swe-agent": 1_000,
    "openhands": 100,
    "langgraph": 400,
    "langchain": 400,
    "openai-responses": 700,
    "copilot-cli": 60,
}

#: Beginnings of files that are of another format, or of none.
OTHERS = {
    "anthropic-messages": [
        b'{"messages": []}',
        b'{"messages": [{"role": "tool", "content": "x"}]}',
        b'[{"role": "system", "content": "x"}]',
        b'[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {}}]}',
        b'{"type": "user", "message": {"role": "user", "content": "x"}}\n',
        b'{"role": "user", "content": "x", "extra": {}}\n',
    ],
    "claude-code": [
        b'{"type":"session_meta","payload":{}}\n',
        b'{"type":"session","version":3,"id":"x","cwd":"/"}\n',
        b'{"role":"user","content":"hi"}\n',
        b'{"type":["summary"],"sessionId":1}\n',
        b'[{"parentUuid":1,"isSidechain":1,"sessionId":1}]',
    ],
    "codex": [
        b'{"type":"session","id":"x","timestamp":"t","cwd":"/"}',
        b'{"type":"user","message":{"role":"user"},"uuid":"u"}',
        b'{"type":"session_meta","payload":[]}',
        b'{"type":["session_meta"],"payload":{}}',
        b'{"id":"x","timestamp":"t"}',
    ],
    "copilot-cli": [
        b'{"type":"session","id":"x","timestamp":"t","cwd":"/"}',
        b'{"type":"session.start","data":[],"parentId":null}',
        b'{"type":"session.start","data":{"sessionId":"x"}}',
        b'{"type":"user.message","data":{"sessionId":"x"},"parentId":null}',
    ],
    "openai-chat": [
        b'{"messages": []}',
        b'{"messages": [{"role": "user", "content": "either API has this"}]}',
        b'{"tools": [{"type": "function", "function": {"name": "f"}}], "input": "no messages"}',
        b'{"messages": [{"role": "system", "content": "x"}], "trajectory_format": "mini-swe-agent-1.1"}',
        b'[{"role": "system", "content": "x"}, {"role": "user", "content": "y", "extra": {}}]',
        b'{"history": [{"role": "system", "content": "x"}]}',
    ],
    "pi": [
        b'{"type":"session"}',
        b'{"type":"session_meta","payload":{"id":"x"}}',
        b'{"type":["session"],"id":"x","timestamp":"t","cwd":"/"}',
    ],
}

#: Lines of kinds that the files have not.
MORE: dict[str, list[Any]] = {
    "claude-code": WHOLE_LINES,
    "codex": [
        compacted("s", [user("one"), item("compaction", id="x"), output("c", [{"type": "input_text", "text": "t"}])]),
        user("two"),
        event("thread_rolled_back", num_turns=1),
    ],
    "pi": [
        entry("compaction", "k", "aaaa0009", summary="s", firstKeptEntryId="aaaa0003", tokensBefore=1),
        entry("message", "m", "k", message={"role": "bashExecution", "command": "ls", "output": "x", "exitCode": 1}),
    ],
}

of_every_file = pytest.mark.parametrize(("format", "path"), OWN, ids=lambda value: getattr(value, "name", value))
of_every_file_of_lines = pytest.mark.parametrize(
    ("format", "path"), LINES, ids=lambda value: getattr(value, "name", value)
)


def conversations_of(format: str, path: Path) -> list[list[Event]]:
    """The events of each conversation in a file, without those of other files beside it."""
    recording = Recording(path)
    if format == "claude-code":
        return [list(claude_code.events(recording))]
    return [list(events) for _, events in importers.conversations(recording, format)]


def events_of(format: str, path: Path) -> list[Event]:
    """The same, one conversation after the other."""
    return [event for events in conversations_of(format, path) for event in events]


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)


def warned(events: Iterable[Event]) -> list[int]:
    return [event.line for event in events if isinstance(event, Warned)]


# --- what is known as what


@of_every_file
def test_its_own_files_are_known_even_when_the_head_is_cut(format: str, path: Path) -> None:
    importer, data = importers.importer(format), path.read_bytes()
    least = HEAD.get(format) or len(data.partition(b"\n")[0])

    assert importers.detect(Recording(path)) == format
    assert importer.sniff(data)
    assert all(importer.sniff(data[:size]) for size in range(least, len(data), max(53, len(data) // 100)))


@pytest.mark.parametrize("format", FORMATS)
def test_no_file_of_another_format_is_taken_for_its_own(format: str) -> None:
    others = [path for other, path in OWN if other != format and (format, path.name) not in ALSO]

    assert [path.name for path in others if importers.importer(format).sniff(Recording(path).head())] == []


@pytest.mark.parametrize(("format", "head"), [(name, head) for name, heads in OTHERS.items() for head in heads])
def test_a_file_of_another_form_is_not_taken_for_its_own(format: str, head: bytes) -> None:
    assert not importers.importer(format).sniff(head)


@pytest.mark.parametrize("format", FORMATS)
@given(head=st.binary(max_size=200))
def test_any_bytes_can_be_sniffed(format: str, head: bytes) -> None:
    assert importers.importer(format).sniff(head) is False


# --- growth


def every_beginning_is_told_alike(format: str, path: Path, tmp_path: Path) -> list[Event]:
    """The events of a file that was cut after any line begin those of the whole; gives these."""
    lines = lines_of(path)
    growing = tmp_path / "growing" / f"{Recording(path).stem}.jsonl"
    growing.parent.mkdir()
    growing.write_bytes(b"".join(lines))
    whole = events_of(format, growing)
    for count in range(len(lines) + 1) if len(lines) < 40 else range(1, len(lines), len(lines) // 25):
        growing.write_bytes(b"".join(lines[:count]))
        try:
            begun = events_of(format, growing)
        except BadInput:
            assert not count, "a beginning of a file is refused"
            continue
        end = growing.stat().st_size
        assert begun == whole[: len(begun)]
        assert all(event.end <= end for event in begun if not isinstance(event, Opened | Warned))
        assert all(event.end > end for event in whole[len(begun) :] if isinstance(event, Said))
    return whole


@of_every_file_of_lines
def test_a_file_cut_after_any_line_tells_the_beginning_of_the_whole(format: str, path: Path, tmp_path: Path) -> None:
    every_beginning_is_told_alike(format, path, tmp_path)


@pytest.mark.skipif(not SHARED, reason="CTXVC_TEST_DATA names no folder with transcripts/ and trajectories/")
@pytest.mark.parametrize(("format", "name"), REAL)
def test_a_real_file_cut_after_any_line_does_too(format: str, name: str, tmp_path: Path) -> None:
    whole = every_beginning_is_told_alike(format, Path(SHARED) / "transcripts" / format / name, tmp_path)

    assert warned(whole) == []


@of_every_file_of_lines
def test_every_event_ends_after_its_line(format: str, path: Path) -> None:
    ends = [event.end for event in events_of(format, path) if not isinstance(event, Opened | Warned)]
    data = path.read_bytes()

    assert ends == sorted(ends)
    assert all(data[end - 1 : end] == b"\n" or end == len(data) for end in ends)


@of_every_file_of_lines
def test_a_line_that_is_still_being_written_says_nothing(format: str, path: Path, tmp_path: Path) -> None:
    *lines, last = lines_of(path)
    path = tmp_path / path.name
    path.write_bytes(b"".join(lines))
    whole = events_of(format, path)
    with path.open("ab") as file:
        file.write(last[: len(last) // 2])

    cut = events_of(format, path)

    assert [event for event in cut if not isinstance(event, Warned)] == whole
    assert warned(cut) in ([], [len(lines) + 1])
    if format in ("codex", "pi", "copilot-cli", "gemini-cli"):
        assert warned(cut) == []


@pytest.mark.parametrize("path", dict(reversed(OWN)).values(), ids=lambda path: path.name)
def test_a_second_import_of_the_same_adds_nothing(path: Path, store: Store) -> None:
    first = list(import_paths(store, [path], final=True))
    tips = store.all_tips()
    again = list(import_paths(store, [path], final=True))

    assert [outcome.error for outcome in first + again] == [None] * 2 * len(first)
    assert all(outcome.units for outcome in first)
    assert [outcome.units for outcome in again] == [0] * len(first)
    assert store.all_tips() == tips


@pytest.mark.parametrize(
    ("format", "path"),
    [(name, path) for name, path in dict(LINES).items() if importers.importer(name).grows or name in TRACERS],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_file_imported_at_random_cuts_gives_the_history_of_one_import(
    format: str, path: Path, tmp_path: Path
) -> None:
    """One of each format: what every file tells, cut after any line, is above."""
    data = path.read_bytes()

    assert_grows_into_the_whole(tmp_path, path.name, data, random_ends(data, 2, path.name), format=format)


# --- damage


@of_every_file_of_lines
def test_a_damaged_line_is_named_and_the_rest_is_told(format: str, path: Path, tmp_path: Path) -> None:
    first, *rest = lines_of(path)
    damaged = written(tmp_path / path.name, first, b'{"type":', b"\xff\xff{", b"7", *rest)

    events, whole = events_of(format, damaged), events_of(format, path)

    assert sorted(warned(events))[:3] == [2, 3, 4]
    assert len(warned(events)) == 3 + len(warned(whole))
    bodies = [(part.kind, part.call, part.body) for part in parts(events)]
    expected = [(part.kind, part.call, part.body) for part in parts(whole)]
    assert bodies == expected


@of_every_file_of_lines
def test_the_session_is_opened_before_anything_else(format: str, path: Path, tmp_path: Path) -> None:
    damaged = written(tmp_path / path.name, b"\xff\xfe{", *lines_of(path))
    if format in REFUSING:
        with pytest.raises(
            BadInput, match=r"not a header|not the header|neither a JSON document nor JSON lines|not a JSON document"
        ):
            events_of(format, damaged)
        return

    events = events_of(format, damaged)

    assert [type(event) for event in events[:3]] == [Opened, Warned, Opened]
    assert warned(events) == [1]
    assert isinstance(events[2], Opened)
    assert events[2].cwd == next(event.cwd for event in events_of(format, path) if isinstance(event, Opened))


@pytest.mark.parametrize("format", BUILT)
def test_nesting_breaks_nothing_at_any_depth(format: str, tmp_path: Path) -> None:
    for depth in (10, *range(850, 1010, 10), 100_000):
        path = tmp_path / "deep.jsonl"
        deep = "[" * depth + "]" * depth
        path.write_text("\n".join(line.replace('"HERE"', deep) for line in BUILT[format](deep)) + "\n")
        assert len(messages(events_of(format, path))) >= 2


#: Keys that mean something to some format.
_KEYS = st.sampled_from(["type", "text", "id", "content", "uuids", "kind", "tool_use_id", "input", "source", "role"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
WRONG: list[Any] = [None, True, 0, -1.5, "x", "", [], [[]], [[], 7], {}, {"type": "text"}, {"role": "user"}, ["x", 7]]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def is_read_or_refused(format: str, path: Path) -> bool:
    """Asserts that whatever is in the file, its events are sound, or it is refused; whether it was read."""
    assert importers.importer(format).sniff(path.read_bytes()) in (True, False)
    try:
        conversations = conversations_of(format, path)
    except BadInput:
        assert format in REFUSING
        return False
    assert conversations
    for events in conversations:
        is_sound(events)
    return True


def is_sound(events: list[Event]) -> None:
    assert isinstance(events[0], Opened)
    keys = [message.key for message in messages(events)]
    assert len(keys) == len(set(keys))
    assert all(not event.scope or not name_rules.problem(event.scope) for event in events if isinstance(event, Said))
    summaries = [message for event in events if isinstance(event, Compacted) for message in event.summary]
    for part in [*parts(events), *(part for message in summaries for part in message.parts)]:
        block_of(part)


@pytest.mark.parametrize("format", OF_JSON)
@settings(
    max_examples=settings().max_examples * 2 // 5,  # of each format
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_wrong_type_anywhere_breaks_the_reading(format: str, tmp_path: Path, data: st.DataObject) -> None:
    documents = [path for path in own_files(format) if path.suffix in (".json", ".traj")]
    if documents and (format not in {name for name, _ in LINES} or data.draw(st.booleans())):
        lines = [json.loads(data.draw(st.sampled_from(documents)).read_bytes())]
    else:
        of_lines = [path for other, path in LINES if other == format and other != "claude-code"]
        whole = lines_of(data.draw(st.sampled_from(of_lines))) if of_lines else []
        lines = [*map(json.loads, whole), *json.loads(json.dumps(MORE.get(format, [])))]
    # A place inside of what is replaced before it changes nothing any more.
    where = st.sampled_from(list(places(lines)))
    for _ in range(data.draw(st.integers(1, 4))):
        container, key = data.draw(where)
        container[key] = data.draw(JSON)

    is_read_or_refused(format, written(tmp_path / "damaged.jsonl", *lines))


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("format", [*LOGS, "ctxvc-trajectory", "hf-trace"])
def test_no_wrong_value_in_any_place_breaks_the_reading(format: str, wrong: Any, tmp_path: Path) -> None:
    """Each value of each file, where files are small enough for it, each by one of the wrong values."""
    path = tmp_path / "log.jsonl"
    done = 0
    for file in own_files(format):
        lines = (
            [json.loads(line) for line in lines_of(file)]
            if file.suffix == ".jsonl"
            else [json.loads(file.read_bytes())]
        )
        if format in LOGS and file.suffix == ".jsonl":
            lines = [max(lines, key=lambda line: len(json.dumps(line)))]
        for container, key in list(places(lines))[WRONG.index(wrong) :: len(WRONG)]:
            right, container[key] = container[key], wrong
            read = is_read_or_refused(format, written(path, *lines))
            assert read or format in LOGS or container is lines or key in HEADER_KEYS, "a header is all that it needs"
            done += read
            container[key] = right
        if format in LOGS:
            is_read_or_refused(format, written(path, wrong))
    assert done


# --- logs of requests


def user_says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model_says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def request(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": list(messages), **fields}


def texts(events: list[Event]) -> list[tuple[str, str]]:
    return [(message.key, message.parts[0].body.decode()) for message in messages(events)]


of_every_log = pytest.mark.parametrize("format", LOGS_OF_MESSAGES)


@of_every_log
def test_a_log_has_one_id_while_it_grows_and_another_file_of_its_name_has_another(format: str, tmp_path: Path) -> None:
    a, b = user_says("a"), user_says("b")
    ids = []
    for values in ([request(a)], [request(a), b], [request(b)]):
        opened = events_of(format, written(tmp_path / "log.jsonl", *values))[0]
        assert isinstance(opened, Opened)
        ids.append(opened.source)

    assert ids[0].startswith("log-")
    assert ids[0] == ids[1] != ids[2]


@of_every_log
def test_a_request_sent_again_or_cut_short_tells_nothing_and_is_no_fork(format: str, tmp_path: Path) -> None:
    a, b, c, d = user_says("a"), model_says("b"), user_says("c"), model_says("d")
    log = [request(a, b, c), request(a, b, c), request(a), request(a, b, c, d)]

    events = events_of(format, written(tmp_path / "log.jsonl", *log))

    assert texts(events) == [("message:1", "a"), ("message:2", "b"), ("message:3", "c"), ("message:4", "d")]
    assert [type(event) for event in events] == [Opened, *[Said] * 4]


@of_every_log
def test_messages_a_line_follow_one_another(format: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", user_says("a"), model_says("b"), user_says("a"))

    assert texts(events_of(format, path)) == [("message:1", "a"), ("message:2", "b"), ("message:3", "a")]


@of_every_log
def test_a_line_that_is_no_json_is_skipped_with_a_warning(format: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", user_says("a"), b'{"role": "us', model_says("b"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    events = events_of(format, path)

    assert texts(events) == [("message:1", "a"), ("message:2", "b")]
    assert warned(events) == [2]


@pytest.mark.parametrize(
    "content",
    [b"", b"  \n", b"{", b"no", b"[]", b"{}", b"7", b"null", b'[{"role": 1}]', b'[{"traj": []}]', b'"\xff"'],
)
@of_every_log
def test_a_file_without_a_message_is_refused(format: str, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)

    with pytest.raises(BadInput):
        events_of(format, path)
