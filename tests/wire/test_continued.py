"""Another agent's requests on the wire, in a session that was written for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.view.dashboard import is_protocol
from ctxvc.exporters.native import native_format
from ctxvc.exporters.native.session import Setting
from ctxvc.recording.files import remember_written
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.wire.exchange import Management
from ctxvc.wire.sessions import Sessions
from tests.exporters.trips import imported
from tests.wire.clients import Anthropic, Responses, Wire
from tests.wire.sending import exchange

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "claude-code.jsonl"
SETTING = Setting(folder=Path("/work/p"), time=datetime(2026, 11, 28, tzinfo=timezone.utc))


def said(role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


MIDDLE = [said("user", "a question"), said("assistant", "an answer")]
NEWEST = [said("user", "the newest")]


def request(items: Sequence[Any]) -> bytes:
    tools = [{"type": "function", "name": "shell", "parameters": {}}]
    return json.dumps({"model": "gpt-5", "instructions": "You are.", "tools": tools, "input": items}).encode()


def answer(text: str) -> bytes:
    output = [{"id": "msg_1", "status": "completed", **said("assistant", text)}]
    return json.dumps({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5",
                       "output": output, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()  # fmt: skip


def handed_over(store: Store) -> tuple[str, list[Any], int, str]:
    """A session written for Codex: its id, the items that Codex sends of it, and the blocks and tip it is from."""
    recorded = imported(store, RECORDED)
    native = native_format("codex")
    session = native.write(recorded, SETTING)
    remember_written(store, recorded.snapshot, native.format, session.id, session.files)
    lines = map(json.loads, next(iter(session.files.values())).splitlines())
    items = [line["payload"] for line in lines if line["type"] == "response_item"]
    return session.id, items, len(recorded.ledger), recorded.snapshot.commit


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("between", "compacted", "new"),
    [
        ([], False, ["the newest"]),
        (MIDDLE, False, ["a question", "an answer", "the newest"]),
        ([], True, ["a summary", "the newest"]),
    ],
)
def test_what_the_other_agent_is_sent_is_recorded_once_in_a_scope_of_its_own(
    tmp_path: Path, between: list[Any], compacted: bool, new: list[str], named: bool
) -> None:
    """Also turns that nobody recorded, and a beginning that it compacted, which only its id tells whose it is. A result
    that it shortened is none of them.
    """
    path = tmp_path / "store"
    with create(path) as store:
        identifier, items, blocks, base = handed_over(store)
    next(item for item in items if item["type"] == "function_call_output")["output"] = "(shortened by Codex)"
    if compacted:
        items = [items[0], said("user", "a summary"), *items[-2:]]
    headers = {"session-id": identifier, "thread-id": identifier, "x-codex-turn-metadata": "{}"} if named else {}
    sessions = Sessions(lambda: Store(path), agent="codex", session="", folder="/work/p")
    prompt = [*items, *between, *NEWEST]
    for number, more in enumerate(([], [said("assistant", "answer 0"), said("user", "the next")])):
        prompt += more
        sessions.take(
            exchange(request(prompt), answer(f"answer {number}"), path="/v1/responses", headers=headers, number=number)
        )
    sessions.close()

    with Store(path) as store:
        if compacted and not named:
            assert len(list(store.sessions())) == 2
            return
        (session,) = store.sessions()
        tips = dict(store.tips(session))
        assert tips.pop("main") == base
        ((scope, tip),) = tips.items()
        snapshot = revision.at(store, tip)
        rows = [row for row in snapshot.ledger.rows() if row.number > blocks]
        texts = [snapshot.bodies.body(row).decode() for row in rows]
        assert scope.startswith("codex-")
        assert texts == [*new, "answer 0", "the next", "answer 1"]
        assert base in store.first_parents(tip)
        present = [row for row in snapshot.ledger.rows() if row.present]
        assert (len(present) == len(snapshot.ledger)) == (not compacted)


@pytest.mark.parametrize("is_killed", [False, True])
def test_inside_a_budget_it_goes_on_there_also_after_a_kill(
    tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill is between the scope's first commit and what says whose it is."""
    path = tmp_path / "store"
    with create(path) as store:
        identifier, items, blocks, _ = handed_over(store)

    def begin() -> Wire:
        sessions = Sessions(
            lambda: Store(path), agent="codex", session="", folder="/work/p", management=Management(budget=200_000)
        )
        wire = Wire(Responses([{"name": "shell", "input_schema": {"type": "object"}}]), sessions)
        wire.headers = {"session-id": identifier, "x-codex-turn-metadata": "{}"}
        return wire

    wire = begin()
    wire.client.messages += [*items, *NEWEST]
    if is_killed:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("ctxvc.wire.sessions._take_over", _killed)
            wire.ask_only()
        again = begin()
        again.client, wire = wire.client, again
    wire.client.took(wire.ask([{"type": "text", "text": "answer 0"}]))
    wire.sessions.close()

    with Store(path) as store:
        (session,) = store.sessions()
        (scope,) = {*store.tips(session)} - {"main"}
        snapshot = revision.at(store, store.tips(session)[scope])
        texts = [snapshot.bodies.body(row) for row in snapshot.ledger.rows() if row.number > blocks]
        assert [text for text in texts if b"dashboard" not in text and b"budget" not in text][-2:] == [
            b"the newest", b"answer 0",
        ]  # fmt: skip
        assert all(row.present for row in snapshot.ledger.rows())


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("budget", [0, 12_000])
def test_a_client_that_changes_its_provider_goes_on_in_the_same_scope(tmp_path: Path, budget: int) -> None:
    """Its history is the same in another form."""
    path = tmp_path / "store"
    management = Management(budget=budget) if budget else None
    sessions = Sessions(
        lambda: Store(path) if path.exists() else create(path),
        agent="opencode", session="", folder="/work/p", management=management,
    )  # fmt: skip
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    call = {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}}
    for number, form in enumerate((Anthropic, Responses, Anthropic)):
        wire = Wire(form(tools), sessions)
        wire.headers, wire.number = {"x-opencode-session-id": "one"}, 10 * number
        wire.client.incoming([{"type": "text", "text": "Look."}])
        answers = [[call], *([{"type": "text", "text": f"Seen {before}."}] for before in range(number + 1))]
        for place, reply in enumerate(answers):
            is_last = place == len(answers) - 1
            body = wire.client.body()
            wire.client.took(wire.ask(reply) if is_last or not number else wire.client.answer(body, reply))
            more = {"type": "tool_result", "tool_use_id": "call_1", "content": "a line"}
            wire.client.incoming([more if place == 0 else {"type": "text", "text": f"And {place}?"}])
        assert [problem for one in wire.calls for problem in one.problems] == []
    sessions.close()

    with Store(path) as store:
        (session,) = store.sessions()
        assert list(store.tips(session)) == ["main"]
        snapshot = revision.at(store, store.tips(session)["main"])
        own = [row for row in snapshot.ledger.rows() if row.kind not in ("dashboard", "note") and not is_protocol(row)]
        texts = [snapshot.bodies.body(row).decode() for row in own if row.present]
        assert texts[2:] == ["a line", "Seen 0.", "And 1?", "Seen 1.", "And 2?", "Seen 2."]
