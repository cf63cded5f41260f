"""`python -m ctxvc`: the command line."""

from ctxvc.cli.main import run

run()
