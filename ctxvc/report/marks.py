"""What happened between two calls, as marks on the river. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ctxvc.core import display
from ctxvc.report.data import Mark, MarkKind
from ctxvc.report.lines import Change

#: An operation → its mark. Steps, and what only keeps the prompt in order, have none.
_KINDS: Mapping[str, MarkKind] = {
    "compact": "compaction",
    "recover": "recover",
    **dict.fromkeys(
        ("archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise", "plan", "edit"), "plan"
    ),
    **dict.fromkeys(("undo", "redo"), "undo"),
    **dict.fromkeys(("scope", "goto"), "scope"),
    "note": "note",
}
#: What comes between two calls and takes nothing out of the prompt.
_ADDING = frozenset({"step", "note", "settings", "tag", "ask", "fault", "link", "pin", "unpin"})
#: Columns of a label.
_LABEL = 160


def marks(changes: Iterable[Change], call: int, clean: Callable[[str], str]) -> Iterator[Mark]:
    """The marks of changes that a call was the first to see."""
    for change in changes:
        if kind := _KINDS.get(change.op):
            yield _mark(kind, change, call, display.one_line(change.entry.subject, _LABEL), clean)


def prefix_break(changes: Sequence[Change], call: int, tokens: int, clean: Callable[[str], str]) -> Mark:
    """The mark of a call whose prompt does not begin with the whole of the one before: `tokens` had to be sent anew.

    It names the newest change that can have done that.
    """
    causes = [change for change in changes if change.op not in _ADDING]
    cause = causes[-1] if causes else None
    label = f"{display.human_tokens(tokens)} tokens behind the break"
    if cause is None:
        return Mark(call=call, kind="break", label=label, commit="", actor="")
    return _mark("break", cause, call, f"{label}: {display.one_line(cause.entry.subject, _LABEL)}", clean)


def _mark(kind: MarkKind, change: Change, call: int, label: str, clean: Callable[[str], str]) -> Mark:
    return Mark(call=call, kind=kind, label=clean(label), commit=change.entry.commit, actor=change.actor)
