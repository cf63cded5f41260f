"""A store from elsewhere may have anything beside a block: no export stumbles over it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc import exporters
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.prompt.outline import Bodies
from ctxvc.exporters.conversation import Conversation
from tests.making.generated import json_objects, json_values
from tests.policies.recorded import Run

_OF_LINES = ("hf-trace", "otel-genai", "ctxvc-trajectory")
_KINDS = ("user", "assistant", "thinking", "tool_use", "tool_result", "system", "note", "image", "document", "other")
_NAMES = ("role", "field", "item", "id", "content", "message", "part", "call", "parts", "items", "output", "parsed")
_WORDS = st.sampled_from(
    ["message", "content", "tool_calls", "function_call", "reasoning_content", "refusal", "reasoning", "tool"]
)
_notes = st.dictionaries(st.sampled_from(_NAMES), _WORDS | json_values | st.lists(json_objects), max_size=4)
_extras = st.fixed_dictionaries(
    {},
    optional={
        "openai": _notes | json_values,
        "ctxvc": st.just({"parts": True}) | json_values,
        "signature": json_values,
        "source": json_values,
        "title": json_values,
    },
)
_bodies = st.sampled_from([b"", b"text", b"{}", b"[]", b'{"type":"image","source":{}}', b'[{"type":"text","text":"a"}]',
                           b'{"type":"reasoning"}', b"\xff\x00", b'"\\ud800"', b"[1,null,[]]"])  # fmt: skip
_parts = st.builds(
    lambda kind, body, extra, ext, error: Part(
        kind=kind, role="assistant" if kind in ("assistant", "thinking", "tool_use") else "user",
        origin="client", body=body, ext=ext, extra=extra, error=error, tool="f" if kind == "tool_use" else "",
        call="c" if kind in ("tool_use", "tool_result") else "",
    ),
    st.sampled_from(_KINDS), _bodies, _extras, st.sampled_from(["txt", "json", "bin"]), st.booleans(),
)  # fmt: skip


@given(parts=st.lists(_parts, min_size=1, max_size=4), system=json_values, tools=json_values | st.lists(json_objects))
def test_any_extra_is_written_or_left_out(empty: Conversation, parts: list[Part], system: Any, tools: Any) -> None:
    run = Run()
    run.append(*(Message(role=part.role, parts=(part,)) for part in parts))
    bodies = Bodies(lambda row: run.bodies[row.id], lambda row, suffix: run.files[row.id, suffix])
    snapshot = msgspec.structs.replace(empty.snapshot, ledger=run.ledger, bodies=bodies, system=system, tools=tools)

    for name in exporters.FORMATS:
        made = exporters.exporter(name).export(Conversation(empty.store, snapshot))
        if name != "markdown":
            lines = made.data.splitlines() if name in _OF_LINES else [made.data]
            assert all(isinstance(json.loads(line), dict) for line in lines), name
