"""Odd sessions, as clients' own readers take them: each is refused by us, or read by them with all of its calls.

As many as the profile of hypothesis says: `--hypothesis-profile=campaign` for 1,000.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from ctxvc.errors import Refused
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import native_format
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import NativeSession
from tests.exporters.conftest import empty  # noqa: F401 - a fixture
from tests.exporters.test_native_hostile import SETTING, Odd, calls_and_results, odd_sessions, session_of
from tests.hosts import environments, npm

pytestmark = pytest.mark.timeout(3_600)

#: Each program is given folders, and prints for each a line: ids of calls and of results as it would send them.
_PI = """
import { readdirSync } from "node:fs";
import { SessionManager } from "%s";
for (const folder of process.argv.slice(2)) {
  const [name] = readdirSync(folder);
  const { messages } = SessionManager.open(`${folder}/${name}`).buildSessionContext();
  const parts = messages.filter((one) => one.role === "assistant").flatMap((one) => one.content);
  const results = messages.filter((one) => one.role === "toolResult").map((one) => one.toolCallId);
  console.log(JSON.stringify([parts.filter((part) => part.type === "toolCall").map((part) => part.id), results]));
}
"""
_QWEN = """
import { readdirSync, readFileSync } from "node:fs";
import { SessionService, buildSessionHistoryFromConversation } from "%s";
for (const folder of process.argv.slice(2)) {
  const [name] = readdirSync(folder);
  const lines = readFileSync(`${folder}/${name}`, "utf8").split("\\n").filter(Boolean);
  const { messages } = new SessionService("/work/p").reconstructHistory(lines.map((line) => JSON.parse(line)));
  const parts = buildSessionHistoryFromConversation({ messages }).apiHistory.flatMap((content) => content.parts);
  const ids = (kind) => parts.filter((part) => part[kind]).map((part) => part[kind].id);
  console.log(JSON.stringify([ids("functionCall"), ids("functionResponse")]));
}
"""
_OPENHANDS = """
import json, sys
from pathlib import Path
from openhands.sdk.event import Event, LLMConvertibleEvent
for folder in sys.argv[1:]:
    files = sorted(Path(folder).glob("*/events/*.json"))
    events = [Event.model_validate_json(file.read_bytes()) for file in files]
    messages = LLMConvertibleEvent.events_to_messages([one for one in events if isinstance(one, LLMConvertibleEvent)])
    calls = [call.id for one in messages for call in one.tool_calls or ()]
    print(json.dumps([calls, [one.tool_call_id for one in messages if one.tool_call_id]]))
"""


def _node(lock: str, source: str, module: Callable[[Path], Path]) -> Callable[[Path], Sequence[str]]:
    def command(folder: Path) -> Sequence[str]:
        program = folder / "read.mjs"
        program.write_text(source % module(npm.installed(lock)))
        return str(npm.installed("node") / "node" / "bin" / "node"), str(program)

    return command


def _pi_module(modules: Path) -> Path:
    return modules / "@earendil-works" / "pi-coding-agent" / "dist" / "index.js"


def _qwen_module(modules: Path) -> Path:
    """The part of the bundle that exports what reads a session."""
    chunks = (modules / "@qwen-code" / "qwen-code" / "chunks").glob("*.js")
    exported = ((path, path.read_text("utf-8", "replace").rpartition("\nexport {")[2]) for path in chunks)
    names = ("  SessionService,", "  buildSessionHistoryFromConversation,")
    return next(path for path, export in exported if all(name in export for name in names))


def _python(folder: Path) -> Sequence[str]:
    (folder / "read.py").write_text(_OPENHANDS)
    return str(environments.tool("openhands", (3, 12)) / "python"), str(folder / "read.py")


READERS = {
    "pi": _node("pi", _PI, _pi_module),
    "qwen": _node("qwen-code", _QWEN, _qwen_module),
    "openhands": _python,
}


@pytest.mark.parametrize("agent", READERS)
def test_the_clients_own_reader_takes_every_odd_session_with_its_calls(
    agent: str,
    empty: Conversation,  # noqa: F811
    tmp_path: Path,
) -> None:
    sessions: list[NativeSession] = []
    refused = 0

    @given(odd=odd_sessions())
    def write(odd: Odd) -> None:
        nonlocal refused
        try:
            session = native_format(agent).write(
                session_of(empty, odd), msgspec.structs.replace(SETTING, copy=len(sessions))
            )
        except Refused:
            refused += 1
        else:
            sessions.append(session)

    write()
    folders = [tmp_path / str(number) for number in range(len(sessions))]
    assert all(installed(session, folder) for session, folder in zip(sessions, folders, strict=True))
    printed = [line for batch in batches(folders) for line in read([*READERS[agent](tmp_path), *map(str, batch)])]

    assert len(printed) == len(sessions) > refused
    wrong = [
        (folder, line, calls_and_results(agent, session))
        for folder, session, line in zip(folders, sessions, printed, strict=True)
        if tuple(map(sorted, json.loads(line))) != tuple(map(sorted, calls_and_results(agent, session)))
    ]
    assert wrong == []
    print(f"{agent}: {len(sessions)} read, {refused} refused")


def read(command: Sequence[str]) -> list[str]:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.splitlines()


def batches(folders: Sequence[Path]) -> list[Sequence[Path]]:
    return [folders[start : start + 200] for start in range(0, len(folders), 200)]
