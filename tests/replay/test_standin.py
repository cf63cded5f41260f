"""The stand-in for an agent reads the rendered prompt and nothing else."""

from __future__ import annotations

from ctxvc.replay.standin import ToolCall, fold, manage

BOARD = """[dashboard session/main, step 41: ##### 90 %, 9,000 / 10,000 tokens; conversation 9,000, dashboard 0]
ID ~tokens→now age type level parent status(by) reads label
B2–B5 762 40r range 0 - 4visible 0 4 blocks: 4 user
B6 3516 40r user 0 - pinned 0 <skills_instruc…
G1 4000→80 30r group 1 - archived(policy) 0 older work
B7–B60 30112→1800 21r range 0 - 42visible,3archived 0 47 blocks: 20 t…
B61 1745 21r tool_result 0 B60 visible 0 Chunk ID: a4662…
B62 900 2r tool_result 0 B61 visible 0 the newest"""


def _user(text: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def test_above_the_mark_the_oldest_rows_leave_until_the_low_one() -> None:
    # 90 % down to 60 % of 10,000 are 3,000 tokens: 762, 1,800, and 1,745 of B61.
    assert manage([_user(BOARD)], frozenset()) == (
        ToolCall("archive", "B2-B5,B7-B60,B61", "4 blocks: 4 user; 47 blocks: 20 t…; Chunk ID: a4662…"),
    )


def test_below_it_and_of_what_is_new_nothing_leaves() -> None:
    assert manage([_user(BOARD.replace("90 %", "84 %"))], frozenset()) == ()
    young = "\n".join(line for line in BOARD.splitlines() if "r " not in line or " 2r " in line)
    assert manage([_user(young)], frozenset()) == ()


def test_only_the_newest_board_counts() -> None:
    assert manage([_user(BOARD), _user(BOARD.replace("90 %", "40 %"))], frozenset()) == ()


def test_where_the_board_names_nothing_old_the_oldest_tags_leave() -> None:
    young = "\n".join(line for line in BOARD.splitlines() if "r " not in line or " 2r " in line)
    tagged = [_user(f"what a tool said\n[B{number} · 1.2k]") for number in range(2, 9)]
    new = [_user("[B9 · 9.0k]")] * 7

    assert manage([*tagged, *new, _user(young)], frozenset()) == (ToolCall("archive", "B2,B3,B4"),)
    assert manage([*tagged, *new, _user(young)], frozenset({"B2,B3"})) == (ToolCall("archive", "B4,B5,B6"),)
    assert manage([*new, _user(young)], frozenset()) == ()
    forged = [_user("\\[B2 · 9.0k]"), *new, _user(young)]
    assert manage(forged, frozenset()) == ()


def test_a_stub_that_the_newest_message_names_is_recovered_once() -> None:
    called = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "src/git/store.py"}}
    stub = {"type": "tool_result", "tool_use_id": "c", "content": "[archived B17@3fa9c1, 900 tokens]"}
    short = [{"role": "assistant", "content": [called]}, {"role": "user", "content": [stub]}]
    alone = _user("[archived B17@3fa9c1, 900 tokens; Read src/git/store.py]")
    for above in (short, [alone]):
        asks = [*above, _user("now change src/git/store.py again")]

        assert manage(asks, frozenset()) == (ToolCall("recover", "B17"),)
        assert manage(asks, frozenset({"B17"})) == ()
        assert manage([*above, _user("what a tool_result of arguments archived")], frozenset()) == ()


def test_a_full_prompt_is_folded_behind_what_it_names_most() -> None:
    work = _user("src/git/store.py calls src/git/program.py; see src/git/store.py")
    said = {"role": "assistant", "content": [{"type": "text", "text": "The lock is in store.py."}]}
    (note,) = fold([work, said, _user(BOARD)], frozenset())

    assert note.tool == "note" and note.blocks == ""
    assert (
        note.index == "known so far: src/git/store.py, src/git/program.py, store.py; newest: The lock is in store.py."
    )
    assert fold([work, said, _user(BOARD.replace("90 %", "84 %"))], frozenset()) == ()


def test_it_does_not_fold_again_at_once() -> None:
    noted = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "x", "content": "noted, 3 blocks folded"}],
    }
    work = [_user("src/git/store.py"), _user(BOARD)]
    assert fold([*work, noted], frozenset()) == ()
    assert fold([noted, *work * 8], frozenset()) != ()
