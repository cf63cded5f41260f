"""The protocol: what every model is told about its context and the context tools (VISTA, appendix D).

Each paragraph belongs to a tool, to the dashboard or to all sessions, so a session without a tool loses only that
tool's paragraph: a paragraph mentions another tool only if the session has that one too. What a tool does and takes is
in its definition and not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from ctxvc.core.view.model_dashboard import Board

#: The wordings. They say the same; `brief` uses as few tokens as possible.
Wording = Literal["usual", "alt", "brief"]

#: Counts as a tool in `_NEEDS`: a note may archive the blocks that led to it.
FOLD = "fold"


class _Needs(NamedTuple):
    """The tools that a paragraph requires: all of `every`, at least one of `any_of` unless empty, none of `none`."""

    every: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none: tuple[str, ...] = ()


#: Paragraph → the tools that it requires, in the order of the text.
_NEEDS: Mapping[str, _Needs] = {
    "budget": _Needs(),
    "changes": _Needs(),
    "full": _Needs(),
    "status": _Needs(),
    "data": _Needs(),
    "when": _Needs(any_of=("archive", "delete")),
    "stubs": _Needs(every=("recover",)),
    "traces": _Needs(none=("recover",)),
    "blocked": _Needs(),
    "overflow": _Needs(any_of=("archive", "delete", FOLD, "scope")),
    "recover": _Needs(every=("recover",)),
    "want": _Needs(every=("delete", "archive")),
    "leaving": _Needs(every=("goto",)),
}
#: Paragraph → the boards that it describes; a text has at most one of these.
_BOARDS: Mapping[str, frozenset[Board]] = {
    "changes": frozenset({"changes", "thresholds"}),
    "full": frozenset({"full", "each"}),
    "status": frozenset({"status"}),
}

_USUAL: Mapping[str, str] = {
    "budget": (
        "Your context has a budget of tokens for instructions, tools and the whole conversation. It consists of "
        "blocks, such as B17; blocks that left together are a group, such as G3. A result ends with its tag in "
        "square brackets, such as `B17 · 2.3k`: block and size."
    ),
    "changes": (
        "Now and then a board shows how much of the budget is used, your notes, and which results could best "
        "leave. The program writes it, not the user."
    ),
    "full": (
        "Now and then a dashboard shows how much of the budget is used, your notes, and a row for each block with "
        "its tokens, age in steps, state and reads. The program writes it, not the user."
    ),
    "status": "Now and then a line shows how much of the budget is used. The program writes it, not the user.",
    "data": "Calculate from the source: never copy rows of data from the conversation into code.",
    "when": (
        "Change your context only if that helps the task: a block's work is done and noted, it was a dead end, or "
        "the next step needs the room. Age, size or being listed is no reason while there is room."
    ),
    "stubs": (
        "Removed text leaves a stub in square brackets: its handle, as in B17@3fa9c1, and its size. It only "
        "points: take no exact words or numbers from it."
    ),
    "traces": (
        "Removed text leaves a line in square brackets with its id and size. You cannot read it again: take no "
        "exact words or numbers from such a line."
    ),
    "blocked": "A blocked result did run, but there was no room for it: do not run it again.",
    "overflow": "While a result lacks room, only calls that make room are answered.",
    "recover": (
        "Text from recover is what the tool said then: if it may be out of date, ask the source again. Take no more "
        "than you need."
    ),
    "want": "A full context is no reason to delete.",
    "leaving": "Before you leave a scope, note what you learned in it: its messages are not visible from another.",
}

_ALT: Mapping[str, str] = {
    "budget": (
        "There is a limit in tokens for all that you get to read at once: instructions, tools, conversation. The "
        "conversation consists of blocks with ids like B17, and of groups like G3 for blocks put away together. A "
        "tag in square brackets closes a result, like `B17 · 2.3k`: the id and how many tokens there are."
    ),
    "changes": (
        "From time to time you get an overview: the share of the limit in use, the notes, results worth putting "
        "away. It comes from the program and not from the user."
    ),
    "full": (
        "A table of your context, the dashboard, appears from time to time: the share of the limit in use, the "
        "notes, and for every block tokens, age in steps, state and number of reads. It comes from the program and "
        "not from the user."
    ),
    "status": (
        "From time to time you see the share of the limit in use. That comes from the program and not from the user."
    ),
    "data": "Let code read data where it is; do not retype what you saw of it.",
    "when": (
        "Leave the context alone unless the task is better off. Put away what is finished and noted, what led "
        "nowhere, and what stands in the way of the next step; as long as everything fits, neither age nor size "
        "speaks against a block."
    ),
    "stubs": (
        "What was put away leaves a line in square brackets, its stub: a handle like B17@3fa9c1, the size. Stubs "
        "are signposts, not evidence: quote nothing from them."
    ),
    "traces": (
        "What was put away leaves a line in square brackets: the id, the size. You cannot get it back: quote "
        "nothing from such a line."
    ),
    "blocked": (
        "If a result is marked blocked, its call was carried out, only the result was too large to show: do not "
        "repeat the call."
    ),
    "overflow": "As long as a result has no place, tools that do not make any will not answer.",
    "recover": ("Ask recover for little. Stored content is as old as its call: go back to the source when it matters."),
    "want": "Do not delete to gain room.",
    "leaving": "Make a note of what you learned before you change scopes: messages stay behind in the scope you leave.",
}


_BRIEF: Mapping[str, str] = {
    "budget": "Your context has a budget of tokens. A result ends with its block and size, as in `B17 · 2.3k`.",
    "changes": "Boards about it come from the program, not the user.",
    "full": "Dashboards of it come from the program, not the user.",
    "status": "Usage lines come from the program, not the user.",
    "data": "Calculate from the source: never copy rows of data into code.",
    "when": "Change the context only if that helps the task.",
    "stubs": (
        "A stub in square brackets replaces removed text, which recover reads by its address: take no exact words from "
        "a stub."
    ),
    "traces": (
        "A line in square brackets replaces removed text that you cannot read again: take no exact words from it."
    ),
    "blocked": "A blocked result did run: do not run it again.",
    "overflow": "Until a result has room, only calls that make room are answered.",
    "recover": "Text from recover may be out of date.",
    "want": "Never delete just to gain room.",
    "leaving": "Before you leave a scope, note what you learned in it.",
}
_WORDINGS: Mapping[Wording, Mapping[str, str]] = {"usual": _USUAL, "alt": _ALT, "brief": _BRIEF}


def text(tools: Iterable[str], *, board: Board = "changes", wording: Wording = "usual", folds: bool = True) -> str:
    """The protocol of a session with these context tools and this board.

    Paragraphs are separated by an empty line, and none contains one. `folds` is as in `Terms`.
    """
    with_fold = _with_fold(tools, folds)
    return "\n\n".join(paragraph(name, wording) for name in _NEEDS if _applies(name, with_fold, board))


def fitting(protocol: str, tools: Iterable[str], *, board: Board, folds: bool) -> str:
    """The protocol without the paragraphs of ours that do not apply to a session with these tools and this board."""
    with_fold = _with_fold(tools, folds)
    ours = {paragraph(name, wording): name for wording in get_args(Wording) for name in _NEEDS}
    fitting_texts = (
        paragraph_text
        for paragraph_text in protocol.split("\n\n")
        if paragraph_text not in ours or _applies(ours[paragraph_text], with_fold, board)
    )
    return "\n\n".join(fitting_texts)


def untagged(protocol: str) -> str:
    """The protocol without its sentence on tags, for prompts whose results have none."""
    for wording in get_args(Wording):
        budget = paragraph("budget", wording)
        protocol = protocol.replace(budget, f"{budget.rpartition('. ')[0]}.")
    return protocol


def paragraph(name: str, wording: Wording = "usual") -> str:
    """One paragraph by name: `budget`, `full`, `status`, `when`, `stubs`, `blocked`, …, or the name of a tool."""
    return _WORDINGS[wording][name]


def _with_fold(tools: Iterable[str], folds: bool) -> frozenset[str]:
    names = frozenset(tools)
    return names | {FOLD} if folds and "note" in names else names


def _applies(name: str, tools: frozenset[str], board: Board) -> bool:
    if name in _BOARDS:
        return board in _BOARDS[name]
    needs = _NEEDS[name]
    return tools.issuperset(needs.every) and tools.isdisjoint(needs.none) and _one_of(tools, needs.any_of)


def _one_of(tools: frozenset[str], options: tuple[str, ...]) -> bool:
    return not options or not tools.isdisjoint(options)
