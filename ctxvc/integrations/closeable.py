"""What is used in a `with` block, or closed by hand."""

from __future__ import annotations

from typing import TypeVar

C = TypeVar("C", bound="Closeable")


class Closeable:
    """A base for classes with a `close`."""

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
