"""A message is edited item by item in every form."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Part
from ctxvc.forms import anthropic, chat, gemini, responses
from ctxvc.forms.form import Answer, Edit, Form
from tests.forms.conversations import in_every_form, recorded
from tests.forms.dialects import BLOCKS, DIALECTS
from tests.forms.test_pieces import VALUES

FORMS: dict[str, Form] = {form.NAME: form for form in (anthropic, chat, responses, gemini)}
STUB = "[archived B7]"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
SHARED = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere")) / "trajectories"
SAMPLE = ("agentv-4f*", "deer-flow-21*", "entire-cli-13-34*", "tau-bench-airline-4*", "pi-mono*")
Gist = tuple[object, ...]


def parts(form: Form, message: Any, before: Sequence[Any] = ()) -> list[Part]:
    """What the reader makes of a message behind others."""
    reader = form.reader()
    reader.messages(before)
    return [part for read in reader.messages([message]) for part in read.parts]


def gist(part: Part) -> Gist:
    """A part without its maker, a mark that came from its neighbour, and the count of calls that are the same."""
    body: Any = part.body
    if part.kind == "other" and part.ext == "json" and isinstance(value := json.loads(body), dict):
        body = json.dumps({name: field for name, field in value.items() if name != "cache_control"})
    call = re.sub(r"(-[0-9a-f]{8})-\d+", r"\1", part.call)
    return part.kind, part.role, body, part.ext, call, part.tool, part.error, part.files


def check_law(form: Form, message: Any, before: Sequence[Any] = ()) -> int:
    """What an edit leaves of a message is what the reader made of it, but for the item; gives the number of items."""
    original = copy.deepcopy(message)
    items = list(zip(form.layout(message), parts(form, message, before), strict=True))
    assert form.edited(message, Edit()) == message
    for item, part in items:
        others = [other for number, other in items if number != item]
        is_said = any(other.kind != "thinking" for other in others)
        without = form.edited(message, Edit(dropped=(item,)))
        assert (without is not None) == is_said
        if is_said:
            assert list(map(gist, parts(form, without, before))) == list(map(gist, others))
        shown = form.edited(message, Edit(replaced={item: STUB}))
        if part.kind in ("tool_use", "thinking"):
            expected = [gist(other)[2:] for _, other in items]
        else:
            place = [number for number, _ in items].index(item)
            ahead = [other for number, other in items[:place] if number != item]
            expected = [gist(other)[2:] for other in [*ahead, part, *others[len(ahead) :]]]
            expected[place] = (STUB.encode(), "txt", part.call, part.tool, part.error, ())
        if shown is not None or is_said or part.kind != "thinking":
            assert [gist(other)[2:] for other in parts(form, shown, before)] == expected
    assert message == original
    return len(items)


# --- what is recorded


def check_recording(path: Path) -> int:
    conversations = in_every_form(recorded(path))
    return sum(check_law(FORMS[name], message) for name in conversations for message in conversations[name])


@pytest.mark.skipif(not SHARED.is_dir(), reason="CTXVC_TEST_DATA names no folder with trajectories/")
@pytest.mark.parametrize("pattern", SAMPLE)
def test_recorded_messages_are_edited_item_by_item(pattern: str) -> None:
    assert check_recording(sorted(SHARED.glob(pattern))[0]) > 50


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="CTXVC_TEST_DATA names no folder with trajectories/")
def test_all_recorded_messages_are_edited_item_by_item() -> None:
    assert sum(map(check_recording, sorted(SHARED.glob("*.jsonl.gz")))) > 50_000


@pytest.mark.parametrize("name", DIALECTS)
def test_a_reply_is_edited_item_by_item(name: str) -> None:
    dialect = DIALECTS[name]
    prompt = dialect.form.prompt(json.dumps(dialect.request).encode())
    reply = dialect.form.reply(dialect.body, stream=False)

    messages = [*prompt.messages, *reply.messages]
    items = [check_law(dialect.form, message, messages[:place]) for place, message in enumerate(messages)]
    assert sum(items) >= 9


# --- what is made

TEXTS = st.sampled_from(["", " ", "one", "two", "<system-reminder>x</system-reminder>"])
IDS = st.sampled_from(["c1", "c2"])
ANTHROPIC_BLOCKS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text, mark: {"type": "text", "text": text, "cache_control": mark}, TEXTS, st.just(MARK)),
    st.sampled_from([*BLOCKS, {"type": "redacted_thinking", "data": "x"}, {"type": "image", "source": PICTURE}]),
    IDS.map(lambda call: {"type": "tool_result", "tool_use_id": call, "content": "one", "is_error": True}),
    IDS.map(lambda call: {"type": "server_tool_use", "id": f"s{call}", "name": "web_search", "input": {}}),
    IDS.map(lambda call: {"type": "web_search_tool_result", "tool_use_id": f"s{call}", "content": []}),
    VALUES.filter(lambda value: isinstance(value, (str, dict))),
)
CHAT_PARTS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}),
    VALUES,
)
CHAT_CALLS = IDS.map(lambda call: {"id": call, "type": "function", "function": {"name": "read", "arguments": "{}"}})
RESPONSES_PIECES = st.one_of(
    st.builds(lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["input_text", "output_text"]), TEXTS),
    st.just({"type": "input_image", "image_url": "data:image/png;base64,aGk="}),
    VALUES,
)
GEMINI_MEDIA = st.just({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
GEMINI_PARTS = {
    "user": st.one_of(
        IDS.map(lambda call: {"functionResponse": {"id": call, "name": "read", "response": {"error": "one"}}}),
        TEXTS.map(lambda text: {"text": text}),
        GEMINI_MEDIA,
        TEXTS,
        VALUES,
    ),
    "model": st.one_of(
        TEXTS.map(lambda text: {"text": text, "thoughtSignature": "c2ln"}),
        TEXTS.map(lambda text: {"text": text, "thought": True}),
        st.just({"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}),
        GEMINI_MEDIA,
        VALUES,
    ),
}


MESSAGES: dict[str, st.SearchStrategy[Any]] = {
    "anthropic-messages": st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "other"]),
            "content": TEXTS | st.lists(ANTHROPIC_BLOCKS, max_size=5) | VALUES,
        }
    ),
    "openai-chat": st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer"])},
        optional={
            "content": TEXTS | st.lists(CHAT_PARTS, max_size=4) | st.none(),
            "reasoning_content": TEXTS,
            "refusal": TEXTS,
            "tool_calls": st.lists(CHAT_CALLS, max_size=3, unique_by=lambda call: str(call["id"])) | st.none(),
            "name": TEXTS,
        },
    )
    | st.fixed_dictionaries(
        {"role": st.just("tool"), "tool_call_id": IDS, "content": TEXTS | st.lists(CHAT_PARTS, max_size=3)}
    ),
    "openai-responses": st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "developer"])},
        optional={"content": TEXTS | st.lists(RESPONSES_PIECES, max_size=4) | VALUES},
    )
    | st.sampled_from(
        [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
            {"type": "function_call_output", "call_id": "c1", "output": {"content": "one", "success": False}},
            {"type": "web_search_call", "id": "w"},
            {"type": "compaction", "encrypted_content": "x"},
            {
                "type": "agent_message",
                "content": [{"type": "input_text", "text": "one"}, {"type": "encrypted_content"}],
            },
        ]
    ),
    "gemini": st.sampled_from(["user", "model"]).flatmap(
        lambda role: st.fixed_dictionaries(
            {"role": st.just(role), "parts": st.lists(GEMINI_PARTS[role], max_size=5) | GEMINI_PARTS[role]}
        )
    ),
}
#: Values of any kind, and messages with fields of any kind.
ANY = VALUES | st.fixed_dictionaries({}, optional=dict.fromkeys(("role", "content", "parts", "type"), VALUES))


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_messages_of_any_shape_are_edited_item_by_item(name: str, data: st.DataObject) -> None:
    check_law(FORMS[name], data.draw(MESSAGES[name], "message"))


@pytest.mark.parametrize("name", FORMS)
@given(value=ANY, edit=st.builds(Edit, st.just((0,)), st.just({1: STUB}), st.lists(TEXTS, max_size=1)))
def test_what_is_no_message_is_read_and_edited_all_the_same(name: str, value: Any, edit: Edit) -> None:
    form = FORMS[name]

    assert form.role(value) in ("user", "assistant", "result", "system")
    assert form.layout(value) or form.edited(value, edit) == value
    form.edited(value, edit)


# --- what is edited, in each form

TEXT = {"type": "text", "text": "one"}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "long", "is_error": True}
SEARCH = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
]
THOUGHT, SAYING, CALL, _ = BLOCKS
CHAT_CALL, OTHER_CALL = DIALECTS["openai-chat"].repeated()[0]["tool_calls"]
NOTES = {"turn_id": "t", "content_item_kinds": ["a", "b"], "content_item_metadata": [{"a": 1}, {"b": 2}]}
INPUT = {"type": "input_text", "text": "one"}
GEMINI_CALL = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}
GEMINI_RESULT = {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "x"}, "parts": [{}]}}
SOUND = {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}
MEDIA = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def says(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def replaced(text: str = STUB, number: int = 0) -> Edit:
    return Edit(replaced={number: text})


CASES: dict[str, list[tuple[Any, Edit, Any]]] = {
    "anthropic-messages": [
        ({"role": "user", "content": "one"}, replaced(), {"role": "user", "content": STUB}),
        ({"role": "user", "content": "one"}, Edit(appended=["two"]), says(TEXT, item("text", text="two"))),
        (says(THOUGHT, SAYING, CALL, role="assistant"), Edit(dropped=(1, 2)), None),
        (says(THOUGHT, CALL, role="assistant"), Edit(dropped=(0,)), says(CALL, role="assistant")),
        (says(THOUGHT, CALL, role="assistant"), Edit(replaced={0: "a", 1: "b"}), says(THOUGHT, CALL, role="assistant")),
        (says({**RESULT, "cache_control": MARK}), replaced(), says({**RESULT, "content": STUB, "cache_control": MARK})),
        (
            says(item("image", source=PICTURE, cache_control=MARK)),
            replaced(),
            says(item("text", text=STUB, cache_control=MARK)),
        ),
        (says(item("document", source={}, title="t")), replaced(), says(item("text", text=STUB))),
        (says(SAYING, *SEARCH, role="assistant"), Edit(dropped=(1,)), says(SAYING, role="assistant")),
        (says(*SEARCH, role="assistant"), replaced(), says(item("text", text=STUB), role="assistant")),
        ({**says(TEXT, RESULT), "id": "kept"}, Edit(dropped=(0,)), {**says(RESULT), "id": "kept"}),
        # A mark moves to the nearest block that may have one; what is within a result goes to the result.
        (says(TEXT, {**RESULT, "cache_control": MARK}), Edit(dropped=(1,)), says({**TEXT, "cache_control": MARK})),
        (
            says(TEXT, item("text", text=" "), {**RESULT, "cache_control": MARK}, TEXT),
            Edit(dropped=(2,)),
            says({**TEXT, "cache_control": MARK}, item("text", text=" "), TEXT),
        ),
        (
            says(SAYING, THOUGHT, {**CALL, "cache_control": MARK}, role="assistant"),
            Edit(dropped=(2,)),
            says({**SAYING, "cache_control": MARK}, THOUGHT, role="assistant"),
        ),
        (
            says({**RESULT, "content": [{**TEXT, "cache_control": MARK}]}),
            replaced(),
            says({**RESULT, "content": STUB, "cache_control": MARK}),
        ),
        (
            says(TEXT, {**TEXT, "cache_control": HOUR}, {**RESULT, "cache_control": MARK}),
            Edit(dropped=(2,)),
            says({**TEXT, "cache_control": HOUR}, {**TEXT, "cache_control": HOUR}),
        ),
        (
            says(TEXT, {**RESULT, "content": [{**TEXT, "cache_control": HOUR}], "cache_control": MARK}),
            replaced(number=1),
            says({**TEXT, "cache_control": HOUR}, {**RESULT, "content": STUB, "cache_control": MARK}),
        ),
    ],
    "openai-chat": [
        ({"role": "user", "content": "one"}, Edit(appended=["two"]), says(TEXT, item("text", text="two"))),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [TEXT, TEXT]},
            replaced(),
            {"role": "tool", "tool_call_id": "c1", "content": STUB},
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": [TEXT, TEXT]}, Edit(dropped=(0,)), None),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            Edit(appended=["two"]),
            {"role": "tool", "tool_call_id": "c1", "content": "one\n\ntwo"},
        ),
        (
            {"role": "function", "name": "read", "content": "one"},
            replaced(),
            {"role": "function", "name": "read", "content": STUB},
        ),
        (
            {"role": "assistant", "content": "one", "tool_calls": [CHAT_CALL, OTHER_CALL]},
            Edit(dropped=(0, 1)),
            {"role": "assistant", "content": None, "tool_calls": [OTHER_CALL]},
        ),
        (
            {"role": "assistant", "content": "one", "tool_calls": [CHAT_CALL, OTHER_CALL]},
            Edit(dropped=(1, 2)),
            {"role": "assistant", "content": "one"},
        ),
        ({"role": "assistant", "tool_calls": [CHAT_CALL], "x": 1.0}, Edit(dropped=(0,)), None),
        ({"role": "assistant", "reasoning_content": "r", "content": "one"}, Edit(dropped=(1,)), None),
        (
            {"role": "assistant", "reasoning_content": "r", "reasoning_details": [], "content": "one"},
            Edit(dropped=(0,)),
            {"role": "assistant", "content": "one"},
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}, "content": None},
            Edit(dropped=(0,)),
            None,
        ),
        (
            {"role": "assistant", "content": None, "refusal": "no"},
            replaced(),
            {"role": "assistant", "content": None, "refusal": STUB},
        ),
        (
            {"role": "assistant", "content": "one", "refusal": "no"},
            Edit(dropped=(1,)),
            {"role": "assistant", "content": "one"},
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, replaced(), {"role": "assistant", "content": STUB}),
        (
            says({**TEXT, "cache_control": MARK}, TEXT),
            Edit((1,), {0: STUB}),
            says(item("text", text=STUB, cache_control=MARK)),
        ),
    ],
    "openai-responses": [
        ({"role": "user", "content": "one"}, replaced(), {"role": "user", "content": STUB}),
        ({"role": "user", "content": "one"}, Edit(appended=["two"]), says(INPUT, item("input_text", text="two"))),
        (
            {"role": "assistant", "content": [item("output_text", text="x", annotations=[{}], logprobs=[])], "id": "m"},
            replaced(),
            {"role": "assistant", "content": [item("output_text", text=STUB, annotations=[])], "id": "m"},
        ),
        (says(item("input_image", image_url="u")), replaced(), says(item("input_text", text=STUB))),
        (
            {**says(INPUT, INPUT), "internal_chat_message_metadata_passthrough": NOTES},
            Edit(dropped=(0,), appended=["two"]),
            {
                **says(INPUT, item("input_text", text="two")),
                "internal_chat_message_metadata_passthrough": {
                    "turn_id": "t",
                    "content_item_kinds": ["b", "unknown"],
                    "content_item_metadata": [{"b": 2}, {}],
                },
            },
        ),
        (item("function_call", call_id="c", name="n", arguments="{}"), Edit(dropped=(0,)), None),
        (item("reasoning", summary=[]), Edit(dropped=(0,)), None),
        (
            item("function_call_output", call_id="c", output={"content": "x", "success": False}),
            replaced(),
            item("function_call_output", call_id="c", output={"content": STUB, "success": False}),
        ),
        (
            item("function_call_output", call_id="c", output=[INPUT]),
            Edit(appended=["two"]),
            item("function_call_output", call_id="c", output=[INPUT, item("input_text", text="two")]),
        ),
        (
            item("shell_call_output", call_id="c", output=[{"stdout": "x", "stderr": "y", "outcome": {}}, {}]),
            replaced(),
            item("shell_call_output", call_id="c", output=[{"stdout": STUB, "stderr": "", "outcome": {}}]),
        ),
        (
            item("computer_call_output", call_id="c", output={"type": "computer_screenshot"}),
            replaced(),
            item("computer_call_output", call_id="c", output={"type": "computer_screenshot"}),
        ),
        (
            item("compaction", encrypted_content="x"),
            replaced(),
            {"type": "message", **says(item("input_text", text=STUB))},
        ),
        (
            item("web_search_call", id="w"),
            replaced(),
            {"type": "message", **says(item("output_text", text=STUB), role="assistant")},
        ),
    ],
    "gemini": [
        ({"parts": "one"}, Edit(appended=["two"]), {"parts": [{"text": "one"}, {"text": "two"}]}),
        (
            {
                "role": "model",
                "parts": [{"text": "t", "thought": True}, {"text": "x", "thoughtSignature": "s"}, GEMINI_CALL],
            },
            replaced(number=1),
            {
                "role": "model",
                "parts": [{"text": "t", "thought": True}, {"text": STUB, "thoughtSignature": "s"}, GEMINI_CALL],
            },
        ),
        (
            {
                "role": "model",
                "parts": [{"text": "t", "thought": True}, GEMINI_CALL, {"text": "", "thoughtSignature": "s"}],
            },
            Edit(dropped=(1,)),
            None,
        ),
        (
            {"role": "user", "parts": [GEMINI_RESULT, MEDIA, {"text": "go on"}]},
            replaced(),
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "read", "response": {"output": STUB}}},
                    {"text": "go on"},
                ],
            },
        ),
        (
            {"role": "user", "parts": [{"text": "x"}, GEMINI_RESULT, MEDIA]},
            Edit(dropped=(1,)),
            {"role": "user", "parts": [{"text": "x"}]},
        ),
        ({"role": "user", "parts": [GEMINI_RESULT, SOUND]}, Edit(dropped=(0,)), {"role": "user", "parts": [SOUND]}),
        (
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"error": "x"}}}]},
            replaced(),
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"error": STUB}}}]},
        ),
        (
            {"role": "user", "parts": [MEDIA, {"text": "x"}]},
            replaced(),
            {"role": "user", "parts": [{"text": STUB}, {"text": "x"}]},
        ),
    ],
}


EACH_CASE = [
    pytest.param(name, *row, id=f"{name}-{number}") for name, rows in CASES.items() for number, row in enumerate(rows)
]


@pytest.mark.parametrize(("name", "message", "edit", "expected"), EACH_CASE)
def test_what_an_edit_makes_of_a_message(name: str, message: Any, edit: Edit, expected: Any) -> None:
    before = copy.deepcopy(message)

    assert FORMS[name].edited(message, edit) == expected
    assert message == before


ROLES = {
    "anthropic-messages": [({"role": role}, role) for role in ("user", "assistant", "system")],
    "openai-chat": [
        *(({"role": role}, role) for role in ("user", "assistant", "system")),
        *(({"role": role}, "result") for role in ("tool", "function")),
        ({"role": "developer"}, "system"),
    ],
    "openai-responses": [
        *(({"role": role}, role) for role in ("user", "assistant", "system")),
        ({"type": "message", "role": "developer"}, "system"),
        *((item(kind), "assistant") for kind in ("function_call", "reasoning", "web_search_call")),
        *((item(kind), "result") for kind in ("function_call_output", "custom_tool_call_output")),
        (item("compaction"), "user"),
    ],
    "gemini": [({"role": "user"}, "user"), ({"role": "model"}, "assistant"), ({}, "user")],
}


@pytest.mark.parametrize(("name", "message", "role"), [(name, *row) for name, rows in ROLES.items() for row in rows])
def test_whose_a_message_is(name: str, message: Any, role: str) -> None:
    assert FORMS[name].role(message) == role


# --- what is ours

ANSWERS = [Answer("c1", "recover", "one"), Answer("c2", "recover", "no such block", error=True)]
OURS: dict[str, list[Any]] = {
    "anthropic-messages": [
        item("tool_result", tool_use_id="c1", content="one"),
        item("tool_result", tool_use_id="c2", content="no such block", is_error=True),
    ],
    "openai-chat": [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "no such block"},
    ],
    "openai-responses": [
        item("function_call_output", call_id="c1", output="one"),
        item("function_call_output", call_id="c2", output="no such block"),
    ],
    "gemini": [
        {"functionResponse": {"id": "c1", "name": "recover", "response": {"output": "one"}}},
        {"functionResponse": {"id": "c2", "name": "recover", "response": {"error": "no such block"}}},
    ],
}


def in_front(name: str, message: dict[str, Any]) -> tuple[str, Any, list[Any]]:
    """A form, a message of the client's, and what stands in its place."""
    field = "parts" if name == "gemini" else "content"
    return name, message, [{**message, field: [*OURS[name], *message[field]]}]


IN_PLACE: list[tuple[str, Any, list[Any]]] = [
    ("anthropic-messages", None, [says(*OURS["anthropic-messages"])]),
    in_front("anthropic-messages", {**says(RESULT, {**TEXT, "cache_control": MARK}), "id": "m"}),
    ("anthropic-messages", {"role": "user", "content": "one"}, [says(*OURS["anthropic-messages"], TEXT)]),
    ("anthropic-messages", says(TEXT, role="system"), [says(*OURS["anthropic-messages"]), says(TEXT, role="system")]),
    ("gemini", None, [{"role": "user", "parts": OURS["gemini"]}]),
    in_front("gemini", {"role": "user", "parts": [GEMINI_RESULT, MEDIA]}),
    ("gemini", {"parts": "go on"}, [{"parts": [*OURS["gemini"], {"text": "go on"}]}]),
    ("gemini", {"role": "model"}, [{"role": "user", "parts": OURS["gemini"]}, {"role": "model"}]),
    ("openai-chat", None, OURS["openai-chat"]),
    ("openai-chat", {"role": "tool", "content": "x"}, [*OURS["openai-chat"], {"role": "tool", "content": "x"}]),
    ("openai-responses", None, OURS["openai-responses"]),
    ("openai-responses", {"type": "compaction"}, [*OURS["openai-responses"], {"type": "compaction"}]),
]


@pytest.mark.parametrize(("name", "message", "expected"), IN_PLACE)
def test_our_results_stand_before_what_the_client_has_to_say(name: str, message: Any, expected: list[Any]) -> None:
    form = FORMS[name]

    assert form.results(message, ANSWERS) == expected
    assert form.results(message, []) == ([] if message is None else [message])
    assert [part.call for part in form.reader().messages(expected)[0].parts][:1] == ["c1"]


def test_gemini_is_sent_no_id_that_our_reader_made_up() -> None:
    form = FORMS["gemini"]
    (reply,) = form.reader().messages([{"role": "model", "parts": [GEMINI_CALL, GEMINI_CALL]}])
    (message,) = form.results(
        None, [Answer(part.call, "read", "one") for part in reply.parts] + [Answer("", "read", "x")]
    )

    assert [set(part["functionResponse"]) for part in message["parts"]] == [{"name", "response"}] * 3


@pytest.mark.parametrize("name", FORMS)
def test_a_text_of_ours_is_a_users_message(name: str) -> None:
    form = FORMS[name]
    for texts in (["one"], ["one", "two"]):
        message = form.own(texts)
        assert form.role(message) == "user"
        assert [(part.kind, part.body.decode()) for part in parts(form, message)] == [("user", text) for text in texts]


@pytest.mark.parametrize("name", FORMS)
def test_a_tool_is_read_as_it_was(name: str) -> None:
    definition = {"name": "recover", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
    dialect = DIALECTS[name]
    body = json.dumps(dialect.request).encode()

    prompt = dialect.form.prompt(
        dialect.form.spliced(body, range(len(dialect.form.prompt(body).messages)), [definition])
    )
    assert prompt.tools[-1] == definition and prompt.tools[:-1] == dialect.form.prompt(body).tools
