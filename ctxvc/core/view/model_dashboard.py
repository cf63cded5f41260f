"""The dashboard as a model reads it, and when each form of it is due.

A **brief** board has the bar, the notes, and the blocks that may best leave; a **table** has a row for each block,
group or range, and a later table of **changes** only the new and changed ones; a **line** has the bar alone. Each
begins with `[dashboard`, which no recorded text in a prompt can begin with (`stub.guarded`), and contains recorded
words only where they can neither end a line nor begin one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import notes as noting
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt import stub
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import BAR, Dashboard, Line, folded, outer_groups

Kind = Literal["full", "changes", "reminder", "line"]
#: What a model sees of its context, and when. `changes`: the bar, the notes and what may best leave at a turn's start,
#: at thresholds, after a switch and on demand, and a line where usage moved; `thresholds`: no lines in between; `full`:
#: the table of all blocks instead of what may best leave; `each`: that table before each call, and only the newest, as
#: in VISTA; `status`: the totals alone; `off`: nothing.
Board = Literal["each", "changes", "thresholds", "full", "status", "off"]
Due = Literal["full", "changes", "reminder", "line", "none", "cut"]
Count = Callable[[str], int]

COLUMNS = "ID ~tokens→now age type level parent status(by) reads label"
#: Notes on a full dashboard.
NOTES = 5
#: The most tokens of a line, and the fewest for which a dashboard of changes is worth its header.
LINE = 40
CHANGES = 128
#: The same for a line with a reminder, and for a full dashboard with the totals alone and a reminder.
REMINDER = 80
STATUS = 96
#: The growth of usage, in percent of the budget, that calls for a line between two dashboards.
GROWTH = 5

# The beginning of a group's row (`_row`).
_GROUP_ROW = re.compile(r"^(G[1-9][0-9]*) [0-9]", re.MULTILINE)

#: Names of the kinds of blocks in sums of tokens, the name for stand-ins, and the tokens below which a kind is omitted.
KINDS = {
    "tool_result": "results",
    "tool_use": "calls",
    "assistant": "replies",
    "thinking": "thinking",
    "user": "user",
    "note": "notes",
    "dashboard": "boards",
}
STUBS = "stubs"
_TRIFLE = 100

#: An estimate of a row's tokens, and the number of attempts to improve the fit.
_ROW = 24
_TRIES = 5


class LastShown(msgspec.Struct, frozen=True):
    """The dashboard that the model saw last: the percentage of the budget, and the ledger whose rows it listed.

    `ledger` is None if no longer known, as after reopening a session. `reminded` means that the agent was reminded to
    note what it learned, and has not done so yet.
    """

    percent: int
    ledger: Ledger | None = None
    reminded: bool = False


def shown_after(
    last: LastShown | None, kind: Kind, ledger: Ledger, dashboard: Dashboard, *, reminded: bool = False
) -> LastShown:
    """The state after a dashboard of this kind. A single line lists no rows, so the previously listed ledger stays."""
    listed_ledger = ledger if kind not in ("reminder", "line") else last.ledger if last else None
    return LastShown(dashboard.percent, listed_ledger, reminded)


def crossed(last: LastShown | None, dashboard: Dashboard, thresholds: Sequence[int]) -> int:
    """The highest of `thresholds` (percents) that usage has crossed upwards since the last dashboard; 0 if none."""
    before = last.percent if last else 0
    return max((threshold for threshold in thresholds if before < threshold <= dashboard.percent), default=0)


# --- when


def next_form(
    last: LastShown | None,
    ledger: Ledger,
    dashboard: Dashboard,
    thresholds: Sequence[int],
    kept_tokens: int,
    cap: int,
    *,
    turn_began: bool,
    committed: bool,
    board: Board,
    unnoted: bool = False,
) -> Due:
    """The form of the next dashboard. `last` is the newest one since the last cut, None if there was none.

    With the board `each` it is always full, after a cut if another one is there. Otherwise it is full at the start of a
    turn, and after a committed plan, a switch of scope, an upward crossing of one of `thresholds` (percents), or (once)
    if much is `unnoted`; a table becomes one of changes if the rows were listed already. At any other step it is a line
    if usage grew enough, except with the board `thresholds`. It is `cut` if the dashboard might not fit: `kept_tokens`
    are those of the dashboards since the last cut, `cap` the most that they may cost together. The caller then makes a
    cut, and a full dashboard follows.
    """
    nudged = bool(crossed(last, dashboard, thresholds)) or (unnoted and not (last and last.reminded))
    if board == "each":
        return "cut" if kept_tokens else "full"
    form = _form(last, ledger, dashboard, board, turn_began=turn_began, changed=committed or nudged)
    if form == "none":
        return "none"
    need = {"full": _full(cap, board), "changes": min(cap // 4, CHANGES), "line": LINE}[form]
    return form if kept_tokens + need <= cap else "cut"


def cap_of(budget: Budget, calibration: tuple[int, int]) -> int:
    """`Budget.dashboard_cap` in uncalibrated tokens."""
    return budget.dashboard_cap * 1000 // max(1, calibration[0])


def room(kind: Kind, kept_tokens: int, cap: int, board: Board = "full") -> int:
    """The most tokens that a dashboard of this kind may cost in addition to earlier dashboards of `kept_tokens`."""
    share = {"full": _full(cap, board), "changes": cap // 4, "reminder": REMINDER, "line": LINE}[kind]
    return max(0, min(share, cap - kept_tokens))


def _full(cap: int, board: Board) -> int:
    """The most tokens of a full dashboard."""
    return min(cap // 2, STATUS) if board == "status" else cap // 2


def _form(
    last: LastShown | None,
    ledger: Ledger,
    dashboard: Dashboard,
    board: Board,
    *,
    turn_began: bool,
    changed: bool,
) -> Literal["full", "changes", "line", "none"]:
    if turn_began or last is None:
        return "full"
    if changed:
        is_listed = board == "full" and last.ledger is not None and last.ledger.meta.scope == ledger.meta.scope
        return "changes" if is_listed else "full"
    return "line" if board != "thresholds" and dashboard.percent - last.percent >= GROWTH else "none"


# --- what


def full_text(
    dashboard: Dashboard, notes: Sequence[str], older: int, *, cap: int, count: Count, nudge: str = ""
) -> str:
    """The full dashboard in at most `cap` tokens by `count`.

    `nudge` is the header's reminder (`Terms.nudge`). `notes` are those of the scope, the newest last, and `older` the
    number of earlier ones. Above the notes it sums the prompt up by kind. If not all fits, old small neighbours share a
    row, then ever more of them, then the notes are dropped, then the kinds, then everything but the header; empty if
    not even a line fits.
    """
    note_lines = list(_notes(notes, older, cap))
    kinds = [f"in it: {text}"] if (text := by_kind(_by_type(dashboard))) else []
    for above in ([*kinds, *note_lines], kinds, []):
        if fitted := _fitted(dashboard, nudge, above, dashboard.lines, frozenset(), cap, count):
            return fitted
    return status_text(dashboard, cap=cap, count=count, nudge=nudge)


def by_kind(tokens: Mapping[str, int]) -> str:
    """`results 8.1k, calls 2.0k, …`, largest first: tokens by a block's kind, or `stubs`; trifles are omitted."""
    kinds: Counter[str] = Counter()
    for kind, amount in tokens.items():
        kinds[kind if kind == STUBS else KINDS.get(kind, "others")] += amount
    large = [(kind, amount) for kind, amount in kinds.most_common() if amount >= _TRIFLE]
    return ", ".join(f"{kind} {display.human_tokens(amount)}" for kind, amount in large)


def _by_type(dashboard: Dashboard) -> Counter[str]:
    """The tokens of what is in the prompt, by kind, as the provider counts."""
    tokens: Counter[str] = Counter()
    for line in dashboard.lines:
        present = line.type != "group" and line.status.partition(" ")[0] in ("visible", "pinned", "masked")
        tokens[line.type if present else STUBS] += line.shown * dashboard.calibration[0] // 1000
    return tokens


def brief_text(
    dashboard: Dashboard,
    notes: Sequence[str],
    older: int,
    candidates: Sequence[str],
    *,
    cap: int,
    count: Count,
    nudge: str = "",
) -> str:
    """The bar, the notes of the scope, and `candidates` to leave, best first, in at most `cap` tokens by `count`.

    If not all fits, the last candidates are dropped, then the notes; empty if not even a line fits.
    """
    where = "" if dashboard.scope == "main" else f"scope {_word(dashboard.scope)}"
    note_lines = list(_notes(notes, older, cap))
    for above in [note_lines, []] if note_lines else [[]]:
        for number in range(len(candidates), -1, -1):
            below = ["may leave first:", *candidates[:number]] if number else []
            text, cost = _settled(dashboard, _joined(where, nudge), [*above, *below], cap, count, _brief_header)
            if cost <= cap:
                return text
    return short_text(dashboard, cap=cap, count=count, nudge=nudge)


def _brief_header(dashboard: Dashboard, remark: str, own: int) -> str:
    updated = msgspec.structs.replace(dashboard, dashboards=dashboard.dashboards + own)
    return f"[dashboard {_joined(f'{_usage(updated)}, step {dashboard.step}', remark)}]"


def changes_text(
    before: Ledger, after: Ledger, dashboard: Dashboard, *, cap: int, count: Count, nudge: str = ""
) -> str:
    """Header and rows of what is new in `after` or differs from `before`, in at most `cap` tokens.

    `dashboard` is that of `after`. Folded and bounded like `full_text`.
    """
    names = _changed(before, after)
    places = [at for at, line in enumerate(dashboard.lines) if line.id in names]
    gaps = frozenset(number for number, (earlier, later) in enumerate(pairwise(places), 1) if later > earlier + 1)
    lines = [dashboard.lines[at] for at in places]
    blocks = sum(line.blocks for line in lines)
    amount = f"changed: {blocks} block{'' if blocks == 1 else 's'}"
    reminder = _joined(amount, nudge)
    fitted = _fitted(dashboard, reminder, [], lines, gaps, cap, count)
    return fitted or status_text(dashboard, amount, cap=cap, count=count, nudge=nudge)


def status_text(dashboard: Dashboard, remark: str = "", *, cap: int, count: Count, nudge: str = "") -> str:
    """The totals on one line of at most `cap` tokens, shortened if they do not fit; empty if nothing fits.

    The nudge is included if there is room.
    """
    text, cost = _settled(dashboard, _joined(remark, nudge), [], cap, count)
    return text if cost <= cap else short_text(dashboard, cap=cap, count=count, nudge=nudge)


def short_text(dashboard: Dashboard, *, cap: int, count: Count, nudge: str = "") -> str:
    """One line with the bar, of at most `cap` tokens; empty if it does not fit."""
    return next((line for line in (line_text(dashboard, nudge), line_text(dashboard)) if count(line) <= cap), "")


def line_text(dashboard: Dashboard, nudge: str = "") -> str:
    """One line with the bar."""
    return f"[dashboard {_joined(_usage(dashboard), nudge)}]"


def groups_named(text: str) -> set[str]:
    """The groups that have a row in a dashboard's text."""
    return set(_GROUP_ROW.findall(text))


def recent_notes(ledger: Ledger, body: Callable[[Row], bytes]) -> tuple[list[str], int]:
    """The newest notes of a scope with their labels, the newest last, and the number of older ones.

    Superseded notes are left out.
    """
    superseded = noting.superseded(ledger)
    rows = [
        row
        for row in ledger.rows()
        if row.kind == "note" and row.state not in ("pruned", "deleted") and row.id not in superseded
    ]
    notes = [(noting.labels_of(row), display.decode(body(row))) for row in rows[-NOTES:]]
    texts = [f"({', '.join(labels)}) {text}" if labels else text for labels, text in notes]
    return texts, max(0, len(rows) - NOTES)


# --- text


def _usage(dashboard: Dashboard) -> str:
    # Not the block characters that people see, which cost a token each.
    bar = "#" * dashboard.cells + "." * (BAR - dashboard.cells)
    return f"{bar} {dashboard.percent} %, {dashboard.used:,} / {dashboard.limit:,} tokens"


def _header(dashboard: Dashboard, remark: str, own: int) -> str:
    """The first line of a dashboard that costs `own` tokens."""
    whole = msgspec.structs.replace(dashboard, dashboards=dashboard.dashboards + own)
    parts = [
        f"[dashboard {_word(dashboard.session)}/{_word(dashboard.scope)}, step {dashboard.step}: {_usage(whole)}",
        f"overhead {whole.overhead:,}, conversation {whole.conversation:,}, dashboard {whole.dashboards:,}",
    ]
    if remark:
        parts.append(remark)
    return "; ".join(parts) + "]"


def _notes(notes: Sequence[str], older: int, cap: int) -> Iterator[str]:
    newest = notes[-NOTES:]
    older += len(notes) - len(newest)
    if newest:
        yield f"notes (+{older} older):" if older else "notes:"
        yield from (f"- {stub.escaped(note, max(40, min(200, cap // 20)))}" for note in newest)


def _row(line: Line, width: int, a: int) -> str:
    """A row, with tokens as the provider counts: `a` thousandths of ours."""
    body, place = line.tokens * a // 1000, line.shown * a // 1000
    tokens = str(body) if body == place else f"{body}→{place}"
    status = line.status.replace(" ", "")
    if line.removed_by:
        status += f"({_word(line.removed_by)})"
    label = stub.escaped(line.label, width)
    parent = line.parent or "-"
    return f"{_word(line.id)} {tokens} {line.age}r {line.type} {line.level} {parent} {status} {line.reads} {label}"


def _word(value: str) -> str:
    """Recorded text as one short word."""
    return stub.escaped(value, 48).replace(" ", "_")


def _changed(before: Ledger, after: Ledger) -> set[str]:
    """The lines of `after` for blocks and outermost groups that are new or differ from `before`."""
    around = outer_groups(after)
    names = {around[name] for name, group in after.groups.items() if before.groups.get(name) != group}
    for segment in after.segments.changed_since(before.segments):
        old = {row.id: _standing(row) for row in before.segments.get(segment)}
        changed = (row for row in after.segments[segment] if old.get(row.id) != _standing(row))
        names.update(row.id if row.present else around.get(row.group, row.id) for row in changed)
    return names


def _standing(row: Row) -> tuple[str, str, str, int]:
    return row.sha256, row.state, row.group, row.reads


# --- as much as fits


def _fitted(
    dashboard: Dashboard,
    remark: str,
    above: Sequence[str],
    lines: Sequence[Line],
    gaps: frozenset[int],
    cap: int,
    count: Count,
) -> str:
    """Header, `above`, and about as many single rows as fit into `cap` tokens; empty if nothing does."""
    width = max(16, min(60, cap // 25))
    best, fits, too_many = "", -1, len(lines) + 1
    single = min(len(lines), cap // _ROW)
    for attempt in range(_TRIES):
        rows = folded(lines, single - single // 3, single // 3, gaps=gaps)
        below = [*above, *([COLUMNS] if rows else []), *(_row(line, width, dashboard.calibration[0]) for line in rows)]
        text, cost = _settled(dashboard, remark, below, cap, count)
        if cost <= cap:
            best, fits = text, single
            if cost * 100 >= cap * 85:
                break
        else:
            too_many = single
        if too_many - fits <= 1:
            break
        last = attempt == _TRIES - 2 and not best
        single = 0 if last else min(max(single * cap * 92 // (max(cost, 1) * 100), fits + 1), too_many - 1)
    return best


def _settled(
    dashboard: Dashboard,
    remark: str,
    below: Sequence[str],
    cap: int,
    count: Count,
    header: Callable[[Dashboard, str, int], str] | None = None,
) -> tuple[str, int]:
    """The text, whose header states its own token count, and that count.

    A number may change the count of the text that contains it. If that never settles, the header is off by a token or
    two.
    """
    own = cap
    for _ in range(4):
        text = "\n".join([(header or _header)(dashboard, remark, own * dashboard.calibration[0] // 1000), *below])
        cost = count(text)
        if cost == own or cost > cap:
            break
        own = cost
    return text, cost


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))
