"""`prompt` as text shows what is sent: the same pieces, each with the block that it stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.wire import part, text_part
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run
from tests.making.conversation import human, reply
from tests.making.store import archive


def searched(*, whole: bool) -> Message:
    """A search that the provider made by itself: its call and, if `whole`, its result."""
    blocks = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "git"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    ]
    parts: tuple[Part, ...] = tuple(part(block, "assistant", "model") for block in blocks[: 2 if whole else 1])
    return Message(role="assistant", parts=(*parts, text_part("found it", "assistant", "model")))


def headings(run: Run, project: Path) -> list[list[str]]:
    told = run("prompt", folder=project)
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    return [line.split() for line in lines[1:] if line and not line.startswith(" ")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with create(tmp_path / ".ctxvc") as store:
        store.create_session("demo")
    return tmp_path


def test_a_pair_of_the_provider_s_own_is_judged_as_a_pair(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as session:
        session.append(human("look it up"), searched(whole=True))
        session.append(human("again"), searched(whole=False))
    told = headings(run, project)
    assert told[:4] == [["user", "B1"], ["assistant", "B2", "other"], ["assistant", "B3", "other"], ["assistant", "B4"]]
    assert told[4:] == [["user", "B5"], ["assistant", "B6"], ["assistant", "B7"]]  # half of a pair is sent as text


def test_what_is_sent_before_the_first_block_is_shown(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as session:
        session.append(reply("hello"))
    assert headings(run, project) == [["user", "(added)"], ["assistant", "B1"]]


def test_stubs_and_interrupted_results_are_named_by_their_block(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as session:
        session.append(human("one"), reply("two"), human("three"), reply("", "open"))
        archive(session, "B2")
        session.finish()

    assert headings(run, project) == [
        ["user", "B1"],
        ["user", "B2", "(stub)"],
        ["user", "B3"],
        ["assistant", "B4", "tool_use", "sh"],
        ["user", "B5", "tool_result", "sh", "(error)"],
    ]


def test_the_text_and_the_json_hold_the_same_blocks(run: Run, built: Path) -> None:
    answer = json.loads(run("prompt", "--json", folder=built).stdout)
    blocks = [block for message in answer["messages"] for block in message["content"]]
    assert len(headings(run, built)) - bool(answer["system"]) - bool(answer["tools"]) == len(blocks)
