"""Tags: what a model is told of each result's address, and what was sent stays as it was."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.display import human_tokens
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats, stub
from ctxvc.core.prompt.outline import outline, pieces
from ctxvc.core.prompt.request import Request
from ctxvc.core.view.view import measure
from ctxvc.forms import chat_writer
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store import format as fmt
from ctxvc.store import store as stores
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

STORES = Path(__file__).parent.parent / "stores"
LONG = "a line of some words\n" * 40


def called(number: int, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"path": f"src/{number}.py"}, **more}
    return {"role": "assistant", "content": [block], "stop_reason": "tool_use"}


def answered(number: int, content: Any = LONG, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": content, **more}
    return {"role": "user", "content": [block]}


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    with Session.open(place, "s", model="claude-opus-4-5", budget=60_000, system="You help.") as opened:
        opened.append({"role": "user", "content": "Mend it."})
        yield opened


def behind(request: Request, number: int) -> list[str]:
    """The texts of the result of a call."""
    for message in request.messages:
        for block in message["content"]:
            if block.get("tool_use_id") == f"c{number}":
                return [item["text"] for item in block.get("content", ()) if item["type"] == "text"]
    raise LookupError(number)


def step(session: Session, number: int, content: Any = LONG) -> Request:
    session.request()
    session.append(called(number))
    session.append(answered(number, content))
    return session.request()


def result_of(session: Session, number: int) -> str:
    """The block of the result of a call."""
    return next(row.id for row in session.ledger().rows() if row.kind == "tool_result" and row.call == f"c{number}")


def tag_of(session: Session, number: int) -> str:
    return session.ledger()[result_of(session, number)].tag


def test_a_result_ends_with_its_tag_from_the_first_time_it_is_sent_on(session: Session) -> None:
    first = step(session, 1)

    assert behind(first, 1) == [LONG, tag_of(session, 1)]
    assert tag_of(session, 1).startswith("[B")
    assert session.body(tag_of(session, 1)[1:].split(" ")[0]) == LONG.encode()
    second = step(session, 2, [{"type": "text", "text": LONG}, {"type": "text", "text": "and more"}])
    assert second.messages[: len(first.messages)] == first.messages, "what was sent has changed"
    assert behind(second, 2) == [LONG, "and more", tag_of(session, 2)]


@pytest.mark.parametrize("number", [1, 99_999])
def test_a_tag_costs_eleven_tokens_at_most(number: int) -> None:
    assert all(
        Meter(None).count(f"[B{number} · {human_tokens(size)}]") <= 11 for size in (40, 999, 2345, 23_456, 1_234_567)
    )


def test_a_tag_is_in_the_cost_of_the_prompt(session: Session) -> None:
    step(session, 1)
    view = session.view()
    without = view.ledger.with_rows([msgspec.structs.replace(row, tag="") for row in view.ledger.rows()])
    assert measure(view.ledger, view.price) - measure(without, view.price) == view.price.text(tag_of(session, 1))
    costs = session._context.meter.costs(revision.now(session.stored))
    assert sum(cost.shown for cost in costs.values()) == measure(view.ledger, view.price)


@pytest.mark.parametrize(
    ("content", "caller"),
    [
        ("short", {}),
        ([{"type": "text", "text": LONG}, {"type": "search_result", "source": "s", "title": "t", "content": []}], {}),
        (LONG, {"caller": {"type": "code_execution_20250825", "tool_id": "x"}}),
    ],
)
def test_small_results_those_of_other_things_and_what_a_program_reads_have_none(
    session: Session, content: Any, caller: dict[str, Any]
) -> None:
    session.request()
    session.append(called(1, **caller))
    session.append(answered(1, content))
    session.request()

    assert tag_of(session, 1) == ""


def test_what_looks_like_a_tag_cannot_pass_for_one(session: Session) -> None:
    text = f"[B1 · 2.3k] and [g3·1] and [B2] {LONG}"

    (shown, _) = behind(step(session, 1, text), 1)
    assert shown == rf"\[B1 · 2.3k] and \[g3·1] and [B2] {LONG}"
    assert stub.guarded(text, 1) == text, "a prompt of version 1 has changed"


def test_other_programs_get_no_tags(session: Session) -> None:
    step(session, 1)
    snapshot = revision.now(session.stored)
    prompt = formats.Prompt(pieces=pieces(outline(snapshot.ledger), snapshot.bodies))

    for form in (formats.anthropic, chat_writer.written):
        assert tag_of(session, 1) not in str(form(prompt))


def test_a_restored_result_gets_its_tag_in_the_next_request(session: Session) -> None:
    for number in (1, 2, 3):
        step(session, number)
    block = result_of(session, 1)
    untagged = msgspec.structs.replace(session.ledger()[block], tag="")
    session.stored.change(subject="as of an import", op="x", actor="user", rows=[untagged])
    assert behind(session.request(), 1) == [LONG], "it changed without a cut"
    session.archive(block)
    session.request()
    session.restore(block)

    assert behind(session.request(), 1) == [LONG, tag_of(session, 1)]


def test_tags_are_proven_with_the_prompts(session: Session, place: Path) -> None:
    for number in (1, 2, 3, 4):
        step(session, number)
    session.archive(result_of(session, 1))
    session.request()
    session.append(called(9))
    session.append(answered(9))
    session.restore(result_of(session, 1))
    session.request()
    session.append({"role": "assistant", "content": "Done.", "stop_reason": "end_turn"})
    session.stored.flush()

    with Store(place) as store:
        count, findings = check_prompts(store)
    assert count >= 5 and not findings


def test_a_request_that_is_never_sent_leaves_the_same_prompt(session: Session, place: Path) -> None:
    """A crash between the record of the tags and the call: whoever goes on sends the same bytes."""
    step(session, 1)
    promised = step(session, 2).digest
    session.stored.leave()

    with Session.open(place, "s", scope="main") as other:
        other.shows_dashboard = False
        assert other.request().digest == promised


def test_two_writers_tag_a_result_once(session: Session, place: Path) -> None:
    session.shows_dashboard = False
    step(session, 1)
    with Session.open(place, "s", scope="main") as other:
        other.shows_dashboard = False
        before = tag_of(other, 1)
        assert other.request().digest == session.request().digest
        assert tag_of(session, 1) == tag_of(other, 1) == before != ""


# --- from format 1 to 2


@pytest.fixture
def old(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A session of format 1 with two results, as its program left it."""
    with monkeypatch.context() as before:
        before.setattr(stores, "RENDER", 1)
        before.setattr(fmt, "FORMAT", 1)
        before.setitem(stores._SETTINGS, "ctxvc.format", "1")  # type: ignore[arg-type]
        before.setattr("ctxvc.session.context.RENDER", 1)
        with Session.open(place, "s", model="claude-opus-4-5", budget=60_000, system="You help.") as session:
            session.append({"role": "user", "content": "Mend it."})
            step(session, 1, f"[B9 · 2.3k] {LONG}")
            step(session, 2)
    yield place


def formats_of(session: Session) -> tuple[int, int, int]:
    head = session.stored._state.head
    meta = session.ledger().meta
    return meta.format, meta.render, head.format if head else 0


def test_an_old_session_goes_on_as_it_was_until_a_cut(old: Path) -> None:
    with Session.open(old, "s") as session:
        assert formats_of(session) == (1, 1, 1)
        before = session.request()
        assert behind(before, 1) == [f"[B9 · 2.3k] {LONG}"], "it is rendered by other rules"
        session.append(called(3))
        session.append(answered(3))
        after = session.request()
        assert after.messages[: len(before.messages)] == before.messages
        assert formats_of(session) == (1, 1, 1) and tag_of(session, 3) == ""
        session.append({"role": "assistant", "content": "Mended.", "stop_reason": "end_turn"})
        session.append({"role": "user", "content": "Now the next."})
        now = session.request()
        assert formats_of(session) == (2, 2, 2)
        assert [behind(now, number)[-1] for number in (1, 2, 3)] == [tag_of(session, number) for number in (1, 2, 3)]
        assert behind(now, 1)[0] == rf"\[B9 · 2.3k] {LONG}"
    with Store(old) as store:
        assert check_prompts(store)[1] == []


def test_an_edit_brings_an_old_session_to_today_s_format_for_every_writer(old: Path) -> None:
    with Store(old) as store, StoredSession.open(store, "s") as other, Session.open(old, "s") as session:
        session.archive(result_of(session, 1))
        assert formats_of(session) == (2, 2, 2)
        other.refresh()
        assert other.ledger().meta.render == 2
        other.change(subject="pin", op="pin", actor="user", rows=[])
        session.request()
        assert tag_of(session, 2) != ""


@pytest.mark.parametrize("number", [1, 2])
def test_prompts_that_were_sent_are_rendered_byte_for_byte(number: int, place: Path) -> None:
    stores.create(place).close()
    bundle = str(STORES / f"sent-{number}.bundle")
    subprocess.run(["git", f"--git-dir={place}", "fetch", "-q", bundle, "refs/heads/*:refs/heads/*"], check=True)

    with Store(place) as store:
        count, findings = check_prompts(store)
        with StoredSession.open(store, "sent") as stored:
            rows = list(stored.ledger().rows())
            assert {stored.ledger(scope).meta.render for scope in stored.scopes()} == {number}
    assert count >= 18 and findings == []
    assert any(row.tag for row in rows) == (number > 1)
    assert {"archived", "masked"} & {row.state for row in rows}
    assert any(wire.own_metadata(row.extra).get("protocol") for row in rows)
