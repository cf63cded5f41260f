"""Digests: what was done in blocks that leave together, with the names of what was in them."""

from __future__ import annotations

from typing import Any

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.wire import call_part, compact, result_part
from ctxvc.core.prompt.digest import Digest, Exchange, NamesOfBlock, digest, text, with_names
from tests.policies.recorded import Run, running

_RESULT = "the build wrote checkpoint.go, retention.go"


def _of(run: Run, call: str) -> Digest:
    """The digest of the exchange with this call."""
    rows = [row for row in run.ledger.rows() if row.call == call]
    read = [*facts(rows[0].tool, run.words(rows[0]), rows[0].ext)]
    return digest(rows, [Exchange(rows[0], rows[1])], (), run.words, lambda _: read)


def test_a_result_has_other_names_for_what_ran_than_for_what_was_read_with_one_cache() -> None:
    run = running(
        Message(role="assistant", parts=(call_part("Bash", "t1", compact({"command": "make all"})),)),
        Message(role="user", parts=(result_part(_RESULT, "t1"),)),
        Message(role="assistant", parts=(call_part("Read", "t2", compact({"file_path": "build.log"})),)),
        Message(role="user", parts=(result_part(_RESULT, "t2"),)),
    )
    cache: dict[Any, NamesOfBlock] = {}
    ran, read = (
        text(with_names(_of(run, call), run.words, (), lambda _: 400, 100, cache), 400) for call in ("t1", "t2")
    )
    assert ran == "ran make all (checkpoint.go retention.go)"
    assert read == "read build.log"
