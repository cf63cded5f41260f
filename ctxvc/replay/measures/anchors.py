"""Anchors: the exact strings by which one part of a conversation depends on another, such as paths and identifiers.

All definitions are over ASCII words, the longest runs of `[A-Za-z0-9_]`, and take time that is linear in the text. A
*run* is a longest run of `[A-Za-z0-9_./~@+-]`, without what ends a sentence. What a run is, the first of these decides:

- `url`: a scheme, `://`, and what follows, up to white space, a quote or a bracket. It is no run and has none in it.
- `path`: a run with a slash that begins with `/`, `./`, `../` or `~/`, or has two slashes, an extension, or a part with
  a digit, hyphen or underscore (a branch: `fix/login-2`); or a file's name, by its extension (`go.mod`). At least 6
  characters, one of them a letter; a leading `./` is left out. Nothing within a path counts by itself.

What is no path is taken apart at `/`, `@`, `+` and `~`, and each piece is

- `id`: a UUID; or a word, hyphens allowed, of at least 5 characters with letters and digits, of which three are digits
  or all letters are capitals (`HAT136`, `JG7FMM`, `toolu_01x9`).
- `hash`: 7 to 64 hexadecimal digits of one case with a letter and a digit among them.
- `number`: at least four digits, with a point, thousands' commas or as an ISO date where so written; ranges are two.
- `identifier`: at least 6 characters, and written as no plain word is: with an inner underscore, a capital after a
  small letter, or a digit; a plain word right before `(`; a command's option (`--no-verify`); words with two or more
  hyphens, from 12 characters on. Of a dotted name its parts that are identifiers, or where none is, all of it
  (`os.path`).

Besides those, overlapping them:

- `quoted`: 8 to 80 characters between two of `"`, `'` or `` ` `` on one line, unless it is one of the above.
- `line`: a line of at least 25 characters, without the white space around it, in the old text of an edit or on a
  context or removed line of a patch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import text_of

AnchorKind = Literal["path", "url", "id", "hash", "number", "identifier", "quoted", "line"]
KINDS: tuple[AnchorKind, ...] = get_args(AnchorKind)

#: Counts up when a definition changes: figures of different definitions do not compare.
DEFINITIONS = 1

#: No anchor is longer: what is, is data. A longer line counts by its beginning.
LONGEST = 400

_WORD = re.compile(r"[A-Za-z0-9_]+")
_IS_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_URL = re.compile(r"(?<![A-Za-z0-9_])(?:https?|ftps?|wss?|ssh|git|file|s3|gs)://[^\s\"'`<>()\[\]{}|\\]+")
_RUN = re.compile(r"[A-Za-z0-9_./~@+-]{4,}")
_THOUSANDS = re.compile(r"(?<![A-Za-z0-9_,.])[0-9]{1,3}(?:,[0-9]{3})+(?![A-Za-z0-9_])")
_CALLED = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z][A-Za-z0-9_]{5,}(?=\()")
_QUOTED = re.compile(r"\"([^\"\n]*)\"|`([^`\n]*)`|(?<![A-Za-z0-9_])'([^'\n]*)'(?![A-Za-z0-9_])")

_APART = re.compile(r"[/@+~]+")
_EXTENDED = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}\Z")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_HASH = re.compile(r"[0-9a-f]{7,64}|[0-9A-F]{7,64}")
_DIGITS = re.compile(r"[0-9][0-9.-]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HUMP = re.compile(r"[a-z][A-Z]")
_JOINED = re.compile(r"[A-Za-z0-9]_+[A-Za-z0-9]")

_FILES = (
    "adoc astro avi bash bat bin bmp bz2 c cc cfg cfn cjs conf cpp cs css csv cts cu cxx dart db diff dll doc docx ejs"
    " env erb ex exs fish gif go gql gradle graphql gz h hcl hpp hs htm html ico img ini ipynb j2 jar java jpeg jpg js"
    " json json5 jsonc jsonl jsx kt kts less lock log lua m m4a map md mdx mjs mk ml mod mov mp3 mp4 mts nix npz odt"
    " out parquet patch pb pdf php pid pkl pl plist png ppt pptx proto ps1 psd py pyc pyi r rb rs rst sass scala scss"
    " sh so sock sol sql sqlite sqlite3 sum svelte svg swift tar tex tf tgz tmpl toml ts tsv tsx ttf txt vue wasm wav"
    " webm webp whl woff woff2 xls xlsx xml xsd xz yaml yml zig zip zsh zst"
)
_EXTENSIONS = frozenset(_FILES.split())

#: An edit's argument with the text that is there before it.
_OLD = frozenset({"old_string", "old_str", "old_text", "oldString", "oldText", "oldStr"})


def anchors(text: str) -> dict[str, AnchorKind]:
    """The anchors of a text and their kinds, but for edited lines, which a text alone does not show."""
    kinds: dict[str, AnchorKind] = {}

    def url(match: re.Match[str]) -> str:
        address = match[0].rstrip(".,;:!?*~&/#=")
        if "://" in address and len(address) <= LONGEST:
            kinds.setdefault(address, "url")
        return " "

    without_urls = _URL.sub(url, text) if "://" in text else text
    for match in _RUN.finditer(without_urls):
        for anchor, kind in _of_run(match[0]) if match.end() - match.start() <= LONGEST else ():
            kinds.setdefault(anchor, kind)
    for match in _THOUSANDS.finditer(without_urls):
        kinds.setdefault(match[0], "number")
    for match in _CALLED.finditer(without_urls):
        kinds.setdefault(match[0], "identifier")
    for match in _QUOTED.finditer(text):
        quoted = (match[1] or match[2] or match[3] or "").strip()
        if 8 <= len(quoted) <= 80 and _WORD.search(quoted):
            kinds.setdefault(quoted, "quoted")
    return kinds


def reply_anchors(reply: Message) -> dict[str, AnchorKind]:
    """The anchors of what a reply says and of its calls' arguments, edited lines among them; not of its thinking."""
    kinds: dict[str, AnchorKind] = {}
    for part in reply.parts:
        if part.kind not in ("assistant", "tool_use"):
            continue
        for anchor, kind in anchors(text_of(part)).items():
            kinds.setdefault(anchor, kind)
        if part.kind == "tool_use":
            value = wire.parsed(part.body, object) if part.ext == "json" else None
            for line in edited_lines(text_of(part) if value is None else value):
                kinds.setdefault(line, "line")
    return kinds


def edited_lines(arguments: Any) -> Iterator[str]:
    """The lines that an edit's arguments quote of the text before it, without the white space around them."""
    stack: list[tuple[str, Any]] = [("", arguments)]
    while stack:
        match stack.pop():
            case name, str(text):
                for line in text.split("\n") if name in _OLD else _before_patch(text):
                    if len(line := line.strip()[:LONGEST].strip()) >= 25 and _WORD.search(line):
                        yield line
            case _, dict() as fields:
                stack.extend(reversed([(str(name), value) for name, value in fields.items()]))
            case name, list() as items:
                stack.extend((name, item) for item in reversed(items))


def _before_patch(text: str) -> Iterator[str]:
    """The context and removed lines of the patches in a text."""
    if "*** Begin Patch" not in text and "\n@@ " not in text:
        return
    inside = False
    for line in text.split("\n"):
        if line.startswith(("@@", "*** Begin Patch")):
            inside = True
        elif line.startswith(("diff --git ", "--- ", "+++ ", "*** End Patch")):
            inside = False
        elif inside and line.startswith((" ", "-")):
            yield line[1:]


@lru_cache(maxsize=1 << 16)
def _of_run(run: str) -> tuple[tuple[str, AnchorKind], ...]:
    run = run.rstrip("./-+@~")
    if "/" in run and _is_path(run):
        return ((run.removeprefix("./"), "path"),)
    return tuple(anchor for piece in _APART.split(run) for anchor in _of_piece(piece))


def _is_path(run: str) -> bool:
    if len(run) < 6 or not re.search("[A-Za-z]", run) or run.startswith("//"):
        return False
    if run.startswith(("/", "./", "../", "~/")) or run.count("/") >= 2 or _EXTENDED.search(run):
        return True
    return not run.startswith(("-", "@")) and bool(re.search("[0-9_-]", run))


def _of_piece(piece: str) -> Iterator[tuple[str, AnchorKind]]:
    if piece.startswith("--"):
        if len(piece) >= 6 and piece[2].isalpha():
            yield piece.rstrip(".-"), "identifier"
        return
    piece = piece.strip(".-")
    if len(piece) < 4:
        return
    if _UUID.fullmatch(piece):
        yield piece, "id"
    elif _DIGITS.fullmatch(piece):
        for number in [piece] if _DATE.fullmatch(piece) else piece.split("-"):
            if sum(map(str.isdigit, number)) >= 4:
                yield number.strip("."), "number"
    elif _HASH.fullmatch(piece) and not piece.isalpha():
        yield piece, "hash"
    elif "." in piece:
        yield from _of_dotted(piece)
    else:
        yield from _of_word(piece)


def _of_dotted(piece: str) -> Iterator[tuple[str, AnchorKind]]:
    names = piece.split(".")
    if names[-1].lower() in _EXTENSIONS and len(piece) >= 6:
        yield piece, "path"
    elif parts := [anchor for name in names for anchor in _of_word(name)]:
        yield from parts
    elif len(piece) >= 6 and all(name[:1].isalpha() or name[:1] == "_" for name in names):
        yield piece, "identifier"


def _of_word(word: str) -> Iterator[tuple[str, AnchorKind]]:
    """The anchors in a word, hyphens allowed."""
    word = word.strip("-")
    digits = sum(map(str.isdigit, word))
    letters = any(map(str.isalpha, word))
    if len(word) >= 5 and letters and (digits >= 3 or (digits and word.upper() == word)):
        yield word, "id"
    elif "-" in word:
        if word.count("-") >= 2 and len(word) >= 12 and letters:
            yield word, "identifier"
        else:
            for part in word.split("-"):
                yield from _of_word(part)
    elif len(word) >= 6 and letters and (digits or _HUMP.search(word) or _JOINED.search(word)):
        yield word, "identifier"


# --- which texts have an anchor


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(_WORD.findall(text))


def stands_in(anchor: str, text: str) -> bool:
    """Whether a text has the anchor, character for character, and not inside a longer word on either side."""
    start = text.find(anchor)
    while start >= 0:
        end = start + len(anchor)
        if (start == 0 or text[start - 1] not in _IS_WORD) and (end == len(text) or text[end] not in _IS_WORD):
            return True
        start = text.find(anchor, start + 1)
    return False


class AnchorIndex:
    """Which of many anchors a text has, without looking for each.

    `frequency` tells in how many texts a word is: an anchor is looked for where its rarest word is. Anchors are known
    by their place in `texts`; each must have a word.
    """

    def __init__(self, texts: list[str], frequency: Mapping[str, int]) -> None:
        self.texts = texts
        self._words: dict[str, int] = {}  # an anchor that is one word → its place
        self._phrases: dict[str, list[tuple[int, str, frozenset[str]]]] = {}  # a word → the anchors whose rarest it is
        for place, text in enumerate(texts):
            parts = _WORD.findall(text)
            if parts == [text]:
                self._words[text] = place
            else:
                rarest = min(parts, key=lambda word: (frequency.get(word, 0), -len(word)))
                self._phrases.setdefault(rarest, []).append((place, text, frozenset(parts)))

    def places(self, text: str, vocabulary: frozenset[str] | None = None) -> list[int]:
        """The places of the anchors that stand in a text, in no order. `vocabulary` are its words, if known."""
        own = words_of(text) if vocabulary is None else vocabulary
        places = [self._words[word] for word in self._words.keys() & own]
        for word in self._phrases.keys() & own:
            for place, anchor, parts in self._phrases[word]:
                if parts <= own and stands_in(anchor, text):
                    places.append(place)
        return places


FILE = Path(__file__).parents[2] / "data" / "common-anchors.txt"


class CommonAnchors(msgspec.Struct, frozen=True):
    """`version` is carried by every result: figures under different versions do not compare."""

    version: str
    anchors: frozenset[str]

    def __contains__(self, anchor: str) -> bool:
        return anchor in self.anchors


#: For a conversation in which every anchor is to count.
NONE = CommonAnchors(f"{DEFINITIONS}-none", frozenset())


@cache
def common_anchors() -> CommonAnchors:
    """The list that `listing` made."""
    version, *anchors = FILE.read_bytes().decode().split("\n")
    return CommonAnchors(version, frozenset(anchors) - {""})


def listing(anchors: Iterable[str]) -> str:
    """The text of a list's file: its version, from the definitions and the list itself, then an anchor a line."""
    lines = "".join(f"{anchor}\n" for anchor in sorted(anchors))
    return f"{DEFINITIONS}-{hashlib.sha256(lines.encode()).hexdigest()[:8]}\n{lines}"
