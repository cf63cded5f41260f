"""How full the window is: the provider's own count of the last prompt over the session's own window, and its parts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.recording.events import Compacted, Event, Opened, Said
from ctxvc.inspection.window_percent import Occupancy, occupancy
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.meter import Meter, WindowOrigin
from tests.cli.conftest import Run, run

__all__ = ["run"]

MODEL = "claude-sonnet-4-5"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / FOLDER) as store:
        yield store


def seen(store: Store, commit: str = "", name: str = "") -> Occupancy:
    """The occupancy of the current session now, or at a commit."""
    stored = StoredSession.open(store, name)
    snapshot = revision.at(store, commit) if commit else revision.now(stored)
    meter = Meter(store, snapshot.ledger.meta.tokenizer)
    return occupancy(store, snapshot, meter, meter.costs(snapshot))


# --- a recording by hand


def human(words: str, at: int) -> Said:
    return Said(message=Message(role="user", parts=(text_part(words, "user", "human"),), key=f"h{at}"), end=at)


def reply(words: str, at: int, prompt: int = 0, *, call: str = "") -> Said:
    """A reply of five tokens, of a call whose prompt the provider counted as `prompt`; of 0 it said nothing."""
    parts = [text_part(words, "assistant", "model")]
    if call:
        parts.append(call_part("Read", call, b'{"path":"a"}'))
    usage = {"input_tokens": 10, "cache_read_input_tokens": prompt - 10, "output_tokens": 5} if prompt else {}
    return Said(message=Message(role="assistant", parts=tuple(parts), key=f"a{at}", model=MODEL, usage=usage), end=at)


def result(call: str, words: str, at: int) -> Said:
    part = result_part(words, call, tool="Read")
    return Said(message=Message(role="user", parts=(part,), key=f"r{at}"), end=at)


def compaction(at: int, *kept: str) -> Compacted:
    summary = Message(role="user", parts=(text_part("what was done so far", "user", "client"),), key=f"s{at}")
    return Compacted(summary=(summary,), end=at, kept=frozenset(kept))


def recorded(store: Store, *events: Event, window: Window | None = None, source: str = "r", final: bool = True) -> None:
    opened = Opened(format="claude-code", source=source, name="r", model=MODEL, window=window, grows=True)
    ingest(store, [opened, *events], final=final)


TALK = (
    human("read a " * 40, 1), reply("I will", 2, 50_000, call="c1"), result("c1", "line " * 400, 3),
    reply("It says line", 4, 52_000, call="c2"), result("c2", "more " * 300, 5),
)  # fmt: skip


def test_the_figure_is_the_providers_count_of_the_last_prompt_and_its_parts_add_up_to_it(store: Store) -> None:
    recorded(store, *TALK)

    window = seen(store)
    assert (window.tokens, window.by_provider, window.window, window.percent) == (52_000, True, 200_000, 26)
    assert window.counted_call is not None and window.counted_call.step == 2
    assert sum(window.recorded.values()) + window.unrecorded == window.tokens
    assert next(iter(window.recorded)) == "results"
    assert set(window.recorded) == {"results", "you", "answers", "calls"}
    assert set(window.since) == {"results", "answers", "calls"}, "the reply and what came after it are not counted"
    assert window.since["results"] >= 300


def test_after_a_compaction_the_figure_is_an_estimate_until_the_next_reply(store: Store) -> None:
    recorded(store, *TALK, compaction(6, "h1"))
    before = seen(store, StoredSession.open(store, "").store.tips("r")["main"])
    assert not before.by_provider and before.counted_call is not None
    assert before.counted_call.usage.prompt == 52_000
    assert before.tokens < 52_000
    assert sum(before.recorded.values()) + before.unrecorded == before.tokens

    recorded(store, *TALK, compaction(6, "h1"), reply("done", 7, 48_000))
    window = seen(store)
    assert (window.tokens, window.by_provider) == (48_000, True)
    assert sum(window.recorded.values()) + window.unrecorded == 48_000


def test_a_verb_that_changes_the_prompt_makes_the_figure_an_estimate(store: Store) -> None:
    recorded(store, *TALK)
    with Session(StoredSession.open(store, "r"), actor="user") as session:
        session.note("a note is only added")
        assert seen(store).by_provider
        session.archive(["B4"], index="the file")

    assert not seen(store).by_provider
    assert seen(store).tokens < 52_000


def test_a_count_smaller_than_our_own_leaves_nothing_unrecorded(store: Store) -> None:
    recorded(store, *(msgspec.structs.replace(event) for event in TALK[:3]), reply("It says line", 4, 100))

    window = seen(store)
    assert (window.tokens, window.unrecorded, sum(window.recorded.values())) == (100, 0, 100)


def test_without_a_count_the_figure_is_an_estimate_of_the_same_prompt_by_the_newest_count(store: Store) -> None:
    recorded(store, human("hello", 1), reply("yes", 2))
    window = seen(store)
    assert (window.by_provider, window.counted_call, window.unrecorded) == (False, None, 0)
    assert window.tokens == sum(window.recorded.values()) > 0
    assert (set(window.recorded), set(window.since)) == ({"you"}, {"answers"})

    recorded(store, *TALK, reply("done", 6), source="other")
    window = seen(store)
    assert not window.by_provider and window.counted_call is not None
    assert 52_300 < window.tokens < 53_500, "the counted prompt, a reply and a result of some hundred tokens"
    assert window.unrecorded > 45_000


#: Usage that no call can have: the prompt's size is not known then.
NONSENSE = {
    "negative": {"input_tokens": -1, "cache_read_input_tokens": 90_000},
    "huge": {"input_tokens": 10**15, "output_tokens": 5},
    "of more digits than a number has": {"input_tokens": 10**40},
    "a huge reply": {"input_tokens": 100, "output_tokens": 10**12},
    "more cached than there is": {"prompt_tokens": 10, "cached_tokens": 90_000, "completion_tokens": 1},
    "nothing": {"input_tokens": 0, "output_tokens": 7},
}


@pytest.mark.parametrize("usage", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_no_count(store: Store, usage: dict[str, int]) -> None:
    said = reply("done", 6, 10)
    recorded(store, *TALK, msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, usage=usage)))

    window = seen(store)
    assert not window.by_provider and window.counted_call is not None
    assert window.counted_call.usage.prompt == 52_000
    assert 52_300 < window.tokens < 53_500
    assert window.percent == 26
    recorded(store, *TALK, reply("done", 6, 10), human("and?", 7), reply("no", 8, 60_000))
    assert seen(store).by_provider


@pytest.mark.parametrize(
    ("model", "window", "size", "origin"),
    [
        (MODEL, None, 200_000, "table"),
        ("some-model", None, 200_000, "assumed"),
        ("claude-sonnet-4-5[1m]", None, 1_000_000, "name"),
        ("gpt-5", Window(tokens=258_400, by="host"), 258_400, "host"),
        ("claude-opus-4-6", Window(tokens=200_000, by="compaction", compacts=167_000), 200_000, "compaction"),
        ("claude-opus-4-6", Window(tokens=400_000, by="settings", compacts=367_000), 400_000, "settings"),
        (MODEL, Window(tokens=400_000, by="settings", compacts=367_000), 200_000, "table"),
    ],
)
def test_the_window_is_the_sessions_own_and_the_table_comes_last(
    store: Store, model: str, window: Window | None, size: int, origin: WindowOrigin
) -> None:
    opened = Opened(format="claude-code", source="r", name="r", model=model, window=window)
    ingest(store, [opened, human("hello", 1), msgspec.structs.replace(reply("yes", 2))])
    with Session(StoredSession.open(store, "r")) as session:
        if model != MODEL:
            session.set(model=model, window=window.tokens if window else 0, window_by=window.by if window else "")

        assert (seen(store).window, seen(store).window_by) == (size, origin)
        assert session.budget.window == size


def test_a_window_that_a_person_gave_outlasts_the_recordings(store: Store) -> None:
    recorded(store, *TALK, window=Window(tokens=1_000_000, by="command"))
    with Session(StoredSession.open(store, "r")) as session:
        session.set(window=150_000)
    recorded(store, *TALK, reply("done", 7, 53_000), window=Window(tokens=1_000_000, by="command"))
    assert (seen(store).window, seen(store).window_by, seen(store).compacts) == (150_000, "set", 0)

    with Session(StoredSession.open(store, "r")) as session:
        session.set(window=140_000, window_by="a later version")  # an unknown word does no harm
    assert (seen(store).window, seen(store).window_by) == (140_000, "set")


def test_plans_for_an_imported_session_count_as_its_provider_did_and_only_what_is_recorded(store: Store) -> None:
    recorded(store, *TALK)
    with Session(StoredSession.open(store, "r"), actor="user") as session:
        view = session.view()
        assert view.counted > 0 and session.used() == view.counted * 1200 // 1000
        assert session.ledger().meta.calibration == Calibration(), "looking writes nothing"

    path = store.path
    store.close()
    with Session.open(path, "r") as session:
        assert session.ledger().meta.calibration == (1200, 0), "no host's system prompt is in a request of ours"


# --- recordings of others


def raw_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield json.loads(line)


def total(usage: dict[str, Any], *names: str) -> int:
    return sum(usage.get(name) or 0 for name in names)


def codex_counts(path: Path) -> Iterator[tuple[int, int] | None]:
    """Count and window of each call; None for a compaction."""
    before = None
    for line in raw_lines(path):
        payload = line.get("payload", {})
        if line["type"] == "compacted":
            yield None
        elif payload.get("type") == "token_count" and (info := payload.get("info")):
            if info["total_token_usage"] != before:
                yield info["last_token_usage"]["input_tokens"], info["model_context_window"]
            before = info["total_token_usage"]


def claude_code_counts(path: Path) -> Iterator[tuple[int, int] | None]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    for line in raw_lines(path):
        message = line.get("message", {})
        if line.get("subtype") == "compact_boundary":
            yield None
        elif line["type"] == "assistant" and message.get("model") != "<synthetic>" and not line.get("isSidechain"):
            yield total(message["usage"], *names), 200_000


def pi_counts(path: Path) -> Iterator[tuple[int, int] | None]:
    for line in raw_lines(path):
        if line["type"] == "compaction":
            yield None
        elif (usage := line.get("message", {}).get("usage")) and line["message"]["content"]:
            yield total(usage, "input", "cacheRead", "cacheWrite"), 200_000


#: Recordings that others are like, and that take longer.
LARGE = {
    "claude-code/48-b4b05476e5-0.jsonl",
    "claude-code/7e-c034df6095-2.jsonl",
    "codex/00-34f597b72d-1.compacted.jsonl.gz",
    "codex/a5-7b22d8d4bd-0.jsonl",
}
COUNTS: dict[str, Callable[[Path], Iterator[tuple[int, int] | None]]] = {
    "claude-code/20-02395c1048-0.jsonl": claude_code_counts,
    "claude-code/48-b4b05476e5-0.jsonl": claude_code_counts,
    "claude-code/7e-c034df6095-2.jsonl": claude_code_counts,
    "claude-code/86-9d11344fce-1.compacted.jsonl.gz": claude_code_counts,
    "codex/00-34f597b72d-1.compacted.jsonl.gz": codex_counts,
    "codex/a3-92ff332928-0.jsonl": codex_counts,
    "codex/a5-7b22d8d4bd-0.jsonl": codex_counts,
    "pi/before-compaction.jsonl.gz": pi_counts,
}


def test_every_recording_with_counts_is_looked_at(recordings: Path) -> None:
    folders = ("claude-code", "codex", "pi")
    assert set(COUNTS) == {
        f"{folder}/{path.name}" for folder in folders for path in (recordings / "transcripts" / folder).iterdir()
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in COUNTS]
)
def test_the_percent_is_the_providers_count_over_the_sessions_own_window(
    recordings: Path, tmp_path: Path, run: Run, name: str
) -> None:
    """At the last step, and at the first reply after each compaction; between the two it is an estimate."""
    path = recordings / "transcripts" / name
    counts = list(COUNTS[name](path))
    after = [count for before, count in pairwise(counts) if before is None and count]
    with create(tmp_path / FOLDER) as store:
        (outcome,) = import_paths(store, [path], final=True)
        tip = store.tips(outcome.session)[StoredSession.open(store, outcome.session).scope]
        entries = list(revision.history(store, tip))[::-1]
        compactions = [at for at, entry in enumerate(entries) if entry.trailers.get("Ctxvc-Op") == "compact"]
        assert len(compactions) == len(after)
        for at, (tokens, size) in zip(compactions, after, strict=True):
            between = seen(store, entries[at].commit)
            assert not between.by_provider
            assert sum(between.recorded.values()) + between.unrecorded == between.tokens
            first = next(entry.commit for entry in entries[at:] if entry.usage)
            window = seen(store, first)
            assert (window.tokens, window.window, window.by_provider) == (tokens, size, True)
            assert window.percent == tokens * 100 // size
            assert sum(window.recorded.values()) + window.unrecorded == tokens
            # Between the compaction and the reply our figure is near what the provider then counts.
            assert 0.6 < between.tokens / tokens < 1.6

    answer = json.loads(run("status", "--json", folder=tmp_path).stdout)
    last = next(count for count in reversed(counts) if count)
    assert (answer["reported"], answer["window"]) == last
    # The last call of one recording was interrupted before it was counted.
    assert answer["by_provider"] is (name != "codex/a3-92ff332928-0.jsonl")
    assert answer["used"] == last[0] if answer["by_provider"] else last[0] < answer["used"] < 1.5 * last[0]
    assert answer["percent"] == answer["used"] * 100 // last[1]
    assert sum(answer["recorded"].values()) + answer["unrecorded"] == answer["used"]
    shown = run("status", folder=tmp_path).stdout
    assert f" {answer['percent']} % " in shown
