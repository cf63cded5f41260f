"""A recording → Markdown for a pull request: the requests, the outcome, the files, the notes, what left the prompt.

Recorded text is untrusted: it is escaped so that it makes no markup, mention, reference or link on a git host. The page
fits into a pull request's description on GitHub.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import caption, facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.exporters.conversation import Conversation, is_shared
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.store.timestamp import iso

#: The most characters of a page, as GitHub counts them (in UTF-16); its limit is 65,536.
LIMIT = 65_000
#: The characters shown of a request, an answer and a note.
_REQUEST, _ANSWER, _NOTE = 1_200, 2_000, 600
#: The lines shown of a section.
_MOST = 60
_WIDE = 160

_MARKUP = re.compile(r"[\\`*_\[\]<>&|~$]")
_LEADING = re.compile(r"^([0-9]{0,9})(?=[.)#+=-])", re.MULTILINE)
#: Beginnings of mentions, references and addresses: an invisible comment separates each from its rest.
_LINKING = re.compile(
    r"(@(?=\w)|#(?=[0-9])|GH-(?=[0-9])|(?:https?|ftp|mailto|xmpp)(?=:)|www(?=\.))", re.IGNORECASE | re.ASCII
)
_NOTHING = "<!-- -->"
_CHANGES = {"edited": "edited", "wrote": "written", "deleted": "deleted"}
_LEAVING = frozenset({"archive", "mask", "prune", "delete", "summarise", "plan", "compact", "restore"})


class _Turn(NamedTuple):
    """The human messages of a turn, and the model's last text."""

    requests: Sequence[Row]
    answer: Row | None


def export(conversation: Conversation) -> Exported:
    """The page. Everything recorded that it does not show is a loss."""
    page = _Page(conversation)
    text = page.text()
    rows = (row for row in conversation.ledger.rows() if row.id not in page.shown)
    losses = [*page.cuts, *(Loss(row.id) for row in rows), *(Loss(f"scopes.{name}") for name in conversation.subagents)]
    return Exported(display.encode(text), tuple(losses))


def escaped(text: str) -> str:
    """Markdown that shows `text` literally, without any markup, mention or link."""
    lines = (line.strip() for line in display.visible_controls(text).splitlines())
    flat = _MARKUP.sub(r"\\\g<0>", "\n".join(lines))
    return _LINKING.sub(rf"\1{_NOTHING}", _LEADING.sub(r"\1\\", flat))


class _Page:
    """The parts of the page. `shown` are the blocks in them; `cuts` those shown in part."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._rows = [row for row in conversation.ledger.rows() if is_shared(row)]
        self._body = conversation.snapshot.bodies.body
        self.shown: set[str] = set()
        self.cuts: list[Loss] = []

    def text(self) -> str:
        """The parts that fit, most important first; each is bounded itself."""
        parts = [
            self._head(),
            *self._turns(),
            _folded("Files", self._files()),
            _folded("Notes and decisions", self._notes()),
            _folded("What left the prompt, and why", self._departures()),
            _folded("Sub-agents", self._subagents()),
            _folded("Steps", self._steps()),
        ]
        size, fitting = 0, []
        for part in filter(None, parts):
            if size + _units(part) + 2 <= LIMIT:
                fitting.append(part)
                size += _units(part) + 2
        return "\n\n".join(fitting) + "\n"

    def _head(self) -> str:
        conversation, counters = self._conversation, self._conversation.ledger.meta.counters
        facts_of_session = [
            f"session `{conversation.name}`",
            f"{_number_of(counters.turn, 'turn')}, {_number_of(counters.step, 'step')}",
            escaped(display.one_line(conversation.ledger.meta.model, 80)),
            escaped(display.one_line(conversation.agent, 80)),
            iso(conversation.entries[0].time)[:10] if conversation.entries else "",
            f"commit `{conversation.snapshot.commit[:12]}` of its store",
        ]
        title = escaped(display.one_line(conversation.title, _WIDE))
        return f"## {title}\n\n{' · '.join(filter(None, facts_of_session))}"

    def _turns(self) -> Iterator[str]:
        """The first and the last turn, with those between them folded."""
        turns = [self._turn(turn) for turn in self._exchanges()]
        if len(turns) > 3:
            yield turns[0]
            yield _folded(f"{len(turns) - 2} turns more", turns[1:-1][-_MOST:], between="\n\n")
            yield turns[-1]
        else:
            yield from turns

    def _exchanges(self) -> Iterator[_Turn]:
        for _, group in groupby(self._rows, attrgetter("turn")):
            rows = list(group)
            requests = [row for row in rows if row.kind == "user" and row.origin == "human"]
            answers = [row for row in rows if row.kind == "assistant"]
            if requests or answers:
                yield _Turn(requests, answers[-1] if answers else None)

    def _turn(self, turn: _Turn) -> str:
        requests = [f"**Asked**\n\n{_quoted(self._text(row, _REQUEST))}" for row in turn.requests]
        answers = [f"**Done**\n\n{_quoted(self._text(turn.answer, _ANSWER))}"] if turn.answer else []
        return "\n\n".join([*requests, *answers])

    def _text(self, row: Row, limit: int) -> str:
        """The text of a block, or its beginning."""
        text = (
            display.decode(self._body(row)) if row.ext == "txt" else f"[{row.kind}, {display.human_bytes(row.bytes)}]"
        )
        self.shown.add(row.id)
        if len(text) > limit:
            self.cuts.append(Loss(row.id, "its beginning"))
            text = text[:limit].rstrip() + "…"
        return text

    def _files(self) -> list[str]:
        changes: dict[str, list[str]] = {}
        failed = {row.parent for row in self._rows if row.kind == "tool_result" and row.error}
        folder = caption.folder_of(self._conversation.ledger)
        for row in self._rows:
            if row.kind != "tool_use" or row.id in failed:
                continue
            for fact in facts.facts(row.tool, self._body(row), row.ext):
                if fact.act in _CHANGES and fact.object:
                    path = caption.relative(fact.object, folder)
                    changes.setdefault(path, []).append(" ".join(filter(None, (_CHANGES[fact.act], fact.detail))))
        return _items(
            f"{escaped(display.path_fitted(display.one_line(path, len(path) + 1), _WIDE))}: {_summary(own)}"
            for path, own in changes.items()
        )

    def _notes(self) -> list[str]:
        notes = [row for row in self._rows if row.kind == "note"]
        return _items(escaped(display.one_line(self._text(row, _NOTE), _NOTE)) for row in notes)

    def _departures(self) -> list[str]:
        entries = [entry for entry in self._conversation.entries if entry.op in _LEAVING]
        lines = []
        for entry in reversed(entries):
            reason = entry.trailers.get("Ctxvc-Reason", "")
            actor = entry.trailers.get("Ctxvc-Actor", entry.actor)
            why = f" ({reason})" if reason and reason not in entry.subject else ""
            lines.append(f"{escaped(display.one_line(entry.subject + why, _WIDE))} — {escaped(actor)}")
        return _items(lines)

    def _subagents(self) -> list[str]:
        names = self._conversation.subagents
        return _items(f"`{self._conversation.snapshot.session}/{name}`" for name in names)

    def _steps(self) -> list[str]:
        """A caption of each reply; the subjects of commits would also have the words of deleted blocks."""
        folder = caption.folder_of(self._conversation.ledger)
        steps = (list(group) for _, group in groupby(self._rows, attrgetter("step")))
        replies = (rows for rows in steps if any(row.role == "assistant" for row in rows))
        return _items(escaped(caption.of_reply(rows, self._body, folder, 100)) for rows in replies)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in escaped(text.strip()).split("\n"))


def _items(lines: Iterable[str]) -> list[str]:
    """The lines as items of a list; of many, the last ones."""
    items = [f"- {line}" for line in lines]
    more = len(items) - _MOST
    return [f"- … {more} more before", *items[-_MOST:]] if more > 0 else items


def _folded(title: str, lines: Sequence[str], between: str = "\n") -> str:
    """A section that opens on a click; empty without lines."""
    if not lines:
        return ""
    return f"<details><summary>{title}</summary>\n\n{between.join(lines)}\n\n</details>"


def _summary(changes: Sequence[str]) -> str:
    """`edited +3 −0, edited +1 −1`; many changes are counted instead."""
    if len(changes) <= 3:
        return ", ".join(changes)
    acts = {act: sum(change.startswith(act) for change in changes) for act in _CHANGES.values()}
    return ", ".join(f"{act} {number} ×" for act, number in acts.items() if number)


def _number_of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
