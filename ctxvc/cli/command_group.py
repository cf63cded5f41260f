"""The commands as click knows them: a module is imported only when its command is called."""

from __future__ import annotations

import keyword
from importlib import import_module

import click

from ctxvc.cli.command_list import COMMANDS, ELSEWHERE, SECTIONS, TOPICS
from ctxvc.core.suggestion import meant


class LazyGroup(click.Group):
    """A group that lists its commands from the table above: `--help` and an unknown name import none of them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(import_module(f"ctxvc.cli.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            suggestion = f"; did you mean {ELSEWHERE[name]}?" if name in ELSEWHERE else meant(name, COMMANDS)
            raise click.UsageError(f"there is no command {name[:40]!r}{suggestion}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))
        with formatter.section("Topics (ctxvc help TOPIC)"):
            formatter.write_dl(list(TOPICS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=summary) for name, summary in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
