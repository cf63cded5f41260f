"""What a host may refuse for its size is named before the push, with the block and with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.cli.phrases import COMMAND_LINE
from ctxvc.errors import Refused, render
from ctxvc.sharing import push, remotes
from ctxvc.store.secrets import push_check
from ctxvc.store.store import Store
from tests.sharing.clones import Clone, refs


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach: 4 kB is large, 8 kB is too large."""
    monkeypatch.setattr(push_check, "LARGE", 4_000)
    monkeypatch.setattr(push, "TOO_LARGE", 8_000)


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, server: Path) -> None:
    """The server is the host with a fixed limit."""
    monkeypatch.setattr(push, "_GITHUB", str(server).removesuffix(".git"))


@pytest.mark.usefixtures("github")
def test_the_host_that_takes_none_gets_none_and_the_other_sessions_once_it_is_kept_here(
    anna: Clone, server: Path
) -> None:
    anna.say("small", session="other")
    anna.say("x" * 9_000)

    with pytest.raises(Refused, match=r"demo/main:B\d+") as refused:
        anna.push()

    assert "unshare demo" in render(refused.value.advice, COMMAND_LINE) and not refs(server)
    with Store(anna.path) as store:
        remote = remotes.find(store)
        remotes.update(store, type(remote)(name="origin", address=remote.address, sends=True, withheld=("demo",)))
    assert anna.push().sessions == ("other",)


def test_a_host_that_says_nothing_takes_it_and_it_is_named_once(anna: Clone, bob: Clone) -> None:
    anna.say("x" * 9_000)
    anna.say("y" * 5_000)

    assert [(body.session, body.scope, body.bytes) for body in anna.push().large] == [
        ("demo", "main", 9_007), ("demo", "main", 9_000), ("demo", "main", 5_007), ("demo", "main", 5_000),
    ]  # fmt: skip
    anna.say("small")
    assert not anna.push().large
    bob.pull()
    assert "x" * 9_000 in bob.texts()


def test_a_host_that_refuses_it_is_explained(anna: Clone, server: Path) -> None:
    hook = server / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho too much >&2\nexit 1\n")
    hook.chmod(0o755)
    anna.say("x" * 9_000)
    with pytest.raises(Refused, match=r"refused it.*many hosts take no file.*demo/main:B\d+"):
        anna.push()


def test_a_host_that_refuses_for_another_reason_is_not_explained_so(anna: Clone, server: Path) -> None:
    hook = server / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    anna.say("small")
    with pytest.raises(Refused) as refused:
        anna.push()
    assert "no file" not in str(refused.value)
