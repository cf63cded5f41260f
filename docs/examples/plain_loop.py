"""A loop on the Anthropic SDK, as most are, with one tool: what becomes context-managed by a few lines."""

import subprocess

import anthropic

MODEL = "claude-opus-5-5"
SYSTEM = "You mend programs. Say little."
TOOLS = [
    {
        "name": "sh",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    }
]


def run(call_id, given):
    done = subprocess.run(given["cmd"], shell=True, check=False, capture_output=True)  # noqa: S602
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": (done.stdout + done.stderr).decode(errors="replace"),
    }


def work(task):
    client = anthropic.Anthropic()
    messages = [{"role": "user", "content": task}]
    while True:
        reply = client.messages.create(model=MODEL, max_tokens=8_000, system=SYSTEM, tools=TOOLS, messages=messages)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": [run(call.id, call.input) for call in calls]})
