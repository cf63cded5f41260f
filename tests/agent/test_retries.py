"""What the provider says instead of a reply, or in the middle of one: the real client tries again, the run bears it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import pytest

from ctxvc.agent import run
from ctxvc.agent.model import ModelFailed
from ctxvc.agent.provider import Anthropic
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import WORDS, damages
from tests.messages_api import MessagesApi, Refusal, Reply, call, script, serve, text
from tests.messages_api.script import Assistant, overloaded, rate_limited

from .test_run import Eyes, asked, begun, results, setup

#: What the provider answers to an account that has spent all that it may: nothing to wait for.
SPENT = Refusal(429, "rate_limit_error", "Spend limit reached.", error_code="enforced_spend_limit_reached")


#: The seconds that were waited for in a test.
WAITED: list[float] = []


@pytest.fixture(autouse=True)
def _waited() -> None:
    WAITED.clear()


@contextmanager
def provider(assistant: Assistant) -> Iterator[tuple[MessagesApi, Anthropic]]:
    """The server, and the client as people have it: it tries again twice."""
    with serve(assistant) as api, anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=2) as client:
        yield api, Anthropic(client, sleep=WAITED.append)


def kept(session: Session) -> list[str]:
    return [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "assistant"]


def nothing_is_wrong(tmp_path: Path, prompts: int) -> None:
    with Store(tmp_path / ".ctxvc") as store:
        assert not damages(store)
        assert check_prompts(store) == (prompts, [])


def test_a_provider_that_is_busy_for_a_moment_is_asked_again_and_nothing_is_told_twice(tmp_path: Path) -> None:
    said = script([call("bash", command="echo one >> log")], rate_limited(), overloaded(), "Done.")
    with begun(tmp_path) as session, provider(said) as (api, model):
        assert run.go(asked(session), setup(tmp_path, model)).text == "Done."
        assert [call.status for call in api.calls] == [200, 429, 529, 200]
        assert [call.headers["x-stainless-retry-count"] for call in api.calls] == ["0", "0", "1", "2"]
        assert api.calls[1].body == api.calls[2].body == api.calls[3].body
        assert kept(session) == ["Done."]
        assert (tmp_path / "project" / "log").read_text() == "one\n"
    nothing_is_wrong(tmp_path, prompts=2)


def test_a_provider_that_stays_busy_ends_the_run_and_it_goes_on_later(tmp_path: Path) -> None:
    busy = [overloaded(), rate_limited(), overloaded()]
    with begun(tmp_path) as session:
        with (
            provider(script([call("bash", command="echo one >> log")], *busy)) as (_, model),
            pytest.raises(ModelFailed) as told,
        ):
            run.go(asked(session), setup(tmp_path, model))
        assert "busy" in str(told.value)
        assert "wait" in told.value.hint
    with Session.open(tmp_path / ".ctxvc", "run-1") as again, provider(script("Done.")) as (_, model):
        assert run.go(again, setup(tmp_path, model)).text == "Done."
        assert len(results(again)) == 1
        assert (tmp_path / "project" / "log").read_text() == "one\n"
    nothing_is_wrong(tmp_path, prompts=2)


def test_who_has_spent_all_is_told_so_and_no_loop_begins(tmp_path: Path) -> None:
    with begun(tmp_path) as session, provider(script(SPENT, SPENT, SPENT)) as (api, model):
        with pytest.raises(ModelFailed) as told:
            run.go(asked(session), setup(tmp_path, model))
        assert len(api.calls) <= 3
        assert "Spend limit reached" in str(told.value)
        assert "limit" in told.value.hint
        assert "wait" not in told.value.hint
        assert kept(session) == []


def test_a_window_that_is_full_is_relieved_and_the_reply_gone_on_with(tmp_path: Path) -> None:
    full = Reply([text("It begins"), call("bash", command="touch half")], stop_reason="model_context_window_exceeded")
    with begun(tmp_path) as session:
        asked(session)
        for number in range(12):
            asks = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": "x"}}
            gives = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number} {WORDS}" * 120}
            session.append({"role": "assistant", "content": [asks]}, {"role": "user", "content": [gives]})
        before = session.used()
        with provider(script(full, "and goes on.")) as (api, model):
            assert run.go(session, setup(tmp_path, model)).text == "and goes on."
            assert [call.status for call in api.calls] == [200, 200]
        assert session.used() < before * 0.8
        assert not (tmp_path / "project" / "half").exists()
        assert kept(session) == ["It begins", "and goes on."]
    nothing_is_wrong(tmp_path, prompts=2)


def test_a_window_that_stays_full_ends_the_run(tmp_path: Path) -> None:
    full = Reply([text("It begins")], stop_reason="model_context_window_exceeded")
    with begun(tmp_path) as session, provider(lambda _: full) as (api, model):
        run.go(asked(session), setup(tmp_path, model))
        assert len(api.calls) < 6


def test_a_provider_that_refuses_to_go_on_ends_the_run_and_its_calls_are_not_run(tmp_path: Path) -> None:
    refused = Reply([text("I will not."), call("bash", command="touch half")], stop_reason="refusal")
    with begun(tmp_path) as session:
        with provider(script(refused)) as (_, model):
            ended = run.go(asked(session), setup(tmp_path, model))
            assert (ended.why, ended.steps, ended.text) == ("refused", 1, "I will not.")
        assert not (tmp_path / "project" / "half").exists()
        with provider(script("Something else, then.")) as (_, model):
            assert run.go(asked(session, "Then do less."), setup(tmp_path, model)).why == "said"
    nothing_is_wrong(tmp_path, prompts=2)


def cut_short(how: str) -> Reply:
    said = [text("This is not "), call("bash", command="echo twice >> log")]
    return {
        "an error": Reply(said, cut_after=4, error=overloaded()),
        "a broken connection": Reply(said, cut_after=4, broken=True),
        "an early end": Reply(said, cut_after=4),
    }[how]


@pytest.mark.parametrize("how", ["an error", "a broken connection", "an early end"])
def test_a_stream_that_ends_in_its_middle_is_no_reply(tmp_path: Path, how: str) -> None:
    cut, eyes = cut_short(how), Eyes()
    with begun(tmp_path) as session, provider(script(cut, cut, "Whole.")) as (_, model):
        assert run.go(asked(session), setup(tmp_path, model, eyes)).text == "Whole."
        assert kept(session) == ["Whole."]
        assert not (tmp_path / "project" / "log").exists()
    lost = "".join(eyes.words).removesuffix("Whole.").split("\n[connection lost, retrying]\n")
    assert len(lost) == 3
    assert lost[0] == lost[1] != ""
    assert lost[2] == ""
    assert WAITED == [1, 2]
    nothing_is_wrong(tmp_path, prompts=1)


@pytest.mark.parametrize(
    ("how", "words", "hint"),
    [("an error", "Overloaded", "wait"), ("a broken connection", "", "network"), ("an early end", "ended", "network")],
)
def test_streams_that_go_on_ending_in_the_middle_are_waited_for_and_then_the_reason_is_told(
    tmp_path: Path, how: str, words: str, hint: str
) -> None:  # fmt: skip
    with begun(tmp_path) as session, provider(lambda _: cut_short(how)) as (api, model):
        with pytest.raises(ModelFailed, match=f"was interrupted 5 times: .*{words}") as told:
            run.go(asked(session), setup(tmp_path, model))
        assert hint in told.value.hint
        assert len(api.calls) == 5
        assert WAITED == [1, 2, 4, 8]
        assert kept(session) == []
