"""A name is a git ref component that every file system can hold, and any text has a valid name close to it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import name_rules
from ctxvc.errors import BadName

GIT = shutil.which("git") or "git"
likely = st.text("aB1._-/ @{~^:\\*?[\x7f\té", max_size=12) | st.sampled_from(
    [
        "main",
        "HEAD",
        "head",
        "a.lock",
        "a.LOCK",
        "con",
        "Con.txt",
        "com1",
        "lpt9.x",
        "a..b",
        ".a",
        "-a",
        "a.",
        "@",
        "x" * 101,
    ]
)


@given(likely)
def test_git_takes_what_we_take(name: str) -> None:
    if not name_rules.problem(name):
        assert subprocess.run([GIT, "check-ref-format", f"refs/heads/{name}/{name}"], check=False).returncode == 0


@given(likely | st.text(max_size=200), st.sampled_from(["session", "agent"]))
def test_every_text_has_a_valid_name(text: str, default: str) -> None:
    name = name_rules.slug(text, default)
    assert name_rules.problem(name) == ""
    assert name_rules.slug(name, default) == name or len(name) > 60


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", fullmatch=True))
def test_a_valid_name_is_its_own(name: str) -> None:
    if not name_rules.problem(name):
        assert name_rules.check(name, "scope") == name
        assert name_rules.slug(name).strip("-_") == name.strip("-_")


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "-a", ".a", "_a", "a..b", "a.", "a.lock", "a.LOCK", "HEAD", "Head", "con", "NUL.txt", "COM1", "é",
     "a//b", "/a", "a/", "a/..", "a/.b", "a/head", "a/b.lock", "a/" * 50 + "b",
     "a\n", "a\0", "x" * 101, "a" + "\u202e"],
)  # fmt: skip
def test_what_cannot_name_anything_is_refused_with_a_reason_and_a_way_out(name: str) -> None:
    with pytest.raises(BadName) as refused:
        name_rules.check(name, "scope")
    assert "scope" in str(refused.value)
    assert name_rules.scope_problem(refused.value.hint.removeprefix("try ").strip("'")) == ""
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["a", "0", "a.b", "A-b_c.d", "lock", "x.lockx", "headless", "console", "x" * 100])
def test_what_can_name_something_can(name: str) -> None:
    assert name_rules.problem(name) == ""


def test_a_scope_s_name_may_have_parts_and_is_refused_inside_of_another_or_where_only_case_differs() -> None:
    assert name_rules.check("plan/login.2", "scope", {"main", "plan/logout"}) == "plan/login.2"
    with pytest.raises(BadName):
        name_rules.check("plan/login", "session")
    for name, taken in (("a", "a/b"), ("a/b", "a"), ("A/b/c", "a/B")):
        with pytest.raises(BadName, match="inside of another"):
            name_rules.check(name, "scope", {taken})
    assert name_rules.check("main", "scope", {"main", "other"}) == "main"
    with pytest.raises(BadName, match="differ only in case"):
        name_rules.check("Main", "scope", {"main"})
    for name in ("B5", "G12"):
        with pytest.raises(BadName, match="blocks and groups have such names"):
            name_rules.check(name, "scope")
    assert name_rules.check("B5", "session") and name_rules.check("B5-try", "scope")
