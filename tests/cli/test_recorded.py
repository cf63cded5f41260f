"""What a terminal shows of recordings of three hosts: to the letter, and in its width.

`--update-golden` writes the screens anew.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.cli.terminal.table import breadth
from ctxvc.store.project.locate import FOLDER
from tests.cli.conftest import COLOUR, Run
from tests.making.store import git

DATA = Path(__file__).parents[1] / "data" / "recorded"
GOLDEN = Path(__file__).parent / "golden" / "screens"
HOSTS = ("claude-code", "codex", "pi")
LARGEST = 100_000

#: 2026-09-01, some months after the newest of them.
NOW = 1_788_220_800.0
LOOKS = ("status", "log", "sessions", "diff HEAD~2", "ops", "context", "context --by tool")

#: Every command that lists something of a session, with arguments that make sense on each of the recordings.
LISTING = (
    *("sessions", "status", "status --all", "status step:1", "context", "context --by tool", "context --by turn"),
    *("context --by file", "context --episodes", "log", "log --oneline", "log --steps", "log --graph", "log --usage"),
    *("log --tool Read", "ops", "diff HEAD~2", "diff step:1 HEAD", "grep the -n 20", "grep -C 2 -F -n 10 import"),
    *("bisect the", "bisect --tokens 3k", "blame B2", "blame B7", "scopes", "notes", "plan", "compact --dry-run"),
    *("plan --policy layered --budget 8k", "plan --policy oldest_turn --budget 4k", "model", "purge B3", "show B9999"),
    *("status nowhere", "show", "show step:1", "replay SESSION --policy keep,window --budget 8k --no-store --jobs 1"),
)
#: What lists the same whichever session is asked for.
LISTING_OF_NONE = (
    *("policies", "policies layered", "verify", "gc", "doctor", "use", "purge --text never-said", "trust"),
    *("trust --list", "import nowhere", "install git-project --dry-run", "plan --policy defalut", "demo", "help"),
)
#: What changes the prompt, in this order.
CHANGING = (
    *("archive B2-B5 -m 'the first look at it'", "undo", "redo", "pin B6", "unpin B6", "delete B7 -m 'no need'"),
    *(
        "archive B9999",
        "restore B7",
        "note -m 'a note of so many words that it is too long for eighty columns, by far'",
    ),
    *("scope fix -m 'why it fails'", "scopes", "goto main -m found", "status", "notes", "ops", "log", "diff HEAD~1"),
    *("compact --budget 6k", "status", "ops", "plan --wait --policy oldest_turn --budget 4k", "plan --pending"),
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the three recordings in its store, whose tokens are counted: no test's screens depend on those
    that another looked at before."""
    folder = tmp_path_factory.mktemp("imported")
    for host in HOSTS:
        arguments = ["-C", str(folder), "import", "--final", "--name", host, str(DATA / f"{host}.jsonl")]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
        for look in LOOKS:
            CliRunner().invoke(cli, ["-C", str(folder), "--session", host, *look.split()])
    return folder


@pytest.fixture
def utc() -> Iterator[None]:
    """Times of the day are those of UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_the_recordings_are_small_and_of_known_origin() -> None:
    text = (DATA.parent / "PROVENANCE.md").read_text()
    for path in DATA.iterdir():
        assert path.stat().st_size <= LARGEST
        assert f"`recorded/{path.name}`" in text


@pytest.mark.parametrize("host", HOSTS)
def test_what_a_terminal_shows(
    host: str, imported: Path, on_screen: Run, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config,
    utc: None,
) -> None:  # fmt: skip
    monkeypatch.setattr("ctxvc.cli.output.time.time", lambda: NOW)
    parts = []
    for look in LOOKS:
        result = on_screen("--session", host, *look.split(), folder=imported, width=80)
        parts.append(f"$ ctxvc {look}\n{COLOUR.sub('', result.output)}--- exit {result.exit_code}\n\n")
    commits = git(imported / FOLDER, "rev-list", "--all").split()
    text = _without_ids("".join(parts).replace(str(imported), "PROJECT"), commits)
    golden = GOLDEN / f"{host}-80.txt"
    if pytestconfig.getoption("--update-golden", default=False):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)

    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("host", "listings"),
    [(HOSTS[0], (*LISTING, *LISTING_OF_NONE)), (HOSTS[1], LISTING[::2]), (HOSTS[2], LISTING[1::2])],
)
def test_no_listing_is_wider_than_the_terminal(
    host: str, listings: Sequence[str], imported: Path, on_screen: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxvc.cli.commands.demo.time.sleep", lambda _: None)
    for words in listings:
        _check_width(on_screen, host, words, imported, 80)


def test_no_change_is_told_in_lines_wider_than_the_terminal(tmp_path: Path, run: Run, on_screen: Run) -> None:
    host = HOSTS[0]
    run("import", "--final", "--name", host, str(DATA / f"{host}.jsonl"), folder=tmp_path)
    for words in CHANGING:
        _check_width(on_screen, host, words, tmp_path, 80)


def _check_width(on_screen: Run, host: str, words: str, folder: Path, width: int) -> None:
    result = on_screen("--session", host, *shlex.split(words.replace("SESSION", host)), folder=folder, width=width)
    assert result.exception is None or isinstance(result.exception, SystemExit), words
    assert "this is a bug" not in result.output, result.output
    # A word that is longer than a line, such as a path to copy, stays whole on a line of its own.
    lines = [line for line in COLOUR.sub("", result.output).splitlines() if len(line.split()) > 1]
    assert not [line for line in lines if breadth(line) > width], words


def _without_ids(told: str, commits: list[str]) -> str:
    """Each id of a commit by the order in which it comes, as long as it was: columns stay where they are."""
    names: dict[str, str] = {}
    known = {commit[:7] for commit in commits}

    def name(match: re.Match[str]) -> str:
        if match.group()[:7] not in known:
            return match.group()
        digits = names.setdefault(match.group()[:7], f"{len(names) + 1:06}")
        return f"#{digits}".ljust(len(match.group()), "-")

    return re.sub(r"\b(?:[0-9a-f]{40}|[0-9a-f]{12}|[0-9a-f]{7})\b", name, told)
