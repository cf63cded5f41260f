"""Servers × faults: each is one plain line, recorded, asked again where that helps, and no ledger suffers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anthropic
import pytest

from ctxvc.agent import run
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.provider import Anthropic
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.read import operations
from ctxvc.store.store import Store
from tests.conftest import Copied
from tests.making.provider import WORDS, damages, plain
from tests.messages_api import Judge

from .servers import DIALECTS, FAULTS, OVERFLOWS, WINDOW, Answer, Dialect, Fault, Loopback, Writer, serving
from .test_run import Eyes, asked, begun
from .test_windows import Printer

TABLE = Path(__file__).parents[2] / "docs" / "benchmarks" / "servers.md"


class Hands(Printer):
    """Hands that keep the commands that they were given."""

    def __init__(self) -> None:
        super().__init__(3)
        self.commands: list[str] = []

    def run(self, name: str, given: dict[str, object], call: str = "") -> object:  # type: ignore[override]
        self.commands.append(str(given["command"]))
        return super().run(name, given, call)


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def model(server: Loopback) -> Iterator[Anthropic]:
    with anthropic.Anthropic(api_key="test", base_url=server.url, max_retries=0) as client:
        yield Anthropic(client, sleep=lambda _: None)


def recorded(session: Session) -> list[str]:
    """The faults in the session's history, oldest first."""
    return [change.subject for change in operations.changes(session.stored) if change.op == "fault"][::-1]


def problems(server: Loopback) -> list[str]:
    """What the Messages API would say against the requests that the server got."""
    judge = Judge(thinking=False)
    return [problem for body in server.bodies for problem in judge.rule(body, betas=server.betas).problems]


@pytest.mark.parametrize(
    "dialect",
    [
        pytest.param(dialect, id=dialect.name, marks=() if dialect.name == "llama.cpp" else pytest.mark.slow)
        for dialect in DIALECTS
    ],
)
def test_every_fault_of_every_server_is_one_line_recorded_and_borne(
    tmp_path: Path, server: Loopback, model: Anthropic, dialect: Dialect
) -> None:
    """All faults in one session, one turn each: what one leaves behind would be in the way of the next."""
    writer, hands = Writer(dialect), Hands()
    setup = run.Setup(model=model, hands=hands, watcher=Eyes())  # type: ignore[arg-type]
    with begun(tmp_path) as session:
        faults_before = 0
        for fault in FAULTS:
            server.answers[:], server.bodies[:], hands.commands[:] = fault.answers(writer), [], []
            asked(session, f"now {fault.name}")
            if fault.says:
                with pytest.raises(ModelFailed) as error:
                    run.go(session, setup)
                in_one_line(str(error.value), fault.says)
                assert error.value.exit_code == 1
            else:
                assert run.go(session, setup).text == "Done.", fault.name
            assert hands.commands == list(fault.ran), fault.name
            assert len(server.bodies) == fault.requests, fault.name
            assert problems(server) == [], fault.name
            faults = recorded(session)[faults_before:]
            assert len(faults) == fault.faults, (fault.name, faults)
            faults_before += len(faults)
            for line in faults:
                in_one_line(line, "")
        results = [row.call for row in session.ledger().rows() if row.kind == "tool_result"]
        assert len(results) == len(set(results)), "each call has one result"
        replies = len([row for row in session.ledger().rows() if row.kind == "assistant"])
        assert replies >= len([fault for fault in FAULTS if not fault.says])
    with Store(tmp_path / ".ctxvc") as store:
        assert not damages(store)
        checked, wrong = check_prompts(store)
        assert checked > len(FAULTS)
        assert wrong == []


def in_one_line(message: str, part: str) -> None:
    assert part in message
    assert len(message) < 400
    for sign in ("\n", "{'", '{"', "<html", "Traceback", "bug in ctxvc"):
        assert sign not in message


def filled(folder: Path) -> None:
    """A run whose prompt is larger than the window that an overflow names."""
    with begun(folder) as session:
        for number in range(12):
            asks = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": "x"}}
            gives = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number} {WORDS}" * 120}
            session.append({"role": "assistant", "content": [asks]}, {"role": "user", "content": [gives]})


@pytest.mark.parametrize("overflow", OVERFLOWS, ids=[f"{row['server']}-{at}" for at, row in enumerate(OVERFLOWS)])
def test_room_is_made_to_the_window_that_an_overflow_names(
    tmp_path: Path, copied: Copied, server: Loopback, model: Anthropic, overflow: Mapping[str, Any]
) -> None:
    writer = Writer(DIALECTS[0])
    answer = writer.whole(overflow["body"])
    server.answers[:] = [
        Answer(overflow["status"], answer.kind, answer.body),
        writer.stream(writer.message({"type": "text", "text": "Done."})),
    ]
    server.bodies.clear()
    with plain(Session.open(copied(filled, tmp_path) / ".ctxvc", "run-1"), (1_500, 0)) as session:
        before = session.used()
        assert before > WINDOW
        setup = run.Setup(model=model, hands=Hands(), watcher=Eyes())  # type: ignore[arg-type]
        assert run.go(asked(session), setup).text == "Done."
        names_it = str(WINDOW) in str(overflow)
        assert session.budget.window == (WINDOW if names_it else 60_000)
        assert session.used() < (WINDOW if names_it else before)
        (line,) = recorded(session)
        in_one_line(line, "fault: ")
    assert len(server.bodies) == 2
    assert problems(server) == []


# --- the page


def rows() -> Iterator[str]:
    """A row for each thing that becomes of faults, the same on every server."""
    outcomes: dict[str, list[str]] = {}
    for fault in FAULTS:
        outcomes.setdefault(cell(fault), []).append(fault.name)
    yield "| what becomes of it | faults |"
    yield "|---|---|"
    for outcome, faults in outcomes.items():
        yield f"| {outcome} | {'; '.join(faults)} |"
    counts = Counter(row["server"] for row in OVERFLOWS)
    wordings = ", ".join(f"{dialect.name} {counts[dialect.name]}" for dialect in DIALECTS)
    yield f"| room made | a prompt that is too long; wordings: {wordings} |"


def cell(fault: Fault) -> str:
    return f"{fault.becomes}, {fault.faults} recorded" if fault.faults else fault.becomes


def test_the_table_of_the_page_is_the_one_that_is_run() -> None:
    """Each fault is one that the tests above ran to its end on every server."""
    table = re.search(r"<!-- table -->\n(.*?)\n<!-- end -->", TABLE.read_text(), re.DOTALL)
    assert table
    assert table[1].splitlines() == list(rows())
