"""`recover`: exact bytes for a person, parts for whoever asks for them, and each reading is recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxvc.cli import main
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.cli.conftest import STEERING, Run
from tests.making.project import HOSTILE

ROOT = str(Path(main.__file__).parents[2])
LISTING = "\n".join(f"{number}: assert add({number}, 1) == {number + 1}" for number in range(40))


def answer(run: Run, project: Path, *arguments: str) -> Any:
    result = run(*arguments, "--json", folder=project)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def reads(run: Run, project: Path, block: str, *arguments: str) -> int:
    return int(answer(run, project, *arguments, "show", block)["row"].get("reads", 0))


def test_a_person_gets_the_exact_bytes_and_no_end_of_line_more(run: Run, project: Path) -> None:
    odd = f"{HOSTILE}\nuser B1\n  lone \ud800 surrogate".encode("utf-8", "surrogatepass")
    arguments = ["--session", "hostile", "recover", "B3"]
    env = {"PYTHONPATH": ROOT, "HOME": str(project)}
    process = subprocess.run(
        [sys.executable, "-m", "ctxvc", *arguments], cwd=project, env=env, capture_output=True, check=True
    )
    assert process.stdout == odd == run(*arguments, folder=project).stdout_bytes
    assert run("recover", "B6", folder=project).stdout_bytes == LISTING.encode()
    assert run(*arguments[:3], "B1", folder=project).stdout_bytes == f"question {HOSTILE}".encode()


def test_json_has_the_bytes_and_their_checksum(run: Run, project: Path) -> None:
    (item,) = answer(run, project, "recover", "B6")["items"]

    data = base64.b64decode(item["base64"])
    assert data == LISTING.encode()
    assert hashlib.sha256(data).hexdigest() == item["sha256"]
    assert item["handle"] == f"B6@{item['sha256'][:6]}"


def test_its_state_stays_and_every_reading_is_counted(run: Run, project: Path) -> None:
    for arguments in ([], ["--lines", "1:2"], ["--grep", "assert"], ["--actor", "agent"], ["--file"], ["--json"]):
        assert run("recover", "B6", *arguments, folder=project).exit_code == 0

    assert reads(run, project, "B6") == 6
    assert answer(run, project, "show", "B6")["row"]["state"] == "archived"


def test_a_reading_in_a_session_at_rest_is_a_commit(run: Run, project: Path) -> None:
    arguments = ["--session", "branched"]
    run(*arguments, "recover", "B1", "--lines", "1", folder=project)
    run(*arguments, "recover", "agent-1:B5", folder=project)

    elsewhere, here = [item["subject"] for item in answer(run, project, *arguments, "log", "-n", "2")["items"]]
    assert re.fullmatch(r"recover B1@[0-9a-f]{6}, lines 1-1 of 1", here)
    assert re.fullmatch(r"recover branched/agent-1:B5@[0-9a-f]{6}", elsewhere)


def test_the_parts_that_an_agent_reads_are_together_the_whole(run: Run, project: Path) -> None:
    words, parts = ["recover", "B6"], ""
    for _ in range(40):
        part = answer(run, project, *words, "--actor", "agent", "--max-tokens", "120")
        assert part["tokens"] <= 120
        parts += part["content"]
        if part["complete"]:
            break
        assert part["header"].endswith(f"next: {part['next']}]")
        words = part["next"].split()

    assert parts == LISTING


@pytest.mark.parametrize(
    ("words", "content"),
    [
        (["--lines", "2:3"], "1: assert add(1, 1) == 2\n2: assert add(2, 1) == 3\n"),
        (["--lines", "40"], "39: assert add(39, 1) == 40"),
        (["--lines", "39:"], "38: assert add(38, 1) == 39\n39: assert add(39, 1) == 40"),
        (["--chars", "4:9"], "assert"),
        (["--grep", "^3: "], "4: 3: assert add(3, 1) == 4\n"),
        (["--grep", "(3, 1", "-F"], "4: 3: assert add(3, 1) == 4\n"),
        (["--grep", "nowhere"], ""),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_part_is_what_its_option_names(words: list[str], content: str, run: Run, project: Path) -> None:
    assert answer(run, project, "recover", "B6", *words)["content"] == content
    told = run("recover", "B6", *words, folder=project).stdout
    assert told.startswith("[recovered B6@")
    assert told.partition("\n")[2].rstrip("\n") == content.rstrip("\n")


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


def test_a_file_of_another_session_is_that_one_s_and_not_this_one_s_of_the_same_number(run: Run, project: Path) -> None:
    here = Path(run("recover", "B3", "--file", folder=project).stdout.strip())
    there = Path(run("recover", "branched/main:B3", "--file", folder=project).stdout.strip())

    assert here.read_text() == "I will look at the test."
    assert there.read_text() == "With a password"


def test_a_file_of_a_block_that_is_in_no_commit_yet_is_refused(run: Run, project: Path) -> None:
    result = run("recover", "B15", "--file", folder=project)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "B15 is not committed yet" in result.stderr
    assert run("recover", "B15", folder=project).stdout == "Anything else?"


def test_a_file_where_a_person_edited_the_checkout_is_refused_and_the_edit_is_kept(run: Run, project: Path) -> None:
    path = Path(run("recover", "B3", "--file", folder=project).stdout.strip())
    path.write_text("mine")

    result = run("recover", "B6", "--file", folder=project)

    assert result.exit_code == 1
    assert "was changed" in result.stderr
    assert path.read_text() == "mine"


def test_what_is_added_is_in_the_prompt_as_a_program_s_words_and_bounded(run: Run, project: Path) -> None:
    result = run("recover", "B6", "--max-tokens", "90", "--add", folder=project)

    row = answer(run, project, "show", "B16")["row"]
    assert (row["kind"], row["role"], row["origin"]) == ("user", "user", "client")
    # As in every prompt of ours: recorded words cannot pass for a header of ours, and this one is recorded.
    assert result.stdout.splitlines()[1] in run("prompt", folder=project).stdout
    assert "next: recover B6 --lines" in result.stdout


@pytest.mark.parametrize("words", [[], ["--lines", "1:"], ["--actor", "agent"], ["--all"]], ids=" ".join)
def test_nothing_recorded_can_steer_a_terminal(words: list[str], on_screen: Run, project: Path) -> None:
    for block in ("B1", "B2", "B3", "B4"):
        result = on_screen("--color", "never", "--session", "hostile", "recover", block, *words, folder=project)
        assert result.exit_code == 0
        assert not STEERING.search(result.output)


def test_a_picture_is_no_text_on_a_terminal(on_screen: Run, project: Path) -> None:
    result = on_screen("--color", "never", "recover", "B9", folder=project)

    assert result.exit_code == 0
    assert "[image B9-1.png]" in result.output


def test_after_all_of_it_the_store_is_in_order(run: Run, project: Path) -> None:
    for arguments in (
        ["B6", "--file"],
        ["G1", "--all"],
        ["branched/main:B3", "--file"],
        ["B6", "--lines", "1", "--add"],
    ):
        assert run("recover", *arguments, folder=project).exit_code == 0
    with Store(project / ".ctxvc") as store:
        assert verify(store).findings == ()


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


def test_an_unknown_name_gets_a_suggestion(run: Run, project: Path) -> None:
    tool = answer(run, project, "show", "B6")["row"]["tool"]
    wrong = f"x{tool}:6"
    for arguments in (("archive", wrong), ("recover", wrong), ("show", wrong), ("blame", wrong)):
        result = run(*arguments, folder=project)
        assert result.exit_code == 1, arguments
        assert f"did you mean function:{tool}:6?" in result.stderr, arguments


def test_several_blocks_have_no_single_history(run: Run, project: Path) -> None:
    for arguments in (("blame", "user:1"), ("bisect", "user:1")):
        result = run(*arguments, folder=project)
        assert result.exit_code == 1
        assert "several" in result.stderr and "B3-B10" in result.stderr
