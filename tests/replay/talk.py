"""Small conversations, of which only the kinds of the blocks and their order matter."""

from __future__ import annotations

import msgspec

from ctxvc.core.ledger.block import Message, Part
from ctxvc.replay.conversation import Call, Conversation


def talk(*calls: str) -> Conversation:
    """A conversation whose calls are words of letters, a block each.

    `h` is a human's text, `c` the client's and `s` the system's, which come in before the reply; `a` is the model's
    text, `t` its thinking, `r` a call of a tool, whose result comes in before the next reply, ahead of all others.
    So `talk("hr", "a")` has the blocks 0 text, 1 call, 2 result and 3 answer.
    """
    made: list[Call] = []
    results: list[Part] = []
    for number, letters in enumerate(calls):
        before = [Message(role="user", parts=tuple(results))] if results else []
        results, reply = [], []
        for place, letter in enumerate(letters):
            call = f"call-{number}-{place}"
            if letter == "h":
                before.append(_message(Part(kind="user", role="user", origin="human", body=b"x")))
            elif letter == "c":
                before.append(_message(Part(kind="user", role="user", origin="client", body=b"x")))
            elif letter == "s":
                before.append(_message(Part(kind="system", role="system", origin="client", body=b"x")))
            elif letter == "r":
                reply.append(
                    Part(kind="tool_use", role="assistant", origin="model", body=b"{}", ext="json", call=call, tool="f")
                )
                results.append(Part(kind="tool_result", role="user", origin="tool", body=b"x", call=call))
            else:
                part = Part(kind="assistant", role="assistant", origin="model", body=b"x")
                reply.append(msgspec.structs.replace(part, kind="thinking") if letter == "t" else part)
        made.append(Call(tuple(before), Message(role="assistant", parts=tuple(reply))))
    return Conversation(id="talk", file="talk", sha256="", calls=tuple(made))


def _message(part: Part) -> Message:
    return Message(role=part.role, parts=(part,))
