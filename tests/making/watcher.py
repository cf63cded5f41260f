"""Somebody who watches a run and does nothing."""

from __future__ import annotations


class Silent:
    """A watcher that neither shows anything nor stops the run."""

    def said(self, text: str) -> None: ...
    def called(self, name: str, arguments: object) -> None: ...
    def answered(self, name: str, outcome: object) -> None: ...
    def stepped(self, adapter: object) -> None: ...

    def stops(self) -> bool:
        return False
