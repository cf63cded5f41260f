"""What was recorded of real programs: as requests and answers they are what their importers make of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ctxvc.forms
from ctxvc import importers
from ctxvc.core.recording.events import Opened, Said
from ctxvc.forms.form import Form
from ctxvc.importers.file import Recording

DATA = Path(__file__).parent.parent / "data"
SHARED = Path(os.environ.get("CTXVC_TEST_DATA", ""), "transcripts", "openai-chat")
PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
REQUESTS = [(f"{folder}/request.json", DATA / folder / "request.json") for folder in PATHS]
REQUESTS += [(path.name, path) for path in sorted(SHARED.glob("openhands-*.json")) if "CTXVC_TEST_DATA" in os.environ]


def form_of(folder: str) -> Form:
    form = ctxvc.forms.of(PATHS[folder])
    assert form is not None
    return form


@pytest.mark.parametrize("path", [path for _, path in REQUESTS], ids=[name for name, _ in REQUESTS])
def test_a_request_is_read_as_its_importer_reads_it(path: Path) -> None:
    form = form_of(path.parent.name)
    value = json.loads(path.read_bytes())
    prompt, reader = form.prompt(path.read_bytes(), PATHS[path.parent.name]), form.reader()
    messages = reader.messages(prompt.messages, prompt.prints)
    if response := value.get("response"):
        reply = form.reply(json.dumps(response).encode(), stream=False)
        messages += reader.messages(reply.messages, reply.prints, reply)
    ((_, events),) = importers.importer(form.NAME).conversations(Recording(path))
    events = list(events)

    imported = [event.message for event in events if isinstance(event, Said)]
    assert messages and [(message.role, message.parts) for message in messages] == [
        (message.role, message.parts) for message in imported
    ]
    assert [message.usage for message in messages] == [message.usage for message in imported]
    opened = [event for event in events if isinstance(event, Opened)]
    assert (prompt.system, [*prompt.tools]) == (opened[0].system, opened[0].tools or [])


#: Folder of a log → how many of its requests go on from an answer in it; the others begin or go back.
CONTINUED = {"anthropic": 2, "openai-chat": 2, "openai-responses": 2}


@pytest.mark.parametrize("folder", PATHS)
def test_a_request_repeats_what_was_asked_and_answered(folder: str) -> None:
    form, continued = form_of(folder), 0
    asked: list[bytes] = []
    answered: list[list[bytes]] = []
    for value in values(DATA / folder / "log.jsonl"):
        body = json.dumps(value).encode()
        if "messages" in value or "input" in value:
            asked = [one for one in form.prompt(body).prints if one]
            continued += any(asked[: len(earlier)] == earlier for earlier in answered)
        else:
            answered.append([*asked, *(one for one in form.reply(body, stream=False).prints if one)])

    assert continued == CONTINUED[folder]


def values(log: Path) -> Iterator[dict[str, Any]]:
    """The requests and answers of a log, in order."""
    for line in log.read_text().splitlines():
        value = json.loads(line)
        yield from (value["request"], value["response"]) if "request" in value else (value,)
