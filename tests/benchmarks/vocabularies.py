"""`python -m tests.benchmarks.vocabularies NAME=FILE ...`: how other vocabularies count what we count with ours.

Every recording (CTXVC_TEST_DATA) goes through a session under a budget, and each prompt that is sent is counted twice:
as the session does, and with each vocabulary, in the frame that most chat templates give a message, a call and a
result. A FILE is a `tokenizer.json` (package `tokenizers`), a SentencePiece model (`sentencepiece`) or a list of ranks
as `tiktoken` has it. Prompts with images are left out.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.policies.default import Default
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.session.session import Session
from ctxvc.tokens.count import _PATTERN
from ctxvc.tokens.meter import Meter

BUDGETS = (8_000, 32_000)
#: Every so many calls a prompt is counted.
EVERY = 6
#: Prompts of fewer tokens, as we count, are left out: nothing is decided on them.
LEAST = 2_000
#: What a chat template puts around a message: its role, and marks for its beginning and end.
FRAME = 5

Count = Callable[[str], int]


class Sample(NamedTuple):
    """A prompt: its conversation, the budget, our count, and each vocabulary's."""

    conversation: str
    budget: int
    ours: int
    theirs: tuple[int, ...]


def counter(path: Path) -> Count:
    """Counts with the vocabulary of a file, no token taken for more than text."""
    data = path.read_bytes()
    if data[:1] == b"{":
        value = json.loads(data)
        if "model" in value:
            from tokenizers import Tokenizer  # type: ignore[import-not-found]

            tokenizer = Tokenizer.from_str(data.decode())
            return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
        entries = value["vocab"][
            : value["config"]["default_vocab_size"] - value["config"]["default_num_special_tokens"]
        ]
        ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in entries}
        return _by_ranks(ranks, value["config"]["pattern"])
    try:
        lines = [line.split() for line in data.splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError:
        from sentencepiece import SentencePieceProcessor  # type: ignore[import-not-found]

        pieces = SentencePieceProcessor(model_file=str(path))
        return lambda text: len(pieces.encode(text))
    return _by_ranks(ranks, _PATTERN)


def _by_ranks(ranks: Mapping[bytes, int], pattern: str) -> Count:
    import tiktoken

    encoding = tiktoken.Encoding("other", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


class Vocabularies:
    """The counts of texts in several vocabularies; each text is counted once."""

    def __init__(self, counters: list[Count]) -> None:
        self._counters = counters
        self._known: dict[str, tuple[int, ...]] = {}

    def of(self, texts: list[str]) -> tuple[int, ...]:
        totals = [0] * len(self._counters)
        for text in texts:
            if text not in self._known:
                self._known[text] = tuple(count(text) for count in self._counters)
            for at, tokens in enumerate(self._known[text]):
                totals[at] += tokens
        return tuple(totals)


def texts_of(body: Mapping[str, Any]) -> list[str] | None:
    """The texts of a request in the forms of a usual chat template; None if it has an image."""
    system = body.get("system")
    texts = [system if isinstance(system, str) else json.dumps(system, ensure_ascii=False)] if system else []
    texts += [json.dumps(tool, ensure_ascii=False) for tool in body.get("tools", ())]
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            text = _framed(block)
            if text is None:
                return None
            texts.append(text)
    return texts


def _framed(block: Mapping[str, Any]) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "thinking", "thinking": str(text)}:
            return f"<think>\n{text}\n</think>\n\n"
        case {"type": "tool_use", "name": name, "input": arguments}:
            call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            return f"\n<tool_call>\n{call}\n</tool_call>"
        case {"type": "tool_result"}:
            content = block.get("content", "")
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if any(part.get("type") != "text" for part in parts):
                return None
            return "\n<tool_response>\n" + "\n".join(part["text"] for part in parts) + "\n</tool_response>"
    return None


def samples(conversation: Conversation, budget: int, vocabularies: Vocabularies) -> Iterator[Sample]:
    """The prompts of a conversation under a budget."""
    session = new_session(conversation, Default(), budget, meter=Meter(None))
    for number, driven in enumerate(drive(conversation, session, Prompts(session))):
        if number % EVERY or not driven.prompt:
            continue
        sample = _sample(conversation.file, budget, session, vocabularies)
        if sample and sample.ours >= LEAST:
            yield sample


def _sample(name: str, budget: int, session: Session, vocabularies: Vocabularies) -> Sample | None:
    body = session.prompt().body()
    texts = texts_of(body)
    if texts is None:
        return None
    frames = FRAME * (len(body["messages"]) + bool(body.get("system")))
    theirs = tuple(tokens + frames for tokens in vocabularies.of(texts))
    return Sample(name, budget, session.view().counted, theirs)


def at(ratios: list[float], share: float) -> float:
    """The ratio that holds for so many of them."""
    return sorted(ratios)[min(len(ratios) - 1, int(len(ratios) * share))]


def rows(names: list[str], taken: list[Sample]) -> Iterator[str]:
    """A line a vocabulary: the median, the ratios that hold for 90, 99 and all of 100 prompts, and 99 by budget."""
    yield "| vocabulary | median | 90 % | 99 % | all | " + " | ".join(f"99 % at {b // 1000}k" for b in BUDGETS) + " |"
    yield "|---|" + " ---: |" * (4 + len(BUDGETS))
    for number, name in enumerate(names):
        ratios = [sample.theirs[number] / sample.ours for sample in taken]
        figures = [at(ratios, 0.5), at(ratios, 0.9), at(ratios, 0.99), max(ratios)]
        for budget in BUDGETS:
            of_budget = [one.theirs[number] / one.ours for one in taken if one.budget == budget]
            figures.append(at(of_budget, 0.99))
        yield f"| {name} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("vocabularies", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--out", type=Path, help="write each prompt's counts there, as JSON lines")
    chosen = parser.parse_args(arguments)
    names, paths = zip(*(one.split("=", 1) for one in chosen.vocabularies), strict=True)
    vocabularies = Vocabularies([counter(Path(path)) for path in paths])
    root = Path(os.environ["CTXVC_TEST_DATA"])
    taken: list[Sample] = []
    for conversation in conversations_in([root / "trajectories", root / "transcripts"]):
        for budget in BUDGETS:
            taken += samples(conversation, budget, vocabularies)
        print(conversation.file, len(taken), file=sys.stderr)
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(sample) + "\n" for sample in taken))
    files = len({sample.conversation for sample in taken})
    print(f"{len(taken):,} prompts of {files} conversations")
    print("\n".join(rows(list(names), taken)))


if __name__ == "__main__":
    main()
