"""`python -m tests.benchmarks.common_anchors FOLDER`: makes the list of anchors that say nothing of a project.

The folder holds trajectories. A project is what their headers name as `source_repo`. An anchor is common if texts of
two projects have it, wherever it was cut out of a text, and so is a word of at least six characters. Thinking does not
count. Prints how many there are of each kind and some of them; the file is only written with `--write`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter
from pathlib import Path

from ctxvc.replay.conversation import conversations
from ctxvc.replay.measures.anchors import FILE, AnchorIndex, anchors, listing, reply_anchors, words_of


def project_of(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return str(json.loads(next(lines))["source_repo"])


def common(folder: Path) -> dict[str, str]:
    """The anchors that two projects have, each with its kind; plain words are of the kind `word`."""
    texts: dict[str, list[tuple[str, frozenset[str]]]] = {}
    kinds: dict[str, str] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        own = texts.setdefault(project_of(path), [])
        for conversation in conversations(path):
            for block in conversation.blocks:
                if block.kind != "thinking":
                    own.append((block.text, words_of(block.text)))
                    kinds |= anchors(block.text)
            for call in conversation.calls:
                for anchor, kind in reply_anchors(call.reply).items():
                    kinds.setdefault(anchor, kind)
    projects = {name: frozenset().union(*(words for _, words in own)) for name, own in texts.items()}
    frequency = Counter(word for own in texts.values() for _, words in own for word in words)
    in_projects = Counter(word for value in projects.values() for word in value)
    for word, count in in_projects.items():
        if count >= 2 and len(word) >= 6:
            kinds.setdefault(word, "word")
    candidates = [anchor for anchor in kinds if all(in_projects[word] >= 2 for word in words_of(anchor))]
    candidates = [anchor for anchor in candidates if sum(words_of(anchor) <= value for value in projects.values()) >= 2]
    index = AnchorIndex(candidates, frequency)
    holders: Counter[int] = Counter()
    for own in texts.values():
        holders.update({place for text, words in own for place in index.places(text, words)})
    return {
        anchor: kinds[anchor]
        for place, anchor in enumerate(candidates)
        if holders[place] >= 2 and anchor == anchor.encode("utf-8", "ignore").decode()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    arguments = parser.parse_args()
    found = common(arguments.folder)
    text = listing(found)
    for kind, count in Counter(found.values()).most_common():
        own = sorted(anchor for anchor, its in found.items() if its == kind)
        print(
            f"{kind:12}{count:8,}  " + "  ".join(repr(one)[:48] for one in random.Random(0).sample(own, min(8, count)))
        )
    print(f"{len(found):,} anchors, {len(text.encode()):,} bytes, version {text.partition(chr(10))[0]}")
    if arguments.write:
        FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
