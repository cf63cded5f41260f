"""A recording that is followed while it grows gives what one import of it gives, and never more of it twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.agent.tools.search import search
from ctxvc.claude_code import handoff
from ctxvc.core.ledger.block import Message
from ctxvc.core.secrets.redact import Redactor
from ctxvc.recording.files import Follower, import_paths
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify
from tests.recording.test_files import CONVERSATION, boundary, call, exported, line, result, text, tips_and_trees, write


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


def take(follower: Follower, **options: bool) -> int:
    """How many commits a look gave; nothing may be wrong."""
    outcomes = follower.take(**options)
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return sum(outcome.units for outcome in outcomes)


@pytest.mark.parametrize("cut", range(1, len(COMPACTED)))
@pytest.mark.parametrize("closes", [False, True])
def test_any_two_looks_give_what_one_import_gives(
    store: Store, other: Store, tmp_path: Path, cut: int, closes: bool
) -> None:
    path = tmp_path / "s.jsonl"
    follower = Follower(store, path, "claude-code")
    write(path, *COMPACTED[:cut])
    # A host compacts where the reply and all its results are there.
    taken = take(follower, closes=closes and COMPACTED[cut - 1]["uuid"] in ("r1", "a3", "r3", "a6"))
    taken += take(Follower(store, write(path, *COMPACTED), "claude-code"), final=True)

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
    for cut in range(len(COMPACTED) - 2, len(lines) + 1):
        with create(tmp_path / str(cut) / ".ctxvc") as session:
            take(Follower(session, write(path, *lines[:cut]), "claude-code"))
            take(Follower(session, write(path, *lines), "claude-code"), final=True)
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
    assert take(follower, closes=True) == 2
    write(path, *CONVERSATION)
    assert (take(follower), take(follower, closes=True)) == (1, 1)
    with StoredSession.open(store, follower.session) as session:
        source = session.ledger().meta.source
    assert source is not None and source.finals == ()


def test_a_line_that_is_being_written_is_not_there_yet(store: Store, other: Store, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", *CONVERSATION).read_bytes()
    path = tmp_path / "s.jsonl"
    follower = Follower(store, path, "claude-code")
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        take(follower)
    path.write_bytes(whole[:-1])  # valid JSON, and still no line
    take(follower, closes=True)
    path.write_bytes(whole)
    take(follower, final=True)

    list(import_paths(other, [path], final=True))
    assert tips_and_trees(store) == tips_and_trees(other)


def test_a_file_that_has_not_changed_is_not_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(store, write(tmp_path / "s.jsonl", *CONVERSATION), "claude-code")
    take(follower)
    monkeypatch.setattr("ctxvc.recording.files.ingest", None)

    assert take(follower) == 0


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
        take(Follower(store, write(path, *lines[:until]), "claude-code"), final=until == len(lines))
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
    take(follower)
    agent = path.with_suffix("") / "subagents" / "agent-abc123.jsonl"
    agent.parent.mkdir(parents=True)
    side = {"isSidechain": True, "agentId": "abc123"}
    lines = [{**line("user", "s1", None, "look"), **side}, {**line("assistant", "s2", "s1", text("Looked.")), **side}]
    write(agent, *lines[:1])
    take(follower)
    write(agent, *lines)
    write(path, *CONVERSATION)
    take(follower, final=True)

    assert set(store.tips(follower.session)) == {"main", "agent-abc123"}


def test_a_change_of_model_before_a_compaction(store: Store, other: Store, tmp_path: Path) -> None:
    lines = [
        line("user", "u1", None, "one"), replies("first", "a1", "u1", "One."), line("user", "u2", "a1", "two"),
        replies("second", "a2", "u2", "Two."), *boundary("a2"),
    ]  # fmt: skip
    path = write(tmp_path / "s.jsonl", *lines[:4])
    take(Follower(store, path, "claude-code"), closes=True)
    take(Follower(store, write(path, *lines), "claude-code"), final=True)

    list(import_paths(other, [path], final=True))
    assert tips_and_trees(store) == tips_and_trees(other)


def test_a_host_that_died_in_a_call_and_was_resumed(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *CONVERSATION[:7])
    take(Follower(store, path, "claude-code"), final=True)
    answer = {**line("user", "r2", "a4", result("sed", "[Tool call interrupted: the host ended]"))}
    write(path, *CONVERSATION[:7], answer, line("assistant", "a5", "r2", call("make"), reply="m9"))
    take(Follower(store, path, "claude-code"), final=True)

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
    take(Follower(store, path, "claude-code"), final=True)
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
        (found,) = search(opened.stored, "line 4999 ").found
        assert (found.address, found.lines) == (row.handle, ((5000, "line 4999 \u00fc"),))
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
    take(Follower(store, path, "claude-code"), final=True)

    with StoredSession.open(store, "claude-11111111") as session:
        assert session.ledger()["B4"].files == ()
