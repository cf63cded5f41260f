"""`serve`: the prompt of a coding agent, kept inside its budget, for the extension that runs in it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

import click

from ctxvc import __version__
from ctxvc.cli.app import App, command
from ctxvc.cli.output import safe
from ctxvc.cli.remotes.auto_push import AutoPush
from ctxvc.core.ledger import wire
from ctxvc.errors import CtxvcError, NotFound

#: Seconds between two looks at whether the program that started this one is still there.
_LOOK = 1.0


@command("serve", "ctxvc serve --stdio")
@click.option("--stdio", is_flag=True, required=True, expose_value=False,
              help="One JSON object a line, on stdin and stdout.")  # fmt: skip
@click.pass_obj
def serve(app: App) -> None:
    """
    Coding agents start it themselves, through an extension that `ctxvc install pi` or `ctxvc install opencode` puts in
    place: before each call of the model it records the conversation and answers with the prompt, inside its budget.
    It ends with its input, or with the program that started it.
    """
    from ctxvc.cli.options.policy_option import usual
    from ctxvc.core import variables
    from ctxvc.integrations.hosts.service import LARGEST, Service
    from ctxvc.store.store import Store

    def store() -> Store:
        if variables.is_recording_off(app.env):
            raise NotFound(f"{variables.RECORDING} is off", hint="unset it")
        return Store(app.store_path())

    budget = app.setting("budget")
    service = Service(
        store,
        lambda: usual(app),
        version=__version__,
        folder=app.folder,
        explain=app.explain,
        budget=budget.value if budget else 0,
    )
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        while line := sys.stdin.buffer.readline(LARGEST + 1):
            if len(line) > LARGEST:
                app.output.note(f"a request of more than {safe(f'{LARGEST:,}')} bytes: the client is cut off")
                break
            if line.strip():
                sys.stdout.buffer.write(wire.compact(service.answer(line)) + b"\n")
                sys.stdout.buffer.flush()
    except BrokenPipeError:
        pass  # the client has gone
    finally:
        service.close()
        with suppress(CtxvcError):  # it may never have had a store
            AutoPush(app.env)(app.store_path())


def _end_with(parent: int) -> None:
    """Ends this process once its parent has: another process may hold the other end of its input."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
