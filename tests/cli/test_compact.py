"""`compact` and `context`: room is made on demand, and it is seen what takes the room and what will happen next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.policies.summaries import EXTRACTIVE
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import Run
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


def asked(run: Run, folder: Path, *arguments: str) -> Any:
    result = run(*arguments, "--json", folder=folder)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


# --- compact


def test_old_results_are_cleared_and_people_and_the_newest_stay(run: Run, long: Path) -> None:
    told = asked(run, long, "compact")

    assert [item["what"] for item in told["items"]] == ["cleared"]
    assert told["tokens_after"] <= told["tokens_before"] * 0.42
    assert told["committed"] is True
    prompt = run("prompt", folder=long).stdout
    assert all(f"Question {turn}?" in prompt for turn in range(5))
    assert "Answer 4." in prompt
    printed = prompt.count("what the tool printed")
    assert printed == 7 * 120  # the window is no small one, whatever stands in it
    assert asked(run, long, "status")["used"] == told["tokens_after"]


def test_what_left_is_a_commit_of_the_policy_with_its_reason_and_can_be_taken_back(run: Run, long: Path) -> None:
    before = run("prompt", folder=long).stdout
    told = asked(run, long, "compact")

    (item,) = asked(run, long, "log", "-n", "1")["items"]
    assert item["actor"] == "policy:layered"
    assert item["trailers"]["Ctxvc-Reason"] == told["reason"]
    run("undo", folder=long)
    assert run("prompt", folder=long).stdout == before


def test_where_clearing_is_not_enough_what_is_old_is_summarised(run: Run, long: Path) -> None:
    asked(run, long, "compact")
    told = asked(run, long, "compact")

    assert "summarised" in [item["what"] for item in told["items"]]
    assert told["groups"]
    for group in told["groups"]:
        assert group["stub"].splitlines()[1] == EXTRACTIVE
    prompt = run("prompt", folder=long).stdout
    assert all(f"Question {turn}?" in prompt for turn in range(5))
    # Turns whose results are short stubs are not worth a summary: it would be as long as they are.
    assert "Read x4: src/3/0.py; src/3/1.py; src/3/2.py; src/3/3.py" in prompt
    whole = run("recover", told["groups"][0]["id"], folder=long)
    assert whole.exit_code == 0


def test_in_the_end_nothing_can_leave_and_that_is_no_failure(run: Run, long: Path) -> None:
    for _ in range(8):
        told = asked(run, long, "compact")
        if not told["items"]:
            break
    assert told["committed"] is False
    assert told["tokens_after"] == told["tokens_before"]

    result = run("compact", folder=long)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [told["reason"], "nothing to do"]


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


def test_a_policy_of_ones_own_decides(run: Run, long: Path) -> None:
    (long / "own.py").write_text(
        "from ctxvc.core.plan import Action, Plan\n"
        "from ctxvc.core.policy import Policy\n"
        "class Second(Policy, frozen=True, kw_only=True):\n"
        "    name = 'second'\n"
        "    def propose(self, view):\n"
        "        return Plan(actions=(Action(verb='mask', targets=('B4',)),), actor=self.actor, reason='why not')\n"
    )

    told = asked(run, long, "compact", "--policy", "own.py:Second")

    assert (told["reason"], told["items"]) == ("why not", [{"what": "masked", "blocks": ["B4"]}])


def test_an_empty_session_has_nothing_to_make_room_in(run: Run, tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    with Store(tmp_path / ".ctxvc") as store:
        store.create_session("empty")

    assert run("compact", folder=tmp_path).stdout.splitlines()[-1] == "nothing to do"


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
    assert "the provider's newest count is 1k, the prompt of step 5" in run("context", folder=built).stdout
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


def test_use_is_told_by_file_and_by_turn(run: Run, long: Path) -> None:
    files = {item["name"]: item["blocks"] for item in asked(run, long, "context", "--by", "file")["items"]}
    turns = [item["name"] for item in asked(run, long, "context", "--by", "turn")["items"]]

    assert files["src/3/2.py"] == 2
    assert turns == [f"turn {number}: Question {number - 1}?" for number in range(1, 6)]
