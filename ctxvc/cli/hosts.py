"""Hosts, the coding agents with a loop of their own: when one has a changed prompt, what a person has set for its
compactions, and our files that it loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ctxvc.cli import settings
from ctxvc.cli.command_list import COMMANDS
from ctxvc.core.display import human_tokens
from ctxvc.importers import HOSTS
from ctxvc.recording import places
from ctxvc.store.trust import contained

if TYPE_CHECKING:
    from ctxvc.claude_code.compaction import Choice, Outcome
    from ctxvc.cli.answers.shared import Effect
    from ctxvc.cli.app import App
    from ctxvc.session.session import Session
    from ctxvc.store.store import Store

_HOST = settings.HOSTS[0]
_EXPORT = f"`ctxvc export --format {_HOST} --install` writes a session to resume"


def hooks_folder() -> Path:
    """The folder with our hooks and extensions for other programs: in the installed package, or in the source."""
    package = Path(__file__).parents[1]
    inside = package / "hooks"
    return inside if inside.is_dir() else package.parent / "hooks"


# --- when a host has a changed prompt


def settle(store: Store) -> dict[Path, int]:
    """Settles the compactions that wait for a host, before its transcripts are read or a person undoes one: the host
    may write its boundary after its last hook, which a recorder sees only with the next. Gives the transcripts that do
    not tell yet, and how far they may be read. Raises: CtxvcError, OSError.
    """
    if contained.names(store.path, places.ANSWERS):
        from ctxvc.claude_code import compaction

        return compaction.settle_all(store)
    return {}


def effect(app: App, session: Session) -> Effect:
    """When the model is sent the session's prompt as it is changed now."""
    source = session.ledger().meta.source
    if source is None or source.format != _HOST:
        return "next-request"
    from ctxvc.claude_code import installed

    conversation = source.id.partition("/")[0]
    transcript = installed.transcript_of(app.env, conversation)
    store = session.store.path
    if transcript is None or not places.status(store, str(transcript)).exists():
        return "next-request"  # no client goes on with it, or none that tells us
    if app.person.hosts.get(_HOST, {}).get("off"):
        return "export"
    return "next-compaction" if installed.takes_prompts(app.env, app.folder, store, transcript) else "export"


def effect_of_addition(app: App, session: Session) -> Effect:
    """When the model is sent a text that was added to the session. A host's compaction keeps what the host has, and
    notes; it brings in no other text.
    """
    when = effect(app, session)
    return "export" if when == "next-compaction" else when


def advice(when: Effect) -> str:
    """The remark for a person on when a change takes effect; empty if it does with the next request."""
    host = HOSTS[_HOST]
    match when:
        case "next-compaction":
            return f"in {host}'s prompt after its next compaction (/compact makes one); to have it now, {_EXPORT}"
        case "export":
            return f"{host}'s own prompt stays as it was; to go on from this one, {_EXPORT}"
    return ""


# --- its compactions


def choice(env: Mapping[str, str]) -> Choice:
    """The person's choice; the usual one where nothing is set. Raises: BadSettings, BadPolicy, CtxvcError."""
    from ctxvc.claude_code.compaction import Choice
    from ctxvc.policies import parse
    from ctxvc.policies.default import Default

    table = settings.person(env, COMMANDS).hosts.get(_HOST, {})
    return Choice(
        policy=parse(table["policy"]) if "policy" in table else Default(),
        line=line,
        target=table.get("target", 0),
        protect=table.get("protect", ()),
        always=table.get("always", False),
        off=table.get("off", False),
    )


def line(outcome: Outcome) -> str:
    """The line that tells a person of a compaction; Claude Code puts the plugin's name before it."""
    from ctxvc.core.plan import payoff

    sizes = f"{human_tokens(outcome.before)} → {human_tokens(outcome.after)} in {outcome.seconds:.1f} s"
    if outcome.archived:
        changes = f"{outcome.archived} block{'' if outcome.archived == 1 else 's'} archived, 0 lost"
    else:
        changes = "only what was changed since the last compaction: 0 blocks archived, 0 lost"
    parts = [sizes, changes]
    if outcome.beside_summary:
        parts.append(f"{payoff.CALLS} calls from here cost {outcome.beside_summary:.1f} × those after a summary")
    return "; ".join([*parts, "`ctxvc undo` takes it back"] if outcome.archived else parts)
