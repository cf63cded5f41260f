"""`python -m ctxvc`: the command line."""

from ctxvc.cli.start import run

run()
