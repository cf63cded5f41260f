"""Token counts of texts, and of bodies, which are counted once.

The caller passes in the `Count` that counts everything. The default uses OpenAI's `o200k_base` vocabulary from `data/`,
without any network. Importing this module is cheap; the vocabulary, tiktoken and sqlite3
are loaded by the first call that needs them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ctxvc.core.display import decode
from ctxvc.errors import BadName, Refused
from ctxvc.store.cache.database import CacheDatabase
from ctxvc.tokens.media import CURRENT_CAP, ImageCap, media_tokens

if TYPE_CHECKING:
    import tiktoken

Count = Callable[[str], int]
Loader = Callable[[], bytes]

VOCABULARY = Path(__file__).parents[1] / "data" / "o200k_base.bpe.xz"

#: The longest piece for an engine, in characters. tiktoken's regex fails on a million spaces in a row, and merging one
#: very long word is slow.
PIECE = 65_536
#: Characters counted without tiktoken, in a fraction of the time that it takes to load.
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
    """A counting function and the name under which its counts are cached; `estimated` if they are only estimates."""

    name: str
    count: Count
    estimated: bool = False


def tokenizer(name: str = "o200k_base") -> Tokenizer:
    """The tokenizer called `name`: `o200k_base`, or `chars` for a quarter of the characters, marked as estimated.

    Without tiktoken, `chars` replaces `o200k_base`. Nothing is loaded before the first count.
    Raises: BadName.
    """
    if name not in ("o200k_base", "chars"):
        raise BadName(f"unknown tokenizer {name[:40]!r}", hint="use 'o200k_base' or 'chars'")
    if name == "chars" or not _installed():
        return Tokenizer("chars", estimate, estimated=True)
    return Tokenizer("o200k_base", count)


def count(text: str) -> int:
    """The number of `o200k_base` tokens of `text`; special tokens count as ordinary text.

    Exact if the text has a safe cut in every 65,536 characters; where it has none, a word is split, which costs a few
    tokens. Linear in the length of the text. A lone surrogate counts as U+FFFD.
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
    """`text` in pieces of at most `size` characters, with the tokens of the whole text wherever that is possible."""
    start = 0
    while len(text) - start > size:
        cut = _LAST_CUT.match(text, start, start + size)
        end = cut.end() if cut else start + size
        yield text[start:end]
        start = end
    yield text[start:]


def ranks() -> dict[bytes, int]:
    """The vocabulary: the bytes of each token and its rank, which is its position in the file."""
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
    """A function that counts one piece. Both engines give the same number; the optional one is several times faster."""
    try:
        return _toktok()
    except (ImportError, AttributeError):  # not installed, or another distribution of that name
        return _tiktoken()


def _toktok() -> Count:
    from importlib import import_module

    batch_count: Callable[[list[str], str, int], list[int]] = import_module("toktok").batch_count
    return lambda piece: batch_count([piece], "o200k_base", 1)[0]


def _tiktoken() -> Count:
    """tiktoken, loaded only for more than a few short texts, or for one that the other engine cannot count."""
    import lzma

    try:
        vocabulary = ranks()
        few = byte_pair_counter(vocabulary, _PATTERN)
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
    """A cache of counts on disk, by tokenizer and SHA-256 of the bytes. It may be missing.

    An entry takes some 60 bytes, so the store bounds its size.
    """

    _AT_ONCE = 500  # parameters of a query: old SQLite takes 999
    _SCHEMA = (
        "CREATE TABLE counts (digest BLOB, tokenizer TEXT, tokens INTEGER NOT NULL,"
        " PRIMARY KEY (digest, tokenizer)) WITHOUT ROWID"
    )

    def __init__(self, path: Path) -> None:
        self._database = CacheDatabase(path, self._SCHEMA)

    def get_many(self, tokenizer: str, digests: Sequence[bytes]) -> dict[bytes, int]:
        """The known counts of these 32-byte digests."""
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
        """Stores `counts` if possible."""
        import sqlite3

        with suppress(OSError, sqlite3.DatabaseError), self._database.writing() as db:
            rows = [(digest, tokenizer, tokens) for digest, tokens in counts.items()]
            db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", rows)


def _is_count(digest: object, count: object) -> bool:
    """Whether a row of the cache has the right types: SQLite keeps any value in any column."""
    return isinstance(digest, bytes) and type(count) is int and 0 <= count < 1 << 40


#: Called with an amount, and the total.
Progress = Callable[[int, int], None]


class Tokens:
    """The counts of a store's bodies and of the texts around them, each counted once.

    Bodies are identified by the SHA-256 of their bytes; `cache` is the file that keeps their counts between processes.
    """

    _AT_ONCE = 500  # bodies that are counted before their counts are kept
    _SHORT = 2_000  # characters of a text that is remembered whole; of a longer one, its digest

    def __init__(self, tokenizer: Tokenizer, cache: Path | None = None, progress: Progress | None = None) -> None:
        """`progress` receives how many of the bodies without a known count have been counted."""
        self.tokenizer = tokenizer
        self._progress = progress or (lambda _done, _total: None)
        self._cache = CountCache(cache) if cache else None
        self._known: dict[str, dict[bytes, int]] = {}
        self._unsaved: dict[str, dict[bytes, int]] = {}
        self._short = functools.lru_cache(maxsize=4096)(tokenizer.count)
        self._long: dict[bytes, int] = {}

    def of_text(self, text: str) -> int:
        """The tokens of a text that is not a body, such as a stub, a dashboard or a tool's definition."""
        if len(text) <= self._SHORT:
            return self._short(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest not in self._long:
            self._long[digest] = self.tokenizer.count(text)
        return self._long[digest]

    def of_bodies(self, items: Iterable[tuple[bytes, Loader]], *, fresh: bool = False) -> dict[bytes, int]:
        """The tokens of text bodies, by digest. A loader is called only if the count is unknown.

        `fresh` bodies are not looked up on disk, which would take longer than counting one; their counts are written by
        `save`, or together with enough others.
        """
        return self._measured(self.tokenizer.name, lambda body: self.tokenizer.count(decode(body)), items, fresh)

    def of_media(self, items: Iterable[tuple[bytes, Loader]], cap: ImageCap = CURRENT_CAP) -> dict[bytes, int]:
        """The same for images and PDFs, as `media_tokens` counts them."""
        return self._measured(f"media-{cap.edge}", lambda body: media_tokens(body, cap), items, fresh=False)

    def save(self) -> None:
        """Writes the new counts to disk if possible."""
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


#: Characters whose class no version of Unicode will change any more, as far as words are cut by it: those of Latin, and
#: marks and symbols. Left out are those that not every engine takes for white space.
_SETTLED = re.compile(r"[\x00-\x1b\x20-\u036f\u2000-\u2bff]*")
#: The longest word in bytes: joining takes time in the square of it.
_LONGEST = 40


def byte_pair_counter(ranks: Mapping[bytes, int], pattern: str) -> Callable[[str], int | None]:
    """Counts a text's tokens in a vocabulary whose words `pattern` cuts out; None for a text that it does not take.

    Byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909): a word is cut into bytes, and of all neighbours that
    are a token together those of the lowest rank are joined, the first of them first, until none are.
    """
    import regex  # type: ignore[import-untyped]

    words_of = regex.compile(pattern).findall

    @functools.lru_cache(maxsize=4096)
    def of_word(word: str) -> int | None:
        data = word.encode()
        if data in ranks:
            return 1
        return _joined(data, ranks) if len(data) <= _LONGEST else None

    def of_text(text: str) -> int | None:
        if not _SETTLED.fullmatch(text):
            return None
        counts = [of_word(word) for word in words_of(text)]
        return None if None in counts else sum(filter(None, counts))

    return of_text


def _joined(word: bytes, ranks: Mapping[bytes, int]) -> int:
    """The number of tokens in a word."""
    parts = [word[at : at + 1] for at in range(len(word))]
    while pairs := [
        (rank, at) for at, pair in enumerate(pairwise(parts)) if (rank := ranks.get(b"".join(pair), -1)) >= 0
    ]:
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return len(parts)
