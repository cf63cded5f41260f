"""The shared parts of `--json` answers; each command has its own answer beside it (docs/json.md lists them)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import msgspec

from ctxvc.cli.output import Cell, Column, Styled, Table

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

#: Digits of a commit's id that people are shown.
SHORT = 12


def described(description: str) -> msgspec.Meta:
    """The annotation that describes a field in its schema and in docs/json.md."""
    return msgspec.Meta(description=description)


CommitId = Annotated[str, described("full id of a commit")]
TimeText = Annotated[str, described("ISO 8601, UTC; empty if unknown")]
TokenCount = Annotated[int, described("tokens, as counted by our tokenizer")]
#: Of a prompt, before and after a change; and those that the change took out beside the blocks that it names.
PromptTokens = Annotated[int, described("tokens of the prompt as recorded, as the provider would count them")]
CutTokens = Annotated[int, described("tokens of earlier thinking and dashboards that left with the change")]
ScopeName = Annotated[str, described("name of a scope")]
SessionName = Annotated[str, described("name of a session")]
BlockId = Annotated[str, described("`B17`")]
#: When a changed prompt is the one that the model is sent: with the next request, after the host's next compaction, or
#: in a session of the host that goes on from an export.
Effect = Literal["next-request", "next-compaction", "export"]
EffectField = Annotated[
    Effect,
    described(
        "when the model is sent the changed prompt: with the next request; where another program owns it, after "
        "its next compaction, or only in a session that goes on from an export"
    ),
]


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema"):
    """One printed answer of `--json`."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer. Those that people see as rows of a table name its columns in `TABLE`."""

    #: The fields and properties that a table shows, in its order. Each has a `Column` in its annotation.
    TABLE: ClassVar[str] = ""


def struct_of(kind: type[_Struct], *sources: object, **own: Any) -> _Struct:
    """An answer or item whose fields come from `own`, else from the attribute of that name of the first source that has
    one.
    """
    names = [name for name in kind.__struct_fields__ if name not in own]
    copied = {name: getattr(source, name) for source in sources[::-1] for name in names if hasattr(source, name)}
    return kind(**{name: list(value) if type(value) is tuple else value for name, value in copied.items()}, **own)


def table_of(
    kind: type[Item], items: Iterable[Item], *, heading: str = "", dim: Callable[[Any], bool] | None = None
) -> Table:
    """The table of some items; rows for which `dim` is true are dimmed. `heading` replaces the first column's name."""
    rows = list(items)
    columns = {
        name: column
        for name, column in _columns(kind).items()
        if not column.rare or any(getattr(item, name) for item in rows)
    }
    cells = [[_cell(column, getattr(item, name)) for name, column in columns.items()] for item in rows]
    headed = list(columns.values())
    headed[0] = headed[0]._replace(name=heading or headed[0].name)
    return Table(headed, cells, frozenset(at for at, item in enumerate(rows) if dim and dim(item)))


def _columns(kind: type[Item]) -> dict[str, Column]:
    """Field or property → the column in its annotation, as `TABLE` orders them."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind.TABLE.split()
    hints |= {name: get_type_hints(getattr(kind, name).fget, include_extras=True)["return"]
              for name in names if isinstance(getattr(kind, name), property)}  # fmt: skip
    return {name: next(own for own in hints[name].__metadata__ if isinstance(own, Column)) for name in names}


def star(is_current: bool) -> Cell:
    """A green `*` for the current one; otherwise empty."""
    return Styled("*", "green") if is_current else ""


def unless_zero(number: int) -> Cell:
    """The number; empty for 0."""
    return number or ""


def first_ranges(blocks: Sequence[str], limit: int = 8) -> str:
    """The first ranges of some blocks and groups, and how many there are more: `B3–B9, G2 and 4 more`."""
    from ctxvc.core.plan import selection  # `--help` loads nothing of the core's plans

    ranges = selection.ranges(blocks)
    more = f" and {len(ranges) - limit:,} more" if len(ranges) > limit else ""
    return ", ".join(ranges[:limit]) + more


def short(commit: str) -> str:
    """The first digits of a commit's id, as people see it."""
    return commit[:SHORT]


def _cell(column: Column, value: Any) -> Cell:
    cell: Cell = column.cell(value) if column.cell else value
    return cell


class LeftOut(Item, frozen=True, kw_only=True):
    """A request that was not carried out."""

    target: str
    why: Annotated[str, described("a word: `unknown`, `open`, `pinned`, `human`, `gone`, `no saving`, …")]
    text: str


class ActedGroup(Item, frozen=True, kw_only=True):
    """A group that has changed."""

    id: Annotated[str, described("`G3`")]
    level: int
    members: Annotated[list[str], described("blocks and groups; empty if the group is gone")]
    stub: str
