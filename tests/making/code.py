"""A project whose code a recorded session wrote, and commits of that code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ctxvc.core.ledger.wire import result_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.making.project import call, human, reply, results, time

LOGIN = 'def login(user):\n    return check_password(user, "ü")\n'
KEYS = "def with_key(key):\n    return known_keys.get(key)\n"


def in_git(folder: Path, *arguments: str, at: str = time(30)) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    env = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, "PATH": os.environ["PATH"]}
    result = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True, env=env)
    return result.stdout.strip()


def commit(folder: Path, files: dict[str, str], *, at: str = time(30), subject: str = "a change") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    in_git(folder, "add", *files)
    in_git(folder, "commit", "-q", "-m", subject, at=at)
    return in_git(folder, "rev-parse", "HEAD")


def written_by_a_session(folder: Path) -> None:
    """A project with the session `work`: a login is written in turn 1, keys in turn 2, and both tested in between."""
    folder.mkdir()
    in_git(folder, "init", "-q", ".")
    edit = {"file_path": "src/login.py", "old_string": '"ü")\n', "new_string": '"ü")\n' + KEYS}
    messages = [
        human("Add a login", 1),
        reply(2, _text("I write it."), call("Write", "c1", file_path=f"{folder}/src/login.py", content=LOGIN)),
        results(3, result_part("ok", "c1")),
        reply(4, _text("Now a test."), call("Bash", "c2", command="pytest")),
        results(5, result_part("1 passed", "c2")),
        reply(6, call("Bash", "c3", command="git commit -am 'add a login'")),
        results(7, result_part("[main 1234567] add a login", "c3")),
        reply(8, _text("The login is there.")),
        human("And with a key", 10),
        reply(11, call("Edit", "c4", **edit)),
        results(12, result_part("ok", "c4")),
        reply(13, _text("Keys work, too.")),
    ]
    said = [Said(message=message, end=end) for end, message in enumerate(messages, 1)]
    with create(folder / FOLDER) as store:
        store.now = lambda: 1772370000
        opened = Opened(format="claude-code", source="recording-1", time=time(1))
        ingest(store, [opened, *said], name="work", final=True)


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}
