"""A whole agent with a shell: `python minimal_agent.py 'make the tests pass'`.

It asks before each command, prints the answer as it streams, and keeps its context below 100,000 tokens. Run it again
with another task: it is the same session, and goes on from there.
"""

import subprocess
import sys

import anthropic

from ctxvc import Session
from ctxvc.agent import Adapter, definitions

MODEL = "claude-opus-5-5"
SYSTEM = "You work in a folder on a person's machine, with a shell. Say little."
SHELL = {
    "name": "shell",
    "description": "Run a command in the working folder.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def shell(call):
    command = str(call["input"].get("command", ""))
    answer = {"type": "tool_result", "tool_use_id": call["id"]}
    if input(f"run {command!r}? [y/N] ") != "y":
        return {**answer, "content": "the person does not want this to be run", "is_error": True}
    done = subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S602
    return {**answer, "content": done.stdout.decode(errors="replace"), "is_error": done.returncode != 0}


client = anthropic.Anthropic()
tools = definitions(own=[SHELL])
with Session.open(".ctxvc", "agent", model=MODEL, budget=100_000, system=SYSTEM, tools=tools) as session:
    adapter = Adapter(session)
    adapter.append({"role": "user", "content": sys.argv[1]})
    while True:
        with client.messages.stream(**adapter.request()) as stream:
            for words in stream.text_stream:
                print(words, end="", flush=True)
            reply = adapter.record(stream.get_final_message())
        print()
        if not reply.goes_on:
            break
        adapter.results([adapter.handle(call) or shell(call) for call in reply.calls])
