"""Conversations of OpenHands, as an importer; `read` has it."""

from ctxvc.importers.openhands.read import IMPORTER

__all__ = ["IMPORTER"]
