"""The measurements of a replay under one policy and one budget, as a line of a results file.

A line has counts only; shares, means and ratios are computed from them, so that results can be added up.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ctxvc.replay.measures.cost import Cost
from ctxvc.replay.measures.retention import UNMEASURED, Amount, Split, Sums

SCHEMA = "ctxvc-replay/1"
#: The name of the policy that knows the future.
ORACLE = "oracle"


class Visible(Sums, frozen=True, gc=False):
    """The number of the same uses that are visible under a rule that knows the future."""

    all: Amount = 0
    nt: Amount = 0
    ar: Amount = 0


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Input tokens: of the largest prompt, of all prompts, and of all prompts if nothing ever leaves (`keep`)."""

    peak: Amount = 0
    total: Amount = 0
    keep: Amount = 0

    @property
    def prune_rate(self) -> float:
        """The share of the input that the policy saves, 0 without input; below 0 if it adds more than it removes."""
        return 1 - self.total / self.keep if self.keep else 0.0


class Options(msgspec.Struct, frozen=True, gc=False):
    """The settings of a replay besides policy and budget.

    With `store` each step goes through a store, else through the engine alone. `bare` removes the dashboard, recover
    and search. `model` is the model that policies ask, empty for none.
    """

    store: bool = False
    bare: bool = False
    model: str = ""


class Timing(msgspec.Struct, frozen=True, gc=False):
    """The engine's milliseconds per step. They differ from run to run, so comparisons leave them out."""

    mean: float = 0.0
    worst: float = 0.0


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """One conversation under one policy and one budget.

    `version` is that of ctxvc and its code, `anchors` that of the list of anchors that don't count. `conversations` is
    the number of conversations in the file, which is done once each has its result. `stand_in` names the
    deterministic stand-ins that acted for the agent and for a model, empty for none. `failed` are calls for which no
    prompt could be made, `over` those whose prompt is over the budget, `invalid` those that the provider would refuse.
    `events` counts management events by verb, then actor; `dropped` the actions of plans that were left out, by reason.
    `kinds` and `failures` are the retention by kind of anchor and by category of failure. `recoveries` is the number of
    demand recoveries that `cost.demand` pays for. `uses` is as from `encode_uses`; it may be empty.
    """

    version: str
    anchors: str
    conversation: str
    file: str
    sha256: str
    aside: bool
    policy: str
    budget: Amount
    options: Options = Options()
    conversations: Amount = 1
    stand_in: str = ""
    calls: Amount = 0
    failed: Amount = 0
    over: Amount = 0
    invalid: Amount = 0
    tokens: Tokens = Tokens()
    cost: Cost = Cost()
    prefix_breaks: Amount = 0
    recoveries: Amount = 0
    events: Mapping[str, Mapping[str, Amount]] = {}
    dropped: Mapping[str, Amount] = {}
    retention: Split = Split()
    kinds: Mapping[str, Split] = {}
    failures: Mapping[str, Split] = {}
    oracle: Visible = Visible()
    belady: Visible = Visible()
    uses: str = ""
    store_bytes: Amount = 0
    timing: Timing = Timing()

    @property
    def comparable(self) -> Result:
        """The result without timing and store: the same for every run, with or without a store."""
        options = msgspec.structs.replace(self.options, store=False)
        return msgspec.structs.replace(self, options=options, store_bytes=0, timing=Timing())


def foresees(policy: str) -> bool:
    """Whether this names the oracle, which is a bound, not a choice."""
    return policy.partition(":")[0] == ORACLE


#: The bits of a use's byte: its outcome's index in `OUTCOMES`, and flags for non-trivial and at risk.
_OUTCOME, _NT, _AR = 7, 8, 16


class UsesMeasured(NamedTuple):
    """The outcome of each use, as an index into `OUTCOMES`, and the indices of the uses of each class."""

    outcomes: bytes
    nt: tuple[int, ...]
    ar: tuple[int, ...]


def encode_uses(measured: UsesMeasured) -> str:
    """One byte a use, in Base64."""
    data = bytearray(outcome & _OUTCOME for outcome in measured.outcomes)
    for flag, places in ((_NT, measured.nt), (_AR, measured.ar)):
        for place in places:
            data[place] |= flag
    return b64encode(data).decode("ascii")


def decode_uses(text: str) -> UsesMeasured:
    """The reverse of `encode_uses`. Raises: ValueError."""
    data = b64decode(text, validate=True)
    outcomes = bytes(UNMEASURED if byte & _OUTCOME == _OUTCOME else byte & _OUTCOME for byte in data)
    nt, ar = (tuple(place for place, byte in enumerate(data) if byte & flag) for flag in (_NT, _AR))
    return UsesMeasured(outcomes, nt, ar)


_DECODER = msgspec.json.Decoder(Result)


def decode(line: bytes) -> Result:
    """The result in a line. Raises: msgspec.DecodeError, also for another schema."""
    return _DECODER.decode(line)
