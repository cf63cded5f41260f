"""The sums of any rows, whatever they are by."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from ctxvc.tables import sums
from ctxvc.tables.rows import CallRow, FileRow, Rows, SessionRow
from ctxvc.tables.sums import Cell, Sums

HEAD = {"project": "/p", "writer": "local", "session": "s"}
COUNTS = st.integers(0, 1_000_000)
TOOLS = st.lists(st.sampled_from(["Read", "Bash", "Edit"]), max_size=5)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Calls with any usage, of any tools, on up to two days; and the files that some of them touched."""
    calls, files = [], []
    for number in range(draw(st.integers(0, 6))):
        usage = draw(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
        tools = draw(TOOLS)
        call = CallRow(
            **HEAD, scope="main", commit=f"{number:040}", time=f"2026-03-0{draw(st.integers(1, 2))}T12:00:00Z",
            step=number, turn=1, agent="", model=draw(st.sampled_from(["one", "two"])), branch="", planner=False,
            has_usage=any(usage), fresh=usage[0], cache_read=usage[1], cache_written=usage[2],
            cache_hour=usage[2] // 2, output=usage[3],
            cost=draw(st.none() | st.floats(0, 100)), waited_model=draw(st.none() | COUNTS),
            waited_tools=draw(st.none() | COUNTS), pause=None, before=None,
            tools=tools, failed=tools[:1], changed="",
        )  # fmt: skip
        calls.append(call)
        files += [
            FileRow(
                **HEAD, scope="main", block="B1", commit=call.commit, step=number, turn=1, time=call.time, tool="Read",
                act="read", path=path, error=False, bytes=1, cost=None,
            )
            for path in draw(st.lists(st.sampled_from(["a.py", "b.py", "c.py"]), max_size=4))
        ]  # fmt: skip
    session = SessionRow(
        **HEAD, agent="", model="one", branch="", started="2026-03-01T12:00:00Z", updated="2026-03-01T12:00:00Z",
        scopes=1, turns=1, steps=1, blocks=0, bytes=0, blocks_left=0, reads=0, compactions=0, title=None,
    )  # fmt: skip
    return Rows([session], calls, [], files, [])


def total(cells: Iterable[Cell]) -> Sums:
    whole = Sums()
    for cell in cells:
        whole.add(cell.sums)
    return whole


@given(rows())
def test_what_is_divided_among_tools_or_files_adds_up_to_the_calls(made: Rows) -> None:
    whole = total(sums.by_model(made))
    assert whole.calls == len(made.calls)
    assert whole.usage.reply == sum(call.output for call in made.calls)
    for parts in (sums.by_tool(made), sums.by_file(made)):
        part = total(parts)
        assert (part.usage, part.unpriced) == (whole.usage, whole.unpriced)
        assert (part.waited_model, part.waited_tools) == (whole.waited_model, whole.waited_tools)
        assert abs(part.cost - whole.cost) < 1e-6
    tools = total(sums.by_tool(made))
    assert (tools.tool_calls, tools.failed) == (whole.tool_calls, whole.failed)
