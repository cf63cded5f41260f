"""A framework's conversation as a session: each message once, the prompt in its own objects, back to where it went."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ctxvc.errors import BadInput
from ctxvc.integrations.conversation import Conversation, FrameworkMessage, Sent, session_name
from tests.messages_api import problems

SH = {"name": "sh", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}}
MODEL = "claude-opus-5-5"


@dataclass
class Framework:
    """A framework with a list of messages of its own, and a conversation of ours behind it."""

    conversation: Conversation
    list: list[FrameworkMessage[str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def says(self, role: str, content: Any, **more: Any) -> FrameworkMessage[str]:
        number = next(self.numbers)
        message = {"role": role, "content": content}
        framework_message = FrameworkMessage(id=f"m{number}", message=message, source=f"source {number}", **more)
        self.list.append(framework_message)
        return framework_message

    def result(self, call: str, output: str) -> None:
        self.says("user", [{"type": "tool_result", "tool_use_id": call, "content": output}])

    def prompt(self) -> list[Sent[str]]:
        self.conversation.take(self.list)
        return self.conversation.prompt(self.list, model=MODEL)

    def replies(self, content: Any) -> None:
        self.conversation.reply(self.says("assistant", content))

    def works(self, steps: int, output: str = "x" * 400) -> None:
        """As many steps, each a call of the agent's own tool and its result."""
        for _ in range(steps):
            self.prompt()
            call = f"call-{len(self.list)}"
            self.replies([{"type": "tool_use", "id": call, "name": "sh", "input": {}}])
            assert self.conversation.handle(call, "sh", {}) is None
            self.result(call, f"{call} {output}")


def opened(folder: Path, **more: Any) -> Conversation:
    return Conversation.open(folder / ".ctxvc", "talk", model=MODEL, tools=[SH], **more)


@pytest.fixture
def framework(tmp_path: Path) -> Iterator[Framework]:
    with opened(tmp_path) as conversation:
        yield Framework(conversation)


def texts(prompt: list[Sent[str]]) -> str:
    return json.dumps([item.message for item in prompt])


def texts_of(conversation: Conversation, scope: str = "") -> list[str]:
    stored = conversation.session.stored
    return [stored.body(row, scope).decode() for row in conversation.session.ledger(scope).rows()]


def test_each_message_is_recorded_once(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(3)
    framework.prompt()
    framework.prompt()

    assert [record["id"] for _, record in framework.conversation.records()] == [f"m{number}" for number in range(7)]
    assert texts_of(framework.conversation).count("Mend it.") == 1


def test_what_is_unchanged_comes_back_as_the_frameworks_own_object(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(1)

    prompt = framework.prompt()

    sources = {item.source for item in prompt} - {None}
    (result,) = (item for item in prompt if item.message["content"][0]["type"] == "tool_result")
    assert sources == {"source 0", "source 1"}, "the human's words and the reply"
    assert (result.source, result.basis) == (None, "source 2"), "its tag makes it another text"


def test_a_message_that_comes_again_is_not_recorded_again_by_another_process(tmp_path: Path) -> None:
    with opened(tmp_path) as conversation:
        framework = Framework(conversation)
        framework.says("user", "Mend it.")
        framework.works(2)
    with opened(tmp_path) as conversation:
        again = Framework(conversation, framework.list)
        again.prompt()

        assert texts_of(conversation).count("Mend it.") == 1


def test_a_killed_process_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        framework = Framework(opened(tmp_path))
        framework.says("user", "Mend it.")
        framework.works(3)
        framework.prompt()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    with opened(tmp_path) as conversation:
        framework = Framework(conversation, numbers=itertools.count(100))
        framework.says("user", "Go on.")  # a new list: the framework has no memory of its own

        prompt = framework.prompt()

        assert [text in texts(prompt) for text in ("Mend it.", "call-5", "Go on.")] == [True] * 3
        assert conversation.session.scope == "main"


def test_long_work_stays_in_the_budget_and_every_prompt_is_valid(tmp_path: Path) -> None:
    with opened(tmp_path, budget=12_000) as conversation:
        framework = Framework(conversation)
        framework.says("user", "Mend it.")
        for _ in range(20):
            framework.works(1, "evidence " * 400)
            prompt = framework.prompt()
            request = {"model": MODEL, "max_tokens": 100, "tools": [SH], "messages": joined(prompt)}
            assert not list(problems(request))
            assert conversation.session.used() <= conversation.session.budget.effective
            assert "source 0" in {item.source for item in prompt}, "a human's words"

        gone = next(
            row for row in conversation.session.ledger().rows() if row.kind == "tool_result" and not row.present
        )
        framework.replies([{"type": "tool_use", "id": "back", "name": "recover", "input": {"block": gone.id}}])
        answer = conversation.handle("back", "recover", {"block": gone.id})
        assert answer is not None and "evidence" in answer[0] and not answer[1]


def joined(prompt: list[Sent[str]]) -> list[dict[str, Any]]:
    """Neighbours of one role as one message, as a framework's client would send them."""
    return [
        {"role": role, "content": [block for item in run for block in item.message["content"]]}
        for role, run in itertools.groupby(prompt, lambda item: item.message["role"])
    ]


def test_a_framework_that_went_back_goes_on_in_a_scope_of_its_own(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(3)
    framework.prompt()
    framework.replies("I give up.")
    del framework.list[5:]  # two of the three steps are left
    framework.works(1, "better")

    prompt = framework.prompt()

    session = framework.conversation.session
    assert session.scope == "rewind-1"
    assert "I give up." in texts_of(framework.conversation, "main")
    assert "I give up." not in texts(prompt) and "better" in texts(prompt) and "call-3" in texts(prompt)
    assert texts_of(framework.conversation).count("Mend it.") == 1


def test_going_back_into_a_step_records_the_rest_of_it_again(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(1)
    framework.says("user", "And test it.")
    framework.prompt()
    framework.replies("No.")
    del framework.list[-1]

    prompt = framework.prompt()

    assert "And test it." in texts(prompt) and '"No."' not in texts(prompt)


def test_a_reply_whose_calls_were_never_answered_is_left_behind(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(1)
    framework.prompt()
    framework.replies([{"type": "tool_use", "id": "lost", "name": "sh", "input": {}}])
    framework.list.pop()

    assert "lost" not in texts(framework.prompt())


def test_going_back_to_the_beginning_keeps_the_policys_text_on_its_tools(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.prompt()
    framework.replies("No.")
    framework.list.pop()

    assert texts(framework.prompt()).count("Your context has a budget") == 1
    assert framework.conversation.session.scope == "rewind-1"


def test_going_back_and_forth_leaves_every_line_in_a_scope_of_its_own(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(2)
    framework.prompt()
    framework.replies("left")
    checkpoint_tuples = list(framework.list)
    del framework.list[3:]
    framework.says("user", "Otherwise.")
    framework.prompt()
    framework.replies("right")
    framework.list = checkpoint_tuples
    framework.says("user", "On with the left.")

    prompt = texts(framework.prompt())

    assert "left" in prompt and "On with" in prompt and "right" not in prompt and "Otherwise" not in prompt
    assert framework.conversation.session.scope == "rewind-2"


def test_a_message_that_the_framework_dropped_from_the_beginning_stays(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.works(2)
    del framework.list[1:3]

    assert "call-1" in texts(framework.prompt())
    assert framework.conversation.session.scope == "main"


def test_parallel_results_make_one_step_and_a_late_one_is_text(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.prompt()
    framework.replies([{"type": "tool_use", "id": call, "name": "sh", "input": {}} for call in ("a", "b")])
    framework.result("b", "second")
    framework.result("a", "first")
    framework.result("a", "first again")
    framework.result("never", "who asked?")

    prompt = framework.prompt()

    assert not list(problems({"model": MODEL, "max_tokens": 10, "tools": [SH], "messages": joined(prompt)}))
    assert all(text in texts(prompt) for text in ("first again", "who asked?", '"first"'))
    assert framework.conversation.session.ledger().meta.counters.step == 2


def test_the_record_of_a_message_comes_back_with_it(tmp_path: Path) -> None:
    with opened(tmp_path) as conversation:
        framework = Framework(conversation)
        framework.says("user", "Mend it.", record={"name": "Ada", "nested": {"n": [1, 2.5, None]}})
        framework.works(1)
        framework.prompt()
    with opened(tmp_path) as conversation:
        (human, record), *others = conversation.records()

    assert human == {"role": "user", "content": [{"type": "text", "text": "Mend it."}]}
    assert record == {"name": "Ada", "nested": {"n": [1, 2.5, None]}, "id": "m0"}
    assert [message["content"][0]["type"] for message, _ in others] == ["tool_use", "tool_result"]
    assert [record["id"] for _, record in others] == ["m1", "m2"]


def test_nobody_is_sent_a_record(framework: Framework) -> None:
    framework.says("user", "Mend it.", record={"name": "Ada"})

    assert "Ada" not in texts(framework.prompt())


def test_a_context_tool_whose_reply_is_not_recorded_is_refused(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    framework.prompt()

    with pytest.raises(BadInput, match="no call with that id"):
        framework.conversation.handle("unknown", "search", {"pattern": "x"})


def test_a_tool_of_the_agents_own_keeps_its_name(tmp_path: Path) -> None:
    search: Mapping[str, Any] = {**SH, "name": "search"}
    with Conversation.open(tmp_path / ".ctxvc", "talk", model=MODEL, tools=[search]) as conversation:
        names = [tool["name"] for tool in conversation.tools()]

    assert "context_search" in names and "search" not in names


@pytest.mark.parametrize("text", ["", "a/b", "../..", "HEAD", "é" * 200, "x" * 101, "\ud800"])
def test_any_name_of_a_conversation_names_a_session(tmp_path: Path, text: str) -> None:
    with Conversation.open(tmp_path / ".ctxvc", session_name(text), tools=[SH]) as conversation:
        assert conversation.session.name == session_name(text)


def test_two_names_of_conversations_never_name_one_session() -> None:
    names = ["a/b", "a-b", "a:b", "A-b", session_name("a/b"), session_name(session_name("a/b"))]

    assert len({session_name(name).lower() for name in names}) == len(names)


def test_a_uuid_names_a_session_as_it_is() -> None:
    assert session_name("6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a") == "6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a"


def test_an_id_of_any_length_is_recorded_once_and_bounded(framework: Framework) -> None:
    framework.list.append(
        FrameworkMessage(id="x" * 100_000, message={"role": "user", "content": "Mend it."}, source="source")
    )
    framework.prompt()
    framework.prompt()

    ((_, record),) = framework.conversation.records()
    assert len(record["id"]) == 64


def test_a_message_of_several_blocks_comes_back_whole_and_one_of_unknown_blocks_too(framework: Framework) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    framework.says("user", [{"type": "text", "text": "See."}, picture])
    framework.prompt()
    framework.replies([{"type": "reasoning", "encrypted": "abc"}, {"type": "text", "text": "So."}])
    framework.says("user", "Go on.")

    assert [item.source for item in framework.prompt() if item.source] == ["source 0", "source 1", "source 2"]


def test_text_that_imitates_a_stub_does_not_come_back_as_it_was(framework: Framework) -> None:
    framework.says("user", "[archived B1@abcdef · 9k; recover B1]")

    assert "source 0" not in {item.source for item in framework.prompt()}


def test_a_call_id_that_comes_again_is_another_call(framework: Framework) -> None:
    framework.says("user", "Mend it.")
    for step in range(3):
        assert not problems(
            {"model": MODEL, "max_tokens": 9, "messages": [item.message for item in framework.prompt()]}
        )
        framework.replies([{"type": "tool_use", "id": "call_0", "name": "sh", "input": {}}])
        assert framework.conversation.handle("call_0", "sh", {}) is None
        framework.result("call_0", f"output {step}")

    prompt = texts(framework.prompt())

    assert all(prompt.count(f"output {step}") == 1 for step in range(3))
    assert not framework.conversation.session.stored.open_calls
