"""Everything together, in any order, against a model that fits on a page.

Several open sessions, on two conversations of one store, append messages of all kinds, change rows, flush, look, close,
open again and repack. The model only knows what a person would expect: lists of blocks, and which calls are open.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ctxvc.core.actions import TRANSITIONS, after
from ctxvc.core.blocks import PRESENT, Message
from ctxvc.core.ledger import Group
from ctxvc.store import git as programs
from ctxvc.store import store as stores
from ctxvc.store import writer as writers
from ctxvc.store.store import Store
from ctxvc.store.writer import Writer

from .building import add_scope, complaints, contents, git, human, raw, reminder, reply, result, results

CONVERSATIONS = ("demo", "other")
SCOPES = ("main", "side")
WRITERS = 4


@dataclass
class Block:
    id: str
    kind: str
    body: bytes
    call: str = ""
    state: str = "visible"


@dataclass
class Scope:
    """What a scope should be: its blocks in order, its open calls, and how many steps are complete."""

    blocks: list[Block] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    step_open: bool = False
    replied: bool = False
    steps: int = 0
    verbs: int = 0

    def end_of_step(self) -> None:
        if self.step_open and self.replied and not self.calls:
            self.steps += 1
            self.step_open = self.replied = False


class Machine(RuleBasedStateMachine):
    template: Path | None = None

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ctxvc-stateful-"))
        self.path = self.folder / ".ctxvc"
        shutil.copytree(self._template(), self.path)
        self.model = {(name, scope): Scope() for name in CONVERSATIONS for scope in SCOPES}
        self.numbers = dict.fromkeys(CONVERSATIONS, 0)
        self.groups = dict.fromkeys(CONVERSATIONS, 0)
        self.said = 0
        self.stores = [Store(self.path) for _ in range(WRITERS)]
        # Two writers on each conversation: one that stays, one that moves between its scopes.
        self.open = [self.stores[n].writer(CONVERSATIONS[n % 2], SCOPES[n // 2]) for n in range(WRITERS)]

    @classmethod
    def _template(cls) -> Path:
        if cls.template is None:
            folder = tempfile.mkdtemp(prefix="ctxvc-template-")
            atexit.register(shutil.rmtree, folder)
            cls.template = Path(folder) / ".ctxvc"
            with stores.create(cls.template) as store:
                for name in CONVERSATIONS:
                    store.create_session(name)
                    with store.writer(name) as session:
                        add_scope(session, "side")
        return cls.template

    # --- the model's side of an append

    def expect(self, name: str, scope: Scope, kind: str, body: bytes, call: str = "") -> None:
        self.numbers[name] += 1
        scope.blocks.append(Block(f"B{self.numbers[name]}", kind, body, call))

    def interrupt(self, name: str, scope: Scope) -> None:
        for call in scope.calls:
            self.expect(name, scope, "tool_result", b"", call)
        scope.calls.clear()
        scope.end_of_step()

    def told(self, writer: int, scope: str, *messages: Message) -> None:
        """The messages are appended, for real and in the model, and both give them the same numbers."""
        session = self.open[writer]
        first = self.numbers[session.name]
        for message in messages:
            self.understood(session.name, self.model[session.name, scope], message)
        ids = session.append(*messages, scope=scope)
        assert ids == [f"B{number}" for number in range(first + 1, self.numbers[session.name] + 1)]

    def understood(self, name: str, scope: Scope, message: Message) -> None:
        answers = [part for part in message.parts if part.kind == "tool_result" and part.call in scope.calls]
        others = [part for part in message.parts if part not in answers]
        if message.role == "assistant":
            self.interrupt(name, scope)
            scope.step_open = scope.replied = True
            for part in message.parts:
                self.expect(name, scope, part.kind, part.body, part.call)
            scope.calls = [part.call for part in message.parts if part.kind == "tool_use"]
            scope.end_of_step()
        else:
            for part in answers:
                self.expect(name, scope, part.kind, part.body, part.call)
                scope.calls.remove(part.call)
            scope.end_of_step()
            if any(part.origin == "human" for part in others):
                self.interrupt(name, scope)
            for part in others:
                self.expect(name, scope, part.kind, part.body, part.call)
                scope.step_open = True

    def text(self, what: str) -> str:
        self.said += 1
        return f"{what} {self.said}"

    # --- what can happen

    writers = st.integers(0, WRITERS - 1)
    scopes = st.sampled_from(SCOPES)

    @rule(writer=writers, scope=scopes)
    def a_person_speaks(self, writer: int, scope: str) -> None:
        self.told(writer, scope, human(self.text("question")))

    @rule(writer=writers, scope=scopes)
    def the_program_reminds(self, writer: int, scope: str) -> None:
        self.told(writer, scope, reminder(self.text("reminder")))

    @rule(writer=writers, scope=scopes, body=st.binary(max_size=40))
    def bytes_are_pasted(self, writer: int, scope: str, body: bytes) -> None:
        self.told(writer, scope, raw(body))

    @rule(writer=writers, scope=scopes)
    def a_whole_turn_comes_at_once(self, writer: int, scope: str) -> None:
        call = self.text("call").replace(" ", "-")
        turn = [human(self.text("question")), reply("", call), results(result(call, self.text("output")))]
        self.told(writer, scope, *turn, reply(self.text("reply")))

    @rule(writer=writers, scope=scopes, calls=st.integers(0, 3))
    def the_model_replies(self, writer: int, scope: str, calls: int) -> None:
        text = self.text("reply")
        self.told(writer, scope, reply(text, *(f"{text}/{number}".replace(" ", "-") for number in range(calls))))

    @rule(writer=writers, scope=scopes, data=st.data())
    def results_come(self, writer: int, scope: str, data: st.DataObject) -> None:
        calls = self.model[self.open[writer].name, scope].calls
        if calls:
            chosen = data.draw(st.lists(st.sampled_from(calls), min_size=1, unique=True))
            self.told(writer, scope, results(*(result(call, self.text("output")) for call in chosen)))

    @rule(writer=writers, scope=scopes, data=st.data())
    def a_result_comes_with_words(self, writer: int, scope: str, data: st.DataObject) -> None:
        calls = self.model[self.open[writer].name, scope].calls
        if calls:
            words = data.draw(st.sampled_from([human, reminder]))(self.text("and then"))
            parts = (result(calls[-1], self.text("output")), *words.parts)
            self.told(writer, scope, Message(role="user", parts=parts))

    @rule(writer=writers, scope=scopes)
    def a_stray_result_comes(self, writer: int, scope: str) -> None:
        self.told(writer, scope, results(result("nobody-asked", self.text("stray"))))

    @rule(writer=writers, scope=scopes, data=st.data())
    def a_verb_is_used(self, writer: int, scope: str, data: st.DataObject) -> None:
        session = self.open[writer]
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

    @rule(writer=writers, scope=scopes, data=st.data())
    def blocks_leave_as_a_group(self, writer: int, scope: str, data: st.DataObject) -> None:
        session = self.open[writer]
        model = self.model[session.name, scope]
        visible = [block for block in model.blocks if block.state == "visible"]
        if len(visible) < 2:
            return
        chosen = data.draw(st.lists(st.sampled_from(visible), min_size=2, max_size=4, unique_by=lambda block: block.id))
        self.groups[session.name] += 1
        group = Group(id=f"G{self.groups[session.name]}", members=tuple(block.id for block in chosen), stub="[gone]")
        session.refresh()
        rows = [
            msgspec.structs.replace(session.ledger(scope)[block.id], state="archived", group=group.id)
            for block in chosen
        ]
        for block in chosen:
            block.state = "archived"
        session.change(
            subject=f"archive {group.id}", op="archive", actor="user", rows=rows, groups=[group], scope=scope
        )
        model.verbs += 1
        assert session.ledger(scope).groups[group.id] == group

    @rule(writer=writers)
    def a_writer_flushes(self, writer: int) -> None:
        self.open[writer].flush()

    @rule(writer=writers, scope=scopes)
    def a_step_is_finished_as_it_is(self, writer: int, scope: str) -> None:
        session = self.open[writer]
        model = self.model[session.name, scope]
        was_open = model.step_open
        self.interrupt(session.name, model)
        session.finish(scope)
        if was_open and model.step_open:  # nobody replied: what came in is a commit, and the reply will be another
            model.verbs += 1
            model.step_open = False

    @rule(writer=writers)
    def a_writer_looks(self, writer: int) -> None:
        self.open[writer].refresh()
        self.same(self.open[writer])

    @rule(writer=writers)
    def a_writer_leaves_and_comes_back(self, writer: int) -> None:
        old = self.open[writer]
        old.close()
        self.stores[writer].close()
        self.stores[writer] = Store(self.path)
        self.open[writer] = self.stores[writer].writer(old.name, old.scope)
        self.same(self.open[writer])

    @rule(writer=writers)
    def a_writer_is_killed(self, writer: int) -> None:
        """As far as the disk can tell: it never closes, and the next one finds what it left."""
        old = self.open[writer]
        old._journal.close()
        self.stores[writer] = Store(self.path)
        self.open[writer] = self.stores[writer].writer(old.name, old.scope)

    @rule()
    def packs_are_merged(self) -> None:
        with self.stores[0].exclusive():
            programs.run(self.path, "repack", "--geometric=2", "-d", "--quiet", "--no-write-bitmap-index")

    @rule(steps=st.sampled_from([1, 3, 1000]), seconds=st.sampled_from([0.0, 1e9]))
    def flushes_are_rarer_or_more_frequent(self, steps: int, seconds: float) -> None:
        writers.FLUSH_STEPS, writers.FLUSH_SECONDS = steps, seconds

    # --- what must hold

    def same(self, session: Writer) -> None:
        for scope in SCOPES:
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
            ids = [block.id for scope in SCOPES for block in self.model[name, scope].blocks]
            assert len(ids) == len(set(ids)) == self.numbers[name]

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
                with store.writer(name) as session:
                    self.same(session)
                    for scope in SCOPES:
                        self._git_agrees(session, scope)
        assert complaints(self.path) == ""

    def _git_agrees(self, session: Writer, scope: str) -> None:
        model = self.model[session.name, scope]
        committed = store_blocks(session, scope)
        ops = git(
            self.path, "log", "--first-parent", "--format=%(trailers:key=Ctxvc-Op,valueonly)", f"{session.name}/{scope}"
        ).split()
        held = [op for op in ops if op not in ("session", "scope")]
        if not model.step_open:
            assert committed == {block.id: block.state in PRESENT for block in model.blocks}
            assert len(held) == model.steps + model.verbs
        else:
            assert model.steps <= len(held) <= model.steps + model.verbs
            assert [block.id for block in model.blocks][: len(committed)] == list(committed)


def store_blocks(session: Writer, scope: str) -> dict[str, bool]:
    """Block id → whether its body stands in the prompt, by the tree of the scope's tip."""
    names = git(
        session.store.path, "ls-tree", "-r", "--name-only", f"{session.name}/{scope}", "blocks", "archive"
    ).split()
    found = {name.rsplit("/", 1)[1].split(".")[0]: name.startswith("blocks/") for name in names}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


TestEverything = Machine.TestCase
TestEverything.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
