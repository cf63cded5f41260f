"""The papers' experiments on small conversations, of which each figure was worked out on paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.replay import standin
from ctxvc.replay.conversation import Call, Conversation, conversations
from ctxvc.replay.experiments import (
    EXPERIMENTS,
    Table,
    ablations,
    layers,
    long_run,
    no_impact,
    pressure,
    proposition,
    scopes,
    split,
)
from ctxvc.replay.experiments.measure import Variant, evenly, in_date_order, spliced
from ctxvc.tokens.meter import Meter
from tests.making.conversation import human, reply, result, results


def work(name: str, steps: int = 8, *, time: str = "", lines: int = 60) -> Conversation:
    """A task in which each file is read once, and the last reply names what stood in the first."""
    calls = [Call((human(f"Find the port of {name}."),), _reads(name, 0))]
    for step in range(1, steps):
        calls.append(Call((_read(name, step - 1, lines),), _reads(name, step)))
    last = reply(f"The port is in PORT_{name}_0 of src/{name}/part_0.py.")
    calls.append(Call((_read(name, steps - 1, lines),), last))
    return Conversation(id=name, file=f"{name}-1.jsonl", sha256="0" * 64, calls=tuple(calls), time=time)


def _reads(name: str, step: int) -> Message:
    arguments = f'{{"path":"src/{name}/part_{step}.py"}}'.encode()
    return Message(role="assistant", parts=(wire.call_part("Read", f"c{step}", arguments),))


def _read(name: str, step: int, lines: int) -> Message:
    text = "\n".join(f"PORT_{name}_{step} = {8000 + step}  # {line}" for line in range(lines))
    return results(result(f"c{step}", text))


def test_each_experiment_is_known_by_its_name() -> None:
    assert list(EXPERIMENTS) == [
        *("proposition", "no-impact", "split", "long-run", "layers", "scopes", "ablations", "pressure"),
        *("memory", "compaction"),
    ]
    assert all(one.name == name and "(" in one.source for name, one in EXPERIMENTS.items())


def test_a_table_says_below_itself_what_is_not_comparable() -> None:
    assert Table("T", ("a", "b"), (("1|2", ""),), "Not this.").markdown == (
        "### T\n\n| a | b |\n| --- | --- |\n| 1/2 |  |\n\nNot this.\n"
    )


def test_so_many_are_taken_evenly_over_all() -> None:
    assert evenly("abcdef", 3) == ["a", "c", "e"]
    assert evenly("abc", 0) == evenly("abc", 3) == ["a", "b", "c"]


# --- Proposition 1


def test_the_bound_is_the_papers() -> None:
    assert proposition.bound(1000, 10, 200) == 1000 / 2000 + 1 / 200
    assert proposition.bound(1e9, 10, 200) == 1


def test_random_blocks_are_the_same_each_time_and_all_of_one_length() -> None:
    blocks = proposition.random_blocks(20, 64, 7)
    assert blocks == proposition.random_blocks(20, 64, 7) != proposition.random_blocks(20, 64, 8)
    assert {len(block) for block in blocks} == {20} and len({*blocks}) == 20


def test_what_fits_is_answered_without_recovery_and_all_of_it_with() -> None:
    measured = proposition.run(names=("window", "default"), sizes=(30,), bits=1024, budget=2_500, questions=4)
    for point in measured.points:
        assert 0 < point.visible < point.bound, point
        assert point.visible * 30 * 1024 / 10 <= 2_500, point  # ten bits a token
        assert point.answered == point.questions == 4, point
    assert measured.tables[0].rows[-1][6] == "100 %"


# --- several conversations as one


def test_conversations_follow_one_another_and_no_call_is_open_between_them() -> None:
    late, early = work("late", 2, time="2026-02-01T00:00:00Z"), work("early", 2, time="2026-01-01T00:00:00Z")
    open_end = msgspec.structs.replace(late, calls=late.calls[:2])  # ends with a call without a result
    whole = spliced(in_date_order([open_end, early]))

    assert whole.starts == (0, 3) and len(whole.conversation.calls) == 4
    assert whole.conversation.calls[-1].reply == Message(
        role="assistant", parts=whole.conversation.calls[3].reply.parts
    )
    ids = [part.call for call in whole.conversation.calls for part in call.reply.parts if part.call]
    answers = [part.call for call in whole.conversation.calls for one in call.before for part in one.parts if part.call]
    assert len({*ids}) == len(ids) and ids[: len(answers)] == answers


def test_a_conversation_that_ends_with_nothing_but_calls_loses_that_reply() -> None:
    cut = work("cut", 4)
    whole = spliced([msgspec.structs.replace(cut, calls=cut.calls[:3]), work("next", 2)])
    assert whole.starts == (0, 2)


# --- Self-GC


def test_a_plan_without_impact_leaves_all_that_is_used_later() -> None:
    measured = no_impact.run(
        [work("billing", 14)], methods=("planned", "oldest_turn", "tool_prune"), budgets=(8_000,), shares=(0.9,)
    )
    by_method = {score.method: score for score in measured.scores if score.set == "all"}
    assert {score.cuts for score in by_method.values()} == {1}
    pruned = by_method["tool_prune"]
    assert pruned.plans == 1 and pruned.far is not None and pruned.there is not None
    assert pruned.far.prune > 0.3
    assert pruned.far.no_impact == 1.0  # its call names the file, and its place has the address
    assert pruned.there.no_impact == 0.0  # in the paper it is gone
    assert [score.set for score in measured.scores].count("hard set") == 3
    assert not by_method["planned"].losses and sum(pruned.losses.values()) == sum(pruned.kinds.values()) > 0
    losses, *_, hard_set = measured.tables[2:]
    row = next(row for row in losses.rows if row[2] == "tool_prune")
    assert row[3] == str(sum(pruned.losses.values())) and row[5] == str(pruned.losses["locator"])
    ((name, pressure),) = hard_set.rows
    assert name == "billing-1.jsonl billing" and int(pressure.replace(",", "")) == measured.hard[name] > 1_000


def test_the_split_is_by_the_name_and_needs_less_input() -> None:
    both = [work(name, 14) for name in ("billing", "shipping", "orders", "stock", "users", "mail")]
    assert {split.in_group(one) for one in both} == {True, False}
    measured = split.run(both, budget=6_000)
    assert measured.treated.conversations + measured.control.conversations == 6
    assert measured.control.spared == 0 < measured.treated.spared < 1
    assert measured.reduction == pytest.approx(1 - measured.treated.mean / measured.control.mean)
    (treated, *_), dearer = measured.tables[0].rows, msgspec.structs.replace(measured, treated=measured.control)
    assert treated[5].startswith("-") and treated[6].startswith("-")
    assert dearer.tables[0].rows[0][5] == "+0.0 %"  # a saving that is none has no minus of its own
    assert split.run(both[:1]).tables[0].rows[0][5] == ""


# --- CWL


def test_a_long_run_stays_below_its_ceiling_at_a_lower_cost() -> None:
    sessions = [work(name, 10, time=f"2026-01-0{day}T00:00:00Z") for day, name in enumerate(("one", "two", "three"), 1)]
    measured = long_run.run(sessions, ceilings=(8_000,), summaries=(8_000,))
    episodes, summary = measured.runs

    assert measured.conversations == 3 and episodes.calls == summary.calls == measured.uncapped.calls == 33
    assert (episodes.over, episodes.excess) == (0, 0)
    assert 6_000 < episodes.tokens.peak <= 8_000 < measured.uncapped.tokens.peak
    assert episodes.over <= 6 and episodes.excess < 1_600  # it waits for a batch worth it: 0.2 of the ceiling
    assert episodes.floor < 2_000
    assert episodes.cost.prompts < measured.uncapped.cost.prompts
    assert summary.cost.summariser > 0 == episodes.cost.summariser
    assert measured.uncapped.across.total == 0  # no session names what another has


def test_what_crosses_a_session_is_what_only_earlier_ones_have() -> None:
    first, second = work("one", 3), work("two", 3)
    again = msgspec.structs.replace(
        second, calls=(Call((human("go on"),), reply("As in src/one/part_0.py.")), *second.calls)
    )
    measured = long_run.run([first, again], ceilings=(50_000,), summaries=())
    assert measured.uncapped.across.visible == measured.runs[0].across.visible == 1


def test_a_cold_cache_is_written_anew() -> None:
    one = work("one", 2)
    timed = [
        msgspec.structs.replace(call, reply=msgspec.structs.replace(call.reply, time=f"2026-01-01T0{at}:00:00Z"))
        for at, call in enumerate(one.calls)
    ]
    cold = long_run.run([msgspec.structs.replace(one, calls=tuple(timed))], ceilings=(), summaries=()).uncapped
    warm = long_run.run([one], ceilings=(), summaries=()).uncapped
    assert cold.tokens.total == warm.tokens.total
    assert cold.cost.prompts == pytest.approx(1.25 * cold.tokens.total)


def test_a_long_run_goes_on_where_a_killed_one_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [work(name, 6, time=f"2026-01-0{day}T00:00:00Z") for day, name in enumerate(("one", "two"), 1)]
    path = tmp_path / "runs.jsonl"
    whole = long_run.run(sessions, ceilings=(8_000, 9_000), summaries=(), out=path)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:100])  # killed while it wrote the second

    texts: list[str] = []
    original = long_run._run
    monkeypatch.setattr(long_run, "_run", lambda *rest: texts.append(rest[2]) or original(*rest))
    again = long_run.run(sessions, ceilings=(8_000, 9_000), summaries=(), out=path)
    assert texts == ["episodes:derive=on,ceiling=9000"]
    assert again.runs[0] == whole.runs[0]  # with its times
    assert (again.runs[1].cost, again.runs[1].tokens) == (whole.runs[1].cost, whole.runs[1].tokens)
    assert path.read_bytes().splitlines(keepends=True)[0] == first and path.read_bytes().count(b"\n") == 2

    long_run.run(sessions[:1], ceilings=(8_000,), summaries=(), out=path)
    assert len(texts) == 2, "of other sessions it is another run"


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b'{"schema":"ctxvc-replay/1"}\n'])
def test_a_file_of_something_else_is_no_file_for_long_runs(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="long run"):
        long_run.run([work("one", 2)], ceilings=(8_000,), summaries=(), out=path)
    assert path.read_bytes() == content


# --- layers and scopes


def test_each_layer_takes_only_what_the_one_before_it_left() -> None:
    large, small = layers.run([work("big", 3, lines=1500)], budgets=(40_000, 400_000)).budgets
    assert set(large.tokens) == {"offload"} and large.reached == {"offload": 1}
    assert not small.tokens and small.reached == {"": 1}
    many = layers.run([work("many", 20)], budgets=(12_000,)).budgets[0]
    assert many.tokens["clear"] > 0 and "summarise" not in many.tokens and "guard" not in many.tokens


def test_scopes_hold_the_prompt_down_in_a_sequence_and_cost_more_alone() -> None:
    measured = scopes.run([work(name, 6, time=name) for name in ("one", "two", "three", "four")])
    linear, scoped = measured.sequence
    assert linear.tasks == scoped.tasks == 4 and linear.calls == 28
    assert scoped.calls == 28 + 4 + 3  # a scope each, and back for the next
    assert linear.invalid == scoped.invalid == 0
    assert scoped.peak < linear.peak / 3 and scoped.growth < linear.growth / 10
    assert linear.lost == 0 < scoped.lost
    alone, alone_scoped = measured.isolated
    assert alone.calls == 28 and alone_scoped.calls == 32 and alone.total < alone_scoped.total


# --- VISTA


def test_ablations_are_measured_on_the_same_uses() -> None:
    variants = (
        (Variant(ablations.FULL, "self_managed"), "50.7"),
        (Variant("ReAct", "window", bare=True), "22.7"),
        (Variant("active compression", "keep", agent=standin.fold, lossy=True), "36.0"),
    )
    measured = ablations.run([work("billing", 24), work("orders", 24)], variants=variants, budget=8_000)
    full, react, folding = measured.variants
    assert full.nt.total == react.nt.total == folding.nt.total > 0
    assert full.transitions.only_a == full.transitions.only_b == 0
    assert react.transitions.both + react.transitions.only_b == full.nt.up_to("routed")
    assert full.totals.archives > 0 and folding.totals.archives > 0 == react.totals.archives
    assert folding.nt.searchable == folding.nt.recoverable == 0
    assert not any(one.totals.over or one.totals.failed for one in measured.variants)
    assert [row[0] for row in measured.tables[1].rows] == ["ReAct", "active compression"]


def test_pressure_stands_between_what_is_learned_and_where_it_is_used() -> None:
    base, other = work("billing", 12), work("orders", 40)
    pressed, start, end, _ = pressure.under_pressure(base, [other], 3_000, Meter(None))
    assert start == 6 and len(pressed.calls) == len(base.calls) + end - start
    for before, after in pairwise(pressed.calls):  # every call has its result in the next
        asked = [part.call for part in before.reply.parts if part.call]
        assert asked == [part.call for message in after.before for part in message.parts if part.call]

    sizes = (1_000, 16_000, 1_000_000)  # the last is more than the other recording has
    measured = pressure.run([work("stock", 8), other], sizes=sizes, budget=12_000, limit=0, calls=(8, 9))
    shares = {(one.variant, one.size): one.uses.share("visible") for one in measured.points}
    assert {size for _, size in shares} == {1_000, 16_000}
    assert shares["ReAct", 1_000] == 1.0 > (shares["ReAct", 16_000] or 0.0)
    counts = {(one.variant, one.size): (one.conversations, one.visible, one.solved) for one in measured.points}
    assert (counts["VISTA", 16_000], counts["ReAct", 16_000]) == ((1, 0, 1), (1, 0, 0))


# --- on a recording


@pytest.mark.parametrize(
    "name", ["proposition", *(pytest.param(name, marks=pytest.mark.slow) for name in ("no-impact", "layers"))]
)
def test_a_recording_gives_the_same_figures_twice(name: str, recordings: Path) -> None:
    recorded = list(conversations(recordings / "trajectories" / "entire-cli-6d-63c3a51594-0.jsonl.gz"))
    if name == "proposition":
        assert proposition.run(names=("default",), sizes=(40,)) == proposition.run(names=("default",), sizes=(40,))
        return
    measured = EXPERIMENTS[name].run(recorded)
    assert measured == EXPERIMENTS[name].run(recorded)
    assert all(len(row) == len(table.columns) for table in measured.tables for row in table.rows)
