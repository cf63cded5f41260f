"""`ctxvc demo`: a recorded session becomes a store, its context is cut to a budget, nothing is lost. No key."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ctxvc import importers
from ctxvc.cli.app import App, command
from ctxvc.cli.options.values import GivenPath
from ctxvc.core import display
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.recording.events import Said
from ctxvc.core.view.dashboard import dashboard
from ctxvc.errors import CtxvcError, Refused
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from ctxvc.store.trust import known_stores
from ctxvc.store.verify import verify
from ctxvc.tokens.meter import Meter

if TYPE_CHECKING:
    from ctxvc.agent.adapter import Adapter
    from ctxvc.agent.workspace import Outcome


SESSION = Path(__file__).parents[2] / "data" / "demo" / "claude-code-session.jsonl.gz"
WINDOW = 32_000
ACTOR = "policy:oldest"

#: The policy and the window of the played session.
PLAYED = "layered"
PLAYED_WINDOW = 16_000
Say = Callable[[str], None]


def play(say: Say, folder: Path | None = None) -> Path:
    """Plays the demo, reports each part to `say`, and returns the folder with the store."""
    folder = _place(folder)
    start = time.monotonic()
    with _created(folder) as store:
        name = _import(store, say)
        meter = Meter(store)
        with StoredSession.open(store, name) as stored:
            _growth(store, stored, meter, say)
            archived = _archive_oldest(stored, meter, say)
            _recover(stored, archived, say)
        _check(store, name, say)
    _further(folder, name, say)
    say(f"\nDone in {time.monotonic() - start:.1f} s. Remove it with: rm -r {folder}")
    return folder


def play_agent(say: Say, folder: Path | None = None) -> Path:
    """Plays the recorded session through the agent's loop, once without bounds and once under a budget; as `run`."""
    from ctxvc.agent import run as running
    from ctxvc.policies import parse
    from ctxvc.session.session import Session

    folder = _place(folder)
    say("scripted: the model's recorded replies are played back; no model is asked.\n")
    with _created(folder) as store:
        name = _import(store, say)
        turns = running.recorded(Session(StoredSession.open(store, name)))
    say("2. The same replies and results are run through the agent's loop, twice.")
    peaks: dict[str, int] = {}
    for called, policy, window in (("linear", "keep", 1_000_000), ("managed", PLAYED, PLAYED_WINDOW)):
        seen = _Peak()
        with Session.open(
            folder / FOLDER, called, model="scripted", budget=window, policy=parse(policy), tokens_per_count=1.0
        ) as session:
            running.play(session, turns, seen)
            stubbed = [row for row in session.ledger().rows() if row.kind == "tool_result" and not row.present]
            bodies = [session.body(row.id) for row in stubbed]
        peaks[called] = seen.peak
        say(f"   {called}: policy {policy}, {seen.steps} steps, the largest prompt {seen.peak:,} tokens of {window:,}")
    size = sum(map(len, bodies))
    say(f"   {len(stubbed)} results are stubs in the managed prompt; the store has all {size:,} bytes of them.\n")
    with Store(folder / FOLDER) as store:
        _check(store, "managed", say, 3)
    _further(folder, "managed", say)
    return folder


class _Peak:
    """A watcher that records the size of the largest prompt."""

    def __init__(self) -> None:
        self.peak = self.steps = 0

    def said(self, text: str) -> None:
        pass

    def called(self, name: str, arguments: Mapping[str, Any]) -> None:
        pass

    def answered(self, name: str, outcome: Outcome) -> None:
        pass

    def stepped(self, adapter: Adapter) -> None:
        self.steps += 1
        self.peak = max(self.peak, adapter.session.used())

    def stops(self) -> bool:
        return False


def _place(folder: Path | None) -> Path:
    """A new or empty folder. Raises: Refused."""
    folder = folder or Path(tempfile.mkdtemp(prefix="ctxvc-demo-"))
    if folder.exists() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty", hint="give a new or empty folder")
    return folder


def _created(folder: Path) -> Store:
    store = create(folder / FOLDER)
    known_stores.remember_made(store.path, throwaway=True)
    return store


def _import(store: Store, say: Say) -> str:
    say("1. A recorded Claude Code session is imported (MIT, from github.com/entireio/cli).")
    (outcome,) = import_paths(store, [SESSION], name="demo", final=True)
    if outcome.error:
        raise outcome.error
    say(f"   {outcome.blocks} blocks, each a blob with a checksum; {outcome.units} steps, each a commit.\n")
    return outcome.session


def _growth(store: Store, stored: StoredSession, meter: Meter, say: Say) -> None:
    say(f"2. How its context grew, against a budget of {WINDOW:,} tokens:")
    snapshots = [revision.at(store, commit) for commit in store.first_parents(stored.tip())][::-1]
    live = sys.stdout.isatty()
    for snapshot in snapshots[1:]:
        view = dashboard(snapshot.ledger, meter.costs(snapshot), WINDOW)
        last = snapshot.ledger.last()
        label = last.label if last else ""
        line = (
            f"   step {snapshot.ledger.meta.counters.step:>2} {view.bar} {view.used:>6,}  {display.one_line(label, 36)}"
        )
        say(line)
        if live:
            time.sleep(0.05)
    say("")


def _archive_oldest(stored: StoredSession, meter: Meter, say: Say) -> list[Row]:
    """Archives the oldest results until the prompt fits; the simplest rule there is."""
    from ctxvc.session.session import Session

    say("3. The simplest rule: archive the oldest results until the rest fits. Each leaves a stub:")
    view = Session(stored, actor=ACTOR).view()
    newest = view.ledger.meta.counters.step
    results = [row for row in view.ledger.rows() if row.kind == "tool_result" and row.present and row.step < newest]
    plan = Plan(actions=tuple(Action(verb="archive", targets=(row.id,)) for row in results), actor=ACTOR)
    actions, _ = fewest_actions(view, plan, view.calibrated(view.overhead + WINDOW * 6 // 10))
    archived = list(rehearse(view, msgspec.structs.replace(plan, actions=actions)).rows)
    for row in archived[:2]:
        say(f"   {row.stub}")
    ids = ", ".join(row.id for row in archived)
    stored.change(subject=f"archive {ids}", op="archive", actor=ACTOR, rows=archived)
    now = dashboard(stored.ledger(), meter.costs(revision.now(stored)), WINDOW)
    say(f"   … {len(archived)} results left; the prompt now has {now.used:,} tokens {now.bar} {now.percent} %\n")
    return archived


def _recover(stored: StoredSession, archived: Iterable[Row], say: Say) -> None:
    """Compares an archived body with the file that the session was recorded in."""
    row = max(archived, key=lambda row: row.bytes)
    body = stored.body(row)
    recorded = next(
        part.body
        for _, events in importers.conversations(Recording(SESSION), "claude-code")
        for event in events
        if isinstance(event, Said)
        for part in event.message.parts
        if part.kind == "tool_result" and part.call == row.call
    )
    if body != recorded:
        raise CtxvcError(f"{row.id} does not match the recording")
    say(f"4. Recovering {row.handle}: {len(body):,} bytes, identical to the recording.\n")


def _check(store: Store, name: str, say: Say, number: int = 5) -> None:
    say(f"{number}. Checking the store, with ctxvc and with git itself:")
    report = verify.verify(store)
    if damage := [finding for finding in report.findings if finding.level == "damage"]:
        raise CtxvcError(f"the demo's store is damaged: {damage[0].what}")
    say(f"   ctxvc verify: {report.blocks} blocks in {report.commits} commits are as recorded")
    program.run(store.path, "fsck", "--full", "--strict")
    say("   git fsck --full --strict: clean")
    graph = program.run(store.path, "log", "--graph", "--format=%h %an: %s", "-6", f"{name}/main")
    say("\n" + "\n".join(f"   {line}" for line in display.decode(graph).splitlines()) + "\n")


def _further(folder: Path, name: str, say: Say) -> None:
    say("Look further:")
    for arguments, why in (
        ("status", "the dashboard"),
        ("log", "every change to the prompt"),
        ("prompt step:5", "what the model saw at that point"),
        ("diff step:5 HEAD", "what has entered and left since"),
        ("show B11", "a block that left the prompt"),
    ):
        say(f"   ctxvc -C {folder} {arguments:<18} {why}")
    say(f"   git --git-dir {folder / FOLDER} log --stat {name}/main")


@command("demo", "ctxvc demo")
@click.argument("folder", metavar="[DIR]", required=False, type=GivenPath(path_type=Path))
@click.option("--agent", is_flag=True, help="Play the session back through the agent's loop, within a small budget.")
@click.pass_obj
def demo(app: App, folder: Path | None, agent: bool) -> None:
    """Works in DIR, which must be new or empty; by default in a new temporary folder. Needs no key and no network: with
    --agent, the replies are recorded ones.
    """
    (play_agent if agent else play)(app.output.say, app.path(folder) if folder else None)
