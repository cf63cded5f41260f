"""What the adapters of frameworks share: conversations that are opened when first used, and closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ctxvc.agent import managed
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.integrations.closeable import Closeable
from ctxvc.integrations.conversation import Conversation, FrameworkMessage
from ctxvc.store.store import Store

#: Id and tool of a call → the framework's message of its result, which says that the call was interrupted.
Interrupted: TypeAlias = Callable[[str, str], FrameworkMessage[Any]]


class Conversations(Closeable):
    """The conversations of one adapter, by the names of their sessions. Safe to call from several threads."""

    def __init__(
        self,
        path: str | Path,
        *,
        budget: int | Budget = 0,
        policy: str | Policy = "",
        model: str = "",
        interrupted: Interrupted | None = None,
    ) -> None:
        """With `interrupted`, calls that a process left without a result are answered when a conversation is opened."""
        self.model = model
        self.lock = threading.RLock()
        self._path, self._budget, self._policy = Path(path), budget, policy
        self._interrupted = interrupted
        self._opened: dict[str, Conversation] = {}

    def context_tools(self, own: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """The definitions of the tools that the policy adds to an agent's own. Raises: BadInput."""
        policy = self._policy or managed.POLICY
        return managed.tools(policy, model=self.model, budget=self._budget, own=own)[len(own) :]

    def sessions(self) -> list[str]:
        """The names of all sessions of the store; none without a store."""
        if not (self._path / "HEAD").exists():
            return []
        with Store(self._path) as store:
            return store.sessions()

    def opened(
        self, name: str, *, model: str = "", system: str = "", tools: Sequence[Mapping[str, Any]] = ()
    ) -> Conversation:
        """The conversation of that name; the rest is for a new one. Raises: CtxvcError."""
        with self.lock:
            if name not in self._opened:
                conversation = Conversation.open(
                    self._path,
                    name,
                    model=self.model or model,
                    budget=self._budget,
                    system=system or None,
                    tools=tools,
                    policy=self._policy,
                )
                self._opened[name] = conversation
                if self._interrupted:
                    conversation.end_interrupted(self._interrupted)
            return self._opened[name]

    def close(self) -> None:
        """Commits what is complete, and closes the files; they are opened again when they are needed."""
        with self.lock:
            for conversation in self._opened.values():
                conversation.close()
            self._opened.clear()
