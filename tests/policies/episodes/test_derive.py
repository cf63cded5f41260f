"""Derived episodes: what a call tells is read once, in time that grows with its length and no faster."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Row
from ctxvc.policies.episodes import derive
from tests.policies.recorded import Run

#: What is a path and what writes, in patterns that are plain to read, and that look at a long word once for each of its
#: characters.
PATH = re.compile(r"[\w.@~+-]*(?:/[\w.@~+-]+)+|[\w-]+\.[A-Za-z]\w{0,9}\b")
WRITES = re.compile(r"(?<![0-9&])>(?!&|\s*/dev/null)|\bsed\s+(?:-\w+\s+)*-\w*i|\bfind\b.*-(?:delete|exec)")

SHORT = st.text("ab1é_.-/@~+> \n", max_size=24)
COMMANDS = st.lists(
    st.one_of(
        st.sampled_from(
            ["sed", "find", "-i", "-n", "-ni", "--", "-", "-exec", "-delete", "cat", "2>", ">", "&>", ">&"]
        ),
        st.sampled_from(["/dev/null", " ", "  ", "\n", "|", "x", "_", "sed-i", "-sed", "finder", "-i.bak"]),
    ),
    max_size=12,
).map("".join)
SPACED = st.lists(COMMANDS, max_size=6).map(" ".join)

#: So many characters take minutes where each is looked at once for each other.
MANY = 100_000


@given(SHORT)
@example("a.py//b a//c /d/ .e.f-g.h")
@example("a.py-x.c")
@example("conf.test.tsx/ ./a ../b.c ~/d")
def test_a_path_is_what_the_plain_pattern_says(command: str) -> None:
    assert list(derive._paths(command)) == PATH.findall(command)


@given(COMMANDS | SPACED)
@example("sed -n -e x; sed -sed -ni.bak x")
@example("find a\nls -delete")
def test_what_writes_is_what_the_plain_pattern_says(command: str) -> None:
    assert derive._writes(command) == bool(WRITES.search(command))


@pytest.mark.parametrize(
    "command",
    ["grep -rn 'foo|rm' src", 'rg "a > b; make" .', "bash -lc \"grep -n 'x|y' a.py\"", "grep '->' a.c | head"],
)
def test_a_quoted_pattern_is_no_verb(command: str) -> None:
    assert derive._looks(command)
    assert not derive._looks(f"{command} > out.txt")
    assert not derive._looks(f"rm a; {command}")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "word", ["a", "-", "a-", ".", "a.", "/", "a/", "//a", "é_", "a.b-", "sed -", "sed -sed ", "find ", "> ", "git -C "]
)
def test_a_command_of_any_length_is_looked_at_once(word: str) -> None:
    command = word * (MANY // len(word))
    paths = list(derive._paths(command))
    assert sum(map(len, paths)) <= len(command)
    assert isinstance(derive._writes(command), bool)
    assert isinstance(derive._looks(command), bool)


@pytest.mark.timeout(20)
def test_files_of_one_name_do_not_make_each_other_slow() -> None:
    """Each step reads files of one name in many folders, and the next names all of them again."""
    run = Run()
    for number in range(100):
        files = " ".join(f"d{number}x{at}/a" for at in range(400))
        run.append(*_step(2 * number, f"cat {files}"), *_step(2 * number + 1, f"touch {files}"))
    episodes = derive.derived(run.ledger, run.words).episodes
    assert [episode.dependencies for episode in episodes[1::2]] == [(f"expl {number}",) for number in range(1, 201, 2)]


def test_each_call_is_read_once_however_often_episodes_are_derived() -> None:
    run, reads = Run(), Counter[str]()

    def words(row: Row) -> str:
        reads[row.id] += 1
        return run.words(row)

    for number in range(12):
        run.append(*_step(number, _command(number)))
        told = derive.derived(run.ledger, words)
        fresh = Run()
        fresh.append(*(message for at in range(number + 1) for message in _step(at, _command(at))))
        assert told == derive.derived(fresh.ledger, fresh.words)
    assert set(reads.values()) == {1}
    assert len(reads) == 12


def test_the_same_words_to_another_tool_tell_something_else() -> None:
    """What is kept of a call is kept for its tool and its arguments, not for its arguments alone."""
    run = Run()
    run.append(*_step(0, "a.py", tool="Read", name="file_path"), *_step(1, "a.py", tool="Write", name="file_path"))
    assert [episode.type for episode in derive.derived(run.ledger, run.words).episodes] == ["expl", "act"]


def _command(number: int) -> str:
    return f"cat a{number}.py" if number % 3 else f"touch a{number - 1}.py"


def _step(number: int, words: str, *, tool: str = "Bash", name: str = "command") -> tuple[Message, Message]:
    call = f"c{number}"
    arguments = wire.compact({name: words})
    return (
        Message(role="assistant", parts=(wire.call_part(tool, call, arguments),)),
        Message(role="user", parts=(wire.result_part("done", call),)),
    )
