"""Sessions of Gemini CLI, as an importer; `read` has it."""

from ctxvc.importers.gemini_cli.read import IMPORTER

__all__ = ["IMPORTER"]
