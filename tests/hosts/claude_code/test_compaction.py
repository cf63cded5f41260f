"""Compaction in the real client is a policy's plan: words stay, results leave and come back, nothing is there twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ctxvc.session import proof
from ctxvc.session.proof import Finding
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import Machine
from tests.messages_api import call, text, thought
from tests.messages_api.script import Reply

RECOVER = "mcp__plugin_ctxvc_store__recover"
WORDS = ("Print the first needle.", "And print the second one.", "What now?")
RULE = "PROJECT-RULE-77: never use pytest."


def prints(needle: str, upto: int = 3000) -> dict[str, Any]:
    return call("Bash", command=f"echo {needle}; seq 1 {upto}", description="print")


def prepared(here: Machine, target: str = "16k") -> None:
    """A project with a rule, a store, and a target so small that a few results are too many."""
    (here.project / "CLAUDE.md").write_text(RULE + "\n")
    config = here.home / ".config" / "ctxvc"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'[claude-code]\ntarget = "{target}"\n')


def worked(here: Machine) -> None:
    here.run(WORDS[0], [thought("I print."), prints("needle-1"), prints("needle-2")], [text("Both.")])
    here.run(WORDS[1], [prints("needle-3")], [text("That too.")])


def lines(finished: Any) -> list[str]:
    """What the plugin's module wrote for the person."""
    return [str(event["text"]) for event in finished.events if event.get("subtype") == "ui_log"]


@contextmanager
def stored(here: Machine, scope: str = "") -> Iterator[StoredSession]:
    here.settle(well=False)
    here.shell("ctxvc", "import")  # on a busy machine the client does not wait for its last hook
    with Store(here.store) as store:
        session = StoredSession.open(store, store.sessions()[0], scope)
        yield session
        session.leave()


def compacted(here: Machine, finished: Any) -> None:
    """Asserts that the plugin compacted, and that no summary was asked for in the session."""
    assert [line for line in lines(finished) if "archived, 0 lost" in line], (lines(finished), finished.debug[-3000:])
    assert not [body for body in here.requests(side=True) if scripted.compacts(body)]


def sent(here: Machine) -> str:
    """All that the newest request says."""
    return scripted.text(here.requests()[-1])


def human_texts(session: StoredSession) -> list[str]:
    rows = (row for row in session.ledger().rows() if row.kind == "user" and row.origin == "human")
    return [session.body(row).decode() for row in rows]


def test_a_manual_compaction_takes_results_and_leaves_every_word(every: Machine) -> None:
    prepared(every)
    worked(every)
    compacted(every, every.run("/compact"))
    every.run(WORDS[2], [text("Now this.")])
    assert all(words in sent(every) for words in WORDS)
    assert RULE in json.dumps(every.requests()[-1])
    assert sent(every).count("\n2999") <= 1 and sent(every).count("[archived B") >= 2
    with stored(every) as session:
        rows = list(session.ledger().rows())
        assert human_texts(session) == list(WORDS), "each is there once"
        results = [row for row in rows if row.kind == "tool_result"]
        assert [row.removed_by for row in results].count("policy:default") >= 2 and len(results) == 3
        assert not session.pending_plans()
        handle = results[0].handle
        body = session.body(results[0])
    assert every.shell("ctxvc", "recover", handle).encode().strip() == body.strip(), "what left comes back exactly"
    assert "policy:default" in every.shell("ctxvc", "ops")


def test_a_persons_compaction_is_without_loss_at_any_size(every: Machine) -> None:
    worked(every)
    finished = every.run("/compact")
    compacted(every, finished)
    assert [line for line in lines(finished) if "× those after a summary" in line]
    every.run(WORDS[2], [text("Now this.")])
    assert all(words in sent(every) for words in WORDS) and "[archived B" in sent(every)


def test_a_compaction_that_removes_nothing_is_skipped_and_says_why(every: Machine) -> None:
    every.run(WORDS[0], [text("One.")])
    finished = every.run("/compact")
    assert "nothing can leave the prompt" in json.dumps(finished.events), finished.events
    assert not [body for body in every.requests(side=True) if scripted.compacts(body)]
    every.run(WORDS[2], [text("Now this.")])
    assert all(words in sent(every) for words in (WORDS[0], WORDS[2]))
    with stored(every) as session:
        assert human_texts(session) == [WORDS[0], WORDS[2]]
        assert not session.pending_plans()


def test_five_compactions_in_a_row_lose_and_double_nothing(every: Machine) -> None:
    prepared(every, "18k")
    said = []
    for round_ in range(5):
        words = f"Round {round_}: print needle {round_}."
        said.append(words)
        every.run(words, [prints(f"needle-{round_}", 5000)], [text(f"Printed in round {round_}.")])
        compacted(every, every.run("/compact"))
    every.run("And now?", [text("That was all.")])
    for words in said:
        assert sent(every).count(words) == 1
    assert "\n4999" not in sent(every)
    with stored(every) as session:
        assert human_texts(session) == [*said, "And now?"]
        results = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert len(results) == 5
        for round_, row in enumerate(results):
            assert session.body(row).startswith(b"needle-%d\n1\n" % round_)
        assert not session.pending_plans()


def test_an_automatic_compaction_inside_a_turn_keeps_the_work_at_hand(every: Machine) -> None:
    prepared(every, "24k")
    worked(every)
    full = Reply([prints("needle-4", 2000)], usage={"input_tokens": 970_000})
    finished = every.run("A long job.", full, [thought("On."), prints("needle-5", 20)], [text("It is done.")])
    compacted(every, finished)
    assert all(words in sent(every) for words in (*WORDS[:2], "A long job."))
    assert "needle-4\n1\n" in sent(every), "the newest result is what the model works with"
    with stored(every) as session:
        assert human_texts(session) == [*WORDS[:2], "A long job."]


def test_what_is_taken_back_is_in_the_prompt_again_after_the_next_compaction(every: Machine) -> None:
    prepared(every)
    worked(every)
    compacted(every, every.run("/compact"))
    every.settle()
    every.shell("ctxvc", "undo")
    (every.home / ".config" / "ctxvc" / "config.toml").write_text('[claude-code]\ntarget = "200k"\n')
    compacted(every, every.run("/compact"))
    every.run(WORDS[2], [text("Now this.")])
    assert sent(every).count("\n2999") == 3 and "[archived B" not in sent(every)
    with stored(every) as session:
        assert human_texts(session) == list(WORDS)
        assert len([row for row in session.ledger().rows() if row.kind == "tool_result"]) == 3


def test_words_of_the_command_are_what_stays(here: Machine) -> None:
    prepared(here, "24k")
    here.run(WORDS[0], [prints("parser")], [text("One.")])
    here.run(WORDS[1], [prints("lexer")], [text("Two.")])
    here.run(WORDS[2], [prints("needle")], [text("Three.")])
    compacted(here, here.run("/compact keep the parser"))
    here.run("Go on.", [text("Yes.")])
    assert "parser\n1\n2\n" in sent(here) and "lexer\n1\n2\n" not in sent(here)


def test_without_ctxvc_the_client_compacts_by_itself(here: Machine) -> None:
    prepared(here)
    worked(here)
    here.settle()
    programs = here.project.parent / "bin" / "ctxvc"
    programs.write_text("#!/bin/sh\nexit 3\n")
    here.start("/compact").finish()
    assert [body for body in here.requests(side=True) if scripted.compacts(body)], "its own summary was asked for"


def test_switched_off_it_leaves_the_client_alone(here: Machine) -> None:
    prepared(here)
    (here.home / ".config" / "ctxvc" / "config.toml").write_text("[claude-code]\noff = true\n")
    worked(here)
    finished = here.run("/compact")
    assert not lines(finished)
    assert [body for body in here.requests(side=True) if scripted.compacts(body)]


def test_a_sub_agents_compaction_is_its_own(every: Machine) -> None:
    prepared(every, "24k")
    agent = call("Agent", description="look", prompt="Look at THE-DEEP-END.", run_in_background=False)
    finished = every.run(
        "Ask somebody.",
        [agent],
        [text("They looked.")],
        agents={
            "THE-DEEP-END": [
                [prints("deep-1", 4000)],
                Reply([prints("deep-2", 2000)], usage={"input_tokens": 970_000}),
                [thought("On."), prints("deep-3", 10)],
                [text("I looked.")],
            ]
        },
    )
    compacted(every, finished)
    bodies = [
        body for body in every.requests() if "THE-DEEP-END" in scripted.text(body) and "deep-3" in scripted.text(body)
    ]
    assert "[archived B" in scripted.text(bodies[-1]) and "\n3999" not in scripted.text(bodies[-1])
    with stored(every) as session:
        assert not any(row.removed_by.startswith("policy:") for row in session.ledger().rows()), "not the main line's"
        (scope,) = [name for name in session.scopes() if name != "main"]
        rows = list(session.ledger(scope).rows())
        assert next(row.removed_by for row in rows if row.kind == "tool_result") == "policy:default"


def test_ctxvc_killed_while_it_answers_leaves_the_compaction_to_the_client(every: Machine) -> None:
    prepared(every)
    worked(every)
    every.settle()
    program = every.project.parent / "bin" / "ctxvc"
    usual = program.read_text()
    program.write_text(
        f'#!/bin/sh\nif [ "$2" = SessionCompact ]; then cat >/dev/null; kill -9 $$; fi\nexec {program}-usual "$@"\n'
    )
    (program.parent / "ctxvc-usual").write_text(usual)
    (program.parent / "ctxvc-usual").chmod(0o755)
    every.run("/compact")
    assert [body for body in every.requests(side=True) if scripted.compacts(body)], "its own summary was asked for"
    every.run(WORDS[2], [text("Now this.")])
    with stored(every) as session:
        assert set(WORDS) <= set(human_texts(session)), [(row.origin, row.label) for row in session.ledger().rows()]
        assert not session.pending_plans()


def test_a_killed_client_and_recorder_leave_a_plan_that_is_committed_later(here: Machine) -> None:
    prepared(here)
    worked(here)
    compacted(here, here.run("/compact"))
    here.end_recorder()
    here.run(WORDS[2], [text("Now this.")])
    with stored(here) as session:
        assert human_texts(session) == list(WORDS)
        assert not session.pending_plans()
        results = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert [row.removed_by for row in results].count("policy:default") >= 2 and len(results) == 3


def exact_prompts(here: Machine) -> tuple[int, list[Finding]]:
    """How many recorded prompts were compared with what was sent and are the same, and what is wrong with them."""
    with stored(here) as session:
        return proof.check_prompts(session.store)


@pytest.mark.parametrize("ours", [True, False])
def test_each_prompt_behind_an_automatic_compaction_is_exact(here: Machine, ours: bool) -> None:
    prepared(here, "24k")
    if not ours:
        (here.home / ".config" / "ctxvc" / "config.toml").write_text("[claude-code]\noff = true\n")
    worked(here)
    full = Reply([prints("needle-4", 2000)], usage={"input_tokens": 970_000})
    here.run("A long job.", full, [thought("On."), prints("needle-5", 20)], [text("It is done.")])
    here.run("More.", [prints("needle-6", 20)], [text("Done again.")])

    assert any(scripted.compacts(body) for body in here.requests(side=True)) is not ours
    assert exact_prompts(here) == (len(here.requests()), [])


def test_the_model_gets_back_what_left_by_the_plugins_tool(here: Machine) -> None:
    prepared(here)
    worked(here)
    compacted(here, here.run("/compact"))
    with stored(here) as session:
        row = next(row for row in session.ledger().rows() if row.kind == "tool_result" and not row.present)
        body = session.body(row).decode()
    halves = [call(RECOVER, address=row.handle, lines=lines, max_tokens=8000) for lines in ("1:1500", "1501:3001")]
    here.run("Get it back.", halves, [text("I have it.")])
    answers = [block for one in here.requests()[-1]["messages"] for block in one["content"] if "tool_use_id" in block]
    assert not any(answer.get("is_error") for answer in answers[-2:]), [str(answer)[-300:] for answer in answers[-2:]]
    given = [json.loads(scripted.message_text({"content": [answer]})) for answer in answers[-2:]]
    given.sort(key=lambda part: "lines 1-" not in part["header"])
    assert "\n".join(part["content"].removesuffix("\n") for part in given) == body
