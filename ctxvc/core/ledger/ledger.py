"""The ledger: what exists in a scope, in order, and its state. A value: every change makes a new one."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ctxvc.core.ledger.block import PRESENT, Kind, Origin, Role, State, block_number
from ctxvc.core.ledger.segments import NO_SEGMENTS, Segments

#: How many block numbers share a segment of the ledger and a folder of bodies.
SEGMENT = 64
#: The newest rules of rendering (`Meta.render`).
RENDER = 2
T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The ledger's record of a block. The order of the fields is the order of the keys on disk.

    `msg` is the message that the block came in, `parent` the block that it answers (a result its call, anything else
    the block that opened its turn), `bytes` and `sha256` those of the body. `stub` is written once, when the block
    leaves the prompt; `tag` once, when we are first to send a result (`core.prompt.tag`). `extra` is the rest of the
    content block as received.
    """

    id: str
    kind: Kind
    role: Role
    origin: Origin
    msg: int
    step: int
    turn: int
    call: str = ""
    tool: str = ""
    error: bool = False
    ext: str = "txt"
    files: tuple[str, ...] = ()
    bytes: int
    sha256: str
    parent: str = ""
    state: State = "visible"
    level: int = 0
    group: str = ""
    stub: str = ""
    tag: str = ""
    label: str = ""
    reads: int = 0
    removed_by: str = ""
    extra: dict[str, Any] = {}

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def handle(self) -> str:
        """`B17@3fa9c1`: the address with the first six digits of the checksum."""
        return f"{self.id}@{self.sha256[:6]}"

    @property
    def present(self) -> bool:
        """Whether the body is in the prompt, whole or in part."""
        return self.state in PRESENT


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks and groups that left together under one stub.

    `summary` names the blocks that replace the stub if a host or a model wrote a summary; `before` is the member of the
    ledger that they precede, empty if they are in their own place.
    """

    id: str
    members: tuple[str, ...]
    level: int = 1
    group: str = ""
    stub: str = ""
    label: str = ""
    summary: tuple[str, ...] = ()
    before: str = ""
    removed_by: str = ""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The last numbers assigned: `block` and `group` in the session, the others in this scope."""

    block: int = 0
    group: int = 0
    msg: int = 0
    step: int = 0
    turn: int = 0


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording that a scope was imported from, and how far.

    `offset` is in bytes of the unpacked file; `units` counts the commits made from it, over all scopes. `finals` are
    the offsets at which an open step was committed incomplete, so that reading a longer file anew gives the same units.
    `missing` lists what the model saw and the recording lacks.
    """

    format: str
    id: str
    offset: int = 0
    units: int = 0
    finals: tuple[int, ...] = ()
    title: str = ""
    agent: str = ""
    cwd: str = ""
    branch: str = ""
    started: str = ""
    missing: tuple[str, ...] = ()


#: The source of a recorded session's window: the number in the recording itself, the model's name, a command in it that
#: set the model, a count or a compaction that fits no other window, the host's settings, or its table of models.
WindowSource = Literal["host", "name", "command", "count", "compaction", "settings", "models"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The window of a recorded session in tokens, and the source of that number; 0 if the recording has none.

    `compacts` is the number of tokens at which its host compacts automatically; 0 if unknown.
    """

    tokens: int = 0
    by: WindowSource | Literal[""] = ""
    compacts: int = 0


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`ctxvc.json`: what a scope knows about itself.

    `budget` is the window and `reserve` the part of it kept for the reply, in tokens (0: not set). `window` is what the
    model accepts (0: unknown), `window_by` where a recording has that from (empty: from a provider or a person), and
    `compacts` where the recorded host compacts automatically (0: unknown). `ladder` contains the thresholds that differ
    from the defaults. `calibration` is (a, b) in thousandths and tokens. The last of `cuts` is the number of the newest
    block before the newest cut: thinking and dashboards up to it have left permanently.

    `refused` is 1 plus the number of calls that overflow mode has refused, 0 outside it. `policy` is the session's
    policy with its knobs, as `--policy` takes it. `asked` is the number of the newest block when a policy last asked a
    model what should leave. `render` is the version of the rules by which the scope becomes a prompt (`RENDER`); it
    changes only with a cut.
    """

    format: int
    session: str
    scope: str
    parent: str = ""
    counters: Counters = Counters()
    model: str = ""
    budget: int = 0
    reserve: int = 0
    window: int = 0
    window_by: str = ""
    compacts: int = 0
    ladder: dict[str, float] = {}
    tokenizer: str = "o200k_base"
    calibration: tuple[int, int] = (1000, 0)
    cuts: tuple[int, ...] = ()
    refused: int = 0
    policy: str = ""
    asked: int = 0
    render: int = 1
    source: Source | None = None


def segment_of(number: int) -> int:
    """The segment of block `number`."""
    return number // SEGMENT


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of a scope in the order of their numbers, its groups, and its metadata."""

    meta: Meta
    segments: Segments = field(default_factory=Segments)
    groups: Mapping[str, Group] = field(default_factory=dict)
    #: The results of `derived`: (rule, ids of its arguments) → (the arguments, the result).
    _derived: dict[tuple[Any, ...], tuple[Any, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    #: Rule → its cache (`cache_of`), shared by this ledger and all derived from it.
    _caches: dict[Any, dict[Any, Any]] = field(default_factory=dict, repr=False, compare=False)

    def rows(self) -> Iterator[Row]:
        return chain.from_iterable(self.segments.values())

    def derived(self, rule: Callable[..., T], *arguments: object) -> T:
        """`rule(ledger, *arguments)`, computed once, as a ledger never changes. Callers must not change the result.

        `rule` is a pure function; `arguments` are compared by identity.
        """
        key = (rule, *map(id, arguments))
        if key not in self._derived:
            # Keeping the arguments alive prevents other values from getting their ids.
            self._derived[key] = arguments, rule(self, *arguments)
        result: T = self._derived[key][1]
        return result

    def by_segment(self, rule: Callable[[tuple[Row, ...]], T]) -> Iterator[T]:
        """`rule` applied to each segment's rows, in order; cached for segments shared with an earlier ledger."""
        cache: dict[int, tuple[Mapping[int, tuple[Row, ...]], dict[int, T]]] = self.cache_of(rule)
        results: list[Iterable[T]] = []
        for number, page in self.segments.pages():
            earlier, results_of_page = cache.get(number, ({}, {}))
            if earlier is not page:  # a changed page is compared segment by segment
                results_of_page = {
                    segment: results_of_page[segment] if earlier.get(segment) is rows else rule(rows)
                    for segment, rows in page.items()
                }
                cache[number] = page, results_of_page
            results.append(results_of_page.values())
        return chain.from_iterable(results)

    def by_id(self) -> Mapping[str, Row]:
        """Block → its row, in order."""
        return self.derived(_by_id)

    def by_place(self) -> Mapping[str, int]:
        """Block → the number of blocks before it."""
        return self.derived(_by_place)

    def of_step(self, step: int) -> list[Row]:
        """The rows of a step, in order."""
        inside = zip(self.by_segment(_steps), self.segments.values(), strict=True)
        return [row for steps, rows in inside if step in steps for row in rows if row.step == step]

    def cache_of(self, rule: Callable[..., Any]) -> dict[Any, Any]:
        """A cache for `rule`, shared by this ledger and all derived from it; callers check that an entry applies."""
        return self._caches.setdefault(rule, {})

    def __len__(self) -> int:
        return self.segments.rows

    def get(self, block_id: str) -> Row | None:
        """The row of `block_id`, or None. Raises: ValueError if that is no block's address."""
        number = block_number(block_id)
        rows = self.segments.get(segment_of(number))
        at = number - rows[0].number if rows else 0  # exact unless a block in between belongs to another scope
        if not (0 <= at < len(rows) and rows[at].number == number):
            at = bisect_left(rows, number, key=_number)
        return rows[at] if at < len(rows) and rows[at].number == number else None

    def __getitem__(self, block_id: str) -> Row:
        row = self.get(block_id)
        if row is None:
            raise KeyError(block_id)
        return row

    def last(self) -> Row | None:
        """The newest row, or None."""
        return next(self.backwards(), None)

    def backwards(self) -> Iterator[Row]:
        """The rows, newest first."""
        for segment in reversed(self.segments):
            yield from reversed(self.segments[segment])

    def since(self, earlier: Ledger | None) -> Iterator[Row]:
        """The rows of all segments that differ from those of an `earlier` ledger."""
        for segment in self.segments.changed_since(earlier.segments if earlier else NO_SEGMENTS):
            yield from self.segments[segment]

    def with_rows(self, rows: Iterable[Row]) -> Ledger:
        """The ledger with each of `rows` added, or replacing the row with its id."""
        segments: dict[int, tuple[Row, ...]] = {}
        replaced: dict[int, dict[str, Row]] = {}  # segment → its rows by id, where a row is replaced
        for row in rows:
            number = row.number
            segment = segment_of(number)
            if segment in replaced:
                replaced[segment][row.id] = row
                continue
            old = segments.get(segment) or self.segments.get(segment)
            if not old or old[-1].number < number:
                segments[segment] = (*old, row)  # the common case: a new block at the end
            else:
                replaced[segment] = _ids(old) | {row.id: row}
        for segment, by_id in replaced.items():
            is_longer = len(by_id) > len(segments.get(segment) or self.segments.get(segment))
            segments[segment] = tuple(sorted(by_id.values(), key=_number) if is_longer else by_id.values())
        return self._with(segments=self.segments.updated(segments)) if segments or replaced else self

    def with_groups(self, groups: Iterable[Group]) -> Ledger:
        """The ledger with each of `groups` added or replaced; a group without members is removed."""
        changed_groups = dict(self.groups)
        for group in groups:
            if group.members:
                changed_groups[group.id] = group
            else:
                changed_groups.pop(group.id, None)
        return self._with(groups=changed_groups)

    def with_meta(self, meta: Meta) -> Ledger:
        return self._with(meta=meta)

    def _with(
        self, *, meta: Meta | None = None, segments: Segments | None = None, groups: Mapping[str, Group] | None = None
    ) -> Ledger:
        """The ledger with these parts replaced: `dataclasses.replace` in a quarter of the time."""
        return Ledger(
            meta=self.meta if meta is None else meta,
            segments=self.segments if segments is None else segments,
            groups=self.groups if groups is None else groups,
            _caches=self._caches,
        )


class _ByBlock(NamedTuple):
    """A value for each block, in order, and the segments that it was computed from."""

    segments: Segments
    of: dict[str, Any]


def _by_id(ledger: Ledger) -> dict[str, Row]:
    earlier, changed = _newest(ledger, _by_id)
    rows: dict[str, Row] = earlier.of.copy()
    for segment in changed:
        rows |= _ids(ledger.segments[segment])
    ledger.cache_of(_by_id)["newest"] = _ByBlock(ledger.segments, rows)
    return rows


def _by_place(ledger: Ledger) -> dict[str, int]:
    earlier, changed = _newest(ledger, _by_place)
    places: dict[str, int] = earlier.of.copy() if len(ledger) > earlier.segments.rows else earlier.of
    for segment in changed:
        for row in ledger.segments[segment]:
            places.setdefault(row.id, len(places))
    ledger.cache_of(_by_place)["newest"] = _ByBlock(ledger.segments, places)
    return places


def _newest(ledger: Ledger, rule: Callable[..., Any]) -> tuple[_ByBlock, list[int]]:
    """What `rule` made of an earlier ledger, if its blocks are the first ones here, and the segments that changed."""
    nothing = _ByBlock(NO_SEGMENTS, {})
    earlier: _ByBlock = ledger.cache_of(rule).get("newest", nothing)
    changed = ledger.segments.changed_since(earlier.segments)
    last = next(reversed(earlier.segments), -1)
    for segment in changed:
        before, now = ([row.id for row in of.get(segment)] for of in (earlier.segments, ledger.segments))
        if segment <= last and before != (now[: len(before)] if segment == last else now):
            return nothing, list(ledger.segments)
    if ledger.segments.removed_since(earlier.segments):
        return nothing, list(ledger.segments)
    return earlier, changed


def _ids(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.id: row for row in rows}


def _number(row: Row) -> int:
    return row.number


def _steps(rows: tuple[Row, ...]) -> frozenset[int]:
    return frozenset(row.step for row in rows)


def blocks_of(groups: Mapping[str, Group], name: str) -> list[str]:
    """The blocks of a group, including those of nested groups, in the order of the members."""
    blocks: list[str] = []
    seen = {name}
    pending = [iter(groups[name].members)] if name in groups else []
    while pending:
        member = next(pending[-1], "")
        if not member:
            pending.pop()
        elif member.startswith("B"):
            blocks.append(member)
        elif member in groups and member not in seen:
            seen.add(member)
            pending.append(iter(groups[member].members))
    return blocks


def outermost(groups: Mapping[str, Group], name: str) -> str:
    """The group that contains all others around `name`, or `name` if none does; empty if there is no such group."""
    seen: set[str] = set()
    while name in groups and groups[name].group in groups and name not in seen:
        seen.add(name)
        name = groups[name].group
    return name if name in groups else ""


def digest(rows: Iterable[Row]) -> str:
    """The checksum of a group, computed over those of its blocks, in order."""
    return hashlib.sha256("".join(row.sha256 for row in rows).encode()).hexdigest()
