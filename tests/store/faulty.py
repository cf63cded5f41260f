"""A disk that fails at a chosen moment: stands in for `os` in the modules that write."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ctxvc.store import files
from ctxvc.store.log import journal


class Disk:
    """`os`, whose call number `nth` of `name` fails with `error`; a failing write takes half of the data first."""

    def __init__(self, name: str, nth: int, error: BaseException) -> None:
        self._name, self._left, self._error = name, nth, error
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name != self._name or not callable(function):
            return function

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left:
                return function(*arguments, **named)
            self.failed = True
            if name == "write":
                handle, data = arguments
                function(handle, bytes(data)[: len(data) // 2])
            raise self._error

        return call

    def put_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (files, journal):
            monkeypatch.setattr(module, "os", self)


class Chopping:
    """`os`, whose writes take no more than a few bytes at a time, as a full pipe or a signal makes them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, handle: int, data: memoryview) -> int:
        return os.write(handle, data[:7])
