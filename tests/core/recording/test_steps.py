"""A recording becomes the same units however much of it was there at first, and nothing that was said is lost."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.recording.events import Closed, Compacted, Forked, Said, Sent
from ctxvc.core.recording.steps import Compaction, Fork, Gatherer, Step, Unit
from tests.making.generated import recordings

Events = list[Said | Closed | Compacted | Forked]


def fed(events: Iterable[Any], gatherer: Gatherer | None = None) -> list[Unit]:
    gatherer = gatherer or Gatherer()
    return [unit for event in events for unit in gatherer.feed(event)]


def all_of(events: Iterable[Any]) -> list[Unit]:
    """The units of a recording that goes on no more."""
    gatherer = Gatherer()
    return [*fed(events, gatherer), *gatherer.finish()]


def recorded(part: Part) -> bool:
    return "interrupted" not in wire.own_metadata(part.extra)


# --- properties


@given(recordings(), st.data())
def test_the_units_of_a_file_that_grows_are_those_of_the_finished_one(events: Events, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    whole = all_of(events)
    first = fed(events[:cut])
    assert whole[: len(first)] == first
    assert all_of(events) == whole


@given(recordings())
def test_everything_said_is_in_one_unit_of_its_scope(events: Events) -> None:
    """A prompt that a rewind went back to is also in the scope that the rewind opened."""
    said = {part.body for event in events for part in parts_of_event(event)}
    held: dict[str, Counter[bytes]] = {}
    for unit in all_of(events):
        held.setdefault(unit.scope, Counter()).update(part.body for part in parts_of_unit(unit))

    assert said == set().union(*held.values())
    assert all(count == 1 for scope in held.values() for count in scope.values())
    replied = {part.body for event in events if is_reply(event) for part in parts_of_event(event)}
    for body, count in Counter(body for scope in held.values() for body in scope).items():
        assert count == 1 or (body not in replied and any(isinstance(event, Forked) for event in events))


def is_reply(event: Any) -> bool:
    return isinstance(event, Said) and event.message.role == "assistant"


def parts_of_event(event: Any) -> list[Part]:
    messages = [event.message] if isinstance(event, Said) else getattr(event, "summary", ())
    return [part for message in messages for part in message.parts]


def parts_of_unit(unit: Unit) -> list[Part]:
    messages = unit.messages if isinstance(unit, Step) else unit.event.summary if isinstance(unit, Compaction) else ()
    return [part for message in messages for part in message.parts if recorded(part)]


@given(recordings())
def test_a_step_is_what_came_in_then_one_reply_then_one_message_with_a_result_for_each_call(events: Events) -> None:
    for unit in all_of(events):
        if not isinstance(unit, Step):
            continue
        roles = [message.role for message in unit.messages]
        replies = [at for at, role in enumerate(roles) if role == "assistant"]
        assert len(replies) <= 1
        if not replies:
            continue
        (at,) = replies
        calls = [part.call for part in unit.messages[at].parts if part.kind == "tool_use"]
        after = unit.messages[at + 1 :]
        assert len(after) == bool(calls)
        assert sorted(part.call for message in after for part in message.parts) == sorted(calls)
        assert all(part.kind == "tool_result" for message in after for part in message.parts)


@given(recordings())
def test_numbering_finds_every_whole_step_complete(events: Events) -> None:
    """What units call a step is what numbering calls one."""
    numberings: dict[str, Numbering] = {}
    for unit in all_of(events):
        if isinstance(unit, Step):
            numbering = numberings.setdefault(unit.scope, Numbering(block=0))
            made = [entry for message in unit.messages for entry in numbering.add(message)]
            replied = any(message.role == "assistant" for message in unit.messages)
            assert numbering.complete == replied
            assert len({entry.step for entry in made}) == 1
            assert sum(len(entry.rows) for entry in made) == sum(len(message.parts) for message in unit.messages)


@given(recordings(forks=False))
def test_a_scope_is_gathered_as_if_it_were_alone(events: Events) -> None:
    def plain(units: list[Unit], scope: str) -> list[Any]:
        mine = [unit for unit in units if unit.scope == scope]
        return [unit.messages if isinstance(unit, Step) else unit.event.summary for unit in mine]  # type: ignore[union-attr]

    together = all_of(events)
    for name, scope in (("", "main"), ("agent-1", "agent-1")):
        alone = all_of(event for event in events if event.scope == name)  # type: ignore[union-attr]
        assert plain(together, scope) == plain(alone, scope)


@given(recordings())
def test_places_only_go_forward(events: Events) -> None:
    gatherer = Gatherer()
    newest: dict[str, int] = {}
    numbers = itertools.count(1)
    for event in events:
        for unit in gatherer.feed(event):
            number = next(numbers)
            assert gatherer.number == number
            assert newest.get(unit.scope, 0) <= unit.end <= event.end
            assert not isinstance(unit, Fork) or 0 <= unit.unit < number
            newest[unit.scope] = unit.end


@given(recordings())
def test_nothing_rests_after_the_end(events: Events) -> None:
    gatherer = Gatherer()
    fed(events, gatherer)
    list(gatherer.finish())
    assert gatherer.rest() == 0
    assert list(gatherer.finish()) == []


# --- examples


class Told:
    """Events one after another, each with its place in the file."""

    def __init__(self) -> None:
        self.events: Events = []

    def __call__(self, role: Any, *parts: Part, key: str = "", reply: str = "", scope: str = "") -> Told:
        key = key or f"line:{len(self.events) + 1}"
        message = Message(role=role, parts=parts, key=key, reply=reply)
        self.events.append(Said(message=message, end=len(self.events) + 1, scope=scope))
        return self

    def human(self, text: str, **fields: str) -> Told:
        return self("user", wire.text_part(text, "user", "human"), **fields)

    def client(self, text: str, **fields: str) -> Told:
        return self("user", wire.text_part(text, "user", "client"), **fields)

    def reply(self, text: str, *calls: str, **fields: str) -> Told:
        said = [wire.text_part(text, "assistant", "model")] if text else []
        return self("assistant", *said, *(wire.call_part("sh", call, b"{}") for call in calls), **fields)

    def results(self, *calls: str, **fields: str) -> Told:
        return self("user", *(wire.result_part(f"out {call}", call) for call in calls), **fields)

    def happened(self, kind: type[Any], **fields: Any) -> Told:
        self.events.append(kind(end=len(self.events) + 1, **fields))
        return self


def shown(units: Iterable[Unit]) -> list[Any]:
    """Each step as lists of what its messages say; calls and results by their ids."""

    def words(part: Part) -> str:
        sign = {"tool_use": "?", "tool_result": "=" if recorded(part) else "!"}.get(part.kind, "")
        return sign + (part.call or part.body.decode())

    told: list[Any] = []
    for unit in units:
        match unit:
            case Step():
                told.append([" ".join(map(words, message.parts)) for message in unit.messages])
            case Compaction():
                told.append(("compaction", sorted(unit.event.kept), unit.event.before))
            case Fork():
                told.append(("fork", unit.origin, unit.unit))
    return told


def go(first: str = "go", **fields: str) -> Told:
    return Told().human(first, **fields)


MIXED = (wire.result_part("out", "c1"), wire.text_part("and", "user", "human"))
SUMMARY = (Message(role="user", parts=(wire.text_part("s", "user", "client"),), key="s"),)


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        pytest.param(
            go().results("c1").reply("", "c1").human("next"),
            [["go", "?c1", "=c1"], ["next"]],
            id="a result before its call waits for it",
        ),
        pytest.param(
            go().reply("", "c1", "c2").results("c1").human("wait").client("note").results("c2").reply("b"),
            [["go", "?c1 ?c2", "=c1 =c2"], ["wait", "note", "b"]],
            id="a human text between call and result belongs to the next step",
        ),
        pytest.param(
            go().reply("", "c1", "c2").results("c2").reply("b", "c3").results("c1").results("c3").reply("c"),
            [["go", "?c1 ?c2", "=c2 !c1"], ["b ?c3", "=c3"], ["=c1", "c"]],
            id="a reply closes a step that waits, and a late result comes in",
        ),
        pytest.param(
            Told().results("c9").human("go").reply("a").human("more").reply("b"),
            [["go", "a"], ["more", "b"], ["=c9"]],
            id="a result whose call never comes is not lost",
        ),
        pytest.param(
            go().reply("a", reply="r1").happened(Closed).reply("", reply="r1"),
            [["go", "a"]],
            id="usage told after the reply is closed says nothing new",
        ),
        pytest.param(
            go().reply("", "c1").client("note").happened(Compacted, summary=()).results("c1").reply("b"),
            [["go", "?c1", "!c1"], ["note"], ("compaction", [], ""), ["=c1", "b"]],
            id="a compaction closes the step and what came in meanwhile",
        ),
        pytest.param(
            go("a").reply("b").client("c", key="one").human("d", key="two").client("e").reply("f")
            .happened(Forked, after="two").reply("g").happened(Forked, after="one").reply("h"),
            [["a", "b"], ["c", "d", "e", "f"], ("fork", "main", 1), ["c", "d", "g"], ("fork", "main", 1), ["c", "h"]],
            id="a rewind to a prompt takes the prompt with it",
        ),
        pytest.param(
            go("a").reply("", "c1")("user", *MIXED, key="here").reply("b").happened(Forked, after="here").reply("c"),
            [["a", "?c1", "=c1"], ["and", "b"], ("fork", "main", 1), ["and", "c"]],
            id="a rewind to a message with results and words takes the words with it",
        ),
        pytest.param(
            go("a", key="k").reply("", "c1").client("note").happened(Forked, after="k").reply("b"),
            [["a", "?c1", "!c1"], ["note"], ("fork", "main", 0), ["a", "b"]],
            id="a rewind leaves nothing of the line it left open",
        ),
        pytest.param(
            go("a").reply("b").happened(Compacted, summary=SUMMARY).human("c").reply("d").happened(Forked, after="s")
            .human("e", key="e").reply("f").happened(Forked, after="e").reply("g"),
            [["a", "b"], ("compaction", [], ""), ["c", "d"], ("fork", "main", 2), ["e", "f"], ("fork", "rewind-1", 4),
             ["e", "g"]],
            id="a rewind inside a rewind and to a summary",
        ),
    ],
)  # fmt: skip
def test_what_is_told_becomes_steps(told: Told, steps: list[Any]) -> None:
    assert shown(all_of(told.events)) == steps


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        (go().reply("a").human("next"), [["go", "a"]]),
        (go().reply("a").client("next"), []),
        (go().reply("a").happened(Closed), [["go", "a"]]),
        (go().reply("", "c1").happened(Closed), []),
        (
            go().reply("a", reply="r1").reply("", "c1", reply="r1").results("c1").reply("", "c2", reply="r1")
            .results("c2").reply("b", reply="r2"),
            [["go", "a ?c1 ?c2", "=c1 =c2"]],
        ),
    ],
    ids=["a human text closes", "a client's does not", "a closed reply", "that waits for nothing", "of several lines"],
)  # fmt: skip
def test_a_step_is_a_unit_as_soon_as_it_waits_for_nothing(told: Told, steps: list[Any]) -> None:
    units = fed(told.events)
    assert shown(units) == steps
    assert len(told.events) < 6 or units[0].end == 6


@pytest.mark.parametrize("counts", [(1, 90), (90, 1), (90, None), (None, 90), (90, 90, 1)])
def test_a_reply_told_in_lines_has_the_usage_of_the_line_that_counts_most(counts: tuple[int | None, ...]) -> None:
    events = Told().human("go").events
    for at, count in enumerate(counts):
        part = Part(kind="assistant", role="assistant", origin="model", body=b"a")
        usage = {} if count is None else {"input_tokens": 5, "output_tokens": count}
        message = Message(role="assistant", parts=(part,), key=f"a{at}", reply="r", usage=usage)
        events.append(Said(message=message, end=10 + at))
    (step,) = all_of(events)
    assert isinstance(step, Step)
    assert step.messages[1].usage == {"input_tokens": 5, "output_tokens": 90}


def test_what_a_host_kept_is_named_as_it_is_recorded() -> None:
    reply = Told().human("go", key="k1").reply("a", reply="r", key="k2").reply("", "c1", "c2", reply="r", key="k3")
    mixed = (wire.result_part("out", "c1"), wire.text_part("note", "user", "client"))
    reply("user", *mixed, key="k4").results("c2", key="k5").happened(
        Compacted, summary=(), kept=frozenset({"k3", "k4"}), before="k3"
    )

    *_, compaction = fed(reply.events)
    assert isinstance(compaction, Compaction)
    # The reply's lines are one message under the first key, results one under the last; the note keeps its own.
    assert compaction.event.before == "k2"
    assert {"k2", "k5", "k4"} <= compaction.event.kept


def test_a_rewind_to_a_reply_goes_on_from_its_step() -> None:
    told = go("a").reply("b", key="here").human("c").reply("d").happened(Forked, after="here").human("e").reply("f")
    units = all_of(told.events)
    assert shown(units) == [["a", "b"], ["c", "d"], ("fork", "main", 1), ["e", "f"]]
    assert [unit.scope for unit in units] == ["main", "main", "rewind-1", "rewind-1"]


def test_a_rewind_to_before_the_first_message_begins_anew_and_one_to_nowhere_goes_on() -> None:
    told = go("a").reply("b").happened(Forked, after="").human("c").reply("d").happened(Forked, after="?").human("e")
    units = all_of(told.events)
    assert shown(units) == [["a", "b"], ("fork", "main", 0), ["c", "d"], ["e"]]
    assert units[-1].scope == "rewind-1"


def test_a_sub_agent_knows_where_it_came_from() -> None:
    reply = Told().human("go").reply("", "c1")
    reply.events.append(msgspec.structs.replace(Told().client("task", scope="agent-1").events[0], task="c1", end=3))
    reply.reply("found", scope="agent-1").results("c1").reply("done")

    units = all_of(reply.events)
    assert shown(units) == [["go", "?c1", "=c1"], ["done"], ["task", "found"]]
    assert [(unit.scope, unit.parent, unit.task) for unit in units if isinstance(unit, Step)][-1] == (
        "agent-1",
        "main",
        "c1",
    )


def test_a_message_without_a_key_stands_for_no_other() -> None:
    told = Told().reply("a", reply="r", key="k1").reply("b", reply="r")
    told.happened(Compacted, summary=(), kept=frozenset({"k"}))
    second: Any = told.events[1]
    told.events[1] = msgspec.structs.replace(second, message=msgspec.structs.replace(second.message, key=""))
    assert shown(fed(told.events))[-1] == ("compaction", ["k"], "")


# --- a recording that ended, and went on


def user(*texts: str, key: str = "") -> Message:
    return Message(role="user", parts=tuple(wire.text_part(text, "user", "client") for text in texts), key=key)


def test_what_was_recorded_at_an_end_is_not_recorded_again_with_the_request_that_has_it() -> None:
    """Only where the request has it as it was, and in its place; what a person wrote is there once, wherever it is."""
    reply = Message(role="assistant", parts=(wire.text_part("Yes.", "assistant", "model"),), reply="r")

    def steps_of(*came_in: Message, sent: Message) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """What is in the step that the end made, in the step of the request, and what left with the latter."""
        gatherer = Gatherer()
        fed([Said(message=message, end=1) for message in came_in], gatherer)
        ended = list(gatherer.finish())
        request = Sent(messages=(sent,), prompt=(), frame="", end=2)
        fed([Said(message=user("Go on.", key="p"), end=2), request, Said(message=reply, end=3)], gatherer)
        (step,) = gatherer.finish()
        assert isinstance(step, Step)
        earlier = [part.body for unit in ended for part in parts_of_unit(unit)]
        return earlier, [part.body for part in parts_of_unit(step)], [part.body for part in step.unsent]

    command = user("<command-name>/compact")
    person = Message(role="user", parts=(wire.text_part("Wait.", "user", "human"),))
    assert steps_of(command, sent=user("<command-name>/compact", "Go on.", "Go on.")) == (
        [b"<command-name>/compact"],
        [b"Go on.", b"Go on.", b"Yes."],
        [],
    )
    for elsewhere in ("<command-name>/compact\n", "A reminder."):
        assert steps_of(command, sent=user(elsewhere, "Go on.")) == (
            [b"<command-name>/compact"],
            [elsewhere.encode(), b"Go on.", b"Yes."],
            [b"<command-name>/compact"],
        )
    assert steps_of(command, person, sent=user("A reminder.", "Wait.", "Go on.")) == (
        [b"<command-name>/compact", b"Wait."],
        [b"A reminder.", b"Go on.", b"Yes."],
        [b"<command-name>/compact"],
    )


def test_what_a_person_says_again_after_the_reply_is_recorded_again() -> None:
    gatherer = Gatherer()
    reply = Message(role="assistant", parts=(wire.text_part("Yes.", "assistant", "model"),), reply="r")
    fed([Said(message=user("Go on."), end=1)], gatherer)
    list(gatherer.finish())
    fed([Said(message=reply, end=2)], gatherer)
    list(gatherer.finish())
    fed([Said(message=user("Go on."), end=3)], gatherer)
    fed([Sent(messages=(user("Go on."),), prompt=(), frame="", end=3)], gatherer)
    (step,) = gatherer.finish()

    assert [part.body for part in parts_of_unit(step)] == [b"Go on."]
