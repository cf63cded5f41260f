"""Formats whose files are one document or a folder: read beside a small reader of their own, cut anywhere, damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Opened, Warned
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from ctxvc.recording.files import Follower, import_paths
from ctxvc.store.store import create
from tests.importers.growing import imported_at
from tests.making.events import parts, read

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere")) / "transcripts"

#: What a part says: its kind, its call, and its text or arguments.
Said = tuple[str, str, Any]


# --- small readers, which share nothing with the importers


def of_chat(message: dict[str, Any]) -> Iterator[Said]:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [item["text"] for item in content or []]
    if message["role"] == "tool":
        call = message.get("tool_call_id") or message["tool_call_ids"][0]
        yield "tool_result", call, "".join(texts)
        return
    yield from (({"system": "system"}.get(message["role"], message["role"]), "", text) for text in texts if text)
    for call in message.get("tool_calls") or []:
        yield "tool_use", call["id"], json.loads(call["function"]["arguments"])


def swe_agent(path: Path) -> list[Said]:
    return [part for message in json.loads(path.read_text())["history"] for part in of_chat(message)]


def mini_swe_agent(path: Path) -> list[Said]:
    document = json.loads(path.read_text())
    spoken: list[Said] = []
    for message in document if isinstance(document, list) else document["messages"]:
        if message.get("object") == "response":
            for item in message["output"]:
                if item["type"] == "function_call":
                    spoken.append(("tool_use", item["call_id"], json.loads(item["arguments"])))
                else:
                    spoken += [("assistant", "", part["text"]) for part in item["content"]]
        elif message.get("type") == "function_call_output":
            spoken.append(("tool_result", message["call_id"], message["output"]))
        elif message["role"] != "exit":
            spoken += of_chat(message)
    return spoken


def openhands(path: Path) -> list[Said]:
    spoken: list[Said] = []
    for file in sorted((path.parent / "events").glob("*.json")):
        event = json.loads(file.read_text())
        if event["kind"] == "SystemPromptEvent":
            spoken.append(("system", "", event["system_prompt"]["text"]))
        elif event["kind"] == "MessageEvent":
            message = event["llm_message"]
            spoken += [(message["role"], "", item["text"]) for item in message["content"]]
        elif event["kind"] == "ActionEvent":
            call = event["tool_call"]
            spoken.append(("tool_use", call["id"], json.loads(call["arguments"])))
        elif event["kind"] == "ObservationEvent":
            observation = event["observation"]
            text = "".join(item["text"] for item in observation["content"])
            if about := observation.get("metadata"):
                text = f"{about['prefix']}{text}{about['suffix']}"
                text += f"\n[Current working directory: {about['working_dir']}]"
                text += f"\n[Python interpreter: {about['py_interpreter_path']}]"
                text += f"\n[Command finished with exit code {about['exit_code']}]"
            spoken.append(("tool_result", event["tool_call_id"], text))
    return spoken


def of_langchain(message: dict[str, Any]) -> Iterator[Said]:
    message = message.get("kwargs") or message.get("data") or message
    kind = {"human": "user", "ai": "assistant", "system": "system"}.get(message["type"], "tool_result")
    content = message["content"]
    items = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if kind == "tool_result":
        yield kind, message["tool_call_id"], "".join(item["text"] for item in items)
        return
    extra = message.get("additional_kwargs", {})
    if extra.get("reasoning_content"):
        yield "thinking", "", extra["reasoning_content"]
    for item in items:
        if item["type"] == "text" and item["text"]:
            yield kind, "", item["text"]
        elif item["type"] == "reasoning":
            yield "thinking", "", item["reasoning"]
    for call in message.get("tool_calls", []):
        yield "tool_use", call["id"], call["args"]


def langchain(path: Path) -> list[Said]:
    text = path.read_text()
    values = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [part for message in values for part in of_langchain(message)]


def langgraph(path: Path) -> list[Said]:
    return [part for message in json.loads(path.read_text())["values"]["messages"] for part in of_langchain(message)]


READERS = {
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "openhands": openhands,
    "langchain": langchain,
    "langgraph": langgraph,
}


def own_and_shared() -> Iterator[tuple[str, Path]]:
    for folder in (DATA, SHARED):
        yield from (("swe-agent", path) for path in sorted(folder.glob("swe-agent/*.traj")))
        yield from (("mini-swe-agent", path) for path in sorted(folder.glob("mini-swe-agent/*.json")))
        yield from (("openhands", path) for path in sorted(folder.glob("openhands/*/base_state.json")))
        yield from (("langgraph", path) for path in sorted(folder.glob("lang*/*.thread.json")))
        yield from (
            ("langchain", path) for path in sorted(folder.glob("langchain/*.json*")) if "thread" not in path.name
        )


FILES = list(own_and_shared())
of_every_file = pytest.mark.parametrize(
    ("format", "path"), FILES, ids=[f"{f}-{p.parent.name}-{p.name}" for f, p in FILES]
)
UNKNOWN = sorted(path for path in SHARED.glob("other/*/*") if path.parent.name != "copilot-cli")


def reading(format: str, path: Path) -> tuple[list[Said], list[str]]:
    """What our importer makes of a file, in the words of the small readers, and its warnings."""
    events = read(path, format)
    spoken: list[Said] = []
    for event in events:
        if isinstance(event, Opened) and event.system and not spoken:
            texts = [event.system] if isinstance(event.system, str) else [block["text"] for block in event.system]
            spoken += [("system", "", text) for text in texts]
    for part in parts(events):
        if part.kind in ("image", "other"):
            continue
        text: Any = part.body.decode()
        if part.kind == "tool_use":
            try:
                text = json.loads(text)
            except ValueError:
                continue  # arguments that were cut: the small reader has no list of those
        spoken.append((part.kind, part.call.partition("~")[0], text))
    return spoken, [event.text for event in events if isinstance(event, Warned)]


@of_every_file
def test_every_message_is_as_a_small_reader_has_it(format: str, path: Path) -> None:
    spoken, warnings = reading(format, path)

    assert spoken == READERS[format](path)
    assert all("it is empty" in warning for warning in warnings)


CONVERTED = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere")) / "trajectories"


@pytest.mark.skipif(not CONVERTED.is_dir(), reason="CTXVC_TEST_DATA names no folder with trajectories/")
@pytest.mark.parametrize(
    ("name", "converted", "by_text"),
    [
        ("swe-agent/marshmallow-1867.function_calling_replace.traj", "function_calling_replace", False),
        ("swe-agent/marshmallow-1867.xml_cursors.traj", "xml_sys-env_cursors_window100", True),
        ("swe-agent/pydicom-1458.gpt4.traj", "pydicom__pydicom-1458", True),
        ("langchain/7cfa5f8f.thread.json", "deer-flow-7cfa5f8f", False),
        ("langchain/90040b36.thread.json", "deer-flow-90040b36", False),
    ],
)
def test_a_conversation_converted_by_others_says_the_same(name: str, converted: str, by_text: bool) -> None:
    """Where actions are text, others made calls of them: then the results are what a tool printed, but for the last."""
    form = "swe-agent" if name.startswith("swe") else "langgraph"
    (theirs,) = CONVERTED.glob(f"*{converted}.jsonl.gz")
    ours, _ = reading(form, SHARED / name)
    others, _ = reading("ctxvc-trajectory", theirs)

    if by_text:
        results = [text for kind, _, text in others if kind == "tool_result"]
        stream = read(SHARED / name, form)
        assert [*(part.body.decode() for part in parts(stream) if part.origin == "tool"), ""] == results
    else:
        assert [(kind, text) for kind, _, text in ours] == [(kind, text) for kind, _, text in others]


# --- a file that grows


def messages_of(format: str, document: Any) -> list[Any]:
    """The list of messages in a document, which a test may cut."""
    if format == "swe-agent":
        return document["history"]  # type: ignore[no-any-return]
    if format == "langgraph":
        return document["values"]["messages"]  # type: ignore[no-any-return]
    return document if isinstance(document, list) else document["messages"]


def write_cut(format: str, path: Path, count: int, target: Path) -> Path:
    """The recording as it was when it had so many messages or events."""
    if format == "openhands":
        target = target / path.parent.name / path.name
        (target.parent / "events").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        for file in sorted((path.parent / "events").glob("*.json"))[:count]:
            shutil.copyfile(file, target.parent / "events" / file.name)
        return target
    target = target / path.name
    if path.suffix == ".jsonl":
        target.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))
        return target
    document = json.loads(path.read_text())
    whole = messages_of(format, document)
    if count < len(whole) and isinstance(document.get("info") if isinstance(document, dict) else None, dict):
        document["info"].pop("exit_status", None)
    del whole[count:]
    target.write_text(json.dumps(document, indent=2))
    return target


def length(format: str, path: Path) -> int:
    if format == "openhands":
        return len(list((path.parent / "events").iterdir()))
    if path.suffix == ".jsonl":
        return len(path.read_text().splitlines())
    return len(messages_of(format, json.loads(path.read_text())))


@pytest.mark.parametrize(("format", "path"), dict(reversed(FILES)).items(), ids=READERS)
def test_a_file_imported_at_random_moments_gives_the_history_of_one_import(
    format: str, path: Path, tmp_path: Path
) -> None:
    count = length(format, path)
    cuts = sorted(random.Random(path.name).sample(range(3, count), min(1, count - 3)))

    grown, whole = (
        imported_at(tmp_path / kind, (write_cut(format, path, end, tmp_path / kind) for end in ends))
        for kind, ends in (("grown", [*cuts, count]), ("whole", [count]))
    )

    assert grown == whole


@pytest.mark.parametrize("format", READERS)
def test_a_follower_records_each_message_once_it_is_there(format: str, tmp_path: Path) -> None:
    path = next(path for name, path in FILES if name == format)
    count = length(format, path)
    units = 0
    with create(tmp_path / ".ctxvc") as store:
        follower = Follower(store, write_cut(format, path, count - 2, tmp_path), format)
        for end in (count - 2, count - 1, count):
            write_cut(format, path, end, tmp_path)
            outcomes = follower.take(final=end == count)
            assert not [outcome.error for outcome in outcomes if outcome.error]
            units += sum(outcome.units for outcome in outcomes)
        (expected,) = import_paths(store, [path], final=True, as_new=True, name="whole")

    assert units == expected.units


# --- damage


@pytest.mark.parametrize("format", ["swe-agent", "mini-swe-agent", "langchain", "langgraph"])
def test_of_a_document_that_is_cut_the_whole_messages_are_imported(format: str, tmp_path: Path) -> None:
    path = next(path for name, path in FILES if name == format and path.suffix in (".json", ".traj"))
    spoken, _ = reading(format, path)
    data = path.read_bytes()
    (tmp_path / path.name).write_bytes(data[: len(data) * 6 // 10])

    try:
        begun, warnings = reading(format, tmp_path / path.name)
    except BadInput as error:  # of SWE-agent's the conversation comes last
        assert format == "swe-agent", error
        return

    assert begun == spoken[: len(begun)]
    assert any("cut or damaged at character" in warning for warning in warnings)
    assert 0 < len(begun) < len(spoken)


@pytest.mark.parametrize("format", ["swe-agent", "mini-swe-agent", "langchain", "langgraph"])
@pytest.mark.parametrize("wrong", [None, 7, "x", [], {}, {"role": 1}, {"type": []}])
def test_a_bad_message_costs_that_message(format: str, wrong: Any, tmp_path: Path) -> None:
    path = next(path for name, path in FILES if name == format and path.suffix in (".json", ".traj"))
    document = json.loads(path.read_text())
    messages_of(format, document).insert(3, wrong)
    (tmp_path / path.name).write_text(json.dumps(document))

    spoken, warnings = reading(format, tmp_path / path.name)

    assert spoken == reading(format, path)[0]
    assert len(warnings) == len(reading(format, path)[1]) + 1


# --- what is none of ours


@pytest.mark.skipif(not UNKNOWN, reason="CTXVC_TEST_DATA names no folder with transcripts/")
@pytest.mark.parametrize("path", UNKNOWN, ids=lambda path: path.name)
def test_a_file_of_another_program_is_of_no_known_format(path: Path) -> None:
    with pytest.raises(BadInput, match="not a transcript in a known format") as failure:
        importers.detect(Recording(path))

    assert all(name in str(failure.value.hint) for name in importers.FORMATS)
