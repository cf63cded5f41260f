"""Captions: what a block is, and what a step did, as a person reads it in a list or in `git log --oneline`.

A label (`core.ledger.label`) is stored in a row, and a prompt may show it. A caption is made from the bodies when it is
needed: a result is named by its call, and paths are relative to the session's folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import facts, wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import speaks

#: Columns of a step's caption, and of the human's words in it.
WIDTH = 72
HUMAN = 30
#: Maximum characters of a caption and of a tool's name; characters of a script that are analysed.
_LONGEST = 400
_TOOL = 40
_SCRIPT = 8_000

_ON_PATH: frozenset[facts.Deed] = frozenset({"edited", "wrote", "deleted", "read", "listed"})
_MARKS = re.compile(r"^[#>\s]+|\*\*")
#: A line of a script that only sets a variable, or fills the file that a variable names.
_SETTING = re.compile(r"\w+=[^\s;&|]*(?:\$\([^()]*\)[^\s;&|]*)?|cat\s*>{1,2}\s*\"?\$\w+\"?\s*<<.*")
#: What a client writes around a person's command, and before a person's text.
_COMMAND = re.compile(r"<command-name>\s*([^<>]{1,80}?)\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>\s*([^<]{0,200})")
_SECTION = re.compile(r"\s*<([a-z0-9]{1,40}[_-][a-z0-9_-]{1,40})>[^<]{0,400}</\1>\s*")

#: How hosts write a command's exit code, on a line of its own; within how many bytes of either end.
_EXIT = re.compile(
    r"^\[?(?:(?:process |command )?(?:exit code:?|exited with code|finished with exit code) |<returncode>)"
    r"(\d{1,3})(?:\]|</returncode>)?\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_STATUS = 200
_INTERRUPTS = ("[Request interrupted", "<turn_aborted>")

#: Returns the body of a row.
BodyOf = Callable[[Row], bytes]


class CallCaption(NamedTuple):
    """A call as people see it: its tool, its object, and a detail such as `+3 −1`. `act` is empty for a script."""

    tool: str
    object: str = ""
    detail: str = ""
    act: str = ""

    def fitted(self, width: int = _LONGEST) -> str:
        """`Edit internal/strategy/bootstrap.go +12 −3` in at most `width` columns."""
        tool = display.fitted(self.tool, min(width, _TOOL))
        room = width - display.columns(tool) - (display.columns(self.detail) + 1 if self.detail else 0) - 1
        if not self.object or room < 2:
            return display.fitted(" ".join(filter(None, (tool, self.detail))), width)
        return " ".join(filter(None, (tool, display.fitted(self.object, room), self.detail)))


def of_call(tool: str, body: bytes, ext: str = "json", folder: str = "") -> CallCaption:
    """The caption of a call with these arguments. Paths in `folder`, the session's, are shown relative to it."""
    name = display.one_line(tool, _TOOL) or "call"
    did = facts.script_or_facts(tool, body, ext)
    if isinstance(did, str):
        return CallCaption(name, display.one_line(_command(did, folder), _LONGEST))
    fact, *more = did
    detail = display.one_line(fact.detail, _TOOL)
    files = {also.object for also in more} - {fact.object}
    if fact.act in _ON_PATH and files:
        detail = " ".join(filter(None, (detail, f"(+{len(files)} file{'' if len(files) == 1 else 's'})")))
    if fact.act in _ON_PATH:
        path = " ".join(relative(fact.object, folder).split())
        safe = display.one_line(path, len(path) + 1)
        return CallCaption(name, display.path_fitted(safe, _LONGEST), detail, fact.act)
    if fact.act == "searched" and detail:
        detail = f"in {detail}"
    return CallCaption(name, display.one_line(_in_folder(fact.object, folder), _LONGEST), detail, fact.act)


def of_row(row: Row, ledger: Ledger, body_of: BodyOf) -> str:
    """A block in a few words, on one line: a call or its result by the call, anything else by its first words.

    Thinking that the provider hides is shown by its summary, or as `hidden thinking`.
    """
    if row.kind == "thinking" and row.ext == "json":
        return _summary(body_of(row)) or "hidden thinking"
    call = row if row.kind == "tool_use" else None
    if row.kind == "tool_result" and row.parent:
        answered = ledger.get(row.parent)
        call = answered if answered is not None and answered.kind == "tool_use" else None
    body = body_of(call) if call is not None else b""
    if call is None or not body:
        return row.label
    return of_call(call.tool, body, call.ext, folder_of(ledger)).fitted()


def of_step(rows: Sequence[Row], body_of: BodyOf, folder: str = "", width: int = WIDTH) -> str:
    """`“fix the login test” · Read auth.py (+2 calls)`: a step in at most `width` columns.

    It consists of the human's first words, if there are any, and the first call, or else the answer's first words.
    """
    request = human_words(rows)
    head = f"“{request}” · " if request else ""
    return head + of_reply(rows, body_of, folder, width - display.columns(head))


def human_words(rows: Sequence[Row], width: int = HUMAN) -> str:
    """The first words of what a human said in these rows; empty if nobody did."""
    spoken = [row for row in rows if speaks(row.kind, row.role, row.origin)]
    texts = (display.fitted(plain(row.label), width) for row in spoken if row.kind == "user")
    return next(filter(None, texts), "") or next((f"[{display.fitted(row.label, width - 2)}]" for row in spoken), "")


def of_reply(rows: Sequence[Row], body_of: BodyOf, folder: str = "", width: int = WIDTH) -> str:
    """What the model did in a step, in at most `width` columns."""
    calls = [row for row in rows if row.kind == "tool_use"]
    if calls:
        suffix = _suffix(rows, calls)
        room = width - (display.columns(suffix) + 1 if suffix else 0)
        caption = of_call(calls[0].tool, body_of(calls[0]), calls[0].ext, folder).fitted(room)
        return f"{caption} {suffix}" if suffix else caption
    texts = (plain(row.label) for row in rows if row.kind == "assistant")
    if answer := next(filter(None, texts), ""):
        return display.fitted(answer, width)
    if rows and all(row.kind == "other" and row.state == "pruned" for row in rows):
        return f"{len(rows)} record{'' if len(rows) == 1 else 's'} of a framework"
    return "no reply" if not any(row.role == "assistant" for row in rows) else "a reply without text"


def folder_of(ledger: Ledger) -> str:
    """The folder that the session worked in, according to its recording; empty if unknown."""
    return ledger.meta.source.cwd if ledger.meta.source else ""


def relative(path: str, folder: str) -> str:
    """`path` relative to `folder` if it is below it, else unchanged."""
    folder = folder.rstrip("/\\")
    if not folder or not path.startswith(folder):
        return path
    below = path[len(folder) :]
    return (below[1:] or ".") if below[:1] in ("/", "\\", "") else path


def _summary(body: bytes) -> str:
    """The first words of a reasoning item's summary; empty without one."""
    match wire.parsed(body, dict):
        case {"summary": [{"text": str(text)}, *_]}:
            return display.one_line(_MARKS.sub("", text), _LONGEST)
    return ""


def _suffix(rows: Sequence[Row], calls: Sequence[Row]) -> str:
    """`(failed, +2 calls)`: how the first call ended unless it succeeded, and the number of other calls."""
    result = next((row for row in rows if row.kind == "tool_result" and row.call == calls[0].call), None)
    parts = []
    if result is not None and (ended := ending(result)):
        parts.append(ended)
    if len(calls) > 1:
        parts.append(f"+{len(calls) - 1} call{'' if len(calls) == 2 else 's'}")
    return f"({', '.join(parts)})" if parts else ""


def ending(result: Row, output: bytes = b"") -> str:
    """How a call ended, by its result: `interrupted`, `exit 2`, `failed`; empty if it succeeded.

    `output` is the result's body if the call ran a command: hosts write the exit code there.
    """
    if wire.own_metadata(result.extra).get("interrupted"):
        return "interrupted"
    code = next((int(match[1]) for part in _ends(output) if (match := _EXIT.search(part))), None)
    if code:
        return f"exit {code}"
    return "failed" if result.error else ""


def interrupts(row: Row) -> bool:
    """Whether a block is a client's notice that a person stopped the model."""
    return row.origin == "client" and row.label.startswith(_INTERRUPTS)


def _ends(output: bytes) -> tuple[str, ...]:
    """The beginning and the end of an output, where a host writes a command's exit code."""
    return (display.decode(output[:_STATUS]), display.decode(output[-_STATUS:])) if output else ()


def plain(label: str) -> str:
    """A text's first words without heading or list marks, and without what a client put around them."""
    if label.startswith("<"):
        if command := _COMMAND.search(label):
            arguments = _ARGUMENTS.search(label)
            return " ".join(filter(None, (command[1], arguments[1].strip() if arguments else "")))
        at = 0
        while (section := _SECTION.match(label, at)) and section.end() < len(label):
            at = section.end()
        label = label[at:]
    return _MARKS.sub("", label)


# --- scripts


def _command(script: str, folder: str) -> str:
    """The most telling line of a script: without a `cd` into the session's folder, a commit by its message."""
    head = script[:_SCRIPT].replace("\\\n", " ").strip()
    script_only = facts.without_documents(head)
    lines = [line.strip() for line in script_only.split("\n")]
    telling = [line for line in lines if line and not line.startswith("#") and not _SETTING.fullmatch(line)] or lines
    first = _in_folder(telling[0], folder)
    if first.startswith("cd . "):
        first = first.removeprefix("cd . ").lstrip("&; ") or first
    elif first in ("cd .", "cd . &&", "cd .;") and len(telling) > 1:
        first, telling = _in_folder(telling[1], folder), telling[1:]
    if first.startswith(("git commit ", "git add ")) and (message := facts.commit_message(head)):
        return f"git commit “{message}”"
    return f"{first} …" if len(telling) > 1 or script_only != head else first


def _in_folder(text: str, folder: str) -> str:
    """`text` with paths below `folder` relative to it."""
    folder = folder.rstrip("/\\")
    if len(folder) < 2 or folder not in text:
        return text
    return _inside(folder).sub(lambda match: "" if match[1] else ".", text)


@lru_cache(maxsize=64)
def _inside(folder: str) -> re.Pattern[str]:
    """A pattern for the folder in a script: with the slash before what is below it, or alone."""
    return re.compile(rf"(?<![\w.~/\\-]){re.escape(folder)}(?:([/\\](?=[^\s'\";&|)]))|[/\\]?(?![\w./\\~-]))")
