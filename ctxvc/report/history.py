"""The history of a session: what was sent with each call, what became of each block, what happened between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import caption, facts
from ctxvc.core.ledger.ledger import Meta, Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.inspection.captions import labels_of
from ctxvc.inspection.edits import changes
from ctxvc.inspection.net_diff import NetDiff
from ctxvc.inspection.window_percent import OVERHEAD
from ctxvc.report import data
from ctxvc.report.call_parts import MEDIA, CallDetail, parts, path_of
from ctxvc.report.lanes import PRESENT, Lanes
from ctxvc.report.lines import Call, Change, Line, add_waiting, calls, lines
from ctxvc.report.prompts import Pieces, Place, Prompt, splices, text_of, tokens_of
from ctxvc.report.texts import TextPool
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import PROMPT, Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices

#: The number of bodies kept in memory, since a block is rendered, captioned and put on the page in turn.
_BODIES = 512
#: The most bytes of an image on the page, and of all images.
_PICTURE, _PICTURES = 200_000, 500_000
#: Columns of a label.
_LABEL = 120
#: The folder of a commit with the system prompt and the tools.
_REQUEST = "request"
#: Removes the secrets from a text.
Clean = Callable[[str], str]
#: An operation → the kind of its mark, if it has one.
_KINDS: Mapping[str, data.MarkKind] = {
    "compact": "compaction",
    "recover": "recover",
    **dict.fromkeys(
        ("archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise", "plan", "edit"), "plan"
    ),
    **dict.fromkeys(("undo", "redo"), "undo"),
    **dict.fromkeys(("scope", "goto"), "scope"),
    "note": "note",
}
#: Operations that remove nothing from the prompt.
_ADDING = frozenset({"step", "note", "settings", "tag", "ask", "fault", "link", "pin", "unpin"})
#: Columns of a mark's label.
_MARK = 160


@dataclass(slots=True)
class SentCall:
    """What was sent with a call, in tokens as we count them; `shared` of them begin the prompt before, too.

    `entry` is the commit with its reply, which has `reply` tokens; `meta` is the scope's at that commit.
    """

    entry: Entry
    meta: Meta
    step: int
    turn: int
    exact: bool
    tokens: dict[str, int]
    total: int
    reply: int
    unmanaged: int
    shared: int
    broke: bool
    reduced: bool


@dataclass(slots=True)
class ScopeHistory:
    """A scope at its newest commit, and its calls so far: their numbers, and what was sent.

    By block: `texts` has the numbers of texts in the pool, `labels` captions, `details` calls for people, and `endings`
    how failed calls ended. `pictures` are (block, media type, number in the pool). Blocks up to number `inherited` are
    its parent's.
    """

    line: Line
    snapshot: Snapshot
    prices: Prices
    rows: Sequence[Row]
    place: Mapping[str, int]
    inherited: int
    failed: frozenset[str]
    summaries: frozenset[str]
    lanes: Lanes
    texts: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    details: dict[str, CallDetail] = field(default_factory=dict)
    endings: dict[str, str] = field(default_factory=dict)
    pictures: list[tuple[str, str, int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sent: list[SentCall] = field(default_factory=list)
    newest: Prompt | None = None

    @property
    def model(self) -> str:
        return self.snapshot.ledger.meta.model

    @property
    def folder(self) -> str:
        """The working folder, if the recording names it."""
        return caption.folder_of(self.snapshot.ledger)


class History:
    """The history of the commits that `tips` reach, and of a `live` session's uncommitted changes. Raises: Damaged."""

    def __init__(
        self, store: Store, tips: Iterable[str], meter: Meter, clean: Clean, live: StoredSession | None = None
    ) -> None:
        own, order = lines(store, tips)
        for line in own:
            if live and line.tip == live.tip(line.name):
                add_waiting(line, live)
        self.clean = _sound(clean)
        self.pool = TextPool()
        self.order: list[tuple[ScopeHistory, SentCall]] = []
        self.deltas: list[list[tuple[int, int, list[int]]]] = []
        self.marks: list[data.Mark] = []
        self.scopes: list[ScopeHistory] = []
        self.edits: dict[str, NetDiff] = {}  # by the names of files
        self._picture_room = _PICTURES
        blocks = 0
        for line in own:
            self.scopes.append(_scope_history(store, line, meter, blocks))
            blocks += len(self.scopes[-1].rows)
        self.pieces = Pieces(self.pool, self.clean)
        self._overheads = _Overheads(store, meter)
        newest = [scope.snapshot.ledger.by_id() for scope in self.scopes]
        before: list[int] = []
        for call in calls(store, own, order, newest):
            scope = self.scopes[call.line.number]
            if call.change:
                before = self._add(scope, call, call.change, before)
            else:
                self._news(scope, call, len(self.order))

    def add(self, text: str, body: bytes = b"") -> int:
        """Adds a text without its secrets to the pool; returns its number. `body` is kept instead if it is equal."""
        data = display.encode(self.clean(text))
        return self.pool.add(body if data == body else data)

    def _news(self, scope: ScopeHistory, call: Call, number: int) -> None:
        scope.lanes.take(number, call.fresh, call.groups, call.ledger)
        self._take_texts(scope, [row for row, _ in call.fresh if row.id not in scope.texts])
        self.marks += _marks(call.changes, number, self.clean)

    def _take_texts(self, scope: ScopeHistory, rows: Sequence[Row]) -> None:
        """Adds the texts and labels of new blocks."""
        for row in rows:
            body = scope.snapshot.bodies.body(row)
            scope.texts[row.id] = self.add(text_of(body, row.ext, row.extra), body)
            if row.kind == "tool_use":
                scope.details[row.id] = self._detail(scope, row, body)
            elif row.kind == "tool_result" and (call := scope.details.get(row.parent)):
                scope.endings[row.parent] = caption.ending(row, body if call.ran else b"")
            self._take_pictures(scope, row, body)
        labels = labels_of(scope.snapshot, [row.id for row in rows])
        for row in rows:
            scope.labels[row.id] = self.clean(
                display.fitted(display.one_line(labels.get(row.id, row.label), 4 * _LABEL), _LABEL)
            )

    def _detail(self, scope: ScopeHistory, row: Row, body: bytes) -> CallDetail:
        """A call for people; adds its edits to those of other calls, if it is of its own scope."""
        edits = changes(body, row.ext)
        if row.number > scope.inherited and row.id not in scope.failed:
            for change in edits:
                # A script may not have found the text that it replaces.
                if change.path and not (change.scripted and change.kind == "replace"):
                    self.edits.setdefault(path_of(change.path, scope.folder), NetDiff()).add(change)
        call_parts = parts(row.tool, body, row.ext, edits, scope.folder)
        return CallDetail(
            facts.facts(row.tool, body, row.ext),
            caption.of_call(row.tool, body, row.ext, scope.folder).object,
            tuple((part, title, self.add(text) if text else -1) for part, title, text in call_parts),
        )

    def _take_pictures(self, scope: ScopeHistory, row: Row, body: bytes) -> None:
        """Adds the images of a block, as long as there is room."""
        images = [(row.ext, body)] if row.kind == "image" else []
        images += [(file.rpartition(".")[2], scope.snapshot.bodies.file(row, file)) for file in row.files]
        for ext, image in images:
            if ext in MEDIA and len(image) <= min(_PICTURE, self._picture_room):
                self._picture_room -= len(image)
                scope.pictures.append((row.id, MEDIA[ext], self.pool.add(image)))

    def _add(self, scope: ScopeHistory, call: Call, change: Change, before: Sequence[int]) -> list[int]:
        """Adds a call, whose reply is in `change`; returns its prompt, for the next call."""
        number = len(self.order)
        self._news(scope, call, number)
        earlier = scope.newest
        place = Place(scope.line.number, scope.snapshot.bodies, scope.prices, scope.place)
        prompt = self.pieces.prompt(call.ledger, place, earlier)
        overhead = self._overheads.of(change.entry.commit, scope.snapshot)
        tokens = tokens_of(prompt, scope.prices)
        tokens[OVERHEAD] = tokens.get(OVERHEAD, 0) + overhead
        total = sum(tokens.values())
        aside = sum(prompt.tokens.get(part, 0) for part in ("stubs", "dashboards"))
        aside += sum(
            scope.prices.body(lane.row)
            for name in scope.summaries
            if (lane := scope.lanes.lanes.get(name)) and lane.state in PRESENT
        )
        reduced = scope.lanes.missing > 0
        sent = SentCall(
            entry=change.entry,
            meta=change.meta,
            step=change.meta.counters.step,
            turn=change.meta.counters.turn,
            exact=change.meta.source is None or PROMPT in change.entry.trailers,
            tokens=tokens,
            total=total,
            reply=sum(map(scope.prices.body, call.reply)),
            unmanaged=total - aside + scope.lanes.missing if reduced else total,
            shared=total - sum(self.pieces.tokens[piece] for piece in prompt.pieces[prompt.shared :]),
            broke=earlier is not None and prompt.shared < prompt.before,
            reduced=reduced,
        )
        if sent.broke:
            self.marks.append(_prefix_break(call.changes, number, total - sent.shared, self.clean))
        follows = earlier is not None and before is earlier.pieces
        self.deltas.append(splices(before, prompt.pieces, prompt.shared if follows else 0))
        scope.numbers.append(number)
        scope.sent.append(sent)
        scope.newest = prompt  # only the newest, since prompts take the most memory
        self.order.append((scope, sent))
        return prompt.pieces


class _Overheads:
    """The tokens of system prompt and tools; each pair is counted once."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter
        self._known: dict[str, int] = {}

    def of(self, commit: str, newest: Snapshot) -> int:
        """The tokens at a commit; with an empty one, those of the `newest` moment of its scope."""
        if not commit:
            return self._meter.overhead(newest)
        tree = self._store.reader.tree(commit)
        requested = str(tree[_REQUEST].id) if _REQUEST in tree else ""
        if requested not in self._known:
            system, tools = self._store.reader.system_and_tools(commit)
            self._known[requested] = self._meter.overhead(msgspec.structs.replace(newest, system=system, tools=tools))
        return self._known[requested]


def _sound(clean: Clean) -> Clean:
    """`clean`, followed by a replacement of lone surrogates, which JSON cannot encode."""

    def sound(text: str) -> str:
        text = clean(text)
        return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    return sound


def _scope_history(store: Store, line: Line, meter: Meter, blocks: int) -> ScopeHistory:
    snapshot = line.now or revision.at(store, line.tip)
    snapshot = msgspec.structs.replace(snapshot, bodies=_current(snapshot))
    prices = Prices(meter, snapshot.bodies, snapshot.ledger.meta.model)
    rows = tuple(snapshot.ledger.rows())
    prices.load(rows)
    return ScopeHistory(
        line=line,
        snapshot=snapshot,
        prices=prices,
        rows=rows,
        place={row.id: blocks + place for place, row in enumerate(rows)},
        inherited=_inherited(store, line),
        failed=frozenset(row.parent for row in rows if row.kind == "tool_result" and row.error),
        summaries=frozenset(chain.from_iterable(group.summary for group in snapshot.ledger.groups.values())),
        lanes=Lanes(prices),
    )


def _inherited(store: Store, line: Line) -> int:
    """The number of the last block that a scope has from its parent; 0 for none."""
    parents = line.entries[0].parents
    last = store.reader.ledger(parents[0]).last() if line.parent and parents else None
    return last.number if last else 0


def _current(snapshot: Snapshot) -> Bodies:
    """The bodies of rows of any time, found by the newest rows; the last few are kept in memory."""
    rows, bodies = snapshot.ledger.by_id(), snapshot.bodies

    @lru_cache(_BODIES)
    def body(block: str) -> bytes:
        return bodies.body(rows[block])

    return Bodies(lambda row: body(row.id), lambda row, suffix: bodies.file(rows[row.id], suffix))


# --- what happened between two calls


def _marks(changes: Iterable[Change], call: int, clean: Clean) -> Iterator[data.Mark]:
    """The marks of the changes that the call `call` is the first to see."""
    for change in changes:
        if kind := _KINDS.get(change.op):
            yield _mark(kind, change, call, display.one_line(change.entry.subject, _MARK), clean)


def _prefix_break(changes: Sequence[Change], call: int, tokens: int, clean: Clean) -> data.Mark:
    """The mark of a call whose prompt does not begin with all of the one before: `tokens` had to be sent anew.

    It names the newest change that may be the cause.
    """
    causes = [change for change in changes if change.op not in _ADDING]
    cause = causes[-1] if causes else None
    label = f"{display.human_tokens(tokens)} tokens behind the break"
    if cause is None:
        return data.Mark(call=call, kind="break", label=label, commit="", actor="")
    return _mark("break", cause, call, f"{label}: {display.one_line(cause.entry.subject, _MARK)}", clean)


def _mark(kind: data.MarkKind, change: Change, call: int, label: str, clean: Clean) -> data.Mark:
    return data.Mark(call=call, kind=kind, label=clean(label), commit=change.entry.commit, actor=change.actor)
