"""Sessions → other programs' formats. One module a format, with an `export` as `exported.Exporter` describes it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ctxvc.exporters.exported import Exporter

#: The formats of a conversation, or of its prompt. Each is a module, imported when it is needed.
FORMATS = (
    "anthropic-messages",
    "openai-chat",
    "openai-responses",
    "ctxvc-trajectory",
    "hf-trace",
    "otel-genai",
    "markdown",
)


def exporter(format: str) -> Exporter:
    """The exporter of one of `FORMATS`."""
    return cast("Exporter", import_module(f"ctxvc.exporters.{format.replace('-', '_')}"))
