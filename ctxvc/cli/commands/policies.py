"""`policies`: the policies and their knobs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import click

from ctxvc.cli.answers.shared import Answer, Item, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.policy_and_model import parsed
from ctxvc.cli.output import Column, Output, safe
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput

if TYPE_CHECKING:
    from ctxvc.core.policy import Policy


#: The most characters of a knob with its value in a line of the listing.
_KNOB = 24


@command("policies", "ctxvc policies layered")
@click.argument("name", metavar="[NAME]", default="")
@json_option
@click.pass_obj
def policies(app: App, name: str) -> None:
    """Here, removed content can always be recovered; brackets show whether the policy's original system can do so.
    NAME, or FILE.py:CLASS for your own, shows one policy with its knobs.
    """
    from ctxvc.policies import POLICIES

    own = [type(parsed(name, app.folder))] if ".py:" in name else []
    answer = Policies(items=[_item(kind) for kind in own or POLICIES if own or name in ("", kind.name)])
    if name and not answer.items:
        names = ", ".join(kind.name for kind in POLICIES)
        near = meant(name, [kind.name for kind in POLICIES])
        raise BadInput(f"there is no policy {name[:40]!r}{near}", hint=f"available: {names}")
    app.output.answer(
        answer, _policy_lines(app.output, answer.items[0]) if name else table_of(PolicyItem, answer.items)
    )


def _knobs(knobs: Mapping[str, str]) -> str:
    """`keep=0, low_water=0.4`; a long value is cut."""
    pairs = (f"{name}={value}" for name, value in knobs.items())
    return ", ".join(pair if len(pair) <= _KNOB else f"{pair[:_KNOB]}…" for pair in pairs)


def _item(kind: type[Policy]) -> PolicyItem:
    from ctxvc.policies.knobs import knob_units, knobs, word

    terms = kind().terms()
    return struct_of(
        PolicyItem,
        kind,
        about=inspect.cleandoc(kind.__doc__ or ""),
        tools=list(terms.tools),
        knobs={name: word(value) for name, value in knobs(kind).items()},
        units=dict(knob_units(kind)),
    )


def _policy_lines(output: Output, item: PolicyItem) -> Iterator[str]:
    yield output.style(f"{item.name}  ({item.source})" if item.source else item.name, bold=True)
    yield from safe(item.about).splitlines()
    yield ""
    yield f"decides: {item.decides}; the model sees: {item.sees}; recoverable: {item.recovers}"
    if item.tools:
        yield f"tools: {', '.join(item.tools)}"
    if item.knobs:
        yield "knobs:"
        knobs = [(f"  {name}={value}", item.units[name]) for name, value in item.knobs.items()]
        widest = max((len(knob) for knob, _ in knobs if len(knob) <= _KNOB), default=0)
        yield from (f"{knob:{widest}}  {unit}".rstrip() for knob, unit in knobs)


class PolicyItem(Item, frozen=True, kw_only=True):
    """A policy."""

    TABLE = "name decides sees recovers knobs source"

    name: Annotated[str, Column("policy")]
    about: str
    source: Annotated[str, described("where it was published; empty for our own"), Column("from", least=16, rank=1)]
    decides: Annotated[str, described("who decides what leaves"), Column("decides")]
    sees: Annotated[str, described("how the model sees its context"), Column("the model sees", least=20)]
    recovers: Annotated[str, described("whether removed content can be recovered"), Column("recoverable", least=11)]
    tools: Annotated[list[str], described("context tools that it gives the model")]
    knobs: Annotated[dict[str, str], described("name → default value"), Column("knobs", least=24, rank=2, cell=_knobs)]
    units: Annotated[dict[str, str], described("name → its unit or possible values; may be empty")]


class Policies(Answer, frozen=True, kw_only=True, tag="ctxvc.policies/1"):
    """`policies`"""

    items: list[PolicyItem]
