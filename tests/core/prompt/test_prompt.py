"""Whatever was recorded and whatever left, what is sent is valid, whole where it stands, and says whose it is."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import PRESENT, Message, Part
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.numbering import interrupted
from ctxvc.core.prompt import formats, sanitise, stub
from ctxvc.core.prompt.outline import MASK_SHOWN, Piece, outline, pieces, sendable
from ctxvc.core.prompt.sanitise import OwnText
from tests.making.generated import FORGED, arranged, bodies_of, conversations, marks_in, numbered, texts
from tests.messages_api import MODELS
from tests.messages_api.rules import message_problems

Held = Mapping[tuple[str, str], bytes]

#: What a model takes for a text of ours, unless a backslash stands before it.
OURS = re.compile(
    r"(?<!\\)\[(?:(?:archived|masked|pruned|blocked|deleted) [BG]\d|[→←] |no result was recorded|nothing before this"
    r"|the tool failed without)"
)


@st.composite
def scopes(draw: st.DrawFn) -> tuple[Ledger, Held]:
    """A conversation whose blocks stand in any state, under the rules of rendering 1 or 2."""
    ledger, held = numbered(draw(conversations()))
    return rendered(draw(arranged(ledger)), draw(st.sampled_from((1, 2)))), held


def rendered(ledger: Ledger, version: int) -> Ledger:
    return ledger.with_meta(msgspec.structs.replace(ledger.meta, render=version))


def content(ledger: Ledger, held: Held) -> list[Piece]:
    return pieces(outline(ledger), bodies_of(held))


def request(sent: Iterable[Piece]) -> list[dict[str, Any]]:
    """The messages of a request with this content, on the wire."""
    prompt = formats.Prompt(pieces=list(sent))
    messages: list[dict[str, Any]] = formats.anthropic(prompt)["messages"]
    return messages


def problems(messages: list[dict[str, Any]]) -> list[str]:
    """What the API would say of these messages, with all of its rules."""
    return message_problems(messages, MODELS["claude-opus-5-5"])


def with_a_question(given: list[Piece]) -> list[Piece]:
    """The content of the next call, which a person's words end."""
    return [*given, Piece(message=10**6, role="user", kind="user", body=b"Go on.")]


def strings(value: Any) -> Iterator[str]:
    """All texts in a request, the data of images decoded."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from strings(item)
        case dict():
            for key, item in value.items():
                yield from strings(item)
                if key == "data" and isinstance(item, str):
                    try:
                        yield base64.b64decode(item, validate=True).decode("utf-8", "replace")
                    except binascii.Error:
                        continue


def marks(messages: list[dict[str, Any]]) -> Counter[str]:
    return Counter(mark for text in strings(messages) for mark in marks_in(text))


@given(scopes())
def test_what_is_sent_is_valid_whatever_left(scope: tuple[Ledger, Held]) -> None:
    assert problems(request(sendable(with_a_question(content(*scope))))) == []


@given(conversations())
def test_what_is_sent_of_a_whole_conversation_is_valid(conversation: list[Message]) -> None:
    assert problems(request(sendable(with_a_question(content(*numbered(conversation)))))) == []


@given(scopes())
def test_each_present_body_is_sent_once_and_no_absent_one(scope: tuple[Ledger, Held]) -> None:
    ledger, held = scope
    sent = marks(request(sendable(content(ledger, held))))

    for row in ledger.rows():
        for mark in marks_in(held[row.id, ""]):
            if not row.present:
                assert sent[mark] == 0, row
            elif row.state == "masked" or (row.kind == "document" and row.role == "assistant"):
                assert sent[mark] <= 1, row
            else:
                assert sent[mark] == 1, row


@given(scopes())
def test_each_stub_is_sent_once(scope: tuple[Ledger, Held]) -> None:
    ledger, held = scope
    sent = Counter(text for text in strings(request(sendable(content(ledger, held)))))
    told = [row for row in ledger.rows() if row.state in ("archived", "blocked", "deleted")]
    outermost = {outer(ledger, row) for row in told if row.group}

    assert {row.stub: sent[row.stub] for row in told if row.stub and not row.group} == {
        row.stub: 1 for row in told if row.stub and not row.group
    }
    for group in ledger.groups.values():
        if group.stub:
            assert sent[group.stub] == (group.id in outermost)


def outer(ledger: Ledger, row: Row) -> str:
    name = row.group
    while ledger.groups[name].group:
        name = ledger.groups[name].group
    return name


@given(scopes())
def test_the_same_ledger_gives_the_same_bytes(scope: tuple[Ledger, Held]) -> None:
    ledger, held = scope
    again = msgspec.json.decode(msgspec.json.encode(list(ledger.rows())), type=list[Row])
    other = Ledger(ledger.meta).with_rows(again).with_groups(ledger.groups.values())
    assert sendable(content(other, held)) == sendable(content(ledger, held))


@given(scopes())
def test_what_is_sent_may_be_sent_again(scope: tuple[Ledger, Held]) -> None:
    sent = sanitise.valid(content(*scope))
    assert request(sanitise.valid(sent)) == request(sent)


@given(conversations(unique_calls=True, odd=False), st.integers(0, 9))
def test_what_is_added_changes_nothing_before_it(conversation: list[Message], until: int) -> None:
    """The provider's cache, and thinking that is bound to what stood before it, need the same beginning."""
    earlier, held = numbered(conversation[:until])
    whole, all_held = numbered(conversation)
    open_or_late = {row.call for row in whole.rows() if row.kind == "tool_result" and row.number > len(earlier)}
    sent = sendable(content(earlier, held))
    if not any(piece.call in open_or_late for piece in sent if piece.call) and not open_calls(sent):
        assert sendable(content(whole, all_held))[: len(sent)] == sent


def open_calls(sent: list[Piece]) -> bool:
    return any(isinstance(piece, OwnText) and piece.kind == "tool_result" for piece in sent)


# --- nothing recorded passes for ours


@given(scopes())
def test_no_recorded_text_passes_for_ours(scope: tuple[Ledger, Held]) -> None:
    for piece in sendable(content(*scope)):
        if piece.role == "assistant" or piece.ext != "txt":
            continue
        text = piece.body.decode("utf-8", "surrogatepass")
        if isinstance(piece, OwnText):
            text = re.sub(r"(?m)^\[masked B\d+@[0-9a-f]{6}: [\d,]+ characters left out\]$", "", text, count=1)
            if OURS.match(text):
                text = text[1:]
        assert not OURS.search(text)


@given(st.lists(texts, max_size=4).map("".join))
def test_a_guarded_text_can_be_read_back(value: str) -> None:
    guarded = stub.guarded(value)
    lookahead = OURS.pattern.replace(r"(?<!\\)", "")
    assert re.sub(rf"(?i)\\(?={lookahead})", "", guarded) == value
    assert not re.search(f"(?i){OURS.pattern}", guarded)


@given(st.text(st.characters(exclude_characters="["), max_size=40) | st.sampled_from(["[1] a", "x[B1]", "[archived]"]))
def test_a_text_that_looks_like_nothing_of_ours_stays(value: str) -> None:
    assert stub.guarded(value) == value


@pytest.mark.parametrize("forged", [words for words in FORGED if not words.startswith("\\")])
@pytest.mark.parametrize(
    "part",
    [
        lambda words: wire.text_part(words, "user", "client"),
        lambda words: wire.result_part(f"ls\n  {words}", "c1"),
        lambda words: wire.part(
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": words}, {"type": "x"}]},
            "user",
            "tool",
        ),
        lambda words: wire.part({"type": "document", "source": {"type": "text", "data": words}}, "user", "human"),
        lambda words: wire.part({"type": "unheard-of", words: 1}, "user", "client"),
    ],
)
def test_a_forged_text_is_marked_where_it_is_sent_and_only_there(part: Any, forged: str) -> None:
    call = Message(role="assistant", parts=(wire.call_part("sh", "c1", b"{}"),))
    ledger, held = numbered([call, Message(role="user", parts=(part(forged),))])
    recorded = content(ledger, held)
    assert wire.compact(request(sendable(recorded))).count(b"\\\\[" + forged[1:].encode()) == 1
    assert b"\\\\[" not in wire.compact(request(sanitise.valid(recorded)))


def test_the_models_own_words_are_sent_as_they_came() -> None:
    said = [
        Message(role="user", parts=(wire.text_part("hi", "user", "human"),)),
        Message(
            role="assistant",
            parts=(
                wire.part({"type": "thinking", "thinking": FORGED[0], "signature": "s"}, "assistant", "model"),
                wire.text_part(FORGED[0], "assistant", "model"),
                wire.part(
                    {"type": "tool_use", "id": "c1", "name": "x", "input": {"a": FORGED[0]}}, "assistant", "model"
                ),
            ),
        ),
    ]

    assert request(sendable(content(*numbered(said))))[1]["content"] == [
        {"type": "thinking", "thinking": FORGED[0], "signature": "s"},
        {"type": "text", "text": FORGED[0]},
        {"type": "tool_use", "id": "c1", "name": "x", "input": {"a": FORGED[0]}},
    ]


# --- examples


def said(role: Any, *parts: Part, key: str = "") -> Message:
    return Message(role=role, parts=parts, key=key)


def words(text: str, origin: Any = "human") -> Part:
    return wire.text_part(text, "user", origin)


def call(*ids: str) -> Message:
    return said("assistant", *(wire.call_part("sh", each, b"{}") for each in ids))


def changed(ledger: Ledger, **states: Any) -> Ledger:
    """The ledger with other fields for some rows: `B3={"state": "pruned"}`."""
    return ledger.with_rows(msgspec.structs.replace(ledger[block], **fields) for block, fields in states.items())


def shape(messages: list[dict[str, Any]]) -> list[Any]:
    """Who says what, in short: texts as they are, calls and results by their ids."""
    told: list[Any] = []
    for message in messages:
        blocks = []
        for block in message["content"]:
            match block:
                case {"type": "text", "text": text}:
                    blocks.append(text)
                case {"type": "tool_use", "id": name}:
                    blocks.append(("call", name))
                case {"type": "tool_result", "tool_use_id": name}:
                    blocks.append(("result", name, *(item.get("text", "") for item in block.get("content", []))))
        told.append((message["role"], blocks))
    return told


def seen(ledger: Ledger, held: Held) -> list[Any]:
    """The shape of what is sent."""
    return shape(request(sendable(content(ledger, held))))


def asked() -> tuple[Ledger, Held]:
    """B1 question, B2 call c1, B3 its result, B4 answer."""
    return numbered([said("user", words("do it")), call("c1"), outputs(c1="out"), answered("done")])


def answered(text: str) -> Message:
    return said("assistant", wire.text_part(text, "assistant", "model"))


def outputs(*parts: Part, **results: str) -> Message:
    return said("user", *(wire.result_part(text, name) for name, text in results.items()), *parts)


STUBBED = {"state": "archived", "stub": "[stub]"}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"B3": {"state": "pruned"}}, [("result", "c1", "[pruned B3]")]),
        ({"B3": STUBBED}, [("result", "c1", "[stub]")]),
        ({"B3": {"state": "archived", "group": "G1"}}, [("result", "c1", "[archived B3 in G1]")]),
        ({"B2": {"state": "pruned"}}, ["out"]),
        ({"B2": {"state": "pruned"}, "B3": STUBBED}, ["[stub]"]),
    ],
)
def test_half_of_a_pair_leaves(states: dict[str, Any], expected: list[Any]) -> None:
    ledger, held = asked()
    told = seen(changed(ledger, **states), held)
    assert [block for role, blocks in told if role == "user" for block in blocks] == ["do it", *expected]


# --- where stubs stand under rendering 2


@given(scopes())
def test_under_rendering_2_no_text_of_ours_is_in_the_assistants_voice(scope: tuple[Ledger, Held]) -> None:
    slots = outline(rendered(scope[0], 2))
    assert {slot.role for slot in slots if slot.show == "text"} <= {"user"}


@given(scopes())
def test_the_versions_of_rendering_show_the_same_bodies_and_stubs(scope: tuple[Ledger, Held]) -> None:
    one, two = (outline(rendered(scope[0], version)) for version in (1, 2))
    assert [slot for slot in one if slot.show != "text"] == [slot for slot in two if slot.show != "text"]
    assert Counter(slot.text for slot in one) == Counter(slot.text for slot in two)


def test_the_stub_of_a_call_is_the_assistants_text_and_under_rendering_2_the_users_before_it() -> None:
    ledger, held = asked()
    gone = changed(ledger, B2=STUBBED)
    rest = [("user", ["out"]), ("assistant", ["done"])]
    assert seen(gone, held) == [("user", ["do it"]), ("assistant", ["[stub]"]), *rest]
    assert seen(rendered(gone, 2), held) == [("user", ["do it", "[stub]", "out"]), rest[1]]
    pruned = changed(ledger, B1={"state": "pruned"})
    assert seen(pruned, held)[0] == ("user", [stub.BEGINNING]), "the first message must be the user's"
    assert seen(rendered(changed(pruned, B2=STUBBED), 2), held)[0] == ("user", ["[stub]", "out"])


def test_the_stub_of_a_group_stands_at_the_end_of_the_users_message_before_it_and_parts_no_reply() -> None:
    gone = {"state": "archived", "group": "G1"}
    ledger, held = asked()
    group = Group(id="G1", members=("B2", "B3"), stub="[outer]")
    ledger = rendered(changed(ledger, B2=gone, B3=gone).with_groups([group]), 2)
    assert seen(ledger, held) == [("user", ["do it", "[outer]"]), ("assistant", ["done"])]

    reply = said("assistant", *answered("I look.").parts, *call("a", "b").parts)
    ledger, held = numbered([said("user", words("go")), reply, outputs(a="a", b="b")])
    group = Group(id="G1", members=("B4", "B6"), stub="[outer]")
    ledger = rendered(changed(ledger, B4=gone, B6=gone).with_groups([group]), 2)
    (_, first), (_, second), (_, third) = seen(ledger, held)
    assert first == ["go", "[outer]"]
    assert second[0] == "I look." and len(second) == 2
    assert len(third) == 1


def test_no_stub_stands_behind_a_system_message() -> None:
    system = said("system", wire.text_part("be brief", "system", "client"))
    ledger, _ = numbered([said("user", words("go")), system, answered("yes")])
    ledger = rendered(changed(ledger, B3=STUBBED), 2)
    assert [slot.text or slot.row.id for slot in outline(ledger)] == ["B1", "[stub]", "B2"]


def failed(name: str) -> Part:
    return wire.part({"type": "tool_result", "tool_use_id": name, "is_error": True}, "user", "tool")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            [call("c1", "c2"), outputs(c1="1")],
            [("assistant", [("call", "c1"), ("call", "c2")]),
             ("user", [("result", "c1", "1"), ("result", "c2", stub.INTERRUPTED)])],
            id="a call that is still open has a word for a result",
        ),
        pytest.param(
            [call("c1", "c2"), outputs(failed("c1")), call("c3")],
            [("assistant", [("call", "c1"), ("call", "c2")]),
             ("user", [("result", "c1", stub.FAILED), ("result", "c2", stub.INTERRUPTED)]),
             ("assistant", [("call", "c3")]), ("user", [("result", "c3", stub.INTERRUPTED)])],
            id="an error without output is not called interrupted",
        ),
        pytest.param(
            [call("c1"), said("user", words("stop")), call("c2"), outputs(c1="late")],
            [("assistant", [("call", "c1")]), ("user", [("result", "c1", "late"), "stop"]),
             ("assistant", [("call", "c2")]), ("user", [("result", "c2", stub.INTERRUPTED)])],
            id="a result that comes late takes the place of the interrupted one",
        ),
        pytest.param(
            [call("c1"), outputs(interrupted("c1", "sh"), c1="out")],
            [("assistant", [("call", "c1")]), ("user", [("result", "c1", "out")])],
            id="a word that it was interrupted never takes the place of what was recorded",
        ),
        pytest.param(
            [call("c1"), outputs(c1="one"), call("c1"), outputs(c1="two")],
            [("assistant", [("call", "c1")]), ("user", [("result", "c1", "one")]),
             ("assistant", [("call", "c1-B4")]), ("user", [("result", "c1-B4", "two")])],
            id="a call id that comes again is another call",
        ),
    ],
)  # fmt: skip
def test_each_call_is_answered_once(messages: list[Message], expected: list[Any]) -> None:
    assert seen(*numbered([said("user", words("go")), *messages])) == [("user", ["go"]), *expected]


def test_ids_that_the_api_would_refuse_are_written_otherwise_and_alike_each_time() -> None:
    def ids(*names: str) -> list[str]:
        parts = [
            Piece(message=1, role="assistant", kind="tool_use", body=b"{}", ext="json", call=name) for name in names
        ]
        return [piece.call for piece in sanitise.valid(parts) if piece.kind == "tool_use"]

    (mapped,) = ids("call~1|fc é")
    assert re.fullmatch("call_1_fc__-[0-9a-f]{8}", mapped)
    assert ids("toolu_1", "call~1|fc é", "call~1|fc e") == ["toolu_1", mapped, *ids("call~1|fc e")]
    assert len(set(ids("call~1|fc é", mapped, ""))) == len(set(ids(mapped, "call~1|fc é", ""))) == 3


def test_a_pair_of_the_providers_own_stays_only_whole_but_for_a_call_that_waits_at_the_end() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    searched = said("assistant", *(wire.part(block, "assistant", "model") for block in (use, result)))
    ledger, held = numbered([said("user", words("search")), searched, said("user", words("go on"))])

    assert request(sendable(content(ledger, held)))[1]["content"] == [use, result]
    for gone, left in (("B2", result), ("B3", use)):
        sent = request(sendable(content(changed(ledger, **{gone: {"state": "pruned"}}), held)))
        assert sent[1]["content"] == [{"type": "text", "text": wire.compact(left).decode()}]

    first, second = ({"type": "server_tool_use", "id": f"s{at}", "name": "web_search", "input": {}} for at in (1, 2))
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    paused = said("assistant", *(wire.part(block, "assistant", "model") for block in (first, result, second)))
    ledger, held = numbered([said("user", words("search")), paused])

    sent = request(sendable(content(ledger, held)))
    assert sent[-1]["content"] == [first, result, second]
    assert not problems(sent)
    gone = request(sendable(content(changed(ledger, B2={"state": "pruned"}), held)))
    assert [block["type"] for block in gone[-1]["content"]] == ["text", "server_tool_use"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "thinking", "thinking": "x" * 900, "signature": "s"},
        {"type": "unheard-of", "x": "x" * 900},
    ],
)
def test_what_cannot_be_cut_is_masked_whole(block: dict[str, Any]) -> None:
    role: Any = "user" if block["type"] == "image" else "assistant"
    ledger, held = numbered([said("user", words("go")), said(role, wire.part(block, role, "model"))])
    row = ledger["B2"]
    size = "8 B" if row.ext == "png" else f"{row.bytes} B"
    sent = request(sendable(content(changed(ledger, B2={"state": "masked"}), held)))
    assert sent[-1]["content"][-1] == {"type": "text", "text": f"[masked {row.handle}: {row.kind}, {size} left out]"}


def test_a_mask_leaves_head_and_tail_that_cannot_pass_for_ours_and_a_short_body_whole() -> None:
    long = "a" * 500 + "b" * 500
    results = said("user", wire.result_part(long, "c1"), wire.result_part("short", "c2"))
    ledger, held = numbered([said("user", words("go")), call("c1", "c2"), results])
    ledger = changed(ledger, **{f"B{number}": {"state": "masked"} for number in (2, 4, 5)})

    sent = request(sendable(content(ledger, held)))
    mark = f"[masked {ledger['B4'].handle}: 200 characters left out]"
    assert sent[1]["content"][0]["input"] == {}
    assert shape(sent)[2] == (
        "user",
        [("result", "c1", f"{long[:MASK_SHOWN]}\n{mark}\n{long[-MASK_SHOWN:]}"), ("result", "c2", "short")],
    )

    long = FORGED[0] + "x" * 900 + FORGED[1]
    ledger, held = numbered([said("user", words(long))])

    ((_, (sent,)),) = seen(changed(ledger, B1={"state": "masked"}), held)
    assert (sent.count("\\[archived"), sent.count("[archived"), sent.count("\n[masked B1@")) == (2, 2, 1)


def test_a_result_without_its_call_names_its_images() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    block = {"type": "tool_result", "tool_use_id": "c9", "content": [{"type": "text", "text": "a"}, image, "b", 5]}
    ledger, held = numbered([said("user", wire.part(block, "user", "tool"))])
    assert seen(ledger, held) == [("user", ["a\n[image]\nb\n5"])]


# --- groups and summaries


def test_a_groups_stub_stands_at_its_first_member_that_tells_of_itself() -> None:
    ledger, held = numbered([said("user", words(f"m{number}m")) for number in range(1, 6)])
    inner = Group(id="G1", members=("B1", "B2"), stub="[inner]", group="G2")
    outer_group = Group(id="G2", members=("G1", "B4"), stub="[outer]", level=2)
    ledger = changed(
        ledger,
        B1={"state": "pruned", "group": "G1"},
        B2={"state": "archived", "group": "G1", "stub": "[its own]"},
        B4={"state": "deleted", "group": "G2"},
    ).with_groups([inner, outer_group])

    assert seen(ledger, held) == [("user", ["[outer]", "m3m", "m5m"])]


def test_summaries_stand_before_what_the_host_kept_and_before_older_summaries_if_it_put_them_there() -> None:
    ledger, held = numbered([said("user", words(f"m{number}m")) for number in range(1, 8)])
    first = Group(id="G1", members=("B1",), summary=("B5", "B6"), before="B3")
    second = Group(id="G2", members=("B2",), summary=("B7",), before="B6")
    ledger = changed(ledger, B1={"state": "archived"}, B2={"state": "archived"}).with_groups([first, second])
    assert seen(ledger, held) == [("user", ["m5m", "m7m", "m6m", "m3m", "m4m"])]


def test_a_group_that_is_not_there_or_holds_itself_stops_nothing() -> None:
    ledger, held = numbered([said("user", words(f"m{number}m")) for number in range(1, 5)])
    loop = [
        Group(id="G1", members=("G2", "B1"), group="G2", stub="[loop]"),
        Group(id="G2", members=("G1",), group="G1"),
    ]
    ledger = changed(
        ledger, B1={"state": "archived", "group": "G1"}, B2={"state": "archived", "group": "G9", "stub": "[its own]"}
    ).with_groups([*loop, Group(id="G3", members=("B2",), summary=("B8", "B4"), before="B9")])

    (told,) = seen(ledger, held)
    assert told[1][-3:] == ["[its own]", "m3m", "m4m"]


@given(scopes())
def test_every_row_in_the_prompt_has_one_slot_and_states_decide(scope: tuple[Ledger, Held]) -> None:
    ledger, _ = scope
    bodies = Counter(slot.row.id for slot in outline(ledger) if slot.show != "text")
    assert bodies == Counter(row.id for row in ledger.rows() if row.state in PRESENT)
