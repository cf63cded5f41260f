"""The prompt that a host has of a recorded session: it follows the store only at the host's own occasions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from ctxvc.cli import settings
from ctxvc.cli.answers.shared import described
from ctxvc.importers import HOSTS
from ctxvc.recording import places
from ctxvc.store.trust import contained

if TYPE_CHECKING:
    from pathlib import Path

    from ctxvc.cli.app import App
    from ctxvc.session.session import Session
    from ctxvc.store.store import Store

#: When a changed prompt is the one that the model is sent: with the next request, after the host's next compaction, or
#: in a session of the host that goes on from an export.
Effect = Literal["next-request", "next-compaction", "export"]
#: The same in an answer.
EffectField = Annotated[
    Effect,
    described(
        "when the model is sent the changed prompt: with the next request; where another program owns it, after "
        "its next compaction, or only in a session that goes on from an export"
    ),
]

_HOST = settings.HOSTS[0]
_EXPORT = f"`ctxvc export --format {_HOST} --install` writes a session to resume"


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
    """When the session's prompt, changed now, is the one that its model is sent."""
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
    """When the session's model is sent a text that was put into its conversation. A host's compaction keeps what the
    host has, and notes: no other text comes in by it.
    """
    when = effect(app, session)
    return "export" if when == "next-compaction" else when


def advice(when: Effect) -> str:
    """What the person is told of it; empty where there is nothing to tell."""
    host = HOSTS[_HOST]
    match when:
        case "next-compaction":
            return f"in {host}'s prompt after its next compaction (/compact makes one); to have it now, {_EXPORT}"
        case "export":
            return f"{host}'s own prompt stays as it was; to go on from this one, {_EXPORT}"
    return ""
