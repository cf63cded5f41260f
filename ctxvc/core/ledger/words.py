"""The words of blocks, which tell what stands nowhere else in a prompt, and when a block was last used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import filterfalse

from ctxvc.core.ledger.ledger import Ledger, Row

#: A name of four letters or more, or a number of four digits or more. Linear in the text.
_WORD = re.compile(r"[A-Za-z_]\w{3,}|\d{4,}")
#: The same where a text has no other signs, in half the time.
_ASCII_WORD = re.compile(_WORD.pattern, re.ASCII)
#: Characters of a text whose words are looked at.
_MOST = 400_000
#: A word that more blocks hold than this is no sign that one of them was used.
COMMON = 12
_SILENT = frozenset({"dashboard", "thinking"})
_MEDIA = frozenset({"image", "document"})

#: A block's text.
Text = Callable[[Row], str]


def vocabulary(text: str) -> tuple[str, ...]:
    """The words of a text, each once: identifiers and parts of paths, and long numbers."""
    word = _ASCII_WORD if text.isascii() else _WORD
    return tuple(dict.fromkeys(word.findall(text, 0, _MOST)))


def of_row(ledger: Ledger, row: Row, text: Text) -> tuple[str, ...]:
    """The words of a block's body; none of an image's or document's. Worked out once for each checksum."""
    cache = ledger.cache_of(of_row)
    own: tuple[str, ...] | None = cache.get(row.sha256)
    if own is None:
        names = ledger.cache_of(vocabulary)  # a word of many blocks is one value
        plain = () if row.kind in _MEDIA and row.ext != "json" else vocabulary(text(row))
        own = cache[row.sha256] = tuple(map(names.setdefault, plain, plain))
    return own


def last_uses(ledger: Ledger, text: Text, count: Mapping[str, int]) -> dict[str, int]:
    """block → the step of its last use, of those in the prompt that were used.

    A block is used where a later call or text of the model names a word that no newer block in the prompt holds.
    `count` says how many blocks of the prompt hold a word; words in more than `COMMON` don't count.
    """
    newest: dict[str, str] = {}
    used: dict[str, int] = {}
    common = {word for word, blocks in count.items() if blocks > COMMON}
    for row in ledger.rows():
        if row.kind in _SILENT or not (row.present or (newest and row.role == "assistant")):
            continue
        own = [*filterfalse(common.__contains__, of_row(ledger, row, text))]
        if row.role == "assistant":
            used |= dict.fromkeys(filter(None, map(newest.get, own)), row.step)
        if row.present:
            newest |= dict.fromkeys(own, row.id)
    return used


def named_since(ledger: Ledger, text: Text, step: int) -> frozenset[str]:
    """The words of the model's replies, thinking aside, from that step on, also of those that left the prompt."""
    reply_words: set[str] = set()
    for row in ledger.backwards():
        if row.step < step:
            break
        if row.role == "assistant" and row.kind not in _SILENT:
            reply_words.update(of_row(ledger, row, text))
    return frozenset(reply_words)


def frequencies(ledger: Ledger, rows: Iterable[Row], text: Text) -> Counter[str]:
    """word → how many of these blocks hold it."""
    count: Counter[str] = Counter()
    for row in rows:
        count.update(of_row(ledger, row, text))
    return count
