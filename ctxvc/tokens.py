"""How many tokens: of a text, an image, a body that was counted before; and what the provider will say instead.

Everything is counted by one `Count`, which is handed in. The default counts with OpenAI's `o200k_base` vocabulary,
which stands in `data/`: no network is ever asked. A `Calibration` turns its counts into a provider's own. Importing
this module is cheap; the vocabulary, tiktoken and sqlite3 are loaded by the first call that needs them.
"""

from __future__ import annotations

import functools
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ctxvc.core.text import decode
from ctxvc.errors import BadName, Refused

if TYPE_CHECKING:
    import sqlite3

Count = Callable[[str], int]
Loader = Callable[[], bytes]

VOCABULARY = Path(__file__).with_name("data") / "o200k_base.bpe.xz"

#: The longest piece that is given to an engine, in characters. tiktoken's regex gives up at a million spaces in a row,
#: and its merges of one very long word are slow.
PIECE = 65_536

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


def counter(name: str = "o200k_base") -> Count:
    """The `Count` of `tokenizer(name)`."""
    return tokenizer(name).count


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
    import io
    import lzma

    packed = io.BytesIO(lzma.decompress(VOCABULARY.read_bytes()))
    return {packed.read(length[0]): rank for rank, length in enumerate(iter(lambda: packed.read(1), b""))}


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
    import lzma

    try:
        import tiktoken

        vocabulary = ranks()
    except (ImportError, OSError, lzma.LZMAError) as error:
        hint = "install ctxvc and tiktoken anew, or choose the tokenizer 'chars'"
        raise Refused(f"the tokenizer cannot be loaded: {error}", hint=hint) from error
    encoding = tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=vocabulary, special_tokens=_SPECIAL)
    # Not `encode_ordinary`: where its regex gives up, it raises a BaseException.
    return lambda piece: len(encoding.encode(piece, disallowed_special=()))


class ImageCap(NamedTuple):
    """What a model sees of an image at most: pixels along the longer edge, and tokens."""

    edge: int
    tokens: int


CURRENT_CAP = ImageCap(2576, 4784)
OLDER_CAP = ImageCap(1568, 1600)

_PATCH = 28  # pixels along the edge of the square that costs a token

# What a page of a PDF costs (its text and its picture; 1,500 to 3,000), and how many bytes of one hold a page at least
# where the pages themselves are compressed and cannot be counted.
_PDF_PAGE_TOKENS = 3_000
_PDF_PAGE_BYTES = 50_000
_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SEGMENTS = 2_000  # more than any camera writes before the frame; a hostile file has millions


def media_tokens(data: bytes, cap: ImageCap = CURRENT_CAP) -> int:
    """The tokens of an image by its size, or of a PDF by its pages; of anything else as of the largest image."""
    if size := image_size(data):
        return image_tokens(*size, cap)
    if data.startswith(b"%PDF-"):
        return pdf_tokens(data)
    return cap.tokens


def image_tokens(width: int, height: int, cap: ImageCap = CURRENT_CAP) -> int:
    """A token for every square of 28 pixels, after the image is made to fit the cap: never less than is billed."""
    longer = max(width, height)
    if longer > cap.edge:
        width, height = (-(-side * cap.edge // longer) for side in (width, height))
    return min(cap.tokens, -(-width // _PATCH) * -(-height // _PATCH))


def image_cap(model: str) -> ImageCap:
    """The cap of the model's generation; of a model that is not known, the current one."""
    return OLDER_CAP if _is_older_claude(model) else CURRENT_CAP


def pdf_tokens(data: bytes) -> int:
    """An estimate: 3,000 tokens for each page object, or for each 50 kB of a file that hides them."""
    return _PDF_PAGE_TOKENS * (len(_PDF_PAGE.findall(data)) or -(-len(data) // _PDF_PAGE_BYTES))


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels from the header of a PNG, JPEG, GIF or WebP; None for anything else, or damaged."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR" and len(data) >= 24:
        size = _big(data, 16, 4), _big(data, 20, 4)
    elif data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        size = _little(data, 6, 2), _little(data, 8, 2)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        size = _webp_size(data)
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg_size(data)
    else:
        return None
    return size if min(size) > 0 else None


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
    if form == b"VP8L" and data[20] == 0x2F:
        bits = _little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_JPEG_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        if marker == 0xFF:  # filling
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:  # these have no length
            at += 2
        else:
            at += 2 + _big(data, at + 2, 2)
    return 0, 0


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


class CountCache:
    """Counts on disk, by tokenizer and SHA-256 of the bytes: a help that may be missing, never a truth.

    A connection lives for one call, so that threads, forks and other processes need no care. A cache that is locked,
    read-only or full answers nothing and takes nothing; a damaged one is dropped. It takes some 60 bytes a body and
    tokenizer, so it is bounded by the store beside it, and may be deleted at any time.
    """

    _WAIT = 2.0  # seconds for another writer
    _AT_ONCE = 500  # parameters of a query: old SQLite takes 999
    _making = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._path = path

    def get_many(self, tokenizer: str, digests: Sequence[bytes]) -> dict[bytes, int]:
        """The counts that are known of these 32-byte digests."""
        import sqlite3

        found: dict[bytes, int] = {}
        try:
            with closing(self._connect()) as db:
                for start in range(0, len(digests), self._AT_ONCE):
                    some = digests[start : start + self._AT_ONCE]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT digest, tokens FROM counts WHERE tokenizer = ? AND digest IN ({marks})"  # noqa: S608
                    found.update(db.execute(query, (tokenizer, *some)))
        except sqlite3.DatabaseError as error:
            self._bear(error)
        return found

    def put_many(self, tokenizer: str, counts: Mapping[bytes, int]) -> None:
        """Keeps `counts`, if it can."""
        import sqlite3

        try:
            self._make()
            with closing(self._connect()) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("BEGIN IMMEDIATE")
                db.execute(
                    "CREATE TABLE IF NOT EXISTS counts (digest BLOB, tokenizer TEXT, tokens INTEGER NOT NULL,"
                    " PRIMARY KEY (digest, tokenizer)) WITHOUT ROWID"
                )
                rows = [(digest, tokenizer, tokens) for digest, tokens in counts.items()]
                db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", rows)
                db.execute("COMMIT")
        except OSError:
            return
        except sqlite3.DatabaseError as error:
            self._bear(error)

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        db = sqlite3.connect(uri, uri=True, timeout=self._WAIT, isolation_level=None)
        # What a power cut may damage is dropped and counted anew: no reason to wait for the disk.
        db.execute("PRAGMA synchronous = OFF")
        return db

    def _make(self) -> None:
        # Under a lock, since closing any handle on a file drops the locks that SQLite holds on it in this process.
        with self._making:
            if not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))

    def _bear(self, error: sqlite3.DatabaseError) -> None:
        import sqlite3

        if isinstance(error, sqlite3.OperationalError):  # locked, full, read-only, not there
            return
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()


class Tokens:
    """The counts of a store's bodies and of the texts around them: each is counted once.

    Bodies are known by the SHA-256 of their bytes; `cache` is the file that keeps their counts between processes.
    """

    _AT_ONCE = 500  # bodies that are counted before their counts are kept
    _SHORT = 2_000  # characters of a text that is worth remembering

    def __init__(self, tokenizer: Tokenizer, cache: Path | None = None) -> None:
        self.tokenizer = tokenizer
        self._cache = CountCache(cache) if cache else None
        self._known: dict[str, dict[bytes, int]] = {}
        self._short = functools.lru_cache(maxsize=4096)(tokenizer.count)

    def of_text(self, text: str) -> int:
        """The tokens of a text that is no body: a stub, a dashboard, a tool's definition."""
        return self._short(text) if len(text) <= self._SHORT else self.tokenizer.count(text)

    def of_bodies(self, items: Iterable[tuple[bytes, Loader]]) -> dict[bytes, int]:
        """The tokens of bodies of text, by digest. A loader is called only where no count is known."""
        return self._measured(self.tokenizer.name, lambda body: self.tokenizer.count(decode(body)), items)

    def of_media(self, items: Iterable[tuple[bytes, Loader]], cap: ImageCap = CURRENT_CAP) -> dict[bytes, int]:
        """The same for images and PDFs, as `media_tokens` counts them."""
        return self._measured(f"media-{cap.edge}", lambda body: media_tokens(body, cap), items)

    def _measured(
        self, name: str, measure: Callable[[bytes], int], items: Iterable[tuple[bytes, Loader]]
    ) -> dict[bytes, int]:
        loaders = dict(items)
        known = self._known.setdefault(name, {})
        unknown = [digest for digest in loaders if digest not in known]
        if unknown and self._cache:
            known.update(self._cache.get_many(name, unknown))
            unknown = [digest for digest in unknown if digest not in known]
        for start in range(0, len(unknown), self._AT_ONCE):
            counts = {digest: measure(loaders[digest]()) for digest in unknown[start : start + self._AT_ONCE]}
            known.update(counts)
            if self._cache:
                self._cache.put_many(name, counts)
        return {digest: known[digest] for digest in loaders}


class Calibration(NamedTuple):
    """How a provider's count follows ours: `a_milli` thousandths of it, and `b` tokens more. Integers, to be stored."""

    a_milli: int = 1000
    b: int = 0

    def actual(self, tokens: int) -> int:
        """What the provider will count where we count `tokens`, rounded up."""
        return max(0, -(-self.a_milli * tokens // 1000) + self.b)


MIN_SAMPLES = 20
_ROUNDS = 20
_POSSIBLE = range(1, 10**9)  # a report of more or fewer tokens is no sample
_PLAUSIBLE = 0.5, 3.0  # a slope outside says that the samples do not fix one

# Claude 4.7 came with a tokenizer that makes about a third more of the same text; all 5.x have it.
_NEW_TOKENIZER = (4, 7)
_CLAUDE = re.compile(r"claude|^(?:opus|sonnet|haiku|fable|mythos)")
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")


def initial(model: str) -> Calibration:
    """What to start from before the provider has reported anything: 1.5 for current Claude models, 1.2 for older ones.

    Any other model is taken at our own count.
    """
    if not _CLAUDE.search(model.lower()):
        return Calibration()
    return Calibration(1200) if _is_older_claude(model) else Calibration(1500)


def fit(samples: Sequence[tuple[int, int]], start: Calibration) -> Calibration:
    """The line through `samples` of (our count, provider's count); `start` for fewer than 20, or where no line shows.

    Robust: up to a fifth of the samples may be anything. It begins with the median slope between samples half the
    list apart (Theil's incomplete method) and ends with least squares under Tukey's weights, which count a sample that
    is 4.7 standard deviations off for nothing. The same samples in any order give the same line.
    """
    points = sorted(
        (float(ours), float(theirs)) for ours, theirs in samples if ours in _POSSIBLE and theirs in _POSSIBLE
    )
    if len(points) < MIN_SAMPLES:
        return start
    half = len(points) // 2
    slopes = [(v - y) / (u - x) for (x, y), (u, v) in zip(points, points[half:], strict=False) if u > x]
    if not slopes:
        return start
    slope = _median(slopes)
    offset = _median([y - slope * x for x, y in points])
    for _ in range(_ROUNDS):
        residuals = [y - slope * x - offset for x, y in points]
        reach = max(1.0, 4.685 * 1.4826 * _median([abs(residual) for residual in residuals]))
        weights = [max(0.0, 1.0 - (residual / reach) ** 2) ** 2 for residual in residuals]
        slope, offset = _least_squares(points, weights, slope)
    low, high = _PLAUSIBLE
    return Calibration(round(slope * 1000), round(offset)) if low <= slope <= high else start


def _least_squares(
    points: Sequence[tuple[float, float]], weights: Sequence[float], slope: float
) -> tuple[float, float]:
    """Slope and offset of the weighted line; the given slope where all points that count have one abscissa."""
    total = math.fsum(weights)
    x_mean = math.fsum(weight * x for weight, (x, _) in zip(weights, points, strict=True)) / total
    y_mean = math.fsum(weight * y for weight, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(weight * (x - x_mean) ** 2 for weight, (x, _) in zip(weights, points, strict=True))
    if spread > 0:
        shared = (weight * (x - x_mean) * (y - y_mean) for weight, (x, y) in zip(weights, points, strict=True))
        slope = math.fsum(shared) / spread
    return slope, y_mean - slope * x_mean


def _median(values: Sequence[float]) -> float:
    """The upper median."""
    return sorted(values)[len(values) // 2]


def _is_older_claude(model: str) -> bool:
    version = _CLAUDE_VERSION.search(model.lower())
    return version is not None and (int(version[1]), int(version[2] or 0)) < _NEW_TOKENIZER


class Limits(NamedTuple):
    """Tokens of a model: all that one request may hold, and what a reply may have of it."""

    window: int
    output: int


MODELS_DATE = "2026-11-03"
_MILLION = Limits(1_000_000, 128_000)

#: What the makers' documentation said on `MODELS_DATE`. The provider's own answer and the person's come first.
MODELS: Mapping[str, Limits] = {
    "claude-fable-5-2": _MILLION,
    "claude-fable-5-1": _MILLION,
    "claude-fable-5": _MILLION,
    "claude-mythos-5-2": _MILLION,
    "claude-mythos-5-1": _MILLION,
    "claude-opus-5-5": _MILLION,
    "claude-opus-5": _MILLION,
    "claude-opus-4-8": _MILLION,
    "claude-opus-4-7": _MILLION,
    "claude-opus-4-6": _MILLION,
    "claude-opus-4-5": Limits(200_000, 64_000),
    "claude-opus-4-1": Limits(200_000, 32_000),
    "claude-opus-4": Limits(200_000, 32_000),
    "claude-sonnet-5-5": _MILLION,
    "claude-sonnet-5": _MILLION,
    "claude-sonnet-4-6": _MILLION,
    "claude-sonnet-4-5": Limits(200_000, 64_000),
    "claude-sonnet-4": Limits(200_000, 64_000),
    "claude-haiku-5-5": _MILLION,
    "claude-haiku-4-5": Limits(200_000, 64_000),
    "gpt-4o": Limits(128_000, 16_384),
    "gpt-4o-mini": Limits(128_000, 16_384),
    "gpt-4.1": Limits(1_047_576, 32_768),
    "gpt-5": Limits(400_000, 128_000),
}

# `us.anthropic.claude-opus-4-1-20250805-v1:0`, `openai/gpt-4o-2024-08-06`: a route before the name, an edition after.
_ROUTE = re.compile(r"^(?:.*/)?(?:[a-z]+\.)*(?=claude-|gpt-)")
_EDITION = re.compile(r"(?:[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest))?(?:-v[0-9]+(?::[0-9]+)?)?$")


def limits(model: str) -> Limits | None:
    """Window and output of a model as the table has them, by any of its usual spellings; None if it is not there."""
    name = _EDITION.sub("", _ROUTE.sub("", model.lower()), count=1)
    return MODELS.get(name.replace(".", "-") if name.startswith("claude-") else name)


def window(model: str) -> int | None:
    """The context window of a model in tokens; None if the table does not have it."""
    known = limits(model)
    return known.window if known else None
