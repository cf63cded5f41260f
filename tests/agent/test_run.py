"""`ctxvc run` as a whole: the loop on the real client and a real folder, helpers, limits, and going on."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import pytest

from ctxvc import policies
from ctxvc.agent import TOOLS, Adapter, run, start
from ctxvc.agent import start as start_module
from ctxvc.agent.call import result
from ctxvc.agent.limits import Limits
from ctxvc.agent.loop import DELEGATE
from ctxvc.agent.model import ModelFailed, Scripted
from ctxvc.agent.provider import Anthropic
from ctxvc.agent.server import behind
from ctxvc.agent.tools.definitions import definitions
from ctxvc.agent.workspace import DEFINITIONS, Outcome, Workspace
from ctxvc.core.display import decode
from ctxvc.core.prompt.request import canonical
from ctxvc.errors import BadInput, OverBudget
from ctxvc.policies import parse
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.tokens import models
from tests.making.provider import MODEL, WORDS, damages, plain
from tests.messages_api import MessagesApi, Refusal, Reply, call, script, serve, text, thought

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@dataclass
class Eyes:
    """A watcher that keeps what it saw."""

    words: list[str] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    steps: int = 0
    stop_after: int = 1_000

    def said(self, words: str) -> None:
        self.words.append(words)

    def called(self, name: str, given: Mapping[str, Any]) -> None:
        self.calls.append((name, given))

    def answered(self, name: str, outcome: Outcome) -> None:
        pass

    def stepped(self, adapter: Adapter) -> None:
        assert adapter.session.budget
        self.steps += 1

    def stops(self) -> bool:
        return self.steps >= self.stop_after


def begun(tmp_path: Path, *, window: int = 60_000, policy: str = "default") -> Session:
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    session = start_module.begin(
        tmp_path / ".ctxvc", "run-1", model=MODEL, policy=policies.parse(policy), window=window, folder=folder
    )
    return plain(session, (1_500, 0))


def setup(tmp_path: Path, model: Any, eyes: Eyes | None = None, **limits: Any) -> run.Setup:
    hands = Workspace(tmp_path / "project", env=ENV)
    return run.Setup(model=model, hands=hands, watcher=eyes or Eyes(), limits=Limits(**limits))


CLIENTS: list[anthropic.Anthropic] = []


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def real(api: MessagesApi) -> Anthropic:
    CLIENTS.append(anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0))
    return Anthropic(CLIENTS[-1], sleep=lambda _: None)


def asked(session: Session, words: str = "do it") -> Session:
    session.append({"role": "user", "content": words})
    return session


def results(session: Session) -> list[str]:
    return [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "tool_result"]


# --- one run


def test_a_run_acts_in_its_folder_and_everything_is_recorded(tmp_path: Path) -> None:
    replies = script(
        [thought("First look."), call("write_file", path="a.txt", content="one"), call("bash", command="cat a.txt")],
        [thought("Good."), text("It is "), text("done.")],
    )
    eyes = Eyes()
    with serve(replies) as api, begun(tmp_path) as session:
        ended = run.go(asked(session), setup(tmp_path, real(api), eyes))

        assert (ended.why, ended.steps, ended.text) == ("said", 2, "It is done.")
        assert ended.usage.prompt > 1_000
        assert ended.dollars is not None
        assert results(session) == ["wrote 3 bytes to a.txt", "one"]
        assert (tmp_path / "project" / "a.txt").read_text() == "one"
        assert "".join(eyes.words) == "It is done."
        assert [name for name, _ in eyes.calls] == ["write_file", "bash"]
    with Store(tmp_path / ".ctxvc") as store:
        assert not damages(store)


def test_what_the_model_is_told_at_first_is_short(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        meter = session._context.meter
        assert meter.count(start_module.system(TOOLS)) < 1_000


@pytest.mark.parametrize("spec", ["default", "keep", "layered", "scoped", "self_managed:recover=off"])
def test_what_it_is_told_at_first_fits_the_tools_that_it_has(tmp_path: Path, spec: str) -> None:
    with start_module.begin(tmp_path / ".ctxvc", "work", model=MODEL, policy=parse(spec), window=64_000) as session:
        session.append({"role": "user", "content": "Do it."})
        request = session.request()
        names = {tool["name"] for tool in request.tools}
        assert ("can be recovered" in request.system) == ("recover" in names)
        assert ("a separate scope" in request.system) == ("scope" in names)
        assert "end of long output; all" in request.system or "end of long output.\n" in request.system
        assert "{" not in request.system
        assert ("recover" in names) == (spec != "self_managed:recover=off")


def test_what_the_folders_files_instruct_stands_pinned(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "project" / "CLAUDE.md").write_text("Run the tests.")
    with begun(tmp_path) as session:
        told = [session.body(row.id).decode() for row in session.ledger().rows() if row.state == "pinned"]
        assert [words.partition("\n")[0] for words in told[1:]] == [
            "AGENTS.md of this project says:",
            "CLAUDE.md of this project says:",
        ]


def told(folder: Path) -> list[str]:
    """The first line of what each instruction file says, and what is missing of it."""
    return [
        f"{each.message.parts[0].body.decode().partition(' of this')[0]} {each.truncated}".rstrip()
        for each in start.read(folder)
    ]


def test_instructions_are_those_of_the_whole_project_down_to_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "a" / "b"
    folder.mkdir(parents=True)
    for place in (tmp_path, tmp_path / "project", folder):
        (place / "AGENTS.md").write_text(f"of {place}")
    assert told(folder) == ["AGENTS.md"]
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    assert told(folder) == ["../../AGENTS.md", "AGENTS.md"]
    assert told(tmp_path / "project") == ["AGENTS.md"]


def test_instructions_come_from_files_of_the_project_only_and_each_once(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "key").write_text("secret")
    (folder / "AGENTS.md").symlink_to("../key")
    os.mkfifo(folder / "CLAUDE.md")
    assert told(folder) == []
    (folder / "AGENTS.md").unlink()
    (folder / "AGENTS.md").symlink_to("AGENTS.md")
    assert told(folder) == []
    for name in ("AGENTS.md", "CLAUDE.md"):
        (folder / name).unlink()
    (folder / "AGENTS.md").write_text("Use tabs.")
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "sub" / "CLAUDE.md").symlink_to("../AGENTS.md")
    assert told(folder) == ["AGENTS.md"]
    assert told(folder / "sub") == ["../AGENTS.md"]


def test_instructions_that_are_too_long_are_cut_and_both_are_told(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs, é.\n" * 10_000)
    notes: list[str] = []
    with start_module.begin(
        tmp_path / ".ctxvc", "run-1", model=MODEL, policy=policies.parse("default"), folder=tmp_path, note=notes.append
    ) as session:
        (words,) = [words for row in session.ledger().rows() if (words := session.body(row.id).decode())[:3] == "AGE"]
    cut = "the first 65,534 of 140,000 bytes of AGENTS.md"
    assert words.endswith(f"Use tabs, é.\n[{cut}]")
    assert notes == [f"the model gets only part of it: {cut}"]


def test_of_an_output_with_progress_the_end_is_shown_and_all_is_kept(tmp_path: Path) -> None:
    command = r"for i in $(seq 1 3000); do printf '\rstep %d of 3000, working on it' $i; done; echo"
    replies = script([call("bash", command=command)], "done")
    with serve(replies) as api, begun(tmp_path) as session:
        run.go(asked(session), setup(tmp_path, real(api)))

        (row,) = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert session.body(row.id).startswith(b"\rstep 1 of 3000")
        assert row.state == "archived"
        assert row.stub.endswith("\nstep 3000 of 3000, working on it")
        sent = json.dumps(api.bodies[-1]["messages"])
        assert "step 3000 of 3000" in sent
        assert "step 17 of" not in sent
        assert session.recover(row.id, grep="step 17 of").text


def test_output_that_is_no_text_is_kept_byte_for_byte_and_shown_as_text(tmp_path: Path) -> None:
    """Also a secret among such bytes is taken out, and the prompt that was sent can be made again."""
    given = b"caf\xe9 \xff\xfe\0 token=ghp_" + b"aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5" + b" \xed\xa0\x80 end\n"
    with serve(script([call("bash", command="cat output")], "done")) as api, begun(tmp_path) as session:
        (tmp_path / "project" / "output").write_bytes(given)
        run.go(asked(session), setup(tmp_path, real(api)))

        (row,) = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        head, _, rest = session.body(row.id).partition(b"[REDACTED:")
        assert (row.ext, head) == ("bin", given.partition(b"ghp_")[0])
        assert rest.endswith(b"] \xed\xa0\x80 end\n")
        assert [body for _, body in session.recover_bytes(row.id)] == [session.body(row.id)]
        sent = json.dumps(api.bodies[-1]["messages"], ensure_ascii=False)
        assert "caf\ufffd \ufffd\ufffd\\u0000 token=[REDACTED:" in sent
        session.stored.flush()
        assert not check_prompts(session.store)[1]
        assert not damages(session.store)


def test_a_person_stops_it_at_a_steps_end_and_it_goes_on_from_there(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        with serve(script([call("bash", command="echo one")])) as api:
            ended = run.go(asked(session), setup(tmp_path, real(api), Eyes(stop_after=1)))
        assert ended.why == "stopped"
        assert not session.stored.in_step
    with Session.open(tmp_path / ".ctxvc", "run-1") as again, serve(script("And on.")) as api:
        assert run.go(again, setup(tmp_path, real(api))).text == "And on."
        assert results(again) == ["one\n"]


# --- what goes wrong


@pytest.mark.parametrize("times", [1, 4])
def test_a_prompt_that_stays_too_long_ends_the_run_with_a_way_on(tmp_path: Path, times: int) -> None:
    too_long = Refusal(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
    with begun(tmp_path) as session:
        asked(session)
        if times == 4:
            for number in range(12):
                asks = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": "x"}}
                gives = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number} {WORDS}" * 250}
                session.append({"role": "assistant", "content": [asks]}, {"role": "user", "content": [gives]})
        with serve(lambda _: too_long) as api, pytest.raises(OverBudget, match="208310") as told:
            run.go(session, setup(tmp_path, real(api)))
        assert len(api.calls) == times
        assert "budget" in told.value.hint


def test_a_reply_that_is_too_long_is_gone_on_with(tmp_path: Path) -> None:
    half = Reply([text("It begins"), call("bash", command="touch half")], stop_reason="max_tokens")
    with serve(script(half, [text("and goes on.")])) as api, begun(tmp_path) as session:
        ended = run.go(asked(session), setup(tmp_path, real(api)))
        assert ended.text == "and goes on."
        assert not (tmp_path / "project" / "half").exists()


# --- helpers

FOLLOWS = "{} has reported; its report follows as a note."


def joined(session: Session) -> list[str]:
    """The scopes whose newest commit is the second parent of a commit of the session's scope, oldest first."""
    session.stored.flush()
    tips = {session.stored.tip(name): name for name in session.scopes()}
    said = program.run(session.store.path, "log", "--merges", "--reverse", "--format=%P", session.stored.tip())
    return [tips[line.split()[1]] for line in decode(said).splitlines()]


def test_helpers_work_at_the_same_time_in_scopes_of_their_own_and_bring_back_their_reports(tmp_path: Path) -> None:
    both = "until [ -e docs ] && [ -e code ]; do sleep 0.02; done"

    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        for name in ("docs", "code"):
            if f"look at the {name}" in content and "delegate" not in content:
                if f"{name} looked at" not in content:
                    return [call("bash", command=f"touch {name}; {both}; echo {name} looked at", timeout=30)]
                return f"The {name} are fine."
        if "are fine" not in content:
            return [call("delegate", name=name, task=f"look at the {name}") for name in ("docs", "code")]
        return "All is fine."

    with serve(assistant) as api, begun(tmp_path) as session:
        eyes = Eyes()
        ended = run.go(asked(session), setup(tmp_path, real(api), eyes))
        assert (ended.text, ended.steps) == ("All is fine.", 6)
        assert "".join(eyes.words) == "All is fine.", "what helpers say is not the agent's answer"
        for name in ("docs", "code"):
            (looked,) = (row for row in session.ledger(name).rows() if row.kind == "tool_result")
            assert not looked.error, "they did not work at the same time"
        assert results(session) == [FOLLOWS.format(name) for name in ("docs", "code")]
        assert [note.text for note in session.notes()] == ["[← docs] The docs are fine.", "[← code] The code are fine."]
        sent = json.dumps(api.bodies[-1]["messages"])
        assert sent.count("The docs are fine") == 1
        assert joined(session) == ["docs", "code"]
        assert session.scopes() == ["main", "code", "docs"]
        assert session.scope == "main"
        assert session.store.current_scope("run-1") == "main"
        rows = list(session.ledger("docs").rows())
        assert [row.kind for row in rows if row.kind != "dashboard"] == [
            "user",
            "user",
            "tool_use",
            "tool_result",
            "assistant",
        ]
        assert [row.origin for row in rows[:2]] == ["client", "client"]
    with Store(tmp_path / ".ctxvc") as store:
        assert not damages(store)


def reporting(request: Mapping[str, Any]) -> Any:
    """Two helpers that report at once, and who sent them."""
    content = json.dumps(request["messages"])
    for name in "ab":
        if f"you are {name}" in content and "delegate" not in content:
            return f"It is {name}."
    return (
        "Done." if "tool_result" in content else [call("delegate", name=name, task=f"you are {name}") for name in "ab"]
    )


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("written", [0, 1])
def test_reports_whose_notes_a_kill_prevented_arrive_with_the_next_run_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    arrive, made = StoredSession.arrive, list[str]()

    def dying(writer: StoredSession, left: str, *rest: Any, **more: Any) -> None:
        if len(made) == written:
            raise Killed
        made.append(left)
        arrive(writer, left, *rest, **more)

    with serve(reporting) as api:
        with monkeypatch.context() as patched, begun(tmp_path) as session:
            patched.setattr(StoredSession, "arrive", dying)
            with pytest.raises(Killed):
                run.go(asked(session), setup(tmp_path, real(api)))
        for _ in range(2):
            with Session.open(tmp_path / ".ctxvc", "run-1") as session:
                assert run.go(session, setup(tmp_path, real(api))).text == "Done."
                assert [note.text for note in session.notes()] == ["[← a] It is a.", "[← b] It is b."]
                assert joined(session) == ["a", "b"]
                assert not damages(session.store)
        assert len(api.calls) == 4, "a helper worked twice"


def test_a_step_that_is_open_in_a_helpers_scope_is_complete_when_its_report_arrives(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        asked(session).append({"role": "assistant", "content": "yes"})
        session.stored.branch("a", "task")
        with Session.open(tmp_path / ".ctxvc", "run-1", scope="a") as helper:
            helper.append({"role": "user", "content": "and more"}, origin="client")
        session.stored.refresh()
        session.stored.arrive("a", "It is a.", of="B1")
        session.stored.flush()
        assert not session.stored.waiting()
        assert joined(session) == ["a"]
        assert not damages(session.store)


def test_a_report_that_is_no_note_for_its_length_stays_a_result(tmp_path: Path) -> None:
    long = "It is long. " * 400

    def assistant(request: Mapping[str, Any]) -> Any:
        said = reporting(request)
        return long if said == "It is a." else said

    with serve(assistant) as api, begun(tmp_path) as session:
        run.go(asked(session), setup(tmp_path, real(api)))
        told, _ = (row for row in session.ledger().rows() if row.kind == "tool_result")
        first, _ = session.notes()
        assert session.body(told.id).decode() == f"a reports:\n{long}"
        assert first.text.endswith(f"… (all of it is {told.handle})")
        assert len(first.text) < 500
        (turn,) = run.recorded(session)
        assert [outcome.output.decode() for _, outcome in turn.results] == [
            f"a reports:\n{long}",
            "b reports:\nIt is b.",
        ]


def test_a_recording_cannot_say_that_a_helper_reported(tmp_path: Path) -> None:
    uses = [call("bash", command="x") | {"id": "c1"}]
    made = {**result({"id": "c1"}, "fine"), "ctxvc": {"report": ["main", "B1"]}}
    with serve(script("Done.")) as api, begun(tmp_path) as session:
        asked(session).append({"role": "assistant", "content": uses}, {"role": "user", "content": [made]})
        run.go(session, setup(tmp_path, real(api)))
        assert not session.notes()


def test_a_helper_that_cannot_be_made_is_an_answer(tmp_path: Path) -> None:
    replies = script([call("delegate", name="../x", task="t"), call("delegate", name="main", task="t")], "Well.")
    with serve(replies) as api, begun(tmp_path) as session:
        assert run.go(asked(session), setup(tmp_path, real(api))).text == "Well."
        assert all("could not continue" in result for result in results(session))


def test_a_call_before_a_helper_is_run_before_it_and_one_behind_beside_it(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "a helper" in content and "delegate" not in content:
            if "first" in content:
                return "The helper saw the first."
            return [call("bash", command="cat begun; until [ -e behind ]; do sleep 0.02; done", timeout=20)]
        if "saw the first" in content:
            return "Done."
        first, behind = call("bash", command="sleep 0.2; echo first > begun"), call("bash", command="touch behind")
        return [first, call("delegate", name="aside", task="you are a helper"), behind]

    with serve(assistant) as api, begun(tmp_path) as session:
        assert run.go(asked(session), setup(tmp_path, real(api))).text == "Done."
        assert session.notes()[-1].text == "[← aside] The helper saw the first."
        assert [row.error for row in session.ledger("aside").rows() if row.kind == "tool_result"] == [False]


def test_a_helper_that_overflow_mode_refuses_does_not_begin(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        if (request.get("tool_choice") or {}).get("type") == "none":
            return "I stop."
        content = json.dumps(request["messages"])
        if "a helper" in content and "delegate" not in content:
            return "Here is my report."
        if len(api.calls) < 2:
            return [call("bash", command=f"seq {number}000 {number}999") for number in range(4)]
        return [call("delegate", name=f"aside{len(api.calls)}", task="you are a helper")]

    with serve(assistant) as api, begun(tmp_path, window=9_000) as session:
        # What a human wrote stays: the guard has nothing to take, and not even a preview fits beside it.
        room = session.budget.guard - session.used()
        ended = run.go(asked(session, "word " * (room * 2 // 3 - 200)), setup(tmp_path, real(api)))
        delegated = {row.call: row for row in session.ledger().rows() if row.tool == "delegate"}
        refused = [result for result in results(session) if "the context is full" in result]
        assert refused
        assert delegated
        assert session.scopes() == ["main"], "a helper worked although its call was refused"
    assert (ended.why, ended.text) == ("full", "I stop.")


def test_all_that_spend_in_a_run_spend_from_one_account(tmp_path: Path) -> None:
    """Replies of two helpers that never stop, and of the agent; each call of the server costs the same."""

    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "a helper" in content and "delegate" not in content:
            return [call("bash", command="true")]
        return [call("delegate", name=f"{name}{len(api.calls)}", task="you are a helper") for name in "ab"]

    with serve(assistant) as api, begun(tmp_path) as session:
        ended = run.go(asked(session), setup(tmp_path, real(api), steps=9))
        assert (ended.why, ended.steps, len(api.calls)) == ("steps", 9, 9)
        usages = [
            models.usage_of({k: v for k, v in call.answer["usage"].items() if isinstance(v, int)}) for call in api.calls
        ]
        assert ended.usage == sum(usages, models.Usage())
        each_cost = [models.dollars(MODEL, usage) or 0.0 for usage in usages]
        assert ended.dollars == pytest.approx(sum(each_cost))
        api.calls.clear()
        most = 5 * max(each_cost)
        ended = run.go(asked(session), setup(tmp_path, real(api), dollars=most))
        assert ended.why == "cost"
        assert ended.dollars is not None
        assert most <= ended.dollars < most + 3 * max(each_cost)


def test_what_a_policys_model_takes_is_counted_and_is_no_reply(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        if "gc_plan" in json.dumps(request["messages"][-1]["content"][-1]):
            return "<gc_plan></gc_plan>"
        steps = sum(message["role"] == "assistant" for message in request["messages"])
        return [call("bash", command=f"seq {steps}000 {steps}110")] if steps < 6 else "Counted."

    asides = 0
    policy = "planned:trigger=0.3,tight=0.35,target=0.2,least=500"
    with serve(assistant) as api, begun(tmp_path, window=12_000, policy=policy) as session:
        for task in ("do it", "and more"):
            api.calls.clear()
            ended = run.go(asked(session, task), setup(tmp_path, real(api)))
            usages = [
                models.usage_of({k: v for k, v in call.answer["usage"].items() if isinstance(v, int)})
                for call in api.calls
            ]
            assert ended.usage == sum(usages, models.Usage())
            planned = sum("gc_plan" in json.dumps(call.body["messages"][-1]["content"][-1]) for call in api.calls)
            assert ended.steps == len(api.calls) - planned
            assert planned or task == "and more"
            asides += planned
        session.stored.flush()
        entries = revision.history(session.store, session.stored.tip())
        told = [entry for entry in entries if entry.trailers["Ctxvc-Op"] == "ask"]
        assert len(told) == asides
        for entry in told:
            assert entry.subject == "asked by planner"
            assert entry.trailers["Ctxvc-Model"] == MODEL
            assert "output_tokens=" in entry.trailers["Ctxvc-Usage"]


def test_limits_that_limit_nothing_are_refused(tmp_path: Path) -> None:
    for dollars in (float("nan"), float("inf"), -1.0):
        with pytest.raises(BadInput, match="not an amount"):
            Limits(dollars=dollars)
    with serve(script("Done.")) as api, begun(tmp_path) as session:
        session.set(model="claude-nobody-9")
        with pytest.raises(BadInput, match="no price") as told:
            run.go(asked(session), setup(tmp_path, real(api), dollars=1.0))
        assert "cost limit" in told.value.hint
        assert not api.calls


def test_a_helper_that_was_stopped_is_gone_on_with_where_it_was(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "a helper" in content and "delegate" not in content:
            return (
                "I saw both."
                if "echo two" in content
                else [call("bash", command=f"echo {'two' if 'echo one' in content else 'one'}")]
            )
        if "saw both" in content:
            return "Done."
        return [call("delegate", name="aside", task="you are a helper")]

    with serve(assistant) as api, begun(tmp_path) as session:
        ended = run.go(asked(session), setup(tmp_path, real(api), Eyes(stop_after=1)))
        assert ended.why == "stopped"
        assert "ended without a report (stopped); delegate to aside again" in results(session)[0]
        assert run.go(session, setup(tmp_path, real(api))).text == "Done."
        assert results(session)[1] == FOLLOWS.format("aside")
        assert [note.text for note in session.notes()] == ["[← aside] I saw both."]
        outputs = [row for row in session.ledger("aside").rows() if row.kind == "tool_result"]
        assert [session.stored.body(row, "aside") for row in outputs] == [b"one\n", b"two\n"]
        assert session.scopes() == ["main", "aside"]


def test_two_helpers_never_work_in_one_scope(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        content = json.dumps(request["messages"])
        if "a helper" in content and "delegate" not in content:
            return "Seen." if "tool_result" in content else [call("bash", command="sleep 0.3")]
        return "Done." if "has reported" in content else [call("delegate", name="aside", task="you are a helper")] * 2

    with serve(assistant) as api, begun(tmp_path) as session:
        assert run.go(asked(session), setup(tmp_path, real(api))).text == "Done."
        one, other = sorted(results(session))
        assert one == FOLLOWS.format("aside")
        assert "a helper is already working in aside" in other


def test_the_step_that_a_helper_left_open_is_ended_by_the_next_run(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        asked(session)
        session.stored.branch("aside", "look")
        with Session.open(tmp_path / ".ctxvc", "run-1", scope="aside") as helper:
            helper.append({"role": "user", "content": "look"}, origin="client")
            helper.append({"role": "assistant", "content": [{**call("bash", command="x"), "id": "toolu_h"}]})
            assert helper.stored.in_step
        with serve(script("Done.")) as api:
            assert run.go(session, setup(tmp_path, real(api))).text == "Done."
    with Session.open(tmp_path / ".ctxvc", "run-1", scope="aside") as helper:
        assert not helper.stored.in_step
        assert not helper.stored.open_calls


# --- a model beside the conversation


def test_what_is_asked_beside_the_conversation_reads_the_cached_prompt(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        asked(session, "do it " + WORDS * 200)
        with serve(script("Not yet.", "<plan/>", "Done.")) as api:
            model = real(api)
            run.go(session, setup(tmp_path, model))
            asked(session, "and on")
            live = Adapter(session).request()
            answer = model.ask(live, "Make a plan.")
        assert answer.text == "<plan/>"
        assert answer.tokens > 0
        sent = api.bodies[-1]
        assert sent["messages"][-1]["content"][-1] == {"type": "text", "text": "Make a plan."}
        *before, newest = sent["messages"]
        before.append({**newest, "content": newest["content"][:-1]})
        assert canonical(before) == canonical(live["messages"])
        assert sent["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("last", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
def test_the_block_behind_leaves_the_prompt_as_it_is(last: dict[str, Any]) -> None:
    call = {"model": "m", "messages": [{"role": "user", "content": "a"}, last]}
    made = behind(call, "plan")
    assert call["messages"][-1] == last
    assert made["messages"][-1]["content"][-1] == {"type": "text", "text": "plan"}
    assert made["messages"][-1]["role"] == "user"


# --- scripts


def test_a_script_is_read_from_a_file_and_says_what_is_wrong_with_it() -> None:
    model = Scripted.read(b'[{"content": "hi"}]')
    assert model.scripted
    assert model.reply({}, lambda _: None)["content"] == [{"type": "text", "text": "hi"}]
    with pytest.raises(ModelFailed):
        model.reply({}, lambda _: None)
    with pytest.raises(Exception, match="not a script"):
        Scripted.read(b"{}")


def test_a_recorded_session_is_played_back_through_the_same_loop(tmp_path: Path) -> None:
    replies = script([call("bash", command="echo one")], "First.", [call("bash", command="echo two")], "Second.")
    with serve(replies) as api, begun(tmp_path) as session:
        run.go(asked(session), setup(tmp_path, real(api)))
        run.go(asked(session, "more"), setup(tmp_path, real(api)))
        turns = run.recorded(session)
    assert [len(turn.replies) for turn in turns] == [2, 2]
    with Session.open(tmp_path / ".ctxvc", "again", model=MODEL, budget=30_000) as again:
        ended = run.play(again, turns, Eyes())
        assert (ended.text, ended.steps) == ("Second.", 4)
        assert results(again) == ["one\n", "two\n"]


def test_a_result_is_played_back_to_the_call_that_it_was_of(tmp_path: Path) -> None:
    """Results of parallel calls come in any order, and what others answer now, a note, takes nobody's result."""
    uses = [
        call("note", text="n") | {"id": "c1"},
        call("bash", command="A") | {"id": "c2"},
        call("bash", command="B") | {"id": "c3"},
        call("delegate", name="helper", task="go") | {"id": "c4"},
    ]
    came = {"c3": "of B", "c4": "helper reports: done", "c1": "Noted.", "c2": "of A"}
    with begun(tmp_path) as session:
        asked(session).append(
            {"role": "assistant", "content": uses},
            {"role": "user", "content": [result({"id": each}, words) for each, words in came.items()]},
            {"role": "assistant", "content": "end"},
        )
        turns = run.recorded(session)
    tools = definitions(own=[*DEFINITIONS, DELEGATE])
    with Session.open(tmp_path / ".ctxvc", "again", model=MODEL, budget=30_000, tools=tools) as again:
        assert run.play(again, turns, Eyes()).text == "end"
        assert again.scopes() == ["main"]
        held = {row.call: again.body(row.id).decode() for row in again.ledger().rows() if row.kind == "tool_result"}
        assert [note.text for note in again.notes()] == ["n"]
    assert "Noted" in held.pop("c1")
    assert held == {each: words for each, words in came.items() if each != "c1"}


def test_a_secret_that_a_tool_shows_is_in_no_request_and_nowhere_in_the_store(tmp_path: Path) -> None:
    secret = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
    command = f"for i in $(seq 1 900); do printf '\\rline %d of 900' $i; done; echo; echo token={secret}"
    with serve(script([call("bash", command=command)], "done")) as api, begun(tmp_path) as session:
        run.go(asked(session), setup(tmp_path, real(api)))
        (row,) = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert row.stub
        sent = json.dumps([request["messages"] for request in api.bodies])
    assert secret not in sent
    assert "[REDACTED:github" in row.stub
    for file in (tmp_path / ".ctxvc").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_a_policys_planner_is_the_runs_model_beside_the_conversation(tmp_path: Path) -> None:
    asked_to_plan: list[Mapping[str, Any]] = []

    def assistant(request: Mapping[str, Any]) -> Any:
        last = request["messages"][-1]["content"][-1]
        if "gc_plan" in json.dumps(last):
            asked_to_plan.append(request)
            folded = re.findall(r"bash:\d+", json.dumps(last))[-1 - len(asked_to_plan)]
            return (
                "<above_conversation_summary>Counting.</above_conversation_summary>\n"
                f'<gc_plan>\n<fold kind="function" reason="counted">{folded}</fold>\n</gc_plan>'
            )
        steps = sum(message["role"] == "assistant" for message in request["messages"])
        return [call("bash", command=f"seq {steps}000 {steps}110")] if steps < 8 else "Counted."

    policy = "planned:trigger=0.4,tight=0.45,target=0.2,least=500,share=0.01"
    with serve(assistant) as api, begun(tmp_path, window=12_000, policy=policy) as session:
        ended = run.go(asked(session), setup(tmp_path, real(api)))
        assert ended.text == "Counted."
        rows = {row.id: row for row in session.ledger().rows()}

    assert asked_to_plan
    planned = asked_to_plan[0]
    assert planned["tool_choice"] == {"type": "none"}
    gone = [row for row in rows.values() if row.removed_by == "planner"]
    assert [row.kind for row in gone] == ["tool_result"]


def test_many_long_outputs_do_not_fill_a_small_budget(tmp_path: Path) -> None:
    def assistant(request: Mapping[str, Any]) -> Any:
        made = len(list((tmp_path / "project").glob("*.txt")))
        return [call("bash", command=f"seq 1 20000; touch {made}.txt")] if made < 20 else "Counted."

    with serve(assistant) as api, begun(tmp_path, window=16_000) as session:
        assert run.go(asked(session), setup(tmp_path, real(api))).text == "Counted."
        outputs = [output for output in results(session) if not output.startswith("[not run")]
    assert len(outputs) == 20  # a call that overflow mode refused was made again
    assert all(output.startswith("1\n2\n3\n") and output.endswith("20000\n") for output in outputs)


GARBAGE: tuple[str | Refusal, ...] = (
    Refusal(529, "overloaded_error", "Overloaded"),
    "",
    "I cannot.",
    "<gc_plan>",
    "&" * 1_000,
    "<!DOCTYPE x><gc_plan/>",
    '<gc_plan><fold kind="function" reason="x">bash:3',
    '<gc_plan><burn kind="function">bash:3</burn></gc_plan>',
    '<gc_plan><fold kind="function" reason="x">bash:999</fold></gc_plan>',
    '```json\n{"fold": ["bash:3"]}\n```',
    "<" * 5_000,
)


def test_a_planner_that_answers_garbage_is_replaced_by_rules_and_the_screen_and_the_commit_say_so(
    tmp_path: Path,
) -> None:
    """Eleven kinds of it, one after the other: the first is that the planner fails."""
    answers = iter(GARBAGE)
    answered: list[str | Refusal] = []

    def assistant(request: Mapping[str, Any]) -> Any:
        if "gc_plan" in json.dumps(request["messages"][-1]["content"][-1]):
            answered.append(next(answers))
            return answered[-1]
        steps = session.ledger().meta.counters.step
        return [call("bash", command=f"seq {steps}000 {steps}110")] if len(answered) < len(GARBAGE) else "Counted."

    eyes = Eyes()
    policy = "planned:trigger=0.4,tight=0.45,target=0.3,least=1,share=0.01"
    with serve(assistant) as api, begun(tmp_path, window=12_000, policy=policy) as session:
        assert run.go(asked(session), setup(tmp_path, real(api), eyes)).text == "Counted."
        session.stored.flush()
        entries = revision.history(session.store, session.stored.tip())
    commits = [
        entry for entry in entries if "fixed rules replaced the planner" in entry.trailers.get("Ctxvc-Reason", "")
    ]

    assert len(answered) == len(GARBAGE)
    assert "did not answer" in "".join(eyes.words)
    assert "".join(eyes.words).count("fixed rules replaced the planner") >= 5
    assert len(commits) >= 2
