"""Everything together, in any order, against a model that fits on a page.

Several open sessions, on two conversations of one store, append messages of all kinds, write notes, change rows, open
scopes and go between them, inside calls and outside, flush, look, close, open again and repack. The model only knows
what a person would expect: lists of blocks, and which calls are open.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ctxvc.core.ledger.block import PRESENT, TRANSITIONS, Message, Part, after
from ctxvc.core.ledger.ledger import Group
from ctxvc.errors import Refused
from ctxvc.store import store as stores
from ctxvc.store.git import program as programs
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import human, injected, raw, reply, result, results
from tests.making.store import add_scope, complaints, contents, git

CONVERSATIONS = ("demo", "other")
SCOPES = ("main", "side")
WRITERS = 4
MOST_SCOPES = 6


@dataclass
class Block:
    id: str
    kind: str
    body: bytes
    call: str = ""
    state: str = "visible"
    msg: int = 0
    turn: int = 0
    human: bool = False
    said: str = ""  # where a human said it first, as SCOPE:BLOCK; empty if here


@dataclass
class Wanted:
    """A switch that was asked for inside a call."""

    name: str
    text: str
    new: bool
    with_messages: bool = False
    made: bool = False


@dataclass
class Scope:
    """What a scope should be: its blocks in order, its open calls, and how many steps are complete."""

    blocks: list[Block] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    step_open: bool = False
    replied: bool = False
    steps: int = 0
    verbs: int = 0
    turn: int = 0
    parent: str = ""
    asked: Wanted | None = None  # a switch that waits for the end of the step

    def end_of_step(self) -> None:
        if self.step_open and self.replied and not self.calls:
            self.steps += 1
            self.step_open = self.replied = False

    def finish(self) -> None:
        """What came in and nobody replied to is a commit, and the reply will be another."""
        if self.step_open:
            self.verbs += 1
            self.step_open = False

    def replies(self) -> list[Block]:
        return [block for block in self.blocks if block.turn == self.turn and block.kind in ("assistant", "tool_use")]

    def in_turn(self) -> bool:
        replies = self.replies()
        newest = [block.kind for block in replies if block.msg == replies[-1].msg]
        return "tool_use" in newest if newest else self.turn > 0

    def inherited(self) -> list[Block]:
        """What a new scope gets, by the words of the design."""
        pinned = {block.call for block in self.blocks if block.call and block.state == "pinned"}
        calls = {block.call for block in self.blocks if block.kind == "tool_use"}
        return [
            replace(block)
            for block in self.blocks
            if block.state == "pinned"
            or (block.kind == "note" and block.state not in ("pruned", "deleted"))
            or (block.call in pinned & calls)
            or (block.human and block.turn == self.turn and self.in_turn())
        ]


class Machine(RuleBasedStateMachine):
    template: Path | None = None

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ctxvc-stateful-"))
        self.path = self.folder / ".ctxvc"
        shutil.copytree(self._template(), self.path)
        self.model = {(name, scope): Scope() for name in CONVERSATIONS for scope in SCOPES}
        for name in CONVERSATIONS:
            self.model[name, "side"].parent = "main"
        self.numbers = dict.fromkeys(CONVERSATIONS, 0)
        self.groups = dict.fromkeys(CONVERSATIONS, 0)
        self.said = self.messages = 0
        self.wanted: list[Wanted | None] = [None] * WRITERS
        self.stores = [Store(self.path) for _ in range(WRITERS)]
        # Two writers on each conversation: one that stays, one that moves between its scopes.
        self.open = [StoredSession.open(self.stores[n], CONVERSATIONS[n % 2], SCOPES[n // 2]) for n in range(WRITERS)]
        self.here = [session.scope for session in self.open]

    @classmethod
    def _template(cls) -> Path:
        if cls.template is None:
            folder = tempfile.mkdtemp(prefix="ctxvc-template-")
            atexit.register(shutil.rmtree, folder)
            cls.template = Path(folder) / ".ctxvc"
            with stores.create(cls.template) as store:
                for name in CONVERSATIONS:
                    store.create_session(name)
                    with StoredSession.open(store, name) as session:
                        add_scope(session, "side")
        return cls.template

    # --- the model's side of an append

    def expect(self, name: str, scope: Scope, kind: str, body: bytes, call: str = "", human: bool = False) -> str:
        self.numbers[name] += 1
        block = Block(f"B{self.numbers[name]}", kind, body, call, msg=self.messages, turn=scope.turn, human=human)
        scope.blocks.append(block)
        return block.id

    def interrupt(self, name: str, scope: Scope) -> list[str]:
        self.messages += 1
        ids = [self.expect(name, scope, "tool_result", b"", call) for call in scope.calls]
        scope.calls.clear()
        scope.end_of_step()
        return ids

    def told(self, writer: int, scope: str, *messages: Message) -> None:
        """The messages are appended, for real and in the model, and both give them the same numbers."""
        session, expected = self.open[writer], []
        self.follow(writer)
        for message in messages:
            ids, rest = self.settled(session.name, self.model[session.name, scope], message)
            expected += ids
            made = self.switch_if_due(session.name, scope)
            if made and self.here[writer] == scope:  # who ends the step there goes along, as after a kill
                self.here[writer] = made.name
            expected += self.begun(session.name, self.model[session.name, scope], message, rest)
        assert session.append(*messages, scope=scope) == expected
        self.follow(writer)
        wanted = self.model[session.name, session.scope].asked
        assert session.switching == (wanted.name if wanted else "")

    def settled(self, name: str, scope: Scope, message: Message) -> tuple[list[str], list[Part]]:
        """What a message does to the open step: the new blocks, and what is left of it."""
        self.messages += 1
        if message.role == "assistant":
            return self.interrupt(name, scope), list(message.parts)
        answers = [part for part in message.parts if part.kind == "tool_result" and part.call in scope.calls]
        others = [part for part in message.parts if part not in answers]
        ids = []
        for part in answers:
            ids.append(self.expect(name, scope, part.kind, part.body, part.call))
            scope.calls.remove(part.call)
        scope.end_of_step()
        if any(part.origin == "human" for part in others):
            ids += self.interrupt(name, scope)
        return ids, others

    def begun(self, name: str, scope: Scope, message: Message, parts: list[Part]) -> list[str]:
        if not parts:
            return []
        self.messages += 1
        if message.role == "assistant":
            scope.turn = scope.turn or 1
            scope.step_open = scope.replied = True
            ids = [self.expect(name, scope, part.kind, part.body, part.call) for part in parts]
            scope.calls = [part.call for part in parts if part.kind == "tool_use"]
            scope.end_of_step()
            return ids
        human = any(part.origin == "human" for part in parts)
        scope.turn += scope.turn == 0 or (human and bool(scope.replies()))
        scope.step_open = True
        return [
            self.expect(name, scope, part.kind, part.body, part.call, human=part.origin == "human") for part in parts
        ]

    # --- the model's side of a switch

    def switch_if_due(self, name: str, scope: str) -> Wanted | None:
        """Whoever ends the step makes the switch that was asked for in it; gives it if it was made."""
        model = self.model[name, scope]
        if (wanted := model.asked) and not model.calls:
            model.asked, wanted.made = None, True
            self.switch(name, scope, wanted)
            return wanted
        return None

    def follow(self, writer: int) -> None:
        """A writer whose switch was made is in the new scope, also if another one made it."""
        session, wanted = self.open[writer], self.wanted[writer]
        here = self.here[writer]
        if wanted and self.model[session.name, here].asked is not wanted:
            self.wanted[writer], self.here[writer] = None, wanted.name if wanted.made else here
        session.refresh()
        assert session.scope == self.here[writer]

    def switch(self, name: str, here: str, wanted: Wanted) -> None:
        left = self.model[name, here]
        left.finish()
        if not wanted.new:
            there = self.model[name, wanted.name]
            there.asked = None  # who comes there takes over
            self.interrupt(name, there)
            there.finish()
            self.noted(name, there, f"[← {here}] {wanted.text}")
            if not self.began_in(name, wanted.name, here):
                self.arrive(name, here, wanted.name)
            return
        self.noted(name, left, f"[→ {wanted.name}] {wanted.text}")
        blocks = [replace(block) for block in left.blocks] if wanted.with_messages else left.inherited()
        turn = left.turn + (not wanted.with_messages and not left.in_turn())
        self.model[name, wanted.name] = Scope(blocks=blocks, turn=turn, parent=here)

    def began_in(self, name: str, scope: str, ancestor: str) -> bool:
        while scope := self.model[name, scope].parent:
            if scope == ancestor:
                return True
        return False

    def arrive(self, name: str, left: str, to: str) -> None:
        """What a human said in `left` arrives once, whichever way; what it took along was not said there."""
        here, there = self.model[name, left], self.model[name, to]
        parent = self.model[name, here.parent].blocks if here.parent else []
        known = {block.id for block in [*parent, *there.blocks]}
        places = {block.said for block in there.blocks}
        for block in here.blocks:
            place = block.said or f"{left}:{block.id}"
            is_new = block.id not in known and place not in places and not place.startswith(f"{to}:")
            if block.human and block.state != "deleted" and is_new:
                self.expect(name, there, block.kind, block.body, human=True)
                there.blocks[-1].said = place

    def noted(self, name: str, scope: Scope, text: str) -> str:
        self.messages += 1
        scope.verbs += 1
        return self.expect(name, scope, "note", text.encode())

    def asked(self, writer: int, wanted: Wanted) -> None:
        """A switch is asked for, for real and in the model."""
        session = self.open[writer]
        self.follow(writer)
        here = session.scope
        model = self.model[session.name, here]

        def ask() -> None:
            if wanted.new:
                session.open_scope(wanted.name, wanted.text, with_messages=wanted.with_messages)
            else:
                session.goto(wanted.name, wanted.text)

        if model.asked or wanted.name == here:
            with pytest.raises(Refused):
                ask()
            return
        self.wanted[writer] = model.asked = wanted
        self.switch_if_due(session.name, here)
        ask()
        expected = (here, wanted.name) if model.asked else (wanted.name, self.switching(session.name, wanted.name))
        assert (session.scope, session.switching) == expected
        self.follow(writer)

    def switching(self, name: str, scope: str) -> str:
        asked = self.model[name, scope].asked
        return asked.name if asked else ""

    def scope(self, writer: int, pick: int) -> str:
        names = [scope for name, scope in self.model if name == self.open[writer].name]
        return names[pick % len(names)]

    def text(self, what: str) -> str:
        self.said += 1
        return f"{what} {self.said}"

    # --- what can happen

    writers = st.integers(0, WRITERS - 1)
    picks = st.integers(0, MOST_SCOPES - 1)

    @rule(
        writer=writers, pick=picks, kind=st.sampled_from(["question", "reminder", "bytes"]), body=st.binary(max_size=40)
    )
    def something_comes_in(self, writer: int, pick: int, kind: str, body: bytes) -> None:
        makers = {"question": human, "reminder": injected}
        message = makers[kind](self.text(kind)) if kind in makers else raw(body)
        self.told(writer, self.scope(writer, pick), message)

    @rule(writer=writers, pick=picks)
    def a_whole_turn_comes_at_once(self, writer: int, pick: int) -> None:
        call = self.text("call").replace(" ", "-")
        turn = [human(self.text("question")), reply("", call), results(result(call, self.text("output")))]
        self.told(writer, self.scope(writer, pick), *turn, reply(self.text("reply")))

    @rule(writer=writers, pick=picks, calls=st.integers(0, 3))
    def the_model_replies(self, writer: int, pick: int, calls: int) -> None:
        text = self.text("reply")
        names = [f"{text}/{number}".replace(" ", "-") for number in range(calls)]
        self.told(writer, self.scope(writer, pick), reply(text, *names))

    @rule(writer=writers, pick=picks, data=st.data(), words=st.sampled_from([None, human, injected]))
    def results_come(self, writer: int, pick: int, data: st.DataObject, words: Callable[[str], Message] | None) -> None:
        calls = self.model[self.open[writer].name, self.scope(writer, pick)].calls
        if calls:
            chosen = data.draw(st.lists(st.sampled_from(calls), min_size=1, unique=True))
            parts = [result(call, self.text("output")) for call in chosen]
            parts += words(self.text("and then")).parts if words else ()
            self.told(writer, self.scope(writer, pick), results(*parts))

    @rule(writer=writers, pick=picks)
    def a_stray_result_comes(self, writer: int, pick: int) -> None:
        self.told(writer, self.scope(writer, pick), results(result("nobody-asked", self.text("stray"))))

    @rule(writer=writers, pick=picks, data=st.data())
    def a_verb_is_used(self, writer: int, pick: int, data: st.DataObject) -> None:
        session, scope = self.open[writer], self.scope(writer, pick)
        model = self.model[session.name, scope]
        if not model.blocks:
            return
        block = data.draw(st.sampled_from(model.blocks))
        verb = data.draw(st.sampled_from(sorted(TRANSITIONS[block.state])))  # type: ignore[index]
        session.refresh()
        block.state = after(block.state, verb)  # type: ignore[assignment, arg-type]
        row = msgspec.structs.replace(session.ledger(scope)[block.id], state=block.state)
        session.change(subject=f"{verb} {block.id}", op=verb, actor="user", rows=[row], scope=scope)
        model.verbs += 1

    @rule(writer=writers, pick=picks, data=st.data())
    def blocks_leave_as_a_group(self, writer: int, pick: int, data: st.DataObject) -> None:
        session, scope = self.open[writer], self.scope(writer, pick)
        model = self.model[session.name, scope]
        visible = [block for block in model.blocks if block.state == "visible"]
        if len(visible) < 2:
            return
        chosen = data.draw(st.lists(st.sampled_from(visible), min_size=2, max_size=4, unique_by=lambda block: block.id))
        self.groups[session.name] += 1
        group = Group(id=f"G{self.groups[session.name]}", members=tuple(block.id for block in chosen), stub="[gone]")
        session.refresh()
        gone, rows = {"state": "archived", "group": group.id}, []
        for block in chosen:
            rows.append(msgspec.structs.replace(session.ledger(scope)[block.id], **gone))
            block.state = "archived"
        how = {"op": "archive", "actor": "user", "groups": [group], "scope": scope}
        session.change(subject=f"archive {group.id}", rows=rows, **how)  # type: ignore[arg-type]
        model.verbs += 1
        assert session.ledger(scope).groups[group.id] == group

    @rule(writer=writers)
    def a_writer_flushes(self, writer: int) -> None:
        self.open[writer].flush()

    @rule(writer=writers, pick=picks)
    def a_step_is_finished_as_it_is(self, writer: int, pick: int) -> None:
        session, scope = self.open[writer], self.scope(writer, pick)
        model = self.model[session.name, scope]
        self.follow(writer)
        self.interrupt(session.name, model)
        model.finish()
        self.switch_if_due(session.name, scope)
        session.finish(scope)

    @rule(writer=writers, pick=picks)
    def a_note_is_written(self, writer: int, pick: int) -> None:
        session, scope = self.open[writer], self.scope(writer, pick)
        text = self.text("note")
        assert session.note(text, scope=scope) == self.noted(session.name, self.model[session.name, scope], text)

    @rule(writer=writers, with_messages=st.booleans())
    def a_scope_is_opened(self, writer: int, with_messages: bool) -> None:
        name = self.open[writer].name
        asked = sum(bool(scope.asked and scope.asked.new) for (of, _), scope in self.model.items() if of == name)
        if sum(conversation == name for conversation, _ in self.model) + asked < MOST_SCOPES:
            new = self.text("scope").replace(" ", "-")
            self.asked(writer, Wanted(new, self.text("to try"), new=True, with_messages=with_messages))

    @rule(writer=writers, pick=picks)
    def a_writer_goes_to_another_scope(self, writer: int, pick: int) -> None:
        self.asked(writer, Wanted(self.scope(writer, pick), self.text("back"), new=False))

    @rule(writer=writers, work=st.booleans())
    def a_model_switches_in_a_call(self, writer: int, work: bool) -> None:
        """As an agent does it: the call, the request, then the result; perhaps with another one open beside it."""
        self.follow(writer)
        here, call = self.open[writer].scope, self.text("switch").replace(" ", "-")
        self.told(writer, here, reply("", call, *([f"{call}-too"] if work else [])))
        if self.open[writer].scope == here:
            self.a_scope_is_opened(writer, with_messages=False)
            self.told(writer, here, results(result(call, "soon")))

    @rule(writer=writers)
    def a_writer_looks(self, writer: int) -> None:
        self.follow(writer)
        self.same(self.open[writer])

    @rule(writer=writers, killed=st.booleans())
    def a_writer_leaves_and_comes_back(self, writer: int, killed: bool) -> None:
        """Killed, as far as the disk can tell: it never closes, and the next one finds what it left."""
        old = self.open[writer]
        if killed:
            old._journal.close()
        else:
            old.close()
            self.stores[writer].close()
        self.stores[writer] = Store(self.path)
        self.open[writer], self.wanted[writer] = StoredSession.open(self.stores[writer], old.name, old.scope), None
        self.here[writer] = old.scope
        if not killed:
            self.same(self.open[writer])

    @rule()
    def packs_are_merged(self) -> None:
        with self.stores[0].exclusive():
            programs.run(self.path, "repack", "--geometric=2", "-d", "--quiet", "--no-write-bitmap-index")

    @rule(steps=st.sampled_from([1, 3, 1000]), seconds=st.sampled_from([0.0, 1e9]))
    def flushes_are_rarer_or_more_frequent(self, steps: int, seconds: float) -> None:
        writers.FLUSH_STEPS, writers.FLUSH_SECONDS = steps, seconds

    # --- what must hold

    def same(self, session: StoredSession) -> None:
        assert set(session.scopes()) == {scope for name, scope in self.model if name == session.name}
        for scope in session.scopes():
            model = self.model[session.name, scope]
            rows = list(session.ledger(scope).rows())
            assert [(row.id, row.kind, row.call, row.state) for row in rows] == [
                (block.id, block.kind, block.call, block.state) for block in model.blocks
            ]
            assert contents(session, scope) == {block.id: block.body for block in model.blocks}

    @precondition(lambda self: hasattr(self, "numbers"))
    @invariant()
    def no_number_is_used_twice(self) -> None:
        for name in CONVERSATIONS:
            held: dict[str, bytes] = {}
            for (conversation, _), scope in self.model.items():
                for block in scope.blocks if conversation == name else ():
                    assert held.setdefault(block.id, block.body) == block.body
                assert len({block.id for block in scope.blocks}) == len(scope.blocks)
            assert len(held) == self.numbers[name]

    def teardown(self) -> None:
        if not hasattr(self, "open"):
            return
        writers.FLUSH_STEPS, writers.FLUSH_SECONDS = 32, 1.0
        try:
            self.all_agree()
        finally:
            shutil.rmtree(self.folder)

    def all_agree(self) -> None:
        for session in self.open:
            session.refresh()
            self.same(session)
            session.close()
        for store in self.stores:
            store.close()
        with Store(self.path) as store:
            for name in CONVERSATIONS:
                with StoredSession.open(store, name) as session:
                    self.same(session)
                    for scope in session.scopes():
                        self._git_agrees(session, scope)
        assert complaints(self.path) == ""

    def _git_agrees(self, session: StoredSession, scope: str) -> None:
        model = self.model[session.name, scope]
        committed = store_blocks(session, scope)
        ops = git(
            self.path, "log", "--first-parent", "--format=%(trailers:key=Ctxvc-Op,valueonly)", f"{session.name}/{scope}"
        ).split()
        held = [*takewhile(lambda op: op not in ("session", "scope"), ops)]
        if not model.step_open:
            assert committed == {block.id: block.state in PRESENT for block in model.blocks}
            assert len(held) == model.steps + model.verbs
        else:
            assert model.steps <= len(held) <= model.steps + model.verbs
            assert [block.id for block in model.blocks][: len(committed)] == list(committed)


def store_blocks(session: StoredSession, scope: str) -> dict[str, bool]:
    """Block id → whether its body stands in the prompt, by the tree of the scope's tip."""
    tip = f"{session.name}/{scope}"
    names = git(session.store.path, "ls-tree", "-r", "--name-only", tip, "blocks", "archive").split()
    found = {name.rsplit("/", 1)[1].split(".")[0]: name.startswith("blocks/") for name in names}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


class TestQuick(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=10, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
class TestLong(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(
        max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
