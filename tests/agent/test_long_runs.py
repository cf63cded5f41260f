"""Hundreds of steps under each policy, in a window that holds a tenth of them, thinking bound to its prefix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ctxvc.policies import POLICIES
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import damages, groups_fit, humans_gone

from .working import Life, calls_in, live

WINDOW = 60_000
#: Two policies made of others: marks with clearing behind them, and every context tool at once.
COMPOSED = ("episodes+layered", "scoped+self_managed+clear")
EVERY = (*(policy.name for policy in POLICIES), *COMPOSED)


def lived(place: Path, policy: str, steps: int) -> Life:
    """A life of so many steps, and what must hold after any."""
    life = live(place, policy, steps=steps, window=WINDOW)
    bill, session = life.bill, life.session
    assert bill.requests == steps
    assert not bill.refused
    assert bill.peak <= WINDOW
    assert session.used() <= session.budget.effective
    for scope in session.scopes():
        assert not humans_gone(session.ledger(scope))
        groups_fit(session.ledger(scope))
    session.close()
    with Store(place) as store:
        prompts, findings = check_prompts(store)
        assert (prompts, findings) == (steps, [])
    all_can_be_had_back(place, life.given)
    with Store(place) as store:
        assert not damages(store)
    return life


def all_can_be_had_back(place: Path, given: Mapping[str, str]) -> None:
    """Each byte that a call gave, from whichever scope holds it, whatever has become of its block."""
    left = dict(given)
    with Session.open(place, "long", actor="user") as session:
        for scope in session.scopes():
            for row in session.ledger(scope).rows():
                if row.kind == "tool_result" and (words := left.pop(row.call, None)) is not None:
                    ((found, body),) = session.recover_bytes(f"{scope}:{row.id}")
                    assert (found.id, body) == (row.id, words.encode())
    assert not left


def test_dozens_of_steps_with_every_tool_of_the_context(tmp_path: Path) -> None:
    life = lived(tmp_path / ".ctxvc", COMPOSED[1], 32)
    assert len(life.given) == calls_in(32), "a call was refused although room could be made"


@pytest.mark.slow
@pytest.mark.parametrize("policy", EVERY)
def test_three_hundred_steps_under_every_policy(tmp_path: Path, policy: str) -> None:
    life = lived(tmp_path / ".ctxvc", policy, 300)
    with Session.open(tmp_path / ".ctxvc", "long") as session:
        meter = session._context.meter
        assert sum(map(meter.count, life.given.values())) > 500_000
    print(f"{policy}: peak {life.bill.peak:,}, total {life.bill.total:,}, cached {life.bill.share:.0%}")


def test_a_model_that_has_the_tools_uses_them(tmp_path: Path) -> None:
    """The script is worth little where its calls are left out."""
    life = live(tmp_path / ".ctxvc", "scoped+self_managed+episodes", steps=24, window=30_000)
    life.session.close()
    assert life.called >= {"archive", "note", "recover", "search", "restore", "delete", "delimiter", "scope"}
