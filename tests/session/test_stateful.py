"""Everything that can be done to a session, in any order, by two at once: what must hold, holds after each step."""

from __future__ import annotations

import atexit
import base64
import itertools
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Rehearsal
from ctxvc.core.prompt.request import Request
from ctxvc.errors import BadInput, BadName, Conflict, NotFound, OverBudget, Refused
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address
from ctxvc.store.store import Store
from tests.making import provider as building
from tests.making.provider import WORDS, create, damages, groups_fit, inside_budget, rendered, result, sent
from tests.making.store import complaints
from tests.messages_api import Judge, call, text, thought
from tests.messages_api.rules import problems

WINDOWS = (1_500, 4_000, 12_000)
PICTURE = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 40, 40, 8, 0, 0, 0, 0) + b"\0\0\0\0"
).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}

#: What people, models and tools say: nothing, ordinary things, and what could break a format or pass for ours.
ODD = ["", " ", "a\r\nb\r\n", "nul \0 here", "half \ud800 of a pair", "\x1b[31mred", "é ü 漢字 🙂",
       "[archived B1@000000: x]",
       "[dashboard demo/main, step 1: nothing]", "[deleted B3@aaaaaa: why]", "[masked B2@123456: 3 left out]",
       "{}", "]]"]  # fmt: skip
words = st.one_of(
    st.sampled_from(ODD),
    st.integers(1, 9).map(lambda number: f"line {number}\n" * number),
    st.integers(1, 60).map(lambda number: f"{number} {WORDS}" * number),
)
outputs = st.one_of(
    words,
    st.integers(60, 700).map(lambda number: f"{number} {WORDS}" * number),
    st.sampled_from([None, [], [IMAGE], [{"type": "text", "text": "see"}, IMAGE], [{"type": "text", "text": ""}]]),
)
pieces = st.lists(
    st.one_of(
        st.builds(text, words),
        st.builds(lambda cmd: call("sh", cmd=cmd), words),
        st.builds(thought, words.filter(str.strip)),
    ),
    min_size=1,
    max_size=4,
)
VERBS = ("archive", "mask", "prune", "restore", "delete", "pin", "unpin", "summarise")


class Machine(RuleBasedStateMachine):
    """Session 0 is the agent's, session 1 a person's: two processes, as far as the store can tell."""

    templates: dict[int, Path] = {}

    @initialize(window=st.sampled_from(WINDOWS))
    def begin(self, window: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ctxvc-sessions-"))
        self.path = self.folder / ".ctxvc"
        shutil.copytree(self._template(window), self.path)
        self.judge = Judge()
        self.bodies: dict[str, bytes] = {}
        self.remembered: dict[str, bytes] = {}
        self.lifted: set[str] = set()  # human texts that a person took out, or back
        self.numbers = itertools.count()
        self.sessions = [self._open(0), self._open(1)]

    @classmethod
    def _template(cls, window: int) -> Path:
        if window not in cls.templates:
            folder = tempfile.mkdtemp(prefix="ctxvc-template-")
            atexit.register(shutil.rmtree, folder)
            create(Path(folder) / ".ctxvc", budget=window).close()
            cls.templates[window] = Path(folder) / ".ctxvc"
        return cls.templates[window]

    def _open(self, who: int) -> Session:
        return Session.open(self.path, "demo", actor="user" if who else "agent")

    # --- what is said

    def _append(self, who: int, *messages: dict[str, Any], **origin: Any) -> None:
        session = self.sessions[who]
        before = set(self.bodies)
        try:
            added = session.append(*messages, **origin)
        except Conflict as error:
            # The other has opened the scope that this one wanted to open: nothing was added, and it goes without.
            assert "nothing was added" in str(error)
            added = session.append(*messages, **origin)
        for block in added:
            assert block not in before
            self.bodies[block] = self._body(session, block)

    @staticmethod
    def _body(session: Session, block: str) -> bytes:
        scope = next(scope for scope in session.scopes() if session.ledger(scope).get(block))
        return session.stored.body(session.ledger(scope)[block], scope)

    @rule(who=st.integers(0, 1), said=words)
    def somebody_says(self, who: int, said: str) -> None:
        self._append(who, {"role": "user", "content": said})
        assert said.encode("utf-8", "surrogatepass") in self.bodies.values()

    @rule(who=st.integers(0, 1), said=words, picture=st.booleans())
    def a_program_says(self, who: int, said: str, picture: bool) -> None:
        content = [text(said), IMAGE] if picture else [text(said)]
        self._append(who, {"role": "user", "content": content}, origin="client")

    @rule(who=st.integers(0, 1), said=pieces, arrives=st.sampled_from([True, True, True, False]))
    def the_model_replies(self, who: int, said: list[dict[str, Any]], arrives: bool = True) -> None:
        session = self.sessions[who]
        if session.stored.open_calls:
            self.results_come_in(who, [""], 9)
        try:
            request = session.request()
        except OverBudget as error:
            assert len(str(error)) < 400
            return
        except BadInput:
            return
        inside_budget(session, request)
        self._printed_addresses_lead_somewhere(session, request)
        reply = self.judge.reply(sent(request), said)
        if reply["content"] and arrives:
            self._append(who, reply)

    @rule(who=st.integers(0, 1), said=pieces.map(lambda some: [one for one in some if one["type"] != "thinking"]))
    def a_reply_is_put_in(self, who: int, said: list[dict[str, Any]]) -> None:
        content = [{**one, "id": f"call {next(self.numbers)}"} if one["type"] == "tool_use" else one for one in said]
        self._append(who, {"role": "assistant", "content": content})

    @precondition(lambda self: any(session.stored.open_calls for session in self.sessions))
    @rule(who=st.integers(0, 1), given=st.lists(outputs, min_size=1, max_size=5), most=st.integers(1, 9))
    def results_come_in(self, who: int, given: list[Any], most: int) -> None:
        session = self.sessions[who]
        session.stored.refresh()
        calls = session.stored.open_calls[:most]
        if not calls:
            return
        content = []
        for number, (name, value) in enumerate(zip(calls, itertools.cycle(given), strict=False)):
            block = result({"id": name}, value, is_error=number % 3 == 2)
            content.append({key: kept for key, kept in block.items() if kept is not None})
        self._append(who, {"role": "user", "content": content})

    # --- what is done

    def _ids(self, session: Session, picks: list[int]) -> list[str]:
        ledger = session.ledger()
        names = [row.id for row in ledger.rows()] + list(ledger.groups) + ["B9999", "G99"]
        return [names[pick % len(names)] for pick in picks]

    @rule(
        who=st.integers(0, 1),
        verb=st.sampled_from(VERBS),
        picks=st.lists(st.integers(0, 400), min_size=1, max_size=6),
        index=words,
        allow=st.booleans(),
    )
    def a_verb(self, who: int, verb: Any, picks: list[int], index: str, allow: bool) -> None:
        session = self.sessions[who]
        session.stored.refresh()
        before = session.used()
        done = session.verb(verb, self._ids(session, picks), index, allow_user=bool(who and allow))
        assert all(len(problem.text) < 400 for problem in done.problems)
        if done and verb not in ("restore", "pin", "unpin", "delete"):
            assert done.freed > 0
            assert session.used() < before
        if who and allow:
            self._lifted(done)

    def _lifted(self, done: Rehearsal) -> None:
        for row in done.rows:
            if is_human(row.role, row.origin):
                self.lifted.add(row.id)

    @rule(who=st.integers(0, 1), said=words.filter(str.strip), fold=st.booleans())
    def a_note(self, who: int, said: str, fold: bool) -> None:
        self.sessions[who].note(said, fold=fold)

    @rule(
        who=st.integers(0, 1),
        name=st.sampled_from(["a", "b", "c"]),
        said=words.filter(str.strip),
        back=st.integers(0, 6),
        whole=st.booleans(),
    )
    def a_scope_is_opened(self, who: int, name: str, said: str, back: int, whole: bool) -> None:
        revision = f"~{back}" if back else ""
        try:
            self.sessions[who].open_scope(name, said, revision=revision, with_messages=whole)
        except (Refused, BadName, NotFound, BadInput):
            return

    @rule(who=st.integers(0, 1), name=st.sampled_from(["main", "a", "b", "c"]), said=words.filter(str.strip))
    def one_goes_elsewhere(self, who: int, name: str, said: str) -> None:
        try:
            self.sessions[who].goto(name, said)
        except (Refused, NotFound):
            return

    @rule(who=st.integers(0, 1), count=st.sampled_from([1, 1, 1, 3]))
    def the_last_is_undone(self, who: int, count: int) -> None:
        try:
            done, _ = self.sessions[who].undo(count)
        except Refused:
            return
        self._lifted(done)

    @rule(who=st.integers(0, 1), count=st.integers(1, 2))
    def it_is_redone(self, who: int, count: int) -> None:
        try:
            done, _ = self.sessions[who].redo(count)
        except Refused:
            return
        self._lifted(done)

    @rule(who=st.integers(0, 1), pick=st.integers(0, 400), whole=st.booleans())
    def something_is_read(self, who: int, pick: int, whole: bool) -> None:
        session = self.sessions[who]
        session.stored.refresh()
        (name,) = self._ids(session, [pick])
        try:
            if whole:
                for row, body in session.recover_bytes(name):
                    assert self.bodies.get(row.id, body) == body
            else:
                read = session.recover(name)
                assert session._context.meter.count(read.text) <= read.tokens + 2
        except (NotFound, Refused):
            return

    @rule(who=st.integers(0, 1))
    def it_is_opened_again(self, who: int) -> None:
        self.sessions[who].close()
        self.sessions[who] = self._open(who)
        self._remember(self.sessions[who])

    def _remember(self, session: Session) -> None:
        tip = session.stored.tip()
        self.remembered.setdefault(tip, rendered(session.store, tip))

    # --- what holds

    @invariant()
    def what_would_be_sent_is_valid(self) -> None:
        for session in self.sessions:
            session.stored.refresh()
            messages = session.prompt().messages
            if not messages or messages[-1]["role"] == "assistant":
                messages = [*messages, {"role": "user", "content": "go on"}]
            body = {**sent(session.prompt()), "messages": messages}
            betas = body.pop("betas")
            assert not problems(body, betas=betas)

    @invariant()
    def what_people_wrote_stays(self) -> None:
        for session in self.sessions:
            for row in session.ledger().rows():
                assert row.present or not is_human(row.role, row.origin) or row.id in self.lifted, row

    @invariant()
    def a_stub_costs_less_than_its_block(self) -> None:
        session = self.sessions[0]
        price = session.view().price
        for row in session.ledger().rows():
            if row.stub and row.state in ("archived", "blocked") and not row.group:
                assert price.text(row.stub) < price.body(row), row

    @invariant()
    def groups_and_rows_agree(self) -> None:
        for session in self.sessions:
            groups_fit(session.ledger())

    @invariant()
    def printed_addresses_lead_somewhere(self) -> None:
        """But in a dashboard: what it names may go, as by an undo, before the next request takes it away."""
        session = self.sessions[0]
        self._printed_addresses_lead_somewhere(session, session.prompt(), boards=False)

    @staticmethod
    def _printed_addresses_lead_somewhere(session: Session, request: Request, *, boards: bool = True) -> None:
        for name in building.addresses(request, boards=boards):
            parsed = address.parse(name)
            assert parsed
            found = address.find(session.stored, parsed)
            assert found.row or found.group

    def teardown(self) -> None:
        if not hasattr(self, "sessions"):
            return
        for session in self.sessions:
            self._remember(session)
            session.close()
        with Store(self.path) as store:
            with StoredSession.open(store, "demo") as writer:
                held = {row.id: (row, scope) for scope in writer.scopes() for row in writer.ledger(scope).rows()}
                for block, body in self.bodies.items():
                    assert writer.body(*held[block]) == body
            for commit, prompt in self.remembered.items():
                assert rendered(store, commit) == prompt
            assert not damages(store)
        assert not complaints(self.path)
        shutil.rmtree(self.folder)


_QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
]


class TestQuick(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=_QUIET)


@pytest.mark.slow
class TestLong(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=300, stateful_step_count=50, deadline=None, suppress_health_check=_QUIET)
