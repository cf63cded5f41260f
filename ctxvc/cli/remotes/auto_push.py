"""`[share] push = "auto"` in a person's `config.toml`: what is recorded is pushed, by a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ctxvc.cli import settings
from ctxvc.cli.command_list import COMMANDS
from ctxvc.errors import CtxvcError
from ctxvc.phrases import COMMAND_LINE
from ctxvc.recording import log

#: The event of no host, with which the program is started to push what is new in a store.
PUSH = "push"


@dataclass
class AutoPush:
    """Starts a push of a store in which something was recorded, if the person wants that. A call never fails."""

    env: Mapping[str, str]
    _process: subprocess.Popen[bytes] | None = None

    def __call__(self, store: Path) -> None:
        try:
            if self._is_wanted and (self._process is None or self._process.poll() is not None):
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "ctxvc", "hook", PUSH, str(store)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    cwd="/", start_new_session=True,
                )  # fmt: skip
        except (CtxvcError, OSError) as error:
            log.note(store, PUSH, log.describe(error, COMMAND_LINE))

    @cached_property
    def _is_wanted(self) -> bool:
        return settings.person(self.env, COMMANDS).share.get("push") == "auto"


def push(store: Path) -> None:
    """Pushes what is new in a store. Errors go to its log."""
    from ctxvc.sharing.push import push_news

    try:
        push_news(store)
    # The boundary: nobody sees what this process writes.
    except Exception as error:
        log.note(store, PUSH, log.describe(error, COMMAND_LINE))
