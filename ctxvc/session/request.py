"""Requests of a session: a prompt below the budget, with the dashboard that is due, or why none fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import msgspec

from ctxvc.core import display, scope
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import timing
from ctxvc.core.plan.candidates import candidates
from ctxvc.core.plan.guard import Relief, guard
from ctxvc.core.policy import Terms
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.cut import before_reply, is_cut, with_cut
from ctxvc.core.prompt.outline import Slot, outline, pieces
from ctxvc.core.prompt.sanitise import alone
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View, costs_in_prompt
from ctxvc.errors import BadInput, Conflict, OverBudget, Phrase
from ctxvc.session.append import stopped
from ctxvc.session.context import Context
from ctxvc.store.read import revision

#: The most results that a refusal names.
_NAMED = 5
#: The provider's stop reason for a reply that it paused.
PAUSED = "pause_turn"


def newest(context: Context) -> Slot:
    """The newest slot of the prompt, dashboards aside. Raises: BadInput if no model could answer to it."""
    render = context.ledger().meta.render
    slots = (slot for slot in reversed(outline(context.ledger())) if slot.row.kind != "dashboard")
    last = next(
        (slot for slot in slots if any(alone(piece, render) for piece in pieces([slot], context.bodies(), render))),
        None,
    )
    if last is None:
        raise BadInput("there is nothing to send", hint="append a message first")
    # A reply that the provider paused continues when it is sent back, as does one that ends in a call of its own tool.
    if last.role == "assistant" and last.kind != "other" and stopped(context.ledger()) != PAUSED:
        raise BadInput("the last message is the model's", hint="append a message first")
    return last


def keep_below(context: Context, spare: int = 0, following: int = 0, relief: Relief | None = None) -> None:
    """Lets the guard act if the prompt with `spare` more tokens would exceed the budget, as the provider counts.

    The guard leaves room for `following` tokens, which its own action brings along; `relief` says what leaves first.
    Raises: OverBudget if that is not enough.
    """
    for attempt in (1, 2):
        view = context.view()
        mine = spare + view.part(_own_words(view))
        if view.used + mine <= view.budget.guard:
            return
        # The guard's action comes with a cut, so the guard need not free the tokens that the cut removes.
        ahead = replace(view, ledger=with_cut(view.ledger))
        rehearsal = guard(ahead, max(mine, following), relief)
        try:
            if rehearsal:
                context.commit(rehearsal, relieves=False)
            elif view.used + mine > view.budget.hard_guard or ahead.used + mine <= view.budget.guard:
                context.cut("earlier dashboards and thinking leave")
            else:
                return  # what exceeds a policy's own ceiling may not leave, but fits the budget
        except Conflict:
            if attempt == 2:
                raise
            context.stored.refresh()
            continue
        after = replace(ahead, ledger=rehearsal.after) if rehearsal else ahead
        needed = _needed(context, after)
        if needed <= view.budget.effective:
            return
        raise overfull(after, *context.meter.overheads(revision.now(context.stored)), needed=needed)


def _needed(context: Context, view: View, more: int = 0) -> int:
    """The tokens of the budget that the prompt needs, with `more` counted tokens.

    While the calibration is a guess, this is our own count: nothing that may fit is refused, the provider decides.
    """
    ours = view.counted + _own_words(view) + more
    return ours if context.guesses else view.calibrated(ours)


def _own_words(view: View) -> int:
    """The tokens of the texts that rendering adds for empty or missing content, which no view counts."""
    slots = outline(view.ledger)
    empty = sum(slot.show == "body" and slot.kind == "tool_result" and not slot.row.bytes for slot in slots)
    begins = bool(slots) and slots[0].role != "user"
    return empty * view.price.text(stub.INTERRUPTED) + begins * view.price.text(stub.BEGINNING)


class DashboardFeed:
    """The dashboards of this process: the next one that is due, and the last one shown in each scope."""

    def __init__(self, context: Context, append: Callable[[Message], object]) -> None:
        self._context = context
        self._append = append
        self._last_shown: dict[str, model_dashboard.LastShown] = {}
        self._scope = context.scope  # the newest request's, at first the one that this process began in

    def retire(self) -> None:
        """Removes all dashboards if one names a group that no longer exists, as after a person's undo during a call.

        The undo came with a cut, but a dashboard whose call had no reply yet came after that cut.
        """
        context = self._context
        ledger = context.ledger()
        live, body_of = _live_dashboards(ledger), context.bodies().body
        if any(model_dashboard.groups_named(display.decode(body_of(row))) - ledger.groups.keys() for row in live):
            try:
                context.cut("a dashboard names a group that is gone", live)
            except Conflict:
                context.stored.refresh()  # another writer has done it

    def show(self) -> None:
        """Adds the dashboard that is due, if any; makes a cut first if there is no room for it."""
        context = self._context
        if not self._show():
            # A board that is sent before every call is the only one: those since the reply leave, too.
            stale = _live_dashboards(context.ledger()) if context.terms.visible_board == "each" else ()
            context.cut("earlier dashboards and thinking leave", stale)
            self._show()
        context.changed, self._scope = False, context.scope

    def room(self) -> int:
        """The most tokens of the dashboard that is due now, as the provider counts them; 0 if none is due."""
        view, last = self._view_and_last()
        form = self._due(view, last)
        if form == "none":
            return 0
        return self._priced(view, "full" if form == "cut" else form)

    def largest(self) -> int:
        """The most tokens of any dashboard, as the provider counts them: a full one's, which the guard makes due."""
        return self._priced(self._context.view(), "full")

    def _show(self) -> bool:
        """Adds the dashboard that is due; False if a cut must be made first."""
        context = self._context
        view, last = self._view_and_last()
        form = self._due(view, last)
        if form == "cut":
            return False
        if form != "none" and (text := self._form_text(view, form, last, self._room(view, form, _kept_tokens(view)))):
            if _needed(context, view, view.price.text(text)) > view.budget.effective:
                return True  # no prompt is refused for its dashboard
            part = wire.text_part(text, "user", "client", kind="dashboard")
            self._append(Message(role="user", parts=(part,)))
            # A dashboard counts itself, so that crossing a threshold by its own size is no reason for another.
            # A line does not: it mentions no thresholds, so the next dashboard reports the one that the line crosses.
            after = context.totals(view if form == "line" else context.view())
            reminded = self._unnoted(view) > 0
            self._last_shown[context.scope] = model_dashboard.shown_after(
                last, form, view.ledger, after, reminded=reminded
            )
        return True

    def _room(self, view: View, form: model_dashboard.Kind, kept_tokens: int) -> int:
        """The most tokens of a dashboard of this form beside the kept ones."""
        return model_dashboard.room(form, kept_tokens, _cap(view), self._context.terms.visible_board)

    def _priced(self, view: View, form: model_dashboard.Kind) -> int:
        """The most tokens of a dashboard of this form if no other is in the prompt, as the provider counts."""
        return -(-self._room(view, form, 0) * view.calibration[0] // 1000)

    def _view_and_last(self) -> tuple[View, model_dashboard.LastShown | None]:
        """The view, and the last dashboard shown in this scope since the last cut."""
        view = self._context.view()
        last = self._last_shown.get(self._context.scope) if _kept_tokens(view) else None
        if last and last.reminded and not self._unnoted(view):
            last = self._last_shown[self._context.scope] = msgspec.structs.replace(last, reminded=False)
        return view, last

    def _due(self, view: View, last: model_dashboard.LastShown | None) -> model_dashboard.Due:
        form = model_dashboard.next_form(
            last,
            view.ledger,
            self._context.totals(view),
            _percents(view.budget),
            _kept_tokens(view),
            _cap(view),
            turn_began=turn_began(view.ledger) or self._switched,
            committed=self._context.changed,
            board=self._context.terms.visible_board,
            unnoted=self._unnoted(view) > 0,
        )
        if form != "cut" or self._context.terms.visible_board == "each" or view.ledger.meta.render < 2:
            return form
        # A dashboard is not worth a cut by itself, except after a switch: it waits for a cut with another cause.
        # An agent that can act gets a one-line reminder at once: cuts for reminders alone doubled the broken prefixes
        # at 32k.
        if self._switched or timing.cut_pays(view, before_reply(view.ledger)):
            return form
        return "reminder" if self._nudge(view, last) else "none"

    @property
    def _switched(self) -> bool:
        """Whether the scope differs from the newest request's."""
        return self._scope != self._context.scope

    def _nudge(self, view: View, last: model_dashboard.LastShown | None) -> str:
        """The instruction that the agent gets now; empty for none."""
        reached = model_dashboard.crossed(last, self._context.totals(view), _percents(view.budget))
        return self._context.terms.nudge(reached, self._unnoted(view))

    def _unnoted(self, view: View) -> int:
        """The number of steps without a note to remind the agent of; 0 if its policy asks for no notes."""
        return scope.unnoted(view.ledger) if self._context.terms.notes_before_leaving else 0

    def _form_text(
        self, view: View, form: model_dashboard.Kind, last: model_dashboard.LastShown | None, room: int
    ) -> str:
        totals = self._context.totals(view)
        if form == "line":
            return model_dashboard.line_text(totals)
        if form == "reminder":
            nudge = self._nudge(view, last)
            return model_dashboard.short_text(totals, cap=room, count=self._context.meter.count, nudge=nudge)
        thresholds, unnoted = _percents(view.budget), self._unnoted(view)
        nudge = self._context.terms.nudge(model_dashboard.crossed(last, totals, thresholds), unnoted)
        text = self._dashboard_text(view, form, last, room, nudge)
        # Its own size may cross one more threshold.
        own = view.part(self._context.meter.count(text))
        updated = msgspec.structs.replace(totals, dashboards=totals.dashboards + own)
        more = self._context.terms.nudge(model_dashboard.crossed(last, updated, thresholds), unnoted)
        return text if more == nudge else self._dashboard_text(view, form, last, room, more)

    def _dashboard_text(
        self, view: View, form: model_dashboard.Kind, last: model_dashboard.LastShown | None, room: int, nudge: str
    ) -> str:
        totals, count, terms = self._context.totals(view), self._context.meter.count, self._context.terms
        if terms.visible_board == "status":
            # A model that asked for no board has no use for a breakdown.
            make = model_dashboard.status_text if terms.board == "status" else model_dashboard.short_text
            return make(totals, cap=room, count=count, nudge=nudge)
        if terms.visible_board in ("changes", "thresholds"):
            notes, older = model_dashboard.recent_notes(view.ledger, self._context.stored.body)
            best = [str(one) for one in candidates(view, terms.candidates)]
            return model_dashboard.brief_text(totals, notes, older, best, cap=room, count=count, nudge=nudge)
        dashboard = self._context.dashboard()
        if form == "changes" and last and last.ledger:
            return model_dashboard.changes_text(last.ledger, view.ledger, dashboard, cap=room, count=count, nudge=nudge)
        notes, older = model_dashboard.recent_notes(view.ledger, self._context.stored.body)
        return model_dashboard.full_text(dashboard, notes, older, cap=room, count=count, nudge=nudge)


def refusal(context: Context, terms: Terms | None) -> str:
    """The answer to a call that the context is too full for; counted in `ctxvc.json`.

    `terms` name the agent's tools for making room; None if unknown.
    """
    view = context.view()
    used = view.used
    if view.ledger.meta.refused:
        context.set({"refused": view.ledger.meta.refused + 1})
    best = "; ".join(map(str, candidates(view, _NAMED)))
    way = terms.room if terms else "make room first"
    again = ", then repeat the call" if terms is None or terms.freeing else ""
    return (
        f"[not run: the context is full, {used:,} of {view.budget.effective:,} tokens; {way}{again}"
        f"{'. May leave first: ' + best if best else ''}]"
    )


def _cap(view: View) -> int:
    return model_dashboard.cap_of(view.budget, view.calibration)


def _kept_tokens(view: View) -> int:
    """The tokens of the dashboards that no cut has removed."""
    return sum(map(view.price.body, _live_dashboards(view.ledger)))


def _live_dashboards(ledger: Ledger) -> list[Row]:
    """The dashboards that no cut has removed."""
    rows = chain.from_iterable(ledger.by_segment(_dashboards))
    return [row for row in rows if not is_cut(row, ledger.meta)]


def _dashboards(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind == "dashboard" and row.present]


def _percents(budget: Budget) -> tuple[int, ...]:
    """The thresholds at which a model should look again, in percent of the effective budget."""
    ladder = budget.ladder
    return tuple(int(share * 100) for share in (ladder.clear, ladder.summarise, ladder.guard))


def turn_began(ledger: Ledger) -> bool:
    """Whether the newest turn has only human and client text so far: its first call comes now."""
    for row in ledger.backwards():
        if row.turn < ledger.meta.counters.turn:
            break
        if row.role == "assistant" or row.kind == "dashboard":
            return False
    return True


# --- the error of a prompt that does not fit: what fills it, and what would help

_SYSTEM, _TOOLS, _HUMAN = "the system prompt", "the tools", "human text"
_PINNED, _NOTES, _RESULTS, _REPLY = "pinned blocks", "notes", "the newest results", "the newest reply"
_OTHERS = "stubs and others"
#: The most blocks named of each kind, largest first.
_OF_EACH_KIND = 3
#: The suggested budget is a multiple of this.
_STEP = 500


def overfull(view: View, system: int, tools: int, *, needed: int) -> OverBudget:
    """The error for a prompt of which nothing more may leave: it needs `needed` tokens, more than the budget has.

    `view` is that prompt; `system` and `tools` are our counts of these two. The message lists what fills the prompt,
    largest kind first, in the provider's tokens like `needed`.
    """
    ours = view.counted
    newest = max((row.step for row in view.ledger.rows() if row.role == "assistant" and row.present), default=0)
    kinds: dict[str, dict[str, int]] = {_SYSTEM: {"": system}, _TOOLS: {"": tools}}
    for block, tokens in costs_in_prompt(view.ledger, view.price).items():
        kinds.setdefault(_kind(view.ledger[block], newest), {})[block] = tokens
    sizes = {kind: _share(sum(blocks.values()), needed, ours) for kind, blocks in kinds.items()}
    order = sorted((kind for kind in kinds if sizes[kind]), key=lambda kind: -sizes[kind])
    parts = [f"{kind} {sizes[kind]:,}{_largest(kinds[kind])}" for kind in order]
    always = sizes[_SYSTEM] + sizes[_TOOLS]
    # Where the reserve is a share of the budget, it grows with the budget.
    budget = -(-needed * view.budget.window // view.budget.effective // _STEP) * _STEP + _STEP
    largely_always = always * 2 > view.budget.effective
    hint = Phrase("overhead-budget", budget=budget) if largely_always else Phrase("free-budget", budget=budget)
    return OverBudget(
        f"the prompt needs {needed:,} tokens and the budget has {view.budget.effective:,}: {', '.join(parts)}",
        hint=hint,
    )


def _kind(row: Row, newest: int) -> str:
    if not row.present:
        return _OTHERS
    if row.kind == "note":
        return _NOTES
    if is_human(row.role, row.origin):
        return _HUMAN
    if row.state == "pinned":
        return _PINNED
    if row.step == newest and row.role == "assistant":
        return _REPLY
    return _RESULTS if row.step == newest and row.kind == "tool_result" else _OTHERS


def _share(tokens: int, needed: int, ours: int) -> int:
    return tokens * needed // max(1, ours)


def _largest(blocks: dict[str, int]) -> str:
    names = sorted((block for block in blocks if block), key=lambda block: (-blocks[block], int(block[1:])))
    more = f" and {len(names) - _OF_EACH_KIND} more" if len(names) > _OF_EACH_KIND else ""
    return f" ({', '.join(names[:_OF_EACH_KIND])}{more})" if names else ""
