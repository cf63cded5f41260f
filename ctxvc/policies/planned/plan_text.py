"""A planner's plan as text: written, and read back strictly (Self-GC, Listing 2).

What a planner says is untrusted. It is read by a small tokenizer of our own, in one pass: nothing is expanded, nothing
is fetched, no document type is known, and whatever is not in the schema is dropped by itself, named and counted, while
the rest stands. A stock XML parser would refuse a whole plan for one stray `&`, and would have to be told not to expand
what a document type declares.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, get_args

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.objects import Family

Lifecycle = Literal["fold", "mask", "prune"]

#: Why a part of a planner's answer was dropped.
Fault = Literal[
    "encoding", "length", "missing", "order", "element", "attribute", "kind", "text", "id", "duplicate", "entity",
    "declaration", "unclosed",
]  # fmt: skip

#: The same in words, for one thing that was left out.
FAULTS: Mapping[Fault, str] = {
    "encoding": "answer that is not UTF-8",
    "length": "answer that is too long",
    "missing": "missing element",
    "order": "element out of order",
    "element": "unknown element",
    "attribute": "wrong attribute",
    "kind": "unknown kind",
    "text": "text outside the schema",
    "id": "unknown object",
    "duplicate": "duplicate",
    "entity": "entity",
    "declaration": "declaration",
    "unclosed": "unclosed element",
}

SUMMARY, PLAN = "above_conversation_summary", "gc_plan"
#: An answer of more characters than this is no plan.
LONGEST = 200_000
#: The most dropped elements that are named; all are counted.
NAMED = 20

_DEEPEST = 16
_VERBS: Mapping[str, Lifecycle] = {verb: verb for verb in get_args(Lifecycle)}
_FAMILIES = get_args(Family)
# A tag never holds a `<`, so no tag is looked for beyond the next one: reading is linear in the text.
_TAG = re.compile(r"""<(?:[^<>"']|"[^"<]*"|'[^'<]*')*>""")
_INSIDE = re.compile(r"(/?)([A-Za-z_][A-Za-z0-9_.-]*)(.*?)(/?)", re.DOTALL)
_ATTRIBUTE = re.compile(r"""\s+([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_TARGET = re.compile(r"[A-Za-z0-9_.-]+:[0-9]+")
_ENTITY = re.compile(r"&(#?[A-Za-z0-9_.-]+);")
_PLAIN = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPED = str.maketrans({letter: f"&{name};" for name, letter in _PLAIN.items()})


class Entry(msgspec.Struct, frozen=True):
    """One action on one object: `fold`, `function:Read:12`, and why."""

    verb: Lifecycle
    target: str
    reason: str = ""


class Dropped(msgspec.Struct, frozen=True):
    """A dropped part of an answer, by its first words."""

    fault: Fault
    excerpt: str


class GcPlan(msgspec.Struct, frozen=True):
    """A planner's plan. `dropped` names the first things that were left out, `faults` counts all by reason."""

    summary: str = ""
    entries: tuple[Entry, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    faults: Mapping[Fault, int] = {}

    @property
    def usable(self) -> bool:
        """Whether it is a plan: it has entries, or it says without fault that all is needed."""
        return bool(self.entries) or not self.faults


def write(summary: str, entries: Iterable[Entry]) -> str:
    """The text of a plan; neighbours of one verb, family and reason share an element."""
    lines = [f"<{SUMMARY}>", display.one_line(summary, 400).translate(_ESCAPED), f"</{SUMMARY}>", f"<{PLAN}>"]
    for (verb, family, reason), alike in groupby(
        entries, lambda one: (one.verb, _family(one.target), _reason_text(one))
    ):
        lines.append(f'  <{verb} kind="{family}" reason="{reason.translate(_ESCAPED)}">')
        lines += (f"    {one.target.removeprefix(f'{family}:')}" for one in alike)
        lines.append(f"  </{verb}>")
    return "\n".join([*lines, f"</{PLAN}>", ""])


def parse(answer: str | bytes, names: Container[str]) -> GcPlan:
    """The plan in what a planner said, less all that is not in the schema or names no object of `names`.

    Of an object that is named twice the first action counts. A plan that does not end is none.
    """
    reader = _Reader(names)
    if isinstance(answer, bytes):
        try:
            answer = answer.decode("utf-8")
        except UnicodeDecodeError as error:
            reader.drop("encoding", f"byte {error.start:,} is not UTF-8")
            answer = ""
    if len(answer) > LONGEST:
        reader.drop("length", f"{len(answer):,} characters")
        answer = ""
    at = 0
    for tag in _TAG.finditer(answer):
        reader.text(answer[at : tag.start()])
        reader.tag(tag.group()[1:-1])
        at = tag.end()
    reader.text(answer[at:])
    return reader.finish()


def _reason_text(entry: Entry) -> str:
    """The reason in one line of at most 80 characters."""
    return display.one_line(entry.reason, 80)


def _family(target: str) -> str:
    return target.partition(":")[0]


@dataclass(slots=True)
class _Element:
    """An element that is open. One that is not `accepted` was reported already, with all that is in it."""

    name: str
    accepted: bool
    family: str = ""
    reason: str = ""
    texts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    names: Container[str]
    entries: dict[str, Entry] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    faults: Counter[Fault] = field(default_factory=Counter)
    path: list[_Element] = field(default_factory=list)
    summary: str | None = None
    opened: set[str] = field(default_factory=set)
    closed: bool = False
    lost: bool = False

    def drop(self, fault: Fault, excerpt: str) -> None:
        self.faults[fault] += 1
        if len(self.dropped) < NAMED:
            self.dropped.append(Dropped(fault, display.one_line(excerpt, 60)))

    def text(self, text: str) -> None:
        if self.lost or not text.strip():
            return
        element = self.path[-1] if self.path else None
        if element is None or (element.name == PLAN and element.accepted):
            self.drop("text", text)
        elif element.accepted:
            element.texts.append(text)

    def tag(self, inside: str) -> None:
        match = _INSIDE.fullmatch(inside)
        if self.lost:
            return
        if inside[:1] in ("!", "?"):
            self.drop("declaration", f"<{inside}>")
        elif not match or (match[1] and (match[3].strip() or match[4])):
            self.drop("element", f"<{inside}>")
        elif match[1]:
            self._close(match[2])
        else:
            self._open(match[2], match[3])
            if match[4] and not self.lost:
                self._close(match[2])

    def finish(self) -> GcPlan:
        for element in self.path:
            self.drop("unclosed", f"<{element.name}>")
        for name in (SUMMARY, PLAN):
            if name not in self.opened:
                self.drop("missing", f"<{name}>")
        entries = tuple(self.entries.values()) if self.closed else ()
        return GcPlan(self.summary or "", entries, tuple(self.dropped), dict(self.faults))

    def _open(self, name: str, attributes: str) -> None:
        if len(self.path) >= _DEEPEST:
            self.lost = True  # not meant as a plan: what is open stays open, and so there is none
            self.drop("element", f"<{name}> is nested too deep")
            return
        around = self.path[-1] if self.path else None
        element = _Element(name, accepted=False)
        self.path.append(element)
        if around and not around.accepted:
            return
        if not around and name in (SUMMARY, PLAN):
            element.accepted = self._first(name, attributes)
        elif around and around.name == PLAN and name in _VERBS:
            element.accepted = self._attributes(element, attributes)
        else:
            self.drop("element", f"<{name}>")

    def _first(self, name: str, attributes: str) -> bool:
        if name in self.opened:
            self.drop("duplicate", f"<{name}>")
            return False
        if name == SUMMARY and PLAN in self.opened:
            self.drop("order", f"<{name}> after <{PLAN}>")
        if attributes.strip():
            self.drop("attribute", f"<{name}{attributes}>")
        self.opened.add(name)
        return True

    def _attributes(self, element: _Element, text: str) -> bool:
        attributes: dict[str, str] = {}
        at = 0
        while match := _ATTRIBUTE.match(text, at):
            at = match.end()
            if match[1] not in ("kind", "reason") or match[1] in attributes:
                break
            attributes[match[1]] = match[2] if match[2] is not None else match[3]
        if match or text[at:].strip():
            self.drop("attribute", f"<{element.name}{text}>")
            return False
        element.family = attributes.get("kind", "")
        element.reason = display.one_line(self._plain(attributes.get("reason", "")), 80)
        if element.family not in _FAMILIES:
            self.drop("kind", f"<{element.name}{text}>")
            return False
        return True

    def _close(self, name: str) -> None:
        if not any(element.name == name for element in self.path):
            self.drop("element", f"</{name}>")
            return
        while self.path[-1].name != name:
            self.drop("unclosed", f"<{self.path.pop().name}>")
        element = self.path.pop()
        if not element.accepted:
            return
        text = "".join(element.texts)
        if name == SUMMARY:
            self.summary = display.one_line(self._plain(text), 400)
        elif name == PLAN:
            self.closed = True
        else:
            self._entries(element, text)

    def _entries(self, element: _Element, text: str) -> None:
        for word in text.replace(",", " ").split():
            target = f"{element.family}:{word}"
            if "&" in word:
                self.drop("entity", word)
            elif not _TARGET.fullmatch(word):
                self.drop("text", word)
            elif target not in self.names:
                self.drop("id", target)
            elif target in self.entries:
                self.drop("duplicate", f"{element.name} {target}")
            else:
                self.entries[target] = Entry(_VERBS[element.name], target, element.reason)

    def _plain(self, text: str) -> str:
        """`text` with XML's five predefined entities replaced; others stay and are reported."""

        def plain(match: re.Match[str]) -> str:
            if match[1] not in _PLAIN:
                self.drop("entity", match[0])
            return _PLAIN.get(match[1], match[0])

        return _ENTITY.sub(plain, text)
