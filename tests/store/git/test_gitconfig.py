"""Configuration files of git: what is read from one is what git reads, and what is not certain is not read."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.store.git import config_parser

ODD = st.sampled_from(
    ['"', '\\"', "\\\\", "\\n", "\\t", "\\", "#", ";", " ", "\t", "a", "é", "]", "[core]", "=", "\r", "\\\n"]
)
HEADERS = st.sampled_from(
    ["[core]", "[Re.mote]", '[remote "a b"]', '[a "x\\"]\\y"]', '[a  \t"B"] ', "[a]c=d", " [ core]", "[core"]
)
VALUES = st.lists(ODD, max_size=6).map("".join)
STARTS = st.sampled_from(["\t", "", "[x] "])
KEYS = st.sampled_from(["Bare", "a-1", "1x", "#b"])
EQUALS = st.sampled_from(["", " ", "=", " = ", "\t=\t"])
ENTRIES = st.builds("{}{}{}{}".format, STARTS, KEYS, EQUALS, VALUES)
TEXTS = st.lists(st.one_of(HEADERS, ENTRIES, ENTRIES), min_size=1, max_size=5).map(
    lambda lines: "\n".join(["[s]", *lines])
)


def of_git(data: bytes) -> list[tuple[str, str | None]] | None:
    """What git lists; None where it takes the file for broken."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config")
        file.write_bytes(data)
        arguments = ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"]
        result = subprocess.run(arguments, capture_output=True, check=False)
    if result.returncode:
        return None
    items = [item.partition("\n") for item in result.stdout.decode().split("\0")[:-1]]
    return [(key, value if equals else None) for key, equals, value in items]


@given(TEXTS)
@example('[core]\n\tfsmonitor = "a b" c # d\n\tbare\n[remote "x y"] url = https://example.org ; z')
@example("[core] a = b\\\n[include]\n path = c")
@example('[a "b\\\\c\\"d"]\ne = " f \\t g "  h')
def test_what_is_read_is_what_git_reads(text: str) -> None:
    data = text.encode()
    try:
        ours = [(setting.key, setting.value) for setting in config_parser.settings(data)]
    except ValueError:
        return  # narrower than git's grammar, never wider
    theirs = of_git(data)

    assert theirs is not None
    # What becomes of a tab between words differs from one git to the next.
    assert _spaced(ours) == _spaced(theirs)


def _spaced(items: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return [(key, value and value.replace("\t", " ")) for key, value in items]


@pytest.mark.parametrize(
    "data", [b"[core]\n\ta = b\0c\n", b"[core]\n\xff = a\n", b"a = b\n", b"[core]\n\ta = b \\\n c\n"]
)
def test_what_is_not_certain_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"NUL|line \d"):
        list(config_parser.settings(data))
