"""Phrases: each surface has words for each of them, with what goes into them, and nobody has words for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import ctxvc
from ctxvc.agent.tools.definitions import TOOLS
from ctxvc.agent.tools.phrases import hint
from ctxvc.cli.output import hint_of, message_of
from ctxvc.errors import CtxvcError, Phrase, render
from ctxvc.phrases import COMMAND_LINE, MODEL, NEEDED_TOOLS, PYTHON, READER
from tests.test_architecture import every_node, of_command_line, parsed

TABLES = {"the command line": COMMAND_LINE, "a model": MODEL, "a model that asks": READER, "Python": PYTHON}

#: Parts that are read back: programs read these words, which are those of the command line.
PARTS = ("next-", "file-")


@cache
def used() -> frozenset[tuple[str, frozenset[str]]]:
    """The keys of the phrases in the source, each with the names of its arguments."""
    return frozenset(_used())


def _used() -> Iterator[tuple[str, frozenset[str]]]:
    for path in Path(ctxvc.__file__).parent.rglob("*.py"):
        if "Phrase" not in (source := path.read_text()):
            continue
        for node in every_node(parsed(source)):
            match node:
                case ast.Call(func=ast.Name(id="Phrase"), args=[ast.Constant(value=str(key))], keywords=keywords):
                    yield key, frozenset(keyword.arg or "" for keyword in keywords)
                case ast.Call(func=ast.Name(id="Phrase")):
                    raise AssertionError(f"{path}:{node.lineno}: the key is not written out")


def placed(text: str) -> set[str]:
    """The names of what goes into a text."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_the_table_has_each_phrase_and_no_other() -> None:
    assert COMMAND_LINE.keys() == READER.keys() == {key for key, _ in used()}


def test_what_a_phrase_is_given_is_what_goes_into_it() -> None:
    for key, arguments in used():
        places = {surface: placed(table[key]) for surface, table in TABLES.items()}
        assert set().union(*places.values()) == arguments, key
        for table in TABLES.values():
            render(Phrase(key, **dict.fromkeys(arguments, 1)), table)


def test_a_model_is_told_of_no_command_and_no_option() -> None:
    assert not [text for text in (*MODEL.values(), *READER.values()) if of_command_line().search(text)]


def test_a_program_is_told_of_options_only_with_their_command() -> None:
    prose = {key: "".join(text.split("`")[::2]) for key, text in PYTHON.items() if not key.startswith(PARTS)}

    assert not [text for text in prose.values() if of_command_line().search(text)]
    assert all(PYTHON[key] == COMMAND_LINE[key] for key in PYTHON if key.startswith(PARTS))


def test_nobody_but_a_model_is_left_without_words() -> None:
    assert all(COMMAND_LINE.values()) and all(PYTHON.values())


def test_a_hint_that_names_a_tool_is_for_models_that_have_it() -> None:
    error = CtxvcError("scope 'fix' already exists", hint=Phrase("goto-scope", scope="fix"))

    assert NEEDED_TOOLS.keys() <= MODEL.keys() and set(NEEDED_TOOLS.values()) <= TOOLS.keys()
    assert hint(error, ["goto", "note"]) == "goto fix switches to it"
    assert hint(error, ["note"]) == hint(error) == ""


def test_an_error_says_the_same_in_the_words_of_each_surface() -> None:
    error = CtxvcError(Phrase("sandbox-bind", path="/home"), hint=Phrase("give-text"))
    plain = CtxvcError("no room: {0}", hint="free some {space}")

    assert (str(error), error.hint) == ("/home in a sandbox would expose the whole home folder", "pass it as text")
    assert message_of(error) == "--bind /home would expose the whole home folder"
    assert hint_of(error) == "pass it with -m"
    assert hint(error) == "pass it in the call"
    assert message_of(plain) == str(plain) == "no room: {0}"
    assert hint_of(plain) == plain.hint == hint(plain) == "free some {space}"


def test_a_phrase_is_a_value() -> None:
    assert Phrase("next-lines", address="B1", lines="2:") == Phrase("next-lines", lines="2:", address="B1")
    assert Phrase("verify") != Phrase("init")
    assert len({Phrase("verify"), Phrase("verify"), Phrase("init")}) == 2
    assert repr(Phrase("goto-scope", scope="x")) == "Phrase('goto-scope', scope='x')"
