"""Fifteen cases that a naive implementation gets wrong, each with its number. Policies have tests of their own."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ctxvc import Action, Plan, Session
from ctxvc.core.ledger.name_rules import scope_problem
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.errors import BadInput, BadName, Conflict, Damaged, NotFound, OverBudget, Refused
from tests.making.blocks import call, result
from tests.making.processes import archives, side_by_side
from tests.making.store import commits

from .building import (
    blocks,
    bodies,
    everything,
    git,
    lines,
    opened,
    reply,
    results,
    rows,
    say,
    sent,
    step,
    words,
)

# --- 1 and 2: scopes


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_case_01_a_switch_among_parallel_calls_ends_where_it_was_asked_exactly_once(
    session: Session, place: int
) -> None:
    say(session, "go")
    names = ["c1", "c2", "c3"]
    reply(session, *(call(name, "ctx" if at == place else "sh") for at, name in enumerate(names)))
    session.open_scope("side", "a look")
    with pytest.raises(Refused, match="already pending"):
        session.open_scope("other", "a second one in one step")
    for name in names[::-1]:  # they need not come in the order of their calls
        assert session.scope == "main"
        results(session, result(name, f"of {name}"))

    assert session.scope == "side"
    assert [row.call for row in rows(session, "tool_result", "main")] == names[::-1]
    assert rows(session, "tool_use") == rows(session, "tool_result") == []
    session.goto("main", "seen")
    assert [block["id"] for block in blocks(session, "tool_use")] == names
    assert [block["tool_use_id"] for block in blocks(session, "tool_result")] == names


def test_case_01_a_switch_alone_and_back_leaves_no_call_dangling_in_either(session: Session) -> None:
    say(session, "go")
    for name, where in (("c1", "side"), ("c2", "main"), ("c3", "side"), ("c4", "main")):
        reply(session, call(name, "ctx"))
        if where not in session.scopes():
            session.open_scope(where, "there")
        else:
            session.goto(where, "there")
        results(session, result(name, "ok"))
        assert session.scope == where
        sent(session)  # the provider would take it
        assert session.stored.open_calls == ()


def test_case_02_returning_to_a_scope_shows_its_user_turns_again(session: Session) -> None:
    say(session, "First: the login.")
    reply(session, "Which?")
    say(session, "The second one.")
    reply(session, "Looking.")
    before = sent(session)
    session.open_scope("side", "a look")
    assert "Which?" not in words(session)
    reply(session, "Found it.")
    session.goto("main", "found")

    assert sent(session)[: len(before)] == before


def test_what_a_human_said_in_a_scope_is_seen_where_one_returns_to_once(session: Session, path: Path) -> None:
    say(session, "Fix the login.")
    reply(session, "I look.")
    session.open_scope("side", "a look")
    say(session, "Use bcrypt, not md5.")
    reply(session, "Yes.")
    session.goto("main", "done")
    assert words(session).count("bcrypt") == 1
    (arrived,) = [row for row in rows(session, "user") if "said" in row.extra.get("ctxvc", {})]
    assert arrived.extra["ctxvc"]["said"] == "side:B4" and arrived.origin == "human"
    assert session.body(arrived.id) == b"Use bcrypt, not md5."
    reply(session, "Done.")
    session.goto("side", "once more")
    assert words(session).count("bcrypt") == 1
    say(session, "And twelve rounds.")
    reply(session, "Right.")
    session.goto("main", "done again")
    assert (words(session).count("bcrypt"), words(session).count("twelve")) == (1, 1)
    session.stored.flush()
    with opened(path) as again:
        assert words(again) == words(session)


def test_a_humans_words_arrive_through_a_scope_between_and_a_sibling(session: Session) -> None:
    say(session, "Go.")
    reply(session, "I look.")
    session.open_scope("one", "a look")
    say(session, "In one.")
    reply(session, "Yes.")
    session.open_scope("one.deep", "deeper")
    assert "In one." not in words(session), "a scope begins with what is pinned, the notes and the running turn"
    say(session, "In deep.")
    reply(session, "Yes.")
    session.goto("main", "straight up")
    assert (words(session).count("In deep."), words(session).count("In one.")) == (1, 0)
    session.goto("one", "down")
    assert words(session).count("In deep.") == 0, "who goes down has the task there"
    session.open_scope("two", "a sibling")
    session.goto("main", "up")
    session.goto("one", "down")
    session.goto("main", "up")
    assert (words(session).count("In deep."), words(session).count("In one.")) == (1, 1)


def test_what_a_human_said_in_the_step_of_the_switch_arrives_too(session: Session) -> None:
    say(session, "Go.")
    reply(session, "I look.")
    session.open_scope("side", "a look")
    reply(session, call("c1", "ctx"))
    session.goto("main", "back")
    results(session, {"type": "text", "text": "While you are at it: tabs."}, result("c1", "ok"))
    assert session.scope == "main"
    assert words(session).count("tabs") == 1
    sent(session)


# --- 3: pairs


def test_case_03_call_and_result_leave_and_come_back_in_any_order(session: Session) -> None:
    say(session, "go")
    asked = reply(session, call("c1", n=1, text="é" * 300), call("c2", n=2), call("c3", n=3))
    answers = results(session, *(result(f"c{at}", lines(30, f"run {at}")) for at in (1, 2, 3)))
    step(session, "c9", "later")
    before = sent(session)
    moves = [
        ("archive", asked[0]),
        ("archive", answers[1]),
        ("archive", answers[0]),
        ("archive", [asked[1], asked[2]]),
        ("restore", answers[0]),
        ("archive", [asked[0], answers[0], answers[2]]),
        ("restore", asked[2]),
        ("restore", [*asked, *answers]),
    ]
    for verb, targets in moves:
        session.verb(verb, targets, "runs")  # type: ignore[arg-type]
        sent(session)  # valid, whatever stands

    assert sent(session) == before


def test_case_03_of_an_interrupted_batch_the_part_that_ran_is_kept(session: Session) -> None:
    say(session, "go")
    asked = reply(session, call("c1", n=1), call("c2", n=2))
    results(session, result("c2", lines(40)))
    say(session, "stop, something else")

    assert [block["tool_use_id"] for block in blocks(session, "tool_result")] == ["c1", "c2"]
    reply(session, "Yes?")
    session.archive([*asked, rows(session, "tool_result")[0].id], "interrupted")
    sent(session)


# --- 4 and 5: bytes

#: Ends of lines, half a character, marks that do not show, and what looks like a filter's.
ODD = (
    "a\r\nb\r\n", "a\rb", "a\0b", "\udc80 and \ud800", "a\nb", "\n\n\n", "\ufeff\u2028\u202e\x85",
    "$Id$ version https://git-lfs.github.com/spec/v1\n",
)  # fmt: skip


def test_case_04_every_byte_is_what_it_was_also_under_a_user_s_git_settings(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text('[core]\n autocrlf = true\n eol = crlf\n safecrlf = false\n[filter "lfs"]\n clean = tr a b\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    with opened(path) as session:
        said = {block: text for text in ODD for block in say(session, text)}
        answers = {step(session, f"c{at}", text * 90)[1]: text * 90 for at, text in enumerate(ODD)}
        step(session, "c9", "later")
        session.archive(list(answers))
        session.restore(list(answers))
    subprocess.run(["git", "--git-dir", str(path), "gc", "--quiet", "--prune=now"], check=True)

    with opened(path) as session:
        for block, text in {**said, **answers}.items():
            assert session.body(block) == text.encode("utf-8", "surrogatepass")


def test_case_04_a_changed_byte_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    with opened(path) as session:
        say(session, "go")
        _, answer = step(session, "c1", "x" * 5_000)
        reply(session, "done")
    for pack in (path / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o600)
        data = bytearray(pack.read_bytes())
        for at in range(12, len(data) - 20):
            data[at] ^= 0x55
        pack.write_bytes(data)

    with pytest.raises(Damaged), opened(path) as session:
        session.body(answer)


def test_case_05_what_is_archived_is_still_there_after_the_strictest_collection_and_in_a_clone(
    path: Path, tmp_path: Path
) -> None:
    with opened(path) as session:
        say(session, "go")
        pairs = [step(session, f"c{at}", lines(40, f"run {at}")) for at in range(4)]
        step(session, "c9", "later")
        session.archive(pairs[0][1])
        session.archive([*pairs[1], *pairs[2]], "two")
        session.delete(pairs[3][1], "not needed")
        session.prune(pairs[0][0])
        before = bodies(session)
    subprocess.run(["git", "--git-dir", str(path), "gc", "--quiet", "--aggressive", "--prune=now"], check=True)
    with opened(path) as session:
        assert bodies(session) == before

    clone = tmp_path / "clone.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(path), str(clone)], check=True)
    for block, data in before.items():
        (found,) = [
            line.split() for line in git(clone, "ls-tree", "-r", "demo/main").splitlines() if f"/{block}." in line
        ]
        shown = subprocess.run(
            ["git", "--git-dir", str(clone), "cat-file", "blob", found[2]], capture_output=True, check=True
        )
        assert shown.stdout == data


# --- 6: names


IMPOSSIBLE = (
    "a b", "a..b", "a@{b", "a.lock", "-a", "a\x07", "a\n", "a//b", "main/b", ".a", "a.", "~", "HEAD", "con", "x" * 200,
    "ä", "", "../x",
)  # fmt: skip


def test_case_06_a_name_that_git_or_a_file_system_cannot_hold_is_refused(session: Session, path: Path) -> None:
    say(session, "go")
    session.stored.flush()
    before = everything(path)
    for name in IMPOSSIBLE:
        with pytest.raises(BadName) as raised:
            session.open_scope(name, "why")
        assert raised.value.exit_code == 2
        assert len(str(raised.value)) < 400
        possible = raised.value.hint.removeprefix("try ").strip("'")
        assert scope_problem(possible) == "", "the hint names one that is possible"
        assert "\x07" not in str(raised.value)
        assert everything(path) == before and session.scope == "main", name


def test_case_06_names_that_differ_by_case_only_are_one_on_some_file_systems(session: Session) -> None:
    say(session, "go")
    session.open_scope("Fix", "why")
    with pytest.raises(BadName, match="differ only in case"):
        session.open_scope("fix", "why")


# --- 7: all or nothing


def test_case_07_what_fails_leaves_every_byte_as_it_was(session: Session, path: Path) -> None:
    say(session, "go")
    step(session, "c1", lines(40))
    session.open_scope("taken", "first")
    session.goto("main", "back")
    reply(session, "done")
    session.stored.flush()
    before, view = everything(path), sent(session)

    for act, error in (
        (lambda: session.open_scope("main", "x"), Refused),
        (lambda: session.open_scope("taken", "x"), Refused),
        (lambda: session.goto("nowhere", "x"), NotFound),
        (lambda: session.goto("main", "x"), Refused),
        (lambda: session.note(" "), BadInput),
        (lambda: session.delete("B2", " "), BadInput),
        (lambda: session.recover("B99"), NotFound),
        (lambda: session.append({"role": "nobody", "content": "x"}), BadInput),
        (session.undo, Refused),
        (lambda: session.body("B99"), NotFound),
    ):
        with pytest.raises(error):
            act()
    assert not session.archive("B1,B77,G5,nonsense", "x")

    assert everything(path) == before
    assert sent(session) == view


def test_case_07_of_two_writers_neither_loses_an_update(path: Path) -> None:
    with opened(path) as session:
        say(session, "go")
        answers = [step(session, f"c{at}", lines(40, f"run {at}"))[1] for at in range(3)]
        step(session, "c9", "later")

    side_by_side(archives, path, [(answer,) for answer in answers])

    with opened(path) as session:
        assert {session.ledger()[answer].state for answer in answers} == {"archived"}
        assert sorted(note.text for note in session.notes()) == sorted(f"noted {answer}" for answer in answers)


def test_case_07_what_another_changed_meanwhile_is_a_conflict_and_changes_nothing(path: Path) -> None:
    with opened(path) as session, opened(path) as other:
        say(session, "go")
        _, answer = step(session, "c1", lines(40))
        step(session, "c2", "later")
        rehearsal = rehearse(session.view(), Plan(actions=(Action(verb="archive", targets=(answer,)),), actor="agent"))
        other.pin(answer)

        with pytest.raises(Conflict):
            session.stored.change(subject="x", op="archive", actor="agent", rows=rehearsal.rows)
        assert not session.archive(answer), "it looks again, and it is pinned"


# --- 8 and 9: ids and ranges


def test_case_08_success_is_what_happened_and_never_a_word(session: Session) -> None:
    say(session, "error: not an error")
    _, answer = step(session, "c1", "Error: unknown id, failed, refused\n" * 40)
    step(session, "c2", "later")
    session.open_scope("error-refused", "error")
    session.goto("main", "failed")
    assert "[← error-refused] failed" in [note.text for note in session.notes()]

    done = session.archive(answer, "error: it failed")

    assert bool(done)
    assert not done.problems
    assert not session.ledger()[answer].error


def test_case_08_an_id_is_a_whole_word_and_never_the_beginning_of_another(session: Session) -> None:
    say(session, "go")
    for at in range(12):
        step(session, f"c{at}", lines(30, f"run {at}"))
    reply(session, "done")

    assert [row.id for row in session.archive("B2").rows] == []
    assert [row.id for row in session.archive("B21").rows] == ["B21"]
    assert session.recover("B21").header.startswith(f"[recovered {session.ledger()['B21'].handle}: ")
    for empty in ("", " ", ",", "B", "@", "B0"):
        done = session.archive(empty)
        assert not done
        assert done.problems


def test_case_09_a_range_does_what_it_can_and_says_in_few_words_what_not(session: Session) -> None:
    say(session, "go")
    pairs = [step(session, f"c{at}", lines(30, f"run {at}")) for at in range(6)]
    (thought,) = reply(session, lines(30, "thinking aloud"))
    reply(session, "done")
    session.pin(pairs[0][1])
    session.delete(pairs[1][1], "gone for good")
    session.archive(pairs[2][1], "by itself")
    session.archive(thought, "a thought")
    before = session.ledger()

    done = session.archive("B999999-b2", "everything")

    left = {row.id for row in done.rows}
    assert {*pairs[3], *pairs[4], *pairs[5]} <= left
    assert not left & {"B1", pairs[0][1], pairs[1][1], thought}
    why = {problem.target: problem.why for problem in done.problems}
    assert why[pairs[0][1]] == "pinned"
    assert why[pairs[1][1]] == "gone"
    assert why[thought] == "level"
    # Its call left, so its stub has nothing to stand under. It goes along, and nothing of it is lost.
    folded = session.ledger()[pairs[2][1]]
    assert (folded.state, folded.stub, folded.removed_by) == (
        "archived", before[folded.id].stub, before[folded.id].removed_by
    )  # fmt: skip
    assert "tokens: by itself\n" in session.recover(folded.group).content
    for wild in (
        "B1-B999999999999",
        "B" + "9" * 5_000,
        "B1-" * 3_000,
        "x" * 9_000,
        ",".join(f"Q{n}" for n in range(9_000)),
    ):
        wrong = [problem for problem in session.archive(wild).problems if problem.why == "unknown"]
        assert sum(len(problem.text) for problem in wrong) < 400


# --- 10 and 11: the budget


def test_case_10_everything_that_is_sent_is_counted(path: Path) -> None:
    with opened(path, budget=20_000) as session:
        session.shows_dashboard = True
        say(session, "go")
        for at in range(4):
            step(session, f"c{at}", lines(50, f"run {at}"))
        empty = session.used()
        session.note("a note of some length " * 20)
        noted = session.used()
        session.request()
        shown = session.used()

        assert empty < noted < shown, "notes and dashboards count"
        assert session.dashboard().overhead == session.view().overhead > 0
        assert session.dashboard().used == session.used() <= session.budget.effective


def test_case_10_a_human_who_says_more_than_the_budget_is_told_and_nothing_runs_in_circles(path: Path) -> None:
    with opened(path, budget=3_000) as session:
        for at in range(3):
            say(session, lines(90, f"word {at} that is meant"))
            reply(session, "yes")
        say(session, lines(90, "one word more"))
        for _ in range(2):
            with pytest.raises(OverBudget, match="human"):
                session.request()
        assert session.notes() == []
        assert [row.state for row in rows(session, "user") if row.origin == "human"].count("archived") == 0


@pytest.mark.parametrize("together", [False, True], ids=["one", "a batch"])
def test_case_11_results_larger_than_the_budget_are_kept_shown_in_part_and_the_prompt_fits(
    path: Path, together: bool
) -> None:
    with opened(path, budget=6_000) as session:
        say(session, "go")
        outputs = [lines(250, f"run {at}") for at in range(6)] if together else [lines(5_000)]
        reply(session, *(call(f"c{at}", n=at) for at in range(len(outputs))))
        answers = results(session, *(result(f"c{at}", output) for at, output in enumerate(outputs)))
        session.request()

        assert session.used() <= session.budget.effective
        assert [session.body(answer).decode() for answer in answers] == outputs
        for answer in answers:
            assert session.ledger()[answer].handle in words(session) or session.ledger()[answer].present


def test_case_11_recovering_what_does_not_fit_causes_nothing_to_leave(path: Path) -> None:
    with opened(path, budget=6_000) as session:
        say(session, "go")
        _, answer = step(session, "c1", lines(5_000))
        before = {row.id: row.state for row in rows(session)}
        for at in range(3):
            part = session.recover(answer)
            assert part.tokens <= session.budget.offload
            _, came = step(session, f"r{at}", part.text, tool="ctx")
            assert session.ledger()[came].state == "visible", "it is not offloaded again"
            session.request()
        assert {block: session.ledger()[block].state for block in before} == before


# --- 12: the same again


def test_case_12_asking_again_gives_the_same_bytes_and_commits_nothing(path: Path) -> None:
    with opened(path, budget=5_000) as session:
        session.shows_dashboard = True
        say(session, "go")
        for at in range(20):
            step(session, f"c{at}", lines(60, f"run {at}"))
        first = session.request()
        tip = session.stored.tip(), session.stored.waiting()

        assert session.request().digest == first.digest
        assert (session.stored.tip(), session.stored.waiting()) == tip
        held = sent(session)
        assert not session.archive([row.id for row in rows(session) if row.state == "archived"][:1], "")
        assert sent(session) == held


def test_case_12_what_is_taken_away_goes_in_batches_and_not_one_more_each_call(path: Path) -> None:
    with opened(path, budget=6_000) as session:
        say(session, "go")
        broken, before = 0, sent(session)
        for at in range(40):
            step(session, f"c{at}", lines(25, f"run {at}"))
            session.request()
            now = sent(session)
            broken += now[: len(before) - 1] != before[:-1]
            before = now
        assert 0 < broken <= 20, "the cached prefix is broken at every call"


# --- 13 and 14: plans that come late


def test_case_13_what_is_open_is_never_taken_whoever_asks(session: Session) -> None:
    say(session, "go")
    _, answer = step(session, "c1", lines(60))
    asked = reply(session, lines(40, "thinking aloud"), call("c2"), call("c2-again"))
    came = results(session, result("c2", lines(60)))

    for actor in ("agent", "planner", "guard", "policy:episodes", "user"):
        plan = Plan(actions=(Action(verb="archive", targets=(*asked, *came)),), actor=actor, allow_user=actor == "user")
        rehearsal = rehearse(session.view(), plan)
        assert not rehearsal, actor
        assert {problem.why for problem in rehearsal.problems} == {"open"}
    assert session.archive(answer)


def test_case_13_ids_that_are_used_again_pair_with_the_newer_call(session: Session) -> None:
    say(session, "go")
    first = step(session, "same", lines(30, "first"))
    second = step(session, "same", lines(30, "second"))
    step(session, "same", "later")

    session.archive(second, "the second")
    sent(session)
    session.restore(second[0])

    assert session.ledger()[second[1]].state == "visible", "its own result came with it"
    assert [session.body(each[1]).decode() for each in (first, second)] == [lines(30, "first"), lines(30, "second")]


def test_case_14_a_plan_that_comes_late_does_what_is_still_right(session: Session) -> None:
    say(session, "go")
    pairs = [step(session, f"c{at}", lines(40, f"run {at}")) for at in range(4)]
    named = tuple(block for pair in pairs for block in pair)
    asked = say(session, "and what do the others say?")
    reply(session, "nothing")
    stale = session.ledger()[pairs[1][1]].sha256[:8]
    plan = Plan(
        actions=(
            Action(verb="archive", targets=(*named, *asked), index="the runs", checksums={pairs[1][1]: "0" * 8}),
            Action(verb="archive", targets=(pairs[0][1],), checksums={pairs[0][1]: stale}),
        ),
        actor="planner",
    )
    session.pin(pairs[2][1])
    session.archive(pairs[3][1], "already")
    say(session, "and now?")
    last = step(session, "c9", lines(40, "newest"))

    done = session.commit(plan)

    states = {block: session.ledger()[block].state for block in named}
    assert states[pairs[0][0]] == states[pairs[0][1]] == states[pairs[1][0]] == "archived"
    assert states[pairs[1][1]] == "visible"
    assert states[pairs[2][1]] == "pinned"
    assert {session.ledger()[block].state for block in last} == {"visible"}
    why = {problem.target: problem.why for problem in done.problems}
    assert (why[asked[0]], why[pairs[1][1]], why[pairs[2][1]]) == ("human", "stale", "pinned")
    sent(session)


def test_case_14_a_plan_for_what_stands_in_another_scope_touches_nothing_here(session: Session) -> None:
    say(session, "go")
    _, answer = step(session, "c1", lines(40))
    reply(session, "done")
    session.open_scope("side", "a look")

    done = session.archive(answer, "not here")

    assert not done
    assert [problem.why for problem in done.problems] == ["unknown"]
    assert session.ledger("main")[answer].state == "visible"


# --- 15: order and ids


def test_case_15_order_and_ids_need_no_clock_and_survive_a_restart(path: Path) -> None:
    clock = iter(range(2_000_000_000, 0, -1_000))
    with opened(path) as session:
        session.store.now = lambda: next(clock)  # type: ignore[method-assign]
        session.store.now_iso = lambda: datetime.fromtimestamp(next(clock), timezone.utc).isoformat()  # type: ignore[method-assign]
        say(session, "go")
        made = [block for at in range(5) for block in step(session, f"c{at}", f"run {at}")]
        session.stored.flush()
        session.note("learned")
    with opened(path) as session:
        assert [row.id for row in rows(session)] == ["B1", *made, f"B{len(made) + 2}"]
        (new,) = reply(session, "later")
        assert new == f"B{len(made) + 3}", "no number is used twice"
    subjects = commits(path)
    assert [subject.partition(":")[0] for subject in subjects if subject.startswith("step")] == [
        f"step {at}" for at in range(1, 7)
    ]


def test_case_15_numbers_are_the_sessions_and_no_two_scopes_share_one(session: Session) -> None:
    say(session, "go")
    reply(session, "yes")
    made = {"main": {"B1", "B2"}}
    for name in ("a", "b"):
        session.open_scope(name, f"to {name}")
        made[name] = set(reply(session, f"in {name}"))
        session.goto("main", "back")
        made["main"] |= set(reply(session, f"after {name}"))
    assert not made["main"] & made["a"]
    assert not made["a"] & made["b"]


@pytest.mark.parametrize(
    ("left", "right"),
    [("", ""), ("same", "same"), ("a/b.c", "a_b_c"), ("..", "."), ("x" * 600, "x" * 601), ("../../x", "../../x"),
     ("\x1b[2J", "\x1b[2J"), ("é" * 300, "é" * 300)],
)  # fmt: skip
def test_case_15_results_with_the_same_or_an_odd_id_are_each_their_own(session: Session, left: str, right: str) -> None:
    say(session, "go")
    asked = reply(session, call(left, n=1), call(right, n=2))
    answers = results(session, result(left, lines(40, "left")), result(right, lines(40, "right")))
    step(session, "later", "later")

    assert len({*asked, *answers}) == 4
    for _ in ("visible", "archived"):
        assert [session.body(answer).decode() for answer in answers] == [lines(40, "left"), lines(40, "right")]
        sent(session)
        session.archive(answers)


def test_case_15_a_copy_of_the_store_has_the_same_prompt(session: Session, path: Path, tmp_path: Path) -> None:
    say(session, "go")
    pair = step(session, "c1", lines(40))
    step(session, "c2", "later")
    session.archive(pair, "both")
    session.stored.flush()
    copy = tmp_path / "copy"
    shutil.copytree(path, copy, symlinks=True)

    with opened(copy) as other:
        assert other.prompt().digest == session.prompt().digest
