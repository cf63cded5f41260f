"""What a person has set for the compactions of Claude Code: `[claude-code]` in their `config.toml`."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.claude_code.compaction import Choice, Outcome
from ctxvc.cli import settings
from ctxvc.cli.command_list import COMMANDS
from ctxvc.core.display import human_tokens
from ctxvc.core.plan import payoff
from ctxvc.policies import parse
from ctxvc.policies.default import Default

HOST = "claude-code"


def choice(env: Mapping[str, str]) -> Choice:
    """The person's choice; the usual one where nothing is set. Raises: BadSettings, BadPolicy, CtxvcError."""
    table = settings.person(env, COMMANDS).hosts.get(HOST, {})
    return Choice(
        policy=parse(table["policy"]) if "policy" in table else Default(),
        line=line,
        target=table.get("target", 0),
        protect=table.get("protect", ()),
        always=table.get("always", False),
        off=table.get("off", False),
    )


def line(outcome: Outcome) -> str:
    """The line on a compaction for the person; Claude Code puts the plugin's name before it."""
    sizes = f"{human_tokens(outcome.before)} → {human_tokens(outcome.after)} in {outcome.seconds:.1f} s"
    if outcome.archived:
        changes = f"{outcome.archived} block{'' if outcome.archived == 1 else 's'} archived, 0 lost"
    else:
        changes = "only what was changed since the last compaction: 0 blocks archived, 0 lost"
    parts = [sizes, changes]
    if outcome.beside_summary:
        parts.append(f"{payoff.CALLS} calls from here cost {outcome.beside_summary:.1f} × those after a summary")
    return "; ".join([*parts, "`ctxvc undo` takes it back"] if outcome.archived else parts)
