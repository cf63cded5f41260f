"""The story of a session: what was asked, done and answered in each turn, and the files that it changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

from ctxvc.core import display
from ctxvc.core.ledger import caption, wire
from ctxvc.core.ledger.facts import Fact
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.inspection.net_diff import counts
from ctxvc.inspection.work import is_work
from ctxvc.report import data
from ctxvc.report.call_parts import CallDetail, path_of
from ctxvc.report.history import History, ScopeHistory

#: The most characters of a request, a closing and a path; columns of a command; commands of a turn.
_REQUEST, _CLOSING, _PATH = 400, 400, 1_000
_LINE = 160
_COMMANDS = 60
#: The most bytes of a request before another; the bytes of a text that are searched for its first words.
_SHORT, _HEAD = 1_000, 8_000
_READS = frozenset({"read", "listed", "fetched"})
#: Code between fences, a link, and marks of headings, lists and emphasis.
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINKED = re.compile(r"\[([^\]\n]{1,300})\]\([^)\s]{1,1000}\)")
_MARKS = re.compile(r"^ {0,12}#{1,6} |`|\*\*", re.MULTILINE)
_PATTERN = re.compile(r"[*?$`{]")
_COUNTS = re.compile(r"\+(\d+) −(\d+)")

#: The places of a pool's texts, by their numbers; None for texts left out.
Places = Sequence[tuple[int, int] | None]


class Story:
    """The turns and changed files of a history. Made before the texts are packed, since it adds diffs to them."""

    def __init__(self, page: History) -> None:
        self._page = page
        self._files: dict[str, _File] = {}
        self.turns = sorted(
            (turn for scope in page.scopes for turn in self._turns(scope)),
            key=lambda turn: turn.calls[0] if turn.calls else len(page.order),
        )
        changed = [*self._files.values()]
        for number, turn in enumerate(self.turns):
            for place, _, _ in turn.files:
                changed[place].turns.append(number)
        for file in changed:
            lines = page.edits[file.path].lines() if file.path in page.edits else []
            file.plus, file.minus = counts(lines)
            file.diff = page.add("\n".join(lines)) if lines else -1

    def tool_calls(self, places: Places) -> Iterator[data.ToolCall]:
        """The calls of tools, by scope."""
        clean = self._page.clean
        for scope in self._page.scopes:
            results = {row.parent: scope.place[row.id] for row in scope.rows if row.kind == "tool_result"}
            for row in scope.rows:
                if detail := scope.details.get(row.id):
                    yield data.ToolCall(
                        scope.place[row.id],
                        results.get(row.id, -1),
                        scope.endings.get(row.id, ""),
                        [
                            data.CallPart(part, clean(title), place_at(places, number))
                            for part, title, number in detail.parts
                        ],
                    )

    def pictures(self, places: Places) -> list[data.Picture]:
        """The images that the page has room for."""
        images = (
            data.Picture(scope.place[block], media, place_at(places, number))
            for scope in self._page.scopes
            for block, media, number in scope.pictures
        )
        return [picture for picture in images if picture.place != -1]

    def changed_files(self, places: Places) -> list[data.ChangedFile]:
        """The changed files, in the order of their first change."""
        return [
            data.ChangedFile(
                path=self._page.clean(display.one_line(file.path, _PATH)),
                plus=file.plus,
                minus=file.minus,
                diff=place_at(places, file.diff),
                turns=file.turns,
                deleted=file.deleted,
            )
            for file in self._files.values()
        ]

    def _turns(self, scope: ScopeHistory) -> Iterator[data.Turn]:
        calls: dict[int, list[int]] = {}
        for number, sent in zip(scope.numbers, scope.sent, strict=True):
            calls.setdefault(sent.turn, []).append(number)
        own = (row for row in scope.rows if row.number > scope.inherited)
        for number, group in groupby(own, attrgetter("turn")):
            rows = list(group)
            request = self._request(scope, rows)
            if request or number in calls:
                yield self._turn(scope, rows, calls.pop(number, []), request)

    def _turn(self, scope: ScopeHistory, rows: Sequence[Row], calls: list[int], request: str) -> data.Turn:
        answer = next((row for row in reversed(rows) if row.kind == "assistant" and row.origin == "model"), None)
        last_call = next((row for row in reversed(rows) if row.kind == "tool_use"), None)
        deeds = _Deeds(self._place_of, scope)
        for row in rows:
            if row.id in scope.details:
                deeds.take(row, scope.details[row.id])
        for reply, output in pairwise(rows):
            if reply.kind == "assistant" and output.kind == "user" and output.origin == "tool":
                self._take_written(deeds, scope, reply, output)
        return data.Turn(
            number=rows[0].turn,
            scope=scope.line.number,
            blocks=(scope.place[rows[0].id], scope.place[rows[-1].id] + 1),
            calls=calls,
            request=request,
            files=[(file, plus, minus) for file, (plus, minus) in deeds.files.items()],
            commands=[self._command(line, endings) for line, endings in deeds.commands.items()][-_COMMANDS:],
            commits=list(map(self._line, deeds.commits)),
            agents=list(map(self._line, deeds.agents)),
            reads=deeds.reads,
            searches=deeds.searches,
            others=[(self._line(name), number) for name, number in deeds.others.most_common()],
            failures=deeds.failures,
            tasks=self._line(deeds.tasks),
            answer=scope.place[answer.id] if answer else -1,
            closing=self._closing(scope, answer) if answer else "",
            answered=answer is not None and (last_call is None or answer.number > last_call.number),
            interrupted=any(map(caption.interrupts, rows)),
        )

    def _take_written(self, deeds: _Deeds, scope: ScopeHistory, reply: Row, output: Row) -> None:
        """Adds the command of a host without tool calls: the last code block of a reply."""
        body = scope.snapshot.bodies.body
        if written := _FENCED.findall(display.decode(body(reply)[:_HEAD])):
            script = written[-1].partition("\n")[2].removesuffix("```")
            arguments = wire.compact({"command": script})
            line = caption.of_call(reply.tool, arguments, folder=scope.folder).object
            deeds.commands.setdefault(line, []).append(caption.ending(output, body(output)))

    def _command(self, line: str, endings: Sequence[str]) -> data.Command:
        return data.Command(self._line(line), len(endings), sum(map(bool, endings)), endings[-1])

    def _line(self, text: str) -> str:
        return self._page.clean(display.fitted(display.one_line(text, 4 * _LINE), _LINE))

    def _request(self, scope: ScopeHistory, rows: Iterable[Row]) -> str:
        """The beginning of what a person asked in these rows; the label of an image or a command's output.

        Clients put long texts before a person's: of several texts, long ones count only at the end.
        """
        spoken = [row for row in rows if speaks(row.kind, row.role, row.origin)]
        texts = [(row, self._request_text(scope, row, _REQUEST)) for row in spoken if row.kind == "user"]
        questions = [(row, text) for row, text in texts if text and not text.startswith("<")] or texts
        short = [text for row, text in questions[:-1] if row.bytes <= _SHORT] + [text for _, text in questions[-1:]]
        return " · ".join(filter(None, short)) or next((f"[{self._page.clean(row.label)}]" for row in spoken), "")

    def _request_text(self, scope: ScopeHistory, row: Row, width: int) -> str:
        """A person's text in at most `width` characters; of a long one both ends, since questions often come last."""
        if row.ext != "txt":
            return self._page.clean(row.label)
        text = display.decode(scope.snapshot.bodies.body(row))
        head = caption.plain(display.one_line(text[:_HEAD], 2 * width))
        if len(head) <= width and len(text) <= _HEAD:
            return self._page.clean(head)
        tail = display.one_line(text[-width:], width)[-width // 3 :].partition(" ")[2]
        return self._page.clean(f"{display.one_line(head, width - len(tail) - 1)} {tail}".rstrip())

    def _closing(self, scope: ScopeHistory, row: Row) -> str:
        """The beginning of a model's text, on one line, without Markdown."""
        if row.ext != "txt":
            return self._page.clean(row.label)
        text = _FENCED.sub(" … ", display.decode(scope.snapshot.bodies.body(row)[:_HEAD]))
        text = _LINKED.sub(r"\1", _MARKS.sub("", text))
        return self._page.clean(display.one_line(caption.plain(display.one_line(text, 2 * _CLOSING)), _CLOSING))

    def _place_of(self, path: str, *, deleted: bool) -> int:
        """The number of a changed file; adds it if it is new."""
        file = self._files.setdefault(path, _File(path, len(self._files)))
        file.deleted = deleted
        return file.place


@dataclass(slots=True)
class _File:
    """A changed file; `diff` is the number of its text, -1 if no edit can be read."""

    path: str
    place: int
    turns: list[int] = field(default_factory=list)
    plus: int = 0
    minus: int = 0
    diff: int = -1
    deleted: bool = False


class _Deeds:
    """What the calls of a turn did. `commands` maps each line to the endings of its runs."""

    def __init__(self, place_of: Callable[..., int], scope: ScopeHistory) -> None:
        self._place_of, self._scope = place_of, scope
        self.files: dict[int, tuple[int, int]] = {}
        self.commands: dict[str, list[str]] = {}
        self.commits: list[str] = []
        self.agents: list[str] = []
        self.reads = self.searches = self.failures = 0
        self.others: Counter[str] = Counter()
        self.tasks = ""

    def take(self, row: Row, detail: CallDetail) -> None:
        """Adds a call."""
        ending = self._scope.endings.get(row.id, "")
        self.failures += bool(ending)
        acts = [fact.act for fact in detail.facts]
        if "ran" in acts and "committed" not in acts:
            self.commands.setdefault(detail.line, []).append(ending)
        elif set(acts) <= _READS | {"searched"}:
            self.searches += "searched" in acts
            self.reads += "searched" not in acts
        for fact in detail.facts:
            self._fact(fact, row, ending)

    def _fact(self, fact: Fact, row: Row, ending: str) -> None:
        match fact.act:
            case "edited" | "wrote" | "deleted" if not ending and _is_file(fact.object, self._scope.folder):
                path = path_of(fact.object, self._scope.folder)
                plus, minus = _numbers(fact.detail)
                place = self._place_of(path, deleted=fact.act == "deleted")
                before = self.files.get(place, (0, 0))
                self.files[place] = before[0] + plus, before[1] + minus
            case "committed" if not ending:
                self.commits.append(fact.object)
            case "delegated" | "planned":
                self.agents.append(fact.object) if fact.act == "delegated" else self.others.update(["plan"])
            case "todo":
                self.tasks = " ".join(filter(None, (fact.detail, fact.object)))
            case "called":
                self.others[row.tool] += 1


def _is_file(path: str, folder: str) -> bool:
    """Whether a path is a file that counts as work, and no shell pattern."""
    return is_work(path, folder) and not _PATTERN.search(path)


def _numbers(detail: str) -> tuple[int, int]:
    """The added and removed lines in a fact's detail, such as `+3 −1`."""
    match = _COUNTS.fullmatch(detail)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def place_at(places: Places, number: int) -> data.Place:
    """The place of a text by its number, -1 for none."""
    return -1 if number < 0 else places[number] or -1
