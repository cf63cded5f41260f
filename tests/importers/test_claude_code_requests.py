"""The host's own record of its requests, and prompts that plugins put together, on transcripts of the real client."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.request import request
from ctxvc.core.recording.events import Compacted, Said, Sent, Warned
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from ctxvc.session import proof
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry, Snapshot
from ctxvc.store.store import Store, create
from tests.importers.claude_code.lines import assert_every_beginning_is_told_alike
from tests.making.events import written
from tests.recording.test_files import take

DATA = Path(__file__).parents[1] / "data" / "claude-code"
TOOLS = DATA / "tool-search-2.1.330.jsonl"
PLUGIN = DATA / "plugin-compaction-2.1.330.jsonl"
OLDER = DATA / "plugin-compaction-2.1.287.jsonl"
#: A turn in which the host compacted by itself, and kept the newest call with its result.
BUILT_IN = DATA / "builtin-compaction-2.1.330.jsonl"
#: One process after another; tools come in while the first is at work, and two do nothing but compact by our plugin.
PROCESSES = DATA / "six-processes-2.1.330.jsonl"
WORDS = ["Print the needle.", "Say something.", "What now?", "A long job.", "And the end?"]

Line = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "store") as session:
        yield session


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def changed(tmp_path: Path, path: Path, *made: Line | bytes) -> Path:
    return written(tmp_path / path.name, *made)


def digest(message: Line) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = json.dumps({**message, "content": blocks}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sent(path: Path) -> dict[str, list[Line]]:
    """The name of each request in a transcript → the messages that were sent, read from it in another way."""
    messages: dict[str, Line] = {}
    replies: dict[str, list[Line]] = {}
    requests: dict[str, list[str]] = {}
    results: list[Line] = []  # of parallel calls, which are sent in one message
    for line in lines(path):
        match line:
            case {"type": "api-request-blob"}:
                messages[line["hash"]] = line["message"]
            case {"type": "user"}:
                messages.setdefault(digest(line["message"]), line["message"])
                if isinstance(line["message"]["content"], list):
                    results += line["message"]["content"]
                    together = {"role": "user", "content": [*results]}
                    messages.setdefault(digest(together), together)
            case {"type": "assistant", "message": {"id": name, "content": content}}:
                replies.setdefault(name, []).extend(content)
                results = []
            case {"type": "api-request"}:
                requests[line["id"]] = requests.get(line.get("base"), [])[: line["keep"]] + line["tail"]
    made = [{"role": "assistant", "content": content} for content in replies.values()]
    messages |= {digest(message): message for message in made}
    return {name: [messages[each] for each in tail] for name, tail in requests.items()}


def steps(store: Store, session: str) -> list[Entry]:
    (tip,) = store.tips(session).values()
    history = [*revision.history(store, tip)][::-1]
    return [entry for entry in history if entry.trailers["Ctxvc-Op"] == "step"]


def rendered(store: Store, entry: Entry) -> list[Line]:
    snapshot = proof.as_sent(store, revision.at(store, entry.commit))
    return request(snapshot.ledger, snapshot.bodies, snapshot.system, snapshot.tools).messages


def newest(store: Store, session: str) -> Snapshot:
    with StoredSession.open(store, session) as stored:
        return revision.now(stored)


def rows(store: Store, session: str) -> list[Row]:
    return [*newest(store, session).ledger.rows()]


# --- what was sent


@pytest.mark.parametrize(("path", "exact"), [(TOOLS, 6), (PLUGIN, 8), (BUILT_IN, 9), (PROCESSES, 7)])
def test_each_step_has_the_messages_that_were_sent(store: Store, path: Path, exact: int) -> None:
    session = take(store, path, redact=False, final=True).session
    replied = {line["requestRef"]: None for line in lines(path) if line.get("requestRef")}
    recorded = [
        formats.normalise_anthropic({"role": each["role"], "content": each["content"]} for each in sent(path)[name])
        for name in replied
    ]

    made = steps(store, session)
    assert len(made) == len(recorded)
    for entry, messages in zip(made, recorded, strict=True):
        assert rendered(store, entry) == messages
        assert revision.exactness(store, revision.at(store, entry.commit), sent=True) == "exact"
    assert proof.check_prompts(store) == (exact, [])


def test_tools_that_a_search_loads_are_there_from_the_next_request_on(store: Store) -> None:
    session = take(store, TOOLS, redact=False, final=True).session
    shapes = {line["shapeHash"]: line["shape"]["tools"] for line in lines(TOOLS) if "shape" in line}
    given = [line["shapeHash"] for line in lines(TOOLS) if line["type"] == "api-request"]

    assert len(shapes) == 2
    for entry, shape in zip(steps(store, session), given, strict=True):
        assert revision.at(store, entry.commit).tools == shapes[shape]


def test_a_prompt_is_exact_only_as_long_as_nothing_changed_it(store: Store) -> None:
    session = take(store, TOOLS, redact=False, final=True).session
    entry = steps(store, session)[-1]

    assert revision.exactness(store, newest(store, session)) == "exact"
    with Session(StoredSession.open(store, session)) as opened:
        opened.note("looked at")
    assert revision.exactness(store, newest(store, session)) == "reconstructed"
    assert revision.exactness(store, revision.at(store, entry.commit)) == "exact"


def test_a_text_that_no_line_has_is_the_clients_and_a_persons_words_stay_theirs(store: Store) -> None:
    session = take(store, TOOLS, redact=False, final=True).session
    snapshot = newest(store, session)
    texts = {snapshot.bodies.body(row): row.origin for row in rows(store, session) if row.kind == "user"}

    assert texts[b"Tool loaded."] == "client"
    assert [text for text, origin in texts.items() if origin == "human"] == [
        b"Ask an agent.",
        b"Fetch tools.",
        b"More.",
    ]


def test_a_system_message_keeps_its_role_where_it_may_stand(store: Store) -> None:
    session = take(store, TOOLS, redact=False, final=True).session
    entry = steps(store, session)[0]

    assert [message["role"] for message in rendered(store, entry)] == ["user", "system"]
    snapshot = revision.at(store, entry.commit)
    (system,) = (row for row in snapshot.ledger.rows() if row.role == "system")
    ledger = snapshot.ledger.with_rows(
        msgspec.structs.replace(row, state="pruned") for row in snapshot.ledger.rows() if row is not system
    )
    alone = request(ledger, snapshot.bodies, None, None).messages
    assert [message["role"] for message in alone] == ["user"], "first, and before no reply"
    assert system.origin == "client"


def test_results_of_parallel_calls_stand_in_the_order_in_which_they_were_sent(store: Store, tmp_path: Path) -> None:
    """The second call was answered first."""
    made = parallel()
    session = take(store, changed(tmp_path, TOOLS, *made), redact=False, final=True).session

    first, second = steps(store, session)
    answers = [block["tool_use_id"] for block in rendered(store, second)[2]["content"]]
    assert answers == ["t2", "t1"]
    assert [revision.exactness(store, revision.at(store, each.commit)) for each in (first, second)] == ["exact"] * 2


def parallel() -> list[Line]:
    envelope = {"sessionId": "s1", "version": "2.1.330", "cwd": "/w", "isSidechain": False}
    prompt = {"role": "user", "content": [{"type": "text", "text": "Do both."}]}
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}} for name in ("t1", "t2")]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in ("t2", "t1")]
    shape: Line = {"system": [{"type": "text", "text": "Be brief."}], "tools": []}
    shape_hash = hashlib.sha256(json.dumps(shape, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    both = [prompt, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]

    def line(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> Line:
        message = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": more["requestRef"], "model": "claude-x"}
        return {**envelope, "type": role, "uuid": uuid, "parentUuid": parent, "message": message, **more}

    def asked(name: str, messages: list[Line]) -> Line:
        tail = [digest(message) for message in messages]
        return {**envelope, "type": "api-request", "id": name, "shapeHash": shape_hash, "keep": 0, "tail": tail}

    return [
        line("u1", None, "user", "Do both.", promptSource="sdk"),
        {**envelope, "type": "api-request-shape", "shapeHash": shape_hash, "shape": shape},
        asked("q1", both[:1]),
        line("a1", "u1", "assistant", calls[:1], requestRef="q1"),
        line("a2", "a1", "assistant", calls[1:], requestRef="q1"),
        line("r2", "a2", "user", results[:1], toolUseResult={}),
        line("r1", "a1", "user", results[1:], toolUseResult={}),
        asked("q2", both),
        line("a3", "r1", "assistant", [{"type": "text", "text": "Done."}], requestRef="q2"),
        {"type": "cost-state", "totalCostUSD": 1},
    ]


def test_the_costs_at_a_turns_end_close_its_last_reply(store: Store, tmp_path: Path) -> None:
    *made, costs = parallel()

    waiting = take(store, changed(tmp_path, TOOLS, *made), redact=False)
    assert (waiting.units, waiting.waiting) == (1, 1)
    done = take(store, changed(tmp_path, TOOLS, *made, costs), redact=False)
    assert (done.units, done.waiting) == (1, 0)


# --- what cannot be believed


def spoilt(kind: str) -> list[Line | bytes]:
    """The transcript with one line of its first request made useless."""
    made: list[Line | bytes] = []
    done = False
    for line in lines(TOOLS):
        if line["type"] == kind and not done:
            done = True
            match kind:
                case "api-request-blob":
                    line["message"]["content"] = [{"type": "text", "text": "Something else."}]
                case "api-request-shape":
                    line["shape"]["tools"] = []
                case "api-request":
                    line["base"], line["keep"] = "nothing", 3
        made.append(line)
    return made


@pytest.mark.parametrize("kind", ["api-request-blob", "api-request-shape", "api-request"])
def test_where_the_record_is_damaged_the_lines_tell(store: Store, tmp_path: Path, kind: str) -> None:
    whole = take(store, TOOLS, redact=False, final=True).session
    outcome = take(store, changed(tmp_path, TOOLS, *spoilt(kind)), redact=False, final=True, as_new=True)

    assert any("request" in warning.text for warning in outcome.warnings)
    words = [row.sha256 for row in rows(store, whole) if row.origin == "human"]
    assert [row.sha256 for row in rows(store, outcome.session) if row.origin == "human"] == words
    first = steps(store, outcome.session)[0]
    assert revision.exactness(store, revision.at(store, first.commit), sent=True) == "reconstructed"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"api-request","id":"x","keep":-1,"tail":[]}',
        b'{"type":"api-request","id":"x","keep":0,"tail":[7]}',
        b'{"type":"api-request","id":["x"],"tail":{}}',
        b'{"type":"api-request","tail":[' + b",".join([b'"0"'] * 20_001) + b"]}",
        b'{"type":"api-request-blob","hash":"0","message":{"role":"user","content":[7]}}',
        b'{"type":"api-request-blob","hash":"0","message":{"role":"king","content":"x"}}',
        b'{"type":"api-request-blob","hash":"0","message":{"role":"user","content":'
        + b"[" * 5000
        + b"]" * 5000
        + b"}}",
        b'{"type":"api-request-blob","hash":"0","message":"x"}',
        b'{"type":"api-request-shape","shapeHash":"0","shape":[]}',
        b'{"type":"api-request-shape","shapeHash":"0","shape":{"tools":"all"}}',
    ],
)
def test_lines_of_any_form_are_named_and_do_no_harm(tmp_path: Path, line: bytes) -> None:
    plain = list(claude_code.events(Recording(changed(tmp_path, TOOLS, *lines(TOOLS)))))
    with_line = list(
        claude_code.events(Recording(changed(tmp_path, TOOLS, *lines(TOOLS)[:2], line, *lines(TOOLS)[2:])))
    )

    assert [event for event in with_line if isinstance(event, Warned)]
    assert [event.message for event in with_line if isinstance(event, Said)] == [
        event.message for event in plain if isinstance(event, Said)
    ]


def test_a_request_without_a_persons_words_is_not_the_one_that_was_sent(tmp_path: Path) -> None:
    made = lines(TOOLS)
    for line in made:
        if line["type"] == "user" and line["message"]["content"] == "Ask an agent.":
            line["message"]["content"] = "Ask two agents."
    reworded = list(claude_code.events(Recording(changed(tmp_path, TOOLS, *made))))
    plain = list(claude_code.events(Recording(TOOLS)))

    counts = [sum(isinstance(event, Sent) for event in events) for events in (plain, reworded)]
    assert counts == [6, 5]
    said = [event.message.parts[0].body for event in reworded if isinstance(event, Said)]
    assert b"Ask two agents." in said


@pytest.mark.parametrize("path", [BUILT_IN, PROCESSES])
def test_what_came_in_before_a_process_ended_stands_where_the_next_one_sent_it(tmp_path: Path, path: Path) -> None:
    made = path.read_bytes().splitlines(keepends=True)
    ends = [at for at, line in enumerate(made, 1) if b'"type":"cost-state"' in line]
    growing = tmp_path / path.name
    with create(tmp_path / "store") as store:
        for count in (*ends, len(made)):
            growing.write_bytes(b"".join(made[:count]))
            session = take(store, growing, redact=False, final=True).session

        requests = sum(line["type"] == "api-request" for line in lines(path))
        assert proof.check_prompts(store) == (requests, [])
        again = [row for row in rows(store, session) if row.state == "pruned"]
        assert {row.origin for row in again} == ({"client"} if path is PROCESSES else set())
        human = [row.sha256 for row in rows(store, session) if row.kind == "user" and row.origin == "human"]
        assert len(human) == len(set(human))


@pytest.mark.parametrize("path", [TOOLS, PROCESSES])
def test_a_process_that_ends_anywhere_doubles_no_word_and_claims_nothing(tmp_path: Path, path: Path) -> None:
    made = path.read_bytes().splitlines(keepends=True)
    growing = tmp_path / path.name
    with create(tmp_path / "store") as store:
        for count in (*range(7, len(made), 23), len(made)):
            growing.write_bytes(b"".join(made[:count]))
            session = take(store, growing, redact=False, final=True).session

        assert not proof.check_prompts(store)[1]
        now = rows(store, session)
        human = [row.sha256 for row in now if row.kind == "user" and row.origin == "human"]
        assert len(human) == len(set(human)) and all(row.present for row in now if row.origin == "human")


def test_tools_that_come_in_late_stay_what_they_are_among_the_messages(store: Store) -> None:
    session = take(store, PROCESSES, redact=False, final=True).session
    (system,) = (
        message
        for message in rendered(store, steps(store, session)[1])
        if message["role"] == "system" and message["content"][0]["text"].startswith("The following tools")
    )
    assert [block["type"] for block in system["content"]] == ["text", *["tool_addition"] * 3]

    snapshot = newest(store, session)
    unmarked = snapshot.ledger.with_rows(
        msgspec.structs.replace(row, extra={"ctxvc": {"sent": True}})
        for row in snapshot.ledger.rows()
        if row.kind == "other"
    )
    messages = request(unmarked, snapshot.bodies, None, None).messages
    assert "tool_addition" not in {block["type"] for message in messages for block in message["content"]}


# --- prompts of plugins


@pytest.mark.parametrize("path", [PLUGIN, OLDER])
def test_what_a_plugin_gives_back_is_the_blocks_that_it_was(store: Store, path: Path) -> None:
    session = take(store, path, redact=False, final=True).session
    now, snapshot = rows(store, session), newest(store, session)

    human = [snapshot.bodies.body(row).decode() for row in now if row.origin == "human" and row.kind == "user"]
    assert [text for text in human if not text.startswith("<command")] == WORDS
    calls = [row.call for row in now if row.kind == "tool_use"]
    assert len(calls) == len(set(calls)) == 3
    (result,) = (row for row in now if row.kind == "tool_result" and not row.present)
    assert (result.state, result.removed_by) == ("archived", "plugin:unknown")
    assert result.stub == "[ctxvc: archived as B2@3fa9c1; ctxvc recover B2@3fa9c1]"
    assert {group.removed_by for group in snapshot.ledger.groups.values()} == {"plugin:unknown"}
    compactions = [e for e in claude_code.events(Recording(path)) if isinstance(e, Compacted)]
    assert [(event.actor, event.summary) for event in compactions] == [("plugin:unknown", ())] * 2


def test_the_prompt_after_a_plugins_compaction_is_what_the_model_was_sent(store: Store) -> None:
    session = take(store, PLUGIN, redact=False, final=True).session
    messages = list(sent(PLUGIN).values())
    after_manual = steps(store, session)[3]

    assert rendered(store, after_manual) == formats.normalise_anthropic(
        {"role": message["role"], "content": message["content"]} for message in messages[3]
    )
    stub = "[ctxvc: archived as B3@3fa9c1; ctxvc recover B3@3fa9c1]"
    assert json.dumps(rendered(store, after_manual)).count(stub) == 1


@pytest.mark.parametrize("path", [TOOLS, PLUGIN, OLDER, BUILT_IN])
def test_a_growing_file_is_told_as_the_whole_one(path: Path, tmp_path: Path) -> None:
    assert_every_beginning_is_told_alike(path, tmp_path)


@pytest.mark.parametrize("path", [PLUGIN, OLDER, BUILT_IN])
def test_a_session_that_was_followed_is_the_one_that_was_imported_whole(tmp_path: Path, path: Path) -> None:
    made = path.read_bytes().splitlines(keepends=True)
    trees = []
    for number, cuts in enumerate(([], range(9, len(made), 17))):
        with create(tmp_path / f"store-{number}") as store:
            growing = tmp_path / f"{number}" / path.name
            growing.parent.mkdir()
            for count in (*cuts, len(made)):
                growing.write_bytes(b"".join(made[:count]))
                session = take(store, growing, redact=False).session
            trees.append([(row.id, row.state, row.stub, row.sha256) for row in rows(store, session)])
            assert not list(proof.check_prompts(store)[1])

    assert trees[0] == trees[1]


def test_imported_again_it_has_nothing_new(store: Store) -> None:
    take(store, PLUGIN, redact=False, final=True)

    assert take(store, PLUGIN, redact=False, final=True).units == 0
