"""A model that a replay's policies ask, as they would in a live run, and the cost of its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from ctxvc import policies
from ctxvc.agent.call import arguments
from ctxvc.agent.model import Model, TooLong
from ctxvc.agent.server import behind
from ctxvc.core.policy import Answer, Policy
from ctxvc.core.view.view import View
from ctxvc.policies.composed import Composed
from ctxvc.replay.drive import Prompts
from ctxvc.replay.measures.cost import CacheSimulation, Extra
from ctxvc.session.session import Session

#: Opens the model in the process that asks it, for the duration of one conversation.
Provider = Callable[[], AbstractContextManager[Model]]

#: The most tokens of an answer.
ANSWER = 8_192


class ModelBeside:
    """The model `name`, for the policies of a replayed session. The cost of its calls goes into `cache`.

    `times` are the recorded times of the conversation's calls in seconds; `call` is the number of the current call.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        session: Session,
        prompts: Prompts,
        cache: CacheSimulation,
        times: Sequence[float | None] = (),
    ) -> None:
        self.call = 0
        self._model = model
        self._name = name
        self._session = session
        self._prompts = prompts
        self._cache = cache
        self._times = times

    def given_to(self, policy: Policy) -> Policy:
        """The policy with this model, if it can use one; the parts of a composed policy likewise."""
        if isinstance(policy, Composed):
            return Composed(parts=tuple(map(self.given_to, policy.parts)))
        return policies.asking(policy, partial(self._answer, kind_of(policy)))

    def _answer(self, extra: Extra, view: View, question: str) -> Answer:
        """The model's answer to the live prompt with the question appended; empty if that does not fit.

        Raises: ModelFailed, so that no result is made half with a model and half without.
        """
        session, price = self._session, view.price
        if not session.view().has_room(question):
            return Answer("", put=False)
        options = {"model": self._name, "max_tokens": ANSWER}
        call = arguments(session.prompt(), options, reserve=session.budget.reserve, final=True)
        try:
            message = self._model.reply(behind(call, question), lambda _: None)
        except TooLong:
            return Answer("")
        answer = "".join(str(block.get("text", "")) for block in message["content"] if block.get("type") == "text")
        keys, sizes = self._prompts.measured(session.view())
        time = self._times[self.call] if self.call < len(self._times) else None
        cost = self._cache.extra_call(extra, keys, sizes, time, fresh=price.text(question), output=price.text(answer))
        return Answer(answer, round(cost))


def kind_of(policy: Policy) -> Extra:
    """The role that a policy asks a model to take."""
    return "planner" if policy.decides == "planner" else "summariser"


def can_ask(policy: Policy) -> list[Extra]:
    """The roles that a policy, or its parts, would ask a model to take; empty if they ask none."""
    parts = policy.parts if isinstance(policy, Composed) else (policy,)
    return [kind_of(part) for part in parts if getattr(part, "ask", part) is None]
