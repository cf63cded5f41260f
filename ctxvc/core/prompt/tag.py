"""Tags: a few words after a result in the prompt that name it, so that a model can refer to what it sees.

A tag is written into the row before the result is first sent, and never again: what was sent does not change. Results
that were in the prompt without one, as those of a recording, get theirs after a cut, where the prefix breaks anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec

from ctxvc.core.display import human_tokens
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt.cut import newest_reply

#: Results of fewer tokens have no tag, because they are no candidates to leave.
LEAST = 40
#: The first version of rendering in which results have tags (`Meta.render`).
SINCE = 2
#: The items of a result that a text of ours may follow.
_PLAIN = frozenset({"text", "image", "document"})

Tokens = Callable[[Row], int]
Body = Callable[[Row], bytes]


def tagged(
    rows: Iterable[Row], ledger: Ledger, *, count: Tokens, estimate: Callable[[int], int], body: Body
) -> Iterator[Row]:
    """The rows among `rows` that get a tag, with it.

    `count` is the cost of a body in our tokens, `estimate` the provider's tokens for that, `ledger` has the calls.
    """
    for row in rows:
        if _lacks_tag(row) and (tokens := count(row)) >= LEAST and _takes_text(row, ledger, body):
            yield msgspec.structs.replace(row, tag=f"[{row.id} · {human_tokens(estimate(tokens))}]")


def due(ledger: Ledger) -> list[Row]:
    """The results in the prompt without a tag that were not sent since the newest cut, or not at all."""
    if ledger.meta.render < SINCE:
        return []
    cut = ledger.meta.cuts[-1] if ledger.meta.cuts else 0
    reply = newest_reply(ledger)
    sent = reply[-1].number if reply else 0
    return [row for row in without(ledger) if row.number <= cut or row.number > sent]


def without(ledger: Ledger) -> list[Row]:
    """The results in the prompt that have no tag."""
    return list(chain.from_iterable(ledger.by_segment(_without)))


def any_tag(ledger: Ledger) -> bool:
    """Whether any result has one, which means that a program that writes tags sent the prompt."""
    return any(ledger.by_segment(_has_one))


def _has_one(rows: tuple[Row, ...]) -> bool:
    return any(row.tag for row in rows)


def _without(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if _lacks_tag(row)]


def _lacks_tag(row: Row) -> bool:
    return row.kind == "tool_result" and not row.tag and row.state in ("visible", "pinned")


def _takes_text(row: Row, ledger: Ledger, body: Body) -> bool:
    """Whether a text may follow the result: only the model reads it, and it contains only plain items."""
    call = ledger.get(row.parent) if row.parent else None
    caller = call.extra.get("caller") if call else None
    if isinstance(caller, dict) and caller.get("type") != "direct":
        return False
    if wire.own_metadata(row.extra).get("parts") is not True:
        return "openai" not in row.extra or not row.extra["openai"].get("parts")
    items = wire.items(body(row), row.extra)
    return items is not None and all(isinstance(item, dict) and item.get("type") in _PLAIN for item in items)
