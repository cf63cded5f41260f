"""One set of figures: a prompt's size and a session's cost are the same wherever they are read, on all recordings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.cli.page.pages import session_page
from ctxvc.inspection.window_percent import UNRECORDED, occupancy
from ctxvc.recording.files import import_paths
from ctxvc.report import data
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.tokens.meter import Meter
from tests.report.conftest import asked

SHARED = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere"))
DATA = Path(__file__).parents[1] / "data"
#: The recordings in the project itself, of the hosts that count and of those that do not.
OWN = sorted(path for path in DATA.glob("*/*.jsonl*") if path.parent.name in ("claude-code", "codex", "pi"))
#: Calls of a recording that are compared at most, and packed bytes from which a recording takes seconds.
CALLS, LARGE = 15, 8_000


def recordings() -> Iterator[Any]:
    yield from (pytest.param(path, id=f"own-{path.name}") for path in OWN)
    folders = ("claude-code", "codex", "pi", "openai-chat", "mini-swe-agent", "swe-agent", "other/copilot-cli")
    shared = [path for folder in folders for path in sorted((SHARED / "transcripts" / folder).glob("*"))]
    for path in (*shared, *sorted((SHARED / "trajectories").glob("*.gz"))):
        packed = path.stat().st_size * (1 if path.suffix == ".gz" else 0.2)
        yield pytest.param(path, id=path.name, marks=[pytest.mark.slow] if packed > LARGE else [])


def number(page: data.Session, name: str) -> float | None:
    return next(one.value for one in page.verdict.numbers if one.name == name)


@pytest.mark.parametrize("path", list(recordings()))
def test_page_status_log_and_sessions_have_the_same_figures(path: Path, tmp_path: Path) -> None:
    with create(tmp_path / FOLDER) as store:
        list(import_paths(store, [path], final=True))
        names = store.sessions()
    assert names
    for name in names[:3]:
        with Store(tmp_path / FOLDER) as store:
            stored = StoredSession.open(store, name)
            stored.leave()
            meter = Meter(store, stored.ledger().meta.tokenizer)
            page = session_page(stored, meter)
            calls, missing = page.calls, page.calls.tokens.get(UNRECORDED, [0] * page.calls.n)
            log = asked(tmp_path, "--session", name, "log", "--usage")
            counted = {item["commit"]: item["prompt"] for item in log["items"]}
            for call in range(0, calls.n, max(1, calls.n // CALLS)):
                snapshot = revision.at(store, calls.commit[call])
                window = occupancy(store, snapshot, meter, meter.costs(snapshot))
                assert calls.total[call] == window.tokens
                assert missing[call] == window.unrecorded
                assert calls.reported[call] == counted.get(calls.commit[call])
                assert window.by_provider == (calls.commit[call] in counted)
                assert calls.total[call] == counted.get(calls.commit[call], window.tokens)
            assert [sum(parts) for parts in zip(*calls.tokens.values(), strict=True)] == calls.total
            assert number(page, "peak") == max(calls.total, default=0)
        (item,) = [item for item in asked(tmp_path, "sessions")["items"] if item["name"] == name]
        priced = [cost for cost in calls.cost if cost is not None]
        assert number(page, "cost") == item["cost"] == (log["dollars"] if log["calls"] > log["unpriced"] else None)
        assert sum(priced) == pytest.approx(item["cost"] or 0, abs=0.005)
        assert item["spent_tokens"] == (log["prompt"] + log["reply"] if log["calls"] else None)
        status = asked(tmp_path, "--session", name, "status")
        assert (page.window, item["window"]) == (status["window"], status["window"])
        assert (item["used"], item["percent"], item["by_provider"]) == (
            status["used"], status["percent"], status["by_provider"],
        )  # fmt: skip
        growth = asked(tmp_path, "--session", name, "context", "main", "--growth")["items"]
        main = [call for call in range(calls.n) if page.scopes[calls.scope[call]].name == "main"]
        assert [one["tokens"] for one in growth] == [calls.total[call] for call in main]


#: What stands in place of a reply's count of its prompt, by the reply's number.
NONSENSE = {5: -4, 7: 10**15, 9: "many", 11: None, 12: 10**30, 13: 0}


def test_a_recording_with_nonsense_for_usage_has_estimates_that_are_called_so(tmp_path: Path) -> None:
    path = DATA / "claude-code" / "20-02395c1048-0.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    ids: list[str] = []
    for line in lines:
        message = line.get("message") or {}
        if line["type"] != "assistant":
            continue
        if message["id"] not in ids:
            ids.append(message["id"])
        if (wrong := NONSENSE.get(len(ids), message["usage"])) is not message["usage"]:
            message["usage"] = (
                {**message["usage"], "input_tokens": wrong, "cache_read_input_tokens": wrong} if wrong else {}
            )
    damaged = tmp_path / path.name
    damaged.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    pages = []
    for folder, file in (("whole", path), ("damaged", damaged)):
        with create(tmp_path / folder / FOLDER) as store:
            (outcome,) = import_paths(store, [file], final=True)
            stored = StoredSession.open(store, outcome.session)
            stored.leave()
            pages.append(session_page(stored, Meter(store, stored.ledger().meta.tokenizer)))
    whole, wrong = pages
    assert wrong.calls.n == whole.calls.n
    estimated = [call for call in range(wrong.calls.n) if wrong.calls.reported[call] is None]
    assert len(estimated) >= 4
    for call in range(wrong.calls.n):
        ours, theirs = wrong.calls.total[call], whole.calls.total[call]
        assert 0.9 < ours / theirs < 1.1 if call in estimated else ours == theirs
        assert (wrong.calls.cost[call] is None) == (call in estimated)
    for call in estimated:
        status = asked(tmp_path / "damaged", "status", wrong.calls.commit[call])
        assert (status["used"], status["by_provider"]) == (wrong.calls.total[call], False)
        assert 0 < status["percent"] <= 50
    assert f"is not recorded for {len(estimated)} of" in " ".join(wrong.verdict.notes)
