"""Spans of two agents, as pydantic-ai's own instrumentation writes them, in OTLP's JSON, a batch a line.

Needs `pydantic-ai-slim==2.*`, `opentelemetry-sdk` and `opentelemetry-exporter-otlp-proto-common` in an environment of
its own. `python tests/hosts/traces/otel_genai.py FILE` writes them as they lie in `tests/data/otel-genai`, with the
attributes of the conventions only.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic_ai import Agent, BinaryContent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.usage import RequestUsage


class Lines(SpanExporter):
    """Writes each batch as a line, ids in hexadecimal, as OTLP's JSON has them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        batch: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        for resource in batch["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                        span[name] = base64.b64decode(span[name]).hex()
                    span["attributes"] = [one for one in span["attributes"] if one["key"].startswith("gen_ai.")]
        self._file.write(json.dumps(batch, ensure_ascii=False) + "\n")
        self._file.flush()
        return SpanExportResult.SUCCESS


REPLIES = (
    [
        ThinkingPart("Hm, look."),
        TextPart("I look."),
        ToolCallPart("read", {"path": "a.py"}, "call_1"),
        ToolCallPart("read", {"path": "gone.py"}, "call_2"),
    ],
    [ToolCallPart("ask", {"question": "How many?"}, "call_3")],
    [TextPart("All done.")],
    [TextPart("Bye.")],
)


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if not info.function_tools:
        return ModelResponse(parts=[TextPart("Three.")])
    asked = sum(isinstance(message, ModelResponse) for message in messages)
    usage = RequestUsage(input_tokens=101 + asked, output_tokens=10, cache_read_tokens=5)
    return ModelResponse(parts=REPLIES[asked], usage=usage)


model = FunctionModel(answer, model_name="scripted")
counter = Agent(model, instructions="You count.", name="counter")
reader = Agent(model, system_prompt="You read files.", instructions="Be short.", name="reader")


@reader.tool_plain
def read(path: str) -> str:
    """Reads a file."""
    if path == "gone.py":
        raise ModelRetry("no such file")
    return "print('Grüße')\n"


@reader.tool_plain
async def ask(question: str) -> str:
    """Asks another agent."""
    return (await counter.run(question)).output


async def main(path: Path) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines(path)))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, include_content=True, version=5))
    first = await reader.run("Read a.py and gone.py.", conversation_id="conv-1")
    image = BinaryContent(base64.b64decode("iVBORw0KGgo="), media_type="image/png")
    await reader.run(["And this?", image], message_history=first.all_messages(), conversation_id="conv-1")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
