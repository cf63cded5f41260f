"""The dashboard as a model reads it, and when which form of it is due.

Three forms: **full**, with a row for each block, group or range; **changes**, with the rows that are new or stand
otherwise; and a **line** with the bar alone. Each begins with `[dashboard`, which nothing recorded can begin with in a
prompt (`stubs.guarded`), and holds recorded words only where they can neither end a line nor begin one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt import stub
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import BAR, Dashboard, Line, folded, outer_groups

Kind = Literal["full", "changes", "line"]
Due = Literal["full", "changes", "line", "none", "cut"]
Count = Callable[[str], int]

COLUMNS = "ID ~tokens→now age type level parent status(by) reads label"
#: Notes that a full dashboard shows.
NOTES = 5
#: Tokens that a line may cost, and that there must be for a board of changes to be worth its header.
LINE = 40
CHANGES = 128
#: Percent of the budget by which usage must have grown for a line between two boards.
GROWTH = 5

# What `_row` begins with for a group.
_GROUP_ROW = re.compile(r"^(G[1-9][0-9]*) [0-9]", re.MULTILINE)

#: Tokens of a usual row, to begin with, and how often it is tried to come closer to what fits.
_ROW = 24
_TRIES = 5


class Shown(msgspec.Struct, frozen=True):
    """What the model was last shown: the form, the percentage, and the ledger whose rows it has been told.

    `ledger` is None where nobody knows it any more, as after a session was opened again. `reminded` says that it was
    told to note what it learned, and has not yet.
    """

    kind: Kind
    percent: int
    ledger: Ledger | None = None
    reminded: bool = False


def shown_after(shown: Shown | None, kind: Kind, ledger: Ledger, board: Dashboard, *, reminded: bool = False) -> Shown:
    """What is shown once a board of this kind was put. A line tells of no row."""
    told = ledger if kind != "line" else shown.ledger if shown else None
    return Shown(kind, board.percent, told, reminded)


def crossed(shown: Shown | None, board: Dashboard, thresholds: Sequence[int]) -> int:
    """The highest of `thresholds` (percents) that usage crossed on the way up since it was shown; 0 where none."""
    before = shown.percent if shown else 0
    return max((each for each in thresholds if before < each <= board.percent), default=0)


# --- when


def due(
    shown: Shown | None,
    ledger: Ledger,
    board: Dashboard,
    thresholds: Sequence[int],
    kept_tokens: int,
    cap: int,
    *,
    turn_began: bool,
    committed: bool,
    unnoted: bool = False,
) -> Due:
    """Which board comes next. `shown` is what was put since the last cut, None where nothing was.

    Full at a turn's start, and after a committed plan, a switch of scope, on the way up across one of `thresholds`
    (percents) or where much is `unnoted` (once), if the rows are not told yet; where they are, only changes. At any
    other step a line, if usage grew enough. `cut` where it might not fit: `kept_tokens` are those of the boards since
    the last cut, `cap` is what they may cost together. Then a cut is made, and a full board follows it.
    """
    nudged = bool(crossed(shown, board, thresholds)) or (unnoted and not (shown and shown.reminded))
    wanted = _wanted(shown, ledger, board, turn_began=turn_began, changed=committed or nudged)
    if wanted == "none":
        return "none"
    need = {"full": cap // 2, "changes": min(cap // 4, CHANGES), "line": LINE}[wanted]
    return wanted if kept_tokens + need <= cap else "cut"


def cap_of(budget: Budget, calibration: tuple[int, int]) -> int:
    """The tokens as we count them that all boards which are kept may cost together, where the provider counts so."""
    return budget.board_cap * 1000 // max(1, calibration[0])


def room(kind: Kind, kept_tokens: int, cap: int) -> int:
    """The tokens that a board of this kind may cost where boards of `kept_tokens` are kept."""
    most = {"full": cap // 2, "changes": cap // 4, "line": LINE}[kind]
    return max(0, min(most, cap - kept_tokens))


def _wanted(
    shown: Shown | None,
    ledger: Ledger,
    board: Dashboard,
    *,
    turn_began: bool,
    changed: bool,
) -> Literal["full", "changes", "line", "none"]:
    if turn_began or shown is None:
        return "full"
    if changed:
        told = shown.ledger is not None and shown.ledger.meta.scope == ledger.meta.scope
        return "changes" if told else "full"
    return "line" if board.percent - shown.percent >= GROWTH else "none"


# --- what


def board_text(board: Dashboard, notes: Sequence[str], older: int, *, cap: int, count: Count, nudge: str = "") -> str:
    """The full dashboard in at most `cap` tokens by `count`.

    `nudge` is what its header reminds of (`Terms.nudge`). `notes` are those of the scope, the newest last, and `older`
    how many there are before them. Where not all fits, old small neighbours share a row, then all but fewer and fewer,
    then the notes go, then all but the header; empty where not even a line fits.
    """
    told = list(_notes(notes, older, cap))
    fitted = _fitted(board, nudge, told, board.lines, frozenset(), cap, count)
    if not fitted and told:
        fitted = _fitted(board, nudge, [], board.lines, frozenset(), cap, count)
    return fitted or _totals(board, "", nudge, cap, count)


def changes_text(before: Ledger, after: Ledger, board: Dashboard, *, cap: int, count: Count, nudge: str = "") -> str:
    """Header and rows of what is new in `after`, or stands otherwise than in `before`, in at most `cap` tokens.

    `board` is that of `after`. Folded and bounded as `board_text`.
    """
    names = _changed(before, after)
    places = [at for at, line in enumerate(board.lines) if line.id in names]
    gaps = frozenset(number for number, (left, right) in enumerate(pairwise(places), 1) if right > left + 1)
    lines = [board.lines[at] for at in places]
    blocks = sum(line.blocks for line in lines)
    what = f"changed: {blocks} block{'' if blocks == 1 else 's'}"
    told = _joined(what, nudge)
    return _fitted(board, told, [], lines, gaps, cap, count) or _totals(board, what, nudge, cap, count)


def status_text(board: Dashboard, *, cap: int, count: Count, nudge: str = "") -> str:
    """The totals alone, on one line of at most `cap` tokens; empty where it does not fit."""
    return _totals(board, "", nudge, cap, count)


def line_text(board: Dashboard, nudge: str = "") -> str:
    """One line with the bar."""
    return f"[dashboard {_joined(_usage(board), nudge)}]"


def groups_named(words: str) -> set[str]:
    """The groups that have a row in the text of a dashboard."""
    return set(_GROUP_ROW.findall(words))


def recent_notes(ledger: Ledger, body: Callable[[Row], bytes]) -> tuple[list[str], int]:
    """The newest notes of a scope, the newest last, and how many there are before them."""
    rows = [row for row in ledger.rows() if row.kind == "note" and row.state not in ("pruned", "deleted")]
    return [display.decode(body(row)) for row in rows[-NOTES:]], max(0, len(rows) - NOTES)


# --- text


def _usage(board: Dashboard) -> str:
    # Not the blocks of the bar that people see: those cost a token each.
    bar = "#" * board.cells + "." * (BAR - board.cells)
    return f"{bar} {board.percent} %, {board.used:,} / {board.window:,} tokens"


def _header(board: Dashboard, what: str, own: int) -> str:
    """The first line of a board that costs `own` tokens."""
    a, b = board.calibration
    whole = msgspec.structs.replace(board, dashboards=board.dashboards + own * a // 1000)
    words = [
        f"[dashboard {_word(board.session)}/{_word(board.scope)}, step {board.step}: {_usage(whole)}",
        f"overhead {whole.overhead:,}, conversation {whole.conversation:,}, dashboard {whole.dashboards:,}",
    ]
    if (a, b) != (1000, 0):
        words.append(f"1 token below is {a / 1000:.2f} here")
    if what:
        words.append(what)
    return "; ".join(words) + "]"


def _notes(notes: Sequence[str], older: int, cap: int) -> Iterator[str]:
    shown = notes[-NOTES:]
    older += len(notes) - len(shown)
    if shown:
        yield f"notes (+{older} older):" if older else "notes:"
        yield from (f"- {stub.escaped(note, max(40, min(200, cap // 20)))}" for note in shown)


def _row(line: Line, width: int) -> str:
    tokens = str(line.tokens) if line.shown == line.tokens else f"{line.tokens}→{line.shown}"
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
    """The lines of `after` that tell of what is new in it or stands otherwise: blocks, and outermost groups."""
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
    board: Dashboard,
    what: str,
    above: Sequence[str],
    lines: Sequence[Line],
    gaps: frozenset[int],
    cap: int,
    count: Count,
) -> str:
    """Header, `above`, and about as many single rows as fit into `cap` tokens; empty where nothing does."""
    width = max(16, min(60, cap // 25))
    best, fits, too_many = "", -1, len(lines) + 1
    single = min(len(lines), cap // _ROW)
    for attempt in range(_TRIES):
        rows = folded(lines, single - single // 3, single // 3, gaps=gaps)
        below = [*above, *([COLUMNS] if rows else []), *(_row(line, width) for line in rows)]
        words, cost = _settled(board, what, below, cap, count)
        if cost <= cap:
            best, fits = words, single
            if cost * 100 >= cap * 85:
                break
        else:
            too_many = single
        if too_many - fits <= 1:
            break
        last = attempt == _TRIES - 2 and not best
        single = 0 if last else min(max(single * cap * 92 // (max(cost, 1) * 100), fits + 1), too_many - 1)
    return best


def _settled(board: Dashboard, what: str, below: Sequence[str], cap: int, count: Count) -> tuple[str, int]:
    """The text whose header tells what it costs itself, and what that is.

    A number may change the count of the text that it is in. Where that goes round in a circle, the header is a token
    or two off.
    """
    own = cap
    for _ in range(4):
        words = "\n".join([_header(board, what, own), *below])
        cost = count(words)
        if cost == own or cost > cap:
            break
        own = cost
    return words, cost


def _totals(board: Dashboard, what: str, nudge: str, cap: int, count: Count) -> str:
    """The header alone, or a line, with the nudge where that fits; empty where nothing would."""
    words, cost = _settled(board, _joined(what, nudge), [], cap, count)
    if cost <= cap:
        return words
    return next((line for line in (line_text(board, nudge), line_text(board)) if count(line) <= cap), "")


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))
