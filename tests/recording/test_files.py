"""Recordings → sessions → the same messages again; a file that grows, is followed, is cut, or is rewritten."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.agent.tools.search import search
from ctxvc.claude_code import handoff
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.wire import part
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, outline, pieces
from ctxvc.core.secrets.redact import Redactor
from ctxvc.errors import BadInput, Refused
from ctxvc.recording.files import Follower, Outcome, import_paths
from ctxvc.session.session import Session
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify
from tests.making.store import commits

DAY = 24 * 3600


def take(store: Store, path: Path, **options: Any) -> Outcome:
    (outcome,) = import_paths(store, [path], **options)
    if outcome.error:
        raise outcome.error
    return outcome


def settled(path: Path) -> Path:
    """The file, as if nobody had touched it for a day."""
    stamp = path.stat().st_mtime - DAY
    os.utime(path, (stamp, stamp))
    return path


def exported(store: Store, session: str, scope: str = "", *, everything: bool = False) -> list[dict[str, Any]]:
    """The scope's messages; with `everything`, those that a host's compaction took out of the prompt too."""
    with StoredSession.open(store, session, scope) as opened:
        moment = revision.now(opened)
        ledger = _uncompacted(moment.ledger) if everything else moment.ledger
        bodies = Bodies(opened.body, opened.file)
        prompt = formats.Prompt(pieces=pieces(outline(ledger), bodies), system=moment.system)
        messages: list[dict[str, Any]] = formats.anthropic(prompt)["messages"]
        return messages


def _uncompacted(ledger: Ledger) -> Ledger:
    rows = [msgspec.structs.replace(row, state="visible", group="") for row in ledger.rows()]
    return ledger.with_rows(rows).with_groups(
        [msgspec.structs.replace(group, members=()) for group in ledger.groups.values()]
    )


def line(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """A line of a Claude Code transcript."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("reply", f"msg_{uuid}"), "model": "claude-opus-5-5", "type": "message"}
    return {
        "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/work",
        "sessionId": "11111111-2222-3333-4444-555555555555", "version": "2.1.329", "gitBranch": "main", "type": kind,
        "message": message, "uuid": uuid, "timestamp": "2026-01-02T03:04:05.678Z", **more,
    }  # fmt: skip


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def call(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"toolu_{name}", "name": "Bash", "input": {"command": name}}]


def result(name: str, words: str = "done") -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": words}]


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def boundary(after: str, **more: Any) -> list[dict[str, Any]]:
    """The lines of a compaction behind the message `after`."""
    cut = line("user", "c1", None, "", subtype="compact_boundary", logicalParentUuid=after)
    del cut["message"]
    metadata = {"trigger": "auto", "preTokens": 1000, **more}
    cut |= {"type": "system", "content": "Conversation compacted", "compactMetadata": metadata}
    return [cut, line("user", "c2", "c1", "This session is being continued.", isCompactSummary=True)]


CONVERSATION = (
    line("user", "u1", None, "find the bug"),
    line("assistant", "a1", "u1", text("I look."), reply="m1"),
    line("assistant", "a2", "a1", call("ls"), reply="m1"),
    line("user", "r1", "a2", result("ls", "one\r\ntwo")),
    line("assistant", "a3", "r1", text("Found."), reply="m2"),
    line("user", "u2", "a3", "mend it"),
    line("assistant", "a4", "u2", call("sed"), reply="m3"),
    line("assistant", "a5", "a4", call("make"), reply="m3"),
    line("user", "r2", "a4", result("sed")),
    line("user", "r3", "a5", result("make")),
    line("assistant", "a6", "r3", text("Mended."), reply="m4"),
)


REWOUND = (
    *CONVERSATION,
    line("user", "u3", "a3", "no, mend it otherwise"),
    line("assistant", "a7", "u3", text("Otherwise, then."), reply="m5"),
)


def tips_and_trees(store: Store) -> dict[str, list[str]]:
    """scope → subjects and trees of its commits, oldest first."""
    scopes = {}
    for session, tips in store.all_tips().items():
        for scope, tip in tips.items():
            said = program.run(store.path, "log", "--reverse", "--first-parent", "--format=%T %s", tip).decode()
            scopes[f"{session}/{scope}"] = said.splitlines()
    return scopes


def test_a_session_is_one_commit_a_step(store: Store, tmp_path: Path) -> None:
    outcome = take(store, settled(write(tmp_path / "s.jsonl", *CONVERSATION)))

    assert (outcome.session, outcome.units, outcome.blocks, outcome.waiting) == ("claude-11111111", 4, 11, 0)
    made = commits(store.path, "claude-11111111")
    assert [commit.split(":")[0] for commit in made] == ["step 1", "step 2", "step 3", "step 4"]
    with StoredSession.open(store, "claude-11111111") as session:
        rows = {row.id: row for row in session.ledger().rows()}
    assert [rows["B4"].parent, rows["B4"].tool, rows["B4"].step] == ["B3", "Bash", 1]
    assert [row.turn for row in rows.values()] == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert rows["B9"].msg == rows["B10"].msg  # parallel results are one message


def test_an_unfinished_step_of_a_file_is_taken_once_it_is_final_and_a_later_result_is_not_lost(
    store: Store, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:8])
    outcome = take(store, path)
    assert (outcome.units, outcome.waiting) == (2, 3)
    with StoredSession.open(store, outcome.session) as session:
        source = session.ledger().meta.source
    assert source is not None
    assert source.offset == sum(len(json.dumps(each)) + 1 for each in CONVERSATION[:5])
    assert take(store, path, final=True).units == 1

    write(path, *CONVERSATION)
    assert [take(store, path, final=True).units for _ in range(2)] == [1, 0]
    messages = exported(store, outcome.session)
    results = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results] == ["toolu_ls", "toolu_sed", "toolu_make"]
    assert results[1]["content"] == text("done")


def test_a_rewind_goes_to_a_scope_of_its_own(store: Store, tmp_path: Path) -> None:
    outcome = take(store, settled(write(tmp_path / "s.jsonl", *REWOUND)))

    assert outcome.units == 6
    assert store.current_scope(outcome.session) == "rewind-1"
    assert exported(store, outcome.session, "main")[-1]["content"] == text("Mended.")
    rewound = exported(store, outcome.session, "rewind-1")
    words = [message["content"][0].get("text") for message in rewound[-3:]]
    assert words == ["Found.", "no, mend it otherwise", "Otherwise, then."]
    log = program.run(store.path, "rev-list", "--count", f"{outcome.session}/main..{outcome.session}/rewind-1")
    assert log.strip() == b"2"


def test_a_retried_prompt_stands_in_both_scopes(store: Store, tmp_path: Path) -> None:
    lines = [*CONVERSATION, line("assistant", "a7", "u2", text("A second answer."), reply="m5")]
    outcome = take(store, settled(write(tmp_path / "s.jsonl", *lines)))

    rewound = exported(store, outcome.session, "rewind-1")
    assert [message["content"][0].get("text") for message in rewound[-2:]] == ["mend it", "A second answer."]


def test_a_compaction_is_one_commit_whose_summary_stands_for_what_left(store: Store, tmp_path: Path) -> None:
    lines = [*CONVERSATION, *boundary("a6", preservedMessages={"uuids": ["a6"]}), line("user", "u9", "c2", "go on")]
    lines.append(line("assistant", "a9", "u9", text("I go on."), reply="m9"))
    outcome = take(store, settled(write(tmp_path / "s.jsonl", *lines)))

    prompt = exported(store, outcome.session)
    words = [block["text"] for message in prompt for block in message["content"]]
    assert words == ["This session is being continued.", "Mended.", "go on", "I go on."]
    with StoredSession.open(store, outcome.session) as session:
        ledger = session.ledger()
    (group,) = ledger.groups.values()
    assert (group.removed_by, group.stub, len(group.members)) == ("host", "", 10)
    assert [row.state for row in ledger.rows()].count("archived") == 10
    before = exported(store, outcome.session, everything=True)
    assert before[0]["content"] == text("find the bug")


def test_sub_agents_get_scopes_of_their_own(store: Store, tmp_path: Path) -> None:
    path = settled(write(tmp_path / "11111111-2222-3333-4444-555555555555.jsonl", *CONVERSATION))
    folder = tmp_path / "11111111-2222-3333-4444-555555555555" / "subagents"
    folder.mkdir(parents=True)
    side = [
        {**line("user", "s1", None, "look into it"), "isSidechain": True, "agentId": "abc123"},
        {**line("assistant", "s2", "s1", text("Looked."), reply="ms"), "isSidechain": True, "agentId": "abc123"},
    ]
    settled(write(folder / "agent-abc123.jsonl", *side))

    outcomes = list(import_paths(store, [path]))

    assert [outcome.error for outcome in outcomes] == [None, None]
    (scope,) = [name for name in store.tips("claude-11111111") if name != "main"]
    assert scope.startswith("agent-")
    messages = exported(store, "claude-11111111", scope)
    assert [message["content"] for message in messages] == [text("look into it"), text("Looked.")]
    assert store.current_scope("claude-11111111") == "main"
    assert [outcome.units for outcome in import_paths(store, [path])] == [0, 0]


def test_a_rewritten_file_is_refused_and_can_be_taken_as_new(store: Store, tmp_path: Path) -> None:
    path = settled(write(tmp_path / "s.jsonl", *CONVERSATION))
    take(store, path)
    settled(write(path, line("user", "u1", None, "find another bug"), *CONVERSATION[1:]))

    with pytest.raises(Refused, match="not the one that was imported"):
        take(store, path)
    assert take(store, path, as_new=True).session == "claude-11111111-2"


def test_a_file_that_cannot_be_read_leaves_no_session_behind(store: Store, tmp_path: Path) -> None:
    packed = gzip.compress("".join(json.dumps(each) + "\n" for each in CONVERSATION * 50).encode())
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])

    with pytest.raises(BadInput, match="truncated or damaged"):
        take(store, path)
    assert store.sessions() == []


def test_a_folder_is_taken_file_by_file_past_a_bad_one(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    (folder / "deeper").mkdir(parents=True)
    settled(write(folder / "good.jsonl", *CONVERSATION))
    (folder / "notes.json").write_text('{"not": "a transcript"}')
    (folder / "deeper" / "bad.jsonl.gz").write_bytes(gzip.compress(json.dumps(CONVERSATION[0]).encode())[:-9])

    outcomes = {outcome.path.name: outcome for outcome in import_paths(store, [folder])}

    assert outcomes.keys() >= {"good.jsonl"}
    assert outcomes["good.jsonl"].error is None
    assert "notes.json" not in outcomes


def test_a_recorded_session_can_be_continued_live(store: Store, tmp_path: Path) -> None:
    outcome = take(store, settled(write(tmp_path / "s.jsonl", *CONVERSATION)))
    with StoredSession.open(store, outcome.session) as session:
        ids = session.append(
            Message(role="user", parts=(part("one more", "user", "human"),)),
            Message(role="assistant", parts=(part("yes", "assistant", "model"),)),
        )
        rows = [session.ledger()[block] for block in ids]
    assert [(row.id, row.step, row.turn) for row in rows] == [("B12", 5, 3), ("B13", 5, 3)]


def test_every_trajectory_comes_out_as_it_went_in(store: Store, recordings: Path) -> None:
    files = sorted((recordings / "trajectories").glob("*.jsonl.gz"), key=lambda path: path.stat().st_size)
    for path in files[::36]:
        outcome = take(store, path)
        _, *lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        messages = [{"role": line["role"], "content": line["content"]} for line in lines]
        while messages[0]["role"] == "system":
            messages.pop(0)
        wanted = formats.normalise_anthropic(messages)
        for message in wanted:
            for block in message["content"]:
                block.pop("synthetic", None)
        assert exported(store, outcome.session, everything=True) == wanted, path.name
    assert program.run(store.path, "fsck", "--full", "--strict") == b""


def test_a_scope_that_a_killed_import_left_behind_catches_up(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    take(store, settled(write(path, *REWOUND)))
    whole = exported(store, "claude-11111111", "main")
    reference = "refs/heads/claude-11111111/main"
    for back in (2, 4):  # refs move one after another: main's had not moved when the import was killed
        old = program.run(store.path, "rev-parse", f"claude-11111111/main~{back}").decode().strip()
        program.run(store.path, "update-ref", reference, old)

        assert take(store, path).units == back
        assert exported(store, "claude-11111111", "main") == whole
    program.run(store.path, "update-ref", "-d", reference)
    assert take(store, path).units == 4
    assert exported(store, "claude-11111111", "main") == whole
    assert take(store, path).units == 0


def test_lone_surrogates_outside_of_bodies_are_mended_and_inside_kept(store: Store, tmp_path: Path) -> None:
    words = "half a pair: \ud83d"
    odd = [{"type": "tool_use", "id": "toolu_\ud83d", "name": "B\udc00sh", "input": {"command": words}}]
    answer = [{"type": "tool_result", "tool_use_id": "toolu_\ud83d", "content": words, "odd": {"\ud83d": ["\ud83d"]}}]
    path = write(
        tmp_path / "s.jsonl",
        line("user", "u1", None, words),
        line("assistant", "a1", "u1", odd, reply="m1", model="m\ud83d"),
        line("user", "r1", "a1", answer),
        line("assistant", "a2", "r1", text("done"), reply="m2"),
    )
    outcome = take(store, settled(path))

    with StoredSession.open(store, outcome.session) as session:
        rows = list(session.ledger().rows())
        assert session.body(rows[0]).decode("utf-8", "surrogatepass") == words
        assert session.body(rows[2]).decode("utf-8", "surrogatepass") == words
    assert rows[1].tool == "B?sh"
    assert rows[1].call == rows[2].call == "toolu_?"
    assert rows[2].parent == rows[1].id


def test_a_recording_cannot_set_marks_of_ours(store: Store, tmp_path: Path) -> None:
    hostile = [{**text("hello")[0], "ctxvc": "x", "openai": 7}]
    answer = [{"type": "tool_result", "tool_use_id": "toolu_ls", "content": "x", "ctxvc": {"parts": True}}]
    path = write(
        tmp_path / "s.jsonl", line("user", "u1", None, hostile), line("assistant", "a1", "u1", call("ls"), reply="m1"),
        line("user", "r1", "a1", answer), line("assistant", "a2", "r1", text("done"), reply="m2"),
    )  # fmt: skip
    outcome = take(store, settled(path))

    assert exported(store, outcome.session)[2]["content"][0]["content"] == text("x")


# --- a recording that is followed while it grows


def replies(model: str, uuid: str, parent: str, words: str) -> dict[str, Any]:
    said = line("assistant", uuid, parent, text(words))
    return {**said, "message": {**said["message"], "model": model}}


COMPACTED = (
    *CONVERSATION,
    *boundary("a6"),
    line("user", "u9", "c2", "go on"),
    line("assistant", "a9", "u9", text("I go on."), reply="m9"),
)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "other" / ".ctxvc") as session:
        yield session


def look(follower: Follower, **options: bool) -> int:
    """How many commits a look gave; nothing may be wrong."""
    outcomes = follower.take(**options)
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return sum(outcome.units for outcome in outcomes)


#: After these lines the reply and all its results are there: a host may compact.
WHOLE = [cut for cut in range(1, len(COMPACTED)) if COMPACTED[cut - 1]["uuid"] in ("r1", "a3", "r3", "a6")]


@pytest.mark.parametrize(
    ("cut", "closes"), [*((cut, False) for cut in range(1, len(COMPACTED))), *((cut, True) for cut in WHOLE)]
)
def test_any_two_looks_give_what_one_import_gives(
    store: Store, other: Store, tmp_path: Path, cut: int, closes: bool
) -> None:
    path = tmp_path / "s.jsonl"
    follower = Follower(store, path, "claude-code")
    write(path, *COMPACTED[:cut])
    taken = look(follower, closes=closes)
    taken += look(Follower(store, write(path, *COMPACTED), "claude-code"), final=True)

    list(import_paths(other, [path], final=True))
    assert tips_and_trees(store) == tips_and_trees(other)
    assert taken == 6


def rewound(*back_to: str | None) -> list[dict[str, Any]]:
    """A session that was compacted and rewound to those messages one after another, and gone on with each time."""
    lines = [*COMPACTED]
    for number, message in enumerate(back_to):
        lines.append(line("user", f"v{number}", message, f"try {number}"))
        lines.append(line("assistant", f"w{number}", f"v{number}", text(f"Tried {number}."), reply=f"n{number}"))
    return lines


@pytest.mark.parametrize("back_to", [("a1", None), (None, None), ("u9", "v0", None), (None, "v0", "a3"), ("c2", None)])
def test_a_session_that_was_rewound_often_is_followed_from_anywhere(
    store: Store, tmp_path: Path, back_to: tuple[str | None, ...]
) -> None:
    lines = rewound(*back_to)
    path = write(tmp_path / "s.jsonl", *lines)
    taken = []
    for cut in range(len(COMPACTED) - 2, len(lines) + 1, 4):
        with create(tmp_path / str(cut) / ".ctxvc") as session:
            look(Follower(session, write(path, *lines[:cut]), "claude-code"))
            look(Follower(session, write(path, *lines), "claude-code"), final=True)
            assert not verify(session).findings
            taken.append(tips_and_trees(session))
    assert set(taken[0]) == {"claude-11111111/main"} | {
        f"claude-11111111/rewind-{number + 1}" for number in range(len(back_to))
    }
    assert taken == [taken[0]] * len(taken)


def test_before_a_compaction_the_finished_step_is_taken_and_an_open_call_stays_open(
    store: Store, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:8])
    follower = Follower(store, path, "claude-code")
    assert look(follower, closes=True) == 2
    write(path, *CONVERSATION)
    assert (look(follower), look(follower, closes=True)) == (1, 1)
    with StoredSession.open(store, follower.session) as session:
        source = session.ledger().meta.source
    assert source is not None and source.finals == ()


def test_a_line_that_is_being_written_is_not_there_yet(store: Store, other: Store, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", *CONVERSATION).read_bytes()
    path = tmp_path / "s.jsonl"
    follower = Follower(store, path, "claude-code")
    for size in range(0, len(whole), 397):
        path.write_bytes(whole[:size])
        look(follower)
    path.write_bytes(whole[:-1])  # valid JSON, and still no line
    look(follower, closes=True)
    path.write_bytes(whole)
    look(follower, final=True)

    list(import_paths(other, [path], final=True))
    assert tips_and_trees(store) == tips_and_trees(other)


def test_a_file_that_has_not_changed_is_not_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(store, write(tmp_path / "s.jsonl", *CONVERSATION), "claude-code")
    look(follower)
    monkeypatch.setattr("ctxvc.recording.files.ingest", None)

    assert look(follower) == 0


def test_only_what_is_new_is_looked_through_for_secrets(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "ghp_" + "".join("Zk3Qw9"[number % 6] + "xV7"[number % 3] for number in range(18))
    lines = [
        {**each, "message": json.loads(json.dumps(each["message"]).replace("done", f"token {secret}"))}
        if "message" in each
        else each
        for each in (*COMPACTED[:11], *boundary("a6"), *COMPACTED[13:])
    ]
    seen: list[Message] = []
    redacted = Redactor.message
    monkeypatch.setattr(Redactor, "message", lambda self, message: seen.append(message) or redacted(self, message))
    path = tmp_path / "s.jsonl"
    for until in range(5, len(lines) + 1):
        look(Follower(store, write(path, *lines[:until]), "claude-code"), final=until == len(lines))
    looked_at = list(seen)
    list(import_paths(other, [path], final=True))

    assert looked_at == seen[len(looked_at) :]
    assert [len(trees) for trees in tips_and_trees(store).values()] == [7]
    for each in (store, other):
        with StoredSession.open(each, "claude-11111111") as session:
            bodies = [session.body(row) for row in session.ledger().rows()]
        assert sum(b"[REDACTED:" in body for body in bodies) == 2
        assert not any(secret.encode() in body for body in bodies)


def test_nothing_said_is_nothing_wrong(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"type":"mode","mode":"normal","sessionId":"1"}\n')

    assert Follower(store, path, "claude-code").take() == []
    assert store.sessions() == []


def test_what_sub_agents_said_is_followed_too(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "11111111-2222-3333-4444-555555555555.jsonl", *CONVERSATION[:4])
    follower = Follower(store, path, "claude-code")
    look(follower)
    agent = path.with_suffix("") / "subagents" / "agent-abc123.jsonl"
    agent.parent.mkdir(parents=True)
    side = {"isSidechain": True, "agentId": "abc123"}
    lines = [{**line("user", "s1", None, "look"), **side}, {**line("assistant", "s2", "s1", text("Looked.")), **side}]
    write(agent, *lines[:1])
    look(follower)
    write(agent, *lines)
    write(path, *CONVERSATION)
    look(follower, final=True)

    assert set(store.tips(follower.session)) == {"main", "agent-abc123"}


def test_a_change_of_model_before_a_compaction(store: Store, other: Store, tmp_path: Path) -> None:
    lines = [
        line("user", "u1", None, "one"), replies("first", "a1", "u1", "One."), line("user", "u2", "a1", "two"),
        replies("second", "a2", "u2", "Two."), *boundary("a2"),
    ]  # fmt: skip
    path = write(tmp_path / "s.jsonl", *lines[:4])
    look(Follower(store, path, "claude-code"), closes=True)
    look(Follower(store, write(path, *lines), "claude-code"), final=True)

    list(import_paths(other, [path], final=True))
    assert tips_and_trees(store) == tips_and_trees(other)


def test_a_host_that_died_in_a_call_and_was_resumed(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:7])
    look(Follower(store, path, "claude-code"), final=True)
    answer = {**line("user", "r2", "a4", result("sed", "[Tool call interrupted: the host ended]"))}
    write(path, *CONVERSATION[:7], answer, line("assistant", "a5", "r2", call("make"), reply="m9"))
    look(Follower(store, path, "claude-code"), final=True)

    with StoredSession.open(store, "claude-11111111") as session:
        bodies = [session.body(row) for row in session.ledger().rows() if row.kind == "tool_result"]
    assert b"[Tool call interrupted: the host ended]" in bodies, json.dumps(list(map(bytes.decode, bodies)))


def cut(file: Path) -> str:
    """What the model is shown of an output that the host cut."""
    named = f"Output too large (51.7KB). Full output saved to: {file}"
    return f"<persisted-output>\n{named}\n\nPreview (first 2KB):\nline 0\n</persisted-output>"


def test_an_output_that_the_host_cut_is_kept_whole(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "11111111-2222-3333-4444-555555555555.jsonl"
    file = path.with_suffix("") / "tool-results" / "b5.txt"
    file.parent.mkdir(parents=True)
    data = "".join(f"line {number} \u00fc\r\n" for number in range(5000)).encode()
    file.write_bytes(data)
    write(path, *CONVERSATION[:3], line("user", "r1", "a2", result("ls", cut(file))), *CONVERSATION[4:])
    look(Follower(store, path, "claude-code"), final=True)
    list(import_paths(other, [path], final=True))

    with StoredSession.open(store, "claude-11111111") as session:
        row = session.ledger()["B4"]
        assert session.body(row).decode() == cut(file)
        assert session.file(row, row.extra["ctxvc"]["whole"]) == data
    assert exported(store, "claude-11111111")[2]["content"][0]["content"] == text(cut(file))
    assert tips_and_trees(store) == tips_and_trees(other)
    with Session(StoredSession.open(store, "claude-11111111")) as opened:
        assert [data for _, data in opened.recover_bytes("B4")] == [data]
        assert opened.recover("B4", lines="4000:4000").text.splitlines()[-1] == "line 3999 \u00fc"
        (match,) = search(opened.stored, "line 4999 ").matches
        assert (match.address, match.lines) == (row.handle, ((5000, "line 4999 \u00fc"),))
        view = opened.view()
        assert view.price.body(row) == view.price.text(cut(file))  # it is what the model saw
        assert "shown, kept whole" in handoff.after_compaction(opened.ledger(), lambda each: opened.body(each.id))
    assert not verify(store).findings


@pytest.mark.parametrize("place", ["private.txt", "tool-results/private.txt", "link"])
def test_no_other_file_is_read_whatever_a_result_says(store: Store, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "projects" / "p"
    secret = tmp_path / "home" / ("private.txt" if place == "link" else place)
    secret.parent.mkdir(parents=True)
    secret.write_text("not for you")
    named = secret
    if place == "link":
        named = folder / "s" / "tool-results" / "x.txt"
        named.parent.mkdir(parents=True)
        named.symlink_to(secret)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "s.jsonl"
    write(path, *CONVERSATION[:3], line("user", "r1", "a2", result("ls", cut(named))), *CONVERSATION[4:])
    look(Follower(store, path, "claude-code"), final=True)

    with StoredSession.open(store, "claude-11111111") as session:
        assert session.ledger()["B4"].files == ()
