"""The history of a session, put together once: what was sent with each call, and what became of each block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ctxvc.report.marks import marks, prefix_break
from ctxvc.report.prompts import Pieces, Place, Prompt, splices, text_of, tokens_of
from ctxvc.report.texts import TextPool
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import PROMPT, Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices

#: Bodies that are kept: a block is shown, captioned and put on the page one after the other.
_BODIES = 512
#: Bytes of an image on the page, and of all of them.
_PICTURE, _PICTURES = 200_000, 500_000
#: Columns of a label.
_LABEL = 120
#: The folder of a commit that has the system prompt and the tools.
_REQUEST = "request"
#: Takes the secrets out of a text.
Clean = Callable[[str], str]


@dataclass(slots=True)
class SentCall:
    """What was sent with a call: tokens as we count, of which `shared` begin the prompt before too. `entry` is the
    commit with its reply, which has so many tokens; `meta` is the scope's there.
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
    """A scope as it stands at its newest commit, and its calls so far: their numbers, and what was sent.

    `texts` are the blocks' texts, by their numbers in the pool, `labels` what the blocks are, in a few words; `details`
    are the calls for people, `endings` how those ended that did not end well, `pictures` images: block, media type and
    the number of its bytes. Blocks up to number `inherited` are those of the scope that it left.
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
        """The folder that it works in, where the recording names it."""
        return caption.folder_of(self.snapshot.ledger)


class History:
    """The history of what some commits reach; of a `live` session also what is in no commit yet. Raises: Damaged."""

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
        """The number of a text in the pool, without its secrets; `body` itself is kept where that is the same."""
        data = display.encode(self.clean(text))
        return self.pool.add(body if data == body else data)

    def _news(self, scope: ScopeHistory, call: Call, number: int) -> None:
        scope.lanes.take(number, call.fresh, call.groups, call.ledger)
        self._take_texts(scope, [row for row, _ in call.fresh if row.id not in scope.texts])
        self.marks += marks(call.changes, number, self.clean)

    def _take_texts(self, scope: ScopeHistory, rows: Sequence[Row]) -> None:
        """The texts and labels of new blocks, while their bodies are at hand."""
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
        """A call for people. What it did to files is put together with what others did, if it is its scope's own."""
        edits = changes(body, row.ext)
        if row.number > scope.inherited and row.id not in scope.failed:
            for change in edits:
                if change.path and not (
                    change.scripted and change.kind == "replace"
                ):  # a program may not have found it
                    self.edits.setdefault(path_of(change.path, scope.folder), NetDiff()).add(change)
        call_parts = parts(row.tool, body, row.ext, edits, scope.folder)
        return CallDetail(
            facts.facts(row.tool, body, row.ext),
            caption.of_call(row.tool, body, row.ext, scope.folder).object,
            tuple((part, title, self.add(text) if text else -1) for part, title, text in call_parts),
        )

    def _take_pictures(self, scope: ScopeHistory, row: Row, body: bytes) -> None:
        """The images of a block, as long as there is room."""
        images = [(row.ext, body)] if row.kind == "image" else []
        images += [(file.rpartition(".")[2], scope.snapshot.bodies.file(row, file)) for file in row.files]
        for ext, image in images:
            if ext in MEDIA and len(image) <= min(_PICTURE, self._picture_room):
                self._picture_room -= len(image)
                scope.pictures.append((row.id, MEDIA[ext], self.pool.add(image)))

    def _add(self, scope: ScopeHistory, call: Call, change: Change, before: Sequence[int]) -> list[int]:
        """Adds a call whose reply a change has; returns its prompt, for the next."""
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
            self.marks.append(prefix_break(call.changes, number, total - sent.shared, self.clean))
        follows = earlier is not None and before is earlier.pieces
        self.deltas.append(splices(before, prompt.pieces, prompt.shared if follows else 0))
        scope.numbers.append(number)
        scope.sent.append(sent)
        scope.newest = prompt  # the ones before it are not kept: they would take the most memory
        self.order.append((scope, sent))
        return prompt.pieces


class _Overheads:
    """The tokens of system prompt and tools, each pair of them counted once."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter
        self._known: dict[str, int] = {}

    def of(self, commit: str, newest: Snapshot) -> int:
        """Those of a commit; of what is in none yet those of the `newest` moment of its scope."""
        if not commit:
            return self._meter.overhead(newest)
        tree = self._store.reader.tree(commit)
        requested = str(tree[_REQUEST].id) if _REQUEST in tree else ""
        if requested not in self._known:
            system, tools = self._store.reader.system_and_tools(commit)
            self._known[requested] = self._meter.overhead(msgspec.structs.replace(newest, system=system, tools=tools))
        return self._known[requested]


def _sound(clean: Clean) -> Clean:
    """What cleans a text, and makes it one that JSON can hold: a lone surrogate it cannot."""

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
    """The number of the last block that a scope has of the one that it left; 0 for none."""
    parents = line.entries[0].parents
    last = store.reader.ledger(parents[0]).last() if line.parent and parents else None
    return last.number if last else 0


def _current(snapshot: Snapshot) -> Bodies:
    """The bodies of the rows of any time: where one lies is known of its row as it is now. The last few are kept."""
    rows, bodies = snapshot.ledger.by_id(), snapshot.bodies

    @lru_cache(_BODIES)
    def body(block: str) -> bytes:
        return bodies.body(rows[block])

    return Bodies(lambda row: body(row.id), lambda row, suffix: bodies.file(rows[row.id], suffix))
