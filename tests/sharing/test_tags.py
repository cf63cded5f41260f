"""A signed tag says what somebody verified; from it on only what is newer is checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ctxvc.errors import BadName, Damaged, NotFound, Refused
from ctxvc.sharing import inventory
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.store import git
from tests.sharing.clones import Clone, signing_key

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen makes the key")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A person who signs with an ssh key, and trusts it."""
    return signing_key(tmp_path)


def test_what_came_after_a_signed_tag_is_checked_and_no_more(anna: Clone, key: Path) -> None:
    for number in range(5):
        anna.say(f"step {number}")
    with Store(anna.path) as store:
        assert inventory.sign(store, "friday", "demo") == 1
    anna.say("after")

    with Store(anna.path) as store:
        commit, signer = inventory.signed(store, "friday")
        report = verify(store, since=commit)

        assert "anna@example.org" in signer and not report.damaged
        assert report.commits == 1 < verify(store).commits


def test_history_that_was_replaced_since_is_damage(anna: Clone, key: Path) -> None:
    anna.say("one")
    anna.say("two")
    with Store(anna.path) as store:
        inventory.sign(store, "friday")
        older = next(commit for number, commit in enumerate(store.first_parents(store.tips("demo")["main"])) if number)
    git(anna.path, "update-ref", "refs/heads/demo/main", older)

    with Store(anna.path) as store, pytest.raises(Damaged, match="demo/main"):
        inventory.signed(store, "friday")


def test_a_tag_without_a_good_signature_is_not_trusted(anna: Clone, key: Path, tmp_path: Path) -> None:
    anna.say("one")
    git(anna.path, "tag", "-a", "-m", "unsigned", "plain", "refs/heads/demo/main")
    with Store(anna.path) as store:
        inventory.sign(store, "friday")
        with pytest.raises(Refused, match="not good"):
            inventory.signed(store, "plain")
        (tmp_path / "signers").write_text("")
        with pytest.raises(Refused, match="not good"):
            inventory.signed(store, "friday")
        with pytest.raises(NotFound):
            inventory.signed(store, "monday")


def test_a_tag_is_made_once_and_with_a_key(anna: Clone, key: Path) -> None:
    anna.say("one")
    with Store(anna.path) as store:
        inventory.sign(store, "friday")
        with pytest.raises(Refused, match="friday"):
            inventory.sign(store, "friday")
        with pytest.raises(BadName):
            inventory.sign(store, "--force")
        key.unlink()
        with pytest.raises(Refused, match="was not made"):
            inventory.sign(store, "saturday")
        assert "refs/tags/saturday" not in store.repository.references
