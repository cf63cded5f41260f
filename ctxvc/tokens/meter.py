"""What the blocks of a prompt cost, in tokens. Each body is counted once per store: counts are cached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from ctxvc.core import display as text
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import RENDER, Ledger, Row, WindowSource
from ctxvc.core.prompt.outline import MASK_SHOWN, Bodies, Slot, outline, pieces, tag_of
from ctxvc.core.view.budget import DEFAULT_WINDOW, Budget, Ladder
from ctxvc.core.view.dashboard import Cost
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import count as tokens
from ctxvc.tokens import media, models

CACHE = "tokens.sqlite"


class _Source(msgspec.Struct, frozen=True):
    """Something to count: its digest, how to load it, and whether it is an image or a document."""

    digest: bytes
    load: tokens.Loader
    media: bool = False


class Meter:
    """Counts with one tokenizer and caches the counts in the store. No file stays open between two calls."""

    def __init__(
        self, store: Store | None, tokenizer: str = "o200k_base", progress: tokens.Progress | None = None
    ) -> None:
        """Without a store, counts are kept in memory only. `progress` is called for bodies that are not counted yet.

        Raises: BadName if there is no such tokenizer.
        """
        self._cache = tokens.CountCache(cache_file(store)) if store else None
        self._tokens = tokens.Tokens(tokens.tokenizer(tokenizer), cache_file(store) if store else None, progress)

    @property
    def estimated(self) -> bool:
        """Whether the numbers are only estimates."""
        return self._tokens.tokenizer.estimated

    def count(self, text: str) -> int:
        """The tokens of a text that is not a body."""
        return self._tokens.of_text(text)

    def costs(self, snapshot: Snapshot, blocks: Iterable[Row] | None = None) -> dict[str, Cost]:
        """The cost of all blocks, or of `rows`: of each body, and of what the prompt shows of it at that moment.

        A call counts its tool's name and its arguments, a result its text and the images beside it.
        """
        rows = snapshot.ledger.rows() if blocks is None else blocks
        bodies = {row.id: list(_sources(row, snapshot.bodies)) for row in rows}
        in_prompt: dict[str, list[_Source]] = {}
        for slot in outline(snapshot.ledger):
            if slot.row.id not in bodies:
                continue
            sources_in_place = bodies[slot.row.id] if slot.show == "body" else [_stand_in(slot, snapshot.bodies)]
            in_prompt.setdefault(slot.row.id, []).extend(sources_in_place)
            if tag := tag_of(slot):
                in_prompt[slot.row.id].append(_text_source(tag))
        counts = self._counts([*bodies.values(), *in_prompt.values()], snapshot.ledger.meta.model)
        return {
            block: Cost(
                body=sum(counts[source.digest] for source in sources),
                shown=sum(counts[source.digest] for source in in_prompt.get(block, ())),
            )
            for block, sources in bodies.items()
        }

    def bodies(self, blocks: Iterable[tuple[Row, Bodies]], model: str, *, fresh: bool = False) -> dict[str, int]:
        """block → the tokens of its body. Counts of `fresh` blocks are cached later (`save`)."""
        sources = {row.id: list(_sources(row, bodies)) for row, bodies in blocks}
        counts = self._counts(list(sources.values()), model, fresh=fresh)
        return {
            block: sum(counts[source.digest] for source in block_sources) for block, block_sources in sources.items()
        }

    def save(self) -> None:
        """Writes all counts to the store's cache."""
        self._tokens.save()

    def total(self, blocks: Iterable[tuple[Row, Bodies]], model: str) -> tuple[int, bool]:
        """The tokens of these bodies, and whether that is an estimate (bytes / 4) because some were never counted."""
        blocks = list(blocks)
        digests = [bytes.fromhex(row.sha256) for row, _ in blocks if not _is_media(row)]
        cached = self._cache.get_many(self._tokens.tokenizer.name, digests) if self._cache else {}
        if len(cached) < len(set(digests)):
            return sum(row.bytes for row, _ in blocks) // 4, True
        sources = [list(_sources(row, bodies)) for row, bodies in blocks]
        counts = self._counts(sources, model)
        return sum(counts[source.digest] for block_sources in sources for source in block_sources), self.estimated

    def overhead(self, snapshot: Snapshot) -> int:
        """The tokens of the system prompt and the tools together."""
        return sum(self.overheads(snapshot))

    def overheads(self, snapshot: Snapshot) -> tuple[int, int]:
        """The tokens of the system prompt and of the tools."""
        return self.frame(snapshot.system, snapshot.tools, snapshot.ledger.meta.model)

    def frame(self, system: Any, tools: Any, model: str) -> tuple[int, int]:
        """As `overheads`, for a system prompt and tools that may not be recorded yet."""
        texts = [system if isinstance(system, str) else _json(system), _json(tools)]
        sources = [_text_source(part) for part in texts]
        counts = self._counts([sources], model)
        system, tools = (
            counts[source.digest] if source_text else 0 for source, source_text in zip(sources, texts, strict=True)
        )
        return system, tools

    def _counts(self, sources: list[list[_Source]], model: str, *, fresh: bool = False) -> dict[bytes, int]:
        flat = [source for block_sources in sources for source in block_sources]
        plain = ((source.digest, source.load) for source in flat if not source.media)
        texts = self._tokens.of_bodies(plain, fresh=fresh)
        pictures = [(source.digest, source.load) for source in flat if source.media]
        return {**texts, **self._tokens.of_media(pictures, media.image_cap(model))} if pictures else texts


class Prices:
    """The prices of a scope's blocks (`core.plan.Price`). A block is read at most once."""

    def __init__(self, meter: Meter, bodies: Bodies, model: str = "") -> None:
        self._meter = meter
        self._bodies = bodies
        self._model = model
        self._known: dict[tuple[str, str], int] = {}
        self._masks: dict[tuple[str, str], int] = {}

    def reading(self, bodies: Bodies) -> Prices:
        """The same prices and counts, but blocks that are not counted yet are read from `bodies`."""
        prices = Prices(self._meter, bodies, self._model)
        prices._known, prices._masks = self._known, self._masks
        return prices

    def __eq__(self, prices: object) -> bool:
        """Whether the other prices have the same counts."""
        return self._known is prices._known if isinstance(prices, Prices) else NotImplemented

    def __hash__(self) -> int:
        return id(self._known)

    def load(self, rows: Iterable[Row], *, fresh: bool = False) -> None:
        """Counts these blocks together, with a single query of the cache, or none for `fresh` blocks."""
        new = [row for row in rows if (row.id, row.sha256) not in self._known]
        counts = self._meter.bodies([(row, self._bodies) for row in new], self._model, fresh=fresh) if new else {}
        self._known.update(((row.id, row.sha256), counts[row.id]) for row in new)

    def body(self, row: Row) -> int:
        key = (row.id, row.sha256)
        if key not in self._known:
            self.load([row])
        return self._known[key]

    def mask(self, row: Row) -> int:
        key = (row.id, row.sha256)
        if key not in self._masks:
            slot = Slot(row, "mask", row.role, row.kind, call=row.call)
            self._masks[key] = self._meter.count(text.decode(pieces([slot], self._bodies, RENDER)[0].body))
        return self._masks[key]

    def text(self, text: str) -> int:
        return self._meter.count(text)


def budget_of(ledger: Ledger, ladder: Mapping[str, float] = {}) -> Budget:
    """The budget of a scope, with the thresholds of `ladder` where the scope has none of its own.

    Its window is the scope's own if the model has room for it, else the model's by its provider, its recording or the
    table, else that of most models.
    """
    meta = ledger.meta
    window, _ = window_of(ledger)
    thresholds = {name: value for name, value in {**ladder, **meta.ladder}.items() if name in Ladder.__struct_fields__}
    return Budget(window, meta.reserve, Ladder(**thresholds))  # type: ignore[arg-type]


#: The source of a scope's window: its budget, somebody who set it, a recording (`core.ledger.WindowSource`), the
#: model's name, the table of models, or none.
WindowOrigin = Literal["budget", "set", "name", "table", "assumed"] | WindowSource


def window_of(ledger: Ledger) -> tuple[int, WindowOrigin]:
    """The window of a scope in tokens, and its source."""
    meta, by_model = ledger.meta, models.window(ledger.meta.model)
    origin: WindowOrigin = "name" if models.names_its_window(meta.model) else "table" if by_model else "assumed"
    takes = by_model
    if meta.window:
        takes, origin = meta.window, _origin(meta.window_by)
        if origin == "settings" and by_model and by_model < takes:
            takes, origin = by_model, "table"  # the host takes no more than the model does
    if meta.budget and meta.budget <= (takes or meta.budget):
        return meta.budget, "budget"
    return takes or DEFAULT_WINDOW, origin


def _origin(by: str) -> WindowOrigin:
    # Another program may have written another word.
    return by if by in get_args(WindowSource) else "set"  # type: ignore[return-value]


def cache_file(store: Store) -> Path:
    """The file that caches a store's counts."""
    return store.cache_path / CACHE


def _sources(row: Row, bodies: Bodies) -> Iterator[_Source]:
    """The sources of a block's tokens: its text, and the images beside it."""
    yield _Source(bytes.fromhex(row.sha256), lambda: bodies.body(row), _is_media(row))
    if row.kind == "tool_use":
        yield _text_source(row.tool)
    for suffix in row.files:
        if suffix.endswith(".txt"):
            continue  # the whole of what the model saw cut
        # The body names its siblings by their checksums, so its own checksum and the suffix say which bytes these are.
        digest = hashlib.sha256(f"{row.sha256}-{suffix}".encode()).digest()
        yield _Source(digest, lambda suffix=suffix: bodies.file(row, suffix), media=True)  # type: ignore[misc]


def _is_media(row: Row) -> bool:
    return row.kind in ("image", "document") and row.ext != "json"


def _stand_in(slot: Slot, bodies: Bodies) -> _Source:
    """What the prompt shows instead of a body: a text of ours, or the body's head and tail."""
    if slot.show == "text":
        return _text_source(slot.text)
    digest = hashlib.sha256(f"mask {MASK_SHOWN} {slot.row.id} {slot.row.sha256}".encode()).digest()
    return _Source(digest, lambda: pieces([slot], bodies)[0].body)


def _text_source(value: str) -> _Source:
    body = text.encode(value)
    return _Source(hashlib.sha256(body).digest(), lambda: body)


def _json(value: object) -> str:
    return text.decode(wire.compact(value)) if value else ""
