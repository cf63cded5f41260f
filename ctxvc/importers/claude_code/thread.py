"""Which message a line continues: Claude Code's tree of lines, read as one conversation with few real forks.

Lines are linked by `parentUuid`, but the tree means less than it seems to. Results of parallel calls have different
calls as parents, hooks and progress lie in between, and some parents were never written. So messages follow each
other in file order, and only one whose parent is before the open messages is a fork: a rewind, a prompt that was
taken back, or another attempt at a reply.

`last-prompt.leafUuid` decides nothing: it is written late, can be stale, and is not written for a rewind that
nothing follows (which the host itself forgets on resume). A rewind shows in the parent of the next message.
"""

from __future__ import annotations

import msgspec

Parent = str | msgspec.UnsetType | None


class Thread:
    """The conversation of one scope. Messages are named by their keys, the start of the conversation by ""."""

    def __init__(self) -> None:
        self.tip = ""
        #: Parents that do not make the next message a fork: all messages since the newest prompt or reply.
        self._open = {""}
        self._early: set[str] = set()
        self._previous: dict[str, str] = {}
        self._place: dict[str, int] = {}  # when each message was added
        self._nearest: dict[str, str | None] = {}  # a line → the message at or above it; None if unknown

    def __contains__(self, line: str | None) -> bool:
        return line in self._nearest

    def attach(self, line: str, parent: Parent) -> None:
        """Adds a line that is not a message but may be the parent of one."""
        rootless = parent is None and self.tip != ""
        self._nearest.setdefault(line, None if rootless else self._above(parent))

    def attach_loosely(self, line: str) -> None:
        """Adds a line whose children continue the thread at its tip, whatever its own parent is."""
        self._nearest.setdefault(line, None)

    def fork_point(self, parent: Parent, *, at_root: bool) -> str | None:
        """The message that a new one with this parent continues, if that is a fork; None if it follows the tip.

        Without a parent it is a rewind to before the first message only if `at_root` says that it can be one.
        """
        above = self._above(parent)
        if above is None or above in self._open or (above == "" and not at_root):
            return None
        return above

    def fork(self, after: str) -> None:
        """Continues from the message `after`."""
        self.tip = after
        self._open = {after}

    def add(self, key: str, line: str | None, *, starts: bool, early: bool = False) -> None:
        """Adds a message, written as `line`.

        `starts` marks a prompt or a reply, which closes all earlier messages; but a result that came `early`, before
        its call, stays open.
        """
        self._previous[key] = self.tip
        self._place[key] = len(self._place)
        self.tip = key
        if starts:
            self._open, self._early = self._early, set()
        self._open.add(key)
        if early:
            self._early.add(key)
        if line is not None:
            self._nearest[line] = key

    def add_aside(self, key: str, line: str | None, parent: Parent) -> None:
        """Adds a message whose parent is no evidence; its children are judged by that parent instead."""
        above = self._above(parent)
        self.add(key, line, starts=False)
        if line is not None and above is not None and above not in self._open:
            self._nearest[line] = above

    def keep(self, keys: frozenset[str]) -> None:
        """Opens the messages that a compaction kept: the conversation may continue from any of them."""
        self._open |= keys

    def existing(self, keys: list[str]) -> frozenset[str]:
        """Those of `keys` that are messages of this thread."""
        return frozenset(key for key in keys if key in self._previous)

    def first(self, keys: frozenset[str]) -> str:
        """The earliest of `keys` in this thread; empty for none."""
        return min(keys, key=self._place.__getitem__, default="")

    def since(self, message: str) -> frozenset[str]:
        """The messages after `message` up to the tip."""
        return self._walk(self.tip, message)

    def segment(self, head: str, tail: str) -> frozenset[str]:
        """The messages from line `head` to line `tail`; none if they are unknown or not on one thread."""
        before_head = self._previous.get(head, self._nearest.get(head))
        last = self._nearest.get(tail)
        return frozenset() if before_head is None or last is None else self._walk(last, before_head)

    def _walk(self, key: str, stop: str) -> frozenset[str]:
        walked = set()
        while key not in (stop, ""):
            walked.add(key)
            key = self._previous[key]
        return frozenset(walked) if key == stop else frozenset()

    def _above(self, parent: Parent) -> str | None:
        if isinstance(parent, msgspec.UnsetType):
            return None
        return "" if parent is None else self._nearest.get(parent)
