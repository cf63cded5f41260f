"""What came into a store, for people and as JSON: `pull` and `clone` print it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from ctxvc.cli.answers.shared import Item, ScopeName, SessionName, described, struct_of
from ctxvc.cli.output import counted, safe
from ctxvc.sharing.pull import Arrival

#: The most sessions that are named.
MOST = 20


class PulledSession(Item, frozen=True, kw_only=True):
    """A session that came in or went on."""

    session: SessionName
    clone: Annotated[str, described("the clone that pushed it")]
    created: Annotated[bool, described("whether it is new in this store")]
    scopes: Annotated[list[ScopeName], described("its scopes that moved")]
    apart: Annotated[list[ScopeName], described("new lines of scopes that grew in both clones")]


def items(arrivals: Iterable[Arrival]) -> list[PulledSession]:
    return [struct_of(PulledSession, arrival, created=arrival.is_new) for arrival in arrivals]


def lines(place: str, pulled: list[PulledSession]) -> Iterator[str]:
    new = sum(item.created for item in pulled)
    yield safe(f"from {place}: {counted(new, 'new session')}, {len(pulled) - new} continued")
    for item in pulled[:MOST]:
        yield safe(f"  {item.session}: {', '.join(item.scopes[:8])} of {item.clone}")
        for scope in item.apart:
            base = scope.partition("@")[0]
            join = f"`ctxvc goto {scope} --session {item.session}` joins them"
            yield safe(f"    {base} grew here and there: theirs is {scope}; {join}")
    if len(pulled) > MOST:
        yield f"  and {len(pulled) - MOST} more"
