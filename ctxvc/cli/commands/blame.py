"""`blame`: the history of a block or a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers.commits import LogItem, OfCommit, log_item, stored_of
from ctxvc.cli.answers.shared import Answer, Item, ScopeName, SessionName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Column, Guess, Output, Tokens, counted
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.plan import selection
from ctxvc.errors import NotFound
from ctxvc.inspection import blame as blaming
from ctxvc.inspection.captions import label_of
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.read.address import Resolved
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices

#: Blocks of an object that an error names.
_NAMED = 8


@command("blame", "ctxvc blame B17")
@click.argument("name", metavar="ID")
@json_option
@click.pass_obj
def blame(app: App, name: str) -> None:
    """Also what it cost: how much of it was sent with each call of the model. ID is `B17` or `G3`, one in another scope
    such as `SCOPE:B17`, or the id of a call.
    """
    with app.reading() as stored:
        address = addresses.parse(name)
        resolved = addresses.target(stored, name)
        if resolved is None or (address and address.file):
            guess = addresses.guess(stored, name)
            hint = f"did you mean {guess}?" if guess else "as in `ctxvc blame B17`; `ctxvc status --all` lists them"
            raise NotFound(f"{name[:80]!r} is not a block or group", hint=hint)
        if resolved.group and resolved.group.id not in resolved.snapshot.ledger.groups:
            blocks = ", ".join(selection.ranges(resolved.group.members)[:_NAMED])
            raise NotFound(f"{name[:80]} is not one block or group but several blocks", hint=f"one of {blocks}")
        answer = _blamed(stored_of(stored, resolved), resolved)
    app.output.answer(answer, _blame_lines(app.output, answer))


def _blamed(stored: StoredSession, resolved: Resolved) -> Blamed:
    snapshot, item = resolved.snapshot, resolved.row or resolved.group
    assert item is not None
    ledger = snapshot.ledger
    met = blaming.events(stored, snapshot.scope, item.id)
    prices = Prices(Meter(stored.store, ledger.meta.tokenizer), snapshot.bodies, ledger.meta.model)
    stays = [_stay(stay, prices) for stay in blaming.stays(met, ledger) if stay.calls]
    model = met[0].entry.trailers.get("Ctxvc-Model", "") if met and met[0].entry else ""
    row = resolved.row
    return Blamed(
        session=snapshot.session,
        scope=snapshot.scope,
        id=item.id,
        handle=row.handle if row else item.id,
        type=row.kind if row else "group",
        origin=row.origin if row else "",
        model=model or ("" if met and met[0].entry else ledger.meta.model),
        tokens=prices.body(row) if row else _tokens_in_prompt(item, prices),
        reads=row.reads if row else 0,
        label=label_of(row, snapshot) if row else item.label,
        events=[_event(event, stored.store, item.id) for event in met],
        stays=stays,
        sent=sum(stay.sent for stay in stays),
    )


def _event(event: blaming.Event, store: Store, block: str) -> BlameEvent:
    commit = log_item(store, event.entry) if event.entry else None
    trailers = commit.trailers if commit else {}
    of_blocks = (text.partition(" ") for text in trailers.get("Ctxvc-Why", "").split("; "))
    own = next((why for name, _, why in of_blocks if name == block), "")
    reason = "; ".join(filter(None, (own, trailers.get("Ctxvc-Reason", ""))))
    return BlameEvent(what=event.what, reason=reason, commit=commit)


def _stay(stay: blaming.Stay, prices: Prices) -> BlameStay:
    tokens = 0 if stay.cut else _tokens_in_prompt(stay.item, prices)
    state = "cut" if stay.cut else stay.item.state if isinstance(stay.item, Row) else "archived"
    return struct_of(BlameStay, stay, state=state, tokens=tokens, sent=stay.calls * tokens)


def _tokens_in_prompt(item: Row | Group, prices: Prices) -> int:
    """Tokens that the item alone takes in the prompt: none if a group's stub replaces it."""
    if isinstance(item, Row) and item.present:
        return prices.mask(item) if item.state == "masked" else prices.body(item)
    pruned = isinstance(item, Row) and item.state == "pruned"
    return 0 if item.group or pruned or not item.stub else prices.text(item.stub)


def _blame_lines(output: Output, answer: Blamed) -> Iterator[str]:
    facts: list[tuple[str, Cell]] = [
        ("block" if answer.type != "group" else "group", answer.handle),
        ("in", f"{answer.session}/{answer.scope}"),
        ("type", f"{answer.type}, origin {answer.origin}" if answer.origin else answer.type),
        ("model", answer.model),
        ("label", answer.label),
        ("tokens", Guess(answer.tokens)),
        ("read", counted(answer.reads, "time") if answer.reads else ""),
        (
            "sent",
            f"{output.estimate(answer.sent)} tokens with {counted(sum(stay.calls for stay in answer.stays), 'call')}",
        ),
    ]
    yield from output.facts(facts)
    yield ""
    yield from output.table_lines(table_of(BlameEvent, answer.events))
    if not answer.stays:
        return
    yield ""
    yield from output.table_lines(table_of(BlameStay, answer.stays))


class BlameEvent(Item, OfCommit, frozen=True, kw_only=True):
    """An event in the history of a block or group."""

    TABLE = f"what {OfCommit.COMMIT} reason"

    what: Annotated[
        str, described("`brought in`, `made`, `read`, `restored`, `cut`, …, or its state since then"), Column("what")
    ]
    reason: Annotated[str, described("the reason given, for this block first; often empty"), Column("reason", least=12)]
    commit: Annotated[LogItem | None, described("null if not committed yet")]


class BlameStay(Item, frozen=True, kw_only=True):
    """Consecutive calls of the model that were sent the same part of it."""

    TABLE = "state steps calls tokens sent"

    state: Annotated[str, described("its state then; `cut` if a cut had taken it out"), Column("state")]
    first: Annotated[int, described("step of the first call")]
    last: Annotated[int, described("step of the last call")]
    calls: Annotated[int, Column("calls", right=True)]
    tokens: Annotated[
        int,
        described("with each call; 0 if nothing was in its place, or the stub of a group"),
        Column("tokens", right=True, cell=Tokens),
    ]
    sent: Annotated[int, described("tokens over all these calls"), Column("sent", right=True, cell=Tokens)]

    @property
    def steps(self) -> Annotated[str, Column("steps")]:
        return f"{self.first}-{self.last}"


class Blamed(Answer, frozen=True, kw_only=True, tag="ctxvc.blame/1"):
    """`blame`"""

    session: SessionName
    scope: ScopeName
    id: Annotated[str, described("`B17` or `G3`")]
    handle: str
    type: Annotated[str, described("the block's kind, or `group`")]
    origin: Annotated[str, described("`human`, `client`, `model` or `tool`; empty for a group")]
    model: Annotated[str, described("of the step in which it came in; empty if unknown")]
    tokens: Annotated[int, described("of the body, or of a group's stub")]
    reads: Annotated[int, described("how often it was recovered")]
    label: str
    sent: Annotated[int, described("tokens sent for it, over all calls")]
    events: list[BlameEvent]
    stays: list[BlameStay]
