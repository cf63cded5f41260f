"""What a person has set for the compactions of Claude Code: `[claude-code]` in their `config.toml`."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.claude_code.compaction import Choice
from ctxvc.cli import settings
from ctxvc.cli.command_list import COMMANDS
from ctxvc.core.display import human_tokens
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


def line(before: int, after: int, blocks: int, seconds: float) -> str:
    """The line on a compaction for the person; Claude Code puts the plugin's name before it."""
    sizes = f"{human_tokens(before)} → {human_tokens(after)} in {seconds:.1f} s"
    return f"{sizes}; {blocks} block{'' if blocks == 1 else 's'} archived, 0 lost; `ctxvc undo` takes it back"
