"""A conversation of ten blocks that matter, made by hand, for which the measures were worked out on paper.

    block  call  seen  what
    B0     0     0     a person: Fix the login in /srv/app/auth.py
    B1     0     1     I look at it.
    B2     0     1     Read /srv/app/auth.py
    B3     0     1     its result: SOURCE, in which `limit` is 48213
    B4     1     2     sh: date            (calls 2 to 5 alike: B6, B8, B10, B12)
    B5     1     2     its result: ok      (B7, B9, B11, B13)
    B14    6     7     The limit 48213 stays.
    B15    6     7     Edit /srv/app/auth.py, an edited line of SOURCE

What the replies name that an earlier block has, if no anchor is common:

    call 0, B2:  path        /srv/app/auth.py  in B0; B0 is of call 0, so it is trivial
    call 6, B14: number      48213             in B3
    call 6, B15: path        /srv/app/auth.py  in B0 and B2
                 identifier  compare_digest    in B3
                 identifier  user.token        in B3; `user` and `token` are no identifiers, so the name is whole
                 line        LINE              in B3

B0, B2 and B3 are of call 0. The last five steps of call 6 are calls 1 to 5, so the uses of call 6 are non-trivial; all
but the path's are at risk, since only a result has them. The path's oldest block is a person's: a contract.
"""

from __future__ import annotations

import json
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import Call, Conversation, Prompt
from tests.making.conversation import human

PATH = "/srv/app/auth.py"
LINE = "return compare_digest(user.token, limit)"
SOURCE = f"def login(user):\n    limit = 48213\n    {LINE}\n"
STUB = f"[archived B4@3fa9c1: tool_result of Read, 21 tokens; arguments {PATH}; recover B4]"

#: Tokens of each block, invented.
SIZES = (8, 4, 10, 40, *(5, 1) * 5, 6, 30)


def reply(text: str = "", thinking: str = "", **calls: tuple[str, dict[str, Any]]) -> Message:
    """A reply that thinks, says `text`, and calls tools: id → (tool, arguments)."""
    parts = [wire.part({"type": "thinking", "thinking": thinking}, "assistant", "model")] if thinking else []
    parts += [wire.text_part(text, "assistant", "model")] if text else []
    parts += [wire.call_part(tool, call, json.dumps(own).encode()) for call, (tool, own) in calls.items()]
    return Message(role="assistant", parts=tuple(parts))


def result(call: str, text: str, *, error: bool = False) -> Message:
    return Message(role="user", parts=(wire.result_part(text, call, error=error),))


def conversation(*calls: tuple[list[Message], Message], **fields: Any) -> Conversation:
    """A conversation of (what came in, reply) pairs."""
    made = tuple(Call(tuple(before), own) for before, own in calls)
    return Conversation(id="by hand", file="by-hand.jsonl", sha256="", calls=made, **fields)


def login() -> Conversation:
    """The conversation of this module."""
    idle = [([result(f"c{n - 1}", "ok")], reply(**{f"c{n}": ("sh", {"command": "date"})})) for n in range(2, 6)]
    edit = {"file_path": PATH, "old_string": f"    {LINE}", "new_string": "    return True"}
    return conversation(
        ([human(f"Fix the login in {PATH}")], reply("I look at it.", c0=("Read", {"file_path": PATH}))),
        ([result("c0", SOURCE)], reply(c1=("sh", {"command": "date"}))),
        *idle,
        ([result("c5", "ok")], reply("The limit 48213 stays.", c6=("Edit", edit))),
    )


def everything(conversation: Conversation, call: int) -> Prompt:
    """The prompt in which every block stands."""
    whole = frozenset(block.number for block in conversation.blocks if block.seen <= call)
    return Prompt(call=call, complete=whole, parts={}, texts=(), routes={}, tokens=1000)


def nothing(call: int, *texts: str, **fields: Any) -> Prompt:
    """A prompt without a block, but for texts of ours."""
    return Prompt(
        call=call,
        complete=frozenset(fields.get("complete", ())),
        parts=fields.get("parts", {}),
        texts=texts,
        routes=fields.get("routes", {}),
        tokens=fields.get("tokens", 400),
    )
