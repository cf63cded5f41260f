"""A mistyped name is answered with what may have been meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.suggestion import meant
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["statsu"], "did you mean stats or status"),
        (["log", "--onelin"], "did you mean --oneline?"),
        (["--sesion", "demo", "log"], "--session"),
        (["--session", "dmeo", "log"], "did you mean demo?"),
        (["diff", "mian"], "did you mean main?"),
        (["diff", "brnached/main"], "did you mean branched/main"),
        (["ops", "mian"], "did you mean main?"),
        (["--session", "branched", "goto", "rewnid-1", "-m", "x"], "did you mean rewind-1?"),
        (["plan", "--policy", "defalut"], "did you mean default?"),
        (["plan", "--policy", "layered:kep=3"], "did you mean keep?"),
        (["policies", "layerd"], "did you mean layered"),
        (["log", "--format", "{shrot}"], "did you mean short?"),
        (["log", "--format", "{short {text}"], "write {short}"),
    ],
    ids=" ".join,
)
def test_what_may_have_been_meant_is_named(words: list[str], suggested: str, run: Run, project: Path) -> None:
    result = run(*words, folder=None if words[0] == "statsu" else project)
    assert result.exit_code in (1, 2)
    assert suggested in result.stderr


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    assert meant("zzz", ["main", "fix"]) == ""
    assert meant("", ["main"]) == ""
    assert meant("nope", ["scoped", "scope", "notes"]) == ""
    assert meant("--port", ["--color", "--pager"]) == ""


@pytest.mark.parametrize("typed", ["lgo", "lg", "logg", "lag", "LOG", "xlog"])
def test_a_short_name_is_like_another_by_one_slip(typed: str) -> None:
    assert meant(typed, ["log", "goto", "main"]) == "; did you mean log?"


def test_a_short_name_may_be_the_beginning_of_another() -> None:
    assert meant("stat", ["status", "stack", "note"]) == "; did you mean status?"


def test_several_are_listed_in_the_order_of_likeness() -> None:
    assert meant("fix-auht", ["main", "fix-auth", "fix-author"]) == "; did you mean fix-auth or fix-author?"
    assert meant("MIAN", ["main"]) == "; did you mean main?", "in whatever case"
