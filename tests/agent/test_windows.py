"""A model with a small window of its own is not overrun, is always asked by its own name, and says what it takes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxvc import policies
from ctxvc.agent import Adapter, loop, run, start
from ctxvc.agent.limits import Limits, Spending
from ctxvc.agent.model import TooLong
from ctxvc.agent.workspace import DEFINITIONS, Outcome
from ctxvc.core.policy import Answer
from ctxvc.core.view.budget import Budget
from ctxvc.errors import BadInput, OverBudget
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.tokens.calibration import is_guess
from tests.making.watcher import Silent
from tests.messages_api import call, text
from tests.messages_api.wire import Block

from .local import Local

WINDOW, RESERVE = 8_192, 1_024


class Printer:
    """Hands that give so many lines of code, and no two the same."""

    names = frozenset(tool["name"] for tool in DEFINITIONS)

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._calls = itertools.count(1)

    def run(self, *_: Any) -> Outcome:
        number = next(self._calls)
        return Outcome("".join(f"def f{number}_{line}(x): return x + {line}\n" for line in range(self._lines)).encode())

    def stop(self) -> None: ...


def opened(tmp_path: Path, *, task: str = "Mend it.", policy: str = "default", budget: Budget | None = None) -> Session:
    session = start.begin(
        tmp_path / ".ctxvc",
        "run-1",
        model="local-coder",
        policy=policies.parse(policy),
        window=budget or Budget(WINDOW, RESERVE),
    )
    session.append({"role": "user", "content": task})
    return session


def steps(number: int) -> itertools.chain[list[Block]]:
    calls = ([call("bash", command=f"make {at}")] for at in range(number))
    return itertools.chain(calls, [[text("Done.")]])


def go(session: Session, model: Local, lines: int = 60, **limits: Any) -> loop.Ended:
    return run.go(session, run.Setup(model=model, hands=Printer(lines), watcher=Silent(), limits=Limits(**limits)))


@pytest.mark.parametrize(("a", "b", "lines"), [(900, 0, 200), (1_600, 400, 20), (1_900, 200, 60)])
def test_no_prompt_is_larger_than_the_window_of_a_local_model(tmp_path: Path, a: int, b: int, lines: int) -> None:
    """It would cut the oldest part in silence."""
    model = Local(steps(16), a=a, b=b)
    with opened(tmp_path) as session:
        assert go(session, model, lines).why in ("said", "full")
        assert len(model.sizes) > 10
        assert max(model.sizes) <= WINDOW - RESERVE
        assert model.sizes[0] <= session.budget.effective
        line = session.ledger().meta.calibration
        assert not is_guess(line)
    with Session.open(tmp_path / ".ctxvc", "run-1") as again:
        assert again.ledger().meta.calibration == line, "it is in the session"
        again.append({"role": "user", "content": "And once more."})
        model = Local(steps(4), a=a, b=b)
        go(again, model, lines)
        assert max(model.sizes) <= WINDOW - RESERVE


def test_a_first_prompt_that_may_fill_a_small_window_is_cut_before_anything_is_known_of_its_model(
    tmp_path: Path,
) -> None:
    """As we count them the results fit; 1.6 times as many do not."""
    with opened(tmp_path) as session:
        for at in range(5):
            asked = {"type": "tool_use", "id": f"c{at}", "name": "bash", "input": {"command": "x"}}
            gives = {"type": "tool_result", "tool_use_id": f"c{at}", "content": f"{at} some more of the words\n" * 120}
            session.append({"role": "assistant", "content": [asked]}, {"role": "user", "content": [gives]})
        model = Local(steps(0))
        assert go(session, model).text == "Done."
        assert model.sizes[0] <= WINDOW - RESERVE


def test_a_guess_refuses_nothing_that_may_fit(tmp_path: Path) -> None:
    """By the guess the task alone is too long, by the model's own count it is not."""
    with opened(tmp_path, task="Mend the parser of numbers, please. " * 540) as session:
        assert session.used() > WINDOW
        model = Local(steps(2), a=1_000, b=50)
        assert go(session, model, lines=5).text == "Done."
        assert max(model.sizes) <= WINDOW - RESERVE


# --- what it is called


def test_a_model_is_asked_by_the_name_that_a_person_gave_whatever_a_gateway_replies_as(tmp_path: Path) -> None:
    model = Local(steps(3), a=1_000, b=0)
    with opened(tmp_path) as session:
        assert go(session, model).why == "said"
        assert session.ledger().meta.model == "local-coder"
        session.stored.flush()
        history = revision.history(session.store, session.stored.tip())
        replied = {entry.trailers["Ctxvc-Model"] for entry in history if "Ctxvc-Usage" in entry.trailers}
        assert replied == {"gpt-x-2026"}, "what replied is recorded"
    assert set(model.names) == {"local-coder"}


def test_a_session_of_no_model_takes_the_name_of_the_first_that_replies(tmp_path: Path) -> None:
    with Session.open(tmp_path / ".ctxvc", "demo") as session:
        for name in ("one", "two"):
            session.append({"role": "user", "content": "Say."})
            session.append({"role": "assistant", "model": name, "content": "So."})
        assert session.ledger().meta.model == "one"


# --- what its provider says when it is overrun


@pytest.mark.parametrize(
    ("message", "tokens", "window"),
    [
        ("prompt is too long: 208310 tokens > 200000 maximum", 208_310, 200_000),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, …", 188_240, 200_000),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the "
            "messages, 2000 in the completion).",
            7_000,
            8_192,
        ),
        ("maximum context length is 128,000 tokens, your messages resulted in 130,123 tokens.", 130_123, 128_000),
        ("the request exceeds the available context size", 0, 0),
        ("request (9123 tokens) exceeds the available context size (8192 tokens), try increasing it", 9_123, 8_192),
        ("Input exceeds the configured limit of 272000 tokens: it resulted in 300015 tokens.", 300_015, 272_000),
        ("prompt is too long: 7 tokens > 3 maximum", 7, 0),
        ("prompt is too long", 0, 0),
    ],
)  # fmt: skip
def test_the_sizes_in_a_providers_refusal_are_read(message: str, tokens: int, window: int) -> None:
    error = TooLong(message)
    assert (error.tokens, error.window) == (tokens, window)


@pytest.mark.parametrize("told", ["prompt is too long: {} tokens > {} maximum", "prompt is too long"])
def test_a_window_that_nobody_knew_is_learned_from_the_refusal(tmp_path: Path, told: str) -> None:
    """The session begins with 40,000 tokens that nobody reports, and ends below the window, whose size is told."""
    model = Local(steps(30), window=20_000, refuse=told.format)
    with opened(tmp_path, budget=Budget(40_000, 8_000)) as session:
        assert go(session, model, lines=130).why == "said"
        assert len(model.sizes) == 31
        assert len(model.names) - len(model.sizes) <= (1 if "{" in told else 8), "refused but once where it is told"
        if "{" in told:
            assert session.budget.window == 20_000
            assert session.budget.reserve == 5_000


def test_a_provider_that_never_takes_the_prompt_ends_the_run_with_a_way_on(tmp_path: Path) -> None:
    model = Local(steps(3), window=500, refuse="prompt is too long: {} tokens > {} maximum".format)
    with opened(tmp_path) as session, pytest.raises(OverBudget) as told:
        go(session, model)
    assert told.value.hint
    assert 1 <= len(model.names) <= 4


# --- what fills a prompt that does not fit


def test_what_fills_a_prompt_that_does_not_fit_is_named_with_the_budget_that_would_do(tmp_path: Path) -> None:
    with opened(tmp_path, task="Mend the parser of numbers, please. " * 1_200) as session:
        session.set(calibration=(1_100, 100))
        with pytest.raises(OverBudget) as told:
            session.request()
    words = str(told.value)
    order = [words.index(kind) for kind in ("human text", "the tools", "the system prompt", "pinned blocks")]
    assert order == sorted(order), words
    assert "human text 10,6" in words
    assert "(B2)" in words
    assert "set a budget of 1" in told.value.hint
    assert "allow_user" in told.value.hint


def test_the_budget_that_is_advised_is_enough(tmp_path: Path) -> None:
    with opened(tmp_path, task="Mend the parser of numbers, please. " * 1_200) as session:
        session.set(calibration=(1_300, 100))
        with pytest.raises(OverBudget) as told:
            session.request()
        budget = int(told.value.hint.partition(" tokens")[0].rpartition(" ")[2].replace(",", ""))
        session.set(budget=budget)
        session.request()
        assert session.used() <= session.budget.effective


def test_where_system_prompt_and_tools_fill_the_budget_they_are_named_first(tmp_path: Path) -> None:
    with opened(tmp_path, budget=Budget(1_200)) as session:
        session.set(calibration=(1_100, 0))
        with pytest.raises(OverBudget, match=r"has 1,200: the tools [0-9,]+, the system prompt") as told:
            session.request()
    assert "every call includes them" in told.value.hint


# --- the tokens of a run


@pytest.mark.parametrize("reports", [True, False])
def test_a_run_ends_when_its_prompts_and_replies_took_what_they_may_and_goes_on_later(
    tmp_path: Path, reports: bool
) -> None:
    """Also where the provider reports nothing: then our own counts stand in."""
    model = Local(steps(20), a=1_000, b=0, reports=reports)
    with opened(tmp_path) as session:
        session.set(calibration=(1_000, 0))
        ended = go(session, model, lines=5, tokens=12_000)
        assert ended.why == "tokens"
        reply = 50 if reports else 0
        assert sum(size + reply for size in model.sizes) >= 12_000
        assert sum(size + reply for size in model.sizes[:-1]) < 12_000
        assert not session.stored.in_step
        assert not session.stored.open_calls
        assert go(session, model, lines=5).why == "said"
        assert len(model.sizes) == 21


def test_a_limit_of_tokens_is_a_number() -> None:
    with pytest.raises(BadInput, match="-1 is not a number of tokens"):
        Limits(tokens=-1)


def test_a_reply_may_have_no_more_than_half_of_a_small_window(tmp_path: Path) -> None:
    with opened(tmp_path, budget=Budget(WINDOW)) as session:
        assert Adapter(session).request()["max_tokens"] == WINDOW // 2


def test_the_answer_to_a_policys_question_fits_a_small_window(tmp_path: Path) -> None:
    """Providers refuse a prompt whose reply would not fit behind it."""
    asked: list[int] = []

    class Model:
        def ask(self, call: Mapping[str, Any], *_: object) -> Answer:
            asked.append(call["max_tokens"])
            return Answer("")

    with opened(tmp_path) as session:
        session.set(calibration=(1_000, 0))
        setup = run.Setup(model=Model(), hands=None, watcher=Silent())  # type: ignore[arg-type]
        ask = run._beside(session, Model(), "planner", setup, Spending(Limits()))  # type: ignore[arg-type]
        ask(session.view(), "What may leave?")
    assert asked == [RESERVE]
