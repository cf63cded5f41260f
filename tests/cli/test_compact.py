"""`compact` and `context`: room is made on demand, and it is seen what takes the room and what will happen next."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.cli.conftest import answer as asked
from tests.conftest import Copied

LINES = "\n".join(f"{number}: what the tool printed" for number in range(120))


@pytest.fixture
def long(tmp_path: Path, copied: Copied) -> Path:
    """A session of five turns, each with four results of 1,000 tokens."""
    return copied(_long, tmp_path / "long")


def _long(project: Path) -> None:
    with Session.open(project / ".ctxvc", "long") as session:
        for turn in range(5):
            session.append({"role": "user", "content": f"Question {turn}?"})
            for step in range(4):
                call = f"c{turn}-{step}"
                words = {"type": "text", "text": f"I look at file {step} of turn {turn}."}
                use = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"src/{turn}/{step}.py"}}
                session.append({"role": "assistant", "content": [words, use]})
                result = {"type": "tool_result", "tool_use_id": call, "content": LINES}
                session.append({"role": "user", "content": [result]}, origin="client")
            session.append({"role": "assistant", "content": f"Answer {turn}."})


# --- compact


def test_a_dry_run_says_what_a_real_one_does_and_changes_nothing(run: Run, long: Path) -> None:
    with Session.open(long / ".ctxvc", "long") as session:  # thinking leaves by the cut that comes with it
        session.append({"role": "user", "content": "Think again."}, origin="client")
        for number in range(2):
            thought = {"type": "thinking", "thinking": f"Thought {number}.", "signature": f"s{number}"}
            session.append({"role": "assistant", "content": [thought, {"type": "text", "text": "Well."}]})
    before = run("log", "--json", folder=long).stdout
    tried = asked(run, long, "compact", "--dry-run")

    assert run("log", "--json", folder=long).stdout == before
    assert "nothing was changed" in run("compact", "--dry-run", folder=long).stdout
    done = asked(run, long, "compact")
    assert (tried["committed"], done["committed"]) == (False, True)
    assert tried["items"] == done["items"]
    assert tried["reason"] == done["reason"]
    assert tried["tokens_after"] == done["tokens_after"]
    assert tried["tokens_after"] == done["tokens_after"]


def test_a_focus_keeps_what_its_words_touch(run: Run, long: Path) -> None:
    def gone(*arguments: str) -> set[str]:
        answer = asked(run, long, "compact", "--dry-run", *arguments)
        return {block for item in answer["items"] for block in item["blocks"]}

    with Store(long / ".ctxvc") as store, StoredSession.open(store, "long") as stored:
        (touched,) = [row.id for row in stored.ledger().rows() if (row.call, row.kind) == ("c0-1", "tool_result")]
    assert touched in gone()
    assert touched not in gone("--focus", "keep what SRC/0/1.py has")
    for arguments in (["--focus", "the and"], ["--focus", "src", "--policy", "default"]):
        assert run("compact", "--dry-run", *arguments, folder=long).exit_code == 1


def test_a_budget_sets_the_thresholds(run: Run, long: Path) -> None:
    used = asked(run, long, "status")["used"]
    assert not asked(run, long, "compact", "--dry-run", "--budget", str(used * 2))["items"]
    assert asked(run, long, "compact", "--dry-run", "--budget", str(used * 3 // 2))["items"]


def test_of_many_ids_the_first_are_named(run: Run, long: Path) -> None:
    lines = run("compact", folder=long).stdout.splitlines()
    assert lines[1] == "what\tblocks\tids"
    assert lines[2].startswith("cleared\t1")
    assert lines[2].endswith(" more")
    assert len(lines[2]) < 120


# --- context


def test_context_says_how_far_clearing_and_summaries_are(run: Run, long: Path) -> None:
    told = asked(run, long, "context")
    assert [(threshold["name"], threshold["percent"]) for threshold in told["thresholds"]] == [
        ("clear old results", 60),
        ("summarise", 85),
        ("guard", 98),
    ]
    present = told["used"] + sum(told["since"].values())
    assert all(threshold["ahead"] == threshold["tokens"] - present for threshold in told["thresholds"])


def test_context_measures_by_the_thresholds_of_the_session_itself(run: Run, long: Path) -> None:
    with Store(long / ".ctxvc") as store, Session(StoredSession.open(store, "long")) as session:
        session.set(budget=50_000, reserve=10_000, ladder={"clear": 0.5, "made up": 3.0})
    told = asked(run, long, "context")
    assert (told["window"], told["limit"]) == (50_000, 40_000)
    assert told["thresholds"][0]["percent"] == 50
    assert told["thresholds"][0]["tokens"] == 20_000


def test_context_tells_what_the_provider_counted_last(run: Run, built: Path, long: Path) -> None:
    counted, uncounted = asked(run, built, "context"), asked(run, long, "context")
    usage = asked(run, built, "log", "--usage")["items"][0]
    assert usage["prompt"] == counted["reported"] == 1020
    assert asked(run, built, "status")["reported"] == counted["reported"]
    assert counted["reported_at"] == usage["time"]
    assert not counted["by_provider"], "blocks left since"
    assert "the provider's newest count is 1.0k, the prompt of step 5" in run("context", folder=built).stdout
    assert uncounted["reported"] is None


@pytest.mark.parametrize(("percent", "color"), [(69, 32), (70, 33), (89, 33), (90, 31)])
def test_the_bar_is_yellow_from_70_percent_and_red_from_90(
    percent: int, color: int, run: Run, on_screen: Run, long: Path
) -> None:
    used = asked(run, long, "status")["used"]
    with Store(long / ".ctxvc") as store, Session(StoredSession.open(store, "long")) as session:
        # Of a model that nobody knows, twice our count would be assumed.
        session.set(model="gpt-5", budget=used * 100 // percent)
    shown = on_screen("--color", "always", "context", folder=long).output
    assert asked(run, long, "context")["percent"] == percent
    assert f"\x1b[{color}m[█" in shown
