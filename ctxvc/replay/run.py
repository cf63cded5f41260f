"""A conversation replayed under policies and budgets: each run's result, with what is worked out once shared by all."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from ctxvc import policies
from ctxvc.agent.model import Model
from ctxvc.core.policy import Policy
from ctxvc.policies import Composed
from ctxvc.policies.baselines import Keep
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.replay import standin
from ctxvc.replay.bare import Bare
from ctxvc.replay.beside import ModelBeside, Provider, can_ask
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.measures import oracle
from ctxvc.replay.measures.common import common_anchors
from ctxvc.replay.measures.cost import CacheSimulation, DemandRecovery
from ctxvc.replay.measures.retention import UNMEASURED, VISIBLE, Gauge, Lookup, retention
from ctxvc.replay.measures.uses import Use, uses
from ctxvc.replay.measures.water_marks import WaterMarks, water_marks, worked
from ctxvc.replay.results.result import Cost, Result, Timing, Tokens, UsesMeasured, Visible, encode_uses
from ctxvc.replay.work import Setup
from ctxvc.session.session import Session
from ctxvc.store.log.memory import MemorySession
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep.gc import sizes
from ctxvc.tokens.meter import Meter

#: A budget that no recording reaches.
_UNBOUNDED = 1 << 40


@dataclass
class Prepared:
    """What all replays of a conversation share: its uses, the tokens of its blocks, and the run that keeps everything.

    `overhead` are the tokens of system prompt and tools, `times` the recorded times of the calls in seconds. `bounds`
    has what an oracle reaches, by budget, marks, overhead and whether only results leave.
    """

    conversation: Conversation
    meter: Meter
    lookup: Lookup
    tokens: tuple[int, ...]
    overhead: int
    times: tuple[float | None, ...]
    keep: Tokens
    keep_cost: float
    bounds: dict[tuple[int, WaterMarks, int, bool], bytes] = field(default_factory=dict)


def prepare(conversation: Conversation) -> Prepared:
    """What the replays of a conversation share."""
    meter = Meter(None)
    session = new_session(conversation, Bare(inner=Keep()), _UNBOUNDED, meter=meter)
    prompts = Prompts(session)
    times = tuple(_seconds(call.reply.time) for call in conversation.calls)
    cache = CacheSimulation()
    totals = []
    for driven, time in zip(drive(conversation, session, prompts), times, strict=True):
        if driven.prompt:
            cache.send(prompts.keys, prompts.sizes, time)
            totals.append(driven.prompt.tokens)
    view = session.view()
    rows = {number: view.ledger[block] for block, number in prompts.numbers.items()}
    return Prepared(
        conversation=conversation,
        meter=meter,
        lookup=Lookup(conversation, uses(conversation)),
        tokens=tuple(view.price.body(rows[number]) for number in range(len(rows))),
        overhead=view.overhead,
        times=times,
        keep=Tokens(peak=max(totals, default=0), total=sum(totals), keep=sum(totals)),
        keep_cost=cache.cost().prompts,
    )


def replay(
    conversation: Conversation,
    setups: Sequence[Setup],
    *,
    parse: Callable[[str], Policy] = policies.parse,
    provider: Provider | None = None,
) -> Iterator[Result]:
    """The result of each setup on a conversation, in order; `parse` makes a setup's policy of its words.

    The models that setups name are of the `provider`.
    Raises: BadInput for a policy that does not exist, ModelFailed.
    """
    prepared = _prepared_once(conversation)
    with ExitStack() as stack:
        asks = any(setup.options.model for setup in setups)
        model = stack.enter_context(provider()) if provider and asks else None
        for setup in setups:
            policy = parse(setup.policy)
            if not setup.options.store:
                yield run(prepared, setup, policy, model=model)
                continue
            with tempfile.TemporaryDirectory(prefix="ctxvc-replay-") as folder:
                with create(Path(folder) / ".ctxvc") as store:
                    result = run(prepared, setup, policy, store, model=model)
                yield result


#: What was prepared of the conversations of the newest file.
_prepared: dict[str, Prepared] = {}


def _prepared_once(conversation: Conversation) -> Prepared:
    """`prepare`, once for all calls in a row for the same file."""
    if any(prepared.conversation.sha256 != conversation.sha256 for prepared in _prepared.values()):
        _prepared.clear()
    prepared = _prepared.get(conversation.id)
    if prepared is None or prepared.conversation is not conversation:
        prepared = _prepared[conversation.id] = prepare(conversation)
    return prepared


def run(
    prepared: Prepared, setup: Setup, inner: Policy, store: Store | None = None, *, model: Model | None = None
) -> Result:
    """One replay under `inner`, the policy of the setup; with a `store` also through that.

    Where the setup names a model, `model` answers under that name what the policy asks. Raises: BadInput, ModelFailed.
    """
    conversation, lookup, options = prepared.conversation, prepared.lookup, setup.options
    policy: Policy = Bare(inner=inner) if options.bare else inner
    managed = _is_managed(inner) and not options.bare
    session = new_session(conversation, policy, setup.budget, store=store, meter=prepared.meter)
    prompts = Prompts(session)
    terms = policy.terms_in(setup.budget)
    gauge = Gauge(lookup, archive=terms.handles, search="search" in terms.tools)
    cache, demand = CacheSimulation(), DemandRecovery(lookup.uses, prepared.tokens)
    adviser: ModelBeside | None = None
    if options.model:
        assert model, "a setup with a model needs a provider"
        adviser = ModelBeside(model, options.model, session, prompts, cache, prepared.times)
        with_model = adviser.given_to(inner)
        session.policy = Bare(inner=with_model) if options.bare else with_model
    dropped: Counter[str] = Counter()
    totals: list[int] = []
    milliseconds: list[float] = []
    failed = over = invalid = 0
    calls = drive(conversation, session, prompts, managed=managed)
    for number, (driven, time) in enumerate(zip(calls, prepared.times, strict=True)):
        if adviser:
            adviser.call = number + 1
        dropped.update(driven.dropped)
        milliseconds.append(driven.seconds * 1000)
        if driven.extra:
            cache.ask("recovery", cached=driven.extra)
        if driven.prompt is None:
            failed += 1
            continue
        totals.append(driven.prompt.tokens)
        over += driven.over
        invalid += bool(driven.faults)
        cache.send(prompts.keys, prompts.sizes, time)
        demand.add(driven.prompt, range(*lookup.spans[number]), gauge.add(driven.prompt))
    events, overhead = _events(session), session.view().overhead
    session.close()
    paid, recoveries = cache.cost(), demand.recoveries()
    retained = retention(lookup.uses, gauge.outcomes)
    between = worked(water_marks(inner, setup.budget), totals, setup.budget)
    return Result(
        version="",
        anchors=common_anchors().version,
        conversation=conversation.id,
        file=conversation.file,
        sha256=conversation.sha256,
        aside=conversation.aside,
        policy=setup.policy,
        budget=setup.budget,
        options=options,
        stand_in=", ".join(_stand_ins(inner, managed=managed, model=options.model)),
        calls=len(conversation.calls),
        failed=failed,
        over=over,
        invalid=invalid,
        tokens=Tokens(peak=max(totals, default=0), total=sum(totals), keep=prepared.keep.total),
        cost=Cost(
            prompts=paid.prompts,
            keep=prepared.keep_cost,
            planner=paid.planner,
            summariser=paid.summariser,
            recovery=paid.recovery,
            demand=recoveries.cost,
        ),
        prefix_breaks=paid.breaks,
        recoveries=recoveries.calls,
        events=events,
        dropped=dict(dropped),
        retention=retained.uses,
        kinds=dict(retained.kinds.items()),
        failures=dict(retained.categories.items()),
        oracle=_visible(
            lookup.uses, gauge.outcomes, bound(prepared, setup.budget, between, overhead, results_only=False)
        ),
        belady=_visible(
            lookup.uses, gauge.outcomes, bound(prepared, setup.budget, between, overhead, results_only=True)
        ),
        uses=encode_uses(_measured(lookup.uses, gauge.outcomes)),
        store_bytes=sizes(store).packed if store else 0,
        timing=Timing(
            mean=round(sum(milliseconds) / len(milliseconds), 3) if milliseconds else 0.0,
            worst=round(max(milliseconds, default=0.0), 3),
        ),
    )


def bound(prepared: Prepared, budget: int, between: WaterMarks, overhead: int, *, results_only: bool) -> bytes:
    """The outcome of each use under a rule that knows the future: `oracle`, or `belady` if only results leave.

    `overhead` are the tokens of system prompt and tools beside the conversation, those of the policy's own tools
    included: the bound is on what a policy decides, so it pays for the same tools.
    """
    key = budget, between, overhead, results_only
    if key not in prepared.bounds:
        rule = oracle.belady if results_only else oracle.oracle
        gauge = Gauge(prepared.lookup, archive=False)
        prompts = rule(
            prepared.conversation, prepared.lookup.uses, prepared.tokens, budget, *between, overhead=overhead
        )
        for prompt in prompts:
            gauge.add(prompt)
        prepared.bounds[key] = gauge.outcomes
    return prepared.bounds[key]


def _is_managed(policy: Policy) -> bool:
    """Whether the policy leaves it to the agent to archive, so that a stand-in has to act for the recorded one."""
    if isinstance(policy, Composed):
        return any(map(_is_managed, policy.parts))
    return isinstance(policy, SelfManaged) and policy.agent and policy.archive


def _stand_ins(policy: Policy, *, managed: bool, model: str) -> list[str]:
    """The stand-ins that act under a policy, for the agent and for a model."""
    rules = {"planner": standin.PLANNER, "summariser": standin.SUMMARISER}
    unasked = [] if model else can_ask(policy)
    return [*([standin.MANAGER] if managed else []), *dict.fromkeys(rules[extra] for extra in unasked)]


def _events(session: Session) -> Mapping[str, Mapping[str, int]]:
    """The management events of a session, by operation and actor: all that changed it but the messages themselves."""
    counts: Counter[tuple[str, str]]
    if isinstance(session.stored, MemorySession):
        counts = session.stored.operations
    else:
        session.stored.flush()
        entries = revision.history(session.store, session.stored.tip())
        counts = Counter((entry.trailers.get("Ctxvc-Op", ""), entry.actor) for entry in entries)
    events: dict[str, dict[str, int]] = {}
    for (operation, actor), count in sorted(counts.items()):
        if operation not in _NO_EVENTS:
            events.setdefault(operation, {})[actor] = count
    return events


#: Operations by which messages come in, with their tags, and a session is set up.
_NO_EVENTS = frozenset({"step", "session", "settings", "tag"})


def _measured(uses: Sequence[Use], outcomes: bytes) -> UsesMeasured:
    nt = tuple(place for place, use in enumerate(uses) if use.nt)
    return UsesMeasured(bytes(outcomes), nt, tuple(place for place in nt if uses[place].ar))


def _visible(uses: Sequence[Use], outcomes: bytes, bound: bytes) -> Visible:
    """What a bound sees of the uses of a run that were measured: of a call that failed there is nothing to compare."""
    visible = [
        use for use, own, ideal in zip(uses, outcomes, bound, strict=True) if ideal == VISIBLE and own != UNMEASURED
    ]
    return Visible(len(visible), sum(use.nt for use in visible), sum(use.ar for use in visible))


def _seconds(time: str) -> float | None:
    """Seconds since 1970 of an ISO time; None if it is none."""
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() if time else None
    except ValueError:
        return None
