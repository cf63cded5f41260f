"""Lines of Claude Code's transcripts, made by hand, and what stands in the events of them."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

from ctxvc.core.recording.events import Event, Forked, Said
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.making.events import written as written_lines

REAL = Path(__file__).parents[2] / "data" / "claude-code" / "20-02395c1048-0.jsonl"
SESSION = "0f0e0d0c-1111-4222-8333-444455556666"
Line = dict[str, Any]


def line(uuid: str, parent: str | None, content: Any, *, type: str = "user", role: str = "", **more: Any) -> Line:
    """A conversation line. A parent of None is a root."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "cwd": "/work/app",
        "gitBranch": "main",
        "version": "2.1.32",
        "type": type,
        "uuid": uuid,
        "timestamp": "2026-02-04T11:00:00.000Z",
        "message": {"role": role or type, "content": content},
        **more,
    }


def prompt(uuid: str, parent: str | None, words: str, **more: Any) -> Line:
    return line(uuid, parent, words, **more)


def reply(uuid: str, parent: str | None, *blocks: Any, id: str = "", model: str = "claude-x", **more: Any) -> Line:
    """One line of a model reply; `id` names the reply, by default this line alone."""
    made = line(uuid, parent, list(blocks), type="assistant", **more)
    made["message"] |= {"id": id or f"msg_{uuid}", "model": model, "usage": {"input_tokens": 3, "output_tokens": 5}}
    return made


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Bash", **arguments: Any) -> Line:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(uuid: str, parent: str | None, id: str, content: Any = "ok", **more: Any) -> Line:
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return line(uuid, parent, [block], toolUseResult={"stdout": "what only the screen showed"}, **more)


def between(type: str, uuid: str, parent: str | None, **more: Any) -> Line:
    """A line that is no message."""
    made = line(uuid, parent, "", type=type) | more
    del made["message"]
    return made


def written(path: Path, *lines: Line | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return written_lines(path, *lines)


def of(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def forks(events: list[Event]) -> list[tuple[str, str]]:
    """Each fork as (the message to go on from, the first message that does)."""
    found = []
    for event, following in pairwise(events):
        if isinstance(event, Forked):
            assert isinstance(following, Said)
            found.append((event.after, following.message.key))
    return found


def queue(operation: str, content: str | None = None) -> Line:
    more = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "sessionId": SESSION, **more}


TWO_TURNS = [
    prompt("u1", None, "first"),
    reply("a1", "u1", text("one")),
    between("system", "s1", "a1", subtype="turn_duration"),
    prompt("u2", "s1", "second"),
    reply("a2", "u2", call("t1")),
    result("r2", "a2", "t1"),
    reply("a3", "r2", text("two")),
]
NO_FORKS: dict[str, list[Line]] = {
    "parallel calls, results in any order": [
        reply("b1", "a3", call("t2"), id="m"),
        result("q1", "b1", "t2"),
        reply("b2", "b1", call("t3"), id="m"),
        between("progress", "p1", "b2"),
        result("q2", "b2", "t3"),
        reply("b3", "q1", text("done")),
    ],
    "a result before its call": [
        result("q1", "b1", "t2"),
        reply("b1", "a3", call("t2")),
        reply("b2", "q1", text("done")),
    ],
    "a late line of a reply": [
        reply("b1", "a3", text("x"), id="m"),
        prompt("u3", "b1", "more"),
        reply("b2", "b1", text("y"), id="m"),
        reply("b3", "u3", text("z")),
    ],
    "a parent that was never written": [prompt("u3", "nowhere", "go on"), reply("b1", "u3", text("x"))],
    "no word on parents at all": [
        {name: value for name, value in prompt("u3", None, "x").items() if name != "parentUuid"}
    ],
    "a broken root": [reply("b1", None, text("x")), prompt("u3", "b1", "more")],
    "a root that says what it follows": [prompt("u3", None, "x", logicalParentUuid="a3")],
    "the error before a retry that worked": [
        prompt("u3", "a3", "go"),
        between("system", "e1", "u3", subtype="api_error"),
        reply("b1", "u3", text("x")),
        prompt("u4", "e1", "more"),
    ],
    "a hook that answers late": [
        reply("b1", "a3", call("t2")),
        between("attachment", "x1", "a1", attachment={"type": "hook"}, rendered=[{"content": "late"}]),
        result("q1", "b1", "t2"),
        reply("b2", "q1", text("x")),
    ],
    "a hook's line at a new root": [
        between("progress", "p1", None, data={"type": "hook_progress"}),
        prompt("u3", "p1", "after a resume"),
    ],
    "the client's own lines in a turn": [
        reply("b1", "a3", call("t2"), id="m"),
        reply("b2", "b1", call("t3"), id="m"),
        result("q1", "b1", "t2"),
        prompt("u3", "q1", "what the skill says", isMeta=True),
        result("q2", "b2", "t3"),
        reply("b3", "q2", text("x")),
    ],
    "a result that comes steps later": [
        reply("b1", "a3", call("t2")),
        prompt("u3", "b1", "meanwhile"),
        reply("b2", "u3", text("x")),
        result("q1", "b1", "t2"),
    ],
    "a result with a person's words": [
        reply("b1", "a3", call("t2"), id="m"),
        reply("b2", "b1", call("t3"), id="m"),
        result("q2", "b2", "t3"),
        line("q1", "b1", [{"type": "tool_result", "tool_use_id": "t2", "content": ""}, text("no, the other one")]),
        reply("b3", "q2", text("x")),
    ],
    "what the queue alone tells": [
        reply("b1", "a3", call("t2")),
        result("q1", "b1", "t2"),
        queue("enqueue", "and the tests"),
        queue("remove"),
        reply("b2", "q1", text("x")),
    ],
    "another attempt of a sub-agent": [
        prompt("c1", None, "look", isSidechain=True),
        reply("c2", "c1", text("x"), isSidechain=True),
        reply("c3", "c1", text("y"), isSidechain=True),
    ],
    "a sub-agent's lines": [
        reply("b1", "a3", call("t2", "Task", prompt="look")),
        prompt("c1", None, "look", isSidechain=True),
        reply("c2", "c1", text("found"), isSidechain=True),
        result("q1", "b1", "t2"),
        reply("b2", "q1", text("x")),
    ],
    "a line that hangs from a sub-agent's": [
        prompt("c1", None, "look", isSidechain=True),
        reply("b1", "c1", text("x")),
    ],
}


def compacted(metadata: Line | None = None) -> list[Line]:
    """What the host writes at a compaction: a boundary and the summary."""
    boundary = between("system", "c1", None, subtype="compact_boundary", logicalParentUuid="never written")
    if metadata is not None:
        boundary["compactMetadata"] = metadata
    return [boundary, prompt("c2", "c1", "This session is being continued …", isCompactSummary=True)]


def side(uuid: str, parent: str | None, *, agent: str | None = None, words: str = "", answer: str = "") -> Line:
    more: Line = {"isSidechain": True, **({"agentId": agent} if agent else {})}
    return reply(uuid, parent, text(answer), **more) if answer else prompt(uuid, parent, words, **more)


WHOLE_LINES = [
    reply("a1", None, call("t1", "Task", prompt="look"), text("x")),
    result(
        "r1",
        "a1",
        "t1",
        [text("x"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}],
    ),
    between(
        "attachment", "x1", "r1", attachment={"type": "queued_command", "prompt": "x"}, rendered=[{"content": "x"}]
    ),
    between("attachment", "x2", "r1", attachment={"type": "prompt_snapshot", "systemPrompt": ["x"]}),
    *compacted({"preservedMessages": {"uuids": ["a1"]}, "preservedSegment": {"headUuid": "a1", "tailUuid": "r1"}}),
    side("c3", None, agent="b22", words="look"),
    between("progress", "p1", "a1", data={"agentId": "b22"}, parentToolUseID="t1"),
    between("system", "s2", "a1", subtype="local_command", content="x"),
    {"type": "ai-title", "aiTitle": "x"},
    queue("enqueue", "x"),
    queue("remove"),
]


def unpacked(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)


def assert_every_beginning_is_told_alike(path: Path, tmp_path: Path) -> None:
    beginning, lines = tmp_path / f"{Recording(path).stem}.jsonl", unpacked(path)
    whole = list(claude_code.events(Recording(path)))
    for count in range(1, len(lines), max(1, len(lines) // 60)):
        beginning.write_bytes(b"".join(lines[:count]))
        part = list(claude_code.events(Recording(beginning)))
        assert part == whole[: len(part)]
