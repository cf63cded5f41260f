"""The same over servers: git's own behind a web server with a password, whose connections break; `git daemon`."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.errors import Conflict, CtxvcError, NotFound, Refused, Unreachable
from ctxvc.sharing import audience
from ctxvc.store.git import transport
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.sharing.clones import Clone
from tests.sharing.web import Web, remember_password, served


@pytest.fixture
def web(server: Path) -> Iterator[Web]:
    with served(server.parent) as web:
        remember_password(Path(os.environ["HOME"]), web)
        yield web


def clone(place: Path, address: str, name: str = "anna") -> Clone:
    return Clone(place / name / ".ctxvc", name, address)


def pair(place: Path, address: str) -> tuple[Clone, Clone]:
    return clone(place, address), clone(place, address, "bob")


def rounds(clones: tuple[Clone, Clone], web: Web, count: int, seed: int) -> set[str]:
    """Writing, pushing and pulling in random order, every other connection cut; what was said."""
    chance = random.Random(seed)
    spoken: set[str] = set()
    for number in range(count):
        clone = chance.choice(clones)
        match chance.choice(("say", "branch", "push", "pull", "push", "pull")):
            case "say":
                text = f"{clone.name} {number}"
                tips = clone.tips()
                clone.say(text, scope=chance.choice(sorted(tips)) if tips else "main")
                spoken.add(text)
            case "branch" if clone.tips():
                clone.branch(f"{clone.name}-{number}", f"branch {number}")
            case "push" | "pull" as verb:
                web.cut_after = chance.choice((None, chance.randrange(4_000), chance.randrange(40_000)))
                try:
                    getattr(clone, verb)()
                except (Unreachable, Conflict):
                    pass
                finally:
                    web.cut_after = None
    return spoken


def settled(clones: tuple[Clone, Clone]) -> bool:
    """Whether both have the same tips after each has pushed and pulled; all of it sound."""
    for _ in range(2):
        for clone in clones:
            clone.pull()
            clone.push()
    for clone in clones:
        clone.pull()
        with Store(clone.path) as store:
            assert not verify(store).damaged
    return clones[0].all_tips() == clones[1].all_tips()


@pytest.mark.parametrize(
    ("count", "seed"),
    [(3, 7), pytest.param(100, 1, marks=pytest.mark.slow), pytest.param(100, 2, marks=pytest.mark.slow)],
)
def test_connections_that_break_lose_nothing(tmp_path: Path, web: Web, count: int, seed: int) -> None:
    clones = pair(tmp_path, f"{web.address}/sessions.git")
    clones[0].say("first")
    clones[0].push()
    clones[1].pull()

    spoken = rounds(clones, web, count, seed)

    assert settled(clones) and (count < 100 or len(spoken) > 10)
    assert all(spoken <= clone.texts() for clone in clones)


def test_a_password_a_server_or_a_repository_that_is_not_there_is_named(tmp_path: Path, server: Path) -> None:
    with served(server.parent) as web:
        anna = clone(tmp_path, f"{web.address}/sessions.git")
        anna.say("one")
        with pytest.raises(Refused, match="credentials"):
            anna.push()
        assert not audience.is_public(f"{web.address}/sessions.git")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/x.git"
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            clone(tmp_path, address, "bob").pull()
    with pytest.raises(NotFound, match=r"nowhere\.git"):
        clone(tmp_path, str(tmp_path / "nowhere.git"), "carol").pull()


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("fatal: Authentication failed for 'https://x/'", Refused),
        ("ssh: Could not resolve hostname x: Name or service not known", Unreachable),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", Unreachable),
        ("kex_exchange_identification: Connection closed by remote host", Unreachable),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", Refused),
        ("git@x: Permission denied (publickey).", Refused),
        ("remote: Repository not found.\nfatal: repository 'https://x/' not found", NotFound),
        ("error: RPC failed; curl 18 transfer closed with outstanding read data remaining", Unreachable),
        ("!\trefs/x\t[remote rejected] (pre-receive hook declined)", Refused),
        ("!\trefs/x:refs/x\t[rejected] (stale info)", Conflict),
        ("fatal: write error: No space left on device", CtxvcError),
        ("\x1b[31mfatal: something \x07 new", CtxvcError),
    ],
)
def test_an_error_of_the_transport_is_said_in_words(output: str, kind: type[CtxvcError]) -> None:
    error = transport._error("https://me:secret@x/y.git", output)

    assert type(error) is kind and error.hint
    assert "secret" not in str(error) and "\x1b" not in str(error) and "\x07" not in str(error)


@pytest.mark.slow
def test_over_the_protocol_of_git_itself(tmp_path: Path, server: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--export-all", "--enable=receive-pack", f"--base-path={server.parent}", "--reuseaddr",
         "--listen=127.0.0.1", f"--port={port}", str(server.parent)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if not trial.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.02)
        address = f"git://127.0.0.1:{port}/sessions.git"
        clones = pair(tmp_path, address)
        for clone in clones:
            clone.say(f"of {clone.name}", session=clone.name)

        assert settled(clones)
        assert audience.is_public(address), "whoever reaches it can read it"
    finally:
        os.killpg(daemon.pid, 15)
        daemon.wait()
