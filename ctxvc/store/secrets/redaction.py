"""A store's private data about secrets: the key of its marks, the allowed secrets, and the sessions kept exact.

All of it is in `ctxvc/secrets`, private to this user and in no ref: it is neither pushed nor cloned.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

import pygit2

from ctxvc.core.secrets.redact import Criteria, Redactor
from ctxvc.errors import CtxvcError, Refused, reason_of
from ctxvc.store.secrets.secret_scanner import Scanner
from ctxvc.store.trust import contained
from ctxvc.store.trust.identity import make_file

FOLDER = Path("ctxvc", "secrets")
KEY = "key"
#: One allowed text per line: the text itself, or `sha256:` and its SHA-256. Lines that begin with `#` are comments.
ALLOWED = "allowed"
#: One session per line whose bytes are kept exactly.
EXACT = "exact"
#: In the store's `config`: false keeps the bytes of every session exactly.
SETTING = "ctxvc.redact"

_DIGEST = "sha256:"
#: The most bytes of a key (ours have 32), and of the store's settings.
_LONGEST = 4096
_CONFIG = 1 << 20


class Redaction:
    """The handling of secrets in one store. Each file is read once, when it is first needed."""

    def __init__(self, store: Path, *, on: bool = True, scanner: str = "") -> None:
        """`scanner` names a scanner to use besides our rules; empty for none. It is loaded with the first text."""
        self._store = store
        self._folder = store / FOLDER
        self._on = on and is_wanted(store)
        self._scan = Scanner(scanner, store) if scanner else None
        self._criteria: Criteria | None = None
        self._key = b""

    def of(self, session: str) -> Redactor | None:
        """The redactor of a session; None if its bytes are kept exactly."""
        return None if self.is_exact(session) else Redactor(self.mac, self.criteria)

    def is_exact(self, session: str) -> bool:
        """Whether the session's bytes are kept exactly."""
        return not self._on or session in self._lines(EXACT)

    def keep_exact(self, session: str) -> None:
        """Keeps the session's bytes exactly from now on, in every process. Raises: CtxvcError."""
        if not self.is_exact(session):
            lines = [*self._lines(EXACT), session, ""]
            self._write(EXACT, "\n".join(lines).encode())

    def forget(self, session: str) -> None:
        """Forgets whether the session's bytes are kept exactly: another may get its name. Raises: CtxvcError."""
        if session in (lines := self._lines(EXACT)):
            self._write(EXACT, "".join(f"{line}\n" for line in lines if line != session).encode())

    @property
    def criteria(self) -> Criteria:
        """The rules for what is a secret in this store, and the allowed exceptions."""
        if self._criteria is None:
            lines = (line for line in self._lines(ALLOWED) if not line.startswith("#"))
            self._criteria = Criteria(frozenset(map(_digest, lines)), self._scan)
        return self._criteria

    def mac(self, secret: bytes) -> str:
        """Eight hexadecimal digits for a secret: always the same in this store, and different in any other.

        Raises: CtxvcError if the key cannot be read or created.
        """
        return hmac.new(self._own_key(), secret, hashlib.sha256).hexdigest()[:8]

    def _own_key(self) -> bytes:
        path = self._folder / KEY
        try:
            if not self._key and not os.path.lexists(path):
                contained.make_folder(self._store, FOLDER.as_posix())
                make_file(path, secrets.token_bytes(32))
            self._key = self._key or contained.read(self._store, f"{FOLDER.as_posix()}/{KEY}", _LONGEST)
        except (OSError, Refused) as error:
            raise self._unusable(KEY, error) from error
        return self._key

    def _lines(self, name: str) -> list[str]:
        try:
            text = contained.read(self._store, f"{FOLDER.as_posix()}/{name}").decode("utf-8")
            return [line for line in text.split("\n") if line.strip()]
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError, Refused) as error:
            raise self._unusable(name, error) from error

    def _write(self, name: str, data: bytes) -> None:
        try:
            contained.make_folder(self._store, FOLDER.as_posix())
            contained.replace(self._store, f"{FOLDER.as_posix()}/{name}", data)
        except (OSError, Refused) as error:
            raise self._unusable(name, error) from error

    def _unusable(self, name: str, error: Exception) -> CtxvcError:
        return CtxvcError(
            f"{self._folder / name} cannot be used: {reason_of(error)}",
            hint="nothing was stored; check its permissions",
        )


def is_wanted(store: Path) -> bool:
    """Whether the store's settings ask for redaction: not if `SETTING` has any of git's spellings of false."""
    path = store / "config"
    try:
        data = contained.read(store, "config", _CONFIG)
        # A hook asks before the settings are checked, and libgit2 would read the files that they include, even a pipe.
        if re.search(rb"\[\s*include", data, re.IGNORECASE):
            return True
        return pygit2.Config(str(path)).get_bool(SETTING)
    except (KeyError, ValueError, OSError, Refused, pygit2.GitError):  # unset, missing, or neither true nor false
        return True


def _digest(line: str) -> str:
    """The SHA-256 that a line of the list of allowed secrets stands for."""
    if line.startswith(_DIGEST):
        return line.removeprefix(_DIGEST).strip().lower()
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()
