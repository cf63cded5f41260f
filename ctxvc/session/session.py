"""A session under a budget: new messages are admitted, removals are planned, rehearsed and committed.

The command line, the agent, the MCP server and the wire act through it. The store keeps the bytes, the core has the
rules.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.core.display import one_line
from ctxvc.core.ledger.block import Message, Origin, Verb
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.patterns import TOOL_SECONDS
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy, Terms
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.prompt.recover import Recovered
from ctxvc.core.prompt.request import Request, request
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import Dashboard
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput, Conflict, NotFound, Phrase, UnknownVocabularyWarning
from ctxvc.session import append, notes, recover, room, undo
from ctxvc.session import policy as session_policy
from ctxvc.session import request as session_request
from ctxvc.session.context import Context, budget_fields
from ctxvc.session.notes import Note, Noted
from ctxvc.store.cache.recovered_files import RecoveredFiles
from ctxvc.store.log.commits import usage_trailers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import Attachment
from ctxvc.store.pending_plans import PendingPlan
from ctxvc.store.read import operations
from ctxvc.store.read import revision as revisions
from ctxvc.store.read.address import Resolved
from ctxvc.store.read.revision import Sent
from ctxvc.store.store import Store, create
from ctxvc.tokens import calibration, models, prompt_size
from ctxvc.tokens.calibration import Calibrating, Calibration
from ctxvc.tokens.meter import Meter, budget_of

#: Characters of a provider's fault that are recorded.
_FAULT = 300


class Session:
    """One conversation, its budget, and the verbs on its context. Use it in a `with` block, or `close` it.

    `actor` is who acts through it: `agent` for a model's own calls, `user` for a person. `policy` proposes a plan
    before each request.
    """

    def __init__(
        self,
        stored: StoredSession,
        *,
        actor: str = "agent",
        policy: Policy | None = None,
        now: Callable[[], float] = clock.monotonic,
        meter: Meter | None = None,
    ) -> None:
        """`meter` counts the tokens; by default one with the store's cache."""
        self.stored = stored
        self.store = stored.store
        self.policy = policy
        self._context = Context(stored, actor, now, meter)
        self._context.policy = policy
        #: Whether requests come with a dashboard, unless the policy turns it off.
        self.shows_dashboard = True
        #: The rehearsal of the policy's plan for the newest request; None if it proposed nothing.
        self.rehearsal: Rehearsal | None = None
        self._dashboards = session_request.DashboardFeed(self._context, self.append)
        self._calibrating = Calibrating()
        #: The calibration that the session was opened with, if it is not the model's usual one: from the recording, or
        #: from a person.
        self._opened_with: tuple[int, int] | None = None
        self._silent_replies = 0  # replies without usage to requests of this process
        self._warned = False
        self._owned: Store | None = None
        self._recovered: RecoveredFiles | None = None

    @staticmethod
    def open(
        path: str | Path = ".ctxvc",
        name: str = "",
        *,
        scope: str = "",
        model: str = "",
        budget: int | Budget = 0,
        system: Any = None,
        tools: Any = None,
        policy: str | Policy = "",
        actor: str = "agent",
        tokens_per_count: float = 0.0,
    ) -> Session:
        """The session `name` of the store at `path`; creates the store and the session if they do not exist.

        `budget` is the window in tokens (by default the model's); `system` and `tools` are sent to the provider with
        every call, and are fixed when the session is created. `policy` is one of `ctxvc policies`, as in
        `layered:keep=8`, or a `Policy` of your own; a reopened session keeps its policy by default.
        `tokens_per_count` is the number of the model's tokens for each token that we count (0: the usual value of
        `model`, or the learned one); replies that report usage correct it.
        Raises: CtxvcError.
        """
        place = Path(path)
        store = Store(place) if (place / "HEAD").exists() else create(place)
        try:
            name = name or (store.current_session() if store.sessions() else "session")
            if is_new := name not in store.sessions():
                store.create_session(name, model=model, system=system, tools=tools)
            stored = StoredSession.open(store, name, scope)
            spec = policy or stored.ledger().meta.policy
            chosen = spec if isinstance(spec, Policy) else policies.parse(spec) if spec else None
            session = Session(stored, actor=actor, policy=chosen)
            if not is_new:
                session.resume()
            requested = budget if isinstance(budget, Budget) else Budget(budget)
            window = requested.window if budget else session.budget.window
            meta = session.ledger().meta
            if tokens_per_count:
                session._opened_with = calibration.of_factor(tokens_per_count)
            elif prompt_size.is_uncalibrated(meta) and (not model or models.is_same(model, meta.model)):
                session._opened_with = session._context.calibration(session.ledger())
            guesses = is_new or meta.calibration == calibration.FORMERLY
            begins = session._opened_with or (calibration.initial(model or meta.model, window) if guesses else None)
            session.set(
                **({"calibration": tuple(begins)} if begins else {}),
                **({"model": model} if model else {}),
                **(budget_fields(requested) if budget else {}),
                **({"policy": policies.spec(chosen)} if chosen else {}),
            )
            session.begin()
        except BaseException:
            store.close()
            raise
        session._owned = store
        return session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def terms(self) -> Terms:
        """The terms of the session's policy: tools, protocol, the form of the dashboard."""
        return self._context.terms

    @property
    def shows_tags(self) -> bool:
        """Whether results get tags from now on, by which a model can name them."""
        return self._context.tags

    @shows_tags.setter
    def shows_tags(self, shows: bool) -> None:
        self._context.tags = shows

    def begin(self) -> None:
        """Appends and pins the policy's text on the use of its tools, unless the prompt has it; called by `open`."""
        if self.policy is None:
            return
        tags = self.shows_tags
        if message := session_policy.protocol_message(self.ledger(), self.policy, self.budget, tags=tags):
            self.pin(self.append(message))

    def resume(self) -> None:
        """Takes the time of the newest commit as that of the last call, so that a pause counts; called by `open`."""
        self._context.resume()

    def count(self, content: str) -> int:
        """The tokens of a text, as the session counts."""
        return self._context.meter.count(content)

    def save_counts(self) -> None:
        """Saves the token counts in the store's cache; `close` does so, too."""
        self._context.meter.save()

    def close(self) -> None:
        """Commits complete steps, closes the files, and removes those of `recover_file`."""
        if self._recovered:
            self._recovered.remove()
        self.save_counts()
        self.stored.close()
        if self._owned:
            self._owned.close()

    # --- scopes and notes

    def scopes(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return self.stored.scopes()

    def notes(self, scope: str = "", *, label: str = "") -> list[Note]:
        """The notes of a scope, oldest first, inherited ones too, but no deleted ones; only those with `label`, if
        given."""
        return notes.notes(self.stored, scope, label)

    def note(
        self,
        text: str,
        *,
        fold: bool = False,
        labels: Sequence[str] = (),
        supersedes: str | Sequence[str] = (),
        allow_user: bool = False,
    ) -> Noted:
        """Adds a note: a commit, and a block that the model sees from now on. `notes` finds it by its `labels`.

        `fold` archives the span that it covers: everything since the last note or human message that may leave. Blocks
        and groups that it `supersedes` (such as `B12,B40`) are archived under a stub that names the note; what is
        smaller than the stub stays. `allow_user` lets a person supersede human text.
        Raises: BadInput; Refused if nothing that it supersedes may leave; Conflict.
        """
        return notes.note(self._context, text, labels, supersedes, fold=fold, allow_user=allow_user)

    def open_scope(self, name: str, note: str, *, revision: str = "", with_messages: bool = False) -> None:
        """Opens a new scope and switches to it; within a step, at the step's end.

        It begins with the pinned blocks, the notes, and the human message that opened the turn; with `with_messages`,
        with everything; with a `revision`, with everything in that. Raises: BadName, Refused, BadInput.
        """
        commit = revisions.resolve(self.store, self.stored, revision).commit if revision else ""
        self.settle()
        self.stored.open_scope(name, note, actor=self.actor, from_commit=commit, with_messages=with_messages)

    def goto(self, name: str, note: str) -> None:
        """Switches to another scope, unchanged but for this arrival note. Raises: NotFound, Refused, BadInput."""
        self.settle()
        self.stored.goto(name, note, actor=self.actor)

    # --- state

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def scope(self) -> str:
        """The scope that this session is in."""
        return self.stored.scope

    def ledger(self, scope: str = "") -> Ledger:
        return self.stored.ledger(scope)

    @property
    def actor(self) -> str:
        return self._context.actor

    @property
    def budget(self) -> Budget:
        """The scope's own budget, else the model's window."""
        return budget_of(self.ledger())

    def view(self) -> View:
        """The prompt as it would be sent now, and its cost."""
        return self._context.view()

    def view_with(self, rows: Sequence[Row], bodies: Mapping[tuple[str, str], bytes]) -> View:
        """The view with `rows` added, whose `bodies` are given by block and suffix."""
        return self._context.view(self.ledger().with_rows(rows), rows, bodies)

    def used(self) -> int:
        """The tokens of the prompt as the provider would count them, system and tools included."""
        return self.view().used

    def dashboard(self, *, every: bool = False) -> Dashboard:
        """The view as a table; `every` gives each block a line of its own."""
        return self._context.dashboard(every=every)

    def set(self, **fields: Any) -> None:
        """Sets fields of `ctxvc.json` (`core.ledger.Meta`), such as `model`, `budget`, `calibration`, in one commit.

        `window` is the model's window if its provider differs from the table of models. Another model's window and
        thresholds apply from the next request on, and its calibration starts anew.
        """
        self._context.set(fields)

    def under(self, **fields: Any) -> View:
        """The view of the prompt as if `set` had set these fields. Writes nothing."""
        return self._context.under(fields)

    def prompt(self) -> Request:
        """The next request as it would be sent now. Writes nothing."""
        snapshot = revisions.now(self.stored)
        return request(snapshot.ledger, self._context.bodies(), snapshot.system, snapshot.tools)

    def bodies(self) -> Bodies:
        """The readers of this scope's bodies."""
        return self._context.bodies()

    def body(self, block: str) -> bytes:
        """The exact bytes of a block, in the prompt or not. Raises: NotFound, Damaged."""
        row = self.ledger().get(block)
        if row is None:
            raise NotFound(f"no block {block} in {self.name}/{self.scope}", hint=Phrase("list-blocks"))
        return self.stored.body(row)

    # --- messages and requests

    def append(
        self,
        *messages: Mapping[str, Any] | Message,
        origin: Origin = "human",
        shown: Mapping[str, str] = {},
        attached: Attachment | None = None,
    ) -> list[str]:
        """Appends messages in the form of the Messages API, from a request or a reply, and returns their blocks' ids.

        They are on disk when this returns. `origin` says who wrote the text of role `user`: pass `client` if it was a
        program. The content of a tool result may be bytes: they are stored exactly, and the model sees them as text
        with U+FFFD for invalid bytes. A result over the offload threshold enters as a preview. Older blocks leave to
        make room for any other; if that is not enough, the result is blocked until a request has room for it.
        For a call in `shown`, the model sees that text instead of the result if it costs less; the whole result is
        stored. `attached` is recorded with the reply among the messages, or with the first message if there is none.
        Raises: BadInput for a value that is not a message; CtxvcError; nothing is added then.
        """
        context = self._context
        parts = [message if isinstance(message, Message) else append.message(message, origin) for message in messages]
        scope = self.scope
        results = any(block.kind == "tool_result" for part in parts for block in part.parts)
        spare = self._spare() if results else 0  # only results are weighed against the room
        make_room = partial(room.make_room, context, self.policy, spare=spare)
        ids = append.append(context, parts, shown, spare=spare, make_room=make_room, attached=attached)
        for part in parts:
            if part.role == "assistant" and part.usage:
                self._learn(scope, part)
            elif part.role == "assistant" and scope in self._context.requested:
                self._silent_replies += 1
        return ids

    def asked(self, reply: Mapping[str, Any], *, model: str, actor: str) -> None:
        """Records the usage of a call outside the conversation, such as a policy's, if the reply reports it.

        This is a commit of its own that leaves the prompt unchanged; `log --usage` counts it. `model` is used if
        `reply` does not name its model.
        """
        usage = append.usage(reply)
        if usage:
            trailers = {"Ctxvc-Model": str(reply.get("model") or model), **usage_trailers(usage)}
            self._context.record_ask(actor, trailers)

    def faulted(self, kind: str, text: str) -> None:
        """Records that the provider failed, or answered with something other than a reply.

        This is a commit of its own that leaves the prompt unchanged; `log` shows it.
        """
        fault = one_line(text, _FAULT)
        self.stored.change(subject=f"fault: {fault}", op="fault", actor="host", trailers={"Ctxvc-Fault": kind})

    def add(self, text: str) -> list[str]:
        """Appends text written by a program, not a human; returns the new blocks' ids."""
        return self.append({"role": "user", "content": text}, origin="client")

    def request(self) -> Request:
        """The next request: below the hard budget, with its dashboard. Its removals and additions are recorded.

        Warns once if an unknown model's token counts are a guess that no reported usage has replaced.
        Raises: OverBudget if the content that may not leave is too large; BadInput while a call waits for its result,
        and if the last message is the model's.
        """
        self.prepare()
        self._warn_of_guess()
        request = self.prompt()
        self._context.sent[self.scope] = Sent(request.digest, request.last, self.stored.meanwhile)
        return request

    def prepare(self) -> None:
        """Does what `request` does except build the request, for a host that builds its own. Raises: as `request`."""
        self.stored.refresh()
        if self.stored.open_calls:
            raise BadInput("a call has no result yet", hint="append the newest reply's results first")
        newest = session_request.newest(self._context)
        turn_begins = session_request.turn_began(self.ledger())
        if turn_begins:
            self.settle()  # where a turn begins, a cut costs least
        if self.policy:
            self.rehearsal = session_policy.govern(self._context, self.policy, cut=turn_begins)
        self._dashboards.retire()
        self._context.tag()
        with_dashboard = self.shows_dashboard and newest.role == "user"
        shows = with_dashboard and self.terms.visible_board != "off"
        largest = self._dashboards.largest() if with_dashboard else 0
        relief = room.relief(self.policy)
        # Room for the dashboard first: if the guard acted after it, another dashboard would have to report that. The
        # room is the same with and without a dashboard.
        session_request.keep_below(self._context, self._dashboards.room() if shows else largest, largest, relief)
        if room.unblock(self._context, self.policy, self._spare()):
            self._context.tag()
        if shows:
            try:
                self._dashboards.show()
            except Conflict as error:  # the append would have completed a change of scope, and another writer was first
                self.add(f"[{error}]")
                self._dashboards.show()
            session_request.keep_below(self._context, relief=relief)
        while self._context.tag():  # tags that a cut in between has made due
            session_request.keep_below(self._context, relief=relief)
        self._context.called = self._context.now()
        self._context.requested[self.scope] = self.ledger()
        self._context.requested_at[self.scope] = operations.now(self.stored)
        self._calibrating.sent(self.scope, self._context.view().counted)

    def _warn_of_guess(self) -> None:
        guess = self.ledger().meta.calibration
        remark = None if self._warned else calibration.guess_remark(guess, self._silent_replies)
        if remark:
            self._warned = True
            warnings.warn(UnknownVocabularyWarning(remark), stacklevel=3)

    def _spare(self) -> int:
        """The tokens that stay free beside results for the next dashboard, as the provider counts."""
        return self._dashboards.largest() if self.shows_dashboard else 0

    def _learn(self, scope: str, reply: Message) -> None:
        """Improves the calibration with the reply's count of the prompt's tokens."""
        meta = self.ledger(scope).meta
        start = Calibration(*(self._opened_with or self._context.start(self.ledger(scope))))
        better = self._calibrating.replied(scope, reply.usage, meta.calibration, meta.model, start)
        if better and scope == self.scope:
            self.set(calibration=tuple(better))

    def framed(self, system: Any, tools: Any) -> None:
        """Counts prompts from now on with this system prompt and these tools, which the next reply records."""
        self._context.framed(system, tools)

    def relieve(self, share: float) -> int:
        """Brings the prompt down to a share of the budget or of itself, the smaller; returns the tokens freed.

        The guard does this. Overflow mode ends if there is room then. Raises: Conflict.
        """
        self.stored.refresh()
        return room.relieve(self._context, self.policy, share)

    def too_long(self, tokens: int = 0, window: int = 0) -> None:
        """Reports that the provider rejected the newest request as too long; the next one is smaller, if that was news.

        `tokens` is the request's size and `window` the model's window, where the provider reports them. A smaller
        window than was known applies from now on, with at most a quarter of it reserved for the reply.
        """
        self.stored.refresh()
        fields: dict[str, Any] = {}
        if 0 < window < self.budget.window:
            fields = {"window": window, "reserve": min(self.ledger().meta.reserve, window // 4)}
        meta, budget = self.ledger().meta, self.budget
        theirs = max(tokens, min(window or budget.window, budget.window) - budget.reserve)
        better = self._calibrating.refused(self.scope, theirs, meta.calibration, meta.model)
        if fields or better:
            self.set(**fields, **({"calibration": tuple(better)} if better else {}))

    def show_board(self) -> None:
        """Makes the next request come with a full dashboard."""
        self._context.changed = True

    @property
    def overflow(self) -> bool:
        """Whether a result did not fit even as a preview and no room has been made since.

        Then only calls that free context are answered, unless the guard can make room (`relieve`). The guard's removals
        before a request do not count as room.
        """
        return self.ledger().meta.refused > 0

    @property
    def stopped(self) -> str:
        """The provider's stop reason for the newest reply if it is incomplete, such as `max_tokens` or `refusal`.

        Empty if the reply is complete or a message has come since.
        """
        return append.stopped(self.ledger())

    def refuse(self, terms: Terms | None = None) -> str:
        """The answer to a call that overflow mode refuses; the refusal is counted.

        It names the tools with which the model can make room: those of `terms`, by default the session's policy's.
        """
        return session_request.refusal(self._context, terms or (self.terms if self.policy else None))

    # --- changes

    def commit(self, plan: Plan, *, roll_up: bool = False) -> Rehearsal:
        """Commits the allowed actions of a plan in one commit, or nothing if none is allowed; returns the rehearsal.

        It takes effect with the next request. Raises: Conflict if another writer keeps changing the same blocks.
        """

        def committed() -> Rehearsal:
            rehearsal = rehearse(self.view(), plan, roll_up=roll_up)
            self._context.commit(rehearsal)
            return rehearsal

        return self._context.on_newest(committed)

    def install(self, rehearsal: Rehearsal, trailers: Mapping[str, str]) -> None:
        """Commits a rehearsal made on the current blocks, with more `trailers`. Raises: Conflict."""
        self._context.commit(rehearsal, trailers)

    def left(self, rehearsal: Rehearsal) -> int:
        """The value of `used` after the commit of a rehearsal, with its cut."""
        return self.view().calibrated(self._context.tokens_after(rehearsal))

    def archive(self, blocks: str | Sequence[str], index: str = "") -> Rehearsal:
        """Replaces blocks and groups by one stub with an index text; `recover` reads them, `restore` puts them back."""
        return self.verb("archive", blocks, index)

    def mask(self, blocks: str | Sequence[str]) -> Rehearsal:
        """Reduces each block to its head and tail."""
        return self.verb("mask", blocks)

    def prune(self, blocks: str | Sequence[str]) -> Rehearsal:
        """Removes blocks from the prompt without a stub."""
        return self.verb("prune", blocks)

    def restore(self, blocks: str | Sequence[str]) -> Rehearsal:
        """Puts blocks back in the prompt, each at its place."""
        return self.verb("restore", blocks)

    def delete(self, blocks: str | Sequence[str], reason: str) -> Rehearsal:
        """Removes blocks for good as far as the agent is concerned; a tombstone has the reason, history the bytes."""
        if not reason.strip():
            raise BadInput("a deletion needs a reason", hint="explain why it is no longer needed")
        return self.verb("delete", blocks, reason)

    def pin(self, blocks: str | Sequence[str]) -> Rehearsal:
        """Keeps blocks in the prompt until `unpin`."""
        return self.verb("pin", blocks)

    def unpin(self, blocks: str | Sequence[str]) -> Rehearsal:
        return self.verb("unpin", blocks)

    def summarise(self, blocks: str | Sequence[str], summary: str) -> Rehearsal:
        """Replaces blocks by a group whose stub is the summary."""
        return self.verb("summarise", blocks, summary)

    def verb(self, verb: Verb, blocks: str | Sequence[str], index: str = "", *, allow_user: bool = False) -> Rehearsal:
        """Commits one verb on blocks and groups, such as `B3,B5-B9,G2`; refused ones are in `problems`.

        `allow_user` lets a person remove human text. Raises: Conflict, CtxvcError.
        """
        self.stored.refresh()
        targets, problems = selection.expand(blocks, self.ledger())
        actions = (Action(verb=verb, targets=targets, index=index),) if targets else ()
        rehearsal = self.commit(Plan(actions=actions, actor=self.actor, allow_user=allow_user), roll_up=True)
        return msgspec.structs.replace(rehearsal, problems=(*problems, *rehearsal.problems))

    def propose(self, plan: Plan) -> PendingPlan:
        """Stores a plan, visible to every process, until a cut is due anyway, the scope changes, or `settle`.

        Raises: Refused if too many wait, Conflict.
        """
        return session_policy.propose(self._context, plan)

    def pending(self) -> tuple[PendingPlan, ...]:
        """The pending plans of this scope, oldest first."""
        return session_policy.pending(self._context)

    def settle(self) -> list[tuple[PendingPlan, Rehearsal]]:
        """Commits pending plans as far as the view allows and drops stale ones; returns each with its rehearsal."""
        return session_policy.settle(self._context)

    def drop(self, *plan_ids: str) -> tuple[str, ...]:
        """Drops pending plans; returns the ids of those that were pending."""
        return self.stored.drop_plans(plan_ids, f"by {self.actor}", actor=self.actor)

    def undo(self, count: int = 1, *, to: str = "") -> tuple[Rehearsal, tuple[str, ...]]:
        """Takes back the newest `count` changes of this scope's prompt; returns the rehearsal and their subjects.

        Changes are verbs, notes, and what `recover` added; one already taken back does not count. `to` takes back
        every change since a revision of this scope, or since `+2`, the second of the operations that wait for their
        commit. Later messages and accesses stay, as does what was changed again since (`problems`). If nothing was
        sent since, the prompt becomes the one before the change, byte for byte: its cut is taken back as well. All is
        done or nothing.
        Raises: Refused if there is nothing to undo or no room for it, or if an agent asks to undo a person's change;
        NotFound.
        """
        return undo.undo(self._context, count, to)

    def redo(self, count: int = 1) -> tuple[Rehearsal, tuple[str, ...]]:
        """Takes back the newest `count` undos, unless a verb came since; returns what `undo` does. Raises: Refused."""
        return undo.redo(self._context, count)

    # --- recovery

    def recover(
        self,
        address: str,
        *,
        lines: str = "",
        chars: str = "",
        grep: str | None = None,
        path: str = "",
        most: int = 0,
        bounded: bool = True,
        seconds: float = TOOL_SECONDS,
        reserved: int | None = None,
        added: Callable[[Recovered], str] | None = None,
        elsewhere: Resolved | None = None,
    ) -> Recovered:
        """A part of a block, in the prompt or not, for a model to read; for a group, the list of its members.

        If `bounded`, the part exceeds neither the offload threshold nor the free room, so that it is never offloaded
        itself; `most` limits its tokens in any case. Its header describes it and names the call for the next part. The
        access is recorded. `lines` and `chars` are ranges such as `41:80`; `path` leads to a value in a JSON text, such
        as `items[0].name`. A person may read deleted blocks, an agent may not. The search for `grep` may take
        `seconds`; 0 means no limit.
        With `reserved`, the part is to come in as a result, with that many more counted tokens: older blocks leave for
        it as for any result. The text that `added` returns for the part, if any, is appended with the record of the
        access, as text from a program; `undo` removes it from the prompt.
        `elsewhere` is what `address` resolves to in another store; such an access is not recorded.
        Raises: NotFound, BadInput, Refused, Damaged.
        """
        spare = self._spare()

        def make_room(tokens: int) -> None:
            room.make_room(self._context, self.policy, tokens + (reserved or 0), spare)

        return recover.part(
            self._context,
            address,
            lines=lines,
            chars=chars,
            grep=grep,
            path=path,
            most=most,
            bounded=bounded,
            seconds=seconds,
            spare=0 if reserved is None else spare,
            reserved=reserved or 0,
            make_room=None if reserved is None else make_room,
            added=added,
            elsewhere=elsewhere,
        )

    def recover_bytes(self, address: str) -> list[tuple[Row, bytes]]:
        """The exact bytes of a block, or of all blocks of a group, each recorded as an access. Raises: as `recover`."""
        return recover.whole(self._context, address)

    def recover_file(self, address: str) -> tuple[Row, Path]:
        """Writes a block to a read-only file, recorded as an access; returns its row and the file's path.

        The file exists until the session is closed.
        Raises: Refused for several blocks and for a block that contains a secret's mark; otherwise as `recover`.
        """
        row, body = recover.single(self._context, address)
        if self._recovered is None:
            self._recovered = RecoveredFiles(self.store.path)
        return row, self._recovered.write(f"{row.id}.{row.ext}", body)
