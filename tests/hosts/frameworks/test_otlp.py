"""Exported spans, read by OpenTelemetry's own messages of the protocol."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.exporters import otel_genai
from ctxvc.store.store import Store
from tests.exporters.trips import imported

collector = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
DATA = Path(__file__).parents[2] / "data" / "recorded" / "claude-code.jsonl"
_IDS = ("traceId", "spanId", "parentSpanId")


def test_every_line_is_a_request_of_the_protocol(store: Store) -> None:
    from google.protobuf.json_format import ParseDict

    lines = otel_genai.export(imported(store, DATA)).data.splitlines()
    spans = []
    for line in lines:
        request = ParseDict(_with_bytes(json.loads(line)), collector.ExportTraceServiceRequest())
        spans += [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    assert {len(span.trace_id) for span in spans} == {16}
    assert {len(span.span_id) for span in spans} == {8}
    assert {span.parent_span_id for span in spans[1:]} <= {span.span_id for span in spans}
    names = {attribute.key for span in spans for attribute in span.attributes}
    assert {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.id"} <= names


def _with_bytes(value: Any) -> Any:
    """Ids as protobuf's JSON has them: OTLP writes them in hexadecimal instead of base64."""
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode() if name in _IDS else _with_bytes(item)
        for name, item in value.items()
    }
