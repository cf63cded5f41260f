"""A purge travels: what one clone erased is erased in the others, and on the remote once it collects its garbage."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from ctxvc.errors import Refused
from ctxvc.sharing import purges
from ctxvc.store.purge import carried
from ctxvc.store.purge.carried import PurgeRecord, erased_texts
from ctxvc.store.purge.purge import PurgeRequest, purge
from ctxvc.store.purge.rewrite import Raw
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.sharing.clones import Clone, everything

SECRET = "the word is xyzzy-plugh-42, say nothing"


def erase(clone: Clone, **request: object) -> None:
    with Store(clone.path) as store:
        purge(store, msgspec.convert(request, PurgeRequest))


def erased(clone: Clone) -> None:
    """The clone purges the secret, and pushes that."""
    erase(clone, texts=("xyzzy-plugh-42",))
    clone.push(after_purge=True)


def accept(clone: Clone) -> bool:
    with Store(clone.path) as store:
        return purges.accept(store) is not None


def collect(server: Path) -> None:
    subprocess.run(["git", f"--git-dir={server}", "gc", "--quiet", "--prune=now"], check=True)


def shared(anna: Clone, bob: Clone) -> None:
    """Both have the secret, and bob has something of his own on top of it, which quotes it."""
    anna.say("hello")
    anna.say(SECRET)
    anna.push()
    bob.pull()
    bob.say("as she said: xyzzy-plugh-42")
    bob.push()


def clean(*clones: Clone) -> bool:
    return not any(b"xyzzy-plugh" in clone.objects() for clone in clones)


@pytest.mark.parametrize(
    "request_of_purge",
    [
        {"texts": ("xyzzy-plugh-42",)},
        pytest.param({"session": "demo", "blocks": ("B3", "B4"), "texts": ("xyzzy-plugh-42",)}, marks=pytest.mark.slow),
    ],
)
def test_what_one_clone_erased_is_erased_in_the_other_and_on_the_server(
    anna: Clone, bob: Clone, server: Path, request_of_purge: dict[str, object]
) -> None:
    shared(anna, bob)
    if "blocks" in request_of_purge:  # a block that went as a whole does not tell which of its words mattered
        anna.pull()
        anna.push()
    erase(anna, **request_of_purge)
    with pytest.raises(Refused, match="purged"):
        anna.push()
    assert anna.push(after_purge=True).purged

    with pytest.raises(Refused, match="purged"):
        bob.pull()
    with pytest.raises(Refused, match="purged"):
        bob.push()
    assert accept(bob)
    bob.pull()
    bob.push(after_purge=True)
    anna.pull()
    anna.push()
    bob.pull()
    collect(server)

    assert clean(anna, bob) and b"xyzzy-plugh" not in everything(server)
    assert anna.all_tips() == bob.all_tips() and "as she said: " in "".join(bob.texts())
    for clone in (anna, bob):
        with Store(clone.path) as store:
            assert not verify(store).damaged
    assert not anna.push().is_new


def test_what_a_clone_has_that_did_not_accept_is_not_taken_back(anna: Clone, bob: Clone) -> None:
    shared(anna, bob)
    erased(anna)

    pulled = anna.pull()

    assert any("has not accepted" in reason for reason in pulled.ignored)
    assert clean(anna) and not pulled.arrivals


@pytest.mark.slow
def test_a_clone_that_has_nothing_of_it_is_not_asked(anna: Clone, tmp_path: Path, server: Path) -> None:
    carol = Clone(tmp_path / "carol" / ".ctxvc", "carol", str(server))
    carol.say("of her own", session="other")
    carol.push()
    anna.say(SECRET)
    anna.push()
    erased(anna)

    carol.pull()
    carol.push()

    assert carol.all_tips() > anna.all_tips() and clean(carol)
    with Store(carol.path) as store:
        assert carried.own(store).erased, "it knows what never to take"


@pytest.mark.slow
def test_a_second_purge_elsewhere_goes_along_with_the_first(anna: Clone, bob: Clone, server: Path) -> None:
    shared(anna, bob)
    anna.pull()
    anna.push()
    erased(anna)
    accept(bob)
    erase(bob, texts=("as she said",))
    bob.pull()
    bob.push(after_purge=True)

    assert accept(anna)
    anna.pull()
    anna.push(after_purge=True)
    bob.pull()
    collect(server)

    assert clean(anna, bob) and not any(b"as she said" in everything(path) for path in (anna.path, bob.path, server))
    assert anna.all_tips() == bob.all_tips()


def test_a_record_cannot_put_words_into_a_body(anna: Clone, bob: Clone) -> None:
    """Of a replacement that is more than marks nothing is taken but that something was erased."""
    anna.say("the plan is to leave at nine")
    anna.push()
    bob.pull()
    with Store(bob.path) as store:
        tree = store.reader.tree(store.tips("demo")["main"])
        body = str(tree["blocks/00/00/B1.txt"].id)
        forged = Raw(store.repository).write("blob", b"the plan is to stay").hex()
        record = PurgeRecord(blobs={body: forged})
        commit = carried.write(store, record, [], "forged")
        purge(store, PurgeRequest(carried=carried.record_at(store, commit)))

    assert not any("stay" in text for text in bob.texts())
    assert "[REDACTED:purged:00000000]" in bob.texts()


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        (b"a secret here", b"a [REDACTED:purged:11111111] here", [(b"secret", b"[REDACTED:purged:11111111]")]),
        (b"secret", b"[REDACTED:purged:11111111]", [(b"secret", b"[REDACTED:purged:11111111]")]),
        (b"x [REDACTED:k:22222222] one", b"x [REDACTED:k:22222222] [REDACTED:purged:11111111]",
         [(b"one", b"[REDACTED:purged:11111111]")]),
        (b"one and two", b"[REDACTED:a:11111111] and [REDACTED:b:22222222]",
         [(b"one", b"[REDACTED:a:11111111]"), (b"two", b"[REDACTED:b:22222222]")]),
        (b"one", b"two", []),
        (b"one more", b"[REDACTED:a:11111111] less", []),
        (b"same", b"same", []),
    ],
)  # fmt: skip
def test_what_was_erased_follows_from_both_bodies(old: bytes, new: bytes, texts: list[tuple[bytes, bytes]]) -> None:
    assert erased_texts(old, new) == texts
