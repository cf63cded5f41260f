"""A client's conversation inside a budget: what goes to the model, what the client gets, and what is recorded."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from ctxvc.errors import OverBudget
from ctxvc.inspection.client_prompts import comparison
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify
from ctxvc.wire import trouble
from ctxvc.wire.exchange import Managed, Management, Requested
from ctxvc.wire.managed import ManagedConversation
from ctxvc.wire.recorder import open_recorder
from ctxvc.wire.sessions import Sessions
from tests.messages_api.cache import Position
from tests.wire.clients import FORMS, Anthropic, Blocks, Responses, Wire

TOOLS = [
    {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}},
    {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}},
]
BUDGET = 12_000
NEEDLE = "the password of the harbour is kingfisher-77"

STACK = "straw\n" * 700 + NEEDLE + "\nstraw" * 700


class Run:
    """A client that works through a proxy, whose recorder can be started again."""

    def __init__(self, path: Path, form: str, policy: str = "default", budget: int = BUDGET) -> None:
        self.path = path
        self.name = ""  # by which a recorder knows the session of the one that it replaces
        self.management = Management(budget=budget, policy=policy)
        self.wire = Wire(FORMS[form](TOOLS), self.sessions())
        self.step = 0

    def sessions(self) -> Sessions:
        def open_store() -> Store:
            return Store(self.path) if self.path.exists() else create(self.path)

        return Sessions(open_store, agent="agent", session="", folder="/", run=self.name, management=self.management)

    def restart(self) -> None:
        self.wire.sessions.close()
        self.wire.sessions = self.sessions()

    def say(self, text: str) -> None:
        self.wire.client.incoming([{"type": "text", "text": text}])

    def call(
        self, output: str, *, tool: str = "Bash", script: Callable[[bytes], Blocks | None] = lambda _: None
    ) -> None:
        """The model calls a tool, and the client has its result."""
        self.step += 1
        call = {"type": "tool_use", "id": f"call_{self.step}", "name": tool, "input": {"command": f"step {self.step}"}}
        self.answer([{"type": "text", "text": f"Step {self.step}."}, call], script=script)
        result = {"type": "tool_result", "tool_use_id": f"call_{self.step}", "content": output}
        self.wire.client.incoming([result])

    def answer(self, reply: Blocks, *, script: Callable[[bytes], Blocks | None] = lambda _: None) -> bytes:
        answer = self.wire.ask(reply, script=script)
        self.wire.client.took(answer)
        return answer

    def fill(self, count: int, lines: int = 200) -> None:
        for number in range(count):
            self.call(f"output {number}\n" + f"line of {self.step} {number}\n" * lines)

    @property
    def sent(self) -> list[str]:
        return [call.sent.decode() for call in self.wire.calls]


@pytest.fixture(params=FORMS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / ".ctxvc", request.param)
    yield run
    run.wire.sessions.close()
    assert not run.wire.failures
    assert [problem for call in run.wire.calls for problem in call.problems] == []
    with Store(run.path) as store:
        assert len(store.sessions()) == 1
        assert [finding for finding in verify(store).findings if finding.severity != "note"] == []


def text(blocks: str) -> Blocks:
    return [{"type": "text", "text": blocks}]


def names(body: bytes) -> list[str]:
    return [str(name) for name in _names(json.loads(body).get("tools"))]


def _names(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _names(item)
    elif isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"]
        for inner in ("function", "functionDeclarations"):
            yield from _names(value.get(inner))


def test_prompts_stay_below_the_budget_and_begin_as_the_one_before(run: Run) -> None:
    run.say("Find the needle, and remember the blue whale.")
    run.fill(19, lines=400)
    first = run.wire.ask_only()
    run.restart()
    second = run.wire.ask_only()
    run.answer(text("Done."))

    assert first == second == run.sent[-1].encode(), "the same request once more is the same prompt"
    assert max(run.wire.client.tokens(call.client) for call in run.wire.calls) > 3 * BUDGET
    assert max(run.wire.client.tokens(call.sent) for call in run.wire.calls) <= BUDGET
    assert all("blue whale" in body for body in run.sent)
    assert {tuple(names(call.sent)) for call in run.wire.calls} == {("Bash", "Read", "archive", "recover", "search")}
    assert prefix_breaks(run.sent) <= 3  # a group takes in what stood alone
    assert len({body.count("[archived ") for body in run.sent}) < 20


@pytest.mark.parametrize(("policy", "count"), [(Management(budget=1).policy, 3), ("default", 11)])
def test_our_tools_have_few_words_in_a_wide_window_too(tmp_path: Path, policy: str, count: int) -> None:
    run = Run(tmp_path / ".ctxvc", "anthropic", policy, budget=200_000)
    run.say("Find the needle.")
    run.answer(text("Done."))
    run.wire.sessions.close()

    own = [tool["description"] for tool in json.loads(run.sent[0])["tools"][len(TOOLS) :]]
    assert len(own) == count and not [description for description in own if ". " in description]


def prefix_breaks(bodies: list[str]) -> int:
    """How many bodies do not begin as the one before, but for what stood in it last, though nothing left."""
    return sum(
        later.count("[archived ") <= earlier.count("[archived ")
        and not later.startswith(earlier[: len(earlier) * 3 // 5])
        for earlier, later in itertools.pairwise(bodies)
    )


def asked(name: str, arguments: dict[str, Any], *beside: dict[str, Any]) -> Blocks:
    """A reply that calls a tool of ours."""
    return [
        {"type": "text", "text": "Let me look."},
        *beside,
        {"type": "tool_use", "id": "own-1", "name": name, "input": arguments},
    ]


def test_what_left_is_read_back_and_the_client_sees_nothing_of_it_also_after_a_restart(run: Run) -> None:
    run.say("Find the needle.")
    run.call(STACK)
    run.fill(7, lines=400)
    assert NEEDLE not in run.sent[-1]
    asks = iter([asked("search", {"pattern": "kingfisher"})])

    answer = run.answer(text("It is kingfisher."), script=lambda _: next(asks, None))
    run.say("Go on.")
    run.fill(2)

    assert b"kingfisher" in answer and b"Let me look." in answer and b"search" not in answer
    assert "own-1" not in json.dumps(run.wire.client.messages)
    continuation, later = run.sent[-3], run.sent[-1]
    assert NEEDLE in continuation and "Let me look." in continuation
    assert NEEDLE in later and prefix_breaks([continuation, later]) == 0
    assert later.count("Let me look.") == later.count("It is kingfisher.") == 1
    before = len(run.sent)
    for _ in range(2):
        run.restart()
        run.call("a line\n")
    assert prefix_breaks(run.sent[before - 1 :]) == 0 and all(NEEDLE in body for body in run.sent[before:])


def test_calls_of_both_get_their_results_in_one_turn(run: Run) -> None:
    run.say("Find the needle.")
    run.call(STACK)
    run.fill(7, lines=400)
    assert NEEDLE not in run.sent[-1]
    own = {"type": "tool_use", "id": "both-1", "name": "Bash", "input": {"command": "ls"}}

    answer = run.answer(asked("search", {"pattern": "kingfisher"}, own))
    run.wire.client.incoming([{"type": "tool_result", "tool_use_id": "both-1", "content": "a.txt"}])
    run.answer(text("It is kingfisher."))
    run.say("Go on.")
    run.fill(2)

    assert b"both-1" in answer or b"Bash" in answer
    assert b"search" not in answer
    assert all(NEEDLE in body and "a.txt" in body for body in run.sent[-3:])


@pytest.mark.parametrize(("run", "passed"), [*((form, 1) for form in FORMS), ("anthropic", 2)], indirect=["run"])
def test_replies_that_nobody_recorded_come_in_with_a_request_that_is_asked_once_more(run: Run, passed: int) -> None:
    """As after a recorder that was killed: its successor dies, too, before the request is answered."""
    run.say("Find the needle.")
    run.answer(text("It is here."))
    run.say("Where?")
    for number in range(passed):
        run.wire.client.took(run.wire.client.answer(run.wire.client.body(), text(f"Nobody saw {number}.")))
        run.say(f"And {number}?")
    first = run.wire.ask_only()
    run.restart()
    second = run.wire.ask_only()
    run.answer(text("Done."))

    assert first == second == run.sent[-1].encode()
    with Store(run.path) as store:
        assert list(store.tips(store.sessions()[0])) == ["main"]


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_a_first_request_once_more_after_a_kill_is_of_the_same_session(run: Run, is_answered: bool) -> None:
    run.name = "one"
    run.restart()
    run.say("Find the needle.")
    if is_answered:
        run.wire.ask(text("An answer that the client never got."))
    else:
        run.wire.ask_only()
    run.restart()
    run.answer(text("It is here."))
    run.say("Where?")
    run.answer(text("There."))

    assert run.sent[-1].startswith(run.sent[0][:200])


@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_a_later_request_once_more_on_another_day_is_of_the_same_session(run: Run) -> None:
    run.say("Find the needle.")
    run.answer(text("It is here."))
    run.say("Where?")
    run.wire.ask(text("An answer that the client never got."))
    run.restart()
    run.answer(text("There."))

    assert sum("It is here." in body for body in run.sent) == 2


def test_what_a_person_does_acts_on_the_next_request(run: Run) -> None:
    run.say("Find the needle.")
    run.call("straw\n" * 150 + NEEDLE)
    run.fill(2)
    run.answer(text("Done."))
    assert NEEDLE in run.sent[-1]
    with Store(run.path) as store, opened(store) as session:
        result = next(row.id for row in session.ledger().rows() if row.kind == "tool_result")
        session.archive(result, "the stack")
        session.note("The harbour is in the north.")
    run.say("Go on.")
    run.call("ok")
    archived = run.sent[-1]
    with Store(run.path) as store, opened(store) as session:
        session.restore(result)
    run.call("ok")

    assert NEEDLE not in archived and "the stack" in archived and "The harbour is in the north." in archived
    assert NEEDLE in run.sent[-1]


def opened(store: Store) -> Session:
    (name,) = store.sessions()
    return Session(StoredSession.open(store, name), actor="user")


def test_a_client_that_edits_its_history_brings_nothing_back_that_left(run: Run) -> None:
    run.say("Find the needle, and remember the blue whale.")
    run.call(STACK)
    run.fill(7, lines=400)
    assert NEEDLE not in run.sent[-1]
    stubs = run.sent[-1].count("[archived ")
    messages = run.wire.client.messages
    del messages[-8:-4]  # a client that cuts something out of the middle
    run.say("Go on.")
    run.fill(2)

    assert NEEDLE not in run.sent[-1] and "blue whale" in run.sent[-1]
    assert run.sent[-2].count("[archived ") >= stubs - 4


def test_what_a_person_took_out_stays_out_when_a_client_edits_its_history(run: Run) -> None:
    run.say("Find the needle.")
    run.call("straw\n" * 150 + NEEDLE)
    run.fill(4)
    with Store(run.path) as store, opened(store) as session:
        session.archive(next(row.id for row in session.ledger().rows() if row.kind == "tool_result"), "the stack")
    size = 3 if run.wire.form.NAME == "openai-responses" else 2  # items of a call
    del run.wire.client.messages[-2 * size : -size]
    run.say("Go on.")
    run.call("ok")

    assert NEEDLE not in run.sent[-1] and "the stack" in run.sent[-1]


def test_a_result_larger_than_the_budget_is_a_preview(run: Run) -> None:
    run.say("Find the needle.")
    run.call("the beginning\n" + "straw and hay\n" * 8000)
    run.call("ok")

    assert "the beginning" in run.sent[-1] and len(run.sent[-1]) < 40_000


@pytest.mark.parametrize("policy", ["self_managed", "scoped", "episodes", "layered", "clear"])
def test_every_policy_works_in_any_agent(policy: str, tmp_path: Path) -> None:
    run = Run(tmp_path / ".ctxvc", "anthropic", policy)
    run.say("Find the needle, and remember the blue whale.")
    run.call(STACK)
    run.fill(9, lines=400)
    run.answer(text("Done."))

    assert not run.wire.failures
    assert [problem for call in run.wire.calls for problem in call.problems] == []
    assert max(run.wire.client.tokens(call.sent) for call in run.wire.calls) <= BUDGET
    assert all("blue whale" in body for body in run.sent)


def test_a_scope_and_back_with_a_note(run: Run) -> None:
    run.wire.sessions.close()
    run.management = Management(budget=BUDGET, policy="scoped")
    run.wire.sessions = run.sessions()
    run.say("Find the needle, and remember the blue whale.")
    run.fill(3)
    opens = iter([asked("scope", {"name": "harbour", "note": "I look into the harbour."})])
    run.call("a boat", script=lambda _: next(opens, None))
    run.call(STACK)
    inside = run.sent[-1]
    leaves = iter([asked("goto", {"name": "main", "note": f"Found: {NEEDLE}."})])
    run.call("back", script=lambda _: next(leaves, None))
    run.call("ok")
    run.restart()
    run.answer(text("Done."))

    assert "line of 0 0" not in inside and "blue whale" in inside
    assert "straw" not in run.sent[-1] and NEEDLE in run.sent[-1] and "line of 0 0" in run.sent[-1]
    with Store(run.path) as store:
        (name,) = store.sessions()
        assert set(store.tips(name)) == {"main", "harbour"} and store.current_scope(name) == "main"


def test_a_client_that_went_back_and_says_the_same_sends_it_all_the_same(run: Run) -> None:
    run.say("Find the needle.")
    run.fill(4)
    kept = list(run.wire.client.messages)
    run.fill(3)
    run.wire.client.messages, run.step = kept, run.step - 3
    run.say("Another way, please.")
    run.fill(3)
    run.answer(text("Done."))

    body = run.sent[-1]
    assert all(f"Step {number}." in body for number in range(1, 8)) and "Another way" in body
    with Store(run.path) as store:
        assert list(store.tips(store.sessions()[0])) == ["main", "rewind-1"]


@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_what_a_client_keeps_of_a_reply_that_broke_off_stays(run: Run) -> None:
    run.say("Find the needle.")
    run.fill(3)
    call = {"type": "tool_use", "id": "call_cut", "name": "Bash", "input": {"command": "x" * 100}}
    run.wire.ask_broken([*text("I look at part 4."), call])
    run.wire.client.messages.append({"role": "assistant", "content": text("I look at part 4.")})
    run.say("You were cut off.")
    run.fill(3)

    body = run.sent[-1]
    assert "I look at part 4." in body and "You were cut off." in body and "call_cut" not in body
    with Store(run.path) as store:
        assert list(store.tips(store.sessions()[0])) == ["main"]


@pytest.mark.parametrize("run", ["responses"], indirect=True)
def test_the_clients_own_instructions_stay_however_large_they_are(run: Run) -> None:
    piece = {"type": "input_text", "text": "Never touch config.ini.\n" + "Be precise and helpful. " * 600}
    run.wire.client.messages.append({"type": "message", "role": "developer", "content": [piece]})
    tools = [{"type": "function", "name": f"tool_{number}", "parameters": {}} for number in range(20)]
    run.wire.client.messages.append({"type": "additional_tools", "role": "developer", "tools": tools})
    run.say("Find the needle.")
    run.fill(12)

    assert all("Never touch config.ini." in body and "tool_19" in body for body in run.sent)


def test_a_paused_agent_sends_its_own_requests(run: Run) -> None:
    run.say("Find the needle.")
    run.fill(7, lines=400)
    trouble.pause(run.path, paused=True)
    run.fill(2)
    own = [call.sent == call.client for call in run.wire.calls[-2:]]
    trouble.pause(run.path, paused=False)
    run.fill(2)

    assert own == [True, True]
    assert [call.sent == call.client for call in run.wire.calls[-2:]] == [False, False]
    assert run.wire.client.tokens(run.wire.calls[-1].sent) <= BUDGET


@pytest.mark.parametrize(
    ("run", "ends_with_call"), [*((form, False) for form in FORMS), ("anthropic", True)], indirect=["run"]
)
def test_what_the_budget_came_to_is_counted(run: Run, ends_with_call: bool) -> None:
    run.say("Find the needle.")
    run.fill(12, lines=300)
    if not ends_with_call:
        run.answer(text("Done."))
    run.restart()
    with Store(run.path) as store:
        figures = comparison(store, 0)

    assert figures.calls == len(run.wire.calls)
    sizes = [run.wire.client.tokens(call.client) for call in run.wire.calls]
    assert figures.largest == max(run.wire.client.tokens(call.sent) for call in run.wire.calls) <= BUDGET
    assert abs(figures.largest_of_client - max(sizes)) < max(sizes) / 5
    assert figures.tokens < figures.tokens_of_client and figures.removed > 5


@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_what_stays_when_much_leaves_is_read_from_the_cache(run: Run) -> None:
    run.say("Find the needle.")
    run.fill(30, lines=400)
    run.answer(text("Done."))

    client = run.wire.client
    assert isinstance(client, Anthropic)
    prompts = [client.judge.rule(json.loads(body)).positions for body in run.sent]
    marks = [[place for place, position in enumerate(prompt) if position.mark] for prompt in prompts]
    assert max(map(len, marks)) == 4
    left = [number for number in range(1, len(prompts)) if prompts[number][-1].tokens < prompts[number - 1][-1].tokens]
    assert len(left) >= 4
    shared = [shared_tokens(*prompts[number - 1 : number + 1]) for number in left]
    read = [client.usage[number]["cache_read_input_tokens"] for number in left]
    assert sum(read[1:]) > 0.8 * sum(shared[1:])


def shared_tokens(before: Sequence[Position], after: Sequence[Position]) -> int:
    """The tokens of what two prompts have in common from their beginning."""
    same = takewhile(lambda pair: pair[0].digest == pair[1].digest, zip(before, after, strict=False))
    return max((position.tokens for _, position in same), default=0)


@pytest.mark.parametrize("run", ["chat"], indirect=True)
def test_rules_that_a_client_says_last_each_time_are_last(run: Run) -> None:
    """As aider does, which also answers itself."""
    rules = {"role": "system", "content": "Every edit must use this format."}
    run.say("Find the needle.")
    for number in range(12):
        run.say(f"The output of command {number}:\n" + f"line {number}\n" * 60)
        run.wire.client.messages.append({"role": "assistant", "content": "Ok."})
        run.say(f"Go on after {number}.")
        run.wire.client.messages.append(rules)
        answer = run.wire.ask(text(f"Part {number} is next."))
        run.wire.client.messages.pop()
        run.wire.client.took(answer)

    assert max(run.wire.client.tokens(body.encode()) for body in run.sent) <= BUDGET
    assert all("Every edit" in str(json.loads(body)["messages"][-2:]) for body in run.sent)
    assert all(body.count("Every edit") == 1 for body in run.sent)


@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_what_a_client_asks_beside_the_conversation_is_no_part_of_it(run: Run) -> None:
    """As opencode does: it asks for a title of the very message that it sends next."""
    client, run.wire.headers = run.wire.client, {"x-opencode-session-id": "one"}
    run.say("Find the needle.")
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "What is looked at. " * 500}}}
    tools, system = (*client.tools, {"name": "Look", "input_schema": schema}), client.system
    client.tools, client.system = (), "You make titles."
    run.wire.ask(text("A title"))
    client.tools, client.system = tools, system
    run.call("a line\n")
    run.answer(text("Done."))

    with Store(run.path) as store:
        assert set(store.tips(store.sessions()[0])) == {"main", "side"}
    (session,) = run.wire.sessions._open.values()
    managed = session.conversations["main"]
    assert isinstance(managed, ManagedConversation)
    assert managed.session.view().overhead > 1_500, "the tools count, though the first request had none"
    assert all("Find the needle." in body for body in run.sent)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_a_fork_under_an_id_of_its_own_goes_on_with_the_prompt_that_was_there(run: Run, restarts: bool) -> None:
    run.wire.headers = {"x-opencode-session-id": "one"}
    run.say("Find the needle.")
    run.fill(12, lines=400)
    run.answer(text("Done."))
    if restarts:
        run.restart()
    run.wire.headers = {"x-opencode-session-id": "two"}
    run.say("Another way.")
    run.answer(text("Done."))
    assert "[archived" in run.sent[-2] and prefix_breaks(run.sent[-2:]) == 0


@pytest.mark.parametrize("run", ["anthropic"], indirect=True)
def test_a_count_is_that_of_the_managed_prompt(run: Run) -> None:
    run.say("Find the needle.")
    run.fill(12, lines=300)
    before = len(run.wire.calls)
    path, run.wire.client.path = run.wire.client.path, "/v1/messages/count_tokens"
    counted = run.wire.ask_only()
    run.wire.client.path = path
    run.answer(text("Done."))

    assert run.wire.client.tokens(counted) <= BUDGET < run.wire.client.tokens(run.wire.calls[-1].client)
    assert json.loads(counted)["messages"][:16] == json.loads(run.sent[before])["messages"][:16]


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_that_cannot_be_smaller_goes_out_as_the_agent_has_it_and_is_recorded(
    form: str, tmp_path: Path
) -> None:
    run = Run(tmp_path / ".ctxvc", form, budget=4_000)
    run.say("What a person says stays. " * 1500)
    run.answer(text("So it is."))
    run.wire.sessions.close()

    assert [type(error) for error in run.wire.failures] == [OverBudget]
    assert run.wire.calls[-1].sent == run.wire.calls[-1].client
    with Store(run.path) as store, opened(store) as session:
        bodies = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind in ("user", "assistant")]
    assert bodies[1:] == ["What a person says stays. " * 1500, "So it is."]  # behind the text on the tools


def test_the_text_on_the_tools_tells_of_no_tags_where_results_have_none(run: Run) -> None:
    run.say("Find the needle.")
    run.call("ok " * 400)
    run.call("ok " * 400)

    assert "Your context has a budget" in run.sent[-1] and "2.3k" not in run.sent[-1]


def test_a_person_is_told_why_a_budget_does_not_hold(tmp_path: Path) -> None:
    troubles: list[str] = []
    recorder = open_recorder(
        tmp_path / ".ctxvc", cwd=tmp_path, management=Management(budget=4_000), on_trouble=troubles.append
    )
    client = FORMS["anthropic"](TOOLS)
    client.incoming([{"type": "text", "text": "What a person says stays. " * 1500}])
    requested = Requested(number=1, upstream="any", path=client.path, headers={}, body=client.body(), began=0.0)

    assert recorder.ask(requested).result(60) == Managed()
    recorder.close()
    assert len(troubles) == 1 and trouble.sentence(troubles[0]).startswith("sent unchanged, ignoring the")


class Chained(Responses):
    """A client that leaves its history to the provider, and sends what is new."""

    previous = ""
    answers = 0

    def answer(self, body: bytes, content: Blocks) -> bytes:
        self.answers += 1
        return json.dumps({**json.loads(super().answer(body, content)), "id": f"resp_{self.answers}"}).encode()

    def body(self) -> bytes:
        request = json.loads(super().body())
        chained = {"previous_response_id": self.previous} if self.previous else {}
        return json.dumps({**request, "store": True, **chained}).encode()

    def took(self, answer: bytes) -> None:
        self.previous = json.loads(answer)["id"]
        self.messages.clear()

    def problems(self, body: bytes) -> list[str]:
        return super().problems(body) if not self.previous else []


@pytest.mark.parametrize("beside", [True, False])
def test_a_client_that_leaves_its_history_to_the_provider_is_recorded_and_sends_what_it_does(
    tmp_path: Path, beside: bool
) -> None:
    run = Run(tmp_path / ".ctxvc", "responses")
    run.wire.client = Chained(TOOLS)
    run.say("Find the needle.")
    own = [{"type": "tool_use", "id": "c", "name": "Bash", "input": {}}] if beside else []
    asks = iter([asked("search", {"pattern": "needle"}, *own)])
    run.answer(text("It is here."), script=lambda _: next(asks, None))
    (session,) = run.wire.sessions._open.values()
    assert session.conversations["main"]._reply_id == run.wire.client.previous
    run.wire.client.incoming([{"type": "tool_result", "tool_use_id": "c", "content": "a line"}] if beside else [])
    run.say("Go on.")
    run.call("another line")
    run.answer(text("Done."))
    run.wire.sessions.close()

    inputs = [[item["type"] for item in json.loads(body)["input"]] for body in run.sent]
    unseen = ["function_call_output", "function_call_output" if beside else "message"]
    assert inputs[-2:] == [[*unseen, "message"], ["function_call_output"]]
    assert ["the provider keeps its history" in str(failure) for failure in run.wire.failures] == [True]
    with Store(run.path) as store, opened(store) as session:
        assert list(store.tips(store.sessions()[0])) == ["main"]
        assert [session.body(row.id) for row in session.ledger().rows()][-2:] == [b"another line", b"Done."]
