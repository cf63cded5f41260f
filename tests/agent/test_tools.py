"""The context tools: what a model is told of them, what they do, and what they answer to nonsense."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.agent import TOOLS, Adapter, definitions
from ctxvc.agent.tools.definitions import ours
from ctxvc.agent.tools.search import search
from ctxvc.core import patterns
from ctxvc.core.plan import Plan, View
from ctxvc.core.policy import Policy, Terms
from ctxvc.errors import CtxvcError
from ctxvc.policies import POLICIES, parse
from ctxvc.policies.episodes import graph
from ctxvc.session.session import Session
from ctxvc.tokens.meter import Meter
from tests.making.provider import MODEL, WORDS, damages, humans_gone
from tests.messages_api import Judge, call, text, thought
from tests.messages_api.wire import Block

from .building import SH, opened, ran


class Frugal(Policy, frozen=True, kw_only=True):
    """Uses three of the tools."""

    name = "frugal"

    def propose(self, view: View) -> Plan:  # noqa: ARG002
        return Plan(actions=(), actor=self.actor)

    def terms(self) -> Terms:
        return Terms(tools=("search", "archive", "recover"))


class Talk:
    """An adapter, and a model that says what it is told to; each step's results are taken in."""

    def __init__(self, session: Session) -> None:
        self.adapter = Adapter(session)
        self.session = session
        self.judge = Judge()

    def step(self, *calls: Block) -> list[Block]:
        """The results of the calls of one reply."""
        asked = self.adapter.request()
        asked["betas"] = [asked.pop("extra_headers")["anthropic-beta"]]
        reply = self.adapter.record(self.judge.reply(asked, [thought("hm"), *calls]))
        results = [self.adapter.handle(call) or ran(call) for call in reply.calls]
        self.adapter.results(results)
        return results

    def waiting(self) -> str:
        """The id of a call that waits for its result."""
        asked = self.adapter.request()
        asked["betas"] = [asked.pop("extra_headers")["anthropic-beta"]]
        return str(self.adapter.record(self.judge.reply(asked, [call("sh", cmd="x")])).calls[0]["id"])

    def ask(self, name: str, /, **given: Any) -> Block:
        return self.step(call(name, **given))[0]

    def told(self, name: str, /, **given: Any) -> str:
        """What a call that is in order is answered."""
        answered = self.ask(name, **given)
        assert "is_error" not in answered, answered
        return str(answered["content"])

    def wrong(self, name: str, /, **given: Any) -> str:
        """What a call that is not in order is answered: an error, and a short one."""
        answered = self.ask(name, **given)
        assert answered["is_error"] is True, answered
        assert len(answered["content"]) < 400
        assert "\n" not in answered["content"]
        return str(answered["content"])


@pytest.fixture
def talk(session: Session) -> Talk:
    session.append({"role": "user", "content": "Make the tests pass."})
    made = Talk(session)
    for number in range(3):
        made.step(call("sh", cmd=f"make {number}"))
    return made


def results(session: Session) -> list[str]:
    return [row.id for row in session.ledger().rows() if row.kind == "tool_result" and row.tool == "sh"]


# --- what left is within reach


@pytest.mark.parametrize("name", [kind.name for kind in POLICIES])
def test_under_every_policy_the_agent_reads_what_a_stub_says_that_it_can(place: Path, name: str) -> None:
    """A large result leaves on its way in, whoever decides about the rest."""
    with opened(place, policy=parse(name)) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        talk.step(call("sh", cmd="long"))
        whole = "".join(f"{number} {WORDS}" for number in range(900)).encode()
        waits = talk.waiting()
        talk.adapter.results([{"type": "tool_result", "tool_use_id": waits, "content": whole}])
        row = session.ledger()[results(session)[-1]]
        assert row.state == "blocked"
        tool, block = "recover", row.id
        assert row.handle in row.stub.partition("\n")[0]
        assert "412 the quick" in talk.told(tool, block=block, lines="413:413")
        assert row.id in talk.told("search", pattern="^412 the")


# --- definitions


def test_the_definitions_are_taken_by_the_provider_and_always_the_same() -> None:
    made = definitions(own=[SH])
    request = {"model": "claude-opus-5-5", "max_tokens": 10, "tools": made}
    assert Judge().check(request | {"messages": [{"role": "user", "content": "hi"}]}) == []
    assert [tool["name"] for tool in made] == ["sh", *TOOLS]
    assert json.dumps(made) == json.dumps(definitions(own=[SH]))
    for tool in made[1:]:
        assert tool["input_schema"]["additionalProperties"] is False
        assert set(tool["input_schema"]["required"]) <= tool["input_schema"]["properties"].keys()
        assert len(tool["description"]) < 300
    assert sum(len(json.dumps(tool)) for tool in made[1:]) < 6_000


def test_a_policy_gets_the_tools_that_it_names_in_the_usual_order() -> None:
    assert [tool["name"] for tool in definitions(Frugal().terms())] == ["archive", "recover", "search", "dashboard"]
    assert [tool["name"] for tool in definitions(Terms(tools=("search", "archive"), board="off"))] == [
        "archive",
        "recover",
        "search",
    ]
    assert [tool["name"] for tool in definitions(Terms())] == ["recover", "search"]
    assert definitions(Terms(handles=False)) == []


ABLATED = ("dashboard=off", "archive=off", "recover=off", "agent=off", "archive=off,recover=off", "wording=alt")


@pytest.mark.parametrize(
    "spec", [*(kind.name for kind in POLICIES), *(f"self_managed:{words}" for words in ABLATED), "scoped+layered"]
)
def test_what_is_said_of_tools_is_said_of_those_that_are_there(place: Path, spec: str) -> None:
    policy = parse(spec)
    terms = policy.terms()
    with opened(place, policy=policy) as session:
        said = [json.dumps(definitions(terms)), terms.protocol, session.refuse(Adapter(session)._tools.terms)]
        for tool in ("archive", "recover", "restore", "delete", "search", "goto"):  # scope, dashboard: more than a tool
            named = [words for words in said if re.search(rf"\b{tool}\b", words, re.IGNORECASE)]
            assert not named or tool in terms.tools, (tool, named)
        folds = terms.folds and "note" in terms.tools
        assert [bool(re.search(r"\bfold\b", words)) for words in said] == [
            folds,
            False,
            folds,
        ]  # the tool itself says it


@pytest.mark.parametrize(
    ("spec", "way"),
    [
        ("self_managed", "make room first, with archive or note with fold, then repeat the call"),
        ("self_managed:recover=off", "make room first, with archive or note with fold, then repeat the call"),
        ("self_managed:archive=off", "make room first, with delete, then repeat the call"),
        ("self_managed:agent=off", "no tool of yours makes room: answer with what you know"),
        ("keep", "no tool of yours makes room: answer with what you know"),
        ("scoped", "make room first, with note with fold or scope, then repeat the call"),
        ("", "make room first, with archive, note with fold or scope, then repeat the call"),
    ],
)
def test_who_has_no_room_is_told_of_the_tools_that_make_it(place: Path, spec: str, way: str) -> None:
    with opened(place, **({"policy": parse(spec)} if spec else {})) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        session.set(refused=1)
        assert f"tokens; {way}]" in session.refuse(talk.adapter._tools.terms)
        if spec:
            assert f"tokens; {way}]" in session.refuse()


@pytest.mark.parametrize("spec", ["self_managed:agent=off", "self_managed:archive=off"])
def test_where_the_agent_archives_nothing_a_note_does_not_either(place: Path, spec: str) -> None:
    """Also where the session's tools are older than that, and their note has it."""
    for number, terms in enumerate((parse(spec).terms(), None)):
        tools = definitions(terms, own=[SH])
        with Session.open(place, f"s{number}", model=MODEL, budget=32_000, tools=tools, policy=parse(spec)) as session:
            session.append({"role": "user", "content": "go"})
            talk = Talk(session)
            for _ in range(3):
                talk.step(call("sh", cmd="make"))
            assert "fold" in talk.wrong("note", text="done", fold=True)
            assert talk.told("note", text="done").startswith("Noted as B")
            assert not session.ledger().groups
            assert all(row.present for row in session.ledger().rows() if row.kind == "tool_result")


def test_who_has_no_tool_to_make_room_is_relieved_by_the_guard(place: Path) -> None:
    with opened(place, policy=parse("self_managed:agent=off")) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        for _ in range(4):
            talk.step(call("sh", cmd="make"))
        session.set(refused=1)
        (waits,) = talk.step(call("sh", cmd="again"))
        assert "is_error" not in waits
        assert not session.overflow
        assert any(row.removed_by == "guard" for row in session.ledger().rows())


def test_a_tool_that_the_policy_does_not_name_is_not_ours(place: Path) -> None:
    with opened(place, policy=Frugal()) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        waits = talk.waiting()
        assert talk.adapter.handle({**call("note", text="x"), "id": waits}) is None
        assert talk.adapter.handle({**call("search", pattern="x"), "id": waits})


def test_where_the_agent_has_a_tool_of_the_same_name_ours_is_called_otherwise(place: Path) -> None:
    own = [SH, {**SH, "name": "search"}]
    assert [tool["name"] for tool in definitions(own=own)][-2:] == ["context_search", "dashboard"]
    with opened(place, own=own) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        assert talk.adapter.handle({**call("search", cmd="x"), "id": "toolu_1"}) is None
        talk.step(call("search", cmd="fox"))
        assert "fox" in talk.told("context_search", pattern="fox")


def test_tools_of_the_agents_own_stay_its_own_whatever_they_are_called(place: Path) -> None:
    own = [{**SH, "name": name} for name in ("note", "context_note", "context_archive", "search")]
    made = definitions(own=own)
    assert [tool["name"] for tool in made if tool["name"].endswith("note")] == [
        "note",
        "context_note",
        "context_context_note",
    ]
    assert len({tool["name"] for tool in made}) == len(made)
    with opened(place, own=own) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        for tool in own:
            assert talk.adapter.handle({**call(tool["name"], cmd="x"), "id": "toolu_1"}) is None
        assert "Noted" in talk.told("context_context_note", text="ours")
        assert [note.text for note in session.notes()] == ["ours"]


def test_a_session_without_our_tools_has_none_of_them(place: Path) -> None:
    searches_the_web = {**SH, "name": "search"}
    with Session.open(place, "plain", model=MODEL, tools=[searches_the_web]) as session:
        session.append({"role": "user", "content": "go"})
        assert Adapter(session).handle({**call("search", cmd="x"), "id": "toolu_1"}) is None


# --- what they do


def test_archive_recover_restore_and_delete(talk: Talk) -> None:
    first, second, third = results(talk.session)
    told = talk.told("archive", blocks=[first, second], index="two runs")
    assert re.fullmatch(
        rf"Archived {first}, {second} as G1@[0-9a-f]{{6}} \(level 1, 2 blocks, 3\.6k\): "
        r"3,\d+ tokens freed; 3,\d+ of 32,000 tokens are used: results 1\.8k\.",
        told,
    ), told
    assert talk.told("recover", block="G1").splitlines()[1].startswith(f"{first}@")
    assert "lines 1-60 of 60" in talk.told("recover", block=first)
    assert talk.told("recover", block=first, lines="2:3").count("\n") == 3
    assert "1 of 1 lines" in talk.told("recover", block=first, grep=" 7 the")
    assert f"Restored {first}" in talk.told("restore", blocks=first)
    assert "Deleted" in talk.told("delete", blocks=first, reason="old")
    assert "only a person" in talk.wrong("recover", block=first)
    assert "only a person" in talk.wrong("restore", blocks=first)
    assert first not in talk.told("search", pattern="quick brown").split("@")
    assert re.match(rf"Archived {third}@[0-9a-f]{{6}} \(1\.8k\): ", talk.told("archive", blocks=third))


def test_nothing_that_only_the_command_line_takes_is_told(talk: Talk) -> None:
    first = results(talk.session)[0]
    said = [
        talk.wrong("search", pattern="("),
        talk.wrong("recover", block=first, grep="("),
        talk.wrong("recover", block=first, grep="x", chars="1:2"),
        talk.wrong("recover", block=first, lines="1:2", chars="1:2"),
        talk.wrong("recover", block="B999"),
        talk.wrong("note", text=" "),
        talk.wrong("goto", name="main", note="x"),
        talk.wrong("scope", name="x", note=" "),
        talk.wrong("scope", name="x", note="y", revision="nowhere"),
    ]
    assert not [words for words in said if re.search(r"(^|[ `])--?[a-zA-Z]|ctxvc|log", words)], said
    assert said[2].endswith("use grep with lines")
    assert "scopes lists all scopes" in said[6]
    assert "scopes of demo: main" in said[8]


def test_what_is_left_out_is_told_and_where_nothing_is_left_that_is_an_error(talk: Talk) -> None:
    first = results(talk.session)[0]
    told = talk.told("archive", blocks=f"{first},B1,B9999")
    assert "Skipped: " in told
    assert "pinned" in told
    assert "B9999" in told
    assert "nothing was archived" in talk.wrong("archive", blocks="B1")


def test_a_line_that_a_pattern_takes_too_long_for_costs_its_block_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "TOOL_SECONDS", 60.0)
    with opened(place) as session:
        session.append({"role": "user", "content": "a" * 40})
        session.append({"role": "user", "content": "the needle"})
        lines = search(session.stored, r"needle|(?:a|a)+b(?=x)")

    assert [match.lines[0][1] for match in lines.matches] == ["the needle"]
    assert (
        f"{lines.blocks} of {lines.blocks} blocks were searched, 1 of them only up to a slow line" in lines.unfinished
    )


def test_a_search_finds_what_left_the_context_and_not_itself(talk: Talk) -> None:
    first = results(talk.session)[0]
    talk.told("archive", blocks=first)
    lines = talk.told("search", pattern="QUICK", ignore_case=True).splitlines()
    assert lines[0].startswith(f"{talk.session.ledger()[first].handle} tool_result, archived, line 1: toolu_")
    assert "(and 56 more lines in it)" in lines[4]
    assert len(lines) < 30
    assert talk.told("search", pattern="no such thing").startswith("No line matches in ")


def test_scopes_and_notes(talk: Talk) -> None:
    assert talk.told("note", text="The parser is wrong.").startswith("Noted as B")
    assert "you move to look" in talk.told("scope", name="look", note="Look at it.")
    assert talk.session.scope == "look"
    assert talk.told("scopes").splitlines()[1].startswith("* look: ")
    assert "this step's results stay in look" in talk.told("goto", name="main", note="Seen.")
    assert talk.session.scope == "main"
    assert [line.partition(": ")[2] for line in talk.told("notes").splitlines()] == [
        "The parser is wrong.", "[→ look] Look at it.", "[← look] Seen.",
    ]  # fmt: skip
    assert "look" in talk.told("notes", scope="look")


def test_a_note_of_the_model_has_labels_and_supersedes_what_it_replaces(talk: Talk) -> None:
    first, second = results(talk.session)[:2]
    told = talk.told("note", text="make fails", labels=["decision"], supersedes=f"{first},{second}")
    assert re.fullmatch(r"Noted as B\d+; archived 2 blocks, [\d,]+ tokens freed\.", told)
    note = told.split(";")[0].removeprefix("Noted as ")
    assert talk.session.ledger()[first].state == "archived"
    assert f"superseded by {note}" in json.dumps(talk.adapter.request()["messages"])
    assert talk.told("notes", label="decision") == f"{note} step 4 (decision): make fails"
    assert talk.told("notes", label="plan") == "There are no notes labelled plan in main."
    (asked,) = talk.session.append({"role": "user", "content": "and now this " * 50})
    talk.step(call("sh", cmd="x"))
    talk.session.append({"role": "user", "content": "go on"})
    assert "a human wrote it" in talk.wrong("note", text="never mind", supersedes=asked)


def test_tools_of_sessions_before_labels_are_known_by_the_form_that_they_have() -> None:
    former = {"name": "note", "input_schema": {"type": "object", "additionalProperties": False, "required": ["text"]}}
    text, fold = {"type": "string"}, {"type": "boolean"}
    for properties in ({"text": text, "fold": fold}, {"text": text}):
        tool = {**former, "input_schema": {**former["input_schema"], "properties": properties}}
        assert ours([tool], TOOLS) == {"note": "note"}


def test_a_second_switch_in_one_step_is_answered_by_an_error(talk: Talk) -> None:
    first, second, shell = talk.step(
        call("scope", name="a", note="first"), call("scope", name="b", note="second"), call("sh", cmd="x")
    )
    assert "is_error" not in first
    assert second["is_error"]
    assert "already pending" in second["content"]
    assert shell["content"].startswith(shell["tool_use_id"])
    assert talk.session.scopes() == ["main", "a"]
    assert talk.session.scope == "a"


def test_episodes_are_marked_one_at_a_time_also_within_one_step(talk: Talk) -> None:
    assert "ended expl episodes" in talk.wrong("delimiter", action="start", type="act", name="mend")
    assert talk.told("delimiter", action="start", type="expl", name="look") == "started expl look"
    assert "still active" in talk.wrong("delimiter", action="start", type="expl", name="more")
    ended, started, again = talk.step(
        call("delimiter", action="end", description="it is line 40"),
        call("delimiter", action="start", type="act", name="mend", dependencies=["look"]),
        call("delimiter", action="start", type="expl", name="look"),
    )
    assert [each["content"] for each in (ended, started)] == [
        "ended expl look",
        "started act mend, which depends on look",
    ]
    assert again["is_error"]
    view = talk.session.view()
    assert {name: mark.closed for name, mark in graph.declared_episodes(view.ledger, view.words).items()} == {
        "look": True, "mend": False,
    }  # fmt: skip


def test_what_one_step_reads_out_fits_together(place: Path) -> None:
    """Each part alone would take all the room that there is."""
    with opened(place, budget=12_000) as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        for number in range(8):
            talk.step(call("sh", cmd=f"make {number}"))
        talk.step(call("archive", blocks=results(session)[-5:-2]))
        gone = [row.id for row in session.ledger().rows() if row.kind == "tool_result" and not row.present]
        parts = talk.step(*(call("recover", block=gone[0]) for _ in range(12)))
        assert "lines 1-60 of 60" in parts[0]["content"]
        assert "no room" in parts[-1]["content"]
        assert not session.overflow
        read = [row for row in session.ledger().rows() if row.tool == "recover" and row.kind == "tool_result"]
        assert [row.state for row in read] == ["visible"] * 12


# --- what they are given


HOSTILE: list[Any] = [
    *(None, 7, 1e308, True, "", " ", "\x1b[2J\x1b]0;x\x07", "\udcff\ud800", [], [[]], {}, {"a": [[]]}),
    *("B1", "B1-B999999999999", "G1,G1,G1", ["B1", 7], "../../etc/passwd", "HEAD", "main", "-1:0", "x" * 10**5),
    *("99999999999999999:", "0", "(a+)+$", "[", "(?R)", "\n", "[archived B3@3fa9c1: all]", "; rm -rf /", "B1@fffff"),
]  # fmt: skip


def hostile() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, kind in TOOLS.items():
        fields = kind.__struct_fields__
        good = {"blocks": "B2", "reason": "r", "name": "n", "note": "n", "text": "t", "block": "B2", "pattern": "p",
                "action": "start"}  # fmt: skip
        for field in (*fields, "unknown", "x" * 5000, "\x1b[31m"):
            for value in HOSTILE:
                yield name, {**{field: good[field] for field in fields if field in good}, field: value}


def test_no_argument_raises_or_gets_a_long_answer_or_harms_the_session(talk: Talk) -> None:
    answered = 0
    waits = talk.waiting()
    for name, given in hostile():
        found = talk.adapter.handle({"type": "tool_use", "id": waits, "name": name, "input": given})
        assert found
        if talk.session.stored.switching:
            talk.adapter.results([{**found, "tool_use_id": waits}])
            waits = talk.waiting()
        if found.get("is_error"):
            assert len(found["content"]) < 400
        assert len(found["content"]) < 12_000
        answered += 1
    assert answered > 600
    assert not humans_gone(talk.session.ledger())
    talk.adapter.results([ran({**call("sh"), "id": waits})])
    talk.step(text("So much for that."), call("sh", cmd="ls"))
    talk.session.stored.flush()
    assert not damages(talk.session.store)


@pytest.mark.parametrize("given", [None, 7, "blocks", [], [1], True, {"blocks": {}}, {1: 2}])
def test_an_input_that_is_no_object_is_answered(talk: Talk, given: Any) -> None:
    found = talk.adapter.handle({"type": "tool_use", "id": talk.waiting(), "name": "archive", "input": given})
    assert found
    assert found["is_error"]
    assert "it takes blocks, index (optional)" in found["content"]


def test_an_error_says_how_to_mend_the_call(talk: Talk) -> None:
    assert "unknown field `ids`; it takes blocks, index (optional)" in talk.wrong("archive", blocks="B3", ids="B3")
    assert "missing required field `reason`" in talk.wrong("delete", blocks="B3")
    assert "Expected `str`, got `int`" in talk.wrong("search", pattern=7)
    assert "B3, B5-B9 or G2" in talk.wrong("archive", blocks="everything")
    assert "count from 1" in talk.wrong("recover", block="B3", lines="0:9")
    assert "no block B999" in talk.wrong("recover", block="B999")
    assert "4,000 are allowed" in talk.wrong("note", text="x" * 5_000)
    assert "its scopes: main" in talk.wrong("goto", name="nowhere", note="x")
    assert "letters, digits" in talk.wrong("scope", name="a b", note="x")
    assert "a note needs text" in talk.wrong("note", text=" ")


def test_null_counts_as_not_given(talk: Talk) -> None:
    assert "lines 1-60" in talk.told("recover", block=results(talk.session)[0], lines=None, grep=None)


def test_what_the_model_cannot_mend_is_raised(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise CtxvcError("cannot write to the journal: no space left")

    monkeypatch.setattr(talk.session.stored, "note", full)
    with pytest.raises(CtxvcError, match="no space"):
        talk.adapter.handle({"type": "tool_use", "id": talk.waiting(), "name": "note", "input": {"text": WORDS}})


# --- context objects


def test_a_model_may_name_a_result_by_its_tool_and_a_turn_by_its_number(talk: Talk) -> None:
    block = results(talk.session)[0]
    name = f"sh:{block[1:]}"

    assert f"Archived {block}@" in talk.told("archive", blocks=name, index="built")
    assert talk.session.ledger()[block].state == "archived"
    assert talk.told("recover", block=name).startswith(f"[recovered {block}@")
    assert f"Restored {block}" in talk.told("restore", blocks=f"function:{name}")
    assert block in talk.told("recover", block="turn:1")
    assert f"did you mean function:{name}?" in talk.wrong("archive", blocks=f"hs:{block[1:]}")
    assert f"did you mean function:{name}?" in talk.wrong("recover", block=f"hs:{block[1:]}")


# --- parts, and whole blocks as files


def answered_with(talk: Talk, text: str) -> str:
    """The block of a result with this text."""
    talk.step(call("sh", cmd="make"))
    waits = talk.waiting()
    talk.adapter.results([{"type": "tool_result", "tool_use_id": waits, "content": text}])
    return results(talk.session)[-1]


def test_a_model_takes_the_part_of_a_block_that_it_needs(talk: Talk) -> None:
    block = answered_with(talk, json.dumps({"items": [{"name": "one"}, {"name": "two"}]}, indent=1))
    assert talk.told("recover", block=block, path="items[1].name").endswith("\ntwo")
    assert talk.told("recover", block=block, path="items[].name").endswith('"one"\n"two"\n')
    assert '"name": "two"' in talk.told("recover", block=block, grep="two")
    assert talk.told("recover", block=block, lines="1:1").endswith("\n{\n")
    assert "has no 'nothing'" in talk.wrong("recover", block=block, path="nothing")


def test_a_shell_computes_over_a_block_that_is_put_into_a_file(talk: Talk, place: Path) -> None:
    block = answered_with(talk, "".join(f"{number}\n" for number in range(4_000)))
    told = talk.told("recover", block=block, file=True)
    (path,) = re.findall(r" is in (\S+),", told)
    assert told.startswith(f"{talk.session.ledger()[block].handle} is in {place}/")
    assert len(told) < 300
    assert subprocess.run(["awk", "{ n += $1 } END { print n }", path], capture_output=True, check=True).stdout == (
        b"7998000\n"
    )
    assert "leave lines, chars, grep and path out" in talk.wrong("recover", block=block, file=True, lines="1:2")
    assert "several blocks" in talk.wrong("recover", block="turn:1", file=True)
    talk.session.close()
    assert not Path(path).exists()


def test_no_file_has_a_block_in_which_a_secret_is_marked(talk: Talk) -> None:
    block = answered_with(talk, "export GITHUB_TOKEN=ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8")
    assert "has secrets, which are marked and go into no file" in talk.wrong("recover", block=block, file=True)
    assert "REDACTED" in talk.told("recover", block=block)


def test_in_a_narrow_window_recover_takes_no_more_than_it_did_and_costs_no_more() -> None:
    terms = parse("default").terms_in(12_000)
    made = definitions(terms)
    assert [tool["name"] for tool in made] == ["archive", "recover", "search"]
    assert list(made[1]["input_schema"]["properties"]) == ["block", "lines", "chars", "grep"]
    assert Meter(None).count(json.dumps(made, separators=(",", ":"))) <= 307
    (wide,) = [tool for tool in definitions(parse("default").terms_in(100_000)) if tool["name"] == "recover"]
    assert list(wide["input_schema"]["properties"]) == ["block", "lines", "chars", "grep", "path", "file"]


def test_recover_as_older_versions_defined_it_is_still_ours(place: Path) -> None:
    former = definitions(parse("default").terms_in(12_000))
    with Session.open(place, "s", model=MODEL, budget=64_000, tools=[SH, *former], policy="default") as session:
        session.append({"role": "user", "content": "go"})
        talk = Talk(session)
        block = answered_with(talk, "a long line\n" * 40)
        assert talk.told("recover", block=block, lines="1:1").endswith("a long line\n")
