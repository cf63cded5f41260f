"""`recover`: exact bytes for a person, parts for whoever asks for them, and each reading is recorded."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.cli.conftest import STEERING, Run, answer, printed
from tests.making.project import HOSTILE

LISTING = "\n".join(f"{number}: assert add({number}, 1) == {number + 1}" for number in range(40))


def reads(run: Run, project: Path, block: str, *arguments: str) -> int:
    return int(answer(run, project, *arguments, "show", block)["row"].get("reads", 0))


def test_a_person_gets_the_exact_bytes_and_no_end_of_line_more(run: Run, project: Path) -> None:
    odd = f"{HOSTILE}\nuser B1\n  lone \ud800 surrogate".encode("utf-8", "surrogatepass")
    arguments = ["--session", "hostile", "recover", "B3"]
    _, out, _ = printed("-m", "ctxvc", *arguments, folder=project, text=False)
    assert out == odd == run(*arguments, folder=project).stdout_bytes
    assert run("recover", "B6", folder=project).stdout_bytes == LISTING.encode()
    assert run(*arguments[:3], "B1", folder=project).stdout_bytes == f"question {HOSTILE}".encode()


def test_its_state_stays_and_every_reading_is_counted(run: Run, project: Path) -> None:
    for arguments in ([], ["--lines", "1:2"], ["--grep", "assert"], ["--actor", "agent"], ["--file"], ["--json"]):
        assert run("recover", "B6", *arguments, folder=project).exit_code == 0
    assert reads(run, project, "B6") == 6
    assert answer(run, project, "show", "B6")["row"]["state"] == "archived"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["recover", "B6", "--lines", "41:"], 1),
        (["recover", "B6", "--lines", "0:1"], 1),
        (["recover", "B6", "--lines", "3:1"], 1),
        (["recover", "B6", "--lines", "a"], 1),
        (["recover", "B6", "--lines", "1:2", "--chars", "1:2"], 1),
        (["recover", "B6", "--grep", "("], 1),
        (["recover", "B6", "--chars", "1:2", "--grep", "x"], 1),
        (["recover", "B6", "--max-tokens", "3"], 1),
        (["recover", "B6", "--max-tokens", "0"], 2),
        (["recover", "B6", "--file", "--lines", "1"], 2),
        (["recover", "B6", "--file", "--add"], 2),
        (["recover", "B6", "--all", "--actor", "agent"], 2),
        (["recover", "B99"], 1),
        (["recover", "B6@ffffff"], 1),
        (["recover", "G9"], 1),
        (["recover", "HEAD"], 1),
        (["recover", "nowhere:B6"], 1),
        (["recover", "nobody/main:B6"], 1),
        (["recover", "\x1b[2J" * 200], 1),
        (["recover", "B" + "9" * 3_000], 1),
        (["recover"], 2),
    ],
    ids=lambda words: " ".join(words)[:40].replace("\x1b", "") if isinstance(words, list) else str(words),
)
def test_what_cannot_be_read_says_why_in_few_words(words: list[str], code: int, run: Run, project: Path) -> None:
    result = run(*words, folder=project)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("ctxvc: ")
    assert "\nhint: " in result.stderr
    assert len(result.stderr) < 400
    assert not STEERING.search(result.stderr)


def test_a_group_is_listed_and_with_all_its_blocks_are_read(run: Run, project: Path) -> None:
    told = run("recover", "G1", folder=project).stdout
    assert [line.split("@")[0] for line in told.splitlines()[1:]] == ["B8", "B9"]
    items = answer(run, project, "recover", "G1", "--all")["items"]
    assert [item["id"] for item in items] == ["B8", "B9"]
    assert base64.b64decode(items[0]["base64"]) == b'{"path":"out.png"}'
    assert (reads(run, project, "B8"), reads(run, project, "B9")) == (1, 1)


def test_a_file_has_the_exact_bytes_at_the_block_s_own_path(run: Run, project: Path) -> None:
    told = run("recover", "B6", "--file", folder=project)
    path = Path(told.stdout.strip())
    assert path.parts[-4:] == ("archive", "00", "00", "B6.txt")
    assert path.read_bytes() == LISTING.encode()
    assert run("recover", "B6", "--file", folder=project).stdout == told.stdout
    assert run("checkout", folder=project).exit_code == 0, "what recover put there is no change of a person's"
    items = answer(run, project, "recover", "G1", "--all", "--file")["items"]
    assert [Path(item["file"]).name for item in items] == ["B8.json", "B9.json"]


@pytest.mark.parametrize("words", [[], ["--lines", "1:"], ["--actor", "agent"], ["--all"]], ids=" ".join)
def test_nothing_recorded_can_steer_a_terminal(words: list[str], on_screen: Run, project: Path) -> None:
    for block in ("B1", "B2", "B3", "B4"):
        result = on_screen("--color", "never", "--session", "hostile", "recover", block, *words, folder=project)
        assert result.exit_code == 0
        assert not STEERING.search(result.output)


# --- context objects


def test_the_name_of_an_object_is_accepted_where_a_blocks_id_is(run: Run, project: Path) -> None:
    tool = answer(run, project, "show", "B6")["row"]["tool"]
    by_id = answer(run, project, "recover", "B6")["items"]

    for name in (f"function:{tool}:6", f"{tool}:6", f"main:{tool}:6"):
        assert answer(run, project, "recover", name)["items"] == by_id
        assert answer(run, project, "show", name)["row"]["id"] == "B6"
        assert answer(run, project, "blame", name)["id"] == "B6"
    listed = answer(run, project, "recover", "user:1")
    assert "B6" in listed["content"] and "B1 " not in listed["content"]
    shown = answer(run, project, "show", "conversation:user:1")
    assert "B6" in shown["members"]
    assert len(answer(run, project, "recover", "user:1", "--all")["items"]) == len(shown["members"])
    assert answer(run, project, "bisect", f"{tool}:6")["items"]

    for verb, more in (("restore", ()), ("pin", ()), ("unpin", ()), ("archive", ("-m", "listing"))):
        done = answer(run, project, verb, f"{tool}:6", *more)
        assert [item["id"] for item in done["items"]] == ["B6"], verb


def test_several_blocks_have_no_single_history(run: Run, project: Path) -> None:
    for arguments in (("blame", "user:1"), ("bisect", "user:1")):
        result = run(*arguments, folder=project)
        assert result.exit_code == 1
        assert "several" in result.stderr and "B3-B10" in result.stderr
