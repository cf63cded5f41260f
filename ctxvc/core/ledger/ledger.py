"""The ledger: what exists in a scope, in order, and how each piece stands. A value; every change makes a new one."""

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

#: How many block numbers share one segment of the ledger and one folder of bodies.
SEGMENT = 64
#: The newest rules of rendering (`Meta.render`).
RENDER = 2
T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The ledger's record of a block. The order of the fields is the order of the keys on disk.

    `msg` is the message the block came in, `parent` the block it answers (a result its call, anything else the block
    that opened its turn), `bytes` and `sha256` those of the body. `stub` is written once, when the block leaves the
    prompt; `tag` once, when a result is first to be sent by us (`core.prompt.tag`). `extra` is the rest of the content
    block as received.
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
        """`B17@3fa9c1`: the address with the checksum's first six digits."""
        return f"{self.id}@{self.sha256[:6]}"

    @property
    def present(self) -> bool:
        """Whether the body stands in the prompt, whole or in part."""
        return self.state in PRESENT


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks and groups that left together under one stub.

    `summary` names the blocks that stand in the stub's place where a host or a model wrote one; `before` is the member
    of the ledger that they stand before, empty for their own place.
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
    """The last numbers given out: `block` and `group` in the session, the others in this scope."""

    block: int = 0
    group: int = 0
    msg: int = 0
    step: int = 0
    turn: int = 0


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording a scope was imported from, and how far.

    `offset` is in bytes of the unpacked file; `units` counts the commits made of it, over all scopes. `finals` are the
    offsets at which an open step was committed as it was, so that a longer file read anew gives the same units.
    `missing` says what the model saw and the recording lacks.
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


#: Where the window of a recorded session comes from: the number in the recording itself, the model's name, a command
#: in it that set the model, a count or a compaction that fits no other window, the host's settings or table of models.
WindowSource = Literal["host", "name", "command", "count", "compaction", "settings", "models"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The window of a recorded session in tokens, and where that number comes from; 0 if the recording has none.

    `compacts` is the number of tokens at which its host compacts by itself; 0 if it is not known.
    """

    tokens: int = 0
    by: WindowSource | Literal[""] = ""
    compacts: int = 0


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`ctxvc.json`: what a scope knows of itself.

    `budget` is the window and `reserve` what of it is kept for the reply, in tokens (0: not set). `window` is what the
    model takes (0: not known), `window_by` where a recording has that from (empty: a provider or a person gave it), and
    `compacts` where the recorded host compacts by itself (0: not known). `ladder` are thresholds that differ from the
    usual ones. `calibration` is (a, b) in thousandths and tokens. The last of `cuts` is the number of the newest block
    before the newest cut: thinking and dashboards up to it have left for good.
    `refused` counts the calls that overflow mode has refused, plus one, while it lasts. `policy` is the policy that the
    session runs under, with its knobs, as `--policy` takes it. `asked` is the number of the newest block when a policy
    last asked a model what should leave. `render` is the version of the rules by which a prompt is made of the scope
    (`RENDER`); it never changes but with a cut.
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
    """The segment that holds block `number`."""
    return number // SEGMENT


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of a scope in the order of their numbers, its groups, and what it knows of itself."""

    meta: Meta
    segments: Segments = field(default_factory=Segments)
    groups: Mapping[str, Group] = field(default_factory=dict)
    #: The results of `derived`: (rule, ids of its arguments) → (the arguments, the result).
    _derived: dict[tuple[Any, ...], tuple[Any, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    #: rule → its cache (`cache_of`), shared by this ledger and all derived from it.
    _caches: dict[Any, dict[Any, Any]] = field(default_factory=dict, repr=False, compare=False)

    def rows(self) -> Iterator[Row]:
        return chain.from_iterable(self.segments.values())

    def derived(self, rule: Callable[..., T], *arguments: object) -> T:
        """`rule(ledger, *arguments)`, computed once, as a ledger never changes. Callers must not change the result.

        `rule` is a pure function; `arguments` are compared by identity.
        """
        key = (rule, *map(id, arguments))
        if key not in self._derived:
            # The arguments are held here, so that no other value gets their ids.
            self._derived[key] = arguments, rule(self, *arguments)
        result: T = self._derived[key][1]
        return result

    def by_segment(self, rule: Callable[[tuple[Row, ...]], T]) -> Iterator[T]:
        """`rule` of the rows of each segment, in order; cached for segments that an earlier ledger has too."""
        cache: dict[int, tuple[Mapping[int, tuple[Row, ...]], dict[int, T]]] = self.cache_of(rule)
        results: list[Iterable[T]] = []
        for number, page in self.segments.pages():
            earlier, results_of_page = cache.get(number, ({}, {}))
            if earlier is not page:  # then it is compared segment by segment
                results_of_page = {
                    segment: results_of_page[segment] if earlier.get(segment) is rows else rule(rows)
                    for segment, rows in page.items()
                }
                cache[number] = page, results_of_page
            results.append(results_of_page.values())
        return chain.from_iterable(results)

    def by_id(self) -> Mapping[str, Row]:
        """A block → its row, in order."""
        return self.derived(_by_id)

    def by_place(self) -> Mapping[str, int]:
        """A block → how many come before it."""
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
        at = number - rows[0].number if rows else 0  # where no block between is another scope's
        if not (0 <= at < len(rows) and rows[at].number == number):
            at = bisect_left(rows, number, key=_number)
        return rows[at] if at < len(rows) and rows[at].number == number else None

    def __getitem__(self, block_id: str) -> Row:
        row = self.get(block_id)
        if row is None:
            raise KeyError(block_id)
        return row

    def last(self) -> Row | None:
        """The newest row; None if there is none."""
        return next(self.backwards(), None)

    def backwards(self) -> Iterator[Row]:
        """The rows, newest first."""
        for segment in reversed(self.segments):
            yield from reversed(self.segments[segment])

    def since(self, earlier: Ledger | None) -> Iterator[Row]:
        """The rows of all segments that are not in an `earlier` ledger as they are here."""
        for segment in self.segments.changed_since(earlier.segments if earlier else NO_SEGMENTS):
            yield from self.segments[segment]

    def with_rows(self, rows: Iterable[Row]) -> Ledger:
        """The ledger with each of `rows` added, or in the place of the row that has its id."""
        segments: dict[int, tuple[Row, ...]] = {}
        replaced: dict[int, dict[str, Row]] = {}  # of the segments in which a row is replaced
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
        """The ledger with each of `groups` added or replaced; a group without members goes."""
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
        """The ledger with what is given; as `dataclasses.replace`, in a quarter of its time."""
        return Ledger(
            meta=self.meta if meta is None else meta,
            segments=self.segments if segments is None else segments,
            groups=self.groups if groups is None else groups,
            _caches=self._caches,
        )


class _ByBlock(NamedTuple):
    """What is known of each block, in order, and the segments that it is known of."""

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
    """The blocks of a group, those of the groups in it included, in the order of the members."""
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
    """The group that holds all others around `name`, itself where none does; empty if there is no such group."""
    seen: set[str] = set()
    while name in groups and groups[name].group in groups and name not in seen:
        seen.add(name)
        name = groups[name].group
    return name if name in groups else ""


def digest(rows: Iterable[Row]) -> str:
    """The checksum of a group: over those of its blocks, in order."""
    return hashlib.sha256("".join(row.sha256 for row in rows).encode()).hexdigest()
