"""A step's commit has a record of the prompt that its reply saw: the trailer `Ctxvc-Prompt` (docs/format.md)."""

from __future__ import annotations

import re

import msgspec

_SENT = re.compile(r"([0-9a-f]{64}) (B[1-9][0-9]{0,11}|-)(?: ([+-][1-9][0-9]{0,8}))?")


class Sent(msgspec.Struct, frozen=True):
    """A commit's record of the prompt that its reply saw.

    `digest` is its hash, `last` its newest block. `later` counts the verbs in the open step before the call: their
    commits come right after the step's, and the sent prompt has their effect. Where it is negative, it counts the verbs
    between the call and its reply: their commits come right before the step's, and the sent prompt has not.
    """

    digest: str
    last: str
    later: int = 0

    def __str__(self) -> str:
        return f"{self.digest} {self.last or '-'}" + (f" {self.later:+}" if self.later else "")


def parse(trailer: str) -> Sent | None:
    """The record in a trailer; None if it is not one."""
    match = _SENT.fullmatch(trailer)
    return Sent(match[1], "" if match[2] == "-" else match[2], int(match[3] or 0)) if match else None
