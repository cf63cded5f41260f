"""Sessions of opencode, made with its own program against a scripted Messages API, and the requests that it sent.

`python -m tests.hosts.opencode.sample FOLDER` writes them as they lie in `tests/data/opencode`.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts import coding, npm
from tests.hosts.opencode.program import Opencode
from tests.messages_api import call, serve, text
from tests.messages_api.wire import Block, Request

WINDOW, RESERVE = 14_000, 1_000
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_MODEL = {"providerID": "scripted", "modelID": coding.MODEL}


@dataclass
class Script:
    """Answers with what comes next, and titles and summaries where those are asked for."""

    next: list[list[Block]] = field(default_factory=list)
    bodies: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Sequence[Block]:
        self.bodies.append(request)
        if request.get("tools"):
            return self.next.pop(0) if self.next else [text("Done.")]
        asks_for_title = "Generate a title" in json.dumps(request["messages"])
        return [text("A short title" if asks_for_title else "What was done: a file was read, a command was run.")]


@dataclass
class Sample:
    """opencode at work, served over HTTP, with its home in `folder`."""

    folder: Path
    script: Script
    program: Opencode
    url: str
    project: Path
    other: Path

    @property
    def database(self) -> Path:
        return self.folder / "home" / "data" / "opencode" / "opencode.db"

    def ask(self, path: str, body: Any = None, directory: Path | None = None) -> Any:
        return self.program.ask(self.url, path, body, directory)

    def say(self, session: str, said: str, *parts: Block, replies: list[list[Block]]) -> list[Any]:
        """Says it in a session; the messages of the request that was sent last."""
        self.script.next = replies
        self.ask(f"/session/{session}/message", {"model": _MODEL, "parts": [{"type": "text", "text": said}, *parts]})
        return self.sent()

    def sent(self) -> list[Any]:
        return coding.conversation_of(self.script.bodies)[-1]["messages"]


@contextmanager
def at_work(folder: Path) -> Iterator[Sample]:
    """opencode with two projects and no session yet."""
    project, other = folder / "project", folder / "other"
    for place in (project, other):
        place.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", place], check=True)
    (project / "a.py").write_text("print('hello')\n")
    (project / "notes.txt").write_text("Grüße\n")
    opencode = Opencode(project, folder / "home", npm.installed("opencode"))
    script = Script()
    with serve(script) as api:
        settings = opencode.settings(api.url, {"context": WINDOW, "output": RESERVE})
        model = settings["provider"]["scripted"]["models"][coding.MODEL]
        model |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
        # Nobody is there to be asked.
        settings["permission"] = dict.fromkeys(("bash", "edit", "external_directory", "read", "task"), "allow")
        opencode.configure(settings)
        with opencode.serving() as url:
            yield Sample(folder, script, opencode, url, project, other)


def work(sample: Sample) -> dict[str, list[Any]]:
    """Sessions with all that a session may have; the newest request of each, by the session's id."""
    prompts: dict[str, list[Any]] = {}
    read_both = [call("read", filePath=str(sample.project / name)) for name in ("a.py", "gone.py")]
    agent = call("task", description="look around", prompt="Look around and tell.", subagent_type="general")
    first = sample.ask("/session", {})["id"]
    replies = [
        [text("I read both."), *read_both],
        [text("A command."), call("bash", command="echo hi; exit 3", description="says hi")],
        [text("A sub-agent."), agent],
        [text("I look."), call("read", filePath=str(sample.project / "notes.txt"))],
        [text("There are Grüße.")],
        [text("All done.")],
    ]
    prompts[first] = sample.say(first, "Read a.py and gone.py, then look around.", replies=replies)
    fork = sample.ask(f"/session/{first}/fork", {})["id"]
    prompts[fork] = sample.say(fork, "Now in the fork.", replies=[[text("Forked.")]])

    second = sample.ask("/session", {})["id"]
    sample.say(second, "Hello.", replies=[[text("Hello.")]])
    sample.ask(f"/session/{second}/shell", {"agent": "build", "model": _MODEL, "command": "ls"})
    notes = {"type": "file", "mime": "text/plain", "filename": "notes.txt", "url": f"file://{sample.project}/notes.txt"}
    image = {"type": "file", "mime": "image/png", "filename": "x.png", "url": f"data:image/png;base64,{_PNG}"}
    sample.say(second, "What did ls say, and what is this?", notes, image, replies=[[text("A picture.")]])
    wrong = [[text("Wrong."), call("bash", command="echo wrong", description="w")], [text("It was wrong.")]]
    sample.say(second, "Go the wrong way.", replies=wrong)
    users = [one["info"] for one in sample.ask(f"/session/{second}/message") if one["info"]["role"] == "user"]
    sample.ask(f"/session/{second}/revert", {"messageID": users[-1]["id"]})
    sample.say(second, "Go the right way.", replies=[[text("Right.")]])
    sample.ask(f"/session/{second}/summarize", {"providerID": "scripted", "modelID": coding.MODEL})
    prompts[second] = sample.say(second, "Go on after it.", replies=[[text("After it.")]])
    for number in range(4):
        numbers = call("bash", command=f"seq {number} 900", description="numbers")
        replies = [[text(f"Step {number}."), numbers], [text(f"Answer {number}.")]]
        prompts[second] = sample.say(second, f"Question {number}.", replies=replies)

    elsewhere = sample.ask("/session", {}, sample.other)["id"]
    prompts[elsewhere] = sample.say(elsewhere, "In another project.", replies=[[text("Yes.")]])
    return prompts


def packed(database: Path, target: Path) -> None:
    """The database in one file, without what nobody reads."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA foreign_keys = OFF")
        removals = "SELECT json_extract(data, '$.messageID') FROM event WHERE type LIKE 'message.removed.%'"
        removed = [message for (message,) in connection.execute(removals)]
        of_one = " OR ".join("instr(data, ?)" for _ in removed)
        connection.execute(f"DELETE FROM event WHERE type NOT LIKE 'message.updated.%' AND NOT ({of_one})", removed)
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM")


def main(target: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="opencode-", dir="/tmp"))
    with at_work(folder) as sample:
        prompts = work(sample)
    target.mkdir(parents=True, exist_ok=True)
    (target / "opencode.db").unlink(missing_ok=True)
    packed(sample.database, target / "opencode.db")
    (target / "sent").mkdir(exist_ok=True)
    (target / "sent" / "prompts.json").write_text(json.dumps(prompts, ensure_ascii=False, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
