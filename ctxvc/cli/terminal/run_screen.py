"""A running agent on the terminal, for `run` and `ask`; a person can stop it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ctxvc.cli.output import Output, counted, hint_of, safe
from ctxvc.core.display import fitted, one_line
from ctxvc.errors import OverBudget

if TYPE_CHECKING:
    from ctxvc.agent.adapter import Adapter
    from ctxvc.agent.model import Model
    from ctxvc.agent.windows import Window
    from ctxvc.agent.workspace import Outcome

#: The model if none is named.
DEFAULT_MODEL = "claude-sonnet-5-5"


class Screen:
    """The run as a person sees it: the model's text as it comes, each call, and the budget after each step."""

    def __init__(self, output: Output, event: threading.Event, *, scripted: bool, replies: bool = True) -> None:
        self._output = output
        self._stopping = event
        self._lock = threading.Lock()
        self._line = False  # whether a line of a reply has begun
        self._shows_replies = replies and not output.json
        if scripted:
            output.note("scripted: these replies come from a file; no model is asked")

    def said(self, text: str) -> None:
        if self._shows_replies:
            with self._lock:
                safe_text = safe(text)
                sys.stdout.write(safe_text)
                sys.stdout.flush()
                self._line = not safe_text.endswith("\n") if safe_text else self._line

    def called(self, name: str, arguments: Mapping[str, Any]) -> None:
        argument = next((value for value in arguments.values() if isinstance(value, str)), "")
        self._note(f"▸ {name} {fitted(one_line(argument, 480), 120)}".rstrip())

    def answered(self, name: str, outcome: Outcome) -> None:
        output = outcome.output
        lines = output.count(b"\n") + bool(output and not output.endswith(b"\n"))
        size = f"{counted(lines, 'line')}, {len(output):,} bytes"
        self._note(f"  {name}: {'failed, ' if outcome.error else ''}{size}")
        if outcome.alarm:
            self._note(f"  warning: {outcome.alarm}")

    def stepped(self, adapter: Adapter) -> None:
        session = adapter.session
        used, most = session.used(), session.budget.effective
        step = session.ledger().meta.counters.step
        self._note(f"[{session.scope}, step {step}: ~{used:,} of {most:,} tokens, {used * 100 // most} %]")

    def stops(self) -> bool:
        return self._stopping.is_set()

    def end(self) -> None:
        """Ends a line that is not complete."""
        with self._lock:
            if self._line:
                sys.stdout.write("\n")
                sys.stdout.flush()
                self._line = False

    def _note(self, text: str) -> None:
        self.end()
        with self._lock:
            self._output.note(safe(text))


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Within the block, the first ^C sets the event; the second interrupts."""
    event = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        click.echo("\nstopping at the end of this step; ^C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def after_failure(way: str) -> Iterator[None]:
    """Within the block, adds `way`, how to go on, to the hint of a failing provider or too small a budget."""
    from ctxvc.agent.model import ModelFailed

    try:
        yield
    except (ModelFailed, OverBudget) as error:
        error.advice = "; ".join(filter(None, (hint_of(error), way)))
        raise


def provider_window(provider: Model, model: str) -> Window | None:
    """The model's window, as its provider reports it; None if it reports none.

    Raises: ModelFailed if the provider cannot be asked; nothing has begun by then.
    """
    from ctxvc.agent.server import Server

    return provider.window(model) if isinstance(provider, Server) else None
