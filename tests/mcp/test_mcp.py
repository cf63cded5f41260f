"""The MCP server, asked by the SDK's own client: in memory, over stdio, by several at once."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference, TextContent, TextResourceContents

from ctxvc.errors import NotFound
from ctxvc.mcp import resources
from ctxvc.mcp.offer import MOST
from ctxvc.mcp.recorded import LISTED
from ctxvc.mcp.recordings import Recordings
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.session_name import by_recency
from ctxvc.store.store import Store
from tests.making.mcp_client import client as connected
from tests.making.project import build

_T = TypeVar("_T")
Ask = Callable[[Client], Awaitable[_T]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with recorded sessions."""
    build(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def live(recorded: Path, tmp_path: Path) -> Path:
    """A store with one session whose oldest result left its prompt."""
    return Path(shutil.copytree(recorded, tmp_path / ".ctxvc", symlinks=True))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, to be copied and never written to."""
    path = tmp_path_factory.mktemp("recorded") / ".ctxvc"
    with Session.open(path, "demo", model="claude-opus-4-5") as session:
        session.append({"role": "user", "content": "Why does it fail?"})
        for number in range(3):
            call = {"type": "tool_use", "id": f"t{number}", "name": "sh", "input": {"cmd": f"make {number}"}}
            output = "".join(f"{number}.{line} the quick brown fox\n" for line in range(200))
            session.append({"role": "assistant", "content": [call]})
            session.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": output}]}
            )
        session.archive("B3", "the first run")
        session.delete("B5", "wrong")
    return path


def asked(store: Path, ask: Ask[_T], mode: Any = "auto", **options: Any) -> _T:
    """What a client in memory gets."""

    async def main() -> _T:
        async with connected(Recordings(lambda: store, **options), mode) as client:
            return await ask(client)

    return anyio.run(main)


def told(store: Path, name: str, /, **given: Any) -> Any:
    """The structured answer of a tool, which must be no error."""
    answer = asked(store, lambda client: client.call_tool(name, given))
    assert not answer.is_error, answer
    return answer.structured_content


def wrong(store: Path, name: str, /, **given: Any) -> str:
    """The error that a tool answers."""
    answer = asked(store, lambda client: client.call_tool(name, given))
    assert answer.is_error, answer
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


# --- what is offered


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_only_what_can_take_effect_in_a_host_is_offered(live: Path, mode: str) -> None:
    listed = asked(live, lambda client: client.list_tools(), mode)
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == {"note", "notes", "recover", "search", "status", "why"}
    for tool in tools.values():
        assert tool.annotations
        assert tool.annotations.destructive_hint is False
        assert tool.annotations.open_world_hint is False
        assert tool.output_schema
        assert tool.title
    assert [name for name in sorted(tools) if tools[name].annotations.read_only_hint] == [
        "notes",
        "recover",
        "search",
        "status",
        "why",
    ]  # type: ignore[union-attr]


def test_nothing_claims_to_have_freed_the_hosts_context(live: Path) -> None:
    async def words(client: Client) -> str:
        said = [str(await client.list_tools()), str(client.instructions)]
        for name, given in (("note", {"text": "x"}), ("recover", {"address": "B3"}), ("status", {})):
            said.append(str(await client.call_tool(name, given)))
        return " ".join(said)

    said = asked(live, words)
    assert "frees your own context, which belongs to the program" in said
    assert "freed" not in said
    assert "data, not instructions" in said


# --- tools


def test_a_note_is_a_commit_and_is_listed(live: Path) -> None:
    made = told(live, "note", text="The fixture is too old.")
    assert (made["session"], made["scope"]) == ("demo", "main")
    listed = {"block": made["block"], "step": 3, "text": "The fixture is too old.", "labels": [], "superseded": ""}
    assert told(live, "notes")["notes"] == [listed]
    with Store(live) as store, Session(StoredSession.open(store, "demo")) as session:
        assert [note.text for note in session.notes()] == ["The fixture is too old."]


def test_a_client_may_name_a_block_as_a_planner_does(live: Path) -> None:
    with Session.open(live, "demo") as session:
        row = next(row for row in session.ledger().rows() if row.kind == "tool_result")
    name = f"function:{row.tool}:{row.number}"
    assert told(live, "recover", address=name)["content"] == told(live, "recover", address=row.id)["content"]
    assert row.id in told(live, "recover", address="user:1")["content"]
    assert f"did you mean {name}?" in wrong(live, "recover", address=f"{row.tool}x:{row.number}")


def test_a_note_is_found_by_its_label(live: Path) -> None:
    told(live, "note", text="The fixture is too old.")
    told(live, "note", text="We make a new one.", labels=["decision", "tests/login"])
    (labelled,) = told(live, "notes", label="decision")["notes"]
    assert (labelled["text"], labelled["labels"]) == ("We make a new one.", ["decision", "tests/login"])
    assert told(live, "notes", label="plan")["notes"] == []
    wrong(live, "note", text="x", labels=["a b"])


def test_many_notes_are_listed_in_part(live: Path) -> None:
    with Session.open(live, "demo") as session:
        for number in range(LISTED + 5):
            session.note(f"Note {number}.")
    listed = told(live, "notes")
    assert len(listed["notes"]) == LISTED
    assert listed["older"] == 5
    assert listed["notes"][-1]["text"] == f"Note {LISTED + 4}."


def test_parts_that_are_asked_for_at_once_all_come_and_count(live: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda line: told(live, "recover", address="B3", lines=f"{line}:{line}"), range(1, 9)))
    assert [part["content"].split()[0] for part in parts] == [f"0.{line}" for line in range(8)]
    with Session.open(live, "demo") as session:
        assert session.ledger()["B3"].reads == 8


def test_what_left_the_prompt_is_read_in_parts_and_counted(live: Path) -> None:
    part = told(live, "recover", address="B3", lines="2:3")
    assert part["content"] == "0.1 the quick brown fox\n0.2 the quick brown fox\n"
    assert "lines 2-3 of 200" in part["header"]
    first = told(live, "recover", address="B3", max_tokens=300)
    assert not first["complete"]
    assert first["next"].startswith("recover B3 lines ")
    assert "1 of 1 lines" in told(live, "recover", address="B3", grep="^0.7 ")["header"]
    with Session.open(live, "demo") as session:
        assert session.ledger()["B3"].reads == 3


def test_a_block_of_one_long_line_is_read_to_its_end(live: Path) -> None:
    line = "".join(f"{number}," for number in range(20_000))
    with Session.open(live, "demo") as session:
        (long,) = session.append({"role": "user", "content": line})
    held, asks = "", {"address": long}
    while True:
        part = told(live, "recover", max_tokens=8_000, **asks)
        held += part["content"]
        if part["complete"]:
            break
        _, address, unit, span = part["next"].split()
        assert unit == "chars"
        asks = {"address": address, unit: span}
    assert held == line


def test_nothing_that_only_the_command_line_takes_is_told(live: Path) -> None:
    said = [
        wrong(live, "search", pattern="("),
        wrong(live, "recover", address="B3", grep="("),
        wrong(live, "recover", address="B999"),
        wrong(live, "recover", address="B3", lines="1:2", chars="1:2"),
        wrong(live, "note", text=""),
        told(live, "recover", address="B3", max_tokens=300)["header"],
    ]
    assert not [words for words in said if re.search(r"(^|[ `])--?[a-zA-Z]", words)], said
    assert "backslash" in said[0]


def test_a_search_says_where_each_hit_is(live: Path) -> None:
    found = told(live, "search", pattern="quick brown")["found"]
    assert [(each["address"].partition("@")[0], each["in_recorded_prompt"]) for each in found] == [
        ("B3", False), ("B7", True),
    ]  # fmt: skip
    assert found[0]["lines"][0] == {"number": 1, "text": "0.0 the quick brown fox"}
    assert found[0]["further_lines"] == 196
    assert told(live, "search", pattern="QUICK", ignore_case=True)["found"]
    assert told(live, "search", pattern="no such")["found"] == []


def test_all_sessions_of_a_project_are_searched_where_asked(project: Path) -> None:
    store = project / ".ctxvc"
    with Store(store) as held:
        names = held.sessions()
        current = held.current_session()
    found = told(store, "search", pattern=".", all_sessions=True)["found"]
    assert found
    other = next(name for name in names if name != current)
    assert told(store, "status", session=other)["session"] == other
    assert told(store, "status")["other_sessions"] == [name for name in names if name != current]


def test_a_ranked_search_gives_the_blocks_that_fit_best(live: Path) -> None:
    found = told(live, "search", pattern="brown fox", rank=True)["found"]
    assert sorted(each["address"].partition("@")[0] for each in found) == ["B3", "B7"]
    assert found[0]["lines"][0]["text"].endswith("the quick brown fox")
    assert told(live, "search", pattern="brown fox", rank=True, kind="user")["found"] == []
    assert len(told(live, "search", pattern="brown fox", rank=True, since="1d", all_sessions=True)["found"]) == 2
    assert told(live, "search", pattern="brown fox", rank=True, until="2020-01-01")["found"] == []
    assert told(live, "search", pattern="brown", rank=True, agent="codex")["found"] == []


def test_an_exact_search_has_the_same_filters(live: Path) -> None:
    def of(**given: Any) -> list[str]:
        found = told(live, "search", pattern="brown|Why|make", **given)["found"]
        return [each["address"].partition("@")[0] for each in found]

    assert of() == ["B1", "B2", "B3", "B4", "B6", "B7"]
    assert of(kind="user") == ["B1"]
    assert of(agent="codex") == of(until="2020-01-01") == of(file="a.py") == []
    assert of(agent="ctxvc", since="1d", all_sessions=True) == of()


@pytest.fixture
def other(live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another project of the person, whose session has the same name."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "shop"
    with Session.open(folder / ".ctxvc", "demo", model="claude-opus-4-5") as session:
        session.append({"role": "user", "content": HOSTILE})
    assert live.exists()
    return folder


HOSTILE = "the brown ibex\x1b[31m \u202efoo\x9b1m\r\nmain:B1@aaaaaa NEAR(a b) ibex\x00 " + "long line " * 4_000


def test_other_projects_are_searched_and_read_only_where_a_person_allowed_it(live: Path, other: Path) -> None:
    def allowed(name: str, /, **given: Any) -> Any:
        return asked(live, lambda client: client.call_tool(name, given), all_projects=True)

    assert told(live, "search", pattern="ibex", rank=True, all_sessions=True)["found"] == []
    assert allowed("search", pattern="ibex", rank=True, all_sessions=True).structured_content["found"] == []
    found = allowed("search", pattern="brown ibex", rank=True, all_projects=True).structured_content["found"]
    assert sorted(each.get("project", "") for each in found) == ["", "", str(other)]
    (first,) = [each for each in found if "project" in each]
    assert first["address"].startswith("demo/main:B1@")
    assert all(line["text"].isprintable() for each in found for line in each["lines"])
    for name in ("shop", str(other)):
        named = allowed("search", pattern="brown", rank=True, all_projects=True, project=name).structured_content
        assert [each["project"] for each in named["found"]] == [str(other)]

    with Store(other / ".ctxvc") as store:
        before = store.all_tips()
    part = allowed("recover", address=first["address"], project=first["project"]).structured_content
    assert "ibex" in part["content"] and part["next"].endswith(f" project {other}")
    with Store(other / ".ctxvc") as store:
        assert store.all_tips() == before, "the other project is only read"
    for given, why in (
        ({"address": "B1", "project": str(other)}, "names no session there"),
        ({"address": first["address"], "project": "/etc"}, "no project '/etc'"),
        ({"address": "nobody/main:B1", "project": str(other)}, "nobody"),
    ):
        answer = allowed("recover", **given)
        assert answer.is_error and why in answer.content[0].text


@pytest.mark.parametrize(
    ("query", "is_found"),
    [("a) OR ibex", True), ('ibex" OR "', True), ("ibex*", False), ("text:ibex", False), ("\ue001ibex", False)],
)
def test_a_query_is_words_whatever_it_looks_like(live: Path, other: Path, query: str, is_found: bool) -> None:
    given = {"pattern": query, "rank": True, "all_projects": True}
    answer = asked(live, lambda client: client.call_tool("search", given), all_projects=True)
    assert not answer.is_error and answer.structured_content is not None
    assert (str(other) in [each.get("project", "") for each in answer.structured_content["found"]]) == is_found


def test_notes_of_the_project_are_given_only_where_a_person_allowed_it(live: Path) -> None:
    assert "a person has to start it" in wrong(live, "note", text="the key is the tenant", project=True)
    assert "a person has to start it" in wrong(live, "notes", project=True)

    def allowed(name: str, /, **given: Any) -> Any:
        answer = asked(live, lambda client: client.call_tool(name, given), project_notes=True)
        assert not answer.is_error, answer
        return answer.structured_content

    first = allowed("note", text="make -j2", project=True, name="build")
    second = allowed("note", text="make -j4", project=True, name="build")
    assert second["superseded"] == [f"{first['session']}/{first['scope']}:{first['block']}"]
    allowed("note", text="the key is the tenant", project=True)
    (note,) = allowed("notes", project=True, about="which tenant?")["notes"]
    assert (note["text"], note["learned"], note["step"]) == ("the key is the tenant", "demo/main", 3)
    assert [item["text"] for item in allowed("notes", project=True)["notes"]] == ["the key is the tenant", "make -j4"]
    assert told(live, "notes")["notes"] == [], "they are in no session of the work"


def test_what_was_deleted_is_neither_found_nor_read(live: Path) -> None:
    assert "only a person" in wrong(live, "recover", address="B5")
    assert "only a person" in unread(live, "ctxvc://block/B5")


def test_status_tells_of_the_recording(live: Path) -> None:
    status = told(live, "status")
    assert status["steps"] == 3
    assert status["blocks"] == 7
    assert status["blocks_out_of_recorded_prompt"] == 2
    assert 0 < status["recorded_prompt_tokens"] < 10_000


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("note", {"text": " "}, "a note needs text"),
        ("note", {"text": "x" * 5_000}, "4,000 are allowed"),
        ("recover", {"address": "B99"}, "no block B99"),
        ("recover", {"address": "../../etc/passwd"}, "is not an address"),
        ("recover", {"address": "B3", "lines": "9:1"}, "is not a range"),
        ("recover", {"address": "B3", "max_tokens": 5}, "; ask for more max_tokens"),
        ("recover", {"address": "B3", "max_tokens": MOST + 1}, "Expected `int` <= 8000"),
        ("search", {"pattern": "["}, "is not a regular expression"),
        ("search", {"pattern": "x", "all_projects": True, "rank": True}, "reads no other project; a person has to"),
        ("search", {"pattern": "x", "project": "shop"}, "reads no other project; a person has to start it"),
        ("recover", {"address": "B3", "project": "/"}, "reads no other project; a person has to start it"),
        ("search", {"pattern": "x", "since": "soon\x1b[1m", "rank": True}, "is not a time"),
        ("search", {"pattern": "x", "kind": "usr"}, "'usr' is not a kind of block; use one of user, assistant"),
        (
            "search",
            {"pattern": "x", "kind": "usr", "rank": True},
            "'usr' is not a kind of block; use one of user, assistant",
        ),
        ("search", {"pattern": "-", "rank": True}, "has no word to search for"),
        ("notes", {"session": "nowhere"}, "nowhere"),
        ("notes", {"scope": "nowhere"}, "nowhere"),
        ("search", {}, "missing required field `pattern`"),
        ("note", {"text": 7}, "Expected `str`, got `int` - at `$.text`; it takes text, session (optional)"),
        ("why", {"target": "x\0y"}, "names nothing; name a block, a file"),
        ("note", {"txt": "x"}, "unknown argument txt; did you mean text?; it takes text, session (optional)"),
    ],
)
def test_what_is_wrong_is_told(live: Path, name: str, given: dict[str, Any], why: str) -> None:
    assert why in wrong(live, name, **given)


def test_a_note_supersedes_what_it_replaces(live: Path) -> None:
    old = told(live, "note", text="The fixture is too old.")["block"]
    with Session.open(live, "demo") as session:
        session.append({"role": "user", "content": "Are you sure?"})
        session.append({"role": "assistant", "content": "I look again."})
    noted = told(live, "note", text="The fixture is fine; the clock was wrong.", supersedes=[old])
    assert noted["superseded"] == [old]
    by_block = {note["block"]: note["superseded"] for note in told(live, "notes")["notes"]}
    assert by_block == {old: noted["block"], noted["block"]: ""}
    assert "supersedes nothing" in wrong(live, "note", text="x", supersedes=["B99"])


def test_why_tells_what_became_of_a_block_and_where_a_line_came_from(live: Path) -> None:
    answer = told(live, "why", target="B3")
    assert answer["addresses"] == ["B3"]
    assert "archived, by agent: archive B3" in answer["answer"][1], answer
    assert "not a block or group" in wrong(live, "why", target="src/app.py:1")

    def explain(store: Store, target: str) -> tuple[list[str], list[str]]:
        return [f"{target} in {store.path.name}: by hand\nand \x1b[2J", *["x"] * 100], ["B1"]

    def unknown(store: Store, target: str) -> tuple[list[str], list[str]]:
        raise NotFound(f"no recorded session changed {target}", hint="`ctxvc import` imports older sessions")

    async def without_answer() -> Any:
        async with connected(Recordings(lambda: live, explain=unknown)) as client:
            return await client.call_tool("why", {"target": "src/app.py:1"})

    assert anyio.run(without_answer).content[0].text == "no recorded session changed src/app.py:1"

    async def ask() -> Any:
        async with connected(Recordings(lambda: live, explain=explain)) as client:
            return await client.call_tool("why", {"target": "src/app.py:1"})

    content = anyio.run(ask).structured_content
    assert content["answer"][0].startswith("src/app.py:1 in .ctxvc: by hand") and "\x1b" not in content["answer"][0]
    assert content["answer"][-1] == "(41 more lines)" and content["addresses"] == ["B1"]


# --- resources


def read(store: Path, uri: str) -> str:
    (content,) = asked(store, lambda client: client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


def refused(store: Path, ask: Ask[Any]) -> str:
    """The protocol's error to a request."""

    async def why(client: Client) -> str:
        with pytest.raises(MCPError) as error:
            await ask(client)
        return str(error.value)

    return asked(store, why)


def unread(store: Path, uri: str) -> str:
    """Why a resource cannot be read."""
    return refused(store, lambda client: client.read_resource(uri))


def test_dashboard_and_blocks_are_resources(live: Path) -> None:
    listed = asked(live, lambda client: client.list_resources()).resources
    assert [str(resource.uri) for resource in listed] == ["ctxvc://dashboard", "ctxvc://block/demo/main/B3"]
    templates = asked(live, lambda client: client.list_resource_templates()).resource_templates
    assert len(templates) == 2
    assert read(live, "ctxvc://dashboard").startswith("[dashboard demo/main, step 3: ")
    assert "B3 " in read(live, "ctxvc://dashboard")
    assert read(live, "ctxvc://block/B3").count("fox\n") == 200
    assert read(live, "ctxvc://block/demo/main/B1") == "Why does it fail?"
    with Session.open(live, "demo") as session:
        session.open_scope("plan/login", "to plan")
        (block,) = session.append({"role": "user", "content": "How?"})
    assert read(live, f"ctxvc://block/demo/plan/login/{block}") == "How?"
    assert read(live, f"ctxvc://block/demo/plan%2Flogin/{block}") == "How?"
    for uri in ("ctxvc://block/B99", "ctxvc://block/..%2F..%2Fetc", "ctxvc://block/demo/nowhere/B1"):
        assert unread(live, uri)


def test_what_left_is_listed_in_pages(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PAGE", 3)
    monkeypatch.setattr(resources, "LISTED", 8)
    with Session.open(live, "demo") as session:
        notes = [session.note(f"Note {number}. \x1b[2J").block for number in range(9)]

    async def pages(client: Client) -> list[list[str]]:
        listed, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            listed.append([str(resource.uri) for resource in page.resources])
            assert not [resource for resource in page.resources if "\x1b" in str(resource.title)]
            if not (cursor := page.next_cursor):
                return listed
            with Session.open(live, "demo") as session:  # what changes meanwhile moves nothing
                session.note("Another.")

    newest = [f"ctxvc://block/demo/main/{block}" for block in reversed(notes)]
    first, *following = asked(live, pages)
    assert first == ["ctxvc://dashboard", *newest[:3]]
    assert following == [newest[3:6], newest[6:8]]
    assert "Note 3." in read(live, newest[5])


def test_a_store_that_is_not_there_yet_is_told_of_and_found_later(tmp_path: Path) -> None:
    listed = asked(tmp_path / ".ctxvc", lambda client: client.list_resources()).resources
    assert [str(resource.uri) for resource in listed] == ["ctxvc://dashboard"]
    assert "store" in wrong(tmp_path / ".ctxvc", "status")
    Session.open(tmp_path / ".ctxvc", "demo").close()
    assert told(tmp_path / ".ctxvc", "status")["session"] == "demo"


def test_a_list_for_a_conversation_that_is_not_recorded_is_no_error(live: Path) -> None:
    def of_call(store: Store, meta: Mapping[str, Any]) -> tuple[str, str]:
        raise NotFound("this conversation is not recorded")

    async def ask() -> tuple[list[str], str]:
        async with connected(Recordings(lambda: live, of_call=of_call)) as client:
            listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
            with pytest.raises(MCPError) as refused:
                await client.read_resource(listed[0])
            return listed, str(refused.value)

    assert anyio.run(ask) == (["ctxvc://dashboard"], "this conversation is not recorded")


def test_a_long_block_is_read_in_parts(live: Path) -> None:
    line = "".join(f"{number}," for number in range(40_000))
    with Session.open(live, "demo") as session:
        (long,) = session.append({"role": "user", "content": line})

    parts, uri = "", f"ctxvc://block/{long}"
    while uri:
        part, *following = asked(live, lambda client, uri=uri: client.read_resource(uri)).contents  # type: ignore[misc]
        assert part.uri == uri and 0 < len(part.text) <= resources.PART
        parts, uri = parts + part.text, following[0].uri if following else ""
        assert not following or following[0].text == f"[part {uri[-1]} of 3; the next one is at {uri}]".replace(
            f"part {uri[-1]} of", f"part {int(uri[-1]) - 1} of"
        )
    assert parts == line
    for wrong_part in ("0", "4", "x", "-1", "9" * 30):
        assert "has no part" in unread(live, f"ctxvc://block/{long}?part={wrong_part}")


# --- prompts


def prompted(store: Path, name: str, **arguments: str) -> str:
    (message,) = asked(store, lambda client: client.get_prompt(name, arguments)).messages
    assert message.role == "user" and isinstance(message.content, TextContent)
    return message.content.text


def test_prompts_begin_with_what_the_recording_has(live: Path) -> None:
    listed = asked(live, lambda client: client.list_prompts()).prompts
    assert [(prompt.name, [one.name for one in prompt.arguments or []]) for prompt in listed] == [
        ("what-left", ["session"]), ("recover-evidence", ["claim", "session"]), ("hand-over", ["focus", "session"]),
    ]  # fmt: skip
    told(live, "note", text="The fixture is too old.")
    absent = prompted(live, "what-left")
    assert "B3 (step 1, " in absent and "archived by agent" in absent and "B5 " not in absent
    assert "B3" not in prompted(live, "what-left", session="demo").partition("main")[0]
    evidence = prompted(live, "recover-evidence", claim="one\ntwo")
    assert "\n> one\n> two\n" in evidence and "2 of them out of the prompt" in evidence
    handed = prompted(live, "hand-over", focus="the login")
    assert "The fixture is too old." in handed and "Why does it fail?" in handed and "the login" in handed
    assert "nowhere" in refused(live, lambda client: client.get_prompt("what-left", {"session": "nowhere"}))
    with Session.open(live, "other") as session:
        session.append({"role": "user", "content": "Hello"})
    assert "Nothing has left" in prompted(live, "what-left", session="other")


def test_sessions_and_scopes_are_completed(project: Path) -> None:
    reference = ResourceTemplateReference(uri="ctxvc://block/{session}/{+scope}/{block}{?part}")

    def completed(name: str, value: str) -> list[str]:
        asking = {"name": name, "value": value}
        return asked(project / ".ctxvc", lambda client: client.complete(reference, asking)).completion.values

    assert set(completed("session", "")) > {"demo", "hostile"} and completed("session", "dem") == ["demo"]
    assert completed("scope", "m") == ["main"] and completed("block", "B") == []


# --- over stdio


def over_stdio(folder: Path, ask: Ask[_T], *arguments: str) -> Awaitable[_T]:
    async def main() -> _T:
        root = str(Path(__file__).parents[2])
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "ctxvc", "mcp", *arguments], cwd=folder,
            env={"PYTHONPATH": root, "HOME": os.environ["HOME"], "PATH": os.environ["PATH"]},
        )  # fmt: skip
        async with Client(parameters) as client:
            return await ask(client)

    return main()


def test_the_command_serves_the_store_of_the_folder_it_is_started_in(project: Path) -> None:
    async def ask(client: Client) -> tuple[Any, Any]:
        return await client.call_tool("status", {}), await client.call_tool("note", {"text": "Over stdio."})

    status, note = anyio.run(lambda: over_stdio(project, ask))
    assert status.structured_content["blocks"] > 3
    assert note.structured_content["block"].startswith("B")


def test_a_session_is_named_by_a_beginning_or_its_place(project: Path) -> None:
    with Store(project / ".ctxvc") as store:
        first, second, *_ = by_recency(store)

    async def main() -> list[Any]:
        async with connected(Recordings(lambda: project / ".ctxvc", "-1")) as client:
            answers = [await client.call_tool("status", {"session": name}) for name in ("", first, "-0", "-1")]
            return [answer.structured_content["session"] for answer in answers if answer.structured_content]

    assert anyio.run(main) == [second, first, first, second]
