"""Reads a ctxvc store of format 1 or 2 as docs/format.md describes it, with Python and git, and no part of ctxvc.

read_store.py STORE ledger COMMIT            the rows of a commit (or branch), one JSON object a line
read_store.py STORE body COMMIT ADDRESS      the bytes of B17, or of its sibling B17-1.png
read_store.py STORE waiting SESSION          what is acknowledged and in no commit yet
read_store.py STORE current SESSION SCOPE    the rows with what waits
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

HEAD = struct.Struct("<4sIQI")
FORMAT, JOURNAL_FORMAT = 2, 3


class Unreadable(Exception):
    """The store is of a newer format, is none, or does not hold what it says."""


def git(store: Path, *arguments: str) -> bytes:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", f"--git-dir={store}", *arguments], capture_output=True, env=env, check=False)
    if done.returncode:
        raise Unreadable(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]}: nothing found")
    return done.stdout


def check(store: Path) -> None:
    """Refuses what is no store, or one that this reader does not understand."""
    listed = git(store, "config", "--local", "--list").decode().splitlines()
    settings = dict(line.partition("=")[::2] for line in listed)
    if not settings.get("ctxvc.format", "").isdigit() or int(settings["ctxvc.format"]) > FORMAT:
        raise Unreadable(f"format {settings.get('ctxvc.format', 'unknown')}")
    for name in settings:
        if name.startswith("extensions.") and name != "extensions.worktreeconfig":
            raise Unreadable(f"it uses {name}")


def meta(store: Path, commit: str) -> dict:
    found = json.loads(git(store, "cat-file", "blob", f"{commit}:ctxvc.json"))
    if found["format"] > FORMAT:
        raise Unreadable(f"format {found['format']}")
    return found


def ledger(store: Path, commit: str) -> dict[str, dict]:
    """id → row, in the order of the ledger."""
    meta(store, commit)
    names = git(store, "ls-tree", "-r", "--name-only", commit, "ledger/").decode().splitlines()
    segments = sorted((name for name in names if name.count("/") == 2), key=segment)
    rows = [row for name in segments for row in lines(git(store, "cat-file", "blob", f"{commit}:{name}"))]
    numbers = [int(row["id"][1:]) for row in rows]
    if numbers != sorted(set(numbers)):
        raise Unreadable("rows out of order")
    return {row["id"]: row for row in rows}


def groups(store: Path, commit: str) -> dict[str, dict]:
    if not git(store, "ls-tree", commit, "ledger/groups.jsonl"):
        return {}
    return {group["id"]: group for group in lines(git(store, "cat-file", "blob", f"{commit}:ledger/groups.jsonl"))}


def lines(data: bytes) -> list[dict]:
    return [json.loads(line) for line in data.split(b"\n") if line]


def segment(name: str) -> int:
    _, high, low = name.removesuffix(".jsonl").split("/")
    return int(high, 16) * 64 + int(low, 16)


def path(row: dict, suffix: str = "") -> str:
    """Where the body lies, or the sibling with that suffix."""
    top = "blocks" if row.get("state", "visible") in ("visible", "pinned", "masked") else "archive"
    place = int(row["id"][1:]) // 64
    name = f"{row['id']}-{suffix}" if suffix else f"{row['id']}.{row.get('ext', 'txt')}"
    return f"{top}/{place // 64:02x}/{place % 64:02x}/{name}"


def body(store: Path, commit: str, address: str) -> bytes:
    block, _, suffix = address.partition("-")
    row = ledger(store, commit)[block]
    data = git(store, "cat-file", "blob", f"{commit}:{path(row, suffix)}")
    if not suffix and (len(data), hashlib.sha256(data).hexdigest()) != (row["bytes"], row["sha256"]):
        raise Unreadable(f"{address} is not what was recorded")
    return data


def tips(store: Path, session: str) -> dict[str, str]:
    """scope → commit."""
    found = git(store, "for-each-ref", "--format=%(objectname) %(refname:lstrip=3)", f"refs/heads/{session}/")
    return {scope: commit for commit, scope in (line.split(" ") for line in found.decode().splitlines())}


def frames(data: bytes) -> list[tuple[int, bytes, bool]]:
    """(sequence number, payload, whether damage stands before it) of each frame; a torn tail is passed over."""
    found, at, damaged = [], 0, False
    while at < len(data):
        if whole := frame(data, at):
            found.append((*whole, damaged))
            at += 24 + len(whole[1])
        elif torn(data, at):
            break
        else:
            at, damaged = resumption(data, at, found[-1][0] if found else 0), True
    if data and (not found or found[0][0] or found[0][2]):
        raise Unreadable("the journal has no head")
    return found


def torn(data: bytes, at: int) -> bool:
    """Whether what stands from here to the end is what a crash leaves."""
    size, fields = len(data) - at, header(data, at)
    if fields and size != 24 + fields[0]:
        return size < 24 + fields[0]
    zeros, begins = len(data.rstrip(b"\0")), size < 24 and data[at : at + 4] == b"CXJ1"[:size]
    return begins or zeros <= at or -(-zeros // 512) * 512 < (len(data) if fields else min(at + 24, len(data)))


def resumption(data: bytes, at: int, last: int) -> int:
    """Where the damage that begins here ends."""
    if fields := header(data, at):
        return at + 24 + fields[0]
    places = [place for place in range(at + 1, len(data)) if (header(data, place) or (0, 0))[1] > last]
    if len(data) - at > 24:
        _, length, _, checksum = HEAD.unpack(data[at : at + 20])
        for place in (*places, len(data)):
            if place > at + 24 and (length == place - at - 24 or checksum == zlib.crc32(data[at + 24 : place])):
                return place
    reaching = [len(data)]
    for place in reversed(places):
        if place + 24 + header(data, place)[0] in reaching and frame(data, place):
            reaching.append(place)
    return reaching[-1]


def header(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Length, sequence number and checksum of the payload."""
    fields = data[at : at + 20]
    if len(data) < at + 24 or fields[:4] != b"CXJ1" or data[at + 20 : at + 24] != struct.pack("<I", zlib.crc32(fields)):
        return None
    return HEAD.unpack(fields)[1:]


def frame(data: bytes, at: int) -> tuple[int, bytes] | None:
    if not (found := header(data, at)):
        return None
    length, number, checksum = found
    payload = data[at + 24 : at + 24 + length]
    return (number, payload) if len(payload) == length and zlib.crc32(payload) == checksum else None


FIELDS = ("scope", "op", "actor", "counters", "time", "step", "done", "rows", "bodies", "groups", "meta", "subject",
          "trailers", "origin", "inherit", "merge", "text", "written")  # fmt: skip
DEFAULTS = (None, None, None, None, "", 0, False, [], [], [], {}, "", {}, "", None, "", "", 0)


def waiting(store: Path, session: str) -> list[dict]:
    """The changes that no commit covers yet, oldest first."""
    journal = store / "ctxvc" / "journal" / session
    records = frames(journal.read_bytes()) if journal.exists() else []  # the journal first, the branches afterwards
    if not records:
        return []
    version, name = unpack(records[0][1])[:2]
    if version > JOURNAL_FORMAT:
        raise Unreadable(f"the journal has format {version}")
    covered = {
        scope: covers(git(store, "cat-file", "commit", tip), name) for scope, tip in tips(store, session).items()
    }
    found = []
    for last, payload, damaged in records[1:]:
        changes = unpack(payload)[0]
        for number, values in enumerate(changes, last - len(changes) + 1):
            change = dict(zip(FIELDS, [*values, *DEFAULTS[len(values) :]], strict=False), number=number, mend=damaged)
            if number > covered.get(change["scope"], 0):
                found.append(change)
    return found


def covers(commit: bytes, journal: str) -> int:
    """The newest change of the journal that the commit and its ancestors hold."""
    for line in commit.decode(errors="replace").rstrip("\n").rpartition("\n\n")[2].split("\n"):
        name, _, value = line.partition(": ")
        if name == "Ctxvc-Seq" and value.rpartition("/")[0] == journal:
            return int(value.rpartition("/")[2])
    return 0


def current(store: Path, session: str, scope: str, last: int = 1 << 63) -> tuple[dict[str, dict], dict[str, dict]]:
    """Rows and groups of a scope as they are now, or after the change of that number."""
    changes = [change for change in waiting(store, session) if change["scope"] == scope and change["number"] <= last]
    tip = tips(store, session).get(scope)
    rows, held = (ledger(store, tip), groups(store, tip)) if tip else begun(store, session, changes[0])
    for change in changes:
        if change["inherit"] is not None:
            rows, held = inherited(rows, held, change["inherit"])
        left = mended(change, rows, held) if change["mend"] else change
        rows |= {row["id"]: row for row in left["rows"]}
        held |= {group["id"]: group for group in left["groups"]}
    in_order = dict(sorted(rows.items(), key=lambda item: int(item[0][1:])))
    return in_order, {name: group for name, group in held.items() if group["members"]}


def begun(store: Path, session: str, change: dict) -> tuple[dict[str, dict], dict[str, dict]]:
    """Rows and groups of what a new scope starts from: a commit, or a scope after a change of this journal."""
    if change["mend"] and not change["origin"]:
        return {}, {}  # the record that made this scope is lost
    scope, reference, number = change["origin"].rpartition("/")
    commit = made(store, session, scope, int(number)) if reference else change["origin"]
    if not commit and change["mend"]:
        before = [each for each in waiting(store, session) if each["scope"] == scope and each["number"] <= int(number)]
        steps = [each for each in before if each["op"] == "step"]
        if not before or before[-1]["number"] != int(number) or (steps and not steps[-1]["done"]):
            commit = tips(store, session).get(scope) or tips(store, session)["main"]
    return (ledger(store, commit), groups(store, commit)) if commit else current(store, session, scope, int(number))


def mended(change: dict, rows: dict, held: dict) -> dict:
    """What is left of a change behind damage: nothing in it needs a block or group that is not there."""
    blocks = rows.keys() | {block for block, suffix, _ in change["bodies"] if not suffix}
    there = held.keys() | {group["id"] for group in change["groups"] if group["members"]}
    while lost := {
        group["id"]
        for group in change["groups"]
        if group["id"] in there - held.keys() and not (there | blocks) & {*group["members"]}
    }:
        there -= lost
    kept = [
        {
            **group,
            "members": [member for member in group["members"] if member in there | blocks],
            "summary": [block for block in group.get("summary", []) if block in blocks],
            "before": group.get("before", "") if group.get("before", "") in blocks else "",
            "group": group.get("group", "") if group.get("group", "") in there else "",
        }
        for group in change["groups"]
        if group["id"] in there | held.keys()
    ]
    standing = {name: 1 for name, group in (held | {group["id"]: group for group in kept}).items() if group["members"]}
    new = []
    for row in change["rows"]:
        group = row.get("group", "")
        if row["id"] in blocks and (not group or group in standing or row["id"] not in rows):
            lone = {"group": "", "level": min(row.get("level", 0), 1)} if group and group not in standing else {}
            full = {**row, **lone, "parent": row.get("parent", "") if row.get("parent", "") in blocks else ""}
            new.append({name: item for name, item in full.items() if item or name not in ("parent", "group", "level")})
    plain = [{name: value for name, value in group.items() if value or name in ("id", "members")} for group in kept]
    return {**change, "rows": new, "groups": plain}


def made(store: Path, session: str, scope: str, number: int) -> str:
    """The commit by which a scope has a change: of those that cover it, the one that covers least, and the newest."""
    journal = unpack(frames((store / "ctxvc" / "journal" / session).read_bytes())[0][1])[1]
    tip = tips(store, session).get(scope)
    found, least = "", 0
    for commit in git(store, "rev-list", "--first-parent", tip).decode().split() if tip else ():
        covered = covers(git(store, "cat-file", "commit", commit), journal)
        if covered < number:
            break
        if not found or covered < least:
            found, least = commit, covered
    return found


def inherited(rows: dict, held: dict, kept: list[str]) -> tuple[dict[str, dict], dict[str, dict]]:
    """The rows that are kept, and the groups of which everything is; nothing points to what is not."""
    rows = {name: rows[name] for name in kept if name in rows}
    while True:
        there = rows.keys() | held.keys()
        whole = {name: group for name, group in held.items() if there >= {*group["members"], *group.get("summary", [])}}
        if len(whole) == len(held):
            break
        held = whole
    for row in rows.values():
        if row.get("group", "") not in held and row.pop("group", "") and row.get("level", 0) > 1:
            row["level"] = 1
    for group in held.values():
        if group.get("group", "") not in held:
            group.pop("group", None)
        if group.get("before", "") not in rows:
            group.pop("before", None)
    return rows, held


def unpack(data: bytes) -> object:
    """The value of a MessagePack text."""
    value, end = value_at(data, 0)
    if end != len(data):
        raise Unreadable("more than one value in a payload")
    return value


NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
           0xD3: ">q"}  # fmt: skip
SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H",
         0xDF: ">I"}  # fmt: skip


def value_at(data: bytes, at: int) -> tuple[object, int]:
    """The value that begins at `at`, and where the next one does."""
    tag, at = data[at], at + 1
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in NUMBERS:
        return struct.unpack_from(NUMBERS[tag], data, at)[0], at + struct.calcsize(NUMBERS[tag])
    if tag < 0xC0:
        size = tag & (0x1F if tag >= 0xA0 else 0x0F)
    elif tag in SIZES:
        size = struct.unpack_from(SIZES[tag], data, at)[0]
        at += struct.calcsize(SIZES[tag])
    else:
        raise Unreadable(f"MessagePack type {tag:#x}")
    if tag in (0xC4, 0xC5, 0xC6):
        return data[at : at + size], at + size
    if 0xA0 <= tag < 0xC0 or tag in (0xD9, 0xDA, 0xDB):
        return data[at : at + size].decode(), at + size
    if 0x90 <= tag < 0xA0 or tag in (0xDC, 0xDD):
        items = []
        for _ in range(size):
            item, at = value_at(data, at)
            items.append(item)
        return items, at
    pairs = {}
    for _ in range(size):
        key, at = value_at(data, at)
        pairs[key], at = value_at(data, at)
    return pairs, at


def main(folder: str, what: str, *where: str) -> None:
    store = Path(folder)
    check(store)
    if what == "body":
        sys.stdout.buffer.write(body(store, *where))
        return
    if what == "waiting":
        found = waiting(store, *where)
    else:
        found = (ledger(store, *where) if what == "ledger" else current(store, *where)[0]).values()
    for item in found:
        sys.stdout.write(json.dumps(item, default=lambda data: data.decode("utf-8", "backslashreplace")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except Unreadable as error:
        sys.exit(f"{sys.argv[1]}: {error}")
