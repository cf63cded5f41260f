"""Sharing through a real sshd on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.errors import Refused
from ctxvc.store.git import transport
from tests.sharing.clones import Clone, bare

_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = pytest.mark.skipif(not Path(_SSHD).is_file(), reason="sshd is not installed (openssh-server)")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A repository behind an sshd of our own, with keys of its own, and ssh set up to use it."""
    for name in ("host", "person"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    shutil.copy(tmp_path / "person.pub", tmp_path / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path / 'host'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path / 'authorized'}\nPasswordAuthentication no\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    server = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
    monkeypatch.setenv(
        "GIT_SSH_COMMAND", f"ssh -F none -i {tmp_path / 'person'} -o UserKnownHostsFile={known} -o BatchMode=yes"
    )
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if not trial.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.02)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        yield f"ssh://{user}@127.0.0.1:{port}{bare(tmp_path / 'sessions.git')}"
    finally:
        server.terminate()
        server.wait()
        assert server.stderr
        server.stderr.close()


def test_two_clones_share_sessions_over_ssh(tmp_path: Path, address: str) -> None:
    anna, bob = (Clone(tmp_path / name / ".ctxvc", name, address) for name in ("anna", "bob"))
    anna.say("one")
    anna.push()
    bob.pull()
    bob.say("two")
    anna.say("three")
    for clone in (anna, bob, anna, bob, anna):
        clone.pull()
        clone.push()

    assert anna.all_tips() == bob.all_tips() and {"one", "two", "three"} <= anna.texts()


def test_a_host_that_is_not_known_is_refused(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = tmp_path / "nobody"
    nobody.write_text("")
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F none -o UserKnownHostsFile={nobody} -o BatchMode=yes")

    with pytest.raises(Refused, match="cannot prove"):
        transport.refs(address)
