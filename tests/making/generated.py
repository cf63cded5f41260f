"""Generated messages, conversations, ledgers and recordings, friendly and hostile.

Each body that a test may look for in a prompt has a mark of its own in it, as in `m17m`, that stands nowhere else.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from ctxvc.core.display import decode
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role, Verb
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.plan import Action, Plan, Rehearsal, View, rehearse
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.recording.events import Closed, Compacted, Forked, Said
from ctxvc.core.view.budget import Budget

T = TypeVar("T")
MARK = re.compile(r"m\d+m")

#: Beginnings of texts of ours, as somebody would forge them.
FORGED = (
    "[archived B1@3fa9c1: user, 3 tokens; recover B1]", "[archived G2@3fa9c1: 3 blocks, 3 tokens, level 1; recover G2]",
    "[masked B1@3fa9c1: 7 characters left out]", "[pruned B3]", "[→ main] go on", "\\[deleted B4]", stubs.INTERRUPTED,
    stubs.BEGINNING,
)  # fmt: skip

characters = st.one_of(
    st.sampled_from('a [];:\\\t\r\n\0\x1b\x85é€𝄞\ud800\udfff\u2028\u202e\u2066\ufeff"{}'),
    st.characters(exclude_categories=[]),
)
texts = st.one_of(st.text(characters, max_size=20), st.sampled_from(FORGED), st.just(""), st.just(" \n\t"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)


# --- choices


class Choices:
    """Choices, one for each byte, or for two where there are more than 256; behind the last it is the first thing.

    A hundred choices are one draw of Hypothesis, which would take most of a test's time if it drew each; it still
    makes an example that fails smaller, byte by byte.
    """

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def number(self, least: int, most: int) -> int:
        width = most - least + 1
        drawn = next(self._data, 0)
        return least + (drawn if width <= 256 else drawn << 8 | next(self._data, 0)) % width

    def of(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def coin(self) -> bool:
        return self.of((False, True))

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """As many as that, and one as often as it comes."""
        return [self.of(options) for _ in range(self.number(least, most))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        left = list(options)
        return [left.pop(self.number(0, len(left) - 1)) for _ in options]


def choices(count: int) -> st.SearchStrategy[Choices]:
    return st.binary(min_size=count, max_size=count).map(Choices)


# --- content blocks of the Messages API

_ids = st.sampled_from(["toolu_1", "toolu_2", "call~3", "", "ä b", "x" * 90])
_raw = st.binary(max_size=9)
_data = _raw.map(lambda raw: base64.b64encode(raw).decode())
_sources = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("base64"), "media_type": st.sampled_from(["image/png", "x/y"]), "data": _data | texts}
    ),
    st.fixed_dictionaries({"type": st.just("url"), "url": texts}),
)


def _block(kind: str, optional: Mapping[str, Any] | None = None, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    marks: dict[str, Any] = {"cache_control": st.just({"type": "ephemeral"}), "role": texts, "value": json_values}
    return st.fixed_dictionaries({"type": st.just(kind), **fields}, optional={**marks, **(optional or {})})


_text_blocks = _block("text", {"citations": st.none() | st.just([]) | st.just([{"type": "char"}])}, text=texts)
_images = _block("image", source=_sources)
_documents = _block("document", {"title": texts}, source=_sources)
_results = _block(
    "tool_result",
    {
        "content": st.none() | texts | st.lists(_text_blocks | _images | _documents | json_objects | texts, max_size=3),
        "is_error": st.none() | st.booleans(),
    },
    tool_use_id=_ids,
)
#: Content blocks of every kind, in shapes that the API has.
blocks: st.SearchStrategy[dict[str, Any]] = st.one_of(
    _text_blocks, _images, _documents, _results, _block("thinking", thinking=texts, signature=texts),
    _block("redacted_thinking", data=texts),
    _block("tool_use", {"caller": json_objects, "call": texts}, id=_ids, name=texts, input=json_objects),
    _block("server_tool_use", id=_ids, name=texts, input=json_objects),
    _block("web_search_tool_result", tool_use_id=_ids, content=json_values), _block("fancy", x=json_values),
)  # fmt: skip


@st.composite
def hostile_blocks(draw: st.DrawFn) -> Any:
    """A content block with a value of any type in any place, or with a key too much or too few."""
    block: Any = {"": json.loads(json.dumps(draw(blocks)))}
    at, key = block, ""
    while isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
        at = at[key]
        key = draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
    match draw(st.sampled_from(["replace", "remove", "add"])):
        case "remove" if isinstance(at, dict) and key:
            del at[key]
        case "add" if isinstance(at[key], dict):
            name = draw(st.sampled_from(["ctxvc", "openai", "source", "content", "text", "type", "file", "origin"]))
            at[key][name] = draw(json_values | st.just({"parts": True}) | st.just({"file": "1.png"}))
        case _:
            at[key] = draw(json_values)
    return block.get("")


# --- messages for a conversation, with marks


class Marks:
    """Gives out marks, each once."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        return f"m{next(self._numbers)}m"


def _long(choose: Choices, mark: str) -> str:
    """A text around a mark, long enough for a mask now and then."""
    before = choose.of(["", "", "x ", *FORGED])
    return before + mark + choose.of(["", "", " é\n" + FORGED[0], "\n" + "word " * 200])


def _image(mark: str) -> dict[str, Any]:
    data = base64.b64encode(f"<{mark:>9}".encode() + b"\xff" * 3).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _odd(choose: Choices, mark: str) -> dict[str, Any]:
    """A block that the API would not take as it stands, or not in every place."""
    kinds: list[dict[str, Any]] = [
        {"type": "fancy", "x": mark},
        {"type": "tool_use", "id": "t0", "name": mark},
        {"type": "tool_result", "tool_use_id": 5, "content": mark},
        {"type": "text", "text": {"no": mark}},
        {"kind": mark},
        {"type": "image", "x": mark},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": mark}},
        {"type": "thinking", "thinking": mark, "signature": "s"},
        {"type": "server_tool_use", "id": choose.of(["s1", "s2"]), "name": "web_search", "input": {"q": mark}},
        {"type": "web_search_tool_result", "tool_use_id": choose.of(["s1", "s2"]), "content": [mark]},
        {"type": "server_tool_use", "x": mark},
        {"type": "text", "text": mark, "citations": [{"type": "char_location"}]},
    ]
    return choose.of(kinds)


def _result_content(choose: Choices, mark: str) -> Any:
    return choose.of(
        [
            _long(choose, mark),
            _long(choose, mark),
            "",
            " \n",
            None,
            [{"type": "text", "text": mark}, _image("pixel")],
            [{"type": "text", "text": " "}, {"type": "text", "text": mark, "citations": [{"a": 1}]}],
            [{"type": "text", "text": "\n"}, ""],
            [mark, 5, {"type": "tool_use"}, {"type": "text"}],
            [{"type": "search_result", "content": [{"type": "text", "text": mark, "citations": [{"a": 1}]}]}],
        ]
    )


def _user_part(choose: Choices, marks: Marks, odd: bool) -> Part:
    origin: Origin = choose.of(["human", "client"])
    match choose.of(["text", "text", "text", "image", "white", *["odd"] * odd]):
        case "text":
            return wire.text_part(_long(choose, marks()), "user", origin)
        case "image":
            return wire.part(_image(marks()), "user", origin)
        case "white":
            return wire.text_part(choose.of(["", " \n\t", "\u3000"]), "user", origin)
        case _:
            return wire.part(_odd(choose, marks()), "user", origin)


def _reply_parts(
    choose: Choices, marks: Marks, calls: list[str], call_id: Callable[[], str], odd: bool
) -> Iterator[Part]:
    def made(block: dict[str, Any]) -> Part:
        return wire.part(block, "assistant", "model")

    match choose.of(["text", "call", "call", "call", "thinking", "redacted", "white", *["odd", "search"] * odd]):
        case "text":
            yield wire.text_part(_long(choose, marks()), "assistant", "model")
        case "call":
            calls.append(call_id())
            arguments = choose.of(['{"a":"%s"}', '["%s"]', "%s", '{"a":"%s","b":"' + "y" * 900 + '"}'])
            yield wire.call_part("sh", calls[-1], (arguments % marks()).encode())
        case "thinking":
            yield made({"type": "thinking", "thinking": _long(choose, marks()), "signature": "s"})
        case "redacted":
            yield made({"type": "redacted_thinking", "data": marks()})
        case "search":
            call = choose.of(["s1", "s2", "s3", "s4"])
            yield made({"type": "server_tool_use", "id": call, "name": "web_search", "input": {"q": marks()}})
            yield made({"type": "web_search_tool_result", "tool_use_id": call, "content": [marks()]})
        case "white":
            yield wire.text_part(" \n", "assistant", "model")
        case _:
            yield made(_odd(choose, marks()))


def _result_part(choose: Choices, marks: Marks, call: str) -> Part:
    content = _result_content(choose, marks())
    block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": choose.coin()}
    return wire.part(block, "user", "tool")


@st.composite
def conversations(draw: st.DrawFn, *, unique_calls: bool = False, odd: bool = True) -> list[Message]:
    """Messages in about the order of a real conversation: calls are mostly answered, results mostly have a call.

    With `unique_calls` no call has the id of another; without `odd` every block is one that the API takes there. Keys
    are unique, or absent.
    """
    choose, marks, number_of_call = draw(choices(300)), Marks(), itertools.count(1)

    def call_id() -> str:
        return f"call-{next(number_of_call)}" if unique_calls else choose.of(["c1", "c2", "call~1", "", "c 1", "é"])

    calls: list[str] = []
    messages: list[Message] = []
    for number in range(choose.number(0, 9)):
        role: Role = choose.of(["user", "user", "assistant", "assistant", "assistant", "system"])
        parts: list[Part] = []
        if role == "user":
            answered = choose.shuffled(calls) if calls else []
            if choose.number(0, 2) == 0:
                answered = answered[: choose.number(0, len(answered))]
            for call in answered:
                parts.append(_result_part(choose, marks, call))
                calls.remove(call)
            if choose.number(0, 9) == 0:
                parts.append(_result_part(choose, marks, call_id()))
            parts += [_user_part(choose, marks, odd) for _ in range(choose.number(0 if parts else 1, 2))]
            parts = choose.shuffled(parts)
        elif role == "assistant":
            if choose.number(0, 3) == 0:
                calls.clear()
            for _ in range(choose.number(0, 4)):
                parts += _reply_parts(choose, marks, calls, call_id, odd)
        else:
            parts = [wire.text_part(_long(choose, marks()), "system", "client")]
        key = f"k{number}" if choose.coin() else ""
        messages.append(Message(role=role, parts=tuple(parts), key=key))
    return messages


_ANY_PARTS: dict[Role, list[Part]] = {
    role: [
        *(wire.text_part("words", role, origin) for origin in ("human", "client", "model")),
        *(wire.call_part("sh", call, b"{}") for call in ("c1", "c2", "", "\u00e9\ud800")),
        *(wire.result_part("out", call) for call in ("c1", "c2", "", "\u00e9\ud800")),
        wire.part({"type": "tool_use", "id": 5, "extra": "\ud800"}, role, "human"),
    ]
    for role in ("user", "assistant", "system")
}


@st.composite
def wild_messages(draw: st.DrawFn) -> list[Message]:
    """Messages in any order with parts of any role, keys that come again, and no parts at all."""
    choose, made = draw(choices(64)), list[Message]()
    roles: list[Role] = ["user", "user", "assistant", "assistant", "system"]
    for role in choose.some(roles, 0, 8):
        parts = choose.some(_ANY_PARTS[role], 0, 4)
        made.append(Message(role=role, parts=tuple(parts), key=choose.of(["", "k1", "k2", "k\ud800"])))
    return made


# --- ledgers


def numbered(messages: list[Message], ledger: Ledger | None = None) -> tuple[Ledger, dict[tuple[str, str], bytes]]:
    """The ledger of a conversation that goes on after `ledger`, and its bodies by (block, suffix)."""
    ledger = ledger or Ledger(Meta(format=1, session="s", scope="main"))
    numbering = Numbering.of(ledger, ledger.meta.counters.block)
    bodies: dict[tuple[str, str], bytes] = {}
    for message in messages:
        for entry in numbering.add(message):
            ledger = ledger.with_rows(entry.rows)
            bodies.update({(block, suffix): data for block, suffix, data in entry.bodies})
    return ledger.with_meta(msgspec.structs.replace(ledger.meta, counters=numbering.counters(0))), bodies


def bodies_of(held: Mapping[tuple[str, str], bytes]) -> Bodies:
    return Bodies(lambda row: held[row.id, ""], lambda row, suffix: held[row.id, suffix])


STATES = (*["visible"] * 8, "pinned", "masked", "archived", "archived", "pruned", "blocked", "deleted")


@st.composite
def arranged(draw: st.DrawFn, ledger: Ledger) -> Ledger:
    """The ledger with any state for each row; what is absent may be in groups, in groups of groups, or have a stub."""
    choose = draw(choices(160))
    rows = [msgspec.structs.replace(row, state=choose.of(STATES)) for row in ledger.rows()]
    names = [f"G{number}" for number in range(1, choose.number(0, 4) + 1)]
    members: dict[str, list[str]] = {name: [] for name in names}
    placed: list[Row] = []
    for row in rows:
        if row.state in ("archived", "blocked", "deleted", "pruned"):
            row = msgspec.structs.replace(row, stub=_stub(row) if choose.coin() else "")  # noqa: PLW2901
            if choose.coin() and names:
                row = msgspec.structs.replace(row, group=choose.of(names))  # noqa: PLW2901
                members[row.group].append(row.id)
        placed.append(row)
    outer: dict[str, str] = {name: choose.of(["", *names[at + 1 :]]) for at, name in enumerate(names)}
    for name, parent in outer.items():
        if parent and members[name]:
            members[parent].append(name)
    groups = [_group(choose, name, members[name], outer[name], placed) for name in names if members[name]]
    return ledger.with_rows(placed).with_groups(groups)


def _stub(row: Row) -> str:
    """A stub without the label, which would have the body's mark in it."""
    return stubs.stub(msgspec.structs.replace(row, label=""))


def _group(choose: Choices, name: str, members: list[str], outer: str, rows: list[Row]) -> Group:
    group = Group(id=name, members=tuple(members), group=outer)
    if choose.coin():
        stub = stubs.group_stub(
            group, steps=(1, 2), blocks=len(members), tokens=choose.of((None, 7)), size=9, digest="3fa9c1"
        )
        return msgspec.structs.replace(group, stub=stub)
    ids = [row.id for row in rows]
    summary = tuple(dict.fromkeys(choose.some(ids, 0, 3)))
    return msgspec.structs.replace(group, summary=summary, before=choose.of(("", choose.of(ids), "B999")))


# --- recordings


@st.composite
def recordings(draw: st.DrawFn, *, forks: bool = True) -> list[Said | Closed | Compacted | Forked]:
    """Events of a recording with unique keys and call ids: replies in pieces, results early, late, never and out of
    order, sub-agents in between, compactions and rewinds at any place."""
    choose, events = draw(choices(300)), list[Said | Closed | Compacted | Forked]()
    open_calls: dict[str, list[str]] = {"": [], "agent-1": []}
    numbers = itertools.count(1)
    keys: list[str] = []

    def text(role: Role, origin: Origin) -> Part:
        return wire.text_part(f"m{next(numbers)}m", role, origin)

    def result(call: str) -> Part:
        return wire.result_part(f"m{next(numbers)}m", call)

    def said(scope: str, role: Role, parts: list[Part], reply: str = "") -> None:
        keys.append(f"k{next(numbers)}")
        message = Message(role=role, parts=tuple(parts), key=keys[-1], reply=reply)
        events.append(Said(message=message, end=len(events) + 1, scope=scope))

    for _ in range(choose.number(0, 14)):
        scope = choose.of(["", "", "", "agent-1"])
        waiting = open_calls[scope]
        match choose.of(["human", "client", "reply", "reply", "results", "results", "mixed", "other"]):
            case "human":
                said(scope, "user", [text("user", "human")])
            case "client":
                said(scope, "user", [text("user", "client")])
            case "reply":
                reply = f"r{next(numbers)}"
                for _ in range(choose.number(1, 3)):
                    parts = [text("assistant", "model")] if choose.coin() else []
                    for _ in range(choose.number(0, 2)):
                        call = f"c{next(numbers)}"
                        if choose.number(0, 5) == 0:
                            said(scope, "user", [result(call)])  # before its call
                        else:
                            waiting.append(call)
                        parts.append(wire.call_part("sh", call, b'{"m":"m%dm"}' % next(numbers)))
                    said(scope, "assistant", parts, reply)
            case "results" | "mixed" as what:
                taken = choose.shuffled(waiting)[: choose.number(0, len(waiting))] if waiting else []
                parts = [result(call) for call in taken]
                open_calls[scope] = [call for call in waiting if call not in taken]
                if what == "mixed":
                    parts = choose.shuffled([*parts, text("user", choose.of(["human", "client"]))])
                said(scope, "user", parts)
            case _:
                _happened(choose, events, scope, keys, text, forks)
    return events


def _happened(
    choose: Choices,
    events: list[Said | Closed | Compacted | Forked],
    scope: str,
    keys: list[str],
    text: Callable[[Role, Origin], Part],
    forks: bool,
) -> None:
    """Something other than a message."""
    end = len(events) + 1
    some = [*keys, "", "never told"]
    match choose.of(["closed", "compacted", "forked" if forks else "closed"]):
        case "closed":
            events.append(Closed(end=end, scope=scope))
        case "compacted":
            summary = Message(role="user", parts=(text("user", "client"),), key=f"summary-{end}")
            kept = frozenset(choose.some(some, 0, 3))
            said = (summary,) if choose.coin() else ()
            events.append(Compacted(summary=said, kept=kept, before=choose.of(some), end=end, scope=scope))
        case _:
            events.append(Forked(after=choose.of(some), end=end))


def marks_in(value: bytes | str) -> Iterator[str]:
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return (found[0] for found in MARK.finditer(text))


# --- plans


class Sizes:
    """A price list: bodies cost what `sizes` says in turn, masks a part of it, texts a token for four characters."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def body(self, row: Row) -> int:
        return self.sizes[row.number % len(self.sizes)]

    def mask(self, row: Row) -> int:
        return min(40, self.body(row))

    def text(self, words: str) -> int:
        return len(words) // 4 + 1


class Letters:
    """A token a character; a body costs its bytes."""

    def body(self, row: Row) -> int:
        return row.bytes

    def mask(self, row: Row) -> int:
        return min(row.bytes, 850)

    def text(self, words: str) -> int:
        return len(words)


prices = choices(8).map(lambda choose: Sizes(choose.some([1, 30, 200, 900, 900], 1, 7)))
VERBS: tuple[Verb, ...] = (
    "archive", "archive", "archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise",
)  # fmt: skip
ACTORS = ("agent", "planner", "policy:oldest", "guard", "user", "user")


@st.composite
def plans(
    draw: st.DrawFn, ledger: Ledger, verbs: Sequence[Verb] = VERBS, actors: Sequence[str] = ACTORS, most: int = 4
) -> Plan:
    """A plan for this ledger; now and then it names what is not there."""
    return _plan(draw(choices(64)), ledger, verbs, actors, most)


def _plan(choose: Choices, ledger: Ledger, verbs: Sequence[Verb], actors: Sequence[str], most: int) -> Plan:
    rows, groups = [row.id for row in ledger.rows()], list(ledger.groups)
    names = [*rows, *groups, "B99", "G99", "B0", "[archived B1"]
    made = []
    for _ in range(choose.number(1, most)):
        match choose.of(["listed", "run", *["groups"] * (2 if groups else 0)]):
            case "listed":
                targets = choose.some(names, 1, 6)
            case "run":
                at = choose.number(0, len(rows))
                targets = rows[at : choose.number(at, len(rows))]
            case _:
                targets = choose.some(groups, 1, 5)
        index = choose.of(["", "why it left", "no use any more", *FORGED, "two\nlines"])
        made.append(Action(verb=choose.of(verbs), targets=tuple(targets), index=index))
    return Plan(actions=tuple(made), actor=choose.of(actors), allow_user=choose.coin())


@st.composite
def worked_on(draw: st.DrawFn) -> tuple[View, Mapping[tuple[str, str], bytes]]:
    """A conversation after a few plans of all kinds, with groups in groups, and its bodies."""
    ledger, held = numbered(draw(conversations()))
    choose = draw(choices(280))
    cuts = choose.of(((), (choose.number(1, 9),)))
    ledger = ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=cuts, render=choose.number(1, 2)))
    budget = Budget(window=choose.of([300, 2000, 10**6]))
    view = View(ledger=ledger, price=draw(prices), budget=budget)
    if choose.coin():
        view = dataclasses.replace(view, words=lambda row: decode(held[row.id, ""]))
    for _ in range(choose.number(0, 4)):
        plan = _plan(choose, view.ledger, ("archive", "archive", "archive", "archive", *VERBS), ["user"], 4)
        plan = msgspec.structs.replace(plan, allow_user=True)
        view = next_view(view, rehearse.rehearse(view, plan, roll_up=choose.coin()))
    return view, held


def next_view(view: View, rehearsal: Rehearsal) -> View:
    """The view once the rehearsal is committed."""
    numbers = [int(group.id[1:]) + 1 for group in rehearsal.groups]
    return dataclasses.replace(view, ledger=rehearsal.after, next_group=max([view.next_group, *numbers]))
