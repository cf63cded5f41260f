"""A body with other messages in it is the same body in all else, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms.form import Edit, Form
from ctxvc.forms.splice import members
from tests.forms.conversations import in_every_form, recorded
from tests.forms.dialects import BLOCKS, DIALECTS
from tests.forms.test_edit import FORMS, HOUR, MARK, RESULT, SAMPLE, SHARED, TEXT, THOUGHT, item, parts, says
from tests.forms.test_pieces import OBJECTS, SPACING, VALUES
from tests.messages_api.models import MODELS
from tests.messages_api.rules import message_problems
from tests.openai_api.judge import chat_problem, responses_problem

NAMES = st.sampled_from(sorted(FORMS))
FIELDS = {name: dialect.conversation for name, dialect in DIALECTS.items()}
TOOL = {"name": "recover", "description": "Reads.", "input_schema": {"type": "object"}}
#: What is wrong with a request, as its provider says it.
JUDGES: dict[str, Callable[[Any], list[str]]] = {
    "anthropic-messages": lambda body: message_problems(body["messages"], MODELS["claude-opus-5-5"]),
    "openai-chat": lambda body: [chat_problem(body)],
    "openai-responses": lambda body: [responses_problem(body)],
}


def numbers(name: str, body: bytes) -> range:
    return range(len(FORMS[name].prompt(body).messages))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A form, and a request in it with members and messages of any kind, spaced in any way."""
    name = draw(NAMES)
    messages = draw(st.lists(VALUES | OBJECTS, max_size=5))
    if name == "openai-chat":
        messages = [{"role": "system", "content": "s"}] * draw(st.integers(0, 2)) + messages
    before, after = draw(OBJECTS), draw(OBJECTS)
    members = {**before, FIELDS[name]: messages, **{key: value for key, value in after.items() if key != FIELDS[name]}}
    text = json.dumps(members, separators=draw(SPACING), ensure_ascii=draw(st.booleans()))
    return name, f"{draw(st.sampled_from(['', ' ']))}{text}\n".encode("utf-8", "surrogatepass")


@given(bodies())
def test_a_body_with_its_own_messages_is_that_body(made: tuple[str, bytes]) -> None:
    name, body = made
    assert FORMS[name].spliced(body, numbers(name, body), []) == body


@pytest.mark.parametrize("name", FORMS)
def test_a_real_body_with_its_own_messages_is_that_body(name: str) -> None:
    for indent in (None, 2):
        body = json.dumps(DIALECTS[name].request, indent=indent).encode()
        assert FORMS[name].spliced(body, numbers(name, body), []) == body


@given(bodies(), st.lists(st.integers(0, 9) | OBJECTS, max_size=6))
def test_nothing_but_the_messages_changes(made: tuple[str, bytes], wanted: list[Any]) -> None:
    name, body = made
    field, own = FIELDS[name], FORMS[name].prompt(body).messages
    messages = [value for value in wanted if type(value) is not int or value < len(own)]
    value = json.loads(body)
    leading = len(value[field]) - len(own)

    spliced = FORMS[name].spliced(body, messages, [])
    value[field] = value[field][:leading] + [own[each] if type(each) is int else each for each in messages]
    assert json.loads(spliced) == value and list(json.loads(spliced)) == list(value)
    place = dict(members(body))[field]
    assert spliced.startswith(body[: place.start]) and spliced.endswith(body[place.end :])
    assert FORMS[name].spliced(body, messages, []) == spliced


LIST = b'[ {"a":1e2,"role":"user"} ,\n {"b":"\\u00e9","role":"user"}, {"role":"user","c":{"d":1,"d":2}} ]'


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            (0, 1, 2),
            b'[ {"a":1e2,"role":"user"} ,\n {"b":"\\u00e9","role":"user"}, {"role":"user","c":{"d":1,"d":2}} ]',
        ),
        ((1, 2), b'[ {"b":"\\u00e9","role":"user"}, {"role":"user","c":{"d":1,"d":2}} ]'),
        ((0, 2), b'[ {"a":1e2,"role":"user"}, {"role":"user","c":{"d":1,"d":2}} ]'),
        (
            (0, {"role": "user", "z": [1.0, "é"]}, 1),
            '[ {"a":1e2,"role":"user"},{"role":"user","z":[1.0,"é"]} ,\n {"b":"\\u00e9","role":"user"} ]'.encode(),
        ),
        (({"role": "user"},), b'[ {"role":"user"} ]'),
        ((), b"[  ]"),
    ],
)
def test_a_message_has_its_own_bytes_and_what_stood_before_it(
    name: str, messages: Sequence[Any], expected: bytes
) -> None:
    body = b'{ "x":1.0,"%s" :%s, "y":1.50E+3 }'
    field = FIELDS[name].encode()
    assert FORMS[name].spliced(body % (field, LIST), messages, []) == body % (field, expected)


def test_one_message_that_is_no_list_becomes_one() -> None:
    responses, gemini = FORMS["openai-responses"], FORMS["gemini"]
    text, content = b'{"input" : "\\u00e9", "n":1.0}', b'{"contents" : {"parts":[ ]}}'

    assert responses.spliced(text, [0], []) == text and gemini.spliced(content, [0], []) == content
    assert responses.spliced(text, [0, {"a": 1}], []) == (
        b'{"input" : [{"type":"message","role":"user","content":"\\u00e9"},{"a":1}], "n":1.0}'
    )
    assert gemini.spliced(content, [{"a": 1}, 0], []) == b'{"contents" : [{"a":1},{"parts":[ ]}]}'


def test_the_instructions_of_a_chat_are_no_messages_and_stay() -> None:
    first = b'{"role":"system","content":"s"},  {"role":"developer","content":[{"type":"text","text":"t"}]}'
    body = b'{"messages":[' + first + b',{"role":"user"},{"role":"system","content":"u"}]}'
    form = FORMS["openai-chat"]

    assert form.spliced(body, [1], []) == body.replace(b',{"role":"user"}', b"")
    assert form.spliced(body, [], []) == b'{"messages":[' + first + b"]}"


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"x", b'{"%s":1}', b'{"%s":null}', b'{"%s":[1],"%s":[2]}', b'{"%s":[],"%s":[]}',
        b'{"a":1,"a":1,"%s":[]}', b'{"%s":[],"a":1,"a":2}', b'{"a":1,"a":1,"b":1,"%s":[]}', b'{"%s":[],}',
        b'{"%s":[NaN]}', b'\xef\xbb\xbf{"%s":[]}', b'{"%s":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_cannot_be_spliced_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(BadInput):
        FORMS[name].spliced(body.replace(b"%s", FIELDS[name].encode()), [], [])


# --- tools

SAYS = b'"name":"recover","description":"Reads."'
FUNCTION = {
    "anthropic-messages": b"{" + SAYS + b',"input_schema":{"type":"object"}}',
    "openai-chat": b'{"type":"function","function":{' + SAYS + b',"parameters":{"type":"object"}}}',
    "openai-responses": b'{"type":"function",' + SAYS + b',"parameters":{"type":"object"},"strict":false}',
}


@pytest.mark.parametrize("name", FUNCTION)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"%s":[] }', b'{"%s":[],"tools":[TOOL,TOOL] }'),
        (b'{"%s":[],"x":1.0\n}', b'{"%s":[],"x":1.0,"tools":[TOOL,TOOL]\n}'),
        (b'{"tools" : null,"%s":[]}', b'{"tools" : [TOOL,TOOL],"%s":[]}'),
        (b'{"tools":[ ],"%s":[]}', b'{"tools":[TOOL,TOOL ],"%s":[]}'),
        (b'{"tools":[ {"a":1.0} , 2 ],"%s":[]}', b'{"tools":[ {"a":1.0} , 2,TOOL,TOOL ],"%s":[]}'),
    ],
)
def test_tools_are_added_behind_the_clients(name: str, body: bytes, expected: bytes) -> None:
    spliced = FORMS[name].spliced(body.replace(b"%s", FIELDS[name].encode()), [], [TOOL, TOOL])
    assert spliced == expected.replace(b"%s", FIELDS[name].encode()).replace(b"TOOL", FUNCTION[name])


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (b"", b',"tools":[{"functionDeclarations":[TOOL]}]'),
        (b',"tools":null', b',"tools":[{"functionDeclarations":[TOOL]}]'),
        (b',"tools":[{"googleSearch":{}}]', b',"tools":[{"googleSearch":{}},{"functionDeclarations":[TOOL]}]'),
        (
            b',"tools":[{"functionDeclarations":[1]}, {"functionDeclarations" :[ 2 ],"a":1.0}, {"b":{}}, 3]',
            b',"tools":[{"functionDeclarations":[1]}, {"functionDeclarations" :[ 2,TOOL ],"a":1.0}, {"b":{}}, 3]',
        ),
        (b',"tools":[{"function_declarations":[]}]', b',"tools":[{"function_declarations":[TOOL]}]'),
    ],
)
def test_functions_of_gemini_are_added_to_the_newest_declarations(tools: bytes, expected: bytes) -> None:
    function = b"{" + SAYS + b',"parametersJsonSchema":{"type":"object"}}'
    spliced = FORMS["gemini"].spliced(b'{"contents":[]' + tools + b"}", [], [TOOL])
    assert spliced == b'{"contents":[]' + expected.replace(b"TOOL", function) + b"}"


@pytest.mark.parametrize("name", FORMS)
def test_tools_that_are_no_list_are_refused(name: str) -> None:
    body = json.dumps({FIELDS[name]: [], "tools": {}}).encode()
    assert FORMS[name].spliced(body, [], []) == body
    with pytest.raises(BadInput):
        FORMS[name].spliced(body, [], [TOOL])


def test_beside_functions_there_may_be_no_tools() -> None:
    body = b'{"messages":[],"functions":[]}'
    assert FORMS["openai-chat"].spliced(body, [], []) == body
    with pytest.raises(BadInput, match="functions"):
        FORMS["openai-chat"].spliced(body, [], [TOOL])


# --- cache marks


def marked(block: Any, mark: Any = MARK) -> dict[str, Any]:
    return {**block, "cache_control": mark}


ONE, TWO = says(TEXT, TEXT), says(BLOCKS[1], role="assistant")
LAST = says(marked(RESULT))


@pytest.mark.parametrize(
    ("own", "messages", "expected"),
    [
        # A message leaves, with its mark.
        ([ONE, TWO, LAST], [0, 1], [ONE, says(marked(BLOCKS[1]), role="assistant")]),
        ([ONE, TWO, LAST], [0], [says(TEXT, marked(TEXT))]),
        ([{"role": "user", "content": "é"}, LAST], [0], [says(marked(item("text", text="é")))]),
        ([ONE, TWO, LAST, ONE], [0, TWO, 3], [ONE, says(marked(BLOCKS[1]), role="assistant"), ONE]),
        ([LAST, ONE], [1], [ONE]),
        # Nothing that thinks or is empty has a mark; what has one keeps it, and lasts as long.
        (
            [ONE, says(THOUGHT, item("text", text=" ")), LAST],
            [0, 1],
            [says(TEXT, marked(TEXT)), says(THOUGHT, item("text", text=" "))],
        ),
        ([says(TEXT, marked(TEXT)), LAST], [0], [says(marked(TEXT), marked(TEXT))]),
        ([says(TEXT, marked(TEXT, HOUR)), LAST], [0], [says(marked(TEXT, HOUR), marked(TEXT, HOUR))]),
        ([says(marked(TEXT)), LAST], [0], [says(marked(TEXT))]),
        ([says(marked(TEXT, None)), LAST], [0], [says(marked(TEXT))]),
        ([["cache_control"], ONE, LAST], [0, 1], [["cache_control"], says(TEXT, marked(TEXT))]),
        # A message that is there as another one: its own mark stays, or goes before it.
        ([ONE, LAST], [0, says(marked(TEXT))], [ONE, says(marked(TEXT))]),
        ([ONE, says(marked(RESULT), TEXT)], [0, says(TEXT)], [says(TEXT, marked(TEXT)), says(TEXT)]),
        ([ONE, TWO, says(marked(TEXT)), LAST], [0, says(marked(TEXT))], [says(TEXT, marked(TEXT)), says(marked(TEXT))]),
        # Never more than there were: those of earlier requests are taken away.
        ([ONE, LAST], [says(marked(TEXT)), says(marked(RESULT))], [says(TEXT), says(marked(RESULT))]),
        ([ONE, LAST], [says(marked(TEXT)), 1], [says(TEXT), LAST]),
        ([ONE, ONE], [0, says({**RESULT, "content": [marked(TEXT)]})], [ONE, says({**RESULT, "content": [TEXT]})]),
    ],
)
def test_marks_move_to_what_stays(own: list[Any], messages: list[Any], expected: list[Any]) -> None:
    body = json.dumps({"system": [marked(TEXT)], "messages": own, "tools": [marked(TOOL)]}).encode()
    spliced = FORMS["anthropic-messages"].spliced(body, messages, [TOOL])

    assert json.loads(spliced) == {"system": [marked(TEXT)], "messages": expected, "tools": [marked(TOOL), TOOL]}


def test_a_message_that_gets_a_mark_keeps_its_bytes() -> None:
    message = b'{"role":"user", "content" :[{"type":"text","text":"\\u00e9","n":1.0 %s}, {"type":"thinking"}]}'
    body = b'{"messages":[' + message % b"" + b"," + wire.compact(LAST) + b"]}"
    mark = b',"cache_control":{"type":"ephemeral"}'
    assert FORMS["anthropic-messages"].spliced(body, [0], []) == b'{"messages":[' + message % mark + b"]}"


BLANK = item("text", text=" ")
NESTED = {**RESULT, "content": [marked(TEXT)]}
MARKED = st.lists(
    st.lists(st.sampled_from([TEXT, marked(TEXT), marked(RESULT), NESTED, THOUGHT, BLANK]), min_size=1, max_size=3),
    max_size=6,
)
Place = tuple[int, int]


def marks(block: Any) -> int:
    return wire.compact(block).count(b'"cache_control"')


def with_marks(own: list[list[Any]], left: set[Place]) -> set[Place]:
    """Where the marks are when these blocks have left: the nearest places before them that may have one."""
    places = [(number, at) for number, content in enumerate(own) for at in range(len(content))]
    result = {place for place in places if place not in left and marks(own[place[0]][place[1]])}
    for number, at in sorted(left):
        for _ in range(marks(own[number][at])):
            before = [place for place in places if place < (number, at) and place not in left | result]
            free = [place for place in before if own[place[0]][place[1]] not in (THOUGHT, BLANK)]
            result |= set(free[-1:])
    return result


@given(MARKED, st.sets(st.integers(0, 5)), st.booleans())
def test_marks_are_where_the_nearest_block_stays(own: list[list[Any]], chosen: set[int], whole: bool) -> None:
    form = FORMS["anthropic-messages"]
    messages: dict[int, Any] = dict(enumerate(range(len(own))))
    left: set[Place] = set()
    for number in chosen & messages.keys():
        edited = form.edited(says(*own[number]), Edit(dropped=(0,)))
        if whole:
            left |= {(number, at) for at in range(len(own[number]))}
            del messages[number]
        elif edited is not None:
            left.add((number, 0))
            messages[number] = edited
    body = json.dumps({"messages": [says(*content) for content in own]}).encode()
    spliced = json.loads(form.spliced(body, list(messages.values()), []))["messages"]

    expected = with_marks(own, left)
    there = {
        (number, at)
        for number, message in zip(messages, spliced, strict=True)
        for at, block in zip((at for at in range(3) if (number, at) not in left), message["content"], strict=False)
        if marks(block)
    }
    assert there == expected


# --- reasoning

REASONING = item("reasoning", id="r", summary=[])
CALLS = [item("function_call", call_id=call, name="read", arguments="{}") for call in ("c1", "c2")]
OUTPUTS = [item("function_call_output", call_id=call, output="x") for call in ("c1", "c2")]
#: A question, twice reasoning with a call each, the results, reasoning with an answer.
ITEMS = [
    says(),
    REASONING,
    CALLS[0],
    REASONING,
    REASONING,
    CALLS[1],
    *OUTPUTS,
    REASONING,
    {"role": "assistant", "content": "x"},
]


@pytest.mark.parametrize(
    ("own", "messages", "expected"),
    [
        (ITEMS, range(10), list(range(10))),
        (ITEMS, [0, 1, 3, 4, 5, 7, 8, 9], [0, 3, 4, 5, 7, 8, 9]),
        (ITEMS, [0, 1, 2, 3, 4, 6, 8, 9], [0, 1, 2, 6, 8, 9]),
        (ITEMS, [0, 1, 2, 6, 8], [0, 1, 2, 6]),
        (ITEMS, [0, 1, 5, 7], [0, 5, 7]),
        (ITEMS, [0, 1, {"role": "assistant", "content": "y"}], [0, 1, {"role": "assistant", "content": "y"}]),
        (ITEMS, [0, 1, {"role": "user", "content": "y"}], [0, {"role": "user", "content": "y"}]),
        (ITEMS, [0, REASONING, CALLS[0], REASONING, says()], [0, REASONING, CALLS[0], says()]),
        # What no item of its own was behind stays as it was.
        ([says(), REASONING, says()], [0, 1], [0, 1]),
        ([says(), REASONING], [0, 1], [0, 1]),
    ],
)
def test_reasoning_leaves_with_the_item_that_it_belongs_to(own: list[Any], messages: Any, expected: list[Any]) -> None:
    body = json.dumps({"input": own}).encode()
    spliced = json.loads(FORMS["openai-responses"].spliced(body, list(messages), []))["input"]
    assert spliced == [own[entry] if type(entry) is int else entry for entry in expected]


# --- a prompt without some of its exchanges


def without_some(form: Form, messages: list[Any], chance: Random) -> list[Any]:
    """The messages without some calls and their results, without some thinking and texts, and with stubs."""
    read = [(message, form.layout(message), parts(form, message)) for message in messages]
    gone = {part.call for _, _, own in read for part in own if part.kind == "tool_use" and chance.random() < 0.4}
    result: list[Any] = []
    for number, (message, numbers_of_items, own) in enumerate(read):
        items = list(zip(numbers_of_items, own, strict=True))
        leaves = ("thinking", "assistant")
        dropped = {at for at, part in items if part.call in gone or (part.kind in leaves and chance.random() < 0.3)}
        stubs = {at: "[archived B7]" for at, part in items if part.kind == "tool_result" and chance.random() < 0.3}
        edited = form.edited(message, Edit(dropped, stubs))
        result += [number] if edited == message else [] if edited is None else [edited]
    return result


@pytest.mark.skipif(not SHARED.is_dir(), reason="CTXVC_TEST_DATA names no folder with trajectories/")
@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("pattern", SAMPLE)
def test_what_is_left_of_a_recorded_conversation_has_no_new_fault(pattern: str, name: str) -> None:
    def faults(request: bytes) -> set[str]:
        return {re.sub(r"\d+", "N", fault) for fault in JUDGES[name](json.loads(request))}

    messages = in_every_form(recorded(sorted(SHARED.glob(pattern))[0]))[name]
    body = json.dumps({"model": "m", FIELDS[name]: messages}).encode()
    spliced = FORMS[name].spliced(body, without_some(FORMS[name], messages, Random(0)), [TOOL])
    assert len(spliced) < len(body) and faults(spliced) <= faults(body)
