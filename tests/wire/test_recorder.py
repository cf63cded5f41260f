"""What the recorder makes of exchanges: which session and scope, which blocks, and each body byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxvc.importers.claude_code import events as claude_code_events
from ctxvc.importers.file import Recording
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import sent_body
from ctxvc.store.store import Store, create
from ctxvc.wire import conversation
from ctxvc.wire.exchange import Exchange
from ctxvc.wire.recorder import Recorder
from tests.importers.claude_code.lines import SESSION, call, prompt, result, text, written
from tests.importers.claude_code.lines import reply as call_line
from tests.wire import sending
from tests.wire.sending import body, exchange, reply

CLAUDE = {"x-claude-code-session-id": "0c97beba-bfcb-4f84-9950-e0354bfc808b"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def calls(*ids: str) -> dict[str, Any]:
    uses = [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": f"ls {name}"}} for name in ids]
    return {"role": "assistant", "content": uses}


def results(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": name, "content": f"files of {name}"} for name in ids],
    }


def asked(history: Sequence[Any], answer: Any, number: int = 0, *, headers: Any = CLAUDE, **more: Any) -> Exchange:
    """A request with this history, and what the model replied."""
    fields = {name: more.pop(name) for name in ("whole", "status", "stream") if name in more}
    content = answer["content"] if isinstance(answer, dict) else answer
    return exchange(body(history, **more), reply(content, number), number=number, headers=headers, **fields)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create(tmp_path / ".ctxvc").close()
    return tmp_path / ".ctxvc"


@pytest.fixture
def record(store: Path) -> Callable[[Iterable[Exchange]], None]:
    """Records exchanges by a recorder of their own, which has no trouble."""

    def record(exchanges: Iterable[Exchange], **fields: Any) -> None:
        troubles: list[str] = []
        recorder = Recorder(lambda: Store(store), on_trouble=troubles.append, **fields)
        for item in exchanges:
            recorder.record(item)
        recorder.close()
        assert troubles == []

    return record


def bodies(store: Path, session: str = "", scope: str = "") -> list[bytes]:
    """The bodies of all steps of a scope, oldest first."""
    with Store(store) as opened:
        stored = StoredSession.for_reading(opened, session or opened.sessions()[0], scope)
        steps = [entry for entry in revision.history(opened, stored.tip()) if entry.trailers["Ctxvc-Op"] == "step"]
        steps = [entry for entry in steps if opened.reader.pieces(entry.commit)]
        found = [sent_body(stored, revision.at(opened, entry.commit)) for entry in reversed(steps)]
        if stored.in_step:
            found.append(sent_body(stored, revision.now(stored)))
        return found


def texts(store: Path, scope: str = "main") -> list[tuple[str, str]]:
    """State and text of the blocks of a scope of the only session."""
    with Store(store) as opened:
        (session,) = opened.sessions()
        stored = StoredSession.for_reading(opened, session, scope)
        return [(row.state, stored.body(row).decode()) for row in stored.ledger().rows()]


def scopes(store: Path) -> list[str]:
    with Store(store) as opened:
        (session,) = opened.sessions()
        return sorted(opened.tips(session))


ONE, TWO = [user("Fix it."), calls("a")], [user("Fix it."), calls("a"), results("a"), said("Done.")]


def test_each_body_is_in_the_store_as_it_was_sent(store: Path, record: Any) -> None:
    sent = [asked(TWO[:1], ONE[1], 0), asked(TWO[:3], TWO[3], 1), asked([*TWO, user("Thanks.")], "Welcome.", 2)]
    record(sent)

    assert bodies(store) == [item.body for item in sent]
    assert [text for _, text in texts(store)] == [
        "Fix it.",
        '{"command":"ls a"}',
        "files of a",
        "Done.",
        "Thanks.",
        "Welcome.",
    ]


def test_a_step_that_waits_for_results_is_as_exact_as_one_that_is_complete(store: Path, record: Any) -> None:
    sent = asked(TWO[:1], ONE[1], 0)
    record([sent])

    with Store(store) as opened:
        (session,) = opened.sessions()
        with StoredSession.open(opened, session) as stored:
            snapshots = [revision.resolve(opened, stored, name) for name in ("HEAD", "step:1")]
            assert stored.waiting()
            assert [sent_body(stored, snapshot) for snapshot in snapshots] == [sent.body] * 2
            assert [revision.exactness(opened, snapshot) for snapshot in snapshots] == ["exact"] * 2
            stored.finish()
            assert revision.exactness(opened, revision.now(stored)) == "exact"
            before = revision.resolve(opened, stored, "step:0")
            assert revision.exactness(opened, before) == "reconstructed"


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_recorder_goes_on_where_another_ended(store: Path, record: Any, cut: int) -> None:
    history = [
        user("Fix it."),
        calls("a"),
        results("a"),
        calls("b", "c"),
        results("b", "c"),
        said("Done."),
        user("More."),
        said("No."),
    ]
    sent = [asked(history[:at], history[at], at) for at in (1, 3, 5, 7)]
    for part in (sent[:cut], sent[cut:]):
        record(part, agent="claude-code")

    assert scopes(store) == ["main"]
    assert bodies(store) == [item.body for item in sent]


def test_a_client_that_names_no_conversation_is_known_by_its_history(store: Path, record: Any) -> None:
    first = [asked(TWO[:1], ONE[1], 0, headers={}), asked(TWO[:3], TWO[3], 1, headers={})]
    other = [asked([user("Else?")], "Yes.", 2, headers={})]
    again = [asked([*TWO, user("Thanks.")], "Welcome.", 3, headers={})]
    record([*first, *other])
    record(again)

    with Store(store) as opened:
        assert len(opened.sessions()) == 2
        sizes = {len(bodies(store, name)) for name in opened.sessions()}
    assert sizes == {3, 1}


def test_what_a_client_compacted_is_left_out_by_the_host(store: Path, record: Any) -> None:
    after = [user("Summary: it was fixed."), said("Good."), user("And now?")]
    record(
        [asked(TWO[:1], ONE[1], 0), asked(TWO[:3], TWO[3], 1), asked(after[:1], "Good.", 2), asked(after, "Rest.", 3)]
    )

    assert scopes(store) == ["main"]
    assert [text for state, text in texts(store) if state == "visible"] == [
        "Summary: it was fixed.",
        "Good.",
        "And now?",
        "Rest.",
    ]
    assert bodies(store)[-1] == body(after)


def test_a_history_that_ends_earlier_goes_on_in_a_new_scope(store: Path, record: Any) -> None:
    back = [*TWO, user("No, like this.")]
    record(
        [
            asked(TWO[:1], ONE[1], 0),
            asked(TWO[:3], TWO[3], 1),
            asked([*TWO, user("Thanks.")], "Welcome.", 2),
            asked(back, "So.", 3),
        ]
    )

    assert scopes(store) == ["main", "rewind-1"]
    assert [text for _, text in texts(store, "rewind-1")][-3:] == ["Done.", "No, like this.", "So."]
    assert [text for _, text in texts(store)][-2:] == ["Thanks.", "Welcome."]


def test_a_history_longer_than_is_looked_through_is_edited_in_place(
    store: Path, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_BACK", 2)
    history = [user("One."), said("1."), user("Two."), said("2."), user("Three."), said("3.")]
    changed = [*history[:2], user("2, please."), *history[3:], user("Four.")]
    sent = [asked(history[:at], history[at], at) for at in (1, 3, 5)]
    record([*sent, asked(changed, "4.", 7), asked([*history[:2], user("Else.")], "So.", 8)])

    assert scopes(store) == ["main"]
    assert [text for state, text in texts(store) if state == "visible"] == ["One.", "1.", "Else.", "So."]


def test_conversations_that_begin_alike_are_told_apart_by_their_replies(store: Path, record: Any) -> None:
    first = [user("Fix it.")]
    one, two = [*first, calls("a"), results("a")], [*first, calls("b"), results("b")]
    record([
        asked(first, calls("a"), 0), asked(first, calls("b"), 1), asked(one, calls("c"), 2), asked(two, calls("d"), 3),
        asked([*one, calls("c"), results("c")], "One.", 4), asked([*two, calls("d"), results("d")], "Two.", 5),
    ])  # fmt: skip

    assert scopes(store) == ["main", "rewind-1"]
    assert [text for _, text in texts(store)][-2:] == ["files of c", "One."]
    assert [text for _, text in texts(store, "rewind-1")][-2:] == ["files of d", "Two."]


def test_a_message_that_a_client_changed_is_changed_in_place(store: Path, record: Any) -> None:
    changed = [
        TWO[0],
        TWO[1],
        {**results("a"), "content": [{"type": "tool_result", "tool_use_id": "a", "content": "[cleared]"}]},
    ]
    record([asked(TWO[:1], ONE[1], 0), asked(TWO[:3], TWO[3], 1), asked([*changed, TWO[3], user("Go on.")], "Yes.", 2)])

    assert scopes(store) == ["main"]
    assert {text: state for state, text in texts(store)}["files of a"] == "archived"
    assert bodies(store)[-1] == body([*changed, TWO[3], user("Go on.")])


def test_a_call_beside_the_conversation_is_in_a_scope_of_its_own(store: Path, record: Any) -> None:
    title = asked([user("Write a title for: Fix it.")], "Fixing", 0, tools=(), system="You write titles.")
    record([title, asked(TWO[:1], ONE[1], 1), asked(TWO[:3], TWO[3], 2), title])

    assert scopes(store) == ["main", "side"]
    assert len(bodies(store)) == 2
    assert bodies(store, scope="side") == [title.body, title.body]


def test_sub_agents_are_scopes(store: Path, record: Any) -> None:
    one, two = ({**CLAUDE, "x-claude-code-agent-id": name} for name in ("one", "two"))
    task = [user("Look around.")]
    record([
        asked(TWO[:1], ONE[1], 0), asked(task, calls("x"), 1, headers=one), asked(task, calls("y"), 2, headers=two),
        asked([*task, calls("y"), results("y")], "Two.", 3, headers=two),
        asked([*task, calls("x"), results("x")], "One.", 4, headers=one), asked(TWO[:3], TWO[3], 5),
    ])  # fmt: skip

    assert scopes(store) == ["agent-one", "agent-two", "main"]
    assert [len(bodies(store, scope=name)) for name in scopes(store)] == [2, 2, 2]


def test_a_reply_that_broke_off_and_was_asked_for_again_is_one_step(store: Path, record: Any) -> None:
    broken = asked(TWO[:1], "Let me", 0, whole=False)
    record([broken, asked(TWO[:1], ONE[1], 1), asked(TWO[:3], TWO[3], 2)])

    assert [text for _, text in texts(store)] == ["Fix it.", '{"command":"ls a"}', "files of a", "Done."]


def test_a_reply_that_broke_off_for_good_is_recorded_as_interrupted(store: Path, record: Any) -> None:
    record([asked(TWO[:1], ONE[1], 0), asked(TWO[:3], "Let me", 1, whole=False)])

    assert texts(store)[-1] == ("visible", "Let me")
    with Store(store) as opened:
        stored = StoredSession.for_reading(opened, opened.sessions()[0])
        assert revision.entry(opened, stored.tip()).trailers["Ctxvc-Stop"] == "interrupted"


def test_secrets_are_marks_in_the_body_too_and_the_history_is_known_all_the_same(store: Path, record: Any) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    history = [user(f"Use {key} here."), said("I did."), user("Good."), said("Yes.")]
    record([asked(history[:1], "I did.", 0)])
    record([asked(history[:3], "Yes.", 1)])

    assert scopes(store) == ["main"]
    assert all(key.encode() not in data and b"[REDACTED:" in data for data in bodies(store))
    assert len(texts(store)) == 4


def test_what_fails_is_told_once_and_the_rest_is_recorded(store: Path) -> None:
    troubles: list[str] = []
    recorder = Recorder(lambda: Store(store), on_trouble=troubles.append)
    for item in (
        exchange(b"{}", b"?"),
        exchange(b"[]", b""),
        asked(TWO[:1], ONE[1], 0),
        exchange(b"\xff", b"\0", path="/v1/models"),
    ):
        recorder.record(item)
    recorder.close()

    assert len(troubles) == 1
    assert len(bodies(store)) == 1


@pytest.mark.parametrize("name", ["entire-cli-20-02395c1048-0", "agentv-96-eca76f596a-0", "deer-flow-7cfa5f8f"])
def test_a_recorded_run_is_one_session_with_every_body(store: Path, record: Any, recordings: Path, name: str) -> None:
    sent = list(sending.of_trajectory(recordings / "trajectories" / f"{name}.jsonl.gz"))
    record(sent)

    with Store(store) as opened:
        assert len(opened.sessions()) == 1
    assert bodies(store) == [item.body for item in sent]


def test_json_of_a_request_is_parted_so_that_git_shows_what_is_new(store: Path, record: Any) -> None:
    sent = [asked(TWO[:1], ONE[1], 0), asked(TWO[:3], TWO[3], 1)]
    record(sent)
    with Store(store) as opened:
        stored = StoredSession.for_reading(opened, opened.sessions()[0])
        old, new = (
            set(opened.reader.pieces(commit).items()) for commit in list(opened.first_parents(stored.tip()))[1::-1]
        )

    assert len(new - old) == 2
    assert json.loads(sent[1].body)["messages"] == TWO[:3]


def transcript(path: Path, *, more: bool = False) -> Path:
    """Claude Code's own recording of `TWO`, and with `more` of what came after."""
    lines = [
        prompt("u1", None, "Fix it."),
        call_line("a1", "u1", call("a", command="ls a")),
        result("u2", "a1", "a", "files of a"),
        call_line("a2", "u2", text("Done.")),
    ]
    after = [prompt("u3", "a2", "Thanks."), call_line("a3", "u3", text("Welcome."))]
    return written(path / f"{SESSION}.jsonl", *lines, *(after if more else ()))


def imported(store: Path, path: Path) -> None:
    with Store(store) as opened:
        ingest(opened, claude_code_events(Recording(path)))


@pytest.mark.parametrize("order", ["transcript first", "wire first"])
def test_a_session_that_its_client_records_too_is_there_once(
    store: Path, record: Any, tmp_path: Path, order: str
) -> None:
    headers = {"x-claude-code-session-id": SESSION}
    earlier = [asked(TWO[:1], ONE[1], 0, headers=headers), asked(TWO[:3], TWO[3], 1, headers=headers)]
    thanks = asked([*TWO, user("Thanks.")], "Welcome.", 2, headers=headers)
    if order == "wire first":
        record(earlier)
    imported(store, transcript(tmp_path))
    record([thanks])
    imported(store, transcript(tmp_path, more=True))

    assert scopes(store) == ["main"]
    assert [text.replace(" ", "") for _, text in texts(store)] == [
        "Fixit.",
        '{"command":"lsa"}',
        "filesofa",
        "Done.",
        "Thanks.",
        "Welcome.",
    ]
    assert bodies(store)[-1] == thanks.body
