"""What goes out of a session: a prompt below the budget, with the dashboard that is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import msgspec

from ctxvc.core import display, scope
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.plan.guard import guard
from ctxvc.core.policy import Terms
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import Slot, outline, pieces
from ctxvc.core.prompt.sanitise import alone
from ctxvc.core.view import dashboard_text
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput, Conflict, OverBudget, Phrase
from ctxvc.session.append import stopped
from ctxvc.session.context import Context, with_cut

#: What the provider says of a reply that it has not ended yet.
PAUSED = "pause_turn"


def newest(context: Context) -> Slot:
    """The newest that would be sent, dashboards aside. Raises: BadInput where no model could answer to it."""
    slots = (slot for slot in reversed(outline(context.ledger())) if slot.row.kind != "dashboard")
    last = next((slot for slot in slots if any(map(alone, pieces([slot], context.bodies())))), None)
    if last is None:
        raise BadInput("there is nothing to send", hint="append a message first")
    # A reply that the provider paused goes on by being sent back, and so does one that ends in a call of its own tool.
    if last.role == "assistant" and last.kind != "other" and stopped(context.ledger()) != PAUSED:
        raise BadInput("the model has had its say", hint="append what comes next first")
    return last


def keep_below(context: Context, spare: int = 0, following: int = 0) -> None:
    """The guard acts where the prompt would pass the budget with `spare` more tokens, as the provider counts them.

    It leaves room for `following` tokens then, which what it does brings along. Raises: OverBudget where that does not
    help.
    """
    for attempt in (1, 2):
        view = context.view()
        mine = spare + view.calibrated(_own_words(view))
        if view.used + mine <= view.budget.guard:
            return
        # What the guard does comes with a cut, and it need not take away what the cut does.
        ahead = replace(view, ledger=with_cut(view.ledger))
        rehearsal = guard(ahead, max(mine, following))
        try:
            if rehearsal:
                context.commit(rehearsal, relieves=False)
            else:
                context.cut("earlier dashboards and thinking leave")
        except Conflict:
            if attempt == 2:
                raise
            context.stored.refresh()
            continue
        after = replace(ahead, ledger=rehearsal.after) if rehearsal else ahead
        needed = view.calibrated(after.counted + _own_words(after))
        if needed <= view.budget.effective:
            return
        raise OverBudget(
            f"the prompt needs {needed:,} tokens and the budget has {view.budget.effective:,}: "
            f"{_largest(rehearsal.after if rehearsal else ahead.ledger, view)}",
            hint=Phrase("free-budget"),
        )


def _own_words(view: View) -> int:
    """The tokens of the few words of ours that the rendering adds to what is counted: for what is empty or missing."""
    slots = outline(view.ledger)
    empty = sum(slot.show == "body" and slot.kind == "tool_result" and not slot.row.bytes for slot in slots)
    begins = bool(slots) and slots[0].role != "user"
    return empty * view.price.text(stub.INTERRUPTED) + begins * view.price.text(stub.BEGINNING)


class DashboardFeed:
    """The dashboards that the model has been shown by this process."""

    def __init__(self, context: Context, append: Callable[[Message], object]) -> None:
        self._context = context
        self._append = append
        self._last_shown: dict[str, dashboard_text.LastShown] = {}

    def retire(self) -> None:
        """Takes all dashboards away where one names a group that is gone, as by a person's undo while a call waited.

        That change came with a cut, but a dashboard whose call had no reply yet stood behind it.
        """
        context = self._context
        ledger = context.ledger()
        live, body_of = _live_dashboards(ledger), context.bodies().body
        if any(dashboard_text.groups_named(display.decode(body_of(row))) - ledger.groups.keys() for row in live):
            try:
                context.cut("a dashboard names a group that is gone", live)
            except Conflict:
                context.stored.refresh()  # another writer has done it

    def show(self) -> None:
        """Adds the dashboard that is due, if one is; where there is no room for it, a cut comes first."""
        context = self._context
        if not self._show():
            context.cut("earlier dashboards and thinking leave")
            self._show()
        context.changed = False

    def room(self) -> int:
        """The tokens, as the provider counts them, that the dashboard may cost which is due now; 0 where none is."""
        view, last = self._view_and_last()
        form = self._due(view, last)
        if form == "none":
            return 0
        return _priced(view, "full" if form == "cut" else form)

    def largest(self) -> int:
        """The tokens, as the provider counts them, that any dashboard may cost: a full one, as after the guard."""
        return _priced(self._context.view(), "full")

    def _show(self) -> bool:
        """Whether what is due was shown; False where a cut must be made first."""
        context = self._context
        view, last = self._view_and_last()
        form = self._due(view, last)
        if form == "cut":
            return False
        if form != "none" and (
            text := self._form_text(view, form, last, dashboard_text.room(form, _kept_tokens(view), _cap(view)))
        ):
            part = wire.text_part(text, "user", "client", kind="dashboard")
            self._append(Message(role="user", parts=(part,)))
            # It tells of itself too: what it alone brings across a threshold is no reason for another.
            # A line does not: it has no words on thresholds, so the next board tells of the one that it crosses.
            after = context.totals(view if form == "line" else context.view())
            reminded = self._unnoted(view) > 0
            self._last_shown[context.scope] = dashboard_text.shown_after(
                last, form, view.ledger, after, reminded=reminded
            )
        return True

    def _view_and_last(self) -> tuple[View, dashboard_text.LastShown | None]:
        """The view, and what was shown in this scope since the last cut."""
        view = self._context.view()
        last = self._last_shown.get(self._context.scope) if _kept_tokens(view) else None
        if last and last.reminded and not self._unnoted(view):
            last = self._last_shown[self._context.scope] = msgspec.structs.replace(last, reminded=False)
        return view, last

    def _due(self, view: View, last: dashboard_text.LastShown | None) -> dashboard_text.Due:
        return dashboard_text.next_form(
            last,
            view.ledger,
            self._context.totals(view),
            _percents(view.budget),
            _kept_tokens(view),
            _cap(view),
            turn_began=turn_began(view.ledger),
            committed=self._context.changed,
            unnoted=self._unnoted(view) > 0,
        )

    def _unnoted(self, view: View) -> int:
        """The steps of which the agent is reminded that it noted nothing of them."""
        return scope.unnoted(view.ledger) if self._context.terms.notes_before_leaving else 0

    def _form_text(
        self, view: View, form: dashboard_text.Kind, last: dashboard_text.LastShown | None, room: int
    ) -> str:
        totals = self._context.totals(view)
        if form == "line":
            return dashboard_text.line_text(totals)
        thresholds, unnoted = _percents(view.budget), self._unnoted(view)
        nudge = self._context.terms.nudge(dashboard_text.crossed(last, totals, thresholds), unnoted)
        text = self._dashboard_text(view, form, last, room, nudge)
        # With what it costs itself it may be across one more.
        own = view.calibrated(self._context.meter.count(text))
        updated = msgspec.structs.replace(totals, dashboards=totals.dashboards + own)
        more = self._context.terms.nudge(dashboard_text.crossed(last, updated, thresholds), unnoted)
        return text if more == nudge else self._dashboard_text(view, form, last, room, more)

    def _dashboard_text(
        self, view: View, form: dashboard_text.Kind, last: dashboard_text.LastShown | None, room: int, nudge: str
    ) -> str:
        totals, count = self._context.totals(view), self._context.meter.count
        if self._context.terms.board == "status":
            return dashboard_text.status_text(totals, cap=room, count=count, nudge=nudge)
        dashboard = self._context.dashboard()
        if form == "changes" and last and last.ledger:
            return dashboard_text.changes_text(last.ledger, view.ledger, dashboard, cap=room, count=count, nudge=nudge)
        notes, older = dashboard_text.recent_notes(view.ledger, self._context.stored.body)
        return dashboard_text.full_text(dashboard, notes, older, cap=room, count=count, nudge=nudge)


def refusal(context: Context, terms: Terms | None) -> str:
    """What answers a call while the context is too full for it; counted in `ctxvc.json`.

    `terms` say which tools the agent has to make room; None where nobody knows.
    """
    view = context.view()
    used = view.used
    if view.ledger.meta.refused:
        context.set({"refused": view.ledger.meta.refused + 1})
    results = [
        (view.price.body(row), row.id) for row in view.ledger.rows() if row.kind == "tool_result" and row.present
    ]
    results.sort(reverse=True)
    largest = ", ".join(f"{block} ({tokens:,} tokens)" for tokens, block in results[:5])
    way = terms.room if terms else "make room first"
    again = ", then repeat the call" if terms is None or terms.freeing else ""
    return (
        f"[not run: the context is full, {used:,} of {view.budget.effective:,} tokens; {way}{again}"
        f"{'; largest: ' + largest if largest else ''}]"
    )


def _priced(view: View, form: dashboard_text.Kind) -> int:
    """What a board of this form may cost where none is kept, as the provider counts."""
    return -(-dashboard_text.room(form, 0, _cap(view)) * view.calibration[0] // 1000)


def _cap(view: View) -> int:
    return dashboard_text.cap_of(view.budget, view.calibration)


def _kept_tokens(view: View) -> int:
    """What the dashboards cost that no cut has taken away."""
    return sum(map(view.price.body, _live_dashboards(view.ledger)))


def _live_dashboards(ledger: Ledger) -> list[Row]:
    """The dashboards that no cut has taken away."""
    rows = chain.from_iterable(ledger.by_segment(_dashboards))
    return [row for row in rows if not is_cut(row, ledger.meta)]


def _dashboards(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind == "dashboard" and row.present]


def _percents(budget: Budget) -> tuple[int, ...]:
    """The thresholds at which a model should look again, in percent of the effective budget."""
    ladder = budget.ladder
    return tuple(int(share * 100) for share in (ladder.clear, ladder.summarise, ladder.guard))


def turn_began(ledger: Ledger) -> bool:
    """Whether nothing but human and client words stands in the newest turn so far: its first call comes now."""
    for row in ledger.backwards():
        if row.turn < ledger.meta.counters.turn:
            break
        if row.role == "assistant" or row.kind == "dashboard":
            return False
    return True


def _largest(ledger: Ledger, view: View) -> str:
    rows = [(view.price.body(row), row) for row in ledger.rows() if row.present and not is_cut(row, ledger.meta)]
    rows.sort(key=lambda item: (-item[0], item[1].number))
    blocks = ", ".join(f"{row.id} {row.origin} {row.kind} {tokens:,}" for tokens, row in rows[:5])
    return f"what may not leave is {blocks or 'the system prompt and the tools'}"
