"""Loaded once for all processes that are forked: the program, and the vocabulary by which it counts."""

import ctxvc.cli.commands.continue_
import ctxvc.cli.main
import ctxvc.session.session
import ctxvc.store.purge.purge
import ctxvc.store.upkeep.retention  # noqa: F401
from ctxvc.tokens.count import count

count("漢字")  # of a text without other characters tiktoken is not asked
