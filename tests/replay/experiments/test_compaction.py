"""What a recorded compaction's summary names of what was needed later, and what a policy keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.replay.conversation import Conversation, HostCompaction, conversations
from ctxvc.replay.experiments import compaction
from ctxvc.replay.experiments.compaction import Tally

STEPS, CUT = 20, 12
NEEDED = (3, 9)


def line(role: str, *content: Any, **meta: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), "meta": meta}


def recording(path: Path, summary: str, *, usage: bool = True) -> Conversation:
    """A session of so many reads with a compaction behind some: later replies name what two early results hold."""

    def counted(tokens: int) -> dict[str, Any]:
        return {"usage": {"input_tokens": tokens, "output_tokens": 9}} if usage else {}

    lines: list[dict[str, Any]] = [{"format": "ctxvc-trajectory/1", "id": "made", "model": "m"}]
    lines.append(line("user", {"type": "text", "text": "Find what the ports are."}))
    for step in range(STEPS):
        if step == CUT:
            lines.append(line("user", {"type": "text", "text": summary}, compact_boundary=True, compact_summary=True))
        words = f"port_{NEEDED[step % 2]}_value" if step > CUT + 2 else f"Step {step}."
        tokens = 20_000 + 900 * step if step < CUT else 28_000 + 900 * (step - CUT)
        call = {"type": "tool_use", "id": f"c{step}", "name": "Read", "input": {"path": f"src/file_{step}.py"}}
        lines.append(line("assistant", {"type": "text", "text": words}, call, **counted(tokens)))
        text = "\n".join([f"port_{step}_value = {8000 + step}", *(f"line {number} of {step}" for number in range(150))])
        lines.append(line("user", {"type": "tool_result", "tool_use_id": f"c{step}", "content": text}))
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    (made,) = conversations(path)
    return made


def tallies(conversation: Conversation) -> dict[str, Tally]:
    return {own.way: own for own in compaction.run([conversation], specs=("default", "clear")).sums}


def test_a_conversation_knows_its_hosts_compactions(tmp_path: Path) -> None:
    made = recording(tmp_path / "r.jsonl", "We read files.")

    assert made.compactions == (HostCompaction(CUT, "We read files."),)
    assert made.reported[:2] == (20_000, 20_900)
    assert len(made.reported) == len(made.calls) == STEPS
    assert not any("We read files." in block.text for block in made.blocks)


@pytest.mark.parametrize(("summary", "share"), [("Nothing.", 0.0), ("port_3_value is known.", 0.5)])
def test_a_summary_keeps_what_its_text_names(tmp_path: Path, summary: str, share: float) -> None:
    own = tallies(recording(tmp_path / "r.jsonl", summary))[compaction._SUMMARY]

    assert own.needs.total == 2
    assert own.needs.share("routed") == share
    assert own.needs.lost == 2 - 2 * share


def test_nothing_is_lost_where_blocks_are_kept_and_the_bound_is_above(tmp_path: Path) -> None:
    own = tallies(recording(tmp_path / "r.jsonl", "Nothing."))

    for size in (compaction.REACHED, compaction.ALONE):
        bound = own[f"oracle, {size}"]
        for spec in ("default", "clear"):
            kept = own[f"{spec}, {size}"]
            assert (kept.points, kept.needs.total, kept.needs.lost) == (1, 2, 0)
            assert kept.needs.visible <= bound.needs.visible
    assert own["oracle, reached"].needs.visible == 2


def test_the_size_that_was_reached_is_the_hosts_share(tmp_path: Path) -> None:
    own = tallies(recording(tmp_path / "r.jsonl", "Nothing."))
    less = tallies(recording(tmp_path / "s.jsonl", "Nothing.", usage=False))

    reached, unknown = own["default, reached"], less["default, reached"]
    assert reached.tokens > unknown.tokens, "without counts, to the size of the summary"
    assert unknown.tokens == less["default, summary's size"].tokens


def test_a_session_without_compactions_or_needs_counts_nothing(tmp_path: Path) -> None:
    made = recording(tmp_path / "r.jsonl", "Nothing.")

    assert compaction.run([msgspec.structs.replace(made, compactions=())]).sums == ()
    ended = msgspec.structs.replace(made, calls=made.calls[: CUT + 2])
    assert compaction.run([ended]).sums == ()


def test_its_tables_have_a_line_a_way(tmp_path: Path) -> None:
    result = compaction.run([recording(tmp_path / "r.jsonl", "Nothing.")], specs=("default",))

    aside, others = result.tables
    assert {len(aside.rows), len(others.rows)} == {0, 5}
    assert "lost to the host" in others.apart
    assert result.points[0][:2] == ("r.jsonl", CUT)
