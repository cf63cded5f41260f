"""What boards, tags, stubs and the rest take of the prompts of a replay, and whether each result in them can be named.

As a program: the figures of recordings, one line each, and of all. `python -m tests.replay.census POLICY BUDGET FILES`
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ctxvc.core.display import decode
from ctxvc.core.policy import Policy
from ctxvc.core.prompt import tag
from ctxvc.core.prompt.outline import outline, tag_of
from ctxvc.core.view.dashboard import protocol
from ctxvc.core.view.view import cost_of
from ctxvc.errors import CtxvcError
from ctxvc.policies import parse
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.replay.drive import new_session
from ctxvc.session.session import Session
from ctxvc.tokens.meter import Meter

_ADDRESS = re.compile(r"\bB[0-9]+\b")


@dataclass
class Census:
    """Sums over prompts. `most` is the largest share of the budget that boards and tags took of one.

    `results` are those in the prompts that are large enough for a tag, `unnamed` those of them that neither a tag nor
    a board names.
    """

    budget: int
    prompts: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    most: float = 0.0
    results: int = 0
    unnamed: int = 0

    def add(self, session: Session) -> None:
        """Counts the prompt that the session sent last."""
        view = session.view()
        texts = {row.id for row in protocol(view.ledger)}
        own: Counter[str] = Counter(overhead=view.overhead)
        named: set[str] = set()
        large: list[str] = []
        for slot in outline(view.ledger):
            tagged = view.price.text(tag_of(slot)) if tag_of(slot) else 0
            kind = "protocol" if slot.row.id in texts else "stub" if slot.show == "text" else slot.row.kind
            own[kind] += cost_of(slot, view.price) - tagged
            own["tag"] += tagged
            if tagged:
                named.add(slot.row.id)
            if slot.row.kind == "dashboard":
                named.update(_ADDRESS.findall(slot.text or decode(session.stored.body(slot.row))))
            if slot.row.kind == "tool_result" and slot.show != "text" and view.price.body(slot.row) >= tag.LEAST:
                large.append(slot.row.id)
        self.prompts += 1
        self.tokens += own
        self.most = max(self.most, (own["dashboard"] + own["tag"]) / self.budget)
        self.results += len(large)
        self.unnamed += len(set(large) - named)

    def __str__(self) -> str:
        shares = ", ".join(
            f"{name} {tokens / max(1, self.prompts) / self.budget:.2%}" for name, tokens in self.tokens.most_common()
        )
        return (
            f"{self.prompts} prompts; boards and tags at most {self.most:.1%}; "
            f"{self.unnamed} of {self.results:,} results unnamed; of the budget: {shares}"
        )


def census(conversation: Conversation, policy: Policy, total: Census, meter: Meter) -> None:
    """Adds the prompts of the conversation's replay to `total`."""
    session = new_session(conversation, policy, total.budget, meter=meter)
    for call in conversation.calls:
        for message in call.before:
            session.append(message)
        try:
            session.request()
        except CtxvcError:
            pass  # there is no prompt to count
        else:
            total.add(session)
        session.append(call.reply)


def _lines(policy: str, budget: int, paths: list[Path]) -> Iterator[str]:
    meter, total = Meter(None), Census(budget)
    for conversation in conversations_in(paths):
        census(conversation, parse(policy), own := Census(budget), meter)
        yield f"{conversation.file} {own}"
        total.prompts += own.prompts
        total.tokens += own.tokens
        total.most = max(total.most, own.most)
        total.results += own.results
        total.unnamed += own.unnamed
    yield f"all under {policy} at {budget:,}: {total}"


if __name__ == "__main__":
    for line in _lines(sys.argv[1], int(sys.argv[2]), list(map(Path, sys.argv[3:]))):
        print(line, flush=True)
