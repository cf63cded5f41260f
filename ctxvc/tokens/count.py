"""How many tokens: of a text, and of a body that was counted before.

Everything is counted by one `Count`, which is handed in. The default counts with OpenAI's `o200k_base` vocabulary,
which stands in `data/`: no network is ever asked. Importing this module is cheap; the vocabulary, tiktoken and sqlite3
are loaded by the first call that needs them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxvc.core.display import decode
from ctxvc.errors import BadName, Refused
from ctxvc.store.cache.database import CacheDatabase
from ctxvc.tokens import byte_pairs
from ctxvc.tokens.media import CURRENT_CAP, ImageCap, media_tokens

if TYPE_CHECKING:
    import tiktoken

Count = Callable[[str], int]
Loader = Callable[[], bytes]

VOCABULARY = Path(__file__).parents[1] / "data" / "o200k_base.bpe.xz"

#: The longest piece that is given to an engine, in characters. tiktoken's regex gives up at a million spaces in a row,
#: and its merges of one very long word are slow.
PIECE = 65_536
#: Characters that are counted without tiktoken, in a fraction of the time that it takes to load.
_FEW = 32_768

# How o200k_base cuts a text into words before it merges, and the texts that could be single tokens (we count them as
# the ordinary text they are). Facts of the encoding: with another pattern the counts are not exact.
_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_SPECIAL = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}

# The last place where a cut is exact, that is, where a word of _PATTERN always ends, whatever stands around it:
# - after a newline, if the next line begins with at most some blanks and then neither a blank nor a slash: a run of
#   white space is cut after its last newline, and only a slash can join a newline to what follows;
# - between an ASCII letter or digit and any other ASCII character but the apostrophe: no word goes on from the one to
#   the other.
_LAST_CUT = re.compile(r"(?s:.*)(?:\n(?=[ \t]{0,200}[^\s/])|[0-9A-Za-z](?=[\x00-&(-/:-@\[-`{-\x7f]))")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A way to count, under the name that its counts are kept by; `estimated` if they are no more than a guess."""

    name: str
    count: Count
    estimated: bool = False


def tokenizer(name: str = "o200k_base") -> Tokenizer:
    """The tokenizer called `name`: `o200k_base`, or `chars` for a quarter of the characters, marked as estimated.

    Where tiktoken is not installed, the second stands in for the first. Nothing is loaded before the first count.
    Raises: BadName.
    """
    if name not in ("o200k_base", "chars"):
        raise BadName(f"unknown tokenizer {name[:40]!r}", hint="use 'o200k_base' or 'chars'")
    if name == "chars" or not _installed():
        return Tokenizer("chars", estimate, estimated=True)
    return Tokenizer("o200k_base", count)


def count(text: str) -> int:
    """The number of `o200k_base` tokens of `text`, with no token taken for more than text.

    Exact wherever the text can be cut exactly once in 65,536 characters; where it cannot, a word is cut in two there,
    which costs a few tokens. Takes time linear in the text. A lone surrogate counts as U+FFFD.
    Raises: Refused, if the installation is broken.
    """
    engine = _engine()
    total = 0
    for piece in pieces(text):
        try:
            total += engine(piece)
        except UnicodeEncodeError:
            total += engine(piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return total


def estimate(text: str) -> int:
    """A quarter of the characters, rounded up. Far too low for scripts other than Latin."""
    return (len(text) + 3) // 4


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """`text` in pieces of at most `size` characters whose tokens are those of the whole, wherever that is possible."""
    start = 0
    while len(text) - start > size:
        cut = _LAST_CUT.match(text, start, start + size)
        end = cut.end() if cut else start + size
        yield text[start:end]
        start = end
    yield text[start:]


def ranks() -> dict[bytes, int]:
    """The vocabulary: each token's bytes and its rank, which is its place in the file."""
    import lzma

    packed = lzma.decompress(VOCABULARY.read_bytes())
    vocabulary: list[bytes] = []
    start, end = 0, len(packed)
    while start < end:
        first = start + 1
        start = first + packed[start]
        vocabulary.append(packed[first:start])
    return dict(zip(vocabulary, range(len(vocabulary)), strict=True))


@functools.cache
def _installed() -> bool:
    from importlib.util import find_spec

    return bool(find_spec("toktok") or (find_spec("tiktoken") and find_spec("_lzma") and VOCABULARY.exists()))


@functools.cache
def _engine() -> Count:
    """Counts one piece. Both engines give the same number; the optional one is several times faster."""
    try:
        return _toktok()
    except (ImportError, AttributeError):  # not installed, or another distribution of that name
        return _tiktoken()


def _toktok() -> Count:
    from importlib import import_module

    batch_count: Callable[[list[str], str, int], list[int]] = import_module("toktok").batch_count
    return lambda piece: batch_count([piece], "o200k_base", 1)[0]


def _tiktoken() -> Count:
    """tiktoken, which is loaded once more than a few short texts are counted, or one that only it counts."""
    import lzma

    try:
        vocabulary = ranks()
        few = byte_pairs.counter(vocabulary, _PATTERN)
    except (ImportError, OSError, lzma.LZMAError) as error:
        raise _broken(error) from error
    room, encoding = _FEW, functools.cache(lambda: _encoding(vocabulary))

    def engine(piece: str) -> int:
        nonlocal room
        room -= len(piece)
        if room >= 0 and (tokens := few(piece)) is not None:
            return tokens
        # Not `encode_ordinary`: where its regex gives up, it raises a BaseException.
        return len(encoding().encode(piece, disallowed_special=()))

    return engine


def _encoding(vocabulary: dict[bytes, int]) -> tiktoken.Encoding:
    try:
        import tiktoken
    except ImportError as error:
        raise _broken(error) from error
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=vocabulary, special_tokens=_SPECIAL)


def _broken(error: Exception) -> Refused:
    hint = "reinstall ctxvc and tiktoken, or choose the tokenizer 'chars'"
    return Refused(f"the tokenizer cannot be loaded: {error}", hint=hint)


class CountCache:
    """Counts on disk, by tokenizer and SHA-256 of the bytes: a help that may be missing, never a truth.

    It takes some 60 bytes a body and tokenizer, so it is bounded by the store beside it.
    """

    _AT_ONCE = 500  # parameters of a query: old SQLite takes 999
    _SCHEMA = (
        "CREATE TABLE counts (digest BLOB, tokenizer TEXT, tokens INTEGER NOT NULL,"
        " PRIMARY KEY (digest, tokenizer)) WITHOUT ROWID"
    )

    def __init__(self, path: Path) -> None:
        self._database = CacheDatabase(path, self._SCHEMA)

    def get_many(self, tokenizer: str, digests: Sequence[bytes]) -> dict[bytes, int]:
        """The counts that are known of these 32-byte digests."""
        import sqlite3

        counts: dict[bytes, int] = {}
        if not digests:
            return counts
        with suppress(sqlite3.DatabaseError), self._database.reading() as db:
            for start in range(0, len(digests), self._AT_ONCE):
                batch = digests[start : start + self._AT_ONCE]
                marks = ",".join("?" * len(batch))
                query = f"SELECT digest, tokens FROM counts WHERE tokenizer = ? AND digest IN ({marks})"  # noqa: S608
                rows = db.execute(query, (tokenizer, *batch))
                counts.update((digest, count) for digest, count in rows if _is_count(digest, count))
        return counts

    def put_many(self, tokenizer: str, counts: Mapping[bytes, int]) -> None:
        """Keeps `counts`, if it can."""
        import sqlite3

        with suppress(OSError, sqlite3.DatabaseError), self._database.writing() as db:
            rows = [(digest, tokenizer, tokens) for digest, tokens in counts.items()]
            db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", rows)


def _is_count(digest: object, count: object) -> bool:
    """Whether a row of the cache is one: SQLite keeps any value in any column."""
    return isinstance(digest, bytes) and type(count) is int and 0 <= count < 1 << 40


#: Told an amount, and of how many in all.
Progress = Callable[[int, int], None]


class Tokens:
    """The counts of a store's bodies and of the texts around them: each is counted once.

    Bodies are known by the SHA-256 of their bytes; `cache` is the file that keeps their counts between processes.
    """

    _AT_ONCE = 500  # bodies that are counted before their counts are kept
    _SHORT = 2_000  # characters of a text that is remembered whole; of a longer one, its digest

    def __init__(self, tokenizer: Tokenizer, cache: Path | None = None, progress: Progress | None = None) -> None:
        """`progress` is told how many of the bodies without a known count are counted."""
        self.tokenizer = tokenizer
        self._progress = progress or (lambda _done, _total: None)
        self._cache = CountCache(cache) if cache else None
        self._known: dict[str, dict[bytes, int]] = {}
        self._unsaved: dict[str, dict[bytes, int]] = {}
        self._short = functools.lru_cache(maxsize=4096)(tokenizer.count)
        self._long: dict[bytes, int] = {}

    def of_text(self, text: str) -> int:
        """The tokens of a text that is no body: a stub, a dashboard, a tool's definition."""
        if len(text) <= self._SHORT:
            return self._short(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest not in self._long:
            self._long[digest] = self.tokenizer.count(text)
        return self._long[digest]

    def of_bodies(self, items: Iterable[tuple[bytes, Loader]], *, fresh: bool = False) -> dict[bytes, int]:
        """The tokens of bodies of text, by digest. A loader is called only where no count is known.

        Bodies that are `fresh` are not looked for on disk, and their counts wait for `save` or for enough others: that
        would take longer than to count one.
        """
        return self._measured(self.tokenizer.name, lambda body: self.tokenizer.count(decode(body)), items, fresh)

    def of_media(self, items: Iterable[tuple[bytes, Loader]], cap: ImageCap = CURRENT_CAP) -> dict[bytes, int]:
        """The same for images and PDFs, as `media_tokens` counts them."""
        return self._measured(f"media-{cap.edge}", lambda body: media_tokens(body, cap), items, fresh=False)

    def save(self) -> None:
        """Keeps on disk what is counted, if it can."""
        for name, counts in self._unsaved.items():
            if counts and self._cache:
                self._cache.put_many(name, counts)
        self._unsaved.clear()

    def _measured(
        self, name: str, measure: Callable[[bytes], int], items: Iterable[tuple[bytes, Loader]], fresh: bool
    ) -> dict[bytes, int]:
        loaders = dict(items)
        counts = self._known.setdefault(name, {})
        unknown = [digest for digest in loaders if digest not in counts]
        if unknown and self._cache and not fresh:
            counts.update(self._cache.get_many(name, unknown))
            unknown = [digest for digest in unknown if digest not in counts]
        unsaved = self._unsaved.setdefault(name, {})
        for number, digest in enumerate(unknown, 1):
            counts[digest] = unsaved[digest] = measure(loaders[digest]())
            if len(unsaved) >= self._AT_ONCE:
                self.save()
                unsaved = self._unsaved.setdefault(name, {})
            self._progress(number, len(unknown))
        if not fresh:
            self.save()
        return {digest: counts[digest] for digest in loaders}
