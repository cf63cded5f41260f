"""A process that makes a session: `creator.py STORE NAME`. It says `ready`, waits for a line, and says how it went."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.store import Store


def main(path: str, name: str) -> None:
    with Store(Path(path)) as store:
        os.write(1, b"ready\n")
        sys.stdin.readline()
        try:
            store.create_session(name)
        except CtxvcError as error:
            os.write(1, f"{type(error).__name__}: {error}\n".encode())
        else:
            os.write(1, b"made\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
