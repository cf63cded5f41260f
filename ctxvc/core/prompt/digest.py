"""Digests: one line on what was done in blocks that leave together, with the names that appear nowhere else.

`edited paths.go, checkpoint.go ×3 (saveStep); ran go test ×2, last failed: 3 of 8; read strategy.go; todo 8/10;
answered “All done.”` Everything in it is from the blocks: whole words, or counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple

from ctxvc.core.ledger.facts import Deed, Fact, argument_text
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.stub import escaped

#: Returns the text of a block.
TextOf = Callable[[Row], str]

#: The acts in the order in which a digest lists them.
_ORDER: tuple[Deed, ...] = (
    "edited", "wrote", "deleted", "committed", "read", "searched", "ran", "called", "delegated", "planned", "fetched",
    "listed", "todo",
)  # fmt: skip
#: How many objects of an act are listed before the next act's turn, if there is no room for all.
_TURNS: Mapping[Deed, int] = {"edited": 4, "wrote": 3, "committed": 2, "read": 3, "ran": 2, "fetched": 2}
#: Acts whose object is a path; its last part is enough.
_ON_FILES: frozenset[Deed] = frozenset({"edited", "wrote", "deleted", "read", "listed"})
#: Characters of an object, of an error's line, and of a turn's answer.
_WIDTH = 48
_LINE = 90
_ANSWER = 160
#: Characters of a block that are searched for names, and for the line of an error.
_NAMED = 60_000
_TAIL = 4_000
#: Approximate characters of names per token.
_PER_TOKEN = 3.2
#: Tokens of names for an exchange: a share of its size, with a minimum and a maximum.
_SHARE = 0.03
_FEWEST = 10
_MOST = 80

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{5,59}(?![A-Za-z0-9_])")
_DEFINED = re.compile(
    r"^(?:[^\s:]{1,200}:)?[ \t]{0,40}(?:[0-9]{1,7}[:→|-])?[ \t]{0,40}"
    r"(?:(?:export|pub|async|static|public|private|protected|default|abstract|final|declare)[ \t]+){0,3}"
    r"(?:func|def|class|type|interface|struct|enum|trait|fn|function|const|module|message|service)[ \t]+"
    r"(?:\([^()\n]{0,60}\)[ \t]*)?([A-Za-z_][A-Za-z0-9_]{4,59})(?![A-Za-z0-9_])",
    re.MULTILINE,
)
_DECLARED = re.compile(r"(?:let|var|for)(?<=\b\w{3})[ \t]+([A-Za-z_][A-Za-z0-9_]{1,59})")
_ASSIGNED = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]{1,59})[ \t]*:=")
_FILE = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_][A-Za-z0-9_.-]{1,80}\.[a-z]{1,5}(?=[\s:'\"`,;)\]]|$)", re.MULTILINE)
_FAILING = re.compile(r"error|fail|panic|exception|undefined|cannot|not found|no such|traceback|denied", re.IGNORECASE)
_WHOLE = re.compile(r"[\w.-]")
_WHOLE_END = re.compile(r"(?<![\w.-])[\w.-]*\Z")
_TAG = re.compile(r"</?[a-z_]{1,40}>")
_STATEMENT = re.compile(r"(?![#<|])(?:[-*•]\s+|[0-9]{1,3}[.)]\s+)?(.{20,}[^:\s*])\**")
_OF_ITSELF = re.compile(r"summar|chronological", re.IGNORECASE)
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]")


class Exchange(NamedTuple):
    """A call with its result; either may still be in the prompt."""

    call: Row
    result: Row | None


@dataclass(slots=True)
class Thing:
    """An object of an act: the newest fact about it, how often the act was tried, and how often it failed.

    `reason` is the line of the error if the newest try failed; `size` is in bytes.
    """

    fact: Fact
    count: int = 0
    failed: int = 0
    is_failed: bool = False
    reason: str = ""
    size: int = 0
    blocks: list[Row] = field(default_factory=list)
    names: tuple[str, ...] = ()


class Digest(NamedTuple):
    """What was done, by act and object, in order; the `answers` that ended turns; `texts` if nothing was done."""

    things: Mapping[tuple[Deed, str], Thing]
    answers: Sequence[str]
    texts: Sequence[str]


class NamesOfBlock(NamedTuple):
    """The names in a block: how often each occurs, the bonus of those that it marks, and the local ones."""

    occurrences: Mapping[str, int]
    marked: Mapping[str, int]
    local: frozenset[str]


def digest(
    rows: Sequence[Row],
    exchanges: Iterable[Exchange],
    answers: Collection[str],
    text_of: TextOf,
    facts: Callable[[Row], Iterable[Fact]],
) -> Digest:
    """The digest of blocks and of the exchanges that they belong to.

    `answers` are the ids of texts that end a turn; `facts` returns what a call did.
    """
    things: dict[tuple[Deed, str], Thing] = {}
    inside = {row.id for row in rows}
    for call, result in exchanges:
        is_failed = result is not None and result.error
        here = [row for row in (call, result) if row is not None and row.id in inside]
        for fact in facts(call):
            key = fact.act, _key(fact)
            if is_failed and fact.act not in ("ran", "searched", "fetched", "delegated", "called"):
                key = "called", f"{call.tool} {fact.object}"
                fact = Fact("called", _last_part(fact), tool=call.tool)  # noqa: PLW2901  # what failed was not done
            thing = things.setdefault(key, Thing(fact))
            thing.fact = fact
            thing.count += 1
            thing.failed += is_failed
            thing.is_failed = is_failed
            is_here = is_failed and here[-1] is result and fact.act != "called"
            thing.reason = _error_line(text_of(here[-1])) if is_here else ""
            thing.size += sum(row.bytes for row in here)
            thing.blocks += here
    ends = [clipped(_prose(text_of(row)), _ANSWER) for row in rows if row.id in answers]
    labels: list[str] = []
    if not things and not any(ends):
        telling = [row.label for row in rows if row.label and row.kind not in ("thinking", "dashboard")]
        labels = list(dict.fromkeys(clipped(label, _LINE) for label in [*telling[:1], *telling[-1:]]))
    return Digest(things, list(filter(None, ends)), list(filter(None, labels)))


def text(digest: Digest, room: int) -> str:
    """A digest in about `room` characters, not counting names; at least one clause."""
    chosen = _chosen(digest, room)
    clauses: list[str] = []
    failures = 0
    for act in _ORDER:
        things = [(key, thing) for key, thing in digest.things.items() if key[0] == act]
        short = _short_paths([thing.fact.object for _, thing in things]) if act in _ON_FILES else {}
        entries = [_entry(thing, short) for key, thing in things if key in chosen]
        failures += sum(thing.failed for key, thing in things if key not in chosen)
        if entries:
            more = f" +{len(things) - len(entries)}" if len(things) > len(entries) else ""
            verb = "" if act == "called" else f"{act} "
            clauses.append(f"{verb}{', '.join(entries)}{more}")
    clauses += [f"{failures} more failed"] if failures else []
    clauses += [f"answered “{answer}”" for answer in _newest(digest.answers, room // 3)]
    clauses += [f"“{value}”" for value in digest.texts]
    return "; ".join(clauses)


def clipped(value: str, width: int) -> str:
    """The first whole words of recorded text within `width` characters, fit for a stub; none if the first is longer."""
    line = escaped(value[: width * 4], width * 4)
    if len(line) <= width and len(value) <= width * 4:
        return line
    head = line[: width - 1]
    if head.isascii() and _WHOLE.match(line[width - 1]):
        head = _WHOLE_END.sub("", head)  # no half a name
    return f"{head.rstrip(' ,;:(|')}…" if head.strip() else ""


# --- names


def with_names(
    digest: Digest,
    text_of: TextOf,
    visible: Collection[str],
    tokens: Callable[[Row], int],
    limit: int,
    cache: MutableMapping[Any, NamesOfBlock],
) -> Digest:
    """The digest with names from the exchanges, of about `limit` tokens at most in total.

    Each exchange gets 3 % of its size, between 10 and 80 tokens: the names that it defines, then those of errors, then
    files, then the most frequent names. Names in the prompt (`visible`), local names, and names that contain one
    another are left out. `cache` keeps the names of blocks.
    """
    room = int(limit * _PER_TOKEN)
    seen: set[str] = set(visible)
    things: dict[tuple[Deed, str], Thing] = {}
    for key, thing in sorted(digest.things.items(), key=lambda item: -item[1].size):
        if room < 8:
            break
        size = sum(tokens(row) for row in thing.blocks)
        share = int(min(max(_SHARE * size, _FEWEST), _MOST) * _PER_TOKEN)
        names = _names(_scores(thing, text_of, cache), thing.fact.object, seen, min(room, share))
        room -= sum(len(name) + 1 for name in names)
        seen.update(names)
        things[key] = replace(thing, names=tuple(names))
    return digest._replace(things={key: things.get(key, thing) for key, thing in digest.things.items()})


def _names(scores: Mapping[str, int], about: str, seen: Collection[str], room: int) -> list[str]:
    """The best names within `room` characters that are neither seen nor part of what the exchange is `about`."""
    names: list[str] = []
    for name, _ in sorted(scores.items(), key=lambda item: (-item[1], item[0])):
        if name in seen or name in about or any(name in better or better in name for better in names):
            continue
        if room < len(name) + 1:
            break
        room -= len(name) + 1
        names.append(name)
    return names


def _scores(thing: Thing, text_of: TextOf, cache: MutableMapping[Any, NamesOfBlock]) -> Mapping[str, int]:
    """The scores of the names in an exchange: highest for those it defines, then those of an error, then files."""
    act = thing.fact.act
    scores: Counter[str] = Counter()
    local: frozenset[str] = frozenset()
    for row in thing.blocks:
        if row.kind == "tool_use" and act not in ("edited", "wrote"):
            continue
        key = row.sha256, row.kind, row.ext, row.error, act
        names = cache.get(key)
        if names is None:
            names = cache[key] = _names_of_block(row, act, text_of(row)[:_NAMED])
        for name, count in names.occurrences.items():
            scores[name] += count
        scores.update(names.marked)
        local |= names.local
    return {name: score for name, score in scores.items() if name not in local}


def _names_of_block(row: Row, act: Deed, body: str) -> NamesOfBlock:
    text = argument_text(body, row.ext) if row.kind == "tool_use" else body
    # Most words have neither a capital nor an underscore, hence no hump.
    candidates = Counter(word for word in _WORD.findall(text) if not word.islower() or "_" in word)
    occurrences = {name: min(count, 4) for name, count in candidates.items() if _HUMP.search(name)}
    marked = Counter(dict.fromkeys(_DEFINED.findall(text), 30))
    if act in ("searched", "listed", "ran", "called") and "." in text:
        marked.update(dict.fromkeys(_FILE.findall(text), 6))
    if row.error:
        marked.update(dict.fromkeys(_WORD.findall(_error_line(text)), 12))
    # Most texts have no `:=`; without this check, the pattern would be tried at every word.
    local = frozenset(_DECLARED.findall(text)).union(_ASSIGNED.findall(text) if ":=" in text else ())
    return NamesOfBlock(occurrences, marked, local)


def names_in(value: str) -> frozenset[str]:
    """The names in a text that `with_names` would not repeat."""
    return frozenset(_WORD.findall(value)) | frozenset(_FILE.findall(value))


# --- help


def _key(fact: Fact) -> str:
    if fact.act == "ran":
        return _common(fact.object)
    return fact.tool if fact.act == "called" else "" if fact.act == "todo" else fact.object


def _last_part(fact: Fact) -> str:
    """A fact's object; the last part if it is a path."""
    parts = [part for part in fact.object.split("/") if part] if fact.act in _ON_FILES else []
    return parts[-1] if parts else fact.object


def _common(command: str) -> str:
    """A command's program and subcommands: `go test`."""
    program, *arguments = clipped(command, 200).split(" ")
    subcommands = list(takewhile(lambda word: word[:1].isalpha() and not set("/.=") & set(word), arguments[:2]))
    return " ".join([program.rpartition("/")[2], *subcommands])


def _entry(thing: Thing, short: Mapping[str, str]) -> str:
    fact, times = thing.fact, f" ×{thing.count}" if thing.count > 1 else ""
    match fact.act:
        case "todo":
            entry, times = fact.detail, ""
        case "called":
            entry = " ".join(filter(None, (escaped(fact.tool, 40), clipped(fact.object, _WIDTH))))
        case "ran":
            entry = _common(fact.object) if times else clipped(fact.object, _WIDTH)
        case "delegated" | "planned" | "committed":
            entry = f"“{clipped(fact.object, _LINE)}”" if fact.object else "once"
        case _:
            entry = short.get(fact.object) or clipped(fact.object, _WIDTH)
    if thing.is_failed:
        times += f" failed: {thing.reason}" if thing.reason else " failed"
    elif thing.failed:
        times += f", {thing.failed} failed"
    names = f" ({' '.join(thing.names)})" if thing.names else ""
    return f"{entry or '…'}{times}{names}"


def _short_paths(paths: Sequence[str]) -> dict[str, str]:
    """The last part of each path, with the one before it where two would be equal."""
    parts = {path: [part for part in escaped(path, 400).split("/") if part] for path in paths}
    lasts = Counter(names[-1] for names in parts.values() if names)
    return {path: "/".join(names[-1 if lasts[names[-1]] == 1 else -2 :]) for path, names in parts.items() if names}


def _prose(value: str) -> str:
    """The beginning of an answer without its tables, headings and code."""
    lines = (line.strip() for line in value[:4_000].partition("```")[0].split("\n"))
    return " ".join(line for line in lines if line and not line.startswith(("|", "#", "---"))) or value


def first_statement(value: str) -> str:
    """The first line of a summary with content: no heading, no introduction of a list or of the summary itself."""
    lines = (line.strip() for line in value[:_TAIL].split("\n"))
    matches = (_STATEMENT.fullmatch(line) for line in lines if not _OF_ITSELF.search(line))
    return clipped(next((match[1] for match in matches if match), value), _ANSWER)


def _error_line(value: str) -> str:
    """The last line that mentions an error, else the last line."""
    lines = [line for line in _TAG.sub("", value[-_TAIL:]).split("\n") if line.strip()]
    line = next((line for line in reversed(lines) if _FAILING.search(line)), lines[-1] if lines else "")
    return clipped(line, _LINE)


def _chosen(digest: Digest, room: int) -> set[tuple[Deed, str]]:
    """The things that a digest of `room` characters lists: those of each act in turn, the largest first."""
    queues = {
        act: sorted((key for key in digest.things if key[0] == act), key=lambda key: -digest.things[key].size)
        for act in _ORDER
    }
    chosen: set[tuple[Deed, str]] = set()
    used = min(sum(map(len, digest.answers[-1:])), room // 3)
    while any(queues.values()):
        for act, queue in queues.items():
            for key in queue[: _TURNS.get(act, 1)]:
                thing = digest.things[key]
                used += (
                    len(_short_paths([key[1]]).get(key[1], "")) if act in _ON_FILES else len(_entry(thing, {}))
                ) + 2
                if chosen and used > room:
                    return chosen
                chosen.add(key)
            del queue[: _TURNS.get(act, 1)]
    return chosen


def _newest(answers: Sequence[str], room: int) -> list[str]:
    """The newest answers that fit into `room` characters; at least one."""
    count = 1
    while count < len(answers) and sum(map(len, answers[-count - 1 :])) <= room:
        count += 1
    return list(answers[-count:])
