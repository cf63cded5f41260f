"""Notes of a project travel with the sessions, and those of two people stand beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.session import project_notes
from ctxvc.store.store import Store
from tests.sharing.clones import Clone


def add(clone: Clone, text: str, name: str = "", actor: str = "user") -> None:
    with Store(clone.path) as store:
        project_notes.add(store, text, actor=actor, name=name, root=clone.path.parent)


def texts(clone: Clone) -> set[str]:
    with Store(clone.path) as store:
        return {note.text for note in project_notes.notes(store)}


def test_notes_of_two_people_merge_without_a_conflict(anna: Clone, bob: Clone, server: Path) -> None:
    anna.say("hello")
    add(anna, "make -j2", "build")
    add(anna, "the login needs a tenant")
    anna.push()
    bob.pull()
    assert texts(bob) == {"make -j2", "the login needs a tenant"}
    with Store(bob.path) as store:
        assert store.current_session() == "demo"

    add(anna, "make -j4", "build")
    add(bob, "make -j8", "build")
    for clone in (anna, bob, anna, bob):
        clone.push()
        clone.pull()
    both = {"make -j4", "make -j8", "the login needs a tenant"}
    assert texts(anna) == texts(bob) == both, "neither saw the other's"
    assert not {scope for clone in (anna, bob) for _, scope in scopes(clone) if "@" in scope}

    add(bob, "make", "build")
    bob.push()
    anna.pull()
    assert texts(anna) == {"make", "the login needs a tenant"}


def scopes(clone: Clone) -> set[tuple[str, str]]:
    with Store(clone.path) as store:
        return {(session, scope) for session, tips in store.all_tips().items() for scope in tips}


@pytest.mark.parametrize("actor", ["user", "agent"])
def test_notes_alone_can_be_pulled(anna: Clone, bob: Clone, actor: str) -> None:
    add(anna, "make -j2", actor=actor)
    anna.push()
    bob.pull()
    assert texts(bob) == {"make -j2"}
