"""A row of a ledger as an example has it."""

from __future__ import annotations

import msgspec

from ctxvc.core.ledger.ledger import Row


def made(number: int, **fields: object) -> Row:
    """The result of a call in a step of its own, but for these fields."""
    usual = Row(
        id=f"B{number}", kind="tool_result", role="user", origin="tool", msg=number, step=number, turn=1, bytes=1,
        sha256="0" * 64,
    )  # fmt: skip
    return msgspec.structs.replace(usual, **fields)
