"""The events of a recording, as an importer yields them, in file order.

Every event is a function of the file up to the event's end, never of what follows, so that a file imported while it
grows and the finished file give the same history. `end` is the position after the last line that the event derives
from: in a file the byte offset (of the unpacked file), in a database a number from its importer that grows in the same
way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Window


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The recording's beginning, up to position `end`, is the prompt of a store's commit, exported by us."""

    commit: str
    end: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The recording begins. Comes first, once; later ones add what was not known yet (a model, a title).

    `source` is the recording's own id, `name` a proposed session name, `system` the top-level system prompt and `tools`
    the tool definitions, as Messages API values if the recording has them. `missing` lists, for people, what the model
    saw and the recording lacks. `grows` says whether such a file may still grow. `window` is the window of the
    session's own model from here on; None if nothing new is known. `exported` is set if the recording continues an
    export of ours.
    """

    format: str
    source: str = ""
    name: str = ""
    model: str = ""
    cwd: str = ""
    branch: str = ""
    time: str = ""
    agent: str = ""
    title: str = ""
    system: Any = None
    tools: Any = None
    missing: tuple[str, ...] = ()
    grows: bool = False
    window: Window | None = None
    exported: Exported | None = None


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message was added. `scope` names a sub-agent's scope; empty means the current one.

    `task` is, on a sub-agent's messages, the id of the call that started it, if known.
    """

    message: Message
    end: int
    scope: str = ""
    task: str = ""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What came in since the newest reply was sent in these messages, in this order; the next reply answers them.

    They replace the messages from `Said`, whose keys are in `aliases`: that key → the key of the message that now has
    its content. `prompt` is everything that was sent: the SHA-256 of each message as canonical JSON, in the form of
    `formats.normalise_anthropic`; `frame` is that of the system prompt and the tools.

    If a compaction put its summary before messages that it kept, the first `before` of the messages precede the
    summary, and the next `after` follow it directly.
    """

    messages: tuple[Message, ...]
    prompt: tuple[str, ...]
    frame: str
    end: int
    scope: str = ""
    aliases: dict[str, str] = {}
    before: int = 0
    after: int = 0


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The reply so far is complete, as far as the recording shows before anything else follows."""

    end: int
    scope: str = ""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The host dropped everything from the prompt but the messages whose keys are `kept`, and added `summary`.

    The summary precedes the message with the key `before`, or is at the end if that is empty. `window` is what the
    compaction reveals about the window from here on; None if nothing new.

    If a plugin of the host's composed the prompt, `prompt` is all of it, and `actor` the plugin. Most of it was there
    before under other keys; calls are recognised by their ids, anything else by role and text.
    """

    summary: tuple[Message, ...]
    end: int
    prompt: tuple[Message, ...] = ()
    actor: str = "host"
    kept: frozenset[str] = frozenset()
    before: str = ""
    time: str = ""
    scope: str = ""
    detail: dict[str, Any] = {}
    window: Window | None = None


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """From here on the prompt contains `parts` instead of a message's content; no parts if the message left the prompt.

    The message is the one with the key `key`, or, given a `call`, the result of that call.
    """

    end: int
    key: str = ""
    call: str = ""
    parts: tuple[Part, ...] = ()
    time: str = ""


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """A rewind: what follows continues from the message with the key `after` (empty: from before the first)."""

    after: str
    end: int
    time: str = ""


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the file that was skipped or changed, and why. `line` is 1-based; 0 if no line can be named."""

    text: str
    line: int = 0


#: The events that units are made of.
UnitEvent = Said | Sent | Closed | Compacted | Edited | Forked
Event = Opened | UnitEvent | Warned
