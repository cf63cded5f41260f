"""`bisect`: when something was in the prompt, and when a prompt went wrong."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.commits import LogItem, OfCommit, log_item, stored_of
from ctxvc.cli.answers.shared import SHORT, Answer, Item, ScopeName, SessionName, described, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import Cell, Column, Guess, Output, Styled, counted
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core import display
from ctxvc.core.plan import selection
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import outline, pieces, tag_of
from ctxvc.errors import NotFound, Refused
from ctxvc.inspection import bisect as bisecting
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.read import revision
from ctxvc.store.read.address import Address, Resolved
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

#: The variable that names the file with the prompt, for a command that judges it.
PROMPT = "CTXVC_PROMPT"

#: Exit codes from here on are no judgement: a command that was not found, a signal.
NO_JUDGEMENT = 126
_MOVES = {"entered": ("+", "green"), "left": ("-", "red"), "bad": ("bad", "red"), "good": ("good", "green")}


@command("bisect", "ctxvc bisect timeout")
@click.argument("target", metavar="[TEXT|ID]", required=False)
@click.option("--text", "as_text", is_flag=True, help="Treat the argument as text, even if it looks like an ID.")
@click.option("--tokens", "limit", metavar="N", type=TokenAmount(0),
              help="Find the first prompt with more than N tokens.")  # fmt: skip
@click.option("--cmd", "judge", metavar="CMD", help="Find the first prompt for which this command fails.")
@click.option("--linear", is_flag=True, help="With --cmd: test every prompt, and list all changes.")
@click.option("--scope", "scope", metavar="NAME", help="Search this scope instead of the current one.")
@json_option
@click.pass_context
def bisect(
    ctx: click.Context,
    target: str | None,
    as_text: bool,
    limit: int | None,
    judge: str | None,
    linear: bool,
    scope: str | None,
) -> None:
    """For blocks that contain TEXT, or for ID: B17, G3, or the id of a call. --cmd gets the prompt as Messages API JSON
    on stdin, and the path of a file with it in CTXVC_PROMPT; exit code 0 means good, 1 to 125 bad. It assumes that
    prompts were good at first and bad from some commit on; --linear assumes nothing.
    """
    app = ctx.ensure_object(App)
    if sum(question is not None for question in (target, limit, judge)) != 1:
        raise click.UsageError("give something to look for: TEXT, an ID, --tokens N or --cmd CMD")
    if linear and judge is None:
        raise click.UsageError("--linear requires --cmd")
    if target == "":
        raise click.UsageError("an empty text is in every prompt")
    with app.reading() as stored:
        stored.ledger(scope or "")  # raises if there is none
        scope = scope or stored.scope
        if target is not None:
            answer = _of_target(stored, scope, target, as_text=as_text)
        elif limit is not None:
            answer = _of_tokens(stored, scope, limit)
        else:
            answer = _of_command(stored, scope, judge or "", app.folder, linear=linear)
        waiting = stored.waiting()
    _print(ctx, app.output, answer, waiting)


def _of_target(stored: StoredSession, scope: str, target: str, *, as_text: bool) -> Bisected:
    resolved = None if as_text else _block(stored, scope, target)
    if resolved and (item := resolved.row or resolved.group):
        stored, scope = stored_of(stored, resolved), resolved.snapshot.scope
        moves, what = bisecting.of_address(stored, scope, item.id), "block"
    else:
        moves, what = bisecting.of_text(stored, scope, target), "text"

    @cache
    def item_of(commit: str) -> LogItem | None:
        return log_item(stored.store, revision.entry(stored.store, commit)) if commit else None

    items = [Turned(move=move.move, block=move.id, type=move.kind, commit=item_of(move.commit)) for move in moves]
    present = {move.id: move.move == "entered" for move in moves}
    return _answer(stored, scope, what, target, items, stands=any(present.values()))


def _of_tokens(stored: StoredSession, scope: str, limit: int) -> Bisected:
    store = stored.store
    commits = list(store.first_parents(stored.tip(scope)))[::-1]
    costs = _PromptCosts(store, stored.ledger(scope).meta.tokenizer)
    place = bisecting.first_over(store, commits, costs.of, limit)
    items, stands = [], False
    if place is not None:
        stands = bisecting.still_over(store, commits, costs.of, limit, place)
        item = log_item(store, revision.entry(store, commits[place]))
        items = [Turned(move="passed", tokens=costs.of(commits[place]), commit=item)]
    return _answer(stored, scope, "tokens", str(limit), items, stands=stands, judged=costs.measured)


def _of_command(stored: StoredSession, scope: str, judge: str, folder: Path, *, linear: bool) -> Bisected:
    store = stored.store
    commits = _with_prompt(store, stored.tip(scope))
    judged: dict[int, bool] = {}

    def good(place: int) -> bool:
        if place not in judged:
            judged[place] = _judged(judge, revision.at(store, commits[place]), folder)
            progress.add(1)
        return judged[place]

    with Progress("judging", format=lambda number: counted(number, "prompt")) as progress:
        newest = len(commits) - 1
        if linear:
            turns = list(bisecting.changes(range(len(commits)), good))
        elif good(newest):
            turns = []
        elif not good(0):
            turns = [(0, False)]
        else:
            turns = [(bisecting.first_bad(range(len(commits)), good), False)]
    items = [
        Turned(move="good" if now else "bad", commit=log_item(store, revision.entry(store, commits[place])))
        for place, now in turns
    ]
    kind = "command, every prompt" if linear else "command"
    return _answer(stored, scope, kind, judge, items, stands=not judged[newest], judged=len(judged))


def _answer(
    stored: StoredSession, scope: str, kind: str, target: str, items: list[Turned], *, stands: bool, judged: int = 0
) -> Bisected:
    return Bisected(
        session=stored.name, scope=scope, what=kind, asked=target, stands=stands, judged=judged, items=items
    )


def _with_prompt(store: Store, tip: str) -> list[str]:
    """The commits from the first step on, oldest first, and always the newest. Nothing was sent before that."""
    commits = list(store.first_parents(tip))[::-1]
    begin = next((at for at, commit in enumerate(commits) if store.reader.meta(commit).counters.step), len(commits) - 1)
    return commits[begin:]


def _print(ctx: click.Context, output: Output, answer: Bisected, waiting: int) -> None:
    if output.json:
        output.value(answer)
    elif answer.items:
        output.table(table_of(Turned, answer.items))
    if answer.items and not output.json:
        output.note(_now(answer))
    if answer.what == "command" and answer.items:
        output.note(
            f"{counted(answer.judged, 'prompt')} tested, assuming a single change from good to bad; --linear tests "
            "every prompt"
        )
    if waiting and answer.what not in ("text", "block"):
        output.note(f"{counted(waiting, 'record')} not committed yet: only commits were searched")
    if not answer.items:
        output.note(_nothing(answer))
        ctx.exit(1)


def _now(answer: Bisected) -> str:
    match answer.what, answer.stands:
        case "tokens", True:
            return f"the prompt has more than {answer.asked} tokens now"
        case "tokens", False:
            return f"the prompt has at most {answer.asked} tokens now"
        case (("command" | "command, every prompt"), stands):
            return f"the newest prompt is {'bad' if stands else 'good'}"
        case _, True:
            return "it is in the prompt now"
    return "it is not in the prompt now"


def _nothing(answer: Bisected) -> str:
    where = f"{answer.session}/{answer.scope}"
    match answer.what:
        case "tokens":
            return f"no prompt in {where} has more than {answer.asked} tokens"
        case "command":
            return f"the newest prompt in {where} is good; --linear also finds bad ones before it"
        case "command, every prompt":
            return f"all {counted(answer.judged, 'prompt')} of {where} are good"
        case "block":
            return f"{answer.asked} was never in the prompt of {where}"
    text = display.one_line(answer.asked, 60)
    return f"'{text}' was never in the prompt of {where}; `ctxvc grep -F` searches elsewhere, too"


class _PromptCosts:
    """The tokens of the prompts of commits; each prompt is measured once, and each block counted once."""

    def __init__(self, store: Store, tokenizer: str) -> None:
        self._store = store
        self._meter = Meter(store, tokenizer)
        self._costs: dict[str, int] = {}
        self._bodies: dict[tuple[str, str], int] = {}

    @property
    def measured(self) -> int:
        return len(self._costs)

    def of(self, commit: str) -> int:
        if commit not in self._costs:
            self._costs[commit] = self._measured(revision.at(self._store, commit))
        return self._costs[commit]

    def _measured(self, snapshot: Snapshot) -> int:
        slots = outline(snapshot.ledger)
        full = [slot.row for slot in slots if slot.show == "body"]
        new = [row for row in full if (row.id, row.sha256) not in self._bodies]
        counts = self._meter.bodies([(row, snapshot.bodies) for row in new], snapshot.ledger.meta.model) if new else {}
        self._bodies.update(((row.id, row.sha256), counts[row.id]) for row in new)
        others = pieces([slot for slot in slots if slot.show != "body"], snapshot.bodies)
        total = sum(self._bodies[row.id, row.sha256] for row in full)
        return (
            total
            + sum(self._meter.count(tag) for tag in map(tag_of, slots) if tag)
            + sum(self._meter.count(display.decode(piece.body)) for piece in others)
            + self._meter.overhead(snapshot)
        )


def _judged(judge: str, snapshot: Snapshot, folder: Path) -> bool:
    """Whether the person's command judges the prompt good. Raises: Refused if it gives no judgement."""
    content = pieces(outline(snapshot.ledger), snapshot.bodies, snapshot.ledger.meta.render)
    request = formats.Prompt(
        pieces=content, system=snapshot.system, tools=snapshot.tools, model=snapshot.ledger.meta.model
    )  # fmt: skip
    data = formats.dumps(formats.anthropic(request))
    with tempfile.TemporaryDirectory(prefix="ctxvc-bisect-") as place:
        path = Path(place, "prompt.json")
        path.write_bytes(data)
        with path.open("rb") as stream:
            process = subprocess.run(  # noqa: S602 - the person's own command; nothing recorded is in it
                judge,
                shell=True,
                stdin=stream,
                stdout=2,  # to stderr: stdout is for the answer
                cwd=folder,
                env={**os.environ, PROMPT: str(path)},
                check=False,
            )
    if process.returncode < 0 or process.returncode >= NO_JUDGEMENT:
        raise Refused(
            f"the command could not judge commit {snapshot.commit[:SHORT]}: it exited with {process.returncode}",
            hint="0 means good, 1 to 125 means bad; run it by hand on the output of `ctxvc export REV`",
        )
    return process.returncode == 0


def _block(stored: StoredSession, scope: str, target: str) -> Resolved | None:
    """The block or group at the address `target`; None if it is a text. Raises: NotFound."""
    if address := addresses.parse(target):
        return None if address.file else addresses.find(stored, _within(address, stored, scope))
    local = addresses.of_call(stored, f"{scope}:{target}", elsewhere=False)
    resolved = local or addresses.of_object(stored, f"{scope}:{target}")
    if resolved and resolved.group:
        blocks = ", ".join(selection.ranges(resolved.group.members)[:8])
        raise NotFound(f"{target[:80]} names several blocks", hint=f"one of {blocks}; --text looks for the words")
    return resolved or addresses.of_call(stored, target, elsewhere=False)


def _within(address: Address, stored: StoredSession, scope: str) -> Address:
    """The address, resolved in `scope` instead of the current one."""
    elsewhere = not address.scope and scope != stored.scope
    return Address(id=address.id, scope=scope, checksum=address.checksum) if elsewhere else address


def _move(move: str) -> Cell:
    return Styled(*_MOVES.get(move, (move, "yellow")))


def _guess(tokens: int | None) -> Cell:
    return None if tokens is None else Guess(tokens)


class Turned(Item, OfCommit, frozen=True, kw_only=True):
    """A commit at which something changed."""

    TABLE = f"move block type tokens {OfCommit.COMMIT}"

    move: Annotated[
        str,
        described("`entered` or `left` the prompt; `passed` a number of tokens; `bad` or `good`"),
        Column("move", cell=_move),
    ]
    block: Annotated[
        str,
        described("`B17`, `G3`; `request` for system prompt and tools; empty for the whole prompt"),
        Column("block"),
    ] = ""
    type: Annotated[
        str,
        described("the block's kind, `group` or `system`; empty for the whole prompt"),
        Column("type", rank=2),
    ] = ""
    tokens: Annotated[
        int | None, described("of the prompt, if requested"), Column("tokens", right=True, rank=1, cell=_guess)
    ] = None
    commit: Annotated[LogItem | None, described("null if not committed yet")]


class Bisected(Answer, frozen=True, kw_only=True, tag="ctxvc.bisect/1"):
    """`bisect`"""

    session: SessionName
    scope: ScopeName
    what: Annotated[str, described("`text`, `block`, `tokens`, `command`, or `command, every prompt`")]
    asked: Annotated[str, described("the text, address, number or command given")]
    stands: Annotated[
        bool, described("whether it is in the prompt now, or whether the newest prompt is too large or bad")
    ]
    judged: Annotated[int, described("prompts that were measured or tested")]
    items: Annotated[list[Turned], described("in chronological order")]
