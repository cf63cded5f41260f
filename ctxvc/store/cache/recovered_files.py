"""Blocks as read-only files in the store's own folder, for a shell to compute on while a session is open.

They are copies: nothing reads them back. Each owner has a folder, and holds a lock on it; the folder of an owner that
was killed is removed by the next one.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from pathlib import Path

from ctxvc.errors import Conflict
from ctxvc.store.files import locked
from ctxvc.store.trust import contained

FOLDER = "ctxvc/recovered"


class RecoveredFiles:
    """The files of one owner in the store at `store`; none before the first `write`."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folder = ""
        self._stack = ExitStack()

    def write(self, name: str, data: bytes) -> Path:
        """Writes a file with mode 0400; returns its path. Raises: OSError, Refused if a link is in the way."""
        if not (self._folder and (self._store / self._folder).is_dir()):  # a purge removes all files
            self.remove()
            self._folder = self._new_folder()
        path = f"{self._folder}/{name}"
        contained.replace(self._store, path, data, 0o400, durably=False)
        return self._store / path

    def remove(self) -> None:
        """Removes the owner's files, if possible."""
        if self._folder:
            with suppress(OSError):
                contained.remove_tree(self._store, self._folder)
            self._stack.close()
            self._folder = ""

    def _new_folder(self) -> str:
        contained.make_folder(self._store, FOLDER, private=True)
        with locked(self._store / FOLDER):
            for name in contained.names(self._store, FOLDER):
                with suppress(Conflict), locked(self._store / FOLDER / name, timeout=0):
                    contained.remove_tree(self._store, f"{FOLDER}/{name}")
            folder = f"{FOLDER}/{secrets.token_hex(6)}"
            contained.make_folder(self._store, folder, private=True)
            self._stack.enter_context(locked(self._store / folder, timeout=0))
        return folder
