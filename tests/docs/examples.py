"""The examples of docs/format.md, taken from a small store. Run this file to write them into the page anew."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import msgspec

from ctxvc.store.git import program
from ctxvc.store.log import journal

from .building import small_store

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
_EXAMPLE = re.compile(r"(<!-- example: (\S+) -->\n```\w*\n)(.*?)(```\n)", re.DOTALL)
_ROWS = ("B1", "B2", "B5", "B7", "B8")


def written() -> dict[str, str]:
    """name → the example as it stands in the page."""
    return {match[2]: match[3] for match in _EXAMPLE.finditer(PAGE.read_text())}


def real() -> dict[str, str]:
    """name → the example as the store has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".ctxvc"
        small_store(path).close()
        return _of(path)


def _of(path: Path) -> dict[str, str]:
    def show(*arguments: str) -> str:
        return program.run(path, *arguments).decode()

    def blob(name: str) -> str:
        return show("cat-file", "blob", name)

    rows = [line for line in blob("demo/main:ledger/00/00.jsonl").splitlines(keepends=True) if _id(line) in _ROWS]
    frames, _ = journal.parse((path / "ctxvc" / "journal" / "demo").read_bytes())
    return {
        "tree": show("ls-tree", "-r", "--name-only", "demo/main"),
        "ctxvc.json": blob("fix-login/main:ctxvc.json"),
        "rows": "".join(rows),
        "group": blob("fix-login/main:ledger/groups.jsonl"),
        "result": blob("demo/main:blocks/00/00/B8.json") + "\n",
        "commit": show("cat-file", "commit", "demo/main~2"),
        "frame": _hex(journal.raw(frames[0])),
    }


def _id(row: str) -> str:
    return str(json.loads(row)["id"])


def _hex(data: bytes) -> str:
    """A frame: the fields of its header and its payload, each with its bytes."""
    cuts = {"magic": 4, "length": 8, "number": 16, "payload's CRC": 20, "header's CRC": 24, "payload": len(data)}
    lines, start = [], 0
    for name, end in cuts.items():
        lines += [
            f"{at:>3}  {data[at : min(at + 16, end)].hex(' '):<48} {name if at == start else ''}".rstrip()
            for at in range(start, end, 16)
        ]
        start = end
    return "\n".join([*lines, f"     = {json.dumps(msgspec.msgpack.decode(data[24:]))}", ""])


def main() -> None:
    found = real()
    PAGE.write_text(_EXAMPLE.sub(lambda match: match[1] + found[match[2]] + match[4], PAGE.read_text()))


if __name__ == "__main__":
    sys.exit(main())
