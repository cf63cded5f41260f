"""Claude Code's transcripts, as an importer; `read` has it."""

from ctxvc.importers.claude_code.events import FORMAT
from ctxvc.importers.claude_code.read import IMPORTER

__all__ = ["FORMAT", "IMPORTER"]
