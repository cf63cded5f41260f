"""`python -m tests.benchmarks.vocabularies NAME=FILE ...`: how other vocabularies count what we count with ours.

Each prompt of every recording (CTXVC_TEST_DATA), whole, is counted as a session counts it and with each vocabulary, in
the frame that most chat templates give a message, a call and a result. A FILE is a `tokenizer.json` (package
`tokenizers`), a SentencePiece model (`sentencepiece`) or a list of ranks as `tiktoken` has it. Images are left out, and
so is thinking, which templates drop.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.tokens.calibration import UNKNOWN
from ctxvc.tokens.count import _PATTERN, tokenizer

#: Prompts of fewer tokens, as we count, are left out, since nothing leaves them; of more, too: no such window is small.
LEAST, MOST = 2_000, 100_000
#: Tokens of what a chat template puts around a message: its role, and marks for its beginning and end.
FRAME = 5

Count = Callable[[str], int]


class Sample(NamedTuple):
    """A prompt: our count, and the vocabulary's."""

    file: str
    ours: int
    theirs: int

    @property
    def factor(self) -> float:
        """The smallest that holds, where a template's tokens are added to it."""
        return (self.theirs - UNKNOWN.b) / self.ours


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


def samples(conversation: Conversation, theirs: Count) -> Iterator[Sample]:
    """The prompts of a conversation's calls."""
    count = tokenizer().count
    ours = other = 0
    for value in (conversation.system, *(conversation.tools or [])):
        if value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            ours, other = ours + count(text), other + theirs(text) + FRAME
    for call in conversation.calls:
        for message in call.before:
            mine, its = _both(message, count, theirs)
            ours, other = ours + mine, other + its
        if ours > MOST:
            return
        if ours >= LEAST:
            yield Sample(conversation.file, ours, other)
        mine, its = _both(call.reply, count, theirs)
        ours, other = ours + mine, other + its


def _both(message: Message, count: Count, theirs: Count) -> tuple[int, int]:
    """The tokens of a message, as we count and by the vocabulary, in its frame."""
    ours, other = 0, FRAME
    for part in message.parts:
        if part.kind in ("image", "document", "thinking") or (part.kind == "tool_result" and part.ext == "json"):
            continue
        body = display.decode(part.body)
        ours += count(body) + count(part.tool if part.kind == "tool_use" else "")
        other += theirs(_framed(part.kind, part.tool, body))
    return ours, other


def _framed(kind: str, tool: str, body: str) -> str:
    if kind == "tool_use":
        return f'\n<tool_call>\n{{"name": {json.dumps(tool)}, "arguments": {body}}}\n</tool_call>'
    return f"\n<tool_response>\n{body}\n</tool_response>" if kind == "tool_result" else body


def at(values: list[float], share: float) -> float:
    """The value that holds for so many of them."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(name: str, taken: list[Sample]) -> str:
    """A line of the table: the ratio of the counts, and the factor that holds beside what a template adds."""
    ratios = [sample.theirs / sample.ours for sample in taken]
    factors = [sample.factor for sample in taken]
    figures = at(ratios, 0.5), at(ratios, 0.9), at(ratios, 0.99), at(factors, 0.99), max(factors)
    return f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("vocabularies", nargs="+", metavar="NAME=FILE")
    chosen = parser.parse_args(arguments)
    recordings = list(conversations_in([Path(os.environ["CTXVC_TEST_DATA"]) / "trajectories"]))
    for pair in chosen.vocabularies:
        name, _, file = pair.partition("=")
        theirs = counter(Path(file))
        taken = [sample for recording in recordings for sample in samples(recording, theirs)]
        print(row(name, taken), f"{len(taken):,} prompts of {len({sample.file for sample in taken})} recordings")


if __name__ == "__main__":
    main()
