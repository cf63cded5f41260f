"""Runs of LangSmith: batches as its SDK sends them, a line each, or runs as its API and exports return them.

A batch has new runs (`post`) and updates of earlier ones (`patch`). A run of a model has the
whole prompt, in the form of the traced library. Source: langsmith 0.15, its `schemas.RunBase` and `client.list_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxvc.forms.values import objects, text_of
from ctxvc.importers import traced_messages, traces
from ctxvc.importers.documents import mapping, text_at
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer
from ctxvc.importers.request_log import opening
from ctxvc.importers.traced_messages import Call, Tracer, entries, runs
from ctxvc.importers.traces import Run

FORMAT = "langsmith"

#: The metadata fields in which LangSmith looks for a run's thread, in its order.
_THREADS = ("session_id", "thread_id", "conversation_id")
_BATCH = ("post", "patch")


def sniff(head: bytes) -> bool:
    """Whether `head` begins with a run, alone, in a list or in a batch."""
    values = opening(head) if b'"trace_id"' in head or b'"dotted_order"' in head else []
    runs = _runs(values[0]) if values else []
    return bool(runs) and _is_run(runs[0])


def conversations(recording: Recording) -> Conversations:
    """A conversation per thread id, else per trace. Raises: BadInput if there is none."""
    return traces.conversations(recording, _FORM, entries(runs(recording, _TRACER), _TRACER))


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=conversations)


def _runs(value: Any) -> list[dict[str, Any]]:
    """The runs in a value of the file that are objects."""
    match value:
        case {"runs": list(runs)} | list(runs):
            return objects(runs)
        case {"run_type": _}:
            return [value]
        case dict():
            return [run for name in _BATCH for run in objects(value.get(name))]
    return []


def _is_of_runs(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and not {"runs", "run_type", *_BATCH}.isdisjoint(value))


def _is_run(run: Mapping[str, Any]) -> bool:
    return isinstance(run.get("id"), str) and ("dotted_order" in run or ("run_type" in run and "trace_id" in run))


def _start(run: Mapping[str, Any]) -> str:
    """The start of a run: the last part of its `dotted_order`."""
    return text_of(run.get("dotted_order")).rpartition(".")[2] or text_of(run.get("start_time"))


def _run(run: Mapping[str, Any]) -> Run:
    kind = run.get("run_type")
    return Run(
        id=run["id"],
        parent=text_of(run.get("parent_run_id")),
        kind="model" if kind == "llm" else "tool" if kind == "tool" else "",
    )


def _thread(run: Mapping[str, Any]) -> str:
    metadata = mapping(run, "extra", "metadata")
    threads = (text_of(metadata.get(name)) for name in _THREADS)
    return next(filter(None, threads), "") or text_of(run.get("thread_id"))


def _call(run: Mapping[str, Any]) -> Call:
    inputs, outputs = mapping(run, "inputs"), mapping(run, "outputs")
    system, messages = traced_messages.prompt(inputs)
    reply, more = traced_messages.reply(outputs) if outputs else (None, 0)
    requested = text_at(run, "extra", "metadata", "ls_model_name") or text_at(
        run, "extra", "invocation_params", "model"
    )
    response_model = text_of(outputs.get("model")) or text_at(reply, "response_metadata", "model_name")
    return Call(
        messages=messages,
        reply=reply,
        system=system,
        tools=traced_messages.definitions(inputs, mapping(run, "extra", "invocation_params")),
        model=response_model or text_of(inputs.get("model")) or requested,
        usage=traced_messages.usage(
            outputs.get("usage_metadata"),
            mapping(run, "extra", "metadata").get("usage_metadata"),
            mapping(reply).get("usage_metadata"),
            outputs.get("usage"),
        ),
        time=text_of(run.get("end_time")),
        left_out=f"{more} more choices in the response" if more else "",
    )


_FORM = traced_messages.form(
    FORMAT, "the inputs and outputs of runs of models may be hidden, or left out of the export"
)
_TRACER = Tracer(
    holds=_is_of_runs,
    split=_runs,
    single="run_type",
    start=_start,
    sent="inputs",
    received="outputs",
    run=_run,
    call=_call,
    trace=lambda run: text_of(run.get("trace_id")),
    conversation=_thread,
    none="the line is neither a batch of runs nor a run",
    nameless="skipped: a run without an id",
    unread="skipped: a run whose messages are in a form that is not read",
)
