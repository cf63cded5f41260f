"""A person's own policy: held to what a policy may do, and its mistakes are told as its own, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.cli.options.policy_and_model import parsed
from ctxvc.core.plan import Plan, View
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.errors import BadInput
from ctxvc.policies import POLICIES, parse, spec
from ctxvc.policies.composed import Composed
from ctxvc.policies.knobs import knob_units, knobs
from ctxvc.policies.planned.policy import Planned
from ctxvc.policies.run import ask_plan, ask_timing
from ctxvc.session.session import Session
from tests.policies.cases import working

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "stale_reads.py"

OWN = '''\
from ctxvc.core.plan import Action, Plan
from ctxvc.core.policy import Policy, Terms


class Base(Policy, frozen=True, kw_only=True):
    name = "base"

    def plan(self, *actions, **fields):
        return Plan(**{"actions": actions, "actor": self.actor, **fields})


class Fails(Base, frozen=True, kw_only=True):
    name = "fails"

    def propose(self, view):
        return 1 / len(self.plan().actions)


class Unplanned(Base, frozen=True, kw_only=True):
    name = "unplanned"

    def propose(self, view):
        return None


class UnknownVerb(Base, frozen=True, kw_only=True):
    name = "unknown_verb"

    def propose(self, view):
        return self.plan(Action(verb="explode", targets=("B3",)))


class DeepInside(Base, frozen=True, kw_only=True):
    name = "deep_inside"

    def propose(self, view):
        return self.plan(reason=str(view.ledger["B99999"]))


class NeedsOne(Base, frozen=True, kw_only=True):
    name = "needs_one"
    one: int

    def propose(self, view):
        return self.plan(reason=f"one is {self.one}")


class Choosy(Base, frozen=True, kw_only=True):
    name = "choosy"
    one: int = 1

    def __post_init__(self):
        if self.one > 1:
            raise ValueError("one is at most 1")


class NoTerms(Base, frozen=True, kw_only=True):
    name = "no_terms"

    def terms(self):
        return Terms(tools=self.missing)


class NoName(Policy, frozen=True, kw_only=True):
    pass


class FieldName(Policy, frozen=True, kw_only=True):
    name: str = "field"


class OddName(Policy, frozen=True, kw_only=True):
    name = "a+b"


class NoMoment(Base, frozen=True, kw_only=True):
    name = "no_moment"

    def moment(self, view, tried):
        return True


class AsUser(Base, frozen=True, kw_only=True):
    """Says that it is a person, and takes what a human wrote."""

    name = "as_user"
    actor = "user"

    def propose(self, view):
        humans = tuple(row.id for row in view.ledger.rows() if row.origin == "human")
        return self.plan(Action(verb="prune", targets=humans), actor="user", allow_user=True)


class Deletes(Base, frozen=True, kw_only=True):
    name = "deletes"

    def propose(self, view):
        return self.plan(Action(verb="delete", targets=("B3",), index="of no use"))
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    return file


def line(words: str) -> int:
    return OWN.split("\n").index(words) + 1


@pytest.mark.parametrize(
    ("name", "said", "at"),
    [
        (
            "Fails",
            "policy fails fails: ZeroDivisionError: division by zero",
            "        return 1 / len(self.plan().actions)",
        ),
        ("Unplanned", "policy unplanned fails: TypeError: propose returned NoneType, not a Plan", ""),
        ("UnknownVerb", "policy unknown_verb fails: ValidationError: Invalid enum value 'explode'", ""),
        (
            "DeepInside",
            "policy deep_inside fails: KeyError",
            '        return self.plan(reason=str(view.ledger["B99999"]))',
        ),
    ],
)
def test_a_mistake_in_it_is_told_with_its_file_and_line(own: Path, name: str, said: str, at: str) -> None:
    policy = parsed(f"own.py:{name}", own.parent)
    view = working().view(20_000)
    for each in (policy, Composed(parts=(parse("keep"), policy))):
        with pytest.raises(BadInput) as told:
            ask_plan(each, view)
        assert str(told.value).startswith(said)
        assert told.value.hint == f"the error is in {own}" + (f", line {line(at)}" if at else "")


def test_so_are_mistakes_in_what_else_it_says(own: Path) -> None:
    with pytest.raises(BadInput, match="AttributeError") as told:
        parsed("own.py:NoTerms", own.parent)
    assert told.value.hint.endswith(f"line {line('        return Terms(tools=self.missing)')}")
    view = working().view(20_000)
    with pytest.raises(BadInput, match="moment returned bool, not a CommitDecision"):
        ask_timing(parsed("own.py:NoMoment", own.parent), view, rehearse(view, parse("keep").propose(view)))


def test_a_mistake_in_a_policy_of_ours_stays_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(parse("keep"))
    monkeypatch.setattr(kind, "propose", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask_plan(kind(), working().view(20_000))


@pytest.mark.parametrize("name", ["NoName", "FieldName", "OddName"])
def test_it_has_a_name_that_can_stand_in_a_commit(own: Path, name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} has no name") as told:
        parsed(f"own.py:{name}", own.parent)
    assert told.value.hint == 'give the class a name, as in: name = "my_policy"'


def test_a_knob_without_a_usual_value_must_be_given(own: Path) -> None:
    with pytest.raises(BadInput, match="needs_one: one has no default value") as told:
        parsed("own.py:NeedsOne", own.parent)
    assert told.value.hint == "as in needs_one:one=VALUE"
    policy = parsed("own.py:NeedsOne:one=3", own.parent)
    assert spec(policy) == "own.py:NeedsOne:one=3"
    with pytest.raises(BadInput, match="choosy: one is at most 1"):
        parsed("own.py:Choosy:one=2", own.parent)


def test_it_acts_as_a_policy_whatever_it_says_that_it_is(own: Path) -> None:
    policy = parsed("own.py:AsUser", own.parent)
    plan = ask_plan(policy, working().view(20_000))
    assert (plan.actor, plan.allow_user) == ("policy:as_user", False)
    assert plan.actions
    composed = ask_plan(Composed(parts=(policy, parse("keep"))), working().view(20_000))
    assert (composed.actor, composed.allow_user) == ("policy:as_user+keep", False)


def test_what_a_human_wrote_stays_in_a_session_under_it(own: Path, tmp_path: Path) -> None:
    with Session.open(tmp_path / "store", "demo", policy=parsed("own.py:AsUser", own.parent)) as session:
        session.append({"role": "user", "content": "the first task"})
        session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "the next"})
        session.request()
        session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "one more"})
        session.request()
        assert all(row.present for row in session.ledger().rows() if row.origin == "human")


def test_what_it_takes_can_be_got_back(own: Path) -> None:
    policy = parsed("own.py:Deletes", own.parent)
    for each in (policy, Composed(parts=(parse("keep"), policy))):
        with pytest.raises(BadInput, match="policy deletes would delete B3"):
            ask_plan(each, working().view(20_000))


def test_a_session_under_it_is_gone_on_with_when_it_is_named_again(own: Path, tmp_path: Path) -> None:
    """A store may come from anybody: no file is run because a session names it."""
    policy = parsed("own.py:NeedsOne:one=3", own.parent)
    with Session.open(tmp_path / "store", "demo", policy=policy):
        pass
    with pytest.raises(BadInput, match="NeedsOne:one=3' is a policy of your own") as told:
        Session.open(tmp_path / "store", "demo")
    assert "name the policy again" in str(told.value.hint)
    with Session.open(tmp_path / "store", "demo", policy=policy) as session:
        assert session.policy == policy


def test_it_does_not_take_the_name_of_one_that_ships(own: Path) -> None:
    source = own.read_text().replace('name = "needs_one"', 'name = "layered"')
    own.write_text(source)
    with pytest.raises(BadInput, match="layered is already the name of a policy"):
        parsed("own.py:NeedsOne:one=3", own.parent)


def test_the_example_of_the_docs_is_one(own: Path) -> None:
    policy = parsed(f"{EXAMPLE}:StaleReads", own.parent)
    assert ask_plan(policy, working().view(20_000)).actor == "policy:stale_reads"


# --- the words that name a policy


@pytest.mark.parametrize("words", ["layered+", "+", "+keep", "keep++mask"])
def test_a_plus_has_a_policy_on_both_sides(words: str) -> None:
    with pytest.raises(BadInput, match=r"a policy is missing next to a \+"):
        parse(words)


def test_words_that_name_none_say_how_it_is_done() -> None:
    with pytest.raises(BadInput, match="a policy without a name: ':keep=3'"):
        parse(":keep=3")
    with pytest.raises(BadInput, match="'Grep' is not KNOB=VALUE") as told:
        parse("layered:exclude=Read,Grep")
    assert told.value.hint.endswith("separate several values of a knob with |, as in exclude=a|b")
    assert parse("layered:exclude=Read|Grep") == parse(spec(parse("layered:exclude=Read|Grep")))


SENSELESS = {
    "planned": "least=-5 share=7 share=-3 read_price=-1 read_price=2 lifetime=-1 tight=99 tight=0.5 calls=-4 calls=inf"
    " saving=5 saving=nan target=0.9,trigger=0.85 trigger=1.5 target=-0.1",
    "oldest_turn": "tight=-9 target=0.9",
    "tool_prune": "target=0.9",
    "hybrid": "tight=0.5 target=0.9",
    "tool_mask_prune": "long=-1 target=0.9",
    "default": "ceiling=99999999999999999999999999 ceiling=-1 low_water=nan weights=x low_water=2 cold_low_water=2"
    " low_water=0.9,trigger=0.5 weights=read weights=nothing=1 weights=read=nan",
    "layered": "keep=-1 clear=nan low_water=2 clear=1.5 low_water=-0.1 verbatim=2 clear=0.9,summarise=0.8",
    "episodes": "ceiling=-1 implicit=0 low_water=0 low_water=1.1",
    "window": "low_water=1.5",
    "clear": "trigger=-0.1 keep=-1",
    "skeleton": "low_water=0.9 chunk=0 least=2",
    "summary": "room=7",
    "mask": "age=0 age=9999999999 batch=0",
    "self_managed": "theta=-1 share=2 low_water=2 share=-1 beta=1.5 batch=-5",
    "scoped": "note=0",
}


@pytest.mark.parametrize("words", [f"{name}:{knob}" for name, knobs in SENSELESS.items() for knob in knobs.split()])
def test_knobs_that_make_no_sense_are_refused(words: str) -> None:
    with pytest.raises(BadInput, match=words.partition("=")[0].partition(":")[2]):
        parse(words)


def test_every_knob_of_ours_says_what_it_counts() -> None:
    untold = [f"{kind.name}:{knob}" for kind in POLICIES for knob, unit in knob_units(kind).items() if not unit]
    assert untold == []
    assert knob_units(Planned) == {
        "round": "pressure or turn",
        "trigger": "share of the budget", "target": "share of the budget", "tight": "share of the budget",
        "least": "tokens", "saving": "share of the prompt", "share": "share of the prompt", "lifetime": "seconds",
        "read_price": "times the price of a fresh input token",
        "write_price": "times the price of a fresh input token", "calls": "calls",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("window:low_water=1.5", "window: low_water must be a share of the budget, from 0 to 1"),
        ("planned:saving=5", "planned: saving must be a share of the prompt, from 0 to 1"),
        ("episodes:low_water=0", "episodes: low_water must be a share of the ceiling, above 0 and at most 1"),
        ("mask:age=0", "mask: age must be a number, at least 1 and at most 1,000,000,000"),
        ("clear:keep=9999999999", "clear: keep must be a number, at least 0 and at most 1,000,000,000"),
        ("skeleton:low_water=0.9", "skeleton: low_water=0.9, trigger=0.85 are not low_water <= trigger"),
    ],
)
def test_a_refused_knob_says_what_it_takes(words: str, refusal: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(words)
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    "words", ["skeleton:keep=0", "planned:trigger=auto", "window:low_water=1", "episodes:ceiling=0"]
)
def test_the_ends_of_a_range_are_in_it(words: str) -> None:
    parse(words)


def test_every_knob_of_ours_has_a_usual_value() -> None:
    view: View = working().view(20_000)
    for kind in POLICIES:
        assert kind(**knobs(kind)) == kind()
        assert isinstance(ask_plan(kind(), view), Plan)
        assert isinstance(ask_timing(kind(), view, rehearse(view, kind().propose(view))), CommitDecision)
