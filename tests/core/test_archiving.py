"""Archiving frees room, spares what a human wrote, and leaves a handle; on rows alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.archiving import archived, old_results
from ctxvc.core.ledger import block
from ctxvc.core.ledger.block import PRESENT
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.prompt import stub
from ctxvc.errors import Refused
from tests.core.strategies import STATES, conversations, numbered

actors = st.sampled_from(["agent", "planner", "policy:oldest", "guard", "host", "user"])


def words(text: str) -> int:
    """A count of tokens, as good as any other."""
    return len(text.split())


def identity(row: Row) -> tuple[Any, ...]:
    """All that no verb may change."""
    return tuple(
        getattr(row, name)
        for name in row.__struct_fields__
        if name not in ("state", "stub", "removed_by", "group", "level")
    )


@settings(max_examples=50, deadline=None)
@given(conversations(), st.sampled_from(STATES), actors, st.integers(0, 60), st.none() | st.integers(0, 60), st.data())
def test_it_is_archived_for_less_or_not_at_all(
    conversation: list[Any], state: Any, actor: str, tokens: int, shown: int | None, data: st.DataObject
) -> None:
    ledger, _ = numbered(conversation)
    for each in ledger.rows():
        row = msgspec.structs.replace(each, state=state)
        try:
            gone = archived(row, tokens=tokens, count=words, actor=actor, call=row.label, cost_now=shown)
        except Refused as refused:
            assert refused.hint
            assert (
                block.after(state, "archive") is None
                or state == "archived"
                or (is_human(row.role, row.origin) and actor != "user")
                or words(stub.stub(row, tokens=tokens, call=row.label)) >= (tokens if shown is None else shown)
            )
            continue
        assert words(gone.stub) < (tokens if shown is None else shown)
        assert (gone.state, gone.removed_by) == ("archived", actor)
        assert identity(gone) == identity(row)
        assert row.handle in gone.stub
        assert actor == "user" or not is_human(row.role, row.origin)
        with pytest.raises(Refused):
            archived(gone, tokens=10**6, count=words, actor=actor)


def human_words(**fields: Any) -> Row:
    row = Row(id="B1", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=9000, sha256="0" * 64)
    return msgspec.structs.replace(row, **fields)


@pytest.mark.parametrize("kind", ["user", "image", "document", "other"])
@pytest.mark.parametrize("actor", ["agent", "planner", "policy:oldest", "guard", "host"])
def test_what_a_human_wrote_is_for_a_person_to_remove(kind: Any, actor: str) -> None:
    with pytest.raises(Refused, match="a human wrote it"):
        archived(human_words(kind=kind), tokens=9000, count=words, actor=actor)
    assert archived(human_words(kind=kind), tokens=9000, count=words, actor="user").state == "archived"


def test_what_the_client_put_in_under_the_users_role_is_no_humans() -> None:
    assert archived(human_words(origin="client"), tokens=9000, count=words, actor="agent").state == "archived"


def test_a_masked_block_is_judged_by_what_is_left_of_it() -> None:
    row = human_words(origin="tool", kind="tool_result", state="masked")

    assert archived(row, tokens=9000, count=words, actor="agent").state == "archived"
    with pytest.raises(Refused, match="no saving"):
        archived(row, tokens=9000, count=words, actor="agent", cost_now=5)


@settings(max_examples=50, deadline=None)
@given(conversations(), st.integers(0, 3))
def test_old_results_are_those_of_older_steps_oldest_first(conversation: list[Any], keep: int) -> None:
    ledger, _ = numbered(conversation)
    steps = sorted({row.step for row in ledger.rows()})
    kept = steps[-keep:] if keep else []

    assert list(old_results(ledger, keep)) == [
        row for row in ledger.rows() if row.kind == "tool_result" and row.step not in kept
    ]


def test_results_that_are_pinned_or_gone_are_not_old_ones() -> None:
    states = ("visible", "pinned", "masked", "archived")
    rows = [human_words(id=f"B{at}", kind="tool_result", state=state) for at, state in enumerate(states, 1)]
    ledger, _ = numbered([])
    meta = msgspec.structs.replace(ledger.meta, counters=msgspec.structs.replace(ledger.meta.counters, step=9))

    assert list(old_results(Ledger(meta).with_rows(rows))) == rows[:1]


# --- the table of transitions


def test_every_state_can_be_left_again_and_every_verb_leads_to_a_known_state() -> None:
    for state, verbs in block.TRANSITIONS.items():
        assert set(verbs.values()) <= block.TRANSITIONS.keys()
        assert block.after(state, "restore") == "visible" or state in ("visible", "pinned")


def test_what_is_pinned_only_becomes_unpinned() -> None:
    assert block.TRANSITIONS["pinned"] == {"unpin": "visible"}


@pytest.mark.parametrize(
    ("verb", "present"),
    [("archive", False), ("prune", False), ("delete", False), ("summarise", False), ("mask", True), ("restore", True)],
)
def test_a_verb_leads_into_the_prompt_or_out_of_it(verb: Any, present: bool) -> None:
    for state in block.TRANSITIONS:
        after = block.after(state, verb)
        assert after is None or (after in PRESENT) == present
