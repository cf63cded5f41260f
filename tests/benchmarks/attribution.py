"""`python -m tests.benchmarks.attribution`: how often `why` is right, on repositories rebuilt from recorded edits.

The editing calls of recordings (CTXVC_TEST_DATA) are applied again, to files that begin as the recording read them.
Between them a person, by a seed, adds, changes and deletes lines of the same files, in commits of their own or in the
agent's; files are laid out anew; commits are amended, rebased onto a person's and squashed; some calls are turned into
scripts of a shell. Who made which line is kept beside the text all the while, by code that shares nothing with what is
measured, and compared with the answer for each line of the last commit. No recorded command is run.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import random
import re
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.inspection import why
from ctxvc.recording.files import import_paths
from ctxvc.store.project import code_history
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create

#: What the script does besides committing, by the name of its row in the table.
SCENARIOS: dict[str, frozenset[str]] = {
    "commits": frozenset(),
    "a person's edits": frozenset({"human"}),
    "and layout": frozenset({"human", "layout"}),
    "and amend": frozenset({"human", "amend"}),
    "and rebase": frozenset({"human", "rebase"}),
    "and squash": frozenset({"human", "squash"}),
    "all of it": frozenset({"human", "layout", "amend", "rebase", "squash", "shell"}),
}
#: Recordings in one repository, at most.
TOGETHER = 3
_READ = re.compile(r"^ *([0-9]+)→(.*)$")

#: Who made a line: `base` (there before), `human`, or the id of a call.
Lines = list[tuple[str, str]]


class Change(NamedTuple):
    """A successful call on one file: `old` is None where the file becomes `new`."""

    recording: str
    call: str
    time: int
    path: str
    parts: tuple[tuple[str | None, str, bool], ...]
    base: tuple[str, ...] | None


class Recording(NamedTuple):
    path: Path
    source: str
    lines: list[dict[str, Any]]
    changes: list[Change]


class Commit(NamedTuple):
    files: dict[str, Lines]
    authored: int
    committed: int


# --- recordings


def recordings(folder: Path) -> list[Recording]:
    """Those with times and editing calls, in order of their beginning."""
    return sorted(
        (recording for path in sorted(folder.glob("*.jsonl.gz")) if (recording := _recording(path)).changes),
        key=lambda recording: (recording.source, recording.changes[0].time, recording.path.name),
    )


def _recording(path: Path) -> Recording:
    header, *messages = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    results = {
        block["tool_use_id"]: block
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    reads: dict[str, dict[int, str]] = {}
    changes: list[Change] = []
    for message in messages:
        if not (stamp := message.get("meta", {}).get("ts")):
            continue
        seconds = int(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp())
        for block in message["content"]:
            if block["type"] != "tool_use" or results.get(block["id"], {}).get("is_error"):
                continue
            fields = block["input"]
            name = str(fields.get("file_path") or fields.get("path") or "")
            if block["name"] == "Read" and not any(key in name for key in ("/.claude/", "/tmp/")):
                texts = [part.get("text", "") for part in results.get(block["id"], {}).get("content", [])]
                numbered = (_READ.match(line) for text in texts for line in text.split("\n"))
                reads.setdefault(_relative(name), {}).update({int(m[1]): m[2] for m in numbered if m})
            for path_of, parts in _parts(fields):
                if "/.claude/" in path_of or "/tmp/" in path_of:
                    continue
                file = _relative(path_of)
                known = reads.get(file)
                base = tuple(known.get(n, f"line {n} of {file}") for n in range(1, max(known) + 1)) if known else None
                changes.append(Change(path.name, block["id"], seconds, file, parts, base))
    return Recording(path, header["source_repo"], [header, *messages], changes)


def _relative(path: str) -> str:
    return "/".join([part for part in path.split("/") if part][-3:])


def _parts(fields: Mapping[str, Any]) -> Iterator[tuple[str, tuple[tuple[str | None, str, bool], ...]]]:
    path = fields.get("file_path") or fields.get("path")
    match fields:
        case {"old_string": str(old), "new_string": str(new)} | {"oldText": str(old), "newText": str(new)} if path:
            yield path, ((old or None, new, bool(fields.get("replace_all"))),)
        case {"old_str": str(old), "new_str": str(new)} if path:
            yield path, ((old or None, new, False),)
        case {"content": str(new)} if path:
            yield path, ((None, new, False),)
        case {"input": str(patch)} if "*** Begin Patch" in patch:
            for part in re.split(r"^\*\*\* ", patch, flags=re.MULTILINE)[1:]:
                head, _, rest = part.partition("\n")
                if head.startswith("Add File: "):
                    yield (
                        head[10:].strip(),
                        ((None, "\n".join(line[1:] for line in rest.split("\n")[:-1]) + "\n", False),),
                    )
                elif head.startswith("Update File: "):
                    hunks = re.split(r"^@@.*\n", rest, flags=re.MULTILINE)
                    parts = tuple((_side(hunk, " -"), _side(hunk, " +"), False) for hunk in hunks if hunk.strip())
                    yield head[13:].strip(), tuple((old or None, new, every) for old, new, every in parts if old)


def _side(hunk: str, signs: str) -> str:
    return "\n".join(line[1:] for line in hunk.split("\n") if line and line[0] in signs)


# --- the repository


class Script:
    """Commits what the calls of some recordings made, and what a person makes, as `chance` has it."""

    def __init__(
        self, group: Sequence[Recording], corpus: Sequence[list[str]], does: frozenset[str], seed: str
    ) -> None:
        self.chance = random.Random(seed)
        self.does, self.corpus = does, corpus
        self.changes = sorted(
            (change for recording in group for change in recording.changes), key=lambda change: change.time
        )
        self.files: dict[str, Lines] = {}
        self.commits: list[Commit] = []
        self.by_shell: set[str] = set()

    def run(self) -> None:
        until = self.chance.randint(1, 6)
        for at, change in enumerate(self.changes):
            rest = self.changes[at:]
            self._make_room(change)
            if "shell" in self.does and self.chance.random() < 0.15:
                self.by_shell.add(change.call)
            self._apply(change)
            until -= 1
            if until and at + 1 < len(self.changes):
                continue
            until = self.chance.randint(1, 6)
            later = rest[1:]
            now = change.time + 5
            if "human" in self.does and self.chance.random() < 0.3:
                self._person(later)  # in the agent's own commit
            self._commit(now)
            if "human" in self.does and self.chance.random() < 0.6:
                self._person(later)
                self._commit(now + 3)
            if "layout" in self.does and self.chance.random() < 0.3:
                self._layout(later)
                self._commit(now + 6)
        end = self.changes[-1].time + 3_600
        if "rebase" in self.does:
            self._rebase(end)
        if "squash" in self.does:
            self._squash(end)

    def _commit(self, now: int) -> None:
        files = {path: list(lines) for path, lines in self.files.items()}
        if self.commits and files == self.commits[-1].files:
            return
        if "amend" in self.does and len(self.commits) > 1 and self.chance.random() < 0.25:
            self.commits[-1] = Commit(files, self.commits[-1].authored, now)
        else:
            self.commits.append(Commit(files, now, now))

    def _make_room(self, change: Change) -> None:
        """What the call needs in the file: as it was read, where the file is new here; else a person brings it."""
        lines = self.files.get(change.path)
        if lines is None and change.parts and change.parts[0][0] is not None:
            lines = self.files[change.path] = [(line, "base") for line in change.base or ()]
        if lines is None:
            return
        missing = [old for old, _, _ in change.parts if old is not None and old not in _text(lines)]
        owner = "human" if any(change.path in commit.files for commit in self.commits) else "base"
        for old in missing:
            lines += [(line, owner) for line in old.strip("\n").split("\n")]
        if missing or owner == "base":
            files = {path: list(lines) for path, lines in (self.commits[-1].files if self.commits else {}).items()}
            committed = files.get(change.path)
            if committed is None or self.files == {**files, change.path: lines}:
                # Else it stays among what the agent has not committed yet.
                files[change.path] = list(lines)
                self.commits.append(Commit(files, change.time - 2, change.time - 2))

    def _apply(self, change: Change) -> None:
        lines = self.files.get(change.path, [])
        for old, new, every in change.parts:
            lines = _applied(lines, old, new, every, change.call)
        self.files[change.path] = lines

    def _person(self, later: Sequence[Change]) -> None:
        for _ in range(self.chance.randint(1, 4)):
            path = self.chance.choice(sorted(self.files))
            for _ in range(5):
                lines = list(self.files[path])
                at = self.chance.randint(0, len(lines))
                match self.chance.choice(("insert", "insert", "modify", "delete")):
                    case "insert":
                        source = self.chance.choice(self.corpus)
                        start = self.chance.randrange(len(source))
                        lines[at:at] = [(line, "human") for line in source[start : start + self.chance.randint(1, 20)]]
                    case "modify" if at < len(lines):
                        for place in range(at, min(at + self.chance.randint(1, 3), len(lines))):
                            lines[place] = (self._modified(lines[place][0]), "human")
                    case "delete":
                        del lines[at : at + self.chance.randint(1, 3)]
                if _missing(lines, path, later) <= _missing(self.files[path], path, later):
                    self.files[path] = lines
                    break

    def _modified(self, line: str) -> str:
        words = re.findall(r"\w+", line)
        word = self.chance.choice(["value", "limit", "other", "next", "ready", "total"]) + str(
            self.chance.randint(2, 99)
        )
        if not words:
            return f"{line} // {word}"
        return line.replace(self.chance.choice(words), word, 1)

    def _layout(self, later: Sequence[Change]) -> None:
        """A stretch of a file with another indentation, and long lines on two."""
        for _ in range(8):
            path = self.chance.choice(sorted(self.files))
            lines = self.files[path]
            start = self.chance.randint(0, max(len(lines) - 10, 0))
            end = min(len(lines), start + self.chance.randint(10, 200))
            new = lines[:start]
            for text, owner in lines[start:end]:
                line = text.replace("\t", "    ") if "\t" in text else re.sub("^    ", "\t", text)
                place = line.find(" ", 60)
                if place > 0 and line[:place].strip():
                    new += [(line[:place], owner), (f"\t\t{line[place + 1 :]}", owner)]
                else:
                    new.append((line, owner))
            new += lines[end:]
            if new != lines and _missing(new, path, later) <= _missing(lines, path, later):
                self.files[path] = new
                return

    def _rebase(self, end: int) -> None:
        """The later commits onto one of a person, who added a line or two above."""
        start = self.chance.randint(1, max(len(self.commits) - 1, 1))
        if start >= len(self.commits):
            return
        path = self.chance.choice(sorted(self.commits[start - 1].files))
        source = self.chance.choice(self.corpus)
        above = [(line, "human") for line in source[: self.chance.randint(1, 3)]]
        for at in range(start, len(self.commits)):
            commit = self.commits[at]
            files = {**commit.files, path: [*above, *commit.files[path]]} if path in commit.files else commit.files
            self.commits[at] = Commit(files, commit.authored, end + at)
        before = self.commits[start - 1]
        onto = {**before.files, path: [*above, *before.files[path]]}
        self.commits.insert(start, Commit(onto, self.commits[start].authored, self.commits[start].authored))

    def _squash(self, end: int) -> None:
        at = 1
        while at < len(self.commits) - 1:
            if self.chance.random() < 0.3:
                many = min(self.chance.randint(2, 4), len(self.commits) - at)
                first, last = self.commits[at], self.commits[at + many - 1]
                self.commits[at : at + many] = [Commit(last.files, first.authored, max(end, last.committed))]
            at += 1


def _text(lines: Lines) -> str:
    return "".join(f"{line}\n" for line, _ in lines)


def _applied(lines: Lines, old: str | None, new: str, every: bool, owner: str) -> Lines:
    before = _text(lines)
    after = new if old is None else before.replace(old, new, -1 if every else 1)
    if old is not None and before == after:
        return lines
    texts = after.split("\n")
    texts = texts[:-1] if texts and not texts[-1] else texts
    made: Lines = [(text, owner) for text in texts]
    own = [line for line, _ in lines]
    head = 0
    while head < min(len(own), len(texts)) and own[head] == texts[head]:
        head += 1
    tail = 0
    while tail < min(len(own), len(texts)) - head and own[-1 - tail] == texts[-1 - tail]:
        tail += 1
    made[:head] = lines[:head]
    if tail:
        made[-tail:] = lines[-tail:]
    matcher = difflib.SequenceMatcher(None, own[head : len(own) - tail], texts[head : len(texts) - tail], False)
    for left, right, size in matcher.get_matching_blocks():
        for at in range(size):
            made[head + right + at] = lines[head + left + at]
    return made


def _missing(lines: Lines, path: str, later: Sequence[Change]) -> int:
    """How many of the calls to come would not find what they replace."""
    text, missing = _text(lines), 0
    for change in later:
        if change.path == path:
            for old, new, every in change.parts:
                missing += old is not None and old not in text
                text = new if old is None else text.replace(old, new, -1 if every else 1)
    return missing


def write(folder: Path, commits: Sequence[Commit]) -> None:
    """A repository with these commits, by git's own `fast-import`."""
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder, check=True)
    stream: list[bytes] = []
    for number, commit in enumerate(commits):
        message = b"commit %d" % number
        stream.append(b"commit refs/heads/main\nauthor a <a@b> %d +0000\n" % commit.authored)
        stream.append(b"committer a <a@b> %d +0000\ndata %d\n%s\n" % (commit.committed, len(message), message))
        stream.append(b"deleteall\n")
        for path, lines in commit.files.items():
            data = _text(lines).encode("utf-8", "surrogatepass")
            stream.append(b"M 644 inline %s\ndata %d\n%s\n" % (json.dumps(path).encode(), len(data), data))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=b"".join(stream), check=True)


def as_scripts(recording: Recording, calls: set[str], folder: Path) -> Path:
    """The recording with these calls as scripts of a shell that would do the same."""
    path = folder / recording.path.name
    with gzip.open(path, "wt") as file:
        for line in recording.lines:
            content = [_as_script(block) if block.get("id") in calls else block for block in line.get("content", ())]
            print(json.dumps({**line, "content": content} if "content" in line else line), file=file)
    return path


def _as_script(block: dict[str, Any]) -> dict[str, Any]:
    commands = []
    for path, parts in _parts(block["input"]):
        for old, new, _ in parts:
            if old is None:
                commands.append(f"cat > {path} <<'EOF'\n{new}" + ("" if new.endswith("\n") else "\n") + "EOF")
            elif not set("\n/&\\[]*^$.'") & set(old + new):
                commands.append(f"sed -i 's/{old}/{new}/' {path}")
            else:
                text = f"s = s.replace({_quoted(old)}, {_quoted(new)}, 1)"
                commands.append(
                    f"python3 - <<'PY'\np = '{path}'\ns = open(p).read()\n{text}\nopen(p, 'w').write(s)\nPY"
                )
    return {**block, "name": "Bash", "input": {"command": "\n".join(commands)}}


def _quoted(text: str) -> str:
    """A text as Python programs have it."""
    return "'''" + text.replace("\\", "\\\\").replace("'", "\\'") + "'''"


# --- the measure


class Score(NamedTuple):
    """Lines: in truth, said to be, of these the right ones, and those with the right call and not only conversation.

    `unknown` are those in truth of which the answer was that.
    """

    truth: int = 0
    said: int = 0
    right: int = 0
    exact: int = 0
    unknown: int = 0

    def __add__(self, other: object) -> Score:
        assert isinstance(other, Score)
        return Score(*(left + right for left, right in zip(self, other, strict=True)))


KINDS = ("agent", "shell", "human")


def measure(
    group: Sequence[Recording], corpus: Sequence[list[str]], does: frozenset[str], seed: str
) -> dict[str, Score]:
    """The scores for one repository, of agents' lines by editing tools, by scripts, and of a person's lines."""
    script = Script(group, corpus, does, seed)
    script.run()
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    conversation = {change.call: change.recording for change in script.changes}
    with tempfile.TemporaryDirectory(prefix="ctxvc-why-") as name:
        folder = Path(name)
        write(folder, script.commits)
        with create(folder / FOLDER) as store:
            paths = [as_scripts(recording, script.by_shell, folder) for recording in group]
            for outcome in import_paths(store, paths, final=True, redact=False):
                assert not outcome.error, outcome
            last = script.commits[-1].files
            edits = why.recorded_edits(store, store.sessions(), list(last))
            for path, lines in last.items():
                since = why.first_edit(edits[path])
                in_git = code_history.history(folder, path, "HEAD")
                history = code_history.versions(folder, in_git, since) if since is not None else []
                answer = why.lines_of(history, edits[path]) if history else []
                assert (
                    not history or [line.text for line in answer] == _text(lines).replace("\r", "").split("\n")[:-1]
                ), path
                for (text, owner), line in zip(lines, answer, strict=False):
                    if text.strip():
                        _count(counts, owner, line, script.by_shell, conversation)
    return {kind: Score(*(count[name] for name in Score._fields)) for kind, count in counts.items()}


def _count(
    counts: Mapping[str, Counter[str]], owner: str, line: why.Line, by_shell: set[str], conversation: Mapping[str, str]
) -> None:
    truth = owner if owner in ("base", "human") else "shell" if owner in by_shell else "agent"
    if truth in counts:
        counts[truth]["truth"] += 1
    call = line.edit.place.row.call if line.edit else ""
    if call in conversation:
        said = "shell" if call in by_shell else "agent"
    elif call:
        said = "shell"  # another script of the recording
    elif truth == "base" or not line.by_person:
        # Which of what nobody recorded was there before is no part of the measure; `unknown` is no claim.
        if truth in counts:
            counts[truth]["unknown"] += 1
        return
    else:
        said = "human"
    counts[said]["said"] += 1
    if said == "human":
        counts[said]["right"] += truth == "human"
        counts[said]["exact"] += truth == "human"
    else:
        counts[said]["right"] += truth == said and conversation[owner] == conversation.get(call)
        counts[said]["exact"] += owner == call


def groups(folder: Path) -> Iterator[tuple[list[Recording], list[list[str]]]]:
    """Recordings of one project that follow each other, and what a person's lines are taken from: the others' edits."""
    everything = recordings(folder)
    by_source: dict[str, list[Recording]] = defaultdict(list)
    for recording in everything:
        by_source[recording.source].append(recording)
    for own in by_source.values():
        for at in range(0, len(own), TOGETHER):
            group = own[at : at + TOGETHER]
            corpus = [
                lines
                for recording in everything
                if recording not in group
                for change in recording.changes[:40]
                for _, new, _ in change.parts
                if len(lines := [line for line in new.split("\n") if line.strip()]) > 2
            ]
            yield group, corpus


def set_aside(group: Sequence[Recording]) -> bool:
    """Whether the first recording is of the third on which nothing is tuned."""
    return int(hashlib.sha256(group[0].path.name.encode()).hexdigest(), 16) % 3 == 0


def table(folder: Path, seed: int, most: int) -> Iterator[str]:
    yield "| repositories | | lines | precision | right call | recall | unknown |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    chosen = list(groups(folder))
    chosen = chosen[:: -(-len(chosen) // most)]
    for name, does in SCENARIOS.items():
        totals: dict[tuple[str, str], Score] = defaultdict(Score)
        for number, (group, corpus) in enumerate(chosen):
            scores = measure(group, corpus, does, f"{seed}/{name}/{number}")
            for kind, score in scores.items():
                totals[kind, ""] += score
                totals[kind, "set aside" if set_aside(group) else "rest"] += score
        parts = ("", "rest", "set aside") if name == "all of it" else ("",)
        for part in parts:
            for kind in KINDS:
                score = totals[kind, part]
                if score.truth or score.said:
                    label = f"{name}{f', {part}' if part else ''}"
                    yield (
                        f"| {label} | {kind} | {score.truth:,} | {_percent(score.right, score.said)} "
                        f"| {_percent(score.exact, score.said)} | {_percent(score.right, score.truth)} "
                        f"| {_percent(score.unknown, score.truth)} |"
                    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.attribution", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=1_000, help="repositories of each kind")
    arguments = parser.parse_args()
    began = time.monotonic()
    for line in table(Path(os.environ["CTXVC_TEST_DATA"], "trajectories"), arguments.seed, arguments.most):
        print(line, flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
