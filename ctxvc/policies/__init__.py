"""Policies, each a pure function from a view to a plan, and the table of those that `--policy` knows by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ctxvc.core.policy import Ask, Policy
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput, Phrase
from ctxvc.policies.baselines import Clear, Keep, Mask, Skeleton, Summary, Window
from ctxvc.policies.composed import Composed
from ctxvc.policies.default import Default
from ctxvc.policies.episodes.policy import Episodes
from ctxvc.policies.heuristics import Hybrid, OldestTurn, ToolMaskPrune, ToolPrune
from ctxvc.policies.knobs import knob_values, knobs, typed, word
from ctxvc.policies.layered import Layered
from ctxvc.policies.planned.policy import Planned
from ctxvc.policies.run import guard_errors, own_name
from ctxvc.policies.scoped import Scoped
from ctxvc.policies.self_managed import SelfManaged

#: Every policy that ships, in listing order.
POLICIES: tuple[type[Policy], ...] = (
    Default,
    SelfManaged,
    Planned,
    Layered,
    Episodes,
    Scoped,
    OldestTurn,
    ToolPrune,
    ToolMaskPrune,
    Hybrid,
    Keep,
    Window,
    Clear,
    Mask,
    Skeleton,
    Summary,
)

#: Loads a person's own policy: the path of a Python file and the name of a class in it → the class.
Load = Callable[[str, str], type[Policy]]


def parse(
    spec: str, *, ask: Ask | None = None, load: Load | None = None, more: tuple[type[Policy], ...] = ()
) -> Policy:
    """The policy that `spec` names: `NAME:knob=value,knob=value`, several joined by `+`.

    `load` loads a person's own policy, `path.py:Class:knob=value`. `ask` is the model for policies that use one. `more`
    are accepted besides those that ship, but not joined by `+`.
    Raises: BadInput if a name, knob or value is wrong, or a policy of one's own is named without `load`.
    """
    specs = [part.strip() for part in spec.split("+")]
    if not all(specs):
        raise BadInput(f"a policy is missing next to a + in {spec[:80]!r}", hint="as in layered:keep=8+scoped")
    kinds = (*POLICIES, *(more if len(specs) == 1 else ()))
    parts = [_part(part, kinds, ask, load) for part in specs]
    return parts[0] if len(parts) == 1 else Composed(parts=tuple(parts))


def asking(policy: Policy, ask: Ask) -> Policy:
    """The policy with this model, in each part that can use a model and has none."""
    if isinstance(policy, Composed):
        return Composed(parts=tuple(asking(part, ask) for part in policy.parts))
    if getattr(policy, "ask", ask) is not None:
        return policy
    return msgspec.structs.replace(policy, ask=ask)


def protecting(policy: Policy, files: tuple[str, ...]) -> Policy:
    """The policy with these path patterns added to `protect`. Raises: BadInput if no part of it has that knob."""
    parts = policy.parts if isinstance(policy, Composed) else (policy,)
    able = [isinstance(getattr(part, "protect", None), tuple) for part in parts]
    if not any(able):
        having = ", ".join(kind.name for kind in POLICIES if "protect" in knobs(kind))
        raise BadInput(f"{spec(policy)[:80]} protects no files", hint=f"{having} does; a pin keeps a single block")
    protected = tuple(
        msgspec.structs.replace(part, protect=(*getattr(part, "protect"), *files)) if can else part  # noqa: B009
        for part, can in zip(parts, able, strict=True)
    )
    return Composed(parts=protected) if isinstance(policy, Composed) else protected[0]


def spec(policy: Policy) -> str:
    """The spec that `parse` turns into this policy; for a person's own, file and class without the folder."""
    if isinstance(policy, Composed):
        return "+".join(map(spec, policy.parts))
    usual = knobs(type(policy))
    set_ = {knob: value for knob in usual if (value := getattr(policy, knob)) != usual[knob]}
    values = ",".join(f"{knob}={word(value)}" for knob, value in set_.items())
    kind = type(policy)
    name = policy.name if kind.__module__.startswith("ctxvc.") else own_name(kind)
    return f"{name}:{values}" if values else name


def _part(spec: str, kinds: tuple[type[Policy], ...], ask: Ask | None, load: Load | None) -> Policy:
    path, dot, rest = spec.partition(".py:")
    by_name = {kind.name: kind for kind in kinds}
    if dot and spec.partition(":")[0] not in by_name:
        name, _, values = rest.partition(":")
        if load is None:
            wrong = f"{spec[:80]!r} is a policy of your own: a session's naming it is not enough to run its file"
            raise BadInput(wrong, hint=Phrase("name-policy"))
        kind = load(f"{path}.py", name)
    else:
        name, _, values = spec.partition(":")
        if name not in by_name:
            wrong = (
                f"no policy {name[:40]!r}{meant(name, by_name)}" if name else f"a policy without a name: {spec[:40]!r}"
            )
            raise BadInput(wrong, hint=f"available: {', '.join(by_name)}")
        kind = by_name[name]
    given_knobs = knob_values(kind, values)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    more = {"ask": ask} if ask and "ask" in types else {}

    def build() -> Policy:
        try:
            policy = kind(**{knob: typed(knob, value, types[knob]) for knob, value in given_knobs.items()}, **more)
        except (msgspec.ValidationError, ValueError) as error:
            raise BadInput(f"{kind.name}: {error}", hint=Phrase("list-knobs")) from error
        policy.terms()  # an error there is reported now, not in the middle of a session
        return policy

    return guard_errors(kind, build)
