"""`python -m tests.benchmarks.wire_beside RESULTS RECORDING…`: no proxy, ctxvc and headroom before one API.

Each recording is sent in Anthropic's form, the whole history each time, to `tests.messages_api` on this machine: by
itself, through `ctxvc proxy` at each budget, and through headroom in each of its modes, call by call in turns. RESULTS
gets a line of JSON for each; `--table` prints the sums of a file. CTXVC_RIVALS names the folder of `headroom`.

Calls come within seconds, so no cached prefix expires in any of them. The evidence is that of docs/measures.md, of what
was really sent: a block's text, and what stands in the place of a result, is visible; what stands anywhere else, as in
a stub, is not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ctxvc.replay.conversation import Conversation, Prompt, conversations
from ctxvc.replay.measures.cost import PRICES
from ctxvc.replay.measures.retention import LOST, VISIBLE, Gauge, Lookup
from ctxvc.replay.measures.uses import uses
from ctxvc.session.session import Session
from ctxvc.store.store import Store, create
from tests.benchmarks.wire import Rival, Server, started
from tests.benchmarks.wire_managed import Recorded, client_of, is_ours, recorded_as
from tests.messages_api import server
from tests.messages_api.judge import Judge
from tests.messages_api.script import Reply
from tests.messages_api.wire import Request
from tests.wire.clients import Blocks

#: How headroom marks what it took away, and how ctxvc does.
_HASH = re.compile(r"<<ccr:([a-f0-9]{12,24})|hash=([a-f0-9]{12,24})")
_STUB = re.compile(r"\[(?:archived|masked|pruned|blocked|deleted) ")


#: The vocabularies that come with a dependency of headroom's, in its environment.
_VOCABULARIES = "lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"


def _program(name: str) -> Path:
    return Path(shutil.which(name, path=os.environ.get("CTXVC_RIVALS", "")) or name)


def _ctxvc(budget: int) -> Rival:
    return Rival(
        f"ctxvc at {budget // 1000}k",
        lambda port, upstream: [
            *(sys.executable, "-m", "ctxvc", "proxy", "--port", f"anthropic={port}", "--budget", str(budget)),
            *("--upstream", f"anthropic=http://127.0.0.1:{upstream}"),
        ],
    )


def _headroom(mode: str) -> Rival:
    return Rival(
        f"headroom, {mode}",
        lambda port, _upstream: ["headroom", "proxy", "--port", str(port), "--no-rate-limit", "--mode", mode],
        lambda upstream: {
            "ANTHROPIC_TARGET_API_URL": f"http://127.0.0.1:{upstream}",
            "HEADROOM_TELEMETRY": "off",
            "HEADROOM_OFFLINE": "1",
            # It counts with a vocabulary that it would download, and without one it compresses nothing.
            "TIKTOKEN_CACHE_DIR": str(next(_program("headroom").parents[1].glob(_VOCABULARIES), "")),
        },
    )


RIVALS = (_ctxvc(80_000), _ctxvc(32_000), _headroom("cache"), _headroom("token"))
DIRECT = "no proxy"
MATCHED = "ctxvc at headroom's tokens"


class Way:
    """One way to the API: a client, what is between, and an API that keeps what it was sent."""

    def __init__(self, name: str, recorded: Recorded, stack: ExitStack, rival: Rival | None) -> None:
        self.name, self.rival, self.stack = name, rival, stack
        self.client = client_of("anthropic", recorded)
        self.reply: Blocks = []
        self.api = stack.enter_context(server.serve(self._assistant, judge=Judge(thinking=False)))
        self.port = int(self.api.url.rpartition(":")[2])
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctxvc-beside-")))
        create(self.folder / "store").close()
        self.server = Server(self.port, "", os.getpid())
        self._proxy: ExitStack | None = None
        self.seconds: list[float] = []
        self.refused: list[str] = []
        self.start()

    def start(self) -> None:
        """Starts what is between, again if it runs."""
        if self.rival is None:
            return
        self.stop()
        self._proxy = ExitStack()
        self.server = self._proxy.enter_context(started(self.rival, self.port, self.folder))

    def stop(self) -> None:
        if self._proxy:
            self._proxy.close()
            self._proxy = None

    def _assistant(self, _: Request) -> Reply:
        return Reply(self.reply)

    def ask(self, reply: Blocks) -> None:
        """One call of the client."""
        self.reply = reply
        body = self.client.body()
        began = time.perf_counter()
        status, answer = self._post("/v1/messages", body)
        self.seconds.append(time.perf_counter() - began)
        if status != 200:
            self.refused.append(answer.decode(errors="replace")[:300])
            answer = json.dumps({"content": reply}).encode()
        self.client.took(answer)

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", "x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        try:
            connection.request("POST", self.server.path.removesuffix("/") + path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        return self.api.bodies

    def readable(self, conversation: Conversation) -> tuple[int, int]:
        """Of the handles in the prompts, how many lead to what was taken away, and how many there are."""
        if self._is_headroom:
            texts = (text for body in self.bodies for text in _texts(body))
            hashes = {one or other for text in texts for one, other in _HASH.findall(text)}
            return sum(map(self._is_kept, hashes)), len(hashes)
        if self.rival is None:
            return 0, 0
        read = list(self._reads(conversation))
        return sum(read), len(read)

    @property
    def _is_headroom(self) -> bool:
        return self.name.startswith("headroom")

    def _is_kept(self, name: str) -> bool:
        status, answer = self._post("/v1/retrieve", json.dumps({"hash": name}).encode())
        if status != 200:
            return False
        return bool(json.loads(answer).get("original_content"))

    def _reads(self, conversation: Conversation) -> Iterator[bool]:
        """Of each block that left, whether its address leads to the client's bytes."""
        known = {part.body for call in conversation.calls for one in (*call.before, call.reply) for part in one.parts}
        with Store(self.folder / "store") as store:
            (name,) = store.sessions()
        with Session.open(self.folder / "store", name) as session:
            for row in session.ledger().rows():
                if not is_ours(row) and row.state not in ("visible", "pinned"):
                    yield all(data in known for _, data in session.recover_bytes(row.id))


# --- the evidence in what was sent


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield from _of_block(block)


def _of_block(block: Mapping[str, Any]) -> Iterator[str]:
    if block["type"] == "text":
        yield block["text"]
    elif block["type"] == "tool_result":
        content = block.get("content") or ""
        for inner in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield from _of_block(inner)


class Evidence:
    """What of each use was in the prompt of its call: the outcomes of a replay, of bodies that were sent."""

    def __init__(self, conversation: Conversation, lookup: Lookup) -> None:
        self._lookup = lookup
        self._gauge = Gauge(lookup, archive=True, search=False)
        self._by_text: dict[str, list[int]] = {}
        self._calls: dict[str, int] = {}
        self._results: dict[str, int] = {}
        for block in conversation.blocks:
            if block.kind not in ("tool_use", "tool_result"):
                self._by_text.setdefault(block.text.strip(), []).append(block.number)
        numbers = iter(conversation.blocks)
        for call in conversation.calls:
            for message in (*call.before, call.reply):
                for part in message.parts:
                    block = next(numbers)
                    if part.kind == "tool_use":
                        self._calls[part.call] = block.number
                    elif part.kind == "tool_result":
                        self._results[part.call] = block.number
        self._blocks = conversation.blocks

    def add(self, call: int, body: Mapping[str, Any], gone: bool) -> None:
        """Takes in the body of a call. What is `gone` has no way back, where a result has no handle."""
        complete: set[int] = set()
        parts: dict[int, str] = {}
        texts: list[str] = []
        routes: dict[int, int] = {}
        for message in body["messages"]:
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                self._take(block, complete, parts, texts, routes)
        unreachable = set()
        if gone:
            seen = self._lookup.seen_by(call)
            unreachable = {
                number for number in range(seen) if number not in complete and not _HASH.search(parts.get(number, ""))
            }
        prompt = Prompt(call, frozenset(complete), parts, tuple(texts), routes, 0)
        self._gauge.add(prompt, unreachable)

    def _take(
        self,
        block: Mapping[str, Any],
        complete: set[int],
        parts: dict[int, str],
        texts: list[str],
        routes: dict[int, int],
    ) -> None:
        if block["type"] == "tool_use":
            if (number := self._calls.get(block["id"])) is not None:
                complete.add(number)
            return
        text = "\n".join(_of_block(block))
        if block["type"] == "tool_result":
            number = self._results.get(block["tool_use_id"])
            if number is None:
                texts.append(text)
            elif self._blocks[number].text.strip() in (text.strip(), text.replace("\\[", "[").strip()):
                complete.add(number)
            elif _STUB.match(text):
                first, _, rest = text.partition("\n")
                routes[number] = len(texts)
                texts.append(first)
                parts[number] = rest
            else:
                parts[number] = text
            return
        numbers = self._by_text.get(text.strip())
        if numbers:
            complete.update(numbers)
        else:
            texts.append(text)

    def shares(self) -> dict[str, Any]:
        """The uses that were visible, and those within reach; all, and those that are not trivial."""
        outcomes, own = self._gauge.outcomes, self._lookup.uses
        nt = [outcome for use, outcome in zip(own, outcomes, strict=True) if use.nt]
        return {
            "uses": len(outcomes),
            "visible": outcomes.count(VISIBLE),
            "lost": outcomes.count(LOST),
            "nt": len(nt),
            "nt_visible": nt.count(VISIBLE),
            "nt_lost": nt.count(LOST),
        }


# --- a run


def beside(conversation: Conversation, rivals: Sequence[Rival]) -> Iterator[dict[str, Any]]:
    """The figures of each way, and of ctxvc at the budget at which it sends as many tokens as headroom, or fewer."""
    recorded = recorded_as(conversation, "anthropic")
    lookup = Lookup(recorded.conversation, uses(recorded.conversation))
    rows = list(_rows(recorded, lookup, rivals))
    yield from rows
    sent = min((row["sent"] for row in rows if row["way"].startswith("headroom")), default=0)
    if sent:
        largest = rows[0]["largest"]
        yield {**_matched(recorded, lookup, sent, largest), "way": MATCHED}


def _rows(recorded: Recorded, lookup: Lookup, rivals: Sequence[Rival]) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        ways = [Way(DIRECT, recorded, stack, None), *(Way(rival.name, recorded, stack, rival) for rival in rivals)]
        for way in ways:
            stack.callback(way.stop)
        for number, turn in enumerate(recorded.turns):
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                for content in turn.incoming:
                    way.client.incoming(content)
                way.ask(turn.reply)
        direct = ways[0].seconds
        for way in ways:
            yield {"file": recorded.conversation.file, **_figures(way, recorded, lookup, direct)}


def _matched(recorded: Recorded, lookup: Lookup, sent: int, largest: int) -> dict[str, Any]:
    """ctxvc's figures at the largest of 64 budgets up to twice the largest prompt at which it sends `sent` at most."""
    low, high = 0, 64
    row: dict[str, Any] = {}
    while high - low > 1:
        middle = (low + high) // 2
        _, tried = _rows(recorded, lookup, [_ctxvc(middle * largest // 32)])
        if tried["sent"] <= sent and not tried["invalid"]:
            row, low = tried, middle
        else:
            row, high = row or tried, middle
    return row


def _figures(way: Way, recorded: Recorded, lookup: Lookup, direct: Sequence[float]) -> dict[str, Any]:
    before = way.readable(recorded.conversation)
    way.start()
    after = way.readable(recorded.conversation)
    answers = [one.answer["usage"] for one in way.api.calls if one.status == 200 and one.path == "/v1/messages"]
    read = sum(one["cache_read_input_tokens"] for one in answers)
    written = sum(one["cache_creation_input_tokens"] for one in answers)
    fresh = sum(one["input_tokens"] for one in answers)
    evidence = Evidence(recorded.conversation, lookup)
    if len(way.bodies) == len(recorded.turns):
        for number, body in enumerate(way.bodies):
            evidence.add(number, body, way.name.startswith("headroom"))
    added = sorted(own - base for own, base in zip(way.seconds, direct, strict=True))
    return {
        "way": way.name,
        "calls": len(way.seconds),
        "sent": read + written + fresh,
        "largest": max(
            (
                one["input_tokens"] + one["cache_creation_input_tokens"] + one["cache_read_input_tokens"]
                for one in answers
            ),
            default=0,
        ),
        "cached": read,
        "price": read * PRICES.cached + written * PRICES.written + fresh * PRICES.fresh,
        "invalid": [one.answer["error"]["message"][:200] for one in way.api.calls if one.status == 400],
        "refused": way.refused,
        "asked": len([one for one in way.api.calls if one.path == "/v1/messages"]),
        "before": before,
        "after": after,
        "added": [round(1000 * one, 1) for one in added],
        **evidence.shares(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("recordings", type=Path, nargs="*")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table([json.loads(line) for line in asked.results.read_text().splitlines()])))
        return
    places = os.environ.get("CTXVC_RIVALS", "")
    rivals = [one for one in RIVALS if "ctxvc" in one.name or shutil.which("headroom", path=places)]
    done = asked.results.read_text() if asked.results.exists() else ""
    for path in asked.recordings:
        if f'"{path.name}"' in done:
            continue
        conversation = next(iter(conversations(path)))
        rows = list(beside(conversation, rivals))
        with asked.results.open("a") as results:
            results.writelines(json.dumps(row) + "\n" for row in rows)
        print("\n".join(table(rows)), flush=True)


COLUMNS = (
    "| tokens sent | largest prompt | cached, % | price | to no proxy | visible, % of all / NT | out of reach "
    "| handles readable | after a restart | invalid | a call takes more, p50 | p90"
)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of docs/comparison.md, with all columns."""
    yield f"| {COLUMNS} |\n|{'---|' * (COLUMNS.count('|') + 1)}"
    base = sum(row["price"] for row in rows if row["way"] == DIRECT)
    for name in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == name]
        total = {key: sum(row[key] for row in own) for key in ("sent", "cached", "price", "uses", "visible", "nt")}
        total |= {key: sum(row[key] for row in own) for key in ("nt_visible", "lost")}
        handles = [[sum(row[key][at] for row in own) for at in (0, 1)] for key in ("before", "after")]
        added = [one for row in own for one in row["added"]]
        cells = (
            name,
            f"{total['sent'] / 1e6:.1f} M",
            f"{max(row['largest'] for row in own):,}",
            f"{100 * total['cached'] / max(1, total['sent']):.1f}",
            f"{total['price'] / 1e6:.2f} M",
            f"{total['price'] / max(1, base):.2f}",
            " / ".join(
                f"{100 * total[seen] / max(1, total[of]):.1f}"
                for seen, of in (("visible", "uses"), ("nt_visible", "nt"))
            ),
            str(total["lost"]),
            *(f"{one} of {many}" for one, many in handles),
            str(sum(len(row["invalid"]) + len(row["refused"]) for row in own)),
            f"{statistics.median(added):.0f} ms",
            f"{sorted(added)[len(added) * 9 // 10]:.0f} ms",
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
