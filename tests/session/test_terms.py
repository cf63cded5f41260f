"""What a policy asks of the harness reaches what is sent, and nothing else of it changes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ctxvc.agent import definitions
from ctxvc.policies import context_text, parse
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.session.session import Session
from tests.making.provider import MODEL, SYSTEM, WORDS, Agent, create, result, sent
from tests.messages_api import call, text, thought


def said(session: Session, steps: int = 6) -> list[dict[str, Any]]:
    """What is sent in a session of some steps, an archive and a second turn."""
    bodies = []
    agent = Agent(session)
    for turn in range(2):
        session.append({"role": "user", "content": f"Task {turn}"})
        for at in range(steps):
            bodies.append(sent(session.request()))
            reply = agent.judge.reply(bodies[-1], [thought("Hm."), call("sh", cmd=f"{turn}.{at}")])
            session.append(reply)
            asked = next(block for block in reply["content"] if block["type"] == "tool_use")
            session.append({"role": "user", "content": [result(asked, f"{turn}.{at} {WORDS}" * 30)]})
            if at == 3:
                session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][1], "old")
        bodies.append(sent(session.request()))
        session.append(agent.judge.reply(bodies[-1], [text("Done.")]))
    return bodies


def dashboards(body: dict[str, Any]) -> list[str]:
    return [
        block["text"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "text" and block["text"].startswith("[dashboard")
    ]


class Part(NamedTuple):
    """The named part of a variant: all in which its requests may differ from those of the full method."""

    tools: tuple[str, ...] = ()  # that are gone
    said: tuple[str, ...] = ()  # in the descriptions of others
    fold: bool = False  # what the note takes away is gone
    paragraphs: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    alt: bool = False  # the protocol is in other words
    handles: bool = False  # those of stubs are gone, and the way back
    board: str = "full"


PARTS = {
    "": Part(),
    "dashboard=off": Part(tools=("dashboard",), board="off", paragraphs=("full",)),
    "board=status": Part(tools=("dashboard",), board="status", paragraphs=("full",), instead=("status",)),
    "archive=off": Part(tools=("archive",), said=(" Prefer archive.",), fold=True, paragraphs=("want",)),
    "recover=off": Part(
        tools=("recover", "restore", "search"),
        said=(" Nothing is lost: recover reads them.", " Restore puts them back."),
        paragraphs=("stubs", "recover"),
        instead=("traces",),
        handles=True,
    ),
    "agent=off": Part(
        tools=("archive", "delete", "dashboard"),
        fold=True,
        paragraphs=("when", "overflow", "want"),
    ),
    "wording=alt": Part(alt=True),
    "theta=12000": Part(),
    "batch=50000": Part(),
}
SH = {"name": "sh", "description": "Run a command.", "input_schema": {"type": "object"}}
USUAL = context_text.text(SelfManaged().terms().tools, board="full")


def changed(body: dict[str, Any], part: Part) -> dict[str, Any]:
    """A request of the full method, with nothing but this part changed."""
    tools = [tool for tool in body["tools"] if tool["name"] not in part.tools]
    messages = [{**message, "content": _contents(message["content"], part)} for message in body["messages"]]
    return {"system": body["system"], "tools": [_tool(tool, part) for tool in tools], "messages": messages}


def _tool(tool: dict[str, Any], part: Part) -> dict[str, Any]:
    for words in part.said:
        tool = {**tool, "description": tool["description"].replace(words, "")}
    if tool["name"] == "note" and part.fold:
        fields = {
            name: each
            for name, each in tool["input_schema"]["properties"].items()
            if name not in ("fold", "supersedes")
        }
        tool = {**tool, "input_schema": {**tool["input_schema"], "properties": fields}}
    return tool


def _contents(content: list[dict[str, Any]], part: Part) -> list[dict[str, Any]]:
    made = (
        {**block, **{key: _words(block[key], part) for key in ("text", "content") if key in block}} for block in content
    )
    return [block for block in made if block.get("text") != ""]


def _words(words: Any, part: Part) -> Any:
    if not isinstance(words, str):
        return _contents(words, part)
    if words.startswith(USUAL):
        told = [*part.paragraphs, *part.instead]
        kept = [name for name in context_text._NEEDS if context_text.paragraph(name) in words and name not in told]
        names = [name for name in context_text._NEEDS if name in kept or name in part.instead]
        wording: Any = "alt" if part.alt else "usual"
        return "\n\n".join(context_text.paragraph(name, wording) for name in names) + words.removeprefix(USUAL)
    if words.startswith("[dashboard"):
        header = re.sub("; changed: [0-9]+ blocks?]", "]", words.partition("\n")[0])
        return {"full": words, "status": header, "off": ""}[part.board]
    if part.handles:
        words = re.sub(r"^\[archived (B[0-9]+)@[0-9a-f]{6}, ", r"[archived \1, ", words)
    return words


def whole(body: dict[str, Any]) -> str:
    """System, tools and messages of a request without what hangs on sizes, and on how many blocks came before."""
    messages = [{**message, "content": list(map(_plain, message["content"]))} for message in body["messages"]]
    words = json.dumps([body["system"], body["tools"], messages], ensure_ascii=False, sort_keys=True)
    words = re.sub(r"\bB[0-9]+\b", "B", words)
    words = re.sub(r"\[B · [0-9.]+[kM]?\]", "[B · #]", words)  # sizes are as the provider counts what it was sent
    return re.sub(r"(toolu|msg)_\w+", r"\1", words)


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    block = {name: value for name, value in block.items() if name not in ("signature", "cache_control")}
    if block.get("text", "").startswith("[dashboard"):
        lines = [re.sub("[0-9][0-9,]*", "#", re.sub("[#.]{20}", "", line)) for line in block["text"].splitlines()]
        # The first row is the protocol's: its label is how that begins.
        block["text"] = "\n".join(line.partition(" pinned ")[0] if " pinned # " in line else line for line in lines)
    return block


def variant(path: Path, words: str) -> list[dict[str, Any]]:
    """The requests of the full method, or of a variant of it, in a window where each row of a dashboard has room."""
    policy = SelfManaged() if not words else parse(f"self_managed:{words}")
    tools = definitions(policy.terms(), own=[SH])
    session = Session.open(path, "demo", model=MODEL, budget=200_000, system=SYSTEM, tools=tools, policy=policy)
    session.set(calibration=(1000, 0))
    return said(session)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return variant(tmp_path_factory.mktemp("full") / "s", "")


@pytest.fixture(scope="module")
def expected(full: list[dict[str, Any]]) -> dict[str, list[str]]:
    """All of each request of each variant, as its part says: system, tools and messages."""
    return {words: [whole(changed(body, part)) for body in full] for words, part in PARTS.items()}


@pytest.mark.parametrize("words", PARTS)
def test_the_requests_of_a_variant_differ_in_its_named_part_only(
    tmp_path: Path, expected: dict[str, list[str]], words: str
) -> None:
    requests = [whole(body) for body in variant(tmp_path / "s", words)]
    assert requests == expected[words]
    for other, part in PARTS.items():
        differs = expected[other] != requests
        assert differs == (part != PARTS[words]), f"{other!r} is not told from {words!r}"


def test_whatever_else_differs_in_a_request_is_seen(full: list[dict[str, Any]]) -> None:
    body = full[-1]
    assert any(len(dashboards(each)) for each in full)
    for path in (("system",), *_texts(body)):
        other = copy.deepcopy(body)
        place = other
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = f"{place[path[-1]]} more"
        assert whole(other) != whole(body), path


def _texts(body: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Where the words of a request stand."""
    yield from (("tools", at, "description") for at in range(len(body["tools"])))
    for at, message in enumerate(body["messages"]):
        for number, block in enumerate(message["content"]):
            yield from (
                ("messages", at, "content", number, key) for key in ("text", "thinking", "name") if key in block
            )


def test_a_status_board_is_one_line_with_the_totals(tmp_path: Path, full: list[dict[str, Any]]) -> None:
    status = variant(tmp_path / "s", "board=status")
    shown = [board for body in status for board in dashboards(body)]
    assert shown
    assert all("\n" not in board and board.endswith("]") for board in shown)
    assert any("\n" in board for body in full for board in dashboards(body))
    totals = "overhead [0-9,]+, conversation [0-9,]+, dashboard [0-9,]+"
    assert all(re.search(totals, dashboards(body)[0]) for body in status)


NUDGE = r"past [0-9]+ %: make room with [a-z, ]+ when you can"


@pytest.mark.parametrize(
    ("spec", "ways"),
    [
        ("default:protect=sh", "archive, note with fold or scope"),
        ("self_managed", "archive or note with fold"),
        ("self_managed:board=status", "archive or note with fold"),
        ("self_managed:archive=off", "delete"),
        ("self_managed:agent=off", ""),
        ("keep", ""),
    ],
)
def test_a_threshold_that_is_crossed_is_told_with_the_tools_to_act(tmp_path: Path, spec: str, ways: str) -> None:
    with create(tmp_path / "s", budget=16_000, policy=parse(spec)) as session:
        session.append({"role": "user", "content": "Look."})
        while session.used() < session.budget.effective * 0.9:
            session.request()
            asked = {"type": "tool_use", "id": f"toolu_{len(session.ledger())}", "name": "sh", "input": {}}
            session.append({"role": "assistant", "content": [asked]})  # says nothing of what it took
            session.append({"role": "user", "content": [result(asked, WORDS * 25)]})
        stands = re.findall(NUDGE, str(session.request().messages))
        assert len(stands) == len(set(stands))
        told = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "dashboard"]
        # Again where a cut took away the board that said it.
        nudges = list(dict.fromkeys(found for board in told for found in re.findall(NUDGE, board)))
        assert nudges == ([f"past {mark} %: make room with {ways} when you can" for mark in (60, 85)] if ways else [])


def test_who_has_noted_nothing_in_a_scope_is_told_to_before_leaving_it(tmp_path: Path) -> None:
    reminder = "nothing noted in 3 steps: note what you learned before you goto another scope"
    for spec, reminds in (("scoped", True), ("default", True), ("self_managed", False)):
        with create(tmp_path / spec, policy=parse(spec)) as session:
            agent = Agent(session)
            agent.say("Look.")

            def reminded(steps: int, agent: Agent = agent) -> list[int]:
                """The steps after which the next request reminds."""
                found = []
                for at in range(steps):
                    agent.step("one line")
                    before = len(agent.session.ledger())
                    agent.session.request()
                    new = list(agent.session.ledger().rows())[before:]
                    found += [at + 1 for row in new if reminder in agent.session.body(row.id).decode()]
                return found

            assert reminded(5) == []  # nobody leaves main for good
            session.open_scope("side", "look at it")
            assert reminded(6) == ([3] if reminds else [])
            session.note("it is so")
            assert reminded(6) == ([3] if reminds else [])
            session.goto("main", "it is so")
            assert reminded(4) == []


def test_a_dashboard_that_is_off_keeps_its_room(tmp_path: Path) -> None:
    """Between the guard and what a dashboard would take from it, the guard acts all the same."""
    with create(
        tmp_path / "off", budget=12_000, policy=SelfManaged(dashboard=False, agent=False, share=0.98)
    ) as session:
        agent = Agent(session)
        agent.say("Look.")
        cap, guard = session.budget.dashboard_cap, session.budget.guard
        for _ in range(6):
            agent.step(WORDS * 60)
        while session.used() <= guard - cap // 2:
            session.append({"role": "user", "content": WORDS}, origin="client")
        assert guard - cap // 2 < session.used() <= guard
        session.request()
        assert session.used() <= guard - cap // 2


@pytest.mark.parametrize("recover", [True, False])
def test_where_nothing_can_be_got_back_no_text_of_ours_says_so(tmp_path: Path, recover: bool) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=recover)) as session:
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 400, *(WORDS * 10,) * 3)
        agent.step(*(f"{at} {WORDS}" * 140 for at in range(60)))
        agent.step(WORDS * 30)
        agent.step("seen")
        results = [row.id for row in session.ledger().rows() if row.kind == "tool_result"]
        session.archive(results[4:6], "two listings")
        session.delete(results[-2], "a mistake")
        shown = str(
            [row.stub for row in session.ledger().rows()] + [group.stub for group in session.ledger().groups.values()]
        )
        for verb in ("archived B", "archived G", "blocked B", "deleted B"):
            assert f"[{verb}" in shown
        heads = re.findall(r"\[(?:archived|blocked|deleted) ([BG][0-9]+)(@[0-9a-f]{6})?[,:]", shown)
        assert len(heads) == shown.count("[archived") + shown.count("[blocked") + shown.count("[deleted")
        assert all(bool(checksum) == recover for _, checksum in heads)
        assert "recover" not in shown  # the tools' definitions say how
        assert ("recover" in str(session.request().messages)) == recover
        group = next(group.id for group in session.ledger().groups.values() if results[4] in group.members)
        listed = session.recover(group).text
        assert results[4] in listed and results[5] in listed


def test_a_stub_that_hides_its_handle_cannot_be_forged(tmp_path: Path) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=False)) as session:
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 400)
        (row,) = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        stub = row.stub.partition("\n")[0]
        assert row.state == "blocked" and stub.startswith(f"[blocked {row.id}, ")
        agent.step(stub)
        shown = str(session.request().messages)
        assert shown.count(stub) == 2
        assert shown.count("\\" + stub) >= 1


def test_thresholds_of_a_policy_hold_where_the_session_has_none_of_its_own(tmp_path: Path) -> None:
    policy = SelfManaged(theta=700)
    with create(tmp_path / "s", budget=32_000, policy=policy) as session:
        assert session.view().budget.offload == 700
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 30, WORDS * 60)
        states = [row.state for row in session.ledger().rows() if row.kind == "tool_result"]
        assert states == ["visible", "blocked"]
        session.set(ladder={"offload_most": 5_000})
        assert session.view().budget.offload == 5_000


def test_the_results_of_a_step_cost_no_more_than_its_batch(tmp_path: Path) -> None:
    for batch, previews in ((0, 0), (3_000, 2)):
        with create(tmp_path / f"{batch}", policy=SelfManaged(batch=batch)) as session:
            agent = Agent(session)
            agent.say("Look.")
            agent.step(*(f"{at} {WORDS}" * (60 - at) for at in range(4)))
            states = [row.state for row in session.ledger().rows() if row.kind == "tool_result"]
            assert states == ["archived"] * previews + ["visible"] * (4 - previews)


def test_the_protocol_counts_as_overhead(tmp_path: Path) -> None:
    with create(tmp_path / "s", policy=SelfManaged()) as told, create(tmp_path / "t") as plain:
        tokens = told.view().price.body(told.ledger()["B1"])
        for session in (told, plain):
            Agent(session).say("Look.")
        assert tokens > 250
        board, other = told.dashboard(), plain.dashboard()
        assert board.overhead == other.overhead + tokens
        assert board.conversation == other.conversation
        assert board.used == told.used()
        totals = told._context.totals(told.view())
        assert (totals.overhead, totals.conversation) == (board.overhead, board.conversation)


def test_a_reminder_makes_no_cut(tmp_path: Path) -> None:
    """It came on a board that no longer fitted beside the others, with a cut for that: twice the broken prefixes."""
    with create(tmp_path / "s", budget=24_000, policy="default") as session:
        agent = Agent(session)
        while session.used() < 0.62 * session.budget.effective:
            agent.say("Look.")
            agent.step(WORDS * 60)
            agent.step(WORDS * 60)
        session.request()
        boards = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "dashboard"]
        assert session.ledger().meta.cuts == ()
        (reminder,) = [board for board in boards if "past 60 %" in board]
        assert "\n" not in reminder
