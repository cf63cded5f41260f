"""An agent in a process: it sends its whole history, and asks again until the answer has come whole.

`agent.py CALLS NAME FILE KIND [ID]`, with the base URL in ANTHROPIC_BASE_URL.
A line for each call that was answered; at its
end its history, and the body of each request that was answered, are in the file. ID is what it calls its conversation.
KIND is `person`, or `client` for questions that no person asks, so that they may leave a prompt.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

#: Seconds in which somebody has to answer.
_PATIENCE = 120
_TOOLS = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]
_PROMPT = {"model": "claude-opus-5", "max_tokens": 100, "system": "You are an agent.", "tools": _TOOLS, "stream": True}


#: How often it has asked.
_attempts = [0]


def main(calls: int, name: str, file: str, kind: str, conversation: str = "", *, address: str = "") -> None:
    history: list[dict[str, Any]] = []
    bodies: list[str] = []
    address = address or os.environ["ANTHROPIC_BASE_URL"]
    for number in range(calls):
        question = f"{name}: question {number}? " + "text " * 200
        question = f"<system-reminder>{question}</system-reminder>" if kind == "client" and number else question
        history.append({"role": "user", "content": question})
        bodies.append(json.dumps({**_PROMPT, "messages": history}))
        history.append({"role": "assistant", "content": _answer(address, bodies[-1].encode(), conversation)})
        print(number, flush=True)
    asked = {"history": [item["content"] for item in history], "bodies": bodies, "attempts": _attempts[0]}
    Path(file).write_text(json.dumps(asked))


def _answer(address: str, body: bytes, conversation: str) -> str:
    authority, _, path = address.removeprefix("http://").partition("/")
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    if conversation:
        headers["x-claude-code-session-id"] = conversation
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(authority, timeout=30)
        _attempts[0] += 1
        try:
            connection.request("POST", f"/{path}/v1/messages", body=body, headers=headers)
            response = connection.getresponse()
            data = response.read()
            if response.status == 200 and b"event: message_stop" in data:
                return _text(data)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.01)
    sys.exit("nobody answers")


def _text(stream: bytes) -> str:
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
