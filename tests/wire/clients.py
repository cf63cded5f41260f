"""Recorded conversations as clients send them: the whole history each time, in each form; and models that check it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from ctxvc.core.ledger.block import Message
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.sanitise import Piece, valid
from ctxvc.forms.form import of
from ctxvc.forms.merged import merged
from ctxvc.replay.conversation import Conversation
from ctxvc.tokens.count import count
from ctxvc.wire.exchange import Answered, Exchange, Managed, Requested
from ctxvc.wire.sessions import Sessions
from tests.messages_api import stream
from tests.messages_api.judge import Judge, Ruling
from tests.messages_api.script import Reply
from tests.messages_api.wire import Request
from tests.openai_api import judge as openai
from tests.openai_api import server

MODEL = "claude-opus-5"
Blocks = list[dict[str, Any]]
#: What no provider takes in a call's id.
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
#: Each request has the texts of the one before.
_tokens = cache(count)
#: What a model does when it is asked: the blocks of its reply. It gets the request's body.
Script = Callable[[Mapping[str, Any]], Blocks]


def blocks(message: Message) -> Blocks:
    """A recorded message's content as the Messages API has it."""
    content = [
        Piece(message=0, role=part.role, kind=part.kind, body=part.body, ext=part.ext,
              call=_NO_ID.sub("_", part.call), tool=part.tool,
              error=part.error, extra=part.extra, files=dict(part.files))
        for part in message.parts
    ]  # fmt: skip
    return [block for piece in valid(content) if piece.role == message.role for block in formats.content(piece)]


def turns(conversation: Conversation) -> Iterator[tuple[list[Blocks], Blocks, int]]:
    """What comes in before each call of the model, message by message, the reply, and the number of the call.

    Without anybody's thinking. What comes before a call whose reply is nothing else comes before the next one.
    """
    incoming: list[Blocks] = []
    for number, call in enumerate(conversation.calls):
        incoming += [content for message in call.before if (content := _plain(blocks(message)))]
        reply = _plain(blocks(call.reply))
        if incoming and reply:
            yield incoming, reply, number
            incoming = []


def _plain(content: Blocks) -> Blocks:
    return [block for block in content if block["type"] in ("text", "tool_use", "tool_result", "image")]


@dataclass
class Client:
    """A client: what it keeps of its conversation, in its own form."""

    tools: Sequence[Mapping[str, Any]]
    system: str = "You are an agent."
    messages: list[Any] = field(default_factory=list)

    path = ""

    def __post_init__(self) -> None:
        pass

    def incoming(self, content: Blocks) -> None:
        raise NotImplementedError

    def body(self) -> bytes:
        raise NotImplementedError

    def took(self, answer: bytes) -> None:
        raise NotImplementedError

    def problems(self, body: bytes) -> list[str]:
        """What the model's API would refuse in a body."""
        raise NotImplementedError

    def answer(self, body: bytes, content: Blocks) -> bytes:
        """The API's answer to a body, with this content."""
        raise NotImplementedError

    def tokens(self, body: bytes) -> int:
        """The size of a body's prompt, as the API counts it."""
        return tokens_of(json.loads(body))


class Anthropic(Client):
    path = "/v1/messages"

    def __post_init__(self) -> None:
        self.judge = Judge(thinking=False)
        self.ruled: dict[bytes, tuple[Request, Ruling]] = {}
        self.usage: list[dict[str, int]] = []

    def incoming(self, content: Blocks) -> None:
        self.messages.append({"role": "user", "content": content})

    def body(self) -> bytes:
        request = {
            "model": MODEL,
            "max_tokens": 4096,
            "system": [{"type": "text", "text": self.system, "cache_control": {"type": "ephemeral"}}],
            "tools": list(self.tools),
            "messages": _marked(self.messages),
        }
        return json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def took(self, answer: bytes) -> None:
        self.messages.append({"role": "assistant", "content": json.loads(answer)["content"]})

    def problems(self, body: bytes) -> list[str]:
        return list(self._rule(body)[1].problems)

    def answer(self, body: bytes, content: Blocks) -> bytes:
        reply = self.judge.answer(*self._rule(body), content)
        self.usage.append(reply["usage"])
        return json.dumps(reply).encode()

    def tokens(self, body: bytes) -> int:
        return self._rule(body)[1].tokens

    def _rule(self, body: bytes) -> tuple[Request, Ruling]:
        """The request, and what the API makes of it, without anybody's thinking always the same."""
        if body not in self.ruled:
            request = json.loads(body)
            self.ruled[body] = request, self.judge.rule(request)
        return self.ruled[body]


def _marked(messages: Sequence[Any]) -> list[Any]:
    """The messages with a cache mark at the end of the two newest of the user's, as Claude Code sets them."""
    users = [number for number, message in enumerate(messages) if message["role"] == "user"][-2:]
    marked = list(messages)
    for number in users:
        *before, last = messages[number]["content"]
        content = [*before, {**last, "cache_control": {"type": "ephemeral"}}]
        marked[number] = {**messages[number], "content": content}
    return marked


def tokens_of(value: Any) -> int:
    """The tokens of all texts in a value."""
    return sum(_tokens(text) + 1 for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(item.get("text", "[image]") for item in content or ())


class Chat(Client):
    path = "/v1/chat/completions"

    def incoming(self, content: Blocks) -> None:
        for block in content:
            if block["type"] == "tool_result":
                result = {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content"))}
                self.messages.append(result)
        if texts := [block for block in content if block["type"] == "text"]:
            self.messages.append({"role": "user", "content": "\n".join(block["text"] for block in texts)})

    def body(self) -> bytes:
        tools = [
            {"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}}
            for tool in self.tools
        ]
        messages = [{"role": "system", "content": self.system}, *self.messages]
        return json.dumps({"model": "gpt-6", "messages": messages, "tools": tools}).encode()

    def took(self, answer: bytes) -> None:
        message = json.loads(answer)["choices"][0]["message"]
        self.messages.append({name: value for name, value in message.items() if value is not None})

    def problems(self, body: bytes) -> list[str]:
        return list(filter(None, [openai.chat_problem(json.loads(body))]))

    def answer(self, body: bytes, content: Blocks) -> bytes:
        return json.dumps(server.completion(Reply(content), len(self.messages), self.tokens(body))).encode()


class Responses(Client):
    path = "/v1/responses"

    def incoming(self, content: Blocks) -> None:
        for block in content:
            if block["type"] == "tool_result":
                output = {"call_id": block["tool_use_id"], "output": _text(block.get("content"))}
                self.messages.append({"type": "function_call_output", **output})
        for block in content:
            if block["type"] == "text":
                piece = {"type": "input_text", "text": block["text"]}
                self.messages.append({"type": "message", "role": "user", "content": [piece]})

    def body(self) -> bytes:
        tools = [
            {"type": "function", "name": tool["name"], "parameters": tool["input_schema"], "strict": False}
            for tool in self.tools
        ]
        request = {"model": "gpt-6", "instructions": self.system, "input": self.messages, "tools": tools}
        return json.dumps({**request, "store": False}).encode()

    def took(self, answer: bytes) -> None:
        for item in json.loads(answer)["output"]:
            self.messages.append({name: value for name, value in item.items() if name not in ("id", "status")})

    def problems(self, body: bytes) -> list[str]:
        return list(filter(None, [openai.responses_problem(json.loads(body))]))

    def answer(self, body: bytes, content: Blocks) -> bytes:
        return json.dumps(server.response(Reply(content), len(self.messages), self.tokens(body))).encode()


class Gemini(Client):
    path = "/v1beta/models/gemini-4:generateContent"

    def __post_init__(self) -> None:
        self.names: dict[str, str] = {}

    def incoming(self, content: Blocks) -> None:
        parts: list[dict[str, Any]] = []
        for block in content:
            if block["type"] == "tool_result":
                name = self.names.get(block["tool_use_id"], "unknown")
                output = {"name": name, "response": {"output": _text(block.get("content"))}}
                parts.append({"functionResponse": output})
        parts += [{"text": block["text"]} for block in content if block["type"] == "text"]
        if parts:
            self.messages.append({"role": "user", "parts": parts})

    def body(self) -> bytes:
        functions = [{"name": tool["name"], "parametersJsonSchema": tool["input_schema"]} for tool in self.tools]
        request = {
            "systemInstruction": {"parts": [{"text": self.system}]},
            "tools": [{"functionDeclarations": functions}],
            "contents": self.messages,
        }
        return json.dumps(request).encode()

    def took(self, answer: bytes) -> None:
        self.messages.append(json.loads(answer)["candidates"][0]["content"])

    def problems(self, body: bytes) -> list[str]:
        return list(gemini_problems(json.loads(body)["contents"]))

    def answer(self, body: bytes, content: Blocks) -> bytes:
        parts: list[dict[str, Any]] = []
        for block in content:
            if block["type"] == "text":
                parts.append({"text": block["text"]})
            elif block["type"] == "tool_use":
                self.names[block["id"]] = block["name"]
                call = {"name": block["name"], "args": block["input"]}
                parts.append({"functionCall": call, "thoughtSignature": "c2ln"})
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        counts = {"promptTokenCount": self.tokens(body), "candidatesTokenCount": 10}
        return json.dumps({"candidates": [candidate], "usageMetadata": counts}).encode()


def gemini_problems(contents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What `generateContent` refuses: a turn of calls is followed by as many responses, and by nothing else."""
    waiting: list[str] = []
    for number, content in enumerate(contents):
        parts = content.get("parts") or []
        responses = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if not parts:
            yield f"contents[{number}] has no parts"
        if sorted(responses) != sorted(waiting):
            yield f"contents[{number}]: responses to {responses} where {waiting} were called"
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if waiting and content.get("role") != "model":
            yield f"contents[{number}]: a call that is not the model's"
    if contents and contents[0].get("role") == "model":
        yield "the first turn is the model's"


FORMS: Mapping[str, type[Client]] = {"anthropic": Anthropic, "chat": Chat, "responses": Responses, "gemini": Gemini}


@dataclass
class Call:
    """A call of the model: what the client sent, what went to the model, and what came back."""

    client: bytes
    sent: bytes
    answer: bytes
    problems: list[str]


class Wire:
    """A client's requests passing through a recorder that manages prompts, without a network between them."""

    def __init__(self, client: Client, sessions: Sessions, headers: Mapping[str, str] = {}) -> None:
        self.client, self.sessions = client, sessions
        self.headers = dict(headers)
        form = of(client.path)
        assert form is not None
        self.form = form
        self.calls: list[Call] = []
        self.number = 0
        self.failures: list[Exception] = []

    def ask(self, reply: Blocks, *, script: Callable[[bytes], Blocks | None] = lambda _: None) -> bytes:
        """One request of the client; gives what the client gets. `script` may answer a body in another way."""
        self.number += 1
        body, at = self.client.body(), 1_790_000_000.0 + 60 * self.number
        requested = Requested(
            number=self.number, upstream="any", path=self.client.path, headers=self.headers, body=body, began=at
        )  # fmt: skip
        managed = self._guarded(lambda: self.sessions.request(requested))
        merging = merged(self.form.NAME, stream=False, ours=managed.tools)
        sent, is_managed = managed.body or body, bool(managed.tools)
        while True:
            from_model = self._answered(body, sent, script(sent) or reply)
            passed = merging.feed(from_model)
            merging.end()
            answered = Answered(
                number=self.number, status=200, answer=from_model, stream=False, whole=True, first=at + 1, ended=at + 2
            )  # fmt: skip
            if not is_managed:
                break
            managed = self._guarded(partial(self.sessions.answer, answered))
            if not managed.body:
                break
            sent = managed.body
        answer = passed + merging.close()
        self.sessions.take(
            Exchange(
                upstream="any", path=self.client.path, headers=self.headers, body=body, status=200, answer=answer,
                stream=False, whole=True, began=at, first=at + 1, ended=at + 2, number=self.number,
            )
        )  # fmt: skip
        return answer

    def ask_only(self) -> bytes:
        """What goes to the model for a request that nobody answers."""
        self.number += 1
        body = self.client.body()
        requested = Requested(
            number=self.number, upstream="any", path=self.client.path, headers=self.headers, body=body,
            began=1_790_000_000.0 + 60 * self.number,
        )  # fmt: skip
        return self._guarded(lambda: self.sessions.request(requested)).body

    def ask_broken(self, reply: Blocks) -> None:
        """One request, whose answer is a stream of the Messages API that breaks off within the reply's last block."""
        self.number += 1
        body, at = self.client.body(), 1_790_000_000.0 + 60 * self.number
        requested = Requested(
            number=self.number, upstream="any", path=self.client.path, headers=self.headers, body=body, began=at
        )  # fmt: skip
        sent = self._guarded(lambda: self.sessions.request(requested)).body
        message = json.loads(self._answered(body, sent, reply))
        events = list(map(stream.encoded, stream.events(message)))[:-4]
        fields = {name: getattr(requested, name) for name in Requested.__struct_fields__}
        self.sessions.take(
            Exchange(
                **fields, status=200, answer=b"".join(events), stream=True, whole=False, first=at + 1, ended=at + 2
            )
        )

    def _answered(self, body: bytes, sent: bytes, content: Blocks) -> bytes:
        problems = self.client.problems(sent)
        answer = self.client.answer(body if problems else sent, content)
        self.calls.append(Call(body, sent, answer, problems))
        return answer

    def _guarded(self, ask: Callable[[], Managed]) -> Managed:
        try:
            return ask()
        except Exception as error:
            self.failures.append(error)
            return Managed()


def play(wire: Wire, conversation: Conversation, most: int = 10_000) -> None:
    """Sends a recorded conversation, and gives the client the recorded replies."""
    for number, (incoming, reply, _) in enumerate(turns(conversation)):
        if number >= most:
            return
        for content in incoming:
            wire.client.incoming(content)
        wire.client.took(wire.ask(reply))
