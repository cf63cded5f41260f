"""Two clients at once in one project: each acts on its own session."""

from __future__ import annotations

import re
import uuid

from tests.hosts.claude_code.machine import Machine
from tests.messages_api import call, text

TOOL = "mcp__plugin_ctxvc_store__"


def test_two_clients_at_once_each_have_their_notes(every: Machine) -> None:
    names = {who: str(uuid.uuid4()) for who in ("red", "blue")}
    running = [
        every.start(
            f"Remember {who}.",
            [call("Bash", command=f"echo secret-{who}; sleep 1", description="print")],
            [call(f"{TOOL}note", text=f"I am {who}.")],
            [call(f"{TOOL}recover", address="B2"), call(f"{TOOL}search", pattern=f"secret-{who}$")],
            [call(f"{TOOL}notes")],
            [text(f"Done, {who}.")],
            session=session,
        )
        for who, session in names.items()
    ]
    for client in running:
        every.check(client.finish())
    every.settle()

    for who, session in names.items():
        other = "blue" if who == "red" else "red"
        last = every.requests(session)[-1]
        results = str([block for message in last["messages"] for block in message["content"] if "tool_use_id" in block])
        assert f"I am {who}." in results and f"secret-{who}" in results
        assert f"I am {other}." not in results and f"secret-{other}" not in results
        stored = f"claude-{session[:8]}"
        assert f"I am {who}." in every.shell("ctxvc", "--session", stored, "notes")
        assert f"I am {other}." not in every.shell("ctxvc", "--session", stored, "notes")


def test_a_command_in_the_agents_shell_acts_on_its_own_session(here: Machine) -> None:
    here.run("Hi.", [text("Hello.")])
    here.settle()
    first = here.session
    here.run("Hi.", [text("Hello.")], session=str(uuid.uuid4()))
    here.settle()

    here.run(
        "Note it.",
        [call("Bash", command="ctxvc note -m 'By the shell.'", description="note")],
        [text("Noted.")],
        session=first,
    )
    here.settle()
    assert "By the shell." in here.shell("ctxvc", "--session", f"claude-{first[:8]}", "notes")


def test_a_sub_agents_calls_act_on_its_own_scope(here: Machine) -> None:
    agent = call("Agent", description="look", prompt="Look at THE-DEEP-END.", run_in_background=False)
    here.run(
        "Ask somebody.",
        [call("Bash", command="echo up", description="print")],  # by its end the conversation is recorded
        [call(f"{TOOL}note", text="Of the main line.")],
        [agent],
        [call(f"{TOOL}notes")],
        [text("They looked.")],
        agents={
            "THE-DEEP-END": [
                [call("Bash", command="echo deep", description="print")],
                [call(f"{TOOL}note", text="Of the sub-agent.")],
                [call(f"{TOOL}notes")],
                [text("I looked.")],
            ]
        },
    )
    here.settle()

    (scope,) = re.findall(r"agent-[0-9a-z]+", here.shell("ctxvc", "scopes"))
    own, main = here.shell("ctxvc", "notes", scope), here.shell("ctxvc", "notes", "main")
    assert "Of the sub-agent." in own and "Of the main line." in main
    assert "Of the sub-agent." not in main
    results = [
        str([block for message in body["messages"] for block in message["content"] if "tool_use_id" in block])
        for body in here.requests()
    ]
    assert any("Of the sub-agent." in result and scope in result for result in results)
    assert "Of the main line." in results[-1] and "Of the sub-agent." not in results[-1]
