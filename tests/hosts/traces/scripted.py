"""Two agents of a few lines against a scripted Chat Completions API on the loopback, for the makers of traces.

The same server answers what a tracer sends, and gives it to the maker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def tool(name: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": f"{name}s.", "parameters": parameters}}


def call(identifier: str, name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": identifier, "type": "function", "function": function}


TOOLS = [tool("read", "path"), tool("ask", "question")]
REPLIES: list[dict[str, Any]] = [
    {
        "content": "I look.",
        "tool_calls": [call("call_1", "read", path="a.py"), call("call_2", "read", path="gone.py")],
    },
    {"content": None, "tool_calls": [call("call_3", "ask", question="How many?")]},
    {"content": "All done."},
    {"content": "Bye."},
]


def completion(request: Mapping[str, Any]) -> dict[str, Any]:
    """The response to a request: the reply with the number of those that it has already; without tools a constant."""
    asked = sum(message["role"] == "assistant" for message in request["messages"])
    reply = REPLIES[asked] if "tools" in request else {"content": "Three."}
    return {
        "id": f"chatcmpl-{asked}{'' if 'tools' in request else 'x'}",
        "object": "chat.completion",
        "created": 1_780_000_000,
        "model": "scripted-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if reply.get("tool_calls") else "stop",
                "message": {"role": "assistant", **reply},
            }
        ],
        "usage": {
            "prompt_tokens": 101 + asked,
            "completion_tokens": 10,
            "total_tokens": 111 + asked,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }


@contextmanager
def server(answer: Callable[[str, Mapping[str, str], bytes], Any]) -> Iterator[str]:
    """The address of a server; what is no chat completion gets what `answer` gives for path, headers and body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            is_chat = self.path.endswith("/chat/completions")
            value = completion(json.loads(body)) if is_chat else answer(self.path, dict(self.headers), body)
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()


def counter(chat: Callable[..., Any], question: str) -> str:
    """The second agent: it has no tools."""
    messages = [{"role": "system", "content": "You count."}, {"role": "user", "content": question}]
    return str(chat(model="scripted", messages=messages).choices[0].message.content)


def read(path: str) -> str:
    return "print('Grüße')\n" if path == "a.py" else "no such file"


def reader(
    chat: Callable[..., Any],
    history: list[Any],
    question: str,
    tools: Mapping[str, Callable[..., str]],
) -> list[Any]:
    """The first agent: it calls tools until it answers. Gives the messages with its answer."""
    messages = history or [{"role": "system", "content": "You read files. Be short."}]
    messages = [*messages, {"role": "user", "content": question}]
    while True:
        reply = chat(model="scripted", messages=messages, tools=TOOLS).choices[0].message
        messages = [*messages, reply.model_dump(exclude_none=True)]
        if not reply.tool_calls:
            return messages
        for one in reply.tool_calls:
            text = tools[one.function.name](**json.loads(one.function.arguments))
            messages = [*messages, {"role": "tool", "tool_call_id": one.id, "content": text}]
