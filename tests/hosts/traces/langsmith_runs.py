"""Runs as LangSmith's own SDK sends them, a batch a line, and LangChain's tracer's.

Needs `langsmith==0.15.*`, `langchain-openai` and `openai` in an environment of its own. `python -m
tests.hosts.traces.langsmith_runs FOLDER` writes them as they lie in `tests/data/langsmith`, without what tells of the
machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langsmith import Client, traceable
from langsmith.run_helpers import tracing_context
from langsmith.wrappers import wrap_openai
from openai import OpenAI

from tests.hosts.traces import scripted

#: Without multipart bodies, a batch is JSON.
INGEST = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "size_limit_bytes": 20_971_520,
    "scale_up_nthreads_limit": 1,
    "scale_up_qsize_trigger": 1000,
    "scale_down_nempty_trigger": 4,
}
THREAD = {"session_id": "thread-1"}


class Batches:
    """The bodies of `/runs/batch`, a line each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Any:  # noqa: ARG002 - the server's
        if path.endswith("/info"):
            return {"version": "0.12.0", "batch_ingest_config": INGEST}
        if path.endswith("/runs/batch"):
            batch = json.loads(body)
            for run in [*batch.get("post", ()), *batch.get("patch", ())]:
                run.pop("serialized", None)
                run.pop("session_id", None)
                extra = run.get("extra") or {}
                extra.pop("runtime", None)
                metadata = extra.get("metadata") or {}
                extra["metadata"] = {
                    name: value
                    for name, value in metadata.items()
                    if not name.startswith("LANGSMITH_") and name != "revision_id"
                }
            self._file.write(json.dumps(batch, ensure_ascii=False) + "\n")
            self._file.flush()
        return {}


def wrapped(path: Path) -> None:
    """OpenAI's client behind LangSmith's wrapper."""
    with scripted.server(Batches(path)) as address:
        client = Client(api_url=address, api_key="none")
        openai = wrap_openai(OpenAI(base_url=f"{address}/v1", api_key="none"), tracing_extra={"client": client})
        chat = openai.chat.completions.create

        @traceable(run_type="tool", client=client)
        def ask(question: str) -> str:
            return scripted.counter(chat, question)

        @traceable(run_type="chain", client=client)
        def agent(history: list[Any], question: str) -> list[Any]:
            read = traceable(run_type="tool", client=client, name="read")(scripted.read)
            return scripted.reader(chat, history, question, {"read": read, "ask": ask})

        with tracing_context(enabled=True, client=client):
            first = agent([], "Read a.py and gone.py.", langsmith_extra={"metadata": THREAD})
            client.flush()
            agent(first, "And this?", langsmith_extra={"metadata": THREAD})
            client.flush()


def traced_by_langchain(path: Path) -> None:
    """LangChain's tracer of a chat model: two chains in one thread."""
    with scripted.server(Batches(path)) as address:
        client = Client(api_url=address, api_key="none")
        model = ChatOpenAI(model="scripted", base_url=f"{address}/v1", api_key="none").bind_tools(scripted.TOOLS)

        @traceable(run_type="chain", client=client)
        def agent(history: list[BaseMessage], question: str) -> list[BaseMessage]:
            messages = [*(history or [SystemMessage("You read files.")]), HumanMessage(question)]
            while True:
                reply = model.invoke(messages)
                assert isinstance(reply, AIMessage)
                messages.append(reply)
                if not reply.tool_calls:
                    return messages
                for call in reply.tool_calls:
                    text = scripted.read(call["args"].get("path", ""))
                    messages.append(ToolMessage(text, tool_call_id=call["id"], id=str(uuid4())))

        with tracing_context(enabled=True, client=client):
            thread = {"metadata": {"thread_id": "thread-2"}}
            first = agent([], "Read a.py and gone.py.", langsmith_extra=thread)
            client.flush()
            agent(first, "And this?", langsmith_extra=thread)
            client.flush()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    os.environ["LANGSMITH_TRACING"] = "true"
    wrapped(folder / "batches.jsonl")
    traced_by_langchain(folder / "langchain.jsonl")
