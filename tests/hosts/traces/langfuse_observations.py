"""Observations as Langfuse's own SDK sends them, a batch a line: OTLP, turned to its JSON; by version 2 its own form.

Needs `langfuse==5.*` (or, for `ingestion.jsonl`, `langfuse==2.*`) and `openai` in an environment of its own. `python -m
tests.hosts.traces.langfuse_observations FOLDER` writes them as they lie in `tests/data/langfuse`, without what tells of
the machine.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.hosts.traces import scripted


class Batches:
    """The bodies of what is sent, a line each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        data = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        if path.endswith("/otel/v1/traces"):
            self._write(_spans(data))
        elif path.endswith("/ingestion"):
            batch = json.loads(data)
            batch["batch"] = [event for event in batch["batch"] if event["type"] != "sdk-log"]
            self._write(batch)
            return {"successes": [{"id": event["id"], "status": 201} for event in batch["batch"]], "errors": []}
        return {"status": "OK", "version": "3.0.0", "data": [{"id": "project", "name": "project"}]}

    def _write(self, batch: Any) -> None:
        self._file.write(json.dumps(batch, ensure_ascii=False) + "\n")
        self._file.flush()


def _spans(data: bytes) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(data)
    batch: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    for resource in batch["resourceSpans"]:
        resource.pop("resource", None)
        for scope in resource["scopeSpans"]:
            scope["scope"] = {"name": scope["scope"]["name"], "version": scope["scope"].get("version", "")}
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[name] = base64.b64decode(span[name]).hex()
    return batch


def by_spans(path: Path) -> None:
    """SDK 3 and newer."""
    with scripted.server(Batches(path)) as address:
        os.environ["LANGFUSE_BASE_URL"] = os.environ["LANGFUSE_HOST"] = address
        from langfuse import get_client, observe, propagate_attributes
        from langfuse.openai import OpenAI

        langfuse = get_client()
        chat = OpenAI(base_url=f"{address}/v1", api_key="none").chat.completions.create

        @observe(as_type="tool")
        def ask(question: str) -> str:
            return scripted.counter(chat, question)

        @observe(as_type="agent")
        def agent(history: list[Any], question: str) -> list[Any]:
            with propagate_attributes(session_id="session-1"):
                read = observe(as_type="tool", name="read")(scripted.read)
                return scripted.reader(chat, history, question, {"read": read, "ask": ask})

        first = agent([], "Read a.py and gone.py.")
        langfuse.flush()
        agent(first, "And this?")
        langfuse.flush()


def by_ingestion(path: Path) -> None:
    """SDK 2."""
    with scripted.server(Batches(path)) as address:
        os.environ["LANGFUSE_HOST"] = address
        from langfuse.decorators import langfuse_context, observe
        from langfuse.openai import OpenAI

        chat = OpenAI(base_url=f"{address}/v1", api_key="none").chat.completions.create

        @observe()
        def ask(question: str) -> str:
            return scripted.counter(chat, question)

        @observe()
        def agent(history: list[Any], question: str) -> list[Any]:
            langfuse_context.update_current_trace(session_id="session-1")
            read = observe(name="read")(scripted.read)
            return scripted.reader(chat, history, question, {"read": read, "ask": ask})

        first = agent([], "Read a.py and gone.py.")
        langfuse_context.flush()
        agent(first, "And this?")
        langfuse_context.flush()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    os.environ.update(LANGFUSE_PUBLIC_KEY="pk-lf-none", LANGFUSE_SECRET_KEY="sk-lf-none")
    if version("langfuse").startswith("2."):
        by_ingestion(folder / "ingestion.jsonl")
    else:
        by_spans(folder / "spans.jsonl")
