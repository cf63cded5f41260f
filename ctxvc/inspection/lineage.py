"""Which recorded edit made each line of a file: the edits are replayed between the versions in its history.

A version's own text is the truth, and edits only explain it. From each version to the next, the edits that come nearest
to it are replayed, oldest first; a line that they make is theirs. The other lines are compared with lines that were
only laid out anew, with edits whose place is lost (a squash, a rebase, another worktree), and with scripts. A line that
nothing explains has no edit, whichever session was at work then.

Only stretches of at most `_STRETCH` lines are compared in quadratic time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from ctxvc.inspection.edits import Change

#: How a line is explained: `replay`, the edits as recorded make it; `layout`, they do but for white space, quotes and
#: line ends; `text`, an edit whose place is lost has it with its surroundings; `script`, a script has its new text;
#: `none`, nothing explains it; `older`, it was there before the first edit.
Evidence = Literal["replay", "layout", "text", "script", "none", "older"]

#: The most lines on either side of a stretch without unique lines that are still compared one by one.
_STRETCH = 500
#: The fewest letters and digits that lines in a row must have together to be recognised by their text.
_TELLING = 24
#: The most edits that wait for a version that has them.
_WAITING = 400
#: The least share of an edit's new lines that a version must contain, and the version of a new file.
_SHARE, _SHARE_OF_NEW = 0.5, 0.9
#: The most characters of a line that are compared for layout.
_WIDE = 2_000
#: The most removed lines with which a line in their place is compared.
_FORMER = 20
#: Seconds by which the clock of a recording and that of git may differ.
SLACK = 60
_TOKEN = re.compile(r"\w+|[^\w\s]")
#: What formatters add, remove and change.
_LAYOUT = frozenset(",;'\"`\\")


class Edit(NamedTuple):
    """A recorded call on the file.

    `started` and `ended` are in seconds since 1970. `script` is a shell call's, else empty; `unread` is the part of it
    from which no change is read.
    """

    changes: tuple[Change, ...]
    started: int
    ended: int
    script: str = ""
    unread: str = ""


class Version(NamedTuple):
    """The file at a commit: when it was first written and when this commit of it was made, in seconds since 1970."""

    lines: tuple[str, ...]
    authored: int
    committed: int


class Mark(NamedTuple):
    """Where a line is from: the number of its edit, or -1, and of the version in which it came or changed layout."""

    edit: int
    evidence: Evidence
    version: int
    #: The numbers of edits by scripts of that time that name the file and may have written the line.
    scripts: tuple[int, ...] = ()


class _State:
    """The lines of a text with their marks. `text` is the whole text between two line ends."""

    __slots__ = ("lines", "marks", "text")

    def __init__(self, lines: tuple[str, ...], marks: tuple[Mark, ...]) -> None:
        self.lines, self.marks = lines, marks
        self.text = "\n".join(("", *lines, ""))


def lineage(versions: Sequence[Version], edits: Sequence[Edit]) -> list[Mark]:
    """A mark for each line of the last version. `versions` are oldest first, `edits` in the order they were made."""
    if not versions:
        return []
    pending = list(range(len(edits)))
    state = _State(versions[0].lines, tuple(Mark(-1, "older", 0) for _ in versions[0].lines))
    before = versions[0].authored
    for number, version in enumerate(versions[1:], 1):
        due = [edit for edit in pending if edits[edit].started <= version.committed + SLACK][-_WAITING:]
        state, finished = _next(state, version, number, edits, due, before)
        pending = [edit for edit in pending if edit not in finished]
        before = min(version.authored, version.committed)
    return list(state.marks)


def _next(
    state: _State, version: Version, number: int, edits: Sequence[Edit], due: Sequence[int], before: int
) -> tuple[_State, set[int]]:
    """The next version's state, and the edits that can explain nothing more."""
    lines = version.lines
    marks: list[Mark | None] = [None] * len(lines)
    replayed, path = _replayed(state, lines, number, edits, due)
    pairs = aligned(replayed.lines, lines)
    for source, target in pairs:
        marks[target] = replayed.marks[source]
    for source, target in aligned(state.lines, lines) if path else ():
        if marks[target] is None:
            marks[target] = state.marks[source]
    for source, target in _laid_out(replayed.lines, lines, pairs):
        if marks[target] is None:
            mark = replayed.marks[source]
            marks[target] = mark._replace(evidence="layout" if mark.edit >= 0 else mark.evidence, version=number)
    if None in marks:
        _by_text(lines, marks, number, edits, due, _SHARE if state.lines else _SHARE_OF_NEW)
    if None in marks:
        _by_script(state.lines, version, marks, number, edits, before)
    survivors = {mark.edit for mark in marks if mark and mark.version == number and mark.evidence == "replay"}
    past = {edit for edit in path if edits[edit].ended <= version.authored + SLACK}
    return _State(lines, tuple(mark or Mark(-1, "none", number) for mark in marks)), survivors | past


# --- replay


class _Distance:
    """The distance of a text from a goal, by their lines in any order; updated with each change.

    Of two texts with equally many differences, the one that lacks fewer lines is nearer: a later edit can remove some.
    """

    def __init__(self, lines: Iterable[str], goal: Iterable[str]) -> None:
        self._surplus = Counter(lines)
        self._surplus.subtract(Counter(goal))
        self.total = sum(map(_cost, self._surplus.values()))

    def change(self, removed: Iterable[str], added: Iterable[str]) -> None:
        for lines, sign in ((removed, -1), (added, 1)):
            for line in lines:
                count = self._surplus[line]
                self._surplus[line] = count + sign
                self.total += _cost(count + sign) - _cost(count)


def _cost(surplus: int) -> int:
    return 1_000 * surplus if surplus > 0 else -1_001 * surplus


def _replayed(
    state: _State, goal: Sequence[str], number: int, edits: Sequence[Edit], due: Sequence[int]
) -> tuple[_State, set[int]]:
    """The state nearest to `goal`, and the edits that lead to it: the first few, then any that lead nearer still."""
    applied: list[tuple[int, _State, int]] = []
    distance = _Distance(state.lines, goal)
    best, best_total, length = state, distance.total, 0
    current = state
    for edit in due:
        if not best_total:
            break
        if (after := _applied(current, edits[edit], edit, number, distance)) is not None:
            current = after
            applied.append((edit, after, distance.total))
            if distance.total < best_total:
                best, best_total, length = after, distance.total, len(applied)
    path = {edit for edit, _, _ in applied[:length]}
    if best_total and len(path) < len(due):
        absent = "\n".join(set(goal).difference(best.lines))
        for edit in due:
            if edit not in path and _can_help(edits[edit], absent):
                distance = _Distance(best.lines, goal)
                after = _applied(best, edits[edit], edit, number, distance)
                if after is not None and distance.total < best_total:
                    best, best_total = after, distance.total
                    path.add(edit)
    return best, path


def _can_help(edit: Edit, absent: str) -> bool:
    """Whether an edit contains any of the lines that are still absent."""
    return any(line.strip() in absent for change in edit.changes for line in split(change.new) if line.strip())


def _applied(state: _State, edit: Edit, index: int, number: int, distance: _Distance) -> _State | None:
    """The state after an edit; None if none of its changes fits or it changes nothing."""
    after = state
    for change in edit.changes:
        for start, end, lines in _places(after, change):
            removed = after.lines[start:end]
            marks = [Mark(index, "script" if change.scripted else "replay", number)] * len(lines)
            for source, target in aligned(removed, lines):
                marks[target] = after.marks[start + source]
            distance.change(removed, lines)
            after = _State(
                after.lines[:start] + tuple(lines) + after.lines[end:],
                after.marks[:start] + tuple(marks) + after.marks[end:],
            )
    return None if after is state or after.lines == state.lines else after


def _places(state: _State, change: Change) -> Iterator[tuple[int, int, list[str]]]:
    """The start and end of the lines that a change replaces, and the lines that it puts there."""
    old, new, lines = change.old.replace("\r", ""), change.new.replace("\r", ""), state.lines
    if change.kind == "write":
        yield 0, len(lines), split(new)
    elif change.kind == "insert":
        if change.scripted:  # the place of any other, only the program knows
            yield len(lines), len(lines), split(new)
    elif change.every:
        if old in state.text:
            yield 0, len(lines), state.text.replace(old, new)[1:-1].split("\n")
    else:
        if change.whole_lines:
            old, new = f"\n{old}\n", f"\n{new}\n" if new else "\n"
        place = state.text.find(old)
        if place < 0 or (change.new and _stands(state.text, old, new, place)):
            return
        end = place + len(old)
        start = state.text.rfind("\n", 0, place) + 1
        stop = state.text.find("\n", end) if end < len(state.text) else end
        after = (state.text[start:place] + new + state.text[end:stop]).split("\n")
        if not place:  # the text's own beginning and end are not lines
            after = after[1:]
        if end == len(state.text) and not after[-1]:
            after = after[:-1]
        yield max(state.text.count("\n", 0, place) - 1, 0), min(state.text.count("\n", 0, stop), len(lines)), after


def _stands(text: str, old: str, new: str, place: int) -> bool:
    """Whether an edit that keeps what it replaces has been made there already."""
    within = new.find(old)
    return within >= 0 and text.startswith(new, max(0, place - within))


def split(text: str) -> list[str]:
    """A text's lines as git counts them, without line ends."""
    lines = text.replace("\r", "").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


# --- alignment


def aligned(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of equal lines, in order: common ends, lines that are unique on both sides, then longest subsequences."""
    pairs: list[tuple[int, int]] = []
    stretches = [(0, len(source), 0, len(target))]
    while stretches:
        start, end, first, last = stretches.pop()
        while start < end and first < last and source[start] == target[first]:
            pairs.append((start, first))
            start, first = start + 1, first + 1
        while start < end and first < last and source[end - 1] == target[last - 1]:
            end, last = end - 1, last - 1
            pairs.append((end, last))
        if start == end or first == last:
            continue
        anchors = _anchors(source, target, start, end, first, last)
        if anchors:
            for anchor in [*anchors, (end, last)]:
                stretches.append((start, anchor[0], first, anchor[1]))
                start, first = anchor[0] + 1, anchor[1] + 1
            pairs += anchors
        elif end - start <= _STRETCH and last - first <= _STRETCH:
            pairs += _longest(source, target, start, end, first, last)
    return sorted(pairs)


def _anchors(
    source: Sequence[str], target: Sequence[str], start: int, end: int, first: int, last: int
) -> list[tuple[int, int]]:
    """Pairs of lines that are unique on both sides, as many as are in the same order."""
    counts, target_counts = Counter(source[start:end]), Counter(target[first:last])
    places = {target[at]: at for at in range(first, last) if target_counts[target[at]] == 1}
    unique = [(at, places[source[at]]) for at in range(start, end) if counts[source[at]] == 1 and source[at] in places]
    return _rising(unique)


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second numbers rise."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for at, (_, target) in enumerate(pairs):
        place = bisect_left(tails, target)
        previous.append(ends[place - 1] if place else -1)
        tails[place : place + 1] = [target]
        ends[place : place + 1] = [at]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


def _longest(
    source: Sequence[str], target: Sequence[str], start: int, end: int, first: int, last: int
) -> list[tuple[int, int]]:
    """A longest common subsequence."""
    width = last - first
    rows: list[list[int]] = [[0] * (width + 1)]
    for at in range(end - 1, start - 1, -1):
        below, row, line = rows[-1], [0] * (width + 1), source[at]
        for column in range(width - 1, -1, -1):
            row[column] = (
                below[column + 1] + 1 if line == target[first + column] else max(below[column], row[column + 1])
            )
        rows.append(row)
    rows.reverse()
    pairs = []
    down, along = 0, 0
    while down < end - start and along < width:
        if source[start + down] == target[first + along]:
            pairs.append((start + down, first + along))
            down, along = down + 1, along + 1
        elif rows[down + 1][along] >= rows[down][along + 1]:
            down += 1
        else:
            along += 1
    return pairs


def _gaps(pairs: Sequence[tuple[int, int]], source: int, target: int) -> Iterator[tuple[range, range]]:
    """The source and target ranges between pairs, where the target has lines; the source may have none."""
    start, first = 0, 0
    for end, last in [*pairs, (source, target)]:
        if first < last:
            yield range(start, end), range(first, last)
        start, first = end + 1, last + 1


# --- layout


def _laid_out(
    before: Sequence[str], after: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """(line before, line after) where only the layout differs: the same tokens, perhaps on more lines or fewer."""
    for gap, new in _gaps(pairs, len(before), len(after)):
        source, target = _tokens(before, gap), _tokens(after, new)
        line_pairs = aligned(list(map("".join, source.values())), list(map("".join, target.values())))
        rows, columns = list(source), list(target)
        yield from ((rows[row], columns[column]) for row, column in line_pairs)
        for row_gap, column_gap in _gaps(line_pairs, len(rows), len(columns)):
            yield from _wrapped(
                [(token, row) for at in row_gap for row in (rows[at],) for token in source[row]],
                [(token, column) for at in column_gap for column in (columns[at],) for token in target[column]],
            )


def _wrapped(source: Sequence[tuple[str, int]], target: Sequence[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """As `_laid_out`, for lines that were split or joined, given as tokens with their lines."""
    token_pairs = aligned([token for token, _ in source], [token for token, _ in target])
    partner = {column: row for row, column in token_pairs}
    used = dict(token_pairs)
    for at, (first, last) in _spans(target).items():
        rows = [partner.get(column, -1) for column in range(first, last)]
        if rows[0] < 0 or rows != list(range(rows[0], rows[0] + len(rows))):
            continue
        if _meets(source, used, rows[0], first, -1) and _meets(source, used, rows[-1], last - 1, 1):
            owners = Counter(source[row][1] for row in rows)
            yield owners.most_common(1)[0][0], at


def _tokens(lines: Sequence[str], which: range) -> dict[int, list[str]]:
    """Line → its tokens apart from layout; lines that have none are left out."""
    by_line = {at: [token for token in _TOKEN.findall(lines[at][:_WIDE]) if token not in _LAYOUT] for at in which}
    return {at: tokens for at, tokens in by_line.items() if tokens}


def _spans(tokens: Sequence[tuple[str, int]]) -> dict[int, tuple[int, int]]:
    """Line → the start and end of its tokens."""
    spans: dict[int, tuple[int, int]] = {}
    for at, (_, line) in enumerate(tokens):
        spans[line] = (spans.get(line, (at, at))[0], at + 1)
    return spans


def _meets(tokens: Sequence[tuple[str, int]], used: dict[int, int], row: int, column: int, step: int) -> bool:
    """Whether a line ends where a former one did, or goes on in the next: nothing was left out of it."""
    neighbour = row + step
    if not 0 <= neighbour < len(tokens) or tokens[neighbour][1] != tokens[row][1]:
        return True
    return used.get(neighbour) == column + step


# --- by text


def _by_text(
    lines: Sequence[str],
    marks: list[Mark | None],
    number: int,
    edits: Sequence[Edit],
    due: Sequence[int],
    share: float,
) -> None:
    """Marks lines that no replay explains, by the text of edits and its surroundings; later edits first.

    `share` is the least share of an edit's new lines that the file must contain.
    """
    text = "\n".join(lines)
    stripped = [line.strip() for line in lines]
    open_lines = {stripped[at] for at, mark in enumerate(marks) if mark is None and stripped[at]}
    for edit in reversed(due):
        for change in edits[edit].changes:
            new = [line.strip() for line in split(change.new)]
            if open_lines.isdisjoint(new):
                continue
            if change.old and change.old not in change.new and change.old in text and change.new not in text:
                continue  # not made yet
            old = [line.strip() for line in split(change.old)]
            own = set(range(len(new))) - {target for _, target in aligned(old, new)}
            fresh = {at for at in own if new[at] and new[at] not in old}
            runs = list(_runs(new, stripped, marks))
            if sum(source in fresh for run in runs for source, _ in run) < share * len(fresh):
                continue
            for run in runs:
                if sum(_letters(new[source]) for source, _ in run if source in fresh) < _TELLING:
                    continue
                for source, target in run:
                    if source in own and marks[target] is None:
                        marks[target] = Mark(edit, "script" if change.scripted else "text", number)


def _runs(new: Sequence[str], lines: Sequence[str], marks: Sequence[Mark | None]) -> Iterator[list[tuple[int, int]]]:
    """Stretches of a change that the file contains unchanged, each with a line that has no mark yet."""
    run: list[tuple[int, int]] = []
    for pair in [*aligned(new, lines), (-1, -1)]:
        if run and pair != (run[-1][0] + 1, run[-1][1] + 1):
            if any(marks[at] is None for _, at in run):
                yield run
            run = []
        run.append(pair)


def _letters(line: str) -> int:
    return sum(map(str.isalnum, line))


# --- scripts


def _by_script(
    before: Sequence[str], version: Version, marks: list[Mark | None], number: int, edits: Sequence[Edit], since: int
) -> None:
    """Marks the remaining lines: with a script that has their text or its new part, else with all scripts of that time.

    In a new file, only lines that a script's here-documents write are the script's.
    """
    lines = version.lines
    scripts = [
        at
        for at, edit in enumerate(edits)
        if edit.script
        and edit.ended >= since - SLACK
        # A script that has not ended can only be in the version if it made the commit itself.
        and (edit.started if "commit" in edit.script else edit.ended) <= version.committed + 1
    ]
    if not scripts:
        return
    for gap, new in _gaps(aligned(before, lines), len(before), len(lines)):
        former = [before[at] for at in gap[:_FORMER]]
        for at in new:
            if marks[at] is not None:
                continue
            author = -1
            if before:
                author = next((script for script in reversed(scripts) if _wrote(edits[script], lines[at], former)), -1)
            marks[at] = Mark(author, "script", number) if author >= 0 else Mark(-1, "none", number, tuple(scripts))


def _wrote(edit: Edit, line: str, former: Sequence[str]) -> bool:
    """Whether a script has the line, or both what it adds to one of the former lines and what it removes there."""
    text, script = line.strip(), edit.script
    if _letters(text) >= _TELLING / 2 and text in edit.unread:
        return True
    for old in former:
        start = _common(old, line)
        end = _common(old[start:][::-1], line[start:][::-1])
        removed, added = old[start : len(old) - end], line[start : len(line) - end]
        if max(_letters(removed), _letters(added)) >= 3 and removed in script and added in script:
            return True
    return False


def _common(source: str, target: str) -> int:
    """The length of the common beginning of two texts."""
    pairs = enumerate(zip(source, target, strict=False))
    return next((at for at, (letter, match) in pairs if letter != match), min(len(source), len(target)))
