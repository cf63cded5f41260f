"""A policy: a pure function from a view to a plan, and its demands on the harness that runs it.

A policy has no effects. If it needs a model, it is passed one as a function (`Ask`); the time is in the view. Its
fields are its knobs; its class states where it comes from and what its users give up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, get_args

import msgspec

from ctxvc.core.plan import guard, timing
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.timing import CommitDecision, Timing
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.model_dashboard import Board
from ctxvc.core.view.view import View

#: The boards that list blocks.
_LISTING: frozenset[Board] = frozenset({"each", "changes", "thresholds", "full"})

#: The tools that reach what left an agent's prompt, and those of them that an agent needs for that.
READING = frozenset({"recover", "restore", "search"})
REACH = ("recover", "search")
#: The tool by which an agent that makes room itself asks for its board.
DASHBOARD = "dashboard"
#: The tools by which an agent makes room without loss → their names in its prompt.
_FREEING: Mapping[str, str] = {"archive": "archive", "note": "note with fold", "scope": "scope"}


class Knob(msgspec.Struct, frozen=True):
    """What a knob counts, and the range of its values: the annotation of a policy's field.

    The range applies to numbers, not to a knob's words. The default maximum is more tokens, bytes, steps, calls or
    seconds than a session has.
    """

    unit: str
    minimum: float = 0
    maximum: float = 10**9
    is_open: bool = False  # whether the minimum itself is out of range

    def fault(self, value: float) -> str:
        """What a value must be, as the end of a sentence; empty if it is valid."""
        if self.minimum <= value <= self.maximum and not (self.is_open and value == self.minimum):
            return ""
        if self.maximum == 1:
            lower = "above 0 and at most" if self.is_open else "from 0 to"
            return f"must be a {self.unit}, {lower} 1"
        return f"must be a number, at least {self.minimum} and at most {self.maximum:,}"


#: The types of a policy's fields.
Share = Annotated[float, Knob("share of the budget", maximum=1)]
PromptShare = Annotated[float, Knob("share of the prompt", maximum=1)]
CeilingShare = Annotated[float, Knob("share of the ceiling", maximum=1, is_open=True)]
Price = Annotated[float, Knob("times the price of a fresh input token")]
Seconds = Annotated[float, Knob("seconds")]
Calls = Annotated[float, Knob("calls")]
Tokens = Annotated[int, Knob("tokens")]
Results = Annotated[int, Knob("results")]
Steps = Annotated[int, Knob("steps", minimum=1)]
StepsOrNone = Annotated[int, Knob("steps")]
Bytes = Annotated[int, Knob("bytes")]
Characters = Annotated[int, Knob("characters", minimum=1)]
Blocks = Annotated[int, Knob("blocks")]
Names = Annotated[tuple[str, ...], Knob("names of tools, separated by |")]
Globs = Annotated[tuple[str, ...], Knob("patterns of paths, separated by |")]
Focus = Annotated[tuple[str, ...], Knob("words, separated by |")]
Weights = Annotated[tuple[str, ...], Knob("CLASS=NUMBER, separated by |")]


def knob_of(kind: Any) -> Knob | None:
    """The annotation of a field's type, which may be optional."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    return next((annotation for annotation in getattr(kind, "__metadata__", ()) if isinstance(annotation, Knob)), None)


@cache
def _ranges(kind: type[Policy]) -> Mapping[str, Knob]:
    """Knob → its annotation."""
    return {field.name: knob for field in msgspec.structs.fields(kind) if (knob := knob_of(field.type))}


class Answer(msgspec.Struct, frozen=True):
    """A model's answer, and the price of the call in fresh input tokens.

    `put` is false if the question was not asked because there was no room for it.
    """

    text: str
    tokens: int = 0
    put: bool = True


#: A model beside the conversation: it is sent the live prompt of the view, byte for byte, and one more block after it.
Ask = Callable[[View, str], Answer]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's demands on the harness besides its plans.

    `tools` are the context tools that the model gets, `protocol` the text on their use, pinned at the beginning.
    `board` is what the model sees of its context. `handles` says whether the model can reach what left: if so, stubs
    state how to get it back, and `recover` and `search` are among the tools, since large results leave under every
    policy; if not, no tool reads it. `ladder` are thresholds of the budget that differ from the defaults, and `batch`
    is the most tokens that the results of one step may have together (0: as many as fit). `folds` says whether a note
    may archive what led to it. A board names at most `candidates` results that may leave, and with `nudges` it says
    when it is time to make room. A model that makes no room itself sees the totals alone, and one that does can ask for
    its board (`dashboard`). `brief` describes the tools in a sentence each, for a window without room for more.
    """

    tools: tuple[str, ...] = ()
    protocol: str = ""
    board: Board = "changes"
    handles: bool = True
    ladder: Mapping[str, float] = {}
    batch: int = 0
    folds: bool = True
    candidates: int = 6
    nudges: bool = True
    brief: bool = False

    def __post_init__(self) -> None:
        usable = self.tools if self.handles else (tool for tool in self.tools if tool not in READING)
        tools = tuple(dict.fromkeys((*usable, *(REACH if self.handles else ()))))
        msgspec.structs.force_setattr(self, "tools", tools)
        if self.freeing and self.board in _LISTING:
            msgspec.structs.force_setattr(self, "tools", tuple(dict.fromkeys((*tools, DASHBOARD))))

    @property
    def visible_board(self) -> Board:
        """The board that the model gets: only the totals if it has no tool to act on more, except for `full`."""
        return "status" if self.board in _LISTING - {"full"} and not self.freeing else self.board

    @property
    def freeing(self) -> tuple[str, ...]:
        """The tools by which the agent makes room itself, by their names in its prompt; `delete` only alone."""
        lossless = [word for tool, word in _FREEING.items() if tool in self.tools and (tool != "note" or self.folds)]
        return tuple(lossless) or (("delete",) if "delete" in self.tools else ())

    @property
    def ways(self) -> str:
        """`archive, note with fold or scope`: the tools of `freeing` in a sentence; empty if there are none."""
        *others, last = self.freeing or ("",)
        return f"{', '.join(others)}{' or ' if others else ''}{last}"

    @property
    def room(self) -> str:
        """The hint for an agent that has run out of room."""
        if not self.freeing:
            return "no tool of yours makes room: answer with what you know"
        return f"make room first, with {self.ways}"

    def nudge(self, crossed: int, unnoted: int) -> str:
        """The dashboard's reminder for the agent, if it has tools to act on it; empty if there is none.

        `crossed` is the threshold that usage crossed, in percent; `unnoted` the number of steps in the agent's own
        scope that no note covers, if those are many. Either is 0 if there is nothing to report.
        """
        reminders = []
        if crossed and self.nudges and self.freeing:
            reminders.append(f"past {crossed} %: make room with {self.ways} when you can")
        if unnoted and self.notes_before_leaving:
            reminders.append(f"nothing noted in {unnoted} steps: note what you learned before you goto another scope")
        return "; ".join(reminders)

    @property
    def notes_before_leaving(self) -> bool:
        """Whether the agent can leave a scope, and first note what it learned there."""
        return {"note", "goto"} <= set(self.tools)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every policy. A custom policy is a subclass with a `name` and `propose`."""

    #: Its name for `--policy`.
    name: ClassVar[str] = ""
    #: Where it was published: paper and section.
    source: ClassVar[str] = ""
    #: Who decides what leaves, what the model sees of its context, and whether what left can be recovered: in ctxvc
    #: always, `there` in the system that the policy comes from.
    decides: ClassVar[str] = "rule"
    sees: ClassVar[str] = "stubs"
    recovers: ClassVar[str] = "yes"
    #: Former name of a knob → its name; stored settings may have the former one.
    former: ClassVar[Mapping[str, str]] = {}
    #: Knobs whose values must not decrease in this order.
    ascending: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Raises: ValueError if a knob is out of its range, or above the next in `ascending`."""
        for name, knob in _ranges(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, int | float) and (fault := knob.fault(value)):
                raise ValueError(f"{name} {fault}")
        values = [getattr(self, name) for name in self.ascending]
        if values != sorted(values):
            listed = ", ".join(f"{name}={value:g}" for name, value in zip(self.ascending, values, strict=True))
            raise ValueError(f"{listed} are not {' <= '.join(self.ascending)}")

    def propose(self, view: View) -> Plan:
        """What should change now; no actions, and a reason, if nothing should. Equal views give equal plans."""
        raise NotImplementedError

    def terms(self) -> Terms:
        """The policy's demands on the harness."""
        return Terms()

    def terms_in(self, window: int) -> Terms:  # noqa: ARG002 - most policies ask for the same in any
        """The demands on the harness in a window of `window` tokens: never a tool that `terms` does not have."""
        return self.terms()

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        """Whether the rehearsed plan is applied now or waits, and why."""
        return timing.moment(view, rehearsal, self.timing)

    def relief(self, view: View, target: int) -> Sequence[Action]:
        """The actions that the guard takes first to bring the prompt down to `target` tokens, whatever the plans leave.

        The guard takes as many of them as it needs, in this order, and others if they do not suffice.
        """
        return guard.oldest_steps(view, target)

    def high(self, budget: Budget) -> int:
        """The usage in tokens above which the policy removes something; what is restored automatically stays below."""
        return int(budget.effective * guard.LOW_WATER)

    @property
    def timing(self) -> Timing:
        """The prices and bounds by which the moment of its plans is judged."""
        return timing.USUAL

    @property
    def actor(self) -> str:
        """The actor recorded for its plans."""
        return f"policy:{self.name}"


class Triggered(Policy, frozen=True, kw_only=True):
    """The base of the policies that act above a share of the budget, `trigger`."""

    trigger: Share

    def high(self, budget: Budget) -> int:
        return int(budget.effective * self.trigger)
