"""The state of a session: the stored session, its blocks' costs, and how a change of the prompt is recorded."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from ctxvc.core import display
from ctxvc.core.display import human_tokens
from ctxvc.core.ledger.ledger import RENDER, Ledger, Meta, Row
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.policy import Policy, Terms
from ctxvc.core.prompt import cut as cuts
from ctxvc.core.prompt import tag as tags
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.view import budget as budgets
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.core.view.dashboard import Dashboard, dashboard, protocol, totals
from ctxvc.core.view.view import View, costs, dashboards, measure
from ctxvc.errors import Conflict
from ctxvc.store.format import FORMAT, SUBJECT
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.operations import Place
from ctxvc.store.read.revision import Sent
from ctxvc.tokens import calibration, models, prompt_size
from ctxvc.tokens.meter import Meter, Prices, budget_of

#: The operation of a plan with several verbs; the most blocks and verbs that its commit's subject names, and the
#: fewest columns for a reason there.
_MIXED = "plan"
_MOST_NAMED = 3
_LEAST_REASON = 12
_MOST_VERBS = 4
#: Operations that leave the prompt unchanged, and so make no cut.
_NO_EDIT = frozenset({"pin", "unpin"})
#: The most blocks that a commit's trailer names.
_MOST_TOUCHED = 200
#: The most characters of the reason for which a block left.
_WHY = 120
#: The most bytes of bodies cached in memory.
_CACHE_BYTES = 64 << 20
#: A session without a policy shows the full dashboard.
_NO_POLICY = Terms(board="full")
_Changed = TypeVar("_Changed")


class Context:
    """A stored session with prices and a budget. `actor` is `agent` for a model's own calls, `user` for a person."""

    def __init__(
        self,
        stored: StoredSession,
        actor: str,
        now: Callable[[], float] = clock.monotonic,
        meter: Meter | None = None,
    ) -> None:
        self.stored = stored
        self.store = stored.store
        self.actor = actor
        self.meter = meter or Meter(self.store, stored.ledger().meta.tokenizer)
        #: The time of the last request, on the clock `now`; None before the first.
        self.called: float | None = None
        #: Whether the prompt has changed since this was last set to False.
        self.changed = False
        #: Whether results get tags in prompts from now on.
        self.tags = True
        #: scope → the request that waits for its reply.
        self.sent: dict[str, Sent] = {}
        #: scope → its ledger when the last request was made: the prefix that the provider has cached.
        self.requested: dict[str, Ledger] = {}
        #: scope → the moment of that request, from which later operations are counted.
        self.requested_at: dict[str, Place] = {}
        self.now = now
        #: The session's policy, which sets the terms.
        self.policy: Policy | None = None
        self._terms: tuple[int, Terms] | None = None  # a window, and the policy's terms in that window
        self._prices: dict[str, tuple[str, Prices]] = {}  # scope → the model that counts, and its prices
        self._counted: dict[str, Ledger] = {}  # scope → the ledger whose prompt is counted
        self._bodies: tuple[str, Bodies] | None = None  # a scope, and access to its bodies
        self._overhead: dict[str, int] = {}
        self._recorded: dict[str, tuple[int, int]] = {}  # scope → the calibration derived from its recording
        self._dashboard: tuple[Ledger, Dashboard] | None = None  # a ledger and its dashboard
        self._read_bodies: dict[tuple[str, str], bytes] = {}  # bodies by checksum and suffix
        self._size = 0

    @property
    def scope(self) -> str:
        return self.stored.scope

    def resume(self) -> None:
        """Takes the time of the scope's newest commit as that of the last call, so that views see pauses between
        processes."""
        changed = self.store.commit(self.stored.tip()).author.time
        self.called = self.now() - max(0.0, clock.time() - changed)

    @property
    def terms(self) -> Terms:
        """The terms of the session's policy in the current window."""
        if self.policy is None:
            return _NO_POLICY
        window = budget_of(self.ledger()).window
        if self._terms is None or self._terms[0] != window:
            self._terms = window, self.policy.terms_in(window)
        return self._terms[1]

    def ledger(self, scope: str = "") -> Ledger:
        return self.stored.ledger(scope)

    def view(
        self,
        ledger: Ledger | None = None,
        rows: Iterable[Row] = (),
        bodies: Mapping[tuple[str, str], bytes] = {},
    ) -> View:
        """The view of the current prompt, or of a transaction's `ledger`.

        `rows` that are not in the ledger yet are counted in the same pass. `bodies` are the transaction's, by block and
        suffix; the store has them only after the acknowledgement.
        """
        ledger = self.ledger() if ledger is None else ledger
        scope = ledger.meta.scope
        prices = self.prices(scope)
        if bodies:

            def body(row: Row, suffix: str = "") -> bytes:
                return bodies[row.id, suffix] if (row.id, suffix) in bodies else self._stored_bytes(row, suffix, scope)

            prices = prices.reading(Bodies(body, body))
        new = (row for row in ledger.since(self._counted.get(scope)) if row.present)
        prices.load([*new, *rows], fresh=scope in self._counted)
        self._counted[scope] = ledger
        return View(
            ledger=ledger,
            price=prices,
            budget=budget_of(ledger, self.terms.ladder),
            overhead=self._overhead_tokens(scope),
            next_group=self.stored.next_group,
            idle=0.0 if self.called is None else self.now() - self.called,
            calibration=self.calibration(ledger),
            words=lambda row: display.decode(self._cached_body(row, "", scope)),
            handles=self.terms.handles,
        )

    def totals(self, view: View) -> Dashboard:
        """The dashboard of a view without its lines."""
        sent = dashboards(view.ledger, view.price)
        protocol_tokens = sum(view.price.body(row) for row in protocol(view.ledger))
        return totals(
            view.ledger,
            measure(view.ledger, view.price) - sent - protocol_tokens,
            sent,
            view.budget.effective,
            view.overhead + protocol_tokens,
            calibration=view.calibration,
        )

    def dashboard(self, *, every: bool = False) -> Dashboard:
        """The view as a table; `every` gives each block a line of its own."""
        view = self.view()
        if self._dashboard is None or self._dashboard[0] is not view.ledger or every:
            self.prices().load(view.ledger.rows())
            table = dashboard(
                view.ledger,
                costs(view.ledger, view.price),
                view.budget.effective,
                view.overhead,
                calibration=view.calibration,
                every=every,
            )
            if every:
                return table
            self._dashboard = view.ledger, table
        return self._dashboard[1]

    def bodies(self) -> Bodies:
        """The bodies of the current scope, cached up to a bound, since each request mostly repeats the one before."""
        scope = self.scope
        if self._bodies is None or self._bodies[0] != scope:
            bodies = Bodies(
                lambda row: self._cached_body(row, "", scope), lambda row, suffix: self._cached_body(row, suffix, scope)
            )
            self._bodies = scope, bodies
        return self._bodies[1]

    def _cached_body(self, row: Row, suffix: str, scope: str) -> bytes:
        key = row.sha256, suffix  # the body of a row with siblings names them by their checksums
        if key not in self._read_bodies:
            data = self._stored_bytes(row, suffix, scope)
            if self._size + len(data) > _CACHE_BYTES:
                self._read_bodies.clear()
                self._size = 0
            self._read_bodies[key] = data
            self._size += len(data)
        return self._read_bodies[key]

    def prices(self, scope: str = "") -> Prices:
        scope = scope or self.scope
        model = self.ledger().meta.model
        if scope not in self._prices or self._prices[scope][0] != model:
            bodies = Bodies(
                lambda row: self._stored_bytes(row, "", scope),
                lambda row, suffix: self._stored_bytes(row, suffix, scope),
            )
            self._prices[scope] = model, Prices(self.meter, bodies, model)
            self._counted.pop(scope, None)
        return self._prices[scope][1]

    def _stored_bytes(self, row: Row, suffix: str, scope: str) -> bytes:
        if scope not in self.stored.scopes():
            # A scope that begins in the current append: an existing scope has the rows that it inherits.
            def holds(ledger: Ledger) -> bool:
                own = ledger.get(row.id)
                return own is not None and own.sha256 == row.sha256

            scope = next(name for name in self.stored.scopes() if holds(self.ledger(name)))
        return self.stored.file(row, suffix, scope) if suffix else self.stored.body(row, scope)

    def _overhead_tokens(self, scope: str) -> int:
        if scope not in self._overhead:
            self._overhead[scope] = self.meter.overhead(revision.now(self.stored))
        return self._overhead[scope]

    def framed(self, system: Any, tools: Any) -> None:
        """Counts the scope's prompts with this system prompt and these tools from now on, recorded or not."""
        self._overhead[self.scope] = sum(self.meter.frame(system, tools, self.ledger().meta.model))

    # --- changes

    def commit(self, rehearsal: Rehearsal, trailers: Mapping[str, str] | None = None, *, relieves: bool = True) -> None:
        """Commits a rehearsal as one commit, or nothing if the rehearsal changes nothing. Raises: Conflict.

        If it `relieves`, freed tokens end overflow mode. `trailers` are added to the usual ones.
        """
        if rehearsal:
            subject = _subject(rehearsal, self.ledger())
            self.record(rehearsal, subject, _op(rehearsal), trailers, relieves=relieves)

    def on_newest(self, change: Callable[[], _Changed]) -> _Changed:
        """The result of `change` on the newest state, retried once if another writer interferes. Raises: Conflict."""
        self.stored.refresh()
        try:
            return change()
        except Conflict:
            self.stored.refresh()
            return change()

    def record(
        self,
        rehearsal: Rehearsal,
        subject: str,
        op: str,
        trailers: Mapping[str, str] | None = None,
        *,
        relieves: bool = True,
    ) -> None:
        """Records the rows and groups of a rehearsal as the operation `op`. Raises: Conflict."""
        self.stored.change(
            subject=subject,
            op=op,
            actor=rehearsal.plan.actor,
            rows=rehearsal.rows,
            groups=rehearsal.groups,
            meta={} if op in _NO_EDIT else self.edited(rehearsal, relieves=relieves),
            trailers={
                "Ctxvc-Blocks": touched(rehearsal),
                "Ctxvc-Reason": rehearsal.plan.reason,
                **_why(rehearsal),
                "Ctxvc-Freed": f"{rehearsal.freed} tokens",
                **(trailers or {}),
            },
        )
        self.changed = True

    def edited(self, rehearsal: Rehearsal, *, relieves: bool = True) -> dict[str, Any]:
        """The fields of `ctxvc.json` that change with a hard edit: a cut, and the end of overflow if it relieves."""
        meta = self.ledger().meta
        # The prefix breaks here anyway, so everything bound to it leaves now, and results get their tags.
        fields = {
            **hard_edit(rehearsal.after.with_meta(meta)),
            "refused": 0 if relieves and rehearsal.freed > 0 else meta.refused,
        }
        return {name: value for name, value in fields.items() if value != getattr(meta, name)}

    def tokens_after(self, rehearsal: Rehearsal) -> int:
        """The counted tokens of the whole prompt after the commit of `rehearsal`, with its cut."""
        after = cuts.with_cut(rehearsal.after) if rehearsal and _op(rehearsal) not in _NO_EDIT else rehearsal.after
        return self._overhead_tokens(self.scope) + measure(after, self.prices())

    def record_ask(self, actor: str, trailers: Mapping[str, str] | None = None) -> None:
        """Records that a policy asked a model; without `trailers`, only if there are new blocks since the last time."""
        number = self.ledger().meta.counters.block
        if trailers or number != self.ledger().meta.asked:
            self.stored.change(
                subject=f"asked by {actor}", op="ask", actor=actor, meta={"asked": number}, trailers=trailers
            )

    def cut(self, why: str, dashboards: Iterable[Row] = ()) -> None:
        """Removes thinking and dashboards before the newest reply; does nothing if there are none.

        Those of `dashboards` after that reply leave too, since no thinking is bound to them. They are pruned one by
        one: a cut has one place, and after the reply it would remove the reply's own thinking.
        """
        ledger = self.ledger()
        new_cuts = cuts.before_reply(ledger)
        meta = msgspec.structs.replace(ledger.meta, cuts=new_cuts)
        after_reply = [row for row in dashboards if not cuts.is_cut(row, meta)]
        rows = [msgspec.structs.replace(row, state="pruned", removed_by="guard") for row in after_reply]
        if rows or new_cuts != ledger.meta.cuts:
            fields = {"cuts": new_cuts, **newest_rendering(ledger.meta)} if new_cuts != ledger.meta.cuts else {}
            self.stored.change(subject=f"cut: {why}", op="cut", actor="guard", rows=rows, meta=fields)

    def calibration(self, ledger: Ledger) -> tuple[int, int]:
        """How to get the provider's counts from ours; an imported scope without its own takes its recording's."""
        if not prompt_size.is_uncalibrated(ledger.meta):
            return ledger.meta.calibration
        scope = ledger.meta.scope
        if scope not in self._recorded:
            snapshot = revision.now(self.stored, scope)
            self._recorded[scope] = prompt_size.calibration_of(self.store, snapshot, self.meter)
        return self._recorded[scope]

    @property
    def guesses(self) -> bool:
        """Whether the calibration is a worst-case guess, since no usage of this model has been reported yet."""
        return calibration.is_guess(self.ledger().meta.calibration)

    def start(self, ledger: Ledger | None = None) -> tuple[int, int]:
        """The calibration before any usage is reported, for the current model and window or those of `ledger`."""
        ledger = self.ledger() if ledger is None else ledger
        a_milli, b = calibration.initial(ledger.meta.model, budget_of(ledger).window)
        return a_milli, b

    def tag(self) -> bool:
        """Tags the results that are due a tag before the next call; returns whether there were any."""
        rows = list(self.tagged(tags.due(self.ledger()), self.view(), self.bodies().body))
        if not rows:
            return False
        which = ", ".join(selection.ranges([row.id for row in rows])[:_MOST_NAMED])
        try:
            self.stored.change(subject=f"tag {which}", op="tag", actor="guard", rows=rows)
        except Conflict:
            self.stored.refresh()  # another writer was first: the caller looks again for results that are due
        return True

    def tagged(self, rows: Iterable[Row], view: View, body: Callable[[Row], bytes]) -> Iterator[Row]:
        """Those of `rows` that get a tag in a prompt of this view, with that tag."""
        if not self.tags or view.ledger.meta.render < tags.SINCE:
            return iter(())
        return tags.tagged(rows, view.ledger, count=view.price.body, estimate=view.part, body=body)

    def set(self, fields: Mapping[str, Any]) -> None:
        """Sets those fields of `ctxvc.json` that differ; commits nothing if none does."""
        settings, new = self._settings(fields)
        if new:
            changes = ", ".join(f"{name} {_in_words(name, value)}" for name, value in sorted(settings.items()))
            self.stored.change(subject=f"settings: {changes}", op="settings", actor=self.actor, meta=new)

    def under(self, fields: Mapping[str, Any]) -> View:
        """The view of the prompt as if these fields were set. Writes nothing."""
        ledger = self.ledger()
        ledger = ledger.with_meta(msgspec.structs.replace(ledger.meta, **self._settings(fields)[1]))
        price = Prices(self.meter, self.bodies(), ledger.meta.model)
        price.load([row for row in ledger.rows() if row.present])
        return replace(
            self.view(),
            ledger=ledger,
            price=price,
            budget=budget_of(ledger, self.terms.ladder),
            calibration=self.calibration(ledger),
        )

    def _settings(self, fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The settings that differ, and all fields of `ctxvc.json` that change with them; both empty if none differs.

        Another model has its own window and calibration, and cannot read this one's thinking. A calibration that is
        still a guess depends on the window, too.
        """
        ledger = self.ledger()
        another = not models.is_same(fields.get("model", ledger.meta.model), ledger.meta.model)
        settings = {**({"window": 0} if another else {}), **fields}
        if settings.get("window", ledger.meta.window) != ledger.meta.window:
            settings = {"window_by": "", "compacts": 0, **settings}
        if another or ledger.meta.calibration == self.start():
            after = ledger.with_meta(msgspec.structs.replace(ledger.meta, **settings))
            settings = {"calibration": self.start(after), **settings}
        new = {name: value for name, value in settings.items() if value != getattr(ledger.meta, name)}
        if new and another and ledger.meta.model:
            return new, {**new, "cuts": cuts.at_turn(ledger), **newest_rendering(ledger.meta)}
        return new, new


def _in_words(name: str, value: object) -> str:
    """A setting's value as a commit's subject shows it."""
    if name == "calibration" and isinstance(value, tuple):
        per_mille, more = value
        return f"{per_mille / 1000:g} × our count + {more:,} tokens"
    return str(value)


def budget_fields(budget: Budget) -> dict[str, Any]:
    """The fields of `ctxvc.json` for a budget. Raises: BadInput if the budget is inconsistent."""
    budgets.check(budget)
    usual = Ladder()
    ladder = {
        name: value
        for name in Ladder.__struct_fields__
        if (value := getattr(budget.ladder, name)) != getattr(usual, name)
    }
    return {"budget": budget.window, "reserve": budget.reserve, "ladder": ladder}


def hard_edit(after: Ledger) -> dict[str, Any]:
    """The fields of `ctxvc.json` for a hard edit that results in the ledger `after`: those of a cut."""
    return {"cuts": cuts.before_reply(after, due=bool(tags.without(after))), **newest_rendering(after.meta)}


def newest_rendering(meta: Meta) -> dict[str, Any]:
    """The fields that bring a scope of an older format up to date, else empty. Allowed only together with a cut."""
    return {} if meta.render >= RENDER else {"format": max(meta.format, FORMAT), "render": RENDER}


def _op(rehearsal: Rehearsal) -> str:
    verbs = {action.verb for action in rehearsal.done}
    return verbs.pop() if len(verbs) == 1 else _MIXED


def _subject(rehearsal: Rehearsal, before: Ledger) -> str:
    """`archive B4–B120 as G2 (117 blocks, −98k): oldest results, by default`; for a mixed plan, each verb."""
    phrases = []
    for action in rehearsal.done:
        targets = [name.replace("-", "–") for name in selection.ranges(action.targets)]
        more = [f"{len(targets) - _MOST_NAMED} more"] if len(targets) > _MOST_NAMED + 1 else []
        phrases.append(f"{action.verb} {', '.join([*(targets[:_MOST_NAMED] if more else targets), *more])}")
    more = [f"{len(phrases) - _MOST_VERBS} more"] if len(phrases) > _MOST_VERBS else []
    groups = [group.id for group in rehearsal.groups if group.members and group.id not in rehearsal.rolled]
    grouping = any(action.verb in ("archive", "summarise") for action in rehearsal.done)
    verbs = "; ".join([*phrases[:_MOST_VERBS], *more]) + (f" as {', '.join(groups)}" if groups and grouping else "")
    reason = display.one_line(rehearsal.plan.reason, _WHY)
    actor = rehearsal.plan.actor.removeprefix("policy:")
    by = f"by {actor}" if actor != "user" else ""
    head = f"{verbs}{_amounts(rehearsal, before)}"
    room = SUBJECT - display.columns(head) - display.columns(by) - 4
    reason = display.fitted(reason, room) if room >= _LEAST_REASON else ""
    return head + (f": {reason}" if reason else "") + (f"{',' if reason else ''} {by}" if by else "")


def _amounts(rehearsal: Rehearsal, before: Ledger) -> str:
    """` (117 blocks, −98k)`: the number of blocks whose state changes, if more than one, and the tokens freed."""
    changed = sum((old := before.get(row.id)) is None or old.state != row.state for row in rehearsal.rows)
    freed = rehearsal.freed
    parts = [f"{changed} blocks"] if changed > 1 else []
    parts += [f"{'−' if freed > 0 else '+'}{human_tokens(abs(freed))}"] if freed else []
    return f" ({', '.join(parts)})" if parts else ""


def _why(rehearsal: Rehearsal) -> dict[str, str]:
    """The trailer with the reason for which each block left; empty if the plan gives none."""
    why = [f"{block} {display.one_line(text, _WHY)}" for action in rehearsal.done for block, text in action.why.items()]
    return {"Ctxvc-Why": "; ".join(why[:_MOST_TOUCHED])} if why else {}


def touched(rehearsal: Rehearsal) -> str:
    """The blocks and groups that a rehearsal changes, as the trailer of a commit names them."""
    return " ".join([*(row.id for row in rehearsal.rows), *(group.id for group in rehearsal.groups)][:_MOST_TOUCHED])
