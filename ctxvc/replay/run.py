"""Replays a conversation under policies and budgets: the result of each run, beside the oracle's bound.

The oracle can also be run like a policy, but only in a replay: it knows the recorded future.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import msgspec

from ctxvc import policies
from ctxvc.agent.model import Model
from ctxvc.core.plan.plan import Plan
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import View
from ctxvc.policies.composed import Composed
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.replay import standin
from ctxvc.replay.beside import ModelBeside, Provider, can_ask
from ctxvc.replay.conversation import Conversation, Prompt
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.measures import oracle
from ctxvc.replay.measures.retention import Gauge
from ctxvc.replay.measures.water_marks import water_marks, worked
from ctxvc.replay.results.result import ORACLE, Result, Timing
from ctxvc.replay.tally import Prepared, Room, Tally, prepare
from ctxvc.replay.work import Setup
from ctxvc.session.session import Session
from ctxvc.store.log.memory import MemorySession
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep.gc import sizes


class Oracle(Policy, frozen=True, kw_only=True):
    """What a policy could have kept in the same room, if it had known which uses were to come.

    - marks: the policy whose water marks it keeps to, as observed at the same budget, and whose tools it pays for.
    - results: whether only results of tools leave (Belady's rule).
    """

    name: ClassVar[str] = ORACLE
    decides: ClassVar[str] = "the recorded future"

    marks: str = "default"
    results: bool = False

    def __post_init__(self) -> None:
        if self.marks.partition(":")[0] == ORACLE:
            raise ValueError("marks must be those of a policy, as in marks=window")

    def propose(self, view: View) -> Plan:
        raise NotImplementedError("an oracle is no policy: it has no view, only the recorded future")


def bound(prepared: Prepared, room: Room, *, results_only: bool) -> bytes:
    """The outcome of each use under the oracle, or under Belady's rule if only results leave."""
    key = room, results_only
    if key not in prepared.bounds:
        gauge = Gauge(prepared.lookup, archive=False)
        for prompt in _prompts(prepared, room, results_only=results_only):
            gauge.add(prompt)
        prepared.bounds[key] = gauge.outcomes
    return prepared.bounds[key]


def foreseen(prepared: Prepared, setup: Setup, entry: Oracle, room: Room) -> Result:
    """The oracle's own result. What it removed counts as recoverable, as for a policy with an archive."""
    tally = Tally(prepared, search=False)
    over = 0
    for prompt in _prompts(prepared, room, results_only=entry.results):
        blocks = sorted(prompt.complete)
        tally.add(prompt, ["", *blocks], [room.overhead, *(prepared.tokens[number] for number in blocks)])
        over += prompt.tokens > room.budget
    bounds = (bound(prepared, room, results_only=only) for only in (False, True))
    return tally.result(setup, *bounds, over=over)


def _prompts(prepared: Prepared, room: Room, *, results_only: bool) -> Iterator[Prompt]:
    own = prepared.lookup.uses, prepared.tokens, room.budget, *room.marks
    return oracle.oracle(prepared.conversation, *own, overhead=room.overhead, results_only=results_only)


def replay(
    conversation: Conversation,
    setups: Sequence[Setup],
    *,
    parse: Callable[[str], Policy] = policies.parse,
    provider: Provider | None = None,
) -> Iterator[Result]:
    """Yields the result of each setup on a conversation, in order; `parse` makes the policy from a setup's text.

    `provider` opens the model for setups that name one.
    Raises: BadInput if a policy does not exist, ModelFailed.
    """
    prepared = _prepared_once(conversation)
    with ExitStack() as stack:
        asks = any(setup.options.model for setup in setups)
        model = stack.enter_context(provider()) if provider and asks else None
        for setup in setups:
            policy = parse(setup.policy)
            if isinstance(policy, Oracle):
                yield foreseen(prepared, setup, policy, _room(prepared, setup, policy.marks, parse(policy.marks)))
                continue
            if not setup.options.store:
                yield run(prepared, setup, policy, model=model)
                continue
            with tempfile.TemporaryDirectory(prefix="ctxvc-replay-") as folder:
                with create(Path(folder) / ".ctxvc") as store:
                    result = run(prepared, setup, policy, store, model=model)
                yield result


#: The prepared conversations of the newest file, by id.
_prepared: dict[str, Prepared] = {}


def _prepared_once(conversation: Conversation) -> Prepared:
    """As `prepare`, but once per conversation as long as the calls are for the same file."""
    if any(prepared.conversation.sha256 != conversation.sha256 for prepared in _prepared.values()):
        _prepared.clear()
    prepared = _prepared.get(conversation.id)
    if prepared is None or prepared.conversation is not conversation:
        prepared = _prepared[conversation.id] = prepare(conversation)
    return prepared


def run(
    prepared: Prepared, setup: Setup, inner: Policy, store: Store | None = None, *, model: Model | None = None
) -> Result:
    """The result of a replay under `inner`, the setup's policy; with a `store`, the session goes through it.

    If the setup names a model, `model` answers the policy's questions under that name. Raises: BadInput, ModelFailed.
    """
    conversation, options = prepared.conversation, setup.options
    policy: Policy = Bare(inner=inner) if options.bare else inner
    managed = _is_managed(inner) and not options.bare
    session = new_session(conversation, policy, setup.budget, store=store, meter=prepared.meter)
    prompts = Prompts(session)
    terms = policy.terms_in(setup.budget)
    tally = Tally(prepared, archive=terms.handles, search="search" in terms.tools)
    adviser: ModelBeside | None = None
    if options.model:
        assert model, "a setup with a model needs a provider"
        adviser = ModelBeside(model, options.model, session, prompts, tally.cache, prepared.times)
        with_model = adviser.given_to(inner)
        session.policy = Bare(inner=with_model) if options.bare else with_model
    dropped: Counter[str] = Counter()
    milliseconds: list[float] = []
    failed = over = invalid = 0
    for number, driven in enumerate(drive(conversation, session, prompts, managed=managed)):
        if adviser:
            adviser.call = number + 1
        dropped.update(driven.dropped)
        milliseconds.append(driven.seconds * 1000)
        if driven.extra:
            tally.cache.ask("recovery", cached=driven.extra)
        if driven.prompt is None:
            failed += 1
            continue
        over += driven.over
        invalid += bool(driven.faults)
        tally.add(driven.prompt, prompts.keys, prompts.sizes)
    events, overhead = _events(session), session.view().overhead
    session.close()
    room = Room(setup.budget, worked(water_marks(inner, setup.budget), tally.totals, setup.budget), overhead)
    prepared.rooms[setup.policy, setup.budget, options.bare] = room
    return tally.result(
        setup,
        bound(prepared, room, results_only=False),
        bound(prepared, room, results_only=True),
        stand_in=", ".join(_stand_ins(inner, managed=managed, model=options.model)),
        failed=failed,
        over=over,
        invalid=invalid,
        events=events,
        dropped=dict(dropped),
        store_bytes=sizes(store).packed if store else 0,
        timing=Timing(
            mean=round(sum(milliseconds) / len(milliseconds), 3) if milliseconds else 0.0,
            worst=round(max(milliseconds, default=0.0), 3),
        ),
    )


def _room(prepared: Prepared, setup: Setup, name: str, policy: Policy) -> Room:
    """The room of the policy `name` at the setup's budget; runs the policy first if that is still to be done."""
    key = name, setup.budget, setup.options.bare
    if key not in prepared.rooms:
        options = msgspec.structs.replace(setup.options, store=False, model="")
        run(prepared, Setup(name, setup.budget, options), policy)
    return prepared.rooms[key]


def _is_managed(policy: Policy) -> bool:
    """Whether the policy leaves archiving to the agent, so that a stand-in has to act for the recorded one."""
    if isinstance(policy, Composed):
        return any(map(_is_managed, policy.parts))
    return isinstance(policy, SelfManaged) and policy.agent and policy.archive


def _stand_ins(policy: Policy, *, managed: bool, model: str) -> list[str]:
    """The names of the stand-ins that act under a policy, for the agent and for a model."""
    rules = {"planner": standin.PLANNER, "summariser": standin.SUMMARISER}
    unasked = [] if model else can_ask(policy)
    return [*([standin.MANAGER] if managed else []), *dict.fromkeys(rules[extra] for extra in unasked)]


def _events(session: Session) -> Mapping[str, Mapping[str, int]]:
    """Counts of a session's management events, by operation and actor: every change but the messages themselves."""
    counts: Counter[tuple[str, str]]
    if isinstance(session.stored, MemorySession):
        counts = session.stored.operations
    else:
        session.stored.finish()  # the events of a step that the recording leaves open are in the journal alone
        session.stored.flush()
        entries = revision.history(session.store, session.stored.tip())
        counts = Counter((entry.op, entry.actor) for entry in entries)
    events: dict[str, dict[str, int]] = {}
    for (operation, actor), count in sorted(counts.items()):
        if operation not in _NO_EVENTS:
            events.setdefault(operation, {})[actor] = count
    return events


#: Operations that add messages and their tags, or set up a session.
_NO_EVENTS = frozenset({"step", "session", "settings", "tag"})
