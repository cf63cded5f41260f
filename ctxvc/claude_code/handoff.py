"""Texts for a model on content that it no longer sees: after a compaction, and at the start of a new session.

They are facts, each with a handle that resolves. Since they come from a recording, each is escaped to one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ctxvc.claude_code.event import MOST, NAMED, OFFERED
from ctxvc.core import display
from ctxvc.core.ledger import notes as noting
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.core.prompt import stub, truncation
from ctxvc.errors import Damaged

#: The largest shares of the room for notes and for a person's own words. Results get the remainder.
_NOTES = 0.35
_WORDS = 0.25
_NOTE = 600
_LINE = 200
#: The share for earlier compactions; the most lines of a part, and handles of damaged blocks, that are considered.
_EARLIER = 0.15
_MOST_LINES = 120
_DAMAGED = 20
#: The kinds of blocks that a summary restates in its own words.
_NOT_NAMED = ("thinking", "assistant", "user", "system", "tool_use", "note", "dashboard")
#: The least bytes of a truncated output: hosts do not truncate shorter ones.
_CUT = 30_000

Body = Callable[[Row], bytes]


def after_compaction(ledger: Ledger, body: Body, limit: int = MOST) -> str:
    """The notes, the human messages, and the handles of blocks that the host's compactions removed from the prompt.

    At most `limit` characters; lines that do not fit are counted. Damaged blocks are left out. Empty if nothing is
    recorded yet.
    """
    group = _newest(ledger)
    removed = [row for row in ledger.rows() if (row.group == group.id if group else row.present and row.kind != "note")]
    if not removed:
        return ""
    # Until the host has recorded its compaction, it may still keep some of the blocks.
    at_most, as_group = ("", f" as {group.id}") if group else ("up to ", "")
    head = [
        f"[ctxvc] This conversation is recorded as {ledger.meta.session}/{ledger.meta.scope}. The compaction took "
        f"{at_most}{len(removed)} blocks ({display.human_bytes(sum(row.bytes for row in removed))}) out of the "
        f"prompt{as_group}. Each is stored byte for byte under its handle:",
        (
            f"`ctxvc recover B17 --session {ledger.meta.session}` reads one, or part of it; `ctxvc grep WORDS` finds "
            "one; the MCP server's tools recover and search do the same."
        ),
    ]
    calls = {row.id: row for row in ledger.rows() if row.kind == "tool_use"}
    there = _There(body)
    page = _Page(limit, head)
    page.part("Notes, newest last:", _notes(ledger, body), _NOTES)
    spoken = [row for row in ledger.rows() if _spoken(row) and (row in removed or not row.present)]
    page.part("First human message:", _lines(filter(there, spoken[:1])), _WORDS)
    later = filter(there, spoken[1:][-_MOST_LINES:])
    page.part("Human messages:", _lines(later), _WORDS, of=len(spoken) - 1)
    earlier = [one for one in _compactions(ledger) if group is None or one.id != group.id]
    page.part("Earlier compactions:", [_group(one) for one in earlier], _EARLIER)
    results = [row for row in removed if row.kind not in ("thinking", "assistant", "user", "system", "tool_use")]
    largest = filter(there, sorted(results, key=_weight, reverse=True)[:_MOST_LINES])
    page.chosen(
        "The largest results and files, in order:",
        {row.number: (_weight(row), _line(row, calls.get(row.parent))) for row in largest},
        len(results),
    )
    if there.missing:
        page.line(f"Damaged in the store, and not recoverable: {', '.join(there.missing[:_DAMAGED])}.")
    more = f"`ctxvc recover {group.id}` lists all." if group else "`ctxvc log` and `ctxvc show` list all."
    page.line(more)
    return page.text


def for_summariser(ledger: Ledger) -> str:
    """The handles that a summary of the conversation should name, so that they can be read later; empty for none.

    At most `NAMED` characters.
    """
    calls = {row.id: row for row in ledger.rows() if row.kind == "tool_use"}
    rows = [row for row in ledger.rows() if row.present and row.kind not in _NOT_NAMED]
    if not rows:
        return ""
    page = _Page(
        NAMED,
        [
            "Every block of this conversation is recorded under a handle such as B17@3fa9c1, by which it can be read "
            "again after the summary. Where the summary mentions one of the following, name its handle, exactly as "
            "written here. Handles in earlier summaries stay valid: keep those that still matter.",
        ],
    )
    page.chosen("", {row.number: (_weight(row), _line(row, calls.get(row.parent))) for row in rows}, len(rows))
    return page.text


def at_startup(ledger: Ledger, body: Body) -> str:
    """This session's notes, last prompt and removed blocks, for a new session; at most `OFFERED` characters."""
    source = ledger.meta.source
    title = f", {stub.escaped(source.title, 100)}" if source and source.title else ""
    name = f"{ledger.meta.session}/{ledger.meta.scope}"
    head = [
        (
            f"[ctxvc] This project's previous session is recorded as {name}{title}: {ledger.meta.counters.step} steps, "
            f"{len(ledger)} blocks. `ctxvc recover B17 --session {ledger.meta.session}` reads a block of it."
        ),
    ]
    page = _Page(OFFERED, head)
    spoken = [row for row in ledger.rows() if _spoken(row)]
    notes = _notes(ledger, body)
    if not (spoken or notes):
        return ""
    page.part("Its notes, newest last:", notes, 0.6)
    page.part("Last human message:", _lines(spoken[-1:]), 0.3)
    away = [row for row in ledger.rows() if row.stub and not row.present and not row.group]
    groups = [_group(group) for group in ledger.groups.values() if not group.group]
    page.part("Removed from its prompt:", [*groups, *_lines(away)], 1.0)
    return page.text


class _Page:
    """A text of at most `limit` characters; lines that do not fit are not added."""

    def __init__(self, limit: int, head: Sequence[str]) -> None:
        self.limit = limit
        self.text = "\n".join(head)

    @property
    def room(self) -> int:
        # Without the space for a line that counts the others, and for the last one.
        return self.limit - len(self.text) - 160

    def line(self, text: str) -> None:
        if len(self.text) + 1 + len(text) <= self.limit:
            self.text += f"\n{text}"

    def part(self, title: str, lines: Sequence[str], share: float, *, of: int = 0) -> None:
        """Adds a titled list of the newest lines that fit into `share` of the remaining room.

        `of` is the number of all lines, if more than `lines`.
        """
        room = int(self.room * share) - len(title) - 2
        fitting: list[str] = []
        for line in reversed(lines):
            if room < len(line) + 1:
                break
            room -= len(line) + 1
            fitting.append(line)
        if fitting:
            older = max(of, len(lines)) - len(fitting)
            page_lines = [*([f"(+{older} older)"] if older else []), *reversed(fitting)]
            self.line("\n".join(["", title, *page_lines]))

    def chosen(self, title: str, lines: Mapping[int, tuple[int, str]], of: int) -> None:
        """Adds the lines of the largest items that fit, in their own order.

        `lines`: number → size, line. `of` is the number of all items.
        """
        room = self.room - len(title) - 2
        fit: list[int] = []
        for number, (_, line) in sorted(lines.items(), key=lambda item: item[1][0], reverse=True):
            room -= len(line) + 1
            if room < 0:
                break
            fit.append(number)
        if fit:
            more = of - len(fit)
            page_lines = [lines[number][1] for number in sorted(fit)]
            self.line(
                "\n".join(["", *([title] if title else []), *page_lines, *([f"(+{more} smaller)"] if more else [])])
            )


class _There:
    """Whether the store has a block's body undamaged; `missing` collects the handles of those that it lacks."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.missing: list[str] = []

    def __call__(self, row: Row) -> bool:
        try:
            self._body(row)
        except Damaged:
            self.missing.append(row.handle)
            return False
        return True


def _newest(ledger: Ledger) -> Group | None:
    """The group of the host's newest compaction; None if the model has replied since."""
    groups = _compactions(ledger)
    if not groups:
        return None
    newest = groups[-1]
    last = max((int(block[1:]) for block in newest.summary), default=0)
    since = next((row for row in ledger.backwards() if row.role == "assistant"), None)
    return newest if since is None or since.number < last or since.group == newest.id else None


def _compactions(ledger: Ledger) -> list[Group]:
    """The groups of the host's compactions, oldest first."""
    groups = [group for group in ledger.groups.values() if group.removed_by == "host" and not group.group]
    return sorted(groups, key=lambda group: int(group.id[1:]))


def _notes(ledger: Ledger, body: Body) -> list[str]:
    superseded = noting.superseded(ledger)
    there = _There(body)
    return [
        f"- {row.id}, step {row.step}: {display.one_line(display.decode(body(row)), _NOTE)}"
        for row in ledger.rows()
        if row.kind == "note" and row.state not in ("pruned", "deleted") and row.id not in superseded and there(row)
    ]


def _spoken(row: Row) -> bool:
    return row.kind == "user" and speaks(row.kind, row.role, row.origin)


def _lines(rows: Iterable[Row]) -> list[str]:
    return [_line(row) for row in rows]


def _line(row: Row, call: Row | None = None) -> str:
    """A row as a line; a result with the arguments of its call."""
    source = f"{row.kind} of {stub.escaped(row.tool, 40)}" if row.tool else row.kind
    label = stub.escaped(stub.arguments(call) or row.label, 100)
    size = display.human_bytes(row.bytes) + (" shown, kept whole" if truncation.whole(row) else "")
    return display.one_line(f"- {row.handle}, step {row.step}, {source}, {size}: {label}", _LINE)


def _weight(row: Row) -> int:
    return max(row.bytes, _CUT) if truncation.whole(row) else row.bytes


def _group(group: Group) -> str:
    return display.one_line(f"- {group.id}, level {group.level}: {stub.escaped(group.label, 80)}", _LINE)
