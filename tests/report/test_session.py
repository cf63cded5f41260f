"""What is on the page of a session is what the command line says of it, and nothing recorded gets out of its place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.core.prompt.outline import outline, pieces, sendable
from ctxvc.inspection import usage
from ctxvc.inspection.window_percent import OVERHEAD, UNRECORDED, occupancy
from ctxvc.report import data
from ctxvc.report.prompts import text_of
from ctxvc.report.texts import unpacked
from ctxvc.session import proof
from ctxvc.session.session import Session
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.tokens.meter import Meter
from tests.report.conftest import RECORDINGS, asked, paged

SESSIONS = [*RECORDINGS, "managed"]
#: A part of the page → the kinds of `context --by kind`, some of which have two parts.
#: What `context` has as text of a role, the page by who wrote it.
TEXT = "text"
KINDS = {"results": "tool_result", "calls": "tool_use", "answers": "assistant", "notes": "note", "images": "image"}
KINDS |= {"you": TEXT, "client": TEXT, OVERHEAD: TEXT, "dashboards": "dashboard", "documents": "document"}


def prompts(page: data.Session) -> Iterator[list[tuple[str, str]]]:
    """The prompt of each call as (role, text), as a reader of the page puts it together."""
    texts = unpacked(page.bodies.chunks)

    def at(place: data.Place) -> str:
        assert isinstance(place, tuple)
        return texts[place[0] : place[0] + place[1]].decode("utf-8", "surrogatepass")

    def text(piece: data.Piece) -> str:
        if piece.text is None:
            return at(page.blocks.body[piece.block])
        return piece.text if isinstance(piece.text, str) else at(piece.text)

    prompt: list[int] = []
    for splices in page.prompts.deltas:
        for start, count, new in splices:
            prompt[start : start + count] = new
        parts = [page.prompts.pieces[number] for number in prompt]
        yield [(piece.role, piece.before + text(piece) + piece.after) for piece in parts]


@pytest.mark.parametrize("name", SESSIONS)
def test_the_prompt_of_every_call_is_the_one_that_its_reply_saw(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    assert page.calls.n
    with Store(recorded / FOLDER) as store:
        for call, prompt in enumerate(prompts(page)):
            sent = proof.as_sent(store, revision.at(store, page.calls.commit[call]))
            render = sent.ledger.meta.render
            assert prompt == [
                (piece.role, text_of(piece.body, piece.ext, piece.extra) + (f"\n{piece.tag}" if piece.tag else ""))
                for piece in sendable(pieces(outline(sent.ledger), sent.bodies, render), render)
            ], call


@pytest.mark.parametrize("name", SESSIONS)
def test_the_numbers_are_those_of_the_command_line(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    calls = page.calls
    usage = asked(recorded, "--session", name, "log", "--usage")
    # Some hosts record the tokens of replies alone.
    by_commit = {item["commit"]: item for item in usage["items"] if item["fresh"] + item["written"] + item["read"]}
    reported = [commit for call, commit in enumerate(calls.commit) if calls.reported[call] is not None]
    assert set(reported) == by_commit.keys() & set(calls.commit)
    for call, commit in enumerate(calls.commit):
        if item := by_commit.get(commit):
            assert (calls.cost[call] or 0.0) == pytest.approx(item["dollars"] or 0.0, abs=1e-6)
            cache = calls.cache
            figures = [column[call] for column in (cache.fresh, cache.write, cache.hits, cache.output)]
            assert figures == [item["fresh"], item["written"], item["read"], item["reply"]]
    numbers = {number.name: number.value for number in page.verdict.numbers}
    assert numbers["calls"] == calls.n
    if len(reported) == calls.n and by_commit.keys() <= set(calls.commit):
        assert numbers["cost"] == (pytest.approx(usage["dollars"], abs=1e-4) if usage["dollars"] else None)
    assert numbers["peak"] == max(calls.total)
    growth = asked(recorded, "--session", name, "context", "main", "--growth")["items"]
    own = [call for call in range(calls.n) if page.scopes[calls.scope[call]].name == "main"]
    assert [item["tokens"] for item in growth] == [calls.total[call] for call in own]


@pytest.mark.parametrize("name", SESSIONS)
def test_what_left_is_all_that_a_change_took_out_or_withheld(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    leaving = {"offload", "archive", "prune", "delete"}  # be it between two calls, so that no prompt had it
    departed = {life.block for life in page.lives if life.verb in leaving}
    departed -= {block for block, kind in enumerate(page.blocks.kind) if kind == "dashboard"}
    for block, (kind, spans) in enumerate(zip(page.blocks.kind, page.blocks.intervals, strict=True)):
        present = [page.states[state] in ("visible", "pinned", "masked") for state in spans[2::3]]
        if kind != "dashboard" and (True, False) in pairwise(present):
            departed.add(block)
    numbers = {number.name: number.value for number in page.verdict.numbers}
    assert numbers["left"] == len(departed)


def test_a_window_that_nothing_tells_is_assumed(recorded: Path, tmp_path: Path) -> None:
    assert "of its window of 16k" in paged(recorded, "managed").verdict.sentence
    with Session.open(tmp_path / FOLDER, "unknown") as session:
        session.append({"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"})
    assert "of an assumed window of 200k" in paged(tmp_path, "unknown").verdict.sentence


def test_what_was_withheld_left_and_the_verdict_says_why(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat all.log"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": " ".join(map(str, range(9_000)))}
    create(tmp_path / FOLDER).close()
    with Session.open(tmp_path / FOLDER, "tight", budget=8_000) as session:
        session.append({"role": "user", "content": "what is in the log?"})
        session.append({"role": "assistant", "content": [call]})
        session.append({"role": "user", "content": [result]})
        session.append({"role": "assistant", "content": "numbers"})

    page = paged(tmp_path, "tight")

    (life,) = [life for life in page.lives if life.verb == "offload"]
    assert page.blocks.kind[life.block] == "tool_result"
    assert next(number.value for number in page.verdict.numbers if number.name == "left") == 1
    assert "1 block (" in page.verdict.sentence
    assert "of which 1 was too large to be shown at all; none came back." in page.verdict.sentence


@pytest.mark.parametrize("name", SESSIONS)
def test_the_tokens_by_kind_are_those_of_context(recorded: Path, name: str) -> None:
    """`context` has the prompt after a call: the one before a reply that was answered by nothing is the next's."""
    page = paged(recorded, name)
    for call in range(1, page.calls.n, max(1, page.calls.n // 4)):
        with Store(recorded / FOLDER) as store:
            sent = proof.as_sent(store, revision.at(store, page.calls.commit[call]))
            meter = Meter(store, sent.ledger.meta.tokenizer)
            categories = usage.categories(
                sent.ledger, meter.costs(sent), meter.overhead(sent), "kind", sent.bodies.body
            )
        line = _line_at(recorded, page.calls.commit[call])
        expected: dict[str, int] = {}
        for category in categories:
            kind = TEXT if category.name in ("user", "system", OVERHEAD) else category.name
            expected[kind] = expected.get(kind, 0) + category.tokens
        on_page: dict[str, int] = {}
        for part, tokens in page.calls.tokens.items():
            if part != UNRECORDED:
                kind = KINDS.get(part, part)
                on_page[kind] = on_page.get(kind, 0) + tokens[call]
        recorded_tokens = min(page.calls.total[call], sum(expected.values()) * line // 1000)
        assert sum(on_page.values()) == recorded_tokens
        for kind, tokens in expected.items():  # in proportion, but for the rounding, which the largest takes
            assert abs(on_page.get(kind, 0) - tokens * recorded_tokens / sum(expected.values())) < len(
                page.calls.tokens
            )


def _line_at(project: Path, commit: str) -> int:
    """Thousandths of our count that the provider's is taken for at a commit."""
    with Store(project / FOLDER) as store:
        snapshot = revision.at(store, commit)
        meter = Meter(store, snapshot.ledger.meta.tokenizer)
        return occupancy(store, snapshot, meter, meter.costs(snapshot)).calibration[0]


@pytest.mark.parametrize("name", SESSIONS)
def test_the_lanes_end_where_status_has_the_blocks(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    answer = asked(recorded, "--session", name, "status")
    status = {item["id"]: item for item in answer["items"]}
    front = next(number for number, scope in enumerate(page.scopes) if scope.name == answer["scope"])
    states = {
        block: page.states[intervals[-1]]
        for block, scope, intervals in zip(page.blocks.id, page.blocks.scope, page.blocks.intervals, strict=True)
        if scope == front and intervals and intervals[-2] == page.calls.n + 1
    }
    assert status.keys() <= states.keys()
    for block, item in status.items():
        state = item["status"].partition(" ")[0]
        if state in ("visible", "pinned", "masked", "deleted"):
            assert states[block] == state, block
        elif state == "cut":
            assert states[block] == "gone", block
        else:
            assert states[block] in ("stub", "gone"), block


def test_a_change_has_who_made_it_and_what_takes_it_back(recorded: Path) -> None:
    page = paged(recorded, "managed")
    archived = [(life, page.causes[life.cause]) for life in page.lives if life.verb == "archive"]
    assert {(cause.actor, cause.policy) for _, cause in archived} == {("policy", "default")}
    commits = [cause.commit for cause in page.causes]
    assert len(set(commits)) == len(commits) < len(page.lives), "what blocks share stands there once"
    assert len({life.reason for life, cause in archived}) > 1, "each block has its own reason"
    restored = [life for life in page.lives if life.verb == "restore" and page.causes[life.cause].actor == "user"]
    assert [life.undo for life in restored if life.undo] == [
        f"ctxvc --session managed archive {page.blocks.id[life.block]}" for life in restored if life.undo
    ]
    assert any(page.blocks.reads) and any(life.verb == "recover" for life in page.lives)
    kinds = {mark.kind for mark in page.marks}
    assert {"plan", "break", "recover", "scope", "note", "undo"} <= kinds
    side = next(scope for scope in page.scopes if scope.name == "side")
    assert page.scopes[side.parent].name == "main"
    assert "it is the cache" in [note.text for note in side.notes]


def test_nothing_left_costs_the_same_and_something_left_less_tokens(recorded: Path) -> None:
    page = paged(recorded, "managed")
    assert all(ours <= without for ours, without in zip(page.calls.total, page.calls.unmanaged, strict=True))
    assert page.calls.total[0] == page.calls.unmanaged[0]
    assert page.calls.total[-1] < page.calls.unmanaged[-1]
    untouched = paged(recorded, "codex")
    if not any(life.verb == "archive" for life in untouched.lives):
        assert untouched.calls.total == untouched.calls.unmanaged
        assert untouched.calls.cost == untouched.calls.cost_without


def test_a_session_without_a_call_says_so(tmp_path: Path) -> None:
    with Store(_empty(tmp_path)) as _:
        pass
    page = paged(tmp_path, "empty")
    assert page.verdict.sentence == "The model has not been called yet."
    assert page.calls.n == 0 and not page.prompts.deltas


def _empty(project: Path) -> Path:
    with create(project / FOLDER) as store:
        store.create_session("empty")
    return project / FOLDER


def test_what_is_in_no_commit_yet_is_on_the_page_of_a_whole_session(built: Path) -> None:
    page = paged(built, "demo")
    status = asked(built, "--session", "demo", "status")
    assert status["waiting"]
    newest = status["items"][-1]["id"]
    assert newest in page.blocks.id
    assert msgspec.json.decode(msgspec.json.encode(page), type=data.Session) == page


def test_a_subject_that_is_nothing_is_refused_by_all_that_it_can_be(built: Path) -> None:
    refused = CliRunner().invoke(cli, ["-C", str(built), "report", "nosuch", "-o", "page.html"])
    assert refused.exit_code == 1
    assert "no session, revision or file of results 'nosuch'" in refused.stderr
    assert "ctxvc sessions" in refused.stderr
    far = CliRunner().invoke(cli, ["-C", str(built), "report", "step:999", "-o", "page.html"])
    assert far.exit_code == 1 and "no step 999" in far.stderr
    nowhere = CliRunner().invoke(cli, ["-C", str(built), "report", "-o", "no/such/folder/page.html"])
    assert nowhere.exit_code == 1 and "make the folder first" in nowhere.stderr
