"""Names say what a thing is: bounds on the words that would fit any thing, and no module with a gerund for a name.

A binding is an assigned name, a parameter, a function or a class (without its underscores, in lower case).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

import ctxvc
from tests.test_architecture import every_node, parsed

PACKAGE = Path(ctxvc.__file__).parent

#: Words that name nothing. The few bindings left are mostly fields, parameters and methods that Python programs, JSON
#: and the format have under these names.
VAGUE = frozenset(
    {"held", "told", "said", "made", "known", "wanted", "given", "asked", "shown", "found"}
    | {"kept", "named", "left", "done", "gone", "tried", "each", "some", "words"}
)
#: The largest share of bindings, in percent, that may be one of these.
SHARE = 1.0

#: How often each word that is mostly vague may be bound, `VAGUE` among them. The numbers only fall: a change that
#: takes such a name away lowers its number.
BOUNDS: dict[str, int] = {
    "asked": 8,
    "began": 5,
    "begun": 9,
    "behind": 17,
    "beside": 13,  # a member of every importer
    "counted": 10,
    "done": 7,
    "each": 0,
    "found": 5,
    "given": 0,
    "going": 0,
    "gone": 3,
    "held": 0,
    "kept": 2,
    "known": 3,
    "least": 18,
    "left": 2,
    "listed": 42,
    "made": 6,
    "missing": 20,
    "most": 17,
    "named": 0,
    "other": 29,
    "others": 22,
    "placed": 7,
    "read": 29,
    "rest": 29,
    "said": 5,
    "same": 8,
    "shown": 13,
    "some": 0,
    "spent": 5,
    "standing": 8,
    "taken": 13,
    "told": 0,
    "tried": 0,
    "waiting": 31,
    "wanted": 0,
    "what": 42,
    "whole": 25,
    "words": 3,
}

#: Modules and packages in -ing that are nouns of the field, each with what it names.
NOUNS = {
    "ctxvc.sharing": "what several people do with sessions, in the words of every tool that does it",
    "ctxvc.core.recording": "a recording, the transcript of another program, as events and steps",
    "ctxvc.recording": "recordings that grow, as sessions",
    "ctxvc.core.ledger.numbering": "the numbers of blocks, messages, steps and turns",
    "ctxvc.core.plan.timing": "the time at which a plan is committed",
    "ctxvc.store.verify.finding": "one finding of `verify`",
}


class Binding(NamedTuple):
    """A name where it is bound; `line` is 1-based."""

    name: str
    file: str
    line: int


def bindings(source: str, file: str = "") -> Iterator[Binding]:
    """Every binding in a module's source but `self`, functions and classes as `_found` → `found`."""
    for node in every_node(parsed(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                name = name.strip("_").lower()
            case _:
                continue
        if name and name != "self":
            yield Binding(name, file, node.lineno)


@cache
def package_bindings() -> tuple[Binding, ...]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return tuple(
        chain.from_iterable(bindings(path.read_text(), str(path.relative_to(PACKAGE.parent))) for path in paths)
    )


def share(found: tuple[Binding, ...]) -> float:
    """Percent of the bindings that are vague."""
    return 100 * sum(binding.name in VAGUE for binding in found) / len(found)


def above(bounds: Mapping[str, int], found: tuple[Binding, ...]) -> Iterator[str]:
    """Each word that is bound more often than its bound, with all its places."""
    counts = Counter(binding.name for binding in found)
    for word, bound in bounds.items():
        if counts[word] > bound:
            places = ", ".join(f"{binding.file}:{binding.line}" for binding in found if binding.name == word)
            yield f"`{word}` is bound {counts[word]} times, {counts[word] - bound} more than may be: {places}"


def gerunds(modules: list[str]) -> list[str]:
    """Modules and packages whose name ends in -ing, but for `NOUNS`."""
    return [name for name in modules if name.endswith("ing") and name not in NOUNS]


def test_few_names_are_vague() -> None:
    vague = [binding for binding in package_bindings() if binding.name in VAGUE]
    places = "\n".join(f"{binding.file}:{binding.line} {binding.name}" for binding in vague)

    assert share(package_bindings()) <= SHARE, places


def test_no_vague_word_is_bound_more_often_than_before() -> None:
    assert BOUNDS.keys() >= VAGUE
    assert not (words := list(above(BOUNDS, package_bindings()))), "\n".join(words)


def test_modules_are_nouns() -> None:
    paths = (path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py"))
    modules = sorted({".".join(path.parts).removesuffix(".__init__") for path in paths})

    assert not gerunds(modules)
    assert modules and not NOUNS.keys() - set(modules), "a module that is there no more"


# --- the rules themselves: each sees what it is for


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def f(found): ...",
        "def _found(): ...",
        "class Found: ...",
        "for found in (): ...",
        "if found := 1: ...",
        "x = lambda found: 1",
        "class A:\n    found: int",
    ],
)
def test_a_vague_name_is_seen(source: str) -> None:
    (binding,) = (binding for binding in bindings(source, "a.py") if binding.name == "found")
    assert binding == ("found", "a.py", 2 if "\n" in source else 1)


@pytest.mark.parametrize("source", ["x.found = 1", "f(found=1)", "found", "def finder(self): ...", "found_rows = 1"])
def test_what_binds_no_vague_name_is_not_seen(source: str) -> None:
    assert "found" not in {binding.name for binding in bindings(source)}


def test_one_binding_above_its_bound_is_told_with_its_places() -> None:
    two = tuple(bindings("found = 1\nfound = 2\nrow = 3", "a.py"))

    assert not list(above({"found": 2}, two))
    assert list(above({"found": 1}, two)) == ["`found` is bound 2 times, 1 more than may be: a.py:1, a.py:2"]
    assert round(share(two)) == 67


def test_a_gerund_is_seen() -> None:
    assert gerunds(["ctxvc.core.hooking", "ctxvc.core.ledger", "ctxvc.recording"]) == ["ctxvc.core.hooking"]
