"""pi and opencode as far as `ctxvc serve` can tell: lists of messages that grow by a step at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from ctxvc import __version__
from ctxvc.cli.app import App
from ctxvc.integrations.hosts.service import PROTOCOL, Service
from ctxvc.policies import parse
from ctxvc.store.store import Store, create

WINDOW, RESERVE = 24_000, 4_000
TASK = "Fix the parser; never touch config.ini, and keep the word Ørsted."
Messages = list[dict[str, Any]]


class Client:
    """A client of a service on a store, as an extension is one."""

    def __init__(self, host: str, folder: Path) -> None:
        self.folder = folder
        if not (folder / ".ctxvc").exists():
            create(folder / ".ctxvc").close()
        self.service = Service(
            lambda: Store(folder / ".ctxvc"),
            lambda: parse("default"),
            version=__version__,
            folder=folder,
            explain=App(start=folder).explain,
        )
        self.host = host
        self.hello = self.ask("hello", host=host, version=__version__, protocol=PROTOCOL)

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        answer = json.loads(json.dumps(self.service.answer(json.dumps({"id": 1, "verb": verb, **fields}).encode())))
        assert answer["id"] == 1
        return dict(answer)

    def messages(self, messages: Messages, session: str = "session-0001", **fields: Any) -> dict[str, Any]:
        fields = {"model": "claude-sonnet-4-5", "window": WINDOW, "reserve": RESERVE, **fields}
        return self.ask("messages", session=session, messages=messages, **fields)

    def prompt(self, messages: Messages, session: str = "session-0001", **fields: Any) -> Messages:
        """The prompt that the host sends, which must be one that can be sent."""
        before = deepcopy(messages)
        answer = self.messages(messages, session, **fields)
        assert "error" not in answer, answer
        assert messages == before
        prompt = [messages[item] if isinstance(item, int) else item for item in answer["messages"]]
        HOSTS[self.host].check(prompt)
        assert answer["used"] <= answer["budget"]
        return prompt

    def restarted(self) -> Client:
        """Another process, after this one was killed."""
        return Client(self.host, self.folder)


def output(number: int) -> str:
    chance = random.Random(number)
    return "\n".join(f"def f{chance.randrange(10**6)}(x): return x * {chance.randrange(1000)}" for _ in range(60))


class Pi:
    @staticmethod
    def human(text: str, at: int) -> Messages:
        return [{"role": "user", "content": text, "timestamp": at}]

    @staticmethod
    def step(number: int, at: int, result: str = "") -> Messages:
        call = {"type": "toolCall", "id": f"call-{number}", "name": "read", "arguments": {"path": f"f{number}.py"}}
        content = [{"type": "text", "text": f"Step {number}."}, call]
        usage = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        reply = {"role": "assistant", "content": content, "api": "x", "usage": usage, "timestamp": at}
        answer = {"role": "toolResult", "toolCallId": f"call-{number}", "toolName": "read", "isError": False}
        items = [{"type": "text", "text": result or output(number)}]
        return [reply, {**answer, "content": items, "timestamp": at + 1}]

    @staticmethod
    def check(prompt: Messages) -> None:
        """Calls have their results behind them, each once, and nothing says nothing."""
        open_calls: list[str] = []
        for message in prompt:
            assert message.get("content") or message["role"] in ("bashExecution", "compactionSummary"), message
            if message["role"] == "toolResult":
                open_calls.remove(message["toolCallId"])
                continue
            assert not open_calls
            if message["role"] == "assistant":
                open_calls = [item["id"] for item in message["content"] if item["type"] == "toolCall"]
        assert not open_calls
        assert prompt[0]["role"] in ("user", "compactionSummary")

    @staticmethod
    def compacted(summary: str, at: int) -> Messages:
        """What stands in the place of the messages that a compaction of pi's own took away."""
        return [{"role": "compactionSummary", "summary": summary, "tokensBefore": 1, "timestamp": at}]

    @staticmethod
    def forked(messages: Messages) -> Messages:
        return deepcopy(messages)


class Opencode:
    @staticmethod
    def human(text: str, at: int, session: str = "ses_1") -> Messages:
        info = {"id": f"msg_{at}", "sessionID": session, "role": "user", "time": {"created": at}, "agent": "build"}
        return [{"info": info, "parts": [{"id": f"prt_{at}", "type": "text", "text": text}]}]

    @staticmethod
    def step(number: int, at: int, result: str = "") -> Messages:
        tokens = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        info = {"id": f"msg_{at}", "sessionID": "ses_1", "role": "assistant", "time": {"created": at}, "tokens": tokens}
        state = {"status": "completed", "input": {"filePath": f"f{number}.py"}, "output": result or output(number)}
        tool = {"id": f"prt_{at}-1", "type": "tool", "callID": f"call-{number}", "tool": "read", "state": state}
        text = {"id": f"prt_{at}", "type": "text", "text": f"Step {number}."}
        return [{"info": info, "parts": [{"type": "step-start"}, text, tool, {"type": "step-finish"}]}]

    @staticmethod
    def check(prompt: Messages) -> None:
        assert prompt[0]["info"]["role"] == "user"
        for message in prompt:
            assert message["parts"]
            assert all(part["text"] for part in message["parts"] if part["type"] == "text")

    @staticmethod
    def compacted(summary: str, at: int) -> Messages:
        """A person's or opencode's own compaction, and the model's answer to it."""
        info = {"id": f"msg_{at}", "sessionID": "ses_1", "role": "user", "time": {"created": at}, "agent": "build"}
        answer = {"id": f"msg_{at + 1}", "role": "assistant", "summary": True, "time": {"created": at + 1}}
        return [
            {"info": info, "parts": [{"id": f"prt_{at}", "type": "compaction", "auto": False}]},
            {"info": answer, "parts": [{"id": f"prt_{at + 1}", "type": "text", "text": summary}]},
        ]

    @staticmethod
    def forked(messages: Messages) -> Messages:
        """As opencode copies a session: other ids, the moments of the original."""
        copies = deepcopy(messages)
        for number, message in enumerate(copies):
            message["info"] |= {"id": f"msg_new_{number}", "sessionID": "ses_2"}
            for part in message["parts"]:
                part["id"] = f"prt_new_{number}"
        return copies


HOSTS: dict[str, type[Pi] | type[Opencode]] = {"pi": Pi, "opencode": Opencode}


def run(
    client: Client,
    messages: Messages,
    steps: Sequence[int],
    session: str = "session-0001",
    seen: Callable[[Messages], object] = lambda _: None,
) -> Messages:
    """Goes on for these steps, asking before each; gives the last prompt."""
    for number in steps:
        seen(client.prompt(messages, session))
        messages += HOSTS[client.host].step(number, 10_000 + 10 * number)
    prompt = client.prompt(messages, session)
    seen(prompt)
    return prompt
