"""The plugin as the client takes it: installed from the repository, commands, tools, and its part in compactions."""

from __future__ import annotations

import json
import re

from ctxvc.mcp.offer import TOOLS
from tests.hosts.claude_code import scripted
from tests.hosts.claude_code.machine import PLUGIN, Machine
from tests.messages_api import call, text

TOOL = "mcp__plugin_ctxvc_store__"
COMMANDS = sorted(path.stem for path in (PLUGIN / "commands").glob("*.md"))


def without_mod(here: Machine) -> None:
    """As in a client that is too old for a mod: the host's own compaction is not replaced."""
    path = here.plugins[0] / "hooks" / "hooks.json"
    hooks = {name: value for name, value in json.loads(path.read_text()).items() if name != "modules"}
    path.write_text(json.dumps(hooks))


def test_the_repository_is_a_marketplace_and_its_commands_run(every: Machine) -> None:
    client = str(every.client)
    for folder in (*every.plugins, every.repository):
        assert "Validation passed" in every.shell(client, "plugin", "validate", str(folder))
    every.shell(client, "plugin", "marketplace", "add", str(every.repository))
    every.shell(client, "plugin", "install", "ctxvc@ctxvc")
    every.plugins = []
    every.run("Hi.", [text("Hello.")])
    every.settle()

    assert COMMANDS == ["continue", "note", "recover", "status", "undo", "why"]
    for name in COMMANDS:
        every.run(f"/ctxvc:{name} B1", [text("Yes.")])
    asked = [scripted.last_text(body) for body in every.requests()[1:]]
    assert all("B1" in asked[COMMANDS.index(name)] for name in ("note", "recover", "why"))
    assert "held here" in asked[COMMANDS.index("status")] or "context\t" in asked[COMMANDS.index("status")]


def test_the_tools_are_there_from_the_start_and_answer(every: Machine) -> None:
    every.run(
        "Go.",
        [call("Bash", command="echo needle-1", description="print")],
        [call(f"{TOOL}search", pattern="needle-1"), call(f"{TOOL}recover", address="B1")],
        [text("Found.")],
    )
    first, last = every.requests()[0], every.requests()[-1]
    tools = {tool["name"] for tool in first["tools"]}
    assert {TOOL + tool.name for tool in TOOLS if tool.always} <= tools
    results = [block for message in last["messages"] for block in message["content"] if "tool_use_id" in block]
    assert not [block for block in results if block.get("is_error")]
    assert "needle-1" in str(results[-2:])  # both only read, and so are called at once


def test_after_each_compaction_the_first_words_and_all_groups_are_handed_back(every: Machine) -> None:
    without_mod(every)
    every.run(
        "FIRST-WORDS, verbatim.",
        [call("Bash", command="echo needle-1; seq 1 300", description="print")],
        [text("One.")],
    )
    every.run("/compact keep the API")
    every.run("SECOND-WORDS.", [call("Bash", command="echo needle-2; seq 1 300", description="print")], [text("Two.")])
    every.run("/compact")
    every.run("THIRD-WORDS.", [text("Three.")])
    every.settle()

    first, second = [scripted.last_text(body) for body in every.requests(side=True) if scripted.compacts(body)]
    assert "keep the API" in first
    assert re.search(r"- B\d+@[0-9a-f]+, step 1, tool_result of Bash", first)  # whoever summarises is told what to name
    assert re.search(r"- B\d+@[0-9a-f]+, step \d+, tool_result of Bash", second)
    given_back = scripted.text(every.requests()[-1])
    given_back = given_back[given_back.rindex("[ctxvc] This conversation") :]
    assert "FIRST-WORDS, verbatim." in given_back and "SECOND-WORDS." in given_back
    assert "Earlier compactions:\n- G1, " in given_back
    assert "needle-2" in given_back
    every.shell("ctxvc", "recover", "G1")
