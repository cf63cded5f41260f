"""The rows of a ledger by segment, in a mapping that shares unchanged parts with those it was derived from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress
from operator import is_not
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxvc.core.ledger.ledger import Row

    Rows = tuple[Row, ...]
    Page = dict[int, Rows]

#: Segments of a page. A change copies one page and the list of pages, a comparison skips shared pages: for n segments
#: both cost about n / 64 + 64 instead of n, which makes sessions of a million blocks possible.
_PAGE = 64


class Segments:
    """Segment number → its rows, in ascending order. Immutable: `updated` returns another mapping."""

    __slots__ = ("_pages", "rows")

    def __init__(self, segments: Mapping[int, Rows] | None = None) -> None:
        pages: dict[int, Page] = {}
        for key, rows in sorted((segments or {}).items()):
            pages.setdefault(key // _PAGE, {})[key] = rows
        self._pages = pages
        #: The total number of rows.
        self.rows = sum(len(rows) for page in pages.values() for rows in page.values())

    def updated(self, changes: Mapping[int, Rows]) -> Segments:
        """The mapping with each of `changes` added, or replacing the segment of that number."""
        pages = dict(self._pages)
        copies: dict[int, Page] = {}
        rows = self.rows
        for key, segment in changes.items():
            number = key // _PAGE
            if number not in copies:
                copies[number] = dict(pages.get(number, ()))
            rows += len(segment) - len(copies[number].get(key, ()))
            copies[number][key] = segment
        for number, page in copies.items():
            is_longer = len(page) > len(pages.get(number, ()))
            pages[number] = dict(sorted(page.items())) if is_longer else page
        if len(pages) > len(self._pages):
            pages = dict(sorted(pages.items()))
        result = Segments.__new__(Segments)
        result._pages, result.rows = pages, rows
        return result

    def changed_since(self, earlier: Segments) -> list[int]:
        """The segments that `earlier` lacks, or has with other rows (compared by identity), in ascending order."""
        changed: list[int] = []
        for number, page in self._pages.items():
            old = earlier._pages.get(number)
            if old is None:
                changed += page
            elif old is not page:
                changed += compress(page, map(is_not, map(old.get, page), page.values()))
        return changed

    def removed_since(self, earlier: Segments) -> list[int]:
        """The segments that `earlier` has and this mapping lacks, in ascending order."""
        removed: list[int] = []
        for number, page in earlier._pages.items():
            new = self._pages.get(number, {})
            if new is not page:
                removed += sorted(page.keys() - new.keys())
        return removed

    def get(self, key: int) -> Rows:
        """The rows of segment `key`; none if there is no such segment."""
        page = self._pages.get(key // _PAGE)
        return page.get(key, ()) if page else ()

    def pages(self) -> Iterable[tuple[int, Mapping[int, Rows]]]:
        """The segments by page, in order; an unchanged page is the same object as before."""
        return self._pages.items()

    def items(self) -> Iterator[tuple[int, Rows]]:
        return chain.from_iterable(page.items() for page in self._pages.values())

    def values(self) -> Iterator[Rows]:
        return chain.from_iterable(page.values() for page in self._pages.values())

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._pages.values())

    def __reversed__(self) -> Iterator[int]:
        return chain.from_iterable(map(reversed, reversed(self._pages.values())))

    def __contains__(self, key: int) -> bool:
        return key in self._pages.get(key // _PAGE, ())

    def __getitem__(self, key: int) -> Rows:
        return self._pages[key // _PAGE][key]

    def __len__(self) -> int:
        return sum(map(len, self._pages.values()))

    def __eq__(self, other: object) -> bool:
        return self._pages == other._pages if isinstance(other, Segments) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the rows are values that cannot be hashed


#: The segments of a ledger without rows.
NO_SEGMENTS = Segments()
