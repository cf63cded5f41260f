"""Stores that share a remote, and what a test says of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ctxvc.sharing import pull as pulling
from ctxvc.sharing import push as pushing
from ctxvc.sharing import remotes
from ctxvc.sharing.remotes import Remote
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.making.conversation import human, reply


class Clone:
    """A store with a remote. It is opened for each operation, as a command does it."""

    def __init__(self, path: Path, name: str, address: str) -> None:
        self.path, self.name = path, name
        with create(path) as store:
            remotes.add(store, Remote(name="origin", address=address, sends=True), name)

    def say(self, text: str, session: str = "demo", scope: str = "main") -> None:
        """A step in which a person says something and a model answers."""
        with Store(self.path) as store:
            if not store.has(session):
                store.create_session(session)
            with StoredSession.open(store, session, scope) as stored:
                stored.append(human(text), reply(f"noted: {text}"), scope=scope)

    def note(self, text: str, session: str = "demo", scope: str = "main") -> None:
        with Store(self.path) as store, StoredSession.open(store, session, scope) as stored:
            stored.note(text)

    def branch(self, scope: str, text: str, session: str = "demo") -> None:
        with Store(self.path) as store, StoredSession.open(store, session) as stored:
            stored.open_scope(scope, text)

    def goto(self, scope: str, text: str, session: str = "demo", start: str = "main") -> None:
        with Store(self.path) as store, StoredSession.open(store, session, start) as stored:
            stored.goto(scope, text)

    def push(self, *, after_purge: bool = False) -> pushing.Pushed:
        with Store(self.path) as store:
            return pushing.push(store, after_purge=after_purge)

    def pull(self, *sessions: str) -> pulling.Pulled:
        with Store(self.path) as store:
            return pulling.pull(store, chosen=pulling.choice(sessions))

    def tips(self, session: str = "demo") -> dict[str, str]:
        with Store(self.path) as store:
            return store.tips(session)

    def all_tips(self) -> set[tuple[str, str]]:
        """Each session with the commits that its scopes lead to, whatever the scopes are called."""
        with Store(self.path) as store:
            return {(session, tip) for session, scopes in store.all_tips().items() for tip in scopes.values()}

    def texts(self) -> set[str]:
        """All that was said, in any scope of any session."""
        with Store(self.path) as store:
            return {
                stored.body(row, scope).decode()
                for session in store.sessions()
                for stored in [StoredSession.open(store, session)]
                for scope in stored.scopes()
                for row in stored.ledger(scope).rows()
            }

    def objects(self) -> bytes:
        """Everything that git has there, reachable or not."""
        return everything(self.path)


def bare(path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    subprocess.run(["git", f"--git-dir={path}", "config", "http.receivepack", "true"], check=True)
    return path


def refs(path: Path) -> dict[str, str]:
    output = subprocess.run(
        ["git", f"--git-dir={path}", "for-each-ref", "--format=%(refname) %(objectname)"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return dict(line.split() for line in output.splitlines())


def everything(path: Path) -> bytes:
    command = ["git", f"--git-dir={path}", "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def signing_key(folder: Path) -> Path:
    """The ssh key of a person, Anna, whose git signs with it and trusts it."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signers = folder / "signers"
    signers.write_text(f"anna@example.org {key.with_suffix('.pub').read_text()}")
    file = Path(os.environ["HOME"], ".gitconfig")
    for name, value in {
        "user.name": "Anna", "user.email": "anna@example.org", "gpg.format": "ssh",
        "user.signingkey": str(key), "gpg.ssh.allowedSignersFile": str(signers),
    }.items():  # fmt: skip
        subprocess.run(["git", "config", "--file", str(file), name, value], check=True)
    return key
