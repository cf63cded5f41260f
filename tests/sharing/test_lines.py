"""What becomes of another clone's scopes: whatever both did, in whatever order, all lines are kept, and both agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import name_rules
from ctxvc.sharing.lines import arrivals


def follows(tip: str, older: str) -> bool:
    """Tips are written as what was done: `abc` follows `ab`."""
    return tip.startswith(older)


def pulled(ours: dict[str, str], theirs: dict[str, str], clone: str, own: str) -> dict[str, str]:
    moves = arrivals(ours, theirs, clone=clone, own=own, follows=follows)
    return ours | {move.scope: move.after for move in moves}


def maximal(tips: dict[str, str]) -> set[tuple[str, str]]:
    """The lines of each scope that no other goes on from."""
    lines = {(name.partition("@")[0], tip) for name, tip in tips.items()}
    return {(base, tip) for base, tip in lines if not any(b == base and t != tip and follows(t, tip) for b, t in lines)}


actions = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["main", "fix", "pull"]), st.sampled_from("abc")))


@given(actions)
def test_in_any_order_no_line_is_lost_and_all_clones_agree_in_the_end(steps: list[tuple[str, str, str]]) -> None:
    clones = {name: {"main": "0", "fix": "1"} for name in "abc"}
    made = {("main", "0"), ("fix", "1")}
    for number, (own, action, other) in enumerate(steps):
        if action == "pull":
            clones[own] = pulled(clones[own], clones[other], other, own)
            continue
        candidates = sorted(name for name in clones[own] if name.partition("@")[0] == action)
        name = candidates[number % len(candidates)]
        clones[own][name] += f".{own}{number}"
        made.add((action, clones[own][name]))
    for _ in range(3):
        for own in "abc":
            for other in "abc":
                clones[own] = pulled(clones[own], clones[other], other, own)

    assert maximal(clones["a"]) == maximal(clones["b"]) == maximal(clones["c"])
    for tips in clones.values():
        assert all(any(b == base and follows(tip, t) for b, tip in maximal(tips)) for base, t in made)
        assert not any(name_rules.scope_problem(name) for name in tips)


def test_a_second_time_nothing_moves() -> None:
    ours, theirs = {"main": "0a"}, {"main": "0b", "plan/login": "2"}
    after = pulled(ours, theirs, "bob", "anna")

    assert after == {"main": "0a", "main@bob": "0b", "plan/login": "2"}
    assert not arrivals(after, theirs, clone="bob", own="anna", follows=follows)


def test_a_name_that_git_cannot_have_beside_ours_gets_another() -> None:
    after = pulled({"main": "0", "plan": "1"}, {"main": "0", "plan/login": "2"}, "bob", "anna")

    assert set(after.values()) == {"0", "1", "2"} and "plan/login" not in after


def test_a_scope_in_the_middle_of_a_step_does_not_move() -> None:
    moves = arrivals({"main": "0"}, {"main": "0b"}, clone="bob", own="anna", follows=follows, is_free=lambda _: False)

    assert [(move.scope, move.after) for move in moves] == [("main@bob", "0b")]
