"""What a model is told about its context and the tools on it: one text, the same for every model (VISTA, appendix D).

It is made of paragraphs, each of which belongs to a tool, to the dashboard or to all sessions. So a session that lacks
a tool lacks its paragraph and nothing else: what a paragraph says of another tool is told only where that is there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from ctxvc.core.policy import Board

#: Which of the two wordings; they say the same.
Wording = Literal["usual", "alt"]

#: What counts as a tool here: that a note may archive what led to it.
FOLD = "fold"


class _Needs(NamedTuple):
    """The tools a session must have for a paragraph: all of these, at least one of these, and none of those."""

    every: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none: tuple[str, ...] = ()


#: Paragraph → the sessions in which it is told, in the order of the text.
_NEEDS: Mapping[str, _Needs] = {
    "budget": _Needs(),
    "full": _Needs(),
    "status": _Needs(),
    "when": _Needs(any_of=("archive", "delete")),
    "archive": _Needs(every=("archive",)),
    "stubs": _Needs(every=("recover",)),
    "traces": _Needs(none=("recover",)),
    "blocked": _Needs(),
    "overflow": _Needs(any_of=("archive", "delete", FOLD, "scope")),
    "recover": _Needs(every=("recover",)),
    "restore": _Needs(every=("restore",)),
    "search": _Needs(every=("search",)),
    "delete": _Needs(every=("delete",)),
    "want": _Needs(every=("delete", "archive")),
    "note": _Needs(every=("note",)),
    "fold": _Needs(every=("note", FOLD)),
    "scopes": _Needs(every=("scope",)),
    "leaving": _Needs(every=("goto",)),
}
#: The paragraphs of which at most one is told: what the model sees of its context.
_BOARDS = frozenset({"full", "status"})

_USUAL: Mapping[str, str] = {
    "budget": (
        "Your context has a budget of tokens, into which instructions, tools and the whole conversation must fit. Each "
        "piece of the conversation is a block with an id, as in B17; blocks that left together are a group, as in G3."
    ),
    "full": (
        "From time to time a dashboard shows how it stands: how much of the budget is used, your notes, and a row for "
        "each block with its tokens, its age in steps, its state and how often it was read. The program writes it, "
        "not the user."
    ),
    "status": ("From time to time a line shows how much of the budget is used. The program writes it, not the user."),
    "when": (
        "Change your context only where the task gains by it. That a block is old or large, or that it is listed, is "
        "no reason: while there is room, leave it. Reasons are that its work is done and written down, that it was a "
        "dead end, or that the next step needs the room."
    ),
    "archive": (
        "archive(blocks, index) takes blocks out of the prompt, as in `B3`, `B3,B5-B9` or `G2`. Say in the index what "
        "they hold and what one would look for in them."
    ),
    "stubs": (
        "Where something left, a stub stands in square brackets: its handle, which is the id with the beginning of "
        "its checksum, as in B17@3fa9c1, then what it was and its size. A stub only points; never take exact words or "
        "numbers from it."
    ),
    "traces": (
        "Where something left, a line stands in square brackets: its id, what it was and its size. You cannot read "
        "again what left, so never take exact words or numbers from such a line."
    ),
    "blocked": "A blocked result did run, but there was no room for it: do not run it again.",
    "overflow": "While there is no room for a result, calls of tools that make none are refused.",
    "recover": (
        "What left is kept whole. recover(block, lines) reads it, or a part of it, as a new result. Take no more than "
        "you need. It is what the tool said then: if that was cut, or may be out of date, ask the source again."
    ),
    "restore": "restore(blocks) puts blocks back where they stood.",
    "search": "search(pattern) finds lines in every block of the session, also in those that left the prompt.",
    "delete": ("delete(blocks, reason) is for what is wrong or of no use to anybody: you cannot get it back."),
    "want": "Want of room is no reason to delete.",
    "note": (
        "note(text) writes down what has to outlast its blocks: findings, decisions, exact names and numbers. Notes "
        "stay in the prompt."
    ),
    "fold": "With fold, a note takes the work that it covers out of the prompt.",
    "scopes": (
        "scope(name, note) begins a piece of work in a prompt of its own, which has your notes but not the messages; "
        "goto(name, note) goes to another, which stands as it was left. The note is what you bring along. scopes() "
        "and notes(scope) list what there is."
    ),
    "leaving": "Before you leave a scope, note what you learned in it: its messages are not seen from another one.",
}

_ALT: Mapping[str, str] = {
    "budget": (
        "There is a limit in tokens for all that you get to read at once: instructions, tools, conversation. The "
        "conversation consists of blocks with ids like B17, and of groups like G3 for blocks that were put away "
        "together."
    ),
    "full": (
        "A table of your context, the dashboard, appears now and then. It gives the share of the limit in use, the "
        "notes, and for every block tokens, age in steps, state and number of reads. It comes from the program and "
        "not from the user."
    ),
    "status": (
        "One line about your context appears now and then. It gives the share of the limit in use. It comes from the "
        "program and not from the user."
    ),
    "when": (
        "Leave the context alone unless the task is better off. Age, size or a row in a list do not speak against a "
        "block as long as everything fits. Put away what is finished and noted, what led nowhere, and what stands in "
        "the way of the next step."
    ),
    "archive": (
        "With archive(blocks, index) you put blocks away, named like `B3`, `B3,B5-B9` or `G2`. Let the index tell what "
        "is inside and what it would be needed for."
    ),
    "stubs": (
        "What was put away leaves a line in square brackets, its stub: a handle like B17@3fa9c1 (id and first digits "
        "of the checksum), the sort of block, the size. Stubs are signposts, not evidence: quote nothing from them."
    ),
    "traces": (
        "What was put away leaves a line in square brackets: the id, the sort of block, the size. It is not to be "
        "had back by you: quote nothing from such a line."
    ),
    "blocked": (
        "If a result is marked blocked, its call was carried out, only the result was too large to show. Do not "
        "repeat the call."
    ),
    "overflow": "As long as a result lacks room, tools that do not make any will not answer.",
    "recover": (
        "Whatever was put away is stored in full. With recover(block, lines) you read all of it or some lines, as a "
        "new result. Ask for little. Stored content is as old as its call, and cut where that was cut: go back to the "
        "source when it matters."
    ),
    "restore": "With restore(blocks) you let blocks return to their old place.",
    "search": "With search(pattern) you look for lines in all blocks of the session, put away or not.",
    "delete": (
        "With delete(blocks, reason) you remove what is mistaken or worthless, for good as far as you are concerned."
    ),
    "want": "Do not delete to gain room.",
    "note": (
        "With note(text) you keep what matters beyond the blocks it was found in: results, decisions, names and "
        "numbers to the letter. Notes remain visible."
    ),
    "fold": "Add fold to a note to put away the work behind it.",
    "scopes": (
        "With scope(name, note) you start a separate piece of work that sees your notes and not the messages; with "
        "goto(name, note) you change to one that exists and is as you left it. The note goes with you. See scopes() "
        "and notes(scope)."
    ),
    "leaving": "Make a note of what you learned before you change scopes: messages stay behind in the scope you leave.",
}


def text(tools: Iterable[str], *, board: Board = "full", wording: Wording = "usual", folds: bool = True) -> str:
    """The protocol of a session with these context tools, whose model sees this much of its context.

    Paragraphs are parted by an empty line, and none has one in it. `folds` is as in `Terms`.
    """
    with_fold = _with_fold(tools, folds)
    return "\n\n".join(paragraph(name, wording) for name in _NEEDS if _applies(name, with_fold, board))


def fitting(protocol: str, tools: Iterable[str], *, board: Board, folds: bool) -> str:
    """A protocol without those of our paragraphs that a session with these tools would not be told."""
    with_fold = _with_fold(tools, folds)
    ours = {paragraph(name, wording): name for wording in get_args(Wording) for name in _NEEDS}
    fitting_texts = (
        paragraph_text
        for paragraph_text in protocol.split("\n\n")
        if paragraph_text not in ours or _applies(ours[paragraph_text], with_fold, board)
    )
    return "\n\n".join(fitting_texts)


def paragraph(name: str, wording: Wording = "usual") -> str:
    """One paragraph, by its name: `budget`, `full`, `status`, `when`, `stubs`, `blocked`, …, or that of a tool."""
    return (_USUAL if wording == "usual" else _ALT)[name]


def _with_fold(tools: Iterable[str], folds: bool) -> frozenset[str]:
    names = frozenset(tools)
    return names | {FOLD} if folds and "note" in names else names


def _applies(name: str, tools: frozenset[str], board: Board) -> bool:
    if name in _BOARDS:
        return name == board
    needs = _NEEDS[name]
    return tools.issuperset(needs.every) and tools.isdisjoint(needs.none) and _one_of(tools, needs.any_of)


def _one_of(tools: frozenset[str], options: tuple[str, ...]) -> bool:
    return not options or not tools.isdisjoint(options)
